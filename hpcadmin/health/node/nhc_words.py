"""The words of a check's line as bash makes them; nothing is run: what only a shell could do is named instead."""

from hpcadmin.health.node.nhc_arith import ArithError, evaluate

MAX_WORDS = 4096
RESERVED = ("!", "{", "}", "[[", "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case",
            "esac", "select", "function", "time", "coproc")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class NotRun(Exception):  # noqa: N818 - an answer, not a failure
    """Only a shell could do this: it is not done."""


class WrongSyntax(Exception):  # noqa: N818 - as bash calls it
    """bash would refuse the line."""


class Word:
    """A word, and whether its beginning was quoted (then it is no assignment, no reserved word, no comment)."""

    __slots__ = ("quoted", "text")

    def __init__(self, text: str, quoted: bool) -> None:
        self.text, self.quoted = text, quoted


def squeeze(check: str) -> str:
    """The line as `eval $CHECK` gets it: every run of blanks is one blank, in quotes too."""
    return " ".join(piece for piece in check.replace("\t", " ").replace("\n", " ").split(" ") if piece)


def split(line: str, names: "dict[str, str]") -> "list[Word]":
    """The words of one simple command."""
    return _Splitter(line, names).words()


def is_name(text: str) -> bool:
    return bool(text) and set(text) <= _NAME and not text[0].isdigit()


class _Splitter:
    def __init__(self, line: str, names: "dict[str, str]") -> None:
        self.line, self.names, self.at = line, names, 0
        self.found = []  # type: list[Word]
        self.current = None  # type: list[str] | None
        self.quoted_start = False
        self.raw = []  # type: list[bool]
        self.marks = set()  # type: set[str]

    def words(self) -> "list[Word]":
        while self.at < len(self.line):
            char = self.line[self.at]
            self.at += 1
            if char == " ":
                self._end()
                self._whole_word()
            elif char == "#" and self.current is None:
                break
            elif char in ";&|<>()":
                self._refuse_operator(char)
            elif char == "'":
                self._put(self._until("'"), True)
            elif char == '"':
                self._double()
            elif char == "\\":
                self._put(self.line[self.at:self.at + 1] or "\\", True)
                self.at += 1
            elif char == "$":
                self._dollar(quoted=False)
            elif char == "`":
                raise NotRun("a command substitution")
            elif char == "~" and self.current is None:
                raise NotRun("~ for a home directory")
            else:
                if char == "{":
                    self.marks.add("braces")
                self._put(char, False)
        self._end()
        self._whole_word()
        return self.found

    def _whole_word(self) -> None:
        """What bash does in an order, or by a rule, of its own within one word is not followed."""
        if len(self.marks) > 1:
            raise NotRun("%s in one word" % " and ".join(sorted(self.marks)))
        self.marks = set()

    def _put(self, text: str, quoted: bool) -> None:
        if self.current is None:
            self.current, self.raw, self.quoted_start = [], [], quoted
        self.current.extend(text)
        self.raw.extend([quoted] * len(text))

    def _end(self) -> None:
        if self.current is not None:
            whole = "".join(self.current)
            if "{}" in whole and "," in whole:
                raise NotRun("empty braces within others")
            self.found.extend(Word(text, self.quoted_start) for text in _braces(whole, self.raw))
            if len(self.found) > MAX_WORDS:
                raise NotRun("more than %d words" % MAX_WORDS)
        self.current = None

    def _until(self, quote: str) -> str:
        end = self.line.find(quote, self.at)
        if end < 0:
            raise WrongSyntax("a quote is not closed")
        text = self.line[self.at:end]
        self.at = end + 1
        return text

    def _double(self) -> None:
        self._put("", True)
        while True:
            char = self.line[self.at:self.at + 1]
            self.at += 1
            if not char:
                raise WrongSyntax("a quote is not closed")
            if char == '"':
                return
            if char == "`":
                raise NotRun("a command substitution")
            if char == "$":
                self._dollar(quoted=True)
            elif char == "\\" and self.line[self.at:self.at + 1] in ("$", "`", '"', "\\"):
                self._put(self.line[self.at], True)
                self.at += 1
            else:
                self._put(char, True)

    def _dollar(self, quoted: bool) -> None:
        rest = self.line[self.at:]
        if rest.startswith("(("):
            self._arithmetic(quoted)
            return
        if rest.startswith("("):
            raise NotRun("a command substitution")
        if not quoted and rest[:1] in ("'", '"'):
            raise NotRun("a quoted word of the kind that begins with a dollar sign")
        if rest.startswith("{"):
            name = rest[1:].partition("}")[0]
            if "}" not in rest:
                raise WrongSyntax("${ is not closed")
            self.at += len(name) + 2
        else:
            end = 0
            while end < len(rest) and rest[end] in _NAME and not (end == 0 and rest[0].isdigit()):
                end += 1
            name = rest[:end]
            self.at += end
            if not name and (not rest or rest[0] not in "0123456789@*#?$!-"):
                self._put("$", True)
                self.marks.add("a lone dollar sign")
                return
        if not is_name(name) or name not in self.names:
            raise NotRun("shell variable %s" % (name or rest[:1]))
        self._expanded(self.names[name], quoted)

    def _expanded(self, value: str, quoted: bool) -> None:
        if quoted:
            self._put(value, True)
            return
        self.marks.add("a variable")
        pieces = value.split()
        if value[:1].isspace():
            self._end()
        for number, piece in enumerate(pieces):
            if number:
                self._end()
            self._put(piece, True)
        if pieces and value[-1:].isspace():
            self._end()

    def _arithmetic(self, quoted: bool) -> None:
        end = self.line.find("))", self.at)
        if end < 0:
            raise WrongSyntax("$(( is not closed")
        text = self.line[self.at + 2:end]
        self.at = end + 2
        unknown = [name for name in _names_in(text) if name not in self.names]
        if unknown:
            raise NotRun("shell variable %s" % unknown[0])
        if set(text) & set("$`\"'\\{"):
            raise NotRun("arithmetic with shell variables")
        try:
            self._put(str(evaluate(text, self.names)), True)
        except ArithError as exc:
            raise WrongSyntax(str(exc)) from exc

    def _refuse_operator(self, char: str) -> None:
        if char == ")" or (char == "(" and self.found):
            raise WrongSyntax("%s where none may be" % char)
        if char == "(":
            raise NotRun("commands in parentheses")
        if not self.found and self.current is None and char in ";&|":
            raise WrongSyntax("%s where a command should be" % char)
        raise NotRun({"|": "a pipe or an alternative", "&": "a list of commands", ";": "several commands"}.get(
            char, "a redirection"))


def _names_in(text: str) -> "list[str]":
    names, at = [], 0
    while at < len(text):
        if text[at] in _NAME:
            end = at
            while end < len(text) and (text[end] in _NAME or text[end] == "#"):
                end += 1
            if not text[at].isdigit():
                names.append(text[at:end])
            at = end
        else:
            at += 1
    return names


def _braces(text: str, raw: "list[bool]", depth: int = 0) -> "list[str]":
    """Brace expansion of what is not quoted: /{a,b} is /a and /b, n{1..3} is n1 n2 n3."""
    for start, char in enumerate(text):
        if char != "{" or raw[start] or depth > 8:
            continue
        cuts, level = [start], 0
        for at in range(start, len(text)):
            if raw[at]:
                continue
            level += (text[at] == "{") - (text[at] == "}")
            if text[at] == "," and level == 1:
                cuts.append(at)
            if level == 0:
                cuts.append(at)
                break
        else:
            continue
        end = cuts[-1]
        after = text[end + 1:]
        if len(cuts) > 2:
            out = []
            for place, left in enumerate(cuts[:-1]):
                right = cuts[place + 1]
                middle = text[left + 1:right]
                kept = raw[:start] + raw[left + 1:right] + raw[end + 1:]
                out += _braces(text[:start] + middle + after, kept, depth + 1)
            return out
        sequence = _sequence(text[start + 1:end])
        if sequence:
            kept_tail = raw[end + 1:]
            return [whole for item in sequence for whole in _braces(
                text[:start] + item + after, raw[:start] + [True] * len(item) + kept_tail, depth + 1)]
    return [text]


def _sequence(inside: str) -> "list[str]":
    low, dots, high = inside.partition("..")
    if not dots or not (low.isdigit() and high.isdigit()) or len(low + high) > 12:
        return []
    first, last = int(low), int(high)
    if abs(last - first) > MAX_WORDS:
        raise NotRun("more than %d words" % MAX_WORDS)
    padded = any(len(text) > 1 and text[0] == "0" for text in (low, high))
    width = max(len(low), len(high)) if padded else 0
    step = 1 if last >= first else -1
    return [str(value).rjust(width, "0") for value in range(first, last + step, step)]


def options(wanted: str, args: "list[str]") -> "tuple[list[tuple[str, str]], list[str], str]":
    """As bash's getopts with a leading colon: (options with their arguments, the rest, what is wrong)."""
    found, at = [], 0  # type: list[tuple[str, str]], int
    while at < len(args) and args[at][:1] == "-" and args[at] != "-":
        word = args[at]
        at += 1
        if word == "--":
            break
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            place = wanted.find(letter) if letter != ":" else -1
            if place < 0:
                return found, args[at:], "Invalid option: -%s" % letter
            if wanted[place + 1:place + 2] != ":":
                found.append((letter, ""))
                continue
            if not letters:
                if at >= len(args):
                    return found, [], "Option -%s requires an argument" % letter
                letters = args[at]
                at += 1
            found.append((letter, letters))
            break
    return found, args[at:], ""

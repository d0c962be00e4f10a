"""NHC's match expressions: glob, /regular expression/, {range of nodes}, each after ! for the opposite.

Both kinds of pattern mean what bash makes of them, so regular expressions are those of the C library (POSIX extended).
"""

MAX_TEXT = 1 << 16
MAX_PATTERN = 1 << 12
_REGEX_BYTES = 1024   # more than any C library's regex_t
_EXTENDED = 1

_compiled = {}  # type: dict[str, object]
_globs = {}  # type: dict[str, object]
_library = []  # type: list[object]

MYPY = False
if MYPY:
    from typing import Any, Optional


class Abort(Exception):  # noqa: N818 - bash gives up the line
    """bash would stop this check's line here with an error of its own: NHC takes that as a failure."""


class Matcher:
    """Matches, and remembers what was odd about the expressions."""

    def __init__(self) -> None:
        self.notices = []  # type: list[str]

    def matches(self, text: str, expression: str) -> bool:
        negative = expression[:1] == "!"
        if negative:
            expression = expression[1:]
        if expression[:1] == "/" and expression[-1:] == "/":
            if len(expression) < 2:
                raise Abort("a single / is no match expression")
            hit = self.regex(text, expression[1:-1])
        elif expression[:1] == "{" and expression[-1:] == "}":
            if len(expression) < 2:
                raise Abort("a single brace is no match expression")
            hit = self.in_range(text, expression[1:-1])
        else:
            hit = glob_matches(text, expression)
        return hit != negative

    def regex(self, text: str, pattern: str) -> bool:
        compiled = compile_regex(pattern)
        if compiled is None:
            self._notice("/%s/ is no regular expression: it never matches" % pattern)
            return False
        return regex_groups(compiled, text) is not None

    def in_range(self, name: str, ranges: str) -> bool:
        """One of a1,b[1-9],c[01-10].example: no more than one range in a name, no list in brackets."""
        for group in _split(ranges):
            if is_name(group):
                if glob_matches(name, group):
                    return True
                continue
            parts = range_parts(group)
            if parts is None:
                self._notice("{%s}: %r is not understood by NHC: this and what follows is ignored" % (ranges, group))
                return False
            if self._in_group(name, *parts):
                return True
        return False

    def _in_group(self, name: str, prefix: str, low: str, high: str, suffix: str) -> bool:
        if not name.startswith(prefix) or (suffix and not name.endswith(suffix)):
            return False
        digits = name[len(prefix):]
        digits = digits[:-len(suffix)] if suffix and digits.endswith(suffix) else digits
        width = max(len(low), len(high)) if len(low) < len(high) else len(low)
        if int(low) > int(high):
            low, high = high, low
        if not _ascii_digits(digits):
            return False
        inside = int(low) <= int(digits) <= int(high)
        if inside and len(digits) != width:
            self._notice("%s[%s-%s]%s: NHC wants %d digits, so %s is not in it"
                         % (prefix, low, high, suffix, width, name))
        return inside and len(digits) == width

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)


def _split(ranges: str) -> "list[str]":
    """As bash splits at commas: an empty part at the end is none."""
    parts = ranges.split(",")
    return parts[:-1] if parts[-1] == "" else parts


def _ascii_digits(text: str) -> bool:
    return 0 < len(text) < 19 and all("0" <= char <= "9" for char in text)


_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_TAIL = _WORD - {"_"} | {".", "\\"}


def is_name(group: str) -> bool:
    """A name with a digit: letters, digits, - and _ up to the last digit of that part, then no underscore."""
    for position in range(len(group), 1, -1):
        if group[position - 1].isdigit() and set(group[:position]) <= _WORD and set(group[position:]) <= _TAIL:
            return True
    return False


def range_parts(group: str) -> "Optional[tuple[str, str, str, str]]":
    prefix, bracket, rest = group.partition("[")
    inside, closing, suffix = rest.partition("]")
    low, dash, high = inside.partition("-")
    if not (bracket and closing and dash and prefix and set(prefix) <= _WORD and set(suffix) <= _TAIL
            and _ascii_digits(low) and _ascii_digits(high)):
        return None
    return prefix, low, high, suffix


# Regular expressions: the C library's, by ctypes. It is what bash uses, and takes no exponential time.

def _libc() -> "Any":
    if not _library:
        import ctypes
        library = ctypes.CDLL(None)
        library.regcomp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
        library.regexec.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int)
        _library.extend((library, ctypes))
    return _library


def compile_regex(pattern: str) -> "Any":
    """The compiled pattern; None for what is no regular expression."""
    if pattern not in _compiled:
        raw = pattern.encode("utf-8", "surrogateescape")
        library, ctypes = _libc()
        space = ctypes.create_string_buffer(_REGEX_BYTES)
        fine = len(raw) <= MAX_PATTERN and b"\0" not in raw and library.regcomp(space, raw, _EXTENDED) == 0
        _compiled[pattern] = space if fine else None
    return _compiled[pattern]


def regex_groups(compiled: "Any", text: str, count: int = 4) -> "Optional[list[str]]":
    """What the whole and each group matched, or None."""
    if compiled is None:                    # no regular expression: the C library must not see it
        return None
    raw = text.encode("utf-8", "surrogateescape")[:MAX_TEXT].replace(b"\0", b"")
    library, ctypes = _libc()
    spans = (ctypes.c_int * (2 * count))()
    if library.regexec(compiled, raw, count, spans, 0) != 0:
        return None
    return [raw[spans[2 * i]:spans[2 * i + 1]].decode("utf-8", "surrogateescape") if spans[2 * i] >= 0 else ""
            for i in range(count)]


# Globs: bash's, with its extended operators, as [[ == ]] knows them.

def glob_matches(text: str, pattern: str) -> bool:
    if pattern == "*" or (pattern == text and not set(pattern) & set("*?[\\(")):
        return True
    if pattern not in _globs:
        import re
        if len(pattern) > MAX_PATTERN:
            return False
        body, _ = _translate(pattern, 0, "")
        try:
            _globs[pattern] = re.compile("(?s)" + body + r"\Z")
        except re.error:
            _globs[pattern] = None
    compiled = _globs[pattern]
    return compiled is not None and compiled.match(text[:MAX_TEXT]) is not None  # type: ignore[attr-defined]


def _translate(pattern: str, at: int, ends: str) -> "tuple[str, int]":
    """A regular expression for the pattern from a place up to its end or one of the characters (inside parentheses)."""
    import re
    out = []  # type: list[str]
    while at < len(pattern) and pattern[at] not in ends:
        char = pattern[at]
        if char in "?*+@!" and pattern[at + 1:at + 2] == "(" and _closes(pattern, at + 1):
            choices, at = _alternatives(pattern, at + 2)
            body = "|".join(choices)
            if char == "!":
                rest, end = _translate(pattern, at, ends)
                return "".join(out) + "(?!(?:%s)%s%s).*?%s" % (body, rest, "" if ends else r"\Z", rest), end
            out.append("(?:%s)%s" % (body, {"@": ""}.get(char, char)))
            continue
        at += 1
        if char == "*":
            if out[-1:] != [".*"]:
                out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[":
            piece, at = _bracket(pattern, at)
            out.append(piece)
        elif char == "\\" and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append(re.escape(char))
    return "".join(out), at


def _closes(pattern: str, at: int) -> bool:
    depth = 0
    for char in pattern[at:]:
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return True
    return False


def _alternatives(pattern: str, at: int) -> "tuple[list[str], int]":
    found = []
    while True:
        piece, at = _translate(pattern, at, "|)")
        found.append(piece)
        at += 1
        if pattern[at - 1:at] != "|":
            return found, at


_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
            "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "cntrl": r"\x00-\x1f\x7f",
            "print": r"\x20-\x7e", "graph": r"\x21-\x7e", "word": r"\w"}


def _bracket(pattern: str, at: int) -> "tuple[str, int]":
    """[set] of a glob from behind its bracket; an open bracket alone is itself."""
    start, inverse = at, ""
    if pattern[at:at + 1] in ("!", "^"):
        inverse, at = "^", at + 1
    out, first = "", True
    while at < len(pattern):
        if pattern[at] == "]" and not first:
            if not out:
                return ("." if inverse else "(?!)"), at + 1
            return "[%s%s]" % (inverse, out), at + 1
        first = False
        if pattern.startswith("[:", at) and ":]" in pattern[at:]:
            end = pattern.index(":]", at)
            out += _CLASSES.get(pattern[at + 2:end], "")
            at = end + 2
            continue
        low, at = _member(pattern, at)
        high = low
        if pattern[at:at + 1] == "-" and pattern[at + 1:at + 2] not in ("", "]"):
            high, at = _member(pattern, at + 1)
        if low <= high:
            out += _escaped(low) + ("-" + _escaped(high) if high != low else "")
    return r"\[", start


def _member(pattern: str, at: int) -> "tuple[str, int]":
    if pattern[at] == "\\" and at + 1 < len(pattern):
        at += 1
    return pattern[at], at + 1


def _escaped(char: str) -> str:
    return char if char.isalnum() else "\\" + char

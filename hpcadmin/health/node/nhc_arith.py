"""Numbers as NHC takes them: bash's arithmetic (64 bits, octal after 0, variables), its sizes and counts."""

from hpcadmin.health.node.nhc_match import Abort

MYPY = False
if MYPY:
    from typing import Callable, Optional

MAX_EXPRESSION = 256
MAX_DEPTH = 32
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"),
           ("*", "/", "%"))
_OPERATORS = ("**", "||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "|", "^", "&", "<", ">", "+", "-", "*", "/", "%",
              "!", "~", "(", ")", "?", ":", ",")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@_"


class ArithError(Exception):
    """No arithmetic expression."""


def evaluate(text: str, names: "dict[str, str]", depth: int = 0) -> int:
    """The value of an expression; an unknown name is 0."""
    if len(text) > MAX_EXPRESSION or depth > MAX_DEPTH:
        raise ArithError("too long")
    parser = _Parser(_tokens(text), names, depth)
    if not parser.tokens:
        return 0
    value = parser.choice()
    while parser.next(","):
        value = parser.choice()
    if parser.tokens:
        raise ArithError("%r is no number" % text)
    return value


def wrapped(value: int) -> int:
    """As a 64-bit number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class _Parser:
    def __init__(self, tokens: "list[str]", names: "dict[str, str]", depth: int) -> None:
        self.tokens, self.names, self.depth = tokens, names, depth

    def next(self, *wanted: str) -> str:
        if self.tokens and self.tokens[0] in wanted:
            return self.tokens.pop(0)
        return ""

    def choice(self) -> int:
        condition = self.level(0)
        if not self.next("?"):
            return condition
        yes = self.choice()
        if not self.next(":"):
            raise ArithError("? without :")
        no = self.choice()
        return yes if condition else no

    def level(self, number: int) -> int:
        if number == len(_LEVELS):
            return self.power()
        value = self.level(number + 1)
        while True:
            operator = self.next(*_LEVELS[number])
            if not operator:
                return value
            value = _apply(operator, value, self.level(number + 1))

    def power(self) -> int:
        base = self.unary()
        if not self.next("**"):
            return base
        exponent = self.power()
        if not 0 <= exponent <= 64:
            raise ArithError("exponent")
        return wrapped(base ** exponent)

    def unary(self) -> int:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ArithError("too deep")
        operator = self.next("!", "~", "+", "-")
        if operator:
            value = self.unary()
            value = {"!": int(not value), "~": ~value, "+": value, "-": -value}[operator]
        elif self.next("("):
            value = self.choice()
            if not self.next(")"):
                raise ArithError("( without )")
        else:
            value = self.atom()
        self.depth -= 1
        return wrapped(value)

    def atom(self) -> int:
        if not self.tokens:
            raise ArithError("operand missing")
        word = self.tokens.pop(0)
        if word in _OPERATORS:
            raise ArithError("operand missing before %s" % word)
        if word[0].isdigit():
            return number(word)
        return evaluate(self.names.get(word, ""), self.names, self.depth + 1)


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise ArithError("division by 0")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return wrapped(quotient if operator == "/" else left - quotient * right)
    if operator in ("<<", ">>"):
        return wrapped(left << (right & 63) if operator == "<<" else left >> (right & 63))
    value = {"||": lambda: int(bool(left or right)), "&&": lambda: int(bool(left and right)), "|": lambda: left | right,
             "^": lambda: left ^ right, "&": lambda: left & right, "==": lambda: int(left == right),
             "!=": lambda: int(left != right), "<=": lambda: int(left <= right), ">=": lambda: int(left >= right),
             "<": lambda: int(left < right), ">": lambda: int(left > right), "+": lambda: left + right,
             "-": lambda: left - right, "*": lambda: left * right}[operator]()
    return wrapped(value)


def number(word: str) -> int:
    """A number as bash writes it: 10, 010 (8), 0x10 (16), 2#101."""
    base, mark, digits = word.partition("#")
    if mark:
        if not base.isdigit() or base[0] == "0" or not 2 <= int(base[:3]) <= 64 or not digits:
            raise ArithError("%r is no number" % word)
        return _digits(digits if int(base) > 36 else digits.lower(), int(base), word)
    if word[:2] in ("0x", "0X"):
        return _digits(word[2:].lower(), 16, word)
    return _digits(word, 8 if word[0] == "0" else 10, word)


def _digits(digits: str, base: int, word: str) -> int:
    value = 0
    for char in digits:
        place = _DIGITS.find(char)
        if not 0 <= place < base:
            raise ArithError("%r is no number" % word)
        value = wrapped(value * base + place)
    return value


def _tokens(text: str) -> "list[str]":
    tokens, at = [], 0
    while at < len(text):
        char = text[at]
        if char in " \t\n":
            at += 1
        elif char == "_" or (char.isalnum() and ord(char) < 128):
            end, more = at, "_#@" if char.isdigit() else "_"
            while end < len(text) and ord(text[end]) < 128 and (text[end].isalnum() or text[end] in more):
                end += 1
            tokens.append(text[at:end])
            at = end
        else:
            for operator in _OPERATORS:
                if text.startswith(operator, at):
                    break
            else:
                raise ArithError("%r is no number" % text)
            tokens.append(operator)
            at += len(operator)
    return tokens


class Numbers:
    """Arithmetic for one line: the variables known to it, and what could not be read."""

    def __init__(self, names: "dict[str, str]", notice: "Callable[[str], None]") -> None:
        self.names, self.notice = dict(names), notice

    def expand(self, text: str) -> int:
        """$((text)): an error ends the line, which NHC takes as a failure."""
        try:
            return evaluate(text, self.names)
        except ArithError as exc:
            raise Abort("%s in %s" % (exc, text)) from exc

    def test(self, left: str, operator: str, right: str) -> bool:
        """[[ left -lt right ]]: an error makes it false, so that a limit that cannot be read never fails a check."""
        try:
            a, b = evaluate(left, self.names), evaluate(right, self.names)
        except ArithError:
            self.notice("%s against %s is no comparison of numbers: NHC passes over it" % (left, right))
            return False
        return {"lt": a < b, "gt": a > b, "le": a <= b, "ge": a >= b, "eq": a == b, "ne": a != b}[operator]

    def size(self, text: str, multiplier: int = 1024, byte: bool = True, first: int = 0) -> str:
        """A size in kB as text ("32gb" is 33554432); without a known suffix it stays what it was."""
        if byte and text[-1:] in ("b", "B"):
            text = text[:-1]
        suffix = text[-1:].lower()
        power = "kmgtpe".find(suffix) if suffix else -1
        if power < 0:
            return self._assigned(text)
        if power == 0 and not first:
            return self._assigned(text[:-1])
        return str(self.expand("*".join([text[:-1]] + [str(multiplier)] * (power + first))))

    def count(self, text: str) -> str:
        """A count as text: 1k is 1000."""
        return self.size(text, 1000, byte=False, first=1)

    def _assigned(self, text: str) -> str:
        """What is left after `eval VAR=text`: with a blank bash runs a command instead, and the variable stays."""
        return text


def numeric(text: str) -> "Optional[int]":
    return int(text) if text.isdigit() and len(text) < 19 else None

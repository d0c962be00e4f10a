"""An existing nhc.conf as NHC reads it: lines joined and unescaped as by bash's `read`, masks of hosts, checks."""

from hpcadmin.health.node.nhc_match import Abort, Matcher

MYPY = False
if MYPY:
    from typing import Iterator

MAX_CONF = 1 << 20
BLANKS = " \t"


class Line:
    """One line of the file: where it begins, the mask of hosts, the check as text, and what is odd about it."""

    __slots__ = ("check", "mask", "notices", "number", "wrong")

    def __init__(self, number: int, mask: str, check: str, notices: "list[str]", wrong: str = "") -> None:
        self.number, self.mask, self.check, self.notices, self.wrong = number, mask, check, notices, wrong


def for_host(text: str, host: str) -> "list[Line]":
    """The lines that count on this host, in order; and those that NHC skips although they look like a check."""
    chosen = []
    for number, line, notices in logical_lines(text):
        mask, bar, check = line.partition("||")
        if not bar:
            check = mask
        mask, check = mask.strip(BLANKS), check.strip(BLANKS)
        if not mask or not check or mask[0] == "#":
            continue
        matcher = Matcher()
        try:
            hit = matcher.matches(host, mask)
        except Abort as exc:
            chosen.append(Line(number, mask, check, notices, str(exc)))
            continue
        odd = notices + matcher.notices
        if not bar and not hit:
            chosen.append(Line(number, "", "", [*odd, "the line has no ||: NHC skips it"]))
        elif hit:
            chosen.append(Line(number, mask, check, odd))
        elif matcher.notices:
            chosen.append(Line(number, "", "", odd))
    return chosen


def logical_lines(text: str) -> "Iterator[tuple[int, str, list[str]]]":
    """(number of the first line, text, what is odd) of each line of a configuration."""
    if len(text) > MAX_CONF:
        raise ValueError("larger than %d bytes" % MAX_CONF)
    number, raw = 1, text.split("\n")
    for start, line, whole in joined(text):
        number = start
        found = [] if not line or line[0] == "#" else _oddities(line, raw[number - 1])
        if not whole and line:
            found.append("the last line has no newline: NHC does not see it")
        yield number, line, found


def joined(text: str) -> "Iterator[tuple[int, str, bool]]":
    """(number of the first line, text, whether it ends with a newline), as `while read LINE` sees lines.

    A backslash takes away its own line's end; elsewhere it only protects the next character, and is dropped.
    """
    number = start = 1
    chars, guarded = [], []  # type: list[str], list[bool]
    position, size = 0, len(text)
    while position < size:
        char = text[position]
        position += 1
        if char == "\\":
            following = text[position:position + 1]
            position += 1
            if following == "\n":
                number += 1
            elif following and following != "\0":
                chars.append(following)
                guarded.append(True)
        elif char == "\n":
            number += 1
            yield start, _trimmed(chars, guarded), True
            start, chars, guarded = number, [], []
        elif char != "\0":
            chars.append(char)
            guarded.append(False)
    if chars:
        yield start, _trimmed(chars, guarded), False


def _trimmed(chars: "list[str]", guarded: "list[bool]") -> str:
    """Without blanks around it; at the end of several words protected blanks go too, after a single word they stay."""
    def blank(at: int) -> bool:
        return chars[at] in BLANKS and not guarded[at]

    first, last = 0, len(chars)
    while first < last and blank(first):
        first += 1
    end = first
    while end < last and not blank(end):
        end += 1
    if all(blank(at) for at in range(end, last)):
        return "".join(chars[first:end])
    while last > first + 1 and chars[last - 1] in BLANKS:
        last -= 1
    return "".join(chars[first:last])


def _oddities(line: str, raw: str) -> "list[str]":
    found = []
    if "\\" in raw.rstrip().rstrip("\\"):
        found.append("NHC drops backslashes when it reads its file: write them twice")
    if line[-1] == "\r":
        found.append("the line ends with a carriage return, which NHC takes as part of the last word")
    return found

"""The text of a file to statements, as Slurm's own reader does it (src/common/parse_config.c).

First a comment is cut: it begins at a # without a backslash before it, inside quotes too. Then a backslash at the end
joins the next line, then backslashes go. One key and its value stand on a line, unless the first key is one that takes
the rest of the line (NodeName=, PartitionName=, Name= in gres.conf, ...).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpcadmin.conf.existing.parts import Fault, Place, SourceFile, Statement, Value
from hpcadmin.conf.passwords import secret

MAX_CHARACTERS = 32 * 1024 * 1024
MAX_LINE = 1024 * 1024
MAX_FAULTS = 50

# isspace() in the C locale: a no-break space is none.
WHITE = " \t\n\v\f\r"
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*#")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)
_PAIR = re.compile(r"""[ \t\n\v\f\r]*([A-Za-z0-9_.]+)[ \t\n\v\f\r]*([-+*/]?)=([ \t\n\v\f\r]*)"""
                   r"""(?:"([^"]*)"|([^ \t\n\v\f\r]+))(?=[ \t\n\v\f\r]|\Z)""")
_LOST = re.compile(r"[A-Za-z][A-Za-z0-9]*=")
_INCLUDE = re.compile(r"include[ \t\n\v\f\r]+([^ \t\n\v\f\r]*)", re.IGNORECASE)

# Keys whose line goes on after their value; after every other key it has to end.
LINE_KEYS: Mapping[str, frozenset[str]] = {
    "slurm.conf": frozenset({"nodename", "partitionname", "nodeset", "downnodes", "frontendname", "poweraction"}),
    "gres.conf": frozenset({"name", "nodename"}),
    "topology.conf": frozenset({"switchname", "blockname"}),
    "job_container.conf": frozenset({"basepath", "nodename"}),
    "helpers.conf": frozenset({"feature", "nodename"}),
}
# Files with a grammar of their own; they are kept as they are.
OTHER_GRAMMAR = frozenset({"plugstack.conf", "topology.yaml", "namespace.yaml", "resources.yaml", "cli_filter.lua",
                           "job_submit.lua"})


@dataclass(frozen=True, slots=True)
class Logical:
    """Physical lines that are one, without comment and backslashes. starts: (offset in text, physical line)."""

    first: int
    last: int
    text: str
    starts: tuple[tuple[int, int], ...]
    tail: str = ""                       # the comment behind it; a newline where the file ends without one

    def line_of(self, offset: int) -> int:
        if len(self.starts) == 1:
            return self.first
        return self.starts[bisect_right(self.starts, (offset, self.last)) - 1][1]


def scan(text: str, path: str, name: str) -> tuple[SourceFile, tuple[Fault, ...]]:
    """The file with its statements, and what Slurm would not read. path: as it is shown; name: whose grammar it has."""
    if len(text) > MAX_CHARACTERS:
        found = Fault(Place(path, 1), f"has {len(text)} characters, more than {MAX_CHARACTERS}: not read")
        return SourceFile(path, name, tuple(text.split("\n")), ()), (found,)
    lines = tuple(text.split("\n"))
    if name in OTHER_GRAMMAR:
        return SourceFile(path, name, lines, ()), ()
    faults: list[Fault] = []
    statements = []
    line_keys = LINE_KEYS.get(name, frozenset())
    for item in logical(lines):
        faults += _odd_bytes(lines, item, path)
        if not item.text.strip(WHITE):
            continue
        statement, more = _statement(item, path, line_keys)
        statements.append(statement)
        faults += more
    other = [statement.place for statement in statements if not statement.values]
    if len(other) > max(len(statements) // 2, 2):
        # A log, a program, /etc/shadow: none of its lines is repeated.
        return SourceFile(path, name, lines, tuple(statements)), (Fault(
            other[0], f"{len(other)} of {len(statements)} lines have no Key=Value: this is none of Slurm's files"),)
    if len(faults) > MAX_FAULTS:
        rest = len(faults) - MAX_FAULTS
        faults = [*faults[:MAX_FAULTS], Fault(faults[MAX_FAULTS].place, f"{rest} more lines like these in this file",
                                              any(f.fatal for f in faults[MAX_FAULTS:]))]
    return SourceFile(path, name, lines, tuple(statements)), tuple(faults)


def logical(lines: tuple[str, ...]) -> Iterator[Logical]:
    """Every logical line, empty ones too."""
    pieces: list[str] = []
    starts: list[tuple[int, int]] = []
    length, first = 0, 1
    for number, raw in enumerate(lines, 1):
        piece, goes_on = bare(raw, first=number == 1)
        if not starts:
            first = number
        starts.append((length, number))
        pieces.append(piece)
        length += len(piece)
        if not goes_on:
            tail = raw[visible(raw):] or ("\n" if number == len(lines) else "")
            yield Logical(first, number, "".join(pieces), tuple(starts), tail)
            pieces, starts, length = [], [], 0
    if starts:
        yield Logical(first, len(lines), "".join(pieces), tuple(starts))


def bare(raw: str, *, first: bool = False) -> tuple[str, bool]:
    """A physical line without comment, joining backslash and escapes; and whether the next line belongs to it."""
    cut = raw[:visible(raw)]
    if first:
        cut = cut.removeprefix("\ufeff")
    if "\\" not in cut:
        return cut, False
    stripped = cut.rstrip(WHITE)
    joins = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return _ESCAPE.sub(r"\1", stripped[:-1] if joins else cut), joins


def visible(raw: str) -> int:
    """How many characters of a physical line Slurm sees: up to a NUL byte or a comment."""
    end = raw.find("\0") if "\0" in raw else len(raw)
    match = _COMMENT.search(raw, 0, end) if "#" in raw else None
    return match.end() - 1 if match else end


def pair_at(text: str, at: int) -> tuple[str, int, int] | None:
    """(key, where its value begins, where it ends, with its quotes) of the next Key=Value of a joined line."""
    match = _PAIR.match(text, at)
    if match is None:
        return None
    quote = match[4] is not None
    return match[1], match.start(4) - 1 if quote else match.start(5), match.end()


def _odd_bytes(lines: tuple[str, ...], item: Logical, path: str) -> Iterator[Fault]:
    if item.first == 1 and lines[0].startswith("\ufeff"):
        yield Fault(Place(path, 1), "begins with a byte order mark, which Slurm cannot read: save it without one")
    for number in range(item.first, item.last + 1):
        if "\0" in lines[number - 1]:
            yield Fault(Place(path, number), "has a NUL byte: Slurm does not see the rest of the line", fatal=False)


def _statement(item: Logical, path: str, line_keys: frozenset[str]) -> tuple[Statement, list[Fault]]:
    place = Place(path, item.first)
    text = item.text.rstrip(WHITE)
    if len(text) > MAX_LINE:
        return Statement(place, item.last, (), ""), [
            Fault(place, f"a line of {len(text)} characters, more than {MAX_LINE}: not read")]
    include = _INCLUDE.match(item.text)
    if include:
        rest = item.text[include.end():].strip(WHITE)
        told = [Fault(place, f"Slurm cannot read {_short(rest)} after the name of the included file")] if rest else []
        return Statement(place, item.last, (Value("Include", include[1], place),), text), told or [*_open(item, place)]
    values: list[Value] = []
    faults: list[Fault] = []
    at = 0
    while match := _PAIR.match(item.text, at):
        where = place if item.first == item.last else Place(path, item.line_of(match.start(1)))
        value = match[4] if match[4] is not None else match[5]
        values.append(Value(match[1], value, where))
        if match[2] or match[3] or (match[5] and '"' in value):
            faults += _misread(match, where)
        at = match.end()
        if len(values) == 1 and match[1].casefold() not in line_keys and item.text[at:].strip(WHITE):
            rest = item.text[at:].strip(WHITE)
            shown = "what stands" if secret(match[1]) else _short(rest)
            faults.append(Fault(Place(path, item.line_of(at)), f"Slurm cannot read {shown} after {match[1]}=: "
                                "one setting a line, a value with blanks in double quotes"))
    rest = item.text[at:].strip(WHITE)
    if rest and not any(f.fatal for f in faults):
        faults.append(Fault(Place(path, item.line_of(at)), f"Slurm cannot read {_short(rest)}: {_why(rest)}"))
    return Statement(place, item.last, tuple(values), text), faults


def _open(item: Logical, place: Place) -> Iterator[Fault]:
    """Slurm looks for a blank behind the name without regard to where the line ends."""
    if item.text[-1:] in WHITE or not item.tail:
        return
    if item.tail == "\n":
        yield Fault(place, "Include on the last line without a newline behind it: Slurm may read on behind the end of "
                    "the file", fatal=False)
    elif " " in item.tail.strip(WHITE) or "\t" in item.tail.strip(WHITE):
        yield Fault(place, "a comment right behind the name of the included file: Slurm takes its words as settings; "
                    "put a blank before the #")


def _why(rest: str) -> str:
    if rest.casefold().startswith("include"):
        return "Include and the name of a file, at the very beginning of the line, with no = between them"
    if rest.endswith("="):
        return "a key without a value"
    if "=" not in rest:
        return "no Key=Value; a value with blanks stands in double quotes"
    return "no Key=Value"


def _misread(match: re.Match[str], place: Place) -> Iterator[Fault]:
    """What Slurm takes, but not as it looks."""
    key, value = match[1], match[4] if match[4] is not None else match[5]
    if match[2]:
        yield Fault(place, f"{key}{match[2]}= is read as {key}=: it replaces, it adds nothing", fatal=False)
    if match[3] and match[5] and _LOST.match(value):
        yield Fault(place, f"{key}= has no value, so Slurm takes {_short(value)} as its value", fatal=False)
    if match[5] and '"' in value:
        yield Fault(place, f"{key}={_short(value)}: the quotes do not enclose the value, so Slurm takes them as a part "
                    "of it", fatal=False)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else f"{text[:60]}...")

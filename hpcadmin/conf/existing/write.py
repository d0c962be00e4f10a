"""Files back to their text, and changes that leave alone every line that they are not about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from hpcadmin.conf.existing.lines import MAX_LINE, WHITE, bare, pair_at, scan, visible
from hpcadmin.conf.existing.parts import SourceFile, Statement
from hpcadmin.errors import UsageError


@dataclass(frozen=True)
class SetValue:
    """key=value on the line of `statement`; of a key that it lacks, at its end. A comment there stays."""

    statement: Statement
    key: str
    value: str


@dataclass(frozen=True)
class SetKey:
    """A setting of its own line: the value of the last line that has it, else a new line at the end of the file."""

    key: str
    value: str


@dataclass(frozen=True)
class Remove:
    """The statement goes, with what is commented behind it on the same lines."""

    statement: Statement


@dataclass(frozen=True)
class AddAfter:
    """`text`, lines of their own, below the statement; below the last line of the file where there is none."""

    statement: Statement | None
    text: str


Change = Union[SetValue, SetKey, Remove, AddAfter]


def write(file: SourceFile) -> str:
    """The text that was read, to the byte."""
    return "\n".join(file.lines)


def edit(file: SourceFile, changes: Sequence[Change]) -> SourceFile:
    """The file with the changes, read anew. The statements are those of `file`.

    Raises UsageError for a value that cannot be written so that Slurm reads it, and for a statement of another file.
    """
    end = "\r" if sum(line.endswith("\r") for line in file.lines) * 2 > len(file.lines) else ""
    at_line: dict[int, list[SetValue | Remove | AddAfter]] = {}
    ends: dict[int, int] = {}
    appended: list[str] = []
    for change in changes:
        item = _placed(file, change)
        if isinstance(item, str):
            appended += item.split("\n")
            continue
        statement = item.statement
        if statement is None or statement not in file.statements:
            raise UsageError("the statement is none of this file", where=file.path)
        at_line.setdefault(statement.place.line, []).append(item)
        ends[statement.place.line] = statement.last
    lines = list(file.lines)
    for first in sorted(at_line, reverse=True):
        lines[first - 1:ends[first]] = _block(lines[first - 1:ends[first]], at_line[first], file, first, end)
    _append(lines, appended, end)
    return scan("\n".join(lines), file.path, file.name)[0]


def quoted(value: str) -> str:
    """A value as it has to stand in a file. Raises UsageError where none of Slurm's writings would give it back."""
    wrong = next((c for c in value if c in '"\n\r\0'), None)
    if wrong is not None or len(value) > MAX_LINE:
        raise UsageError(f"a value with {wrong!r} cannot be written" if wrong else "the value is too long for a line")
    text = value.replace("\\", "\\\\").replace("#", "\\#")
    return f'"{text}"' if not value or any(c in WHITE for c in value) else text


def _placed(file: SourceFile, change: Change) -> SetValue | Remove | AddAfter | str:
    """The change at its statement; a text that goes to the end of the file."""
    if isinstance(change, SetKey):
        key = change.key.casefold()
        found = next((s for s in reversed(file.statements) if s.kind == key), None)
        return SetValue(found, change.key, change.value) if found else f"{change.key}={quoted(change.value)}"
    if isinstance(change, AddAfter) and change.statement is None:
        return change.text
    return change


def _block(lines: list[str], changes: Sequence[SetValue | Remove | AddAfter], file: SourceFile, first: int,
           end: str) -> list[str]:
    below: list[str] = []
    gone = False
    for change in changes:
        if isinstance(change, Remove):
            gone = True
        elif isinstance(change, AddAfter):
            below += [f"{text}{end}" for text in change.text.split("\n")]
        else:
            lines = _set(lines, change, file, first)
    last_joins = bool(lines) and bare(lines[-1])[1]
    if below and not gone and last_joins:
        raise UsageError("the last line ends in a backslash: nothing can be put below it", where=f"{file.path}:{first}")
    return [*([] if gone else lines), *below]


def _append(lines: list[str], texts: list[str], end: str) -> None:
    """At the end; a last line without a newline gets one, and the file ends as it ended."""
    if not texts:
        return
    if lines and lines[-1] and bare(lines[-1])[1]:
        raise UsageError("the file ends in a backslash: nothing can be put below it")
    tail = [] if lines and lines[-1].strip(WHITE) else lines[-1:]
    if tail:
        lines.pop()
    elif lines and end and not lines[-1].endswith(end):
        lines[-1] += end
    lines += [f"{text}{end}" for text in texts]
    lines += tail


def _set(lines: list[str], change: SetValue, file: SourceFile, first: int) -> list[str]:
    text, where = _map(lines, first == 1)
    new = quoted(change.value)
    at, span = 0, None
    while found := pair_at(text, at):
        key, begin, stop = found
        if key.casefold() == change.key.casefold():
            span = (begin, stop)         # of a key that stands twice the last is in force
        at = stop
    if span is None:
        return _added(lines, f"{change.key}={new}", first == 1)
    (line, column), (last, after) = where[span[0]], where[span[1] - 1]
    after += 1
    before = lines[line][:column]
    rest = _aligned(lines[last][after:], len(new) - (after - column)) if line == last else lines[last][after:]
    return [*lines[:line], f"{before}{new}{rest}", *lines[last + 1:]]


def _aligned(rest: str, longer: int) -> str:
    """What follows stays in its column where it stood behind several blanks."""
    blanks = len(rest) - len(rest.lstrip(" "))
    if blanks < 2 or not rest.strip(WHITE):
        return rest
    return f"{' ' * max(1, blanks - longer)}{rest[blanks:]}"


def _added(lines: list[str], text: str, first: bool) -> list[str]:
    """Behind the last value, before a comment."""
    last = next((i for i in range(len(lines) - 1, -1, -1) if bare(lines[i], first=first and i == 0)[0].strip(WHITE)), 0)
    line = lines[last]
    end = visible(line)
    seen = line[:end].rstrip(WHITE)
    joins = bare(line)[1]
    if joins:
        seen = seen[:-1].rstrip(WHITE)
    rest = line[len(seen):]
    gap = "" if not rest or rest[0] in WHITE else " "
    return [*lines[:last], f"{seen} {text}{gap}{_aligned(rest, len(text) + 1)}", *lines[last + 1:]]


def _map(lines: Sequence[str], begins: bool) -> tuple[str, list[tuple[int, int]]]:
    """The joined text, and where each of its characters stands: (line, column of its last character)."""
    text: list[str] = []
    where: list[tuple[int, int]] = []
    for number, raw in enumerate(lines):
        cut = raw[:visible(raw)]
        stripped = cut.rstrip(WHITE)
        end = len(stripped) - 1 if bare(raw)[1] else len(cut)
        column = 1 if begins and number == 0 and cut.startswith("\ufeff") else 0
        while column < end:
            if cut[column] == "\\":
                column += 1
                if column >= end:
                    break
            text.append(cut[column])
            where.append((number, column))
            column += 1
    return "".join(text), where

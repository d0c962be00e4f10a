"""What the account says, in sections of tables: made once, written in every form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Union, overload

from hpcadmin.availability.account import Account, Availability, Line, percent, target_text
from hpcadmin.availability.incidents import ByReason, Incident, by_length, by_reason
from hpcadmin.availability.period import Period
from hpcadmin.availability.timeline import Kind
from hpcadmin.hosts import fold
from hpcadmin.text import plural

WORST = 10
SOME = 20               # rows of a table that may be long


class Seconds(int):
    """A time that something lasted."""


class Share(Fraction):
    """A part of one, shown as per cent rounded down."""


Cell = Union[str, int, Seconds, Share, Line, None]


Row = tuple[Cell, ...]


class Rows(Sequence[Row]):
    """Rows that are made when they are looked at: of a hundred thousand incidents a page shows few."""

    def __init__(self, count: int, make: Callable[[int], Row]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(at, slice):
            return tuple(self._make(i) for i in range(self._count)[at])
        return self._make(range(self._count)[at])


@dataclass(frozen=True)
class Column:
    """kind: text, number, time, percent, line."""

    title: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """short: as many rows as fit a page; all of them are in the other forms, and with --all."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    short: int = SOME
    note: str = ""


@dataclass(frozen=True)
class Section:
    """texts come before the tables."""

    name: str
    title: str
    texts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Document:
    """result: the line and what stands behind it, the shortest first."""

    title: str
    line: Line
    so_far: bool
    result: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    sections: tuple[Section, ...]
    simulated: str = ""
    months: tuple[tuple[str, Account], ...] = field(default=())

    @property
    def word(self) -> str:
        return f"{self.line.value} SO FAR" if self.so_far else self.line.value


def lasted(seconds: int) -> str:
    """45 s, 12 min 30 s, 3 h 5 min, 2 d 4 h."""
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 else "")
    if seconds < 86400:
        return f"{seconds // 3600} h" + (f" {seconds % 3600 // 60} min" if seconds % 3600 // 60 else "")
    return f"{seconds // 86400} d" + (f" {seconds % 86400 // 3600} h" if seconds % 86400 // 3600 else "")


def share(value: Fraction | None) -> Share | None:
    return None if value is None else Share(value)


def bounds(one: Account) -> str:
    """99.982 %, or both where some time is not known."""
    if one.least is None:
        return "no time that counts"
    if one.least == one.most:
        return f"{percent(one.least)} %"
    return f"at least {percent(one.least)} %, at most {percent(one.most)} %"


def document(found: Availability, title: str, made: str, months: Sequence[tuple[str, Account]] = (),
             more: Iterable[Section] = (), *, evidence: Sequence[tuple[str, str]] = (), simulated: str = "",
             ) -> Document:
    p = found.period
    facts = (("cluster", found.cluster), ("period", f"{p.time(p.start)} up to {p.time(p.whole_end)}"),
             *((("counted up to", f"{p.time(p.end)}: the period is not over"),) if not p.over else ()),
             ("nodes", f"{len(found.nodes)}, {fold(sorted(n.name for n in found.nodes))}"),
             ("target", f"{target_text(found.target)} of node-hours"), *evidence, ("made", made))
    sections = [_account(found), *([_months(months, found.target)] if len(months) > 1 else []), _nodes(found),
                *_incidents(found), *more, _all_nodes(found)]
    return Document(title, found.line, not p.over, tuple(_result(found)), tuple((a, b) for a, b in facts if b),
                    found.notes, found.problems, tuple(s for s in sections if s.tables or s.texts), simulated,
                    tuple(months))


def _result(found: Availability) -> Iterable[str]:
    whole, target = found.whole, found.target
    yield f"{bounds(whole)} of all node-hours, the line is {target_text(target)}"
    if whole.counted:
        used, allowed = whole.of(Kind.DOWN), whole.allowed(target)
        yield (f"{lasted(allowed)} of node time may be lost, {lasted(used)} {'was' if used < 2 else 'were'} lost"
               + (f": {lasted(used - allowed)} too much" if used > allowed else f", {lasted(allowed - used)} are left"))
    if whole.of(Kind.UNKNOWN):
        yield f"of {lasted(whole.of(Kind.UNKNOWN))} of node time nothing is known: it is not counted as available"
    below = [n.name for n in found.nodes if n.line(target) is Line.NOT_MET]
    unsure = [n.name for n in found.nodes if n.line(target) is Line.NOT_SHOWN]
    yield (f"by themselves {plural(len(found.nodes) - len(below) - len(unsure), 'node')} met the line"
           + (f", {len(below)} did not: {_some(below)}" if below else "")
           + (f", of {len(unsure)} it is not shown: {_some(unsure)}" if unsure else ""))
    yield from found.caveats


def _some(names: Sequence[str]) -> str:
    text = fold(names)
    return text if len(text) <= 120 else f"{text[:117]}…"


def _account(found: Availability) -> Section:
    whole = found.whole
    words = {Kind.UP: "available", Kind.DOWN: "down: not available", Kind.UNKNOWN: "unknown: nothing tells of it",
             Kind.PLANNED: "planned maintenance, not counted", Kind.ABSENT: "absent from slurm.conf, not counted"}
    rows: list[tuple[Cell, ...]] = [(words[kind], Seconds(whole.of(kind)), _part(whole.of(kind), whole.total))
                                    for kind in words]
    rows.append(("the period", Seconds(whole.total), _part(whole.total, whole.total)))
    count = whole.incidents
    texts = [] if not count else [
        f"{plural(count, 'incident')}; mean time to repair {lasted(_mean(found))}, mean time between failures of a "
        f"node {lasted(whole.of(Kind.UP) // max(1, sum(n.incidents for n in found.nodes)))}"]
    return Section("account", "The account", tuple(texts), (Table(
        "account", "Node time of each kind", (Column("what"), Column("node time", "time"),
                                              Column("of the period", "percent")), tuple(rows)),))


def _mean(found: Availability) -> int:
    count = sum(n.incidents for n in found.nodes)
    return round(found.whole.of(Kind.DOWN) / count) if count else 0


def _part(seconds: int, total: int) -> Share | None:
    return Share(seconds, total) if total else None


_COLUMNS = (Column("at least", "percent"), Column("at most", "percent"), Column("line", "line"), Column("down", "time"),
            Column("allowed", "time"), Column("unknown", "time"), Column("planned", "time"), Column("absent", "time"),
            Column("incidents", "number"), Column("longest", "time"))
_RARE = ("unknown", "planned", "absent")


def _table(name: str, title: str, first: str, rows: Sequence[tuple[str, Account]], target: Fraction) -> Table:
    """A row a name; columns of which nothing is told are left out, and of two bounds that are one the second."""
    cells = [_row(one, target) for _, one in rows]
    shown = [at for at, column in enumerate(_COLUMNS) if column.title not in _RARE or any(row[at] for row in cells)]
    columns = {at: _COLUMNS[at] for at in shown}
    if all(row[0] == row[1] for row in cells):
        shown.remove(1)
        columns[0] = Column("available", "percent")
    return Table(name, title, (Column(first), *(columns[at] for at in shown)), tuple(
        (text, *(row[at] for at in shown)) for (text, _), row in zip(rows, cells, strict=True)))


def _row(one: Account, target: Fraction) -> tuple[Cell, ...]:
    return (share(one.least), share(one.most), one.line(target), Seconds(one.of(Kind.DOWN)),
            Seconds(one.allowed(target)), Seconds(one.of(Kind.UNKNOWN)), Seconds(one.of(Kind.PLANNED)),
            Seconds(one.of(Kind.ABSENT)), one.incidents, Seconds(one.longest))


def _months(months: Sequence[tuple[str, Account]], target: Fraction) -> Section:
    return Section("months", "Month by month", (), (_table("months", "All nodes together", "month", months, target),))


def _nodes(found: Availability) -> Section:
    bad = [n for n in found.nodes if n.of(Kind.DOWN) or n.of(Kind.UNKNOWN)]
    fine = len(found.nodes) - len(bad)
    texts = [f"{plural(fine, 'node')} {'was' if fine == 1 else 'were'} available all the time that counts"]
    rows = [(n.name, n) for n in bad[:WORST]]
    return Section("worst", "The worst nodes", tuple(texts if fine else ()), (_table(
        "worst", f"The worst {len(rows)} of {len(found.nodes)}", "node", rows, found.target),) if rows else ())


def _all_nodes(found: Availability) -> Section:
    """Nodes with the same numbers are one row."""
    groups: dict[tuple[Cell, ...], list[Account]] = {}
    for n in found.nodes:
        groups.setdefault(_row(n, found.target), []).append(n)
    rows = [(fold(sorted(n.name for n in of)), of[0]) for of in groups.values()]
    return Section("nodes", "All nodes", (), (_table(
        "nodes", f"{plural(len(found.nodes), 'node')}, the worst first", "nodes", rows, found.target),))


def _incidents(found: Availability) -> Iterable[Section]:
    down = found.incidents
    columns = (Column("nodes"), Column("from"), Column("to"), Column("lasted", "time"), Column("node time", "time"),
               Column("reason"), Column("by"))
    if down:
        reasons = _reasons(by_reason(down))
        lengths = tuple((name, count, Seconds(seconds)) for name, count, seconds in by_length(down) if count)
        yield Section("incidents", "Incidents", (), (
            Table("reasons", "By reason", (Column("reason"), Column("incidents", "number"), Column("nodes"), Column(
                "node time", "time"), Column("median", "time"), Column("longest", "time")), reasons),
            Table("lengths", "By length", (Column("lasted"), Column("incidents", "number"),
                                           Column("node time", "time")), lengths),
            Table("incidents", "The costliest first", columns, _lines(down, found.period))))
    if found.planned:
        yield Section("planned", "Planned maintenance, not counted", (), (
            Table("planned", "The longest first", columns, _lines(found.planned, found.period)),))
    if found.unknown:
        yield Section("unknown", "Times of which nothing is known", (), (
            Table("unknown", "The longest first", columns, _lines(found.unknown, found.period)),))


def _reasons(found: Sequence[ByReason]) -> Rows:
    def row(at: int) -> Row:
        r = found[at]
        return (r.reason, r.incidents, fold(r.nodes), Seconds(r.node_seconds), Seconds(r.median), Seconds(r.longest))
    return Rows(len(found), row)


def _lines(incidents: Sequence[Incident], period: Period) -> Rows:
    def row(at: int) -> Row:
        i = incidents[at]
        nodes = i.nodes[0] if len(i.nodes) == 1 else fold(i.nodes)
        until = f"{period.time(i.end)} (goes on)" if i.goes_on else period.time(i.end)
        return (nodes, period.time(i.start), until, Seconds(i.seconds), Seconds(i.node_seconds), i.reason, i.by)
    return Rows(len(incidents), row)

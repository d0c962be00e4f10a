"""The tables of `lscpu -p` and `lscpu -e`: a line for each CPU with its core, socket, NUMA node and caches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.facts._base import MAX_CPU
from hpcadmin.facts.cpu_topology import CpuLine, CpuTopology
from hpcadmin.text import fold_ids

_PREFIX = " \t>|`"
_WORD = re.compile(r"[A-Za-z0-9:_-]{0,24}\Z")
_DEFAULT = ("cpu", "core", "socket", "node", "", "l1d", "l1i", "l2", "l3")
# A row of -p whose heading got lost: the empty fifth field tells it.
_ROW = re.compile(r"[0-9]{1,5},[0-9]{1,5},[0-9-]{0,6},[0-9]{0,5},(?:,[0-9]{0,5}){1,6}\Z")
_NO = frozenset(("n", "no", "-", "", "nein", "non", "não", "nej", "nee", "ne", "nie", "nem", "ei", "нет", "ні", "否",
                 "いいえ"))


@dataclass(frozen=True)
class Table:
    """rows: by column name, as printed. first, last: its lines, counted from 1."""

    first: int
    last: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> list[str] | None:
        if name not in self.columns:
            return None
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def begins(line: str) -> bool:
    """Whether a table may begin with the line."""
    text = line.strip(_PREFIX)
    return _heading(text) is not None if text[:1] in "#cC" else _ROW.match(text) is not None


def find_tables(lines: Sequence[str]) -> list[Table]:
    """Both forms; a table ends with the first line that is no row of it."""
    found: list[Table] = []
    number = 0
    while number < len(lines):
        columns = _heading(lines[number])
        start = number + 1
        if columns is None and _ROW.match(lines[number].strip(_PREFIX)):
            columns, start = _DEFAULT[: lines[number].count(",") + 1], number
        if columns is None:
            number += 1
            continue
        rows, end = _rows(lines, start, columns, commas="," in lines[number] or len(columns) == 1)
        if rows:
            found.append(Table(number + 1, end, columns, tuple(rows)))
        number = max(end, number + 1)
    return found


def _heading(line: str) -> tuple[str, ...] | None:
    text = line.strip(_PREFIX).lower()
    if text.startswith("#"):
        text = text.lstrip("# ")
        if "," not in text and text != "cpu":
            return None
        words = [word.strip() for word in text.split(",")]
    elif text.startswith("cpu") and "," not in text:
        words = [part for word in text.split() for part in word.split(":")]
        if len(words) < 3 or not {"core", "socket"} & set(words):
            return None
    elif text.startswith("cpu,"):
        words = [word.strip() for word in text.split(",")]
    else:
        return None
    return tuple(words) if "cpu" in words and all(map(_WORD.match, words)) and len(words) < 40 else None


def _rows(lines: Sequence[str], start: int, columns: tuple[str, ...], *,
          commas: bool) -> tuple[list[tuple[str, ...]], int]:
    """The rows and the line after them (counted from 0). A table of -e has blanks, and commas in its numbers."""
    rows: list[tuple[str, ...]] = []
    place = columns.index("cpu")
    for number in range(start, len(lines)):
        text = lines[number].strip(_PREFIX)
        words = text.split(",") if commas else _spread(text.split(), columns) or [
            part for word in text.split() for part in word.split(":")]
        if len(words) != len(columns) or not (words[place].isascii() and words[place].isdigit()) \
                or len(rows) > MAX_CPU:
            return rows, number
        rows.append(tuple(word.strip() for word in words))
    return rows, len(lines)


def _spread(words: list[str], columns: tuple[str, ...]) -> list[str] | None:
    """An offline CPU has one "-" for all the caches that stand with colons in other rows."""
    caches = sum(name in ("l1d", "l1i", "l2", "l3", "l4") for name in columns)
    if len(words) != len(columns) - max(0, caches - 1) or caches < 2:
        return None
    place = next(at for at, name in enumerate(columns) if name.startswith("l1") or name in ("l2", "l3"))
    return [*words[:place], *["-"] * caches, *words[place + 1:]] if words[place] == "-" else None


def sockets_by_table(tables: Sequence[Table]) -> list[dict[str, str]]:
    """For each table its sockets with their CPUs, where two tables do not put the same CPUs together; [] where they
    do. The ids themselves differ rightly: lscpu counts them itself, or prints the kernel's (--physical)."""
    told = [{int(cpu): socket for cpu, socket in zip(table.column("cpu") or (), table.column("socket") or (),
                                                     strict=False)
             if _number(cpu) is not None and _number(socket) is not None} for table in tables]
    told = [sockets for sockets in told if sockets]
    both = set.intersection(*map(set, told)) if told else set()     # one may be cut off
    found = []
    for sockets in told:
        groups: dict[str, list[int]] = {}
        for cpu in sorted(both):
            groups.setdefault(sockets[cpu], []).append(cpu)
        found.append({socket: fold_ids(cpus) for socket, cpus in groups.items()})
    return found if len({tuple(sorted(groups.values())) for groups in found}) > 1 else []


def json_table(items: object) -> Table | None:
    """The same of `lscpu -J -e`: a list of objects, whose keys are the columns in lower case."""
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        return None
    columns = tuple(part for key in items[0] for part in str(key).lower().split(":"))
    rows = []
    for item in items[: MAX_CPU + 1]:
        words = []
        for key, value in item.items():
            text = {True: "yes", False: "no", None: "-"}.get(value, str(value)) if isinstance(
                value, bool | None) else str(value)
            parts = text.split(":")
            size = str(key).count(":") + 1
            words += parts if len(parts) == size else [text] * size
        if len(words) != len(columns):
            return None
        rows.append(tuple(words))
    return Table(1, 1, columns, tuple(rows)) if "cpu" in columns else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def topology(table: Table, threads: int | None) -> tuple[CpuTopology | None, str]:
    """The topology, or None and why: ids that repeat (some kernels count cores within clusters) name no cores.
    threads: what lscpu counts per core, where that is known."""
    cpus, cores = table.column("cpu"), table.column("core")
    if cpus is None or cores is None:
        return None, ""
    online = table.column("online") or ["yes"] * len(cpus)
    count = len(cpus)
    sockets = table.column("socket") or [""] * count
    # Of a CPU that is off line no core is named; "yes" has many languages.
    on = [place for place in range(count) if online[place].lower() in ("y", "yes") or (
        online[place].lower() not in _NO and _number(cores[place]) is not None)]
    ids = [_number(text) for text in cpus]
    if len(set(ids)) != count or None in ids or max(filter(None, ids), default=0) > MAX_CPU:
        return None, "a CPU has two lines in the table"
    members: dict[tuple[str, str], list[int]] = {}
    for place in on:
        if _number(cores[place]) is None:
            return None, "the table names no core for some CPUs"
        members.setdefault((sockets[place], cores[place]), []).append(place)
    first_level = table.column("l1i") or table.column("l1d")
    if first_level and any(len({first_level[place] for place in places}) > 1 for places in members.values()):
        return None, "core ids repeat in the table: they do not tell which CPUs make up a core"
    if threads is not None and any(len(places) > threads for places in members.values()):
        return None, f"the table has more CPUs to a core than the {threads} threads that lscpu counts"
    caches = {name: _shared(table, name, on, cpus) for name in ("l2", "l3", "l4")}
    lines = []
    for (socket, _), places in members.items():
        siblings = tuple(sorted(int(cpus[place]) for place in places))
        for place in places:
            groups = tuple(shared[place] for name, shared in caches.items() if name != "l3" and place in shared)
            lines.append(CpuLine(int(cpus[place]), _number(socket), None, None, _number(cores[place]), siblings,
                                 caches["l3"].get(place, ()), groups))
    offline = tuple(sorted(int(cpus[place]) for place in set(range(count)) - set(on)))
    ordered = tuple(sorted(lines, key=lambda line: line.cpu))
    return (CpuTopology(tuple(line.cpu for line in ordered), offline, ordered), "") if ordered else (None, "")


def _shared(table: Table, name: str, on: list[int], cpus: list[str]) -> dict[int, tuple[int, ...]]:
    """For each line the CPUs under the same cache."""
    column = table.column(name)
    groups: dict[str, list[int]] = {}
    for place in on if column else ():
        if column and _number(column[place]) is not None:
            groups.setdefault(column[place], []).append(place)
    return {place: tuple(sorted(int(cpus[each]) for each in places))
            for places in groups.values() for place in places}


def numa_of(table: Table) -> dict[int, tuple[int, ...]] | None:
    """NUMA nodes by the table's column; None when it has none, or it is empty."""
    nodes, cpus = table.column("node"), table.column("cpu")
    found: dict[int, list[int]] = {}
    for node, cpu in zip(nodes or (), cpus or (), strict=False):
        number, own = _number(node), _number(cpu)
        if number is not None and own is not None:
            found.setdefault(number, []).append(own)
    return {number: tuple(sorted(ids)) for number, ids in sorted(found.items())} or None

"""The tables of the OSU micro-benchmarks in a text: titles, columns by their names, rows, and the runs they belong to.

Values are printed with two decimals in every version (3 to 7), so that a number which was cut is told from a whole one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

PAIR_END, COLLECTIVE_END = 4 << 20, 1 << 20      # bytes: where the default range of sizes ends
COLLECTIVE_MEMORY = 512 << 20                    # bytes: most that a collective takes by default, over all ranks


@dataclass(frozen=True)
class Program:
    """name: of the check. main: the columns that make its result. first: sizes at which its default range may begin.

    ranks: 2 for a pair; 0 for any number. sized: has a column of sizes.
    """

    name: str
    title: str
    main: tuple[str, ...]
    first: tuple[int, ...] = (1,)
    last: int = PAIR_END
    ranks: int = 2
    collective: bool = False
    sized: bool = True
    scattered: bool = False       # every rank has a block for every other: memory bounds the largest size


_NONBLOCKING = ("overall", "compute", "pure_comm", "overlap")
PROGRAMS = {p.name: p for p in (
    Program("osu_latency", "Latency", ("latency",), (0, 1)),
    Program("osu_latency_mt", "Multi-threaded Latency", ("latency",), (0, 1)),
    Program("osu_latency_mp", "Multi-process Latency", ("latency",), (0, 1)),
    Program("osu_multi_lat", "Multi Latency", ("latency",), (0, 1), ranks=0),
    Program("osu_bw", "Bandwidth", ("bandwidth",)),
    Program("osu_bibw", "Bi-Directional Bandwidth", ("bandwidth",)),
    Program("osu_mbw_mr", "Multiple Bandwidth / Message Rate", ("bandwidth",), ranks=0),
    Program("osu_get_bw", "MPI_Get Bandwidth", ("bandwidth",)),
    Program("osu_put_bw", "MPI_Put Bandwidth", ("bandwidth",)),
    Program("osu_get_latency", "MPI_Get Latency", ("latency",), (0, 1)),
    Program("osu_put_latency", "MPI_Put Latency", ("latency",), (0, 1)),
    Program("osu_acc_latency", "MPI_Accumulate Latency", ("latency",), (0, 1, 4)),
    Program("osu_get_acc_latency", "MPI_Get_accumulate Latency", ("latency",), (0, 1, 4)),
    Program("osu_put_bibw", "MPI_Put Bi-directional Bandwidth", ("bandwidth",)),
    *(Program(f"osu_{name}", title, ("avg_latency",), first, COLLECTIVE_END, 0, True, scattered=scattered)
      for name, title, first, scattered in (
          ("allreduce", "Allreduce Latency", (1, 4), False), ("reduce", "Reduce Latency", (1, 4), False),
          ("bcast", "Broadcast Latency", (1,), False), ("allgather", "Allgather Latency", (1,), True),
          ("alltoall", "All-to-All Personalized Exchange Latency", (1,), True),
          ("alltoallv", "All-to-Allv Personalized Exchange Latency", (1,), True),
          ("allgatherv", "Allgatherv Latency", (1,), True), ("gather", "Gather Latency", (1,), True),
          ("gatherv", "Gatherv Latency", (1,), True), ("scatter", "Scatter Latency", (1,), True),
          ("scatterv", "Scatterv Latency", (1,), True),
          ("reduce_scatter", "Reduce_scatter Latency", (1, 4), False))),
    Program("osu_barrier", "Barrier Latency", ("avg_latency",), ranks=0, collective=True, sized=False),
    Program("osu_iallreduce", "Non-blocking Allreduce Latency", _NONBLOCKING, (1, 4), COLLECTIVE_END, 0, True),
    *(Program(f"osu_{name}", title, _NONBLOCKING, first, COLLECTIVE_END, 0, True, scattered=scattered)
      for name, title, first, scattered in (
          ("ireduce", "Non-blocking Reduce Latency", (1, 4), False),
          ("ibcast", "Non-Blocking Broadcast Latency", (1,), False),
          ("iallgather", "Non-blocking Allgather Latency", (1,), True),
          ("ialltoall", "Non-blocking All-to-All Latency", (1,), True),
          ("iallgatherv", "Non-blocking Allgatherv Latency", (1,), True),
          ("ialltoallv", "Non-blocking All-to-Allv Personalized Exchange Latency", (1,), True),
          ("igather", "Non-blocking Gather Latency", (1,), True),
          ("igatherv", "Non-blocking Gatherv Latency", (1,), True),
          ("iscatter", "Non-blocking Scatter Latency", (1,), True),
          ("iscatterv", "Non-blocking Scatterv Latency", (1,), True))),
    Program("osu_ibarrier", "Non-blocking Barrier Latency", _NONBLOCKING, ranks=0, collective=True, sized=False),
)}
_BY_TITLE = {p.title.lower(): p for p in PROGRAMS.values()}
# Internal name, unit. "latency" is "avg_latency" where the program is a collective one.
COLUMNS = {
    "size": ("size", ""), "latency(us)": ("latency", "us"), "avglatency(us)": ("latency", "us"),
    "minlatency(us)": ("min_latency", "us"), "maxlatency(us)": ("max_latency", "us"),
    "bandwidth(mb/s)": ("bandwidth", "MB/s"), "mb/s": ("bandwidth", "MB/s"), "messages/s": ("msg_rate", "msg/s"),
    "iterations": ("iterations", ""), "validation": ("validation", ""), "overall(us)": ("overall", "us"),
    "compute(us)": ("compute", "us"), "coll.init(us)": ("coll_init", "us"), "init(us)": ("coll_init", "us"),
    "mpi_test(us)": ("mpi_test", "us"), "mpi_wait(us)": ("mpi_wait", "us"), "purecomm.(us)": ("pure_comm", "us"),
    "avgcomm.(us)": ("pure_comm", "us"), "mincomm.(us)": ("min_comm", "us"), "maxcomm.(us)": ("max_comm", "us"),
    "overlap(%)": ("overlap", "%"), "transmitsize": ("transmitted", ""),
}
_MAY_BE_ZERO = ("coll_init", "mpi_test", "mpi_wait", "compute", "overlap")
_COLUMN = re.compile(
    r"(?<!\S)(?:Size|(?:Avg |Min |Max )?Latency ?\(us\)|Bandwidth ?\(MB/s\)|MB/s|Messages/s|Iterations|Validation|"
    r"Overall\(us\)|Compute\(us\)|(?:Coll\. )?Init\(us\)|MPI_Test\(us\)|MPI_Wait\(us\)|"
    r"(?:Pure|Avg|Min|Max) Comm\.\(us\)|Overlap\(%\)|Transmit Size|P\d{1,3} Tail (?:Lat|BW) ?\((?:us|MB/s)\))(?!\S)")
_TITLE = re.compile(r"# OSU (?:MPI )?(?:One Sided )?MPI(?P<side>_Get_accumulate|_Accumulate|_Get|_Put)?"
                    r"(?:-[A-Z0-9]{2,12})? (?P<words>[A-Za-z ()/_-]{3,60}?)(?: Test)? +"
                    r"v(?P<version>\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)\Z")
_BUFFERS = re.compile(r"# (?:Send Buffer|Rank 0 Memory) on (\w{1,12}) \(.{1,4}\) and "
                      r"(?:Receive Buffer|Rank 1 Memory) on (\w{1,12}) \(.{1,4}\)$")
_PAIRS = re.compile(r"# \[ pairs: (\d{1,9}) \]")
_NODES = re.compile(r"(?:[\w-]{1,40} ){1,6}nodes? (\S{1,255}) (\S{1,255})$")
_TURN = re.compile(r"(?:[\w./-]{1,60} ){0,4}(?:iteration|repetition|trial)[ #:]{1,3}(\d{1,6}):?$", re.IGNORECASE)
_VALUE = re.compile(r"\d{1,15}\.\d\d\Z")
_WHOLE = re.compile(r"\d{1,15}\Z")


@dataclass(frozen=True)
class Row:
    """size None: of a table without sizes. verdict: "", Pass or Fail."""

    size: int | None
    values: dict[str, float]
    verdict: str = ""
    line: str = ""


@dataclass
class Table:
    """One table. title "" where it is lost, header "" likewise; torn: lines that are no whole rows."""

    title: str = ""
    version: str = ""
    program: Program | None = None
    header: str = ""
    columns: tuple[str, ...] = ()
    unknown: str = ""                 # of the header, what is no known column
    headers: int = 0
    buffers: str = ""
    pairs: int | None = None
    rows: list[Row] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    @property
    def validated(self) -> bool:
        return "validation" in self.columns

    @property
    def sizes(self) -> list[int]:
        return [row.size for row in self.rows if row.size is not None]


@dataclass
class Block:
    """What a text holds between two lines that announce a run: "… iteration 3", "… for nodes a b"."""

    label: str = ""
    number: int | None = None
    pair: tuple[str, ...] = ()
    tables: list[Table] = field(default_factory=list)
    said: list[str] = field(default_factory=list)     # its other lines


def blocks(lines: Sequence[str]) -> list[Block]:
    """The runs of a text, in order; the first is what stands before any announcement and may be empty."""
    found = [Block()]
    table: Table | None = None
    for line in lines:
        block = found[-1]
        if line.startswith("# OSU "):
            table = _titled(line)
            if block.pair and table.program and table.program.collective:
                found.append(block := Block())
            block.tables.append(table)
        elif _TURN.match(line) or (" nodes " in line and _NODES.match(line)):
            turn, nodes = _TURN.match(line), _NODES.match(line)
            found.append(Block(line, int(turn[1]) if turn else None, (nodes[1], nodes[2]) if nodes else ()))
            table = None
        elif line:
            table = _take(line, block, table)
    return found


def _titled(line: str) -> Table:
    match = _TITLE.match(line)
    if match is None:
        return Table(title=line)
    words = f"MPI{match['side']} {match['words']}" if match["side"] else match["words"]
    return Table(title=line, version=match["version"], program=_BY_TITLE.get(words.strip().lower()))


def _take(line: str, block: Block, table: Table | None) -> Table | None:
    """The table that goes on after this line."""
    if line[0] == "#":
        buffers, pairs = _BUFFERS.match(line), _PAIRS.match(line)
        if table is not None and buffers:
            table.buffers = buffers[1] if buffers[1] == buffers[2] else f"{buffers[1]} to {buffers[2]}"
        if table is not None and pairs:
            table.pairs = int(pairs[1])
    if line.startswith(("# Size", "# Avg", "# Overall", "Overall")) and _is_header(line):
        if table is None or (table.rows and not table.header):
            block.tables.append(table := Table())
        _head(line, table)
    elif line[0].isdigit() and _like_row(line, table):
        if table is None:
            block.tables.append(table := Table())
        _row(line, table)
    else:
        block.said.append(line)
    return table


def _is_header(line: str) -> bool:
    return line.startswith("# Size ") or not _COLUMN.sub("", line).strip("# ")


def _head(line: str, table: Table) -> None:
    table.headers += 1
    if table.headers > 1:
        return
    names = [COLUMNS.get(name.replace(" ", "").lower(), ("", ""))[0] for name in _COLUMN.findall(line)]
    if table.program and table.program.collective:
        names = ["avg_latency" if name == "latency" else name for name in names]
    table.header, table.columns, table.unknown = line, tuple(names), _COLUMN.sub("", line).strip("# ")


def _like_row(line: str, table: Table | None) -> bool:
    words = line.split(None, 12)
    if table is None or not table.header:       # rows of a table whose beginning is lost
        return _WHOLE.match(words[0]) is not None and len(words) > 1 and _VALUE.match(words[1]) is not None and all(
            _VALUE.match(w) or w in ("Pass", "Fail") for w in words[1:])
    if "size" in table.columns or table.unknown:
        return words[0].isdigit()
    return re.match(r"[0-9.]{1,30}\Z", words[0]) is not None


def _row(line: str, table: Table) -> None:
    words = line.split(None, 24)
    columns = table.columns
    if not table.header:
        columns = ("size", "value", "validation")[:len(words)] if words[-1] in ("Pass", "Fail") else ("size", "value")
    if len(words) != len(columns):
        table.torn.append(line)
        return
    values: dict[str, float] = {}
    size, verdict = None, ""
    for name, word in zip(columns, words, strict=True):
        if name in ("size", "iterations", "transmitted"):
            good = _WHOLE.match(word) is not None and (name == "size" or int(word) > 0)
            size = int(word) if good and name == "size" else size
        elif name == "validation":
            good, verdict = word in ("Pass", "Fail"), word
        else:
            good = _VALUE.match(word) is not None
            values[name or "?"] = float(word) if good else 0.0
            good = good and (values[name or "?"] > 0 or name in _MAY_BE_ZERO)
        if not good:
            table.torn.append(line)
            return
    row = Row(size, values, verdict, line)
    if contradiction(row):
        table.torn.append(line)
    else:
        table.rows.append(row)


def contradiction(row: Row) -> str:
    """Why the numbers of a row cannot be true together."""
    v = row.values
    for low, middle, high in (("min_latency", "avg_latency", "max_latency"), ("min_latency", "latency", "max_latency"),
                              ("min_comm", "pure_comm", "max_comm")):
        if {low, middle, high} <= set(v) and not v[low] <= v[middle] <= v[high]:
            return f"{middle} is not between {low} and {high}"
    if v.get("overlap", 0) > 100:
        return "overlap is above 100 %"
    if row.size and {"bandwidth", "msg_rate"} <= set(v):
        rate = v["bandwidth"] * 1e6 / row.size
        if abs(rate - v["msg_rate"]) > 6e3 / row.size + 0.006 + 1e-6 * rate:
            return "MB/s and messages/s do not agree"
    return ""


def whole_range(table: Table, program: Program, ranks: int | None) -> bool:
    """Whether every size of the program's default range is there, each once."""
    if not program.sized:
        return len(table.rows) == 1
    sizes = table.sizes
    return bool(sizes) and sizes[0] in _first(table, program) and sizes[-1] >= _last(program, ranks) and all(
        after == max(1, 2 * before) for before, after in pairwise(sizes))


def _first(table: Table, program: Program) -> tuple[int, ...]:
    """Where the default range may begin: latency at 0 up to version 5, reductions of floats at 4."""
    old = table.version.split(".")[0] in ("3", "4", "5")
    return program.first[:1] if old and 0 in program.first else program.first[-1:] if old else program.first


def _last(program: Program, ranks: int | None) -> int:
    last = program.last
    while program.scattered and ranks and last * ranks > COLLECTIVE_MEMORY:
        last //= 2
    return last


def flaws(table: Table, program: Program, ranks: int | None = None) -> tuple[list[str], list[str]]:
    """(what makes the table worthless, what is missing although its values stand)."""
    hard = _form_flaws(table, program)
    if table.torn:
        why = next(filter(None, (_why_torn(line, table) for line in table.torn[:1])), "")
        more = f" (and {len(table.torn) - 1} more)" if len(table.torn) > 1 else ""
        hard.append(f"a row of the table is torn{why}: {table.torn[0]!r:.160}{more}")
    failed = [row for row in table.rows if row.verdict == "Fail"]
    if failed:
        hard.append(f"validation at {failed[0].size} bytes: Fail ({len(failed)} sizes): {failed[0].line}")
    soft: list[str] = []
    if program.name == "osu_mbw_mr" and table.title and not table.pairs:
        soft.append("how many pairs there were is not told")
    if table.header and not table.title:
        soft.append("no title: the beginning is missing, the version and the program are not told")
    if not table.rows:
        hard.append("the table has no rows")
    elif not program.sized:
        hard += [f"{len(table.rows)} rows where one must be"] if len(table.rows) > 1 else []
    else:
        _range_flaws(table, program, ranks, hard, soft)
    return hard, soft


def _form_flaws(table: Table, program: Program) -> list[str]:
    if not table.header:
        return ["the table has no header that names its columns"] if table.title else []
    if table.headers > 1:
        return [f"{table.headers} table headers under one title, exactly one must be"]
    if table.unknown:
        return [f"unknown columns {table.unknown!r:.60} in {table.header!r:.160}"]
    missing = [name for name in program.main if name not in table.columns]
    if missing:
        return [f"the header {table.header!r:.120} has no column of {', '.join(missing)}: it is not of {program.name}"]
    if program.sized != ("size" in table.columns):
        return [f"the header {table.header!r:.120} is not of {program.name}"]
    if len(set(table.columns)) != len(table.columns) and "" not in table.columns:
        return [f"the header {table.header!r:.120} has a column twice"]
    return []


def _why_torn(line: str, table: Table) -> str:
    words = line.split()
    if len(words) != len(table.columns):
        return f" ({len(words)} words for {len(table.columns)} columns)"
    values = {n: float(w) for n, w in zip(table.columns, words, strict=True) if _VALUE.match(w)}
    size = int(words[0]) if _WHOLE.match(words[0]) else None
    why = contradiction(Row(size, values))
    return f" ({why})" if why else ""


def _range_flaws(table: Table, program: Program, ranks: int | None, hard: list[str], soft: list[str]) -> None:
    sizes = table.sizes
    for before, after in pairwise(sizes):
        if after <= before:
            hard.append(f"{after} bytes come after {before}: rows are doubled, out of order or of several runs")
            return
        if after != max(1, 2 * before):
            soft.append(f"{after} bytes come after {before}: rows are missing")
    last, begins = _last(program, ranks), _first(table, program)
    if len(sizes) == 1:
        soft.append(f"one row only, of {sizes[0]} bytes")
    if not table.title and not table.header:
        soft.append("neither title nor header: the beginning is missing, what the columns are is not told")
    elif table.title and sizes[0] not in begins and sizes[0] in {max(1, 2 * begin) for begin in begins}:
        soft.append(f"the table begins at {sizes[0]} bytes: its beginning is missing")
    if table.title and sizes[0] in begins and sizes[-1] < last:
        told = f"the table ends at {sizes[-1]} bytes ({len(sizes)} rows); its default range goes on to {last}: cut off"
        worthless = "bandwidth" in program.main and sizes[-1] < 1 << 16
        (hard if worthless else soft).append(told)


def untitled(table: Table, program: Program) -> Table | None:
    """A table whose title is lost, taken for the program that the caller names; None where it cannot be that."""
    if table.header:
        return table if all(name in table.columns for name in program.main) else None
    if program.main != ("bandwidth",) or program.ranks != 2 or len(table.rows) < 2:
        return None
    first, last = table.rows[0], table.rows[-1]
    if not first.size or not last.size or last.values["value"] * 4 * first.size > first.values["value"] * last.size:
        return None      # grows like a time
    rows = [replace(row, values={"bandwidth": row.values["value"]}) for row in table.rows]
    columns = ("size", "bandwidth", *(("validation",) if first.verdict else ()))
    return replace(table, rows=rows, columns=columns)

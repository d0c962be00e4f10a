"""Reads what nccl-tests and rccl-tests print: parameters, ranks, table, summary. Columns are found by header names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcadmin.check import ParseError
from hpcadmin.checklib import finite, integer, lines_of, rising
from hpcadmin.text import printable

TYPE_BYTES = {"int8": 1, "uint8": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "bfloat16": 2,
              "int32": 4, "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8}
_TAG = re.compile(r"\[\d{1,9},\d{1,9}\]<std(?:out|err)>: ?")
_LABEL = re.compile(r"\s{0,12}\d{1,7}: ?")
_PARAMS = re.compile(r"# nThread (\d{1,9}) nGpus (\d{1,9}) minBytes (\d{1,18}) maxBytes (\d{1,18}) "
                     r"step: (\d{1,18})\((factor|bytes)\).* validation: (\d{1,9})(?: |$)")
_RANK = re.compile(r"# {1,4}Rank +(\d{1,9}) (?:Group +\d{1,9} )?Pid +(\d{1,9}) on +(\S{1,255}) device +(\d{1,5}) "
                   r"\[([0-9a-fA-Fx:.]{1,24})\] (.{0,200})")
_BOUNDS = re.compile(r"# Out of bounds values : (\d{1,18}) (OK|FAILED)$")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s{0,20}: (\S{1,30})(?: +(OK|FAILED))?$")
_REDUCED = re.compile(r"# Reducing maxBytes to (\d{1,18}) due to memory limitation$")
# What the tests and NCCL print when something broke; a table beside such a line proves nothing.
BROKEN = ("test failure", "test cuda failure", "test nccl failure", "test mpi failure", "unhandled cuda error",
          "unhandled system error", "internal error", "cuda failure", "remote process exited", "test timeout",
          "invalid number of gpus", "invalid device ordinal", "async error", "ibv_poll_cq", "nccl error")


@dataclass(frozen=True)
class Rank:
    number: int
    host: str
    device: int
    pci: str
    model: str


@dataclass(frozen=True)
class Half:
    """One mode of a row. wrong None: not validated."""

    time_us: float
    algbw: float
    busbw: float
    wrong: float | None


@dataclass(frozen=True)
class Row:
    size: int
    count: int
    modes: dict[str, Half] = field(default_factory=dict)     # "out-of-place", "in-place"


@dataclass(frozen=True)
class Table:
    minimum: int
    asked: int                # the largest size that was asked for
    maximum: int              # as far as GPU memory allows: warnings tell when that is less
    step: int
    factor: bool
    validation: bool
    ranks: tuple[Rank, ...]
    rows: tuple[Row, ...]
    out_of_bounds: int
    average: float
    verdict: str              # what the tool itself says of its average: "", OK or FAILED
    warnings: tuple[str, ...]


def read(text: str, program: str) -> Table:
    """The one whole run of `program` in a text; ParseError when it is none, several, or damaged."""
    lines = _untagged(lines_of(text))
    for line in lines:
        low = line.lower()
        if any(word in low for word in BROKEN):
            raise ParseError(f"the run broke: {printable(line, limit=200)}")
    params = _one(_PARAMS, lines, "parameter line (# nThread …)", "expected sizes and validation are unknown")
    if lines.count("# Using devices") != 1:
        raise ParseError("not exactly one list of devices", hint="cut off, or several runs mixed")
    _framed(lines, program)
    head = _header(lines)
    bounds = _one(_BOUNDS, lines, "line '# Out of bounds values'", "the run did not end")
    average = _one(_AVERAGE, lines, "line '# Avg bus bandwidth'", "the run did not end")
    end = next(n for n, line in enumerate(lines) if _AVERAGE.match(line))
    last = max(n for n, line in enumerate(lines) if n == end or line.startswith("# Collective test concluded:"))
    if "#" not in lines[end + 1:] or "#" not in lines[last + 1:]:
        raise ParseError("the output is cut off after the average")
    reduced = [m for m in map(_REDUCED.match, lines) if m]
    maximum = integer(reduced[0][1], "reduced size") if reduced else int(params[4])
    warnings = [f"largest size reduced from {params[4]} to {maximum} bytes for lack of GPU memory"] if reduced else []
    warnings += [f"NCCL warns: {printable(line, limit=160)}" for line in lines if " NCCL WARN " in line][:3]
    table = Table(
        minimum=int(params[3]), asked=int(params[4]), maximum=maximum, step=int(params[5]),
        factor=params[6] == "factor", validation=params[7] != "0", ranks=_ranks(lines),
        rows=_rows(lines[head + 1:end], lines[head]), out_of_bounds=int(bounds[1]),
        average=finite(average[1], "average bus bandwidth", most=1e6), verdict=average[2] or "",
        warnings=tuple(warnings))
    if (bounds[2] == "OK") != (table.out_of_bounds == 0):
        raise ParseError(f"contradiction: {printable(bounds[0])}")
    _complete(table)
    return table


def _untagged(lines: Sequence[str]) -> list[str]:
    """Without the tags that mpirun --tag-output and srun --label put before every line."""
    if any(_TAG.match(line) for line in lines):
        lines = [_TAG.sub("", line, count=1).strip() for line in lines]
    told = [line for line in lines if line]
    if told and all(_LABEL.match(line) for line in told):
        lines = [_LABEL.sub("", line, count=1).strip() for line in lines]
    return list(lines)


def _one(pattern: re.Pattern[str], lines: Sequence[str], what: str, why: str) -> re.Match[str]:
    found = [m for m in map(pattern.match, lines) if m]
    if len(found) != 1:
        raise ParseError(f"{len(found)} times {what}, exactly one must be",
                         hint=why if not found else "several runs mixed")
    return found[0]


def _framed(lines: Sequence[str], program: str) -> None:
    """Newer versions name the program at the beginning and at the end."""
    starts = [line.split(":", 1)[1].strip() for line in lines if line.startswith("# Collective test starting:")]
    ends = [line.split(":", 1)[1].strip() for line in lines if line.startswith("# Collective test concluded:")]
    for name in [*starts, *ends]:
        if name.rsplit("/", 1)[-1] != program:
            raise ParseError(f"this is an output of {printable(name, limit=60)}, not of {program}")
    if len(starts) != len(ends) or len(starts) > 1:
        raise ParseError(f"{len(starts)} tests start and {len(ends)} end", hint="cut off, or several runs mixed")


def _header(lines: Sequence[str]) -> int:
    wanted = {"size", "count", "busbw"}
    found = [n for n, line in enumerate(lines) if line.startswith("#") and wanted <= set(line.split())]
    if len(found) != 1:
        raise ParseError(f"{len(found)} table headers, exactly one must be")
    units = lines[found[0] + 1].split() if found[0] + 1 < len(lines) else []
    if "(B)" not in units or units.count("(GB/s)") != 2 * lines[found[0]].split().count("busbw"):
        raise ParseError("the table does not say its units (B), (us), (GB/s)")
    return found[0]


def _ranks(lines: Sequence[str]) -> tuple[Rank, ...]:
    told = [line for line in lines if line.startswith("#") and line[1:].lstrip().startswith("Rank ")]
    found = [m for m in map(_RANK.fullmatch, told) if m]
    ranks = tuple(Rank(int(m[1]), m[3], int(m[4]), m[5].lower(), m[6].strip()) for m in found)
    if len(found) != len(told) or not ranks:
        raise ParseError("a line of the device list is damaged" if told else "no rank is listed")
    if [r.number for r in ranks] != list(range(len(ranks))):
        raise ParseError(f"the device list is not complete: {len(ranks)} ranks, the highest is "
                         f"{max(r.number for r in ranks)}")
    places = [(r.host, r.device) for r in ranks]
    buses = [(r.host, r.pci) for r in ranks if ":" in r.pci]
    if len(set(places)) != len(places) or len(set(buses)) != len(buses):
        raise ParseError("two ranks use one GPU", hint="ranks are not bound one to a GPU")
    return ranks


def _rows(lines: Sequence[str], header: str) -> tuple[Row, ...]:
    names = header.lstrip("#").split()
    if names.count("time") != names.count("busbw") or names[:3] != ["size", "count", "type"]:
        raise ParseError(f"unknown table layout: {' '.join(names)[:120]}")
    first = names.index("time")
    width = len(names) + names.count("timestamp")           # a time stamp is two words
    rows = []
    for line in lines:
        words = line.split()
        if len(words) < 2 or not (words[0].isdigit() and words[1].isdigit()):
            continue
        if len(words) != width:
            raise ParseError(f"a row of the table is torn: {printable(line, limit=120)!r}")
        rows.append(_row(words, first, names))
    return tuple(rows)


def _row(words: Sequence[str], first: int, names: Sequence[str]) -> Row:
    size, count = integer(words[0], "message size"), integer(words[1], "count")
    bytes_each = TYPE_BYTES.get(words[2])
    if bytes_each is None or size != count * bytes_each:
        raise ParseError(f"{size} bytes are not {count} elements of type {printable(words[2], limit=20)!r}")
    if "root" in names and not words[names.index("root")].removeprefix("-").isdigit():
        raise ParseError(f"the root of the row of {size} bytes is no rank")
    modes = {}
    for mode, start in zip(("out-of-place", "in-place"), range(first, len(names), 4), strict=False):
        if names[start:start + 3] != ["time", "algbw", "busbw"] or names[start + 3] not in ("#wrong", "error"):
            break
        time, algbw, busbw, wrong = words[start:start + 4]
        half = Half(finite(time, f"time at {size} bytes"), finite(algbw, f"algbw at {size} bytes"),
                    finite(busbw, f"busbw at {size} bytes"), _wrong(wrong, names[start + 3]))
        _agrees(size, half, time, algbw)
        modes[mode] = half
    return Row(size, count, modes)


def _wrong(word: str, column: str) -> float | None:
    """Wrong elements. The old column `error` has the largest relative error instead: a number there is good enough."""
    if word == "N/A":
        return None
    value = finite(word, column)
    return value if column == "#wrong" else 0.0


def _last_place(word: str) -> float:
    """One unit in the last place of a printed number."""
    mantissa, _, exponent = word.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _agrees(size: int, half: Half, time: str, algbw: str) -> None:
    """Refuses a row whose bandwidth is not its size by its time: a digit of it was changed."""
    if size == 0:
        return
    if half.time_us <= 0:
        raise ParseError(f"{size} bytes in no time")
    computed = size / half.time_us / 1e3
    slack = _last_place(algbw) + computed * (_last_place(time) / half.time_us + 0.005)
    if abs(computed - half.algbw) > slack:
        raise ParseError(f"at {size} bytes {time} us do not make {algbw} GB/s")


def _complete(table: Table) -> None:
    expected: list[int] = []
    size = table.minimum
    each = table.rows[0].size // table.rows[0].count if table.rows and table.rows[0].count else 4
    while size <= table.maximum and len(expected) < 10_000:
        expected.append(size // each * each)
        size = size * table.step if table.factor else size + table.step
        if table.step < (2 if table.factor else 1):
            break
    sizes = [row.size for row in table.rows]
    if sizes != expected:
        missing = [s for s in expected if s not in set(sizes)]
        raise ParseError(f"{len(sizes)} sizes where {len(expected)} were asked for" + (
            f"; missing: {', '.join(map(str, missing[:5]))}" if missing else ", or not in their order"))
    rising([s for s in sizes if s > 0])
    values = [half.busbw for row in table.rows for half in row.modes.values()]
    if not values:
        raise ParseError("the table has no values")
    mean = sum(values) / len(values)
    if abs(mean - table.average) > 0.006 + 0.002 * mean:
        raise ParseError(f"the average is {table.average:g}, the rows make {mean:.6g}",
                         hint="a row was lost or changed")

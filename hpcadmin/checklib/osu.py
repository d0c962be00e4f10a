"""Reads the table of a point-to-point program of the OSU micro-benchmarks, versions 5 to 7."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from hpcadmin.check import ParseError
from hpcadmin.checklib import integer, lines_of, no_fatal_lines, positive
from hpcadmin.text import printable

_TITLE = re.compile(r"# OSU MPI(-[A-Z0-9]{2,12})? ([A-Za-z ()/-]{3,60}?) Test +v(\d{1,3})\.(\d{1,3}(?:\.\d{1,3})?)$")
_BUFFERS = re.compile(r"# Send Buffer on (\w{1,12}) \(.{1,4}\) and Receive Buffer on (\w{1,12}) \(.{1,4}\)$")
_COLUMNS = {"Latency (us)": "us", "Avg Latency(us)": "us", "Bandwidth (MB/s)": "MB/s"}
LARGEST = 4194304
BROKEN = ("ucx  error", "bad termination", "segv", "signal:", "pml_ucx", "transport retry", "map_cache", "cxil_map")


@dataclass(frozen=True)
class Table:
    version: str
    unit: str
    rows: tuple[tuple[int, float], ...]       # bytes, value
    buffers: str                              # "", "HOST", "DEVICE", "HOST to DEVICE"
    validated: bool
    warnings: tuple[str, ...]


def read(text: str, test: str) -> Table:
    """The one whole table of a test ("Latency", "Bandwidth"). ParseError when it is cut, torn, doubled or unknown."""
    if not text.endswith(("\n", "\r")):
        raise ParseError("the last line is not ended: the output is cut off")
    lines = lines_of(text)
    no_fatal_lines(lines, also=BROKEN)
    titles = [line for line in lines if line.startswith("# OSU ")]
    title = _TITLE.match(titles[0]) if len(titles) == 1 else None
    if title is None or title[2] != test:
        told = printable(titles[0], limit=80) if titles else "no title"
        raise ParseError(f"not one output of the OSU {test} test: {len(titles)} titles, {told}")
    if not 5 <= int(title[3]) <= 7:
        raise ParseError(f"OSU micro-benchmarks {title[3]}.{title[4]} are not known", hint="known: 5 to 7")
    heads = [n for n, line in enumerate(lines) if re.match(r"# Size\s", line)]
    if len(heads) != 1:
        raise ParseError(f"{len(heads)} table headers, exactly one must be")
    column = " ".join(lines[heads[0]].split()[2:])
    checked = column.endswith(" Validation")
    unit = _COLUMNS.get(column.removesuffix(" Validation"))
    if unit is None:
        raise ParseError(f"unknown columns {printable(column, limit=60)!r}")
    rows = tuple(_row(words, checked) for words in (line.split() for line in lines[heads[0] + 1:])
                 if words and words[0].isdigit())
    _complete([row[0] for row in rows], (0,) if unit == "us" and title[3] == "5" else (0, 1))
    buffers = next((m for m in map(_BUFFERS.match, lines) if m), None)
    placed = "" if buffers is None else buffers[1] if buffers[1] == buffers[2] else f"{buffers[1]} to {buffers[2]}"
    return Table(f"{title[3]}.{title[4]}", unit, rows, placed, checked, _warnings(lines, rows))


def _row(words: list[str], checked: bool) -> tuple[int, float]:
    if len(words) != 2 + checked:
        raise ParseError(f"a row of the table is torn: {printable(' '.join(words), limit=100)!r}")
    size = integer(words[0], "message size")
    if checked and words[2] != "Pass":
        raise ParseError(f"validation at {size} bytes: {printable(words[2], limit=20)}")
    return size, positive(words[1], f"value at {size} bytes")


def _complete(sizes: list[int], first: tuple[int, ...]) -> None:
    """The programs run without options: every size from the first (0 bytes of old for latency) to the default largest
    must be there."""
    if not sizes:
        raise ParseError("the table has no rows")
    if sizes[0] not in first:
        raise ParseError(f"the table begins at {sizes[0]} bytes: its beginning is missing")
    if sizes[-1] != LARGEST:
        raise ParseError(f"the table ends at {sizes[-1]} bytes, not at {LARGEST}: cut off")
    for before, after in pairwise(sizes):
        if after != max(1, 2 * before):
            raise ParseError(f"{after} bytes come after {before}: rows are missing, doubled or of several runs")


def _warnings(lines: list[str], rows: tuple[tuple[int, float], ...]) -> tuple[str, ...]:
    found = ["OMB could not identify the local rank"] if any(
        "could not identify the local rank" in line for line in lines) else []
    found += [printable(line, limit=160) for line in lines if re.search(r"\bUCX +WARN\b", line)][:3]
    return tuple(found)

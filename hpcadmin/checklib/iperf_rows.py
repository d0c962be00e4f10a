"""Rows of iperf's tables, each read by the units that stand in it, and refused where it contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib.iperf import Run, counted

ROW = re.compile(r"\[ {0,3}(\d{1,5}|SUM)(?:-\d{1,4})?\] ?(?:\[(?:([RT]X)-([CS])|[SCLR-]{1,2})\])? *"
                  r"(\S{1,24}?)- ?(\S{1,24}) +sec +(\S{1,24}) +([KMGT]?)(Bytes|bytes) +"
                  r"(\S{1,24}) +([KMGT]?)(bits|Bytes)/sec *(.*)$")
LOOKS = re.compile(r"\[ {0,3}(?:\d{1,5}|SUM)\S{0,12}\].{0,200}?(?:/sec|\bsec\b)")
LOSS = re.compile(r"(\S{1,24}) ms +(\S{1,24}?)/ {0,9}(\S{1,24}) +\((\S{1,16}?)%\)")
HEAD = re.compile(r"\[ {0,3}ID\].{0,20}Interval +Transfer +(?:Bitrate|Bandwidth)")
_FIGURE = re.compile(r"\(?\d{1,20}(?:\.\d{1,20})?(?:/\d{0,20}(?:\.\d{1,20})?)*%?\)?$")
_FACTOR = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {"": 1.0, "K": 2.0 ** 10, "M": 2.0 ** 20, "G": 2.0 ** 30, "T": 2.0 ** 40}


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    place: int           # of its line
    id: str
    way: str
    begin: float
    end: float
    moved: float         # bytes
    rate: float          # bit/s
    role: str            # "sender", "receiver" or ""
    rest: str
    omitted: bool = False


def rows_of(lines: Sequence[str]) -> list[Row]:
    """ParseError where a line looks like a row and is none, or contradicts itself."""
    found = []
    for place, line in enumerate(lines):
        match = ROW.match(line)
        if match is None:
            if LOOKS.match(line) and "received out-of-order" not in line:
                raise ParseError(f"the row is torn: {lib.shown(line)}")
            continue
        begin, end = (lib.finite(match[n], f"the interval in {lib.shown(line)}", most=1e8) for n in (4, 5))
        moved = lib.finite(match[6], f"the transfer in {lib.shown(line)}") * _BYTES[match[7]]
        rate = lib.finite(match[9], f"the rate in {lib.shown(line)}") * (
            _FACTOR[match[10]] if match[11] == "bits" else 8 * _BYTES[match[10]])
        rest = match[12].strip()
        words = rest.split()
        role = words[-1] if words and words[-1] in ("sender", "receiver") else ""
        row = Row(place, match[1], f"{match[2]}-{match[3]}" if match[2] else "", begin, end, moved, rate, role,
                  rest, "(omitted)" in rest)
        _agrees(row, line)
        if not _figures(words):
            raise ParseError(f"the row is torn: {lib.shown(line)}")
        found.append(row)
    return found


def _figures(words: Sequence[str]) -> bool:
    """Whether what stands behind the rate are figures, each before its unit, and words."""
    for before, word in zip(("", *words), words, strict=False):
        if _FIGURE.match(word):
            continue
        if not word.strip("()").replace("/", "").isalpha() or word.lower() in ("nan", "inf"):
            return False
        if (word == "ms" or word.endswith("Bytes")) and not _FIGURE.match(before):
            return False
    return True


def _agrees(row: Row, line: str) -> None:
    """Transfer, time and rate of one row, each printed with three digits."""
    seconds = row.end - row.begin
    if seconds < 0:
        raise ParseError(f"the row goes back in time: {lib.shown(line)}")
    if seconds < 0.3 or not row.moved:       # too short to tell; or nothing moved
        return
    slack = 0.012 + 0.011 / seconds + 0.6 / max(_digits(line), 1.0)
    if abs(row.moved * 8 / seconds - row.rate) > slack * max(row.rate, row.moved * 8 / seconds):
        raise ParseError(f"the row contradicts itself: {lib.shown(line)}")


def _digits(line: str) -> float:
    """How coarse the smaller of transfer and rate is printed: 4 of "4.00 MBytes" is 400, of "4 MBytes" is 4."""
    match = ROW.match(line)
    assert match is not None  # noqa: S101
    return min(float(match[n].replace(".", "") or 0) for n in (6, 9)) or 1.0


def gbps(row: Row) -> float:
    return row.rate / 1e9


def take_loss(run: Run, row: Row) -> None:
    told = LOSS.search(row.rest)
    if told is None:
        return
    where = lib.shown(row.rest)
    run.jitter_ms = max(lib.finite(told[1], f"jitter in {where}", most=1e7), run.jitter_ms or 0.0)
    lost, total = lib.integer(told[2], f"lost in {where}"), lib.integer(told[3], f"datagrams in {where}")
    counted(run, lost + (run.lost or 0), total + (run.total or 0),
            None if run.total else lib.finite(told[4], f"loss in {where}", most=100), where)

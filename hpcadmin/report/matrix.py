"""The pairs of one measurement as a matrix: a row and a column a node, shaded by the distance from what is usual."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.check import Status, Verdict
from hpcadmin.peers import lower_is_better, number_problem
from hpcadmin.report.summary import measurement_name
from hpcadmin.text import number

_FEW_NODES = 32      # up to here a cell has room for three digits
MOST_NODES = 64      # above this a rectangle a pair is unreadable, and the nodes' own numbers are shown instead
SHADES = (0.95, 0.90, 0.80, 0.50)      # of the usual value; the last shade is below all of them


@dataclass(frozen=True)
class Cell:
    text: str = ""
    shade: int = 0
    bad: bool = False
    title: str = ""
    self: bool = False


@dataclass(frozen=True)
class Matrix:
    """usual: the median over the nodes of each one's best pair, which one bad node cannot move. labels: node names
    without what all of them begin with. rows: in the order of nodes, none above MOST_NODES."""

    name: str
    unit: str
    usual: str
    nodes: tuple[str, ...]
    prefix: str
    labels: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    by_node: tuple[NodeNumbers, ...]
    lower_is_better: bool


@dataclass(frozen=True)
class NodeNumbers:
    node: str
    pairs: int
    bad: int
    best: str
    median: str
    worst: str
    shade: int


def matrices(verdicts: Sequence[Verdict]) -> list[Matrix]:
    """One for each measurement of pairs among the verdicts of a check; a pair without a value is in each of them."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    without: list[Verdict] = []
    for v in verdicts:
        if len(v.subject.nodes) != 2 or not v.status.counts:
            continue
        m = v.measurement
        if m is None or number_problem(m.value):
            without.append(v)
        elif m.expected is None:
            groups.setdefault((measurement_name(m), m.unit), []).append(v)
    if not groups and without:
        groups[("result", "")] = []
    return [_matrix(name, unit, found, without) for (name, unit), found in groups.items()]


def _matrix(name: str, unit: str, found: Sequence[Verdict], without: Sequence[Verdict]) -> Matrix:
    nodes = tuple(sorted({n for v in [*found, *without] for n in v.subject.nodes}))
    lower = bool(found and found[0].measurement and lower_is_better(found[0].measurement))
    usual = _usual(found, lower)
    unit_shown, factor = _scale(unit, usual)
    show = _Shown(usual, factor, digits=3 if len(nodes) <= _FEW_NODES else 2)
    cells: dict[tuple[str, str], Cell] = {}
    for v in [*without, *found]:
        cell = _cell(v, usual, lower, show)
        a, b = v.subject.nodes
        for key in ((a, b), (b, a)):
            if key not in cells or cell.shade >= cells[key].shade:
                cells[key] = cell
    prefix = _prefix(nodes)
    rows = tuple(tuple(Cell(self=True) if a == b else cells.get((a, b), Cell(title=f"{a} - {b}: not tested"))
                       for b in nodes) for a in nodes) if len(nodes) <= MOST_NODES else ()
    return Matrix(name, unit_shown, number(usual / factor, 3) if found else "-", nodes, prefix,
                  tuple(n[len(prefix):] for n in nodes), rows,
                  _by_node(nodes, [*found, *without], usual, lower, show), lower)


def _value(v: Verdict) -> float:
    assert v.measurement is not None  # noqa: S101
    return float(v.measurement.value)


def _usual(found: Sequence[Verdict], lower: bool) -> float:
    best: dict[str, float] = {}
    for v in found:
        for n in v.subject.nodes:
            value = _value(v)
            best[n] = value if n not in best else min(best[n], value) if lower else max(best[n], value)
    return statistics.median(best.values()) if best else 0.0


class _Shown:
    """Numbers of one matrix with the same decimals, as many as the usual value needs."""

    def __init__(self, usual: float, factor: float, digits: int) -> None:
        self.factor = factor
        self.decimals = max(0, digits - 1 - math.floor(math.log10(abs(usual) / factor))) if usual else digits
        self.decimals = min(self.decimals, 6)

    def text(self, value: float | None) -> str:
        """"<0.1" for what would be shown as nothing, since it was not nothing."""
        if value is None:
            return "-"
        text = f"{value / self.factor:.{self.decimals}f}"
        return text if value == 0 or float(text) else f"<{10.0 ** -self.decimals:.{self.decimals}f}"


def _cell(v: Verdict, usual: float, lower: bool, show: _Shown) -> Cell:
    pair = " - ".join(v.subject.nodes)
    bad = v.status in (Status.FAIL, Status.ERROR)
    if v.measurement is None or number_problem(v.measurement.value):
        return Cell("ERR" if v.status is Status.ERROR else "n/r" if v.status is Status.NOT_RUN else v.status.value[:4],
                    len(SHADES) if bad else 0, bad, f"{pair}: {v.status.value} {v.reason}"[:200])
    value = _value(v)
    return Cell(show.text(value), _shade(value, usual, lower), bad,
                f"{pair}: {number(value)} {v.measurement.unit} {v.status.value}")


def _shade(value: float, usual: float, lower: bool) -> int:
    if not usual or not value:
        return 0
    ratio = usual / value if lower else value / usual
    return sum(ratio < edge for edge in SHADES)


def _scale(unit: str, usual: float) -> tuple[str, float]:
    """GB/s where the numbers in MB/s would need four digits or more, so that cells stay narrow."""
    larger: Mapping[str, str] = {"MB/s": "GB/s", "MiB/s": "thousand MiB/s", "Mb/s": "Gb/s", "us": "ms"}
    return (larger[unit], 1000.0) if unit in larger and abs(usual) >= 2000 else (unit, 1.0)


def _prefix(nodes: Sequence[str]) -> str:
    """What all names begin with, without digits at its end: node01, node02 -> node."""
    low, high = (nodes[0], nodes[-1]) if len(nodes) > 1 else ("", "")       # they are sorted
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    prefix = low[:same].rstrip("0123456789")
    return prefix if all(len(n) > len(prefix) for n in nodes) else ""


def _by_node(nodes: Sequence[str], verdicts: Sequence[Verdict], usual: float, lower: bool, show: _Shown,
             ) -> tuple[NodeNumbers, ...]:
    values: dict[str, list[float]] = {n: [] for n in nodes}
    bad = dict.fromkeys(nodes, 0)
    pairs = dict.fromkeys(nodes, 0)
    for v in verdicts:
        for n in v.subject.nodes:
            pairs[n] += 1
            bad[n] += v.status in (Status.FAIL, Status.ERROR)
            if v.measurement is not None and not number_problem(v.measurement.value):
                values[n].append(_value(v))
    made = []
    for n in nodes:
        ordered = sorted(values[n], reverse=not lower)
        middle = statistics.median(ordered) if ordered else None
        best, worst = (ordered[0], ordered[-1]) if ordered else (None, None)
        made.append(NodeNumbers(n, pairs[n], bad[n], show.text(best), show.text(middle), show.text(worst),
                                _shade(middle, usual, lower) if middle is not None else 0))
    return tuple(made)

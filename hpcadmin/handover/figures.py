"""Histograms and curves over message sizes, as coordinates. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from hpcadmin.check import Limit
from hpcadmin.handover.model import Bar, Column, Curve, Histogram, Mark, Point, Table, Tick
from hpcadmin.handover.texts import msg
from hpcadmin.text import byte_size, number

_WIDTH, _HEIGHT = 640.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 14.0, 14.0, 34.0
_MOST_BINS = 24
MIN_VALUES = 8           # fewer say nothing as a histogram
MIN_SIZES = 3


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * s for s in (1, 2, 5, 10) if power * s >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def histogram(name: str, title: str, unit: str, values: Sequence[float], limits: Sequence[Limit],
              ) -> tuple[Histogram, Table]:
    """Values in bins of equal width; the limits stand in it where they are not far outside."""
    low, high = min(values), max(values)
    bounds = [b for limit in limits for b in (limit.min, limit.max) if b is not None]
    near = [b for b in bounds if low - 1.5 * (high - low) <= b <= high + 1.5 * (high - low) or low == high]
    start, end = min([low, *near]), max([high, *near])
    if start == end:
        start, end = (start * 0.95, end * 1.05) if start else (-0.5, 0.5)
    bins = max(4, min(_MOST_BINS, round(math.sqrt(len(values))) * 2))
    width = (end - start) / bins
    counts = [0] * bins
    for v in values:
        counts[min(bins - 1, max(0, int((v - start) / width)))] += 1
    top = max(counts)
    inner, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return round(_LEFT + inner * (value - start) / (end - start), 1)

    def bar(place: int, count: int) -> Bar:
        begin, height = start + place * width, max(1.0, round(tall * count / top, 1))
        return Bar(x(begin), round(_TOP + tall - height, 1), round(inner / bins - 1, 1), height, count,
                   f"{number(begin)} – {number(begin + width)}")  # noqa: RUF001

    bars = tuple(bar(i, c) for i, c in enumerate(counts) if c)
    figure = Histogram(
        name, msg("histogram_title", name=title, count=len(values)), unit, _WIDTH, _HEIGHT, bars,
        tuple(Tick(x(t), number(t)) for t in ticks(start, end)),
        tuple(Tick(round(_TOP + tall * (1 - t / top), 1), number(t)) for t in ticks(0, top, 4) if t == int(t)),
        tuple(Mark(x(b), number(b)) for b in dict.fromkeys(near)))
    table = Table(f"{name}-bins", msg("table_bins", name=title), (
        Column(msg("col_range_unit", unit=unit)), Column(msg("col_values"), "number")),
        tuple((b.text, b.count) for b in bars))
    return figure, table


def curve(name: str, title: str, unit: str, points: dict[int, list[float]], limits: Sequence[Limit], *, lower: bool,
          ) -> tuple[Curve, Table]:
    """The fleet's median and band at each message size, beside what is expected of one start-up time and one rate."""
    sizes = sorted(points)
    rows = [(s, statistics.median(points[s]), min(points[s]), max(points[s])) for s in sizes]
    floors = {limit.size_bytes: limit.min if limit.min is not None else limit.max or 0.0 for limit in limits
              if limit.size_bytes is not None}
    model = _expected([(s, m) for s, m, _, _ in rows], floors, lower=lower)
    numbers = [v for _, _, a, b in rows for v in (a, b) if v > 0] + [v for v in model if v > 0]
    low, high = math.log10(min(numbers)), math.log10(max(numbers))
    low, high = math.floor(low * 2) / 2, max(math.ceil(high * 2) / 2, math.floor(low * 2) / 2 + 0.5)
    first, last = math.log2(max(1, sizes[0])), math.log2(sizes[-1])
    inner, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(size: int, value: float) -> Point:
        x = _LEFT + inner * (math.log2(max(1, size)) - first) / max(last - first, 1e-9)
        part = (math.log10(value) - low) / (high - low) if value > 0 else 0.0
        return Point(round(x, 1), round(_TOP + tall * (1 - min(1.0, max(0.0, part))), 1), number(value))

    step = max(1, math.ceil(len(sizes) / 9))
    marks = tuple(at(s, v) for s, v in sorted(floors.items()) if v and sizes[0] <= s <= sizes[-1])
    figure = Curve(
        name, msg("curve_title", name=title), unit, _WIDTH, _HEIGHT, tuple(at(s, m) for s, m, _, _ in rows),
        (*(at(s, b) for s, _, _, b in rows), *(at(s, a) for s, _, a, _ in reversed(rows))),
        tuple(at(s, v) for s, v in zip(sizes, model, strict=True)), marks,
        tuple(Tick(at(s, 1).x, byte_size(s)) for s in sizes[::step]),
        tuple(Tick(at(sizes[0], 10.0 ** e).y, number(10.0 ** e)) for e in range(math.ceil(low), math.floor(high) + 1)))
    table = Table(f"{name}-sizes", msg("table_sizes", name=title), (
        Column(msg("col_size"), "exact"), Column(msg("col_values"), "number"),
        *(Column(msg(k, unit=unit), "number") for k in (
            "col_median_unit", "col_lowest_unit", "col_highest_unit", "col_expected_unit", "col_limit_unit"))),
        tuple((byte_size(s), len(points[s]), m, a, b, e, floors.get(s))
              for (s, m, a, b), e in zip(rows, model, strict=True)), note=msg("curve_note"))
    return figure, table


def _expected(medians: Sequence[tuple[int, float]], floors: Mapping[int, float], *, lower: bool,
              ) -> list[float]:
    """t(n) = t0 + n/B: t0 from the smallest message's median; B from the limit of the largest size that has one, else
    from the largest message's median. In the unit of the values: times, or n/t(n)."""
    size0, value0 = medians[0]
    size1, value1 = next(((s, floors[s]) for s, _ in reversed(medians) if s > size0 and floors.get(s)), medians[-1])
    value1 = value1 or medians[-1][1]
    if value0 <= 0 or value1 <= 0:
        return [0.0 for _ in medians]
    if lower:
        slope = max(0.0, (value1 - value0) / max(1, size1 - size0))
        return [max(0.0, value0 + slope * (s - size0)) for s, _ in medians]
    time0, time1 = max(1, size0) / value0, size1 / value1
    slope = max(0.0, (time1 - time0) / max(1, size1 - size0))
    return [max(1, s) / (time0 + slope * (s - size0)) if time0 + slope * (s - size0) > 0 else 0.0 for s, _ in medians]

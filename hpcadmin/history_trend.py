"""Slow drifts over many runs: a loss of 2 % a week that stays inside every limit for months.

Each value is taken against the median of the fleet in its run, so that what all nodes share (a driver, the weather of a
day) is no drift of one of them; the fleet has a series of its own. Slopes are Theil and Sen's, their chance Mann and
Kendall's, corrected for values that hang together from run to run; false discoveries are held to RATE over all nodes
and sizes. A level that changed once, and stayed, is told as a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from hpcadmin.history import MIN_FLEET, MIN_NOISE, order
from hpcadmin.history_stats import (
    MAD_WORTH,
    MEDIAN_COST,
    UNKNOWN_TAIL,
    best_step,
    carried_over,
    mann_kendall,
    p_two_sided,
    q_values,
    spread,
    theil_sen,
)
from hpcadmin.history_values import FEW, Condition, Entity, Values

TREND_SCHEMA = 1
RATE = 0.05
MIN_POINTS = 6          # of fewer, no order proves a trend
MIN_DRIFT = 0.02        # over the whole time; smaller ones change nobody's mind
WEEK_S = 7 * 86400.0
_MOST_LOG = 700.0       # of what is a number still when it is no logarithm any more
_STEP_FITS = 0.6        # a step is told where it leaves so much less unexplained than a line


class Moment(NamedTuple):
    """A run of a series."""

    run: str
    time: float         # seconds since 1970
    values: Values


class Point(NamedTuple):
    run: str
    time: float
    value: float


@dataclass(frozen=True)
class Drift:
    """entity None: the fleet. condition None: all sizes of the measurement together.

    percent_per_week, percent: of the value as it is read, over the whole time; against the fleet for a node of one.
    percent_per_week is None where the runs are of less than a week.
    step: the runs between which it changed, where it changed at once; then percent is of that step.
    """

    check: str
    name: str
    unit: str
    entity: Entity | None
    condition: Condition | None
    worse: bool
    percent_per_week: float | None
    percent: float
    noise_percent: float
    points: int
    first: str
    last: str
    q: float
    step: tuple[str, str] | None = None


@dataclass(frozen=True)
class Trends:
    """series: how many were long enough to be looked at."""

    drifts: tuple[Drift, ...] = ()
    series: int = 0
    short: int = 0
    runs: int = 0


@dataclass(frozen=True)
class _Series:
    """log: of each run the logarithm of the value, against the fleet's where that is known."""

    entity: Entity | None
    condition: Condition | None
    runs: tuple[str, ...]
    weeks: tuple[float, ...]
    log: tuple[float, ...]
    lower: bool


def trends(moments: Sequence[Moment]) -> Trends:
    """moments: runs in the order of time, with the values of one check."""
    families: dict[tuple[str, str, str], set[Condition]] = {}
    for moment in moments:
        for condition in moment.values:
            families.setdefault((condition.check, condition.name, condition.unit), set()).add(condition)
    drifts: list[Drift] = []
    looked = short = 0
    for key, conditions in sorted(families.items()):
        single, fleet, few = _series(sorted(conditions, key=order), moments)
        whole = _together(single)
        looked += len(single)
        short += few
        for group, rate in ((single, RATE / 2), (whole, RATE / 2), ([*fleet, *_together(fleet)], RATE)):
            p = _chances(group)
            drifts += [found for s, q in zip(group, q_values(p), strict=True)
                       if q <= rate and (found := _drift(key, s, q)) is not None]
    return Trends(tuple(sorted(_strongest(drifts), key=_badness)), looked, short, len(moments))


def points(moments: Sequence[Moment], condition: Condition, entity: Entity) -> list[Point]:
    """The values of one entity as they were read."""
    return [Point(m.run, m.time, _value(m.values, condition, entity)) for m in moments
            if entity in m.values.get(condition, {})]


def fleet_points(moments: Sequence[Moment], condition: Condition) -> list[Point]:
    """The median of the fleet in each run."""
    return [Point(m.run, m.time, median([_value(m.values, condition, e) for e in m.values[condition]]))
            for m in moments if m.values.get(condition)]


def _value(values: Values, condition: Condition, entity: Entity) -> float:
    sample = values[condition][entity]
    few = condition.over == "pair" and len(sample.values) < FEW
    return sample.summary(few=few, lower=condition.lower_is_better)


def _series(conditions: Sequence[Condition], moments: Sequence[Moment]) -> tuple[list[_Series], list[_Series], int]:
    single: list[_Series] = []
    fleet: list[_Series] = []
    few = 0
    start = moments[0].time if moments else 0.0
    for condition in conditions:
        table: dict[Entity, list[tuple[str, float, float]]] = {}
        common: list[tuple[str, float, float]] = []
        for moment in moments:
            of = {e: math.log(_value(moment.values, condition, e)) for e in moment.values.get(condition, {})}
            week = (moment.time - start) / WEEK_S
            middle = median(of.values()) if len(of) >= MIN_FLEET else 0.0
            if len(of) >= MIN_FLEET:
                common.append((moment.run, week, middle))
            for entity, log in of.items():
                table.setdefault(entity, []).append((moment.run, week, log - middle))
        lower = condition.lower_is_better
        made = [_Series(e, condition, *_columns(rows), lower) for e, rows in table.items() if len(rows) >= MIN_POINTS]
        few += len(table) - len(made)
        single += made
        if len(common) >= MIN_POINTS:
            fleet.append(_Series(None, condition, *_columns(common), lower))
    return single, fleet, few


def _columns(rows: Sequence[tuple[str, float, float]]) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]:
    return tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] for r in rows)


def _together(single: Sequence[_Series]) -> list[_Series]:
    """All sizes of an entity as one series: the mean of their changes, in the runs that have all of them."""
    groups: dict[Entity | None, list[_Series]] = {}
    for s in single:
        groups.setdefault(s.entity, []).append(s)
    found = []
    for entity, of in groups.items():
        if len(of) < 2:
            continue
        by_run: dict[str, list[float]] = {}
        weeks: dict[str, float] = {}
        for s in of:
            middle = median(s.log)
            for run, week, log in zip(s.runs, s.weeks, s.log, strict=True):
                by_run.setdefault(run, []).append(log - middle)
                weeks[run] = week
        runs = sorted((run for run, logs in by_run.items() if len(logs) == len(of)), key=lambda run: weeks[run])
        if len(runs) >= MIN_POINTS:
            found.append(_Series(entity, None, tuple(runs), tuple(weeks[r] for r in runs),
                                 tuple(sum(by_run[r]) / len(of) for r in runs), of[0].lower))
    return found


def _chances(group: Sequence[_Series]) -> list[float]:
    """p of each series, by its order or by a step in it, whichever tells more; that there were two ways is paid for."""
    steps = [(s, *best_step(s.log)) for s in group]
    own = {id(s): spread(_around(s.log, at), 0.0) for s, at, _ in steps}
    usual: dict[Condition | None, list[float]] = {}
    for s, _, _ in steps:
        usual.setdefault(s.condition, []).append(own[id(s)])
    found = []
    for s, at, _ in steps:
        sigma = max(own[id(s)], median(usual[s.condition]), MIN_NOISE)
        stepped = _step_chance(s, at, sigma, len(usual[s.condition]) * len(s.log))
        found.append(min(1.0, 2 * min(mann_kendall(s.weeks, s.log), stepped)))
    return found


def _step_chance(s: _Series, at: int, sigma: float, count: int) -> float:
    """p of the best of all places for a step. count: values that tell the noise."""
    n = len(s.log)
    if not at:
        return 1.0
    step = median(s.log[at:]) - median(s.log[:at])
    error = sigma * math.sqrt(MEDIAN_COST * (1 / at + 1 / (n - at)) * carried_over(_around(s.log, at)))
    return min(1.0, (n - 5) * p_two_sided(step / error, min(UNKNOWN_TAIL, MAD_WORTH * (count - 2))))


def _around(log: Sequence[float], at: int) -> list[float]:
    """What is left of a series when the level before a step and that behind it are taken away."""
    parts = [log[:at], log[at:]] if at else [log]
    return [y - median(part) for part in parts for y in part]


def _drift(key: tuple[str, str, str], s: _Series, q: float) -> Drift | None:
    """None where it is too small to matter."""
    span = s.weeks[-1] - s.weeks[0]
    slope = theil_sen(s.weeks, s.log)
    total = slope * span
    reach = max(s.log) - min(s.log)
    if abs(total) > reach:      # runs in a row within minutes, and none for long: no line rises more than its values
        total = math.copysign(reach, total)
        slope = total / span
    level = median([y - slope * x for x, y in zip(s.weeks, s.log, strict=True)])
    rest = [y - level - slope * x for x, y in zip(s.weeks, s.log, strict=True)]
    at, cost = best_step(s.log)
    step = None
    if at and cost < _STEP_FITS * sum(map(abs, rest)):
        step = s.runs[at - 1], s.runs[at]
        total = median(s.log[at:]) - median(s.log[:at])
        rest = _around(s.log, at)
    if abs(total) < MIN_DRIFT:
        return None
    weekly = _percent(slope) if span >= 1.0 else None
    return Drift(*key, s.entity, s.condition, (total > 0) is s.lower, weekly, _percent(total),
                 100 * spread(rest, 0.0), len(s.runs), s.runs[0], s.runs[-1], q, step)


def _percent(log: float) -> float:
    return 100 * math.expm1(min(log, _MOST_LOG))


def _strongest(drifts: Sequence[Drift]) -> list[Drift]:
    """Of each entity and measurement one row: all sizes together if that is one, else the size that drifts most."""
    best: dict[tuple[str, str, Entity | None, bool], Drift] = {}
    for drift in drifts:
        key = drift.check, drift.name, drift.entity, drift.worse
        known = best.get(key)
        if known is None or (drift.condition is None, abs(drift.percent)) > (
                known.condition is None, abs(known.percent)):
            best[key] = drift
    # A size that falls by far more than all of them together is what is to be looked at.
    for drift in drifts:
        known = best[drift.check, drift.name, drift.entity, drift.worse]
        if known.condition is None and drift.condition is not None and abs(drift.percent) > 2 * abs(known.percent):
            best[drift.check, drift.name, drift.entity, drift.worse] = replace(drift, q=min(drift.q, known.q))
    return list(best.values())


def _badness(drift: Drift) -> tuple[object, ...]:
    return not drift.worse, drift.entity is not None, -abs(drift.percent), drift.entity or Entity("")


def summary_of(moments: Sequence[Moment], entities: Sequence[str]) -> Mapping[Condition, list[Entity]]:
    """Which conditions and devices of these nodes have values in any run."""
    found: dict[Condition, dict[Entity, None]] = {}
    for moment in moments:
        for condition, of in moment.values.items():
            for entity in of:
                if not entities or entity.node in entities:
                    found.setdefault(condition, {})[entity] = None
    return {c: sorted(of) for c, of in sorted(found.items(), key=lambda item: order(item[0]))}

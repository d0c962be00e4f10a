"""One section a check: its limits with their sources, what was measured over the fleet, the worst ten, and pictures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.check import Limit, Measurement, Scope, Status, Verdict
from hpcadmin.handover import figures, heat
from hpcadmin.handover.model import Block, Cell, Column, HeatMap, Link, Paragraph, Section, Table
from hpcadmin.handover.texts import Msg, data, msg, told
from hpcadmin.hosts import fold
from hpcadmin.judge import BY_LIMIT
from hpcadmin.peers import lower_is_better, number_problem
from hpcadmin.report.summary import CheckRow, Summary, measurement_name
from hpcadmin.rundata import Plan, Run
from hpcadmin.text import byte_size, number

WORST = 10
_MOST_BAD = 40           # rows of one check that are not good; all are in measurements.csv and in the run folder
_BASES = {"peers": "basis_peers", "output": "basis_output", "plan": "basis_plan"}
_MOST_FIGURES = 4        # of one kind, of one check
_MOST_MAPS = 16          # of one check, where it has them alone


@dataclass(frozen=True)
class Values:
    """One measurement of a check over the fleet."""

    name: str
    unit: str
    found: tuple[Verdict, ...]          # with a number, worst first
    numbers: tuple[float, ...]          # the same, as they are ordered
    lower: bool
    limits: tuple[Limit, ...]


def anchors(summary: Summary) -> dict[str, str]:
    """Of each check that has a section."""
    return {row.check: f"check-{place}" for place, row in enumerate(summary.checks, 1) if row.status.counts}


def sections(run: Run, summary: Summary) -> list[Section]:
    by_check: dict[str, list[Verdict]] = {}
    for v in summary.verdicts:
        by_check.setdefault(v.check, []).append(v)
    curves = _curves(run)
    names = anchors(summary)
    made = []
    for row in summary.checks:
        if row.check in names:
            found = by_check.get("" if row.check == "(whole node)" else row.check, [])
            made.append(_section(names[row.check], row, found, curves.get(row.check, {}), run.plan))
    return made


def _section(name: str, row: CheckRow, verdicts: Sequence[Verdict], curves: Mapping[Curve, dict[int, list[float]]],
             plan: Plan | None) -> Section:
    groups = values_of(verdicts)
    blocks: list[Block] = [Paragraph(msg("check_counts", passed=row.passed, total=row.tests))]
    limits = tuple(dict.fromkeys(v.limit for v in verdicts if v.limit))
    if limits:
        blocks.append(_limits(name, limits))
    elif groups:
        blocks.append(Paragraph(msg("no_limits"), "note"))
    if row.as_expected:
        blocks.append(Paragraph(msg("as_expected", count=row.as_expected)))
    if groups:
        blocks.append(_distribution(name, groups))
    for n, group in enumerate(groups, 1):
        if len(group.found) > WORST:
            blocks.append(_worst_ten(f"{name}-worst-{n}", group))
    blocks += _bad(name, verdicts)
    blocks += _pictures(name, row, verdicts, groups, plan)
    for n, (curve, points) in enumerate(list(curves.items())[:_MOST_FIGURES], 1):
        title = f"{row.check} {curve.name}{f' {curve.direction}' if curve.direction else ''}"
        blocks += figures.curve(f"{name}-curve-{n}", title, curve.unit, points, _of_curve(curve, limits),
                                lower=curve.lower)
    heading = msg("check_title", check=told(row.check), title=told(row.title)) if row.title else told(row.check)
    return Section(name, heading, tuple(blocks), part=3, status=row.status)


def values_of(verdicts: Sequence[Verdict]) -> list[Values]:
    kinds: dict[tuple[object, ...], list[tuple[float, Verdict]]] = {}       # of equal names
    for v in verdicts:
        m = v.measurement
        if m is not None and m.expected is None and v.basis != "peers" and not number_problem(m.value):
            kind = m.name, m.unit, m.size_bytes, m.direction, m.rail, m.binding, m.nodes, m.ranks
            kinds.setdefault(kind, []).append((float(m.value), v))
    groups: dict[tuple[str, str], list[tuple[float, Verdict]]] = {}
    for pairs in kinds.values():
        first = pairs[0][1].measurement
        if first is not None:
            groups.setdefault((measurement_name(first), first.unit), []).extend(pairs)
    made = []
    for (name, unit), pairs in groups.items():
        first = pairs[0][1].measurement
        lower = lower_is_better(first) if first else None
        limits = tuple(dict.fromkeys(v.limit for _, v in pairs if v.limit))
        if lower is None:
            lower = any(limit.max is not None and limit.min is None for limit in limits)
        pairs.sort(key=lambda p: p[0], reverse=lower)
        made.append(Values(name, unit, tuple(v for _, v in pairs), tuple(n for n, _ in pairs), lower, limits))
    return made


def _limits(name: str, limits: Sequence[Limit]) -> Table:
    columns = (Column(msg("col_measurement")), Column(msg("col_limit")), Column(msg("col_conditions")),
               Column(msg("col_source")), Column(msg("col_date"), "name"))
    return Table(f"{name}-limits", msg("table_limits"), columns, tuple(
        (limit.measurement, bounds(limit), _conditions(limit), limit.source, limit.date) for limit in limits))


def bounds(limit: Limit) -> Msg:
    parts = [f"{sign} {bound:g}" for sign, bound in (("≥", limit.min), ("≤", limit.max)) if bound is not None]
    text = f"{', '.join(parts)} {limit.unit}".strip()
    if limit.tolerance:
        percent = f"{100 * limit.tolerance:.3g}"
        return msg("limit_derived_tolerance" if limit.derived else "limit_tolerance", bounds=text, percent=percent)
    return msg("limit_derived", bounds=text) if limit.derived else data(text)


def _conditions(limit: Limit) -> str:
    parts = [byte_size(limit.size_bytes) if limit.size_bytes is not None else "", limit.direction.value,
             f"{limit.ranks} ranks" if limit.ranks else "", f"{limit.nodes} nodes" if limit.nodes else "",
             limit.hardware, limit.transport, f"{limit.memory} memory" if limit.memory else ""]
    return ", ".join(p for p in parts if p)


def _distribution(name: str, groups: Sequence[Values]) -> Table:
    columns = (Column(msg("col_measurement")), Column(msg("col_unit")), Column(msg("col_values"), "number"),
               *(Column(msg(key), "number") for key in ("col_worst", "col_p5", "col_median", "col_p95", "col_best")),
               Column(msg("col_spread"), "percent"))
    rows = []
    for g in groups:
        n = g.numbers
        middle = statistics.median(n)
        spread = round(100 * (statistics.pstdev(n) / abs(middle)), 2) if middle and len(n) > 1 else None
        rows.append((g.name, g.unit, len(n), n[0], _percentile(n, 5), middle, _percentile(n, 95), n[-1], spread))
    return Table(f"{name}-values", msg("table_distribution"), columns, tuple(rows), note=msg("distribution_note"))


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The value that so many percent are not better than, of values in order from the worst; nearest rank."""
    place = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered) - 1, place - 1))]


def _row(v: Verdict) -> tuple[Cell, ...]:
    m = v.measurement
    value = float(m.value) if m is not None and not number_problem(m.value) else None
    path = v.outputs[0] if v.outputs else ""
    return where(v), value, m.unit if m else "", _judged(v), v.status, Link(path)


def where(v: Verdict) -> str:
    nodes = v.subject.nodes
    device = v.subject.device or (v.measurement.rail if v.measurement else "")
    return f"{' - '.join(nodes) if len(nodes) <= 2 else fold(nodes)} {device}".strip()


def _judged(v: Verdict) -> Msg:
    if v.basis in BY_LIMIT and v.limit:
        return bounds(v.limit)
    if v.basis == "expected" and v.measurement is not None:
        return data(f"= {number(v.measurement.expected)}")
    return msg(_BASES[v.basis]) if v.basis in _BASES else data(v.basis)


def _worst_ten(name: str, group: Values) -> Table:
    columns = (Column(msg("col_where"), "name"), Column(msg("col_value"), "number"), Column(msg("col_unit")),
               Column(msg("col_judged_by"), "name"), Column(msg("col_result")), Column(msg("col_raw"), "code"))
    return Table(name, msg("table_worst", name=group.name, count=WORST), columns,
                 tuple(_row(v) for v in group.found[:WORST]), total=len(group.found))


def _bad(name: str, verdicts: Sequence[Verdict]) -> Iterator[Block]:
    found = sorted((v for v in verdicts if v.status.counts and v.status is not Status.PASS),
                   key=lambda v: (-v.status.rank, v.subject.nodes, v.subject.device))
    if found:
        columns = (Column(msg("col_result")), Column(msg("col_where"), "name"), Column(msg("col_why")),
                   Column(msg("col_judged_by"), "name"), Column(msg("col_raw"), "code"))
        yield Table(f"{name}-bad", msg("table_not_passed"), columns, tuple(
            (v.status, where(v), told(v.reason or _value(v.measurement)), _judged(v),
             Link(v.outputs[0] if v.outputs else ""))
            for v in found[:_MOST_BAD]), total=len(found))


def _value(m: Measurement | None) -> str:
    return f"{measurement_name(m)} {number(m.value)} {m.unit}".rstrip() if m else ""


def _pictures(name: str, row: CheckRow, verdicts: Sequence[Verdict], groups: Sequence[Values], plan: Plan | None,
              ) -> Iterator[Block]:
    big = [g for g in groups if len(g.numbers) >= figures.MIN_VALUES][:_MOST_FIGURES]
    for n, g in enumerate(big, 1):
        yield from figures.histogram(f"{name}-histogram-{n}", f"{row.check} {g.name}", g.unit, g.numbers, g.limits)
    for figure, tables in itertools.islice(pair_maps(name, row, verdicts, groups, plan.leaves if plan else {}),
                                           _MOST_FIGURES):
        yield figure
        yield from tables


def pair_maps(name: str, row: CheckRow, verdicts: Sequence[Verdict], groups: Sequence[Values],
              leaves: Mapping[str, str]) -> Iterator[tuple[HeatMap, tuple[Table, ...]]]:
    """A map for each measurement of pairs, with its numbers; a pair without a value is in each.

    What is good and no number ("data intact") is told by the number beside it.
    """
    if not (row.scope is Scope.PAIR or (row.scope is None and any(len(v.subject.nodes) == 2 for v in verdicts))):
        return
    without = [v for v in verdicts if len(v.subject.nodes) == 2 and v.status.counts
               and (v.measurement is None or number_problem(v.measurement.value))]
    between = [(g.name, found) for g in groups if (found := [v for v in g.found if len(v.subject.nodes) == 2])]
    for n, (title, found) in enumerate((between or [("", [])] * bool(without))[:_MOST_MAPS], 1):
        measured = {frozenset(v.subject.nodes) for v in found}
        others = [v for v in without if v.status is not Status.PASS or frozenset(v.subject.nodes) not in measured]
        yield heat.heat_map(f"{name}-pairs-{n}", f"{row.check} {title}".strip(), found, others, leaves)


@dataclass(frozen=True)
class Curve:
    """Values that make one curve over message sizes."""

    name: str
    unit: str
    direction: str
    nodes: int | None
    lower: bool


def _curves(run: Run) -> dict[str, dict[Curve, dict[int, list[float]]]]:
    """By check: values by message size, of measurements that have at least three sizes."""
    found: dict[str, dict[Curve, dict[int, list[float]]]] = {}
    repeated = {t.id for t in run.plan.tests if t.repeats} if run.plan else set()
    for one in run.measured:
        m = one.measurement
        if m.size_bytes is None or m.expected is not None or number_problem(m.value) or one.test in repeated:
            continue
        lower = lower_is_better(m)
        if lower is not None:
            key = Curve(m.name, m.unit, m.direction.value, m.nodes, lower)
            found.setdefault(one.check, {}).setdefault(key, {}).setdefault(m.size_bytes, []).append(float(m.value))
    return {check: kept for check, curves in found.items()
            if (kept := {c: p for c, p in curves.items() if len(p) >= figures.MIN_SIZES and _positive(p)})}


def _positive(points: Mapping[int, list[float]]) -> bool:
    return all(v > 0 for values in points.values() for v in values)


def _of_curve(curve: Curve, limits: Sequence[Limit]) -> tuple[Limit, ...]:
    return tuple(limit for limit in limits if limit.measurement == curve.name and limit.unit == curve.unit
                 and limit.direction.value in ("", curve.direction) and limit.nodes in (None, curve.nodes))



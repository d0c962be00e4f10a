"""Comparison of a node with its equals: the best value of each node against the median over nodes of those.

Only values of equal conditions are compared (check, unit, message size, direction, transport, pairs at once, hardware).
The best pair of a node counts, not all of its pairs: with one bad node of four, half of all pairs are bad.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hpcadmin.check import Measurement, Status, Subject, Verdict
from hpcadmin.rundata import TestResult
from hpcadmin.text import number

MIN_NODES = 4        # with fewer, nobody can say which of them is the odd one
MIN_DISTANCE = 0.20  # nearer to the median than this is noise

_TIMES = frozenset({"ns", "us", "µs", "ms", "s"})
Identity = Callable[[str], object]   # node name -> what makes its hardware equal to another node's


def number_problem(value: object) -> str:
    """Why `value` is no finite number; "" when it is one."""
    if value is None:
        return "no value"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{str(value)[:60]!r} is not a number"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number that can be measured"
    return ""


def lower_is_better(measurement: Measurement) -> bool | None:
    """True for times, False for rates, None for what is neither: a count or a size has no better or worse."""
    if measurement.unit in _TIMES:
        return True
    if measurement.unit.endswith("/s") or measurement.unit.lower().endswith(("flops", "flop/s", "iops")):
        return False
    return None


def impossible(measurement: Measurement, subject: Subject) -> str:
    """Why a sound number cannot be true: nothing is below zero, no transfer takes no time or moves nothing."""
    value = measurement.value
    if isinstance(value, str) or value > 0:
        return ""
    shown = f"{number(value)} {measurement.unit}".strip()
    if value < 0:
        return f"{shown} is below zero"
    if lower_is_better(measurement) is False or (lower_is_better(measurement) and len(subject.nodes) > 1):
        return f"{shown} means that nothing was measured"
    return ""


@dataclass(frozen=True)
class Conditions:
    """What must be equal before two values may be compared."""

    check: str
    name: str
    unit: str
    size_bytes: int | None
    direction: str
    rail: str
    binding: str
    transport: str
    ranks: int | None
    pairs_at_once: int | None
    pair: bool
    hardware: object
    simulated: bool


@dataclass(frozen=True)
class Sample:
    conditions: Conditions
    entities: tuple[Subject, ...]      # one (a node or a device) or the two nodes of a pair
    measurement: Measurement
    result: TestResult

    @property
    def value(self) -> float:
        return float(self.measurement.value)


def samples(results: Iterable[TestResult], identity: Identity) -> list[Sample]:
    """Every value that can be compared with peers at all."""
    found = []
    for result in results:
        for m in result.measurements:
            subject = m.subject if m.subject.nodes else result.test.subject
            if (not m.key or m.expected is not None or lower_is_better(m) is None or number_problem(m.value)
                    or impossible(m, subject) or not _comparable(m, subject)):
                continue
            pair = len(subject.nodes) == 2
            test = result.test
            conditions = Conditions(
                test.check, m.name, m.unit, m.size_bytes, m.direction.value, m.rail, m.binding, m.transport, m.ranks,
                m.pairs_at_once if m.pairs_at_once is not None else test.pairs_at_once, pair,
                frozenset(identity(n) for n in subject.nodes), bool(result.simulated))
            entities = tuple(Subject((n,)) for n in subject.nodes) if pair else (subject,)
            found.append(Sample(conditions, entities, m, result))
    return found


def _comparable(measurement: Measurement, subject: Subject) -> bool:
    """A pair's values, and a node's rates; a node's time only if it is one of a transfer: offsets scatter freely."""
    if len(subject.nodes) == 2:
        return True
    return len(subject.nodes) == 1 and (not lower_is_better(measurement) or measurement.size_bytes is not None)


def peer_verdicts(results: Sequence[TestResult], identity: Identity) -> list[Verdict]:
    """A verdict for each node (or device) that was at least 20 % worse than its peers in the first measurement.

    FAIL when every repetition says the same or there is none; PASS or WARN when it recovered. Nodes in line with
    their peers get none: being like the others proves nothing.
    """
    first: dict[Conditions, list[Sample]] = {}
    again: dict[Conditions, list[Sample]] = {}
    for sample in samples(results, identity):
        if not sample.result.test.repeats:
            first.setdefault(sample.conditions, []).append(sample)
        else:
            again.setdefault(replace(sample.conditions, pairs_at_once=None), []).append(sample)
    repetitions: dict[str, list[TestResult]] = {}
    for result in results:
        if result.test.repeats:
            repetitions.setdefault(result.test.repeats, []).append(result)
    verdicts = []
    for conditions, group in first.items():
        repeated = again.get(replace(conditions, pairs_at_once=None), [])
        for accused in _worse_than_peers(conditions, group):
            verdicts.append(_verdict(accused, repeated, repetitions))
    return verdicts


@dataclass(frozen=True)
class _Accused:
    entity: Subject
    best: Sample
    own: tuple[Sample, ...]
    median: float
    nodes: int
    lower: bool


def _bests(group: Iterable[Sample], lower: bool) -> dict[Subject, Sample]:
    bests: dict[Subject, Sample] = {}
    for sample in group:
        for entity in sample.entities:
            known = bests.get(entity)
            if known is None or (sample.value < known.value if lower else sample.value > known.value):
                bests[entity] = sample
    return bests


def _is_worse(value: float, reference: float, lower: bool) -> bool:
    return _distance(value, reference, lower) >= MIN_DISTANCE - 1e-9


def _distance(value: float, reference: float, lower: bool) -> float:
    return (value - reference if lower else reference - value) / reference


def _worse_than_peers(conditions: Conditions, group: Sequence[Sample]) -> list[_Accused]:
    lower = bool(lower_is_better(group[0].measurement))
    bests = _bests(group, lower)
    nodes = len({entity.nodes for entity in bests})
    if nodes < MIN_NODES:
        return []
    median = statistics.median(s.value for s in bests.values())
    bad = {entity for entity, sample in bests.items() if _is_worse(sample.value, median, lower)}
    own: dict[Subject, list[Sample]] = {entity: [] for entity in bad}
    if bad:
        for sample in group:
            for entity in bad.intersection(sample.entities):
                own[entity].append(sample)
    return [_Accused(entity, bests[entity], tuple(own[entity]), median, nodes, lower)
            for entity in bests if entity in bad]


def _verdict(accused: _Accused, repeated: Sequence[Sample], repetitions: dict[str, list[TestResult]]) -> Verdict:
    tests = {s.result.test.id for s in accused.own}
    rounds: dict[tuple[int, bool], list[TestResult]] = {}
    for test in sorted(tests):
        for result in repetitions.get(test, ()):
            rounds.setdefault((result.test.attempt, result.test.alone), []).append(result)
    bad, values = 1, []
    for kind in sorted(rounds):
        value = _repeated_value(accused, [s for s in repeated if (s.result.test.attempt, s.result.test.alone) == kind],
                                tests)
        values.append("not measured" if value is None else number(value[0]))
        bad += value is None or value[1]
    status = Status.FAIL if bad == 1 + len(rounds) else Status.WARN if bad > 1 else Status.PASS
    m = accused.best.measurement
    distance = _distance(accused.best.value, accused.median, accused.lower)
    side = "above" if accused.lower else "below"
    of_pairs = f"best of {len(accused.own)} pairs " if len(accused.own) > 1 else ""
    far = f"{distance:.0%}" if accused.lower or distance < 0.99 else "over 99%"
    peers = f"{far} {side} the median of {accused.nodes} nodes ({number(accused.median)})"
    again = f", again {_and(values)}" if values else ""
    outputs = dict.fromkeys(o for r in [s.result for s in accused.own] + [x for k in sorted(rounds) for x in rounds[k]]
                            for o in r.outputs)
    return Verdict(
        check=accused.best.conditions.check, subject=accused.entity, status=status, basis="peers",
        reason=f"{'first ' if status is not Status.FAIL else ''}{m.name} {of_pairs}{number(m.value)} {m.unit}, "
               f"{peers}{again}",
        measurement=replace(m, subject=accused.entity), outputs=tuple(outputs),
        attempt=max((a for a, _ in rounds), default=1), simulated=accused.best.result.simulated)


def _repeated_value(accused: _Accused, kind: Sequence[Sample], tests: set[str]) -> tuple[float, bool] | None:
    """The accused's best value in one repetition, and whether it is bad again.

    It must be bad against the first median and against the others as they are now: a machine that has become
    slower as a whole accuses nobody. None when nothing was measured.
    """
    own = [s for s in kind if s.result.test.repeats in tests and accused.entity in s.entities]
    if not own:
        return None
    best = _bests(own, accused.lower)[accused.entity]
    others = _bests((s for s in kind if accused.entity not in s.entities
                     and s.conditions.pairs_at_once == best.conditions.pairs_at_once), accused.lower)
    references = [accused.median]
    if len(others) > 1:
        references.append(statistics.median(s.value for s in others.values()))
    return best.value, all(_is_worse(best.value, r, accused.lower) for r in references)


def _and(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"

"""Comparison of a node with its equals: the best value of each node against the median over nodes of those.

Only values of equal conditions are compared (check, unit, message size, direction, ranks, nodes, pairs at once,
transport, mode, port, hardware). The best pair of a node counts, not all of its pairs: with one bad node of four, half
of all pairs are bad. Where there are too few nodes, a device is compared with the others of its node, and a port with
the others of its rate.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from hpcadmin.check import Direction, Measurement, Status, Subject, Verdict
from hpcadmin.rundata import TestResult
from hpcadmin.text import number

MIN_NODES = 4        # with fewer, nobody can say which of them is the odd one: of three pairs one bad node spoils two
MIN_DEVICES = 4      # of a node, for the same reason
MIN_DISTANCE = 0.20  # nearer to the median than this is noise: runs of one healthy machine differ by a tenth and more
MIN_SPREADS = 3.0    # standard deviations, where the healthy differ more than that among themselves
MAD_TO_SIGMA = 1.4826    # of normally distributed values; the median absolute deviation itself ignores the odd ones

MOST_BITS = 1000     # beyond that no float holds an integer
_TIMES = frozenset({"ns", "us", "µs", "ms", "s"})


class Hardware(Protocol):
    """What is asked of the inventory."""

    def identity(self, name: str) -> object: ...        # equal for nodes that may be compared
    def gpu_models(self, name: str) -> object: ...
    def rate(self, name: str, rail: str) -> float | None: ...


def number_problem(value: object) -> str:
    """Why `value` is no finite number; "" when it is one."""
    if value is None:
        return "no value"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{str(value)[:60]!r} is not a number"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number that can be measured"
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return "an integer of hundreds of digits is not a number that can be measured"
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


class Conditions(NamedTuple):
    """What must be equal before two values may be compared."""

    check: str
    name: str
    unit: str
    size_bytes: int | None
    direction: Direction
    rail: str
    binding: str
    transport: str
    mode: str
    ranks: int | None
    nodes: int | None
    pairs_at_once: int | None
    pair: bool
    hardware: object
    simulated: bool


class Sample(NamedTuple):
    conditions: Conditions
    subject: Subject                   # a node, a device of one, or the two nodes of a pair
    value: float
    measurement: Measurement
    result: TestResult
    entities: tuple[Subject, ...]      # what it speaks of: the subject, or each of the two nodes


def samples(results: Iterable[TestResult], hardware: Hardware) -> list[Sample]:
    """Every value that can be compared with peers at all."""
    found = []
    kinds: dict[tuple[bool, tuple[str, ...]], object] = {}
    halves: dict[tuple[str, ...], tuple[Subject, ...]] = {}
    for result in results:
        test = result.test
        for m in result.measurements:
            if not m.key or m.expected is not None:
                continue
            subject = m.subject if m.subject.nodes else test.subject
            if not _can_be_compared(m, subject):
                continue
            nodes = subject.nodes
            of_gpu = test.check.startswith("nccl_") or subject.device.startswith("GPU")
            kind = kinds.get((of_gpu, nodes))
            if kind is None:
                kind = kinds[of_gpu, nodes] = frozenset(
                    (hardware.identity(n), hardware.gpu_models(n) if of_gpu else None) for n in nodes)
            at_once = m.pairs_at_once if m.pairs_at_once is not None else test.pairs_at_once
            conditions = Conditions(
                test.check, m.name, m.unit, m.size_bytes, m.direction, m.rail, m.binding, m.transport, m.mode, m.ranks,
                m.nodes, at_once, len(nodes) == 2, kind, bool(result.simulated))
            entities: tuple[Subject, ...] = (subject,)
            if len(nodes) == 2 and not subject.device:
                entities = halves.get(nodes) or halves.setdefault(nodes, tuple(Subject((n,)) for n in nodes))
            found.append(Sample(conditions, subject, float(m.value), m, result, entities))
    return found


def _can_be_compared(m: Measurement, subject: Subject) -> bool:
    broken = number_problem(m.value) or lower_is_better(m) is None or impossible(m, subject)
    return not broken and _comparable(m, subject)


def _comparable(measurement: Measurement, subject: Subject) -> bool:
    """A pair's values, and a node's rates; a node's time only if it is one of a transfer: offsets scatter freely."""
    if len(subject.nodes) == 2:
        return True
    return len(subject.nodes) == 1 and (not lower_is_better(measurement) or measurement.size_bytes is not None)


def peer_verdicts(results: Sequence[TestResult], hardware: Hardware) -> list[Verdict]:
    """A verdict for each node (or device, or port) that was at least 20 % worse than its peers when first measured.

    FAIL when every repetition says the same or there is none; PASS or WARN when it recovered. Nodes in line with
    their peers get none: being like the others proves nothing.
    """
    first: dict[Conditions, list[Sample]] = {}
    again: dict[Conditions, list[Sample]] = {}
    for sample in samples(results, hardware):
        if not sample.result.test.repeats:
            first.setdefault(sample.conditions, []).append(sample)
        else:
            again.setdefault(sample.conditions._replace(pairs_at_once=None), []).append(sample)
    repetitions: dict[str, list[TestResult]] = {}
    for result in results:
        if result.test.repeats:
            repetitions.setdefault(result.test.repeats, []).append(result)
    verdicts = []
    few: list[Sample] = []
    for conditions, group in first.items():
        accused = _worse_than_peers(group)
        if accused is None:
            few += group
            continue
        accused = _worse_beside_more_too(accused, conditions, first)
        repeated = again.get(conditions._replace(pairs_at_once=None), [])
        verdicts += [_verdict(a, _without_others(a, accused, repeated), repetitions) for a in accused]
    later: dict[Family, list[Sample]] = {}
    for group in again.values():
        _siblings(group, hardware, later)
    for key, siblings in _siblings(few, hardware, {}).items():
        repeated = later.get(_in_any_round(key), [])
        verdicts += [_verdict(a, repeated, repetitions) for a in _odd(siblings, _of_node(siblings), MIN_DEVICES)]
    return sorted(verdicts, key=lambda v: (v.check, v.subject.nodes, v.subject.device))


class _Accused(NamedTuple):
    entity: Subject
    best: Sample
    own: tuple[Sample, ...]
    median: float
    among: str               # "8 nodes", "8 GPUs of node03"
    lower: bool


def _bests(group: Iterable[Sample], lower: bool) -> dict[Subject, Sample]:
    """Of equal ones that of the first test, so that the order of the results changes nothing."""
    bests: dict[Subject, Sample] = {}
    for sample in group:
        for entity in sample.entities:
            known = bests.get(entity)
            if (known is None or (sample.value < known.value if lower else sample.value > known.value)
                    or (sample.value == known.value and sample.result.test.id < known.result.test.id)):
                bests[entity] = sample
    return bests


def _is_worse(value: float, reference: float, lower: bool) -> bool:
    return _distance(value, reference, lower) >= MIN_DISTANCE - 1e-9


def _distance(value: float, reference: float, lower: bool) -> float:
    return (value - reference if lower else reference - value) / reference


def _worse_than_peers(group: Sequence[Sample]) -> list[_Accused] | None:
    """None where there are too few nodes, or pairs of them, to say anything."""
    nodes = {node for sample in group for node in sample.subject.nodes}
    if len(nodes) < MIN_NODES or len({sample.subject for sample in group}) < MIN_NODES:
        return None
    return _as_pairs(_unexplained(_odd(group, f"{len(nodes)} nodes", 0)))


def _unexplained(accused: Sequence[_Accused]) -> list[_Accused]:
    """Without nodes that met nobody but nodes which are slow with the good ones too: nothing is known of them. A node
    that is lost after its first pair, with a slow partner, is such a one."""
    names = {a.entity for a in accused}
    proven = {a.entity for a in accused if any(e not in names for s in a.own for e in s.entities)}
    return [a for a in accused if a.entity in proven
            or not all(any(e in proven for e in s.entities if e != a.entity) for s in a.own)]


def _as_pairs(accused: Sequence[_Accused]) -> list[_Accused]:
    """Two nodes that were measured with each other only are accused as a pair: which of them it is, nobody knows."""
    only = [a.own[0].subject if len({s.subject for s in a.own}) == 1 and len(a.own[0].subject.nodes) == 2 else None
            for a in accused]
    counts = Counter(pair for pair in only if pair)
    found: dict[Subject, _Accused] = {}
    for one, pair in zip(accused, only, strict=True):
        subject = pair if pair and counts[pair] == 2 else one.entity
        found.setdefault(subject, one._replace(entity=subject))
    return list(found.values())


def _odd(group: Sequence[Sample], among: str, least: int) -> list[_Accused]:
    """Those that are further from the median than MIN_DISTANCE and than MIN_SPREADS of what is usual among them."""
    lower = bool(lower_is_better(group[0].measurement))
    bests = _bests(group, lower)
    if len(bests) < least:
        return []
    median = statistics.median(s.value for s in bests.values())
    spread = MAD_TO_SIGMA * statistics.median(abs(s.value - median) for s in bests.values())
    bad = {entity for entity, s in bests.items()
           if _is_worse(s.value, median, lower) and abs(s.value - median) >= MIN_SPREADS * spread}
    own: dict[Subject, list[Sample]] = {entity: [] for entity in bad}
    if bad:
        for sample in group:
            for entity in bad.intersection(sample.entities):
                own[entity].append(sample)
    for found in own.values():
        found.sort(key=lambda s: s.result.test.id)
    return [_Accused(e, sample, tuple(own[e]), median, among, lower) for e, sample in bests.items() if e in bad]


Family = tuple[Conditions, tuple[str, ...], str, object]


def _siblings(few: Iterable[Sample], hardware: Hardware,
              groups: dict[Family, list[Sample]]) -> dict[Family, list[Sample]]:
    """Devices of one node, and ports of one node or pair that have the same rate, together: of those nodes that are too
    few to be compared with each other. A port whose rate is unknown is compared with none."""
    for s in few:
        nodes, rail = s.subject.nodes, s.conditions.rail
        if s.subject.device:
            groups.setdefault((s.conditions, nodes, s.subject.device.rstrip("0123456789"), None), []).append(s)
        elif rail:
            rates = {hardware.rate(n, rail) for n in nodes}
            if None not in rates:
                key = (s.conditions._replace(rail=""), nodes, rail.rstrip("0123456789"), frozenset(rates))
                port = Subject(nodes, rail)
                groups.setdefault(key, []).append(s._replace(subject=port, entities=(port,)))
    return groups


def _in_any_round(key: Family) -> Family:
    return (key[0]._replace(pairs_at_once=None), *key[1:])


def _of_node(group: Sequence[Sample]) -> str:
    subject = group[0].subject
    kind = "GPUs" if subject.device.startswith("GPU") else "ports" if group[0].measurement.rail else "devices"
    return f"{len({s.subject for s in group})} {kind} of {' - '.join(subject.nodes)}"


def _worse_beside_more_too(accused: list[_Accused], conditions: Conditions,
                           first: Mapping[Conditions, Sequence[Sample]]) -> list[_Accused]:
    """Without those that were in line under equal conditions but for more pairs at the same time. In waves the pairs of
    a node meet in rounds of different size: its good pairs beside many others speak for it in a round of few."""
    least = conditions.pairs_at_once
    if not accused or not conditions.pair or not least:
        return accused
    harder = [s for other, group in first.items() if (other.pairs_at_once or 0) > least
              and other._replace(pairs_at_once=least) == conditions for s in group]
    bests = _bests(harder, accused[0].lower)
    return [a for a in accused if a.entity not in bests or _is_worse(bests[a.entity].value, a.median, a.lower)]


def _without_others(one: _Accused, accused: Sequence[_Accused], repeated: Sequence[Sample]) -> list[Sample]:
    """What was measured again of it, and of those whom nobody accuses: a node that is far too slow makes its partners
    look as slow as it is, and a smaller fault beside it would be none."""
    others = [a.entity for a in accused if a.entity != one.entity]
    return [s for s in repeated if _is_of(s, one.entity) or not any(_is_of(s, other) for other in others)]


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
    peers = f"{far} {side} the median of {accused.among} ({number(accused.median)})"
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
    own = [s for s in kind if s.result.test.repeats in tests and _is_of(s, accused.entity)]
    if not own:
        return None
    best = (min if accused.lower else max)(own, key=lambda s: s.value)
    others = _bests((s for s in kind if not _is_of(s, accused.entity)
                     and s.conditions.pairs_at_once == best.conditions.pairs_at_once), accused.lower)
    references = [accused.median]
    if len(others) > 1:
        references.append(statistics.median(s.value for s in others.values()))
    return best.value, all(_is_worse(best.value, r, accused.lower) for r in references)


def _is_of(sample: Sample, entity: Subject) -> bool:
    if entity.device:
        return sample.subject == entity
    return set(entity.nodes) <= set(sample.subject.nodes)


def _and(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"

"""Measurements, limits and peers to verdicts. Pure; PASS is only for a sound value that is known to be good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin import catalogue
from hpcadmin.check import Limit, Measurement, Status, Subject, Verdict
from hpcadmin.model import Inventory, Node
from hpcadmin.peers import impossible, lower_is_better, number_problem, peer_verdicts
from hpcadmin.rundata import TestResult
from hpcadmin.text import byte_size, number

MOST_AGAIN = 200     # tests that are measured again at most; what is beyond that stays as it was first judged
_PAIRS_A_NODE = 8    # of a node that its peers accuse: its best pairs, since the best one decides
_SILENT = 6          # so many programs that hung without a word are tried again; more are no accident
_CONTROLS = 3        # pairs of nodes that nobody accuses, measured again beside them


def judge(results: Sequence[TestResult], limits: Sequence[Limit], inventory: Inventory | None = None) -> list[Verdict]:
    """The verdicts of all tests, in the order of the results, then those that only peers give.

    Results whose test repeats another are not judged by themselves: a value is bad only if it was bad first and in
    every repetition. The first value stays in the verdict.
    """
    hardware = _Hardware(inventory)
    finder = _Finder(tuple(limits), hardware)
    again: dict[str, list[TestResult]] = {}
    for result in results:
        if result.test.repeats:
            again.setdefault(result.test.repeats, []).append(result)
    firsts = [r for r in results if not r.test.repeats]
    verdicts: list[Verdict] = []
    for result in firsts:
        repetitions = sorted(again.get(result.test.id, ()), key=lambda r: (r.test.attempt, r.test.alone))
        verdicts += _judge_test(hardware.stamped(result), repetitions, finder)
    known = {r.test.id for r in firsts}
    for lost in sorted(set(again) - known):
        verdicts += [_plain(r, Status.ERROR, f"repeats {lost}, whose first result is missing") for r in again[lost]]
    return verdicts + peer_verdicts([hardware.stamped(r) for r in results], hardware.identity)


def doubtful(results: Sequence[TestResult], verdicts: Sequence[Verdict], *, most: int = MOST_AGAIN) -> list[str]:
    """Ids of the tests that are to be measured again before anybody is accused, each only once.

    These are performance values that failed by a limit, the pairs of nodes that their peers accuse, and a few pairs of
    nodes that nobody accuses: they show what the machine gives at that time. Parallel programs that hung before they
    said a word are tried again where they are few: a launch that lost a message is no fault of the nodes.
    """
    repeated = {r.test.repeats for r in results}
    firsts = {r.test.id: r for r in results if not r.test.repeats and r.test.id not in repeated}
    wanted: dict[str, None] = {}
    accused: dict[str, set[str]] = {}
    silent = [r.test.id for r in firsts.values() if r.silent]
    wanted.update(dict.fromkeys(silent if len(silent) <= _SILENT else ()))
    for verdict in verdicts:
        if verdict.status is not Status.FAIL or verdict.measurement is None:
            continue
        if verdict.basis == "limit" and verdict.test in firsts and lower_is_better(verdict.measurement) is not None:
            wanted[verdict.test] = None
        elif verdict.basis == "peers":
            accused.setdefault(verdict.check, set()).update(verdict.subject.nodes)
            wanted.update(dict.fromkeys(_tests_of(verdict, firsts)))
    if accused:
        failing = {n for v in verdicts if v.status in (Status.FAIL, Status.ERROR) for n in v.subject.nodes
                   if v.check in accused and len(v.subject.nodes) == 1}
        for check in accused:
            controls = [r.test.id for r in firsts.values() if r.test.check == check and r.measurements
                        and r.test.id not in wanted and not failing.intersection(r.test.subject.nodes)]
            wanted.update(dict.fromkeys(controls[:_CONTROLS]))
    return list(wanted)[:most]


def _tests_of(verdict: Verdict, firsts: dict[str, TestResult]) -> list[str]:
    """The tests that decide about a node which its peers accuse: those with its best values."""
    assert verdict.measurement is not None  # noqa: S101
    node, name = verdict.subject.nodes[0], verdict.measurement.name
    found = []
    for result in firsts.values():
        if result.test.check == verdict.check and node in result.test.subject.nodes:
            values = [float(m.value) for m in result.measurements if m.key and m.name == name
                      and not number_problem(m.value)]
            if values:
                found.append((max(values), result.test.id))
    found.sort(reverse=not lower_is_better(verdict.measurement))
    return [test for _, test in found[:_PAIRS_A_NODE]]


class _Hardware:
    """What the inventory says of the nodes that a value is about."""

    def __init__(self, inventory: Inventory | None) -> None:
        self._nodes: dict[str, Node] = {n.name: n for n in inventory.nodes} if inventory else {}

    def names(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """GPU models and NIC rates that all of these nodes have: what a limit may be for."""
        sets = []
        for name in nodes:
            node = self._nodes.get(name)
            if node is None:
                return ()
            sets.append({g.model for g in node.gpus if g.model} | {n.rate_text for n in node.nics if n.rate_text})
        return tuple(sorted(set.intersection(*sets))) if sets else ()

    def identity(self, name: str) -> object:
        """Equal for nodes that may be compared as peers. Counts of GPUs and link rates are left out on purpose: a
        node that has lost some is still to be compared with the others."""
        node = self._nodes.get(name)
        return (node.vendor, node.product, node.cpu.model, node.cpu.cpus) if node else ()

    def stamped(self, result: TestResult) -> TestResult:
        """The result, marked as simulated if any node of it only pretends to have its hardware."""
        if result.simulated:
            return result
        found = {n.simulated for n in map(self._nodes.get, result.test.subject.nodes) if n and n.simulated}
        return replace(result, simulated=", ".join(sorted(found))) if found else result


class _Finder:
    """The limit for a measurement, remembered for all measurements of the same kind."""

    def __init__(self, limits: tuple[Limit, ...], hardware: _Hardware) -> None:
        self._limits = limits
        self._hardware = hardware
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._known: dict[object, Limit | None] = {}

    def find(self, check: str, m: Measurement, subject: Subject, simulated: bool) -> Limit | None:
        if not self._limits:
            return None
        if subject.nodes not in self._names:
            self._names[subject.nodes] = self._hardware.names(subject.nodes)
        names = self._names[subject.nodes]
        key = (check, m.name, m.unit, m.size_bytes, m.direction, m.ranks, m.nodes, m.transport, names, simulated)
        if key not in self._known:
            limit = catalogue.for_measurement(self._limits, check, m, names, simulated)
            self._known[key] = limit if limit is not None and limit.simulated == simulated else None
        return self._known[key]


@dataclass(frozen=True)
class _Outcome:
    """What one value is worth by itself."""

    status: Status
    reason: str = ""
    basis: str = ""
    limit: Limit | None = None


def _plain(result: TestResult, status: Status, reason: str, basis: str = "output") -> Verdict:
    return Verdict(check=result.test.check, subject=result.test.subject, status=status, reason=reason,
                   test=result.test.id, basis=basis, attempt=result.test.attempt, outputs=result.outputs,
                   simulated=result.simulated)


def _judge_test(result: TestResult, repetitions: Sequence[TestResult], finder: _Finder) -> list[Verdict]:
    if result.not_run:
        return [_plain(result, Status.NOT_RUN, result.not_run, "plan")]
    if result.silent and repetitions:
        return _after_silence(result, repetitions, finder)
    verdicts = [_plain(result, Status.ERROR, result.error)] if result.error else []
    judged = [m for m in result.measurements if m.key or m.expected is not None]
    if not judged and not result.error:
        return [_plain(result, Status.ERROR, "nothing was measured")]
    seen: dict[object, int] = {}
    for m in judged:
        place = seen[_kind(m)] = seen.get(_kind(m), -1) + 1
        outcome = _judge_value(result, m, finder)
        if outcome.status is Status.FAIL and outcome.basis == "limit":
            outcome = _after_repetitions(outcome, m, place, repetitions, finder)
        verdicts.append(_verdict(result, m, outcome, repetitions))
    return _with_side_values(result, verdicts)


def _after_silence(result: TestResult, repetitions: Sequence[TestResult], finder: _Finder) -> list[Verdict]:
    """A program that hung without a word at first: an ERROR, unless every repetition could be measured; then what the
    worst of them says, but never better than WARN. Whatever said something before it failed stays an ERROR."""
    failed = [r.error or r.not_run or "nothing measured" for r in repetitions if r.error or r.not_run
              or not r.measurements]
    if failed:
        times = f"{len(failed)} of {len(repetitions)} times" if len(repetitions) > 1 else "once more"
        return [_plain(replace(result, outputs=_outputs(result, repetitions)), Status.ERROR,
                       f"{result.error}; again {times}: {failed[0]}")]
    tries = [_judge_test(r, (), finder) for r in repetitions]
    worst = max(tries, key=lambda found: max(v.status.rank for v in found))
    remark = f"first {result.error}; good when measured again"
    return [replace(v, test=result.test.id, outputs=_outputs(result, repetitions),
                    status=Status.WARN if v.status is Status.PASS else v.status,
                    reason=remark if v.status is Status.PASS else f"{v.reason}; first {result.error}") for v in worst]


def _outputs(result: TestResult, repetitions: Sequence[TestResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*result.outputs, *(o for r in repetitions for o in r.outputs)]))


def _kind(m: Measurement) -> object:
    return m.name, m.size_bytes, m.direction, m.rail, m.subject


def _verdict(result: TestResult, m: Measurement, outcome: _Outcome, repetitions: Sequence[TestResult]) -> Verdict:
    status, reason = outcome.status, outcome.reason
    if m.warnings:
        status = Status.WARN if status is Status.PASS else status
        reason = "; ".join([reason, *m.warnings] if reason else m.warnings)
    storable = m
    if number_problem(m.value) and not isinstance(m.value, str):       # as text: such a value cannot be stored
        storable = replace(m, value=str(m.value))
    if m.expected is not None and number_problem(m.expected) and not isinstance(m.expected, str):
        storable = replace(storable, expected=str(m.expected))
    used = repetitions if outcome.basis == "limit" and outcome.reason else ()
    return Verdict(
        check=result.test.check, subject=m.subject if m.subject.nodes else result.test.subject, status=status,
        reason=reason, test=result.test.id, measurement=storable, limit=outcome.limit, basis=outcome.basis,
        attempt=max((r.test.attempt for r in used), default=result.test.attempt), simulated=result.simulated,
        outputs=_outputs(result, used))


def _with_side_values(result: TestResult, verdicts: list[Verdict]) -> list[Verdict]:
    """Warnings and defects of values that are only kept and shown must not get lost: they mark the test's verdict."""
    side = [m for m in result.measurements if not m.key and m.expected is None]
    broken = [m for m in side if isinstance(m.value, float) and not math.isfinite(m.value)]
    if broken:
        text = ", ".join(_name(m) for m in broken[:3])
        verdicts.append(_plain(result, Status.ERROR, f"the output has values that are no numbers: {text}"))
    warnings = tuple(dict.fromkeys(w for m in side for w in m.warnings))
    if warnings and verdicts:
        head = verdicts[0]
        status = Status.WARN if head.status is Status.PASS else head.status
        reason = "; ".join([head.reason, *warnings] if head.reason else warnings)
        verdicts[0] = replace(head, status=status, reason=reason)
    return verdicts


def _judge_value(result: TestResult, m: Measurement, finder: _Finder) -> _Outcome:
    subject = m.subject if m.subject.nodes else result.test.subject
    strange = sorted(set(subject.nodes) - set(result.test.subject.nodes))
    if strange:
        return _Outcome(Status.ERROR, f"{m.name} was measured on {', '.join(strange[:3])}, not a node of this test",
                        "output")
    if m.expected is not None:
        return _equal(m, m.expected)
    problem = number_problem(m.value)
    if problem:
        return _Outcome(Status.ERROR, f"{_name(m)}: {problem}", "output")
    limit = finder.find(result.test.check, m, subject, bool(result.simulated))
    problem = "" if limit and limit.min is not None and limit.min < 0 else impossible(m, subject)
    if problem:
        return _Outcome(Status.ERROR, f"{_name(m)}: {problem}", "output", limit)
    if limit is None:
        return _Outcome(Status.UNJUDGED, f"{_shown(m)}: no limit known")
    return _by_limit(m, limit)


def _equal(m: Measurement, expected: object) -> _Outcome:
    wants_text, is_text = isinstance(expected, str), isinstance(m.value, str)
    if not wants_text and number_problem(expected):
        return _Outcome(Status.ERROR, f"{m.name}: what is expected is unknown ({number_problem(expected)})", "expected")
    if not wants_text and (is_text or number_problem(m.value)):
        return _Outcome(Status.ERROR, f"{m.name}: {number_problem(m.value)}, expected {expected}", "expected")
    if wants_text != is_text:
        return _Outcome(Status.ERROR, f"{m.name} is {m.value}, expected the text {expected}", "expected")
    if m.value == expected:
        return _Outcome(Status.PASS, "", "expected")
    return _Outcome(Status.FAIL, f"{m.name} {m.value}, expected {expected} {m.unit}".rstrip(), "expected")


def _by_limit(m: Measurement, limit: Limit) -> _Outcome:
    value = float(m.value)
    if limit.unit != m.unit:
        return _Outcome(Status.UNJUDGED, f"{_shown(m)}: the limit is in {limit.unit or 'no unit'}", "limit", limit)
    bounds = [b for b in (limit.min, limit.max) if b is not None]
    if not bounds or not all(math.isfinite(b) for b in [*bounds, limit.tolerance]):
        return _Outcome(Status.UNJUDGED, f"{_shown(m)}: the limit has no usable bound", "limit", limit)
    low = limit.min is not None and value < limit.min - abs(limit.min) * limit.tolerance
    high = limit.max is not None and value > limit.max + abs(limit.max) * limit.tolerance
    if low or high:
        return _Outcome(Status.FAIL, f"{_shown(m)}, {limit.text()}", "limit", limit)
    return _Outcome(Status.PASS, "", "limit", limit)


def _after_repetitions(first: _Outcome, m: Measurement, place: int, repetitions: Sequence[TestResult],
                       finder: _Finder) -> _Outcome:
    """What remains of a failure after the test was done again: it stays if no repetition was good."""
    if not repetitions:
        return first
    shown, bad = [], 1
    for result in repetitions:
        same = [x for x in result.measurements if _kind(x) == _kind(m)]
        if result.error or result.not_run or len(same) <= place:
            shown.append(result.error or result.not_run or "nothing measured")
            bad += 1
            continue
        outcome = _judge_value(result, same[place], finder)
        good = outcome.status is Status.PASS and same[place].unit == m.unit
        bad += not good
        shown.append(_value(same[place].value))
    again = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    if bad == 1 + len(repetitions):
        return replace(first, reason=f"{first.reason}; again {again}")
    status = Status.PASS if bad == 1 else Status.WARN
    return replace(first, status=status, reason=f"first {_value(m.value)} {m.unit}, again {again}")


def _name(m: Measurement) -> str:
    return m.name if m.size_bytes is None else f"{m.name} at {byte_size(m.size_bytes)}"


def _shown(m: Measurement) -> str:
    return f"{_name(m)} {_value(m.value)} {m.unit}".rstrip()


def _value(value: float | int | str) -> str:
    return str(value)[:60] if number_problem(value) else number(value)

"""Measurements, limits and peers to verdicts. Pure; PASS is only for a sound value that is known to be good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin import derived
from hpcadmin.check import DERIVED, Limit, Measurement, Status, Subject, Verdict
from hpcadmin.model import Inventory
from hpcadmin.peers import impossible, lower_is_better, number_problem, peer_verdicts
from hpcadmin.records import without_gc
from hpcadmin.rundata import TestResult
from hpcadmin.text import byte_size, number
from hpcadmin.yardstick import Finder, Hardware, Yardstick

MOST_AGAIN = 200     # tests that are measured again at most; what is beyond that stays as it was first judged
_PAIRS_A_NODE = 8    # of a node that its peers accuse: its best pairs, since the best one decides
_SILENT = 6          # so many programs that hung without a word are tried again; more are no accident
_CONTROLS = 3        # pairs of nodes that nobody accuses, measured again beside them
BY_LIMIT = ("limit", "derived")
OF_VALUES = ("the output has values that are no numbers", "is impossible")   # what is said of values that are only kept


def judge(results: Sequence[TestResult], limits: Sequence[Limit], inventory: Inventory | None = None) -> list[Verdict]:
    """The verdicts of all tests, in the order of the results, then those that only peers give.

    Results whose test repeats another are not judged by themselves: a value is bad only if it was bad first and in
    every repetition. The first value stays in the verdict.
    """
    with without_gc():
        return _judge_all(results, limits, inventory)


def _judge_all(results: Sequence[TestResult], limits: Sequence[Limit], inventory: Inventory | None) -> list[Verdict]:
    hardware = Hardware(inventory)
    finder = Finder(limits, hardware)
    again: dict[str, list[TestResult]] = {}
    for result in results:
        if result.test.repeats:
            again.setdefault(result.test.repeats, []).append(result)
    stamped = [hardware.stamped(r) for r in results]
    firsts = [r for r in stamped if not r.test.repeats]
    verdicts: list[Verdict] = []
    for result in firsts:
        repetitions = sorted(again.get(result.test.id, ()), key=lambda r: (r.test.attempt, r.test.alone, r.test.id))
        verdicts += _judge_test(result, repetitions, finder)
    known = {r.test.id for r in firsts}
    for lost in sorted(set(again) - known):
        verdicts += [_plain(r, Status.ERROR, f"repeats {lost}, whose first result is missing") for r in again[lost]]
    return verdicts + peer_verdicts(stamped, hardware)


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
    of_node: dict[tuple[str, str], list[TestResult]] = {}
    for result in firsts.values():
        for node in result.test.subject.nodes:
            of_node.setdefault((result.test.check, node), []).append(result)
    silent = [r.test.id for r in firsts.values() if r.silent]
    wanted.update(dict.fromkeys(silent if len(silent) <= _SILENT else ()))
    for verdict in verdicts:
        if verdict.status is not Status.FAIL or verdict.measurement is None:
            continue
        if verdict.basis in BY_LIMIT and verdict.test in firsts and lower_is_better(verdict.measurement) is not None:
            wanted[verdict.test] = None
        elif verdict.basis == "peers":
            accused.setdefault(verdict.check, set()).update(verdict.subject.nodes)
            wanted.update(dict.fromkeys(_tests_of(verdict, of_node)))
    if accused:
        failing = {n for v in verdicts if v.status in (Status.FAIL, Status.ERROR) for n in v.subject.nodes
                   if v.check in accused and len(v.subject.nodes) == 1}
        for check in accused:
            controls = [r.test.id for r in firsts.values() if r.test.check == check and r.measurements
                        and r.test.id not in wanted and not failing.intersection(r.test.subject.nodes)]
            wanted.update(dict.fromkeys(controls[:_CONTROLS]))
    return list(wanted)[:most]


def _tests_of(verdict: Verdict, firsts: dict[tuple[str, str], list[TestResult]]) -> list[str]:
    """The tests that decide about a node which its peers accuse: those with its best values."""
    m = verdict.measurement
    assert m is not None  # noqa: S101
    found = []
    for result in firsts.get((verdict.check, verdict.subject.nodes[0]), ()):
        values = [float(x.value) for x in result.measurements if x.key and x.name == m.name
                  and (not x.rail or x.rail == m.rail) and not number_problem(x.value)]
        if values and set(verdict.subject.nodes) <= set(result.test.subject.nodes):
            found.append((max(values), result.test.id))
    found.sort(reverse=not lower_is_better(m))
    return [test for _, test in found[:_PAIRS_A_NODE]]


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


def _judge_test(result: TestResult, repetitions: Sequence[TestResult], finder: Finder) -> list[Verdict]:
    if result.not_run:
        return [_plain(result, Status.NOT_RUN, result.not_run, "plan")]
    if result.silent and repetitions:
        return _after_silence(result, repetitions, finder)
    verdicts = [_plain(result, Status.ERROR, result.error)] if result.error else []
    judged = [m for m in result.measurements if m.key or m.expected is not None]
    if not judged and not result.error:
        return [_plain(result, Status.ERROR, "nothing was measured")]
    judged += _at_sizes_of_limits(result, judged, finder)
    outcomes: list[tuple[Measurement, _Outcome]] = []
    for number_, m in enumerate(judged):
        outcome = _judge_value(result, m, finder)
        if repetitions and outcome.status is Status.FAIL and outcome.basis in BY_LIMIT:
            place = sum(_kind(earlier) == _kind(m) for earlier in judged[:number_])
            outcome = _after_repetitions(outcome, m, place, repetitions, finder)
        outcomes.append((m, outcome))
    judged_at = _by_curve(outcomes)
    verdicts += [_verdict(result, m, o, repetitions) for m, o in outcomes if not _vouched(m, o, judged_at)]
    return _with_side_values(result, verdicts, finder)


def _at_sizes_of_limits(result: TestResult, keys: Sequence[Measurement], finder: Finder) -> list[Measurement]:
    """The other points of a judged curve for whose message size there is a limit."""
    check = result.test.check
    found = [m for m in result.measurements if not m.key and m.expected is None and finder.has_size(check, m)]
    curves = {_curve(m) for m in keys if m.expected is None} if found else set()
    return [m for m in found if _curve(m) in curves and _limit_at(result, m, finder)]


def _limit_at(result: TestResult, m: Measurement, finder: Finder) -> bool:
    limit = finder.find(result.test.check, m, _subject(result, m).nodes, bool(result.simulated)).limit
    return limit is not None and limit.size_bytes == m.size_bytes


def _by_curve(outcomes: Sequence[tuple[Measurement, _Outcome]]) -> dict[object, list[Limit]]:
    """The limits that judged points of each curve at exactly their message sizes."""
    found: dict[object, list[Limit]] = {}
    for m, outcome in outcomes:
        if outcome.basis == "limit" and outcome.limit and outcome.limit.size_bytes == m.size_bytes is not None:
            found.setdefault(_curve(m), []).append(outcome.limit)
    return found


def _vouched(m: Measurement, outcome: _Outcome, judged_at: dict[object, list[Limit]]) -> bool:
    """A value without a limit needs none where another point of its curve was judged by one that it keeps as well: at a
    larger size a bandwidth is no lower, at a smaller size a time is no longer. It is kept and shown then."""
    if not judged_at or outcome.status is not Status.UNJUDGED or outcome.basis or m.size_bytes is None or m.warnings:
        return False
    lower = lower_is_better(m)
    for limit in judged_at.get(_curve(m), ()):
        size = limit.size_bytes or 0
        if ((lower is False and m.size_bytes >= size) or (lower and m.size_bytes <= size)) and (
                _by_limit(m, limit).status is Status.PASS):
            return True
    return False


def _curve(m: Measurement) -> object:
    return m.name, m.unit, m.direction, m.rail, m.binding, m.mode, m.run, m.ranks, m.nodes, m.subject


def _after_silence(result: TestResult, repetitions: Sequence[TestResult], finder: Finder) -> list[Verdict]:
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
    if not repetitions:
        return result.outputs
    return tuple(dict.fromkeys([*result.outputs, *(o for r in repetitions for o in r.outputs)]))


def _kind(m: Measurement) -> object:
    return m.name, m.size_bytes, m.direction, m.rail, m.mode, m.run, m.subject


def _subject(result: TestResult, m: Measurement) -> Subject:
    return m.subject if m.subject.nodes else result.test.subject


def _verdict(result: TestResult, m: Measurement, outcome: _Outcome, repetitions: Sequence[TestResult]) -> Verdict:
    status, reason = outcome.status, outcome.reason
    if m.warnings:
        status = Status.WARN if status is Status.PASS else status
        reason = "; ".join([reason, *m.warnings] if reason else m.warnings)
    storable = m
    if status is Status.ERROR:
        if number_problem(m.value) and not isinstance(m.value, str):       # as text: such a value cannot be stored
            storable = replace(m, value=str(m.value))
        if m.expected is not None and number_problem(m.expected) and not isinstance(m.expected, str):
            storable = replace(storable, expected=str(m.expected))
    used = repetitions if outcome.basis in BY_LIMIT and outcome.status is not Status.UNJUDGED and outcome.reason else ()
    return Verdict(
        check=result.test.check, subject=_subject(result, m), status=status,
        reason=reason, test=result.test.id, measurement=storable, limit=outcome.limit, basis=outcome.basis,
        attempt=max((r.test.attempt for r in used), default=result.test.attempt), simulated=result.simulated,
        outputs=_outputs(result, used))


def _with_side_values(result: TestResult, verdicts: list[Verdict], finder: Finder) -> list[Verdict]:
    """Warnings and defects of values that are only kept and shown must not get lost: they mark the test's verdict."""
    side = [m for m in result.measurements if not m.key and m.expected is None]
    if not side:
        return verdicts
    broken = [m for m in side if isinstance(m.value, float) and not math.isfinite(m.value)]
    if broken:
        text = ", ".join(_name(m) for m in broken[:3])
        verdicts.append(_plain(result, Status.ERROR, f"{OF_VALUES[0]}: {text}"))
    beyond = [(m, why) for m in side if not isinstance(m.value, str) and not number_problem(m.value)
              and (why := _beyond(result, m, finder))]
    if beyond:
        m, why = beyond[0]
        more = f" (and {len(beyond) - 1} more)" if len(beyond) > 1 else ""
        verdicts.append(_plain(result, Status.ERROR, f"{_name(m)}: {why}{more}"))
    told = verdicts[0].measurement if verdicts else None
    warnings = tuple(dict.fromkeys(w for m in side for w in m.warnings if not told or w not in told.warnings))
    if warnings and verdicts:
        head = verdicts[0]
        status = Status.WARN if head.status is Status.PASS else head.status
        reason = "; ".join([head.reason, *warnings] if head.reason else warnings)
        verdicts[0] = replace(head, status=status, reason=reason)
    return verdicts


def _beyond(result: TestResult, m: Measurement, finder: Finder) -> str:
    """Why the hardware cannot have given a value that is only kept and shown."""
    found = finder.find(result.test.check, m, _subject(result, m).nodes, bool(result.simulated))
    return derived.impossible(m, found.possible)


def _judge_value(result: TestResult, m: Measurement, finder: Finder) -> _Outcome:
    subject = _subject(result, m)
    if subject.nodes != result.test.subject.nodes:
        strange = sorted(set(subject.nodes) - finder.nodes_of(result.test))
        if strange:
            return _Outcome(Status.ERROR, f"{m.name} was measured on {', '.join(strange[:3])}, not a node of this test",
                            "output")
    if m.expected is not None:
        return _equal(m, m.expected)
    problem = number_problem(m.value)
    if problem:
        return _Outcome(Status.ERROR, f"{_name(m)}: {problem}", "output")
    found = finder.find(result.test.check, m, subject.nodes, bool(result.simulated))
    limit = found.limit
    problem = "" if limit and limit.min is not None and limit.min < 0 else impossible(m, subject)
    problem = problem or derived.impossible(m, found.possible)
    if problem:
        return _Outcome(Status.ERROR, f"{_name(m)}: {problem}", "output", limit)
    if limit is not None:
        return _by_limit(m, limit)
    if found.derived.limit is not None:
        return _by_derived(m, found)
    return _Outcome(Status.UNJUDGED, f"{_shown(m)}: no limit known")


def _by_derived(m: Measurement, found: Yardstick) -> _Outcome:
    """A reason also for a PASS: nobody published that limit."""
    limit = found.derived.limit
    assert limit is not None  # noqa: S101
    outcome = replace(_by_limit(m, limit), basis="derived")
    if outcome.status is Status.FAIL:
        what = limit.source.removeprefix(f"{DERIVED} ").split(", at least ")[0].split(" (")[0]
        return replace(outcome, reason=f"{outcome.reason}: {what}")
    if outcome.status is Status.PASS and found.derived.remark:
        return replace(outcome, status=Status.WARN, reason=f"{_shown(m)}, {limit.text()}; {found.derived.remark}")
    return outcome


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
                       finder: Finder) -> _Outcome:
    """What remains of a failure after the test was done again: it stays if no repetition was good."""
    shown, bad = [], 1
    doubts: dict[str, None] = {}
    for result in repetitions:
        same = [x for x in result.measurements if _kind(x) == _kind(m)]
        if result.error or result.not_run or len(same) <= place:
            shown.append(result.error or result.not_run or "nothing measured")
            bad += 1
            continue
        outcome = _judge_value(result, same[place], finder)
        good = outcome.status in (Status.PASS, Status.WARN) and same[place].unit == m.unit
        bad += not good
        doubts.update(dict.fromkeys(same[place].warnings if good else ()))
        shown.append(_value(same[place].value))
    again = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    if bad == 1 + len(repetitions):
        return replace(first, reason=f"{first.reason}; again {again}")
    status = Status.PASS if bad == 1 and not doubts else Status.WARN
    return replace(first, status=status,
                   reason="; ".join([f"first {_value(m.value)} {m.unit}, again {again}", *doubts]))


def _name(m: Measurement) -> str:
    return m.name if m.size_bytes is None else f"{m.name} at {byte_size(m.size_bytes)}"


def _shown(m: Measurement) -> str:
    return f"{_name(m)} {_value(m.value)} {m.unit}".rstrip()


def _value(value: float | int | str) -> str:
    return str(value)[:60] if number_problem(value) else number(value)

"""A run's measurements judged once more: by limits that are known today, where those of the run have changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hpcadmin.check import Limit, Measurement, Status, Verdict
from hpcadmin.judge import OF_VALUES, judge
from hpcadmin.rundata import PlannedTest, Run, TestResult


@dataclass(frozen=True)
class Change:
    """One thing whose verdict is another now. None: there was none, or is none."""

    before: Verdict | None
    now: Verdict | None


def results_of(run: Run) -> list[TestResult]:
    """What each test left behind, from what the run keeps. A test that left nothing is an error."""
    measured: dict[str, list[Measurement]] = {}
    for one in run.measured:
        measured.setdefault(one.test, []).append(one.measurement)
    told: dict[str, list[Verdict]] = {}
    for verdict in run.verdicts:
        told.setdefault(verdict.test, []).append(verdict)
    tests = run.plan.tests if run.plan else ()
    again: dict[str, set[str]] = {}
    for test in tests:
        again.setdefault(test.repeats, set()).add(test.id)
    simulated = {v.test: v.simulated for v in run.verdicts if v.simulated}
    return [_result(test, measured.get(test.id, []), told.get(test.id, []), again=again.get(test.id, ()),
                    simulated=simulated.get(test.repeats or test.id, "")) for test in tests]


def _result(test: PlannedTest, measured: Sequence[Measurement], told: Sequence[Verdict], *, again: Collection[str],
            simulated: str) -> TestResult:
    """again: what repeats it. simulated: of a repetition, which has no verdict of its own, what that of the first says.
    """
    bare = [v for v in told if v.measurement is None and v.basis in ("output", "plan")
            and not (measured and any(words in v.reason for words in OF_VALUES))]
    not_run = next((v.reason or v.status.value for v in bare if v.status is Status.NOT_RUN), "")
    error = next((v.reason or v.status.value for v in bare if v.status is Status.ERROR), "")
    if not measured and not not_run and not error:
        error = "nothing of it is kept" if not test.repeats else "not measured"
    outputs = tuple(dict.fromkeys(o for v in told for o in v.outputs))
    # What hung without a word was judged with what its repetitions gave; another error beside them was repeated, too.
    silent = not measured and any(ref.rpartition("#")[2] in again for ref in outputs)
    return TestResult(test, tuple(measured), "" if not_run else error, not_run, silent, outputs, simulated=simulated)


def judge_again(run: Run, limits: Sequence[Limit]) -> list[Verdict]:
    """The verdicts by these limits. What was known before anything ran (skipped nodes, missing hardware) stays."""
    tests = {t.id for t in (run.plan.tests if run.plan else ())}
    planned = [v for v in run.verdicts if v.basis == "plan" and v.test not in tests]
    return [*planned, *judge(results_of(run), limits, run.inventory)]


def changes(before: Sequence[Verdict], now: Sequence[Verdict]) -> list[Change]:
    """Where the status or what it is judged by is another, in the order of the new verdicts; then what is gone."""
    old: dict[object, list[Verdict]] = {}
    for verdict in before:
        old.setdefault(_key(verdict), []).append(verdict)
    found = []
    for verdict in now:
        same = old.get(_key(verdict), [])
        earlier = same.pop(0) if same else None
        if earlier is None or (earlier.status, earlier.basis, _bound(earlier)) != (
                verdict.status, verdict.basis, _bound(verdict)):
            found.append(Change(earlier, verdict))
    return found + [Change(v, None) for rest in old.values() for v in rest]


def _key(v: Verdict) -> object:
    m = v.measurement
    place = (m.name, m.size_bytes, m.direction, m.rail, m.mode, m.run) if m else ()
    return v.test, v.check, v.subject, v.basis == "peers", place


def _bound(v: Verdict) -> object:
    return (v.limit.min, v.limit.max, v.limit.tolerance) if v.limit else None

"""Doubtful tests once more: alone, and under the load that they had, before anybody is accused. Pure.

Few of them get a second turn where the first leaves doubt: where somebody is still accused, and not so far from the
others that no noise explains it. Whoever was good once is no longer accused, whatever a second turn would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.check import Role, Status, Verdict
from hpcadmin.peers import lower_is_better
from hpcadmin.plan import stage_seconds, time_limit_min
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage, TestResult

FEW = 6             # so many tests may have a second turn
FAR = 2.0           # times: the accused at its best against the worst of the others


@dataclass(frozen=True)
class Again:
    job: PlannedJob
    tests: tuple[PlannedTest, ...]


def again(plan: Plan, doubtful: Sequence[str], number: int, usual: Mapping[str, float]) -> Again | None:
    """The job that repeats these tests of the plan, None when there is nothing to repeat.

    A pair is measured alone and in the round that it was in; whatever has nothing beside it anyway, only alone. What
    the plan already repeats is repeated once more.
    """
    by_id = {t.id: t for t in plan.tests}
    wanted = [by_id[i] for i in doubtful if i in by_id and not by_id[i].repeats
              and not any(step.role is Role.JOB for step in by_id[i].steps)]
    if not wanted:
        return None
    stages: list[Stage] = []
    tests: list[PlannedTest] = []
    attempts = {i: 1 + n for i, n in Counter(t.repeats for t in plan.tests if t.repeats).items()}
    first = max((int(i.id[1:]) for i in plan.tests), default=0) + 1

    def repeat(test: PlannedTest, *, alone: bool) -> str:
        attempts[test.id] = attempts.get(test.id, 1) + 1
        at_once = 1 if alone and test.pairs_at_once is not None else test.pairs_at_once
        tests.append(replace(test, id=f"t{first + len(tests):04d}", job=number, attempt=attempts[test.id],
                             repeats=test.id, alone=alone, pairs_at_once=at_once))
        return tests[-1].id

    for test in wanted:
        stages.append(Stage("round", f"{test.check} {test.subject} alone", (repeat(test, alone=True),)))
    for stage in _rounds_of(plan, wanted):
        stages.append(Stage("round", f"{stage.name} again", tuple(repeat(by_id[i], alone=False) for i in stage.tests)))
    known = {t.id: t for t in tests}
    seconds = sum(stage_seconds([known[i] for i in s.tests], in_turn=False, usual=usual) + 0.1 for s in stages)
    nodes = tuple(n for n in plan.nodes if any(n in t.subject.nodes for t in tests))
    return Again(PlannedJob(number, "again", nodes, tuple(stages), round(seconds, 1),
                            time_limit_min(stages, tests, seconds)), tuple(tests))


def _rounds_of(plan: Plan, wanted: Sequence[PlannedTest]) -> list[Stage]:
    """The rounds in which the tests ran beside others."""
    ids = {t.id for t in wanted}
    return [s for job in plan.jobs for s in job.stages if s.kind == "round" and len(s.tests) > 1 and ids & set(s.tests)]


def unsettled(repeated: Sequence[str], results: Sequence[TestResult], verdicts: Sequence[Verdict]) -> Sequence[str]:
    """The tests that are to have a second turn: none of them, or all, so that there is something to compare with."""
    if len(repeated) > FEW:
        return ()
    checks = {r.test.check for r in results if r.test.id in set(repeated)}
    accusing = [v for v in verdicts if v.check in checks and v.basis in ("limit", "peers")
                and v.status is Status.FAIL and v.measurement is not None and v.attempt > 1]
    by_peers = [v for v in accusing if v.basis == "peers"]
    accused = {n for v in by_peers for n in v.subject.nodes}
    nodes = {v.subject.nodes[0] for v in by_peers if _far(v, results, accused)}
    return () if all(nodes & set(v.subject.nodes) for v in accusing) else repeated


def _far(verdict: Verdict, results: Sequence[TestResult], accused: set[str]) -> bool:
    """Whether each value of a node that its peers accuse, in all tries, is far from each value without the accused."""
    m = verdict.measurement
    assert m is not None  # noqa: S101
    own, others = [], []
    for result in (r for r in results if r.test.check == verdict.check):
        values = [float(x.value) for x in result.measurements if isinstance(x.value, (int, float)) and
                  (x.name, x.size_bytes, x.unit) == (m.name, m.size_bytes, m.unit)]
        if verdict.subject.nodes[0] in result.test.subject.nodes:
            own += values
        elif not accused & set(result.test.subject.nodes):
            others += values
    if not own or not others:
        return False
    return min(own) > FAR * max(others) if lower_is_better(m) else max(own) * FAR < min(others)

"""Doubtful tests once more: alone, and under the load that they had, before anybody is accused. Pure.

Few of them get a second turn where the first leaves doubt: where somebody is still accused, and not so far from the
others that no noise explains it. Whoever was good once is no longer accused, whatever a second turn would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.check import Role, Status, Verdict
from hpcadmin.peers import lower_is_better
from hpcadmin.plan import stage_seconds, time_limit_min
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage, TestResult

FEW = 6             # so many tests may have a second turn, whatever they are of
MORE = 16           # of nodes that are in doubt, where there are more tests
CONTROLS = 3        # of nodes that nobody accuses, beside those
FAR = 2.0           # times: the accused at its best against the worst of the others


@dataclass(frozen=True)
class Again:
    job: PlannedJob
    tests: tuple[PlannedTest, ...]


def again(plan: Plan, doubtful: Sequence[str], number: int, usual: Mapping[str, float],
          without: Collection[str] = ()) -> Again | None:
    """The job that repeats these tests of the plan, None when there is nothing to repeat. without: nodes that no job
    can use any more; the others are not to wait for them.

    A pair is measured alone and in the round that it was in; whatever has nothing beside it anyway, only alone. What
    the plan already repeats is repeated once more.
    """
    by_id = {t.id: t for t in plan.tests}
    gone = set(without)
    wanted = [by_id[i] for i in doubtful if i in by_id and not by_id[i].repeats and not gone & set(
              by_id[i].subject.nodes)
              and not any(step.role is Role.JOB for step in by_id[i].steps)]
    if not wanted:
        return None
    stages: list[Stage] = []
    tests: list[PlannedTest] = []
    attempts = {i: 1 + n for i, n in Counter(t.repeats for t in plan.tests if t.repeats).items()}
    first = max((int(i.id[1:]) for i in plan.tests), default=0) + 1

    def repeat(test: PlannedTest, *, alone: bool, beside: int = 0) -> str:
        attempts[test.id] = attempts.get(test.id, 1) + 1
        at_once = None if test.pairs_at_once is None else 1 if alone else beside or test.pairs_at_once
        tests.append(replace(test, id=f"t{first + len(tests):04d}", job=number, attempt=attempts[test.id],
                             repeats=test.id, alone=alone, pairs_at_once=at_once))
        return tests[-1].id

    for test in wanted:
        stages.append(Stage("round", f"{test.check} {test.subject} alone", (repeat(test, alone=True),)))
    for stage in _rounds_of(plan, wanted):
        left = [i for i in stage.tests if not gone & set(by_id[i].subject.nodes)]
        elsewhere = {by_id[i].job for i in left} != {by_id[left[0]].job} if left else False
        beside = len(left) if len(left) < len(stage.tests) or elsewhere else 0
        stages.append(Stage("round", f"{stage.name} again", tuple(repeat(by_id[i], alone=False, beside=beside)
                                                                  for i in left)))
    known = {t.id: t for t in tests}
    seconds = sum(stage_seconds([known[i] for i in s.tests], in_turn=False, usual=usual) + 0.1 for s in stages)
    nodes = tuple(n for n in plan.nodes if any(n in t.subject.nodes for t in tests))
    return Again(PlannedJob(number, "again", nodes, tuple(stages), round(seconds, 1),
                            time_limit_min(stages, tests, seconds)), tuple(tests))


def _rounds_of(plan: Plan, wanted: Sequence[PlannedTest]) -> list[Stage]:
    """The rounds in which the tests ran beside others: each in that of the job that measured it, whole, also where a
    test beside it was cut off there and made good in another job."""
    ids = {t.id: t.job for t in wanted}
    return [s for job in plan.jobs for s in job.stages
            if s.kind == "round" and len(s.tests) > 1 and any(ids.get(i) == job.number for i in s.tests)]


def unsettled(repeated: Sequence[str], results: Sequence[TestResult], verdicts: Sequence[Verdict]) -> Sequence[str]:
    """The tests that are to have a second turn: none of them, or all, so that there is something to compare with. Of
    many only those of the few nodes that are in doubt, and some beside them."""
    checks = {r.test.check for r in results if r.test.id in set(repeated)}
    accusing = [v for v in verdicts if v.check in checks and v.basis in ("limit", "peers")
                and v.status is Status.FAIL and v.measurement is not None and v.attempt > 1]
    by_peers = [v for v in accusing if v.basis == "peers"]
    accused = {n for v in by_peers for n in v.subject.nodes}
    nodes = {v.subject.nodes[0] for v in by_peers if _far(v, results, accused)}
    if len(repeated) <= FEW:
        return () if all(nodes & set(v.subject.nodes) for v in accusing) else repeated
    unclear = {v.subject.nodes[0] for v in by_peers if len(v.subject.nodes) == 1} - nodes
    pairs = {r.test.id: set(r.test.subject.nodes) for r in results if r.test.id in set(repeated)}
    own = [i for i in repeated if pairs.get(i, nodes) & unclear and not pairs[i] & nodes]
    beside = [i for i in repeated if i in pairs and not pairs[i] & (accused | nodes)]
    return [*own, *beside[:CONTROLS]] if 0 < len(own) <= MORE else ()


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

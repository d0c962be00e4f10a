"""Doubtful tests once more: alone, and under the load that they had, before anybody is accused. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.check import Role
from hpcadmin.plan import stage_seconds, time_limit_min
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage

FEW = 6             # so many tests are repeated twice in each way, more only once


@dataclass(frozen=True)
class Again:
    job: PlannedJob
    tests: tuple[PlannedTest, ...]


def again(plan: Plan, doubtful: Sequence[str], number: int, usual: Mapping[str, float]) -> Again | None:
    """The job that repeats these tests of the plan, None when there is nothing to repeat.

    A pair is measured alone and in the round that it was in; whatever has nothing beside it anyway, only alone.
    """
    by_id = {t.id: t for t in plan.tests}
    wanted = [by_id[i] for i in doubtful if i in by_id and not by_id[i].repeats
              and not any(step.role is Role.JOB for step in by_id[i].steps)]
    if not wanted:
        return None
    stages: list[Stage] = []
    tests: list[PlannedTest] = []
    attempts: dict[str, int] = {}
    first = max((int(i.id[1:]) for i in plan.tests), default=0) + 1

    def repeat(test: PlannedTest, *, alone: bool) -> str:
        attempts[test.id] = attempts.get(test.id, 1) + 1
        at_once = 1 if alone and test.pairs_at_once is not None else test.pairs_at_once
        tests.append(replace(test, id=f"t{first + len(tests):04d}", job=number, attempt=attempts[test.id],
                             repeats=test.id, alone=alone, pairs_at_once=at_once))
        return tests[-1].id

    for turn in range(2 if len(wanted) <= FEW else 1):
        for test in wanted:
            stages.append(Stage("round", f"{test.check} {test.subject} alone", (repeat(test, alone=True),)))
        for stage in _rounds_of(plan, wanted):
            members = tuple(repeat(by_id[i], alone=False) for i in stage.tests)
            stages.append(Stage("round", f"{stage.name} again{f' ({turn + 1})' if turn else ''}", members))
    known = {t.id: t for t in tests}
    seconds = sum(stage_seconds([known[i] for i in s.tests], in_turn=False, usual=usual) + 0.1 for s in stages)
    nodes = tuple(n for n in plan.nodes if any(n in t.subject.nodes for t in tests))
    return Again(PlannedJob(number, "again", nodes, tuple(stages), round(seconds, 1),
                            time_limit_min(stages, tests, seconds)), tuple(tests))


def _rounds_of(plan: Plan, wanted: Sequence[PlannedTest]) -> list[Stage]:
    """The rounds in which the tests ran beside others."""
    ids = {t.id for t in wanted}
    return [s for job in plan.jobs for s in job.stages if s.kind == "round" and len(s.tests) > 1 and ids & set(s.tests)]

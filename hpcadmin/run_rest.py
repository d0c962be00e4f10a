"""Tests that a job was to make and did not: planned again, as a new job on the nodes that are left. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.check import Check, Impact
from hpcadmin.plan import stage_seconds, time_limit_min
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage

MOST_TRIES = 3
# How jobs end for no fault of theirs: not what somebody wants who cancels one, nor a script that fails each time.
OUTSIDE = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL", "REQUEUED"})


@dataclass(frozen=True)
class Rest:
    plan: Plan
    jobs: tuple[PlannedJob, ...]


def misfit(plan: Plan, checks: Collection[str]) -> str:
    """What in a plan that was read does not fit together, "" where all does: jobs may write where it lies, and no node
    is ever tested that is not in it."""
    tests = {t.id: t for t in plan.tests}
    if len(tests) < len(plan.tests) or len({j.number for j in plan.jobs}) < len(plan.jobs):
        return "two of its tests or jobs are called the same"
    nodes = set(plan.nodes)
    for test in plan.tests:
        if test.check not in checks:
            return f"test {test.id} is of {test.check!r}, which is no check here"
        if not nodes.issuperset([*test.subject.nodes, *(n for s in test.steps for n in s.nodes)]):
            return f"test {test.id} is not on nodes of the plan"
        if test.repeats and test.repeats not in tests:
            return f"test {test.id} repeats one that is not there"
    for job in plan.jobs:
        ids = [i for stage in job.stages for i in stage.tests]
        if not nodes.issuperset(job.nodes) or not ids or not all(i in tests for i in ids):
            return f"job {job.number} has tests or nodes that are not there"
        if job.kind == "own" and not _is_own(job, tests):
            return f"job {job.number} is no job of a test"
    return ""


def _is_own(job: PlannedJob, tests: Mapping[str, PlannedTest]) -> bool:
    """Whether it says which step of which test it is, and where."""
    ids = [i for stage in job.stages for i in stage.tests]
    steps = tests[ids[0]].steps if len(ids) == 1 else ()
    if job.step is None or not 0 <= job.step < len(steps):
        return False
    wanted = steps[job.step].job
    return wanted is not None and bool(steps[job.step].nodes or wanted.anywhere)


def next_number(plan: Plan, started: int) -> int:
    return max([started, *(job.number for job in plan.jobs)], default=0) + 1


def tries(plan: Plan, job: PlannedJob) -> int:
    """How often the tests of this job have been planned again already."""
    by_number = {j.number: j for j in plan.jobs}
    count = 0
    while job.rest_of is not None and job.rest_of in by_number:
        job, count = by_number[job.rest_of], count + 1
    return count


def newest(jobs: Sequence[PlannedJob]) -> list[PlannedJob]:
    """Without those whose tests have been planned again."""
    old = {job.rest_of for job in jobs}
    return [job for job in jobs if job.number not in old]


def plan_rest(plan: Plan, job: PlannedJob, lost: Collection[str], usable: Collection[str], *, number: int,
              checks: Mapping[str, Check]) -> Rest | None:
    """The plan with a job for these tests of `job`, as far as their nodes are usable; None when none is."""
    if tries(plan, job) >= MOST_TRIES:
        return None
    by_id = {t.id: t for t in plan.tests}
    moved: dict[str, PlannedTest] = {}
    stages = []
    for stage in job.stages:
        ids = [i for i in stage.tests if i in lost and set(by_id[i].subject.nodes) <= set(usable)]
        ids = [i for i in ids if not _needs_load(by_id[i], checks) or any(_loads(by_id[j], checks) for j in ids)]
        if ids:
            stages.append(replace(stage, tests=tuple(ids)))
            moved.update((i, _moved(by_id[i], number, stage, len(ids))) for i in ids)
    if not moved:
        return None
    usual = {name: check.seconds for name, check in checks.items()}
    seconds = sum(stage_seconds([moved[i] for i in s.tests], in_turn=s.kind == "nodes", usual=usual) + 0.1
                  for s in stages)
    used = {n for t in moved.values() for n in t.subject.nodes}
    rest = PlannedJob(number, job.kind, tuple(n for n in job.nodes if n in used), tuple(stages), round(seconds, 1),
                      time_limit_min(stages, moved.values(), seconds), rest_of=job.number)
    return Rest(_with(plan, moved, (rest,)), (rest,))


def _moved(test: PlannedTest, number: int, stage: Stage, beside: int) -> PlannedTest:
    at_once = test.pairs_at_once if stage.kind != "round" or test.pairs_at_once is None else beside
    return replace(test, job=number, pairs_at_once=at_once)


def _needs_load(test: PlannedTest, checks: Mapping[str, Check]) -> bool:
    return test.check in checks and checks[test.check].beside_load


def _loads(test: PlannedTest, checks: Mapping[str, Check]) -> bool:
    return test.check in checks and checks[test.check].impact is Impact.LOAD


def plan_own_rest(plan: Plan, test: PlannedTest, jobs: Sequence[PlannedJob], usable: Collection[str], *,
                  number: int) -> Rest | None:
    """The same for a test whose jobs are its own: all of them, because they meet."""
    if tries(plan, jobs[0]) >= MOST_TRIES or not set(test.subject.nodes) <= set(usable):
        return None
    new = {job.number: number + place for place, job in enumerate(jobs)}
    again = tuple(replace(job, number=new[job.number], meets=tuple(new[n] for n in job.meets), rest_of=job.number)
                  for job in jobs)
    return Rest(_with(plan, {test.id: replace(test, job=number)}, again), again)


def _with(plan: Plan, moved: Mapping[str, PlannedTest], jobs: tuple[PlannedJob, ...]) -> Plan:
    return replace(plan, tests=tuple(moved.get(t.id, t) for t in plan.tests), jobs=(*plan.jobs, *jobs))

"""Groups of which some nodes never became free: made with the others, once nobody is waited for any more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hpcadmin.check import Check, Status, Subject
from hpcadmin.plan import stage_seconds, time_limit_min
from hpcadmin.plan_choice import plan_verdict
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage


def without_absent(plan: Plan, job: PlannedJob, missing: Mapping[str, str], absent: Collection[str], *, number: int,
                   checks: Mapping[str, Check]) -> tuple[Plan, PlannedJob | None]:
    """The plan with a job for the groups of `job` that were not made, as far as several of their nodes are there.

    missing: test -> why. absent: nodes that are not free. What is left out of a group has a verdict with that reason.
    """
    known = {(t.check, t.subject) for t in plan.tests}
    by_id = {t.id: t for t in plan.tests}
    moved: dict[str, PlannedTest] = {}
    stages, verdicts = [], []
    for stage in job.stages:
        ids = []
        for test in (by_id[i] for i in stage.tests if i in missing and stage.kind == "group"):
            smaller = _smaller(test, absent, number)
            if smaller is None or (smaller.check, smaller.subject) in known:
                continue
            known.add((smaller.check, smaller.subject))
            moved[test.id] = smaller
            ids.append(test.id)
            verdicts += [plan_verdict(test.check, Subject((n,), test.subject.device), Status.NOT_RUN, missing[test.id])
                         for n in test.subject.nodes if n in absent]
        if ids:
            stages.append(Stage(stage.kind, stage.name, tuple(ids)))
    if not moved:
        return plan, None
    usual = {name: check.seconds for name, check in checks.items()}
    seconds = sum(stage_seconds([moved[i] for i in s.tests], in_turn=False, usual=usual) + 0.1 for s in stages)
    used = {n for t in moved.values() for n in t.subject.nodes}
    new = PlannedJob(number, job.kind, tuple(n for n in job.nodes if n in used), tuple(stages), round(seconds, 1),
                     time_limit_min(stages, moved.values(), seconds))
    tests = tuple(moved.get(t.id, t) for t in plan.tests)
    told = dict.fromkeys((*plan.verdicts, *verdicts))
    return replace(plan, tests=tests, jobs=(*plan.jobs, new), verdicts=tuple(told)), new


def _smaller(test: PlannedTest, absent: Collection[str], number: int) -> PlannedTest | None:
    """The test on those of its nodes that are there; None where these are all, or no two."""
    places = [i for i, n in enumerate(test.subject.nodes) if n not in absent]
    before = len(test.subject.nodes)
    if len(places) in (0, 1, before):
        return None
    return replace(
        test, job=number, subject=Subject(tuple(test.subject.nodes[i] for i in places), test.subject.device),
        ports=tuple(test.ports[i] for i in places) if len(test.ports) == before else test.ports,
        ranks=test.ranks // before * len(places) if test.ranks else test.ranks)

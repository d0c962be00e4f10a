"""Nodes that were lost while a run was on: what is said of them, and what is still measured without them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpcadmin.check import Status, Subject, Verdict
from hpcadmin.plan_choice import plan_verdict
from hpcadmin.rundata import NO_ANSWER, Plan, TestResult

AVAILABILITY = "availability"


def no_answer(results: Sequence[TestResult]) -> set[str]:
    """Nodes of which a job's script says that no step of it could be started on them any more."""
    return {n for r in results for n in r.test.subject.nodes if r.error.startswith(f"{n} {NO_ANSWER}")}


def with_lost(plan: Plan, results: Sequence[TestResult], down: Mapping[str, str]) -> Plan:
    """The plan with a verdict of each node that is lost: a test of it could not be measured, or could not be made any
    more after others had been measured.

    down: nodes that no job can use, with Slurm's reason. The same plan where nothing is to be added.
    """
    silent = no_answer(results)
    measured = {n for r in results if r.measurements for n in r.test.subject.nodes}
    bad = {n for r in results for n in r.test.subject.nodes if r.error or (r.not_run and n in measured)}
    known = {n for v in plan.verdicts if v.check == AVAILABILITY for n in v.subject.nodes}
    new = [_verdict(n, down.get(n, ""), silent=n in silent) for n in plan.nodes
           if n in bad and n not in known and (n in silent or n in down)]
    return replace(plan, verdicts=(*plan.verdicts, *new)) if new else plan


def _verdict(node: str, told: str, *, silent: bool) -> Verdict:
    what = NO_ANSWER if silent or "not responding" in told or told.startswith("down") else (
        "was taken out of service during the run")
    slurm = f"Slurm says: {told}" if told else "Slurm has not noticed"
    return plan_verdict(AVAILABILITY, Subject((node,)), Status.ERROR, f"{node} {what} ({slurm})")


def lost_nodes(plan: Plan) -> set[str]:
    """Nodes of the plan that were lost during the run."""
    return {n for v in plan.verdicts if v.check == AVAILABILITY for n in v.subject.nodes if n in plan.nodes}

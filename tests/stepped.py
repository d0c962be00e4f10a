"""Plans whose tests have their steps, as a job's script has them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpcadmin.check import Check, Role
from hpcadmin.plan import make_plan as plan_without_steps
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_work import Stepped
from hpcadmin.registry import Suite
from hpcadmin.rundata import Plan


def make_plan(suite: Suite, checks: Mapping[str, Check], facts: Facts, nodes: Sequence[str], **more: Any) -> Plan:
    plan = plan_without_steps(suite, checks, facts, nodes, **more)
    assert all(not t.steps or t.steps[0].role is Role.JOB for t in plan.tests)
    whole = Stepped({t.id: t for t in plan.tests}, checks, facts, suite.env)
    return replace(plan, tests=tuple(whole.values()))

"""Nodes that are busy when a run begins: planned by what is known of them; groups are made without those never free."""

from __future__ import annotations

import pytest

from hpcadmin.check import Layout, Scope, Status, Subject
from hpcadmin.model import Group, Inventory, Node
from hpcadmin.run_look import Seen, Wanted
from hpcadmin.run_look_late import late_nodes, with_late
from hpcadmin.run_reduced import without_absent
from hpcadmin.rundata import Plan, PlannedEntry, PlannedJob, PlannedTest, Stage, ToolFound
from hpcadmin.site import Tool
from hpcadmin.tools import Ask, by_node

ASK = Ask("osu_bw", Tool(), ("--version",))
WANT = Wanted((), {}, {}, (ASK,))
OLD = Inventory(tuple(Node(n) for n in ("n1", "n2", "n3")), (Group("a", ("n1", "n3")), Group("b", ("n2",))))


def found(node: str, path: str, asked: str = ASK.key) -> ToolFound:
    return ToolFound("osu_bw", (node,), path, "PATH", "7.4", asked=asked)


def test_only_what_an_inventory_tells_of_needs_no_look() -> None:
    names = ("n1", "n2", "n3", "n4")
    assert late_nodes(names, {"n3", "n4"}, OLD, WANT) == ("n3",)
    assert late_nodes(names, {"n3", "n4"}, None, WANT) == ()
    assert late_nodes(("n3",), {"n3"}, OLD, WANT) == ()             # somebody must be looked at


def test_tools_are_as_they_were_else_as_on_nodes_like_them() -> None:
    seen = Seen(None, tools=(found("n1", "/new/osu_bw"), found("n2", "/other/osu_bw")))
    def path(known: list[ToolFound]) -> str:
        return by_node(with_late(seen, ["n3"], (ASK,), known, OLD).tools)["n3"]["osu_bw"].path
    assert path([found("n3", "/old/osu_bw")]) == "/old/osu_bw"
    assert path([found("n3", "/old/osu_bw", asked="otherwise")]) == "/new/osu_bw"
    assert path([]) == "/new/osu_bw"                                # n1 is of its group
    assert {t.path for t in seen.tools} == {"/new/osu_bw", "/other/osu_bw"}


def test_what_was_seen_and_what_was_accepted_are_one_inventory() -> None:
    seen = Seen(Inventory((Node("n1"), Node("n2"))))
    both = with_late(seen, ["n3"], (), (), OLD).inventory
    assert both is not None and [n.name for n in both.nodes] == ["n1", "n2", "n3"]


GROUP = PlannedTest("t0002", "mpi_hello", Subject(("n1", "n2", "n3")), ranks=6, layout=Layout.ALL)
PAIR = PlannedTest("t0001", "pp", Subject(("n1", "n3")))
PLAN = Plan("s", ("n1", "n2", "n3"), (PlannedEntry("mpi_hello", "m", Scope.GROUP), PlannedEntry("pp", "p", Scope.PAIR)),
            (PAIR, GROUP), (PlannedJob(1, "suite", ("n1", "n2", "n3"), (
                Stage("round", "pp", ("t0001",)), Stage("group", "mpi_hello", ("t0002",)))),))
WHY = {"t0001": "n3 not free within 5 s", "t0002": "n3 not free within 5 s"}


def test_a_group_is_made_without_the_node_that_was_never_free() -> None:
    plan, job = without_absent(PLAN, PLAN.jobs[0], WHY, {"n3"}, number=4, checks={})
    assert job is not None and (job.number, job.nodes) == (4, ("n1", "n2"))
    assert [s.tests for s in job.stages] == [("t0002",)]            # a pair needs both
    smaller = plan.tests[1]
    assert (smaller.subject.nodes, smaller.ranks, smaller.job) == (("n1", "n2"), 4, 4)
    [verdict] = plan.verdicts
    assert (verdict.check, verdict.subject.nodes, verdict.status) == ("mpi_hello", ("n3",), Status.NOT_RUN)
    assert verdict.reason == "n3 not free within 5 s"


@pytest.mark.parametrize("absent", [set(), {"n2", "n3"}, {"n1", "n2", "n3"}])
def test_a_group_of_fewer_than_two_or_of_all_is_not_made_anew(absent: set[str]) -> None:
    assert without_absent(PLAN, PLAN.jobs[0], WHY, absent, number=4, checks={}) == (PLAN, None)


def test_the_same_nodes_are_no_group_twice() -> None:
    double = PlannedTest("t0003", "mpi_hello", Subject(("n1", "n2")))
    plan = Plan(PLAN.suite, PLAN.nodes, PLAN.entries, (*PLAN.tests, double), PLAN.jobs)
    assert without_absent(plan, plan.jobs[0], WHY, {"n3"}, number=4, checks={})[1] is None

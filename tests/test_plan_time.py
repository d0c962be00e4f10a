"""What a plan costs, from past runs where there are any; switches as Slurm and the inventory tell them."""

from dataclasses import replace
from pathlib import Path

import pytest
from stepped import make_plan
from test_plan_work import CHECKS, facts_of, view

from hpcadmin.check import Layout, NodeView, Subject
from hpcadmin.conf.topology_parts import Switch, Tree
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_switches import of_inventory, of_slurm, of_tree
from hpcadmin.plan_time import KEPT, Cost, Durations, Usual, cost_of, cost_text, hardware_of, shown, usual_for
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.run_plan import keep_usual, read_usual, usual_file, usual_here
from hpcadmin.rundata import Plan, PlannedTest
from hpcadmin.site import Site

VIEWS = [view(f"n{i}") for i in range(1, 9)]
H100 = "8 x H100, 8 x 400 Gb/s InfiniBand"


def plan_of(usual: "dict[str, float] | None" = None) -> Plan:
    entries = (SuiteEntry(("ib_write_bw",)), SuiteEntry(("nccl_allreduce",), over=(Layout.ALL,)))
    facts = facts_of(VIEWS)
    return make_plan(Suite("s", "s", entries), CHECKS, facts, list(facts.views), usual=usual)


def test_hardware_in_words_is_that_of_most_nodes() -> None:
    assert hardware_of([*VIEWS, view("n9", rails=1, gpus=0)]) == H100
    assert hardware_of([replace(view("n1", 0, 0), simulated="dgx")]) == "no GPU, simulated dgx"
    assert not hardware_of([]) and hardware_of([NodeView("n1")]) == "unknown hardware"


def test_cost_without_and_with_past_runs() -> None:
    guessed = cost_of(plan_of(), CHECKS, {})
    assert (guessed.tests, guessed.rounds, guessed.jobs, guessed.nodes) == (29, 7, 1, 8)
    assert guessed.known == () and guessed.guessed == ("ib_write_bw", "nccl_allreduce")
    assert guessed.node_hours == round(guessed.seconds * 8 / 3600, 2)
    usual = {"ib_write_bw": 100.0}
    known = cost_of(plan_of(usual), CHECKS, usual)
    assert known.seconds == pytest.approx(7 * 100.1 + CHECKS["nccl_allreduce"].seconds + 0.1, abs=0.2)
    assert cost_text(known) == (f"29 tests, 7 rounds, 1 job, {known.node_hours} node-hours, about "
                                f"{shown(known.seconds)}; times from past runs for 1 of 2 checks")
    assert cost_text(Cost(0, 0, 0, 0, 0.0, 0.0)).endswith("times as the checks declare them")


def test_one_slow_run_does_not_change_what_is_usual() -> None:
    past: tuple[Usual, ...] = ()
    for took in (10.0, 11.0, 900.0, 10.5, 12.0):
        durations = Durations()
        for number in range(5):
            test = PlannedTest(f"t{number}", "pp", Subject(("a", "b")), layout=Layout.PAIRS)
            durations.add(test, [(5.0, 5.0 + took)])
        past = durations.folded_into(past, H100)
    assert usual_for(past, H100, 8) == {"pp": 11.0} and usual_for(past, "no GPU", 8) == {}
    for _ in range(30):
        past = durations.folded_into(past, H100)
    assert len(past) == 1 and len(past[0].seconds) == KEPT


def test_groups_are_known_by_their_number_of_nodes() -> None:
    past = (Usual("all", H100, (5.0,), 8), Usual("all", H100, (50.0,), 1000), Usual("all", "no GPU", (1.0,), 8))
    assert usual_for(past, H100, 16) == {"all": 5.0} and usual_for(past, H100, 900) == {"all": 50.0}


def test_an_output_without_times_tells_nothing() -> None:
    durations = Durations()
    durations.add(PlannedTest("t1", "c", Subject(("a",))), [(None, 5.0), (7.0, 5.0), (1.0, 1.0)])
    assert durations.folded_into((), H100) == ()
    durations.add(PlannedTest("t1", "c", Subject(("a",))), [(1.0, 2.0), (1.5, 4.0)])
    assert durations.folded_into((), H100) == (Usual("c", H100, (3.0,)),)


def test_what_a_run_took_so_far() -> None:
    durations = Durations()
    for took in (1.0, 9.0, 2.0):
        assert durations.so_far() == {}
        durations.add(PlannedTest("t1", "c", Subject(("a", "b"))), [(1.0, 1.0 + took)])
        durations.add(PlannedTest("t2", "all", Subject(("a", "b")), layout=Layout.ALL), [(1.0, 1.0 + took)])
    assert durations.so_far() == {"c": 2.0}, "groups take what their number of nodes makes of it"


def test_what_is_usual_is_kept_beside_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    site, facts, durations = Site(), facts_of(VIEWS), Durations()
    assert usual_here(site, facts, 8) == {}
    durations.add(PlannedTest("t1", "ib_write_bw", Subject(("n1", "n2"))), [(1.0, 4.0)])
    keep_usual(site, facts, durations)
    assert usual_file(site).parent == tmp_path and usual_here(site, facts, 8) == {"ib_write_bw": 3.0}
    assert usual_here(site, Facts({"n9": NodeView("n9")}), 8) == {"ib_write_bw": 3.0}       # before it was looked at
    keep_usual(site, facts_of([NodeView("n8", gpus=0)]), durations)
    assert usual_here(site, Facts({"n9": NodeView("n9")}), 8) == {}                         # it may be either
    usual_file(site).write_text("{")            # damaged: as if there were none
    assert read_usual(usual_file(site)) == ()
    keep_usual(site, facts, durations)
    assert usual_here(site, facts, 8) == {"ib_write_bw": 3.0}


# --- switches ---------------------------------------------------------------------------------------------------

TREE = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""


def test_switches_that_slurm_tells() -> None:
    names = ["n1", "n2", "n3"]
    assert of_slurm(TREE, names) == ({"n1": "leaf1", "n2": "leaf1", "n3": "leaf2"}, dict.fromkeys(names, "spine"))
    blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
    assert of_slurm(blocks, names) == ({"n1": "b1", "n2": "b1", "n3": "b2"},)
    for nothing in ("", "No topology information available\n", "SwitchName=leaf1 Level=0 Nodes=n[1-4]\n",
                    "SwitchName=leaf1 Level=0 Nodes=n[1-\n", "SwitchName=a Level=0 Nodes=(null)\n"):
        assert of_slurm(nothing, names) == ()


def test_switches_of_a_tree_and_of_nothing() -> None:
    def switch(name: str, nodes: tuple[str, ...] = (), children: tuple[str, ...] = ()) -> Switch:
        return Switch(name, "", "", nodes, children)
    tree = Tree((switch("top", children=("s1", "s2")), switch("s1", children=("a", "b")), switch("s2", children=("c",)),
                 switch("a", ("n1", "n2")), switch("b", ("n3",)), switch("c", ("n4",))))
    levels = of_tree(tree, ["n1", "n3", "n4"])
    assert levels == ({"n1": "a", "n3": "b", "n4": "c"}, {"n1": "s1", "n3": "s1", "n4": "s2"},
                      dict.fromkeys(["n1", "n3", "n4"], "top"))
    assert of_inventory(None, ["n1"], Site()) == ()


def test_times_that_cannot_be_are_left_out() -> None:
    """Of a damaged file: the job's time limit is made of them."""
    past = [Usual("c", "h", (1e308, -5.0, 0.0, float("inf"), float("nan"), 3.0)), Usual("d", "h", (1e300,))]
    assert usual_for(past, "h", 4) == {"c": 3.0}


def test_clocks_of_two_hosts_are_not_compared() -> None:
    durations = Durations()
    test = PlannedTest("t1", "c", Subject(("a", "b")))
    durations.add(test, [(1000.0, 1002.0), (5000.0, 5003.0), (1002.0, 1004.0)], ["a", "b", "a"])
    assert durations.folded_into([], "h") == (Usual("c", "h", (4.0,)),)

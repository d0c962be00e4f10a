"""Plans: every pair once in disjoint rounds, nothing left out without a word, checks chosen as the suite says."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepped import make_plan

from hpcadmin.check import Check, Context, Impact, JobRequest, NodeView, Ready, Role, Scope, Status, Step
from hpcadmin.inventory import node_view
from hpcadmin.model import Gpu, Inventory, MigDevice, Nic, Node
from hpcadmin.plan import MEET_S, context_of, time_limit_min
from hpcadmin.plan_facts import Facts, gather
from hpcadmin.plan_pairs import rounds
from hpcadmin.plan_work import PORTS, PORTS_FROM, unfit
from hpcadmin.registry import Suite, SuiteEntry, load_checks
from hpcadmin.repeats import again
from hpcadmin.rundata import Plan, SkippedNode
from hpcadmin.site import NodeGroup, Site
from hpcadmin.site_tools import Tool

NODES = ("n1", "n2", "n3", "n4")


def check(name: str, scope: Scope = Scope.NODE, **more: object) -> Check:
    return Check(name, name.title(), scope, **{"steps": lambda c: (Step(("/bin/true",)),), "parse": lambda o, c: [],
                                               **more})  # type: ignore[arg-type]


def plan_of(*checks: Check, entries: "tuple[tuple[str, ...], ...] | None" = None, facts: "Facts | None" = None,
            nodes: tuple[str, ...] = NODES, **more: object) -> Plan:
    names = entries or tuple((c.name,) for c in checks)
    suite = Suite("s", "s", tuple(SuiteEntry(n) for n in names))
    facts = facts or Facts({n: NodeView(n) for n in nodes})
    return make_plan(suite, {c.name: c for c in checks}, facts, nodes, **more)  # type: ignore[arg-type]


@given(st.integers(0, 33))
def test_every_pair_once_in_disjoint_rounds(count: int) -> None:
    nodes = list(range(count))
    plan = list(rounds(nodes))
    assert sorted(p for r in plan for p in r) == sorted(combinations(nodes, 2))
    for pairs in plan:
        used = [n for pair in pairs for n in pair]
        assert len(used) == len(set(used))
    assert len(plan) == (0 if count < 2 else count - 1 if count % 2 == 0 else count)
    sizes = {len(r) for r in plan}
    assert len(sizes) <= 1      # equally many pairs at once in every round: all are comparable


def test_pairs_become_rounds_and_odd_counts_leave_nobody_out() -> None:
    plan = plan_of(check("pp", Scope.PAIR), nodes=("a", "b", "c", "d", "e"))
    assert [s.kind for s in plan.jobs[0].stages] == ["round"] * 5
    assert Counter(n for t in plan.tests for n in t.subject.nodes) == dict.fromkeys("abcde", 4)
    assert {t.pairs_at_once for t in plan.tests} == {2}
    assert plan.jobs[0].nodes == ("a", "b", "c", "d", "e")


def test_stages_come_in_order_and_hold_every_test_once() -> None:
    load = check("load", Scope.GROUP, impact=Impact.LOAD)
    plan = plan_of(load, check("pp", Scope.PAIR), check("light", Scope.GROUP), check("one"), check("two"))
    stages = plan.jobs[0].stages
    assert [s.kind for s in stages] == ["nodes", "group", "round", "round", "round", "group"]
    assert [s.name for s in stages][1] == "light"
    assert [s.name for s in stages][-1] == "load"
    assert Counter(i for s in stages for i in s.tests) == {t.id: 1 for t in plan.tests}
    assert len(stages[0].tests) == 8
    assert {e.check: e.tests for e in plan.entries} == {"load": 1, "pp": 6, "light": 1, "one": 4, "two": 4}


def test_one_node_has_no_pairs_and_the_plan_says_so() -> None:
    plan = plan_of(check("pp", Scope.PAIR), nodes=("n1",))
    assert plan.entries[0].status is Status.NOT_RUN
    assert "two nodes" in plan.entries[0].reason
    assert [v.status for v in plan.verdicts] == [Status.NOT_RUN]
    assert plan.jobs == ()


def test_no_node_at_all_is_not_run() -> None:
    plan = plan_of(check("one"), nodes=(), skipped=[SkippedNode("n1", "down")])
    assert [(v.check, v.status) for v in plan.verdicts] == [("availability", Status.NOT_RUN), ("one", Status.NOT_RUN)]
    assert plan.jobs == ()


def test_skipped_nodes_are_verdicts() -> None:
    plan = plan_of(check("one"), skipped=[SkippedNode("n9", "drained: fan")])
    verdict = plan.verdicts[0]
    assert (verdict.check, verdict.status, verdict.reason) == ("availability", Status.NOT_RUN, "drained: fan")
    assert verdict.subject.nodes == ("n9",)


def facts_with(**has: "dict[str, bool | None]") -> Facts:
    return Facts({n: NodeView(n) for n in NODES}, has=has)


def test_hardware_that_nobody_has_is_not_applicable_and_noted() -> None:
    plan = plan_of(check("ib", Scope.PAIR, needs=("rdma",)), facts=facts_with(rdma=dict.fromkeys(NODES, False)))
    assert plan.entries[0].status is Status.NOT_APPLICABLE
    assert plan.notes == ("no RDMA device on any node: RDMA not tested",)
    assert plan.verdicts == ()


def test_a_node_without_what_the_others_have_fails_and_the_others_are_tested() -> None:
    plan = plan_of(check("ib", Scope.PAIR, needs=("rdma",)),
                   facts=facts_with(rdma={**dict.fromkeys(NODES, True), "n3": False}))
    assert [(v.status, v.subject.nodes) for v in plan.verdicts] == [(Status.FAIL, ("n3",))]
    assert "3 of 4 nodes have one" in plan.verdicts[0].reason
    assert {n for t in plan.tests for n in t.subject.nodes} == {"n1", "n2", "n4"}


def test_hardware_that_the_site_expects_and_nobody_has_fails() -> None:
    facts = replace(facts_with(gpu=dict.fromkeys(NODES, False)),
                    expected={"gpu": dict.fromkeys(NODES, "site.toml [nodes.gpu]")})
    plan = plan_of(check("g", needs=("gpu",)), facts=facts)
    assert Counter(v.status for v in plan.verdicts) == {Status.FAIL: 4, Status.NOT_RUN: 1}
    assert "site.toml [nodes.gpu]" in next(v.reason for v in plan.verdicts if v.status is Status.FAIL)


def test_unknown_hardware_is_not_run_never_not_applicable() -> None:
    plan = plan_of(check("g", needs=("gpu",)), facts=facts_with(gpu={**dict.fromkeys(NODES, False), "n2": None}))
    assert plan.entries[0].status is Status.NOT_RUN
    assert "n2" in plan.entries[0].reason


def tools(**by_tool: tuple[str, ...]) -> Facts:
    """tool -> the nodes that have it; the others were looked at."""
    return Facts({n: NodeView(n) for n in NODES},
                 tools={n: {t: f"/usr/bin/{t}" if n in nodes else "" for t, nodes in by_tool.items()} for n in NODES})


OSU, OWN, BW = (check(n, Scope.PAIR, needs=(t,)) for n, t in (("osu", "osu"), ("own", "own"), ("bw", "bw")))


def test_the_first_alternative_that_every_node_has_runs() -> None:
    plan = plan_of(OSU, OWN, entries=(("osu", "own"),), facts=tools(osu=NODES[:3], own=NODES))
    assert {e.check: e.status for e in plan.entries} == {"osu": Status.NOT_NEEDED, "own": None}
    assert plan.verdicts == ()


def test_a_check_that_two_entries_choose_runs_once() -> None:
    plan = plan_of(OSU, OWN, BW, entries=(("osu", "own"), ("bw", "own")), facts=tools(osu=(), own=NODES, bw=()))
    assert {e.check: e.status for e in plan.entries} == {
        "osu": Status.NOT_NEEDED, "own": None, "bw": Status.NOT_NEEDED}
    assert Counter(t.check for t in plan.tests) == {"own": 6}


def test_a_tool_missing_on_some_nodes_is_not_run_there() -> None:
    plan = plan_of(OSU, facts=tools(osu=NODES[:3]))
    assert [(v.status, v.subject.nodes) for v in plan.verdicts] == [(Status.NOT_RUN, ("n4",))]
    assert len(plan.tests) == 3


def test_a_tool_missing_everywhere_is_not_run_naming_nodes() -> None:
    plan = plan_of(OSU, OWN, entries=(("osu", "own"),), facts=tools(osu=(), own=()))
    assert [(v.check, v.status) for v in plan.verdicts] == [("osu", Status.NOT_RUN)]
    assert "n[1-4]" in plan.verdicts[0].reason
    assert "own" in plan.verdicts[0].reason


def test_a_program_that_could_not_be_built_is_not_run_with_the_compilers_words() -> None:
    facts = Facts({n: NodeView(n) for n in NODES}, unbuilt={"prog": "mpicc on n1: error: mpi.h not found"})
    plan = plan_of(check("own", builds=("prog",)), facts=facts)
    assert plan.entries[0].status is Status.NOT_RUN
    assert "mpi.h not found" in plan.verdicts[0].reason


def test_destructive_checks_are_refused() -> None:
    plan = plan_of(check("wipe", impact=Impact.DESTRUCTIVE))
    assert plan.entries[0].status is Status.NOT_RUN
    assert plan.tests == ()


def test_a_check_whose_steps_raise_is_an_error_of_that_check_alone() -> None:
    def broken(context: Context) -> tuple[Step, ...]:
        raise KeyError("tool")
    plan = plan_of(check("bad", steps=broken), check("good"))
    assert Counter((v.check, v.status) for v in plan.verdicts) == {("bad", Status.ERROR): 4}
    assert Counter(t.check for t in plan.tests) == {"good": 4}


def test_steps_get_their_nodes_ranks_and_the_suites_environment() -> None:
    def steps(context: Context) -> tuple[Step, ...]:
        server = Step(("a",), Role.SERVER, ready=Ready(port=context.port_base))
        return (server, Step(("b",), Role.CLIENT, env={"X": "2"}))
    both = check("both", Scope.PAIR, steps=steps)
    hello = check("hello", Scope.GROUP, steps=lambda c: (Step(("h",), Role.RANKS, tasks_per_node=2),))
    suite = Suite("s", "s", (SuiteEntry(("both",)), SuiteEntry(("hello",))), env={"X": "1", "Y": "1"})
    plan = make_plan(suite, {"both": both, "hello": hello}, Facts({n: NodeView(n) for n in NODES}), NODES)
    pair = next(t for t in plan.tests if t.check == "both")
    assert [s.nodes for s in pair.steps] == [pair.subject.nodes[:1], pair.subject.nodes[1:]]
    assert pair.steps[1].env == {"X": "2", "Y": "1"}
    assert next(t for t in plan.tests if t.check == "hello").ranks == 8
    ports = [t.steps[0].ready.port for t in plan.tests if t.check == "both" and t.steps[0].ready]
    assert len(set(ports)) == len(ports)
    assert all(PORTS_FROM <= p < PORTS_FROM + PORTS for p in ports if p)


@pytest.mark.parametrize("steps", [
    (), (Step(()),), (Step(("-x",)),), (Step(("a\0b",)),), (Step(("c",), Role.CLIENT, nodes=("n1",)),),
    (Step(("s",), Role.SERVER, nodes=("n1", "n2")),),
    (Step(("c",), Role.CLIENT, nodes=("n1",)), Step(("s",), Role.SERVER, nodes=("n2",))),
])
def test_steps_that_no_script_can_run(steps: tuple[Step, ...]) -> None:
    assert unfit(steps)


def test_time_limit_covers_one_time_out_but_not_all_of_a_long_plan() -> None:
    long = check("pp", Scope.PAIR, steps=lambda c: (Step(("x",), timeout_s=600.0),), seconds=2.0)
    plan = plan_of(long, nodes=tuple(f"n{i}" for i in range(32)))
    assert 20 < plan.jobs[0].time_limit_min < 31 * 10
    assert time_limit_min((), (), 0.0) == 2


def test_where_tools_lie_differently_the_name_is_used() -> None:
    paths = {"n1": {"t": "/a/t"}, "n2": {"t": "/b/t"}, "n3": {"t": "/a/t"}}
    facts = Facts({n: NodeView(n) for n in NODES}, tools=paths)
    plan = plan_of(check("c", Scope.PAIR, needs=("t",)), facts=facts, nodes=("n1", "n2", "n3"))
    seen = {t.subject.nodes: context_of(check("c", needs=("t",)), facts, t).tools["t"] for t in plan.tests}
    assert seen == {("n1", "n2"): "t", ("n1", "n3"): "/a/t", ("n2", "n3"): "t"}


# --- facts ------------------------------------------------------------------------------------------------------


def test_facts_what_must_be_there_is_what_was_accepted() -> None:
    gpu, nic = Gpu("nvidia", 0), Nic("mlx5_0", rdma="mlx5_0")
    accepted = Inventory((Node("n1", gpus=(gpu, gpu)), Node("n2", gpus=(gpu, gpu))))
    seen = Inventory((Node("n1", gpus=(gpu,), nics=(nic,), tools={"t": "/t"}), Node("n2", unknown=("gpus",))))
    site = Site(nodes=(NodeGroup("ib", "n[1-9]", rdma=1),), tools={"u": Tool(path="/opt/u")})
    facts = gather(("n1", "n2", "n3"), seen, accepted, site, programs={}, unbuilt={}, shared_dir="/s")
    assert facts.views["n1"].gpus == 2
    assert facts.has == {"gpu": {"n1": True, "n2": None, "n3": None}, "rdma": {"n1": True, "n2": False, "n3": None},
                         "infiniband": {"n1": False, "n2": False, "n3": None},
                         "roce": {"n1": False, "n2": False, "n3": None},
                         "topology": {"n1": None, "n2": None, "n3": None}}
    assert facts.expected["gpu"] == dict.fromkeys(("n1", "n2"), "the accepted inventory")
    assert facts.expected["rdma"]["n3"] == "site.toml [nodes.ib]"
    assert facts.tools["n1"] == {"t": "/t", "u": "/opt/u"}


# --- doubtful tests again ---------------------------------------------------------------------------------------


def test_repetitions_are_alone_and_in_the_same_round() -> None:
    plan = plan_of(check("pp", Scope.PAIR))
    first = plan.tests[0]
    repeat = again(plan, [first.id], 2, {"pp": 1.0})
    assert repeat is not None
    alone = [t for t in repeat.tests if t.alone]
    load = [t for t in repeat.tests if not t.alone]
    assert [t.repeats for t in alone] == [first.id]
    assert {t.pairs_at_once for t in alone} == {1}
    assert Counter(t.repeats for t in load) == dict.fromkeys(plan.jobs[0].stages[0].tests, 1)
    assert {t.pairs_at_once for t in load} == {2}
    ids = [t.id for t in (*plan.tests, *repeat.tests)]
    assert len(ids) == len(set(ids))
    attempts = Counter((t.repeats, t.attempt) for t in repeat.tests)
    assert set(attempts.values()) == {1}
    assert min(t.attempt for t in repeat.tests) == 2
    assert Counter(i for s in repeat.job.stages for i in s.tests) == {t.id: 1 for t in repeat.tests}
    longer = replace(plan, tests=(*plan.tests, *repeat.tests))
    second = again(longer, [first.id], 3, {"pp": 1.0})
    assert second is not None
    assert {t.id for t in second.tests}.isdisjoint(t.id for t in longer.tests)
    assert sorted(t.attempt for t in second.tests if t.repeats == first.id) == [4, 5]


def test_many_doubtful_tests_are_repeated_once_each_way_and_none_is_no_job() -> None:
    plan = plan_of(check("pp", Scope.PAIR), nodes=tuple("abcdefgh"))
    repeat = again(plan, [t.id for t in plan.tests], 2, {})
    assert repeat is not None
    assert Counter(t.alone for t in repeat.tests) == {True: 28, False: 28}
    assert again(plan, [], 2, {}) is None
    assert again(plan, ["t9999"], 2, {}) is None


def test_a_group_has_nothing_beside_it_and_is_only_repeated() -> None:
    plan = plan_of(check("all", Scope.GROUP))
    repeat = again(plan, ["t0001"], 2, {})
    assert repeat is not None
    assert [t.alone for t in repeat.tests] == [True]
    assert repeat.tests[0].pairs_at_once is None




def job_steps(context: Context) -> tuple[Step, ...]:
    return tuple(Step(("true",), Role.JOB, job=JobRequest(gpus=n), timeout_s=30.0) for n in (1, 7))


def test_tests_that_are_jobs_follow_the_suites_job_and_know_each_other() -> None:
    plan = plan_of(check("a"), replace(check("b"), steps=job_steps))
    suite, *own = plan.jobs
    assert suite.kind == "suite" and {t.check for t in plan.tests if t.job == suite.number} == {"a"}
    assert [(j.number, j.nodes, j.step, j.meets) for j in own] == [
        (2, ("n1",), 0, (3,)), (3, ("n1",), 1, (2,)), (4, ("n2",), 0, (5,)), (5, ("n2",), 1, (4,)),
        (6, ("n3",), 0, (7,)), (7, ("n3",), 1, (6,)), (8, ("n4",), 0, (9,)), (9, ("n4",), 1, (8,))]
    assert {t.job for t in plan.tests if t.check == "b"} == {j.number for j in own if j.step == 0}


def test_a_suite_of_such_tests_only_has_no_job_with_all_nodes() -> None:
    plan = plan_of(replace(check("b"), steps=job_steps))
    assert {j.kind for j in plan.jobs} == {"own"} and plan.jobs[0].number == 1


def test_a_job_beside_other_steps_or_without_a_request_is_that_checks_error() -> None:
    for steps in ((Step(("true",), Role.JOB, job=JobRequest()), Step(("true",))), (Step(("true",), Role.JOB),)):
        plan = plan_of(replace(check("b"), steps=lambda context, steps=steps: steps))
        assert not plan.tests and all(v.status is Status.ERROR and "job of its own" in v.reason for v in plan.verdicts)


def test_no_topology_in_slurm_is_not_applicable() -> None:
    plan = plan_of(replace(check("l", Scope.CLUSTER), needs=("topology",)),
                   facts=facts_with(topology=dict.fromkeys(NODES, False)))
    assert plan.entries[0].status is Status.NOT_APPLICABLE
    assert "no two leaf switches or blocks" in plan.entries[0].reason


def test_what_slurm_does_not_give_is_said_before_any_job() -> None:
    facts = Facts({n: NodeView(n) for n in NODES}, slurm_gpus={"n1": 8, "n2": 0, "n3": 7})
    plan = plan_of(replace(check("b"), steps=job_steps), facts=facts)
    assert [(v.status, v.subject.nodes, v.reason) for v in plan.verdicts] == [
        (Status.FAIL, ("n2",), "slurm.conf gives n2 0 GPUs (Gres=), the inventory has 8"),
        (Status.FAIL, ("n3",), "slurm.conf gives n3 7 GPUs (Gres=), the inventory has 8")]
    assert {n for j in plan.jobs for n in j.nodes} == {"n1", "n4"}


def test_no_two_jobs_are_on_a_node_of_a_partition_of_whole_nodes() -> None:
    facts = Facts({n: NodeView(n) for n in NODES}, whole_nodes="main")
    one = replace(check("one"), steps=lambda c: (Step(("true",), Role.JOB, job=JobRequest()),))
    spread = replace(check("spread", Scope.CLUSTER),
                     steps=lambda c: (Step(("true",), Role.JOB, job=JobRequest(anywhere=2)),))
    plan = plan_of(replace(check("b"), steps=job_steps), one, spread, check("plain"), facts=facts)
    assert {(v.check, v.status) for v in plan.verdicts} == {("b", Status.NOT_RUN)}
    assert all("partition main" in v.reason for v in plan.verdicts) and len(plan.verdicts) == 4
    assert Counter(t.check for t in plan.tests) == {"one": 4, "spread": 1, "plain": 4}


def test_jobs_of_tests_have_time_to_wait_for_each_other() -> None:
    plan = plan_of(replace(check("b"), steps=job_steps))
    assert all(MEET_S + 30 <= job.time_limit_min * 60 <= MEET_S + 180 for job in plan.jobs)


@pytest.mark.parametrize(("gpu", "why"), [
    (Gpu("", pci="0000:3b:00.0", device_file="/dev/nvidia0"), ""),
    (Gpu("", pci="0000:3b:00.0"), "device files of its GPUs are not known"),
    (Gpu("", pci="", device_file="/dev/nvidia0"), "PCI address"),
    (Gpu("", pci="0000:3b:00.0", device_file="/dev/nvidia0", mig="Enabled"), "cut into MIG devices"),
    (Gpu("", pci="0000:3b:00.0", device_file="/dev/nvidia0", mig_devices=(MigDevice(0),)), "cut into MIG devices")])
def test_why_the_device_files_of_a_node_are_not_given_to_checks(gpu: Gpu, why: str) -> None:
    view = node_view(Node("n1", gpus=(gpu,)))
    assert bool(view.gpu_files) is not bool(why)
    assert why in view.gpu_files_why and bool(view.gpu_files_why) is bool(why)
    assert node_view(Node("n1")).gpu_files_why == ""


def test_a_node_whose_device_files_are_not_known_gets_no_jobs() -> None:
    binding = load_checks()["gpu_binding"]
    views = {"n1": NodeView("n1", gpus=2, gpu_files=("/dev/nvidia0", "/dev/nvidia1")),
             "n2": NodeView("n2", gpus=2, gpu_files_why="its GPUs are cut into MIG devices, which are not tested"),
             "n3": NodeView("n3")}
    plan = plan_of(binding, facts=Facts(views, has={"gpu": dict.fromkeys(views, True)}), nodes=tuple(views))
    assert [(v.subject.nodes, v.status) for v in plan.verdicts] == [(("n2",), Status.ERROR)]
    assert "cut into MIG" in plan.verdicts[0].reason
    assert {n for j in plan.jobs for n in j.nodes} == {"n1", "n3"}      # n3: what no inventory tells is shown as there


@pytest.mark.parametrize(("cpus", "near", "asked"), [
    (4, ((0, 1), (2, 3)), True), (4, ((0, 1, 2, 3), (0, 1, 2, 3)), False), (4, (), False), (None, ((0,), (1,)), False)])
def test_near_cores_are_asked_for_where_others_are_far(cpus: "int | None", near: "tuple[tuple[int, ...], ...]",
                                                       asked: bool) -> None:
    view = NodeView("n1", gpus=2, gpu_files=("/dev/nvidia0", "/dev/nvidia1"), cpus=cpus, gpu_cpus=near)
    steps = load_checks()["gpu_binding"].steps(Context((view,), params={"jobs": "each"}))
    assert [(s.job.gpus, s.job.cpus, s.job.near_gpus) for s in steps if s.job] == [(1, 1, asked)] * 2

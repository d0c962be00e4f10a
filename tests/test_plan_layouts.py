"""Layouts of tests over 1 to 1,000 nodes: everything once, in few tests, and nothing left out without a word."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from stepped import make_plan

from hpcadmin import records
from hpcadmin.check import Check, Context, Impact, Layout, NodeView, PortView, Role, Scope, Status, Step
from hpcadmin.errors import SiteError, UsageError
from hpcadmin.inventory import node_view
from hpcadmin.model import Cpu, Gpu, Nic, Node, NumaNode
from hpcadmin.plan import context_of
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_layouts import Left, Sampling, Turn, group_sizes, turns
from hpcadmin.plan_pairs import count_of, rounds
from hpcadmin.registry import Suite, SuiteEntry, load_checks, load_suite
from hpcadmin.rundata import Plan
from hpcadmin.site import Site

CHECKS = load_checks()
TOOLS = ("ib_write_bw", "all_reduce_perf", "osu_bw", "osu_allreduce", "nvidia-smi")


def view(name: str, rails: int = 2, **more: object) -> NodeView:
    ports = tuple(PortView(f"mlx5_{r}", 1, "InfiniBand", 400.0, "ACTIVE", numa=r // 4, rail=r, gpu=r)
                  for r in range(rails))
    return NodeView(name, f"10.0.0.{name[1:]}", name, gpus=8, gpu_model="NVIDIA H100 80GB HBM3",
                    gpu_pci=tuple(f"0000:{16 + i:02x}:00.0" for i in range(8)),
                    rdma_devices=tuple(p.device for p in ports), ports=ports, **more)  # type: ignore[arg-type]


def facts_of(views: Sequence[NodeView]) -> Facts:
    names = [v.name for v in views]
    return Facts({v.name: v for v in views}, has={w: dict.fromkeys(names, True) for w in ("gpu", "rdma")},
                 tools={n: {t: f"/opt/{t}" for t in (*TOOLS, "numactl")} for n in names})


def plan_of(count: int, *entries: SuiteEntry, rails: int = 2, pairs: str | int = "all",
            views: Sequence[NodeView] | None = None) -> Plan:
    views = views or [view(f"n{i}", rails) for i in range(1, count + 1)]
    return make_plan(Suite("s", "s", entries, pairs=pairs), CHECKS, facts_of(views), [v.name for v in views])


def entry(check: str, *over: Layout, **params: str | int) -> SuiteEntry:
    return SuiteEntry((check,), {check: params} if params else {}, over)


def layouts(plan: Plan) -> Counter[object]:
    return Counter(t.layout for t in plan.tests)


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (2, [2]), (3, [2, 3]), (8, [2, 4, 8]),
                                              (1000, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000])])
def test_groups_grow_to_all_nodes(count: int, sizes: list[int]) -> None:
    assert group_sizes(count) == sizes
    plan = plan_of(count, entry("nccl_allreduce", Layout.GROUPS, Layout.ALL))
    assert [len(t.subject.nodes) for t in plan.tests] == sizes
    assert [s.tests for s in plan.jobs[0].stages] == [(t.id,) for t in plan.tests]
    assert plan.tests[-1].ranks == 8 * count


@pytest.mark.parametrize("count", [2, 3, 8])
def test_every_pair_on_every_rail(count: int) -> None:
    plan = plan_of(count, entry("ib_write_bw", Layout.RAILS))
    pairs = count * (count - 1) // 2
    assert Counter((t.rail, t.ports) for t in plan.tests) == {(0, ("mlx5_0/1",)): pairs, (1, ("mlx5_1/1",)): pairs}
    assert len({(t.subject.nodes, t.rail) for t in plan.tests}) == 2 * pairs
    for stage in plan.jobs[0].stages:
        used = [n for t in plan.tests if t.id in stage.tests for n in t.subject.nodes]
        assert len(used) == len(set(used))
    one = plan.tests[-1]
    assert str(one.subject).endswith(" rail 1") and one.steps[0].argv[1:3] == ("-d", "mlx5_1")
    assert one.pairs_at_once == count // 2


@pytest.mark.parametrize("count", [2, 3, 8])
def test_each_port_once(count: int) -> None:
    plan = plan_of(count, entry("ib_write_bw", Layout.PORTS))
    seen = Counter((n, t.ports[0]) for t in plan.tests for n in t.subject.nodes)
    assert set(seen) == {(f"n{i}", f"mlx5_{r}/1") for i in range(1, count + 1) for r in (0, 1)}
    assert max(seen.values()) == (1 if count % 2 == 0 else 2)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_loopback_and_between_the_ports_of_a_node(count: int) -> None:
    plan = plan_of(count, entry("ib_write_bw", Layout.LOOPBACK, Layout.NODE), rails=4)
    assert layouts(plan) == {Layout.NODE: 4 * count, Layout.LOOPBACK: 4 * count}
    assert plan.verdicts == ()
    ring = [t for t in plan.tests if t.layout is Layout.NODE and t.subject.nodes == ("n1",)]
    assert [t.ports for t in ring] == [(f"mlx5_{r}/1", f"mlx5_{(r + 1) % 4}/1") for r in range(4)]
    assert [step.argv[2] for step in ring[3].steps] == ["mlx5_3", "mlx5_0"]
    assert {step.nodes for t in ring for step in t.steps} == {("n1",)}
    own = next(t for t in plan.tests if t.layout is Layout.LOOPBACK)
    assert own.ports == ("mlx5_0/1",) and [step.argv[2] for step in own.steps] == ["mlx5_0"] * 2
    for stage in plan.jobs[0].stages:       # a node does one thing at a time
        assert Counter(n for t in plan.tests if t.id in stage.tests for n in t.subject.nodes).most_common(1)[0][1] == 1


def test_one_port_has_nothing_between_ports_and_one_gpu_nothing_between_gpus() -> None:
    plan = plan_of(2, entry("ib_write_bw", Layout.NODE), rails=1)
    assert {(v.status, v.subject.nodes) for v in plan.verdicts} == {
        (Status.NOT_APPLICABLE, ("n1",)), (Status.NOT_APPLICABLE, ("n2",))}
    single = [replace(view("n1"), gpus=1), view("n2")]
    plan = plan_of(2, entry("nccl_allreduce", Layout.NODE), views=single)
    assert [t.subject.nodes for t in plan.tests] == [("n2",)]
    assert [(v.status, v.subject.nodes) for v in plan.verdicts] == [(Status.NOT_APPLICABLE, ("n1",))]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_nccl_over_everything(count: int) -> None:
    plan = plan_of(count, entry("nccl_allreduce", Layout.ALL, Layout.RAILS, Layout.PAIRS, Layout.NODE))
    assert layouts(plan) == {Layout.NODE: count, Layout.PAIRS: count * (count - 1) // 2, Layout.RAILS: 2, Layout.ALL: 1}
    assert list(dict.fromkeys(t.layout for t in plan.tests)) == [Layout.NODE, Layout.PAIRS, Layout.RAILS, Layout.ALL]
    rail = next(t for t in plan.tests if t.rail == 1)
    step = rail.steps[0]
    assert rail.subject.nodes == tuple(f"n{i}" for i in range(1, count + 1)) and rail.ranks == count
    assert (step.tasks_per_node, step.gpus_per_task) == (1, 8)
    assert step.env["CUDA_VISIBLE_DEVICES"] == "1" and step.env["NCCL_IB_HCA"] == "=mlx5_1:1"
    node = next(t for t in plan.tests if t.layout is Layout.NODE)
    assert (node.ranks, node.steps[0].tasks_per_node) == (8, 8) and "NCCL_IB_HCA" not in node.steps[0].env


@pytest.mark.deep
def test_a_thousand_nodes_have_few_tests_and_take_little_memory() -> None:
    views = [view(f"n{i}", 8) for i in range(1, 1001)]
    tracemalloc.start()
    plan = plan_of(1000, entry("ib_write_bw", Layout.PAIRS, Layout.PORTS), entry("nccl_allreduce", Layout.GROUPS,
                   Layout.NODE, Layout.RAILS), pairs=4, views=views)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert layouts(plan) == {Layout.PAIRS: 4 * 500, Layout.PORTS: 8 * 500, Layout.NODE: 1000, Layout.RAILS: 8,
                             Layout.GROUPS: 10}
    assert peak < 64 << 20
    assert max(len(s.tests) for s in plan.jobs[0].stages) == 500
    assert max(len(s.tests) for s in plan.jobs[0].stages if "within" in s.name) == 256
    large = plan.tests[-1].steps[0]
    assert "NCCL_DEBUG" not in large.env and large.under[:2] == ("/bin/sh", "-c") and large.under[-1] == "16"
    assert next(t for t in plan.tests if t.layout is Layout.NODE).steps[0].env["NCCL_DEBUG"] == "INFO"


def test_more_tests_than_anybody_can_run_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 250000 tests on 1000 nodes"):
        plan_of(1000, entry("osu_bw"))


@pytest.mark.parametrize("count", [3, 7, 9])
def test_of_few_rounds_nobody_is_left_out(count: int) -> None:
    assert {n for r in rounds(range(count), 1) for pair in r for n in pair} == set(range(count))
    assert len(list(rounds(range(count), 1))) == count_of(count, 1) == 2
    assert len(list(rounds(range(count - 1), 1))) == 1


# --- what is left out


def left(check: str, layout: Layout, views: Sequence[NodeView]) -> list[Left]:
    found = turns(CHECKS[check], layout, [v.name for v in views], {v.name: v for v in views}, Sampling())
    return [one for one in found if not isinstance(one, Turn)]


def test_a_node_without_a_rail_and_one_that_calls_it_otherwise() -> None:
    other = replace(view("n3"), ports=(view("n3").ports[0], replace(view("n3").ports[1], device="mlx5_7")))
    down = replace(view("n4"), ports=(view("n4").ports[0], replace(view("n4").ports[1], state="DOWN")))
    views = [view("n1"), view("n2"), other, down]
    assert [(one.nodes, one.device, one.reason) for one in left("nccl_allreduce", Layout.RAILS, views)] == [
        (("n4",), "rail 1", "no port of rail 1 is up"),
        (("n3",), "rail 1", "rail 1 is mlx5_7/1 with GPU 1, on most nodes mlx5_1/1 with GPU 1")]
    assert [one.nodes for one in left("ib_write_bw", Layout.RAILS, views)] == [("n4",)]     # a pair may differ
    plan = plan_of(4, entry("ib_write_bw", Layout.RAILS), views=views)
    assert ("mlx5_1/1", "mlx5_7/1") in {t.ports for t in plan.tests}
    assert [(v.status, str(v.subject)) for v in plan.verdicts] == [(Status.NOT_RUN, "n4 rail 1")]


def test_unknown_ports_and_gpus_are_said() -> None:
    bare = [NodeView("n1"), NodeView("n2")]
    for layout in (Layout.PORTS, Layout.LOOPBACK, Layout.NODE):
        assert [one.nodes for one in left("ib_write_bw", layout, bare)] == [("n1", "n2")]
    assert "not known" in left("ib_write_bw", Layout.RAILS, bare)[0].reason
    far = [replace(view(n), ports=tuple(replace(p, gpu=None) for p in view(n).ports)) for n in ("n1", "n2")]
    assert {one.reason for one in left("nccl_allreduce", Layout.RAILS, far)} == {
        "which GPU is near mlx5_0/1 is not known", "which GPU is near mlx5_1/1 is not known"}
    each = Check("g", "G", Scope.GPU, lambda c: (Step(("/bin/true",)),), lambda o, c: [])
    found = list(turns(each, Layout.GPUS, ["n1", "n2"], {"n1": view("n1"), "n2": NodeView("n2")}, Sampling()))
    assert isinstance(found[0], Left) and isinstance(found[1], Turn)
    assert [(p.nodes, p.gpu, p.device) for p in found[1].places] == [(("n1",), i, f"GPU {i}") for i in range(8)]


def test_checks_of_each_gpu_and_each_port_run_in_turn_on_their_nodes() -> None:
    def steps(context: Context) -> tuple[Step, ...]:
        return (Step(("/bin/echo", str(context.gpu), *(p.name for p in context.ports))),)
    checks = {s.value: Check(s.value, s.value, s, steps, lambda o, c: []) for s in (Scope.GPU, Scope.PORT)}
    suite = Suite("s", "s", tuple(SuiteEntry((name,)) for name in checks))
    plan = make_plan(suite, checks, facts_of([view("n1"), view("n2")]), ("n1", "n2"))
    assert [s.kind for s in plan.jobs[0].stages] == ["nodes"]
    assert [t.steps[0].argv[1:] for t in plan.tests if t.subject.nodes == ("n1",)] == [
        *((str(i),) for i in range(8)), ("None", "mlx5_0/1"), ("None", "mlx5_1/1")]


# --- suites


def suite_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_over_in_a_suite(tmp_path: Path) -> None:
    text = ('[[entry]]\ncheck = "ib_write_bw"\nover = ["rails", "ports"]\n[[entry]]\ncheck = "ib_write_bw"\n'
            'over = "rails"\nparams = { gpu = "near" }\n'
            '[[entry]]\none_of = ["osu_bw", "mpi_pingpong"]\nover = "pairs"\n')
    suite = load_suite(suite_file(tmp_path, text), Site(), CHECKS)
    assert [e.over for e in suite.entries] == [(Layout.RAILS, Layout.PORTS), (Layout.RAILS,), (Layout.PAIRS,)]
    views = [view("n1"), view("n2")]
    plan = make_plan(suite, CHECKS, facts_of(views), ("n1", "n2"))
    gpu = [t for t in plan.tests if t.params]
    assert len([t for t in plan.tests if t.check == "ib_write_bw"]) == 6 and len(gpu) == 2
    assert {t.steps[0].argv[-3] for t in gpu} == {"--use_cuda=0", "--use_cuda=1"}
    assert next(e.tests for e in plan.entries if e.check == "ib_write_bw") == 6
    again = records.loads(Plan, records.dumps(plan), where="plan.json")
    assert again == plan and context_of(CHECKS["ib_write_bw"], facts_of(views), gpu[0]).params["gpu"] == "near"


@pytest.mark.parametrize(("over", "why"), [
    ('"everywhere"', "'everywhere' is no layout of osu_bw; it has: pairs, rails"), ('"groups"', "no layout of osu_bw"),
    ('["pairs", "pairs"]', "different layouts"), ("3", "a layout or a list"), ("[3]", "a layout or a list")])
def test_what_a_suite_may_not_ask_for(tmp_path: Path, over: str, why: str) -> None:
    name = suite_file(tmp_path, f'[[entry]]\ncheck = "osu_bw"\nover = {over}\n')
    with pytest.raises(SiteError, match=why) as raised:
        load_suite(name, Site(), CHECKS)
    assert "mine.toml:3" in str(raised.value)


# --- again after the load


def counting(name: str = "count") -> Check:
    return Check(name, name, Scope.NODE, lambda c: (Step(("/bin/true",)),), lambda o, c: [], again_after_load=True)


def test_node_checks_before_and_after_the_load() -> None:
    load = Check("load", "Load", Scope.GROUP, lambda c: (Step(("/bin/true",), Role.RANKS),), lambda o, c: [],
                 impact=Impact.LOAD)
    suite = Suite("s", "s", (SuiteEntry(("count",)), SuiteEntry(("load",))))
    plan = make_plan(suite, {"count": counting(), "load": load}, facts_of([view("n1"), view("n2")]), ("n1", "n2"))
    assert [s.name for s in plan.jobs[0].stages] == ["node checks", "load", "node checks after the load"]
    assert [(t.check, t.subject.nodes, t.when, t.before) for t in plan.tests] == [
        ("count", ("n1",), "before", ""), ("count", ("n2",), "before", ""), ("load", ("n1", "n2"), "", ""),
        ("count", ("n1",), "after", "t0001"), ("count", ("n2",), "after", "t0002")]


def test_without_a_load_there_is_one_reading() -> None:
    light = Check("light", "Light", Scope.GROUP, lambda c: (Step(("/bin/true",), Role.RANKS),), lambda o, c: [])
    suite = Suite("s", "s", (SuiteEntry(("count",)), SuiteEntry(("light",))))
    plan = make_plan(suite, {"count": counting(), "light": light}, facts_of([view("n1")]), ("n1",))
    assert [(t.check, t.when) for t in plan.tests] == [("count", ""), ("light", "")]


def test_a_look_beside_the_first_load_of_each_nodes_gpus() -> None:
    plan = plan_of(3, entry("nccl_allreduce", Layout.RAILS, Layout.GROUPS), entry("gpu_pcie"))
    stages = {s.name: [t for t in plan.tests if t.id in s.tests] for s in plan.jobs[0].stages}
    assert {name: [(t.check, t.subject.nodes) for t in tests[1:]] for name, tests in stages.items()} == {
        "nccl_allreduce rail 0": [], "nccl_allreduce rail 1": [],
        "nccl_allreduce 2 nodes": [("gpu_pcie", ("n1",)), ("gpu_pcie", ("n2",))],
        "nccl_allreduce 3 nodes": [("gpu_pcie", ("n3",))]}
    within = plan_of(2, entry("gpu_pcie"), entry("nccl_allreduce", Layout.NODE))
    assert [len(s.tests) for s in within.jobs[0].stages] == [4] and within.verdicts == ()
    nothing = plan_of(2, entry("gpu_pcie"), entry("ib_write_bw"))
    assert [(v.status, v.subject.nodes) for v in nothing.verdicts] == [
        (Status.NOT_RUN, ("n1",)), (Status.NOT_RUN, ("n2",))]


# --- what the inventory tells of ports


def test_ports_of_a_node() -> None:
    cpu = Cpu(numa=(NumaNode(0, (0, 1)), NumaNode(1, (2, 3))))
    gpus = tuple(Gpu("nvidia", i, "NVIDIA H100", numa=i) for i in range(2))
    nics = (Nic("mlx5_9", "mlx5_9", 1, "", "InfiniBand", "ACTIVE", numa=1, gpu_relations=("SYS", "PIX")),
            Nic("mlx5_0", "mlx5_0", 1, "ens1", "Ethernet", "DOWN", numa=0, gpu_relations=("PIX", "SYS")),
            Nic("mlx5_5", "mlx5_5", 1, "ens2", "Ethernet", "ACTIVE", numa=0, gpu_relations=("SYS", "SYS")),
            Nic("mlx5_6", "mlx5_6", 1, pf="0000:01:00.0"), Nic("eth0", netdev="eth0"))
    found = node_view(Node("n1", cpu=cpu, gpus=gpus, nics=nics)).ports
    assert [(p.name, p.rail, p.gpu, p.numa, p.cpus, p.up) for p in found] == [
        ("mlx5_9/1", 1, 1, 1, (2, 3), True), ("mlx5_0/1", 0, 0, 0, (0, 1), False),
        ("mlx5_5/1", None, None, 0, (0, 1), True)]
    bare = node_view(Node("n1", nics=nics[:2])).ports
    assert [(p.rail, p.gpu) for p in bare] == [(0, None), (1, None)]
    assert node_view(Node("n1", nics=nics[3:])).ports[0].device == "mlx5_6"


@pytest.mark.parametrize(("one", "other", "wanted"), [
    ("ACTIVE", "ACTIVE", True), ("ACTIVE", "DOWN", False), ("", "ACTIVE", True)])
def test_rdma_is_expected_where_every_node_has_a_port_that_is_up(one: str, other: str, wanted: bool) -> None:
    nodes = tuple(NodeView(n, rdma_devices=("mlx5_0",), ports=(PortView("mlx5_0", state=state),))
                  for n, state in (("n1", one), ("n2", other)))
    assert Context(nodes).rdma_expected is wanted
    assert not Context(nodes[:1]).rdma_expected and not Context((nodes[0], NodeView("n3"))).rdma_expected
    assert not Context((nodes[0], replace(nodes[1], simulated="8xH100"))).rdma_expected
    assert not Context(nodes, {"rdma": "no"}).rdma_expected and Context(nodes, {"rdma": "yes"}).rdma_expected
    assert Context((nodes[0], NodeView("n3", rdma_devices=("mlx5_0",)))).rdma_expected is (one == "ACTIVE" or not one)


# --- the documentation

PAGE = Path(__file__).parent.parent / "docs" / "suites.md"


def test_the_suite_in_the_documentation_can_be_run(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    plan = make_plan(load_suite(suite_file(tmp_path, text), Site(), CHECKS), CHECKS,
                     facts_of([view("n1"), view("n2")]), ("n1", "n2"))
    assert Counter(t.check for t in plan.tests) == {"nvidia_smi": 4, "ib_write_bw": 5, "osu_bw": 1, "nccl_allreduce": 6}
    assert plan.jobs[0].stages[-1].name == "node checks after the load"


def test_the_documentation_has_every_layout_and_what_is_read_twice() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.split("## Layouts")[1].split("\n## ")[0]
    rows = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert rows == [layout.value for layout in Layout]
    twice = {name for name, check in CHECKS.items() if check.again_after_load}
    assert all(f"`{name}`" in text.split("## Before and after")[1] for name in twice)

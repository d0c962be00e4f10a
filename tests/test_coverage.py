"""Expected coverage: everything that must be tested is counted once, as tested, failed, or not tested and why."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from stepped import make_plan
from test_plan_work import CHECKS, facts_of, view

from hpcadmin.check import Layout, Status, Subject, Verdict
from hpcadmin.coverage import GPUS, NODES, PATHS, PORTS, coverage, coverage_lines, expected_of
from hpcadmin.model import Gpu, Inventory, Nic, Node
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.run_plan import keep_coverage
from hpcadmin.rundata import Covered, Expected, NotTested, Plan, SkippedNode, read_run
from hpcadmin.site import NodeGroup, Site

NAMES = ["n1", "n2", "n3", "n4"]
ENTRIES = (SuiteEntry(("ib_write_bw",), over=(Layout.PAIRS, Layout.PORTS)),
           SuiteEntry(("nccl_allreduce",), over=(Layout.NODE,)))
LEAVES = {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}
OLD = {"expected": (Expected((*NAMES, "n5"), 8, tuple(f"mlx5_{i}/1" for i in range(8))),), "leaves": LEAVES}


def plan_of(*entries: SuiteEntry) -> Plan:
    facts = facts_of([view(n) for n in NAMES])
    plan = make_plan(Suite("s", "s", entries or ENTRIES), CHECKS, facts, NAMES,
                     skipped=[SkippedNode("n5", "drained: fan")])
    return replace(plan, **OLD)  # type: ignore[arg-type]


def passes(plan: Plan) -> list[Verdict]:
    return [*plan.verdicts, *(Verdict(t.check, t.subject, Status.PASS, test=t.id) for t in plan.tests)]


def by_kind(found: tuple[Covered, ...]) -> dict[str, Covered]:
    return {one.kind: one for one in found}


def test_all_that_ran_is_tested_and_a_skipped_node_is_not_with_all_that_is_in_it() -> None:
    plan = plan_of()
    found = by_kind(coverage(plan, passes(plan)))
    assert [(k, c.expected, c.tested, len(c.failed)) for k, c in found.items()] == [
        (NODES, 5, 4, 0), (GPUS, 40, 32, 0), (PORTS, 40, 32, 0), (PATHS, 1, 1, 0)]
    assert found[NODES].not_tested == (NotTested("drained: fan", ("n5",)),)
    assert found[GPUS].not_tested == (NotTested("drained: fan", tuple(f"n5 GPU {i}" for i in range(8))),)


def test_what_no_test_is_about_is_said() -> None:
    plan = plan_of(SuiteEntry(("ib_write_bw",)))
    found = by_kind(coverage(plan, passes(plan)))
    assert (found[GPUS].tested, found[PORTS].tested) == (0, 0)      # pairs name no port: which one was used is not told
    assert found[GPUS].not_tested[0].reason == "no test of this suite is about it"


def test_one_bad_node_is_failed_and_its_partners_are_not() -> None:
    plan = plan_of(SuiteEntry(("ib_write_bw",)))
    verdicts = [replace(v, status=Status.FAIL) if "n2" in v.subject.nodes and v.test else v for v in passes(plan)]
    found = by_kind(coverage(plan, verdicts))
    assert found[NODES].failed == ("n2",) and found[NODES].tested == 4
    assert found[PATHS].failed == ()


def test_a_gpu_that_a_verdict_names_is_failed_and_the_others_of_its_node_are_tested() -> None:
    plan = plan_of()
    test = next(t for t in plan.tests if t.check == "nccl_allreduce" and t.subject.nodes == ("n1",))
    bad = Verdict("nvidia_smi", Subject(("n1",), "GPU 5"), Status.FAIL, "ECC", test=test.id)
    found = by_kind(coverage(plan, [*passes(plan), bad]))
    assert found[GPUS].failed == ("n1 GPU 5",) and found[GPUS].tested == 32


def test_what_a_group_says_of_one_node_is_not_the_others() -> None:
    plan = plan_of(SuiteEntry(("nccl_allreduce",), over=(Layout.ALL,)))
    bad = Verdict("nccl_allreduce", Subject(("n3",)), Status.FAIL, "slow", test=plan.tests[0].id)
    assert by_kind(coverage(plan, [*passes(plan), bad]))[NODES].failed == ("n3",)


def test_errors_and_what_was_not_run_are_not_tested_with_their_reason() -> None:
    plan = plan_of(SuiteEntry(("nccl_allreduce",), over=(Layout.NODE,)))
    verdicts = [replace(v, status=Status.ERROR, reason="timed out") if v.subject.nodes == ("n1",) else
                replace(v, status=Status.NOT_RUN, reason="the run was interrupted") if v.subject.nodes == ("n2",) else v
                for v in passes(plan)]
    found = by_kind(coverage(plan, verdicts))
    assert {r.reason: r.what for r in found[NODES].not_tested} == {
        "nccl_allreduce: timed out": ("n1",), "nccl_allreduce: the run was interrupted": ("n2",),
        "drained: fan": ("n5",)}
    assert found[GPUS].tested == 16


def test_a_repetition_decides() -> None:
    plan = plan_of(SuiteEntry(("nccl_allreduce",), over=(Layout.NODE,)))
    first = plan.tests[0]
    again = replace(first, id="t0099", repeats=first.id, attempt=2)
    verdicts = [v for v in passes(plan) if v.test != first.id]
    found = by_kind(coverage(replace(plan, tests=(*plan.tests, again)),
                             [*verdicts, Verdict(first.check, first.subject, Status.PASS, test=again.id)]))
    assert found[NODES].tested == 4


@settings(max_examples=25)
@given(st.data())
def test_everything_expected_is_counted_once(data: st.DataObject) -> None:
    plan = plan_of()
    statuses = st.sampled_from([Status.PASS, Status.FAIL, Status.ERROR, Status.NOT_RUN, Status.WARN, None])
    verdicts = []
    for verdict in passes(plan):
        status = data.draw(statuses)
        if status is not None:
            verdicts.append(replace(verdict, status=status, reason="why"))
    for one in coverage(plan, verdicts):
        lost = [name for part in one.not_tested for name in part.what]
        assert one.tested + len(lost) == one.expected and len(set(lost)) == len(lost)
        assert len(one.failed) <= one.tested and not set(one.failed) & set(lost)
        assert all(part.reason for part in one.not_tested)


def test_what_must_be_there_is_what_was_accepted_and_what_the_site_wants() -> None:
    def node(name: str, gpus: int, ports: int, **more: object) -> Node:
        return Node(name, gpus=tuple(Gpu("nvidia", i) for i in range(gpus)),
                    nics=tuple(Nic(f"ib{i}", f"mlx5_{i}", 1) for i in range(ports)), **more)  # type: ignore[arg-type]
    accepted = Inventory((node("n1", 8, 2), node("n2", 0, 0, unknown=("gpus", "nics"))))
    seen = Inventory((node("n1", 7, 2), node("n3", 4, 1)))
    site = Site(nodes=(NodeGroup("gpu", "n[3-4]", gpus=8, rdma=2),))
    found = {n: (e.gpus, e.ports) for e in expected_of(["n1", "n2", "n3", "n4"], accepted, seen, site) for n in e.nodes}
    assert found == {"n1": (8, ("mlx5_0/1", "mlx5_1/1")), "n2": (None, None), "n3": (8, ("mlx5_0/1", "port 2 of 2")),
                     "n4": (8, ("port 1 of 2", "port 2 of 2"))}


def test_it_is_kept_and_shown(tmp_path: Path) -> None:
    plan = plan_of()
    keep_coverage(tmp_path, plan, passes(plan))
    keep_coverage(tmp_path, None, ())           # a run that ended before it had a plan
    (tmp_path / "manifest.json").write_text(
        '{"run_id": "r", "suite": "s", "nodes": [], "state": "running", "started": ""}')
    found = read_run(tmp_path).coverage
    assert found == coverage(plan, passes(plan))
    assert coverage_lines(found) == [
        "nodes: 4 of 5 tested, 0 failed, 1 not tested", "  not tested: n5: drained: fan",
        "GPUs: 32 of 40 tested, 0 failed, 8 not tested",
        "  not tested: n5 GPU 0, n5 GPU 1, n5 GPU 2, n5 GPU 3, n5 GPU 4, n5 GPU 5 and 2 more: drained: fan",
        "HCA ports: 32 of 40 tested, 0 failed, 8 not tested",
        "  not tested: n5 mlx5_0/1, n5 mlx5_1/1, n5 mlx5_2/1, n5 mlx5_3/1, n5 mlx5_4/1, n5 mlx5_5/1 and 2 more: "
        "drained: fan",
        "leaf-to-leaf paths: 1 of 1 tested, 0 failed, 0 not tested"]

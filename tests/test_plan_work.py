"""Steps that are worked out late: the same as before, once for each kind of nodes, and never lost."""

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcadmin.check import Check, Context, Layout, NodeView, PortView, Role, Scope, Step
from hpcadmin.plan import make_plan
from hpcadmin.plan_facts import ON_NODES, Facts
from hpcadmin.plan_work import NO_WAY, NodeKinds, Stepped, kind_of
from hpcadmin.registry import Suite, SuiteEntry, load_checks, load_suite
from hpcadmin.run_results import NO_WAY as NO_WAY_OF_RESULTS
from hpcadmin.rundata import Plan, Texts, read_run, write_plan
from hpcadmin.site import Site
from hpcadmin.slurm.script import MOST_SCRIPT, in_two

CHECKS = load_checks()


def view(name: str, rails: int = 8, gpus: int = 8) -> NodeView:
    ports = tuple(PortView(f"mlx5_{i}", 1, "InfiniBand", 400.0, "ACTIVE", rail=i, gpu=i) for i in range(rails))
    return NodeView(name, f"10.0.0.{name[1:]}", name, 64, 500_000, gpus, "H100",
                    tuple(f"GPU-{name}{i}" for i in range(gpus)), tuple(f"0000:{i:02x}:00.0" for i in range(gpus)),
                    ports=ports, rdma_devices=tuple(p.device for p in ports))


def facts_of(views: list[NodeView]) -> Facts:
    names = [v.name for v in views]
    tools = {t: f"/opt/{t}" for check in CHECKS.values() for t in (*check.needs, *check.uses)}
    return Facts({v.name: v for v in views}, has={w: dict.fromkeys(names, True) for w in ON_NODES},
                 tools={n: dict(tools) for n in names}, shared_dir="/shared",
                 programs={p: f"/bin/{p}" for check in CHECKS.values() for p in check.builds})


@pytest.mark.parametrize("suite", ["network", "smoke", "network-full"])
def test_what_a_plan_takes_from_one_of_a_kind_is_true_of_each(suite: str) -> None:
    views = [view("n1"), view("n2"), view("n3", rails=4), view("n4", gpus=4), view("n5")]
    facts = facts_of(views)
    plan = make_plan(load_suite(suite, Site(), CHECKS), CHECKS, facts, [v.name for v in views])
    whole = Stepped({t.id: t for t in plan.tests}, CHECKS, facts, {})
    assert plan.tests
    for test in whole.values():
        kind = kind_of(test.steps)
        assert (kind.ranks, kind.limit_s) == (test.ranks, test.limit_s)
        assert not any(f"exit {NO_WAY}" in word for step in test.steps for word in step.argv)
        assert {n for step in test.steps for n in step.nodes} <= set(test.subject.nodes)


def test_nodes_of_a_kind_differ_in_names_only() -> None:
    facts = facts_of([view("n1"), view("n2"), view("n3", rails=4), view("n4")])
    facts = replace(facts, tools={**facts.tools, "n4": {}})
    kinds = NodeKinds(facts)
    assert [kinds[n] for n in ("n1", "n2", "n3", "n4", "n9")] == [0, 0, 1, 2, 3]


def suite_of(steps: Callable[[Context], object], count: int = 3) -> tuple[Plan, Stepped]:
    check = Check("own", "Own", Scope.NODE, steps, lambda o, c: [])  # type: ignore[arg-type]
    facts = Facts({f"n{i}": NodeView(f"n{i}") for i in range(count)})
    plan = make_plan(Suite("s", "s", (SuiteEntry(("own",)),)), {"own": check}, facts, list(facts.views))
    return plan, Stepped({t.id: t for t in plan.tests}, {"own": check}, facts, {"A": "b"})


def test_steps_are_asked_for_once_a_kind_and_then_once_a_test() -> None:
    asked: list[str] = []

    def steps(context: Context) -> tuple[Step, ...]:
        asked.append(context.nodes[0].name)
        return (Step(("/bin/echo", context.nodes[0].name)),)
    plan, whole = suite_of(steps)
    assert asked == ["n0"] and all(t.steps == () for t in plan.tests)
    assert [t.steps[0].argv[1] for t in whole.values()] == ["n0", "n1", "n2"]
    assert [t.steps[0].env for t in whole.values()] == [{"A": "b"}] * 3
    assert asked == ["n0", "n0", "n1", "n2"]


def test_a_broken_check_is_a_verdict_for_each_node() -> None:
    def steps(context: Context) -> tuple[Step, ...]:
        raise ValueError("no such thing")
    plan, _ = suite_of(steps)
    assert plan.tests == () and len(plan.verdicts) == 3
    assert "ValueError: no such thing" in plan.verdicts[0].reason


@pytest.mark.parametrize("wrong", [lambda: 1 / 0, lambda: "text", tuple,
                                   lambda: (Step(("/bin/true",), role=Role.JOB),)])
def test_a_check_that_breaks_for_one_node_only_fails_there_and_says_why(wrong: Callable[[], object]) -> None:
    plan, whole = suite_of(lambda c: wrong() if c.nodes[0].name == "n1" else (Step(("/bin/true",)),))
    assert len(plan.tests) == 3
    steps = [t.steps for t in whole.values()]
    assert steps[0][0].argv == steps[2][0].argv == ("/bin/true",)
    step = steps[1][0]
    assert step.role is Role.EACH and step.nodes == ("n1",) and f"exit {NO_WAY}" in step.argv[2] and step.argv[4]
    assert NO_WAY == NO_WAY_OF_RESULTS       # read as what could not be started


def test_a_script_that_is_larger_than_slurm_takes_is_started_from_a_file(tmp_path: Path) -> None:
    small = "#!/bin/sh\n#SBATCH --time=5\necho $1\n"
    assert in_two(small, tmp_path / "body") == (small, "")
    large = small + "#" * MOST_SCRIPT
    script, body = in_two(large, tmp_path / "bo dy")
    assert body == large and len(script) < 1000 and "#SBATCH --time=5" in script
    (tmp_path / "bo dy").write_text(body)
    (tmp_path / "script").write_text(script)
    done = subprocess.run(["/bin/sh", tmp_path / "script", "node"], capture_output=True, text=True, check=True)
    assert done.stdout == "node\n"        # as nodes and steps call it


@given(st.integers(1, 6))
def test_plan_json_is_read_back_as_it_was(count: int) -> None:
    facts = facts_of([view(f"n{i}") for i in range(1, count + 1)])
    entries = (SuiteEntry(("ib_write_bw",), over=(Layout.PAIRS, Layout.LOOPBACK)), SuiteEntry(("nccl_allreduce",)))
    plan = make_plan(Suite("s", "s", entries), CHECKS, facts, list(facts.views), seed=3)
    plan = replace(plan, leaves={"n1": "leaf1"})
    with tempfile.TemporaryDirectory() as folder:
        write_plan(Path(folder), plan)
        (Path(folder) / "manifest.json").write_text(
            '{"run_id": "r", "suite": "s", "nodes": [], "state": "running", "started": ""}')
        text = (Path(folder) / "plan.json").read_text()
        assert read_run(Path(folder)).plan == plan
    assert len(re.findall(r'^\{"id":"t', text, re.MULTILINE)) == len(plan.tests)


def test_a_plan_that_is_written_again_says_what_has_changed(tmp_path: Path) -> None:
    facts = facts_of([view(f"n{i}") for i in range(1, 5)])
    plan = make_plan(Suite("s", "s", (SuiteEntry(("nccl_allreduce",)),)), CHECKS, facts, list(facts.views))
    known: Texts = {}
    file = tmp_path / "plan.json"
    write_plan(tmp_path, plan, known)
    kept = file.read_text()
    write_plan(tmp_path, plan)
    assert kept == file.read_text()
    again = replace(plan, tests=(*plan.tests[:-1], replace(plan.tests[-1], job=7)),
                    jobs=(replace(plan.jobs[0], seconds=99.0), *plan.jobs[1:], replace(plan.jobs[0], number=7)))
    write_plan(tmp_path, again, known)
    kept = file.read_text()
    write_plan(tmp_path, again)
    assert kept == file.read_text()
    assert '"job":7' in kept and "99.0" in kept


def test_the_plan_of_an_old_run_is_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(
        '{"run_id": "r", "suite": "s", "nodes": [], "state": "running", "started": ""}')
    (tmp_path / "plan.json").write_text(
        '{"suite": "s", "nodes": ["n1"], "entries": [], "tests": [{"id": "t0001", "check": "c", "subject": {"nodes": '
        '["n1"], "device": ""}, "steps": [{"argv": ["/bin/true"], "role": "each"}], "job": 1}]}')
    plan = read_run(tmp_path).plan
    assert plan is not None and plan.tests[0].steps[0].argv == ("/bin/true",)

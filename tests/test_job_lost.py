"""A node that dies while a job's script runs: its tests say so at once, and those of the others are made."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from job_runs import EXPAND, made, run, sh
from test_plan_work import CHECKS

from hpcadmin.check import Context, Role, Scope
from hpcadmin.frames import Frame
from hpcadmin.run_results import read_result
from hpcadmin.rundata import Plan, PlannedTest, Stage

# As a real srun: the tasks of the other nodes are started, and taken along when one could not be.
SRUN = r"""#!PYTHON -S
import os, subprocess, sys, time
EXPAND
args, nodes = sys.argv[1:], []
while args[0].startswith("-"):
    word = args.pop(0)
    if word == "-w":
        nodes = list(NodeSet(args.pop(0)))
    elif word in ("-N", "-n", "-J"):
        args.pop(0)
with open("FOLDER/started", "a") as log:
    print(*nodes, args[0], file=log)
dead = [n for n in nodes if os.path.exists(f"FOLDER/dead-{n}")] + (
    nodes if os.path.exists("FOLDER/no-slurm") else [])
running = [subprocess.Popen(args, env={**os.environ, "SLURMD_NODENAME": n}, start_new_session=True)
           for n in nodes if n not in dead]
if dead:
    time.sleep(0.7)
    for p in running:
        if p.poll() is None:
            os.killpg(p.pid, 9)
    print(f"srun: error: Task launch for StepId=7.0 failed on node {dead[0]}: Socket timed out on send/recv operation",
          file=sys.stderr)
    sys.exit(140)
sys.exit(max(p.wait() for p in running))
"""


def pairs(tmp_path: Path, *first: str) -> Plan:
    """Rounds of pairs of four nodes; in the first of them these things happen."""
    words = "; ".join(f": >{tmp_path}/{name}" for name in first)
    return made(Scope.PAIR, lambda c: (sh(f"{words or ':'}; echo $SLURMD_NODENAME", role=Role.RANKS),),
                ("n1", "n2", "n3", "n4"))


def ran(plan: Plan, tmp_path: Path, missing: int = 0) -> dict[str, list[Frame]]:
    srun = SRUN.replace("EXPAND", EXPAND).replace("FOLDER", str(tmp_path))
    return run(plan, tmp_path / "job", tmp_path, srun=srun, missing=missing)


def started(tmp_path: Path, node: str) -> int:
    """Steps with this node, but those that only ask whether it is there."""
    lines = (tmp_path / "started").read_text().splitlines()
    return sum(node in line.split()[:-1] and not line.endswith(" true") for line in lines)


def error_of(test: PlannedTest, frames: list[Frame]) -> str:
    steps = replace(test, steps=(sh("x", role=Role.RANKS),))
    return read_result(steps, frames, "", CHECKS["mpi_hello"], Context(())).error


@pytest.mark.deep
def test_a_node_that_answers_no_more_is_tried_once_and_named_by_all_its_tests(tmp_path: Path) -> None:
    (tmp_path / "dead-n3").touch()
    plan = pairs(tmp_path)
    frames = ran(plan, tmp_path)
    for test in plan.tests:
        [frame] = frames[test.id]
        if "n3" in test.subject.nodes:
            assert "gone" in frame.flags and error_of(test, [frame]).startswith("n3 does not answer any more")
        else:
            assert (frame.status, frame.flags) == (0, frozenset())
            assert sorted(frame.body.decode().split()) == list(test.subject.nodes)
    first = next(t for t in plan.tests if "n3" in t.subject.nodes)
    assert "Socket timed out" in error_of(first, frames[first.id])      # what was told of it at first is kept
    assert started(tmp_path, "n3") == 1
    assert (tmp_path / "started").read_text().count("n3 true") == 1


@pytest.mark.deep
def test_a_program_that_fails_is_no_lost_node(tmp_path: Path) -> None:
    plan = made(Scope.PAIR, lambda c: (sh("echo no; exit 3", role=Role.RANKS),), ("n1", "n2", "n3"))
    assert {(f[0].status, f[0].flags) for f in ran(plan, tmp_path).values()} == {(3, frozenset())}
    assert "true" not in (tmp_path / "started").read_text()


@pytest.mark.deep
def test_where_slurm_does_not_answer_nobody_is_lost(tmp_path: Path) -> None:
    (tmp_path / "no-slurm").touch()
    plan = pairs(tmp_path)
    frames = ran(plan, tmp_path)
    assert {(f[0].status, f[0].flags) for f in frames.values()} == {(140, frozenset())}
    assert all(started(tmp_path, n) == 3 for n in ("n1", "n2", "n3", "n4"))


@pytest.mark.deep
def test_a_lost_node_takes_no_node_checks_of_others_with_it(tmp_path: Path) -> None:
    """The second check of each node takes longer than srun waits for the node that is not there."""
    (tmp_path / "dead-n2").touch()
    plan = made(Scope.NODE, lambda c: (sh("echo first"), sh("sleep 1.5; echo second")), ("n1", "n2", "n3"))
    frames = ran(plan, tmp_path, missing=2)
    assert {t: [f.body for f in found] for t, found in frames.items()} == {
        "t0001": [b"first\n", b"second\n"], "t0003": [b"first\n", b"second\n"]}


@pytest.mark.deep
def test_a_program_that_waits_for_a_lost_node_is_ended_long_before_its_time_out(tmp_path: Path) -> None:
    """The node answers no more while the program runs; the other pair of the round ends at once."""
    plan = made(Scope.PAIR, lambda c: (
        sh(f"[ $SLURMD_NODENAME != n3 ] || {{ : >{tmp_path}/dead-n3; echo begun; exec sleep 90; }}",
           role=Role.RANKS, timeout_s=55.0),), ("n1", "n2", "n3", "n4"))
    begin = time.monotonic()
    frames = ran(plan, tmp_path)
    assert time.monotonic() - begin < 45
    for test in plan.tests:
        assert ("gone" in frames[test.id][0].flags) is ("n3" in test.subject.nodes)
    first = next(t for t in plan.tests if "n3" in t.subject.nodes)
    assert error_of(first, frames[first.id]) == "n3 does not answer any more"


@pytest.mark.deep
def test_a_stage_without_any_node_left_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "dead-n2").touch()
    plan = made(Scope.NODE, lambda c: (sh("echo first"),), ("n1", "n2"))
    job = plan.jobs[0]
    twice = replace(plan, jobs=(replace(job, stages=(
        Stage("nodes", "both", ("t0001", "t0002")), Stage("nodes", "one", ("t0003",)))),), tests=(
        *plan.tests, replace(plan.tests[1], id="t0003")))
    assert list(ran(twice, tmp_path, missing=2)) == ["t0001"]

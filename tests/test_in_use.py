"""Whole runs on a cluster in use, against the stand-in for Slurm: busy nodes are awaited, nothing is made twice."""

from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from test_resume import NAMES, World, body, essence, known, quick, sound  # noqa: F401

from hpcadmin import run, run_phases, run_waves
from hpcadmin.check import Status
from hpcadmin.run_session import Request
from hpcadmin.rundata import read_run
from hpcadmin.site import Site
from hpcadmin.slurm.client import SlurmNode
from hpcadmin.slurm.states import node_state
from hpcadmin.waves import Schedule


class Busy(FakeSlurm):
    """until: node -> for how many questions after nodes somebody else's job is on it."""

    def __init__(self) -> None:
        super().__init__(NAMES, known, body)
        self.until: dict[str, int] = {}
        self.asked = 0
        self.pending: set[int] = set()

    def busy_now(self) -> "set[str]":
        return {n for n, count in self.until.items() if self.asked <= count}

    def nodes(self) -> "tuple[SlurmNode, ...]":
        self.asked += 1
        ours = {n for j in self.list if j.state == "RUNNING" for n in known(j.folder)[0].nodes}
        return tuple(SlurmNode(n, node_state(
            "DOWN" if n in self.down else "ALLOCATED" if n in self.busy_now() | ours else "IDLE"),
            partitions=("main",)) for n in self.names)

    def step(self) -> None:
        """Jobs begin when their nodes are free."""
        waiting = []
        for job in self.list:
            if job.state == "PENDING":
                others = {n for j in self.list if j.state == "RUNNING" for n in known(j.folder)[0].nodes}
                planned = known(job.folder)[0]
                assert not (planned.kind == "suite" and others & set(planned.nodes)), "no node in two of our jobs"
                if set(planned.nodes) & self.busy_now():
                    job.state = "WAITS"
                    waiting.append(job)
        super().step()
        for job in waiting:
            job.state = "PENDING"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> World:  # noqa: F811
    for name in ("NODES_FIRST_S", "NODES_SLOWEST_S", "FIRST_POLL_S", "FIRST_LOOK_S", "SLOWEST_LOOK_S"):
        monkeypatch.setattr(run_waves, name, 0.0)
    monkeypatch.setattr(run_waves, "slowest_poll_s", lambda *_: 0.0)
    monkeypatch.setattr(Schedule, "linger_s", 0.0)
    monkeypatch.setattr(Schedule, "_hold", lambda *_: 0.0)
    found = World(tmp_path)
    found.slurm = Busy()
    return found


def go(world: World, **more: object) -> run.Outcome:
    request = Request(suite="s", run_dir=str(world.folder), allow_root=True, **more)  # type: ignore[arg-type]
    return run.validate(request, Site(), world.slurm, world.progress)


def busy(world: World, **until: int) -> None:
    assert isinstance(world.slurm, Busy)
    world.slurm.until = until


def test_busy_nodes_are_tested_when_they_become_free(world: World, tmp_path: Path) -> None:
    busy(world, n3=6, n1=3)
    found = sound(world, go(world))
    plan = found.plan
    assert plan is not None
    suite = [j for j in plan.jobs if j.kind == "suite"]
    assert len(suite) > 1
    assert any(len(j.nodes) > 1 for j in suite)
    assert all(v.status is not Status.NOT_RUN for v in found.verdicts)
    assert {v.subject.nodes for v in found.verdicts if v.status is Status.FAIL} >= {("n1", "n4")} or any(
        v.status is Status.FAIL for v in found.verdicts)
    assert any("in use" in line for line in world.lines)


def test_what_does_not_become_free_in_time_is_not_run_and_says_so(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_phases.Phases, "_own", lambda self: None)       # they wait by their own rule
    busy(world, n3=10**9)
    outcome = go(world, wait_for_s=0.5)
    late = [v for v in outcome.verdicts if v.status is Status.NOT_RUN]
    assert late
    assert all("n3" in v.subject.nodes for v in late)
    assert any("n3 not free within" in v.reason for v in late)
    assert world.slurm.left == []
    done = {v.subject.nodes for v in outcome.verdicts if v.check == "pair" and v.status is not Status.NOT_RUN}
    assert done == {("n1", "n2"), ("n1", "n4"), ("n2", "n4")}
    assert read_run(outcome.folder).manifest.state == "complete"


def test_only_idle_nodes(world: World) -> None:
    busy(world, n3=10**9)
    outcome = go(world, only_idle=True)
    late = {v.reason for v in outcome.verdicts if v.status is Status.NOT_RUN}
    assert late == {"busy: jobs run on it (--only-idle)"}
    assert not any("in use" in line for line in world.lines)


def test_at_most_so_many_jobs_of_ours(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(world, n1=8, n2=6, n3=4, n4=9)
    most = []
    old = world.slurm.step

    def step() -> None:
        old()
        most.append(len(world.slurm.left))
    monkeypatch.setattr(world.slurm, "step", step)
    monkeypatch.setattr(run_phases.Phases, "_own", lambda self: None)
    go(world, max_jobs=2)
    assert max(most) <= 2

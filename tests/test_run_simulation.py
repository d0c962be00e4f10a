"""Whole runs on a simulated Slurm with faults, lost answers and deaths, and what must be true of them (sim_runs)."""

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from sim_runs import Killed, World, play, problems, virtual
from sim_slurm import TROUBLES, SimJob
from test_run_waves import AWAY, Submitting

from hpcadmin import records
from hpcadmin.check import Status, Verdict
from hpcadmin.errors import HpcadminError, SlurmError, StoreError, UsageError
from hpcadmin.run_folder import RunFolder
from hpcadmin.run_handover import hand_over
from hpcadmin.run_job import DEADLINE_SLACK_S, JobRun
from hpcadmin.run_ledger import Ledger
from hpcadmin.run_lock import Holder
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import PlannedJob, PlannedTest, read_run
from hpcadmin.slurm.client import Client, NoAnswerError
from hpcadmin.slurm.script import JobOptions

# Seeds and kinds of trouble that once went wrong, as few as it took.
FOUND = {
    "a full disk takes results of jobs of tests": (1125, "disk late"),
    "a controller is away for longer than a job may take": (1570, "away busy"),
    "jobs are withdrawn while the controller is away": (1011, "away fates nodes two"),
    "jobs of tests are submitted while the controller is away": (1039, "away"),
    "a job was taken, is over and is forgotten": (1004, "lost purge"),
    "jobs that wait for nodes are there when the run goes on": (1728, "busy kill"),
    "folders and marks with digits that are no numbers": (33, "logs"),
    "no node can be used": (1323, "nodes"),
    "jobs of tests are refused without an answer": (523, "disk late logs lost refuse two"),
    "outputs are late, and the run goes on before they are there": (500, "late nodes refuse signal two"),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_once_went_wrong(case: str, tmp_path: Path) -> None:
    seed, troubles = FOUND[case]
    world, wrong = play(tmp_path / "runs", seed, troubles.split())
    assert not wrong, world.lives


@pytest.mark.parametrize("seed", range(8))
def test_runs_with_troubles(seed: int, tmp_path: Path) -> None:
    world, wrong = play(tmp_path / "runs", seed)
    assert not wrong, (sorted(world.troubles), world.lives)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(10, 150, 20))
def test_more_runs_with_troubles(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        world, wrong = play(tmp_path / str(seed), seed)
        assert not wrong, (seed, sorted(world.troubles), world.lives)


@pytest.mark.deep
def test_every_trouble_comes_up(tmp_path: Path) -> None:
    """That the simulation does something: kills, full disks, refusals and damage are seen in what the runs say."""
    lives: list[str] = []
    said: list[str] = []
    for seed in range(9):
        world, wrong = play(tmp_path / str(seed), seed, TROUBLES)
        assert not wrong, (seed, world.lives)
        lives += world.lives
        assert world.path is not None
        said += [*world.lines, *(v.reason for v in read_run(world.path).verdicts)]
    assert {"killed", "interrupted", "complete"} <= set(lives)
    assert any("No space left" in life for life in lives)
    for words in ("not free within", "Slurm refused its job", "was cancelled", "planned again"):
        assert any(words in text for text in said), words


# --- one fault at a time ----------------------------------------------------------------------------------------------


def calm(tmp_path: Path) -> World:
    """Three free nodes, one of them slow to the others: node checks, pairs, jobs of tests, and pairs measured again."""
    (tmp_path / "runs").mkdir()
    world = World(tmp_path / "runs", 4, ())
    world.look, world.sim.slow = False, "n1"
    return world


def goes(world: World, status: int) -> list[Verdict]:
    with virtual(world):
        outcome = world.go()
    assert outcome is not None and problems(world, outcome) == world.faults == []
    assert (world.lives, outcome.exit_status) == (["complete"], status)
    return list(outcome.verdicts)


def test_nothing_happens(tmp_path: Path) -> None:
    world = calm(tmp_path)
    failed = [v for v in goes(world, 1) if v.status is Status.FAIL]
    assert failed and all("n1" in v.subject.nodes for v in failed)
    assert len(world.client.calls) < 40


@pytest.mark.parametrize("error", [SlurmError("the limits forbid the job"), UsageError("there is no such reservation"),
                                   NoAnswerError("Socket timed out")], ids=["limits", "reservation", "away"])
def test_a_later_job_that_slurm_refuses_ends_nothing(error: HpcadminError, tmp_path: Path) -> None:
    """What was measured counts, and what could not be measured again stays bad."""
    world = calm(tmp_path)
    sbatch = world.client._sbatch

    def refusing(script: Path, comment: str) -> int:
        if world.sim.scripts[script.parent][0].kind == "again":
            raise error
        return sbatch(script, comment)
    world.client._sbatch = refusing  # type: ignore[method-assign]
    failed = [v for v in goes(world, 1) if v.status is Status.FAIL]
    assert failed and any(str(error) in v.reason for v in failed)
    assert all("n1" in v.subject.nodes for v in failed)


def test_a_later_job_that_is_held_ends_nothing(tmp_path: Path) -> None:
    world = calm(tmp_path)
    made = world.client._made

    def held(script: Path, comment: str) -> SimJob:
        job = made(script, comment)
        job.fate = "held" if job.planned.kind == "again" else ""
        return job
    world.client._made = held  # type: ignore[method-assign]
    assert any("JobHeldAdmin" in v.reason for v in goes(world, 1))


def test_a_test_that_nobody_took_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a result ever get lost on the way, that is seen."""
    world = calm(tmp_path)
    keep = Ledger._keep

    def losing(ledger: Ledger, test: PlannedTest, *rest: Any, **more: Any) -> None:
        if test.id != "t0002":
            keep(ledger, test, *rest, **more)
    monkeypatch.setattr(Ledger, "_keep", losing)
    with virtual(world):
        outcome = world.go()
    assert outcome is not None
    assert [(v.status, v.reason) for v in outcome.verdicts if v.test == "t0002"] == [
        (Status.ERROR, "nothing of it was taken")]


@pytest.mark.parametrize("since", [0.0, 1000.2], ids=["waves", "one job"])
@pytest.mark.parametrize(("until", "away", "status"), [(1200.0, 1500.0, 1), (1e9, 2500.0, 3)], ids=["back", "late"])
def test_a_controller_that_is_away_for_long(since: float, until: float, away: float, status: int,
                                            tmp_path: Path) -> None:
    """Jobs are not given up as long as nodes are waited for; when they are, none stays in the queue, or it is told."""
    world = calm(tmp_path)
    world.request = replace(world.request, wait_for_s=1800.0)
    for node in world.sim.nodes.values():
        node.taken = [(since, until)]
    world.sim.away = [(1010.0, 1010.0 + away)]
    with virtual(world):
        outcome = world.go()
    assert outcome is not None and (world.lives, outcome.exit_status) == (["complete"], status)
    told = any("could not be cancelled" in line for line in world.lines)
    assert told or all(j.cancelled for j in world.sim.left)
    assert len(world.client.calls) < 100 + 0.1 * (world.sim.clock.now - 1000.0)


def test_a_file_server_that_is_away_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks that cannot be seen are looked for again; nothing of it ends the run."""
    world = calm(tmp_path)
    stat = Path.stat

    def stale(path: Path, **more: bool) -> os.stat_result:
        asks = sys._getframe(2).f_code.co_filename              # of exists(); the jobs see their own files
        away = int(world.sim.clock.now * 10) % 3 == 0 and "sim_slurm" not in asks
        if away and path.name in ("done", "claimed", "cancel"):
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, **more)
    monkeypatch.setattr(Path, "stat", stale)
    assert any(v.status is Status.FAIL for v in goes(world, 1))


def test_nodes_are_asked_for_once_for_all_jobs_of_tests_that_were_lost(tmp_path: Path) -> None:
    world = calm(tmp_path)
    made = world.client._made

    def preempted(script: Path, comment: str) -> SimJob:
        job = made(script, comment)
        if job.own and int(script.parent.name) <= 7:
            job.fate, job.fate_at = "PREEMPTED", 0
        return job
    world.client._made = preempted  # type: ignore[method-assign]
    goes(world, 1)
    assert sum(j.own for j in world.sim.jobs) == 12, "all six once more"
    assert sum(what == "nodes" for _, what in world.client.calls) <= 5


def test_a_run_that_goes_on_and_is_interrupted_loses_nothing(tmp_path: Path) -> None:
    """Tests of the suite that are planned again come before results of jobs of tests that were there long ago."""
    world = calm(tmp_path)
    made = world.client._made

    def cancelled(script: Path, comment: str) -> SimJob:
        job = made(script, comment)
        job.fate, job.fate_at = ("CANCELLED", 1) if script.parent.name == "1" else ("", 0)
        return job
    world.client._made = cancelled  # type: ignore[method-assign]
    with virtual(world):
        world.first()
        assert world.path is not None
        before = read_run(world.path).measured
        assert any(m.check == "own" for m in before)
        folder = RunFolder(world.path, read_run(world.path).manifest)
        folder.update(state="interrupted")                  # as if it had been killed at its end
        for node in world.sim.nodes.values():
            node.taken = [(0.0, 1e9)]
        world.sim.clock.at(world.sim.clock.now + 5.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        world.sim.clock.at(world.sim.clock.now + 5.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        outcome = world.resume()
        assert outcome.exit_status == 130
        after = read_run(world.path).measured
    assert sorted(map(str, after)) == sorted(map(str, before))
    assert {v.test for v in outcome.verdicts if v.status is Status.NOT_RUN}.isdisjoint(m.test for m in before)


@pytest.mark.parametrize("when", [3.0, 12.0, 30.0], ids=["suite", "own", "again"])
def test_a_process_that_stood_still_gives_way(when: float, tmp_path: Path) -> None:
    """Another host has taken the run over meanwhile: nothing is written, cancelled or submitted any more."""
    world = calm(tmp_path)
    world.request = replace(world.request, max_jobs=1)
    for node in world.sim.nodes.values():
        node.taken = [(1014.0, 1030.0)]
    files: dict[Path, bytes] = {}

    def taken_over() -> None:
        assert world.path is not None
        with world.sim.writing():
            (world.path / "lock").write_text(records.dumps(Holder("elsewhere", 7, "2026-11-30T16:00:00+01:00")))
        world.sim.clock.pass_(21.0)
        files.update((p, p.read_bytes()) for p in world.path.iterdir() if p.is_file())
    world.sim.clock.at(1000.0 + when, lambda: world.todo.append(taken_over))
    with virtual(world), pytest.raises(UsageError, match=r"is being watched by process 7 on elsewhere .* now"):
        world.first()
    assert {what for at, what in world.client.calls if at > 1000.0 + when + 21.5} <= {"jobs"}
    assert files and {p for p, raw in files.items() if p.read_bytes() != raw} <= {
        p for p in files if p.name == "measurements.jsonl"}, "but for what was read in that moment"


def test_a_job_that_waits_has_a_later_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the controller says nothing, it may still wait; when it is given up, it is to be cancelled."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for state, waits in (("PENDING", 1800.0), ("RUNNING", 0.0)):
        job = PlannedJob(1, "suite", ("n1",), time_limit_min=10)
        job_run = JobRun(cast(Client, None), job, {}, JobOptions("c"), tmp_path, Progress(quiet=True), id=7)
        job_run.wait_for_s, job_run.state = 1800.0, state
        now[0] += 600.0 + DEADLINE_SLACK_S + waits - 1.0
        job_run.late()
        assert not job_run.doomed
        now[0] += 2.0
        job_run.late()
        assert job_run.doomed and "its own deadline" in job_run.ending


def test_a_job_that_has_begun_was_taken(tmp_path: Path) -> None:
    """Slurm need not know it any more when it answers again."""
    (tmp_path / "claimed").write_text("7\n")
    client = Submitting([AWAY], [])
    assert hand_over(cast(Client, client), tmp_path / "script", "hpcadmin:R:1") == 7
    assert client.count == 1


def test_a_run_of_which_no_node_can_be_used(tmp_path: Path) -> None:
    world = calm(tmp_path)
    world.look = True
    for node in world.sim.nodes.values():
        node.bad = [(0.0, 1e9, "DOWN")]
    assert {v.status for v in goes(world, 3)} == {Status.NOT_RUN}


def test_jobs_that_were_there_wait_together(tmp_path: Path) -> None:
    """Nodes that do not become free are waited for once, not once more for each job that is made anew."""
    world = calm(tmp_path)
    world.suite = replace(world.suite, entries=world.suite.entries[:3])
    world.request = replace(world.request, wait_for_s=300.0, max_jobs=4)
    for node in world.sim.nodes.values():
        node.taken = [(0.0, 1e9)]
    with virtual(world):
        world.sim.clock.at(1060.0, lambda: setattr(world.trap, "at", 1))
        with pytest.raises(Killed):
            world.first()
        world.trap.at, world.trap.dead = 0, False
        assert len(world.sim.left) >= 3
        begun = world.sim.clock.now
        outcome = world.resume()
    assert outcome.exit_status == 3 and not world.sim.left
    assert world.sim.clock.now - begun < 1.5 * 300.0


# --- what lies in the folder ------------------------------------------------------------------------------------------

MISFITS: "dict[str, Callable[[dict[str, Any]], object]]" = {
    "called the same": lambda plan: plan["tests"].append(plan["tests"][0]),
    "is no check here": lambda plan: plan["tests"][0].update(check="other"),
    "is not on nodes of the plan": lambda plan: plan["tests"][0].update(subject={"nodes": ["login"]}),
    "has tests or nodes that are not there": lambda plan: plan["jobs"][0]["stages"][0].update(tests=["t9999"]),
    "is no job of a test": lambda plan: plan["jobs"][-1].update(step=7),
}


@pytest.mark.parametrize("words", MISFITS)
def test_a_plan_that_does_not_fit_together_is_not_gone_on_with(words: str, tmp_path: Path) -> None:
    """Jobs may write where it lies: nothing is submitted for it."""
    world = calm(tmp_path)
    world.trap.at = 70
    with virtual(world):
        with pytest.raises(Killed):
            world.first()
        world.trap.at, world.trap.dead = 0, False
        assert world.path is not None
        file = world.path / "plan.json"
        plan = json.loads(file.read_text())
        MISFITS[words](plan)
        file.write_text(json.dumps(plan))
        count = len(world.sim.jobs)
        with pytest.raises(StoreError, match=f"plan.json: does not fit together: .*{words}"):
            world.resume()
    assert len(world.sim.jobs) == count

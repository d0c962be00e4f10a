"""Waves against a stand-in for Slurm: all tests get one result, nothing is asked too often, nobody waits for ever."""

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from test_waves import suite_job

from hpcadmin import run_handover, run_waves
from hpcadmin.errors import SlurmError
from hpcadmin.run_handover import hand_over
from hpcadmin.run_job import JobRun, pause_s, slowest_poll_s
from hpcadmin.run_progress import Progress
from hpcadmin.run_waves import Waves
from hpcadmin.rundata import PlannedJob, PlannedTest
from hpcadmin.slurm.client import Client, NoAnswerError, SlurmNode
from hpcadmin.slurm.states import Job, node_state
from hpcadmin.waves import Schedule, Wave

RUN_S = 0.03


class Missing:
    def __init__(self, run: "Run") -> None:
        self.run = run

    def missing(self, test: str) -> bool:
        return test not in self.run.made


class Run:
    """What Waves needs of a JobRun."""

    def __init__(self, number: int, job: PlannedJob, tests: "Mapping[str, PlannedTest]") -> None:
        self.id, self.job, self.tests = 1000 + number, job, tests
        self.state, self.reason, self.ending = "", "", ""
        self.finished = self.dropped = self.doomed = self.part = self.never = False
        self.made: set[str] = set()
        self.collector = Missing(self)
        self.cut: dict[str, str] = {}
        self.started: float | None = None

    @property
    def begun(self) -> bool:
        return self.started is not None

    def look(self) -> bool:
        return False

    def late(self) -> None:
        return None

    def told(self, job: Job) -> bool:
        self.state = self.state if self.finished else job.base
        if job.hopeless and not self.finished:
            self.never, self.finished, self.ending = True, True, f"would never start: {job.reason}"
        return False

    def give_up(self, ending: str, *, dropped: bool = False) -> None:
        self.ending, self.dropped, self.finished = ending, dropped, True


class World:
    """Client and Books in one: nodes with the time from when on they are free, jobs that take RUN_S."""

    def __init__(self, busy: "Mapping[str, float]", states: "Mapping[str, str] | None" = None) -> None:
        self.busy, self.states = dict(busy), dict(states or {})
        self.begun = time.monotonic()
        self.runs: list[Run] = []
        self.results: dict[str, str] = {}
        self.fate: dict[int, str] = {}
        self.rpcs = 0
        self.silent = 0
        self.reason = ""        # why jobs wait
        self.stop = False

    def answer(self) -> None:
        self.rpcs += 1
        if self.silent:
            self.silent -= 1
            raise NoAnswerError("the Slurm controller does not answer")

    def now(self) -> float:
        return time.monotonic() - self.begun

    def nodes(self) -> "tuple[SlurmNode, ...]":
        self.answer()
        ours = {n for r in self.runs if r.begun and not r.finished for n in r.job.nodes}
        return tuple(SlurmNode(n, node_state(self.states.get(n) or (
            "ALLOCATED" if until > self.now() or n in ours else "IDLE"))) for n, until in self.busy.items())

    def jobs(self, ids: "Sequence[int]") -> "dict[int, Job]":
        self.answer()
        return {i: Job(i, "RUNNING" if next(r for r in self.runs if r.id == i).begun else "PENDING", self.reason)
                for i in ids}

    def cancel(self, ids: "Sequence[int]") -> None:
        self.answer()

    # --- books

    def settled(self) -> "Collection[str]":
        return self.results

    def next_number(self) -> int:
        return 3 + len(self.runs)

    def begin(self, wave: Wave) -> JobRun:
        assert not [n for r in self.runs if not r.finished for n in r.job.nodes if n in wave.job.nodes]
        self.runs.append(Run(wave.job.number, wave.job, wave.tests))
        return cast(JobRun, self.runs[-1])

    def take(self, run: JobRun, test: str) -> None:
        assert test not in self.results, "one result"
        self.results[test] = "made" if test in cast(Run, run).made else "lost"

    def cut_off(self, run: JobRun) -> bool:
        return run.state == "NODE_FAIL"

    def watch(self, runs: "Sequence[JobRun]") -> bool:
        """Time goes on."""
        for run in self.runs:
            if run.finished:
                continue
            free = [n for n in run.job.nodes if self.busy[n] <= self.now() and not self.states.get(n)]
            if run.started is None and len(free) == len(run.job.nodes) and not self.reason:
                run.started = self.now()
            elif run.started is not None and self.now() - run.started > RUN_S:
                run.state = self.fate.get(run.job.number, "COMPLETED")
                run.made = set(run.tests) if run.state == "COMPLETED" else set(list(run.tests)[:1])
                run.finished = True
        return self.stop

    def close(self, run: JobRun) -> None:
        assert run.finished

    def took(self) -> "Mapping[str, float]":
        return {}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_waves, "NODES_FIRST_S", 0.02)
    monkeypatch.setattr(run_waves, "NODES_SLOWEST_S", 0.03)
    monkeypatch.setattr(run_waves, "FIRST_POLL_S", 0.02)
    monkeypatch.setattr(run_waves, "SLOWEST_LOOK_S", 0.02)
    monkeypatch.setattr(run_waves, "LOST_S", 0.1)
    for name in ("RETRY_S", "SETTLE_S"):
        monkeypatch.setattr(run_handover, name, 0.0)


def waves(world: World, count: int, *, wait_for_s: float = 5.0, most: int = 4) -> Waves:
    job, tests = suite_job(count, groups=True)
    schedule = Schedule(job, tests, dict.fromkeys(("node", "pp", "all"), 0.001), most, start_s=0.01)
    free = frozenset(n for n in job.nodes if world.busy[n] <= 0 and not world.states.get(n))
    return Waves(schedule, cast(Client, world), Progress(quiet=True), world, wait_for_s=wait_for_s, free=free)


def names(count: int) -> "list[str]":
    return [f"n{i:02d}" for i in range(count)]


def test_free_nodes_are_one_job_and_nothing_is_asked() -> None:
    world = World(dict.fromkeys(names(4), 0.0))
    one = waves(world, 4)
    assert one.go() == {}
    assert [r.job for r in world.runs] == [one.schedule.job]
    assert set(world.results.values()) == {"made"}
    assert world.rpcs <= 3


def test_busy_nodes_are_awaited_and_every_test_is_made_once() -> None:
    world = World({n: 0.1 * i for i, n in enumerate(names(5))})
    one = waves(world, 5)
    assert one.go() == {}
    assert set(world.results) == set(one.schedule.tests)
    assert set(world.results.values()) == {"made"}
    assert len(world.runs) > 1


def test_what_did_not_become_free_is_told_with_the_time() -> None:
    world = World({**dict.fromkeys(names(3), 0.0), "n02": 1e9})
    one = waves(world, 3, wait_for_s=0.4)
    missing = one.go()
    assert missing["t0003"] == "n02 not free within 0 s"
    assert set(missing) | set(world.results) == set(one.schedule.tests)
    assert not set(missing) & set(world.results)
    assert [t for t in world.results if one.schedule.tests[t].check == "pp"]
    assert all(r.finished for r in world.runs), "nothing is left in the queue"


class Completing(World):
    """The nodes of a job that is over are completing for longer than anybody is waited for."""

    def nodes(self) -> "tuple[SlurmNode, ...]":
        until = {n: (r.started or 0.0) + RUN_S + 0.3 for r in self.runs if r.finished and r.begun for n in r.job.nodes}
        return tuple(SlurmNode(n.name, node_state("IDLE+COMPLETING")) if until.get(n.name, 0.0) > self.now() else n
                     for n in super().nodes())


def test_nodes_that_are_completing_from_our_own_job_are_no_longer_busy_when_the_time_is_over() -> None:
    world = Completing({**dict.fromkeys(names(6), 0.0), "n05": 1e9})
    one = waves(world, 6, wait_for_s=0.1)
    missing = one.go()
    assert missing and all("n05" in one.schedule.tests[t].subject.nodes for t in missing)


def test_a_node_that_goes_down_is_waited_for_a_little_and_then_left_out() -> None:
    world = World(dict.fromkeys(names(3), 0.0), {"n01": "DOWN"})
    missing = waves(world, 3).go()
    assert missing["t0002"] == "n01 is down"
    assert len(missing) == 5        # its check, two pairs, two groups
    assert len(world.results) == 3


def test_a_controller_that_is_away_changes_nothing() -> None:
    world = World({n: 0.05 * i for i, n in enumerate(names(4))})
    world.silent = 5
    one = waves(world, 4)
    assert one.go() == {}
    assert set(world.results.values()) == {"made"}


def test_what_a_dead_node_cut_off_is_made_again_and_not_for_ever() -> None:
    world = World(dict.fromkeys(names(2), 0.0))
    world.fate = {2: "NODE_FAIL"}
    one = waves(world, 2)
    assert one.go() == {}
    assert sorted(world.results.values()) == ["made"] * len(one.schedule.tests)
    world = World(dict.fromkeys(names(2), 0.0))
    world.fate = dict.fromkeys(range(99), "NODE_FAIL")
    assert waves(world, 2).go() == {}
    assert "lost" in world.results.values()
    assert len(world.runs) <= 3 * len(one.schedule.tests)


def test_a_job_that_failed_is_not_made_again() -> None:
    world = World(dict.fromkeys(names(2), 0.0))
    world.fate = {2: "FAILED"}
    assert waves(world, 2).go() == {}
    assert len(world.runs) == 1
    assert sorted(set(world.results.values())) == ["lost", "made"]


def test_jobs_that_somebody_holds_are_not_made_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tries with a pause after each; then it is the result."""
    monkeypatch.setattr(run_waves, "HELD_S", 0.2)
    world = World(dict.fromkeys(names(2), 0.0))
    world.reason = "JobHeldAdmin"
    assert waves(world, 2).go() == {}
    assert len(world.runs) == 3
    assert set(world.results.values()) == {"lost"}
    assert 0.4 < world.now() < 30


def test_nothing_more_begins_once_the_run_is_stopped() -> None:
    world = World({n: 0.0 if n == "n00" else 1e9 for n in names(3)})
    world.stop = True
    one = waves(world, 3)
    assert one.go() == {}
    assert world.runs == []
    assert world.results == {}


# --- submission ---------------------------------------------------------------------------------------------------


class Submitting:
    """submit and find with prepared answers: an exception, or an id, or for find what Slurm has."""

    def __init__(self, submits: "list[int | Exception]", finds: "list[list[int] | Exception]") -> None:
        self.submits, self.finds = submits, finds
        self.count = 0
        self.cancelled: list[int] = []

    def submit(self, script: Path, *, comment: str) -> int:
        self.count += 1
        answer = self.submits.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def find(self, comment: str) -> "tuple[Job, ...]":
        answer = self.finds.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return (*(Job(i, "PENDING", comment=comment) for i in answer), Job(99, "RUNNING", comment=comment + "0"))

    def cancel(self, ids: "Sequence[int]") -> None:
        self.cancelled += ids


AWAY = NoAnswerError("Socket timed out on send/recv operation")
CASES: "dict[str, tuple[list[int | Exception], list[list[int] | Exception], int | None, int]]" = {
    "at once": ([7], [], 7, 1),
    "in truth taken": ([AWAY], [[7]], 7, 1),
    "taken, and seen late": ([AWAY], [[], [7]], 7, 1),
    "restarting, and in truth taken": ([AWAY], [AWAY, AWAY, [7]], 7, 1),
    "not taken": ([AWAY, 8], [[], [], [8]], 8, 2),
    "not taken twice": ([AWAY, AWAY, 9], [[], [], AWAY, [], [], [9]], 9, 3),
    "both taken": ([AWAY, 8], [[], [], [7, 8]], 7, 2),
    "never": ([AWAY, AWAY, AWAY], [[], [], [], [], [], []], None, 3),
}


@pytest.mark.parametrize("case", CASES)
def test_a_job_is_submitted_once_whatever_becomes_of_the_answer(case: str) -> None:
    submits, finds, number, count = CASES[case]
    client = Submitting(list(submits), list(finds))
    if number is None:
        with pytest.raises(NoAnswerError, match="timed out"):
            hand_over(cast(Client, client), Path("script"), "hpcadmin:R:1")
    else:
        assert hand_over(cast(Client, client), Path("script"), "hpcadmin:R:1") == number
    assert client.count == count
    assert client.cancelled == ([8] if case == "both taken" else [])


def test_a_refusal_is_not_tried_again() -> None:
    client = Submitting([SlurmError("the limits forbid the job")], [])
    with pytest.raises(SlurmError, match="limits"):
        hand_over(cast(Client, client), Path("script"), "c")
    assert client.count == 1


def test_a_controller_that_stays_away_is_not_waited_for_for_ever() -> None:
    client = Submitting([AWAY], [AWAY, AWAY])
    begun = time.monotonic()
    with pytest.raises(NoAnswerError):
        hand_over(cast(Client, client), Path("script"), "c", patience_s=0.0)
    assert time.monotonic() - begun < 1.9           # less than the first pause


def test_many_jobs_are_asked_for_less_often() -> None:
    assert slowest_poll_s(1) == slowest_poll_s(1, 7, 60.0) == 15.0
    assert slowest_poll_s(1, 0, 210.0) == 30.0
    assert slowest_poll_s(1, 0, 1e6) == slowest_poll_s(500, 19, 1e6) == 40.0
    assert all(20 <= slowest_poll_s(500, salt) < 23 for salt in range(40))
    assert len({slowest_poll_s(500, salt) for salt in range(40)}) == 20


def test_looks_that_cost_something_are_seldom() -> None:
    assert pause_s(0.02, 0.001, 0.5) == 0.02
    assert pause_s(0.02, 0.1, 0.5) == pytest.approx(0.4), "a fifth of a core"
    assert pause_s(0.02, 60.0, 0.5) == 2.0, "and yet not for ever"
    assert pause_s(0.0, 1.0, 0.0) == 0.0

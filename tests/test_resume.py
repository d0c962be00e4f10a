"""A run that dies at any moment and is resumed: the same verdicts, nothing lost, nothing twice, no job left behind.

Death is exact: an audit hook sees each file that is opened to be written, each folder, each rename, and each call of
Slurm; from the n-th of them on nothing happens any more, as when a process is killed. Then another process resumes.
"""

import contextlib
import functools
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_slurm import FakeJob, FakeSlurm

from hpcadmin import records, run, run_job, run_ledger, run_lock, run_nodes, run_own, run_session, run_stop, run_waves
from hpcadmin.check import (
    Check,
    Context,
    Impact,
    JobRequest,
    Limit,
    Measurement,
    Output,
    Role,
    Scope,
    Step,
    Subject,
    Verdict,
)
from hpcadmin.errors import SlurmError, StoreError, UsageError
from hpcadmin.model import Inventory, Node
from hpcadmin.plan_work import Stepped
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.run_kept import read_ground
from hpcadmin.run_progress import Progress
from hpcadmin.run_retest import retest
from hpcadmin.run_session import Request
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Run, read_run
from hpcadmin.site import Site
from hpcadmin.slurm.client import SlurmNode
from hpcadmin.slurm.states import node_state

NAMES = ("n1", "n2", "n3", "n4")


class Killed(BaseException):
    """No exception that anything catches."""


@dataclass
class Death:
    """Counts what a process does to the world under `root`, and ends it at the n-th."""

    root: str = ""
    at: int = 0
    count: int = 0
    dead: bool = False
    seen: list[str] = field(default_factory=list)
    slurm: FakeSlurm | None = None

    def event(self, what: str) -> None:
        if self.dead:
            raise Killed
        self.count += 1
        self.seen.append(what)
        if self.at and self.count >= self.at:
            self.dead = True
            raise Killed

    def audit(self, name: str, args: tuple[object, ...]) -> None:
        if self.slurm and self.slurm.busy:
            return
        if name == "open":
            path, _, flags = args
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif name in ("os.mkdir", "os.rename", "os.remove", "os.truncate"):
            path = args[0]
        else:
            return
        if str(path).startswith(self.root):
            self.event(f"{name} {Path(str(path)).name}")


DEATH = Death()


@functools.cache
def listen() -> None:
    """For as long as the process lives, and every test of it pays: only once somebody wants to know."""
    def audit(name: str, args: tuple[object, ...]) -> None:
        if DEATH.root:
            DEATH.audit(name, args)

    sys.addaudithook(audit)


def steps(context: Context) -> tuple[Step, ...]:
    return (Step(("true",), Role.RANKS if len(context.nodes) > 1 else Role.EACH),)


def own_steps(context: Context) -> tuple[Step, ...]:
    return tuple(Step(("true",), Role.JOB, name=f"job {n}", job=JobRequest()) for n in (1, 2))


def parse(outputs: list[Output], context: Context) -> list[Measurement]:
    names = tuple(n.name for n in context.nodes)
    return [Measurement("rate", float(o.text), "Gbit/s", subject=Subject(names), key=True) for o in outputs]


CHECKS = {
    "node": Check("node", "node", Scope.NODE, steps, parse),
    "pair": Check("pair", "pair", Scope.PAIR, steps, parse, impact=Impact.LOAD),
    "own": Check("own", "own", Scope.NODE, own_steps, parse),
}
SUITE = Suite("s", "s", tuple(SuiteEntry((name,)) for name in CHECKS))
LIMITS = (Limit("pair", "rate", "Gbit/s", min=90.0),)


def body(test: PlannedTest, step: int, node: str, job: int) -> bytes:
    """n4 is slow to everybody, and once more in a repetition."""
    return b"20\n" if "n4" in test.subject.nodes and test.check == "pair" else b"100\n"


def known(folder: Path) -> tuple[PlannedJob, Mapping[str, PlannedTest]]:
    path = folder.parent.parent
    jobs, tests = work(path, *((path / name).read_bytes() for name in ("plan.json", "facts.json")))
    return jobs[int(folder.name)], tests


@functools.lru_cache(maxsize=4)
def work(path: Path, plan_json: bytes, facts_json: bytes) -> tuple[dict[int, PlannedJob], Mapping[str, PlannedTest]]:
    """What a run's files say, by their content: it is asked at each look at the queue."""
    plan: Plan = records.loads(Plan, plan_json.decode(), where="plan.json")
    ground = read_ground(path)
    assert facts_json
    return {j.number: j for j in plan.jobs}, Stepped({t.id: t for t in plan.tests}, CHECKS, ground.facts, ground.env)


class World:
    """A cluster and a place for runs; `go` is one process after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = FakeSlurm(NAMES, known, body)
        self.slurm.at = lambda what: DEATH.event(f"slurm {what}") if DEATH.root else None
        self.lines: list[str] = []

    @property
    def progress(self) -> Progress:
        progress = Progress(quiet=True)
        progress.line = self.lines.append  # type: ignore[method-assign]
        return progress

    @property
    def path(self) -> Path | None:
        found = [p for p in self.folder.iterdir() if (p / "manifest.json").exists()]
        return found[0] if found else None

    def first(self) -> run.Outcome:
        return run.validate(Request(suite="s", run_dir=str(self.folder), allow_root=True), Site(), self.slurm,
                            self.progress)

    def resume(self) -> run.Outcome:
        assert self.path is not None
        return run.resume(self.path, Site(), self.slurm, self.progress)

    def dies(self, at: int, call: Callable[[], object]) -> bool:
        """Whether the call came to its death; False: it ended before."""
        global DEATH  # noqa: PLW0603
        listen()
        DEATH = Death(str(self.folder), at, slurm=self.slurm)
        try:
            call()
        except Killed:
            return True
        finally:
            DEATH = Death()
        return False


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name in ((run_job, "FIRST_POLL_S"), (run_job, "SLOWEST_POLL_S"), (run_job, "LOST_GRACE_S"),
                         (run_job, "GRACE_S"), (run_own, "RETRY_S"), (run_own, "NODE_S"), (run_own, "TAKE_EVERY_S"),
                         (run_job, "FIRST_LOOK_S"), (run_job, "SLOWEST_LOOK_S"), (run_stop, "CANCEL_EVERY_S"),
                         (run_lock, "PATIENCE_S"),
                         (run_waves, "NODES_FIRST_S"), (run_waves, "NODES_SLOWEST_S")):
        monkeypatch.setattr(module, name, 0.0)
    # Waves wait for nodes by the clock, which is a hundred times as fast here.
    monkeypatch.setattr(run_waves, "time", SimpleNamespace(monotonic=lambda: 100 * time.monotonic(), sleep=time.sleep))
    for module in (run, run_session):
        monkeypatch.setattr(module, "load_checks", lambda _="": CHECKS)
    monkeypatch.setattr(run_session, "load_suite", lambda *_: SUITE)
    monkeypatch.setattr(run_session, "load_limits", lambda _: LIMITS)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    inventory = Inventory(nodes=tuple(Node(n) for n in NAMES))
    monkeypatch.setattr(run_session, "accepted_inventory", lambda *_, **__: inventory)
    yield


def essence(verdicts: tuple[Verdict, ...]) -> list[tuple[object, ...]]:
    return sorted((v.check, v.subject.nodes, v.status.value, v.attempt,
                   v.measurement.value if v.measurement else None) for v in verdicts)


def sound(world: World, outcome: run.Outcome) -> Run:
    """What must be true of a run that is complete, however often it died on the way."""
    found = read_run(outcome.folder)
    assert found.problems == ()
    assert found.manifest.state == "complete"
    assert world.slurm.left == []
    assert essence(found.verdicts) == essence(outcome.verdicts)
    plan = found.plan
    assert plan is not None
    count = Counter(m.test for m in found.measured)
    steps_of = {t.id: 2 if t.check == "own" else 1 for t in plan.tests}
    assert count == {t.id: steps_of[t.id] for t in plan.tests}, "each test's measurements once"
    numbers = [j.comment for j in world.slurm.list]
    assert len(numbers) == len(set(numbers))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """The verdicts of a run that nothing happens to; filled by the first test that wants them."""
    return []


def reference(whole: list[tuple[object, ...]], folder: Path) -> list[tuple[object, ...]]:
    if not whole:
        folder.mkdir()
        world = World(folder)
        outcome = world.first()
        sound(world, outcome)
        whole += essence(outcome.verdicts)
        assert {s for _, _, s, _, _ in whole} >= {"PASS", "FAIL"}
    return whole


def test_a_run_that_nothing_happens_to(tmp_path: Path) -> None:
    world = World(tmp_path)
    found = sound(world, world.first())
    assert found.plan is not None
    assert [j.kind for j in found.plan.jobs][:1] == ["suite"]
    assert "again" in [j.kind for j in found.plan.jobs]


@pytest.mark.parametrize(("state", "left"), [("PENDING", "CANCELLED"), ("REQUEUE_HOLD", "CANCELLED"),
                                             ("RUNNING", "RUNNING"), ("COMPLETING", "COMPLETING")])
def test_a_job_that_waits_again_when_its_script_has_ended_is_cancelled(tmp_path: Path, state: str, left: str) -> None:
    """An admin has requeued it; what still runs is only ending. Slurm is asked once, and need not answer."""
    world, asked = World(tmp_path), []

    def requeued(what: str) -> None:
        if what == "find":
            asked.append(what)
            world.slurm.list[0].state = state
    world.slurm.at = requeued
    outcome = world.first()
    assert (asked, world.slurm.list[0].state) == (["find"], left)
    world.slurm.list[0].state = "COMPLETED"
    sound(world, outcome)


def test_a_controller_that_does_not_answer_at_the_end_is_nothing_to_tell(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, told = World(tmp_path), []
    monkeypatch.setattr(Progress, "failure", lambda self, text: told.append(text))

    def silent(what: str) -> None:
        if what == "find":
            raise SlurmError("the Slurm controller does not answer", where="squeue")
    world.slurm.at = silent
    sound(world, world.first())
    assert told == []


# Each third point, and other ones in each test; HPCADMIN_MANY=1: every point in every test.
EVERY = 1 if os.environ.get("HPCADMIN_MANY") else 3


def deaths(tmp_path: Path, make: Callable[[Path], World], after: Callable[[World], None],
           check: Callable[[World, run.Outcome], None], *, every: int = EVERY, first: int = 1) -> int:
    """Kill a run at every point in turn, from the first on; resume; check. How many points there were."""
    at = first - every
    while True:
        at += every
        folder = tmp_path / f"at{at}"
        folder.mkdir()
        world = make(folder)
        if not world.dies(at, world.first):
            return at - 1
        after(world)
        if world.path is None:              # no manifest yet: nothing was begun
            assert world.slurm.list == []
            continue
        check(world, world.resume())


@pytest.mark.deep
@pytest.mark.parametrize("instant", [True, False])
def test_killed_at_every_point(tmp_path: Path, whole: list[tuple[object, ...]], instant: bool) -> None:
    expected = reference(whole, tmp_path / "whole")

    def make(folder: Path) -> World:
        world = World(folder)
        world.slurm.instant = instant
        return world

    def check(world: World, outcome: run.Outcome) -> None:
        sound(world, outcome)
        assert essence(outcome.verdicts) == expected
    assert deaths(tmp_path, make, lambda world: None, check, first=1 + instant) > 60


@pytest.mark.deep
def test_killed_at_every_point_while_the_jobs_go_on(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    """They are over, and Slurm has forgotten them, when the run is resumed."""
    expected = reference(whole, tmp_path / "whole")

    def after(world: World) -> None:
        world.slurm.run_all()
        world.slurm.purged = True

    def check(world: World, outcome: run.Outcome) -> None:
        world.slurm.purged = False
        sound(world, outcome)
        assert essence(outcome.verdicts) == expected
    assert deaths(tmp_path, World, after, check, first=3) > 60


@pytest.mark.deep
@pytest.mark.parametrize("state", ["CANCELLED", "NODE_FAIL", "PREEMPTED", "FAILED"])
def test_killed_at_every_point_and_the_jobs_with_it(tmp_path: Path, whole: list[tuple[object, ...]],
                                                    state: str) -> None:
    """What they had left undone is planned again."""
    expected = reference(whole, tmp_path / "whole")

    def check(world: World, outcome: run.Outcome) -> None:
        sound(world, outcome)
        assert [e[:3] for e in essence(outcome.verdicts)] == [e[:3] for e in expected]
    deaths(tmp_path, World, lambda world: world.slurm.end_all(state), check, first="CNPF".index(state[0]) + 1)


@pytest.mark.deep
def test_killed_at_every_point_of_a_resumption(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    """The first process dies in the middle, its jobs with it; the second one dies at each point of its own."""
    expected = reference(whole, tmp_path / "whole")
    for first in (20, 40):
        at = first // 20 - EVERY
        while True:
            at += EVERY
            folder = tmp_path / f"{first}-{at}"
            folder.mkdir()
            world = World(folder)
            assert world.dies(first, world.first)
            world.slurm.end_all("NODE_FAIL")
            if not world.dies(at, world.resume):
                break
            outcome = world.resume()
            sound(world, outcome)
            assert [e[:3] for e in essence(outcome.verdicts)] == [e[:3] for e in expected]
        assert at > 20


def in_use(folder: Path) -> World:
    world = World(folder)
    world.slurm.taken = {"n3": 1, "n4": 2}
    return world


@pytest.mark.deep
def test_a_run_on_a_cluster_in_use(tmp_path: Path) -> None:
    world = in_use(tmp_path)
    found = sound(world, world.first())
    assert found.plan is not None
    assert len([j for j in found.plan.jobs if j.kind not in ("own", "again")]) > 1


@pytest.mark.deep
@pytest.mark.parametrize("state", ["", "NODE_FAIL"])
def test_killed_at_many_points_on_a_cluster_in_use(tmp_path: Path, whole: list[tuple[object, ...]],
                                                   state: str) -> None:
    expected = reference(whole, tmp_path / "whole")

    def check(world: World, outcome: run.Outcome) -> None:
        sound(world, outcome)
        assert [e[:3] for e in essence(outcome.verdicts)] == [e[:3] for e in expected]
    deaths(tmp_path, in_use, lambda world: world.slurm.end_all(state) if state else None, check, every=7)


@pytest.mark.deep
def test_killed_now_and_then(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    """A few of those points, for every day."""
    expected = reference(whole, tmp_path / "whole")
    for at in (14, 23, 37, 55, 70):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = World(folder)
        assert world.dies(at, world.first)
        outcome = world.resume()
        sound(world, outcome)
        assert essence(outcome.verdicts) == expected


# --- the ways to end one that are no death --------------------------------------------------------------------------


def at_once(what: str, act: Callable[[], None], times: int = 1) -> Callable[[str], None]:
    """Do it when Slurm is asked that, the first times."""
    left = [times]

    def at(event: str) -> None:
        if event == what and left[0]:
            left[0] -= 1
            act()
    return at


def kill_me(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def test_one_interrupt_stops_after_the_round(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    expected = reference(whole, tmp_path / "whole")
    (tmp_path / "run").mkdir()
    world = World(tmp_path / "run")
    world.slurm.at = at_once("ask", kill_me(signal.SIGINT))
    outcome = world.first()
    assert (outcome.exit_status, world.slurm.left) == (130, [])
    found = read_run(outcome.folder)
    assert found.manifest.state == "interrupted"
    status = Counter(v.status.value for v in found.verdicts)
    assert status["NOT RUN"] and len(found.measured) in (0, 4)
    assert any("--resume" in v.reason for v in found.verdicts)
    world.slurm.at = lambda what: None
    outcome = world.resume()
    sound(world, outcome)
    assert [e[:3] for e in essence(outcome.verdicts)] == [e[:3] for e in expected]


def test_two_interrupts_cancel_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.at = at_once("ask", kill_me(signal.SIGINT), 2)
    world.slurm.fate[1] = "RUNNING 1"       # it never ends by itself
    outcome = world.first()
    assert (outcome.exit_status, world.slurm.left) == (130, [])
    assert read_run(outcome.folder).manifest.state == "interrupted"
    world.slurm.at = lambda what: None
    sound(world, world.resume())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_jobs(tmp_path: Path, whole: list[tuple[object, ...]], number: int) -> None:
    expected = reference(whole, tmp_path / "whole")
    (tmp_path / "run").mkdir()
    world = World(tmp_path / "run")
    world.slurm.at = at_once("ask", kill_me(number))
    outcome = world.first()
    assert (outcome.exit_status, world.slurm.left) == (130, [100])
    assert any("--resume" in line and "1 job" in line for line in world.lines)
    world.slurm.at = lambda what: None
    outcome = world.resume()
    sound(world, outcome)
    assert essence(outcome.verdicts) == expected


def test_the_first_signal_that_ends_a_run_is_the_last_that_is_heard(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that hangs up sends SIGHUP after SIGTERM: what is saved then is not cut off."""
    world = World(tmp_path)
    left = run_ledger.Ledger.left

    def hung_up(self: run_ledger.Ledger, why: str) -> run.Outcome:
        os.kill(os.getpid(), signal.SIGHUP)
        return left(self, why)
    monkeypatch.setattr(run_ledger.Ledger, "left", hung_up)
    world.slurm.at = at_once("ask", kill_me(signal.SIGTERM))
    outcome = world.first()
    found = read_run(outcome.folder)
    assert (outcome.exit_status, found.manifest.state, found.manifest.exit_status) == (130, "interrupted", 130)
    assert found.verdicts


def test_a_signal_that_came_to_nothing_is_heard_at_the_next_look(tmp_path: Path) -> None:
    """Python drops what is raised in some places, as in a callback of the garbage collector."""
    world = World(tmp_path)

    def dropped() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    world.slurm.at = at_once("ask", dropped)
    outcome = world.first()
    assert (outcome.exit_status, world.slurm.left) == (130, [100])


def test_nohup_is_respected(tmp_path: Path) -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        world = World(tmp_path)
        world.slurm.at = at_once("ask", kill_me(signal.SIGHUP))
        sound(world, world.first())
    finally:
        signal.signal(signal.SIGHUP, old)


def test_a_job_that_was_just_being_submitted_is_cancelled_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm takes it after all that it knew of the run has been cancelled."""
    world = World(tmp_path)

    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    def later(seconds: float) -> None:
        world.slurm.list.append(FakeJob(100, tmp_path, f"hpcadmin:{world.path.name if world.path else ''}:1"))
    world.slurm.at = at_once("submit", twice)
    monkeypatch.setattr(run_ledger, "time", SimpleNamespace(sleep=later))
    outcome = world.first()
    assert (outcome.exit_status, world.slurm.left) == (130, [])
    assert [job.state for job in world.slurm.list] == ["CANCELLED"]


def test_a_folder_that_was_moved_is_gone_on_with_when_its_jobs_are_over(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    world = World(tmp_path / "old")
    world.slurm.at = at_once("ask", kill_me(signal.SIGTERM))
    path = world.first().folder
    world.slurm.at = lambda what: None
    (tmp_path / "new").mkdir()
    path.rename(tmp_path / "new" / path.name)
    world.folder = tmp_path / "new"
    with pytest.raises(UsageError, match="its jobs still write to: 100"):
        world.resume()
    world.slurm.end_all("CANCELLED")
    found = sound(world, world.resume())
    assert found.manifest.folder == str(tmp_path / "new" / path.name)


def test_a_copy_is_not_gone_on_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.at = at_once("ask", kill_me(signal.SIGTERM))
    path = world.first().folder
    world.slurm.at = pytest.fail
    copy = shutil.copytree(path, tmp_path / "copy")
    for call in (lambda: run.resume(copy, Site(), world.slurm, world.progress),
                 lambda: run.cancel(copy, world.slurm, world.progress)):
        with pytest.raises(UsageError, match="is a copy of"):
            call()
    assert world.slurm.left == [100]


def test_a_watcher_that_does_not_end_loses_its_jobs_all_the_same(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.slurm.at = at_once("ask", kill_me(signal.SIGTERM))
    path = world.first().folder
    monkeypatch.setattr(run, "CANCEL_WAIT_S", 0.0)
    monkeypatch.setattr(run, "watcher", lambda _: run_lock.Holder("elsewhere", 1, "noon"))
    with pytest.raises(StoreError, match="its jobs are cancelled, but process 1 on elsewhere since noon"):
        run.cancel(path, world.slurm, world.progress)
    assert world.slurm.left == []


def test_cancelled_by_another_process(tmp_path: Path) -> None:
    """The mark is seen wherever the watcher is."""
    world = World(tmp_path)

    def mark() -> None:
        assert world.path is not None
        (world.path / "cancel").touch()
    world.slurm.at = at_once("ask", mark)
    outcome = world.first()
    assert (outcome.exit_status, world.slurm.left) == (130, [])
    assert read_run(outcome.folder).manifest.state == "cancelled"
    world.slurm.at = lambda what: None
    sound(world, world.resume())


def test_cancelled_when_nobody_watches(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.at = at_once("ask", kill_me(signal.SIGTERM), 1)
    path = world.first().folder
    world.slurm.at = lambda what: None
    world.slurm.step()
    world.slurm.step()
    outcome = run.cancel(path, world.slurm, world.progress)
    found = read_run(path)
    assert (outcome.text, found.manifest.state, world.slurm.left) == (f"run {path.name} is cancelled", "cancelled", [])
    assert len(found.measured) >= 4, "what was measured is kept"
    assert not (path / "cancel").exists()
    with pytest.raises(UsageError, match="is complete"):
        run.cancel(world.resume().folder, world.slurm, world.progress)


# --- what a resumption finds ----------------------------------------------------------------------------------------


def test_a_complete_run_is_only_judged_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.first()
    world.slurm.at = pytest.fail
    again = world.resume()
    assert "is complete: judged again" in again.text
    assert essence(again.verdicts) == essence(first.verdicts)
    assert again.exit_status == first.exit_status


@pytest.mark.deep
def test_in_the_background(tmp_path: Path) -> None:
    """What another process says goes into the run folder; it is told when it comes to nothing."""
    world = World(tmp_path)
    path = world.first().folder
    run.detach(path, None, allow_root=True)
    end = time.monotonic() + 60
    while "judged again" not in (path / "validate.log").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    (path / "manifest.json").write_text("{")
    with pytest.raises(SlurmError, match=r"validate\.log: ended at once: hpcadmin: .*manifest\.json"):
        run.detach(path, None, allow_root=True)


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    refused: list[str] = []

    def second() -> None:
        with pytest.raises(UsageError) as told:
            world.resume()
        refused.append(str(told.value))
    world.slurm.at = at_once("ask", second)
    sound(world, world.first())
    assert refused[0].startswith("run ") and f"is being watched by process {os.getpid()} on" in refused[0]


def test_a_controller_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.at = at_once("ask", kill_me(signal.SIGTERM))
    path = world.first().folder
    before = (path / "manifest.json").read_bytes()

    def away(what: str) -> None:
        raise SlurmError("the Slurm controller does not answer")
    world.slurm.at = away
    with pytest.raises(SlurmError):
        world.resume()
    assert (path / "manifest.json").read_bytes() == before
    world.slurm.at = lambda what: None
    sound(world, world.resume())


def test_a_node_that_dies_is_left_out_of_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.fate[1] = "NODE_FAIL 1"
    world.slurm.at = at_once("ask", lambda: world.slurm.down.add("n3"), 1)
    outcome = world.first()
    status = {(v.check, v.subject.nodes): v.status.value for v in outcome.verdicts}
    bad = {nodes for (check, nodes), s in status.items() if s == "ERROR"}
    assert bad and all("n3" in nodes for nodes in bad)
    assert all("NODE_FAIL" in v.reason for v in outcome.verdicts if v.status.value == "ERROR" and v.check == "pair")
    assert {s for (check, nodes), s in status.items() if "n3" not in nodes} <= {"PASS", "FAIL", "UNJUDGED", "WARN"}
    assert world.slurm.left == []


def test_a_job_that_always_dies_is_given_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.fate = dict.fromkeys(range(1, 40), "PREEMPTED 0")
    outcome = world.first()
    plan = read_run(outcome.folder).plan
    assert plan is not None
    assert len([j for j in plan.jobs if j.kind == "suite"]) == 4
    assert {v.status.value for v in outcome.verdicts} == {"ERROR"}
    assert outcome.exit_status == 3


def test_what_somebody_cancels_is_not_submitted_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.slurm.fate[1] = "CANCELLED 1"
    outcome = world.first()
    plan = read_run(outcome.folder).plan
    assert plan is not None
    assert len([j for j in plan.jobs if j.kind == "suite"]) == 1
    assert outcome.exit_status == 3


def lost_and_busy(folder: Path) -> World:
    """The first job is lost, and by then others have taken a node."""
    world = World(folder)
    world.slurm.fate[1] = "NODE_FAIL 1"
    world.slurm.taken = {"n4": 3}
    state = world.slurm._state
    world.slurm._state = lambda node: state(node) if world.slurm.list else "IDLE"  # type: ignore[method-assign]
    return world


@pytest.mark.deep
def test_killed_at_many_points_in_the_waves_of_what_is_left(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    """No test is made twice, also when all that was left is in waves already."""
    expected = reference(whole, tmp_path / "whole")

    def check(world: World, outcome: run.Outcome) -> None:
        found = sound(world, outcome)
        assert {e[:3] for e in essence(outcome.verdicts)} == {e[:3] for e in expected}
        assert found.plan is not None
        logs = {folder.name: b"".join(p.read_bytes() for p in folder.glob("*.log"))
                for folder in (outcome.folder / "jobs").iterdir()}
        suite = {str(j.number) for j in found.plan.jobs if j.kind == "suite"}
        for test in found.plan.tests:
            made = [name for name in suite if f" id={test.id} ".encode() in logs[name]]
            assert len(made) <= 1, f"{test.id} was made by jobs {made}"
    assert deaths(tmp_path, lost_and_busy, lambda world: None, check, every=5) > 60


def test_what_is_left_is_made_in_waves_where_nodes_are_busy(tmp_path: Path) -> None:
    """A job that is lost while others have taken nodes: its rest does not stand in line for all of them."""
    world = lost_and_busy(tmp_path)
    found = sound(world, world.first())
    assert found.plan is not None
    assert any("1 node of 4 in use" in line for line in world.lines)
    assert len([j for j in found.plan.jobs if j.kind == "suite"]) > 2


def test_a_controller_that_was_just_started_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For some seconds it knows of no node what it is; one that does not answer is not waited for."""
    monkeypatch.setattr(run_nodes, "STARTED_EVERY_S", 0.0)
    told = [["UNKNOWN", "UNKNOWN"], ["IDLE", "UNKNOWN"], ["IDLE", "UNKNOWN+NOT_RESPONDING"], ["IDLE", "IDLE"]]

    class Starting(FakeSlurm):
        def nodes(self) -> tuple[SlurmNode, ...]:
            return tuple(SlurmNode(n, node_state(s)) for n, s in zip(self.names, told.pop(0), strict=True))
    nodes = run_nodes.nodes_now(Starting(("n1", "n2"), known, body))
    assert [n.state.base for n in nodes] == ["IDLE", "UNKNOWN"]
    assert len(told) == 1


def test_retest_takes_what_failed_and_partners(tmp_path: Path) -> None:
    world = World(tmp_path)
    found = read_run(world.first().folder)
    request = retest(Request(), Request(suite="s", partition="main"), found)
    assert (request.only, request.retest_of, request.suite, request.partition) == (
        ("pair",), found.manifest.run_id, "s", "main")
    assert request.hostlist == "n[1-4]"
    good = replace(found, verdicts=tuple(v for v in found.verdicts if v.status.value != "FAIL"))
    with pytest.raises(UsageError, match="nothing failed"):
        retest(Request(), Request(), good)

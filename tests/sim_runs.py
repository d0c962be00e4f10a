"""Runs on the simulated Slurm (sim_slurm) from the first process to the last, and what must be true of each of them."""

import contextlib
import functools
import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sim_slurm import HORIZON, OVER, TROUBLES, Sim, SimClient, SimJob, Written

from hpcadmin import run, run_begin, run_folder, run_look_many, run_session
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
    Status,
    Step,
    Subject,
    Verdict,
)
from hpcadmin.errors import HpcadminError, UsageError
from hpcadmin.hosts import fold
from hpcadmin.model import Inventory, Node
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.run_job import JobRun
from hpcadmin.run_progress import Progress
from hpcadmin.run_session import Request
from hpcadmin.run_submit import Desk
from hpcadmin.rundata import PlannedTest, read_run
from hpcadmin.site import Site

LIVES = 8                   # processes of a run at most; before the last ones all trouble ends
MEASURED = (Status.PASS, Status.WARN, Status.FAIL, Status.UNJUDGED)


class Killed(BaseException):
    """No exception that anything catches."""


def steps(context: Context) -> "tuple[Step, ...]":
    return (Step(("true",), Role.RANKS if len(context.nodes) > 1 else Role.EACH),)


def own_steps(context: Context) -> "tuple[Step, ...]":
    return tuple(Step(("true",), Role.JOB, name=f"job {n}", job=JobRequest()) for n in (1, 2))


def parse(outputs: "list[Output]", context: Context) -> "list[Measurement]":
    names = tuple(n.name for n in context.nodes)
    return [Measurement("rate", float(o.text), "Gbit/s", subject=Subject(names), key=True) for o in outputs]


def parse_after(outputs: "list[Output]", context: Context) -> "list[Measurement]":
    return parse(outputs[-1:], context)         # with those before the load in front


CHECKS = {
    "node": Check("node", "node", Scope.NODE, steps, parse),
    "health": Check("health", "health", Scope.NODE, steps, parse_after, again_after_load=True),
    "pair": Check("pair", "pair", Scope.PAIR, steps, parse, impact=Impact.LOAD),
    "all": Check("all", "all", Scope.GROUP, steps, parse, impact=Impact.LOAD),
    "own": Check("own", "own", Scope.NODE, own_steps, parse),
}
LIMITS = tuple(Limit(name, "rate", "Gbit/s", min=90.0) for name in ("node", "pair", "all"))

# --- a process's doings ---------------------------------------------------------------------------------------------


@dataclass
class Trap:
    """Sees what a process does to the world under `root`, and lets it die or its disk be full."""

    root: str
    sim: Sim
    at: int = 0                     # its death is the so many-th deed; 0: it lives
    count: int = 0
    dead: bool = False
    full: "list[tuple[float, float]]" = field(default_factory=list)

    def deed(self, what: str) -> None:
        if self.dead:
            raise Killed
        self.count += 1
        if self.at and self.count >= self.at:
            self.dead = True
            raise Killed

    def audit(self, name: str, args: "tuple[object, ...]") -> None:
        if self.sim.busy:
            return
        if name == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        if str(args[0]).startswith(self.root):
            self.deed(name)
            now = self.sim.clock.now
            if name != "os.remove" and any(a <= now < b for a, b in self.full):
                raise OSError(28, "No space left on device")

    def write(self, fd: int, data: "bytes | memoryview") -> int:
        """os.write: a death, or the end of the disk, may come in the middle of it."""
        if self.sim.busy or not str(Path(f"/proc/self/fd/{fd}").readlink()).startswith(self.root):
            return WRITE(fd, data)
        try:
            self.deed("write")
        except Killed:
            if self.count == self.at:
                WRITE(fd, data[:len(data) // 2])
            raise
        if any(a <= self.sim.clock.now < b for a, b in self.full):
            WRITE(fd, data[:len(data) // 2])
            raise OSError(28, "No space left on device")
        return WRITE(fd, data)


TRAP: "list[Trap]" = []
WRITE = os.write
HEARD = frozenset({"open", "os.mkdir", "os.rename", "os.remove"})


@functools.cache
def listen() -> None:
    """For as long as the process lives, and every test of it pays: only once somebody wants to know."""
    def audit(name: str, args: "tuple[object, ...]") -> None:
        if TRAP and name in HEARD:
            TRAP[-1].audit(name, args)

    sys.addaudithook(audit)

# --- a run ----------------------------------------------------------------------------------------------------------


class World:
    """One run on a simulated cluster: its processes, one after the other, and others beside it."""

    def __init__(self, root: Path, seed: int, troubles: "Collection[str] | None" = None) -> None:
        self.root, self.seed = root, seed
        draw = Sim(seed, (), ()).rng("world")
        some = frozenset(t for t in TROUBLES if draw.random() < 0.35)
        self.troubles = some if troubles is None else frozenset(troubles)
        self.names = tuple(f"n{i}" for i in range(1, draw.choice([1, 2, 3, 4, 5, 6, 9]) + 1))
        self.asked = tuple(n for n in self.names if draw.random() < 0.8) or self.names
        self.sim = Sim(seed, self.names, self.troubles)
        self.trap = Trap(str(root), self.sim)
        self.client = SimClient(self.sim, self._deed)
        entries = [name for name in CHECKS if draw.random() < 0.7] or ["node"]
        self.suite = Suite("s", "s", tuple(SuiteEntry((n,)) for n in entries), pairs=draw.choice(["all", "all", 2]))
        self.look = draw.random() < 0.3
        self.request = Request(
            suite="s", run_dir=str(root), allow_root=True, hostlist=fold(self.asked),
            wait_for_s=draw.choice([30.0, 120.0, 900.0]), max_jobs=draw.choice([1, 2, 3, 8]),
            only_idle=draw.random() < 0.15, at_once=draw.choice([0, 0, 0, 0, 2]))
        self.lines: list[str] = []
        self.faults: list[str] = []
        self.ended: dict[Path, float] = {}
        self.lives: list[str] = []
        self.todo: list[Callable[[], None]] = []
        self.alive = False
        self.nested = False
        self._watch_queue()

    def _deed(self, what: str) -> None:
        if not self.nested:
            self.trap.deed(what)

    def _watch_queue(self) -> None:
        """Looks at each job that comes in."""
        enter = self.client._enter

        def entered(job: SimJob) -> None:
            enter(job)
            here = [j for j in self.sim.jobs if j.state not in ("COMPLETING", *OVER) and not j.cancelled and not j.own
                    and j.folder.parent == job.folder.parent and j.comment != job.comment]
            if job.own or any(j.late for j in self.sim.jobs) or any(j.planned.kind == "again" for j in here):
                here = []
            if not set(job.nodes) <= set(self.asked):
                self.faults.append(f"{job.comment} asks for {job.nodes}")
            if any(set(job.nodes) & set(j.nodes) for j in here):
                self.faults.append(f"{job.comment} wants a node of {[(j.comment, j.state) for j in here]}")
            if len(here) + 1 > self.request.max_jobs and not job.own:
                self.faults.append(f"{len(here) + 1} jobs in the queue")
        self.client._enter = entered  # type: ignore[method-assign]

    @property
    def progress(self) -> Progress:
        progress = Progress(quiet=True)
        progress.line = progress.failure = self.lines.append  # type: ignore[method-assign]
        return progress

    @property
    def path(self) -> "Path | None":
        return next((p for p in sorted(self.root.iterdir()) if (p / "manifest.json").exists()), None)

    # --- processes

    def first(self) -> run.Outcome:
        return run.validate(self.request, Site(), self.client, self.progress)

    def resume(self) -> run.Outcome:
        assert self.path is not None
        return run.resume(self.path, Site(), self.client, self.progress)

    def sleep(self, seconds: float) -> None:
        self.sim.clock.pass_(seconds)
        while self.todo and not self.nested:
            self.nested = True
            try:
                self.todo.pop()()
            finally:
                self.nested = False

    def live(self, call: "Callable[[], run.Outcome]") -> "run.Outcome | None":
        """One process; how it ended is in `lives`."""
        sim, draw = self.sim, self.sim.rng(f"life {len(self.lives)}")
        dies = "kill" in sim.troubles and draw.random() < 0.7
        self.trap.at = draw.choice([draw.randint(1, 60), draw.randint(1, 400)]) if dies else 0
        self.trap.count, self.trap.dead = 0, False
        self.trap.full = []
        if "disk" in sim.troubles and draw.random() < 0.5:
            begin = sim.clock.now + draw.uniform(0, 60)
            self.trap.full = [(begin, begin + draw.choice([0.05, 5.0, 100.0]))]
        if "signal" in sim.troubles:
            for _ in range(draw.randint(0, 2)):
                number = draw.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, None])
                sim.clock.at(sim.clock.now + draw.uniform(0, 60), partial(self._signal, number, len(self.lives)))
        if "two" in sim.troubles and not self.lives:
            what = draw.choice([self._second_resume, self._second_run])
            sim.clock.at(sim.clock.now + draw.uniform(0, 40), lambda: self.todo.append(what))
        before, begun = len(self.client.calls), sim.clock.now
        jobs = len(sim.jobs)
        self.alive = True
        try:
            outcome = call()
        except Killed:
            self.lives.append("killed")
            return None
        except HpcadminError as exc:
            assert "\n" not in str(exc)
            self.lives.append(f"{type(exc).__name__}: {exc}")
            return None
        finally:
            self.alive = False
            self.trap.at = 0
            self.trap.full = []
            self.trap.dead = False
            self._bounded(len(self.client.calls) - before, sim.clock.now - begun, len(sim.jobs) - jobs)
        self.lives.append(read_run(outcome.folder).manifest.state)
        return outcome

    def _bounded(self, calls: int, seconds: float, jobs: int) -> None:
        most = 40 + 16 * jobs + seconds / 4
        if calls > most:
            self.faults.append(f"{calls} questions in {seconds:.0f} s for {jobs} jobs: " + str(Counter(
                what for _, what in self.client.calls[-calls:])))

    def _signal(self, number: "signal.Signals | None", life: int) -> None:
        if not self.alive or self.nested or life != len(self.lives):
            return
        if number is None:
            if self.path is not None:
                with self.sim.writing():
                    (self.path / "cancel").touch()
        elif "interrupt" in repr(signal.getsignal(number)) or "leave" in repr(signal.getsignal(number)):
            os.kill(os.getpid(), number)

    def _second_resume(self) -> None:
        """A second process must not come in between."""
        if self.path is None or read_run(self.path).manifest.state == "complete":
            return
        try:
            self.resume()
        except UsageError as exc:
            if "is being watched by" not in str(exc):
                self.faults.append(str(exc))
        except HpcadminError as exc:
            if "No space" not in str(exc):
                self.faults.append(f"second: {exc}")
        else:
            self.faults.append("two processes watch one run")

    def _second_run(self) -> None:
        """Another run on the same nodes, while this process is as if frozen."""
        with contextlib.suppress(HpcadminError):
            outcome = run.validate(replace(self.request, run_dir=str(self.root / "other"), wait_for_s=60.0), Site(),
                                   self.client, self.progress)
            found = read_run(outcome.folder)
            if found.manifest.state == "complete" and found.plan is not None:
                ids = {v.test for v in outcome.verdicts}
                self.faults += [f"other run: {t.id}" for t in found.plan.tests if not t.repeats and t.id not in ids]

    # --- the whole story

    def go(self) -> "run.Outcome | None":
        draw = self.sim.rng("story")
        outcome = None
        for life in range(LIVES + 4):
            if life == LIVES:
                self.sim.calm()
            outcome = self.live(self.first if self.path is None else self.resume)
            if outcome is not None and self.lives[-1] == "complete":
                return outcome
            self.sim.clock.pass_(draw.choice([0.1, 5.0, 60.0, 400.0]))
            self.sim.clock.end = self.sim.clock.now + HORIZON
        return None


@contextlib.contextmanager
def virtual(world: World) -> Iterator[None]:
    """Time, disk and registry as the world has them."""
    names = {n: Node(n) for n in world.names}
    inventory = None if world.look else Inventory(nodes=tuple(names.values()))
    write, end, take, take_past = JobRun.write_script, Desk.end, run_begin.take, Desk.take_past

    def registering(job_run: JobRun) -> None:
        write(job_run)
        world.sim.scripts[job_run.folder] = job_run.job, job_run.tests

    def ending(desk: Desk, job_run: JobRun) -> None:
        world.ended[job_run.folder] = world.sim.clock.now
        end(desk, job_run)

    def past(desk: Desk, job_run: JobRun) -> None:
        take_past(desk, job_run)
        world.ended[job_run.folder] = world.sim.clock.now

    def checks(_: str = "") -> "dict[str, Check]":
        return CHECKS

    def named(runs: Path, _name: str) -> Path:
        """A run's pairs are drawn by its name, which has the time in it."""
        path = runs / f"{runs.name}-{len(list(runs.iterdir()))}"
        path.mkdir(mode=0o700)
        return path
    taking = partial(take, read=lambda text, node: names[node])
    changes: list[tuple[object, str, object]] = [
        (time, "monotonic", lambda: world.sim.clock.now), (time, "sleep", world.sleep), (os, "fsync", lambda _: None),
        (os, "write", world.trap.write),
        (run, "load_checks", checks), (run_session, "load_checks", checks), (run_folder, "_new_folder", named),
        (run_session, "load_suite", lambda *_: world.suite), (run_session, "load_limits", lambda _: LIMITS),
        (run_session, "accepted_inventory", lambda *_, **__: inventory), (JobRun, "write_script", registering),
        (Desk, "end", ending), (Desk, "take_past", past), (run_begin, "take", taking), (run_look_many, "take", taking)]
    old = [(place, name, getattr(place, name)) for place, name, _ in changes]
    listen()
    TRAP.append(world.trap)
    try:
        for place, name, value in changes:
            setattr(place, name, value)
        yield
    finally:
        TRAP.pop()
        for place, name, value in old:
            setattr(place, name, value)


def play(root: Path, seed: int, troubles: "Collection[str] | None" = None) -> "tuple[World, list[str]]":
    """The run of a seed, and what is wrong with it."""
    root.mkdir(parents=True)
    world = World(root, seed, troubles)
    with virtual(world):
        outcome = world.go()
        if outcome is None:
            return world, [*world.faults, f"never complete: {world.lives}"]
        asked = len(world.client.calls)
        again = world.resume()
    wrong = [*world.faults, *problems(world, outcome)]
    if sorted(map(_essence, again.verdicts)) != sorted(map(_essence, outcome.verdicts)) or (
            again.exit_status != outcome.exit_status or len(world.client.calls) > asked):
        wrong.append("a complete run is another when it is gone on with")
    return world, wrong


# --- what must be true ----------------------------------------------------------------------------------------------


def problems(world: World, outcome: run.Outcome) -> "list[str]":
    found = read_run(outcome.folder)
    plan = found.plan
    assert plan is not None
    wrong = [f"problem: {p}" for p in found.problems]
    told = any("could not be cancelled" in line or "jobs of this run are left" in line for line in world.lines)
    wrong += [f"left in the queue: {j.comment} {j.state} {j.reason}" for j in world.sim.left
              if j.state != "COMPLETING" and j.folder.is_relative_to(outcome.folder) and not told]
    by_test: dict[str, list[Verdict]] = {}
    for verdict in outcome.verdicts:
        by_test.setdefault(verdict.test, []).append(verdict)
    values: dict[str, list[float]] = {}
    for one in found.measured:
        values.setdefault(one.test, []).append(float(one.measurement.value))
    for test in plan.tests:
        wrong += _of_test(world, outcome.folder, test, by_test.get(test.id, []), values.get(test.id, []))
    wrong += _status(outcome, found.manifest.exit_status)
    nodes = next(c for c in found.coverage if c.kind == "nodes")
    seen = {n for t in plan.tests for v in by_test.get(t.id, []) if v.status in MEASURED and v.basis != "plan"
            for n in t.subject.nodes}
    away = [n for gone in nodes.not_tested for n in gone.what]
    if nodes.expected != len(world.asked) or nodes.tested != len(seen) or sorted(away) != sorted(
            set(world.asked) - seen):
        wrong.append(f"coverage {nodes} of {sorted(seen)}")
    if sorted(map(_essence, found.verdicts)) != sorted(map(_essence, outcome.verdicts)):
        wrong.append("the verdicts in the folder are others")
    return wrong


def _essence(v: Verdict) -> str:
    return f"{v.test} {v.check} {v.subject} {v.status} {v.reason}"


def _of_test(world: World, folder: Path, test: PlannedTest, verdicts: "list[Verdict]",
             values: "list[float]") -> "list[str]":
    job = folder / "jobs" / str(test.job)
    frames = world.sim.truth.get((job, test.id), {})
    count = 2 if test.check == "own" else 1
    if test.check == "own":             # its jobs are two, in folders of neighbouring numbers
        other = folder / "jobs" / str(test.job + 1)
        frames = {**frames, **world.sim.truth.get((other, test.id), {})}
    name = f"{test.id} {test.check} {test.subject} of job {test.job}"
    wrong = []
    places = {job, job.with_name(str(test.job + 1))} if test.check == "own" else {job}
    ever = {value for place, value in world.sim.ever.get(test.id, ()) if place in places}
    if len(set(values)) < len(values) or not ever.issuperset(values):
        wrong.append(f"{name} measured {values}, written {frames}")
    if len(values) not in (0, count):
        wrong.append(f"{name}: {len(values)} values")
    silence = any("not answer" in v.reason for v in verdicts) or any(      # it was not known that there is such a job
        j.late and j.folder == job for j in world.sim.jobs)
    if not values and not silence and _was_there(world, job, test, frames, count):
        wrong.append(f"{name} is lost: {[v.reason for v in verdicts]}")
    if test.repeats:
        return wrong
    if not verdicts:
        wrong.append(f"{name} has no verdict")
    measured = [v for v in verdicts if v.status in MEASURED]
    if bool(measured) != bool(values) and not any("again" in v.reason for v in verdicts):
        wrong.append(f"{name}: {[(v.status, v.reason) for v in verdicts]} with values {values}")
    if not measured and (len(verdicts) != 1 or not verdicts[0].reason or "\n" in verdicts[0].reason):
        wrong.append(f"{name}: {[(v.status, v.reason) for v in verdicts]}")
    return wrong


def _was_there(world: World, job: Path, test: PlannedTest, frames: "dict[tuple[int, str, str], Written]",
               count: int) -> bool:
    """Whether the outputs were there, whole, for long before anybody gave up waiting for them."""
    until = world.ended.get(job, world.sim.clock.now - 15.0)
    return len(frames) == count and test.check != "own" and all(
        w.sound and w.when < until - 1.0 for w in frames.values())


def _status(outcome: run.Outcome, told: "int | None") -> "list[str]":
    states = {v.status for v in outcome.verdicts if v.status not in (Status.NOT_APPLICABLE, Status.NOT_NEEDED)}
    right = 1 if Status.FAIL in states else 3 if states & {
        Status.ERROR, Status.NOT_RUN, Status.UNJUDGED} or not states else 0
    return [] if right == told == outcome.exit_status else [f"exit status {told} for {states}"]


def shrunk(make: "Callable[[], Path]", seed: int, troubles: "Collection[str]") -> "frozenset[str]":
    """The fewest kinds of trouble with which the run of this seed still goes wrong."""
    kept = set(troubles)
    for kind in itertools.chain(TROUBLES, TROUBLES):
        if kind in kept:
            try:
                bad = bool(play(make(), seed, kept - {kind})[1])
            except BaseException:  # noqa: BLE001
                bad = True
            if bad:
                kept.discard(kind)
    return frozenset(kept)

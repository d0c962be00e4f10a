"""A simulated Slurm with a clock of its own: nodes that others use and that fail, jobs with every fate, lost answers.

All chance is drawn from one seed, a stream for each kind of trouble, so that a run that fails is shrunk by taking kinds
away (sim_runs). Jobs do what job.sh does, with made-up outputs; what they wrote is kept, to compare the results with.
"""

import contextlib
import heapq
import itertools
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from hpcadmin.errors import HpcadminError, SlurmError, UsageError
from hpcadmin.frames import Frame, encode
from hpcadmin.hosts import expand
from hpcadmin.rundata import PlannedJob, PlannedTest
from hpcadmin.slurm.client import NoAnswerError, Partition, SlurmNode
from hpcadmin.slurm.script import expected_frames
from hpcadmin.slurm.states import Job, node_state

TROUBLES = ("busy", "nodes", "fates", "logs", "late", "away", "lost", "refuse", "disk", "kill", "signal", "purge",
            "two")
HORIZON = 20_000.0
OVER = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL",
        "DEADLINE", "FROBNICATED")
FATES = ("FAILED", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
         "FROBNICATED", "requeued", "held", "launch", "suspended", "stuck", "vanished", "again")
DAMAGE = ("cut", "flip", "twice", "foreign", "link", "fifo", "folder", "gone", "marks")


class StuckError(BaseException):
    """The run goes on for longer than anything could explain."""


class Clock:
    """Time that passes when somebody sleeps or asks, and what is to happen then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.end = self.now + HORIZON
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._number), act))

    def pass_(self, seconds: float) -> None:
        until = self.now + max(seconds, 1e-4)
        while self._events and self._events[0][0] <= until:
            when, _, act = heapq.heappop(self._events)
            self.now = max(self.now, when)
            act()
        self.now = max(self.now, until)
        if self.now > self.end:
            raise StuckError(f"it still goes on after {HORIZON:g} s")


@dataclass
class SimNode:
    name: str
    taken: "list[tuple[float, float]]" = field(default_factory=list)          # by others
    bad: "list[tuple[float, float, str]]" = field(default_factory=list)       # from, until, state

    def bad_now(self, now: float) -> str:
        return next((word for a, b, word in self.bad if a <= now < b), "")

    def taken_now(self, now: float) -> bool:
        return any(a <= now < b for a, b in self.taken)


@dataclass
class SimJob:
    id: int
    folder: Path
    comment: str
    nodes: "tuple[str, ...]"
    exclusive: bool
    limit_s: float
    planned: PlannedJob
    tests: "Mapping[str, PlannedTest]"
    fate: str
    fate_at: float                  # stages that it makes before
    damage: str
    lag: float
    pace: float
    state: str = "PENDING"
    reason: str = "None"
    over_at: "float | None" = None
    started: "float | None" = None
    restarts: int = 0
    stage: int = 0
    turn: int = 0                   # what was to happen to an earlier life of it does not
    out: "Path | None" = None
    cancelled: bool = False
    late: bool = False              # it came in when nobody expected it any more
    known: bool = True

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def own(self) -> bool:
        return self.planned.kind == "own"


@dataclass
class Written:
    """An output as a job wrote it. sound: whole, of a program that ended well, and not damaged since."""

    when: float
    value: float
    sound: bool


class Sim:
    """The cluster. troubles: kinds of trouble that there are."""

    def __init__(self, seed: int, names: Sequence[str], troubles: Collection[str]) -> None:
        self.seed, self.troubles = seed, frozenset(troubles)
        self.clock = Clock()
        self.nodes = {n: SimNode(n) for n in names}
        self.jobs: list[SimJob] = []
        self.scripts: dict[Path, tuple[PlannedJob, Mapping[str, PlannedTest]]] = {}
        self.truth: dict[tuple[Path, str], dict[tuple[int, str, str], Written]] = {}
        self.ever: dict[str, list[tuple[Path, float]]] = {}     # test -> all values, with the folder
        self.away: list[tuple[float, float]] = []
        self.busy = False                   # the jobs write, not we
        self.values = itertools.count(1)
        self._visible: dict[Path, float] = {}
        self._damaged: set[Path] = set()
        weather = self.rng("weather")
        self.min_age = weather.choice([2.0, 10.0, 300.0]) if "purge" in self.troubles else 300.0
        self.accounting = weather.random() < 0.5
        self.slow = weather.choice([*names, ""])
        self._others()
        self._faults()
        self._absences()
        self._tick()

    def rng(self, name: str) -> Random:
        return Random(f"{self.seed}:{name}")  # noqa: S311

    # --- what was drawn -----------------------------------------------------------------------------------------

    def _others(self) -> None:
        draw = self.rng("busy")
        for node in self.nodes.values():
            when = self.clock.now - draw.uniform(0, 300)
            while "busy" in self.troubles and when < self.clock.end:
                until = when + draw.expovariate(1 / draw.choice([20, 120, 900]))
                node.taken.append((when, until))
                when = until + draw.expovariate(1 / draw.choice([30, 300, 2000]))
            if "busy" in self.troubles and draw.random() < 0.1:
                node.taken = [(0.0, self.clock.end + 1)]

    def _faults(self) -> None:
        draw = self.rng("nodes")
        for node in self.nodes.values() if "nodes" in self.troubles else ():
            while draw.random() < 0.35:
                when = self.clock.now + draw.choice([-1, draw.uniform(0, 60), draw.uniform(0, 600)])
                until = when + draw.choice([30.0, 200.0, 1000.0, HORIZON])
                node.bad.append((when, until, draw.choice(["DOWN", "IDLE+DRAIN", "IDLE*", "DOWN*", "IDLE+MAINTENANCE",
                                                           "IDLE+REBOOT_REQUESTED", "GONE"])))

    def _absences(self) -> None:
        draw, when = self.rng("away"), self.clock.now
        while "away" in self.troubles and when < self.clock.end:
            when += draw.expovariate(1 / draw.choice([20, 100, 1000]))
            self.away.append((when, when + draw.choice([0.5, 5, 60, 200, 900])))
            when = self.away[-1][1]

    def _tick(self) -> None:
        """Nodes fail under the jobs, and waiting jobs begin."""
        now = self.clock.now
        for job in self.jobs:
            if job.state == "RUNNING" and any(self.nodes[n].bad_now(now).startswith("DOWN") for n in job.nodes):
                dead = [n for n in job.nodes if self.nodes[n].bad_now(now).startswith("DOWN")]
                if job.nodes[0] in dead or job.own:
                    self.end(job, "NODE_FAIL")
        self._begin()
        if now < self.clock.end:
            self.clock.at(now + 1.0, self._tick)

    # --- nodes --------------------------------------------------------------------------------------------------

    def ours_on(self, node: str) -> "list[SimJob]":
        return [j for j in self.jobs if node in j.nodes and j.state in ("RUNNING", "COMPLETING", "SUSPENDED")]

    def state_of(self, node: SimNode) -> str:
        now, ours = self.clock.now, self.ours_on(node.name)
        bad = node.bad_now(now)
        if bad and not (ours and "DRAIN" in bad):
            return bad
        if ours:
            base = "ALLOCATED+COMPLETING" if all(j.state == "COMPLETING" for j in ours) else "ALLOCATED"
            return base + ("+DRAIN" if bad else "")
        if node.taken_now(now):
            return "MIXED" if len(node.taken) % 2 else "ALLOCATED"
        return "IDLE"

    def _fits(self, job: SimJob) -> str:
        """"" when it can begin, else the reason why it waits."""
        now = self.clock.now
        bad = [n for n in job.nodes if self.nodes[n].bad_now(now)]
        if bad:
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(bad)}"
        for name in job.nodes:
            ours = self.ours_on(name)
            if any(j.exclusive for j in ours) or (ours and job.exclusive) or len(ours) > 3:
                return "Resources"
            if not ours and self.nodes[name].taken_now(now):
                return "Priority"
        return ""

    def _begin(self) -> None:
        for job in self.jobs:
            if job.state == "PENDING" and job.reason not in ("JobHeldAdmin", "launch failed requeued held"):
                job.reason = self._fits(job) or "None"
                if job.reason == "None":
                    self._start(job)

    # --- a job --------------------------------------------------------------------------------------------------

    def _start(self, job: SimJob) -> None:
        job.started = self.clock.now
        if job.fate == "launch":
            job.reason = "launch failed requeued held"
            self.nodes[job.nodes[0]].bad.append((self.clock.now, self.clock.end, "IDLE+DRAIN"))
            return
        job.state, job.reason, job.turn = "RUNNING", "None", job.turn + 1
        if job.fate == "BOOT_FAIL":
            self.later(job, 1.0, lambda: self.end(job, "BOOT_FAIL"))
            return
        self.later(job, 0.3, lambda: self._script(job))
        if self.clock.now + job.limit_s < self.clock.end:
            self.later(job, job.limit_s, lambda: self.end(job, "TIMEOUT"))

    def later(self, job: SimJob, seconds: float, act: "Callable[[], None]") -> None:
        turn = job.turn

        def do() -> None:
            if job.turn == turn and not job.over:
                act()
        self.clock.at(self.clock.now + seconds, do)

    def _script(self, job: SimJob) -> None:
        """What begin() of job.sh does."""
        folder = job.folder
        if job.restarts:
            if not (folder / "done").exists():
                self.put(folder / "requeued", b"", 0.0)
            self.end(job, "FAILED")
            return
        job.out = folder
        if (folder / "done").exists() or (folder / "claimed").exists():
            job.out = folder / f"by-hand-{job.id}"
            with self.writing():
                job.out.mkdir(exist_ok=True)
        self.put(job.out / "claimed", f"{job.id}\n".encode(), 0.0)
        self._next(job)

    def _next(self, job: SimJob) -> None:
        """The next stage, or the end."""
        assert job.out is not None
        if job.stage > 0 and (job.out / "stop").exists():
            self.put(job.out / "stopped", f"{job.stage + 1}\n".encode(), job.lag)
            self._finish(job)
        elif job.stage >= job.fate_at and job.fate:
            self._meets_fate(job)
        elif job.stage >= len(job.planned.stages):
            self._finish(job)
        else:
            self.later(job, job.pace, lambda: self._stage(job))

    def _stage(self, job: SimJob) -> None:
        for test in job.planned.stages[job.stage].tests:
            self._outputs(job, job.tests[test])
        job.stage += 1
        self._next(job)

    def _finish(self, job: SimJob) -> None:
        assert job.out is not None
        if job.damage:
            self._harm(job)
        self.put(job.out / "done", f"1.0 {job.id}\n".encode(), min(job.lag, 2.0))
        job.state = "COMPLETING"
        self.later(job, 700.0 if job.fate == "stuck" else 1.0, lambda: self.end(job, "COMPLETED"))

    def _meets_fate(self, job: SimJob) -> None:
        fate, job.fate = job.fate, ""
        if fate in OVER:
            self.end(job, fate)
        elif fate in ("requeued", "again"):
            job.state, job.reason, job.restarts, job.turn = "PENDING", "BeginTime", job.restarts + 1, job.turn + 1
        elif fate == "suspended":
            job.state = "SUSPENDED"

            def wakes() -> None:
                job.state = "RUNNING"
                self._next(job)
            self.later(job, 120.0 if job.id % 2 else 9000.0, wakes)
        elif fate == "vanished":
            self.end(job, "FAILED")
            job.known = False
        elif fate == "stuck":
            job.state = "COMPLETING"
            self.later(job, 5000.0, lambda: self.end(job, "FAILED"))
        else:
            self._next(job)

    def end(self, job: SimJob, state: str) -> None:
        job.state, job.over_at, job.turn = state, self.clock.now, job.turn + 1

    # --- what jobs write ----------------------------------------------------------------------------------------

    def _outputs(self, job: SimJob, test: PlannedTest) -> None:
        assert job.out is not None
        for key in expected_frames([test])[test.id]:
            step, role, node = key
            if job.planned.step is not None and job.planned.step != step:
                continue
            if self.nodes[node].bad_now(self.clock.now).startswith("DOWN"):
                continue
            dead = any(self.nodes[n].bad_now(self.clock.now).startswith("DOWN") for n in test.subject.nodes)
            slow = self.slow in test.subject.nodes and len(test.subject.nodes) == 2
            value = (20.0 if slow else 100.0) + next(self.values) * 1e-4
            name = f"{node}.log" if role == "each" else "driver.log"
            frame = Frame(test.id, step, role, node, node, None if dead else 0, 1.0, 2.0,
                          frozenset({"killed"} if dead else ()), f"{value:.4f}\n".encode())
            when = self.put(job.out / name, encode(frame), job.lag)
            self.ever.setdefault(test.id, []).append((job.out, round(value, 4)))
            self.truth.setdefault((job.out, test.id), {})[key] = Written(
                when, round(value, 4), not dead and job.out / name not in self._damaged)

    def put(self, path: Path, data: bytes, lag: float) -> float:
        """Write it so that it is seen after a while, in order; when that is."""
        when = max(self._visible.get(path, 0.0), self.clock.now + lag)
        self._visible[path] = when

        def write() -> None:
            with self.writing():
                how = os.O_APPEND if path.suffix == ".log" else os.O_TRUNC
                with contextlib.suppress(OSError):          # somebody put something else there
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | how, 0o600)
                    os.write(fd, data)
                    os.close(fd)
        if lag > 0:
            self.clock.at(when, write)
        else:
            write()
        return when

    def writing(self) -> "Writing":
        return Writing(self)

    def _harm(self, job: SimJob) -> None:
        """Something happens to the job's files as it ends."""
        assert job.out is not None
        draw = self.rng(f"harm {job.id}")
        with self.writing():
            logs = sorted(p for p in job.out.glob("*.log") if p.is_file())
            if job.damage == "gone":
                shutil.rmtree(job.out)
                self._spoil(job, None)
            elif job.damage == "marks":
                with contextlib.suppress(OSError):
                    (job.out / "stopped").write_text(draw.choice(["²", "0", "-1", "x", "99999999", ""]))
                    (job.out.parent / "²").mkdir(exist_ok=True)
                self._spoil(job, None)
            elif logs:
                log = draw.choice(logs)
                self._harm_log(log, job.damage)
                self._spoil(job, log)

    @staticmethod
    def _harm_log(log: Path, damage: str) -> None:
        data = log.read_bytes()
        if damage in ("link", "fifo", "folder"):
            log.unlink()
            if damage == "link":
                log.symlink_to("/etc/passwd")
            elif damage == "fifo":
                os.mkfifo(log)
            else:
                log.mkdir()
        elif data:
            half = len(data) // 2
            first = data[:data.find(b"\nHPCADMIN") + 1] or data
            log.write_bytes({"cut": data[:-9], "flip": data[:half] + b"\xff" + data[half + 1:], "twice": data + first,
                             "foreign": data + data.replace(b"id=t", b"id=x")}.get(damage, data))

    def _spoil(self, job: SimJob, log: "Path | None") -> None:
        """What was written there may be lost; whether it is depends on when it was read."""
        for (folder, _), frames in self.truth.items():
            if folder == job.out:
                for (_, role, node), one in frames.items():
                    if log is None or log.name == (f"{node}.log" if role == "each" else "driver.log"):
                        one.sound = False

    # --- the end of the world -----------------------------------------------------------------------------------

    def calm(self) -> None:
        """No more trouble from here on: whatever goes on can come to its end."""
        self.away.clear()
        for node in self.nodes.values():
            node.taken.clear()
            node.bad.clear()
        self.troubles = frozenset()

    @property
    def left(self) -> "list[SimJob]":
        return [j for j in self.jobs if not j.over]


class Writing:
    """While the jobs write, nobody dies of it."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim

    def __enter__(self) -> None:
        self.sim.busy = True

    def __exit__(self, *_: object) -> None:
        self.sim.busy = False


class SimClient:
    """Slurm's side of the interface. at: called before and after each question, and may end the asking process."""

    def __init__(self, sim: Sim, at: "Callable[[str], None]") -> None:
        self.sim, self.at = sim, at
        self.calls: list[tuple[float, str]] = []
        self.ids = itertools.count(500)
        self._lost, self._refuse, self._fates = sim.rng("lost"), sim.rng("refuse"), sim.rng("fates")
        self._logs, self._late, self._pace = sim.rng("logs"), sim.rng("late"), sim.rng("pace")

    def _ask(self, what: str) -> None:
        self.at(what)
        clock = self.sim.clock
        self.calls.append((clock.now, what))
        clock.pass_(0.03)
        if any(a <= clock.now < b for a, b in self.sim.away):
            clock.pass_(0.01 if len(self.sim.away) % 2 else 10.0)       # refused at once, or no answer at all
            raise NoAnswerError("the Slurm controller does not answer: Socket timed out", where=what)

    def version(self) -> str:
        return "24.11.5"

    def nodes(self) -> "tuple[SlurmNode, ...]":
        self._ask("nodes")
        return tuple(SlurmNode(n.name, node_state(self.sim.state_of(n)), partitions=("main",), reason="a test")
                     for n in self.sim.nodes.values() if n.bad_now(self.sim.clock.now) != "GONE")

    def partitions(self) -> "tuple[Partition, ...]":
        return (Partition("main", "UP", default=True),)

    def topology(self) -> bool:
        return False

    def topology_text(self) -> str:
        return ""

    def starts_containers(self) -> bool:
        return False

    # --- jobs

    def submit(self, script: Path, *, comment: str) -> int:
        """As the command line does it: it looks once for a job whose answer was lost."""
        try:
            return self._sbatch(script, comment)
        except SlurmError:
            try:
                found = [job for job in self.find(comment) if job.comment == comment]
            except HpcadminError:
                found = []
            if found:
                return max(job.id for job in found)
            raise

    def _sbatch(self, script: Path, comment: str) -> int:
        self._ask("submit")
        sim = self.sim
        if "refuse" in sim.troubles and self._refuse.random() < 0.06:
            raise self._refuse.choice([SlurmError, UsageError])("the limits forbid the job", where="sbatch")
        how = self._lost.random() if "lost" in sim.troubles else 1.0
        if how < 0.1:
            sim.clock.pass_(60.0)
            raise NoAnswerError("did not answer within 60 s", where="sbatch")
        job = self._made(script, comment)
        if how < 0.25:                                  # it comes in later, or at once, without an answer
            delay = self._lost.choice([0.0, 3.0, 30.0, 70.0, 100.0])
            job.late = delay > 0
            sim.clock.at(sim.clock.now + delay, lambda: self._enter(job))
            sim.clock.pass_(60.0)
            raise NoAnswerError("did not answer within 60 s", where="sbatch")
        self._enter(job)
        self.at("submitted")
        return job.id

    def _enter(self, job: SimJob) -> None:
        job.id = next(self.ids)
        self.sim.jobs.append(job)
        if job.fate == "held":
            job.reason = "JobHeldAdmin"
        self.sim.clock.at(self.sim.clock.now + 0.2, self.sim._begin)

    def _made(self, script: Path, comment: str) -> SimJob:
        sim = self.sim
        try:
            words = script.read_text()
        except OSError as exc:              # a job took it away
            raise SlurmError(f"Unable to open file {script}", where="sbatch") from exc
        asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", words, re.M))
        assert asked["comment"] == comment and "no-requeue" in asked
        nodes = tuple(expand(asked["nodelist"].strip('"')))
        if any(sim.nodes[n].bad_now(sim.clock.now) == "GONE" for n in nodes):
            raise SlurmError("Invalid node name specified", where="sbatch")
        assert len(nodes) == int(asked["nodes"])
        planned, tests = sim.scripts[script.parent]
        fate = ""
        if "fates" in sim.troubles and self._fates.random() < 0.3:
            fate = self._fates.choice(FATES)
        stop = self._fates.randint(0, max(1, len(planned.stages)))
        damage = self._logs.choice(DAMAGE) if "logs" in sim.troubles and self._logs.random() < 0.3 else ""
        lag = self._late.choice([0.0, 0.5, 2.0, 6.0, 30.0, 1e6]) if "late" in sim.troubles else 0.0
        return SimJob(0, script.parent, comment, nodes, "exclusive" in asked, int(asked["time"]) * 60.0, planned, tests,
                      fate, stop if fate != "stuck" or self._fates.random() < 0.5 else 1e9, damage, lag,
                      self._pace.choice([0.5, 2.0, 8.0]))

    def _told(self, job: SimJob) -> Job:
        return Job(job.id, job.state, job.reason, comment=job.comment)

    def _known(self) -> "Iterator[SimJob]":
        now = self.sim.clock.now
        return (j for j in self.sim.jobs if j.known and (j.over_at is None or now - j.over_at < self.sim.min_age))

    def jobs(self, ids: "Sequence[int]") -> "dict[int, Job]":
        self._ask("jobs")
        found = {j.id: self._told(j) for j in self._known()}
        if self.sim.accounting:
            for job in self.sim.jobs:
                found.setdefault(job.id, replace(self._told(job), comment=""))
        return {i: found.get(i, Job(i)) for i in ids}

    def find(self, comment: str) -> "tuple[Job, ...]":
        self._ask("find")
        return tuple(self._told(j) for j in self._known() if j.comment.startswith(comment))

    def cancel(self, ids: "Sequence[int]") -> None:
        if not ids:
            return
        self._ask("cancel")
        for job in self.sim.jobs:
            if job.id not in ids or job.over:
                continue
            job.cancelled = True
            if job.state == "PENDING":
                self.sim.end(job, "CANCELLED")
            else:
                job.state, job.turn = "COMPLETING", job.turn + 1
                ends = self._pace.choice([2.0, 2.0, 40.0, 2000.0])
                self.sim.later(job, ends, lambda job=job: self.sim.end(job, "CANCELLED"))  # type: ignore[misc]

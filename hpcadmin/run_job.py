"""One Slurm job of a run: script, submission, watching, and the results of its tests as they come in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcadmin.errors import SlurmError, StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.frames import Collector, Frame, scan
from hpcadmin.records import without_gc
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import PlannedJob, PlannedTest
from hpcadmin.slurm.client import Client
from hpcadmin.slurm.script import JobOptions, expected_frames, render, render_own
from hpcadmin.slurm.states import Job
from hpcadmin.text import plural, printable

READ_BYTES = 80 * 1024 * 1024
FIRST_LOOK_S, SLOWEST_LOOK_S = 0.02, 0.5        # at the files
FIRST_POLL_S, SLOWEST_POLL_S = 1.0, 15.0        # squeue
GRACE_S = 3.0       # for files that a shared file system shows late, once the job says that it is done
LOST_GRACE_S = 10.0  # the same, once Slurm says that the job is over and it has not said so itself
DEADLINE_SLACK_S = 900.0


@dataclass
class JobRun:
    """A job that is being run. on_test is called with a test's id once all its outputs are there."""

    client: Client
    job: PlannedJob
    tests: Mapping[str, PlannedTest]
    options: JobOptions
    folder: Path
    progress: Progress
    on_test: Callable[[str], None] = lambda _: None
    id: int | None = None
    ending: str = ""                    # how it ended, when it did not say itself that it was done
    state: str = ""                     # as Slurm said last; "": not asked yet
    reason: str = ""                    # why it waits, or waited last, as Slurm says
    dropped: bool = False               # given up by us for another's sake: not the cause of anything
    doomed: bool = False                # to be cancelled, and Slurm has not taken that yet
    collector: Collector = field(init=False)
    damaged: dict[str, str] = field(default_factory=dict)      # log file -> what is wrong with it
    _offsets: dict[str, int] = field(default_factory=dict)
    _pending: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mine = [self.tests[i] for stage in self.job.stages for i in stage.tests]
        frames = expected_frames(mine)
        if self.job.step is not None:
            frames = {test: [key for key in keys if key[0] == self.job.step] for test, keys in frames.items()}
        self.collector = Collector(frames)
        self._tests = [t.id for t in mine]
        self._first = {t.before for t in mine if t.before}       # their outputs are read once more, with a later test's
        self._stage_of = {i: n for n, stage in enumerate(self.job.stages) for i in stage.tests}
        self._stage_said = -1
        self._done = 0
        self._since = time.monotonic()              # when it was last seen not to have started
        self._over: float | None = None             # when to stop waiting for files of a job that is over
        self.finished = False

    @property
    def waits(self) -> bool:
        return self.id is not None and self.state == "PENDING" and not self.finished and self._over is None

    def submit(self) -> None:
        """Write the script and hand it to sbatch. Raises SlurmError or UsageError when Slurm refuses it."""
        self.write_script()
        self.adopt(self.client.submit(self.folder / "script", comment=self.options.comment))

    def write_script(self) -> None:
        if self.job.step is None:
            text = render(self.job, self.tests, self.options, self.folder)
        else:
            meets = [self.folder.with_name(str(number)) for number in self.job.meets]
            text = render_own(self.job, self.tests[self._tests[0]], self.options, self.folder, meets)
        write_atomic(self.folder / "script", text, mode=0o700)

    def adopt(self, number: int) -> None:
        """This Slurm job is ours."""
        self.id = number
        write_atomic(self.folder / "slurm_job_id", f"{number}\n")
        self._since = time.monotonic()

    def wait(self) -> None:
        """Until the job is done or over; results are taken as they come."""
        wait_all([self], self.client, self.progress)

    # --- what wait_all calls ------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Take what is new in the files; whether there was anything. Sets `finished` once nothing more will come."""
        new = self.read()
        if (self.folder / "done").exists():
            self._read_late(GRACE_S)
            self.finished = True
        elif self._over is not None and time.monotonic() >= self._over:
            self.finished = True
        return new

    def told(self, job: Job) -> bool:
        """What Slurm says of the job; whether it is ending: up to KillWait, 30 s, and then it is over."""
        said = self.state, self.reason
        self.state = job.base
        if job.base == "PENDING":
            self.reason = job.reason
        if job.hopeless and not self.ending:
            if self.job.step is None:
                self.client.cancel([job.id])
                raise SlurmError(f"job {job.id} would never start: {job.reason}", hint="its state is as sinfo and "
                                 "squeue show it; nothing of it ran")
            self.give_up(f"would never start: {job.reason}")
        if job.base == "PENDING":
            self._since = time.monotonic()
            if said != (self.state, self.reason) and self.job.step is None and job.reason != "None":
                self.progress.line(f"job {self.id} waits: {job.reason or 'no reason told'}")
        if job.over:
            self._end(job.ending, LOST_GRACE_S)
        return job.base == "COMPLETING"

    def give_up(self, ending: str, *, dropped: bool = False) -> None:
        """Nothing more is expected of it; it is still to be cancelled."""
        if self.id is not None and not self.finished and self._over is None:
            self.dropped, self.doomed = dropped, True
            self._end(ending, 0.0)

    def _end(self, ending: str, grace_s: float) -> None:
        if self._over is None:
            self.ending, self._over = ending, time.monotonic() + grace_s

    def late(self) -> None:
        """Give up a job that has passed its own deadline without a word."""
        if time.monotonic() - self._since > self.job.time_limit_min * 60 + DEADLINE_SLACK_S:
            self._end("passed its own deadline and Slurm does not say what became of it", 0.0)

    def _read_late(self, grace_s: float) -> None:
        end = time.monotonic() + grace_s
        self.read()
        while any(not self.collector.complete(i) for i in self._tests) and time.monotonic() < end and not self.damaged:
            time.sleep(0.1)
            self.read()

    # --- the logs -----------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Take what is new in the logs; whether there was anything."""
        new = False
        for name, size in self._logs():
            offset = self._offsets.get(name, 0)
            if name in self.damaged or size <= offset:
                continue
            new = self._read_log(name, offset) or new
        return new

    def _logs(self) -> Iterator[tuple[str, int]]:
        wanted = {"driver.log", *(f"{node}.log" for node in self.job.nodes)}
        try:
            with os.scandir(self.folder) as entries:
                found = [(e.name, e.stat(follow_symlinks=False).st_size) for e in entries if e.name in wanted]
        except OSError as exc:
            raise StoreError(f"cannot be read: {exc.strerror}", where=str(self.folder)) from exc
        return iter(sorted(found))

    def _read_log(self, name: str, offset: int) -> bool:
        try:
            data = read_bounded(self.folder / name, limit=READ_BYTES, offset=offset)
        except StoreError as exc:
            self.damaged[name] = str(exc)
            return False
        result = scan(data, f"jobs/{self.job.number}/{name}")
        only = "" if name == "driver.log" else name.removesuffix(".log")
        with without_gc():
            for frame in result.frames:
                self._take(frame, only)
        self._offsets[name] = offset + result.consumed
        self._pending[name] = result.pending
        if result.problem:
            self.damaged[name] = result.problem
            self.progress.failure(f"jobs/{self.job.number}/{name}: {result.problem}")
        return result.consumed > 0

    def _take(self, frame: Frame, only_node: str) -> None:
        known = len(self.collector.problems)
        test = self.collector.add(frame, only_node=only_node)
        for problem in self.collector.problems[known:]:
            self.progress.failure(problem)
        if test:
            self._done += 1
            self._say(test)
            self.on_test(test)

    def forget(self, test: str) -> None:
        """The test has been read: its outputs are on disk, and need not be kept in memory."""
        self.collector.forget(test, needed=test in self._first)
        first = self.tests[test].before
        if first in self._first:
            self._first.remove(first)
            self.collector.forget(first)

    def _say(self, test: str) -> None:
        if self.job.step is not None:
            return
        number = self._stage_of[test]
        stages = self.job.stages
        if number > self._stage_said:
            self._stage_said = number
            stage = stages[number]
            self.progress.line(f"[{number + 1}/{len(stages)}] {stage.name}: {plural(len(stage.tests), 'test')}")
        self.progress.status(f"{stages[number].name}: {self._done} of {len(self._tests)} tests done")

    # --- what is missing ----------------------------------------------------------------------------------------

    def why_missing(self, test: str) -> str:
        """Why a test has not all its outputs, "" when it has."""
        if test in self.collector.contradictions:
            return self.collector.contradictions[test]
        missing = self.collector.missing(test)
        if not missing:
            return ""
        step, role, node = missing[0]
        name = f"{node}.log" if role == "each" else "driver.log"
        if self.job.step is not None:
            what = f"no output of the {self.tests[test].steps[step].name or 'job'}"
        else:
            what = f"no output of step {step} ({role}) on {node}"
        if name in self.damaged:
            return f"{what}: jobs/{self.job.number}/{name} is {self.damaged[name]}"
        if self._pending.get(name) == test:
            return f"{what}: it is cut off in jobs/{self.job.number}/{name}{self._because()}"
        return f"{what}{self._because() or self._step_words(test)}"

    def _because(self) -> str:
        name = f"job {self.id}" if self.id is not None else "it"
        return f": {name} {self.ending}{self._script_words()}" if self.ending else ""

    def _script_words(self) -> str:
        """What a batch script that failed had to say."""
        if self.state != "FAILED":
            return ""
        try:
            text = read_bounded(self.folder / "slurm.out", limit=65536).decode("utf-8", "replace")
        except StoreError:
            return "; it left no slurm.out: is the run folder shared with the node, for this user?"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {printable(lines[0], limit=200)}" if lines else ""

    def _step_words(self, test: str) -> str:
        """What srun said about steps that left nothing."""
        try:
            text = read_bounded(self.folder / "srun.out", limit=65536).decode("utf-8", "replace")
        except StoreError:
            return ": the step was never started, or its node did not answer"
        lines = [line for line in text.splitlines() if "error" in line.lower()]
        return f": {lines[0][:200]}" if lines else ": the node did not answer in time"

    def cancel(self) -> None:
        if self.id is not None:
            self.client.cancel([self.id])


def wait_all(runs: Sequence[JobRun], client: Client, progress: Progress,
             watch: Callable[[bool], None] = lambda asked: None) -> None:
    """Until all these jobs are done or over.

    The jobs' own marks decide. Slurm is asked seldom, once for all: it only tells why nothing comes any more. While the
    controller does not answer, the files go on telling what happens. watch: called after each look, with whether Slurm
    has just been asked.
    """
    look, poll = FIRST_LOOK_S, FIRST_POLL_S
    next_poll = time.monotonic() + poll
    while True:
        left = [run for run in runs if not run.finished]
        if sum(run.look() for run in left):         # each of them is to look
            look = FIRST_LOOK_S
        left = [run for run in left if not run.finished]
        asked = bool(left) and time.monotonic() >= next_poll
        if asked:
            ending = _poll(left, client, progress)
            poll = FIRST_POLL_S if ending else min(poll * 2, SLOWEST_POLL_S)
            next_poll = time.monotonic() + poll
        watch(asked)
        if not left:
            return
        for run in left:
            run.late()
        time.sleep(look)
        look = min(look * 1.2, SLOWEST_LOOK_S)


def _poll(runs: Sequence[JobRun], client: Client, progress: Progress) -> bool:
    """Whether one of them is ending."""
    by_id = {run.id: run for run in runs if run.id is not None}
    try:
        jobs = client.jobs(list(by_id))
    except SlurmError as exc:
        progress.status(f"{exc}; asking again")
        return False
    return sum(by_id[number].told(job) for number, job in jobs.items()) > 0


def find_and_cancel(client: Client, comment: str, known: Sequence[int]) -> list[int]:
    """Cancel a run's jobs: those that are known and those that Slurm knows by the comment. Returns their ids."""
    ids = dict.fromkeys(known)
    ids.update((job.id, None) for job in client.find(comment) if not job.over)
    client.cancel(list(ids))
    return list(ids)

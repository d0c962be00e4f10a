"""One Slurm job of a run: script, submission, watching, and the results of its tests as they come in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from hpcadmin.errors import SlurmError, StoreError, UsageError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.frames import Collector, Frame, scan
from hpcadmin.hosts import expand
from hpcadmin.records import without_gc
from hpcadmin.run_clocks import Clocks
from hpcadmin.run_handover import CONTROLLER_S, hand_over
from hpcadmin.run_kept import REQUEUED, STOPPED, is_there, read_mark, set_mark
from hpcadmin.run_place import REQUEUED_EXIT, SHARE, Place, behind, late_words
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import PlannedJob, PlannedTest
from hpcadmin.slurm.client import Client
from hpcadmin.slurm.script import JobOptions, expected_frames, render, render_own
from hpcadmin.slurm.srun_words import not_its_own
from hpcadmin.slurm.states import Job
from hpcadmin.text import plural, printable, whole_number
from hpcadmin.waves import not_run_words

READ_BYTES = 80 * 1024 * 1024
FIRST_LOOK_S, SLOWEST_LOOK_S = 0.02, 0.5        # at the files
FIRST_POLL_S, SLOWEST_POLL_S = 1.0, 15.0        # squeue, in the first minute; 20 s of many
QUICK_S, LONGER_S, LONGEST = 60.0, 150.0, 8 / 3     # after that it is by and by so many times as long: 40 s
GRACE_S = 3.0       # for files that a shared file system shows late, once the job says that it is done
LOST_GRACE_S = 10.0  # the same, once Slurm says that the job is over and it has not said so itself
LATE_S = 90.0       # for logs that are here shorter than those said who wrote them: NFS may keep sizes for a minute
DOUBT_S = 10.0      # for what looks damaged: NFS may show the end of a file before what is before it
DEADLINE_SLACK_S = 900.0
ENDING_S = 40.0     # that a job takes to end: KillWait is 30 s. So long it is asked for often
STUCK_S = 600.0     # COMPLETING for so long: nobody waits for it any more
_RAN = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING")
_AGAIN = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
MANY = 100          # jobs at one time, for which squeue is asked less often, and not in step with other runs


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
    on_silence: Callable[[], None] = lambda: None   # the controller did not answer: there may be such a job
    id: int | None = None
    ending: str = ""                    # how it ended, when it did not say itself that it was done
    state: str = ""                     # as Slurm said last; "": not asked yet
    reason: str = ""                    # why it waits, or waited last, as Slurm says
    dropped: bool = False               # given up by us for another's sake: not the cause of anything
    doomed: bool = False                # to be cancelled, and Slurm has not taken that yet
    doomed_since: float = 0.0
    stranded: bool = False              # it could not be cancelled, and was told of
    wait_for_s: float | None = None     # that it may wait for its nodes; None: as long as it takes
    patience_s: float | None = None     # after so long it is withdrawn, to be planned anew on the nodes that are free
    impatient: bool = False             # that was done
    not_run: str = ""                   # it was not free in time, or held: why its tests were never made
    never: bool = False                 # Slurm said that it would never start by itself
    keep: frozenset[str] = frozenset()  # tests whose outputs a test of another job is given too
    clocks: Clocks = field(default_factory=Clocks)
    sent: float | None = None           # when this process submitted it, by our clock
    part: bool = False                  # one of several jobs of a suite: the run goes on without it
    past: bool = False                  # it was over before this process began to watch the run
    collector: Collector = field(init=False)
    damaged: dict[str, str] = field(default_factory=dict)      # log file -> what is wrong with it
    cut: dict[str, str] = field(default_factory=dict)   # test -> why Slurm did not start or did not end a step of it
    _offsets: dict[str, int] = field(default_factory=dict)
    _pending: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mine = [self.tests[i] for stage in self.job.stages for i in stage.tests]
        frames = expected_frames(mine)
        if self.job.step is not None:
            frames = {test: [key for key in keys if key[0] == self.job.step] for test, keys in frames.items()}
        self.collector = Collector(frames)
        self._tests = [t.id for t in mine]
        known = set(self._tests)        # the outputs of these are read once more, with a later test's
        self._first = {t.before for t in mine if t.before in known}
        self._stage_of = {i: n for n, stage in enumerate(self.job.stages) for i in stage.tests}
        self._stage_said = -1
        self._done = 0
        self._since = time.monotonic()              # when it was last seen not to have started
        self._waits: float | None = None            # since when it was seen to wait
        self._ends: float | None = None             # since when it is COMPLETING
        self._ran = False                           # its script has begun
        self._over: float | None = None             # when to stop waiting for files of a job that is over
        self.finished = False
        self._seen: dict[str, int] = {}             # log -> how much of it has been read, whole or not
        self._doubt: dict[str, float] = {}          # log -> since when it looks damaged
        count = len(self.job.nodes) or max((s.job.anywhere for t in mine for s in t.steps if s.job), default=1)
        self.place = Place(self.folder, self.options, self.job.nodes, count, self.progress.failure)

    @property
    def waits(self) -> bool:
        return self.id is not None and self.state == "PENDING" and not self.finished and self._over is None

    @property
    def begun(self) -> bool:
        """Whether it has started, as far as that is known."""
        return self.state not in ("", "PENDING") or bool(self._offsets)

    def submit(self, patience_s: float = CONTROLLER_S) -> None:
        """Write the script and hand it to sbatch; a controller that is away is waited for so long. Raises SlurmError or
        UsageError when Slurm refuses the job."""
        self.write_script()
        self.sent = time.time()
        self.adopt(hand_over(self.client, self.folder / "script", self.options.comment, patience_s=patience_s,
                             say=self._silent))

    def _silent(self, text: str) -> None:
        self.on_silence()
        self.progress.status(text, now=True)

    def write_script(self) -> None:
        def text(token: str) -> str:
            if self.job.step is None:
                return render(self.job, self.tests, self.options, self.folder, token=token)
            meets = [self.folder.with_name(str(number)) for number in self.job.meets]
            return render_own(self.job, self.tests[self._tests[0]], self.options, self.folder, meets, token=token)
        self.place.write(text)

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
        self._ran = self._ran or self.claimed       # before Slurm is asked: what it says then is later
        new = self.read()
        if is_there(self.folder / "done"):
            self._read_late(GRACE_S)
            self.finished = True
        elif self._over is not None and time.monotonic() >= self._over:
            self._read_late(0.0)
            self.finished = True
        if self.finished:
            self.place.close()
        return new

    def told(self, job: Job) -> bool:
        """What Slurm says of the job; whether it is ending: up to KillWait, 30 s, and then it is over."""
        if self.doomed:                             # what becomes of it now is our own doing
            return False
        said = self.state, self.reason
        ran, self._ran = self._ran, self._ran or job.base in _RAN       # before this answer, and now
        self.state = job.base
        if job.base == "PENDING":
            self.reason = job.reason
        if ran and job.base in _AGAIN:
            self.state = "REQUEUED"
            self.give_up("was requeued" + (f" ({job.reason})" if job.hopeless else ""))
        elif self._driverless(job):
            self.state = "NODE_FAIL"
            self.give_up(f"lost {self.job.nodes[0]}, which ran its script (NODE_FAIL)")
        elif not job.known:                         # it may be there for ever
            self.give_up(job.ending)
        elif job.hopeless and not self.ending:
            self.never, self.not_run = True, f"its job would never start: {printable(job.reason, limit=120)}"
            self.give_up(f"would never start: {job.reason}")
            if self.job.step is None and not self.part:
                cancel_given_up([self], self.client, self.progress)
                raise SlurmError(f"job {job.id} would never start: {job.reason}", hint="its state is as sinfo and "
                                 "squeue show it; nothing of it ran")
        if self.doomed:
            return False
        if job.base == "PENDING":
            self._since = time.monotonic()
            self._too_late(job)
            if said != (self.state, self.reason) and self.job.step is None and job.reason != "None":
                self.progress.line(f"job {self.id} waits: {job.reason or 'no reason told'}")
        if job.base == "RUNNING":
            self.place.attach(job.id)
        if job.over:
            self._ended(job)
        return self._completing(job.base == "COMPLETING")

    def _ended(self, job: Job) -> None:
        if job.exit_code == REQUEUED_EXIT and job.base == "FAILED" and not is_there(self.folder / "done"):
            set_mark(self.folder / REQUEUED)
        unseen = "" if self._over is not None or self.finished else self.place.unseen(job)
        if unseen and self.job.step is None and not self.part:
            raise SlurmError(f"job {job.id} {unseen}", hint=SHARE)
        self._end(unseen or job.ending, LOST_GRACE_S if self.place.may_come else 0.0)

    def _too_late(self, job: Job) -> None:
        """Withdraw a job that has waited for its nodes for so long as they are waited for."""
        if self.wait_for_s is None or self.job.step is not None or self._over is not None:
            return
        self._waits = self._waits or time.monotonic()
        waited_s = time.monotonic() - self._waits
        if self.patience_s is not None and waited_s > min(self.patience_s, self.wait_for_s):
            self.impatient, self.not_run = True, not_run_words(self.job.nodes, min(self.patience_s, self.wait_for_s))
            self.give_up("was withdrawn: not all of its nodes are free", dropped=True)
        elif waited_s > self.wait_for_s:
            self.not_run = not_run_words(self.job.nodes, self.wait_for_s) + (
                f" ({printable(job.reason, limit=120)})" if job.reason not in ("", "None") else "")
            self.give_up(f"was withdrawn: {self.not_run}")

    def _completing(self, now: bool) -> bool:
        """Whether it is ending. One that does not come to its end is given up: what it left is there."""
        if not now:
            self._ends = None
            return False
        self._ends = self._ends or time.monotonic()
        for_s = time.monotonic() - self._ends
        if for_s > STUCK_S:
            self._end(f"has been COMPLETING for {round(for_s / 60)} min: a process on its nodes cannot be ended, or "
                      "the epilog hangs", 0.0)
        return for_s < ENDING_S

    def give_up(self, ending: str, *, dropped: bool = False) -> None:
        """Nothing more is expected of it; it is still to be cancelled."""
        if self.id is not None and not self.finished and self._over is None:
            self.dropped, self.doomed, self.doomed_since = dropped, True, time.monotonic()
            self._end(ending, 0.0)

    @property
    def claimed(self) -> bool:
        """Whether its script has begun."""
        return is_there(self.folder / "claimed")

    def _driverless(self, job: Job) -> bool:
        """It goes on for --no-kill, but the node is lost that ran its script, the first one: nothing more comes of it
        until its time limit."""
        if job.base != "RUNNING" or not job.nodes or self.job.step is not None or not self.job.nodes:
            return False
        try:
            return self.job.nodes[0] not in expand(job.nodes)
        except UsageError:
            return False

    def _end(self, ending: str, grace_s: float) -> None:
        if self._over is None:
            self.ending, self._over = ending, time.monotonic() + grace_s

    def late(self) -> None:
        """Give up a job that has passed its own deadline without a word. One that only waited when Slurm was heard last
        may have waited on for as long as nodes are waited for."""
        waits = (self.wait_for_s or 0.0) if self.state in ("", "PENDING") else 0.0
        if time.monotonic() - self._since > self.job.time_limit_min * 60 + DEADLINE_SLACK_S + waits:
            self.give_up("passed its own deadline and Slurm does not say what became of it")

    def _read_late(self, grace_s: float) -> None:
        """What comes although the job is over: a file server may show it late, and in pieces."""
        begun = time.monotonic()
        self.read(late=True)
        said = False
        stopped = whole_number(read_mark(self.folder / STOPPED).strip())   # what comes from there on was never begun
        ours = [i for i in self._tests if not stopped or self._stage_of[i] < stopped - 1]
        while any(not self.collector.complete(i) for i in ours):
            waited = time.monotonic() - begun
            missing = behind(self.place.sizes(), self._seen, self.damaged) if waited <= LATE_S else []
            if waited > GRACE_S and missing and not said:
                said = True
                self.progress.line(late_words(missing))
            if not (missing or (self._doubt and waited <= DOUBT_S) or (waited <= grace_s and not self.damaged)):
                break
            time.sleep(0.1)
            self.read(late=True)
        for name in list(self._doubt):
            self._doubt[name] = -DOUBT_S
            self._read_log(name, self._offsets.get(name, 0))

    # --- the logs -----------------------------------------------------------------------------------------------

    def read(self, *, late: bool = False) -> bool:
        """Take what is new in the logs; whether there was anything. late: also where a file server says that a log is
        as long as it was, which it may say from memory until the log is opened."""
        new = self.place.pump()
        for name, size in self.place.logs(self.damaged).items():
            offset = self._offsets.get(name, 0)
            if name in self.damaged or (size <= offset and not late):
                continue
            new = self._read_log(name, offset) or new
        return new

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
        self._seen[name] = offset + len(data)
        self._pending[name] = result.pending
        if not result.problem or result.consumed:
            self._doubt.pop(name, None)
        if result.problem:
            self._doubtful(name, result.problem)
        return result.consumed > 0

    def _doubtful(self, name: str, problem: str) -> None:
        """What looks damaged is looked at again for a while before it is taken for that."""
        since = self._doubt.setdefault(name, time.monotonic())
        if self.past or time.monotonic() - since >= DOUBT_S or since < 0:
            self._doubt.pop(name, None)
            self.damaged[name] = problem
            self.progress.failure(f"jobs/{self.job.number}/{name}: {problem}")

    def _take(self, frame: Frame, only_node: str) -> None:
        words = not_its_own(frame.status, frame.flags, frame.body) if frame.role != "each" else ""
        if words and frame.id in self.tests:
            self.cut[frame.id] = words          # as if it were not there: it is no result of the test
            return
        if off := self.clocks.look(frame, self.sent, time.time()):
            self.progress.line(f"{frame.node}: its clock is {off}")
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
        self.collector.forget(test, needed=test in self._first or test in self.keep)
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
        self.progress.tests(stages[number].name, self._done, len(self._tests))

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
        if test in self.cut and not self.ending:
            return f"{what}: {self.cut[test]}"
        if self._pending.get(name) == test:
            return f"{what}: it is cut off in jobs/{self.job.number}/{name}{self._because()}"
        return f"{what}{self._because() or self.place.step_words(node)}"

    def _because(self) -> str:
        name = f"job {self.id}" if self.id is not None else "it"
        said = self.place.script_words() if self.state == "FAILED" else ""
        return f": {name} {self.ending}{said}" if self.ending else ""

    def cancel(self) -> None:
        if self.id is not None:
            self.client.cancel([self.id])


def wait_all(runs: Sequence[JobRun], client: Client, progress: Progress,
             watch: Callable[[bool], object] = lambda asked: None) -> None:
    """Until all these jobs are done or over.

    The jobs' own marks decide. Slurm is asked seldom, once for all: it only tells why nothing comes any more. While the
    controller does not answer, the files go on telling what happens. watch: called after each look, with whether Slurm
    has just been asked.
    """
    look, poll = FIRST_LOOK_S, FIRST_POLL_S
    begun = time.monotonic()
    next_poll = begun + poll
    while True:
        worked = process_time()
        left = [run for run in runs if not run.finished or run.doomed]
        if sum(run.look() for run in left):         # each of them is to look
            look = FIRST_LOOK_S
        left = [run for run in left if not run.finished or run.doomed]
        asked = bool(left) and time.monotonic() >= next_poll
        if asked:
            ending = poll_all(left, client, progress)
            most = slowest_poll_s(len(left), left[0].id or 0, time.monotonic() - begun)
            poll = FIRST_POLL_S if ending else min(poll * 2, most)
            next_poll = time.monotonic() + poll
        watch(asked)
        if not left:
            return
        for run in left:
            run.late()
        time.sleep(pause_s(look, process_time() - worked, SLOWEST_LOOK_S))
        look = min(look * 1.2, SLOWEST_LOOK_S)


def pause_s(look: float, worked: float, slowest: float) -> float:
    """Until the next look. Of many nodes or tests one costs something: no more than a fifth of a core goes into it."""
    return max(look, min(4 * worked, 4 * slowest))


def slowest_poll_s(jobs: int, salt: int = 0, waited_s: float = 0.0) -> float:
    """The most seconds between two questions for so many jobs, of which nothing was heard for so long."""
    return SLOWEST_POLL_S * max(longer(waited_s), 1.0 if jobs < MANY else 4 / 3 + (salt % 20) / 100)


def longer(waited_s: float) -> float:
    """How many times as long as in the first minute Slurm is left alone."""
    return min(LONGEST, 1.0 + max(0.0, waited_s - QUICK_S) / LONGER_S)


def poll_all(runs: Sequence[JobRun], client: Client, progress: Progress) -> bool:
    """One question for all of them; whether one is ending."""
    by_id = {run.id: run for run in runs if run.id is not None}
    try:
        jobs = client.jobs(list(by_id))
    except SlurmError as exc:
        progress.status(f"{exc}; asking again")
        return False
    ending = sum(by_id[number].told(job) for number, job in jobs.items()) > 0
    cancel_given_up(runs, client, progress)
    return ending


def cancel_given_up(runs: Sequence[JobRun], client: Client, progress: Progress) -> None:
    """Cancel what was given up. While the controller does not answer that is tried again and again."""
    doomed = [run for run in runs if run.doomed and run.id is not None]
    if not doomed:
        return
    try:
        client.cancel([run.id for run in doomed if run.id is not None])
    except SlurmError as exc:
        late = [run for run in doomed if time.monotonic() - run.doomed_since > CONTROLLER_S]
        if not late:
            return
        doomed = late
        progress.failure(f"jobs could not be cancelled: {exc}; scancel {' '.join(str(run.id) for run in doomed)}")
        for run in doomed:
            run.stranded = True
            run.on_silence()                # looked for once more when the run ends
    for run in doomed:
        run.doomed = False


def find_and_cancel(client: Client, comment: str, known: Sequence[int], *, waiting: bool = False) -> list[int]:
    """Cancel a run's jobs: those that are known and those that Slurm knows by the comment. Returns their ids. waiting:
    of the latter only those that wait."""
    ids = dict.fromkeys(known)
    ids.update((job.id, None) for job in client.find(comment) if not job.over and (not waiting or job.base in _AGAIN))
    client.cancel(list(ids))
    return list(ids)

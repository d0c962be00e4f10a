"""A suite's job on a cluster in use: submits what the schedule says, watches all jobs with one query, takes results.

    missing = Waves(schedule, client, progress, books, wait_for_s=7200.0).go()     # test -> why it was not run

in place of "submit this job and wait for it". Where all nodes are free it submits that very job, and asks Slurm nothing
more. `books` is whoever keeps plan and results (run_phases). What was submitted is in the plan before that (with_wave),
so that a run that is resumed finds it. No node that the plan does not test is ever asked for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from time import process_time
from typing import Protocol

from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.run_handover import CONTROLLER_S, not_taken
from hpcadmin.run_job import (
    FIRST_LOOK_S,
    FIRST_POLL_S,
    SLOWEST_LOOK_S,
    SLOWEST_POLL_S,
    JobRun,
    longer,
    pause_s,
    poll_all,
    slowest_poll_s,
)
from hpcadmin.run_nodes import WAIT_FOR_S, free_now, unusable_now
from hpcadmin.run_progress import Progress
from hpcadmin.slurm.client import Client, NoAnswerError
from hpcadmin.text import plural
from hpcadmin.waves import Ours, Schedule, State, Wave, not_run_words

NODES_FIRST_S, NODES_SLOWEST_S = 2.0, 15.0      # between two questions for all nodes; by and by 40 s
LOST_S = 120.0          # that a node is unusable before nobody waits for it any more: it may only be restarting
BACK_S = 60.0           # that the nodes of a job of ours that is over may take to be free
MOST_TRIES = 3          # of a test whose jobs come to nothing for no fault of its own
HELD_S = 20.0           # that nothing is submitted after a job that would never start: the next one may be held too


class Books(Protocol):
    """Who keeps the plan and the results of the run."""

    def settled(self) -> Collection[str]:
        """Tests that have a result."""

    def next_number(self) -> int:
        """Of a new job."""

    def begin(self, wave: Wave) -> JobRun:
        """Write it into the plan (with_wave), then submit it. Raises SlurmError when Slurm refuses: that ends the run
        where it is the first job, and is the result of its tests later."""

    def take(self, run: JobRun, test: str) -> None:
        """This test is to have a result from what the job left, be it that it left nothing."""

    def cut_off(self, run: JobRun) -> bool:
        """Whether the job ended for no fault of its tests, so that they may be tried again."""

    def watch(self, runs: Sequence[JobRun]) -> bool:
        """Called again and again; whether nothing more is to begin. May raise to end the run."""

    def close(self, run: JobRun) -> None:
        """The job is over and all that it left has been taken."""

    def took(self) -> Mapping[str, float]:
        """Check -> seconds of a test, as far as this run knows."""


class Waves:
    """One suite job of a plan, run in waves. free: the nodes that are free as the run was told when it began. waited_s:
    that they have been waited for already."""

    def __init__(self, schedule: Schedule, client: Client, progress: Progress, books: Books, *,
                 wait_for_s: float = WAIT_FOR_S, reserved: bool = False, free: frozenset[str] | None = None,
                 waited_s: float = 0.0) -> None:
        self.schedule, self.client, self.progress, self.books = schedule, client, progress, books
        self.wait_for_s, self.reserved = wait_for_s, reserved
        self.runs: dict[int, JobRun] = {}               # that are not over, by our number
        self._awaits: set[int] = set()
        self._submitted: dict[int, float] = {}
        self._tries: Counter[str] = Counter()
        self._refused: dict[str, str] = {}              # test -> why
        self._names = frozenset(schedule.job.nodes)
        self._free = self._names if free is None else free & self._names
        self._quiet_until = 0.0
        self._withdraw_wait, self._next_withdrawal = 0.0, 0.0
        self._silence: float | None = None              # since when a submission has not been answered
        self._bad: dict[str, tuple[float, str]] = {}    # node -> since when no job can use it, why
        self._back: dict[str, float] = {}               # nodes of jobs of ours that are over -> when they are free
        self._since = time.monotonic()
        self._begun = self._since - waited_s            # that nodes have been waited for before
        self._nodes_wait, self._next_nodes = NODES_FIRST_S, self._begun + NODES_FIRST_S
        self._poll_wait, self._next_poll = FIRST_POLL_S, self._begun + FIRST_POLL_S

    def go(self) -> Mapping[str, str]:
        """Until everything has a result or cannot have one. Returns test -> why it was never run; nothing when the run
        was stopped: then it may go on later."""
        pause = FIRST_LOOK_S
        stopping = False
        while True:
            worked = process_time()
            pause = FIRST_LOOK_S if self._look() else min(pause * 1.2, SLOWEST_LOOK_S)
            stopping = self.books.watch(list(self.runs.values())) or stopping
            self._ask()
            moved = False if stopping else self._turn()
            if not self.runs and not moved and (stopping or self._nothing_more()):
                return {} if stopping else self._missing()
            time.sleep(pause_s(pause, process_time() - worked, SLOWEST_LOOK_S))

    @property
    def late(self) -> bool:
        """Nobody is waited for any more."""
        return time.monotonic() - self._begun > self.wait_for_s

    # --- what is known ------------------------------------------------------------------------------------------

    def _state(self) -> State:
        now = time.monotonic()
        ours = tuple(Ours(number, frozenset(run.job.nodes), frozenset(run.tests), run.begun,
                          now - self._submitted[number]) for number, run in self.runs.items())
        busy = {n for o in ours if o.begun for n in o.nodes}
        lost = frozenset(n for n, (since, _) in self._bad.items() if now - since >= LOST_S)
        return State(now, self._free - busy - lost - set(self._bad), self.books.next_number(),
                     frozenset(self.books.settled()) | self._refused.keys(), ours, lost, self._since,
                     late=self.late)

    def _nothing_more(self) -> bool:
        state = self._state()
        left = self.schedule.open(state)
        if not left or not state.late:
            return not left
        # What was ours until now is completing for a while, and is nobody else's.
        soon = state.free | {n for n, until in self._back.items() if until > state.now and n not in self._bad}
        return not any(u.nodes <= soon for u in left)

    def _look(self) -> bool:
        new = False
        for number, run in list(self.runs.items()):
            new = run.look() or new
            run.late()
            if run.finished and not run.doomed:
                self._over(number, run)
                new = True
        return new

    def _over(self, number: int, run: JobRun) -> None:
        """Tests of a job that never began, or was cut off, are open again; the others have what it left as result."""
        held = run.never and not run.begun
        del self.runs[number]
        settled = set(self.books.settled())
        again = not run.begun or self.books.cut_off(run)
        for test in (i for i in run.tests if i not in settled):
            whole = not run.collector.missing(test)
            if held or (run.begun and not run.dropped):
                self._tries[test] += 1
            if whole or not (again or test in run.cut) or self._tries[test] >= MOST_TRIES:
                self.books.take(run, test)
        self.books.close(run)
        self.schedule = self.schedule.knowing(self.books.took())
        if run.begun:                                   # until Slurm says otherwise
            self._free |= frozenset(run.job.nodes)
            self._back.update(dict.fromkeys(run.job.nodes, time.monotonic() + BACK_S))
        if held:
            self._quiet_until = time.monotonic() + HELD_S
        if number not in self._awaits:
            self._since = time.monotonic()
        self._nodes_wait = NODES_FIRST_S
        self._next_nodes = min(self._next_nodes, time.monotonic() + NODES_FIRST_S)

    def _ask(self) -> None:
        """At most one query for all jobs and one for all nodes, each less and less often."""
        now = time.monotonic()
        if self.runs and now >= self._next_poll:
            self._poll(now)
        waited = self._names - {n for run in self.runs.values() if run.begun for n in run.job.nodes}
        if waited and now >= self._next_nodes and (self.runs or self.schedule.open(self._state())):
            self._nodes()
            self._nodes_wait = min(self._nodes_wait * 1.5, NODES_SLOWEST_S * longer(now - self._since))
            self._next_nodes = now + self._nodes_wait

    def _poll(self, now: float) -> None:
        ending = poll_all(list(self.runs.values()), self.client, self.progress)
        most = slowest_poll_s(len(self.runs), next(iter(self.runs)), now - self._since)
        self._poll_wait = FIRST_POLL_S if ending else min(self._poll_wait * 2, most)
        self._next_poll = now + self._poll_wait

    def _nodes(self) -> None:
        try:
            nodes = self.client.nodes()
        except SlurmError as exc:
            self.progress.status(f"{exc}; asking again")
            return
        now = time.monotonic()
        self._silence = None
        ours = {n for run in self.runs.values() if run.begun for n in run.job.nodes}
        self._free = free_now(nodes, self._names, reserved=self.reserved) | ours
        bad = unusable_now(nodes, self._names - ours, reserved=self.reserved)
        for name in bad.keys() - self._bad.keys():
            self.progress.failure(f"{name}: {bad[name]}")
        self._bad = {n: (self._bad.get(n, (now, ""))[0], why) for n, why in bad.items()}

    # --- what is done -------------------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Do what the schedule says; whether anything changed."""
        turn = self.schedule.next(self._state())
        if turn.cancel:
            return self._withdraw(turn.cancel)
        if time.monotonic() < self._quiet_until or self._silent():
            return False
        for wave in turn.submit:
            if self._silence is None:
                self._submit(wave)
        return bool(turn.submit)

    def _silent(self) -> bool:
        """Whether the controller did not answer a submission, nor anything since: then nothing is submitted, for as
        long as nodes are waited for."""
        return self._silence is not None and time.monotonic() - self._silence < max(self.wait_for_s, CONTROLLER_S)

    def _withdraw(self, numbers: Sequence[int]) -> bool:
        """Jobs that only wait. The last answer may be old: Slurm is asked first, and what has begun is left alone. One
        that begins at this moment is over with what it has done so far."""
        now = time.monotonic()
        if now < self._next_withdrawal:
            return False
        self._poll(now)
        runs = [self.runs[number] for number in numbers if not self.runs[number].begun]
        if not runs:
            return False
        try:
            self.client.cancel([run.id for run in runs if run.id is not None])
        except SlurmError as exc:
            self.progress.status(f"{exc}; trying again")
            self._withdraw_wait = min(self._withdraw_wait * 2, 4 * SLOWEST_POLL_S) or FIRST_POLL_S
            self._next_withdrawal = time.monotonic() + self._withdraw_wait
            return False
        self._withdraw_wait = 0.0
        for run in runs:
            run.give_up("was withdrawn: its nodes were not free", dropped=True)
            run.doomed = False
        return True

    def _submit(self, wave: Wave) -> None:
        try:
            run = self.books.begin(wave)
        except (SlurmError, UsageError) as exc:
            if not self._submitted:
                raise
            self._tries.update(list(wave.tests))
            if isinstance(exc, NoAnswerError) and max(self._tries[i] for i in wave.tests) < MOST_TRIES:
                self._silence = time.monotonic()
                self.progress.line(f"{exc}; submitting again when it does")
                return
            self._refused.update(dict.fromkeys(wave.tests, not_taken(exc)))
            self.progress.failure(str(exc))
            return
        run.part = True
        self.runs[wave.job.number] = run
        self._submitted[wave.job.number] = time.monotonic()
        self._poll_wait, self._next_poll = FIRST_POLL_S, time.monotonic() + FIRST_POLL_S
        if wave.awaits:
            self._awaits.add(wave.job.number)
        else:
            self._since = time.monotonic()
        what = "awaits" if wave.awaits else wave.job.kind
        self.progress.line(f"job {run.id}: {what}, {plural(len(run.job.nodes), 'node')}, "
                           f"{plural(len(wave.tests), 'test')}, about {max(1, round(run.job.seconds))} s")

    # --- what never ran -----------------------------------------------------------------------------------------

    def _missing(self) -> Mapping[str, str]:
        state = self._state()
        why = {n: text for n, (_, text) in self._bad.items() if n in state.lost}
        nodes = {i: self.schedule.tests[i].subject.nodes for i in self.schedule.unfinished(state)}
        absent = {i: tuple(n for n in mine if n not in state.free) for i, mine in nodes.items()}
        return {**{i: not_run_words(absent[i] or mine, self.wait_for_s, why) for i, mine in nodes.items()},
                **self._refused}

"""Tests that are jobs of their own: all jobs of a check are submitted, then watched with one query."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from hpcadmin.errors import HpcadminError, SlurmError
from hpcadmin.frames import Frame
from hpcadmin.plan import MEET_S
from hpcadmin.run_handover import CONTROLLER_S, MOST_TRIES, RETRY_S, SETTLE_S, SLOWEST_RETRY_S, only
from hpcadmin.run_job import JobRun, wait_all
from hpcadmin.run_kept import slurm_job
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import Plan, PlannedJob
from hpcadmin.slurm.client import Client, NoAnswerError
from hpcadmin.text import plural, printable

WAIT_S = 600.0          # that jobs wait for room while no other job of the check begins or ends
NODE_S = 30.0           # that a job waits for a node which no job can use; shorter while slurmctld starts again
TAKE_EVERY_S = 2.0      # while jobs are submitted
SAY_FIRST_S, SAY_EVERY_S = 5.0, 30.0
# "Job violates accounting/QOS policy (job submit limit, …)", QOSMaxSubmitJobPerUserLimit, AssocMaxSubmitJobLimit.
_LIMIT = re.compile(r"submit limit|MaxSubmitJob")
_USUAL = ("", "None", "Resources", "Priority")      # why jobs wait when there is only no room


def own_jobs(plan: Plan) -> Iterator[list[PlannedJob]]:
    """The jobs of tests that are jobs themselves, those of one check together: checks run one after the other, because
    one may want the nodes that another has."""
    check_of = {test.id: test.check for test in plan.tests}
    by_check: dict[str, list[PlannedJob]] = {}
    for job in plan.jobs:
        if job.kind == "own":
            by_check.setdefault(check_of[job.stages[0].tests[0]], []).append(job)
    yield from by_check.values()


STOPPED = "the run was stopped"


class Watch(Protocol):
    """Whoever may stop the run. watch: called while jobs are awaited; returns those that it has just given up."""

    @property
    def stopping(self) -> bool: ...

    def watch(self, runs: Sequence[JobRun]) -> Sequence[JobRun]: ...


class OwnJobs:
    """The runs of these jobs. take: called with the id of each test as soon as all its jobs are over."""

    def __init__(self, runs: Sequence[JobRun], client: Client, progress: Progress, take: Callable[[str], None], *,
                 wait_s: float = WAIT_S, desk: Watch | None = None) -> None:
        self.runs, self.client, self.progress, self._take = runs, client, progress, take
        self._wait_s, self._desk = wait_s, desk
        self._of: dict[str, list[JobRun]] = {}
        for run in runs:
            self._of.setdefault(run.job.stages[0].tests[0], []).append(run)
        self._open = dict(self._of)                 # not taken yet
        self._not_run: dict[str, str] = {}
        self._begun = -1
        self._since = 0.0                           # when a job began or ended last
        self._said = ("", time.monotonic())
        self._states: dict[str, str] = {}           # node -> why no job can use it, as it was told last
        self._next_nodes = 0.0
        self._sweep_wait, self._next_sweep = RETRY_S, 0.0
        self._silence = 0.0                         # since when the controller does not answer submissions
        self._unusable: dict[str, float] = {}       # node -> since when no job can use it

    def go(self) -> None:
        """Submit and wait. What Slurm refuses is that test's result: the others go on."""
        taken = time.monotonic()
        try:
            for test, runs in self._of.items():
                if self._stopped():
                    self._leave(test, STOPPED)
                    continue
                self._submit(runs)
                if time.monotonic() - taken > TAKE_EVERY_S:
                    self._look()
                    taken = time.monotonic()
            self._since = time.monotonic()
            left = [run for run in self.runs if run.id is not None and not run.finished]
            wait_all(left, self.client, self.progress, self._watch)
            self._sweep(last=True)
        finally:
            with contextlib.suppress(HpcadminError):    # however it ends: what is there is kept
                self._look()

    # --- submission ---------------------------------------------------------------------------------------------

    def _submit(self, runs: Sequence[JobRun]) -> None:
        for run in runs:
            if run.id is not None or run.finished:      # it was there before, as a run that is resumed finds
                continue
            try:
                self._hand_over(run)
            except SlurmError as exc:
                run.ending = f"was refused: {exc}"
                for other in runs:                  # they would wait for one that never comes
                    other.give_up("was cancelled: another job of this test was refused", dropped=True)
                self._sweep()
                return

    def _hand_over(self, run: JobRun) -> None:
        """A controller that is away for a while is waited for, and room under the limit of submitted jobs: only what it
        says when none of ours is left is a refusal."""
        begun, silent = time.monotonic(), 0
        while True:
            try:
                run.submit(patience_s=0.0)
                if silent:
                    run.adopt(only(self.client, run.options.comment, run.id or 0))
                return
            except SlurmError as exc:
                answers = self._answers(run)
                lost = isinstance(exc, NoAnswerError) or not answers
                silent += lost
                if lost:
                    run.on_silence()
                    answers = self._come_back(run, answers=answers)
                if run.id is not None:
                    return
                full = not lost and _LIMIT.search(str(exc)) is not None and self._others(run)
                if not answers or silent == MOST_TRIES or not (lost or full) or (
                        time.monotonic() - begun > self._wait_s):
                    raise
            if full:
                self.progress.status("no more jobs may be submitted now; waiting", now=True)
                self._look()
                time.sleep(RETRY_S)

    def _come_back(self, run: JobRun, *, answers: bool) -> bool:
        """Wait until the controller answers; False: it does not come back. A job whose answer was lost may come in a
        little later: it is looked for once more then."""
        self._silence = self._silence or time.monotonic()   # who was waited for in vain is not waited for once more
        pause, looked = RETRY_S, int(answers)
        while run.id is None and looked < 2:
            if not looked and time.monotonic() - self._silence > CONTROLLER_S:
                return False
            self.progress.status("the Slurm controller does not answer; trying again", now=True)
            self._look()
            time.sleep(SETTLE_S if looked else pause)
            pause = min(pause * 1.5, SLOWEST_RETRY_S)
            looked += self._answers(run)
        self._silence = 0.0
        return True

    def _others(self, run: JobRun) -> bool:
        """Whether jobs of other tests are still there, so that there may be room later."""
        mine = self._of[run.job.stages[0].tests[0]]
        return any(other.id is not None and not other.finished for other in self.runs if other not in mine)

    def _answers(self, run: JobRun) -> bool:
        """Whether the controller answers; a job that it took although its answer was lost is ours, also where it has
        begun, or is over and forgotten."""
        begun = slurm_job(run.folder)
        if begun is not None:
            run.adopt(begun)
            return True
        try:
            known = self.client.find(run.options.comment)
        except SlurmError:
            return False
        mine = [job.id for job in known if job.comment == run.options.comment and not job.over]
        if mine:
            run.adopt(max(mine))
        return True

    # --- while they wait and run --------------------------------------------------------------------------------

    def _stopped(self) -> bool:
        """Whether no more is to begin. What waits is given up once."""
        if self._desk is None:
            return False
        waiting = set(map(id, self._desk.watch([run for runs in self._open.values() for run in runs])))
        for test, runs in self._open.items():
            if any(id(run) in waiting for run in runs):
                self._leave(test, STOPPED)
        return self._desk.stopping

    def _watch(self, asked: bool) -> None:
        self._stopped()
        self._take_whole()
        for test, runs in self._open.items():
            self._pointless(test, runs)
        if asked:
            self._room()
        self._sweep()

    def _look(self) -> None:
        for runs in self._open.values():
            for run in runs:
                if run.id is not None and not run.finished:
                    run.look()
        self._take_whole()

    def _take_whole(self) -> None:
        for test, runs in list(self._open.items()):
            refused = any(run.id is None and run.ending for run in runs)
            if all(run.finished or (refused and run.id is None) for run in runs):
                del self._open[test]
                self._take(test)

    def _pointless(self, test: str, runs: Sequence[JobRun]) -> None:
        """Cancel what can give no result any more: jobs that wait for one that is over, or that nobody waits for."""
        if self._broken(test):
            self._drop(runs, "was cancelled: another job of this test came to nothing")
        elif self._alone(test):
            self._drop([run for run in runs if run.waits],
                       "was cancelled: the other job of this test could not wait longer")

    def _broken(self, test: str) -> list[JobRun]:
        """Jobs that are over and left no whole output, other than those that we gave up."""
        return [run for run in self._of[test]
                if run.finished and not run.dropped and not run.collector.complete(test)]

    def _alone(self, test: str) -> list[JobRun]:
        """Jobs that ran although another of their test had not begun."""
        return [run for run in self._of[test] if any("alone" in f.flags for f in run.collector.frames(test))]

    def _room(self) -> None:
        """Do not wait for ever: not for a node that is away, nor for room where nothing moves."""
        now = time.monotonic()
        waiting = [(test, run) for test, runs in self._open.items() for run in runs if run.waits]
        begun = sum(not run.waits for run in self.runs)
        if begun != self._begun:
            self._begun, self._since = begun, now
        self._say([run for _, run in waiting])
        away = self._away([run for _, run in waiting], now)
        for test, run in waiting:
            node = next((n for n in run.job.nodes if n in away), "")
            if node:
                self._leave(test, f"{node} is {away[node]}")
            elif now - self._since > self._wait_s:
                self._leave(test, f"no room for {round(self._wait_s / 60)} min: the {self._name(run)} "
                            f"waited{self._why(run)}; again when fewer jobs are on its nodes")

    def _away(self, waiting: Sequence[JobRun], now: float) -> dict[str, str]:
        """Of the nodes that jobs wait for, those that no job can use, with the reason."""
        asked = {n for run in waiting if run.reason not in _USUAL for n in run.job.nodes}
        if asked and now >= self._next_nodes:
            self._next_nodes, self._states = now + NODE_S, {}
            with contextlib.suppress(SlurmError):
                self._states = {n.name: f"{n.state.unusable}: {n.reason}" if n.reason else n.state.unusable
                                for n in self.client.nodes() if n.name in asked and n.state.unusable}
        states = {n: why for n, why in self._states.items() if n in asked}
        self._unusable = {n: self._unusable.get(n, now) for n in states}
        return {n: states[n] for n, since in self._unusable.items() if now - since >= NODE_S}

    def _leave(self, test: str, why: str) -> None:
        self._not_run.setdefault(test, why)
        self._drop(self._of[test], "was cancelled: it waited for too long")

    def _drop(self, runs: Sequence[JobRun], ending: str) -> None:
        for run in runs:
            run.give_up(ending, dropped=True)

    def _sweep(self, *, last: bool = False) -> None:
        """Cancel what was given up. While the controller does not answer that is tried again and again."""
        doomed = [run for run in self.runs if run.doomed and run.id is not None]
        if not doomed or (not last and time.monotonic() < self._next_sweep):
            return
        try:
            self.client.cancel([run.id for run in doomed if run.id is not None])
        except SlurmError as exc:
            self._sweep_wait = min(self._sweep_wait * 1.5, SLOWEST_RETRY_S)
            self._next_sweep = time.monotonic() + self._sweep_wait
            if last:
                numbers = " ".join(str(run.id) for run in doomed)
                self.progress.failure(f"jobs could not be cancelled: {exc}; scancel {numbers}")
            return
        self._sweep_wait = RETRY_S
        for run in doomed:
            run.doomed = False

    # --- words --------------------------------------------------------------------------------------------------

    def _say(self, waiting: Sequence[JobRun]) -> None:
        reasons = Counter(run.reason if run.reason not in ("", "None") else "no reason told" for run in waiting)
        text = ", ".join(f"{printable(reason, limit=80)} ({count})" for reason, count in reasons.most_common(3))
        said, when = self._said
        if text and text != said and time.monotonic() - when > (SAY_EVERY_S if said else SAY_FIRST_S):
            self.progress.line(f"{plural(len(waiting), 'job')} of {len(self.runs)} waiting: {text}")
            self._said = (text, time.monotonic())

    @staticmethod
    def _name(run: JobRun) -> str:
        return run.tests[run.job.stages[0].tests[0]].steps[run.job.step or 0].name or "job"

    @staticmethod
    def _why(run: JobRun) -> str:
        return f" ({printable(run.reason, limit=120)})" if run.reason not in ("", "None") else ""

    # --- results ------------------------------------------------------------------------------------------------

    def of(self, test: str) -> list[JobRun]:
        return self._of[test]

    @property
    def ids(self) -> list[int]:
        """Jobs that may still be there."""
        return [run.id for run in self.runs if run.id is not None and (
            run.doomed or run.stranded or not run.finished)]

    def frames(self, test: str) -> tuple[Frame, ...]:
        """In the order of the test's steps."""
        return tuple(frame for run in self._of[test] for frame in run.collector.frames(test))

    def not_run(self, test: str) -> str:
        """Why the test was not made although Slurm took its jobs, "" when it was."""
        alone = self._alone(test)
        if not alone and not self.why_missing(test):
            return ""
        if self._broken(test):
            return ""
        if not alone or test in self._not_run:
            return self._not_run.get(test, "")
        late = next((run for run in self._of[test] if run not in alone), None)
        if late is not None and late.reason:
            return (f"its {len(self._of[test])} jobs could not run at one time: the {self._name(late)} waited "
                    f"{MEET_S} s and more{self._why(late)}; other jobs hold what it asks for, or no two such jobs fit "
                    "on one node")
        return (f"its jobs did not begin within {MEET_S} s of each other, or did not see each other's marks in the run "
                "folder")

    def why_missing(self, test: str) -> str:
        """A refused job explains those that were cancelled for it."""
        runs = sorted(self._of[test], key=lambda run: (run.dropped, run.id is not None))
        return next((why for run in runs for why in [run.why_missing(test)] if why), "")

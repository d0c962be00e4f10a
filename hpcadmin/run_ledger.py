"""What a run has so far: its plan, the results of its tests, and the ways in which it may end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcadmin.check import Check, Limit, Status, Subject, Verdict
from hpcadmin.errors import EXIT_INTERRUPTED, HpcadminError
from hpcadmin.frames import Frame
from hpcadmin.isolate import explain
from hpcadmin.judge import judge
from hpcadmin.model import Inventory
from hpcadmin.plan import context_of
from hpcadmin.plan_time import Durations
from hpcadmin.run_folder import RunFolder, iso_now
from hpcadmin.run_handover import SETTLE_S
from hpcadmin.run_job import find_and_cancel
from hpcadmin.run_kept import Ground, slurm_job
from hpcadmin.run_plan import keep_coverage, keep_usual
from hpcadmin.run_progress import Progress
from hpcadmin.run_results import judged, read_result
from hpcadmin.run_seal import seal_at_end
from hpcadmin.run_stop import ignore_signals
from hpcadmin.run_submit import Desk
from hpcadmin.rundata import (
    Measured,
    Plan,
    PlannedTest,
    TestResult,
    append_lines,
    exit_status,
    write_lines,
    write_record,
)
from hpcadmin.text import plural


@dataclass(frozen=True)
class Outcome:
    folder: Path
    exit_status: int
    verdicts: tuple[Verdict, ...] = ()
    text: str = ""                      # what there is to say beside the report
    detached: bool = False              # it goes on in the background


class Ledger:
    """One run; keeps what has been measured, for every way it may end."""

    def __init__(self, folder: RunFolder, desk: Desk, checks: Mapping[str, Check], limits: Sequence[Limit],
                 progress: Progress) -> None:
        self.folder, self.desk, self.checks, self.limits, self.progress = folder, desk, checks, limits, progress
        self.plan: Plan | None = None
        self.ground: Ground | None = None
        self.inventory: Inventory | None = None
        self.results: dict[str, TestResult] = {}
        self.durations = Durations()
        self._tests: dict[str, PlannedTest] = {}
        self._old: list[Measured] | None = None     # what a resumed run finds in its folder, until it goes on itself

    def set_plan(self, plan: Plan, ground: Ground, inventory: Inventory | None, *, resumed: bool = False) -> None:
        self.ground, self.inventory = ground, inventory
        self._adopt(plan)
        self._old = [] if resumed else None

    def _adopt(self, plan: Plan) -> None:
        self.plan = plan
        self._tests = {t.id: t for t in plan.tests}
        self.progress.run(len(self.results), len(self._tests))

    def _results(self) -> list[TestResult]:
        """In the order of the plan: the same whichever came first."""
        return [self.results[i] for i in self._tests if i in self.results]

    def _judged(self) -> list[Verdict]:
        return judge(self._results(), self.limits, self.inventory)

    def _keep(self, test: PlannedTest, frames: Sequence[Frame], missing: str, not_run: str = "",
              before: Sequence[Frame] = ()) -> None:
        """Read a test's outputs, and keep its measurements at once."""
        assert self.ground is not None  # noqa: S101
        check = self.checks[test.check]
        context = context_of(check, self.ground.facts, test)
        if not_run:
            result = TestResult(test, not_run=not_run, simulated=context.simulated)
            self.progress.failure(f"{test.check} {test.subject} not run: {not_run}")
        else:
            result = read_result(test, frames, missing, check, context, before=before)
            if not result.error:
                self.durations.add(test, [(f.start, f.end) for f in frames], [f.host for f in frames])
        measured = [Measured(test.id, test.check, test.attempt, m) for m in result.measurements]
        if self._old is None:
            append_lines(self.folder.path, "measurements.jsonl", measured)
        else:
            self._old += measured
        self.results[test.id] = replace(result, test=self._tests[test.id], measurements=judged(result.measurements))
        if self._old is None:           # what was there before says nothing of how fast it goes
            self.progress.run(len(self.results), len(self._tests))
        if result.error:
            self.progress.failure(f"{test.check} {test.subject}: {result.error}")

    def _caught_up(self) -> None:
        """All that the folder had has been read: its measurements in one piece, in the place of what was there."""
        if self._old is not None:
            write_lines(self.folder.path, "measurements.jsonl", self._old)
            self._old = None

    # --- the ways a run may end ---------------------------------------------------------------------------------

    def finish(self, state: str, status: int | None = None) -> Outcome:
        """Judge what there is and write it down."""
        self._caught_up()
        if state == "complete":
            for test in self._tests.values():       # none is dropped silently
                self.results.setdefault(test.id, TestResult(test, error="nothing of it was taken"))
            self._sweep()
        verdicts = self._verdicts()
        write_lines(self.folder.path, "verdicts.jsonl", verdicts)
        findings = explain(verdicts, self.plan)
        write_record(self.folder.path, "findings.json", findings)
        keep_coverage(self.folder.path, self.plan, verdicts, findings)
        if state == "complete" and self.ground is not None:
            keep_usual(self.ground.facts.site, self.ground.facts, self.durations)
        final = exit_status(verdicts, finished=state == "complete") if status is None else status
        self.folder.update(state=state, ended=iso_now(), exit_status=final,
                           notes=self.desk.clocks.notes(self.folder.manifest.notes))
        if state == "complete" and (problem := seal_at_end(self.folder)):
            self.progress.failure(problem)
        return Outcome(self.folder.path, final, tuple(verdicts))

    def _sweep(self) -> None:
        """No job of ours may be left: one may have been submitted twice when its submitter was killed. And an admin may
        have requeued one in the moment in which its script ended: it waits again. One that runs is only ending."""
        unsure = self.desk.resumed or self.desk.unsure
        try:
            find_and_cancel(self.desk.client, self.desk.comment, (), waiting=not unsure)
        except HpcadminError as exc:
            if unsure:
                self.progress.failure(f"Slurm does not say whether jobs of this run are left: {exc}")

    def _verdicts(self) -> list[Verdict]:
        planned: Sequence[Verdict] = self.plan.verdicts if self.plan else ()
        entries = [Verdict(e.check, Subject(), e.status, e.reason, basis="plan")
                   for e in (self.plan.entries if self.plan else ())
                   if e.status in (Status.NOT_APPLICABLE, Status.NOT_NEEDED)]
        return [*planned, *entries, *self._judged()]

    def interrupted(self, state: str = "interrupted", why: str = "the run was interrupted") -> Outcome:
        """Cancel what is ours; what was measured is kept and judged, the rest was not run."""
        ignore_signals()                            # a second Ctrl-C must not leave a job behind
        try:
            ids = self._cancel()
            self.progress.line(f"{state}: {plural(len(ids), 'job')} cancelled")
        except HpcadminError as exc:
            self.progress.line(f"{state}, and no job could be cancelled: {exc}")
        self._not_run(why)
        return self.finish(state, EXIT_INTERRUPTED)

    def _cancel(self) -> list[int]:
        """Cancel all jobs of ours; also one that was just being submitted, and comes in a little later."""
        client, comment = self.desk.client, self.desk.comment
        ids = dict.fromkeys(find_and_cancel(client, comment, self.desk.ids))
        unanswered = [path for path in self.folder.jobs() if (path / "script").exists() and slurm_job(path) is None]
        if unanswered:
            self.progress.line("a job was just being submitted: looking for it once more")
            time.sleep(SETTLE_S)
            ids.update(dict.fromkeys(find_and_cancel(client, comment, ())))
        return list(ids)

    def left(self, why: str) -> Outcome:
        """Save what there is; jobs that are there go on, and --resume collects what they leave."""
        ignore_signals()
        self.folder.update(state="interrupted", ended=iso_now(), exit_status=EXIT_INTERRUPTED)
        self.progress.line(f"{why}: {plural(len(self.desk.ids), 'job')} of it left to go on; hpcadmin validate "
                           f"--resume {self.folder.run_id} goes on")
        self._not_run(f"{why}, and can be resumed")
        return self.finish("interrupted", EXIT_INTERRUPTED)

    def _not_run(self, reason: str) -> None:
        for test in self._tests.values():
            if test.id not in self.results:
                self.results[test.id] = TestResult(test, not_run=reason)

    def broken(self, error: HpcadminError) -> None:
        """Slurm refused, or our disk is full: leave no job behind, and say how it ended, as far as that can be done."""
        ignore_signals()
        try:
            find_and_cancel(self.desk.client, self.desk.comment, self.desk.ids)
        except HpcadminError as exc:
            if self.desk.ids or self.desk.unsure:
                self.progress.line(f"no job could be cancelled: {exc}; hpcadmin runs cancel {self.folder.run_id}")
        with contextlib.suppress(HpcadminError):
            self.folder.update(notes=(*self.folder.manifest.notes, f"ended early: {error}"))
            self._not_run(str(error))
            self.finish("failed", error.exit_status)

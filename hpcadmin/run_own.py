"""Tests that are jobs of their own: all jobs of a check are submitted, then watched with one query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hpcadmin.errors import SlurmError
from hpcadmin.frames import Frame
from hpcadmin.run_job import JobRun, wait_all
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import Plan, PlannedJob
from hpcadmin.slurm.client import Client


def own_jobs(plan: Plan) -> Iterator[list[PlannedJob]]:
    """The jobs of tests that are jobs themselves, those of one check together: checks run one after the other, because
    one may want the nodes that another has."""
    check_of = {test.id: test.check for test in plan.tests}
    by_check: dict[str, list[PlannedJob]] = {}
    for job in plan.jobs:
        if job.kind == "own":
            by_check.setdefault(check_of[job.stages[0].tests[0]], []).append(job)
    yield from by_check.values()


class OwnJobs:
    """The runs of these jobs. take: called with the id of each test once all its jobs are over."""

    def __init__(self, runs: Sequence[JobRun], client: Client, progress: Progress, take: Callable[[str], None]) -> None:
        self.runs, self.client, self.progress, self._take = runs, client, progress, take
        self._of: dict[str, list[JobRun]] = {}
        for run in runs:
            self._of.setdefault(run.job.stages[0].tests[0], []).append(run)

    def go(self) -> None:
        """Submit and wait. What Slurm refuses is that test's result: the others go on."""
        for runs in self._of.values():
            self._submit(runs)
        wait_all([run for run in self.runs if run.id is not None], self.client, self.progress)
        for test in self._of:
            self._take(test)

    def _submit(self, runs: Sequence[JobRun]) -> None:
        for run in runs:
            try:
                run.submit()
            except SlurmError as exc:
                run.ending = f"was refused: {exc}"
                submitted = [other.id for other in runs if other.id is not None]
                self.client.cancel(submitted)       # they would wait for one that never comes
                return

    @property
    def ids(self) -> list[int]:
        return [run.id for run in self.runs if run.id is not None]

    def frames(self, test: str) -> tuple[Frame, ...]:
        """In the order of the test's steps."""
        return tuple(frame for run in self._of[test] for frame in run.collector.frames(test))

    def why_missing(self, test: str) -> str:
        """A refused job explains those that were cancelled for it."""
        runs = sorted(self._of[test], key=lambda run: run.id is not None)
        return next((why for run in runs for why in [run.why_missing(test)] if why), "")

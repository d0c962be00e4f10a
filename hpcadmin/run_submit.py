"""The jobs of a run as they are handed to Slurm, or found again there and in the run folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpcadmin.check import Check
from hpcadmin.errors import HpcadminError, SlurmError
from hpcadmin.files import read_whole
from hpcadmin.plan_work import Stepped
from hpcadmin.run_clocks import Clocks
from hpcadmin.run_folder import RunFolder
from hpcadmin.run_job import GRACE_S, JobRun, wait_all
from hpcadmin.run_kept import STOP, STOPPED, Ground, drop_mark, is_there, read_ended, set_mark, slurm_job, write_ended
from hpcadmin.run_progress import Progress
from hpcadmin.run_session import Request
from hpcadmin.run_stop import Stop
from hpcadmin.rundata import PlannedJob, PlannedTest
from hpcadmin.site_tools import MPIRUN
from hpcadmin.slurm.client import Client, version_tuple
from hpcadmin.slurm.script import JobOptions
from hpcadmin.slurm.states import Job
from hpcadmin.text import plural, whole_number


class Desk:
    """Submits, adopts and awaits the jobs of one run. earlier: those that Slurm knows of a run that is resumed."""

    def __init__(self, folder: RunFolder, client: Client, progress: Progress, stop: Stop, *, request: Request,
                 checks: Mapping[str, Check] | None = None) -> None:
        self.folder, self.client, self.progress, self.stop, self.request = folder, client, progress, stop, request
        self.ids: list[int] = []                    # jobs that may still be there
        self.earlier: dict[int, Job] = {}           # by our number
        self.resumed = False
        self.in_use = False                         # some nodes were busy: ask before the suite's job is submitted
        self.checks = checks or {}
        self.over_before: set[int] = set()          # our numbers: over when the run was resumed
        self.number = 0                             # of the job that was begun last
        self.clocks = Clocks()
        self._begun = time.monotonic()
        self.waited_out = -1e9                      # when nodes were waited for in vain last
        self.unsure = False                         # a submission was not answered: there may be one job too many

    @property
    def comment(self) -> str:
        return f"hpcadmin:{self.folder.run_id}:"

    def find(self) -> None:
        """What Slurm knows of the run's jobs, and what became of those that it is not known of whether they are over.
        Raises SlurmError when it does not answer: nothing is begun then."""
        self.resumed = self.in_use = True
        for job in self.client.find(self.comment):
            number = whole_number(job.comment.removeprefix(self.comment))
            if number is not None:
                known = self.earlier.get(number)
                if known is None or job.id > known.id:
                    self.earlier[number] = job
        open_ids = {int(path.name): slurm_job(path) for path in self.folder.jobs()
                    if not is_there(path / "done") and read_ended(path) is None}
        asked = {number: i for number, i in open_ids.items() if i is not None}
        told = self.client.jobs(list(asked.values()))
        self.over_before = {number for number, i in asked.items() if i not in told or told[i].over}

    def options(self, job: PlannedJob, tests: Mapping[str, PlannedTest], ground: Ground) -> JobOptions:
        gpus = max((s.gpus_per_task * s.tasks_per_node for t in tests.values() for s in t.steps), default=0)
        if gpus > min((ground.facts.slurm_gpus.get(n, 0) for n in job.nodes), default=0):
            gpus = 0    # not every node has them: --exclusive gives what each has, without asking for more
        mine = {n for t in tests.values() for n in t.subject.nodes}
        # Where Slurm chooses the nodes of a job, it is to choose among those that are tested.
        not_these = () if job.nodes else tuple(n for n in ground.partition_nodes if n not in mine)
        return self._options(job, ground, gpus, not_these)

    def _options(self, job: PlannedJob, ground: Ground, gpus: int, exclude: tuple[str, ...]) -> JobOptions:
        request, site = self.request, ground.facts.site
        slurm = site.slurm
        return JobOptions(
            comment=f"{self.comment}{job.number}", name=f"hpcadmin-{self.folder.manifest.suite}",
            partition=ground.partition.name, account=request.account or slurm.account, qos=request.qos or slurm.qos,
            reservation=request.reservation or slurm.reservation, gpus_per_node=gpus,
            nice=slurm.nice if request.nice is None else request.nice,
            priority=slurm.priority if request.priority is None else request.priority,
            exclude=exclude, mpi=slurm.mpi, mpirun=site.tool(MPIRUN).path or MPIRUN,
            overlap=version_tuple(ground.slurm_version)[:2] >= (20, 11),
            modules_init=site.modules.init, module_paths=site.modules.paths, node_dir=site.away,
            programs=tuple((name, read_whole(Path(path))) for name, path in sorted(ground.programs.items())))

    def make(self, job: PlannedJob, tests: Mapping[str, PlannedTest], ground: Ground) -> JobRun:
        """The job, with what its folder and Slurm already have of it."""
        limit, most = self.request.time_limit_min, ground.partition.max_time_min
        minutes = limit or (min(job.time_limit_min, most) if most else job.time_limit_min)
        job = replace(job, time_limit_min=minutes)
        if job.kind != "look":                      # the plan leaves the steps of its tests out
            tests = Stepped(tests, self.checks, ground.facts, ground.env)
        self.number = max(self.number, job.number)
        run = JobRun(self.client, job, tests, self.options(job, tests, ground), self.folder.job_dir(job.number),
                     self.progress)
        run.wait_for_s = self.request.wait_for_s
        run.on_silence = self._silence
        run.clocks = self.clocks
        if self.resumed:
            self._known(run)
        return run

    def _silence(self) -> None:
        self.unsure = True

    def _known(self, run: JobRun) -> None:
        number, folder = run.job.number, run.folder
        run.id = slurm_job(folder)
        ended = read_ended(folder)
        if ended is not None:
            run.ending, run.state = ended.ending, ended.state
        elif run.id is None and number in self.earlier:
            run.adopt(self.earlier[number].id)
            if self.earlier[number].over:
                self.over_before.add(number)
        run.past = ended is not None or is_there(folder / "done")
        if run.id is not None and not run.past:     # all that was there is waited for together
            run._waits = self._begun
        if not is_there(folder / STOPPED):
            drop_mark(folder / STOP)

    def take_past(self, run: JobRun) -> None:
        """All that a job left which is over: nothing of it is waited for."""
        while run.read():
            pass
        if is_there(run.folder / "done"):           # a moment ago, perhaps, and its files are shown late
            run._read_late(self._begun + GRACE_S - time.monotonic())
        run.finished = True

    def go(self, run: JobRun) -> None:
        """Submit it, if that has not been done, and wait for it."""
        if run.past:
            self.take_past(run)
            return
        if run.id is None:
            run.submit()
            assert run.id is not None  # noqa: S101
            self.progress.line(f"job {run.id}: {run.job.kind}, {plural(len(run.job.nodes), 'node')}, "
                               f"about {max(1, round(run.job.seconds))} s")
        else:
            self.progress.line(f"job {run.id}: {run.job.kind}, {plural(len(run.job.nodes), 'node')}, was there before")
        self.ids.append(run.id)
        wait_all([run], self.client, self.progress, lambda _: self.watch([run]))
        self.end(run)
        self.ids.remove(run.id)

    def end(self, run: JobRun) -> None:
        if run.ending:
            write_ended(run.folder, run.ending, run.state)

    # --- to stop ------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self.stop.asked

    def watch(self, runs: Sequence[JobRun]) -> Sequence[JobRun]:
        """Called again and again while jobs are awaited; the jobs that it has just given up."""
        self.stop.check()
        if self.stop.asked and not self.stop.said:
            self.stop.said = True
            self.progress.line("stopping after this round; once more cancels what runs now")
            return self.halt(runs)
        return ()

    def halt(self, runs: Sequence[JobRun]) -> list[JobRun]:
        """Have these jobs begin no further stage, and cancel those that have not begun; the latter."""
        mine = [run for run in runs if run.id is not None and not run.finished]
        for run in mine:
            set_mark(run.folder / STOP)
        with contextlib.suppress(SlurmError):
            for number, job in self.client.jobs([run.id for run in mine if run.id is not None]).items():
                next(run for run in mine if run.id == number).told(job)
        waiting = [run for run in mine if run.waits]
        for run in waiting:
            run.give_up("was cancelled: the run was stopped", dropped=True)
        with contextlib.suppress(HpcadminError):
            self.client.cancel([run.id for run in waiting if run.id is not None])
        return waiting

"""A run from its plan to its verdicts. Each phase looks first at what the run folder has of it already."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from hpcadmin.check import Check, Limit
from hpcadmin.errors import HpcadminError, SlurmError, UsageError
from hpcadmin.frames import Frame
from hpcadmin.hosts import fold
from hpcadmin.judge import doubtful
from hpcadmin.repeats import again, unsettled
from hpcadmin.run_folder import RunFolder
from hpcadmin.run_handover import not_taken
from hpcadmin.run_in_use import Keeper, busy_nodes, reserved, run_in_waves
from hpcadmin.run_job import JobRun
from hpcadmin.run_kept import REQUEUED, STOPPED, is_there, read_mark, slurm_job
from hpcadmin.run_ledger import Ledger, Outcome
from hpcadmin.run_lost import lost_nodes, with_lost
from hpcadmin.run_nodes import nodes_now, unusable_now
from hpcadmin.run_own import OwnJobs, own_jobs
from hpcadmin.run_progress import Progress
from hpcadmin.run_reduced import without_absent
from hpcadmin.run_rest import OUTSIDE, Rest, newest, next_number, plan_own_rest, plan_rest, tries
from hpcadmin.run_stop import Replaced
from hpcadmin.run_submit import Desk
from hpcadmin.rundata import (
    Plan,
    PlannedJob,
    PlannedTest,
    Texts,
    write_plan,
)
from hpcadmin.text import plural, whole_number
from hpcadmin.waves import PATIENCE_S, not_run_words


class Phases(Ledger):
    """One run, phase after phase."""

    def __init__(self, folder: RunFolder, desk: Desk, checks: Mapping[str, Check], limits: Sequence[Limit],
                 progress: Progress) -> None:
        super().__init__(folder, desk, checks, limits, progress)
        self._earlier: list[JobRun] = []            # jobs of which a part was planned again
        self._texts: Texts = {}
        self._drained: dict[int, bool] = {}         # jobs that were cancelled before they began: whether by a node
        self._down: dict[str, str] = {}             # node -> why no job can use it, as Slurm was asked last

    def _save(self, plan: Plan) -> None:
        """The plan first, then what it says: a job that no plan names would be nobody's."""
        self._caught_up()
        write_plan(self.folder.path, plan, self._texts)
        self._adopt(plan)

    def go(self) -> Outcome:
        assert self.plan is not None  # noqa: S101
        suite = [j for j in self.plan.jobs if j.kind not in ("own", "again") and j.rest_of is None]
        there = {j.number for j in suite if not self._to_submit(j)}
        # Of a run that is resumed: first all that is there already, so that nothing new stands in line behind it.
        for rest in [self._run_job(j) for j in suite if j.number in there]:
            self._with_rest(rest)
        for job in (j for j in suite if j.number not in there):
            busy = self._busy(job)
            self._in_waves(job, busy) if busy else self._with_rest(job)
        self._own()
        if len(self.results) < len(self._tests):
            self.desk.stop.between()
        self._lost_nodes()
        wanted = self._turn(0, doubtful(self._results(), self._judged()))
        if wanted:
            self._turn(1, unsettled(wanted, self._results(), self._judged()))
            self._lost_nodes()                      # Slurm may have noticed meanwhile
        return self.finish("complete")

    def _lost_nodes(self) -> None:
        """What Slurm says of the nodes of tests that could not be measured."""
        assert self.plan is not None  # noqa: S101
        if any(r.error or r.not_run for r in self.results.values()):
            self._usable()
            plan = with_lost(self.plan, self._results(), self._down)
            if plan is not self.plan:
                self._save(plan)

    # --- doubtful tests once more -------------------------------------------------------------------------------

    def _turn(self, turn: int, wanted: Sequence[str]) -> list[str]:
        """Measure these tests again, beside what was beside them; those that can be. A turn that the plan already has
        is that one."""
        assert self.plan is not None  # noqa: S101
        known = [j for j in self.plan.jobs if j.kind == "again" and j.rest_of is None]
        if turn < len(known):
            job = known[turn]
        else:
            usual = {c.name: c.seconds for c in self.checks.values()}
            if wanted:
                self._usable()
            repeat = again(self.plan, wanted, next_number(self.plan, self.desk.number), usual,
                           lost_nodes(self.plan) | self._down.keys())
            if repeat is None:
                return []
            self.desk.stop.between()
            self.progress.line(f"measuring {plural(len(wanted), 'doubtful test')} again")
            self._save(replace(self.plan, tests=(*self.plan.tests, *repeat.tests), jobs=(*self.plan.jobs, repeat.job)))
            job = repeat.job
        mine = [i for stage in job.stages for i in stage.tests]
        self._with_rest(job)
        return [self._tests[i].repeats for i in mine if self._tests[i].alone]

    # --- a cluster in use ---------------------------------------------------------------------------------------

    def _to_submit(self, job: PlannedJob) -> bool:
        folder = self.folder.job_dir(job.number)
        return slurm_job(folder) is None and job.number not in self.desk.earlier and not (folder / "done").exists()

    def _busy(self, job: PlannedJob) -> frozenset[str]:
        """Nodes on which the job could not begin now, where it is still to be submitted."""
        assert self.ground is not None  # noqa: S101
        # Waves run side by side and make rounds anew: only one job keeps to a number of nodes under load.
        side_by_side = not (self.plan and self.plan.at_once)
        ask = (self.desk.in_use or job.rest_of is not None) and side_by_side and self._to_submit(job)
        return busy_nodes(self.desk, self.ground, job) if ask else frozenset()

    def _in_waves(self, job: PlannedJob, busy: frozenset[str]) -> None:
        plan, ground = self.plan, self.ground
        assert plan is not None and ground is not None  # noqa: S101
        self.desk.stop.between()
        keeper = Keeper(self.desk, self.progress, ground, plan=lambda: self.plan or plan, tests=lambda: self._tests,
                        done=lambda: self.results, save=self._save, result=self._result, cut_off=self._cut_off,
                        remember=self._earlier.append, took=self.durations.so_far)
        missing = run_in_waves(keeper, job, self.checks, busy)
        smaller = self._without_absent(job, missing)
        for test, why in missing.items():
            if smaller is None or self._tests[test].job != smaller.number:
                self._keep(self._tests[test], (), "", why)
        self._with_rest(smaller)

    def _without_absent(self, job: PlannedJob, missing: Mapping[str, str]) -> PlannedJob | None:
        """The job for groups that are to be made without the nodes that did not become free."""
        assert self.plan is not None and self.ground is not None  # noqa: S101
        groups = {i for s in job.stages for i in s.tests if s.kind == "group" and i in missing}
        absent = busy_nodes(self.desk, self.ground, job) if groups else frozenset()
        plan, smaller = without_absent(self.plan, job, missing, absent, checks=self.checks,
                                       number=next_number(self.plan, self.desk.number))
        if smaller is not None:
            self.progress.line(f"groups without {fold(absent)}, not free in time")
            self._save(plan)
        return smaller

    # --- jobs with many tests -----------------------------------------------------------------------------------

    def _with_rest(self, job: PlannedJob | None) -> None:
        """The job, and those for what it left undone: in waves as the suite's own, where nodes have become busy."""
        while job is not None:
            busy = self._busy(job) if job.kind == "suite" and job.rest_of is not None else frozenset()
            if busy:
                self._in_waves(job, busy)
                return
            job = self._run_job(job)

    def _run_job(self, job: PlannedJob) -> PlannedJob | None:
        """The job for what is left of this one, if there is to be one."""
        assert self.plan is not None and self.ground is not None  # noqa: S101
        tests = {i: self._tests[i] for stage in job.stages for i in stage.tests}
        run = self.desk.make(job, tests, self.ground)
        if not run.past:
            self.desk.stop.between()
        if job.kind in ("suite", "again") and not self.plan.at_once and not tries(self.plan, job):
            run.patience_s = PATIENCE_S             # somebody has got a node since they were looked at
        run.on_test = lambda test: self._result(run, test)
        run.part = bool(self.results)               # what is there already is kept, whatever becomes of this one
        try:
            self._go(run)
        except (SlurmError, UsageError) as exc:
            if run.id is not None or not self.results:
                raise
            run.not_run, run.finished = not_taken(exc), True
            self.progress.failure(run.not_run)
        rest = next((j for j in self.plan.jobs if j.rest_of == job.number), None) or self._plan_rest(run)
        if rest is not None:
            self._earlier.append(run)
        later = self._lost(run) if self.desk.stop.asked else set()
        for test in tests:
            if test not in self.results and test not in later and self._tests[test].job == job.number:
                self._result(run, test)
        return rest

    def _go(self, run: JobRun) -> None:
        if run.past:
            self.desk.take_past(run)
            return
        if run.id is not None:
            run.look()              # what a running job has left so far is old as well
        self._caught_up()
        self.desk.go(run)

    def _plan_rest(self, run: JobRun) -> PlannedJob | None:
        assert self.plan is not None  # noqa: S101
        lost = self._lost(run)
        if not lost or self.desk.stop.asked:
            return None
        self.desk.in_use = self.desk.in_use or run.impatient
        usable = self._usable()
        rest = plan_rest(self.plan, run.job, lost, usable, checks=self.checks,
                         number=next_number(self.plan, self.desk.number))
        if rest is None:
            return None
        self._say_rest(run, sum(len(s.tests) for s in rest.jobs[0].stages))
        self._save(rest.plan)
        return rest.jobs[0]

    def _say_rest(self, run: JobRun, count: int) -> None:
        stopped = "could not start all its steps" if is_there(run.folder / "done") else "was stopped"
        how = run.ending or ("was started again" if is_there(run.folder / REQUEUED) else stopped)
        self.progress.line(f"job {run.id} {how}: {plural(count, 'test')} planned again")

    def _lost(self, run: JobRun) -> set[str]:
        """Tests that the job did not make for no fault of theirs."""
        missing = {i for stage in run.job.stages for i in stage.tests
                   if run.collector.missing(i) and self._tests[i].job == run.job.number}
        stopped = whole_number(read_mark(run.folder / STOPPED).strip())
        if stopped:
            return {i for stage in run.job.stages[stopped - 1:] for i in stage.tests} & missing
        if is_there(run.folder / "done"):           # it did all it could: only what Slurm did not start is made again
            quiet = {i for i in missing if not run.collector.frames(i)} if run.place.never_started() else set()
            return missing & (run.cut.keys() | quiet)
        return missing if self._cut_off(run) else set()

    def _cut_off(self, run: JobRun) -> bool:
        """A job that is found over by --resume is to be made good whatever ended it; while a run is watched, only what
        no person has done."""
        return (run.job.number in self.desk.over_before or (self.desk.resumed and run.past)
                or (run.dropped and self.desk.stop.asked) or run.impatient or run.state in OUTSIDE
                or is_there(run.folder / REQUEUED) or self._prolog(run))

    def _prolog(self, run: JobRun) -> bool:
        """Whether a node, and no person, ended it before it began: when a prolog fails, Slurm drains the node and
        cancels a job that is not to be requeued (22.05)."""
        if run.state != "CANCELLED" or run.dropped or run.claimed:
            return False
        if run.job.number not in self._drained:
            self._usable()
            self._drained[run.job.number] = any(n in self._down for n in run.job.nodes)
        return self._drained[run.job.number]

    def _usable(self) -> set[str]:
        """Nodes that a job can use now; none where Slurm does not tell."""
        with contextlib.suppress(SlurmError):
            nodes = nodes_now(self.desk.client)
            self._down = unusable_now(nodes, [n.name for n in nodes],
                                      reserved=self.ground is not None and reserved(self.desk, self.ground))
            return {n.name for n in nodes} - self._down.keys()
        return set()

    # --- tests that are jobs of their own -----------------------------------------------------------------------

    def _own(self) -> None:
        """Check after check; what is lost is planned again."""
        assert self.plan is not None  # noqa: S101
        while True:
            plan = self.plan
            mine = {j.number for j in newest(plan.jobs)}
            for jobs in own_jobs(plan):
                current = [j for j in jobs if j.number in mine and j.stages[0].tests[0] not in self.results]
                if current:
                    self._run_own(current)
            if self.plan is plan:
                return

    def _run_own(self, jobs: Sequence[PlannedJob]) -> None:
        assert self.ground is not None  # noqa: S101
        if self.ground.facts.site.away and any(job.meets for job in jobs):
            for test in dict.fromkeys(job.stages[0].tests[0] for job in jobs):
                self._keep(self._tests[test], (), "", "its jobs must see each other's marks, and the nodes share no "
                           'folder ([run] collect = "step")')
            return
        runs = [self.desk.make(job, {i: self._tests[i] for i in job.stages[0].tests}, self.ground) for job in jobs]
        for run in runs:
            if run.past:
                self.desk.take_past(run)
        if not all(run.past for run in runs):
            self.desk.stop.between()
            self.progress.line(f"{self._tests[jobs[0].stages[0].tests[0]].check}: {plural(len(jobs), 'job')} of "
                               "its own, as users submit them")
        over: list[str] = []
        own = OwnJobs(runs, self.desk.client, self.progress, over.append, desk=self.desk)
        before = list(self.desk.ids)
        try:
            own.go()
        except Replaced:                            # the folder is another process's now
            raise
        except BaseException:
            self.desk.ids += own.ids
            with contextlib.suppress(HpcadminError):
                self._take_own(own, over)
            raise
        self.desk.ids = [*before, *own.ids]
        self._take_own(own, over)

    def _take_own(self, own: OwnJobs, over: Sequence[str]) -> None:
        for run in own.runs:
            if run.finished:
                self.desk.end(run)
        usable = cache(self._usable)                # asked once for all of them
        for test in over:
            runs = own.of(test)
            if not self._own_again(test, runs, usable):
                self._keep(runs[0].tests[test], own.frames(test), own.why_missing(test), own.not_run(test))

    def _own_again(self, test: str, runs: Sequence[JobRun], usable: Callable[[], set[str]]) -> bool:
        """Whether the test is planned again: it was cut off, or its jobs missed each other while nobody watched."""
        assert self.plan is not None  # noqa: S101
        alone = self.desk.resumed and any("alone" in f.flags for run in runs for f in run.collector.frames(test))
        cut = any(run.collector.missing(test) and not run.dropped and (run.cut or (
            self._cut_off(run) and not is_there(run.folder / "done"))) for run in runs)
        if self.desk.stop.asked or not (alone or cut):
            return False
        number = next_number(self.plan, self.desk.number)
        rest: Rest | None = plan_own_rest(self.plan, self._tests[test], [run.job for run in runs], usable(),
                                          number=number)
        if rest is None:
            return False
        self._save(rest.plan)
        return True

    # --- results ------------------------------------------------------------------------------------------------

    def _result(self, run: JobRun, test_id: str) -> None:
        if self._tests[test_id].job != run.job.number or test_id in self.results:
            return                                  # planned again since: the other job's outputs count
        test = run.tests[test_id]                   # with its steps
        self._keep(test, run.collector.frames(test_id), run.why_missing(test_id), self._never_began(run, test),
                   before=self._before(run, test.before))
        run.forget(test_id)

    def _never_began(self, run: JobRun, test: PlannedTest) -> str:
        """Why the test was never made, where its job did not come to its first step."""
        if not run.collector.missing(test.id) or run.claimed:
            return ""
        if run.not_run and not run.begun:
            return run.not_run
        down = {n: self._down[n] for n in test.subject.nodes if n in self._down}
        return not_run_words(test.subject.nodes, 0.0, down) if down and self._cut_off(run) else ""

    def _before(self, run: JobRun, first: str) -> Sequence[Frame]:
        """The outputs of the same test before the load, from the job that has them."""
        for one in (run, *self._earlier) if first else ():
            if first in one.tests and not one.why_missing(first):
                return one.collector.frames(first)
        return ()

    def _not_run(self, reason: str) -> None:
        """A run that was gone on with and ends early has results that it has not come to yet."""
        if self.desk.resumed:
            with contextlib.suppress(HpcadminError):
                self.collect()
        super()._not_run(reason)

    def collect(self) -> None:
        """What the jobs have left so far, without waiting for anything."""
        if self.plan is None or self.ground is None:
            return
        known = {int(path.name) for path in self.folder.jobs()}
        own: dict[str, list[JobRun]] = {}
        for job in newest([j for j in self.plan.jobs if j.kind == "own"]) + [
                j for j in self.plan.jobs if j.kind != "own"]:
            if job.number not in known:
                continue
            run = self.desk.make(job, {i: self._tests[i] for s in job.stages for i in s.tests}, self.ground)
            if job.kind == "own":
                own.setdefault(job.stages[0].tests[0], []).append(run)
            else:
                run.on_test = partial(self._result, run)
            self.desk.take_past(run)
        for test, runs in own.items():
            if test not in self.results and not any(run.collector.missing(test) for run in runs):
                self._keep(runs[0].tests[test], [f for run in runs for f in run.collector.frames(test)], "")

"""validate: nodes -> look -> plan -> one suite job -> verdicts -> doubtful tests once more -> final verdicts."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcadmin.catalogue import load_limits
from hpcadmin.check import Check, Limit, Status, Subject, Verdict
from hpcadmin.errors import EXIT_INTERRUPTED, HpcadminError, UsageError
from hpcadmin.frames import Frame
from hpcadmin.isolate import explain
from hpcadmin.judge import doubtful, judge
from hpcadmin.model import Inventory
from hpcadmin.plan import context_of, make_plan
from hpcadmin.plan_facts import Facts, gather
from hpcadmin.registry import Suite, load_checks, load_suite
from hpcadmin.repeats import again, unsettled
from hpcadmin.run_folder import RunFolder, create_run, iso_now
from hpcadmin.run_job import JobRun, find_and_cancel
from hpcadmin.run_look import Seen, Wanted, accepted_inventory, look_job, needed, take, unknown, wanted
from hpcadmin.run_nodes import Selection, select
from hpcadmin.run_own import OwnJobs, own_jobs
from hpcadmin.run_progress import Progress
from hpcadmin.run_results import judged, read_result
from hpcadmin.run_tools import keep, read_known, tools_file
from hpcadmin.rundata import (
    Measured,
    Plan,
    PlannedJob,
    PlannedTest,
    SkippedNode,
    TestResult,
    append_lines,
    exit_status,
    write_lines,
    write_record,
)
from hpcadmin.site import Site
from hpcadmin.slurm.client import Client, version_tuple
from hpcadmin.slurm.script import JobOptions
from hpcadmin.state import bin_dir, inventory_file, make_private, runs_dir
from hpcadmin.text import plural
from hpcadmin.tools import told_before, with_tools


@dataclass(frozen=True)
class Request:
    """What the command line asks for; empty means the site's file or Slurm decides."""

    suite: str = "smoke"
    hostlist: str = ""
    inventory: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    run_dir: str = ""
    time_limit_min: int | None = None
    allow_root: bool = False
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    folder: Path
    exit_status: int
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Preview:
    """What --plan shows. look: why a look job would come first, "" when none is needed."""

    plan: Plan
    look: str


@dataclass
class _Session:
    """Everything that a run has read before it starts."""

    request: Request
    site: Site
    client: Client
    progress: Progress
    checks: Mapping[str, Check]
    suite: Suite
    limits: tuple[Limit, ...]
    selection: Selection
    accepted: Inventory | None
    slurm_version: str
    topology: bool | None               # None: no check of the suite asks for it
    partition_nodes: tuple[str, ...]    # all of them, whether they are tested or not
    runs: Path
    bins: Path
    want: Wanted
    pyxis: bool                         # srun starts containers; asked only where the site names one
    job_ids: list[int] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(n.name for n in self.selection.nodes)

    @property
    def known_tools(self) -> Path:
        return tools_file(self.bins.parent)

    @property
    def used(self) -> tuple[Check, ...]:
        return tuple(self.checks[name] for name in dict.fromkeys(n for e in self.suite.entries for n in e.names))


def _open(request: Request, site: Site, client: Client, progress: Progress) -> _Session:
    """Read and check all input; nothing is written or submitted."""
    checks = load_checks(site.checks_dir)
    suite = load_suite(request.suite, site, checks)
    used = {name for entry in suite.entries for name in entry.names}
    limits = tuple(x for x in load_limits(site) if x.check in used)
    path = Path(request.inventory) if request.inventory else inventory_file(site)
    accepted = accepted_inventory(path, required=bool(request.inventory))
    nodes = client.nodes()
    selection = select(nodes, client.partitions(), request.partition or site.slurm.partition, request.hostlist)
    runs = Path(os.path.abspath(Path(request.run_dir).expanduser())) if request.run_dir else runs_dir(site)  # noqa: PTH100
    bins = runs / "bin" if request.run_dir else bin_dir(site)
    want = wanted(suite, checks, site, bins)
    return _Session(request, site, client, progress, checks, suite, limits, selection, accepted, client.version(),
                    client.topology() if any("topology" in checks[name].needs for name in used) else None,
                    tuple(n.name for n in nodes if selection.partition.name in n.partitions), runs, bins, want,
                    any(ask.site.container for ask in want.asks) and client.starts_containers())


def preview(request: Request, site: Site, client: Client, progress: Progress) -> Preview:
    """The plan, without submitting or writing anything; what only a look can tell is taken as there."""
    session = _open(request, site, client, progress)
    look = needed(session.names, session.accepted, session.want)
    programs = {p: str(path) for p, path in session.want.programs.items()}
    told = told_before(session.want.asks, session.names, read_known(session.known_tools))
    facts = gather(session.names, None, session.accepted, site, programs=programs, unbuilt={},
                   shared_dir=site.shared_dir or str(session.runs), topology=session.topology,
                   tools=[one for one in told if not one.problem], pyxis=session.pyxis)
    facts = _with_slurm(facts, session)
    if look:
        facts = _assume_there(facts, session)
    plan = make_plan(session.suite, session.checks, facts, session.names, skipped=session.selection.skipped,
                     job=2 if look else 1)
    return Preview(with_tools(plan, told, session.used), look)


def _assume_there(facts: Facts, session: _Session) -> Facts:
    """What no inventory tells is taken as there: the plan shows the most that could run."""
    tools = {t: t for check in session.checks.values() for t in check.needs}
    return replace(
        facts, slurm_gpus={}, tools={n: {**tools, **facts.tools.get(n, {})} for n in session.names},
        has={word: {n: True if there is None else there for n, there in by_node.items()}
             for word, by_node in facts.has.items()})


def _with_slurm(facts: Facts, session: _Session) -> Facts:
    """With what Slurm gives to jobs, which is not always what the nodes have."""
    part = session.selection.partition
    return replace(facts, whole_nodes=part.name if part.whole_nodes else "",
                   slurm_gpus={n.name: n.gpus for n in session.selection.nodes})


def validate(request: Request, site: Site, client: Client, progress: Progress) -> Outcome:
    """Run a suite. Raises one of our errors when nothing could be run; else the outcome says how it went."""
    if os.geteuid() == 0 and not request.allow_root:
        raise UsageError("refuses to submit jobs as root: many sites forbid them, and shared homes do not trust root",
                         hint="run it as an ordinary user, or --allow-root")
    session = _open(request, site, client, progress)
    folder = create_run(
        session.runs, suite=session.suite.name, nodes=session.selection.asked, command=request.command,
        cluster=site.cluster.name, slurm_version=session.slurm_version, site=site.source)
    progress.line(f"run {folder.run_id}: suite {session.suite.name} on {plural(len(session.names), 'node')}")
    run = _Run(session, folder)
    try:
        with _interrupts():
            return run.whole()
    except KeyboardInterrupt:
        return run.interrupted()
    except HpcadminError as exc:
        run.broken(exc)
        raise
    finally:
        progress.close()


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """SIGTERM and a lost terminal end a run as Ctrl-C does: our jobs are cancelled, what was measured is kept."""
    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt
    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class _Run:
    """One run from the look to the verdicts; keeps what has been measured, for every way it may end."""

    def __init__(self, session: _Session, folder: RunFolder) -> None:
        self.s = session
        self.folder = folder
        self.plan: Plan | None = None
        self.facts: Facts | None = None
        self.inventory: Inventory | None = session.accepted
        self.results: dict[str, TestResult] = {}
        self._number = 0

    def whole(self) -> Outcome:
        seen = self._look()
        self._make_plan(seen)
        assert self.plan is not None  # noqa: S101
        for job in self.plan.jobs:
            if job.kind != "own":
                self._run_job(job, {t.id: t for t in self.plan.tests if t.job == job.number})
        for jobs in own_jobs(self.plan):
            self._run_own(jobs)
        wanted = self._again(doubtful(self._results(), self._judged()))
        if wanted:
            self._again(unsettled(wanted, self._results(), self._judged()))
        return self._finish("complete")

    def _results(self) -> list[TestResult]:
        return list(self.results.values())

    def _judged(self) -> list[Verdict]:
        return judge(self._results(), self.s.limits, self.inventory)

    def _again(self, wanted: Sequence[str]) -> Sequence[str]:
        """Measure these tests again, beside what was beside them; those that can be."""
        assert self.plan is not None  # noqa: S101
        repeat = again(self.plan, wanted, self._number + 1, {c.name: c.seconds for c in self.s.checks.values()})
        if repeat is None:
            return ()
        self.s.progress.line(f"measuring {plural(len(wanted), 'doubtful test')} again")
        self.plan = replace(self.plan, tests=(*self.plan.tests, *repeat.tests), jobs=(*self.plan.jobs, repeat.job))
        write_record(self.folder.path, "plan.json", self.plan)
        self._run_job(repeat.job, {t.id: t for t in repeat.tests})
        return wanted

    # --- the jobs -----------------------------------------------------------------------------------------------

    def _options(self, job: PlannedJob, tests: Mapping[str, PlannedTest]) -> JobOptions:
        request, slurm = self.s.request, self.s.site.slurm
        gpus = max((s.gpus_per_task * s.tasks_per_node for t in tests.values() for s in t.steps), default=0)
        if gpus > min((n.gpus for n in self.s.selection.nodes if n.name in job.nodes), default=0):
            gpus = 0    # not every node has them: --exclusive gives what each has, without asking for more
        return JobOptions(
            comment=f"hpcadmin:{self.folder.run_id}:{job.number}", name=f"hpcadmin-{self.s.suite.name}",
            partition=self.s.selection.partition.name, account=request.account or slurm.account,
            qos=request.qos or slurm.qos, reservation=request.reservation or slurm.reservation, gpus_per_node=gpus,
            exclude=self._not_these(job, tests), mpi=slurm.mpi,
            overlap=version_tuple(self.s.slurm_version)[:2] >= (20, 11),
            modules_init=self.s.site.modules.init, module_paths=self.s.site.modules.paths)

    def _not_these(self, job: PlannedJob, tests: Mapping[str, PlannedTest]) -> tuple[str, ...]:
        """Where Slurm chooses the nodes of a job, it is to choose among those that are tested."""
        mine = {n for t in tests.values() for n in t.subject.nodes}
        return () if job.nodes else tuple(n for n in self.s.partition_nodes if n not in mine)

    def _start(self, job: PlannedJob, tests: Mapping[str, PlannedTest]) -> JobRun:
        limit = self.s.request.time_limit_min
        most = self.s.selection.partition.max_time_min
        minutes = limit or (min(job.time_limit_min, most) if most else job.time_limit_min)
        job = replace(job, time_limit_min=minutes)
        self._number = job.number
        return JobRun(self.s.client, job, tests, self._options(job, tests), self.folder.job_dir(job.number),
                      self.s.progress)

    def _go(self, run: JobRun) -> None:
        run.submit()
        assert run.id is not None  # noqa: S101
        self.s.job_ids.append(run.id)
        self.s.progress.line(f"job {run.id}: {run.job.kind}, {plural(len(run.job.nodes), 'node')}, "
                             f"about {max(1, round(run.job.seconds))} s")
        run.wait()
        self.s.job_ids.remove(run.id)

    def _look(self) -> Seen:
        """What the nodes have: from a look job, or from the inventory when that says everything that is needed."""
        names = self.s.names
        want = self.s.want
        built = {p: str(path) for p, path in want.programs.items()}
        if not names or not needed(names, self.s.accepted, want):
            return Seen(None, built)
        self._number += 1
        if want.programs:
            for path in want.programs.values():
                make_private(path.parent)
        sources = make_private(self.folder.path / "src")
        known = read_known(self.s.known_tools)
        job, tests = look_job(self._number, names, want, site=self.s.site, folder=self.folder.job_dir(self._number),
                              sources=sources, probe=bool(unknown(names, self.s.accepted, want)), known=known,
                              pyxis=self.s.pyxis)
        run = self._start(job, tests)
        self._go(run)
        seen = take(run, want, iso_now(), known=known)
        if want.asks:
            keep(self.s.known_tools, known, seen.tools)
        for node, reason in seen.silent.items():
            self.s.progress.failure(f"{node}: {reason}")
        return seen

    def _make_plan(self, seen: Seen) -> None:
        skipped = [*self.s.selection.skipped,
                   *(SkippedNode(n, f"could not be looked at: {why}") for n, why in seen.silent.items())]
        names = tuple(n for n in self.s.names if n not in seen.silent)
        self.facts = gather(names, seen.inventory, self.s.accepted, self.s.site, programs=seen.programs,
                            unbuilt=seen.unbuilt, shared_dir=self.s.site.shared_dir or str(self.folder.path),
                            topology=self.s.topology, tools=seen.tools, pyxis=self.s.pyxis)
        self.facts = _with_slurm(self.facts, self.s)
        self.plan = make_plan(self.s.suite, self.s.checks, self.facts, names, skipped=skipped, job=self._number + 1)
        self.plan = with_tools(self.plan, seen.tools, self.s.used)
        if seen.inventory is not None:
            self.inventory = seen.inventory
        if self.inventory is not None:
            write_record(self.folder.path, "inventory.json", self.inventory)
        if self.s.accepted is not None:
            write_record(self.folder.path, "order.json", self.s.accepted)
        write_record(self.folder.path, "limits.json", self.s.limits)
        write_lines(self.folder.path, "measurements.jsonl", ())     # a run that measures nothing has a whole folder too
        write_record(self.folder.path, "plan.json", self.plan)
        self.folder.update(notes=self.plan.notes, simulated=self.inventory.simulated if self.inventory else "")

    def _run_job(self, job: PlannedJob, tests: Mapping[str, PlannedTest]) -> None:
        run = self._start(job, tests)
        run.on_test = lambda test: self._result(run, test)
        self._go(run)
        for test in tests:
            if test not in self.results:
                self._result(run, test)

    def _run_own(self, jobs: Sequence[PlannedJob]) -> None:
        assert self.plan is not None  # noqa: S101
        tests = {t.id: t for t in self.plan.tests}
        runs = [self._start(job, {i: tests[i] for i in job.stages[0].tests}) for job in jobs]
        own = OwnJobs(runs, self.s.client, self.s.progress, lambda test: self._keep(
            tests[test], own.frames(test), own.why_missing(test), own.not_run(test)))
        self.s.progress.line(f"{tests[jobs[0].stages[0].tests[0]].check}: {plural(len(jobs), 'job')} of "
                             "its own, as users submit them")
        before = list(self.s.job_ids)
        try:
            own.go()
        except BaseException:
            self.s.job_ids += own.ids
            raise
        self.s.job_ids = [*before, *own.ids]

    def _result(self, run: JobRun, test_id: str) -> None:
        first = run.tests[test_id].before
        before = run.collector.frames(first) if first in run.tests and not run.why_missing(first) else ()
        self._keep(run.tests[test_id], run.collector.frames(test_id), run.why_missing(test_id), before=before)
        run.forget(test_id)

    def _keep(self, test: PlannedTest, frames: Sequence[Frame], missing: str, not_run: str = "",
              before: Sequence[Frame] = ()) -> None:
        """Read a test's outputs, and keep its measurements at once."""
        assert self.facts is not None  # noqa: S101
        check = self.s.checks[test.check]
        context = context_of(check, self.facts, test)
        if not_run:
            result = TestResult(test, not_run=not_run, simulated=context.simulated)
            self.s.progress.failure(f"{test.check} {test.subject} not run: {not_run}")
        else:
            result = read_result(test, frames, missing, check, context, before=before)
        append_lines(self.folder.path, "measurements.jsonl",
                     [Measured(test.id, test.check, test.attempt, m) for m in result.measurements])
        self.results[test.id] = replace(result, measurements=judged(result.measurements))
        if result.error:
            self.s.progress.failure(f"{test.check} {test.subject}: {result.error}")

    # --- the ways a run may end ---------------------------------------------------------------------------------

    def _finish(self, state: str, status: int | None = None) -> Outcome:
        """Judge what there is and write it down."""
        verdicts = self._verdicts()
        write_lines(self.folder.path, "verdicts.jsonl", verdicts)
        write_record(self.folder.path, "findings.json", explain(verdicts, self.plan))
        final = exit_status(verdicts, finished=state == "complete") if status is None else status
        self.folder.update(state=state, ended=iso_now(), exit_status=final)
        return Outcome(self.folder.path, final, tuple(verdicts))

    def _verdicts(self) -> list[Verdict]:
        planned: Sequence[Verdict] = self.plan.verdicts if self.plan else ()
        entries = [Verdict(e.check, Subject(), e.status, e.reason, basis="plan")
                   for e in (self.plan.entries if self.plan else ())
                   if e.status in (Status.NOT_APPLICABLE, Status.NOT_NEEDED)]
        return [*planned, *entries, *judge(list(self.results.values()), self.s.limits, self.inventory)]

    def interrupted(self) -> Outcome:
        """Cancel what is ours; what was measured is kept and judged, the rest was not run."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)       # a second Ctrl-C must not leave a job behind
        try:
            ids = find_and_cancel(self.s.client, f"hpcadmin:{self.folder.run_id}:", self.s.job_ids)
            self.s.progress.line(f"interrupted: {plural(len(ids), 'job')} cancelled")
        except HpcadminError as exc:
            self.s.progress.line(f"interrupted, and no job could be cancelled: {exc}")
        self._not_run("the run was interrupted")
        return self._finish("interrupted", EXIT_INTERRUPTED)

    def _not_run(self, reason: str) -> None:
        for test in self.plan.tests if self.plan else ():
            if test.id not in self.results:
                self.results[test.id] = TestResult(test, not_run=reason)

    def broken(self, error: HpcadminError) -> None:
        """Slurm refused, or our disk is full: leave no job behind, and say how it ended, as far as that can be done."""
        with contextlib.suppress(HpcadminError):
            find_and_cancel(self.s.client, f"hpcadmin:{self.folder.run_id}:", self.s.job_ids)
        with contextlib.suppress(HpcadminError):
            self.folder.update(notes=(*self.folder.manifest.notes, f"ended early: {error}"))
            self._not_run(str(error))
            self._finish("failed", error.exit_status)

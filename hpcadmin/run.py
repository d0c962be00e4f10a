"""validate: nodes -> look -> plan -> one suite job -> verdicts -> doubtful tests once more -> final verdicts.

The run folder is the truth: whoever resumes a run goes through the same phases, and each looks first at what is there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hpcadmin.children import module_argv
from hpcadmin.errors import EXIT_INTERRUPTED, HpcadminError, SlurmError, StoreError, UsageError
from hpcadmin.registry import load_checks
from hpcadmin.rejudge import changes, judge_again
from hpcadmin.run_begin import begin
from hpcadmin.run_folder import RunFolder, create_run, moved, read_record
from hpcadmin.run_job import find_and_cancel
from hpcadmin.run_kept import CANCEL, drop_mark, is_there, read_ground, set_mark
from hpcadmin.run_ledger import Outcome
from hpcadmin.run_lock import RunLock, is_process, take, watcher
from hpcadmin.run_phases import Phases
from hpcadmin.run_progress import Progress
from hpcadmin.run_rest import misfit
from hpcadmin.run_seal import sealed_again
from hpcadmin.run_session import Preview, Request, Session, open_session, preview
from hpcadmin.run_stop import Cancelled, Left, Replaced, Stop, Stopped, signals
from hpcadmin.run_submit import Desk
from hpcadmin.rundata import Manifest, exit_status, read_run, write_lines
from hpcadmin.site import Site
from hpcadmin.slurm.client import Client
from hpcadmin.store_marks import read_marks
from hpcadmin.text import plural

__all__ = ["Outcome", "Preview", "Request", "cancel", "detach", "preview", "resume", "validate"]
CANCEL_WAIT_S = 45.0        # that whoever watches a run gets to cancel it
DETACH_WAIT_S = 20.0        # that a run in the background gets to begin


def validate(request: Request, site: Site, client: Client, progress: Progress) -> Outcome:
    """Run a suite. Raises one of our errors when nothing could be run; else the outcome says how it went."""
    session, folder = _start(request, site, client, progress)
    progress.line(f"run {folder.run_id}: suite {session.suite.name} on {plural(len(session.names), 'node')}")
    return _anew(session, folder, take(folder.path))


def _start(request: Request, site: Site, client: Client, progress: Progress) -> tuple[Session, RunFolder]:
    _no_root(allowed=request.allow_root)
    session = open_session(request, site, client, progress)
    folder = create_run(
        session.runs, suite=session.suite.name, nodes=session.selection.asked, command=request.command,
        cluster=site.cluster.name, slurm_version=session.slurm_version, site=site.source, retest_of=request.retest_of,
        request=_absolute(request), apart=bool(request.run_dir))
    return session, folder


def _no_root(*, allowed: bool) -> None:
    if os.geteuid() == 0 and not allowed:
        raise UsageError("refuses to submit jobs as root: many sites forbid them, and shared homes do not trust root",
                         hint="run it as an ordinary user, or --allow-root")


def _absolute(request: Request) -> Request:
    """Whoever resumes the run may be in another folder."""
    def whole(path: str) -> str:
        return os.path.abspath(Path(path).expanduser()) if path else ""  # noqa: PTH100  (links stay)
    suite = whole(request.suite) if "/" in request.suite or request.suite.endswith(".toml") else request.suite
    return replace(request, suite=suite, inventory=whole(request.inventory), run_dir=whole(request.run_dir))


def _anew(session: Session, folder: RunFolder, lock: RunLock, *, number: int = 0) -> Outcome:
    """A run from its beginning. number: of the last job that an earlier try of it had."""
    desk = Desk(folder, session.client, session.progress, Stop(folder.path), request=session.request,
                checks=session.checks)
    desk.number = number
    phases = Phases(folder, desk, session.checks, session.limits, session.progress)

    def whole() -> Outcome:
        begin(session, folder, desk, phases)
        return phases.go()
    return _watched(phases, lock, whole)


def _watched(phases: Phases, lock: RunLock, whole: Callable[[], Outcome]) -> Outcome:
    """Run it, and see to it that it ends in one of the known ways."""
    desk, folder = phases.desk, phases.folder
    if lock.warning:
        phases.progress.line(lock.warning)
    try:
        lock.write()
        desk.stop.lost = lock.lost
        with signals(desk.stop):
            try:
                return whole()
            except Stopped:
                why = f"the run was stopped after a round; hpcadmin validate --resume {folder.run_id} goes on"
                return phases.interrupted(why=why)
            except (Left, Cancelled):
                if not is_there(folder.path / CANCEL):
                    return phases.left("ended by a signal")
                return phases.interrupted("cancelled", "the run was cancelled")
            except Replaced as exc:
                raise UsageError(f"run {folder.run_id} is being watched by {exc} now: this process stood still for "
                                 "so long that it was taken for gone, and ends") from None
            except KeyboardInterrupt:
                return phases.interrupted()
            except HpcadminError as exc:
                phases.broken(exc)
                raise
    finally:
        phases.progress.close()
        lock.release()


# --- a run that was left ----------------------------------------------------------------------------------------


def resume(path: Path, site: Site, client: Client, progress: Progress, *, allow_root: bool = False) -> Outcome:
    """Go on with a run that was killed, left, stopped or cancelled; judge one that is complete once more."""
    lock = take(path)
    try:
        return _resume(path, lock, site, client, progress, allow_root=allow_root)
    finally:
        lock.release()


def _resume(path: Path, lock: RunLock, site: Site, client: Client, progress: Progress, *, allow_root: bool) -> Outcome:
    folder = RunFolder(path, read_record(path / "manifest.json", Manifest))
    request: Request = read_record(path / "request.json", Request)
    _no_root(allowed=allow_root or request.allow_root)
    if folder.manifest.state == "complete":
        return _judge(folder)
    if read_marks(path).imported:
        raise UsageError(f"run {folder.run_id} was imported: what it would run was written elsewhere",
                         hint="hpcadmin validate --suite … makes a run of your own")
    elsewhere = moved(path, folder.manifest)
    desk = Desk(folder, client, progress, Stop(path), request=request)
    desk.find()                             # Slurm must answer before anything is changed
    if elsewhere:
        _at_home(folder, desk)
    drop_mark(path / CANCEL)
    if not (path / "plan.json").exists():
        session = open_session(request, site, client, progress)
        find_and_cancel(client, desk.comment, ())
    folder.update(state="running", ended="", exit_status=None)
    if not (path / "plan.json").exists():
        progress.line(f"run {folder.run_id} has no plan yet: it begins anew")
        return _anew(session, folder, lock, number=max((int(p.name) for p in folder.jobs()), default=0))
    progress.line(f"run {folder.run_id} goes on: suite {folder.manifest.suite}")
    phases = _phases(folder, desk, progress)
    return _watched(phases, lock, phases.go)


def _at_home(folder: RunFolder, desk: Desk) -> None:
    """A run whose folder was moved: this is its place from now on. Its jobs still write to the old one."""
    open_jobs = [str(job.id) for job in desk.earlier.values() if not job.over]
    if open_jobs:
        raise UsageError(f"the run was moved from {folder.manifest.folder}, where its jobs still write to: "
                         f"{', '.join(open_jobs)}", hint=f"move it back, or hpcadmin runs cancel {folder.path}")
    folder.update(folder=str(folder.path))


def _phases(folder: RunFolder, desk: Desk, progress: Progress) -> Phases:
    """The phases of a run whose plan is there."""
    run = read_run(folder.path)
    ground = read_ground(folder.path)
    if run.plan is None:
        raise StoreError("; ".join(run.problems) or "plan.json cannot be read", where=str(folder.path))
    desk.checks = load_checks(ground.facts.site.checks_dir)
    if problem := misfit(run.plan, desk.checks):
        raise StoreError(f"does not fit together: {problem}", where=str(folder.path / "plan.json"))
    phases = Phases(folder, desk, desk.checks, run.limits, progress)
    phases.set_plan(run.plan, ground, run.inventory, resumed=True)
    desk.number = max((int(p.name) for p in folder.jobs()), default=0)
    return phases


def _judge(folder: RunFolder) -> Outcome:
    """A run that is complete has nothing left to run."""
    run = read_run(folder.path)
    verdicts = judge_again(run, run.limits)
    if not changes(run.verdicts, verdicts):             # else the run knew more of what was not measured
        verdicts = list(run.verdicts)
    status = exit_status(verdicts)

    def write() -> None:
        write_lines(folder.path, "verdicts.jsonl", verdicts)
        folder.update(exit_status=status)
    sealed_again(folder, write)
    text = f"run {folder.run_id} is complete: judged again, nothing to run"
    return Outcome(folder.path, status, tuple(verdicts), text)


# --- in the background, and its end from outside ----------------------------------------------------------------


def detach(path: Path, site_file: str | None, *, allow_root: bool) -> None:
    """Go on with this run in a process that survives this one and its terminal; what it says is in validate.log.

    Raises SlurmError with its last words when it does not come that far.
    """
    take(path).release()                    # UsageError when somebody watches it
    log = path / "validate.log"
    site = ["--site", os.path.abspath(site_file)] if site_file else []  # noqa: PTH100
    argv = module_argv("hpcadmin", *site, "validate", "--resume", str(path),
                       *(["--allow-root"] if allow_root else []))
    try:
        with log.open("ab") as out:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(log)) from exc
    end = time.monotonic() + DETACH_WAIT_S
    while process.poll() is None and watcher(path) is None and time.monotonic() < end:
        time.sleep(0.05)
    if process.poll() not in (None, 0, 1, 3):
        words = log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise SlurmError(f"ended at once: {words[-1] if words else f'exit status {process.returncode}'}",
                         where=str(log))


def prepare(request: Request, site: Site, client: Client, progress: Progress) -> Path:
    """A run that has not begun: the folder, for `detach`."""
    return _start(request, site, client, progress)[1].path


def cancel(path: Path, client: Client, progress: Progress) -> Outcome:
    """Cancel a run's jobs, and end whoever watches it. What was measured is kept and judged."""
    manifest = read_record(path / "manifest.json", Manifest)
    if manifest.state == "complete" and watcher(path) is None:
        raise UsageError(f"run {path.name} is complete: there is nothing to cancel")
    moved(path, manifest)
    set_mark(path / CANCEL)
    holder = watcher(path)
    if holder is not None:
        if is_process(holder):
            with contextlib.suppress(OSError):
                os.kill(holder.pid, signal.SIGTERM)
        end = time.monotonic() + CANCEL_WAIT_S
        while watcher(path) is not None:
            if time.monotonic() > end:
                find_and_cancel(client, f"hpcadmin:{manifest.run_id}:", ())
                raise StoreError(f"run {path.name}: its jobs are cancelled, but {holder.text} has been told to end and "
                                 "has not done so", hint="end that process, and cancel the run once more")
            time.sleep(0.1)
    lock = take(path)
    try:
        folder = RunFolder(path, read_record(path / "manifest.json", Manifest))
        desk = Desk(folder, client, progress, Stop(path), request=Request())
        find_and_cancel(client, desk.comment, ())
        if folder.manifest.state == "cancelled":        # whoever watched it has done the rest
            return Outcome(path, EXIT_INTERRUPTED, text=f"run {path.name} is cancelled")
        desk.resumed = True
        phases = _phases(folder, desk, progress) if (path / "plan.json").exists() else Phases(
            folder, desk, {}, (), progress)
        phases.collect()
        outcome = phases.interrupted("cancelled", "the run was cancelled")
        return replace(outcome, text=f"run {path.name} is cancelled")
    finally:
        lock.release()
        drop_mark(path / CANCEL)


def states(runs: Sequence[tuple[Path, Manifest]], client: Client | None) -> dict[str, str]:
    """Run id -> its state in words, for those that say that they are running. client: None where Slurm is not asked."""
    found: dict[str, str] = {}
    for path, manifest in runs:
        if manifest.state != "running":
            continue
        jobs = ""
        if watcher(path) is None:
            found[path.name] = "interrupted, to be resumed"
            continue
        with contextlib.suppress(HpcadminError):
            told = [job for job in client.find(f"hpcadmin:{manifest.run_id}:") if not job.over] if client else []
            words = [f"job {job.id} {job.base.lower()}" + (
                f": {job.reason}" if job.base == "PENDING" and job.reason not in ("", "None") else "")
                     for job in told[:3]]
            more = f" and {plural(len(told) - 3, 'more job')}" if len(told) > 3 else ""
            jobs = f" ({', '.join(words)}{more})" if words else ""
        found[path.name] = f"running{jobs}"
    return found

"""How validate begins: a new run, one that goes on, or one that repeats what failed; here or in the background."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcadmin.run import Outcome, Preview, Request
    from hpcadmin.site import Site


def start(site_file: str | None, request: Request, *, resume_run: str, retest_run: str, background: bool) -> Outcome:
    """Run it; of one in the background only its name is printed, and the outcome has no verdicts."""
    from hpcadmin.run import Outcome, detach, prepare, resume, validate
    from hpcadmin.run_live import live_progress
    from hpcadmin.site import load_site
    from hpcadmin.slurm.choose import choose
    site = load_site(site_file)
    progress = live_progress()
    if resume_run:
        path = _find(site, request, resume_run)
        site, site_file = _site_of(path, site, site_file)
        if not background:
            return resume(path, site, choose(site), progress, allow_root=request.allow_root)
    else:
        if retest_run:
            request = _again(site, request, retest_run)
        if not background:
            return validate(request, site, choose(site), progress)
        path = prepare(request, site, choose(site), progress)
    detach(path, site_file or site.source or None, allow_root=request.allow_root)
    return Outcome(path, 0, detached=True)


def plan(site_file: str | None, request: Request, retest_run: str) -> Preview:
    """What would be run; nothing is submitted or written."""
    from hpcadmin.run import preview
    from hpcadmin.run_progress import Progress
    from hpcadmin.site import load_site
    from hpcadmin.slurm.choose import choose
    site = load_site(site_file)
    if retest_run:
        request = _again(site, request, retest_run)
    return preview(request, site, choose(site), Progress())


def _find(site: Site, request: Request, name: str) -> Path:
    from hpcadmin.report.folders import find_run
    from hpcadmin.state import runs_dir
    return find_run(Path(request.run_dir).expanduser() if request.run_dir else runs_dir(site), name)


def _site_of(path: Path, site: Site, site_file: str | None) -> tuple[Site, str | None]:
    """The site's file that the run was begun with, unless another one is named."""
    from hpcadmin.run_folder import read_record
    from hpcadmin.rundata import Manifest
    from hpcadmin.site import load_site
    named: str = read_record(path / "manifest.json", Manifest).site
    if site_file or not named or not Path(named).is_file():
        return site, site_file
    return load_site(named), named


def _again(site: Site, request: Request, name: str) -> Request:
    """What is bad in the acceptance as it stands, whichever of its runs is named."""
    from hpcadmin.acceptance_read import read_acceptance
    from hpcadmin.check import Impact
    from hpcadmin.registry import load_checks
    from hpcadmin.run import Request
    from hpcadmin.run_folder import read_record
    from hpcadmin.run_retest import retest
    path = _find(site, request, name)
    loads = [name for name, check in load_checks(site.checks_dir).items() if check.impact is Impact.LOAD]
    return retest(request, read_record(path / "request.json", Request), read_acceptance(path), named=path.name,
                  loads=loads)

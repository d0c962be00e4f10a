"""What of site.toml would go wrong every night, told before the first."""

from __future__ import annotations

from pathlib import Path

from hpcadmin.errors import HpcadminError, SiteError, UsageError
from hpcadmin.registry import load_suite
from hpcadmin.site import Site
from hpcadmin.sweep.alarms.config import from_environment, read_alarms
from hpcadmin.sweep.sources import HealthFolder
from hpcadmin.toml_text import locate


def check_suite(site: Site) -> None:
    """SiteError for a suite that there is not, or that cannot be used."""
    try:
        if site.sweep.suite:
            load_suite(site.sweep.suite, site)
    except UsageError as exc:
        raise SiteError(f"sweep.suite: {exc.what}", where=locate(site.source, "sweep.suite"), hint=exc.hint) from exc


def root_may_not(site: Site, uid: int) -> str:
    """Why that user's sweep would test nothing; "" where it would, or nothing is to be tested."""
    if not site.sweep.suite or uid != 0 or site.sweep.suite_as_root:
        return ""
    return str(SiteError("sweep.suite: as root no jobs are submitted", where=locate(site.source, "sweep.suite"),
                         hint="[sweep] suite_as_root = true, or another user for the sweep: sweep install --user"))


def untested(site: Site, uid: int) -> str:
    """Why no test can be run, as far as site.toml tells."""
    try:
        check_suite(site)
    except HpcadminError as exc:
        return str(exc)
    return root_may_not(site, uid)


def ahead(site: Site, uid: int) -> list[str]:
    """SiteError for what is a mistake in any case; lines for what may yet come to be as it should."""
    alarms = read_alarms(site)
    check_suite(site)
    found = [why] if (why := root_may_not(site, uid)) else []
    folder = site.sweep.health_dir
    if folder and (why := HealthFolder(Path(folder).expanduser(), site.sweep.health_hours).missing()):
        found.append(f"{locate(site.source, 'sweep.health_dir')}: sweep.health_dir: {why}")
    for key, variable in from_environment(alarms):
        found.append(f"{locate(site.source, key)}: {key}: neither systemd nor cron gives the sweep a variable "
                     f"{variable}; a file may be named instead")
    return found

"""Where a sweep looks: results in a folder, nodes through Slurm and ssh, runs of suites, the tests of the night."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hpcadmin.remote.base import Remote
    from hpcadmin.run_session import Request
    from hpcadmin.site import Site
    from hpcadmin.slurm.node_control import NodeControl
    from hpcadmin.sweep.night import First
    from hpcadmin.sweep.sources import Source


_NODE_JSON = "where NODE.json are"


def sources_of(site: Site, health: str | None, runs: tuple[str, ...], *, dry_run: bool) -> list[Source]:
    """SiteError or UsageError for a folder that is none, or a run that there is not. In a dry run nothing is started on
    nodes."""
    import os

    from hpcadmin.report.folders import find_run
    from hpcadmin.state import runs_dir
    from hpcadmin.sweep.ahead import untested
    from hpcadmin.sweep.nightly import suite_problem
    from hpcadmin.sweep.sources import InTurn, RunVerdicts, Said
    from hpcadmin.sweep.trend import Trend
    found: list[Source] = []
    ways = _ways(site, health, dry_run=dry_run)
    if ways:
        found.append(InTurn(tuple(ways)))
    if dry_run and (why := untested(site, os.geteuid())):
        found.append(Said("", problems=(suite_problem(site.sweep.suite, why),)))
    if dry_run and (site.sweep.health_via or site.sweep.suite):
        found.append(Said("nothing is started on nodes in a dry run: what health_via and suite would tell is "
                          "not known", unknown=("unmeasured", "suite", "guard")))
    if site.sweep.suite and site.sweep.trend:
        found.append(Trend(runs_dir(site), site.sweep.suite))
    return [*found, *(RunVerdicts(find_run(runs_dir(site), name), site.sweep.strike_days) for name in runs)]


def _ways(site: Site, health: str | None, *, dry_run: bool) -> list[Source]:
    from pathlib import Path

    from hpcadmin.errors import SiteError, UsageError
    from hpcadmin.remote.local import Local
    from hpcadmin.slurm.choose import choose
    from hpcadmin.sweep.sources import HealthFolder
    from hpcadmin.sweep.ways import SlurmHealth, SshHealth, Wish
    from hpcadmin.toml_text import locate
    sweep, slurm = site.sweep, site.slurm
    found: list[Source] = []
    folder = health or sweep.health_dir
    if folder:
        source = HealthFolder(Path(folder).expanduser(), sweep.health_hours)
        if why := source.missing():
            raise UsageError(why, where="--health", hint=_NODE_JSON) if health else SiteError(
                f"sweep.health_dir: {why}", where=locate(site.source, "sweep.health_dir"), hint=_NODE_JSON)
        found.append(source)
    for way in () if dry_run else sweep.health_via:
        if way == "slurm":
            wish = Wish(sweep.partition or slurm.partition, sweep.account or slurm.account, sweep.qos or slurm.qos,
                        sweep.nice)
            found.append(SlurmHealth(choose(site), Local(), sweep.health_command, wish, sweep.health_s,
                                     sweep.health_hours))
        else:
            found.append(SshHealth(lambda: _ssh(site), sweep.health_command, site.ssh.parallel, sweep.health_s,
                                   sweep.health_hours))
    return found


def _ssh(site: Site) -> Remote:
    from hpcadmin.remote.ssh import SshRemote
    return SshRemote(site.ssh)


def first_of(site: Site, door: NodeControl) -> First:
    """The tests before the look; and what a sweep that was killed in them has left is put right."""
    from hpcadmin.slurm.choose import choose
    from hpcadmin.sweep.nightly import NightLooks, Nightly

    def run(request: Request) -> tuple[Path, int]:
        from hpcadmin.run import validate
        from hpcadmin.run_progress import Progress
        outcome = validate(request, site, choose(site), Progress())
        return outcome.folder, outcome.exit_status
    nightly = Nightly(site, lambda: choose(site), door, run)
    return lambda diary, name, night, now: NightLooks(nightly.go(diary, name, night, now), site.sweep.strike_days)

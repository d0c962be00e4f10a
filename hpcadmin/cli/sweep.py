"""hpcadmin sweep: look at all nodes, drain what is broken, resume what is repaired, tell."""

from __future__ import annotations

from typing import Any

import click

from hpcadmin.cli._sweep_alarms import alarms as alarms_command
from hpcadmin.cli._sweep_alarms import prometheus
from hpcadmin.cli._sweep_install import install


@click.group(invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Print the same decisions, and touch nothing.")
@click.option("--health", metavar="DIR", help="Results of hpcadmin-health as NODE.json (else [sweep] health_dir).")
@click.option("--results", "runs", metavar="RUN", multiple=True, help="Take the verdicts of this run of a suite too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, dry_run: bool, health: str | None, runs: tuple[str, ...], as_json: bool) -> int:
    """Look at all nodes once, and act by [sweep] of the site's file.

    Drains, comments or tells; resumes only what it drained itself, when what failed has passed since. Nodes that
    somebody else has drained, reserved or given a reason are left alone. Every action is in the ledger before Slurm is
    asked.

    The exit status is 0 when nothing is wrong, 1 when something is (drained, or told), 2 when it could not begin
    (site's file, ledger, another sweep runs), 3 when something is not known, 4 when Slurm did not answer, or late:
    nothing was done then.
    """
    if ctx.invoked_subcommand is not None:
        if dry_run or health or runs or as_json:
            from hpcadmin.errors import UsageError
            raise UsageError(f"options of the sweep itself stand before {ctx.invoked_subcommand}",
                             hint=f"put them behind it: hpcadmin sweep {ctx.invoked_subcommand} --help")
        return 0
    from hpcadmin.cli._sweep_alarms import tell_of, tell_unable, watch_of
    from hpcadmin.cli._sweep_sources import first_of, sources_of
    from hpcadmin.cli._sweep_text import print_report
    from hpcadmin.errors import SiteError, StoreError
    from hpcadmin.site import load_site
    from hpcadmin.slurm.node_control import NodeControl
    from hpcadmin.sweep.alarms.config import read_alarms
    from hpcadmin.sweep.night import sweep, sweep_dir
    site = load_site(ctx.obj["site"])
    channels = read_alarms(site)
    door = NodeControl()
    try:
        report = sweep(sweep_dir(site), site.sweep, door, sources_of(site, health, runs, dry_run=dry_run),
                       dry_run=dry_run, first=first_of(site, door), watch=watch_of(channels))
    except (StoreError, SiteError) as exc:
        if not dry_run:
            tell_unable(site, channels, str(exc))
        raise
    print_report(report, as_json)
    tell_of(site, channels, report)
    return report.exit_status


command.add_command(install)
command.add_command(alarms_command)
command.add_command(prometheus)


@command.command()
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Print what would be undone, and touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def undo(obj: dict[str, Any], run: str, dry_run: bool, as_json: bool) -> int:
    """Take back what sweep RUN did, where it is still as it was left: its id, the beginning of it, or last, the last
    that did something.

    A node that is undrained so is left alone until the check has passed once: it was a false alarm. The exit status is
    0 when all of it was undone, 1 when not, 4 when Slurm did not answer.
    """
    from hpcadmin.cli._sweep_text import print_report
    from hpcadmin.site import load_site
    from hpcadmin.slurm.node_control import NodeControl
    from hpcadmin.sweep.night import sweep_dir
    from hpcadmin.sweep.undo import undo as undo_run
    site = load_site(obj["site"])
    report = undo_run(sweep_dir(site), site.sweep, NodeControl(), run, dry_run=dry_run)
    print_report(report, as_json)
    return report.exit_status


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_sweeps(obj: dict[str, Any], as_json: bool) -> int:
    """All sweeps in the ledger, and the nodes that are drained by us now."""
    from hpcadmin.cli._sweep_text import print_list
    from hpcadmin.site import load_site
    from hpcadmin.sweep.ledger_file import read_ledger
    from hpcadmin.sweep.night import sweep_dir
    print_list(read_ledger(sweep_dir(load_site(obj["site"]))), as_json)
    return 0


@command.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(obj: dict[str, Any], run: str, as_json: bool) -> int:
    """Every entry of sweep RUN in the ledger (its id, the beginning of it, or last)."""
    from hpcadmin.cli._sweep_text import print_entries
    from hpcadmin.site import load_site
    from hpcadmin.sweep.ledger import fold
    from hpcadmin.sweep.ledger_file import read_ledger
    from hpcadmin.sweep.night import sweep_dir
    from hpcadmin.sweep.undo import find_sweep
    entries = read_ledger(sweep_dir(load_site(obj["site"])))
    found = find_sweep(fold(entries), run, to_read=True)
    print_entries([entry for entry in entries if entry.run == found], as_json)
    return 0

"""hpcadmin validate: prove the cluster with tests run through sbatch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hpcadmin.errors import EXIT_INTERRUPTED


@click.command()
@click.option("--suite", default="smoke", show_default=True, metavar="NAME|FILE", help="What is tested.")
@click.option("-w", "--nodelist", "hostlist", default="", metavar="HOSTLIST",
              help="These nodes alone; else all of the partition.")
@click.option("--inventory", default="", metavar="FILE",
              help="The accepted inventory, if not the one that discover keeps.")
@click.option("--plan", "plan_only", is_flag=True, help="Show jobs, rounds, tests and time; submit nothing.")
@click.option("--pairs", default="", metavar="all|screen|ring|cross-leaf|N",
              help="Which nodes meet: all pairs, or rounds of a sample; else as the suite says.")
@click.option("--at-once", type=click.IntRange(1, 1_000_000), metavar="NODES",
              help="Under load at one time, at most; else [run] at_once, else all.")
@click.option("--yes", is_flag=True, help="Let destructive checks run, in the directory that the suite names.")
@click.option("--partition", default="", metavar="NAME", help="Else [slurm] partition, else Slurm's default.")
@click.option("--account", default="", metavar="NAME", help="Else [slurm] account; so are the next two.")
@click.option("--qos", default="", metavar="NAME", help="Quality of service of our jobs.")
@click.option("--reservation", default="", metavar="NAME", help="Jobs run in it; its nodes are free to them.")
@click.option("--nice", type=click.IntRange(-2_147_483_645, 2_147_483_645), metavar="N",
              help="That the priority of our jobs is lowered by; else [slurm] nice.")
@click.option("--priority", type=click.IntRange(0, 4_294_967_293), metavar="N",
              help="Of our jobs, for operators of Slurm; else [slurm] priority, else as Slurm reckons.")
@click.option("--only-idle", is_flag=True, help="Nodes that are busy now are NOT RUN.")
@click.option("--nodes-down", type=click.Choice(["error", "skip"]), default="skip", show_default=True,
              help="Nodes that no job can use: submit nothing, or test the others.")
@click.option("--wait-for", default="2h", show_default=True, metavar="TIME",
              help="That nodes are waited for; then what is left is NOT RUN. 30m, 2h, 1d.")
@click.option("--max-jobs", type=click.IntRange(1, 1000), default=8, show_default=True, metavar="N",
              help="Jobs of the suite in the queue at once, where some nodes are busy.")
@click.option("--time-limit", type=click.IntRange(1, 100_000), metavar="MINUTES", help="Of each job; else as planned.")
@click.option("--run-dir", default="", metavar="DIR", help="Where runs are kept: the nodes must see it.")
@click.option("--allow-root", is_flag=True, help="Submit jobs as root.")
@click.option("--resume", "resume_run", default="", metavar="RUN",
              help="Go on with a run that was killed, left, stopped or cancelled.")
@click.option("--retest", "retest_run", default="", metavar="RUN",
              help="A new run of what failed in RUN, with its partners.")
@click.option("--detach", is_flag=True, help="Go on in the background; what is said goes to RUN/validate.log.")
@click.option("--json", "as_json", is_flag=True, help="The report, the plan, or the name of the run, as JSON.")
@click.pass_context
def command(ctx: click.Context, /, *, resume_run: str, retest_run: str, plan_only: bool, detach: bool, as_json: bool,
            **options: Any) -> int:
    """Prove the cluster with tests run through sbatch.

    Exit status: 0 all passed, 1 something failed, 2 usage or the site's files, 3 incomplete (errors, not run, not
    judged), 4 Slurm or a node could not be used, 130 interrupted: stopped after a round (one Ctrl-C), with its jobs
    cancelled (two), or left with its jobs going on (SIGTERM, a lost terminal).
    """
    from hpcadmin.cli._options import check_options, request_of
    from hpcadmin.cli._start import plan, start

    check_options(ctx)
    site_file = ctx.obj["site"]
    request = request_of(options)
    if plan_only:
        from hpcadmin.cli._plan_text import show
        show(plan(site_file, request, retest_run), as_json=as_json)
        return 0
    outcome = start(site_file, request, resume_run=resume_run, retest_run=retest_run, background=detach)
    if outcome.detached:
        _print_name(outcome.folder, as_json=as_json)
        return 0
    from hpcadmin.cli import put, say
    from hpcadmin.cli._acceptance import acceptance_line
    if outcome.text:
        say(outcome.text)

    from hpcadmin.report import formats, terminal_options
    from hpcadmin.report.whole import read_for_report
    report = formats()["json" if as_json else "table"]
    put(report.render(read_for_report(outcome.folder, values=report.values), terminal_options()))
    whole = acceptance_line(outcome.folder) if retest_run else ""
    if whole:
        say(f"acceptance of {whole}")
    if outcome.exit_status == EXIT_INTERRUPTED:
        say(f"hpcadmin validate --resume {outcome.folder.name} goes on with it")
    return outcome.exit_status


def _print_name(folder: Path, *, as_json: bool) -> None:
    """Of a run in the background."""
    import json
    click.echo(json.dumps({"run": folder.name, "path": str(folder)}) if as_json else folder.name)

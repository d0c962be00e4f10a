"""hpcadmin validate: prove the cluster with tests run through sbatch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hpcadmin.run import Preview


@click.command()
@click.option("--suite", default="smoke", show_default=True, metavar="NAME|FILE", help="What is to be tested.")
@click.option("-w", "--nodelist", "hostlist", default="", metavar="HOSTLIST",
              help="Only these nodes; else all of the partition.")
@click.option("--inventory", default="", metavar="FILE",
              help="The accepted inventory, if not the one that discover keeps.")
@click.option("--plan", "plan_only", is_flag=True, help="Show jobs, rounds, tests and time; submit nothing.")
@click.option("--partition", default="", metavar="NAME", help="Else [slurm] partition, else Slurm's default.")
@click.option("--account", default="", metavar="NAME")
@click.option("--qos", default="", metavar="NAME")
@click.option("--reservation", default="", metavar="NAME")
@click.option("--time-limit", type=click.IntRange(1, 100_000), metavar="MINUTES", help="Of each job; else by the plan.")
@click.option("--run-dir", default="", metavar="DIR", help="Where runs are kept; must be shared with the nodes.")
@click.option("--allow-root", is_flag=True, help="Submit jobs as root.")
@click.option("--json", "as_json", is_flag=True, help="The report (or the plan) as JSON.")
@click.pass_obj
def command(obj: dict[str, str | None], *, suite: str, hostlist: str, inventory: str, plan_only: bool, partition: str,
            account: str, qos: str, reservation: str, time_limit: int | None, run_dir: str, allow_root: bool,
            as_json: bool) -> int:
    """Prove the cluster with tests run through sbatch.

    Exit status: 0 all passed, 1 something failed, 2 usage or the site's files, 3 incomplete (errors, not run, not
    judged), 4 Slurm or a node could not be used, 130 interrupted.
    """
    from hpcadmin.run import Request, preview, validate
    from hpcadmin.run_progress import Progress
    from hpcadmin.site import load_site
    from hpcadmin.slurm.command_line import CommandLine

    site = load_site(obj["site"])
    request = Request(suite=suite, hostlist=hostlist, inventory=inventory, partition=partition, account=account,
                      qos=qos, reservation=reservation, run_dir=run_dir, time_limit_min=time_limit,
                      allow_root=allow_root, command=tuple(sys.argv))
    if plan_only:
        _show(preview(request, site, CommandLine(), Progress()), as_json)
        return 0
    outcome = validate(request, site, CommandLine(), Progress())

    from hpcadmin.report import formats, terminal_options
    from hpcadmin.rundata import read_run
    report = formats()["json" if as_json else "table"]
    sys.stdout.write(report.render(read_run(outcome.folder), terminal_options()))
    return outcome.exit_status


def _show(preview: Preview, as_json: bool) -> None:
    from hpcadmin.hosts import fold
    from hpcadmin.records import dumps
    from hpcadmin.run_own import own_jobs
    from hpcadmin.text import plural, printable

    plan = preview.plan
    if as_json:
        click.echo(dumps({"plan": plan, "look": preview.look}, indent=1))
        return
    click.echo(f"suite {plan.suite} on {plural(len(plan.nodes), 'node')}: {fold(plan.nodes) or '-'}")
    for skip in plan.skipped:
        click.echo(f"  not tested: {skip.node}: {printable(skip.reason)}")
    wide = max([16, *(len(e.check) for e in plan.entries), *(len(t.tool) for t in plan.tools)])
    for entry in plan.entries:
        what = plural(entry.tests, "test") if entry.status is None else f"{entry.status.value}: {entry.reason}"
        click.echo(f"  {entry.check:<{wide}} {printable(what)}")
    for tool in plan.tools:
        version = f'"{tool.version}"' if tool.version else "of unknown version"
        what = tool.problem or f"{version}, {tool.path} ({tool.way})"
        click.echo(f"  {tool.tool:<{wide}} on {fold(tool.nodes)}: {printable(what)}")
    if preview.look:
        click.echo(f"job 1: look at the nodes first ({printable(preview.look)}); what is missing there will not be run")
    for job in (job for job in plan.jobs if job.kind != "own"):
        click.echo(f"job {job.number}: {job.kind}, {plural(len(job.nodes), 'node')}, "
                   f"{plural(len(job.stages), 'stage')}, about {_time(job.seconds)}, "
                   f"time limit {job.time_limit_min} min")
        for stage in job.stages:
            click.echo(f"    {stage.kind:<6} {printable(stage.name)}: {plural(len(stage.tests), 'test')}")
    for jobs in own_jobs(plan):
        check = next(t.check for t in plan.tests if t.id == jobs[0].stages[0].tests[0])
        where = fold({n for job in jobs for n in job.nodes}) or "nodes that Slurm chooses"
        least = "at least " if preview.look and len(jobs) > 1 else ""     # a look tells how many GPUs there are
        click.echo(f"{least}{plural(len(jobs), 'job')} of {check}, as users submit them, at one time on {where}: "
                   f"about {round(jobs[0].seconds)} s, time limit {jobs[0].time_limit_min} min")
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for v in plan.verdicts:
        key = (v.status.value, v.check, v.subject.device, v.reason)
        found.setdefault(key, {}).update(dict.fromkeys(v.subject.nodes))
    for (status, check, device, reason), nodes in found.items():
        until = " until job 1 has looked" if preview.look and reason.endswith("is not known") else ""
        click.echo(f"  {status}: {check} {f'{fold(nodes)} {device}'.strip()}: {printable(reason)}{until}")


def _time(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 180 else f"{round(seconds / 60)} min"

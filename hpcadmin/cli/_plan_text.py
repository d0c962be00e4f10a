"""What --plan shows, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from hpcadmin.hosts import fold
from hpcadmin.plan_time import cost_text, shown
from hpcadmin.records import to_plain
from hpcadmin.site_tools import MPIRUN
from hpcadmin.text import plural, printable

if TYPE_CHECKING:
    from hpcadmin.run_session import Preview
    from hpcadmin.rundata import Environment

PLAN_SCHEMA = 1
_MOST_STAGES = 40       # of a job that are listed one by one


def show(preview: Preview, *, as_json: bool) -> None:
    if as_json:
        import json
        click.echo(json.dumps(document(preview), indent=1, allow_nan=False))
        return
    for line in lines(preview):
        click.echo(line)


def document(preview: Preview) -> dict[str, object]:
    """cost: tests, rounds, jobs, nodes, seconds, node_hours. look: why a job looks at the nodes first, or ""."""
    return {"schema": PLAN_SCHEMA, "kind": "hpcadmin-plan", "cost": to_plain(preview.cost), "look": preview.look,
            "plan": to_plain(preview.plan)}


def lines(preview: Preview) -> Iterator[str]:
    plan = preview.plan
    yield f"suite {plan.suite} on {plural(len(plan.nodes), 'node')}: {fold(plan.nodes) or '-'}"
    for skip in plan.skipped:
        yield f"  not tested: {skip.node}: {printable(skip.reason)}"
    wide = max([16, *(len(e.check) for e in plan.entries), *(len(t.tool) for t in plan.tools)])
    for entry in plan.entries:
        what = plural(entry.tests, "test") if entry.status is None else f"{entry.status.value}: {entry.reason}"
        yield f"  {entry.check:<{wide}} {printable(what)}"
    for tool in plan.tools:
        version = f'"{tool.version}"' if tool.version else "of unknown version"
        what = tool.problem or f"{version}, {tool.path} ({tool.way})"
        yield f"  {tool.tool:<{wide}} on {fold(tool.nodes)}: {printable(what)}"
    yield from (f"  {printable(line)}" for line in environment_lines(plan.environment))
    yield from (f"  {printable(note)}" for note in plan.notes if note.startswith("pairs = "))
    yield from _jobs(preview)
    yield from _verdicts(preview)
    if preview.cost is not None:
        yield cost_text(preview.cost)


def environment_lines(around: Environment) -> Iterator[str]:
    """What every step has around it."""
    if around.mpi:
        yield f"MPI programs by {around.mpi if around.mpi == MPIRUN else f'srun --mpi={around.mpi}'}"
    if around.modules:
        yield f"modules of every step: {', '.join(around.modules)}"
    if around.container:
        yield f"benchmarks in the container {around.container}"
    if around.env:
        yield f"variables: {' '.join(f'{name}={value}' for name, value in sorted(around.env.items()))}"


def _jobs(preview: Preview) -> Iterator[str]:
    from hpcadmin.run_own import own_jobs

    plan = preview.plan
    if preview.look:
        yield f"job 1: look at the nodes first ({printable(preview.look)}); what is missing there will not be run"
    for job in (job for job in plan.jobs if job.kind != "own"):
        yield (f"job {job.number}: {job.kind}, {plural(len(job.nodes), 'node')}, {plural(len(job.stages), 'stage')}, "
               f"about {shown(job.seconds)}, time limit {job.time_limit_min} min")
        for stage in job.stages[:_MOST_STAGES]:
            yield f"    {stage.kind:<6} {printable(stage.name)}: {plural(len(stage.tests), 'test')}"
        if len(job.stages) > _MOST_STAGES:
            yield f"    and {plural(len(job.stages) - _MOST_STAGES, 'more stage')} (all of them with --json)"
    check_of = {test.id: test.check for test in plan.tests}
    for jobs in own_jobs(plan):
        check = check_of[jobs[0].stages[0].tests[0]]
        where = fold({n for job in jobs for n in job.nodes}) or "nodes that Slurm chooses"
        least = "at least " if preview.look and len(jobs) > 1 else ""     # a look tells how many GPUs there are
        yield (f"{least}{plural(len(jobs), 'job')} of {check}, as users submit them, at one time on {where}: "
               f"about {round(jobs[0].seconds)} s, time limit {jobs[0].time_limit_min} min")


def _verdicts(preview: Preview) -> Iterator[str]:
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for v in preview.plan.verdicts:
        key = (v.status.value, v.check, v.subject.device, v.reason)
        found.setdefault(key, {}).update(dict.fromkeys(v.subject.nodes))
    for (status, check, device, reason), nodes in found.items():
        until = " until job 1 has looked" if preview.look and reason.endswith("is not known") else ""
        yield f"  {status}: {check} {f'{fold(nodes)} {device}'.strip()}: {printable(reason)}{until}"

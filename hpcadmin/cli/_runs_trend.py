"""hpcadmin runs trend: what drifted over months, and the values of a node from run to run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hpcadmin.history_trend import Drift, Moment, Trends

_MOST_CONDITIONS = 6


@click.command("trend")
@click.argument("check", metavar="CHECK")
@click.option("--node", metavar="HOSTLIST", help="The values of these nodes from run to run, and the fleet's median.")
@click.option("--suite", metavar="NAME", help="Only runs of this suite; * and ? stand for any.")
@click.option("--since", metavar="TIME", help="Only runs begun since: 2026-07-01, or 90d ago.")
@click.option("--all", "everything", is_flag=True, help="Leave nothing out for brevity.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def trend_command(obj: dict[str, str | None], *, check: str, node: str | None, suite: str | None, since: str | None,
                  everything: bool, as_json: bool) -> int:
    """Slow drifts and steps of a check's values over all complete runs, within any limit.

    Exit status: 0 none for the worse, 1 at least one, 3 too few runs to tell, or one that cannot be read.
    """
    from hpcadmin.cli._runs_keep import indexed
    from hpcadmin.cli._runs_list import wanted_of
    from hpcadmin.errors import UsageError
    from hpcadmin.history_store import moments, unreadable
    from hpcadmin.history_trend import trends
    from hpcadmin.hosts import expand
    wanted = wanted_of({"suite": suite, "since": since}, state="complete")
    nodes = expand(node) if node else []
    problems: list[str] = []
    made: list[Moment] = indexed(obj, lambda index: moments(index, [
        e for e in index.find(wanted) if not e.simulated], check, problems))
    problems += indexed(obj, lambda index: unreadable(index, wanted.since))
    simulated = not made
    if simulated:                   # of a cluster that is only pretended there is nothing else
        made = indexed(obj, lambda index: moments(index, index.find(wanted), check, problems))
    if not made and not problems:
        raise UsageError(f"no complete run has values of {check!r} that can be compared",
                         hint="hpcadmin checks list has the names of checks")
    found = trends(made)
    if nodes and not any(e.node in nodes for m in made for of in m.values.values() for e in of):
        raise UsageError(f"no run has values of {check} on {node}")
    status = 1 if any(d.worse for d in found.drifts if not nodes or (d.entity and d.entity.node in nodes)) else (
        0 if found.series and not problems else 3)
    if as_json:
        sys.stdout.write(json.dumps(_plain(made, found, nodes, problems, status), indent=1) + "\n")
        return status
    _say(made, found, nodes, problems, everything=everything)
    return status


def _say(made: Sequence[Moment], found: Trends, nodes: Sequence[str], problems: Sequence[str], *, everything: bool,
         ) -> None:
    from hpcadmin.cli._history_text import table
    from hpcadmin.history_trend import MIN_POINTS
    from hpcadmin.text import plural, printable
    for problem in problems[:5]:
        click.echo(f"problem: {printable(problem, limit=500)}", err=True)
    if nodes:
        _say_nodes(made, nodes, everything=everything)
    drifts = [d for d in found.drifts if not nodes or d.entity is None or d.entity.node in nodes]
    for title, worse in (("For the worse", True), ("For the better", False)):
        table(title, [_row(d) for d in drifts if d.worse is worse],
              ["node", "what", "over the time", "a week", "noise", "runs", "how", "by chance"], everything=everything)
    click.echo("")
    if not found.series:
        left = f" ({plural(len(problems), 'problem')})" if problems else ""
        click.echo(f"{plural(found.runs, 'run')}{left}: fewer than {MIN_POINTS} values of anything, too few to tell a "
                   "drift")
    else:
        worse_count = sum(d.worse for d in drifts)
        click.echo(f"{plural(found.runs, 'run')}, {found.series} series of values"
                   f"{f' ({found.short} too short)' if found.short else ''}: {worse_count or 'none'} for the worse, "
                   f"{len(drifts) - worse_count or 'none'} for the better")
        if problems:
            click.echo(f"NOT KNOWN of what could not be read ({plural(len(problems), 'problem')})")


def _row(d: Drift) -> list[str]:
    from hpcadmin.cli._history_text import percent, sure
    where = d.entity.text if d.entity else "all nodes"
    what = f"{d.name}, all sizes" if d.condition is None else d.condition.text
    how = f"step between {d.step[0]} and {d.step[1]}" if d.step else f"drift from {d.first} to {d.last}"
    weekly = "-" if d.step or d.percent_per_week is None else percent(d.percent_per_week)
    return [where, what, percent(d.percent), weekly, f"{d.noise_percent:.1f} %",
            str(d.points), how, sure(d.q)]


def _say_nodes(made: Sequence[Moment], nodes: Sequence[str], *, everything: bool) -> None:
    from hpcadmin.cli._history_text import shown, table
    from hpcadmin.cli._history_text import time_text as when
    from hpcadmin.history_trend import fleet_points, points, summary_of
    of = summary_of(made, nodes)
    listed = list(of.items()) if everything else list(of.items())[-_MOST_CONDITIONS:]
    if len(listed) < len(of):
        click.echo(f"The last {len(listed)} of {len(of)} sizes; --all shows every one")
    for condition, entities in listed:
        fleet = {p.run: p.value for p in fleet_points(made, condition)}
        columns = [{p.run: p.value for p in points(made, condition, e)} for e in entities]
        rows = [[m.run, when(m.time), *(shown(c[m.run]) if m.run in c else "-" for c in columns),
                 shown(fleet[m.run]) if m.run in fleet else "-"] for m in made]
        table(f"{condition.text}, {condition.unit}", rows, ["run", "begun", *(e.text for e in entities), "median"],
              everything=True)


def _plain(made: Sequence[Moment], found: Trends, nodes: Sequence[str], problems: Sequence[str], status: int,
           ) -> dict[str, Any]:
    from hpcadmin.cli._history_text import named
    from hpcadmin.history_trend import TREND_SCHEMA, points, summary_of
    values = [{"condition": c.text, "unit": c.unit, "size_bytes": c.size_bytes, "node": e.node, "device": e.device,
               "points": [{"run": p.run, "time": p.time, "value": p.value} for p in points(made, c, e)]}
              for c, entities in summary_of(made, nodes).items() for e in entities] if nodes else []
    return {"schema": TREND_SCHEMA, "kind": "hpcadmin-trend", "exit_status": status, "runs": [m.run for m in made],
            "series": found.series, "too_short": found.short, "drifts": [named(d) for d in found.drifts],
            "values": values, "problems": list(problems)}

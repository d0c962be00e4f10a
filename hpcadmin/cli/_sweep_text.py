"""What a sweep decided and did, as lines and as JSON; its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from hpcadmin.cli import say
from hpcadmin.cli._table import print_table
from hpcadmin.hosts import fold as fold_nodes
from hpcadmin.records import dumps, to_plain
from hpcadmin.sweep.act import Done
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.model import DONE, Act, Decision, Entry, Problem, local_iso, night_name
from hpcadmin.sweep.night import Report
from hpcadmin.text import plural, printable

_PAST = {Act.DRAIN: "drained", Act.RESUME: "resumed", Act.COMMENT: "commented", Act.UNCOMMENT: "comment taken away"}
_STAYS = {Act.KEEP: "stays drained", Act.HOLD: "left alone", Act.TELL: "told"}


def print_report(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(dumps(plain_report(report), indent=1))
        return
    for note in report.notes:
        say(f"note: {note}")
    if report.plan is None:
        click.echo(printable(f"Slurm: {report.error}: nothing {'would be' if report.dry_run else 'was'} done"))
    else:
        for line in lines_of(report.plan.decisions, report):
            click.echo(line)
        if report.plan.budget.text:
            click.echo(printable(f"beyond the budget: {report.plan.budget.text}"))
    for change in report.changes:
        click.echo(printable(f"problem {change.what}: {change.problem.text}", limit=500))
    for problem in _lasting(report):
        click.echo(printable(f"problem lasts: {problem.text}", limit=500))
    click.echo(_last_line(report))


def _lasting(report: Report) -> list[Problem]:
    """What no line above tells of: without it a night could end with 1 or 3 and not say why."""
    told = {change.problem.key for change in report.changes}
    if report.error:
        told.add("slurm")
    if report.plan is not None and report.plan.budget.text:
        told.add("budget")
    return [problem for key, problem in sorted(report.problems.items())
            if key not in told and not key.startswith(("node/", "act/"))]


def lines_of(decisions: Sequence[Decision], report: Report) -> list[str]:
    """"n01: would drain: …", "n[01-64]: left alone: …": nodes of which the same is said are one line."""
    said: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.act is not Act.NONE or decision.why:
            said.setdefault(_words(decision, report.done.get(decision.node), report.dry_run), []).append(decision.node)
    return [printable(f"{fold_nodes(nodes)}: {words}", limit=600) for words, nodes in said.items()]


def _words(decision: Decision, done: Done | None, dry_run: bool) -> str:
    if decision.act is Act.NONE:
        return decision.why
    if not decision.act.touches:
        word = _STAYS[decision.act]
    elif dry_run or done is None:
        word = f"would {decision.act.value}"
    else:
        word = _PAST[decision.act] if done.result == DONE else f"{decision.act.value} {done.result} ({done.text})"
    return f"{word}: {decision.why}"


def _last_line(report: Report) -> str:
    counts = Counter(d.act for d in report.plan.decisions) if report.plan else Counter()
    words = [f"{count} {act.value}" for act in Act if (count := counts[act]) and act is not Act.NONE]
    total = sum(counts.values())
    return (f"{'dry run' if report.dry_run else report.run}: {plural(total, 'node')}"
            f"{', ' + ', '.join(words) if words else ''}, {plural(report.looks, 'look')}")


def plain_report(report: Report) -> dict[str, Any]:
    """The JSON of docs/sweep.md."""
    plan = report.plan
    return {
        "run": report.run, "night": night_name(report.night), "dry_run": report.dry_run,
        "exit_status": report.exit_status, "error": report.error, "notes": list(report.notes),
        "budget": to_plain(plan.budget) if plan else None,
        "decisions": [_plain(decision, report) for decision in plan.decisions] if plan else [],
        "problems": [to_plain(problem) for _, problem in sorted(report.problems.items())],
        "changes": [{"what": change.what, **to_plain(change.problem)} for change in report.changes],
    }


def _plain(decision: Decision, report: Report) -> dict[str, Any]:
    done = report.done.get(decision.node)
    return {"node": decision.node, "act": decision.act.value, "why": decision.why, "checks": list(decision.checks),
            "reason": decision.reason, "result": done.result if done else "",
            "text": done.text if done else ""}


def print_list(entries: Sequence[Entry], as_json: bool) -> None:
    history = fold(entries)
    done = Counter((entry.run, history.intents[entry.id].act) for entry in history.outcomes.values()
                   if entry.result == DONE)
    rows: list[dict[str, Any]] = [{"run": sweep.run, "night": night_name(sweep.night), "begun": local_iso(sweep.begun),
             "ended": local_iso(sweep.ended), "undoes": sweep.undoes,
             "exit_status": int(sweep.status) if sweep.status.isdigit() else None,
             "slurm_answered": sweep.looked,
             **{act.value: done[sweep.run, act.value] for act in _PAST}} for sweep in history.sweeps.values()]
    ours = [{"node": node, "since": local_iso(standing.time), "run": standing.intent.run,
             "checks": list(standing.intent.checks), "reason": standing.intent.reason}
            for node, standing in sorted(history.ours.items())]
    if as_json:
        click.echo(dumps({"sweeps": rows, "drained": ours}, indent=1))
        return
    print_table([[row["run"], row["night"], row["ended"] or "never ended",
                  "" if row["exit_status"] is None else str(row["exit_status"]),
                  "undo" if row["undoes"] else "yes" if row["slurm_answered"] else "no",
                  *(str(row[act.value] or "") for act in _PAST)] for row in rows],
                ["sweep", "night", "ended", "exit", "slurm", *(act.value for act in _PAST)])
    for item in ours:
        click.echo(printable(f"{item['node']}: drained by {item['run']} since {item['since']}: {item['reason']}"))


def print_entries(entries: Sequence[Entry], as_json: bool) -> None:
    if as_json:
        click.echo(dumps([to_plain(entry, sparse=True) for entry in entries], indent=1))
        return
    for entry in entries:
        what = " ".join(filter(None, [entry.node, entry.act, entry.result, entry.partner and f"with {entry.partner}",
                                      ", ".join(entry.checks)]))
        more = "; ".join(filter(None, [entry.reason, entry.text, entry.state]))
        head = " ".join(filter(None, [local_iso(entry.time), entry.kind, what]))
        click.echo(printable(f"{head}: {more}" if more else head, limit=600))

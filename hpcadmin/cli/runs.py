"""hpcadmin runs: which runs there are, and what one was."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from hpcadmin.check import Verdict
    from hpcadmin.report.folders import RunEntry
    from hpcadmin.report.summary import Summary
    from hpcadmin.rundata import Run

_RESULTS = {0: "passed", 1: "failed", 3: "incomplete", 4: "not possible", 130: "interrupted"}


@click.group()
def command() -> None:
    """List and show runs, and judge one again."""


@command.command("list")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def list_command(obj: dict[str, str | None], last: int | None, as_json: bool) -> int:
    """All runs, oldest first."""
    from hpcadmin.report.folders import list_runs
    entries = list_runs(_runs(obj))
    entries = entries[-last:] if last else entries
    if as_json:
        _print_json([_plain(e) for e in entries])
        return 0
    if not entries:
        click.echo(f"no run in {_runs(obj)}")
        return 0
    from hpcadmin.cli._table import print_table
    from hpcadmin.text import printable
    rows = [[printable(cell, limit=80) for cell in _row(e)] for e in entries]
    headers = ["run", "suite", "nodes", "state", "result", "started", "took"]
    print_table(rows, headers)
    return 0


@command.command("show")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def show_command(obj: dict[str, str | None], run_name: str | None, as_json: bool) -> int:
    """What a run was, how it ended, and where its files lie; the last one if none is named."""
    from hpcadmin.report.folders import find_run
    from hpcadmin.report.summary import summarise
    from hpcadmin.rundata import read_run
    run = read_run(find_run(_runs(obj), run_name))
    summary = summarise(run)
    if as_json:
        _print_json(_shown(run, summary))
        return 0
    from hpcadmin.text import printable
    for key, value in _lines(run, summary):
        click.echo(f"{key + ':':12} {printable(value, limit=1000)}")
    return 0


@command.command("judge")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def judge_command(obj: dict[str, str | None], run_name: str | None, as_json: bool) -> int:
    """Judge a run's measurements again by today's limits, the site's and the catalogue's; show what is another now.

    The run stays as it is. The exit status is that of the new verdicts.
    """
    from hpcadmin.catalogue import load_limits
    from hpcadmin.records import to_plain
    from hpcadmin.rejudge import changes, judge_again
    from hpcadmin.report.folders import find_run
    from hpcadmin.rundata import exit_status, read_run
    from hpcadmin.site import load_site
    run = read_run(find_run(_runs(obj), run_name))
    now = judge_again(run, load_limits(load_site(obj["site"])))
    other = changes(run.verdicts, now)
    if as_json:
        _print_json({"run": run.manifest.run_id, "verdicts": len(now), "changes": to_plain(other)})
        return exit_status(now)
    from hpcadmin.cli._table import print_table
    from hpcadmin.text import printable
    rows = [[printable(cell, limit=200) for cell in _change(change.before, change.now)] for change in other]
    if rows:
        headers = ["before", "now", "of", "value", "why"]
        print_table(rows, headers)
    click.echo(f"{run.manifest.run_id}: {len(now)} verdicts, {len(other)} of them others than in the run")
    return exit_status(now)


def _change(before: Verdict | None, now: Verdict | None) -> list[str]:
    from hpcadmin.report.summary import shown
    either = now or before
    assert either is not None  # noqa: S101
    value = shown(either.measurement) if either.measurement else either.check
    why = (now.reason or (now.limit.text() if now.limit else "")) if now else "no longer judged by itself"
    return [before.status.value if before else "-", now.status.value if now else "-", str(either.subject), value, why]


def _runs(obj: dict[str, str | None]) -> Path:
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir
    return runs_dir(load_site(obj["site"]))


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _result(status: int | None) -> str:
    return "-" if status is None else _RESULTS.get(status, f"exit status {status}")


def _row(entry: RunEntry) -> list[str]:
    from hpcadmin.hosts import fold
    from hpcadmin.report.times import duration, local_time
    m = entry.manifest
    if m is None:
        return [entry.run_id, "", "", "unreadable", entry.problem, "", ""]
    suite = f"{m.suite} (simulated)" if m.simulated else m.suite
    return [entry.run_id, suite, fold(m.nodes), m.state, _result(m.exit_status), local_time(m.started),
            duration(m.started, m.ended)]


def _plain(entry: RunEntry) -> dict[str, Any]:
    from hpcadmin.records import to_plain
    return {"run": entry.run_id, "path": str(entry.path), "problem": entry.problem,
            "manifest": to_plain(entry.manifest)}


def _shown(run: Run, summary: Summary) -> dict[str, Any]:
    from hpcadmin.records import to_plain
    return {"run": run.manifest.run_id, "path": str(run.path), "manifest": to_plain(run.manifest),
            "result": summary.word, "exit_status": summary.status, "text": summary.text,
            "counts": {k.value: n for k, n in summary.counts.items()}, "findings": to_plain(summary.findings),
            "notes": list(summary.notes), "problems": list(summary.problems),
            "files": sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file())}


def _lines(run: Run, summary: Summary) -> list[tuple[str, str]]:
    from hpcadmin.hosts import fold
    from hpcadmin.report.times import duration, local_time
    m = run.manifest
    lines = [("run", m.run_id), ("result", summary.text), ("state", m.state), ("suite", m.suite),
             ("cluster", m.cluster), ("nodes", fold(m.nodes)), ("started", local_time(m.started)),
             ("ended", f"{local_time(m.ended)} ({duration(m.started, m.ended)})" if m.ended else ""),
             ("by", " on ".join(p for p in (m.user, m.host) if p)), ("command", " ".join(m.command)),
             ("versions", ", ".join(p for p in (f"hpcadmin {m.version}" if m.version else "",
                                                f"Slurm {m.slurm_version}" if m.slurm_version else "") if p))]
    lines += [("note", note) for note in summary.notes]
    lines += [("finding", f.text) for f in summary.findings]
    lines += [("problem", text) for text in summary.problems]
    lines += [(f"job {job.number}", f"{job.kind} on {fold(job.nodes)}, {run.path}/jobs/{job.number}/")
              for job in (run.plan.jobs if run.plan else ())]
    return [(key, value) for key, value in [*lines, ("folder", str(run.path))] if value]

"""hpcadmin runs: which runs there are, and what one was."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.cli._runs_keep import COMMANDS
from hpcadmin.cli._runs_seal import seal_command, verify_command
from hpcadmin.cli._runs_trend import trend_command
from hpcadmin.cli._runs_vendor import vendor_command
from hpcadmin.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from hpcadmin.check import Verdict
    from hpcadmin.report.summary import Summary
    from hpcadmin.run_outputs import OutputRecord
    from hpcadmin.rundata import Run


@click.group()
def command() -> None:
    """List, show, compare, keep and seal runs, and judge one again."""


for _more in (seal_command, verify_command, vendor_command, trend_command, *COMMANDS):
    command.add_command(_more)


@command.command("list")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option("--suite", metavar="NAME", help="Only of this suite; * and ? stand for any.")
@click.option("--node", metavar="HOSTLIST", help="Only with one of these nodes.")
@click.option("--state", metavar="STATE", help="Only running, complete, interrupted, cancelled, failed or unreadable.")
@click.option("--since", metavar="TIME", help="Only begun since: 2026-07-01, 2026-07-01T08:00, or 12h, 30d ago.")
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def list_command(obj: dict[str, str | None], /, *, last: int | None, as_json: bool, **only: str | None) -> int:
    """All runs, oldest first."""
    from hpcadmin.cli._runs_list import listed
    return listed(obj, only, last, as_json=as_json)


@command.command("show")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def show_command(obj: dict[str, str | None], run_name: str | None, as_json: bool) -> int:
    """What a run was, how it ended, and where its files lie; the last one if none is named."""
    from hpcadmin.cli._acceptance import acceptance_line
    from hpcadmin.cli._runs_list import states_now
    from hpcadmin.report.folders import find_run
    from hpcadmin.report.summary import summarise
    from hpcadmin.rundata import read_run
    run = read_run(find_run(_runs(obj), run_name))
    now = states_now([(run.path, run.manifest)]).get(run.path.name, "")
    summary = summarise(run)
    whole = acceptance_line(run.path, _runs(obj))
    if as_json:
        _print_json({**_shown(run, summary, now), "acceptance": whole})
        return 0
    for key, value in _lines(run, summary, now, whole):
        click.echo(f"{key + ':':12} {printable(value, limit=1000)}")
    return 0


@command.command("outputs")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--test", default="", metavar="ID", help="Only of this test, and with what was printed.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def outputs_command(obj: dict[str, str | None], run_name: str | None, test: str, as_json: bool) -> int:
    """What a run's tests printed, each with its command, nodes, times, exit status and the tool's version."""
    from hpcadmin.records import to_plain
    from hpcadmin.report.folders import find_run
    from hpcadmin.run_outputs import outputs
    from hpcadmin.run_seal import damage
    from hpcadmin.rundata import read_run
    from hpcadmin.site import load_site
    run = read_run(find_run(_runs(obj), run_name))
    problems = damage(run)
    found = [(record, body if test else b"") for record, body in outputs(
        run, problems, test, checks_dir=load_site(obj["site"]).checks_dir)]
    if as_json:
        _print_json({"outputs": [{**to_plain(record), "seconds": record.seconds, **(
            {"text": body.decode("utf-8", "replace")} if test else {})} for record, body in found],
            "problems": problems})
        return 3 if problems else 0
    from hpcadmin.cli._table import print_table
    rows = [[printable(cell, limit=80) for cell in _output(record)] for record, _ in found]
    if rows:
        print_table(rows, ["test", "check", "step", "on", "status", "took", "bytes", "where"])
    for record, body in found if test else ():
        for line in (f"{record.role} on {record.node}: {' '.join(record.argv)}", *record.versions):
            click.echo(f"# {printable(line, limit=2000)}")
        click.echo("".join(c if c == "\n" or c.isprintable() else "?" for c in body.decode("utf-8", "replace")))
    for problem in problems:
        click.echo(f"problem: {printable(problem, limit=500)}", err=True)
    return 3 if problems else 0


def _output(record: OutputRecord) -> list[str]:
    status = "-" if record.status is None else str(record.status)
    took = "?" if record.seconds is None else f"{record.seconds:.2f} s"
    return [record.test, record.check, f"{record.step} {record.role}", record.node,
            " ".join([status, *record.flags]), took, str(record.size), record.file]


@command.command("cancel")
@click.argument("run_name", metavar="RUN")
@click.pass_obj
def cancel_command(obj: dict[str, str | None], run_name: str) -> int:
    """Cancel a run: its jobs, and the process that watches it. What was measured is kept and judged.

    Exit status: 0 when the run is cancelled.
    """
    from hpcadmin.report.folders import find_run
    from hpcadmin.run import cancel
    from hpcadmin.run_progress import Progress
    from hpcadmin.site import load_site
    from hpcadmin.slurm.choose import choose
    outcome = cancel(find_run(_runs(obj), run_name), choose(load_site(obj["site"])), Progress())
    click.echo(printable(outcome.text))
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
    rows = [[printable(cell, limit=200) for cell in _change(change.before, change.now)] for change in other]
    if rows:
        headers = ["before", "now", "of", "value", "why"]
        print_table(rows, headers)
    click.echo(printable(f"{run.manifest.run_id}: {len(now)} verdicts, {len(other)} of them others than in the run"))
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


def _shown(run: Run, summary: Summary, now: str) -> dict[str, Any]:
    from hpcadmin.records import to_plain
    return {"run": run.manifest.run_id, "path": str(run.path), "state": now or run.manifest.state,
            "manifest": to_plain(run.manifest), "result": summary.word,
            "exit_status": summary.status, "text": summary.text,
            "counts": {k.value: n for k, n in summary.counts.items()}, "findings": to_plain(summary.findings),
            "notes": list(summary.notes), "problems": list(summary.problems),
            "files": sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file())}


def _kept_lines(folder: Path) -> list[tuple[str, str]]:
    from hpcadmin.errors import StoreError
    from hpcadmin.seal import SIGNATURE, is_sealed
    from hpcadmin.store_marks import read_marks
    sealed = f"yes{', with a signature' if (folder / SIGNATURE).exists() else ''}; hpcadmin runs verify checks it"
    try:
        marks = read_marks(folder)
    except StoreError as exc:
        return [("problem", str(exc))]
    return [("tags", ", ".join(marks.tags)), ("baseline", f"since {marks.baseline}" if marks.baseline else ""),
            ("sealed", sealed if is_sealed(folder) else "")]


def _lines(run: Run, summary: Summary, now: str = "", whole: str = "") -> list[tuple[str, str]]:
    from hpcadmin.cli._plan_text import environment_lines
    from hpcadmin.hosts import fold
    from hpcadmin.report.times import duration, local_time
    m = run.manifest
    lines = [("run", m.run_id), ("result", summary.text), ("state", now or m.state), ("suite", m.suite),
             ("cluster", m.cluster), ("nodes", fold(m.nodes)), ("started", local_time(m.started)),
             ("ended", f"{local_time(m.ended)} ({duration(m.started, m.ended)})" if m.ended else ""),
             ("by", " on ".join(p for p in (m.user, m.host) if p)), ("command", " ".join(m.command)),
             ("versions", ", ".join(p for p in (f"hpcadmin {m.version}" if m.version else "",
                                                f"Slurm {m.slurm_version}" if m.slurm_version else "") if p))]
    lines += _kept_lines(run.path)
    lines += [("repeats", f"what failed in {m.retest_of}" if m.retest_of else ""),
              ("acceptance", f"{whole} (hpcadmin report --run {m.run_id})" if whole else "")]
    if m.state in ("interrupted", "cancelled", "failed") or now.startswith("interrupted"):
        lines += [("resume", f"hpcadmin validate --resume {m.run_id}")]
    lines += [("note", note) for note in summary.notes]
    lines += [("around", line) for line in (environment_lines(run.plan.environment) if run.plan else ())]
    lines += [("finding", f.text) for f in summary.findings]
    lines += [("problem", text) for text in summary.problems]
    lines += [(f"job {job.number}", f"{job.kind} on {fold(job.nodes)}, {run.path}/jobs/{job.number}/")
              for job in (run.plan.jobs if run.plan else ())]
    return [(key, value) for key, value in [*lines, ("folder", str(run.path))] if value]

"""hpcadmin runs list: from the index over the runs, so that a thousand of them are no wait."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.cli._runs_keep import indexed, runs_folder

if TYPE_CHECKING:
    from hpcadmin.rundata import Manifest
    from hpcadmin.store import Entry, Wanted

RESULTS = {0: "passed", 1: "failed", 3: "incomplete", 4: "not possible", 130: "interrupted"}


def listed(obj: dict[str, str | None], only: Mapping[str, str | None], last: int | None, *, as_json: bool) -> int:
    wanted = wanted_of(only)
    entries: list[Entry] = indexed(obj, lambda index: index.find(wanted))
    now = states_now((e.path, e.manifest) for e in entries if e.state == "running")
    state = only.get("state")
    if state:                       # as it is now: a run that was left says that it is running
        entries = [e for e in entries if now.get(e.name, e.state).startswith(state)]
    entries = entries[-last:] if last else entries
    if as_json:
        sys.stdout.write(json.dumps([_plain(e, now) for e in entries], indent=1) + "\n")
    elif not entries:
        click.echo(f"no {'such ' if any(only.values()) else ''}run in {runs_folder(obj)}")
    else:
        _print(entries, now)
    return 0


def _print(entries: Sequence[Entry], now: Mapping[str, str]) -> None:
    from hpcadmin.cli._table import fits, print_table
    from hpcadmin.text import printable
    headers = ["run", "suite", "nodes", "state", "result", "started", "took"]
    rows = [_row(e, now.get(e.name, "")) for e in entries]
    repeats, tags = [_retest_of(e) for e in entries], [_tags(e) for e in entries]
    for head, column in (("repeats", repeats), ("tags", tags)):
        if any(column):
            headers.append(head)
            rows = [[*row, cell] for row, cell in zip(rows, column, strict=True)]
    clean = [[printable(cell, limit=80) for cell in row] for row in rows]
    if not fits(clean, headers):
        clean, headers = _narrow(clean, headers)
    print_table(clean, headers)


def _narrow(rows: list[list[str]], headers: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """No suite that is in each name, state and result as one, the last columns as one."""
    named = all(row[0].endswith(f"-{row[1]}") or not row[1] for row in rows)
    notes = headers[7:]
    made = []
    for name, suite, nodes, state, outcome, started, took, *rest in rows:
        now = outcome if state == "complete" and outcome != "-" else state
        said = [f"repeats {cell}" if head == "repeats" else cell
                for head, cell in zip(notes, rest, strict=True) if cell]
        made.append([name, suite, nodes, now, started, took, ", ".join(said)])
    drop = ([1] if named else []) + ([] if notes else [6])
    heads = ["run", "suite", "nodes", "result", "started", "took", "notes"]
    made, (heads,) = ([[c for i, c in enumerate(r) if i not in drop] for r in rs] for rs in (made, [heads]))
    return made, heads


def wanted_of(only: Mapping[str, str | None], *, state: str = "") -> Wanted:
    from hpcadmin.hosts import expand
    from hpcadmin.store import Wanted
    since, node = only.get("since"), only.get("node")
    return Wanted(state=state, suite=only.get("suite") or "", nodes=tuple(expand(node)) if node else (),
                  tag=only.get("tag") or "", since=_since(since) if since else None)


def _since(text: str) -> float:
    from hpcadmin.errors import UsageError
    from hpcadmin.run_nodes import seconds
    from hpcadmin.store import epoch
    found = epoch(text)
    if found is not None:
        return found
    try:
        return time.time() - seconds(text)
    except UsageError as exc:
        raise UsageError(f"--since: {exc.what}", hint="2026-07-01, 2026-07-01T08:00, 12h, 30d") from exc


def states_now(runs: Iterable[tuple[Path, Manifest | None]]) -> dict[str, str]:
    """What becomes of those that say that they are running; Slurm is asked for their jobs where that can be done."""
    running = [(path, manifest) for path, manifest in runs if manifest is not None and manifest.state == "running"]
    if not running:
        return {}
    from hpcadmin.run import states
    from hpcadmin.slurm.command_line import CommandLine
    return states(running, CommandLine(timeout_s=5.0))


def _retest_of(entry: Entry) -> str:
    """The run whose failures it measured again. Of most nothing is taken apart."""
    manifest = entry.manifest if not entry.problem and '"retest_of": ""' not in entry.manifest_text else None
    return manifest.retest_of if manifest else ""


def _tags(entry: Entry) -> str:
    return ", ".join([*(["baseline"] if entry.baseline else []), *entry.tags])


def result(status: int | None) -> str:
    return "-" if status is None else RESULTS.get(status, f"exit status {status}")


def _row(entry: Entry, now: str) -> list[str]:
    from hpcadmin.report.times import duration, local_time
    if entry.problem:
        return [entry.name, "", "", f"unreadable: {entry.problem.removeprefix(f'{entry.path}/')}", "-", "", ""]
    suite = f"{entry.suite} (simulated)" if entry.simulated else entry.suite
    return [entry.name, suite, entry.nodes, now or entry.state, result(entry.exit_status), local_time(entry.started),
            duration(entry.started, entry.ended)]


def _plain(entry: Entry, now: Mapping[str, str]) -> dict[str, Any]:
    from hpcadmin.records import to_plain
    return {"run": entry.name, "path": str(entry.path), "state": now.get(entry.name, entry.state),
            "problem": entry.problem, "tags": list(entry.tags), "baseline": entry.baseline,
            "manifest": to_plain(entry.manifest)}

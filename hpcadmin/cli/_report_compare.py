"""hpcadmin report --compare: a run against an earlier one, or against the baseline of its suite."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hpcadmin.history_values import Values
    from hpcadmin.rundata import Run
    from hpcadmin.store import Index

BASELINE = "baseline"
MOST_PAST = 10


def compare_command(obj: dict[str, str | None], folder: Path, other: str, *, everything: bool, as_json: bool) -> int:
    """The exit status: 0 nothing got worse, 1 something did, 3 it cannot be told."""
    from hpcadmin.cli._history_text import comparison_json, say_comparison
    from hpcadmin.cli._runs_keep import run_of
    from hpcadmin.errors import UsageError
    from hpcadmin.history_runs import compare_runs
    from hpcadmin.rundata import read_run
    new = read_run(folder)
    old_folder = _baseline(obj, new) if other == BASELINE else run_of(obj, other)
    if old_folder.resolve() == folder.resolve():
        raise UsageError(f"run {folder.name} would be compared with itself")
    old = read_run(old_folder)
    found = compare_runs(old, new, _past(obj, old, new))
    if as_json:
        sys.stdout.write(json.dumps(comparison_json(found), indent=1) + "\n")
    else:
        say_comparison(found, everything=everything)
    return found.status


def _baseline(obj: dict[str, str | None], run: Run) -> Path:
    from hpcadmin.cli._runs_keep import indexed, plain_suite
    from hpcadmin.errors import UsageError
    from hpcadmin.store import Wanted
    m = run.manifest
    wanted = Wanted(suite=plain_suite(m.suite), cluster=m.cluster, baseline=True)
    found = indexed(obj, lambda index: index.find(wanted))
    if not found:
        raise UsageError(f"there is no baseline of suite {m.suite}{f' on {m.cluster}' if m.cluster else ''}",
                         hint="hpcadmin runs baseline RUN makes a run one")
    path: Path = max(found, key=lambda entry: entry.baseline).path
    return path


def _past(obj: dict[str, str | None], old: Run, new: Run) -> list[Values]:
    """Complete runs of the same suite and cluster before the new one: they tell what noise is."""
    from hpcadmin.cli._runs_keep import indexed, plain_suite
    from hpcadmin.history_store import moments
    from hpcadmin.store import Wanted, epoch
    m = new.manifest
    wanted = Wanted(suite=plain_suite(m.suite), cluster=m.cluster, state="complete")
    before = epoch(m.started)
    names = (old.path.resolve(), new.path.resolve())

    def earlier(index: Index) -> list[Values]:
        found = [e for e in index.find(wanted) if e.path.resolve() not in names and before is not None
                 and (epoch(e.started) or before) < before and e.simulated == m.simulated]
        return [moment.values for moment in moments(index, found[-MOST_PAST:], "", [])]
    values: list[Values] = indexed(obj, earlier)
    return values

"""Which runs may go, and how they go."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.run_lock import watcher
from hpcadmin.seal import SIGNATURE
from hpcadmin.store import Entry, epoch
from hpcadmin.store_marks import SWEEP_TAG, read_marks

_GONE = ".pruned-"
DAY_S = 86400.0


@dataclass(frozen=True)
class Rules:
    """keep_last: of each suite and cluster, the latest runs. keep_days: all that are younger."""

    keep_last: int = 10
    keep_days: float = 90.0


@dataclass(frozen=True)
class Choice:
    entry: Entry
    why: str                # it is kept; "": it may go

    @property
    def goes(self) -> bool:
        return not self.why


def choose(entries: Sequence[Entry], rules: Rules, now: float) -> list[Choice]:
    """What becomes of each run. entries: in the order of time. What is not known to be over and unused stays."""
    newer: Counter[tuple[str, str]] = Counter()
    found: list[Choice] = []
    kept_for: set[str] = set()          # runs that one which is kept repeats in part
    for entry in reversed(entries):
        kind = (entry.cluster, entry.suite)
        why = _why(entry, rules, now, newer[kind])
        if not why and entry.name in kept_for:
            why = "a run that is kept repeats what failed in it"
        manifest = entry.manifest if why else None
        if manifest is not None and manifest.retest_of:
            kept_for.add(manifest.retest_of)
        newer[kind] += 1
        found.append(Choice(entry, why))
    return _with_retests(found[::-1])


def _with_retests(choices: Sequence[Choice]) -> list[Choice]:
    """A run that is kept is so with the runs that measured again what had failed in it: they are one acceptance."""
    kept = {c.entry.name for c in choices if not c.goes}
    found = []
    for choice in choices:
        manifest = choice.entry.manifest if choice.goes else None
        if manifest is not None and manifest.retest_of in kept:
            kept.add(choice.entry.name)
            choice = Choice(choice.entry, "it repeats what failed in a run that is kept")  # noqa: PLW2901
        found.append(choice)
    return found


def _why(entry: Entry, rules: Rules, now: float, newer: int) -> str:
    started = epoch(entry.started)
    if entry.problem:
        return "it cannot be read"
    if entry.state == "running":
        return "it is not over"
    if entry.baseline:
        return "it is a baseline"
    if named := by_people(entry.tags):
        return f"tagged {', '.join(named)}"
    if newer < rules.keep_last:
        return f"one of the last {rules.keep_last} of its suite"
    if started is None or now - started < rules.keep_days * DAY_S:
        return f"younger than {rules.keep_days:g} days" if started is not None else "it has no time"
    return ""


def by_people(tags: Iterable[str]) -> list[str]:
    """The tags that keep a run. A sweep tags its own, one every night."""
    return [tag for tag in tags if tag != SWEEP_TAG]


def still_kept(path: Path) -> str:
    """What the folder itself says against it, just before it goes: the index may be older."""
    if path.is_symlink():
        return "it is a link"
    if (path / SIGNATURE).exists():
        return "it is signed"
    if watcher(path) is not None:
        return "somebody watches it"
    try:
        marks = read_marks(path)
    except StoreError as exc:
        return str(exc)
    named = by_people(marks.tags)
    return "it is a baseline" if marks.baseline else f"tagged {', '.join(named)}" if named else ""


def remove(path: Path) -> None:
    """Remove a run folder: first under another name, so that what is half removed is no run any more."""
    gone = path.with_name(f"{_GONE}{path.name}")
    try:
        path.rename(gone)
        shutil.rmtree(gone)
    except OSError as exc:
        raise StoreError(f"cannot be removed: {exc.strerror}", where=str(path)) from exc


def finish_removals(runs: Path) -> None:
    """What an earlier prune was killed in."""
    for path in runs.glob(f"{_GONE}*") if runs.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)

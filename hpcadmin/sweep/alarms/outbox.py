"""What a channel has yet to tell. The ledger is the outbox: what is in it and beyond a channel's mark is not told yet.
So nothing is lost, wherever a sweep is killed; what is sent and not yet marked is sent again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from hpcadmin.sweep.alarms.model import BEGINS, CHANGES, ENDS
from hpcadmin.sweep.model import Change, Entry, Problem


@dataclass(frozen=True)
class Mark:
    """How far a channel has told: so many problem entries of the ledger, and which the last of them was."""

    count: int = 0
    run: str = ""
    key: str = ""
    what: str = ""


@dataclass(frozen=True)
class Kept:
    """What is kept of a channel between two runs. mark None: it is new. shown: keys that a board shows, or may."""

    mark: Mark | None = None
    last_ok: float = 0.0
    failing_since: float = 0.0
    error: str = ""
    digest: str = ""                    # the day of the last one
    trouble: Mapping[str, str] = field(default_factory=dict)       # other channels that it said do not work -> why
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """What one sweep found new; and the mark when it is told."""

    run: str
    time: float
    changes: tuple[Change, ...]
    mark: Mark


def mark_of(entries: Sequence[Entry]) -> Mark:
    """Everything is told."""
    told = [entry for entry in entries if entry.kind == "problem"]
    return Mark(len(told), told[-1].run, told[-1].key, told[-1].result) if told else Mark()


def untold(entries: Sequence[Entry], mark: Mark) -> list[Batch] | None:
    """By sweep, the oldest first. None: the ledger is not the one that the mark was made with."""
    told = [entry for entry in entries if entry.kind == "problem"]
    if mark.count:
        if mark.count > len(told):
            return None
        last = told[mark.count - 1]
        if (last.run, last.key, last.result) != (mark.run, mark.key, mark.what):
            return None
    batches: list[Batch] = []
    since: dict[str, float] = {}
    for number, entry in enumerate(told, 1):
        change = _change(entry, since)
        if number <= mark.count:
            continue
        here = Mark(number, entry.run, entry.key, entry.result)
        if batches and batches[-1].run == entry.run:
            batches[-1] = replace(batches[-1], changes=(*batches[-1].changes, change), mark=here)
        else:
            batches.append(Batch(entry.run, entry.time, (change,), here))
    return batches


def _change(entry: Entry, since: dict[str, float]) -> Change:
    """The ledger does not say with the end of a problem when it began."""
    began = since.get(entry.key, entry.time)
    if entry.result == ENDS:
        since.pop(entry.key, None)
    else:
        since[entry.key] = began
    return Change(entry.result, Problem(entry.key, entry.signature, entry.text, entry.node, entry.checks, began))


def wanted(changes: Iterable[Change], what: Sequence[str], only: Sequence[str]) -> tuple[Change, ...]:
    """What a channel is for. only: patterns of keys, after ! of those that are not wanted; the first that fits."""
    return tuple(change for change in changes if change.what in (*what, "lasts") and _fits(change.problem.key, only))


def _fits(key: str, only: Sequence[str]) -> bool:
    for pattern in only:
        if fnmatchcase(key, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return not only or all(pattern.startswith("!") for pattern in only)


def trouble_changes(failing: Mapping[str, str], told: Mapping[str, str], now: float) -> tuple[Change, ...]:
    """What one channel says of others that do not work."""
    found = []
    for name in sorted(failing.keys() - told.keys()):
        found.append(Change(BEGINS, Problem(f"alarm/{name}", "fails", f"the channel {name} does not work: "
                                            f"{failing[name]}", since=now)))
    for name in sorted(told.keys() - failing.keys()):
        found.append(Change(ENDS, Problem(f"alarm/{name}", "", f"the channel {name} did not work: {told[name]}")))
    return tuple(found)


ALL = (BEGINS, CHANGES, ENDS)

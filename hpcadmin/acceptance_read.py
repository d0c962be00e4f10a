"""Finds the runs that belong to one acceptance, and reads them as one.

Whichever of them is named, it is the whole: a statement that leaves out a later run would be about a state that is
gone. What cannot be followed (the first run is not there, runs that repeat each other in a circle) is a problem
of the run that was named, which is then read by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcadmin.acceptance import merge
from hpcadmin.errors import HpcadminError
from hpcadmin.files import read_whole
from hpcadmin.report.folders import list_runs
from hpcadmin.report.times import parse_time
from hpcadmin.report.whole import read_for_report
from hpcadmin.rundata import Run
from hpcadmin.seal import file_digest, is_sealed, read_seal
from hpcadmin.store import with_index

_READ = ("manifest.json", "plan.json", "verdicts.jsonl", "measurements.jsonl", "limits.json", "inventory.json")
_MAX_REQUEST = 4 * 1024 ** 2
_NONE = '"retest_of": ""'


@dataclass(frozen=True)
class Member:
    """A run folder, by what its manifest says. unread: why that cannot be read."""

    name: str
    path: Path
    retest_of: str
    started: str
    unread: str = ""


@dataclass(frozen=True)
class Family:
    """members: in the order of time, the first run first; one alone where there are no re-tests. problems: why it may
    not be all. lost: the run that was named repeats one that cannot be told."""

    members: tuple[Member, ...]
    problems: tuple[str, ...] = ()
    lost: bool = False


def read_acceptance(folder: Path, runs: Path | None = None, *, values: bool = True) -> Run:
    """The run in this folder with all that belongs to its acceptance. runs: the folder of all runs, which has an index.

    values: as for read_for_report."""
    family = family_of(folder, members_in(folder.parent, indexed=runs is not None and folder.parent == runs))
    run = read_for_report(family.members[0].path, values=values)
    if len(family.members) == 1:
        return replace(run, problems=(*run.problems, *family.problems)) if family.problems else run
    found, problems = [run], list(family.problems)
    for member in family.members[1:]:
        try:
            found.append(read_for_report(member.path, values=True))
        except HpcadminError as exc:
            problems.append(f"{member.name}: this re-test cannot be read: {exc}")
    found = [replace(run, problems=(*run.problems, *altered(run.path))) for run in found]
    return merge(found, problems, {run.path.name: _digest(run.path) for run in found})


def altered(folder: Path) -> list[str]:
    """Of the files that a merged run is made of, those that are not as they were sealed; all of one that is not sealed
    are taken as they are."""
    try:
        sealed = read_seal(folder).files if is_sealed(folder) else {}
        return [f"{name} is not as it was sealed" for name in _READ
                if name in sealed and file_digest(folder / name) != sealed[name]]
    except HpcadminError as exc:
        return [str(exc)]


def family_of(folder: Path, known: Sequence[Member]) -> Family:
    """The acceptance that a run belongs to, of those that are known."""
    by_name = {m.name: m for m in known}
    here = by_name.get(folder.name) or Member(folder.name, folder, "", "")
    first, seen = here, [here.name]
    while first.retest_of:
        above = by_name.get(first.retest_of)
        if above is None or above.unread:
            why = f"cannot be read: {above.unread}" if above else f"is not in {folder.parent}"
            return Family((here,), (f"{first.name} measures again what failed in {first.retest_of}, which {why}: what "
                                    "stands cannot be told",), lost=True)
        if above.name in seen:
            circle = ", ".join([*seen[seen.index(above.name):], above.name])
            return Family((here,), (f"these runs say that each measures the next one again: {circle}",), lost=True)
        seen.append(above.name)
        first = above
    below: dict[str, list[Member]] = {}
    for member in known:
        if member.retest_of:
            below.setdefault(member.retest_of, []).append(member)
    found, todo = [first], [first]
    while todo:
        more = [m for m in below.get(todo.pop().name, ()) if m not in found]
        found += more
        todo += more
    problems = [f"{m.name}: this re-test was begun before {m.retest_of}, which it repeats" for m in found[1:]
                if _begun(m) < _begun(by_name.get(m.retest_of, first))]
    problems += [f"{m.name}: when it was begun is not known ({m.started!r})" for m in found[1:] if not _begun(m)]
    return Family((first, *sorted(found[1:], key=lambda m: (_begun(m), m.name))), tuple(problems))


def _begun(member: Member) -> float:
    when = parse_time(member.started)
    return when.timestamp() if when is not None and when.tzinfo is not None else 0.0


def members_in(runs: Path, *, indexed: bool) -> list[Member]:
    """All runs of a folder. What one that cannot be read repeats, its request tells: it is not left out silently."""
    if indexed:
        found = [_member(e.name, e.path, e.problem, e.manifest_text) for e in with_index(runs, lambda i: i.find())]
    else:
        found = [Member(e.path.name, e.path, e.manifest.retest_of if e.manifest else "",
                        e.manifest.started if e.manifest else "", e.problem) for e in list_runs(runs)]
    return [replace(m, retest_of=_asked_for(m.path)) if m.unread else m for m in found]


def _asked_for(folder: Path) -> str:
    try:
        plain = json.loads(read_whole(folder / "request.json", limit=_MAX_REQUEST))
    except (HpcadminError, ValueError, RecursionError):
        return ""
    of = plain.get("retest_of", "") if isinstance(plain, dict) else ""
    return of if isinstance(of, str) else ""


def _member(name: str, path: Path, problem: str, text: str) -> Member:
    """Of most runs nothing is asked but that they are no re-tests: their manifests are not taken apart."""
    if problem or _NONE in text:
        return Member(name, path, "", "", problem)
    plain = json.loads(text)
    of, started = plain.get("retest_of", ""), plain.get("started", "")
    return Member(name, path, of if isinstance(of, str) else "", started if isinstance(started, str) else "")


def _digest(folder: Path) -> str:
    try:
        return read_seal(folder).digest
    except HpcadminError:
        return ""

"""Brings together what the account needs: Slurm's events, the rules of the site, and our own runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from hpcadmin import records
from hpcadmin.availability.account import Account, Availability, account
from hpcadmin.availability.evidence import Seen, seen
from hpcadmin.availability.period import Period
from hpcadmin.availability.rules import Rules, all_nodes, claims_of
from hpcadmin.availability.timeline import Kind, Segment, timeline
from hpcadmin.errors import HpcadminError, StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.hosts import fold
from hpcadmin.site_availability import DOWN, UP
from hpcadmin.slurm.events import KIND, Accounting, Answers, read
from hpcadmin.store import Entry, Index, Wanted, epoch
from hpcadmin.text import plural, printable

_MOST_EVENTS = 256 * 1024 * 1024


@dataclass(frozen=True)
class Gathered:
    found: Availability
    seen: Seen = field(default_factory=Seen)
    answers: Answers | None = None


def load_answers(path: Path) -> Answers:
    """Events that were kept in a file."""
    text = read_bounded(path, limit=_MOST_EVENTS).decode("utf-8", "replace")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise StoreError("is not JSON", where=str(path)) from exc
    if not isinstance(plain, dict) or plain.get("kind") != KIND:
        raise StoreError(f"holds no events of Slurm (kind {KIND!r})", where=str(path))
    found: Answers = records.from_plain(Answers, plain, where=str(path))
    return found


def gather(period: Period, rules: Rules, answers: Answers, index: Index, nodes: Sequence[str] = (), *,
           read_answers: Callable[[Answers], Accounting] = read) -> Gathered:
    """nodes: only these. answers.error: why there are no events; then our runs tell all that is known."""
    problems: list[str] = []
    slurm = Accounting(asked=answers.asked)
    if answers.error:
        problems.append(f"no events of Slurm: {answers.error}")
    else:
        try:
            slurm = read_answers(answers)
            problems += slurm.problems
            if answers.start > period.start or answers.end < period.end:
                problems.append("the events that were kept are not of the whole period: they are left out")
                slurm = Accounting(asked=answers.asked)
        except HpcadminError as exc:
            problems.append(str(exc))
    now = answers.asked
    entries = _entries(index, period, slurm.cluster)
    there = all_nodes(slurm, period.start, period.end, now) or _of_runs(entries)
    names = _chosen(there, rules, nodes, problems)
    claims = claims_of(slurm, rules, now, names)
    segments = {node: timeline(period.start, period.end, of) for node, of in claims.items()}
    known = seen(entries, _unknown(segments), now)
    for node, of in known.claims.items():
        segments[node] = timeline(period.start, period.end, [*claims[node], *of])
    found = account(period, segments, rules.target, slurm.cluster or _cluster(entries),
                    notes=_notes(period, slurm, rules, nodes), caveats=_caveats(period, slurm),
                    problems=(*problems, *known.problems))
    return Gathered(found, known, answers)


def _entries(index: Index, period: Period, cluster: str) -> list[Entry]:
    """Runs that were in the period, also begun before it."""
    found = []
    for e in index.find(Wanted()):
        begin, end = epoch(e.started), epoch(e.ended)
        if begin is not None and begin < period.end and (end is None or end > period.start) and (
                not cluster or not e.cluster or e.cluster == cluster):
            found.append(e)
    return found


def _of_runs(entries: Iterable[Entry]) -> list[str]:
    names: set[str] = set()
    for e in entries:
        manifest = e.manifest if not e.simulated else None
        names.update(manifest.nodes if manifest else ())
    return sorted(names)


def _cluster(entries: Sequence[Entry]) -> str:
    names = {e.cluster for e in entries if e.cluster}
    return next(iter(names)) if len(names) == 1 else ""


def _chosen(there: Sequence[str], rules: Rules, nodes: Sequence[str], problems: Sequence[str]) -> list[str]:
    known = set(there) | rules.owed
    strangers = [n for n in nodes if n not in known]
    if strangers:
        raise UsageError(f"{fold(strangers)}: nothing tells of such a node in the period",
                         hint="[availability] nodes in site.toml names nodes that are owed all the same")
    if not known:
        why = f" ({problems[0]})" if problems else ""
        raise UsageError(f"nothing tells of any node in the period: neither events of Slurm nor runs{why}",
                         hint="[availability] nodes in site.toml names those of the contract")
    return sorted(nodes or known)


def _unknown(segments: Mapping[str, Sequence[Segment]]) -> Mapping[str, Sequence[tuple[int, int]]]:
    spans = {node: [(s.start, s.end) for s in of if s.kind is Kind.UNKNOWN] for node, of in segments.items()}
    return {node: found for node, found in spans.items() if found}


def _notes(period: Period, slurm: Accounting, rules: Rules, nodes: Sequence[str]) -> list[str]:
    notes = []
    if nodes:
        notes.append(f"only of {fold(nodes)}")
    if rules.owed:
        notes.append(f"{plural(len(rules.owed), 'node')} of the contract are owed all the time: not in slurm.conf is "
                     "not available")
    first = min((m.start for m in slurm.members), default=None)
    if first is not None and first > period.start:
        notes.append(f"slurmdbd's first record is of {period.time(first)}: before it nothing is known")
    if slurm.known_until is not None:
        notes.append(f"slurmctld is not connected to slurmdbd: after {period.time(slurm.known_until)}, the last that "
                     "it told, nothing is known")
    planned = [f"reasons {', '.join(rules.planned)}"] if rules.planned else []
    planned += ["maintenance reservations"] if rules.reservations else []
    notes.append(f"planned maintenance: {' and '.join(planned) or 'none'}")
    if rules.drain == UP:
        notes.append("drained nodes count as available, as the site's file says")
    if rules.controller != DOWN:
        notes.append(f"time without slurmctld counts as {'not known' if rules.controller != UP else 'its nodes say'}, "
                     "as the site's file says")
    if rules.power_saving == DOWN:
        notes.append("nodes that power saving switched off count as not available, as the site's file says")
    return notes


def _caveats(period: Period, slurm: Accounting) -> list[str]:
    found = []
    if slurm.members and not slurm.tracked:
        found.append("outages of slurmctld are not in this account: slurmdbd does not record them "
                     "(TrackSlurmctldDown=no in slurmdbd.conf)")
    if slurm.purge:
        since = period.time(slurm.known_since or 0)
        found.append(f"slurmdbd purges events (PurgeEventAfter={printable(slurm.purge, limit=40)}): outages that began "
                     f"before {since} and are over may be missing in this account, and before that nothing is known")
    return found


def months_of(found: Availability) -> list[tuple[str, Account]]:
    """All nodes together, in each month of the period."""
    p = found.period
    bounds, names = [p.start], []
    here = datetime.fromtimestamp(p.start, timezone.utc).astimezone(p.zone)
    while bounds[-1] < p.end:
        names.append(f"{here.year:04d}-{here.month:02d}")
        after = here.year * 12 + here.month
        naive = datetime(after // 12, after % 12 + 1, 1)
        here = naive.replace(tzinfo=p.zone) if p.zone is not None else naive.astimezone()
        bounds.append(min(p.end, int(here.timestamp())))
    totals = [dict.fromkeys(Kind, 0) for _ in names]
    counts, longest = [0] * len(names), [0] * len(names)
    for node in found.nodes:
        place = 0
        for s in node.segments:
            while bounds[place + 1] <= s.start:
                place += 1
            at = place
            while at < len(names) and bounds[at] < s.end:
                totals[at][s.kind] += min(s.end, bounds[at + 1]) - max(s.start, bounds[at])
                at += 1
    for i in found.incidents:
        at = next(n for n in range(len(names)) if i.start < bounds[n + 1])
        counts[at] += 1
        longest[at] = max(longest[at], i.seconds)
    return [(name, replace(found.whole, name=name, seconds=totals[n], incidents=counts[n], longest=longest[n]))
            for n, name in enumerate(names)]

"""One sweep from its lock to its last entry: see, reconcile, decide, do, tell."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, EXIT_UNREACHABLE, HpcadminError, SlurmError
from hpcadmin.hosts import fold as fold_nodes
from hpcadmin.site import Site
from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.state import state_dir
from hpcadmin.sweep.act import Book, Done, Door, Hand
from hpcadmin.sweep.decide import Plan, decide
from hpcadmin.sweep.guard import open_guards
from hpcadmin.sweep.ledger import History, fold, worth_keeping
from hpcadmin.sweep.ledger_file import LedgerFile, SweepLock, read_ledger
from hpcadmin.sweep.model import PENDING, Act, Change, Decision, Entry, Look, Problem, Result, Seen, night_of
from hpcadmin.sweep.problems import Watched, changes, problems, slurm_problem
from hpcadmin.sweep.reconcile import changed_by_others, pending_outcomes, strange
from hpcadmin.sweep.sources import Looks, Source, gather
from hpcadmin.sweep.states import in_service
from hpcadmin.text import plural

CLOCK_S = 600.0             # that the clock may have been put back without a word
First = Callable[["Diary", str, int, float], Source]
Watch = Callable[[Sequence[Look], float], Watched]
_ORDER = {Act.RESUME: 0, Act.UNCOMMENT: 1, Act.DRAIN: 2, Act.COMMENT: 3}


class Nodes(Protocol):
    """To Slurm, for those that only look."""

    def all_nodes(self) -> tuple[NodeRecord, ...]: ...


@dataclass(frozen=True)
class Report:
    """What a sweep saw, decided and did. done: by node, of those that were to be touched."""

    run: str
    night: int
    dry_run: bool
    exit_status: int
    plan: Plan | None = None            # None: Slurm did not answer
    done: dict[str, Done] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    problems: dict[str, Problem] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str = ""                     # of Slurm's
    looks: int = 0
    nodes: tuple[NodeRecord, ...] = ()
    time: float = 0.0                   # when it began
    watched: Watched = field(default_factory=Watched)


def sweep_dir(site: Site) -> Path:
    return state_dir(site) / "sweep"


def run_id(now: float) -> str:
    return f"s{datetime.fromtimestamp(now):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Diary:
    """The ledger as it grows: what is written is known at once."""

    def __init__(self, entries: Sequence[Entry], book: Book | None) -> None:
        self.entries = list(entries)
        self._book = book
        self._history, self._folded = History(), 0

    def write(self, *entries: Entry) -> None:
        """In a dry run nothing is written, and known all the same."""
        if self._book is not None:
            self._book.write(*entries)
        self.entries.extend(entries)

    def history(self) -> History:
        """As it is now; it goes on with what is written: ten years of nights are folded once."""
        new, self._folded = self.entries[self._folded:], len(self.entries)
        return fold(new, self._history)


@contextlib.contextmanager
def opened(folder: Path, *, dry_run: bool) -> Iterator[tuple[Diary, str]]:
    """The ledger, locked unless nothing is written; and who held the lock and was killed."""
    if dry_run:
        yield Diary(read_ledger(folder), None), ""
        return
    lock = SweepLock(folder)
    try:
        book = LedgerFile(folder)
        try:
            yield Diary(read_ledger(folder), book), lock.stale
        finally:
            book.close()
    finally:
        lock.release()


def sweep(folder: Path, policy: SweepSite, door: Door, sources: Sequence[Source], *, dry_run: bool = False,
          clock: Callable[[], float] = time.time, first: First | None = None,
          watch: Watch | None = None) -> Report:
    """StoreError when the ledger cannot be read or written, UsageError while another sweep runs: nothing was done.
    first: what is to be tested before the look, under the same lock; the results are one more source."""
    with opened(folder, dry_run=dry_run) as (diary, stale):
        begun = clock()
        run = run_id(begun)
        if first is not None and not dry_run:
            sources = [*sources, first(diary, run, night_of(begun), begun)]
        return sweep_with(diary, policy, door, sources, Terms(run, clock, dry_run, stale, watch))


@dataclass(frozen=True)
class Terms:
    """Of one sweep. run: its id. stale: who held the lock and was killed. watch: looks at what is only told."""

    run: str
    clock: Callable[[], float]
    dry_run: bool = False
    stale: str = ""
    watch: Watch | None = None


def sweep_with(diary: Diary, policy: SweepSite, door: Door, sources: Sequence[Source], terms: Terms) -> Report:
    now, run, clock, dry_run = terms.clock(), terms.run, terms.clock, terms.dry_run
    night = night_of(now)
    before = diary.history()
    told_before = dict(before.problems)
    notes = _notes(diary.entries, before, terms.stale, now)
    diary.write(Entry("begin", now, run, night, text="; ".join(notes)))
    try:
        nodes = answered(door, policy.answer_s)
    except HpcadminError as exc:
        return _without_slurm(diary, run, clock, str(exc), notes=notes, dry_run=dry_run)
    reconcile(diary, nodes, now, run)
    looks = gather(sources, [record.name for record in nodes if not record.unclear], now)
    if not looks.looked:
        notes.append("no results were looked at: [sweep] health_dir or health_via, --health or --results names some")
    history = diary.history()
    if others := strange(nodes, history):
        notes.append(f"{fold_nodes(others)}: drained with a reason like ours that this ledger does not know: by a "
                     "sweep of another host or of a ledger that was lost, or taken over; a person resumes them")
    seen = seen_of(nodes, looks, history)
    nothing = unseen(seen) if looks.looked else []
    if nothing:
        notes.append(f"nothing is known of {plural(len(nothing), 'node')} in service: {fold_nodes(nothing)}")
    diary.write(*(_entry_of(look, now, run) for look in worth_keeping(history, looks.looks)))
    plan = decide(seen, policy, history, now, run)
    done = {} if dry_run else _do(plan, Hand(door, diary, run, history, clock=clock, policy=policy))
    found = problems(plan, done, seen, history.missed(night), now)
    watched = terms.watch(looks.looks, now) if terms.watch is not None else Watched(unknown=("look/",))
    found.update(watched.problems)
    told = changes(told_before, found, seen, watched.unknown_of(before.problems))
    _keep(diary, told, clock(), run)
    status = exit_status(found, done, seen, looked=looks.looked and not overlooked(seen, nothing, policy))
    diary.write(Entry("end", clock(), run, night, result=str(status), looked=True))
    return Report(run, night, dry_run, status, plan, done, told, found,
                  (*notes, *looks.notes, *watched.notes), looks=len(looks.looks), nodes=nodes, time=now,
                  watched=watched)


def seen_of(nodes: tuple[NodeRecord, ...], looks: Looks, history: History) -> Seen:
    """Of nodes that others have taken out of service no results are missed; of those Slurm is unclear about, yes."""
    expected = {record.name for record in nodes if in_service(record)} | set(history.ours)
    unmeasured = {node: why for node, why in looks.unmeasured.items() if node in expected}
    unmeasured.update((record.name, record.unclear) for record in nodes if record.unclear)
    return Seen(nodes, looks.looks, unmeasured, looks.notes, looks.problems,
                looks.unknown if looks.looked else (*looks.unknown, "unmeasured"))


def unseen(seen: Seen) -> list[str]:
    """Nodes in service of which no source has told anything, nor why not: where there are only tests, those that were
    not tested."""
    known = {name for look in seen.looks for name in (look.node, look.partner)} | set(seen.unmeasured)
    return sorted(record.name for record in seen.nodes if in_service(record) and record.name not in known)


def overlooked(seen: Seen, nothing: Collection[str], policy: SweepSite) -> bool:
    """Whether something could have been known of one of these: of a busy node, or one whose turn it is not, a night
    with tests alone tells nothing, and that is as it should be."""
    silent = set(nothing)
    return not policy.suite_nodes and any(
        record.name in silent and record.state.base == "IDLE" for record in seen.nodes)


def answered(door: Nodes, late_s: float) -> tuple[NodeRecord, ...]:
    """All nodes. An answer that comes late is none: what slurmctld is then busy with may have changed it."""
    begun = time.monotonic()
    nodes = door.all_nodes()
    took = time.monotonic() - begun
    if took > late_s:
        raise SlurmError(f"slurmctld answered after {took:.0f} s, and that is late ([sweep] answer_s = {late_s:g})")
    if not nodes:
        raise SlurmError("Slurm tells of no node at all")
    return nodes


def reconcile(diary: Diary, nodes: Sequence[NodeRecord], now: float, run: str) -> None:
    for entry in pending_outcomes(diary.history(), nodes, now, run):
        diary.write(entry)
    held = {name for entry in open_guards(diary.entries) for name in entry.checks}
    for entry in changed_by_others(diary.history(), nodes, now, run, held):
        diary.write(entry)


def _notes(entries: Sequence[Entry], history: History, stale: str, now: float) -> list[str]:
    found = [f"the lock was still that of a sweep that was killed: {stale}"] if stale else []
    ahead = max((entry.time for entry in entries), default=now) - now
    if ahead > CLOCK_S:
        found.append(f"the ledger is {ahead / 3600:.1f} hours ahead of the clock: what passed since a drain is not "
                     "seen as such until then")
    found += [f"{sweep.run} never came to its end" for sweep in history.unfinished()[-1:]
              if not any(later.begun > sweep.begun for later in history.sweeps.values())]
    return found


def _without_slurm(diary: Diary, run: str, clock: Callable[[], float], why: str, *, notes: list[str],
                   dry_run: bool) -> Report:
    """Nothing is done but to tell. What was wrong before goes on: nobody knows better."""
    now = clock()
    before = dict(diary.history().problems)
    found = {"slurm": slurm_problem(why, now)}
    told = changes(before, found, None)
    _keep(diary, told, now, run)
    diary.write(Entry("end", now, run, night_of(now), result=str(EXIT_UNREACHABLE), text=why[:2000]))
    return Report(run, night_of(now), dry_run, EXIT_UNREACHABLE, changes=told, problems={**before, **found},
                  notes=tuple(notes), error=why)


def _entry_of(look: Look, now: float, run: str) -> Entry:
    return Entry("look", now, run, node=look.node, checks=(look.check,), kinds=(look.kind.value,),
                 result=look.result.value, text=look.text, measured=look.time, partner=look.partner, boot=look.boot,
                 source=look.source)


def _do(plan: Plan, hand: Hand) -> dict[str, Done]:
    """What frees nodes first."""
    return in_turn(sorted((d for d in plan.decisions if d.act.touches), key=lambda d: (_ORDER[d.act], d.node)), hand)


def in_turn(todo: Sequence[Decision], hand: Hand) -> dict[str, Done]:
    """node -> what came of it. When Slurm does not answer any more the rest is left as it is."""
    found: dict[str, Done] = {}
    for decision in todo:
        done = hand.do(decision)
        found[decision.node] = done
        if done.stop:
            for rest in todo[len(found):]:
                found[rest.node] = Done(rest, "not tried", f"Slurm did no more: {done.text}")
            break
    return found


def _keep(diary: Diary, told: Sequence[Change], now: float, run: str) -> None:
    diary.write(*(Entry("problem", now, run, node=change.problem.node, checks=change.problem.checks,
                        result=change.what, text=change.problem.text[:2000], key=change.problem.key,
                        signature=change.problem.signature[:500]) for change in told))


def exit_status(found: Mapping[str, Problem], done: Mapping[str, Done], seen: Seen, *, looked: bool) -> int:
    if any(d.result == PENDING or d.stop for d in done.values()):
        return EXIT_UNREACHABLE
    if any(key.startswith(("node/", "act/", "budget", "trend/", "guard")) for key in found):
        return EXIT_FAILED
    if "suite" in found:
        return EXIT_INCOMPLETE
    if not looked or seen.unmeasured or any(look.result is Result.UNKNOWN for look in seen.looks):
        return EXIT_INCOMPLETE
    return EXIT_OK

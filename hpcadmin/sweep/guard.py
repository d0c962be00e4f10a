"""Nodes that we have drained, tested again: Slurm starts nothing on a drained node, in whatever reservation. So they
are reserved for us first, then undrained, tested within the reservation, drained again as they were, and released.

At no moment can a user's job begin there: the reservation is made before the drain is taken away, and ends after it is
back. It lasts for days, so that a sweep that is killed in between leaves the node shut; the next one puts it right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hpcadmin.errors import HpcadminError, SlurmError
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.ledger import History, Standing
from hpcadmin.sweep.letgo import stands
from hpcadmin.sweep.model import Entry, Result, night_of
from hpcadmin.sweep.states import drained_idle, unfit
from hpcadmin.text import plural

DAYS = 7                    # a sweep that was killed leaves the nodes shut for so long
PREFIX = "hpcadmin_"
REGISTER_S = 60.0           # that a node that was undrained may take until it responds
MOST_NODES = 8              # tested again in one night
MOST_PARTNERS = 4           # of each

# What Slurm itself writes when a node does not come back: no person has taken it over.
_OF_SLURM = ("Not responding", "Node unexpectedly rebooted")
_T = TypeVar("_T")


class Keeper(Protocol):
    """To Slurm."""

    def all_nodes(self) -> tuple[NodeRecord, ...]: ...

    def one_node(self, name: str) -> NodeRecord | None: ...

    def drain(self, name: str, reason: str) -> None: ...

    def undrain(self, name: str) -> None: ...

    def reserve(self, name: str, nodes: Sequence[str], user: str, minutes: int) -> None: ...

    def unreserve(self, name: str) -> None: ...

    def reserved(self, name: str) -> bool: ...


class Pages(Protocol):
    """The ledger, as it grows."""

    entries: list[Entry]

    def write(self, *entries: Entry) -> None: ...

    def history(self) -> History: ...


@dataclass(frozen=True)
class Retest:
    """What is tested again. reasons: node -> the reason of its drain. pairs: with idle partners."""

    reasons: dict[str, str]
    checks: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({*self.reasons, *(name for pair in self.pairs for name in pair)}))


def to_retest(history: History, nodes: Sequence[NodeRecord], idle: Sequence[str], night: int = 0) -> Retest | None:
    """The nodes that are drained by us for tests, as we left them, with no job; pure. idle: who may be a partner.
    night: whose turn it is where there are more than can be tested."""
    records = {record.name: record for record in nodes}
    ready = {name: drain for name, drain in history.ours.items() if _testable(records.get(name), drain)}
    reasons: dict[str, str] = {}
    pairs: set[tuple[str, str]] = set()
    free = {*idle, *ready}      # two that failed with each other and are both drained: else neither came back
    for name in _in_turn(sorted(ready), night * MOST_NODES):
        wanted = {partner for check in _tests(ready[name]) for partner in ready[name].intent.partners.get(check, ())}
        partners = _partners(name, ready[name], wanted & free, history, night)
        more = [other for other in (name, *partners) if other in ready and other not in reasons]
        late = more[MOST_NODES - len(reasons):]
        partners = [partner for partner in partners if partner not in late]
        if name in late or (wanted and not partners):
            continue
        reasons.update((other, ready[other].intent.reason) for other in more if other not in late)
        pairs.update((min(name, partner), max(name, partner)) for partner in partners)
    checks = {check.partition("/")[2]: None for name in reasons for check in _tests(ready[name])}
    return Retest(reasons, tuple(checks), tuple(sorted(pairs))) if reasons else None


def _tests(standing: Standing) -> list[str]:
    return [check for check in standing.intent.checks if check.startswith("test/")]


def _testable(record: NodeRecord | None, standing: Standing) -> bool:
    return bool(_tests(standing)) and record is not None and (
        stands(record, standing.intent.reason) and not unfit(record) and drained_idle(record))


def _in_turn(items: Sequence[_T], start: int) -> list[_T]:
    """All of them, from another place on each night: else the first would keep the others waiting for ever."""
    place = start % len(items) if items else 0
    return [*items[place:], *items[:place]]


def _partners(name: str, standing: Standing, free: Collection[str], history: History, night: int) -> list[str]:
    """Those first with which it has yet to pass since it was drained."""
    def passed(partner: str) -> bool:
        pair = frozenset((name, partner))
        found = [look for (check, met), look in history.pairs.items()
                 if met == pair and check in standing.intent.checks]
        return bool(found) and all(look.result is Result.GOOD and look.time > standing.time for look in found)
    return sorted(_in_turn(sorted(free), night * MOST_PARTNERS), key=passed)[:MOST_PARTNERS]


class Guard:
    """Holds nodes for tests, and puts right what a sweep that was killed has left."""

    def __init__(self, keeper: Keeper, diary: Pages, user: str, *, clock: Callable[[], float] = time.time,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._keeper, self._diary, self._user, self._clock, self._sleep = keeper, diary, user, clock, sleep

    def put_right(self) -> list[str]:
        """Close what is still open in the ledger; in words. SlurmError when Slurm does not let us: it stays open."""
        told = []
        for entry in open_guards(self._diary.entries):
            nodes = self._close(entry)
            told.append(f"{entry.run} was killed while it tested drained nodes again: "
                        f"{plural(len(nodes), 'node')} drained again" if nodes else
                        f"{entry.run} was killed while it tested drained nodes again: they are released")
        return told

    @contextmanager
    def held(self, retest: Retest, run: str) -> Iterator[str]:
        """The name of the reservation in which they can be tested. SlurmError when they cannot be had; however it ends,
        they are drained again and released, and where Slurm does not let us the next sweep does it."""
        now = self._clock()
        entry = Entry("guard", now, run, night_of(now), id=f"{PREFIX}{run}", act="open", checks=tuple(retest.reasons),
                      text=" ".join(retest.nodes))
        self._diary.write(entry)
        try:
            self._keeper.reserve(entry.id, retest.nodes, self._user, DAYS * 1440)
            if not self._keeper.reserved(entry.id):
                raise SlurmError("the reservation is not there", where=entry.id)
            for name, reason in retest.reasons.items():
                record = self._keeper.one_node(name)
                if record is None or not stands(record, reason) or record.reservation not in ("", entry.id):
                    raise SlurmError(f"{name} is not as it was left any more")
                self._keeper.undrain(name)
            self._wait(retest.reasons)
            yield entry.id
        finally:
            self._close(entry)

    def _close(self, entry: Entry) -> list[str]:
        """Drained first, and only what is still held; then released. Without the reservation somebody has released the
        nodes on purpose: then they are left as they are."""
        again = []
        if self._keeper.reserved(entry.id):
            ours = self._diary.history().ours
            for name in entry.checks:
                record = self._keeper.one_node(name)
                if record is not None and name in ours and _still_ours(record, ours[name].intent.reason):
                    self._keeper.drain(name, ours[name].intent.reason)
                    again.append(name)
            self._keeper.unreserve(entry.id)
            if self._keeper.reserved(entry.id):
                raise SlurmError("the reservation is still there", where=entry.id,
                                 hint=f"scontrol delete ReservationName={entry.id}")
        self._diary.write(Entry("guard", self._clock(), entry.run, entry.night, id=entry.id, act="closed",
                                checks=tuple(again)))
        return again

    def _wait(self, names: Sequence[str] | dict[str, str]) -> None:
        """A node that was undrained registers anew; until then it does not respond."""
        end = time.monotonic() + REGISTER_S
        left = list(names)
        while left and time.monotonic() < end:
            self._sleep(0.5)
            try:
                states = {record.name: record.state for record in self._keeper.all_nodes()}
            except HpcadminError:
                continue
            left = [name for name in left if name in states and (
                states[name].flags & {"NOT_RESPONDING", "NO_RESPOND"} or states[name].base == "UNKNOWN")]


def _still_ours(record: NodeRecord, reason: str) -> bool:
    """Whether it is to be drained again. Who gave it another reason, or took it down, has it now."""
    return "DRAIN" not in record.state.flags and (
        record.own_reason in ("", reason) or record.reason.startswith(_OF_SLURM))


def open_guards(entries: Sequence[Entry]) -> list[Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == "guard":
            if entry.act == "open":
                found[entry.id] = entry
            else:
                found.pop(entry.id, None)
    return list(found.values())

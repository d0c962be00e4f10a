"""What Slurm's events claim of a node: which states count as not available, and what is planned."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache

from hpcadmin.availability.timeline import Claim, Kind
from hpcadmin.hosts import expand
from hpcadmin.site_availability import DOWN, UP, AvailabilitySite, percent
from hpcadmin.slurm.events import Accounting, Members, NodeEvent
from hpcadmin.slurm.states import node_state

# Claims in the order of their weight. That a node is not in slurm.conf is known best; maintenance that Slurm was told
# of before counts whatever the node was; a failure counts before a reason that only a person wrote.
ABSENT, RESERVED, FAILED, PLANNED, CONTROLLER, DOUBT, KNOWN = 7, 6, 5, 4, 3, 2, 1
RESTART_S = 900             # that a slurmctld may need after its start to find a node that does not answer
NO_CONTROLLER = "slurmctld did not run"
NOT_MEMBER = "not in slurm.conf"
NOT_TOLD = "(no reason)"
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP"})
_REBOOT = frozenset({"REBOOT_ISSUED", "REBOOT_REQUESTED"})
_BAD = frozenset({"FAIL", "NOT_RESPONDING", "INVALID"})
_BASES = {0: "UNKNOWN", 1: "DOWN", 2: "IDLE", 3: "ALLOCATED", 4: "ERROR", 5: "MIXED", 6: "FUTURE"}
Claims = dict[str, list[Claim]]


@dataclass(frozen=True)
class Rules:
    """[availability] of site.toml. owed: nodes that must be there all the time."""

    target: Fraction = Fraction(9995, 10000)
    owed: frozenset[str] = frozenset()
    planned: tuple[str, ...] = ()
    reservations: bool = True
    drain: str = DOWN
    controller: str = DOWN
    power_saving: str = UP

    def is_planned(self, reason: str | None) -> bool:
        """A reason that could not be told is none."""
        return reason is not None and _fits(self.planned, reason)


@lru_cache(maxsize=4096)
def _fits(patterns: tuple[str, ...], reason: str) -> bool:
    return any(fnmatchcase(reason.lower(), pattern.lower()) for pattern in patterns)


def rules_of(site: AvailabilitySite) -> Rules:
    return Rules(percent(site.target) or Fraction(1), frozenset(expand(site.nodes) if site.nodes else ()), site.planned,
                 site.reservations, site.drain, site.controller, site.power_saving)


@lru_cache(maxsize=4096)
def kind_of(state: str, raw: int, rules: Rules) -> tuple[Kind, str]:
    """What a state of an event is, and a word for it. The base is in the number: the text of one that is drained does
    not tell whether it is down, too."""
    found = node_state(state)
    base = found.base if found.base in ("DOWN", "ERROR") else _BASES.get(raw & 0x0F, "")
    flags = found.flags
    if flags & {"MAINTENANCE", "MAINT"} and rules.reservations:
        return Kind.PLANNED, "maintenance reservation"
    if base in ("DOWN", "ERROR") or flags & {"FAIL", "INVALID"}:
        return Kind.DOWN, "down" if base == "DOWN" else state.lower()
    if "DRAIN" in flags:
        return (Kind.DOWN if rules.drain == DOWN else Kind.UP), "drained"
    if flags & _POWER:
        return (Kind.DOWN if rules.power_saving == DOWN else Kind.UP), "power saving"
    if flags & (_BAD | _REBOOT):
        return Kind.DOWN, "not responding" if "NOT_RESPONDING" in flags else "rebooting"
    return Kind.UNKNOWN, f"state {state or raw}"


def claims_of(found: Accounting, rules: Rules, now: int, nodes: Collection[str]) -> Claims:
    """Of each of these nodes what slurmdbd's answer claims."""
    claims: Claims = {node: [] for node in nodes}
    _membership(claims, spans_of(found.members, now), rules, found.known_since or 0, found.known_until or now)
    starts = {m.start for m in found.members} | {o.end for o in found.outages if o.end is not None}
    by_node: dict[str, list[NodeEvent]] = {}
    for event in found.events:
        if event.node in claims:
            by_node.setdefault(event.node, []).append(event)
    for node, events in by_node.items():
        claims[node] += [c for event in events if (c := _claim(event, rules, now)) is not None]
        claims[node] += _restarts(events, starts, rules)
    if rules.controller != UP:
        kind = Kind.DOWN if rules.controller == DOWN else Kind.UNKNOWN
        outages = [Claim(o.start, _until(o.end, now), CONTROLLER, kind, NO_CONTROLLER) for o in found.outages]
        for claimed in claims.values():
            claimed.extend(outages)
    for r in found.reservations if rules.reservations else ():
        if r.maintenance:
            claim = Claim(r.start, _until(r.end, now), RESERVED, Kind.PLANNED, f"reservation {r.name or r.id}")
            for node in r.nodes & claims.keys():
                claims[node].append(claim)
    return claims


def _until(end: int | None, now: int) -> int:
    """What goes on is known up to now."""
    return now if end is None else end


def spans_of(members: Sequence[Members], now: int) -> list[tuple[int, int, frozenset[str]]]:
    """From when to when slurm.conf had which nodes; a later list ends the one before it, and equal ones are one."""
    found: list[tuple[int, int, frozenset[str]]] = []
    ordered = sorted(members, key=lambda m: (m.start, sorted(m.nodes), _until(m.end, now)))
    for number, m in enumerate(ordered):
        end = _until(m.end, now)
        if number + 1 < len(ordered):
            end = min(end, ordered[number + 1].start)
        if end <= m.start:
            continue
        if found and found[-1][1] == m.start and found[-1][2] == m.nodes:
            found[-1] = (found[-1][0], end, m.nodes)
        else:
            found.append((m.start, end, m.nodes))
    return found


def _membership(claims: Claims, spans: Iterable[tuple[int, int, frozenset[str]]], rules: Rules, since: int,
                until: int) -> None:
    for start, end, there in spans:
        known = Claim(max(start, since), min(end, until), KNOWN, Kind.UP)
        for node, of in claims.items():
            if node in there:
                of.append(known)
            else:
                of.append(Claim(start, end, ABSENT, Kind.DOWN if node in rules.owed else Kind.ABSENT, NOT_MEMBER))


def _claim(event: NodeEvent, rules: Rules, now: int) -> Claim | None:
    kind, word = kind_of(event.state, event.raw, rules)
    end = _until(event.end, now)
    why = event.reason or ""
    if kind is Kind.UP:
        return None
    if kind is Kind.PLANNED:
        return Claim(event.start, end, RESERVED, kind, word, event.user)
    if kind is Kind.UNKNOWN:
        return Claim(event.start, end, DOUBT, kind, f"{word}: {why}" if why else word)
    if rules.is_planned(event.reason):
        return Claim(event.start, end, PLANNED, Kind.PLANNED, why, event.user)
    return Claim(event.start, end, FAILED, Kind.DOWN, why or f"{word} {NOT_TOLD}", event.user)


def _restarts(events: Iterable[NodeEvent], starts: AbstractSet[int], rules: Rules) -> list[Claim]:
    """A slurmctld that starts forgets who did not answer, and finds out again later: between is not known."""
    down = [e for e in events if kind_of(e.state, e.raw, rules)[0] is Kind.DOWN]
    begins = sorted(e.start for e in down)
    found = []
    for end in {e.end for e in down if e.end is not None} & starts:
        place = bisect_right(begins, end + RESTART_S)
        if place and begins[place - 1] > end:
            found.append(Claim(end, begins[place - 1], DOUBT, Kind.UNKNOWN, "slurmctld had just been started"))
    return found


def all_nodes(found: Accounting, start: int, end: int, now: int) -> list[str]:
    """Those that slurm.conf had at any time of a period, and those that have events in it."""
    names: set[str] = set()
    for begin, until, there in spans_of(found.members, now):
        if begin < end and until > start:
            names |= there
    names |= {e.node for e in found.events if e.start < end and _until(e.end, now) > start}
    return sorted(names)

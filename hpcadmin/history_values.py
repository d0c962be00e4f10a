"""The values of a run that can be compared with another's: by condition, and by the node or device they are of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from hpcadmin.check import Measurement, Subject
from hpcadmin.hosts import fold
from hpcadmin.peers import impossible, lower_is_better, number_problem
from hpcadmin.records import without_gc
from hpcadmin.rundata import Measured, PlannedTest
from hpcadmin.text import byte_size

_SHORT = {"one-way": "", "both": "both ways"}


class Condition(NamedTuple):
    """What must be equal before two values may be compared. over: "node", "pair" or "nodes" (all of a test together).

    The transport is none of it: a value that fell because RDMA became TCP is to be seen, and not left out.
    """

    check: str
    name: str
    unit: str
    size_bytes: int | None
    direction: str
    rail: str
    binding: str
    mode: str
    ranks: int | None
    nodes: int | None
    pairs_at_once: int | None
    over: str
    lower_is_better: bool

    @property
    def text(self) -> str:
        """bandwidth at 1 MiB both ways."""
        parts = [self.name, f"at {byte_size(self.size_bytes)}" if self.size_bytes is not None else "",
                 _SHORT.get(self.direction, self.direction), self.rail, self.mode, self.binding,
                 f"{self.nodes} nodes" if self.over == "nodes" and self.nodes else ""]
        return " ".join(part for part in parts if part)


class Entity(NamedTuple):
    """A node, a device of one, or all nodes of a test together (as a hostlist)."""

    node: str
    device: str = ""

    @property
    def text(self) -> str:
        return f"{self.node} {self.device}".strip()


class Sample(NamedTuple):
    """The values of one entity under one condition in one run: over partners, tests and repetitions in one text."""

    values: tuple[float, ...]
    transport: str = ""

    def summary(self, *, few: bool, lower: bool) -> float:
        """The median; of few partners the best, as a single bad one spoils half of them."""
        return (min if lower else max)(self.values) if few else median(self.values)


_NO_RATIO = ("clock_offset", "uptime")      # microseconds from zero, and what grows: twice as much says nothing
FEW = 3         # partners: of fewer, one bad one is half
Values = Mapping[Condition, Mapping[Entity, Sample]]


class _Group:
    """All values of one condition, while they are gathered. places: how many one test has of an entity."""

    __slots__ = ("best", "lower", "places")

    def __init__(self, lower: bool) -> None:
        self.lower = lower
        self.best: dict[tuple[Entity, str, int], tuple[float, str]] = {}
        self.places: dict[tuple[str, Entity], int] = {}

    def add(self, entity: Entity, test: str, first: str, value: float, transport: str) -> None:
        place = self.places[test, entity] = self.places.get((test, entity), -1) + 1
        old = self.best.get((entity, first, place))
        if old is None or (value < old[0] if self.lower else value > old[0]):
            self.best[entity, first, place] = value, transport


def values_of(measured: Iterable[Measured], tests: Iterable[PlannedTest], *, check: str = "") -> Values:
    """check: only of this one. What was measured again counts with its first test: the best of both."""
    known = {t.id: t for t in tests}
    groups: dict[Condition, _Group] = {}
    subjects: dict[tuple[tuple[str, ...], str, bool], tuple[Entity, ...]] = {}
    entities: dict[Entity, Entity] = {}         # one object for each: there are half a million values
    with without_gc():
        for one in measured:
            m = one.measurement
            test = known.get(one.test)
            subject = m.subject if m.subject.nodes or test is None else test.subject
            if (check and one.check != check) or not subject.nodes or m.expected is not None or not _usable(m, subject):
                continue
            first = (test.repeats or test.id) if test else one.test
            condition = _condition(one.check, m, subject, known.get(first))
            group = groups.get(condition)
            if group is None:
                group = groups[condition] = _Group(condition.lower_is_better)
            key = subject.nodes, subject.device, bool(m.rail)
            of = subjects.get(key)
            if of is None:
                of = subjects[key] = tuple(entities.setdefault(e, e) for e in _entities(subject, of_rail=bool(m.rail)))
            for entity in of:
                group.add(entity, one.test, first, float(m.value), m.transport)
        return {condition: _gathered(group) for condition, group in groups.items()}


def _gathered(group: _Group) -> dict[Entity, Sample]:
    lists: dict[Entity, list[tuple[float, str]]] = {}
    for (entity, _, _), found in group.best.items():
        lists.setdefault(entity, []).append(found)
    return {e: Sample(tuple([v for v, _ in pairs]), "/".join(sorted({_kind(t) for t in {t for _, t in pairs} if t})))
            for e, pairs in lists.items()}


def _kind(transport: str) -> str:
    """IB of "IB mlx5_0": the device may be another one."""
    return transport.split(" ", 1)[0]


def _usable(m: Measurement, subject: Subject) -> bool:
    if m.name in _NO_RATIO or lower_is_better(m) is None or number_problem(m.value) or impossible(m, subject):
        return False
    return float(m.value) > 0 and math.isfinite(float(m.value))


def _condition(check: str, m: Measurement, subject: Subject, first: PlannedTest | None) -> Condition:
    at_once = first.pairs_at_once if first is not None else m.pairs_at_once
    over = {1: "node", 2: "pair"}.get(len(subject.nodes), "nodes")
    count = len(subject.nodes) if over == "nodes" else m.nodes
    return Condition(check, m.name, m.unit, m.size_bytes, m.direction.value, m.rail, m.binding, m.mode, m.ranks,
                     count, at_once, over, bool(lower_is_better(m)))


def _entities(subject: Subject, *, of_rail: bool) -> tuple[Entity, ...]:
    if len(subject.nodes) > 2:
        return (Entity(fold(subject.nodes)),)
    device = "" if of_rail and len(subject.nodes) == 2 else subject.device      # a pair's rail is in its condition
    return tuple(Entity(node, device) for node in dict.fromkeys(subject.nodes))

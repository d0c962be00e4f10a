"""What a value is measured by: the limit that is known for it, else one that is derived, and what its hardware forbids.

Remembered for all values of the same kind on nodes that are built alike: a cluster has few kinds of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin import catalogue, derived
from hpcadmin.check import Limit, Measurement
from hpcadmin.derived import Bounds, Derived
from hpcadmin.model import Inventory, Node
from hpcadmin.node_links import Links, links_of
from hpcadmin.rundata import PlannedTest, TestResult


@dataclass(frozen=True, slots=True)
class _Kind:
    """Equal for nodes that no limit and no fact tells apart."""

    models: frozenset[str]
    ports: tuple[tuple[str, float | None, str, bool], ...]       # name, rate, its text, RDMA or not
    links: Links


@dataclass(frozen=True, slots=True)
class _Place:
    """What is known of the nodes that a value is about. kinds (): of one of them nothing."""

    kinds: tuple[_Kind, ...]
    apart: bool

    def names(self, rail: str) -> tuple[str, ...]:
        """GPU models and port rates that all of these nodes have: what a limit may be for. Of the ports, the one that
        the value names; else the fastest, since MPI and NCCL choose those."""
        sets = [kind.models | _rates(kind, rail) for kind in self.kinds]
        return tuple(sorted(frozenset.intersection(*sets))) if sets else ()

    @property
    def sides(self) -> tuple[Links, ...]:
        return tuple(kind.links for kind in self.kinds)


def _rates(kind: _Kind, rail: str) -> frozenset[str]:
    named = [p for p in kind.ports if rail and p[0] == rail]
    found = named or [p for p in kind.ports if p[3]] or list(kind.ports)
    if not named:
        fastest = max((p[1] for p in found if p[1] is not None), default=None)
        found = [p for p in found if p[1] is None or p[1] == fastest]
    return frozenset(p[2] for p in found if p[2])


class Hardware:
    """What the inventory says of the nodes that a value is about."""

    def __init__(self, inventory: Inventory | None) -> None:
        self._nodes: dict[str, Node] = {n.name: n for n in inventory.nodes} if inventory else {}
        self._kind_of: dict[str, int] = {}               # its number in _kinds
        self._kinds: list[_Kind] = []
        self._equal: dict[_Kind, int] = {}
        self._places: dict[tuple[str, ...], int] = {}
        self._numbers: dict[tuple[tuple[int, ...], bool], int] = {((), False): 0}
        self.places: list[_Place] = [_Place((), False)]
        self._identities: dict[str, object] = {}

    def place(self, nodes: tuple[str, ...]) -> int:
        """The number of the place in `places`."""
        found = self._places.get(nodes)
        if found is None:
            kinds, apart = self._place(nodes)
            found = self._numbers.setdefault((kinds, apart), len(self.places))
            if found == len(self.places):
                self.places.append(_Place(tuple(sorted((self._kinds[i] for i in kinds), key=repr)), apart))
            self._places[nodes] = found
        return found

    def _place(self, nodes: tuple[str, ...]) -> tuple[tuple[int, ...], bool]:
        known = [n for n in map(self._nodes.get, nodes) if n is not None]
        if not known or len(known) < len(nodes):
            return (), False
        kinds = {self._number(n) for n in known}
        machines = {n.hostname or n.name for n in known}
        return tuple(sorted(kinds)), len(machines) == len(set(nodes)) > 1

    def _number(self, node: Node) -> int:
        if node.name not in self._kind_of:
            ports = tuple(sorted(((n.rdma or n.name, n.rate_gbps, n.rate_text, bool(n.rdma)) for n in node.nics
                                  if n.rate_text), key=repr))
            kind = _Kind(frozenset(g.model for g in node.gpus if g.model), ports, links_of(node))
            number = self._equal.setdefault(kind, len(self._kinds))
            if number == len(self._kinds):
                self._kinds.append(kind)
            self._kind_of[node.name] = number
        return self._kind_of[node.name]

    def _kind(self, node: Node) -> _Kind:
        return self._kinds[self._number(node)]

    def identity(self, name: str) -> object:
        """Equal for nodes that may be compared as peers. Counts of GPUs and link rates are left out on purpose: a
        node that has lost some is still to be compared with the others."""
        if name not in self._identities:
            node = self._nodes.get(name)
            self._identities[name] = (node.vendor, node.product, node.cpu.model, node.cpu.cpus) if node else ()
        return self._identities[name]

    def gpu_models(self, name: str) -> object:
        """Beside its identity, for values of GPUs."""
        node = self._nodes.get(name)
        return self._kind(node).models if node else ()

    def rate(self, name: str, rail: str) -> float | None:
        """Gb/s of the RDMA port of that name."""
        node = self._nodes.get(name)
        port = self._kind(node).links.port(rail) if node else None
        return port.gbps if port else None

    def stamped(self, result: TestResult) -> TestResult:
        """The result, marked as simulated if any node of it only pretends to have its hardware."""
        if result.simulated or not self._nodes:
            return result
        found = {n.simulated for n in map(self._nodes.get, result.test.subject.nodes) if n and n.simulated}
        return replace(result, simulated=", ".join(sorted(found))) if found else result


@dataclass(frozen=True, slots=True)
class Yardstick:
    """limit None: none is known. derived: only where there is no limit. possible: nothing beyond these is true."""

    limit: Limit | None
    derived: Derived
    possible: Bounds


_NOTHING = Derived()


class Finder:
    def __init__(self, limits: Sequence[Limit], hardware: Hardware) -> None:
        self.hardware = hardware
        self._by_check: dict[str, list[Limit]] = {}
        for limit in limits:
            self._by_check.setdefault(limit.check, []).append(limit)
        self._exact = {(x.check, x.measurement, x.unit, x.size_bytes) for x in limits if x.size_bytes is not None}
        self._known: dict[object, Yardstick] = {}
        self._last: tuple[PlannedTest | None, frozenset[str]] = (None, frozenset())

    def nodes_of(self, test: PlannedTest) -> frozenset[str]:
        """The set is made once for all values of a test: of all nodes together there may be ten thousand of either."""
        if self._last[0] is not test:
            self._last = (test, frozenset(test.subject.nodes))
        return self._last[1]

    def has_size(self, check: str, m: Measurement) -> bool:
        """Whether a limit is for exactly this message size."""
        return (check, m.name, m.unit, m.size_bytes) in self._exact

    def find(self, check: str, m: Measurement, nodes: tuple[str, ...], simulated: bool) -> Yardstick:
        number = self.hardware.place(nodes)
        key = (check, m.name, m.unit, m.size_bytes, m.direction, m.ranks, m.nodes, m.transport, m.rail, m.binding,
               number, simulated)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(check, m, self.hardware.places[number], simulated)
        return found

    def _find(self, check: str, m: Measurement, place: _Place, simulated: bool) -> Yardstick:
        """Simulated hardware is judged by its own limits alone: its nodes share the cores and memory of one machine,
        and what their pretended links would carry or forbid says nothing of what that machine does."""
        limits = self._by_check.get(check, ())
        limit = catalogue.for_measurement(limits, check, m, place.names(m.rail), simulated) if limits else None
        if limit is not None and limit.simulated != simulated:
            limit = None
        if simulated:
            return Yardstick(limit, _NOTHING, (None, None))
        made = derived.derive(check, m, place.sides, apart=place.apart) if limit is None else _NOTHING
        return Yardstick(limit, made, derived.bounds(check, m, place.sides, apart=place.apart))

"""The tree of a fabric: levels by distance from the hosts, units of leaves that share their nodes, Slurm's tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import TypeVar

from hpcadmin import hosts
from hpcadmin.fabric.names import is_aggregation, is_service, joint_name, pieces, short_names
from hpcadmin.model import Fabric, FabricDevice

MAX_LEAVES_OF_A_HOST = 64
_Key = TypeVar("_Key", str, int)


@dataclass(frozen=True)
class Cable:
    """A host's port in a leaf."""

    host: str
    adapter: str
    leaf: str                        # the leaf's name
    port: int
    port_name: str = ""


@dataclass(frozen=True)
class Unit:
    """Leaves that share their nodes: one leaf, or one a rail."""

    label: str
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """What is one switch for Slurm: the leaves of a unit, or switches above that share what is below them.

    below: places of parts in the tree. label: of a unit.
    """

    level: int
    devices: tuple[str, ...]
    below: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class TreeSwitch:
    """A line of topology.conf: nodes, or switches below."""

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        below = f"Switches={hosts.fold(self.switches)}" if self.switches else f"Nodes={hosts.fold(self.nodes)}"
        return f"SwitchName={self.name} {below}"


def with_levels(fabric: Fabric) -> Fabric:
    """Leaves are the switches with hosts; above them every level is one cable further away. A spine with a few hosts
    (a manager, a gateway) is none: it has far fewer than the switches around it."""
    by_name = {device.name: device for device in fabric.devices}
    around = {switch.name: _switches_around(switch, by_name) for switch in fabric.switches}
    real = {switch.name: _hosts_on(switch, by_name, services=False) for switch in fabric.switches}
    if not any(real.values()):
        real = {switch.name: _hosts_on(switch, by_name, services=True) for switch in fabric.switches}
    leaves = {name for name, count in real.items() if count}
    few = {name for name in leaves if _is_spine(name, around, real, leaves)}
    levels = dict.fromkeys(sorted(leaves - few), 1)
    border = list(levels)
    while border:
        border = [name for place in border for name in around[place] if _reach(levels, name, levels[place] + 1)]
    return replace(fabric, devices=tuple(
        replace(device, level=levels.get(device.name)) if device.kind == "switch" else device
        for device in fabric.devices))


def _reach(levels: dict[str, int], name: str, level: int) -> bool:
    if name in levels:
        return False
    levels[name] = level
    return True


def _is_spine(name: str, around: dict[str, list[str]], real: dict[str, int], leaves: set[str]) -> bool:
    beside = [other for other in around[name] if other in leaves]
    return len(beside) > 1 and 4 * real[name] < median(real[other] for other in beside)


def _switches_around(switch: FabricDevice, by_name: dict[str, FabricDevice]) -> list[str]:
    return list(dict.fromkeys(port.peer for port in switch.ports
                              if port.peer in by_name and by_name[port.peer].kind == "switch"))


def _hosts_on(switch: FabricDevice, by_name: dict[str, FabricDevice], services: bool) -> int:
    peers = [by_name[port.peer] for port in switch.ports if port.peer in by_name]
    return sum(peer.kind == "ca" and not is_aggregation(peer.description) and (services or not is_service(peer.host))
               for peer in peers)


def cables(fabric: Fabric) -> tuple[Cable, ...]:
    """The cables between named hosts and leaves, in the order of the leaves and their ports."""
    by_name = {device.name: device for device in fabric.devices}
    found = []
    for leaf in leaves_of(fabric):
        for port in leaf.ports:
            peer = by_name.get(port.peer)
            if peer and peer.kind == "ca" and peer.host:
                adapter = peer.device or port.peer_name
                found.append(Cable(peer.host, adapter, leaf.name, port.number, port.name))
    return tuple(found)


def leaves_of(fabric: Fabric) -> tuple[FabricDevice, ...]:
    return tuple(switch for switch in fabric.switches if switch.level == 1)


def leaves_by_host(links: Iterable[Cable]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for cable in links:
        found[cable.host][cable.leaf] += 1
    return found


def units(fabric: Fabric, found_cables: Iterable[Cable] | None = None) -> tuple[Unit, ...]:
    """In the order of their names. Two leaves are of one unit when more than half of the nodes of each are on the other
    too: neither a node with a cable in the wrong unit nor a switch that all units have (storage, management) joins
    them. Such a switch is a unit without nodes: most of those on it are at home elsewhere, where they have more cables
    or fewer nodes beside them. found_cables: cables(fabric), where the caller has them already."""
    by_host = leaves_by_host(cables(fabric) if found_cables is None else found_cables)
    on_leaf: Counter[str] = Counter(leaf for leaves in by_host.values() for leaf in leaves)
    shared: Counter[tuple[str, str]] = Counter()
    for leaves in by_host.values():
        if len(leaves) <= MAX_LEAVES_OF_A_HOST:
            shared.update(combinations(sorted(leaves), 2))
    group = {leaf.name: leaf.name for leaf in leaves_of(fabric)}
    for (one, other), count in sorted(shared.items()):
        if 2 * count > max(on_leaf[one], on_leaf[other]):
            _join(group, one, other)
    members: dict[str, list[str]] = defaultdict(list)
    for name in group:
        members[_root(group, name)].append(name)
    nodes: dict[str, list[str]] = defaultdict(list)
    size = {root: max(on_leaf[leaf] for leaf in leaves) for root, leaves in members.items()}
    for host, leaves in by_host.items():
        weight: Counter[str] = Counter()
        for leaf, count in leaves.items():
            weight[_root(group, leaf)] += count
        nodes[min(weight, key=lambda root: (-weight[root], size[root], root))].append(host)
    for root in [root for root, names in nodes.items() if 2 * len(names) < size[root]]:
        del nodes[root]
    found = sorted((tuple(sorted(leaves)), tuple(sorted(nodes.get(root, ())))) for root, leaves in members.items())
    labels = _labels([leaves for leaves, _ in found])
    return tuple(sorted((Unit(label, *one) for label, one in zip(labels, found, strict=True)),
                        key=lambda unit: unit.label))


def _root(group: dict[_Key, _Key], name: _Key) -> _Key:
    while group[name] != name:
        group[name] = group[group[name]]
        name = group[name]
    return name


def _join(group: dict[_Key, _Key], one: _Key, other: _Key) -> None:
    low, high = sorted((_root(group, one), _root(group, other)))
    group[high] = low


def _labels(found: list[tuple[str, ...]]) -> list[str]:
    """Of single leaves their names; of units of several the number in the leaves' names that tells units apart, or a
    number of our own."""
    place = unit_place(found)
    short = short_names([leaf for leaves in found for leaf in leaves])
    labels = []
    for number, leaves in enumerate(found, 1):
        if place is not None and any(len(other) > 1 for other in found):
            labels.append(pieces(short[leaves[0]])[place])
        else:
            labels.append(leaves[0] if len(leaves) == 1 else str(number))
    return labels


def unit_place(found: list[tuple[str, ...]]) -> int | None:
    """Which number in the leaves' short names is the same within every unit and another in every other unit."""
    names = [leaf for leaves in found for leaf in leaves]
    short = short_names(names)
    split = {name: pieces(short[name]) for name in names}
    if len(found) < 2 or len({len(parts) for parts in split.values()}) != 1:
        return None
    for place in range(len(split[names[0]]) - 2, 0, -2):
        values = [{split[leaf][place] for leaf in leaves} for leaves in found]
        if all(len(one) == 1 for one in values) and len(set.union(*values)) == len(found):
            return place
    return None


def tree_parts(fabric: Fabric, nodes: Collection[str] | None = None,
               found_units: tuple[Unit, ...] | None = None) -> tuple[Part, ...]:
    """The tree as it hangs together, without names: units first, then level by level. Every node is in one part, every
    part under one other. nodes: the names that Slurm knows; None: those that look like compute nodes (see left_out).
    found_units: units(fabric), where the caller has them already."""
    found: list[Part] = []
    services = set(left_out(fabric)) if nodes is None else set()
    below: dict[str, int] = {}       # device -> the part that it is of
    for unit in units(fabric) if found_units is None else found_units:
        names = [n for n in unit.nodes if (n in nodes if nodes is not None else n not in services)]
        if names:
            below.update(dict.fromkeys(unit.leaves, len(found)))
            found.append(Part(1, unit.leaves, nodes=tuple(names), label=unit.label))
    by_level: dict[int, list[FabricDevice]] = defaultdict(list)
    for switch in fabric.switches:
        by_level[switch.level or 0].append(switch)
    for level in range(2, max(by_level, default=0) + 1):
        above: dict[str, int] = {}
        for group, children in _parents(by_level[level], below, level):
            above.update(dict.fromkeys(group, len(found)))
            found.append(Part(level, tuple(group), tuple(children)))
        below = above
    return tuple(found)


def slurm_tree(fabric: Fabric, nodes: Collection[str] | None = None) -> tuple[TreeSwitch, ...]:
    """The tree for topology.conf: every node in one leaf, every switch under one parent. Leaves that share their nodes
    (rails) are one switch, and so are the switches above that share what is below."""
    taken: set[str] = set()
    names: list[str] = []
    found: list[TreeSwitch] = []
    for part in tree_parts(fabric, nodes):
        if part.level == 1:
            name = part.devices[0] if len(part.devices) == 1 else f"unit-{part.label}"
        else:
            name = joint_name(sorted(short_names(list(part.devices)).values()), f"level{part.level}")
        names.append(_free(name, taken))
        found.append(TreeSwitch(names[-1], tuple(sorted(names[place] for place in part.below)), part.nodes))
    return tuple(found)


def _parents(switches: list[FabricDevice], below: dict[str, int], level: int) -> list[tuple[list[str], list[int]]]:
    """(switches that are one in the tree, what hangs under them). Above the second level a switch that reaches one part
    alone is no parent: it joins nothing, and most often it is a leaf without hosts."""
    children = {switch.name: sorted({below[port.peer] for port in switch.ports if port.peer in below})
                for switch in switches}
    children = {name: places for name, places in children.items() if len(places) > (level > 2)}
    group = {place: place for places in children.values() for place in places}
    for places in children.values():
        for place in places[1:]:
            _join(group, places[0], place)
    found: dict[int, tuple[list[str], list[int]]] = {}
    for place in group:
        found.setdefault(_root(group, place), ([], []))[1].append(place)
    for switch, places in sorted(children.items()):
        found[_root(group, places[0])][0].append(switch)
    return sorted(((sorted(above), sorted(under)) for above, under in found.values()), key=lambda pair: pair[1])


def _free(name: str, taken: set[str]) -> str:
    """A name that Slurm takes and that nothing else has."""
    clean = "".join(char if hosts.is_node_name(char) or char in "-." else "-" for char in name).strip("-.") or "switch"
    free, number = clean, 2
    while free in taken:
        free, number = f"{clean}-{number}", number + 1
    taken.add(free)
    return free


def topology_conf(fabric: Fabric, nodes: Collection[str] | None = None) -> tuple[str, ...]:
    """The lines SwitchName=… of topology.conf (topology/tree)."""
    return tuple(switch.line for switch in slurm_tree(fabric, nodes))


def left_out(fabric: Fabric) -> tuple[str, ...]:
    """Hosts on leaves that slurm_tree leaves out when nobody says which nodes Slurm has: services by their names. Where
    half of the hosts have such names, these mean something else."""
    names = {cable.host for cable in cables(fabric)}
    found = {name for name in names if is_service(name)}
    return tuple(sorted(found)) if 2 * len(found) < len(names) else ()


def rails(fabric: Fabric) -> dict[str, dict[str, str]]:
    """For each unit, the leaf that each adapter hangs on, as most of its nodes have it."""
    by_unit = {leaf: unit for unit in units(fabric) for leaf in unit.leaves}
    seen: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for cable in cables(fabric):
        if cable.adapter and cable.leaf in by_unit:
            seen[by_unit[cable.leaf].label, cable.adapter][cable.leaf] += 1
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (label, adapter), leaves in sorted(seen.items()):
        leaf, count = leaves.most_common(1)[0]
        if 2 * count > sum(leaves.values()):
            found[label][adapter] = leaf
    return dict(found)

"""Slurm's tree from a fabric: a leaf for each unit, switches that share what is below them made one, one root."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.topology_names import free, switch_names
from hpcadmin.conf.topology_parts import Switch, Tree, some
from hpcadmin.conf.topology_view import View, loose, matching, near_gpus, only_switches, view_of
from hpcadmin.fabric.tree import Part, leaves_by_host, tree_parts
from hpcadmin.model import Fabric, Node
from hpcadmin.site_topology import TopologySite

OFF_FABRIC = "off-fabric"
SOURCES = {"infiniband": "fabric dump", "ethernet": "LLDP and Ethernet dumps"}


@dataclass
class Growing:
    """Switches while the tree is put together; `below` holds places."""

    switches: list[Switch] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def add(self, switch: Switch, below: Sequence[int] = ()) -> int:
        self.switches.append(switch)
        self.below.append(list(below))
        self.taken.add(switch.name)
        return len(self.switches) - 1

    def roots(self) -> list[int]:
        under = {place for places in self.below for place in places}
        return [place for place in range(len(self.switches)) if place not in under]

    def nodes_under(self, place: int) -> list[str]:
        own = list(self.switches[place].nodes)
        return own + [node for below in self.below[place] for node in self.nodes_under(below)]

    def top(self, roots: Sequence[int], why: str, source: str, key: str = "") -> int:
        name = free("top", self.taken)
        return self.add(Switch(name, why, source, key=key), roots)

    def finished(self, *, prune: bool = True) -> tuple[Switch, ...]:
        """From the top down, leaves last, each level in the order of the names. A root over one switch says nothing."""
        roots = self.roots()
        while prune and len(roots) == 1 and len(self.below[roots[0]]) == 1:
            roots = self.below[roots[0]]
        height: dict[int, int] = {}

        def measure(place: int) -> int:
            height[place] = 1 + max(map(measure, self.below[place]), default=0)
            return height[place]

        for root in roots:
            measure(root)
        order = sorted(height, key=lambda place: (-height[place] if self.below[place] else 0,
                                                  natural(self.switches[place].name)))
        inner = [place for place in order if self.below[place]]
        leaves = [place for place in order if not self.below[place]]
        return tuple(replace(self.switches[place], children=tuple(sorted(
            (self.switches[below].name for below in self.below[place]), key=natural))) for place in [*inner, *leaves])


def tree_of(fabric: Fabric, nodes: Sequence[Node], site: TopologySite) -> Tree:
    """The tree of one fabric for `nodes`, those that Slurm has."""
    tree = Tree(told=True)
    view = view_of(fabric, nodes)
    if view.others:
        tree.notes.append(f"left out of the tree, no nodes of Slurm: {some(view.others)}")
    if view.nameless:
        tree.notes.append(f"left out of the tree: {view.nameless} adapters that name no host and are no node's by "
                          "their GUID")
    if site.fabric:
        view, missing = matching(view, site.fabric)
        tree.problems += [Problem(Kind.SITE, f"[topology] no switch of the {fabric.kind} fabric is called "
                                  f"{pattern[:60]!r}", key="topology.fabric",
                                  hint=f"there are {some([switch.name for switch in fabric.switches])}")
                          for pattern in missing]
    view, told = near_gpus(view, nodes)
    tree.notes += [told] if told else []
    names = {node.name for node in nodes}
    view, parts = _one_network(view, names, tree)
    growing = _grown(view, parts, SOURCES[fabric.kind])
    _join_connected(growing, parts, view)
    islands(growing, site, tree)
    _lost(growing, view, nodes, site, tree)
    tree.switches = growing.finished()
    return tree


def _one_network(view: View, names: set[str], tree: Tree) -> tuple[View, tuple[Part, ...]]:
    """Where several fabrics without a cable between them reach the same nodes: both when their leaves hold the same
    nodes (planes of one network), else the one with clearly more cables."""
    parts = tree_parts(view.fabric, names, view.units)
    reach = _reach(view)
    rivals = _rivals(reach)
    if not rivals:
        if _unsure(view):
            tree.problems.append(_alike(view))
        return view, parts
    told = "; ".join(f"that of {root} has {len(reach[root])} nodes on {sum(reach[root].values())} cables"
                     for root in sorted(rivals))
    if _agree(parts, view):
        used = {view.part_of[device] for part in parts for device in part.devices}
        if rivals - used:
            tree.notes.append(f"left out of the tree: {some(sorted(rivals - used))}, which reach the same nodes and "
                              "tell fewer of them apart ([topology] fabric names another)")
        return view, parts
    sizes = {root: sum(reach[root].values()) for root in rivals}
    best, second = sorted(rivals, key=lambda root: (-sizes[root], root))[:2]
    if 2 * sizes[best] < 3 * sizes[second] or loose(view):
        tree.problems.append(Problem(
            Kind.SITE, f"{len(rivals)} fabrics without a cable between them reach the same nodes: {told}",
            key="topology.fabric", hint=f'[topology] fabric = ["{best}"] names switches of the one that jobs use'))
    else:
        tree.notes.append(f"{len(rivals)} fabrics without a cable between them reach the same nodes: {told}; the tree "
                          f"is that of {best} ([topology] fabric names another)")
    dropped = rivals - {best}
    view = only_switches(view, lambda device: view.part_of[device.name] not in dropped)
    return view, tree_parts(view.fabric, names, view.units)


def _reach(view: View) -> dict[str, dict[str, int]]:
    """For each part of the fabric that hangs together, its nodes and their number of cables."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for cable in view.cables:
        found[view.part_of[cable.leaf]][cable.host] += 1
    return found


def _rivals(reach: dict[str, dict[str, int]]) -> set[str]:
    """Parts that share more than half of their nodes with another, smaller or as large."""
    of_node: dict[str, list[str]] = defaultdict(list)
    for root, hosts in reach.items():
        for host in hosts:
            of_node[host].append(root)
    shared: dict[tuple[str, str], int] = defaultdict(int)
    for roots in of_node.values():
        for one in roots[:8]:
            for other in roots[:8]:
                if one < other:
                    shared[one, other] += 1
    return {root for pair, count in shared.items() for root in pair
            if 2 * count > min(len(reach[pair[0]]), len(reach[pair[1]]))}


def _agree(parts: Sequence[Part], view: View) -> bool:
    """Most nodes are placed, few are as much at home in another unit (a crossed cable), and one switch reaches all."""
    if 2 * sum(len(part.nodes) for part in parts) < len({cable.host for cable in view.cables}) or _unsure(view):
        return False
    under = {place for part in parts for place in part.below}
    return sum(place not in under for place in range(len(parts))) == 1 or all(part.level == 1 for part in parts)


def _unsure(view: View) -> bool:
    """Whether many nodes are as much at home in another unit, with as many nodes on its leaves or nodes of its own:
    then nothing but the names of the switches would decide."""
    unit_of = {leaf: place for place, unit in enumerate(view.units) for leaf in unit.leaves}
    home = {node: place for place, unit in enumerate(view.units) for node in unit.nodes}
    by_host = leaves_by_host(view.cables)
    on_leaf = Counter(leaf for leaves in by_host.values() for leaf in leaves)
    size = [max((on_leaf[leaf] for leaf in unit.leaves), default=0) for unit in view.units]
    unsure = 0
    for host, leaves in by_host.items():
        weight: Counter[int] = Counter()
        for leaf, count in leaves.items():
            weight[unit_of[leaf]] += count
        own = home.get(host)
        unsure += own is not None and any(
            weight[place] >= weight[own] and (view.units[place].nodes or size[place] == size[own])
            for place in weight if place != own)
    return 4 * unsure > len(by_host)


def _alike(view: View) -> Problem:
    by_host = leaves_by_host(view.cables)
    host, leaves = max(sorted(by_host.items()), key=lambda item: len(item[1]))
    hint = "name the tree in [topology.switches]"
    if loose(view):
        hint = f'[topology] fabric = ["{min(leaves)}", …] names the switches that jobs use (patterns as leaf*)'
    return Problem(Kind.SITE, f"many nodes hang alike on switches that hold other nodes together, as {host} on "
                   f"{some(sorted(leaves))}: which of them is the network that jobs use is not known",
                   key="topology.fabric", hint=hint)


def _grown(view: View, parts: Sequence[Part], source: str) -> Growing:
    names = switch_names(parts, {device.name: device.guid for device in view.fabric.switches})
    growing = Growing()
    part_of: dict[str, int] = {}
    for part, name in zip(parts, names, strict=True):
        place = growing.add(Switch(name, _why(part), source, nodes=part.nodes), part.below)
        part_of.update(dict.fromkeys(part.devices, place))
    placed = {node for part in parts for node in part.nodes}
    direct: dict[int, list[str]] = defaultdict(list)
    for host, switches in view.above.items():
        own = next((part_of[switch] for switch in switches if switch in part_of), None)
        if host not in placed and own is not None:
            direct[own].append(host)
    for place, hosts in sorted(direct.items()):
        name = growing.switches[place].name
        why = f"plugged into {name} itself; Slurm takes nodes or switches below a switch, not both"
        leaf = growing.add(Switch(free(f"{name}-nodes", growing.taken), why, source, tuple(sorted(hosts))))
        growing.below[place].append(leaf)
    return growing


def _why(part: Part) -> str:
    several = f"{len(part.devices)} switches ({some(part.devices)})"
    if part.level == 1:
        return (f"the nodes with cables in {part.devices[0]}" if len(part.devices) == 1 else
                f"one unit: {several} that share their nodes")
    return (f"{part.devices[0]} reaches these" if len(part.devices) == 1 else
            f"{several} reach the same: one switch for Slurm")


def _join_connected(growing: Growing, parts: Sequence[Part], view: View) -> None:
    """Roots that cables join otherwise than by a switch above them are under one; so is all that only LLDP tells of."""
    together: dict[str, str] = {}

    def root(name: str) -> str:
        while together.get(name, name) != name:
            name = together[name]
        return name

    for part in parts:
        own = sorted({root(view.part_of[device]) for device in part.devices})
        together.update(dict.fromkeys(own[1:], own[0]))
    alone = loose(view)
    groups: dict[str, list[int]] = defaultdict(list)
    for place in growing.roots():
        device = parts[place].devices[0]
        groups["" if alone else root(view.part_of[device])].append(place)
    for _, places in sorted(groups.items()):
        if len(places) > 1:
            growing.top(places, "LLDP on the nodes ends at their leaves; these reach one another over IP" if alone else
                        "cables join these switches, without one above them", SOURCES[view.fabric.kind])


def islands(growing: Growing, site: TopologySite, tree: Tree, joins: str = "cable") -> None:
    """Several roots stay only where the site says so."""
    roots = growing.roots()
    if len(roots) < 2:
        return
    parts = "; ".join(f"{growing.switches[place].name} ({slurm_list(growing.nodes_under(place))[:100]})"
                      for place in roots[:4]) + (f" and {len(roots) - 4} more" if len(roots) > 4 else "")
    if site.islands == "keep":
        tree.notes.append(f"no job can span the {len(roots)} parts that no {joins} joins: {parts}; slurmctld will warn "
                          "of it ([topology] islands)")
    elif site.islands == "join":
        growing.top(roots, f"the site joins {len(roots)} parts of the network that no {joins} joins",
                    "site.toml [topology] islands", "topology.islands")
    else:
        tree.problems.append(Problem(
            Kind.SITE, f"the network is in {len(roots)} parts that no {joins} joins, no job could span them: {parts}",
            key="topology.islands", hint='[topology] islands = "join" puts a switch above them, "keep" leaves them '
            "apart; or discover the fabric again where switches are missing"))


def _lost(growing: Growing, view: View, nodes: Sequence[Node], site: TopologySite, tree: Tree) -> None:
    """Nodes on no switch: a leaf of their own where they have no adapter for this network, or the site says so."""
    placed = {node for switch in growing.switches for node in switch.nodes}
    lost = [node for node in nodes if node.name not in placed]
    if not lost or not placed:
        return
    seen = {cable.host for cable in view.cables}
    able = [node for node in lost if _has_adapter(node, view.fabric.kind) or node.name in seen]
    named = lost if site.off_fabric == "refuse" else able if site.off_fabric == "" else []
    hint = 'discover the fabric again, or [topology] off_fabric = "leaf"'
    tree.problems += [Problem(Kind.UNKNOWN, _where(node, view), node.name, "topology.off_fabric", hint)
                      for node in named[:20]]
    if len(named) > 20:
        tree.problems.append(Problem(Kind.UNKNOWN, f"{len(named) - 20} more nodes are on no switch of the fabric",
                                     key="topology.off_fabric"))
    if not named:
        off_fabric(growing, [node.name for node in lost], site, tree, "no cable of theirs is in the fabric")


def off_fabric(growing: Growing, lost: Sequence[str], site: TopologySite, tree: Tree, why: str) -> None:
    """A leaf with the nodes that are on no switch: below the top, or a root of its own."""
    own = site.off_fabric in ("leaf", "island")
    source, key = ("site.toml [topology] off_fabric", "topology.off_fabric") if own else ("inventory", "")
    roots = growing.roots()
    name = free(OFF_FABRIC, growing.taken)
    leaf = growing.add(Switch(name, why, source, tuple(sorted(lost, key=natural)), key=key))
    if site.off_fabric == "island":
        tree.notes.append(f"on no switch: {slurm_list(lost)} ({why}); they are a root of their own, {name}: slurmctld "
                          "will warn that no switch reaches all nodes ([topology] off_fabric)")
        return
    tree.notes.append(f"on no switch: {slurm_list(lost)} ({why}); leaf {name} has them")
    for place in roots:
        if growing.below[place]:
            growing.below[place].append(leaf)
            return
    growing.top([*roots, leaf], "so that jobs may use nodes of both", source, key)


def _has_adapter(node: Node, kind: str) -> bool:
    """Whether the node should be in the fabric; one whose adapters nobody told of should."""
    if kind == "ethernet" or node.lacks("nics") or node.lacks("rdma"):
        return True
    return any(nic.link_layer == "InfiniBand" and not nic.virtual for nic in node.nics)


def _where(node: Node, view: View) -> str:
    leaves = sorted({cable.leaf for cable in view.cables if cable.host == node.name})
    if leaves:
        return f"hangs on {some(leaves)} alone, whose other nodes are at home elsewhere"
    if node.name in view.above:
        return f"hangs on {some(view.above[node.name])}, which no leaf reaches"
    if view.fabric.kind == "ethernet":
        return "is on no switch: neither LLDP on it nor on a switch tells"
    return "is on no switch of the fabric, and should be by its adapters"

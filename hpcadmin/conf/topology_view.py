"""What of a fabric matters to Slurm: its own nodes' cables to the network that jobs use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from hpcadmin.fabric.names import is_aggregation
from hpcadmin.fabric.tree import Cable, Unit, cables, units
from hpcadmin.model import Fabric, FabricDevice, Node, SwitchPort
from hpcadmin.topology import rails


@dataclass(frozen=True)
class View:
    """A fabric with Slurm's nodes alone. above: cables of nodes in switches that are no leaves, by node.

    part_of: of each switch, the switch that stands for all that cables between switches join it with. others: hosts
    that Slurm does not know. nameless: adapters with a cable that are nobody's.
    """

    fabric: Fabric
    units: tuple[Unit, ...]
    cables: tuple[Cable, ...]
    above: Mapping[str, tuple[str, ...]]
    part_of: Mapping[str, str]
    others: tuple[str, ...]
    nameless: int = 0


def view_of(fabric: Fabric, nodes: Sequence[Node]) -> View:
    """`fabric` without hosts that Slurm does not know (others): storage, login, SHARP's own nodes."""
    names = {node.name for node in nodes}
    alias = _aliases(nodes)
    devices, others, nameless = [], set(), 0
    for device in fabric.devices:
        if device.kind != "ca":
            devices.append(device)
            continue
        if is_aggregation(device.description):
            continue
        if not device.host:
            nameless += any(port.peer for port in device.ports)
            continue
        host = device.host if device.host in names else alias.get(device.host.casefold(), "")
        if host:
            devices.append(device if host == device.host else replace(device, host=host))
        else:
            others.add(device.host)
    view = _viewed(replace(fabric, devices=tuple(devices)), tuple(sorted(others)), connected(fabric.switches))
    return replace(view, nameless=nameless)


def _viewed(fabric: Fabric, others: tuple[str, ...], part_of: Mapping[str, str]) -> View:
    links = cables(fabric)
    return View(fabric, units(fabric, links), links, _above(fabric), part_of, others)


def _aliases(nodes: Iterable[Node]) -> dict[str, str]:
    """Other writings of the nodes' names, each of one node alone, in small letters."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for name in (node.name, node.hostname):
            for form in {name, name.partition(".")[0]} - {""}:
                found[form.casefold()].add(node.name)
    return {form: next(iter(names)) for form, names in found.items() if len(names) == 1}


def _above(fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """By host, the switches above the leaves that it has cables on."""
    hosts = {device.name: device.host for device in fabric.devices if device.kind == "ca"}
    found: dict[str, list[str]] = defaultdict(list)
    for switch in fabric.switches:
        if switch.level != 1:
            for port in switch.ports:
                if port.peer in hosts:
                    found[hosts[port.peer]].append(switch.name)
    return {host: tuple(sorted(set(switches))) for host, switches in found.items()}


def connected(switches: Sequence[FabricDevice]) -> dict[str, str]:
    """For each switch the first by name of those that cables between switches join it with."""
    group = {switch.name: switch.name for switch in switches}

    def root(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for switch in switches:
        for peer in {port.peer for port in switch.ports}:
            if peer in group:
                low, high = sorted((root(switch.name), root(peer)))
                group[high] = low
    return {name: root(name) for name in group}


def loose(view: View) -> bool:
    """Whether LLDP on nodes is all that is known: then no cable between switches is."""
    return view.fabric.kind == "ethernet" and len(set(view.part_of.values())) == len(view.part_of)


def only_switches(view: View, keep: Callable[[FabricDevice], bool]) -> View:
    """`view` without the other switches."""
    fabric = replace(view.fabric, devices=tuple(d for d in view.fabric.devices if d.kind != "switch" or keep(d)))
    return _viewed(fabric, view.others, view.part_of)


def matching(view: View, patterns: Sequence[str]) -> tuple[View, list[str]]:
    """(the parts of the fabric that have one of the named switches, patterns that name none)."""
    found: set[str] = set()
    missing = []
    for pattern in patterns:
        own = {view.part_of[d.name] for d in view.fabric.switches
               if fnmatchcase(d.name, pattern) or (d.guid and d.guid == pattern.casefold().removeprefix("0x"))}
        if not own:
            missing.append(pattern)
        found |= own
    return only_switches(view, lambda device: view.part_of[device.name] in found), missing


def near_gpus(view: View, nodes: Sequence[Node]) -> tuple[View, str]:
    """(`view` with the cables of the adapters near GPUs alone, of nodes that hang on several units; what was done).

    Where GPUs say nothing, the fastest adapters are the ones that jobs use.
    """
    unit_of = {leaf: place for place, unit in enumerate(view.units) for leaf in unit.leaves}
    by_host: dict[str, list[Cable]] = defaultdict(list)
    for cable in view.cables:
        by_host[cable.host].append(cable)
    several = {host: own for host, own in by_host.items() if len({unit_of[cable.leaf] for cable in own}) > 1}
    if not several:
        return view, ""
    wanted = _Wanted()
    dropped: set[tuple[str, int]] = set()
    why: dict[str, int] = defaultdict(int)
    for node in nodes:
        for cable, reason in wanted.dropped(node, several.get(node.name, [])):
            dropped.add((cable.leaf, cable.port))
            why[reason] += 1
    if not dropped:
        return view, ""
    fabric = replace(view.fabric, devices=tuple(_unplugged(d, dropped) for d in view.fabric.devices))
    told = "; ".join(f"{count} cables of {reason}" for reason, count in sorted(why.items()))
    return _viewed(fabric, view.others, view.part_of), f"left out of the tree: {told}"


def _unplugged(device: FabricDevice, dropped: set[tuple[str, int]]) -> FabricDevice:
    if device.kind != "switch" or device.level != 1:
        return device
    ports: list[SwitchPort] = [port for port in device.ports if (device.name, port.number) not in dropped]
    return device if len(ports) == len(device.ports) else replace(device, ports=tuple(ports))


class _Wanted:
    """Which adapters of a node jobs use; nodes with the same hardware are looked at once."""

    def __init__(self) -> None:
        self._near: dict[object, frozenset[str]] = {}

    def dropped(self, node: Node, own: Sequence[Cable]) -> list[tuple[Cable, str]]:
        if not own:
            return []
        near = self._names(node)
        rates = {name: nic.rate_gbps for nic in node.nics for name in (nic.rdma, nic.netdev, nic.name) if name}
        if any(cable.adapter in near for cable in own):
            return [(cable, "adapters that are near no GPU") for cable in own
                    if cable.adapter in rates and cable.adapter not in near]
        told = [rates.get(cable.adapter) for cable in own]
        if any(rate is None for rate in told):
            return []
        best = max(rate for rate in told if rate is not None)
        return [(cable, "adapters slower than the node's others") for cable, rate in zip(own, told, strict=True)
                if rate is not None and 2 * rate <= best]

    def _names(self, node: Node) -> frozenset[str]:
        key = (tuple((n.name, n.rdma, n.netdev, n.pci, n.numa, n.gpu_relations) for n in node.nics),
               tuple((g.pci, g.index, g.numa) for g in node.gpus), tuple((d.address, d.parent) for d in node.pci))
        if key not in self._near:
            near = {item.nic for item in rails(node)}
            self._near[key] = frozenset(name for nic in node.nics if nic.name in near
                                        for name in (nic.name, nic.rdma, nic.netdev) if name)
        return self._near[key]

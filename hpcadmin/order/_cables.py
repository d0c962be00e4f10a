"""The cable plan against what the fabric's dumps and LLDP say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.model import Fabric, FabricDevice, Inventory, Nic, Node, SwitchPort
from hpcadmin.order._records import Cable
from hpcadmin.order._result import Result

_NAME = re.compile(r"[a-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class End:
    """What a node's port is plugged into. switch "": nothing."""

    switch: str
    port: str
    guid: str = ""


class _World:
    """The other ends of cables, by adapter GUID and port, by node and device, by node and interface."""

    def __init__(self, inventory: Inventory) -> None:
        self.by_guid: dict[tuple[str, int], End] = {}
        self.by_device: dict[tuple[str, str, int], End] = {}
        self.known_guids: set[str] = set()
        self.whole = {"infiniband": False, "ethernet": False}
        for fabric in inventory.fabrics:
            self.whole[fabric.kind] = bool(fabric.devices) and not fabric.incomplete
            self._adapters(fabric)
            self._switches(fabric)
        self.lldp = {(node.name, own): End(switch, port) for node in inventory.nodes
                     for own, switch, port in node.neighbours}

    def _adapters(self, fabric: Fabric) -> None:
        for device in fabric.devices:
            if device.kind == "switch":
                continue
            self.known_guids.add(_guid(device.guid))
            for port in device.ports:
                end = End(port.peer, "" if port.peer_port is None else str(port.peer_port), _guid(port.peer_guid))
                self._put(device, port, end)

    def _put(self, device: FabricDevice, port: SwitchPort, end: End) -> None:
        if device.guid:
            self.by_guid.setdefault((_guid(device.guid), port.number), end)
        if device.host and device.device:
            self.by_device.setdefault((device.host, device.device, port.number), end)

    def _switches(self, fabric: Fabric) -> None:
        """Their side of the cables, for adapters that are not described themselves."""
        for switch in fabric.switches:
            for port in switch.ports:
                if port.peer_guid:
                    guid = _guid(port.peer_guid)
                    self.known_guids.add(guid)
                    self.by_guid.setdefault((guid, port.peer_port or 1),
                                            End(switch.name, str(port.number), _guid(switch.guid)))

    def end(self, node: Node, nic: Nic) -> tuple[End | None, str]:
        """(what is at the other end, ""), or (None, why that is not known)."""
        number = nic.port or 1
        for guid in (nic.guid, nic.port_guid):
            if guid and (_guid(guid), number) in self.by_guid:
                return self.by_guid[_guid(guid), number], ""
        if (node.name, nic.rdma, number) in self.by_device:
            return self.by_device[node.name, nic.rdma, number], ""
        for own in (nic.netdev, nic.name):
            if own and (node.name, own) in self.lldp:
                return self.lldp[node.name, own], ""
        if nic.link_layer == "InfiniBand":
            if self.whole["infiniband"] and nic.guid:
                return End("", ""), ""
            return None, "no whole picture of the fabric" if nic.guid else "the adapter's GUID is unknown"
        return None, "no LLDP neighbour is known"


def compare(result: Result, cables: Sequence[Cable], inventory: Inventory) -> None:
    world = _World(inventory)
    nodes = {node.name: node for node in inventory.nodes}
    failed = {item.node: item.reason for item in inventory.failed}
    planned: dict[str, set[tuple[str, int | None]]] = {}
    for cable in cables:
        node, item = nodes.get(cable.node), f"cable of {cable.port}"
        if node is None:
            why = f"not captured: {failed[cable.node]}" if cable.node in failed else "there is no such node"
            result.judge(cable.node, item, "", "", None, reason=why)
            continue
        nic = _nic(node, cable.port)
        if nic is None:
            known = "nics" not in node.unknown and "rdma" not in node.unknown
            result.judge(cable.node, item, "a port of that name", "none", False if known else None, kind="missing")
            continue
        planned.setdefault(node.name, set()).add((nic.name, nic.port))
        _one(result, world, cable, node, nic)
    _extra(result, world, nodes, planned)


def _one(result: Result, world: _World, cable: Cable, node: Node, nic: Nic) -> None:
    item, ordered = f"cable of {cable.port}", f"{cable.switch} port {cable.switch_port}"
    end, why = world.end(node, nic)
    if end is None:
        result.judge(node.name, item, ordered, "", None, reason=why)
        return
    if not end.switch and not end.guid:
        result.judge(node.name, item, ordered, "nothing plugged in", False, kind="missing")
        return
    found = f"{end.switch or end.guid} port {end.port or '?'}"
    agrees: bool | None = _is_switch(cable.switch, end)
    if agrees:
        agrees = _same_port(cable.switch_port, end.port)
    result.judge(node.name, item, ordered, found, agrees,
                 reason=f"port {cable.switch_port} in the plan, port {end.port or 'unknown'} of {end.switch}: not "
                 "numbered alike")


def _extra(result: Result, world: _World, nodes: dict[str, Node],
           planned: dict[str, set[tuple[str, int | None]]]) -> None:
    """Cables of nodes in the plan that are not in it."""
    for name, ports in planned.items():
        for nic in nodes[name].nics:
            if nic.virtual or nic.pf or (nic.name, nic.port) in ports:
                continue
            end, _ = world.end(nodes[name], nic)
            if end is not None and end.switch:
                found = f"{end.switch} port {end.port or '?'}"
                result.judge(name, f"cable of {nic.name}", "none", found, False, kind="extra")


def _nic(node: Node, port: str) -> Nic | None:
    """By "mlx5_0", "mlx5_0/1", "mlx5_0 port 1", "ib0", or its GUID."""
    wanted = port.strip().casefold()
    guid = _guid(wanted)
    name, number = wanted, None
    match = re.fullmatch(r"(.{1,64}?)(?:/p?| port | p)([0-9]{1,3})", wanted)
    if match:
        name, number = match[1], int(match[2])
    for nic in node.nics:
        if wanted in (nic.name.casefold(), nic.netdev.casefold()) and nic.port in (None, 1):
            return nic
        if guid and guid in (_guid(nic.guid), _guid(nic.port_guid)):
            return nic
    return next((nic for nic in node.nics if number is not None and nic.port == number
                 and name in (nic.name.casefold(), nic.rdma.casefold())), None)


def _guid(text: str) -> str:
    """Sixteen small hex digits; "" when it is no GUID."""
    digits = text.casefold().removeprefix("0x").replace(":", "")
    return digits if re.fullmatch(r"[0-9a-f]{16}", digits) else ""


def _is_switch(planned: str, end: End) -> bool:
    """The plan's name, a word of the description (MF0;leaf01:MQM9700/U1), the name without its domain, or the GUID."""
    wanted = planned.strip().casefold()
    if _guid(wanted):
        return _guid(wanted) == end.guid
    return wanted == end.switch.casefold() or wanted in _NAME.findall(end.switch.casefold())


def _same_port(planned: str, found: str) -> bool | None:
    """By the numbers in them: 12, swp12 and Ethernet12 are the same; 1/12 and 23 cannot be compared."""
    ours, theirs = ([int(part) for part in _NUMBER.findall(text)] for text in (planned, found))
    if planned.casefold() == found.casefold():
        return True
    return ours == theirs if ours and len(ours) == len(theirs) else None

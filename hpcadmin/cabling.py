"""What each adapter port of a node is plugged into, by the fabric's dumps and by LLDP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hpcadmin.model import Fabric, FabricDevice, Inventory, Nic, Node, SwitchPort

_GUID = re.compile(r"[0-9a-f]{16}\Z")


@dataclass(frozen=True)
class End:
    """The other end of a cable. switch "" and guid "": nothing."""

    switch: str
    port: str
    guid: str = ""

    @property
    def text(self) -> str:
        if not self.switch and not self.guid:
            return "nothing"
        return f"{self.switch or self.guid} port {self.port or '?'}"


def guid(text: str) -> str:
    """Sixteen small hex digits; "" when it is no GUID."""
    digits = text.casefold().removeprefix("0x").replace(":", "")
    return digits if _GUID.match(digits) else ""


def _other_port(port: SwitchPort) -> str:
    """As the other end calls it: by name on Ethernet, by number on InfiniBand."""
    return port.peer_name or ("" if port.peer_port is None else str(port.peer_port))


class Cabling:
    """By adapter GUID and port, by node and device, by node and interface."""

    def __init__(self, inventory: Inventory) -> None:
        self._by_guid: dict[tuple[str, int], End] = {}
        self._by_device: dict[tuple[str, str, int], End] = {}
        self.whole = {"infiniband": False, "ethernet": False}
        self.known = bool(inventory.fabrics)
        for fabric in inventory.fabrics:
            self.whole[fabric.kind] = bool(fabric.devices) and not fabric.incomplete
            self._adapters(fabric)
            self._switches(fabric)
        self._lldp = {(node.name, own): End(switch, port) for node in inventory.nodes
                      for own, switch, port in node.neighbours}

    def _adapters(self, fabric: Fabric) -> None:
        for device in fabric.devices:
            if device.kind != "switch":
                for port in device.ports:
                    end = End(port.peer, _other_port(port), guid(port.peer_guid))
                    self._put(device, port, end)

    def _put(self, device: FabricDevice, port: SwitchPort, end: End) -> None:
        if device.guid:
            self._by_guid.setdefault((guid(device.guid), port.number), end)
        if device.host and device.device:
            self._by_device.setdefault((device.host, device.device, port.number), end)
        if device.host and port.name:                       # of Ethernet: the interface
            self._by_device.setdefault((device.host, port.name, 0), end)

    def _switches(self, fabric: Fabric) -> None:
        """Their side of the cables, for adapters that are not described themselves."""
        for switch in fabric.switches:
            for port in switch.ports:
                if port.peer_guid:
                    self._by_guid.setdefault((guid(port.peer_guid), port.peer_port or 1),
                                             End(switch.name, port.name or str(port.number), guid(switch.guid)))

    def end(self, node: Node, nic: Nic) -> tuple[End | None, str]:
        """(what is at the other end, ""), or (None, why that is not known)."""
        number = nic.port or 1
        for own in (nic.guid, nic.port_guid):
            if own and (guid(own), number) in self._by_guid:
                return self._by_guid[guid(own), number], ""
        if (node.name, nic.rdma, number) in self._by_device:
            return self._by_device[node.name, nic.rdma, number], ""
        for name in (nic.netdev, nic.name):
            if name and (node.name, name, 0) in self._by_device:
                return self._by_device[node.name, name, 0], ""
            if name and (node.name, name) in self._lldp:
                return self._lldp[node.name, name], ""
        if nic.link_layer == "InfiniBand":
            if self.whole["infiniband"] and nic.guid:
                return End("", ""), ""
            return None, "no whole picture of the fabric" if nic.guid else "the adapter's GUID is unknown"
        return None, "no LLDP neighbour is known"


def switch_links(fabric: Fabric) -> Iterator[tuple[tuple[str, int], tuple[str, End, str]]]:
    """((switch GUID or name, port), (name of the switch, the other end, width and speed)) of links between switches."""
    switches = {guid(switch.guid) or switch.name for switch in fabric.switches}
    for switch in fabric.switches:
        for port in switch.ports:
            if (guid(port.peer_guid) or port.peer) in switches:
                end = End(port.peer, _other_port(port), guid(port.peer_guid))
                yield ((guid(switch.guid) or switch.name, port.number),
                       (switch.name, end, " ".join(filter(None, (port.width, port.speed)))))

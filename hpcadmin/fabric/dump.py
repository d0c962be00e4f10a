"""What fabric dumps tell, port by port, and the devices that they make together.

A dump names the same device in many ways: by node GUID in its own block, by port GUID where it is a peer, by LID or by
description alone where a tool prints no more. What is one device is found from all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hpcadmin.fabric.names import host_of, is_generic

NO_LIDS = (None, 0, 0xFFFF)
MAX_CARD_PORTS = 16
SPEEDS = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR", "GDR")


@dataclass(frozen=True)
class End:
    """One end of a cable as a dump names it. port_name: of Ethernet ports ("swp1s3")."""

    port: int = 0
    kind: str = ""                   # "switch", "ca", "router"; "": not told
    guid: str = ""                   # of the device, 16 hex digits
    port_guid: str = ""
    lid: int | None = None
    description: str = ""
    port_name: str = ""


@dataclass(frozen=True)
class Line:
    """One port with what is plugged into it; there None: nothing."""

    here: End
    there: End | None = None
    width: str = ""                  # "4X"
    speed: str = ""                  # "NDR"; "": unknown
    state: str = ""
    physical: str = ""
    width_best: str = ""
    speed_best: str = ""
    line: int = 0


@dataclass(frozen=True)
class Dump:
    """A dump of one tool. blocks: devices that have a part of their own in it."""

    kind: str
    blocks: tuple[tuple[End, int], ...] = ()     # with the line
    lines: tuple[Line, ...] = ()
    fabric: str = "infiniband"


class Ends:
    """Ports of Ethernet devices, numbered as they come: swp1s3 is no number."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[str, int]] = {}

    def end(self, device: str, port: str, kind: str) -> End:
        own = self.numbers.setdefault(device, {})
        return End(own.setdefault(port, len(own) + 1), kind, description=device, port_name=port)


@dataclass
class Port:
    number: int
    name: str = ""
    peer: int | None = None          # place of the device in Devices.items
    peer_port: int | None = None
    lid: int | None = None
    guid: str = ""
    width: str = ""
    speed: str = ""
    state: str = ""
    physical: str = ""
    width_best: str = ""
    speed_best: str = ""
    line: int = 0
    own: bool = False                # told by the device itself, not only by what is plugged into it


@dataclass
class Device:
    kind: str = ""
    guid: str = ""
    lid: int | None = None
    description: str = ""
    block: int = 0                   # line of its own block; 0: known as a peer only
    named: int = 0                   # line in which its description is first told
    order: int = 0
    ports: dict[int, Port] = field(default_factory=dict)
    guids: set[str] = field(default_factory=set)


@dataclass
class Devices:
    """All devices of some dumps, in the order in which they first appear."""

    items: list[Device] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)


class _Same:
    """Union-find over names of devices."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.of: dict[tuple[str, object], int] = {}

    def find(self, key: tuple[str, object]) -> int:
        if key not in self.of:
            self.of[key] = len(self.parent)
            self.parent.append(len(self.parent))
        return self.root(self.of[key])

    def root(self, place: int) -> int:
        while self.parent[place] != place:
            self.parent[place] = self.parent[self.parent[place]]
            place = self.parent[place]
        return place

    def join(self, a: tuple[str, object], b: tuple[str, object]) -> None:
        self.unite(self.find(a), self.find(b))

    def unite(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self.parent[high] = low


def _keys(end: End, fabric: str) -> list[tuple[str, object]]:
    """What names the device for certain: GUIDs; without one its LID, without that its description."""
    found: list[tuple[str, object]] = [("guid", guid) for guid in (end.guid, end.port_guid) if guid]
    if not found and end.lid not in NO_LIDS:
        found.append(("lid", end.lid))
    if not found and end.description and not (is_generic(end.description) and fabric == "infiniband"):
        found.append(("name", end.description))
    return found


def devices_of(dumps: Iterable[Dump]) -> Devices:
    dumps = list(dumps)
    same = _Same()
    named = [(dump, line, _key(same, line.here, None, dump), _key(same, line.there, line, dump) if line.there else None)
             for dump in dumps for line in dump.lines]
    blocks = [(dump, end, number, _key(same, end, None, dump)) for dump in dumps for end, number in dump.blocks]
    _join_cables(same, named)
    _join_lids(same, [end for _, line, _, _ in named for end in (line.here, line.there) if end]
               + [end for _, end, _, _ in blocks])
    _join_ports(same, [(key, end) for _, line, *keys in named
                       for key, end in zip(keys, (line.here, line.there), strict=True) if key and end])
    found: dict[int, Device] = {}
    order: list[tuple[int, int, tuple[str, object], End, bool]] = [
        (number, 0, key, end, True) for _, end, number, key in blocks]
    order += [(line.line, 1 + side, key, end, False) for _, line, *keys in named
              for side, (key, end) in enumerate(zip(keys, (line.here, line.there), strict=True)) if key and end]
    result = Devices()
    for number, _, key, end, block in sorted(order, key=lambda item: item[:2]) if len(dumps) == 1 else order:
        device = found.setdefault(same.find(key), Device(order=len(found)))
        _tell(device, end, number, block)
    result.items = sorted(found.values(), key=lambda device: device.order)
    places = {root: device.order for root, device in found.items()}
    for _, line, here, there in named:
        _plug(result, places[same.find(here)], line, places[same.find(there)] if there else None)
    _kinds(result)
    return result


def _key(same: _Same, end: End, line: Line | None, dump: Dump) -> tuple[str, object]:
    """The end's first name, the others joined to it. What has none is known by what it is plugged into."""
    keys = _keys(end, dump.fabric)
    if not keys:
        other = _keys(line.here, dump.fabric) if line else []
        keys = [("at", (other[0], line.here.port))] if other and line else [("odd", id(end))]
    for key in keys:
        same.join(keys[0], key)
    return keys[0]


_Named = list[tuple[Dump, Line, tuple[str, object], "tuple[str, object] | None"]]


def _join_cables(same: _Same, named: _Named) -> None:
    """A cable that is told from both ends: the same LIDs and ports, crosswise (a peer is named by its port's GUID)."""
    seen: dict[tuple[object, ...], tuple[tuple[str, object], tuple[str, object]]] = {}
    for _, line, here, there in named:
        if line.there is None or there is None or line.here.lid in NO_LIDS or line.there.lid in NO_LIDS:
            continue
        back = seen.get((line.there.lid, line.there.port, line.here.lid, line.here.port))
        if back:
            same.join(here, back[1])
            same.join(there, back[0])
        seen[line.here.lid, line.here.port, line.there.lid, line.there.port] = (here, there)


def _join_lids(same: _Same, ends: list[End]) -> None:
    """A device that is known by LID alone is the one that has this LID, where there is only one."""
    owners: dict[int | None, set[str]] = {}
    for end in ends:
        if end.lid not in NO_LIDS and (end.guid or end.port_guid):
            owners.setdefault(end.lid, set()).add(end.guid or end.port_guid)
    for lid, guids in owners.items():
        if ("lid", lid) in same.of and len({same.find(("guid", guid)) for guid in guids}) == 1:
            same.join(("guid", next(iter(guids))), ("lid", lid))


def _join_ports(same: _Same, ends: list[tuple[tuple[str, object], End]]) -> None:
    """Ports of one adapter where a tool tells their own GUIDs alone: they have the adapter's description, and other
    numbers than each other (two hosts of one name have the same)."""
    cards: dict[str, dict[int, set[int]]] = {}
    for key, end in ends:
        if end.kind != "switch" and not end.guid and end.port_guid and all(host_of(end.description)):
            cards.setdefault(end.description, {}).setdefault(same.find(key), set()).add(end.port)
    for roots in cards.values():
        first, *others = roots
        numbers = [number for ports in roots.values() for number in ports]
        if len(numbers) <= MAX_CARD_PORTS and len(numbers) == len(set(numbers)):
            for other in others:
                same.unite(first, other)


def _tell(device: Device, end: End, number: int, block: bool) -> None:
    device.kind = device.kind or end.kind
    device.guid = device.guid or end.guid
    device.guids.update(guid for guid in (end.guid, end.port_guid) if guid)
    device.lid = end.lid if device.lid is None else device.lid
    if block:
        device.block = device.block or number
    if end.description and (not device.description or is_generic(device.description)):
        device.description = end.description
        device.named = device.named or number


def _plug(devices: Devices, here: int, line: Line, there: int | None) -> None:
    """The port with its cable, seen from `here`, and the same cable seen from the other end."""
    ends = [(here, line.here, there, line.there)]
    if there is not None and line.there is not None:
        ends.append((there, line.there, here, line.here))
    for number, (own, end, peer, other) in enumerate(ends):
        port = devices.items[own].ports.setdefault(end.port, Port(end.port))
        if port.peer is not None and peer is not None and (port.peer, port.peer_port) != (peer, other and other.port):
            devices.contradictions.append(
                f"{devices.items[own].description or devices.items[own].guid} port {end.port_name or end.port} has two "
                f"cables, to {devices.items[port.peer].description or devices.items[port.peer].guid} port "
                f"{port.peer_port} and to {devices.items[peer].description or devices.items[peer].guid} port "
                f"{other.port if other else '?'}")
            continue
        if peer is not None and other is not None:
            port.peer, port.peer_port = peer, other.port
        port.name = port.name or end.port_name
        port.lid = end.lid if port.lid is None else port.lid
        port.guid = port.guid or end.port_guid
        port.width, port.speed = port.width or line.width, port.speed or line.speed
        port.width_best, port.speed_best = port.width_best or line.width_best, port.speed_best or line.speed_best
        if number == 0:
            port.state, port.physical = port.state or line.state, port.physical or line.physical
            port.line, port.own = line.line if not port.own else port.line, True
        port.line = port.line or line.line


def _kinds(devices: Devices) -> None:
    """Where the dump does not tell: what has several ports under one LID is a switch, what is plugged into a switch and
    has an adapter's description is an adapter."""
    for device in devices.items:
        lids = {port.lid for port in device.ports.values()}
        if not device.kind and len(device.ports) > 1 and len(lids) == 1:
            device.kind = "switch"
        elif not device.kind and host_of(device.description)[1]:
            device.kind = "ca"
    for device in devices.items:
        peers = [devices.items[port.peer].kind for port in device.ports.values() if port.peer is not None]
        if not device.kind and peers:
            card = "switch" in peers and is_generic(device.description)
            device.kind = "switch" if "ca" in peers or max(device.ports) > 2 else "ca" if card else ""
        elif not device.kind and device.ports and max(device.ports) > 2:
            device.kind = "switch"

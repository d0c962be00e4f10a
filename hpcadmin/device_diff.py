"""Devices of two inventories paired by what they are (UUID, serial, GUID), then by where they are; never by order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin import differences as d
from hpcadmin.model import Dimm, Disk, Gpu, Nic, Node

Line = tuple[str, str, str, str, str]    # kind, node, what, old, new
_NAMED = 4
_BY_PLACE = frozenset({"index", "name", "minor number", "device file", "bond"})     # what another place brings with it
_OWN = frozenset({"serial", "MAC"})                                                 # what another device brings with it


@dataclass(frozen=True)
class Kind:
    """identity: "" where the device does not tell; place: on its node, "" where unknown."""

    name: str
    many: str
    parts: frozenset[str]            # as Node.unknown calls them
    devices: Callable[[Node], Iterable[Any]]
    identity: Callable[[Any], str]
    place: Callable[[Any], str]
    label: Callable[[Any], str]
    fields: Sequence[d.Field]


@dataclass(frozen=True)
class Item:
    node: str
    device: Any
    identity: str
    place: str


def compare(kind: Kind, old: dict[str, Node], new: dict[str, Node]) -> Iterator[Line]:
    """old and new: nodes by the name that they have now. Devices of a node that is in one of both alone are not told
    one by one, unless they moved."""
    for name in old.keys() & new.keys():
        was, is_now = ("unknown" if any(map(node.lacks, kind.parts)) else "known"
                       for node in (old[name], new[name]))
        if was != is_now:
            yield "changed", name, kind.many, was, is_now
    skipped = {name for name in old.keys() | new.keys()
               if any(any(map(side[name].lacks, kind.parts)) for side in (old, new) if name in side)}
    before, after = _items(kind, old, skipped), _items(kind, new, skipped)
    pairs, gone, come = _pair(before, after)
    changed: dict[tuple[str, str, str, str], list[str]] = {}
    for one, other in pairs:
        label = kind.label(other.device)
        fields: Iterable[d.Field] = kind.fields
        if one.node != other.node or (one.place != other.place and one.place and other.place):
            yield "moved", other.node, f"{label} ({one.identity})", _where(one), _where(other)
            fields = [field for field in fields if field.rank != d.CONNECTED and field.name not in _BY_PLACE]
        elif one.identity != other.identity and one.identity and other.identity:
            yield "replaced", other.node, f"{label} ({other.place})", one.identity, other.identity
            fields = [field for field in fields if field.name not in _OWN]
        for field in fields:
            ours, theirs = field.get(one.device), field.get(other.device)
            if ours != theirs:
                changed.setdefault((other.node, field.name, ours, theirs), []).append(label)
    for (node, name, ours, theirs), labels in changed.items():
        count = sum(1 for _ in kind.devices(new[node]))
        yield "changed", node, f"{_labels(labels, count, kind.many)}: {name}", ours or "unknown", theirs or "unknown"
    for item in gone:
        if item.node in new:
            yield "gone", item.node, _described(kind, item), "there", "gone"
    for item in come:
        if item.node in old:
            yield "new", item.node, _described(kind, item), "absent", "there"


def _items(kind: Kind, nodes: dict[str, Node], skipped: set[str]) -> list[Item]:
    found = [Item(name, device, kind.identity(device), kind.place(device)) for name, node in nodes.items()
             if name not in skipped for device in kind.devices(node)]
    twice = {identity for identity, count in Counter(item.identity for item in found).items() if count > 1}
    return [Item(item.node, item.device, "" if item.identity in twice else item.identity, item.place) for item in found]


def _pair(before: list[Item], after: list[Item]) -> tuple[list[tuple[Item, Item]], list[Item], list[Item]]:
    """(pairs, those that are gone, those that have come)."""
    pairs: list[tuple[Item, Item]] = []
    by_identity = {item.identity: item for item in after if item.identity}
    left, taken = [], set()
    for item in before:
        other = by_identity.get(item.identity) if item.identity else None
        if other is not None:
            pairs.append((item, other))
            taken.add(id(other))
        else:
            left.append(item)
    by_place: dict[tuple[str, str], list[Item]] = {}
    for item in after:
        if id(item) not in taken:
            by_place.setdefault((item.node, item.place), []).append(item)
    gone = []
    for item in left:
        there = by_place.get((item.node, item.place), [])
        if item.place and there:
            pairs.append((item, there.pop(0)))
        else:
            gone.append(item)
    return pairs, gone, [item for items in by_place.values() for item in items]


def _where(item: Item) -> str:
    return f"{item.node} {item.place}".strip()


def _described(kind: Kind, item: Item) -> str:
    about = ", ".join(filter(None, (item.place, item.identity)))
    label = kind.label(item.device)
    return f"{label} ({about})" if about and about != label else label


def _labels(labels: Sequence[str], count: int, many: str) -> str:
    if len(labels) <= _NAMED:
        return ", ".join(labels)
    return f"all {count} {many}" if len(labels) == count else f"{len(labels)} of {count} {many}"


def _hardware(node: Node) -> list[Nic]:
    return [nic for nic in node.nics if not nic.virtual and not nic.pf]


def _nic_identity(nic: Nic) -> str:
    own = nic.guid or nic.mac
    return f"{own}/{nic.port}" if own and nic.port else own


def _nic_place(nic: Nic) -> str:
    """Both ports of an adapter may have one PCI address."""
    place = nic.pci or nic.name
    return f"{place}/{nic.port}" if nic.port else place


def _size(value: int | None) -> str:
    return "" if value is None else str(value)


# What changes by itself, or is the identity or the place itself.
_GPU_FIELDS = (d.Field(d.HARDWARE, "model", lambda g: g.model), d.Field(d.HARDWARE, "index", lambda g: _size(g.index)),
               d.Field(d.HARDWARE, "serial", lambda g: g.serial), *d.GPU_FIELDS)
_NIC_FIELDS = (d.Field(d.HARDWARE, "name", d.nic_name), d.Field(d.HARDWARE, "serial", lambda n: n.serial),
               d.Field(d.HARDWARE, "MAC", lambda n: n.mac),
               *(field for field in d.NIC_FIELDS if field.name not in ("subnet manager's LID", "PCI address")))
_DIMM_FIELDS = tuple(d.Field(d.HARDWARE, name, get) for name, get in (
    ("size in MiB", lambda x: _size(x.size_mib)), ("kind", lambda x: x.kind),
    ("speed in MT/s", lambda x: _size(x.speed_mts)), ("part number", lambda x: x.part)))
_DISK_FIELDS = tuple(d.Field(d.HARDWARE, name, get) for name, get in (
    ("model", lambda x: x.model), ("size in bytes", lambda x: _size(x.size_bytes)),
    ("firmware", lambda x: x.firmware)))


def _gpu_label(gpu: Gpu) -> str:
    return d.gpu_name(gpu) if gpu.index is not None else f"GPU {gpu.pci}"


def _dimm_label(dimm: Dimm) -> str:
    return f"DIMM {dimm.slot}"


def _disk_label(disk: Disk) -> str:
    return f"disk {disk.name}"


KINDS: tuple[Kind, ...] = (
    Kind("GPU", "GPUs", frozenset({"gpus"}), lambda n: n.gpus, lambda g: g.uuid or g.serial, lambda g: g.pci,
         _gpu_label, _GPU_FIELDS),
    Kind("network port", "network ports", frozenset({"nics", "rdma"}), _hardware, _nic_identity, _nic_place,
         d.nic_name, _NIC_FIELDS),
    Kind("DIMM", "DIMMs", frozenset({"dimms"}), lambda n: [dimm for dimm in n.dimms if dimm.size_mib],
         lambda x: x.serial, lambda x: x.slot, _dimm_label, _DIMM_FIELDS),
    Kind("disk", "disks", frozenset({"disks"}), lambda n: n.disks, lambda x: x.serial, lambda x: x.pci or x.name,
         _disk_label, _DISK_FIELDS),
)

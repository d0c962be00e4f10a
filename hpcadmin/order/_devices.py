"""GPUs, network ports and disks of a node against the entries of an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hpcadmin.model import Disk, Gpu, Nic, Node
from hpcadmin.order._records import DiskOrder, GroupOrder, NicOrder
from hpcadmin.order._result import UNKNOWN, Result, at_least, has_words, kind_of
from hpcadmin.text import plural

_SHOWN = 4                       # devices that are named; more are counted


@dataclass(frozen=True)
class Attribute:
    """agrees: None where the device does not tell."""

    name: str
    ordered: Callable[[Any], str]                # of an entry; "": was not ordered
    found: Callable[[Any], str]                  # of a device
    agrees: Callable[[Any, Any], bool | None]


@dataclass(frozen=True)
class Part:
    """identity: the device may be of that entry; None: it does not tell. describe: for counting, of a device."""

    name: str
    identity: Callable[[Any, Any], bool | None]
    prefer: Callable[[Any, Any], bool]
    describe: Callable[[Any], str]
    entry: Callable[[Any], str]
    label: Callable[[Any], str]
    attributes: tuple[Attribute, ...]


def compare(result: Result, node: Node, group: GroupOrder) -> None:
    if group.gpus is not None:
        _compare(result, node, GPUS, group.gpus, None if node.lacks("gpus") else node.gpus,
                 more_allowed="gpus" in group.more_allowed)
    if group.nics is not None:
        rdma = any(entry.kind != "Ethernet" for entry in group.nics)
        plain = any(entry.kind in ("", "Ethernet") for entry in group.nics)
        unknown = (node.lacks("rdma") and rdma) or (node.lacks("nics") and plain)
        kinds = {entry.kind for entry in group.nics}
        nics = [nic for nic in _adapters(node) if not kinds or "" in kinds or _nic_kind(nic) in ("", *kinds)]
        _compare(result, node, NICS, group.nics, None if unknown else nics, more_allowed="nics" in group.more_allowed)
    if group.disks is not None:
        _compare(result, node, DISKS, group.disks, None if node.lacks("disks") else node.disks,
                 more_allowed="disks" in group.more_allowed)


def _adapters(node: Node) -> list[Nic]:
    """Ports of adapters: no VFs, no bonds, and not the interface to a BMC, which is on USB."""
    return [nic for nic in node.nics if not nic.virtual and not nic.pf and (nic.rdma or nic.pci)]


def _compare(result: Result, node: Node, part: Part, entries: Sequence[Any], devices: Sequence[Any] | None,
             *, more_allowed: bool) -> None:
    ordered = ", ".join(f"{entry.count}x {part.entry(entry)}" for entry in entries if entry.count) or "none"
    if devices is None:
        result.judge(node.name, part.name, ordered, "", None)
        return
    taken, doubtful, left = _assign(part, entries, devices)
    short = any(len(own) < entry.count for own, entry in zip(taken, entries, strict=True))
    if doubtful and not short:
        result.judge(node.name, f"model of {plural(len(doubtful), part.name.removesuffix('s'))}", "", "", None)
    if short or (left and not more_allowed):
        kinds = Counter(part.describe(device) for device in devices)
        found = ", ".join(f"{count}x {kind}" for kind, count in sorted(kinds.items())) or "none"
        result.judge(node.name, part.name, ordered, found, False,
                     kind=kind_of(sum(entry.count for entry in entries), len(devices)))
    elif not doubtful:
        result.agreed += 1
    for entry, own in zip(entries, taken, strict=True):
        for attribute in part.attributes:
            _attribute(result, node, part, attribute, entry, own=own)


def _assign(part: Part, entries: Sequence[Any], devices: Sequence[Any]) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """(devices of each entry, those that do not tell what they are, those of no entry). Entries that ask for more come
    first, and take what agrees with them in everything before what agrees in its kind alone."""
    taken: list[list[Any]] = [[] for _ in entries]
    left = list(devices)
    order = sorted(range(len(entries)), key=lambda place: -_asked(entries[place]))
    doubtful: list[Any] = []
    for wanted, in_all in ((True, True), (True, False), (None, False)):
        for place in order:
            entry, rest = entries[place], []
            for device in left:
                fits = part.identity(entry, device) is wanted and (not in_all or part.prefer(entry, device))
                if fits and len(taken[place]) < entry.count:
                    taken[place].append(device)
                    doubtful += [device] if wanted is None else []
                else:
                    rest.append(device)
            left = rest
    return taken, doubtful, left


def _asked(entry: Any) -> int:
    return sum(1 for item in fields(entry) if getattr(entry, item.name) != item.default)


def _attribute(result: Result, node: Node, part: Part, attribute: Attribute, entry: Any, *,
               own: Sequence[Any]) -> None:
    ordered = attribute.ordered(entry)
    if not ordered:
        return
    unknown: dict[str, list[str]] = {}
    other: dict[str, list[str]] = {}
    for device in own:
        agrees = attribute.agrees(entry, device)
        if agrees is None:
            unknown.setdefault(attribute.found(device), []).append(part.label(device))
        elif agrees:
            result.agreed += 1
        else:
            other.setdefault(attribute.found(device), []).append(part.label(device))
    for found, labels in other.items():
        result.judge(node.name, f"{attribute.name} of {_labels(labels, len(own), part)}", ordered, found, False)
    for found, labels in unknown.items():
        reason = f"{found} and {ordered}: not numbered alike" if found else UNKNOWN
        result.judge(node.name, f"{attribute.name} of {_labels(labels, len(own), part)}", ordered, "", None,
                     reason=reason)


def _labels(labels: Sequence[str], count: int, part: Part) -> str:
    if len(labels) <= _SHOWN:
        return ", ".join(labels)
    return f"{'all' if len(labels) == count else f'{len(labels)} of'} {count} {part.name}"


def _model(found: str, ordered: str) -> bool | None:
    if not ordered:
        return True
    return has_words(found, ordered) if found else None


def _near(value: float | None, wanted: float | None, tolerance: float) -> bool | None:
    if value is None or wanted is None:
        return None
    return abs(value - wanted) <= tolerance * wanted


def _nic_kind(nic: Nic) -> str:
    if nic.rdma:
        return {"Ethernet": "RoCE", "InfiniBand": "InfiniBand"}.get(nic.link_layer, "")
    return nic.link_layer


def _nic_identity(entry: NicOrder, nic: Nic) -> bool | None:
    kind = _nic_kind(nic)
    told: list[bool | None] = []
    if entry.kind:
        told.append(kind == entry.kind if kind else None)
    told += [_model(" ".join(filter(None, (nic.model, nic.description))) if nic.model else "", entry.model)]
    if entry.psid:
        told.append(nic.psid.casefold() == entry.psid.casefold() if nic.psid else None)
    return False if False in told else None if None in told else True


def _nic_rate(nic: Nic) -> str:
    state = "" if nic.state.upper() in ("", "ACTIVE", "UP") else f" ({nic.state})"
    return f"{nic.rate_gbps:g} Gb/s{state}" if nic.rate_gbps is not None else ""


def _disk_identity(entry: DiskOrder, disk: Disk) -> bool | None:
    told = [_model(disk.model, entry.model)]
    if entry.transport:
        told.append(disk.transport.casefold() == entry.transport.casefold() if disk.transport else None)
    return False if False in told else None if None in told else True


def _gigabytes(disk: Disk) -> float | None:
    return None if disk.size_bytes is None else disk.size_bytes / 1e9


def _text(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:g}{unit}"


def _floor(name: str, shown: str) -> Attribute:
    return Attribute(shown, lambda entry: f"{getattr(entry, name)} or later" if getattr(entry, name) else "",
                     lambda device: str(getattr(device, name)),
                     lambda entry, device: at_least(getattr(device, name), getattr(entry, name))
                     if getattr(device, name) else None)


def _not_below(value: int | None, wanted: int | None) -> bool | None:
    return None if value is None or wanted is None else value >= wanted


def _same(value: float | None, wanted: float | None) -> bool | None:
    return None if value is None or wanted is None else value == wanted


def _gpu_memory(gpu: Gpu) -> float | None:
    return None if gpu.memory_mib is None else gpu.memory_mib / 1024


GPUS = Part(
    "GPUs", lambda entry, gpu: _model(gpu.model, entry.model),
    lambda entry, gpu: _near(_gpu_memory(gpu), entry.memory_gib, 0.05) is not False,
    lambda gpu: gpu.model or f"{gpu.vendor} GPU of unknown model",
    lambda entry: entry.model or "GPU", lambda gpu: f"GPU {gpu.pci if gpu.index is None else gpu.index}",
    (Attribute("memory", lambda e: _text(e.memory_gib, " GiB"), lambda g: f"{(g.memory_mib or 0) / 1024:.1f} GiB",
               lambda e, g: _near(_gpu_memory(g), e.memory_gib, 0.05)),
     _floor("vbios", "VBIOS"),
     Attribute("PCIe generation", lambda e: f"{e.pcie_gen} at least" if e.pcie_gen else "",
               lambda g: _text(g.pcie_gen_max), lambda e, g: _not_below(g.pcie_gen_max, e.pcie_gen)),
     Attribute("PCIe width", lambda e: f"x{e.pcie_width} at least" if e.pcie_width else "",
               lambda g: f"x{g.pcie_width}" if g.pcie_width else "",
               lambda e, g: _not_below(g.pcie_width, e.pcie_width)),
     Attribute("active NVLinks", lambda e: _text(e.nvlinks), lambda g: _text(g.nvlinks_active),
               lambda e, g: _same(g.nvlinks_active, e.nvlinks))))

NICS = Part(
    "network ports", _nic_identity, lambda entry, nic: _same(nic.rate_gbps, entry.rate_gbps) is not False,
    lambda nic: " ".join(filter(None, (_nic_kind(nic) or "port", nic.model, _text(nic.rate_gbps, " Gb/s")))),
    lambda entry: " ".join(filter(None, (entry.kind or "port", entry.model, _text(entry.rate_gbps, " Gb/s")))),
    lambda nic: f"{nic.name}/{nic.port}" if nic.port else nic.name,
    (Attribute("rate", lambda e: _text(e.rate_gbps, " Gb/s"), _nic_rate,
               lambda e, n: _same(n.rate_gbps, e.rate_gbps)),
     _floor("firmware", "firmware")))

DISKS = Part(
    "disks", _disk_identity, lambda entry, disk: _near(_gigabytes(disk), entry.size_gb, 0.02) is not False,
    lambda disk: " ".join(filter(None, (disk.model or "disk", _text(_gigabytes(disk) and round(_gigabytes(disk) or 0),
                                                                  " GB")))),
    lambda entry: " ".join(filter(None, (entry.model or entry.transport or "disk", _text(entry.size_gb, " GB")))),
    lambda disk: disk.name,
    (Attribute("size", lambda e: _text(e.size_gb, " GB"), lambda d: _text(round(_gigabytes(d) or 0), " GB"),
               lambda e, d: _near(_gigabytes(d), e.size_gb, 0.02)),
     _floor("firmware", "firmware")))

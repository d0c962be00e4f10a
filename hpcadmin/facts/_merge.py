"""Partial nodes, each as one source tells it, made one: devices matched by what identifies them, never by their order.

What one source leaves open another may fill; where two say different things, the one that comes first is kept and both
are named in a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from hpcadmin.facts import _cpu
from hpcadmin.facts._base import natural, pci_key
from hpcadmin.model import Bmc, Cpu, Gpu, Nic, Node, PciDevice
from hpcadmin.text import plural, printable

T = TypeVar("T", Gpu, Nic, PciDevice)
# Of a GPU: what cannot change between two captures of the same machine.
_FIXED_GPU = ("vendor", "model", "uuid", "serial", "pci", "minor", "memory_mib", "numa")
_FIXED_NIC = ("guid", "port_guid", "mac", "pci", "numa", "link_layer", "psid")
# What one of several sources says in its own words.
_FREE = frozenset({"tools", "versions", "settings", "problems", "unknown", "sources", "gpus", "gpu_links", "nics",
                   "pci", "cpu", "name", "captured", "addresses", "mounts", "neighbours", "bmc", "memory_mib",
                   "simulated"})
# Of CPUs: what names each core before what counts, the kernel's words before what was made of them.
_BEST = ("the capture", "/sys", "hwloc XML", "lstopo text", "lscpu -p", "lscpu -J", "lscpu", "numactl -H", "slurmd -C")


@dataclass(frozen=True)
class Part:
    """What one source tells of a node; `told` are the lists that it knows to the end (an empty one means none)."""

    source: str
    node: Node
    told: frozenset[str] = frozenset()


@dataclass
class _Merged:
    problems: list[str] = field(default_factory=list)

    def differ(self, what: str, one: tuple[str, Any], other: tuple[str, Any]) -> None:
        self.problems.append(printable(f"{what}: {one[1]} in {one[0]}, {other[1]} in {other[0]}", limit=300))


def merge(name: str, parts: Sequence[Part]) -> Node:
    """One node of them all. parts: the one that is believed first comes first."""
    merged = _Merged()
    narrow = _cpu.narrow(_cpus(parts), merged.problems)
    parts = [replace(part, node=without_cpus(part.node)) if part.source in narrow else part for part in parts]
    cpu = _cpu.join(_cpus(parts), merged.problems)
    gpus = _gpus(parts, merged)
    nics = _nics(parts, merged)
    pci = _devices([(part.source, part.node.pci) for part in parts], _same_pci, (), merged, lambda d: d.address)
    unknown = [f for f, known in (
        ("cpu", cpu.sockets is not None), ("cpu.cores", bool(cpu.cores)), ("gpus", _told("gpus", parts)),
        ("nics", _told("nics", parts)), ("pci", _told("pci", parts)),
        ("memory", any(part.node.memory_mib is not None for part in parts)),
    ) if not known]
    values: dict[str, Any] = {f.name: _first(f.name, parts, merged) for f in fields(Node) if f.name not in _FREE}
    values |= {key: _all(key, parts) for key in ("addresses", "mounts", "neighbours")}
    values |= {key: _tables(key, parts) for key in ("tools", "versions", "settings")}
    for key, default in (("bmc", Bmc()), ("simulated", "")):
        values[key] = next((v for part in parts if (v := getattr(part.node, key)) != default), default)
    values["memory_mib"] = _memory(parts, cpu, merged)
    values["gpu_links"] = _links(parts, gpus, merged)
    problems = [*(problem for part in parts for problem in part.node.problems), *merged.problems]
    return Node(name, cpu=cpu, gpus=gpus, nics=nics, pci=tuple(sorted(pci, key=lambda d: pci_key(d.address))),
                unknown=tuple(unknown), problems=tuple(dict.fromkeys(problems)), **values)


def without_cpus(node: Node) -> Node:
    """What is left of a view that does not show all CPUs: neither their counts and numbers, nor which of them are near
    a device, nor how much memory there is."""
    return replace(
        node, cpu=Cpu(model=node.cpu.model, architecture=node.cpu.architecture), memory_mib=None,
        gpus=tuple(replace(gpu, local_cpus=()) for gpu in node.gpus),
        pci=tuple(replace(device, local_cpus="") for device in node.pci))


def _cpus(parts: Sequence[Part]) -> dict[str, Cpu]:
    """By source, the best first whatever the files are called."""
    told = [(part.source, part.node.cpu) for part in parts if part.node.cpu != Cpu()]
    return dict(sorted(told, key=lambda each: next(
        (rank for rank, kind in enumerate(_BEST) if each[0] == kind or each[0].startswith(f"{kind} in ")), len(_BEST))))


def _told(what: str, parts: Sequence[Part]) -> bool:
    return any(what in part.told for part in parts)


def _first(key: str, parts: Sequence[Part], merged: _Merged) -> Any:
    values = [(part.source, getattr(part.node, key)) for part in parts]
    found = [(source, value) for source, value in values if value not in ("", None, ())]
    for source, value in found[1:]:
        if value != found[0][1] and isinstance(value, str):
            merged.differ(key.replace("_", " "), found[0], (source, value))
    return found[0][1] if found else values[0][1] if values else ""


def _memory(parts: Sequence[Part], cpu: Cpu, merged: _Merged) -> int | None:
    """Within 2 %: hwloc's, slurmd's and the kernel's numbers are never quite the same. The kernel's total may hold the
    memory of GPUs (NUMA nodes without CPUs), which is no memory of the node for Slurm's jobs."""
    found = [(part.source, part.node.memory_mib) for part in parts if part.node.memory_mib is not None]
    beside = sum(node.memory_mib or 0 for node in cpu.numa if not node.cpus)
    least = min((value for _, value in found), default=None)
    for source, value in found[1:]:
        first = found[0][1]
        if abs(value - first) > 0.02 * max(value, first):
            if beside and abs(abs(value - first) - beside) <= 0.02 * max(value, first):
                return least
            merged.differ("memory (MiB)", found[0], (source, value))
    return found[0][1] if found else None


def _all(key: str, parts: Sequence[Part]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(value for part in parts for value in getattr(part.node, key)))


def _tables(key: str, parts: Sequence[Part]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        for name, value in getattr(part.node, key).items():
            found[name] = found.get(name) or value
    return found


# --- devices --------------------------------------------------------------------------------------------------------


def _devices(
    told: Iterable[tuple[str, Sequence[T]]], same: Callable[[T, T], bool], fixed: Sequence[str], merged: _Merged,
    label: Callable[[T], str], *, strangers: Callable[[str, str], str] | None = None,
) -> list[T]:
    """The devices of all sources. strangers: what is said where none of a source's devices is one of another's: whether
    they are the same cannot be told then, and they are not added."""
    found: list[tuple[str, T]] = []
    for source, devices in told:
        known = len(found)
        places = [next((n for n in range(known) if same(found[n][1], device)), None) for device in devices]
        if strangers and known and devices and all(place is None for place in places):
            merged.problems.append(strangers(found[0][0], source))
            continue
        for device, place in zip(devices, places, strict=True):
            if place is None:
                found.append((source, device))
                continue
            first, other = found[place]
            for key in fixed:
                a, b = getattr(other, key), getattr(device, key)
                if _empty(a) or _empty(b) or a == b:
                    continue
                merged.differ(f"{label(other)}: {key.replace('_', ' ')}", (first, a), (source, b))
            found[place] = (first, _filled(other, device))
    return [device for _, device in found]


def _telling(told: Iterable[tuple[str, Sequence[T]]], keys: Sequence[str]) -> list[tuple[str, Sequence[T]]]:
    """Those first whose devices have most of the marks by which they are known again: through them the others join."""
    return sorted(told, key=lambda item: -sum(any(not _empty(getattr(device, key)) for device in item[1])
                                              for key in keys))


def _unjoined(what: str) -> Callable[[str, str], str]:
    return lambda one, other: (f"{what}: those of {other} share no name, address or number with those of {one}: left "
                               "out; a text that tells both would join them")


def _empty(value: object) -> bool:
    return value in ("", None, ())


def _filled(one: T, other: T) -> T:
    return replace(one, **{f.name: getattr(other, f.name) for f in fields(one)
                           if _empty(getattr(one, f.name)) and not _empty(getattr(other, f.name))})


def _same_gpu(a: Gpu, b: Gpu) -> bool:
    for key in ("pci", "uuid", "serial"):
        ours, theirs = getattr(a, key), getattr(b, key)
        if ours and theirs:
            return bool(ours == theirs)
    if a.vendor != b.vendor:
        return False
    if a.minor is not None and b.minor is not None:
        return a.minor == b.minor
    return a.index is not None and a.index == b.index


def _gpus(parts: Sequence[Part], merged: _Merged) -> tuple[Gpu, ...]:
    told = [(part.source, part.node.gpus) for part in parts if part.node.gpus or "gpus" in part.told]
    counts = [(source, len(gpus)) for (source, gpus), part in zip(
        told, [p for p in parts if p.node.gpus or "gpus" in p.told], strict=True) if "gpus" in part.told]
    for source, count in counts[1:]:
        if count != counts[0][1]:
            merged.problems.append(f"GPUs: {plural(counts[0][1], 'GPU')} in {counts[0][0]}, {count} in {source}")
    found = _devices(_telling(told, ("pci", "uuid", "index", "minor")), _same_gpu, _FIXED_GPU, merged,
                     lambda g: f"GPU {g.pci if g.index is None else g.index}", strangers=_unjoined("GPUs"))
    return tuple(sorted(found, key=lambda g: (g.vendor, g.index if g.index is not None else 1 << 20, pci_key(g.pci))))


def _same_pci(a: PciDevice, b: PciDevice) -> bool:
    return a.address == b.address


def _same_nic(a: Nic, b: Nic) -> bool:
    if a.rdma and b.rdma:
        return a.rdma == b.rdma and (a.port or 1) == (b.port or 1)
    if a.netdev and b.netdev:
        return a.netdev == b.netdev
    if a.port_guid and b.port_guid:
        return a.port_guid == b.port_guid
    return bool(a.pci) and a.pci == b.pci


def _nics(parts: Sequence[Part], merged: _Merged) -> tuple[Nic, ...]:
    told = [(part.source, part.node.nics) for part in parts]
    found = _devices(_telling(told, ("pci", "rdma", "netdev", "port_guid", "guid")), _same_nic, _FIXED_NIC, merged,
                     lambda n: f"{n.name}/{n.port}" if n.port else n.name, strangers=_unjoined("NICs"))
    return tuple(sorted(found, key=lambda nic: (not nic.rdma, natural(nic.name), nic.port or 0)))


def _links(parts: Sequence[Part], gpus: Sequence[Gpu], merged: _Merged) -> tuple[tuple[str, ...], ...]:
    """The first matrix that is about as many GPUs as there are, each part's in the order of its own GPUs."""
    found: tuple[tuple[str, ...], ...] = ()
    source = ""
    for part in parts:
        links = part.node.gpu_links
        if not links:
            continue
        if part.node.gpus and not any(_same_gpu(mine, gpu) for mine in part.node.gpus for gpu in gpus):
            continue                     # about GPUs that could not be joined, which has been said
        if len(links) != len(gpus):
            merged.problems.append(f"GPU links: {part.source} is about {plural(len(links), 'GPU')}, "
                                   f"there are {len(gpus)}")
        elif not found:
            found, source = links, part.source
        elif any(a and b and a != b for x, y in zip(found, links, strict=True) for a, b in zip(x, y, strict=True)):
            merged.problems.append(f"GPU links: {source} and {part.source} do not show the same")
    return found

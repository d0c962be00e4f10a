"""What is compared within a group beside the hardware that makes it: settings, versions, devices one by one, sets.

Each has a rank: differences with a lower one are more telling, and are told first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcadmin.facts import _base
from hpcadmin.model import Gpu, Nic, Node
from hpcadmin.text import fold_ids
from hpcadmin.traits import Trait, hardware_nics, rate_text

SAME_MACHINE, HARDWARE, BROKEN, CONNECTED, FIRMWARE, VERSION, SETTING, LESSER = range(8)
_SHOWN_ITEMS = 6
# Words of a kernel's command line that differ from node to node by nature.
_OWN_WORDS = ("BOOT_IMAGE=", "root=", "resume=", "ip=", "BOOTIF=", "initrd=", "hostname=", "rd.luks", "rd.lvm", "UUID=",
              "inst.", "nfsroot=", "systemd.machine_id=", "rd.neednet", "ifname=", "bootdev=", "cloud-init=")


@dataclass(frozen=True)
class Soft:
    """A trait of the whole node. tell: how a node differs from one of the majority; else "value, the group has value".
    """

    rank: int
    trait: Trait
    tell: Callable[[Node, Node], str] | None = None


@dataclass(frozen=True)
class Items:
    """What a node has several of; each is looked at alone. items: None where unknown. by: what it depends on, so that
    nodes that share the object are asked once. part: as Node.unknown calls it."""

    rank: int
    name: str
    items: Callable[[Any], frozenset[str] | None]
    by: Callable[[Node], Any]
    part: str = ""


@dataclass(frozen=True)
class Field:
    """Of a device. get: "" where unknown."""

    rank: int
    name: str
    get: Callable[[Any], str]


def _text(rank: int, name: str, get: Callable[[Node], str]) -> Soft:
    return Soft(rank, Trait(name, lambda n: get(n) or None, get))


def links_text(node: Node) -> str:
    """The kinds of links between GPUs with how many pairs have each: 28x NV18."""
    labels = Counter(label for row, line in enumerate(node.gpu_links) for label in line[row + 1:])
    return ", ".join(f"{count}x {label}" for label, count in sorted(labels.items())) or "none"


def _links_differ(node: Node, other: Node) -> str:
    """Which pairs differ, where they have something in common; else all of both matrices."""
    size = len(node.gpu_links)
    numbers = [gpu.index if gpu.index is not None else place for place, gpu in enumerate(node.gpus)]
    pairs = [(row, column) for row in range(size) for column in range(row + 1, size)
             if node.gpu_links[row][column:column + 1] != other.gpu_links[row][column:column + 1]]
    kinds = {(node.gpu_links[row][column], other.gpu_links[row][column]) for row, column in pairs
             if column < len(node.gpu_links[row]) and column < len(other.gpu_links[row])}
    if not pairs or len(kinds) != 1 or len(numbers) < size:
        ours, theirs = links_text(node), links_text(other)
        return f"{ours}, the group has {theirs}" if ours != theirs else f"{ours} as the group, but of other pairs"
    common = set.intersection(*(set(pair) for pair in pairs))
    ours, theirs = kinds.pop()
    if len(pairs) == size - 1 and len(common) == 1:
        where = f"GPU {numbers[common.pop()]} and its {size - 1} peers"
    elif len(pairs) <= _SHOWN_ITEMS:
        where = ", ".join(f"GPU {numbers[row]} and {numbers[column]}" for row, column in pairs)
    else:
        return f"{links_text(node)}, the group has {links_text(other)}"
    return f"{ours} between {where}, the group has {theirs}"


def _distances(node: Node) -> Hashable | None:
    found = tuple((numa.id, numa.distances) for numa in node.cpu.numa)
    return found if any(distances for _, distances in found) else None


def _show_distances(node: Node) -> str:
    return "; ".join(" ".join(map(str, numa.distances)) or "unknown" for numa in node.cpu.numa[:4])


def _numa(node: Node) -> Hashable | None:
    return tuple((numa.id, numa.cpus) for numa in node.cpu.numa) or None


def _numa_memory(node: Node) -> Hashable | None:
    """Which NUMA nodes have no memory: a channel without DIMMs, or all of them on one side."""
    if not node.cpu.numa or any(numa.memory_mib is None for numa in node.cpu.numa):
        return None
    return tuple(numa.id for numa in node.cpu.numa if not numa.memory_mib)


def _show_numa_memory(node: Node) -> str:
    empty = [str(numa.id) for numa in node.cpu.numa if not numa.memory_mib]
    return f"none on {', '.join(empty)}" if empty else "on all"


def _cliques(node: Node) -> Hashable | None:
    known = {(gpu.fabric_cluster_uuid, gpu.fabric_clique) for gpu in node.gpus if gpu.fabric_cluster_uuid}
    return len(known) or None


SOFT: tuple[Soft, ...] = (
    _text(HARDWARE, "product", lambda n: n.product),
    _text(HARDWARE, "vendor", lambda n: n.vendor),
    Soft(CONNECTED, Trait("GPU links", lambda n: n.gpu_links or None, links_text), _links_differ),
    Soft(CONNECTED, Trait("NVLink partitions of its GPUs", _cliques, lambda n: str(_cliques(n)))),
    Soft(CONNECTED, Trait("NUMA nodes", _numa, lambda n: str(len(n.cpu.numa)))),
    Soft(CONNECTED, Trait("memory of NUMA nodes", _numa_memory, _show_numa_memory)),
    Soft(CONNECTED, Trait("NUMA distances", _distances, _show_distances)),
    Soft(LESSER, Trait("L3 caches", lambda n: n.cpu.l3 or None, lambda n: str(len(n.cpu.l3)))),
    _text(FIRMWARE, "BIOS", lambda n: n.bios),
    _text(FIRMWARE, "BMC firmware", lambda n: n.bmc.firmware),
    _text(VERSION, "GPU driver", lambda n: n.gpu_driver),
    _text(VERSION, "kernel", lambda n: n.kernel),
    _text(VERSION, "OS", lambda n: n.os),
    _text(VERSION, "Slurm", lambda n: n.slurm_version),
    _text(SETTING, "time", lambda n: _base.clean(n.time_sync.partition(" to ")[0]).partition(", stratum")[0]),
)

# Tables of a node, of which every key is compared: rank, name, what stands before a key, the table.
TABLES: tuple[tuple[int, str, str, Callable[[Node], Mapping[str, str]]], ...] = (
    (VERSION, "versions", "", lambda n: n.versions),
    (SETTING, "settings", "", lambda n: n.settings),
    (SETTING, "BIOS settings", "BIOS setting ", lambda n: n.bmc.settings),
)


def _dimms(dimms: Any) -> frozenset[str] | None:
    """By slot, size and speed; empty slots are no item."""
    if not dimms:
        return None
    return frozenset(" ".join(filter(None, (
        dimm.slot, f"{dimm.size_mib // 1024} GiB" if dimm.size_mib % 1024 == 0 else f"{dimm.size_mib} MiB", dimm.kind,
        f"{dimm.speed_mts} MT/s" if dimm.speed_mts else ""))) for dimm in dimms if dimm.size_mib)


def _disks(disks: Any) -> frozenset[str] | None:
    if not disks:
        return None
    kinds = Counter(" ".join(filter(None, (
        disk.model or "disk of unknown model", f"{disk.size_bytes / 1e9:.0f} GB" if disk.size_bytes else "")))
        for disk in disks)
    return frozenset(f"{count}x {kind}" for kind, count in kinds.items())


def _disk_firmware(disks: Any) -> frozenset[str] | None:
    return frozenset(f"{disk.model} {disk.firmware}" for disk in disks if disk.firmware) or None


def _mounts(mounts: Any) -> frozenset[str]:
    return frozenset(f"{mount.target} ({mount.kind} {mount.source})" for mount in mounts)


def _mount_options(mounts: Any) -> frozenset[str]:
    """Without what names the node itself, or what a server chose for it."""
    own = ("clientaddr=", "addr=", "mountaddr=", "mountport=", "uuid=", "fsid=", "localflock", "port=")
    return frozenset(f"{mount.target} {word}" for mount in mounts for word in mount.options.split(",")
                     if word and not word.startswith(own))


def _words(line: Any) -> frozenset[str] | None:
    return frozenset(word for word in line.split() if not word.startswith(_OWN_WORDS)) or None


def _other_pci(devices: Any) -> frozenset[str] | None:
    """Devices that are no GPU, adapter or disk: those are compared by what they are."""
    if not devices:
        return None
    return frozenset(f"{device.address} {device.name or f'{device.vendor_id}:{device.device_id}'}" for device in devices
                     if not device.class_id.startswith(("01", "02", "03", "06", "12")))


def _pci_links(devices: Any) -> frozenset[str] | None:
    """The width alone: an idle device may go down with its speed. Of disks and what else is no GPU and no adapter."""
    return frozenset(f"{device.address} x{device.link.rpartition(' x')[2]}" for device in devices
                     if device.link and not device.class_id.startswith(("02", "03", "06", "12"))) or None


def _names(nics: Any) -> frozenset[str] | None:
    return frozenset((nic.rdma and f"{nic.rdma}/{nic.port or 1}") or nic.name for nic in nics
                     if not nic.virtual and not nic.pf) or None


def _neighbours(neighbours: Any) -> frozenset[str] | None:
    return frozenset(own for own, _, _ in neighbours) or None


def _tools(tools: Any) -> frozenset[str] | None:
    return frozenset(name for name, path in tools.items() if path) if tools else None


ITEMS: tuple[Items, ...] = (
    Items(HARDWARE, "DIMMs", _dimms, lambda n: n.dimms, "dimms"),
    Items(HARDWARE, "disks", _disks, lambda n: n.disks, "disks"),
    Items(HARDWARE, "PCI devices", _other_pci, lambda n: n.pci, "pci"),
    Items(BROKEN, "power supplies", lambda psus: frozenset(psus) or None, lambda n: n.bmc.psus),
    Items(BROKEN, "PCI links", _pci_links, lambda n: n.pci, "pci"),
    Items(CONNECTED, "LLDP neighbours on", _neighbours, lambda n: n.neighbours),
    Items(CONNECTED, "names of network devices", _names, lambda n: n.nics, "nics"),
    Items(FIRMWARE, "disk firmware", _disk_firmware, lambda n: n.disks, "disks"),
    Items(SETTING, "mounts", _mounts, lambda n: n.mounts, "mounts"),
    Items(SETTING, "mount options", _mount_options, lambda n: n.mounts, "mounts"),
    Items(SETTING, "kernel command line", _words, lambda n: n.command_line),
    Items(LESSER, "tools", _tools, lambda n: n.tools, "tools"),
)


def items_text(name: str, lacking: list[str], more: list[str]) -> str:
    """DIMMs: without A5 64 GiB, with A5 32 GiB."""
    said = [f"{word} {_listed(items)}" for word, items in (("without", lacking), ("with", more)) if items]
    return f"{name}: {', '.join(said)}"


def _listed(items: list[str]) -> str:
    ordered = sorted(items, key=_base.natural)
    text = ", ".join(ordered[:_SHOWN_ITEMS])
    return text if len(ordered) <= _SHOWN_ITEMS else f"{text} and {len(ordered) - _SHOWN_ITEMS} more"


def _number(value: float | None, before: str = "", after: str = "") -> str:
    if value is None:
        return ""
    return f"{before}{value:g}{after}" if isinstance(value, float) else f"{before}{value}{after}"


def _mig(gpu: Gpu) -> str:
    counts = Counter(device.profile or "?" for device in gpu.mig_devices)
    return ", ".join(f"{count}x {profile}" for profile, count in sorted(counts.items())) or (gpu.mig and "none")


# What is compared device by device: a GPU by its PCI address, a NIC by name and port.
GPU_FIELDS: tuple[Field, ...] = (
    Field(HARDWARE, "memory", lambda g: _number(g.memory_mib, after=" MiB")),
    Field(BROKEN, "fabric state", lambda g: g.fabric_state),
    Field(BROKEN, "fabric status", lambda g: g.fabric_status),
    Field(BROKEN, "PCIe width", lambda g: _number(g.pcie_width, "x")),
    Field(BROKEN, "PCIe width at most", lambda g: _number(g.pcie_width_max, "x")),
    Field(BROKEN, "PCIe generation at most", lambda g: _number(g.pcie_gen_max)),
    Field(BROKEN, "active NVLinks", lambda g: _number(g.nvlinks_active)),
    Field(BROKEN, "inactive NVLinks", lambda g: _number(g.nvlinks_inactive)),
    Field(BROKEN, "device file", lambda g: "there" if g.device_file else ""),
    Field(CONNECTED, "NUMA node", lambda g: _number(g.numa)),
    Field(CONNECTED, "CPUs nearby", lambda g: fold_ids(g.local_cpus)),
    Field(CONNECTED, "fabric clique", lambda g: g.fabric_clique),
    Field(FIRMWARE, "VBIOS", lambda g: g.vbios), Field(FIRMWARE, "part number", lambda g: g.part_number),
    Field(FIRMWARE, "PCI ID", lambda g: g.pci_id),
    Field(SETTING, "ECC", lambda g: g.ecc), Field(SETTING, "MIG", lambda g: g.mig),
    Field(SETTING, "MIG devices", _mig), Field(SETTING, "partition", lambda g: g.partition),
    Field(SETTING, "persistence mode", lambda g: g.persistence),
    Field(SETTING, "compute mode", lambda g: g.compute_mode),
    Field(SETTING, "power limit", lambda g: _number(g.power_limit_w, after=" W")),
    Field(SETTING, "power limit at most", lambda g: _number(g.power_limit_max_w, after=" W")),
    Field(LESSER, "minor number", lambda g: _number(g.minor)),
)
NIC_FIELDS: tuple[Field, ...] = (
    Field(BROKEN, "state", lambda n: n.state), Field(BROKEN, "physical state", lambda n: n.physical_state),
    Field(BROKEN, "rate", lambda n: rate_text(n.rate_gbps).strip()),
    Field(BROKEN, "link layer", lambda n: n.link_layer),
    Field(BROKEN, "PCIe width", lambda n: _number(n.pcie_width, "x")),
    Field(BROKEN, "PCIe generation", lambda n: _number(n.pcie_gen)),
    Field(HARDWARE, "model", lambda n: n.model),
    Field(CONNECTED, "PCI address", lambda n: n.pci), Field(CONNECTED, "NUMA node", lambda n: _number(n.numa)),
    Field(CONNECTED, "relation to GPUs", lambda n: " ".join(n.gpu_relations)),
    Field(CONNECTED, "subnet manager's LID", lambda n: _number(n.sm_lid)),
    Field(FIRMWARE, "firmware", lambda n: n.firmware), Field(FIRMWARE, "PSID", lambda n: n.psid),
    Field(SETTING, "MTU", lambda n: str(n.mtu or "")), Field(SETTING, "active MTU", lambda n: str(n.active_mtu or "")),
    Field(SETTING, "virtual functions", lambda n: _number(n.vfs)), Field(SETTING, "bond", lambda n: n.bond),
    Field(VERSION, "driver", lambda n: n.driver),
)


def gpus_by_address(node: Node) -> dict[str, Any]:
    return {gpu.pci: gpu for gpu in node.gpus if gpu.pci}


def nics_by_name(node: Node) -> dict[str, Any]:
    return {nic_name(nic): nic for nic in hardware_nics(node)}


def nic_name(nic: Nic) -> str:
    return f"{nic.name}/{nic.port}" if nic.port else nic.name


def gpu_name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"

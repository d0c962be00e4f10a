"""A node drawn as a tree of text: packages, NUMA nodes, PCIe with its GPUs and NICs, and how they are linked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpcadmin.facts._base import pci_key
from hpcadmin.model import Disk, Gpu, Nic, Node, NumaNode, PciDevice
from hpcadmin.text import fold_ids, plural, printable
from hpcadmin.topology import bindings, by_address, lineage, mask, nearest, physical, rails, srun_options

WIDE = 8000              # characters of a line: the masks of srun's options are to be copied whole


@dataclass
class Branch:
    """A line of the tree with what hangs below it. kind: what a drawing shows it as."""

    text: str
    kind: str = ""
    below: list[Branch] = field(default_factory=list)


def tree(node: Node) -> Branch:
    """The node: packages, in them NUMA nodes, in them the PCIe tree down to its GPUs, NICs and disks."""
    top = Branch(" ".join([node.name, *([f"({node.product})"] if node.product else []),
                           *([f"[simulated: {node.simulated}]"] if node.simulated else [])]), "node")
    placed = devices_by_numa(node)
    packages: dict[int, list[NumaNode]] = {}
    for numa in node.cpu.numa:
        package = next((core.socket for core in node.cpu.cores if set(core.cpus) & set(numa.cpus)), None)
        packages.setdefault(-1 if package is None else package, []).append(numa)
    for package, numas in sorted(packages.items()):
        here = [_numa(numa, node, placed.pop(numa.id, [])) for numa in numas]
        if package < 0:
            top.below += here
            continue
        cores = sum(core.socket == package for core in node.cpu.cores)
        top.below.append(Branch(f"Package {package}: {plural(cores, 'core')}, {node.cpu.model or 'CPU model unknown'}",
                                "package", here))
    if not node.cpu.numa and node.cpu.sockets:
        top.below.append(Branch(f"CPU: {plural(node.cpu.sockets, 'package')}, NUMA nodes unknown", "package"))
    rest = [branch for branches in placed.values() for branch in branches]
    if rest:
        top.below.append(Branch("NUMA node unknown", "numa", rest))
    return top


def collapsed(branch: Branch) -> Branch:
    """A chain of bridges with nothing beside them becomes one, and a port with one device below it that device."""
    below = [collapsed(each) for each in branch.below]
    if branch.kind in ("bridge", "root") and len(below) == 1 and below[0].kind == "bridge":
        return Branch(f"{branch.text} > {below[0].text.removeprefix('bridge ')}", branch.kind, below[0].below)
    if branch.kind == "bridge" and len(below) == 1 and not below[0].below:
        return below[0]
    return Branch(branch.text, branch.kind, below)


def _numa(numa: NumaNode, node: Node, devices: list[Branch]) -> Branch:
    places = [n for n, core in enumerate(node.cpu.cores) if core.numa == numa.id]
    memory = f", {numa.memory_mib / 1024:.0f} GiB" if numa.memory_mib is not None else ""
    cpus = f"CPUs {fold_ids(numa.cpus)}" if numa.cpus else "no CPUs"
    cores = f" (Slurm Cores {fold_ids(places)})" if places else ""
    return Branch(f"NUMA {numa.id}: {cpus}{cores}{memory}", "numa", devices)


def devices_by_numa(node: Node) -> dict[int | None, list[Branch]]:
    """The PCIe trees that hold something of interest, by the NUMA node of what is in them."""
    devices = by_address(node)
    labels = _labels(node)
    roots: dict[int | None, dict[str, Branch]] = {}
    for address in sorted(labels, key=pci_key):
        device = devices.get(address)
        place = roots.setdefault(_place(address, node, device), {})
        above = lineage(address, devices)
        bus = f"root bus {device.root}" if device and device.root else "PCIe"
        here = place.setdefault(bus, Branch(bus, "root"))
        for bridge in reversed(above):
            text = f"bridge {bridge}{_link(devices.get(bridge))}"
            found = next((b for b in here.below if b.text == text), None)
            if found is None:
                found = Branch(text, "bridge")
                here.below.append(found)
            here = found
        here.below += labels[address]
    return {numa: list(found.values()) for numa, found in roots.items()}


def _place(address: str, node: Node, device: PciDevice | None) -> int | None:
    if device is not None and device.numa is not None:
        return device.numa
    owners: tuple[Gpu | Nic | Disk, ...] = (*node.gpus, *node.nics, *node.disks)
    return next((owner.numa for owner in owners if owner.pci == address and owner.numa is not None), None)


def _labels(node: Node) -> dict[str, list[Branch]]:
    """What is worth a line, by its PCI address."""
    found: dict[str, list[Branch]] = {}
    for gpu in node.gpus:
        found.setdefault(gpu.pci, []).append(Branch(gpu_label(gpu), "gpu"))
    for nic in physical(node):
        found.setdefault(nic.pci, []).append(Branch(nic_label(nic), "nic"))
    for disk in node.disks:
        if disk.pci:
            found.setdefault(disk.pci, []).append(Branch(f"disk {disk.name} {disk.model} {disk.pci}", "disk"))
    return found


def gpu_label(gpu: Gpu) -> str:
    number = "?" if gpu.index is None else str(gpu.index)
    words = [f"GPU {number}", gpu.model or f"{gpu.vendor} GPU", gpu.pci, gpu.device_file]
    return " ".join(word for word in words if word) + _width(gpu)


def nic_label(nic: Nic) -> str:
    port = f"/{nic.port}" if nic.port else ""
    words = [f"NIC {nic.name}{port}", nic.netdev if nic.netdev != nic.name else "", nic.pci, nic.link_layer,
             nic.rate_text, nic.state.lower()]
    return " ".join(word for word in words if word) + _width(nic)


def _width(device: Gpu | Nic) -> str:
    if not device.pcie_width:
        return ""
    best = device.pcie_width_max
    less = f" of x{best}" if best and best != device.pcie_width else ""
    return f", PCIe x{device.pcie_width}{less}"


def _link(device: PciDevice | None) -> str:
    return f" {device.link}" if device and device.link else ""


def draw(node: Node) -> str:
    """The tree, then the links between GPUs, the GPUs near each NIC, and how to bind ranks."""
    lines = [*_draw(collapsed(tree(node)), "", ""), "", *links(node), "", *_near(node), "", *_bindings(node)]
    return "\n".join(printable(line, limit=WIDE) for line in _without_double_blanks(lines))


def _draw(branch: Branch, first: str, rest: str) -> Iterator[str]:
    yield first + branch.text
    for number, below in enumerate(branch.below):
        last = number == len(branch.below) - 1
        yield from _draw(below, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _without_double_blanks(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if line or (found and found[-1]):
            found.append(line)
    while found and not found[-1]:
        found.pop()
    return found


def links(node: Node) -> list[str]:
    """One line where all pairs are alike, else the matrix."""
    if len(node.gpus) < 2:
        return []
    if not node.gpu_links:
        return ["GPU links: not known"]
    labels = Counter(label for row, line in enumerate(node.gpu_links) for label in line[row + 1:])
    if len(labels) == 1:
        return [f"GPU links: {next(iter(labels))} between all {len(node.gpus)} GPUs"]
    names = [f"GPU{gpu.index}" for gpu in node.gpus]
    wide = max(len(text) for text in (*names, *labels))
    rows = [("", *names), *((name, *(text or "?" for text in line))
                            for name, line in zip(names, node.gpu_links, strict=False))]
    return ["GPU links:", *("  " + " ".join(f"{text:<{wide}}" for text in row).rstrip() for row in rows)]


def _near(node: Node) -> list[str]:
    rail = {item.nic: number for number, item in enumerate(rails(node))}
    lines = []
    for item in nearest(node) if node.gpus else ():
        gpus = ", ".join(map(str, item.gpus))
        tie = f"as near to GPUs {gpus}" if len(item.gpus) > 1 else f"nearest is GPU {gpus}"
        where = f"rail {rail[item.nic]}, " if item.nic in rail else ""
        lines.append(f"  {item.nic}: {where}{tie} ({item.relation})" if item.relation else f"  {item.nic}: not known")
    return ["GPUs near each NIC:", *lines] if lines else []


def _bindings(node: Node) -> list[str]:
    lines = []
    for item in bindings(node):
        cpus = f"CPUs {fold_ids(item.cpus)} (mask {mask(item.cpus)})" if item.cpus else "CPUs not known"
        nics = f", {' '.join(item.nics)}" if item.nics else ""
        lines.append(f"  GPU {item.gpu}: NUMA {'?' if item.numa is None else item.numa}, {cpus}{nics}")
    options = srun_options(node)
    if options:
        lines.append(f"  srun {options}")
    return ["Binding, a rank for each GPU:", *lines] if lines else []


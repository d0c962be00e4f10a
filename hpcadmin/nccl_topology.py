"""A node as the XML that NCCL reads from NCCL_TOPO_FILE: only what is known; NCCL itself asks for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from hpcadmin.errors import UsageError
from hpcadmin.model import Gpu, Nic, Node, NumaNode, PciDevice
from hpcadmin.topology import by_address, lineage

_VENDORS = (("Intel", "GenuineIntel"), ("AMD", "AuthenticAMD"))
_MASK_WORD = 32


def document(node: Node) -> str:
    """Raises UsageError where the place of a GPU is not known: a file that guesses costs more than none.

    The elements and attributes are those that NCCL writes itself to NCCL_TOPO_DUMP_FILE (NCCL user guide, and its
    graph/xml.cc): system, cpu by NUMA node with affinity mask, pci by bridge and device, gpu, nic and net.
    """
    devices = by_address(node)
    wanted: list[tuple[str, Gpu | Nic]] = [*((gpu.pci, gpu) for gpu in node.gpus), *_nets(node)]
    unplaced = [address or "a device" for address, _ in wanted if _numa(address, devices) is None]
    if not node.gpus or unplaced or not any(n.cpus for n in node.cpu.numa):
        why = f"the NUMA node of {', '.join(unplaced)} is not known" if unplaced else "its GPUs or NUMA nodes are not"
        raise UsageError(f"no topology for NCCL: {why}", where=node.name)
    lines = ['<system version="1">']
    for numa in node.cpu.numa:
        here = [(address, item) for address, item in wanted if _numa(address, devices) == numa.id]
        if numa.cpus:
            lines += _cpu(numa, node, here, devices)
        elif here:
            raise UsageError(f"no topology for NCCL: NUMA node {numa.id} has devices and no CPUs", where=node.name)
    return "\n".join([*lines, "</system>"]) + "\n"


def _nets(node: Node) -> list[tuple[str, Nic]]:
    return [(nic.pci, nic) for nic in node.nics if nic.rdma and nic.pci and not nic.virtual]


def _numa(address: str, devices: Mapping[str, PciDevice]) -> int | None:
    device = devices.get(address)
    return device.numa if device else None


def _cpu(numa: NumaNode, node: Node, here: list[tuple[str, Gpu | Nic]], devices: Mapping[str, PciDevice]) -> list[str]:
    vendor = next((name for word, name in _VENDORS if word in node.cpu.model), "")
    attributes = {"numaid": str(numa.id), "affinity": affinity(numa.cpus), "arch": node.cpu.architecture,
                  "vendor": vendor}
    root: dict[str, dict] = {}           # type: ignore[type-arg]
    leaves: dict[str, list[Gpu | Nic]] = {}
    for address, item in sorted(here, key=lambda pair: pair[0]):
        place = root
        for bridge in (*reversed(lineage(address, devices)), address):
            place = place.setdefault(bridge, {})
        leaves.setdefault(address, []).append(item)
    return [f"  <cpu{_attributes(attributes)}>", *_pci(root, leaves, devices, node, "    "), "  </cpu>"]


def _pci(tree: Mapping[str, Mapping], leaves: Mapping[str, list[Gpu | Nic]],  # type: ignore[type-arg]
         devices: Mapping[str, PciDevice], node: Node, indent: str) -> list[str]:
    lines = []
    for address, below in tree.items():
        device = devices[address]
        speed, _, width = device.link.partition(" PCIe x")
        attributes = {"busid": address, "class": f"0x{device.class_id}", "link_speed": f"{speed} PCIe" if speed else "",
                      "link_width": width}
        lines.append(f"{indent}<pci{_attributes(attributes)}>")
        for item in leaves.get(address, []):
            lines += _gpu(item, node, indent + "  ") if isinstance(item, Gpu) else _nic(item, indent + "  ")
        lines += _pci(below, leaves, devices, node, indent + "  ")
        lines.append(f"{indent}</pci>")
    return lines


def _gpu(gpu: Gpu, node: Node, indent: str) -> list[str]:
    return [f"{indent}<gpu{_attributes({'dev': '' if gpu.index is None else str(gpu.index)})}/>"]


def _nic(nic: Nic, indent: str) -> list[str]:
    speed = "" if nic.rate_gbps is None else f"{nic.rate_gbps * 1000:.0f}"
    attributes = {"name": nic.rdma, "port": "" if nic.port is None else str(nic.port), "speed": speed,
                  "guid": nic.guid if nic.guid.startswith("0x") else ""}
    return [f"{indent}<nic>", f"{indent}  <net{_attributes(attributes)}/>", f"{indent}</nic>"]


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in values.items() if value)


def affinity(cpus: tuple[int, ...]) -> str:
    """OS CPU ids as the kernel prints a mask: words of 32 bits in hex, the highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    words: list[str] = []
    while bits or not words:
        words.append(f"{bits & 0xffffffff:08x}")
        bits >>= _MASK_WORD
    return ",".join(reversed(words))

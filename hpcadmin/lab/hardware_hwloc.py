"""The simulated node as an hwloc 2.x XML, for HWLOC_XMLFILE: slurmd and lstopo then see the profile's hardware."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from hpcadmin.lab.hardware_pci import PciNode
from hpcadmin.lab.hardware_profile import CpuSpec, Profile

# Bytes a second of one lane, by PCIe generation, as hwloc reckons them (GB/s).
_LANE_GBS = {1: 0.25, 2: 0.5, 3: 8.0 * 128 / 130 / 8, 4: 16.0 * 128 / 130 / 8, 5: 32.0 * 128 / 130 / 8}


def hwloc_xml(profile: Profile, pci: list[PciNode], memory_kib: int) -> str:
    writer = _Writer()
    cpu = profile.cpu
    everyone = bitmap(range(cpu.count))
    nodes = bitmap(range(cpu.sockets))
    with_all = _sets(everyone, nodes) + f' allowed_cpuset="{everyone}" allowed_nodeset="{nodes}"'
    writer.open("Machine", f'os_index="0" {with_all}')
    writer.info("DMIProductName", profile.product)
    writer.info("DMISysVendor", profile.vendor)
    writer.info("Backend", "Linux")
    for socket in range(cpu.sockets):
        _package(writer, profile, socket, [node for node in pci if node.numa == socket], memory_kib // cpu.sockets)
    writer.close()
    body = "\n".join(writer.lines)
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
            f'<topology version="2.0">\n{body}\n</topology>\n')


def bitmap(ids: range | tuple[int, ...]) -> str:
    """A set as hwloc writes it: 32-bit words, highest first."""
    value = sum(1 << i for i in ids)
    words = []
    while True:
        words.append(f"0x{value & 0xffffffff:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(words))


def _sets(cpus: str, nodes: str) -> str:
    return f'cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}"'


def _package(writer: _Writer, profile: Profile, socket: int, pci: list[PciNode], memory_kib: int) -> None:
    cpu = profile.cpu
    ids = bitmap(cpu.socket_cpus(socket))
    node = bitmap((socket,))
    writer.open("Package", f'os_index="{socket}" {_sets(ids, node)}')
    for name, value in (("CPUVendor", "GenuineIntel"), ("CPUFamilyNumber", cpu.family),
                        ("CPUModelNumber", cpu.model_number), ("CPUModel", cpu.model), ("CPUStepping", cpu.stepping)):
        writer.info(name, str(value))
    writer.open("NUMANode", f'os_index="{socket}" {_sets(ids, node)} local_memory="{memory_kib * 1024}"')
    writer.line(f'<page_type size="4096" count="{memory_kib // 4}"/>')
    writer.close()
    writer.open("L3Cache", f'os_index="{socket}" {_sets(ids, node)} '
                           f'cache_size="{cpu.l3_kib * 1024}" depth="3" cache_linesize="64" '
                           'cache_associativity="15" cache_type="0"')
    for core in range(socket * cpu.cores_per_socket, (socket + 1) * cpu.cores_per_socket):
        _core(writer, cpu, core, node)
    writer.close()
    for root in sorted({item.chain[0] for item in pci}):
        _host_bridge(writer, root, [item for item in pci if item.chain[0] == root], profile)
    writer.close()


def _core(writer: _Writer, cpu: CpuSpec, core: int, node: str) -> None:
    threads = cpu.core_cpus(core)
    sets = _sets(bitmap(threads), node)
    for kind, size, ways, depth, cache_type in (("L2Cache", cpu.l2_kib, 16, 2, 0), ("L1Cache", cpu.l1d_kib, 12, 1, 1)):
        writer.open(kind, f'{sets} cache_size="{size * 1024}" depth="{depth}" cache_linesize="64" '
                          f'cache_associativity="{ways}" cache_type="{cache_type}"')
    writer.open("Core", f'os_index="{core % cpu.cores_per_socket}" {sets}')
    for number in threads:
        writer.open("PU", f'os_index="{number}" {_sets(bitmap((number,)), node)}')
        writer.close()
    for _ in range(3):
        writer.close()


def _host_bridge(writer: _Writer, root: str, nodes: list[PciNode], profile: Profile) -> None:
    bus = root.removeprefix("pci0000:")
    last = max(node.behind[1] if node.behind else node.bus for node in nodes)
    writer.open("Bridge", f'bridge_type="0-1" depth="0" bridge_pci="0000:[{bus}-{last:02x}]"')
    _below(writer, (root,), nodes, profile, 1)
    writer.close()


def _below(writer: _Writer, chain: tuple[str, ...], nodes: list[PciNode], profile: Profile, depth: int) -> None:
    for node in nodes:
        if node.chain != chain:
            continue
        vendor, device, sub_vendor, sub_device = node.ids
        speed = f"{_LANE_GBS[node.gen] * node.width:.6f}"
        attributes = (f'pci_busid="{node.address}" pci_type="{node.class_id >> 8:04x} [{vendor:04x}:{device:04x}] '
                      f'[{sub_vendor:04x}:{sub_device:04x}] {node.revision:02x}" pci_link_speed="{speed}"')
        if node.behind:
            attributes = (f'bridge_type="1-1" depth="{depth}" '
                          f'bridge_pci="0000:[{node.behind[0]:02x}-{node.behind[1]:02x}]" ') + attributes
            writer.open("Bridge", attributes)
            _below(writer, (*chain, node.address), nodes, profile, depth + 1)
        else:
            writer.open("PCIDev", attributes)
            name = next((nic.name for nic in profile.nics if nic.pci == node.address), "")
            if name:
                writer.open("OSDev", f'name="{name}" osdev_type="3"')
                writer.close()
        writer.close()


class _Writer:
    """Objects with running indices and indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._count = 0

    def open(self, kind: str, attributes: str) -> None:
        self._count += 1
        self.line(f'<object type="{kind}" {attributes} gp_index="{self._count}">')
        self._depth += 1

    def close(self) -> None:
        self._depth -= 1
        self.line("</object>")

    def info(self, name: str, value: str) -> None:
        self.line(f"<info name={quoteattr(name)} value={quoteattr(value)}/>")

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

"""The simulated PCI bus: bridges, switches, GPUs, HCAs and NVSwitches as sysfs shows them, and what lies between two.

Real sysfs has each device's folder under /sys/devices/pciDDDD:BB/… and links to it in /sys/bus/pci/devices. Here the
folders lie in bus/pci/devices/.tree/pciDDDD:BB/…, so that the links hold when only bus/pci is replaced; tools that
list the folder skip names with a dot.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hpcadmin.lab.hardware_profile import LAYOUT, Profile, Slot, id_list, id_mask
from hpcadmin.lab.hardware_tree import Tree

SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
NVIDIA, MELLANOX, INTEL, BROADCOM = 0x10DE, 0x15B3, 0x8086, 0x1000
ROOT_PORT, UPSTREAM, DOWNSTREAM, ENDPOINT = 4, 5, 6, 0      # PCI Express device/port types


@dataclass(frozen=True)
class PciNode:
    """A device on the simulated bus. behind: buses below a bridge (secondary, subordinate)."""

    address: str
    chain: tuple[str, ...]           # host bridge and bridges above: ("pci0000:15", "0000:15:01.0")
    kind: str                        # "bridge", "gpu", "nic", "nvswitch"
    ids: tuple[int, int, int, int]   # vendor, device, subsystem vendor, subsystem
    class_id: int
    revision: int
    numa: int
    gen: int
    width: int
    width_max: int
    driver: str
    port_type: int = ENDPOINT
    behind: tuple[int, int] | None = None

    @property
    def bus(self) -> int:
        return int(self.address[5:7], 16)

    @property
    def path(self) -> str:
        return "/".join((*self.chain, self.address))


def pci_nodes(profile: Profile) -> list[PciNode]:
    """All devices of the simulated bus, in bus order."""
    absent = {address for i, address in enumerate(_all_gpus(profile)) if i in profile.absent}
    nodes = [node for slot in profile.slots for node in _slot_nodes(profile, slot) if node.address not in absent]
    return sorted(nodes, key=lambda node: node.address)


def _all_gpus(profile: Profile) -> list[str]:
    return sorted(f"0000:{int(slot.root, 16) + offset:02x}:00.0"
                  for slot in profile.slots for kind, offset in LAYOUT[slot.kind] if kind == "gpu")


def _slot_nodes(profile: Profile, slot: Slot) -> list[PciNode]:
    root = int(slot.root, 16)
    maker = _Maker(profile, slot, root)
    last = root + LAYOUT[slot.kind][-1][1]
    port = maker.bridge(f"{root:02x}:01.0", (f"pci0000:{root:02x}",), root + 1, last, port_type=ROOT_PORT)
    if slot.kind in ("gpu", "nic"):
        return [port, maker.device(slot.kind, root + 1, port)]
    up = maker.bridge(f"{root + 1:02x}:00.0", (*port.chain, port.address), root + 2, last, port_type=UPSTREAM)
    below = (*up.chain, up.address)
    nodes = [port, up]
    if slot.kind == "nvswitch":
        for number, (_, offset) in enumerate(LAYOUT["nvswitch"]):
            down = maker.bridge(f"{root + 2:02x}:{number:02x}.0", below, root + offset, root + offset,
                                port_type=DOWNSTREAM)
            nodes += [down, maker.device("nvswitch", root + offset, down)]
        return nodes
    to_nic = maker.bridge(f"{root + 2:02x}:00.0", below, root + 3, root + 3, port_type=DOWNSTREAM)
    to_switch = maker.bridge(f"{root + 2:02x}:01.0", below, root + 4, root + 6, port_type=DOWNSTREAM)
    second = maker.bridge(f"{root + 4:02x}:00.0", (*to_switch.chain, to_switch.address), root + 5, root + 6,
                          port_type=UPSTREAM)
    to_gpu = maker.bridge(f"{root + 5:02x}:00.0", (*second.chain, second.address), root + 6, root + 6,
                          port_type=DOWNSTREAM)
    return [*nodes, to_nic, maker.device("nic", root + 3, to_nic), to_switch, second, to_gpu,
            maker.device("gpu", root + 6, to_gpu)]


class _Maker:
    """Makes the devices of one slot."""

    def __init__(self, profile: Profile, slot: Slot, root: int) -> None:
        self.profile = profile
        self.numa = slot.numa
        self.root = root
        self.gen = max(profile.gpu.pcie_gen, profile.nic.pcie_gen)

    def bridge(self, where: str, chain: tuple[str, ...], secondary: int, subordinate: int, *,
               port_type: int) -> PciNode:
        ids = (INTEL, 0x352A, INTEL, 0) if port_type == ROOT_PORT else (BROADCOM, 0xC030, BROADCOM, 0xA064)
        return PciNode(f"0000:{where}", chain, "bridge", ids, 0x060400, 0x04, self.numa, self.gen, 16, 16, "pcieport",
                       port_type, (secondary, subordinate))

    def device(self, kind: str, bus: int, above: PciNode) -> PciNode:
        address = f"0000:{bus:02x}:00.0"
        chain = (*above.chain, above.address)
        gpu, nic = self.profile.gpu, self.profile.nic
        if kind == "gpu":
            width = next((g.width for g in self.profile.gpus if g.pci == address), gpu.pcie_width)
            ids = (NVIDIA, int(gpu.device_id, 16), NVIDIA, int(gpu.subsystem_id, 16))
            return PciNode(address, chain, kind, ids, 0x030200, 0xA1, self.numa, gpu.pcie_gen, width, gpu.pcie_width,
                           "nvidia")
        if kind == "nic":
            ids = (MELLANOX, int(nic.device_id, 16), MELLANOX, int(nic.subsystem_id, 16))
            return PciNode(address, chain, kind, ids, 0x020700, 0x00, self.numa, nic.pcie_gen, nic.pcie_width,
                           nic.pcie_width, "mlx5_core")
        return PciNode(address, chain, kind, (NVIDIA, 0x22A3, NVIDIA, 0x1796), 0x068000, 0xA1, self.numa, 4, 2, 2,
                       "nvidia-nvswitch")


def relation(one: PciNode, other: PciNode) -> str:
    """The nearest thing two devices have in common, in the words of `nvidia-smi topo -m`."""
    if one.numa != other.numa:
        return "SYS"
    if one.chain[0] != other.chain[0]:
        return "NODE"
    shared = sum(1 for a, b in zip(one.chain, other.chain, strict=False) if a == b)
    if shared == 1:
        return "PHB"
    between = len(one.chain) + len(other.chain) - 2 * shared
    return "PIX" if between <= 2 else "PXB"     # two downstream ports of one switch are one bridge


def write_pci(tree: Tree, profile: Profile) -> None:
    """sys/bus/pci of the tree."""
    cpu = profile.cpu
    for number, node in enumerate(pci_nodes(profile)):
        base = f"sys/bus/pci/devices/.tree/{node.path}"
        local = cpu.socket_cpus(node.numa)
        vendor, device, sub_vendor, sub_device = node.ids
        tree.file(f"{base}/config", config_space(node))
        for name, value in (
            ("vendor", f"0x{vendor:04x}"), ("device", f"0x{device:04x}"), ("class", f"0x{node.class_id:06x}"),
            ("subsystem_vendor", f"0x{sub_vendor:04x}"), ("subsystem_device", f"0x{sub_device:04x}"),
            ("revision", f"0x{node.revision:02x}"), ("numa_node", node.numa), ("irq", 16 + number % 32),
            ("local_cpulist", id_list(local)), ("local_cpus", id_mask(local, cpu.count)), ("enable", 1),
            ("current_link_speed", SPEEDS[node.gen]), ("max_link_speed", SPEEDS[node.gen]),
            ("current_link_width", node.width), ("max_link_width", node.width_max), ("broken_parity_status", 0),
            ("uevent", f"DRIVER={node.driver}\nPCI_CLASS={node.class_id:X}\nPCI_ID={vendor:04X}:{device:04X}\n"
                       f"PCI_SUBSYS_ID={sub_vendor:04X}:{sub_device:04X}\nPCI_SLOT_NAME={node.address}"),
        ):
            tree.value(f"{base}/{name}", value)
        tree.file(f"{base}/resource", _resources(node))
        tree.link(f"sys/bus/pci/devices/{node.address}", base)
        tree.link(f"sys/bus/pci/drivers/{node.driver}/{node.address}", f"sys/bus/pci/devices/{node.address}")
        tree.link(f"{base}/driver", f"sys/bus/pci/drivers/{node.driver}")
    tree.folder("sys/bus/pci/slots")
    tree.value("sys/bus/pci/drivers_autoprobe", 1)


def _bar(node: PciNode) -> tuple[int, int]:
    """Address and size of the one 64-bit window a device has (none for bridges)."""
    size = {"gpu": 1 << 37, "nic": 1 << 25, "nvswitch": 1 << 25}.get(node.kind, 0)
    return (node.bus + 1) << 38, size


def _resources(node: PciNode) -> str:
    start, size = _bar(node)
    rows = [(0, 0, 0)] * 13
    if size:
        rows[0] = (start, start + size - 1, 0x14220C)
    return "".join(f"0x{a:016x} 0x{b:016x} 0x{c:016x}\n" for a, b, c in rows)


def config_space(node: PciNode, *, width: int | None = None) -> bytes:
    """The first 256 bytes of configuration space, with a PCI Express capability for the link's speed and width."""
    vendor, device, sub_vendor, sub_device = node.ids
    raw = bytearray(256)
    header = 1 if node.behind else 0
    struct.pack_into("<HHHHBBHBBBB", raw, 0, vendor, device, 0x0406, 0x0010, node.revision, node.class_id & 0xFF,
                     node.class_id >> 8, 16, 0, header, 0)
    if node.behind:
        secondary, subordinate = node.behind
        struct.pack_into("<BBB", raw, 0x18, node.bus, secondary, subordinate)
    else:
        start, size = _bar(node)
        if size:
            struct.pack_into("<Q", raw, 0x10, start | 0xC)
        struct.pack_into("<HH", raw, 0x2C, sub_vendor, sub_device)
        raw[0x3D] = 1       # interrupt pin A
    raw[0x34] = 0x60
    now = node.width if width is None else width
    struct.pack_into("<BBHIHHIHH", raw, 0x60, 0x10, 0, 2 | node.port_type << 4, 0, 0, 0,
                     node.gen | node.width_max << 4, 0, node.gen | now << 4)
    struct.pack_into("<I", raw, 0x60 + 0x2C, ((1 << node.gen) - 1) << 1)
    return bytes(raw)


def fallen_config() -> bytes:
    """What every read of a device returns that has fallen off the bus."""
    return b"\xff" * 256

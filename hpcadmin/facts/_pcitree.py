"""PCI devices as lspci tells of them: which are GPUs, NVSwitches and NICs, and what hangs under which bridge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.model import PciDevice

NVSWITCHES = frozenset({"10de:1ac0", "10de:1ac1", "10de:1ac2", "10de:1af1", "10de:22a3", "10de:22a4"})
BRIDGE = "0604"
# Longest first where one begins with another.
VENDORS = {
    "NVIDIA Corporation": "10de", "Mellanox Technologies": "15b3", "Advanced Micro Devices, Inc. [AMD/ATI]": "1002",
    "Advanced Micro Devices, Inc. [AMD]": "1022", "Intel Corporation": "8086", "ASPEED Technology, Inc.": "1a03",
    "Matrox Electronics Systems Ltd.": "102b", "Broadcom Inc. and subsidiaries": "14e4", "Broadcom Limited": "14e4",
    "Broadcom / LSI": "1000", "Samsung Electronics Co Ltd": "144d", "Amazon.com, Inc.": "1d0f",
    "Microsoft Corporation": "1414", "Cornelis Networks": "434e", "Cray Inc": "17db", "Chelsio Communications Inc":
    "1425", "Pensando Systems": "1dd8", "PLDA": "1556", "Red Hat, Inc.": "", "PMC-Sierra Inc.": "11f8",
    "Micron Technology Inc": "1344", "PLX Technology, Inc.": "10b5", "Kioxia Corporation": "1e0f",
    "nVidia Corporation": "10de", "Advanced Micro Devices [AMD] nee ATI": "1002", "ATI Technologies Inc": "1002",
    "Advanced Micro Devices nee ATI": "1002", "Advanced Micro Devices [AMD]": "1022", "Broadcom Corporation": "14e4",
    "QLogic Corp.": "1077", "Emulex Corporation": "10df", "LSI Logic / Symbios Logic": "1000", "Google, Inc.": "1ae0",
    "Realtek Semiconductor Co., Ltd.": "10ec", "Solarflare Communications": "1924", "Xilinx Corporation": "10ee",
    "Huawei Technologies Co., Ltd.": "19e5", "Cavium, Inc.": "177d", "Aquantia Corp.": "1d6a", "SK hynix": "1c5c",
    "Sandisk Corp": "15b7", "Toshiba Corporation": "1179",
    "Renesas Technology Corp.": "1912", "Pericom Semiconductor": "12d8", "Habana Labs Ltd.": "1da3",
}
_NO_RDMA = re.compile(r"BCM57[0-2][0-9]\b|\bI(?:210|211|219|225|226|350)\b|82599|\bX5[45]0\b|Gigabit Network|Virtio|"
                      r"\bENA\b|Elastic Network|RTL8|AQtion", re.IGNORECASE)
_AMD_COMPUTE = re.compile(r"Instinct|\bMI[0-9]{2,3}|FirePro S|Radeon (?:Pro )?(?:PRO )?W|Radeon Pro V", re.IGNORECASE)


_INTEL_CARD = re.compile(r"Data Center GPU|\[Arc |\bArc Pro|\bBattlemage|Device (?:e2[0-9a-f]{2}|56[0-9a-f]{2})\b")


@dataclass(frozen=True)
class LspciDevice:
    """A line of lspci, with what follows below it under -v. class_id: four digits; "" when it is not told."""

    address: str
    printed: str                     # the address as it stands in the text
    class_id: str = ""
    class_name: str = ""
    numeric: bool = False            # the class was printed as a number
    vendor_id: str = ""
    device_id: str = ""
    vendor: str = ""
    name: str = ""
    revision: str = ""
    numa: int | None = None
    driver: str = ""
    speed: str = ""                  # "16GT/s"
    width: int | None = None
    speed_max: str = ""
    width_max: int | None = None
    downgraded: tuple[str, ...] = () # "speed", "width"
    secondary: int | None = None     # of a bridge: the buses below it
    subordinate: int | None = None
    parent: str = ""
    root: str = ""
    line: int | None = None

    @property
    def pci_id(self) -> str:
        return f"{self.vendor_id}:{self.device_id}" if self.vendor_id and self.device_id else self.device_id

    @property
    def full_name(self) -> str:
        return f"{self.vendor} {self.name}".strip()

    @property
    def bus(self) -> tuple[int, int]:
        domain, bus, _ = self.address.split(":")
        return int(domain, 16), int(bus, 16)

    @property
    def is_gpu(self) -> bool:
        return is_gpu(self.vendor_id, self.class_id, self.name, self.address)

    @property
    def is_nvswitch(self) -> bool:
        return self.pci_id in NVSWITCHES or (self.vendor_id == "10de" and self.class_id == "0680")

    @property
    def is_nic(self) -> bool:
        return self.class_id.startswith("02")

    @property
    def rdma(self) -> bool | None:
        """Is it InfiniBand or another fabric; None: an Ethernet controller that may do RoCE."""
        if self.class_id in ("0207", "0208") or (self.vendor_id == "1d0f" and self.device_id.startswith("efa")):
            return True
        return False if _NO_RDMA.search(self.name) else None


def is_gpu(vendor_id: str, class_id: str, name: str = "", address: str = "") -> bool:
    """A GPU to compute on. A board's own graphics chip is a VGA controller too, so AMD's and Intel's VGA controllers
    count only by a name that says so; Intel's processing accelerators (1200) are no GPUs, nor is the graphics in its
    processors, which is always 00:02."""
    if vendor_id == "10de":
        return class_id in ("0300", "0302", "0380")
    if vendor_id == "1002":
        return class_id in ("0302", "0380", "1200") or (class_id == "0300" and bool(_AMD_COMPUTE.search(name)))
    if vendor_id == "8086":
        return (class_id in ("0302", "0380") and ":00:02." not in address) or (
            class_id == "0300" and bool(_INTEL_CARD.search(name)))
    return False


def virtual_functions(devices: Sequence[LspciDevice]) -> frozenset[str]:
    """Addresses of NVIDIA's virtual functions: they stand beside their GPU, which is function 0 of device 0 of its bus
    and of the same name. GPUs beside each other, as in virtual machines, are function 0 all of them."""
    buses: dict[tuple[int, int], list[LspciDevice]] = {}
    for device in devices:
        if device.vendor_id == "10de" and device.is_gpu:
            buses.setdefault(device.bus, []).append(device)
    found = set()
    for beside in buses.values():
        first = next((device for device in beside if device.address.endswith(":00.0")), None)
        same = [device for device in beside if first and device is not first and device.name == first.name]
        if any(not device.address.endswith(".0") for device in same):
            found |= {device.address for device in same}
    return frozenset(found)


def with_parents(devices: Sequence[LspciDevice]) -> list[LspciDevice]:
    """The devices with the bridge above each and its root bus, as far as bus numbers tell them. Without those, a
    domain's only bridge is above all other buses of that domain."""
    bridges = {(device.bus[0], device.secondary): device for device in devices if device.secondary is not None}
    if not bridges:
        return _only_bridges(devices)
    found = []
    roots: dict[tuple[int, int], str] = {}
    for device in devices:
        bus = device.bus
        parent = bridges.get(bus)
        if bus not in roots:
            roots[bus] = _root(device, bridges)
        above = parent.address if parent and parent is not device else ""
        found.append(LspciDevice(**{**device.__dict__, "parent": above, "root": roots[bus]}))
    return found


def _root(device: LspciDevice, bridges: Mapping[tuple[int, int], LspciDevice]) -> str:
    """The root bus, which is the same for all devices of one bus; "" where the bridges run in a circle."""
    top, steps = device, 0
    while (above := bridges.get(top.bus)) is not None and steps < 64 and above.address != top.address:
        top, steps = above, steps + 1
    return top.address[:-5] if steps < 64 else ""


def _only_bridges(devices: Sequence[LspciDevice]) -> list[LspciDevice]:
    by_domain: dict[int, list[LspciDevice]] = {}
    for device in devices:
        if device.class_id == BRIDGE:
            by_domain.setdefault(device.bus[0], []).append(device)
    found = []
    for device in devices:
        bridges = by_domain.get(device.bus[0], [])
        only = bridges[0] if len(bridges) == 1 and device.bus > bridges[0].bus else None
        found.append(replace(device, parent=only.address, root=only.address[:-5]) if only else device)
    return found


def paths(devices: Iterable[LspciDevice]) -> dict[str, tuple[str, ...]]:
    """The bridges above each device, from the root on."""
    parents = {device.address: device.parent for device in devices}
    found = {}
    for address, parent in parents.items():
        path: list[str] = []
        above = parent
        while above and len(path) < 64:
            path.append(above)
            above = parents.get(above, "")
        found[address] = tuple(reversed(path))
    return found


def to_model(device: LspciDevice) -> PciDevice:
    def link(speed: str, width: int | None) -> str:
        number = speed.removesuffix("GT/s")
        return f"{float(number):.1f} GT/s x{width}" if number.replace(".", "", 1).isdigit() and width else ""

    return PciDevice(
        address=device.address, class_id=device.class_id + "00" if device.class_id else "", vendor_id=device.vendor_id,
        device_id=device.device_id, numa=device.numa, link=link(device.speed, device.width),
        link_max=link(device.speed_max, device.width_max), driver=device.driver,
        name=device.full_name, parent=device.parent, root=device.root)

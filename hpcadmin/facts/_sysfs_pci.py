"""PCI devices of a dump of /sys: where each hangs, what is built on it, and which CPUs are near."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcadmin.facts._base import clean, pci_address, pci_key
from hpcadmin.facts._sysfs import Cpus, Sysfs
from hpcadmin.model import PciDevice
from hpcadmin.text import fold_ids

_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\Z")
_ROOT = re.compile(r"pci([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2})\Z")
_HEX = re.compile(r"0x([0-9a-fA-F]{2,8})\Z")
_FILES = frozenset({"class", "vendor", "device", "numa_node", "local_cpus", "local_cpulist", "current_link_speed",
                    "current_link_width", "max_link_speed", "max_link_width"})
_BUILT = frozenset({"net", "infiniband", "block"})
_GPU_CLASSES = {"10de": ("0300", "0302"), "1002": ("0302", "0380", "1200"), "8086": ("0380", "1200")}


@dataclass
class Device:
    """numa_file: what the kernel's numa_node says, -1 as well. local: CPUs near it; None: not told."""

    pci: PciDevice
    numa_file: int | None = None
    local: Cpus | None = None
    built: set[str] = field(default_factory=set)        # net, infiniband and block devices on it
    kinds: set[str] = field(default_factory=set)
    driver: str = ""

    @property
    def kind(self) -> str:
        return self.pci.class_id[:4]

    @property
    def gpu(self) -> bool:
        if self.driver == "amdgpu" and self.kind == "0300":
            return True
        return self.kind in _GPU_CLASSES.get(self.pci.vendor_id, ())

    @property
    def nic(self) -> bool:
        return self.kind.startswith("02") or self.kind == "0c06" or bool(self.kinds & {"net", "infiniband"})

    @property
    def rdma(self) -> bool:
        return self.kind in ("0207", "0c06") or "infiniband" in self.kinds

    @property
    def disk(self) -> bool:
        return "block" in self.kinds and not all(name.startswith("sr") for name in self.built)


def devices(sysfs: Sysfs) -> dict[str, Device]:
    """By address, in bus order; {} when the dump has no PCI at all."""
    own: dict[str, dict[str, str]] = {}
    parents: dict[str, tuple[str, str]] = {}
    built: dict[str, set[tuple[str, str]]] = {}
    for path, text in sysfs.files.items():
        if "pci" not in path or not path.startswith("sys/"):
            continue
        _place(path, text, own, parents, built)
    found: dict[str, Device] = {}
    for address in sorted(own, key=pci_key):
        if own[address].keys() & {"class", "numa_node", "local_cpus", "local_cpulist"}:
            device = _device(sysfs, address, own[address], parents.get(address, ("", "")))
            device.built = {name for _, name in built.get(address, ())}
            device.kinds = {kind for kind, _ in built.get(address, ())}
            found[address] = device
    return found


def _place(path: str, text: str, own: dict[str, dict[str, str]], parents: dict[str, tuple[str, str]],
           built: dict[str, set[tuple[str, str]]]) -> None:
    if path.endswith("@") and "/class/" not in path:
        place = path[:-1].rsplit("/", 2)
        if place[-1] == "driver" and _ADDRESS.match(place[-2]):
            own.setdefault(pci_address(place[-2]), {})["driver"] = text.rsplit("/", 1)[-1]
    parts = (text if path.endswith("@") and path.startswith(("sys/class/", "sys/bus/pci/devices/")) else path
             ).rstrip("@").split("/")
    places = [at for at, part in enumerate(parts) if _ADDRESS.match(part)]
    if not places:
        return
    address, rest = pci_address(parts[places[-1]]), parts[places[-1] + 1:]
    if parts[1] == "devices":
        root = next((match[1].lower() for part in parts if (match := _ROOT.match(part))), "")
        above = pci_address(parts[places[-2]]) if len(places) > 1 else ""
        parents.setdefault(address, (above, root))
    if len(rest) == 1 and rest[0] in _FILES:
        own.setdefault(address, {})[rest[0]] = text
        return
    kind = next((at for at, part in enumerate(rest[:-1]) if part in _BUILT), None)
    if kind is not None:
        built.setdefault(address, set()).add((rest[kind], clean(rest[kind + 1], 60)))


def _device(sysfs: Sysfs, address: str, files: Mapping[str, str], above: tuple[str, str]) -> Device:
    def number(name: str) -> str:
        match = _HEX.match(files.get(name, "").strip())
        return match[1].lower() if match else ""

    def link(which: str) -> str:
        speed, width = files.get(f"{which}_link_speed", ""), files.get(f"{which}_link_width", "")
        return clean(f"{speed.strip()} x{width.strip()}") if speed.strip() and width.strip() else ""

    local = sysfs.both(files, (("local_cpus", "local_cpulist"),), address)
    node = files.get("numa_node", "").strip()
    numa = int(node) if re.fullmatch(r"-?[0-9]{1,5}", node) else None
    pci = PciDevice(address, number("class").zfill(6) if number("class") else "", number("vendor"), number("device"),
                    numa if numa is not None and numa >= 0 else None, fold_ids(local or ()), link("current"),
                    link("max"), clean(files.get("driver", ""), 60), parent=above[0], root=above[1])
    return Device(pci, numa, local, driver=pci.driver)


def check_locality(found: Mapping[str, Device], sysfs: Sysfs, problems: list[str], notes: list[str]) -> None:
    """numa_node against local_cpus. Devices of one bridge say the same, so that only those with something on them
    are told of."""
    nodes = {node.id: frozenset(node.cpus) for node in sysfs.numa()}
    for address, device in found.items():
        numa, local = device.numa_file, device.local
        if device.kind.startswith("06") or numa is None or local is None or numa < 0 or numa not in nodes:
            continue
        if local != nodes[numa]:
            problems.append(f"{address}: numa_node {numa} (CPUs {fold_ids(nodes[numa]) or 'none'}) contradicts its "
                            f"local_cpulist {fold_ids(local) or 'none'}")
    told = [device for device in found.values() if device.numa_file is not None]
    if told and all(device.numa_file == -1 for device in told):
        near = sorted({fold_ids(device.local or ()) for device in told})
        notes.append(f"numa_node is -1 on every PCI device, local CPUs are {' or '.join(near[:6])}")



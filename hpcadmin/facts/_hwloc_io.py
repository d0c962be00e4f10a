"""The devices in hwloc's tree: PCI functions with what the kernel calls them, and the CPUs and bridges above them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hpcadmin.facts._base import clean, maybe_integer, natural, pci_address, pci_key
from hpcadmin.facts._hwloc import Machine, Obj, Tree, fold, ids
from hpcadmin.facts._pcitree import is_gpu
from hpcadmin.model import Gpu, Nic, PciDevice

RELATIONS = ("PIX", "PXB", "PHB", "NODE", "SYS")
BRIDGE = "0604"
_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")
_NEW_KINDS = {1: "storage", 2: "memory", 4: "gpu", 8: "coprocessor", 16: "network", 32: "fabric", 64: "dma"}
_OLD_KINDS = ("storage", "gpu", "network", "fabric", "dma", "coprocessor", "memory")
_BUSES = re.compile(r"([0-9a-fA-F]{4,8}):\[([0-9a-fA-F]{2})-")
_FABRIC_CLASSES = frozenset({"0207", "0208", "0c06"})
_CRAY = "17db"
_VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
# AMD's graphics cards since 2012; below are the chips of server boards and the graphics in processors.
_AMD_CARDS = ("6600", "9800")
_COMPUTE = re.compile(r"(cuda|nvml|rsmi|ze|opencl)([0-9]{1,4})")
_COMPUTE_VENDOR = {"cuda": "10de", "nvml": "10de", "rsmi": "1002", "ze": "8086"}
_STATES = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE", "5": "ACTIVE_DEFER"}
_GUID = re.compile(r"(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\Z")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}\Z")


@dataclass(frozen=True)
class OsDevice:
    """What a driver made of a device: eth0, mlx5_0, cuda0, renderD128. kinds: storage, gpu, network, fabric, …"""

    name: str
    kinds: frozenset[str]
    infos: Mapping[str, str] = field(default_factory=dict)
    removable: bool = False


@dataclass(frozen=True)
class Device:
    """A PCI function. path: what is above it, the host bridge first. local: the CPUs that it hangs under.
    kind: its class, four digits; "" where only a name of it is told (class_name)."""

    address: str
    kind: str
    vendor: str = ""
    device: str = ""
    name: str = ""
    class_name: str = ""
    path: tuple[int, ...] = ()
    parent: str = ""
    root: str = ""
    local: int = 0
    subtype: str = ""
    os_devices: tuple[OsDevice, ...] = ()
    line: int = 0

    @cached_property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.os_devices)

    @property
    def pci_id(self) -> str | None:
        return f"{self.vendor}:{self.device}" if self.vendor else None

    def has(self, kind: str) -> bool:
        return any(kind in each.kinds for each in self.os_devices)

    @property
    def known_vendor(self) -> bool:
        return bool(self.vendor) and self.vendor != "0000"

    @property
    def gpu_vendor(self) -> str:
        """"nvidia", "amd", "intel" where it is a GPU to compute on; "?" where it is one of an unknown vendor."""
        for each in self.os_devices:
            match = _COMPUTE.match(each.name)
            if match and match[1] in _COMPUTE_VENDOR:
                return _VENDORS[_COMPUTE_VENDOR[match[1]]]
            if match and self.vendor in ("10de", "1002") and each.infos.get("OpenCLDeviceType", "GPU") == "GPU":
                return _VENDORS[self.vendor]
        if self.vendor == "1002" and self.kind == "0300" and _AMD_CARDS[0] <= self.device < _AMD_CARDS[1]:
            return "amd"
        if self.known_vendor:
            return _VENDORS.get(self.vendor, "") if is_gpu(self.vendor, self.kind, self.name) else ""
        return "?" if self.kind == "0302" else ""

    @property
    def undetermined(self) -> bool:
        """What may be a GPU: a display controller whose maker is not told, a maker's device whose class is not."""
        if not self.kind and not self.class_name:
            return self.vendor in ("10de", "1002") and not self.gpu_vendor
        return self.kind in ("0300", "0380") and not self.known_vendor and not self.gpu_vendor

    @property
    def nic(self) -> bool:
        return self.kind.startswith("02") or self.kind == "0c06" or self.has("network") or self.has("fabric")

    @property
    def rdma(self) -> bool:
        return self.has("fabric") or self.kind in _FABRIC_CLASSES or (self.vendor == _CRAY and self.nic)

    @property
    def accelerator(self) -> bool:
        return self.kind == "0b40" or (self.kind.startswith("12") and not self.gpu_vendor)


@dataclass(frozen=True)
class _Place:
    """Where one is on the way down. parent: the nearest bridge's address."""

    local: int
    path: tuple[int, ...] = ()
    parent: str = ""
    root: str = ""


def devices(tree: Tree) -> list[Device]:
    """Every PCI function in the tree, bridges too, as they come."""
    found: list[Device] = []
    _below(tree.root, _Place(tree.root.cpuset or 0), tree.version, found)
    return found


def _below(here: Obj, place: _Place, version: str, found: list[Device]) -> None:
    for child in here.children:
        if child.kind == "OSDev":
            continue
        if child.kind in ("PCIDev", "Bridge") and pci_address(child.attributes.get("pci_busid", "")):
            found.append(_device(child, place, version))
        if child.kind == "Bridge":
            _below(child, _under(child, place), version, found)
        else:
            _below(child, place if child.cpuset is None else _Place(child.cpuset), version, found)


def _under(bridge: Obj, place: _Place) -> _Place:
    """A host bridge has no address, and the buses below it."""
    get = bridge.attributes.get
    buses = _BUSES.match(get("bridge_pci", ""))
    root = place.root if place.path else f"{int(buses[1], 16):04x}:{buses[2].lower()}" if buses else ""
    return _Place(place.local, (*place.path, id(bridge)), pci_address(get("pci_busid", "")), root)


def _device(here: Obj, place: _Place, version: str) -> Device:
    get = here.attributes.get
    kind = _TYPE.match(get("pci_type", "").lower())
    names = [here.infos.get("PCIVendor", ""), here.infos.get("PCIDevice", "")]
    return Device(
        address=pci_address(get("pci_busid", "")), kind=kind[1] if kind else get("class", ""),
        vendor=kind[2] if kind else "", device=kind[3] if kind else "",
        name=clean(" ".join(filter(None, names)) or get("name", "")), class_name=get("class_name", ""),
        path=place.path, parent=place.parent, root=place.root, local=place.local, subtype=clean(get("subtype", "")),
        line=here.line, os_devices=tuple(_os_devices(here, version)) if here.kind == "PCIDev" else ())


def _os_devices(here: Obj, version: str) -> Iterator[OsDevice]:
    for child in here.children:
        if child.kind == "OSDev":
            get = child.attributes.get
            number = maybe_integer(get("osdev_type"))
            told = get("kinds", "").split()
            yield OsDevice(clean(get("name", ""), 64), frozenset(told) or _kinds(number, version),
                           child.infos, "Removable" in get("subtype", "") or "Removable" in
                           child.infos.get("Type", ""))
            yield from _os_devices(child, version)


def _kinds(number: int | None, version: str) -> frozenset[str]:
    """Up to version 2 a number, from version 3 on bits."""
    if number is None:
        return frozenset()
    if version[:1] in ("1", "2"):
        return frozenset(_OLD_KINDS[number:number + 1])
    return frozenset(name for bit, name in _NEW_KINDS.items() if number & bit)


# --- how two devices are connected ----------------------------------------------------------------------------------


def numa_of(device: Device, levels: Machine) -> list[int]:
    return [node.os_index for node in levels.primary if node.cpus & device.local]


def relation(one: Device, other: Device, levels: Machine) -> str:
    """As nvidia-smi topo -m would say: PIX, PXB, PHB, NODE, SYS; "" where the bridges are not told."""
    if one.address and one.address.rpartition(".")[0] == other.address.rpartition(".")[0]:
        return "PIX"
    common = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a != b:
            break
        common += 1
    if common > 1:
        return "PIX" if max(len(one.path), len(other.path)) - common <= 1 else "PXB"
    if common:
        return "PHB"
    mine, theirs = numa_of(one, levels), numa_of(other, levels)
    if not set(mine) & set(theirs):
        return "SYS" if mine and theirs else ""
    return "NODE" if mine == theirs and one.path and other.path else ""


def nearest(device: Device, gpus: list[Device], levels: Machine) -> tuple[str, list[str]]:
    """("PIX", addresses); ("SYS", []) where none is near; ("", []) where that is not told."""
    told = [relation(device, gpu, levels) for gpu in gpus]
    if "" in told or not told:
        return "", []
    best = min(told, key=RELATIONS.index)
    return best, [] if best == "SYS" else [gpu.address for gpu, each in zip(gpus, told, strict=True) if each == best]


# --- as the model has it --------------------------------------------------------------------------------------------


def pci_devices(found: list[Device], levels: Machine, whole: int) -> tuple[PciDevice, ...]:
    made = []
    for device in found:
        if device.address and device.known_vendor:
            made.append(PciDevice(
                device.address, device.kind + "00" if device.kind else "", device.vendor, device.device,
                numa=_node(device, levels, whole), local_cpus="" if levels.no_cpus else fold(device.local),
                name=device.name, parent=device.parent, root=device.root))
    return tuple(sorted(made, key=lambda each: pci_key(each.address)))


def _node(device: Device, levels: Machine, whole: int) -> int | None:
    """None as well where the device hangs under all of the machine: firmware that says nothing looks like that."""
    nodes = numa_of(device, levels)
    return nodes[0] if len(nodes) == 1 and (len(levels.primary) == 1 or device.local != whole) else None


def gpus(found: list[Device], levels: Machine, whole: int) -> tuple[Gpu, ...]:
    made = []
    for device in found:
        vendor = device.gpu_vendor
        if not vendor or vendor == "?" or not device.address:
            continue
        infos: dict[str, str] = {}       # of the vendor's own library; OpenCL has other names for a GPU
        numbers: dict[str, int] = {}
        for each in device.os_devices:
            if match := re.match(r"([A-Za-z]{1,20})([0-9]{1,6})\Z", each.name):
                numbers[match[1]] = int(match[2])
                infos = {**infos, **each.infos} if match[1] in ("nvml", "rsmi") else {
                    **each.infos, **infos} if match[1] == "cuda" else infos
        made.append(Gpu(
            vendor, index=numbers.get("nvml" if vendor == "nvidia" else "rsmi"),
            model=infos.get("GPUModel", ""), uuid=infos.get("NVIDIAUUID", ""),
            serial=infos.get("NVIDIASerial") or infos.get("AMDSerial", ""), pci=device.address,
            numa=_node(device, levels, whole), local_cpus=() if levels.no_cpus else ids(device.local),
            pci_id=device.pci_id or "", render=numbers.get("renderD")))
    return tuple(sorted(made, key=lambda gpu: pci_key(gpu.pci)))


def nics(found: list[Device], levels: Machine, whole: int) -> tuple[Nic, ...]:
    made: list[Nic] = []
    for device in found:
        nets = [each for each in device.os_devices if "network" in each.kinds and "fabric" not in each.kinds]
        rdma = [each for each in device.os_devices if "fabric" in each.kinds]
        paired = len(nets) == len(rdma) == 1
        for each in rdma:
            made += _ports(each, device, nets[0] if paired else None, _node(device, levels, whole))
        made += [Nic(each.name, netdev=each.name, mac=_matching(_MAC, each.infos.get("Address", "")),
                     pci=device.address, numa=_node(device, levels, whole)) for each in nets if not paired]
    return tuple(sorted(made, key=lambda nic: (not nic.rdma, natural(nic.name), nic.port or 0)))


def _ports(each: OsDevice, device: Device, net: OsDevice | None, numa: int | None) -> Iterator[Nic]:
    """A port of an RDMA device is one of ours, with its interface; hwloc tells of each its state and LID."""
    numbers = sorted({int(match[1]) for name in each.infos if (match := re.match(r"Port([0-9]{1,3})State\Z", name))})
    for number in numbers or [1]:
        lid = each.infos.get(f"Port{number}LID", "")
        local = int(lid, 16) if re.match(r"0x[0-9a-fA-F]{1,8}\Z", lid) else None
        gid = each.infos.get(f"Port{number}GID0", "").lower()
        port_guid = gid[-19:].replace(":", "") if _GUID.match(gid[-19:]) and gid.startswith("fe80:") else ""
        own = net if len(numbers) < 2 else None
        yield Nic(each.name, rdma=each.name, port=number, netdev=own.name if own else "",
                  mac=_matching(_MAC, own.infos.get("Address", "")) if own else "",
                  state=_STATES.get(each.infos.get(f"Port{number}State", ""), ""), lid=local, port_guid=port_guid,
                  guid=_matching(_GUID, each.infos.get("NodeGUID", "")).replace(":", ""), pci=device.address, numa=numa)


def _matching(pattern: re.Pattern[str], text: str) -> str:
    return text.lower() if pattern.match(text.lower()) else ""

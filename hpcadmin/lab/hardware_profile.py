"""Profiles of simulated hardware: what a node of the lab pretends to be, read from profiles/*.toml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcadmin.errors import LabError, StoreError
from hpcadmin.records import from_plain
from hpcadmin.toml_text import read_toml

PROFILES = Path(__file__).resolve().parent / "profiles"
DRIVER = "550.90.12"
CUDA = "12.4"


@dataclass(frozen=True)
class CpuSpec:
    model: str
    family: int
    model_number: int
    stepping: int
    mhz: int
    mhz_max: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    l1d_kib: int
    l1i_kib: int
    l2_kib: int
    l3_kib: int

    @property
    def cores(self) -> int:
        return self.sockets * self.cores_per_socket

    @property
    def count(self) -> int:
        return self.cores * self.threads_per_core

    def core_cpus(self, core: int) -> tuple[int, ...]:
        """OS CPU ids of a core as Linux on x86 numbers them: all first threads, then all second ones."""
        return tuple(core + thread * self.cores for thread in range(self.threads_per_core))

    def socket_cpus(self, socket: int) -> tuple[int, ...]:
        cores = range(socket * self.cores_per_socket, (socket + 1) * self.cores_per_socket)
        return tuple(sorted(cpu for core in cores for cpu in self.core_cpus(core)))


@dataclass(frozen=True)
class GpuSpec:
    model: str
    type: str
    architecture: str
    compute_cap: str
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    device_id: str
    subsystem_id: str
    vbios: str
    part_number: str
    gpu_part_number: str
    image_version: str
    power_w: int
    power_min_w: int
    clock_mhz: int
    memory_clock_mhz: int
    pcie_gen: int
    pcie_width: int
    nvlink: str          # "all": every GPU with every other; "pairs": (0,1), (2,3), …; "": none
    nvlinks: int
    nvlink_gbs: str      # of one link, as `nvidia-smi nvlink -s` prints it
    fabric: bool         # NVSwitch fabric, registered with the fabric manager
    board: str


@dataclass(frozen=True)
class NicSpec:
    model: str
    hca_type: str
    device_id: str
    subsystem_id: str
    firmware: str
    board_id: str
    rate_gbps: int
    rate_text: str
    pcie_gen: int
    pcie_width: int


@dataclass(frozen=True)
class Slot:
    """What hangs on one root port; the NUMA node is also the socket (one node a socket)."""

    kind: str
    root: str
    numa: int


@dataclass(frozen=True)
class GpuPlace:
    """One GPU that is there. index: in PCI bus order, as nvidia-smi and CUDA count."""

    index: int
    minor: int
    pci: str
    numa: int
    width: int


@dataclass(frozen=True)
class NicPlace:
    name: str
    pci: str
    numa: int


@dataclass(frozen=True)
class Profile:
    name: str
    title: str
    vendor: str
    product: str
    bios: str
    cpu: CpuSpec
    gpu: GpuSpec
    nic: NicSpec
    slots: tuple[Slot, ...]
    minors: tuple[int, ...] = ()     # by GPU index; empty: as the index
    absent: tuple[int, ...] = ()     # GPUs that are not there, counted as if all were
    narrow: tuple[int, ...] = ()     # GPUs whose link has half the width

    @property
    def gpus(self) -> tuple[GpuPlace, ...]:
        """The GPUs that are there, in PCI bus order."""
        places = sorted((address, slot.numa) for slot in self.slots for kind, address in endpoints(slot)
                        if kind == "gpu")
        found: list[GpuPlace] = []
        for position, (address, numa) in enumerate(places):
            if position not in self.absent:
                index = len(found)
                minor = self.minors[index] if self.minors else index
                width = self.gpu.pcie_width // (2 if position in self.narrow else 1)
                found.append(GpuPlace(index, minor, address, numa, width))
        return tuple(found)

    @property
    def nics(self) -> tuple[NicPlace, ...]:
        places = sorted((address, slot.numa) for slot in self.slots for kind, address in endpoints(slot)
                        if kind == "nic")
        return tuple(NicPlace(f"mlx5_{i}", address, numa) for i, (address, numa) in enumerate(places))

    def nvlink(self, one: int, other: int) -> int:
        """How many NVLinks join two GPUs."""
        if one == other or not self.gpu.nvlink:
            return 0
        return self.gpu.nvlinks if self.gpu.nvlink == "all" or one // 2 == other // 2 else 0


# Where the devices of a slot sit: kind -> (device, bus counted from the host bridge's).
LAYOUT: Mapping[str, tuple[tuple[str, int], ...]] = {
    "rail": (("nic", 3), ("gpu", 6)),
    "gpu": (("gpu", 1),),
    "nic": (("nic", 1),),
    "nvswitch": (("nvswitch", 3), ("nvswitch", 4), ("nvswitch", 5), ("nvswitch", 6)),
}


def endpoints(slot: Slot) -> list[tuple[str, str]]:
    root = int(slot.root, 16)
    return [(kind, f"0000:{root + offset:02x}:00.0") for kind, offset in LAYOUT[slot.kind]]


def known_profiles() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def load_profile(name: str) -> Profile:
    """The profile of that name; LabError names the known ones when there is none."""
    if name not in known_profiles():
        raise LabError(f"there is no hardware profile {name!r}", hint=f"known are {', '.join(known_profiles())}")
    where = str(PROFILES / f"{name}.toml")
    try:
        profile: Profile = from_plain(Profile, {"name": name, **_tables(name, ())}, where=where)
        _check(profile)
    except (StoreError, ValueError, KeyError) as exc:
        raise LabError(f"the hardware profile is wrong: {getattr(exc, 'what', exc)}", where=where) from exc
    return profile


def _tables(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    if name in seen:
        raise ValueError(f"inherits from itself: {' -> '.join((*seen, name))}")
    tables = read_toml(PROFILES / f"{name}.toml")
    parent = tables.pop("inherits", "")
    if not parent:
        return tables
    merged = _tables(parent, (*seen, name))
    for key, value in tables.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def _check(profile: Profile) -> None:
    if profile.gpu.nvlink not in ("all", "pairs", ""):
        raise ValueError(f"gpu.nvlink is {profile.gpu.nvlink!r}, not all, pairs or empty")
    for slot in profile.slots:
        if slot.kind not in LAYOUT or not 0 <= slot.numa < profile.cpu.sockets or not 0 <= int(slot.root, 16) <= 0xf8:
            raise ValueError(f"slot at {slot.root!r}: kind, root or numa is out of range")
    count = len(profile.gpus)
    if profile.minors and sorted(profile.minors) != list(range(count)):
        raise ValueError(f"minors must be 0 to {count - 1} in some order")


def token(seed: str, what: str, digits: int) -> str:
    """`digits` hexadecimal digits that are always the same for this node and thing."""
    return hashlib.sha256(f"{seed}/{what}".encode()).hexdigest()[:digits]


def gpu_uuid(seed: str, gpu: GpuPlace) -> str:
    raw = token(seed, f"gpu {gpu.pci}", 32)
    return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def gpu_serial(seed: str, gpu: GpuPlace) -> str:
    return f"165{int(token(seed, f'serial {gpu.pci}', 10), 16) % 10 ** 10:010d}"


def node_serial(seed: str) -> str:
    return f"SIM{token(seed, 'chassis', 8).upper()}"


def nic_guid(seed: str, nic: NicPlace) -> int:
    return 0xA088C203_00000000 | int(token(seed, f"nic {nic.pci}", 8), 16)


def id_list(ids: tuple[int, ...]) -> str:
    """CPU ids as the kernel prints a list: 0-55,112-167."""
    parts: list[str] = []
    start = previous = None
    for item in (*sorted(ids), None):
        if start is None or previous is None:
            start = item
        elif item is None or item != previous + 1:
            parts.append(f"{start}-{previous}" if start != previous else f"{start}")
            start = item
        previous = item
    return ",".join(parts)


def id_mask(ids: tuple[int, ...], width: int) -> str:
    """CPU ids as the kernel prints a mask: comma separated groups of 32 bits, highest first."""
    value = sum(1 << i for i in ids)
    groups = []
    for word in reversed(range((width + 31) // 32)):
        bits = min(32, width - word * 32)
        groups.append(f"{value >> (32 * word) & 0xffffffff:0{(bits + 3) // 4}x}")
    return ",".join(groups)

"""The records of a NCCL (RCCL) topology file, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hpcadmin.facts._base import pci_address
from hpcadmin.model import Nic
from hpcadmin.text import fold_ids

_VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}


@dataclass(frozen=True)
class NcclCpu:
    """A <cpu>: a NUMA node. cpus None: its mask is not in the file or cannot be read."""

    numa: int | None
    affinity: str = ""
    cpus: tuple[int, ...] | None = None
    architecture: str = ""
    vendor: str = ""
    family: int | None = None        # as written
    model: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class NcclLink:
    target: str
    count: int | None
    target_class: str = ""
    line: int | None = None


@dataclass(frozen=True)
class NcclGpu:
    """path: the <cpu> and the bridges that it hangs under, as numbers of elements."""

    pci: str
    class_id: str
    numa: int | None
    path: tuple[int, ...]
    pci_id: str = ""
    cpus: tuple[int, ...] | None = None
    dev: int | None = None
    sm: int | None = None
    rank: int | None = None
    gcn: str = ""
    gdr: int | None = None
    speed: str = ""
    width: int | None = None
    links: tuple[NcclLink, ...] = ()
    c2c: int | None = None           # links to the CPU (Grace)
    line: int | None = None


@dataclass(frozen=True)
class NcclNic:
    """A <net>, or a network controller without one (name "")."""

    name: str
    pci: str
    numa: int | None
    path: tuple[int, ...]
    class_id: str = ""
    pci_id: str = ""
    speed_mbps: int | None = None
    port: int | None = None
    guid: str = ""
    gdr: int | None = None
    line: int | None = None

    @property
    def label(self) -> str:
        return self.name or self.pci


@dataclass(frozen=True)
class NcclTopology:
    """One node's file. unclassed: devices of which only the NUMA node is told."""

    version: str
    cpus: tuple[NcclCpu, ...]
    gpus: tuple[NcclGpu, ...]        # in the order of the file
    nics: tuple[NcclNic, ...]
    unclassed: tuple[tuple[str, int | None], ...] = ()
    duplicates: tuple[str, ...] = ()
    host: str = ""

    def links(self) -> list[list[int | None]] | None:
        """Counts between the GPUs, a link to itself on the diagonal; None: the file names no link at all."""
        if not any(gpu.links for gpu in self.gpus):
            return None
        place = {gpu.pci: index for index, gpu in enumerate(self.gpus)}
        matrix: list[list[int | None]] = [[0] * len(self.gpus) for _ in self.gpus]
        for row, gpu in enumerate(self.gpus):
            matrix[row][row] = -1
            for link in gpu.links:
                column = place.get(link.target)
                if column is not None:
                    before = matrix[row][column]
                    matrix[row][column] = None if link.count is None or before is None else \
                        max(before, 0) + link.count
        return matrix

    @property
    def self_linked(self) -> list[NcclGpu]:
        return [gpu for gpu in self.gpus if any(link.target == gpu.pci for link in gpu.links)]

    def other_links(self) -> dict[str, int | None]:
        """Links of each GPU to what is no GPU: NVSwitches, CPUs."""
        found: dict[str, int | None] = {}
        for gpu in self.gpus:
            counts = [link.count for link in gpu.links if self.is_other(link)]
            if counts:
                found[gpu.pci] = None if None in counts else sum(c for c in counts if c is not None)
        return found

    def is_other(self, link: NcclLink) -> bool:
        """To no GPU, by its class, or because a virtual machine does not see the switch."""
        known = any(gpu.pci == link.target for gpu in self.gpus)
        return not known and (link.target_class.startswith("0x0680") or not pci_address(link.target))

    def absent(self) -> list[tuple[NcclGpu, NcclLink]]:
        """Links to GPUs that are not in the file."""
        here = {gpu.pci for gpu in self.gpus}
        return [(gpu, link) for gpu in self.gpus for link in gpu.links
                if link.target not in here and not self.is_other(link)]

    def overlaps(self) -> list[list[int | None]]:
        seen = [(cpu.numa, set(cpu.cpus or ())) for cpu in self.cpus]
        return [[seen[a][0], seen[b][0]] for b in range(len(seen)) for a in range(b) if seen[a][1] & seen[b][1]]

    def odd_words(self) -> list[int | None]:
        return [cpu.numa for cpu in self.cpus if any(len(word) != 8 for word in cpu.affinity.split(",") if word)]


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many steps from the CPU two devices have in common: 0 another CPU, 1 the CPU, more: a switch."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def nearest(path: tuple[int, ...], others: list[tuple[str, tuple[int, ...]]]) -> tuple[list[str], str]:
    """The nearest of the others and the relation: "same switch", "same cpu", "remote" (then none)."""
    best = max((shared(path, other) for _, other in others), default=0)
    if best == 0:
        return [], "remote"
    return [name for name, other in others if shared(path, other) == best], "same switch" if best > 1 else "same cpu"


def width_fault(topology: NcclTopology) -> Iterator[tuple[NcclCpu, str]]:
    """Masks with a word that has lost digits. The kernel prints the first word as wide as the highest possible CPU
    needs, in all masks alike; the others have eight digits."""
    words = {cpu: cpu.affinity.split(",") for cpu in topology.cpus if cpu.affinity}
    first = Counter(len(word[0]) for word in words.values())
    usual = max(first, key=lambda size: (first[size], size), default=8)
    for cpu, list_of in words.items():
        short = [word for word in list_of[1:] if len(word) != 8]
        if len(list_of[0]) != usual and list_of[0] not in ("0", "") and len(list_of) > 1:
            short.insert(0, list_of[0])
        if short:
            yield cpu, (f"affinity of NUMA {cpu.numa}: the word {short[0]!r} has {len(short[0])} digits, not "
                        f"{usual if short[0] == list_of[0] else 8} as the others: it gives {len(cpu.cpus or ())} CPUs "
                        f"({fold_ids(cpu.cpus or ())}){_others(topology, cpu)}; digits may be lost")


def _others(topology: NcclTopology, cpu: NcclCpu) -> str:
    counts = {len(other.cpus) for other in topology.cpus if other is not cpu and other.cpus}
    return f", the others {counts.pop()} each" if len(counts) == 1 else ""


def vendor_of(gpu: NcclGpu) -> str:
    vendor = _VENDORS.get(gpu.pci_id[:4])
    return vendor or ("amd" if gpu.gcn or gpu.class_id[2:6] in ("0380", "1200") else "nvidia")


def nics_of(topology: NcclTopology) -> tuple[Nic, ...]:
    return tuple(Nic(name=nic.label, rdma=nic.name if nic.name.startswith(("mlx", "rdma", "efa", "bnxt")) else "",
                     port=nic.port or None, pci=nic.pci, numa=nic.numa, guid=nic.guid,
                     rate_gbps=nic.speed_mbps / 1000 if nic.speed_mbps else None) for nic in topology.nics)

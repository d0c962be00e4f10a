"""hwloc's tree understood: its levels, its devices, its limits, and the record that is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hpcadmin.facts import _hwloc_io as io
from hpcadmin.facts import _hwloc_slurm
from hpcadmin.facts._base import pci_key
from hpcadmin.facts._hwloc import Machine, Tree, ids, joined, machine
from hpcadmin.facts._hwloc_limits import Limits, limits
from hpcadmin.model import Cpu, Gpu, Nic, PciDevice


@dataclass(frozen=True)
class Hwloc:
    """A machine as hwloc sees it. limited: why it is no source of truth about the whole node (made inside a job, a
    cpuset or a container); has_io: whether devices were looked for at all, else none of them is known."""

    cpu: Cpu = field(default_factory=Cpu)
    pci: tuple[PciDevice, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    has_io: bool = False
    gpus_whole: bool = False             # every GPU is in `gpus`
    vendor: str = ""
    product: str = ""
    bios: str = ""
    bios_date: str = ""
    hostname: str = ""
    kernel: str = ""
    memory_mib: int | None = None        # of all nodes that belong to CPUs
    limited: str = ""
    refused: str = ""
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    slurmd: str = ""                     # what slurmd 22.05 would print of it


@dataclass
class Work:
    tree: Tree
    levels: Machine
    limits: Limits
    cpu: Cpu
    devices: list[io.Device]
    slurmd: _hwloc_slurm.SlurmdLine | None
    whole: int
    sound: bool

    @property
    def has_io(self) -> bool:
        return bool(self.devices)

    @property
    def gpus(self) -> list[io.Device]:
        return sorted((device for device in self.devices if device.gpu_vendor), key=lambda d: pci_key(d.address))

    @property
    def gpus_known(self) -> bool:
        """No display controller is left of which nobody knows whether it is a GPU."""
        return self.has_io and not self.tree.missing and (
            bool(self.gpus) or not any(device.undetermined for device in self.devices))


def understand(tree: Tree) -> Work:
    levels = machine(tree)
    found = limits(tree, levels)
    sound = not tree.contradictions and not any(not package.cpus for package in levels.packages)
    cpu = replace(joined(tree, levels, sound), offline=ids(found.offline))
    if found.refused:                    # counts of a part are none of the node's
        cpu = replace(cpu, sockets=None, cores_per_socket=None, cores=())
    slurmd = None if tree.contradictions else _hwloc_slurm.line(tree, levels)
    return Work(tree, levels, found, cpu, io.devices(tree), slurmd, tree.root.cpuset or levels.cpus, sound)


def union(sets: Iterable[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found

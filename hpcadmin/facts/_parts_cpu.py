"""What lscpu, numactl, slurmd -C, /proc/cpuinfo, a dump of /sys and lists of interfaces tell, as parts of a node."""

from __future__ import annotations

from dataclasses import replace

from hpcadmin.facts import _cpu
from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading
from hpcadmin.facts.cpuinfo import Cpuinfo
from hpcadmin.facts.hostif import Interface
from hpcadmin.facts.lscpu import Lscpu
from hpcadmin.facts.numactl import Numactl
from hpcadmin.facts.slurmd import Slurmd
from hpcadmin.facts.sysfs_tree import SysfsTree
from hpcadmin.model import Cpu, Gpu, Nic, Node


def part(reading: Reading) -> Part | None:
    """None where the reading is none of these."""
    value = reading.value
    if isinstance(value, Slurmd):
        return Part(reading.kind, Node("", cpu=_cpu.from_slurmd(value), memory_mib=value.memory_mib,
                                       slurm_version=value.version))
    if isinstance(value, SysfsTree):
        return _of_tree(reading, value)
    if isinstance(value, tuple) and value and all(isinstance(item, Interface) for item in value):
        return Part(reading.kind, Node("", nics=tuple(
            Nic(item.name, netdev=item.name, pci=item.pci, numa=item.numa, driver=item.driver, mac=item.mac,
                model=item.model) for item in value)))
    cpu = _of_cpu(value)
    return None if cpu is None else Part(reading.kind, Node("", cpu=cpu))


def _of_cpu(value: object) -> Cpu | None:
    if isinstance(value, Lscpu):
        return _cpu.from_lscpu(value)
    if isinstance(value, Numactl):
        return _cpu.from_numactl(value)
    return value.cpu if isinstance(value, Cpuinfo) else None


def _of_tree(reading: Reading, tree: SysfsTree) -> Part:
    """Only what the dump holds to the end is told: one without PCI says nothing of GPUs."""
    node = Node("", hostname=tree.hostname, cpu=tree.cpu, memory_mib=tree.memory_mib, pci=tree.pci,
                gpus=tuple(Gpu(gpu.vendor, pci=gpu.pci) for gpu in tree.gpus),
                vendor=tree.vendor, product=tree.product, serial=tree.serial, bios=tree.bios, kernel=tree.kernel)
    told = frozenset({"gpus", "pci"}) if tree.has_pci else frozenset[str]()
    return Part(reading.kind, replace(node, problems=()), told)

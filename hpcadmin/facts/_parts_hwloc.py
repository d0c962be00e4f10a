"""What hwloc's XML and lstopo's text tell of a node, as a part of it."""

from __future__ import annotations

from dataclasses import replace

from hpcadmin.facts._hwloc_work import Hwloc
from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading
from hpcadmin.model import Cpu, Node


def part(reading: Reading) -> Part | None:
    """None where the reading is none of hwloc's. Of a view that a job or a cpuset limits, the CPUs are not the node's:
    neither their counts and numbers nor which of them are near a device."""
    value = reading.value
    if not isinstance(value, Hwloc):
        return None
    cpu, gpus, pci, memory = value.cpu, value.gpus, value.pci, value.memory_mib
    if value.limited or value.refused:
        cpu, memory = Cpu(model=cpu.model, architecture=cpu.architecture), None
        gpus = tuple(replace(gpu, local_cpus=()) for gpu in gpus)
        pci = tuple(replace(device, local_cpus="") for device in pci)
    # lstopo leaves out what it thinks unimportant: its list of PCI devices is never whole.
    told = {name for name, whole in (("gpus", value.gpus_whole), ("nics", value.has_io)) if whole}
    return Part(reading.kind, Node(
        "", hostname=value.hostname, cpu=cpu, memory_mib=memory, gpus=gpus, nics=value.nics, pci=pci,
        vendor=value.vendor, product=value.product, bios=value.bios, bios_date=value.bios_date, kernel=value.kernel),
        frozenset(told))

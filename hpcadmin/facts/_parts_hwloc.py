"""What hwloc's XML and lstopo's text tell of a node, as a part of it."""

from __future__ import annotations

from hpcadmin.facts._hwloc_work import Hwloc
from hpcadmin.facts._merge import Part, without_cpus
from hpcadmin.facts._reading import Reading
from hpcadmin.model import Node


def part(reading: Reading) -> Part | None:
    """None where the reading is none of hwloc's. Of a view that a job or a cpuset limits, the CPUs are not the
    node's."""
    value = reading.value
    if not isinstance(value, Hwloc):
        return None
    # lstopo leaves out what it thinks unimportant: its list of PCI devices is never whole.
    told = {name for name, whole in (("gpus", value.gpus_whole), ("nics", value.has_io)) if whole}
    node = Node(
        "", hostname=value.hostname, cpu=value.cpu, memory_mib=value.memory_mib, gpus=value.gpus, nics=value.nics,
        pci=value.pci, vendor=value.vendor, product=value.product, bios=value.bios, bios_date=value.bios_date,
        kernel=value.kernel)
    return Part(reading.kind, without_cpus(node) if value.limited or value.refused else node, frozenset(told))

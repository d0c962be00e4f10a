"""What is odd in hwloc's tree: contradictions, limits, unevenness, and what slurmd would make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hpcadmin.facts import _hwloc_links, _hwloc_slurm
from hpcadmin.facts._hwloc import count, fold, measured_by_cpuid
from hpcadmin.facts._hwloc_work import Work, union
from hpcadmin.facts._reading import Finding


def findings(work: Work) -> Iterator[Finding]:
    tree = work.tree
    for what, line in tree.contradictions:
        yield Finding(what, line)
    for what in work.limits.said:
        yield Finding(what)
    if work.limits.job and not work.limits.limited:
        yield Finding(f"captured in a job's cgroup ({work.limits.job}); all known CPUs are in it", note=True)
    yield from _cpu_findings(work)
    yield from _numa_findings(work)
    if work.slurmd:
        yield from (Finding(what) for what in _hwloc_slurm.faults(work.slurmd, tree))
    if not work.has_io:
        yield Finding("no PCI objects in it: GPUs and NICs are unknown, not none", note=True)
    makers = Counter(device.gpu_vendor for device in work.gpus if device.gpu_vendor != "?")
    if len(makers) > 1:
        names = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
        yield Finding(f"GPUs of {len(makers)} vendors: " + ", ".join(
            f"{number} {names[name]}" for name, number in makers.most_common()), note=True)
    doubtful = [device.address for device in work.devices if device.undetermined]
    if doubtful:
        yield Finding(f"display controllers of unknown make: {', '.join(doubtful[:20])}: GPUs, or the board's own "
                      "graphics", note=True)
    yield from (Finding(what) for what in _hwloc_links.unlinked(_hwloc_links.known(tree)))


def _cpu_findings(work: Work) -> Iterator[Finding]:
    levels, tree = work.levels, work.tree
    if tree.missing or tree.contradictions or levels.no_cpus:
        return
    per = levels.per_package
    if len(set(per)) > 1 and work.sound:
        yield Finding(f"uneven: sockets with different numbers of cores ({', '.join(map(str, per))})")
    if len(levels.threads) > 1:
        most = max(levels.threads)
        few = [core for core in levels.cores if count(core.cpus) < most]
        yield Finding(f"uneven: {len(few)} of {len(levels.cores)} cores have fewer than {most} threads")
    highest = levels.cpus.bit_length()
    gaps = (1 << highest) - 1 & ~levels.cpus
    if gaps & ~(tree.complete or 0) & ~work.limits.offline:
        yield Finding(f"OS CPU ids jump: only CPUs {fold(levels.cpus)} are there: a reduced capture, or CPUs that are "
                      "off line")
    kinds = [kind for kind in tree.kinds if kind.cpus & levels.cpus]
    if len(kinds) > 1:
        parts = [(len(levels.cores_in(kind.cpus)), fold(kind.cpus)) for kind in kinds[:8]]
        yield Finding(f"heterogeneous cores: {' + '.join(str(number) for number, _ in parts)} (CPUs "
                      f"{' and '.join(cpus for _, cpus in parts)})")


def _numa_findings(work: Work) -> Iterator[Finding]:
    levels, tree = work.levels, work.tree
    if tree.no_numa:
        return
    empty = [node for node in levels.numa if not node.cpus]
    if empty and not levels.no_cpus:
        kinds = ", ".join(sorted({node.subtype for node in empty if node.subtype}))
        listed = fold(union(1 << node.os_index for node in empty))
        yield Finding(f"NUMA nodes {listed} have no CPUs{f' ({kinds})' if kinds else ''}: memory only, no sockets")
    if work.limits.nodes and not work.limits.outside:
        yield Finding(f"NUMA nodes {fold(work.limits.nodes)} are not shown: they have no memory, or are kept from "
                      "whoever made this", note=True)
    second = {node.os_index for node in levels.numa if node.cpus} - {node.os_index for node in levels.primary}
    if second and not levels.no_cpus:
        kinds = ", ".join(sorted({node.subtype for node in levels.numa if node.os_index in second and node.subtype}))
        theirs = union(node.cpus for node in levels.numa if node.os_index in second)
        first = fold(union(1 << node.os_index for node in levels.primary if node.cpus & theirs))
        yield Finding(f"NUMA nodes {fold(union(1 << node for node in second))}{f' ({kinds})' if kinds else ''} share "
                      f"the CPUs of nodes {first}: {len(levels.primary)} sets of CPUs, not {len(levels.numa)}")
    sizes = [len(levels.cores_in(node.cpus)) for node in levels.primary]
    if len(set(sizes)) > 1 and not tree.missing and not levels.no_cpus:
        yield Finding(f"uneven: cores per NUMA node differ ({', '.join(map(str, sizes))})")
    inside = union(node.cpus for node in levels.primary)
    if levels.numa and levels.cpus & ~inside and not tree.missing and not levels.no_cpus:
        yield Finding(f"CPUs {fold(levels.cpus & ~inside)} are in no NUMA node")
    if measured_by_cpuid(tree):
        yield Finding("NUMA unknown: x86 backend (CPUID only); its one node is a default, not a measurement", note=True)

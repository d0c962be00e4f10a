"""One Cpu from what /sys, lscpu and slurmd say; cores in hwloc's logical order, which is Slurm's order."""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin.facts._base import fold_ids
from hpcadmin.facts.cpu_topology import CpuTopology
from hpcadmin.facts.lscpu import Lscpu
from hpcadmin.facts.slurmd import Slurmd
from hpcadmin.model import Core, Cpu, NumaNode


def from_topology(topology: CpuTopology, numa: tuple[NumaNode, ...], problems: list[str]) -> Cpu:
    """The counts are None, with a problem, where sockets or cores are not alike."""
    packages = _packages(topology, problems)
    cores = _cores(topology, packages, numa)
    per_socket = [sum(core.socket == socket for core in cores) for socket in range(len(packages))]
    threads = {len(core.cpus) for core in cores}
    if len(set(per_socket)) > 1:
        problems.append(f"CPU: sockets with different numbers of cores ({', '.join(map(str, per_socket))})")
    if len(threads) > 1:
        few = [core for core in cores if len(core.cpus) < max(threads)]
        problems.append(f"CPU: {len(few)} of {len(cores)} cores have fewer than {max(threads)} threads "
                        f"(CPUs {fold_ids(cpu for core in few[:8] for cpu in core.cpus)})")
    if topology.offline:
        problems.append(f"CPU: offline CPUs {fold_ids(topology.offline)}")
    known = {cpu for node in numa for cpu in node.cpus}
    if numa and not known.issuperset(topology.online):
        problems.append(f"NUMA: CPUs {fold_ids(set(topology.online) - known)} are in no node")
    return Cpu(
        sockets=len(packages) or None, cores_per_socket=per_socket[0] if len(set(per_socket)) == 1 else None,
        threads_per_core=threads.pop() if len(threads) == 1 else None, cores=cores, numa=numa, offline=topology.offline,
    )


def _packages(topology: CpuTopology, problems: list[str]) -> dict[int, frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for line in topology.cpus:
        groups.setdefault(-1 if line.package is None else line.package, set()).add(line.cpu)
    if -1 in groups:
        problems.append(f"CPU: the kernel names no package for CPUs {fold_ids(groups[-1])}")
        return {}
    return {package: frozenset(cpus) for package, cpus in groups.items()}


def _cores(topology: CpuTopology, packages: dict[int, frozenset[int]], numa: tuple[NumaNode, ...]) -> tuple[Core, ...]:
    """hwloc puts every set of CPUs (package, NUMA node, die, L3, cluster) into one tree, larger ones above, and numbers
    what is on a level by the lowest CPU of each branch."""
    online = frozenset(topology.online)
    package_of = {cpu: package for package, cpus in packages.items() for cpu in cpus}
    numa_of = {cpu: node.id for node in numa for cpu in node.cpus}
    above = _sets_of(online, [*packages.values(), *(frozenset(node.cpus) for node in numa), *_shared(topology)])
    found: dict[frozenset[int], tuple[tuple[int, ...], Core]] = {}
    for line in topology.cpus:
        siblings = frozenset(line.siblings) & online or frozenset({line.cpu})
        if siblings in found or line.cpu not in package_of:
            continue
        sets = sorted(above.get(line.cpu, ()), key=lambda group: (-len(group), min(group)))
        key = (*(min(group) for group in sets if len(group) > len(siblings)), min(siblings))
        found[siblings] = (key, Core(package_of[line.cpu], numa_of.get(line.cpu), tuple(sorted(siblings))))
    ordered = [core for _, core in sorted(found.values(), key=lambda item: item[0])]
    # Sockets are counted in the order in which they come, as hwloc and Slurm do; the firmware's ids may have gaps.
    logical = {package: number for number, package in enumerate(dict.fromkeys(core.socket for core in ordered))}
    return tuple(Core(logical[core.socket], core.numa, core.cpus) for core in ordered)


def _shared(topology: CpuTopology) -> list[frozenset[int]]:
    """The CPUs of each die, of each cluster and under each L3 cache."""
    groups: dict[tuple[str, int | None, int], set[int]] = {}
    for line in topology.cpus:
        for kind, number in (("die", line.die), ("cluster", line.cluster)):
            if number is not None:
                groups.setdefault((kind, line.package, number), set()).add(line.cpu)
    return [*map(frozenset, groups.values()), *{frozenset(line.l3) for line in topology.cpus if line.l3}]


def _sets_of(online: frozenset[int], sets: Iterable[frozenset[int]]) -> dict[int, set[frozenset[int]]]:
    found: dict[int, set[frozenset[int]]] = {}
    for group in {each & online for each in sets}:
        for cpu in group:
            found.setdefault(cpu, set()).add(group)
    return found


def from_lscpu(lscpu: Lscpu) -> Cpu:
    """Counts alone: the numbering of cores is in no lscpu text, and is not guessed."""
    numa = tuple(NumaNode(number, cpus) for number, cpus in sorted((lscpu.numa or {}).items()))
    return Cpu(sockets=lscpu.sockets or None, cores_per_socket=lscpu.cores_per_socket or None,
               threads_per_core=lscpu.threads_per_core or None, numa=numa, offline=lscpu.offline)


def check_counts(cpu: Cpu, lscpu: Lscpu | None, slurmd: Slurmd | None, problems: list[str]) -> None:
    """What contradicts becomes a problem; None on either side contradicts nothing."""
    ours = (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core)
    if None in ours:
        return
    if lscpu and (theirs := (lscpu.sockets, lscpu.cores_per_socket, lscpu.threads_per_core)) != ours:
        _differ("lscpu", ours, theirs, problems)
    if slurmd and slurmd.line:
        theirs = (slurmd.sockets, slurmd.cores_per_socket, slurmd.threads_per_core)
        split = slurmd.sockets in _virtual_sockets(cpu) and _product(theirs) == _product(ours)
        if theirs != ours and not split:
            _differ("slurmd -C", ours, theirs, problems)


def _virtual_sockets(cpu: Cpu) -> set[int]:
    """Slurm may take each NUMA node for a socket (numa_node_as_socket)."""
    return {len({core.numa for core in cpu.cores})}


def _product(counts: tuple[int | None, ...]) -> int | None:
    total = 1
    for count in counts:
        if count is None:
            return None
        total *= count
    return total


def _differ(who: str, ours: tuple[int | None, ...], theirs: tuple[int | None, ...], problems: list[str]) -> None:
    if any(a is not None and b is not None and a != b for a, b in zip(ours, theirs, strict=True)):
        shown = ["x".join("?" if n is None else str(n) for n in counts) for counts in (theirs, ours)]
        problems.append(f"CPU: {who} counts {shown[0]} (sockets x cores x threads), the kernel {shown[1]}")

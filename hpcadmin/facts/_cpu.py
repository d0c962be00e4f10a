"""One Cpu from what /sys, lscpu, hwloc, numactl and slurmd say; any one is enough, several are checked against each
other. Sockets are packages, never NUMA nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hpcadmin.facts._cpu_order import Cpus, near, nested, ordered
from hpcadmin.facts.cpu_topology import CpuTopology
from hpcadmin.facts.lscpu import Lscpu
from hpcadmin.facts.numactl import Numactl
from hpcadmin.facts.slurmd import Slurmd
from hpcadmin.model import Core, Cpu, NumaNode
from hpcadmin.text import fold_ids

# --- one source ---------------------------------------------------------------------------------------------------


def from_topology(topology: CpuTopology, numa: Collection[NumaNode], problems: list[str]) -> Cpu:
    """The counts are None, with a problem, where sockets or cores are not alike."""
    packages = _packages(topology, problems)
    cores = _cores(topology, packages, numa, problems) if packages else ()
    per_socket = [sum(core.socket == socket for core in cores) for socket in range(len(packages))]
    threads = {len(core.cpus) for core in cores} or {
        len(core) for core in _threads(topology, frozenset(topology.online), [])}
    if len(set(per_socket)) > 1:
        problems.append(f"CPU: sockets with different numbers of cores ({', '.join(map(str, per_socket))})")
    if len(threads) > 1 and cores:
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
        threads_per_core=threads.pop() if len(threads) == 1 else None, cores=cores, numa=tuple(numa),
        offline=topology.offline, l3=_l3(topology),
    )


def _l3(topology: CpuTopology) -> tuple[tuple[int, ...], ...]:
    online = frozenset(topology.online)
    found = {frozenset(ids) & online for ids in {line.l3 for line in topology.cpus if line.l3}}
    return tuple(sorted((tuple(sorted(cpus)) for cpus in found if cpus), key=min))


def _packages(topology: CpuTopology, problems: list[str]) -> dict[int, Cpus]:
    groups: dict[int, set[int]] = {}
    for line in topology.cpus:
        groups.setdefault(-1 if line.package is None else line.package, set()).add(line.cpu)
    if -1 in groups:
        problems.append(f"CPU: the kernel names no package for CPUs {fold_ids(groups[-1])}: sockets are unknown")
        return {}
    return {package: frozenset(cpus) for package, cpus in groups.items()}


def _cores(topology: CpuTopology, packages: Mapping[int, Cpus], numa: Collection[NumaNode],
           problems: list[str]) -> tuple[Core, ...]:
    online = frozenset(topology.online)
    package_of = {cpu: package for package, cpus in packages.items() for cpu in cpus}
    numa_of = {cpu: node.id for node in numa for cpu in node.cpus}
    found = _threads(topology, online, problems)
    sets = [*packages.values(), *(frozenset(node.cpus) & online for node in numa), *_shared(topology, online)]
    kept, crossing = nested([*sets, *found])
    for group in crossing:
        problems.append(f"CPU: contradictory: a group of CPUs {fold_ids(group)} cuts through others")
    split = [core for core in found if len({package_of[cpu] for cpu in core if cpu in package_of}) > 1]
    if split or any(group in found for group in crossing):
        problems.append("CPU: contradictory: threads of one core are said to be in different packages or cores")
        return ()
    groups = near([frozenset(node.cpus) & online for node in numa], [node.distances for node in numa])
    # hwloc gives up a group of nodes that cuts through what it has.
    fitting = [group for group in groups if all(
        group <= other or group >= other or group.isdisjoint(other) for other in kept)]
    cores = ordered(found, [*kept, *nested(fitting)[0]])
    # Sockets are counted in the order in which they come, as hwloc and Slurm do; the firmware's ids may have gaps.
    logical: dict[int, int] = {}
    made = []
    for core in cores:
        lowest = min(core)
        socket = logical.setdefault(package_of[lowest], len(logical))
        made.append(Core(socket, numa_of.get(lowest), tuple(sorted(core))))
    return tuple(made)


def _threads(topology: CpuTopology, online: Cpus, problems: list[str]) -> set[Cpus]:
    """The CPUs of each core. Siblings with core ids of their own (compute units of AMD's family 15h) are cores, as
    hwloc and Slurm take them."""
    core_of = {line.cpu: line.core for line in topology.cpus if line.core is not None}
    found: set[Cpus] = set()
    units = 0
    for own, cpu in {line.siblings: line.cpu for line in topology.cpus}.items():
        siblings = frozenset(own) & online or frozenset({cpu})
        if len({core_of.get(each) for each in siblings}) > 1:
            units += 1
            found |= {frozenset({each}) for each in siblings}
        else:
            found.add(siblings)
    if units:
        problems.append(f"CPU: {units} pairs of threads have core ids of their own (compute units): each thread is "
                        "taken for a core, as Slurm does; lscpu counts threads")
    return found


def _shared(topology: CpuTopology, online: Cpus) -> list[Cpus]:
    """The CPUs of each die, of each cluster and under each cache."""
    groups: dict[tuple[str, int | None, int], set[int]] = {}
    for line in topology.cpus:
        for kind, number in (("die", line.die), ("cluster", line.cluster)):
            if number is not None:
                groups.setdefault((kind, line.package, number), set()).add(line.cpu)
    caches = {frozenset(ids) & online for ids in {ids for line in topology.cpus for ids in (line.l3, *line.groups)}}
    return [*map(frozenset, groups.values()), *caches]


def from_lscpu(lscpu: Lscpu, problems: list[str] | None = None) -> Cpu:
    """With a table of CPUs (-p, -e) whole; else counts alone: the numbering of cores is then not told."""
    numa = tuple(NumaNode(number, cpus) for number, cpus in sorted((lscpu.numa or {}).items()))
    if lscpu.online and {cpu for node in numa for cpu in node.cpus} - {*lscpu.online, *lscpu.offline}:
        numa = ()                        # lists of what might be plugged in (s390), not of what is there
    model = "" if lscpu.model == "-" else lscpu.model
    cpu = Cpu()
    if lscpu.topology is not None:
        cpu = from_topology(lscpu.topology, numa, [] if problems is None else problems)
    return replace(
        cpu, model=model, architecture=lscpu.architecture, numa=numa, offline=lscpu.offline or cpu.offline,
        sockets=lscpu.sockets or None, cores_per_socket=lscpu.cores_per_socket or None,
        threads_per_core=lscpu.threads_per_core or None)


def from_numactl(numactl: Numactl) -> Cpu:
    """NUMA nodes alone, and those only of a whole output: of a part of them nothing follows for a node."""
    return Cpu(numa=numactl.nodes) if numactl.complete else Cpu()


def from_slurmd(slurmd: Slurmd) -> Cpu:
    if not slurmd.line:
        return Cpu()
    if slurmd.virtual:                   # of packages nothing is told
        return Cpu(threads_per_core=slurmd.threads_per_core)
    return Cpu(sockets=slurmd.sockets, cores_per_socket=slurmd.cores_per_socket,
               threads_per_core=slurmd.threads_per_core)


def limited(allowed: Collection[int], online: Collection[int]) -> str:
    """Why a capture is no source of truth when the process that made it might use only `allowed` of the node's CPUs;
    "" when it might use all."""
    missing = set(online) - set(allowed)
    if not allowed or not missing:
        return ""
    return (f"captured inside a job or container: only CPUs {fold_ids(set(allowed) & set(online))} of "
            f"{fold_ids(online)} are allowed")


# --- several sources ----------------------------------------------------------------------------------------------


def join(sources: Mapping[str, Cpu], problems: list[str]) -> Cpu:
    """One Cpu of what several sources say, the most trusted first. A source that names every core's CPUs beats those
    that only count; where two of equal standing differ that value is unknown, and a problem names both."""
    whole = {name: cpu for name, cpu in sources.items() if cpu.cores}
    numa = _join_numa(sources, problems)
    l3 = next((cpu.l3 for cpu in sources.values() if cpu.l3), ())
    counts, cores = _join_counts(sources, whole, numa, l3, problems), _join_cores(whole, problems)
    return Cpu(
        model=next((cpu.model for cpu in sources.values() if cpu.model), ""),
        architecture=next((cpu.architecture for cpu in sources.values() if cpu.architecture), ""),
        sockets=counts[0], cores_per_socket=counts[1], threads_per_core=counts[2], cores=cores, numa=numa,
        offline=_join_offline(whole or sources, problems), l3=l3)


def narrow(sources: Mapping[str, Cpu], problems: list[str]) -> frozenset[str]:
    """The sources that tell of fewer CPUs than another does (made inside a job, or of a part that was asked for): of
    these neither cores nor counts nor memory are the node's."""
    shown = {name: {one for core in cpu.cores for one in core.cpus} | {one for node in cpu.numa for one in node.cpus}
             for name, cpu in sources.items()}
    found: dict[str, None] = {}
    for name, cpu in sources.items():
        wider = next((other for other in sources if cpu.cores and shown[name] < shown[other]
                      and shown[other] - shown[name] - set(cpu.offline)), "")
        if wider:
            found[name] = None
            problems.append(f"CPU: {name} shows CPUs {fold_ids(shown[name])}, {wider} has {fold_ids(shown[wider])}: "
                            f"{name} is of a part of the node and is not used")
    return frozenset(found)


Counts = tuple[int | None, int | None, int | None]


def _counts(cpu: Cpu) -> Counts:
    return cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core


def _join_counts(sources: Mapping[str, Cpu], whole: Mapping[str, Cpu], numa: Collection[NumaNode],
                 l3: Collection[object], problems: list[str]) -> Counts:
    told = {name: _counts(cpu) for name, cpu in sources.items() if _counts(cpu) != (None, None, None)}
    if not told:
        return None, None, None
    counted = [name for name in told if not _bare(sources[name])]
    trusted = next((name for name in told if name in whole), "") or next(iter([*counted, *told]))
    ours = told[trusted]
    equal: list[Counts] = [ours]
    for name, theirs in told.items():
        if name == trusted or (_bare(sources[name]) and _virtual(theirs, ours, numa, l3)):
            continue
        evened = trusted in whole and None in ours and None not in theirs
        if evened or _contradict(ours, theirs):
            problems.append(_differ(name, theirs, trusted, ours))
        if trusted not in whole or name in whole:
            equal.append(theirs)
    known = [{counts[place] for counts in equal if counts[place] is not None} for place in range(3)]
    if trusted in whole and None in ours:        # uneven: no count of another source makes it even
        known = [values if own is not None else set() for values, own in zip(known, ours, strict=True)]
    sockets, cores, threads = (values.pop() if len(values) == 1 else None for values in known)
    return sockets, cores, threads


def _bare(cpu: Cpu) -> bool:
    """Counts and nothing else: slurmd's, whose sockets may be virtual."""
    return not (cpu.cores or cpu.numa or cpu.model or cpu.architecture)


def _contradict(ours: Counts, theirs: Counts) -> bool:
    return any(a is not None and b is not None and a != b for a, b in zip(ours, theirs, strict=True))


def _virtual(theirs: Counts, ours: Counts, numa: Collection[NumaNode], l3: Collection[object]) -> bool:
    """Slurm may take each NUMA node or each L3 cache for a socket; hwloc before 2 took nodes for sockets."""
    with_cpus = sum(bool(node.cpus) for node in numa)
    return (theirs != ours and theirs[0] in {with_cpus, len(l3)} - {0} and theirs[2] == ours[2]
            and _product(theirs) == _product(ours) is not None)


def _product(counts: Counts) -> int | None:
    total = 1
    for count in counts:
        if count is None:
            return None
        total *= count
    return total


def _differ(who: str, theirs: Counts, trusted: str, ours: Counts) -> str:
    shown = ["x".join("?" if n is None else str(n) for n in counts) for counts in (theirs, ours)]
    return f"CPU: {who} counts {shown[0]} (sockets x cores x threads), {trusted} {shown[1]}"


def _join_cores(whole: Mapping[str, Cpu], problems: list[str]) -> tuple[Core, ...]:
    """() where two maps differ: neither can be taken for the truth."""
    if not whole:
        return ()
    trusted, cores = next((name, cpu.cores) for name, cpu in whole.items())
    agreed = True
    for name, cpu in whole.items():
        for place, (mine, other) in enumerate(zip(cores, cpu.cores, strict=False)):
            if (mine.socket, mine.cpus) != (other.socket, other.cpus):
                problems.append(f"CPU: core {place} is CPUs {fold_ids(other.cpus)} of socket {other.socket} by {name}, "
                                f"CPUs {fold_ids(mine.cpus)} of socket {mine.socket} by {trusted}")
                agreed = False
                break
        if len(cores) != len(cpu.cores):
            problems.append(f"CPU: {name} has {len(cpu.cores)} cores, {trusted} {len(cores)}")
            agreed = False
    return cores if agreed else ()


def _join_offline(sources: Mapping[str, Cpu], problems: list[str]) -> tuple[int, ...]:
    told = {name: cpu.offline for name, cpu in sources.items() if cpu.offline}
    if len(set(told.values())) > 1:
        each = ", ".join(f"{fold_ids(ids)} by {name}" for name, ids in told.items())
        problems.append(f"CPU: offline CPUs are {each}")
    return next(iter(told.values()), ())


def _join_numa(sources: Mapping[str, Cpu], problems: list[str]) -> tuple[NumaNode, ...]:
    """Nodes by their ids; memory and distances from whichever source has them. Nodes without CPUs (memory of GPUs)
    are not shown by every tool."""
    told = {name: {node.id: node for node in cpu.numa} for name, cpu in sources.items() if cpu.numa}
    if not told:
        return ()
    trusted = next(iter(told))
    nodes = dict(told[trusted])
    for name, theirs in told.items():
        with_cpus = [{number for number, node in each.items() if node.cpus} for each in (theirs, told[trusted])]
        if with_cpus[0] != with_cpus[1]:
            problems.append(f"NUMA: CPUs are in nodes {fold_ids(with_cpus[0])} by {name}, "
                            f"{fold_ids(with_cpus[1])} by {trusted}")
            continue
        for number, node in theirs.items():
            mine = nodes.setdefault(number, node)
            if node.cpus != mine.cpus:
                problems.append(f"NUMA: node {number} has CPUs {fold_ids(node.cpus) or 'none'} by {name}, "
                                f"{fold_ids(mine.cpus) or 'none'} by {trusted}")
                continue
            if len(node.distances) == len(mine.distances) and node.distances != mine.distances:
                problems.append(f"NUMA: the distances of node {number} are {' '.join(map(str, node.distances))} by "
                                f"{name}, {' '.join(map(str, mine.distances))} by {trusted}")
            nodes[number] = replace(
                mine, memory_mib=node.memory_mib if mine.memory_mib is None else mine.memory_mib,
                distances=max(mine.distances, node.distances, key=len))
    return tuple(nodes[number] if len(nodes[number].distances) in (0, len(nodes)) else replace(
        nodes[number], distances=()) for number in sorted(nodes))


def check_counts(cpu: Cpu, lscpu: Lscpu | None, slurmd: Slurmd | None, problems: list[str]) -> None:
    """What the node's own tools count, against the kernel; None on either side contradicts nothing."""
    ours = _counts(cpu)
    if None in ours:
        return
    told = [("lscpu", _counts(from_lscpu(replace(lscpu, topology=None))))] if lscpu else []
    told += [("slurmd -C", _counts(from_slurmd(slurmd)))] if slurmd else []
    for name, theirs in told:
        if _contradict(ours, theirs) and not (name != "lscpu" and _virtual(theirs, ours, cpu.numa, cpu.l3)):
            problems.append(_differ(name, theirs, "the kernel", ours))

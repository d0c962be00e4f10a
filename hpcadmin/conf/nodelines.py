"""NodeName lines of slurm.conf and gres.conf's lines: nodes that are alike are folded into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpcadmin.conf.gpus import Device
from hpcadmin.conf.grammar import scalar
from hpcadmin.conf.machines import Shape, Written, memory_classes
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.parts import Entry, Kind, Line, Problem, Section
from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand
from hpcadmin.site import NodeGroup, Scalar, Site

LARGE_MIB = 64 * 1024
# Keys of a node line that follow from the hardware: another value would drain the node or hide a fault.
_MEASURED = {"nodename", "sockets", "socketsperboard", "boards", "threadspercore", "gres", "features", "parameters"}


def margin_mib(memory_mib: int, site: Site) -> tuple[int, str, str, str]:
    """(MiB, reason, source, site key): what RealMemory stays below the nodes' memory."""
    own = site.slurm.memory_margin_mib
    if own is not None:
        return own, f"{own} MiB below it", "site.toml [slurm] memory_margin_mib", "slurm.memory_margin_mib"
    percent = -(-memory_mib // 100)
    if memory_mib > LARGE_MIB:
        return max(percent, 1024), f"{max(percent, 1024)} MiB (1 %, at least 1 GiB) below it", "inventory", ""
    return max(percent, 16), f"{max(percent, 16)} MiB (1 %) below it", "inventory", ""


def classes(written: Sequence[Written]) -> list[tuple[Shape, int, tuple[Written, ...]]]:
    """(shape, smallest memory, nodes) of each NodeName line, in the order of the nodes' names."""
    by_shape: dict[Shape, list[Written]] = {}
    for w in written:
        by_shape.setdefault(w.shape, []).append(w)
    found = []
    for shape, members in by_shape.items():
        lowest = memory_classes([m.machine for m in members])
        for memory in sorted(set(lowest.values())):
            part = [m for m in members if lowest[m.machine.name] == memory]
            found.append((shape, memory, tuple(sorted(part, key=lambda w: natural(w.machine.name)))))
    return sorted(found, key=lambda item: natural(item[2][0].machine.name))


def told_by(members: Sequence[Written]) -> str:
    first = members[0].machine.name
    if len(members) == 1:
        return f"inventory: {first}"
    return f"inventory: {first} and {len(members) - 1} alike"


def node_line(shape: Shape, memory: int, members: Sequence[Written], site: Site) -> tuple[Line, list[Problem]]:
    source = told_by(members)
    found = shape.layout
    sockets = "NUMA nodes taken as sockets" if found.mode.value else "sockets"
    cpu_why = (f"{found.sockets} {sockets}, {found.cores_per_socket} cores each, {found.threads_per_core} threads a "
               "core, as the nodes have them")
    entries = [Entry("NodeName", slurm_list(m.machine.name for m in members), "", source)]
    if shape.hostname:
        entries.append(Entry("NodeHostname", shape.hostname, "the node calls itself so", source))
    if shape.address:
        entries.append(Entry("NodeAddr", shape.address, "its only address; its name need not resolve", source))
    entries += [Entry("CPUs", str(found.cpus), cpu_why, source), Entry("Sockets", str(found.sockets), cpu_why, source),
                Entry("CoresPerSocket", str(found.cores_per_socket), cpu_why, source),
                Entry("ThreadsPerCore", str(found.threads_per_core), cpu_why, source),
                _real_memory(memory, members, site)]
    if shape.gres:
        entries.append(Entry("Gres", shape.gres, "as many of each type as gres.conf has lines", source))
    if shape.features:
        entries.append(_features(shape, members[0].machine.group, source))
    if shape.parameters:
        entries.append(Entry("Parameters", shape.parameters,
                             "Sockets and Cores count NUMA nodes, which is what the GPUs are local to", source))
    problems = _margin_problems(memory, site)
    group = members[0].machine.group
    if group is not None:
        entries, more = _own_options(entries, group, memory, members[0].machine.name)
        problems += more
    if not any(e.key.casefold() == "state" for e in entries):
        entries.append(Entry("State", "UNKNOWN", "slurmctld asks the node", "hpcadmin default"))
    return Line(tuple(entries)), problems


def _margin_problems(memory: int, site: Site) -> list[Problem]:
    own = site.slurm.memory_margin_mib
    if own is None or 0 <= own < memory:
        return []
    return [Problem(Kind.SITE, f"a margin of {own} MiB does not fit nodes with {memory} MiB",
                    key="slurm.memory_margin_mib")]


def _real_memory(memory: int, members: Sequence[Written], site: Site) -> Entry:
    """Below what slurmd measures, so that a BIOS update of a few MiB does not drain a node."""
    margin, reason, source, key = margin_mib(memory, site)
    least = min(members, key=lambda w: (w.machine.memory_mib, natural(w.machine.name))).machine
    whose = f"the smallest of {len(members)} nodes, {least.name}" if len(members) > 1 else least.name
    return Entry("RealMemory", str(max(memory - margin, 0)), f"{least.memory_why} is {memory} MiB on {whose}; {reason}",
                 source, key)


def _features(shape: Shape, group: NodeGroup | None, source: str) -> Entry:
    if group is None or not group.features:
        return Entry("Features", ",".join(shape.features), "for --constraint: GPU type, network rate", source)
    return Entry("Features", ",".join(shape.features), "for --constraint: GPU type, network rate, and the site's own",
                 f"inventory; site.toml [nodes.{group.name}]", f"nodes.{group.name}.features")


def _own_options(entries: list[Entry], group: NodeGroup, memory: int, node: str) -> tuple[list[Entry], list[Problem]]:
    problems = []
    for key in sorted(group.options, key=str.casefold):
        path = f"nodes.{group.name}.options.{key}"
        wrong = _wrong_option(key, group.options[key], memory, node)
        if wrong:
            problems.append(Problem(Kind.SITE, f"[nodes.{group.name}.options] {wrong}", key=path))
            continue
        own = Entry(key, scalar(group.options[key]), "the site's own", f"site.toml [nodes.{group.name}.options]", path)
        place = next((i for i, e in enumerate(entries) if e.key.casefold() == key.casefold()), None)
        entries = [*entries, own] if place is None else [*entries[:place], own, *entries[place + 1:]]
    return entries, problems


def _wrong_option(key: str, value: Scalar, memory: int, node: str) -> str:
    if key.casefold() in _MEASURED:
        return f"{key}: follows from the hardware (features = [...] adds features)"
    if key.casefold() == "realmemory" and (isinstance(value, (str, bool, float)) or not 0 < value <= memory):
        return f"RealMemory={value}: {node} has {memory} MiB, and would be INVALID with more"
    return ""


def gres_sections(written: Sequence[Written]) -> tuple[Section, ...]:
    """A section for each set of nodes with the same devices; lines in PCI bus order, the index that jobs see."""
    by_devices: dict[object, list[Written]] = {}
    for w in sorted(written, key=lambda w: natural(w.machine.name)):
        if w.devices:
            by_devices.setdefault((w.devices, w.shape.layout.mode), []).append(w)
    sections = []
    for members in by_devices.values():
        nodes = slurm_list(m.machine.name for m in members)
        lines = tuple(_device_line(nodes, members, place) for place in range(len(members[0].devices)))
        sections.append(Section(f"{nodes}: {members[0].shape.gres.replace('gpu:', '')}, in PCI bus order", lines))
    return tuple(sections)


def _device_line(nodes: str, members: Sequence[Written], place: int) -> Line:
    device, gpu = members[0].devices[place], members[0].machine.gpus[place]
    source = told_by(members)
    why = "typed as in slurm.conf"
    which = f"GPU {place} in PCI bus order: {gpu.model} at {gpu.pci} on {members[0].machine.name}"
    entries = [
        Entry("NodeName", nodes, which, source),
        Entry("AutoDetect", "off", "Cores and Links by hand; a detected GPU that differs would be dropped"),
        Entry("Name", "gpu", why, source), Entry("Type", device.type, why, source),
        Entry("File", device.file, "by the device's minor, which need not be its index", source)]
    if device.cores:
        entries.append(Entry("Cores", device.cores, device.cores_why, source))
    if device.links:
        entries.append(Entry("Links", device.links, device.links_why, source))
    entries.append(Entry("Flags", device.flags, _left_out(device), source))
    return Line(tuple(entries))


def _left_out(device: Device) -> str:
    """The last entry's reason also says what is not on the line."""
    out = [why for value, why in ((device.cores, device.cores_why), (device.links, device.links_why)) if not value]
    return "; ".join(["jobs get this vendor's variables only", *out])


def partitions(site: Site, names: Iterable[str]) -> tuple[list[Line], list[Problem]]:
    """The site's partitions, or one with all nodes."""
    everything = slurm_list(names)
    if not everything:
        return [], []                # that no node can be written has been said
    if not site.partitions:
        name = site.slurm.partition or "main"
        why = "site.toml has no [partitions.NAME]: one partition with all nodes"
        first = Entry("PartitionName", name, why)
        if site.slurm.partition:
            first = Entry("PartitionName", name, why, "site.toml [slurm] partition", "slurm.partition")
        return [Line((first, Entry("Nodes", everything, why, "inventory"), Entry("Default", "YES", why),
                      Entry("MaxTime", "INFINITE", why), Entry("State", "UP", why)))], []
    lines, problems = [], []
    for name in sorted(site.partitions):
        found, wrong = _partition(name, site.partitions[name], everything)
        lines.append(found)
        problems += wrong
    return lines, problems


def _partition(name: str, table: Mapping[str, Scalar], everything: str) -> tuple[Line, list[Problem]]:
    source = f"site.toml [partitions.{name}]"
    entries = [Entry("PartitionName", name, "the site's own", source, f"partitions.{name}")]
    keys = sorted(table, key=lambda k: (k.casefold() != "nodes", k.casefold()))
    if not any(k.casefold() == "nodes" for k in table):
        entries.append(Entry("Nodes", everything, "all nodes, since the site names none", "inventory"))
    problems = []
    for key in keys:
        entries.append(Entry(key, scalar(table[key]), "the site's own", source, f"partitions.{name}.{key}"))
        if key.casefold() == "nodes":
            problems += _unknown_nodes(name, scalar(table[key]), everything)
    if not any(k.casefold() == "state" for k in table):
        entries.append(Entry("State", "UP", "jobs may start"))
    return Line(tuple(entries)), problems


def _unknown_nodes(name: str, nodes: str, everything: str) -> list[Problem]:
    if nodes.casefold() == "all":
        return []
    key = f"partitions.{name}.Nodes"
    try:
        unknown = set(expand(nodes)) - set(expand(everything))
    except UsageError as exc:
        return [Problem(Kind.SITE, f"[partitions.{name}] {exc}", key=key)]
    if not unknown:
        return []
    return [Problem(Kind.SITE, f"[partitions.{name}] names {slurm_list(unknown)}, which the inventory does not have",
                    key=key, hint="discover these nodes too, or take them out")]



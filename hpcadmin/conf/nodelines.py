"""NodeName lines of slurm.conf: nodes that are alike are one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.conf import reserved
from hpcadmin.conf.features import weight
from hpcadmin.conf.grammar import scalar, wrong_value
from hpcadmin.conf.machines import Shape, Written, memory_classes
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.parts import Entry, Kind, Line, Problem
from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand
from hpcadmin.site import Scalar, Site

LARGE_MIB = 64 * 1024
# Keys of a node line that follow from the hardware: another value would drain the node or hide a fault.
_MEASURED = {"nodename", "sockets", "socketsperboard", "boards", "corespersocket", "threadspercore", "gres", "feature",
             "features", "parameters"}
_STATES = ("UNKNOWN", "DOWN", "DRAIN", "FAIL", "FUTURE", "CLOUD")
# One for each node of the line.
_EACH = ("nodehostname", "nodeaddr", "bcastaddr")


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


def weighed(written: Sequence[Written], site: Site) -> bool:
    """Whether nodes differ in what their Weight= would come from."""
    return site.slurm.weights_auto and len({weight(len(members[0].machine.gpus), memory)
                                            for _, memory, members in classes(written)}) > 1


def node_line(shape: Shape, memory: int, members: Sequence[Written], site: Site, *,
              weights: bool = False) -> tuple[Line, list[Problem]]:
    """weights: the nodes of the cluster differ, so that the line says which are taken first."""
    source = told_by(members)
    entries = [Entry("NodeName", slurm_list(m.machine.name for m in members), "", source)]
    if shape.hostname:
        entries.append(Entry("NodeHostname", shape.hostname, "the node calls itself so", source))
    if shape.address:
        entries.append(Entry("NodeAddr", shape.address, "its only address; its name need not resolve", source))
    entries += [*_cpus(shape, source), _real_memory(memory, members, site)]
    if shape.gres:
        entries.append(_gres(members[0], source))
    if shape.features:
        entries.append(_features(shape, members[0], site, source))
    if shape.parameters:
        entries.append(Entry("Parameters", shape.parameters,
                             f"Sockets and Cores count {shape.layout.mode.noun}s: {shape.sockets_why}", source))
    if weights:
        entries.append(Entry("Weight", str(weight(len(members[0].machine.gpus), memory)),
                             "lighter nodes are taken first: those with fewer GPUs, then those with less memory",
                             source))
    problems = _margin_problems(memory, site)
    group = members[0].machine.group
    if group is not None:
        entries, more = _own_options(entries, members, memory, site)
        problems += more
    if not any(e.key.casefold() == "state" for e in entries):
        entries.append(Entry("State", "UNKNOWN", "slurmctld asks the node", "hpcadmin default"))
    return Line(tuple(entries)), problems


def _cpus(shape: Shape, source: str) -> list[Entry]:
    found = shape.layout
    sockets = f"{found.mode.noun}s taken as sockets" if found.mode.value else "sockets"
    why = (f"{found.sockets} {sockets}, {found.cores_per_socket} cores each, {found.threads_per_core} "
           f"thread{'s' if found.threads_per_core > 1 else ''} a core, as the nodes have them")
    if shape.sockets_why:
        why += f"; {shape.sockets_why}"
    return [Entry("CPUs", str(found.cpus), why, source), Entry("Sockets", str(found.sockets), why, source),
            Entry("CoresPerSocket", str(found.cores_per_socket), why, source),
            Entry("ThreadsPerCore", str(found.threads_per_core), why, source)]


def _gres(member: Written, source: str) -> Entry:
    """Marked as the site's where a part of it comes from site.toml alone."""
    found, group = member.gres, member.machine.group
    why = "as many of each type as gres.conf has lines"
    if found.autodetect:
        why = f"as many of each type as AutoDetect={found.autodetect} will find"
    if group is None or not (found.shared or found.counted):
        return Entry("Gres", found.text, why, source)
    if found.shared:
        why += f"; {found.per_gpu} {found.shared} on each"
    if found.counted:
        why += "; what is only counted as the site has it"
    key = f"nodes.{group.name}." + ("gres" if found.counted else "mps" if found.shared == "mps" else "shards")
    return Entry("Gres", found.text, why, f"{source}; site.toml [nodes.{group.name}]", key)


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
    use = ("MemSpecLimit can keep more for daemons" if reserved.consumes_memory(site) else
           "jobs are not held to it, for memory is no consumable resource here")
    return Entry("RealMemory", str(max(memory - margin, 0)),
                 f"{least.memory_why} is {memory} MiB on {whose}; {reason}; {use}", source, key)


def _features(shape: Shape, member: Written, site: Site, source: str) -> Entry:
    group = member.machine.group
    own = group.features if group else ()
    auto = group.features_auto if group and group.features_auto is not None else site.slurm.features_auto
    parts = [*(["what is known of GPUs, CPU and network"] if auto else []), *(["the site's own"] if own else [])]
    why = f"for --constraint: {', and '.join(parts)}"
    if group is None or not own:
        return Entry("Features", ",".join(shape.features), why, source)
    return Entry("Features", ",".join(shape.features), why, f"inventory; site.toml [nodes.{group.name}]",
                 f"nodes.{group.name}.features")


def _own_options(entries: list[Entry], members: Sequence[Written], memory: int,
                 site: Site) -> tuple[list[Entry], list[Problem]]:
    member = members[0]
    group = member.machine.group
    if group is None:
        return entries, []
    problems = []
    real = next((e.value for e in entries if e.key == "RealMemory"), "0")
    own_real = next((scalar(v) for k, v in group.options.items() if k.casefold() == "realmemory"), real)
    for key, why in reserved.wrong(group, member.shape.layout, int(own_real) if own_real.isdigit() else 0, site):
        problems.append(Problem(Kind.SITE, f"[nodes.{group.name}.options] {why}",
                                key=f"nodes.{group.name}.options.{key}"))
    for key in sorted(group.options, key=str.casefold):
        path = f"nodes.{group.name}.options.{key}"
        wrong = _wrong_option(key, group.options[key], memory, members)
        if wrong:
            problems.append(Problem(Kind.SITE, f"[nodes.{group.name}.options] {wrong}", key=path))
            continue
        own = Entry(key, scalar(group.options[key]), "the site's own", f"site.toml [nodes.{group.name}.options]", path)
        place = next((i for i, e in enumerate(entries) if e.key.casefold() == key.casefold()), None)
        entries = [*entries, own] if place is None else [*entries[:place], own, *entries[place + 1:]]
    return entries, problems


def _wrong_option(key: str, value: Scalar, memory: int, members: Sequence[Written]) -> str:
    kind, text, node = key.casefold(), scalar(value), members[0].machine.name
    if kind in _MEASURED:
        return f"{key}: follows from the hardware (features = [...] adds features)"
    if kind == "realmemory" and (isinstance(value, (str, bool, float)) or not 0 < value <= memory):
        return f"RealMemory={text[:40]}: {node} has {memory} MiB, and would be INVALID with more"
    found = members[0].shape.layout
    if kind in ("cpus", "procs") and text not in (str(found.cores), str(found.cpus)):
        return f"{key}={text[:40]}: {node} has {found.cores} cores with {found.cpus} threads: one of the two"
    if kind == "state" and text.upper() not in _STATES:
        return f"{key}={text[:40]}: one of {', '.join(_STATES)}"
    if kind in _EACH and not wrong_value(key, text):
        return _wrong_count(key, text, members)
    return ""


def _wrong_count(key: str, text: str, members: Sequence[Written]) -> str:
    """NodeAddr= and its like have a name for each node of the line, in the order of the nodes."""
    try:
        count = 1 if re.fullmatch(r"[0-9A-Fa-f.:]+", text) else len(expand(text))
    except UsageError as exc:
        return f"{key}: {exc}"
    if count == len(members):
        return ""
    nodes = slurm_list(w.machine.name for w in members)
    return f"{key}={text[:60]} names {count}, and the line is of {len(members)}: {nodes[:200]}"

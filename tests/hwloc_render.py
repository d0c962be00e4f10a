"""Made-up machines as hwloc would print them: XML of versions 1, 2 and 3, lstopo's text short and verbose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strategies import Machine, Thread


@dataclass
class Level:
    """An object of the tree: kind, the kernel's number, its CPUs on line."""

    kind: str
    number: int
    cpus: frozenset[int]
    below: list[Level] = field(default_factory=list)
    memory_kb: int | None = None


def tree(machine: Machine) -> Level:
    """Packages, NUMA nodes, L3 caches, cores and CPUs; each level by its lowest CPU, as hwloc sorts them."""
    names = [("Package", "package"), ("L3Cache", "l3"), ("Core", "core"), ("PU", "cpu")]
    if machine.on[0].numa is not None:
        names.insert(1, ("NUMANode", "numa"))
    root = Level("Machine", 0, frozenset(machine.online))
    root.below = _split(machine.on, names, dict(machine.memory_kb))
    used = {thread.numa for thread in machine.on}
    root.below += [Level("NUMANode", number, frozenset(), memory_kb=size) for number, size in machine.memory_kb
                   if number not in used]
    return root


def _split(threads: Sequence[Thread], names: list[tuple[str, str]], memory: dict[int, int]) -> list[Level]:
    if not names:
        return []
    kind, key = names[0]
    groups: dict[int, list[Thread]] = {}
    for thread in sorted(threads, key=lambda thread: thread.cpu):
        groups.setdefault(getattr(thread, key), []).append(thread)
    return [Level(kind, number, frozenset(thread.cpu for thread in own), _split(own, names[1:], memory),
                  memory.get(number) if kind == "NUMANode" else None) for number, own in groups.items()]


def cores(level: Level) -> list[frozenset[int]]:
    """In hwloc's logical order."""
    return [level.cpus] if level.kind == "Core" else [core for below in level.below for core in cores(below)]


def cpuset(cpus: Iterable[int]) -> str:
    number = sum(1 << cpu for cpu in cpus)
    words = [number & 0xffffffff]
    while number := number >> 32:
        words.append(number & 0xffffffff)
    shown = [f"0x{word:08x}" if word else "" for word in reversed(words)]
    return ",".join([*shown[:-1], shown[-1] or "0x0"]) or "0x0"


def xml(machine: Machine, version: str) -> str:
    root = tree(machine)
    everything = {thread.cpu for thread in machine.threads}
    nodes = machine.nodes
    head = (f'os_index="0" cpuset="{cpuset(root.cpus)}" complete_cpuset="{cpuset(everything)}" '
            f'allowed_cpuset="{cpuset(root.cpus)}" nodeset="{cpuset(nodes)}" complete_nodeset="{cpuset(nodes)}" '
            f'allowed_nodeset="{cpuset(nodes)}"')
    if version == "1":
        head += f' online_cpuset="{cpuset(root.cpus)}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
             "<topology>" if version == "1" else f'<topology version="{version}">', f'  <object type="Machine" {head}>',
             '    <info name="Backend" value="Linux"/>', '    <info name="LinuxCgroup" value="/"/>']
    if version == "1" and len(nodes) > 1:
        lines += _old_distances(machine)
    for below in root.below:
        lines += _object(below, version, 2, nodes)
    lines.append("  </object>")
    if version != "1" and len(nodes) > 1:
        lines += _distances(machine)
    return "\n".join([*lines, "</topology>"]) + "\n"


def _object(level: Level, version: str, depth: int, nodes: Mapping[int, set[int]]) -> list[str]:
    own = [level.number] if level.kind == "NUMANode" else [number for number, cpus in nodes.items()
                                                            if cpus & level.cpus]
    pad = "  " * depth
    sets = (f'cpuset="{cpuset(level.cpus)}" complete_cpuset="{cpuset(level.cpus)}" nodeset="{cpuset(own)}" '
            f'complete_nodeset="{cpuset(own)}"')
    kind, more = level.kind, ""
    if level.memory_kb is not None:
        more = f' local_memory="{level.memory_kb * 1024}"'
    if kind == "L3Cache":
        kind, more = ("Cache" if version == "1" else kind), ' depth="3" cache_type="0"'
    if kind == "NUMANode" and version != "1":
        # Memory hangs beside the CPUs; a Group holds the two together.
        leaf = f'{pad}  <object type="NUMANode" os_index="{level.number}" {sets}{more}/>'
        inner = [line for below in level.below for line in _object(below, version, depth + 1, nodes)]
        return [f'{pad}<object type="Group" {sets}>', leaf, *inner, f"{pad}</object>"]
    head = f'{pad}<object type="{kind}" os_index="{level.number}" {sets}{more}'
    if not level.below:
        return [f"{head}/>"]
    return [f"{head}>", *(line for below in level.below for line in _object(below, version, depth + 1, nodes)),
            f"{pad}</object>"]


def _distances(machine: Machine) -> list[str]:
    far = machine.distances()
    values = " ".join(str(value) for row in far.values() for value in row)
    names = " ".join(map(str, far))
    return [f'  <distances2 type="NUMANode" nbobjs="{len(far)}" kind="5" name="NUMALatency" indexing="os">',
            f'    <indexes length="{len(names) + 1}">{names} </indexes>',
            f'    <u64values length="{len(values) + 1}">{values} </u64values>', "  </distances2>"]


def _old_distances(machine: Machine) -> list[str]:
    """By place in the tree, relative to the local one."""
    order = [level.number for level in _walk(tree(machine)) if level.kind == "NUMANode"]
    numbers = list(machine.nodes)
    far = machine.distances()
    values = [far[a][numbers.index(b)] / 10 for a in order for b in order]
    return [f'    <distances nbobjs="{len(order)}" relative_depth="2" latency_base="10.000000">',
            *(f'      <latency value="{value:f}"/>' for value in values), "    </distances>"]


def _walk(level: Level) -> list[Level]:
    return [level, *(found for below in level.below for found in _walk(below))]


def text(machine: Machine, *, verbose: bool) -> str:
    """lstopo -v, or lstopo with an object's only child in the same line."""
    counts: dict[str, int] = {}
    root = tree(machine)
    total = sum(size for _, size in machine.memory_kb)
    lines = [f"Machine (P#0 total={total}KB LinuxCgroup=/)" if verbose else f"Machine ({total}KB total)"]
    for below in root.below:
        lines += _lines(below, 1, counts, verbose)
    if verbose:
        lines += [f"depth 0: {' ' * 10}1 Machine (type #0)"]
        lines += [f" depth {place}: {counts[kind]:>9} {kind} (type #{place})"
                  for place, kind in enumerate(("Package", "L3Cache", "Core", "PU"), 1)]
        hidden = {thread.cpu for thread in machine.threads} - root.cpus
        if hidden:
            lines.append(f"{len(hidden)} processors not represented in topology: {cpuset(hidden)}")
        lines.append("Topology not from this system")
    return "\n".join(lines) + "\n"


def _lines(level: Level, depth: int, counts: dict[str, int], verbose: bool) -> list[str]:
    if level.kind == "NUMANode":
        name = _name(level, counts, verbose)
        if not level.cpus:
            return ["  " * depth + "Group0 L#9", "  " * (depth + 1) + name]
        group = "  " * depth + f"Group0 L#{counts['NUMANode'] - 1}"
        return [group, "  " * (depth + 1) + name,
                *(line for below in level.below for line in _lines(below, depth + 1, counts, verbose))]
    names = [_name(level, counts, verbose)]
    while not verbose and len(level.below) == 1 and level.below[0].kind != "NUMANode":
        level = level.below[0]
        names.append(_name(level, counts, verbose))
    return ["  " * depth + " + ".join(names),
            *(line for below in level.below for line in _lines(below, depth + 1, counts, verbose))]


def _name(level: Level, counts: dict[str, int], verbose: bool) -> str:
    place = counts.get(level.kind, 0)
    counts[level.kind] = place + 1
    kind = level.kind if verbose or level.kind != "L3Cache" else "L3"
    if level.kind == "NUMANode":
        return f"NUMANode L#{place} (P#{level.number} {'local=' if verbose else ''}{level.memory_kb or 0}KB)"
    inside = f" (P#{level.number})" if verbose or level.kind == "PU" else " (32MB)" if level.kind == "L3Cache" else ""
    return f"{kind} L#{place}{inside}"

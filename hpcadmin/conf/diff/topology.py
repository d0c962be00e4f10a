"""Topologies: which nodes share a leaf or a block, and how the switches hang together; names of switches alone do not
matter to a job that does not ask for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hpcadmin.conf.diff.parts import Difference, Sides, Weight
from hpcadmin.conf.existing.parts import Configuration, Place, Topology
from hpcadmin.conf.keys import Apply
from hpcadmin.hosts import fold
from hpcadmin.text import plural


def compare(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    file = "topology.yaml" if new.has("topology.yaml") or (not new.topologies and old.has("topology.yaml")) else (
        "topology.conf")
    apply = max((sides.apply("topology.conf", "SwitchName"), sides.apply("slurm.conf", "TopologyPlugin")),
                key=list(Apply).index)
    before, after = {t.name: t for t in old.topologies}, {t.name: t for t in new.topologies}
    if len(before) == len(after) == 1:
        before = dict(zip(after, before.values(), strict=True))      # topology.conf has no names
    if old.has("topology.yaml") and new.has("topology.conf") and not new.has("topology.yaml"):
        yield Difference(Weight.CHANGE, "topology.yaml", "file", "is there", "", (), "", "Slurm takes it and not "
                         "topology.conf: take it away", apply=apply)
    for name in [*after, *(name for name in before if name not in after)]:
        was, will = before.get(name), after.get(name)
        title = f"topology {name}" if name else "topology"
        if will is None and was is not None:
            weight = sides.only_old(file)
            yield Difference(weight, file, title, size(was), "", (), "", sides.goes() if weight is Weight.DROPPED
                             else sides.stays(file), was.place,
                             apply if weight is Weight.DROPPED else Apply.NOTHING)
        elif was is None and will is not None:
            yield Difference(Weight.CHANGE, file, title, "", size(will), apply=apply)
        elif was is not None and will is not None:
            yield from _topology(was, will, (file, title, apply))


def size(topology: Topology) -> str:
    if topology.kind == "block":
        return f"{plural(len(topology.blocks), 'block')} of {_numbers(topology.block_sizes) or 'no size'}"
    return plural(len(topology.switches), "switch", "switches") if topology.switches else topology.kind or "no lines"


def _numbers(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def _topology(old: Topology, new: Topology, about: tuple[str, str, Apply]) -> Iterator[Difference]:
    file, title, apply = about
    if old.kind != new.kind:
        yield Difference(Weight.CHANGE, file, title, f"{old.kind or 'no'} ({size(old)})", f"{new.kind} ({size(new)})",
                         place=old.place, apply=apply)
        return
    if old.default != new.default:
        yield Difference(Weight.CHANGE, file, f"{title} cluster_default", str(old.default).lower(),
                         str(new.default).lower(), place=old.place, apply=apply)
    if old.block_sizes != new.block_sizes:
        yield Difference(Weight.CHANGE, file, f"{title} BlockSizes", _numbers(old.block_sizes),
                         _numbers(new.block_sizes), place=old.place, apply=apply)
    kind = "block" if new.kind == "block" else "leaf"
    was, will = leaves(old), leaves(new)
    names = _names(was, will)
    yield from _moved(was, will, names, kind, (about, old.place))
    if kind == "leaf":
        yield from _above(old, new, names, (about, old.place))
    renamed = [(a, b) for a, b in names.items() if a != b]
    if renamed:
        yield Difference(Weight.CHANGE, file, f"{title}: names", ", ".join(a for a, _ in renamed[:8]),
                         ", ".join(b for _, b in renamed[:8]) + (" ..." if len(renamed) > 8 else ""), (), "",
                         "the same nodes under another name", old.place, apply)


def leaves(topology: Topology) -> dict[str, frozenset[str]]:
    """Name of each leaf or block -> its nodes."""
    lines = topology.blocks if topology.kind == "block" else topology.switches
    return {line.name: frozenset(line.nodes) for line in lines if line.nodes}


def _names(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Which leaf of the new tree is which of the old: the one that has most of its nodes."""
    where: dict[str, list[str]] = {}
    for name, nodes in new.items():
        for node in nodes:
            where.setdefault(node, []).append(name)
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name, nodes in old.items():
        votes = Counter(leaf for node in nodes for leaf in where.get(node, ()))
        best = sorted(votes, key=lambda leaf: (-votes[leaf], leaf != name, leaf))
        free = next((leaf for leaf in best if leaf not in taken), None)
        if free is not None:
            found[name] = free
            taken.add(free)
    return found


def _moved(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]], names: Mapping[str, str], kind: str,
           about: tuple[tuple[str, str, Apply], Place | None]) -> Iterator[Difference]:
    (file, title, apply), place = about
    was = {node: frozenset(names.get(leaf, leaf) for leaf in at) for node, at in _by_node(old).items()}
    shown = {node: ",".join(at) for node, at in _by_node(old).items()}
    will = _by_node(new)
    groups: dict[tuple[str, str], list[str]] = {}
    for node in [*was, *(node for node in will if node not in was)]:
        if was.get(node, frozenset()) != frozenset(will.get(node, ())):
            groups.setdefault((shown.get(node, ""), ",".join(will.get(node, ()))), []).append(node)
    for (before, after), nodes in groups.items():
        yield Difference(Weight.CHANGE, file, f"{title}: {kind}", before, after, tuple(nodes), place=place,
                         apply=apply)


def _by_node(found: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    by_node: dict[str, list[str]] = {}
    for name, nodes in found.items():
        for node in nodes:
            by_node.setdefault(node, []).append(name)
    return by_node


def _above(old: Topology, new: Topology, names: Mapping[str, str],
           about: tuple[tuple[str, str, Apply], Place | None]) -> Iterator[Difference]:
    """Groups of leaves under one switch, for every switch that has switches below it."""
    (file, title, apply), place = about
    was, will = _groups(old, names), _groups(new, {})
    lost = [group for group in was if group not in will]
    more = [group for group in will if group not in was]
    if lost or more:
        yield Difference(Weight.CHANGE, file, f"{title}: switches above the leaves",
                         "; ".join(fold(sorted(group)) for group in lost[:4]),
                         "; ".join(fold(sorted(group)) for group in more[:4]), place=place, apply=apply)


def _groups(topology: Topology, names: Mapping[str, str]) -> set[frozenset[str]]:
    below: dict[str, frozenset[str]] = {
        s.name: frozenset({names.get(s.name, s.name)}) for s in topology.switches if s.nodes}
    for _ in range(40):
        ready = [s for s in topology.switches if s.switches and s.name not in below
                 and all(child in below for child in s.switches)]
        more = {s.name: frozenset().union(*(below[child] for child in s.switches)) for s in ready}
        if not more:
            break
        below.update(more)
    return {below[s.name] for s in topology.switches if s.switches and s.name in below}

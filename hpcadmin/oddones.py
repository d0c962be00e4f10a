"""The odd ones out: nodes that differ from the majority of nodes like them, with the exact difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from hpcadmin.model import Gpu, Nic, Node, OddOneOut
from hpcadmin.text import plural
from hpcadmin.traits import GPU_FIELDS, NIC_FIELDS, SOFT_TRAITS, Trait, hardware_nics, hardware_traits

D = TypeVar("D", Gpu, Nic)


def signature_groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes with equal hardware together, the largest group first."""
    traits = hardware_traits(list(nodes))
    groups: dict[tuple[Hashable, ...], list[Node]] = {}
    for node in nodes:
        groups.setdefault(tuple(trait.value(node) for trait in traits), []).append(node)
    return sorted(groups.values(), key=lambda group: -len(group))


def is_minority(count: int, majority: int) -> bool:
    """One node against two or more; a few against many. 30 against 34 is two kinds of nodes."""
    return (count == 1 and majority >= 2) or 4 * count <= majority


def find(nodes: Sequence[Node]) -> tuple[OddOneOut, ...]:
    """Every difference as one line, the most telling first."""
    traits = hardware_traits(list(nodes))
    families: list[list[list[Node]]] = []        # a group, and the smaller groups that resemble it
    for group in signature_groups(nodes):
        host = next((family for family in families
                     if is_minority(len(group), len(family[0])) and _resemble(group[0], family[0][0], traits)), None)
        if host is None:
            families.append([group])
        else:
            host.append(group)
    found: list[tuple[int, OddOneOut]] = [(0, odd) for odd in _same_machine(nodes)]
    for family in families:
        for group in family[1:]:
            for node in group:
                found += [(1, odd) for odd in _hardware(node, family[0], traits)]
        members = [node for group in family for node in group]
        found += [(2, odd) for odd in _devices(members)]
        found += [(3, odd) for odd in _soft(members)]
    return tuple(odd for _, odd in sorted(found, key=lambda item: item[0]))


def _resemble(node: Node, other: Node, traits: Sequence[Trait]) -> bool:
    """At least as much alike as different, in what both have; no GPU on both is no likeness."""
    same = different = 0
    for trait in (*traits[1:], SOFT_TRAITS[0]):
        ours, theirs = trait.value(node), trait.value(other)
        if ours is None or theirs is None or not (ours or theirs):
            continue
        if ours == theirs:
            same += 1
        else:
            different += 1
    return same > 0 and same >= different


def _hardware(node: Node, host: Sequence[Node], traits: Sequence[Trait]) -> Iterable[OddOneOut]:
    for trait in traits:
        ours, theirs = trait.value(node), trait.value(host[0])
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            shown = ["unknown" if v is None else trait.show(n) for v, n in ((ours, node), (theirs, host[0]))]
            yield OddOneOut(node.name, f"{node.name}: {trait.name} {shown[0]}, the group has {shown[1]}")
        elif trait.name == "GPUs":
            yield _gpu_count(node, host)
        elif trait.name == "GPU model" and not (ours and theirs):
            continue                 # no GPU at all: the count has said it
        else:
            yield OddOneOut(node.name, f"{node.name}: {trait.name} {_versus(trait.show(node), trait.show(host[0]))}")


def _versus(ours: str, theirs: str) -> str:
    return f"{ours}, the group has {theirs}" if ours != theirs else f"{ours} as the group, but numbered otherwise"


def _gpu_count(node: Node, host: Sequence[Node]) -> OddOneOut:
    usual = Counter((gpu.pci, gpu.index) for member in host for gpu in member.gpus)
    everywhere = {place for place, count in usual.items() if 2 * count > len(host) and place[0]}
    own = {gpu.pci for gpu in node.gpus}
    missing = sorted((index if index is not None else 1 << 20, pci) for pci, index in everywhere if pci not in own)
    text = f"{node.name}: {plural(len(node.gpus), 'GPU')}, the group has {len(host[0].gpus)}"
    names = [f"GPU {index}" if index < 1 << 20 else f"GPU {pci}" for index, pci in missing]
    if missing and len(node.gpus) < len(host[0].gpus):
        text += "; missing: " + ", ".join(f"{name} ({pci})" for name, (_, pci) in zip(names, missing, strict=True))
    else:
        names = []
    return OddOneOut(node.name, text, ", ".join(names))


def _devices(nodes: Sequence[Node]) -> Iterable[OddOneOut]:
    yield from _compare_devices(nodes, {n.name: {g.pci: g for g in n.gpus if g.pci} for n in nodes}, GPU_FIELDS,
                                lambda gpu: f"GPU {gpu.index}")
    yield from _compare_devices(
        nodes, {n.name: {f"{x.name}/{x.port}" if x.port else x.name: x for x in hardware_nics(n)} for n in nodes},
        NIC_FIELDS, lambda nic: f"{nic.name}/{nic.port}" if nic.port else nic.name)


def _compare_devices(
    nodes: Sequence[Node], devices: dict[str, dict[str, D]], fields: Iterable[tuple[str, Callable[[D], str]]],
    label: Callable[[D], str],
) -> Iterable[OddOneOut]:
    keys = dict.fromkeys(key for own in devices.values() for key in own)
    for name, get in fields:
        for key in keys:
            values = {node.name: get(devices[node.name][key]) for node in nodes if key in devices[node.name]}
            usual = _majority(values.values())
            if usual is None:
                continue
            counts = Counter(values.values())
            for node_name, value in values.items():
                if value != usual and is_minority(counts[value], counts[usual]):
                    device = label(devices[node_name][key])
                    yield OddOneOut(node_name, f"{node_name}: {device}: {name} {value or 'unknown'}, "
                                               f"the group has {usual or 'it unknown'}", device)


def _soft(nodes: Sequence[Node]) -> Iterable[OddOneOut]:
    for trait in SOFT_TRAITS:
        # A node that lacks a GPU has another matrix; the missing GPU has been said.
        members = [n for n in nodes if trait.name != "GPU links" or n.gpu_links]
        counts = Counter(trait.value(node) for node in members)
        usual = _majority(trait.value(node) for node in members)
        example = next((node for node in members if trait.value(node) == usual), None)
        if usual is None or example is None:
            continue
        for node in members:
            value = trait.value(node)
            if value == usual or not is_minority(counts[value], counts[usual]):
                continue
            if trait.name == "GPU links" and len(node.gpu_links) != len(example.gpu_links):
                continue
            shown = trait.show(node) if value is not None else "unknown"
            yield OddOneOut(node.name, f"{node.name}: {trait.name} {_versus(shown, trait.show(example))}")


V = TypeVar("V")


def _majority(values: Iterable[V]) -> V | None:
    """The most frequent value; None when there is none, or two share the first place."""
    common = Counter(values).most_common(2)
    if not common or (len(common) == 2 and common[0][1] == common[1][1]):
        return None
    return common[0][0]


def _same_machine(nodes: Sequence[Node]) -> Iterable[OddOneOut]:
    """Two names that lead to one machine, by host name or serial."""
    for what in ("hostname", "serial"):
        first: dict[str, str] = {}
        for node in nodes:
            value = str(getattr(node, what))
            if value and value in first:
                yield OddOneOut(node.name, f"{node.name}: the same {what} {value} as {first[value]}")
            elif value:
                first[value] = node.name

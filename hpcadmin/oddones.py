"""The odd ones out: nodes that differ from the majority of nodes like them, with the exact difference.

Time grows with the number of nodes, never with its square: nodes are counted by value, and only what is rare is looked
at node by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from hpcadmin import differences as d
from hpcadmin import hosts
from hpcadmin.model import Node, OddOneOut
from hpcadmin.text import plural
from hpcadmin.traits import Trait, hardware_traits

_FAMILIES_TRIED = 64         # the largest ones, for a group that is small
_DEVICES_NAMED = 4
Found = tuple[int, str, str, str]        # rank, node, what behind its name, device
V = TypeVar("V")


def signature_groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes with equal hardware together, the largest group first."""
    traits = [_remembered(trait) for trait in hardware_traits(list(nodes))]
    groups: dict[tuple[Hashable, ...], list[Node]] = {}
    for node in nodes:
        groups.setdefault(tuple(trait(node) for trait in traits), []).append(node)
    return sorted(groups.values(), key=lambda group: -len(group))


def _remembered(trait: Trait) -> Callable[[Node], Hashable]:
    """The value as a number: large values (the cores of a CPU) are compared once for nodes that share them."""
    if trait.name != "CPU topology":
        return trait.value
    numbers: dict[Hashable, int] = {}
    known: dict[int, int] = {}               # by identity of Node.cpu, which outlives this call

    def number(node: Node) -> Hashable:
        if id(node.cpu) not in known:
            value = trait.value(node)
            known[id(node.cpu)] = -1 if value is None else numbers.setdefault(value, len(numbers))
        return known[id(node.cpu)]

    return number


def is_minority(count: int, majority: int) -> bool:
    """One node against two or more; a few against many. 30 against 34 is two kinds of nodes."""
    return (count == 1 and majority >= 2) or 4 * count <= majority


def find(nodes: Sequence[Node]) -> tuple[OddOneOut, ...]:
    """Every difference as one line for each node, the most telling first."""
    traits = hardware_traits(list(nodes))
    found: list[Found] = list(_same_machine(nodes))
    for family in _families(nodes, traits):
        for group in family[1:]:
            for node in group:
                found += _hardware(node, family[0], traits)
        members = [node for group in family for node in group]
        found += _devices(members)
        found += _soft(members)
        found += _items(members)
        found += _rails(members)
    return tuple(OddOneOut(node, f"{node}: {what}", device, soft=rank >= d.FIRMWARE)
                 for rank, node, what, device in sorted(found, key=lambda item: item[0]))


def folded(odd: Iterable[OddOneOut]) -> list[str]:
    """A line for each difference, with all the nodes that have it: node[03,07]: BIOS 1.2, the group has 1.4."""
    found: dict[str, list[str]] = {}
    for item in odd:
        found.setdefault(item.what.removeprefix(f"{item.node}: "), []).append(item.node)
    return [f"{hosts.fold(nodes)}: {what}" for what, nodes in found.items()]


def _families(nodes: Sequence[Node], traits: Sequence[Trait]) -> list[list[list[Node]]]:
    """A group, and the smaller groups that resemble it."""
    families: list[list[list[Node]]] = []
    for group in signature_groups(nodes):
        host = next((family for family in families[:_FAMILIES_TRIED]
                     if is_minority(len(group), len(family[0])) and _resemble(group[0], family[0][0], traits)), None)
        if host is None:
            families.append([group])
        else:
            host.append(group)
    return families


def _resemble(node: Node, other: Node, traits: Sequence[Trait]) -> bool:
    """At least as much alike as different, in what both have; no GPU on both is no likeness."""
    same = different = 0
    for trait in (*traits[1:], d.SOFT[0].trait):
        ours, theirs = trait.value(node), trait.value(other)
        if ours is None or theirs is None or not (ours or theirs):
            continue
        if ours == theirs:
            same += 1
        else:
            different += 1
    return same > 0 and same >= different


def _hardware(node: Node, host: Sequence[Node], traits: Sequence[Trait]) -> Iterator[Found]:
    for trait in traits:
        ours, theirs = trait.value(node), trait.value(host[0])
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            shown = ["unknown" if v is None else trait.show(n) for v, n in ((ours, node), (theirs, host[0]))]
            yield d.HARDWARE, node.name, f"{trait.name} {shown[0]}, the group has {shown[1]}", ""
        elif trait.name == "GPUs":
            yield _gpu_count(node, host)
        elif trait.name == "GPU model" and not (ours and theirs):
            continue                 # no GPU at all: the count has said it
        else:
            yield d.HARDWARE, node.name, f"{trait.name} {_versus(trait.show(node), trait.show(host[0]))}", ""


def _versus(ours: str, theirs: str) -> str:
    return f"{ours}, the group has {theirs}" if ours != theirs else f"{ours} as the group, but numbered otherwise"


def _gpu_count(node: Node, host: Sequence[Node]) -> Found:
    usual = Counter((gpu.pci, gpu.index) for member in host for gpu in member.gpus)
    everywhere = {place for place, count in usual.items() if 2 * count > len(host) and place[0]}
    own = {gpu.pci for gpu in node.gpus}
    missing = sorted((index if index is not None else 1 << 20, pci) for pci, index in everywhere if pci not in own)
    text = f"{plural(len(node.gpus), 'GPU')}, the group has {len(host[0].gpus)}"
    names = [f"GPU {index}" if index < 1 << 20 else f"GPU {pci}" for index, pci in missing]
    if missing and len(node.gpus) < len(host[0].gpus):
        text += "; missing: " + ", ".join(f"{name} ({pci})" for name, (_, pci) in zip(names, missing, strict=True))
    else:
        names = []
    return d.HARDWARE, node.name, text, ", ".join(names)


def _devices(nodes: Sequence[Node]) -> Iterator[Found]:
    if len(nodes) > 2:
        yield from _compare_devices({n.name: d.gpus_by_address(n) for n in nodes}, d.GPU_FIELDS, d.gpu_name, "GPUs")
        yield from _compare_devices({n.name: d.nics_by_name(n) for n in nodes}, d.NIC_FIELDS, d.nic_name, "ports")


def _compare_devices(devices: dict[str, dict[str, Any]], fields: Iterable[d.Field], label: Callable[[Any], str],
                     many: str) -> Iterator[Found]:
    """Devices of a node that differ alike are one line."""
    by_key: dict[str, list[tuple[str, Any]]] = {}
    for node, own in devices.items():
        for key, device in own.items():
            by_key.setdefault(key, []).append((node, device))
    for field in fields:
        lines: dict[tuple[str, str], list[str]] = {}
        for pairs in by_key.values():
            values = [field.get(device) for _, device in pairs]
            usual, rare = _rare(Counter(values))
            if not rare:
                continue
            for (node, device), value in zip(pairs, values, strict=True):
                if value in rare:
                    text = f"{field.name} {value or 'unknown'}, the group has {usual or 'it unknown'}"
                    lines.setdefault((node, text), []).append(label(device))
        for (node, text), labels in lines.items():
            yield field.rank, node, f"{_labels(labels, len(devices[node]), many)}: {text}", ", ".join(labels)


def _labels(labels: Sequence[str], count: int, many: str) -> str:
    if len(labels) <= _DEVICES_NAMED:
        return ", ".join(labels)
    return f"all {count} {many}" if len(labels) == count else f"{len(labels)} of {count} {many}"


def _rare(counts: Counter[V]) -> tuple[V | None, frozenset[V]]:
    """The value of most, and the values of so few that they are odd; none where two values share the first place."""
    if len(counts) < 2:
        return None, frozenset()
    (usual, most), (_, second) = counts.most_common(2)
    if most == second:
        return None, frozenset()
    return usual, frozenset(value for value, count in counts.items() if value != usual and is_minority(count, most))


def _soft(nodes: Sequence[Node]) -> Iterator[Found]:
    for soft in d.SOFT:
        trait = soft.trait
        # A node that lacks a GPU has another matrix; the missing GPU has been said.
        members = [n for n in nodes if trait.name != "GPU links" or n.gpu_links]
        values = [trait.value(node) for node in members]
        usual, rare = _rare(Counter(values))
        if usual is None or not rare:
            continue
        example = next(node for node, value in zip(members, values, strict=True) if value == usual)
        for node, value in zip(members, values, strict=True):
            if value not in rare:
                continue
            if trait.name == "GPU links" and len(node.gpu_links) != len(example.gpu_links):
                continue
            if value is None:
                text = f"unknown, the group has {trait.show(example)}"
            else:
                text = soft.tell(node, example) if soft.tell else _versus(trait.show(node), trait.show(example))
            yield soft.rank, node.name, f"{trait.name} {text}", ""
    yield from _tables(nodes)


def _tables(nodes: Sequence[Node]) -> Iterator[Found]:
    for rank, name, prefix, get in d.TABLES:
        told = [(node.name, table) for node in nodes if (table := get(node))]
        yield from _untold(rank, name, nodes, {name for name, _ in told})
        for key in dict.fromkeys(key for _, table in told for key in table):
            usual, rare = _rare(Counter(table.get(key, "") for _, table in told))
            for node, table in told if rare else ():
                value = table.get(key, "")
                if value in rare:
                    yield rank, node, f"{prefix}{key} {value or 'absent'}, the group has {usual or 'none'}", ""


def _untold(rank: int, name: str, nodes: Sequence[Node], told: set[str]) -> Iterator[Found]:
    """Those few that say nothing of what nearly all others tell."""
    if _odd_share(len(nodes) - len(told), len(told)):
        for node in nodes:
            if node.name not in told:
                yield rank, node.name, f"{name}: unknown, known of the rest of the group", ""


def _items(nodes: Sequence[Node]) -> Iterator[Found]:
    """Of each item: who lacks what nearly all have, and who has what hardly any other has."""
    for kind in d.ITEMS:
        known: dict[int, frozenset[str] | None] = {}         # by identity of what they are made from
        sets: list[tuple[str, frozenset[str]]] = []
        for node in nodes:
            source = kind.by(node)
            if id(source) not in known:
                known[id(source)] = kind.items(source)
            own = known[id(source)]
            if own is not None and not (kind.part and node.lacks(kind.part)):
                sets.append((node.name, own))
        yield from _untold(kind.rank, kind.name, nodes, {name for name, _ in sets})
        counts = _weighed(sets)
        common = frozenset(item for item, count in counts.items() if _odd_share(len(sets) - count, count))
        rare = frozenset(item for item, count in counts.items() if _odd_share(count, len(sets) - count))
        for name, own in sets:
            lacking, more = common - own, own & rare
            if lacking or more:
                yield kind.rank, name, d.items_text(kind.name, list(lacking), list(more)), ""


def _weighed(sets: Iterable[tuple[str, frozenset[str]]]) -> Counter[str]:
    """How many nodes have each item; equal sets are counted at once."""
    counts: Counter[str] = Counter()
    for own, times in Counter(own for _, own in sets).items():
        for item in own:
            counts[item] += times
    return counts


def _odd_share(count: int, others: int) -> bool:
    return count > 0 and is_minority(count, others)


def _rails(nodes: Sequence[Node]) -> Iterator[Found]:
    """A switch to which the same port of (nearly) all nodes goes, and another port of one: a swapped cable."""
    at: dict[str, Counter[str]] = {}
    for node in nodes:
        for own, switch, _ in node.neighbours:
            at.setdefault(switch, Counter())[own] += 1
    odd = {switch: _rare(counts) for switch, counts in at.items()}
    for node in nodes:
        for own, switch, port in node.neighbours:
            usual, rare = odd[switch]
            if own in rare:
                yield (d.CONNECTED, node.name,
                       f"{own} goes to {switch} port {port}, where the group has {usual}", own)


def _same_machine(nodes: Sequence[Node]) -> Iterator[Found]:
    """Two names that lead to one machine, by host name, serial or UUID."""
    for what in ("hostname", "serial", "uuid"):
        first: dict[str, str] = {}
        for node in nodes:
            value = str(getattr(node, what))
            if value and value in first:
                yield d.SAME_MACHINE, node.name, f"the same {what} {value} as {first[value]}", ""
            elif value:
                first[value] = node.name

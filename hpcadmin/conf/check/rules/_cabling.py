"""Topology files against the fabrics of the inventory: where the cables of each node go, and its NVLink domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.existing.parts import SwitchLine, Topology
from hpcadmin.conf.names import slurm_list
from hpcadmin.fabric import slurm_tree
from hpcadmin.model import Fabric, Node

_NO_CLIQUE = frozenset({"", "0", "n/a", "[n/a]", "none"})


def cables(situation: Situation) -> Iterator[Finding]:
    """Each leaf of the file is the unit that most of its nodes are cabled to; the others stand in the wrong line."""
    if situation.inventory is None:
        return
    nodes = {host for line in situation.conf.nodes for host in line.hosts} or {
        node.name for node in situation.inventory.nodes}
    for topology in situation.conf.topologies:
        leaves = [line for line in topology.switches if line.nodes]
        if leaves:
            for unit_of in _cabled(situation.inventory.fabrics, nodes, leaves):
                yield from _misplaced(leaves, unit_of)
                yield from _forgotten(topology, leaves, unit_of)


def _cabled(fabrics: Sequence[Fabric], nodes: set[str], leaves: Sequence[SwitchLine]) -> Iterator[dict[str, str]]:
    """The unit of each node in the fabric that most nodes of the file are in: others (storage, management) do not
    decide where jobs run."""
    written = {name for line in leaves for name in line.nodes}
    maps = [{name: switch.name for switch in slurm_tree(fabric, nodes) for name in switch.nodes}
            for fabric in sorted(fabrics, key=lambda f: f.kind != "infiniband")]
    best = max(maps, key=lambda found: len(written & found.keys()), default={})
    if len(written & best.keys()) > 1:
        yield best


def _misplaced(leaves: Sequence[SwitchLine], unit_of: dict[str, str]) -> Iterator[Finding]:
    home: dict[str, SwitchLine] = {}             # unit -> the line that has most of its nodes
    most: dict[str, tuple[str, int]] = {}        # leaf -> its unit
    for line in leaves:
        counts = Counter(unit_of[name] for name in line.nodes if name in unit_of)
        if counts:
            most[line.name] = counts.most_common(1)[0]
            unit, count = most[line.name]
            if unit not in home or count > most[home[unit].name][1]:
                home[unit] = line
    for line in leaves:
        if line.name not in most:
            continue
        unit, count = most[line.name]
        strangers = [name for name in line.nodes if unit_of.get(name, unit) != unit]
        if not strangers:
            continue
        if 2 * count <= len(strangers) + count:
            kinds = Counter(unit_of[name] for name in line.nodes if name in unit_of)
            yield Finding(Severity.DRIFT, f"leaf {line.name} has nodes of several units: " + ", ".join(
                f"{name} ({number})" for name, number in kinds.most_common(6)),
                "the fabric says otherwise: nodes that Slurm takes for near are not",
                tuple(f"SwitchName={name} Nodes={slurm_list([n for n in line.nodes if unit_of.get(n) == name])}"
                      for name, _ in kinds.most_common(6)), line.place, line.nodes)
            continue
        for target in dict.fromkeys(unit_of[name] for name in strangers):
            moved = [name for name in strangers if unit_of[name] == target]
            to = home.get(target)
            kept = [name for name in line.nodes if name not in set(strangers)]
            right = (f"SwitchName={line.name} Nodes={slurm_list(kept)}", _line(to, target, moved))
            where = f"{target}, which is {to.name} here" if to and to.name != target else target
            yield Finding(Severity.DRIFT, f"{slurm_list(moved)} {'is' if len(moved) == 1 else 'are'} written under "
                          f"{line.name} but cabled to {where}", "jobs that should stay on one leaf do not",
                          right, line.place, tuple(moved))


def _line(leaf: SwitchLine | None, name: str, more: Sequence[str]) -> str:
    """The leaf with these nodes as well, or a new one."""
    return f"SwitchName={leaf.name if leaf else name} Nodes={slurm_list([*(leaf.nodes if leaf else ()), *more])}"


def _forgotten(topology: Topology, leaves: Sequence[SwitchLine], unit_of: dict[str, str]) -> Iterator[Finding]:
    written = {name for line in leaves for name in line.nodes}
    missing = [name for name in unit_of if name not in written]
    if missing:
        by_unit: dict[str, list[str]] = {}
        for name in missing:
            by_unit.setdefault(unit_of[name], []).append(name)
        right = []
        for unit, names in by_unit.items():
            to = next((line for line in leaves if any(unit_of.get(n) == unit for n in line.nodes)), None)
            right.append(_line(to, unit, names))
        yield Finding(Severity.DRIFT, f"{slurm_list(missing)} {'is' if len(missing) == 1 else 'are'} cabled to the "
                      f"fabric and in no leaf{f' of topology {topology.name}' if topology.name else ''}",
                      "jobs across leaves do not get them", tuple(right), leaves[0].place, tuple(missing))


# --- NVLink domains ------------------------------------------------------------------------------------------------


def clique(node: Node) -> tuple[str, str] | None:
    """(cluster UUID, clique) of its GPUs; None where they have none or are not of one."""
    found = {(gpu.fabric_cluster_uuid.casefold(), gpu.fabric_clique.casefold()) for gpu in node.gpus}
    if len(found) != 1:
        return None
    uuid, number = found.pop()
    if uuid in _NO_CLIQUE or not uuid.strip("0-") or not number:
        return None
    return uuid, number


def cliques(situation: Situation) -> Iterator[Finding]:
    """A block is one NVLink domain: nodes of two domains in one block, and one domain in two blocks."""
    if situation.inventory is None:
        return
    domain = {node.name: found for node in situation.inventory.nodes if (found := clique(node)) is not None}
    if not domain:
        return
    for topology in situation.conf.topologies:
        homes: dict[tuple[str, str], list[str]] = {}
        for line in topology.blocks:
            counts = Counter(domain[name] for name in line.nodes if name in domain)
            for found in counts:
                homes.setdefault(found, []).append(line.name)
            if len(counts) < 2:
                continue
            main = counts.most_common(1)[0][0]
            others = [name for name in line.nodes if domain.get(name, main) != main]
            yield Finding(Severity.DRIFT, f"{slurm_list(others)} in block {line.name} "
                          f"{'is' if len(others) == 1 else 'are'} of another NVLink domain (clique "
                          f"{domain[others[0]][1]} of {domain[others[0]][0]}) than its other nodes",
                          "the GPUs of a job in that block do not reach each other by NVLink",
                          (f"BlockName={line.name} Nodes={slurm_list(n for n in line.nodes if n not in set(others))}",),
                          line.place, tuple(others))
        for found, names in homes.items():
            if len(names) > 1 and not any(len({domain.get(n) for n in b.nodes if n in domain}) > 1
                                          for b in topology.blocks if b.name in names):
                nodes = [n for n, own in domain.items() if own == found]
                yield Finding(Severity.NOTE, f"blocks {slurm_list(names)} are one NVLink domain (clique {found[1]} of "
                              f"{found[0]})", "one block is enough, and lets jobs use all of it",
                              (f"BlockName={names[0]} Nodes={slurm_list(nodes)}",),
                              next(b.place for b in topology.blocks if b.name == names[1]))


CABLING: tuple[Rule, ...] = (cables, cliques)

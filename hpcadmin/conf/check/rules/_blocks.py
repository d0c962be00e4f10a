"""The nodes of leaves and blocks: in two of them, in none, unknown; and how many nodes a block has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.rules._topology_words import (
    YAML,
    from_yaml,
    in_,
    known_nodes,
    only,
    some,
    told,
    topologies,
    verb,
    where,
)
from hpcadmin.conf.existing.parts import BlockLine, Place, SwitchLine, Topology
from hpcadmin.conf.names import slurm_list
from hpcadmin.fabric.names import is_service
from hpcadmin.facts import _slurm_shapes as shapes
from hpcadmin.text import plural


def members(situation: Situation) -> Iterator[Finding]:
    nodes = known_nodes(situation)
    for topology in topologies(situation):
        for noun, lines in (("leaf", topology.switches), ("block", topology.blocks)):
            if not any(line.nodes for line in lines):
                continue
            yield from _twice(topology, noun, lines)
            if nodes:
                yield from _strangers(topology, noun, lines, nodes)
                yield from _without(situation, topology, noun, lines, nodes)


def _twice(topology: Topology, noun: str, lines: Sequence[SwitchLine | BlockLine]) -> Iterator[Finding]:
    by_places: dict[tuple[str, ...], list[str]] = {}
    for node, places in shapes.places({line.name: line.nodes for line in lines}).items():
        by_places.setdefault(places, []).append(node)
    where_is = {line.name: line for line in lines}
    for places, nodes in by_places.items():
        what = f"{in_(topology)}{some(nodes)} {verb(nodes)} in {' and '.join(places[:6])}"
        keep = where_is[places[-1]]
        rest = [n for n in keep.nodes if n not in set(nodes)]
        if noun == "block":
            yield Finding(Severity.WRONG, what, "Slurm says nothing: a node in two blocks is counted in both, jobs get "
                          "blocks that are smaller than they asked for",
                          (f"BlockName={keep.name} Nodes={slurm_list(rest)}",) if rest else (), keep.place,
                          tuple(nodes))
            continue
        same = all(set(where_is[p].nodes) == set(keep.nodes) for p in places)
        right = (f"SwitchName={places[0]} Nodes={slurm_list(keep.nodes)}",) if same else (
            (f"SwitchName={keep.name} Nodes={slurm_list(rest)}",) if rest else ())
        yield Finding(Severity.WRONG, what, "a warning of slurmctld (multiple leaf switches contain nodes)" + (
            ": leaves with the same nodes are rails, and one leaf in a tree" if same else
            ": it works, but the nodes' place is no longer one"), right, keep.place, tuple(nodes))


def _strangers(topology: Topology, noun: str, lines: Sequence[SwitchLine | BlockLine],
               nodes: set[str]) -> Iterator[Finding]:
    found = {line.name: [name for name in line.nodes if name not in nodes] for line in lines}
    every = [name for names in found.values() for name in names]
    if not every:
        return
    first = next(line for line in lines if found[line.name])
    names = list(dict.fromkeys(every))
    hints = [hint for test, hint in (
        (lambda n: n.casefold() in ("mellanox", "aggregation") or "sharp" in n.casefold(),
         "the SHARP aggregation node of a switch is no host"),
        (is_service, "storage, login and management hosts have no place in it")) if any(test(n) for n in names)]
    keep = [n for n in first.nodes if n in nodes]
    head = "BlockName" if noun == "block" else "SwitchName"
    yield Finding(
        Severity.WRONG, f"{in_(topology)}{some(names)} {verb(names)} in no NodeName= line",
        "; ".join(["slurmctld warns of invalid hostnames and leaves them out", *hints]),
        (f"{head}={first.name} Nodes={slurm_list(keep)}",) if keep else (), first.place, tuple(names))


def _without(situation: Situation, topology: Topology, noun: str, lines: Sequence[SwitchLine | BlockLine],
             nodes: set[str]) -> Iterator[Finding]:
    inside = {name for line in lines for name in line.nodes}
    outside = nodes - inside
    if not outside or not inside & nodes:
        return
    needed = outside & _users(situation, topology)
    for severity, missing in ((Severity.WRONG, sorted(needed)), (Severity.NOTE, sorted(outside - needed))):
        if missing:
            means = ("jobs that need a place in the topology never get " + ("it" if len(missing) == 1 else "them")
                     if severity is Severity.WRONG else "no partition of theirs uses this topology")
            yield Finding(
                severity, f"{in_(topology)}{some(missing)} {verb(missing)} in no {noun}",
                f"slurmctld warns that {'switches' if noun == 'leaf' else 'blocks'} lack access to "
                f"{plural(len(missing), 'node')}: {means}", place=lines[0].place, nodes=tuple(missing))


def _users(situation: Situation, topology: Topology) -> set[str]:
    """The nodes whose jobs are placed by the topology: by Topology= of their partitions, else by the cluster's own."""
    partitions = situation.conf.partitions
    found = {host for p in partitions for host in p.hosts
             if (p.values["topology"].text == topology.name if "topology" in p.values else topology.default)}
    if topology.default:
        placed = {host for p in partitions for host in p.hosts}
        found |= {host for line in situation.conf.nodes for host in line.hosts} - placed
    return found


def levels(situation: Situation) -> Iterator[Finding]:
    """BlockLevels= of 23.11 in sizes: level n is 2^n blocks."""
    versions = where(situation, lambda v: v >= (24, 5))
    for file in situation.conf.files:
        for statement in file.statements if file.name == "topology.conf" and versions else ():
            if statement.kind != "blocklevels":
                continue
            value = statement.values[0]
            counts = [len(line.nodes) for t in situation.conf.topologies for line in t.blocks if line.nodes]
            powers = [int(part) for part in value.text.split(",") if part.isdigit() and int(part) < 16]
            right = f"BlockSizes={','.join(str(min(counts) << n) for n in powers)}" if counts and powers else (
                "BlockSizes=<nodes of a block>")
            yield Finding(Severity.FATAL, f"BlockLevels={value.text[:60]}: sizes are in nodes now",
                          f"{told(versions)}: slurmctld does not start with it", (right,), value.place,
                          versions=only(situation, versions))


def blocks(situation: Situation) -> Iterator[Finding]:
    nodes = known_nodes(situation)
    for topology in topologies(situation):
        if topology.kind != "block" and not topology.blocks:
            continue
        place = topology.place or (topology.blocks[0].place if topology.blocks else None)
        seen: dict[str, BlockLine] = {}
        for line in topology.blocks:
            if line.name in seen:
                yield Finding(Severity.FATAL, f"{in_(topology)}block {line.name} is defined twice (first "
                              f"{seen[line.name].place})", "slurmctld does not start", place=line.place)
            seen.setdefault(line.name, line)
        yield from _sizes(situation, topology, nodes, place)


def _sizes(situation: Situation, topology: Topology, nodes: set[str], place: Place | None) -> Iterator[Finding]:
    sizes = topology.block_sizes
    key = "block_sizes" if from_yaml(topology) else "BlockSizes"
    bad = shapes.illegal_size(sizes) if sizes else None
    filled = [line for line in topology.blocks if line.nodes]
    counts = {line.name: sum(1 for n in line.nodes if n in nodes) if nodes else len(line.nodes) for line in filled}
    if bad is not None:
        base = sizes[0] if sizes[0] > 0 else min(counts.values(), default=1)
        legal = [s for s in sizes if shapes.illegal_size([base, s]) is None] or [base]
        yield Finding(Severity.FATAL, f"{in_(topology)}{key}={','.join(map(str, sizes[:12]))}: {bad} is not {base} "
                      "times a power of two", "slurmctld does not start (invalid BlockSizes value)",
                      (f"{key}={','.join(map(str, legal))}",), place)
        return
    empty = [line for line in topology.blocks if not line.nodes]
    if empty:
        old = where(situation, lambda v: (23, 11) <= v < YAML)
        if old:
            yield Finding(Severity.FATAL, f"{in_(topology)}block {empty[0].name} has no Nodes=",
                          f"{told(old)}: slurmctld does not start", place=empty[0].place,
                          versions=only(situation, old))
    if not filled:
        if topology.blocks and not sizes:
            yield Finding(Severity.FATAL, f"{in_(topology)}no block has nodes, and there is no {key}",
                          "slurmctld does not start", place=topology.blocks[0].place)
        return
    base = sizes[0] if sizes else counts[filled[0].name]
    yield from _small(situation, topology, counts, base, key)


def _small(situation: Situation, topology: Topology, counts: dict[str, int], base: int,
           key: str) -> Iterator[Finding]:
    small = [name for name, count in counts.items() if count < base]
    if not small:
        return
    first = next(line for line in topology.blocks if line.name == small[0])
    named = f"{key}={','.join(map(str, topology.block_sizes))}" if topology.block_sizes else (
        f"the base size is that of the first block, {base}")
    what = (f"{in_(topology)}{some(small)} {verb(small, 'has', 'have')} fewer nodes than a block "
            f"({counts[small[0]]} < {base}): {named}")
    right = (f"{key}={min(counts.values())}",)
    fatal = where(situation, lambda v: (24, 5) <= v < (25, 5))
    silent = where(situation, lambda v: v >= (25, 5))
    if fatal:
        yield Finding(Severity.FATAL, what, f"{told(fatal)}: slurmctld does not start", right, first.place,
                      versions=only(situation, fatal))
    if silent:
        yield Finding(Severity.WRONG, what, f"{told(silent)}: Slurm says nothing, and no job that asks for a whole "
                      "block gets that one", right, first.place, versions=only(situation, silent))


BLOCKS: tuple[Rule, ...] = (members, levels, blocks)

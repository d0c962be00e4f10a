"""Cores in hwloc's logical order, which is Slurm's: the place of a core is its number in gres.conf's Cores=."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Cpus = frozenset[int]
_MAX_NODES = 1024


def nested(sets: Iterable[Cpus]) -> tuple[list[Cpus], list[Cpus]]:
    """The sets that lie wholly in or beside one another, large ones first; and those that cross one of these."""
    kept: list[Cpus] = []
    crossing: list[Cpus] = []
    around: dict[int, int] = {}          # CPU -> number of the smallest kept set that it is in
    for group in sorted({each for each in sets if each}, key=lambda each: (-len(each), min(each))):
        if len({around.get(cpu, -1) for cpu in group}) > 1:
            crossing.append(group)
            continue
        for cpu in group:
            around[cpu] = len(kept)
        kept.append(group)
    return kept, crossing


def ordered(cores: Iterable[Cpus], sets: Iterable[Cpus]) -> list[Cpus]:
    """hwloc puts every set of CPUs (package, NUMA node, die, cluster, cache) into one tree, larger ones above, and
    numbers what is on a level by the lowest CPU of each branch. `sets` are nested."""
    above: dict[int, list[Cpus]] = {}
    for group in sets:
        for cpu in group:
            above.setdefault(cpu, []).append(group)

    def key(core: Cpus) -> tuple[int, ...]:
        lowest = min(core)
        groups = sorted((group for group in above.get(lowest, ()) if len(group) > len(core)),
                        key=lambda group: (-len(group), min(group)))
        return (*(min(group) for group in groups), lowest)

    return sorted(set(cores), key=key)


def near(sets: Sequence[Cpus], far: Sequence[Sequence[int]]) -> list[Cpus]:
    """The groups that hwloc makes of NUMA nodes by their distances (`far`), which it lays into the tree as well: nodes
    that the smallest distance joins, then groups of these groups; and the nodes around a node without CPUs."""
    size = len(sets)
    if size < 2 or size > _MAX_NODES or len(far) != size or any(len(row) != size for row in far):
        return []
    own = list(sets)
    found = []
    for node in [place for place in range(size) if not sets[place]]:
        others = [place for place in range(size) if place != node]
        least = min(far[node][place] for place in others)
        nearest = [place for place in others if far[node][place] == least]
        if far[node][node] < least and len(nearest) < len(others):
            own[node] = frozenset().union(*(own[place] for place in nearest))
            found.append(own[node])
    pairs = [(a, b) for a in range(size) for b in range(a)]
    if all(far[a][b] == far[b][a] > max(far[a][a], far[b][b]) for a, b in pairs):
        found += _by_distance(own, far)
    return [group for group in found if group]


def _by_distance(sets: Sequence[Cpus], far: Sequence[Sequence[int]]) -> list[Cpus]:
    size = len(sets)
    if size <= 2:
        return []
    least = min(far[a][b] for a in range(size) for b in range(size) if a != b)
    left = set(range(size))
    groups: list[list[int]] = []
    alone = False
    for first in range(size):
        if first not in left:
            continue
        left.remove(first)
        members = [first]
        for here in members:
            new = [place for place in left if far[here][place] == least]
            left.difference_update(new)
            members += new
        alone = alone or len(members) == 1
        if len(members) > 1:
            groups.append(sorted(members))
    if not groups or (len(groups) == 1 and not alone):
        return []
    joined: list[Cpus] = [frozenset().union(*(sets[place] for place in members)) for members in groups]
    between = [[sum(far[a][b] for a in one for b in other) // (len(one) * len(other)) for other in groups]
               for one in groups]
    return [*joined, *_by_distance(joined, between)]

"""Cores in hwloc's logical order, which is Slurm's: the place of a core is its number in gres.conf's Cores=."""

from __future__ import annotations

from collections.abc import Iterable

Cpus = frozenset[int]


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

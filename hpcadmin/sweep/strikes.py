"""Which node the network's failures between two nodes accuse: as many different partners as the policy wants. Pure.

A pair that fails may be the fault of either. A node that fails with several partners is the likely one; its pairs then
say nothing against the partners, so that of two bad nodes a third, which met both, is not accused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field

from hpcadmin.sweep.model import Look, Result


@dataclass
class Accused:
    """Of one check. accused: node -> partners. unclear: nodes of which one cannot be told from the other -> partners.
    strikes: nodes with fewer strikes than are wanted -> partners."""

    accused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unclear: dict[str, tuple[str, ...]] = field(default_factory=dict)
    strikes: dict[str, tuple[str, ...]] = field(default_factory=dict)


def accuse(looks: Iterable[Look], strikes: int, out: Set[str] = frozenset(), weak: Set[str] = frozenset()) -> Accused:
    """looks: the latest of each pair, of one check. out: nodes that are known to be bad already, and explain theirs.
    weak: nodes with which something is wrong anyway: failing with them accuses nobody else."""
    met: dict[str, set[str]] = defaultdict(set)
    for look in looks:
        if look.result is Result.BAD and look.node != look.partner and look.pair.isdisjoint(out):
            for node, partner in ((look.node, look.partner), (look.partner, look.node)):
                if partner not in weak:
                    met[node].add(partner)
    left = {node: set(partners) for node, partners in met.items()}
    found = Accused()
    while met and (most := max(len(partners) for partners in met.values())) >= strikes:
        worst = sorted(node for node, partners in met.items() if len(partners) == most)
        clear = [node for node in worst
                 if sum(1 for partner in met[node] if len(met.get(partner, ())) < most) >= strikes]
        for node in clear or worst:
            (found.accused if clear else found.unclear)[node] = tuple(sorted(met[node]))
        for node in clear or worst:
            for partner in met.pop(node):
                if partner in met:
                    met[partner].discard(node)
                if clear and partner in left:
                    left[partner].discard(node)
    found.accused = {node: _others(partners, found.accused, strikes) for node, partners in found.accused.items()}
    found.strikes = {node: tuple(sorted(partners)) for node, partners in sorted(left.items())
                     if partners and node not in found.accused and node not in found.unclear}
    return found


def _others(partners: tuple[str, ...], accused: Collection[str], strikes: int) -> tuple[str, ...]:
    """Those that are not accused themselves, where they are enough: with them it has to pass to come back, and with
    one that stays broken it never would."""
    sound = tuple(partner for partner in partners if partner not in accused)
    return sound if len(sound) >= strikes else partners


def at_least(looks: Iterable[Look]) -> int:
    """How many nodes are bad at the least: so many of these failing pairs have no node in common."""
    taken: set[str] = set()
    count = 0
    for look in sorted(looks, key=lambda look: (look.node, look.partner)):
        if look.result is Result.BAD and look.node != look.partner and not look.pair & taken:
            taken |= look.pair
            count += 1
    return count

"""Which nodes and which pairs are tested on which night, so that in so many nights all are. Pure.

All nodes meet in rounds (circle method): in one round everybody has one partner, in n - 1 rounds (n with an odd number)
each has met each. A night takes the next round, or the next part of one where fewer pairs are allowed. The order is
shuffled by a seed that stays the same, so that any `nights` nights in a row have every pair, wherever they begin; it
begins anew when nodes come or go.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

SEED = 20231


@dataclass(frozen=True)
class Rotation:
    """pairs: at most so many on a night, 0: a whole round. nodes: the same of nodes by themselves, 0: all of them."""

    names: tuple[str, ...]
    pairs: int = 0
    nodes: int = 0

    @property
    def pair_nights(self) -> int:
        """In how many nights each node has met each."""
        return self._rounds * self._parts if len(self.names) > 1 else 0

    @property
    def node_nights(self) -> int:
        """In how many nights each node has been tested by itself."""
        if not self.names:
            return 0
        return math.ceil(len(self.names) / self.nodes) if self.nodes else 1

    @property
    def _rounds(self) -> int:
        count = len(self.names)
        return count - 1 if count % 2 == 0 else count

    @property
    def _parts(self) -> int:
        return math.ceil((len(self.names) // 2) / self.pairs) if self.pairs else 1

    def pairs_of(self, night: int) -> tuple[tuple[str, str], ...]:
        """The pairs of a night, none with a node that another has."""
        if len(self.names) < 2:
            return ()
        place = night % self.pair_nights
        order = _shuffled(self.names)
        found = [(order[a], order[b]) for a, b in circle(len(order), place // self._parts)]
        size = math.ceil(len(found) / self._parts)
        part = place % self._parts
        return tuple(sorted((min(pair), max(pair)) for pair in found[part * size:(part + 1) * size]))

    def nodes_of(self, night: int) -> tuple[str, ...]:
        """The nodes that are tested by themselves on a night."""
        if not self.names:
            return ()
        order = _shuffled(self.names)
        size = math.ceil(len(order) / self.node_nights)
        part = night % self.node_nights
        return tuple(sorted(order[part * size:(part + 1) * size]))


def rotation(names: Sequence[str], *, pairs: int = 0, nodes: int = 0) -> Rotation:
    """Of names in any order, each once."""
    return Rotation(tuple(sorted(set(names))), pairs, nodes)


def _shuffled(names: tuple[str, ...]) -> list[str]:
    """Neighbours in a rack are not partners first; the same order on every night."""
    order = list(names)
    random.Random(SEED).shuffle(order)  # noqa: S311  (an order, no secret)
    return order


def circle(count: int, number: int) -> list[tuple[int, int]]:
    """The pairs of places in one round. With an odd number one sits out."""
    size = count + count % 2
    turn = size - 1
    number %= turn
    found = [(number, turn)] + [((number + k) % turn, (number - k) % turn) for k in range(1, size // 2)]
    return [(min(a, b), max(a, b)) for a, b in found if max(a, b) < count]

"""Which two nodes meet: all pairs as disjoint rounds, or a sample of them whose power is known. Pure.

Places are the numbers of nodes in their order (Slurm's, or that of the switches). In a round nobody is in two pairs,
and no kind of sample leaves anybody out: an odd number gets a round more.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar, Union

from hpcadmin.rundata import PairSample
from hpcadmin.text import plural

T = TypeVar("T")
Pairs = Union[str, int]             # one of WORDS, or how many random rounds
Round = list[tuple[int, int]]
WORDS = ("all", "screen", "ring", "cross-leaf")
SCREEN = 4                          # rounds
MOST_ROUNDS = 100_000
SWAPS = 64                          # pairs with which one that has met before is tried to be swapped


def pairs_of(text: object) -> Pairs | None:
    """As suites and command lines have it; None: it is none."""
    if isinstance(text, str) and text in WORDS:
        return text
    if isinstance(text, str) and text.isdecimal() and text.isascii():
        text = int(text[:9])
    return text if type(text) is int and 1 <= text <= MOST_ROUNDS else None


def rounds(nodes: Sequence[T], most: int | None = None) -> Iterator[list[tuple[T, T]]]:
    """Every pair exactly once, in rounds in which nobody is in two pairs (circle method). With an odd number each
    sits out one round. The earlier of the two comes first in its pair. most: so many rounds at most, but two of an odd
    number: else one would be in no pair."""
    for pairs in _drawn(list(range(len(nodes))), count_of(len(nodes), most)):
        yield [(nodes[a], nodes[b]) for a, b in pairs]


def count_of(nodes: int, most: int | None = None) -> int:
    """How many rounds there are, or that many at most."""
    every = 0 if nodes < 2 else nodes - 1 if nodes % 2 == 0 else nodes
    return every if most is None else min(every, most if nodes % 2 == 0 else max(2, most))


def most_rounds(nodes: int, pairs: Pairs) -> int:
    """How many rounds there can be, before they are worked out."""
    if isinstance(pairs, int):
        return count_of(nodes, pairs)
    return count_of(nodes, None if pairs in ("all", "cross-leaf") else SCREEN)


def sampled(leaves: Sequence[Hashable], pairs: Pairs, seed: int) -> list[Round]:
    """The rounds of nodes whose leaf switches these are, in the order of the nodes; None: not known."""
    count = len(leaves)
    if pairs == "ring":
        return ring(count) if not _several(leaves) else [_sorted(r, by_leaf(leaves)) for r in ring(count)]
    if pairs == "cross-leaf" or (pairs == "screen" and _several(leaves) and None not in leaves and count > SCREEN):
        if pairs == "cross-leaf":
            return list(across(leaves, seed))
        first = ring(count)[:1 + count % 2]         # neighbours, mostly under one leaf switch
        near = [_sorted(r, by_leaf(leaves)) for r in first]
        return [*near, *across(leaves, seed, max(1, SCREEN - len(near)), [pair for pairs_ in near for pair in pairs_])]
    most = SCREEN if pairs == "screen" else None if pairs == "all" else int(pairs)
    rounds_ = count_of(count, most)
    order = list(range(count))
    if rounds_ < count_of(count):                   # else all meet all: the order of the nodes is as good as any
        random.Random(seed).shuffle(order)  # noqa: S311  (a draw, no secret)
    return [_sorted(pairs_, order) for pairs_ in _drawn(list(range(count)), rounds_)]


def _sorted(pairs: Iterable[tuple[int, int]], order: Sequence[int]) -> Round:
    """These pairs of places in an order, as pairs of what stands there, in the order of the nodes."""
    return sorted((min(order[a], order[b]), max(order[a], order[b])) for a, b in pairs)


def _drawn(places: Sequence[int], most: int) -> Iterator[Round]:
    if len(places) < 2:
        return
    circle: list[int] = list(places)
    if len(circle) % 2:
        circle.append(-1)
    size = len(circle)
    for _ in range(most):
        both = ((circle[i], circle[size - 1 - i]) for i in range(size // 2))
        yield [(min(a, b), max(a, b)) for a, b in both if min(a, b) >= 0]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def packed(pairs: Iterable[tuple[int, int]]) -> list[Round]:
    """These pairs, each once, in rounds in which nobody is in two of them; those who have most come first."""
    left = list(dict.fromkeys((min(pair), max(pair)) for pair in pairs))
    count: dict[int, int] = {}
    for place in (p for pair in left for p in pair):
        count[place] = count.get(place, 0) + 1
    left.sort(key=lambda pair: (-max(count[pair[0]], count[pair[1]]), pair))
    found: list[Round] = []
    busy: list[set[int]] = []
    for pair in left:
        turn = next((i for i, own in enumerate(busy) if not own.intersection(pair)), len(busy))
        if turn == len(busy):
            busy.append(set())
            found.append([])
        busy[turn].update(pair)
        found[turn].append(pair)
    return [sorted(round_) for round_ in found]


def ring(count: int) -> list[Round]:
    """Each with the next one, the last with the first: two rounds, three of an odd number."""
    if count < 2:
        return []
    if count == 2:
        return [[(0, 1)]]
    first = [(i, i + 1) for i in range(0, count - 1, 2)]
    second = [(i, i + 1) for i in range(1, count - 1, 2)]
    return [first, second, [(0, count - 1)]] if count % 2 else [first, [(0, count - 1), *second]]


def by_leaf(leaves: Sequence[Hashable]) -> list[int]:
    """The places of the nodes, those of one leaf switch together, in the order in which the switches come."""
    rank: dict[Hashable, int] = {}
    for leaf in leaves:
        rank.setdefault(leaf, len(rank))
    return sorted(range(len(leaves)), key=lambda i: rank[leaves[i]])


def _several(leaves: Sequence[Hashable]) -> bool:
    return len(set(leaves) - {None}) > 1


def across(leaves: Sequence[Hashable], seed: int, rounds_: int | None = None,
           met_before: Iterable[tuple[int, int]] = ()) -> Iterator[Round]:
    """Partners under other leaf switches, until each two leaves have met and nobody is left out. Paths that nobody has
    taken come first, then nodes that nobody has met, then the rest: a round is as full as it can be.

    rounds_: so many; those whom the leaves leave over meet others under their own. Without several leaves there are
    none. met_before: pairs that need not meet again."""
    if not _several(leaves):
        return
    draw = random.Random(seed)  # noqa: S311  (a draw, no secret)
    members: dict[Hashable, list[int]] = {}
    for place, leaf in enumerate(leaves):
        members.setdefault(leaf, []).append(place)
    for own in members.values():
        draw.shuffle(own)
    names = list(members)
    draw.shuffle(names)
    paths = [(names[a], names[b]) for pairs in _drawn(list(range(len(names))), count_of(len(names))) for a, b in pairs]
    met: set[int] = set()
    known = set(map(frozenset, met_before))
    number = 0
    while (paths or len(met) < len(leaves)) if rounds_ is None else number < rounds_:
        number += 1
        before = len(paths)
        found, paths = _round(members, paths, met)
        _fresh(found, before - len(paths), known, leaves)
        if rounds_ is not None:
            found += _left_over([p for own in members.values() for p in own], found, known)
        met.update(place for pair in found for place in pair)
        known.update(map(frozenset, found))
        yield sorted((min(pair), max(pair)) for pair in found)
        used = {place for pair in found for place in pair}
        for own in members.values():    # whoever waited comes first in the next round: sorted() keeps the order
            draw.shuffle(own)
            own.sort(key=lambda place: place not in used)


def _left_over(places: Sequence[int], found: Round, known: set[frozenset[int]]) -> Round:
    """Pairs of those that are in none, as far as they have not met."""
    used = {place for pair in found for place in pair}
    idle = [place for place in places if place not in used]
    more: Round = []
    while len(idle) > 1:
        one = idle.pop()
        partner = next((place for place in reversed(idle) if frozenset((one, place)) not in known), None)
        if partner is not None:
            idle.remove(partner)
            more.append((one, partner))
    return more


def _fresh(found: Round, fixed: int, known: set[frozenset[int]], leaves: Sequence[Hashable]) -> None:
    """Let partners who have met before change with another pair, where that gives new ones under other leaves. The
    first `fixed` pairs take a path that nobody has taken: they keep their leaves."""
    for i, pair in enumerate(found):
        if frozenset(pair) not in known:
            continue
        for step in range(1, min(len(found), SWAPS)):
            j = (i + step) % len(found)
            new = _swapped(pair, found[j], known, leaves, same=min(i, j) < fixed)
            if new is not None:
                found[i], found[j] = new
                break


def _swapped(one: tuple[int, int], other: tuple[int, int], known: set[frozenset[int]], leaves: Sequence[Hashable], *,
             same: bool) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Two pairs of these four that have not met. same: each keeps its leaves."""
    a, b = one
    for c, d in (other, other[::-1]):
        if leaves[a] == leaves[d] or leaves[c] == leaves[b]:
            continue
        if same and not (leaves[a] == leaves[c] and leaves[b] == leaves[d]):
            continue
        if frozenset((a, d)) not in known and frozenset((c, b)) not in known:
            return (a, d), (c, b)
    return None


def _round(members: dict[Hashable, list[int]], paths: Sequence[tuple[Hashable, Hashable]], met: set[int],
           ) -> tuple[Round, list[tuple[Hashable, Hashable]]]:
    """One round, and the paths that are left. Members of a leaf that have met nobody come first, then those that
    waited longest."""
    free = {leaf: sorted(own, key=lambda place: place in met, reverse=True) for leaf, own in members.items()}
    found: Round = []
    left = []
    for one, other in paths:
        if free[one] and free[other]:
            found.append((free[one].pop(), free[other].pop()))
        else:
            left.append((one, other))
    found += _greedy({leaf: [p for p in own if p not in met] for leaf, own in free.items()}, free)
    used = {place for pair in found for place in pair}
    rest = {leaf: [p for p in own if p not in used] for leaf, own in free.items()}
    found += _greedy(rest, rest)
    return found, left


def _greedy(wanted: dict[Hashable, list[int]], free: dict[Hashable, list[int]]) -> Round:
    """Pairs of those that are wanted, from the two leaves that have most of them; the last leaf's with others that are
    free."""
    heap = [(-len(own), number, leaf) for number, (leaf, own) in enumerate(wanted.items()) if own]
    heapify(heap)
    stacks = {leaf: list(own) for leaf, own in wanted.items()}
    found: Round = []
    while len(heap) > 1:
        (_, a, one), (_, b, other) = heappop(heap), heappop(heap)
        found.append((stacks[one].pop(), stacks[other].pop()))
        for number, leaf in ((a, one), (b, other)):
            if stacks[leaf]:
                heappush(heap, (-len(stacks[leaf]), number, leaf))
    if heap and wanted is not free:
        used = {place for pair in found for place in pair}
        leaf = heap[0][2]
        others = (p for name, own in free.items() if name != leaf for p in own if p not in used)
        found += list(zip(stacks[leaf], others, strict=False))
    return found


# --- what a sample can show -------------------------------------------------------------------------------------


def sample_of(checks: tuple[str, ...], pairs: Pairs, rounds_: Sequence[Round], leaves: Sequence[Hashable],
              ) -> PairSample:
    partners: list[set[int]] = [set() for _ in leaves]
    taken: set[frozenset[Hashable]] = set()
    for a, b in (pair for pairs_ in rounds_ for pair in pairs_):
        partners[a].add(b)
        partners[b].add(a)
        if leaves[a] != leaves[b] and leaves[a] is not None and leaves[b] is not None:
            taken.add(frozenset((leaves[a], leaves[b])))
    counts = [len(own) for own in partners]
    known = len(set(leaves) - {None})
    return PairSample(checks, str(pairs), len(rounds_), len(leaves), sum(map(bool, counts)), min(counts, default=0),
                      max(counts, default=0), known * (known - 1) // 2, len(taken))


def power_text(sample: PairSample) -> str:
    """What of one fault the sample would meet."""
    least, most = sample.partners_least, sample.partners_most
    partners = f"{least}" if least == most else f"{least} to {most}"
    words = [f"each node meets {partners} of {max(0, sample.nodes - 1)} others",
             f"one bad node is met {_chance(sample.nodes_met, sample.nodes)}"]
    if sample.paths:
        words.append(f"one bad path between two leaf switches {_chance(sample.paths_met, sample.paths)} "
                     f"({sample.paths_met} of {sample.paths} paths)")
    return f"pairs = {sample.pairs}: {plural(sample.rounds, 'round')}, {', '.join(words)}"


def _chance(met: int, of: int) -> str:
    share = met / of if of else 0.0
    return "for certain" if met == of else f"with {100 * share:.2g} % probability"



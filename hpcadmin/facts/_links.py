"""What a matrix of link counts between GPUs says: symmetry, hives, rings, and GPUs that stand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

Matrix = Sequence[Sequence[int | None]]      # -1 itself, 0 none, None unknown


def symmetric(links: Matrix) -> bool:
    return all(links[row][column] == links[column][row] for row in range(len(links)) for column in range(row))


def parts(links: Matrix) -> tuple[tuple[int, ...], ...]:
    """Sets of GPUs that links join, directly or over others; by the lowest index."""
    left, found = list(range(len(links))), []
    while left:
        part, todo = set(), [left[0]]
        while todo:
            here = todo.pop()
            if here not in part:
                part.add(here)
                todo += [there for there in left if (links[here][there] or 0) > 0 or (links[there][here] or 0) > 0]
        found.append(tuple(sorted(part)))
        left = [index for index in left if index not in part]
    return tuple(found)


def hives(links: Matrix) -> tuple[tuple[int, ...], ...]:
    """The parts, when there are at least two GPUs in each and all in one are linked with each other; else ()."""
    found = parts(links)
    whole = all(len(part) > 1 and all((links[a][b] or 0) > 0 for a in part for b in part if a != b) for part in found)
    return found if whole else ()


def rings(links: Matrix) -> tuple[tuple[int, ...], ...]:
    """The parts as closed rings of at least four GPUs, in their order; () unless every part is one."""
    found = []
    for part in parts(links):
        near = {index: [other for other in part if other != index and (links[index][other] or 0) > 0]
                for index in part}
        if len(part) < 4 or any(len(others) != 2 for others in near.values()):
            return ()
        ring = [part[0], near[part[0]][0]]
        while len(ring) < len(part):
            ring.append(next(other for other in near[ring[-1]] if other != ring[-2]))
        found.append(tuple(ring))
    return tuple(found)


def faults(links: Matrix, names: Sequence[str], kind: str) -> Iterator[str]:
    """Links that are missing or one-sided, as sentences. names: of the GPUs; kind: "NVLink", "XGMI"."""
    for row in range(len(links)):
        for column in range(row):
            there, back = links[row][column], links[column][row]
            if there is not None and back is not None and there != back:
                yield (f"{names[row]} has {there} {kind} links to {names[column]}, "
                       f"{names[column]} has {back} back: the matrix contradicts itself")
    count = len(links)
    totals = [sum(max(cell or 0, 0) for cell in row) for row in links]
    unknown = [any(cell is None for cell in row) for row in links]
    for index, total in enumerate(totals):
        if total == 0 and not unknown[index] and count > 2 and sum(other > 0 for other in totals) == count - 1:
            yield f"{names[index]} has no {kind}, its {count - 1} peers do"
    yield from _missing_pairs(links, names, kind, totals)


def _missing_pairs(links: Matrix, names: Sequence[str], kind: str, totals: Sequence[int]) -> Iterator[str]:
    """In a mesh of all with all, the few pairs that are not linked, or with fewer links."""
    count = len(links)
    pairs = [(row, column, links[row][column]) for row in range(count) for column in range(row + 1, count)
             if totals[row] and totals[column]]
    if len(pairs) < 3:
        return
    usual, often = Counter(value for *_, value in pairs).most_common(1)[0]
    if not usual or often < 0.8 * len(pairs):
        return
    for row, column, value in pairs:
        if value is not None and value != usual:
            yield f"{names[row]} and {names[column]} have {value} {kind} links, the other pairs {usual}"

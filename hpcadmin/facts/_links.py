"""What a matrix of link counts between GPUs says: symmetry, hives, rings, and GPUs or links that stand out.

A fault is what contradicts the pattern of the others. Pairs and fours joined by bridges, rings and cube meshes are
patterns too: where a GPU has no link by any of them, that may be as built.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from hpcadmin.text import fold_ids, plural

_NVLINK = re.compile(r"NV([0-9]{1,2})\Z")
_PCIE = frozenset({"PIX", "PXB", "PHB", "NODE", "SYS", "SOC"})
_MAX_BRIDGE = 4                  # GPUs that one bridge joins at most

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


def count(label: str) -> int | None:
    """18 for NV18, -1 for X, 0 for a PCIe relation, None where the label does not tell."""
    match = _NVLINK.match(label)
    if match:
        return int(match[1])
    return -1 if label == "X" else 0 if label in _PCIE else None


def complete(links: Matrix) -> bool:
    return all(cell is not None for row in links for cell in row)


def faulty(links: Matrix) -> tuple[int, ...]:
    """GPUs without a link beside others that are all linked with each other, and too many, or too few for one bridge
    of theirs alone, to be joined by a bridge."""
    alone = _alone(links)
    if not alone:
        return ()
    meshes = [part for part in parts(links) if len(part) > 1]
    if any(not _mesh(links, part) for part in meshes):
        return alone if len(links) == 8 and len(alone) == 1 and _cube(links, meshes) else ()
    largest = max(map(len, meshes), default=0)
    if largest > _MAX_BRIDGE or (largest == 3 and len(links) == 4):
        return alone
    return alone if len(alone) == 1 and len(meshes) > 1 and sorted(map(len, meshes)) == [
        3, *[4] * (len(meshes) - 1)] else ()


def _alone(links: Matrix) -> tuple[int, ...]:
    """GPUs that have no link, for certain, while others have."""
    total = range(len(links))
    none = [a for a in total if all(links[a][b] == 0 and links[b][a] == 0 for b in total if b != a)]
    return tuple(none) if any((cell or 0) > 0 for row in links for cell in row) else ()


def _mesh(links: Matrix, part: Sequence[int]) -> bool:
    """Each linked with each; what is not known counts as linked."""
    return all(links[a][b] is None or (links[a][b] or 0) > 0 for a in part for b in part if a != b)


def _cube(links: Matrix, meshes: Sequence[Sequence[int]]) -> bool:
    """Whether seven GPUs are the rest of a cube mesh of eight."""
    return len(meshes) == 1 and len(meshes[0]) == 7


def faults(links: Matrix, names: Sequence[str], kind: str) -> Iterator[str]:
    """Links that are missing or one-sided, as sentences. names: of the GPUs; kind: "NVLink", "XGMI"."""
    for row in range(len(links)):
        for column in range(row):
            there, back = links[row][column], links[column][row]
            if there is not None and back is not None and there != back:
                yield (f"{names[row]} has {there} {kind} links to {names[column]}, "
                       f"{names[column]} has {back} back: the matrix contradicts itself")
    gone = faulty(links)
    peers = len(links) - len(gone)
    for index in gone:
        yield f"{names[index]} has no {kind}, its {peers} peers do"
    for part in parts(links):
        yield from _odd_in_mesh(links, part, names, kind)
    yield from _odd_totals(links, names, kind)


def _odd_in_mesh(links: Matrix, part: Sequence[int], names: Sequence[str], kind: str) -> Iterator[str]:
    """In a mesh of all with all: the GPU that has fewer links to each, or the few pairs that are not linked as the
    others are."""
    pairs = [(a, b, links[a][b]) for place, a in enumerate(part) for b in part[place + 1:] if links[a][b] is not None]
    if len(pairs) < 3:
        return
    usual, often = Counter(value for *_, value in pairs).most_common(1)[0]
    odd = [(a, b, value) for a, b, value in pairs if value != usual]
    hub = next((gpu for gpu in part if odd and all(gpu in pair[:2] for pair in odd)
                and len({value for *_, value in odd}) == 1 and len(odd) == len(part) - 1), None)
    if hub is not None and len(part) > 3 and usual:
        yield (f"{names[hub]} has {odd[0][2]} {kind} links to each of the others, which have {usual} among "
               f"themselves")
    elif usual and odd and often >= 0.8 * len(pairs) and not _each_alike(part, odd):
        for a, b, value in odd:
            yield f"{names[a]} and {names[b]} have {value} {kind} links, the other pairs {usual}"


def _each_alike(part: Sequence[int], odd: Sequence[tuple[int, int, int | None]]) -> bool:
    """Whether every GPU has as many of the odd pairs: one partner less for each is how the board is made."""
    counts = Counter(gpu for a, b, _ in odd for gpu in (a, b))
    return len({counts[gpu] for gpu in part}) == 1


def _odd_totals(links: Matrix, names: Sequence[str], kind: str) -> Iterator[str]:
    """In a cube mesh of eight every GPU uses all of its links: fewer on two of them is a link that is down."""
    if len(links) != 8 or not complete(links) or not symmetric(links) or len(parts(links)) != 1 or _mesh(
            links, range(8)):
        return
    totals = [sum(max(cell or 0, 0) for cell in row) for row in links]
    usual, often = Counter(totals).most_common(1)[0]
    if 5 <= often < 8 and max(totals) == usual:
        odd = [index for index, total in enumerate(totals) if total != usual]
        yield (f"{' and '.join(names[index] for index in odd)} {'has' if len(odd) == 1 else 'have'} "
               f"{', '.join(str(totals[index]) for index in odd)} {kind} links in all, the other {often} GPUs {usual}")


def notes(links: Matrix, names: Sequence[str], kind: str) -> Iterator[str]:
    """What may be as built, and is worth a look."""
    alone = [index for index in _alone(links) if index not in faulty(links)]
    if alone:
        yield (f"{', '.join(names[index] for index in alone)} {'has' if len(alone) == 1 else 'have'} no {kind}, others "
               f"have: not fitted with a bridge, or with a dead one, cannot be told from the matrix")
    found = [part for part in parts(links) if len(part) > 1]
    for part in found:
        counts = Counter(cell for a in part for cell in [links[a][b] for b in part if b > a] if cell)
        if len(part) == 4 and len(counts) > 1 and not any(True for _ in _odd_in_mesh(links, part, names, kind)):
            few = min(counts)
            for a in part:
                for b in part:
                    if a < b and links[a][b] == few and counts[few] == 1:
                        yield (f"{names[a]} and {names[b]} have {plural(few, f'{kind} link')}, the other joined pairs "
                               f"{fold_ids(count for count in counts if count != few)}")



# --- of a node --------------------------------------------------------------------------------------------------------


def of_labels(labels: Sequence[Sequence[str]]) -> list[list[int | None]]:
    """Counts from the labels of topo -m, row and column by GPU."""
    return [[-1 if a == b else count(label) for b, label in enumerate(row)] for a, row in enumerate(labels)]


def faulty_links(labels: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """The places of GPUs whose links look faulty in a node's labels; see `faulty`."""
    return faulty(of_labels(labels))


def problems(labels: Sequence[Sequence[str]], numbers: Sequence[int], *, mig: Collection[int] = (),
             active: Mapping[int, int | None] | None = None) -> list[str]:
    """What is wrong with a node's links, for its problems. numbers: of the GPUs; mig: those in MIG mode, which shows
    no NVLink; active: links of each GPU that `nvlink -s` shows as up."""
    links = of_labels(labels)
    hidden = [place for place, number in enumerate(numbers) if number in mig]
    for a in hidden:
        for b in range(len(links)):
            if a != b and links[a][b] == 0:
                links[a][b] = links[b][a] = None
    names = [f"GPU{number}" for number in numbers]
    found = list(faults(links, names, "NVLink"))
    for place, number in enumerate(numbers):
        up = (active or {}).get(number)
        row = [cell for other, cell in enumerate(links[place]) if other != place]
        if up is None or not row or any(cell is None for cell in row):
            continue
        counts = [cell for cell in row if cell]
        if bool(up) != bool(counts):
            found.append(f"GPU{number}: nvlink -s shows {plural(up, 'active link')}, topo -m "
                         f"{'links to ' + plural(len(counts), 'GPU') if counts else 'no NVLink'}")
        elif counts and up not in (sum(counts), max(counts)):
            found.append(f"GPU{number}: nvlink -s shows {plural(up, 'active link')}, topo -m NV{max(counts)} to "
                         f"{plural(len(counts), 'GPU')}")
    return found


def differences(one: Matrix, other: Matrix, names: Sequence[str], sources: tuple[str, str]) -> Iterator[str]:
    """Pairs of GPUs of which two sources (topo -m, NCCL's topology file, nvlink -R) tell different counts."""
    for a in range(len(one)):
        for b in range(a):
            mine, theirs = one[a][b], other[a][b]
            if mine is not None and theirs is not None and mine != theirs:
                yield f"{names[b]} and {names[a]} have {mine} links by {sources[0]}, {theirs} by {sources[1]}"

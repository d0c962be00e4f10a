"""What is right and wrong about the switches and blocks of a topology, whatever it was read from.

below: the switches under each switch, by name. members: the nodes of each leaf or block, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAX_NAME = 64                        # longer ones are refused in topology.conf from 24.11 on [22.05, 24.11, 26.05]
MAX_NUMBER = 2 ** 64 - 1             # at the end of a name in a host list; larger ones become this one
MAX_BLOCK_LEVEL = 15                 # Slurm counts block sizes as powers of two of the base, up to this one

Below = Mapping[str, Sequence[str]]


def illegal_size(sizes: Sequence[int]) -> int | None:
    """The first of BlockSizes= that Slurm refuses: each is the first one, the base, times a power of two."""
    for size in sizes:
        if size <= 0 or size % sizes[0]:
            return size
        times = size // sizes[0]
        if times & (times - 1) or times.bit_length() - 1 > MAX_BLOCK_LEVEL:
            return size
    return None


def overflows(name: str) -> bool:
    """Whether a host list cannot hold the name: as a child of a switch it is another one, that nothing defines."""
    digits = name[len(name.rstrip("0123456789")):].lstrip("0")
    return len(digits) > 20 or int(digits or "0") > MAX_NUMBER


def undefined(below: Below) -> dict[str, tuple[str, ...]]:
    """The children of each switch that nothing defines."""
    found = {name: tuple(child for child in children if child not in below) for name, children in below.items()}
    return {name: children for name, children in found.items() if children}


def parents(below: Below) -> dict[str, tuple[str, ...]]:
    """The switches that name each switch as a child."""
    found: dict[str, list[str]] = {}
    for name, children in below.items():
        for child in dict.fromkeys(children):
            if child in below:
                found.setdefault(child, []).append(name)
    return {child: tuple(above) for child, above in found.items()}


def roots(below: Below) -> tuple[str, ...]:
    """The switches that are nobody's child."""
    children = {child for names in below.values() for child in names}
    return tuple(name for name in below if name not in children)


def levels(below: Below) -> dict[str, int]:
    """1 for a switch without switches below, one more than its highest child for others; 0 in and above a loop."""
    waiting = {name: {child for child in children if child in below} for name, children in below.items()}
    above: dict[str, list[str]] = {}
    for name, children in waiting.items():
        for child in children:
            above.setdefault(child, []).append(name)
    level = {name: 1 for name, children in waiting.items() if not children}
    ready = list(level)
    while ready:
        done = ready.pop()
        for name in above.get(done, ()):
            waiting[name].discard(done)
            if not waiting[name] and name not in level:
                level[name] = 1 + max(level[child] for child in below[name] if child in below)
                ready.append(name)
    return {name: level.get(name, 0) for name in below}


def places(members: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The leaves or blocks of each node that is in several."""
    first: dict[str, str] = {}
    several: dict[str, list[str]] = {}
    for place, nodes in members.items():
        for node in dict.fromkeys(nodes):
            if node in first:
                several.setdefault(node, [first[node]]).append(place)
            else:
                first[node] = place
    return {node: tuple(names) for node, names in several.items()}


def under(root: str, below: Below, members: Mapping[str, Sequence[str]]) -> set[str]:
    """The nodes that a switch reaches."""
    found: set[str] = set()
    seen, border = {root}, [root]
    while border:
        name = border.pop()
        found.update(members.get(name, ()))
        more = [child for child in below.get(name, ()) if child in below and child not in seen]
        seen.update(more)
        border += more
    return found

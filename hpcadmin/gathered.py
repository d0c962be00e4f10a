"""Outputs of many nodes in one text: `node01: line` of pdsh and clush, and the blocks of dshbak and `clush -b`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand, is_node_name

_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100}): ?")
_RULE = re.compile(r"-{5,80}\s*\Z")
_COUNT = re.compile(r"\s*\([0-9]{1,7}\)\s*\Z")
# What programs put before a colon at the beginning of each line, and is no node.
_PROGRAMS = frozenset({
    "slurmd", "slurmctld", "slurmdbd", "slurmstepd", "srun", "sbatch", "scontrol", "error", "warning", "info", "debug",
    "debug2", "debug3", "kernel", "fatal", "pdsh", "clush", "ssh", "mpirun", "nccl",
})
MIN_LINES = 3            # of a node at least: `lscpu` has each word before a colon once
MAX_STRAY = 0.05         # of all lines: what pdsh itself says


def may_be(line: str) -> bool:
    """Whether a text with this first line is worth a look."""
    return _PREFIX.match(line) is not None or _RULE.match(line) is not None


def by_node(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The lines of each node, at their places in the text (other places are empty); {} where it is not such a text."""
    return _prefixed(lines) or _blocks(lines)


def _prefixed(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[tuple[int, str]]] = {}
    filled = stray = 0
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        filled += 1
        match = _PREFIX.match(line)
        if match is None or not _is_node(match[1]):
            stray += 1
            if stray > 3 + MAX_STRAY * len(lines):
                return {}
        else:
            found.setdefault(match[1], []).append((number, line[match.end():]))
    if not found or stray > MAX_STRAY * filled or any(len(own) < MIN_LINES for own in found.values()):
        return {}
    return {node: _placed(own) for node, own in found.items()}


def _is_node(name: str) -> bool:
    return is_node_name(name) and name.lower() not in _PROGRAMS and not name.startswith(("slurmd-", "slurmctld-"))


def _placed(own: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    placed = [""] * (own[-1][0] + 1)
    for number, line in own:
        placed[number] = line
    return tuple(placed)


def _blocks(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Between two rules of dashes stand the nodes, below them what all of these printed."""
    starts = list(_starts(lines))
    if not starts or any(line.strip() for line in lines[:starts[0][0]]):
        return {}
    found: dict[str, list[tuple[int, str]]] = {}
    for place, (number, nodes) in enumerate(starts):
        end = starts[place + 1][0] if place + 1 < len(starts) else len(lines)
        own = [(n, lines[n]) for n in range(number + 3, end)]
        for node in nodes:
            found.setdefault(node, []).extend(own)
    return {node: _placed(own) for node, own in found.items() if own}


def _starts(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    for number in range(len(lines) - 2):
        if not (_RULE.match(lines[number]) and _RULE.match(lines[number + 2])):
            continue
        try:
            nodes = expand(_COUNT.sub("", lines[number + 1].strip()))
        except UsageError:
            continue
        yield number, nodes

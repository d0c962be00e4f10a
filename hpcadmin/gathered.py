"""Outputs of many nodes in one text: `node01: line` of pdsh and clush, `node[01-04]: line` of `clush -L`, and the
blocks of dshbak and `clush -b`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand, is_node_name

_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100}):(?: |\Z)")
_FOLDED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._,\[\]-]{0,2000}):(?: |\Z)")
_RULE = re.compile(r"-{5,80}\s*\Z")
_COUNT = re.compile(r"\s*\([0-9]{1,7}\)\s*\Z")
_DIGITS = re.compile("[0-9]+")
# What the tools themselves say, of a node or of none, and the command that was typed.
_ABOUT = re.compile(r"(?:pdsh@[^\s:]{1,100}|clush|pdsh|dshbak): |[^\n]{0,120}[$#>] ?(?:pdsh|clush)\b")
_OF_NODE = re.compile(r"(?:pdsh@[^\s:]{1,100}|clush): ([A-Za-z0-9][A-Za-z0-9._,\[\]-]{0,2000}):(?: |\Z)")
_OWN_LINES = re.compile(r" \(lines of [A-Za-z0-9._-]{1,255}\)\Z")
# What programs put before a colon at the beginning of each line, and is no node.
_PROGRAMS = frozenset({
    "slurmd", "slurmctld", "slurmdbd", "slurmstepd", "srun", "sbatch", "scontrol", "error", "warning", "info", "debug",
    "debug2", "debug3", "kernel", "fatal", "pdsh", "clush", "ssh", "mpirun", "nccl",
    "nvrm", "nvidia", "nvidia-modeset", "nvidia-uvm", "nvidia-fabricmanager", "mlx5_core", "amdgpu", "pcieport",
})
_DEVICES = re.compile(r"(?:GPU|CPU|NIC|HCA|NUMA|gpu|cpu|card|core|numa|socket|mlx[0-9]_|eth|ib|nvme|sd)[0-9\[]")
MIN_LINES = 3            # of one node at least: `lscpu` has each word before a colon once
MAX_STRAY = 0.05         # of all lines: what is of no node
FEW_LINES = 6            # of which one may be of no node, as a prompt
MAX_BEFORE = 8           # lines before the first of a node
MAX_COPIES = 2_000_000   # of lines that are of several nodes


def may_be(lines: Sequence[str]) -> bool:
    """Whether a text with these first lines is worth a look."""
    filled = [line for line in lines if line.strip()][:MAX_BEFORE]
    return any(_PREFIX.match(line) or _FOLDED.match(line) or _RULE.match(line) for line in filled)


def by_node(lines: Sequence[str]) -> dict[str, dict[int, str]]:
    """The lines of each node by their places in the text, from 0; {} where it is not such a text."""
    found = _prefixed(lines) or _blocks(lines)
    for place, line in enumerate(lines) if found else ():
        if match := _OF_NODE.match(line):
            for node in _nodes(match[1]):
                found.setdefault(node, {place: line[match.end():]})       # all that there is about it
    return found


def of_node(name: str, node: str) -> str:
    """What the text of one of them is called where its lines are counted alone."""
    return f"{name} (lines of {node})"


def without_node(name: str) -> str:
    return _OWN_LINES.sub("", name)


def placed(own: Mapping[int, str]) -> tuple[str, ...]:
    """The lines at their places; other places are empty."""
    found = [""] * (max(own, default=-1) + 1)
    for place, line in own.items():
        found[place] = line
    return tuple(found)


def series(name: str) -> str:
    """node# of node01.cluster and node02: what nodes of one kind are called."""
    return _DIGITS.sub("#", name.partition(".")[0])


# --- node01: line -------------------------------------------------------------------------------------------------


def _prefixed(lines: Sequence[str]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    filled = stray = copies = 0
    for place, line in enumerate(lines):
        if not line.strip() or _ABOUT.match(line):
            continue
        filled += 1
        nodes, rest = _split(line)
        stray += not nodes
        copies += max(len(nodes) - 1, 0)
        if stray > 3 + MAX_STRAY * len(lines) or copies > MAX_COPIES:
            return {}
        for node in nodes:
            found.setdefault(node, {})[place] = rest
    return found if stray <= max(filled >= FEW_LINES, MAX_STRAY * filled) and _are_nodes(found) else {}


def _split(line: str) -> tuple[tuple[str, ...], str]:
    """The nodes that a line is of, and the line."""
    match = _PREFIX.match(line) or _FOLDED.match(line)
    return (_nodes(match[1]), line[match.end():]) if match else ((), line)


@lru_cache(maxsize=4096)
def _nodes(name: str) -> tuple[str, ...]:
    if "[" in name or "," in name:
        try:
            return () if _DEVICES.match(name) else tuple(expand(name))
        except UsageError:
            return ()
    if name.isdigit() or name.lower() in _PROGRAMS or name.startswith(("slurmd-", "slurmctld-", "nvidia-nvswitch")):
        return ()                        # a rank, a program, a driver
    return (name,) if is_node_name(name) else ()


def _are_nodes(found: Mapping[str, Mapping[int, str]]) -> bool:
    """Each has lines enough, or is of a series (node01, node02) with one that has: a node may say but one line."""
    rich = {series(name) for name, own in found.items() if len(own) >= MIN_LINES}
    names = [name for name, own in found.items() if len(own) < MIN_LINES]
    return bool(rich) and all(series(name) in rich and _DIGITS.search(name) and not _DEVICES.match(name)
                              for name in names)


# --- blocks under their nodes -------------------------------------------------------------------------------------


def _blocks(lines: Sequence[str]) -> dict[str, dict[int, str]]:
    """Between two rules of dashes stand the nodes, below them what all of these printed."""
    starts = list(_starts(lines))
    if not starts or sum(bool(line.strip()) for line in lines[:starts[0][0]]) > MAX_BEFORE:
        return {}
    found: dict[str, dict[int, str]] = {}
    copies = 0
    for number, (start, nodes) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else len(lines)
        own = {place: lines[place] for place in range(start + 3, end) if not _ABOUT.match(lines[place])}
        copies += len(own) * len(nodes)
        if copies > MAX_COPIES:
            return {}
        for node in nodes:
            found.setdefault(node, {}).update(own)
    return {node: own for node, own in found.items() if own}


def _starts(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    for number in range(len(lines) - 2):
        if not (_RULE.match(lines[number]) and _RULE.match(lines[number + 2])):
            continue
        try:
            nodes = expand(_COUNT.sub("", lines[number + 1].strip()))
        except UsageError:
            continue
        yield number, nodes

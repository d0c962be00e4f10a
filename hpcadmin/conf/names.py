"""Node names in natural order and as a hostlist that Slurm reads: its brackets must end the name (slurm.conf(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,9})", re.DOTALL)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts node2 before node10."""
    return tuple((1, int(part), part) if part.isdigit() else (0, 0, part)
                 for part in re.split(r"([0-9]{1,15})", name) if part)


def slurm_list(names: Iterable[str]) -> str:
    """node[01-04],login1; names that do not end in a number stand by themselves."""
    runs: dict[str, list[list[str]]] = {}
    for name in sorted(set(names), key=natural):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            runs.setdefault(name, [])
            continue
        prefix, digits = match.groups()
        ranges = runs.setdefault(f"{prefix}[", [])
        if ranges and _follows(ranges[-1], digits):
            ranges[-1][1] = digits
        else:
            ranges.append([digits, digits])
    return ",".join(_written(key, ranges) for key, ranges in runs.items())


def _follows(run: list[str], digits: str) -> bool:
    """Slurm pads a range to the width of its first number."""
    padded = run[0].startswith("0") or digits.startswith("0")
    return int(digits) == int(run[1]) + 1 and (len(digits) == len(run[0]) or not padded)


def _written(key: str, ranges: list[list[str]]) -> str:
    if not ranges:
        return key
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return key[:-1] + ranges[0][0]
    return key + ",".join(a if a == b else f"{a}-{b}" for a, b in ranges) + "]"

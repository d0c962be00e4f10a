"""Hostlists, on ClusterShell's NodeSet."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from hpcadmin.errors import UsageError

# Slurm's own names are letters, digits, '-', '_' and '.'; anything else would be data in somebody's command line.
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
MAX_HOSTS = 100_000
_BRACKETS = re.compile(r"(?:\[[^\[\]]*\][^\s,\[\]]*)+")       # of one name
_RANGES = re.compile(r"\[([^\[\]]*)\]")


def is_node_name(name: str) -> bool:
    return 0 < len(name) <= 255 and name[0] not in "-." and _NAME_CHARS.issuperset(name)


def expand(hostlist: str) -> list[str]:
    """The names in a hostlist such as node[01-04,7],login1, sorted and without doubles.

    Raises UsageError on a malformed list, a name that no host may have, or more than MAX_HOSTS names.
    """
    from ClusterShell.NodeSet import (  # noqa: PLC0415  (40 ms that --help need not pay)
        RESOLVER_NOGROUP,
        NodeSet,
        NodeSetException,
    )
    if _too_many(hostlist):         # ClusterShell would make all of them first
        raise UsageError(f"hostlist {hostlist[:200]!r} has more than {MAX_HOSTS} names")
    try:
        nodes = NodeSet(hostlist, resolver=RESOLVER_NOGROUP) if hostlist.strip() else NodeSet()
        count = len(nodes)
        names = list(nodes) if count <= MAX_HOSTS else []
    except (NodeSetException, ValueError, OverflowError, AssertionError) as exc:
        raise UsageError(f"malformed hostlist {hostlist!r}: {exc}", hint="for example node[01-04,07]") from exc
    if count > MAX_HOSTS:
        raise UsageError(f"hostlist {hostlist!r} has {count} names, more than {MAX_HOSTS}")
    if not names:
        raise UsageError("empty hostlist", hint="for example node[01-04,07]")
    for name in names:
        if not is_node_name(name):
            raise UsageError(f"{name!r} in the hostlist is not a host name")
    return names


def _too_many(hostlist: str) -> bool:
    for name in _BRACKETS.findall(hostlist):
        count = 1
        for ranges in _RANGES.findall(name):
            count *= sum(_count(*part.partition("/")[::2]) for part in ranges.split(","))
        if count > MAX_HOSTS:
            return True
    return False


def _count(ends: str, step: str) -> int:
    low, dash, high = ends.partition("-")
    return max(1, (_whole(high) - _whole(low)) // max(1, _whole(step)) + 1) if dash else 1


def _whole(digits: str) -> int:
    """0 for what is no number, which ClusterShell refuses; one of many digits is large."""
    digits = digits.strip()
    return int(digits[:18]) if digits.isascii() and digits.isdigit() else 0


def fold(names: Iterable[str]) -> str:
    """The names as one folded hostlist (node[01-04]); "" for none. Names no host may have are quoted, not folded."""
    good: list[str] = []
    odd: list[str] = []
    for name in names:
        (good if is_node_name(name) else odd).append(name)
    return ",".join([part for part in [_fold(tuple(good)), *(repr(name) for name in odd)] if part])


@lru_cache(maxsize=32)                   # the same thousands of names stand before many lines
def _fold(names: tuple[str, ...]) -> str:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # noqa: PLC0415
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)) if names else ""

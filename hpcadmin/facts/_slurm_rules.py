"""What slurmd and slurmctld take in values of gres.conf and Gres=; for texts that people paste and for files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

MAX_ITEMS = 256
_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_COUNT = re.compile(r"([0-9]{1,12})([kmgtp]?)(?:i?b)?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Item:
    """One of Gres=, as slurmctld takes it (gres.c): gpu:a100:4 is 4 of type a100, gpu:a100 is one. bad: why it is
    refused, "" where it is not; types: what stands between name and count where that is not one word."""

    name: str
    type: str = ""
    count: int = 1
    bad: str = ""
    types: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def gres_wanted(text: str) -> tuple[Item, ...]:
    """Gres= of a node line; sockets in parentheses are left out, as Slurm leaves them."""
    if text.casefold() in ("", "(null)", "none"):
        return ()
    return tuple(_item(part.strip()) for part in text.split(",")[:MAX_ITEMS] if part.strip())


def _item(part: str) -> Item:
    words = part.split("(", 1)[0].split(":")
    name, rest = words[0], words[1:]
    count, bad = 1, ""
    if rest and rest[-1][:1].isdigit():
        match = _COUNT.match(rest[-1])
        if match:
            count = int(match[1]) * _SUFFIXES[match[2].lower()]
            rest = rest[:-1]
        else:
            bad = f"{rest[-1][:40]!r} is no count"
    rest = [word for word in rest if word and word != "no_consume"]
    return Item(name, rest[0] if rest else "", count, bad, tuple(rest))


class LinksFault(Enum):
    """What is wrong with Links= whatever the node has."""

    ELEMENT = "an element is empty"              # Slurm reads it as 0
    NUMBER = "not a number, or below -1"         # slurmd ignores Links=
    SELF = "not exactly one -1"                  # the same


def links_fault(text: str) -> LinksFault | None:
    parts = text.split(",")
    if any(not part for part in parts):
        return LinksFault.ELEMENT
    if any(not re.fullmatch(r"-?[0-9]{1,6}", part) or int(part) < -1 for part in parts):
        return LinksFault.NUMBER
    return LinksFault.SELF if parts.count("-1") != 1 else None


def partly(ids: frozenset[int], size: int) -> int | None:
    """The first socket of `size` cores that has some of the cores and not all; None where each is whole or empty."""
    counts: dict[int, int] = {}
    for core in ids:
        counts[core // size] = counts.get(core // size, 0) + 1
    return min((socket for socket, count in counts.items() if count != size), default=None)

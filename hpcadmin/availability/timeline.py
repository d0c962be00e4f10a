"""What a node was at each second of a period: claims of different weight, of which the heaviest counts."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import Enum
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple


class Kind(str, Enum):
    """Every second of a period is one of them. PLANNED and ABSENT are taken out of the account."""

    UP = "up"
    DOWN = "down"
    PLANNED = "planned"
    UNKNOWN = "unknown"
    ABSENT = "absent"


class Claim(NamedTuple):
    """That a node was so from `start` to before `end`. rank: of several the highest counts, then the latest."""

    start: int
    end: int
    rank: int
    kind: Kind
    why: str = ""
    by: str = ""


class Segment(NamedTuple):
    start: int
    end: int
    kind: Kind
    why: str = ""
    by: str = ""

    @property
    def seconds(self) -> int:
        return self.end - self.start


_NOTHING = (Kind.UNKNOWN, "nothing is known", "")


def timeline(start: int, end: int, claims: Iterable[Claim]) -> tuple[Segment, ...]:
    """From `start` to `end` without a gap; where nobody claims anything it is UNKNOWN. The order of claims does not
    matter."""
    inside = sorted((c for c in claims if c.start < end and c.end > start and c.start < c.end), key=itemgetter(0))
    edges = sorted({start, end, *(c.start for c in inside if c.start > start), *(c.end for c in inside if c.end < end)})
    heap: list[tuple[int, int, int, Kind, str, str]] = []
    found: list[Segment] = []
    place = 0
    for here, there in pairwise(edges):
        while place < len(inside) and inside[place].start <= here:
            c = inside[place]
            heapq.heappush(heap, (-c.rank, -c.start, -c.end, c.kind, c.why, c.by))
            place += 1
        while heap and -heap[0][2] <= here:
            heapq.heappop(heap)
        told = heap[0][3:] if heap else _NOTHING
        if found and found[-1][2:] == told:
            found[-1] = found[-1]._replace(end=there)
        else:
            found.append(Segment(here, there, *told))
    return tuple(found)

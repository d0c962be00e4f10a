"""Incidents: one time without a break in which a node was down; nodes to which the same happened are one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hpcadmin.availability.timeline import Kind, Segment

_MOST_REASONS = 3
BINS = ((300, "up to 5 min"), (3600, "5 min to 1 h"), (8 * 3600, "1 h to 8 h"), (86400, "8 h to 1 d"),
        (0, "more than 1 d"))


@dataclass(frozen=True)
class Incident:
    """goes_on: to the end of what is counted."""

    nodes: tuple[str, ...]
    start: int
    end: int
    reasons: tuple[str, ...]
    by: str = ""
    goes_on: bool = False

    @property
    def seconds(self) -> int:
        return self.end - self.start

    @property
    def node_seconds(self) -> int:
        return self.seconds * len(self.nodes)

    @property
    def reason(self) -> str:
        more = len(self.reasons) - _MOST_REASONS
        return "; ".join(self.reasons[:_MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class ByReason:
    reason: str
    incidents: int
    nodes: tuple[str, ...]
    node_seconds: int
    median: int
    longest: int


def incidents_of(nodes: Mapping[str, Iterable[Segment]], kind: Kind, end: int) -> tuple[Incident, ...]:
    """The costliest first."""
    groups: dict[tuple[int, int, tuple[str, ...], str], list[str]] = {}
    for node, segments in nodes.items():
        for run in _runs(segments, kind):
            reasons = (run[0].why,) if len(run) == 1 else tuple(dict.fromkeys(s.why for s in run))
            key = (run[0].start, run[-1].end, reasons, run[0].by)
            groups.setdefault(key, []).append(node)
    found = [Incident(tuple(of), start, until, reasons, by, until == end)
             for (start, until, reasons, by), of in groups.items()]
    return tuple(sorted(found, key=lambda i: (-i.node_seconds, i.start, i.nodes, i.reasons)))


def _runs(segments: Iterable[Segment], kind: Kind) -> Iterable[list[Segment]]:
    run: list[Segment] = []
    for s in segments:
        if s.kind is not kind:
            continue
        if run and run[-1].end != s.start:
            yield run
            run = []
        run.append(s)
    if run:
        yield run


def by_reason(incidents: Sequence[Incident]) -> list[ByReason]:
    """By the reason that each began with. An incident of several nodes is one of each of them."""
    groups: dict[str, list[Incident]] = {}
    for one in incidents:
        groups.setdefault(one.reasons[0], []).append(one)
    found = []
    for reason, of in groups.items():
        lengths = [i.seconds for i in of for _ in i.nodes]
        nodes = tuple(sorted({n for i in of for n in i.nodes}))
        found.append(ByReason(reason, len(lengths), nodes, sum(lengths), round(median(lengths)), max(lengths)))
    return sorted(found, key=lambda r: (-r.node_seconds, r.reason))


def by_length(incidents: Sequence[Incident]) -> list[tuple[str, int, int]]:
    """Of each length: how many, and their seconds."""
    counts, seconds = [0] * len(BINS), [0] * len(BINS)
    for one in incidents:
        place = next(i for i, (most, _) in enumerate(BINS) if one.seconds <= most or not most)
        counts[place] += len(one.nodes)
        seconds[place] += one.node_seconds
    return [(name, counts[i], seconds[i]) for i, (_, name) in enumerate(BINS)]

"""What of a job's stages must stay together, and pairs in rounds anew: the pieces that waves are made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.rundata import PlannedJob, PlannedTest, Stage


@dataclass(frozen=True, eq=False)
class Unit:
    """Tests that run at one time on the same nodes, or one test of a node. first: its place in the job."""

    first: int
    stage: int
    nodes: frozenset[str]
    ids: frozenset[str]
    seconds: float
    series: tuple[object, ...] = field(default=())      # rounds of one series may be made anew
    pair: bool = False
    group: bool = False
    after: bool = False                                 # is to be seen after the load


def units_of(job: PlannedJob, tests: Mapping[str, PlannedTest], usual: Mapping[str, float]) -> tuple[Unit, ...]:
    """In the order of the job's stages."""
    found: list[Unit] = []
    for number, stage in enumerate(job.stages):
        parts = [[i] for i in stage.tests] if stage.kind == "nodes" else _connected(stage, tests)
        for ids in parts:
            mine = [tests[i] for i in ids]
            nodes = frozenset(n for t in mine for n in t.subject.nodes)
            pair = stage.kind == "round" and len(nodes) == 2
            found.append(Unit(
                len(found), number, nodes, frozenset(ids), max(usual.get(t.check, 5.0) for t in mine),
                _series(mine[0]) if pair else (number,), pair, len(nodes) > 2 or (len(nodes) == 2 and not pair),
                all(t.when == "after" for t in mine)))
    return tuple(found)


def _series(test: PlannedTest) -> tuple[object, ...]:
    return (test.check, test.layout, test.rail, test.subject.device, tuple(sorted(map(str, test.params.items()))))


def _connected(stage: Stage, tests: Mapping[str, PlannedTest]) -> list[list[str]]:
    """Tests of a stage that share nodes: what runs beside a load runs with it."""
    root: dict[str, str] = {}

    def top(node: str) -> str:
        while root.setdefault(node, node) != node:
            root[node] = node = root[root[node]]
        return node
    for i in stage.tests:
        first, *others = tests[i].subject.nodes
        for other in others:
            root[top(other)] = top(first)
    parts: dict[str, list[str]] = {}
    for i in stage.tests:
        parts.setdefault(top(tests[i].subject.nodes[0]), []).append(i)
    return list(parts.values())


def series_of(units: Iterable[Unit]) -> list[list[Unit]]:
    """Neighbours of one series together, in order."""
    found: list[list[Unit]] = []
    for unit in units:
        if found and found[-1][0].series == unit.series:
            found[-1].append(unit)
        else:
            found.append([unit])
    return found


def rounds_of(series: Sequence[Unit]) -> list[list[Unit]]:
    """The pairs in rounds in which no node is twice: the plan's own, or made anew where that makes them fewer. The
    plan's own are never more than the node that has met nobody needs, so that nothing is lost by what came before."""
    own: dict[int, list[Unit]] = {}
    for unit in series:
        own.setdefault(unit.stage, []).append(unit)
    degree: dict[str, int] = {}
    for unit in series:
        for node in unit.nodes:
            degree[node] = degree.get(node, 0) + 1
    if len(own) <= max(degree.values(), default=0):
        return list(own.values())
    anew = _anew(series, degree)
    return anew if len(anew) < len(own) else list(own.values())


def _anew(series: Sequence[Unit], degree: dict[str, int]) -> list[list[Unit]]:
    """Greedily: whoever has most left is served first."""
    left, todo = list(series), dict(degree)
    found: list[list[Unit]] = []
    while left:
        used: set[str] = set()
        chosen: list[Unit] = []
        rest: list[Unit] = []
        for unit in sorted(left, key=lambda u: (-max(todo[n] for n in u.nodes), -sum(todo[n] for n in u.nodes),
                                                u.first)):
            if unit.nodes & used:
                rest.append(unit)
            else:
                used |= unit.nodes
                chosen.append(unit)
        for unit in chosen:
            for node in unit.nodes:
                todo[node] -= 1
        found.append(sorted(chosen, key=lambda u: u.first))
        left = rest
    return found


def name_of(job: PlannedJob, unit: Unit) -> str:
    """What a stage's rounds are of, without the number of its round."""
    return job.stages[unit.stage].name.partition(" round ")[0].rstrip(" ,")

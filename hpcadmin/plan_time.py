"""What a plan costs: tests, rounds, jobs, node-hours and expected time, from what past runs took. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from hpcadmin.check import Check, Layout, NodeView
from hpcadmin.rundata import Plan, PlannedTest

KEPT = 15               # runs whose medians are kept for each check on one kind of hardware
UNKNOWN = "unknown hardware"
LEAST_S, MOST_S = 0.01, 86400.0


@dataclass(frozen=True)
class Usual:
    """Seconds that a test of a check took on nodes with this hardware: the medians of past runs, the newest last.

    nodes: how many the test was over, of checks of groups; 0: any.
    """

    check: str
    hardware: str
    seconds: tuple[float, ...]
    nodes: int = 0


@dataclass(frozen=True)
class Cost:
    """What a plan asks for. known: checks whose time comes from past runs; guessed: from their own declaration."""

    tests: int
    rounds: int
    jobs: int
    nodes: int
    seconds: float
    node_hours: float
    known: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()


def hardware_of(views: Iterable[NodeView]) -> str:
    """Of most of the nodes, in a few words that stay the same as long as the hardware does."""
    counts = Counter(_words(view) for view in views)
    return min(counts, key=lambda words: (-counts[words], words), default="")


def _words(view: NodeView) -> str:
    rates = Counter(f"{p.rate_gbps:g} Gb/s {p.link_layer}".strip() for p in view.ports if p.rate_gbps is not None)
    if view.gpus is None and not view.ports:
        return UNKNOWN
    parts = [f"{view.gpus} x {view.gpu_model or 'GPU'}" if view.gpus else "no GPU",
             *(f"{count} x {rate}" for rate, count in sorted(rates.items()))]
    return ", ".join([*parts, *([f"simulated {view.simulated}"] if view.simulated else [])])


def usual_for(past: Iterable[Usual], hardware: str, nodes: int) -> dict[str, float]:
    """Check -> seconds of one test here. A check of groups took another time on another number of nodes: of several
    the nearest."""
    best: dict[str, tuple[float, Usual]] = {}
    for one in (_possible(one) for one in past):
        if one.hardware == hardware and one.seconds:
            far = abs(one.nodes - nodes) if one.nodes else 0.0
            if one.check not in best or far < best[one.check][0]:
                best[one.check] = far, one
    return {check: median(one.seconds) for check, (_, one) in best.items()}


def _possible(one: Usual) -> Usual:
    """Without what no test takes: the file may be anybody's."""
    return replace(one, seconds=tuple(s for s in one.seconds if LEAST_S <= s <= MOST_S))


class Durations:
    """How long the tests of a run took, as its outputs tell it."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], list[float]] = {}

    def add(self, test: PlannedTest, times: Iterable[tuple[float | None, float | None]], hosts: Sequence[str] = (),
            ) -> None:
        """times: start and end of each of its outputs; hosts: by whose clocks."""
        told: dict[str, list[tuple[float, float]]] = {}
        for place, (a, b) in enumerate(times):
            if a is not None and b is not None and b >= a:
                told.setdefault(hosts[place] if hosts else "", []).append((a, b))
        if not told:
            return
        took = max(max(b for _, b in own) - min(a for a, _ in own) for own in told.values())
        group = test.layout in (Layout.ALL, Layout.GROUPS, Layout.LEAVES)
        if LEAST_S <= took <= MOST_S:
            self._of.setdefault((test.check, len(test.subject.nodes) if group else 0), []).append(took)

    def so_far(self, least: int = 3) -> dict[str, float]:
        """Check -> seconds of a test, of checks that so many tests were made of; not of those of groups."""
        return {check: median(times) for (check, nodes), times in self._of.items() if not nodes and len(times) >= least}

    def folded_into(self, past: Sequence[Usual], hardware: str) -> tuple[Usual, ...]:
        """Each run counts once for a check, whatever its number of tests."""
        table = {(one.check, one.nodes, one.hardware): one for one in past}
        for (check, nodes), times in self._of.items():
            key = check, nodes, hardware
            old = table.get(key, Usual(check, hardware, (), nodes))
            table[key] = replace(old, seconds=(*old.seconds, round(median(times), 3))[-KEPT:])
        return tuple(sorted(table.values(), key=lambda one: (one.hardware, one.check, one.nodes)))


def cost_of(plan: Plan, checks: Mapping[str, Check], usual: Mapping[str, float]) -> Cost:
    own = [job for job in plan.jobs if job.kind == "own"]
    suite = [job for job in plan.jobs if job.kind != "own"]
    own_s: dict[str, float] = {}                     # the jobs of one check run at one time, those of several in turn
    check_of = {test.id: test.check for test in plan.tests if test.steps}
    for job in own:
        check = check_of.get(job.stages[0].tests[0], "")
        own_s[check] = max(own_s.get(check, 0.0), job.seconds)
    seconds = sum(job.seconds for job in suite) + sum(own_s.values())
    hours = sum(job.seconds * max(1, len(job.nodes)) for job in plan.jobs) / 3600
    used = sorted({entry.check for entry in plan.entries if entry.status is None and entry.tests and
                   entry.check in checks})
    return Cost(
        len(plan.tests), sum(stage.kind == "round" for job in suite for stage in job.stages), len(plan.jobs),
        len(plan.nodes), round(seconds, 1), round(hours, 2), tuple(c for c in used if c in usual),
        tuple(c for c in used if c not in usual))


def cost_text(cost: Cost) -> str:
    taken = (f"times from past runs for {len(cost.known)} of {len(cost.known) + len(cost.guessed)} checks" if cost.known
             else "no past run on such nodes: times as the checks declare them")
    return (f"{cost.tests:,} tests, {cost.rounds:,} rounds, {cost.jobs:,} job{'s' if cost.jobs != 1 else ''}, "
            f"{cost.node_hours:,.2f} node-hours, about {shown(cost.seconds)}; {taken}")


def shown(seconds: float) -> str:
    if seconds < 180:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 3 * 3600 else f"{seconds / 3600:.1f} h"

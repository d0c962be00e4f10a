"""The nightly look at what is only told: facts of health results, Slurm's queue. Raises nothing: unread is unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpcadmin.errors import HpcadminError
from hpcadmin.slurm.queue_look import Queue
from hpcadmin.sweep.alarms.config import Thresholds
from hpcadmin.sweep.alarms.look import Node, look
from hpcadmin.sweep.model import Look
from hpcadmin.sweep.problems import Watched
from hpcadmin.text import printable


@dataclass(frozen=True)
class Watcher:
    """queue: asks Slurm; None: it is not asked."""

    thresholds: Thresholds
    queue: Callable[[], Queue] | None

    def __call__(self, looks: Iterable[Look], now: float) -> Watched:
        notes: tuple[str, ...] = ()
        queue = None
        if self.queue is not None and (self.thresholds.pending_jobs or self.thresholds.idle_gpus_h):
            try:
                queue = self.queue()
            except HpcadminError as exc:
                notes = (f"the queue was not looked at: {printable(str(exc), limit=200)}",)
        found = look(nodes_of(looks), queue, self.thresholds, now)
        notes += tuple(f"not measured: {line}" for line in unmeasured(found.measured))
        return replace(found, notes=notes)


def unmeasured(measured: Mapping[str, str]) -> list[str]:
    """A line for each threshold of which nothing is known: it is not fine because nobody looked."""
    return [f"{name}: {printable(why, limit=200)}" for name, why in sorted(measured.items()) if why]


def nodes_of(looks: Iterable[Look]) -> dict[str, Node]:
    """Of each node the facts of its health results, and when they were."""
    facts: dict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    times: dict[str, float] = {}
    for one in looks:
        if one.check.startswith("health/") and one.facts:
            facts[one.node] += [(one.check.removeprefix("health/"), fact) for fact in one.facts]
            times[one.node] = min(one.time, times.get(one.node, one.time))
    return {name: Node(times[name], tuple(found)) for name, found in facts.items()}

"""What of a sweep's report is kept for metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.alarms.model import Facts
from hpcadmin.sweep.night import Report


def facts_of(report: Report) -> Facts:
    states, flags = counted(report.nodes)
    return Facts(report.run, report.time, states, flags, report.watched.values, report.watched.measured)


def counted(nodes: Iterable[NodeRecord]) -> tuple[dict[str, int], dict[str, int]]:
    """By state, and by flag; a node that Slurm is not clear about is in an unknown state."""
    states: Counter[str] = Counter()
    flags: Counter[str] = Counter()
    for record in nodes:
        states["UNKNOWN" if record.unclear else record.state.base] += 1
        flags.update(record.state.flags)
    return dict(sorted(states.items())), dict(sorted(flags.items()))

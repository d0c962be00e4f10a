"""What becomes of "worse than its peers" when the node is measured again with few others. Pure.

A re-test has too few nodes to know what is usual. The new value is compared with what the whole fleet had in the first
run: it must not be further from the fleet's median than peers may be.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from hpcadmin.check import Measurement, Status, Verdict
from hpcadmin.peers import MIN_DISTANCE, MIN_NODES, lower_is_better, number_problem
from hpcadmin.text import number

_BAD = (Status.FAIL, Status.ERROR, Status.UNJUDGED)


def about(v: Verdict) -> tuple[object, ...]:
    """Equal for what says the same of the same."""
    return v.check, v.subject, v.basis == "peers", _kind(v.measurement) if v.measurement else None


def _kind(m: Measurement) -> tuple[object, ...]:
    return m.name, m.unit, m.size_bytes, m.direction, m.rail, m.mode, m.nodes


def healed(accused: Verdict, fleet: Iterable[Verdict], now: Sequence[Verdict], rest: Iterable[Verdict]) -> str | None:
    """In words why the accusation holds no more; None: it does. fleet: all verdicts of the first run; now: those of
    the re-test's tests; rest: what it says without a test."""
    m, subject = accused.measurement, accused.subject
    if m is None or any(v.basis == "peers" and v.check == accused.check and v.status in _BAD
                        and set(v.subject.nodes) & set(subject.nodes) for v in rest):
        return None
    lower = lower_is_better(m)
    if lower is None:
        return None
    usual = _bests([v for v in fleet if v.check == accused.check], m, lower)
    own = set(subject.nodes)
    others = [value for (node, device), value in usual.items() if node not in own or (
        subject.device and device and device != subject.device)]
    mine = _bests([v for v in now if v.check == accused.check and own <= set(v.subject.nodes)], m, lower)
    values = [value for (node, device), value in mine.items() if node in own and subject.device in ("", device)]
    bad = any(v.check == accused.check and v.status in _BAD and own <= set(v.subject.nodes)
              and subject.device in ("", v.subject.device) for v in now if len(v.subject.nodes) <= len(own))
    if len(others) < MIN_NODES - 1 or not values or bad:
        return None
    middle = statistics.median(others)
    best = min(values) if lower else max(values)
    near = best <= middle * (1 + MIN_DISTANCE) if lower else best >= middle * (1 - MIN_DISTANCE)
    return f"{m.name} {number(best)} {m.unit}, the others had {number(middle)} {m.unit}".strip() if near else None


def _bests(verdicts: Iterable[Verdict], like: Measurement, lower: bool) -> dict[tuple[str, str], float]:
    """The best value of each node, or of each device on it."""
    found: dict[tuple[str, str], float] = {}
    for v in verdicts:
        m = v.measurement
        if m is None or v.basis == "peers" or _kind(m) != _kind(like) or number_problem(m.value) or (
                v.status not in (Status.PASS, Status.WARN)):
            continue
        value = float(m.value)
        for node in v.subject.nodes:
            known = found.get((node, v.subject.device))
            if known is None or (value < known if lower else value > known):
                found[node, v.subject.device] = value
    return found

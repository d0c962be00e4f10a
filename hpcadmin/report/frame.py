"""All values of a run as one tidy pandas table: a row a measurement, and a row a verdict that is about none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcadmin.check import Measurement, Subject, Verdict
from hpcadmin.report.summary import complete_verdicts
from hpcadmin.rundata import Run

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "run", "kind", "check", "test", "attempt", "repeats", "alone", "nodes", "node_a", "node_b", "device",
    "measurement", "value", "unit", "size_bytes", "direction", "ranks", "node_count", "pairs_at_once", "rail",
    "binding", "transport", "expected", "key", "status", "basis", "reason", "limit_min", "limit_max", "limit_unit",
    "limit_tolerance", "limit_source", "simulated", "outputs",
)


def tidy(run: Run) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (0.7 s that only reports pay)
    frame: pd.DataFrame = pd.DataFrame(rows(run), columns=list(COLUMNS), dtype=object)
    return frame


def rows(run: Run) -> list[dict[str, Any]]:
    """Measurements in the order they were made, each with its verdict if it has one; then the other verdicts."""
    tests = {t.id: t for t in run.plan.tests} if run.plan else {}
    judged: dict[tuple[str, Measurement], list[Verdict]] = {}
    others = []
    for v in complete_verdicts(run):
        if v.measurement is not None and v.test and v.basis != "peers":
            judged.setdefault((v.test, v.measurement), []).append(v)
        else:
            others.append(v)
    made = []
    for one in run.measured:
        test = tests.get(one.test)
        m = one.measurement
        row = {"run": run.manifest.run_id, "kind": "measurement", "check": one.check, "test": one.test,
               "attempt": one.attempt, "repeats": test.repeats if test else "", "alone": test.alone if test else "",
               **_subject(m.subject if m.subject.nodes or test is None else test.subject), **_measurement(m),
               "simulated": run.manifest.simulated}
        found = judged.get((one.test, m))
        if found:
            row |= _verdict(found.pop(0))
        made.append(row)
    for v in [*(v for found in judged.values() for v in found), *others]:
        made.append({"run": run.manifest.run_id, "kind": "verdict", "check": v.check, "test": v.test,
                     "attempt": v.attempt, **_subject(v.subject),
                     **(_measurement(v.measurement) if v.measurement else {}), **_verdict(v)})
    return made


def _subject(subject: Subject) -> dict[str, Any]:
    a, b = (*subject.nodes, "", "")[:2] if len(subject.nodes) < 3 else ("", "")
    return {"nodes": " ".join(subject.nodes), "node_a": a, "node_b": b, "device": subject.device}


def _measurement(m: Measurement) -> dict[str, Any]:
    return {"measurement": m.name, "value": m.value, "unit": m.unit, "size_bytes": m.size_bytes,
            "direction": m.direction.value, "ranks": m.ranks, "node_count": m.nodes, "pairs_at_once": m.pairs_at_once,
            "rail": m.rail, "binding": m.binding, "transport": m.transport, "expected": m.expected, "key": m.key}


def _verdict(v: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {"status": v.status.value, "basis": v.basis, "reason": v.reason, "simulated": v.simulated,
                             "outputs": " ".join(v.outputs)}
    if v.limit:
        found |= {"limit_min": v.limit.min, "limit_max": v.limit.max, "limit_unit": v.limit.unit,
                  "limit_tolerance": v.limit.tolerance, "limit_source": v.limit.source}
    return found

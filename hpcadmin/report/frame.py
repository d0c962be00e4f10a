"""All values of a run as one tidy pandas table: a row a measurement, and a row a verdict that is about none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hpcadmin.check import Measurement, Subject, Verdict
from hpcadmin.report.summary import complete_verdicts
from hpcadmin.rundata import Run

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "run", "kind", "check", "test", "attempt", "repeats", "alone", "nodes", "node_a", "node_b", "device",
    "measurement", "value", "unit", "size_bytes", "direction", "ranks", "node_count", "pairs_at_once", "rail",
    "binding", "transport", "mode", "run_of_output", "expected", "key", "warnings", "status", "basis", "reason",
    "limit_min", "limit_max", "limit_unit", "limit_tolerance", "limit_source", "simulated", "outputs", "run_started",
    "retest_of", "stands", "before", "before_run",
)


def tidy(run: Run) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (0.7 s that only reports pay)
    frame: pd.DataFrame = pd.DataFrame(list(rows(run)), columns=list(COLUMNS), dtype=object)
    return frame


def rows(run: Run) -> Iterator[dict[str, Any]]:
    """Measurements in the order they were made, each with its verdict if it has one; then the other verdicts. Of an
    acceptance first what stands, then what stood before and what does not count."""
    tests = {t.id: t for t in run.plan.tests} if run.plan else {}
    of = _Origins(run)
    judged: dict[tuple[str, Measurement], list[Verdict]] = {}
    others = []
    for v in complete_verdicts(run):
        if v.measurement is not None and v.test and v.basis != "peers":
            judged.setdefault((v.test, v.measurement), []).append(v)
        else:
            others.append(v)
    for one in run.measured:
        test = tests.get(one.test)
        m = one.measurement
        row = {**of.test(one.test), "kind": "measurement", "check": one.check,
               "attempt": one.attempt, "repeats": of.plain(test.repeats) if test else "",
               "alone": test.alone if test else "",
               **_subject(m.subject if m.subject.nodes or test is None else test.subject), **_measurement(m),
               "simulated": of.simulated(one.test)}
        found = judged.get((one.test, m))
        if found:
            row |= _verdict(found.pop(0), of)
        yield row
    for v in [*(v for found in judged.values() for v in found), *others]:
        yield {**of.verdict(v), "kind": "verdict", "check": v.check, "attempt": v.attempt,
               **_subject(v.subject), **(_measurement(v.measurement) if v.measurement else {}), **_verdict(v, of)}
    yield from _replaced(of)


def _replaced(of: _Origins) -> Iterator[dict[str, Any]]:
    """Results of tests that were measured again which are not what stands."""
    for one in of.again:
        for result in (r for i, r in enumerate(one.results) if i != one.stands):
            head = {**of.run(result.run), "check": one.check, "test": result.test, "stands": False}
            left = list(result.verdicts)
            for m in result.measured:
                v = next((v for v in left if v.measurement == m), None)
                if v is not None:
                    left.remove(v)
                yield {**head, "kind": "measurement", **_subject(m.subject if m.subject.nodes else one.subject),
                       **_measurement(m), **(_verdict(v, of) if v else {})}
            for v in left:
                yield {**head, "kind": "verdict", "attempt": v.attempt, **_subject(v.subject),
                       **(_measurement(v.measurement) if v.measurement else {}), **_verdict(v, of)}


class _Origins:
    """Which run a value is of, and what stood before it. The ids of tests and the outputs are those in that run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.again = run.acceptance.again if run.acceptance else ()
        self._by_test = {one.test: one for one in self.again if one.test}
        self._runs = {v: one.by for one in self.again if not one.test for v in one.results[-1].verdicts}
        self._prefixes = tuple(f"{p.run}/" for p in run.acceptance.parts[1:]) if run.acceptance else ()

    def plain(self, text: str) -> str:
        """Without the name of its run."""
        return text.partition("/")[2] if self._prefixes and text.startswith(self._prefixes) else text

    def run(self, name: str) -> dict[str, Any]:
        part = self._run.acceptance.part(name) if self._run.acceptance else None
        m = self._run.manifest
        return {"run": part.run if part else m.run_id, "run_started": part.started if part else m.started,
                "retest_of": part.retest_of if part else m.retest_of, "stands": True}

    def test(self, test: str) -> dict[str, Any]:
        acceptance, one = self._run.acceptance, self._by_test.get(test)
        head = {**self.run(acceptance.run_of(test) if acceptance else ""), "test": self.plain(test)}
        before = one.before if one else None
        if one is not None and one.by != head["run"]:           # known no more since a later run
            head |= self.run(one.by)
        return head | ({"before": before.status.value, "before_run": before.run} if before else {})

    def verdict(self, v: Verdict) -> dict[str, Any]:
        return self.test(v.test) if v.test else {**self.run(self._runs.get(v, "")), "test": ""}

    def simulated(self, test: str) -> str:
        acceptance = self._run.acceptance
        part = acceptance.part(acceptance.run_of(test)) if acceptance else None
        return part.simulated if part else self._run.manifest.simulated


def _subject(subject: Subject) -> dict[str, Any]:
    a, b = (*subject.nodes, "", "")[:2] if len(subject.nodes) < 3 else ("", "")
    return {"nodes": " ".join(subject.nodes), "node_a": a, "node_b": b, "device": subject.device}


def _measurement(m: Measurement) -> dict[str, Any]:
    return {"measurement": m.name, "value": m.value, "unit": m.unit, "size_bytes": m.size_bytes,
            "direction": m.direction.value, "ranks": m.ranks, "node_count": m.nodes, "pairs_at_once": m.pairs_at_once,
            "rail": m.rail, "binding": m.binding, "transport": m.transport, "mode": m.mode, "run_of_output": m.run,
            "expected": m.expected, "key": m.key, "warnings": "; ".join(m.warnings)}


def _verdict(v: Verdict, of: _Origins) -> dict[str, Any]:
    found: dict[str, Any] = {"status": v.status.value, "basis": v.basis, "reason": v.reason, "simulated": v.simulated,
                             "outputs": " ".join(map(of.plain, v.outputs))}
    if v.limit:
        found |= {"limit_min": v.limit.min, "limit_max": v.limit.max, "limit_unit": v.limit.unit,
                  "limit_tolerance": v.limit.tolerance, "limit_source": v.limit.source}
    return found

"""What shows that a criterion of the contract is met: the run's tests, values and coverage. Pure, and fails closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from hpcadmin import coverage
from hpcadmin.check import Direction, Measurement, Status, Subject, Verdict
from hpcadmin.handover.criteria import KINDS, Criterion
from hpcadmin.handover.texts import Msg, data, listed, msg, told
from hpcadmin.hosts import fold
from hpcadmin.judge import BY_LIMIT
from hpcadmin.peers import impossible, number_problem
from hpcadmin.report.summary import Summary
from hpcadmin.rundata import Covered, Measured, PlannedTest, Run
from hpcadmin.text import byte_size, number

_GOOD = (Status.PASS, Status.WARN)
_MISSING = (Status.ERROR, Status.NOT_RUN)
Key = tuple[Subject, str, Measurement, int]        # of a value: what it is of, its rail, all its conditions, its place


class Outcome(str, Enum):
    MET = "MET"
    WAIVED = "WAIVED"
    NOT_SHOWN = "NOT SHOWN"         # nothing bad was measured, and not enough to say that it is met
    NOT_MET = "NOT MET"

    @property
    def rank(self) -> int:
        return list(Outcome).index(self)


@dataclass(frozen=True)
class Shortfall:
    """One thing that keeps a criterion from being met. missing: it was not measured; else it was, and is bad."""

    what: str                       # "node03", "node03 GPU 5", "leaf1 - leaf2"
    text: str                       # why, in the words of the run
    missing: bool = False
    check: str = ""
    nodes: tuple[str, ...] = ()
    device: str = ""
    waiver: str = ""                # name of the one that covers it
    values: int = 1                 # that there are of it, or would be
    apart: bool = False             # of a check that shows nothing at all: no share of others makes up for it


@dataclass(frozen=True)
class Judged:
    """A criterion with what became of it. good of total values or tests; evidence: in one sentence."""

    number: str
    text: Msg
    demand: Msg                     # what was asked for, with limit and unit
    outcome: Outcome
    good: int
    total: int
    evidence: Msg
    shortfalls: tuple[Shortfall, ...] = ()
    waivers: tuple[str, ...] = ()   # names of those that it needs
    general: bool = False
    checks: tuple[str, ...] = ()


# --- facts of a run, looked up once --------------------------------------------------------------------------------

class Facts:
    def __init__(self, run: Run, summary: Summary) -> None:
        self.run = run
        self.summary = summary
        self.covered: dict[str, Covered] = {c.kind: c for c in _borne_out(run)}
        self.by_check: dict[str, list[Verdict]] = {}
        for v in summary.verdicts:
            self.by_check.setdefault(v.check, []).append(v)
        self.entries = {e.check: e for e in run.plan.entries} if run.plan else {}
        self.tests: dict[str, PlannedTest] = {t.id: t for t in run.plan.tests} if run.plan else {}
        self._measured: dict[str, list[Measured]] = {}
        for one in run.measured:
            self._measured.setdefault(one.check, []).append(one)

    def values(self, c: Criterion, check: str) -> dict[str, list[Measured]]:
        """First test -> all values, the repeated ones too."""
        found: dict[str, list[Measured]] = {}
        for one in self._measured.get(check, ()):
            if fits(c, one.measurement):
                test = self.tests.get(one.test)
                found.setdefault((test.repeats or test.id) if test else one.test, []).append(one)
        return found


def fits(c: Criterion, m: Measurement) -> bool:
    """Whether the criterion's limit is for this value."""
    return (m.name == c.measurement and m.unit == c.unit and c.size_bytes in (None, m.size_bytes)
            and c.direction in (Direction.NONE, m.direction) and c.nodes in (None, m.nodes))


def run_coverage(run: Run) -> tuple[Covered, ...]:
    """As the run has kept it, else worked out from its plan and verdicts."""
    if run.coverage or run.plan is None:
        return run.coverage
    return coverage.coverage(run.plan, run.verdicts, run.findings)


def _borne_out(run: Run) -> list[Covered]:
    """The coverage that the run has kept, as far as its plan and verdicts bear it out. One that is not there (of a
    damaged folder) is not known: what was expected may have been more than the plan has."""
    kept = run_coverage(run) if run.coverage else ()
    if run.plan is None or run.acceptance is not None:
        return list(kept)
    known = {c.kind: c for c in coverage.coverage(run.plan, run.verdicts, run.findings)}
    found = []
    for c in kept:
        own = known.get(c.kind)
        if own is not None and (own.expected - own.tested > c.expected - c.tested or own.expected > c.expected):
            note = (f"coverage.json says {c.tested} of {c.expected}, the plan and its results say {own.tested} of "
                    f"{own.expected}")
            found.append(replace(own, note=note))
        else:
            found.append(c)
    return found


# --- criteria of the contract --------------------------------------------------------------------------------------

def judge_criterion(c: Criterion, facts: Facts) -> Judged:
    if c.coverage:
        return _coverage_asked(c, facts)
    good, found = 0, list[Shortfall]()
    for check in c.checks:
        one, lacking = _measured(c, check, facts) if c.measurement else _passed(check, facts)
        if not one and all(s.missing for s in lacking):
            lacking = [replace(s, apart=True) for s in lacking]
        good, found = good + one, found + lacking
    total = good + sum(s.values for s in found)
    enough = good > 0 and is_share(good, total, c.percent) and not any(s.apart for s in found)
    outcome = Outcome.MET if enough else Outcome.NOT_SHOWN if all(s.missing for s in found) else Outcome.NOT_MET
    return Judged(c.number, data(c.text), demand(c), outcome, good, total,
                  msg("evidence_values", good=good, total=total), tuple(found), checks=c.checks)


def is_share(part: int, whole: int, percent: float) -> bool:
    """Whether so many are so many percent, as it is written: 90.04 times 100 is no whole number in a computer."""
    return part * 100 >= Fraction(repr(percent)) * whole


def demand(c: Criterion) -> Msg:
    """What it asks for."""
    if c.coverage:
        return listed(*(msg("demand_kind", kind=told(KINDS[k]), percent=number(v, 12)) for k, v in c.coverage.items()))
    names = ", ".join(c.checks)
    percent = number(c.percent, 12)
    if not c.measurement:
        return msg("demand_checks", checks=names, percent=percent)
    bounds = [f"≥ {number(c.min, 12)}"] * (c.min is not None) + [f"≤ {number(c.max, 12)}"] * (c.max is not None)
    what = " ".join(filter(None, [
        c.measurement, c.direction.value, f"@ {byte_size(c.size_bytes)}" if c.size_bytes is not None else ""]))
    over = "" if c.nodes is None else f", {c.nodes} nodes"
    return msg("demand_value", checks=names, what=f"{what}{over}", bounds=f"{', '.join(bounds)} {c.unit}".strip(),
               percent=percent)


def _no_verdict(check: str, facts: Facts) -> list[Shortfall]:
    """Why a check says nothing: it is not in the suite, does not apply, or has no result."""
    entry = facts.entries.get(check)
    reason = entry.reason if entry and entry.reason else "no result" if entry else "is not in the suite of this run"
    if entry and entry.status is not None:
        reason = f"{entry.status.value}: {reason}"
    return [Shortfall(check, reason, missing=True, check=check)]


def _passed(check: str, facts: Facts) -> tuple[int, list[Shortfall]]:
    """Tests that are good; what is bad or missing."""
    tests: dict[object, list[Verdict]] = {}
    for v in facts.by_check.get(check, ()):
        if v.status.counts:
            tests.setdefault(v.test or (v.subject, v.basis == "peers"), []).append(v)
    if not tests:
        return 0, _no_verdict(check, facts)
    found = []
    good = 0
    for verdicts in tests.values():
        bad = max(verdicts, key=lambda v: v.status.rank)
        if bad.status in _GOOD:
            good += 1
        else:
            found.append(short(bad))
    return good, found


def short(v: Verdict) -> Shortfall:
    where = str(v.subject) if len(v.subject.nodes) <= 2 else f"{fold(v.subject.nodes)} {v.subject.device}".strip()
    missing = v.status is not Status.FAIL
    text = f"{v.status.value}: {v.reason}" if v.reason else v.status.value
    return Shortfall(where or v.check, text, missing, v.check, v.subject.nodes, v.subject.device)


def _measured(c: Criterion, check: str, facts: Facts) -> tuple[int, list[Shortfall]]:
    """Values that are within the bounds; what is not, and tests that are no proof."""
    verdicts = facts.by_check.get(check, [])
    values = facts.values(c, check)
    spoiled: dict[str, Verdict] = {}
    peers: list[Verdict] = []
    for v in verdicts:
        other = v.status is Status.FAIL and v.basis not in (*BY_LIMIT, "peers")    # wrong data, wrong transport
        if v.status in _MISSING or other:
            if v.test:
                spoiled.setdefault(v.test, v)
            else:
                peers.append(v)
    tests = [t for t in facts.tests.values() if t.check == check and not t.repeats]
    if not tests and not values and not peers:
        return 0, _no_verdict(check, facts)
    good, found = 0, [short(v) for v in peers if v.status in _MISSING]
    tests = tests or [PlannedTest(name, check, v[0].measurement.subject) for name, v in values.items()]
    lacking = [t for t in tests if t.id in spoiled or t.id not in values]
    usual = _usual(tests, values) if lacking else {}
    most = max(usual.values(), default=1)
    for test in lacking:
        one = short(spoiled[test.id]) if test.id in spoiled else _no_value(c, check, test)
        found.append(replace(one, values=usual.get(len(test.subject.nodes), most)))
    for test in tests:
        of_test = values.get(test.id, []) if test.id not in spoiled else []
        if len(of_test) == 1 and _within(c, of_test[0].measurement, test.subject):       # as nearly all
            good += 1
            continue
        for (subject, rail, _, _), measured in _by_kind(test, of_test).items():
            bad = [m for m in measured if not _within(c, m, subject)]
            if len(bad) < len(measured):                    # a value is bad only if it was bad each time
                good += 1
            else:
                nodes, device = subject.nodes, subject.device or rail
                where = " - ".join(nodes) if len(nodes) == 2 else fold(nodes)
                shown = ", ".join(f"{_told(c, m)} {m.unit}".strip() for m in bad)
                found.append(Shortfall(f"{where} {device}".strip(), shown, False, check, nodes, device))
    return good, found


def _usual(tests: Sequence[PlannedTest], values: Mapping[str, Sequence[Measured]]) -> dict[int, int]:
    """How many values a test of so many nodes has: one that has none lacks all of them."""
    found: dict[int, int] = {}
    for test in tests:
        if test.id in values:
            count = len(test.subject.nodes)
            own = values[test.id]
            found[count] = max(found.get(count, 0), 1 if len(own) == 1 else len(_by_kind(test, own)))
    return found


def _by_kind(test: PlannedTest, values: Sequence[Measured]) -> dict[Key, list[Measurement]]:
    """What was measured again stands with what it repeats, and nothing else: not another size, direction or mode."""
    found: dict[Key, list[Measurement]] = {}
    places: dict[tuple[str, Measurement], int] = {}
    for one in values:
        m = one.measurement
        subject = m.subject if m.subject.nodes else test.subject
        kind = replace(m, value=0, expected=None, key=True, warnings=(), transport="", pairs_at_once=None)
        place = places[one.test, kind] = places.get((one.test, kind), -1) + 1
        found.setdefault((subject, m.rail, kind, place), []).append(m)
    return found


def _told(c: Criterion, m: Measurement) -> str:
    """With so many digits that what is too little does not look like enough."""
    text = number(m.value)
    rounded = m if number_problem(m.value) else replace(m, value=float(f"{m.value:.4g}"))
    return number(m.value, 12) if rounded is not m and _inside(c, rounded) else text


def _no_value(c: Criterion, check: str, test: PlannedTest) -> Shortfall:
    nodes = test.subject.nodes
    size = f" at {byte_size(c.size_bytes)}" if c.size_bytes is not None else ""
    return Shortfall(str(test.subject) if len(nodes) <= 2 else fold(nodes),
                     f"no {c.measurement} in {c.unit or 'no unit'}{size}", True, check, nodes, test.subject.device)


def _within(c: Criterion, m: Measurement, subject: Subject) -> bool:
    return not number_problem(m.value) and not impossible(m, subject) and _inside(c, m)


def _inside(c: Criterion, m: Measurement) -> bool:
    value = float(m.value)
    return (c.min is None or value >= c.min) and (c.max is None or value <= c.max)


def _coverage_asked(c: Criterion, facts: Facts) -> Judged:
    good, total, found, short = 0, 0, list[Shortfall](), False
    for kind, percent in c.coverage.items():
        one = facts.covered.get(KINDS[kind])
        if one is None or not one.expected or one.note:
            why = one.note if one and one.note else "none is expected" if one else "is not known"
            found.append(Shortfall(KINDS[kind], why, missing=True))
            short = True
            if one is None or not one.expected:
                total += 1
                continue
        good, total = good + one.tested, total + one.expected
        enough = is_share(one.tested, one.expected, percent)
        short = short or not enough
        if not enough:
            found += untested(one)
    evidence = msg("evidence_coverage", good=good, total=total)
    outcome = Outcome.NOT_SHOWN if short else Outcome.MET
    return Judged(c.number, data(c.text), demand(c), outcome, good, total, evidence, tuple(found))


def untested(one: Covered) -> list[Shortfall]:
    return [Shortfall(name, f"{one.kind}: {gone.reason}", True, "", *_nodes_of(one, name))
            for gone in one.not_tested for name in gone.what]


def _nodes_of(one: Covered, name: str) -> tuple[tuple[str, ...], str]:
    if one.kind == coverage.PATHS:
        return (), ""
    node, _, device = name.partition(" ")
    return (node,), device

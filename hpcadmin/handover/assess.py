"""What becomes of each criterion, and the statement over all of them. Pure, and fails closed.

A criterion is MET only when all that it asks for was measured and is good. What was not measured is not good.
A waiver takes a shortfall out of the count and stays visible: the criterion is then WAIVED, never MET. Beside the
contract's criteria four general conditions hold for every run: it has ended and its folder is whole, the hardware is
real (neither can be waived), all that was expected was tested, and nothing else in the run is bad.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hpcadmin import coverage
from hpcadmin.check import Status, Verdict
from hpcadmin.handover.criteria import KINDS, Criterion, Terms, Waiver
from hpcadmin.handover.shown import Facts, Judged, Outcome, Shortfall, fits, is_share, judge_criterion, short, untested
from hpcadmin.handover.texts import Msg, msg
from hpcadmin.report.summary import Summary
from hpcadmin.rundata import Run


class Word(str, Enum):
    ACCEPTED = "ACCEPTED"
    WITH_WAIVERS = "ACCEPTED WITH WAIVERS"
    NOT_ACCEPTED = "NOT ACCEPTED"


@dataclass(frozen=True)
class WaiverRow:
    waiver: Waiver
    state: str                      # used, unused, expired, not yet
    days_left: int
    covers: int                     # shortfalls


@dataclass(frozen=True)
class Statement:
    word: Word
    reasons: tuple[Msg, ...]
    criteria: tuple[Judged, ...]
    waivers: tuple[WaiverRow, ...]
    contract: bool                  # whether there are criteria of a contract

    @property
    def met(self) -> int:
        return sum(c.outcome is Outcome.MET for c in self.criteria)


def assess(run: Run, summary: Summary, terms: Terms, today: datetime.date) -> Statement:
    facts = Facts(run, summary)
    judged = [judge_criterion(c, facts) for c in terms.criteria]
    asked = {KINDS[kind] for c in terms.criteria for kind in c.coverage}
    judged += [_whole(run, summary), _real(summary), _covered_all(facts, asked), _nothing_else(facts, terms.criteria)]
    valid = [w for w in terms.waivers if w.counts(today)]
    settled = [_settle(j, valid, _percent(j, terms.criteria)) for j in judged]
    used = {name for j in settled for name in j.waivers}
    rows = tuple(_waiver_row(w, today, used, settled) for w in terms.waivers)
    word = (Word.ACCEPTED if all(j.outcome is Outcome.MET for j in settled)
            else Word.WITH_WAIVERS if all(j.outcome in (Outcome.MET, Outcome.WAIVED) for j in settled)
            else Word.NOT_ACCEPTED)
    return Statement(word, _reasons(settled, rows, bool(terms.criteria)), tuple(settled), rows, bool(terms.criteria))


def _reasons(settled: Sequence[Judged], rows: Sequence[WaiverRow], contract: bool) -> tuple[Msg, ...]:
    reasons = []
    for outcome, key in ((Outcome.NOT_MET, "reason_not_met"), (Outcome.NOT_SHOWN, "reason_not_shown"),
                         (Outcome.WAIVED, "reason_waived")):
        found = [j.number for j in settled if j.outcome is outcome]
        if found:
            reasons.append(msg(key, count=len(found), numbers=", ".join(found)))
    expired = [r.waiver.name for r in rows if r.state == "expired"]
    if expired:
        reasons.append(msg("reason_expired", count=len(expired), names=", ".join(expired)))
    if not contract:
        reasons.append(msg("reason_no_contract"))
    if not reasons:
        reasons.append(msg("reason_all_met", count=len(settled)))
    return tuple(reasons)


# --- general conditions --------------------------------------------------------------------------------------------

def _general(number_: str, found: Sequence[Shortfall], good: int, total: int, evidence: Msg) -> Judged:
    bad = any(not s.missing for s in found)
    outcome = Outcome.NOT_MET if bad else Outcome.NOT_SHOWN if found or not good else Outcome.MET
    return Judged(number_, msg(f"general_{number_}"), msg(f"general_{number_}_demand"), outcome, good, total, evidence,
                  tuple(found), general=True)


def _whole(run: Run, summary: Summary) -> Judged:
    found = [Shortfall("run", p) for p in summary.problems]
    if run.manifest.state != "complete":
        found.append(Shortfall("run", f"its state is {run.manifest.state!r}, not 'complete'"))
    if run.plan is None and not summary.problems:
        found.append(Shortfall("run", "it has no plan"))
    return _general("G1", found, int(not found), 1, msg("evidence_whole", count=len(found)))


def _real(summary: Summary) -> Judged:
    found = [Shortfall("hardware", f"simulated: {summary.simulated}")] if summary.simulated else []
    return _general("G2", found, int(not found), 1, msg("evidence_simulated" if found else "evidence_real"))


def _covered_all(facts: Facts, asked: Iterable[str]) -> Judged:
    """Of the kinds that no criterion gives a percentage for, all; what is not known is not covered."""
    good, total, found = 0, 0, list[Shortfall]()
    for kind, one in facts.covered.items():
        if kind in asked:
            continue
        good, total = good + one.tested, total + one.expected
        found += untested(one)
        if one.note and kind != coverage.PATHS:            # switches are not known everywhere; a contract may ask
            found.append(Shortfall(kind, one.note, missing=True))
    unknown = [kind for kind in KINDS.values() if kind not in facts.covered and kind not in asked]
    found += [Shortfall(kind, "is not known", missing=True) for kind in unknown]
    if not unknown and not total and coverage.NODES in asked:
        return _general("G3", found, 1, 1, msg("evidence_coverage_asked"))
    return _general("G3", found, good, total, msg("evidence_coverage", good=good, total=total))


def _nothing_else(facts: Facts, criteria: Sequence[Criterion]) -> Judged:
    """Every test of the run. What has no limit is missing, unless a criterion has one for it."""
    own: dict[str, list[Criterion]] = {}
    for c in criteria:
        for check in c.checks if c.measurement else ():
            own.setdefault(check, []).append(c)
    tests: dict[object, Verdict] = {}
    for v in facts.summary.verdicts:
        if v.status.counts:
            key = v.test or (v.check, v.subject, v.basis == "peers")
            kept = tests.get(key)
            if kept is None or _weight(v, own) > _weight(kept, own):
                tests[key] = v
    bad = [v for v in tests.values() if _weight(v, own) > Status.WARN.rank]
    good = len(tests) - len(bad)
    evidence = msg("evidence_values", good=good, total=len(tests))
    return _general("G4", [short(v) for v in bad], good, len(tests), evidence)


def _weight(v: Verdict, own: Mapping[str, Sequence[Criterion]]) -> int:
    m = v.measurement
    if v.status is Status.UNJUDGED and m is not None and any(fits(c, m) for c in own.get(v.check, ())):
        return Status.PASS.rank
    return v.status.rank


# --- waivers -------------------------------------------------------------------------------------------------------

_NEVER = ("G1", "G2")


def _percent(j: Judged, criteria: Sequence[Criterion]) -> float:
    return next((c.percent for c in criteria if c.number == j.number and not j.general), 100.0)


def _settle(j: Judged, waivers: Sequence[Waiver], percent: float) -> Judged:
    """The criterion with each shortfall's waiver; WAIVED where those are enough."""
    if j.outcome is Outcome.MET or (j.general and j.number in _NEVER):
        return j
    found = tuple(_covered_by(s, j, waivers) for s in j.shortfalls)
    names = tuple(dict.fromkeys(s.waiver for s in found if s.waiver))
    open_ = sum(s.values for s in found if not s.waiver)
    coverage_asked = j.evidence.key == "evidence_coverage"
    enough = open_ == 0 or (not coverage_asked and is_share(j.total - open_, j.total, percent)
                            and not any(s.apart and not s.waiver for s in found))
    outcome = Outcome.WAIVED if found and names and enough else j.outcome
    return Judged(j.number, j.text, j.demand, outcome, j.good, j.total, j.evidence, found, names, j.general, j.checks)


def _covered_by(s: Shortfall, j: Judged, waivers: Sequence[Waiver]) -> Shortfall:
    name = next((w.name for w in waivers if _covers(w, s, j)), "")
    return replace(s, waiver=name) if name else s


def _covers(w: Waiver, s: Shortfall, j: Judged) -> bool:
    """Of a pair it is enough that one of its nodes is waived: a bad node spoils its pairs. Of a group all must be."""
    if w.criterion and w.criterion != j.number:
        return False
    if w.check and w.check != s.check:
        return False
    if w.nodes and not (set(w.nodes) & set(s.nodes) if len(s.nodes) <= 2 else set(s.nodes) <= set(w.nodes)):
        return False
    return not w.device or w.device == s.device


def _waiver_row(w: Waiver, today: datetime.date, used: set[str], settled: Sequence[Judged]) -> WaiverRow:
    state = ("expired" if today > w.until else "not_yet" if not w.counts(today)
             else "used" if w.name in used else "unused")
    covers = sum(s.waiver == w.name for j in settled for s in j.shortfalls)
    return WaiverRow(w, state, (w.until - today).days, covers)


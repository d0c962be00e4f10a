"""What every form of a report says, worked out once: overall result, checks, nodes, and what is missing."""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.check import Limit, Measurement, Scope, Status, Subject, Verdict
from hpcadmin.peers import lower_is_better, number_problem
from hpcadmin.rundata import Finding, Run, exit_status
from hpcadmin.text import byte_size, number, plural, told_words

_NOT_TESTED = " not tested"
_STATES = {
    "complete": "", "interrupted": "the run was interrupted", "cancelled": "the run was cancelled",
    "failed": "the run could not be carried through",
    "running": "the run has not ended, or was killed",
}


@dataclass(frozen=True)
class Values:
    """One measurement of a check over all its subjects."""

    name: str
    unit: str
    values: tuple[float, ...]
    median: float
    worst: float
    best: float
    limits: tuple[Limit, ...]

    def text(self) -> str:
        if len(self.values) == 1:
            return f"{self.name} {number(self.median)} {self.unit}".rstrip()
        return (f"{self.name}: median {number(self.median)}, worst {number(self.worst)}, "
                f"best {number(self.best)} {self.unit}").rstrip()


@dataclass(frozen=True)
class CheckRow:
    check: str
    title: str
    scope: Scope | None
    status: Status
    reason: str
    counts: dict[Status, int]              # tests by their worst verdict
    values: tuple[Values, ...]
    by_peers: int = 0                      # nodes that only their peers accuse
    as_expected: int = 0                   # values that are equal to what was expected of them

    @property
    def tests(self) -> int:
        return sum(self.counts.values())

    @property
    def passed(self) -> int:
        return self.counts.get(Status.PASS, 0) + self.counts.get(Status.WARN, 0)


@dataclass(frozen=True)
class NodeRow:
    node: str
    status: Status
    tests: int
    passed: int
    why: str = ""


@dataclass(frozen=True)
class Summary:
    status: int                            # exit status that the run deserves
    word: str                              # PASSED, FAILED, INCOMPLETE
    text: str                              # the word and why, in one line
    verdicts: tuple[Verdict, ...]          # with NOT RUN for whatever was planned and has none
    findings: tuple[Finding, ...]
    checks: tuple[CheckRow, ...]
    nodes: tuple[NodeRow, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    simulated: str
    counts: dict[Status, int] = field(default_factory=dict)

    @property
    def culprits(self) -> dict[str, str]:
        """Test -> the one node that a finding blames for it."""
        return {t: f.nodes[0] for f in self.findings if len(f.nodes) == 1 for t in f.tests}


_made: dict[int, Summary] = {}       # of runs that are still in use, by identity: a report asks more than once


def summarise(run: Run) -> Summary:
    found = _made.get(id(run))
    if found is None:
        found = _made[id(run)] = _summarise(run)
        weakref.finalize(run, _made.pop, id(run), None)
    return found


def _summarise(run: Run) -> Summary:
    verdicts = complete_verdicts(run)
    problems = list(run.problems)
    state = _STATES.get(run.manifest.state, f"the run's state is unknown ({run.manifest.state!r})")
    finished = not state and not problems and run.plan is not None
    status = exit_status(verdicts, finished=finished)
    by_content = exit_status(verdicts, finished=run.plan is not None)      # 3 for its problems alone is told by these
    if not state and run.manifest.exit_status is not None and run.manifest.exit_status not in (status, by_content):
        problems.append(f"the manifest says exit status {run.manifest.exit_status}, the folder's content {status}")
        status = status or 3
    checks = _checks(run, verdicts)
    counts: dict[Status, int] = {}
    for row in checks:
        for key, count in row.counts.items():
            counts[key] = counts.get(key, 0) + count
    simulated = ", ".join(dict.fromkeys(s for s in [run.manifest.simulated,
                                                    run.inventory.simulated if run.inventory else "",
                                                    *sorted({v.simulated for v in verdicts})] if s))
    word = {0: "PASSED", 1: "FAILED", 3: "INCOMPLETE"}[status]
    return Summary(
        status=status, word=word, text=_overall(word, counts, len(run.findings), state, problems), verdicts=verdicts,
        findings=tuple(sorted(run.findings, key=lambda f: -f.status.rank)), checks=checks,
        nodes=_nodes(run, verdicts), problems=tuple(problems), notes=_notes(run, simulated), simulated=simulated,
        counts=counts)


def _overall(word: str, counts: dict[Status, int], findings: int, state: str, problems: Sequence[str]) -> str:
    total = sum(counts.values())
    passed = counts.get(Status.PASS, 0) + counts.get(Status.WARN, 0)
    parts = [f"{passed} of {plural(total, 'test')} passed" if total else "nothing was tested"]
    for status, noun in ((Status.FAIL, "failed"), (Status.ERROR, "could not be measured"), (Status.NOT_RUN, "not run"),
                         (Status.UNJUDGED, "not judged")):
        if counts.get(status):
            parts.append(f"{counts[status]} {noun}")
    if counts.get(Status.WARN):
        parts.append(plural(counts[Status.WARN], "warning"))
    if findings:
        parts.append(plural(findings, "finding"))
    if state:
        parts.append(state)
    if problems:
        parts.append(f"the run folder has {plural(len(problems), 'problem')}")
    return f"{word}: {', '.join(parts)}"


def _notes(run: Run, simulated: str) -> tuple[str, ...]:
    notes = [f"simulated hardware: {simulated}"] if simulated else []
    found = dict.fromkeys([*notes, *run.manifest.notes, *(run.plan.notes if run.plan else ())])
    causes: dict[str, list[str]] = {}
    for note in found:              # one note for all that a cluster without GPUs is not tested with
        cause, _, what = note.removesuffix(_NOT_TESTED).rpartition(": ")
        causes.setdefault(cause if cause and note.endswith(_NOT_TESTED) else note, []).append(what)
    return tuple(cause if cause in found else f"{cause}: {', '.join(what)}{_NOT_TESTED}"
                 for cause, what in causes.items())


def complete_verdicts(run: Run) -> tuple[Verdict, ...]:
    """The run's verdicts, and a NOT RUN for everything that was planned or asked for and has none."""
    found = list(run.verdicts)
    plan = run.plan
    if plan is None:
        return tuple(found)
    alike = {(v.check, v.status) for v in plan.verdicts}
    have = {v for v in found if (v.check, v.status) in alike} if alike else set()
    found += [v for v in plan.verdicts if v not in have]
    tests = {v.test for v in found if v.test}
    for test in plan.tests:
        if not test.repeats and test.id not in tests:
            found.append(_not_run(test.check, test.subject, "no result", test.id))
    checks = {v.check for v in found}
    for entry in plan.entries:
        if entry.check not in checks and entry.status in (None, Status.NOT_RUN):
            found.append(_not_run(entry.check, Subject(), entry.reason or "planned, and has no test"))
    named = {v.subject.nodes[0] for v in found if v.status is Status.NOT_RUN and len(v.subject.nodes) == 1}
    for skipped in plan.skipped:
        if skipped.node not in named:
            found.append(_not_run("", Subject((skipped.node,)), skipped.reason))
    planned = {*plan.nodes, *(s.node for s in plan.skipped), *(n for v in found for n in v.subject.nodes)}
    found += [_not_run("", Subject((n,)), "not in the plan") for n in run.manifest.nodes if n not in planned]
    return tuple(found)


def _not_run(check: str, subject: Subject, reason: str, test: str = "") -> Verdict:
    return Verdict(check=check, subject=subject, status=Status.NOT_RUN, reason=reason, test=test, basis="plan")


def worst(statuses: Iterable[Status], default: Status = Status.NOT_RUN) -> Status:
    return max(statuses, key=lambda s: s.rank, default=default)


def _keep_worst(found: dict[object, Status], key: object, status: Status) -> None:
    before = found.get(key)
    if before is None or status.rank > before.rank:
        found[key] = status


def _checks(run: Run, verdicts: Sequence[Verdict]) -> tuple[CheckRow, ...]:
    by_check: dict[str, list[Verdict]] = {e.check: [] for e in run.plan.entries} if run.plan else {}
    for v in verdicts:
        by_check.setdefault(v.check, []).append(v)
    entries = {e.check: e for e in run.plan.entries} if run.plan else {}
    rows = []
    for check, found in by_check.items():
        if not check and not found:
            continue
        entry = entries.get(check)
        tests: dict[object, Status] = {}
        for v in found:
            key = v.test or (None if v.basis == "peers" else v.subject)
            if key is not None and v.status.counts:
                _keep_worst(tests, key, v.status)
        counts: dict[Status, int] = {}
        for status in tests.values():
            counts[status] = counts.get(status, 0) + 1
        peers = {v.subject.nodes for v in found if v.basis == "peers" and v.status is Status.FAIL}
        status = worst((v.status for v in found), entry.status or Status.NOT_RUN if entry else Status.NOT_RUN)
        reason = entry.reason if entry and entry.reason else next(
            (v.reason for v in found if v.status is status), "") if status is not Status.PASS else ""
        rows.append(CheckRow(check or "(whole node)", entry.title if entry else "", entry.scope if entry else None,
                             status, reason, counts, _values(found), len(peers),
                             sum(v.basis == "expected" and v.status is Status.PASS for v in found)))
    return tuple(sorted(rows, key=lambda r: -r.status.rank))


def _values(verdicts: Sequence[Verdict]) -> tuple[Values, ...]:
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for v in verdicts:
        m = v.measurement
        if m is not None and m.expected is None and v.basis != "peers" and not number_problem(m.value):
            groups.setdefault((measurement_name(m), m.unit), []).append(v)
    rows = []
    for (name, unit), found in groups.items():
        measured = [v.measurement for v in found if v.measurement]
        values = tuple(float(m.value) for m in measured)
        lower = lower_is_better(measured[0])
        if lower is None:
            lower = any(v.limit and v.limit.max is not None and v.limit.min is None for v in found)
        limits = tuple(dict.fromkeys(v.limit for v in found if v.limit))
        ordered = sorted(values, reverse=not lower)
        rows.append(Values(name, unit, values, statistics.median(values), ordered[-1], ordered[0], limits))
    return tuple(rows)


def measurement_name(m: Measurement) -> str:
    """"bandwidth at 256 KiB", "both-way bandwidth on mlx5_0", "busbw at 8 GiB over 16 nodes", "… in GPU memory": what
    must not be compared has different names."""
    parts = [f"{m.direction.value} {m.name}" if m.direction.value == "both" else m.name]
    if m.size_bytes is not None:
        parts.append(f"at {byte_size(m.size_bytes)}")
    if m.rail:
        parts.append(f"on rail {m.rail}")
    if "GPU memory" in m.binding or m.binding.endswith("DEVICE"):
        parts.append("in GPU memory")
    if m.size_bytes is not None and m.nodes is not None and (m.nodes != 2 or (m.ranks or 2) > 2):
        parts.append("within a node" if m.nodes == 1 else f"over {m.nodes} nodes")
    return " ".join(parts)


def shown(m: Measurement) -> str:
    """"bandwidth at 256 KiB 870 MB/s"."""
    return f"{measurement_name(m)} {number(m.value)} {m.unit}".rstrip()


def verdict_text(v: Verdict) -> str:
    """The reason, else the value with what it was judged by."""
    m = v.measurement
    if v.reason or m is None:
        return v.reason
    expected = ", as expected" if v.basis == "expected" else ""
    return shown(m) + expected


def _nodes(run: Run, verdicts: Sequence[Verdict]) -> tuple[NodeRow, ...]:
    """Each node's result: bad if a finding names it or a bad verdict about it is in no finding at all; what failed
    because of another node is said, and not held against it."""
    names = list(dict.fromkeys([*run.manifest.nodes, *(run.plan.nodes if run.plan else ())]))
    about: dict[str, list[Verdict]] = {n: [] for n in names}
    for v in verdicts:
        for n in v.subject.nodes:
            about.setdefault(n, []).append(v)
    named: dict[str, list[Finding]] = {}
    explained: dict[str, list[Finding]] = {}
    for finding in run.findings:
        for n in finding.nodes:
            named.setdefault(n, []).append(finding)
        for test in finding.tests:
            explained.setdefault(test, []).append(finding)
    return tuple(_node(n, about[n], named, explained) for n in sorted(about))


def _causes(v: Verdict, node: str, by_node: Mapping[str, list[Finding]],
            explained: Mapping[str, list[Finding]]) -> Sequence[Finding]:
    """What a finding says of this test; of a pair that its peers accuse, which is no test, what names the partner."""
    if v.test or len(v.subject.nodes) != 2:
        return explained.get(v.test, ())
    return [f for n in v.subject.nodes if n != node for f in by_node.get(n, ()) if v.check in f.checks]


def _node(node: str, verdicts: Sequence[Verdict], by_node: Mapping[str, list[Finding]],
          explained: Mapping[str, list[Finding]]) -> NodeRow:
    named = by_node.get(node, [])
    tests: dict[object, Status] = {}
    statuses, others, reasons, absent = [f.status for f in named], [], [], []
    for v in verdicts:
        key = v.test or (v.check, v.subject, v.basis)
        if v.status.counts and v.basis != "peers":
            _keep_worst(tests, key, v.status)
        causes = _causes(v, node, by_node, explained) if v.status in (Status.FAIL, Status.ERROR) else ()
        if causes and all(node not in f.nodes for f in causes):
            others += [n for f in causes for n in f.nodes]
            continue
        gone = [n for n in v.subject.nodes if n in told_words(v.reason)] if v.status is Status.NOT_RUN else []
        if gone and node not in gone:
            absent += gone
            continue
        statuses.append(v.status)
        if v.status is Status.UNJUDGED and not named:
            reasons.append(f"{v.check}: not judged")
        elif v.status in (Status.NOT_RUN, Status.ERROR) and not named:
            reasons.append(f"{v.check}: {v.reason}" if v.check else v.reason)
    why = []
    if named:
        why.append("named by a finding" if any(len(f.nodes) == 1 for f in named) else "one of those a finding names")
    why += list(dict.fromkeys(reasons))[:2]
    if others:
        why.append(f"failed only with {', '.join(dict.fromkeys(others))}" if len(set(others)) < 4
                   else f"failed only with {len(set(others))} nodes that are named")
    if absent:
        why.append(f"not tested with {', '.join(dict.fromkeys(absent))}" if len(set(absent)) < 4
                   else f"not tested with {len(set(absent))} nodes")
    counting = [s for s in statuses if s.counts] or [Status.NOT_RUN] * bool(absent)
    passed = sum(s in (Status.PASS, Status.WARN) for s in tests.values())
    return NodeRow(node, worst(counting), len(tests), passed, "; ".join(why) or ("" if counting else "no test"))

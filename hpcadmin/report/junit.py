"""JUnit XML, as Jenkins, GitLab and others read it: a suite a check, a case a test. What is not known to be good is
never green: FAIL is a failure; ERROR, NOT RUN and UNJUDGED are errors of that type; what counts for nothing is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from hpcadmin.check import Status, Subject, Verdict
from hpcadmin.hosts import fold
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.durations import seconds_of_tests
from hpcadmin.report.summary import Summary, measurement_name, summarise, verdict_text, worst
from hpcadmin.report.times import parse_time
from hpcadmin.rundata import Run
from hpcadmin.text import plural, printable

_MOST_CHARACTERS = 1000
_MOST_LINES = 2000                                          # of values in one case
_FORBIDDEN = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")      # printable() has escaped what else XML 1.0 forbids
_ERRORS = (Status.ERROR, Status.NOT_RUN, Status.UNJUDGED)
_KINDS = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    summary = summarise(run)
    report = _Report(run, summary, seconds_of_tests(run), {t.id: t.subject for t in run.plan.tests} if run.plan else {},
                     before_lines(run))
    suites = [report.whole(), *report.suites()]
    sums = {kind: str(sum(int(suite.get(kind, "0")) for suite in suites))
            for kind in ("tests", *(kind for kind, _ in _KINDS)) if kind != "skipped"}
    root = Element("testsuites", {"name": _clean(f"hpcadmin {run.manifest.suite}"), **sums, **report.time()})
    root.extend(suites)
    indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


FORMAT = ReportFormat("junit", ".xml", render, values=False)


@dataclass(frozen=True)
class _Report:
    run: Run
    summary: Summary
    seconds: dict[str, float]
    subjects: dict[str, Subject]
    before: dict[str, list[str]]        # what other runs of the acceptance have found for a test

    def time(self) -> dict[str, str]:
        """Of the whole run, which has many tests at one time."""
        start, end = parse_time(self.run.manifest.started), parse_time(self.run.manifest.ended)
        if start is None or end is None or (start.tzinfo is None) != (end.tzinfo is None) or end < start:
            return {}
        return {"time": f"{(end - start).total_seconds():.3f}"}

    def whole(self) -> Element:
        """A run that did not end, is damaged, or tested nothing must not look good."""
        m, summary = self.run.manifest, self.summary
        reasons = [*([] if m.state == "complete" else [f"the run's state is {m.state!r}"]), *summary.problems]
        if not reasons and summary.status and not any(
                v.status is Status.FAIL or v.status in _ERRORS for v in summary.verdicts):
            reasons.append(summary.text)
        case = self.element("run", "the run is whole", Status.ERROR if reasons else Status.PASS, "; ".join(reasons))
        SubElement(case, "system-out").text = _clean("\n".join([summary.text, *summary.notes]), limit=20_000)
        suite = self.suite("run", [case])
        properties = Element("properties")
        for name, value in (("run", m.run_id), ("suite", m.suite), ("cluster", m.cluster), ("started", m.started),
                            ("ended", m.ended), ("result", summary.word), ("exit_status", str(summary.status)),
                            ("simulated", summary.simulated), ("hpcadmin", m.version), ("slurm", m.slurm_version)):
            if value:
                SubElement(properties, "property", {"name": name, "value": _clean(value)})
        for part in self.run.acceptance.parts[1:] if self.run.acceptance else ():
            SubElement(properties, "property", {"name": "retest", "value": _clean(part.run)})
        suite.insert(0, properties)
        return suite

    def suites(self) -> Iterator[Element]:
        cases: dict[str, dict[object, list[Verdict]]] = {row.check: {} for row in self.summary.checks}
        for v in self.summary.verdicts:
            # What the peers say is about no test: a case of its own.
            key: object = v.test if v.test and v.basis != "peers" else (v.subject, v.basis)
            cases.setdefault(v.check or "(whole node)", {}).setdefault(key, []).append(v)
        rows = {row.check: row for row in self.summary.checks}
        for check, found in cases.items():
            elements = [self.case(check, verdicts) for verdicts in found.values()]
            if not elements:                # not needed, not applicable
                row = rows[check]
                elements = [self.element(check, row.title or check, row.status, row.reason)]
            yield self.suite(check, elements)

    def suite(self, name: str, cases: Sequence[Element]) -> Element:
        """timestamp: with its zone. time: the sum of those cases whose time is known."""
        m = self.run.manifest
        counts = {kind: str(sum(case.find(tag) is not None for case in cases)) for kind, tag in _KINDS}
        time = sum(float(case.get("time", "0")) for case in cases)
        suite = Element("testsuite", {"name": _clean(name), "tests": str(len(cases)), **counts,
                                          "time": f"{time:.3f}", "timestamp": _clean(m.started),
                                          "hostname": _clean(m.host or "unknown")})
        suite.extend(cases)
        return suite

    def case(self, check: str, verdicts: Sequence[Verdict]) -> Element:
        first = verdicts[0]
        peers = first.basis == "peers"
        subject = first.subject if peers else self.subjects.get(first.test, first.subject)
        where = fold(subject.nodes) if len(subject.nodes) > 2 else str(subject)
        name = " ".join(part for part in (where, f"[{first.test}]" if first.test and not peers else "",
                                          "compared with its equals" if peers else "") if part)
        status = worst(v.status for v in verdicts)
        decisive = [v for v in verdicts if v.status is status]
        texts = list(dict.fromkeys(text for v in decisive if (text := verdict_text(v))))
        more = f" (and {plural(len(texts) - 1, 'more reason')})" if len(texts) > 1 else ""
        reason = f"{texts[0]}{more}" if texts else ""
        odd = [v for v in verdicts if v.status is not Status.PASS]
        details = [*(f"{v.status.value}: {v.subject}: {verdict_text(v)}" for v in odd),
                   *(f"raw output: {ref}" for ref in dict.fromkeys(o for v in decisive for o in v.outputs))]
        case = self.element(check, name or check, status, reason, details)
        if not peers and first.test in self.seconds:
            case.set("time", f"{self.seconds[first.test]:.3f}")
        lines = [value_line(v) for v in verdicts if v.measurement is not None]
        lines += self.before.get(first.test, []) if first.test and not peers else []
        if lines:
            SubElement(case, "system-out").text = "\n".join(_first(lines))
        return case

    def element(self, check: str, name: str, status: Status, reason: str, details: Sequence[str] = ()) -> Element:
        case = Element("testcase", {"name": _clean(name),
                                        "classname": _clean(f"{self.run.manifest.suite}.{check}")})
        tag = "" if status.counts else "skipped"
        tag = "failure" if status is Status.FAIL else "error" if status in _ERRORS else tag
        if tag:
            named = {} if tag == "skipped" else {"type": status.value}
            made = SubElement(case, tag, {**named, "message": _clean(reason or status.value)})
            if details and tag != "skipped":
                made.text = "\n".join(_first([_clean(line) for line in details]))
        return case


def before_lines(run: Run) -> dict[str, list[str]]:
    """"before: FAIL in RUN: bandwidth at 256 KiB 11 MB/s", by test."""
    found: dict[str, list[str]] = {}
    for one in run.acceptance.again if run.acceptance else ():
        words = [("before" if i < one.stands else "does not count", r) for i, r in enumerate(one.results)
                 if i != one.stands]
        found[one.test] = [_clean(f"{what}: {r.status.value} in {r.run}: {r.value}" + (f" ({r.remark})" if r.remark else
                                                                                    "")) for what, r in words]
    return found


def value_line(v: Verdict) -> str:
    """"PASS: node01 - node02: bandwidth at 256 KiB: 870.25 MB/s (at least 100 MB/s, site.toml)", with all digits."""
    m = v.measurement
    if m is None:
        return ""
    limit = ", ".join(part for part in (v.limit.text(), v.limit.source) if part) if v.limit else ""
    why = limit or (f"expected {m.expected}" if m.expected is not None else "")
    value = f"{v.status.value}: {v.subject}: {measurement_name(m)}: {m.value} {m.unit}".rstrip()
    return _clean(f"{value} ({why})" if why else value)


def _first(lines: Sequence[str]) -> list[str]:
    more = [f"… and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return [*lines[:_MOST_LINES], *more]


def _clean(text: str, *, limit: int = _MOST_CHARACTERS) -> str:
    return _FORBIDDEN.sub(lambda m: f"\\u{ord(m[0]):04x}", printable(text, limit=limit, newlines=limit > 9999))

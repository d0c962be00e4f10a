"""Prometheus text exposition, for node_exporter's textfile collector or a push gateway.

No timestamps at the samples: the textfile collector refuses them; when it was measured is a value of its own
(hpcadmin_run_start_time_seconds). Values are in base units, seconds and bytes, the unit is in the name; a unit that is
not known stays a label. Only judged values, and with `everything` all that were measured; never texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.check import Measurement, Status, Subject
from hpcadmin.peers import number_problem
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.summary import Summary, summarise
from hpcadmin.report.times import parse_time
from hpcadmin.rundata import Run
from hpcadmin.text import printable

_LONGEST = 200
_STATUSES = [status for status in Status if status.counts]
# unit as tools print it -> (base unit of the name, factor)
UNITS: Mapping[str, tuple[str, float]] = {
    "B/s": ("bytes_per_second", 1), "KB/s": ("bytes_per_second", 1e3), "MB/s": ("bytes_per_second", 1e6),
    "GB/s": ("bytes_per_second", 1e9), "TB/s": ("bytes_per_second", 1e12), "KiB/s": ("bytes_per_second", 2**10),
    "MiB/s": ("bytes_per_second", 2**20), "GiB/s": ("bytes_per_second", 2**30),
    "b/s": ("bits_per_second", 1), "Kb/s": ("bits_per_second", 1e3), "Mb/s": ("bits_per_second", 1e6),
    "Gb/s": ("bits_per_second", 1e9), "Mbit/s": ("bits_per_second", 1e6), "Gbit/s": ("bits_per_second", 1e9),
    "ns": ("seconds", 1e-9), "us": ("seconds", 1e-6), "µs": ("seconds", 1e-6), "ms": ("seconds", 1e-3),
    "s": ("seconds", 1), "min": ("seconds", 60), "h": ("seconds", 3600),
    "B": ("bytes", 1), "bytes": ("bytes", 1), "KiB": ("bytes", 2**10), "MiB": ("bytes", 2**20),
    "GiB": ("bytes", 2**30), "KB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9),
    "W": ("watts", 1), "C": ("celsius", 1), "°C": ("celsius", 1), "V": ("volts", 1), "%": ("ratio", 0.01),
    "Hz": ("hertz", 1), "MHz": ("hertz", 1e6), "GHz": ("hertz", 1e9),
    "FLOPS": ("flops", 1), "GFLOPS": ("flops", 1e9), "TFLOPS": ("flops", 1e12), "GT/s": ("transfers_per_second", 1e9),
    "msg/s": ("messages_per_second", 1), "messages/s": ("messages_per_second", 1), "Mpps": ("packets_per_second", 1e6),
}


@dataclass
class _Family:
    """Samples of one name: label set -> value."""

    name: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)
    again: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)

    def add(self, value: float, labels: Mapping[str, str]) -> None:
        """A label set stands once in an exposition; what has the same as another one is numbered."""
        key = tuple((name, text) for name, text in labels.items() if text)
        number = self.again[key] = self.again.get(key, 0) + 1
        if number > 1:
            key = (*key, ("again", str(number)))
        self.samples[key] = value

    def lines(self) -> Iterator[str]:
        if self.samples:
            yield f"# HELP {self.name} {_escape(self.help, quotes=False)}"
            yield f"# TYPE {self.name} gauge"
            for labels, value in self.samples.items():
                inside = ",".join(f'{name}="{_escape(text)}"' for name, text in labels)
                yield f"{self.name}{{{inside}}} {float(value)!r}" if inside else f"{self.name} {float(value)!r}"


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    summary = summarise(run)
    families = [*_of_run(run, summary), *_of_acceptance(run, summary), *_of_checks(run, summary),
                *_of_nodes(run, summary),
                *_values(run, summary, everything=options.everything)]
    return "\n".join(line for family in families for line in family.lines()) + "\n"


FORMAT = ReportFormat("prometheus", ".prom", render)


def _escape(text: str, *, quotes: bool = True) -> str:
    """Control and direction characters as \\xNN; then backslash, quote and line end as the format says."""
    clean = printable(text, limit=_LONGEST).replace("\\", "\\\\").replace("\n", "\\n")
    return clean.replace('"', '\\"') if quotes else clean


def _common(run: Run, summary: Summary) -> dict[str, str]:
    return {"cluster": run.manifest.cluster, "suite": run.manifest.suite, "simulated": summary.simulated}


def _of_run(run: Run, summary: Summary) -> Iterable[_Family]:
    m, common = run.manifest, _common(run, summary)
    info = _Family("hpcadmin_run_info", "The run that these values are of")
    info.add(1, {**common, "run": m.run_id, "result": summary.word, "state": m.state, "version": m.version})
    yield info
    whole = _Family("hpcadmin_run_exit_status", "0 all passed, 1 something failed, 3 incomplete")
    whole.add(summary.status, common)
    yield whole
    for name, text in (("start", m.started), ("end", m.ended)):
        when = parse_time(text)
        if when is not None and when.tzinfo is not None:
            family = _Family(f"hpcadmin_run_{name}_time_seconds", f"{name.capitalize()} of the run, seconds since 1970")
            family.add(when.timestamp(), common)
            yield family
    problems = _Family("hpcadmin_run_problems", "What is missing or damaged in the run folder")
    problems.add(len(summary.problems), common)
    yield problems
    findings = _Family("hpcadmin_finding_info", "What a person must look at")
    for f in summary.findings:
        findings.add(1, {**common, "status": f.status.value, "nodes": " ".join(f.nodes), "device": f.device,
                         "text": f.text})
    yield findings


def _of_acceptance(run: Run, summary: Summary) -> Iterable[_Family]:
    common, acceptance = _common(run, summary), run.acceptance
    if acceptance is None:
        return
    info = _Family("hpcadmin_retest_info", "Runs that measured again what had failed")
    for part in acceptance.parts[1:]:
        info.add(1, {**common, "run": part.run, "retest_of": part.retest_of, "state": part.state})
    yield info
    ends = _Family("hpcadmin_retest_end_time_seconds", "End of the re-test, seconds since 1970")
    for part in acceptance.parts[1:]:
        when = parse_time(part.ended)
        if when is not None and when.tzinfo is not None:
            ends.add(when.timestamp(), {**common, "run": part.run})
    yield ends
    tests = _Family("hpcadmin_retested_tests", "Tests that were bad or measured again, by their first and last result")
    counts: dict[tuple[str, str, str], int] = {}
    for one in acceptance.again:
        key = one.check, one.results[0].status.value, one.status.value
        counts[key] = counts.get(key, 0) + 1
    for (check, before, now), count in counts.items():
        tests.add(count, {**common, "check": check, "before": before, "status": now})
    yield tests


def _of_checks(run: Run, summary: Summary) -> Iterable[_Family]:
    common = _common(run, summary)
    tests = _Family("hpcadmin_check_tests", "Tests of a check by their result")
    for row in summary.checks:
        for status in _STATUSES:
            tests.add(row.counts.get(status, 0), {**common, "check": row.check, "status": status.value})
    return [tests]


def _of_nodes(run: Run, summary: Summary) -> Iterable[_Family]:
    common = _common(run, summary)
    nodes = _Family("hpcadmin_node_status", "1 for the result that the node has, 0 for the others")
    for row in summary.nodes:
        for status in _STATUSES:
            nodes.add(row.status is status, {**common, "node": row.node, "status": status.value})
    return [nodes]


def _values(run: Run, summary: Summary, *, everything: bool) -> Iterable[_Family]:
    common = _common(run, summary)
    families: dict[str, _Family] = {}
    for check, subject, m in _measured(run, summary, everything=everything):
        if isinstance(m.value, str) or number_problem(m.value):
            continue
        unit, factor = UNITS.get(m.unit, ("", 1.0))
        name = f"hpcadmin_measured_{unit}" if unit else "hpcadmin_measured"
        family = families.setdefault(name, _Family(name, "Measured values" + (
            f", in {unit.replace('_', ' ')}" if unit else ", in the unit of the label, or a count")))
        value = float(m.value)
        family.add(value * factor if factor >= 1 else value / round(1 / factor), {
            **common, "check": check, "measurement": m.name, **_subject(subject),
            **_conditions(m), "unit": "" if unit else m.unit})
    return families.values()


def _measured(run: Run, summary: Summary, *, everything: bool,
              ) -> Iterator[tuple[str, Subject, Measurement]]:
    """Judged values; with `everything` also those that are only kept and shown, and repetitions."""
    judged: set[tuple[str, Measurement]] = set()
    for v in summary.verdicts:
        if v.measurement is not None and v.basis != "peers":
            judged.add((v.test, v.measurement))
            yield v.check, v.subject, v.measurement
    if everything:
        subjects = {t.id: t.subject for t in run.plan.tests} if run.plan else {}
        for one in run.measured:
            if (one.test, one.measurement) not in judged:
                subject = one.measurement.subject
                yield one.check, subject if subject.nodes else subjects.get(one.test, subject), one.measurement


def _subject(subject: Subject) -> dict[str, str]:
    """A node, or a pair as node and peer; of more, how many."""
    nodes: Sequence[str] = subject.nodes
    if len(nodes) > 2:
        return {"nodes": str(len(nodes)), "device": subject.device}
    return {"node": nodes[0] if nodes else "", "peer": nodes[1] if len(nodes) > 1 else "", "device": subject.device}


def _conditions(m: Measurement) -> dict[str, str]:
    return {"size_bytes": "" if m.size_bytes is None else str(m.size_bytes), "direction": m.direction.value,
            "rail": m.rail, "ranks": "" if m.ranks is None else str(m.ranks), "binding": m.binding,
            "transport": m.transport, "mode": m.mode, "run_of_output": "" if m.run is None else str(m.run)}

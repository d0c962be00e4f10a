"""The result of a run as a table for the terminal: causes first, then checks, failures and nodes, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcadmin.check import Status, Verdict
from hpcadmin.hosts import fold
from hpcadmin.peers import number_problem
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.summary import CheckRow, NodeRow, Summary, measurement_name, summarise, verdict_text
from hpcadmin.report.times import duration, local_time
from hpcadmin.rundata import Run
from hpcadmin.text import number, plural, printable

_MOST_ROWS = 20
_MOST_PAIRS = 6       # of one node that are listed one by one
_MOST_FINDINGS = 20
_LONGEST_SOURCE = 36  # of a limit; longer ones are on the page only
_MIN_WIDTH = 60
_COLOURS = {Status.FAIL: "31;1", Status.ERROR: "35;1", Status.NOT_RUN: "33", Status.UNJUDGED: "33", Status.WARN: "33",
            Status.PASS: "32"}


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008  (frozen)
    page = _Page(run, summarise(run), options)
    sections = [page.head(), page.findings(), page.checks(), page.failures(), page.nodes(), page.foot()]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


FORMAT = ReportFormat("table", ".txt", render)


class _Page:
    def __init__(self, run: Run, summary: Summary, options: Options) -> None:
        self.run = run
        self.summary = summary
        self.options = options
        self.width = max(_MIN_WIDTH, options.width)

    def paint(self, text: str, status: Status) -> str:
        code = _COLOURS.get(status) if self.options.colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        import textwrap  # noqa: PLC0415
        return textwrap.wrap(printable(text, limit=600), self.width, subsequent_indent=indent or "  ",
                             break_on_hyphens=False) or [""]

    def grid(self, rows: Sequence[Sequence[str]], headers: Sequence[str], paint: int | None = None,
             statuses: Sequence[Status] = ()) -> list[str]:
        """Rows as columns that fit the width: the last one is wrapped, the others too where they are very long."""
        from tabulate import tabulate  # noqa: PLC0415
        clean = [[printable(cell, limit=400) for cell in row] for row in rows]
        most = max(12, (self.width - 30) // 2)
        # tabulate gives a column two characters more than its head.
        natural = [max(len(head) + 2, *(min(most, len(row[i])) if i != paint else len(row[i]) for row in clean))
                   for i, head in enumerate(headers[:-1])]
        last = max(12, self.width - sum(natural) - 2 * (len(headers) - 1))
        if paint is not None:
            clean = [[self.paint(c, s) if i == paint else c for i, c in enumerate(row)]
                     for row, s in zip(clean, statuses, strict=True)]
        table = tabulate(clean, headers=list(headers), tablefmt="simple", disable_numparse=True,
                         maxcolwidths=[None if i == paint else n for i, n in enumerate(natural)] + [last])
        return [line.rstrip() for line in table.splitlines()]

    def head(self) -> list[str]:
        m = self.run.manifest
        who = " on ".join(part for part in (m.user, m.host) if part)
        versions = ", ".join(p for p in (f"hpcadmin {m.version}" if m.version else "",
                                         f"Slurm {m.slurm_version}" if m.slurm_version else "") if p)
        took = duration(m.started, m.ended)
        when = local_time(m.started) + (f", took {took}" if took else "")
        lines = self.wrapped(" · ".join(p for p in (f"Run {m.run_id}", f"suite {m.suite}",
                                                    f"cluster {m.cluster}" if m.cluster else "",
                                                    f"{plural(len(m.nodes), 'node')} {fold(m.nodes)}") if p))
        lines += self.wrapped(" · ".join(p for p in (when, who, versions) if p))
        for note in self.summary.notes:
            lines += self.wrapped(f"Note: {note}")
        for problem in self.summary.problems[:5]:
            lines += [self.paint(line, Status.ERROR) for line in self.wrapped(f"Problem: {problem}")]
        if len(self.summary.problems) > 5:
            lines.append(f"… and {plural(len(self.summary.problems) - 5, 'more problem')}")
        return lines

    def findings(self) -> list[str]:
        found = self.summary.findings
        shown = found if self.options.everything else found[:_MOST_FINDINGS]
        lines = ["Findings"] if found else []
        for f in shown:
            text = self.wrapped(f"{f.status.value:5} {f.text}", indent=" " * 6)
            lines += [self.paint(f.status.value, f.status) + text[0][len(f.status.value):], *text[1:]]
        return lines + _more(len(found) - len(shown))

    def checks(self) -> list[str]:
        rows = self.summary.checks
        if not rows:
            return []
        return ["Checks", *self.grid([[r.status.value, r.check, _passed(r), _measured(r)] for r in rows],
                                     ["result", "check", "passed", "measured"], 0, [r.status for r in rows])]

    def failures(self) -> list[str]:
        """Every verdict that is not PASS; with `everything`, every verdict."""
        wanted = [v for v in self.summary.verdicts if self.options.everything or
                  (v.status.counts and v.status is not Status.PASS) or (v.status is Status.PASS and v.reason)]
        rows = _folded(wanted, self.summary.culprits, fold_pairs=not self.options.everything)
        shown = rows if self.options.everything else rows[:_MOST_ROWS]
        if not rows:
            return []
        title = "Verdicts" if self.options.everything else "Not passed, or worth a look"
        return [title, *self.grid([[s.value, check, subject, text] for s, check, subject, text in shown],
                                  ["result", "check", "where", "what"], 0, [r[0] for r in shown]),
                *_more(len(rows) - len(shown))]

    def nodes(self) -> list[str]:
        groups: dict[tuple[Status, str, str], list[NodeRow]] = {}
        for row in self.summary.nodes:
            groups.setdefault((row.status, f"{row.passed} of {row.tests}", row.why), []).append(row)
        if not groups:
            return []
        ordered = sorted(groups.items(), key=lambda item: -item[0][0].rank)
        shown = ordered if self.options.everything else ordered[:_MOST_ROWS]
        return ["Nodes", *self.grid([[s.value, fold(r.node for r in rows), passed, why]
                                     for (s, passed, why), rows in shown],
                                    ["result", "nodes", "passed", "why"], 0, [key[0] for key, _ in shown]),
                *_more(len(ordered) - len(shown))]

    def foot(self) -> list[str]:
        status = {0: Status.PASS, 1: Status.FAIL}.get(self.summary.status, Status.ERROR)
        simulated = " (simulated hardware)" if self.summary.simulated else ""
        return [*(self.paint(line, status) for line in self.wrapped(self.summary.text + simulated)),
                printable(str(self.run.path))]


def _more(count: int) -> list[str]:
    return [f"… and {count} more, --all shows them"] if count > 0 else []


def _passed(row: CheckRow) -> str:
    return f"{row.passed} of {row.tests}" if row.tests else "-"


def _measured(row: CheckRow) -> str:
    parts = []
    for v in row.values:
        limits = "; ".join(f"{x.text()}, {x.source}" if 0 < len(x.source) <= _LONGEST_SOURCE else x.text()
                           for x in v.limits[:2])
        parts.append(f"{v.text()} ({limits})" if limits else v.text())
    if row.by_peers:
        parts.append(f"{plural(row.by_peers, 'node')} worse than the others")
    if not parts and row.as_expected and row.status is Status.PASS:
        return f"{plural(row.as_expected, 'value')} as expected"
    return "; ".join(parts) or row.reason


def _folded(verdicts: Sequence[Verdict], culprits: Mapping[str, str], *, fold_pairs: bool,
            ) -> list[tuple[Status, str, str, str]]:
    """Rows of status, check, subject and text. Nodes with the same thing to say are one row, and so are many pairs
    with the same result, those of each node to blame by themselves."""
    groups: dict[tuple[Status, str, str, str], list[str]] = {}
    alone: list[tuple[Status, str, str, str]] = []
    of_node: dict[tuple[Status, str, str, str], list[Verdict]] = {}
    for v in verdicts if fold_pairs else ():
        if len(v.subject.nodes) == 2:
            culprit = culprits.get(v.test, "")
            name = measurement_name(v.measurement) if v.measurement else ""
            key = (v.status, v.check, culprit if culprit in v.subject.nodes else "", name)
            of_node.setdefault(key, []).append(v)
    folded = {key: found for key, found in of_node.items()
              if len(found) > (1 if key[0] is Status.UNJUDGED else _MOST_PAIRS)}
    many = {v for found in folded.values() for v in found}
    alone += [_pairs_row(key, found) for key, found in folded.items()]
    for v in verdicts:
        if v in many:
            continue
        text = verdict_text(v)
        if len(v.subject.nodes) == 1:
            groups.setdefault((v.status, v.check, v.subject.device, text), []).append(v.subject.nodes[0])
        else:
            where = str(v.subject) if len(v.subject.nodes) == 2 else fold(v.subject.nodes)
            alone.append((v.status, v.check, where, text))
    rows = [(status, check, f"{fold(nodes)} {device}".strip(), text)
            for (status, check, device, text), nodes in groups.items()] + alone
    return sorted(rows, key=lambda r: (-r[0].rank, r[1], r[2]))


def _pairs_row(key: tuple[Status, str, str, str], found: Sequence[Verdict]) -> tuple[Status, str, str, str]:
    status, check, node, name = key
    partners = fold(n for v in found for n in v.subject.nodes if n != node)
    pairs = len({(frozenset(v.subject.nodes), v.test) for v in found})        # one has a value each way, or several
    where = f"{node} - {partners}" if node else f"{plural(pairs, 'pair')} of {partners}"
    values = [float(v.measurement.value) for v in found if v.measurement and not number_problem(v.measurement.value)]
    if not values:
        return status, check, where, f"{plural(pairs, 'pair')}, the first: {found[0].reason}"
    limit, m = found[0].limit, found[0].measurement
    unit = m.unit if m else ""
    count = f"{plural(pairs, 'pair')}: " if node else ""
    low, high = number(min(values)), number(max(values))
    text = f"{count}{name} {low if low == high else f'{low} to {high}'} {unit}".rstrip()
    wanted = "" if m is None or m.expected is None else f"expected {m.expected}"
    why = limit.text() if limit else "no limit known" if status is Status.UNJUDGED else wanted
    return status, check, where, f"{text}, {why}" if why else text

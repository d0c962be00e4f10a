"""XLSX: a sheet each of the summary, findings, checks, nodes, verdicts and values, to filter and sort in.

Texts are written as texts, never looked at for formulas, links or numbers; one that a spreadsheet would take for a
formula when somebody edits it is marked as a text (quote prefix). Numbers are numbers with all their digits, shown
rounded; integers of more than 15 digits, which a spreadsheet cannot hold, are texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpcadmin.acceptance_model import Acceptance
from hpcadmin.check import Status
from hpcadmin.coverage import coverage_lines
from hpcadmin.errors import UsageError
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.frame import COLUMNS, rows
from hpcadmin.report.summary import Summary, summarise
from hpcadmin.report.times import duration, local_time, parse_time
from hpcadmin.rundata import Run
from hpcadmin.text import printable
from hpcadmin.workbook import workbook

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.format import Format
    from xlsxwriter.worksheet import Worksheet

_MOST_CHARACTERS = 8000            # a cell holds 32767
_MOST_ROWS = 1_048_575             # of a sheet, below its head
_FORMULA = ("=", "+", "-", "@", "'")
_DIGITS = 10 ** 15
_COLOURS = {Status.FAIL.value: "#F8CBAD", Status.ERROR.value: "#E4C1F0", Status.NOT_RUN.value: "#FFE699",
            Status.UNJUDGED.value: "#FFE699", Status.WARN.value: "#FFF2CC", Status.PASS.value: "#E2EFDA"}
_WIDTHS = {"run": 24, "nodes": 18, "reason": 60, "measurement": 18, "limit_source": 30, "outputs": 30, "check": 18,
           "text": 100, "why": 60, "title": 40, "what": 100, "value": 14, "limits": 60, "": 14, "of the run": 24,
           "run_started": 25, "status": 11}


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    raise UsageError("xlsx is not text", hint="-o FILE.xlsx writes it to a file")


def data(run: Run, options: Options = Options()) -> bytes:  # noqa: B008
    return workbook(lambda book: _Book(book, run, summarise(run)).write())


FORMAT = ReportFormat("xlsx", ".xlsx", render, in_folder=True, data=data)


class _Book:
    def __init__(self, book: Workbook, run: Run, summary: Summary) -> None:
        self.book, self.run, self.summary = book, run, summary
        started = parse_time(run.manifest.started)
        # Of the run, not of now: the same run gives the same file.
        known = started if started and started.tzinfo else datetime(2000, 1, 1, tzinfo=timezone.utc)
        made = known.astimezone(timezone.utc).replace(tzinfo=None)
        book.set_properties({"title": printable(f"hpcadmin {run.manifest.run_id}", limit=200), "created": made})
        self.head = book.add_format({"bold": True, "bg_color": "#D9D9D9", "border": 1, "text_wrap": True})
        self.wrapped = book.add_format({"text_wrap": True, "valign": "top"})
        self.quoted = book.add_format({"quote_prefix": True})
        self.rounded = book.add_format({"num_format": "#,##0.0##"})
        self.whole = book.add_format({"num_format": "#,##0"})
        self.percent = book.add_format({"num_format": "0.0%"})
        self.statuses = {name: book.add_format({"bg_color": colour}) for name, colour in _COLOURS.items()}

    def write(self) -> None:
        summary = self.summary
        self.sheet("Summary", ("of the run", "what"), self._head())
        self.sheet("Findings", ("status", "nodes", "device", "text", "checks"), (
            (f.status.value, " ".join(f.nodes), f.device, f.text, " ".join(f.checks)) for f in summary.findings))
        if self.run.acceptance:
            self.sheet("Measured again", ("status", "check", "nodes", "before", "run before", "now", "run", "why"),
                       self._again(self.run.acceptance))
        self.sheet("Checks", ("status", "check", "title", "tests", "passed", "measurement", "unit", "count", "median",
                              "worst", "best", "limits", "reason"), self._checks())
        self.sheet("Nodes", ("status", "node", "tests", "passed", "why"), (
            (r.status.value, r.node, r.tests, r.passed, r.why)
            for r in sorted(summary.nodes, key=lambda r: -r.status.rank)))
        self.sheet("Coverage", ("what",), ((line,) for line in coverage_lines(self.run.coverage)))
        self.sheet("Values", COLUMNS, ([row.get(name) for name in COLUMNS] for row in rows(self.run)))

    def _head(self) -> Iterable[tuple[str, object]]:
        m, summary = self.run.manifest, self.summary
        yield from (("result", summary.text), ("run", m.run_id), ("suite", m.suite), ("cluster", m.cluster),
                    ("nodes", len(m.nodes)), ("started", local_time(m.started)), ("ended", local_time(m.ended)),
                    ("took", duration(m.started, m.ended)), ("user", m.user), ("host", m.host),
                    ("hpcadmin", m.version), ("Slurm", m.slurm_version), ("simulated hardware", summary.simulated),
                    ("folder", str(self.run.path)))
        if self.run.acceptance:
            yield from (("re-test", f"{p.run}, begun {local_time(p.started)}" + (f": {p.why}" if p.why else ""))
                        for p in self.run.acceptance.parts[1:])
        yield from (("note", note) for note in summary.notes)
        yield from (("problem", problem) for problem in summary.problems)

    def _again(self, acceptance: Acceptance) -> Iterable[Sequence[object]]:
        for one in sorted(acceptance.again, key=lambda one: -one.status.rank):
            before, now = one.before, one.results[one.stands]
            yield (one.status.value, one.check, str(one.subject),
                   f"{before.status.value} {before.value}" if before else "", before.run if before else "",
                   f"{now.status.value} {now.value}", now.run, one.remark)

    def _checks(self) -> Iterable[Sequence[object]]:
        for row in self.summary.checks:
            head = (row.status.value, row.check, row.title, row.tests, row.passed)
            for v in row.values:
                yield (*head, v.name, v.unit, len(v.values), v.median, v.worst, v.best,
                       "; ".join(f"{x.text()}, {x.source}" if x.source else x.text() for x in v.limits), row.reason)
            if not row.values:
                yield (*head, *[None] * 7, row.reason)

    def sheet(self, name: str, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
        """More rows than a sheet holds go on in the next one."""
        number, count = 1, 0
        sheet = self._sheet(name, columns)
        for line in lines:
            if count == _MOST_ROWS:
                self._close(sheet, count, columns)
                number, count = number + 1, 0
                sheet = self._sheet(f"{name} {number}", columns)
            count += 1
            for at, value in enumerate(line):
                self._cell(sheet, count, at, value, columns[at])
        self._close(sheet, count, columns)

    def _sheet(self, name: str, columns: Sequence[str]) -> Worksheet:
        sheet = self.book.add_worksheet(name)
        sheet.freeze_panes(1, 0)
        for at, column in enumerate(columns):
            sheet.set_column(at, at, _WIDTHS.get(column, 12))
            sheet.write_string(0, at, column, self.head)
        return sheet

    def _close(self, sheet: Worksheet, count: int, columns: Sequence[str]) -> None:
        sheet.autofilter(0, 0, max(1, count), len(columns) - 1)

    def _cell(self, sheet: Worksheet, row: int, at: int, value: Any, column: str) -> None:
        if value is None or value == "":
            return
        if isinstance(value, bool):
            sheet.write_boolean(row, at, value)
        elif isinstance(value, int) and abs(value) < _DIGITS:
            sheet.write_number(row, at, value, self.whole)
        elif isinstance(value, float) and abs(value) < 1e300:
            sheet.write_number(row, at, value, self.percent if column == "limit_tolerance" else self.rounded)
        else:
            text = printable(str(value), limit=_MOST_CHARACTERS)
            sheet.write_string(row, at, text, self._format(text, column))

    def _format(self, text: str, column: str) -> Format | None:
        if text.startswith(_FORMULA):
            return self.quoted
        return self.statuses.get(text) if column == "status" else None

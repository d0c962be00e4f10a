"""The document as Markdown, CSV, JSON, a page and a workbook; the terminal's table is the command line's."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hpcadmin.availability.account import Account, Availability, Line, percent
from hpcadmin.availability.document import Cell, Column, Document, Seconds, Share, Table, lasted
from hpcadmin.availability.incidents import Incident
from hpcadmin.availability.quarter import Quarter
from hpcadmin.availability.timeline import Kind
from hpcadmin.records import to_plain
from hpcadmin.report import csv as csv_form
from hpcadmin.report.markdown import text as markdown_text
from hpcadmin.resources import data_dir
from hpcadmin.text import printable
from hpcadmin.workbook import workbook

if TYPE_CHECKING:
    import jinja2
    from xlsxwriter import Workbook

SCHEMA = 1
FORMS = ("table", "csv", "html", "json", "markdown", "xlsx")
_MOST_CHARACTERS = 1000
_MOST_CELL = 8000
_ON_ONE_LINE = 14
_MOST_ROWS = 1000            # of a table on the page
_FORMULA = ("=", "+", "-", "@", "'")


@dataclass(frozen=True)
class Whole:
    """What the forms are made of: the account, its document, and the runs where they belong to it."""

    found: Availability
    doc: Document
    quarter: Quarter | None = None


def cell_text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, Seconds):
        return lasted(cell)
    if isinstance(cell, Share):
        return f"{percent(cell)} %"
    if isinstance(cell, Line):
        return cell.value
    return f"{cell:,}" if isinstance(cell, int) else cell


# --- Markdown -----------------------------------------------------------------------------------------------------

def markdown(whole: Whole) -> str:
    doc = whole.doc
    lines = [f"## {markdown_text(doc.word)}: {markdown_text(doc.title)}", ""]
    if doc.simulated:
        lines += [f"**Runs on simulated hardware: {markdown_text(doc.simulated)}**", ""]
    lines += [f"- {markdown_text(r, limit=_MOST_CHARACTERS)}" for r in doc.result]
    lines += ["", *_markdown_table(("", ""), doc.facts)]
    lines += [f"\n{kind}: {markdown_text(text, limit=_MOST_CHARACTERS)}" for kind, texts in (
        ("Note", doc.notes), ("Problem", doc.problems)) for text in texts]
    for section in doc.sections:
        lines += ["", f"### {markdown_text(section.title)}", ""]
        lines += [f"{markdown_text(t, limit=_MOST_CHARACTERS)}\n" for t in section.texts]
        for table in section.tables:
            rows = table.rows[:table.short]
            lines += [f"**{markdown_text(table.title)}**", "", *_markdown_table(
                [c.title for c in table.columns], [[cell_text(c) for c in row] for row in rows]), ""]
            if len(table.rows) > len(rows):
                lines += [f"… and {len(table.rows) - len(rows)} more rows", ""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(heads)
    return [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}",
            *(f"| {' | '.join(markdown_text(c) for c in row)} |" for row in rows)]


# --- CSV: a row a node, an incident, a month; times in seconds -----------------------------------------------------

_CSV = ("record", "cluster", "period", "from", "to", "nodes", "node_count", "least_percent", "most_percent", "line",
        "period_s", *(f"{kind.value}_s" for kind in Kind), "allowed_s", "incidents", "longest_s", "reason", "by",
        "goes_on")


def csv_text(whole: Whole) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV)
    for row in _csv_rows(whole):
        writer.writerow([csv_form.cell(row.get(name)) for name in _CSV])
    return stream.getvalue()


def _csv_rows(whole: Whole) -> Iterable[dict[str, Any]]:
    found, p = whole.found, whole.found.period
    head = {"cluster": found.cluster, "period": p.name}
    span = {"from": p.time(p.start), "to": p.time(p.end)}
    yield {**head, **span, "record": "cluster", **_csv_account(found.whole, found.target),
           "node_count": len(found.nodes)}
    for name, one in whole.doc.months:
        yield {**head, "period": name, "record": "month", **_csv_account(one, found.target)}
    for one in found.nodes:
        yield {**head, **span, "record": "node", "nodes": one.name, "node_count": 1,
               **_csv_account(one, found.target)}
    for record, kind, of in (("incident", Kind.DOWN, found.incidents), ("planned", Kind.PLANNED, found.planned),
                             ("unknown", Kind.UNKNOWN, found.unknown)):
        for i in of:
            yield {**head, "record": record, "from": p.time(i.start), "to": p.time(i.end), "nodes": " ".join(i.nodes),
                   "node_count": len(i.nodes), "period_s": i.seconds, f"{kind.value}_s": i.node_seconds,
                   "reason": i.reason, "by": i.by, "goes_on": "yes" if i.goes_on else "no"}


def _csv_account(one: Account, target: Fraction) -> dict[str, Any]:
    return {"least_percent": _number(one.least), "most_percent": _number(one.most), "line": one.line(target).value,
            "period_s": one.total, **{f"{kind.value}_s": one.of(kind) for kind in Kind},
            "allowed_s": one.allowed(target), "incidents": one.incidents, "longest_s": one.longest}


def _number(value: Fraction | None) -> float | None:
    """Six digits, rounded down as everywhere."""
    return None if value is None else float(percent(value, 6))


# --- JSON ----------------------------------------------------------------------------------------------------------

def json_text(whole: Whole) -> str:
    found, p, doc = whole.found, whole.found.period, whole.doc
    plain: dict[str, Any] = {
        "schema": SCHEMA, "kind": "hpcadmin-availability", "exit_status": found.status, "line": found.line.value,
        "cluster": found.cluster, "simulated": doc.simulated,
        "period": {"name": p.name, "from": p.time(p.start), "to": p.time(p.whole_end), "counted_to": p.time(p.end),
                   "over": p.over},
        "target_percent": float(found.target * 100), "facts": dict(doc.facts), "result": list(doc.result),
        "notes": list(doc.notes), "problems": list(doc.problems), "whole": _json_account(found.whole, found.target),
        "months": [{"name": name, **_json_account(one, found.target)} for name, one in doc.months],
        "nodes": [{"node": n.name, **_json_account(n, found.target)} for n in found.nodes],
        "incidents": [_json_incident(i, whole) for i in found.incidents],
        "planned": [_json_incident(i, whole) for i in found.planned],
        "unknown": [_json_incident(i, whole) for i in found.unknown]}
    if whole.quarter is not None:
        plain["runs"] = [{"run": e.name, "suite": e.suite, "started": e.started, "ended": e.ended, "nodes": e.nodes,
                          "simulated": e.simulated, "result": whole.quarter.words.get(e.name, ""),
                          "baseline": bool(e.baseline), "tags": list(e.tags)} for e in whole.quarter.runs]
        plain["changes"] = [{"suite": c.suite, "new": c.new, "old": c.old, "old_is": c.old_is, "why": c.why,
                             "exit_status": c.comparison.status if c.comparison else None,
                             "hardware": to_plain(c.comparison.hardware) if c.comparison else []}
                            for c in whole.quarter.changes]
    tables = [t for s in doc.sections for t in s.tables if t.name.startswith(("changed-", "drifts", "seen"))]
    plain["tables"] = [{"name": t.name, "title": t.title, "columns": [c.title for c in t.columns],
                        "rows": [[cell_text(c) for c in row] for row in t.rows]} for t in tables]
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def _json_account(one: Account, target: Fraction) -> dict[str, Any]:
    return {"least_percent": _number(one.least), "most_percent": _number(one.most), "line": one.line(target).value,
            "seconds": {kind.value: one.of(kind) for kind in Kind}, "period_s": one.total, "counted_s": one.counted,
            "allowed_s": one.allowed(target), "incidents": one.incidents, "longest_s": one.longest}


def _json_incident(i: Incident, whole: Whole) -> dict[str, Any]:
    p = whole.found.period
    return {"nodes": list(i.nodes), "from": p.time(i.start), "to": p.time(i.end), "seconds": i.seconds,
            "node_seconds": i.node_seconds, "reasons": list(i.reasons), "by": i.by, "goes_on": i.goes_on}


# --- a page --------------------------------------------------------------------------------------------------------

def html(whole: Whole) -> str:
    return _environment().get_template("availability.html.j2").render(
        doc=whole.doc, numeric=_numeric, line_class=_line_class, cell_class=_cell_class, bars=_bars(whole))


@functools.cache
def _environment() -> jinja2.Environment:
    """One, which keeps the template that it has compiled."""
    import jinja2  # noqa: PLC0415  (0.17 s that only pages pay)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("conf_templates")), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_clean)
    environment.filters["cell"] = cell_text
    environment.filters["css_text"] = _css_text
    environment.filters["anchor"] = lambda text: re.sub(r"[^A-Za-z0-9-]", "-", text)
    environment.filters["short"] = lambda text: text if len(text) <= 24 else f"{text[:23]}…"
    environment.globals["limit"] = _MOST_ROWS
    return environment


def _clean(value: Any) -> Any:
    """Every text on the page: no control or direction characters, bounded; jinja2 escapes it after."""
    return printable(value, limit=_MOST_CHARACTERS) if type(value) is str else value


def _css_text(text: str) -> str:
    """As the content of a CSS string, in which nothing ends the string or the style."""
    return "".join(c if c.isalnum() or c in " -_.,:()" else f"\\{ord(c):x} " for c in printable(text, limit=200))


def _numeric(column: Column) -> bool:
    return column.kind in ("number", "time", "percent")


def _line_class(value: object) -> str:
    return value.value.lower().replace(" ", "-") if isinstance(value, Line) else ""


def _bars(whole: Whole) -> tuple[str, list[tuple[str, float, float, str]]]:
    """Of the worst nodes: name, not available and not known as parts of the longest bar, in words; and how long the
    longest bar is."""
    bad = [(n.name, n.of(Kind.DOWN), n.of(Kind.UNKNOWN)) for n in whole.found.nodes[:20]]
    bad = [row for row in bad if row[1] or row[2]]
    longest = max((down + unknown for _, down, unknown in bad), default=0)
    return lasted(longest), [
        (name, down / longest, unknown / longest, f"{lasted(down)} not available" + (
            f", {lasted(unknown)} not known" if unknown else "")) for name, down, unknown in bad]


def _cell_class(column: Column, value: Cell) -> str:
    """Numbers stand right; short words are not broken."""
    return "n" if _numeric(column) else "s" if len(cell_text(value)) <= _ON_ONE_LINE else ""


# --- a workbook ----------------------------------------------------------------------------------------------------

def xlsx(whole: Whole) -> bytes:
    return workbook(lambda book: _filled(book, whole))


def _filled(book: Workbook, whole: Whole) -> None:
    made = datetime.fromtimestamp(whole.found.period.end, timezone.utc).replace(tzinfo=None)
    book.set_properties({"title": printable(whole.doc.title, limit=200), "created": made})
    _Book(book, whole.doc).write()


class _Book:
    """A sheet of the result, then one a table. Times are in hours, shares as per cent."""

    def __init__(self, book: Any, doc: Document) -> None:
        self.book, self.doc = book, doc
        self.head = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
        self.quoted = book.add_format({"quote_prefix": True})
        self.hours = book.add_format({"num_format": "#,##0.00"})
        self.whole = book.add_format({"num_format": "#,##0"})
        self.percent = book.add_format({"num_format": "0.000%"})
        self.taken: set[str] = set()

    def write(self) -> None:
        doc = self.doc
        rows = [("line", doc.word), *(("runs on simulated hardware", text) for text in [doc.simulated] if text),
                *(("result", text) for text in doc.result), *doc.facts, *(("note", text) for text in doc.notes),
                *(("problem", text) for text in doc.problems),
                *((section.title, text) for section in doc.sections for text in section.texts)]
        self._table(Table("Result", "", (Column("what"), Column("text")), tuple(rows)))
        for section in doc.sections:
            for table in section.tables:
                if table.rows:
                    self._table(table)

    def _table(self, table: Table) -> None:
        name = "".join(c if c.isalnum() or c in "-_ " else "-" for c in table.name)[:28]
        number = 1
        while f"{name} {number}".casefold() in self.taken:
            number += 1
        self.taken.add(f"{name} {number}".casefold())
        sheet = self.book.add_worksheet(name if number == 1 else f"{name} {number}")
        sheet.freeze_panes(1, 0)
        for at, column in enumerate(table.columns):
            unit = {"time": ", hours", "percent": ", %"}.get(column.kind, "")
            sheet.set_column(at, at, 100 if column.title == "text" else 40 if column.title in (
                "reason", "nodes", "what", "why", "result", "finding") else 24 if column.kind == "text" else 14)
            sheet.write_string(0, at, f"{column.title}{unit}", self.head)
        for line, row in enumerate(table.rows, 1):
            for at, cell in enumerate(row):
                self._cell(sheet, line, at, cell)
        sheet.autofilter(0, 0, max(1, len(table.rows)), len(table.columns) - 1)

    def _cell(self, sheet: Any, row: int, at: int, cell: Cell) -> None:
        if isinstance(cell, Seconds):
            sheet.write_number(row, at, cell / 3600, self.hours)
        elif isinstance(cell, Share):
            sheet.write_number(row, at, float(percent(cell)) / 100, self.percent)   # with more digits it is rounded up
        elif isinstance(cell, int):
            sheet.write_number(row, at, cell, self.whole)
        elif cell:
            text = printable(cell.value if isinstance(cell, Line) else cell, limit=_MOST_CELL)
            sheet.write_string(row, at, text, self.quoted if text.startswith(_FORMULA) else None)


def content(whole: Whole, form: str) -> bytes:
    """What goes into a file. "table" is not among them."""
    makers: dict[str, Callable[[Whole], str]] = {"markdown": markdown, "csv": csv_text, "json": json_text,
                                                 "html": html}
    if form == "xlsx":
        return xlsx(whole)
    return makers[form](whole).encode("utf-8", "backslashreplace")


SUFFIXES = {"table": ".txt", "csv": ".csv", "html": ".html", "json": ".json", "markdown": ".md", "xlsx": ".xlsx"}

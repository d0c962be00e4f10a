"""The document as XLSX: sheets of the statement and of what is where, then one for each table, with filters and frozen
heads."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hpcadmin.handover.model import Cell, Column, Handover, Table
from hpcadmin.handover.page import shown
from hpcadmin.handover.texts import Words
from hpcadmin.text import printable
from hpcadmin.workbook import workbook

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.worksheet import Worksheet

_MOST_CHARACTERS = 8000            # a cell holds 32767
_MOST_ROWS = 1_000_000
_FORMULA = ("=", "+", "-", "@", "'")
_NAME = 31                         # characters of a sheet's name
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NARROWEST, _WIDEST = 8, 60        # characters of a column
_LOOKED_AT = 2000                  # rows, for the width of a column


def render(doc: Handover, language: str = "en") -> bytes:
    """Raises UsageError where XlsxWriter is not installed."""
    return workbook(lambda book: _filled(book, doc, Words(language)))


def _filled(book: Workbook, doc: Handover, words: Words) -> None:
    formats = {"head": book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"}),
               "quoted": book.add_format({"quote_prefix": True}), "text": None,
               "stamp": book.add_format({"bold": True, "font_color": "#4B2A75"}),
               "word": book.add_format({"bold": True, "font_size": 16}),
               "wrapped": book.add_format({"text_wrap": True, "valign": "top"}),
               "day": book.add_format({"num_format": "yyyy-mm-dd"}), "percent": book.add_format({"num_format": "0.0"}),
               "int": book.add_format({"num_format": "#,##0"})}
    for digits in range(7):        # as many as on the page: four significant ones
        formats[f"number{digits}"] = book.add_format({"num_format": "#,##0" + ("." + "0" * digits if digits else "")})
    _Sheets(book, doc, words, formats).write()


class _Sheets:
    def __init__(self, book: Any, doc: Handover, words: Words, formats: dict[str, Any]) -> None:
        self.book = book
        self.doc = doc
        self.words = words
        self.formats = formats
        self._taken: set[str] = set()

    def write(self) -> None:
        tables = [t for t in self.doc.tables if t.rows]
        self._statement()
        contents = self._sheet("contents")
        names = [self._name(t.name) for t in tables]
        self._contents(contents, names, tables)
        for name, table in zip(names, tables, strict=True):
            self._table(name, table)

    def _contents(self, sheet: Worksheet, names: Iterable[str], tables: list[Table]) -> None:
        """What is on which sheet, how many rows, and what is to be known of them."""
        for at, (width, key) in enumerate(((30, "col_sheet"), (60, "contents"), (12, "col_count"), (90, "col_remark"))):
            sheet.set_column(at, at, width)
            self._text(sheet, 0, at, self.words(key), "head")
        for row, (name, table) in enumerate(zip(names, tables, strict=True), 1):
            left = self.words("left_out", shown=len(table.rows), total=table.total) if table.left_out else ""
            self._text(sheet, row, 0, name)
            self._text(sheet, row, 1, self.words.say(table.title))
            sheet.write_number(row, 2, len(table.rows), self.formats["int"])
            remark = " ".join(filter(None, [left, self.words.say(table.note) if table.note else ""]))
            self._text(sheet, row, 3, remark, "wrapped")
        sheet.freeze_panes(1, 0)
        sheet.autofilter(0, 0, len(tables), 3)

    def _name(self, name: str) -> str:
        """Names of sheets are short and unique, whatever their case."""
        short = "".join(c if c.isalnum() or c in "-_ " else "-" for c in name)[:_NAME]
        number = 1
        while short.casefold() in self._taken:
            number += 1
            short = f"{short[:_NAME - 4]}~{number}"
        self._taken.add(short.casefold())
        return short

    def _sheet(self, name: str, *, taken: bool = False) -> Worksheet:
        sheet: Worksheet = self.book.add_worksheet(name if taken else self._name(name))
        sheet.set_paper(9)
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        stamp = f"{self.words('simulated_short')}: " if self.doc.simulated else ""
        name_ = self.doc.run_id.replace("&", "&&")
        sheet.set_header(f"&C{stamp}{name_}"[:250])
        sheet.set_footer("&R&P / &N")
        return sheet

    def _text(self, sheet: Worksheet, row: int, column: int, text: str, style: str = "text") -> None:
        clean = printable(text, limit=_MOST_CHARACTERS)
        if clean:
            quoted = style == "text" and clean.startswith(_FORMULA)
            sheet.write_string(row, column, clean, self.formats["quoted" if quoted else style])

    def _statement(self) -> None:
        sheet, words, doc = self._sheet(self.words("document")), self.words, self.doc
        sheet.set_column(0, 0, 28)
        sheet.set_column(1, 1, 110)
        lines = [("", words(f"word_{doc.statement.word.value}"), "word")]
        if doc.simulated:
            lines.append(("", words("simulated", name=doc.simulated), "stamp"))
        lines += [("", words.say(r), "text") for r in doc.statement.reasons]
        lines += [(words("contract"), text, "text") for text in (
            doc.contract.title, doc.contract.number, doc.contract.customer, doc.contract.vendor) if text]
        lines += [(words.say(label), text, "text") for label, text in doc.facts]
        lines += [(words("problem"), words.told(text), "text") for text in doc.problems]
        lines += [("", words.told(text), "text") for text in doc.notes]
        if doc.sign_off.digest:
            lines.append((words("sign_digest"), doc.sign_off.digest, "text"))
        lines += [(words("sign_again", run=run), digest, "text") if digest else
                  ("", words("sign_again_none", run=run), "text") for run, digest, _ in doc.sign_off.retests]
        for row, (label, text, style) in enumerate(lines):
            self._text(sheet, row, 0, label, "wrapped")
            self._text(sheet, row, 1, text, "wrapped" if style == "text" and not text.startswith(_FORMULA) else style)

    def _table(self, name: str, table: Table) -> None:
        sheet = self._sheet(name, taken=True)
        for i in range(len(table.columns)):
            sheet.set_column(i, i, self._width(table, i))
        for i, column in enumerate(table.columns):
            self._text(sheet, 0, i, self.words.say(column.title), "head")
        rows = table.rows[:_MOST_ROWS]
        for n, cells in enumerate(rows, 1):
            for i, (cell, column) in enumerate(zip(cells, table.columns, strict=True)):
                self._cell(sheet, n, i, cell, column)
        sheet.freeze_panes(1, 1)
        sheet.autofilter(0, 0, len(rows), len(table.columns) - 1)
        sheet.repeat_rows(0)

    def _width(self, table: Table, place: int) -> float:
        column = table.columns[place]
        texts = (shown(row[place], column, self.words) for row in table.rows[:_LOOKED_AT])
        most = max([_wide(self.words.say(column.title)) + 4, *map(_wide, texts)])      # 4: the filter's button
        return min(_WIDEST, max(_NARROWEST, most + 1))

    def _cell(self, sheet: Worksheet, row: int, place: int, cell: Cell, column: Column) -> None:
        if isinstance(cell, (int, float)) and not isinstance(cell, bool) and abs(cell) < 10 ** 15:
            style = "int" if isinstance(cell, int) and column.kind != "percent" else "percent" if (
                column.kind == "percent") else f"number{_decimals(cell)}"
            sheet.write_number(row, place, cell, self.formats[style])
        elif column.kind == "name" and isinstance(cell, str) and (day := _day(cell)):
            sheet.write_datetime(row, place, day, self.formats["day"])
        else:
            text = shown(cell, column, self.words)
            self._text(sheet, row, place, text, "wrapped" if _wide(text) > _WIDEST and not text.startswith(_FORMULA)
                       else "text")


def _decimals(value: float) -> int:
    """So many that four digits are significant, as on the page."""
    return next((digits for digits, least in enumerate((999.95, 100, 10, 1, 0.1, 0.01)) if abs(value) >= least),
                6 if value else 0)


def _day(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _wide(text: str) -> int:
    """Characters, those of Chinese twice; of what is too wide for every column, it is enough to know that."""
    if text.isascii() or len(text) > _WIDEST:
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)

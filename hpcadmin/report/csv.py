"""CSV: one tidy row a measurement or verdict, units in their own column, safe to open in a spreadsheet.

A text that a spreadsheet would take for a formula gets one apostrophe in front; so does one that begins with an
apostrophe. A backslash is doubled; control and direction characters are written \\xNN, \\uNNNN or \\UNNNNNNNN. Whoever
takes one leading apostrophe away and undoes the backslashes (`original`) has the text as it was.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.frame import COLUMNS, rows
from hpcadmin.rundata import Run
from hpcadmin.text import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")  # noqa: RUF001  (Excel takes wide ones too)
_MOST_CHARACTERS = 8000     # a spreadsheet's cell holds 32767, and one of them may become four or ten
_ESCAPED = re.compile(r"\\(?:\\|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows(run):
        writer.writerow([cell(row.get(name)) for name in COLUMNS])
    return stream.getvalue()


FORMAT = ReportFormat("csv", ".csv", render, tells=False)


def original(cell: str) -> str:
    """The text that a cell was made of (but for what was cut: those end in "… (N characters)")."""
    text = cell[1:] if cell.startswith("'") else cell
    return _ESCAPED.sub(lambda m: chr(int(m[1] or m[2] or m[3], 16)) if m[1] or m[2] or m[3] else "\\", text)


def cell(value: Any) -> Any:
    """Numbers as they are, with all their digits."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = printable(value.replace("\\", "\\\\"), limit=_MOST_CHARACTERS)
    return f"'{text}" if value.lstrip().startswith(_FORMULA) else text

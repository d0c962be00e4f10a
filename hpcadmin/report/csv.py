"""CSV: one tidy row a measurement or verdict, units in their own column, safe to open in a spreadsheet."""

from __future__ import annotations

from typing import Any

from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.rundata import Run
from hpcadmin.text import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MOST_CHARACTERS = 8000     # a spreadsheet's cell holds 32767


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    from hpcadmin.report.frame import tidy  # noqa: PLC0415
    frame = tidy(run)
    return str(frame.map(_cell).to_csv(index=False, lineterminator="\n"))


FORMAT = ReportFormat("csv", ".csv", render)


def _cell(value: Any) -> Any:
    """Numbers as they are; texts that a spreadsheet would take for a formula get a quote in front of them."""
    if value is None or value != value:  # noqa: PLR0124  (NaN is how pandas says that there is nothing)
        return ""
    if not isinstance(value, str):
        return value
    text = printable(value, limit=_MOST_CHARACTERS)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text

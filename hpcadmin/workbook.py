"""Workbooks of XlsxWriter, one way for all: no text of a node, a log or a person is taken for a formula or a link."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcadmin.errors import UsageError

if TYPE_CHECKING:
    from xlsxwriter import Workbook


def workbook(fill: Callable[[Workbook], None]) -> bytes:
    """The file that `fill` writes. Raises UsageError where XlsxWriter is not installed."""
    try:
        import xlsxwriter  # noqa: PLC0415  (only who asks for it pays for it)
    except ImportError as exc:
        raise UsageError("xlsx needs XlsxWriter, which is not installed", hint="pip install 'hpcadmin[xlsx]'") from exc
    stream = io.BytesIO()
    book = xlsxwriter.Workbook(stream, {"constant_memory": True, "strings_to_formulas": False,
                                        "strings_to_urls": False, "strings_to_numbers": False})
    fill(book)
    book.close()
    return stream.getvalue()

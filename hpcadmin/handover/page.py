"""The document as one HTML page: no script, no network, pictures as inline SVG; only renders the model."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from hpcadmin.check import Status
from hpcadmin.handover.model import Cell, Column, Findings, Handover, Link, Paragraph, Table
from hpcadmin.handover.shown import Outcome
from hpcadmin.handover.texts import Msg, Words
from hpcadmin.resources import data_dir
from hpcadmin.text import number, printable

if TYPE_CHECKING:
    import jinja2

_MOST_CHARACTERS = 2000
_ON_ONE_LINE = 32            # characters of a name that is not broken
_HASH = 64                   # of a SHA-256
_MOST_CARDS = 400            # rows
_NARROW_FROM, _NARROW_COLUMNS, _NARROW_TEXT = 20, 6, 42         # rows, columns, characters of a row


def render(doc: Handover, language: str = "en") -> str:
    return _environment(language).get_template("handover.html.j2").render(
        doc=doc, t=Words(language), lang=language, kind=_kind, css_class=_css_class)


@functools.cache
def _environment(language: str) -> jinja2.Environment:
    """One a language, which keeps the template that it has compiled."""
    import jinja2  # noqa: PLC0415  (0.17 s that only pages pay)
    words = Words(language)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("conf_templates")), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_clean)
    environment.filters["cell"] = lambda cell, column: shown(cell, column, words)
    environment.filters["css"] = lambda value: value.value.lower().replace(" ", "-")
    environment.filters["css_text"] = css_text
    environment.filters["say"] = words.say
    environment.filters["told"] = words.told
    environment.tests["cards"] = _as_cards
    environment.tests["narrow"] = lambda table: _narrow(table, words)
    return environment


def _clean(value: Any) -> Any:
    """Every text on the page: no control or direction characters, bounded; jinja2 escapes it after."""
    return printable(value, limit=_MOST_CHARACTERS, newlines=True) if type(value) is str else value


def _kind(value: object) -> str:
    """Which macro draws it."""
    for cls, name in ((Table, "table"), (Findings, "findings"), (Paragraph, "paragraph"), (Link, "link"),
                      (Status, "status"), (Outcome, "outcome")):
        if isinstance(value, cls):
            return name
    return str(getattr(value, "kind", ""))


def _as_cards(table: Table) -> bool:
    """Whether its rows are blocks on a phone: what has text to read, and is no list of thousands."""
    return len(table.columns) > 3 and len(table.rows) <= _MOST_CARDS


def _narrow(table: Table, words: Words) -> bool:
    """Whether two of it stand side by side on paper: many rows of numbers and short names."""
    return len(table.rows) > _NARROW_FROM and len(table.columns) <= _NARROW_COLUMNS and all(
        sum(len(shown(cell, c, words)) for cell, c in zip(row, table.columns, strict=True)) <= _NARROW_TEXT
        for row in table.rows)


def _css_class(cell: Cell, column: Column) -> Any:
    from markupsafe import Markup  # noqa: PLC0415
    text = cell.text if isinstance(cell, Link) else cell
    short = column.kind in ("name", "code", "exact") and (isinstance(text, Msg) or (
        isinstance(text, str) and len(text) <= _ON_ONE_LINE))
    name = ("n" if column.kind in ("number", "percent") else "c h" if column.kind == "code" and isinstance(text, str)
            and len(text) == _HASH and text.isalnum() else "c k" if column.kind == "code" and short else "c"
            if column.kind == "code" else "s" if short or isinstance(cell, (Status, Outcome)) else "")
    return Markup(f' class="{name}"') if name else ""  # noqa: S704  (no text of anybody's)


def shown(cell: Cell, column: Column, words: Words) -> str:
    """A cell in words."""
    if cell is None:
        return ""
    if isinstance(cell, Msg):
        return words.say(cell)
    if isinstance(cell, Status):
        return words(f"status_{cell.value}")
    if isinstance(cell, Outcome):
        return words(f"outcome_{cell.value}")
    if isinstance(cell, Link):
        return cell.text
    if isinstance(cell, (int, float)) and column.kind == "percent":
        return f"{cell:.1f}"
    if isinstance(cell, (int, float)) and column.kind == "number":
        return f"{cell:,}" if isinstance(cell, int) else rounded(cell)
    return str(cell)


def rounded(value: float) -> str:
    """Four significant digits, all of them shown, so that a column's numbers can be compared."""
    if not math.isfinite(value) or value == 0 or not 1e-3 <= abs(value) < 1e6:
        return number(value)
    return f"{value:#.4g}" if abs(value) < 999.95 else f"{value:,.0f}"


def css_text(text: str) -> str:
    """As the content of a CSS string, in which nothing ends the string or the style."""
    return "".join(c if c.isalnum() or c in " -_.,:()" else f"\\{ord(c):x} " for c in printable(text, limit=200))

"""Tables on a terminal: as wide as it is at most. Where the output goes elsewhere a row stays one line, for grep."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence

import click

_LEAST = 12         # characters of a column that is wrapped: no word of it is broken that is shorter
_GLUE = "\ue001"     # private use: printable() leaves none in a text
_UNIT = re.compile(r"(?<=\d) (?=[A-Za-z%]{1,3}(?: |$))")      # 43 min stays on a line


def print_table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> None:
    """Cells are text that is safe for a terminal. The widest columns are wrapped, but never the first one."""
    import tabulate
    rows = [[_UNIT.sub(_GLUE, cell) for cell in row] for row in rows]
    columns = _columns(rows, headers)
    widths = _widths(columns)
    fitted = _fitted(widths, [min(w, _longest_word(c)) for w, c in zip(widths, columns, strict=True)], _width())
    most = [width if width < full else None for width, full in zip(fitted, widths, strict=True)]
    heads = fitted if any(most) else None
    padding, tabulate.MIN_PADDING = tabulate.MIN_PADDING, 0         # beside each head, for nothing
    try:
        table = tabulate.tabulate(rows, headers=list(headers), tablefmt="simple", disable_numparse=True,
                                  maxcolwidths=most if any(most) else None,
                                  maxheadercolwidths=heads)
    finally:
        tabulate.MIN_PADDING = padding
    click.echo("\n".join(line.replace(_GLUE, " ").rstrip() for line in table.splitlines()))


def fits(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> bool:
    """Whether the table is no wider than the terminal with all columns wrapped that can be."""
    columns = _columns(rows, headers)
    widths, width = _widths(columns), _width()
    least = [min(w, _longest_word(c)) for w, c in zip(widths, columns, strict=True)]
    return width is None or _whole(_fitted(widths, least, width)) <= width


def _width() -> int | None:
    if sys.stdout is not None and not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size((100, 24)).columns


def _columns(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> list[list[str]]:
    return [[head, *(row[i] for row in rows)] for i, head in enumerate(headers)]


def _widths(columns: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in columns]


def _longest_word(column: Sequence[str]) -> int:
    head = max(map(len, column[0].split()), default=1)
    return max(head, min(_LEAST, max((len(word) for cell in column[1:] for word in cell.split(" ")), default=1)))


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitted(widths: Sequence[int], least: Sequence[int], width: int | None) -> list[int]:
    found = list(widths)
    while width is not None and _whole(found) > width:
        wide = [i for i in range(1, len(found)) if found[i] > least[i]]
        if not wide:
            break
        found[max(wide, key=lambda i: found[i])] -= 1
    return found

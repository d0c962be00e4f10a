"""Tables on a terminal: as wide as it is at most. Where the output goes elsewhere a row stays one line, for grep."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import click
from tabulate import tabulate

_LEAST = 12         # characters of a column that is wrapped


def print_table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> None:
    """Cells are text that is safe for a terminal. The widest columns are wrapped, but never the first one."""
    widths = [max([len(head), *(len(row[i]) for row in rows)]) for i, head in enumerate(headers)]
    most: list[int | None] = [None] * len(headers)
    for i, width in enumerate(_fitted(widths, headers, _width())):
        most[i] = width if width < widths[i] else None
    table = tabulate(rows, headers=list(headers), tablefmt="simple", disable_numparse=True,
                     maxcolwidths=most if any(most) else None)
    click.echo("\n".join(line.rstrip() for line in table.splitlines()))


def _width() -> int | None:
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size((100, 24)).columns


def _fitted(widths: Sequence[int], headers: Sequence[str], width: int | None) -> list[int]:
    found = list(widths)
    least = [max(_LEAST, len(head) + 2) for head in headers]       # tabulate gives a column that much at least
    while width is not None and sum(max(w, len(h) + 2) for w, h in zip(found, headers, strict=True)) + 2 * (
            len(found) - 1) > width:
        wide = [i for i in range(1, len(found)) if found[i] > least[i]]
        if not wide:
            break
        found[max(wide, key=lambda i: found[i])] -= 1
    return found

"""What a report format is: one module in this folder with a `FORMAT`."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Protocol

from hpcadmin.rundata import Run


@dataclass(frozen=True)
class Options:
    """everything: leave nothing out. link_base: path from the report to the run folder, "" if it lies in it."""

    everything: bool = False
    width: int = 100
    colour: bool = False
    link_base: str = ""


def terminal_options(*, everything: bool = False) -> Options:
    """For a report that goes to stdout: a terminal's width, colours only there and only without NO_COLOR."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns if terminal or "COLUMNS" in os.environ else 100
    return Options(everything=everything, width=width, colour=terminal and not os.environ.get("NO_COLOR"))


class Render(Protocol):
    def __call__(self, run: Run, options: Options = ...) -> str: ...


@dataclass(frozen=True)
class ReportFormat:
    name: str
    suffix: str                # of the file: ".html"
    render: Render
    in_folder: bool = False    # written into the run folder as report.SUFFIX unless told otherwise, not to stdout

"""What a report format is: one module in this folder with a `FORMAT`."""

from __future__ import annotations

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


class Render(Protocol):
    def __call__(self, run: Run, options: Options = ...) -> str: ...


@dataclass(frozen=True)
class ReportFormat:
    name: str
    suffix: str                # of the file: ".html"
    render: Render
    in_folder: bool = False    # written into the run folder as report.SUFFIX unless told otherwise, not to stdout

"""What a report format is: one module in this folder with a `FORMAT`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
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
    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns if terminal or "COLUMNS" in os.environ else 100
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")
    return Options(everything=everything, width=width, colour=colour)


class Render(Protocol):
    def __call__(self, run: Run, options: Options = ...) -> str: ...


class RenderParts(Protocol):
    def __call__(self, run: Run, options: Options = ...) -> Iterator[str]: ...


class RenderBytes(Protocol):
    def __call__(self, run: Run, options: Options = ...) -> bytes: ...


@dataclass(frozen=True)
class ReportFormat:
    """A text, or what is no text: then `data` makes it and `render` says that it cannot be shown."""

    name: str
    suffix: str                # of the file: ".html"
    render: Render
    in_folder: bool = False    # written into the run folder as report.SUFFIX unless told otherwise, not to stdout
    data: RenderBytes | None = None
    parts: RenderParts | None = None           # of a text that is all ASCII
    tells: bool = True         # has a place for what is missing or damaged in the run folder
    values: bool = True        # asks for the run's measurements, and not only for its verdicts

    def pieces(self, run: Run, options: Options = Options()) -> Iterator[str | bytes]:
        """What `content` is: a large text is never whole in memory where the form can be made in parts."""
        if self.parts is not None:
            yield from self.parts(run, options)
        else:
            yield self.content(run, options)

    def content(self, run: Run, options: Options = Options()) -> bytes:
        """As it is in a file."""
        if self.data is not None:
            return self.data(run, options)
        return self.render(run, options).encode("utf-8", "backslashreplace")

"""The live view of a run on a terminal, where rich is installed; plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from typing import Any, TextIO

from hpcadmin.run_progress import Progress, can_move, named, width_of
from hpcadmin.text import printable

_BAR, _BAR_FROM = 20, 76        # columns of the bar; on a terminal of fewer than these there is none


def live_progress(stream: TextIO | None = None) -> Progress:
    """The live view where it can be shown."""
    out = sys.stderr if stream is None else stream
    return LiveProgress(out) if can_move(out) and find_spec("rich") is not None else Progress(out)


class _Lasting:
    """A terminal that may go away: then nothing is written any more, and nobody is troubled."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


class LiveProgress(Progress):
    """Lines that stay scroll by above one that changes: what runs, a bar, how far, how fast, how long still, and the
    time since the run began."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._out = stream
        self._begun = time.monotonic()
        self._live: Any = None
        self._console: Any = None
        self._now: tuple[str, int, int, str] = ("", 0, 0, "")

    def _begin(self) -> None:
        from rich.console import Console  # noqa: PLC0415  (only where somebody looks)
        from rich.live import Live  # noqa: PLC0415
        terminal: Any = _Lasting(self._out)
        self._console = Console(file=terminal, markup=False, emoji=False, highlight=False)
        self._live = Live(get_renderable=self._line, console=self._console, transient=True, redirect_stdout=False,
                          redirect_stderr=False, vertical_overflow="crop")
        self._live.start()

    def _fit(self) -> int:
        """The terminal's width as it is now: rich would ask the standard input, or COLUMNS."""
        width = width_of(self._out)
        if self._console is not None:
            self._console.width = width
        return width

    def _line(self) -> Any:
        """One line, whatever the terminal's width: what does not fit is cut."""
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
        name, done, total, words = self._now
        width = self._fit()
        minutes, seconds = divmod(round(time.monotonic() - self._begun), 60)
        took = f"{minutes}:{seconds:02d}"
        bar = total > 0 and width >= _BAR_FROM
        name, words = named(name, words, width - len(took) - 3 - (_BAR + 1 if bar else 0))
        row = Table.grid(padding=(0, 1, 0, 0))
        cells: list[Any] = [Text(name), *([ProgressBar(total=total, completed=done, width=_BAR)] if bar else []),
                            *([Text(words)] if words else []), Text(took)]
        for _ in cells:
            row.add_column(no_wrap=True, overflow="crop")
        row.add_row(*cells)
        return row

    def status(self, text: str, *, now: bool = False) -> None:
        self._show((printable(text, limit=200), 0, 0, ""))

    def show_tests(self, name: str, done: int, total: int, words: str) -> None:
        self._show((printable(name, limit=200), done, total, words))

    def _show(self, now: tuple[str, int, int, str]) -> None:
        self._now = now
        if self._live is None:
            self._begin()

    def _write(self, text: str) -> None:
        if self._live is None:
            super()._write(text)
            return
        from rich.text import Text  # noqa: PLC0415  (as it is: node names are no markup)
        self._fit()
        self._live.console.print(Text(printable(text, limit=500)), soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

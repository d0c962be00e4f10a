"""Live progress on stderr: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from hpcadmin.text import printable

MOST_FAILURES = 5


class Progress:
    """What a run says while it runs. quiet: nothing but what went wrong."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty() and not quiet
        self._quiet = quiet
        self._shown = ""
        self._failures = 0
        self._last = 0.0

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._write(text)

    def status(self, text: str, *, now: bool = False) -> None:
        """What is going on at this moment: shown on a terminal only, a few times a second."""
        if not self._terminal or (not now and time.monotonic() - self._last < 0.1):
            return
        self._last = time.monotonic()
        text = printable(text, limit=100)
        self._emit(f"\r\x1b[K{text}")
        self._shown = text

    def failure(self, text: str) -> None:
        """Something went wrong: the first few are shown at once."""
        self._failures += 1
        if self._failures <= MOST_FAILURES:
            self._write(f"  ! {text}")
        elif self._failures == MOST_FAILURES + 1:
            self._write("  ! more went wrong: the report has all of it")

    def close(self) -> None:
        if self._shown:
            self._emit("\r\x1b[K")
            self._shown = ""

    def _write(self, text: str) -> None:
        shown = self._shown
        self.close()
        self._emit(printable(text, limit=500) + "\n")
        if shown:
            self.status(shown, now=True)

    def _emit(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:     # the terminal is gone; the run is not
            self._terminal = False

"""Live progress on stderr: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from typing import TextIO

from hpcadmin.text import printable

MOST_FAILURES = 5
PLAIN_EVERY_S = 30.0        # how far it is, where that is no terminal
_WIDTH = 80                 # of a terminal that does not tell


def pace_words(done: int, total: int, since: int, seconds: float) -> str:
    """since: so many of them were done in these seconds."""
    text = f"{done} of {total} tests done"
    if since < 3 or seconds < 1.0:
        return text
    rate = since / seconds
    left = (total - done) / rate
    size, unit = (1, "s") if left < 120 else (60, "min") if left < 7200 else (3600, "h")
    words = f"{round(left / size)} {unit}"
    return f"{text}, {rate:.3g}/s" + (f", {words} left" if done < total else "")


def fitted(text: str, width: int) -> str:
    """The text, cut where it would go beyond so many columns of a terminal: a line that wraps cannot be taken back."""
    used = 0
    for place, char in enumerate(text):
        used += 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > width:
            return text[:place]
    return text


def named(name: str, words: str, width: int) -> tuple[str, str]:
    """Both cut so that they fit beside each other: how far it is is more worth than the end of a long name."""
    if len(name) + len(words) > width:
        words = words.replace(" tests done", "")
    room = max(width - len(words), min(8, width))
    return (name if fitted(name, room) == name else f"{fitted(name, room - 1)}…"), words


def can_move(stream: TextIO | None) -> bool:
    """Whether it is a terminal on which a line can be taken back."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def width_of(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except (OSError, ValueError):
        return _WIDTH


class Progress:
    """What a run says while it runs. quiet: nothing but what went wrong."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream: TextIO | None = sys.stderr if stream is None else stream     # None: it was closed
        self._terminal = can_move(self._stream) and not quiet
        self._quiet = quiet
        self._shown = ""
        self._failures = 0
        self._last = 0.0
        self._pace = (0.0, 0, 0)        # when the first test was done, how many there are, how many were done then
        self._name = ""                 # of the stage that is running
        self._whole = (0, 0)            # tests of the run that are done, and all of them, once there is a plan
        self._told = time.monotonic()   # when it was last said how far it is, where that is no terminal

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._write(text)

    def status(self, text: str, *, now: bool = False) -> None:
        """What is going on at this moment: shown on a terminal only, a few times a second."""
        if self._stream is None or not self._terminal or (not now and time.monotonic() - self._last < 0.1):
            return
        self._last = time.monotonic()
        text = printable(text, limit=500)
        self._emit(f"\r\x1b[K{fitted(text, width_of(self._stream) - 1)}")
        self._shown = text

    def tests(self, name: str, done: int, total: int) -> None:
        """How far a job has come. name: of the stage that is running. Once the run's own count is known, that is shown
        in its place: several jobs may be running."""
        self._name = name
        if not self._whole[1]:
            self._far(done, total)

    def run(self, done: int, total: int) -> None:
        """How far the run has come: so many of its tests have a result."""
        self._whole = done, total
        if self._name and done:
            self._far(done, total)

    def _far(self, done: int, total: int) -> None:
        words = self.pace(done, total)
        self.show_tests(self._name, done, total, words)
        if not self._terminal and time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._told = time.monotonic()
            self.line(f"{self._name}: {words}")

    def show_tests(self, name: str, done: int, total: int, words: str) -> None:
        """On a terminal. words: how far, how fast, how long still."""
        width = width_of(self._stream) - 3 if self._stream is not None else _WIDTH
        self.status(": ".join(named(printable(name, limit=200), words, width)), now=True)

    def pace(self, done: int, total: int) -> str:
        """How far, how fast, and how long still, by what has been done so far."""
        now = time.monotonic()
        if total != self._pace[1] or done < self._pace[2] or not self._pace[2]:
            self._pace = (now, total, done)
        begun, _, first = self._pace
        return pace_words(done, total, done - first, now - begun)

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
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):       # the terminal or the reader is gone; the run is not
            self._terminal = False

"""What a run says while it runs."""

import io
import os
import pty
import re
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from threading import Thread
from typing import TextIO

import pytest

from hpcadmin import run_progress
from hpcadmin.run_live import LiveProgress, live_progress
from hpcadmin.run_progress import Progress, fitted, named, pace_words

HOSTILE = "node\x1b]0;owned\x07\x1b[2J\u202e[bold]03:warning:"
SHOWN = "node\\x1b]0;owned\\x07\\x1b[2J\\u202e[bold]03:warning:"


@pytest.mark.parametrize("numbers,words", [
    ((0, 10, 0, 0.0), "0 of 10 tests done"),
    ((2, 10, 2, 60.0), "2 of 10 tests done"),                       # too few to tell
    ((50, 100, 40, 10.0), "50 of 100 tests done, 4/s, 12 s left"),
    ((100, 100, 100, 10.0), "100 of 100 tests done, 10/s"),
    ((300, 2016, 300, 60.0), "300 of 2016 tests done, 5/s, 6 min left"),
    ((10, 100_000, 10, 20.0), "10 of 100000 tests done, 0.5/s, 56 h left"),
])
def test_pace(numbers: tuple[int, int, int, float], words: str) -> None:
    assert pace_words(*numbers) == words


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(run_progress.time, "monotonic", lambda: time[0])
    return time


def test_the_pace_is_that_of_this_job_and_of_this_process(now: list[float]) -> None:
    progress = Progress(io.StringIO())
    progress.pace(0, 1000)                  # nothing yet, and no time that counts
    now[0] += 1000
    progress.pace(500, 1000)                # read from the folder of a run that is resumed: all at once
    now[0] += 10
    assert progress.pace(550, 1000) == "550 of 1000 tests done, 5/s, 90 s left"
    assert progress.pace(1, 20) == "1 of 20 tests done"
    now[0] += 10
    assert progress.pace(11, 20) == "11 of 20 tests done, 1/s, 9 s left"


def test_without_a_terminal_there_are_plain_lines_and_now_and_then_how_far_it_is(now: list[float]) -> None:
    out = io.StringIO()
    progress = live_progress(out)
    progress.line("[1/3] node checks: 4 tests")
    progress.tests("node checks", 1, 4)
    progress.status("the controller does not answer")
    progress.failure("node03: bad")
    assert out.getvalue() == "[1/3] node checks: 4 tests\n  ! node03: bad\n"
    now[0] += 29
    progress.tests("round 2 of 3", 10, 100)
    now[0] += 10
    progress.tests("round 2 of 3", 20, 100)
    progress.tests("round 2 of 3", 21, 100)
    progress.close()
    assert out.getvalue().splitlines()[2:] == ["round 2 of 3: 20 of 100 tests done, 1/s, 80 s left"]


def test_of_several_jobs_the_runs_own_count_is_told(now: list[float]) -> None:
    out = io.StringIO()
    progress = Progress(out)
    progress.run(0, 100)
    progress.tests("round 1", 1, 6)                 # of one job
    progress.run(1, 100)
    assert not out.getvalue()
    now[0] += 40
    progress.tests("round 1 of the others", 1, 28)  # of another
    progress.run(41, 100)
    now[0] += 40
    progress.run(81, 100)
    assert out.getvalue().splitlines() == ["round 1 of the others: 41 of 100 tests done, 1/s, 59 s left",
                                           "round 1 of the others: 81 of 100 tests done, 1/s, 19 s left"]


def test_the_first_failures_are_told_and_that_there_are_more() -> None:
    out = io.StringIO()
    progress = Progress(out)
    for number in range(9):
        progress.failure(f"{number} {HOSTILE}")
    told = [f"  ! {number} {SHOWN}" for number in range(5)]
    assert out.getvalue().splitlines() == [*told, "  ! more went wrong: the report has all of it"]


@pytest.mark.parametrize(("text", "width", "left"), [
    ("abc", 3, "abc"), ("abcd", 3, "abc"), ("", 3, ""), ("\u8282\u70b9a", 4, "\u8282\u70b9"),
    ("\u8282\u70b9a", 3, "\u8282"), ("e\u0301e\u0301e", 2, "e\u0301e\u0301"),
])
def test_a_line_fits_its_terminal(text: str, width: int, left: str) -> None:
    assert fitted(text, width) == left


@pytest.mark.parametrize(("name", "width", "left"), [
    ("pairs round 5 of 7", 60, "pairs round 5 of 7: 28 of 36 tests done, 9.74/s, 1 s left"),
    ("pairs round 5 of 7", 48, "pairs round 5 of 7: 28 of 36, 9.74/s, 1 s left"),
    ("pairs round 5 of 7", 38, "pairs round…: 28 of 36, 9.74/s, 1 s left"),
    ("pairs round 5 of 7", 10, "pairs r…: 28 of 36, 9.74/s, 1 s left"),         # the rest is cut
])
def test_how_far_it_is_is_told_on_narrow_terminals_too(name: str, width: int, left: str) -> None:
    assert ": ".join(named(name, "28 of 36 tests done, 9.74/s, 1 s left", width)) == left


def text_on_terminal(columns: int, write: Callable[[TextIO], None]) -> str:
    """What is written to a real one, read from its other end."""
    there, here = pty.openpty()
    ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    found: list[bytes] = []

    def read() -> None:
        with suppress(OSError):                 # EIO: closed there
            while data := os.read(there, 4096):
                found.append(data)
    reader = Thread(target=read)
    reader.start()
    with os.fdopen(here, "w", encoding="utf-8") as stream:
        write(stream)
    reader.join()
    os.close(there)
    return b"".join(found).decode()


def shown(progress: Progress) -> None:
    progress.line(f"run x: two {HOSTILE}")
    progress.tests("mpi round 3 \x1b[2J", 1, 4)
    progress.failure(f"{HOSTILE}: bad")
    progress.tests("mpi round 3 \x1b[2J", 4, 4)
    progress.status(HOSTILE, now=True)
    progress.line("last")
    progress.close()


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize("columns", [120, 80, 40, 12])
@pytest.mark.parametrize("kind", [Progress, LiveProgress])
def test_on_a_terminal_lines_stay_and_one_changes(
        monkeypatch: pytest.MonkeyPatch, columns: int, kind: type[Progress]) -> None:
    if kind is LiveProgress:
        pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    text = text_on_terminal(columns, lambda stream: shown(kind(stream)))
    assert text.startswith(f"run x: two {SHOWN}\r\n")
    # No escape sequence of a node's: those that are there are of the view, which moves and colours only.
    assert {found[-1] for found in ESCAPES.findall(text)} <= set("KAmhl")
    assert {c for c in ESCAPES.sub("", text) if not c.isprintable()} <= {"\r", "\n"}
    flat = ESCAPES.sub("", text)
    assert f"  ! {SHOWN}: bad\r\n" in flat and "last\r\n" in flat
    changing = [line for line in re.split(r"[\r\n]+", flat) if line.startswith("mpi")]
    assert changing and all(len(line.rstrip()) <= columns for line in changing)
    if columns == 120:
        assert any("1 of 4 tests done" in line for line in changing)


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_terminal_that_cannot_take_lines_back_gets_plain_ones(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    text = text_on_terminal(80, lambda stream: shown(live_progress(stream)))
    assert text == f"run x: two {SHOWN}\r\n  ! {SHOWN}: bad\r\nlast\r\n"


@pytest.mark.parametrize("kind", [Progress, LiveProgress])
def test_a_terminal_that_goes_away_ends_no_run(monkeypatch: pytest.MonkeyPatch, kind: type[Progress]) -> None:
    if kind is LiveProgress:
        pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    there, here = pty.openpty()
    with suppress(OSError), os.fdopen(here, "w", encoding="utf-8") as stream:
        progress = kind(stream)
        progress.tests("round", 1, 4)
        os.close(there)
        shown(progress)
        there = -1
    assert there == -1


def test_a_stream_that_is_closed_or_a_pipe_that_nobody_reads_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress.sys, "stderr", None)
    shown(Progress())
    reader, writer = os.pipe()
    os.close(reader)
    with suppress(OSError), os.fdopen(writer, "w", encoding="utf-8") as stream:
        shown(Progress(stream))
        reader = -1
    assert reader == -1

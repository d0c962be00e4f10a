"""How a run is ended from outside: signals, and the mark of `runs cancel`."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcadmin.run_kept import CANCEL, is_there

CANCEL_EVERY_S, LOCK_EVERY_S = 0.5, 20.0


class Ending(KeyboardInterrupt):
    """A run that ends before it is complete. Not an Exception: nothing on the way may take it for an error."""


class Stopped(Ending):
    """After a round, as one Ctrl-C asks."""


class Left(Ending):
    """At once, and its jobs go on: SIGTERM, a lost terminal."""


class Cancelled(Ending):
    """At once, with its jobs, by `runs cancel`."""


class Replaced(Ending):
    """At once, and without a word in the folder: another process watches the run by now."""


class Stop:
    """What has been asked of this run while it goes on."""

    def __init__(self, folder: Path) -> None:
        self.asked = False          # to stop after this round
        self.said = False           # that this has been told
        self.ending: type[KeyboardInterrupt] | None = None      # what a signal has asked for
        self.lost: Callable[[], str] = lambda: ""               # who watches the run in our place
        self._mark = folder / CANCEL
        self._looked = self._locked = 0.0

    def check(self) -> None:
        """Raises what a signal has asked for, should that have come to nothing, and Cancelled when somebody has
        cancelled the run, wherever that was."""
        if self.ending is not None:
            raise self.ending
        now = time.monotonic()
        if now - self._locked >= LOCK_EVERY_S:
            self._locked = now
            if who := self.lost():
                raise Replaced(who)
        if now - self._looked >= CANCEL_EVERY_S:
            self._looked = now
            if is_there(self._mark):
                raise Cancelled

    def between(self) -> None:
        """Between two jobs: raises Stopped when no more is to begin."""
        self.check()
        if self.asked:
            raise Stopped


@contextlib.contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """SIGINT once: stop after this round; twice: KeyboardInterrupt. SIGTERM and a lost terminal: Left. The first that
    ends the run is the last that is heard: more of them may come at once (a shell that hangs up, an impatient hand)."""
    def interrupt(_number: int, _frame: object) -> None:
        if not stop.asked:
            stop.asked = True
            return
        end(KeyboardInterrupt)

    def leave(_number: int, _frame: object) -> None:
        end(Left)

    def end(how: type[KeyboardInterrupt]) -> None:
        ignore_signals()
        stop.ending = how
        raise how
    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: leave, signal.SIGHUP: leave}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:       # nohup
        del handlers[signal.SIGHUP]
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

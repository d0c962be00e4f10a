"""What every way of running a command elsewhere has in common, and running it on many hosts at once."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

DEFAULT_LIMIT = 32 * 1024 * 1024
GRACE_S = 5.0               # what a host gets beyond its time-out to say so itself
PIECE = 64 * 1024


@dataclass(frozen=True)
class CommandResult:
    """What became of a command on a host. error "" means that it ran to its end, whatever its exit status."""

    host: str
    output: bytes = b""              # stdout and stderr as they came, at most the limit
    exit_status: int | None = None   # None: it did not end by itself, or never started
    error: str = ""                  # one line: why it could not be run, or was not seen to end
    timed_out: bool = False
    truncated: bool = False          # more was printed than the limit; the rest was not read
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")


class Remote(Protocol):
    """A way to run a command on a host. `run` raises nothing that is only one host's fault."""

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = DEFAULT_LIMIT) -> CommandResult: ...


def fan_out(
    remote: Remote, hosts: Sequence[str], argv: Callable[[str], Sequence[str]], *, stdin: bytes = b"",
    parallel: int = 32, timeout_s: float = 30.0, overall_s: float | None = None, limit: int = DEFAULT_LIMIT,
    done: Callable[[CommandResult], None] | None = None,
) -> dict[str, CommandResult]:
    """The command on all hosts, at most `parallel` at once. A host that hangs beyond its time-out is given up and its
    place goes to the next one; what is not there after `overall_s` is given up too. `done` is called in this thread."""
    results: dict[str, CommandResult] = {}
    answers: queue.SimpleQueue[CommandResult] = queue.SimpleQueue()
    running: dict[str, float] = {}
    waiting = list(dict.fromkeys(hosts))[::-1]
    end = None if overall_s is None else time.monotonic() + overall_s

    def take(result: CommandResult) -> None:
        if running.pop(result.host, None) is not None:      # a late answer of a host given up counts no more
            results[result.host] = result
            if done:
                done(result)

    def give_up(host: str, why: str) -> None:
        running.setdefault(host, 0.0)
        take(CommandResult(host, error=why, timed_out=True, seconds=timeout_s))

    while running or waiting:
        while waiting and len(running) < parallel:
            host = waiting.pop()
            running[host] = time.monotonic()
            call = partial(remote.run, host, argv(host), stdin=stdin, timeout_s=timeout_s, limit=limit)
            threading.Thread(target=_one, args=(host, call, answers), name=f"hpcadmin {host}", daemon=True).start()
        with contextlib.suppress(queue.Empty):
            take(answers.get(timeout=0.2))
        now = time.monotonic()
        for host in [host for host, began in running.items() if now - began > timeout_s + GRACE_S]:
            give_up(host, f"no answer within {timeout_s:g} s")
        if end is not None and now > end:
            for host in [*running, *waiting]:
                give_up(host, f"no answer before the whole time of {overall_s:g} s was over")
            waiting.clear()
    return results


def _one(host: str, call: Callable[[], CommandResult], answers: queue.SimpleQueue[CommandResult]) -> None:
    try:
        answers.put(call())
    except Exception as exc:  # noqa: BLE001  (a defect that one host's data brings out must not lose the other hosts)
        answers.put(CommandResult(host, error=f"internal error: {type(exc).__name__}: {exc}"))

"""Commands on this machine."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO

from hpcadmin.remote.base import DEFAULT_LIMIT, PIECE, CommandResult


class Local:
    """Runs the command here, whatever the host is called."""

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = DEFAULT_LIMIT) -> CommandResult:
        start = time.monotonic()
        try:
            process = subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as exc:
            return CommandResult(host, error=f"{argv[0]}: {exc.strerror}")
        assert process.stdin is not None and process.stdout is not None  # noqa: S101  (both are pipes)
        output, truncated, ended = _exchange(process.stdin, process.stdout, stdin, start + timeout_s, limit)
        status: int | None = None
        if ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=max(0.1, start + timeout_s - time.monotonic()))
        if status is None:
            _kill(process)
        error = ""
        if truncated:
            error = f"printed more than {limit} bytes: cut off"
        elif status is None:
            error = f"did not end within {timeout_s:g} s"
        elif status < 0:
            error = f"ended by signal {-status}"
        return CommandResult(host, output, status if status is not None and status >= 0 else None, error,
                             timed_out=status is None and not truncated, truncated=truncated,
                             seconds=time.monotonic() - start)


def _exchange(stdin: IO[bytes], stdout: IO[bytes], data: bytes, end: float, limit: int) -> tuple[bytes, bool, bool]:
    """Feeds and reads at once, so that neither side waits for the other: (output, cut off, all read)."""
    pieces: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector, stdin, stdout:
        os.set_blocking(stdin.fileno(), False)
        selector.register(stdout, selectors.EVENT_READ)
        if data:
            selector.register(stdin, selectors.EVENT_WRITE)
        else:
            stdin.close()
        while (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fileobj is stdout:
                    piece = os.read(stdout.fileno(), PIECE)
                    if not piece:
                        return b"".join(pieces), False, True
                    pieces.append(piece[: limit - size])
                    size += len(pieces[-1])
                    if size >= limit:
                        return b"".join(pieces), True, False
                else:
                    data = _feed(stdin, data)
                    if not data:
                        selector.unregister(stdin)
                        stdin.close()
    return b"".join(pieces), False, False


def _feed(stdin: IO[bytes], data: bytes) -> bytes:
    try:
        return data[os.write(stdin.fileno(), data[:PIECE]):]
    except BlockingIOError:
        return data
    except OSError:
        return b""       # it has closed its stdin: it does not want the rest


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole session that we started, and nothing else."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2)

"""The ledger on disk: a line of JSON for each entry, on disk before anybody goes on; and the lock of its folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import stat
import time
from pathlib import Path

from hpcadmin import records
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import MAX_READ_BYTES, read_bounded
from hpcadmin.run_folder import iso_now
from hpcadmin.state import make_private
from hpcadmin.sweep.model import Entry

LEDGER = "ledger.jsonl"
LOCK = "lock"
STUCK_H = 20.0              # a sweep that runs for so long is told of: the nights after it have none


def read_ledger(folder: Path) -> list[Entry]:
    """All entries. What was being written when the power went has no line end, and was never acted on: it is left out.
    StoreError with the line where anything else cannot be read: without its ledger a sweep does nothing."""
    path = folder / LEDGER
    if not os.path.lexists(path):
        return []
    raw = read_bounded(path)
    if len(raw) >= MAX_READ_BYTES:
        raise StoreError(f"is larger than {MAX_READ_BYTES} bytes", where=str(path),
                         hint="move it away when hpcadmin sweep list names no drained node: it begins anew")
    lines = raw.split(b"\n")[:-1]
    return [records.loads(Entry, line.decode("utf-8", "replace"), where=f"{path}:{number}")
            for number, line in enumerate(lines, 1) if line]


class LedgerFile:
    """For the one that holds the lock."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self._path = folder / LEDGER
        try:
            fresh = not os.path.lexists(self._path)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise StoreError("is not a regular file", where=str(self._path))
            self._lock()
            self._cut_torn()
            if fresh:
                _sync_folder(folder)
        except OSError as exc:
            raise StoreError(f"cannot be opened: {exc.strerror}", where=str(self._path)) from exc

    def _lock(self) -> None:
        """Beside the lock's own file: that may have been removed while its sweep goes on."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise UsageError("another sweep writes to it", where=str(self._path),
                             hint="its lock was removed; this one did nothing") from None

    def _cut_torn(self) -> None:
        """Take away what has no line end: the next entry would go on in its line."""
        size = os.fstat(self._fd).st_size
        place = size
        while place > 0:
            start = max(0, place - 65536)
            found = os.pread(self._fd, place - start, start).rfind(b"\n")
            if found >= 0:
                place = start + found + 1
                break
            place = start
        if place < size:
            os.ftruncate(self._fd, place)
            os.fsync(self._fd)

    def write(self, *entries: Entry) -> None:
        """On disk when it returns. A part of a line that could not be written whole is taken away again."""
        text = "".join(f"{records.dumps(entry, sparse=True)}\n" for entry in entries)
        if not text:
            return
        line = text.encode("utf-8", "backslashreplace")
        size = os.fstat(self._fd).st_size
        try:
            done = 0
            while done < len(line):
                done += os.write(self._fd, line[done:])
            os.fsync(self._fd)
        except OSError as exc:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, size)
            raise StoreError(f"cannot be written: {exc.strerror}", where=str(self._path),
                             hint="nothing is done that is not in the ledger") from exc

    def close(self) -> None:
        os.close(self._fd)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SweepLock:
    """One sweep at a time. The lock ends with the process, however it ends; who holds it is in the file. stale: who is
    still named there although the lock was free: a sweep that was killed."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self.path = folder / LOCK
        self.stale = ""
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StoreError(f"cannot be opened: {exc.strerror}", where=str(self.path)) from exc
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = self._holder()
            hours = (time.time() - os.fstat(self._fd).st_mtime) / 3600
            os.close(self._fd)
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES) and hours > STUCK_H:
                raise StoreError(f"a sweep has held it for {hours:.0f} hours: {holder or 'it does not say who'}",
                                 where=str(self.path), hint="is it stuck? none runs until it has ended") from exc
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise UsageError(f"another sweep runs: {holder or 'it does not say who'}", where=str(self.path),
                                 hint="one at a time; this one did nothing") from exc
            raise StoreError(f"cannot be locked: {exc.strerror}", where=str(self.path),
                             hint="[run] dir must be on a file system with locks") from exc
        self.stale = self._holder()
        try:
            self._put(f"process {os.getpid()} on {platform.node()} since {iso_now()}\n")
        except StoreError:
            os.close(self._fd)
            raise

    def _holder(self) -> str:
        text = os.pread(self._fd, 400, 0).decode("utf-8", "replace")
        return "".join(c for c in text if c.isprintable()).strip()

    def _put(self, text: str) -> None:
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError as exc:
            raise StoreError(f"cannot be written: {exc.strerror}", where=str(self.path)) from exc

    def release(self) -> None:
        with contextlib.suppress(StoreError):
            self._put("")
        os.close(self._fd)

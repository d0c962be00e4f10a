"""Who watches a run: one process at a time, told by a lock on a file in the run's folder.

The lock (flock) goes with the process, however it ends. What is written in the file is for the reader, and for file
systems that know no locks or keep them to one host: there the file is touched now and then, and one that has been left
alone is taken over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from hpcadmin import records
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.run_folder import iso_now

NAME = "lock"
TOUCH_S = 20.0          # how often a watched run says so
LEFT_S = 120.0          # after so long without it nobody watches
PATIENCE_S = 1.0        # somebody who only looks whether it is held has it for a moment
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Holder:
    host: str
    pid: int
    since: str
    started: str = ""       # of the process, in the kernel's ticks: a pid is given again
    boot: str = ""          # of the host: so are ticks

    @property
    def text(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class RunLock:
    """A run's lock, while it is held."""

    def __init__(self, folder: Path, fd: int, *, warning: str = "") -> None:
        self.folder, self.warning = folder, warning
        self._fd = fd
        self._end = threading.Event()
        self._mine: Holder | None = None

    def claim(self) -> None:
        """Where the file system knows no locks: of two that come at one time, the one that wrote last has it."""
        self._put()
        time.sleep(PATIENCE_S)
        other = _read(self.folder / NAME)
        if other != self._mine:
            self._mine = None
            raise _watched(self.folder, other)

    def write(self) -> None:
        """Say who holds it: this process; and go on saying so."""
        self._put()
        threading.Thread(target=self._touch, name="run lock", daemon=True).start()

    def _put(self) -> None:
        self._mine = Holder(platform.node(), os.getpid(), iso_now(), _started(os.getpid()), _boot())
        raw = (records.dumps(self._mine) + "\n").encode()
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, raw, 0)
        except OSError as exc:
            raise StoreError(f"cannot be written: {exc.strerror}", where=str(self.folder / NAME)) from exc

    def lost(self) -> str:
        """Who has it by now, "" while we do: whoever stands still for minutes may be taken for gone."""
        other = _read(self.folder / NAME)
        return other.text if self._mine is not None and other is not None and other != self._mine else ""

    def _touch(self) -> None:
        while not self._end.wait(TOUCH_S):
            with contextlib.suppress(OSError):
                os.utime(self._fd)

    def release(self) -> None:
        if self._end.is_set():
            return
        self._end.set()
        with contextlib.suppress(OSError):
            if self._mine is not None and _read(self.folder / NAME) == self._mine:  # else somebody else has it by now
                os.ftruncate(self._fd, 0)
        with contextlib.suppress(OSError):
            os.close(self._fd)


def take(folder: Path) -> RunLock:
    """The run's lock, not yet written. UsageError in one line when somebody else watches the run."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreError(f"cannot be opened: {exc.strerror}", where=str(path)) from exc
    try:
        locks, end = _flock(fd), time.monotonic() + PATIENCE_S
        while locks is None and time.monotonic() < end:
            time.sleep(0.05)
            locks = _flock(fd)
        holder = _read(path)
        if locks is None or (holder is not None and _alive(holder, fd, locks=locks)):
            raise _watched(folder, holder)
        lock = RunLock(folder, fd, warning="" if locks else "the run folder's file system has no locks: that nobody "
                       "else watches the run is told only by a file in it that is touched")
        if not locks:
            lock.claim()
    except BaseException:
        os.close(fd)
        raise
    return lock


def _watched(folder: Path, holder: Holder | None) -> UsageError:
    who = holder.text if holder else "another process"
    return UsageError(f"run {folder.name} is being watched by {who}", hint="one at a time; hpcadmin runs show "
                      f"{folder.name} tells how it goes, hpcadmin runs cancel {folder.name} ends it")


def watcher(folder: Path) -> Holder | None:
    """Who watches the run now, None when nobody does."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        locks = _flock(fd)
        holder = _read(path)
        if locks is None:
            return holder or Holder("?", 0, "?")
        return holder if holder is not None and _alive(holder, fd, locks=locks) else None
    finally:
        os.close(fd)


def _flock(fd: int) -> bool | None:
    """True: locked; None: somebody else has it; False: this file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError as exc:
        if exc.errno in _NO_LOCKS:
            return False
        raise StoreError(f"cannot be locked: {exc.strerror}") from exc
    return True


def _read(path: Path) -> Holder | None:
    try:
        text = read_bounded(path, limit=4096).decode("utf-8", "replace")
        found: Holder = records.loads(Holder, text, where=str(path))
    except StoreError:
        return None
    return found


def _alive(holder: Holder, fd: int, *, locks: bool) -> bool:
    """Whether the holder lives, although the lock could be had: only where locks are not, or end at the host."""
    if holder.host == platform.node():
        return not locks and is_process(holder)
    return _now(fd) - os.fstat(fd).st_mtime < LEFT_S


def _now(fd: int) -> float:
    """The time by the clock that this file's times are of: a file server may have its own."""
    folder = Path(f"/proc/self/fd/{fd}").readlink().parent
    probe = folder / f".now.{os.getpid()}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(folder)) from exc
    finally:
        probe.unlink(missing_ok=True)


def is_process(holder: Holder) -> bool:
    """Whether it is a process here, and still the one that took the lock."""
    return (holder.host == platform.node() and holder.boot in ("", _boot())
            and holder.started != "" and _started(holder.pid) == holder.started)


def _boot() -> str:
    """Which boot of this host it is; "" where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process was started, in ticks since the boot; "" when there is none of that number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]

"""Writing and reading files safely: a temporary name and a rename; no links followed; sizes bounded."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.text import byte_size

MAX_READ_BYTES = 256 * 1024 * 1024


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Replace `path` by `data`, or leave it untouched. Raises StoreError in one line (disk full, no permission)."""
    write_atomic_parts(path, (data,), mode=mode)


def write_atomic_parts(path: Path, parts: Iterable[str | bytes], *, mode: int = 0o644) -> None:
    """The same for a text that comes in parts, so that the whole of it is never in memory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = _create(temporary, mode)
        with os.fdopen(fd, "wb") as stream:
            for part in parts:
                stream.write(part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(path)) from exc


def require_replaceable(path: Path) -> None:
    """StoreError where a user names what is no file: a rename over /dev/null would leave a system without it."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return                      # no such file, or writing it will say why not
    if not stat.S_ISREG(kind) or str(path.parent) in ("/dev", "/dev/fd", "/proc/self/fd"):
        raise StoreError("is a folder" if stat.S_ISDIR(kind) else "is not a regular file", where=str(path),
                         hint="-o names a file; -o - is stdout")


def _create(temporary: Path, mode: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return os.open(temporary, flags, mode)
    except FileExistsError:         # of a process of this number that was killed, before a reboot or on another host
        temporary.unlink()
        return os.open(temporary, flags, mode)


def read_lines(path: Path, *, limit: int = MAX_READ_BYTES) -> Iterator[bytes]:
    """The lines of a regular file, with their ends. StoreError for links, devices and pipes, and where a line has
    `limit` bytes and more: the lines before it have been given then."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    if not stat.S_ISREG(os.fstat(fd).st_mode):           # a stream cannot be made of a folder
        os.close(fd)
        raise StoreError("is not a regular file", where=str(path))
    with os.fdopen(fd, "rb") as stream:
        for number in itertools.count(1):
            line = stream.readline(limit)
            if not line:
                return
            if len(line) == limit:
                raise StoreError(f"is longer than {byte_size(limit)}, the most that is read of a line: this and what "
                                 "follows was not read", where=f"{path}:{number}")
            yield line


def read_whole(path: Path, *, limit: int | None = None) -> bytes:
    """All bytes of a regular file; raises StoreError where there are more than `limit` (MAX_READ_BYTES): the beginning
    of a record is none, and what a reader made of it would be less than was written."""
    most = MAX_READ_BYTES if limit is None else limit
    data = read_bounded(path, limit=most + 1)
    if len(data) > most:
        raise StoreError(f"is larger than {byte_size(most)}, the most that is read of it", where=str(path))
    return data


def read_bounded(path: Path, *, limit: int = MAX_READ_BYTES, offset: int = 0) -> bytes:
    """The bytes of a regular file from `offset`, at most `limit`: of a log, say, which has a beginning and an end.
    Raises StoreError for links, devices and pipes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StoreError("is not a regular file", where=str(path))
        with os.fdopen(fd, "rb", closefd=False) as stream:
            stream.seek(offset)
            return stream.read(limit)
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    finally:
        os.close(fd)

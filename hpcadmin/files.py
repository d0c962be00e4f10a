"""Writing and reading files safely: a temporary name and a rename; no links followed; sizes bounded."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcadmin.errors import StoreError

MAX_READ_BYTES = 256 * 1024 * 1024


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Replace `path` by `data`, or leave it untouched. Raises StoreError in one line (disk full, no permission)."""
    write_atomic_parts(path, (data,), mode=mode)


def write_atomic_parts(path: Path, parts: Iterable[str | bytes], *, mode: int = 0o644) -> None:
    """The same for a text that comes in parts, so that the whole of it is never in memory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
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


def read_lines(path: Path, *, limit: int = MAX_READ_BYTES) -> Iterator[bytes]:
    """The lines of a regular file, with their ends; at most `limit` bytes of a line, and no link, device or pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    if not stat.S_ISREG(os.fstat(fd).st_mode):           # a stream cannot be made of a folder
        os.close(fd)
        raise StoreError("is not a regular file", where=str(path))
    with os.fdopen(fd, "rb") as stream:
        while line := stream.readline(limit):
            yield line


def read_bounded(path: Path, *, limit: int = MAX_READ_BYTES, offset: int = 0) -> bytes:
    """The bytes of a regular file from `offset`, at most `limit`; raises StoreError for links, devices and pipes."""
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

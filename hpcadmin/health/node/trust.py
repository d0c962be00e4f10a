"""Reads a file only if nobody but root (or the caller) can have written it or put another in its place."""

import os
import stat

from hpcadmin.health.node.api import BadConfig

MAX_FILE = 8 << 20


def check(path: str, uid: int) -> str:
    """The real path, if it and every folder above it are root's or the caller's and writable by nobody else.

    A folder above may be one with the sticky bit that is root's (/tmp): what is root's in it stays.
    """
    real = os.path.realpath(path)
    _owned(real, os.lstat(real), uid)
    folder = real
    while folder != "/":
        folder = os.path.dirname(folder)
        _owned(folder, os.lstat(folder), uid, sticky=True)
    return real


def _owned(path: str, seen: os.stat_result, uid: int, sticky: bool = False) -> None:
    if seen.st_uid not in (0, uid):
        raise BadConfig("%s belongs to user %d, not to root: refused" % (path, seen.st_uid))
    if seen.st_mode & 0o022 and not (sticky and seen.st_mode & stat.S_ISVTX and seen.st_uid == 0):
        raise BadConfig("%s can be written by others (mode %04o): refused" % (path, seen.st_mode & 0o7777))


def read(path: str, uid: "int | None" = None) -> bytes:
    """The bytes of a trusted, regular, bounded file."""
    own = os.geteuid() if uid is None else uid
    try:
        real = check(path, own)
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise BadConfig("%s: %s" % (path, exc.strerror)) from exc
    try:
        seen = os.fstat(fd)
        _owned(real, seen, own)
        if not stat.S_ISREG(seen.st_mode):
            raise BadConfig("%s is no file: refused" % path)
        if seen.st_size > MAX_FILE:
            raise BadConfig("%s is larger than %d MiB: refused" % (path, MAX_FILE >> 20))
        data = b""
        while len(data) <= MAX_FILE:
            piece = os.read(fd, 1 << 20)
            if not piece:
                return data
            data += piece
        raise BadConfig("%s is larger than %d MiB: refused" % (path, MAX_FILE >> 20))
    finally:
        os.close(fd)

"""The kernel's log from /dev/kmsg, one record at a time and without waiting for the next."""

import errno
import os

from hpcadmin.health.node.api import NoAnswer

MAX_RECORDS = 200000


class Record:
    """One message: number, seconds after boot, level (0 emergency to 7 debug), text."""

    __slots__ = ("level", "number", "seconds", "text")

    def __init__(self, number: int, seconds: float, level: int, text: str) -> None:
        self.number, self.seconds, self.level, self.text = number, seconds, level, text


def record(line: str) -> "Record | None":
    """4,123,5678900,-;text. None for what another facility wrote (not the kernel) and for what is no record."""
    head, semicolon, text = line.partition(";")
    words = head.split(",")
    if not semicolon or len(words) < 3 or not all(word.isdecimal() for word in words[:3]):
        return None
    if int(words[0]) >> 3:
        return None
    # A message of several lines: the newline is written as \\x0a.
    return Record(int(words[1]), int(words[2]) / 1e6, int(words[0]) & 7, text.replace("\\x0a", " "))


def records(text: str) -> "list[Record]":
    """Records of a file; lines that begin with a blank belong to the record before."""
    found = []
    for line in text.splitlines():
        one = record(line) if line[:1] != " " else None
        if one:
            found.append(one)
    return found[:MAX_RECORDS]


def read(path: str) -> "list[Record]":
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise NoAnswer("no kernel log: %s" % exc.strerror) from exc
    pieces, count = [], 0
    try:
        while count < MAX_RECORDS:
            try:
                piece = os.read(fd, 65536)
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno == errno.EPIPE:        # overwritten while we read: the next read goes on behind it
                    continue
                raise
            if not piece:
                break
            pieces.append(piece)
            count += 1
    finally:
        os.close(fd)
    return records(b"".join(pieces).decode("utf-8", "replace"))

"""How long each test took, from the heads of its outputs; what was printed is stepped over and not read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from hpcadmin.frames import MAGIC, MAX_HEADER_BYTES, MAX_OUTPUT_BYTES
from hpcadmin.rundata import Run

_HEAD = re.compile(re.escape(MAGIC) + rb"id=([A-Za-z0-9_-]{1,64}) step=[0-9]{1,4} [^\n]{0,600} start=(-|[0-9.]{1,24}) "
                   rb"end=(-|[0-9.]{1,24}) bytes=([0-9]{1,12}) crc=[0-9]{1,10} flags=[a-z,-]{1,220}\n")


def seconds_of_tests(run: Run) -> dict[str, float]:
    """Test -> seconds from its first start to its last end, where every output has both and no clock went back. Of a
    test on several nodes these are the clocks of those that kept its outputs."""
    spans: dict[str, tuple[float, float] | None] = {}
    for path in sorted(run.path.glob("jobs/*/*.log")):
        for test, start, end in _times(path):
            if start is None or end is None or end < start:
                spans[test] = None
                continue
            span = spans.get(test, (start, end))
            spans[test] = (min(span[0], start), max(span[1], end)) if span else None
    return {test: span[1] - span[0] for test, span in spans.items() if span}


def _times(path: Path) -> Iterator[tuple[str, float | None, float | None]]:
    """Up to what is no head: nothing behind damage is believed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return
        while line := stream.readline(MAX_HEADER_BYTES):
            head = _HEAD.fullmatch(line)
            if head is None or int(head[4]) > MAX_OUTPUT_BYTES:
                return
            yield head[1].decode(), _seconds(head[2]), _seconds(head[3])
            stream.seek(int(head[4]) + 1, os.SEEK_CUR)


def _seconds(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

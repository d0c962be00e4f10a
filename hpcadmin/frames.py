"""Framed outputs: how a job's log keeps many outputs in one file, so that none can be taken for another.

    HPCADMIN-FRAME 1 id=t0003 step=0 role=each node=node01 host=node01 status=0 start=… end=… bytes=N crc=C flags=-
    N bytes
    newline

The length decides where an output ends, never its content. crc is POSIX cksum over the N bytes. After a frame that
is torn or damaged nothing more of that file is believed: what follows could be part of an output.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MAGIC = b"HPCADMIN-FRAME 1 "
MAX_HEADER_BYTES = 1024
MAX_OUTPUT_BYTES = 64 * 1024 * 1024     # more than any script of ours writes; guards against a damaged length

_HEADER = re.compile(
    rb"id=(?P<id>[A-Za-z0-9_-]{1,64}) step=(?P<step>[0-9]{1,4}) role=(?P<role>[a-z]{1,16}) "
    rb"node=(?P<node>[A-Za-z0-9_.-]{1,255}) host=(?P<host>[A-Za-z0-9_.?-]{1,255}) status=(?P<status>-|[0-9]{1,3}) "
    rb"start=(?P<start>-|[0-9]{1,12}(?:\.[0-9]{1,9})?) end=(?P<end>-|[0-9]{1,12}(?:\.[0-9]{1,9})?) "
    rb"bytes=(?P<bytes>[0-9]{1,12}) crc=(?P<crc>[0-9]{1,10}) flags=(?P<flags>-|[a-z]{1,20}(?:,[a-z]{1,20}){0,9})")

_REVERSED = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))


@dataclass(frozen=True)
class Frame:
    """One output. status None: the command was never seen to end by itself."""

    id: str
    step: int
    role: str
    node: str
    host: str
    status: int | None
    start: float | None
    end: float | None
    flags: frozenset[str]
    body: bytes
    file: str = ""

    @property
    def key(self) -> tuple[str, int, str, str]:
        return (self.id, self.step, self.role, self.node)

    @property
    def ref(self) -> str:
        return f"{self.file}#{self.id}"


@dataclass(frozen=True)
class Scan:
    """What bytes of a log hold: whole frames, how many bytes they take, and why nothing more can be read, if so."""

    frames: tuple[Frame, ...]
    consumed: int
    problem: str = ""        # the file is damaged from `consumed` on
    pending: str = ""        # id of a frame that has begun and is not whole yet


def cksum(data: bytes) -> int:
    """POSIX cksum: zlib's CRC over reversed bits, started at zero, with the length behind the data."""
    size, tail = len(data), bytearray()
    while size:
        tail.append(size & 0xFF)
        size >>= 8
    crc = zlib.crc32(bytes(tail).translate(_REVERSED), zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF))
    return int(f"{crc:032b}"[::-1], 2)


def encode(frame: Frame) -> bytes:
    """A frame as the job's script writes it."""
    def time(value: float | None) -> str:
        return "-" if value is None else f"{value:.6f}"
    return (
        f"{MAGIC.decode()}id={frame.id} step={frame.step} role={frame.role} node={frame.node} host={frame.host} "
        f"status={'-' if frame.status is None else frame.status} start={time(frame.start)} end={time(frame.end)} "
        f"bytes={len(frame.body)} crc={cksum(frame.body)} flags={','.join(sorted(frame.flags)) or '-'}\n"
    ).encode() + frame.body + b"\n"


def scan(data: bytes, file: str = "") -> Scan:
    """The whole frames at the start of `data`. Never raises; never guesses past damage."""
    frames: list[Frame] = []
    position = 0
    while position < len(data):
        line_end = data.find(b"\n", position, position + MAX_HEADER_BYTES)
        head = data[position:line_end if line_end >= 0 else position + MAX_HEADER_BYTES]
        match = _HEADER.fullmatch(head[len(MAGIC):]) if line_end >= 0 and head.startswith(MAGIC) else None
        if match is None:
            if line_end < 0 and len(head) < MAX_HEADER_BYTES and _may_begin(head):
                return Scan(tuple(frames), position, pending=_id_in(head))
            return Scan(tuple(frames), position, problem=f"damaged at byte {position}: no frame header")
        size, start = int(match["bytes"]), line_end + 1
        if size > MAX_OUTPUT_BYTES:
            return Scan(tuple(frames), position, problem=f"{_id(match)}: output of {size} bytes is over the bound")
        if len(data) < start + size + 1:
            return Scan(tuple(frames), position, pending=_id(match))
        body = data[start:start + size]
        if data[start + size] != 0x0A or cksum(body) != int(match["crc"]):
            return Scan(tuple(frames), position, problem=f"{_id(match)}: output is damaged, checksum does not match")
        frames.append(_frame(match, body, file))
        position = start + size + 1
    return Scan(tuple(frames), position)


def _may_begin(head: bytes) -> bool:
    return head.startswith(MAGIC) or MAGIC.startswith(head)


def _id_in(head: bytes) -> str:
    match = re.match(rb"id=([A-Za-z0-9_-]{1,64}) ", head[len(MAGIC):])
    return match[1].decode() if match else "?"


def _id(match: re.Match[bytes]) -> str:
    return match["id"].decode()


def _frame(match: re.Match[bytes], body: bytes, file: str) -> Frame:
    def time(name: str) -> float | None:
        return None if match[name] == b"-" else float(match[name])
    return Frame(
        id=_id(match), step=int(match["step"]), role=match["role"].decode(), node=match["node"].decode(),
        host=match["host"].decode(), status=None if match["status"] == b"-" else int(match["status"]),
        start=time("start"), end=time("end"), body=body, file=file,
        flags=frozenset() if match["flags"] == b"-" else frozenset(match["flags"].decode().split(",")),
    )


class Collector:
    """Frames of one job as they come in, against what the plan says may come.

    expected: test id -> keys (step, role, node) that its frames may have. What fits nothing is a problem, said once;
    a second output for the same key makes the test's result a contradiction.
    """

    def __init__(self, expected: Mapping[str, Iterable[tuple[int, str, str]]]) -> None:
        self._expected = {test: frozenset(keys) for test, keys in expected.items()}
        self._frames: dict[str, dict[tuple[int, str, str], Frame]] = {test: {} for test in self._expected}
        self._packed: set[str] = set()
        self.problems: list[str] = []
        self.contradictions: dict[str, str] = {}

    def add(self, frame: Frame, *, only_node: str = "") -> str:
        """Take a frame; only_node: the file is this node's and may speak of no other. Returns the test's id when
        all its frames are there, else ""."""
        key = (frame.step, frame.role, frame.node)
        if key not in self._expected.get(frame.id, ()) or (only_node and frame.node != only_node):
            self.problems.append(f"{frame.file}: an output of {frame.id} step {frame.step} {frame.role} on "
                                 f"{frame.node} is not in the plan, ignored")
            return ""
        have = self._frames[frame.id]
        if key in have:
            text = f"{frame.file}: a second output of {frame.id} step {frame.step} on {frame.node}"
            self.problems.append(text)
            self.contradictions[frame.id] = text
            return ""
        have[key] = frame
        return frame.id if self.complete(frame.id) else ""

    def complete(self, test: str) -> bool:
        return len(self._frames[test]) == len(self._expected[test])

    def frames(self, test: str) -> tuple[Frame, ...]:
        """The test's frames in the order of its steps, then nodes."""
        have = self._frames[test]
        frames = tuple(have[key] for key in sorted(have))
        return tuple(replace(f, body=zlib.decompress(f.body)) for f in frames) if test in self._packed else frames

    def forget(self, test: str, *, needed: bool = False) -> None:
        """Keep that the frames came, and not their bodies: they have been read, and a large run has many. needed: they
        are to be read once more, and kept small until then."""
        have = self._frames[test]
        for key, frame in () if test in self._packed else have.items():
            have[key] = replace(frame, body=zlib.compress(frame.body, 1) if needed else b"")
        if needed:
            self._packed.add(test)
        elif test in self._packed:
            self._packed.remove(test)
            self.forget(test)

    def missing(self, test: str) -> tuple[tuple[int, str, str], ...]:
        return tuple(sorted(self._expected[test] - set(self._frames[test])))

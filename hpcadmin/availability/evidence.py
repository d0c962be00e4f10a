"""What our own runs prove of nodes: that a node was up while a step of a run ran on it, and no more."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcadmin.availability.rules import KNOWN, Claims
from hpcadmin.availability.timeline import Claim, Kind
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded
from hpcadmin.frames import MAGIC, MAX_HEADER_BYTES, MAX_OUTPUT_BYTES
from hpcadmin.hosts import is_node_name
from hpcadmin.store import Entry, epoch

_HEAD = re.compile(re.escape(MAGIC) + rb"id=[A-Za-z0-9_-]{1,64} step=[0-9]{1,4} role=[a-z]{1,16} "
                   rb"node=([A-Za-z0-9_.-]{1,255}) [^\n]{0,600} start=([0-9.]{1,24}) end=([0-9.]{1,24}) "
                   rb"bytes=([0-9]{1,12}) crc=[0-9]{1,10} flags=[a-z,-]{1,220}\n")
_MOST_PLAN = 256 * 1024 * 1024
Spans = Sequence[tuple[int, int]]


@dataclass
class Looks:
    """A node, as runs found it: how often a step ran there, and how often Slurm let none run."""

    up: int = 0
    not_usable: int = 0
    seconds: int = 0
    last_reason: str = ""


@dataclass
class Seen:
    """claims: the times of steps. looks: by node. runs: how many were looked at."""

    claims: Claims = field(default_factory=dict)
    looks: dict[str, Looks] = field(default_factory=dict)
    runs: int = 0
    problems: list[str] = field(default_factory=list)


def seen(entries: Iterable[Entry], unknown: Mapping[str, Spans], now: int) -> Seen:
    """unknown: of each node the times that nothing else tells of; only runs in them are opened."""
    found = Seen()
    for entry in entries:
        begin, end = epoch(entry.started), epoch(entry.ended)
        if entry.problem or begin is None:
            found.problems.append(f"run {entry.name} is not looked at: {entry.problem or 'it has no time'}")
            continue
        span = math.ceil(begin), math.floor(min(now, end if end is not None else now))
        wanted = {node for node, spans in unknown.items() if any(a < span[1] and b > span[0] for a, b in spans)}
        if wanted and not entry.simulated:
            found.runs += 1
            _look(entry, span, wanted, found)
    return found


def _look(entry: Entry, span: tuple[int, int], wanted: set[str], found: Seen) -> None:
    ran: set[str] = set()
    for path in sorted(entry.path.glob("jobs/*/*.log")):
        node = path.stem
        if node not in wanted:
            continue
        times = list(_times(path, node, span))
        if times:
            ran.add(node)
            claims = [Claim(a, b, KNOWN, Kind.UP, f"run {entry.name}") for a, b in joined(times) if a < b]
            found.claims.setdefault(node, []).extend(claims)
            found.looks.setdefault(node, Looks()).seconds += sum(c.end - c.start for c in claims)
    for node in ran:
        found.looks[node].up += 1
    try:
        skipped = _skipped(entry.path)
    except StoreError as exc:
        found.problems.append(str(exc))
        return
    for node, reason in skipped.items():
        if node in wanted and node not in ran:
            looks = found.looks.setdefault(node, Looks())
            looks.not_usable += 1
            looks.last_reason = reason


def joined(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _times(path: Path, node: str, span: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """Whole seconds within each output's start and end, and within the run: a node's clock is not believed beyond it.
    Nothing behind damage is read, and nothing that another node's file says."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return
    with os.fdopen(fd, "rb") as stream:
        while line := stream.readline(MAX_HEADER_BYTES):
            head = _HEAD.fullmatch(line)
            if head is None or int(head[4]) > MAX_OUTPUT_BYTES:
                return
            start, end = _seconds(head[2]), _seconds(head[3])
            if head[1].decode() == node and start is not None and end is not None and start <= end:
                first, last = max(span[0], math.ceil(start)), min(span[1], math.floor(end))
                if first <= last:
                    yield first, last
            stream.seek(int(head[4]) + 1, os.SEEK_CUR)


def _seconds(text: bytes) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if found < 1e11 else None


def _skipped(folder: Path) -> dict[str, str]:
    """Nodes that were asked for and not tested, with the reason; from the plan alone."""
    path = folder / "plan.json"
    if not path.exists():
        return {}
    try:
        plan = json.loads(read_bounded(path, limit=_MOST_PLAN))
        rows = plan.get("skipped", [])
        return {row["node"]: str(row.get("reason", "")) for row in rows if is_node_name(row["node"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise StoreError("cannot be read as a plan", where=str(path)) from exc

"""The values of one check of many runs: read from the folders once, then kept in the index over the runs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hpcadmin import records
from hpcadmin.errors import StoreError
from hpcadmin.files import read_lines, read_whole
from hpcadmin.history_trend import Moment
from hpcadmin.history_values import Condition, Entity, Sample, Values, values_of
from hpcadmin.rundata import MOST_OF_A_LINE, RUN_SCHEMA, VALUES, Measured, Plan
from hpcadmin.store import Entry, Index, Wanted, epoch, file_stamp

_FORM = 1               # of what is kept; another one is read anew
_MAX_BYTES = 256 * 1024 * 1024


def moments(index: Index, entries: Sequence[Entry], check: str, problems: list[str]) -> list[Moment]:
    """Runs with the values of a check ("": of all), by their times. What cannot be read is left out, and told in
    `problems`."""
    found: list[Moment] = []
    fresh: list[tuple[str, str, str, bytes]] = []
    for entry in entries:
        time = epoch(entry.started)
        if time is None:
            problems.append(f"{entry.name}: its manifest has no time")
            continue
        stamp = f"{_FORM}|{file_stamp(entry.path / VALUES)}|{file_stamp(entry.path / 'plan.json')}"
        values = _kept(index.kept(entry.name, check, stamp))
        if values is None:
            try:
                if entry.manifest is not None and entry.manifest.schema != RUN_SCHEMA:
                    raise StoreError(f"is of schema {entry.manifest.schema}, this hpcadmin knows {RUN_SCHEMA}",
                                     where=str(entry.path / "manifest.json"))
                values = read_values(entry.path, check)
            except StoreError as exc:
                problems.append(str(exc))
                continue
            fresh.append((entry.name, check, stamp, pack(values)))
        if values:
            found.append(Moment(entry.name, time, values))
    if fresh:
        index.keep(fresh)
    return sorted(found, key=lambda moment: (moment.time, moment.run))


def unreadable(index: Index, since: float | None) -> list[str]:
    """Of which runs nobody knows whether they belong to a series; since: those whose name says that they are older are
    none of it."""
    first = datetime.fromtimestamp(since).strftime("%Y%m%d-%H%M%S") if since is not None else ""
    return [f"{e.name}: {e.problem}" for e in index.find(Wanted(state="unreadable")) if e.name >= first]


def read_values(folder: Path, check: str) -> Values:
    """Only lines that name the check are read as records. StoreError where a file is missing, damaged or of another
    version: a series with a hole that nobody sees would tell of no drift."""
    plan: Plan = records.loads(Plan, read_whole(folder / "plan.json").decode("utf-8", "replace"),
                               where=str(folder / "plan.json"))
    named = json.dumps(check).encode() if check else b""
    measured: list[Measured] = []
    for number, line in enumerate(read_lines(folder / VALUES, limit=MOST_OF_A_LINE), 1):
        if not line.endswith(b"\n"):
            raise StoreError("is cut off", where=f"{folder / VALUES}:{number}")
        if named in line:
            one: Measured = records.loads(Measured, line.decode("utf-8", "replace"),
                                          where=f"{folder / VALUES}:{number}")
            measured.append(one)
    return values_of(measured, plan.tests, check=check)


def pack(values: Values) -> bytes:
    plain = [[list(c), [[e.node, e.device, list(s.values), s.transport] for e, s in of.items()]]
             for c, of in values.items()]
    return zlib.compress(json.dumps(plain).encode(), 3)


def _kept(raw: bytes | None) -> Values | None:
    """None where there is nothing, or not what was put there."""
    if raw is None:
        return None
    try:
        inflate = zlib.decompressobj()
        plain: Any = json.loads(inflate.decompress(raw, _MAX_BYTES))
        return {Condition(*c): {Entity(node, device): Sample(tuple(map(float, values)), transport)
                                for node, device, values, transport in of} for c, of in plain}
    except (zlib.error, ValueError, TypeError):
        return None

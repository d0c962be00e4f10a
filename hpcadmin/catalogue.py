"""Limits: what a value must reach, with unit, message size, source and date. Ours (checks/limits) and the site's.

Reading is strict: a limit without unit, source or bound, or with an unknown key, is a SiteError with file:line.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hpcadmin.check import Direction, Limit, Measurement
from hpcadmin.errors import SiteError, StoreError
from hpcadmin.records import from_plain
from hpcadmin.resources import data_dir
from hpcadmin.site import Site, read_toml

# What a limit may be in: a GB/s never judges a Gb/s, so a unit that no check measures in is a mistake.
UNITS = ("Gb/s", "GB/s", "MB/s", "us", "s", "MiB", "%", "count", "TFLOP/s", "W", "C")
SIZED = ("Gb/s", "GB/s", "MB/s")          # bandwidths say nothing without the message size
MOST_TOLERANCE = 0.5
_KEYS = {f.name for f in fields(Limit)} - {"site"}


def load_limits(site: Site, folder: Path | None = None) -> tuple[Limit, ...]:
    """The site's limits, then the catalogue's. Raises SiteError with file:line for the first one that is wrong."""
    found = [_limit(table, n, site.source or "site.toml", from_site=True) for n, table in enumerate(site.limits, 1)]
    for path in sorted((folder or data_dir("checks") / "limits").glob("*.toml")):
        found += read_limits(path)
    return tuple(found)


def read_limits(path: Path) -> list[Limit]:
    """The limits in one file of the catalogue."""
    tables = read_toml(path)
    raw = tables.get("limit", [])
    for key in tables:
        if key != "limit":
            raise SiteError(f"{key!r} is not known here; only [[limit]] tables are", where=str(path))
    if not isinstance(raw, list) or not all(isinstance(t, dict) for t in raw):
        raise SiteError("limit must be [[limit]] tables", where=str(path))
    return [_limit(table, number, str(path), from_site=False) for number, table in enumerate(raw, 1)]


def _limit(table: Mapping[str, Any], number: int, file: str, *, from_site: bool) -> Limit:
    def wrong(what: str, key: str = "") -> SiteError:
        return SiteError(f"[[limit]] number {number}: {what}", where=_where(file, number, key))

    for key in table:
        if key not in _KEYS:
            raise wrong(f"{key!r} is not known; known are {', '.join(sorted(_KEYS))}", key)
    plain = {"source": file, **table, "site": True} if from_site else dict(table)
    for key in ("check", "measurement", "unit", "source", *(() if from_site else ("date",))):
        if not isinstance(plain.get(key), str) or not plain[key].strip():
            raise wrong(f"lacks {key}", key)
    try:
        limit: Limit = from_plain(Limit, plain, where=file)
    except StoreError as exc:
        raise wrong(exc.what, exc.what.split(" ", 1)[0]) from exc
    problem = _problem(limit)
    if problem:
        raise wrong(problem)
    return limit


def _problem(limit: Limit) -> str:
    """Why no value could be judged rightly by it; "" when it is sound."""
    bounds = [b for b in (limit.min, limit.max) if b is not None]
    if not bounds:
        return "has neither min nor max"
    if not all(math.isfinite(b) and b >= 0 for b in bounds):
        return "min and max must be numbers that are not below zero"
    if limit.min is not None and limit.max is not None and limit.min > limit.max:
        return f"min {limit.min:g} is above max {limit.max:g}"
    if limit.unit not in UNITS:
        return f"unit {limit.unit!r} is not known; known are {', '.join(UNITS)}"
    if limit.unit in SIZED and limit.size_bytes is None:
        return f"a limit in {limit.unit} needs size_bytes: a bandwidth without its message size says nothing"
    if limit.unit in SIZED and not limit.min:
        return "a bandwidth needs min above zero: with less, a dead link would pass"
    if not 0 <= limit.tolerance <= MOST_TOLERANCE:
        return f"tolerance {limit.tolerance:g} is not within 0 and {MOST_TOLERANCE:g}"
    if any(n is not None and n < 1 for n in (limit.size_bytes, limit.ranks, limit.nodes)):
        return "size_bytes, ranks and nodes must be at least 1"
    return ""


def _where(file: str, number: int, key: str) -> str:
    """file:line of the n-th [[limit]], or of the key in it."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return file
    heads = [n for n, line in enumerate(lines, 1) if line.replace(" ", "").startswith("[[limit]]")]
    if number > len(heads):
        return file
    last = heads[number] - 1 if number < len(heads) else len(lines)
    inside = range(heads[number - 1], last + 1)
    hits = [n for n in inside if key and lines[n - 1].strip().startswith(key)]
    return f"{file}:{hits[0] if hits else heads[number - 1]}"


def for_measurement(limits: Sequence[Limit], check: str, measurement: Measurement,
                    hardware: str | Sequence[str] = (), simulated: bool = False) -> Limit | None:
    """The limit that judges this value: of those that fit, the most specific; the site's before the catalogue's.

    hardware: names of what the value is about (GPU model, NIC rate). Units must be equal, and limits of real hardware
    never judge simulated values, nor the reverse.
    """
    names = (hardware,) if isinstance(hardware, str) else tuple(hardware)
    fitting = [(_rank(limit), -place, limit) for place, limit in enumerate(limits)
               if limit.check == check and _fits(limit, measurement, names, simulated)]
    return max(fitting, key=lambda item: item[:2])[2] if fitting else None


def _fits(limit: Limit, m: Measurement, names: Sequence[str], simulated: bool) -> bool:
    return (limit.measurement == m.name and limit.unit == m.unit and limit.simulated == simulated
            and limit.size_bytes in (None, m.size_bytes)
            and limit.direction in (Direction.NONE, m.direction)
            and limit.ranks in (None, m.ranks) and limit.nodes in (None, m.nodes)
            and (not limit.hardware or any(_is(limit.hardware, name) for name in names)))


def _is(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name.casefold(), pattern.casefold())


def _rank(limit: Limit) -> tuple[bool, int]:
    """The site's own first, then by how much it is bound to."""
    bound = [limit.size_bytes, limit.ranks, limit.nodes, limit.hardware or None,
             None if limit.direction is Direction.NONE else limit.direction]
    return limit.site, sum(b is not None for b in bound)

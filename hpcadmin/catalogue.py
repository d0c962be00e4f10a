"""Limits: what a value must reach, with unit, message size, source and date. Ours (checks/limits) and the site's.

Beside them [[known]] figures: what was measured elsewhere, and what others take as their pass mark; they judge nothing.
Reading is strict: a limit without unit, source or bound, or with an unknown key, is a SiteError with file:line. The
source of a site's limit is the site's file, unless it says more; the lint remarks it.
"""

from __future__ import annotations

import fnmatch
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hpcadmin.check import Direction, Limit, Measurement
from hpcadmin.errors import SiteError, StoreError
from hpcadmin.records import from_plain
from hpcadmin.resources import data_dir
from hpcadmin.site import Site
from hpcadmin.toml_text import parse_toml, read_raw

# What a limit may be in: a GB/s never judges a Gb/s, so a unit that no check measures in is a mistake.
UNITS = ("Gb/s", "GB/s", "MB/s", "us", "s", "MiB", "%", "count", "TFLOP/s", "W", "C", "MHz", "ms", "msg/s", "Mpps",
         "errors/bit")
SIZED = ("Gb/s", "GB/s", "MB/s")          # bandwidths say nothing without the message size
MOST_TOLERANCE = 0.5
MEASURED, PASS_MARK = "measured", "pass mark"


@dataclass(frozen=True)
class Known:
    """A figure that somebody published. Empty fields: the source does not say."""

    check: str
    measurement: str
    value: float
    unit: str
    kind: str = MEASURED             # on a machine that was good, or the "pass mark" that another tool ships
    size_bytes: int | None = None
    direction: Direction = Direction.NONE
    ranks: int | None = None
    nodes: int | None = None
    hardware: str = ""               # as in Limit
    transport: str = ""
    versions: str = ""
    note: str = ""
    source: str = ""
    date: str = ""


@dataclass(frozen=True)
class Entry:
    """One table of a file, with the file:line where it begins."""

    record: Limit | Known
    file: str
    number: int
    where: str


_KEYS = {"limit": {f.name for f in fields(Limit)} - {"site"}, "known": {f.name for f in fields(Known)}}


def load_limits(site: Site, folder: Path | None = None) -> tuple[Limit, ...]:
    """The site's limits, then the catalogue's. Raises SiteError with file:line for the first one that is wrong."""
    found = [*_limits(site_entries(site))]
    for path in catalogue_files(folder):
        found += read_limits(path)
    return tuple(found)


def load_known(folder: Path | None = None) -> tuple[Known, ...]:
    """The published figures of the catalogue."""
    found = [_first(item) for path in catalogue_files(folder) for item in read_entries(path)]
    return tuple(e.record for e in found if isinstance(e.record, Known))


def catalogue_files(folder: Path | None = None) -> list[Path]:
    return sorted((folder or data_dir("checks") / "limits").glob("*.toml"))


def read_limits(path: Path) -> list[Limit]:
    """The limits in one file of the catalogue."""
    return list(_limits(read_entries(path)))


def read_entries(path: Path) -> Iterator[Entry | SiteError]:
    """Every table in one file of the catalogue, or what is wrong with it."""
    yield from _entries_of(str(path), read_raw(path))


@functools.lru_cache(maxsize=256)       # by the content: limits, figures and lint all ask for the same files
def _entries_of(file: str, raw: bytes) -> tuple[Entry | SiteError, ...]:
    tables = parse_toml(raw, file)
    for key in tables:
        if key not in _KEYS:
            raise SiteError(f"{key!r} is not known here; only [[limit]] and [[known]] tables are", where=file)
    lines = _Lines(file)
    return tuple(entry for kind in _KEYS for entry in _entries(tables.get(kind, []), kind, lines, from_site=False))


def site_entries(site: Site) -> Iterator[Entry | SiteError]:
    """Every [[limit]] of the site's own file, or what is wrong with it."""
    yield from _entries(list(site.limits), "limit", _Lines(site.source or "site.toml"), from_site=True)


def _limits(items: Iterator[Entry | SiteError]) -> Iterator[Limit]:
    for entry in map(_first, items):
        if isinstance(entry.record, Limit):
            yield entry.record


def _first(item: Entry | SiteError) -> Entry:
    if isinstance(item, SiteError):
        raise item
    return item


def _entries(raw: Any, kind: str, lines: _Lines, *, from_site: bool) -> Iterator[Entry | SiteError]:
    if not isinstance(raw, list) or not all(isinstance(t, dict) for t in raw):
        raise SiteError(f"{kind} must be [[{kind}]] tables", where=lines.file)
    for number, table in enumerate(raw, 1):
        try:
            record = _record(table, kind, number, lines, from_site=from_site)
        except SiteError as exc:
            yield exc
        else:
            yield Entry(record, lines.file, number, lines.where(kind, number))


def _record(table: Mapping[str, Any], kind: str, number: int, lines: _Lines, *, from_site: bool) -> Limit | Known:
    def wrong(what: str, key: str = "") -> SiteError:
        return SiteError(f"[[{kind}]] number {number}: {what}", where=lines.where(kind, number, key))

    for key in table:
        if key not in _KEYS[kind]:
            raise wrong(f"{key!r} is not known; known are {', '.join(sorted(_KEYS[kind]))}", key)
    plain = {"source": lines.file, **table, "site": True} if from_site else dict(table)
    for key in ("check", "measurement", "unit", "source", *(() if from_site else ("date",))):
        if not isinstance(plain.get(key), str) or not plain[key].strip():
            raise wrong(f"lacks {key}", key)
    try:
        record: Limit | Known = from_plain(Limit if kind == "limit" else Known, plain, where=lines.file)
    except StoreError as exc:
        raise wrong(exc.what, exc.what.split(" ", 1)[0]) from exc
    problem = _problem(record) if isinstance(record, Limit) else _known_problem(record)
    if problem:
        raise wrong(problem)
    return record


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
    if limit.memory not in ("", "host", "GPU"):
        return f"memory {limit.memory!r} is neither 'host' nor 'GPU'"
    if not 0 <= limit.tolerance <= MOST_TOLERANCE:
        return f"tolerance {limit.tolerance:g} is not within 0 and {MOST_TOLERANCE:g}"
    if any(n is not None and n < 1 for n in (limit.size_bytes, limit.ranks, limit.nodes)):
        return "size_bytes, ranks and nodes must be at least 1"
    return ""


def _known_problem(known: Known) -> str:
    if not math.isfinite(known.value) or known.value <= 0:
        return "value must be a number above zero"
    if known.unit not in UNITS:
        return f"unit {known.unit!r} is not known; known are {', '.join(UNITS)}"
    if known.kind not in (MEASURED, PASS_MARK):
        return f"kind {known.kind!r} is not known; known are {MEASURED!r} and {PASS_MARK!r}"
    if any(n is not None and n < 1 for n in (known.size_bytes, known.ranks, known.nodes)):
        return "size_bytes, ranks and nodes must be at least 1"
    return ""


class _Lines:
    """Where the tables of a file begin, and where a key of one stands."""

    def __init__(self, file: str) -> None:
        self.file = file
        try:
            self._lines = Path(file).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            self._lines = []
        self._heads: dict[str, list[int]] = {kind: [] for kind in _KEYS}
        for number, line in enumerate(self._lines):
            if line.lstrip().startswith("[["):
                kind = line.split("]")[0].strip("[ \t").strip("\"'")
                self._heads.get(kind, []).append(number)

    def where(self, kind: str, number: int, key: str = "") -> str:
        """file:line of the n-th table of this kind, or of the key in it."""
        heads = self._heads[kind]
        if number > len(heads):                    # limit = [{…}, {…}]
            inline = [n for n, line in enumerate(self._lines, 1) if line.split("=")[0].strip() == kind and "=" in line]
            return f"{self.file}:{inline[0]}" if inline else self.file
        head = heads[number - 1]
        for place in range(head + 1, len(self._lines)):
            line = self._lines[place].strip()
            if not key or line.startswith("["):
                break
            if line.split("=")[0].strip(" \t\"'") == key:
                return f"{self.file}:{place + 1}"
        return f"{self.file}:{head + 1}"


def for_measurement(limits: Sequence[Limit], check: str, measurement: Measurement,
                    hardware: str | Sequence[str] = (), simulated: bool = False) -> Limit | None:
    """The limit that judges this value: of those that fit, the most specific; the site's before the catalogue's.

    hardware: names of what the value is about (GPU model, NIC rate). Units must be equal, and limits of real hardware
    never judge simulated values, nor the reverse.
    """
    names = (hardware,) if isinstance(hardware, str) else tuple(hardware)
    fitting = [(specific(limit), -place, limit) for place, limit in enumerate(limits)
               if limit.check == check and _fits(limit, measurement, names, simulated)]
    return max(fitting, key=lambda item: item[:2])[2] if fitting else None


def _fits(limit: Limit, m: Measurement, names: Sequence[str], simulated: bool) -> bool:
    return (limit.measurement == m.name and limit.unit == m.unit and limit.simulated == simulated
            and limit.size_bytes in (None, m.size_bytes)
            and limit.direction in (Direction.NONE, m.direction)
            and limit.ranks in (None, m.ranks) and limit.nodes in (None, m.nodes)
            and (not limit.transport or m.transport.casefold().startswith(limit.transport.casefold()))
            and (not limit.memory or (limit.memory == "GPU") is in_gpu_memory(m))
            and (not limit.hardware or any(is_hardware(limit.hardware, name) for name in names)))


def in_gpu_memory(m: Measurement) -> bool:
    """Whether one of the buffers is: "GPU memory (NVIDIA H100 80GB HBM3)" of perftest, "DEVICE" of OSU's programs."""
    words = m.binding.casefold()
    return words[:1] == "d" or any(word in words for word in ("gpu", "cuda", "rocm", "device", "managed"))


def is_hardware(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name.casefold(), pattern.casefold())


def specific(limit: Limit) -> tuple[bool, int, bool, int]:
    """Of the limits that fit a value, the one with the highest of these judges it: the site's own first, then by how
    much it is bound to, a GPU model before a port's rate, and the longer pattern before the shorter."""
    bound = [limit.size_bytes, limit.ranks, limit.nodes, limit.hardware or None, limit.transport or None,
             limit.memory or None, None if limit.direction is Direction.NONE else limit.direction]
    pattern = limit.hardware
    literal = sum(c not in "*?[]" for c in pattern) + (1000 if pattern and not set("*?[") & set(pattern) else 0)
    return limit.site, sum(b is not None for b in bound), bool(pattern) and "gb/sec" not in pattern.casefold(), literal

"""criteria.toml: the numbered items of a contract, each with what shows that it is met; and [[waiver]] tables.

Reading is strict: what could be misunderstood is a SiteError with file:line. A criterion says exactly one of
  checks                       all tests of these checks passed
  checks and measurement       every value of it is within min and max, in the same unit and at the same message size
  coverage                     so many percent of nodes, GPUs, ports, paths were tested
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hpcadmin import coverage
from hpcadmin.catalogue import SIZED, UNITS
from hpcadmin.check import Direction
from hpcadmin.errors import SiteError, StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.hosts import expand
from hpcadmin.records import from_plain
from hpcadmin.text import did_you_mean
from hpcadmin.toml_text import parse_toml

KINDS = {"nodes": coverage.NODES, "gpus": coverage.GPUS, "ports": coverage.PORTS, "paths": coverage.PATHS}
MAX_BYTES = 1024 * 1024
GENERAL = ("G1", "G2", "G3", "G4")     # conditions that hold for every run: see assess
WAIVABLE = GENERAL[2:]


@dataclass(frozen=True)
class Contract:
    title: str = ""
    number: str = ""
    customer: str = ""
    vendor: str = ""


@dataclass(frozen=True)
class Criterion:
    """percent: so many of the values, or of the tests, must be good. coverage: by KINDS, in percent."""

    number: str
    text: str
    checks: tuple[str, ...] = ()
    measurement: str = ""
    unit: str = ""
    min: float | None = None
    max: float | None = None
    size_bytes: int | None = None
    direction: Direction = Direction.NONE
    nodes: int | None = None
    percent: float = 100.0
    coverage: Mapping[str, float] = field(default_factory=dict)
    where: str = ""                   # file:line; "": it is one of the general conditions


@dataclass(frozen=True)
class Waiver:
    """What a customer lets pass, for a while. Empty fields: of any check, node or device, and of any criterion.

    until: the last day on which it counts. It covers a criterion as a whole, or bad results of a check, of nodes.
    """

    name: str
    who: str
    reason: str
    until: datetime.date
    granted: datetime.date | None = None
    criterion: str = ""
    check: str = ""
    nodes: tuple[str, ...] = ()
    device: str = ""
    where: str = ""

    def counts(self, today: datetime.date) -> bool:
        return today <= self.until and (self.granted is None or self.granted <= today)


@dataclass(frozen=True)
class Terms:
    """The content of criteria files."""

    contract: Contract = field(default_factory=Contract)
    criteria: tuple[Criterion, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    files: tuple[tuple[str, str], ...] = ()        # name and SHA-256 of each


def read_terms(paths: Sequence[Path], checks: Collection[str] = ()) -> Terms:
    """Of all files together. checks: the names that are known; () leaves names unchecked.

    Raises SiteError with file:line for the first thing that is wrong.
    """
    made = Terms()
    for path in paths:
        try:
            raw = read_bounded(path, limit=MAX_BYTES + 1)
        except StoreError as exc:
            raise SiteError(exc.what, where=exc.where) from exc
        if len(raw) > MAX_BYTES:
            raise SiteError(f"is larger than {MAX_BYTES} bytes", where=str(path))
        one = parse_terms(raw, str(path), checks)
        if one.contract != Contract() and made.contract != Contract():
            raise SiteError("a second [contract]: one of the files has it already", where=str(path))
        made = Terms(made.contract if made.contract != Contract() else one.contract, made.criteria + one.criteria,
                     made.waivers + one.waivers, (*made.files, (path.name, hashlib.sha256(raw).hexdigest())))
    _no_doubles(made)
    return made


def parse_terms(raw: bytes, name: str, checks: Collection[str] = ()) -> Terms:
    tables = parse_toml(raw, name)
    lines = _Lines(raw.decode("utf-8"), name)
    for key in tables:
        if key not in ("contract", "criterion", "waiver"):
            raise SiteError(f"{key!r} is not known here; known are [contract], [[criterion]] and [[waiver]]",
                            where=lines.of_key(key))
    contract = tables.get("contract", {})
    if not isinstance(contract, dict):
        raise SiteError("contract must be a table, [contract]", where=lines.of_key("contract"))
    head = _record(Contract, contract, lambda key="": lines.of_table("contract", 1, key), "[contract]")
    return Terms(head, tuple(_criterion(table, number, lines, checks)
                             for number, table in enumerate(_tables(tables, "criterion", lines), 1)),
                 tuple(_waiver(table, number, lines, checks)
                       for number, table in enumerate(_tables(tables, "waiver", lines), 1)))


def _tables(tables: Mapping[str, Any], kind: str, lines: _Lines) -> list[Any]:
    found = tables.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
        raise SiteError(f"{kind} must be [[{kind}]] tables", where=lines.of_key(kind))
    return found


def _record(cls: Any, table: Mapping[str, Any], where: Any, title: str) -> Any:
    known = {f.name for f in fields(cls)} - {"where"}
    for key in table:
        if key not in known:
            raise SiteError(f"{title}: {key!r} is not known; known are {', '.join(sorted(known))}", where=where(key))
    try:
        return from_plain(cls, dict(table), where="")
    except StoreError as exc:
        what = exc.what.replace(f"{cls.__name__} ", "")
        raise SiteError(f"{title}: {what}", where=where(exc.what.split(" ", 1)[0].split("[", 1)[0])) from exc


def _criterion(table: Mapping[str, Any], number: int, lines: _Lines, checks: Collection[str]) -> Criterion:
    def where(key: str = "") -> str:
        return lines.of_table("criterion", number, key)
    title = f"[[criterion]] number {number}"
    plain = dict(table)
    for key in ("min", "max", "percent"):
        if isinstance(plain.get(key), bool):
            raise SiteError(f"{title}: {key} must be a number", where=where(key))
    if isinstance(plain.get("number"), (int, float)) and not isinstance(plain["number"], bool):
        raise SiteError(f"{title}: number must be a string, as \"3.10\": 3.10 would be 3.1", where=where("number"))
    made: Criterion = _record(Criterion, plain, where, title)
    problem = _criterion_problem(made) or _unknown_check(made.checks, checks, "checks")
    if problem:
        raise SiteError(f"{title}: {problem[1]}", where=where(problem[0]))
    return replace(made, where=where())


def _unknown_check(names: Sequence[str], known: Collection[str], key: str) -> tuple[str, str] | None:
    for name in names:
        if known and name not in known:
            return key, f"there is no check {name!r} ({did_you_mean(name, known, 'hpcadmin checks list')})"
    return None


def _criterion_problem(made: Criterion) -> tuple[str, str] | None:
    """(key, what is wrong with it), or None where it is sound."""
    for key in ("number", "text"):
        if not getattr(made, key).strip():
            return key, f"lacks {key}"
    if made.number in GENERAL:
        return "number", f"{made.number} is one of the general conditions; a criterion needs another number"
    if bool(made.checks) == bool(made.coverage):
        return "checks", "needs either checks or coverage"
    if len(set(made.checks)) < len(made.checks):
        return "checks", "names a check twice"
    if not (math.isfinite(made.percent) and 0 < made.percent <= 100):
        return "percent", "percent must be above 0 and at most 100"
    for kind, share in made.coverage.items():
        if kind not in KINDS:
            return "coverage", f"coverage of {kind!r} is not known; known are {', '.join(KINDS)}"
        if isinstance(share, bool) or not (math.isfinite(share) and 0 < share <= 100):
            return "coverage", f"coverage of {kind} must be above 0 and at most 100 percent"
    return _measured_problem(made) if made.measurement else _plain_problem(made)


def _plain_problem(made: Criterion) -> tuple[str, str] | None:
    for key in ("unit", "min", "max", "size_bytes", "nodes"):
        if getattr(made, key) not in ("", None):
            return key, f"{key} without measurement: of which value?"
    if made.direction is not Direction.NONE:
        return "direction", "direction without measurement: of which value?"
    if made.coverage and made.percent != 100:
        return "percent", "percent stands with each kind in coverage"
    return None


def _measured_problem(made: Criterion) -> tuple[str, str] | None:
    if made.coverage:
        return "measurement", "measurement and coverage are two criteria"
    bounds = [b for b in (made.min, made.max) if b is not None]
    if not bounds:
        return "measurement", "has neither min nor max"
    if not all(math.isfinite(b) and b >= 0 for b in bounds) or (len(bounds) == 2 and bounds[0] > bounds[1]):
        return "min", "min and max must be numbers that are not below zero, min not above max"
    if made.unit not in UNITS:
        return "unit", f"unit {made.unit!r} is not known; known are {', '.join(UNITS)}"
    if made.unit in SIZED and made.size_bytes is None:
        return "size_bytes", f"a limit in {made.unit} needs size_bytes: a bandwidth without its size says nothing"
    if made.unit in SIZED and not made.min:
        return "min", "a bandwidth needs min above zero: with less, a dead link would be good"
    if any(n is not None and n < 1 for n in (made.size_bytes, made.nodes)):
        return "size_bytes", "size_bytes and nodes must be at least 1"
    return None


def _waiver(table: Mapping[str, Any], number: int, lines: _Lines, checks: Collection[str]) -> Waiver:
    def where(key: str = "") -> str:
        return lines.of_table("waiver", number, key)
    title = f"[[waiver]] number {number}"
    plain = dict(table)
    days: dict[str, datetime.date] = {}
    for key in ("until", "granted"):
        if key in plain:
            days[key] = _day(plain.pop(key), key, title, where)
    if "until" not in days:
        raise SiteError(f"{title}: lacks until, the last day on which it counts", where=where())
    if isinstance(plain.get("nodes"), str):
        try:
            plain["nodes"] = expand(plain["nodes"])
        except UsageError as exc:
            raise SiteError(f"{title}: nodes: {exc}", where=where("nodes")) from exc
    made: Waiver = _record(_Waived, plain, where, title)
    for key in ("name", "who", "reason"):
        if not getattr(made, key).strip():
            raise SiteError(f"{title}: lacks {key}", where=where(key))
    problem = _unknown_check((made.check,) if made.check else (), checks, "check")
    if not (made.criterion or made.check or made.nodes):
        problem = "name", "lacks what it is about: criterion, check or nodes"
    elif made.device and not made.nodes:
        problem = "device", "device without nodes: of which node?"
    elif days.get("granted", days["until"]) > days["until"]:
        problem = "until", "until is before granted"
    if problem:
        raise SiteError(f"{title}: {problem[1]}", where=where(problem[0]))
    return Waiver(made.name, made.who, made.reason, days["until"], days.get("granted"), made.criterion, made.check,
                  made.nodes, made.device, where())


@dataclass(frozen=True)
class _Waived:
    """A waiver without its days, which TOML has a type of its own for."""

    name: str
    who: str
    reason: str
    criterion: str = ""
    check: str = ""
    nodes: tuple[str, ...] = ()
    device: str = ""


def _day(value: Any, key: str, title: str, where: Any) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if isinstance(value, str):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise SiteError(f"{title}: {key} must be a day, as 2027-03-31", where=where(key))


def _no_doubles(terms: Terms) -> None:
    for what, items in (("criterion", [(c.number, c.where) for c in terms.criteria]),
                        ("waiver", [(w.name, w.where) for w in terms.waivers])):
        seen: dict[str, str] = {}
        for name, where in items:
            if name in seen:
                raise SiteError(f"{what} {name!r} stands there twice, first at {seen[name]}", where=where)
            seen[name] = where
    known = {*(c.number for c in terms.criteria), *WAIVABLE}
    for waiver in terms.waivers:
        if waiver.criterion and waiver.criterion not in known:
            raise SiteError(f"waiver {waiver.name!r}: there is no criterion {waiver.criterion!r} that can be waived",
                            where=waiver.where)


class _Lines:
    """Where tables and their keys stand in a file."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._lines = text.split("\n")

    def of_key(self, key: str) -> str:
        for number, line in enumerate(self._lines, 1):
            stripped = line.strip()
            if stripped.startswith("["):
                if stripped.strip("[] ").split(".")[0].strip("\"' ") == key:
                    return f"{self._name}:{number}"
            elif stripped.split("=")[0].strip("\"' ") == key and "=" in stripped:
                return f"{self._name}:{number}"
        return self._name

    def of_table(self, kind: str, which: int, key: str = "") -> str:
        heads = [n for n, line in enumerate(self._lines)
                 if line.strip().startswith("[") and line.split("#")[0].strip().strip("[]").strip("\"' ") == kind]
        if which > len(heads):
            return self.of_key(kind)
        head = heads[which - 1]
        for place in range(head + 1, len(self._lines)):
            line = self._lines[place].strip()
            if not key or line.startswith("["):
                if line.strip("[] ").startswith(f"{kind}.{key}") and key:
                    return f"{self._name}:{place + 1}"
                break
            if line.split("=")[0].split(".")[0].strip("\"' ") == key:
                return f"{self._name}:{place + 1}"
        return f"{self._name}:{head + 1}"

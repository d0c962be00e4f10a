"""ORDER.toml and the cable plan beside it. Reading is strict; every error names file and line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hpcadmin import hosts, records
from hpcadmin.errors import SiteError, StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.order import _plan
from hpcadmin.order._lines import Lines
from hpcadmin.order._records import (
    CpuOrder,
    DiskOrder,
    GpuOrder,
    GroupOrder,
    MemoryOrder,
    NicOrder,
    Order,
)
from hpcadmin.toml_text import MAX_TOML_BYTES, parse_toml

_LISTS: Mapping[str, Any] = {"gpus": GpuOrder, "nics": NicOrder, "disks": DiskOrder}
_TABLES: Mapping[str, Any] = {"cpu": CpuOrder, "memory": MemoryOrder}
_KINDS = ("InfiniBand", "RoCE", "Ethernet")


def load(path: Path) -> Order:
    """Raises SiteError with file:line of whatever is wrong in ORDER.toml or its cable plan."""
    raw = _bytes(path)
    return _Reader(Lines(str(path), raw.decode("utf-8", "replace")), path).order(parse_toml(raw, str(path)))


def _bytes(path: Path) -> bytes:
    try:
        raw = read_bounded(path, limit=MAX_TOML_BYTES + 1)
    except StoreError as exc:
        raise SiteError(exc.what, where=exc.where) from exc
    if len(raw) > MAX_TOML_BYTES:
        raise SiteError(f"is larger than {MAX_TOML_BYTES} bytes", where=str(path))
    return raw


class _Reader:
    def __init__(self, lines: Lines, path: Path) -> None:
        self.lines = lines
        self.path = path

    def order(self, tables: Mapping[str, Any]) -> Order:
        self.only(tables, ("title", "cables", "groups"), ())
        groups = self.table(tables.get("groups", {}), ("groups",))
        found = tuple(self.group(name, self.table(table, ("groups", name))) for name, table in groups.items())
        cable_file = self.text(tables, "cables")
        if not found and not cable_file:
            raise SiteError("orders nothing: neither [groups.NAME] nor a cable plan", where=str(self.path))
        self.overlaps(found)
        cables = None
        if cable_file:
            plan = self.path.parent / cable_file
            cables = _plan.read(_bytes(plan), str(plan))
        return Order(source=str(self.path), title=self.text(tables, "title"), groups=found, cables=cables,
                     cable_file=cable_file)

    def group(self, name: str, table: Mapping[str, Any]) -> GroupOrder:
        path = ("groups", name)
        self.only(table, [item.name for item in fields(GroupOrder) if item.name != "name"], path)
        values: dict[str, Any] = {"name": name}
        for key, value in table.items():
            if key == "hosts":
                values[key] = list(self.hosts(value, (*path, key)))
            elif key in _LISTS:
                values[key] = self.entries(_LISTS[key], value, (*path, key))
            elif key in _TABLES:
                self.record(_TABLES[key], self.table(value, (*path, key)), (*path, key))
                values[key] = value
            else:
                values[key] = value
        found: GroupOrder = self.record(GroupOrder, {**values, **{key: [] for key in _LISTS if key in values}}, path)
        found = replace(found, **{key: values[key] for key in _LISTS if key in values})
        self.sound(found, path)
        return found

    def entries(self, cls: Any, value: Any, path: tuple[str, ...]) -> tuple[Any, ...]:
        """[[groups.x.nics]] tables, or a single one."""
        given = [value] if isinstance(value, dict) else value
        if not isinstance(given, list):
            raise self.error(path, f"must be [[{'.'.join(path)}]] tables")
        return tuple(self.record(cls, self.table(item, (*path, number)), (*path, number))
                     for number, item in enumerate(given))

    def record(self, cls: Any, table: Mapping[str, Any], path: Sequence[str | int]) -> Any:
        self.only(table, [item.name for item in fields(cls)], path)
        for key, value in table.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                low = 0 if key in ("count", "dimms", "nvlinks") else 1e-9
                if not (math.isfinite(value) and low <= value <= 1e9):
                    raise self.error((*path, key), f"is {value}, which nobody can order")
        try:
            return records.from_plain(cls, dict(table), where=str(self.path))
        except StoreError as exc:
            key = exc.what.split(" ", 1)[0].split("[", 1)[0].split(".", 1)[0]
            place = (*path, key) if key in table else tuple(path)
            raise self.error(place, exc.what.replace(f"{cls.__name__} ", ""), named=True) from exc

    def sound(self, group: GroupOrder, path: tuple[str, ...]) -> None:
        if not group.hosts and group.count is None:
            raise self.error(path, "needs hosts or count")
        if group.hosts and group.count not in (None, len(group.hosts)):
            raise self.error((*path, "count"), f"is {group.count}, and hosts are {len(group.hosts)} nodes")
        for part in group.more_allowed:
            if part not in _LISTS:
                raise self.error((*path, "more_allowed"), f"names {part!r}, known are {', '.join(_LISTS)}")
        for number, nic in enumerate(group.nics or ()):
            if nic.kind and nic.kind not in _KINDS:
                raise self.error((*path, "nics", number, "kind"), f"is {nic.kind!r}, not one of {', '.join(_KINDS)}")
        serials = [*group.serials, *group.serial_of.values()]
        twice = next((serial for serial in serials if serials.count(serial) > 1), None) if serials else None
        if twice is not None:
            raise self.error((*path, "serials" if group.serials else "serial_of"), f"has {twice!r} twice")
        if len(group.serials) > group.size:
            raise self.error((*path, "serials"), f"are {len(group.serials)} for {group.size} nodes")
        for node in group.serial_of:
            if group.hosts and node not in group.hosts:
                raise self.error((*path, "serial_of", node), "is not one of the group's hosts")

    def overlaps(self, groups: Sequence[GroupOrder]) -> None:
        of: dict[str, str] = {}
        for group in groups:
            for node in group.hosts:
                if node in of:
                    raise self.error(("groups", group.name, "hosts"), f"has {node}, which is in {of[node]} as well")
                of[node] = group.name

    def hosts(self, value: Any, path: tuple[str, ...]) -> list[str]:
        if not isinstance(value, str):
            raise self.error(path, "must be a hostlist, as \"gpu[01-64]\"")
        try:
            return hosts.expand(value)
        except UsageError as exc:
            raise self.error(path, exc.what) from exc

    def only(self, table: Mapping[str, Any], known: Sequence[str], path: Sequence[str | int]) -> None:
        for key in table:
            if key not in known:
                raise self.error((*path, key), f"is not known here; known are {', '.join(known)}")

    def table(self, value: Any, path: Sequence[str | int]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.error(path, "must be a table")
        return value

    def text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            raise self.error((key,), "must be a text")
        return value

    def error(self, path: Sequence[str | int], what: str, *, named: bool = False) -> SiteError:
        name = ".".join(str(part) for part in path)
        return SiteError(f"[{name}] {what}" if named else f"{name} {what}", where=self.lines.where(*path))

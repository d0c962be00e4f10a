"""Equal values of many nodes as one object: ten thousand nodes of one kind have one CPU between them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

from hpcadmin.model import Dimm, Disk, Gpu, Nic, Node

T = TypeVar("T")
_MAX_TEXTS = 4096                # different texts of one field that are worth keeping
# Parts that nodes have in common as a whole, and parts whose items are each node's own.
_WHOLE = ("cpu", "gpu_links", "pci", "mounts", "unknown", "bmc", "settings", "versions", "tools")
_RECORDS = ("gpus", "nics", "dimms", "disks")
_TEXTS = ("vendor", "product", "bios", "os", "kernel", "gpu_driver", "slurm_version", "simulated", "bios_date",
          "command_line", "time_sync")


class Pool:
    """Give it each node as it comes, and keep what it returns."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._texts: dict[tuple[type, str], dict[str, str]] = {}

    def node(self, node: Node) -> Node:
        """The same node, made of values that others have as well."""
        changes: dict[str, Any] = {name: self._shared(getattr(node, name)) for name in _WHOLE}
        changes |= {name: tuple(map(self._record, getattr(node, name))) for name in _RECORDS}
        changes |= {name: self._text((Node, name), getattr(node, name)) for name in _TEXTS}
        return replace(node, **changes)

    def _shared(self, value: T) -> T:
        """Tables are no keys: their items are."""
        key: Hashable = (type(value), tuple(value.items())) if isinstance(value, dict) else value
        try:
            return self._values.setdefault(key, value)  # type: ignore[no-any-return]
        except TypeError:
            return value

    def _record(self, record: T) -> T:
        changes: dict[str, Any] = {}
        kind: Any = type(record)
        texts, tuples = _shareable(kind)
        for name in texts:
            text = getattr(record, name)
            if text and (shared := self._text((kind, name), text)) is not text:
                changes[name] = shared
        for name in tuples:
            value = getattr(record, name)
            if value and (known := self._shared(value)) is not value:
                changes[name] = known
        return replace(record, **changes) if changes else record  # type: ignore[type-var]

    def _text(self, place: tuple[type, str], text: str) -> str:
        pool = self._texts.setdefault(place, {})
        known = pool.get(text)
        if known is None:
            known = text
            if len(pool) < _MAX_TEXTS:
                pool[text] = text
        return known


# What is each device's own, and in no pool.
_OWN = frozenset({"uuid", "serial", "guid", "port_guid", "mac", "description"})


@cache
def _shareable(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names of texts, names of tuples) of a record."""
    assert cls in (Gpu, Nic, Dimm, Disk)  # noqa: S101
    known = fields(cls)
    return (tuple(item.name for item in known if item.type == "str" and item.name not in _OWN),
            tuple(item.name for item in known if str(item.type).startswith("tuple")))

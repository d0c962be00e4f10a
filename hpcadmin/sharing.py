"""Equal values of many nodes as one object: ten thousand nodes of one kind have one CPU between them. On its way from
another process, too: what was sent once is only named again."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeVar

from hpcadmin.model import Core, Dimm, Disk, Gpu, MigDevice, Mount, Nic, Node, NumaNode, PciDevice, Source

T = TypeVar("T")
_MAX_TEXTS = 4096                # different texts of one field that are worth keeping
# Parts that nodes have in common as a whole, and parts whose items are each node's own.
_WHOLE = ("cpu", "gpu_links", "pci", "mounts", "unknown", "bmc", "settings", "versions", "tools", "problems")
_RECORDS = ("gpus", "nics", "dimms", "disks")
_PARTS = (*_WHOLE, *_RECORDS)
_TEXTS = ("vendor", "product", "bios", "os", "kernel", "gpu_driver", "slurm_version", "simulated", "bios_date",
          "command_line", "time_sync")


@dataclass(frozen=True)
class Parcel:
    """A node for another process. parts: the digest of each of its large parts; new: the pickles of those that this
    process has not sent before."""

    rest: bytes
    parts: Mapping[str, bytes]
    new: Mapping[bytes, bytes] = field(default_factory=dict)


class Packer:
    """Of the process that sends; what it has sent must be unpacked in the order in which it was packed."""

    def __init__(self) -> None:
        self._sent: set[bytes] = set()

    def pack(self, node: Node) -> Parcel:
        parts: dict[str, bytes] = {}
        new: dict[bytes, bytes] = {}
        for name, empty in _empty().items():
            value = getattr(node, name)
            if value == empty:
                continue
            raw = _pickled(value)
            parts[name] = digest = blake2b(raw, digest_size=16).digest()
            if digest not in self._sent:
                self._sent.add(digest)
                new[digest] = raw
        return Parcel(_pickled(replace(node, **_empty())), parts, new)


def _pickled(value: Any) -> bytes:
    """Records with slots by their values: how dataclasses pickle them by themselves takes four times as long."""
    into = io.BytesIO()
    pickler = pickle.Pickler(into, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _reducers()
    pickler.dump(value)
    return into.getvalue()


@cache
def _reducers() -> dict[type, Callable[[Any], Any]]:
    def reducer(kind: Any) -> Callable[[Any], Any]:
        get = attrgetter(*(item.name for item in fields(kind)))
        return lambda record: (kind, get(record))

    return {kind: reducer(kind) for kind in (Core, NumaNode, MigDevice, Gpu, Nic, PciDevice, Dimm, Disk, Mount, Source)}


class Pool:
    """Give it each node as it comes, and keep what it returns."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._ours: dict[int, Any] = {}          # by identity: what it has given out
        self._texts: dict[tuple[type, str], dict[str, str]] = {}
        self._sent: dict[bytes, Any] = {}

    def node(self, node: Node) -> Node:
        """The same node, made of values that others have as well."""
        changes = {name: self._part(name, getattr(node, name)) for name in _PARTS}
        changes |= {name: self._text((Node, name), getattr(node, name)) for name in _TEXTS}
        return replace(node, **changes)

    def unpack(self, parcel: Parcel) -> Node:
        """The node, and its values kept."""
        for digest, raw in parcel.new.items():
            if digest not in self._sent:
                name = next(name for name, used in parcel.parts.items() if used == digest)
                self._sent[digest] = self._part(name, pickle.loads(raw))  # noqa: S301  (of a process of ours)
        node: Node = pickle.loads(parcel.rest)  # noqa: S301
        changes = {name: self._sent[digest] for name, digest in parcel.parts.items()}
        changes |= {name: self._text((Node, name), getattr(node, name)) for name in _TEXTS}
        return replace(node, **changes)

    def _part(self, name: str, value: Any) -> Any:
        if id(value) in self._ours:
            return value
        found = tuple(map(self._record, value)) if name in _RECORDS else self._shared(value)
        self._ours[id(found)] = found
        return found

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
        texts, tuples, own = _shareable(kind)
        for name in texts:
            text = getattr(record, name)
            if text and (shared := self._text((kind, name), text)) is not text:
                changes[name] = shared
        for name in tuples:
            value = getattr(record, name)
            if value and (known := self._shared(value)) is not value:
                changes[name] = known
        found = replace(record, **changes) if changes else record  # type: ignore[type-var]
        return found if any(getattr(found, name) for name in own) else self._shared(found)

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
def _shareable(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(names of texts, names of tuples, names of what is each one's own) of a record."""
    assert cls in (Gpu, Nic, Dimm, Disk)  # noqa: S101
    known = fields(cls)
    return (tuple(item.name for item in known if item.type == "str" and item.name not in _OWN),
            tuple(item.name for item in known if str(item.type).startswith("tuple")),
            tuple(item.name for item in known if item.name in _OWN))


@cache
def _empty() -> dict[str, Any]:
    """The parts of a node of which nothing is known."""
    return {item.name: item.default_factory() if item.default_factory is not MISSING else item.default
            for item in fields(Node) if item.name in _PARTS}

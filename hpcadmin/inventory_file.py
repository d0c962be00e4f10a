"""The file of an inventory: a line a node, so that ten thousand nodes are never one text in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcadmin import records
from hpcadmin.errors import StoreError
from hpcadmin.files import read_lines, read_whole, write_atomic_parts
from hpcadmin.model import INVENTORY_SCHEMA, Cpu, Inventory, Mount, Node, PciDevice

# What nodes have in common: one object for all of them.
_SHARED: tuple[Any, ...] = (
    Cpu, tuple[PciDevice, ...], tuple[Mount, ...], tuple[int, ...], tuple[str, ...], tuple[tuple[str, ...], ...],
    Mapping[str, str],
)
_NODES = ',"nodes":['


def save(path: Path, inventory: Inventory) -> None:
    """One line a node, without the fields that have their default value: ten thousand nodes are a large file."""
    write_atomic_parts(path, _lines(inventory))


def _lines(inventory: Inventory) -> Iterator[str]:
    rest = records.to_plain(replace(inventory, nodes=()), sparse=True)
    for name in ("nodes", "schema", "created"):
        rest.pop(name, None)
    yield records.dumps({"schema": inventory.schema, "created": inventory.created})[:-1] + _NODES + "\n"
    last = len(inventory.nodes) - 1
    writer = records.Writer()
    for number, node in enumerate(inventory.nodes):
        yield writer.dumps(node) + (",\n" if number < last else "\n")
    yield f"]{',' if rest else ''}{records.dumps(rest)[1:]}\n"


def load(path: Path) -> Inventory:
    """Raises StoreError naming the file when it is missing, damaged or of another schema."""
    with records.without_gc():
        return _load_lines(path) or _check_schema(_load_whole(path), path)


def _load_whole(path: Path) -> Inventory:
    """However the JSON is laid out."""
    raw = read_whole(path)
    found: Inventory = records.Reader(_SHARED).loads(Inventory, raw.decode("utf-8", "replace"), where=str(path))
    return found


def _load_lines(path: Path) -> Inventory | None:
    """An inventory as `save` writes it, node by node; None when it is laid out in another way."""
    reader = records.Reader(_SHARED)
    nodes: list[Node] = []
    head, tail, more = "", "", True
    for number, raw in enumerate(read_lines(path), 1):
        line = raw.decode("utf-8", "replace").rstrip("\n")
        if number == 1:
            if not line.endswith(_NODES):
                return None
            head = line
            _check_schema(reader.loads(Inventory, f"{head}]}}", where=f"{path}:1"), path)
        elif tail:
            return None
        elif line.startswith("]") and not (more and nodes):
            tail = line
        elif line.startswith("]") or not more:
            raise StoreError("a node or a comma is missing", where=f"{path}:{number}", hint="damaged")
        else:
            more = line.endswith(",")
            nodes.append(reader.loads(Node, line[:-1] if more else line, where=f"{path}:{number}"))
    if not tail:
        raise StoreError("is cut off" if head else "is empty", where=str(path), hint="damaged")
    found: Inventory = reader.loads(Inventory, head + tail, where=str(path))
    return replace(found, nodes=tuple(nodes))


def _check_schema(found: Inventory, path: Path) -> Inventory:
    if found.schema != INVENTORY_SCHEMA:
        raise StoreError(f"is an inventory of schema {found.schema}, known is {INVENTORY_SCHEMA}", where=str(path),
                         hint="made by another version: run hpcadmin discover again")
    return found

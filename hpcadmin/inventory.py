"""Nodes to an Inventory: groups of identical nodes, the odd ones out, and what a check may know of a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcadmin import records
from hpcadmin.check import NodeView
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.model import INVENTORY_SCHEMA, Failed, Group, Inventory, Node
from hpcadmin.oddones import find, signature_groups


def build(nodes: Iterable[Node], failed: Iterable[Failed] = (), created: str = "") -> Inventory:
    """Groups and odd ones out; nodes and groups in natural order."""
    ordered = tuple(sorted(nodes, key=lambda node: natural(node.name)))
    return Inventory(
        nodes=ordered, groups=_groups(ordered), odd=find(ordered), created=created,
        failed=tuple(sorted(failed, key=lambda item: natural(item.node))),
    )


def merge(old: Inventory, new: Inventory) -> Inventory:
    """`new`, with those nodes of `old` that `new` says nothing about."""
    told = {node.name for node in new.nodes} | {item.node for item in new.failed}
    kept = [node for node in old.nodes if node.name not in told]
    return build([*new.nodes, *kept], new.failed, new.created) if kept else new


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts node2 before node10."""
    parts: list[tuple[int, str]] = []
    digits = ""
    for char in name + "\0":
        if char in "0123456789":
            digits += char
            continue
        if digits:
            parts.append((int(digits[:18]), digits))
            digits = ""
        parts.append((-1, char))
    return tuple(parts)


def _groups(nodes: Sequence[Node]) -> tuple[Group, ...]:
    groups = []
    taken: dict[str, int] = {}
    for members in signature_groups(nodes):
        name = _name(members[0])
        taken[name] = taken.get(name, 0) + 1
        full = name if taken[name] == 1 else f"{name}-{taken[name]}"
        groups.append(Group(full, tuple(node.name for node in members)))
    return tuple(groups)


def _name(node: Node) -> str:
    """A short name: 8xh100, cpu; never more than letters, digits and dashes."""
    if "gpus" in node.unknown:
        return "unknown"
    if not node.gpus:
        return "cpu"
    words = [word for word in node.gpus[0].model.lower().replace("-", " ").split()
             if word not in ("nvidia", "tesla", "amd", "instinct", "geforce", "rtx", "quadro")]
    short = "".join(char for char in (words[0] if words else node.gpus[0].vendor) if char.isascii() and char.isalnum())
    return f"{len(node.gpus)}x{short or 'gpu'}"


def node_view(node: Node) -> NodeView:
    """What a check may know of the node; None where it is unknown."""
    known = "gpus" not in node.unknown
    models = sorted({gpu.model for gpu in node.gpus if gpu.model})
    return NodeView(
        name=node.name, address=node.addresses[0] if node.addresses else "", hostname=node.hostname,
        cpus=node.cpu.cpus or sum(len(core.cpus) for core in node.cpu.cores) or None, memory_mib=node.memory_mib,
        gpus=len(node.gpus) if known else None, gpu_model=", ".join(models),
        gpu_uuids=tuple(gpu.uuid for gpu in node.gpus if gpu.uuid), gpu_pci=tuple(gpu.pci for gpu in node.gpus),
        rdma_devices=tuple(dict.fromkeys(nic.rdma for nic in node.nics if nic.rdma)), simulated=node.simulated,
    )


def save(path: Path, inventory: Inventory) -> None:
    write_atomic(path, records.dumps(inventory, indent=1) + "\n")


def load(path: Path) -> Inventory:
    """Raises StoreError naming the file when it is missing, damaged or of another schema."""
    found: Inventory = records.loads(Inventory, read_bounded(path).decode("utf-8", "replace"), where=str(path))
    if found.schema != INVENTORY_SCHEMA:
        raise StoreError(f"is an inventory of schema {found.schema}, known is {INVENTORY_SCHEMA}", where=str(path),
                         hint="made by another version: run hpcadmin discover again")
    return found

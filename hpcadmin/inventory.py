"""Nodes to an Inventory: groups of identical nodes, the odd ones out, and what a check may know of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hpcadmin.bus_order import bus_order
from hpcadmin.check import NodeView, PortView
from hpcadmin.inventory_file import load, save
from hpcadmin.model import Failed, Group, Inventory, Nic, Node
from hpcadmin.sharing import Pool
from hpcadmin.topology import Near, rails

__all__ = ["build", "load", "save"]


def build(nodes: Iterable[Node], failed: Iterable[Failed] = (), created: str = "",
          pool: Pool | None = None) -> Inventory:
    """Groups and odd ones out; nodes and groups in natural order. From an iterator, nodes are never twice in memory.

    pool: that the nodes are of already.
    """
    from hpcadmin.oddones import find  # noqa: PLC0415  (the readers of all tools come with it)
    ordered = tuple(sorted(nodes if pool else map(Pool().node, nodes), key=lambda node: natural(node.name)))
    return Inventory(
        nodes=ordered, groups=_groups(ordered), odd=find(ordered), created=created,
        failed=tuple(sorted(failed, key=lambda item: natural(item.node))),
    )


def merge(old: Inventory, new: Inventory) -> Inventory:
    """`new`, with those nodes of `old` that `new` says nothing about."""
    told = {node.name for node in new.nodes} | {item.node for item in new.failed}
    kept = [node for node in old.nodes if node.name not in told]
    merged = build([*new.nodes, *kept], new.failed, new.created) if kept else new
    return replace(merged, fabrics=new.fabrics or old.fabrics)


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
    from hpcadmin.oddones import signature_groups  # noqa: PLC0415
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
    ordered = bus_order(node.gpus)
    in_order = ordered if isinstance(ordered, tuple) and known and all(g.device_file for g in ordered) else ()
    why = "" if in_order else ordered if isinstance(ordered, str) else "the device files of its GPUs are not known"
    if any(gpu.mig == "Enabled" or gpu.mig_devices for gpu in node.gpus):
        in_order, why = (), "its GPUs are cut into MIG devices, which are not tested"
    return NodeView(
        name=node.name, address=node.addresses[0] if node.addresses else "", hostname=node.hostname,
        cpus=node.cpu.cpus or sum(len(core.cpus) for core in node.cpu.cores) or None, memory_mib=node.memory_mib,
        gpus=len(node.gpus) if known else None, gpu_model=", ".join(models),
        gpu_uuids=tuple(gpu.uuid for gpu in node.gpus if gpu.uuid), gpu_pci=tuple(gpu.pci for gpu in node.gpus),
        gpu_files=tuple(gpu.device_file for gpu in in_order), gpu_files_why=why if node.gpus else "",
        gpu_cpus=tuple(gpu.local_cpus for gpu in in_order) if all(gpu.local_cpus for gpu in in_order) else (),
        rdma_devices=tuple(dict.fromkeys(nic.rdma for nic in node.nics if nic.rdma)), ports=_ports(node),
        gpu_numa=tuple(gpu.numa for gpu in node.gpus) if any(gpu.numa is not None for gpu in node.gpus) else (),
        simulated=node.simulated,
    )


def _ports(node: Node) -> tuple[PortView, ...]:
    """The ports of its RDMA devices. Rails are numbered as in `topology.rails`; on a node without GPUs, whose ports are
    near to none, in their order. Virtual functions are not tested where the device itself is there."""
    found = [nic for nic in node.nics if nic.rdma]
    found = [nic for nic in found if not nic.pf] or found
    near = {item.nic: (number, item) for number, item in enumerate(rails(node))}
    in_order = {nic.name: (number, Near(nic.name, "", ())) for number, nic in enumerate(found)}
    numa = {item.id: item.cpus for item in node.cpu.numa}
    return tuple(_port(nic, near if node.gpus else in_order, numa) for nic in found)


def _port(nic: Nic, places: Mapping[str, tuple[int, Near]], numa: Mapping[int, tuple[int, ...]]) -> PortView:
    rail, near = places.get(nic.name, (None, Near(nic.name, "", ())))
    return PortView(
        nic.rdma, 1 if nic.port is None else nic.port, nic.link_layer, nic.rate_gbps, nic.state, nic.netdev, nic.pci,
        nic.numa, numa.get(nic.numa, ()) if nic.numa is not None else (), rail, near.gpus[0] if near.gpus else None,
        nic.gid_index)

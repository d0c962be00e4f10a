"""Inventory -> health.toml: what each node must have, said once for all nodes that share it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin import hosts, oddones, traits
from hpcadmin.check import Limit
from hpcadmin.health import genconf_devices
from hpcadmin.health.genconf_devices import one_of
from hpcadmin.health.genconf_want import Want
from hpcadmin.health.node import masks
from hpcadmin.health.toml_text import Table, document
from hpcadmin.model import Node
from hpcadmin.text import plural

GIB = 1024
MAX_ODD = 40


@dataclass(frozen=True)
class Shared:
    """What is wanted, and the nodes that share it; everywhere: all of the inventory."""

    want: Want
    nodes: tuple[str, ...]
    everywhere: bool


def from_inventory(nodes: Sequence[Node], limits: Sequence[Limit] = (), origin: str = "the inventory", *,
                   drift: bool = False) -> str:
    """The text of health.toml. What no source told is not asked for; a comment says so. drift: with that check."""
    shared = list(share(nodes))
    keys = _identities(shared)
    everybody = [node.name for node in nodes]
    tables = [_table(one, ident, everybody) for one, ident in zip(shared, keys, strict=True)]
    head = [f"What the nodes must have, made from {origin} ({plural(len(nodes), 'node')}: {hosts.fold(everybody)}).",
            "hpcadmin health check FILE looks at it, hpcadmin health compile FILE writes what the nodes read."]
    return document(head, [*_odd(nodes), *tables, *_everywhere(nodes, limits), *_drift(drift), *_untold(nodes)])


def _odd(nodes: Sequence[Node]) -> Iterator[Table]:
    """What is unlike its group is written as it is: whoever accepts that must know it."""
    found = oddones.folded(item for item in oddones.find(nodes) if not item.soft)
    if found:
        more = [f"and {len(found) - MAX_ODD} more: hpcadmin inventory show"] if len(found) > MAX_ODD else []
        yield Table(notes=("These differ from the others of their group. Below they are asked to be as they are now:",
                           *(f"    {line}" for line in [*found[:MAX_ODD], *more])))


def share(nodes: Sequence[Node]) -> Iterator[Shared]:
    """Every want with its nodes, in the order of checks, then of the number of nodes."""
    memory = _memory_floors(nodes)
    found: dict[Want, list[str]] = {}
    for node in nodes:
        for want in (*_wants(node, memory), *genconf_devices.wants(node)):
            found.setdefault(want, []).append(node.name)
    order = {use: place for place, use in enumerate(dict.fromkeys(want.use for want in found))}
    for want, names in sorted(found.items(), key=lambda item: (order[item[0].use], -len(item[1]))):
        yield Shared(want, tuple(names), len(names) == len(nodes))


def _wants(node: Node, memory: Mapping[str, int]) -> Iterator[Want]:
    cpu = node.cpu
    if cpu.sockets and cpu.cores_per_socket and cpu.cpus:
        yield Want.of("cpu", traits.cpu_text(node), sockets=cpu.sockets, cores=cpu.sockets * cpu.cores_per_socket,
                      threads=cpu.cpus - len(cpu.offline), offline=len(cpu.offline))
    if node.name in memory:
        floor = memory[node.name]
        yield Want.of("memory", f"{round(floor / GIB)}G", min_mib=floor, tolerance_percent=1)
    yield from _dimms(node)
    for mount in node.mounts:
        options = mount.options.split(",")
        yield Want.of("mount", mount.target, path=one_of([mount.target]), source=one_of([mount.source]),
                      type=mount.kind, mode="ro" if "ro" in options else "rw", when=["health", "prolog"])


def _memory_floors(nodes: Sequence[Node]) -> dict[str, int]:
    """The smallest of each class of nodes that have the same memory within 1 %."""
    classes = traits.memory_classes(list(nodes))
    floors: dict[int, int] = {}
    for node in nodes:
        number = classes[node.name]
        if number is not None and node.memory_mib:
            floors[number] = min(floors.get(number, node.memory_mib), node.memory_mib)
    return {name: floors[number] for name, number in classes.items() if number in floors}


def _dimms(node: Node) -> Iterator[Want]:
    """Only where each module's size is told."""
    plugged = [dimm for dimm in node.dimms if dimm.size_mib]
    if not plugged or any(dimm.size_mib is None and dimm.kind == "unknown" for dimm in node.dimms):
        return
    sizes = {dimm.size_mib for dimm in plugged}
    speeds = [dimm.speed_mts for dimm in plugged if dimm.speed_mts]
    total = sum(dimm.size_mib or 0 for dimm in plugged)
    one = sizes.pop() if len(sizes) == 1 else None
    yield Want.of("dimms", f"{len(plugged)}x{(one or 0) // GIB}G" if one else f"{len(plugged)}",
                  count=len(plugged), total_gib=total / GIB, size_gib=one / GIB if one else None,
                  min_mts=min(speeds) if len(speeds) == len(plugged) else None)


def node_masks(names: Sequence[str], everybody: Sequence[str]) -> list[str]:
    """Folded masks that match these names and no other of the inventory; the names one by one where folding fails."""
    folded = masks.split(hosts.fold(names))
    wanted = set(names)
    if {name for name in everybody if masks.any_matches(folded, name, node=True)} == wanted:
        return folded
    return sorted(wanted)


def _table(one: Shared, ident: str, everybody: Sequence[str]) -> Table:
    values: dict[str, Any] = {"id": ident or None, **one.want.values}
    if not one.everywhere:
        values["nodes"] = node_masks(one.nodes, everybody)
    return Table(one.want.use, values, one.want.notes)


def _identities(shared: Sequence[Shared]) -> list[str]:
    """An id for each that is not alone with its check: what it is, with a number where that is not enough."""
    count: dict[str, int] = {}
    for one in shared:
        count[one.want.use] = count.get(one.want.use, 0) + 1
    taken: set[str] = set()
    found = []
    for one in shared:
        short = re.sub(r"[^A-Za-z0-9_.-]+", "-", one.want.label).strip("-")[:40] or "root"
        ident, number = short, 2
        while f"{one.want.use}:{ident}" in taken:
            ident, number = f"{short}-{number}", number + 1
        alone = count[one.want.use] == 1
        taken.add(f"{one.want.use}:{ident}")
        found.append("" if alone else ident)
    return found


def _everywhere(nodes: Sequence[Node], limits: Sequence[Limit]) -> Iterator[Table]:
    """What is right on any node, with the catalogue's limits where there are some."""
    offset = _limit(limits, "clock_offset")
    tmp = _limit(limits, "tmp_free")
    yield Table("time", {"max_offset_ms": offset.max * 1000} if offset and offset.max is not None else {},
                _because(offset))
    if tmp and tmp.min is not None:
        yield Table("space", {"id": "tmp", "path": "/tmp", "mounted": False,  # noqa: S108 - named, not used
                              "min_free_mib": tmp.min}, _because(tmp))
    yield Table("space", {"id": "root", "path": "/", "max_used_percent": 95, "min_free_inodes_percent": 5})
    slurm = [node.name for node in nodes if node.slurm_version or node.tools.get("slurmd")]
    yield Table("process", {"id": "slurmd", "name": "slurmd", "user": "root", **(_only(slurm, nodes) if slurm else {})})
    for use in ("edac", "mce", "pcie_errors", "kernel_log", "disk", "net_errors"):
        yield Table(use)
    if any(nic.link_layer == "InfiniBand" for node in nodes for nic in node.nics):
        rdma = [node.name for node in nodes if any(nic.rdma for nic in node.nics)]
        yield Table("ib_errors", _only(rdma, nodes))


def _drift(made: bool) -> Iterator[Table]:
    if made:
        yield Table("drift", notes=("against /etc/hpcadmin/accepted.json, which was written beside this",))
    else:
        yield Table(notes=("Serials, firmware and places of every part, against what was accepted: genconf --accepted",
                           "FILE writes it for all nodes; or on each hpcadmin-health --facts, of more parts. As",
                           "/etc/hpcadmin/accepted.json on the nodes. Then use this:", "", "[[check]]",
                           'use = "drift"'))


def _only(names: Sequence[str], nodes: Sequence[Node]) -> dict[str, Any]:
    return {} if len(names) == len(nodes) else {"nodes": node_masks(names, [node.name for node in nodes])}


def _limit(limits: Sequence[Limit], measurement: str) -> Limit | None:
    """The site's own, else the catalogue's."""
    fitting = [limit for limit in limits if limit.check == "node_ready" and limit.measurement == measurement
               and not limit.simulated and not limit.hardware and limit.unit in ("s", "MiB")]
    return next((limit for limit in fitting if limit.site), fitting[0] if fitting else None)


def _because(limit: Limit | None) -> tuple[str, ...]:
    return (f"{limit.source} ({limit.date})",) if limit and limit.source else ()


def _untold(nodes: Iterable[Node]) -> Iterator[Table]:
    """Parts that no source told: nothing asks for them."""
    lacking: dict[str, list[str]] = {}
    for node in nodes:
        parts = [item.partition(" (")[0] for item in node.unknown]
        if not node.cpu.cpus:
            parts.append("cpu")
        if node.memory_mib is None:
            parts.append("memory")
        for part in dict.fromkeys(parts):
            lacking.setdefault(part, []).append(node.name)
    notes = [f"Not asked for, since it is not known: {part} of {hosts.fold(names)}"
             for part, names in sorted(lacking.items())]
    if notes:
        yield Table(notes=tuple(notes))

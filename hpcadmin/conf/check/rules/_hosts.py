"""Nodes as three sources have them, side by side: the lines of the files, the inventory, slurmctld."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcadmin.conf.check.finding import Situation
from hpcadmin.conf.check.fleet import Alike, node_line, rewritten
from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.parts import GresLine, NodeLine
from hpcadmin.conf.machines import cpu_memory
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.nodelines import margin_mib
from hpcadmin.conf.sockets import Layout, Mode, layout
from hpcadmin.errors import UsageError
from hpcadmin.model import Gpu, Node
from hpcadmin.site import Site


@dataclass(frozen=True, eq=False)
class Hosts:
    """By the names of slurm.conf."""

    situation: Situation

    @cached_property
    def groups(self) -> dict[str, Alike]:
        return {host: group for group in self.situation.alike for host in group.hosts}

    @cached_property
    def lines(self) -> dict[str, NodeLine]:
        return {host: line for line in self.situation.conf.nodes for host in line.hosts}

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The inventory's node of each name: the same name, or that of NodeHostname=."""
        found = dict(self.situation.machines)
        for line in self.situation.conf.nodes:
            if "nodehostname" in line.values:
                found.update({host: found[other] for host, other in self.paired(line, "nodehostname")
                              if host not in found and other in found})
        return found

    def paired(self, line: NodeLine, key: str) -> list[tuple[str, str]]:
        """(host, its own value) of a key that has a list as long as that of the names; [] where it has not."""
        values = listed(line.get(key))
        if len(values) == 1:
            values = values * len(line.hosts)
        return list(zip(line.hosts, values, strict=True)) if len(values) == len(line.hosts) else []


def listed(text: str | None) -> tuple[str, ...]:
    try:
        return hostlist.expand(text) if text else ()
    except UsageError:
        return ()


def part_line(line: NodeLine, names: Sequence[str], changes: Mapping[str, str | None]) -> str:
    """The line with other values, for some of its nodes: of lists beside the names only their own elements."""
    if len(names) == len(line.hosts):
        return node_line(line, changes)
    own: dict[str, str | None] = {}
    for key in ("NodeAddr", "NodeHostname", "BcastAddr", "Port"):
        values = listed(line.get(key.casefold()))
        if len(values) > 1:
            by_host = dict(zip(line.hosts, values, strict=False))
            kept = [by_host[name] for name in sorted(names, key=natural) if name in by_host]
            own[key] = (slurm_list(kept) if kept == sorted(kept, key=natural) else ",".join(kept)) if len(
                values) == len(line.hosts) else None
    return rewritten(line.values, f"NodeName={slurm_list(names)}", {**changes, **own})


def right_memory(nodes: Iterable[Node], site: Site, reported: Iterable[int] = ()) -> int | None:
    """RealMemory as conf render would write it for these nodes: below the least of them by the site's margin."""
    least = min([*(m for n in nodes if (m := cpu_memory(n)[0]) is not None), *reported], default=None)
    return None if least is None else max(least - margin_mib(least, site)[0], 1)


def mode_of(situation: Situation, line: NodeLine) -> Mode | None:
    """What slurmd takes for a socket on these nodes; None where that is not known here."""
    words = [w.strip().casefold() for text in (line.get("parameters") or "", situation.conf.setting("SlurmdParameters"))
             for w in text.split(",")]
    named = [w for w in ("l3cache_as_socket", "numa_node_as_socket") if w in words]
    if not named:
        return Mode.PACKAGE
    return next((mode for mode in Mode if mode.value == named[0]), None)


def layout_of(situation: Situation, line: NodeLine, node: Node) -> Layout | str:
    mode = mode_of(situation, line)
    return layout(node.cpu, mode) if mode is not None else "its sockets are L3 caches"


def gpu_name(gpu: Gpu) -> str:
    """GPU 5 (0000:ab:00.0, serial 1650…, /dev/nvidia5)."""
    index = f"GPU {gpu.index}" if gpu.index is not None else "GPU"
    serial = f"serial {gpu.serial}" if gpu.serial.strip("0") else ""
    more = ", ".join(part for part in (gpu.pci, serial, gpu.device_file) if part)
    return f"{index} ({more})" if more else index


def slot_of(node: Node, address: str) -> str:
    """The PCIe slot as lspci names the device, for people who have to find it; "" where not told."""
    return next((d.name for d in node.pci if d.address == address and d.name), "")


def gone(lines: Sequence[GresLine], node: Node) -> list[tuple[GresLine, str]]:
    """(line, file) of device files in gres.conf that no GPU of the node has; [] where its files are not known."""
    there = {gpu.device_file for gpu in node.gpus if gpu.device_file}
    if node.lacks("gpus") or (node.gpus and not there):
        return []
    return [(line, file) for line in lines for file in line.files
            if file not in there and file.startswith(("/dev/nvidia", "/dev/dri/renderD")) and "-caps" not in file]


def without_file(file: str, node: Node) -> str:
    """The GPU whose device file this would be, where a tool still reports it; "" where none does."""
    return next((gpu_name(gpu) for gpu in node.gpus if not gpu.device_file and gpu.minor is not None
                 and file in (f"/dev/nvidia{gpu.minor}", f"/dev/dri/renderD{gpu.minor}")), "")


def odd_of(situation: Situation, names: Iterable[str]) -> dict[str, list[str]]:
    """What the inventory says of nodes that differ from their group by a fault."""
    wanted, found = set(names), dict[str, list[str]]()
    for item in situation.inventory.odd if situation.inventory else ():
        if item.node in wanted and not item.soft:
            found.setdefault(item.node, []).append(item.what.removeprefix(f"{item.node}: "))
    return found

"""The kinds of nodes that files describe, one node of each, and the hardware that it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hpcadmin.conf.check.finding import Situation
from hpcadmin.conf.check.fleet import Alike
from hpcadmin.conf.check.rules._hosts import Hosts, mode_of
from hpcadmin.conf.existing.parts import Configuration, NodeLine
from hpcadmin.conf.sockets import Mode
from hpcadmin.model import Inventory, Node
from hpcadmin.proof import detected, hardware
from hpcadmin.proof.parts import Hardware, NodeRun
from hpcadmin.sources import open_sources

MAX_KINDS = 200
MAX_XML = 4 * 1024 * 1024
_XML = re.compile(r'<topology(?: version="(\d{1,2}\.\d{1,2})")?>\n.*?^</topology>', re.DOTALL | re.MULTILINE)
_NUMA, _PU = re.compile(r'<object type="NUMANode"[^>]*>'), re.compile(r'<object type="PU"')
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\Z|[0-9a-fA-F:]*:[0-9a-fA-F:]+\Z")


@dataclass(frozen=True)
class Kind:
    """group: the nodes whose lines are the same. name: the one that is started. node: as the inventory has it; None
    where the hardware is what the files themselves say."""

    group: Alike
    hosts: tuple[str, ...]
    name: str
    hardware: Hardware
    node: Node | None = None

    @property
    def line(self) -> NodeLine:
        if self.group.node is None:
            raise ValueError(f"{self.name} has no node line")
        return self.group.node


@dataclass(frozen=True)
class Unproven:
    """Nodes that were not put before the daemons, and why."""

    hosts: tuple[str, ...]
    why: str


def kinds(conf: Configuration, inventory: Inventory | None) -> tuple[list[Kind], list[Unproven]]:
    """One kind for each node line, set of gres.conf lines, and hardware in the inventory."""
    situation = Situation(conf, inventory=inventory)
    nodes = Hosts(situation).nodes
    found: list[Kind] = []
    left: list[Unproven] = []
    for group in situation.alike:
        if group.node is None or not group.hosts:
            continue
        for members in _by_hardware(group, nodes):
            kind = _kind(conf, group, members, nodes)
            if isinstance(kind, Unproven):
                left.append(kind)
            elif len(found) < MAX_KINDS:
                found.append(kind)
            else:
                left.append(Unproven(members, f"more than {MAX_KINDS} kinds of nodes"))
    return found, left


def _by_hardware(group: Alike, nodes: dict[str, Node]) -> Iterator[tuple[str, ...]]:
    parts: dict[object, list[str]] = {}
    strangers = []                       # of the same lines, and not in the inventory
    for name in group.hosts:
        node = nodes.get(name)
        if node is None:
            strangers.append(name)
        else:
            key = (id(node.cpu), tuple((g.device_file, g.minor, g.numa) for g in node.gpus))
            parts.setdefault(key, []).append(name)
    # Equal CPUs of an inventory need not be one object.
    joined: dict[object, list[str]] = {}
    for names in parts.values():
        first = nodes[names[0]]
        joined.setdefault((first.cpu, tuple((g.device_file, g.minor, g.numa) for g in first.gpus)), []).extend(names)
    found = list(joined.values()) or [[]]
    found[0] += strangers
    for names in found:
        yield tuple(names)


def _kind(conf: Configuration, group: Alike, members: tuple[str, ...],
          nodes: dict[str, Node]) -> Kind | Unproven:
    line = group.node
    if line is None:
        return Unproven(members, "no NodeName line")
    mode = sockets_of(conf, line)
    node = nodes.get(members[0])
    made = hardware.of_node(node, more_files=_mig_files(group)) if node is not None else _of_line(group, mode)
    if isinstance(made, str):
        return Unproven(members, made)
    own = captured_xml(node) if node is not None else ""
    if own:
        made = replace(made, synthetic="", xml=own, captured=True)
    made = _detected(group, node, made)
    if isinstance(made, str):
        return Unproven(members, made)
    tmp = line.number("tmpdisk") or 0
    return Kind(group, members, members[0], replace(made, tmp_mib=tmp + 64 if tmp else 0, parameters=mode.value), node)


def _detected(group: Alike, node: Node | None, made: Hardware) -> Hardware | str:
    """With what AutoDetect finds, where the lines want it; or why these nodes cannot be simulated."""
    if group.autodetect is None or not group.wants():
        return made
    wanted = group.autodetect.text
    if node is None or "gpus" in node.unknown:
        return f"AutoDetect={wanted} needs the node's GPUs: name an inventory that has them"
    own = detected.driver(node) if wanted.casefold() in detected.BY_DRIVER else ()
    exact = made.xml or hardware.xml(node.cpu)
    if own and exact:
        # CPUs with the numbers that the kernel has: slurmd translates local_cpulist itself.
        return replace(made, synthetic="", xml=exact, driver=own)
    text, why = detected.fake_gpus(node)
    return why or replace(made, detected=text)


def captured_xml(node: Node) -> str:
    """hwloc's XML of the node, where the inventory was made from it and it is as it was; "" else.

    Newer forms than version 2 are left alone: an older hwloc would take this machine's CPUs instead. So is what hwloc
    would not load (our own captures are shortened), and the view of a process that had a part of the CPUs.
    """
    if not any("hwloc" in kind or kind == "capture" for source in node.sources for kind in source.kinds):
        return ""
    for text in open_sources(node)[0]:
        match = _XML.search(text.text)
        if match and (match[1] or "2").startswith(("1", "2")) and "<!ENTITY" not in match[0] and \
                len(match[0]) <= MAX_XML and _whole(match[0], node):
            return match[0]
    return ""


def _whole(xml: str, node: Node) -> bool:
    threads = sum(len(core.cpus) for core in node.cpu.cores)
    return all(" nodeset=" in opening for opening in _NUMA.findall(xml)) and (
        not threads or len(_PU.findall(xml)) == threads)


def sockets_of(conf: Configuration, line: NodeLine) -> Mode:
    """What slurmd is told to take for a socket on this node."""
    return mode_of(Situation(conf), line) or Mode.PACKAGE


def _mig_files(group: Alike) -> list[str]:
    """Capability devices are numbered by a table of the driver that no inventory has: those of the file are there."""
    return [path for line in group.lines for path in line.files if path.startswith("/dev/nvidia-caps/")]


def _of_line(group: Alike, mode: Mode) -> Hardware | str:
    """Without an inventory: the node has what its line says, and the devices that gres.conf names."""
    shape = group.shape
    if shape is None:
        return "no NodeName line"
    if shape.total * shape.threads > 8192 or min(shape.sockets, shape.cores, shape.threads) < 1:
        return f"{shape.text}: no machine has that"
    level = {Mode.PACKAGE: "pack:{}", Mode.NUMA: "pack:1 numa:{}", Mode.L3: "pack:1 l3:{}"}[mode]
    text = f"{level.format(shape.sockets)} core:{shape.cores} pu:{shape.threads}"
    return Hardware(text, devices=hardware.devices(path for line in group.lines for path in line.files))


def run_of(kind: Kind, conf: Configuration) -> NodeRun:
    """With the address that the files give it, where they do."""
    given = dict(Hosts(Situation(conf)).paired(kind.line, "nodeaddr")).get(kind.name, "")
    if _ADDRESS.match(given):
        return NodeRun(kind.name, kind.hardware, address=given)
    return NodeRun(kind.name, kind.hardware, alias=given if given != kind.name else "")

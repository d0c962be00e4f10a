"""A node of the inventory as its configuration lines need it, or the problems that keep it from being written."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.bus_order import bus_order
from hpcadmin.conf import features as feature
from hpcadmin.conf.gpus import Device, Terms
from hpcadmin.conf.gres import Gres, plan
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.sockets import Layout, Mode, layout
from hpcadmin.errors import ParseError
from hpcadmin.facts._base import cpu_list
from hpcadmin.hosts import expand, is_node_name
from hpcadmin.model import Gpu, Node, PciDevice
from hpcadmin.site import NodeGroup, Site

# RealMemory that differs by more than this within a line would waste it, or hides a missing module.
MEMORY_TOLERANCE = 0.01
_GPU_CLASSES = ("0300", "0302")
_NVIDIA = "10de"
# Problems with what decides no line of ours; every other problem might.
_ELSEWHERE = re.compile(
    r"(?i)(addresses|dmi|ibstat|infiniband|kernel|lscpu|net|nics?|os_release|ports?|slurmd|time|tools)\b")
_NO_SMT = ("off", "forceoff", "notsupported", "notimplemented")
# Names that slurm.conf means otherwise, however they are written.
_RESERVED = ("all", "default")
_NUMBER = re.compile(r"[0-9]{1,255}\Z")
# What a machine calls itself that has been given no name.
_NAMELESS = ("localhost", "localhost4", "localhost6", "(none)")
_AGAIN = "discover it again"
REPAIR = "repair it, or --as-is to write it as it is"


@dataclass(frozen=True)
class Machine:
    """A node that can be written. gpus are in PCI bus order."""

    node: Node
    gpus: tuple[Gpu, ...]
    memory_mib: int
    memory_why: str
    group: NodeGroup | None

    @property
    def name(self) -> str:
        return self.node.name


@dataclass(frozen=True)
class Shape:
    """What is the same on all nodes of one NodeName line, beside memory."""

    layout: Layout
    gres: str
    features: tuple[str, ...]
    group: str                   # the site's [nodes.NAME]
    parameters: str              # on the node line, where the version has it
    own_name: str = ""           # the node's name where it needs a line of its own (another host name)
    hostname: str = ""
    address: str = ""
    sockets_why: str = ""        # why these sockets


@dataclass(frozen=True)
class Written:
    """A machine with its place in the files."""

    machine: Machine
    shape: Shape
    gres: Gres

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.gres.devices


def read(node: Node, groups: Mapping[str, NodeGroup], *, as_is: bool) -> tuple[Machine | None, list[Problem]]:
    """The machine, or None and why not. as_is: faults are taken as they are; what is unknown stays a problem."""
    group = groups.get(node.name)
    if not _can_be(node.name):
        shown = node.name if len(node.name) <= 80 else f"{node.name[:80]}…"
        return None, [Problem(Kind.UNKNOWN, "is not a name a node can have" if shown else "a node has no name", shown,
                              hint="letters, digits, '-', '_' and '.', not ALL or DEFAULT, no number of 20 digits at "
                              "its end: discover it by another")]
    problems = _host_problems(node) if as_is else [*_host_problems(node), *_faults(node, group)]
    memory, memory_why = cpu_memory(node)
    if memory is None:
        problems.append(Problem(Kind.UNKNOWN, f"memory: {memory_why}", node.name, hint=_AGAIN))
    plain = layout(node.cpu, Mode.PACKAGE)
    if isinstance(plain, str) and not any(isinstance(layout(node.cpu, mode), Layout) for mode in Mode):
        problems.append(Problem(Kind.UNKNOWN, f"CPUs: {plain}", node.name, hint=_AGAIN))
    if node.lacks("gpus"):
        problems.append(Problem(Kind.UNKNOWN, "GPUs: no source tells whether it has any", node.name, hint=_AGAIN))
    order = bus_order(placed(node))
    if isinstance(order, str):
        problems.append(Problem(Kind.UNKNOWN, f"GPUs: {order}", node.name, hint=_AGAIN))
        order = ()
    if problems or memory is None:
        return None, problems
    return Machine(node, order, memory, memory_why, group), []


def _can_be(name: str) -> bool:
    """Slurm takes ALL and DEFAULT for something else, and a number at the end that does not fit into 64 bits for
    another (tried: 22.05 and 26.05 look for n18446744073709551615, and end where two such names follow one another)."""
    number = _NUMBER.search(name)
    return (is_node_name(name) and name.casefold() not in _RESERVED
            and (number is None or int(number[0]) < (1 << 64) - 2))


def host_name(node: Node) -> str:
    """What slurmd calls the node where it is not the node's name; "" where it is, or is not told."""
    host = node.hostname.split(".", 1)[0]
    return host if host and host != node.name.split(".", 1)[0] else ""


def _host_problems(node: Node) -> list[Problem]:
    """Host names and addresses that NodeHostname= and NodeAddr= cannot have."""
    host = host_name(node)
    if not host:
        return []
    problems = []
    if host.casefold() in _NAMELESS or not _can_be(host):
        problems.append(Problem(Kind.FAULT, f"calls itself {host[:60]!r}, by which slurmd and slurmctld cannot find it",
                                node.name, hint="give it a host name (hostnamectl), then discover it again"))
    for address in node.addresses[:1] if len(node.addresses) == 1 else ():
        try:
            ipaddress.ip_address(address)
        except ValueError:
            problems.append(Problem(Kind.UNKNOWN, f"its address {address[:60]!r} is none", node.name,
                                    hint="discover it again"))
    return problems


def same_hosts(nodes: Sequence[Node]) -> list[Problem]:
    """Nodes that call themselves alike: slurmd of one would take itself for the other, or the other's place."""
    by_host: dict[str, list[str]] = {}
    for node in nodes:
        by_host.setdefault(host_name(node) or node.name.split(".", 1)[0], []).append(node.name)
    return [Problem(Kind.FAULT, f"calls itself {host}, as {others[0] if others[0] != name else others[1]} does", name,
                    hint="one machine discovered under two names, or two machines with one host name")
            for host, others in by_host.items() if len(set(others)) > 1
            and len({n.split(".", 1)[0] for n in others}) > 1 for name in dict.fromkeys(others)]


def groups_by_node(site: Site) -> tuple[dict[str, NodeGroup], list[Problem]]:
    """site.toml's [nodes.NAME] by node name. A node in two of them is a problem."""
    found: dict[str, NodeGroup] = {}
    problems = []
    for group in site.nodes:
        for name in expand(group.hosts):
            if name in found:
                problems.append(Problem(Kind.SITE, f"[nodes.{found[name].name}] and [nodes.{group.name}] both name it",
                                        name, key=f"nodes.{group.name}.hosts"))
            found[name] = group
    return found, problems


def placed(node: Node) -> tuple[Gpu, ...]:
    """The GPUs; with the CPUs near their PCI devices where a source told those of the devices alone."""
    bare = {gpu.pci for gpu in node.gpus if gpu.pci and not gpu.local_cpus}
    near = {device.address: device for device in node.pci if device.address in bare} if bare else {}
    return tuple(_placed(gpu, near[gpu.pci]) if gpu.pci in near else gpu for gpu in node.gpus)


def _placed(gpu: Gpu, device: PciDevice) -> Gpu:
    try:
        near = cpu_list(device.local_cpus, "local_cpulist")
    except ParseError:                   # discovery has said so
        return gpu
    return replace(gpu, local_cpus=near, numa=device.numa if gpu.numa is None else gpu.numa)


def cpu_memory(node: Node) -> tuple[int | None, str]:
    """What slurmd counts, or else MemTotal rounded down, without memory-only NUMA nodes (GPU memory on Grace), in MiB,
    and the reason; None where not known."""
    total, what = (node.memory_mib, "MemTotal") if node.real_memory_mib is None else (
        node.real_memory_mib, "memory as slurmd counts it")
    if total is None:
        return None, "not known"
    if total < 64:
        return None, f"{total} MiB cannot be"
    apart = [n for n in node.cpu.numa if not n.cpus]
    if any(n.memory_mib is None for n in apart):
        return None, ("the size of NUMA node " + ", ".join(str(n.id) for n in apart if n.memory_mib is None)
                      + " without CPUs is not known, and it may be GPU memory")
    rest = sum(n.memory_mib or 0 for n in apart)
    own = [n.memory_mib for n in node.cpu.numa if n.cpus]
    if not rest or (None not in own and abs(total - sum(n or 0 for n in own)) <= 0.02 * total):
        return total, what                   # some sources leave it out themselves
    if rest >= total - 64:
        return None, f"{what} is {total} MiB, NUMA nodes without CPUs have {rest}: what the CPUs have is not known"
    return total - rest, f"{what} without {rest} MiB of NUMA nodes that have no CPUs (GPU memory)"


def features(machine: Machine, types: Sequence[str], site: Site) -> tuple[str, ...]:
    """What the hardware tells, unless the site does without, and the site's own."""
    group = machine.group
    wanted = group.features_auto if group and group.features_auto is not None else site.slurm.features_auto
    own = group.features if group else ()
    if not wanted:
        return tuple(dict.fromkeys(own))
    return tuple(dict.fromkeys([*feature.automatic(types, machine.node.cpu.model, machine.node.nics), *own]))


def _faults(node: Node, group: NodeGroup | None) -> list[Problem]:
    """What this node has less of than its own PCI bus or the site says; contradictions found while reading it."""
    what = [problem for problem in node.problems if not _ELSEWHERE.match(problem)]
    if node.cpu.offline and not _smt_off(node) and not any("offline" in problem for problem in what):
        what.append(f"CPUs {', '.join(map(str, node.cpu.offline[:8]))} are offline")
    what += [text for address, text in _missing_gpus(node, group) if not any(address in known for known in what)]
    if group is not None:
        if group.gpus is not None and len(node.gpus) != group.gpus and "gpus" not in node.unknown:
            what.append(f"{len(node.gpus)} GPUs, site.toml [nodes.{group.name}] says {group.gpus}")
        if group.gpu_model:
            what += [f"GPU {g.index} is {g.model!r}, site.toml [nodes.{group.name}] says {group.gpu_model!r}"
                     for g in node.gpus if g.model != group.gpu_model]
        if group.memory_mib is not None and node.memory_mib is not None and node.memory_mib < group.memory_mib:
            what.append(f"{node.memory_mib} MiB of memory, site.toml [nodes.{group.name}] says {group.memory_mib}")
    return [Problem(Kind.FAULT, text, node.name, hint=REPAIR) for text in what]


def _missing_gpus(node: Node, group: NodeGroup | None) -> list[tuple[str, str]]:
    """(address, problem) of NVIDIA GPUs on the PCI bus that no tool reports, and the other way round."""
    if not node.pci or "pci" in node.unknown or (group is not None and group.gpus == 0):
        return []
    on_bus = {d.address.casefold() for d in node.pci
              if d.vendor_id.casefold() == _NVIDIA and d.class_id.casefold().startswith(_GPU_CLASSES)}
    told = {g.pci for g in node.gpus if g.vendor == "nvidia"}
    lost = [(a, f"GPU at {a} is on the PCI bus and no tool reports it") for a in sorted(on_bus - told)]
    ghost = [(a, f"GPU at {a} is reported and is not on the PCI bus") for a in sorted(told - on_bus)]
    return lost + ghost


def _smt_off(node: Node) -> bool:
    """Second threads that are off line because SMT is switched off, on every core."""
    cpu = node.cpu
    return (node.settings.get("SMT", "").casefold() in _NO_SMT and bool(cpu.cores)
            and len(cpu.offline) % len(cpu.cores) == 0 and {len(core.cpus) for core in cpu.cores} == {1})


def place(machine: Machine, mode: Mode, terms: Terms, why: str, *,
          on_node_line: bool) -> tuple[Written | None, list[Problem]]:
    """The machine's shape and gres with `mode` for its sockets, which was chosen because of `why`."""
    node = machine.node
    found = layout(node.cpu, mode)
    if isinstance(found, str):
        return None, [Problem(Kind.UNKNOWN, f"CPUs: {found}", node.name)]
    gres, problems = plan(node, machine.gpus, found, terms, machine.group)
    if problems:
        return None, problems
    other = host_name(node)
    address = node.addresses[0] if other and len(node.addresses) == 1 else ""
    group = machine.group.name if machine.group else ""
    shape = Shape(found, gres.text, features(machine, [d.type for d in gres.devices], terms.site), group,
                  mode.value if on_node_line else "", node.name if other else "", other, address, why)
    return Written(machine, shape, gres), []


def interleaved(units: Sequence[Device]) -> bool:
    """Whether the GPUs of one type are not next to each other on the bus."""
    runs = [unit.type for i, unit in enumerate(units) if i == 0 or units[i - 1].type != unit.type]
    return len(runs) != len(set(runs))


def memory_classes(machines: Sequence[Machine]) -> dict[str, int]:
    """For each node the smallest memory among those that differ from the largest by at most MEMORY_TOLERANCE."""
    classes: dict[str, int] = {}
    run: list[Machine] = []
    for machine in sorted(machines, key=lambda m: (-m.memory_mib, m.name)):
        if run and machine.memory_mib < run[0].memory_mib * (1 - MEMORY_TOLERANCE):
            classes.update((m.name, run[-1].memory_mib) for m in run)
            run = []
        run.append(machine)
    classes.update((m.name, run[-1].memory_mib) for m in run)
    return classes

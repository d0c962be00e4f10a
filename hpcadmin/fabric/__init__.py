"""The network as dumps of it tell: switches, cables, levels, units, faults; and the tree that Slurm is given.

Pure functions: dumps (of hpcadmin.facts' readers) -> model.Fabric -> tree, faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcadmin.fabric.discover import FABRIC_COMMANDS, fabric_answers, fabric_probe_script
from hpcadmin.fabric.dump import Device, Devices, Dump, Ends, Line, devices_of
from hpcadmin.fabric.faults import Fault, faults
from hpcadmin.fabric.names import host_of, is_aggregation, module_of, switch_name
from hpcadmin.fabric.tree import left_out, rails, slurm_tree, topology_conf, units, with_levels
from hpcadmin.model import Fabric, FabricDevice, Node, SwitchPort

__all__ = [
    "FABRIC_COMMANDS", "Dump", "Fault", "build", "fabric_answers", "fabric_of", "fabric_probe_script", "faults",
    "from_neighbours", "join_nodes", "left_out", "rails", "slurm_tree", "topology_conf", "units",
]


def build(dumps: Sequence[Dump], nodes: Sequence[Node] = ()) -> tuple[Fabric, ...]:
    """One fabric of each kind that there are dumps of (and of Node.neighbours), adapters without a host's name joined
    to the nodes by GUID, faults in `problems`."""
    found = []
    for kind in ("infiniband", "ethernet"):
        own = [dump for dump in dumps if dump.fabric == kind]
        if kind == "ethernet":
            own += from_neighbours(nodes)
        if own:
            devices = devices_of(own)
            fabric = join_nodes(fabric_of(devices, kind), nodes)
            told = [fault.what for fault in faults(fabric) if not fault.note]
            found.append(replace(fabric, problems=tuple(dict.fromkeys([*fabric.problems, *told]))))
    return tuple(found)


def fabric_of(devices: Devices, kind: str = "infiniband") -> Fabric:
    names = _names(devices, kind)
    return with_levels(Fabric(kind, tuple(_device(device, name, devices, names, kind)
                                          for device, name in zip(devices.items, names, strict=True)),
                              problems=tuple(devices.contradictions)))


def _names(devices: Devices, kind: str) -> list[str]:
    """A name for each, none twice. On Ethernet every device has a name, and a host is one with many ports."""
    names = []
    for device in devices.items:
        guid = _guid(device)
        if kind == "ethernet":
            names.append(device.description or guid or "device")
        elif device.kind == "ca":
            host, adapter = host_of(device.description)
            names.append(f"{host} {adapter}".strip() if host else f"ca-{guid}" if guid else device.description or "ca")
        else:
            names.append(switch_name(device.description, guid, device.lid))
    count = Counter(names)
    modules = [f"{name}-{module_of(device.description)}" if count[name] > 1 and module_of(device.description) else name
               for name, device in zip(names, devices.items, strict=True)]
    if len(set(modules)) > len(set(names)):
        names, count = modules, Counter(modules)
    used: Counter[str] = Counter()
    for number, (name, device) in enumerate(zip(names, devices.items, strict=True)):
        if count[name] > 1:
            used[name] += 1
            names[number] = f"{name} ({_guid(device) or used[name]})"
    return names


def _guid(device: Device) -> str:
    return device.guid or min(device.guids, default="")


def _device(device: Device, name: str, devices: Devices, names: list[str], kind: str) -> FabricDevice:
    host, adapter = host_of(device.description) if device.kind == "ca" and kind == "infiniband" else ("", "")
    if kind == "ethernet" and device.kind == "ca":
        host = device.description.partition(".")[0]
    ports = tuple(SwitchPort(
        number=port.number, name=port.name, peer="" if port.peer is None else names[port.peer],
        peer_guid="" if port.peer is None else _guid(devices.items[port.peer]), peer_port=port.peer_port,
        peer_name="" if port.peer is None or port.peer_port is None
        else devices.items[port.peer].ports[port.peer_port].name,
        width=port.width, speed=port.speed, state=port.state or port.physical,
        width_best=port.width_best, speed_best=port.speed_best,
    ) for _, port in sorted(device.ports.items()))
    return FabricDevice(name, device.kind, guid=_guid(device), lid=device.lid, host=host, device=adapter,
                        description=device.description, ports=ports)


def join_nodes(fabric: Fabric, nodes: Iterable[Node]) -> Fabric:
    """The hosts of adapters by their GUIDs, as the nodes themselves tell them; descriptions that say another host are
    problems."""
    owners: dict[str, tuple[str, str]] = {}
    for node in nodes:
        for nic in node.nics:
            for guid in (nic.guid, nic.port_guid):
                if guid and guid.strip("0"):
                    owners[guid.replace(":", "").removeprefix("0x").lower()] = (node.name, nic.rdma or nic.name)
    if not owners:
        return fabric
    problems = list(fabric.problems)
    devices = []
    for device in fabric.devices:
        owner = owners.get(device.guid) if device.kind == "ca" and not is_aggregation(device.description) else None
        if owner and device.host and device.host != owner[0].partition(".")[0]:
            problems.append(f"adapter {device.guid} is {device.host}'s by its description ({device.description}) and "
                            f"{owner[0]}'s by its GUID")
        devices.append(replace(device, host=owner[0], device=owner[1]) if owner else device)
    return replace(fabric, devices=tuple(devices), problems=tuple(dict.fromkeys(problems)))


def from_neighbours(nodes: Iterable[Node]) -> list[Dump]:
    """What the nodes see by LLDP."""
    nodes = list(nodes)
    names = {name: node.name for node in nodes for name in (node.name, node.hostname) if name}
    ends = Ends()
    lines = tuple(Line(ends.end(node.name, own, "ca"),
                       ends.end(names.get(neighbour, neighbour), port, "ca" if neighbour in names else "switch"))
                  for node in nodes for own, neighbour, port in node.neighbours if neighbour)
    return [Dump("lldp", lines=lines, fabric="ethernet")] if lines else []

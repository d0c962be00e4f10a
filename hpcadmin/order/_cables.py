"""The cable plan against what the fabric's dumps and LLDP say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.cabling import Cabling, End, guid
from hpcadmin.model import Inventory, Nic, Node
from hpcadmin.order._records import Cable
from hpcadmin.order._result import Result

_NAME = re.compile(r"[a-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")



def compare(result: Result, cables: Sequence[Cable], inventory: Inventory) -> None:
    world = Cabling(inventory)
    nodes = {node.name: node for node in inventory.nodes}
    failed = {item.node: item.reason for item in inventory.failed}
    planned: dict[str, set[tuple[str, int | None]]] = {}
    for cable in cables:
        node, item = nodes.get(cable.node), f"cable of {cable.port}"
        if node is None:
            why = f"not captured: {failed[cable.node]}" if cable.node in failed else "there is no such node"
            result.judge(cable.node, item, "", "", None, reason=why)
            continue
        nic = _nic(node, cable.port)
        if nic is None:
            known = not node.lacks("nics") and not node.lacks("rdma")
            result.judge(cable.node, item, "a port of that name", "none", False if known else None, kind="missing")
            continue
        planned.setdefault(node.name, set()).add((nic.name, nic.port))
        _one(result, world, cable, node, nic)
    _extra(result, world, nodes, planned)


def _one(result: Result, world: Cabling, cable: Cable, node: Node, nic: Nic) -> None:
    item, ordered = f"cable of {cable.port}", f"{cable.switch} port {cable.switch_port}"
    end, why = world.end(node, nic)
    if end is None:
        result.judge(node.name, item, ordered, "", None, reason=why)
        return
    if not end.switch and not end.guid:
        result.judge(node.name, item, ordered, "nothing plugged in", False, kind="missing")
        return
    agrees: bool | None = _is_switch(cable.switch, end)
    if agrees:
        agrees = _same_port(cable.switch_port, end.port)
    result.judge(node.name, item, ordered, end.text, agrees,
                 reason=f"port {cable.switch_port} in the plan, port {end.port or 'unknown'} of {end.switch}: not "
                 "numbered alike")


def _extra(result: Result, world: Cabling, nodes: dict[str, Node],
           planned: dict[str, set[tuple[str, int | None]]]) -> None:
    """Cables of nodes in the plan that are not in it."""
    for name, ports in planned.items():
        for nic in nodes[name].nics:
            if nic.virtual or nic.pf or (nic.name, nic.port) in ports:
                continue
            end, _ = world.end(nodes[name], nic)
            if end is not None and end.switch:
                result.judge(name, f"cable of {nic.name}", "none", end.text, False, kind="extra")


def _nic(node: Node, port: str) -> Nic | None:
    """By "mlx5_0", "mlx5_0/1", "mlx5_0 port 1", "ib0", or its GUID."""
    wanted = port.strip().casefold()
    own = guid(wanted)
    name, number = wanted, None
    match = re.fullmatch(r"(.{1,64}?)(?:/p?| port | p)([0-9]{1,3})", wanted)
    if match:
        name, number = match[1], int(match[2])
    for nic in node.nics:
        if wanted in (nic.name.casefold(), nic.netdev.casefold()) and nic.port in (None, 1):
            return nic
        if own and own in (guid(nic.guid), guid(nic.port_guid)):
            return nic
    return next((nic for nic in node.nics if number is not None and nic.port == number
                 and name in (nic.name.casefold(), nic.rdma.casefold())), None)


def _is_switch(planned: str, end: End) -> bool:
    """The plan's name, a word of the description (MF0;leaf01:MQM9700/U1), the name without its domain, or the GUID."""
    wanted = planned.strip().casefold()
    if guid(wanted):
        return guid(wanted) == end.guid
    return wanted == end.switch.casefold() or wanted in _NAME.findall(end.switch.casefold())


def _same_port(planned: str, found: str) -> bool | None:
    """By the numbers in them: 12, swp12 and Ethernet12 are the same; 1/12 and 23 cannot be compared."""
    ours, theirs = ([int(part) for part in _NUMBER.findall(text)] for text in (planned, found))
    if planned.casefold() == found.casefold():
        return True
    return ours == theirs if ours and len(ours) == len(theirs) else None

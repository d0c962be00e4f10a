"""Order and inventory side by side: nodes, what is in them, their serials, their cables."""

from __future__ import annotations

from hpcadmin.model import Inventory, Node
from hpcadmin.order import _cables, _nodes
from hpcadmin.order._records import Comparison, GroupOrder, Order
from hpcadmin.order._result import Result, kind_of


def compare(order: Order, inventory: Inventory) -> Comparison:
    """Every missing, extra or different item. What is unknown on our side is told as not compared, never as right."""
    result = Result()
    places = _nodes.Places(order.groups)
    members: dict[str, list[Node]] = {group.name: [] for group in order.groups}
    for node in inventory.nodes:
        group = places.group(node) if order.groups else None
        if group is not None:
            members[group.name].append(node)
            _nodes.compare(result, node, group)
        elif order.groups:
            result.judge(node.name, "node", "no such name or kind", node.product or "a node", False, kind="extra")
    for group in order.groups:
        _there(result, group, members[group.name], inventory, places)
    _serials(result, order, members, inventory)
    if order.cables is not None:
        _cables.compare(result, order.cables, inventory)
    return Comparison(source=order.source, title=order.title, nodes=sum(map(len, members.values())),
                      agreed=result.agreed, differences=tuple(result.differences),
                      not_compared=tuple(result.not_compared))


def _there(result: Result, group: GroupOrder, found: list[Node], inventory: Inventory, places: _nodes.Places) -> None:
    failed = {item.node: item.reason for item in inventory.failed}
    present = {node.name for node in found}
    for host in group.hosts:
        if host in failed:
            result.judge(host, "node", "", "", None, reason=f"not captured: {failed[host]}")
        else:
            result.judge(host, "node", f"one of {group.name}", "nothing", host in present, kind="missing")
    if not group.hosts and group.count is not None:
        silent = [name for name in failed if name not in places.named]
        known = not (len(found) < group.count <= len(found) + len(silent))
        result.judge("", f"nodes of {group.name}", str(group.count), str(len(found)),
                     len(found) == group.count if known else None, kind=kind_of(group.count, len(found)),
                     reason=f"{len(found)} of {group.count} are there, {len(silent)} could not be captured")


def _serials(result: Result, order: Order, members: dict[str, list[Node]], inventory: Inventory) -> None:
    """Of each node that was ordered by its serial: is it there, and has it its name?"""
    at = {_plain(node.serial): node.name for node in inventory.nodes if node.serial}
    wanted_at = {_plain(serial): host for group in order.groups for host, serial in group.serial_of.items()}
    silent = any(not node.serial for node in inventory.nodes) or bool(inventory.failed)
    for group in order.groups:
        nodes = {node.name: node for node in members[group.name]}
        for host, serial in group.serial_of.items():
            if host not in nodes:
                continue                             # that it is not there has been said
            own = nodes[host].serial
            found = own + (f" (ordered for {wanted_at[_plain(own)]})" if _plain(own) in wanted_at else "")
            if own and _plain(serial) in at:
                found += f"; {serial} is {at[_plain(serial)]}"
            result.judge(host, "serial", serial, found, _plain(own) == _plain(serial) if own else None)
        wanted = {_plain(serial) for serial in group.serials}
        for node in members[group.name] if wanted else ():
            result.judge(node.name, "serial", f"one of the {len(wanted)} of {group.name}", node.serial,
                         _plain(node.serial) in wanted if node.serial else None, kind="extra")
        names = {node.name for node in members[group.name]}
        for serial in group.serials:
            place = at.get(_plain(serial), "")
            if place not in names:
                reason = "on no node whose serial is known; some serials are not"
                result.judge("", f"serial {serial} of {group.name}", "a node", f"{place} of another group" if place else
                             "no node", None if silent and not place else False, kind="missing", reason=reason)


def _plain(serial: str) -> str:
    return serial.strip().casefold()

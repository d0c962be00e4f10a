"""A large fabric in counts: what its levels, units and rails are, and where it is not like itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hpcadmin import hosts
from hpcadmin.fabric.faults import View, default_named, misplaced, missing_leaf_names, unnamed_cards, uplinks, view_of
from hpcadmin.fabric.names import is_aggregation, other_name
from hpcadmin.fabric.tree import leaves_by_host
from hpcadmin.model import Fabric, FabricDevice


def survey(fabric: Fabric) -> dict[str, Any]:
    view = view_of(fabric)
    levels = Counter(switch.level for switch in fabric.switches)
    nodes = {node for unit in view.units for node in unit.nodes if node not in view.services}
    per_node = Counter(len(leaves) for host, leaves in leaves_by_host(view.cables).items() if host in nodes)
    rates = Counter(f"{port.width.lower()}{port.speed}" for switch in fabric.switches for port in switch.ports
                    if port.peer and port.speed)
    known: dict[str, Any] = {
        "switches": len(fabric.switches), "leaves": levels[1], "spines": levels[2],
        "cas": sum(device.kind == "ca" for device in fabric.devices),
        "cables": sum(bool(port.peer) for device in fabric.devices for port in device.ports) // 2,
        "named_nodes": len(nodes),
        "units": {unit.label: hosts.fold(node for node in unit.nodes if node in nodes) for unit in view.units},
        "leaves_per_node": {str(count): number for count, number in sorted(per_node.items(), reverse=True)},
        "rails_per_node": per_node.most_common(1)[0][0] if per_node else None,
        "rate": next(iter(rates)) if len(rates) == 1 else None, "rates": dict(sorted(rates.items())),
    }
    if max((level or 0 for level in levels), default=0) > 2:
        known["levels"] = {str(level): count for level, count in sorted(levels.items(), key=lambda i: i[0] or 0)}
    return known | _unlike(view) | _others(view)


def _unlike(view: View) -> dict[str, Any]:
    missing = [name for names in missing_leaf_names(view).values() for name in names if name]
    links = uplinks(view, 1)
    usual = Counter(links.values()).most_common(1)[0] if links else None
    crossed: dict[str, dict[str, str]] = defaultdict(dict)
    for one in misplaced(view):
        if one.other is not None:
            port = one.cable.port_name or one.cable.port
            crossed[one.host][one.adapter] = f"{view.short[one.cable.leaf]} port {port}"
    found: dict[str, Any] = {"crossed_cables": [{"node": node, **where} for node, where in sorted(crossed.items())]}
    if missing:
        found["leaf_missing"] = missing[0] if len(missing) == 1 else missing
    if usual and usual[0][0]:
        few = sum(count < usual[0] for count in links.values())
        more = len(links) - few - usual[1]
        found["uplinks_per_leaf"] = {f"{usual[0][0]} to {usual[0][1]} spines": usual[1], "fewer": few,
                                     **({"more": more} if more else {})}
    return found


def _others(view: View) -> dict[str, Any]:
    """Adapters that are no named node's."""
    fabric = view.fabric
    unit_of = {leaf: unit.label for unit in view.units for leaf in unit.leaves}
    cards = unnamed_cards(fabric)
    leaf_cards: dict[str, Counter[str]] = defaultdict(Counter)
    for card in cards:
        for leaf in _leaves(card):
            if leaf in unit_of:
                leaf_cards[unit_of[leaf]][leaf] += 1
    other: Counter[str] = Counter()
    where: dict[str, list[str]] = defaultdict(list)
    for device in default_named(fabric):
        other[other_name(device.description)] += 1
        where[other_name(device.description)] += [view.short.get(leaf, leaf) for leaf in _leaves(device)]
    for device in fabric.devices:
        if device.kind != "ca":
            continue
        if is_aggregation(device.description):
            other[device.description] += 1
        elif device.host in view.services:
            other[device.host] += 1
            where[device.host] += [view.short.get(leaf, leaf) for leaf in _leaves(device)]
    return {
        "unnamed_cas": len(cards),
        "unnamed_cas_per_unit_leaf": {label: next(iter(counts.values())) if len(set(counts.values())) == 1
                                      else dict(counts) for label, counts in sorted(leaf_cards.items())},
        "other_cas": dict(other), "other_cas_where": {name: sorted(leaves) for name, leaves in where.items()},
    }


def _leaves(device: FabricDevice) -> list[str]:
    return [port.peer for port in device.ports if port.peer]

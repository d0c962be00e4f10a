"""The fabric's tree as lines of text: from the top down, a line a leaf, nodes folded, faults marked with "!"."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from hpcadmin import hosts
from hpcadmin.fabric.faults import Fault, View, faults, unnamed_cards, uplinks, view_of
from hpcadmin.fabric.links import links
from hpcadmin.fabric.names import is_aggregation
from hpcadmin.fabric.tree import rails
from hpcadmin.model import Fabric
from hpcadmin.text import plural, printable

MAX_FAULTS = 60


def fabric_lines(fabric: Fabric) -> list[str]:
    """For `inventory topology --fabric`."""
    view = view_of(fabric)
    told = faults(fabric)
    marked = {name for fault in told if not fault.note for name in (fault.device, *fault.others)}
    lines = [_head(view)]
    for level in range(max((switch.level or 0 for switch in fabric.switches), default=0), 1, -1):
        lines += ["", f"level {level}", *_upper(view, level, marked)]
    lines += _leaves(view, marked)
    lines += _loose(view)
    lines += _faults(fabric, told)
    return [printable(line, limit=4000) for line in lines]


def _head(view: View) -> str:
    fabric = view.fabric
    cards = [device for device in fabric.devices if device.kind == "ca" and not is_aggregation(device.description)]
    named = {device.host for device in cards if device.host}
    rates = Counter(f"{port.width} {port.speed}".strip() for _, port, _ in links(view))
    rate = ", ".join(f"{count} at {name or 'unknown rate'}" for name, count in rates.most_common(3))
    leaves = sum(switch.level == 1 for switch in fabric.switches)
    count = sum(len(device.ports) for device in cards) if fabric.kind == "ethernet" else len(cards)
    switches = f"{plural(len(fabric.switches), 'switch', 'switches')} ({plural(leaves, 'leaf', 'leaves')})"
    many = f"{plural(len(named), 'host')}, {plural(count, 'host port')}, {plural(sum(rates.values()), 'cable')}"
    return f"{fabric.kind}: {switches}, {many}" + (f" ({rate})" if rate and fabric.kind == "infiniband" else "")


def _mark(name: str, marked: set[str]) -> str:
    return "!" if name in marked else " "


def _upper(view: View, level: int, marked: set[str]) -> Iterator[str]:
    """Switches with the same cables below are one line."""
    alike: dict[tuple[int, int], list[str]] = defaultdict(list)
    for switch in view.fabric.switches:
        if switch.level == level:
            below = [port.peer for port in switch.ports if (peer := view.by_name.get(port.peer))
                     and peer.kind == "switch" and peer.level == level - 1]
            alike[len(below), len(set(below))].append(switch.name)
    for (cables, switches), names in sorted(alike.items(), reverse=True):
        mark = "!" if any(name in marked for name in names) else " "
        yield f"{mark} {hosts.fold(names)}: {plural(cables, 'cable')} to {plural(switches, 'switch', 'switches')} below"


def _leaves(view: View, marked: set[str]) -> Iterator[str]:
    on_leaf: dict[str, set[str]] = defaultdict(set)
    for cable in view.cables:
        on_leaf[cable.leaf].add(cable.host)
    up = uplinks(view, 1)
    rail = {leaf: adapter for by_adapter in rails(view.fabric).values() for adapter, leaf in by_adapter.items()}
    many = any(len(unit.leaves) > 1 for unit in view.units)
    for number, unit in enumerate(view.units):
        if many or not number:
            yield ""
        if many:
            yield f"unit {unit.label}: {plural(len(unit.nodes), 'node')}, {plural(len(unit.leaves), 'leaf', 'leaves')}"
        for leaf in unit.leaves:
            names = on_leaf[leaf]
            others = sum(view.by_name[port.peer].host == "" and not is_aggregation(view.by_name[port.peer].description)
                         for port in view.by_name[leaf].ports
                         if port.peer in view.by_name and view.by_name[port.peer].kind == "ca")
            parts = [hosts.fold(names) or "no named host"]
            if leaf in rail and len(unit.leaves) > 1:
                parts.insert(0, f"rail {rail[leaf]}")
            if others:
                parts.append(f"{others} without a name")
            if up.get(leaf, (0, 0))[0]:
                parts.append(f"{up[leaf][0]} up to {up[leaf][1]}")
            yield f"{_mark(leaf, marked)} {leaf}: {'; '.join(parts)}"


def _loose(view: View) -> Iterator[str]:
    names = [switch.name for switch in view.fabric.switches if switch.level is None]
    if names:
        yield ""
        yield f"  not in the tree (no hosts to measure from): {hosts.fold(names)}"
    cards = [card for card in unnamed_cards(view.fabric) if not any(port.peer for port in card.ports)]
    if cards:
        yield f"  {plural(len(cards), 'adapter')} without a name and without a link"


def _faults(fabric: Fabric, told: tuple[Fault, ...]) -> Iterator[str]:
    bad = list(dict.fromkeys([*fabric.problems, *(fault.what for fault in told if not fault.note)]))
    notes = [fault.what for fault in told if fault.note]
    if bad or fabric.incomplete:
        yield ""
    for what in bad[:MAX_FAULTS]:
        yield f"! {what}"
    if len(bad) > MAX_FAULTS:
        yield f"! and {len(bad) - MAX_FAULTS} more"
    for what in fabric.incomplete:
        yield f"? {what}"
    for what in notes[:MAX_FAULTS]:
        yield f"  {what}"

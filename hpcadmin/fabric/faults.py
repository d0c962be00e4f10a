"""What is wrong or odd in a fabric, against what most of it is like."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hpcadmin.fabric.names import is_aggregation, is_generic, other_name, pieces, short_names
from hpcadmin.fabric.tree import Cable, Unit, cables, leaves_of, left_out, unit_place, units
from hpcadmin.model import Fabric, FabricDevice
from hpcadmin.text import plural

SHOWN = 8                            # names in one line


@dataclass(frozen=True)
class Fault:
    """note: worth knowing, no fault. device and port: where, as the fabric names them."""

    what: str
    note: bool = False
    device: str = ""
    port: int | None = None
    others: tuple[str, ...] = ()     # further devices that it is about


@dataclass(frozen=True)
class View:
    """A fabric with what every rule needs of it."""

    fabric: Fabric
    by_name: dict[str, FabricDevice]
    cables: tuple[Cable, ...]
    units: tuple[Unit, ...]
    short: dict[str, str]            # leaf -> its name without what all have in common
    services: frozenset[str]         # hosts that are no compute nodes, by their names
    shared: frozenset[str]           # leaves that are no node's home: another network of the same nodes

    @property
    def linked(self) -> bool:
        return any(port.peer for device in self.fabric.devices for port in device.ports)


def view_of(fabric: Fabric) -> View:
    found, links = units(fabric), cables(fabric)
    used = {cable.leaf for cable in links}
    shared = frozenset(leaf for unit in found if not unit.nodes for leaf in unit.leaves if leaf in used)
    return View(fabric, {device.name: device for device in fabric.devices}, links, found,
                short_names([leaf.name for leaf in leaves_of(fabric)]), frozenset(left_out(fabric)), shared)


def faults(fabric: Fabric) -> tuple[Fault, ...]:
    """Faults first, each in one line; notes after them."""
    from hpcadmin.fabric.links import degraded, down, states  # noqa: PLC0415  (it imports Fault from here)
    view = view_of(fabric)
    found = [*crossed_faults(view), *missing_leaves(view), *missing_cables(view), *homeless(view), *wrong_unit(view),
             *uneven_uplinks(view), *degraded(view), *states(view), *separate(view), *doubles(view), *unnamed(view),
             *generic_switches(view), *down(view), *spine_hosts(view), *other_networks(view)]
    return tuple(sorted(found, key=lambda fault: fault.note))


def some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


# --- hosts and leaves -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Misplaced:
    """An adapter that hangs on another leaf than those of its peers. other: the adapter that it is swapped with."""

    host: str
    adapter: str
    cable: Cable
    right: str
    other: Cable | None = None


def misplaced(view: View) -> tuple[Misplaced, ...]:
    """Against where more than two thirds of the unit's nodes with the same adapters (at least three) have theirs."""
    unit_of = {leaf: unit.label for unit in view.units for leaf in unit.leaves}
    by_host: dict[tuple[str, str], dict[str, Cable]] = defaultdict(dict)
    for cable in view.cables:
        if cable.adapter and cable.host not in view.services and cable.leaf not in view.shared:
            by_host[unit_of[cable.leaf], cable.host][cable.adapter] = cable
    alike: dict[tuple[str, frozenset[str]], list[dict[str, Cable]]] = defaultdict(list)
    for (unit, _), own in by_host.items():
        alike[unit, frozenset(own)].append(own)
    found = []
    for adapters in alike.values():
        right = {}
        for adapter in adapters[0]:
            leaf, count = Counter(own[adapter].leaf for own in adapters).most_common(1)[0]
            if count > 2 and 3 * count > 2 * len(adapters):
                right[adapter] = leaf
        for own in adapters:
            for adapter, leaf in right.items():
                cable = own[adapter]
                if cable.leaf != leaf:
                    other = next((c for a, c in own.items() if c.leaf == leaf and right.get(a) == cable.leaf), None)
                    found.append(Misplaced(cable.host, adapter, cable, leaf, other))
    return tuple(sorted(found, key=lambda one: (one.host, one.adapter)))


def crossed_faults(view: View) -> Iterator[Fault]:
    done = set()
    for one in misplaced(view):
        port = one.cable.port_name or one.cable.port
        if one.other is None:
            yield Fault(f"{one.host} {one.adapter} hangs on leaf {view.short[one.cable.leaf]} port {port}, its peers' "
                        f"on {view.short[one.right]}: wrong cable", device=one.cable.leaf, port=one.cable.port)
        elif (one.host, one.adapter) not in done:
            done.add((one.host, one.other.adapter))
            yield Fault(f"{one.host}: {one.adapter} and {one.other.adapter} are crossed: {one.adapter} hangs on leaf "
                        f"{view.short[one.cable.leaf]} port {port}, {one.other.adapter} on "
                        f"{view.short[one.other.leaf]} port {one.other.port_name or one.other.port}",
                        device=one.cable.leaf, port=one.cable.port)


def missing_leaf_names(view: View) -> dict[str, list[str]]:
    """By unit, the leaves that it lacks beside the other units, called as they would be; "" where the names tell
    nothing."""
    homes = [unit for unit in view.units if unit.nodes]
    count, often = Counter(len(unit.leaves) for unit in homes).most_common(1)[0] if homes else (0, 0)
    if len(homes) < 3 or 2 * often <= len(homes):
        return {}
    short = {unit.label: [view.short[leaf] for leaf in unit.leaves] for unit in homes}
    place = unit_place([unit.leaves for unit in homes])
    found = {}
    for unit in homes:
        if len(unit.leaves) < count:
            model = next(other for other in homes if len(other.leaves) == count)
            found[unit.label] = _absent(short[unit.label], short[model.label], place) or \
                [""] * (count - len(unit.leaves))
    return found


def _absent(own: list[str], model: list[str], place: int | None) -> list[str]:
    """The model unit's leaves with this unit's number, less those that are there."""
    if place is None or not own:
        return []
    number = pieces(own[0])[place]
    would = []
    for name in model:
        parts = pieces(name)
        would.append("".join([*parts[:place], number, *parts[place + 1:]]))
    return sorted(set(would) - set(own)) if set(own) <= set(would) else []


def missing_leaves(view: View) -> Iterator[Fault]:
    usual = Counter(len(unit.leaves) for unit in view.units).most_common(1)
    for label, names in missing_leaf_names(view).items():
        unit = next(unit for unit in view.units if unit.label == label)
        called = f": {some(names)} is not there" if names[0] else ""
        yield Fault(f"unit {label}: {plural(len(unit.nodes), 'node')} on only "
                    f"{plural(len(unit.leaves), 'leaf', 'leaves')}, those of other units on "
                    f"{usual[0][0]}: missing leaf{called}", device=unit.leaves[0])


def missing_cables(view: View) -> Iterator[Fault]:
    """A node with fewer cables to a leaf than most of its unit's nodes have."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    unit_of = {leaf: unit.label for unit in view.units for leaf in unit.leaves}
    for cable in view.cables:
        counts[unit_of[cable.leaf]][cable.host][cable.leaf] += 1
    lacking: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    wrong = {(one.host, leaf) for one in misplaced(view) for leaf in (one.cable.leaf, one.right)}
    for unit in view.units:
        nodes = [node for node in unit.nodes if node not in view.services]
        for leaf in unit.leaves:
            usual = Counter(counts[unit.label][node][leaf] for node in nodes).most_common(1)
            if not usual or 3 * usual[0][1] <= 2 * len(nodes) or len(nodes) < 3:
                continue
            for node in nodes:
                have = counts[unit.label][node][leaf]
                if have < usual[0][0] and (node, leaf) not in wrong:
                    lacking[leaf, have, usual[0][0]].append(node)
    for (leaf, have, usually), names in sorted(lacking.items()):
        verb, noun = "has" if len(names) == 1 else "have", "cable" if have < 2 else "cables"
        yield Fault(f"missing cable: {some(names)} {verb} {have or 'no'} {noun} to leaf {view.short[leaf]}, the other "
                    f"nodes of the unit {usually}", device=leaf)


def wrong_unit(view: View) -> Iterator[Fault]:
    unit_of = {leaf: unit.label for unit in view.units for leaf in unit.leaves}
    home = {node: unit.label for unit in view.units for node in unit.nodes}
    for cable in view.cables:
        if cable.leaf not in view.shared and unit_of[cable.leaf] != home.get(cable.host, unit_of[cable.leaf]):
            yield Fault(f"{cable.host} {cable.adapter}".strip() + f" hangs on leaf {view.short[cable.leaf]} port "
                        f"{cable.port_name or cable.port} of unit {unit_of[cable.leaf]}, the node's other cables are "
                        f"in unit {home[cable.host]}", device=cable.leaf, port=cable.port)


# --- switches -------------------------------------------------------------------------------------------------------


def uplinks(view: View, level: int) -> dict[str, tuple[int, int]]:
    """(cables, switches) from each switch of the level to the level above."""
    found = {}
    for switch in view.fabric.switches:
        if switch.level == level:
            above = [port.peer for port in switch.ports
                     if port.peer in view.by_name and view.by_name[port.peer].level == level + 1]
            found[switch.name] = (len(above), len(set(above)))
    return found


def uneven_uplinks(view: View) -> Iterator[Fault]:
    top = max((switch.level or 0 for switch in view.fabric.switches), default=0)
    for level in range(1, top):
        found = {name: count for name, count in uplinks(view, level).items() if name not in view.shared}
        if not found:
            continue
        usual, often = Counter(found.values()).most_common(1)[0]
        odd = {name: count for name, count in found.items() if count != usual}
        what = "leaf" if level == 1 else f"level {level} switch"
        short = view.short if level == 1 else short_names(list(found))
        if not odd:
            continue
        if 2 * often > len(found):
            names = [f"{short[name]} ({links} to {switches})" for name, (links, switches) in sorted(odd.items())]
            many = plural(len(found), what, "leaves" if level == 1 else None)
            yield Fault(f"uplinks are uneven: {len(odd)} of {many} have not {usual[0]} cables to "
                        f"{usual[1]} switches above: {some(names)}", device=min(odd), others=tuple(odd))
        else:
            names = [f"{links} from {short[name]}" for name, (links, _) in sorted(found.items())]
            yield Fault(f"uplinks are uneven: {some(names)}", device=min(found), others=tuple(found))


def separate(view: View) -> Iterator[Fault]:
    """Parts of the fabric that no cable joins."""
    seen: dict[str, int] = {}
    parts: list[list[str]] = []
    for switch in view.fabric.switches:
        if switch.name in seen:
            continue
        border, part = [switch.name], []
        seen[switch.name] = len(parts)
        while border:
            name = border.pop()
            part.append(name)
            for port in view.by_name[name].ports:
                peer = view.by_name.get(port.peer)
                if peer and peer.kind == "switch" and peer.name not in seen:
                    seen[peer.name] = len(parts)
                    border.append(peer.name)
        parts.append(part)
    joined = [part for part in parts if any(port.peer for name in part for port in view.by_name[name].ports)]
    # What hosts see by LLDP ends at their own switch, and a management network is another one.
    between = any(peer.kind == "switch" for switch in view.fabric.switches for port in switch.ports
                  if (peer := view.by_name.get(port.peer)))
    if len(joined) > 1 and view.linked and (between or view.fabric.kind != "ethernet"):
        largest = max(joined, key=len)
        for part in joined:
            if part is not largest:
                yield Fault(f"{some(sorted(part))}: no link to the other switches: {len(joined)} separate trees",
                            device=part[0])
    for part in parts:
        if part not in joined:
            yield Fault(f"{part[0]}: nothing is linked to it", note=True, device=part[0])


def doubles(view: View) -> Iterator[Fault]:
    """LIDs that two devices have; only switches and adapters of one port have one."""
    owners: dict[int, list[str]] = defaultdict(list)
    for device in view.fabric.devices:
        if device.lid and device.lid < 0xC000 and device.guid:
            owners[device.lid].append(device.name)
    for lid, names in sorted(owners.items()):
        if len(names) > 1:
            yield Fault(f"LID {lid} is used twice: {some(names)}", device=names[0])


def generic_switches(view: View) -> Iterator[Fault]:
    for switch in view.fabric.switches:
        if is_generic(switch.description) and view.fabric.kind == "infiniband" and switch.guid:
            called = f"the default description '{switch.description}'" if switch.description else "no description"
            yield Fault(f"switch {switch.guid} has {called}: named by its GUID", note=True, device=switch.name)


def other_networks(view: View) -> Iterator[Fault]:
    for leaf in sorted(view.shared):
        yield Fault(f"{view.short[leaf]}: most nodes on it are at home on other leaves: another network (storage, "
                    "management)", note=True, device=leaf)


def homeless(view: View) -> Iterator[Fault]:
    home = {node for unit in view.units for node in unit.nodes}
    on: dict[str, set[str]] = defaultdict(set)
    for cable in view.cables:
        if cable.host not in home and cable.host not in view.services:
            on[cable.host].add(view.short[cable.leaf])
    for host, leaves in sorted(on.items()):
        yield Fault(f"missing cable: {host} hangs on {some(sorted(leaves))} alone, whose other nodes are on further "
                    "leaves")


def spine_hosts(view: View) -> Iterator[Fault]:
    for switch in view.fabric.switches:
        if switch.level and switch.level > 1:
            names = sorted({peer.host for port in switch.ports if (peer := view.by_name.get(port.peer))
                            and peer.kind == "ca" and peer.host})
            if names:
                verb = "hangs" if len(names) == 1 else "hang"
                yield Fault(f"{some(names)} {verb} on {switch.name}, which is no leaf", note=True, device=switch.name)


# --- adapters without a host ----------------------------------------------------------------------------------------


def unnamed_cards(fabric: Fabric) -> list[FabricDevice]:
    """Adapters that carry no name at all but the card's (not "localhost HCA-1", and no SHARP node)."""
    return [device for device in fabric.devices if device.kind == "ca" and not device.host
            and not is_aggregation(device.description) and is_generic(device.description)]


def default_named(fabric: Fabric) -> list[FabricDevice]:
    return [device for device in fabric.devices if device.kind == "ca" and not device.host
            and not is_aggregation(device.description) and not is_generic(device.description)]


def unnamed(view: View) -> Iterator[Fault]:
    cards = unnamed_cards(view.fabric)
    if cards:
        label = {leaf: unit.label for unit in view.units for leaf in unit.leaves}
        where = Counter(label[port.peer] for card in cards for port in card.ports if port.peer in label)
        places = [f"{count} in unit {unit}" if len(view.units) > 1 else f"{count} on {unit}"
                  for unit, count in sorted(where.items())]
        yield Fault(f"{plural(len(cards), 'adapter')} without a host name, only the card's ({cards[0].description}): "
                    f"their hosts are not known" + (f" ({some(places)})" if places else ""), device=cards[0].name)
    names = Counter(other_name(device.description) for device in default_named(view.fabric))
    for name, count in sorted(names.items()):
        yield Fault(f"{plural(count, 'adapter')} of a host that is called '{name}': not its own name, it cannot be "
                    "placed")

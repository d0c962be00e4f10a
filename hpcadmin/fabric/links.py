"""Cables that run below what they could, and ports that are not up."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from hpcadmin.fabric.dump import SPEEDS
from hpcadmin.fabric.faults import SHOWN, Fault, View, some
from hpcadmin.fabric.names import is_aggregation
from hpcadmin.model import FabricDevice, SwitchPort
from hpcadmin.text import fold_ids, plural

_Link = tuple[FabricDevice, SwitchPort, FabricDevice]


def rate(width: str, speed: str) -> int:
    """To compare by: a speed is more than a width (2X NDR is a split cable, 4X SDR a bad one). 0: unknown."""
    lanes = re.match(r"([0-9]{1,2})X\Z", width)
    if speed not in SPEEDS or not lanes:
        return 0
    return (SPEEDS.index(speed) + 1) * 100 + int(lanes[1])


def links(view: View) -> list[_Link]:
    """Every cable once, from a switch (the lower one of two)."""
    found: list[_Link] = []
    seen: set[tuple[str, int | None]] = set()
    for switch in sorted(view.fabric.switches, key=lambda device: device.level or 99):
        for port in switch.ports:
            peer = view.by_name.get(port.peer)
            if peer and (switch.name, port.number) not in seen and not is_aggregation(peer.description):
                seen.add((peer.name, port.peer_port))
                found.append((switch, port, peer))
    return found


def called(view: View, link: _Link) -> str:
    switch, port, peer = link
    other = f"{peer.host} {peer.device}".strip() if peer.host else peer.name
    far = f" port {port.peer_name or port.peer_port}" if peer.kind == "switch" else ""
    return f"{view.short.get(switch.name, switch.name)} port {port.name or port.number} to {other}{far}"


def degraded(view: View) -> Iterator[Fault]:
    every = links(view)
    told = [link for link in every if link[1].width_best or link[1].speed_best]
    # All of them together are one matter: how the fabric is set up, or what the tool believes of it.
    most = len(told) > SHOWN and 2 * len(told) > len(every)
    for link in [] if most else told[:SHOWN]:
        port = link[1]
        best = " ".join(filter(None, (port.width_best, port.speed_best)))
        yield Fault(f"degraded link: {called(view, link)} runs at {port.width} {port.speed}".rstrip()
                    + f", could be {best}", device=link[0].name, port=port.number)
    if len(told) > SHOWN:
        count = f"{len(told)}" if most else f"{len(told) - SHOWN} more"
        yield Fault(f"{count} of {plural(len(every), 'link')} run below what both ends could do")
    known = {id(link[1]) for link in told}
    rest = [link for link in every if id(link[1]) not in known and rate(link[1].width, link[1].speed)]
    yield from _between_switches(view, [link for link in rest if link[2].kind == "switch"])
    yield from _of_hosts(view, [link for link in rest if link[2].kind == "ca"])


def _text(port: SwitchPort) -> str:
    return f"{port.width} {port.speed}"


def _between_switches(view: View, found: list[_Link]) -> Iterator[Fault]:
    """Against most cables between the same two levels."""
    classes: dict[tuple[int, int], list[_Link]] = defaultdict(list)
    for link in found:
        low, high = sorted((link[0].level or 0, link[2].level or 0))
        classes[low, high].append(link)
    for group in classes.values():
        yield from _slower(view, group, "cables between switches")


def _slower(view: View, group: list[_Link], what: str) -> Iterator[Fault]:
    usual, often = Counter(_text(port) for _, port, _ in group).most_common(1)[0]
    if 2 * often <= len(group) or len(group) < 3:
        return
    best = max(rate(port.width, port.speed) for _, port, _ in group if _text(port) == usual)
    slow = [link for link in group if rate(link[1].width, link[1].speed) < best]
    for link in slow[:SHOWN]:
        yield Fault(f"degraded link: {called(view, link)} runs at {_text(link[1])}, most {what} at {usual}",
                    device=link[0].name, port=link[1].number)
    if len(slow) > SHOWN:
        yield Fault(f"{len(slow) - SHOWN} more {what} run below {usual}")


def _of_hosts(view: View, found: list[_Link]) -> Iterator[Fault]:
    """Against the host's own other ports; of hosts with one port, or that are slower as a whole, against the leaf."""
    by_host: dict[str, list[_Link]] = defaultdict(list)
    for link in found:
        by_host[link[2].host or link[2].name].append(link)
    whole: dict[str, list[_Link]] = defaultdict(list)
    faults: list[Fault] = []
    for host, own in by_host.items():
        if len({_text(port) for _, port, _ in own}) > 1:
            best = max(own, key=lambda link: rate(link[1].width, link[1].speed))[1]
            same = sum(_text(port) == _text(best) for _, port, _ in own)
            if 2 * same >= len(own):
                faults += [Fault(f"degraded link: {called(view, link)} runs at {_text(link[1])}, {host}'s other ports "
                                 f"at {_text(best)}", device=link[0].name, port=link[1].number)
                           for link in own if rate(link[1].width, link[1].speed) < rate(best.width, best.speed)]
                continue
        for link in own:
            whole[link[0].name].append(link)
    yield from faults[:4 * SHOWN]
    if len(faults) > 4 * SHOWN:
        yield Fault(f"{len(faults) - 4 * SHOWN} more hosts' ports run below the hosts' other ports")
    for group in whole.values():
        yield from _slower(view, group, "hosts' cables on this leaf")


def states(view: View) -> Iterator[Fault]:
    """Linked and yet not usable."""
    odd = [(link, link[1].state) for link in links(view)
           if link[1].state and link[1].state.lower() not in ("active", "linkup", "down", "up")]
    by_state: dict[str, list[_Link]] = defaultdict(list)
    for link, state in odd:
        by_state[state].append(link)
    for state, group in sorted(by_state.items()):
        names = [called(view, link) for link in group]
        why = ": no subnet manager has configured them" if state.lower().startswith("init") else ""
        yield Fault(f"{plural(len(group), 'link')} in state {state}{why}: {some(names)}", device=group[0][0].name,
                    port=group[0][1].number)


def down(view: View) -> Iterator[Fault]:
    for switch in view.fabric.switches:
        ports = [port for port in switch.ports if port.state.lower().startswith("down")]
        if ports:
            numbers = fold_ids([port.number for port in ports])
            name = view.short.get(switch.name, switch.name)
            noun = "port" if len(ports) == 1 else "ports"
            yield Fault(f"{name}: {noun} {numbers} down", note=True, device=switch.name, port=ports[0].number)


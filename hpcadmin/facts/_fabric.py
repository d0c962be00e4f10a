"""A fabric dump as a reading: the same for every tool, in the words of each."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from hpcadmin.fabric import fabric_of, faults, left_out, topology_conf
from hpcadmin.fabric.dump import Device, Devices, Dump, devices_of
from hpcadmin.fabric.names import host_of, is_generic, other_name
from hpcadmin.fabric.survey import survey
from hpcadmin.facts._base import clean
from hpcadmin.facts._reading import Finding, Reading
from hpcadmin.model import Fabric
from hpcadmin.text import plural

MANY = 16                            # more switches than this are told in counts
_RATES = {"SDR": 2, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}


def fabric_reading(dump: Dump, first: int, last: int, unread: list[tuple[int, str]]) -> Reading:
    devices = devices_of([dump])
    fabric = fabric_of(devices, dump.fabric)
    last = max([last, *(number for number, _ in unread)])
    found = faults(fabric)
    lines = {(device.name, number): port.line for device, told in zip(fabric.devices, devices.items, strict=True)
             for number, port in told.ports.items()}
    begins = {device.name: told.block or min((port.line for port in told.ports.values()), default=0)
              for device, told in zip(fabric.devices, devices.items, strict=True)}
    findings = [Finding(fault.what, lines.get((fault.device, fault.port or -1)) or begins.get(fault.device) or None,
                        fault.note) for fault in found]
    findings += [Finding(what) for what in fabric.problems]
    findings += [Finding(f"cannot be read: {text}", number) for number, text in unread[:8]]
    missing = [*_missing(dump, fabric, devices), *([f"{plural(len(unread), 'line')} that cannot be read, the first is "
                                                    f"line {unread[0][0]}"] if unread else [])]
    known = known_of(dump, fabric, devices)
    return Reading(dump.kind, first, max(first, last), value=dump, known=known, findings=tuple(findings),
                   missing=tuple(missing), refused=_refused(fabric, devices), assumed=_assumed(fabric))


def _refused(fabric: Fabric, devices: Devices) -> str:
    """Why no tree of switches may be made from it."""
    switches = [device for device in devices.items if device.kind == "switch"]
    linked = any(port.peer is not None for device in devices.items for port in device.ports.values())
    if not switches:
        return f"no switch{'' if linked else ' and no link'} in it: no topology can be derived"
    if not linked:
        return "no link and no host in it: no topology can be derived"
    if not any(device.level == 1 for device in fabric.switches):
        loose = [device.name for device in fabric.devices
                 if device.kind == "ca" and not any(port.peer for port in device.ports)]
        return ("no host is attached to any switch" + (f" ({', '.join(loose[:4])} has no link)" if loose else "")
                + ": no topology can be derived")
    return ""


def _missing(dump: Dump, fabric: Fabric, devices: Devices) -> list[str]:
    found = []
    switches = [(device, told) for device, told in zip(fabric.devices, devices.items, strict=True)
                if device.kind == "switch"]
    if dump.kind == "ibnetdiscover":
        bare = [device.name for device, told in switches if not told.block]
        if bare and dump.blocks:
            found.append(f"{plural(len(bare), 'switch', 'switches')} without a part of their own: {_some(bare)}")
        found += _cards_without_part(fabric, devices)
    if dump.kind == "iblinkinfo":
        headless = [device.name for device, told in switches if not device.guid]
        if headless:
            found.append(f"the header lines of {_some(headless)} are missing: the switch's GUID is unknown")
        if any(line.here.description for line in dump.lines) and not dump.blocks and len(switches) <= len(dump.lines):
            found += _one_sided(dump)
    if dump.kind == "ibnetdiscover -l":
        found.append("a list of devices has no links")
    unsure = [device.name for device in fabric.devices if not device.kind]
    if unsure:
        found.append(f"what these are, switches or adapters: {_some(unsure)}")
    return found + _loose(dump, fabric)


def _cards_without_part(fabric: Fabric, devices: Devices) -> list[str]:
    """Adapters come last: where some are told only by what they are plugged into, the end is missing."""
    cards = [(device.name, told) for device, told in zip(fabric.devices, devices.items, strict=True)
             if device.kind == "ca"]
    bare = [name for name, told in cards if not told.block]
    return [f"{plural(len(bare), 'adapter')} without a part of their own: {_some(bare)}"] \
        if bare and len(bare) < len(cards) else []


def _one_sided(dump: Dump) -> list[str]:
    """With --line every cable is printed from both its ends."""
    seen = {(line.here.lid, line.here.port) for line in dump.lines}
    lonely = sum(line.there is not None and (line.there.lid, line.there.port) not in seen for line in dump.lines)
    return [f"{plural(lonely, 'cable')} told from one end only: lines are missing"] if lonely else []


def _loose(dump: Dump, fabric: Fabric) -> list[str]:
    """Parts of a fabric that hang together with nothing: the rest of it is not in the dump."""
    if dump.kind == "ibnetdiscover -l" or dump.fabric != "infiniband":
        return []
    linked = [device for device in fabric.switches if any(port.peer for port in device.ports)]
    alone = [device.name for device in fabric.switches if not any(port.peer for port in device.ports)]
    found = [f"no link of switch {name} is in it" for name in alone] if linked or not alone else []
    if alone and not linked:
        found.append("no link and no host in it")
    loose = [device.name for device in fabric.devices if device.kind == "ca" and not any(p.peer for p in device.ports)]
    if linked and loose:
        found.append(f"{_some(loose)}: no link is in it")
    return found


def _assumed(fabric: Fabric) -> tuple[dict[str, Any], ...]:
    names = left_out(fabric)
    if not names:
        return ()
    return ({"assumption": f"{_some(list(names))} {'are' if len(names) > 1 else 'is'} no node of Slurm's, by the name",
             "topology_conf": list(topology_conf(fabric))},)


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


# --- what is known --------------------------------------------------------------------------------------------------


def known_of(dump: Dump, fabric: Fabric, devices: Devices) -> dict[str, Any]:
    if dump.kind == "iblinkinfo":
        known = _linkinfo(dump, fabric, devices)
    elif len(fabric.switches) > MANY:
        known = survey(fabric)
    else:
        known = _netdiscover(dump, fabric, devices)
    lines = topology_conf(fabric)
    if not _refused(fabric, devices):
        known["topology_conf"] = list(lines)
    return known


def _switch(name: str, told: Device, guid: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name if not is_generic(told.description) else clean(told.description),
                             "lid": told.lid, "guid": guid or None}
    if is_generic(told.description):
        found["name_is_generic"] = True
    return found


def _netdiscover(dump: Dump, fabric: Fabric, devices: Devices) -> dict[str, Any]:
    both = list(zip(fabric.devices, devices.items, strict=True))
    written = "S-{}" if dump.kind == "ibnetdiscover" else "0x{}"
    label = {device.name: (f"0x{device.guid}" if is_generic(told.description) else device.name)
             for device, told in both}
    own = [(device, told) for device, told in both if device.kind == "switch" and (told.block or not dump.blocks)]
    own.sort(key=lambda pair: not pair[1].block and not any(port.own for port in pair[1].ports.values()))
    bare = [(device, told) for device, told in both if device.kind == "switch" and not told.block and dump.blocks]
    cards = [(device, told) for device, told in both if device.kind == "ca"]
    known: dict[str, Any] = {
        "switches": [_switch(device.name, told, written.format(device.guid) if device.guid else "")
                     for device, told in own],
        "cas": [{"name": device.host or device.name, "device": device.device,
                 "links": sum(bool(port.peer) for port in device.ports)} for device, _ in cards] if own else len(cards),
        "cables": sum(bool(port.peer) for device in fabric.devices for port in device.ports) // 2,
        "switch_links": _switch_links(devices, fabric, label),
        "hosts": _hosts(fabric, label) if own else sorted({device.host for device, _ in cards if device.host}),
        "unlinked_ports": [[label[device.name], port.number] for device, told in own
                           for port in told.ports.values() if port.peer is None],
    }
    if bare:
        known["switches_without_block"] = [_switch(device.name, told, written.format(device.guid))
                                           for device, told in bare]
    if own and cards:
        known["hosts_attached"] = known["hosts"]
    return known


def _hosts(fabric: Fabric, label: dict[str, str]) -> dict[str, list[str]]:
    cards = {device.name: device.host for device in fabric.devices if device.kind == "ca" and device.host}
    found = {}
    for switch in fabric.switches:
        names = sorted({cards[port.peer] for port in switch.ports if port.peer in cards})
        if names:
            found[label[switch.name]] = names
    return found


def _switch_links(devices: Devices, fabric: Fabric, label: dict[str, str]) -> list[list[Any]]:
    """Each cable once, as it is first told."""
    told = sorted((not port.own, port.line, place, number) for place, device in enumerate(devices.items)
                  for number, port in device.ports.items()
                  if device.kind == "switch" and port.peer is not None and devices.items[port.peer].kind == "switch")
    seen: set[tuple[int | None, int | None]] = set()
    found = []
    for _, _, place, number in told:
        port = devices.items[place].ports[number]
        if (place, number) not in seen and port.peer is not None:
            seen.add((port.peer, port.peer_port))
            found.append([label[fabric.devices[place].name], number, label[fabric.devices[port.peer].name],
                          port.peer_port])
    return found


def _linkinfo(dump: Dump, fabric: Fabric, devices: Devices) -> dict[str, Any]:
    both = list(zip(fabric.devices, devices.items, strict=True))
    by_name = {device.name: (device, told) for device, told in both}
    links = []
    for device, told in sorted(both, key=lambda pair: _first_named(dump, pair[1])):
        for number, port in sorted(told.ports.items()) if device.kind == "ca" else ():
            if port.peer is not None:
                adapter = host_of(told.description)[1]
                links.append({"host": device.host or other_name(told.description), "hca": adapter or None,
                              "guid": f"0x{device.guid}" if device.guid else None, "lid": port.lid, "port": number,
                              "switch_port": port.peer_port})
    speeds = Counter(port.speed for _, told in both for port in told.ports.values() if port.peer is not None)
    widths = Counter(port.width for _, told in both for port in told.ports.values() if port.peer is not None)
    width = next(iter(widths)) if len(widths) == 1 else None
    speed = next(iter(speeds)) if len(speeds) == 1 else None
    from hpcadmin.facts.iblinkinfo import lane_gbps  # noqa: PLC0415
    lanes = re.match(r"[0-9]{1,2}", width or "")
    known: dict[str, Any] = {
        "switches": [_linkinfo_switch(device.name, told, device.guid) for device, told in both
                     if device.kind == "switch"],
        "links": links, "cables": sum(bool(port.peer) for device in fabric.devices for port in device.ports) // 2,
        "switch_links": _switch_links(devices, fabric, {name: name for name in by_name}),
        "width": width or None, "speed": speed or None, "lane_gbps": lane_gbps(speed or ""),
        "rate_gbps": int(lanes[0]) * _RATES[speed] if lanes and speed in _RATES else None,
        "down_ports": [{"switch": f"0x{device.guid}" if device.guid else device.name, "port": number,
                        "phys": port.physical or None} for device, told in both
                       for number, port in sorted(told.ports.items()) if port.state.lower() == "down"],
        "nodes": sorted({device.host for device, _ in both if device.kind == "ca" and device.host}),
    }
    return known


def _first_named(dump: Dump, told: Device) -> int:
    """The line in which the adapter is first called by its name."""
    return told.named or min((port.line for port in told.ports.values()), default=0)


def _linkinfo_switch(name: str, told: Device, guid: str) -> dict[str, Any]:
    found: dict[str, Any] = {"guid": f"0x{guid}" if guid else None, "lid": told.lid, "name": clean(told.description)}
    if is_generic(told.description):
        found["name_is_generic"] = True
    elif name != told.description:
        found["short"] = name
    return found

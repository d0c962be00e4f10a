"""NetQ's picture of an Ethernet fabric (topologyGraph) and `netq show lldp json`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.fabric import fabric_of, faults, topology_conf
from hpcadmin.fabric.dump import Dump, End, Ends, Line, devices_of
from hpcadmin.facts._base import clean
from hpcadmin.facts._lldp import load
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.model import Fabric

FORMS = ("json",)
MARKS = ('"compounded_', '"peerHostname"', '"peer_hostname"')
MAX_LINKS = 500_000
_SWITCH_PORT = re.compile(r"(?:swp|Ethernet|Eth|et-|xe-)[0-9]")


def read(document: Document) -> tuple[Reading, ...]:
    head = "\n".join(document.lines[:400])
    graph, lldp = '"compounded_' in head, '"peerHostname"' in head or '"peer_hostname"' in head
    if not graph and not lldp:
        return ()
    try:
        value = load("\n".join(document.lines))
        return (_graph(value, document) if graph else _lldp(value, document),)
    except ParseError as exc:
        raise ParseError(f"NetQ: {exc.what}", where=f"{document.name}:{len(document.lines)}") from exc


def _list(value: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ParseError(f"{what} is no list of records")
    return value


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ParseError(f"a record without {key}")
    return clean(value)


def _devices(graph: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By id; tiers hold them, and may stand within each other."""
    found: dict[str, dict[str, Any]] = {}
    border = _list(graph.get("nodes"), "nodes")
    while border:
        record = border.pop(0)
        inside = record.get("compounded_nodes")
        if isinstance(inside, list):
            border += _list(inside, "compounded_nodes")
        elif record.get("node_type") != "tier":
            found[_text(record, "id")] = {"name": _text(record, "name"), "type": str(record.get("device_type")),
                                          "tier": record.get("tier")}
        if len(found) + len(border) > MAX_LINKS:
            raise ParseError(f"more than {MAX_LINKS} devices")
    return found


def _links(graph: dict[str, Any], devices: dict[str, dict[str, Any]], missing: list[str]) -> Iterator[Line]:
    ends = Ends()
    count = 0
    for link in _list(graph.get("links"), "links"):
        inner = _list(link.get("compounded_links", []), "compounded_links")
        if isinstance(link.get("size"), int) and link["size"] != len(inner):
            missing.append(f"link {clean(str(link.get('id')))}: {len(inner)} of its {link['size']} cables are there")
        for cable in inner:
            sides = _list(cable.get("interfaces"), "interfaces")
            if len(sides) != 2:
                raise ParseError(f"a cable of {len(sides)} ends")
            told = [devices.get(_text(side, "node")) for side in sides]
            if None in told:
                raise ParseError("a cable to a device that is not in it")
            here, there = (ends.end(device["name"], _text(side, "interface"), _kind(device))
                           for device, side in zip(told, sides, strict=True) if device)
            count += 1
            if count > MAX_LINKS:
                raise ParseError(f"more than {MAX_LINKS} cables")
            yield Line(here, there)


def _kind(device: dict[str, Any]) -> str:
    """What NetQ does not manage and only sees by LLDP is a host."""
    return "switch" if device["type"] == "switch" else "ca"


def _graph(value: Any, document: Document) -> Reading:
    graphs = _list(value if isinstance(value, list) else [value], "the graph")
    devices: dict[str, dict[str, Any]] = {}
    missing: list[str] = []
    lines: list[Line] = []
    for graph in graphs:
        devices.update(_devices(graph))
    names = Counter(device["name"] for device in devices.values())
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ParseError(f"two devices are called {twice[0]}")
    for graph in graphs:
        lines += _links(graph, devices, missing)
    dump = Dump("netq-json", lines=tuple(lines), fabric="ethernet")
    fabric = fabric_of(devices_of([dump]), "ethernet")
    findings = [Finding(fault.what, None, fault.note) for fault in faults(fabric)]
    level = {switch.name: switch.level for switch in fabric.switches}
    for device in devices.values():
        tier, found = device["tier"], level.get(device["name"])
        if device["type"] == "switch" and found and isinstance(tier, int) and tier > 0 and tier != found:
            findings.append(Finding(f"{device['name']} is in tier {tier}, and {found} cables from the hosts"))
    told = [{"id": key, "name": device["name"], "tier": device["tier"] if isinstance(device["tier"], int) else None}
            for key, device in devices.items() if device["type"] == "switch"]
    return replace(_reading(dump, fabric, findings, told), last=len(document.lines), missing=tuple(missing))


def _reading(dump: Dump, fabric: Fabric, findings: list[Finding], switches: list[dict[str, Any]]) -> Reading:
    hosts, per_host, between = _count(fabric)
    refused = "" if hosts else "no host hangs on any switch: no topology can be derived"
    known: dict[str, Any] = {
        "switches": switches, "hosts": hosts, "inter_switch_links": between,
        "links_per_host": per_host.pop() if len(per_host) == 1 else None,
    }
    if not refused:
        known["topology_conf"] = list(topology_conf(fabric))
    return Reading(dump.kind, value=dump, known=known, findings=tuple(findings), refused=refused)


def _count(fabric: Fabric) -> tuple[dict[str, list[str]], set[int], dict[str, int]]:
    """(hosts by switch, numbers of cables that hosts have, cables between switches)."""
    by_name = {device.name: device for device in fabric.devices}
    hosts: dict[str, list[str]] = {}
    between: Counter[str] = Counter()
    for switch in fabric.switches:
        peers = [by_name[port.peer] for port in switch.ports if port.peer in by_name]
        names = sorted({peer.host for peer in peers if peer.kind == "ca" and peer.host})
        if names:
            hosts[switch.name] = names
        between.update(f"{switch.name} - {peer.name}" for peer in peers
                       if peer.kind == "switch" and switch.name < peer.name)
    per_host = {sum(bool(port.peer) for port in device.ports) for device in fabric.devices if device.kind == "ca"}
    return hosts, per_host, dict(sorted(between.items()))


def _lldp(value: Any, document: Document) -> Reading:
    records = _list(value.get("lldp") if isinstance(value, dict) else value, "lldp")
    ports = [(_text(r, "hostname"), _text(r, "ifname"), _text(r, _peer(r, "Hostname")), _text(r, _peer(r, "Ifname")))
             for r in records[:MAX_LINKS]]
    switches = {name for one in ports for name, port in (one[:2], one[2:]) if _SWITCH_PORT.match(port)}
    ends = Ends()

    def end(name: str, port: str) -> End:
        return ends.end(name, port, "switch" if name in switches else "ca")

    lines = tuple(Line(end(name, port), end(peer, far)) for name, port, peer, far in ports)
    dump = Dump("netq-lldp", lines=lines, fabric="ethernet")
    fabric = fabric_of(devices_of([dump]), "ethernet")
    findings = [Finding(fault.what, None, fault.note) for fault in faults(fabric)]
    told = [{"name": switch.name, "tier": switch.level} for switch in fabric.switches]
    return replace(_reading(dump, fabric, findings, told), last=len(document.lines))


def _peer(record: dict[str, Any], word: str) -> str:
    return f"peer{word}" if f"peer{word}" in record else f"peer_{word.lower()}"

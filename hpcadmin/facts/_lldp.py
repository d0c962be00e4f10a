"""LLDP neighbours in every format of lldpcli and lldpctl, and in the tables that switches print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean

MAX_NEIGHBOURS = 8192
_MAC = re.compile(r"[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}\Z")
_KEY = re.compile(r"(lldp|local-chassis|edp|cdpv1|cdpv2|fdp|sonmp)\.(.{1,80}?)\.(via|rid|age|"
                  r"chassis\.[A-Za-z0-9.-]{1,60}|port\.[A-Za-z0-9.-]{1,80}|lldp-med\..{1,80}|vlan.{0,80}|pi\..{1,60}|ppvid.{0,60}|unknown-tlvs.{0,80}|"
                  r"custom.{0,80})=(.{0,1000})\Z")
_OWN = re.compile(r"local-chassis\.chassis\.([A-Za-z0-9.-]{1,60})=(.{0,500})\Z")
_INTERFACE = re.compile(r"Interface:\s{1,20}([^,\s]{1,64}),\s{0,4}via:\s{0,4}([A-Za-z0-9]{1,12})(.{0,100})\Z")
_FIELD = re.compile(r"(ChassisID|SysName|SysDescr|PortID|PortDescr|Capability|MgmtIP|TTL):\s{1,20}(.{0,600})\Z")


@dataclass(frozen=True)
class Neighbour:
    """One neighbour of one interface. port: as people call it, not its MAC where there is a better name."""

    interface: str
    name: str = ""                   # SysName; the chassis id where there is none
    chassis: str = ""
    description: str = ""
    port: str = ""
    switch: bool | None = None       # by its capabilities
    line: int = 0


@dataclass(frozen=True)
class Lldp:
    """name: of the device that was asked, where the text says it."""

    neighbours: tuple[Neighbour, ...] = ()
    name: str = ""
    chassis: str = ""


class _Entry:
    """A neighbour while its fields come in."""

    def __init__(self, interface: str, line: int) -> None:
        self.interface, self.line = clean(interface, 64), line
        self.values: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.able: dict[str, bool] = {}
        self.via = "LLDP"

    def neighbour(self) -> Neighbour:
        port = self.ids.get("ifname") or self.ids.get("local") or ""
        descr = self.values.get("port", "")
        if not port or _MAC.match(port) or (port.isdigit() and descr):
            port = descr or port or self.ids.get("mac", "") or next(iter(self.ids.values()), "")
        bridge = any(on for what, on in self.able.items() if what in ("Bridge", "Router"))
        return Neighbour(self.interface, self.values.get("name") or self.values.get("chassis", ""),
                         self.values.get("chassis", ""), self.values.get("descr", ""), clean(port, 64),
                         bridge if self.able else None, self.line)


def keyvalue(lines: list[tuple[int, str]]) -> Lldp:
    """`lldpcli -f keyvalue`. An interface with several neighbours has `via` several times."""
    entries: list[_Entry] = []
    own: dict[str, str] = {}
    current: dict[str, _Entry] = {}
    for number, text in lines:
        local = _OWN.match(text)
        if local:
            own.setdefault(local[1], clean(local[2]))
            continue
        match = _KEY.match(text)
        if not match or match[1] == "local-chassis":
            continue
        interface, key, value = match[2], match[3], clean(match[4], 300)
        if key == "via" or interface not in current:
            current[interface] = _Entry(interface, number)
            entries.append(current[interface])
        _keyvalue(current[interface], key, value)
    return Lldp(tuple(entry.neighbour() for entry in entries[:MAX_NEIGHBOURS] if _is_told(entry)), own.get("name", ""),
                own.get("mac", ""))


def _is_told(entry: _Entry) -> bool:
    return bool(entry.values or entry.ids)


def _keyvalue(entry: _Entry, key: str, value: str) -> None:
    part, _, rest = key.partition(".")
    if key == "via":
        entry.via = value
    elif part == "chassis" and rest.endswith(".enabled"):
        entry.able[rest.partition(".")[0]] = value == "on"
    elif part == "chassis" and rest in ("name", "descr"):
        entry.values[rest] = value
    elif part == "chassis" and rest in ("mac", "local", "ifname", "ip", "ifalias"):
        entry.values.setdefault("chassis", value)
    elif part == "port" and rest == "descr":
        entry.values["port"] = value
    elif part == "port" and rest in ("ifname", "local", "mac", "ip", "ifalias"):
        entry.ids[rest] = value


def plain(lines: list[tuple[int, str]]) -> Lldp:
    """As lldpcli prints it for people, also with details and summary."""
    entries: list[_Entry] = []
    for number, text in lines:
        head, told = _INTERFACE.match(text), _FIELD.match(text)
        if head:
            entries.append(_Entry(head[1], number))
        elif told and entries:
            _plain(entries[-1], told[1], clean(told[2], 300))
    return Lldp(tuple(entry.neighbour() for entry in entries[:MAX_NEIGHBOURS] if _is_told(entry)))


def _plain(entry: _Entry, key: str, value: str) -> None:
    kind, _, rest = value.partition(" ")
    if key == "ChassisID":
        entry.values["chassis"] = rest or kind
    elif key == "PortID":
        entry.ids[kind if rest else "local"] = rest or kind
    elif key == "Capability":
        what, _, on = value.partition(",")
        entry.able[what.strip()] = on.strip() == "on"
    elif key in ("SysName", "SysDescr", "PortDescr"):
        entry.values[{"SysName": "name", "SysDescr": "descr", "PortDescr": "port"}[key]] = value


def of_json(value: Any, lines: list[int]) -> Lldp | None:
    """`lldpcli -f json` and `-f json0`; None for another JSON. lines: of each interface's name, where known."""
    inside = value.get("lldp") if isinstance(value, dict) else None
    if isinstance(inside, list):
        inside = inside[0] if inside else {}
    if not isinstance(inside, dict) or not (inside.keys() <= {"interface"}):
        return None
    told = inside.get("interface", [])
    entries: list[_Entry] = []
    for name, record in _interfaces(told):
        entry = _Entry(name, lines[len(entries)] if len(entries) < len(lines) else 0)
        _json_entry(entry, record)
        entries.append(entry)
        if len(entries) > MAX_NEIGHBOURS:
            raise ParseError(f"more than {MAX_NEIGHBOURS} LLDP neighbours")
    return Lldp(tuple(entry.neighbour() for entry in entries))


def _interfaces(told: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in told if isinstance(told, list) else [told]:
        if not isinstance(item, dict):
            raise ParseError("an LLDP interface that is no record")
        if isinstance(item.get("name"), str):
            yield item["name"], item
            continue
        for name, record in item.items():
            if not isinstance(record, dict):
                raise ParseError("an LLDP interface that is no record")
            yield str(name), record


def _one(value: Any) -> Any:
    """json0 has a list of one everywhere."""
    return value[0] if isinstance(value, list) and value else value


def _word(value: Any) -> str:
    value = _one(value)
    value = value.get("value", "") if isinstance(value, dict) else value
    return clean(value, 300) if isinstance(value, str) else ""


def _json_entry(entry: _Entry, record: dict[str, Any]) -> None:
    chassis, port = _one(record.get("chassis")), _one(record.get("port"))
    if isinstance(chassis, dict):
        if "id" not in chassis and len(chassis) == 1 and isinstance(next(iter(chassis.values())), dict):
            name, chassis = next(iter(chassis.items()))
            entry.values["name"] = clean(name)
        elif _word(chassis.get("name")):
            entry.values["name"] = _word(chassis.get("name"))
        entry.values["chassis"], entry.values["descr"] = _word(chassis.get("id")), _word(chassis.get("descr"))
        able = chassis.get("capability")
        for item in able if isinstance(able, list) else [able]:
            if isinstance(item, dict) and isinstance(item.get("type"), str):
                entry.able[item["type"]] = item.get("enabled") in (True, "on", "true")
    if isinstance(port, dict):
        ident = _one(port.get("id"))
        kind = ident.get("type") if isinstance(ident, dict) else None
        entry.ids[kind if isinstance(kind, str) else "local"] = _word(ident)
        entry.values["port"] = _word(port.get("descr"))


def load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ParseError(f"cut off or no JSON: {clean(str(exc), 100)}") from exc


# --- tables of switches ---------------------------------------------------------------------------------------------

_LOCAL = ("localport", "local port", "local intf", "local interface", "port", "interface")
_REMOTE = ("remotehost", "remotedevice", "remote host", "remote device", "neighbor device id", "device id",
           "system name", "neighbor", "remote system name")
_REMOTE_PORT = ("remoteport", "remoteportid", "remote port", "remote port id", "neighbor port id", "port id")


def table(lines: list[tuple[int, str]]) -> Lldp:
    """A heading, a line of dashes below each column, rows: `net show lldp`, `show lldp table` and their like."""
    columns: dict[str, slice] = {}
    found: list[Neighbour] = []
    before = ""
    for number, text in lines:
        if re.fullmatch(r"\s{0,20}-{3,80}(?:[\s|+]{1,20}-{2,80}){2,12}\s{0,20}", text):
            columns = _columns(before, text)
        elif columns and text.strip(" -|+"):
            cells = {name: text[where].strip(" |") for name, where in columns.items()}
            if cells["local"] and cells["remote"] and " " not in cells["local"]:
                found.append(Neighbour(clean(cells["local"], 64), clean(cells["remote"]), port=clean(cells["port"], 64),
                                       line=number))
            elif not text.startswith(" "):
                columns = {}
        before = text
    return Lldp(tuple(found[:MAX_NEIGHBOURS]))


def _columns(heading: str, dashes: str) -> dict[str, slice]:
    spans = [match.span() for match in re.finditer(r"-{2,}", dashes)]
    names = [" ".join(heading[start:end + 1].lower().strip(" |").split()) for start, end in spans]
    found: dict[str, slice] = {}
    for key, words in (("local", _LOCAL), ("remote", _REMOTE), ("port", _REMOTE_PORT)):
        place = next((n for word in words for n, name in enumerate(names) if name == word), None)
        if place is None:
            return {}
        start = spans[place][0]
        found[key] = slice(start, spans[place + 1][0] if place + 1 < len(spans) else None)
    return found


_HEADING = re.compile(r"\s{0,8}LINK\s{1,40}CHASSIS[- ]ID\s{1,40}SYSTEM[- ]NAME\s.{0,300}\Z")
_HEADINGS = re.compile(r"LINK|CHASSIS[- ]ID|SYSTEM[- ]NAME|CAPS|PORT[- ]ID|PORT[- ]DESCRIPTION")


def networkctl(lines: list[tuple[int, str]]) -> Lldp:
    """`networkctl lldp`: columns below their headings; what is too long ends in "…"."""
    starts: list[tuple[str, int]] = []
    found: list[Neighbour] = []
    for number, text in lines:
        if _HEADING.match(text):
            starts = [(match[0].replace(" ", "-"), match.start()) for match in _HEADINGS.finditer(text)]
            continue
        ends = [start for _, start in starts[1:]] + [len(text)]
        cells = {name: text[start:end].strip() for (name, start), end in zip(starts, ends, strict=False)}
        if starts and (not cells["LINK"] or " " in cells["LINK"] or not cells["CHASSIS-ID"]
                       or " " in cells["CHASSIS-ID"] or any(0 < start < len(text) and text[start - 1] != " "
                                                            for _, start in starts)):
            starts = []
        elif starts:
            caps = cells.get("CAPS", "")
            found.append(Neighbour(
                clean(cells["LINK"], 64), clean(cells["SYSTEM-NAME"] or cells["CHASSIS-ID"]),
                clean(cells["CHASSIS-ID"]), "", clean(cells.get("PORT-DESCRIPTION") or cells.get("PORT-ID", ""), 64),
                ("b" in caps or "r" in caps) if caps else None, number))
    return Lldp(tuple(found[:MAX_NEIGHBOURS]))


# --- the host itself ------------------------------------------------------------------------------------------------


def without_itself(lldp: Lldp, own_names: frozenset[str] = frozenset()) -> tuple[Lldp, tuple[Neighbour, ...]]:
    """(the same without them, neighbours that are the host itself): it is called so, has the host's chassis id, or sees
    back what its own interfaces see (a VF and its representor)."""
    sees = {(entry.chassis or entry.name, entry.interface, entry.port) for entry in lldp.neighbours}
    names = own_names | ({lldp.name} if lldp.name else frozenset())
    own = []
    for entry in lldp.neighbours:
        mirrored = entry.interface != entry.port and \
            (entry.chassis or entry.name, entry.port, entry.interface) in sees
        if entry.name in names or (lldp.chassis and entry.chassis == lldp.chassis) or mirrored:
            own.append(entry)
    if not own:
        return lldp, ()
    # Of one device, either all of its ports are our own or none is.
    chassis = {entry.chassis or entry.name for entry in own}
    mine = tuple(entry for entry in lldp.neighbours if (entry.chassis or entry.name) in chassis)
    gone = {id(entry) for entry in mine}
    return replace(lldp, neighbours=tuple(e for e in lldp.neighbours if id(e) not in gone)), mine

"""Reads ibdiagnet's data base of a fabric (ibdiagnet2.db_csv) and says what of it is not as it should be.

Sections stand between START_NAME and END_NAME, each with a line of names; values are taken by name. A section that is
not there was not asked for, or is of another version.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.check import Measurement, ParseError
from hpcadmin.checklib import integer, shown

MAX_SECTIONS = 1000
_START, _END = re.compile(r"START_(\w{1,80})\Z"), re.compile(r"END_(\w{1,80})\Z")
_GUID = re.compile(r"0x[0-9a-fA-F]{1,16}\Z")
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,60}\Z")
_NONE = ("N/A", "NA", "-1", "0xfffffffffffffffe", "0xffffffffffffffff", "")
# In the order of what they carry: FDR10 stands between QDR and FDR.
SPEEDS = {1: "SDR", 2: "DDR", 4: "QDR", 65536: "FDR10", 256: "FDR", 512: "EDR", 1024: "HDR", 2048: "NDR", 4096: "XDR"}
WIDTHS = {1: "1x", 16: "2x", 2: "4x", 4: "8x", 8: "12x"}
_SWITCH, _ADAPTER = 2, 1
_UP, _ACTIVE, _WAITING = 5, 4, (2, 3)
# Counters of damage. What is dropped because a receiver was slow, or because a node was switched off, is none.
DAMAGE = ("SymbolErrorCounter", "LinkErrorRecoveryCounter", "PortRcvErrors", "LocalLinkIntegrityErrors",
          "ExcessiveBufferOverrunErrors", "PortXmitConstraintErrors", "PortRcvConstraintErrors",
          "PortFECUncorrectableBlockCounter", "SymbolErrorCounterExt", "LinkErrorRecoveryCounterExt",
          "PortRcvErrorsExt", "LocalLinkIntegrityErrorsExt", "ExcessiveBufferOverrunErrorsExt",
          "PortXmitConstraintErrorsExt", "PortRcvConstraintErrorsExt")
TOLD = ("LinkDownedCounter", "PortXmitDiscards", "VL15Dropped", "PortRcvRemotePhysicalErrors", "LinkDownedCounterExt",
        "PortXmitDiscardsExt", "VL15DroppedExt", "PortRcvRemotePhysicalErrorsExt")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SHARED_NAMES = re.compile(r"Aggregation Node|Mellanox Technologies|ConnectX|Quantum", re.IGNORECASE)


@dataclass
class Section:
    name: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def column(self, *names: str) -> int:
        """Where the column stands that has one of these names."""
        low = [name.lower() for name in self.header]
        place = next((low.index(name.lower()) for name in names if name.lower() in low), None)
        if place is None:
            raise ParseError(f"section {self.name} has no column {names[0]}", hint="of a version that is not known")
        return place

    def has(self, name: str) -> bool:
        return name.lower() in (there.lower() for there in self.header)


@dataclass(frozen=True)
class Port:
    lid: int
    state: int
    physical: int
    width: int
    widths: int              # that are enabled and supported
    speed: int
    speeds: int


def looks_like(text: str) -> bool:
    return bool(re.search(r"^START_\w+\s*$", text, re.MULTILINE))


def sections(lines: Sequence[str]) -> dict[str, Section]:
    """The sections by their names. ParseError where one does not end, is there twice, or a row has lost values."""
    found: dict[str, Section] = {}
    inside: Section | None = None
    for line in lines:
        start, end = _START.match(line), _END.match(line)
        if start:
            if inside or start[1] in found:
                raise ParseError(f"section {shown(start[1])} begins twice, or within another one",
                                 hint="lines are lost, or several runs mixed")
            inside = found[start[1]] = Section(start[1], [])
        elif end:
            if inside is None or end[1] != inside.name:
                raise ParseError(f"section {shown(end[1])} ends and had not begun", hint="lines are lost")
            inside = None
        elif inside and line.strip():
            _row(inside, line)
        elif line.count(",") >= 2 and not line.startswith(("#", "-")):
            raise ParseError(f"a row that is in no section: {shown(line)}", hint="lines are lost")
    if inside:
        raise ParseError(f"section {inside.name} does not end", hint="the text is cut")
    if len(found) > MAX_SECTIONS:
        raise ParseError(f"more than {MAX_SECTIONS} sections")
    return found


def _row(section: Section, line: str) -> None:
    values = [value.strip() for value in (next(csv.reader([line])) if '"' in line else line.split(","))]
    if not section.header:
        if len({name.lower() for name in values}) != len(values) or any(_GUID.match(value) for value in values):
            raise ParseError(f"section {section.name} does not begin with its names: {shown(line)}",
                             hint="lines are lost")
        section.header = values
    elif len(values) != len(section.header):
        raise ParseError(f"a row of {section.name} has {len(values)} values for {len(section.header)} names: "
                         f"{shown(line)}", hint="the text is cut or damaged")
    else:
        section.rows.append(values)


def _code(value: str, what: str) -> int:
    """A whole number, also in hexadecimal digits as some versions write LIDs and masks."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
        return int(value, 16)
    return integer(value, what)


class Fabric:
    """The nodes, ports and links that a data base has. partial: of a very large fabric not all were told."""

    def __init__(self, told: Mapping[str, Section], partial: bool = False) -> None:
        self.told, self.partial = told, partial
        self.nodes: dict[str, tuple[str, int]] = {}              # GUID -> description, type
        self.twice: list[str] = []
        self.ports: dict[tuple[str, int], Port] = {}
        self.links: list[tuple[tuple[str, int], tuple[str, int]]] = []
        for name in ("NODES", "PORTS", "LINKS", "PM_INFO", "SM_INFO"):
            for row, number in Counter(map(tuple, told[name].rows if name in told else ())).items():
                if number > 1:
                    raise ParseError(f"a row of {name} is there twice: {shown(','.join(row))}", hint="rows are doubled")
        if "NODES" in told:
            self._read_nodes(told["NODES"])
        if "PORTS" in told:
            self._read_ports(told["PORTS"])
        if "LINKS" in told:
            self._read_links(told["LINKS"])

    def _read_nodes(self, section: Section) -> None:
        name, kind, guid = (section.column(n) for n in ("NodeDesc", "NodeType", "NodeGUID"))
        for row in section.rows:
            key = self._guid(row[guid], "NODES")
            if key in self.nodes:
                self.twice.append(f"{row[guid]} of {shown(row[name])} and {shown(self.nodes[key][0])}")
            self.nodes[key] = row[name], integer(row[kind], "NodeType", least=1, most=3)

    def _guid(self, text: str, where: str) -> str:
        if not _GUID.match(text):
            raise ParseError(f"{where} has the GUID {shown(text)!r}, which is none")
        return f"{int(text, 16):016x}"

    def _read_ports(self, section: Section) -> None:
        names = (("NodeGuid",), ("PortNum",), ("LID",), ("PortState",), ("PortPhyState",), ("LinkWidthActv",),
                 ("LinkWidthEn",), ("LinkWidthSup",), ("LinkSpeedActv",), ("LinkSpeedEn",), ("LinkSpeedSup",))
        places = [section.column(*name) for name in names]
        for row in section.rows:
            values = [row[place] for place in places]
            key = self.place(values[0], values[1], "PORTS")
            number = [_code(value, f"{names[n + 2][0]} of {self.where(key)}") for n, value in enumerate(values[2:])]
            if key in self.ports:
                raise ParseError(f"PORTS has {self.where(key)} twice", hint="rows are doubled, or several runs mixed")
            if number[1] > 4 or number[2] > 15:
                raise ParseError(f"PORTS: {self.where(key)} has state {number[1]}/{number[2]}, which is none")
            lid, state, physical, width, widths, supported, speed, speeds, able = number
            self.ports[key] = Port(lid, state, physical, width, widths & supported, speed, speeds & able)

    def place(self, guid: str, port: str, where: str) -> tuple[str, int]:
        key = self._guid(guid, where), integer(port, f"port number of {where}", most=255)
        if self.nodes and key[0] not in self.nodes and not self.partial:
            raise ParseError(f"{where} has the node {shown(guid)}, which NODES has not", hint="rows are lost")
        return key

    def _read_links(self, section: Section) -> None:
        places = [section.column(n) for n in ("NodeGuid1", "PortNum1", "NodeGuid2", "PortNum2")]
        taken: set[tuple[str, int]] = set()
        for row in section.rows:
            one, two = (self.place(row[places[n]], row[places[n + 1]], "LINKS") for n in (0, 2))
            for end in (one, two):
                if end in taken and one != two:
                    raise ParseError(f"LINKS has {self.where(end)} in two links", hint="rows are doubled")
                taken.add(end)
                if self.ports and end not in self.ports and not self.partial:
                    raise ParseError(f"PORTS has no {self.where(end)}, which LINKS has", hint="rows are lost")
            self.links.append((one, two))

    def where(self, key: tuple[str, int]) -> str:
        name = self.nodes.get(key[0], ("", 0))[0]
        return f"{shown(name) or '0x' + key[0]}/{key[1]}"

    @property
    def hosts(self) -> set[str]:
        """The first words of the descriptions of adapters: host names, where somebody set them."""
        return {name.split()[0] for name, kind in self.nodes.values() if kind == _ADAPTER and name.split()}


def _some(words: Sequence[str]) -> tuple[str, ...]:
    return (*words[:3], *((f"and {len(words) - 3} more",) if len(words) > 3 else ()))


def measured(fabric: Fabric, ignored: frozenset[str]) -> Iterator[Measurement]:
    if fabric.partial:
        yield Measurement("data_base", "not whole", expected="not whole", warnings=(
            "the fabric is so large that not all of its ports and links are judged",))
    told = fabric.told
    if "NODES" in told:
        kinds = Counter(kind for _, kind in fabric.nodes.values())
        if not fabric.nodes:
            raise ParseError("NODES has no node", hint="rows are lost")
        yield Measurement("nodes_in_base", len(fabric.nodes), key=False)
        yield Measurement("switches_in_base", kinds[_SWITCH], key=False)
        yield _none("duplicate_guids", fabric.twice)
        names = Counter(name for name, _ in fabric.nodes.values() if not _SHARED_NAMES.search(name))
        same = [f"{shown(name)}: {n} nodes" for name, n in names.items() if n > 1]
        yield _warned("duplicate_names", same)
    if "PORTS" in told:
        yield from _ports(fabric)
    if "LINKS" in told:
        yield Measurement("links_in_base", len(fabric.links), key=False)
    if "LINKS" in told and "PORTS" in told:
        yield _none("slow_links", list(_slow(fabric)))
    for name in ("PM_INFO", "PM_DELTA"):
        if name in told:
            yield from _counters(told[name], fabric, "" if name == "PM_INFO" else "_growth")
    if "SM_INFO" in told:
        yield from _managers(told["SM_INFO"])
    yield from _events(told, ignored)


def _warned(name: str, words: Sequence[str]) -> Measurement:
    return Measurement(name, len(words), expected=len(words), warnings=_some(words))


def _none(name: str, words: Sequence[str]) -> Measurement:
    return Measurement(name, len(words), expected=0, warnings=_some(words))


def _ports(fabric: Fabric) -> Iterator[Measurement]:
    up = {key: port for key, port in fabric.ports.items() if port.physical == _UP}
    waiting = [f"{fabric.where(key)}: {'INIT' if port.state == 2 else 'ARMED'}" for key, port in up.items()
               if port.state in _WAITING]
    if not any(port.state == _ACTIVE for port in up.values()):
        raise ParseError("PORTS has no port that is ACTIVE")
    yield Measurement("ports_up", len(up), key=False)
    yield _none("waiting_ports", waiting)
    owners: dict[int, str] = {}
    twice = []
    for (guid, number), port in fabric.ports.items():
        if port.state == _ACTIVE and 0 < port.lid < 0xC000:
            first = owners.setdefault(port.lid, guid)
            if first != guid and f"LID {port.lid}" not in twice:
                twice.append(f"LID {port.lid}: {fabric.where((first, number))} and {fabric.where((guid, number))}")
    yield _none("duplicate_lids", twice)


def _slow(fabric: Fabric) -> Iterator[str]:
    """Links below what both ends can and may."""
    for one, two in fabric.links:
        if fabric.partial and not {one, two} <= fabric.ports.keys():
            continue
        a, b = fabric.ports[one], fabric.ports[two]
        where = f"{fabric.where(one)} - {fabric.where(two)}"
        for what, words, both, best in (("speed", SPEEDS, (a.speed, b.speed), a.speeds & b.speeds),
                                        ("width", WIDTHS, (a.width, b.width), a.widths & b.widths)):
            order = list(words)
            if both[0] not in order or both[1] not in order:
                if a.physical == b.physical == _UP:
                    yield f"{where}: its {what} is told as {both[0]} and {both[1]}"
                continue
            able = [code for code in order if code & best]
            if both[0] != both[1]:
                yield f"{where}: {words[both[0]]} at one end and {words[both[1]]} at the other"
            elif able and order.index(both[0]) < order.index(able[-1]):
                yield f"{where}: {words[both[0]]}, both ends can {words[able[-1]]}"


def _counters(section: Section, fabric: Fabric, suffix: str) -> Iterator[Measurement]:
    guid, port = section.column("NodeGUID"), section.column("PortNumber", "PortNum")
    for name in (*DAMAGE, *TOLD):
        if not section.has(name):
            continue
        place = section.column(name)
        found = []
        for row in section.rows:
            if row[place] not in _NONE and (count := _code(row[place], f"{name} of {section.name}")):
                found.append((count, fabric.place(row[guid], row[port], section.name)))
        worst = [f"{fabric.where(key)}: {count}" for count, key in sorted(found, reverse=True)]
        label = f"{_CAPITAL.sub('_', name.removesuffix('Counter')).lower()}{suffix}_ports"
        if name in TOLD:
            yield Measurement(label, len(found), key=False)
        elif found or not name.endswith("Ext"):
            yield _warned(label, worst)


def _managers(section: Section) -> Iterator[Measurement]:
    if section.has("SmState"):
        place = section.column("SmState")
        states = Counter(_code(row[place], "SmState") for row in section.rows)
        said = () if states[3] == 1 else (f"SM_INFO has {len(section.rows)} managers",)
        yield Measurement("masters", states[3], expected=1, warnings=said)
        yield Measurement("standbys", states[2], key=False)


def _events(told: Mapping[str, Section], ignored: frozenset[str]) -> Iterator[Measurement]:
    """ERRORS_… and WARNINGS_…: of each code how many there are, with the first ones' words."""
    for kind in ("ERRORS", "WARNINGS"):
        found: dict[str, list[str]] = {}
        for name, section in told.items():
            if (name == kind or name.startswith(f"{kind}_")) and section.rows:
                code, words = section.column("EventName", "Event"), section.column("Summary", "Description")
                for row in section.rows:
                    if not _CODE.match(row[code]):
                        raise ParseError(f"{name} has the event {shown(row[code])!r}, which is no name of one")
                    found.setdefault(row[code], []).append(shown(row[words]))
        for event, said in found.items():
            name = f"{kind.lower()}_{event.lower()}"
            if event.lower() in ignored:
                yield Measurement(f"{name}_ignored", len(said), key=False)
            elif kind == "ERRORS":
                yield _none(name, said)
            else:
                yield _warned(name, said)

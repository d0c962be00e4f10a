"""`ibstat`: asked where /sys/class/infiniband shows nothing (a container, an old driver); read from any text."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, leading_float, lines_of, maybe_integer
from hpcadmin.facts._hca import Hca, HcaPort, by_node, cut_layer, layer_of, reading, set_rate
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts.infiniband import Port, RdmaDevice, bare_guid, port_state

NAME = "ibstat"
ORDER = 80
COMMAND = r"""
for d in /sys/class/infiniband/*; do [ -d "$d" ] && return 127; done
run 20 ibstat
"""
FORMS = ("text",)
MARKS = ("CA '", "CA: '")
_CA = re.compile(r"CA:? '([^']{1,64})'\Z")
_PORT = re.compile(r"Port ([0-9]{1,3}):\Z")


def parse(text: str) -> tuple[RdmaDevice, ...]:
    heads: list[tuple[str, dict[str, str]]] = []
    ports: list[list[tuple[int, dict[str, str]]]] = []
    for line in lines_of(text, "ibstat"):
        stripped = line.strip()
        card, port = _CA.match(stripped), _PORT.match(stripped)
        if card:
            heads.append((card[1], {}))
            ports.append([])
        elif port and ports:
            ports[-1].append((int(port[1]), {}))
        elif heads and ":" in stripped:
            key, _, value = stripped.partition(":")
            target = ports[-1][-1][1] if ports[-1] else heads[-1][1]
            target.setdefault(key.strip(), clean(value))
        else:
            raise ParseError(f"ibstat: {clean(stripped)}")
    found = []
    for (name, values), own in zip(heads, ports, strict=True):
        if maybe_integer(values.get("Number of ports")) != len(own):
            raise ParseError(f"ibstat: {clean(name)} does not show as many ports as it has: cut off")
        found.append(RdmaDevice(
            name=clean(name, 64), firmware=values.get("Firmware version", ""), hca_type=values.get("CA type", ""),
            guid=bare_guid(values.get("Node GUID", "")), ports=tuple(_port(number, port) for number, port in own),
        ))
    if not found:
        raise ParseError("ibstat shows no device")
    return tuple(found)


def _port(number: int, values: dict[str, str]) -> Port:
    state = port_state(values.get("State", ""))
    rate = None if state == "DOWN" else leading_float(values.get("Rate"))
    return Port(
        number=number, state=state, physical_state=values.get("Physical state", ""),
        rate_gbps=rate or None, rate_text=f"{rate:g} Gb/sec" if rate else "", lid=maybe_integer(values.get("Base lid")),
        link_layer=layer_of(values.get("Link layer", "")), sm_lid=maybe_integer(values.get("SM lid")),
        port_guid=bare_guid(values.get("Port GUID", "")),
    )


# --- texts that people have -----------------------------------------------------------------------------------------

_OF_CARD = {"CA type": "kind", "Firmware version": "firmware", "Node GUID": "guid", "System image GUID": "system_guid",
            "Number of ports": "", "Hardware version": ""}
_OF_PORT = {"State": "state", "Physical state": "physical", "Rate": "", "Base lid": "lid", "LMC": "",
            "SM lid": "sm_lid", "Capability mask": "", "Port GUID": "port_guid", "Link layer": "layer"}
_COMPLAINT = re.compile(r"(ibpanic|ibwarn|iberror|ibstat)\b:? ?(.{0,300})\Z")
_ASKED = re.compile(r"(?:stat of IB device|open device|read ca|umad_get_ca|can.t find) ?'?([A-Za-z0-9_]{1,40})")


class _Text:
    """The devices of a document, as they come."""

    def __init__(self) -> None:
        self.cards: list[Hca] = []
        self.card: Hca | None = None
        self.last = 0
        self.lasts: dict[int, int] = {}
        self.findings: list[tuple[int, Finding]] = []
        self.stumps: list[int] = []

    def line(self, text: str, number: int) -> None:
        card, port = _CA.search(text), _PORT.search(text)
        key, colon, value = text.partition(":")
        key, value = key.strip(), clean(value.strip())
        if card and text[:card.start()].strip() in ("", "-"):
            self.card = Hca(clean(card[1], 64), number)
            self.cards.append(self.card)
        elif self.card is None:
            return
        elif port and not text[:port.start()].strip():
            self.card.ports.append(HcaPort(int(port[1]), number))
        elif colon and key in _OF_CARD:
            self.of_card(self.card, key, value)
        elif colon and key in _OF_PORT and self.card.ports:
            self.of_port(self.card.ports[-1], key, value)
        elif match := _COMPLAINT.match(text):
            self.complaint(match, number)
            return
        elif any(known.startswith(key) for known in (*_OF_CARD, *_OF_PORT)) and key:
            self.stumps.append(number)
        else:
            self.card = None
            return
        self.last = self.lasts[id(self.card)] = number

    @staticmethod
    def of_card(card: Hca, key: str, value: str) -> None:
        if key == "Number of ports":
            card.count = maybe_integer(value)
        elif _OF_CARD[key]:
            setattr(card, _OF_CARD[key], value)

    @staticmethod
    def of_port(port: HcaPort, key: str, value: str) -> None:
        name = _OF_PORT[key]
        if key == "Rate":
            set_rate(port, value)
        elif name in ("lid", "sm_lid"):
            setattr(port, name, maybe_integer(value))
        elif name:
            setattr(port, name, layer_of(value) if name == "layer" else value)

    def complaint(self, match: re.Match[str], number: int) -> None:
        device = _ASKED.search(match[2])
        what = f"{match[1]}: {clean(match[2])}"
        if device and device[1] not in {card.name for card in self.cards}:
            what = f"{device[1]} could not be read: {what}"
        self.findings.append((number, Finding(what, number)))


def read(document: Document) -> tuple[Reading, ...]:
    text = _Text()
    for number, raw in enumerate(document.lines, 1):
        stripped = raw.strip()
        if stripped and len(raw) < 1000:
            text.line(stripped, number)
    found = []
    groups = by_node(text.cards)
    for place, group in enumerate(groups):
        last = max(text.lasts[id(card)] for card in group)
        after = groups[place + 1][0].line if place + 1 < len(groups) else len(document.lines) + 1
        own = [finding for number, finding in text.findings if group[0].line <= number < after]
        missing = _missing(group) + [f"line {n} is cut off" for n in text.stumps if group[0].line <= n <= last]
        found.append(reading("ibstat", group, last, missing, own))
    return tuple(found)


def _missing(cards: list[Hca]) -> list[str]:
    found = []
    layers = any(port.layer for card in cards for port in card.ports)
    for card in cards:
        if card.count is not None and card.count != len(card.ports):
            found.append(f"{card.name}: {len(card.ports)} of its {card.count} ports are there")
        elif not card.ports:
            found.append(f"{card.name}: its ports are not there")
        for port in card.ports:
            cut = cut_layer(port)
            if cut:
                found.append(f"{card.name} port {port.number}: {cut}")
            # Old versions print no link layer, for any port.
            elif not port.state or (layers and not port.layer):
                found.append(f"{card.name} port {port.number}: cut off before its "
                             f"{'state' if not port.state else 'link layer'}")
    return found

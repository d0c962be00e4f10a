"""`ibstat`, where /sys/class/infiniband shows nothing (a container, an old driver)."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, leading_float, lines_of, maybe_integer
from hpcadmin.facts.infiniband import Port, RdmaDevice

NAME = "ibstat"
ORDER = 80
COMMAND = r"""
for d in /sys/class/infiniband/*; do [ -d "$d" ] && return 127; done
run 20 ibstat
"""
_CA = re.compile(r"CA '([^']{1,64})'\Z")
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
            guid=_guid(values.get("Node GUID", "")), ports=tuple(_port(number, port) for number, port in own),
        ))
    if not found:
        raise ParseError("ibstat shows no device")
    return tuple(found)


def _guid(text: str) -> str:
    match = re.match(r"0x([0-9a-fA-F]{16})\Z", text)
    return match[1].lower() if match else ""


def _port(number: int, values: dict[str, str]) -> Port:
    rate = leading_float(values.get("Rate"))
    return Port(
        number=number, state=values.get("State", "").upper(), physical_state=values.get("Physical state", ""),
        rate_gbps=rate or None, rate_text=f"{rate:g} Gb/sec" if rate else "", lid=maybe_integer(values.get("Base lid")),
        link_layer=values.get("Link layer", ""),
    )

"""`ibstatus`: state, rate and default GID of every RDMA port."""

from __future__ import annotations

import re

from hpcadmin.facts._base import clean
from hpcadmin.facts._hca import Hca, HcaPort, by_node, cut_layer, layer_of, reading, set_rate
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.facts.infiniband import after_colon, hexadecimal

FORMS = ("text",)
MARKS = ("device '", "Device '", "DEVICE '")
_HEAD = re.compile(r"Infiniband device '([^']{1,64})' port ([0-9]{1,3}) status:?\s{0,20}\Z", re.IGNORECASE)
_KEYS = {"default gid": "gid", "base lid": "lid", "sm lid": "sm_lid", "state": "state", "phys state": "physical",
         "rate": "rate", "link_layer": "layer"}


def read(document: Document) -> tuple[Reading, ...]:
    cards: list[Hca] = []
    lasts: dict[int, int] = {}
    port: HcaPort | None = None
    for number, raw in enumerate(document.lines, 1):
        text = raw.strip()
        if not text or len(raw) > 1000:
            continue
        head = _HEAD.search(text)
        if head:
            name = clean(head[1], 64)
            port = HcaPort(int(head[2]), number)
            same = cards and cards[-1].name == name and all(p.number != port.number for p in cards[-1].ports)
            if not same:
                cards.append(Hca(name, number))
            cards[-1].ports.append(port)
        elif port is None:
            continue
        elif (key := text.partition(":")[0].strip()) in _KEYS:
            _set(port, _KEYS[key], text.partition(":")[2].strip())
        else:
            port = None
            continue
        lasts[id(cards[-1])] = number
    return tuple(reading("ibstatus", group, max(lasts[id(card)] for card in group), _missing(group))
                 for group in by_node(cards))


def _set(port: HcaPort, key: str, value: str) -> None:
    if key == "rate":
        set_rate(port, value)
    elif key in ("lid", "sm_lid"):
        setattr(port, key, hexadecimal(value))
    elif key in ("state", "physical"):
        setattr(port, key, after_colon(value))
    else:
        setattr(port, key, layer_of(clean(value)) if key == "layer" else clean(value, 64))


def _missing(cards: list[Hca]) -> list[str]:
    found = []
    layers = any(port.layer for card in cards for port in card.ports)
    for card in cards:
        for port in card.ports:
            cut = cut_layer(port)
            if cut:
                found.append(f"{card.name} port {port.number}: {cut}")
            elif not port.state or not port.physical or (layers and not port.layer):
                found.append(f"{card.name} port {port.number}: cut off")
    return found

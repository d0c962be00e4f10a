"""`ibdev2netdev` and `rdma link`: which network interface belongs to which RDMA port, and is it up."""

from __future__ import annotations

import re
from typing import Any

from hpcadmin.facts._base import clean, pci_address
from hpcadmin.facts._hca import Hca, HcaPort, by_node, rdma
from hpcadmin.facts._reading import Document, Finding, Reading

FORMS = ("text",)
MARKS = ("==>", "link ")
_LINE = re.compile(r"(?:(?P<pci>[0-9a-fA-F:.]{7,16})\s{1,20})?(?P<name>[A-Za-z0-9_-]{1,40})\s{1,20}"
                   r"(?:\((?P<kind>MT[0-9]{1,6})(?P<words>[^()]{0,80})\)(?P<card>.{0,200}?)\s{1,10}fw\s{1,10}(?P<fw>[0-9.]{1,30})\s{1,20})?"
                   r"port\s{1,10}(?P<port>[0-9]{1,3})\s{1,10}(?:\((?P<state>[A-Za-z]{1,12})\s{0,10}\)\s{1,10})?==>"
                   r"(?:\s{0,20}(?P<net>[^\s()#]{1,64}))?\s{0,40}(?:\((?P<up>Up|Down)\))?\s{0,10}(?:#.{0,200})?\Z")
_RDMA = re.compile(r"(?:[0-9]{1,4}: )?link (?P<name>[A-Za-z0-9_-]{1,40})/(?P<port>[0-9]{1,3}) (?P<rest>.{1,300})\Z")


def layer_by_name(netdev: str) -> str:
    """"" where the name does not tell: bonds, bridges, names of one's own."""
    if re.match(r"(?:ib[0-9ps]|ibp|ibs|ib_)", netdev):
        return "InfiniBand"
    return "Ethernet" if re.match(r"(?:eth[0-9]|en[opsx])", netdev) else ""


def read(document: Document) -> tuple[Reading, ...]:
    cards: list[Hca] = []
    up: dict[int, bool | None] = {}
    rdma_link = False
    for number, raw in enumerate(document.lines, 1):
        text = raw.strip()
        if not text or len(text) > 600:
            continue
        if "==>" in text and (match := _LINE.search(text)):
            port = HcaPort(int(match["port"]), number, state=(match["state"] or "").upper(),
                           netdev=clean(match["net"] or ""))
            card = Hca(match["name"], number, kind=match["kind"] or "", firmware=match["fw"] or "",
                       pci=pci_address(match["pci"] or ""), ports=[port])
            up[id(port)] = None if match["up"] is None else match["up"] == "Up"
        elif match := _RDMA.match(text):
            card, rdma_link = _rdma(match, number), True
            up[id(card.ports[0])] = None
        else:
            continue
        own = next((c for c in reversed(cards) if c.name == card.name), None)
        if own and own is cards[-1] and all(p.number != card.ports[0].number for p in own.ports):
            own.ports += card.ports
        else:
            cards.append(card)
    return tuple(_reading(group, up, "rdma link" if rdma_link else "ibdev2netdev") for group in by_node(cards))


def _rdma(match: re.Match[str], number: int) -> Hca:
    words = match["rest"].split()
    told = dict(zip(words[::2], words[1::2], strict=False))
    physical = {"LINK_UP": "LinkUp"}.get(told.get("physical_state", ""), told.get("physical_state", "").capitalize())
    return Hca(match["name"], number, ports=[HcaPort(
        int(match["port"]), number, state=clean(told.get("state", "")), physical=clean(physical),
        netdev=clean(told.get("netdev", ""), 64))])


def _reading(cards: list[Hca], up: dict[int, bool | None], kind: str) -> Reading:
    devices: list[dict[str, Any]] = []
    findings = []
    for card in cards:
        for port in card.ports:
            layer = layer_by_name(port.netdev)
            is_up = up[id(port)]
            devices.append({"name": card.name, "port": port.number, "netdev": port.netdev or None, "up": is_up,
                            "link_layer": f"{layer} (by the netdev name)" if layer else None, "rate_gbps": None,
                            **({"type": card.kind, "firmware": card.firmware, "pci": card.pci} if card.kind else {})})
            if is_up is False or port.down:
                name = f" ({port.netdev})" if port.netdev else ""
                findings.append(Finding(f"{card.name} port {port.number}{name} is Down", port.line))
            elif not port.netdev and kind == "ibdev2netdev":
                findings.append(Finding(f"{card.name} port {port.number} has no network interface", port.line))
    last = max(port.line for card in cards for port in card.ports)
    return Reading(kind, cards[0].line, last, value=rdma(cards), known={"devices": devices}, findings=tuple(findings))

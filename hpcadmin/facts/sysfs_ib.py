"""/sys/class/infiniband as people keep it: "path: value" lines (grep -r .), or a folder or archive of /sys."""

from __future__ import annotations

import re

from hpcadmin.facts._base import clean, pci_address
from hpcadmin.facts._hca import Hca, HcaPort, by_node, layer_of, reading, set_rate
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.facts.infiniband import after_colon, bare_guid, hexadecimal

FORMS = ("text", "tree")
MARKS = ("/board_id", "/fw_ver", "/hca_type", "/node_guid", "/node_desc", "/sys_image_guid", "/link_layer",
         "/phys_state", "/rate", "/state", "/lid", "/sm_lid", "/gids/0", "/gid_attrs/ndevs/0")
_FILES = ("board_id", "fw_ver", "hca_type", "node_guid", "node_desc", "sys_image_guid")
_PORT_FILES = ("link_layer", "phys_state", "rate", "state", "lid", "sm_lid", "gids/0", "gid_attrs/ndevs/0")
_LINE = re.compile(r"([^\s:=]{1,300}?)(?:\s{0,20}[:=]\s{0,20})(.{0,300})\Z")
_PATH = re.compile(
    r"(?:.{0,250}/)?([A-Za-z][A-Za-z0-9]{1,10}_[A-Za-z0-9_]{1,40}|[a-z]{2,8}[0-9]{1,4}|[a-z]{2,10}p[0-9]{1,3}s[a-z0-9]{1,16})/"
    r"(?:ports/([0-9]{1,3})/)?(" + "|".join((*_FILES, *_PORT_FILES)) + r")\Z")
_HEAD = re.compile(r"==> (.{1,300}) <==\Z")
_DEVICE = re.compile(r".{0,400}/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/infiniband/")


class _Tree:
    def __init__(self) -> None:
        self.cards: list[Hca] = []
        self.last = 0

    def value(self, path: str, text: str, number: int) -> bool:
        match = _PATH.match(path)
        if not match or (match[2] is None) != (match[3] in _FILES) or "/counters/" in path or "/hw_counters/" in path:
            return False
        name, value = clean(match[1], 64), clean(text)
        card = next((c for c in reversed(self.cards) if c.name == name), None)
        port = next((p for p in card.ports if p.number == int(match[2])), None) if card and match[2] else None
        if card is None or (self.cards[-1] is not card and _told(card, port, match[3])):
            card = Hca(name, number)
            self.cards.append(card)
        device = _DEVICE.match(path)
        card.pci = card.pci or (pci_address(device[1]) if device else "")
        self.last = max(self.last, number)
        if match[2] is None:
            keys = {"board_id": "board", "fw_ver": "firmware", "hca_type": "kind", "node_guid": "guid",
                    "node_desc": "description", "sys_image_guid": "system_guid"}
            setattr(card, keys[match[3]], value)
            return True
        if port is None:
            port = HcaPort(int(match[2]), number)
            card.ports.append(port)
        _set(port, match[3], value)
        return True


def _told(card: Hca, port: HcaPort | None, file: str) -> bool:
    """Whether the same file of the same device was there already: another node's then."""
    if file in _FILES:
        return bool({"board_id": card.board, "fw_ver": card.firmware, "hca_type": card.kind, "node_guid": card.guid,
                     "node_desc": card.description, "sys_image_guid": card.system_guid}[file])
    return port is not None and bool({"link_layer": port.layer, "phys_state": port.physical, "rate": port.rate,
                                      "state": port.state}.get(file))


def _set(port: HcaPort, file: str, value: str) -> None:
    if file == "rate":
        set_rate(port, value)
    elif file in ("lid", "sm_lid"):
        setattr(port, file, hexadecimal(value))
    elif file in ("state", "phys_state"):
        setattr(port, "state" if file == "state" else "physical", after_colon(value))
    elif file == "link_layer":
        port.layer = layer_of(value)
    elif file == "gids/0":
        port.gid = value
    else:
        port.netdev = value


def read(document: Document) -> tuple[Reading, ...]:
    tree = _Tree()
    if document.form == "tree":
        for path in sorted(document.tree):
            if "infiniband/" in path:
                tree.value(path, document.tree[path].strip(), 0)
    else:
        _lines(document, tree)
    found = []
    for group in by_node(tree.cards):
        for card in group:
            for port in card.ports:
                if port.layer == "InfiniBand" and len(port.gid) == 39:
                    port.port_guid = bare_guid(port.gid[20:])
        if any(card.ports or card.board for card in group):
            last = max(port.line for card in group for port in [*card.ports, HcaPort(0, card.line)])
            found.append(reading("sysfs-ib", group, max(last, tree.last if group[-1] is tree.cards[-1] else 0),
                                 _missing(group)))
    return tuple(found)


def _lines(document: Document, tree: _Tree) -> None:
    head = ""
    for number, raw in enumerate(document.lines, 1):
        text = raw.strip()
        if not text or len(text) > 700:
            continue
        heading = _HEAD.match(text)
        if heading:
            head = heading[1]
            continue
        match = _LINE.match(text)
        if match and tree.value(match[1], match[2], number):
            head = ""
        elif head:
            tree.value(head, text, number)
            head = ""


def _missing(cards: list[Hca]) -> list[str]:
    found = []
    names = {name for card in cards for port in card.ports for name in _have(port)}
    for card in cards:
        if not card.ports:
            found.append(f"{card.name}: its ports are not there")
        for port in card.ports:
            lacking = sorted(names - _have(port))
            if lacking:
                found.append(f"{card.name} port {port.number}: {', '.join(lacking)} not there")
    return found


def _have(port: HcaPort) -> set[str]:
    return {name for name, value in (("state", port.state), ("phys_state", port.physical), ("rate", port.rate),
                                     ("link_layer", port.layer)) if value}

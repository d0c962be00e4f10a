"""`ibv_devinfo`: RDMA devices as the verbs library sees them; the MTU that a port runs with is told nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, leading_float, leading_int, lines_of, maybe_integer
from hpcadmin.facts._hca import Hca, HcaPort, by_node, cut_layer, layer_of, rdma, reading
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts.infiniband import RdmaDevice

NAME = "ibv_devinfo"
ORDER = 78
# What it cannot say is known from /sys as well: then there is nothing to tell.
COMMAND = r"""
for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || return 127
  o=$(run 10 ibv_devinfo 2>/dev/null); r=$?
  case $r in 124|137|143) return $r;; esac
  [ -n "$o" ] || return 127
  printf '%s\n' "$o"
  return 0
done
return 127
"""
FORMS = ("text",)
MARKS = ("hca_id:",)
_HEAD = re.compile(r"hca_id:\s{1,40}(\S{1,64})\Z")
_KEYS = frozenset({
    "transport", "fw_ver", "node_guid", "sys_image_guid", "vendor_id", "vendor_part_id", "hw_ver", "board_id",
    "phys_port_cnt", "port", "state", "max_mtu", "active_mtu", "sm_lid", "port_lid", "port_lmc", "link_layer",
    "active_width", "active_speed", "phys_state", "max_msg_sz", "port_cap_flags",
})
_MORE = re.compile(r"[A-Za-z][A-Za-z0-9_ ]{1,40}(?:\[[ 0-9]{1,5}\])?:")
_NONE = re.compile(r"No IB devices found|Failed to get IB devices list", re.IGNORECASE)


class _Text:
    def __init__(self) -> None:
        self.cards: list[Hca] = []
        self.lasts: dict[int, int] = {}
        self.card: Hca | None = None

    def line(self, raw: str, number: int) -> bool:
        """Whether the line belongs to it."""
        text = raw.strip()
        head = _HEAD.match(text)
        key, colon, value = text.partition(":")
        if head:
            self.card = Hca(clean(head[1], 64), number)
            self.cards.append(self.card)
        elif self.card is None or not colon:
            self.card = None
            return False
        elif key in _KEYS:
            _set(self.card, key, value.strip(), number)
        elif not (_MORE.match(text) and raw[:1] in " \t") and not text.startswith(("GID[", "0x")):
            self.card = None
            return False
        self.lasts[id(self.cards[-1])] = number
        return True


def _set(card: Hca, key: str, value: str, number: int) -> None:
    if key == "port" and value.isdigit() and len(value) < 4:
        card.ports.append(HcaPort(int(value), number))
    elif key == "phys_port_cnt":
        card.count = maybe_integer(value)
    elif key in ("fw_ver", "node_guid", "sys_image_guid", "vendor_part_id", "board_id"):
        names = {"fw_ver": "firmware", "node_guid": "guid", "sys_image_guid": "system_guid", "vendor_part_id": "kind",
                 "board_id": "board"}
        setattr(card, names[key], clean(value))
    elif card.ports:
        _set_port(card.ports[-1], key, value)


def _set_port(port: HcaPort, key: str, value: str) -> None:
    word = value.partition(" (")[0].strip()
    if key == "state":
        port.state = clean(word)
    elif key == "phys_state":
        port.physical = {"LINK_UP": "LinkUp"}.get(word, clean(word).capitalize())
    elif key == "active_mtu":
        port.mtu = leading_int(word)
    elif key in ("sm_lid", "port_lid"):
        setattr(port, "lid" if key == "port_lid" else "sm_lid", maybe_integer(word))
    elif key == "link_layer":
        port.layer = layer_of(clean(word))
    elif key == "active_width":
        port.width = word if re.match(r"[0-9]{1,2}X\Z", word) else ""
    elif key == "active_speed":
        lane, lanes = leading_float(word), maybe_integer(port.width.rstrip("X"))
        if lane and lanes:
            port.rate = lane * lanes


def parse(text: str) -> tuple[RdmaDevice, ...]:
    """() where it says that there is none."""
    lines = lines_of(text, "ibv_devinfo")
    if _NONE.search(lines[0]):
        return ()
    found = _Text()
    for number, line in enumerate(lines, 1):
        if not found.line(line, number):
            raise ParseError(f"ibv_devinfo: {clean(line, 100)}")
    missing = _missing(found.cards)
    if missing:
        raise ParseError(f"ibv_devinfo: {missing[0]}")
    return rdma(found.cards)


def read(document: Document) -> tuple[Reading, ...]:
    found = _Text()
    for number, raw in enumerate(document.lines, 1):
        if raw.strip() and len(raw) < 1000:
            found.line(raw, number)
    closed = [number for number, raw in enumerate(document.lines, 1) if raw.strip() == "Failed to open device"]
    further = [Finding(f"Failed to open device (times {len(closed)}): devices that this node or container may "
                       "not use, or no driver", closed[0])] if closed else []
    return tuple(reading("ibv_devinfo", group, max(found.lasts[id(card)] for card in group), _missing(group), further)
                 for group in by_node(found.cards))


def _missing(cards: Iterable[Hca]) -> list[str]:
    found = []
    for card in cards:
        if card.count is not None and card.count != len(card.ports):
            found.append(f"{card.name}: {len(card.ports)} of its {card.count} ports are there: cut off")
        elif not card.ports:
            found.append(f"{card.name}: its ports are not there: cut off")
        for port in card.ports:
            cut = cut_layer(port)
            if cut or not port.state or not port.layer:
                lacks = "its link layer is not in it" if port.state and port.lid is not None else "cut off"
                found.append(f"{card.name} port {port.number}: {cut or lacks}")
    return found

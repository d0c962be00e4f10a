"""The ports of RDMA devices as /sys, ibstat, ibstatus and perfquery tell them: words, rates and LIDs, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from hpcadmin.check import ParseError
from hpcadmin.text import printable

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")           # by number, as the kernel prints them
_LINKS = ("No state change", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
          "LinkErrorRecovery", "Phy Test")
_OTHER_WORDS = {"initializing": "INIT", "initialize": "INIT", "activedefer": "ACTIVE_DEFER", "phytest": "Phy Test",
                "training": "PortConfigurationTraining"}
_LAYERS = {"infiniband": INFINIBAND, "ethernet": ETHERNET, "unspecified": "Unspecified", "ib": INFINIBAND}
# Gb/s of one lane, as the kernel counts them (drivers/infiniband/core/sysfs.c).
_LANE = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
         "XDR": 200.0}
_WIDTHS = (1, 2, 4, 8, 12)
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,2})?)(?: Gb/s(?:ec)?)?(?: \(([0-9]{1,2})X(?: ([A-Z]{3}[0-9]{0,2}))?\))?"
                   r"(?: \((FDR10)\))?\Z")
_LID = re.compile(r"(?:0x[0-9a-fA-F]{1,8}|[0-9]{1,10})\Z")
MOST_LID = 0xBFFF            # above are multicast LIDs; 0xffff is the permissive one


@dataclass(frozen=True)
class Rate:
    gbps: float
    lanes: int | None = None
    speed: str = ""

    @property
    def doubts(self) -> list[str]:
        """A generation that nobody knows: whether lanes and rate agree cannot be told."""
        return [f"the speed {self.speed} is unknown"] if self.speed and self.speed not in _LANE else []


@dataclass
class Port:
    """As printed. told: by the names of /sys (state, phys_state, rate, link_layer, lid, sm_lid). counts: by the names
    of /sys/…/counters; those of hw_counters with "hw " before them. card: what makes it equal to other ports."""

    name: str                                    # mlx5_0/1
    told: dict[str, str] = field(default_factory=dict)
    counts: dict[str, str] = field(default_factory=dict)
    card: Mapping[str, str] = field(default_factory=dict)

    def says(self, key: str) -> str:
        if key not in self.told:
            raise ParseError(f"{self.name}: {key} is not told")
        return self.told[key]

    @property
    def device(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def state(self) -> str:
        return _word(self, "state", _STATES)

    @property
    def link(self) -> str:
        return _word(self, "phys_state", _LINKS)

    @property
    def layer(self) -> str:
        """"" where old tools do not print it."""
        if "link_layer" not in self.told:
            return ""
        layer = _LAYERS.get(self.told["link_layer"].lower())
        if layer is None:
            raise ParseError(f"{self.name}: link layer {printable(self.told['link_layer'], limit=40)!r} is unknown")
        return layer

    @property
    def rate(self) -> Rate:
        return read_rate(self.says("rate"), self.name)

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def kind(self) -> tuple[str, ...]:
        """Equal for ports that do the same, as far as the text tells."""
        return self.layer, self.card.get("hca_type", ""), self.card.get("board_id", "")

    def lid(self, key: str) -> int:
        text = self.says(key)
        if not _LID.match(text):
            raise ParseError(f"{self.name}: {key} is {printable(text, limit=40)!r}, which is no LID")
        return int(text, 16 if text.startswith("0x") else 10)


def _word(port: Port, key: str, known: tuple[str, ...]) -> str:
    word, why = _canonical(port.says(key), known)
    if why:
        raise ParseError(f"{port.name}: {key} {printable(port.told[key], limit=40)!r} {why}")
    return word


@lru_cache(maxsize=1024)
def _canonical(text: str, known: tuple[str, ...]) -> tuple[str, str]:
    """The canonical word of "4: ACTIVE" or "Active", or what is wrong with it: number and word must be of one thing."""
    number, colon, rest = text.partition(": ")
    word = (rest if colon else text).strip().lower().replace(" ", "")
    named = {name.lower().replace(" ", ""): name for name in known}
    found = named.get(word) or _OTHER_WORDS.get(word, "")
    if found not in known:
        return "", "is unknown"
    if colon and number != str(known.index(found)):
        return "", "contradicts itself"
    return found, ""


def read_rate(text: str, where: str) -> Rate:
    """400, "400 Gb/sec (4X NDR)", "40 (FDR10)"; what does not agree with its own lanes and speed is refused."""
    rate = _rate(text)
    if isinstance(rate, str):
        raise ParseError(f"{where}: rate {printable(text, limit=40)!r} {rate}")
    return rate


@lru_cache(maxsize=1024)
def _rate(text: str) -> Rate | str:
    match = _RATE.match(text)
    if not match or not float(match[1]):
        return "is not one"
    rate = Rate(float(match[1]), int(match[2]) if match[2] else None, match[3] or match[4] or "")
    if rate.lanes is not None and rate.lanes not in _WIDTHS:
        return "has a width that there is not"
    if rate.lanes and rate.speed in _LANE and abs(rate.lanes * _LANE[rate.speed] / rate.gbps - 1) > 0.02:
        lanes = f"{rate.lanes} lanes of {rate.speed}"
        return f"contradicts itself: {lanes} are {rate.lanes * _LANE[rate.speed]:g} Gb/s"
    return rate

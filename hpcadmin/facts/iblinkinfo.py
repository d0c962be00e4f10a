"""`iblinkinfo`, as it prints by itself, with --line, with --switches-only, and the lines of it that somebody kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpcadmin.fabric.dump import Dump, End, Line
from hpcadmin.facts._base import clean
from hpcadmin.facts._fabric import fabric_reading
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.facts.ibnetdiscover import guid

FORMS = ("text",)
MARKS = ("==(",)
_SWITCH = re.compile(r"Switch:? (?:0x([0-9a-fA-F]{1,16}) )(.{0,200}?):?\Z")
_CARD = re.compile(r"(CA|RT|Router): (.{0,200}?):?\Z")
_ROW = re.compile(
    r'(?:0x([0-9a-fA-F]{1,16})\s{1,20})?(?:"(.{0,200})"\s{1,40})?([0-9]{1,6})\s{1,20}([0-9]{1,3})'
    r'\[ {0,4}([0-9]{0,4}) {0,4}\]\s{1,20}==\( {0,40}([^()]{0,100})\)==>(.{0,500})\Z')
_STATE = re.compile(r"(?:(\S{1,4})\s{1,40})?(?:([0-9.]{1,12}) Gbps\s{1,20}|(FDR10|\S{3,12})\s{1,20})?"
                    r"([A-Za-z]{2,12})/ {0,12}(\S{2,24})\s{0,10}\Z")
_PEER = re.compile(r'\s{0,40}(?:0x([0-9a-fA-F]{1,16})\s{1,20})?([0-9]{1,6})\s{1,20}([0-9]{1,3})'
                   r'\[ {0,4}[0-9]{0,4} {0,4}\]\s{1,20}"(.{0,200})"(.{0,120})\Z')
_BEST_WIDTH = re.compile(r"Could be ([0-9]{1,2}X)")
_BEST_SPEED = re.compile(r"Could be (?:([0-9.]{1,12}) Gbps|(FDR10))")
_LANES = {"2.5": "SDR", "5.0": "DDR", "10.0": "QDR", "14.0625": "FDR", "25.78125": "EDR", "53.125": "HDR",
          "106.25": "NDR", "212.5": "XDR"}


@dataclass
class _Run:
    first: int
    last: int
    blocks: list[tuple[End, int]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    here: End = field(default_factory=End)
    line_mode: bool = False
    unread: list[tuple[int, str]] = field(default_factory=list)


def read(document: Document) -> tuple[Reading, ...]:
    run: _Run | None = None
    for number, raw in enumerate(document.lines, 1):
        text = raw.strip()
        if not text or len(text) > 1200:
            continue
        switch, card = _SWITCH.match(text), _CARD.match(text)
        if switch or card:
            run = run or _Run(number, number)
            run.here = End(0, "switch", guid(switch[1]), description=clean(switch[2])) if switch else \
                End(0, "ca" if card and card[1] == "CA" else "router", description=clean(card[2]) if card else "")
            if switch:
                run.blocks.append((run.here, number))
        elif "==(" in text:
            run = run or _Run(number, number)
            line = _row(text, number, run)
            if line is None:
                run.unread.append((number, clean(text, 80)))
                continue
            run.lines.append(line)
            run.last = number
    if run is None or not run.lines:
        return ()
    return (fabric_reading(Dump("iblinkinfo", tuple(run.blocks), tuple(run.lines)), run.first, run.last, run.unread),)


def _row(text: str, number: int, run: _Run) -> Line | None:
    match = _ROW.match(text)
    state = _STATE.match(match[6]) if match else None
    if not match or not state:
        return None
    peer = _PEER.match(match[7])
    if not peer and '""' not in match[7] and match[7].strip():
        return None
    lid, port = int(match[3]), int(match[4])
    if match[2] is not None:
        here = End(port, "", guid(match[1] or ""), lid=lid, description=clean(match[2]))
    elif match[1]:
        # Only adapters' rows begin with a GUID, which is the port's.
        here = End(port, "ca" if run.here.kind != "router" else "router", "", guid(match[1]), lid,
                   run.here.description if run.here.kind != "switch" else "")
    else:
        own = run.here if run.here.kind == "switch" else End()
        here = End(port, "switch", own.guid, lid=lid, description=own.description)
    there = End(int(peer[3]), "", "", guid(peer[1] or ""), int(peer[2]), clean(peer[4])) if peer else None
    return Line(here, there, state[1] or "", _speed(state[2], state[3]), clean(state[4]), clean(state[5]),
                *_best(peer[5] if peer else ""), line=number)


def _speed(lane: str | None, name: str | None) -> str:
    return _LANES.get(lane or "", f"{lane} Gbps" if lane else "FDR10" if name == "FDR10" else "")


def _best(text: str) -> tuple[str, str]:
    """What both ends could do, where it is more than they do."""
    width, speed = _BEST_WIDTH.search(text), _BEST_SPEED.search(text)
    return (width[1] if width else "", _speed(speed[1], speed[2]) if speed else "")


def lane_gbps(speed: str) -> float | None:
    return next((float(lane) for lane, name in _LANES.items() if name == speed), None)

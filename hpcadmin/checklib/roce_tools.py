"""Reads what tells how an Ethernet port treats RoCE: mlnx_qos, dcb, lldptool, ethtool, and the kernel's own files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError

# RFC 2474, 2597, 3246, 5865: the names that dcb and others print for DSCPs.
NAMES = {**{f"CS{n}": 8 * n for n in range(8)},
         **{f"AF{c}{d}": 8 * c + 2 * d for c in range(1, 5) for d in range(1, 4)}, "EF": 46, "VA": 44, "LE": 1}
_PRIO_ROW = re.compile(r"(priority|enabled)((?:\s+\d{1,3}){8})\s*$")
_MAP_ROW = re.compile(r"prio:(\d{1,2})\s+dscp:([\d,\s]{1,400})$")
_PFC_PAIR = re.compile(r"(\d{1,2}):(\S{1,12})")
_APP_PAIR = re.compile(r"([A-Za-z0-9]{1,8}):(\d{1,2})")


@dataclass
class Qos:
    """What one tool tells of one interface; None where it tells nothing of it."""

    lossless: tuple[int, ...] | None = None
    trust: str | None = None
    priority_of: Mapping[int, int] = field(default_factory=dict)      # by DSCP
    dcbx: str | None = None
    partly: bool = False            # only what differs from the driver's own table is listed


def mlnx_qos(text: str) -> Qos:
    """`mlnx_qos -i IF`. ParseError where the answer is not whole or contradicts itself."""
    found = Qos()
    rows: dict[str, list[int]] = {}
    table: dict[int, int] = {}
    mapping = False
    for line in lib.lines_of(text):
        row, entry = _PRIO_ROW.match(line), _MAP_ROW.match(line)
        if row and row[1] not in rows:
            rows[row[1]] = [int(word) for word in row[2].split()]
        elif row:
            raise ParseError(f"mlnx_qos tells {row[1]} twice: several answers mixed")
        elif line.startswith("Priority trust state:"):
            found.trust = _once(found.trust, line, "trust state").lower()
        elif line.startswith("DCBX mode:"):
            found.dcbx = _once(found.dcbx, line, "DCBX mode")
        elif line.startswith("dscp2prio mapping"):
            mapping = True
        elif entry:
            _take(table, int(entry[1]), entry[2])
        elif line.startswith(("enabled", "priority ", "priority\t", "prio:")) and not line.startswith("priority:"):
            raise ParseError(f"mlnx_qos: the row is torn: {lib.shown(line)}")
    if rows.get("priority") != list(range(8)) or "enabled" not in rows or set(rows["enabled"]) - {0, 1}:
        raise ParseError(f"mlnx_qos tells no whole table of PFC{_said(text)}")
    if mapping and sorted(table) != list(range(64)):
        raise ParseError(f"mlnx_qos maps {len(table)} of 64 DSCPs")
    found.lossless = tuple(n for n, on in enumerate(rows["enabled"]) if on)
    found.priority_of = table
    return found


def _once(before: str | None, line: str, what: str) -> str:
    if before is not None:
        raise ParseError(f"mlnx_qos tells the {what} twice: several answers mixed")
    value = line.partition(":")[2].strip()
    if not value:
        raise ParseError(f"mlnx_qos: the {what} is empty")
    return lib.shown(value)


def _take(table: dict[int, int], priority: int, words: str) -> None:
    for word in words.replace(",", " ").split():
        dscp = lib.integer(word, "a DSCP", most=63)
        if priority > 7 or dscp in table:
            raise ParseError(f"mlnx_qos maps DSCP {dscp} to priority {priority}" + (
                f" and to {table[dscp]}" if dscp in table else ""))
        table[dscp] = priority


def _said(text: str) -> str:
    lines = [line for line in lib.lines_of(text) if line]
    return f": {lib.shown(lines[-1])}" if lines else ": it printed nothing"


def dcb_pfc(text: str) -> Qos:
    """`dcb pfc show dev IF`."""
    lines = [line.partition("prio-pfc")[2].partition("delay")[0] for line in lib.lines_of(text) if "prio-pfc" in line]
    pairs = _PFC_PAIR.findall(lines[0]) if len(lines) == 1 else []
    states = dict(pairs)
    if [name for name, _ in pairs] != [str(n) for n in range(8)] or set(states.values()) - {"on", "off"}:
        raise ParseError(f"dcb pfc tells no whole table{_said(text)}")
    return Qos(lossless=tuple(n for n in range(8) if states[str(n)] == "on"))


def dcb_app(text: str) -> Qos:
    """`dcb app show dev IF`: the DSCPs that somebody has mapped."""
    table: dict[int, int] = {}
    for line in lib.lines_of(text):
        if not line.startswith("dscp-prio"):
            continue
        for name, priority in _APP_PAIR.findall(line.partition("dscp-prio")[2]):
            dscp = NAMES.get(name.upper(), int(name) if name.isdigit() else 64)
            if dscp > 63 or int(priority) > 7 or table.setdefault(dscp, int(priority)) != int(priority):
                raise ParseError(f"dcb app: {lib.shown(line)}")
    return Qos(priority_of=table, partly=True)


def dcb_trust(text: str) -> Qos:
    """`dcb apptrust show dev IF`: the first of what it trusts decides."""
    for line in lib.lines_of(text):
        words = line.replace(":", " ").split()
        if words and words[0] in ("order", "trust-order"):
            return Qos(trust=next((word for word in words[1:] if word in ("dscp", "pcp")), "none"))
    raise ParseError(f"dcb apptrust tells no order{_said(text)}")


def lldptool_pfc(text: str) -> Qos:
    """`lldptool -t -i IF -V PFC`."""
    found = [line for line in lib.lines_of(text) if re.match(r"(?:PFC )?enabled[:=]", line, re.I)]
    if len(found) != 1:
        raise ParseError(f"lldptool tells no PFC{_said(text)}")
    words = re.sub(r"^[^:=]*[:=]", "", found[0]).replace(",", " ").split()
    if words == ["none"]:
        return Qos(lossless=())
    return Qos(lossless=tuple(lib.integer(word, "a priority", most=7) for word in words))


def ethtool_pause(text: str) -> str:
    """`ethtool -a IF`: "rx off tx off"."""
    told = {}
    for line in lib.lines_of(text):
        name, mark, value = line.partition(":")
        if mark and name in ("RX", "TX"):
            if name in told:
                raise ParseError("ethtool -a tells it twice: several answers mixed")
            told[name] = value.strip()
    if set(told) != {"RX", "TX"} or set(told.values()) - {"on", "off"}:
        raise ParseError(f"ethtool -a tells no pause{_said(text)}")
    return f"rx {told['RX']} tx {told['TX']}"


def counters(text: str) -> dict[str, int]:
    """`ethtool -S IF`, or lines of that form."""
    found: dict[str, int] = {}
    for line in lib.lines_of(text):
        name, mark, value = line.partition(":")
        if mark and re.fullmatch(r"[a-z][a-z0-9_]{1,60}", name.strip()) and value.strip():
            if name in found:
                raise ParseError(f"the counter {name} is told twice")
            found[name] = lib.integer(value.strip(), f"the counter {name}")
    if not found:
        raise ParseError(f"ethtool -S tells no counters{_said(text)}")
    return found


def tos(text: str, what: str) -> int | None:
    """A traffic class of 8 bits: "Global tclass=106", "106"; None where none is set."""
    lines = [line for line in lib.lines_of(text) if line and line != "-"]
    if not lines:
        return None
    match = re.fullmatch(r"(?:Global tclass=)?(\d{1,3})", lines[0])
    if match is None or int(match[1]) > 255:
        raise ParseError(f"{what} is {lib.shown(lines[0])}, which is no traffic class")
    return int(match[1])

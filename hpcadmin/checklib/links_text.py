"""Reads what tells of RDMA ports: lines of /sys ("mlx5_0/ports/1/state:4: ACTIVE"), ibstat, ibstatus, perfquery."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hpcadmin.check import ParseError
from hpcadmin.checklib import finite, integer, lines_of, no_fatal_lines, own_output
from hpcadmin.checklib.links import INFINIBAND, Port
from hpcadmin.text import printable

MOST_LINES = 200_000
_CARD_FILES = ("hca_type", "board_id", "fw_ver", "node_type")
_PORT_FILES = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")
_SYS = re.compile(r"([A-Za-z0-9_.-]{1,64})/(?:ports/([0-9]{1,3})/)?([a-z_]{1,12}/)?([A-Za-z0-9_]{1,64})\Z")
_GREP = re.compile(r"(?:[a-z]{0,10}grep|cat|head|tail): (.{1,300}): ([A-Z][A-Za-z ]{2,60})\Z")
_CA = re.compile(r"CA:? '([A-Za-z0-9_.-]{1,64})'\Z")
_PORT = re.compile(r"Port ([0-9]{1,3}):\Z")
_STATUS = re.compile(r"Infiniband device '([A-Za-z0-9_.-]{1,64})' port ([0-9]{1,3}) status:?\Z", re.IGNORECASE)
_PERF = re.compile(r"# Port (?:extended )?counters: (?:Lid ([0-9]{1,5})|DR path .{1,300}?) port ([0-9]{1,3})\b")
_PERF_LINE = re.compile(r"([A-Za-z0-9]{3,40}):\.{2,60}(\S.{0,60}|)\Z")
_COMPLAINT = re.compile(r"(?:ibpanic|ibwarn|iberror|ibstat|ibstatus|perfquery|sysfs)\b.{0,40}:")
# perfquery's names, in its order; those that every version and device prints.
PERFQUERY = {
    "SymbolErrorCounter": "symbol_error", "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed", "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards", "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors", "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors", "VL15Dropped": "VL15_dropped",
}
_TRAFFIC = {"PortXmitData": "port_xmit_data", "PortRcvData": "port_rcv_data", "PortXmitPkts": "port_xmit_packets",
            "PortRcvPkts": "port_rcv_packets"}
_OLD_NAMES = {"SymbolErrors": "SymbolErrorCounter", "LinkRecovers": "LinkErrorRecoveryCounter",
              "LinkDowned": "LinkDownedCounter", "RcvErrors": "PortRcvErrors",
              "RcvRemotePhysErrors": "PortRcvRemotePhysicalErrors", "XmtDiscards": "PortXmitDiscards",
              "XmtConstraintErrors": "PortXmitConstraintErrors", "RcvConstraintErrors": "PortRcvConstraintErrors",
              "LinkIntegrityErrors": "LocalLinkIntegrityErrors", "ExcBufOverrunErrors": "ExcessiveBufferOverrunErrors",
              "XmtData": "PortXmitData", "RcvData": "PortRcvData", "XmtPkts": "PortXmitPkts", "RcvPkts": "PortRcvPkts"}
_IBSTAT_CARD = {"CA type": "hca_type", "Number of ports": "", "Firmware version": "fw_ver", "Hardware version": "",
                "Node GUID": "", "System image GUID": ""}
_IBSTAT_PORT = {"State": "state", "Physical state": "phys_state", "Rate": "rate", "Base lid": "lid", "LMC": "",
                "SM lid": "sm_lid", "Capability mask": "", "Port GUID": "", "Link layer": "link_layer"}
_IBSTATUS = {"default gid": "", "base lid": "lid", "sm lid": "sm_lid", "state": "state", "phys state": "phys_state",
             "rate": "rate", "link_layer": "link_layer"}
_GUID = re.compile(r"0x[0-9a-f]{16}\Z")


_Place = tuple[str, str | None, str | None, str]


@dataclass
class Look:
    """The ports at one moment. uptime: of the node, in seconds; boot: changes when it is started anew."""

    ports: dict[str, Port] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    uptime: float = 0.0
    boot: str = ""

    def port(self, device: str, number: str) -> Port:
        name = f"{device}/{number if number == '1' else int(number)}"
        port = self.ports.get(name)
        if port is None:
            port = self.ports[name] = Port(name)
        return port


# --- our own output -------------------------------------------------------------------------------------------------


def own(text: str, name: str) -> tuple[str, list[Look]]:
    """The node and the looks of an output of our own script."""
    lines = own_output(text, name)
    no_fatal_lines(lines)
    inner = lines[lines.index(f"# hpcadmin {name} 1") + 1:lines.index(f"# end {name}")]
    nodes = [line[6:] for line in inner if line.startswith("node: ")]
    places = [place for place, line in enumerate(inner) if line.startswith("read: ")]
    if len(nodes) != 1 or not places:
        raise ParseError("the node or the time is not told", hint="cut off, or several runs mixed")
    return nodes[0], [_own_look(inner[a:b]) for a, b in zip(places, [*places[1:], len(inner)], strict=True)]


def _own_look(lines: Sequence[str]) -> Look:
    words = lines[0].split()
    if len(words) != 4:
        raise ParseError(f"the time is {printable(lines[0], limit=80)!r}")
    look = Look(uptime=finite(words[1], "the node's uptime"), boot=words[2])
    files = integer(words[3], "the number of files")
    told = sum(_sys_line(look, line) for line in lines[1:])
    if told != files:
        raise ParseError(f"{files} files were to be read, and {told} are told", hint="cut off, or lines lost")
    _complete(look, ("state", "phys_state", "rate", "link_layer"))
    look.problems += [f"{port.name}: {name} not told" for port in look.ports.values()
                      if port.told.get("link_layer") == INFINIBAND for name in ("lid", "sm_lid")
                      if name not in port.told]
    return look


def _place(line: str) -> tuple[_Place | None, str]:
    """Where the file of a line stands, and what is in it."""
    path, colon, value = line.partition(":")
    value = value.lstrip(" ")
    known = bool(colon) and len(path) < 160 and len(value) <= 300
    return (_place_of(path) if known else None), value


@lru_cache(maxsize=4096)
def _place_of(path: str) -> _Place | None:
    """(device, port, folder, name): nodes of one kind have the same files."""
    match = _SYS.match(path)
    return (match[1], match[2], match[3], match[4]) if match else None


def _sys_line(look: Look, line: str) -> bool:
    """Takes a line "mlx5_0/ports/1/state:4: ACTIVE", whatever path is before it; whether it was one."""
    place, value = _place(line.rpartition("/infiniband/")[2].removeprefix("./") if line[0] in "/." else line)
    if place is None:
        refused = _GREP.match(line)
        if refused and "/" in refused[1]:
            look.problems.append(f"{printable(refused[1], limit=80)} cannot be read: {refused[2]}")
        return bool(refused)
    device, number, folder, name = place
    if number is None:
        return not folder and name in _CARD_FILES and _card(look, device, name, value)
    if folder in ("counters/", "hw_counters/"):
        _once(look, look.port(device, number).counts, ("hw " if folder == "hw_counters/" else "") + name, value)
        return True
    if folder == "gids/" and name == "0":
        folder, name = None, "gid"
    if folder or name not in (*_PORT_FILES, "gid"):
        return False
    _once(look, look.port(device, number).told, name, value)
    return True


def _card(look: Look, device: str, name: str, value: str) -> bool:
    """Files of a device come before or after those of its ports: kept under its name until `_complete`."""
    card = look.ports.setdefault(device, Port(device))
    _once(look, card.told, name, value)
    return True


def _once(look: Look, table: dict[str, str], name: str, value: str) -> None:
    if name in table:
        raise ParseError(f"{name} of a port is told twice", hint="several outputs mixed")
    table[name] = value


def _complete(look: Look, needed: Sequence[str]) -> None:
    """Gives the ports their cards, and names what is not told of them."""
    cards = {name: look.ports.pop(name) for name in [n for n in look.ports if "/" not in n]}
    for port in look.ports.values():
        card = cards.get(port.device)
        port.card = {**port.card, **(card.told if card else {})}
        missing = [name for name in needed if name not in port.told]
        if missing:
            look.problems.append(f"{port.name}: {', '.join(missing)} not told")
    with_ports = {port.device for port in look.ports.values()}
    look.problems += [f"{name} has no port" for name in cards if name not in with_ports]


# --- what people paste ----------------------------------------------------------------------------------------------


def read(text: str) -> Look:
    """The ports of any of the texts; ParseError where it is none of them."""
    lines = [line for line in lines_of(text) if line]
    if len(lines) > MOST_LINES:
        raise ParseError(f"the text has more than {MOST_LINES} lines")
    mine = [(name, reader) for name, reader, begins in _READERS if any(begins(line) for line in lines)]
    if len(mine) > 1:
        raise ParseError(f"texts of {' and '.join(name for name, _ in mine)} in one", hint="give them one by one")
    for _, reader in mine:
        look = reader(lines)
        if not look.ports:
            raise ParseError("no port is told")
        return look
    complaints = [line for line in lines if _COMPLAINT.match(line)]
    if complaints:
        raise ParseError(f"no port is told: {printable(complaints[0], limit=200)}")
    if lines and all(_GUID.match(line) for line in lines):
        raise ParseError("only GUIDs are listed: nothing is told of the ports' states")
    raise ParseError("no text about RDMA ports: neither /sys/class/infiniband nor ibstat, ibstatus or perfquery")


def _complaints(look: Look, lines: Iterable[str]) -> None:
    look.problems += [f"the output has an error line: {printable(line, limit=200)}" for line in lines
                      if _COMPLAINT.match(line)][:5]


def _sysfs(lines: Sequence[str]) -> Look:
    look = Look()
    for line in lines:
        _sys_line(look, line)
    stated = any("state" in port.told for port in look.ports.values())
    _complete(look, ("state", "phys_state", "rate") if stated else ())
    _complaints(look, lines)
    return look


def _ibstat(lines: Sequence[str]) -> Look:
    look = Look()
    cards: list[tuple[str, dict[str, str], list[Port]]] = []
    for line in lines:
        card, number = _CA.match(line), _PORT.match(line)
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if card:
            cards.append((card[1], {}, []))
        elif number and cards:
            name = f"{cards[-1][0]}/{int(number[1])}"
            if name in look.ports:
                raise ParseError(f"{name} is told twice", hint="outputs of several nodes, or two runs mixed")
            look.ports[name] = Port(name, card=cards[-1][1])
            cards[-1][2].append(look.ports[name])
        elif colon and cards and cards[-1][2] and key in _IBSTAT_PORT:
            _once(look, cards[-1][2][-1].told, _IBSTAT_PORT[key] or key, value)
        elif colon and cards and not cards[-1][2] and key in _IBSTAT_CARD:
            _once(look, cards[-1][1], _IBSTAT_CARD[key] or key, value)
    _complaints(look, lines)
    layers = any("link_layer" in port.told for port in look.ports.values())
    for name, told, ports in cards:
        count = told.get("Number of ports", "1" if len(cards) == 1 else "")
        if count != str(len(ports)):
            has = count or "an unknown number"
            look.problems.append(f"{name}: {len(ports)} ports are described where it has {has}")
        for port in ports:
            missing = [key for key, known in _IBSTAT_PORT.items() if (known or key) not in port.told
                       and (key != "Link layer" or layers)]
            if missing:
                look.problems.append(f"{port.name}: {', '.join(missing)} not told: cut off")
    return look


def _ibstatus(lines: Sequence[str]) -> Look:
    look = Look()
    port: Port | None = None
    for line in lines:
        head = _STATUS.match(line)
        key, colon, value = line.partition(":")
        if head:
            name = f"{head[1]}/{int(head[2])}"
            if name in look.ports:
                raise ParseError(f"{name} is told twice", hint="outputs of several nodes, or two runs mixed")
            port = look.ports[name] = Port(name)
        elif colon and port is not None and key.strip() in _IBSTATUS:
            _once(look, port.told, _IBSTATUS[key.strip()] or key.strip(), value.strip())
    _complaints(look, lines)
    layers = any("link_layer" in port.told for port in look.ports.values())
    _complete(look, [known or key for key, known in _IBSTATUS.items() if layers or key != "link_layer"])
    return look


def _perfquery(lines: Sequence[str]) -> Look:
    look = Look()
    port: Port | None = None
    for line in lines:
        head, count = _PERF.match(line), _PERF_LINE.match(line)
        if head:
            name = f"LID {head[1] or '?'}/{int(head[2])}"
            if name in look.ports:
                raise ParseError(f"{name} is told twice", hint="two runs mixed; give them one by one")
            port = look.ports[name] = Port(name)
        elif count and port is not None:
            _once(look, port.counts, _perf_name(count[1]), count[2].strip())
    _complaints(look, lines)
    for port in look.ports.values():
        extended = "SymbolErrorCounter" not in port.counts and "symbol_error" not in port.counts
        needed = list(_TRAFFIC.values() if extended else [*PERFQUERY.values(), *_TRAFFIC.values()])
        missing = [name for name in needed if name not in port.counts]
        if missing:
            look.problems.append(f"{port.name}: {', '.join(missing)} not told: cut off")
        if extended:
            look.problems.append(f"{port.name}: no error counter is told, only the traffic")
    return look


def _perf_name(name: str) -> str:
    now = _OLD_NAMES.get(name, name)
    return {**PERFQUERY, **_TRAFFIC, "PortXmitWait": "port_xmit_wait"}.get(now, now)


def _is_sys(line: str) -> bool:
    place, _ = _place(line.rpartition("/infiniband/")[2].removeprefix("./"))
    if place is None:
        return False
    _, number, folder, name = place
    return bool(number) and (folder.endswith("counters/") if folder else name in _PORT_FILES)


_READERS: tuple[tuple[str, Callable[[Sequence[str]], Look], Callable[[str], object]], ...] = (
    ("ibstatus", _ibstatus, _STATUS.match), ("ibstat", _ibstat, _CA.match), ("perfquery", _perfquery, _PERF.match),
    ("/sys", _sysfs, _is_sys))

"""RDMA devices as ibstat, ibstatus, ibv_devinfo, ibdev2netdev and /sys tell them: one record, one judgement."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.facts._reading import Finding, Reading
from hpcadmin.facts.infiniband import Port, RdmaDevice, bare_guid, port_state

ZERO_GID = re.compile(r"0{1,4}(?::0{0,4}){1,7}\Z|::\Z")
_RATE = re.compile(r"\s{0,10}([0-9]{1,6}(?:\.[0-9]{1,6})?)(?:\s{0,4}(?:Gb/sec|Gbps|Gb/s))?"
                   r"(?:\s{0,4}\(([0-9]{1,2}X)(?:\s{1,4}([A-Z0-9]{3,6}))?\))?")
_LAYERS = ("InfiniBand", "Ethernet")


@dataclass
class HcaPort:
    """As printed; "" and None where it is not."""

    number: int
    line: int = 0
    state: str = ""
    physical: str = ""
    rate: float | None = None
    width: str = ""
    speed: str = ""
    lid: int | None = None
    sm_lid: int | None = None
    layer: str = ""
    gid: str = ""
    port_guid: str = ""
    mtu: int | None = None
    netdev: str = ""

    @property
    def down(self) -> bool:
        return port_state(self.state) == "DOWN"

    @property
    def usable(self) -> bool | None:
        state = port_state(self.state)
        if not state:
            return None
        if state != "ACTIVE" or self.physical.lower() not in ("", "linkup"):
            return False
        return None if ZERO_GID.match(self.gid) else True

    @property
    def usual_rate(self) -> float | None:
        """What is printed while a port is down means nothing."""
        return None if self.down else self.rate


@dataclass
class Hca:
    name: str
    line: int = 0
    kind: str = ""                   # MT4129, or 4129
    firmware: str = ""
    guid: str = ""
    system_guid: str = ""
    board: str = ""
    description: str = ""
    pci: str = ""
    count: int | None = None         # of ports, as the tool says
    ports: list[HcaPort] = field(default_factory=list)


def set_rate(port: HcaPort, text: str) -> None:
    """400, "400 Gb/sec (4X NDR)", "100.0 Gbps"."""
    match = _RATE.match(text)
    if match and float(match[1]):
        port.rate, port.width, port.speed = float(match[1]), match[2] or port.width, match[3] or port.speed


def layer_of(text: str) -> str:
    """"InfiniBand" for what some tools call IB."""
    return "InfiniBand" if text.strip().lower() in ("infiniband", "ib") else text.strip()


def cut_layer(port: HcaPort) -> str:
    """What a last word that is cut off can only be: InfiniBand where there is a LID."""
    whole = [layer for layer in _LAYERS if port.layer and layer.startswith(port.layer) and layer != port.layer]
    if not whole:
        return ""
    port.layer = whole[0] if whole[0] == "InfiniBand" and port.lid not in (None, 0) else ""
    return f"the last line is cut off ({whole[0][:3]}…): the link layer"


def rdma(hcas: Iterable[Hca]) -> tuple[RdmaDevice, ...]:
    """As the probe's facts give them, to be joined into a node."""
    return tuple(RdmaDevice(
        name=hca.name, firmware=hca.firmware, psid=hca.board, guid=bare_guid(hca.guid), pci=hca.pci,
        hca_type=f"MT{hca.kind}" if hca.kind.isdigit() else hca.kind, node_desc=hca.description,
        ports=tuple(Port(
            number=port.number, state=port_state(port.state), physical_state=port.physical, lid=port.lid,
            rate_gbps=port.usual_rate, rate_text=_rate_text(port), link_layer=port.layer, netdev=port.netdev,
            sm_lid=port.sm_lid, gid=port.gid, port_guid=bare_guid(port.port_guid), active_mtu=port.mtu,
        ) for port in hca.ports),
    ) for hca in hcas)


def _rate_text(port: HcaPort) -> str:
    if port.usual_rate is None:
        return ""
    kind = " ".join(filter(None, (port.width, port.speed)))
    return f"{port.usual_rate:g} Gb/sec" + (f" ({kind})" if kind else "")


def plain(number: float | None) -> int | float | None:
    return int(number) if number is not None and number == int(number) else number


def known(hcas: Sequence[Hca]) -> dict[str, Any]:
    devices = [_known_device(hca) for hca in hcas]
    found: dict[str, Any] = {"devices": devices}
    if any(port.physical for hca in hcas for port in hca.ports):
        found["summary"] = summary(hcas)
    if any(port.down for hca in hcas for port in hca.ports):
        found["rails_down"] = rails_down(hcas)
    return found


def _known_device(hca: Hca) -> dict[str, Any]:
    words = {"type": hca.kind or None, "firmware": hca.firmware or None, "node_guid": hca.guid or None}
    extra = {"board_id": hca.board, "description": hca.description, "pci": hca.pci}
    return {"name": hca.name, **words, **{key: value for key, value in extra.items() if value},
            "ports": [_known_port(port) for port in hca.ports]}


def _known_port(port: HcaPort) -> dict[str, Any]:
    found: dict[str, Any] = {
        "port": port.number, "state": port.state or None, "phys": port.physical or None,
        "rate_gbps": plain(port.usual_rate), "lid": port.lid, "sm_lid": port.sm_lid, "link_layer": port.layer or None,
        "usable": port.usable,
    }
    extra = {"width": port.width, "speed_label": port.speed, "gid": port.gid, "mtu": port.mtu,
             "port_guid": port.port_guid, "netdev": port.netdev,
             "rate_printed": plain(port.rate) if port.down else None}
    return found | {key: value for key, value in extra.items() if value not in ("", None)}


def summary(hcas: Sequence[Hca]) -> dict[str, list[str]]:
    """"InfiniBand 400 LinkUp" -> devices, in the order in which they are printed."""
    found: dict[str, list[str]] = defaultdict(list)
    for hca in hcas:
        for port in hca.ports:
            rate = "down" if port.down else plain(port.rate)
            words = [port.layer, "" if rate is None else str(rate), port.physical]
            found[" ".join(filter(None, words))].append(_name(hca, port))
    return dict(found)


def _name(hca: Hca, port: HcaPort) -> str:
    return hca.name if len(hca.ports) == 1 else f"{hca.name}/{port.number}"


def rails_down(hcas: Sequence[Hca]) -> int | None:
    """Ports that are down and of the kind whose ports are the fastest that are up (InfiniBand before Ethernet)."""
    every = [(hca, port) for hca in hcas for port in hca.ports]
    up = [(port.layer == "InfiniBand", port.rate, hca.kind) for hca, port in every if not port.down and port.rate]
    if not up or not all(hca.kind for hca, _ in every):
        return None
    layer, _, kind = max(up)
    return sum(port.down and hca.kind == kind and (port.layer == "InfiniBand") is layer for hca, port in every)


# --- what the text itself shows -------------------------------------------------------------------------------------


def findings(hcas: Sequence[Hca]) -> list[Finding]:
    every = [(hca, port) for hca in hcas for port in hca.ports]
    return [*_states(every), *_slower(every), *_firmware(hcas), *_gids(every), *_layers(every)]


def _states(every: list[tuple[Hca, HcaPort]]) -> Iterator[Finding]:
    up = Counter(hca.kind for hca, port in every if port.usable)
    for hca, port in every:
        where, state = f"{hca.name} port {port.number}", port_state(port.state)
        if state == "DOWN":
            physical = f" ({port.physical})" if port.physical else ""
            rate = f"; the rate of {port.rate:g} that is printed means nothing" if port.rate else ""
            yield Finding(f"{where} is Down{physical}{rate}", port.line or None, note=not up[hca.kind])
        elif state in ("INIT", "ARMED"):
            lids = f" (LID {port.lid}, SM lid {port.sm_lid})" if port.lid is not None else ""
            yield Finding(f"{where} is {port.state}{lids}: no subnet manager has configured it", port.line or None)
        elif state == "ACTIVE" and port.layer == "InfiniBand" and port.lid in (0, 0xFFFF):
            yield Finding(f"{where} is Active with LID {port.lid}: no LID of an InfiniBand port", port.line or None)
        elif state == "ACTIVE" and port.physical and port.physical.lower() != "linkup":
            yield Finding(f"{where} is Active and its link is {port.physical}", port.line or None)


def _slower(every: list[tuple[Hca, HcaPort]]) -> Iterator[Finding]:
    """Beside the other ports of the same kind of card."""
    groups: dict[tuple[str, str], list[tuple[Hca, HcaPort]]] = defaultdict(list)
    for hca, port in every:
        if port.usual_rate and port.usable:
            groups[hca.kind, port.layer].append((hca, port))
    for (kind, layer), group in groups.items():
        usual, often = Counter(port.rate for _, port in group).most_common(1)[0]
        if often < 2 or 2 * often <= len(group):
            continue
        for hca, port in group:
            if port.rate != usual:
                label = f" ({port.width} {port.speed})".replace(" )", ")") if port.width else ""
                yield Finding(f"{hca.name} port {port.number} runs at {port.rate:g}{label}, {often} other "
                              f"{' '.join(filter(None, (kind, layer)))} ports at {usual:g}", port.line or None)


def _firmware(hcas: Sequence[Hca]) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for hca in hcas:
        if hca.kind and hca.firmware:
            layers = ",".join(sorted({port.layer for port in hca.ports}))
            groups[hca.kind, hca.board, layers][hca.firmware].append(hca.name)
    for (kind, _, _), versions in groups.items():
        if len(versions) > 1:
            told = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(versions.items()))
            yield Finding(f"{kind}: cards with different firmware: {told}")


def _gids(every: list[tuple[Hca, HcaPort]]) -> Iterator[Finding]:
    zero = [(hca, port) for hca, port in every if ZERO_GID.match(port.gid)]
    if zero:
        names = " and ".join(_name(hca, port) for hca, port in zero[:16])
        yield Finding(f"default gid is all zero on {names}: no address to talk RDMA with", zero[0][1].line or None)
    for hca, port in every:
        if port.gid.lower() == "unknown":
            label = " ".join(filter(None, (port.layer, f"{port.rate:g}" if port.rate else "", port.width, port.speed)))
            yield Finding(f"{hca.name} port {port.number}: default gid unknown ({label}): no rail", port.line or None)


def _layers(every: list[tuple[Hca, HcaPort]]) -> Iterator[Finding]:
    ethernet = [(hca, port) for hca, port in every if port.layer == "Ethernet"]
    others = sum(port.layer == "InfiniBand" for _, port in every)
    if ethernet and others:
        names = ", ".join(_name(hca, port) for hca, port in ethernet[:16])
        yield Finding(f"{names}: Ethernet, beside {others} InfiniBand ports", ethernet[0][1].line or None, note=True)
    elif ethernet and len(ethernet) == len(every):
        yield Finding("all ports are Ethernet (RoCE): there is no InfiniBand port", ethernet[0][1].line or None,
                      note=True)


# --- readings -------------------------------------------------------------------------------------------------------


def reading(kind: str, hcas: Sequence[Hca], last: int, missing: Sequence[str] = (),
            further: Sequence[Finding] = ()) -> Reading:
    first = min([hca.line for hca in hcas if hca.line] + [port.line for hca in hcas for port in hca.ports if port.line],
                default=1)
    return Reading(kind, first, max(first, last), value=rdma(hcas), known=known(hcas),
                   findings=(*findings(hcas), *further), missing=tuple(missing))


def by_node(hcas: Sequence[Hca]) -> list[list[Hca]]:
    """A name that comes a second time begins another node's devices."""
    found: list[list[Hca]] = []
    for hca in hcas:
        if not found or any(hca.name == other.name for other in found[-1]):
            found.append([])
        found[-1].append(hca)
    return found

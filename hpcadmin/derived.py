"""Limits for values that no limit is known for, derived from the hardware that was found; and what it forbids.

A derived limit is a floor under gross faults (a port at half its rate, sockets instead of RDMA, a lost rail), not what
a good machine reaches: a fraction of what the links carry that every published figure of working machines is above.
Nothing is derived from what is unknown, for smaller messages than the fraction is known for, or for simulated hardware.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin import ceilings
from hpcadmin.catalogue import in_gpu_memory
from hpcadmin.ceilings import Ceiling
from hpcadmin.check import DERIVED, Direction, Limit, Measurement
from hpcadmin.node_links import Links, Port
from hpcadmin.text import number, plural

DATE = "2026-11-30"
SLACK = 1.01             # clocks of tools: what is above a ceiling by less is not impossible
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
PCIE_PAYLOAD = 0.85      # of PCIe after its line code: headers of packets with 128 to 256 bytes of data
_IB_HEADERS, _ROCE_HEADERS = 26, 82      # bytes a packet: LRH, BTH, CRCs; Ethernet with its gap, IPv4, UDP, BTH, CRCs
_RDMA = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
_MPI_ONE_WAY = ("osu_bw", "osu_get_bw", "osu_put_bw", "osu_mbw_mr")
_TIMES = ("latency", "latency_median", "avg_latency", "t_typical", "t_avg", "t_min")
_LAYERS = ("InfiniBand", "Ethernet")     # one pair of ranks over EFA gets from 0.1 to 0.4 of a port both ways
_MEMORY_GBS = 8000.0     # of the fastest GPU: within a node nothing is copied faster


@dataclass(frozen=True)
class Rule:
    """At least `share` of what the links carry, for messages of `size_bytes` and more; why: who published what."""

    share: float
    size_bytes: int
    why: str


RDMA_HOST = Rule(0.90, 64 * _KIB, "azurehpc-health-checks passes 95 of 100, 190 of 200, 390 of 400 Gb/s, oci-hpc 96 "
                                  "of 100")
RDMA_GPU = Rule(0.75, 64 * _KIB, "GPU memory: azurehpc-health-checks passes 78 of 100 and 360 of 400 Gb/s")
RDMA_BOTH = Rule(0.80, 64 * _KIB, "both ways: imbue passes 720 of 800 Gb/s")
MPI_HOST = Rule(0.85, _MIB, "measured 12165 of 12500 and 24667 of 25000 MB/s (stackhpc, converged-computing)")
MPI_GPU = Rule(0.60, _MIB, "GPU memory; from host memory 0.97 to 0.99 were measured")
MPI_BOTH = Rule(0.70, _MIB, "both ways; one way 0.97 to 0.99 were measured")
MPI_IN_TURN = Rule(0.25, 256 * _KIB, "one message at a time: measured 3658 of 12500 MB/s at 256 KiB (stackhpc)")
NVLINK = {
    "nccl_allreduce": Rule(0.65, _GIB, "measured 0.70 (MI300X), 0.72 (GB200), 0.76 (A100), 1.04 (H100, NVLS) at 1 GiB"),
    **dict.fromkeys(("nccl_allgather", "nccl_reducescatter"),
                    Rule(0.60, _GIB, "measured 0.71 and 0.75 (A100) at 1 GiB")),
}
NVSWITCH = {
    **NVLINK,
    **dict.fromkeys(("nccl_broadcast", "nccl_reduce"), Rule(0.60, _GIB, "measured 0.75 (A100) at 1 GiB")),
    "nccl_alltoall": Rule(0.55, _GIB, "measured 0.72 (A100) at 1 GiB"),
    "nccl_sendrecv": Rule(0.55, _GIB, "NCCL reaches 370 of 450 GB/s on the wire (nccl-tests issue 212)"),
}
BRIDGE = {"nccl_allreduce": Rule(0.35, _GIB, "two cards and a bridge: 115 of 300 GB/s (nccl issue 1161) to 208 of 300 "
                                             "(azurehpc-health-checks)")}
PCIE = {name: Rule(0.20, _GIB, "through the CPUs: measured 9.9 of 31.5 GB/s between two GPUs (nccl issue 814)")
        for name in ("nccl_allreduce", "nccl_allgather", "nccl_reducescatter")}
NETWORK = {
    "nccl_allreduce": Rule(0.60, _GIB, "24 of 25 GB/s are the aim, 16 normal where the adapter is at the CPU (nccl "
                                       "issue 412); measured 0.85 (MI300X) to 1.12 (H100)"),
    **dict.fromkeys(("nccl_allgather", "nccl_reducescatter", "nccl_broadcast", "nccl_reduce"),
                    Rule(0.55, _GIB, "ROCm/cvs passes 0.75 to 0.85 (MI300X)")),
    "nccl_alltoall": Rule(0.40, _GIB, "ROCm/cvs passes 0.48 (MI300X)"),
    "nccl_sendrecv": Rule(0.60, _GIB, "one port: ROCm/cvs passes 47 of 50 GB/s, cscs-reframe-tests 24 of 25"),
}
ETHERNET = Rule(0.80, 0, "TCP with frames of 1500 carries 0.94, of 9000 0.99 of the rate")
_ETHERNET_MOST = 25.0    # Gb/s: beyond, the CPU and the number of streams decide what TCP gives
_TCP = re.compile(r"TCP ([0-9]{1,4}(?:\.[0-9]{1,3})?) Gb/s")


@dataclass(frozen=True)
class Derived:
    """limit None: nothing can be derived. remark: what the reader should know of a value that passes."""

    limit: Limit | None = None
    remark: str = ""


@dataclass(frozen=True)
class _Carried:
    """What the links carry of this value, in its unit; what they are."""

    value: float
    what: str
    remark: str = ""


def derive(check: str, m: Measurement, sides: Sequence[Links], *, apart: bool) -> Derived:
    """The least that the hardware of all sides (the kinds of nodes that the value is about) must give.

    apart: the nodes are several machines. Nothing for what is no bandwidth, or where a fact is missing.
    """
    if not sides:
        return Derived()
    if check in _RDMA:
        found = _rdma(m, sides) if apart else None
    elif check in (*_MPI_ONE_WAY, "osu_bibw", "mpi_pingpong"):
        found = _mpi(check, m, sides) if apart else None
    elif check.startswith("nccl_"):
        found = _collective(check, m, sides, apart=apart)
    elif check == "ethernet":
        found = _ethernet(m, sides) if apart else None
    else:
        found = None
    if found is None:
        return Derived()
    rule, carried = found
    least = float(f"{rule.share * carried.value:.4g}")
    source = f"{DERIVED} {carried.what}, at least {rule.share:.0%} of it: {rule.why}"
    return Derived(Limit(check, m.name, m.unit, min=least, size_bytes=m.size_bytes, direction=m.direction,
                         ranks=m.ranks, nodes=m.nodes, source=source, date=DATE), carried.remark)


Found = tuple[Rule, _Carried]


def _rdma(m: Measurement, sides: Sequence[Links]) -> Found | None:
    both = m.direction is Direction.BOTH
    rule = RDMA_BOTH if both else RDMA_GPU if in_gpu_memory(m) else RDMA_HOST
    if m.name != "bandwidth" or m.unit != "Gb/s" or (m.size_bytes or 0) < rule.size_bytes:
        return None
    carried = _slowest([_port_for(side, m.rail) for side in sides])
    return (rule, _ways(carried, both, 1.0)) if carried else None


def _mpi(check: str, m: Measurement, sides: Sequence[Links]) -> Found | None:
    """By one port: MPI may use more of them, or not."""
    both = check == "osu_bibw"
    rule = MPI_IN_TURN if check == "mpi_pingpong" else MPI_BOTH if both else MPI_GPU if in_gpu_memory(m) else MPI_HOST
    if m.name not in ("bandwidth", "bandwidth_median") or m.unit != "MB/s" or (m.size_bytes or 0) < rule.size_bytes:
        return None
    carried = _slowest([_port_for(side, "") for side in sides])
    return (rule, _ways(carried, both, 1000 / 8)) if carried else None


def _ways(carried: _Carried, both: bool, factor: float) -> _Carried:
    what = f"{carried.what}, both ways" if both else carried.what
    return replace(carried, value=carried.value * factor * (2 if both else 1), what=what)


def _port_for(side: Links, name: str) -> Port | None:
    """The port that is named, else any of the fastest: programs choose those. None where ports of unknown rate are."""
    if name:
        return side.port(name)
    return max(side.ports, key=lambda p: p.gbps) if side.ports and side.every_rate else None


def _slowest(ports: Sequence[Port | None]) -> _Carried | None:
    carried = [None if p is None or p.layer not in _LAYERS else _carried(p) for p in ports]
    known = [c for c in carried if c is not None]
    return min(known, key=lambda c: c.value) if known and len(known) == len(carried) else None


def _carried(port: Port) -> _Carried:
    """Gb/s of data: after the headers of packets, and no more than PCIe takes."""
    roce = port.layer == "Ethernet"
    mtu = port.mtu or 1024
    share = mtu / (mtu + (_ROCE_HEADERS if roce else _IB_HEADERS))
    packets = f"packets of {mtu} B" if port.mtu else "packets of 1024 B, as the MTU is unknown"
    kind = "RoCE" if roce else port.layer or "RDMA"
    what = f"port {port.name} of {port.gbps:g} Gb/s {kind} ({packets} leave {number(port.gbps * share)})"
    pcie = port.pcie_gbps * PCIE_PAYLOAD if port.pcie_gbps else None
    if pcie is None or pcie >= port.gbps * share:
        return _Carried(port.gbps * share, what)
    remark = f"{port.name} runs {port.pcie}, which holds its port down" + (
        f", and could do {port.pcie_could}" if port.pcie_could else "")
    return _Carried(pcie, f"port {port.name} of {port.gbps:g} Gb/s behind {port.pcie} ({number(pcie)} Gb/s of data)",
                    remark if port.pcie_could else "")


def _ethernet(m: Measurement, sides: Sequence[Links]) -> Found | None:
    """By the speed that both interfaces name, which the output tells; of a virtual one there is none."""
    told = _TCP.match(m.transport)
    rate = float(told[1]) if told else 0.0
    known = all(any(p.gbps == rate for p in (*side.ethernet, *side.ports)) for side in sides)
    if m.name != "bandwidth" or m.unit != "Gb/s" or not rate or rate > _ETHERNET_MOST or not known:
        return None
    return ETHERNET, _Carried(rate, f"interface of {rate:g} Gb/s")


# --- collectives

def _collective(check: str, m: Measurement, sides: Sequence[Links], *, apart: bool) -> Found | None:
    if m.name != "busbw" or m.unit != "GB/s" or (m.size_bytes or 0) < _GIB or not m.ranks or not m.nodes:
        return None
    inside = [_inside(check, m.ranks // m.nodes, side, within=m.nodes == 1) for side in sides]
    if m.nodes == 1:
        return _least(inside)
    if not apart:
        return None
    cliques = {side.clique for side in sides}
    if len(cliques) == 1 and "" not in cliques:              # the NVLinks reach from node to node
        return _least([_inside(check, m.ranks, side, within=False) for side in sides])
    outside = [_outside(check, m.ranks, m.nodes, side) for side in sides]
    if m.ranks == m.nodes:
        return _least(outside)
    return _least([*inside, *outside])


def _least(found: Sequence[Found | None]) -> Found | None:
    known = [f for f in found if f is not None]
    return min(known, key=lambda f: f[0].share * f[1].value) if known and len(known) == len(found) else None


def _inside(check: str, ranks: int, side: Links, *, within: bool) -> Found | None:
    """Among the GPUs of one node. Where not every GPU takes part, only a switch gives each of them all of its links."""
    if not side.gpus or side.nvlink_gbs is None or ranks < 2 or (within and ranks > side.gpus):
        return None
    if side.nvlink_gbs and not (side.gpus > 2 and _bridged(side)):
        what = f"{side.nvlinks} of {side.gpu}, {side.nvlink_gbs:g} GB/s one way"
        if not side.switched and ranks != side.gpus:
            return None
        rules = BRIDGE if side.gpus == 2 else NVSWITCH if side.switched else NVLINK
        return (rules[check], _Carried(side.nvlink_gbs, what)) if check in rules else None
    if side.pcie_gbs is None or check not in PCIE:
        return None
    links = "bridges between two cards only" if side.nvlink_gbs else "no NVLink"
    return PCIE[check], _Carried(side.pcie_gbs, f"{side.pcie} of {side.gpu}, {links}, {side.pcie_gbs:.3g} GB/s one way")


def _bridged(side: Links) -> bool:
    """Cards with bridges between two of them: a ring over all goes through PCIe as well."""
    return any(g.paired for g in ceilings.gpus(side.gpu))


def _outside(check: str, ranks: int, nodes: int, side: Links) -> Found | None:
    """Between nodes: the fastest ports, at most one for each GPU that takes part (the others are for storage)."""
    if check not in NETWORK or not side.ports or not side.every_rate:
        return None
    rate = max(p.gbps for p in side.ports)
    fast = [p for p in side.ports if p.gbps == rate]
    used = fast[:1] if check == "nccl_sendrecv" else fast[:max(1, ranks // nodes)]
    by_card: dict[str, float] = {}
    for port in used:
        by_card[port.card or port.name] = by_card.get(port.card or port.name, 0.0) + port.gbps
    total = sum(min(gbps, next((p.pcie_gbps * PCIE_PAYLOAD for p in used if (p.card or p.name) == card and p.pcie_gbps),
                               gbps)) for card, gbps in by_card.items())
    value = total / 8
    if check == "nccl_alltoall":
        value *= ceilings.crossing(check, ranks, nodes)
    kind = "RoCE" if used[0].layer == "Ethernet" else used[0].layer or "RDMA"
    what = f"{plural(len(used), 'port')} of {rate:g} Gb/s {kind} a node, {number(value)} GB/s"
    return NETWORK[check], _Carried(value, what + (" behind PCIe" if total < rate * len(used) else ""))


# --- what is impossible

Bounds = tuple[Ceiling | None, Ceiling | None]


def bounds(check: str, m: Measurement, sides: Sequence[Links], *, apart: bool) -> Bounds:
    """The least and the most that such a value can be. sides may be empty: by the fastest that there is."""
    if m.unit == "us":
        return _floor(check, m, sides, apart=apart), None
    found = (_top(check, m, sides, apart=apart), ceilings.by_size(check, m.name, m.unit, m.size_bytes, m.ranks))
    return None, min((c for c in found if c), key=lambda c: c.value, default=None)


def impossible(m: Measurement, possible: Bounds) -> str:
    """Why no hardware can have given this finite number; "" when it can."""
    floor, top = possible
    value = float(m.value)
    if floor and value < floor.value / SLACK:
        return f"{number(value)} us is impossible: below {floor.value:.3g} us ({floor.why})"
    if top and value > top.value * SLACK:
        return f"{number(value)} {m.unit} is impossible: above {top.value:.4g} {m.unit} ({top.why})"
    return ""


def _top(check: str, m: Measurement, sides: Sequence[Links], *, apart: bool) -> Ceiling | None:
    both = m.direction is Direction.BOTH or check == "osu_bibw"
    if m.unit not in ("Gb/s", "GB/s", "MB/s"):
        return None
    if check.startswith("nccl_"):
        return _collective_top(check, m, sides)
    if check.startswith("ib_"):          # its peak is that of one message, between two looks at the clock
        return None if m.name == "bw_peak" else _rdma_top(m, sides, both=both, apart=apart)
    if check.startswith(("osu_", "mpi_")):
        return _mpi_top(m, sides, both=both, apart=apart)
    return ceilings.ceiling(check, m.name, m.unit, both=both)


def _collective_top(check: str, m: Measurement, sides: Sequence[Links]) -> Ceiling | None:
    if m.name not in ("busbw", "avg_busbw", "algbw") or m.unit != "GB/s" or m.ranks == 1:     # one rank moves nothing
        return None
    found = []
    for side in sides:
        network = sum(p.gbps * (2 if p.bond else 1) for p in side.ports) if side.every_rate else 0.0
        ports = len(side.ports)
        for gpu in ceilings.gpus(side.gpu) if side.gpu else ():
            own = replace(gpu, ports=ports, port_gbps=network / ports) if network else gpu
            found.append(ceilings.collective(own, check, m.ranks, m.nodes))
    if len(found) < len(sides) or not found:
        return ceilings.ceiling(check, m.name, m.unit, ranks=m.ranks, nodes=m.nodes)
    best = max(found, key=lambda c: c.value)
    if m.name != "algbw":
        return best
    return Ceiling(best.value * ceilings.algorithm_factor(check, m.ranks), best.why)


def _rdma_top(m: Measurement, sides: Sequence[Links], *, both: bool, apart: bool) -> Ceiling:
    """A port looped back to itself may be faster than its link: PCIe alone bounds it."""
    per_byte = {"Gb/s": 1.0, "GB/s": 1 / 8, "MB/s": 1000 / 8}[m.unit]
    tops = []
    for side in sides:
        named = [p for p in side.ports if not m.rail or p.name == m.rail]
        if not named or not side.every_rate:
            continue
        best = max(named, key=lambda p: p.gbps * (2 if p.bond else 1))
        rate = best.gbps * (2 if best.bond else 1)
        if apart:
            tops.append(Ceiling(rate, f"port {best.name} of {best.gbps:g} Gb/s"))
        if best.pcie_gbps and best.pcie_gbps < (rate if apart else best.pcie_gbps + 1):
            tops.append(Ceiling(best.pcie_gbps, f"{best.name} runs {best.pcie}"))
    top = min(tops, key=lambda c: c.value, default=Ceiling(ceilings.FASTEST_PORT, "the fastest port that there is"))
    return Ceiling(top.value * per_byte * (1 + both), top.why + (", both ways" if both else ", one way"))


def _mpi_top(m: Measurement, sides: Sequence[Links], *, both: bool, apart: bool) -> Ceiling:
    """All ports of a node together; within a node, the fastest memory."""
    per_byte = {"Gb/s": 8.0, "GB/s": 1.0, "MB/s": 1000.0}[m.unit]
    totals = [sum(p.gbps * (2 if p.bond else 1) for p in (*side.ports, *side.ethernet)) / 8 for side in sides]
    known = apart and totals and all(side.every_rate and side.ports and not side.clique for side in sides)
    if known:
        top = Ceiling(min(totals), "all ports of a node together")
    elif apart and not any(side.clique for side in sides):
        top = Ceiling(8 * ceilings.FASTEST_PORT / 8, "eight of the fastest ports that there are")
    else:
        top = Ceiling(_MEMORY_GBS, "the fastest memory that there is")
    return Ceiling(top.value * per_byte * (1 + both), top.why + (", both ways" if both else ""))


def _floor(check: str, m: Measurement, sides: Sequence[Links], *, apart: bool) -> Ceiling | None:
    if m.name not in _TIMES or not check.startswith(("ib_", "osu_", "mpi_")):
        return None
    rated = apart and bool(sides) and all(side.ports and side.every_rate for side in sides)
    if not rated:
        return ceilings.floor_us(check)
    fastest = max(sum(p.gbps * (2 if p.bond else 1) for p in side.ports) for side in sides)
    if m.name == "avg_latency" or any(side.clique for side in sides):      # the mean of ranks, of which some only send
        return ceilings.floor_us(check)
    pair = check.startswith(("ib_", "mpi_")) or m.nodes == 2
    wire = 8e-3 * (m.size_bytes or 0) / fastest if pair else 0.0
    return Ceiling(max(ceilings.NEAREST_US, wire), "adapters, PCIe and the wire between two nodes")

"""What physics allows: links of GPUs, PCIe, ports, and the least time that a message can take.

Generous on purpose: above a ceiling no value is possible; below it says nothing of being good. Bandwidths of a
direction in GB/s (1e9 bytes a second), of ports in Gb/s.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from functools import lru_cache

from hpcadmin.text import plural

PCIE_LANE = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}      # one way, after the line code
NVLINK = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}    # one link, one way
FASTEST_PORT = 800.0                                       # XDR, and Ethernet of 800 Gb/s
NEAREST_US = 0.4          # to another node: PCIe of both adapters, and the adapters themselves
SHARED_US = 0.02          # to another core: cache lines between two caches
LAUNCH_US = 1.0           # of a collective: a kernel on a GPU is started, and all ranks wait for each other
FASTEST_MPPS = 1000.0     # millions of messages a second of one port: more than any has
_SUMMED = ("nccl_allreduce",)
_PER_BYTE = {"Gb/s": 8.0, "GB/s": 1.0, "MB/s": 1000.0}
_RATE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) Gb/sec")
RATES = ("10 Gb/sec", "25 Gb/sec", "40 Gb/sec (4X QDR)", "50 Gb/sec", "56 Gb/sec (4X FDR)", "100 Gb/sec (4X EDR)",
         "100 Gb/sec", "200 Gb/sec (4X HDR)", "200 Gb/sec", "400 Gb/sec (4X NDR)", "400 Gb/sec",
         "800 Gb/sec (4X XDR)", "800 Gb/sec")


@dataclass(frozen=True)
class Gpu:
    """One model: its links to the others of its node, its PCIe, and the most ports that its nodes are built with."""

    name: str
    family: str
    link: float              # GB/s, one way, all links together; 0: PCIe alone
    pcie: int
    ports: int
    port_gbps: float
    host: float = 0.0        # GB/s to the CPU, one way, where it is not PCIe
    beyond: bool = False     # the links reach the GPUs of other nodes
    sums: bool = False       # the switch between them adds up (NVLS)
    paired: bool = False     # the links are a bridge between two cards; more than two talk over PCIe

    @property
    def pcie_gbs(self) -> float:
        return 16 * PCIE_LANE[self.pcie]

    @property
    def between(self) -> float:
        return self.link or self.pcie_gbs

    @property
    def network(self) -> float:
        return self.ports * self.port_gbps / 8


def _nv(generation: int, links: int) -> float:
    return links * NVLINK[generation]


GPUS = (
    Gpu("Tesla V100-SXM2-32GB", "V100", _nv(2, 6), 3, 8, 100),
    Gpu("Tesla V100-PCIE-32GB", "V100", 0, 3, 8, 100),
    Gpu("NVIDIA A100-SXM4-40GB", "A100", _nv(3, 12), 4, 8, 200),
    Gpu("NVIDIA A100-SXM4-80GB", "A100", _nv(3, 12), 4, 8, 200),
    Gpu("NVIDIA A100 80GB PCIe", "A100", _nv(3, 12), 4, 8, 200, paired=True),
    Gpu("NVIDIA A100-PCIE-40GB", "A100", _nv(3, 12), 4, 8, 200, paired=True),
    Gpu("NVIDIA H100 80GB HBM3", "H100", _nv(4, 18), 5, 8, 400, sums=True),
    Gpu("NVIDIA H100 PCIe", "H100", _nv(4, 12), 5, 8, 400, paired=True),
    Gpu("NVIDIA H100 NVL", "H100", _nv(4, 12), 5, 8, 400, paired=True),
    Gpu("NVIDIA H200", "H200", _nv(4, 18), 5, 8, 400, sums=True),
    Gpu("NVIDIA H200 NVL", "H200", _nv(4, 18), 5, 8, 400),
    Gpu("NVIDIA B200", "B200", _nv(5, 18), 5, 8, 400, sums=True),
    Gpu("NVIDIA B300 SXM6 AC", "B300", _nv(5, 18), 6, 8, 800, sums=True),
    Gpu("NVIDIA GB200", "GB200", _nv(5, 18), 5, 4, 400, host=450, beyond=True, sums=True),
    Gpu("NVIDIA GB300", "GB300", _nv(5, 18), 6, 4, 800, host=450, beyond=True, sums=True),
    Gpu("NVIDIA GH200 480GB", "GH200", _nv(4, 18), 5, 4, 400, host=450, beyond=True),
    Gpu("NVIDIA L40S", "L40S", 0, 4, 8, 400),
    Gpu("AMD Instinct MI250X", "MI250X", 8 * 50.0, 4, 8, 200),
    Gpu("AMD Instinct MI300X", "MI300X", 7 * 64.0, 5, 8, 400),
    Gpu("AMD Instinct MI325X", "MI325X", 7 * 64.0, 5, 8, 400),
    Gpu("AMD Instinct MI355X", "MI355X", 7 * 76.8, 5, 8, 400),
)


@dataclass(frozen=True)
class Ceiling:
    value: float
    why: str


def gpus(hardware: str) -> tuple[Gpu, ...]:
    """The models that a pattern of a limit is for."""
    return tuple(g for g in GPUS if fnmatch.fnmatchcase(g.name.casefold(), hardware.casefold())) if hardware else ()


def port_gbps(hardware: str) -> float | None:
    """The fastest port that a pattern of a limit is for; None when it is for no port."""
    told = _RATE.match(hardware)
    if told:
        return float(told[1])
    rates = [_RATE.match(name) for name in RATES if fnmatch.fnmatchcase(name.casefold(), hardware.casefold())]
    return max((float(r[1]) for r in rates if r), default=None) if "gb/sec" in hardware.casefold() else None


@lru_cache(maxsize=4096)       # asked for each value of a table, and each time the same
def ceiling(check: str, measurement: str, unit: str, hardware: str = "", *, ranks: int | None = None,
            nodes: int | None = None, both: bool = False) -> Ceiling | None:
    """The most that this value can be; None where nothing is known (times, counts, other hardware)."""
    if unit not in _PER_BYTE:
        return None
    if check.startswith("nccl_") and measurement in ("busbw", "avg_busbw", "algbw"):
        found = [collective(g, check, ranks, nodes) for g in (gpus(hardware) if hardware else GPUS)]
        best = max(found, key=lambda c: c.value, default=_of_port(check, hardware, ranks, nodes))
        factor = _PER_BYTE[unit] * (algorithm_factor(check, ranks) if measurement == "algbw" else 1.0)
        return best and Ceiling(best.value * factor, best.why)
    if check == "host_device_copy":
        found = [_host(g) for g in gpus(hardware)]
        return max(found, key=lambda c: c.value, default=None)
    if check == "peer_copy":
        found = [Ceiling(g.between * (1 + both), f"{g.family}: {g.between:g} GB/s to other GPUs, one way")
                 for g in gpus(hardware)]
        return max(found, key=lambda c: c.value, default=None)
    if check.startswith(("ib_", "osu_", "mpi_")):
        return _port(unit, hardware, both)
    return None


def _host(gpu: Gpu) -> Ceiling:
    if gpu.host:
        return Ceiling(gpu.host, f"{gpu.family}: {gpu.host:g} GB/s to the CPU, one way")
    return Ceiling(gpu.pcie_gbs, f"{gpu.family}: PCIe {gpu.pcie} x16, {gpu.pcie_gbs:.1f} GB/s one way")


def _port(unit: str, hardware: str, both: bool) -> Ceiling:
    rate = port_gbps(hardware)
    ways = 2 if both else 1
    what = f"a port of {rate:g} Gb/s" if rate else f"the fastest port, {FASTEST_PORT:g} Gb/s"
    value = (rate or FASTEST_PORT) * ways / 8 * _PER_BYTE[unit]
    return Ceiling(value, what + (", both ways" if both else ", one way"))


def collective(gpu: Gpu, check: str, ranks: int | None, nodes: int | None) -> Ceiling:
    """The bus bandwidth that the links allow. A switch that adds up (NVLS, SHARP) takes each byte of an all-reduce
    once, the formula counts it 2(n-1)/n times: that is why an H100 gives 479 over links of 450."""
    apart = not nodes or nodes > 1
    bridged = gpu.paired and ranks is not None and ranks > 2 * (nodes or 1)
    between = gpu.pcie_gbs if bridged else gpu.between
    if check in _SUMMED and gpu.sums:
        inside = between * (2.0 * _share(ranks) if ranks else 2.0)
    elif apart and ranks and nodes and not gpu.beyond:       # within each node fewer ranks than the formula counts
        inside = between * min(2.0, _share(ranks) / _share(max(ranks // nodes, 2)))
    else:
        inside = between * (2.0 if apart and not ranks else 1.0)
    why = f"{gpu.family}: {between:g} GB/s to other GPUs, one way"
    if not nodes or nodes < 2 or gpu.beyond:
        return Ceiling(inside, why)
    outside = gpu.network * crossing(check, ranks, nodes)
    if outside < inside:
        return Ceiling(outside, f"{gpu.family}: {plural(gpu.ports, 'port')} of {gpu.port_gbps:g} Gb/s a node")
    return Ceiling(inside, why)


def algorithm_factor(check: str, ranks: int | None) -> float:
    """Algorithm bandwidth by bus bandwidth, as nccl-tests counts them; the largest where the ranks are unknown."""
    if check in _SUMMED:
        return 1 / (2 * _share(ranks or 2))
    if check in ("nccl_broadcast", "nccl_reduce", "nccl_sendrecv"):
        return 1.0
    return 1 / _share(ranks or 2)


def _share(ranks: int) -> float:
    return max(ranks - 1, 1) / max(ranks, 2)


def crossing(check: str, ranks: int | None, nodes: int) -> float:
    """How many bytes a second of bus bandwidth one byte a second between nodes allows."""
    share = _share(ranks) if ranks else 1.0
    if check in _SUMMED:
        return 2.0 * share
    if check in ("nccl_allgather", "nccl_reducescatter"):
        return share * nodes / (nodes - 1)
    if check == "nccl_alltoall" and ranks:
        return share * nodes / (nodes - 1) / max(ranks / nodes, 1.0)
    return 1.0


def _of_port(check: str, hardware: str, ranks: int | None, nodes: int | None) -> Ceiling | None:
    """For a limit by the rate of the port: eight ports of it a node."""
    rate = port_gbps(hardware)
    if rate is None or not nodes or nodes < 2:
        return None
    return Ceiling(rate * 8 / 8 * crossing(check, ranks, nodes), f"8 ports of {rate:g} Gb/s a node")


def by_size(check: str, measurement: str, unit: str, size_bytes: int | None,
            ranks: int | None = None) -> Ceiling | None:
    """The most that messages of this size can give: each takes its time. None for what is no bandwidth."""
    if unit not in _PER_BYTE or not size_bytes:
        return None
    if check.startswith("nccl_") and measurement in ("busbw", "algbw") and ranks != 1:
        factor = 2.0 * _share(ranks or 1024) if check in _SUMMED and measurement == "busbw" else 1.0
        return Ceiling(size_bytes * factor / LAUNCH_US / 1000 * _PER_BYTE[unit],
                       f"an operation takes {LAUNCH_US:g} us and more")
    if check in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "osu_bw"):
        return Ceiling(size_bytes * FASTEST_MPPS / 1000 * _PER_BYTE[unit],
                       f"{FASTEST_MPPS:g} million messages a second of a port")
    return None


def floor_us(check: str, hardware: str = "", size_bytes: int | None = None) -> Ceiling | None:
    """The least time in microseconds that one message can take; None for what is no time of a message."""
    if not check.startswith(("ib_", "osu_", "mpi_")):
        return None
    rate = port_gbps(hardware)
    if rate is None and not check.startswith("ib_"):
        return Ceiling(SHARED_US, "between two cores of one node")
    wire = 8e-3 * (size_bytes or 0) / (rate or FASTEST_PORT)
    return Ceiling(max(NEAREST_US, wire), "adapters, PCIe and the wire between two nodes")

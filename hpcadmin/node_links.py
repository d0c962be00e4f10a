"""What the links of a node can carry, from the inventory: ports, PCIe, NVLink. None is unknown; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.ceilings import FASTEST_PORT, NVLINK, PCIE_LANE
from hpcadmin.model import Gpu, Nic, Node

LEAST_GBPS = 10.0        # what says that it is slower is no port of a cluster: a device of software, a dead link
MOST_GBPS = 2 * FASTEST_PORT     # two of the fastest as one bond; what says that it is faster is wrong
_SOFTWARE = re.compile(r"rxe|siw", re.IGNORECASE)        # RDMA over a plain network card: its rate is made up
# NVLink by model: generation, and how many links a GPU has at most. Others (A40, RTX) have slower links.
_NVLINKS = (
    (re.compile(r"\bV100"), 2, 6), (re.compile(r"\bA[18]00"), 3, 12), (re.compile(r"\bGH200\b"), 4, 18),
    (re.compile(r"\bH(?:100|200|800|20)\b"), 4, 18), (re.compile(r"\bG?B[23]00\b"), 5, 18))
_KNOWN = re.compile(r"(?:NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC)")          # labels of topo -m
_NO_NVLINK = re.compile(r"\b(?:L40S?|L4|L20|T4|A10G?|A16|A2)\b")


@dataclass(frozen=True, slots=True)
class Port:
    """An RDMA port, or an Ethernet interface, of hardware and with a rate. pcie_gbps: one way, as its slot runs."""

    name: str
    gbps: float
    layer: str = ""
    mtu: int | None = None
    pcie_gbps: float | None = None
    pcie: str = ""                 # "PCIe 5.0 x16"
    pcie_could: str = ""           # what the device could do, where that is more
    bond: bool = False             # two ports that may carry twice its rate
    card: str = ""                 # PCI address without the function


@dataclass(frozen=True, slots=True)
class Links:
    """Equal for nodes that are built alike."""

    ports: tuple[Port, ...] = ()
    every_rate: bool = True        # the rate of each RDMA port is known
    ethernet: tuple[Port, ...] = ()
    gpus: int | None = None
    gpu: str = ""                  # the model of all of them
    nvlink_gbs: float | None = None    # GB/s, one way, all links of a GPU together; 0: none
    nvlinks: str = ""              # "18 x NVLink 4"
    switched: bool = False         # any two GPUs have all of it
    pcie_gbs: float | None = None  # GB/s, one way, of the GPU that has the least
    pcie: str = ""
    clique: str = ""               # of GPUs whose NVLinks reach other nodes

    def port(self, name: str) -> Port | None:
        return next((p for p in self.ports if p.name == name), None)


def links_of(node: Node) -> Links:
    rdma = [n for n in node.nics if n.rdma and not n.virtual and not _SOFTWARE.match(n.rdma)]
    models = {g.model for g in node.gpus}
    gpu = models.pop() if len(models) == 1 else ""
    count, switched = _nvlinks(node, gpu)
    generation = next((g for pattern, g, _ in _NVLINKS if pattern.search(gpu)), None)
    gbs = 0.0 if count == 0 else count * NVLINK[generation] if count and generation else None
    pcie = [_pcie(g.pcie_gen_max or g.pcie_gen, g.pcie_width_max or g.pcie_width) for g in node.gpus]
    known = [p for p in pcie if p]
    slowest = min(known, default=None)
    cliques = {(g.fabric_cluster_uuid, g.fabric_clique) for g in node.gpus}
    clique = "/".join(cliques.pop()) if len(cliques) == 1 else ""
    return Links(
        ports=tuple(sorted((_port(n) for n in rdma if LEAST_GBPS <= (n.rate_gbps or 0.0) <= MOST_GBPS),
                           key=lambda p: p.name)),
        every_rate=(all(0 < (n.rate_gbps or 0.0) <= MOST_GBPS for n in rdma)
                    and not node.lacks("nics") and not node.lacks("rdma")),
        ethernet=tuple(sorted((_port(n) for n in node.nics if not n.rdma and not n.virtual
                               and 0 < (n.rate_gbps or 0.0) <= MOST_GBPS), key=lambda p: p.name)),
        gpus=None if node.lacks("gpus") else len(node.gpus), gpu=gpu, nvlink_gbs=gbs,
        nvlinks=f"{count} x NVLink {generation}" if gbs else "", switched=switched,
        pcie_gbs=slowest[0] if slowest and len(known) == len(node.gpus) else None, pcie=slowest[1] if slowest else "",
        clique="" if clique.strip("/-") in ("", "0", "N/A") else clique)


def _port(nic: Nic) -> Port:
    runs = _pcie(nic.pcie_gen, nic.pcie_width)
    could = _pcie(nic.pcie_gen_max, nic.pcie_width_max)
    return Port(
        name=nic.rdma or nic.name, gbps=float(nic.rate_gbps or 0), layer=nic.link_layer,
        mtu=nic.active_mtu if nic.rdma else nic.mtu, pcie_gbps=runs[0] * 8 if runs else None,
        pcie=runs[1] if runs else "",
        pcie_could=could[1] if runs and could and could[0] > runs[0] * 1.01 else "",
        bond="bond" in nic.name or "bond" in nic.rdma or bool(nic.bonded), card=nic.pci.rpartition(".")[0])


def _pcie(generation: int | None, width: int | None) -> tuple[float, str] | None:
    """GB/s one way after the line code, and its name; None before generation 3, which idle devices fall back to."""
    if generation not in PCIE_LANE or width not in (1, 2, 4, 8, 12, 16, 32):
        return None
    return width * PCIE_LANE[generation], f"PCIe {generation}.0 x{width}"


def _nvlinks(node: Node, model: str) -> tuple[int | None, bool]:
    """How many links each GPU has, None where unknown; and whether a switch gives all of them to any two GPUs."""
    most = next((m for pattern, _, m in _NVLINKS if pattern.search(model)), None)
    pairs = _labels(node)
    told = [g.nvlinks_active for g in node.gpus if g.nvlinks_active is not None]
    if not node.gpus or _NO_NVLINK.search(model):
        return (0, False) if node.gpus else (None, False)
    if most is None:
        return (0, False) if _none_at_all(node.gpus, pairs) else (None, False)
    counts = [[_number(label) for label in row] for row in pairs]
    if any(not _KNOWN.fullmatch(label) for row in pairs for label in row):
        return None, False
    if counts:
        total = max(sum(row) for row in counts)
        if not total:
            return 0, False
        if total > most:                     # more than a GPU has: each number is what a switch gives
            given = max(max(row) for row in counts)
            return (given, all(k for row in counts for k in row)) if given <= most else (None, False)
        return total, len(node.gpus) == 2
    return (max(told), False) if len(told) == len(node.gpus) else (None, False)


def _none_at_all(gpus: Sequence[Gpu], pairs: Sequence[Sequence[str]]) -> bool:
    if pairs:
        return not any(_number(label) for row in pairs for label in row)
    return bool(gpus) and all(g.nvlinks_active == 0 for g in gpus)


def _labels(node: Node) -> list[list[str]]:
    """Of each GPU, to each other one; none unless all are told."""
    count = len(node.gpus)
    if count < 2 or len(node.gpu_links) != count or any(len(row) != count for row in node.gpu_links):
        return []
    return [[label for j, label in enumerate(row) if j != i] for i, row in enumerate(node.gpu_links)]


def _number(label: str) -> int:
    return int(label[2:]) if label.startswith("NV") and label[2:].isdecimal() else 0

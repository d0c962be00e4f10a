"""The order, and what comes out of comparing it. Every part may be left out: what is not ordered is not compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CpuOrder:
    model: str = ""                  # words that must all be in what the node says: "Xeon Platinum 8480C"
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None


@dataclass(frozen=True)
class MemoryOrder:
    size_gib: float | None = None
    dimms: int | None = None         # that are populated
    dimm_gib: float | None = None
    dimm_mts: int | None = None      # as they run


@dataclass(frozen=True)
class GpuOrder:
    count: int
    model: str = ""
    memory_gib: float | None = None
    vbios: str = ""                  # at least
    driver: str = ""                 # at least
    pcie_gen: int | None = None      # at least, of what the link can do
    pcie_width: int | None = None    # at least, now
    nvlinks: int | None = None       # active, of each GPU


@dataclass(frozen=True)
class NicOrder:
    count: int                       # ports
    kind: str = ""                   # "InfiniBand", "RoCE", "Ethernet"; "": any
    model: str = ""
    rate_gbps: float | None = None
    firmware: str = ""               # at least
    psid: str = ""


@dataclass(frozen=True)
class DiskOrder:
    count: int
    model: str = ""
    size_gb: float | None = None     # decimal, as disks are sold
    firmware: str = ""               # at least
    transport: str = ""              # "nvme", "sata", "sas"


@dataclass(frozen=True)
class GroupOrder:
    """Nodes of one kind: by hostlist, or by how many of them."""

    name: str
    hosts: tuple[str, ...] = ()      # (): any node that looks like it
    count: int | None = None
    vendor: str = ""
    product: str = ""
    bios: str = ""                   # at least
    cpu: CpuOrder = field(default_factory=CpuOrder)
    memory: MemoryOrder = field(default_factory=MemoryOrder)
    gpus: tuple[GpuOrder, ...] | None = None     # None: not ordered, and not compared; (): there must be none
    nics: tuple[NicOrder, ...] | None = None
    disks: tuple[DiskOrder, ...] | None = None
    serials: tuple[str, ...] = ()    # of the nodes, in any order
    serial_of: Mapping[str, str] = field(default_factory=dict)   # node -> serial
    more_allowed: tuple[str, ...] = ()           # "gpus", "nics", "disks": further ones are no difference

    @property
    def size(self) -> int:
        return len(self.hosts) if self.count is None else self.count


@dataclass(frozen=True)
class Cable:
    """A line of the cable plan. line: where it stands in its file."""

    node: str
    port: str
    switch: str
    switch_port: str
    line: int = 0


@dataclass(frozen=True)
class Order:
    source: str = ""
    title: str = ""
    groups: tuple[GroupOrder, ...] = ()
    cables: tuple[Cable, ...] | None = None      # None: no plan was given
    cable_file: str = ""


@dataclass(frozen=True)
class Difference:
    """kind: "missing", "extra" or "different". node: "" for what is about a whole group."""

    node: str
    item: str
    ordered: str
    found: str
    kind: str = "different"

    @property
    def what(self) -> str:
        """What comes behind the name of the node."""
        return f"{self.item}: ordered {self.ordered}, found {self.found}"

    @property
    def line(self) -> str:
        return f"{self.node}: {self.what}" if self.node else self.what


@dataclass(frozen=True)
class NotCompared:
    """Nothing on our side to compare with: neither right nor wrong."""

    node: str
    item: str
    reason: str

    @property
    def what(self) -> str:
        return f"not compared: {self.item}: {self.reason}"


@dataclass(frozen=True)
class Comparison:
    """agreed: how many items are as ordered."""

    source: str = ""
    title: str = ""
    nodes: int = 0
    agreed: int = 0
    differences: tuple[Difference, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()

    @property
    def ok(self) -> bool:
        """As ordered, in everything that was ordered."""
        return not self.differences and not self.not_compared and self.agreed > 0

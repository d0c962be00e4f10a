"""What a cluster is: frozen records with units in their names. None means unknown, never zero or absent.

Absent is an empty tuple, and only where a source said so; `Node.unknown` names the parts that no source told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INVENTORY_SCHEMA = 1


@dataclass(frozen=True)
class Core:
    """One physical core: the package it is in, its NUMA node, its hardware threads as OS CPU ids."""

    socket: int
    numa: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node with its OS CPU ids (none for memory-only nodes, as GPU memory on Grace)."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int | None = None


@dataclass(frozen=True)
class Cpu:
    """CPU topology. `cores` are in hwloc's logical order (package by package), so that a core's place in the
    tuple is Slurm's abstract core index (gres.conf Cores=)."""

    model: str = ""
    architecture: str = ""
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    cores: tuple[Core, ...] = ()
    numa: tuple[NumaNode, ...] = ()
    offline: tuple[int, ...] = ()

    @property
    def cpus(self) -> int | None:
        if self.sockets is None or self.cores_per_socket is None or self.threads_per_core is None:
            return None
        return self.sockets * self.cores_per_socket * self.threads_per_core


@dataclass(frozen=True)
class Gpu:
    """One GPU. index is the tool's (PCI bus order for NVIDIA); minor is what the device file is named by."""

    vendor: str                      # "nvidia", "amd", "intel"
    index: int | None = None
    model: str = ""                  # as the tool prints it: "NVIDIA H100 80GB HBM3"
    uuid: str = ""
    serial: str = ""
    pci: str = ""                    # domain:bus:device.function, lower case, domain of at least four digits
    minor: int | None = None
    device_file: str = ""            # /dev/nvidia0; "" when it does not exist or is unknown
    memory_mib: int | None = None
    numa: int | None = None          # None: unknown, also where the firmware says -1
    local_cpus: tuple[int, ...] = () # OS CPU ids near this GPU; empty: unknown
    vbios: str = ""
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    ecc: str = ""
    persistence: str = ""
    power_limit_w: float | None = None
    mig: str = ""


@dataclass(frozen=True)
class Nic:
    """A network interface, or a port of an RDMA device (rdma != "")."""

    name: str                        # netdev name, or RDMA device
    rdma: str = ""                   # RDMA device name: mlx5_0
    port: int | None = None
    netdev: str = ""
    link_layer: str = ""             # "InfiniBand", "Ethernet"
    state: str = ""                  # IB: ACTIVE/DOWN/...; Ethernet: operstate up/down/...
    physical_state: str = ""
    rate_gbps: float | None = None
    rate_text: str = ""              # "400 Gb/sec (4X NDR)"
    mtu: int | None = None
    guid: str = ""
    lid: int | None = None
    firmware: str = ""
    psid: str = ""
    model: str = ""
    mac: str = ""
    driver: str = ""
    pci: str = ""
    numa: int | None = None
    virtual: bool = False            # no hardware behind it (veth, bridge, bond, lo)


@dataclass(frozen=True)
class PciDevice:
    address: str
    class_id: str                    # six hex digits, "030200"
    vendor_id: str                   # four hex digits
    device_id: str
    numa: int | None = None
    local_cpus: str = ""             # as sysfs prints it
    link: str = ""                   # "32.0 GT/s PCIe x16"
    link_max: str = ""
    driver: str = ""


@dataclass(frozen=True)
class Node:
    """One node as its sources describe it."""

    name: str
    hostname: str = ""
    addresses: tuple[str, ...] = ()
    cpu: Cpu = field(default_factory=Cpu)
    memory_mib: int | None = None               # MemTotal, rounded down
    gpus: tuple[Gpu, ...] = ()
    gpu_links: tuple[tuple[str, ...], ...] = ()  # topo -m labels, row and column by GPU index: X, NV18, PIX, SYS
    nics: tuple[Nic, ...] = ()
    pci: tuple[PciDevice, ...] = ()
    vendor: str = ""
    product: str = ""
    serial: str = ""
    bios: str = ""
    os: str = ""
    kernel: str = ""
    gpu_driver: str = ""
    slurm_version: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)   # name -> path; "": looked for, not there
    simulated: str = ""              # hardware profile this node only pretends to have
    unknown: tuple[str, ...] = ()    # parts no source told: "gpus", "cpu.cores", ...
    problems: tuple[str, ...] = ()   # faults and contradictions found while reading
    captured: str = ""               # ISO time with zone


@dataclass(frozen=True)
class Group:
    """Nodes that are identical in what matters for configuration and judgement."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class OddOneOut:
    """A node (or value) that differs from its group, with the exact difference."""

    node: str
    what: str                        # "node03: 7 GPUs, the group has 8; missing: GPU 5 (0000:ab:00.0)"
    device: str = ""


@dataclass(frozen=True)
class Failed:
    """A node that could not be captured or read, and why."""

    node: str
    reason: str


@dataclass(frozen=True)
class Inventory:
    nodes: tuple[Node, ...]
    groups: tuple[Group, ...] = ()
    odd: tuple[OddOneOut, ...] = ()
    failed: tuple[Failed, ...] = ()
    created: str = ""
    schema: int = INVENTORY_SCHEMA

    def node(self, name: str) -> Node | None:
        return next((n for n in self.nodes if n.name == name), None)

    @property
    def simulated(self) -> str:
        return ", ".join(sorted({n.simulated for n in self.nodes if n.simulated}))

"""What a cluster is: frozen records with units in their names. None means unknown, never zero or absent.

Absent is an empty tuple, and only where a source said so; `Node.unknown` names the parts that no source told.
What a node has many of has slots: ten thousand nodes must fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INVENTORY_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core: the package it is in, its NUMA node, its hardware threads as OS CPU ids."""

    socket: int
    numa: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node with its OS CPU ids (none for memory-only nodes, as GPU memory on Grace)."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int | None = None
    distances: tuple[int, ...] = ()  # to each NUMA node, in the order of Cpu.numa (ACPI SLIT); (): unknown


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
    l3: tuple[tuple[int, ...], ...] = ()        # OS CPUs under each L3 cache; (): unknown

    @property
    def cpus(self) -> int | None:
        if self.sockets is None or self.cores_per_socket is None or self.threads_per_core is None:
            return None
        return self.sockets * self.cores_per_socket * self.threads_per_core


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG device of an NVIDIA GPU. profile: "1g.10gb"; index: the device's number on its GPU."""

    index: int
    profile: str = ""
    uuid: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
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
    power_limit_max_w: float | None = None
    mig: str = ""                    # MIG mode now: "Enabled", "Disabled"; "": unknown or not supported
    mig_pending: str = ""
    mig_devices: tuple[MigDevice, ...] = ()
    compute_mode: str = ""
    fabric_state: str = ""           # "Completed", "In Progress", …: registration with the NVLink fabric (NVSwitch)
    fabric_status: str = ""
    fabric_cluster_uuid: str = ""
    fabric_clique: str = ""
    part_number: str = ""
    pci_id: str = ""                 # vendor:device, "10de:2330"
    render: int | None = None        # minor of /dev/dri/renderD*, AMD and Intel
    partition: str = ""              # AMD compute and memory partition: "SPX/NPS1"
    nvlinks_active: int | None = None
    nvlinks_inactive: int | None = None


@dataclass(frozen=True, slots=True)
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
    port_guid: str = ""
    sm_lid: int | None = None
    active_mtu: int | None = None    # of the RDMA port, bytes
    serial: str = ""
    description: str = ""            # InfiniBand node description: "node01 mlx5_0"
    vfs: int | None = None           # SR-IOV VFs that are on; on the physical function
    pf: str = ""                     # PCI address of the physical function, on a VF
    bond: str = ""                   # the bond that it belongs to
    bonded: tuple[str, ...] = ()     # on a bond: its members
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    gpu_relations: tuple[str, ...] = ()  # topo -m labels (PIX, NODE, …) to each of Node.gpus; (): not told
    gid_index: int | None = None     # RoCE: of the first GID of version 2 that holds an IPv4 address


@dataclass(frozen=True, slots=True)
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
    name: str = ""                   # as lspci calls it
    parent: str = ""                 # address of the bridge above; "" at a root bus, or unknown
    root: str = ""                   # root bus: "0000:20"


@dataclass(frozen=True, slots=True)
class Dimm:
    slot: str
    size_mib: int | None = None      # None: the slot is empty, or its size is unknown (then `kind` says "unknown")
    kind: str = ""                   # DDR5
    speed_mts: int | None = None     # as it runs
    speed_max_mts: int | None = None
    manufacturer: str = ""
    part: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    name: str                        # nvme0n1
    model: str = ""
    size_bytes: int | None = None
    serial: str = ""
    firmware: str = ""
    rotational: bool | None = None
    transport: str = ""              # nvme, sata, sas
    pci: str = ""
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    target: str
    source: str
    kind: str                        # lustre, gpfs, beegfs, wekafs, nfs4
    options: str = ""


@dataclass(frozen=True)
class Bmc:
    """What the board management controller tells; empty where it did not answer."""

    address: str = ""
    firmware: str = ""
    manufacturer: str = ""
    psus: tuple[str, ...] = ()       # "PSU1: ok", "PSU2: failed"
    fans: tuple[str, ...] = ()
    events: tuple[str, ...] = ()     # the newest entries of the system event log
    settings: Mapping[str, str] = field(default_factory=dict)   # BIOS attributes that matter: SMT, NPS, ACS, IOMMU


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a node was read from, to be opened again when somebody asks why. path may be gone by then."""

    path: str
    kinds: tuple[str, ...] = ()
    sha256: str = ""


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
    uuid: str = ""                   # system UUID (SMBIOS)
    board_serial: str = ""
    chassis_serial: str = ""
    bios_date: str = ""
    real_memory_mib: int | None = None          # as slurmd counts it
    command_line: str = ""           # of the kernel
    dimms: tuple[Dimm, ...] = ()
    disks: tuple[Disk, ...] = ()
    mounts: tuple[Mount, ...] = ()
    bmc: Bmc = field(default_factory=Bmc)
    settings: Mapping[str, str] = field(default_factory=dict)   # as the kernel sees it: SMT, IOMMU, …
    versions: Mapping[str, str] = field(default_factory=dict)   # name -> version: ofed, ucx, openmpi, …
    time_sync: str = ""              # "chrony, synchronised to 10.0.0.1"; "": unknown
    neighbours: tuple[tuple[str, str, str], ...] = ()   # LLDP: own interface, neighbour, its port
    sources: tuple[Source, ...] = ()

    def lacks(self, part: str) -> bool:
        """Whether no source told that part; in `unknown` a reason may stand behind it."""
        return any(item == part or item.startswith(f"{part} (") for item in self.unknown)



@dataclass(frozen=True, slots=True)
class SwitchPort:
    """A port of a switch or host adapter in the fabric, with what is plugged into it."""

    number: int
    peer: str = ""                   # name of the device at the other end; "": nothing, or unknown
    peer_guid: str = ""
    peer_port: int | None = None
    width: str = ""                  # "4X"; "": unknown
    speed: str = ""                  # "NDR", "HDR", or "100G" for Ethernet
    state: str = ""
    width_best: str = ""             # what both ends could do, where that is told
    speed_best: str = ""
    name: str = ""                   # of Ethernet ports: swp1s3; "": InfiniBand, the number is the name
    peer_name: str = ""              # of the port at the other end


@dataclass(frozen=True, slots=True)
class FabricDevice:
    """A switch, a host adapter (kind "ca") or a router. level: 1 for leaves, 2 for spines, …; None: not derivable."""

    name: str
    kind: str                        # "switch", "ca", "router"
    guid: str = ""
    lid: int | None = None
    host: str = ""                   # of an adapter: the node that it is in; "": not told by its description
    device: str = ""                 # of an adapter: mlx5_0
    level: int | None = None
    description: str = ""
    ports: tuple[SwitchPort, ...] = ()


@dataclass(frozen=True)
class Fabric:
    """A network as its dumps describe it. kind: "infiniband", "ethernet"."""

    kind: str = "infiniband"
    devices: tuple[FabricDevice, ...] = ()
    problems: tuple[str, ...] = ()   # degraded links, missing cables, contradictions
    incomplete: tuple[str, ...] = ()

    @property
    def switches(self) -> tuple[FabricDevice, ...]:
        return tuple(device for device in self.devices if device.kind == "switch")


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
    soft: bool = False               # versions and settings: no other hardware


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
    fabrics: tuple[Fabric, ...] = ()
    schema: int = INVENTORY_SCHEMA

    def node(self, name: str) -> Node | None:
        return next((n for n in self.nodes if n.name == name), None)

    @property
    def simulated(self) -> str:
        return ", ".join(sorted({n.simulated for n in self.nodes if n.simulated}))

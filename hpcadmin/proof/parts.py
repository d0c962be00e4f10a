"""What is put before Slurm's daemons, and what they answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcadmin.conf.keys import Version


@dataclass(frozen=True)
class Slurm:
    """A Slurm that can be asked. root: "" for the machine's own, else a folder with a system of its own in it."""

    version: Version
    text: str                        # as slurmctld -V says it: "24.11.5"
    root: str = ""
    sbin: str = "/usr/sbin"          # where its slurmctld and slurmd lie, inside the root


@dataclass(frozen=True)
class Device:
    """A character device that the node has."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True)
class Hardware:
    """What slurmd finds on the node. synthetic or xml: its CPUs as hwloc takes them, one of the two."""

    synthetic: str = ""
    xml: str = ""
    devices: tuple[Device, ...] = ()
    tmp_mib: int = 0                 # size of the node's TmpFS, made as large as the file says; 0: as it comes
    detected: str = ""               # fake_gpus.conf: the GPUs that AutoDetect finds; "": there is no such file
    driver: tuple[tuple[str, str, str], ...] = ()   # of NVIDIA GPUs: PCI address, information, local_cpulist
    captured: bool = False           # xml is hwloc's own, of that node
    parameters: str = ""             # numa_node_as_socket or l3cache_as_socket, for slurmd -C


@dataclass(frozen=True)
class NodeRun:
    """A node to start a slurmd for. jobs: shell scripts that run when it is idle, one after another."""

    name: str
    hardware: Hardware
    address: str = ""                # "": one is made up
    alias: str = ""                  # a further name with this address
    seconds: float = 15.0
    jobs: tuple[str, ...] = ()
    wait_for_files: bool = False     # slurmd waits 20 s for a device file that is not there; else that is the answer


@dataclass(frozen=True)
class Cluster:
    """files: contents of the configuration folder by their path in it. hosts: further names that must resolve, to an
    address where nobody answers. folders: (path, owner) of folders that the daemons need; fresh: those of them that
    each slurmd has for itself. One slurmctld for all nodes; a slurmd at a time."""

    files: Mapping[str, str]
    nodes: tuple[NodeRun, ...]
    controller: str = "proof"
    controller_addresses: tuple[str, ...] = ()       # and names under which it is reached
    hosts: tuple[str, ...] = ()
    folders: tuple[tuple[str, str], ...] = ()
    fresh: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)   # files outside of the folder, by absolute path
    munge_socket: str = ""
    tmp: str = "/tmp"                # noqa: S108  (TmpFS of the files)
    keep_cgroups: bool = False
    with_gres: bool = True           # ask slurmd -G too


@dataclass(frozen=True)
class NodeAnswer:
    """What Slurm made of a node. node: scontrol show node by key; slurmd: scontrol show slurmd; measured, gres: what
    slurmd -C and -G print; log: slurmd's own lines; controller: slurmctld's meanwhile; ended: it ended by itself; late:
    nothing within its time. jobs: what each printed."""

    name: str
    node: Mapping[str, str] = field(default_factory=dict)
    slurmd: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""
    gres: str = ""
    log: tuple[str, ...] = ()
    controller: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    ended: bool = False
    late: bool = False

    @property
    def state(self) -> str:
        """"" where slurmctld has none."""
        return self.node.get("State", "")

    @property
    def fatal(self) -> str:
        return next((line.partition("fatal: ")[2] for line in self.log if "fatal: " in line), "")


@dataclass(frozen=True)
class Answer:
    """log: slurmctld's lines, at its start and while each node registered. started: it answered. problem: why the
    daemons could not be asked at all; "" for none."""

    slurm: Slurm
    nodes: tuple[NodeAnswer, ...] = ()
    log: tuple[str, ...] = ()
    started: bool = False
    problem: str = ""
    seconds: float = 0.0

    @property
    def fatal(self) -> str:
        return next((line.partition("fatal: ")[2] for line in self.log if "fatal: " in line), "")

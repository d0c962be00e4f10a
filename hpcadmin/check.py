"""What the author of a check needs: the records that a check declares, gets and returns.

A check is one file with a `CHECK = Check(...)`. It says how to measure (`steps`) and how to read what was
printed (`parse`); whether a value is good is decided elsewhere, from `Limit`s, peers and `expected`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from hpcadmin.errors import ParseError

__all__ = [
    "DERIVED", "Check", "Context", "Direction", "Impact", "JobRequest", "Layout", "Limit", "Measurement", "NodeView",
    "Output", "ParseError", "PortView", "Reading", "Ready", "Role", "Scope", "Status", "Step", "Subject", "Verdict",
    "Way",
]

Value = Union[float, int, str]
DERIVED = "derived:"     # how the source of a limit begins that was worked out from the hardware, and not published
Params = Mapping[str, Union[str, int, float, bool]]


class Status(str, Enum):
    """Verdict of a test. PASS is only for a parsed, judged value; unknown is never good."""

    PASS = "PASS"  # noqa: S105
    WARN = "WARN"
    UNJUDGED = "UNJUDGED"
    NOT_RUN = "NOT RUN"
    ERROR = "ERROR"
    FAIL = "FAIL"
    NOT_APPLICABLE = "not applicable"   # counts for nothing: nobody has that hardware, nobody expects it
    NOT_NEEDED = "not needed"           # counts for nothing: an alternative ran

    @property
    def counts(self) -> bool:
        return self not in (Status.NOT_APPLICABLE, Status.NOT_NEEDED)

    @property
    def rank(self) -> int:
        """Badness; of several verdicts the highest rank wins."""
        return _RANK[self]


_RANK = {
    Status.NOT_NEEDED: -2, Status.NOT_APPLICABLE: -1,
    Status.PASS: 0, Status.WARN: 1, Status.UNJUDGED: 2, Status.NOT_RUN: 3, Status.ERROR: 4, Status.FAIL: 5,
}


class Scope(str, Enum):
    NODE = "node"         # on each node by itself
    GPU = "gpu"           # on each GPU of each node
    PORT = "port"         # on each HCA port of each node
    PAIR = "pair"         # two nodes
    GROUP = "group"       # all nodes of a set together
    CLUSTER = "cluster"   # once


class Layout(str, Enum):
    """On which nodes and devices a check has its tests. A suite may choose among those that the check can do."""

    NODE = "node"           # each node by itself (perftest: from each of its ports to the next one)
    GPUS = "gpus"           # each GPU of each node
    PORTS = "ports"         # each port of each node; of pairs: each port once, with the same rail of another node
    LOOPBACK = "loopback"   # each port of each node with itself
    PAIRS = "pairs"         # two nodes, in rounds in which no node is in two pairs
    RAILS = "rails"         # for each rail: pairs in rounds, or one GPU and its port on each of all nodes
    GROUPS = "groups"       # the first 2, 4, 8, … nodes, then all: a small group that fails explains a large one
    LEAVES = "leaves"       # the nodes of each leaf switch, of each switch above, then all
    ALL = "all"             # all nodes together


class Impact(str, Enum):
    LIGHT = "light"
    LOAD = "load"
    DESTRUCTIVE = "destructive"


class Role(str, Enum):
    RANKS = "ranks"     # launched by srun with an MPI plug-in over all nodes of the step
    SERVER = "server"   # one task on the first node; must become ready before the client starts
    CLIENT = "client"   # one task on the second node, when the server is ready
    EACH = "each"       # one plain process on each node of the step
    JOB = "job"         # a batch job of its own, as a user would submit it, at the same time as the test's other jobs


class Direction(str, Enum):
    ONE_WAY = "one-way"
    BOTH = "both"
    NONE = ""


@dataclass(frozen=True)
class Subject:
    """What a value or a verdict is about: nodes, or a device on one node ("GPU 5", "mlx5_0/1")."""

    nodes: tuple[str, ...] = ()
    device: str = ""

    def __str__(self) -> str:
        name = " - ".join(self.nodes) if len(self.nodes) == 2 else ",".join(self.nodes)
        return f"{name} {self.device}".strip()


@dataclass(frozen=True)
class Ready:
    """When a server may be used: it listens on this TCP port, or has printed this text (whichever is given)."""

    port: int | None = None
    text: str | None = None
    timeout_s: float = 30.0


@dataclass(frozen=True)
class JobRequest:
    """What a step with role JOB asks of Slurm; its command is started once on each node of the job.

    cpus, gpus, memory_mib: on each node. anywhere: on so many nodes that Slurm chooses; 0: on the step's own nodes.
    near_gpus: only CPUs that Slurm knows to be near the GPUs; it then takes one core on each socket that they are near.
    """

    cpus: int = 1
    gpus: int = 0
    memory_mib: int = 100
    anywhere: int = 0
    near_gpus: bool = False


@dataclass(frozen=True)
class Way:
    """What a step's command needs around it so that its tool is found and starts. From site.toml's [tools] and what
    the nodes have; checks leave it alone."""

    modules: tuple[str, ...] = ()       # environment modules, loaded before
    folders: tuple[str, ...] = ()       # looked in after those of PATH: where the tool is on one node or another
    image: str = ""                     # container that the command runs in
    by: str = ""                        # what starts the container: "pyxis", "apptainer" (or singularity)


@dataclass(frozen=True)
class Step:
    """One thing to start: an argv (never a shell string) with the place and the time it gets.

    nodes: where it runs; empty means all nodes of the test. For SERVER and CLIENT exactly one node each.
    gpus_per_task: the step gets that many GPUs a node for each of its tasks there, and every task of a node sees all
    of them (GPUs reach each other over NVLink only then; nccl-tests takes the device of its local rank).
    under: what starts the command in its own process, as ("/usr/bin/numactl", "--cpunodebind=1").
    """

    argv: tuple[str, ...]
    role: Role = Role.EACH
    nodes: tuple[str, ...] = ()
    tasks_per_node: int = 1
    gpus_per_task: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Ready | None = None
    timeout_s: float = 60.0
    name: str = ""
    job: JobRequest | None = None
    under: tuple[str, ...] = ()
    way: Way = field(default_factory=Way)


@dataclass(frozen=True)
class PortView:
    """A port of an RDMA device, from the accepted inventory; "" and None where it is unknown."""

    device: str                         # mlx5_0
    port: int = 1
    link_layer: str = ""                # "InfiniBand", "Ethernet"
    rate_gbps: float | None = None
    state: str = ""                     # ACTIVE, DOWN, …
    netdev: str = ""
    pci: str = ""
    numa: int | None = None
    cpus: tuple[int, ...] = ()          # OS CPUs of that NUMA node
    rail: int | None = None             # by the GPUs that ports are nearest to; without GPUs, their order
    gpu: int | None = None              # index of the nearest GPU, the first of several
    gid_index: int | None = None        # RoCE: of the GID of version 2 that holds an IPv4 address

    @property
    def name(self) -> str:
        return f"{self.device}/{self.port}"

    @property
    def up(self) -> bool:
        """Whether it can be used, as far as is known."""
        return self.state in ("ACTIVE", "")


@dataclass(frozen=True)
class NodeView:
    """What a check may know of a node: from the accepted inventory, None where it is unknown."""

    name: str
    address: str = ""
    hostname: str = ""
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: int | None = None
    gpu_model: str = ""
    gpu_uuids: tuple[str, ...] = ()     # by GPU index
    gpu_pci: tuple[str, ...] = ()       # PCI addresses by GPU index
    gpu_files: tuple[str, ...] = ()     # device files in PCI bus order, the order of gres.conf; (): not all are known
    gpu_files_why: str = ""             # why there are none, when there are GPUs
    gpu_cpus: tuple[tuple[int, ...], ...] = ()   # OS CPUs near each of them, in the same order; (): not all are known
    rdma_devices: tuple[str, ...] = ()
    ports: tuple[PortView, ...] = ()    # of the RDMA devices, in their order
    gpu_numa: tuple[int | None, ...] = ()   # NUMA node by GPU index; (): not known of any
    simulated: str = ""                 # name of the hardware profile; "" on a real node


@dataclass(frozen=True)
class Context:
    """What `steps` and `parse` are given. Everything may be empty when a file is parsed without its run."""

    nodes: tuple[NodeView, ...] = ()
    params: Params = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)      # needed tool -> path on the nodes
    tool_version: str = ""                                      # what `probe` printed
    shared_dir: str = ""                                        # a directory that all nodes see
    ranks: int | None = None                                    # how many ranks the step had
    pairs_at_once: int = 1
    port_base: int = 18500                                      # a free range for servers of this test
    started: float | None = None                                # epoch seconds, client's clock

    layout: Layout | None = None                                # of this test; None: a file without its run
    rail: int | None = None                                     # the one that this test is about
    ports: tuple[PortView, ...] = ()                            # that this test is about: one a node, or server, client
    gpu: int | None = None                                      # index of the only GPU a node that this test is about
    device: str = ""                                            # the same in words: "rail 3", "mlx5_0/1", "GPU 2"

    @property
    def simulated(self) -> str:
        return next((n.simulated for n in self.nodes if n.simulated), "")

    @property
    def subject(self) -> Subject:
        """What the test is about as a whole."""
        return Subject(tuple(n.name for n in self.nodes), self.device)

    @property
    def rail_device(self) -> str:
        """What a measurement over one rail has as its rail: the device, as perftest names it."""
        return self.ports[0].device if self.layout is Layout.RAILS and self.ports else ""

    @property
    def rdma_expected(self) -> bool:
        """Whether messages between the nodes must go by RDMA: each of them has a port for it that is up. A suite says
        otherwise with rdma = "yes" or "no"."""
        said = self.param_str("rdma", "auto")
        if len(self.nodes) < 2 or self.simulated or said == "no":
            return False
        there = all(any(p.up for p in n.ports) if n.ports else n.rdma_devices for n in self.nodes)
        return there or said == "yes"

    def param_int(self, name: str, default: int) -> int:
        value = self.params.get(name, default)
        return int(value)

    def param_str(self, name: str, default: str) -> str:
        return str(self.params.get(name, default))


@dataclass(frozen=True)
class Output:
    """What one step printed and how it ended.

    exit_status None: it never ended by itself or was never seen to end. text: stdout and stderr as printed.
    when: "before" or "after" the load of the suite, of a check with again_after_load; else "".
    """

    text: str
    exit_status: int | None = 0
    role: Role = Role.EACH
    node: str = ""                   # the node (EACH, SERVER, CLIENT) or the first node of the step (RANKS)
    timed_out: bool = False
    truncated: bool = False
    started: float | None = None     # epoch seconds, clock of the node that ran it
    ended: float | None = None
    ref: str = ""                    # where the raw text lies in the run folder
    step: str = ""
    when: str = ""


@dataclass(frozen=True)
class Measurement:
    """One value with its unit and everything that decides which limit it may be compared with.

    expected: for facts that must be equal to something known (8 GPUs): judged by equality, needs no limit.
    """

    name: str
    value: Value
    unit: str = ""
    size_bytes: int | None = None
    direction: Direction = Direction.NONE
    subject: Subject = field(default_factory=Subject)
    ranks: int | None = None
    nodes: int | None = None
    pairs_at_once: int | None = None
    rail: str = ""
    binding: str = ""
    transport: str = ""
    mode: str = ""                   # "in-place", "out-of-place"; which of several columns
    run: int | None = None           # which of several runs in one text, from 1
    expected: Value | None = None
    key: bool = True                 # False: kept and shown, but needs no limit (a curve's other points, a version)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """All that one output of a tool tells, read by itself or with the context of its run.

    measurements: every value that stands there and may be believed, also where the output is not sound; never a value
    that was made up, and none of a row that is cut or contradicts itself.
    problems: each reason why the output is not whole, not sound or not what was asked for, one sentence with the words
    of the output; () is sound. usable: the values shown are whole and agree with each other although there are
    problems: then these are kept as warnings, and the best verdict is WARN.
    notes: worth saying, no fault ("2^20 bytes a MB").
    validated: whether the tool checked its data; None where it never does. wrong_values: how many it found wrong.
    ranks, hosts (how many), transport ("IB …", "RoCE …", "TCP …", "SHM …"): as the output proves them, None where it
    does not. runs: tables of one tool in the text.
    """

    measurements: tuple[Measurement, ...] = ()
    problems: tuple[str, ...] = ()
    usable: bool = False
    notes: tuple[str, ...] = ()
    validated: bool | None = None
    wrong_values: int | None = None
    ranks: int | None = None
    hosts: int | None = None
    host_names: tuple[str, ...] = ()
    transport: str | None = None
    runs: int = 1

    @property
    def sound(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Limit:
    """A bound for a measurement, with where it comes from. Empty fields match everything."""

    check: str
    measurement: str
    unit: str = ""
    min: float | None = None
    max: float | None = None
    size_bytes: int | None = None
    direction: Direction = Direction.NONE
    ranks: int | None = None
    nodes: int | None = None
    hardware: str = ""               # GPU model or NIC rate the limit is for, as a shell pattern; "" = any
    simulated: bool = False          # limits of real hardware never judge simulated values, nor the reverse
    tolerance: float = 0.0           # fraction
    source: str = ""
    date: str = ""
    site: bool = False               # of the site's own file: wins over the catalogue's
    transport: str = ""              # how the transport must begin ("IB", "RoCE", "EFA"); "" = any
    versions: str = ""               # software it was measured with, for the reader
    memory: str = ""                 # where the buffers lie: "host" or "GPU"; "" = any

    def text(self) -> str:
        parts = []
        if self.min is not None:
            parts.append(f"at least {self.min:g}")
        if self.max is not None:
            parts.append(f"at most {self.max:g}")
        slack = f" ({100 * self.tolerance:.3g}% tolerance)" if self.tolerance else ""
        return " ".join([" and ".join(parts), self.unit]).strip() + slack + (" (derived)" if self.derived else "")

    @property
    def derived(self) -> bool:
        """Worked out from the hardware that was found, where no limit is known."""
        return self.source.startswith(DERIVED)


@dataclass(frozen=True)
class Verdict:
    """What became of a test, or of one measurement of it. One line of verdicts.jsonl."""

    check: str
    subject: Subject
    status: Status
    reason: str = ""
    test: str = ""                               # id in plan.json
    measurement: Measurement | None = None
    limit: Limit | None = None
    basis: str = ""                              # limit, derived, peers, expected, output, plan
    attempt: int = 1
    outputs: tuple[str, ...] = ()                # raw outputs, as paths in the run folder
    simulated: str = ""


@dataclass(frozen=True)
class Check:
    """The declaration of a check.

    needs: hardware ("gpu", "rdma", "infiniband", "roce") and tools (names looked up on the nodes, or programs of
    ours in checks/src, which are built on the cluster); uses: tools that are looked for and that it can do without.
    probe: argv that prints the tool's version. steps raises nothing; parse raises ParseError when the outputs are not
    complete and sound.

    layouts: what its tests can be over, the first of them unless a suite says otherwise; () for what its scope says.

    again_after_load: for a check of nodes that reads counters. Where the suite puts the nodes under load, its steps run
    as the first thing of the suite's job and once more as the last one, as two tests. parse gets the outputs of the
    first by themselves (each has when="before"); for the second all of them: those of before, in the order of the
    steps, then those of after (when="after"). What is there before is not there when it could not be read: then the
    second is judged by itself. Measurements of the second are of the state after the load, and what has grown since:
        before = [o for o in outputs if o.when == "before"]
        now = [o for o in outputs if o.when == "after"] or outputs

    beside_load: for a check of nodes that looks at the GPUs while they work: it runs at the same time as the first load
    on all GPUs of its node.
    """

    name: str
    title: str
    scope: Scope
    steps: Callable[[Context], tuple[Step, ...]]
    parse: Callable[[Sequence[Output], Context], list[Measurement]]
    impact: Impact = Impact.LIGHT
    needs: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()                 # programs of ours in checks/src that are built with the site's mpicc
    probe: tuple[str, ...] = ()
    params: Params = field(default_factory=dict)
    seconds: float = 5.0                         # what one test usually takes, for the plan
    doc: str = ""
    read: Callable[[str, Context], Reading] | None = None   # one text of the tool, by itself
    layouts: tuple[Layout, ...] = ()
    uses: tuple[str, ...] = ()
    again_after_load: bool = False
    beside_load: bool = False

    @property
    def possible(self) -> tuple[Layout, ...]:
        """The layouts that a suite may choose from, the usual one first."""
        return self.layouts or (_USUAL[self.scope],)


_USUAL = {Scope.NODE: Layout.NODE, Scope.GPU: Layout.GPUS, Scope.PORT: Layout.PORTS, Scope.PAIR: Layout.PAIRS,
          Scope.GROUP: Layout.ALL, Scope.CLUSTER: Layout.ALL}

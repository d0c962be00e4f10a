"""Configurations and what real Slurm daemons make of them, version by version: the oracle's matrix, as data.

Every node is `vm`. `expected` is by (major, minor); what stands under 25.11 was seen once on 25.11.8 and is recorded,
the others are asked again whenever their Slurm is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Version = tuple[int, int]
V22, V24, V25, V26 = (22, 5), (24, 11), (25, 11), (26, 5)
RECORDED = (V25,)                        # not at hand as a package: recorded results

NODE, CONTROLLER = "vm", "proof"
H100 = "pack:2 core:56 pu:2"
A100 = "pack:2 numa:4 core:16 pu:2"
L3 = "pack:2 l3:8 core:8 pu:2"
SMALL = "pack:2 core:4 pu:1"
H100_LINE = "CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2"


@dataclass(frozen=True)
class Expected:
    """state: IDLE, INVAL (State has INVALID_REG), SLURMD (slurmd does not start), CTLD (slurmctld does not start).
    gres: Gres= of scontrol show node. says: texts that the logs or the Reason must have. silent: no error line."""

    state: str
    gres: str = ""
    says: tuple[str, ...] = ()
    reason: str | None = None            # None: not looked at; "": there is none
    silent: bool = False


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    line: str                            # what follows NodeName=vm
    gres: str
    cpus: str                            # HWLOC_SYNTHETIC
    expected: Mapping[Version, Expected]
    gpus: int = 8
    settings: Mapping[str, str] = field(default_factory=dict)
    amiss: bool = False                  # not as it is meant, also where the node registers
    files: Mapping[str, str] = field(default_factory=dict)      # further files, or others for cgroup.conf, …
    nodes: str = ""                      # further NodeName lines


def same(expected: Expected) -> dict[Version, Expected]:
    return dict.fromkeys((V22, V24, V25, V26), expected)


def from_24(before: Expected, after: Expected) -> dict[Version, Expected]:
    return {V22: before, V24: after, V25: after, V26: after}


def from_25(before: Expected, after: Expected) -> dict[Version, Expected]:
    return {V22: before, V24: before, V25: after, V26: after}


def gpus(kind: str, cores: tuple[str, ...], more: str = "", first: int = 0) -> str:
    """A line for each of these core lists; "" has no Cores=."""
    lines = []
    for place, own in enumerate(cores):
        words = [f"NodeName={NODE} AutoDetect=off Name=gpu"]
        words += [f"Type={kind}"] if kind else []
        words += [f"File=/dev/nvidia{first + place}"]
        words += [f"Cores={own}"] if own else []
        words += [more.replace("{links}", links(place, len(cores)))] if more else []
        lines.append(" ".join([*words, "Flags=nvidia_gpu_env"]))
    return "\n".join(lines) + "\n"


def links(place: int, count: int, number: int = 12) -> str:
    return ",".join("-1" if other == place else str(number) for other in range(count))


BOUNDARIES = "doesn't match socket boundaries"
NPS4 = ("48-63", "48-63", "16-31", "16-31", "112-127", "112-127", "80-95", "80-95")
HALVES = ("0-55",) * 4 + ("56-111",) * 4

CASES = (
    Case("A", "NUMA-level Cores with whole packages as sockets",
         "CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:8",
         gpus("a100", NPS4), A100,
         from_24(Expected("IDLE", "gpu:a100:8(S:0-1)", silent=True),
                 Expected("INVAL", says=(BOUNDARIES, "Socket 0 is cores 0-63")))),
    Case("B", "CPU ids of the OS as Cores",
         "CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:8",
         gpus("a100", ("0-63,128-191",) * 4 + ("64-127,192-255",) * 4), "pack:2 core:64 pu:2",
         {V22: Expected("IDLE", "gpu:a100:8", ("Invalid GRES data",)),
          V24: Expected("INVAL", reason="gres/gpu:a100 count too low (0 < 8)"), V25: Expected("INVAL", reason=""),
          V26: Expected("INVAL", reason="")}, amiss=True),
    Case("C", "L3 caches as sockets, GPUs near a whole package",
         "CPUs=256 Sockets=16 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:8",
         gpus("a100", ("0-63",) * 4 + ("64-127",) * 4), L3,
         from_25(Expected("IDLE", "gpu:a100:8(S:0-15)", silent=True), Expected("INVAL", says=(BOUNDARIES,))),
         settings={"SlurmdParameters": "l3cache_as_socket"}),
    Case("C2", "L3 caches as sockets, no Cores",
         "CPUs=256 Sockets=16 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:8",
         gpus("a100", ("",) * 8), L3, same(Expected("IDLE", "gpu:a100:8", silent=True)),
         settings={"SlurmdParameters": "l3cache_as_socket"}),
    Case("C3", "L3 caches as sockets, one for each GPU",
         "CPUs=256 Sockets=16 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:8",
         gpus("a100", tuple(f"{16 * n}-{16 * n + 7}" for n in range(8))), L3,
         same(Expected("IDLE", "gpu:a100:8(S:0,2,4,6,8,10,12,14)", silent=True)),
         settings={"SlurmdParameters": "l3cache_as_socket"}),
    Case("D", "Links longer than the node has GPUs", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:2",
         gpus("h100", ("0-55", "56-111"), "Links=-1,0,0,0"), H100,
         same(Expected("INVAL", says=("Invalid GRES Links value",))), gpus=2),
    Case("E", "Links without -1", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:2",
         gpus("h100", ("0-55", "56-111"), "Links=0,0"), H100,
         same(Expected("IDLE", "gpu:h100:2(S:0-1)", ("Ignoring invalid Links=0,0",))), amiss=True, gpus=2),
    Case("F", "other types in slurm.conf and gres.conf", f"{H100_LINE} RealMemory=1000 Gres=gpu:a100:2",
         gpus("h100", ("0-55", "56-111")), H100,
         same(Expected("INVAL", says=("count reported lower than configured (0 < 2)",))), gpus=2),
    Case("G", "eight sockets without numa_node_as_socket",
         "CPUs=256 Sockets=8 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:8",
         gpus("a100", NPS4), A100,
         {V22: Expected("IDLE", "gpu:a100:8(S:0-1)", silent=True),
          V24: Expected("INVAL", says=(BOUNDARIES, "Socket 0 is cores 0-63")),
          **dict.fromkeys((V25, V26), Expected("IDLE", "gpu:a100:8(S:1,3,5,7)",
                                               ("Node configuration differs from hardware",)))}, amiss=True),
    Case("K", "typed in slurm.conf alone", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:2", gpus("", ("0-55", "56-111")),
         H100, same(Expected("INVAL", says=("count reported lower than configured (0 < 2)",))), gpus=2),
    Case("K2", "typed in gres.conf alone", f"{H100_LINE} RealMemory=1000 Gres=gpu:2", gpus("h100", ("0-55", "56-111")),
         H100, same(Expected("IDLE", "gpu:2(S:0-1)")), amiss=True, gpus=2),
    Case("L", "seven of eight GPUs", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:8", gpus("h100", HALVES[:7]), H100,
         same(Expected("INVAL", says=("count reported lower than configured (7 < 8)",)))),
    Case("L2", "eight of seven GPUs", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:7", gpus("h100", HALVES), H100,
         same(Expected("IDLE", "gpu:h100:7(S:0-1)")), amiss=True),
    Case("Q", "ThreadsPerCore=1 on cores with two threads",
         "CPUs=112 Sockets=2 CoresPerSocket=56 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:h100:8", gpus("h100", HALVES),
         H100, same(Expected("IDLE", "gpu:h100:8(S:0-1)", ("Node configuration differs from hardware",))), amiss=True),
    Case("R2", "CPUs that are no product", "CPUs=100 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=1000 "
         "Gres=gpu:h100:8", gpus("h100", HALVES), H100,
         same(Expected("IDLE", "gpu:h100:8(S:0-1)", ("match no Sockets, Sockets*CoresPerSocket",))), amiss=True),
    Case("R3", "CPUs alone", "CPUs=224 RealMemory=1000 Gres=gpu:h100:8", gpus("h100", HALVES), H100,
         from_25(Expected("IDLE", "gpu:h100:8(S:0-111)"), Expected("INVAL", says=("Socket 0 is cores 0-0",))),
         amiss=True),
    Case("S", "more memory than there is", f"{H100_LINE} RealMemory=999999 Gres=gpu:h100:8", gpus("h100", HALVES), H100,
         same(Expected("INVAL", says=("Low RealMemory",)))),
    Case("S2", "four sockets of two cores where there are two of four",
         "CPUs=8 Sockets=4 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000", "", SMALL,
         from_25(Expected("IDLE", silent=True), Expected("IDLE", says=("Node configuration differs from hardware",))),
         amiss=True, gpus=0),
    Case("S3", "more cores than there are", "CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000", "",
         SMALL, same(Expected("INVAL", says=("Low socket*core*thread count", "Low CPUs"))), gpus=0),
    Case("T", "one device file twice", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:2",
         gpus("h100", ("0-55",)) + gpus("h100", ("0-55",)), H100,
         same(Expected("SLURMD", says=("duplicate device file name",))), gpus=2),
    Case("V", "a device file that is not there", f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:2",
         gpus("h100", ("0-55",)) + gpus("h100", ("0-55",), first=9), H100,
         same(Expected("SLURMD", says=("aiting for gres.conf file /dev/nvidia9", "can't stat gres.conf file"))),
         gpus=2),
    Case("X", "half of a socket", "CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:t4:1",
         gpus("t4", ("0-1",)), SMALL,
         from_24(Expected("IDLE", "gpu:t4:1(S:0)", silent=True), Expected("INVAL", says=(BOUNDARIES,))), gpus=1),
)


def conf(case: Case) -> dict[str, str]:
    """The files of a case. What needs control groups is left out: it has no part in these questions."""
    settings = {
        "ClusterName": "oracle", "SlurmctldHost": CONTROLLER, "SlurmUser": "root", "AuthType": "auth/munge",
        "StateSaveLocation": "/var/spool/slurmctld", "SlurmdSpoolDir": "/var/spool/slurmd", "SlurmdDebug": "verbose",
        "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core", "GresTypes": "gpu", "MailProg": "/bin/true", **case.settings,
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items() if value)
    nodes = f"NodeName={NODE} {case.line} State=UNKNOWN\n" + case.nodes
    files = {"slurm.conf": f"{text}{nodes}PartitionName=main Nodes=ALL Default=YES State=UP\n", **case.files}
    if case.gres:
        files["gres.conf"] = case.gres
    return files


def severity(case: Case, version: Version) -> str:
    """What a judge of these files must find as the worst: FATAL, INVALID, WRONG; "" for nothing above a note."""
    expected = case.expected[version]
    if expected.state in ("CTLD", "SLURMD"):
        return "FATAL"
    return "INVALID" if expected.state == "INVAL" else "WRONG" if case.amiss else ""

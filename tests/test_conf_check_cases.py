"""Faults that people reported of their clusters, each as a small configuration or text: what conf check says of it.

The numbers are those of the list of user reports. Cases about tools, jobs or drivers, of which no file tells anything,
are in NOT_OF_FILES with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import conf_models as models
import pytest
from conf_checks import CGROUP, HEAD, NEW, OLD, above, files, findings, known, machine, told, two_gpus, with_types
from looped import looped

from hpcadmin.cli._conf_check import Asked, checked
from hpcadmin.cli._conf_check_text import shown
from hpcadmin.conf.check.finding import Severity
from hpcadmin.model import Inventory, Node
from hpcadmin.site import Site

NOT_OF_FILES = {
    4: "a text, below", 8: "a text, in the corpus", 18: "a wish: the inventory does it", 34: "monitoring by minor",
    35: "minors change over reboots: order, below (34)", 36: "as 50", 37: "monitoring by minor",
    39: "a job's view, no fault", 40: "the inventory refuses such a node", 41: "a library's name: the driver",
    43: "as 15", 45: "printed forms of Gres, read by the parsers of states", 48: "order and Cores, as 34 and 1",
}


def gpu_lines(count: int, *parts: str, kind: str = "a100", hosts: str = "vm", flags: str = "nvidia_gpu_env") -> str:
    each = parts if len(parts) == count else [parts[0] if parts else ""] * count
    return "\n".join(f"NodeName={hosts} Name=gpu {f'Type={kind} ' if kind else ''}File=/dev/nvidia{n} {part} "
                     f"Flags={flags}" for n, part in enumerate(each))


def node(gres: str = "", counts: str = "CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2", memory: int = 1000,
         more: str = "", name: str = "vm") -> str:
    return f"NodeName={name} {counts} RealMemory={memory} {f'Gres={gres} ' if gres else ''}{more}".rstrip()


@dataclass(frozen=True)
class Case:
    number: int
    rule: str
    severity: Severity
    says: str
    nodes: str
    gres: str = ""
    right: str = ""
    head: str = HEAD
    cgroup: str = CGROUP
    versions: tuple[tuple[int, int], ...] = (NEW,)
    machines: Inventory | None = None
    more: dict[str, str] = field(default_factory=dict)


def one(hardware: Node) -> Inventory:
    return known(hardware)


A100 = models.cpu(2, 64)
FATAL, INVALID, WRONG, NOTE, DRIFT = Severity.FATAL, Severity.INVALID, Severity.WRONG, Severity.NOTE, Severity.DRIFT
CASES = (
    Case(1, "cores.beyond", INVALID, "48-63 are meant", node("gpu:a100:1"), gpu_lines(1, "CPUs=48-63,176-191"),
         "CPUs=48-63"),
    Case(1, "cores.boundary", INVALID, "NUMA nodes as sockets", node("gpu:a100:1"), gpu_lines(1, "Cores=48-63"),
         "NodeName=vm CPUs=256 Sockets=8 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:1 "
         "Parameters=numa_node_as_socket"),
    Case(2, "gres.links", WRONG, "an element is empty", node("gpu:a100:8"),
         gpu_lines(8, *["Links=0,0,-1,,0,0,0,0"] * 8)),
    Case(2, "gres.links_length", INVALID, "has 9 numbers", node("gpu:a100:8"),
         gpu_lines(8, *["Links=0,0,-1,,0,0,0,0,0"] * 8)),
    Case(2, "counts.detected_types", INVALID, "nvidia_a100-sxm4-40gb", node("gpu:a1000:2"), "AutoDetect=nvml",
         "NodeName=vm CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1000 "
         "Gres=gpu:nvidia_a100-sxm4-40gb:2", machines=one(machine(A100, two_gpus(A100)))),
    Case(3, "autodetect.library", INVALID, "AutoDetect=nvml", node("gpu:a100:2"), "AutoDetect=nvml",
         machines=one(replace(machine(A100, two_gpus(A100)), tools={"gpu_nvml.so": ""}))),
    Case(5, "gres.no_files", INVALID, "without File=", node("gpu:rtx3090:1"), "NodeName=vm Name=gpu Type=rtx3090"),
    Case(6, "counts.mismatch", INVALID, "(3 < 4)", node("gpu:a100:4"), gpu_lines(3)),
    Case(7, "gres.some_do", FATAL, "nothing tells apart", node("gpu:2"), "AutoDetect=nvml\nName=gpu\nName=gpu"),
    Case(9, "gres.devices_missing", FATAL, "/dev/nvidia2 does not exist", node("gpu:a100:3"), gpu_lines(3),
         machines=one(machine(A100, two_gpus(A100)))),
    Case(10, "nodes.memory_held_back", WRONG, "nothing is held back", node(memory=12000), head=HEAD.replace(
        "CR_Core_Memory", "CR_Core").replace("DefMemPerCPU=10\n", ""), right="SelectTypeParameters=CR_Core_Memory",
         machines=one(machine(A100, memory=16036))),
    Case(11, "cores.boundary", INVALID, "Socket 0 is cores 0-31", node("gpu:a100:1", "Sockets=2 CoresPerSocket=32"),
         gpu_lines(1, "Cores=0-15")),
    Case(12, "counts.grammar", WRONG, 'type "8"', node("gpu:8:1"), "AutoDetect=rsmi"),
    Case(12, "autodetect.unknown", INVALID, "rsmi is meant", node("gpu:8"), "AutoDetect=amdgpu", "AutoDetect=rsmi"),
    Case(13, "counts.detected_types", INVALID, "nvidia_h100_80gb_hbm3", node("gpu:hopper:8"), "AutoDetect=nvidia",
         machines=one(machine(A100, with_types(two_gpus(A100), *["NVIDIA H100 80GB HBM3"] * 2)))),
    Case(14, "drift.memory", INVALID, "64000", node(memory=64000), machines=one(machine(A100, memory=63622))),
    Case(15, "nodes.only_cpus", WRONG, "192 sockets of one core", "NodeName=vm CPUs=192 RealMemory=1000",
         right="NodeName=vm CPUs=192 RealMemory=1000 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2",
         machines=one(machine(models.cpu(2, 48)))),
    Case(16, "nodes.only_cpus", WRONG, "16 sockets of one core", "NodeName=vm CPUs=16 RealMemory=1000",
         right="NodeName=vm CPUs=16 RealMemory=1000 Sockets=1 CoresPerSocket=8 ThreadsPerCore=2",
         machines=one(machine(models.cpu(1, 8)))),
    Case(17, "drift.cpus", WRONG, "Sockets=96", node(counts="Sockets=96"), machines=one(machine(models.cpu(4, 24, 1)))),
    Case(19, "drift.memory", INVALID, "443596", node(memory=443596), machines=one(machine(A100, memory=435161))),
    Case(20, "drift.cpus", DRIFT, "CoresPerSocket=4", node(counts="CPUs=4 Sockets=2 CoresPerSocket=1 ThreadsPerCore=2"),
         machines=one(machine(models.cpu(1, 4)))),
    Case(21, "nodes.cpus_are_cores", NOTE, "cores are scheduled", node(
        counts="CPUs=48 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2")),
    Case(22, "counts.no_gres", WRONG, "no such Gres=", "NodeName=c1 CPUs=4 Sockets=1 CoresPerSocket=4 RealMemory=1000\n"
         + node("gpu:1"), "NodeName=c1,vm Name=gpu File=/dev/nvidia0 Flags=nvidia_gpu_env"),
    Case(23, "drift.memory", INVALID, "104000", node(memory=104000), machines=one(machine(A100, memory=98000))),
    Case(24, "drift.memory", INVALID, "16037", node(memory=16037), machines=one(machine(A100, memory=16036))),
    Case(25, "drift.memory", NOTE, "", node(memory=63600), machines=one(machine(A100, memory=63622))),
    Case(26, "drift.memory", INVALID, "128516", node(memory=128516), machines=one(machine(A100, memory=128515))),
    Case(27, "drift.memory", INVALID, "131072", node(memory=131072), machines=one(machine(A100, memory=128813))),
    Case(29, "drift.cpus", DRIFT, "ThreadsPerCore", node(counts="CPUs=4 Sockets=1 CoresPerSocket=4"),
         machines=one(machine(models.cpu(1, 4)))),
    Case(30, "nodes.cpus_product", WRONG, "CPUs=208", node(counts="CPUs=208 Boards=1 Sockets=2 ThreadsPerCore=2")),
    Case(31, "drift.cpus", INVALID, "CoresPerSocket=18", node(
        counts="CPUs=288 Sockets=2 CoresPerSocket=72 ThreadsPerCore=2"),
         machines=one(machine(models.cpu(2, 18)))),
    Case(32, "nodes.threads_off", WRONG, "ThreadsPerCore=1", node(
        counts="CPUs=44 Sockets=2 CoresPerSocket=22 ThreadsPerCore=1"), machines=one(machine(models.cpu(2, 22)))),
    Case(33, "nodes.threads_off", WRONG, "the nodes have 2", node(
        counts="CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1"), machines=one(machine(models.cpu(1, 2)))),
    Case(38, "cores.boundary", INVALID, "64 cores", node("gpu:a100:1"), gpu_lines(1, "Cores=0-13")),
    Case(42, "autodetect.library", INVALID, "AutoDetect=rsmi", node("gpu:1"), "AutoDetect=rsmi",
         machines=one(replace(machine(A100, two_gpus(A100)), tools={"gpu_rsmi.so": ""}))),
    Case(44, "cores.beyond", INVALID, "0-7", node("gpu:b200:1", "CPUs=16 Sockets=1 CoresPerSocket=8 ThreadsPerCore=2"),
         gpu_lines(1, "Cores=0-39", kind="b200")),
    Case(44, "gres.links_length", INVALID, "has 8 numbers", node("gpu:b200:1"),
         gpu_lines(1, "Links=-1,1,1,1,1,1,1,1", kind="b200")),
    Case(46, "settings.accounted", WRONG, "does not name gres/gpu", node("gpu:a100:1"), gpu_lines(1), head=HEAD.replace(
        "AccountingStorageTRES=gres/gpu\n", ""),
         right="AccountingStorageTRES=gres/gpu,gres/gpu:a100"),
    Case(47, "versions.keys", FATAL, "ConstrainKmemSpace", node(), cgroup=CGROUP + "ConstrainKmemSpace=no\n",
         versions=((23, 11),)),
    Case(49, "drift.cpus", WRONG, "Sockets=8", node(counts="CPUs=256 Sockets=8 CoresPerSocket=16 ThreadsPerCore=2"),
         machines=one(machine(A100))),
    Case(49, "drift.cpus", WRONG, "Sockets=4", node(counts="Sockets=4 CoresPerSocket=2"),
         machines=one(machine(models.cpu(2, 4, 1)))),
    Case(50, "mixed.regrouped", WRONG, "--gres=gpu:a5000:1 for /dev/nvidia1 gets CUDA_VISIBLE_DEVICES=2, which is "
         "/dev/nvidia2 of type p100", node("gpu:p100:2,gpu:a5000:1"),
         "\n".join(f"NodeName=vm Name=gpu Type={kind} File=/dev/nvidia{n} Flags=nvidia_gpu_env"
                   for n, kind in enumerate(("p100", "a5000", "p100"))), cgroup=CGROUP.replace("Devices=yes",
                                                                                               "Devices=no")),
)


@looped("case", CASES, ids=lambda case: f"{case.number}-{case.rule}")
def test_report(case: Case) -> None:
    texts = files(case.nodes, case.gres, head=case.head, cgroup=case.cgroup, **case.more)
    found = findings(texts, *case.versions, machines=case.machines)
    mine = [f for f in found if f.rule == case.rule and case.says in f"{f.what} {f.means} {f.right}"]
    if case.severity is NOTE and not case.says:
        assert not above(found), told(found)
        return
    assert mine and mine[0].severity is case.severity, told(found)
    assert mine[0].place is not None and mine[0].place.line > 0
    assert any(case.right in line for line in mine[0].right) if case.right else True, mine[0].right


def test_minor_and_index_of_uneven_boxes() -> None:
    """34: /dev/nvidia0 is GPU 6 of the bus, /dev/nvidia4 is GPU 0."""
    cpu = models.cpu(2, 64)
    gpus = models.gpus("NVIDIA A100-SXM4-40GB", cpu, [0] * 8, [4, 5, 6, 7, 2, 3, 0, 1])
    inventory = known(machine(cpu, gpus))
    confined = findings(files(node("gpu:a100:8"), gpu_lines(8)), machines=inventory)
    assert [f.severity for f in confined if f.rule == "mixed.bus_order_of_lines"] == [NOTE]
    free = [f for f in findings(files(node("gpu:a100:8"), gpu_lines(8), cgroup=CGROUP.replace("Devices=yes",
                                                                                             "Devices=no")),
                                machines=inventory) if f.rule == "mixed.bus_order_of_lines"]
    assert free[0].severity is WRONG
    assert "a job that gets /dev/nvidia0 is told CUDA_VISIBLE_DEVICES=0, which is /dev/nvidia4" in free[0].means
    right = "\n".join(line for line in free[0].right)
    assert not [f for f in findings(files(node("gpu:a100:8"), right), machines=inventory)
                if f.rule == "mixed.bus_order_of_lines"], right


TEXTS = {
    4: ("Reason=gres/gpu count reported lower than configured (0 < 8)", "INVALID"),
    28: ("error: Node n1 has low real_memory size (7600 < 7782)", "WRONG|INVALID|DRIFT"),
    3: ("fatal: We were configured to autodetect nvml functionality, but we weren't able to find that lib when Slurm "
        "was configured", "FATAL"),
}


@pytest.mark.parametrize("number", sorted(TEXTS))
def test_reports_that_are_messages(number: int, tmp_path: Path) -> None:
    text, severity = TEXTS[number]
    path = tmp_path / "mail.txt"
    path.write_text(f"Hello,\n{text}\n")
    done = checked([str(path)], Site(), Asked())
    assert done.status == 1
    assert any(f"{path}:2: {each}: " in shown(done) for each in severity.split("|")), shown(done)


def test_every_report_has_its_case() -> None:
    named = {case.number for case in CASES} | set(NOT_OF_FILES) | set(TEXTS) | {34}
    assert named == set(range(1, 51))
    assert OLD < NEW

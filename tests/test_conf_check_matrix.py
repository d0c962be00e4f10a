"""What real daemons answered, case by case, on 22.05.8 and 25.11.8: the same from the files alone (or with the
hardware, where only that tells)."""

from __future__ import annotations

from dataclasses import dataclass

import conf_models as models
import pytest
from conf_checks import HEAD, NEW, OLD, above, files, findings, known, machine, told, two_gpus
from looped import looped

from hpcadmin.conf.check.finding import Severity
from hpcadmin.model import Inventory

WIDE = "NodeName=vm CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:2"
L3 = "NodeName=vm CPUs=256 Sockets=16 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:2"
FOUR = "NodeName=vm CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=1000"
PARAMETERS = "SlurmdParameters=l3cache_as_socket\n"
IDLE, INVALID, WRONG, FATAL = None, Severity.INVALID, Severity.WRONG, Severity.FATAL


def gres(*parts: str, kind: str = "Type=a100 ") -> str:
    return "\n".join(f"NodeName=vm Name=gpu {kind}File=/dev/nvidia{n} {part} Flags=nvidia_gpu_env"
                     for n, part in enumerate(parts))


@dataclass(frozen=True)
class Case:
    """old, new: the worst that is to be found for 22.05 and 25.11; None is nothing above NOTE. says: in its text."""

    name: str
    nodes: str
    gres: str
    old: Severity | None
    new: Severity | None
    says: str = ""
    head: str = ""
    machines: Inventory | None = None


WIDE_CPU = models.cpu(2, 64)
BOX = machine(models.cpu(2, 64), memory=500000)
SMALL = machine(models.cpu(2, 4, 1), memory=24105)
CASES = (
    Case("A", WIDE, gres("Cores=48-63", "Cores=48-63"), IDLE, INVALID, "socket boundaries (Socket 0 is cores 0-63)"),
    Case("B", WIDE, gres("Cores=0-63,128-191", "Cores=0-63,128-191"), WRONG, INVALID, "0-63 are meant"),
    Case("C", L3, gres("Cores=0-63", "Cores=64-127"), IDLE, INVALID, "one socket of 8 cores", PARAMETERS),
    Case("C2", L3, gres("", ""), IDLE, IDLE, "", PARAMETERS),
    Case("C3", L3, gres("Cores=0-7", "Cores=16-23"), IDLE, IDLE, "", PARAMETERS),
    Case("D", WIDE, gres("Links=-1,0,0,0", "Links=0,-1,0,0"), INVALID, INVALID, "has 4 numbers, the node has 2 GPUs"),
    Case("E", WIDE, gres("Links=0,0", "Links=0,0"), WRONG, WRONG, "not exactly one -1"),
    Case("F", WIDE, gres("", "", kind="Type=h100 "), INVALID, INVALID, "(0 < 2)"),
    Case("G", WIDE.replace("Sockets=2 CoresPerSocket=64", "Sockets=8 CoresPerSocket=16"), gres("", ""), WRONG, WRONG,
         "Sockets=2 CoresPerSocket=64", machines=known(machine(WIDE_CPU, two_gpus(WIDE_CPU), 500000))),
    Case("K", WIDE, gres("", "", kind=""), INVALID, INVALID, "(0 < 2)"),
    Case("K2", WIDE.replace("gpu:a100:2", "gpu:2"), gres("", ""), WRONG, WRONG, "drops the types"),
    Case("L less", WIDE.replace(":2", ":3"), gres("", ""), INVALID, INVALID, "(2 < 3)"),
    Case("L more", WIDE.replace(":2", ":1"), gres("", ""), WRONG, WRONG, "does not use the rest"),
    Case("Q", "NodeName=vm CPUs=128 Sockets=2 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=1000", "", WRONG, WRONG,
         "the nodes have 2", machines=known(BOX)),
    Case("R2", WIDE.replace("CPUs=256", "CPUs=100"), gres("", ""), WRONG, WRONG, "resets CPUs to 256"),
    Case("R3", "NodeName=vm CPUs=224 RealMemory=1000 Gres=gpu:a100:2", gres("Cores=0-55", "Cores=56-111"), WRONG,
         INVALID, "CPUs=224 without Sockets="),
    Case("S", WIDE.replace("RealMemory=1000", "RealMemory=999999"), gres("", ""), INVALID, INVALID, "999999",
         machines=known(machine(models.cpu(2, 64), two_gpus(models.cpu(2, 64)), 24105))),
    Case("S3", "NodeName=vm Sockets=2 CoresPerSocket=8 RealMemory=1000", "", INVALID, INVALID, "",
         machines=known(SMALL)),
    Case("T", WIDE, "NodeName=vm Name=gpu Type=a100 File=/dev/nvidia0\nNodeName=vm Name=gpu Type=a100 "
         "File=/dev/nvidia0", FATAL, FATAL, "/dev/nvidia0 is named twice"),
    Case("V", WIDE, gres("", "").replace("nvidia1", "nvidia9"), FATAL, FATAL, "/dev/nvidia9 does not exist",
         machines=known(machine(models.cpu(2, 64), two_gpus(models.cpu(2, 64)), 500000))),
    Case("X", FOUR + " Gres=gpu:a100:2", gres("Cores=0-1", "Cores=4-7"), IDLE, INVALID, "Socket 0 is cores 0-3"),
)


@looped("case", CASES, ids=lambda case: case.name)
@looped("version", [OLD, NEW], ids=["22.05", "25.11"])
def test_severity_is_what_the_daemons_did(case: Case, version: tuple[int, int]) -> None:
    wanted = case.old if version == OLD else case.new
    found = above(findings(files(case.nodes, case.gres, head=HEAD + case.head), version, machines=case.machines))
    worst = found[0].severity if found else None
    assert worst is wanted, told(found)
    if wanted is not None:
        assert case.says in told(found), told(found)


@pytest.mark.parametrize("case", [c for c in CASES if c.old is None and c.new is not None], ids=lambda case: case.name)
def test_what_the_old_version_takes_is_a_note_and_a_finding_for_the_target(case: Case) -> None:
    texts = files(case.nodes, case.gres, head=HEAD + case.head)
    notes = findings(texts, OLD)
    assert any("upgrade would drain the node" in f.means for f in notes), told(notes)
    both = above(findings(texts, OLD, NEW))
    assert not above(findings(texts, OLD))
    assert [f.versions for f in both] == [((25, 11),)] * len(both) and both, told(both)

"""Small configurations and machines for the tests of conf check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import conf_models as models

from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.run import judge
from hpcadmin.conf.existing.read import configure
from hpcadmin.model import Cpu, Gpu, Inventory, Node

OLD, NEW = (22, 5), (25, 11)
HEAD = """ClusterName=c
SlurmctldHost=head
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=10
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
PrologFlags=Contain
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/gpu
"""
PARTITION = "PartitionName=p Nodes=ALL Default=YES State=UP\n"
CGROUP = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"


def files(nodes: str = "NodeName=vm CPUs=4 Sockets=1 CoresPerSocket=4 RealMemory=1000", gres: str = "", *,
          head: str = HEAD, partition: str = PARTITION, cgroup: str = CGROUP, **more: str) -> dict[str, str]:
    """A sound folder but for what is given. more: other files, their dots as underscores."""
    found = {"slurm.conf": f"{head}{nodes}\n{partition}", "cgroup.conf": cgroup}
    if gres:
        found["gres.conf"] = f"{gres.strip()}\n"
    return {**found, **{name.replace("_", "."): text for name, text in more.items()}}


def findings(texts: Mapping[str, str], *versions: tuple[int, int], machines: Inventory | None = None,
             **situation: object) -> tuple[Finding, ...]:
    return judge(Situation(configure(texts), versions, machines, **situation), strict=True).findings


def above(found: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is not Severity.NOTE]


def told(found: Iterable[Finding]) -> str:
    return "\n".join(f"{f.place}: {f.severity.value} {f.rule}: {f.what} | {f.means} | {' / '.join(f.right)}"
                     for f in found)


def machine(cpu: Cpu, gpus: tuple[Gpu, ...] = (), memory: int = 257000) -> Node:
    return Node("", cpu=cpu, memory_mib=memory, real_memory_mib=memory, gpus=gpus)


def known(node: Node, *names: str) -> Inventory:
    return models.inventory((list(names) or ["vm"], node), version="")


def two_gpus(cpu: Cpu, numa: tuple[int, int] = (0, 0)) -> tuple[Gpu, ...]:
    return models.gpus("NVIDIA A100-SXM4-40GB", cpu, list(numa))


def with_types(gpus: tuple[Gpu, ...], *names: str) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, model=name) for gpu, name in zip(gpus, names, strict=True))

"""Which nodes a run tests: what was asked for, what Slurm has, and why a node is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.hosts import expand, fold
from hpcadmin.rundata import SkippedNode
from hpcadmin.slurm.client import Partition, SlurmNode


@dataclass(frozen=True)
class Selection:
    asked: tuple[str, ...]
    nodes: tuple[SlurmNode, ...]            # to be tested, in the order of slurm.conf: ranks come in that order
    skipped: tuple[SkippedNode, ...]
    partition: Partition


def choose_partition(partitions: Sequence[Partition], wanted: str) -> Partition:
    """The named one, else Slurm's default. Raises UsageError for an unknown one, SlurmError for one that is not up."""
    names = ", ".join(p.name for p in partitions)
    if wanted:
        found = next((p for p in partitions if p.name == wanted), None)
        if found is None:
            raise UsageError(f"there is no partition {wanted!r}", hint=f"Slurm has {names or 'none'}")
    else:
        found = next((p for p in partitions if p.default), None)
        if found is None:
            raise UsageError("Slurm has no default partition", hint=f"--partition NAME; there are {names or 'none'}")
    if found.state != "UP":
        raise SlurmError(f"partition {found.name} is {found.state or 'in an unknown state'}",
                         hint=f"scontrol update PartitionName={found.name} State=UP, or another --partition")
    return found


def select(all_nodes: Sequence[SlurmNode], partitions: Sequence[Partition], partition: str, hostlist: str) -> Selection:
    """Raises UsageError when nothing that was asked for is a node that can be tested in principle."""
    part = choose_partition(partitions, partition)
    inside = {n.name: n for n in all_nodes if part.name in n.partitions}
    known = {n.name for n in all_nodes}
    asked = tuple(expand(hostlist)) if hostlist else tuple(inside)
    if not asked:
        raise UsageError(f"partition {part.name} has no nodes")
    wanted = set(asked)
    strangers = [n for n in asked if n not in inside]
    if len(strangers) == len(asked):
        what = "is no node of this Slurm" if not any(n in known for n in asked) else f"is not in partition {part.name}"
        raise UsageError(f"{fold(asked)} {what}", hint="sinfo -N lists them")
    skipped = [SkippedNode(n, f"not in partition {part.name}" if n in known else "Slurm has no node of that name")
               for n in strangers]
    nodes = []
    for node in inside.values():
        if node.name in wanted:
            why = node.state.unusable
            if why:
                skipped.append(SkippedNode(node.name, f"{why}: {node.reason}" if node.reason else why))
            else:
                nodes.append(node)
    return Selection(asked, tuple(nodes), tuple(skipped), part)

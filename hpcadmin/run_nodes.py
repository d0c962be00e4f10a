"""Which nodes a run tests: what was asked for, what Slurm has, and why a node is left out."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.hosts import expand, fold
from hpcadmin.rundata import SkippedNode
from hpcadmin.slurm.client import Client, Partition, SlurmNode
from hpcadmin.text import plural

WAIT_FOR_S = 7200.0
STARTED_S, STARTED_EVERY_S = 30.0, 2.0      # that nodes get to say what they are to a slurmctld that was just started


@dataclass(frozen=True)
class Rules:
    """What becomes of nodes on which no job of ours can begin at once. reserved: our jobs are in a reservation."""

    only_idle: bool = False                 # busy ones are NOT RUN
    down_is_error: bool = False             # ones that no job can use end the run before it begins; else NOT RUN
    reserved: bool = False


@dataclass(frozen=True)
class Selection:
    asked: tuple[str, ...]
    nodes: tuple[SlurmNode, ...]            # to be tested, in the order of slurm.conf: ranks come in that order
    skipped: tuple[SkippedNode, ...]
    partition: Partition
    busy: Mapping[str, str] = field(default_factory=dict)     # of `nodes`: why no job can begin there at once


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


def select(all_nodes: Sequence[SlurmNode], partitions: Sequence[Partition], partition: str, hostlist: str,
           rules: Rules = Rules()) -> Selection:
    """Raises UsageError when nothing that was asked for is a node that can be tested in principle, SlurmError when
    the rules forbid to leave one out."""
    part = choose_partition(partitions, partition)
    inside = {n.name: n for n in all_nodes if part.name in n.partitions}
    asked, skipped = _asked(inside, {n.name for n in all_nodes}, part, hostlist)
    wanted = set(asked)
    nodes, down, busy = [], [], {}
    for node in (n for n in inside.values() if n.name in wanted):
        why, what = node.state.unusable_within(rules.reserved), node.state.busy_for(rules.reserved)
        if why:
            down.append(SkippedNode(node.name, f"{why}: {node.reason}" if node.reason else why))
        elif what and rules.only_idle:
            skipped.append(SkippedNode(node.name, f"busy: {what} (--only-idle)"))
        else:
            nodes.append(node)
            if what:
                busy[node.name] = what
    if down and rules.down_is_error:
        first = "; ".join(f"{s.node}: {s.reason}" for s in down[:3])
        raise SlurmError(f"{plural(len(down), 'node')} cannot be used: {fold([s.node for s in down])} ({first})",
                         hint="--nodes-down skip tests the others, and these are NOT RUN")
    return Selection(asked, tuple(nodes), (*skipped, *down), part, busy)


def _asked(inside: Collection[str], known: Collection[str], part: Partition,
           hostlist: str) -> tuple[tuple[str, ...], list[SkippedNode]]:
    """The nodes that were asked for, and which of them are none of the partition's."""
    asked = tuple(expand(hostlist)) if hostlist else tuple(inside)
    if not asked:
        raise UsageError(f"partition {part.name} has no nodes")
    strangers = [n for n in asked if n not in inside]
    if len(strangers) == len(asked):
        what = "is no node of this Slurm" if not any(n in known for n in asked) else f"is not in partition {part.name}"
        raise UsageError(f"{fold(asked)} {what}", hint="sinfo -N lists them")
    return asked, [SkippedNode(n, f"not in partition {part.name}" if n in known else "Slurm has no node of that name")
                   for n in strangers]


def nodes_now(client: Client) -> tuple[SlurmNode, ...]:
    """All nodes. A slurmctld that has just been started does not know for some seconds what they are: then it is asked
    again. Raises SlurmError when it does not answer."""
    end = time.monotonic() + STARTED_S
    while True:
        nodes = client.nodes()
        unknown = any(n.state.base == "UNKNOWN" and "NOT_RESPONDING" not in n.state.flags for n in nodes)
        if not unknown or time.monotonic() >= end:
            return nodes
        time.sleep(STARTED_EVERY_S)


def free_now(all_nodes: Sequence[SlurmNode], names: Collection[str], *, reserved: bool) -> frozenset[str]:
    """Those of these nodes on which a job of ours could begin at once."""
    return frozenset(n.name for n in all_nodes if n.name in names
                     and not n.state.unusable_within(reserved) and not n.state.busy_for(reserved))


def unusable_now(all_nodes: Sequence[SlurmNode], names: Collection[str], *, reserved: bool) -> dict[str, str]:
    """Those that no job can use, with the reason. A node that Slurm does not tell of is one."""
    found = dict.fromkeys(names, "not known to Slurm any more")
    for node in all_nodes:
        if node.name in found:
            why = node.state.unusable_within(reserved)
            found[node.name] = f"{why}: {node.reason}" if why and node.reason else why
    return {name: why for name, why in found.items() if why}


def seconds(text: str) -> float:
    """Of "2h", "90m", "45 min", "1d", "30s", "0"; a number alone is minutes, as with sbatch. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,6})\s*(s|sec|m|min|h|d|)", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no time", hint="30m, 2h, 1d")
    return float(match[1]) * {"s": 1, "sec": 1, "m": 60, "min": 60, "": 60, "h": 3600, "d": 86400}[match[2]]

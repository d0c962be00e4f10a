"""How many jobs wait, and which GPUs are allocated since when: two queries, for what a nightly look tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hpcadmin.errors import SlurmError
from hpcadmin.hosts import expand
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.text import printable

# Jobs that wait for something else than resources: for a time, another job, a person, a limit of their own.
NOT_WAITING = frozenset({"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser",
                         "JobArrayTaskLimit", "Cleaning", "Reservation", "SpecificNodes"})
_GPU = re.compile(r"gpu(?::[^:()]+)?:(\d{1,6})(?:\(.*)?")


@dataclass(frozen=True)
class Queue:
    """pending: jobs that wait for resources; an array that waits is one. gpus: node -> GPUs allocated there. since:
    node -> when the youngest job there began."""

    pending: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)


class QueueLook(CommandLine):
    """Slurm's commands, no shell."""

    def queue(self) -> Queue:
        """SlurmError when it cannot be had."""
        jobs = self._run("squeue", "-h", "-a", "--local", "-t", "PENDING,RUNNING,COMPLETING,SUSPENDED",
                         "-o", "%T|%r|%S|%N")
        pending, since = parse_jobs(jobs.out)
        used = self._run("sinfo", "-h", "-a", "--local", "-N", "-O", "NodeList:300,GresUsed:2000")
        return Queue(pending, parse_used(used.out), since)


def parse_jobs(text: str) -> tuple[int, dict[str, float]]:
    """Of squeue -o %T|%r|%S|%N. SlurmError when a line is none of it."""
    pending = 0
    since: dict[str, float] = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) < 4:
            raise SlurmError(f"unreadable line: {printable(line, limit=120)!r}", where="squeue")
        state, reason, start, nodes = parts[0], "|".join(parts[1:-2]), parts[-2], parts[-1]
        if state == "PENDING":
            pending += reason.strip("()").partition(",")[0] not in NOT_WAITING
            continue
        try:
            moment = datetime.fromisoformat(start).timestamp()
        except ValueError:
            moment = float("inf")           # not known: as if it had begun just now
        for node in expand(nodes) if nodes else ():
            since[node] = max(since.get(node, 0.0), moment)
    return pending, since


def parse_used(text: str) -> dict[str, int]:
    """Of sinfo -N -O NodeList,GresUsed: gpu:a100:3(IDX:0-2),gpu:h100:1(IDX:0). A node is told once a partition."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, used = line.strip().partition(" ")
        if name:
            counts = [match[1] for item in _items(used.strip()) if (match := _GPU.fullmatch(item))]
            found[name] = sum(map(int, counts))
    return found


def _items(text: str) -> list[str]:
    """Parted at commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]

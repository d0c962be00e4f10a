"""The one interface to Slurm. Back ends: hpcadmin.slurm.command_line; others come beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpcadmin.errors import SlurmError
from hpcadmin.slurm.states import Job, NodeState


@dataclass(frozen=True)
class SlurmNode:
    """A node of slurm.conf, by NodeName."""

    name: str
    state: NodeState
    hostname: str = ""
    partitions: tuple[str, ...] = ()
    reason: str = ""
    gres: str = ""
    cpus: int | None = None
    memory_mib: int | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs slurm.conf gives it: all types together."""
        total = 0
        for item in _split_gres(self.gres):
            name, *rest = item.partition("(")[0].split(":")
            if name == "gpu":
                total += int(rest[-1]) if rest and rest[-1].isdigit() else 1
        return total


def _split_gres(text: str) -> list[str]:
    """At the commas that are not inside brackets: gpu:a100:2(S:0,1),nic:1."""
    items, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    return [item.strip() for item in [*items, text[start:]] if item.strip()]


@dataclass(frozen=True)
class Partition:
    name: str
    state: str = ""
    default: bool = False
    max_time_min: int | None = None      # None: no limit, or not told
    whole_nodes: bool = False            # every job gets whole nodes (OverSubscribe=EXCLUSIVE)


class NoAnswerError(SlurmError):
    """The controller did not answer: what was asked of it may have been done all the same."""


class Client(Protocol):
    """What the runner needs. Every method raises SlurmError or UsageError in one line when Slurm refuses."""

    def version(self) -> str:
        """"22.05.8"."""

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes, in one query."""

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, in one query."""

    def topology(self) -> bool:
        """Whether slurmctld knows several leaf switches or blocks, so that jobs can be on one or on more."""

    def topology_text(self) -> str:
        """What `scontrol show topology` prints; "" where there is none."""

    def starts_containers(self) -> bool:
        """Whether srun has pyxis's option --container-image."""

    def submit(self, script: Path, *, comment: str) -> int:
        """The id of the job that the script with its #SBATCH lines became. comment: the job's own one, by which it is
        found when the answer is lost. Raises NoAnswerError when it is not known whether there is such a job now."""

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        """All of them in one query; of those that slurmctld does not know any more accounting is asked, once for all. A
        job that nobody knows has state ""."""

    def find(self, comment: str) -> tuple[Job, ...]:
        """The caller's own jobs whose comment begins with that."""

    def cancel(self, ids: Sequence[int]) -> None:
        """End these jobs; one that has ended is no error."""


def version_tuple(version: str) -> tuple[int, ...]:
    """(22, 5, 8) of "22.05.8"; () when it cannot be read."""
    parts = version.partition("-")[0].split(".")
    return tuple(int(p) for p in parts if p.isdigit()) if parts and parts[0].isdigit() else ()

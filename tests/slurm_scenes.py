"""A cluster with jobs and nodes in every state, and what the back ends are to say of it: of a live one of any version
(tests/integration/test_versions.py), and of what one answered (tests/samples/slurm, test_slurm_samples.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcadmin.errors import HpcadminError
from hpcadmin.slurm.client import Client, SlurmNode
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.slurm.states import Job

NODES = ("n01", "n02", "n03", "n04", "n05")
UNKNOWN = 99999
AWAY = "ReqNodeNotAvail|DOWN, DRAINED"              # in one of these words


@dataclass(frozen=True)
class Looks:
    """How a job is to be read: one of these states and reasons, whether it is over, and hopeless."""

    states: str
    reasons: str
    over: bool = False
    hopeless: bool = False
    nodes: str = ""


# By the job's name in the scene.
JOBS = {
    "runs": Looks("RUNNING", "None", nodes="n01"),
    "waits": Looks("PENDING", "Resources|Priority|ReqNodeNotAvail"),
    "is behind": Looks("PENDING", "Resources|Priority|ReqNodeNotAvail"),
    "held by its user": Looks("PENDING", "JobHeldUser", hopeless=True),
    "held by an admin": Looks("PENDING", "JobHeldAdmin", hopeless=True),
    "after another": Looks("PENDING", "Dependency"),
    "never": Looks("PENDING", "DependencyNeverSatisfied", hopeless=True),
    "later": Looks("PENDING", "BeginTime"),
    "on a drained node": Looks("PENDING", AWAY),
    "partition is down": Looks("PENDING", "PartitionDown", hopeless=True),
    "partition is too short": Looks("PENDING", "PartitionTimeLimit", hopeless=True),
    "failed": Looks("FAILED", "NonZeroExitCode", over=True, nodes="n05"),
    "done": Looks("COMPLETED", "None", over=True, nodes="n05"),
    # What it waited for stays its reason.
    "cancelled": Looks("CANCELLED", "None|Resources|Priority|ReqNodeNotAvail|", over=True),
    "node died": Looks("NODE_FAIL", "NodeDown|None", over=True),
    "requeued": Looks("PENDING|REQUEUED", "BeginTime|None|Resources|Priority|ReqNodeNotAvail"),
    "requeued and held": Looks("REQUEUE_HOLD|PENDING", "job requeued in held state|job_requeued_in_held_state|"
                               "JobHeldAdmin|JobHeldUser", hopeless=True),
    "cleans up": Looks("COMPLETING", "None", nodes="n02"),
}
# State and flags of each node: why no job may start, whether it is busy, the reason that was given.
NODE_LOOKS = {
    "n01": ("", True, ""), "n02": ("", True, ""), "n03": ("down", False, "power, see State=IDLE"),
    "n04": ("drained", False, "bad fan"), "n05": ("", False, ""),
}
# A script that Slurm refuses -> what the error is to say. The name is the script's file.
REFUSED = {
    "partition": ("--partition=nope", "no such partition"),
    "node": ("--nodelist=x99", "no node can satisfy"),
    "reservation": ("--reservation=nope", "no such reservation"),
    "gres": ("--gres=gpu:1", "no node can satisfy|gres"),
    "option": ("--no-such-option", "unrecognized option"),
}


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """With that as the working directory."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def script(folder: Path, name: str, options: str) -> Path:
    text = "".join(f"#SBATCH {word}\n" for word in ["--output=/dev/null", *options.split()])
    (folder / name).write_text(f"#!/bin/sh\n{text}sleep 300\n")
    return Path(name)


def ask(client: Client, ids: Mapping[str, int]) -> dict[str, Any]:
    """Every call of the interface, in one fixed order: a sample answers what is asked here, word for word. Scripts lie
    in the working directory."""
    every = [*ids.values(), UNKNOWN]
    told: dict[str, Any] = {
        "version": client.version(), "nodes": client.nodes(), "partitions": client.partitions(),
        "topology": client.topology(), "topology text": client.topology_text(),
        "containers": client.starts_containers(), "jobs": client.jobs(every),
        "alone": {name: client.jobs([number])[number] for name, number in ids.items()},
        "unknown": client.jobs([UNKNOWN])[UNKNOWN], "own": client.find(""), "found": client.find("hpcadmin:R:1"),
        "refused": {name: _refusal(client, Path(name)) for name in REFUSED},
    }
    if isinstance(client, CommandLine):
        told["shown"] = {name: client._shown(number) for name, number in ids.items()}
    client.cancel([ids["done"], UNKNOWN])
    return told


def _refusal(client: Client, path: Path) -> str:
    try:
        return f"job {client.submit(path, comment='hpcadmin:X:1')}"
    except HpcadminError as exc:
        return str(exc)


def odd(told: Mapping[str, Any], ids: Mapping[str, int]) -> list[str]:
    """What is not as it is to be, one line each."""
    nodes = told["nodes"][:len(NODES)]
    found = [f"node {node.name}: {node}" for node in nodes if not _node_is_right(node)]
    found += [f"nodes: {nodes}"] if tuple(node.name for node in nodes) != NODES else []
    for name, looks in JOBS.items():
        kinds = {"jobs": told["jobs"][ids[name]], "alone": told["alone"][name]}
        found += [f"{name} ({kind}): {job}" for kind, job in kinds.items() if not _is_right(job, looks)]
        if "shown" in told and told["shown"][name].base not in looks.states.split("|"):
            found.append(f"{name} (shown): {told['shown'][name]}")
    for job in (told["jobs"][UNKNOWN], told["unknown"]):
        found += [f"unknown: {job}"] if job != Job(UNKNOWN) else []
    mine = {job.id: job for job in told["own"]}
    found += [f"{name} is not among the own jobs" for name, number in ids.items() if number not in mine]
    found += [f"found: {told['found']}"] if {job.id for job in told["found"]} != {
        ids["runs"], ids["waits"], ids["is behind"]} else []
    odd_words = mine[ids["done"]].comment if ids["done"] in mine else ""
    found += [f"comment: {odd_words!r}"] if odd_words != "two words | a bar" else []
    for name, (_, words) in REFUSED.items():
        text = told["refused"][name]
        found += [f"refused {name}: {text}"] if not any(w in text for w in words.split("|")) or "\n" in text else []
    partitions = {p.name: (p.state, p.default, p.max_time_min, p.whole_nodes) for p in told["partitions"]}
    if partitions != {"val": ("UP", True, None, False), "off": ("DOWN", False, None, False),
                      "short": ("UP", False, 5, False), "whole": ("UP", False, 1563, True)}:
        found.append(f"partitions: {partitions}")
    found += [f"{what}: {told[what]!r}" for what, right in (("topology", False), ("containers", False))
              if told[what] is not right]
    return found


def _node_is_right(node: SlurmNode) -> bool:
    unusable, busy, reason = NODE_LOOKS.get(node.name, ("?", False, ""))
    return (node.state.unusable, node.state.busy, node.reason, node.cpus, node.memory_mib, node.partitions) == (
        unusable, busy, reason, 4, 1000, ("val", "off", "short", "whole"))


def _is_right(job: Job, looks: Looks) -> bool:
    return (job.base in looks.states.split("|") and (job.over, job.hopeless) == (looks.over, looks.hopeless)
            and any(job.reason == r or (r and r in job.reason) for r in looks.reasons.split("|"))
            and (not looks.nodes or job.nodes == looks.nodes))

"""What a run keeps so that another process can go on with it: request.json, facts.json, marks in the jobs' folders."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.plan_facts import Facts
from hpcadmin.run_folder import read_record
from hpcadmin.rundata import ToolFound, write_record
from hpcadmin.site import Site
from hpcadmin.slurm.client import Partition
from hpcadmin.text import whole_number
from hpcadmin.tools import by_node

STOP = "stop"               # in a job's folder: begin no further stage
STOPPED = "stopped"         # there: the number of the first stage that was not begun
REQUEUED = "requeued"       # there: Slurm started the job a second time
CANCEL = "cancel"           # in the run's folder: whoever watches it is to cancel it


@dataclass(frozen=True)
class Ground:
    """What a run stands on once its plan is made: all that submitting, reading and judging need beside the plan.

    tools: those of `facts.found`, folded, because that is long by node.
    """

    facts: Facts
    partition: Partition
    partition_nodes: tuple[str, ...]
    slurm_version: str
    env: Mapping[str, str] = field(default_factory=dict)        # of the suite, for every step
    tools: tuple[ToolFound, ...] = field(default=())
    programs: Mapping[str, str] = field(default_factory=dict)   # of ours -> where it lies here, if nodes do not see it


def write_ground(folder: Path, ground: Ground) -> None:
    site = ground.facts.site
    slim = Site(source=site.source, cluster=site.cluster, tools=site.tools, modules=site.modules,
                slurm=replace(site.slurm, options={}, cgroup={}, gpu_types={}), run_dir=site.run_dir,
                shared_dir=site.shared_dir, checks_dir=site.checks_dir, collect=site.collect, node_dir=site.node_dir)
    write_record(folder, "facts.json", replace(ground, facts=replace(ground.facts, found={}, site=slim)))


def read_ground(folder: Path) -> Ground:
    ground: Ground = read_record(folder / "facts.json", Ground)
    return replace(ground, facts=replace(ground.facts, found=by_node(ground.tools)))


# --- a job's folder ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a job ended that did not say itself that it was done, so that this is told of it later too."""

    ending: str
    state: str = ""


def write_ended(job: Path, ending: str, state: str) -> None:
    write_record(job, "ended.json", Ended(ending, state))


def read_ended(job: Path) -> Ended | None:
    try:
        found: Ended = read_record(job / "ended.json", Ended)
    except StoreError:
        return None
    return found


def slurm_job(job: Path) -> int | None:
    """The Slurm job of this folder, as we noted it, or as it noted itself when it began."""
    for name in ("slurm_job_id", "claimed"):
        words = read_mark(job / name).split()
        number = whole_number(words[0]) if words else None
        if number is not None:
            return number
    return None


def read_mark(path: Path) -> str:
    """What is in a small file that a node or we have left; "" when it is not there."""
    try:
        return read_bounded(path, limit=4096).decode("utf-8", "replace")
    except StoreError:
        return ""


def is_there(path: Path) -> bool:
    """Whether a mark is there. None is seen while a file server is away: then it is looked for again."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def set_mark(path: Path) -> None:
    write_atomic(path, "")


def drop_mark(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()

"""What a run folder holds, as records, and the one place that reads and writes its files.

RUN/
  manifest.json       Manifest
  plan.json           Plan
  inventory.json      Inventory of the nodes as this run saw them; order.json: what was accepted before, if anything
  limits.json         list of Limit: those that this run was judged by
  jobs/N/script       the exact batch script of our job number N (can be run by hand with sbatch)
  jobs/N/*.log        framed outputs (hpcadmin.frames), one file a node and one of the driver, appended as they come
  measurements.jsonl  Measured, a line each, appended as they come
  verdicts.jsonl      Verdict, a line each: the final judgement
  findings.json       list of Finding: which node, device or link explains the verdicts
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hpcadmin import records
from hpcadmin.check import Layout, Limit, Measurement, Params, Scope, Status, Step, Subject, Verdict
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.model import Inventory

RUN_SCHEMA = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Manifest:
    run_id: str
    suite: str
    nodes: tuple[str, ...]              # nodes that were asked for
    state: str                          # running, complete, interrupted, failed
    started: str                        # ISO times with zone
    ended: str = ""
    exit_status: int | None = None
    cluster: str = ""
    user: str = ""
    host: str = ""
    command: tuple[str, ...] = ()
    version: str = ""                   # of hpcadmin
    slurm_version: str = ""
    simulated: str = ""                 # hardware profiles that are only pretended; "" on real hardware
    notes: tuple[str, ...] = ()         # for the head of the report: "no RDMA device on any node: RDMA not tested"
    site: str = ""
    schema: int = RUN_SCHEMA


@dataclass(frozen=True)
class PlannedEntry:
    """What becomes of one check of the suite. status None: it runs; else NOT_NEEDED, NOT_APPLICABLE or NOT_RUN."""

    check: str
    title: str
    scope: Scope
    status: Status | None = None
    reason: str = ""
    tests: int = 0


@dataclass(frozen=True)
class PlannedTest:
    """One check on one subject: what is started, and where.

    rail, ports, gpu: what of its nodes it is about (Context). ports: by name, one for each node, or one that is called
    the same on all of them. params: what the suite sets. before: the test whose outputs this one is given too.
    """

    id: str                             # "t0001"; unique in the run, also over repetitions
    check: str
    subject: Subject
    steps: tuple[Step, ...]
    job: int
    pairs_at_once: int | None = None
    ranks: int | None = None
    attempt: int = 1                    # 2 and more: measured again
    repeats: str = ""                   # id of the first test that this one repeats
    alone: bool = False                 # a repetition with nothing beside it
    layout: Layout | None = None
    rail: int | None = None
    ports: tuple[str, ...] = ()
    gpu: int | None = None
    params: Params = field(default_factory=dict)
    when: str = ""                      # "before" or "after" the load
    before: str = ""


@dataclass(frozen=True)
class Stage:
    """Tests that run side by side; stages of a job run one after the other."""

    kind: str                           # nodes, round, group
    name: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class PlannedJob:
    number: int
    kind: str                           # look, suite, again, own
    nodes: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    seconds: float = 0.0                # expected
    time_limit_min: int = 10
    step: int | None = None             # kind "own": the step of its only test that this job is
    meets: tuple[int, ...] = ()         # kind "own": the jobs that it waits for, so that all are there at one time


@dataclass(frozen=True)
class SkippedNode:
    node: str
    reason: str


@dataclass(frozen=True)
class ToolFound:
    """What those nodes that have the same of a tool have of it."""

    tool: str
    nodes: tuple[str, ...]
    path: str = ""                      # on the node, or in its container; "": not there
    way: str = ""                       # in words: "PATH", "module osu/7.4", "container nccl.sif", "site.toml"
    version: str = ""                   # the line that it told it in; "": it told none
    problem: str = ""                   # why it cannot be used: "is not there: …", "does not start: …"
    stamp: str = ""                     # of the file: when it was changed, and its size
    asked: str = ""                     # how it was looked for and asked


@dataclass(frozen=True)
class Plan:
    suite: str
    nodes: tuple[str, ...]              # nodes that are tested
    entries: tuple[PlannedEntry, ...]
    tests: tuple[PlannedTest, ...] = ()
    jobs: tuple[PlannedJob, ...] = ()
    skipped: tuple[SkippedNode, ...] = ()   # asked for and not tested, with the reason: NOT RUN
    notes: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()      # known before anything runs: skipped nodes, missing hardware
    tools: tuple[ToolFound, ...] = ()       # that its checks need, as a look found them


@dataclass(frozen=True)
class Measured:
    test: str
    check: str
    attempt: int
    measurement: Measurement


@dataclass(frozen=True)
class TestResult:
    """What one test left behind: measurements, or why there are none.

    error: it could not be measured (crash, time-out, unreadable). not_run: it was never started, with the reason.
    silent: the error is that a parallel program hung before it said a word, as when its launch lost a message.
    """

    __test__ = False                    # the name begins like a test of pytest's

    test: PlannedTest
    measurements: tuple[Measurement, ...] = ()
    error: str = ""
    not_run: str = ""
    silent: bool = False
    outputs: tuple[str, ...] = ()       # references into the run folder: "jobs/2/node01.log#t0003"
    simulated: str = ""


@dataclass(frozen=True)
class Finding:
    """The cause that explains a set of verdicts: what a person must look at."""

    text: str                           # "node03: slow to every partner (3 of 3 pairs, 17.6 MB/s, others 910)"
    nodes: tuple[str, ...] = ()
    device: str = ""
    status: Status = Status.FAIL
    checks: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run folder as read back."""

    path: Path
    manifest: Manifest
    plan: Plan | None = None
    inventory: Inventory | None = None
    limits: tuple[Limit, ...] = ()
    measured: tuple[Measured, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = field(default=())    # damaged lines and missing files, one sentence each


def exit_status(verdicts: Iterable[Verdict], *, finished: bool = True) -> int:
    """0 all passed, 1 something failed, 3 incomplete (errors, not run, not judged, or nothing was tested at all)."""
    worst = max((v.status.rank for v in verdicts if v.status.counts), default=Status.NOT_RUN.rank)
    if worst >= Status.FAIL.rank:
        return 1
    return 3 if worst >= Status.UNJUDGED.rank or not finished else 0


def write_record(folder: Path, name: str, value: object) -> None:
    write_atomic(folder / name, records.dumps(value, indent=1) + "\n")


def append_lines(folder: Path, name: str, values: Sequence[object]) -> None:
    """Append one JSON line a value in a single write, so that a reader or a crash sees whole lines."""
    if not values:
        return
    raw = "".join(records.dumps(v) + "\n" for v in values).encode()
    try:
        fd = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            while raw:
                raw = raw[os.write(fd, raw):]
        finally:
            os.close(fd)
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(folder / name)) from exc


def write_lines(folder: Path, name: str, values: Iterable[object]) -> None:
    write_atomic(folder / name, "".join(records.dumps(v) + "\n" for v in values))


def read_run(folder: Path) -> Run:
    """Everything in a run folder. A run that was cut off is readable: what is missing or damaged is in `problems`.

    Raises StoreError when there is no manifest.
    """
    manifest = records.loads(Manifest, _text(folder / "manifest.json"), where=str(folder / "manifest.json"))
    problems: list[str] = []
    return Run(
        path=folder, manifest=manifest,
        plan=_optional(Plan, folder, "plan.json", problems),
        inventory=_optional(Inventory, folder, "inventory.json", problems),
        limits=_optional(tuple[Limit, ...], folder, "limits.json", problems) or (),
        measured=tuple(_lines(Measured, folder, "measurements.jsonl", problems)),
        verdicts=tuple(_lines(Verdict, folder, "verdicts.jsonl", problems)),
        findings=_optional(tuple[Finding, ...], folder, "findings.json", problems) or (),
        problems=tuple(problems),
    )


def _text(path: Path) -> str:
    return read_bounded(path).decode("utf-8", "replace")


def _optional(cls: Any, folder: Path, name: str, problems: list[str]) -> Any:
    if not (folder / name).exists():
        if name in ("plan.json", "inventory.json"):
            problems.append(f"{name} is missing")
        return None
    try:
        return records.loads(cls, _text(folder / name), where=name)
    except StoreError as exc:
        problems.append(str(exc))
        return None


def _lines(cls: type[T], folder: Path, name: str, problems: list[str]) -> list[T]:
    path = folder / name
    if not path.exists():
        problems.append(f"{name} is missing")
        return []
    values: list[T] = []
    text = _text(path)
    # Not splitlines(): texts in the records may hold other line ends (U+2028), which JSON leaves as they are.
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        try:
            values.append(records.loads(cls, line, where=f"{name}:{number}"))
        except StoreError as exc:
            problems.append(str(exc))
    return values

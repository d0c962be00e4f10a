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
  coverage.json       list of Covered: of every node, GPU, port and path that is expected, whether it was tested
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from hpcadmin import inventory_file, records
from hpcadmin.acceptance_model import Acceptance
from hpcadmin.check import Layout, Limit, Measurement, Params, Scope, Status, Step, Subject, Verdict
from hpcadmin.errors import StoreError
from hpcadmin.files import read_lines, read_whole, write_atomic, write_atomic_parts
from hpcadmin.model import Inventory

RUN_SCHEMA = 1
VALUES = "measurements.jsonl"
MOST_OF_A_LINE = 64 * 1024 * 1024
MOST_PROBLEMS = 20                         # of one file that are told one by one
_EXPLAINED = (Status.FAIL, Status.ERROR)   # where there is one, there are findings
NO_ANSWER = "does not answer any more"     # behind the name of a node that was lost during the run
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
    retest_of: str = ""                 # the run whose failures this one measures again
    folder: str = ""                    # where it was made, and its jobs write
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
    covers: tuple[str, ...] = ()        # hardware words of the check's needs: gpu, rdma, …


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """One check on one subject: what is started, and where.

    steps: () in a plan, but of tests that are jobs of their own: they are worked out when a job's script is written
    (plan_work); limit_s: the most that they may take.
    rail, ports, gpu: what of its nodes it is about (Context). ports: by name, one for each node, or one that is called
    the same on all of them. params: what the suite sets. before: the test whose outputs this one is given too.
    """

    id: str                             # "t0001"; unique in the run, also over repetitions
    check: str
    subject: Subject
    steps: tuple[Step, ...] = ()
    job: int = 1
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
    limit_s: float = 0.0


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
    rest_of: int | None = None          # the job whose tests it makes that this one did not make


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
class PairSample:
    """What the rounds of pairs of some checks meet.

    partners: how many others each node meets, at least and at most. paths: between two leaf switches; 0: the switches
    are not known, or there is one.
    """

    checks: tuple[str, ...]
    pairs: str                          # as it was asked for: all, screen, ring, cross-leaf, 16
    rounds: int
    nodes: int
    nodes_met: int
    partners_least: int
    partners_most: int
    paths: int = 0
    paths_met: int = 0


@dataclass(frozen=True)
class Expected:
    """Nodes that must have the same devices. gpus None: not known; ports: by name, of RDMA devices."""

    nodes: tuple[str, ...]
    gpus: int | None = None
    ports: tuple[str, ...] | None = None


@dataclass(frozen=True)
class NotTested:
    reason: str
    what: tuple[str, ...]               # "node03", "node03 GPU 5", "leaf1 - leaf2"


@dataclass(frozen=True)
class Covered:
    """Of all things of one kind that are expected: how many were tested, which failed, and which were not tested."""

    kind: str                           # nodes, GPUs, HCA ports, leaf-to-leaf paths
    expected: int
    tested: int                         # those that failed too
    failed: tuple[str, ...] = ()
    not_tested: tuple[NotTested, ...] = ()
    note: str = ""                      # what is not known, so that nothing can be expected


@dataclass(frozen=True)
class Together:
    """Sets of nodes that a check is to have tests of, and no others; a node alone is a set of one."""

    check: str
    nodes: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Environment:
    """What the suite and the site say of all steps: how MPI programs are started ("mpirun", or srun's --mpi=), modules,
    the image of the benchmarks, variables. What is said of single tools is with them."""

    mpi: str = ""
    modules: tuple[str, ...] = ()
    container: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


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
    seed: int = 0                           # of what is drawn: which nodes meet
    pairs: tuple[PairSample, ...] = ()
    at_once: int = 0                        # so many nodes at most are under load at one time; 0: all
    expected: tuple[Expected, ...] = ()     # what must be tested, also of nodes that are skipped
    leaves: Mapping[str, str] = field(default_factory=dict)     # node -> its leaf switch, where that is known
    environment: Environment = field(default=Environment())


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
    """A run folder as read back. acceptance: what else belongs to it, where its re-tests are merged into it: tests and
    outputs of theirs begin with the name of their run then."""

    path: Path
    manifest: Manifest
    plan: Plan | None = None
    inventory: Inventory | None = None
    limits: tuple[Limit, ...] = ()
    measured: tuple[Measured, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    coverage: tuple[Covered, ...] = ()
    problems: tuple[str, ...] = field(default=())    # damaged lines and missing files, one sentence each
    acceptance: Acceptance | None = None

    def file(self, path: str) -> Path:
        """Where a raw output lies."""
        folder, inside = self.acceptance.place(path) if self.acceptance else ("", path)
        return (Path(folder) if folder else self.path) / inside


def exit_status(verdicts: Iterable[Verdict], *, finished: bool = True) -> int:
    """0 all passed, 1 something failed, 3 incomplete (errors, not run, not judged, or nothing was tested at all)."""
    worst = max((v.status.rank for v in verdicts if v.status.counts), default=Status.NOT_RUN.rank)
    if worst >= Status.FAIL.rank:
        return 1
    return 3 if worst >= Status.UNJUDGED.rank or not finished else 0


def write_record(folder: Path, name: str, value: object) -> None:
    write_atomic(folder / name, records.dumps(value, indent=1) + "\n")


Texts = dict[object, tuple[object, str]]        # a test's id or a job's number -> that, and its line in plan.json


def write_plan(folder: Path, plan: Plan, known: Texts | None = None) -> None:
    """plan.json, a line for each test and job, without what is as usual. It is never in memory as a whole.

    known: for who writes a plan again and again with little changed; the lines are kept there.
    """
    write_atomic_parts(folder / "plan.json", _plan_parts(plan, known))


def _plan_parts(plan: Plan, known: Texts | None) -> Iterator[str]:
    lead = "{"
    for item in fields(plan):
        value = getattr(plan, item.name)
        if value == item.default or not (value or item.default is MISSING):
            continue
        yield f'{lead}"{item.name}":'
        if isinstance(value, tuple):
            for number, one in enumerate(value):
                yield f"{',' if number else '['}\n{_line_of(one, known)}"
            yield "\n]" if value else "[]"
        else:
            yield records.dumps(value)
        lead = ",\n"
    yield "}\n"


def _line_of(one: object, known: Texts | None) -> str:
    key = one.id if isinstance(one, PlannedTest) else one.number if isinstance(one, PlannedJob) else None
    if known is None or key is None:
        return records.dumps(one, sparse=True)
    kept = known.get(key)
    if kept is None or kept[0] is not one:
        kept = known[key] = one, records.dumps(one, sparse=True)
    return kept[1]


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


def read_run(folder: Path, *, without: Collection[str] = ()) -> Run:
    """Everything in a run folder. A run that was cut off is readable: what is missing or damaged is in `problems`.

    without: "measurements.jsonl" where nothing asks for the values by themselves, and it is known that it is whole: it
    is half of the folder. Raises StoreError when there is no manifest.
    """
    manifest: Manifest = records.loads(Manifest, _text(folder / "manifest.json"), where=str(folder / "manifest.json"))
    problems: list[str] = []
    if manifest.schema != RUN_SCHEMA:
        problems.append(f"manifest.json is of schema {manifest.schema}, this hpcadmin knows {RUN_SCHEMA}")
    complete = manifest.state == "complete"
    plan = _optional(Plan, folder, "plan.json", problems, needed=True)
    measured = () if VALUES in without else read_lines_of(Measured, folder, VALUES, problems)
    verdicts = read_lines_of(Verdict, folder, "verdicts.jsonl", problems)
    problems += plan_problems(plan) if plan is not None else ()
    if plan is not None and VALUES not in without:
        problems += unmeasured(verdicts, {m.test for m in measured}, plan)
    return Run(
        path=folder, manifest=manifest, plan=plan, measured=tuple(measured), verdicts=tuple(verdicts),
        inventory=_inventory(folder, problems),
        limits=_optional(tuple[Limit, ...], folder, "limits.json", problems, needed=complete) or (),
        findings=_optional(tuple[Finding, ...], folder, "findings.json", problems,
                           needed=complete and any(v.status in _EXPLAINED for v in verdicts)) or (),
        coverage=_optional(tuple[Covered, ...], folder, "coverage.json", problems) or (),
        problems=tuple(problems),
    )


def _text(path: Path) -> str:
    return read_whole(path).decode("utf-8", "replace")


def _there(folder: Path, name: str, problems: list[str], *, needed: bool) -> bool:
    if os.path.lexists(folder / name):
        return True
    if needed:
        problems.append(f"{name} is missing")
    return False


def _optional(cls: Any, folder: Path, name: str, problems: list[str], *, needed: bool = False) -> Any:
    if not _there(folder, name, problems, needed=needed):
        return None
    try:
        return records.loads(cls, _text(folder / name), where=name)
    except StoreError as exc:
        problems.append(inside(folder, exc))
        return None


def _inventory(folder: Path, problems: list[str]) -> Inventory | None:
    if not _there(folder, "inventory.json", problems, needed=True):
        return None
    try:
        return inventory_file.load(folder / "inventory.json")
    except StoreError as exc:
        problems.append(inside(folder, exc))
        return None


def inside(folder: Path, exc: StoreError) -> str:
    """The problem, with the file's name in the run folder alone."""
    return str(exc).replace(f"{folder}{os.sep}", "", 1)


def read_lines_of(cls: type[T], folder: Path, name: str, problems: list[str]) -> list[T]:
    """The records of a file of lines. Line by line, as a large run's files are larger than what is read at once; not
    splitlines(): texts in the records may hold other line ends (U+2028), which JSON leaves as they are."""
    values: list[T] = []
    if not _there(folder, name, problems, needed=True):
        return values
    # Many verdicts have the same limit and subject; of measurements nearly none.
    reader = records.Reader(share=(Limit, Subject) if cls is Verdict else ())
    bad = 0
    try:
        with records.without_gc():
            for number, line in enumerate(read_lines(folder / name, limit=MOST_OF_A_LINE), 1):
                try:
                    text = line.removesuffix(b"\n").decode("utf-8", "replace")
                    values.append(reader.loads(cls, text, where=f"{name}:{number}"))
                except StoreError as exc:
                    bad += 1
                    if bad <= MOST_PROBLEMS:
                        problems.append(str(exc))
    except StoreError as exc:
        problems.append(inside(folder, exc))
    if bad > MOST_PROBLEMS:
        problems.append(f"{name}: {bad - MOST_PROBLEMS} more lines are damaged")
    return values


def plan_problems(plan: Plan) -> Iterator[str]:
    """Tests that hide behind another: of two with one name, or of one that repeats what is none of its kind, the result
    of only one is looked for."""
    by_id = {t.id: t for t in plan.tests}
    if len(by_id) < len(plan.tests):
        twice = next(name for name, count in Counter(t.id for t in plan.tests).items() if count > 1)
        yield f"plan.json has several tests that are called {twice}"
    strange = [t for t in plan.tests if t.repeats and (
        (first := by_id.get(t.repeats)) is None or first.repeats
        or (first.check, first.subject) != (t.check, t.subject))]
    if strange:
        yield f"plan.json: {strange[0].id} does not repeat {strange[0].repeats}, as it says"


def unmeasured(verdicts: Iterable[Verdict], measured: Collection[str], plan: Plan) -> Iterator[str]:
    """A verdict on a value stands on a measurement of its test or, where that was done again, of one of these: else
    the file of measurements has lost something, and a comparison would find nothing to compare."""
    have = {*measured, *(t.repeats for t in plan.tests if t.repeats and t.id in measured)}
    lost = {v.test for v in verdicts if v.measurement is not None and v.test and v.test not in have}
    if lost:
        yield f"{VALUES} has nothing of {len(lost)} tests whose values were judged"

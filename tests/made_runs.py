"""Results and run folders made up for the tests of judge, isolate and report."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpcadmin.check import Limit, Measurement, Scope, Status, Step, Subject, Verdict
from hpcadmin.coverage import coverage
from hpcadmin.isolate import explain
from hpcadmin.judge import judge
from hpcadmin.model import Cpu, Gpu, Group, Inventory, Node
from hpcadmin.report.summary import complete_verdicts
from hpcadmin.rundata import (
    Manifest,
    Measured,
    Plan,
    PlannedEntry,
    PlannedJob,
    PlannedTest,
    Run,
    TestResult,
    append_lines,
    exit_status,
    read_run,
    write_lines,
    write_record,
)

PINGPONG = Limit("mpi_pingpong", "bandwidth", unit="MB/s", min=100.0, size_bytes=262144, source="site.toml")
LATENCY = Limit("mpi_pingpong", "latency", unit="us", max=500.0, source="site.toml")


def names(count: int) -> tuple[str, ...]:
    return tuple(f"node{i:02d}" for i in range(1, count + 1))


def bandwidth(value: object, unit: str = "MB/s", **more: object) -> Measurement:
    return Measurement("bandwidth", value, unit, size_bytes=262144, **more)  # type: ignore[arg-type]


def rounds(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """The circle method, for an even number of nodes."""
    ring, found = list(nodes), []
    for _ in range(len(nodes) - 1):
        half = len(ring) // 2
        found.append([(min(a, b), max(a, b)) for a, b in zip(ring[:half], ring[:half - 1:-1], strict=True)])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def pair_test(number: int, pair: tuple[str, str], check: str = "mpi_pingpong", at_once: int = 2, **more: object,
              ) -> PlannedTest:
    return PlannedTest(f"t{number:04d}", check, Subject(pair), (Step(("true",)),), job=2, pairs_at_once=at_once,
                       ranks=2, **more)  # type: ignore[arg-type]


def pair_results(value: Callable[[str, str], float], nodes: Sequence[str], start: int = 1) -> list[TestResult]:
    """One bandwidth for every pair, in rounds."""
    numbers = itertools.count(start)
    results = []
    for group in rounds(nodes):
        for pair in group:
            test = pair_test(next(numbers), pair, at_once=len(group))
            results.append(TestResult(test, (bandwidth(value(*pair)),), outputs=(f"jobs/2/driver.log#{test.id}",)))
    return results


def repeated(result: TestResult, value: object, *, attempt: int, alone: bool, error: str = "") -> TestResult:
    first = result.test
    test = PlannedTest(f"{first.id}r{attempt}{'a' if alone else 'l'}", first.check, first.subject, first.steps, job=3,
                       pairs_at_once=1 if alone else first.pairs_at_once, ranks=2, attempt=attempt, repeats=first.id,
                       alone=alone)
    return TestResult(test, () if error else (bandwidth(value),), error=error,
                      outputs=(f"jobs/3/driver.log#{test.id}",))


def inventory(nodes: Sequence[str], gpus: int = 0, simulated: str = "", model: str = "NVIDIA H100 80GB HBM3",
              ) -> Inventory:
    return Inventory(
        nodes=tuple(Node(name=n, hostname=n, cpu=Cpu(model="Xeon", sockets=2, cores_per_socket=4, threads_per_core=1),
                         gpus=tuple(Gpu("nvidia", i, model) for i in range(gpus)), simulated=simulated)
                    for n in nodes),
        groups=(Group("group1", tuple(nodes)),), created="2026-07-30T10:14:00+02:00")


ENTRIES = (
    PlannedEntry("node_ready", "Node is ready for work", Scope.NODE),
    PlannedEntry("mpi_hello", "Every rank answers from its node", Scope.GROUP),
    PlannedEntry("ib_write_bw", "RDMA write bandwidth", Scope.PAIR, Status.NOT_APPLICABLE,
                 "no RDMA device on any node"),
    PlannedEntry("mpi_pingpong", "Bandwidth and latency between two nodes", Scope.PAIR),
    PlannedEntry("osu_bw", "OSU bandwidth", Scope.PAIR, Status.NOT_NEEDED, "mpi_pingpong ran"),
)


def node_results(nodes: Sequence[str], start: int = 9001) -> list[TestResult]:
    results = []
    for number, node in enumerate(nodes, start):
        test = PlannedTest(f"t{number:04d}", "node_ready", Subject((node,)), (Step(("true",)),), job=2)
        results.append(TestResult(test, (Measurement("state", "allocated", expected="allocated"),),
                                  outputs=(f"jobs/2/{node}.log#{test.id}",)))
    hello = PlannedTest("t9900", "mpi_hello", Subject(tuple(nodes)), (Step(("true",)),), job=2, ranks=2 * len(nodes))
    ranks = tuple(Measurement("ranks", 2, subject=Subject((n,)), expected=2) for n in nodes)
    return [*results, TestResult(hello, ranks, outputs=("jobs/2/driver.log#t9900",))]


def with_logs(folder: Path) -> Path:
    """The raw outputs that the run's verdicts name, as empty files."""
    for name in {place.partition("#")[0] for v in read_run(folder).verdicts for place in v.outputs}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def write_run(folder: Path, results: Sequence[TestResult], nodes: Sequence[str], *,
              limits: Sequence[Limit] = (PINGPONG,), inv: Inventory | None = None,
              entries: Sequence[PlannedEntry] = ENTRIES, plan: Mapping[str, object] = {},
              verdicts: Sequence[Verdict] | None = None, asked: Sequence[str] = (), **head: object) -> Path:
    """A run folder with these results, judged and explained."""
    folder.mkdir(parents=True)
    inv = inv or inventory(nodes)
    made = Plan("network", tuple(nodes), tuple(entries), tuple(r.test for r in results),
                (PlannedJob(2, "suite", tuple(nodes), seconds=8.0),), **plan)  # type: ignore[arg-type]
    judged = judge(results, limits, inv) if verdicts is None else list(verdicts)
    manifest = {
        "run_id": folder.name, "suite": "network", "nodes": tuple(asked or nodes), "state": "complete",
        "started": "2026-07-30T10:15:00+02:00", "ended": "2026-07-30T10:15:12+02:00", "cluster": "lab", "user": "hpc",
        "host": "head", "command": ("hpcadmin", "validate", "--suite", "network"), "version": "0.1.0",
        "slurm_version": "22.05.8",
        "notes": ("no RDMA device on any node: RDMA not tested",), "simulated": inv.simulated, **head}
    if "exit_status" not in manifest:
        known = Run(folder, Manifest(**manifest), plan=made, verdicts=tuple(judged))  # type: ignore[arg-type]
        manifest["exit_status"] = exit_status(complete_verdicts(known))
    write_record(folder, "manifest.json", Manifest(**manifest))  # type: ignore[arg-type]
    write_record(folder, "plan.json", made)
    write_record(folder, "inventory.json", inv)
    write_record(folder, "limits.json", tuple(limits))
    append_lines(folder, "measurements.jsonl", [
        Measured(r.test.id, r.test.check, r.test.attempt, m) for r in results for m in r.measurements])
    write_lines(folder, "verdicts.jsonl", judged)
    found = tuple(explain(judged, made))
    write_record(folder, "findings.json", found)
    write_record(folder, "coverage.json", tuple(coverage(made, judged, found)))
    return folder

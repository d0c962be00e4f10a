"""Runs and their re-tests, made up: pairs, nodes and a group, with values that each test sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from made_runs import PINGPONG, bandwidth, inventory, names, write_run

from hpcadmin.check import Layout, Limit, Measurement, Scope, Status, Subject
from hpcadmin.model import Inventory
from hpcadmin.plan_choice import plan_verdict
from hpcadmin.rundata import PlannedEntry, PlannedTest, SkippedNode, TestResult, ToolFound

NODES = names(4)
PAIRS = tuple((a, b) for i, a in enumerate(NODES) for b in NODES[i + 1:])
ENTRIES = (PlannedEntry("node_ready", "Node is ready", Scope.NODE), PlannedEntry("mpi_pingpong", "Two", Scope.PAIR),
           PlannedEntry("all_reduce", "All", Scope.GROUP))
REDUCE = Limit("all_reduce", "busbw", unit="GB/s", min=10.0, size_bytes=1 << 20, source="site.toml")
LIMITS = (PINGPONG, REDUCE)
FIRST = "20260730-101500-aaaa"


def minute(number: int) -> dict[str, object]:
    """When a run was: of a minute that is 10:15 and so many more."""
    return {"started": f"2026-07-30T10:{15 + number}:00+02:00", "ended": f"2026-07-30T10:{15 + number}:30+02:00"}


def pair(number: int, nodes: tuple[str, str], value: float | str, **params: int) -> TestResult:
    """value: in MB/s; or why there is none."""
    test = PlannedTest(f"t{number:04d}", "mpi_pingpong", Subject(nodes), job=2, pairs_at_once=1, ranks=2,
                       layout=Layout.PAIRS, params=params)
    return _result(test, value if isinstance(value, str) else bandwidth(value))


def ready(number: int, node: str, state: str = "allocated") -> TestResult:
    test = PlannedTest(f"t{number:04d}", "node_ready", Subject((node,)), job=2, layout=Layout.NODE)
    return _result(test, Measurement("state", state, expected="allocated"))


def group(number: int, nodes: Sequence[str], value: float, *, layout: Layout = Layout.ALL, device: str = "",
          size: int = 1 << 20) -> TestResult:
    test = PlannedTest(f"t{number:04d}", "all_reduce", Subject(tuple(nodes), device), job=2, ranks=len(nodes),
                       layout=layout, params={"size": size})
    return _result(test, Measurement("busbw", value, "GB/s", size_bytes=size, nodes=len(nodes)))


def _result(test: PlannedTest, found: Measurement | str) -> TestResult:
    outputs = (f"jobs/2/{test.subject.nodes[0]}.log#{test.id}",)
    return TestResult(test, error=found, outputs=outputs) if isinstance(found, str) else TestResult(
        test, (found,), outputs=outputs)


def whole(slow: Mapping[tuple[str, str], float | str] = {}, reduce: float = 12.0, nodes: Sequence[str] = NODES,
          ) -> list[TestResult]:
    """Everything that the suite has: slow pairs have these values."""
    pairs = [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1:]]
    return [*(ready(50_001 + i, n) for i, n in enumerate(nodes)),
            *(pair(1 + i, p, slow.get(p, 900.0 + i)) for i, p in enumerate(pairs)), group(90_000, nodes, reduce)]


def first(folder: Path, results: Iterable[TestResult], name: str = FIRST, **more: object) -> Path:
    return made(folder, name, results, **{**minute(0), **more})


def made(folder: Path, name: str, results: Iterable[TestResult], *, limits: Sequence[Limit] = LIMITS,
         inv: Inventory | None = None, tools: Sequence[ToolFound] = (), skipped: Sequence[str] = (),
         **head: object) -> Path:
    found = list(results)
    nodes = tuple(dict.fromkeys(n for r in found for n in r.test.subject.nodes))
    nodes = tuple(sorted(nodes))
    checks = {r.test.check for r in found}
    entries = [e for e in ENTRIES if e.check in checks]
    return write_run(folder / name, found, nodes, limits=limits, inv=inv or inventory(nodes), entries=entries,
                     asked=(*nodes, *skipped), plan={
                         "tools": tuple(tools), "skipped": tuple(SkippedNode(n, "drained") for n in skipped),
                         "verdicts": tuple(plan_verdict("availability", Subject((n,)), Status.NOT_RUN, "drained")
                                           for n in skipped)}, **head)


def again(folder: Path, number: int, results: Iterable[TestResult], of: str = FIRST, **more: object) -> Path:
    """The re-test of a minute."""
    return made(folder, f"20260730-{1015 + number}00-{'bcdefgh'[number - 1] * 4}", results,
                **{**minute(number), "retest_of": of, **more})

#!/usr/bin/env python3
"""Reports on a run of a large cluster, in each of their forms.

    python benchmarks/report.py [NODES] [MEASUREMENTS] [--forms=table,json,handover,compare…] [--judged=all] [--no-seal]
                                [--profile]

Made first, not counted: a run folder of 1,000 nodes with 500,000 measurements, of which about 75,000 are judged (with
--judged=all each): GPUs and links of each node, an all-reduce within each node with all its sizes, rounds of pairs with
a curve of bandwidths each. Three nodes are bad. Counted is what `hpcadmin report` does after its imports: the folder
read, summed up, written; each form in a process of its own, whose largest size is told.
"""

from __future__ import annotations

import cProfile
import datetime
import multiprocessing
import pstats
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hpcadmin.check import Layout, Limit, Measurement, Scope, Status, Subject, Verdict  # noqa: E402
from hpcadmin.handover.criteria import parse_terms  # noqa: E402
from hpcadmin.handover.folder import write  # noqa: E402
from hpcadmin.history_runs import compare_runs  # noqa: E402
from hpcadmin.isolate import explain  # noqa: E402
from hpcadmin.model import Cpu, Gpu, Group, Inventory, Nic, Node  # noqa: E402
from hpcadmin.records import dumps  # noqa: E402
from hpcadmin.report import Options, formats  # noqa: E402
from hpcadmin.report.whole import read_for_report  # noqa: E402
from hpcadmin.rundata import (  # noqa: E402
    Manifest,
    Measured,
    Plan,
    PlannedEntry,
    PlannedJob,
    PlannedTest,
    exit_status,
    read_run,
    write_plan,
    write_record,
)
from hpcadmin.seal import write_seal  # noqa: E402

LIMITS = (Limit("nccl_allreduce", "busbw", unit="GB/s", min=400.0, size_bytes=1 << 33, source="catalogue", nodes=1),
          Limit("osu_bw", "bandwidth", unit="MB/s", min=40000.0, size_bytes=1 << 22, source="catalogue"))
ENTRIES = (PlannedEntry("nvidia_smi", "GPUs are there and well", Scope.NODE),
           PlannedEntry("ib_links", "Ports are up at their rate", Scope.NODE),
           PlannedEntry("nccl_allreduce", "NCCL all-reduce within a node", Scope.NODE),
           PlannedEntry("osu_bw", "Bandwidth between two nodes", Scope.PAIR))
TERMS = b"""[contract]
title = "Cluster"
[[criterion]]
number = "1"
text = "Bandwidth"
checks = ["osu_bw"]
measurement = "bandwidth"
unit = "MB/s"
size_bytes = 4194304
min = 40000.0
"""
SIZES = tuple(1 << n for n in range(3, 34))


def pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Rounds in which each node meets another one, by the circle method."""
    ring = list(names)
    while True:
        half = len(ring) // 2
        yield from ((min(a, b), max(a, b)) for a, b in zip(ring[:half], ring[:half - 1:-1], strict=True))
        ring = [ring[0], ring[-1], *ring[1:-1]]


def value(usual: float, subject: Subject, number: int, bad: frozenset[str]) -> float:
    return round(usual * (0.4 if bad.intersection(subject.nodes) else 1.0) * (1 + number * 7919 % 97 / 2000), 2)


def of_node(name: str, number: int, bad: frozenset[str]) -> Iterator[tuple[str, Subject, list[Measurement]]]:
    node = Subject((name,))
    gpus = [Measurement(what, 0, "count", subject=Subject((name,), f"GPU {n}"), expected=0)
            for n in range(8) for what in ("ecc_uncorrectable", "row_remap_pending", "hw_slowdown", "nvlink_errors")]
    gpus += [Measurement("temperature", 41 + n, "C", subject=Subject((name,), f"GPU {n}"), key=False) for n in range(8)]
    yield "nvidia_smi", node, gpus
    yield "ib_links", node, [Measurement(what, good, subject=Subject((name,), f"mlx5_{n}/1"), expected=good)
                             for n in range(8) for what, good in (("state", "ACTIVE"), ("rate", 400), ("errors", 0))]
    yield "nccl_allreduce", node, [
        Measurement("busbw", value(470.0 * min(1.0, size / (1 << 28)), node, number, bad), "GB/s", size_bytes=size,
                    ranks=8, nodes=1, mode=mode, key=size == SIZES[-1] and mode == "out-of-place")
        for size in SIZES for mode in ("out-of-place", "in-place")]


def tests(names: Sequence[str], most: int, bad: frozenset[str],
          ) -> Iterator[tuple[PlannedTest, list[Measurement]]]:
    """Until there are so many measurements."""
    numbers, made = count(1), 0
    for number, name in enumerate(names):
        for check, subject, found in of_node(name, number, bad):
            made += len(found)
            yield PlannedTest(f"t{next(numbers):06d}", check, subject, job=2), found
    for number, pair in enumerate(pairs(names)):
        if made >= most:
            return
        subject = Subject(pair)
        found = [Measurement("bandwidth", value(46000.0 * min(1.0, size / 65536), subject, number, bad), "MB/s",
                             size_bytes=size, ranks=2, nodes=2, transport="IB mlx5_0", key=size == 1 << 22)
                 for size in SIZES[:20]]
        made += len(found)
        yield PlannedTest(f"t{next(numbers):06d}", "osu_bw", subject, job=2, pairs_at_once=len(names) // 2, ranks=2,
                          layout=Layout.PAIRS), found


def judged(test: PlannedTest, found: Sequence[Measurement], bad: frozenset[str]) -> list[Verdict]:
    limit = {"nccl_allreduce": LIMITS[0], "osu_bw": LIMITS[1]}.get(test.check)
    made = []
    for m in found:
        if not m.key:
            continue
        fails = limit is not None and bad.intersection(test.subject.nodes)
        made.append(Verdict(
            test.check, m.subject if m.subject.nodes else test.subject, Status.FAIL if fails else Status.PASS,
            f"{m.name} {m.value} {m.unit}, at least {limit.min}" if limit and fails else "", test.id, m, limit,
            "limit" if limit else "expected", outputs=(f"jobs/2/driver.log#{test.id}",) if fails else ()))
    return made


def make(folder: Path, nodes: int, measurements: int, all_judged: bool, sealed: bool) -> str:
    """The run folder, and its size in words."""
    names = [f"n{n:05d}" for n in range(1, nodes + 1)]
    bad = frozenset(names[::max(1, nodes // 3)][:3])
    plan_tests, verdicts, lines = [], [], 0
    folder.mkdir(parents=True)
    with (folder / "measurements.jsonl").open("w", encoding="utf-8") as stream:
        for test, found in tests(names, measurements, bad):
            plan_tests.append(test)
            verdicts += judged(test, [replace(m, key=True) for m in found] if all_judged else found, bad)
            lines += len(found)
            stream.writelines(dumps(Measured(test.id, test.check, 1, replace(m, key=True) if all_judged else m)) + "\n"
                              for m in found)
    with (folder / "verdicts.jsonl").open("w", encoding="utf-8") as stream:
        stream.writelines(dumps(v) + "\n" for v in verdicts)
    plan = Plan("network", tuple(names), ENTRIES, tuple(plan_tests), (PlannedJob(2, "suite", tuple(names)),))
    write_plan(folder, plan)
    write_record(folder, "inventory.json", Inventory(
        tuple(Node(n, n, cpu=Cpu(sockets=2, cores_per_socket=56, threads_per_core=1), serial=f"S{n}",
                   gpus=tuple(Gpu("nvidia", g, "NVIDIA H100 80GB HBM3", serial=f"{n}{g}") for g in range(8)),
                   nics=tuple(Nic(f"mlx5_{g}", f"mlx5_{g}", 1, rate_gbps=400.0) for g in range(8))) for n in names),
        (Group("group1", tuple(names)),)))
    write_record(folder, "limits.json", LIMITS)
    write_record(folder, "findings.json", tuple(explain(verdicts, plan)))
    write_record(folder, "coverage.json", ())
    write_record(folder, "manifest.json", Manifest(
        folder.name, "network", tuple(names), "complete", "2026-07-30T10:15:00+02:00", "2026-07-30T11:15:00+02:00",
        exit_status(verdicts), cluster="lab", user="hpc", host="head", version="0.1.0"))
    if sealed:
        write_seal(folder, folder.name, "2026-07-30T11:15:01+02:00")
    size = sum(path.stat().st_size for path in folder.iterdir())
    return f"{nodes:,} nodes, {lines:,} measurements, {len(verdicts):,} verdicts, {size / 1e6:,.0f} MB"


def handover(folder: Path) -> tuple[float, int]:
    """When the folder was read, and how large the page is."""
    run = read_run(folder)
    read = time.perf_counter()
    target = folder.parent / "handover"
    write(run, parse_terms(TERMS, "criteria.toml"), datetime.date(2026, 11, 30), target)
    return read, (target / "index.html").stat().st_size


def compare(folder: Path) -> tuple[float, int]:
    run = read_run(folder)
    read = time.perf_counter()
    return read, len(str(compare_runs(run, run)))


def form(folder: Path, name: str) -> tuple[float, int]:
    chosen = formats()[name]
    run = read_for_report(folder, values=chosen.values)
    read = time.perf_counter()
    return read, sum(map(len, chosen.pieces(run, Options())))


def measure(folder: Path, name: str, *, profiled: bool) -> None:
    """In a process of its own."""
    others = {"handover": handover, "compare": compare}
    import_module("jinja2"), import_module("xlsxwriter")
    profile = cProfile.Profile()
    if profiled:
        profile.enable()
    begin, cpu = time.perf_counter(), time.process_time()
    read, size = others[name](folder) if name in others else form(folder, name)
    end, used = time.perf_counter(), time.process_time() - cpu
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"| {name} | {read - begin:.2f} | {end - read:.2f} | {end - begin:.2f} | {used:.2f} | {largest} | {size:,} |",
          flush=True)
    if profiled:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = next((word.partition("=")[2] for word in sys.argv if word.startswith("--forms=")), "table").split(",")
    with tempfile.TemporaryDirectory(prefix="report-") as scratch:
        folder = Path(scratch) / "20260730-101500-network"
        maker = multiprocessing.get_context("fork").Pool(1)
        nodes, measurements = int(words[0] if words else 1000), int(words[1] if len(words) > 1 else 500_000)
        head = maker.apply(make, (folder, nodes, measurements, "--judged=all" in sys.argv,
                                  "--no-seal" not in sys.argv))
        maker.terminate()
        print(f"{head}\n\n| form | s to read | s to write | s | CPU s | MiB | bytes |\n{'|---' * 7}|", flush=True)
        for name in chosen:
            own = multiprocessing.get_context("fork").Process(
                target=measure, args=(folder, name), kwargs={"profiled": "--profile" in sys.argv})
            own.start()
            own.join()


if __name__ == "__main__":
    main()

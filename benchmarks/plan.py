"""Planning alone: the suite `network` on nodes with 8 GPUs and 8 ports, and one trivial check over sampled pairs.

    python benchmarks/plan.py [--nodes 4096] [--pairs 16]

Each case in a process of its own: CPU seconds of the plan and of its plan.json, and the most memory that both took.
Prints a Markdown table. Aim: at most 2 s and 300 MiB for the plan.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from hpcadmin.check import Check, NodeView, PortView, Scope, Step
from hpcadmin.plan import make_plan
from hpcadmin.plan_facts import ON_NODES, Facts
from hpcadmin.registry import Suite, SuiteEntry, load_checks, load_suite
from hpcadmin.rundata import write_plan
from hpcadmin.site import Site

LEAF = 32           # nodes


def facts_of(names: list[str], checks: dict[str, Check]) -> Facts:
    """8 GPUs and 8 ports, all tools there; each node has objects of its own, as they come from an inventory."""
    tools = {t: f"/opt/tests/bin/{t}" for check in checks.values() for t in (*check.needs, *check.uses)}
    programs = {p: f"/shared/bin/{p}" for check in checks.values() for p in check.builds}
    return Facts(
        {n: view(n, number) for number, n in enumerate(names)}, has={w: dict.fromkeys(names, True) for w in ON_NODES},
        tools={n: dict(tools) for n in names}, programs=programs, shared_dir="/shared",
        switches=({n: f"leaf{number // LEAF:03d}" for number, n in enumerate(names)},))


def view(name: str, number: int) -> NodeView:
    ports = tuple(PortView(f"mlx5_{i}", 1, "InfiniBand", 400.0, "ACTIVE", f"ibs{i}", f"0000:{i + 16:02x}:00.0", i // 4,
                           tuple(range(i // 4 * 56, i // 4 * 56 + 56)), i, i) for i in range(8))
    return NodeView(name, f"10.0.{number // 250}.{number % 250 + 1}", name, 112, 2_000_000, 8, "NVIDIA H100 80GB HBM3",
                    tuple(f"GPU-{number:x}-{i}" for i in range(8)), tuple(f"0000:{i + 64:02x}:00.0" for i in range(8)),
                    rdma_devices=tuple(p.device for p in ports), ports=ports, gpu_numa=(0, 0, 0, 0, 1, 1, 1, 1))


def measure(case: str, nodes: int, pairs: str, answer: multiprocessing.SimpleQueue[str]) -> None:
    names = [f"node{i:05d}" for i in range(nodes)]
    checks = load_checks()
    if case == "network":
        suite = load_suite("network", Site(), checks)
    else:
        trivial = Check("trivial", "Trivial", Scope.PAIR, lambda c: (Step(("/bin/true",)),), lambda o, c: [])
        checks = {"trivial": trivial}
        suite = replace(Suite("trivial", "Trivial", (SuiteEntry(("trivial",)),)),
                        pairs=int(pairs) if pairs.isdecimal() else pairs)
    facts = facts_of(names, checks)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    plan = make_plan(suite, checks, facts, names)
    planned = time.process_time() - start
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        write_plan(Path(folder), plan)
        written = time.process_time() - start
        size = (Path(folder) / "plan.json").stat().st_size
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer.put(f"| {case}, {nodes:,} nodes, pairs = {suite.pairs} | {len(plan.tests):,} | {len(plan.jobs)} | "
               f"{planned:.2f} | {most // 1024} (before: {before // 1024}) | {written:.2f} | {size / 1e6:.1f} | "
               f"{whole // 1024} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--pairs", default="16")
    options = parser.parse_args()
    print("| case | tests | jobs | plan, CPU s | MiB | plan.json, CPU s | MB | MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for case in ("network", "trivial"):
        answer: multiprocessing.SimpleQueue[str] = multiprocessing.SimpleQueue()
        process = multiprocessing.Process(target=measure, args=(case, options.nodes, options.pairs, answer))
        process.start()
        process.join()
        print(answer.get() if process.exitcode == 0 else f"| {case} | failed |")


if __name__ == "__main__":
    main()

"""Judging alone: 200,000 measurements of 10,000 nodes, against the catalogue, what is derived, and peers.

    python benchmarks/judge.py [--nodes 10000]

20 values for each node: of itself the bus bandwidth of NCCL and four facts, and of each of its pairs RDMA over eight
ports and a curve of MPI. One node in a hundred is slow, so that there are failures, comparisons and reasons to write.
Prints a Markdown table. Aim: at most 5 s.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

from hpcadmin.catalogue import load_limits
from hpcadmin.check import Direction, Measurement, Subject
from hpcadmin.judge import judge
from hpcadmin.model import Cpu, Gpu, Inventory, Nic, Node
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.site import Site

RAILS = tuple(f"mlx5_{i}" for i in range(8))
NDR = "400 Gb/sec (4X NDR)"
SIZES = tuple(4 << p for p in range(0, 21, 3))       # 7 points of a curve, of which the last is judged
ONE = Direction.ONE_WAY


def inventory(nodes: list[str]) -> Inventory:
    cpu = Cpu("Xeon", "x86_64", 2, 56, 1)
    gpus = tuple(Gpu("nvidia", i, "NVIDIA H100 80GB HBM3", nvlinks_active=18) for i in range(8))
    nics = tuple(Nic(r, r, 1, link_layer="InfiniBand", state="ACTIVE", rate_gbps=400.0, rate_text=NDR,
                     active_mtu=4096, pcie_gen=5, pcie_width=16) for r in RAILS)
    links = tuple(tuple("X" if i == j else "NV18" for j in range(8)) for i in range(8))
    return Inventory(tuple(Node(n, n, cpu=cpu, gpus=gpus, gpu_links=links, nics=nics) for n in nodes))


def results(nodes: list[str]) -> Iterator[TestResult]:
    number, count = 0, len(nodes)
    slow = set(nodes[50::100])

    def test(check: str, subject: Subject, at_once: int | None, *values: Measurement) -> TestResult:
        nonlocal number
        number += 1
        made = PlannedTest(f"t{number:07d}", check, subject, (), 1, at_once)
        return TestResult(made, values, outputs=(f"jobs/1/{subject.nodes[0]}.log#{made.id}",))

    for node in nodes:
        here = Subject((node,))
        busbw = 180.0 if node in slow else 470.0 + number % 7
        facts = [Measurement(f"fact{i}", 8, subject=here, expected=8) for i in range(4)]
        yield test("nccl_allreduce", here, None,
                   Measurement("busbw", busbw, "GB/s", 8 << 30, subject=here, ranks=8, nodes=1), *facts)
    for shift in (1, 3):                              # each node is in two pairs
        for place in range(0, count, 2):
            pair = Subject((nodes[place], nodes[(place + shift) % count]))
            share = 0.4 if slow & set(pair.nodes) else 1.0
            more = {"subject": pair, "ranks": 2, "nodes": 2, "pairs_at_once": count // 2}
            for rail in RAILS:
                yield test("ib_write_bw", pair, count // 2, Measurement(
                    "bandwidth", (394.0 + number % 3) * share, "Gb/s", 65536, ONE, rail=rail, transport="InfiniBand RC",
                    **more))                          # type: ignore[arg-type]
            yield test("osu_bw", pair, count // 2, *[Measurement(
                "bandwidth", min(48000.0, 12.0 * size) * share, "MB/s", size, ONE, key=size == SIZES[-1],
                **more) for size in SIZES])           # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    nodes = [f"node{i:05d}" for i in range(parser.parse_args().nodes)]
    made, hardware, limits = list(results(nodes)), inventory(nodes), load_limits(Site())
    values = sum(len(r.measurements) for r in made)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin = time.process_time(), time.perf_counter()
    verdicts = judge(made, limits, hardware)
    cpu, wall = time.process_time() - begin[0], time.perf_counter() - begin[1]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("| nodes | measurements | verdicts | s | CPU s | MiB before | MiB after |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    print(f"| {len(nodes):,} | {values:,} | {len(verdicts):,} | {wall:.2f} | {cpu:.2f} | {before:.0f} | {after:.0f} |")


if __name__ == "__main__":
    main()

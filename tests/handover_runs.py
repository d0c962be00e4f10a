"""Run folders of a cluster with GPUs, adapters, leaf switches, size curves and raw outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from made_runs import ENTRIES, PINGPONG, bandwidth, node_results, rounds, write_run

from hpcadmin.check import Limit, Measurement, Scope, Step, Subject
from hpcadmin.frames import Frame, encode
from hpcadmin.model import Cpu, Fabric, FabricDevice, Gpu, Group, Inventory, Nic, Node, OddOneOut, SwitchPort
from hpcadmin.rundata import Expected, PlannedEntry, PlannedTest, TestResult, ToolFound

LEAF = 16                            # nodes of a leaf switch
SIZES = tuple(1 << n for n in range(10, 24))
LIMITS = (PINGPONG, Limit("nccl_allreduce", "busbw", unit="GB/s", min=300.0, size_bytes=1 << 23,
                          source="contract, annex B", date="2026-06-01"))
MORE = (*ENTRIES, PlannedEntry("nccl_allreduce", "NCCL all-reduce within a node", Scope.NODE, covers=("gpu",)))


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"gpu{i:04d}" for i in range(1, count + 1))


def leaf_of(place: int) -> str:
    return f"leaf{place // LEAF + 1:02d}"


def cluster_inventory(nodes: Sequence[str], gpus: int = 8, simulated: str = "") -> Inventory:
    made = tuple(_node(i, n, gpus, simulated) for i, n in enumerate(nodes))
    leaves = sorted({leaf_of(i) for i in range(len(nodes))})
    switches = tuple(FabricDevice(leaf, "switch", f"0x{0xb8000 + k:016x}", level=1, ports=tuple(
        SwitchPort(p + 1, f"{nodes[k * LEAF + p // 2]} mlx5_{p % 2}",
                   f"0x{(k * LEAF + p // 2) * 16 + p % 2 + 1:016x}", 1)
        for p in range(2 * min(LEAF, len(nodes) - k * LEAF)))) for k, leaf in enumerate(leaves))
    return Inventory(made, (Group("8xh100", tuple(nodes)),),
                     (OddOneOut(nodes[-1], f"{nodes[-1]}: BIOS 1.2, the group has 1.3", soft=True),),
                     created="2026-07-30T10:14:00+02:00", fabrics=(Fabric("infiniband", switches),))


def _node(place: int, name: str, gpus: int, simulated: str) -> Node:
    nics = tuple(Nic(f"mlx5_{k}", f"mlx5_{k}", 1, f"ib{k}", "InfiniBand", "ACTIVE", "LinkUp", 400.0,
                     "400 Gb/sec (4X NDR)", guid=f"0x{place * 16 + k + 1:016x}", firmware="28.39.1002",
                     psid="MT_0000000838", model="ConnectX-7", serial=f"MT2412X{place:04d}{k}") for k in range(2))
    cards = tuple(Gpu("nvidia", k, "NVIDIA H100 80GB HBM3", f"GPU-{place:08x}-{k:04x}-4c1e-9d0a-{place * 8 + k:012x}",
                      f"16536{place:05d}{k}", vbios="96.00.74.00.01") for k in range(gpus))
    return Node(name, name, cpu=Cpu("Intel Xeon Platinum 8480C", sockets=2, cores_per_socket=56, threads_per_core=1),
                memory_mib=2_097_152, gpus=cards, nics=nics, vendor="Supplier", product="XE9680",
                serial=f"SN{place:06d}", bios="1.3", bios_date="2026-03-01", os="Rocky Linux 9.4",
                kernel="5.14.0-427", gpu_driver="550.90.07", simulated=simulated)


def _steady(*words: object) -> float:
    """Between 0 and 1, the same each time: tests draw nothing."""
    return sum((i + 1) * b for i, b in enumerate(repr(words).encode())) * 2654435761 % 1000003 / 1000003


def pair_value(a: str, b: str, slow: str, apart: bool) -> float:
    if slow in (a, b):
        return 11.0 + _steady(a, b)
    return (860.0 if apart else 900.0) + 40.0 * _steady(a, b)


def results(nodes: Sequence[str], slow: str, most_rounds: int) -> Iterator[TestResult]:
    yield from node_results(nodes, start=900_001)
    place = {n: i for i, n in enumerate(nodes)}
    number = itertools.count(1)
    for group in rounds(nodes)[:most_rounds]:
        for a, b in group:
            test = PlannedTest(f"t{next(number):06d}", "mpi_pingpong", Subject((a, b)), (Step(("true",)),), 2,
                               len(group), 2)
            value = pair_value(a, b, slow, leaf_of(place[a]) != leaf_of(place[b]))
            yield TestResult(test, (bandwidth(value),), outputs=(f"jobs/2/{a}.log#{test.id}",))
    for i, n in enumerate(nodes):
        test = PlannedTest(f"t{950_000 + i}", "nccl_allreduce", Subject((n,)), (Step(("nccl",)),), 2, ranks=8)
        curve = tuple(Measurement("busbw", round(360.0 * size / (size + 250_000) * (0.97 + 0.03 * _steady(n, size)), 3),
                                  "GB/s", size_bytes=size, ranks=8, nodes=1, key=size == SIZES[-1]) for size in SIZES)
        yield TestResult(test, curve, outputs=(f"jobs/2/{n}.log#{test.id}",))


def cluster(folder: Path, count: int, *, slow: str = "gpu0003", most_rounds: int = 10_000, simulated: str = "",
            ) -> Path:
    """All pairs, or so many rounds of them; one node is slow to all others."""
    nodes = node_names(count)
    found = list(results(nodes, slow, most_rounds))
    plan = {"expected": (Expected(nodes, 8, ("mlx5_0/1", "mlx5_1/1")),),
            "leaves": {n: leaf_of(i) for i, n in enumerate(nodes)},
            "tools": (ToolFound("all_reduce_perf", nodes, "/opt/nccl-tests/all_reduce_perf", "PATH", "2.13.9"),)}
    path = write_run(folder, found, nodes, limits=LIMITS, inv=cluster_inventory(nodes, simulated=simulated),
                     entries=MORE, plan=plan, cluster="atlas")
    _raw(path, found, slow)
    return path


def _raw(path: Path, found: Sequence[TestResult], slow: str) -> None:
    """The logs of what the slow node took part in."""
    logs: dict[str, list[bytes]] = {}
    for r in found:
        if slow in r.test.subject.nodes:
            body = f"# mpi_pingpong {' '.join(r.test.subject.nodes)}\n262144 11.4\n<script>alert(1)</script>\n"
            frame = Frame(r.test.id, 0, "ranks", slow, slow, 0, 1.0, 2.0, frozenset(), body.encode())
            logs.setdefault(r.outputs[0].partition("#")[0], []).append(encode(frame))
    for name, frames in logs.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"".join(frames))

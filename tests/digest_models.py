"""Every kind of node of which the right lines are known, as an inventory has it, and what Slurm must show for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import conf_models as m

from hpcadmin.model import Cpu, Gpu, Node, NumaNode

V100_LINKS = ((0, 1, 1, 2, 2, 0, 0, 0), (1, 0, 2, 1, 0, 2, 0, 0), (1, 2, 0, 2, 0, 0, 1, 0), (2, 1, 2, 0, 0, 0, 0, 1),
              (2, 0, 0, 0, 0, 1, 1, 2), (0, 2, 0, 0, 1, 0, 2, 1), (0, 0, 1, 0, 1, 2, 0, 2), (0, 0, 0, 1, 2, 1, 2, 0))


@dataclass(frozen=True)
class Kind:
    """gres: what scontrol shows. sockets: as configured and found. order: CUDA_VISIBLE_DEVICES of a job with all."""

    node: Node
    gres: str
    sockets: int
    order: str = ""
    links: tuple[str, ...] = ()          # Links= of the first lines


def cube() -> tuple[tuple[str, ...], ...]:
    def label(i: int, j: int) -> str:
        return "X" if i == j else f"NV{V100_LINKS[i][j]}" if V100_LINKS[i][j] else "SYS"
    return tuple(tuple(label(i, j) for j in range(8)) for i in range(8))


def amd(model: str, where: Cpu, numa: list[int], renders: list[int]) -> tuple[Gpu, ...]:
    return tuple(Gpu("amd", i, model, f"amd-{i}", "", f"0000:{0x11 + 0x10 * i:02x}:00.0", render,
                     f"/dev/dri/renderD{render}", 65536, numa=n, local_cpus=m.near(where, n), render=render)
                 for i, (n, render) in enumerate(zip(numa, renders, strict=True)))


def xgmi(count: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("X" if i == j else "XGMI" for j in range(count)) for i in range(count))


def node(model: str, where: Cpu, numa: list[int], minors: list[int] | None = None,
         links: tuple[tuple[str, ...], ...] = ()) -> Node:
    return Node("", cpu=where, memory_mib=515855, gpus=m.gpus(model, where, numa, minors), gpu_links=links)


def grace(sockets: int) -> Cpu:
    """With the GPUs' memory as NUMA nodes that have no CPUs."""
    made = m.cpu(sockets, 72, 1)
    apart = tuple(NumaNode(sockets + 8 * place, (), 96000) for place in range(sockets))
    return replace(made, numa=(*made.numa, *apart), architecture="aarch64")


HALF = [0, 0, 0, 0, 1, 1, 1, 1]
DGX1, A100_NPS1, P5, B200, B300, VM, L40S, PCIE, RTX, UNEVEN = (
    m.cpu(2, cores) for cores in (20, 64, 48, 40, 48, 32, 96, 28, 56, 8))
SNC = m.cpu(2, 56, 2, numa_per_socket=2)
GRACE2, GRACE1, GRACE4 = grace(2), grace(1), grace(4)
HGX4, MIXED = m.cpu(2, 32), m.cpu(2, 14)
FRONTIER, MI300 = m.cpu(1, 64, 2, numa_per_socket=4), m.cpu(2, 56)
FOUR = m.cpu(4, 6)
EPYC = replace(m.cpu(2, 64), l3=tuple(tuple(c for core in range(8 * n, 8 * n + 8) for c in (core, core + 128))
                                      for n in range(16)))


def at_l3() -> tuple[Gpu, ...]:
    return tuple(replace(gpu, local_cpus=EPYC.l3[2 * place]) for place, gpu in enumerate(
        m.gpus("NVIDIA A100 80GB PCIe", EPYC, HALF)))


def over_two() -> tuple[Gpu, ...]:
    """One GPU at two of four sockets, which is none."""
    gpu = m.gpus("NVIDIA L4", FOUR, [0])[0]
    return (replace(gpu, numa=None, local_cpus=m.near(FOUR, 0, 1)),)


PACKAGES: dict[str, Kind] = {
    "dgx1": Kind(node("Tesla V100-SXM2-16GB", DGX1, HALF, None, cube()), "gpu:v100:8(S:0-1)", 2, "0,1,2,3,4,5,6,7",
                 ("-1,1,1,2,2,0,0,0", "1,-1,2,1,0,2,0,0")),
    "dgxa100nps1": Kind(node("NVIDIA A100-SXM4-40GB", A100_NPS1, HALF, [2, 3, 0, 1, 6, 7, 4, 5], m.all_linked(8, 12)),
                        "gpu:a100:8(S:0-1)", 2, "0,1,2,3,4,5,6,7", ("-1,12,12,12,12,12,12,12",)),
    "h100": Kind(m.H100, "gpu:h100:8(S:0-1)", 2, "0,1,2,3,4,5,6,7", ("-1,18,18,18,18,18,18,18",)),
    "p5": Kind(node("NVIDIA H100 80GB HBM3", P5, HALF, None, m.all_linked(8, 18)), "gpu:h100:8(S:0-1)", 2),
    "b200": Kind(node("NVIDIA B200", B200, HALF, [4, 5, 6, 7, 0, 1, 2, 3], m.all_linked(8, 18)), "gpu:b200:8(S:0-1)", 2,
                 "0,1,2,3,4,5,6,7"),
    "b300": Kind(node("NVIDIA B300 SXM6 AC", B300, HALF, [7, 6, 5, 4, 3, 2, 1, 0], m.all_linked(8, 18)),
                 "gpu:b300:8(S:0-1)", 2),
    "h100vm": Kind(node("NVIDIA H100 80GB HBM3", VM, HALF, [4, 5, 6, 7, 0, 1, 2, 3], m.all_linked(8, 18)),
                   "gpu:h100:8(S:0-1)", 2),
    "gb200": Kind(node("NVIDIA GB200", GRACE2, [0, 0, 1, 1], None, m.all_linked(4, 18)), "gpu:gb200:4(S:0-1)", 2,
                  "0,1,2,3", ("-1,18,18,18",)),
    "gh200": Kind(node("NVIDIA GH200 480GB", GRACE1, [0]), "gpu:gh200:1", 1, "0"),
    "gh200x4": Kind(node("NVIDIA GH200 120GB", GRACE4, [0, 1, 2, 3], None, m.all_linked(4, 6)), "gpu:gh200:4(S:0-3)", 4,
                    "0,1,2,3", ("-1,6,6,6",)),
    "l40s": Kind(node("NVIDIA L40S", L40S, [0, 0, 1, 1]), "gpu:l40s:4(S:0-1)", 2, "0,1,2,3"),
    "a100pcie": Kind(node("NVIDIA A100 80GB PCIe", PCIE, HALF, None, m.pairs(8, 12)), "gpu:a100:8(S:0-1)", 2,
                     links=("-1,12,0,0,0,0,0,0", "12,-1,0,0,0,0,0,0")),
    "rtx4090": Kind(node("NVIDIA GeForce RTX 4090", RTX, HALF), "gpu:rtx4090:8(S:0-1)", 2),
    "uneven": Kind(node("NVIDIA GeForce RTX 3090", UNEVEN, [1, 0, 0, 0, 0]), "gpu:rtx3090:5(S:0-1)", 2, "0,1,2,3,4"),
    "mi300x": Kind(Node("", cpu=MI300, memory_mib=515855, gpu_links=xgmi(8), gpus=amd(
        "AMD Instinct MI300X", MI300, HALF, [128 + 8 * n for n in range(8)])), "gpu:mi300x:8(S:0-1)", 2,
        links=("-1,1,1,1,1,1,1,1",)),
    "t4": Kind(m.T4, "gpu:t4:1", 1, "0"),
    "mixed": Kind(Node("", cpu=MIXED, memory_mib=257000, gpus=(
        *m.gpus("Tesla P100-PCIE-16GB", MIXED, [0, 0]), replace(m.gpus("NVIDIA RTX A5000", MIXED, [0, 0, 1])[2]))),
        "gpu:p100:2(S:0),gpu:a5000:1(S:1)", 2),
    "hgx4": Kind(node("NVIDIA A100-SXM4-40GB", HGX4, [0, 0, 1, 1], None, m.all_linked(4, 4)), "gpu:a100:4(S:0-1)", 2,
                 "0,1,2,3", ("-1,4,4,4",)),
    "foursockets": Kind(Node("", cpu=FOUR, memory_mib=257000, gpus=over_two()), "gpu:l4:1", 4, "0"),
    "cpuonly": Kind(m.BIG_CPU, "", 2),
}
NUMA: dict[str, Kind] = {
    "dgxa100": Kind(m.NPS4, "gpu:a100:8(S:1,3,5,7)", 8, "0,1,2,3,4,5,6,7", ("-1,12,12,12,12,12,12,12",)),
    "snc2": Kind(node("NVIDIA H100 80GB HBM3", SNC, [0, 0, 1, 1, 2, 2, 3, 3], None, m.all_linked(8, 18)),
                 "gpu:h100:8(S:0-3)", 4),
    "mi250x": Kind(Node("", cpu=FRONTIER, memory_mib=515855, gpu_links=xgmi(8), gpus=amd(
        "AMD Instinct MI250X", FRONTIER, [3, 3, 1, 1, 0, 0, 2, 2], list(range(128, 136)))), "gpu:mi250x:8(S:0-3)", 4),
}
L3: dict[str, Kind] = {
    "l3": Kind(Node("", cpu=EPYC, memory_mib=515855, gpus=at_l3()), "gpu:a100:8(S:0,2,4,6,8,10,12,14)", 16),
}
CLUSTERS = {"packages": PACKAGES, "numa": NUMA, "l3": L3}

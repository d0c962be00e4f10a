"""The machines of the digest (and beside it) as model records: what each is like, not what is written for it."""

from __future__ import annotations

from dataclasses import replace

import conf_models as m

from hpcadmin.model import Core, Cpu, Gpu, MigDevice, Node, NumaNode

CUBE = ((-1, 1, 1, 2, 2, 0, 0, 0), (1, -1, 2, 1, 0, 2, 0, 0), (1, 2, -1, 2, 0, 0, 1, 0), (2, 1, 2, -1, 0, 0, 0, 1),
        (2, 0, 0, 0, -1, 1, 1, 2), (0, 2, 0, 0, 1, -1, 2, 1), (0, 0, 1, 0, 1, 2, -1, 2), (0, 0, 0, 1, 2, 1, 2, -1))


def labels(counts: tuple[tuple[int, ...], ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("X" if n == -1 else f"NV{n}" if n else "SYS" for n in row) for row in counts)


def node(cpu: Cpu, gpus: tuple[Gpu, ...], links: tuple[tuple[str, ...], ...] = (), memory: int = 515855) -> Node:
    return Node("", cpu=cpu, memory_mib=memory, gpus=gpus, gpu_links=links)


def with_l3(cpu: Cpu, cores: int) -> Cpu:
    """Each run of so many cores shares an L3 cache."""
    return replace(cpu, l3=tuple(tuple(sorted(c for core in cpu.cores[at:at + cores] for c in core.cpus))
                                 for at in range(0, len(cpu.cores), cores)))


def memory_only(cpu: Cpu, *ids: int, mib: int = 188416) -> Cpu:
    return replace(cpu, numa=(*cpu.numa, *(NumaNode(number, (), mib) for number in ids)))


def amd(model: str, cpu: Cpu, numa: list[int], minors: list[int], *, partition: str = "",
        pci: list[str] | None = None) -> tuple[Gpu, ...]:
    return tuple(Gpu("amd", i, model, pci=pci[i] if pci else f"0000:{0x10 + i:02x}:00.0", minor=minor,
                     device_file=f"/dev/dri/renderD{minor}", memory_mib=65520, numa=n, local_cpus=m.near(cpu, n),
                     render=minor, partition=partition) for i, (n, minor) in enumerate(zip(numa, minors, strict=True)))


_DGX1_CPU = m.cpu(2, 20)
DGX1 = node(_DGX1_CPU, m.gpus("Tesla V100-SXM2-16GB", _DGX1_CPU, [0] * 4 + [1] * 4), labels(CUBE))

A100_MINORS = [2, 3, 0, 1, 6, 7, 4, 5]
_NPS1_CPU = m.cpu(2, 64)
NPS1 = node(_NPS1_CPU, m.gpus("NVIDIA A100-SXM4-40GB", _NPS1_CPU, [0] * 4 + [1] * 4, A100_MINORS), m.all_linked(8, 12))

_SNC2_CPU = m.cpu(2, 56, 2, numa_per_socket=2)
SNC2 = node(_SNC2_CPU, m.gpus("NVIDIA H200", _SNC2_CPU, [0, 0, 1, 1, 2, 2, 3, 3]), m.all_linked(8, 18))

_P5_CPU = m.cpu(2, 48)
P5 = node(_P5_CPU, m.gpus("NVIDIA H100 80GB HBM3", _P5_CPU, [0] * 4 + [1] * 4), m.all_linked(8, 18))

_B200_CPU = m.cpu(2, 40)
B200 = node(_B200_CPU, m.gpus("NVIDIA B200", _B200_CPU, [0] * 4 + [1] * 4, [4, 5, 6, 7, 0, 1, 2, 3]),
            m.all_linked(8, 1))
_B300_CPU = m.cpu(2, 48)
B300 = node(_B300_CPU, m.gpus("NVIDIA B300 SXM6 AC", _B300_CPU, [0] * 4 + [1] * 4, [7, 6, 5, 4, 3, 2, 1, 0]),
            m.all_linked(8, 1))
_VM_CPU = m.cpu(2, 32)
H100_VM = node(_VM_CPU, m.gpus("NVIDIA H100 80GB HBM3", _VM_CPU, [0] * 4 + [1] * 4, [4, 5, 6, 7, 0, 1, 2, 3]),
               m.all_linked(8, 1))

_GRACE2 = memory_only(m.cpu(2, 72, 1), 2, 10, 18, 26)
GB200 = node(_GRACE2, m.gpus("NVIDIA GB200", _GRACE2, [0, 0, 1, 1]), m.all_linked(4, 18), 957000 + 4 * 188416)
_GRACE1 = memory_only(m.cpu(1, 72, 1), 1, mib=96768)
GH200 = node(_GRACE1, m.gpus("NVIDIA GH200 480GB", _GRACE1, [0]), (), 490000 + 96768)
_GRACE4 = memory_only(m.cpu(4, 72, 1), 4, 12, 20, 28, mib=96768)
GH200X4 = node(_GRACE4, m.gpus("NVIDIA GH200 120GB", _GRACE4, [0, 1, 2, 3]), m.all_linked(4, 6), 480000 + 4 * 96768)

_L40S_CPU = m.cpu(2, 96)
L40S = node(_L40S_CPU, m.gpus("NVIDIA L40S", _L40S_CPU, [0, 0, 1, 1]))

_PAIRS_CPU = m.cpu(2, 28)
A100_PAIRS = node(_PAIRS_CPU, m.gpus("NVIDIA A100 80GB PCIe", _PAIRS_CPU, [0] * 4 + [1] * 4), m.pairs(8, 12))
A40_PAIRS = node(_PAIRS_CPU, m.gpus("NVIDIA A40", _PAIRS_CPU, [0] * 4 + [1] * 4), m.pairs(8, 4))

_CONSUMER_CPU = m.cpu(2, 56)
RTX4090 = node(_CONSUMER_CPU, m.gpus("NVIDIA GeForce RTX 4090", _CONSUMER_CPU, [0] * 4 + [1] * 4),
               tuple(tuple("X" if a == b else "SYS" for b in range(8)) for a in range(8)))
_UNEVEN_CPU = m.cpu(2, 8)
UNEVEN = node(_UNEVEN_CPU, m.gpus("NVIDIA GeForce RTX 3090", _UNEVEN_CPU, [1, 0, 0, 0, 0]))

_LUMI_CPU = m.cpu(1, 64, 2, numa_per_socket=4)
MI250X = node(_LUMI_CPU, amd("AMD Instinct MI250X", _LUMI_CPU, [3, 3, 1, 1, 0, 0, 2, 2], list(range(128, 136))))
_MI300_CPU = m.cpu(2, 56)
MI300X = node(_MI300_CPU, amd("AMD Instinct MI300X OAM", _MI300_CPU, [0] * 4 + [1] * 4, list(range(128, 192, 8)),
                              partition="SPX/NPS1"),
              tuple(tuple("X" if a == b else "XGMI" for b in range(8)) for a in range(8)))
# Two GPUs, each as eight partitions, listed in no order.
_CPX = amd("AMD Instinct MI300X OAM", _MI300_CPU, [0] * 8 + [1] * 8, list(range(128, 144)), partition="CPX/NPS4",
           pci=["0000:11:00.0"] * 8 + ["0000:91:00.0"] * 8)
CPX = node(_MI300_CPU, (*_CPX[::-2], *_CPX[::2]))

_MIG_CPU = m.cpu(2, 64)
_MIG_GPUS = m.gpus("NVIDIA A100-SXM4-40GB", _MIG_CPU, [0, 1])
MIG_PARTS = (MigDevice(0, "3g.20gb", "MIG-0", 2, 0, 19968), MigDevice(1, "2g.10gb", "MIG-1", 5, 0, 9984),
             MigDevice(2, "2g.10gb", "MIG-2", 3, 0, 9984))
MIG = node(_MIG_CPU, (replace(_MIG_GPUS[0], mig="Enabled", mig_pending="Enabled", mig_devices=MIG_PARTS),))
MIG_AND_WHOLE = node(_MIG_CPU, (*MIG.gpus, replace(_MIG_GPUS[1], mig="Disabled")))

_P100_CPU = m.cpu(2, 14)
_P100 = m.gpus("Tesla P100-PCIE-16GB", _P100_CPU, [0, 0, 1])
MIXED = node(_P100_CPU, (*_P100[:2], replace(_P100[2], model="NVIDIA RTX A5000")))
ALTERNATING = node(_P100_CPU, (_P100[0], replace(_P100[1], model="NVIDIA RTX A5000"), _P100[2]))

_DIRECT_CPU = m.cpu(2, 32)
DIRECT4 = node(_DIRECT_CPU, m.gpus("NVIDIA A100-SXM4-40GB", _DIRECT_CPU, [0, 0, 1, 1]), m.all_linked(4, 4))

_FOUR_CPU = m.cpu(4, 12)
TWO_OF_FOUR = node(_FOUR_CPU, tuple(replace(gpu, numa=None, local_cpus=m.near(_FOUR_CPU, 0, 1))
                                    for gpu in m.gpus("NVIDIA L4", _FOUR_CPU, [0])))

# A virtual machine of one package and one NUMA node, where each GPU is near one L3 cache.
_L3_CPU = with_l3(m.cpu(1, 32, 2), 8)
L3_NODE = node(_L3_CPU, tuple(replace(gpu, numa=0, local_cpus=_L3_CPU.l3[n]) for n, gpu in enumerate(
    m.gpus("NVIDIA A10", _L3_CPU, [0] * 4))))


def even_odd() -> Cpu:
    """Even CPUs on socket 0, odd ones on socket 1, as some firmware has it; two sockets of four cores with SMT."""
    cores = tuple(Core(i // 4, i // 4, (2 * (i % 4) + i // 4, 2 * (i % 4) + i // 4 + 8)) for i in range(8))
    numa = tuple(NumaNode(n, tuple(sorted(c for core in cores if core.numa == n for c in core.cpus))) for n in (0, 1))
    return Cpu("a CPU", "x86_64", 2, 4, 2, cores, numa)

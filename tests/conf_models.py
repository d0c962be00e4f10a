"""Inventories of known machines as model records, for the tests of configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpcadmin.conf.parts import Rendering
from hpcadmin.model import Core, Cpu, Failed, Gpu, Group, Inventory, Nic, Node, NumaNode, OddOneOut
from hpcadmin.site import Cluster, NodeGroup, Site, SlurmSite

SITE = Site(source="", cluster=Cluster(name="thinktank", controllers=("head(10.0.0.1)",)))


def group(**keys: Any) -> Site:
    """A site whose [nodes.gpu] is n1, with these keys."""
    return replace(SITE, nodes=(NodeGroup("gpu", "n1", **keys),))


def words(result: Rendering, key: str, node: str = "n1") -> str:
    """The value of a key of the node's line."""
    assert result.problems == ()
    line = next(text for text in result.files["slurm.conf"].splitlines() if text.startswith(f"NodeName={node} "))
    return dict(word.split("=", 1) for word in line.split("#")[0].split()).get(key, "")


def site(**slurm: object) -> Site:
    return replace(SITE, slurm=SlurmSite(**slurm))


def cpu(sockets: int, cores: int, threads: int = 2, numa_per_socket: int = 1) -> Cpu:
    """Linux's usual numbering: all first threads, socket by socket, then all second ones."""
    total = sockets * cores
    per_numa = cores // numa_per_socket
    listed = tuple(Core(i // cores, i // per_numa, tuple(i + t * total for t in range(threads))) for i in range(total))
    nodes = tuple(NumaNode(n, tuple(sorted(c for core in listed if core.numa == n for c in core.cpus)), 1000)
                  for n in range(sockets * numa_per_socket))
    return Cpu("a CPU", "x86_64", sockets, cores, threads, listed, nodes)


def near(where: Cpu, *numa: int) -> tuple[int, ...]:
    return tuple(sorted(c for n in where.numa if n.id in numa for c in n.cpus))


def gpus(model: str, where: Cpu, numa: list[int], minors: list[int] | None = None) -> tuple[Gpu, ...]:
    minors = minors or list(range(len(numa)))
    return tuple(Gpu("nvidia", i, model, f"GPU-{i}", f"{i:013d}", f"0000:{0x1b + 0x10 * i:02x}:00.0", minor,
                     f"/dev/nvidia{minor}", 81559, numa=n, local_cpus=near(where, n))
                 for i, (n, minor) in enumerate(zip(numa, minors, strict=True)))


def all_linked(count: int, links: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("X" if i == j else f"NV{links}" for j in range(count)) for i in range(count))


def pairs(count: int, links: int) -> tuple[tuple[str, ...], ...]:
    """NVLink bridges between neighbours, SYS between sockets."""
    def label(i: int, j: int) -> str:
        if i == j:
            return "X"
        return f"NV{links}" if i // 2 == j // 2 else "NODE" if i // (count // 2) == j // (count // 2) else "SYS"
    return tuple(tuple(label(i, j) for j in range(count)) for i in range(count))


def ndr(count: int = 8) -> tuple[Nic, ...]:
    return tuple(Nic(f"mlx5_{i}", rdma=f"mlx5_{i}", port=1, link_layer="InfiniBand", state="ACTIVE", rate_gbps=400.0,
                     rate_text="400 Gb/sec (4X NDR)") for i in range(count))


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i:02d}" for i in range(1, count + 1)]


def inventory(*groups: tuple[list[str], Node], odd: tuple[OddOneOut, ...] = (), failed: tuple[Failed, ...] = (),
              version: str = "22.05.8") -> Inventory:
    nodes = tuple(replace(node, name=name, hostname=name, slurm_version=version)
                  for members, node in groups for name in members)
    return Inventory(nodes, tuple(Group(f"g{i}", tuple(members)) for i, (members, _) in enumerate(groups)), odd, failed)


LAB = Node("", cpu=cpu(1, 2, 1), memory_mib=24105, nics=(Nic("eth0", virtual=True, state="up"),))

H100_CPU = cpu(2, 56)
H100 = Node("", cpu=H100_CPU, memory_mib=2063853, gpu_links=all_linked(8, 18), nics=ndr(),
            gpus=gpus("NVIDIA H100 80GB HBM3", H100_CPU, [0, 0, 0, 0, 1, 1, 1, 1]))

A100P_CPU = cpu(2, 32)
A100P = Node("", cpu=A100P_CPU, memory_mib=515855, gpu_links=pairs(4, 12),
             gpus=gpus("NVIDIA A100 80GB PCIe", A100P_CPU, [0, 0, 1, 1], [2, 3, 0, 1]))

NPS4_CPU = cpu(2, 64, 2, numa_per_socket=4)
NPS4 = Node("", cpu=NPS4_CPU, memory_mib=1031895, gpu_links=all_linked(8, 12), nics=ndr(),
            gpus=gpus("NVIDIA A100-SXM4-40GB", NPS4_CPU, [3, 3, 1, 1, 7, 7, 5, 5], [2, 3, 0, 1, 6, 7, 4, 5]))

T4_CPU = replace(cpu(1, 8, 1), numa=())
T4 = Node("", cpu=replace(T4_CPU, cores=tuple(replace(c, numa=None) for c in T4_CPU.cores)), memory_mib=31824,
          gpus=(Gpu("nvidia", 0, "Tesla T4", "GPU-t4", "", "0000:00:1e.0", 0, "/dev/nvidia0", 15360),))

BIG_CPU = Node("", cpu=cpu(2, 48), memory_mib=773550)

"""Node lines: memory, reserved cores, features, weights, names."""

from dataclasses import replace
from typing import Any

import conf_machines as c
import conf_models as m
import pytest
from conf_models import group, words
from looped import looped

from hpcadmin.conf.features import cpu, network, weight
from hpcadmin.conf.machines import cpu_memory
from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Inventory, Nic, Node, NumaNode
from hpcadmin.site import Site


def go(what: Inventory | Node, site: Site = m.SITE, version: str = "22.05") -> Rendering:
    inventory = what if isinstance(what, Inventory) else m.inventory((["n1"], what))
    return render(inventory, site, RenderOptions(slurm_version=version))


def told(result: Rendering) -> str:
    assert result.files == {}
    return "\n".join(f"{p.node}: {p.what} ({p.hint}) {p.key}" for p in result.problems)


# Memory.

def grace(total: int, own: int | None, apart: int | None, real: int | None = None) -> Node:
    numa = (NumaNode(0, tuple(range(72)), own), NumaNode(1, (), apart))
    return Node("n1", cpu=replace(m.cpu(1, 72, 1), numa=numa), memory_mib=total, real_memory_mib=real)


@pytest.mark.parametrize(("node", "memory"), [
    (Node("n1", memory_mib=1000), 1000),
    (Node("n1", memory_mib=1048576, real_memory_mib=1048577), 1048577),
    (grace(586768, 490000, 96768), 490000),
    (grace(490000, 490000, 96768), 490000),              # hwloc and slurmd may leave it out themselves
    (grace(586768, 490000, 96768, 586769), 490001),
    (grace(586768, None, 96768), 490000),
    (grace(586768, 490000, None), None),
    (grace(96000, None, 96768), None),
    (Node("n1"), None), (Node("n1", memory_mib=12), None),
])
def test_memory_of_the_cpus(node: Node, memory: int | None) -> None:
    assert cpu_memory(node)[0] == memory


def test_what_slurmd_counts_is_believed_and_named() -> None:
    result = go(replace(m.LAB, real_memory_mib=24106))
    assert words(result, "RealMemory") == str(24106 - 242)
    assert any("memory as slurmd counts it is 24106 MiB" in why.reason for e in result.explained for why in e.whys)


def test_a_line_has_the_least_of_its_nodes() -> None:
    nodes = tuple(replace(node, memory_mib=2063853 - 8 * n) for n, node in enumerate(
        m.inventory((m.names("n", 3), m.H100)).nodes))
    result = go(Inventory(nodes))
    assert f"NodeName=n[01-03] CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory={2063837 - 20639} " in (
        result.files["slurm.conf"])
    assert any("the smallest of 3 nodes, n03" in why.reason for e in result.explained for why in e.whys)


# What the site keeps from jobs.

LIGHT = {"TaskPlugin": "task/affinity"}


@looped(("options", "slurm", "word"), [
    ({"CoreSpecCount": 112}, {}, "the nodes have 112 cores"),
    ({"CoreSpecCount": "two"}, {}, "not a number"),
    ({"CoreSpecCount": True}, {}, "not a number"),
    ({"CoreSpecCount": 2}, {"options": LIGHT}, "needs TaskPlugin with task/cgroup"),
    ({"CoreSpecCount": 2}, {"cgroup": {"ConstrainCores": False}}, "ConstrainCores=yes"),
    ({"CoreSpecCount": 2, "CpuSpecList": "0-3"}, {}, "Slurm takes one of them"),
    ({"CpuSpecList": "0-224"}, {}, "the nodes have CPUs 0-223"),
    ({"CpuSpecList": "0-223"}, {}, "all of the 224 CPUs"),
    ({"CpuSpecList": "3-1"}, {}, "not a list"),
    ({"CpuSpecList": "a"}, {}, "not a list"),
    ({"MemSpecLimit": 3000000}, {}, "RealMemory is 2043214"),
    ({"MemSpecLimit": 8192}, {"options": {"SelectTypeParameters": "CR_Core"}}, "memory is no consumable resource"),
    ({"MemSpecLimit": 8192}, {"cgroup": {"ConstrainRAMSpace": False}}, "ConstrainRAMSpace=yes"),
])
def test_reservations_that_slurm_would_drop(options: dict[str, Any], slurm: dict[str, Any], word: str) -> None:
    text = told(go(m.H100, replace(group(options=options), slurm=m.site(**slurm).slurm)))
    assert word in text
    assert "nodes.gpu.options." in text


def test_reservations_that_hold() -> None:
    options = {"CpuSpecList": "0-3,112-115", "MemSpecLimit": 8192}
    result = go(m.H100, group(options=options))
    assert (words(result, "CpuSpecList"), words(result, "MemSpecLimit")) == ("0-3,112-115", "8192")
    assert words(go(m.H100, replace(group(options={"CoreSpecCount": 0}), slurm=m.site(options=LIGHT).slurm)),
                 "CoreSpecCount") == "0"


# Features.

@pytest.mark.parametrize(("model", "name"), [
    ("AMD EPYC 9654 96-Core Processor", "epyc9654"), ("Intel(R) Xeon(R) Platinum 8480+", "xeon8480"),
    ("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "xeone52698v4"), ("Intel(R) Xeon(R) 6980P", "xeon6980p"),
    ("Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", "xeon6248"), ("Neoverse-V2", "neoversev2"),
    ("AMD Ryzen Threadripper PRO 5995WX 64-Cores", "threadripper5995wx"), ("POWER9, altivec supported", "power9"),
    ("Common KVM processor", ""), ("", ""),
])
def test_short_names_of_cpus(model: str, name: str) -> None:
    assert cpu(model) == ((name,) if name else ())


def port(rate: float, text: str = "", layer: str = "InfiniBand", state: str = "ACTIVE") -> Nic:
    return Nic("mlx5_0", rdma="mlx5_0", link_layer=layer, state=state, rate_gbps=rate, rate_text=text)


@pytest.mark.parametrize(("nics", "found"), [
    ((port(400, "400 Gb/sec (4X NDR)"),), ("ndr",)), ((port(200, "200 Gb/sec (4X HDR)"),), ("hdr",)),
    ((port(100, "100 Gb/sec (2X HDR100)"),), ("hdr",)), ((port(200),), ("ib200",)),
    ((port(400, "400 Gb/sec (4X NDR)", "Ethernet"),), ("roce", "400g")),
    ((port(400, "4X NDR", state="DOWN"), Nic("eth0", state="up", rate_gbps=100.0)), ("100g",)),
    ((Nic("eth0", state="up", rate_gbps=0.1),), ()), ((Nic("veth0", virtual=True, state="up", rate_gbps=10.0),), ()),
    ((), ()),
])
def test_names_of_networks(nics: tuple[Nic, ...], found: tuple[str, ...]) -> None:
    assert network(nics) == found


def test_features_from_the_hardware_or_from_the_site_alone() -> None:
    node = replace(m.H100, cpu=replace(m.H100_CPU, model="Intel(R) Xeon(R) Platinum 8480C"))
    assert words(go(node, group(features=("rack1",))), "Features") == "h100,xeon8480c,ndr,rack1"
    assert words(go(node, group(features=("rack1",), features_auto=False)), "Features") == "rack1"
    assert words(go(node, m.site(features_auto=False)), "Features") == ""
    assert words(go(node, replace(group(features_auto=True), slurm=m.site(features_auto=False).slurm)),
                 "Features") == "h100,xeon8480c,ndr"


# Weights.

def test_weights_only_where_nodes_differ_and_the_site_wins() -> None:
    assert words(go(m.H100), "Weight") == ""
    both = m.inventory((["n1"], m.H100), (["c1"], m.BIG_CPU), (["t1"], m.T4))
    result = go(both)
    found = [int(words(result, "Weight", name)) for name in ("c1", "t1", "n1")]
    assert found == sorted(found)
    assert words(go(both, m.site(weights_auto=False)), "Weight", "c1") == ""
    assert words(go(both, group(options={"Weight": 5})), "Weight") == "5"


def test_any_gpu_weighs_more_than_any_memory() -> None:
    assert weight(0, 64 * 1024 * 1024) < weight(1, 64) < weight(1, 4_000_000) < weight(8, 64)


# Names.

def test_nodes_that_are_alike_are_one_line() -> None:
    result = go(m.inventory((["n2", "n1", "n10", "gpu-a"], c.L40S)))
    assert "NodeName=gpu-a,n[1-2,10] CPUs=384 " in result.files["slurm.conf"]
    assert result.files["gres.conf"].count("NodeName=gpu-a,n[1-2,10] AutoDetect=off ") == 4


def test_a_cloud_node_is_not_asked() -> None:
    result = go(m.H100, group(options={"State": "CLOUD"}))
    assert words(result, "State") == "CLOUD"
    assert result.files["gres.conf"].count("NodeName=n1 ") == 8

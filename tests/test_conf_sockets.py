"""Which sockets are chosen for which GPUs, with the reason, and what a version, the site or an odd machine changes."""

from dataclasses import replace

import conf_machines as c
import conf_models as m
import pytest

from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.conf.sockets import Layout, Mode, choose, layout, near_cores, places
from hpcadmin.model import Core, Cpu, Gpu, Inventory, Node, NumaNode
from hpcadmin.site import NodeGroup, Site


def go(inventory: Inventory | Node, version: str = "22.05", site: Site = m.SITE) -> Rendering:
    nodes = inventory if isinstance(inventory, Inventory) else m.inventory((["n1"], inventory))
    return render(nodes, site, RenderOptions(slurm_version=version))


def line(result: Rendering, start: str = "NodeName=", file: str = "slurm.conf") -> str:
    assert result.problems == ()
    return next(text for text in result.files[file].splitlines() if text.startswith(start))


def told(result: Rendering) -> str:
    assert result.files == {}
    return "\n".join(f"{p.node}: {p.what} ({p.hint}) {p.key}" for p in result.problems)


# The chooser.

@pytest.mark.parametrize(("node", "mode", "lost"), [
    (m.H100, Mode.PACKAGE, 0), (m.NPS4, Mode.NUMA, 0), (c.SNC2, Mode.NUMA, 0), (c.MI250X, Mode.NUMA, 0),
    (c.L3_NODE, Mode.L3, 0), (c.TWO_OF_FOUR, Mode.PACKAGE, 1), (c.GB200, Mode.PACKAGE, 0), (m.T4, Mode.PACKAGE, 0),
    (m.BIG_CPU, Mode.PACKAGE, 0),
])
def test_the_plainest_sockets_that_suit_every_gpu(node: Node, mode: Mode, lost: int) -> None:
    found = choose(node.cpu, places(node.gpus))
    assert (found.mode, len(found.lost)) == (mode, lost)
    assert bool(found.why) is (mode is not Mode.PACKAGE or lost > 0)


def test_l3_caches_as_sockets() -> None:
    old, new = go(c.L3_NODE), go(c.L3_NODE, "25.11")
    assert line(old, "SlurmdParameters") == "SlurmdParameters=l3cache_as_socket"
    for result in (old, new):
        assert "CPUs=64 Sockets=4 CoresPerSocket=8 ThreadsPerCore=2 " in line(result)
        lines = [text for text in result.files["gres.conf"].splitlines() if " Cores=" in text]
        assert [text.split(" Cores=")[1].split()[0] for text in lines] == ["0-7", "8-15", "16-23", "24-31"]
    assert " Parameters=l3cache_as_socket " in line(new)
    assert any("L3 cache" in why.reason for e in new.explained for why in e.whys if "Sockets=4" in why.part)


def test_memory_only_numa_nodes_are_no_sockets() -> None:
    """GH200 and GB200 with numa_node_as_socket: slurmd counts nodes that have cores."""
    found = layout(c.GB200.cpu, Mode.NUMA)
    assert isinstance(found, Layout)
    assert (found.sockets, found.cores_per_socket) == (2, 72)


def l3(*groups: tuple[int, ...]) -> Cpu:
    return replace(m.cpu(2, 8, 1), l3=groups)


@pytest.mark.parametrize(("cpu", "mode", "why"), [
    (l3(), Mode.L3, "no source tells its L3 caches"),
    (l3(tuple(range(8))), Mode.L3, "core 8 is not in one L3 cache"),
    (l3(tuple(range(4)), tuple(range(4, 12)), tuple(range(12, 16))), Mode.L3, "an L3 cache is in two sockets"),
    (l3(tuple(range(8)), tuple(range(8, 12)), tuple(range(12, 16))), Mode.L3, "different numbers of cores: 8, 4, 4"),
    (l3((0, 2, 4, 6), (1, 3, 5, 7), tuple(range(8, 12)), tuple(range(12, 16))), Mode.L3, "not next to each other"),
    (Cpu(sockets=2, cores_per_socket=4, threads_per_core=1), Mode.L3, "not known one by one"),
    (Cpu(sockets=2, cores_per_socket=4, threads_per_core=1), Mode.NUMA, "no source tells its NUMA nodes"),
    (Cpu(sockets=2, cores_per_socket=0, threads_per_core=1), Mode.PACKAGE, "below one"),
    (Cpu(), Mode.PACKAGE, "not known"),
])
def test_layouts_that_cannot_be(cpu: Cpu, mode: Mode, why: str) -> None:
    found = layout(cpu, mode)
    assert isinstance(found, str)
    assert why in found


def sockets_of(*sizes: int, threads: int = 1) -> Cpu:
    cores, number = [], 0
    for socket, size in enumerate(sizes):
        for _ in range(size):
            cores.append(Core(socket, socket, tuple(range(number, number + threads))))
            number += threads
    return Cpu("", "", len(sizes), None if len(set(sizes)) > 1 else sizes[0], threads, tuple(cores), tuple(
        NumaNode(n, tuple(i for core in cores if core.socket == n for i in core.cpus)) for n in range(len(sizes))))


def test_uneven_sockets_are_refused_with_their_sizes() -> None:
    text = told(go(replace(m.LAB, cpu=sockets_of(20, 24))))
    assert "sockets have different numbers of cores: 20, 24" in text
    assert "one number for all" in text


def test_numa_nodes_that_hang_on_different_things_are_no_sockets() -> None:
    """The first node is a whole package, the others halves of one: slurmd would count packages."""
    cpu = m.cpu(3, 8, 1)
    numa = [0] * 8 + [1] * 8 + [2] * 8
    assert isinstance(layout(replace(cpu, cores=tuple(
        replace(core, numa=n) for core, n in zip(cpu.cores, numa, strict=True))), Mode.NUMA), Layout)
    cores = tuple(replace(core, socket=place // 8 if place < 8 else 1, numa=place // 8)
                  for place, core in enumerate(cpu.cores))
    found = layout(replace(cpu, cores=cores, sockets=2, cores_per_socket=None), Mode.NUMA)
    assert isinstance(found, str)
    assert "not alike" in found


def test_threads_that_differ_between_cores_are_refused() -> None:
    cpu = m.cpu(1, 4, 2)
    cores = (replace(cpu.cores[0], cpus=(0,)), *cpu.cores[1:])
    assert "cores have 1 or 2 threads" in told(go(replace(m.LAB, cpu=replace(cpu, cores=cores))))


# Abstract cores (the reference's table 1.3).

def near(cpu: Cpu, cpus: tuple[int, ...]) -> list[int]:
    return sorted(near_cores(cpu, Gpu("nvidia", local_cpus=cpus)).cores or ())


def test_abstract_cores_of_odd_numberings() -> None:
    assert near(c.even_odd(), (1, 3, 5, 7, 9, 11, 13, 15)) == [4, 5, 6, 7]
    adjacent = Cpu("", "", 2, 4, 2, tuple(Core(i // 4, i // 4, (2 * i, 2 * i + 1)) for i in range(8)))
    assert near(adjacent, tuple(range(8, 16))) == [4, 5, 6, 7]
    # SNC2, interleaved in the socket: hwloc lists node by node.
    order = [0, 1, 4, 5, 2, 3, 6, 7]
    snc = Cpu("", "", 1, 8, 1, tuple(Core(0, place // 4, (cpu,)) for place, cpu in enumerate(order)))
    assert near(snc, (2, 3, 6, 7)) == [4, 5, 6, 7]
    assert near(m.NPS4_CPU, (*range(48, 64), *range(176, 192))) == list(range(48, 64))


def test_whole_numa_nodes_where_cores_are_not_listed() -> None:
    """lscpu's summary: sockets follow one another, so that a NUMA node's cores are certain all the same."""
    cpu = replace(m.cpu(2, 56), cores=())
    node = replace(m.H100, cpu=cpu)
    assert " Cores=56-111 " in go(node).files["gres.conf"]
    nps4 = replace(m.NPS4, cpu=replace(m.NPS4_CPU, cores=()))
    assert " Cores=" not in go(nps4).files["gres.conf"], "which nodes are in which socket is not known"


# What the site says.

@pytest.mark.parametrize(("word", "sockets"), [("package", 2), ("numa", 8), ("l3", 16)])
@pytest.mark.parametrize("version", ["22.05", "25.11"])
def test_the_site_may_force(word: str, sockets: int, version: str) -> None:
    node = replace(m.NPS4, cpu=c.with_l3(m.NPS4_CPU, 8))
    result = go(node, version, m.site(sockets=word))
    assert f" Sockets={sockets} " in line(result)
    assert (" Cores=" in result.files["gres.conf"]) is (word == "numa")
    assert any("the site's own choice" in why.reason for e in result.explained for why in e.whys)


def test_what_the_site_forces_must_be_possible() -> None:
    assert "n1: CPUs: no source tells its L3 caches" in told(go(m.H100, site=m.site(sockets="l3")))
    assert "no source tells its L3" in told(go(m.H100, site=m.site(options={"SlurmdParameters": "l3cache_as_socket"})))
    assert "one of package, numa, l3" in told(go(m.H100, site=m.site(sockets="die")))
    both = {"SlurmdParameters": "l3cache_as_socket,numa_node_as_socket"}
    assert "Slurm takes one of them" in told(go(m.H100, site=m.site(options=both)))


def test_groups_may_differ_from_25_11_on() -> None:
    site = replace(m.SITE, nodes=(NodeGroup("a", "a1", sockets="numa"), NodeGroup("b", "b1", sockets="package")))
    inventory = m.inventory((["a1"], m.NPS4), (["b1"], m.NPS4))
    result = go(inventory, "25.11", site)
    assert " Sockets=8 " in line(result, "NodeName=a1")
    assert " Sockets=2 " in line(result, "NodeName=b1")
    assert "it is one for all nodes" in told(go(inventory, "24.11", site))


def wide() -> Node:
    """Its GPU is near a package of four NUMA nodes."""
    return replace(m.NPS4, gpus=(replace(m.NPS4.gpus[0], local_cpus=m.near(m.NPS4_CPU, 0, 1, 2, 3), numa=None),))


def test_before_25_11_the_few_lose_their_cores_and_are_named() -> None:
    inventory = m.inventory((["a1", "a2"], m.NPS4), (["w1"], wide()))
    result = go(inventory, "24.05")
    assert line(result, "SlurmdParameters") == "SlurmdParameters=numa_node_as_socket"
    assert " Cores=48-63 " in line(result, "NodeName=a", "gres.conf")
    assert " Cores=" not in line(result, "NodeName=w1", "gres.conf")
    assert any(note.startswith("w1: Cores are left out; packages as sockets would suit") for note in result.notes)
    new = go(inventory, "25.11")
    assert " Cores=0-63 " in line(new, "NodeName=w1", "gres.conf")
    assert not [note for note in new.notes if "left out" in note]


def test_a_part_of_a_socket_only_on_the_sites_word_and_old_versions() -> None:
    site = m.site(partial_cores=True)
    result = go(m.NPS4, "22.05", site)
    assert " Sockets=2 CoresPerSocket=64 " in line(result)
    assert " Cores=48-63 " in line(result, "NodeName=", "gres.conf")
    assert any("24.11 and later make nodes INVAL" in note for note in result.notes)
    for version in ("24.11", "25.11", ""):
        assert "Slurm 24.05 is the last that takes" in told(render(
            m.inventory((["n1"], m.NPS4), version=""), site, RenderOptions(slurm_version=version)))


def test_what_the_next_version_changes_is_said() -> None:
    notes = go(m.NPS4, "24.11").notes
    assert any("for Slurm 25.11 and later it is written on the node lines" in note for note in notes)
    assert not any("SlurmdParameters" in note for note in go(m.H100, "24.11").notes)


@pytest.mark.parametrize(("cpus", "version"), [((0, 1), "25.11"), ((0,), "24.11")])
def test_why_cores_are_left_out_names_the_version_that_refuses_them(cpus: tuple[int, ...], version: str) -> None:
    """Two whole sockets of four, or half of one."""
    cpu = m.cpu(4, 12)
    local = m.near(cpu, *cpus) if len(cpus) > 1 else tuple(range(6))
    node = replace(c.TWO_OF_FOUR, gpus=(replace(c.TWO_OF_FOUR.gpus[0], local_cpus=local),))
    result = go(node, "22.05")
    assert any(f"which Slurm {version} and later refuse" in note for note in result.notes)


def test_cpus_that_are_off_line_are_a_fault_unless_smt_is_off() -> None:
    cpu = m.cpu(1, 4, 1)
    node = replace(m.LAB, cpu=replace(cpu, offline=(4, 5, 6, 7)))
    assert "CPUs 4, 5, 6, 7 are offline" in told(go(node))
    result = go(replace(node, settings={"SMT": "off"}))
    assert "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 " in line(result)
    assert "offline" in told(go(replace(node, cpu=replace(cpu, offline=(4, 5)), settings={"SMT": "off"})))

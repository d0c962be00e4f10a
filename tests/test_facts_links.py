"""Patterns of NVLinks that machines have, and faults in them; Slurm's cores from CPU ids."""

from __future__ import annotations

import pytest
from looped import looped

from hpcadmin.facts import _cores, _links
from hpcadmin.model import Core, Cpu, NumaNode

CUBE = [[-1, 1, 1, 2, 2, 0, 0, 0], [1, -1, 2, 1, 0, 2, 0, 0], [1, 2, -1, 2, 0, 0, 1, 0], [2, 1, 2, -1, 0, 0, 0, 1],
        [2, 0, 0, 0, -1, 1, 1, 2], [0, 2, 0, 0, 1, -1, 2, 1], [0, 0, 1, 0, 1, 2, -1, 2], [0, 0, 0, 1, 2, 1, 2, -1]]


def mesh(count, links, *off, size=0):
    """All linked with all, or in groups of that size; `off` have none."""
    return [[-1 if a == b else 0 if {a, b} & set(off) or (size and a // size != b // size) else links
             for b in range(count)] for a in range(count)]


def told(links, kind="NVLink"):
    return list(_links.faults(links, [f"GPU{n}" for n in range(len(links))], kind))


@looped("links", [
    CUBE, mesh(8, 18), mesh(16, 6), mesh(4, 4), mesh(8, 12, size=2), mesh(8, 6, size=4), mesh(6, 3, size=3),
    mesh(2, 4), mesh(8, 0), mesh(1, 0), mesh(3, 4, 2), mesh(6, 12, 4, 5, size=2), mesh(8, 6, 4, 5, 6, 7),
    [[-1, 1, 1, 2], [1, -1, 2, 1], [1, 2, -1, 2], [2, 1, 2, -1]],
    [[-1, 2, 2, 0], [2, -1, 0, 1], [2, 0, -1, 2], [0, 1, 2, -1]],
    [[-1, None], [None, -1]],
    [[-1 if a == b else 0 if b == 7 - a else 1 for b in range(8)] for a in range(8)],     # each lacks one partner
])
def test_patterns_are_no_faults(links):
    assert told(links) == []
    assert _links.faulty(links) == ()


@pytest.mark.parametrize(("links", "gone"), [
    (mesh(8, 18, 2), (2,)), (mesh(8, 18, 2, 5), (2, 5)), (mesh(4, 4, 0), (0,)), (mesh(16, 6, 15), (15,)),
    (mesh(8, 6, 7, size=4), (7,)),
])
def test_gpus_off_the_fabric(links, gone):
    assert _links.faulty(links) == gone
    assert f"GPU{gone[0]} has no NVLink, its {len(links) - len(gone)} peers do" in told(links)


def test_links_that_are_down():
    few = mesh(8, 18)
    for n in range(8):
        if n != 3:
            few[3][n] = few[n][3] = 17
    assert told(few) == ["GPU3 has 17 NVLink links to each of the others, which have 18 among themselves"]
    few = mesh(8, 12)
    few[0][5] = few[5][0] = 11
    assert told(few) == ["GPU0 and GPU5 have 11 NVLink links, the other pairs 12"]
    few[0][5] = 12
    assert "contradicts itself" in told(few)[0]
    cube = [row[:] for row in CUBE]
    cube[0][3] = cube[3][0] = 1
    assert told(cube) == ["GPU0 and GPU3 have 5, 5 NVLink links in all, the other 6 GPUs 6"]


def test_what_is_unknown_is_no_fault():
    links = mesh(8, 18)
    for n in range(6, 8):
        links[n] = [-1 if n == m else None for m in range(8)]
        for m in range(8):
            links[m][n] = links[n][m]
    assert told(links) == []


def test_problems_of_a_node():
    labels = [["X" if a == b else "NODE" if 2 in (a, b) else "NV18" for b in range(8)] for a in range(8)]
    assert _links.problems(labels, range(8)) == ["GPU2 has no NVLink, its 7 peers do"]
    assert _links.problems(labels, range(8), mig={2}) == []
    assert _links.problems([["X", "NV12"], ["NV12", "X"]], [0, 1], active={0: 12, 1: 11}) == [
        "GPU1: nvlink -s shows 11 active links, topo -m NV12 to 1 GPU"]
    assert _links.problems([["X", "SYS"], ["SYS", "X"]], [0, 1], active={0: 4, 1: None}) == [
        "GPU0: nvlink -s shows 4 active links, topo -m no NVLink"]


def test_sources_that_differ():
    assert list(_links.differences(mesh(2, 4), mesh(2, 2), ["GPU0", "GPU1"], ("topo -m", "NCCL"))) == [
        "GPU0 and GPU1 have 4 links by topo -m, 2 by NCCL"]


# --- cores ------------------------------------------------------------------------------------------------------------


@looped(("affinities", "near", "values"), [
    (["0-31,64-95", "32-63,96-127"], False, [["0-31", "32-63"]]),
    (["64-127,192-254"], False, [["64-127"]]),
    (["48-63,176-191", None], False, [["48-63", None]]),
    (["0-5", "6-11"], False, [["0-5", "6-11"], ["0-2", "3-5"]]),
    (["0-8", "9-17"], False, [["0-8", "9-17"]]),
    (["0-47", "0-47"], False, [None, ["0-47", "0-47"], ["0-23", "0-23"]]),
    (["0-47", "0-47"], True, [["0-47", "0-47"], ["0-23", "0-23"], None]),
    (["0,2,4,6,8,10"], False, [None]),
    (["0-31,64-95", "32-63,80-111"], False, [None]),
    (["0-31,16-95"], False, [None, ["0-95"], ["0-47"]]),
    (["5,9-12,40"], False, [None]),
    ([None], False, [None]),
])
def test_what_may_be_assumed(affinities, near, values):
    assert [one.plain()["values"] for one in _cores.assumed(affinities, near=near)] == values


def cpu(cores, **other):
    return Cpu(cores=tuple(Core(0, None, cpus) for cpus in cores), **other)


def test_cores_that_are_known():
    even_odd = cpu([(0, 8), (2, 10), (4, 12), (6, 14), (1, 9), (3, 11), (5, 13), (7, 15)])
    assert _cores.of_cpus(even_odd, range(1, 16, 2)).text == "4-7"
    assert _cores.of_cpus(even_odd, [8]) == _cores.Cores((0,), "cores of its local CPUs, in hwloc's order", (0,))
    assert _cores.of_cpus(even_odd, [99]).text is None
    assert _cores.of_cpus(even_odd, []).text is None


def test_numa_nodes_give_cores_where_their_order_is_certain():
    nodes = (NumaNode(0, tuple(range(0, 16, 2))), NumaNode(1, tuple(range(1, 16, 2))), NumaNode(2, ()))
    counts = Cpu(sockets=2, cores_per_socket=4, threads_per_core=2, numa=nodes)
    assert _cores.of_cpus(counts, nodes[1].cpus).text == "4-7"
    assert _cores.of_cpus(counts, nodes[1].cpus[:6]).text is None
    four = Cpu(sockets=4, cores_per_socket=2, threads_per_core=2, numa=nodes)
    assert _cores.of_cpus(four, nodes[0].cpus).text is None
    assert _cores.of_cpus(Cpu(numa=nodes), nodes[0].cpus).text is None

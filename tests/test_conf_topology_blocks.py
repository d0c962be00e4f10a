"""Blocks from NVLink domains and from the site's table, for every version that has them; the site's own trees."""

from __future__ import annotations

from dataclasses import replace

import fabric_trees as trees
import pytest
from looped import looped
from topology_models import (
    V22,
    V23,
    V24,
    V25,
    V26,
    fabric,
    inventory,
    lines,
    nvl,
    planned,
    problems,
    read_back,
    site,
    texts,
)

from hpcadmin.conf.parts import Entry, Line
from hpcadmin.conf.topology import topology_files
from hpcadmin.conf.topology_choice import partition_lines
from hpcadmin.model import Fabric, Failed, Gpu, Inventory, Node
from hpcadmin.site import parse_site

RACKS = ["BlockName=rack01 Nodes=rack01-n[01-18]", "BlockName=rack02 Nodes=rack02-n[01-18]",
         "BlockName=rack03 Nodes=rack03-n[01-18]"]


def racks(*more: Node, without: tuple[str, ...] = ()) -> Inventory:
    return Inventory((*nvl(3, without=without), *more))


@pytest.mark.parametrize(("version", "sizes"), [(V23, "BlockLevels=0"), ((24, 5), "BlockSizes=18"),
                                                (V24, "BlockSizes=18")])
def test_a_block_for_each_domain(version: tuple[int, int], sizes: str) -> None:
    assert lines(racks(), version=version) == [*RACKS, sizes]
    (setting,) = planned(racks(), version=version).settings
    assert (setting.key, setting.value) == ("TopologyPlugin", "topology/block")


@pytest.mark.parametrize("version", [V22, (23, 2), None])
def test_versions_without_blocks(version: tuple[int, int] | None) -> None:
    plan = planned(racks(), version=version)
    assert (plan.files, plan.settings) == ({}, ())
    assert plan.notes == ["3 blocks of nodes (rack01, rack02, rack03) are not written: topology/block came with Slurm "
                          "23.11"]
    assert problems(racks(), site(plugin="block"), version) != []


def test_blocks_in_yaml() -> None:
    for version in (V25, V26):
        assert lines(racks(), version=version)[:7] == [
            "- topology: nvlink", "  cluster_default: true", "  block:", "    block_sizes: [18]", "    blocks:",
            "      - block: rack01", "        nodes: rack01-n[01-18]"]
        assert planned(racks(), version=version).settings == ()


@pytest.mark.parametrize(("sizes", "written"), [
    ((16,), "16"), ((16, 32), "16,32"), ((32, 16), "16,32"), ((9, 18, 36), "9,18,36"), ((6, 12), "6,12")])
def test_sizes_of_the_site(sizes: tuple[int, ...], written: str) -> None:
    assert lines(racks(), site(block_sizes=sizes))[-1] == f"BlockSizes={written}  # site.toml"
    levels = ",".join(str([1, 2, 4].index(size // min(sizes))) for size in sorted(sizes))
    if min(sizes) == 18:
        assert lines(racks(), site(block_sizes=sizes), V23)[-1].startswith(f"BlockLevels={levels}")


@pytest.mark.parametrize(("sizes", "words"), [
    ((16, 24), "16, times a power of two"), ((18, 27), "18, times a power of two"), ((20,), "more than any block has"),
    ((0,), "no size of a block"), ((-1, 18), "no size of a block"), ((1, 2 ** 16), "times a power of two")])
def test_sizes_that_slurm_refuses(sizes: tuple[int, ...], words: str) -> None:
    (problem,) = problems(racks(), site(block_sizes=sizes))
    assert words in problem


def test_23_11_has_blocks_of_one_size_alone() -> None:
    assert "has no BlockSizes" in problems(racks(), site(block_sizes=(16,)), V23)[0]
    assert lines(racks(), site(block_sizes=(18, 36)), V23)[-1] == "BlockLevels=0,1  # site.toml"
    plan = planned(racks(without=("rack02-n05",)), site(plugin="block"), V23)
    assert "rack02" not in texts(plan)["topology.conf"].replace("# ", "")
    assert "blocks of one size alone (18 nodes): rack02 (17 nodes" in plan.notes[0]


def test_blocks_with_fewer_nodes_than_the_base() -> None:
    """24.05 and 24.11 do not start with one; later it is written, and said."""
    found = racks(without=("rack02-n05",))
    assert lines(found)[1:] == ["BlockName=rack02 Nodes=rack02-n[01-04,06-18]", RACKS[2], "BlockSizes=17"]
    assert "base size of blocks is 17" in planned(found).notes[0]
    assert "    block_sizes: [18]" in lines(found, version=V26)
    assert planned(found, version=V26).notes == [
        "incomplete blocks, fewer nodes than the base size 18: rack02 (17 nodes, rack02-n[01-04,06-18])"]
    few = racks(without=tuple(f"rack02-n{tray:02d}" for tray in range(3, 19)))
    plan = planned(few, site(plugin="block"))
    assert texts(plan)["topology.conf"].count("BlockName=") == 2
    assert "incomplete blocks left out, Slurm 24.11 does not start" in plan.notes[0]
    assert "block_sizes = [2] takes them" in plan.notes[0]


def test_two_kinds_of_racks() -> None:
    small = tuple(replace(node, name=node.name.replace("rack", "half"), gpus=tuple(replace(
        gpu, fabric_cluster_uuid=gpu.fabric_cluster_uuid.replace("-4000-", "-5000-")) for gpu in node.gpus))
        for node in nvl(3, 9))
    assert lines(Inventory((*nvl(3), *small)))[-1] == "BlockSizes=9"


@pytest.mark.parametrize("change", [
    {"fabric_cluster_uuid": "N/A", "fabric_clique": "N/A"}, {"fabric_cluster_uuid": "", "fabric_clique": ""},
    {"fabric_cluster_uuid": "00000000-0000-0000-0000-000000000000", "fabric_clique": "0"},
    {"fabric_state": "In Progress"}, {"fabric_clique": "0"}])
def test_gpus_that_have_joined_no_domain(change: dict[str, str]) -> None:
    nodes = tuple(replace(node, gpus=tuple(replace(gpu, **change) for gpu in node.gpus)) for node in nvl(3))
    plan = planned(Inventory(nodes))
    assert (plan.files, plan.notes, plan.problems) == ({}, [], [])
    one = (*nvl(3)[:-1], nodes[-1])
    notes = planned(Inventory(one), version=V26).notes
    assert notes[0] == "rack03-n18: in no block, no NVLink domain of the NVIDIA GB200 is known"
    some = replace(nodes[-1], gpus=(*nodes[-1].gpus[:1], *nvl(3)[-1].gpus[1:]))
    plan = planned(Inventory((*nvl(3)[:-1], some)))
    assert plan.notes == ["rack03-n18: 1 of its 4 GPUs have not joined the NVLink domain of the others"]


def test_a_node_cannot_be_in_two_blocks() -> None:
    nodes = list(nvl(2))
    first = nodes[0].gpus
    nodes[0] = replace(nodes[0], gpus=(replace(first[0], fabric_clique="7"), *first[1:]))
    (problem,) = problems(Inventory(tuple(nodes)))
    assert problem.startswith("rack01-n01: its GPUs are in 2 NVLink domains")


def test_one_domain_needs_no_blocks() -> None:
    one = Inventory(nvl(1))
    assert planned(one).files == {}
    assert "all in one domain" in planned(one).notes[0]
    assert lines(one, site(plugin="block"))[0] == "BlockName=rack01 Nodes=rack01-n[01-18]"
    single = Inventory(tuple(replace(node, gpus=node.gpus) for node in nvl(4, 1)))
    assert (planned(single).files, planned(single).notes) == ({}, [])


def test_names_of_blocks_stay() -> None:
    """By what the names of their nodes share, else by the domain; another node or another order changes none."""
    plain = Inventory(nvl(2, names="n{number:03d}"))
    assert [line.split()[0] for line in lines(plain)[:2]] == ["BlockName=nvl-11111111", "BlockName=nvl-22222222"]
    fewer = Inventory(plain.nodes[:0:-1])
    assert [line.split()[0] for line in lines(fewer)[:2]] == [line.split()[0] for line in lines(plain)[:2]]
    row = Inventory(nvl(2, names="row1rack{rack}tray{tray}"))
    assert [line.split()[0] for line in lines(row)[:2]] == ["BlockName=row1rack1", "BlockName=row1rack2"]


def with_fabric(*more: Node) -> Inventory:
    found = fabric(trees.ibnetdiscover(trees.fat_tree(2, 4, 18, 2)))
    return Inventory((*nvl(2, names="u{rack:02d}n{tray:02d}"), *more), fabrics=(found,))


def test_tree_and_blocks() -> None:
    """Both in topology.yaml, the blocks first where they have all nodes; one of them before."""
    both = lines(with_fabric(), version=V26)
    assert [line for line in both if "topology:" in line or "default" in line] == [
        "- topology: nvlink", "  cluster_default: true", "- topology: fabric", "  cluster_default: false"]
    assert lines(with_fabric())[-1] == "BlockSizes=18"
    assert lines(with_fabric(), site(plugin="tree"))[0] == "SwitchName=IBSPINE Switches=unit-[01-02]"
    assert lines(with_fabric(), site(plugin="tree"), V26)[0] == "- topology: fabric"
    other = lines(with_fabric(Node("cpu1")), version=V26)
    assert [line for line in other if "topology:" in line] == ["- topology: fabric", "- topology: nvlink"]
    assert lines(with_fabric(Node("cpu1")))[0] == "SwitchName=IBSPINE Switches=off-fabric,unit-[01-02]"
    conf = read_back(planned(with_fabric(Node("cpu1")), version=V26), [])
    assert [(t.name, t.kind, t.default) for t in conf.topologies] == [("fabric", "tree", True),
                                                                      ("nvlink", "block", False)]


def test_nodes_in_no_block_keep_the_blocks_to_partitions() -> None:
    """topology/block as the cluster's own would keep them out of jobs."""
    found = racks(Node("cpu1"))
    plan = planned(found)
    assert plan.files == {}
    assert "blocks are not written: cpu1 would be in none" in plan.notes[0]
    assert lines(found, site(plugin="block"))[-1] == "BlockSizes=18"
    young = planned(found, version=V26)
    assert [line for line in lines(found, version=V26) if line.startswith(("- ", "  flat", "  cluster"))] == [
        "- topology: flat", "  cluster_default: true", "  flat: true", "- topology: nvlink", "  cluster_default: false"]
    assert [topology.kind for topology in read_back(young, []).topologies] == ["flat", "block"]


def partition(name: str, nodes: str, **more: str) -> Line:
    return Line((Entry("PartitionName", name, "x"), Entry("Nodes", nodes, "x"),
                 *(Entry(key, value, "x") for key, value in more.items())))


def test_partitions_have_the_topology_that_fits() -> None:
    wanted = [partition("gpu", "rack01-n[01-18]"), partition("all", "rack01-n[01-18],cpu1"), partition("any", "ALL"),
              partition("own", "rack01-n01", Topology="flat"), partition("DEFAULT", "")]
    found, wrong = partition_lines(planned(racks(Node("cpu1")), version=V26), wanted)
    assert wrong == []
    assert [line.entries[-1].key for line in found] == ["Topology", "Nodes", "Nodes", "Topology", "Nodes"]
    assert found[0].entries[-1].value == "nvlink"
    both, _ = partition_lines(planned(with_fabric(), version=V26), [partition("g", "u01n01"), partition("c", "cpu1")])
    assert [line.text.partition("Topology=")[2] for line in both] == ["", "fabric"]
    _, wrong = partition_lines(planned(racks(), version=V26), [partition("x", "rack01-n01", Topology="fabric")])
    assert "Topology=fabric is not in topology.yaml, which has nvlink" in wrong[0].what
    assert partition_lines(planned(racks()), wanted)[0] == tuple(wanted)


# --- the site's tables -----------------------------------------------------------------------------------------------

NODES = Inventory(tuple(Node(f"n{number}") for number in range(1, 7)), failed=(Failed("n7", "silent"),))
SWITCHES = {"leaf2": "n[4-6]", "leaf1": "n[1-3]", "spine": ("leaf[1-2]",)}


def test_the_sites_own_tree() -> None:
    assert lines(NODES, site(switches=SWITCHES), V22) == [
        "SwitchName=spine Switches=leaf[1-2]  # site.toml", "SwitchName=leaf1 Nodes=n[1-3]  # site.toml",
        "SwitchName=leaf2 Nodes=n[4-6]  # site.toml"]
    with_failed = planned(NODES, site(switches={**SWITCHES, "leaf2": "n[4-7]"}))
    assert with_failed.notes == ["[topology.switches] leaf2: n7 left out, not discovered"]
    over_fabric = inventory(trees.fat_tree(2, 1, 3, 1))
    assert lines(over_fabric, site(switches={"a": "u01n[01-03]", "b": "u02n[01-03]", "c": ["a", "b"]}))[0] == \
        "SwitchName=c Switches=a,b  # site.toml"
    assert lines(NODES, site(switches={"only": "n[1-6]"})) == ["SwitchName=only Nodes=n[1-6]  # site.toml"]


@looped(("change", "words"), [
    ({"leaf1": "n[1-3],x9"}, "leaf1 names x9, which the inventory does not have"),
    ({"leaf1": "n[1-4]"}, "leaf2 has n4, which leaf1 has too"),
    ({"leaf1": "n[1-2]"}, "lacks n3: jobs would not get them"),
    ({"leaf1": "n[1-"}, "malformed hostlist"),
    ({"leaf1": ""}, "empty hostlist"),
    ({"spine": ("leaf[1-3]",)}, "spine names leaf3, not defined there"),
    ({"spine": ()}, "spine has no switch below"),
    ({"spine2": ("leaf1",)}, "leaf1 is below spine and below spine2"),
    ({"spine": ("leaf[1-2]", "core"), "core": ("spine",)}, "is in a loop of switches"),
    ({"spine": ("spine",)}, "is in a loop of switches"),
    ({"leaf 1": "n[1-3]"}, "is no name for Slurm"),
    ({"x" * 64: "n[1-3]"}, "has 64 characters"),
    ({"s" + "1" * 20: "n[1-3]"}, "ends in more than 19 digits"),
    ({"leaf3": "n7"}, "leaf3 has no node that Slurm has"),
    ({"spine": ("leaf1",)}, "is in 2 parts that no switch of the table joins"),
])
def test_trees_that_slurm_would_refuse(change: dict[str, object], words: str) -> None:
    found = problems(NODES, site(switches={**SWITCHES, **change}))
    assert any(words in problem for problem in found), found


def test_every_problem_of_a_table_names_its_key() -> None:
    plan = planned(NODES, site(switches={"leaf1": "n[1-3]", "leaf2": "n3,x", "spine": ("leaf9",)}))
    assert [problem.key for problem in plan.problems] == [
        "topology.switches.leaf2", "topology.switches.leaf2", "topology.switches.spine"]


def test_a_deep_chain_ends() -> None:
    chain: dict[str, object] = {"s0": "n[1-6]", **{f"s{level}": (f"s{level - 1}",) for level in range(1, 200)}}
    assert any("levels deep" in problem for problem in problems(NODES, site(switches=chain)))


def test_the_sites_own_blocks() -> None:
    table = {"b2": "n[4-6]", "b1": "n[1-3]"}
    assert lines(NODES, site(blocks=table)) == [
        "BlockName=b1 Nodes=n[1-3]  # site.toml", "BlockName=b2 Nodes=n[4-6]  # site.toml", "BlockSizes=3"]
    for change, words in (({"b1": "n[1-4]"}, "b2 has n4, which b1 has too"), ({"b1": "x"}, "does not have"),
                          ({"b1": "n7"}, "no node")):
        assert any(words in problem for problem in problems(NODES, site(blocks={**table, **change}))), change
    assert lines(NODES, site(blocks={"b1": "n[1-3]"}))[0] == "BlockName=b1 Nodes=n[1-3]  # site.toml"


def test_a_table_is_read_from_toml() -> None:
    found = parse_site({"topology": {"switches": {"a": "n[1-3]", "b": ["a"]}, "block_sizes": [2]}}, "site.toml")
    assert (found.topology.switches, found.topology.block_sizes) == ({"a": "n[1-3]", "b": ("a",)}, (2,))


@pytest.mark.parametrize("name", ["1e3", "0123", "true", "null", "0x10", "no", "1.5", "~x", "rack-1", "a_b.c"])
def test_yaml_reads_names_as_texts(name: str) -> None:
    nodes = Inventory((Node("1e3"), Node("007"), Node("a1"), Node("a2")))
    table = {name: "1e3,007", "other": "a[1-2]", "top": (name, "other")}
    if name == "~x":
        assert any("no name for Slurm" in problem for problem in problems(nodes, site(switches=table), V26))
        return
    plan = planned(nodes, site(switches=table), V26)
    (topology,) = read_back(plan, []).topologies
    assert {switch.name: switch.nodes for switch in topology.switches if switch.nodes} == {
        name: ("007", "1e3"), "other": ("a1", "a2")}
    text = texts(plan)["topology.yaml"]
    assert f'switch: "{name}"' in text or f"switch: {name}" in text
    assert (f'switch: "{name}"' in text) == (not name[0].isalpha() or name in {"true", "null", "no"})


def test_gpus_without_a_fabric_have_no_blocks() -> None:
    assert planned(Inventory(tuple(Node(f"n{n}", gpus=(Gpu("nvidia", 0, "T4"),)) for n in range(3)))).files == {}


def test_faults_are_notes_where_files_are_wanted_as_it_is() -> None:
    nodes = list(nvl(3))
    nodes[0] = replace(nodes[0], gpus=(replace(nodes[0].gpus[0], fabric_clique="7"), *nodes[0].gpus[1:]))
    found = Inventory(tuple(nodes))
    names = [node.name for node in nodes]
    plan = topology_files(found, site(plugin="block"), names, V26, as_is=True)
    assert plan.problems == []
    assert any(note.startswith("rack01-n01: its GPUs are in 2 NVLink domains") for note in plan.notes)
    assert "rack01-n[02-18]" in texts(plan)["topology.yaml"]


def test_nothing_is_made_of_nothing() -> None:
    for version in (None, V22, V24, V26):
        for plugin in ("", "tree", "block", "none"):
            plan = planned(Inventory(()), site(plugin=plugin), version)
            assert plan.files == {}
        nodes = (Node("a"), Node("b"))
        bare = planned(Inventory(nodes, fabrics=(Fabric("infiniband"), Fabric("ethernet"))), site(), version)
        assert (bare.files, bare.problems, bare.notes) == ({}, [], [])


def test_sizes_without_blocks_are_told() -> None:
    alone = Inventory((Node("n1"), Node("n2")))
    assert any("block_sizes: there are no blocks" in problem for problem in problems(alone, site(block_sizes=(2,))))
    notes = planned(racks(), site(plugin="tree", block_sizes=(18,), switches={"leaf": "rack[01-03]-n[01-18]"})).notes
    assert any("block_sizes is for blocks" in note for note in notes)

"""topology.conf from fabrics: names, rails, planes, islands, what is left out, what is on no switch."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import pairwise

import fabric_trees as trees
import pytest
from topology_models import (
    V22,
    V24,
    V25,
    V26,
    adapter,
    beside,
    fabric,
    hosts,
    inventory,
    lines,
    planned,
    problems,
    read_back,
    site,
    texts,
    with_option,
)

from hpcadmin.conf.topology_names import legal, switch_names, unit_numbers
from hpcadmin.fabric.tree import Part
from hpcadmin.model import Failed, Gpu, Inventory, Nic, Node

UNITS = ["SwitchName=unit-01 Nodes=u01n[01-04]", "SwitchName=unit-02 Nodes=u02n[01-04]",
         "SwitchName=unit-03 Nodes=u03n[01-04]"]


def shuffled(found: Inventory, seed: int) -> Inventory:
    """The same fabric and nodes, discovered in another order."""
    chance = random.Random(seed)  # noqa: S311
    network = found.fabrics[0]
    devices = [replace(device, ports=tuple(chance.sample(device.ports, len(device.ports))))
               for device in chance.sample(network.devices, len(network.devices))]
    return replace(found, nodes=tuple(chance.sample(found.nodes, len(found.nodes))),
                   fabrics=(replace(network, devices=tuple(devices)),))


def test_one_switch_for_each_unit_of_rails() -> None:
    assert lines(inventory(trees.fat_tree(3, 8, 4, 4))) == ["SwitchName=IBSPINE Switches=unit-[01-03]", *UNITS]


def test_leaves_are_called_as_the_switches_are() -> None:
    plan = planned(inventory(trees.fat_tree(3, 1, 4, 1)))
    assert lines(inventory(trees.fat_tree(3, 1, 4, 1))) == [
        "SwitchName=IBSPINE-01 Switches=IBLEAF-01-[01-03]", "SwitchName=IBLEAF-01-01 Nodes=u01n[01-04]",
        "SwitchName=IBLEAF-01-02 Nodes=u02n[01-04]", "SwitchName=IBLEAF-01-03 Nodes=u03n[01-04]"]
    assert [(entry.key, entry.value) for entry in plan.settings] == [("TopologyPlugin", "topology/tree")]
    assert "LinkSpeed" not in texts(plan)["topology.conf"]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_discovery_changes_nothing(seed: int) -> None:
    net = trees.fat_tree(3, 4, 4, 3)
    net.cut("u02n03 mlx5_1", 1)
    found = inventory(net)
    assert lines(shuffled(found, seed)) == lines(found)


@pytest.mark.parametrize(("switch", "rails", "changed"), [
    (trees.leaf(1, 2), 4, 0),                 # a leaf of a unit, without its name yet
    ("IBSPINE-02", 4, 0),
    (trees.leaf(1, 2), 1, 2),                 # the leaf itself: its line, and the one above
])
def test_a_replaced_switch_changes_little(switch: str, rails: int, changed: int) -> None:
    net = trees.fat_tree(5, rails, 4, 3)
    before = lines(inventory(net))
    new = "Quantum Mellanox Technologies"
    net.boxes[switch].guid += 0xABCD_0000
    text = trees.ibnetdiscover(net).replace(f'"{switch}"', f'"{new}"')
    found = fabric(text)
    after = lines(Inventory(tuple(Node(host) for host in hosts(found)), fabrics=(found,)))
    assert len(after) == len(before)
    assert sum(line not in before for line in after) == changed


def test_switches_without_names_are_called_by_their_guids() -> None:
    text = re.sub(r'"(MF0|IBSPINE)[^"]*"', '"Quantum Mellanox Technologies"',
                  trees.ibnetdiscover(trees.fat_tree(2, 1, 3, 2)))
    found = fabric(text)
    got = lines(Inventory(tuple(Node(host) for host in hosts(found)), fabrics=(found,)))
    assert re.fullmatch("SwitchName=level2 Switches=(switch-[0-9a-f]{16},?){2}", got[0])


def test_only_the_nodes_of_slurm() -> None:
    net = trees.fat_tree(2, 2, 4, 2)
    for number, name in enumerate(("login1 mlx5_0", "lustre-oss1 mlx5_0", "Mellanox Technologies Aggregation Node")):
        net.add("ca", name)
        net.plug(trees.leaf(1, 1), 50 + number, name, 1)
    plan = planned(inventory(net, without=("login1", "lustre-oss1", "u02n04")))
    text = texts(plan)["topology.conf"]
    assert not any(word in text for word in ("login1", "lustre", "Mellanox", "u02n04"))
    assert plan.notes == ["left out of the tree, no nodes of Slurm: login1, lustre-oss1, u02n04"]


def test_nodes_are_found_by_other_writings_of_their_names() -> None:
    found = inventory(trees.fat_tree(2, 1, 2, 1))
    other = tuple(replace(node, name=f"c{place}", hostname=f"{node.name.upper()}.cluster.example")
                  for place, node in enumerate(found.nodes))
    assert lines(replace(found, nodes=other))[1:] == ["SwitchName=IBLEAF-01-01 Nodes=c[0-1]",
                                                      "SwitchName=IBLEAF-01-02 Nodes=c[2-3]"]


def test_a_node_on_a_spine_has_a_leaf_below_it() -> None:
    net = trees.fat_tree(3, 2, 6, 2)
    net.add("ca", "cpu9 mlx5_0")
    net.plug("IBSPINE-01", 60, "cpu9 mlx5_0", 1)
    assert lines(inventory(net))[:2] == ["SwitchName=IBSPINE Switches=IBSPINE-nodes,unit-[01-03]",
                                         "SwitchName=IBSPINE-nodes Nodes=cpu9"]


def test_a_leaf_without_hosts_is_above_nothing() -> None:
    net = trees.fat_tree(3, 2, 4, 2)
    net.add("switch", trees.leaf(1, 9))
    for spine in (1, 2):
        net.plug(trees.leaf(1, 9), 40 + spine, f"IBSPINE-{spine:02d}", 60)
    assert lines(inventory(net)) == ["SwitchName=IBSPINE Switches=unit-[01-03]", *UNITS]


def test_a_switch_over_one_switch_says_nothing() -> None:
    net = trees.fat_tree(2, 1, 3, 1)
    net.add("switch", "core1")
    net.plug("IBSPINE-01", 60, "core1", 1)
    assert [line.split()[0] for line in lines(inventory(net))] == [
        "SwitchName=IBSPINE-01", "SwitchName=IBLEAF-01-01", "SwitchName=IBLEAF-01-02"]


def test_leaves_with_cables_between_them_are_no_islands() -> None:
    net = trees.fat_tree(2, 1, 3, 1)
    for port in list(net.boxes["IBSPINE-01"].ports):
        net.cut("IBSPINE-01", port)
    del net.boxes["IBSPINE-01"]
    net.plug(trees.leaf(1, 1), 30, trees.leaf(1, 2), 30)
    assert lines(inventory(net))[0] == "SwitchName=top Switches=IBLEAF-01-[01-02]"


def _other(name: str) -> str:
    return name.replace("u0", "v0").replace("IBSPINE", "B-SPINE").replace("rack", "row").replace("IBLEAF", "BLEAF")


def islands() -> Inventory:
    return inventory(beside(trees.fat_tree(2, 1, 3, 1), trees.fat_tree(2, 1, 3, 1), _other))


def test_islands_are_a_problem_until_the_site_speaks() -> None:
    (problem,) = problems(islands())
    assert "in 2 parts that no cable joins" in problem
    assert "u01n[01-03],u02n[01-03]" in problem
    kept = lines(islands(), site(islands="keep"))
    assert [line.split()[0] for line in kept[:2]] == ["SwitchName=B-SPINE-01", "SwitchName=IBSPINE-01"]
    assert "slurmctld will warn" in planned(islands(), site(islands="keep")).notes[0]
    assert lines(islands(), site(islands="join"))[0] == "SwitchName=top Switches=B-SPINE-01,IBSPINE-01  # site.toml"


def test_planes_with_the_same_nodes_on_their_leaves_are_one_network() -> None:
    def plane(name: str) -> str:
        return name.replace("mlx5_0", "mlx5_1").replace("IBSPINE", "P2SPINE").replace("IBLEAF", "P2LEAF")
    got = lines(inventory(beside(trees.fat_tree(3, 1, 4, 1), trees.fat_tree(3, 1, 4, 1), plane)))
    assert got == ["SwitchName=level2 Switches=unit-[01-03]", *UNITS]


def _turned(name: str) -> str:
    """Node a of unit b where node b of unit a was: the same nodes, otherwise on leaves."""
    name = re.sub(r"u(\d\d)n(\d\d) mlx5_0", r"u\2n\1 mlx5_1", name)
    return name.replace("IBSPINE", "S-SPINE").replace("IBLEAF", "SLEAF")


def test_two_fabrics_on_the_same_nodes() -> None:
    """Compute and storage, with other nodes on a leaf: the GPUs tell which is which, else the site must."""
    found = inventory(beside(trees.fat_tree(3, 1, 3, 1), trees.fat_tree(3, 1, 3, 1), _turned))
    (problem,) = problems(found)
    assert "2 fabrics without a cable between them reach the same nodes" in problem
    assert lines(found, site(fabric=["S-*"]))[0] == "SwitchName=S-SPINE-01 Switches=SLEAF-01-[01-03]"
    assert "called 'x'" in problems(found, site(fabric=["x"]))[0]
    for near, spine in (("mlx5_0", "IBSPINE-01"), ("mlx5_1", "S-SPINE-01")):
        nodes = tuple(replace(node, gpus=(Gpu("nvidia", 0),), nics=tuple(
            adapter(name, "PIX" if name == near else "SYS") for name in ("mlx5_0", "mlx5_1"))) for node in found.nodes)
        plan = planned(replace(found, nodes=nodes))
        assert plan.notes == ["left out of the tree: 9 cables of adapters that are near no GPU"]
        assert texts(plan)["topology.conf"].split("SwitchName=")[1].split()[0] == spine


def test_the_fabric_with_more_cables_is_the_one() -> None:
    found = inventory(beside(trees.fat_tree(3, 2, 3, 1), trees.fat_tree(3, 1, 3, 1), lambda name: _turned(
        name).replace("mlx5_1", "mlx5_9")))
    assert lines(found)[0] == "SwitchName=IBSPINE-01 Switches=unit-[01-03]"


def test_a_slower_network_is_left_out_where_no_gpu_tells() -> None:
    found = inventory(beside(trees.fat_tree(3, 1, 3, 1), trees.fat_tree(3, 1, 3, 1), _turned))
    nodes = tuple(replace(node, nics=(Nic("mlx5_0", rdma="mlx5_0", rate_gbps=100.0),
                                      Nic("mlx5_1", rdma="mlx5_1", rate_gbps=400.0))) for node in found.nodes)
    assert lines(replace(found, nodes=nodes))[0] == "SwitchName=S-SPINE-01 Switches=SLEAF-01-[01-03]"


def test_nodes_on_no_switch() -> None:
    """A node without an adapter for it is off the fabric; one with an adapter should be on it."""
    net = trees.fat_tree(2, 1, 3, 1)
    plain, broken = Node("cpu1", nics=(Nic("eth0"),)), Node("u02n09", nics=(adapter("mlx5_0"),))
    assert lines(inventory(net, plain))[0::3] == ["SwitchName=IBSPINE-01 Switches=IBLEAF-01-[01-02],off-fabric",
                                                  "SwitchName=off-fabric Nodes=cpu1"]
    assert problems(inventory(net, plain, broken)) == [
        "u02n09: is on no switch of the fabric, and should be by its adapters"]
    assert problems(inventory(net, Node("x", unknown=("nics",)))) != []
    assert len(problems(inventory(net, plain, broken), site(off_fabric="refuse"))) == 2
    assert lines(inventory(net, plain, broken), site(off_fabric="leaf"))[-1] == \
        "SwitchName=off-fabric Nodes=cpu1,u02n09  # site.toml"
    island = planned(inventory(net, plain, broken), site(off_fabric="island"))
    assert "Switches=IBLEAF-01-[01-02]\n" in texts(island)["topology.conf"]
    assert "root of their own" in island.notes[0]


def test_a_node_with_storage_cables_alone() -> None:
    net = trees.fat_tree(3, 2, 4, 2)
    net.add("switch", "storage")
    for place, host in enumerate(f"u{u:02d}n{n:02d}" for u in (1, 2, 3) for n in (1, 2, 3, 4)):
        net.add("ca", f"{host} mlx5_9")
        net.plug("storage", place + 1, f"{host} mlx5_9", 1)
    assert lines(inventory(net)) == ["SwitchName=IBSPINE Switches=unit-[01-03]", *UNITS]
    for rail in (0, 1):
        net.cut(f"u02n02 mlx5_{rail}", 1)
    assert problems(inventory(net)) == ["u02n02: hangs on storage alone, whose other nodes are at home elsewhere"]


def test_one_leaf_needs_no_topology() -> None:
    one = inventory(trees.fat_tree(1, 2, 4, 1))
    plan = planned(one)
    assert (plan.files, plan.settings) == ({}, ())
    assert plan.notes == ['no topology is written: all nodes are on one switch, rack01-IBLEAF, none nearer to another '
                          '([topology] plugin = "tree" writes it all the same)']
    assert lines(one, site(plugin="tree")) == ["SwitchName=rack01-IBLEAF Nodes=u01n[01-04]"]
    assert planned(Inventory((Node("a"), Node("b")))).notes == []


def test_lldp_on_the_nodes() -> None:
    nodes = tuple(Node(f"n{number}", neighbours=(("eth0", f"leaf{1 + number // 3}.example.org", f"swp{number}"),
                                                 ("eno1", "mgmt", f"port{number}"))) for number in range(6))
    plan = planned(Inventory(nodes))
    assert lines(Inventory(nodes)) == ["SwitchName=top Switches=leaf[1-2]", "SwitchName=leaf1 Nodes=n[0-2]",
                                       "SwitchName=leaf2 Nodes=n[3-5]"]
    assert "mgmt" in plan.notes[0]
    assert "LLDP" in plan.files["topology.conf"][0].lines[0].entries[0].reason
    mute = (*nodes, Node("n6"))
    assert problems(Inventory(mute)) == ["n6: is on no switch: neither LLDP on it nor on a switch tells"]


def test_an_old_file_is_written_where_the_site_wants_it() -> None:
    found = inventory(trees.fat_tree(3, 1, 4, 1))
    assert list(planned(found, site(), V26).files) == ["topology.yaml"]
    plan = planned(found, site(file="topology.conf"), V26)
    assert (list(plan.files), plan.settings[0].value) == (["topology.conf"], "topology/tree")
    assert list(planned(found, site(), None).files) == ["topology.conf"]
    assert problems(found, site(file="topology.yaml")) == ["topology.yaml is read from Slurm 25.05 on"]


@pytest.mark.parametrize(("version", "value"), [
    (V22, "topology/none"), ((23, 2), "topology/none"), ((23, 11), "topology/default"), (V24, "topology/default"),
    (V25, "topology/flat"), (V26, "topology/flat"), (None, "")])
def test_none_is_called_otherwise_in_each_version(version: tuple[int, int] | None, value: str) -> None:
    plan = planned(inventory(trees.fat_tree(3, 1, 4, 1)), site(plugin="none"), version)
    assert plan.files == {}
    assert [entry.value for entry in plan.settings] == ([value] if value else [])


def test_a_plugin_in_slurm_options_is_the_sites_word() -> None:
    found = inventory(trees.fat_tree(3, 1, 4, 1))
    plan = planned(found, with_option("topologyplugin", "topology/tree"), V26)
    assert (list(plan.files), plan.settings) == (["topology.conf"], ())
    assert planned(found, with_option("TopologyPlugin", "topology/none")).files == {}
    assert "no topology file is written" in planned(found, with_option("TopologyPlugin", "topology/hypercube")).notes[0]
    assert "contradict" in problems(found, with_option("TopologyPlugin", "topology/none", plugin="tree"))[0]


def test_ranks_follow_the_network_where_names_do_not() -> None:
    nodes = tuple(Node(f"n{number:02d}", neighbours=(("eth0", f"leaf{number % 2}", f"swp{number}"),))
                  for number in range(8))
    found = Inventory(nodes)
    assert [(e.key, e.value) for e in planned(found, version=V24).settings] == [
        ("TopologyPlugin", "topology/tree"), ("TopologyParam", "SwitchAsNodeRank")]
    assert [e.key for e in planned(found, version=V22).settings] == ["TopologyPlugin"]
    assert [e.key for e in planned(found, version=V26).settings] == ["TopologyParam"]
    own = planned(found, with_option("TopologyParam", "TopoOptional"))
    assert [e.key for e in own.settings] == ["TopologyPlugin"]
    assert "SwitchAsNodeRank" in own.notes[-1]


@pytest.mark.parametrize(("key", "value"), [("plugin", "3d_torus"), ("source", "wifi"), ("islands", "maybe"),
                                            ("off_fabric", "yes"), ("file", "topology.json")])
def test_words_that_the_table_does_not_take(key: str, value: str) -> None:
    (problem,) = planned(inventory(trees.fat_tree(2, 1, 2, 1)), site(**{key: value})).problems
    assert (problem.key, "is not known here" in problem.what) == (f"topology.{key}", True)


def test_a_source_that_is_not_there() -> None:
    (problem,) = problems(inventory(trees.fat_tree(2, 1, 2, 1)), site(source="ethernet"))
    assert problem == "the inventory has no ethernet fabric with nodes of Slurm on it"
    (problem,) = problems(Inventory((Node("a"), Node("b"))), site(plugin="tree"))
    assert problem == "no fabric with nodes of Slurm is in the inventory: no tree"


def test_nodes_that_failed_are_in_no_file() -> None:
    found = inventory(trees.fat_tree(2, 1, 3, 1), without=("u01n03",))
    assert "SwitchName=IBLEAF-01-01 Nodes=u01n[01-02]" in lines(replace(found, failed=(Failed("u01n03", "silent"),)))


@pytest.mark.parametrize(("name", "expected"), [
    ("leaf1", "leaf1"), ("a b", "a-b"), ("switch.3.1", "switch-3-1"), ("SB7700 (ec0d)", "SB7700-ec0d"), ("", "switch"),
    ("é[1]", "1"), ("x" * 80, None), ("9" * 30, None), ("s" + "1" * 25, None)])
def test_names_are_legal(name: str, expected: str | None) -> None:
    got = legal(name)
    assert re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]{0,62}", got)
    assert len(got) - len(got.rstrip("0123456789")) <= 19
    assert expected is None or got == expected


def test_long_names_stay_apart() -> None:
    parts = [Part(1, (f"{'x' * 70}{n}",), nodes=(f"n{n}",)) for n in range(3)]
    assert len(set(switch_names(parts, {}))) == 3
    same = [Part(1, (f"a{mark}b",), nodes=(f"n{mark}",)) for mark in "()[] "]
    names = switch_names(same, {})
    assert len(set(names)) == len(names)
    assert switch_names(same[::-1], {}) == names[::-1]


@pytest.mark.parametrize(("units", "expected"), [
    ([("leaf-1-01", "leaf-2-01"), ("leaf-1-02", "leaf-2-02")], ["01", "02"]),
    ([("leaf-01-r1", "leaf-01-r2"), ("leaf-02-r1", "leaf-02-r2")], ["01", "02"]),
    ([("p1-u1-r1", "p1-u1-r2"), ("p1-u2-r1", "p1-u2-r2"), ("p2-u1-r1", "p2-u1-r2")], ["1-1", "1-2", "2-1"]),
    ([("leaf-1-01", "leaf-2-01"), ("leaf-1-02", "new"), ("leaf-1-03", "leaf-2-03")], ["01", "02", "03"]),
    ([("a", "b"), ("c", "d")], ["", ""]),
    ([("leaf1", "leaf2"), ("leaf3", "leaf4")], ["", ""]),
])
def test_numbers_of_units(units: list[tuple[str, ...]], expected: list[str]) -> None:
    assert unit_numbers(units) == expected


def test_three_levels_read_back() -> None:
    net = trees.Net()
    for pod in range(3):
        for middle in range(2):
            net.add("switch", f"agg-{pod}-{middle}")
            net.plug(f"agg-{pod}-{middle}", 30, net.add("switch", f"core{middle}").name, 1 + pod)
        for number in range(2):
            name = net.add("switch", f"tor-{pod}-{number}").name
            for middle in range(2):
                net.plug(name, 30 + middle, f"agg-{pod}-{middle}", 1 + number)
            for node in range(3):
                net.plug(name, 1 + node, net.add("ca", f"n{pod}{number}{node} HCA-1").name, 1)
    for one, other in pairwise(("core0", "core1")):
        net.plug(one, 40, other, 40)
    found = inventory(net)
    assert lines(found) == [
        "SwitchName=core Switches=agg-[0-2]", "SwitchName=agg-0 Switches=tor-0-[0-1]",
        "SwitchName=agg-1 Switches=tor-1-[0-1]", "SwitchName=agg-2 Switches=tor-2-[0-1]",
        *(f"SwitchName=tor-{pod}-{number} Nodes=n[{pod}{number}0-{pod}{number}2]" for pod in range(3)
          for number in range(2))]
    for version in (V24, V26):
        conf = read_back(planned(found, version=version), [node.name for node in found.nodes])
        assert conf.faults == ()
        assert {switch.name: (switch.switches, switch.nodes) for switch in conf.topologies[0].switches}["agg-1"] == (
            ("tor-1-0", "tor-1-1"), ())


def test_an_incomplete_dump_is_said() -> None:
    found = inventory(trees.fat_tree(2, 1, 3, 1))
    cut = replace(found, fabrics=(replace(found.fabrics[0], incomplete=("line 7 cannot be read",)),))
    assert planned(cut).notes == ["the infiniband fabric is incomplete: line 7 cannot be read"]


def test_two_networks_that_lldp_cannot_tell_apart() -> None:
    """As many nodes on a leaf of either, otherwise grouped: the site names the leaves that jobs use."""
    nodes = tuple(Node(f"n{number}", neighbours=(("eth0", f"a{number // 3}", f"swp{number}"),
                                                 ("eth1", f"b{number % 3}", f"swp{number}"))) for number in range(9))
    assert "as n0 on a0, b0" in problems(Inventory(nodes))[0]
    assert lines(Inventory(nodes), site(fabric=["a*"]))[0] == "SwitchName=top Switches=a[0-2]"
    rated = tuple(replace(node, nics=(Nic("eth0", rate_gbps=1.0), Nic("eth1", rate_gbps=25.0))) for node in nodes)
    assert lines(Inventory(rated))[0] == "SwitchName=top Switches=b[0-2]"

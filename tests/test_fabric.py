"""Fabrics: every tool's picture of one fabric is the same fabric; levels, units, faults and Slurm's tree."""

import json
import time
from dataclasses import replace
from pathlib import Path

import fabric_trees as trees
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpcadmin import hosts
from hpcadmin.fabric import build, fabric_answers, fabric_probe_script, faults, slurm_tree, topology_conf, units
from hpcadmin.fabric.names import host_of, is_generic, short_names, switch_name
from hpcadmin.fabric_text import fabric_lines
from hpcadmin.facts import iblinkinfo, ibnetdiscover
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.model import Fabric, Nic, Node

SAMPLES = Path(__file__).parent / "samples" / "fabric"


def readings(text: str) -> list[Reading]:
    document = Document("dump.txt", lines=tuple(text.split("\n")))
    return [*ibnetdiscover.read(document), *iblinkinfo.read(document)]


def fabric(*texts: str, nodes: tuple[Node, ...] = ()) -> Fabric:
    (found,) = build([reading.value for text in texts for reading in readings(text)], nodes)
    return found


def cables_of(found: Fabric) -> set[frozenset[tuple[str, int | None]]]:
    return {frozenset({(device.name, port.number), (port.peer, port.peer_port)})
            for device in found.devices for port in device.ports if port.peer}


def right_cables(net: trees.Net) -> set[frozenset[tuple[str, int]]]:
    names = {name: switch_name(name, "") if box.kind == "switch" else name for name, box in net.boxes.items()}
    return {frozenset({(names[box.name], port), (names[peer], far)})
            for box in net.boxes.values() for port, (peer, far) in box.ports.items()}


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(1, 2))


@pytest.mark.parametrize("form", trees.FORMATS)
@settings(max_examples=25, deadline=None)
@given(shape=SHAPES)
def test_a_tree_is_read_back_from_every_format(form: str, shape: tuple[int, ...]) -> None:
    # With one port used, nothing but the word "Switch" would tell a switch from a host, and --line does not print it.
    assume(form != "iblinkinfo --line" or shape[0] * shape[1] * shape[4] > 1)
    net = trees.fat_tree(*shape)
    (reading,) = readings(trees.FORMATS[form](net))
    assert (reading.missing, reading.refused) == ((), "")
    found = fabric(trees.FORMATS[form](net))
    assert cables_of(found) == right_cables(net)
    assert {device.name: device.kind for device in found.devices} == {
        switch_name(name, "") if box.kind == "switch" else name: box.kind for name, box in net.boxes.items()}
    assert {switch.name: switch.level for switch in found.switches} == {
        switch_name(name, ""): 2 if "SPINE" in name else 1 for name, box in net.boxes.items() if box.kind == "switch"}
    assert found.problems == ()
    count, _, nodes, _, _ = shape
    assert sorted(unit.nodes for unit in units(found)) == [
        tuple(f"u{unit:02d}n{node:02d}" for node in range(1, nodes + 1)) for unit in range(1, count + 1)]


@pytest.mark.deep
@settings(max_examples=15, deadline=None)
@given(shape=SHAPES)
def test_all_formats_together_are_the_same_fabric(shape: tuple[int, ...]) -> None:
    net = trees.fat_tree(*shape)
    alone = fabric(trees.ibnetdiscover(net))
    assert cables_of(fabric(*(form(net) for form in trees.FORMATS.values()))) == cables_of(alone)
    assert fabric(*(form(net) for form in trees.FORMATS.values())).problems == ()


@settings(max_examples=25, deadline=None)
@given(shape=SHAPES)
def test_slurm_tree_has_every_node_once_and_every_switch_under_one_parent(shape: tuple[int, ...]) -> None:
    tree = slurm_tree(fabric(trees.ibnetdiscover(trees.fat_tree(*shape))))
    nodes = [node for switch in tree for node in switch.nodes]
    below = [name for switch in tree for name in switch.switches]
    names = [switch.name for switch in tree]
    assert len(nodes) == len(set(nodes)) == shape[0] * shape[2]
    assert len(below) == len(set(below)) == shape[0] == len(names) - 1
    assert len(names) == len(set(names))
    assert all(hosts.is_node_name(name) for name in names)
    assert all(bool(switch.nodes) != bool(switch.switches) for switch in tree)


def told(found: Fabric) -> list[str]:
    return [fault.what for fault in faults(found) if not fault.note]


@pytest.mark.parametrize("form", trees.FORMATS)
def test_a_missing_cable(form: str) -> None:
    net = trees.fat_tree(3, 2, 4, 2)
    net.cut("u02n03 mlx5_1", 1)
    assert told(fabric(trees.FORMATS[form](net))) == [
        "missing cable: u02n03 has no cable to leaf IBLEAF-02-02, the other nodes of the unit 1"]


def test_crossed_cables_and_a_cable_in_the_wrong_unit() -> None:
    net = trees.fat_tree(3, 3, 6, 2)
    for node, (one, other) in (("u01n02", (0, 1)), ("u02n05", (1, 2))):
        ends = {rail: net.boxes[f"{node} mlx5_{rail}"].ports[1] for rail in (one, other)}
        for rail in (one, other):
            net.cut(f"{node} mlx5_{rail}", 1)
        net.plug(f"{node} mlx5_{one}", 1, *ends[other])
        net.plug(f"{node} mlx5_{other}", 1, *ends[one])
    net.cut("u03n06 mlx5_0", 1)
    net.plug("u03n06 mlx5_0", 1, trees.leaf(1, 1), 40)
    assert told(fabric(trees.ibnetdiscover(net))) == [
        "u01n02: mlx5_0 and mlx5_1 are crossed: mlx5_0 hangs on leaf IBLEAF-02-01 port 2, mlx5_1 on IBLEAF-01-01 "
        "port 2",
        "u02n05: mlx5_1 and mlx5_2 are crossed: mlx5_1 hangs on leaf IBLEAF-03-02 port 5, mlx5_2 on IBLEAF-02-02 "
        "port 5",
        "missing cable: u03n06 has no cable to leaf IBLEAF-01-03, the other nodes of the unit 1",
        "u03n06 mlx5_0 hangs on leaf IBLEAF-01-01 port 40 of unit 01, the node's other cables are in unit 03",
    ]


def test_uneven_uplinks_degraded_links_and_a_missing_leaf() -> None:
    net = trees.fat_tree(4, 2, 4, 2, 2)
    net.cut(trees.leaf(1, 2), 5)
    net.slow["u03n01 mlx5_0", 1] = "EDR"
    net.slow[trees.leaf(2, 4), 6] = "HDR"
    for port in list(net.boxes[trees.leaf(2, 1)].ports):
        net.cut(trees.leaf(2, 1), port)
    for name in [trees.leaf(2, 1), *(f"u01n{node:02d} mlx5_1" for node in range(1, 5))]:
        del net.boxes[name]
    assert told(fabric(trees.ibnetdiscover(net))) == [
        "unit 01: 4 nodes on only 1 leaf, those of other units on 2: missing leaf: IBLEAF-02-01 is not there",
        "uplinks are uneven: 1 of 7 leaves have not 4 cables to 2 switches above: IBLEAF-01-02 (3 to 2)",
        "degraded link: IBLEAF-02-04 port 6 to IBSPINE-01 port 16 runs at 4X HDR, most cables between switches at "
        "4X NDR",
        "degraded link: IBLEAF-01-03 port 1 to u03n01 mlx5_0 runs at 4X EDR, u03n01's other ports at 4X NDR",
    ]


def test_what_both_ends_could_do() -> None:
    text = trees.iblinkinfo(trees.fat_tree(2, 1, 3, 1)).split("\n")
    place = next(n for n, line in enumerate(text) if "u01n02" in line and "==>" in line)
    text[place] = text[place].replace("106.25 Gbps", "25.78125 Gbps").replace("( )", "( Could be 106.25 Gbps)")
    assert told(fabric("\n".join(text)))[0] == \
        "degraded link: IBLEAF-01-01 port 2 to u01n02 mlx5_0 runs at 4X EDR, could be NDR"


def test_a_spine_with_the_fabric_manager_on_it_is_no_leaf() -> None:
    net = trees.fat_tree(3, 1, 6, 2)
    for name, spine in (("ufm01 mlx5_0", 1), ("gpustore7 mlx5_0", 2)):
        net.add("ca", name)
        net.plug(f"IBSPINE-{spine:02d}", 60, name, 1)
    found = fabric(trees.ibnetdiscover(net))
    assert {switch.level for switch in found.switches if "SPINE" in switch.name} == {2}
    assert found.problems == ()
    assert all("ufm01" not in line and "gpustore7" not in line for line in topology_conf(found))


def test_a_storage_switch_that_all_units_have_joins_nothing() -> None:
    net = trees.fat_tree(3, 1, 4, 2)
    net.add("switch", "storage-leaf")
    for unit in range(1, 4):
        for node in range(1, 5):
            name = net.add("ca", f"u{unit:02d}n{node:02d} mlx5_7").name
            net.plug("storage-leaf", unit * 4 + node, name, 1)
    found = fabric(trees.ibnetdiscover(net))
    assert [len(unit.nodes) for unit in units(found)] == [4, 4, 4, 0]
    assert all("storage" not in line for line in topology_conf(found))
    assert [what for what in found.problems if "storage-leaf: no link to the other switches" not in what] == []
    net.cut("u02n02 mlx5_0", 1)
    assert "missing cable: u02n02 hangs on storage-leaf alone, whose other nodes are on further leaves" in \
        told(fabric(trees.ibnetdiscover(net)))


def test_three_levels() -> None:
    """Pods of two leaves under two switches each; cores above all."""
    net = trees.Net()
    for core in range(2):
        net.add("switch", f"core{core}")
    for pod in range(3):
        for middle in range(2):
            net.add("switch", f"agg-{pod}-{middle}")
            for core in range(2):
                net.plug(f"agg-{pod}-{middle}", 30 + core, f"core{core}", 1 + pod * 2 + middle)
        for number in range(2):
            name = net.add("switch", f"tor-{pod}-{number}").name
            for middle in range(2):
                net.plug(name, 30 + middle, f"agg-{pod}-{middle}", 1 + number)
            for node in range(3):
                card = net.add("ca", f"n{pod}{number}{node} HCA-1").name
                net.plug(name, 1 + node, card, 1)
    found = fabric(trees.ibnetdiscover_p(net))
    assert [switch.line for switch in slurm_tree(found)] == [
        "SwitchName=tor-0-0 Nodes=n[000-002]", "SwitchName=tor-0-1 Nodes=n[010-012]",
        "SwitchName=tor-1-0 Nodes=n[100-102]", "SwitchName=tor-1-1 Nodes=n[110-112]",
        "SwitchName=tor-2-0 Nodes=n[200-202]", "SwitchName=tor-2-1 Nodes=n[210-212]",
        "SwitchName=agg-0 Switches=tor-0-[0-1]", "SwitchName=agg-1 Switches=tor-1-[0-1]",
        "SwitchName=agg-2 Switches=tor-2-[0-1]", "SwitchName=core Switches=agg-[0-2]",
    ]
    assert found.problems == ()


def test_only_nodes_that_slurm_knows() -> None:
    found = fabric(trees.ibnetdiscover(trees.fat_tree(2, 2, 3, 1)))
    assert topology_conf(found, {"u01n01", "u01n02"}) == (
        "SwitchName=unit-01 Nodes=u01n[01-02]", "SwitchName=IBSPINE-01 Switches=unit-01")


def test_cards_without_a_name_are_joined_by_guid() -> None:
    net = trees.fat_tree(2, 2, 3, 1)
    named = net.boxes["u02n01 mlx5_1"]
    text = trees.ibnetdiscover(net).replace("u02n01 mlx5_1", "MT4129 ConnectX7   Mellanox Technologies")
    before = fabric(text)
    assert any("1 adapter without a host name" in what for what in before.problems)
    node = Node("gpu7", nics=(Nic("mlx5_9", rdma="mlx5_9", guid=f"{named.guid:016x}"),))
    after = fabric(text, nodes=(node,))
    card = next(device for device in after.devices if device.guid == f"{named.guid:016x}")
    assert (card.host, card.device) == ("gpu7", "mlx5_9")
    wrong = replace(node, nics=(replace(node.nics[0], guid=f"{net.boxes['u01n01 mlx5_0'].guid:016x}"),))
    assert any("u01n01's by its description" in what and "gpu7's by its GUID" in what
               for what in fabric(text, nodes=(wrong,)).problems)


def test_neighbours_of_nodes_are_a_fabric() -> None:
    nodes = tuple(Node(f"n{number}", neighbours=(("eth0", f"leaf{1 + number // 3}", f"swp{number}"),))
                  for number in range(6))
    (found,) = build([], nodes)
    assert found.kind == "ethernet"
    managed = tuple(replace(node, neighbours=(*node.neighbours, ("eno1", "mgmt-switch", f"swp{n}")))
                    for n, node in enumerate(nodes))
    assert topology_conf(build([], managed)[0]) == topology_conf(found)
    assert topology_conf(found) == ("SwitchName=leaf1 Nodes=n[0-2]", "SwitchName=leaf2 Nodes=n[3-5]")


def test_two_cables_in_one_port_are_a_contradiction() -> None:
    net = trees.fat_tree(1, 1, 3, 1)
    text = trees.ibnetdiscover_p(net)
    lines = [line for line in text.split("\n") if line.startswith("SW") and "u01n01" in line]
    own = f"{net.boxes['u01n01 mlx5_0'].guid + 1:016x}"
    moved = lines[0].replace("u01n01", "u01n09").replace(own, "00000000000000aa")
    assert any("has two cables" in what for what in fabric(text + moved.replace("CA     3", "CA    99")).problems)


def test_no_tree_is_made_of_what_is_none() -> None:
    for text, why in (
        ('Ca\t1 "H-b8e92403009ca838"\t\t# "node01 HCA-1"\n', "no switch and no link"),
        ("SW   479 22 0x0002c9020040f161 4x QDR                                   'sw1'\n", "no link and no host"),
        ('Switch\t36 "S-0002c9020040f161"\t\t# "sw1" base port 0 lid 3 lmc 0\n'
         '[1]\t"S-0002c9020040f162"[1]\t\t# "sw2" lid 4 4xEDR\n', "no host is attached"),
    ):
        (reading,) = readings(text)
        assert why in reading.refused
        assert "topology_conf" not in reading.known


def test_lines_that_cannot_be_read_are_named() -> None:
    text = trees.ibnetdiscover(trees.fat_tree(1, 1, 2, 1)).split("\n")
    place = next(n for n, line in enumerate(text) if line.startswith("[2]"))
    text[place] = text[place][:30]
    (reading,) = readings("\n".join(text))
    assert any(f"line {place + 1}" in what for what in reading.missing)
    assert any(finding.line == place + 1 and "cannot be read" in finding.what for finding in reading.findings)


@pytest.mark.parametrize("net", ["rails", "dual"])
def test_what_the_real_tools_print_of_a_simulated_fabric(net: str) -> None:
    pictures = {path.name: fabric(path.read_text()) for path in sorted(SAMPLES.glob(f"{net}.*.txt"))
                if not path.name.endswith(("discover-l.txt", "switches-only.txt"))}
    assert len(pictures) > 3
    first = pictures[f"{net}.ibnetdiscover.txt"]
    for name, found in pictures.items():
        assert cables_of(found) == cables_of(first), name
        assert topology_conf(found) == topology_conf(first), name
    right = json.loads((SAMPLES / f"{net}.json").read_text())
    assert told(first) == right["faults"]
    assert list(topology_conf(first)) == right["topology_conf"]
    assert fabric_lines(first) == right["text"]


def test_descriptions() -> None:
    assert host_of("node01 mlx5_0") == ("node01", "mlx5_0")
    assert host_of("                  thing4 HCA-1") == ("thing4", "HCA-1")
    assert host_of("node01.example.org mlx5_bond_0") == ("node01", "mlx5_bond_0")
    assert host_of("mgt") == ("mgt", "")
    assert host_of("localhost HCA-2") == ("", "HCA-2")
    for card in ("MT4129 ConnectX7   Mellanox Technologies", "MT25408 ConnectX Mellanox Technologies", "", "  ",
                 "Mellanox Technologies Aggregation Node", "node one mlx5_0"):
        assert host_of(card)[0] == ""
    assert switch_name("MF0;SB7700:MSB7700/U1", "") == "SB7700"
    assert switch_name("SwitchIB Mellanox Technologies", "ec0d9a030002b810") == "switch-ec0d9a030002b810"
    assert not is_generic("MF0;nvidia-leaf1:MQM9700/U1")
    assert short_names(["ib-i1l1s01", "ib-i4l1s01"]) == {"ib-i1l1s01": "ib-i1l1s01", "ib-i4l1s01": "ib-i4l1s01"}


TOKEN = "0123456789abcdef"


def test_the_fabric_is_asked_through_one_node() -> None:
    script = fabric_probe_script(port="mlx5_0/1")
    assert "sudo -n ibnetdiscover -C mlx5_0 -P 1" in script
    frame = "\nHPCADMIN-FABRIC {} {} {}\n"
    text = "".join([frame.format(TOKEN, "begin", "ibnetdiscover"), "SW 1\n",
                    frame.format("f" * 16, "end", "ibnetdiscover"),
                    frame.format(TOKEN, "end", "ibnetdiscover status=0"),
                    frame.format(TOKEN, "begin", "iblinkinfo"),
                    "sudo: a password is required\n", frame.format(TOKEN, "end", "iblinkinfo status=1")])
    assert list(fabric_answers(text, TOKEN)) == ["ibnetdiscover"]
    with pytest.raises(Exception, match="a password is required"):
        fabric_answers(text[text.index("begin iblinkinfo") - 40:], TOKEN)
    with pytest.raises(Exception, match="no port of an adapter"):
        fabric_probe_script(port="mlx5_0; reboot")


@pytest.mark.deep
def test_ten_thousand_hosts_take_linear_time() -> None:
    """Four times the hosts take about four times as long."""
    seconds = []
    for count in (20, 80):
        text = trees.ibnetdiscover(trees.fat_tree(count, 1, 125, 8))
        start = time.process_time()
        found = fabric(text)
        seconds.append(time.process_time() - start)
        assert found.problems == ()
        assert len(fabric_lines(found)) < 2 * count + 40
    assert seconds[1] < 8 * seconds[0] + 0.5
    assert seconds[1] < 20

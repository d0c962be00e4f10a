"""Rules on topology.conf and topology.yaml. What slurmctld does was put before 22.05.8, 24.11.5 and 26.05.5."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conf_models import H100, inventory, names
from looped import looped

from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.rules import topology
from hpcadmin.conf.existing.read import configure
from hpcadmin.facts import _slurm_shapes as shapes
from hpcadmin.model import Fabric, FabricDevice, Inventory, SwitchPort

OLD, MIDDLE, YOUNG = (22, 5), (24, 11), (26, 5)
SLURM = "ClusterName=x\nTopologyPlugin=topology/{}\nNodeName=n[1-8] Sockets=2{}\n"
YAML = """- topology: a
  cluster_default: true
  tree:
    switches:
      - switch: s
        children: l[1-2]
      - switch: l1
        nodes: n[1-4]
      - switch: l2
        nodes: n[5-8]
"""
BLOCK_YAML = """- topology: b
  cluster_default: true
  block:
    block_sizes: [4, 6]
    blocks:
      - block: b1
        nodes: n[1-4]
      - block: b2
        nodes: n[5-8]
"""


def found(texts: dict[str, str], *versions: tuple[int, int], inventory: Inventory | None = None) -> list[Finding]:
    situation = Situation(configure(texts), versions, inventory)
    return [finding for rule in topology.RULES for finding in rule(situation)]


def of(topo: str | None, kind: str = "tree", *versions: tuple[int, int], more: str = "", node: str = "",
       **files: str) -> list[Finding]:
    texts = {"slurm.conf": SLURM.format(kind, node) + more}
    if topo is not None:
        texts["topology.conf"] = topo
    return found(texts | {name.replace("_", "."): text for name, text in files.items()}, *(versions or (MIDDLE,)))


GOOD = "SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-8]\nSwitchName=s Switches=l[1-2]\n"
BLOCKS = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n"


@pytest.mark.parametrize(("topo", "kind"), [(GOOD, "tree"), (BLOCKS, "block"), (None, "none"), (None, "default"),
                                            ("SwitchName=" + "s" * 64 + " Nodes=n[1-8]\n", "tree"),
                                            ("SwitchName=s11111111111111111111 Nodes=n[1-8]\n", "tree")])
def test_what_is_right_has_no_finding(topo: str | None, kind: str) -> None:
    assert of(topo, kind) == []


WRONG = [
    ("twice", GOOD.replace("n[1-4]", "n[1-5]"), Severity.WRONG, "n5 is in l1 and l2", "SwitchName=l2 Nodes=n[6-8]"),
    ("rails", "SwitchName=l1 Nodes=n[1-8]\nSwitchName=l2 Nodes=n[1-8]\nSwitchName=s Switches=l[1-2]\n", Severity.WRONG,
     "n[1-8] are in l1 and l2", "SwitchName=l1 Nodes=n[1-8]"),
    ("in none", "SwitchName=l1 Nodes=n[1-4]\n", Severity.WRONG, "n[5-8] are in no leaf", ""),
    ("unknown", "SwitchName=l1 Nodes=n[1-8],Mellanox,login1\n", Severity.WRONG, "Mellanox,login1 are in no NodeName=",
     "SwitchName=l1 Nodes=n[1-8]"),
    ("undefined", GOOD.replace("l[1-2]", "l[1-3]"), Severity.FATAL, "switch s names l3, which nothing defines",
     "SwitchName=l3 Nodes=…"),
    ("both", GOOD + "SwitchName=e Switches=l1 Nodes=n1\n", Severity.FATAL, "switch e has Switches= and Nodes=", ""),
    ("self", GOOD + "SwitchName=e Switches=e,l1\n", Severity.FATAL, "a loop of switches: e", ""),
    ("loop", GOOD + "SwitchName=e Switches=f\nSwitchName=f Switches=e\n", Severity.FATAL, "a loop of switches: e,f",
     ""),
    ("name twice", GOOD + "SwitchName=l1 Nodes=n1\n", Severity.FATAL, "switch l1 is defined twice", ""),
    ("two parents", GOOD + "SwitchName=t Switches=l[1-2]\n", Severity.NOTE, "l[1-2] hang under s, t",
     "SwitchName=s Switches=l[1-2]"),
    ("other parents", GOOD + "SwitchName=t Switches=l2\n", Severity.WRONG, "l2 hangs under s, t", ""),
    ("forgotten leaf", GOOD.replace("n[5-8]", "n[5-6]") + "SwitchName=l3 Nodes=n[7-8]\n", Severity.WRONG,
     "no switch is above all nodes: s (6), l3 (2)", "SwitchName=s Switches=l[1-3]"),
    ("a root a fabric", "SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-8]\nSwitchName=s Switches=l1\n"
     "SwitchName=t Switches=l2\n", Severity.NOTE, "no switch is above all nodes: s (4), t (4)", ""),
    ("long", "SwitchName=" + "s" * 65 + " Nodes=n[1-8]\n", Severity.FATAL, "the name has 65 characters", ""),
    ("digits", "SwitchName=s" + "9" * 20 + " Nodes=n[1-8]\n", Severity.FATAL, "ends in a number above", ""),
    ("blocks", BLOCKS, Severity.FATAL, "BlockName= lines with TopologyPlugin=topology/tree", ""),
    ("missing", None, Severity.FATAL, "TopologyPlugin=topology/tree, and there is no topology.conf", ""),
]


@looped(("topo", "severity", "what", "right"), [case[1:] for case in WRONG],
                         ids=[case[0] for case in WRONG])
def test_trees(topo: str | None, severity: Severity, what: str, right: str) -> None:
    finding = next(f for f in of(topo) if what in f.what)
    assert finding.severity is severity
    assert finding.place is not None
    assert not right or right in finding.right


BLOCK_CASES = [
    ("in two", BLOCKS.replace("n[1-4]", "n[1-5]"), Severity.WRONG,
     "n5 is in b1 and b2", "BlockName=b2 Nodes=n[6-8]"),
    ("in none", "BlockName=b1 Nodes=n[1-4]\nBlockSizes=4\n", Severity.WRONG, "n[5-8] are in no block", ""),
    ("illegal size", BLOCKS.replace("4,8", "4,6"), Severity.FATAL, "BlockSizes=4,6: 6 is not 4 times a power of two",
     "BlockSizes=4"),
    ("base comes first", BLOCKS.replace("4,8", "8,4"), Severity.FATAL, "BlockSizes=8,4: 4 is not 8", "BlockSizes=8"),
    ("zero", BLOCKS.replace("4,8", "0"), Severity.FATAL, "BlockSizes=0: 0 is not", "BlockSizes=4"),
    ("small", "BlockName=b1 Nodes=n[1-5]\nBlockName=b2 Nodes=n[6-8]\nBlockSizes=5\n", Severity.FATAL,
     "b2 has fewer nodes than a block (3 < 5)", "BlockSizes=3"),
    ("small without sizes", "BlockName=b1 Nodes=n[1-5]\nBlockName=b2 Nodes=n[6-8]\n", Severity.FATAL,
     "the base size is that of the first block, 5", ""),
    ("empty block", BLOCKS + "BlockName=b3\n", Severity.FATAL, "block b3 has no Nodes=", ""),
    ("name twice", BLOCKS + "BlockName=b1 Nodes=n1\n", Severity.FATAL, "block b1 is defined twice", ""),
    ("switches", GOOD, Severity.FATAL, "SwitchName= lines with TopologyPlugin=topology/block",
     "TopologyPlugin=topology/tree"),
]


@pytest.mark.parametrize(("topo", "severity", "what", "right"), [case[1:] for case in BLOCK_CASES],
                         ids=[case[0] for case in BLOCK_CASES])
def test_blocks(topo: str, severity: Severity, what: str, right: str) -> None:
    finding = next(f for f in of(topo, "block") if what in f.what)
    assert finding.severity is severity
    assert not right or right in finding.right


@pytest.mark.parametrize(("kind", "topo", "what", "by_version"), [
    ("tree", "\n", "topology.conf has no switches", {OLD: "WRONG", MIDDLE: "WRONG", YOUNG: "FATAL"}),
    ("block", "\n", "topology.conf has no blocks", {MIDDLE: "WRONG", YOUNG: "FATAL"}),
    ("tree", GOOD + "SwitchName=e\n", "switch e has neither", {OLD: "FATAL", MIDDLE: "FATAL", YOUNG: ""}),
    ("block", BLOCKS + "BlockName=b3\n", "block b3 has no Nodes=", {MIDDLE: "FATAL", YOUNG: ""}),
    ("block", "BlockName=b1 Nodes=n[1-5]\nBlockName=b2 Nodes=n[6-8]\nBlockSizes=5\n", "fewer nodes than a block",
     {MIDDLE: "FATAL", YOUNG: "WRONG"}),
    ("tree", "SwitchName=" + "s" * 65 + " Nodes=n[1-8]\n", "has 65 characters",
     {OLD: "NOTE", MIDDLE: "FATAL", YOUNG: "FATAL"}),
])
def test_versions_differ(kind: str, topo: str, what: str, by_version: dict[tuple[int, int], str]) -> None:
    for version, severity in by_version.items():
        said = [f.severity.value for f in of(topo, kind, version) if what in f.what]
        assert said == ([severity] if severity else []), version


def test_several_versions_are_told_apart() -> None:
    finding = next(f for f in of(GOOD + "SwitchName=e\n", "tree", OLD, MIDDLE, YOUNG))
    assert finding.versions == (OLD, MIDDLE)
    assert "22.05 to 24.11" in finding.means


def test_yaml_wins_from_25_05_on() -> None:
    beside = of(GOOD, "tree", YOUNG, topology_yaml=YAML)
    assert [f.what for f in beside] == ["topology.conf stands beside topology.yaml"]
    assert [f.what for f in of(GOOD, "tree", MIDDLE, topology_yaml=YAML)] == ["topology.yaml is not read"]
    assert of(None, "flat", YOUNG, topology_yaml=YAML) == []


@pytest.mark.parametrize(("yaml", "severity", "what"), [
    (YAML.replace("default: true", "default: false"), Severity.WRONG, "no topology is the cluster_default"),
    (YAML + BLOCK_YAML, Severity.WRONG, "a, b are all cluster_default"),
    (YAML + YAML, Severity.WRONG, "topology a is defined twice"),
    (YAML + "- topology: c\n  cluster_default: false\n", Severity.FATAL, "topology c has neither tree: nor block:"),
    (BLOCK_YAML, Severity.FATAL, "topology b: block_sizes=4,6: 6 is not 4 times"),
    (YAML.replace("n[5-8]", "n[4-8]"), Severity.WRONG, "topology a: n4 is in l1 and l2"),
])
def test_yaml(yaml: str, severity: Severity, what: str) -> None:
    finding = next(f for f in of(None, "flat", YOUNG, topology_yaml=yaml) if what in f.what)
    assert finding.severity is severity


@pytest.mark.parametrize(("more", "node", "what"), [
    ("", " Topology=foo:l1", "there is no topology foo"),
    ("", " Topology=a:l7", "topology a has no l7"),
    ("PartitionName=p Nodes=ALL Topology=zz\n", "", "of partition p: there is none of that name"),
])
def test_names_of_topologies(more: str, node: str, what: str) -> None:
    findings = of(None, "flat", YOUNG, more=more, node=node, topology_yaml=YAML)
    assert [(f.severity, what in f.what) for f in findings] == [(Severity.FATAL, True)]
    assert of(None, "flat", YOUNG, more="PartitionName=p Nodes=ALL Topology=a\n", node=" Topology=a:l1",
              topology_yaml=YAML) == []


def test_words_of_topology_param() -> None:
    said = of(GOOD, "tree", MIDDLE, more="TopologyParam=TopoOptinal,BlockAsNodeRank,SwitchAsNodeRank\n")
    assert [(f.what, f.right) for f in said] == [
        ("TopologyParam=TopoOptinal: Slurm has no such word", ("TopologyParam=TopoOptional",)),
        ("TopologyParam=BlockAsNodeRank: from 25.11 on", ())]


def test_a_fragment_is_judged_for_what_it_says() -> None:
    said = found({"topology.conf": GOOD.replace("n[5-8]", "n[4-8]")}, MIDDLE)
    assert [f.what for f in said] == ["n4 is in l1 and l2"]


def fabric(units: dict[str, list[str]]) -> Fabric:
    """A leaf for each unit, and a spine above."""
    hosts = [FabricDevice(f"{host} mlx5_0", "ca", f"ca{host}", host=host, device="mlx5_0") for h in units.values()
             for host in h]
    leaves = [FabricDevice(leaf, "switch", f"sw{leaf}", level=1, ports=(
        *(SwitchPort(i, peer=f"{host} mlx5_0") for i, host in enumerate(members, 1)), SwitchPort(40, peer="spine")))
        for leaf, members in units.items()]
    spine = FabricDevice("spine", "switch", "swspine", level=2, ports=tuple(
        SwitchPort(i, peer=leaf) for i, leaf in enumerate(units, 1)))
    return Fabric(devices=(*hosts, *leaves, spine))


def cabled(units: dict[str, list[str]], topo: str) -> list[Finding]:
    nodes = [node for members in units.values() for node in members]
    whole = replace(inventory((nodes, H100)), fabrics=(fabric(units),))
    slurm = "ClusterName=x\nTopologyPlugin=topology/tree\nNodeName=node[01-08]\n"
    return found({"slurm.conf": slurm, "topology.conf": topo}, MIDDLE, inventory=whole)


def test_a_node_under_another_leaf_than_it_is_cabled_to() -> None:
    units = {"leafA": names("node", 4), "leafB": names("node", 8)[4:]}
    right = "SwitchName=x Nodes=node[01-04]\nSwitchName=y Nodes=node[05-08]\nSwitchName=s Switches=x,y\n"
    assert cabled(units, right) == []
    wrong = right.replace("[01-04]", "[01-03,08]").replace("[05-08]", "[04-07]")
    said = cabled(units, wrong)
    assert [(f.severity, f.nodes) for f in said] == [(Severity.DRIFT, ("node08",)), (Severity.DRIFT, ("node04",))]
    assert "node08 is written under x but cabled to leafB, which is y here" in said[0].what
    assert said[0].right == ("SwitchName=x Nodes=node[01-03]", "SwitchName=y Nodes=node[04-08]")


def test_a_cabled_node_in_no_leaf() -> None:
    units = {"leafA": names("node", 4), "leafB": names("node", 8)[4:]}
    said = cabled(units, "SwitchName=x Nodes=node[01-04]\nSwitchName=y Nodes=node[05-07]\nSwitchName=s Switches=x,y\n")
    drift = next(f for f in said if f.severity is Severity.DRIFT)
    assert drift.right == ("SwitchName=y Nodes=node[05-08]",)


def test_blocks_against_nvlink_domains() -> None:
    def domain(uuid: str) -> object:
        return replace(H100, gpus=tuple(replace(g, fabric_cluster_uuid=uuid, fabric_clique="1") for g in H100.gpus))
    whole = inventory((names("node", 4), domain("aaaa")), (names("rack", 4), domain("bbbb")))
    slurm = "ClusterName=x\nTopologyPlugin=topology/block\nNodeName=node[01-04],rack[01-04]\n"
    good = "BlockName=a Nodes=node[01-04]\nBlockName=b Nodes=rack[01-04]\nBlockSizes=4\n"
    assert found({"slurm.conf": slurm, "topology.conf": good}, MIDDLE, inventory=whole) == []
    wrong = good.replace("node[01-04]", "node[01-03],rack04").replace("rack[01-04]", "rack[01-03],node04")
    said = found({"slurm.conf": slurm, "topology.conf": wrong}, MIDDLE, inventory=whole)
    assert [(f.severity, f.nodes) for f in said] == [(Severity.DRIFT, ("rack04",)), (Severity.DRIFT, ("node04",))]
    split = good.replace("node[01-04]", "node[01-02]\nBlockName=c Nodes=node[03-04]").replace("=4", "=2")
    assert [f.severity for f in found({"slurm.conf": slurm, "topology.conf": split}, MIDDLE, inventory=whole)] == [
        Severity.NOTE]


@pytest.mark.parametrize(("sizes", "bad"), [([18], None), ([18, 36, 144], None), ([16, 32], None), ([18, 27], 27),
                                            ([36, 18], 18), ([0], 0), ([4, -8], -8), ([1, 2 ** 15], None),
                                            ([1, 2 ** 16], 2 ** 16), ([4, 12], 12)])
def test_legal_block_sizes(sizes: list[int], bad: int | None) -> None:
    assert shapes.illegal_size(sizes) == bad


def test_deep_and_wide_trees_take_linear_time() -> None:
    chain = {f"s{i}": (f"s{i + 1}",) for i in range(20_000)} | {"s20000": ()}
    assert shapes.levels(chain)["s0"] == 20_001
    assert shapes.levels({**chain, "s20000": ("s0",)})["s0"] == 0
    assert shapes.roots(chain) == ("s0",)

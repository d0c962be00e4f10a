"""Real fabric dumps: the nodes that the corpus's answers put on each leaf are those of the rendered topology.conf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from topology_models import V24, V26, planned, read_back, site

from hpcadmin.conf.topology_choice import TopologyFiles
from hpcadmin.fabric import fabric_of
from hpcadmin.fabric.dump import Dump, devices_of
from hpcadmin.facts import _slurm_tree, iblinkinfo, ibnetdiscover, netq
from hpcadmin.facts._reading import Document
from hpcadmin.hosts import expand
from hpcadmin.model import Fabric, Inventory, Node

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "topo"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of topologies at {CORPUS}")


def answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CORPUS / "expected-rest.json").read_text())
    return found


def fabric(file: str) -> Fabric:
    document = Document(file, lines=tuple((CORPUS / file).read_text(errors="replace").split("\n")))
    readings = [*ibnetdiscover.read(document), *iblinkinfo.read(document), *netq.read(document)]
    dumps = [reading.value for reading in readings if isinstance(reading.value, Dump)]
    return fabric_of(devices_of(dumps), dumps[0].fabric)


def rendered(found: Fabric, nodes: list[str], version: tuple[int, int] = V24, **topology: Any) -> TopologyFiles:
    inventory = Inventory(tuple(Node(name) for name in nodes), fabrics=(found,))
    return planned(inventory, site(plugin="tree", **topology), version)


def leaves(plan: TopologyFiles, nodes: list[str]) -> list[set[str]]:
    assert plan.problems == []
    (topology,) = read_back(plan, nodes).topologies
    return sorted(({*switch.nodes} for switch in topology.switches if switch.nodes), key=min)


def members(lines: list[str]) -> list[set[str]]:
    """The nodes of each leaf of an answer's topology.conf."""
    return sorted((set(expand(line.partition("Nodes=")[2])) for line in lines if "Nodes=" in line), key=min)


@pytest.mark.parametrize("file", ["ib/iblinkinfo-l_4hosts.txt", "ib/iblinkinfo_1sw_3hosts.txt",
                                  "ib/netq_topologyGraph.json"])
@pytest.mark.parametrize("version", [V24, V26])
def test_leaves_have_the_nodes_of_the_answer(file: str, version: tuple[int, int]) -> None:
    wanted = members(answers()[file]["topology_conf"])
    nodes = sorted(set.union(*wanted))
    assert leaves(rendered(fabric(file), nodes, version), nodes) == wanted


def test_two_separate_trees() -> None:
    """The site must say that they are meant."""
    file = "ib/ibnetdiscover-p_treydock.txt"
    wanted = members(answers()[file]["topology_conf"])
    nodes = sorted(set.union(*wanted))
    refused = rendered(fabric(file), nodes)
    assert "in 2 parts that no cable joins" in refused.problems[0].what
    assert leaves(rendered(fabric(file), nodes, islands="keep"), nodes) == wanted
    assert leaves(rendered(fabric(file), nodes, islands="join"), nodes) == wanted


def test_the_units_of_forty_switches() -> None:
    file = "ib/ibnetdiscover_40sw_582hca_ndr.txt"
    wanted = {f"unit-{number}": set(expand(nodes)) for number, nodes in answers()[file]["units"].items()}
    nodes = sorted(set.union(*wanted.values()))
    plan = rendered(fabric(file), nodes)
    assert plan.problems == []
    (topology,) = read_back(plan, nodes).topologies
    assert {switch.name: set(switch.nodes) for switch in topology.switches if switch.nodes} == wanted
    (top,) = (switch for switch in topology.switches if switch.switches)
    assert sorted(top.switches) == sorted(wanted)
    assert plan.notes == ["left out of the tree, no nodes of Slurm: B11-P1-CUFM-02",
                          "left out of the tree: 74 adapters that name no host and are no node's by their GUID"]


@pytest.mark.parametrize("file", ["slurm/golden_lambda-tree.txt",
                                  "slurm/topograph_expected.slinky-oci-sim-tree.conf.txt"])
def test_trees_of_others_written_again(file: str) -> None:
    """A tree that someone wrote, as the site's table: what is rendered is the same tree."""
    lines = (CORPUS / file).read_text().splitlines()
    switches: dict[str, Any] = {}
    for line in (line for line in lines if line.startswith("SwitchName=")):
        name, below = line.removeprefix("SwitchName=").split()[:2]
        key, _, value = below.partition("=")
        switches[name] = value if key == "Nodes" else (value,)
    nodes = sorted({node for value in switches.values() if isinstance(value, str) for node in expand(value)})
    for version in (V24, V26):
        plan = planned(Inventory(tuple(Node(name) for name in nodes)), site(switches=switches), version)
        assert plan.problems == []
        (topology,) = read_back(plan, nodes).topologies
        known = _slurm_tree.collect(lines)
        assert known is not None
        assert {switch.name: set(switch.nodes) or set(switch.switches) for switch in topology.switches} == {
            name: set(expand(value if isinstance(value, str) else value[0])) for name, value in switches.items()}
        assert len(topology.switches) == answers()[file]["switches"] == known.known["switches"]


def test_blocks_of_others_written_again() -> None:
    file = "slurm/topograph_expected.slinky-dra-block.conf.txt"
    blocks = dict(line.removeprefix("BlockName=").split(" Nodes=") for line in (CORPUS / file).read_text().splitlines()
                  if line.startswith("BlockName="))
    nodes = sorted({node for value in blocks.values() for node in expand(value)})
    wanted = answers()[file]
    for version in (V24, V26):
        plan = planned(Inventory(tuple(Node(name) for name in nodes)),
                       site(blocks=blocks, block_sizes=tuple(wanted["block_sizes"])), version)
        assert plan.problems == []
        (topology,) = read_back(plan, nodes).topologies
        assert {block.name: set(block.nodes) for block in topology.blocks} == {
            name: set(expand(value)) for name, value in blocks.items()}
        assert list(topology.block_sizes) == wanted["block_sizes"]
        assert len(topology.blocks) == wanted["blocks"]

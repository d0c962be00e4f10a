"""Fabrics of any shape: every node once, one root, legal names, the same in any order, read back as they were."""

from __future__ import annotations

import random
from dataclasses import replace

import fabric_trees as trees
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_models import V22, V24, V26, inventory, planned, read_back, texts

from hpcadmin.conf.topology_tables import wrong_name
from hpcadmin.facts import _slurm_tree, _slurm_yaml
from hpcadmin.model import Inventory

SHAPES = st.tuples(st.integers(2, 5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(1, 2))
VERSIONS = st.sampled_from([None, V22, V24, V26])


def damaged(shape: tuple[int, ...], chance: random.Random, cuts: int) -> trees.Net:
    """A fat tree with some cables of nodes missing; no node loses its last."""
    net = trees.fat_tree(*shape)
    cards = [box for box in net.boxes.values() if box.kind == "ca"]
    hurt = set()
    for card in chance.sample(cards, min(cuts, len(cards))):
        host = card.name.split()[0]
        # A unit's leaves know one another by what most of its nodes have.
        if host not in hurt and shape[1] > 2 and shape[2] > 4:
            net.cut(card.name, 1)
            hurt.add(host)
    return net


def turned(found: Inventory, chance: random.Random) -> Inventory:
    network = found.fabrics[0]
    devices = tuple(replace(device, ports=tuple(chance.sample(device.ports, len(device.ports))))
                    for device in chance.sample(network.devices, len(network.devices)))
    return replace(found, nodes=tuple(chance.sample(found.nodes, len(found.nodes))),
                   fabrics=(replace(network, devices=devices),))


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 2 ** 32), cuts=st.integers(0, 2), version=VERSIONS)
def test_every_node_is_once_in_one_tree(shape: tuple[int, ...], seed: int, cuts: int,
                                        version: tuple[int, int] | None) -> None:
    chance = random.Random(seed)  # noqa: S311
    found = inventory(damaged(shape, chance, cuts))
    plan = planned(found, version=version)
    assert plan.problems == []
    names = [node.name for node in found.nodes]
    conf = read_back(plan, names)
    assert conf.faults == ()
    (topology,) = conf.topologies
    nodes = [node for switch in topology.switches for node in switch.nodes]
    below = [child for switch in topology.switches for child in switch.switches]
    switches = [switch.name for switch in topology.switches]
    assert sorted(nodes) == sorted(names)
    assert len(set(below)) == len(below) == len(switches) - 1
    assert set(below) < set(switches)
    assert len(set(switches)) == len(switches)
    assert not [wrong_name(name) for name in switches if wrong_name(name)]
    assert all(bool(switch.nodes) != bool(switch.switches) for switch in topology.switches)
    assert len([switch for switch in topology.switches if switch.nodes]) == shape[0]
    again = planned(turned(found, chance), version=version)
    assert again.files == plan.files
    assert again.settings == plan.settings


@settings(max_examples=25, deadline=None)
@given(shape=SHAPES, version=VERSIONS)
def test_what_is_written_is_read_without_a_finding(shape: tuple[int, ...], version: tuple[int, int] | None) -> None:
    for name, text in texts(planned(inventory(trees.fat_tree(*shape)), version=version)).items():
        read = (_slurm_yaml if name.endswith("yaml") else _slurm_tree).collect(text.splitlines())
        assert read is not None
        assert read.findings == ()
        assert read.known["node_count"] == shape[0] * shape[2]
        assert len(read.known["roots"]) == 1

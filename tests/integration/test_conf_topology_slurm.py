"""Rendered topology files before the real slurmctld of three versions: no complaint, and the tree that is meant."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from slurm_roots import NAMES, slurm

from hpcadmin.conf.names import slurm_list
from hpcadmin.hosts import expand
from hpcadmin.model import Inventory, Node
from hpcadmin.proof.cell import ask
from hpcadmin.proof.logs import complaints
from hpcadmin.proof.parts import Answer, Cluster, Hardware, NodeRun, Slurm
from hpcadmin.site import Site

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import fabric_trees as trees
from topology_models import V23, V25, beside, inventory, nvl, planned, site, texts

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.parametrize("suite", list(NAMES)),
]
FOLDERS = (("/var/spool/slurmctld", ""), ("/var/spool/slurmd", ""))
CONF = """ClusterName=topology
SlurmctldHost=proof(192.0.2.1)
AuthType=auth/munge
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MailProg=/bin/true
"""
SHOW = "scontrol show topology"
ALL = "PartitionName=all Nodes=ALL Default=YES\n"


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


def asked(found: Slurm, network: Inventory, where: Site | None = None, *, jobs: tuple[str, ...] = (SHOW,),
          partitions: str = ALL, first: str = "", more: str = "") -> Answer:
    """What slurmctld says to the rendered files; jobs run on the node `first`, which has a slurmd."""
    plan = planned(network, where, found.version)
    assert plan.problems == []
    names = [node.name for node in network.nodes]
    first = first or names[0]
    settings = "".join(f"{entry.key}={entry.value}\n" for entry in plan.settings)
    plain = "" if more else f"NodeName={slurm_list(names)} CPUs=1\n"
    plugin = "disabled" if found.version >= V23 else "cgroup/v1"
    files = {"slurm.conf": f"{CONF}{settings}{plain}{more}{partitions}",
             "cgroup.conf": f"CgroupPlugin={plugin}\n", **texts(plan, comments=True)}
    answer = ask(found, Cluster(files, (NodeRun(first, Hardware("core:1 pu:1"), seconds=30.0, jobs=jobs),),
                                hosts=tuple(names), folders=FOLDERS, with_gres=False))
    assert answer.problem == ""
    assert answer.started, answer.log
    return answer


def shown(answer: Answer, job: int = 0) -> dict[str, tuple[set[str], set[str]]]:
    """(switches, nodes) of each switch or block that scontrol shows; of switches above others no nodes."""
    found = {}
    for line in answer.nodes[0].jobs[job].splitlines():
        words = dict(re.findall(r"([A-Za-z]+)=(\S+)", line))
        name = words.get("SwitchName") or words.get("BlockName")
        if name:
            below = set(expand(words["Switches"])) if "Switches" in words else set()
            found[name] = (below, set() if below else set(expand(words["Nodes"])))
    return found


def test_rails_under_spines(suite: str) -> None:
    answer = asked(at_hand(suite), inventory(trees.fat_tree(4, 4, 3, 2)))
    assert complaints(answer.log) == ()
    assert shown(answer) == {
        "IBSPINE": ({f"unit-{unit:02d}" for unit in range(1, 5)}, set()),
        **{f"unit-{unit:02d}": (set(), {f"u{unit:02d}n{node:02d}" for node in range(1, 4)}) for unit in range(1, 5)}}


def test_leaves_and_nodes_off_the_fabric(suite: str) -> None:
    answer = asked(at_hand(suite), inventory(trees.fat_tree(2, 1, 3, 1), Node("cpu1")))
    assert complaints(answer.log) == ()
    assert shown(answer)["off-fabric"] == (set(), {"cpu1"})
    assert shown(answer)["IBSPINE-01"] == ({"IBLEAF-01-01", "IBLEAF-01-02", "off-fabric"}, set())


def test_three_levels_with_pods(suite: str) -> None:
    net = trees.fat_tree(2, 1, 2, 2)
    other = trees.fat_tree(2, 1, 2, 2)
    both = beside(net, other, lambda name: name.replace("u0", "v0").replace("IBSPINE", "B-SPINE").replace(
        "IBLEAF", "BLEAF"))
    for core in ("core1", "core2"):
        both.add("switch", core)
        for place, spine in enumerate(("IBSPINE-01", "IBSPINE-02", "B-SPINE-01", "B-SPINE-02"), 1):
            both.plug(core, place, spine, 60 + int(core[-1]))
    answer = asked(at_hand(suite), inventory(both))
    assert complaints(answer.log) == ()
    assert shown(answer)["core"] == ({"B-SPINE", "IBSPINE"}, set())


def test_islands_that_the_site_wants(suite: str) -> None:
    """Slurm says what the note says it will."""
    found = at_hand(suite)
    two = inventory(beside(trees.fat_tree(2, 1, 2, 1), trees.fat_tree(2, 1, 2, 1), lambda name: name.replace(
        "u0", "v0").replace("IBSPINE", "B-SPINE").replace("IBLEAF", "BLEAF")))
    kept = asked(found, two, site(islands="keep"))
    assert "no switch can reach all nodes" in "\n".join(kept.log)
    joined = asked(found, two, site(islands="join"))
    assert complaints(joined.log) == ()
    assert shown(joined)["top"] == ({"B-SPINE-01", "IBSPINE-01"}, set())


def test_names_that_are_no_words(suite: str) -> None:
    """Numbers, truth values and long names as switches, of the site's own table."""
    long = "x" * 62
    table = {"1e3": "a[1-2]", "true": "b[01-02]", "0123": "c1", long: "c2", "null": ("1e3", "true", "0123", long)}
    nodes = tuple(Node(name) for name in ("a1", "a2", "b01", "b02", "c1", "c2"))
    answer = asked(at_hand(suite), Inventory(nodes), site(switches=table))
    assert complaints(answer.log) == ()
    found = shown(answer)
    assert found["null"][0] == {"1e3", "true", "0123", long}
    assert found["1e3"] == (set(), {"a1", "a2"})


@pytest.mark.parametrize("sizes", [(), (16,), (16, 32)])
def test_blocks(suite: str, sizes: tuple[int, ...]) -> None:
    found = at_hand(suite)
    if found.version < V23:
        pytest.skip(f"{found.text} has no topology/block")
    answer = asked(found, Inventory(nvl(3)), site(block_sizes=sizes))
    assert complaints(answer.log) == ()
    blocks = {name: nodes for name, (_, nodes) in shown(answer).items() if name in {"rack01", "rack02", "rack03"}}
    assert blocks == {f"rack{rack:02d}": {f"rack{rack:02d}-n{tray:02d}" for tray in range(1, 19)}
                      for rack in range(1, 4)}
    assert f"BlockSize={sizes[0] if sizes else 18}" in answer.nodes[0].jobs[0]
    assert ("BlockSize=32" in answer.nodes[0].jobs[0]) == (len(sizes) > 1)


def test_a_rack_that_lacks_a_node(suite: str) -> None:
    """What is written starts on every version; the base of the full racks would not before 25.05."""
    found = at_hand(suite)
    if found.version < V23:
        pytest.skip(f"{found.text} has no topology/block")
    answer = asked(found, Inventory(nvl(3, without=("rack02-n05",))))
    assert complaints(answer.log) == ()
    assert f"BlockSize={18 if found.version >= V25 else 17}" in answer.nodes[0].jobs[0]


def test_nodes_in_no_block_are_kept_out_of_jobs(suite: str) -> None:
    """Why blocks are not written for clusters that have such nodes: a job that may use blocks cannot have them."""
    found = at_hand(suite)
    if not V23 <= found.version < V25:
        pytest.skip("tried on 24.11; later each partition has its own topology")
    network = Inventory((Node("cpu1"), *nvl(2)))
    racks = "rack01-n[01-18],rack02-n[01-18]"
    # Nodes of the cloud count as there, and no slurmd of theirs is needed.
    cloud = (f"ResumeProgram=/bin/true\nSuspendProgram=/bin/true\nSuspendTime=3000\nSuspendExcNodes=cpu1\n"
             f"NodeName=cpu1 CPUs=1\nNodeName={racks} CPUs=1 State=CLOUD\n")
    answer = asked(found, network, site(plugin="block"), more=cloud, first="cpu1",
                   partitions=f"{ALL}PartitionName=cpu Nodes=cpu1\n",
                   jobs=("timeout 8 srun -w cpu1 echo ran", "timeout 25 srun -p cpu echo ran"))
    assert "blocks lack access to 1 nodes: cpu1" in "\n".join(answer.log)
    mixed, alone = answer.nodes[0].jobs
    assert "ran" not in mixed.split()
    assert "ran" in alone.split()


def test_two_topologies_in_yaml(suite: str) -> None:
    found = at_hand(suite)
    if found.version < V25:
        pytest.skip(f"{found.text} reads no topology.yaml")
    net = inventory(trees.fat_tree(2, 4, 18, 2))
    racks = nvl(2, names="u{rack:02d}n{tray:02d}")
    network = Inventory((*racks, Node("cpu1")), fabrics=net.fabrics)
    nodes = "u01n[01-18],u02n[01-18]"
    answer = asked(found, network, partitions=f"{ALL}PartitionName=gpu Nodes={nodes} Topology=nvlink\n",
                   jobs=(SHOW, f"{SHOW} nvlink", "scontrol show partition gpu"))
    assert [line for line in complaints(answer.log) if "locks lack access to 1 nodes: cpu1" not in line] == []
    assert shown(answer)["IBSPINE"] == ({"off-fabric", "unit-01", "unit-02"}, set())
    assert set(shown(answer, 1)) == {"u01", "u02"}
    assert "Topology=nvlink" in answer.nodes[0].jobs[2]


def test_flat_and_blocks_in_yaml(suite: str) -> None:
    found = at_hand(suite)
    if found.version < V25:
        pytest.skip(f"{found.text} reads no topology.yaml")
    answer = asked(found, Inventory((Node("cpu1"), *nvl(2))), first="cpu1", jobs=(
        f"{SHOW} nvlink", "timeout 25 srun -w cpu1 echo ran"))
    assert [line for line in complaints(answer.log) if "locks lack access to 1 nodes: cpu1" not in line] == []
    assert set(shown(answer)) == {"rack01", "rack02"}
    assert "ran" in answer.nodes[0].jobs[1].split()


@pytest.mark.parametrize("name", ["none", "tree"])
def test_the_plugin_that_the_site_names(suite: str, name: str) -> None:
    answer = asked(at_hand(suite), inventory(trees.fat_tree(1, 2, 3, 1)), site(plugin=name))
    assert complaints(answer.log) == ()
    assert set(shown(answer)) == ({"rack01-IBLEAF"} if name == "tree" else set())


def test_ranks_by_switch(suite: str) -> None:
    nodes = tuple(Node(f"n{number:02d}", neighbours=(("eth0", f"leaf{number % 2}", f"swp{number}"),))
                  for number in range(8))
    answer = asked(at_hand(suite), Inventory(nodes), jobs=(SHOW, "sinfo -h -o %N"))
    assert complaints(answer.log) == ()
    assert shown(answer)["leaf0"] == (set(), {"n00", "n02", "n04", "n06"})

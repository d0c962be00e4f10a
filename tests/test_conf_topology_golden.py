"""Whole topology files and why each line is there. HPCADMIN_GOLDEN=write writes them anew; look at the difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import conf_models as m
import fabric_trees as trees
import pytest
from golden_files import compare
from topology_models import beside, fabric, inventory, nvl, planned, site

from hpcadmin.cli.conf import explanation
from hpcadmin.conf.keys import parse_version
from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Inventory, Node
from hpcadmin.site import Site

GOLDEN = Path(__file__).resolve().parent / "golden" / "conf-topology"


def whole(found: Inventory, hardware: Node = m.H100) -> Inventory:
    """With hardware that can be rendered; the GPUs keep their NVLink domains."""
    def node(own: Node) -> Node:
        gpus = tuple(replace(gpu, fabric_state=own.gpus[0].fabric_state, fabric_clique=own.gpus[0].fabric_clique,
                             fabric_cluster_uuid=own.gpus[0].fabric_cluster_uuid) if own.gpus else gpu
                     for gpu in hardware.gpus)
        base = m.BIG_CPU if own.name.startswith("cpu") else replace(hardware, gpus=gpus)
        return replace(base, name=own.name, hostname=own.name, neighbours=own.neighbours)
    return replace(found, nodes=tuple(node(own) for own in found.nodes))


def table(**topology: object) -> Site:
    return replace(m.SITE, topology=site(**topology).topology)


RAILS = whole(inventory(trees.fat_tree(4, 8, 4, 4)))
DUAL = whole(inventory(trees.fat_tree(4, 1, 4, 2), Node("cpu1")))
RACKS = whole(Inventory(nvl(3)))
BOTH = whole(Inventory((*nvl(2, names="u{rack:02d}n{tray:02d}"), Node("cpu1")),
                       fabrics=(fabric(trees.ibnetdiscover(trees.fat_tree(2, 4, 18, 2))),)))
ISLANDS = whole(inventory(beside(trees.fat_tree(2, 1, 3, 1), trees.fat_tree(2, 1, 3, 1), lambda name: name.replace(
    "u0", "v0").replace("IBSPINE", "B-SPINE").replace("rack", "row").replace("IBLEAF", "BLEAF"))))
LLDP = whole(Inventory(tuple(Node(f"n{number:02d}", neighbours=(("eth0", f"leaf{number % 3}", f"swp{number}"),))
                             for number in range(9))))
TREE = {"leaf1": "n[00-04]", "leaf2": "n[05-08]", "spine": ("leaf[1-2]",)}

CASES: dict[str, tuple[Inventory, Site, str, bool]] = {
    "rails-22.05": (RAILS, m.SITE, "22.05", True),
    "rails-26.05": (RAILS, m.SITE, "26.05", True),
    "leaves-off-fabric": (DUAL, m.SITE, "24.11", True),
    "blocks-23.11": (RACKS, m.SITE, "23.11", False),
    "blocks-24.11-spare": (RACKS, table(block_sizes=(16, 32)), "24.11", True),
    "tree-and-blocks": (BOTH, m.SITE, "25.05", True),
    "flat-and-blocks": (whole(Inventory((*nvl(2), Node("cpu1")))), m.SITE, "26.05", False),
    "islands-joined": (ISLANDS, table(islands="join"), "24.11", True),
    "lldp-scattered": (LLDP, m.SITE, "24.11", True),
    "sites-table": (LLDP, table(switches=TREE), "22.05", True),
    "sites-table-26.05": (LLDP, table(switches=TREE), "26.05", False),
}


def rendered(case: str) -> Rendering:
    found, where, version, comments = CASES[case]
    return render(found, where, RenderOptions(slurm_version=version, comments=comments))


@pytest.mark.parametrize("case", CASES)
def test_files_are_as_they_were(case: str) -> None:
    result = rendered(case)
    assert result.problems == ()
    (name,) = (name for name in result.files if name.startswith("topology."))
    compare(GOLDEN / case / name, result.files[name])
    told = [item for item in result.explained if item.file == name]
    found, where, version, _ = CASES[case]
    plan = planned(found, where, parse_version(version))
    assert set(plan.notes) <= set(result.notes)
    settings = "".join(f"slurm.conf  {e.key}={e.value}\n    {e.reason} [{e.source}]\n" for e in plan.settings)
    assert all(f"{e.key}={e.value}" in result.files["slurm.conf"] for e in plan.settings)
    notes = "".join(f"note: {note}\n" for note in plan.notes)
    compare(GOLDEN / case / "explained.txt", explanation(told) + settings + notes)


def test_partitions_of_racks_use_their_blocks() -> None:
    for case in ("tree-and-blocks", "flat-and-blocks"):
        text = rendered(case).files["slurm.conf"]
        (line,) = (line for line in text.splitlines() if line.startswith("PartitionName=gpu"))
        assert "Topology=nvlink" in line
    assert "Topology=" not in rendered("rails-26.05").files["slurm.conf"]


@pytest.mark.parametrize("case", CASES)
def test_every_line_has_its_reason(case: str) -> None:
    result = rendered(case)
    for name in (name for name in result.files if name.startswith("topology.")):
        lines = result.files[name].splitlines()
        told = {item.line: item for item in result.explained if item.file == name}
        assert set(told) == {number for number, line in enumerate(lines, 1)
                             if line and not line.startswith(("#", "---"))}
        assert all(item.whys and all(why.reason and why.source for why in item.whys) for item in told.values())

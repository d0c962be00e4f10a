"""Under which switch each node is, level by level: from Slurm's topology, else from the inventory's fabric. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hpcadmin.errors import HpcadminError
from hpcadmin.hosts import expand
from hpcadmin.model import Inventory
from hpcadmin.site import Site

if TYPE_CHECKING:
    from hpcadmin.conf.topology_parts import Tree

_LINE = re.compile(r"^(?:SwitchName|BlockName)=(\S+)(.*)$", re.MULTILINE)
_LEVEL = re.compile(r"\sLevel=(\d{1,3})\b")
_NODES = re.compile(r"\sNodes=(\S+)")
Levels = tuple[dict[str, str], ...]


def of_slurm(text: str, nodes: Sequence[str]) -> Levels:
    """Of what `scontrol show topology` prints: the leaves first; () where it knows no two leaf switches or blocks."""
    wanted = set(nodes)
    levels: dict[int, dict[str, str]] = {}
    for name, rest in _LINE.findall(text):
        level, members = _LEVEL.search(rest), _NODES.search(rest)
        if members is None:
            continue
        try:
            names = expand(members[1])
        except HpcadminError:
            continue
        own = levels.setdefault(int(level[1]) if level else 0, {})
        for node in names:
            if node in wanted:
                own.setdefault(node, name)
    return _useful([levels[number] for number in sorted(levels)])


def of_inventory(inventory: Inventory | None, nodes: Sequence[str], site: Site) -> Levels:
    if inventory is None or not (inventory.fabrics or site.topology.switches or any(
            node.neighbours for node in inventory.nodes)):
        return ()
    from hpcadmin.conf.topology import tree_for  # noqa: PLC0415  (all of conf, which few runs need)
    return of_tree(tree_for(inventory, nodes, site), nodes)


def of_tree(tree: Tree, nodes: Sequence[str]) -> Levels:
    wanted = set(nodes)
    height: dict[str, int] = {}
    below: dict[str, tuple[str, ...]] = {}
    for switch in reversed(tree.switches):              # leaves are last
        height[switch.name] = 1 + max((height.get(child, 0) for child in switch.children), default=0)
        under = [node for child in switch.children for node in below.get(child, ())]
        below[switch.name] = tuple(node for node in (*switch.nodes, *under) if node in wanted)
    levels: list[dict[str, str]] = [{} for _ in range(max(height.values(), default=0))]
    for name, members in below.items():
        for node in members:
            levels[height[name] - 1].setdefault(node, name)
    return _useful(levels)


def _useful(levels: Sequence[Mapping[str, str]]) -> Levels:
    """() where no two leaves are known."""
    return tuple(map(dict, levels)) if levels and len(set(levels[0].values())) > 1 else ()

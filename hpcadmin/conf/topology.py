"""topology.conf or topology.yaml, what slurm.conf says about them, and why: or why no topology is needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hpcadmin.conf.keys import Version, show
from hpcadmin.conf.names import natural
from hpcadmin.conf.parts import Entry, Kind, Problem
from hpcadmin.conf.topology_blocks import SINCE as BLOCKS_SINCE
from hpcadmin.conf.topology_blocks import blocks_of
from hpcadmin.conf.topology_choice import YAML_SINCE, Case, TopologyFiles, Wanted, choose, option
from hpcadmin.conf.topology_parts import Blocks, Tree
from hpcadmin.conf.topology_tables import tree_of_tables, unknown_choices
from hpcadmin.conf.topology_tree import tree_of
from hpcadmin.fabric import build
from hpcadmin.model import Fabric, Inventory, Node
from hpcadmin.site import Site
from hpcadmin.site_topology import TopologySite

_NONE = (((25, 5), "topology/flat"), ((23, 11), "topology/default"), ((22, 5), "topology/none"))
_PLUGINS = {"topology/tree": "tree", "topology/block": "block", "topology/none": "none", "topology/default": "none",
            "topology/flat": "none"}


def topology_files(inventory: Inventory, site: Site, names: Collection[str], version: Version | None, *,
                   as_is: bool = False) -> TopologyFiles:
    """names: the nodes that Slurm will have. version: None for files that every version from 22.05 on takes.

    as_is: faults of nodes are notes, and those nodes are left out of blocks.
    """
    found = TopologyFiles()
    found.problems += unknown_choices(site.topology)
    wanted = _wanted(site, version, found)
    if found.problems or wanted is None:
        return found
    if wanted.plugin == "none":
        if site.topology.plugin and not wanted.forced and version is not None:
            value = next(value for since, value in _NONE if version >= since)
            found.settings = (Entry("TopologyPlugin", value, "the site wants no topology",
                                    "site.toml [topology] plugin", "topology.plugin"),)
        return found
    known = set(names)
    nodes = sorted((node for node in inventory.nodes if node.name in known), key=lambda node: natural(node.name))
    absent = {failed.node for failed in inventory.failed} | ({n.name for n in inventory.nodes} - known)
    tree = _tree(inventory, nodes, site.topology, absent) if wanted.plugin != "block" or wanted.yaml else Tree()
    blocks = blocks_of(nodes, site.topology, absent, version) if wanted.plugin != "tree" else Blocks()
    if site.topology.block_sizes and wanted.plugin == "tree":
        found.notes.append("[topology] block_sizes is for blocks, and a tree is written")
    if as_is:
        blocks.notes += [f"{p.node}: {p.what}" for p in blocks.problems if p.kind is Kind.FAULT]
        blocks.problems = [p for p in blocks.problems if p.kind is not Kind.FAULT]
    choose(Case(found, tree, blocks, wanted, site, frozenset(node.name for node in nodes)))
    return found


def _wanted(site: Site, version: Version | None, found: TopologyFiles) -> Wanted | None:
    """None where slurm.options names a plug-in that we do not write for."""
    own = option(site, "TopologyPlugin")
    plugin = site.topology.plugin
    if own:
        named = _PLUGINS.get(own.casefold())
        if named is None:
            found.notes.append(f"TopologyPlugin={own} is the site's own: no topology file is written for it")
            return None
        if plugin and plugin != named:
            _wrong(found, "plugin", f"[topology] plugin = {plugin!r} and TopologyPlugin={own} contradict each other",
                   "take TopologyPlugin out of [slurm.options]")
        plugin = named
    if plugin == "block" and version is not None and version < BLOCKS_SINCE:
        _wrong(found, "plugin", f"topology/block is not in Slurm {show(version)}", f"it came with {show(BLOCKS_SINCE)}")
    if plugin == "block" and version is None:
        _wrong(found, "plugin", "topology/block: its file is another in each Slurm version, and none is named",
               "name it with --slurm-version")
    young = version is not None and version >= YAML_SINCE
    if site.topology.file == "topology.yaml" and not young:
        _wrong(found, "file", f"topology.yaml is read from Slurm {show(YAML_SINCE)} on", "leave [topology] file out")
    return Wanted(plugin, version, young and site.topology.file != "topology.conf" and not own, bool(own))


def _wrong(found: TopologyFiles, key: str, what: str, hint: str) -> None:
    found.problems.append(Problem(Kind.SITE, what, key=f"topology.{key}", hint=hint))


# --- where the tree comes from ---------------------------------------------------------------------------------------


def _tree(inventory: Inventory, nodes: Sequence[Node], site: TopologySite, absent: Collection[str]) -> Tree:
    """The site's own table, else InfiniBand, else Ethernet."""
    if site.switches:
        return tree_of_tables(site, [node.name for node in nodes], absent)
    kinds = [site.source] if site.source else ["infiniband", "ethernet"]
    for kind in kinds:
        fabric = _fabric(inventory, nodes, kind)
        if fabric is None:
            continue
        tree = tree_of(fabric, nodes, site)
        if tree.leaves or tree.problems:
            tree.notes += [f"the {kind} fabric is incomplete: {what}" for what in fabric.incomplete[:5]]
            return tree
    tree = Tree()
    if site.source:
        tree.problems.append(Problem(
            Kind.UNKNOWN, f"the inventory has no {site.source} fabric with nodes of Slurm on it", key="topology.source",
            hint="discover --fabric, or name the switches in [topology.switches]"))
    return tree


def tree_for(inventory: Inventory, names: Collection[str], site: Site) -> Tree:
    """The switch tree of these nodes, whatever is written of it."""
    nodes = sorted((node for node in inventory.nodes if node.name in set(names)), key=lambda node: natural(node.name))
    return _tree(inventory, nodes, site.topology, {node.name for node in inventory.nodes} - set(names))


def _fabric(inventory: Inventory, nodes: Sequence[Node], kind: str) -> Fabric | None:
    found = next((fabric for fabric in inventory.fabrics if fabric.kind == kind and fabric.devices), None)
    if found is None and kind == "ethernet" and any(node.neighbours for node in nodes):
        found = next(iter(build((), nodes)), None)
    return found

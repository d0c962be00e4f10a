"""Trees and blocks as lines of topology.conf or topology.yaml (topology.conf(5), topology.yaml(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from hpcadmin.conf.keys import Version
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.parts import Entry, Line, Section
from hpcadmin.conf.topology_parts import Block, Blocks, Flat, Switch, Tree

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.,\[\]-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "nan", "inf", "infinity"})
_MADE = "topology.yaml(5)"


def quoted(value: str) -> str:
    """`value` as YAML reads it back as a text: in quotes where it could be a number, a truth value or a list."""
    plain = _PLAIN.fullmatch(value) and value.casefold() not in _WORDS
    return value if plain else f'"{value}"'


# --- topology.conf --------------------------------------------------------------------------------------------------


def tree_sections(tree: Tree) -> tuple[Section, ...]:
    upper = tuple(_switch(switch) for switch in tree.switches if switch.children)
    leaves = tuple(_switch(switch) for switch in tree.switches if switch.nodes)
    return tuple(section for section in (Section("Switches, from the top down", upper), Section("Leaves", leaves))
                 if section.lines)


def _switch(switch: Switch) -> Line:
    own, entries = switch.name, []
    entries.append(Entry("SwitchName", own, switch.why, switch.source, switch.key))
    below = ("Switches", slurm_list(switch.children)) if switch.children else ("Nodes", slurm_list(switch.nodes))
    entries.append(Entry(*below, switch.why, switch.source, switch.key))
    return Line(tuple(entries))


def block_sections(blocks: Blocks, version: Version) -> tuple[Section, ...]:
    """BlockSizes= from 24.05 on; 23.11 counts levels (0: one block, 1: two, …) in BlockLevels=."""
    lines = tuple(Line((Entry("BlockName", block.name, block.why, block.source, block.key),
                        Entry("Nodes", slurm_list(block.nodes), block.why, block.source, block.key)))
                  for block in blocks.blocks)
    if version < (24, 5):
        levels = ",".join(str((size // blocks.sizes[0]).bit_length() - 1) for size in blocks.sizes)
        sizes = Entry("BlockLevels", levels, blocks.sizes_why, _sizes_source(blocks), blocks.sizes_key)
    else:
        sizes = Entry("BlockSizes", ",".join(map(str, blocks.sizes)), blocks.sizes_why, _sizes_source(blocks),
                      blocks.sizes_key)
    return Section("Blocks", lines), Section("Sizes that jobs are planned with", (Line((sizes,)),))


def _sizes_source(blocks: Blocks) -> str:
    return "site.toml [topology] block_sizes" if blocks.sizes_key else "inventory"


# --- topology.yaml --------------------------------------------------------------------------------------------------


def yaml_sections(topologies: Sequence[tuple[str, Tree | Blocks | Flat, bool, str]]) -> tuple[Section, ...]:
    """topologies: (name, what it is, whether it is the cluster's default, why it is or is not)."""
    return tuple(Section(f"Topology {name}", tuple(_topology(name, what, default=default, why=why)))
                 for name, what, default, why in topologies)


def _topology(name: str, what: Tree | Blocks | Flat, *, default: bool, why: str) -> Iterator[Line]:
    yield _made("topology", quoted(name), "the name that partitions use: Topology=", "- ")
    yield _made("cluster_default", "true" if default else "false", why, "  ")
    if isinstance(what, Flat):
        yield _made("flat", "true", "plug-in topology/flat", "  ")
        return
    if isinstance(what, Tree):
        yield _made("tree", "", "plug-in topology/tree", "  ")
        yield _made("switches", "", "from the top down, leaves last", "    ")
        for switch in what.switches:
            yield from _item(switch, "switch", "children" if switch.children else "nodes",
                             switch.children or switch.nodes)
        return
    yield _made("block", "", "plug-in topology/block", "  ")
    sizes = f"[{', '.join(map(str, what.sizes))}]"
    yield _line("    ", Entry("block_sizes", sizes, what.sizes_why, _sizes_source(what), what.sizes_key))
    yield _made("blocks", "", "neighbours in this order", "    ")
    for block in what.blocks:
        yield from _item(block, "block", "nodes", block.nodes)


def _item(item: Switch | Block, kind: str, key: str, names: Iterable[str]) -> Iterator[Line]:
    yield _line("      - ", Entry(kind, quoted(item.name), item.why, item.source, item.key))
    yield _line("        ", Entry(key, quoted(slurm_list(names)), f"below {item.name}", item.source, item.key))


def _made(key: str, value: str, why: str, lead: str) -> Line:
    return _line(lead, Entry(key, value, why, _MADE))


def _line(lead: str, entry: Entry) -> Line:
    """lead: what stands before the key, indentation and dash."""
    return Line((entry,), f"{lead}{entry.key}:{f' {entry.value}' if entry.value else ''}")

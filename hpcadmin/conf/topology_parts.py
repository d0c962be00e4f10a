"""What a topology is made of before it is text: switches, blocks, each with its reason and source."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcadmin.conf.parts import Problem

MANY = 6


@dataclass(frozen=True)
class Switch:
    """A switch of Slurm's tree: nodes, or switches below. key: the dotted key in site.toml, of the site's own."""

    name: str
    why: str
    source: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Block:
    name: str
    nodes: tuple[str, ...]
    why: str
    source: str
    key: str = ""


@dataclass
class Tree:
    """switches: from the top down, leaves last. lost: nodes that are on no switch, with what is known of each.

    told: whether any source described a network at all.
    """

    switches: tuple[Switch, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    told: bool = False

    @property
    def leaves(self) -> tuple[Switch, ...]:
        return tuple(switch for switch in self.switches if switch.nodes)


@dataclass
class Blocks:
    """The blocks that are written, in the order in which they are, and their sizes (base first)."""

    blocks: tuple[Block, ...] = ()
    sizes: tuple[int, ...] = ()
    sizes_why: str = ""
    sizes_key: str = ""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(node for block in self.blocks for node in block.nodes)


@dataclass(frozen=True)
class Flat:
    """No topology: for the nodes that no other one has."""


def some(names: list[str] | tuple[str, ...], many: int = MANY) -> str:
    """The first few, and how many more."""
    return ", ".join(names[:many]) + (f" and {len(names) - many} more" if len(names) > many else "")

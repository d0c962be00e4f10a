"""The site's own tree and blocks: [topology.switches] and [topology.blocks], checked as slurmctld would judge them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.topology_names import MAX_CHARS, MAX_DIGITS
from hpcadmin.conf.topology_parts import Block, Switch, Tree, some
from hpcadmin.conf.topology_tree import Growing, islands, off_fabric
from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand
from hpcadmin.site_topology import TopologySite

MAX_LEVELS = 40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def wrong_name(name: str) -> str:
    """Why Slurm does not take `name` for a switch or block; "" where it does."""
    if not _NAME.fullmatch(name):
        return "is no name for Slurm: letters, digits, '-', '_' and '.' alone"
    if len(name) > MAX_CHARS:
        return f"has {len(name)} characters: Slurm takes at most {MAX_CHARS}"
    if len(name) - len(name.rstrip("0123456789")) > MAX_DIGITS:
        return f"ends in more than {MAX_DIGITS} digits, which Slurm's host lists cannot hold"
    return ""


class _Table:
    """The entries of one table: whose nodes and names have been seen."""

    def __init__(self, table: str, nodes: Collection[str], absent: Collection[str]) -> None:
        self.table = table
        self.nodes = set(nodes)
        self.absent = set(absent)
        self.where: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def wrong(self, name: str, what: str, hint: str = "") -> None:
        self.problems.append(Problem(Kind.SITE, f"[{self.table}] {name} {what}", key=f"{self.table}.{name}", hint=hint))

    def hosts(self, name: str, text: str) -> tuple[str, ...]:
        """The nodes of an entry that Slurm has; every other name is a problem, or was not discovered."""
        found = self.list(name, text)
        unknown = [node for node in found if node not in self.nodes and node not in self.absent]
        if unknown:
            self.wrong(name, f"names {slurm_list(unknown)}, which the inventory does not have",
                       "discover these nodes too, or take them out")
        twice = [node for node in found if self.where.get(node, name) != name]
        if twice:
            self.wrong(name, f"has {slurm_list(twice)}, which {self.where[twice[0]]} has too")
        self.where.update(dict.fromkeys(found, name))
        gone = [node for node in found if node in self.absent]
        if gone:
            self.notes.append(f"[{self.table}] {name}: {slurm_list(gone)} left out, not discovered")
        return tuple(sorted((node for node in found if node in self.nodes), key=natural))

    def list(self, name: str, text: str) -> list[str]:
        try:
            return expand(text)
        except UsageError as exc:
            self.wrong(name, f"is {exc.what}", exc.hint or "")
            return []


def tree_of_tables(site: TopologySite, names: Collection[str], absent: Collection[str]) -> Tree:
    """The site's tree. names: the nodes that Slurm has; absent: those that could not be discovered."""
    table = _Table("topology.switches", names, absent)
    source = "site.toml [topology.switches]"
    growing = Growing()
    places: dict[str, int] = {}
    below: dict[str, list[str]] = {}
    for name in sorted(site.switches, key=natural):
        value = site.switches[name]
        wrong = wrong_name(name)
        if wrong:
            table.wrong(name, wrong)
        key = f"{table.table}.{name}"
        if isinstance(value, str):
            nodes = table.hosts(name, value)
            places[name] = growing.add(Switch(name, "the site's own leaf", source, nodes, key=key))
        else:
            below[name] = [child for text in value for child in table.list(name, text)]
            places[name] = growing.add(Switch(name, "the site's own switch", source, key=key))
    _link(table, growing, places, below)
    tree = Tree(problems=table.problems, notes=table.notes, told=True)
    if not tree.problems:
        islands(growing, site, tree, "switch of the table")
        lost = sorted(set(names) - {node for switch in growing.switches for node in switch.nodes}, key=natural)
        _lost(growing, lost, site, tree)
        tree.switches = tuple(s for s in growing.finished(prune=False) if s.nodes or s.children)
    return tree


def _link(table: _Table, growing: Growing, places: dict[str, int], below: dict[str, list[str]]) -> None:
    parent: dict[str, str] = {}
    for name, children in below.items():
        undefined = [child for child in children if child not in places]
        if undefined:
            table.wrong(name, f"names {some(undefined)}, not defined there: slurmctld would not start")
        if not children:
            table.wrong(name, "has no switch below", "take it out, or name nodes as a hostlist")
        for child in children:
            if child in parent:
                table.wrong(child, f"is below {parent[child]} and below {name}: a tree's switch has one above it")
            parent.setdefault(child, name)
        growing.below[places[name]] = [places[child] for child in dict.fromkeys(children) if child in places]
    looping = [name for name in places if _depth(name, parent) > MAX_LEVELS]
    if looping:
        table.wrong(looping[0], f"is in a loop of switches, or more than {MAX_LEVELS} levels deep")
    empty = [name for name in places if name not in below and not growing.switches[places[name]].nodes]
    for name in empty:
        if not any(problem.key == f"{table.table}.{name}" for problem in table.problems):
            table.wrong(name, "has no node that Slurm has", "take it out")


def _depth(name: str, parent: dict[str, str]) -> int:
    depth = 0
    while name in parent and depth <= MAX_LEVELS:
        name, depth = parent[name], depth + 1
    return depth


def _lost(growing: Growing, lost: list[str], site: TopologySite, tree: Tree) -> None:
    if not lost:
        return
    if site.off_fabric in ("leaf", "island"):
        off_fabric(growing, lost, site, tree, "the site's table does not have them")
        return
    tree.problems.append(Problem(Kind.SITE, f"[topology.switches] lacks {slurm_list(lost)}: jobs would not get them",
                                 key="topology.switches",
                                 hint='add them, or [topology] off_fabric = "leaf"'))


def blocks_of_table(site: TopologySite, names: Collection[str],
                    absent: Collection[str]) -> tuple[list[Block], list[Problem], list[str]]:
    """(blocks, problems, notes) of [topology.blocks]."""
    table = _Table("topology.blocks", names, absent)
    found = []
    for name in sorted(site.blocks, key=natural):
        wrong = wrong_name(name)
        if wrong:
            table.wrong(name, wrong)
        nodes = table.hosts(name, site.blocks[name])
        if nodes:
            found.append(Block(name, nodes, "the site's own block", "site.toml [topology.blocks]",
                               f"{table.table}.{name}"))
        elif not any(problem.key == f"{table.table}.{name}" for problem in table.problems):
            table.wrong(name, "has no node that Slurm has", "take it out")
    return found, table.problems, table.notes


def unknown_choices(site: TopologySite) -> Iterable[Problem]:
    """Words of [topology] that are none of those that it takes."""
    for key, value, known in (("plugin", site.plugin, ("tree", "block", "none")),
                              ("source", site.source, ("infiniband", "ethernet")),
                              ("islands", site.islands, ("keep", "join")),
                              ("off_fabric", site.off_fabric, ("leaf", "island", "refuse")),
                              ("file", site.file, ("topology.conf", "topology.yaml"))):
        if value and value not in known:
            yield Problem(Kind.SITE, f"[topology] {key} = {value[:40]!r} is not known here", key=f"topology.{key}",
                          hint=f"{', '.join(known)}, or leave it out")

"""The switches of a topology: what slurmctld refuses in them, several parents, several roots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.rules._topology_words import YAML, from_yaml, in_, only, some, told, topologies, verb, where
from hpcadmin.conf.existing.parts import Place, SwitchLine, Topology
from hpcadmin.conf.names import slurm_list
from hpcadmin.facts import _slurm_shapes as shapes


def switches(situation: Situation) -> Iterator[Finding]:
    for topology in topologies(situation):
        seen: dict[str, SwitchLine] = {}
        for line in topology.switches:
            yield from _switch(situation, topology, line)
            if line.name in seen:
                yield Finding(Severity.FATAL, f"{in_(topology)}switch {line.name} is defined twice (first "
                              f"{seen[line.name].place})", "slurmctld does not start", place=line.place)
            seen.setdefault(line.name, line)


def _switch(situation: Situation, topology: Topology, line: SwitchLine) -> Iterator[Finding]:
    yaml = from_yaml(topology)
    name, children = f"{in_(topology)}switch {line.name[:80]}", "children" if yaml else "Switches="
    if line.switches and line.nodes:
        severity = Severity.WRONG if yaml else Severity.FATAL
        yield Finding(severity, f"{name} has {children} and {'nodes' if yaml else 'Nodes='}",
                      "its switches are ignored, it is a leaf" if yaml else "slurmctld does not start: a switch has "
                      "either nodes or switches", place=line.place)
    if not line.switches and not line.nodes:
        old = where(situation, lambda v: v < YAML)
        if old and not yaml:
            yield Finding(Severity.FATAL, f"{name} has neither Switches= nor Nodes=",
                          f"{told(old)}: slurmctld does not start", place=line.place, versions=only(situation, old))
    if not yaml:
        yield from name_of(situation, line.name, f"{name}: the name", line.place)


def name_of(situation: Situation, name: str, what: str, place: Place) -> Iterator[Finding]:
    """Names that are too long, or end in a number that host lists cannot hold."""
    strict = where(situation, lambda v: v >= (24, 11))
    if len(name) > shapes.MAX_NAME:
        yield Finding(Severity.FATAL if strict else Severity.NOTE, f"{what} has {len(name)} characters",
                      f"{told(strict)}: slurmctld does not start with more than {shapes.MAX_NAME}" if strict else
                      f"the upgrade to 24.11 ends it: slurmctld does not start with more than {shapes.MAX_NAME}",
                      place=place, versions=only(situation, strict) if strict else ())
    if shapes.overflows(name):
        yield Finding(Severity.FATAL, f"{what} ends in a number above {shapes.MAX_NUMBER}",
                      "Slurm's host lists make another name of it: as a child of a switch it is not defined, and "
                      "slurmctld does not start", place=place)


def tree(situation: Situation) -> Iterator[Finding]:
    for topology in topologies(situation):
        if not topology.switches:
            continue
        below = {line.name: line.switches if not line.nodes else () for line in topology.switches}
        where_is = {line.name: line.place for line in topology.switches}
        for name, children in shapes.undefined(below).items():
            yield Finding(Severity.FATAL, f"{in_(topology)}switch {name} names {some(children)}, which nothing "
                          "defines", "slurmctld does not start (invalid child)", place=where_is[name],
                          right=tuple(f"SwitchName={child} Nodes=…" for child in children[:3]))
        loop = [name for name, level in shapes.levels(below).items() if level == 0]
        if loop:
            yield Finding(Severity.FATAL, f"{in_(topology)}a loop of switches: {some(loop)}",
                          "slurmctld does not start (the configuration is not a tree)", place=where_is[loop[0]])
            continue
        yield from _parents(topology, below, where_is)
        yield from _roots(situation, topology, below, where_is)


def _parents(topology: Topology, below: dict[str, tuple[str, ...]], where_is: dict[str, Place]) -> Iterator[Finding]:
    """Each set of parents once: two spines over the same leaves are one in a tree."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for child, above in shapes.parents(below).items():
        if len(above) > 1:
            groups.setdefault(above, []).append(child)
    for above, children in groups.items():
        same = all(set(below[name]) == set(below[above[0]]) for name in above)
        yield Finding(
            Severity.NOTE if same else Severity.WRONG,
            f"{in_(topology)}{some(children)} {verb(children, 'hangs', 'hang')} under {', '.join(above[:6])}",
            "Slurm says nothing and takes the last one as the parent; switches with the same children are one in a tree"
            if same else "Slurm says nothing and takes the last one as the parent: a tree has one parent for each",
            (f"SwitchName={above[0]} Switches={slurm_list(below[above[0]])}",) if same else (), where_is[above[-1]])


def _roots(situation: Situation, topology: Topology, below: dict[str, tuple[str, ...]],
           where_is: dict[str, Place]) -> Iterator[Finding]:
    tops = shapes.roots(below)
    if len(tops) < 2:
        return
    members = {line.name: line.nodes for line in topology.switches}
    reached = {name: shapes.under(name, below, members) for name in tops}
    everything = set().union(*reached.values())
    if any(nodes == everything for nodes in reached.values()):
        return                           # two spines over the same leaves: all of them are under each
    islands = [name for name in tops if reached[name]]
    level = shapes.levels(below)
    optional = "topooptional" in situation.conf.setting("TopologyParam").casefold()
    meant = len({level[name] for name in islands}) == 1 and level[islands[0]] > 1
    alone = [name for name in islands if level[name] == 1]
    what = f"{in_(topology)}no switch is above all nodes: {', '.join(f'{n} ({len(reached[n])})' for n in islands[:6])}"
    what += f" and {len(islands) - 6} more" if len(islands) > 6 else ""
    yield Finding(
        Severity.NOTE if meant or optional else Severity.WRONG, what + " each stand for themselves",
        "jobs that ask for --switches cannot span them" if optional else "no job can span them: right where they are "
        "fabrics of their own" if meant else "no job can span them", _joined(islands, alone, below, meant=meant),
        where_is[islands[-1] if not alone else alone[0]], tuple(sorted(reached[alone[0]])) if alone else ())


def _joined(islands: Sequence[str], alone: Sequence[str], below: dict[str, tuple[str, ...]], *,
            meant: bool) -> tuple[str, ...]:
    """A leaf that was forgotten goes under the switch above the others; else all under a new one."""
    tops = [name for name in islands if name not in alone]
    if meant:
        return ()
    if alone and len(tops) == 1:
        return (f"SwitchName={tops[0]} Switches={slurm_list([*below[tops[0]], *alone])}",)
    return (f"SwitchName=root Switches={slurm_list(islands)}",)


TREES: tuple[Rule, ...] = (switches, tree)

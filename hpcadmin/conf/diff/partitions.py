"""Partitions, node sets, nodes that are down in the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcadmin.conf.diff import values
from hpcadmin.conf.diff.parts import Difference, Sides, Weight
from hpcadmin.conf.existing.parts import Configuration, NodeSetLine, PartitionLine
from hpcadmin.hosts import fold
from hpcadmin.text import printable


def compare(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    before = {line.name: line for line in old.partitions}
    after = {line.name: line for line in new.partitions}
    for name, line in before.items():
        if name not in after:
            yield Difference(Weight.JOBS, "slurm.conf", f"partition {name}", fold(line.hosts) or "no nodes", "",
                             means=f"jobs in it end; {sides.goes(f'[partitions.{name}]')}",
                             place=line.place, apply=sides.apply("PartitionName", "PartitionName"))
    for name, line in after.items():
        if name not in before:
            yield Difference(Weight.CHANGE, "slurm.conf", f"partition {name}", "", _nodes(line),
                             why=sides.why(line.values.get("nodes")),
                             apply=sides.apply("PartitionName", "PartitionName"))
        else:
            yield from _partition(before[name], line, sides)
    yield from _sets(old.node_sets, new.node_sets, sides)
    for statement in old.down_nodes:
        texts = [s.text for s in new.down_nodes]
        if statement.text not in texts:
            yield Difference(Weight.DROPPED, "slurm.conf", "DownNodes", statement.text.split("=", 1)[1], "",
                             means=sides.goes(), place=statement.place,
                             apply=sides.apply("DownNodes", "DownNodes"))


def _nodes(line: PartitionLine) -> str:
    return fold(line.hosts) or "no nodes"


def _partition(old: PartitionLine, new: PartitionLine, sides: Sides) -> Iterator[Difference]:
    name = f"partition {new.name}"
    was, will = set(old.hosts), set(new.hosts)
    if was != will:
        parts = [f"{sign}{fold(hosts)}" for sign, hosts in (("-", was - will), ("+", will - was)) if hosts]
        yield Difference(Weight.CHANGE, "slurm.conf", f"{name} Nodes", _nodes(old), _nodes(new),
                         why=sides.why(new.values.get("nodes")), means=" ".join(parts),
                         place=(old.values.get("nodes") or next(iter(old.values.values()))).place
                         if old.values else old.place, apply=sides.apply("PartitionName", "Nodes"))
    for key in [*new.values, *(key for key in old.values if key not in new.values)]:
        before, after = old.values.get(key), new.values.get(key)
        value = after or before
        if key == "nodes" or value is None or (before and after and values.same(key, before.text, after.text)):
            continue
        if not (before and after) and values.unset(values.PARTITION, key, value.text):
            continue
        fatal = sides.fatal("PartitionName", before)
        weight = Weight.FATAL if fatal else Weight.DROPPED if after is None else Weight.CHANGE
        means = fatal or (sides.goes(f"[partitions.{new.name}]") if after is None else "")
        yield Difference(weight, "slurm.conf", f"{name} {value.key}", before.text if before else "",
                         after.text if after else "", why=sides.why(after), means=means,
                         place=before.place if before else None, apply=sides.apply("PartitionName", value.key))


def _sets(old: Sequence[NodeSetLine], new: Sequence[NodeSetLine], sides: Sides) -> Iterator[Difference]:
    before, after = {s.name: s for s in old}, {s.name: s for s in new}
    for name in [*after, *(name for name in before if name not in after)]:
        was, will = before.get(name), after.get(name)
        if was and will and set(was.hosts) == set(will.hosts):
            continue
        yield Difference(Weight.DROPPED if will is None else Weight.CHANGE, "slurm.conf",
                         f"node set {printable(name, limit=80)}", (fold(was.hosts) or "no nodes") if was else "",
                         (fold(will.hosts) or "no nodes") if will else "",
                         means=sides.goes() if will is None else "",
                         place=was.place if was else None, apply=sides.apply("NodeSet", "NodeSet"))

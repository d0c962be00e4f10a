"""The whole comparison, and what all of it together takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hpcadmin.conf.diff import gres, nodes, partitions, settings, topology
from hpcadmin.conf.diff.parts import Diff, Difference, Sides, Weight, merged, ordered
from hpcadmin.conf.existing.lines import OTHER_GRAMMAR
from hpcadmin.conf.existing.parts import Configuration
from hpcadmin.conf.keys import Apply

# The order within one weight.
_FILES = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "topology.yaml")


@dataclass(frozen=True)
class Application:
    """What it takes until all differences are in force. slurmd: nodes whose slurmd is to be restarted; () with
    `every` is all of them."""

    reconfigure: bool = False
    slurmctld: bool = False
    slurmdbd: bool = False
    every: bool = False
    slurmd: tuple[str, ...] = ()
    jobs_lost: bool = False


def compare(old: Configuration, new: Configuration, sides: Sides) -> Diff:
    """Everything in which they differ, the differences that matter most first.

    Lines of either side that Slurm cannot read are faults; what stands on them is compared as far as it can be told.
    """
    found = [*settings.compare(old, new, sides), *nodes.compare(old, new, sides),
             *partitions.compare(old, new, sides), *gres.compare(old, new, sides), *topology.compare(old, new, sides),
             *_others(old, new, sides)]
    order = {name: number for number, name in enumerate(_FILES)}
    hosts = {host for conf in (old, new) for line in conf.nodes for host in line.hosts}
    return Diff(ordered(merged(found), lambda name: order.get(name, len(order))),
                tuple(dict.fromkeys([*old.faults, *new.faults])),
                tuple(dict.fromkeys([*old.missing, *new.missing])), sides.version, len(hosts))


def _others(old: Configuration, new: Configuration, sides: Sides) -> Iterable[Difference]:
    """Files with a grammar of their own, as a whole."""
    for file in old.files:
        if file.name not in OTHER_GRAMMAR or file.name == "topology.yaml":
            continue
        other = new.file(file.name)
        if other is None:
            weight = sides.only_old(file.name)
            means = sides.goes() if weight is Weight.DROPPED else sides.stays(file.name)
            yield Difference(weight, file.name, "file", "is there", "", means=means)
        elif [line.rstrip() for line in other.lines] != [line.rstrip() for line in file.lines]:
            yield Difference(Weight.CHANGE, file.name, "file", "", "", means="its lines differ: see --text",
                             apply=Apply.RESTART_SLURMD)
    for file in new.files:
        if file.name in OTHER_GRAMMAR and file.name != "topology.yaml" and old.file(file.name) is None:
            yield Difference(Weight.CHANGE, file.name, "file", "", "is written", apply=Apply.RESTART_SLURMD)


def application(found: Iterable[Difference]) -> Application:
    takes = [d for d in found if d.weight is not Weight.LEFT]
    kinds = {d.apply for d in takes}
    lost = Apply.JOBS_LOST in kinds
    every = lost or Apply.RESTART_ALL in kinds or any(d.apply is Apply.RESTART_SLURMD and not d.nodes for d in takes)
    some = dict.fromkeys(n for d in takes if d.apply is Apply.RESTART_SLURMD for n in d.nodes)
    controller = lost or bool(kinds & {Apply.RESTART_ALL, Apply.RESTART_SLURMCTLD})
    return Application(
        reconfigure=Apply.RECONFIGURE in kinds and not (controller and every), slurmctld=controller,
        slurmdbd=Apply.RESTART_SLURMDBD in kinds, every=every, slurmd=() if every else tuple(some), jobs_lost=lost)

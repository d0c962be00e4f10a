"""What the rules on topology have in common: versions, and how things are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpcadmin.conf.check.finding import Situation
from hpcadmin.conf.existing.parts import Topology
from hpcadmin.conf.keys import VERSIONS, Version, show
from hpcadmin.conf.names import slurm_list

YAML: Version = (25, 5)                  # first version that reads topology.yaml


def where(situation: Situation, holds: Callable[[Version], bool]) -> tuple[Version, ...]:
    return tuple(v for v in situation.asked if holds(v))


def only(situation: Situation, versions: Sequence[Version]) -> tuple[Version, ...]:
    """As Finding.versions has it: () is all that were asked for."""
    return () if situation.versions and tuple(versions) == situation.versions else tuple(versions)


def told(versions: Sequence[Version]) -> str:
    """"Slurm 24.11 and later", "Slurm 22.05 to 24.11", for versions in order."""
    ordered = sorted(versions)
    if not ordered or ordered == list(VERSIONS):
        return "Slurm"
    if len(ordered) == 1:
        return f"Slurm {show(ordered[0])}"
    if ordered[-1] == VERSIONS[-1]:
        return f"Slurm {show(ordered[0])} and later"
    return f"Slurm {show(ordered[0])} to {show(ordered[-1])}"


def topologies(situation: Situation) -> tuple[Topology, ...]:
    """Those that one of the versions reads at all."""
    young = any(v >= YAML for v in situation.asked)
    return tuple(t for t in situation.conf.topologies if young or not from_yaml(t))


def known_nodes(situation: Situation) -> set[str]:
    """The nodes of slurm.conf; none where a part of it may be missing."""
    return set() if not situation.whole else {host for line in situation.conf.nodes for host in line.hosts}


def in_(topology: Topology) -> str:
    return f"topology {topology.name}: " if topology.name else ""


def from_yaml(topology: Topology) -> bool:
    return bool(topology.name) or bool(topology.place and topology.place.file.endswith((".yaml", ".yml")))


def some(nodes: Sequence[str]) -> str:
    return slurm_list(nodes)[:300]


def verb(names: Sequence[str], one: str = "is", many: str = "are") -> str:
    return one if len(names) == 1 else many

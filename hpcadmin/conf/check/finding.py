"""What a rule is given and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from hpcadmin.conf.existing.parts import Configuration, Place
from hpcadmin.conf.keys import Version
from hpcadmin.model import Inventory
from hpcadmin.site import Site


class Severity(Enum):
    """In the order of what it costs; the value is what is printed."""

    FATAL = "FATAL"                  # a daemon does not start
    INVALID = "INVALID"              # nodes register INVALID, drained or down
    WRONG = "WRONG"                  # Slurm takes it in silence, and does something else than is meant
    DRIFT = "DRIFT"                  # not as the hardware is, and Slurm may live with it
    DEPRECATED = "DEPRECATED"        # still works, an error line or the next release says otherwise
    NOTE = "NOTE"                    # worth knowing; alone it does not fail the check


@dataclass(frozen=True)
class Finding:
    """what: the fact with its values. means: what Slurm makes of it. right: the line or lines that would be right."""

    severity: Severity
    what: str
    means: str = ""
    right: tuple[str, ...] = ()
    place: Place | None = None
    nodes: tuple[str, ...] = ()      # the nodes that it is about, where it is about nodes
    versions: tuple[Version, ...] = ()   # in which of the versions asked for; () is in all of them
    rule: str = ""                   # filled in by the runner: "gres.links_length"


@dataclass(frozen=True)
class LiveNode:
    """A node as slurmctld has it (`scontrol show node`): keys in small letters, values as printed."""

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Situation:
    """versions: the cluster's own first, then those that it is to go to; () where none is known."""

    conf: Configuration
    versions: tuple[Version, ...] = ()
    inventory: Inventory | None = None
    live: Mapping[str, LiveNode] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)   # settings in force, by key in small letters
    site: Site = field(default_factory=Site)


Rule = Callable[[Situation], Iterable[Finding]]

"""What a rule is given and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from hpcadmin.conf.check.fleet import Alike, alike
from hpcadmin.conf.existing.parts import Configuration, Place
from hpcadmin.conf.keys import VERSIONS, Version
from hpcadmin.model import Inventory, Node
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
    more: tuple[Place, ...] = ()     # filled in by the runner: further lines of which the same is true


@dataclass(frozen=True)
class LiveNode:
    """A node as slurmctld has it (`scontrol show node`): keys in small letters, values as printed."""

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Situation:
    """versions: the cluster's own first, then those that it is to go to; () where none is known.

    complete: the files are all that the cluster has; False where some were named. fragment: a piece of a text: nothing
    follows from what is not in it.
    """

    conf: Configuration
    versions: tuple[Version, ...] = ()
    inventory: Inventory | None = None
    live: Mapping[str, LiveNode] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)   # settings in force, by key in small letters
    site: Site = field(default_factory=Site)
    complete: bool = True
    fragment: bool = False

    @cached_property
    def alike(self) -> tuple[Alike, ...]:
        """The nodes, those that all files say the same of together."""
        return alike(self.conf)

    @cached_property
    def machines(self) -> Mapping[str, Node]:
        """The nodes of the inventory by name."""
        return {node.name: node for node in self.inventory.nodes} if self.inventory else {}

    @property
    def asked(self) -> tuple[Version, ...]:
        """The versions to judge for: every one where none is known."""
        return self.versions or VERSIONS

    def among(self, test: Callable[[Version], bool]) -> tuple[Version, ...] | None:
        """For Finding.versions: those of the versions asked for that `test` holds for; () where it holds for all of
        them, None where for none."""
        found = tuple(version for version in self.asked if test(version))
        return None if not found else () if len(found) == len(self.asked) else found

    @property
    def whole(self) -> bool:
        """Whether what slurm.conf does not say is not said at all."""
        return not self.fragment and self.conf.has("slurm.conf") and not any(
            "(included at" in missing for missing in self.conf.missing)

    @property
    def dynamic(self) -> bool:
        """Whether nodes may register that no file names (slurmd -Z)."""
        return "maxnodecount" in self.conf.settings

    def lacks(self, name: str) -> bool:
        """Whether the cluster has no file of that name."""
        return self.complete and not self.fragment and not self.conf.has(name) and not any(
            name in missing for missing in self.conf.missing)


Rule = Callable[[Situation], Iterable[Finding]]

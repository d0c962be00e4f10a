"""What a comparison is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from hpcadmin.conf import keys
from hpcadmin.conf.existing.parts import Fault, Place, Value
from hpcadmin.conf.keys import Apply, Version
from hpcadmin.conf.parts import Explained


class Weight(Enum):
    """In the order in which differences are shown; the value is what is printed."""

    FATAL = "FATAL"                  # as it stands a daemon does not start
    INVALID = "INVALID"              # as it stands nodes register INVALID, drained or down
    JOBS = "JOBS"                    # the change costs jobs
    CHANGE = "CHANGE"
    DROPPED = "DROPPED"              # only the old files have it; it goes when the new files are put in their place
    LEFT = "LEFT"                    # only the old files have it, in a file that the new ones do not replace


WEIGHTS = tuple(Weight)
APPLIES = tuple(Apply)


@dataclass(frozen=True)
class Difference:
    """file, what: "slurm.conf", "SlurmdTimeout". old, new: "" where it is not set. nodes: () where it is not about
    nodes. why: the reason of the new value. means: why it has its weight, or how to keep it. place: of the old value.
    """

    weight: Weight
    file: str
    what: str
    old: str = ""
    new: str = ""
    nodes: tuple[str, ...] = ()
    why: str = ""
    means: str = ""
    place: Place | None = None
    apply: Apply = Apply.NOTHING


@dataclass(frozen=True)
class Diff:
    """differences in the order that matters. faults: lines of either side that Slurm does not read, or reads
    otherwise than they look; missing: files that could not be read. version: what `apply` is told for."""

    differences: tuple[Difference, ...] = ()
    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()
    version: Version | None = None
    nodes: int = 0

    @property
    def same(self) -> bool:
        return all(d.weight is Weight.LEFT for d in self.differences) and not any(f.fatal for f in self.faults)


@dataclass(frozen=True)
class Sides:
    """What the parts of a comparison need. truth: the new side describes the hardware, so that more than it is too
    much. memory: MiB that each node has, by name."""

    version: Version | None = None
    truth: bool = False
    memory: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()       # files that the new side writes

    def why(self, value: Value | None) -> str:
        if value is None:
            return ""
        return self.reasons.get((value.place.file, value.place.line), {}).get(value.key.casefold(), "")

    def only_old(self, file: str) -> Weight:
        return Weight.DROPPED if file in self.replaced else Weight.LEFT

    def goes(self, table: str = "") -> str:
        """What happens to what only the old side has. table: where site.toml would keep it."""
        return f"goes, unless {table} in site.toml has it" if table and self.truth else "goes"

    def stays(self, file: str) -> str:
        return f"{file} is not among the new files: it stays as it is"

    def apply(self, statement: str, key: str) -> Apply:
        return keys.applies(statement, key, self.version)

    def fatal(self, statement: str, value: Value | None) -> str:
        """What a daemon of this version says to the old value; "" where it takes it."""
        if value is None or self.version is None:
            return ""
        for rule, version, effect in keys.effects(statement, value.key, value.text, self.version):
            if effect is keys.Effect.FATAL:
                instead = f"; {rule.instead} instead" if rule.instead else ""
                return f"Slurm {keys.show(version)} does not start with it{instead}"
        return ""


def reasons_of(explained: Iterable[Explained]) -> dict[tuple[str, int], dict[str, str]]:
    """(file, line) -> key in small letters -> reason and source."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for item in explained:
        at = found.setdefault((item.file, item.line), {})
        for why in item.whys:
            for word in why.part.split(" "):
                key, equals, _ = word.partition("=")
                if equals:
                    at.setdefault(key.casefold(), f"{why.reason} [{why.source}]")
    return found


def merged(found: Iterable[Difference]) -> list[Difference]:
    """The same difference on other nodes is one."""
    nodes: dict[Difference, dict[str, None]] = {}
    places: dict[Difference, Place | None] = {}
    for item in found:
        key = replace(item, nodes=(), place=None)
        nodes.setdefault(key, {}).update(dict.fromkeys(item.nodes))
        places.setdefault(key, item.place)
    return [replace(key, nodes=tuple(names), place=places[key]) for key, names in nodes.items()]


def ordered(found: Iterable[Difference], files: Callable[[str], int]) -> tuple[Difference, ...]:
    """By weight, then by file, then in the order in which they were found."""
    return tuple(sorted(found, key=lambda d: (WEIGHTS.index(d.weight), files(d.file))))

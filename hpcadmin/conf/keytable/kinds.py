"""What the key tables are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Version = tuple[int, int]
VERSIONS: tuple[Version, ...] = ((22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5))
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]


class Effect(Enum):
    """What a daemon does with a key or value that its version does not have."""

    FATAL = "fatal: the daemon does not start"
    ERROR = "an error line in the log, otherwise ignored"
    IGNORED = "ignored"
    DEPRECATED = "still read, to be replaced"


class Apply(Enum):
    """What it takes until a changed key is in force, from the least to the most. The value is what an admin is told."""

    NOTHING = "nothing: read anew where it is used"
    RECONFIGURE = "scontrol reconfigure"
    RESTART_SLURMDBD = "restart slurmdbd"
    RESTART_SLURMD = "restart slurmd on the nodes"
    RESTART_SLURMCTLD = "restart slurmctld"
    RESTART_ALL = "restart slurmctld and every slurmd"
    JOBS_LOST = "restart slurmctld and every slurmd with no job left: running and pending jobs are lost"


class Form(Enum):
    """What Slurm's parser takes as a value of a key; anything else is a parse error, which is fatal."""

    TEXT = "text"
    BOOLEAN = "yes or no"
    UINT16 = "a whole number up to 65535"
    UINT32 = "a whole number up to 4294967295"
    UINT64 = "a whole number"
    LONG = "a whole number, may be negative"
    FLOAT = "a number"
    LINE = "the rest of the line"


@dataclass(frozen=True)
class Key:
    """One key of one kind of statement, and its life.

    file: the kind of statement as `keys.statement` names it. since: first version that has it. changes: what happened
    to it later, each from that version on, oldest first: ((23, 2), DEPRECATED), ((23, 11), FATAL). instead: what to
    write in its place. applied: what a change of it takes since later versions: ((23, 11), Apply.X) is X from 23.11 on.
    alias: the key that it is another name of. sure: False where neither source nor daemon of a version was seen.
    """

    file: str
    name: str
    form: Form = Form.TEXT
    since: Version = OLDEST
    changes: tuple[tuple[Version, Effect], ...] = ()
    instead: str = ""
    apply: Apply = Apply.RECONFIGURE
    applied: tuple[tuple[Version, Apply], ...] = ()
    alias: str = ""
    sure: bool = True

    @property
    def until(self) -> Version | None:
        """First version in which it is no longer as it was."""
        return self.changes[0][0] if self.changes else None

    def effect_in(self, version: Version) -> Effect | None:
        """None where the version has it and has nothing to say about it."""
        if version < self.since:
            return Effect.FATAL
        found = None
        for start, effect in self.changes:
            if version >= start:
                found = effect
        return found

    def apply_in(self, version: Version) -> Apply:
        found = self.apply
        for start, apply in self.applied:
            if version >= start:
                found = apply
        return found

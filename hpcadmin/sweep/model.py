"""What a sweep speaks of: looks at nodes, decisions about them, entries of the ledger, problems. Values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from hpcadmin.slurm.node_records import NodeRecord

AHEAD_S = 300.0             # a node's clock may be so much ahead of ours
NIGHT_BEGINS_H = 12         # local time: what is seen in the morning belongs to the night before


class Result(str, Enum):
    """Unknown is neither: it drains nobody and lets nobody go."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Kind(str, Enum):
    """What a look was at; the names are those of [sweep]."""

    HARDWARE = "hardware"
    NODE = "node"
    TEST = "test"
    NETWORK = "network"


class Act(str, Enum):
    """What is decided about a node, exactly one for each."""

    DRAIN = "drain"
    RESUME = "resume"
    COMMENT = "comment"
    UNCOMMENT = "uncomment"
    KEEP = "keep"           # drained by us, and stays so
    HOLD = "hold"           # something would be done, but must not
    TELL = "tell"
    NONE = "none"

    @property
    def touches(self) -> bool:
        return self in (Act.DRAIN, Act.RESUME, Act.COMMENT, Act.UNCOMMENT)


@dataclass(frozen=True)
class Look:
    """What one check said of a node, or of two. check: "health/mount:home", "test/ib_write_bw"."""

    check: str
    node: str
    result: Result
    kind: Kind
    time: float
    text: str = ""
    partner: str = ""           # of the network: the other node; the two in their order
    boot: str = ""              # which boot of the node it was, where that is told
    source: str = ""            # the run that measured it
    facts: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)     # what was measured, of few checks

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.node, self.partner))


@dataclass(frozen=True)
class Fault:
    """A bad look as it counts for one node, with what the policy says. partners: with whom the network failed."""

    check: str
    kind: Kind
    act: Act                    # DRAIN, COMMENT or TELL
    text: str
    partners: tuple[str, ...] = ()
    boot: str = ""


@dataclass(frozen=True)
class Decision:
    """About one node. why: in one line, for people."""

    node: str
    act: Act
    why: str
    checks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    reason: str = ""            # what Slurm is told (drain, comment), or was (resume, uncomment)
    was: str = ""               # the comment before
    partners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)     # check -> partners it failed with
    boot: str = ""
    boot_time: float | None = None
    undoes: str = ""            # the intent that is undone


@dataclass(frozen=True)
class Entry:
    """A line of the ledger. kind: begin, end, intent, outcome, look, left, problem."""

    kind: str
    time: float
    run: str = ""
    night: int = 0
    id: str = ""                # intent and its outcome: RUN/3
    node: str = ""
    act: str = ""
    checks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    partners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reason: str = ""
    was: str = ""
    state: str = ""             # of the node, in Slurm's words
    by: str = ""                # outcome of a drain: whom Slurm names as who gave the reason
    boot: str = ""
    boot_time: float | None = None
    undoes: str = ""
    result: str = ""            # outcome: OUTCOMES; look: good or bad; problem: begins, changes, ends; end: exit status
    text: str = ""
    measured: float = 0.0       # look: when
    partner: str = ""
    source: str = ""
    key: str = ""               # problem
    signature: str = ""
    looked: bool = False        # end: whether Slurm answered


# What became of an intent. pending: it is not known whether Slurm did it; the next sweep finds out.
DONE, NOT_DONE, CHANGED, REFUSED, PENDING = "done", "not done", "changed", "refused", "pending"


@dataclass(frozen=True)
class Problem:
    """Something that people should know of as long as it lasts. signature: what is new when it changes."""

    key: str
    signature: str
    text: str
    node: str = ""
    checks: tuple[str, ...] = ()
    since: float = 0.0


@dataclass(frozen=True)
class Change:
    """What is told: a problem begins, changes or ends."""

    what: str
    problem: Problem


@dataclass(frozen=True)
class Seen:
    """Everything a decision rests on, beside the ledger."""

    nodes: tuple[NodeRecord, ...]
    looks: tuple[Look, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)     # node -> why nothing is known of its health
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()      # beside what is decided about nodes
    unknown: tuple[str, ...] = ()           # beginnings of keys of problems that may go on or not


def night_of(time: float) -> int:
    """The number of the night that a moment belongs to: it changes at noon, local time."""
    return (datetime.fromtimestamp(time) - timedelta(hours=NIGHT_BEGINS_H)).date().toordinal()


def night_name(night: int) -> str:
    return datetime.fromordinal(night).strftime("%Y-%m-%d")


def local_iso(moment: float) -> str:
    """With the zone of this host; "" for no moment (0)."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds") if moment else ""

"""What is told, and what a channel is. A channel is one file in channels/ with a CHANNEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import HpcadminError
from hpcadmin.sweep.model import Change, Problem

BEGINS, CHANGES, ENDS, LASTS = "begins", "changes", "ends", "lasts"


class AlarmError(HpcadminError):
    """A channel could not tell: it is tried again the next time."""

    exit_status = 4


@dataclass(frozen=True)
class Message:
    """id: the same whenever this is sent again, for whoever takes it twice. kind: changes, digest, trouble, test."""

    id: str
    kind: str
    time: float
    cluster: str = ""
    run: str = ""
    items: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What the last sweep saw that is not in its ledger: nodes by state and flag in Slurm, measured values."""

    run: str = ""
    time: float = 0.0
    states: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)   # threshold -> why it could not be measured; "": it was


@dataclass(frozen=True)
class Health:
    """Of a channel: whether it works. failing_since 0: it does."""

    name: str
    kind: str
    last_ok: float = 0.0
    failing_since: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class State:
    """All that there is now, for channels that show it anew each time. ended: what they showed before, and is over.
    actions: (act, outcome) -> how many in the whole ledger."""

    time: float
    cluster: str = ""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    ended: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    begun: float = 0.0                  # the last sweep
    finished: float = 0.0               # the last that came to its end
    answered: bool = False              # whether Slurm did, then
    status: int | None = None
    actions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    channels: tuple[Health, ...] = ()


def nothing_wrong(_settings: Any) -> tuple[str, str] | None:
    return None


@dataclass(frozen=True)
class Channel:
    """settings: the record of its table in site.toml. send tells one message (it returns what went wrong in part, or
    ""), show replaces what was shown; both raise AlarmError. problem: (key, what is wrong) of settings that cannot be
    followed."""

    settings: type
    send: Callable[[Any, Message, float], str] | None = None
    show: Callable[[Any, State, float], None] | None = None
    problem: Callable[[Any], tuple[str, str] | None] = nothing_wrong
    digest: bool = True

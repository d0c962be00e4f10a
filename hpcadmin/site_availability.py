"""[availability] of site.toml: what the contract says of nodes that are not available."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

DOWN, UP, UNKNOWN = "down", "up", "unknown"


@dataclass(frozen=True)
class AvailabilitySite:
    """Every key may be left out."""

    target: str = "99.95"                 # per cent; a text, so that it is the contract's number exactly
    nodes: str = ""                       # hostlist of the contract: these are owed all the time
    zone: str = ""                        # whose midnight begins a period: "Europe/Berlin"; "": this machine's
    planned: tuple[str, ...] = ()         # reasons that are planned maintenance: "maintenance*"
    reservations: bool = True             # maintenance reservations are planned
    drain: str = DOWN                     # nodes that are drained for any other reason: down or up
    controller: str = DOWN                # all nodes while slurmctld does not run: down, unknown or up
    power_saving: str = UP                # nodes that power saving switched off: up or down


def availability_problem(site: AvailabilitySite) -> tuple[str, str] | None:
    """The key that is wrong, and why."""
    if percent(site.target) is None:
        return "target", 'must be a percentage above 0 and up to 100, as a text: "99.95"'
    for key, choices in (("drain", (DOWN, UP)), ("controller", (DOWN, UNKNOWN, UP)), ("power_saving", (UP, DOWN))):
        if getattr(site, key) not in choices:
            return key, f"must be one of {', '.join(choices)}"
    for pattern in site.planned:
        if not pattern.strip("*? "):
            return "planned", "has a pattern that fits every reason"
    return None


def percent(text: str) -> Fraction | None:
    """"99.95" as 1999/2000; None for what is none."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text.strip()):
        return None
    found = Fraction(text.strip()) / 100
    return found if 0 < found <= 1 else None


def plain_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """target may be a number too: TOML's 99.95 prints as it was written."""
    value = table.get("target")
    if type(value) in (int, float):
        return {**table, "target": str(value)}
    return dict(table)

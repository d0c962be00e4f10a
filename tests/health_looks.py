"""One check on a folder that stands for a node."""

from __future__ import annotations

import json
from typing import Any

from hpcadmin.health.node import load, watch
from hpcadmin.health.node.door import Door
from tests.health_machine import Machine


def run(
    machine: Machine, name: str, kept: dict[str, Any] | None = None, now: float | None = None, /, **params: Any
) -> tuple[str, str]:
    """Status and reason; kept is what is remembered from one run to the next."""
    return look(machine, name, kept, now, **params)[:2]


def look(
    machine: Machine, name: str, kept: dict[str, Any] | None = None, now: float | None = None, /, **params: Any
) -> tuple[str, str, bool]:
    check = load.named(name)
    door = Door(str(machine.root), last=kept)
    if now is not None:
        door.now = lambda: now  # type: ignore[method-assign]
    findings = watch.look(check, door, check.take(params))
    if kept is not None:
        kept.update(json.loads(json.dumps(door.kept)))
    status, reason, _ = watch.judged(findings)
    return status, reason, any(one.own for one in findings)

"""A node as slurmctld tells it, with what decides whose it is: reason, comment, boot. From scontrol's text and JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hpcadmin.errors import SlurmError
from hpcadmin.slurm.command_line import key_values
from hpcadmin.slurm.states import NodeState, node_state
from hpcadmin.text import printable

# What people may write comes behind what Slurm writes, and in this order: a word in one that looks like the next is
# part of it (22.05 to 26.05, tried).
_WRITTEN = ("Reason", "Comment", "Extra")
_WHO = re.compile(r" \[([^\[\]\s@]{1,64})@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
_AFTER = re.compile(r" (?:ReservationName|InstanceId|InstanceType)=")
_RESERVATION = re.compile(r" ReservationName=(\S+)")
_REBOOT = re.compile(r"(?: : reboot (?:requested|issued|complete|timed out|cancell?ed))+\Z")
_BEGIN = re.compile(r"NodeName=\S+ ")


@dataclass(frozen=True)
class NodeRecord:
    """reason "": none. boot_time None: not told (as of a node that has yet to register again after a resume).
    unclear: why this cannot be relied on, "" when it can."""

    name: str
    state: NodeState
    reason: str = ""
    reason_by: str = ""
    reason_time: float | None = None
    comment: str = ""
    boot_time: float | None = None
    reservation: str = ""
    unclear: str = ""

    @property
    def own_reason(self) -> str:
        """Without what Slurm puts behind it when the node is rebooted by scontrol (22.05, tried): nobody wrote that."""
        return _REBOOT.sub("", self.reason)


def parse_text(text: str) -> tuple[NodeRecord, ...]:
    """Of scontrol --oneliner show nodes. A comment may hold line ends, and Slurm prints them as they are: what does not
    begin as a node belongs to the one before, and a node that is told twice is none that can be relied on.
    SlurmError when there is anything else."""
    lines: list[str] = []
    for line in text.splitlines():
        if _BEGIN.match(line):
            lines.append(line)
        elif lines:
            lines[-1] += f"\n{line}"
        elif line.strip() and not line.startswith("No nodes"):
            raise SlurmError(f"unreadable line: {printable(line, limit=120)!r}", where="scontrol show nodes")
    return _distinct([_of_line(line) for line in lines])


def _of_line(line: str) -> NodeRecord:
    head, reason, comment, more = _pieces(line)
    fields = key_values(head)
    if "NodeName" not in fields or "State" not in fields:
        name = fields.get("NodeName", "")
        return NodeRecord(name, node_state("UNKNOWN"), unclear="Slurm's answer does not tell its state")
    match = _WHO.search(reason)
    reserved = _RESERVATION.search(more)
    return NodeRecord(
        name=fields["NodeName"], state=node_state(fields["State"]),
        reason=(reason[:match.start()] + reason[match.end():].rstrip() if match else reason).strip(),
        reason_by=match[1] if match else "", reason_time=_time(match[2]) if match else None, comment=comment.strip(),
        boot_time=_time(fields.get("BootTime", "")), reservation=reserved[1] if reserved else "",
    )


def _pieces(line: str) -> tuple[str, str, str, str]:
    """What Slurm wrote, the reason, the comment, and the rest from there on; the first two that are there end at the
    first word that may follow them."""
    places = {name: place for name in _WRITTEN if (place := line.find(f" {name}=")) >= 0}
    tail = _AFTER.search(line)
    first = min([*places.values(), tail.start() if tail else len(line)])
    head, reason, comment, rest = line[:first], "", "", line[first:]
    if rest.startswith(" Reason="):
        who = _WHO.search(rest)             # of a reason of many lines the first ends with it
        start = who.end() if who else len(" Reason=")
        end = min([rest.find(f" {n}=", start) for n in ("Comment", "Extra") if rest.find(f" {n}=", start) >= 0]
                  + [m.start() for m in [_AFTER.search(rest, start)] if m], default=len(rest))
        reason, rest = rest[len(" Reason="):end], rest[end:]
    if rest.startswith(" Comment="):
        end = min([place for place in [rest.rfind(" Extra=")] if place >= 0]
                  + [m.start() for m in [_AFTER.search(rest)] if m], default=len(rest))
        comment, rest = rest[len(" Comment="):end], rest[end:]
    return head, reason, comment, rest


def parse_json(text: str) -> tuple[NodeRecord, ...]:
    """Of scontrol show nodes --json (23.02 and later) and sinfo --json of 22.05. SlurmError when it is neither."""
    try:
        plain = json.loads(text)
        nodes = plain["nodes"]
        if plain.get("errors"):             # what is there beside them may be a part
            raise SlurmError(f"tells of errors: {printable(str(plain['errors']), limit=200)}",
                             where="scontrol show nodes")
        return _distinct([_of_plain(item) for item in nodes])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as exc:
        raise SlurmError(f"unreadable JSON: {printable(str(exc), limit=120)}", where="scontrol show nodes") from exc


def _of_plain(item: Mapping[str, Any]) -> NodeRecord:
    name, state = item["name"], item["state"]
    if not isinstance(name, str) or not isinstance(state, (str, list)):
        raise TypeError("a node without name or state")
    flags = item.get("state_flags") or []
    return NodeRecord(
        name=name, state=node_state(state if isinstance(state, str) else [str(word) for word in state],
                                    [str(word) for word in flags]),
        reason=_words(item.get("reason")), reason_by=_words(item.get("reason_set_by_user")),
        reason_time=_number(item.get("reason_changed_at")), comment=_words(item.get("comment")),
        boot_time=_number(item.get("boot_time")), reservation=_words(item.get("reservation")),
    )


def _words(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    """A time; 0 and what is not set are none. Since 23.02 a number is {set, infinite, number}."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return float(value) if isinstance(value, (int, float)) and 0 < value < 4294967294 else None


def _time(text: str) -> float | None:
    """Slurm's commands print the local time."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        return None


def _distinct(found: list[NodeRecord]) -> tuple[NodeRecord, ...]:
    told = Counter(record.name for record in found)
    seen: dict[str, NodeRecord] = {}
    for record in found:
        twice = told[record.name] > 1
        seen[record.name] = replace(record, unclear="Slurm's answer tells it twice") if twice else record
    return tuple(seen.values())

"""Which nodes a sweep keeps its hands off, by Slurm's state: everything that is not known to be in plain service."""

from __future__ import annotations

from collections.abc import Container

from hpcadmin.slurm.node_records import NodeRecord

SERVICE = ("IDLE", "ALLOCATED", "MIXED")
# Flags that say nothing against it.
HARMLESS = frozenset({"CLOUD", "COMPLETING", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "PERFCTRS", "EXTERNAL"})
BASES = {
    "DOWN": "is down, and not by us", "ERROR": "is in error", "FUTURE": "is not yet there",
    "UNKNOWN": "is in an unknown state",
}
FLAGS = {
    "DRAIN": "is drained by somebody else", "FAIL": "is failing", "NOT_RESPONDING": "does not respond",
    "NO_RESPOND": "does not respond", "MAINTENANCE": "is in maintenance", "MAINT": "is in maintenance",
    "RESERVED": "is reserved", "PLANNED": "is planned for a job that waits", "REBOOT_REQUESTED": "is about to reboot",
    "REBOOT_ISSUED": "reboots", "REBOOT_CANCEL": "was about to reboot",
    "REBOOT_CANCELED": "was about to reboot", "POWER_DOWN": "is about to be powered down",
    "POWER_DRAIN": "is about to be powered down", "POWERING_DOWN": "is powering down",
    "POWERED_DOWN": "is powered down", "POWER_UP": "is about to be powered up", "POWERING_UP": "is powering up",
    "INVALID": "registered with wrong values", "INVALID_REG": "registered with wrong values",
    "BLOCKED": "is blocked by a job on another node",
}


def hands_off(record: NodeRecord, ours: Container[str] = (), *, left_reasons: bool = False) -> str:
    """Why nothing is done to it, "" when something may be. ours: reasons that we have given this node before: Slurm
    24.11 leaves the reason when a node is resumed. left_reasons: those of others, too, say nothing then."""
    if why := unfit(record):
        return why
    if "DRAIN" in record.state.flags:
        return FLAGS["DRAIN"]
    if record.reason and record.own_reason not in ours and not left_reasons:
        return "has a reason that is not ours"
    return ""


def unfit(record: NodeRecord) -> str:
    """The same without asking whose drain and reason it is: for a node that we may have drained."""
    if record.unclear:
        return record.unclear
    if record.state.base not in SERVICE:
        told = record.state.text[:60] or "unknown"
        return BASES.get(record.state.base, f"is in state {told}, which is not known here")
    for flag in sorted(record.state.flags - HARMLESS - {"DRAIN"}):
        return FLAGS.get(flag, f"has the flag {flag[:40]}, which is not known here")
    return "is reserved" if record.reservation else ""


def in_service(record: NodeRecord) -> bool:
    """Whether jobs run or will run there: for the question how many of those are bad."""
    out = {"DRAIN", "FAIL", "MAINTENANCE", "MAINT", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED"}
    return record.state.base in SERVICE and not record.state.flags & out


def exists(record: NodeRecord) -> bool:
    """Whether it counts for a percentage: names in slurm.conf behind which there is no node do not."""
    return record.state.base != "FUTURE" and not (
        "CLOUD" in record.state.flags and record.state.flags & {"POWERED_DOWN", "POWERING_DOWN"})


def drained_idle(record: NodeRecord) -> bool:
    """Drained, and no job on it any more."""
    return "DRAIN" in record.state.flags and record.state.base == "IDLE" and "COMPLETING" not in record.state.flags

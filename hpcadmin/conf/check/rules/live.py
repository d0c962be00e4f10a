"""Nodes that slurmctld does not use, explained: what the Reason means, which line is wrong, what the node has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcadmin.conf.check.finding import Finding, LiveNode, Rule, Severity, Situation
from hpcadmin.conf.check.rules._causes import Causes
from hpcadmin.conf.check.rules._reasons import About, Told, explained
from hpcadmin.conf.check.rules._running import RUNNING
from hpcadmin.conf.existing.parts import Place
from hpcadmin.conf.live import Reason, reason_of, states
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.text import printable

_BASES = {"DOWN": "DOWN", "ERROR": "in ERROR", "UNKNOWN": "not registered yet (UNKNOWN)"}
_FLAGS = {"INVALID_REG": "INVAL", "DRAIN": "DRAIN", "FAIL": "FAIL", "NOT_RESPONDING": "NOT_RESPONDING",
          "BLOCKED": "BLOCKED"}
_MEANT = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "REBOOT_REQUESTED", "REBOOT_ISSUED",
                    "MAINTENANCE"})
_REGISTRATION = (About.GRES, About.MEMORY, About.CPUS, About.CORES)


@dataclass(frozen=True)
class Case:
    """What several nodes have in common."""

    severity: Severity
    state: str
    reason: str
    says: tuple[str, ...]
    right: tuple[str, ...]
    place: Place | None


def reasons(situation: Situation) -> Iterator[Finding]:
    causes = Causes(situation)
    cases: dict[Case, list[tuple[str, Reason]]] = {}
    for node in situation.live.values():
        case = _case(node, causes)
        if case is not None:
            cases.setdefault(case, []).append((node.name, reason_of(node)))
    for case, members in cases.items():
        names = sorted((name for name, _ in members), key=natural)
        what = f"{slurm_list(names)} {'is' if len(names) == 1 else 'are'} {case.state}{_since([r for _, r in members])}"
        if case.reason:
            what += f": {case.reason!r}"
        yield Finding(case.severity, what, "; ".join(case.says), case.right, case.place, tuple(names))


def _case(node: LiveNode, causes: Causes) -> Case | None:
    base, flags = states(node.values.get("state", ""))
    reason = printable(reason_of(node).text, limit=500)
    words = [_BASES[base]] if base in _BASES and not (base == "UNKNOWN" and "INVALID_REG" in flags) else []
    words += [word for flag, word in _FLAGS.items() if flag in flags]
    meant = bool(flags & _MEANT)
    if base == "FUTURE" or (meant and not reason) or not (words or reason):
        return None
    found = list(explained(reason))
    told = [causes.of(node, item) for item in found]
    says = [item.says for item in found] + [text for cause in told for text in cause.says]
    right = [line for cause in told for line in cause.right]
    place = next((cause.place for cause in told if cause.place is not None), None)
    if not found and "INVALID_REG" in flags and not reason:
        cause = causes.without_reason(node)
        says, right, place = list(cause.says), list(cause.right), cause.place
    elif not found and reason:
        says.append(_by_somebody(node))
    elif not found:
        says.append(_without_reason(words))
    if reason and "INVALID_REG" in flags and not any(item.about in _REGISTRATION for item in found):
        says.append("it is INVAL besides: what it registered with is less than slurm.conf says, and its Reason was "
                    "written over; slurmctld's log has it")
    says += causes.times(node) if not all(item.planned for item in found) or not found else []
    state = " and ".join(words) or node.values.get("state", "")
    return Case(_severity(base, flags, found, node, meant=meant), state, reason, tuple(dict.fromkeys(says)),
                tuple(dict.fromkeys(right)), place)


def _severity(base: str, flags: frozenset[str], found: Sequence[Told], node: LiveNode, *, meant: bool) -> Severity:
    """What an admin put there in own words is no fault of the configuration."""
    if meant or (found and all(item.planned for item in found)):
        return Severity.NOTE
    if found or base in _BASES or flags & {"INVALID_REG", "NOT_RESPONDING", "FAIL"}:
        return Severity.INVALID
    return Severity.INVALID if reason_of(node).user == "slurm" else Severity.NOTE


def _by_somebody(node: LiveNode) -> str:
    user = reason_of(node).user
    return (f"words of {printable(user, limit=64)}'s own" if user else "somebody's own words") + (
        ", none of Slurm's: it stays so until scontrol update state=resume")


def _without_reason(words: Sequence[str]) -> str:
    if "NOT_RESPONDING" in words:
        return "slurmd does not answer slurmctld (yet): is it running on the node, and does its name resolve?"
    if "not registered yet (UNKNOWN)" in words:
        return "slurmctld waits for its slurmd to register"
    return "no reason was given"


def _since(reasons: Sequence[Reason]) -> str:
    """ since 2026-01-02T03:04:05 (set by root)."""
    times = sorted({r.since for r in reasons if r.since})
    users = sorted({printable(r.user, limit=64) for r in reasons if r.user})
    by = f" (set by {', '.join(users[:4])})" if users else ""
    if not times:
        return by
    return f" since {times[0]}{f' to {times[-1]}' if len(times) > 1 else ''}{by}"


RULES: tuple[Rule, ...] = (reasons, *RUNNING)

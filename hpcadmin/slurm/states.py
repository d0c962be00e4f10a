"""Node and job states as Slurm's commands print them: a base state and flags, never only the first word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# sinfo(1), NODE STATE CODES: what a character at the end means.
_SUFFIXES = {
    "*": "NOT_RESPONDING", "-": "PLANNED", "~": "POWERED_DOWN", "#": "POWERING_UP", "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "!": "POWER_DOWN", "%": "POWERING_DOWN",
}
# Words that are flags, with the base state that they imply where no base state is told beside them.
_SHORT = {
    "ALLOC": ("ALLOCATED",), "MIX": ("MIXED",), "UNK": ("UNKNOWN",), "FUTR": ("FUTURE",), "BOOT": ("", "POWERING_UP"),
    "DRAINED": ("IDLE", "DRAIN"), "DRNG": ("ALLOCATED", "DRAIN"), "DRAINING": ("ALLOCATED", "DRAIN"),
    "COMP": ("ALLOCATED", "COMPLETING"), "COMPLETING": ("ALLOCATED", "COMPLETING"), "MAINT": ("", "MAINTENANCE"),
    "RESV": ("IDLE", "RESERVED"), "RESERVED": ("IDLE", "RESERVED"), "FAILG": ("", "FAIL"),
    "PLND": ("IDLE", "PLANNED"), "PLANNED": ("IDLE", "PLANNED"),
    "FAILING": ("", "FAIL"), "FAIL": ("", "FAIL"), "NPC": ("", "PERFCTRS"), "NO_RESPOND": ("", "NOT_RESPONDING"),
    "REBOOT": ("", "REBOOT_REQUESTED"), "REBOOT^": ("", "REBOOT_ISSUED"), "INVAL": ("", "INVALID"),
    "INVALID": ("", "INVALID"), "INVALID_REG": ("", "INVALID"), "POW_DN": ("", "POWERING_DOWN"),
    "POW_UP": ("", "POWERING_UP"), "BLOCK": ("", "BLOCKED"), "POWER_DOWN": ("", "POWER_DOWN"),
}
_BASES = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN"})
_UNUSABLE_BASES = {"DOWN": "down", "ERROR": "in error", "FUTURE": "not yet there", "UNKNOWN": "in an unknown state"}
_UNUSABLE_FLAGS = {
    "DRAIN": "drained", "FAIL": "failing", "NOT_RESPONDING": "not responding", "POWERED_DOWN": "powered down",
    "POWERING_DOWN": "powering down", "POWER_DOWN": "about to be powered down", "POWERING_UP": "powering up",
    "REBOOT_REQUESTED": "about to reboot", "REBOOT_ISSUED": "rebooting", "INVALID": "registered with wrong values",
    "INVALID_REG": "registered with wrong values", "NO_RESPOND": "not responding", "BLOCKED": "blocked",
    "MAINTENANCE": "in maintenance", "MAINT": "in maintenance",
}
_MAINTENANCE = frozenset({"MAINTENANCE", "MAINT"})


@dataclass(frozen=True)
class NodeState:
    """base "" : no base state was told. flags are Slurm's long names."""

    base: str
    flags: frozenset[str] = frozenset()
    text: str = ""

    @property
    def unusable(self) -> str:
        """Why no job of ours can start there now or soon, "" when one can. What is unknown counts as unusable."""
        bad = [text for flag, text in _UNUSABLE_FLAGS.items() if flag in self.flags]
        if self.base in _UNUSABLE_BASES:
            bad.insert(0, _UNUSABLE_BASES[self.base])
        elif self.base not in _BASES and not bad:
            bad.append(f"in state {self.text or 'unknown'}, which is not known here")
        return ", ".join(dict.fromkeys(bad))

    def unusable_within(self, reservation: bool) -> str:
        """The same for jobs in a reservation: maintenance is one, and its own jobs may run there."""
        if not reservation or not self.flags & _MAINTENANCE:
            return self.unusable
        return NodeState(self.base or "IDLE", self.flags - _MAINTENANCE, self.text).unusable

    def busy_for(self, reservation: bool) -> str:
        """Why no job of ours could begin there at once, although one can later; "" when one could. reservation: our
        jobs are in one. A node may be IDLE and not free: planned for a job that waits, reserved, just completing."""
        if "COMPLETING" in self.flags:
            return "a job is still completing on it"
        if self.base in ("ALLOCATED", "MIXED"):
            return "jobs run on it"
        if self.flags & {"RESERVED", "MAINTENANCE", "MAINT"} and not reservation:
            return "it is reserved"
        return "it is planned for a job that waits" if "PLANNED" in self.flags else ""

    @property
    def busy(self) -> bool:
        return self.base in ("ALLOCATED", "MIXED") or "COMPLETING" in self.flags


def node_state(value: str | Iterable[str], flags: Iterable[str] = ()) -> NodeState:
    """From scontrol's IDLE+DRAIN, sinfo's idle* or drained, or the lists and separate flags of --json."""
    words = value.split("+") if isinstance(value, str) else list(value)
    text = "+".join([*words, *flags])
    base, implied, found = "", "", set()
    for word in [*words, *flags]:
        name = word.strip().upper()
        if name not in _SHORT:
            while name and name[-1] in _SUFFIXES:
                found.add(_SUFFIXES[name[-1]])
                name = name[:-1]
        if name in _BASES:
            base = base or name
        else:
            means, *own_flags = _SHORT.get(name, ("", name))
            implied = implied or means
            found.update(flag for flag in own_flags if flag)
    return NodeState(base or implied, frozenset(found), text)


# squeue(1) and sacct(1), JOB STATE CODES.
_RUNNING = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED",
    "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "EXPEDITING", "POWER_UP_NODE",
    "UPDATE_DB",
})
_ENDED = {
    "COMPLETED": "completed", "CANCELLED": "was cancelled", "FAILED": "failed", "TIMEOUT": "ran into its time limit",
    "NODE_FAIL": "lost a node (NODE_FAIL)", "PREEMPTED": "was preempted", "BOOT_FAIL": "could not boot its nodes",
    "DEADLINE": "passed its deadline", "OUT_OF_MEMORY": "ran out of memory", "REVOKED": "was revoked",
    "LAUNCH_FAILED": "could not be launched", "RECONFIG_FAIL": "could not be reconfigured",
}
# Reasons for which a pending job never starts unless somebody acts.
_HOPELESS = frozenset({
    "PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "JobHeldUser", "JobHeldAdmin",
    "BadConstraints", "InvalidAccount", "InvalidQOS", "AssociationJobLimit", "DependencyNeverSatisfied",
    "ReservationDeleted", "AccountNotAllowed", "QOSNotAllowed", "JobLaunchFailure", "NonZeroExitCode",
    "launch failed requeued held", "job requeued in held state", "launch_failed_requeued_held",
    "job_requeued_in_held_state", "ReservationInvalid",
})
_HELD = frozenset({"REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})


@dataclass(frozen=True)
class Job:
    """A job as Slurm knows it now. state "" : Slurm does not know the job (any more)."""

    id: int
    state: str = ""
    reason: str = ""
    nodes: str = ""
    exit_code: str = ""
    comment: str = ""

    @property
    def over(self) -> bool:
        """It will not run any further. A state that is not known here counts as over: never wait for ever."""
        return self.base not in _RUNNING

    @property
    def known(self) -> bool:
        """Whether its state is one that is known here; a job that nobody knows has none, which is known too."""
        return self.base in _RUNNING or self.base in _ENDED or not self.base

    @property
    def base(self) -> str:
        return re.split(r"[ +]", self.state.strip().upper(), maxsplit=1)[0]

    @property
    def hopeless(self) -> bool:
        """It waits, and somebody must act before it can start. Reasons may have more behind them: "(Held…", nodes."""
        return self.base in _HELD or (
            self.base == "PENDING" and self.reason.strip("()").partition(",")[0].partition(":")[0] in _HOPELESS)

    @property
    def ending(self) -> str:
        """How it ended, in words for a reason."""
        if not self.state:
            return "is not known to Slurm any more"
        words = _ENDED.get(self.base, f"ended in state {self.state}")
        # Of a job that was cancelled while it waited, what it waited for stays its reason.
        extra = [] if self.reason in ("", "None", "NonZeroExitCode") or self.base == "CANCELLED" else [self.reason]
        if self.exit_code not in ("", "0:0"):
            extra.append(f"exit code {self.exit_code}")
        return f"{words} ({', '.join(extra)})" if extra else words

"""Drains this node for a fault of its own hardware. The only place that asks Slurm, and only with --drain."""

import os

from hpcadmin.health.node import tool
from hpcadmin.health.node.api import plain

MYPY = False
if MYPY:
    from typing import Callable

LEADER = "hpcadmin: "
TIMEOUT_S = 5.0


def drain(node: str, reason: str, run: "Callable[[list[str]], tool.Ran | None]") -> str:
    """What was done, in words. A node that has a reason already, or is on its way out, is left alone."""
    if not node or node[0] == "-" or not all(c.isalnum() or c in "-_." for c in node):
        return "not drained: %r is no node name" % node[:60]
    seen = run(["scontrol", "show", "node", node, "--oneliner"])
    if seen is None or seen.status != 0:
        return "not drained: scontrol did not tell the state of %s" % node
    state, present = state_and_reason(seen.out)
    if not state:
        return "not drained: scontrol did not tell the state of %s" % node
    if present and not present.startswith(LEADER):
        return "not drained: %s has a reason already: %s" % (node, plain(present, 80))
    if present or "DRAIN" in state:
        return "not drained: %s is %s already" % (node, "+".join(state))
    base, flags = state[0], set(state[1:])
    if base in ("DOWN", "FUTURE", "UNKNOWN") or flags & SKIP:
        return "not drained: %s is %s" % (node, "+".join(state))
    done = run(["scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=" + reason])
    if done is None or done.status != 0:
        return "not drained: scontrol refused: %s" % plain(done.err if done else "no answer", 80)
    return "drained %s" % node


SKIP = frozenset({"MAINTENANCE", "MAINT", "REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERING_DOWN", "POWERED_DOWN",
                  "POWERING_UP", "POWER_DOWN", "POWER_UP", "FAIL", "INVALID_REG"})


def state_and_reason(text: str) -> "tuple[list[str], str]":
    """State=IDLE+DRAIN … Reason=words [root@date] of scontrol show node --oneliner; a suffix like * is taken off."""
    state, reason = [], ""  # type: list[str], str
    for word in text.split():
        if word.startswith("State=") and not state:
            state = [part.rstrip("*~#!%$@^-") for part in word[6:].split("+")]
    _, mark, after = text.partition(" Reason=")
    if mark:
        reason = after.partition("\n")[0].rpartition(" [")[0] or after.partition("\n")[0].strip()
    return [part for part in state if part], reason.strip()


def node_name(host: str) -> str:
    """As slurmd calls it, else the short host name."""
    return os.environ.get("SLURMD_NODENAME") or host.partition(".")[0]


def runner(folders: "tuple[str, ...]") -> "Callable[[list[str]], tool.Ran | None]":
    def run(argv: "list[str]") -> "tool.Ran | None":
        program = tool.find(argv[0], folders)
        return tool.run(program, argv, TIMEOUT_S, folders) if program else None
    return run

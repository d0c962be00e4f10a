"""States as Slurm prints them, in every shape: a flag anywhere counts, what is unknown is never good."""

import pytest
from looped import looped

from hpcadmin.slurm.states import Job, node_state

USABLE = ["IDLE", "MIXED", "ALLOCATED", "idle", "mix", "alloc", "mixed-", "allocated-", "idle-", "planned",
          "IDLE+PLANNED", "IDLE+DYNAMIC_NORM+RESERVED+PLANNED", "comp", "resv", "IDLE+CLOUD", "COMPLETING"]
UNUSABLE = {
    "MIXED+DRAIN": "drained", "IDLE+DRAIN": "drained", "drained": "drained", "draining": "drained", "drng": "drained",
    "IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+DRAIN+PLANNED": "drained", "drain*": "not responding",
    "idle*": "not responding", "down*": "down", "DOWN+NOT_RESPONDING": "down", "IDLE+NOT_RESPONDING": "not responding",
    "idle~": "powered down", "IDLE+POWERED_DOWN": "powered down", "idle#": "powering up", "idle%": "powering down",
    "mixed$": "maintenance", "IDLE+MAINTENANCE": "maintenance", "idle@": "reboot", "idle^": "rebooting",
    "idle!": "powered down", "alloc*": "not responding", "fail": "failing", "failg": "failing", "unk": "unknown",
    "IDLE+INVALID_REG": "wrong values", "inval": "wrong values", "futr": "not yet there", "boot": "powering up",
    "DOWN": "down", "ERROR": "error", "npc": "npc", "SOMETHING_NEW": "SOMETHING_NEW", "": "unknown",
}


@looped("text", USABLE)
def test_usable(text: str) -> None:
    assert node_state(text).unusable == ""


@looped("text", UNUSABLE)
def test_unusable(text: str) -> None:
    assert UNUSABLE[text] in node_state(text).unusable


def test_base_and_flags() -> None:
    state = node_state("MIXED+DRAIN+NOT_RESPONDING")
    assert (state.base, state.flags) == ("MIXED", frozenset({"DRAIN", "NOT_RESPONDING"}))
    assert node_state("mixed-").flags == {"PLANNED"}
    assert node_state("mixed-").base == "MIXED"
    assert node_state("idle*~").flags == {"NOT_RESPONDING", "POWERED_DOWN"}


@pytest.mark.parametrize(("value", "flags"), [("idle", ["DRAIN"]), (["IDLE", "DRAIN"], []), ("IDLE+DRAIN", [])])
def test_json_shapes_of_all_versions(value: "str | list[str]", flags: list[str]) -> None:
    state = node_state(value, flags)
    assert (state.base, state.flags) == ("IDLE", frozenset({"DRAIN"}))


@looped("state", ["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
                                   "OUT_OF_MEMORY", "CANCELLED", "CANCELLED by 1000", "REVOKED", "LAUNCH_FAILED",
                                   "NEVER_HEARD_OF", ""])
def test_ended_jobs_are_not_waited_for(state: str) -> None:
    assert Job(1, state).over
    assert Job(1, state).ending


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"])
def test_jobs_that_go_on(state: str) -> None:
    assert not Job(1, state).over


def test_words_for_an_ending() -> None:
    assert Job(1, "OUT_OF_MEMORY", exit_code="0:125").ending == "ran out of memory (exit code 0:125)"
    assert "NODE_FAIL" in Job(1, "NODE_FAIL").ending
    assert Job(1).ending == "is not known to Slurm any more"
    assert Job(1, "PENDING", reason="PartitionDown").hopeless
    assert not Job(1, "PENDING", reason="Resources").hopeless

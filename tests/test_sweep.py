"""The nightly sweep: what it drains and resumes, what it leaves alone, and what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sweep_models import (
    BOOT,
    DAY_S,
    FREE,
    NIGHT,
    FakeNodes,
    Ledger,
    acts,
    health,
    night,
    no_answer,
    pair,
)
from sweep_week import NAMES, nine_nights

from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.model import Act
from hpcadmin.sweep.states import BASES, FLAGS, HARMLESS
from hpcadmin.sweep.words import reason_of

BAD = "bad: /home is not mounted"


def names(count: int) -> list[str]:
    return [f"n{i:02d}" for i in range(1, count + 1)]


def drained_one() -> tuple[FakeNodes, Ledger]:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    night(slurm, ledger, health("n1", mount=BAD))
    assert "DRAIN" in slurm.nodes["n1"].state.flags
    return slurm, ledger


def test_a_bad_node_is_drained_with_our_reason() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    report = night(slurm, ledger, [*health("n1", mount=BAD), *health("n2", mount="good")])
    assert acts(report) == {"n1": "drain"}
    assert report.exit_status == 1
    reason = slurm.nodes["n1"].reason
    assert reason == f"hpcadmin: mount: /home is not mounted [{report.run}]"
    assert [e.kind for e in ledger.entries] == ["begin", "intent", "outcome", "problem", "end"]
    assert slurm.asked == ["drain n1"]


def test_nothing_wrong() -> None:
    report = night(FakeNodes.of("n1"), Ledger(), health("n1", mount="good"))
    assert (acts(report), report.exit_status, report.changes) == ({}, 0, ())


def test_the_same_night_again_does_nothing_more() -> None:
    slurm, ledger = drained_one()
    report = night(slurm, ledger, health("n1", NIGHT + 60, mount=BAD), now=NIGHT + 120)
    assert acts(report) == {"n1": "keep"}
    assert slurm.asked == ["drain n1"]
    assert report.changes == ()


def test_resumed_when_the_check_has_passed_since() -> None:
    slurm, ledger = drained_one()
    later = NIGHT + DAY_S
    report = night(slurm, ledger, health("n1", later - 60, mount="good"), now=later)
    assert acts(report) == {"n1": "resume"}
    assert slurm.nodes["n1"].reason == ""
    assert [c.what for c in report.changes] == ["ends"]
    assert not fold(ledger.entries).ours


@pytest.mark.parametrize("looks", [
    [],                                                     # time alone
    health("n1", NIGHT + DAY_S, mount="unknown: timed out"),
    health("n1", NIGHT + DAY_S, other="good"),              # another check
    health("n1", NIGHT - 60, mount="good"),                 # before it was drained
    [*health("n1", NIGHT + DAY_S, mount="good"), *health("n1", NIGHT + DAY_S, gpu="bad: lost")],
    [*health("n1", NIGHT + DAY_S - 9, mount="good"), *health("n1", NIGHT + DAY_S, mount=BAD)],
])
def test_not_resumed_otherwise(looks: list) -> None:
    slurm, ledger = drained_one()
    report = night(slurm, ledger, looks, now=NIGHT + DAY_S + 60)
    assert acts(report) == {"n1": "keep"}
    assert slurm.asked == ["drain n1"]


@pytest.mark.parametrize("state", ["MIXED+DRAIN", "ALLOCATED+DRAIN", "IDLE+DRAIN+COMPLETING", "DOWN+DRAIN",
                                   "IDLE+DRAIN+MAINTENANCE+RESERVED", "IDLE+DRAIN+NOT_RESPONDING",
                                   "IDLE+DRAIN+REBOOT_ISSUED", "IDLE+DRAIN+POWERING_DOWN", "IDLE+DRAIN+STRANGE"])
def test_ours_is_not_resumed_in_such_a_state(state: str) -> None:
    slurm, ledger = drained_one()
    slurm.set("n1", state)
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    assert acts(report) == {"n1": "keep"}
    assert slurm.asked == ["drain n1"]


def test_two_passes_with_a_failure_between_are_not_two() -> None:
    slurm, ledger = drained_one()
    policy, told = replace(FREE, passes=2), []
    for day, word in enumerate(["good", BAD, "good", "good"], 1):
        now = NIGHT + day * DAY_S
        told += acts(night(slurm, ledger, health("n1", now - 60, mount=word), policy=policy, now=now)).values()
    assert told == ["keep", "keep", "keep", "resume"]


def test_after_a_reboot_it_must_pass_twice() -> None:
    slurm, ledger = drained_one()
    slurm.set("n1", boot_time=NIGHT + 3600)
    for day in (1, 2):
        at = NIGHT + day * DAY_S
        report = night(slurm, ledger, health("n1", at, boot="b2", mount="good"), now=at + 60)
        assert acts(report) == {"n1": "keep" if day == 1 else "resume"}, day


def test_a_pass_of_the_boot_before_does_not_count() -> None:
    slurm, ledger = drained_one()
    slurm.set("n1", boot_time=NIGHT + DAY_S + 30)
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S + 60)
    assert acts(report) == {"n1": "keep"}


@pytest.mark.parametrize("state", [*sorted(BASES), *(f"IDLE+{flag}" for flag in sorted(FLAGS)), "MIXED+DRAIN",
                                   "ALLOCATED+DRAIN", "SOMETHING", "", "IDLE+NEVER_HEARD_OF", "idle*", "drained",
                                   "draining", "maint",
                                   "resv", "plnd", "idle~", "idle#", "idle%", "idle@", "idle^", "idle!", "fail", "futr",
                                   "DOWN+DRAIN", "npc+UNKNOWN"])
def test_hands_off(state: str) -> None:
    slurm, ledger = FakeNodes.of("n1", n1=state), Ledger()
    report = night(slurm, ledger, health("n1", mount=BAD))
    assert acts(report) == {"n1": "hold"}
    assert slurm.asked == []


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "idle", "mix", "alloc", "comp",
                                   *(f"IDLE+{flag}" for flag in sorted(HARMLESS))])
def test_states_in_which_a_bad_node_is_drained(state: str) -> None:
    assert acts(night(FakeNodes.of("n1", n1=state), Ledger(), health("n1", mount=BAD))) == {"n1": "drain"}


def test_a_reason_of_somebody_else_is_kept() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    slurm.set("n1", reason="hpcadmin: looks like ours [s20270101-000000-abcd]")
    assert acts(night(slurm, ledger, health("n1", mount=BAD))) == {"n1": "hold"}
    assert slurm.asked == []


def test_a_reason_that_was_left_over() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", n2="IDLE+DRAIN"), Ledger()
    for node in ("n1", "n2"):
        slurm.set(node, reason="Anna: new board")
    looks = [*health("n1", mount=BAD), *health("n2", mount=BAD)]
    report = night(slurm, ledger, looks, policy=replace(FREE, left_reasons=True))
    assert acts(report) == {"n1": "drain", "n2": "hold"}
    assert slurm.nodes["n2"].reason == "Anna: new board"
    assert "Anna: new board" in [e.was for e in ledger.entries if e.kind == "intent"]


def test_an_admin_who_takes_over_a_drain_keeps_it() -> None:
    slurm, ledger = drained_one()
    slurm.set("n1", reason="waiting for a new board")
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    assert acts(report) == {}
    assert slurm.asked == ["drain n1"]
    assert "left" in [e.kind for e in ledger.entries]


def test_a_node_that_an_admin_resumed_is_drained_again_while_it_is_bad() -> None:
    slurm, ledger = drained_one()
    slurm.set("n1", "IDLE", reason="")
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount=BAD), now=NIGHT + DAY_S)
    assert acts(report) == {"n1": "drain"}


def test_too_often_for_a_machine() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    now = NIGHT
    for round_ in range(3):
        assert acts(night(slurm, ledger, health("n1", now, mount=BAD), now=now)) == {"n1": "drain"}
        now += DAY_S
        report = night(slurm, ledger, health("n1", now - 60, mount="good"), now=now)
        assert acts(report) == {"n1": "resume" if round_ < 2 else "keep"}
        slurm.settle()
        now += DAY_S
    assert "a person resumes it" in report.plan.decisions[0].why


def test_the_reason_that_slurm_24_11_leaves_behind_is_ours() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    slurm.keeps_reason = True
    night(slurm, ledger, health("n1", mount=BAD))
    night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    assert "DRAIN" not in slurm.nodes["n1"].state.flags
    assert slurm.nodes["n1"].reason
    slurm.settle()
    report = night(slurm, ledger, health("n1", NIGHT + 2 * DAY_S, mount=BAD), now=NIGHT + 2 * DAY_S)
    assert acts(report) == {"n1": "drain"}


def test_unknown_drains_nobody() -> None:
    slurm = FakeNodes.of("n1", "n2")
    report = night(slurm, Ledger(), health("n1", mount="unknown: timed out"), unmeasured=("n2",))
    assert acts(report) == {}
    assert report.exit_status == 3
    assert [c.problem.key for c in report.changes] == ["unknown/mount", "unmeasured"]


def test_a_check_that_hangs_is_told_once_for_all_nodes() -> None:
    """It drains nobody, and nobody would ever hear of it; of nodes that others are at nothing is said."""
    slurm, ledger = FakeNodes.of("n1", "n2", "n3", n3="IDLE+DRAIN"), Ledger()
    hung = "unknown: statvfs of /home did not answer in 5 s"
    looks = [look for n in ("n1", "n2", "n3") for look in health(n, mount=hung)]
    report = night(slurm, ledger, looks)
    assert {(c.what, c.problem.key, c.problem.text) for c in report.changes} == {
        ("begins", "unknown/mount", "mount has no answer on 2 nodes: n[1-2]: statvfs of /home did not answer in 5 s")}
    now = NIGHT + DAY_S
    looks = [look for n in ("n1", "n2") for look in health(n, now, mount=hung)]
    assert night(slurm, ledger, looks, now=now).changes == ()
    now += DAY_S
    looks = [*health("n1", now, mount="good"), *health("n2", now, mount=hung)]
    assert [(c.what, c.problem.text[:29]) for c in night(slurm, ledger, looks, now=now).changes] == [
        ("changes", "mount has no answer on 1 node")]
    now += DAY_S
    looks = [look for n in ("n1", "n2") for look in health(n, now, mount="good")]
    report = night(slurm, ledger, looks, now=now)
    assert [(c.what, c.problem.key) for c in report.changes] == [("ends", "unknown/mount")]


def test_what_others_are_at_is_no_problem_of_ours() -> None:
    slurm = FakeNodes.of("n1", "n2", "n3", n1="IDLE+DRAIN", n2="DOWN", n3="IDLE+PLANNED")
    report = night(slurm, Ledger(), [look for n in ("n1", "n3") for look in health(n, mount=BAD)], unmeasured=("n2",))
    assert acts(report) == {"n1": "hold", "n3": "hold"}
    assert list(report.problems) == ["node/n3"]
    assert report.exit_status == 1


# --- the budget -----------------------------------------------------------------------------------------------------

def test_mass_failure_touches_nothing() -> None:
    slurm, ledger = FakeNodes.of(*names(20)), Ledger()
    policy = replace(FREE, night_nodes=5)
    looks = [look for n in names(12) for look in health(n, mount=BAD)]
    report = night(slurm, ledger, looks, policy=policy)
    assert slurm.asked == []
    assert set(acts(report).values()) == {"hold"}
    assert "budget" in report.problems
    assert report.exit_status == 1


def test_mass_counts_nodes_that_may_not_be_touched() -> None:
    slurm = FakeNodes.of(*names(20), **dict.fromkeys(names(10), "IDLE+PLANNED"))
    looks = [look for n in names(12) for look in health(n, mount=BAD)]
    night(slurm, Ledger(), looks, policy=replace(FREE, night_nodes=5))
    assert slurm.asked == []


def test_the_budget_of_a_night_lasts_for_the_night() -> None:
    slurm, ledger = FakeNodes.of(*names(20)), Ledger()
    policy = replace(FREE, night_nodes=2)
    night(slurm, ledger, [*health("n01", mount=BAD), *health("n02", mount=BAD)], policy=policy)
    night(slurm, ledger, health("n03", NIGHT + 60, mount=BAD), policy=policy, now=NIGHT + 60)
    assert slurm.asked == ["drain n01", "drain n02"]
    night(slurm, ledger, health("n03", NIGHT + DAY_S, mount=BAD), policy=policy, now=NIGHT + DAY_S)
    assert slurm.asked[2:] == ["drain n03"]


def test_the_total_lasts_until_nodes_are_back_and_lets_them_go() -> None:
    slurm, ledger = FakeNodes.of(*names(20)), Ledger()
    policy = replace(FREE, total_nodes=1)
    night(slurm, ledger, health("n01", mount=BAD), policy=policy)
    now = NIGHT + DAY_S
    looks = [*health("n01", now, mount="good"), *health("n02", now, mount=BAD)]
    report = night(slurm, ledger, looks, policy=policy, now=now)
    assert acts(report) == {"n01": "resume", "n02": "hold"}
    report = night(slurm, ledger, health("n02", now + DAY_S, mount=BAD), policy=policy, now=now + DAY_S)
    assert acts(report) == {"n02": "drain"}


# --- the network ----------------------------------------------------------------------------------------------------

def test_one_strike_is_told_and_two_with_different_partners_drain() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3"), Ledger()
    report = night(slurm, ledger, [pair("n1", "n2", "bad")])
    assert acts(report) == {"n1": "tell", "n2": "tell"}
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, [pair("n1", "n2", "bad", now)], now=now)) == {"n1": "tell", "n2": "tell"}
    now += DAY_S
    report = night(slurm, ledger, [pair("n1", "n3", "bad", now)], now=now)
    assert acts(report) == {"n1": "drain"}


def test_a_strike_is_gone_when_the_pair_has_passed() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3"), Ledger()
    night(slurm, ledger, [pair("n1", "n2", "bad")])
    now = NIGHT + DAY_S
    report = night(slurm, ledger, [pair("n1", "n2", "good", now), pair("n1", "n3", "bad", now)], now=now)
    assert acts(report) == {"n1": "tell", "n3": "tell"}


def test_an_old_strike_drains_nobody() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3"), Ledger()
    night(slurm, ledger, [pair("n1", "n2", "bad")])
    now = NIGHT + 30 * DAY_S
    assert acts(night(slurm, ledger, [pair("n1", "n3", "bad", now)], now=now)) == {"n1": "tell", "n3": "tell"}


def test_who_met_two_bad_nodes_is_not_accused() -> None:
    bad = [("n1", "n3"), ("n1", "n4"), ("n1", "n5"), ("n2", "n3"), ("n2", "n6"), ("n2", "n7")]
    report = night(FakeNodes.of(*[f"n{i}" for i in range(1, 8)]), Ledger(), [pair(a, b, "bad") for a, b in bad])
    assert acts(report) == {"n1": "drain", "n2": "drain"}


def test_three_that_fail_with_each_other_are_told() -> None:
    looks = [pair("n1", "n2", "bad"), pair("n2", "n3", "bad"), pair("n1", "n3", "bad")]
    assert set(acts(night(FakeNodes.of("n1", "n2", "n3"), Ledger(), looks)).values()) == {"tell"}


def test_of_the_network_all_partners_must_have_passed() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3", "n4"), Ledger()
    night(slurm, ledger, [pair("n1", "n2", "bad"), pair("n1", "n3", "bad")])
    now = NIGHT + DAY_S
    report = night(slurm, ledger, [pair("n1", "n2", "good", now), pair("n1", "n4", "good", now)], now=now)
    assert acts(report) == {"n1": "keep"}
    now += DAY_S
    assert acts(night(slurm, ledger, [pair("n1", "n3", "good", now)], now=now)) == {"n1": "resume"}


# --- comments -------------------------------------------------------------------------------------------------------

def test_a_comment_comes_and_goes() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    policy = replace(FREE, node="comment")
    assert acts(night(slurm, ledger, health("n1", mount=BAD), policy=policy)) == {"n1": "comment"}
    assert slurm.nodes["n1"].comment.startswith("hpcadmin: mount: ")
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount=BAD), policy=policy, now=now)) == {"n1": "tell"}
    now += DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), policy=policy, now=now)) == {"n1": "uncomment"}
    assert slurm.nodes["n1"].comment == ""
    assert slurm.nodes["n1"].state.flags == frozenset()


def test_a_comment_of_somebody_else_stays() -> None:
    slurm = FakeNodes.of("n1")
    slurm.set("n1", comment="rack 7")
    assert acts(night(slurm, Ledger(), health("n1", mount=BAD), policy=replace(FREE, node="comment"))) == {"n1": "hold"}
    assert slurm.nodes["n1"].comment == "rack 7"


def test_policy_by_the_name_of_the_check() -> None:
    policy = replace(FREE, checks={"mount:scr*": "tell", "mount*": "comment"})
    looks = [*health("n1", **{"mount:scratch": BAD}), *health("n2", **{"mount:home": BAD}), *health("n3", gpu="bad")]
    assert acts(night(FakeNodes.of("n1", "n2", "n3"), Ledger(), looks, policy=policy)) == {
        "n1": "tell", "n2": "comment", "n3": "drain"}


# --- Slurm and others in between ------------------------------------------------------------------------------------

def test_slurmctld_that_does_not_answer() -> None:
    slurm, ledger = drained_one()
    slurm.at = no_answer("all")
    report = night(slurm, ledger, health("n2", NIGHT + DAY_S, mount=BAD), now=NIGHT + DAY_S)
    assert (report.exit_status, report.plan) == (4, None)
    assert [(c.what, c.problem.key) for c in report.changes] == [("begins", "slurm")]
    slurm.at = lambda what: None
    report = night(slurm, ledger, health("n1", NIGHT + 2 * DAY_S, mount=BAD), now=NIGHT + 2 * DAY_S)
    assert [(c.what, c.problem.key) for c in report.changes] == [("ends", "slurm")]
    assert fold(ledger.entries).missed(fold(ledger.entries).sweeps[report.run].night) == []


def test_an_answer_that_comes_late_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 1000, 30))
    monkeypatch.setattr("hpcadmin.sweep.night.time.monotonic", lambda: next(ticks))
    slurm = FakeNodes.of("n1")
    report = night(slurm, Ledger(), health("n1", mount=BAD))
    assert (report.exit_status, slurm.asked) == (4, [])
    assert "late" in report.error


def test_somebody_drains_it_just_before() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()

    def at(what: str) -> None:
        if what == "one n1":
            slurm.set("n1", "IDLE+DRAIN", reason="mine, Anna")
    slurm.at = at
    report = night(slurm, ledger, health("n1", mount=BAD))
    assert slurm.asked == []
    assert slurm.nodes["n1"].reason == "mine, Anna"
    assert report.done["n1"].result == "changed"


def test_somebody_changes_the_reason_just_before_a_resume() -> None:
    slurm, ledger = drained_one()

    def at(what: str) -> None:
        if what == "one n1":
            slurm.set("n1", reason="mine, Anna")
    slurm.at = at
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    assert report.done["n1"].result == "changed"
    assert slurm.asked == ["drain n1"]


@pytest.mark.parametrize("change", [{"state": "MIXED+DRAIN"}, {"state": "DOWN+DRAIN"}, {"boot_time": NIGHT + 900},
                                    {"state": "IDLE"}, {"state": "IDLE+DRAIN+RESERVED"}])
def test_a_node_that_changes_just_before_a_resume(change: dict) -> None:
    slurm, ledger = drained_one()

    def at(what: str) -> None:
        if what == "one n1":
            slurm.set("n1", **change)
    slurm.at = at
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    assert report.done["n1"].result == "changed"
    assert slurm.asked == ["drain n1"]


def test_no_answer_to_a_drain_stops_the_rest_and_is_found_the_next_night() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    asked: list[str] = []

    def at(what: str) -> None:
        asked.append(what)
        if "after drain n1" in asked:
            no_answer("")(what)
    slurm.at = at
    report = night(slurm, ledger, [*health("n1", mount=BAD), *health("n2", mount=BAD)])
    assert report.exit_status == 4
    assert (report.done["n1"].result, report.done["n2"].result) == ("pending", "not tried")
    assert slurm.asked == ["drain n1"]
    slurm.at = lambda what: None
    report = night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    assert acts(report) == {"n1": "resume"}


def test_a_drain_that_slurmctld_comes_to_later_is_ours_all_the_same() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    slurm.at = no_answer("drain n1")
    night(slurm, ledger, health("n1", mount=BAD))
    reason = next(e.reason for e in ledger.entries if e.kind == "intent")
    slurm.at = lambda what: None
    assert acts(night(slurm, ledger, health("n1", NIGHT + 60, mount="unknown"), now=NIGHT + 60)) == {}
    slurm.set("n1", "IDLE+DRAIN", reason=reason)
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount=BAD), now=now)) == {"n1": "keep"}


def test_slurmctld_crashes_and_forgets_a_resume() -> None:
    slurm, ledger = drained_one()
    saved = slurm.nodes["n1"]
    night(slurm, ledger, health("n1", NIGHT + DAY_S, mount="good"), now=NIGHT + DAY_S)
    slurm.nodes["n1"] = saved
    now = NIGHT + 2 * DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {"n1": "resume"}


def test_slurmctld_crashes_and_forgets_a_drain() -> None:
    slurm, ledger = drained_one()
    slurm.set("n1", "IDLE", reason="")
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount=BAD), now=now)) == {"n1": "drain"}


def test_without_the_right_nothing_more_is_tried() -> None:
    from hpcadmin.errors import SlurmError
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()

    def at(what: str) -> None:
        if what.startswith("drain"):
            raise SlurmError("this user may not change nodes: Access/permission denied", where="scontrol")
    slurm.at = at
    report = night(slurm, ledger, [*health("n1", mount=BAD), *health("n2", mount=BAD)])
    assert {n: d.result for n, d in report.done.items()} == {"n1": "refused", "n2": "not tried"}
    assert report.exit_status == 4
    assert not fold(ledger.entries).ours


def test_a_dry_run_decides_the_same_and_touches_nothing() -> None:
    slurm, ledger = drained_one()
    looks = [*health("n1", NIGHT + DAY_S, mount="good"), *health("n2", NIGHT + DAY_S, mount=BAD)]
    before, kept = dict(slurm.nodes), list(ledger.entries)
    dry = night(slurm, ledger, looks, now=NIGHT + DAY_S, dry_run=True)
    assert (slurm.nodes, ledger.entries) == (before, kept)
    real = night(slurm, ledger, looks, now=NIGHT + DAY_S)
    assert acts(dry) == acts(real) == {"n1": "resume", "n2": "drain"}
    assert [d.why for d in dry.plan.decisions] == [d.why for d in real.plan.decisions]


def test_missed_nights_are_told_once() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    night(slurm, ledger, health("n1", mount="good"))
    now = NIGHT + 4 * DAY_S
    report = night(slurm, ledger, health("n1", now, mount="good"), now=now)
    assert "3 nights" in report.problems["missed"].text
    now += DAY_S
    report = night(slurm, ledger, health("n1", now, mount="good"), now=now)
    assert [(c.what, c.problem.key) for c in report.changes] == [("ends", "missed")]


def test_a_problem_whose_check_is_not_known_goes_on() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    policy = replace(FREE, node="tell")
    night(slurm, ledger, health("n1", mount=BAD), policy=policy)
    now = NIGHT + DAY_S
    report = night(slurm, ledger, health("n1", now, mount="unknown"), now=now, policy=policy)
    assert [(c.what, c.problem.key) for c in report.changes] == [("begins", "unknown/mount")]
    now += DAY_S
    report = night(slurm, ledger, health("n1", now, mount="good"), now=now, policy=policy)
    assert [(c.what, c.problem.key) for c in report.changes] == [("ends", "node/n1"), ("ends", "unknown/mount")]


def test_a_clock_that_was_put_back_is_told() -> None:
    slurm, ledger = drained_one()
    report = night(slurm, ledger, health("n1", NIGHT - 7260, mount="good"), now=NIGHT - 7200)
    assert acts(report) == {"n1": "keep"}
    assert any("2.0 hours ahead of the clock" in note for note in report.notes)


def test_boot_times_wobble_by_a_second() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    night(slurm, ledger, health("n1", boot="", mount=BAD))
    slurm.set("n1", boot_time=BOOT + 1)
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, boot="", mount="good"), now=now)) == {"n1": "resume"}


@pytest.mark.parametrize("text", ['a "quoted" one', "line\nNodeName=n2 State=DOWN", "x" * 5000, "n[1-9999999]", "`id`",
                                  "$(id)", "[root@2026-01-01T00:00:00]", "Reason=x", "\x1b[31m", "", "é ü 漢",
                                  "a,b;c|d&e"])
def test_reasons_are_harmless(text: str) -> None:
    reason = reason_of(("health/mount:home", "health/gpu"), text, "s20270115-080000-abcd")
    assert len(reason) <= 180
    assert reason.isascii() and reason.isprintable()
    assert not set(reason) & set("\"'`$=@\\;|&<>{}*?~!")
    assert reason.startswith("hpcadmin: mount:home: ") and reason.endswith(" [s20270115-080000-abcd]")
    assert reason.count("[") == reason.count("]") == 1


def test_every_act_is_used_once_a_node() -> None:
    slurm = FakeNodes.of(*names(5))
    looks = [*health("n01", mount=BAD, gpu="bad: lost", load="bad"), *health("n02", mount="good")]
    report = night(slurm, Ledger(), looks)
    assert [d.node for d in report.plan.decisions] == names(5)
    assert report.plan.decisions[0].act is Act.DRAIN
    assert "(+2 more)" in slurm.nodes["n01"].reason


class FakePlace:
    """For the nine nights."""

    def __init__(self) -> None:
        self.door = FakeNodes.of(*NAMES)

    def admin_drains(self, node: str, reason: str) -> None:
        self.door.set(node, "IDLE+DRAIN", reason=reason)

    def admin_resumes(self, node: str) -> None:
        self.door.set(node, "IDLE", reason="")

    def slurmctld(self, *, up: bool) -> None:
        self.door.at = (lambda what: None) if up else no_answer("")

    def settle(self) -> None:
        self.door.settle()

    def drained(self) -> dict[str, str]:
        return {name: node.reason for name, node in self.door.nodes.items() if "DRAIN" in node.state.flags}


def test_nine_nights(tmp_path: Path) -> None:
    nine_nights(FakePlace(), tmp_path, NIGHT)

"""What a careful admin would not do: drain on what is no news, on somebody else's fault, or more than was allowed for;
resume on what was seen long ago."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_models import DAY_S, FREE, NIGHT, FakeNodes, Ledger, acts, health, night, pair

from hpcadmin.sweep.budget import limit
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.model import Entry, Look, Result, night_of
from hpcadmin.sweep.rotate import rotation
from hpcadmin.sweep.strikes import accuse, at_least

OLD = "hpcadmin: mount: away [s20261201-030000-ab12]"


def words(report: object, node: str) -> str:
    return next(d.why for d in report.plan.decisions if d.node == node)      # type: ignore[attr-defined]


# --- what is no news ------------------------------------------------------------------------------------------------

def test_what_was_seen_before_a_drain_that_a_person_took_back_drains_nobody_again() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    bad = health("n1", NIGHT - 60, mount="bad: away")
    night(slurm, ledger, bad)
    slurm.set("n1", "IDLE", reason="")                      # mended, and resumed by hand
    report = night(slurm, ledger, bad, now=NIGHT + 3600)
    assert acts(report) == {"n1": "tell"}
    assert "nobody has looked since" in words(report, "n1")
    later = NIGHT + 7200
    assert acts(night(slurm, ledger, health("n1", later, mount="bad: away"), now=later)) == {"n1": "drain"}


def test_strikes_before_a_drain_that_a_person_took_back_are_gone() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3", "n4"), Ledger()
    assert acts(night(slurm, ledger, [pair("n1", "n2", "bad"), pair("n1", "n3", "bad")]))["n1"] == "drain"
    slurm.set("n1", "IDLE", reason="")                      # another cable, and resumed by hand
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, [], now=now)) == {}
    assert acts(night(slurm, ledger, [pair("n1", "n4", "bad", now)], now=now)) == {"n1": "tell", "n4": "tell"}


def test_a_clock_that_was_ahead_neither_hides_what_is_bad_nor_clears_it() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3"), Ledger()
    future = NIGHT + 4000 * DAY_S
    night(slurm, ledger, [pair("n1", "n2", "bad", future - 1), pair("n1", "n3", "bad", future - 1)], now=future,
          policy=replace(FREE, network="tell"))
    night(slurm, ledger, [pair("n1", "n2", "good", future), pair("n1", "n3", "good", future)], now=future)
    now = NIGHT + DAY_S
    report = night(slurm, ledger, [pair("n1", "n2", "bad", now), pair("n1", "n3", "bad", now)], now=now)
    assert acts(report) == {"n1": "drain"}
    assert acts(night(slurm, ledger, [], now=now + DAY_S)) == {"n1": "keep"}


def test_good_and_bad_of_one_moment_is_bad() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    night(slurm, ledger, health("n1", mount="bad: away"))
    now, told = NIGHT + DAY_S, replace(FREE, node="tell")
    both = [*health("n1", now, mount="bad: away"), *health("n1", now, mount="good")]
    assert acts(night(slurm, ledger, both, now=now, policy=told)) == {"n1": "keep"}
    assert acts(night(slurm, ledger, both[::-1], now=now + 5, policy=told)) == {"n1": "keep"}


@pytest.mark.parametrize("tonight", ["unknown: it hangs", ""])
def test_what_passed_once_is_not_resumed_on_a_night_on_which_it_is_not_known(tonight: str) -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    night(slurm, ledger, health("n1", mount="bad: away"))
    slurm.set("n1", "MIXED+DRAIN")
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {"n1": "keep"}
    slurm.set("n1", "IDLE+DRAIN")
    now += DAY_S
    report = night(slurm, ledger, health("n1", now, mount=tonight) if tonight else [], now=now)
    assert acts(report) == {"n1": "keep"}
    assert "tonight is not known" in words(report, "n1")
    now += DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {"n1": "resume"}


# --- whose fault the network is -------------------------------------------------------------------------------------

def bad(*pairs: str) -> list[Look]:
    return [pair(a, b, "bad") for a, b in (text.split("-") for text in pairs)]


def test_three_that_fail_with_each_other_do_not_hide_a_fourth() -> None:
    told = accuse(bad("a-b", "b-c", "a-c", "d-e", "d-f"), 2)
    assert told.accused == {"d": ("e", "f")}
    assert set(told.unclear) == {"a", "b", "c"}


def test_two_bad_nodes_that_met_are_both_bad() -> None:
    told = accuse(bad("x-y", "x-a", "x-b", "y-c", "y-d"), 2)
    assert (told.accused, told.unclear, told.strikes) == ({"x": ("a", "b"), "y": ("c", "d")}, {}, {})


def test_the_cable_between_two_accuses_neither() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3", "n4"), Ledger()
    for number in range(10):
        now = NIGHT + number * DAY_S
        looks = [pair("n1", "n2", "bad", now), pair("n1", "n3", "good", now), pair("n2", "n4", "good", now)]
        assert acts(night(slurm, ledger, looks, now=now)) == {"n1": "tell", "n2": "tell"}


@pytest.mark.parametrize("partner", ["DOWN", "IDLE+DRAIN", "gone", "sick"])
def test_failing_with_a_node_that_is_bad_anyway_accuses_nobody(partner: str) -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3", "n4"), Ledger()
    looks: list[Look] = [pair("n1", "n2", "bad"), pair("n1", "n3", "bad")]
    if partner == "gone":
        night(slurm, ledger, looks[:1], policy=replace(FREE, network="tell"))
        del slurm.nodes["n2"]
    elif partner == "sick":
        looks += health("n2", gpu="bad: lost")
    else:
        slurm.set("n2", partner, reason="Anna")
    found = acts(night(slurm, ledger, looks, now=NIGHT + 5))
    assert found["n1"] == "tell"
    assert found.get("n2") == ("drain" if partner == "sick" else "tell" if partner in ("DOWN", "IDLE+DRAIN") else None)


def test_a_switch_with_32_nodes_drains_none_of_them_on_any_night() -> None:
    """Each node has one partner a night: two strikes come to be on the second, and never one node alone."""
    names = [f"n{i:02}" for i in range(64)]
    behind, turn = set(names[:32]), rotation(names)
    slurm, ledger = FakeNodes.of(*names), Ledger()
    policy = replace(FREE, night_nodes=5, night_percent=5, total_nodes=20, total_percent=10)
    for number in range(8):
        now = NIGHT + number * DAY_S
        looks = [pair(a, b, "bad" if (a in behind) != (b in behind) else "good", now)
                 for a, b in turn.pairs_of(night_of(now))]
        report = night(slurm, ledger, looks, now=now, policy=policy)
        assert set(acts(report).values()) <= {"tell"}
    assert slurm.asked == []
    assert "may be the cause" in " ".join(d.why for d in report.plan.decisions)  # type: ignore[union-attr]


edges = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20)


@given(edges, st.integers(2, 3), st.sets(st.integers(0, 7), max_size=2), st.sets(st.integers(0, 7), max_size=2))
def test_who_is_accused(met: list[tuple[int, int]], strikes: int, out: set[int], weak: set[int]) -> None:
    looks = [pair(f"n{a}", f"n{b}", "bad") for a, b in met if a != b]
    away, ill = {f"n{i}" for i in out}, {f"n{i}" for i in weak}
    told = accuse(looks, strikes, away, ill)
    failing = {look.pair for look in looks}
    for node, partners in told.accused.items():
        assert len(partners) >= strikes
        assert not set(partners) & (away | ill) and node not in away
        assert all(frozenset((node, partner)) in failing for partner in partners)
    assert not set(told.accused) & set(told.unclear) and not set(told.accused) & set(told.strikes)
    assert accuse(looks[::-1], strikes, away, ill) == told, "the order of the looks says nothing"
    assert at_least(looks) <= min((len(c) for n in range(9) for c in combinations([f"n{i}" for i in range(8)], n)
                                   if all(edge & set(c) for edge in failing)), default=8)


@given(st.integers(3, 12), st.integers(2, 3), st.data())
def test_one_bad_node_is_found_and_nobody_else(count: int, strikes: int, data: st.DataObject) -> None:
    names = [f"n{i}" for i in range(count)]
    partners = data.draw(st.lists(st.sampled_from(names[1:]), unique=True, max_size=count - 1))
    told = accuse([pair("n0", partner, "bad") for partner in partners], strikes)
    assert set(told.accused) == ({"n0"} if len(partners) >= strikes else set())
    assert not told.unclear


# --- how many -------------------------------------------------------------------------------------------------------

@given(st.integers(0, 100), st.integers(0, 10000), st.integers(0, 300_000))
def test_a_share_is_what_arithmetic_says(nodes: int, hundredths: int, everyone: int) -> None:
    most = limit(nodes, hundredths / 100, everyone)
    assert most == (min(nodes, max(1, everyone * hundredths // 10000)) if hundredths else 0)


def test_names_without_a_node_behind_them_make_no_share_larger() -> None:
    slurm = FakeNodes.of(*[f"n{i}" for i in range(8)], **{f"f{i}": "FUTURE" for i in range(100)},
                         **{f"c{i}": "IDLE+CLOUD+POWERED_DOWN" for i in range(100)})
    policy = replace(FREE, night_nodes=5, night_percent=5)
    looks = [look for n in ("n1", "n2") for look in health(n, mount="bad: away")]
    report = night(slurm, Ledger(), looks, policy=policy)
    assert set(acts(report).values()) == {"hold"}
    assert report.plan is not None and "2 nodes in service of 8" in report.plan.budget.mass


@pytest.mark.parametrize("reason", [OLD, f"{OLD} Anna: mine"])
def test_drains_of_a_sweep_that_the_ledger_does_not_know_count(reason: str) -> None:
    """Two admin hosts, or a ledger that was lost: the limit in all is for both."""
    slurm, ledger = FakeNodes.of("n1", "n2", "n3", "n4"), Ledger()
    for name in ("n1", "n2"):
        slurm.drain(name, reason)
    report = night(slurm, ledger, health("n3", mount="bad: away"), policy=replace(FREE, total_nodes=2))
    assert acts(report) == {"n3": "hold"}
    assert any("n[1-2]: drained with a reason like ours" in note for note in report.notes)
    assert acts(night(slurm, ledger, health("n1", NIGHT + 9, mount="good"), now=NIGHT + 9)) == {}


# --- which night ----------------------------------------------------------------------------------------------------

@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("day", [(2027, 3, 28), (2027, 10, 31), (2027, 6, 1)])
def test_a_night_changes_at_noon_also_when_the_clocks_are_changed(day: tuple[int, int, int]) -> None:
    noon = time.mktime((*day, 12, 0, 0, 0, 0, -1))
    nights = Counter(night_of(noon + minute * 60) for minute in range(-600, 600))
    assert sorted(nights.values()) == [600, 600]
    assert night_of(noon) == night_of(noon - 1) + 1


def test_a_node_that_is_no_more_is_not_ours_for_ever() -> None:
    """Taken out of slurm.conf: it uses up no budget. When it comes back as it was, it is ours again."""
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    night(slurm, ledger, health("n1", mount="bad: away"))
    away = slurm.nodes.pop("n1")
    night(slurm, ledger, [], now=NIGHT + DAY_S)
    assert fold(ledger.entries).ours == {}
    slurm.nodes["n1"] = away
    now = NIGHT + 2 * DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {"n1": "resume"}


def test_added_anew_it_is_a_node_like_any_other() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    night(slurm, ledger, health("n1", mount="bad: away"))
    del slurm.nodes["n1"]
    night(slurm, ledger, [], now=NIGHT + DAY_S)
    slurm.nodes["n1"] = FakeNodes.of("n1").nodes["n1"]
    assert acts(night(slurm, ledger, [], now=NIGHT + 2 * DAY_S)) == {}
    assert fold(ledger.entries).ours == {}


def test_who_writes_our_very_reason_after_a_resume_keeps_the_node() -> None:
    """An admin who repeats what Slurm's log says has drained it on purpose."""
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    night(slurm, ledger, health("n1", mount="bad: away"))
    reason = slurm.nodes["n1"].reason
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {"n1": "resume"}
    slurm.set("n1", "IDLE+DRAIN", reason=reason, reason_time=now + 3600)
    now += DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {}
    assert "DRAIN" in slurm.nodes["n1"].state.flags


def test_who_drains_our_node_again_with_the_same_words_keeps_it() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    night(slurm, ledger, health("n1", mount="bad: away"))
    slurm.set("n1", reason_by="anna")
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, mount="good"), now=now)) == {}
    assert "DRAIN" in slurm.nodes["n1"].state.flags
    assert any(entry.kind == "left" for entry in ledger.entries)


def test_looks_that_say_nothing_are_not_in_the_way() -> None:
    assert at_least([pair("a", "b", Result.GOOD.value)]) == 0
    assert not fold([Entry("look", 1.0, node="n1", checks=("test/x",), kinds=("network",), result="unknown",
                           partner="n2")]).pairs

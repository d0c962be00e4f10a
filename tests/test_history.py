"""Two runs compared: false alarms and misses by simulation, and what is told of each kind of change."""

from __future__ import annotations

import math
import random

import pytest
from history_models import Fleet, condition, node

from hpcadmin.check import Direction, Measurement, Subject
from hpcadmin.history import MIN_CHANGE, Change, compare
from hpcadmin.history_stats import (
    best_step,
    camp_near_zero,
    mann_kendall,
    p_two_sided,
    q_values,
    spread,
    tail_freedom,
    theil_sen,
)
from hpcadmin.history_values import Entity, Sample, values_of
from hpcadmin.rundata import Measured, PlannedTest

# --- the statistics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t", "freedom", "p"), [       # from tables of Student's t
    (2.776, 4, 0.05), (4.604, 4, 0.01), (2.228, 10, 0.05), (3.169, 10, 0.01), (4.587, 10, 0.001),
    (1.96, math.inf, 0.05), (2.042, 30, 0.05), (12.706, 1, 0.05), (5.959, 6, 0.001)])
def test_students_t(t: float, freedom: float, p: float) -> None:
    assert p_two_sided(t, freedom) == pytest.approx(p, rel=0.35 if freedom == 1 else 0.07)
    assert p_two_sided(-t, freedom) == p_two_sided(t, freedom)


def test_q_values_are_those_of_benjamini_and_hochberg() -> None:
    p = [0.01, 0.04, 0.03, 0.005, 0.55]
    assert q_values(p) == pytest.approx([0.025, 0.05, 0.05, 0.025, 0.55])
    assert q_values([]) == []


def test_spread_and_slope_ignore_the_odd() -> None:
    assert spread([1, 2, 3, 4, 1000]) == pytest.approx(1.4826)
    assert theil_sen([0, 1, 2, 3, 4], [0, 2, 4, 600, 8]) == pytest.approx(2.0)
    assert (theil_sen([1, 1], [1, 2]), spread([5.0])) == (0.0, 0.0)


def test_mann_kendall_is_exact_for_few() -> None:
    assert mann_kendall([0, 1, 2, 3, 4], [1, 2, 3, 4, 5]) == pytest.approx(2 / 120)
    assert mann_kendall([0, 1, 2, 3], [4, 3, 2, 1]) == pytest.approx(2 / 24)
    assert mann_kendall([0, 1, 2, 3], [1, 1, 1, 1]) == 1.0
    assert mann_kendall([0, 1], [1, 2]) == 1.0


def test_a_step_is_found_where_it_is() -> None:
    assert best_step([5.0] * 6 + [4.0] * 5)[0] == 6
    assert best_step([1.0, 2.0])[0] == 0


def test_heavy_tails_are_worth_few_degrees_of_freedom() -> None:
    rng = random.Random(3)  # noqa: S311
    assert tail_freedom([rng.gauss(0, 1) for _ in range(4000)], 12) > 9
    heavy = [rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3) for _ in range(4000)]
    assert tail_freedom(heavy, 12) < 5
    assert tail_freedom([1.0] * 10, 12) == 6


# --- false alarms and misses --------------------------------------------------------------------------------------

FLEETS = [(4, 10, 6), (8, 20, 0), (8, 20, 6), (32, 10, 0), (64, 12, 4)]     # nodes, sizes, earlier runs


def alarms(nodes: int, sizes: int, past: int, kind: str, rounds: int) -> int:
    """Comparisons of two sound runs in which anything is told."""
    fleet = Fleet(nodes, sizes, seed=7, kind=kind)
    return sum(bool(compare(fleet.run(), fleet.run(), [fleet.run() for _ in range(past)]).changes)
               for _ in range(rounds))


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["normal", "t5", "skew"])
@pytest.mark.parametrize(("nodes", "sizes", "past"), FLEETS)
def test_false_alarms_are_rare(nodes: int, sizes: int, past: int, kind: str) -> None:
    assert alarms(nodes, sizes, past, kind, 40) <= (3 if kind == "normal" else 6)       # of 40 comparisons


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["normal", "t5"])
@pytest.mark.parametrize(("nodes", "sizes", "past"), FLEETS)
def test_a_node_that_lost_a_tenth_at_half_of_its_sizes_is_found(nodes: int, sizes: int, past: int, kind: str) -> None:
    fleet = Fleet(nodes, sizes, seed=8, kind=kind)
    found = 0
    for _ in range(20):
        faults = {(1, size): math.log(0.9) for size in range(sizes // 2)}
        changes = compare(fleet.run(), fleet.run(faults), [fleet.run() for _ in range(past)]).changes
        found += any(c.entity == node(1) and c.worse for c in changes)
    assert found >= (18 if kind == "normal" else 15), found


def test_quick_false_alarms_and_misses() -> None:
    assert alarms(16, 6, 0, "normal", 6) == 0
    fleet = Fleet(16, 6, seed=9)
    changes = compare(fleet.run(), fleet.run({(3, s): -0.15 for s in range(6)})).changes
    assert [(c.entity, c.worse) for c in changes] == [(node(3), True)]
    assert changes[0].percent == pytest.approx(-14, abs=4)


# --- what is told -------------------------------------------------------------------------------------------------


def only(changes: tuple[Change, ...]) -> Change:
    assert len(changes) == 1, changes
    return changes[0]


def test_one_size_of_many() -> None:
    fleet = Fleet(32, 10, seed=2)
    found = only(compare(fleet.run(), fleet.run({(5, 7): -0.3})).changes)
    assert (found.entity, found.worst.size_bytes, found.beyond, found.conditions) == (node(5), 1 << 7, 1, 10)


def test_what_lost_and_what_won() -> None:
    fleet = Fleet(32, 4, seed=2, lower=True)
    fault = {(5, s): 0.3 for s in range(4)} | {(6, s): -0.3 for s in range(4)}
    changes = compare(fleet.run(), fleet.run(fault)).changes
    assert [(c.entity, c.worse, c.percent > 0) for c in changes] == [(node(5), True, True), (node(6), False, False)]


def test_what_all_share_is_told_once() -> None:
    fleet = Fleet(32, 6, seed=4)
    found = compare(fleet.run(), fleet.run({(2, s): -0.2 for s in range(6)}, all_by=-0.08)).changes
    assert [(c.entity, c.worse, c.nodes) for c in found] == [(None, True, 32), (node(2), True, 1)]
    assert found[0].percent == pytest.approx(-7.7, abs=1.5)
    assert compare(fleet.run(), fleet.run(all_by=-0.01)).changes == ()


def test_few_nodes_without_a_past_are_told_only_of_large_changes() -> None:
    fleet = Fleet(2, 4, seed=5)
    small = compare(fleet.run(), fleet.run({(0, s): -0.1 for s in range(4)}))
    assert (small.changes, small.few) == ((), ("osu_bw bandwidth",))
    large = compare(fleet.run(), fleet.run({(0, s): -0.4 for s in range(4)}))
    assert (only(large.changes).entity, only(large.changes).q) == (node(0), None)


def test_few_nodes_with_a_past_are_told_of_small_ones() -> None:
    fleet = Fleet(2, 6, seed=5, noise=0.005)
    past = [fleet.run() for _ in range(8)]
    found = only(compare(fleet.run(), fleet.run({(0, s): -0.08 for s in range(6)}), past).changes)
    assert (found.entity, found.worse) == (node(0), True)


def test_a_quarter_of_the_fleet_got_worse() -> None:
    fleet = Fleet(32, 6, seed=6)
    changes = compare(fleet.run(), fleet.run({(n, s): -0.15 for n in range(8) for s in range(6)})).changes
    assert {c.entity for c in changes} == {node(n) for n in range(8)}


@pytest.mark.parametrize(("nodes", "changed", "by"), [(32, 16, -0.15), (32, 18, -0.12), (64, 32, 0.2), (16, 8, -0.12),
                                                      (100, 60, -0.1), (9, 5, -0.3)])
def test_half_of_the_fleet_changed_at_once(nodes: int, changed: int, by: float) -> None:
    """New firmware in half of the racks: told of each of them, and not taken for what such values do anyway."""
    wanted = {node(n) for n in range(changed)}
    extra = 0
    for seed in range(3):
        fleet = Fleet(nodes, 6, seed=seed)
        found = compare(fleet.run(), fleet.run({(n, s): by for n in range(changed) for s in range(6)})).changes
        assert {c.entity for c in found if c.entity in wanted and c.worse is (by < 0)} == wanted
        assert [c for c in found if c.entity is None] == []
        extra += len(found) - changed
    assert extra <= 1 + 0.05 * 3 * changed


def test_two_camps() -> None:
    far = [0.0, 0.01, -0.01, 0.005, 0.2, 0.21, 0.19, 0.205]
    assert sorted(camp_near_zero(far, 0.02)) == [-0.01, 0.0, 0.005, 0.01]
    assert camp_near_zero(far, 0.5) == far                                     # too little to be a change
    assert camp_near_zero(far[1:], 0.02) == far[1:]                            # three are no camp
    even = [0.05 * n for n in range(8)]
    assert camp_near_zero(even, 0.02) == even
    assert camp_near_zero([], 0.02) == []
    rng = random.Random(5)  # noqa: S311
    for many in (8, 12, 24):
        drawn = [[rng.gauss(0, 1) for _ in range(many)] for _ in range(500)]
        assert sum(len(camp_near_zero(values, 0.02)) < many for values in drawn) <= 3


def test_equal_runs_and_exact_values() -> None:
    run = Fleet(8, 4, seed=1).run()
    assert compare(run, run).changes == ()
    exact = {condition(0): {node(n): Sample((100.0,)) for n in range(8)}}
    moved = {condition(0): {node(n): Sample((100.0 if n else 99.0,)) for n in range(8)}}
    assert compare(exact, moved).changes == ()              # a percent is below MIN_CHANGE, however exact
    assert MIN_CHANGE == 0.02


def test_what_only_one_run_has_is_named() -> None:
    fleet = Fleet(8, 2, seed=1)
    other = {condition(0, name="latency", lower=True): {node(0): Sample((1.0,))}}
    found = compare(fleet.run(), other)
    assert (found.values, found.only_old, found.only_new) == (0, ("osu_bw bandwidth",), ("osu_bw latency",))


# --- values of a run ----------------------------------------------------------------------------------------------


def measured(test: str, value: object, subject: Subject, **more: object) -> Measured:
    return Measured(test, "osu_bw", 1, Measurement("bandwidth", value, "MB/s", subject=subject,  # type: ignore[arg-type]
                                                   direction=Direction.ONE_WAY, **more))  # type: ignore[arg-type]


def test_pairs_speak_of_both_nodes_and_repetitions_of_their_best() -> None:
    ab, ac = Subject(("a", "b")), Subject(("a", "c"))
    tests = [PlannedTest("t1", "osu_bw", ab, pairs_at_once=2), PlannedTest("t2", "osu_bw", ac, pairs_at_once=2),
             PlannedTest("t1r", "osu_bw", ab, pairs_at_once=1, repeats="t1")]
    found = values_of([measured("t1", 10.0, ab), measured("t1r", 90.0, ab), measured("t2", 80.0, Subject())], tests)
    assert [{e.node: s.values for e, s in of.items()} for of in found.values()] == [
        {"a": (90.0, 80.0), "b": (90.0,), "c": (80.0,)}]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "text", 10 ** 400, None, True])
def test_what_is_no_value_is_left_out(value: object) -> None:
    assert values_of([measured("t1", value, Subject(("a",)))], []) == {}


def test_facts_and_other_checks_are_left_out() -> None:
    a = Subject(("a",))
    assert values_of([measured("t1", 8.0, a, expected=8.0)], []) == {}
    assert values_of([measured("t1", 8.0, a)], [], check="other") == {}
    assert values_of([Measured("t1", "x", 1, Measurement("gpus", 8, "", subject=a))], []) == {}


def test_a_value_that_fell_with_its_transport_says_so() -> None:
    def run(value: float, transport: str) -> list[Measured]:
        return [measured(f"t{n}", value if n == 3 else 100.0, Subject((f"n{n}",)), transport=transport if n == 3 else
                         "IB mlx5_0") for n in range(8)]
    found = only(compare(values_of(run(100.0, "IB mlx5_1"), []), values_of(run(12.0, "TCP eth0"), [])).changes)
    assert (found.entity, found.transport, found.worse) == (Entity("n3"), "IB -> TCP", True)


def test_the_other_way_round_losses_are_gains() -> None:
    fleet = Fleet(24, 5, seed=11)
    one, two = fleet.run(), fleet.run({(3, s): -0.2 for s in range(5)} | {(4, 2): 0.3})
    there, back = compare(one, two), compare(two, one)
    assert {(c.entity, c.worse) for c in there.changes} == {(node(3), True), (node(4), False)}
    assert {(c.entity, not c.worse) for c in back.changes} == {(c.entity, c.worse) for c in there.changes}
    assert {(c.old, c.new) for c in back.changes} == {(c.new, c.old) for c in there.changes}

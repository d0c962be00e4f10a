"""Slow drifts: false alarms and misses by simulation with fixed seeds, steps, fleets, gaps."""

from __future__ import annotations

import math
import random

import pytest
from history_models import NOISES, Fleet, condition, node

from hpcadmin.history_stats import mann_kendall
from hpcadmin.history_trend import MIN_POINTS, WEEK_S, Moment, Trends, fleet_points, points, trends

START = 1_780_000_000.0


def weekly(fleet: Fleet, weeks: int, drifts: dict[int, float] | None = None, *, sizes: range | None = None,
           all_by: float = 0.0, begin: int = 0) -> list[Moment]:
    """drifts: node -> change a week, as a share, from week `begin` on."""
    which = sizes if sizes is not None else range(fleet.sizes)
    return [Moment(f"run{w:02}", START + w * WEEK_S, fleet.run(
        {(n, s): d * max(0, w - begin) for n, d in (drifts or {}).items() for s in which}, all_by=all_by * w))
        for w in range(weeks)]


def told(found: Trends) -> list[tuple[object, bool]]:
    return [(d.entity, d.worse) for d in found.drifts]


def test_a_loss_of_two_percent_a_week_is_found_within_two_months() -> None:
    fleet = Fleet(16, 4, seed=1, noise=0.01)
    found = trends(weekly(fleet, 9, {3: -0.02}))
    assert told(found) == [(node(3), True)]
    assert found.drifts[0].percent_per_week == pytest.approx(-2.0, abs=0.5)
    assert found.drifts[0].percent == pytest.approx(-15, abs=4)
    assert (found.drifts[0].step, found.series, found.runs) == (None, 64, 9)


@pytest.mark.deep
@pytest.mark.parametrize("noise", [0.005, 0.01, 0.015])
def test_misses(noise: float) -> None:
    """2 % a week of one node of 32, at half of its sizes, over 10 weeks."""
    fleet = Fleet(32, 6, seed=2, noise=noise)
    found = sum(told(trends(weekly(fleet, 10, {5: -0.02}, sizes=range(3)))) == [(node(5), True)] for _ in range(12))
    assert found >= 11, found


@pytest.mark.deep
@pytest.mark.parametrize("kind", sorted(NOISES))
@pytest.mark.parametrize(("nodes", "weeks"), [(4, 12), (16, 8), (32, 20)])
def test_false_alarms(nodes: int, weeks: int, kind: str) -> None:
    fleet = Fleet(nodes, 4, seed=3, noise=0.02, kind=kind)
    alarms = sum(bool(trends(weekly(fleet, weeks)).drifts) for _ in range(40))
    assert alarms <= 4, alarms


@pytest.mark.deep
@pytest.mark.parametrize("carried", [0.0, 0.3, 0.5])
def test_false_alarms_of_values_that_hang_together(carried: float) -> None:
    """Mann-Kendall's own, at 5 %: noise with a memory from run to run, 25 runs."""
    rng = random.Random(4)  # noqa: S311
    alarms = 0
    for _ in range(1500):
        value, series = rng.gauss(0, 1), []
        for _ in range(25):
            value = carried * value + rng.gauss(0, 1)
            series.append(value)
        alarms += mann_kendall(range(25), series) <= 0.05
    assert alarms / 1500 <= {0.0: 0.06, 0.3: 0.10, 0.5: 0.15}[carried], alarms / 1500


@pytest.mark.parametrize("weeks", [6, 8, 10, 20])
def test_a_smooth_loss_is_not_taken_for_values_that_hang_together(weeks: int) -> None:
    assert mann_kendall(range(weeks), [math.log(100 * 0.98 ** w) for w in range(weeks)]) < 0.01
    assert mann_kendall(range(weeks), [math.log(100 - 2 * w) for w in range(weeks)]) < 0.01


def test_noise_alone_is_no_drift() -> None:
    assert trends(weekly(Fleet(12, 3, seed=5, noise=0.02), 10)).drifts == ()


def test_one_size_that_drifts() -> None:
    found = trends(weekly(Fleet(12, 6, seed=6), 12, {2: -0.02}, sizes=range(5, 6)))
    assert [(d.entity, d.condition and d.condition.size_bytes) for d in found.drifts] == [(node(2), 32)]


def test_what_all_share_is_a_drift_of_the_fleet_alone() -> None:
    found = trends(weekly(Fleet(12, 3, seed=7), 12, all_by=-0.01))
    assert told(found) == [(None, True)]
    assert found.drifts[0].percent_per_week == pytest.approx(-1.0, abs=0.3)


def test_a_step_is_told_as_one_with_the_runs_around_it() -> None:
    fleet = Fleet(12, 3, seed=8)
    moments = [Moment(f"run{w:02}", START + w * WEEK_S, fleet.run({(4, s): -0.1 * (w >= 7) for s in range(3)}))
               for w in range(14)]
    found = trends(moments)
    assert [(d.entity, d.step) for d in found.drifts] == [(node(4), ("run06", "run07"))]
    assert found.drifts[0].percent == pytest.approx(-9.5, abs=1.5)


def test_times_rise_where_they_get_worse() -> None:
    found = trends(weekly(Fleet(12, 3, seed=9, lower=True), 10, {1: 0.02, 2: -0.02}))
    assert told(found) == [(node(1), True), (node(2), False)]


def test_few_nodes_and_few_runs() -> None:
    assert told(trends(weekly(Fleet(2, 3, seed=10, noise=0.005), 10, {1: -0.02}))) == [(node(1), True)]
    short = trends(weekly(Fleet(8, 2, seed=10), MIN_POINTS - 1, {1: -0.2}))
    assert (short.drifts, short.series, short.short) == ((), 0, 16)
    assert trends([]) == Trends()


def test_gaps_and_odd_times() -> None:
    moments = weekly(Fleet(12, 3, seed=11), 16, {3: -0.02})
    gaps = [m for i, m in enumerate(moments) if i % 4 != 1]
    assert told(trends(gaps)) == [(node(3), True)]
    same = [m._replace(time=START) for m in moments]
    assert trends(same).drifts == ()


def test_points_are_as_they_were_read() -> None:
    moments = weekly(Fleet(6, 1, seed=12), 3)
    found = points(moments, condition(0), node(2))
    assert [p.run for p in found] == ["run00", "run01", "run02"]
    assert found[0].value == moments[0].values[condition(0)][node(2)].values[0]
    assert len(fleet_points(moments, condition(0))) == 3


@pytest.mark.parametrize(("change", "least", "most"), [(-0.1, -70, -30), (0.2, 100, 500)])
@pytest.mark.parametrize(("times", "told_weekly"), [
    ([w * 90.0 for w in range(9)], False), ([w * 90.0 for w in range(8)] + [9 * WEEK_S], True)])
def test_runs_of_an_afternoon_are_no_weeks(times: list[float], told_weekly: bool, change: float, least: float,
                                           most: float) -> None:
    """Runs a minute and a half apart, from one to the next a tenth less, or a fifth more: what that would be in a week
    is no number."""
    made = [Moment(m.run, START + t, m.values) for m, t in zip(
        weekly(Fleet(16, 4, seed=1, noise=0.01), 9, {3: change}), times, strict=True)]
    found = trends(made)
    assert [d.entity for d in found.drifts] == [node(3)]
    drift = found.drifts[0]
    assert (drift.percent_per_week is not None) is told_weekly
    assert least < drift.percent < most

"""What gets worse over the nights, from runs on disk: of sweeps alone, against the baseline, nothing on quiet ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test_runs_trend import made

from hpcadmin.store_marks import SWEEP_TAG, change_marks, with_tags
from hpcadmin.sweep.sources import Looks
from hpcadmin.sweep.trend import Trend

NIGHT = 1_800_000_000.0


def nights(runs: Path, loss: float, count: int = 8) -> list[Path]:
    found = [made(runs, week, loss) for week in range(count)]
    for path in found:
        change_marks(path, lambda marks: with_tags(marks, (SWEEP_TAG,), ()))
    return found


def looks(runs: Path) -> Looks:
    return Trend(runs, "network").looks([], NIGHT)


def test_a_node_that_loses_two_percent_a_night_is_told(tmp_path: Path) -> None:
    nights(tmp_path, 0.02)
    found = looks(tmp_path)
    assert [(p.key, p.node, p.signature) for p in found.problems] == [
        ("trend/node03/mpi_pingpong/bandwidth", "node03", "drift")]
    assert (found.looked, found.looks, found.notes) == (False, (), ())


def test_against_the_baseline(tmp_path: Path) -> None:
    """Of few nights there is no trend, but what is worse than the baseline is."""
    base = made(tmp_path, 0, 0.0)
    change_marks(base, lambda marks: replace(marks, baseline="2026-01-05T02:00:00+00:00"))
    last = made(tmp_path, 3, 0.1)
    assert looks(tmp_path).problems == ()           # no run of a sweep
    change_marks(last, lambda marks: with_tags(marks, (SWEEP_TAG,), ()))
    problem, = looks(tmp_path).problems
    assert (problem.key, problem.signature) == ("trend/node03/mpi_pingpong/bandwidth/baseline", base.name)
    assert f"against the baseline {base.name} (run {last.name})" in problem.text


def test_quiet_nights_and_damaged_ones(tmp_path: Path) -> None:
    paths = nights(tmp_path, 0.0)
    assert looks(tmp_path) == Looks(looked=False)
    (paths[2] / "measurements.jsonl").write_text('{"check": "mpi_pingpong", broken\n')
    found = looks(tmp_path)
    assert found.problems == ()
    assert len(found.notes) == 1

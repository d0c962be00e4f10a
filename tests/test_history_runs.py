"""report --compare: a run against an earlier one, as it is called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import inventory, names, node_results, pair_results, with_logs, write_run

from hpcadmin import cli
from hpcadmin.check import Measurement, Status, Step, Subject, Verdict
from hpcadmin.history_runs import compare_runs
from hpcadmin.rundata import PlannedTest, Run, TestResult, read_run

N8 = names(8)
OLD, NEW = "20260730-101500-network", "20260830-101500-network"


def made(runs: Path, name: str, slow: Sequence[str] = (), *, level: float = 870.0, factor: float = 0.2,
         **more: object) -> Run:
    results = [*node_results(N8), *pair_results(
        lambda a, b: level * (factor if {a, b} & {*slow} else 1.0) * (1 + 0.001 * (sum(map(ord, a + b)) % 7)), N8)]
    started = f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:15:00+02:00"
    made = write_run(runs / name, results, N8, **{"started": started, **more})  # type: ignore[arg-type]
    return read_run(with_logs(made))


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(list(args))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def test_a_node_that_became_slow(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, OLD)
    made(runs, NEW, ["node03"])
    status, out, _ = call(capsys, "report", "--compare", OLD)
    assert status == 1
    assert "WORSE: " in out.splitlines()[-1]
    assert [line for line in out.splitlines() if line.startswith("node03") and "mpi_pingpong bandwidth" in line]
    assert "New findings" in out
    assert "node03: mpi_pingpong: bandwidth best of 7 pairs" in out
    shown = json.loads(call(capsys, "report", "--compare", OLD, "--json")[1])
    assert (shown["kind"], shown["exit_status"], shown["old"], shown["new"]) == ("hpcadmin-comparison", 1, OLD, NEW)
    assert {c["entity"]["node"] for c in shown["values"]["changes"]} == {"node03"}
    status, out, _ = call(capsys, "report", "--run", OLD, "--compare", NEW)
    assert (status, "Findings that are gone" in out, "Fixed" in out) == (0, True, True)


def test_nothing_changed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, OLD)
    made(runs, NEW)
    status, out, _ = call(capsys, "report", "--compare", OLD)
    assert (status, out.splitlines()[-1].startswith("NOT WORSE: ")) == (0, True)


def test_the_baseline(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, OLD)
    made(runs, "20260801-101500-smoke", suite="smoke")
    made(runs, NEW, ["node03"])
    assert "there is no baseline of suite network on lab" in call(capsys, "report", "--compare", "baseline")[2]
    call(capsys, "runs", "baseline", "20260801")
    assert call(capsys, "report", "--compare", "baseline")[0] == 2
    call(capsys, "runs", "baseline", OLD)
    status, out, _ = call(capsys, "report", "--compare", "baseline")
    assert (status, f"Old: {OLD}" in out) == (1, True)
    assert "with itself" in call(capsys, "report", "--run", OLD, "--compare", "baseline")[2]


def test_earlier_runs_tell_the_noise(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(1, 5):
        made(runs, f"2026060{day}-101500-network", level=870 + day)
    made(runs, "20260605-101500-smoke", suite="smoke")
    made(runs, OLD)
    made(runs, NEW)
    made(runs, "20260930-101500-network")
    out = call(capsys, "report", "--run", NEW, "--compare", OLD)[1]
    assert "Noise is known from 4 earlier runs too." in out


@pytest.mark.parametrize("args", [("--compare", OLD, "-o", "x"), ("--compare", OLD, "--format", "csv"),
                                  ("--compare", OLD, "--handover"), ("--compare", "nowhere")])
def test_what_does_not_fit_is_one_line(runs: Path, args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, OLD)
    made(runs, NEW)
    status, _, err = call(capsys, "report", *args)
    assert (status, err.count("\n")) == (2, 1)


def test_changed_serials_and_versions(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = inventory(N8)
    after = replace(before, nodes=tuple(replace(n, serial="S2" if n.name == "node02" else "S1", bios="2.0")
                                        for n in before.nodes))
    before = replace(before, nodes=tuple(replace(n, serial="S1", bios="1.0") for n in before.nodes))
    made(runs, OLD, inv=before, slurm_version="24.05.1")
    made(runs, NEW, ["node02", "node05"], inv=after, slurm_version="25.11.0")
    out = call(capsys, "report", "--compare", OLD, "--all")[1]
    rows = {line.split()[0]: line for line in out.splitlines() if "mpi_pingpong bandwidth" in line}
    assert ("its hardware changed" in rows["node02"]) is True
    assert "Hardware and firmware" in out
    assert "Slurm: 24.05.1 -> 25.11.0" in out


def run_of(folder: Path, statuses: dict[str, Status], **more: object) -> Run:
    tests = [PlannedTest(f"t{n}", "node_ready", Subject((node,)), (Step(("true",)),))
             for n, node in enumerate(statuses)]
    verdicts = [Verdict("node_ready", t.subject, statuses[t.subject.nodes[0]], "because", test=t.id) for t in tests]
    return read_run(write_run(folder, [TestResult(t, (Measurement("x", 1.0, "MB/s"),)) for t in tests], list(statuses),
                              verdicts=verdicts, **more))  # type: ignore[arg-type]


def test_verdicts_that_turned(tmp_path: Path) -> None:
    s = Status
    old = run_of(tmp_path / "a", {"n1": s.PASS, "n2": s.FAIL, "n3": s.PASS, "n4": s.FAIL, "n5": s.PASS, "n6": s.ERROR,
                                  "n7": s.PASS})
    new = run_of(tmp_path / "b", {"n1": s.FAIL, "n2": s.PASS, "n3": s.NOT_RUN, "n4": s.ERROR, "n5": s.WARN,
                                  "n6": s.NOT_RUN, "n8": s.FAIL})
    found = compare_runs(old, new)
    assert [t.nodes for t in found.worse] == [("n1",)]
    assert [t.nodes for t in found.fixed] == [("n2",)]
    assert sorted(n for t in found.untold for n in t.nodes) == ["n3", "n6"]
    assert (found.still, found.status) == (1, 1)
    assert found.around == ("only in the old run: n7", "only in the new run: n8")


def test_a_run_that_was_cut_off_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    good = {f"n{n}": Status.PASS for n in range(4)}
    old, new = run_of(tmp_path / "a", good), tmp_path / "b"
    run_of(new, good)
    for name in ("measurements.jsonl", "inventory.json", "verdicts.jsonl"):
        (new / name).unlink()
    found = compare_runs(old, read_run(new))
    assert (found.status, found.hardware_known, found.values.values) == (3, False, 0)
    assert any("measurements.jsonl is missing" in p for p in found.problems)


def test_hostile_text_stays_text(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, OLD)
    made(runs, NEW, ["node03"], slurm_version="\x1b[31m\u202e25")
    out = call(capsys, "report", "--compare", OLD)[1]
    assert ("\x1b" in out, "\u202e" in out) == (False, False)


def test_a_clocks_microseconds_and_the_time_since_a_boot_are_no_speed(tmp_path: Path) -> None:
    def run(name: str, factor: float) -> Run:
        results = [TestResult(PlannedTest(f"t{i}", "node_ready", Subject((n,)), (Step(("true",)),)), (
            Measurement("clock_offset", 1e-6 * factor, "s"), Measurement("uptime", 1000.0 * factor, "s"),
            Measurement("copy", 3.0 * factor, "s"))) for i, n in enumerate(N8)]
        return read_run(write_run(tmp_path / name, results, N8))
    found = compare_runs(run(OLD, 1.0), run(NEW, 6.0))
    assert {change.name for change in found.values.changes} == {"copy"}

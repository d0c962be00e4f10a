"""runs trend as it is called, and what it keeps of the runs that it has read."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from made_runs import names, node_results, pair_results, write_run

from hpcadmin import cli, history_store
from hpcadmin.errors import StoreError
from hpcadmin.history_runs import run_values
from hpcadmin.history_store import moments, pack, read_values
from hpcadmin.rundata import read_run
from hpcadmin.store import with_index

N8 = names(8)
CHECK = "mpi_pingpong"


def made(runs: Path, week: int, loss: float, **head: object) -> Path:
    when = datetime(2026, 1, 5, 2, tzinfo=timezone.utc) + timedelta(weeks=week)

    def value(a: str, b: str) -> float:
        wobble = 1 + 0.004 * (((week * 31 + sum(map(ord, a + b)) * 17) % 13) / 6 - 1)
        return 870.0 * wobble * ((1 - loss) ** week if "node03" in (a, b) else 1.0)
    results = [*node_results(N8), *pair_results(value, N8)]
    return write_run(runs / f"{when:%Y%m%d-%H%M%S}-network", results, N8,
                     **{"started": when.isoformat(), **head})  # type: ignore[arg-type]


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(["runs", "trend", *args])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def test_a_node_that_loses_two_percent_a_week(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for week in range(8):
        made(runs, week, 0.02)
    made(runs, 8, 0.5, state="interrupted")
    made(runs, 9, 0.5, suite="other")
    status, out, _ = call(capsys, CHECK, "--suite", "network")
    assert status == 1
    row = next(line for line in out.splitlines() if line.startswith("node03"))
    assert "drift from 20260105-020000-network to 20260223-020000-network" in row
    assert "8 runs, 8 series of values: 1 for the worse, none for the better" in out
    status, out, _ = call(capsys, CHECK, "--node", "node03,node05", "--suite", "network")
    assert (status, "median" in out, out.count("-network")) == (1, True, 8 + 2)
    shown = json.loads(call(capsys, CHECK, "--node", "node03", "--json", "--suite", "network")[1])
    assert (shown["exit_status"], len(shown["values"][0]["points"])) == (1, 8)
    assert shown["drifts"][0]["percent_per_week"] == pytest.approx(-2, abs=0.4)
    assert call(capsys, CHECK, "--node", "node05", "--suite", "network")[0] == 0


def test_nothing_drifts_and_too_few_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for week in range(5):
        made(runs, week, 0.0)
    status, out, _ = call(capsys, CHECK)
    assert (status, "5 runs: fewer than 6 values" in out) == (3, True)
    for week in range(5, 9):
        made(runs, week, 0.0)
    assert call(capsys, CHECK)[0] == 0
    assert call(capsys, CHECK, "--since", "2026-02-20")[0] == 3


@pytest.mark.parametrize(("args", "says"), [
    (("nowhere",), "no complete run has values of 'nowhere'"), ((CHECK, "--node", "node99"), "no run has values"),
    ((CHECK, "--since", "x"), "--since"), ((CHECK, "--node", "node[0"), "")])
def test_what_does_not_fit_is_one_line(runs: Path, args: tuple[str, ...], says: str,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, 1, 0.0)
    status, out, err = call(capsys, *args)
    assert (status, out, err.count("\n"), says in err) == (2, "", 1, True)


def test_what_was_read_once_is_kept_until_it_changes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [made(runs, week, 0.02) for week in range(3)]
    read: list[str] = []
    real = read_values

    def counted(folder: Path, check: str) -> object:
        read.append(folder.name)
        return real(folder, check)
    monkeypatch.setattr(history_store, "read_values", counted)

    def values() -> object:
        return with_index(runs, lambda index: moments(index, index.find(), CHECK, []))
    first = values()
    assert (len(read), values(), len(read)) == (3, first, 3)
    path = folders[0] / "measurements.jsonl"
    path.write_text(path.read_text() + "\n".join(path.read_text().splitlines()[-1:]) + "\n")
    values()
    assert read[3:] == [folders[0].name]


def test_values_are_those_of_the_whole_run(runs: Path) -> None:
    folder = made(runs, 1, 0.02)
    run = read_run(folder)
    assert read_values(folder, CHECK) == run_values(run, CHECK)
    assert history_store._kept(pack(run_values(run))) == run_values(run)
    assert history_store._kept(b"damaged") is None


def test_a_damaged_run_is_left_out_and_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for week in range(8):
        made(runs, week, 0.02)
    broken = made(runs, 8, 0.02) / "measurements.jsonl"
    broken.write_text(broken.read_text().replace('"value":', '"value":x'))
    cut = made(runs, 9, 0.02) / "measurements.jsonl"
    cut.write_bytes(cut.read_bytes()[:-20])
    status, out, err = call(capsys, CHECK)
    assert (status, "8 runs" in out, err.count("measurements.jsonl")) == (1, True, 2)
    broken.unlink()
    with pytest.raises(StoreError):
        read_values(broken.parent, CHECK)


def test_hostile_names_of_values_stay_text(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for week in (0, 1):
        path = made(runs, week, 0.0) / "measurements.jsonl"
        path.write_text(path.read_text().replace('"bandwidth"', json.dumps("\x1b]0;t\x07\x9b31m\u202ebad\ud800")))
    _, out, _ = call(capsys, CHECK, "--node", "node03")
    assert r"\x1b]0;t\x07\x9b31m\u202ebad\ud800" in out
    assert not {c for c in out if not c.isprintable() and c != "\n"}

"""Tables fit the terminal, and are one line a row where they go elsewhere."""

from __future__ import annotations

import pytest

from hpcadmin.cli._table import fits, print_table

ROWS = [["ib_write_bw", "at least 390 -3% Gb/s (host memory), at least 360 Gb/s (GPU memory)", "words " * 40],
        ["x", "", "at the end"]]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(ROWS, ["check", "limit", "why"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width and lines[2].startswith("ib_write_bw  at least")
    assert sum(line.count("words") for line in lines) == 40


def test_elsewhere_a_row_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(ROWS, ["check", "limit", "why"])
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_many_short_columns_fit_80(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Heads are wrapped as well, a number stays with its unit, no short word is broken."""
    monkeypatch.setenv("COLUMNS", "80")
    headers = ["node", "at least", "at most", "line", "down", "allowed", "unknown", "incidents", "longest"]
    row = ["node01", "0.000 %", "100.000 %", "NOT SHOWN", "0 s", "43 min 52 s", "60 d 22 h", "0", "0 s"]
    assert fits([row], headers)
    print_table([row], headers)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert all(part in out for part in ("100.000 %", "43 min", "52 s", "60 d", "22 h", "SHOWN", "incidents"))
    monkeypatch.setenv("COLUMNS", "60")
    assert not fits([row], headers)


def test_a_list_of_runs_is_narrow_where_it_must() -> None:
    from hpcadmin.cli._runs_list import _narrow
    heads = ["run", "suite", "nodes", "state", "result", "started", "took", "repeats", "tags"]
    rows = [["1-a", "a", "n1", "complete", "passed", "then", "1 s", "", "baseline"],
            ["2-a", "a", "n1", "running", "-", "then", "", "1-a", "kept"],
            ["3-a", "a", "n1", "interrupted", "interrupted", "then", "", "", ""]]
    assert _narrow(rows, heads) == ([["1-a", "n1", "passed", "then", "1 s", "baseline"],
                                     ["2-a", "n1", "running", "then", "", "repeats 1-a, kept"],
                                     ["3-a", "n1", "interrupted", "then", "", ""]],
                                    ["run", "nodes", "result", "started", "took", "notes"])
    assert _narrow([["moved", "a", "n1", "complete", "failed", "then", "1 s"]], heads[:7]) == (
        [["moved", "a", "n1", "failed", "then", "1 s"]], ["run", "suite", "nodes", "result", "started", "took"])

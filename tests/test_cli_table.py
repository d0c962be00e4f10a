"""Tables fit the terminal, and are one line a row where they go elsewhere."""

from __future__ import annotations

import pytest

from hpcadmin.cli._table import print_table

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

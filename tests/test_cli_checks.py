"""hpcadmin checks and hpcadmin limits on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcadmin.cli import run
from hpcadmin.inventory import save
from hpcadmin.model import Inventory, Nic, Node

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(autouse=True)
def no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site.toml"
    site.write_text("")
    monkeypatch.setenv("HPCADMIN_SITE", str(site))


def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["checks", "list"]) == 0
    assert "mpi_pingpong" in capsys.readouterr().out
    assert run(["checks", "list", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert {"name", "title", "scope", "needs", "params"} <= set(records[0])
    assert run(["checks", "show", "nccl_allreduce"]) == 0
    assert "max_bytes" in capsys.readouterr().out


def test_parse_a_sound_output(capsys: pytest.CaptureFixture[str]) -> None:
    path = SAMPLES / "osu_bw" / "ok_v5.out"
    assert run(["checks", "parse", "osu_bw", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == []
    assert [m["value"] for m in told["measurements"] if m["key"]] == [12075.3]
    assert run(["checks", "parse", "osu_bw", str(path)]) == 0
    assert "4 MiB" in capsys.readouterr().out


@pytest.mark.parametrize(("check", "case", "what"), [
    ("osu_bw", "fail_two_tables", "2 titles"),
    ("nccl_allreduce", "wrong_values", "wrong_values is 2097160, expected 0"),
    ("nccl_allreduce", "fail_size_missing", "13 sizes"),
])
def test_parse_an_unsound_output(capsys: pytest.CaptureFixture[str], check: str, case: str, what: str) -> None:
    assert run(["checks", "parse", check, str(SAMPLES / check / f"{case}.out"), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert what in " ".join(told["problems"])


def test_judge(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(SAMPLES / "osu_bw" / "ok_v5.out")
    assert run(["checks", "judge", "osu_bw", path]) == 3
    assert "UNJUDGED" in capsys.readouterr().out
    assert run(["checks", "judge", "osu_bw", path, "--hardware", "100 Gb/sec (4X EDR)"]) == 0
    assert run(["checks", "judge", "osu_bw", path, "--hardware", "200 Gb/sec (4X HDR)"]) == 1
    capsys.readouterr()
    assert run(["checks", "judge", "osu_bw", path, "--hardware", "200 Gb/sec (4X HDR)", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["status"] == "FAIL"
    assert run(["checks", "judge", "osu_bw", str(SAMPLES / "osu_bw" / "fail_killed.out")]) == 3


def test_judge_by_what_the_inventory_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def made(name: str) -> Node:
        return Node(name, f"{name}.cluster", nics=(Nic("mlx5_0", "mlx5_0", 1, "", "InfiniBand", rate_gbps=100.0),))
    file = tmp_path / "inventory.json"
    save(file, Inventory((made("a"), made("b"))))
    path = str(SAMPLES / "osu_bw" / "ok_v5.out")
    here = ["checks", "judge", "osu_bw", path, "--inventory", str(file)]
    assert run([*here, "-w", "a,b"]) == 0
    out = capsys.readouterr().out
    assert "(derived)" in out and "limit from: derived: port mlx5_0 of 100 Gb/s InfiniBand" in out
    assert run([*here, "-w", "a,b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["basis"] == "derived"
    assert run([*here, "-w", "a,c"]) == 2
    assert "not in the inventory: c" in capsys.readouterr().err
    assert run(here) == 2
    capsys.readouterr()
    assert run([*here, "-w", "a,b", "--simulated", "8xH100"]) == 0
    assert "limit from: lab" in capsys.readouterr().out


def test_judge_with_several_kinds_of_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(SAMPLES / "osu_bw" / "ok_v5.out")
    assert run(["checks", "judge", "osu_bw", path, "--hardware", "NVIDIA H100 80GB HBM3",
                "--hardware", "100 Gb/sec (4X EDR)"]) == 0
    assert "stackhpc/hpc-tests" in capsys.readouterr().out


@pytest.mark.parametrize(("args", "status", "what"), [
    (["checks", "show", "nothing"], 2, "unknown check 'nothing'"),
    (["checks", "parse", "nothing", "x"], 2, "unknown check 'nothing'"),
    (["checks", "parse", "osu_bw", "/not/there"], 2, "/not/there: cannot be read"),
    (["limits", "show", "h100", "nothing"], 2, "unknown check 'nothing'"),
    (["limits", "show", "abacus"], 2, "no hardware is known as 'abacus'"),
    (["limits", "show", "nccl_allreduce"], 2, "nccl_allreduce of which hardware?"),
    (["limits", "show", "abacus", "nccl_allreduce"], 2, "no limit for nccl_allreduce on 'abacus'"),
])
def test_mistakes(capsys: pytest.CaptureFixture[str], args: list[str], status: int, what: str) -> None:
    assert run(args) == status
    error = capsys.readouterr().err
    assert what in error and error.count("\n") == 1


def test_hostile_text_is_shown_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.out"
    path.write_bytes(b"# OSU \x1b]0;owned\x07\xff MPI\n# OSU \x1b[2J\xe2\x80\xae\n")
    assert run(["checks", "parse", "osu_bw", str(path)]) == 3
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out


def test_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["limits", "list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > 20
    assert run(["limits", "show", "h100", "nccl_allreduce"]) == 0
    out = capsys.readouterr().out
    assert "at least 460" in out and "azurehpc" in out


@pytest.mark.parametrize(("hardware", "check"), [("h100", "nccl_allreduce"), ("roce 400", "ib_write_bw")])
def test_of_which_checks_anything_is_known(hardware: str, check: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["limits", "show", hardware]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "limits", "published", "figures"]
    assert any(line.split()[0] == check and int(line.split()[1]) > 0 for line in lines[2:])


def test_a_site_with_nothing_but_limits_needs_no_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (SAMPLES.parent.parent / "docs" / "judging.md").read_text(encoding="utf-8")
    (tmp_path / "site.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    assert run(["limits", "lint", str(tmp_path / "site.toml")]) == 0, capsys.readouterr().out

"""runs list, show and cancel of whatever lies among the runs: sound, left, cut off, foreign, hostile."""

import json
import os
from pathlib import Path

import pytest

from hpcadmin.cli import run
from hpcadmin.errors import UsageError
from hpcadmin.records import dumps
from hpcadmin.run_folder import moved, read_record
from hpcadmin.run_session import Request
from hpcadmin.rundata import Manifest
from hpcadmin.store_marks import Marks

DAY = "20261130-10000"


def made(runs: Path, name: str, text: str | None = None, **changes: object) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    manifest = {"run_id": name, "suite": "smoke", "nodes": ["n1", "n2"], "state": "complete", "exit_status": 0,
                "started": "2026-11-30T10:00:00+00:00", "ended": "2026-11-30T10:05:00+00:00", **changes}
    if text != "":
        (folder / "manifest.json").write_text(json.dumps(manifest) if text is None else text)
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "no Slurm here"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    made(folder, DAY + "0-complete")
    made(folder, DAY + "1-left", state="running", ended="", exit_status=None)
    made(folder, DAY + "2-cancelled", state="cancelled", exit_status=130)
    made(folder, DAY + "3-empty", " ")
    made(folder, DAY + "4-cut", '{"run_id": "x')
    made(folder, DAY + "5-begun", "")
    os.mkfifo(made(folder, DAY + "6-pipe", "") / "manifest.json")
    (made(folder, DAY + "7-link", "") / "manifest.json").symlink_to(folder / f"{DAY}0-complete/manifest.json")
    (made(folder, DAY + "8-plan") / "plan.json").write_text('{"suite": "smoke", "nodes": ["n1"')
    made(folder, DAY + "9-odd", suite="a\x1b[31mb\nc")
    made(folder, "bin", "")
    (folder / "20261130-100009-file").write_text("x")
    return folder


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(list(words))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def test_all_that_lies_there_is_listed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = told(capsys, "runs", "list")
    assert (status, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()[2:]}
    assert len(lines) == 10 and "bin" not in out and "-file" not in out
    assert "interrupted, to be resumed" in lines[DAY + "1-left"]
    assert "cancelled" in lines[DAY + "2-cancelled"]
    assert "unreadable: manifest.json: not JSON" in lines[DAY + "3-empty"]
    assert "unreadable: manifest.json: cannot be read: No such file" in lines[DAY + "5-begun"]
    assert "unreadable: manifest.json: is not a regular file" in lines[DAY + "6-pipe"]
    assert "unreadable: manifest.json: cannot be read" in lines[DAY + "7-link"]
    assert "\x1b" not in out
    status, out, _ = told(capsys, "runs", "list", "--json")
    states = {entry["run"]: entry["state"] for entry in json.loads(out)}
    assert states[DAY + "0-complete"] == "complete"
    assert states[DAY + "1-left"] == "interrupted, to be resumed"
    assert states[DAY + "4-cut"] == "unreadable"


@pytest.mark.parametrize(("name", "status", "words"), [
    ("1-left", 0, "hpcadmin validate --resume"), ("2-cancelled", 0, "the run was cancelled"),
    ("3-empty", 2, "manifest.json: not JSON"), ("5-begun", 2, "no run"), ("7-link", 2, "cannot be read"),
    ("8-plan", 0, "plan.json: not JSON"), ("9-odd", 0, r"a\x1b[31mb\x0ac")])
def test_each_is_shown_or_says_why_not(runs: Path, capsys: pytest.CaptureFixture[str], name: str, status: int,
                                       words: str) -> None:
    found, out, err = told(capsys, "runs", "show", DAY + name)
    assert found == status, err
    assert words in out + err
    assert "\x1b" not in out
    if status:
        assert err.count("\n") == 1
        return
    _, out, _ = told(capsys, "runs", "show", DAY + name, "--json")
    shown = json.loads(out)
    assert shown["result"] == "INCOMPLETE"
    assert shown["state"] == {"1-left": "interrupted, to be resumed", "2-cancelled": "cancelled"}.get(name, "complete")


@pytest.mark.parametrize(("name", "words"), [
    ("0-complete", "is complete: there is nothing to cancel"), ("4-cut", "manifest.json: not JSON"),
    ("1-left", "not installed")])
def test_what_cannot_be_cancelled_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str], name: str,
                                              words: str) -> None:
    before = sorted(runs.rglob("*"))
    status, out, err = told(capsys, "runs", "cancel", DAY + name)
    assert status in (2, 4) and out == "" and err.count("\n") == 1
    assert words in err
    assert [p for p in sorted(runs.rglob("*")) if p.name != "lock"] == before


def test_a_copy_and_a_folder_that_was_moved(tmp_path: Path) -> None:
    def manifest(**changes: object) -> Manifest:
        found: Manifest = read_record(made(tmp_path, "x", **changes) / "manifest.json", Manifest)
        return found
    home = made(tmp_path, "home", run_id="r", folder=str(tmp_path / "home"))
    at_home: Manifest = read_record(home / "manifest.json", Manifest)
    assert not moved(home, at_home)
    (tmp_path / "alias").symlink_to(home)
    assert not moved(tmp_path / "alias", at_home)
    assert not moved(tmp_path, manifest())                      # of an older hpcadmin
    copy = made(tmp_path, "copy", run_id="r", folder=str(home))
    with pytest.raises(UsageError, match=r"is a copy of .*/home"):
        moved(copy, at_home)
    (home / "manifest.json").write_text((home / "manifest.json").read_text().replace('"r"', '"another"'))
    assert moved(copy, at_home)
    (home / "manifest.json").unlink()
    assert moved(copy, at_home)


def test_what_was_imported_is_never_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scripts, names and commands are somebody else's."""
    runs = tmp_path / "runs"
    folder = made(runs, DAY + "9-came", state="interrupted", ended="", exit_status=None)
    (folder / "request.json").write_text(dumps(Request(suite="smoke", allow_root=True)))
    (folder / "marks.json").write_text(dumps(Marks(imported="2026-12-01T01:00:00+00:00")))
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["validate", "--allow-root", "--resume", folder.name]) == 2
    err = capsys.readouterr().err
    assert f"run {folder.name} was imported" in err and err.count("\n") == 1
    (folder / "marks.json").write_text("x")
    assert run(["validate", "--allow-root", "--resume", folder.name]) == 2
    assert "marks.json" in capsys.readouterr().err

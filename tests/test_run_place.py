"""Where a job's files lie: what may be a log, scripts that hold others, the site's words for it."""

import os
import subprocess
from pathlib import Path

import pytest

from hpcadmin.errors import SiteError, UsageError
from hpcadmin.run_place import Place, behind
from hpcadmin.site import parse_site
from hpcadmin.slurm import script
from hpcadmin.slurm.script import JobOptions, packed


def test_what_is_no_log_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n1.log")
    (tmp_path / "n2.log").symlink_to("/etc/passwd")
    (tmp_path / "n3.log").write_text("x")
    (tmp_path / "n4.log").mkdir()
    (tmp_path / "n5.log").write_text("twice")
    (tmp_path / "second").hardlink_to(tmp_path / "n5.log")
    (tmp_path / "n9.log").write_text("nobody's")
    damaged: dict[str, str] = {}
    place = Place(tmp_path, JobOptions("c"), ("n1", "n2", "n3", "n4", "n5"), 5, lambda _: None)
    assert sorted(place.logs(damaged)) == [f"n{n}.log" for n in range(1, 6)]
    assert damaged == {"n1.log": "not a regular file", "n2.log": "a link", "n4.log": "not a regular file",
                       "n5.log": "known by a second name (a hard link)"}


def test_logs_that_are_behind_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "sizes").write_text("driver.log 12\nn1.log 5\nn2.log x\n../etc 7\nn3.log 9 9\n")
    sizes = Place(tmp_path, JobOptions("c"), ("n1",), 1, lambda _: None).sizes()
    assert sizes == {"driver.log": 12, "n1.log": 5}
    assert behind(sizes, {"driver.log": 12, "n1.log": 4}, {}) == ["n1.log"]
    assert behind(sizes, {"driver.log": 12}, {"n1.log": "a link"}) == []


def test_a_large_script_comes_out_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "#!/bin/sh\n#SBATCH --nodes=2\necho \"$1\" it is me\n: " + "x" * 5000 + "\n"
    assert packed(text, str(tmp_path)) == text
    monkeypatch.setattr(script, "MOST_SCRIPT", 1000)
    (tmp_path / "script").write_text(packed(text, str(tmp_path)))
    assert "#SBATCH --nodes=2\n" in (tmp_path / "script").read_text()
    done = subprocess.run(["sh", str(tmp_path / "script"), "by-hand"], capture_output=True, text=True, check=True)
    assert done.stdout == "by-hand it is me\n"
    monkeypatch.setattr(script, "TAKEN_BY_SLURM", 100)
    with pytest.raises(UsageError, match="more than Slurm takes"):
        packed(text, str(tmp_path))


@pytest.mark.parametrize(("run", "problem"), [
    ({"collect": "ssh"}, "run.collect must be"), ({"node_dir": "tmp"}, "run.node_dir must be"),
    ({"node_dir": "/a/../b"}, "run.node_dir must be"), ({"node_dir": "/a b"}, "run.node_dir must be")])
def test_words_of_the_site_that_are_refused(run: dict[str, str], problem: str) -> None:
    with pytest.raises(SiteError, match=problem):
        parse_site({"run": run}, "site.toml")


def test_words_of_the_site() -> None:
    assert (parse_site({}, "s").away, parse_site({"run": {"collect": "step"}}, "s").away) == ("", "/tmp")
    assert parse_site({"run": {"collect": "step", "node_dir": "/scratch"}}, "s").shared("/runs") == "-"
    assert parse_site({"run": {"shared_dir": "/s"}}, "s").shared("/runs") == "/s"

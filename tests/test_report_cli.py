"""hpcadmin report and hpcadmin runs as they are called."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import names, node_results, pair_results, write_run

from hpcadmin import cli

N4 = names(4)
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    good = [*node_results(N4), *pair_results(lambda _a, _b: 870.0, N4)]
    bad = [*node_results(N4), *pair_results(lambda a, b: 11.9 if "node03" in (a, b) else 870.0, N4)]
    write_run(folder / "20260730-101500-network", good, N4)
    write_run(folder / "20260730-102000-network", bad, N4)
    write_run(folder / "20260730-102000-network-2", good, N4, state="interrupted", exit_status=130)
    write_run(folder / "20260730-102000-network-10", bad, N4)
    return folder


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(list(args))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def test_the_last_run_is_shown_and_its_result_is_the_status(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "report")
    assert (status, out.splitlines()[-1]) == (1, str(runs / "20260730-102000-network-10"))
    assert "node03: slow to every partner" in out
    assert call(capsys, "report", "--run", "20260730-1015")[0] == 0
    assert call(capsys, "report", "--run", "20260730-102000-network-2")[0] == 3
    assert call(capsys, "report", "--run", str(runs / "20260730-101500-network"))[0] == 0
    assert call(capsys, "report", "--run", "last")[0] == 1


@pytest.mark.parametrize(("args", "says"), [
    (["--run", "20260729"], "the last ones are 20260730-102000-network, 20260730-102000-network-2"),
    (["--run", "20260730"], "beginning of 4 runs"),
    (["--run", "./nowhere"], "is not a run folder"),
    (["--run", ".."], "is not a run folder"),
    (["--format", "docx"], "known are csv, html, json, junit, markdown, prometheus, table, xlsx"),
    (["--format", "html", "-o", "/nowhere/x.html"], "cannot be written"),
])
def test_what_cannot_be_done_is_one_line(args: list[str], says: str, runs: Path, capsys: pytest.CaptureFixture[str],
                                         ) -> None:
    status, out, err = call(capsys, "report", *args)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_without_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "none"))
    status, _, err = call(capsys, "report")
    assert (status, "there is no run yet" in err) == (2, True)
    assert call(capsys, "runs", "list")[:2] == (0, f"no run in {tmp_path}/none/runs\n")
    assert json.loads(call(capsys, "runs", "list", "--json")[1]) == []


def test_the_page_goes_into_the_run_folder(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "report", "--format", "html", "--run", "20260730-1015")
    page = runs / "20260730-101500-network" / "report.html"
    assert (status, out) == (0, f"{page}\n")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert call(capsys, "report", "--format", "html", "-o", "-")[1].startswith("<!DOCTYPE html>")


def test_a_page_elsewhere_links_back(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "20260730-101500-network/jobs/2").mkdir(parents=True)
    (runs / "20260730-101500-network/jobs/2/node01.log").write_text("raw")
    call(capsys, "report", "--format", "html", "--run", "20260730-1015", "-o", "page.html")
    assert 'href="runs/20260730-101500-network/jobs/2/node01.log"' in (tmp_path / "page.html").read_text()


def test_a_folder_without_a_time_in_its_name_is_not_the_last(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("zzz", "last"):
        write_run(runs / name, node_results(N4), N4)
    for args in (("runs", "show"), ("runs", "show", "last")):
        assert "20260730-102000-network-10" in call(capsys, *args)[1]
    assert "zzz" in call(capsys, "runs", "show", "zzz")[1]


def test_a_device_and_a_folder_are_not_replaced(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As root, -o /dev/null would leave the system without it."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for name, says in (("fifo", "is not a regular file"), ("link", "is not a regular file"), ("folder", "is a folder")):
        status, _, err = call(capsys, "report", "--format", "csv", "-o", str(tmp_path / name))
        assert (status, says in err) == (2, True), err
    assert (tmp_path / "fifo").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_csv_and_json(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "report", "--json")
    assert status == json.loads(out)["result"]["exit_status"] == 1
    assert call(capsys, "report", "--format", "csv", "-o", "run.csv")[:2] == (1, f"{tmp_path}/run.csv\n")
    with (tmp_path / "run.csv").open() as stream:
        assert {row["check"] for row in csv.DictReader(stream)} >= {"mpi_pingpong", "node_ready"}


def test_runs_list_in_the_order_they_were_made(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "broken").mkdir()
    (runs / "broken/manifest.json").write_text("{")
    (runs / "empty").mkdir()
    status, out, _ = call(capsys, "runs", "list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == [
        "20260730-101500-network", "20260730-102000-network", "20260730-102000-network-2", "20260730-102000-network-10",
        "broken"]
    assert "unreadable" in out.splitlines()[-1]
    assert len(json.loads(call(capsys, "runs", "list", "--json")[1])) == 5
    assert len(json.loads(call(capsys, "runs", "list", "--json", "--last", "2")[1])) == 2


def test_runs_show(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "runs", "show")
    assert status == 0
    assert "FAILED: 8 of 11 tests passed" in out
    assert "node03: slow to every partner" in out
    shown = json.loads(call(capsys, "runs", "show", "20260730-1015", "--json")[1])
    assert (shown["result"], shown["exit_status"], shown["problems"]) == ("PASSED", 0, [])
    assert "verdicts.jsonl" in shown["files"]


def test_a_run_is_judged_again_by_todays_limits(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit = ('[[limit]]\ncheck = "mpi_pingpong"\nmeasurement = "bandwidth"\nunit = "MB/s"\nsize_bytes = 262144\n'
             'min = {}\n')
    site = tmp_path / "site.toml"
    site.write_text(limit.format(100.0))
    status, out, _ = call(capsys, "--site", str(site), "runs", "judge", "20260730-101500-network")
    assert status == 0
    assert out.splitlines()[-1].endswith("14 verdicts, 0 of them others than in the run")
    site.write_text(limit.format(900.0))
    status, out, _ = call(capsys, "--site", str(site), "runs", "judge", "20260730-101500-network", "--json")
    told = json.loads(out)
    assert (status, len(told["changes"])) == (1, 6)
    assert {(c["before"]["status"], c["now"]["status"]) for c in told["changes"]} == {("PASS", "FAIL")}
    site.write_text(limit.format(10.0))
    status, out, _ = call(capsys, "--site", str(site), "runs", "judge", "20260730-102000-network-10")
    assert status == 1                                      # the peers still accuse node03
    assert sum(line.split()[:2] == ["FAIL", "PASS"] for line in out.splitlines()) == 3


def test_who_reads_the_first_lines_only_gets_the_runs_exit_status(runs: Path) -> None:
    """`report | head` of a run that failed is not 0."""
    line = f"{shlex.quote(sys.executable)} -m hpcadmin report --format csv | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_what_the_terminal_has_no_sign_for_is_written_as_its_number(runs: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "hpcadmin", "report"], capture_output=True,
                          text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "0",
                                                       "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"})
    assert (done.returncode, done.stderr) == (1, "")
    assert " \\xb7 suite network" in done.stdout

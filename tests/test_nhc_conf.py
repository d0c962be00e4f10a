"""--nhc-conf from the file to the line for Reason: who may have written it, which host it is for, what is never run."""

import json
import os
from pathlib import Path
from typing import Any

import nhc_machine
import pytest

from hpcadmin.health.node import main, nhc, nhc_match, nhc_words
from hpcadmin.health.node.api import BadConfig

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the machine has files of several owners and devices")


def conf(folder: Path, text: str) -> str:
    path = folder / "nhc.conf"
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


def run(folder: Path, text: str, capfd: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    status = main.main(["--nhc-conf", conf(folder, text), "--state", str(folder / "state"), "--json", "-", *more])
    return status, json.loads(capfd.readouterr().out)


def statuses(tree: dict[str, Any]) -> list[str]:
    return [result["status"] for result in tree["results"]]


def test_a_file_that_others_may_write_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = conf(tmp_path, "* || check_hw_eth lo\n")
    Path(path).chmod(0o666)
    with pytest.raises(BadConfig, match="can be written by others"):
        nhc.load(path, "n01")
    assert main.main(["--nhc-conf", path, "--state", str(tmp_path / "state")]) == 3
    assert "refused" in capfd.readouterr().out


def test_nothing_of_it_is_run_by_a_shell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sign = tmp_path / "sign"
    lines = [f"* || touch {sign}", f"* || check_hw_eth $(touch {sign})", f"* || check_hw_eth `touch {sign}`",
             f"* || check_hw_eth lo; touch {sign}", f"* || X=$(touch {sign})", f"$(touch {sign}) || check_hw_eth lo",
             f"* || check_fs_mount -f /nothere -e 'touch {sign}'", f"* || check_ps_service -e 'touch {sign}' nosuch",
             f"* || check_cmd_output -e 'true; touch {sign}'", f"* || check_file_test -f '$(touch {sign})'",
             f"* || check_hw_eth $((1 + $(touch {sign})))", f"/$(touch {sign})/ || true"]
    status, tree = run(tmp_path, "\n".join(lines) + "\n", capfd)
    assert not sign.exists()
    assert status == 1
    reasons = {result["check"]: result["status"] for result in tree["results"]}
    assert reasons["nhc:1/touch"] == reasons["nhc:4/check_hw_eth"] == "unknown"
    assert any("line 1: touch is not run: NHC brings no such check" in note for note in tree["notes"])


def test_unknown_is_never_good_and_never_bad(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, tree = run(tmp_path, "* || check_hw_eth lo\n* || our_check\n", capfd)
    assert (status, tree["status"]) == (3, "unknown")
    assert run(tmp_path, "* || check_hw_eth lo\n* || our_check\n", capfd, "--as", "prolog")[0] == 0


def test_no_slurm_command_in_prolog(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "* || check_ps_unauth_users\n* || check_cmd_output -e '/usr/bin/scontrol ping'\n* || check_hw_eth lo\n"
    status, tree = run(tmp_path, text, capfd, "--as", "prolog")
    assert status == 0
    assert statuses(tree) == ["unknown", "unknown", "good"]


def test_no_line_for_this_host_is_unknown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "nosuchhost || check_hw_eth lo\n", capfd)[0] == 3


@ROOT
def test_the_whole_name_of_the_host_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nhc_machine.build("compute", tmp_path / "root")
    (tmp_path / "root/proc/sys/kernel/hostname").write_text("n01.example\n")
    root = ["--root", str(tmp_path / "root")]
    assert run(tmp_path, "n01.example || check_hw_eth eno1\n", capfd, *root)[0] == 0
    assert run(tmp_path, "n01 || check_hw_eth eno1\n", capfd, *root)[0] == 3
    text = "n01.example || check_hw_cpuinfo\n* || check_ps_loadavg $((2*HW_CORES))\n"
    assert run(tmp_path, text, capfd, *root)[0] == 0


@ROOT
def test_many_processors_cost_little(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """768 of them: NHC 1.4.3 takes longer than its own time-out."""
    nhc_machine.build("compute", tmp_path / "root")
    one = (tmp_path / "root/proc/cpuinfo").read_text().split("\n\n")[0]
    text = "\n\n".join(one.replace("processor\t: 0", f"processor\t: {cpu}") + "\nflags\t: " + "x" * 900
                       for cpu in range(768))
    (tmp_path / "root/proc/cpuinfo").write_text(text + "\n\n")
    status, tree = run(tmp_path, "* || check_hw_cpuinfo 1 4 8\n", capfd, "--root", str(tmp_path / "root"))
    assert status == 0
    assert float(str(tree["seconds"])) < 2


def test_notices_stand_in_the_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "* || check_ps_loadavg 9999.5\n* || check_fs_free /nothere 5%\n* || check_hw_eth 'l\\o'\n"
    _, tree = run(tmp_path, text, capfd)
    notices = [fact.get("notices") for result in tree["results"] for fact in result["facts"]]
    assert notices[0][0].endswith("is no comparison of numbers: NHC passes over it")
    assert notices[1] == ["/nothere is no mount point: NHC passes over it"]
    assert notices[2] == ["NHC drops backslashes when it reads its file: write them twice"]


@pytest.mark.parametrize("text", ["* || " + "x" * 5000 + "\n", "* || check_hw_eth " + "{a,b}" * 40 + "\n",
                                  "* || check_hw_eth {1..9999999999}\n", "* || check_ps_loadavg $((" + "(" * 300 + "\n",
                                  "{" + "[" * 2000 + "} || check_hw_eth lo\n", "* || X=" + "$X$X" * 50 + "\n",
                                  "\0\x01\xff || \x7f\n", "* || check_hw_eth " + "'" * 3001 + "\n"])
def test_odd_files_are_read_to_the_end(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = main.main(["--nhc-conf", conf(tmp_path, text), "--state", str(tmp_path / "state")])
    assert status in (1, 3)
    assert "defect" not in "".join(capfd.readouterr())


def test_options_as_getopts_has_them() -> None:
    assert nhc_words.options("ab:c", ["-ab", "x", "-cbY", "--", "-a"]) == (
        [("a", ""), ("b", "x"), ("c", ""), ("b", "Y")], ["-a"], "")
    assert nhc_words.options("b:", ["-b"])[2] == "Option -b requires an argument"
    assert nhc_words.options("b:", ["-:"])[2] == "Invalid option: -:"
    assert nhc_words.options("b:", ["x", "-b"]) == ([], ["x", "-b"], "")


def test_a_pattern_that_is_too_long_never_matches() -> None:
    assert nhc_match.compile_regex("a" * 5000) is None
    assert not nhc_match.glob_matches("a", "a*" * 3000)

"""Whatever stands in an nhc.conf, in a tool's output or in a command line: a verdict, and never a defect."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.health.compile import compile_text
from hpcadmin.health.genconf_nhc import from_nhc
from hpcadmin.health.node import nhc, nhc_base, nhc_cmd, nhc_dmi, nhc_hw, nhc_match, nhc_net, watch
from hpcadmin.health.node.api import NoAnswer
from hpcadmin.health.node.checks.nhc import CHECK
from hpcadmin.health.node.door import Door
from hpcadmin.health.node.tool import Ran

pytestmark = pytest.mark.deep
SAMPLE = Path(__file__).parent / "samples" / "nhc" / "table.tsv"
CELLS = [line.split("\t", 6)[6] for line in SAMPLE.read_text().split("\n") if line and line[0] != "#"]
ODD = st.text(alphabet="ab01 \t\n\\\"'$`|&;<>(){}[]!*?/=-+,.:#~^%\0\x7f\u20ac", max_size=60)


class Told(Door):
    """A node of whose files and tools nothing is known but one text."""

    def __init__(self, text: str) -> None:
        super().__init__("/nonexistent")
        self.told = text

    def has(self, name: str) -> bool:
        return True

    def data(self, path: str, limit: int = 0) -> bytes:
        return self.told.encode("utf-8", "surrogateescape")

    def exists(self, path: str) -> bool:
        return True

    def _run(self, argv: list[str], timeout_s: float) -> Ran | NoAnswer:
        return Ran(argv, 0, self.told.encode("utf-8", "surrogateescape"), b"", cut=False, seconds=0.0)


def conf(text: str, door: Door) -> None:
    for entry in nhc.entries(text, "n01", lambda: {"HW_CORES": 8}):
        status, reason, _ = watch.judged(watch.look(CHECK, door, CHECK.take(entry.params)))
        assert not reason.startswith("defect"), (text, reason)
        assert status in ("good", "bad", "unknown")


@given(st.lists(ODD, max_size=4))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read(lines: list[str]) -> None:
    conf("\n".join("* || check_hw_eth " + line for line in lines) + "\n".join(lines), Told(""))


@given(st.sampled_from(CELLS), st.integers(0, 80), ODD)
@settings(max_examples=600, deadline=None)
def test_a_damaged_line_is_judged(cell: str, at: int, more: str) -> None:
    conf(cell[:at] + more + cell[at:] + "\n", Told("1 2 3\n"))


@given(st.sampled_from(CELLS), st.integers(0, 80), ODD)
@settings(max_examples=300, deadline=None)
def test_a_damaged_line_is_carried_over_soundly(cell: str, at: int, more: str) -> None:
    compiled = compile_text(from_nhc(cell[:at] + more + cell[at:] + "\n", "nhc.conf"), "h.toml")
    faults = [problem for problem in compiled.problems if not problem.warning]
    assert all("no [[check]]" in problem.what for problem in faults), faults


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("name, args", [
    ("check_net_socket", ["-p", "tcp"]), ("check_dmi_data_match", ["*x*"]), ("check_dmi_data_match", ["-t", "17", "x"]),
    ("check_hw_mcelog", []), ("check_hw_cpuinfo", ["2"]), ("check_hw_physmem", ["1", "2"]), ("check_hw_eth", ["lo"]),
    ("check_fs_mount", ["/"]), ("check_ps_loadavg", ["1"]), ("check_file_contents", ["/x", "/y/"]),
    ("check_moab_sched", ["-v", "7"]), ("check_ps_unauth_users", []), ("check_cmd_output", ["-m", "/x/", "x"])])
def test_any_output_of_a_tool_is_judged(name: str, args: list[str], text: str) -> None:
    door = Told(text)
    door._once["processes"] = []
    entry = nhc.entries("* || true\n", "n01", dict)[0]
    entry.params.update(kind="check", name=name, args=args)
    _, reason, _ = watch.judged(watch.look(CHECK, door, CHECK.take(entry.params)))
    assert not reason.startswith("defect"), reason


def test_readers_take_lines_cut_off_anywhere() -> None:
    lines = ["tcp 0 0 0.0.0.0:22 0.0.0.0:* LISTEN 0 1 8/sshd", "unix 2 [ ACC ] STREAM LISTENING 1 1/systemd /run/x",
             'tcp LISTEN 0 128 *:22 *:* users:(("sshd",pid=1,fd=3)) uid:0']
    there = nhc_base.Nhc(Told("root:x:0:0\n"), "check_net_socket", {}, {})
    for line in lines:
        for end in range(1, len(line) + 1):
            if line[:end].split():
                nhc_net._of_netstat(there, line[:end].split())
                nhc_net._of_ss(there, line[:end].split())
    assert nhc_dmi._key("x") == -1
    assert nhc_hw._second("4:") == ""
    assert nhc_cmd._group("(x", "y") is None
    assert nhc_match.compile_regex("(x") is None

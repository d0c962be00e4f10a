"""hpcadmin-health: what hangs is given up by name, costs its own time-out, and holds nobody's output open."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import drain, main, tool, watch
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN
from hpcadmin.health.node.config import Entry
from hpcadmin.health.node.door import Door
from tests.health_machine import Machine

HEAD = "import os, signal, time\nfrom hpcadmin.health.node.api import *\n"
CHECKS = {
    "slow": "door.at('stat of /home')\ntime.sleep(60)",
    "deaf": "door.at('driver')\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)",
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "leaves": "os._exit(0)",
    "breaks": "return [1 / 0]",
    "absent": "door.text('/no/such/file')",
    "fine": "return [good(pid=os.getpid())]",
    "wrong": "return [bad('it is\\nbroken \"now\"')]",
    "hard": "return [fault('a part is broken')]",
    "odd": "return [good(value=object())]",
    "none": "return None",
    "huge": "return [good(text='x' * (20 << 20))]",
    "asks": "ran = door.tool(['sleeper'], 0.3)\nreturn [good()]",
    "counts": "door.keep('n', (door.last('n') or 0) + 1)\nreturn [good(n=door.last('n'))]",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "checks"
    folder.mkdir()
    for name, body in CHECKS.items():
        lines = "\n".join("    " + line for line in body.split("\n"))
        hardware = ", hardware=True" if name == "hard" else ""
        limit_s = 0.4 if name in ("slow", "deaf", "asks") else 20.0
        (folder / f"{name}.py").write_text(
            f"{HEAD}def run(door, p):\n{lines}\n\nCHECK = Check('{name}', 'T', run, timeout_s={limit_s}{hardware})\n"
        )
    return folder


def entries(*names: str) -> list[Entry]:
    return [Entry(name.partition(":")[0], {}, name.partition(":")[2]) for name in names]


def look(site: Path, *names: str, deadline: float = 10, **more: Any) -> dict[str, watch.Result]:
    outcome = watch.run(entries(*names), Door, str(site), deadline_s=deadline, **more)
    assert [one.key for one in outcome.results] == list(names)
    return {one.key: one for one in outcome.results}


@pytest.mark.deep
def test_a_check_that_hangs_is_named_and_the_others_go_on(site: Path) -> None:
    begin = time.monotonic()
    found = look(site, "fine:1", "slow", "deaf", "fine:2", deadline=40)
    assert time.monotonic() - begin < 20
    assert found["slow"].status == UNKNOWN
    assert "stat of /home did not answer in 0.4 s" in found["slow"].reason
    assert "driver did not answer" in found["deaf"].reason
    assert found["fine:1"].status == found["fine:2"].status == GOOD
    assert found["fine:1"].facts[0]["pid"] != found["fine:2"].facts[0]["pid"]  # a fresh worker


@pytest.mark.deep
def test_the_deadline_covers_the_whole_run(site: Path) -> None:
    begin = time.monotonic()
    found = look(site, "slow:1", "slow:2", "slow:3", "fine", deadline=0.6)
    assert time.monotonic() - begin < 20
    assert re.search(r"did not answer in 0\.[45] s", found["slow:1"].reason)
    assert "cut off by the deadline" in found["slow:2"].reason
    assert found["fine"].status == UNKNOWN
    assert found["fine"].reason.startswith("not run: the deadline of 0.6 s")


def test_what_hung_comes_last_so_that_it_hides_nothing_for_longer_than_a_run(site: Path) -> None:
    names = ("slow:1", "slow:2", "slow:3", "fine")
    first = watch.run(entries(*names), Door, str(site), deadline_s=0.9)
    assert "deadline" in first.results[3].reason
    assert first.late[:2] == ["slow:1", "slow:2"]       # what the deadline cut off is not late by itself
    again = watch.run(entries(*names), Door, str(site), deadline_s=0.9, late=first.late)
    assert [result.key for result in again.results] == list(names)      # told in their order
    assert again.results[3].status == GOOD
    assert set(again.late) >= {"slow:1", "slow:2"}
    for junk in (None, 3, [1], "x"):
        assert watch.run(entries("fine"), Door, str(site), late=junk).results[0].status == GOOD


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("dies", UNKNOWN, "ended with status 137"),
        ("leaves", UNKNOWN, "ended with status 0"),
        ("breaks", UNKNOWN, "defect of the check: ZeroDivisionError: division by zero at breaks.py:4"),
        ("absent", UNKNOWN, "/no/such/file: No such file or directory"),
        ("wrong", BAD, "it is broken now"),
        ("odd", UNKNOWN, "no plain values"),
        ("none", UNKNOWN, "defect of the check: TypeError"),
    ],
)
def test_whatever_becomes_of_a_check_has_a_result(site: Path, name: str, status: str, words: str) -> None:
    found = look(site, name, "fine")
    assert found[name].status == status
    assert words in found[name].reason
    assert found["fine"].status == GOOD


def test_too_much_to_tell_is_unknown(site: Path) -> None:
    found = look(site, "huge", "fine")
    assert (found["huge"].status, found["fine"].status) == (UNKNOWN, GOOD)


def test_only_what_a_check_declares_is_a_fault(site: Path) -> None:
    assert look(site, "hard")["hard"].hardware
    text = (site / "hard.py").read_text().replace(", hardware=True", "")
    (site / "hard.py").write_text(text)
    assert not look(site, "hard")["hard"].hardware


def test_a_tool_that_hangs_is_killed_with_its_children(site: Path, tmp_path: Path) -> None:
    mark = f"{tmp_path}/pid"
    machine = Machine(tmp_path / "root")
    machine.tool("sleeper", script=f"sleep 61 & echo $! > {mark}; sleep 61")
    outcome = watch.run(entries("asks"), lambda **door: Door(str(tmp_path / "root"), **door), str(site))
    assert outcome.results[0].reason == "sleeper did not answer in 0.3 s"
    until_over(int(Path(mark).read_text()))


def test_a_tool_is_killed_when_its_check_is_given_up(site: Path, tmp_path: Path) -> None:
    mark = f"{tmp_path}/pid"
    machine = Machine(tmp_path / "root")
    machine.tool("sleeper", script=f"echo $$ > {mark}; exec sleep 62")
    text = (site / "asks.py").read_text().replace("0.3)", "30)")
    (site / "asks.py").write_text(text)
    outcome = watch.run(entries("asks"), lambda **door: Door(str(tmp_path / "root"), **door), str(site))
    assert re.search(r"sleeper did not answer in 0\.[4-9] s", outcome.results[0].reason)
    until_over(int(Path(mark).read_text()))


def until_over(pid: int) -> None:
    """It has been killed: much sooner than it would end."""
    state = Path(f"/proc/{pid}/stat")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} goes on")


def test_what_still_hangs_is_not_begun_again(site: Path) -> None:
    hung = {"slow": {"pid": 4242, "start": 1, "since": "2026-01-01T00:00:00", "what": "stat of /home"}}
    began = site / "began"
    (site / "slow.py").write_text((site / "slow.py").read_text().replace("time.sleep(60)", f"open('{began}', 'w')"))
    found = look(site, "slow", "fine", hung=hung)
    assert not began.exists()
    assert found["slow"].reason == "still hangs since 2026-01-01T00:00:00: stat of /home (process 4242)"
    assert found["fine"].status == GOOD


# tools


@pytest.mark.parametrize(
    ("argv", "status", "out", "err"),
    [
        (["sh", "-c", "echo a; echo b >&2; exit 7"], 7, "a\n", "b\n"),
        (["sh", "-c", "kill -9 $$"], 137, "", ""),
        (["true"], 0, "", ""),
        (["sh", "-c", "exec sleep 63 & echo x"], 0, "x\n", ""),
    ],
)
def test_tools_run_as_they_should(argv: list[str], status: int, out: str, err: str) -> None:
    begin = time.monotonic()
    ran = tool.run(tool.find(argv[0], tool.PATH) or "", argv, 50)
    assert (ran.status, ran.out, ran.err) == (status, out, err)
    assert time.monotonic() - begin < 20  # also where a grandchild holds the output open


def test_output_is_bounded() -> None:
    ran = tool.run("/bin/sh", ["sh", "-c", "head -c 9000000 /dev/zero"], 10)
    assert ran.cut
    assert len(ran.out) <= tool.MAX_OUTPUT + 65536


def test_the_environment_of_a_job_does_not_reach_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/tmp/evil.so")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    ran = tool.run("/usr/bin/env", ["env"], 5)
    assert "LD_PRELOAD" not in ran.out
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in ran.out


# the whole program


def program(tmp_path: Path, conf: dict[str, Any], *args: str, **more: Any) -> tuple[int, dict[str, Any], str]:
    path = tmp_path / "health.json"
    path.write_text(json.dumps(conf))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "hpcadmin.health.node",
            "--config",
            str(path),
            "--state",
            str(tmp_path / "state"),
            "--json",
            str(tmp_path / "out.json"),
            *args,
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        **more,
    )
    assert done.stderr == "" or "--drain" in args, done.stderr
    out = tmp_path / "out.json"
    return done.returncode, json.loads(out.read_text()) if out.exists() else {}, done.stdout


@pytest.mark.parametrize(
    ("names", "as_", "status"),
    [
        (["fine"], None, 0),
        (["fine", "wrong"], None, 1),
        (["fine", "absent"], None, 3),
        (["absent", "wrong"], None, 1),
        (["absent"], "prolog", 0),
        (["wrong"], "prolog", 1),
        (["fine"], "epilog", 0),
        (["slow"], "epilog", 0),
        ([], None, 3),
        ([], "prolog", 0),
        (["nosuch"], None, 3),
        (["nosuch"], "prolog", 0),
    ],
)
def test_exit_status(tmp_path: Path, site: Path, names: list[str], as_: str | None, status: int) -> None:
    conf = {"checks": str(site), "check": [{"use": name, "when": ["health", "prolog", "epilog"]} for name in names]}
    found, tree, out = program(tmp_path, conf, *(["--as", as_] if as_ else []))
    assert found == status
    assert out.count("\n") == 1
    assert out.strip() == tree["line"]


def test_a_refused_configuration_is_unknown_and_never_drains(tmp_path: Path, site: Path) -> None:
    conf = {"check": [{"use": "swap", "when": ["health", "prolog"]}]}
    assert program(tmp_path, conf)[0] == 0
    (tmp_path / "health.json").chmod(0o666)
    for args, status in ((["--as", "prolog"], 0), ([], 3)):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "hpcadmin.health.node",
                "--config",
                str(tmp_path / "health.json"),
                *args,
                "--state",
                str(tmp_path / "state"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout.startswith("unknown: configuration: ")) == (status, True), done.stdout


@pytest.mark.deep
def test_results_and_what_checks_keep_are_recorded(tmp_path: Path, site: Path) -> None:
    conf = {"checks": str(site), "check": [{"use": "counts"}, {"use": "fine"}]}
    counts = [program(tmp_path, conf)[1]["results"][0]["facts"][0]["n"] for _ in range(3)]
    assert counts == [None, 1, 2]
    recorded = json.loads((tmp_path / "state" / "health.json").read_text())
    assert recorded["status"] == GOOD
    assert recorded["memory"] == {"counts n": 3}
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    program(tmp_path, conf, "fine")  # by hand and in part: what was kept stays
    assert program(tmp_path, conf)[1]["results"][0]["facts"][0]["n"] == 3


def test_a_state_folder_of_others_is_not_used(tmp_path: Path, site: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    status, tree, _ = program(tmp_path, {"checks": str(site), "check": [{"use": "fine"}]})
    assert status == 0
    assert any("written by others" in note for note in tree["notes"])
    assert not list((tmp_path / "state").iterdir())


def test_no_state_folder_changes_no_verdict(tmp_path: Path, site: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert program(tmp_path, {"checks": str(site), "check": [{"use": "wrong"}]})[0] == 1


def test_a_hanging_child_holds_no_output_open(tmp_path: Path, site: Path) -> None:
    """slurmd reads the program's output to its end, and kills after 60 s."""
    conf = {"checks": str(site), "check": [{"use": "deaf"}]}
    begin = time.monotonic()
    assert program(tmp_path, conf)[0] == 3
    assert time.monotonic() - begin < 30


def test_the_line_goes_nowhere_and_that_is_fine(tmp_path: Path, site: Path) -> None:
    with Path("/dev/full").open("w") as full:
        path = tmp_path / "health.json"
        path.write_text(json.dumps({"checks": str(site), "check": [{"use": "fine"}]}))
        done = subprocess.run(
            [sys.executable, "-m", "hpcadmin.health.node", "--config", str(path), "--state", str(tmp_path / "state")],
            stdout=full,
            check=False,
        )
    assert done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="stops a process group of its own")
def test_it_can_be_stopped(tmp_path: Path, site: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text(json.dumps({"checks": str(site), "check": [{"use": "slow", "timeout_s": 30}]}))
    running = subprocess.Popen(
        [sys.executable, "-m", "hpcadmin.health.node", "--config", str(path), "--state", str(tmp_path / "state")],
        start_new_session=True,
    )
    time.sleep(0.3)
    os.killpg(running.pid, signal.SIGKILL)  # as slurmd does
    assert running.wait(60) == -signal.SIGKILL


# draining

NODE = "NodeName=gpu001 Arch=x86_64 State={state} ThreadsPerCore=2 {reason}Comment=a b\n"


@pytest.mark.parametrize(
    ("state", "reason", "drained"),
    [
        ("IDLE", "", True),
        ("ALLOCATED", "", True),
        ("MIXED+PLANNED", "", True),
        ("IDLE*", "", True),
        ("IDLE+DRAIN", "", False),
        ("IDLE+DRAIN", "Reason=bad fan [root@2026-01-01T00:00:00] ", False),
        ("IDLE", "Reason=look at me [root@2026-01-01T00:00:00] ", False),
        ("DOWN", "", False),
        ("IDLE+MAINTENANCE", "", False),
        ("IDLE+REBOOT_REQUESTED", "", False),
        ("IDLE+POWERED_DOWN", "", False),
        ("", "", False),
        ("IDLE+DRAIN", "Reason=hpcadmin: gpu lost [root@2026-01-01T00:00:00] ", False),
    ],
)
def test_a_node_is_drained_only_if_nobody_has_spoken(state: str, reason: str, drained: bool) -> None:
    said: list[list[str]] = []

    def run(argv: list[str]) -> tool.Ran:
        said.append(argv)
        return tool.Ran(argv, 0, NODE.format(state=state, reason=reason).encode(), b"", cut=False, seconds=0)

    word = drain.drain("gpu001", "hpcadmin: gpu: 7 GPUs of 8", run)
    assert (len(said) == 2) == drained == word.startswith("drained"), word
    if drained:
        assert said[1] == ["scontrol", "update", "NodeName=gpu001", "State=DRAIN", "Reason=hpcadmin: gpu: 7 GPUs of 8"]


@pytest.mark.parametrize("node", ["", "a b", "x;reboot", "-n"])
def test_a_name_that_is_none_is_not_drained(node: str) -> None:
    said: list[list[str]] = []
    word = drain.drain(node, "hpcadmin: x", said.append)  # type: ignore[func-returns-value]
    assert word.startswith("not drained")
    assert not said


def test_slurm_that_does_not_answer_is_left_alone() -> None:
    assert drain.drain("n1", "x", lambda argv: None).startswith("not drained: scontrol did not tell")


def test_only_own_hardware_is_a_reason_to_drain() -> None:
    results = [watch.Result("mount", BAD, "/home is not mounted", [])]
    assert main.maybe_drain(results, "n1", ()) == "not drained: no fault of this node's own hardware"


@pytest.mark.parametrize(
    ("name", "reason", "called"),
    [
        ("hard", "", ["show", "update"]),
        ("hard", "Reason=fan [root@2026-01-01] ", ["show"]),
        ("wrong", "", []),
        ("fine", "", []),
    ],
)
def test_drain_from_the_node(tmp_path: Path, site: Path, name: str, reason: str, called: list[str]) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text(
        f"#!/bin/sh\necho \"$@\" >> {tmp_path}/asked\necho 'NodeName=n7 State=IDLE {reason}Comment=x'\n"
    )
    (tools / "scontrol").chmod(0o755)
    conf = {"checks": str(site), "tools": [str(tools)], "check": [{"use": name}, {"use": "absent"}]}
    program(tmp_path, conf, "--node", "n7")
    assert not (tmp_path / "asked").exists()                 # without --drain nothing is asked
    _, tree, _ = program(tmp_path, conf, "--node", "n7", "--drain")
    asked = (tmp_path / "asked").read_text().splitlines() if called else []
    assert [line.split()[0] for line in asked] == called
    assert tree["drain"].startswith("drained n7" if len(called) == 2 else "not drained")
    if len(called) == 2:
        assert asked[1] == "update NodeName=n7 State=DRAIN Reason=hpcadmin: hard: a part is broken"


# what not even SIGKILL ends, as in an uninterruptible system call: stood for by a frozen cgroup

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def ice() -> Iterator[Path]:
    if os.geteuid() != 0 or not FREEZER.is_dir():
        pytest.skip("needs root and a freezer")
    folder = FREEZER / f"hpcadmin-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    for _ in range(200):
        if not (folder / "tasks").read_text():
            break
        time.sleep(0.01)
    folder.rmdir()


@pytest.mark.deep
def test_what_cannot_be_killed_is_given_up_and_not_begun_again(tmp_path: Path, site: Path, ice: Path) -> None:
    freeze = f"open('{ice}/tasks', 'w').write(str(os.getpid()))\nopen('{ice}/freezer.state', 'w').write('FROZEN')"
    freeze = freeze.replace("\n", "\n    ")
    text = (site / "slow.py").read_text().replace("time.sleep(60)", f"{freeze}\n    time.sleep(60)")
    (site / "slow.py").write_text(text)
    conf = {"checks": str(site), "check": [{"use": "slow"}, {"use": "fine"}]}
    begin = time.monotonic()
    status, tree, _ = program(tmp_path, conf)
    assert time.monotonic() - begin < 30
    assert (status, [one["status"] for one in tree["results"]]) == (3, [UNKNOWN, GOOD])
    frozen = (ice / "tasks").read_text().split()
    assert len(frozen) == 1
    for _ in range(2):                                       # they do not pile up
        _, tree, line = program(tmp_path, conf)
        assert "still hangs since" in line
        assert f"stat of /home (process {frozen[0]})" in line
        assert (ice / "tasks").read_text().split() == frozen
    (ice / "freezer.state").write_text("THAWED")             # the server is back: SIGKILL arrives
    until_over(int(frozen[0]))
    (site / "slow.py").write_text(text.replace(freeze, "return []"))
    assert program(tmp_path, conf)[0] == 0


def test_a_node_of_simulated_hardware_says_so(tmp_path: Path) -> None:
    conf = {"check": [{"use": "file", "path": "/etc"}]}
    assert "simulated" not in program(tmp_path, conf, "--root", str(tmp_path))[1]
    (tmp_path / "etc/hpcadmin").mkdir(parents=True)
    (tmp_path / "etc/hpcadmin/simulated").write_text("8xH100\n")
    assert program(tmp_path, conf, "--root", str(tmp_path))[1]["simulated"] == "8xH100"


# a file system that nobody serves any more: real system calls that do not come back


@pytest.fixture
def dead_mount(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and FUSE")
    libc = ctypes.CDLL(None, use_errno=True)
    place = tmp_path / "dead"
    place.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"srv:/home", str(place).encode(), b"fuse", 0, options) != 0:
        os.close(fd)
        pytest.skip("may not mount")
    yield place
    os.close(fd)                                             # whoever waits is let go
    libc.umount2(str(place).encode(), 2)


@pytest.mark.deep
def test_a_dead_file_system_costs_its_own_time_out(tmp_path: Path, dead_mount: Path) -> None:
    conf = {
        "check": [
            {"use": "swap"},
            {"use": "mount", "id": "home", "path": str(dead_mount), "timeout_s": 0.5},
            {"use": "space", "id": "home", "path": str(dead_mount), "timeout_s": 0.5},
            {"use": "file", "path": f"{dead_mount}/x", "timeout_s": 0.5},
            {"use": "mount", "id": "root", "path": "/"},
            {"use": "load"},
        ]
    }
    begin = time.monotonic()
    status, tree, line = program(tmp_path, conf)
    assert time.monotonic() - begin < 30
    assert status == 3
    found = {one["check"]: one for one in tree["results"]}
    assert [one["status"] for one in tree["results"]] == [GOOD, UNKNOWN, UNKNOWN, UNKNOWN, GOOD, GOOD]
    assert re.fullmatch(rf"statvfs of {re.escape(str(dead_mount))} did not answer in [0-9.]+ s",
                        found["mount:home"]["reason"])
    assert found["file"]["reason"].startswith(f"stat of {dead_mount}/x did not answer in ")
    assert line.startswith("unknown: mount:home: statvfs of ")
    assert program(tmp_path, conf, "swap", "mount:root")[0] == 0

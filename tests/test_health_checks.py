"""hpcadmin-health, CPU, memory, file systems, processes: good, bad, unknown, and the false verdicts to avoid."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import load, watch
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN
from hpcadmin.health.node.checks import process
from hpcadmin.health.node.door import Door
from tests.health_looks import look, run
from tests.health_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# cpu, memory, load


def test_cpu(machine: Machine) -> None:
    machine.cpus(2, 8, 2)
    assert run(machine, "cpu", sockets=2, cores=16, threads=32) == (GOOD, "")
    assert look(machine, "cpu", cores=32) == (BAD, "16 cores online, expected 32", True)


def test_a_cpu_that_is_offline(machine: Machine) -> None:
    machine.cpus(1, 4, 1, offline=(2,))
    assert run(machine, "cpu") == (GOOD, "")
    assert run(machine, "cpu", offline=0) == (BAD, "1 CPUs are offline (2)")
    assert run(machine, "cpu", threads=4) == (BAD, "3 threads online, expected 4")


def test_without_sys_nothing_is_known_of_cpus(machine: Machine) -> None:
    assert run(machine, "cpu")[0] == UNKNOWN


def test_memory(machine: Machine) -> None:
    machine.meminfo(1000 * 1024, free_kib=100 * 1024, swap_kib=8 * 1024)
    assert run(machine, "memory", min_mib=1000, max_mib=1000) == (GOOD, "")
    assert look(machine, "memory", min_mib=1024) == (BAD, "memory is 1000 MiB, expected at least 1024", False)
    assert look(machine, "memory", min_mib=1200) == (BAD, "memory is 1000 MiB, expected at least 1200", True)
    assert run(machine, "memory", min_mib=1024, tolerance_percent=3) == (GOOD, "")
    assert run(machine, "memory", min_mib=1008, swap=True) == (GOOD, "")
    assert look(machine, "memory", min_mib=1100, swap=True)[2] is False
    assert run(machine, "memory_free", min_free_mib=100) == (GOOD, "")
    assert run(machine, "memory_free", min_free_percent=20) == (BAD, "memory: 10.0 % free of 1000 MiB, expected 20 %")
    assert run(machine, "swap", min_mib=8, min_free_percent=100) == (GOOD, "")
    assert run(machine, "swap", max_mib=4)[0] == BAD


def test_load(machine: Machine) -> None:
    machine.cpus(1, 2, 1)
    assert run(machine, "load", max_1m=2, max_5m=2, max_15m=3) == (GOOD, "")
    assert run(machine, "load", max_15m=2)[0] == BAD
    assert run(machine, "load", max_15m=2, per_cpu=True) == (GOOD, "")


# file systems


def test_mounts(machine: Machine) -> None:
    machine.mounts(
        "/dev/sda1 / ext4 rw,relatime 0 0", "old:/h /home nfs rw 0 0", "srv:/home /home nfs4 ro,hard,vers=4.2 0 0"
    )
    machine.file("/home/x")
    assert run(machine, "mount", path="/home", source="srv:*", type="nfs*", options=["hard", "!soft"]) == (GOOD, "")
    assert run(machine, "mount", path="/home", mode="rw") == (BAD, "/home is mounted read-only")
    assert run(machine, "mount", path="/home", type="lustre")[1] == "/home has type nfs4, expected lustre"
    assert run(machine, "mount", path="/scratch") == (BAD, "/scratch is not mounted")
    assert run(machine, "mount", path="/scratch", missing=True) == (GOOD, "")
    assert run(machine, "mount", path="/home", missing=True) == (BAD, "/home is mounted")
    assert run(machine, "mount", path="/home", options=["soft"])[0] == BAD
    assert run(machine, "mount", path="/home", options=["!hard"])[0] == BAD
    assert run(machine, "mount", path="/home", options=["ro,hard*"]) == (GOOD, "")


def test_a_stale_mount_is_bad(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.mounts("srv:/home /home nfs4 rw 0 0")

    def stale(self: Door, path: str) -> os.statvfs_result:
        raise OSError(116, "Stale file handle", path)

    monkeypatch.setattr(Door, "statvfs", stale)
    assert look(machine, "mount", path="/home") == (BAD, "/home does not answer: Stale file handle", False)


def test_space(machine: Machine) -> None:
    assert run(machine, "space", path="/", min_free_percent=0, max_used_percent=100, min_mib=1) == (GOOD, "")
    assert run(machine, "space", path="/", min_free_percent=101)[0] == BAD
    assert run(machine, "space", path="/", max_mib=1)[1].startswith("/: mib is ")
    assert run(machine, "space", path="/scratch", min_mib=1) == (BAD, "/scratch is not mounted")
    machine.file("/scratch/x")
    assert run(machine, "space", path="/scratch", min_mib=1, mounted=False) == (GOOD, "")


def test_files(machine: Machine) -> None:
    path = machine.file("/etc/x", "abc\n")
    path.chmod(0o640)
    os.utime(path, (1000, 1000))
    machine.file("/etc/new")
    machine.link("/etc/link", "x")
    assert run(machine, "file", path="/etc/x", type="file", mode="0640", min_bytes=4, max_bytes=4, empty=False) == (
        GOOD,
        "",
    )
    for params, words in (
        ({"type": "folder"}, "is a file, expected a folder"),
        ({"mode": "0644"}, "has mode 0640, expected 0644"),
        ({"mode_without": "0040"}, "none of the bits 0040"),
        ({"mode_with": "0001"}, "all bits of 0001"),
        ({"min_bytes": 5}, "is 4 bytes long"),
        ({"max_age_s": 5}, "seconds old"),
        ({"uid": 77}, "user"),
        ({"empty": True}, "is not empty"),
        ({"executable": True}, "is not executable"),
        ({"newer_than": "/etc/new"}, "is not newer"),
        ({"same_as": "/etc/new"}, "is not the same"),
        ({"owner": "nobody-here"}, "belongs to"),
        ({"present": False}, "is there"),
        ({"links": 2}, "links"),
    ):
        assert run(machine, "file", path="/etc/x", **params)[0] == BAD, params
        assert words in run(machine, "file", path="/etc/x", **params)[1], params
    assert run(machine, "file", path="/etc/x", older_than="/etc/new") == (GOOD, "")
    assert run(machine, "file", path="/etc/link", type="link", target="x") == (GOOD, "")
    assert run(machine, "file", path="/etc/link", target="y") == (BAD, "/etc/link leads to x, expected y")
    assert run(machine, "file", path="/etc/none") == (BAD, "/etc/none is not there")
    assert run(machine, "file", path="/etc/none", present=False) == (GOOD, "")
    assert run(machine, "file", path="/etc/x/y", present=True)[0] == UNKNOWN
    assert run(machine, "file", path="/etc/x", mode="rw")[0] == UNKNOWN


def test_contents(machine: Machine) -> None:
    machine.file("/etc/c", "a=1\nb=2\n")
    assert run(machine, "contents", path="/etc/c", lines=["a=*", "/^b=2$/", "!c=*"], without=["c*"]) == (GOOD, "")
    assert run(machine, "contents", path="/etc/c", lines=["c=*"]) == (BAD, "/etc/c: no line that is c=*")
    assert run(machine, "contents", path="/etc/c", without=["/b/"]) == (BAD, "/etc/c: b=2")
    assert run(machine, "contents", path="/etc/none")[0] == UNKNOWN


def test_commands(machine: Machine) -> None:
    machine.tool("probe", "all is well\n", err="a word\n")
    assert run(machine, "command", argv=["probe"], output=["all*"], without=["*error*"]) == (GOOD, "")
    assert run(machine, "command", argv=["probe"], without=["*word*"]) == (GOOD, "")
    assert run(machine, "command", argv=["probe"], without=["*word*"], stderr=True)[0] == BAD
    machine.tool("failing", status=3, err="no such thing\n")
    assert run(machine, "command", argv=["failing"]) == (BAD, "failing ended with status 3, expected 0: no such thing")
    assert run(machine, "command", argv=["failing"], status=[0, 3]) == (GOOD, "")
    assert run(machine, "command", argv=["failing"], status=[]) == (GOOD, "")
    assert run(machine, "command", argv=["absent"]) == (UNKNOWN, "absent is not installed")
    machine.tool("hangs", script="sleep 30")
    assert run(machine, "command", argv=["hangs"], wait_s=0.2) == (UNKNOWN, "hangs did not answer in 0.2 s")


# processes


def test_processes(machine: Machine) -> None:
    machine.process(10, "sshd", "/usr/sbin/sshd -D")
    machine.process(11, "python3", "/usr/bin/python3 /usr/sbin/tuned -l")
    machine.process(12, "nvidia-persiste", "/usr/bin/nvidia-persistenced --user nvidia-persistenced")
    machine.process(13, "defunct", state="Z")
    for name in ("sshd", "tuned", "nvidia-persistenced", "ssh*"):
        assert run(machine, "process", name=name) == (GOOD, ""), name
    assert run(machine, "process", name="-D", match="line")[0] == BAD
    assert run(machine, "process", name="*sshd -D", match="line") == (GOOD, "")
    assert run(machine, "process", name="munged") == (BAD, "munged does not run")
    assert run(machine, "process", name="defunct") == (BAD, "defunct does not run")
    assert run(machine, "process", name="sshd", min=0, max=0) == (BAD, "1 process sshd runs (10)")
    assert run(machine, "process", name="sshd", min=2) == (BAD, "1 processes sshd run, expected 2")
    assert run(machine, "process", name="xmrig", min=0, max=0) == (GOOD, "")
    assert run(machine, "process", name="sshd", user="root")[0] == (GOOD if os.geteuid() == 0 else BAD)


def test_a_process_that_calls_itself_otherwise(machine: Machine) -> None:
    machine.process(10, "nginx", "nginx: master process /usr/sbin/nginx")
    machine.process(11, "python3", "/usr/bin/python3 /usr/bin/train.py")
    assert run(machine, "process", name="nginx:", match="command") == (GOOD, "")
    assert run(machine, "process", name="nginx", match="command") == (GOOD, "")
    assert run(machine, "process", name="nginx:")[0] == BAD
    assert run(machine, "process", name="train.py")[0] == GOOD
    assert run(machine, "process", name="train.py", match="command")[0] == BAD     # the script is no command
    assert run(machine, "process", name="!nginx*", match="command", min=2)[0] == BAD


def test_the_name_of_an_editor_is_no_daemon(machine: Machine) -> None:
    machine.process(10, "vim", "vim /etc/sshd")
    assert run(machine, "process", name="sshd")[0] == BAD
    assert not process.is_called(Door(str(machine.root)).processes()[0], "!vim", "name")


def test_usage(machine: Machine) -> None:
    machine.process(10, "busy", user_s=432000, start_s=0, pages=10)  # half of ten days
    machine.process(11, "big", user_s=1, pages=1 << 20)
    machine.process(12, "kthread", user_s=800000, start_s=0, kernel=True)
    assert run(machine, "usage", what="cpu_percent", max=60) == (GOOD, "")
    status, reason = run(machine, "usage", what="cpu_percent", max=40)
    assert (status, "busy (process 10 of" in reason, "50" in reason) == (BAD, True, True)
    assert "big (process 11" in run(machine, "usage", what="resident_mib", max=4000)[1]
    assert run(machine, "usage", what="resident_mib", max=4000, name="busy") == (GOOD, "")
    assert run(machine, "usage", what="cpu_time_s", max=432000.5) == (GOOD, "")
    assert "all processes of" in run(machine, "usage", what="cpu_time_s", max=432000.5, total=True)[1]
    assert run(machine, "usage", what="memory_percent", max=0.5)[0] == BAD


@pytest.mark.skipif(os.geteuid() != 0, reason="gives processes to users")
def test_stray_processes_of_users(machine: Machine) -> None:
    machine.process(20, "slurmstepd", parent=1)
    machine.process(21, "job", parent=20)
    machine.process(22, "left", parent=1)
    machine.process(
        23, "adopted", parent=1, cgroup="0::/system.slice/slurmstepd.scope/job_77/step_extern/user/task_0\n"
    )
    for pid, uid in ((21, 5001), (22, 5002), (23, 5003)):
        os.chown(machine.root / "proc" / str(pid), uid, 0)
    status, reason = run(machine, "users")
    assert (status, reason) == (BAD, "1 process of 5002 without a job, as left (22)")
    assert run(machine, "users", allowed=["5002"]) == (GOOD, "")
    assert run(machine, "users", max=1) == (GOOD, "")
    assert run(machine, "users", min_uid=6000) == (GOOD, "")
    os.chown(machine.root / "proc/22", 5001, 0)  # has a job beside it
    assert run(machine, "users") == (GOOD, "")
    assert run(machine, "users", jobs=False)[0] == BAD
    assert "3 processes" in run(machine, "users", jobs=False, stray=False)[1]


def test_kswapd(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    machine.process(40, "kswapd0", kernel=True, user_s=100)
    assert run(machine, "kswapd", kept, 1000) == (GOOD, "")  # nothing to compare with
    machine.process(40, "kswapd0", kernel=True, user_s=110)
    assert run(machine, "kswapd", kept, 1100) == (GOOD, "")
    machine.process(40, "kswapd0", kernel=True, user_s=200)
    assert run(machine, "kswapd", kept, 1200) == (BAD, "kswapd (process 40) takes 90 % of a CPU, more than 80")
    assert run(machine, "kswapd", max_time_s=150)[0] == BAD


@pytest.mark.skipif(os.geteuid() != 0, reason="gives processes to users")
@pytest.mark.parametrize(("uid", "status"), [(65534, GOOD), (62000, GOOD), (100001, BAD), (999, GOOD)])
def test_users_of_the_system(machine: Machine, uid: int, status: str) -> None:
    machine.process(22, "daemon", parent=1)
    os.chown(machine.root / "proc/22", uid, 0)
    assert run(machine, "users")[0] == status


def test_every_check_is_unknown_or_good_on_an_empty_node(tmp_path: Path) -> None:
    """Nothing to read is never bad, but where it was asked that something be there."""
    required = {
        "mount": {"path": "/"},
        "space": {"path": "/", "mounted": False},
        "file": {"path": "/", "type": "folder"},
        "contents": {"path": "/x"},
        "command": {"argv": ["x"]},
        "process": {"name": "x", "min": 0},
        "ping": {"host": "x"},
        "usage": {"what": "cpu_percent", "max": 1},
        "link": {"name": "x", "min": 0},
        "ib": {"ports": 0},
        "socket": {"min": 0},
        "drift": {"accepted": "/nonexistent"},
    }
    for name in load.names():
        if name.startswith("nhc"):
            continue
        check = load.named(name)
        if name == "mount":
            continue
        status, reason, _ = watch.judged(watch.look(check, Door(str(tmp_path)), check.take(required.get(name, {}))))
        assert status in (GOOD, UNKNOWN), (name, reason)


def test_hostile_text_stays_text(machine: Machine) -> None:
    machine.process(10, "x\n;rm -rf", "a\x1b[31mb")
    status, reason = run(machine, "process", name="x*", max=0, min=0)
    assert status == BAD
    assert "\n" not in reason
    assert "\x1b" not in reason
    assert stat.S_ISREG(machine.file("/x").stat().st_mode)



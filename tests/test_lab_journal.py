"""The journal, the identity of processes, and what is said where there is no lab or no right to make one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcadmin.cli import run
from hpcadmin.errors import LabError, UsageError
from hpcadmin.lab import Options, cgroups, faults, journal, machine, slurmlog, slurmwait, spawn, start, stop


@pytest.fixture()
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(journal, "ROOT", tmp_path / "labs")
    return tmp_path / "labs"


@pytest.fixture()
def as_root(monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def saved(name: str = "lab", **options) -> journal.Lab:
    lab = start.plan(Options(name=name, **options))
    lab.dir.mkdir(parents=True)
    journal.save(lab)
    return lab


def test_journal_comes_back_as_it_was(root) -> None:
    lab = saved(hardware="", nodes=3)
    lab = lab.with_process("node02", journal.Process(1234, 99)).with_faults("node03", ("rate 100mbit",))
    journal.save(lab)
    assert journal.load("lab") == lab
    assert journal.load("lab").with_faults("node03", ()).faults == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', "[" * 100_000])
def test_damaged_journal_is_one_line(root, text: str) -> None:
    saved()
    (root / "lab/lab.json").write_text(text)
    with pytest.raises(LabError) as caught:
        journal.load("lab")
    assert "lab.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_journal_of_another_version(root) -> None:
    lab = saved()
    plain = json.loads((lab.dir / "lab.json").read_text()) | {"schema": 99}
    (lab.dir / "lab.json").write_text(json.dumps(plain))
    with pytest.raises(LabError, match="schema 99"):
        journal.load("lab")


def test_a_process_is_known_by_its_start_time() -> None:
    own = journal.identify(os.getpid())
    assert journal.alive(own)
    assert own is not None
    assert not journal.alive(journal.Process(own.pid, own.start + 1))
    assert not journal.alive(None)
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = journal.identify(child.pid)
    while Path(f"/proc/{child.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    assert not journal.alive(process)      # its remains wait for us, but it runs no more
    child.wait()


def test_a_reused_id_is_not_killed() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        process = journal.identify(child.pid)
        assert process is not None
        assert not stop.kill(journal.Process(process.pid, process.start - 1), 9)
        assert child.poll() is None
        assert stop.kill(process, 9)
        assert child.wait(10) == -9
    finally:
        child.kill()
        child.wait()


def test_only_one_holds_the_lock(root) -> None:
    saved()
    with journal.locked("lab") as first:
        assert first
        with journal.locked("lab", wait_s=0.05) as second:
            assert not second
    with journal.locked("lab") as again:
        assert again


def test_down_without_a_lab_is_no_error(root, as_root) -> None:
    assert stop.down("lab") is False
    assert stop.down("lab") is False


def test_down_removes_what_an_early_crash_left(root, as_root) -> None:
    (root / "lab/root").mkdir(parents=True)
    assert stop.down("lab") is True
    assert not root.exists()


def test_names_in_use_and_ranges_of_other_labs(root) -> None:
    saved("one", net="10.199.0.0/24")
    with pytest.raises(LabError, match="lab one was left half made"):
        machine.require_free("one", "10.198.0.0/24", "hl-one")
    with pytest.raises(LabError, match=r"range 10.199.0.0/25 is used by lab one"):
        machine.require_free("two", "10.199.0.0/25", "hl-two")


def test_ranges_of_the_machine(root, monkeypatch) -> None:
    monkeypatch.setattr(machine, "used_ranges", lambda: [("10.198.1.5/16", "address of eth9")])
    with pytest.raises(LabError, match=r"overlaps 10.198.1.5/16 \(address of eth9\)"):
        machine.require_free("two", "10.198.0.0/24", "hl-two")


def test_what_the_machine_lacks() -> None:
    with pytest.raises(LabError, match="no overlayfs"):
        machine.require_overlay("nodev\tproc\n\text4\n")
    machine.require_overlay("nodev\toverlay\n")


def test_packages_are_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(machine, "in_root", lambda base, program: program not in ("slurmd", "munged"))
    monkeypatch.setattr(machine, "tool", lambda name: f"/bin/{name}")
    with pytest.raises(LabError, match=r"not installed: munged, slurmd \(apt-get install munge slurmd\)"):
        machine.require_tools("/", accounting=False)
    with pytest.raises(UsageError, match="lacks munged, slurmd"):
        machine.require_tools(str(tmp_path), accounting=False)
    monkeypatch.setattr(machine, "tool", lambda name: "")
    with pytest.raises(LabError, match="not installed: iproute2"):
        machine.require_tools("/", accounting=False)


@pytest.mark.parametrize(("args", "status", "said"), [
    (["up", "--name", "X"], 2, "cannot be the name"),
    (["up", "--nodes", "0"], 2, "1 to 64"),
    (["up", "--net", "10.0.0.0/31"], 2, "does not fit"),
    (["up", "--conf", "/nonexistent"], 2, "has no slurm.conf"),
    (["up", "--base", "/nonexistent"], 2, "not a root file system"),
    (["up", "--hardware", "nothing"], 2, "nothing"),
    (["up", "--hardware-node", "node09=8xH100"], 2, "no such node"),
    (["up", "--hardware-node", "node01"], 2, "NODE=PROFILE"),
    (["up"], 4, "needs root"),
    (["down"], 4, "needs root"),
    (["exec", "--", "true"], 4, "needs root"),
    (["fault", "node01", "--down"], 4, "needs root"),
    (["status"], 4, "is not up"),
    (["env"], 4, "is not up"),
])
def test_one_line_and_the_right_status(*, root, monkeypatch, capsys, args: list[str], status: int, said: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["lab", *args]) == status
    out = capsys.readouterr()
    assert out.err.startswith("hpcadmin: ")
    assert said in out.err
    assert out.err.count("\n") == 1


@pytest.mark.parametrize(("args", "status", "said"), [
    (["node09", "--down"], 2, "has no host 'node09'"), (["head", "--down"], 2, "not a node"),
    (["node01"], 2, "no fault named"), (["node01", "--heal", "--down"], 2, "goes with no other"),
    (["node01", "--rate", "fast"], 2, "not a rate"), (["node01", "--down"], 4, "left half made"),
])
def test_faults_that_are_refused(*, root, as_root, capsys, args: list[str], status: int, said: str) -> None:
    saved()
    assert run(["lab", "fault", *args]) == status
    assert said in capsys.readouterr().err


def test_faults_have_names() -> None:
    what = faults.Fault(rate="1gbit", kill_slurmd=True, gpu=5, gpu_fault="lost")
    assert what.texts() == ["rate 1gbit", "slurmd killed", "gpu 5 lost"]
    assert faults.Fault(heal=True).texts() == []


LOG = """\
slurmctld: error: Could not open node state file /var/spool/slurmctld/node_state: No such file or directory
slurmctld: error: NOTE: Trying backup state save file. Information may be lost!
[2026-01-01T00:00:00.000] error: _parse_next_key: Parsing error at unrecognized key: KillWaitt
slurmctld: fatal: Unable to process configuration file
""".splitlines()


def test_the_cause_is_found_in_a_log() -> None:
    assert slurmlog.fatal(LOG) == ("fatal: Unable to process configuration file "
                                   "(error: _parse_next_key: Parsing error at unrecognized key: KillWaitt)")
    assert slurmlog.errors(LOG) == ["error: _parse_next_key: Parsing error at unrecognized key: KillWaitt"]
    assert slurmlog.fatal(LOG[:2]) == ""


@pytest.mark.parametrize(("states", "said"), [
    ({"node01": ("inval", "Low RealMemory")}, "Slurm says inval: Low RealMemory"),
    ({"node02": ("idle", "none")}, "no partition with node01"),
    ({"node01": ("drained", "bad disk")}, "Slurm says drained: bad disk"),
])
def test_nodes_that_never_will_be_idle(states: slurmwait.States, said: str) -> None:
    with pytest.raises(LabError, match=said):
        slurmwait._raise_wrong(states, ["node01"])


def test_hierarchies_of_control_groups() -> None:
    text = ("30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
            "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
            "32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
            "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\nshort\n")
    assert [(h.point.rpartition("/")[2], h.options) for h in cgroups.hierarchies(text)] == [
        ("cpu,cpuacct", "cpu,cpuacct"), ("systemd", "name=systemd"), ("unified", "")]
    assert cgroups.own_paths("4:cpu,cpuacct:/user\n0::/a/b\n1:name=x:/../..\n") == {"cpu,cpuacct": "/user", "": "/a/b"}


def test_a_control_group_that_is_gone_again_is_made_once_more(tmp_path: Path) -> None:
    cgroups._enter_one(tmp_path / "hpcadmin-lab-x", "node01")
    assert (tmp_path / "hpcadmin-lab-x/node01/cgroup.procs").read_text() == "0"
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="procs"):          # none can be made there
        cgroups._enter_one(tmp_path / "file/lab", "node01")


def test_a_child_that_is_never_told_to_go_ends(monkeypatch) -> None:
    monkeypatch.setattr(spawn.sc, "unshare", lambda flags: None)      # needs no root, and no namespaces
    child = spawn.spawn("x", lambda: os._exit(7))
    assert journal.alive(child.process)
    child.close()
    assert stop.wait_gone([child.process], 10.0) == []


def test_a_child_says_why_it_fails(monkeypatch) -> None:
    def broken() -> None:
        raise OSError(28, "overlayfs on /: No space left on device")
    monkeypatch.setattr(spawn.sc, "unshare", lambda flags: None)
    child = spawn.spawn("node01", broken)
    child.release()
    with pytest.raises(LabError, match="node01: overlayfs on /: No space left on device"):
        spawn.wait_ready([child], timeout_s=10, stop=lambda: None)
    child.close()

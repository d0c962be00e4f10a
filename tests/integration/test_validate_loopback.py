"""validate against a real Slurm with small checks of its own: what goes right, what goes wrong, what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, free_ports, loopback, wait_until

from hpcadmin.check import Status
from hpcadmin.rundata import Run, read_run

pytestmark = pytest.mark.lab

CHECKS = {
    "says": '''
def steps(c):
    return (Step(("sh", "-c", 'echo "value 42"; echo "$SLURMD_NODENAME"')),)
def parse(o, c):
    lines = o[0].text.split()
    return [Measurement("value", int(lines[1]), expected=42, subject=Subject((lines[2],)))]
CHECK = Check("says", "Says 42", Scope.NODE, steps, parse)
''',
    "hangs": '''
def steps(c):
    return (Step(("sh", "-c", "echo begun; [ $SLURMD_NODENAME != n02 ] || exec sleep 90"), timeout_s=5.5),)
def parse(o, c):
    return [Measurement("ok", 1, expected=1, subject=Subject((o[0].node,)))]
CHECK = Check("hangs", "Hangs on n02", Scope.NODE, steps, parse)
''',
    "forges": '''
from hpcadmin.check import *
TEXT = "HPCADMIN-FRAME 1 id=t0001 step=0 role=each node=n01 host=n01 status=0 start=1 end=2 bytes=2 crc=1 flags=-"
def steps(c):
    return (Step(("printf", "%s\\\\n", TEXT, "x", TEXT)),)
def parse(o, c):
    good = o[0].text == TEXT + "\\nx\\n" + TEXT + "\\n"
    return [Measurement("kept", str(good), expected="True", subject=Subject((o[0].node,)))]
CHECK = Check("forges", "Prints frames", Scope.NODE, steps, parse)
''',
    "crashes": '''
def steps(c):
    return (Step(("sh", "-c", "echo x")),)
def parse(o, c):
    return [1 / 0]
CHECK = Check("crashes", "A parser with a defect", Scope.NODE, steps, parse)
''',
    "pairs": '''
def steps(c):
    return (Step(("sh", "-c", 'echo "$SLURM_PROCID $SLURMD_NODENAME"; sleep 0.2'), Role.RANKS),)
def parse(o, c):
    found = dict(line.split() for line in o[0].text.splitlines())
    if sorted(found.values()) != sorted(n.name for n in c.nodes):
        raise ParseError(f"answered: {found}")
    subject = Subject(tuple(n.name for n in c.nodes))
    return [Measurement("ranks", len(found), expected=2, subject=subject, pairs_at_once=c.pairs_at_once)]
CHECK = Check("pairs", "Two ranks answer", Scope.PAIR, steps, parse)
''',
    "talks": '''
import sys
SERVER = """import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); time.sleep(0.2)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); c, _ = s.accept(); print(c.recv(99).decode())
"""
CLIENT = """import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); s.sendall(b"hello"); print("sent")
"""
def steps(c):
    p = str(c.port_base)
    return (Step((sys.executable, "-c", SERVER, p), Role.SERVER, ready=Ready(port=c.port_base, timeout_s=60)),
            Step((sys.executable, "-c", CLIENT, p), Role.CLIENT))
def parse(o, c):
    texts = {x.role.value: x.text.strip() for x in o}
    return [Measurement("heard", texts["server"], expected="hello", subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("talks", "Client and server", Scope.PAIR, steps, parse)
''',
    "deaf": '''
def steps(c):
    ready = Ready(port=c.port_base, timeout_s=1)
    return (Step(("sh", "-c", "echo no listener; exec sleep 90"), Role.SERVER, ready=ready),
            Step(("echo", "client"), Role.CLIENT))
def parse(o, c):
    raise AssertionError("must not be called")
CHECK = Check("deaf", "A server that never listens", Scope.PAIR, steps, parse)
''',
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    # A job that is cancelled ends soon, one that can begin is not kept waiting, and a node that is dead is missed soon.
    settings = {"KillWait": "2", "SlurmdTimeout": "15",
                "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"}
    with loopback(tmp_path_factory.mktemp("loop") / "slurm", settings=settings) as running:
        checks = running.dir / "checks"
        checks.mkdir()
        for name, text in CHECKS.items():
            (checks / f"{name}.py").write_text("from hpcadmin.check import *\n" + text)
            (running.dir / f"{name}.toml").write_text(f'[[entry]]\ncheck = "{name}"\n')
        (running.dir / "all.toml").write_text("".join(
            f'[[entry]]\ncheck = "{n}"\n' for n in ("says", "hangs", "forges", "crashes", "pairs", "talks", "deaf")))
        (running.dir / "site.toml").write_text(f'[run]\nchecks_dir = "{checks}"\n[slurm]\nmpi = "none"\n')
        (running.dir / "inventory.json").write_text(json.dumps({
            "schema": 1, "nodes": [{"name": n} for n in running.nodes]}))
        yield running


def args(cluster: Loopback, suite: str, *more: str) -> list[str]:
    return ["--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / f"{suite}.toml"), *more]


def runs(cluster: Loopback) -> list[Path]:
    return sorted((cluster.dir / "admin/runs").glob("2*"), key=lambda p: p.stat().st_mtime)


def last(cluster: Loopback) -> Run:
    return read_run(runs(cluster)[-1])


def by_check(run: Run) -> dict[str, Counter[Status]]:
    found: dict[str, Counter[Status]] = {}
    for verdict in run.verdicts:
        found.setdefault(verdict.check, Counter())[verdict.status] += 1
    return found


def validate(cluster: Loopback, suite: str, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
    return cluster.hpcadmin(*args(cluster, suite, *more), **env)


def test_all_kinds_of_tests_at_once(cluster: Loopback) -> None:
    done = validate(cluster, "all", SQUEUE_FORMAT="%j", SBATCH_PARTITION="off")
    run = last(cluster)
    assert done.returncode == 3, done.stdout + done.stderr
    assert by_check(run) == {
        "says": {Status.PASS: 4}, "hangs": {Status.PASS: 3, Status.ERROR: 1}, "forges": {Status.PASS: 4},
        "crashes": {Status.ERROR: 4}, "pairs": {Status.PASS: 6}, "talks": {Status.PASS: 6}, "deaf": {Status.ERROR: 6}}
    reasons = {(v.check, v.subject.nodes): v.reason for v in run.verdicts}
    assert "did not end within 5.5 s" in reasons["hangs", ("n02",)]
    assert "ZeroDivisionError" in reasons["crashes", ("n01",)]
    assert "not ready within 1 s" in reasons["deaf", ("n01", "n02")]
    assert run.problems == ()
    assert (run.manifest.state, run.manifest.exit_status) == ("complete", 3)
    assert run.plan and [j.kind for j in run.plan.jobs] == ["suite"]
    cluster.wait_empty()
    assert len(run.measured) == 4 + 3 + 4 + 6 + 6
    assert "n02" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    for verdict in run.verdicts:
        for ref in verdict.outputs:
            assert (run.path / ref.partition("#")[0]).is_file()
    assert oct(run.path.stat().st_mode & 0o777) == "0o700"


def test_all_good_is_exit_0_and_json(cluster: Loopback) -> None:
    done = validate(cluster, "pairs", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)
    run = last(cluster)
    assert {v.status for v in run.verdicts} == {Status.PASS}
    assert {m.measurement.pairs_at_once for m in run.measured} == {2}
    script = (run.path / "jobs/1/script").read_text()
    assert f"--comment=hpcadmin:{run.manifest.run_id}:1" in script
    before = {p: p.read_bytes() for p in (run.path / "jobs/1").glob("*.log")}
    cluster.slurm("sbatch", "--wait", str(run.path / "jobs/1/script"))      # by hand: works, and changes no result
    assert {p: p.read_bytes() for p in (run.path / "jobs/1").glob("*.log")} == before
    assert list((run.path / "jobs/1").glob("by-hand-*/done"))


def test_plan_submits_nothing(cluster: Loopback) -> None:
    before = runs(cluster)
    done = validate(cluster, "pairs", "--plan")
    assert done.returncode == 0, done.stderr
    assert "round" in done.stdout
    assert "6 tests" in done.stdout
    assert runs(cluster) == before
    plan = json.loads(validate(cluster, "pairs", "--plan", "--json").stdout)["plan"]
    assert len(plan["tests"]) == 6


def test_two_runs_at_the_same_time(cluster: Loopback) -> None:
    many = [cluster.begin(*args(cluster, "says")) for _ in range(2)]
    for process in many:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert len({p.name for p in runs(cluster)}) == len(runs(cluster))


def test_drained_and_unknown_nodes_are_not_run_and_named(cluster: Loopback) -> None:
    cluster.slurm("scontrol", "update", "nodename=n03", "state=drain", "reason=bad fan")
    try:
        done = validate(cluster, "says", "-w", "n[01-03],n99")
    finally:
        cluster.slurm("scontrol", "update", "nodename=n03", "state=resume")
    assert done.returncode == 3
    run = last(cluster)
    assert run.plan and {s.node: s.reason for s in run.plan.skipped} == {
        "n03": "drained: bad fan", "n99": "Slurm has no node of that name"}
    assert by_check(run) == {"says": {Status.PASS: 2}, "availability": {Status.NOT_RUN: 2}}
    assert "bad fan" in done.stdout


REFUSED: list[tuple[list[str], int, str]] = [
    (["-w", "n[01-"], 2, "malformed hostlist"),
    (["-w", "x[1-3]"], 2, "no node of this Slurm"),
    (["--partition", "nope"], 2, "no partition 'nope'"),
    (["--partition", "off"], 4, "partition off is DOWN"),
    (["--suite", "nope"], 2, "unknown suite 'nope'"),
    (["--inventory", "/no/such.json"], 2, "cannot be read"),
    (["--reservation", "nope"], 2, "no such reservation"),
    (["--account", "a b\nc"], 2, "cannot be given to Slurm"),
    (["--partition", "short", "--time-limit", "9"], 4, "would never start"),
]


@pytest.mark.parametrize(("more", "status", "what"), REFUSED, ids=lambda x: str(x)[:30])
def test_refused(cluster: Loopback, more: list[str], status: int, what: str) -> None:
    before = cluster.jobs()
    done = validate(cluster, "says", *more)
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("hpcadmin:")]
    assert len(lines) == 1
    assert what in lines[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    new = cluster.jobs() - before               # what Slurm itself would keep for ever is known only behind sbatch
    assert len(new) == (what == "would never start")
    states = [cluster.slurm("squeue", "-h", "-a", "-t", "all", "-j", number, "-o", "%T").strip() for number in new]
    assert set(states) <= {"CANCELLED"}, states


def test_a_suite_with_an_unknown_check_names_file_and_line(cluster: Loopback) -> None:
    (cluster.dir / "typo.toml").write_text('title = "x"\n\n[[entry]]\ncheck = "sayss"\n')
    done = validate(cluster, "typo")
    assert done.returncode == 2
    assert "typo.toml:4" in done.stderr
    assert "'sayss'" in done.stderr


def test_root_is_refused(cluster: Loopback) -> None:
    done = cluster.hpcadmin(*[a for a in args(cluster, "says") if a != "--allow-root"])
    assert done.returncode == 2
    assert "--allow-root" in done.stderr


def test_a_controller_that_does_not_answer(cluster: Loopback, tmp_path: Path) -> None:
    conf = (cluster.dir / "slurm.conf").read_text()
    for key, value in (("SlurmctldPort", free_ports(1)), ("MessageTimeout", 1)):
        conf = re.sub(rf"(?m)^{key}=.*", f"{key}={value}", conf)
    (tmp_path / "slurm.conf").write_text(conf)
    done = validate(cluster, "says", SLURM_CONF=str(tmp_path / "slurm.conf"))
    assert done.returncode == 4
    assert "controller" in done.stderr
    done = validate(cluster, "says", SLURM_CONF=str(tmp_path / "none.conf"))
    assert done.returncode == 4
    assert "slurm.conf" in done.stderr


def test_slurm_is_not_installed(cluster: Loopback, tmp_path: Path) -> None:
    done = validate(cluster, "says", PATH=str(tmp_path))
    assert done.returncode == 4
    assert "not installed" in done.stderr


def test_a_full_disk_and_a_place_that_cannot_be_written(cluster: Loopback, tmp_path: Path) -> None:
    disk, before = tmp_path / "disk", cluster.jobs()
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
    try:
        done = validate(cluster, "says", "--run-dir", str(disk / "runs"))
        assert (done.returncode, "No space left" in done.stderr) == (2, True), done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    (tmp_path / "file").write_text("")
    done = validate(cluster, "says", "--run-dir", str(tmp_path / "file" / "runs"))
    assert done.returncode == 2
    assert "cannot be created" in done.stderr
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(disk)], check=True)
    try:
        done = validate(cluster, "says", "--run-dir", str(disk))
        assert (done.returncode, "cannot be written" in done.stderr) == (2, True), done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert cluster.jobs() <= before


def test_a_disk_that_fills_up_in_the_middle(cluster: Loopback, tmp_path: Path) -> None:
    """A node's output that could not be kept is an error of that test, never a shorter output."""
    (cluster.dir / "checks/floods.py").write_text('''
from hpcadmin.check import *
def steps(c):
    return (Step(("head", "-c", "3000000", "/dev/zero")),)
def parse(o, c):
    return [Measurement("bytes", len(o[0].text), expected=3000000, subject=Subject((o[0].node,)))]
CHECK = Check("floods", "Prints a lot", Scope.NODE, steps, parse)
''')
    (cluster.dir / "floods.toml").write_text('[[entry]]\ncheck = "floods"\n')
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)], check=True)
    try:
        done = validate(cluster, "floods", "--run-dir", str(disk))
        assert "Traceback" not in done.stderr
        assert done.returncode in (2, 3)
        cluster.wait_empty()
        run = read_run(next(disk.glob("2*")))
        assert {v.status for v in run.verdicts} <= {Status.PASS, Status.ERROR, Status.NOT_RUN}
        assert sum(v.status is Status.PASS for v in run.verdicts) < 4
    finally:
        cluster.wait_idle(len(cluster.nodes))
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_node_that_dies_in_the_middle(cluster: Loopback) -> None:
    """All are at their first step then, and go on when it is dead."""
    there = cluster.dir / "there"
    there.mkdir()
    (cluster.dir / "checks/waits.py").write_text(f'''
from hpcadmin.check import *
WAIT = ': >"{there}/$SLURMD_NODENAME"; until [ -e "{there}/go" ]; do sleep 0.1; done; echo done'
def steps(c):
    return (Step(("sh", "-c", WAIT), timeout_s=100.0),)
def parse(o, c):
    return [Measurement("ok", o[0].text.strip(), expected="done", subject=Subject((o[0].node,)))]
CHECK = Check("waits", "Waits", Scope.NODE, steps, parse)
''')
    (cluster.dir / "dies.toml").write_text('[[entry]]\ncheck = "waits"\n[[entry]]\ncheck = "pairs"\n')
    process = cluster.begin(*args(cluster, "dies"))
    try:
        wait_until(lambda: {path.name for path in there.iterdir()} == set(cluster.nodes) or process.poll() is not None)
        cluster.kill("n04")
        (there / "go").touch()
        _, err = process.communicate(timeout=240)
        assert process.returncode == 3, err
        run = last(cluster)
        found = by_check(run)
        assert found["waits"] == {Status.PASS: 3, Status.ERROR: 1}
        assert found["pairs"] == {Status.PASS: 3, Status.ERROR: 3}
        assert all("n04" in v.subject.nodes for v in run.verdicts if v.status is Status.ERROR)
    finally:
        cluster.start_node("n04")
        cluster.wait_idle(len(cluster.nodes))


def test_a_look_job_comes_first_where_there_is_no_inventory(cluster: Loopback) -> None:
    (cluster.dir / "own.toml").write_text('[[entry]]\ncheck = "says"\n[[entry]]\ncheck = "mpi_hello"\n')
    command = [a for a in args(cluster, "own") if a not in ("--inventory", str(cluster.dir / "inventory.json"))]
    done = cluster.hpcadmin(*command)
    run = last(cluster)
    assert run.plan and [j.number for j in run.plan.jobs] == [2], done.stderr
    assert run.inventory and [n.name for n in run.inventory.nodes] == cluster.nodes
    assert run.inventory.nodes[0].kernel == os.uname().release
    assert by_check(run)["says"] == {Status.PASS: 4}
    assert list((cluster.dir / "admin/bin").glob("*/mpi_hello"))
    assert (run.path / "src/mpi_hello.c").is_file()


def test_a_compiler_that_fails_is_told_in_its_words(cluster: Loopback, tmp_path: Path) -> None:
    broken = tmp_path / "mpicc"
    broken.write_text("#!/bin/sh\necho 'x.c:1: error: mpi.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    site = tmp_path / "site.toml"
    site.write_text((cluster.dir / "site.toml").read_text() + f'[tools.mpicc]\npath = "{broken}"\n')
    (cluster.dir / "own.toml").write_text('[[entry]]\ncheck = "says"\n[[entry]]\ncheck = "mpi_hello"\n')
    command: list[Any] = args(cluster, "own")
    command[1] = str(site)
    done = cluster.hpcadmin(*command)
    assert done.returncode == 3, done.stderr
    run = last(cluster)
    assert by_check(run) == {"says": {Status.PASS: 4}, "mpi_hello": {Status.NOT_RUN: 1}}
    assert "mpi.h: No such file" in next(v.reason for v in run.verdicts if v.check == "mpi_hello")

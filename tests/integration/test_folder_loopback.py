"""The run folder on real Slurms: outputs that a step brings, on every version; disks that are full or read-only."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loopback import Loopback, at_hand, loopback
from slurm_roots import NAMES

from hpcadmin import run_carry
from hpcadmin.check import Status
from hpcadmin.run_carry import Carrier
from hpcadmin.rundata import Run, read_run

pytestmark = pytest.mark.lab

CHECKS = {
    "says": '''
def steps(c):
    return (Step(("sh", "-c", 'echo "$SLURMD_NODENAME 42"')),)
def parse(o, c):
    node, value = o[0].text.split()
    return [Measurement("value", int(value), expected=42, subject=Subject((node,)))]
CHECK = Check("says", "Says 42", Scope.NODE, steps, parse)
''',
    "floods": '''
def steps(c):
    return (Step(("sh", "-c", "head -c 900000 /dev/zero | tr '\\\\\\\\0' x")),)
def parse(o, c):
    return [Measurement("length", len(o[0].text), expected=900000, subject=Subject((o[0].node,)))]
CHECK = Check("floods", "Prints much", Scope.NODE, steps, parse)
''',
}


def prepare(cluster: Loopback) -> Loopback:
    checks = cluster.dir / "checks"
    checks.mkdir()
    for name, text in CHECKS.items():
        (checks / f"{name}.py").write_text("from hpcadmin.check import *\n" + text)
        (cluster.dir / f"{name}.toml").write_text(f'[[entry]]\ncheck = "{name}"\n')
    for collect in ("shared", "step"):
        (cluster.dir / f"{collect}-site.toml").write_text(
            f'[run]\nchecks_dir = "{checks}"\ncollect = "{collect}"\n[slurm]\nmpi = "none"\n')
    (cluster.dir / "inventory.json").write_text(json.dumps({
        "schema": 1, "nodes": [{"name": n} for n in cluster.nodes]}))
    return cluster


def args(cluster: Loopback, suite: str, *more: str, collect: str = "shared") -> list[str]:
    return ["--site", str(cluster.dir / f"{collect}-site.toml"), "validate", "--allow-root", "--inventory",
            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / f"{suite}.toml"), *more]


def last(runs: Path) -> Run:
    return read_run(max(runs.glob("2*"), key=lambda p: p.stat().st_mtime))


def passed(run: Run) -> Counter[tuple[str, Status]]:
    return Counter((v.check, v.status) for v in run.verdicts)


def lines(err: str) -> list[str]:
    assert "Traceback" not in err
    return [line for line in err.splitlines() if line.startswith("hpcadmin:")]


# --- every version ----------------------------------------------------------------------------------------------


@pytest.fixture(params=list(NAMES), ids=[name or "own" for name in NAMES], scope="module")
def version(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    one = at_hand(request.param)
    with loopback(tmp_path_factory.mktemp(request.param or "own") / "slurm", 2, slurm=one) as cluster:
        yield prepare(cluster)


def test_a_step_brings_the_outputs_of_a_node(version: Loopback) -> None:
    """Of one node: here all of them have the same /tmp."""
    done = version.hpcadmin(*args(version, "says", "-w", "n02", collect="step"))
    assert done.returncode == 0, done.stdout + done.stderr
    run = last(version.dir / "admin/runs")
    assert passed(run) == {("says", Status.PASS): 1}
    token = (run.path / "jobs/1/mark").read_text().strip()
    version.wait_empty()
    assert not Path(f"/tmp/hpcadmin-{token}").exists()


def test_a_step_brings_what_two_nodes_have_and_hears_words(
        version: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(version.env))
    agent = run_carry._AGENT.read_text().replace("folder=$1 turns", "folder=$1.$SLURMD_NODENAME turns")
    monkeypatch.setattr(run_carry, "_AGENT", tmp_path / "agent.sh")
    (tmp_path / "agent.sh").write_text(agent)
    place, job = tmp_path / "away", tmp_path / "job"
    job.mkdir()
    bodies = {node: os.urandom(200_000) for node in version.nodes}
    for node, body in bodies.items():
        there = Path(f"{place}.{node}")
        there.mkdir(mode=0o700)
        (there / f"{node}.log").write_bytes(body)
        (there / "script").touch()
    first = Path(f"{place}.n01")
    (first / "driver.log").write_text("driver\n")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\n#SBATCH -N2 --exclusive --output=/dev/null --chdir=/\n"
                      f"until [ -e {first}/collected ]; do sleep 0.1; done\n")
    number = int(version.slurm("sbatch", "--parsable", str(script)).strip())
    said: list[str] = []
    carrier = Carrier(job, str(place), tuple(version.nodes), 2, said.append)
    end = time.monotonic() + 120
    while not all((Path(f"{place}.{n}") / "stop").exists() for n in version.nodes):
        assert time.monotonic() < end, carrier.problem()
        if not carrier.attached and "RUNNING" in version.slurm("squeue", "-h", "-j", str(number), "-o", "%T"):
            carrier.attach(number)
        carrier.pump()
        if all((job / f"{n}.log").exists() and (job / f"{n}.log").stat().st_size == 200_000 for n in version.nodes):
            (job / "stop").touch()
        time.sleep(0.05)
    (first / "done").write_text("1.5 7\n")
    for node in version.nodes:
        (Path(f"{place}.{node}") / "over").touch()
    while not (job / "done").exists():
        assert time.monotonic() < end, carrier.problem()
        carrier.pump()
        time.sleep(0.05)
    carrier.close()
    version.wait_empty()
    assert {n: (job / f"{n}.log").read_bytes() for n in version.nodes} == bodies and said == []


# --- full, and not to be written --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with loopback(tmp_path_factory.mktemp("full") / "slurm", 2) as running:
        yield prepare(running)


@contextmanager
def small(cluster: Loopback, options: str) -> Iterator[Path]:
    """A file system of its own, with little room."""
    place = cluster.dir / "small"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_outputs_that_do_not_fit_are_errors_or_end_the_run(cluster: Loopback) -> None:
    with small(cluster, "size=1400k") as place:
        done = cluster.hpcadmin(*args(cluster, "floods", "--run-dir", str(place)))
        run = last(place)
        if done.returncode == 3:
            # Of two outputs only one had room.
            assert Counter(v.status for v in run.verdicts)[Status.ERROR] >= 1
            assert all("cut off in jobs/1/" in v.reason or "no output" in v.reason
                       for v in run.verdicts if v.status is Status.ERROR)
        else:
            (line,) = lines(done.stderr)
            assert "cannot be written: No space left on device" in line
        assert done.returncode in (2, 3), done.stderr
        cluster.wait_empty()


def test_a_disk_that_is_full_before_it_begins(cluster: Loopback) -> None:
    with small(cluster, "size=100k") as place:
        done = cluster.hpcadmin(*args(cluster, "says", "--run-dir", str(place)))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = lines(done.stderr)
    assert "cannot be written: No space left on device" in line


def test_no_room_for_more_files(cluster: Loopback) -> None:
    before = cluster.jobs()
    with small(cluster, "nr_inodes=8") as place:
        done = cluster.hpcadmin(*args(cluster, "says", "--run-dir", str(place)))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = lines(done.stderr)
    assert line.endswith("No space left on device") or "No space left on device (" in line
    assert cluster.jobs() <= before


def test_a_read_only_file_system(cluster: Loopback) -> None:
    with small(cluster, "size=4m,ro") as place:
        done = cluster.hpcadmin(*args(cluster, "says", "--run-dir", str(place)))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = lines(done.stderr)
    assert "Read-only file system" in line


def test_a_node_without_room_for_an_output_says_so(cluster: Loopback) -> None:
    with small(cluster, "size=300k,mode=1777") as place:
        done = cluster.hpcadmin(*args(cluster, "floods"), TMPDIR=str(place))
    run = last(cluster.dir / "admin/runs")
    assert done.returncode == 3, done.stderr
    assert passed(run) == {("floods", Status.ERROR): 2}
    assert all("did not fit on n0" in v.reason and "no room where TMPDIR or /tmp is" in v.reason for v in run.verdicts)

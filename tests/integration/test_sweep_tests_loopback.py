"""The tests of a sweep's nights on a real Slurm: pairs in turn, two strikes, a drained node tested again and
brought back by itself, a busy node left, a sweep that is killed in between; and health through Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, loopback, wait_until

from hpcadmin.remote.local import Local
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.sweep.guard import open_guards
from hpcadmin.sweep.ledger_file import read_ledger
from hpcadmin.sweep.rotate import rotation
from hpcadmin.sweep.ways import SlurmHealth, Wish

pytestmark = pytest.mark.lab

WIRE = """
from hpcadmin.check import Check, Measurement, Role, Scope, Step, Subject
def steps(c):
    return (Step(("sh", "-c", 'test -e "{dir}/hold" && {{ : >"{dir}/held"; sleep 100; }}; '
                  'test -e "{dir}/cut-$SLURMD_NODENAME" && echo cut || echo whole'), Role.RANKS),)
def parse(o, c):
    words = o[0].text.split()
    value = "cut" if "cut" in words else "whole" if words == ["whole", "whole"] else "odd"
    return [Measurement("wire", value, expected="whole", subject=Subject(tuple(n.name for n in c.nodes)), key=True)]
CHECK = Check("wire", "A wire", Scope.PAIR, steps, parse, seconds=0.1)
"""
SITE = """
[run]
checks_dir = "{dir}/checks"
[slurm]
mpi = "none"
[sweep]
suite = "{dir}/quick.toml"
suite_as_root = true
night_nodes = 2
night_percent = 100
total_nodes = 2
total_percent = 100
left_reasons = true
"""
SETTINGS = {"MinJobAge": "2", "KillWait": "2", "SlurmdTimeout": "30",
            "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"}
NAMES = ["n01", "n02", "n03", "n04"]
# A sweep on a day of ours, so that nights follow each other.
ON = """
import sys
import hpcadmin.sweep.night as night
days, first = int(sys.argv.pop(1)), night.night_of
night.night_of = lambda time: first(time) + days
from hpcadmin.cli import main
sys.exit(main())
"""


@dataclass
class Site:
    cluster: Loopback
    dir: Path

    def argv(self, day: int) -> list[str]:
        return [sys.executable, "-c", ON, str(day), "--site", str(self.dir / "site.toml"), "sweep", "--json"]

    def sweep(self, day: int) -> dict[str, Any]:
        done = subprocess.run(self.argv(day), env=self.cluster.env, capture_output=True, text=True, timeout=240,
                              check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)      # type: ignore[no-any-return]

    def acts(self, report: dict[str, Any]) -> dict[str, str]:
        return {d["node"]: d["act"] for d in report["decisions"] if d["act"] != "none"}

    def state(self, node: str) -> str:
        text = self.cluster.slurm("scontrol", "-o", "show", "node", node)
        return next(word for word in text.split() if word.startswith("State=")).removeprefix("State=")

    def settle(self) -> None:
        wait_until(lambda: all(self.state(node) == "IDLE" for node in NAMES))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("nights")
    (folder / "checks").mkdir()
    (folder / "checks/wire.py").write_text(WIRE.format(dir=folder))
    (folder / "quick.toml").write_text('[[entry]]\ncheck = "node_ready"\n[[entry]]\ncheck = "wire"\n')
    (folder / "site.toml").write_text(SITE.format(dir=folder))
    with loopback(folder / "slurm", len(NAMES), settings=SETTINGS) as cluster:
        yield Site(cluster, folder)


def test_two_strikes_drained_tested_again_and_back(site: Site) -> None:
    (site.dir / "cut-n01").touch()
    turn = rotation(NAMES)
    first = site.sweep(0)
    partner = next(pair for pair in turn.pairs_of(date.fromisoformat(first["night"]).toordinal()) if "n01" in pair)
    assert site.acts(first) == dict.fromkeys(partner, "tell"), first
    second = site.sweep(1)
    assert site.acts(second) == {"n01": "drain"} | {n: a for n, a in site.acts(second).items() if n != "n01"}, second
    assert "DRAIN" in site.state("n01")
    third = site.sweep(2)                           # tested again, and still bad
    assert site.acts(third)["n01"] == "keep"
    assert site.state("n01") == "IDLE+DRAIN"
    (site.dir / "cut-n01").unlink()
    fourth = site.sweep(3)
    assert site.acts(fourth)["n01"] == "resume", fourth
    site.settle()
    assert "No reservations" in site.cluster.slurm("scontrol", "show", "reservation")
    tags = [json.loads(path.read_text())["tags"] for path in site.cluster.dir.glob("admin/runs/*/marks.json")]
    assert tags == [["sweep"]] * len(tags) and len(tags) == 6
    assert open_guards(read_ledger(site.cluster.dir / "admin/sweep")) == []


def test_killed_while_a_drained_node_is_tested_again(site: Site) -> None:
    """The nodes stay shut for users, and the next sweep puts them right."""
    for day in (4, 5):
        (site.dir / "cut-n02").touch()
        site.sweep(day)
    assert "DRAIN" in site.state("n02")
    (site.dir / "hold").touch()
    process = subprocess.Popen(site.argv(6), env=site.cluster.env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until((site.dir / "held").exists)
    process.kill()
    process.wait()
    (site.dir / "hold").unlink()
    site.cluster.slurm("scancel", "--user=root", "--full")
    site.cluster.wait_empty()
    wait_until(lambda: site.state("n02") == "IDLE+RESERVED")
    user = subprocess.run(["srun", "-w", "n02", "--immediate=1", "hostname"], env=site.cluster.env, timeout=60,
                          capture_output=True, text=True, check=False)
    assert user.returncode != 0
    (site.dir / "cut-n02").unlink()
    report = site.sweep(6)
    assert any("killed while it tested drained nodes" in note for note in report["notes"]), report["notes"]
    assert site.acts(report) == {"n02": "resume"}, report
    site.settle()


def test_a_busy_node_is_left(site: Site) -> None:
    site.cluster.slurm("sbatch", "-w", "n03", "-o", "/dev/null", "--wrap", "sleep 300")
    wait_until(lambda: site.state("n03") == "MIXED")
    begun = time.monotonic()
    report = site.sweep(7)
    assert time.monotonic() - begun < 20
    assert (site.acts(report), report["exit_status"]) == ({}, 0), report        # its turn comes when it is idle
    assert "nothing is known of 1 node in service: n03" in report["notes"], report["notes"]
    site.cluster.slurm("scancel", "--user=root", "--full")
    site.settle()


def health_command(site: Site) -> tuple[str, ...]:
    """A Slurm that has a system of its own has no Python there: it tells what was found here."""
    command = (sys.executable, "-m", "hpcadmin.health.node", "--json", "-", "--state", str(site.dir / "state"), "load")
    if not site.cluster.bin:
        return command
    for node in NAMES:
        with (site.dir / f"said-{node}").open("w") as file:
            subprocess.run([*command, "--node", node], env=site.cluster.env, stdout=file, timeout=60, check=False)
    return ("sh", "-c", f'cat "{site.dir}/said-$SLURMD_NODENAME"')


def test_health_through_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in site.cluster.env.items():
        monkeypatch.setenv(key, value)
    client = CommandLine(site.cluster.env)
    command = health_command(site)
    site.cluster.slurm("sbatch", "-w", "n02", "-o", "/dev/null", "--wrap", "sleep 300")
    wait_until(lambda: site.state("n02") == "MIXED")
    found = SlurmHealth(client, Local(), command, Wish(nice=1), 60, 1).looks([*NAMES, "n99"], time.time())
    assert {look.node for look in found.looks} == {"n01", "n03", "n04"}
    assert found.unmeasured == dict.fromkeys(["n02", "n99"], "Slurm: not idle")
    site.cluster.slurm("scancel", "--user=root", "--full")
    site.settle()
    pid = site.cluster.processes["n03"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        found = SlurmHealth(client, Local(), command, Wish(nice=1), 20, 1).looks(NAMES, time.time())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "n03" in found.unmeasured and "n03" not in {look.node for look in found.looks}
    site.cluster.wait_empty()

"""`conf check --live` on a real cluster: things are broken, slurmctld drains the nodes, and each is explained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conf_models as m
import pytest

from hpcadmin import inventory as stored
from hpcadmin.cli import run
from hpcadmin.conf.render import RenderOptions, render

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
    pytest.mark.skipif(not (shutil.which("slurmctld") and shutil.which("slurmd")), reason="Slurm is not installed"),
]
ROOT = Path(__file__).resolve().parent.parent.parent
NAME = f"check{os.getpid()}"
NODES = [f"node{i:02d}" for i in range(1, 5)]
PATIENCE_S = 120.0
START = "sh /etc/hpcadmin/lab/boot.sh slurmd"


class Cluster:
    """A lab with its inventory, and the files that its slurmctld reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab = Path("/run/hpcadmin-lab") / NAME
        self.env = {**os.environ, "HPCADMIN_SITE": str(folder / "site.toml"), "HPCADMIN_DIR": str(folder / "state"),
                    "SLURM_CONF": str(self.lab / "machine" / "slurm.conf")}

    def hpcadmin(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "hpcadmin", *args], cwd=ROOT, capture_output=True, text=True,
                              timeout=180, env=self.env, check=False)

    def sh(self, host: str, script: str) -> str:
        where = [] if host == "head" else ["--node", host]
        done = self.hpcadmin("lab", "exec", "--name", NAME, *where, "--user", "root", "--", "sh", "-c", script)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def everywhere(self, script: str) -> None:
        for host in ["head", *NODES]:
            self.sh(host, script)

    def restart(self, *nodes: str, controller: bool = True) -> None:
        if controller:
            self.sh("head", "kill $(pidof slurmctld); while pidof slurmctld; do sleep 0.1; done; "
                    "setsid slurmctld -D </dev/null >/dev/null 2>&1 & sleep 1")
        for node in nodes:
            self.sh(node, f"kill $(pidof slurmd); while pidof slurmd; do sleep 0.1; done; {START}")

    def wait(self, node: str, *words: str) -> None:
        end = time.monotonic() + PATIENCE_S
        shown = ""
        while time.monotonic() < end:
            shown = self.sh("head", f"scontrol show node {node} -o")
            if all(word in shown for word in words):
                return
            time.sleep(0.5)
        raise AssertionError(f"{node} never had {words}: {shown}")

    def discover(self) -> None:
        done = self.hpcadmin("discover", "-w", "node[01-04]", "--accept")
        assert "inventory: " in done.stderr, done.stderr

    def check(self) -> tuple[int, list[dict[str, Any]], str]:
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
            (conf / name).write_text(self.sh("head", f"cat /etc/slurm/{name}"))
        done = self.hpcadmin("conf", "check", "--live", "--json", str(conf))
        return done.returncode, json.loads(done.stdout)["findings"], done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("check"))
    try:
        done = made.hpcadmin("lab", "up", "--name", NAME, "--net", f"10.212.{os.getpid() % 250}.0/24",
                             "--hardware", "8xH100")
        assert done.returncode == 0, done.stderr
        site = (made.lab / "site.toml").read_text().replace(
            "[ssh]\n", f'[ssh]\nconfig = "{made.lab}/ssh_config"\n', 1)
        (made.folder / "site.toml").write_text(site)
        made.discover()
        yield made
    finally:
        run(["lab", "down", "--name", NAME])


def rule(findings: list[dict[str, Any]], name: str, node: str = "") -> list[dict[str, Any]]:
    return [f for f in findings if f["rule"] == name and (not node or node in f["nodes"])]


def test_a_lab_that_is_well_has_nothing_live_and_no_drift(cluster: Cluster) -> None:
    _, findings, _ = cluster.check()
    assert [f for f in findings if f["rule"].startswith(("live.", "drift.")) and f["severity"] != "NOTE"] == []


def test_everything_that_was_broken_is_explained(cluster: Cluster) -> None:
    cluster.everywhere("sed -i '/^NodeName=node01/s/RealMemory=[0-9]*/RealMemory=900000/; "
                       "/^NodeName=node03/s/CoresPerSocket=56/CoresPerSocket=112/' /etc/slurm/slurm.conf; "
                       "sed -i '/^NodeName=node04/{s/Cores=0-55/Cores=0-55,112-167/;s/Cores=56-111/Cores=56-111,"
                       "168-223/}' /etc/slurm/gres.conf")
    cluster.sh("node02", "rm /dev/nvidia5; sed -i '/^NodeName=node02.*nvidia5/d' /etc/slurm/gres.conf")
    cluster.restart(*NODES)
    cluster.wait("node01", "Low RealMemory")
    cluster.wait("node02", "(7 < 8)")
    cluster.wait("node03", "Low socket*core*thread")
    cluster.wait("node04", "State=IDLE")
    cluster.sh("head", 'scontrol update nodename=node04 state=drain reason="fan \\"B\\" is loud\nState=IDLE 50%"')
    cluster.discover()
    status, findings, _ = cluster.check()
    assert status == 1

    memory = rule(findings, "live.reasons", "node01")[0]
    assert "slurm.conf says 900000" in memory["means"]
    assert memory["right"][0].startswith("NodeName=node01 ") and "RealMemory=900000" not in memory["right"][0]
    assert "RealMemory=900000 but node01 has " in rule(findings, "drift.memory", "node01")[0]["what"]

    gpu = rule(findings, "live.reasons", "node02")[0]
    assert "/dev/nvidia5" in gpu["means"] and "GPU 5 (0000:" in gpu["means"]
    assert " since 20" in gpu["what"] and "slurmd started 20" in gpu["means"]
    assert "Gres=gpu:h100:7" in gpu["right"][0]
    assert rule(findings, "drift.device_files", "node02")[0]["severity"] == "FATAL"

    cpus = rule(findings, "live.reasons", "node03")[0]
    assert "configured is 2 x 112 x 2, the node has 2 x 56 x 2" in cpus["means"]
    assert "CoresPerSocket=56" in cpus["right"][0]

    drained = rule(findings, "live.reasons", "node04")[0]
    assert drained["severity"] == "NOTE"
    assert 'fan "B" is loud State=IDLE 50%' in drained["what"] and "(set by root)" in drained["what"]
    assert rule(findings, "live.affinity", "node04")[0]["severity"] == "WRONG"


def test_what_people_and_health_checks_write(cluster: Cluster) -> None:
    cluster.sh("node04", "kill $(pidof slurmd)")
    cluster.sh("head", "scontrol update nodename=node04 state=down reason='Kill task failed'; scontrol update "
               "nodename=node03 state=drain reason='NHC: check_fs_mount:  /home not mounted'")
    _, findings, _ = cluster.check()
    assert "UnkillableStepTimeout" in rule(findings, "live.reasons", "node04")[0]["means"]
    overwritten = rule(findings, "live.reasons", "node03")[0]
    assert "check_fs_mount: /home not mounted" in overwritten["means"]
    assert "it is INVAL besides" in overwritten["means"]


def test_files_that_slurmctld_has_not_read(cluster: Cluster) -> None:
    cluster.sh("head", "sed -i 's/^KillWait=.*/KillWait=77/' /etc/slurm/slurm.conf")
    _, findings, _ = cluster.check()
    changed = rule(findings, "live.settings")
    assert [f["what"] for f in changed] == ["KillWait=77 is written, slurmctld has 5 sec"]
    assert "scontrol reconfigure" in changed[0]["means"]


def test_a_frozen_and_a_dead_controller(cluster: Cluster) -> None:
    cluster.sh("head", "kill -STOP $(pidof slurmctld)")
    try:
        status, _, told = cluster.check()
    finally:
        cluster.sh("head", "kill -CONT $(pidof slurmctld)")
    # The files have findings of their own: they come first.
    assert status == 1
    assert "the Slurm controller does not answer" in told
    cluster.sh("head", "kill $(pidof slurmctld); while pidof slurmctld; do sleep 0.1; done")
    status, findings, told = cluster.check()
    assert status == 1
    assert "the Slurm controller does not answer" in told
    assert rule(findings, "live.reasons") == []


def test_sound_files_without_a_controller(cluster: Cluster, tmp_path: Path) -> None:
    """Where nothing else is wrong, that is the exit status."""
    inventory = m.inventory((m.names("h", 2), m.H100))
    for name, text in render(inventory, m.SITE, RenderOptions()).files.items():
        (tmp_path / name).write_text(text)
    stored.save(tmp_path / "inventory.json", inventory)
    own = ("--inventory", str(tmp_path / "inventory.json"), "--slurm-version", "22.05", str(tmp_path))
    done = cluster.hpcadmin("conf", "check", "--live", *own)
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "note:" not in line]
    assert "slurmctld" in line and "does not answer" in line
    assert "incomplete: slurmctld: " in done.stdout
    (tmp_path / "gres.conf").unlink()
    assert cluster.hpcadmin("conf", "check", "--live", *own).returncode == 1

"""The closed loop by jobs: what was rendered with production settings runs a lab, and jobs get what the files say."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcadmin.cli import run

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
    pytest.mark.skipif(not (shutil.which("slurmctld") and shutil.which("slurmd")), reason="Slurm is not installed"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="jobs are bound to two CPUs that must be there"),
]
ROOT = Path(__file__).resolve().parent.parent.parent
NAME = f"suite{os.getpid()}"
# Production settings but for what a small machine needs, and leaves that no cable tells.
SITE = """
[cluster]
name = "closedloop"
controllers = ["head"]

[ssh]
user = "hpc"
config = "{folder}/ssh_config"

[slurm]
partition = "main"

[slurm.options]
KillWait = 5
MailProg = "/bin/true"

[topology]
plugin = "tree"

[topology.switches]
leaf1 = "node[01-02]"
leaf2 = "node[03-04]"
spine = ["leaf1", "leaf2"]

[run]
dir = "/shared/home/hpc/hpcadmin"
"""


def hpcadmin(*args: str, status: int = 0, **env: str) -> str:
    done = subprocess.run([sys.executable, "-m", "hpcadmin", *args], cwd=ROOT, capture_output=True, text=True,
                          timeout=300, env={**os.environ, **env}, check=False)
    assert done.returncode == status, (args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def up(*args: str) -> Path:
    hpcadmin("lab", "up", "--name", NAME, "--net", f"10.{190 + os.getpid() % 10}.{os.getpid() % 250}.0/24",
             "--hardware", "2xT4", *args)
    return Path("/run/hpcadmin-lab") / NAME


def down() -> None:
    run(["lab", "down", "--name", NAME])


def validate(folder: Path, site: str, status: int, *more: str) -> dict:
    (folder / "shared" / "site.toml").write_text(site)
    text = hpcadmin("lab", "exec", "--name", NAME, "--", "hpcadmin", "--site", "/shared/site.toml", "validate",
                    "--suite", "conf", "--json", *more, status=status)
    return json.loads(text)


def values(report: dict, status: str) -> set[str]:
    return {f"{v['check']} {v['measurement']['name']}" for v in report["verdicts"]
            if v["status"] == status and v.get("measurement")}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """slurm.conf and the rest for this lab, as conf render makes them."""
    folder = tmp_path_factory.mktemp("rendered")
    try:
        site = SITE.format(folder=up())
        (folder / "site.toml").write_text(site)
        env = {"HPCADMIN_SITE": str(folder / "site.toml"), "HPCADMIN_DIR": str(folder / "state")}
        hpcadmin("discover", "-w", "node[01-04]", **env)
        hpcadmin("conf", "render", "-o", str(folder / "conf"), **env)
    finally:
        down()
    shutil.copy(folder / "state" / "inventory.json", folder / "inventory.json")
    return folder


def test_jobs_get_what_was_rendered_and_wrong_files_are_found(rendered: Path, tmp_path: Path) -> None:
    conf, site = rendered / "conf", (rendered / "site.toml").read_text()
    for line in ("SelectTypeParameters=CR_Core_Memory", "ProctrackType=proctrack/cgroup",
                 "TaskPlugin=task/cgroup,task/affinity", "TopologyPlugin=topology/tree"):
        assert line in (conf / "slurm.conf").read_text()
    wrong = tmp_path / "wrong"
    shutil.copytree(conf, wrong)
    _spoil(wrong)
    try:
        report = validate(up("--conf", str(conf)), site, 0)
        assert {"gpu_binding open_devices", "gpu_binding cores", "gpu_binding shared_gpus", "gpu_binding shared_cpus",
                "gpu_binding visible_gpus", "gpu_binding given_gpus", "leaf_allocation leaves"} == \
            values(report, "PASS")
        assert report["manifest"]["simulated"] == "2xT4"
        down()
        report = validate(up("--conf", str(wrong)), site, 1)
        assert {"gpu_binding open_devices", "gpu_binding cores", "gpu_binding shared_gpus"} <= values(report, "FAIL")
        assert "leaf_allocation leaves" in values(report, "PASS")
        told = " ".join(f["text"] for f in report["findings"])
        assert "ConstrainDevices=yes" in told and "gres.conf Cores=" in told
    finally:
        down()


def test_what_the_cluster_does_not_let_be_tested_is_said(rendered: Path, tmp_path: Path) -> None:
    """Too few GPUs in slurm.conf, a partition of whole nodes, nodes of two leaves, a folder not shared, Ctrl-C."""
    conf, site = tmp_path / "conf", (rendered / "site.toml").read_text()
    shutil.copytree(rendered / "conf", conf)
    text = (conf / "slurm.conf").read_text()
    line = next(line for line in text.splitlines() if line.startswith("NodeName="))
    (conf / "slurm.conf").write_text(text.replace(line, "\n".join([
        line.replace("node[01-04]", "node[01-03]"),
        line.replace("node[01-04]", "node04").replace("Gres=gpu:t4:2", "Gres=gpu:t4:1")])))
    try:
        folder = up("--conf", str(conf))
        report = validate(folder, site, 1)
        bad = [v for v in report["verdicts"] if v["check"] == "gpu_binding" and v["status"] != "PASS"]
        assert [(v["status"], v["subject"]["nodes"]) for v in bad] == [("FAIL", ["node04"])]
        assert "slurm.conf gives node04 1 GPU" in bad[0]["reason"]
        shutil.copy(rendered / "inventory.json", folder / "shared" / "inventory.json")
        (folder / "shared" / "inventory.json").chmod(0o644)
        known = ("--inventory", "/shared/inventory.json")
        report = validate(folder, site, 3, *known, "-w", "node[01,03]")
        told = {v["check"]: v["reason"] for v in report["verdicts"] if v["status"] != "PASS"}
        assert told == {"leaf_allocation": "no leaf had 2 free nodes, so that one job had to be on several "
                        "(again with more nodes, or when the cluster is not busy)"}
        report = validate(folder, site, 3, *known, "-w", "node[01-02]", "--run-dir", "/tmp/not-shared")
        assert all("is the run folder shared" in v["reason"] for v in report["verdicts"])
        _interrupted(folder, known)
        inside("scontrol", "update", "partitionname=main", "oversubscribe=exclusive")
        report = validate(folder, site, 3, *known, "-w", "node[01-03]")
        assert {(v["check"], v["status"]) for v in report["verdicts"]} == {
            ("gpu_binding", "NOT RUN"), ("leaf_allocation", "PASS")}
        _queue_empty()
    finally:
        down()


# Ctrl-C when the two jobs of each of two nodes are over and one of the third waits: as a terminal does it, whatever the
# machine takes for that.
CTRL_C = """
import collections, os, signal, subprocess, sys, time
def states():
    found = collections.defaultdict(collections.Counter)
    for line in subprocess.check_output(["squeue", "-h", "-t", "all", "-o", "%T %k"], text=True).splitlines():
        state, _, comment = line.partition(" ")
        if comment.startswith("hpcadmin:"):
            found[comment.split(":")[1]][state] += 1
    return found
def waits():
    return any(s["COMPLETED"] >= 4 and s["PENDING"] for run, s in states().items() if run not in before)
before = set(states())
signal.signal(signal.SIGINT, signal.SIG_IGN)
run = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
end = time.monotonic() + 150
while not waits() and run.poll() is None and time.monotonic() < end:
    time.sleep(0.1)
run.send_signal(signal.SIGINT)
sys.exit(run.wait())
"""


def _interrupted(folder: Path, known: tuple[str, ...]) -> None:
    """node02 is half taken: the run waits for it when it is stopped, and keeps what the others told."""
    number = inside("sbatch", "--parsable", "-w", "node02", "--gres=gpu:1", "--mem=100M", "--wrap", "sleep 900").strip()
    begun = subprocess.run(
        [sys.executable, "-m", "hpcadmin", "lab", "exec", "--name", NAME, "--", "python3", "-c", CTRL_C, "hpcadmin",
         "--site", "/shared/site.toml", "validate", "--suite", "conf", "--json", "-w", "node[01-03]", *known], cwd=ROOT,
        capture_output=True, text=True, timeout=240, check=False)
    report = json.loads(begun.stdout)
    assert (report["manifest"]["state"], report["manifest"]["exit_status"]) == ("interrupted", 130), begun.stderr
    nodes = {v["subject"]["nodes"][0]: v["status"] for v in report["verdicts"] if v["check"] == "gpu_binding"}
    assert nodes == {"node01": "PASS", "node02": "NOT RUN", "node03": "PASS"}
    inside("scancel", number)
    _queue_empty()


def _queue_empty() -> None:
    """A job that Slurm is still ending is in the queue."""
    end = time.monotonic() + 120
    while inside("squeue", "-h") and time.monotonic() < end:
        time.sleep(0.2)
    assert not inside("squeue", "-h")


def inside(*argv: str) -> str:
    return hpcadmin("lab", "exec", "--name", NAME, "--user", "root", "--", *argv)


def _spoil(conf: Path) -> None:
    """Cores of the two GPUs exchanged, device files open to all."""
    gres = (conf / "gres.conf").read_text()
    swapped = re.sub(r"Cores=([01])", lambda m: f"Cores={1 - int(m[1])}", gres)
    assert swapped != gres
    (conf / "gres.conf").write_text(swapped)
    text = (conf / "cgroup.conf").read_text()
    assert "ConstrainDevices=yes" in text
    (conf / "cgroup.conf").write_text(text.replace("ConstrainDevices=yes", "ConstrainDevices=no"))

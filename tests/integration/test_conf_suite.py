"""The closed loop by jobs: what was rendered with production settings runs a lab, and jobs get what the files say."""

import json
import os
import re
import shutil
import subprocess
import sys
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
                          timeout=180, env={**os.environ, **env}, check=False)
    assert done.returncode == status, (args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def up(*args: str) -> Path:
    hpcadmin("lab", "up", "--name", NAME, "--net", f"10.{190 + os.getpid() % 10}.{os.getpid() % 250}.0/24",
             "--hardware", "2xT4", *args)
    return Path("/run/hpcadmin-lab") / NAME


def down() -> None:
    run(["lab", "down", "--name", NAME])


def validate(folder: Path, site: str, status: int) -> dict:
    (folder / "shared" / "site.toml").write_text(site)
    text = hpcadmin("lab", "exec", "--name", NAME, "--", "hpcadmin", "--site", "/shared/site.toml", "validate",
                    "--suite", "conf", "--json", status=status)
    return json.loads(text)


def values(report: dict, status: str) -> set[str]:
    return {f"{v['check']} {v['measurement']['name']}" for v in report["verdicts"]
            if v["status"] == status and v.get("measurement")}


def test_jobs_get_what_was_rendered_and_wrong_files_are_found(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    try:
        folder = up()
        site = SITE.format(folder=folder)
        (tmp_path / "site.toml").write_text(site)
        env = {"HPCADMIN_SITE": str(tmp_path / "site.toml"), "HPCADMIN_DIR": str(tmp_path / "state")}
        hpcadmin("discover", "-w", "node[01-04]", **env)
        hpcadmin("conf", "render", "-o", str(conf), **env)
        down()
        for line in ("SelectTypeParameters=CR_Core_Memory", "ProctrackType=proctrack/cgroup",
                     "TaskPlugin=task/cgroup,task/affinity", "TopologyPlugin=topology/tree"):
            assert line in (conf / "slurm.conf").read_text()
        folder = up("--conf", str(conf))
        report = validate(folder, site, 0)
        assert {"gpu_binding open_devices", "gpu_binding cores", "gpu_binding shared_gpus", "gpu_binding visible_gpus",
                "gpu_binding given_gpus", "leaf_allocation leaves"} == values(report, "PASS")
        assert report["manifest"]["simulated"] == "2xT4"
        down()
        _spoil(conf)
        report = validate(up("--conf", str(conf)), site, 1)
        assert {"gpu_binding open_devices", "gpu_binding cores", "gpu_binding shared_gpus"} <= values(report, "FAIL")
        assert "leaf_allocation leaves" in values(report, "PASS")
    finally:
        down()


def _spoil(conf: Path) -> None:
    """Cores of the two GPUs exchanged, device files open to all."""
    gres = (conf / "gres.conf").read_text()
    swapped = re.sub(r"Cores=([01])", lambda m: f"Cores={1 - int(m[1])}", gres)
    assert swapped != gres
    (conf / "gres.conf").write_text(swapped)
    text = (conf / "cgroup.conf").read_text()
    assert "ConstrainDevices=yes" in text
    (conf / "cgroup.conf").write_text(text.replace("ConstrainDevices=yes", "ConstrainDevices=no"))

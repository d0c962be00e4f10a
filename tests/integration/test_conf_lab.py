"""The loop is closed: a lab is discovered, its configuration rendered, and the lab runs on what was rendered."""

import os
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
]
ROOT = Path(__file__).resolve().parent.parent.parent
NAME = f"conf{os.getpid()}"
# What a first start always writes, and what a busy machine may have: whether all nodes answer is asked for itself.
USUAL = ("state file", "Trying backup state save file", "not responding")


def hpcadmin(*args: str, **env: str) -> str:
    done = subprocess.run([sys.executable, "-m", "hpcadmin", *args], cwd=ROOT, capture_output=True, text=True,
                          timeout=300, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def up(*args: str) -> Path:
    # An address range that no other lab is likely to have.
    hpcadmin("lab", "up", "--name", NAME, "--net", f"10.{230 + os.getpid() % 20}.{os.getpid() % 250}.0/24", *args)
    return Path("/run/hpcadmin-lab") / NAME


def on_head(*args: str) -> str:
    return hpcadmin("lab", "exec", "--name", NAME, "--user", "root", "--", *args)


@pytest.mark.parametrize(("hardware", "gres"), [
    ((), "(null)"),
    (("--hardware", "8xH100"), "gpu:h100:8(S:0-1)"),
    (("--hardware", "4xA100-pcie"), "gpu:a100:4(S:0-1)"),
], ids=["plain", "8xH100", "4xA100-pcie"])
def test_the_lab_runs_on_what_was_rendered(tmp_path: Path, hardware: tuple[str, ...], gres: str) -> None:
    try:
        folder = up(*hardware)
        site = (folder / "site.toml").read_text().replace("[ssh]\n", f'[ssh]\nconfig = "{folder}/ssh_config"\n', 1)
        (tmp_path / "site.toml").write_text(site)
        env = {"HPCADMIN_SITE": str(tmp_path / "site.toml"), "HPCADMIN_DIR": str(tmp_path / "state")}
        hpcadmin("discover", "-w", "node[01-04]", **env)
        hpcadmin("conf", "render", "-o", str(tmp_path / "conf"), **env)
        hpcadmin("lab", "down", "--name", NAME)
        up(*hardware, "--conf", str(tmp_path / "conf"))
        rendered = (tmp_path / "conf" / "slurm.conf").read_text()
        assert on_head("cat", "/etc/slurm/slurm.conf") == rendered
        assert ("SIMULATED" in rendered) == bool(hardware)
        states = on_head("sinfo", "-h", "-N", "-o", "%N %T %E %G").splitlines()
        assert sorted(states) == [f"node{i:02d} idle none {gres}" for i in range(1, 5)]
        logs = on_head("cat", "/var/log/slurm/slurmctld.log").splitlines()
        for node in ("node01", "node04"):
            logs += hpcadmin("lab", "exec", "--name", NAME, "--node", node, "--user", "root", "--",
                             "cat", "/var/log/slurm/slurmd.log").splitlines()
        assert [line for line in logs if ("error" in line or "fatal" in line)
                and not any(usual in line for usual in USUAL)] == []
    finally:
        run(["lab", "down", "--name", NAME])

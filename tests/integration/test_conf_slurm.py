"""Rendered files before Slurm's own parsers: the real slurmctld and slurmd register the node, the files as they are."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import conf_models as m
import pytest

from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Node
from hpcadmin.site import Cluster, Site, SlurmSite

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
    pytest.mark.skipif(not (shutil.which("slurmctld") and shutil.which("slurmd") and shutil.which("munged")),
                       reason="slurmctld, slurmd and munge are not installed"),
]

ORACLE = Path(__file__).resolve().parent / "oracle.sh"
# Not a name that a lab or the machine's own Slurm has: slurmd makes control groups by it.
NODE = f"oracle{os.getpid()}"
LIGHT = {"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none"}
# Lines that a first start always writes.
USUAL = ("Configured MailProg is invalid", "state file", "Trying backup state save file")


def memory_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 ** 20


def ask(folder: Path, node: Node, synthetic: str, *, light: bool = False,
        job: str = "") -> tuple[dict[str, str], list[str]]:
    """(fields of scontrol show node, error lines of both logs) of a cluster of this one node."""
    site = Site(cluster=Cluster("oracle", (NODE,)), slurm=SlurmSite(options=LIGHT if light else {}))
    result = render(m.inventory(([NODE], replace(node, memory_mib=memory_mib()))), site, RenderOptions())
    assert result.problems == ()
    (folder / "slurm").mkdir()
    for name, text in result.files.items():
        (folder / "slurm" / name).write_text(text)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n192.0.2.1 {NODE}\n")
    (folder / "devices").write_text("".join(f"195 {g.minor} {g.device_file}\n" for g in node.gpus))
    (folder / "job").write_text(job)
    done = subprocess.run(
        ["unshare", "-m", "-n", "-u", "-i", "-p", "-f", "--kill-child", "sh", str(ORACLE), str(folder), NODE],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HWLOC_SYNTHETIC": synthetic}, capture_output=True, text=True,
        timeout=60, check=False)
    for left in Path("/sys/fs/cgroup").glob(f"*/slurm_{NODE}"):
        left.rmdir()
    logs = [line for path in sorted((folder / "log").glob("*.log")) for line in path.read_text().splitlines()]
    assert done.returncode == 0, (done.stderr, logs[-5:])
    errors = [line for line in logs
              if ("error" in line or "fatal" in line) and not any(usual in line for usual in USUAL)]
    text = (folder / "node").read_text()
    return dict(word.split("=", 1) for word in text.split() if "=" in word), errors


CASES = [
    # node, HWLOC_SYNTHETIC, Gres that Slurm must report, Sockets
    ("H100", "pack:2 core:56 pu:2", "gpu:h100:8(S:0-1)", 2),
    ("A100P", "pack:2 core:32 pu:2", "gpu:a100:4(S:0-1)", 2),
    ("NPS4", "pack:2 numa:4 core:16 pu:2", "gpu:a100:8(S:1,3,5,7)", 8),
    ("T4", "pack:1 core:8 pu:1", "gpu:t4:1", 1),
    ("BIG_CPU", "pack:2 core:48 pu:2", "(null)", 2),
]


@pytest.mark.parametrize("light", [False, True], ids=["cgroups", "light"])
@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_the_node_registers(tmp_path: Path, case: tuple[str, str, str, int], *, light: bool) -> None:
    which, synthetic, gres, sockets = case
    node: Node = getattr(m, which)
    found, errors = ask(tmp_path, node, synthetic, light=light)
    assert errors == []
    assert found["State"] == "IDLE"
    assert found["Gres"] == gres
    assert int(found["Sockets"]) == sockets
    assert int(found["CPUTot"]) == node.cpu.cpus
    assert int(found["RealMemory"]) < memory_mib()


def test_jobs_get_the_gpus_in_pci_bus_order(tmp_path: Path) -> None:
    """Minors are 2,3,0,1 in bus order: a job's index counts the bus, not the minors."""
    job = ("srun -Q -n1 --gres=gpu:a100:1 sh -c 'echo one $CUDA_VISIBLE_DEVICES'\n"
           "srun -Q -n1 --gres=gpu:a100:4 sh -c 'echo all $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES.'\n")
    _, errors = ask(tmp_path, m.A100P, "pack:2 core:32 pu:2", light=True, job=job)
    said = (tmp_path / "job.out").read_text()
    assert said.splitlines() == ["one 0", "all 0,1,2,3 ."], said
    assert errors == []


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    """The oracle itself: a node with fewer cores than its line says must not be IDLE."""
    lacking = replace(m.A100P, cpu=m.cpu(2, 64))
    found, errors = ask(tmp_path, lacking, "pack:2 core:32 pu:2", light=True)
    assert "INVAL" in found["State"], found
    assert errors

"""Production settings before the daemons of three versions, and accounting with a real database: not one complaint."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import conf_models as m
import pytest
from slurm_roots import NAMES, slurm

from hpcadmin import conf_install
from hpcadmin.conf.keys import show
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.proof.cell import ask
from hpcadmin.proof.hardware import of_node
from hpcadmin.proof.logs import complaints
from hpcadmin.proof.parts import Answer, Cluster, Hardware, NodeRun, Slurm
from hpcadmin.site import AccountingSite, HookSite, PrivateTmp, Site, SlurmSite
from hpcadmin.site import Cluster as ClusterSite

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
NODE = f"prod{os.getpid()}"
FOLDERS = (("/var/lib/slurm/slurmctld", "slurm"), ("/var/lib/slurm/slurmd", ""), ("/var/log/slurm", "slurm"))
# Of the machine that the test runs on, and of slurmd reading the files beside it.
ELSEWHERE = ("cgroup/v1 plugin is deprecated", "despite slurmctld having been setup for configless")

PLAIN = Site()
FULL = Site(
    hooks=HookSite(health="/bin/true", health_timeout_s=50, prolog="/bin/true", epilog="/bin/true",
                   prolog_slurmctld="/bin/true", epilog_slurmctld="/bin/true", task_prolog="/bin/true",
                   task_epilog="/bin/true", unkillable="/bin/true", reboot="/sbin/reboot"),
    private_tmp=PrivateTmp("/run/jobs"), slurm=SlurmSite(configless=True, options={"KeepAliveTime": 60}),
    partitions={"DEFAULT": {"MaxTime": "7-00:00:00", "DefaultTime": "01:00:00"},
                "gpu": {"Default": True, "OverSubscribe": "NO", "ExclusiveUser": False}})


def memory_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 ** 20


def put_before(found: Slurm, site: Site) -> Answer:
    node = m.inventory(([NODE], replace(m.A100P, memory_mib=memory_mib())), version="")
    result = render(node, replace(site, cluster=ClusterSite("prod", ("proof",))), RenderOptions(show(found.version)))
    assert result.problems == ()
    hardware = of_node(node.nodes[0])
    assert isinstance(hardware, Hardware)
    return ask(found, Cluster(result.files, (NodeRun(NODE, hardware, seconds=20.0),), folders=FOLDERS,
                              keep_cgroups=True, with_gres=False))


@pytest.mark.parametrize("suite", NAMES, ids=[suite or "own" for suite in NAMES])
@pytest.mark.parametrize("site", [PLAIN, FULL], ids=["plain", "full"])
def test_production_settings_start_without_a_complaint(suite: str, site: Site) -> None:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    answer = put_before(found, site)
    assert (answer.problem, answer.fatal) == ("", "")
    node = answer.nodes[0]
    said = [text for text in complaints([*answer.log, *node.log]) if not any(part in text for part in ELSEWHERE)]
    assert said == []
    assert node.state == "IDLE"
    assert node.node["Gres"] == "gpu:a100:4(S:0-1)"


@pytest.mark.parametrize("suite", NAMES, ids=[suite or "own" for suite in NAMES])
def test_gpu_tres_without_slurmdbd_are_what_slurmctld_dies_of(suite: str) -> None:
    """Why AccountingStorageTRES is written with accounting alone."""
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    files = {"slurm.conf": "ClusterName=c\nSlurmctldHost=proof\nAuthType=auth/munge\nGresTypes=gpu\n"
                           "AccountingStorageTRES=gres/gpu\nProctrackType=proctrack/linuxproc\n"
                           f"NodeName={NODE}\nPartitionName=a Nodes=ALL\n", "cgroup.conf": ""}
    answer = ask(found, Cluster(files, (NodeRun(NODE, Hardware("pack:1 core:1 pu:1"), seconds=5.0),), with_gres=False))
    assert "slurmdbd is required to run with TRES gres/gpu" in answer.fatal


JOBS = """sacctmgr -i add account lab Description=lab Organization=lab
srun -Q -A nobody -n1 --gres=gpu:a100:1 true || echo refused
sacctmgr -i add user root Account=lab
for request in "-n1 --gres=gpu:a100:1" "-n1 --gpus=4" "-n1 -c128 --mem=1000" "-n1 -c1 --mem=0"; do
    srun -Q -A lab $request sh -c 'scontrol show job $SLURM_JOB_ID | grep -oE "(Alloc)?TRES=.*" | tail -n 1'
done
sacctmgr -n -P show tres format=type,name | sort | tr '\\n' ' '
scontrol show partition | grep -oE 'TRESBillingWeights=.*'
"""


@pytest.mark.skipif(not all(map(shutil.which, ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged"))),
                    reason="slurmctld, slurmd, slurmdbd, mariadbd and munged are needed")
def test_accounting_with_a_real_database(tmp_path: Path) -> None:
    found = slurm("")
    assert isinstance(found, Slurm)
    secret = tmp_path / "password"
    secret.write_text("0123456789abcdef\n")
    secret.chmod(0o600)
    site = Site(
        cluster=ClusterSite("prod", (NODE,)),
        slurm=SlurmSite(options={"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none"}),
        accounting=AccountingSite(host=NODE, slurmdbd=True, enforce=("associations", "limits"),
                                  storage_host="127.0.0.1", storage_port=3306))
    node = replace(m.A100P, memory_mib=memory_mib())
    result = render(m.inventory(([NODE], node)), site, RenderOptions(show(found.version)))
    assert result.problems == ()
    (tmp_path / "slurm").mkdir()
    for name, text in result.files.items():
        (tmp_path / "slurm" / name).write_text(text)
    dbd = tmp_path / "slurm" / "slurmdbd.conf"
    dbd.write_text(conf_install.with_password(dbd.read_text(), secret))
    dbd.chmod(0o600)
    (tmp_path / "grants.sql").write_text(
        "CREATE DATABASE slurm_acct_db;\nCREATE USER 'slurm'@'%' IDENTIFIED BY '0123456789abcdef';\n"
        "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'%';\n")
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n192.0.2.1 {NODE}\n")
    (tmp_path / "devices").write_text("".join(f"195 {g.minor} {g.device_file}\n" for g in node.gpus))
    (tmp_path / "job").write_text(JOBS)
    done = subprocess.run(
        ["unshare", "-m", "-n", "-u", "-i", "-p", "-f", "--kill-child", "sh",
         str(Path(__file__).resolve().parent / "accounting.sh"), str(tmp_path), NODE],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HWLOC_SYNTHETIC": "pack:2 core:32 pu:2"}, capture_output=True,
        text=True, timeout=500, check=False)
    logs = {path.name: path.read_text() for path in (tmp_path / "log").glob("slurm*.log")}
    assert done.returncode == 0, (done.stderr, {name: text[-500:] for name, text in logs.items()})
    said = (tmp_path / "job.out").read_text()
    assert "State=IDLE" in (tmp_path / "node").read_text()
    assert "refused" in said, said
    assert "cpu=32,mem=" in said, said
    assert "billing=32,gres/gpu=1,gres/gpu:a100=1" in said, said
    assert "billing=128,gres/gpu=4,gres/gpu:a100=4" in said, said
    assert said.count("billing=128") == 3, said      # all GPUs, all CPUs or all memory: the whole node each time
    assert "gres|gpu gres|gpu:a100" in said, said
    assert [text for name, log in logs.items() for text in complaints(log.splitlines())
            if name != "slurmdbd.log" and "association" not in text] == []

"""A private Slurm on 127.0.0.1 for tests of validate: one slurmctld and several slurmd, own munge, own ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TOOLS = ("slurmctld", "slurmd", "munged", "srun", "sbatch")
CONF = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={dir}/munge/sock
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
TmpFS={dir}/tmp/%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
MessageTimeout=5
SlurmdTimeout=10
NodeName=n[01-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{end}] CPUs=4 RealMemory=1000
PartitionName=val Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=off Nodes=ALL State=DOWN
PartitionName=short Nodes=ALL MaxTime=5
"""


@dataclass
class Loopback:
    dir: Path
    nodes: list[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "HPCADMIN_"))}
        return {**kept, "SLURM_CONF": str(self.dir / "slurm.conf"), "HPCADMIN_DIR": str(self.dir / "admin"),
                "PYTHONPATH": str(Path(__file__).resolve().parents[2])}

    def start(self, name: str, *argv: str) -> None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        with (self.dir / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                    env={**self.env, "PATH": path}, start_new_session=True)

    def kill(self, name: str) -> None:
        """End a daemon and whatever it started, as a node dies."""
        process = self.processes.pop(name, None)
        if process is not None:
            for pid in [*of_node(name), *children(process.pid), process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait(20)

    def start_node(self, node: str) -> None:
        self.start(node, "slurmd", "-D", "-N", node)

    def slurm(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def wait_idle(self, count: int, seconds: float = 40) -> None:
        end = time.monotonic() + seconds
        while self.slurm("sinfo", "-h", "-p", "val", "-t", "idle", "-o", "%D").strip() != str(count):
            if time.monotonic() > end:
                raise AssertionError(self.slurm("sinfo") + (self.dir / "slurmctld.log").read_text()[-2000:])
            time.sleep(0.2)

    def hpcadmin(self, *argv: str, timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "hpcadmin", *argv], env={**self.env, **env}, capture_output=True,
                              text=True, timeout=timeout, check=False)

    def begin(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-m", "hpcadmin", *argv], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def queue(self) -> list[str]:
        return self.slurm("squeue", "-h", "-o", "%i %T").splitlines()


def of_node(node: str) -> list[int]:
    """What runs there for jobs, and the slurmstepd above it, which is no child of slurmd any more."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURMD_NODENAME={node}\0".encode() in (folder / "environ").read_bytes():
                parent = Path("/proc", (folder / "stat").read_text().rpartition(")")[2].split()[1])
                found += [int(parent.name)] if (parent / "comm").read_text().startswith("slurmstepd") else []
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def children(pid: int) -> list[int]:
    """All processes below one, by /proc."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        parents[int(folder.name)] = int(text.rpartition(")")[2].split()[1])
    found, todo = [], [pid]
    while todo:
        here = todo.pop()
        below = [p for p, parent in parents.items() if parent == here]
        found += below
        todo += below
    return found


def free_ports(count: int) -> int:
    """The first of so many ports that nobody uses now."""
    for base in range(30100, 32000, count + 3):
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@contextmanager
def loopback(folder: Path, count: int = 4) -> Iterator[Loopback]:
    """A running cluster; everything that it started is ended again."""
    if os.geteuid() != 0:
        pytest.skip("a private Slurm needs root")
    missing = [t for t in TOOLS if not shutil.which(t) and not Path("/usr/sbin", t).exists()]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    nodes = [f"n{i:02d}" for i in range(1, count + 1)]
    cluster = Loopback(folder, nodes)
    for name in ("state", "munge", *(f"{kind}/{n}" for kind in ("spool", "tmp") for n in nodes)):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o711)
    (folder / "munge/key").write_bytes(os.urandom(128))
    (folder / "munge/key").chmod(0o600)
    port = free_ports(count + 1)
    (folder / "slurm.conf").write_text(CONF.format(
        dir=folder, host=socket.gethostname().split(".")[0], port=port, last=nodes[-1][1:], first=port + 1,
        end=port + count))
    try:
        munge = folder / "munge"
        cluster.start("munged", "munged", "--force", "--foreground", f"--key-file={munge}/key",
                      f"--socket={munge}/sock", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                      f"--seed-file={munge}/seed")
        end = time.monotonic() + 10
        while not (munge / "sock").exists() and time.monotonic() < end:
            time.sleep(0.05)
        cluster.start("slurmctld", "slurmctld", "-D", "-c")
        for node in nodes:
            cluster.start_node(node)
        cluster.wait_idle(count)
        yield cluster
    finally:
        cluster.slurm("scancel", "--user=root", "--full")
        for name in [*nodes, "slurmctld", "munged"]:
            cluster.kill(name)

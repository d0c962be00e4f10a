"""A private Slurm on 127.0.0.1 for tests of validate: one slurmctld and several slurmd, own munge, own ports.

HPCADMIN_LOOPBACK_SLURM=trixie (or sid) has tests that say nothing else run on that Slurm instead of the first on PATH.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import slurm_inside
import slurm_roots

from hpcadmin.proof.parts import Slurm

TOOLS = ("slurmctld", "slurmd", "munged", "srun", "sbatch")
# What Slurm's commands say of a slurmctld that does not answer: it may be starved, or just being started.
SILENT = re.compile(r"timed out|Unable to contact slurm controller|Connection refused")
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
MessageTimeout=10
SlurmdTimeout=60
NodeName=n[01-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{end}] CPUs=4 RealMemory=1000
PartitionName=val Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=off Nodes=ALL State=DOWN
PartitionName=short Nodes=ALL MaxTime=5
PartitionName=whole Nodes=ALL MaxTime=1-02:03:00 OverSubscribe=EXCLUSIVE
"""


@dataclass
class Loopback:
    dir: Path
    nodes: list[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    bin: str = ""               # a folder with the commands of another Slurm

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "HPCADMIN_"))}
        own = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        path = [*([self.bin] if self.bin else []), os.environ.get("PATH", os.defpath)]
        return {**kept, "PATH": os.pathsep.join(path), "SLURM_CONF": str(self.dir / "slurm.conf"),
                "HPCADMIN_DIR": str(self.dir / "admin"), "PYTHONPATH": os.pathsep.join(own)}

    def start(self, name: str, *argv: str) -> None:
        env = self.env
        with (self.dir / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                    env={**env, "PATH": f"{env['PATH']}:/usr/sbin"},
                                                    start_new_session=True)

    def kill(self, name: str) -> None:
        """End a daemon and whatever it started, as a node dies."""
        process = self.processes.pop(name, None)
        if process is not None:
            for pid in [*self.of_node(name), *children(process.pid), process.pid]:
                end_process(pid)
            process.wait(60)
            while left := self.of_node(name):           # what was just being started
                for pid in left:
                    end_process(pid)
                time.sleep(0.05)

    def of_node(self, node: str) -> list[int]:
        """What runs there for jobs, and the slurmstepd above it, which is no child of slurmd any more. Other clusters
        on this machine have nodes of the same names."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "environ").read_bytes()
                if f"SLURMD_NODENAME={node}\0".encode() in words and f"{self.dir}/".encode() in words:
                    parent = Path("/proc", (folder / "stat").read_text().rpartition(")")[2].split()[1])
                    found += [int(parent.name)] if (parent / "comm").read_text().startswith("slurmstepd") else []
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def start_node(self, node: str) -> None:
        self.start(node, "slurmd", "-D", "-N", node)

    def slurm(self, *argv: str, patience_s: float = 60.0) -> str:
        """What it prints. Asked again for so long while slurmctld does not come to answering; sbatch never is."""
        end = time.monotonic() + patience_s
        while True:
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=120, check=False)
            silent = done.returncode and SILENT.search(done.stderr) and argv[0] != "sbatch"
            if not silent or time.monotonic() > end:
                return done.stdout
            time.sleep(0.2)

    def wait_idle(self, count: int, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while self.slurm("sinfo", "-h", "-p", "val", "-t", "idle", "-o", "%D").strip() != str(count):
            if time.monotonic() > end:
                raise AssertionError(self.slurm("sinfo") + (self.dir / "slurmctld.log").read_text()[-2000:])
            time.sleep(0.2)

    def hpcadmin(self, *argv: str, timeout: float = 240, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "hpcadmin", *argv], env={**self.env, **env}, capture_output=True,
                              text=True, timeout=timeout, check=False)

    def begin(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-m", "hpcadmin", *argv], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def version(self) -> tuple[int, ...]:
        words = self.slurm("sinfo", "--version").split()        # "slurm-wlm 22.05.8", "slurm 25.11.2"
        return tuple(int(part) for part in words[-1].split(".")[:2])

    def queue(self) -> list[str]:
        """Also jobs that slurmctld is still ending: those of a run that is over may be RUNNING or COMPLETING yet."""
        return self.slurm("squeue", "-h", "-o", "%i %T").splitlines()

    def jobs(self) -> set[str]:
        """All that slurmctld knows of, those that are over too."""
        return set(self.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%i").split())

    def wait_empty(self) -> None:
        wait_until(lambda: not self.queue())


def end_process(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


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


PORTS = range(20000, 32000)         # of which each cluster has some


def free_ports(count: int) -> int:
    """The first of so many ports that nobody uses now; drawn, so that two who begin at once do not get the same."""
    for _ in range(100):
        base = PORTS.start + secrets.randbelow(len(PORTS) - count)
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@contextmanager
def loopback(folder: Path, count: int = 4, *, slurm: Slurm | None = None, settings: Mapping[str, str] | None = None,
             before: Callable[[Loopback], None] | None = None) -> Iterator[Loopback]:
    """A running cluster; everything that it started is ended again. slurm: one of slurm_roots; None: the first on PATH.
    settings: more of slurm.conf, or others. before: starts what slurmctld needs, when munged runs."""
    if os.geteuid() != 0:
        pytest.skip("a private Slurm needs root")
    if slurm is None and os.environ.get("HPCADMIN_LOOPBACK_SLURM"):
        slurm = at_hand(os.environ["HPCADMIN_LOOPBACK_SLURM"])
    missing = [t for t in TOOLS if not shutil.which(t) and not Path("/usr/sbin", t).exists()]
    if missing and not (slurm and slurm.root):
        pytest.skip(f"not installed: {', '.join(missing)}")
    nodes = [f"n{i:02d}" for i in range(1, count + 1)]
    cluster = Loopback(folder, nodes)
    for name in ("state", "munge", *(f"{kind}/{n}" for kind in ("spool", "tmp") for n in nodes)):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o711)
    (folder / "munge/key").write_bytes(os.urandom(128))
    (folder / "munge/key").chmod(0o600)
    with ExitStack() as stack:
        if slurm and slurm.root:
            cluster.bin = str(stack.enter_context(slurm_inside.commands(slurm, folder / "bin")))
        write_conf(cluster, settings or {})
        try:
            munge = folder / "munge"
            cluster.start("munged", "munged", "--force", "--foreground", f"--key-file={munge}/key",
                          f"--socket={munge}/sock", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                          f"--seed-file={munge}/seed")
            wait_until((munge / "sock").exists)
            if before is not None:
                before(cluster)
            cluster.start("slurmctld", "slurmctld", "-D", "-c")
            for node in nodes:
                cluster.start_node(node)
            cluster.wait_idle(count)
            yield cluster
        finally:
            cluster.slurm("scancel", "--user=root", "--full", patience_s=0.0)
            for name in [*nodes, *reversed([n for n in cluster.processes if n not in nodes])]:
                cluster.kill(name)


def at_hand(suite: str) -> Slurm:
    """The Slurm of slurm_roots of that name; the test is skipped with the reason where it cannot be had."""
    found = slurm_roots.slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{slurm_roots.NAMES.get(suite, suite)}: {found.why}")
    return found


def write_conf(cluster: Loopback, settings: Mapping[str, str]) -> None:
    """slurm.conf as this version of Slurm takes it."""
    count = len(cluster.nodes)
    port = free_ports(count + 1)
    text = CONF.format(dir=cluster.dir, host=socket.gethostname().split(".")[0], port=port, first=port + 1,
                       last=cluster.nodes[-1][1:], end=port + count)
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in settings]
    (cluster.dir / "slurm.conf").write_text("".join(f"{line}\n" for line in [
        *(f"{key}={value}" for key, value in settings.items()), *lines]))
    if cluster.version() >= (23, 11):           # an older one does not know the word, and does not look for the folder
        (cluster.dir / "cgroup.conf").write_text("CgroupPlugin=disabled\n")


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Until it holds; an AssertionError when it does not in so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {getattr(condition, '__name__', condition)}")
        time.sleep(0.1)

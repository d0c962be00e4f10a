"""Slurm's own parser and nothing more: a daemon reads files in a scratch folder, in namespaces that end with it."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.proof.parts import Slurm

HOST = "keys"
ALONE = ("unshare", "-m", "-n", "-u", "-i", "-p", "-f", "--kill-child")
# The scratch folder is /mnt of the root, in this mount namespace only: nothing is left in the root.
ENTER = """
set -e
root=$1 scratch=$2; shift 2
mount --make-rprivate /
mount -t tmpfs over "$scratch/over"
mkdir "$scratch/over/upper" "$scratch/over/work"
mount -t overlay etc -o "lowerdir=$root/etc,upperdir=$scratch/over/upper,workdir=$scratch/over/work" "$root/etc"
cp "$scratch/hosts" "$root/etc/hosts"
mount --bind "$scratch" "$root/mnt"
mount -t proc proc "$root/proc"
[ -e "$root/sys/kernel" ] || mount --rbind /sys "$root/sys"
[ -e "$root/dev/null" ] || mount --rbind /dev "$root/dev"
ip link set lo up
ip address add 192.0.2.1/32 dev lo
hostname keys
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF=/mnt/slurm.conf "$@"
"""
NODE = f"NodeName={HOST} CPUs=1 Gres=thing:1\n"
PARTITION = f"PartitionName=p Nodes={HOST}\n"
# Daemons that need no munged, and leave the machine's control groups alone.
BASE = f"""ClusterName=keys
SlurmctldHost={HOST}(192.0.2.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation=/mnt/state
SlurmdSpoolDir=/mnt/spool
SlurmctldPidFile=/mnt/slurmctld.pid
SlurmdPidFile=/mnt/slurmd.pid
ProctrackType=proctrack/linuxproc
GresTypes=thing
SlurmdParameters=config_overrides
MailProg=/bin/true
"""
GRES = "Name=thing Count=1\n"
SLURMD = ("slurmd", "-G", "-N", HOST)            # reads slurm.conf, cgroup.conf and gres.conf, and ends
SLURMCTLD = ("slurmctld", "-D", "-c")
RUNNING = "Running as primary controller"
SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """started: it did not end by itself with a fatal line."""

    started: bool
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def unrecognised(self) -> frozenset[str]:
        """Keys that no table of the parser has, in small letters."""
        mark = "at unrecognized key: "
        return frozenset(line.partition(mark)[2].split()[0].casefold() for line in self.lines if mark in line)

    @property
    def fatal(self) -> str:
        return next((line for line in self.lines if "fatal:" in line), "")


def conf(more: str = "", *, node: str = NODE, partition: str = PARTITION, base: str = BASE) -> str:
    return f"{base}{node}{partition}{more}"


def without(base: str, *keys: str) -> str:
    """BASE without settings that a test has its own of."""
    return "".join(f"{line}\n" for line in base.splitlines() if line.partition("=")[0] not in keys)


def read(slurm: Slurm, files: Mapping[str, str], program: tuple[str, ...] = SLURMD, until: str = "", *,
         linger: float = 0.0) -> Answer:
    """What `program` says of the files; stopped `linger` seconds after it says `until`."""
    with tempfile.TemporaryDirectory(prefix="hpcadmin-keys-") as folder:
        scratch = Path(folder)
        scratch.chmod(0o755)
        for name in ("state", "spool", "over"):
            (scratch / name).mkdir()
        for name, text in {"cgroup.conf": "CgroupPlugin=cgroup/v1\n", "gres.conf": GRES, **files}.items():
            (scratch / name).write_text(text)
        (scratch / "hosts").write_text(f"127.0.0.1 localhost\n192.0.2.1 {HOST}\n")
        command = [*ALONE, "sh", "-c", ENTER, "sh", str(slurm.root or "/"), str(scratch), *program]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace") as process:
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            assert process.stdout is not None
            lines, stopped = [], False
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if until and until in line and not stopped:
                    stopped = True
                    timer.cancel()
                    timer = threading.Timer(linger, process.kill)
                    timer.start()
            process.wait()
            timer.cancel()
    ended = process.returncode == 0 or (stopped and process.returncode < 0)
    return Answer(ended, tuple(lines))

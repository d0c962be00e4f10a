"""A Slurm that lies in a folder with a system of its own, as commands on PATH: each enters the folder and does its work
there. What is below /tmp, the processes, the devices and the network are the machine's: paths there mean the same."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcadmin.proof.parts import Slurm

COMMANDS = ("slurmctld", "slurmd", "slurmdbd", "munged", "srun", "sbatch", "squeue", "sinfo", "scontrol", "scancel",
            "sacct", "sacctmgr")
# The folder itself is only read: an overlay in a mount namespace is its root, and goes with the last process.
ENTER = """
set -e
mount --make-rslave /
mount -t tmpfs -o mode=755 over /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay over -o "lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
for name in /proc /sys /dev /tmp "$2"; do
    mkdir -p "/mnt/root$name"
    mount --rbind "$name" "/mnt/root$name"
done
cp /etc/hosts /mnt/root/etc/hosts
exec chroot /mnt/root sh -c 'echo entered; exec sleep 100000'
"""
COMMAND = """#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
exec nsenter -t {pid} -m -r -w -- sh -c 'cd -- "$1" 2>/dev/null; shift; exec {name} "$@"' sh "$PWD" "$@"
"""


@contextmanager
def commands(slurm: Slurm, folder: Path) -> Iterator[Path]:
    """The folder with the commands, made as `folder`. What is beside it is seen inside, too."""
    argv = ["unshare", "-m", "sh", "-c", ENTER, "sh", slurm.root, str(folder.parent)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}) as holder:
        try:
            assert holder.stdout is not None and holder.stderr is not None
            if holder.stdout.readline() != "entered\n":
                raise AssertionError(f"{slurm.root} cannot be entered: {holder.stderr.read()}")
            folder.mkdir()
            for name in COMMANDS:
                path = folder / name
                path.write_text(COMMAND.format(pid=holder.pid, name=name))
                path.chmod(0o755)
            yield folder
        finally:
            os.killpg(holder.pid, signal.SIGKILL)

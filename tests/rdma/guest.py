"""A QEMU guest on this machine's own root file system, with the kernel modules for RDMA that the machine lacks.

The guest sees the machine's files read-only (what it writes goes to memory and is gone with it) and one directory
that it shares with us. A script in that directory does the work and leaves files there; the console is not its output.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RXE_MODULE = "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko"
CPUS, MEMORY = 2, "1500M"

# What the stage needs beside a kernel, with the package that has it.
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "rdma": "iproute2",
    "ib_write_bw": "perftest",
    "ibv_devinfo": "ibverbs-utils",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
}


def kernels(boot: Path = Path("/boot"), modules: Path = Path("/lib/modules")) -> list[Path]:
    """The installed kernels that have Soft-RoCE, newest first."""
    found = [p for p in boot.glob("vmlinuz-*") if list((modules / p.name[8:] / RXE_MODULE).parent.glob("rdma_rxe.ko*"))]
    return sorted(found, key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)], reverse=True)


def find_vng() -> str | None:
    """virtme-ng of this Python's environment, else of PATH."""
    beside = Path(sys.executable).parent / "vng"
    return str(beside) if beside.is_file() else shutil.which("vng")


def missing() -> str:
    """Why no guest can be started here, as one line; empty when it can."""
    if os.geteuid() != 0:
        return "not root: the guest reads this machine's root file system and starts Slurm"
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    lacking = [f"{tool} ({package})" for tool, package in TOOLS.items() if not shutil.which(tool, path=path)]
    if not kernels():
        lacking.append(f"a kernel in /boot with {Path(RXE_MODULE).name} (linux-image-amd64)")
    if find_vng() is None:
        lacking.append("vng (pip install virtme-ng)")
    return f"not installed: {', '.join(lacking)}" if lacking else ""


@dataclass(frozen=True)
class Guest:
    """How a guest is started: shared is the directory it may write, read_only what it must see besides."""

    shared: Path
    kernel: Path
    vng: str
    read_only: Sequence[Path] = ()

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command line that boots the guest, runs `command` in it and powers it off. No KVM, no network."""
        return [
            self.vng, "--verbose", "--disable-microvm", "--disable-kvm", "--force-9p",
            "--run", str(self.kernel), "--cpus", str(CPUS), "--memory", MEMORY,
            *(f"--rodir={path}" for path in self.read_only), f"--rwdir={self.shared}",
            "--", shlex.join(command),
        ]


@dataclass(frozen=True)
class Boot:
    """What became of a guest: its console is kept as a file beside the shared directory."""

    exit_status: int
    seconds: float
    timed_out: bool
    console: Path


def run(guest: Guest, command: Sequence[str], scratch: Path, timeout_s: float) -> Boot:
    """Boot, run, power off; after `timeout_s` the guest is killed. scratch takes the console and temporary files."""
    home = scratch / "home"
    home.mkdir(parents=True, exist_ok=True)
    console = scratch / "console"
    path = f"{Path(guest.vng).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"     # vng starts its other half by name
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "PATH": path}
    begin = time.monotonic()
    with console.open("wb") as out:
        child = subprocess.Popen(guest.argv(command), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                 env=environment, cwd=guest.shared, start_new_session=True)
        timed_out = False
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end_group(child)
    return Boot(child.returncode, time.monotonic() - begin, timed_out, console)


def _end_group(leader: subprocess.Popen[bytes]) -> None:
    """End the child and what it started (QEMU): they are the session that we made for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def write_settings(path: Path, settings: Mapping[str, object]) -> None:
    """A file of shell assignments, every value quoted."""
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in settings.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def needed_directories(repository: Path) -> list[Path]:
    """What the guest must be shown because it hides it behind an empty directory of its own (/var/cache, /run, …)."""
    prefix = Path(sys.prefix)
    return [repository, prefix] if sys.prefix != sys.base_prefix else [repository]

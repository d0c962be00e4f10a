"""Two QEMU guests on this machine's own root file system, with the kernel modules for RDMA that the machine lacks.

A guest sees the machine's files read-only (what it writes goes to memory and is gone with it) and one directory that
it shares with the other and with us. A script in that directory does the work and leaves files there; the console is
not its output. A cable of QEMU's joins the two: RDMA and Slurm between them cross a network, as between real nodes.
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
CPUS, MEMORY = 1, "1G"      # of each of the two guests

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

    name: str
    shared: Path
    kernel: Path
    vng: str
    read_only: Sequence[Path] = ()
    options: Sequence[str] = ()                 # of QEMU

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command line that boots the guest, runs `command` in it and powers it off. No KVM."""
        return [
            self.vng, "--verbose", "--disable-microvm", "--disable-kvm", "--force-9p", "--name", self.name,
            "--run", str(self.kernel), "--cpus", str(CPUS), "--memory", MEMORY,
            *(f"--rodir={path}" for path in self.read_only), f"--rwdir={self.shared}",
            *(f"--qemu-opts={option}" for option in self.options),
            "--", shlex.join(command),
        ]


def cable(socket: Path, end: int) -> tuple[str, ...]:
    """QEMU options for one end of a network cable between two guests; end 0 must be there before end 1."""
    server = "on" if end == 0 else "off"
    return (f"-netdev stream,id=cable,server={server},addr.type=unix,addr.path={socket}",
            f"-device virtio-net-pci,netdev=cable,mac=52:54:00:00:00:{end + 1:02d}")


def file_system(path: Path, tag: str) -> tuple[str, ...]:
    """QEMU options for a directory that a guest can mount by its tag with the owners that files really have.

    The shared directory that virtme-ng mounts makes all files root's; users' jobs need one that tells users apart.
    """
    return (f"-virtfs local,path={path},mount_tag={tag},security_model=passthrough,multidevs=remap",)


@dataclass(frozen=True)
class Boot:
    """What became of the guests: the consoles are kept as files beside the shared directory."""

    exit_status: int
    seconds: float
    timed_out: bool
    console: Path


def run_two(first: Guest, second: Guest, script: Sequence[str], scratch: Path, *, socket: Path,
            timeout_s: float) -> Boot:
    """Boot both; `script` runs in each, with the guest's name behind it. It is over when the first one powers off.

    Whatever still runs then, or after `timeout_s`, is killed. scratch takes consoles and temporary files; socket is
    the one of their cable.
    """
    begin = time.monotonic()
    deadline = begin + timeout_s
    leader = _start(first, [*script, first.name], scratch)
    follower = None
    try:
        while not socket.exists() and leader.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if socket.exists():
            follower = _start(second, [*script, second.name], scratch)
        try:
            leader.wait(max(0.0, deadline - time.monotonic()))
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
    finally:
        _end_group(leader)
        if follower:
            _end_group(follower)
    return Boot(leader.returncode, time.monotonic() - begin, timed_out, scratch / f"{first.name}.console")


def _start(guest: Guest, command: Sequence[str], scratch: Path) -> subprocess.Popen[bytes]:
    home = scratch / f"{guest.name}.home"
    home.mkdir(parents=True, exist_ok=True)
    path = f"{Path(guest.vng).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"     # vng starts its other half by name
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "PATH": path}
    with (scratch / f"{guest.name}.console").open("wb") as out:
        return subprocess.Popen(guest.argv(command), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                env=environment, cwd=guest.shared, start_new_session=True)


def _end_group(leader: subprocess.Popen[bytes]) -> None:
    """End the child and what it started (QEMU): they are the session that we made for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
        for _ in range(100):            # until the last one is gone
            os.killpg(leader.pid, 0)
            time.sleep(0.1)
    leader.wait()


def write_settings(path: Path, settings: Mapping[str, object]) -> None:
    """A file of shell assignments, every value quoted."""
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in settings.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def needed_directories(repository: Path) -> list[Path]:
    """What the guest must be shown because it hides it behind an empty directory of its own (/var/cache, /run, …)."""
    prefix = Path(sys.prefix)
    return [repository, prefix] if sys.prefix != sys.base_prefix else [repository]

"""Ending a lab: at any time, twice, or after a crash of what started it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from hpcadmin.errors import LabError
from hpcadmin.lab import journal, machine
from hpcadmin.lab.enter import tool
from hpcadmin.lab.journal import Lab, Process, alive
from hpcadmin.lab.network import check_name

STOP_MARK = "stop"


def down(name: str = "lab") -> bool:
    """End the lab and remove everything of it; False when there was nothing to end."""
    machine.require_root()
    check_name(name)
    folder = journal.lab_dir(name)
    if not folder.is_dir():
        return False
    (folder / STOP_MARK).touch()     # an `up` at work sees it, ends and cleans up itself
    try:
        with journal.locked(name, wait_s=30.0):
            if not folder.is_dir():
                return True
            if not (folder / "lab.json").exists():
                remove_folder(folder)
                return True
            tear_down(journal.load(name))
    except FileNotFoundError:
        pass
    return True


def tear_down(lab: Lab) -> None:
    """End all processes of the lab (by id, verified), then its interface, cgroups and folder."""
    processes = [h.process for h in lab.hosts if h.process]
    for process in processes:
        kill(process, signal.SIGKILL)
    remaining = wait_gone(processes, 20.0)
    if remaining:
        raise LabError(f"processes that do not end: {', '.join(str(p.pid) for p in remaining)}",
                       hint="an unkillable process waits for a device or a file system; call down again")
    remove_interface(lab.interface)
    for cgroup in lab.cgroups:
        remove_cgroup(Path(cgroup))
    remove_folder(lab.dir)


def kill(process: Process, number: signal.Signals) -> bool:
    """Signal a process only if it is still the one we mean."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def wait_gone(processes: list[Process], timeout_s: float) -> list[Process]:
    deadline = time.monotonic() + timeout_s
    left = [p for p in processes if alive(p)]
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = [p for p in left if alive(p)]
    return left


def remove_interface(name: str) -> None:
    """The machine's end of the cable; it may be gone already with the network namespace of the switch."""
    path = Path("/sys/class/net") / name
    deadline = time.monotonic() + 10
    while path.exists():
        subprocess.run([tool("ip"), "link", "del", name], capture_output=True, check=False, timeout=20)
        if time.monotonic() > deadline:
            raise LabError(f"the interface {name} cannot be removed")
        if path.exists():
            time.sleep(0.02)


def remove_cgroup(folder: Path) -> None:
    """A cgroup folder and those below it; processes in them have been ended before."""
    for path, _, _ in os.walk(folder, topdown=False):
        for _ in range(100):
            try:
                Path(path).rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)


def remove_folder(folder: Path) -> None:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    inside = [p for p in points if p.startswith(f"{folder}/")]
    if inside:
        raise LabError(f"{inside[0]} is a mount point that the lab did not make", hint="unmount it, call down again")
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        journal.ROOT.rmdir()

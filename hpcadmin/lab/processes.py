"""The processes of a lab host, as the machine sees them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hpcadmin.lab.journal import Host, alive


def processes(host: Host) -> list[int]:
    """Ids of all processes in a host's PID namespace, its first process first."""
    if host.process is None or not alive(host.process):
        return []
    first = host.process.pid
    try:
        space = Path(f"/proc/{first}/ns/pid").readlink()
    except OSError:
        return []
    found = [first]
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):
            if pid != first and (folder / "ns/pid").readlink() == space:
                found.append(pid)
    return found


def program(pid: int) -> str:
    """Name of the program file that a process runs; "" when it is gone."""
    try:
        name = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""
    return name.removesuffix(" (deleted)").removesuffix("-wlm")   # Debian: slurmd is a link to slurmd-wlm


def run_state(pid: int) -> str:
    """The letter of /proc/PID/stat: R, S, D, T (stopped), Z; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

"""What runs: processes of each lab host, Slurm's view of the nodes, active faults."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.lab.journal import Host, Lab, alive
from hpcadmin.lab.start import node_states
from hpcadmin.text import printable

SERVICES = ("sshd", "munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd")


@dataclass(frozen=True)
class HostState:
    name: str
    role: str
    address: str
    up: bool
    services: tuple[str, ...] = ()
    processes: int = 0
    stopped: int = 0                # processes that a freeze holds
    slurm: str = ""                 # state by Slurm, "" for the head and when slurmctld does not answer
    reason: str = ""
    faults: tuple[str, ...] = ()
    simulated: str = ""


@dataclass(frozen=True)
class LabState:
    name: str
    phase: str
    net: str
    dir: str
    slurmctld: bool                 # it answered
    hosts: tuple[HostState, ...]
    notes: tuple[str, ...] = ()


def status(lab: Lab) -> LabState:
    states = node_states(lab) if alive(lab.head.process) else {}
    hosts = []
    for host in (lab.head, *lab.nodes):
        state, reason = states.get(host.name, ("", ""))
        pids = processes(host)
        names = {pid: program(pid) for pid in pids}
        hosts.append(HostState(
            name=host.name, role=host.role, address=host.address, up=alive(host.process),
            services=tuple(s for s in SERVICES if s in names.values()), processes=len(pids),
            stopped=sum(1 for pid in pids if run_state(pid) == "T"), slurm=printable(state, limit=40),
            reason="" if reason in ("none", "") else printable(reason, limit=200),
            faults=tuple(lab.faults.get(host.name, ())), simulated=host.hardware))
    return LabState(name=lab.name, phase=lab.phase, net=lab.net, dir=str(lab.dir), slurmctld=bool(states),
                    hosts=tuple(hosts), notes=lab.notes)


def processes(host: Host) -> list[int]:
    """Ids (as the machine sees them) of all processes in a host's PID namespace, its first process first."""
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
        return name.removesuffix(" (deleted)").removesuffix("-wlm")   # Debian: slurmd is a link to slurmd-wlm
    except OSError:
        return ""


def run_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

"""What runs: processes of each lab host, Slurm's view of the nodes, active faults."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.lab.journal import Lab, alive
from hpcadmin.lab.processes import processes, program, run_state
from hpcadmin.lab.slurmwait import node_states
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

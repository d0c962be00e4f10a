"""Waiting for the lab's Slurm, and saying in one line why it does not come."""

from __future__ import annotations

import time
from collections.abc import Callable

from hpcadmin.errors import LabError
from hpcadmin.lab.enter import run_on
from hpcadmin.lab.journal import Host, Lab
from hpcadmin.lab.processes import processes, program
from hpcadmin.lab.slurmlog import DAEMONS, last_complaint, last_errors

READY = ("idle", "mixed", "allocated", "completing")
States = dict[str, tuple[str, str]]


def wait_idle(lab: Lab, nodes: list[str], *, timeout_s: float, stop: Callable[[], None]) -> None:
    """Until Slurm says that these nodes can take jobs. Raises LabError with the log's reason when they never will."""
    began = looked = time.monotonic()
    while True:
        stop()
        hosts = [lab.head, *(lab.host(n) for n in nodes)]
        _raise_fatal(lab, hosts)
        states = node_states(lab, timeout_s=5.0)
        _raise_wrong(states, nodes)
        if states and all(states[n][0] in READY for n in nodes):
            return
        if time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            _raise_ended(lab, [h for h in hosts if states.get(h.name, ("", ""))[0] not in READY])
        if time.monotonic() - began > timeout_s:
            raise LabError(_why_not(lab, nodes, states))
        time.sleep(0.05)


def _raise_fatal(lab: Lab, hosts: list[Host]) -> None:
    for host in hosts:
        text = last_complaint(lab, host, fatal_only=True)
        if text:
            raise LabError(text, where=host.name)


def _raise_wrong(states: States, nodes: list[str]) -> None:
    """What does not get better by waiting: a node that Slurm refuses, or does not know."""
    for name in nodes:
        state, reason = states.get(name, ("", ""))
        if states and not state:
            raise LabError(f"slurm.conf has no partition with {name}", hint="node names of the lab are node01, …")
        if state.rstrip("*").startswith(("inval", "drain")):
            raise LabError(f"Slurm says {state}: {reason}", where=name)


def _raise_ended(lab: Lab, hosts: list[Host]) -> None:
    """A daemon that has ended without a fatal line."""
    for host in hosts:
        daemon = DAEMONS[host.role][0]
        if daemon not in [program(pid) for pid in processes(host)]:
            _raise_fatal(lab, [host])      # it may have said so since we looked
            said = last_errors(lab, host, daemon) or "it says nothing"
            raise LabError(f"{daemon} has ended: {said}", where=host.name)


def _why_not(lab: Lab, nodes: list[str], states: States) -> str:
    late = [n for n in nodes if states.get(n, ("", ""))[0] not in READY]
    for host in [*(lab.host(n) for n in late), lab.head]:
        complaint = last_complaint(lab, host)
        if complaint:
            return f"{', '.join(late)} not idle; {host.name} says: {complaint}"
    said = ", ".join(f"{n} is {states[n][0]}" if n in states else f"{n} is unknown" for n in late)
    return f"Slurm has not all nodes idle: {said or 'no answer'}"


def node_states(lab: Lab, *, timeout_s: float = 5.0) -> States:
    """Node -> (state in small letters, reason), {} while slurmctld does not answer."""
    done = run_on(lab, lab.head, ["sinfo", "-h", "-N", "-o", "%N|%T|%E"], timeout_s=timeout_s)
    if done.returncode != 0:
        return {}
    rows = [line.split("|", 2) for line in done.stdout.splitlines() if line.count("|") >= 2]
    return {name: (state.lower(), reason) for name, state, reason in rows}

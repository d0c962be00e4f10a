"""Sockets as slurmd counts them: packages, or NUMA nodes as virtual sockets, and which of the two suits the GPUs.

Cores are abstract core indices: places in hwloc's logical order, which is what gres.conf's Cores= means. From Slurm
25.11 on, Cores= must be exactly one socket, or be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from hpcadmin.model import Cpu, Gpu

CoreSet = frozenset[int]


class Mode(Enum):
    """What slurmd takes for a socket; the value is the slurmd parameter."""

    PACKAGE = ""
    NUMA = "numa_node_as_socket"


@dataclass(frozen=True)
class Layout:
    """A node's CPUs as NodeName= says them. spans: each socket's cores; empty when cores are not known one by one."""

    mode: Mode
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    spans: tuple[CoreSet, ...] = ()

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores_per_socket * self.threads_per_core


@dataclass(frozen=True)
class Near:
    """The cores near a GPU; None, with the reason, when they are not known."""

    cores: CoreSet | None
    why: str


@lru_cache(maxsize=4096)
def layout(cpu: Cpu, mode: Mode) -> Layout | str:
    """The layout of `cpu` in `mode`, or why there is none."""
    if cpu.sockets is None or cpu.cores_per_socket is None or cpu.threads_per_core is None:
        return "sockets, cores or threads are not known"
    if min(cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) < 1:
        return "sockets, cores or threads are below one"
    if not cpu.cores:
        if mode is Mode.NUMA:
            return "cores are not known one by one"
        return Layout(mode, cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core)
    spans = _spans([c.socket if mode is Mode.PACKAGE else c.numa for c in cpu.cores])
    if isinstance(spans, str):
        return spans
    found = Layout(mode, len(spans), len(spans[0]), cpu.threads_per_core, spans)
    threads = {len(c.cpus) for c in cpu.cores}
    if threads != {cpu.threads_per_core}:
        return f"cores have {_either(threads)} threads, the node says {cpu.threads_per_core}"
    if mode is Mode.PACKAGE and (found.sockets, found.cores_per_socket) != (cpu.sockets, cpu.cores_per_socket):
        return (f"{len(cpu.cores)} cores on {found.sockets} sockets are listed, the node says {cpu.sockets} sockets of "
                f"{cpu.cores_per_socket}")
    return found


def _spans(keys: Sequence[int | None]) -> tuple[CoreSet, ...] | str:
    """Runs of equal keys as core sets; a text when a key is unknown, comes twice, or the runs differ in length."""
    runs: list[list[int]] = []
    seen: list[int] = []
    for index, key in enumerate(keys):
        if key is None:
            return "the NUMA node of some cores is not known"
        if not seen or seen[-1] != key:
            if key in seen:
                return "cores of one socket are not next to each other"
            seen.append(key)
            runs.append([])
        runs[-1].append(index)
    if len({len(run) for run in runs}) != 1:
        return "sockets have different numbers of cores: " + ", ".join(str(len(run)) for run in runs)
    return tuple(frozenset(run) for run in runs)


def _either(numbers: set[int]) -> str:
    return " or ".join(str(n) for n in sorted(numbers))


def near_cores(cpu: Cpu, gpu: Gpu) -> Near:
    """The cores that have a hardware thread among the GPU's local CPUs (sysfs), else on its NUMA node."""
    return _near_cores(cpu, gpu.local_cpus, gpu.numa)


@lru_cache(maxsize=4096)
def _near_cores(cpu: Cpu, local_cpus: tuple[int, ...], numa: int | None) -> Near:
    if not cpu.cores:
        return Near(None, "the node's cores are not known one by one")
    numa_cpus = frozenset(next((n.cpus for n in cpu.numa if n.id == numa), ())) if numa is not None else frozenset()
    local = frozenset(local_cpus)
    if local and numa_cpus and not local & numa_cpus:
        return Near(None, f"its local CPUs are not those of its NUMA node {numa}")
    cpus = local or numa_cpus
    if not cpus:
        return Near(None, "no source names the CPUs near it")
    cores = frozenset(i for i, core in enumerate(cpu.cores) if not cpus.isdisjoint(core.cpus))
    if not cores:
        return Near(None, "the CPUs near it belong to no core of the node")
    source = "local CPUs" if local else f"NUMA node {numa}"
    return Near(cores, f"cores of its {source}, as Slurm counts cores")


def fits(found: Layout, near: Near) -> bool:
    """Whether Cores= may be written (one whole socket) or is not needed (all cores, or unknown)."""
    if near.cores is None or not found.spans:
        return True
    return near.cores in found.spans or len(near.cores) == sum(len(s) for s in found.spans)


def suits(cpu: Cpu, gpus: Sequence[Gpu], mode: Mode) -> bool:
    found = layout(cpu, mode)
    return isinstance(found, Layout) and all(fits(found, near_cores(cpu, gpu)) for gpu in gpus)


def choose(machines: Sequence[tuple[Cpu, Sequence[Gpu]]]) -> Mode:
    """The mode in which every GPU's near cores are one socket on all these machines; packages where there is none."""
    if all(suits(cpu, gpus, Mode.PACKAGE) for cpu, gpus in machines):
        return Mode.PACKAGE
    if all(suits(cpu, gpus, Mode.NUMA) for cpu, gpus in machines):
        return Mode.NUMA
    return Mode.PACKAGE

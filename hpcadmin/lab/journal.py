"""lab.json: what a lab consists of, written before it is made, so that it can be ended at any time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcadmin.errors import LabError, StoreError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.records import dumps, loads

SCHEMA = 1
ROOT = Path("/run/hpcadmin-lab")
SWITCH = "switch"


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken: a process id is used again, but not with the same start time."""

    pid: int
    start: int


@dataclass(frozen=True)
class Host:
    """The switch, the head or a node. process is the first process of its PID namespace; None before it exists."""

    name: str
    role: str
    address: str = ""
    port: int = 0
    process: Process | None = None
    hardware: str = ""


@dataclass(frozen=True)
class Lab:
    name: str
    net: str
    interface: str
    machine_address: str
    user: str
    uid: int
    hosts: tuple[Host, ...]
    phase: str = "starting"                 # starting, up
    created: str = ""
    prefix: int = 24
    base: str = "/"
    conf: str = ""
    shared: str = ""
    accounting: bool = False
    cgroups: tuple[str, ...] = ()           # folders made for this lab
    notes: tuple[str, ...] = ()
    faults: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def dir(self) -> Path:
        return lab_dir(self.name)

    @property
    def head(self) -> Host:
        return next(h for h in self.hosts if h.role == "head")

    @property
    def switch(self) -> Host:
        return next(h for h in self.hosts if h.role == SWITCH)

    @property
    def nodes(self) -> tuple[Host, ...]:
        return tuple(h for h in self.hosts if h.role == "node")

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name and host.role != SWITCH:
                return host
        known = ", ".join(h.name for h in self.hosts if h.role != SWITCH)
        from hpcadmin.errors import UsageError  # noqa: PLC0415
        raise UsageError(f"lab {self.name} has no host {name!r}", hint=f"it has {known}")

    def with_process(self, name: str, process: Process | None) -> Lab:
        hosts = tuple(replace(h, process=process) if h.name == name else h for h in self.hosts)
        return replace(self, hosts=hosts)

    def with_faults(self, node: str, faults: tuple[str, ...]) -> Lab:
        others = {k: v for k, v in self.faults.items() if k != node}
        return replace(self, faults={**others, node: faults} if faults else others)


def lab_dir(name: str) -> Path:
    return ROOT / name


def save(lab: Lab) -> None:
    write_atomic(lab.dir / "lab.json", dumps(lab, indent=1) + "\n", mode=0o644)


def load(name: str) -> Lab:
    """The lab of that name. Raises LabError when it is not up, or its journal is unreadable."""
    path = lab_dir(name) / "lab.json"
    if not path.exists():
        raise LabError(f"lab {name} is not up", hint=f"hpcadmin lab up --name {name}")
    try:
        lab = loads(Lab, read_whole(path).decode("utf-8", "replace"), where=str(path))
    except StoreError as exc:
        raise LabError(exc.what, where=str(path), hint=exc.hint) from exc
    assert isinstance(lab, Lab)  # noqa: S101
    if lab.schema != SCHEMA:
        raise LabError(f"schema {lab.schema} of the lab is not {SCHEMA}", where=str(path),
                       hint="end it with the version of hpcadmin that started it")
    return lab


def all_labs() -> list[Lab]:
    labs = []
    for path in sorted(ROOT.glob("*/lab.json")) if ROOT.is_dir() else []:
        with contextlib.suppress(LabError):
            labs.append(load(path.parent.name))
    return labs


@contextlib.contextmanager
def locked(name: str, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lab's folder (it must exist) against another `up`, `down` or `fault`; False when it is not to be had."""
    fd = os.open(lab_dir(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + wait_s
    try:
        got = False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                got = True
                break
            except OSError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.05)
        yield got
    finally:
        os.close(fd)


def identify(pid: int) -> Process | None:
    """The process with its start time, or None when there is none (or only its remains, not yet collected)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    parts = text.rpartition(")")[2].split()
    if len(parts) < 20 or parts[0] in "ZX":
        return None
    return Process(pid, int(parts[19]))


def alive(process: Process | None) -> bool:
    return process is not None and identify(process.pid) == process

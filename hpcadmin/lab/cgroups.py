"""Each lab host has control groups of its own: folders made for the lab, seen as the root by a cgroup namespace.

Two labs with equal node names, and the machine's own Slurm, so never meet in a folder "slurm_node01".
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.lab import syscalls as sc

ENTER_TRIES = 10
_CONTROLLERS = frozenset({
    "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "net_cls", "net_prio", "perf_event",
    "hugetlb", "rdma", "misc",
})


@dataclass(frozen=True)
class Hierarchy:
    """A mounted control group file system. options is "" for version 2."""

    point: str
    kind: str
    options: str


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """The control group file systems in a mountinfo text."""
    found: dict[str, Hierarchy] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) < 6 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
            continue
        words = after[2].split(",") if after[0] == "cgroup" else []
        options = ",".join(w for w in words if w in _CONTROLLERS or w.startswith("name="))
        found[before[4]] = Hierarchy(before[4], after[0], options)
    return list(found.values())


def mounted() -> list[Hierarchy]:
    return [h for h in hierarchies(Path("/proc/self/mountinfo").read_text()) if h.point.startswith("/sys/fs/cgroup")]


def lab_folders(name: str) -> tuple[str, ...]:
    """The folders a lab makes, one in each hierarchy, below the caller's own: its limits hold for the lab too."""
    own = own_paths(Path("/proc/self/cgroup").read_text())
    found = []
    for hierarchy in mounted():
        above = f"{hierarchy.point}{own.get(hierarchy.options, '/')}".rstrip("/")
        found.append(f"{above if Path(above).is_dir() else hierarchy.point}/hpcadmin-lab-{name}")
    return tuple(found)


def own_paths(text: str) -> dict[str, str]:
    """A hierarchy's options -> the caller's path in it, from /proc/self/cgroup."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return {controllers: path for _, controllers, path in rows if ".." not in path}


def make(folders: Iterable[str], hosts: Iterable[str]) -> bool:
    """Make the folders with one inside for each host; False when control groups may not be made here."""
    names = list(hosts)
    try:
        for folder in folders:
            _make_one(Path(folder))
            for name in names:
                _make_one(Path(folder) / name)
    except OSError:
        return False
    return True


def _make_one(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):   # version 1: an empty set takes no process
        own = folder / name
        if own.exists() and not (folder / "cgroup.controllers").exists() and not own.read_text().strip():
            own.write_text((folder.parent / name).read_text())


def enter(folders: Iterable[str], host: str) -> None:
    """Move this process into its host's groups, which then are the root of what it can see."""
    for folder in folders:
        _enter_one(Path(folder), host)
    sc.unshare(sc.CLONE_NEWCGROUP)


def _enter_one(folder: Path, host: str) -> None:
    """An empty group may be gone again, seen once in some thousand labs: whoever manages a hierarchy of version 1 may
    take away what is empty (systemd does: cg_trim). Then it is made once more."""
    for tries in range(ENTER_TRIES):
        try:
            (folder / host / "cgroup.procs").write_text("0")
            return
        except FileNotFoundError:
            if tries == ENTER_TRIES - 1:
                raise
        time.sleep(0.05)
        make([str(folder)], [host])


def mount(target: Path, own: bool) -> None:
    """Control groups at `target`: the host's own, or else the machine's."""
    if not target.is_dir() or not Path("/sys/fs/cgroup").is_dir():
        return
    found = mounted()
    if not own or not found:
        sc.bind("/sys/fs/cgroup", str(target), recursive=True)
        return
    if found[0].point == "/sys/fs/cgroup":
        sc.mount("cgroup2", str(target), "cgroup2")
        return
    sc.mount("tmpfs", str(target), "tmpfs", options="mode=0755")
    for hierarchy in found:
        place = target / Path(hierarchy.point).relative_to("/sys/fs/cgroup")
        place.mkdir(parents=True, exist_ok=True)
        sc.mount(hierarchy.kind, str(place), hierarchy.kind, options=hierarchy.options)
    for link in Path("/sys/fs/cgroup").iterdir():
        if link.is_symlink():
            with contextlib.suppress(FileExistsError):
                (target / link.name).symlink_to(os.fspath(link.readlink()))

"""What slurmd makes of hwloc's tree: the line that `slurmd -C` prints, and where that is wrong.

As slurmd 22.05 does with hwloc 2: packages that have cores are sockets; what is left over in a division is dropped;
Groups right below the machine are taken for boards; of Intel's hybrid processors only the performance cores count.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.facts._hwloc import Machine, Obj, Tree, count, fold


@dataclass(frozen=True)
class SlurmdLine:
    cpus: int
    boards: int
    sockets_per_board: int
    cores_per_socket: int
    threads_per_core: int

    @property
    def product(self) -> int:
        return self.boards * self.sockets_per_board * self.cores_per_socket * self.threads_per_core

    @property
    def text(self) -> str:
        return (f"CPUs={self.cpus} Boards={self.boards} SocketsPerBoard={self.sockets_per_board} "
                f"CoresPerSocket={self.cores_per_socket} ThreadsPerCore={self.threads_per_core}")


def line(tree: Tree, levels: Machine) -> SlurmdLine | None:
    """None where the tree is not whole."""
    if tree.missing or levels.no_cpus or not levels.cpus:
        return None
    kept = levels.cpus & ~slow_cores(tree)
    cpus = count(kept)
    cores = sum(bool(core.cpus & kept) for core in levels.cores) or cpus
    sockets = len({core.package for core in levels.cores if core.cpus & kept and core.package is not None}) or 1
    boards = _boards(tree)
    return SlurmdLine(cpus, boards, sockets // boards, cores // sockets, cpus // cores)


def slow_cores(tree: Tree) -> int:
    """CPUs that slurmd leaves out unless it is told allow_ecores."""
    fast = [kind for kind in tree.kinds if kind.infos.get("CoreType", "").lower() == "intelcore"]
    if not fast:
        return 0
    kept, everything = 0, 0
    frequency = fast[0].infos.get("FrequencyMaxMHz")
    for kind in tree.kinds:
        everything |= kind.cpus
        if kind is fast[0] or (frequency and kind.infos.get("FrequencyMaxMHz") == frequency):
            kept |= kind.cpus
    return everything & ~kept


def _boards(tree: Tree) -> int:
    """Groups below the root, if such is its first child. A NUMA node of version 1 that holds several packages becomes
    such a Group when hwloc 2 reads it."""
    old = tree.version == "1"
    children = [child for child in tree.root.children
                if child.cpuset and (old or child.kind not in ("NUMANode", "MemCache"))]
    if not children or not _is_group(children[0], tree.root):
        return 1
    return sum(_is_group(child, tree.root) for child in children)


def _is_group(here: Obj, root: Obj) -> bool:
    if here.cpuset == root.cpuset:
        return False
    if here.kind == "NUMANode":
        return not any(child.cpuset == here.cpuset for child in here.walk() if child is not here)
    return here.kind == "Group"


def faults(found: SlurmdLine, tree: Tree) -> list[str]:
    said = []
    if found.product != found.cpus:
        why = "Groups are taken for boards" if found.boards > 1 else "sockets or cores are uneven"
        said.append(f"slurmd -C would print {found.text}, which multiplies to {found.product} CPUs: {why}")
    elif found.boards > 1:
        said.append(f"slurmd takes {found.boards} Groups for boards (Boards={found.boards}): the sockets are "
                    f"{found.boards * found.sockets_per_board} in all")
    if slow := slow_cores(tree):
        said.append(f"slurmd leaves out the efficiency cores (CPUs {fold(slow)}) without allow_ecores")
    return said

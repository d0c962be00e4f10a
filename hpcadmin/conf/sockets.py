"""Sockets as slurmd counts them: packages, NUMA nodes or L3 caches, and which of them suits a node's GPUs.

Cores are abstract core indices: places in hwloc's logical order, which is what gres.conf's Cores= means. From Slurm
25.11 on, Cores= must be exactly one socket or all cores; 24.11 and 25.05 take several whole ones, older ones anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hpcadmin.facts._cores import of_cpus
from hpcadmin.model import Cpu, Gpu, NumaNode
from hpcadmin.text import fold_ids

CoreSet = frozenset[int]
Place = tuple[tuple[int, ...], "int | None"]     # a GPU's local CPUs and NUMA node


class Mode(Enum):
    """What slurmd takes for a socket; the value is the slurmd parameter."""

    PACKAGE = ""
    NUMA = "numa_node_as_socket"
    L3 = "l3cache_as_socket"

    @property
    def noun(self) -> str:
        return {Mode.PACKAGE: "socket", Mode.NUMA: "NUMA node", Mode.L3: "L3 cache"}[self]


# The site's words for them.
WORDS = {"package": Mode.PACKAGE, "numa": Mode.NUMA, "l3": Mode.L3}


@dataclass(frozen=True)
class Layout:
    """A node's CPUs as NodeName= says them. spans: each socket's cores."""

    mode: Mode
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    spans: tuple[CoreSet, ...] = ()

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores_per_socket * self.threads_per_core

    @property
    def cores(self) -> int:
        return self.sockets * self.cores_per_socket


@dataclass(frozen=True)
class Near:
    """The cores near a GPU; None, with the reason, when they are not known."""

    cores: CoreSet | None
    why: str


@dataclass(frozen=True)
class Choice:
    """why: the reason for the mode. lost: places of GPUs whose cores are no socket in it."""

    mode: Mode
    why: str
    lost: tuple[Place, ...] = ()


@dataclass(eq=False)
class _Board:
    """A CPU with what was made of it, once for all nodes that share the object."""

    cpu: Cpu
    layouts: dict[Mode, Layout | str] = field(default_factory=dict)
    near: dict[Place, Near] = field(default_factory=dict)


_MAX_BOARDS = 1024
_boards: dict[int, _Board] = {}


def _board(cpu: Cpu) -> _Board:
    # By identity: a CPU of 256 cores takes longer to hash than to look at, and equal ones of an inventory are one.
    found = _boards.get(id(cpu))
    if found is None or found.cpu is not cpu:
        if len(_boards) >= _MAX_BOARDS:
            _boards.clear()
        found = _boards[id(cpu)] = _Board(cpu)
    return found


def layout(cpu: Cpu, mode: Mode) -> Layout | str:
    """The layout of `cpu` in `mode`, or why there is none."""
    board = _board(cpu)
    if mode not in board.layouts:
        board.layouts[mode] = _layout(cpu, mode)
    return board.layouts[mode]


def _layout(cpu: Cpu, mode: Mode) -> Layout | str:
    counts = (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core)
    sockets, cores, threads = counts
    if not cpu.cores:
        if sockets is None or cores is None or threads is None:
            return "sockets, cores or threads are not known"
        if min(sockets, cores, threads) < 1:
            return "sockets, cores or threads are below one"
        return _counted(cpu, mode, sockets, cores, threads)
    if threads is None:
        return "sockets, cores or threads are not known, or not the same everywhere"
    found = {len(core.cpus) for core in cpu.cores}
    if found != {threads}:
        return f"cores have {_either(found)} threads, the node says {threads}"
    spans = _spans(_keys(cpu, mode), mode)
    if isinstance(spans, str):
        return spans
    if mode is Mode.PACKAGE and None in counts:
        return "sockets, cores or threads are not known"
    if mode is Mode.PACKAGE and (len(spans), len(spans[0])) != (sockets, cores):
        return (f"{len(cpu.cores)} cores on {len(spans)} sockets are listed, the node says {sockets} sockets of "
                f"{cores}")
    if mode is Mode.NUMA and (uneven := _uneven(cpu, spans)):
        return uneven
    return Layout(mode, len(spans), len(spans[0]), threads, spans)


def _counted(cpu: Cpu, mode: Mode, sockets: int, cores: int, threads: int) -> Layout | str:
    """Where cores are not known one by one: sockets follow one another, and so do whole NUMA nodes."""
    if mode is Mode.PACKAGE:
        return Layout(mode, sockets, cores, threads, tuple(
            frozenset(range(n * cores, (n + 1) * cores)) for n in range(sockets)))
    if mode is Mode.L3:
        return "cores are not known one by one"
    spans = []
    for node in sorted((node for node in cpu.numa if node.cpus), key=lambda node: min(node.cpus)):
        own = of_cpus(cpu, node.cpus)
        if own.numbers is None:
            return own.why
        spans.append(frozenset(own.numbers))
    if not spans:
        return "no source tells its NUMA nodes"
    if len({len(span) for span in spans}) > 1 or sum(map(len, spans)) != sockets * cores:
        return "NUMA nodes have different numbers of cores: " + ", ".join(str(len(span)) for span in spans)
    return Layout(mode, len(spans), len(spans[0]), threads, tuple(spans))


def _keys(cpu: Cpu, mode: Mode) -> Sequence[int | None] | str:
    """What each core is in, in the cores' order."""
    if mode is Mode.PACKAGE:
        return [core.socket for core in cpu.cores]
    if mode is Mode.NUMA:
        return [core.numa for core in cpu.cores]
    if not cpu.l3:
        return "no source tells its L3 caches"
    of_cpu = {one: number for number, cpus in enumerate(cpu.l3) for one in cpus}
    keys: list[int | None] = []
    packages: dict[int, int] = {}
    for place, core in enumerate(cpu.cores):
        mine = {of_cpu.get(one) for one in core.cpus}
        if len(mine) != 1 or None in mine:
            return f"core {place} is not in one L3 cache"
        key = mine.pop()
        if key is not None and packages.setdefault(key, core.socket) != core.socket:
            return "an L3 cache is in two sockets"
        keys.append(key)
    return keys


def _spans(keys: Sequence[int | None] | str, mode: Mode) -> tuple[CoreSet, ...] | str:
    """Runs of equal keys as core sets; a text when a key is unknown, comes twice, or the runs differ in length."""
    if isinstance(keys, str):
        return keys
    runs: list[list[int]] = []
    seen: list[int] = []
    for index, key in enumerate(keys):
        if key is None:
            return f"the {mode.noun} of some cores is not known"
        if not seen or seen[-1] != key:
            if key in seen:
                return f"cores of one {mode.noun} are not next to each other"
            seen.append(key)
            runs.append([])
        runs[-1].append(index)
    if len({len(run) for run in runs}) != 1:
        return (f"{mode.noun}s have different numbers of cores: {', '.join(str(len(run)) for run in runs[:16])}; Slurm "
                "has one number for all of them")
    return tuple(frozenset(run) for run in runs)


def _uneven(cpu: Cpu, spans: Sequence[CoreSet]) -> str:
    """slurmd takes what the first NUMA node hangs on (the package, an L3 cache, a group) and counts all of that kind:
    where NUMA nodes hang on different kinds, it counts other things."""
    packages = set(_sets([core.socket for core in cpu.cores]))
    caches = _keys(cpu, Mode.L3)
    l3 = set(_sets(caches)) if not isinstance(caches, str) else set()
    kinds = {"package" if span in packages else "L3 cache" if span in l3 else "group" for span in spans}
    return f"NUMA nodes are not alike: some are a {' and some a '.join(sorted(kinds))}" if len(kinds) > 1 else ""


def _sets(keys: Iterable[int | None]) -> Iterable[CoreSet]:
    found: dict[int | None, set[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, set()).add(place)
    return (frozenset(cores) for cores in found.values())


def _either(numbers: set[int]) -> str:
    return " or ".join(str(n) for n in sorted(numbers))


# --- near a GPU -------------------------------------------------------------------------------------------------------


def near_cores(cpu: Cpu, gpu: Gpu) -> Near:
    """The cores that have a hardware thread among the GPU's local CPUs (sysfs), else on its NUMA node."""
    return near(cpu, (gpu.local_cpus, gpu.numa))


def near(cpu: Cpu, place: Place) -> Near:
    board = _board(cpu)
    if place not in board.near:
        board.near[place] = _near(cpu, *place)
    return board.near[place]


def _near(cpu: Cpu, local_cpus: tuple[int, ...], numa: int | None) -> Near:
    node: NumaNode | None = next((n for n in cpu.numa if n.id == numa), None) if numa is not None else None
    numa_cpus = frozenset(node.cpus) if node is not None else frozenset()
    local = frozenset(local_cpus)
    if local and numa_cpus and not local & numa_cpus:
        return Near(None, f"its local CPUs are not those of its NUMA node {numa}")
    found = of_cpus(cpu, local or numa_cpus)
    if found.numbers is None:
        return Near(None, found.why)
    source = "local CPUs" if local else f"NUMA node {numa}"
    return Near(frozenset(found.numbers), f"cores of its {source}, as Slurm counts cores")


def fits(found: Layout, near: Near) -> bool:
    """Whether Cores= may be written (one whole socket) or is not needed (all cores, or unknown)."""
    if near.cores is None or not found.spans:
        return True
    return near.cores in found.spans or len(near.cores) == found.cores


def misfit(found: Layout, near: Near) -> str:
    """Why Slurm refuses these cores, and from which version on; "" where they fit."""
    if fits(found, near) or near.cores is None:
        return ""
    what = f"the cores near it ({fold_ids(near.cores)}) are not exactly one {found.mode.noun} of "
    whole = all(span <= near.cores or not span & near.cores for span in found.spans)
    return f"{what}{found.cores_per_socket} cores, which Slurm {'25.11' if whole else '24.11'} and later refuse"


def places(gpus: Iterable[Gpu]) -> tuple[Place, ...]:
    """The distinct places of these GPUs, in their order."""
    return tuple(dict.fromkeys((gpu.local_cpus, gpu.numa) for gpu in gpus))


# --- the choice -------------------------------------------------------------------------------------------------------


def lost(cpu: Cpu, where: Sequence[Place], mode: Mode) -> tuple[Place, ...] | None:
    """The places whose cores are no socket in `mode`; None where the node cannot be described in it."""
    found = layout(cpu, mode)
    if not isinstance(found, Layout):
        return None
    return tuple(place for place in where if not fits(found, near(cpu, place)))


def suits(cpu: Cpu, gpus: Sequence[Gpu], mode: Mode) -> bool:
    return lost(cpu, places(gpus), mode) == ()


def choose(cpu: Cpu, where: Sequence[Place]) -> Choice:
    """The plainest mode in which every GPU's near cores are one socket, for one node; else the plainest in which the
    fewest are not."""
    tried = [(mode, lost(cpu, where, mode)) for mode in Mode]
    open_ = [(mode, gone) for mode, gone in tried if gone is not None]
    if not open_:
        return Choice(Mode.PACKAGE, "")
    mode, gone = min(open_, key=lambda item: len(item[1]))
    return Choice(mode, _why(cpu, where, mode, dict(tried)), gone)


def _why(cpu: Cpu, where: Sequence[Place], mode: Mode, tried: Mapping[Mode, tuple[Place, ...] | None]) -> str:
    told = [place for place in where if near(cpu, place).cores is not None]
    if mode is Mode.PACKAGE:
        if not told or not tried[mode]:
            return ""
        return "no kind of socket suits all of its GPUs"
    before = tried[Mode.PACKAGE]
    example = near(cpu, before[0]).cores if before else None
    cores = f"{'most of ' if tried[mode] else ''}its GPUs are near one {mode.noun} each"
    if example is None:
        return f"{cores}; sockets cannot be counted: {layout(cpu, Mode.PACKAGE)}"
    whole = layout(cpu, Mode.PACKAGE)
    size = whole.cores_per_socket if isinstance(whole, Layout) else 0
    return f"{cores}, as cores {fold_ids(example)}; a package has {size}, and Cores= must be a whole socket"


def choose_common(kinds: Sequence[tuple[Cpu, Sequence[Place], int]]) -> Choice:
    """One mode for all nodes, as it must be before 25.11: the plainest in which the fewest nodes lose Cores.
    kinds: (CPU, places of the GPUs, number of such nodes)."""
    best: tuple[int, Mode] | None = None
    for mode in Mode:
        cost = 0
        for cpu, where, count in kinds:
            gone = lost(cpu, where, mode)
            if gone is None:
                cost = -1
                break
            cost += count if gone else 0
        if cost >= 0 and (best is None or cost < best[0]):
            best = (cost, mode)
    mode = best[1] if best else Mode.PACKAGE
    if mode is Mode.PACKAGE:
        return Choice(mode, "")
    cpu, where, _ = next(kind for kind in kinds if lost(kind[0], kind[1], Mode.PACKAGE))
    return Choice(mode, _why(cpu, where, mode, {m: lost(cpu, where, m) for m in Mode}))

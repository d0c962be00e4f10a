"""Made-up nodes' CPUs for property tests, and how each tool would print them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st


def fold(ids: Iterable[int]) -> str:
    """0-3,8 as the kernel writes it."""
    parts: list[list[int]] = []
    for number in sorted(ids):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in parts)


def mask(ids: Iterable[int]) -> str:
    """A kernel CPU mask: groups of 32 bits, highest first."""
    number = sum(1 << cpu for cpu in ids)
    groups = [f"{number & 0xffffffff:08x}"]
    while number := number >> 32:
        groups.append(f"{number & 0xffffffff:08x}")
    return ",".join(reversed(groups))


@dataclass(frozen=True)
class Thread:
    """An OS CPU, and what it is part of. core: unique in its package. numa None: a kernel without NUMA."""

    cpu: int
    package: int
    die: int
    numa: int | None
    l3: int
    core: int


@dataclass(frozen=True)
class Machine:
    """threads: all that are present. memory_kb: by NUMA node, those without CPUs as well."""

    threads: tuple[Thread, ...]
    offline: frozenset[int] = frozenset()
    memory_kb: tuple[tuple[int, int], ...] = ()
    model: str = "AMD EPYC 9654 96-Core Processor"

    @property
    def on(self) -> tuple[Thread, ...]:
        return tuple(thread for thread in self.threads if thread.cpu not in self.offline)

    @property
    def online(self) -> tuple[int, ...]:
        return tuple(sorted(thread.cpu for thread in self.on))

    @property
    def packages(self) -> dict[int, set[int]]:
        return self._groups("package")

    @property
    def nodes(self) -> dict[int, set[int]]:
        """Those that the kernel shows: with CPUs on line or with memory."""
        found: dict[int, set[int]] = {number: set() for number, _ in self.memory_kb}
        for thread in self.on:
            if thread.numa is not None:
                found.setdefault(thread.numa, set()).add(thread.cpu)
        return dict(sorted(found.items()))

    @property
    def cores(self) -> set[frozenset[int]]:
        found: dict[tuple[int, int], set[int]] = {}
        for thread in self.on:
            found.setdefault((thread.package, thread.core), set()).add(thread.cpu)
        return {frozenset(cpus) for cpus in found.values()}

    @property
    def counts(self) -> tuple[int, int | None, int | None]:
        """Sockets, cores per socket and threads per core; None where they are uneven."""
        per_socket = {sum(core <= cpus for core in self.cores) for cpus in self.packages.values()}
        threads = {len(core) for core in self.cores}
        return (len(self.packages), per_socket.pop() if len(per_socket) == 1 else None,
                threads.pop() if len(threads) == 1 else None)

    @property
    def even(self) -> bool:
        return None not in self.counts

    def _groups(self, name: str) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for thread in self.on:
            found.setdefault(getattr(thread, name), set()).add(thread.cpu)
        return found

    def beside(self, thread: Thread, *names: str) -> list[int]:
        """The CPUs on line that share all these with it."""
        return sorted(other.cpu for other in self.on
                      if all(getattr(other, name) == getattr(thread, name) for name in names))

    def distances(self) -> dict[int, list[int]]:
        numbers = list(self.nodes)
        return {a: [10 if a == b else 20 + abs(a - b) % 7 for b in numbers] for a in numbers}


@st.composite
def machines(draw: st.DrawFn, *, numa: bool | None = None, may_be_offline: bool = True) -> Machine:
    """Packages of dies of NUMA nodes of L3 caches of cores of threads; OS CPU ids in blocks, side by side, in turn
    over the packages, or in any order; ids of packages and nodes with gaps; nodes without CPUs; CPUs off line."""
    with_numa = draw(st.booleans()) if numa is None else numa
    packages, dies, nodes, caches, cores = (draw(st.integers(1, most)) for most in (3, 2, 2, 2, 3))
    threads = draw(st.sampled_from((1, 1, 2, 2, 4)))
    package_ids = sorted(draw(st.sets(st.integers(0, 40), min_size=packages, max_size=packages)))
    count_of_nodes = packages * dies * nodes
    node_ids = list(range(count_of_nodes))
    if draw(st.booleans()):
        node_ids = sorted(draw(st.sets(st.integers(0, 60), min_size=count_of_nodes, max_size=count_of_nodes)))
    places = [(package, die, node, cache, core)
              for package in range(packages) for die in range(dies) for node in range(nodes)
              for cache in range(caches) for core in range(cores)]
    ids = _numbering(draw, places, threads)
    made = []
    for number, (package, die, node, cache, core) in enumerate(places):
        place = (package * dies + die) * nodes + node
        own = core + cores * (cache + caches * (node + nodes * die))
        made += [Thread(cpu, package_ids[package], die, node_ids[place] if with_numa else None,
                        place * caches + cache, own) for cpu in ids[number]]
    everything = sorted(thread.cpu for thread in made)
    offline = draw(st.sets(st.sampled_from(everything), max_size=len(everything) - 1)) \
        if may_be_offline and draw(st.integers(0, 3)) == 0 else set()
    memory = _memory(draw, node_ids) if with_numa else ()
    return Machine(tuple(sorted(made, key=lambda thread: thread.cpu)), frozenset(offline), memory)


def _numbering(draw: st.DrawFn, places: Sequence[tuple[int, ...]], threads: int) -> list[list[int]]:
    """The OS CPU ids of each core."""
    count = len(places)
    style = draw(st.sampled_from(("blocks", "beside", "turns", "any")))
    if style == "blocks":
        return [[core + thread * count for thread in range(threads)] for core in range(count)]
    if style == "beside":
        return [[core * threads + thread for thread in range(threads)] for core in range(count)]
    if style == "turns":
        order = sorted(range(count), key=lambda core: (places[core][1:], places[core][0]))
        rank = {core: at for at, core in enumerate(order)}
        return [[rank[core] + thread * count for thread in range(threads)] for core in range(count)]
    ids = draw(st.permutations(range(count * threads)))
    return [sorted(ids[core * threads: (core + 1) * threads]) for core in range(count)]


def _memory(draw: st.DrawFn, node_ids: list[int]) -> tuple[tuple[int, int], ...]:
    sizes = {number: draw(st.integers(1024, 1 << 30)) for number in node_ids}
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        sizes[max(sizes) + draw(st.integers(1, 8))] = draw(st.integers(1024, 1 << 28))
    return tuple(sorted(sizes.items()))


# --- as the kernel shows it -----------------------------------------------------------------------------------------


def sysfs(machine: Machine) -> dict[str, str]:
    """The files of /sys, and the /proc/cpuinfo of an x86 kernel."""
    base = "sys/devices/system"
    everything = [thread.cpu for thread in machine.threads]
    files = {f"{base}/cpu/online": fold(machine.online), f"{base}/cpu/offline": fold(machine.offline),
             f"{base}/cpu/present": fold(everything), f"{base}/cpu/possible": fold(everything)}
    for thread in machine.threads:
        here = f"{base}/cpu/cpu{thread.cpu}"
        files[f"{here}/online"] = "0" if thread.cpu in machine.offline else "1"
        if thread.cpu not in machine.offline:
            files |= {f"{here}/{name}": text for name, text in _cpu_files(machine, thread).items()}
    distances = machine.distances()
    for number, memory in machine.memory_kb:
        here = f"{base}/node/node{number}"
        files |= {f"{here}/cpumap": mask(machine.nodes[number]), f"{here}/cpulist": fold(machine.nodes[number]),
                  f"{here}/meminfo": f"Node {number} MemTotal:       {memory} kB\nNode {number} MemFree: 1 kB",
                  f"{here}/distance": " ".join(map(str, distances[number]))}
    if machine.memory_kb:
        files[f"{base}/node/online"] = fold(number for number, _ in machine.memory_kb)
    files["proc/cpuinfo"] = cpuinfo(machine)
    return {path: f"{text}\n" for path, text in files.items()}


def _cpu_files(machine: Machine, thread: Thread) -> dict[str, str]:
    files = {"topology/physical_package_id": str(thread.package), "topology/die_id": str(thread.die),
             "topology/core_id": str(thread.core), "cache/index3/level": "3", "cache/index3/type": "Unified",
             "cache/index3/size": "32768K", "cache/index3/id": str(thread.l3)}
    shared = machine.beside(thread, "l3")
    files |= {"cache/index3/shared_cpu_map": mask(shared), "cache/index3/shared_cpu_list": fold(shared)}
    for names, members in ((("thread_siblings", "core_cpus"), machine.beside(thread, "package", "core")),
                           (("die_cpus",), machine.beside(thread, "package", "die")),
                           (("core_siblings", "package_cpus"), machine.beside(thread, "package"))):
        for name in names:
            files |= {f"topology/{name}": mask(members), f"topology/{name}_list": fold(members)}
    return files


def write(machine: Machine, root: Path) -> None:
    for path, text in sysfs(machine).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def cpuinfo(machine: Machine) -> str:
    lines = []
    for thread in machine.on:
        siblings = machine.beside(thread, "package")
        cores = len({core for core in machine.cores if core <= set(siblings)})
        lines += [f"processor\t: {thread.cpu}", "vendor_id\t: AuthenticAMD", f"model name\t: {machine.model}",
                  f"physical id\t: {thread.package}", f"siblings\t: {len(siblings)}", f"core id\t\t: {thread.core}",
                  f"cpu cores\t: {cores}", "flags\t\t: fpu vme", ""]
    return "\n".join(lines)


def probe_cpu_topology(machine: Machine) -> str:
    """What our own probe's section of that name would hold."""
    lines = [f"online {fold(machine.online)}", f"offline {fold(machine.offline) or '-'}",
             f"possible {fold(thread.cpu for thread in machine.threads)}"]
    for thread in sorted(machine.threads, key=lambda each: str(each.cpu)):
        if thread.cpu in machine.offline:
            lines.append(f"cpu {thread.cpu} - - - - -")
        else:
            lines.append(f"cpu {thread.cpu} {thread.package} {thread.die} - {thread.core} "
                         f"{fold(machine.beside(thread, 'l3'))}")
    lines += [f"cpu{thread.cpu}/topology/thread_siblings_list:{fold(machine.beside(thread, 'package', 'core'))}"
              for thread in machine.on]
    return "\n".join([*lines, "end=cpu"])


def probe_numa(machine: Machine) -> str:
    distances = machine.distances()
    lines = [f"node {number} {memory}" for number, memory in machine.memory_kb]
    lines += [f"node{number}/cpulist:{fold(cpus)}" for number, cpus in machine.nodes.items() if cpus]
    lines += [f"node{number}/distance:{' '.join(map(str, row))}" for number, row in distances.items()]
    return "\n".join([*lines, "end=numa"])


# --- as the tools print it ------------------------------------------------------------------------------------------


def lscpu_pairs(machine: Machine) -> list[tuple[str, str]]:
    """Integer averages where sockets or cores are uneven, as lscpu has them."""
    cores, sockets = len(machine.cores), len(machine.packages)
    pairs = [("Architecture", "x86_64"), ("CPU op-mode(s)", "32-bit, 64-bit"), ("Byte Order", "Little Endian"),
             ("CPU(s)", str(len(machine.threads))), ("On-line CPU(s) list", fold(machine.online))]
    if machine.offline:
        pairs.append(("Off-line CPU(s) list", fold(machine.offline)))
    pairs += [("Vendor ID", "AuthenticAMD"), ("Model name", machine.model),
              ("Thread(s) per core", str(len(machine.online) // cores)),
              ("Core(s) per socket", str(cores // sockets)), ("Socket(s)", str(sockets)),
              ("BogoMIPS", "4800.00"), ("Flags", "fpu vme de"), ("L3 cache", "64 MiB (2 instances)")]
    if machine.memory_kb:
        pairs.append(("NUMA node(s)", str(len(machine.nodes))))
        pairs += [(f"NUMA node{number} CPU(s)", fold(cpus)) for number, cpus in machine.nodes.items()]
    return [*pairs, ("Vulnerability L1tf", "Not affected")]


def lscpu(machine: Machine, *, indent: bool = False) -> str:
    deep = {"Model name": 2, "Thread(s) per core": 4, "Core(s) per socket": 4, "Socket(s)": 4, "BogoMIPS": 4,
            "On-line CPU(s) list": 2, "Off-line CPU(s) list": 2}
    return "".join(f"{' ' * (deep.get(name, 0) if indent else 0)}{name + ':':<26} {value}\n"
                   for name, value in lscpu_pairs(machine))


def lscpu_json(machine: Machine, *, nested: bool = False) -> str:
    top: list[dict[str, object]] = []
    for name, value in lscpu_pairs(machine):
        item: dict[str, object] = {"field": f"{name}:", "data": value or None}
        inner = name not in ("Architecture", "CPU(s)", "Vendor ID", "NUMA node(s)", "Flags")
        if nested and inner and top:
            children = top[-1].setdefault("children", [])
            assert isinstance(children, list)
            children.append(item)
        else:
            top.append(item)
    return json.dumps({"lscpu": top}, indent=3)


def lscpu_table(machine: Machine) -> str:
    """`lscpu -p`, whose ids of cores, sockets and caches count from 0."""
    cores = {core: number for number, core in enumerate(sorted(machine.cores, key=min))}
    sockets = {package: number for number, package in enumerate(
        sorted(machine.packages, key=lambda package: min(machine.packages[package])))}
    caches = {cache: number for number, cache in enumerate(sorted({thread.l3 for thread in machine.on}))}
    lines = ["# The following is the parsable format, which can be fed to other",
             "# programs. Each different item in every column has an unique ID", "# starting usually from zero.",
             "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3"]
    for thread in machine.on:
        core = cores[next(core for core in machine.cores if thread.cpu in core)]
        node = "" if thread.numa is None else thread.numa
        lines.append(f"{thread.cpu},{core},{sockets[thread.package]},{node},,{core},{core},{core},{caches[thread.l3]}")
    return "\n".join(lines) + "\n"


def numactl(machine: Machine) -> str:
    nodes = machine.nodes
    lines = [f"available: {len(nodes)} nodes ({fold(nodes)})"]
    for number, memory in machine.memory_kb:
        lines += [f"node {number} cpus:{''.join(f' {cpu}' for cpu in sorted(nodes[number]))}",
                  f"node {number} size: {memory // 1024} MB", f"node {number} free: {memory // 2048} MB"]
    lines += ["node distances:", "node" + "".join(f" {number:>3}" for number in nodes)]
    lines += [f"{number:>3}:" + "".join(f" {far:>3}" for far in row) for number, row in machine.distances().items()]
    return "\n".join(lines) + "\n"


def slurmd(machine: Machine) -> str:
    """slurmd takes averages, rounded down, as well."""
    sockets, cores = len(machine.packages), len(machine.cores)
    memory = sum(kb for _, kb in machine.memory_kb) // 1024 or 1024
    return (f"NodeName=node01 CPUs={len(machine.online)} Boards=1 SocketsPerBoard={sockets} "
            f"CoresPerSocket={cores // sockets} ThreadsPerCore={len(machine.online) // cores} RealMemory={memory}\n"
            "UpTime=0-00:10:02\n")

"""hwloc's tree of a machine, whether it came as XML or as lstopo's text: packages, cores, CPUs, NUMA nodes, caches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import MAX_CPU, quote
from hpcadmin.model import Core, Cpu, NumaNode

# Sets are masks: bit n is OS CPU (or NUMA node) n.
_MAX_SAID = 20                           # contradictions that are told of one tree
_RUN = re.compile("1+")
_WORD = re.compile(r"(?:0x)?([0-9a-fA-F]{0,8})\Z")
_ONE = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16384})\Z")
MEMORY_ONLY = frozenset({"HBM", "MCDRAM", "GPUMemory", "NVM", "SPM", "CXL-DRAM", "CXL-NVM", "PMEM"})


def mask(text: str | None) -> int | None:
    """0x0000000f,,0x1 as a mask; None when there is none, or it goes on without end (0xf...f)."""
    if text is None or "..." in text:
        return None
    words = text.strip().split(",")
    if len(words) == 1 and (one := _ONE.match(words[0])):
        return int(one[1], 16)
    found = [_WORD.match(word) for word in words]
    if len(words) > (MAX_CPU + 1) // 32 or not all(found) or words == [""]:
        raise ParseError(f"{quote(text)} is not a set of hwloc's")
    return int("".join((match[1] if match else "").rjust(8, "0") for match in found), 16)


def fold(bits: int) -> str:
    """0-3,8 for 0b100001111."""
    digits = bin(bits)[:1:-1] if bits else ""
    return ",".join(str(run.start()) if run.end() - run.start() == 1 else f"{run.start()}-{run.end() - 1}"
                    for run in _RUN.finditer(digits))


def ids(bits: int) -> tuple[int, ...]:
    return tuple(place for place, digit in enumerate(bin(bits)[:1:-1]) if digit == "1") if bits else ()


def count(bits: int) -> int:
    return bin(bits).count("1")


def lowest(bits: int) -> int:
    """Of the empty set: behind all others."""
    return (bits & -bits).bit_length() if bits else 1 << 30


@dataclass
class Obj:
    """kind: "Machine", "Package", "Die", "Core", "PU", "NUMANode", "L3Cache", "Group", "Bridge", "PCIDev", "OSDev", ….
    cpuset: None on what has no CPUs of its own (devices)."""

    kind: str
    line: int = 0
    os_index: int | None = None
    cpuset: int | None = None
    complete: int | None = None          # with the CPUs that are off line or not allowed
    attributes: dict[str, str] = field(default_factory=dict)
    infos: dict[str, str] = field(default_factory=dict)
    children: list[Obj] = field(default_factory=list)

    def walk(self) -> Iterator[Obj]:
        stack = [self]
        while stack:
            here = stack.pop()
            yield here
            stack += reversed(here.children)


@dataclass
class Matrix:
    """Distances between objects. base: what the values are multiples of (version 1 divides by the local latency)."""

    name: str
    indexing: str                        # "os", "gp", "logical", "hetero"
    kind: str                            # "NUMANode", "OSDev"; "" where they differ
    objects: list[str]
    rows: list[list[float]]
    base: float = 1.0
    line: int = 0


@dataclass
class CpuKind:
    cpus: int
    efficiency: int | None = None
    infos: dict[str, str] = field(default_factory=dict)


@dataclass
class Tree:
    """version: of the XML ("1", "2.0", "3.0"); "" for text. missing: what is cut off."""

    root: Obj
    version: str = ""
    infos: dict[str, list[str]] = field(default_factory=dict)
    matrices: list[Matrix] = field(default_factory=list)
    kinds: list[CpuKind] = field(default_factory=list)
    complete: int | None = None
    allowed: int | None = None
    online: int | None = None
    nodes: int | None = None             # NUMA nodes as masks, likewise
    nodes_complete: int | None = None
    nodes_allowed: int | None = None
    missing: list[str] = field(default_factory=list)
    contradictions: list[tuple[str, int | None]] = field(default_factory=list)
    no_cpus: bool = False                # CPUs are numbered by their place, not as the kernel does
    no_numa: bool = False                # which CPUs a NUMA node has is not told
    no_threads: bool = False             # cores are told without the CPUs in them

    def info(self, *names: str) -> str:
        """The first of these that says something."""
        return next((value.strip() for name in names for value in self.infos.get(name, ()) if value.strip()), "")


@dataclass(frozen=True)
class Package:
    os_index: int | None
    cpus: int
    complete: int
    model: str = ""


@dataclass(frozen=True)
class Memory:
    """A NUMA node. os_index is what the kernel calls it."""

    os_index: int
    cpus: int
    memory_mib: int | None = None
    subtype: str = ""


@dataclass(frozen=True)
class TreeCore:
    cpus: int
    package: int | None                  # place in Machine.packages


@dataclass
class Machine:
    """What a tree says, level by level, each in hwloc's logical order."""

    packages: list[Package] = field(default_factory=list)
    cores: list[TreeCore] = field(default_factory=list)
    numa: list[Memory] = field(default_factory=list)
    l3: list[int] = field(default_factory=list)
    cpus: int = 0
    groups: int = 0
    dies: int = 0
    no_cpus: bool = False                # the text does not name the kernel's CPUs
    node_ids: set[int] = field(default_factory=set)
    unnumbered: int = 0                  # NUMA nodes of which the kernel's number is not told

    @property
    def used(self) -> list[int]:
        """Places of the packages that have CPUs."""
        return [place for place, package in enumerate(self.packages) if package.cpus]

    def cores_in(self, bits: int) -> list[int]:
        """Slurm's abstract numbers of the cores that have one of these OS CPUs."""
        return [number for number, core in enumerate(self.cores) if core.cpus & bits]

    @property
    def per_package(self) -> list[int]:
        return [sum(core.package == place for core in self.cores) for place in self.used]

    @property
    def threads(self) -> set[int]:
        return {count(core.cpus) for core in self.cores}

    @property
    def shared(self) -> list[list[int]]:
        """Places of NUMA nodes that have the very same CPUs."""
        groups: dict[int, list[int]] = {}
        for place, node in enumerate(self.numa):
            if node.cpus:
                groups.setdefault(node.cpus, []).append(place)
        return [places for places in groups.values() if len(places) > 1]

    @property
    def primary(self) -> list[Memory]:
        """The nodes that CPUs belong to: of several with the same CPUs the one that is plain memory."""
        second = {place for places in self.shared for place in places[1:]}
        for places in self.shared:
            plain = [place for place in places if self.numa[place].subtype not in MEMORY_ONLY]
            if len(plain) == 1:
                second -= set(places)
                second |= set(places) - set(plain)
        found = [node for place, node in enumerate(self.numa) if node.cpus and place not in second]
        return _innermost(found) if _nested([node.cpus for node in found]) else found


def _nested(sets: Iterable[int]) -> bool:
    seen = 0
    for bits in sets:
        if bits & seen:
            return True
        seen |= bits
    return False


def _innermost(nodes: list[Memory]) -> list[Memory]:
    """Memory of a whole package beside that of its parts (an expander, a DIMM that keeps its data) has no CPUs of its
    own; nor has fast memory within plain memory."""
    def inside(node: Memory, other: Memory) -> bool:
        return node.cpus != other.cpus and node.cpus & ~other.cpus == 0

    plain = [node for node in nodes if node.subtype not in MEMORY_ONLY]
    return [node for node in nodes if not any(inside(other, node) for other in plain) and (
        node.subtype not in MEMORY_ONLY or not any(node.cpus & other.cpus for other in plain))]


def _crossing(sets: Iterable[int]) -> int:
    """CPUs of sets that neither lie in, nor beside, another of these."""
    whole: list[int] = []
    for bits in sorted(sets, key=count):
        over = [other for other in whole if other & bits]
        wrong = next((other for other in over if other & ~bits), 0)
        if wrong:
            return wrong & bits
        whole = [*(other for other in whole if not other & bits), bits]
    return 0


def machine(tree: Tree) -> Machine:
    """The levels of a tree; what contradicts itself is added to the tree's contradictions."""
    found = Machine(no_cpus=tree.no_cpus)
    online = tree.online
    seen: dict[int, int] = {}
    stack: list[tuple[Obj, int | None]] = [(tree.root, None)]
    while stack:
        here, package = stack.pop()
        own = here.cpuset or 0
        if online is not None:
            own &= online
        if here.kind == "PU":
            _cpu(here, own, seen, tree)
            found.cpus |= own
        elif here.kind == "Package":
            package = len(found.packages)
            model = here.infos.get("CPUModel", "")
            found.packages.append(Package(here.os_index, own, own if here.complete is None else here.complete, model))
        elif here.kind == "Core" and own:
            found.cores.append(TreeCore(own, package))
            _check_core(here, own, online, tree)
        elif here.kind == "NUMANode":
            _numa(here, own, found, tree)
        elif here.kind == "L3Cache":
            found.l3.append(own)
        found.groups += here.kind == "Group"
        found.dies += here.kind == "Die"
        stack += [(child, package) for child in reversed(here.children)]
    _overlaps(found, tree)
    del tree.contradictions[_MAX_SAID:]
    return found


def _cpu(here: Obj, own: int, seen: dict[int, int], tree: Tree) -> None:
    if count(own) > 1 or (own and here.os_index is not None and own != 1 << here.os_index):
        tree.contradictions.append((f"CPU {here.os_index} has the set {fold(own)}", here.line))
    if own in seen and own:
        tree.contradictions.append((f"CPU {fold(own)} is there twice", here.line))
    seen[own] = here.line


def _check_core(here: Obj, own: int, online: int | None, tree: Tree) -> None:
    below = 0
    for child in here.walk():
        if child.kind == "PU":
            below |= (child.cpuset or 0) & (online if online is not None else -1)
    if below and below != own and not tree.missing:
        tree.contradictions.append((f"a core has CPUs {fold(own)}, below it are {fold(below)}", here.line))


def _numa(here: Obj, own: int, found: Machine, tree: Tree) -> None:
    if here.os_index is None:
        tree.no_numa = True
        found.unnumbered += 1
        return
    size = here.attributes.get("local_memory", "")
    memory = int(size) >> 20 if re.match(r"[0-9]{1,18}\Z", size) else None
    if here.os_index in found.node_ids:
        tree.contradictions.append((f"NUMA node {here.os_index} is there twice", here.line))
        return
    found.node_ids.add(here.os_index)
    subtype = here.attributes.get("subtype", "")
    found.numa.append(Memory(here.os_index, own, memory, subtype))


def _overlaps(found: Machine, tree: Tree) -> None:
    for what, sets in (("cores", [core.cpus for core in found.cores]),
                       ("packages", [package.cpus for package in found.packages])):
        seen = 0
        for bits in sets:
            if bits & seen:
                tree.contradictions.append((f"CPUs {fold(bits & seen)} are in two {what}", None))
                break
            seen |= bits
    if crossing := _crossing({node.cpus for node in found.numa}):
        tree.contradictions.append((f"CPUs {fold(crossing)} are in two NUMA nodes", None))
    stray = [core.cpus for core in found.cores if core.package is None]
    if stray and found.packages:
        outside = 0
        for bits in stray:
            outside |= bits
        tree.contradictions.append(
            (f"contradictory: {len(found.cores)} cores and {len(found.numa)} NUMA nodes, but only "
             f"{len(found.packages)} packages: CPUs {fold(outside)} are in none", None))


def covered(sets: Iterable[int], whole: int) -> bool:
    """A level is there to its end when it has all of the CPUs."""
    found = 0
    for bits in sets:
        found |= bits
    return bool(whole) and found & whole == whole


def joined(tree: Tree, levels: Machine, sound: bool) -> Cpu:
    """As the model has it. sound: nothing contradicts; else there are no cores, and no counts."""
    whole = tree.root.cpuset or levels.cpus
    place = {package: number for number, package in enumerate(levels.used)}
    numa_of = {} if tree.no_numa else {cpu: node.os_index for node in levels.primary for cpu in ids(node.cpus)}
    cores: tuple[Core, ...] = ()
    per, threads = set(levels.per_package), levels.threads
    # Without an end, text does not tell how much is missing; of XML the head does.
    sound = sound and bool(tree.version or not tree.missing)
    per_package = sound and bool(levels.packages) and covered((core.cpus for core in levels.cores), whole)
    if per_package and not levels.no_cpus:
        cores = tuple(Core(place[core.package], numa_of.get(lowest(core.cpus) - 1), ids(core.cpus))
                      for core in levels.cores if core.package in place)
    packages = per_package or (sound and covered((package.cpus for package in levels.packages), whole))
    return Cpu(
        model=next((package.model for package in levels.packages if package.model), "").strip(),
        architecture=tree.info("Architecture"),
        sockets=len(levels.used) if packages and levels.used else None,
        cores_per_socket=per.pop() if per_package and len(per) == 1 else None,
        threads_per_core=threads.pop() if len(threads) == 1 and per_package and not tree.no_threads else None,
        cores=cores, numa=_nodes(tree, levels),
        l3=() if levels.no_cpus else tuple(ids(bits) for bits in levels.l3 if bits))


def _nodes(tree: Tree, levels: Machine) -> tuple[NumaNode, ...]:
    """By their ids, as the kernel lists them. Memory that shares the CPUs of other memory has none of its own. hwloc
    that only asked the processor knows of no nodes: its one node is made up."""
    if measured_by_cpuid(tree) or levels.no_cpus or tree.no_numa:
        return ()
    primary = {node.os_index for node in levels.primary}
    far = distances(tree, levels)
    return tuple(
        NumaNode(node.os_index, ids(node.cpus) if node.os_index in primary else (), node.memory_mib,
                 far.get(node.os_index, ())) for node in sorted(levels.numa, key=lambda node: node.os_index))


def measured_by_cpuid(tree: Tree) -> bool:
    backends = tree.infos.get("Backend", [])
    return "x86" in backends and "Linux" not in backends


def numa_matrix(tree: Tree, levels: Machine) -> Matrix | None:
    """The latencies between all NUMA nodes, if the tree has them."""
    return next((matrix for matrix in tree.matrices if matrix.kind == "NUMANode" and "atency" in matrix.name
                 and len(matrix.objects) == len(levels.numa)), None)


def distances(tree: Tree, levels: Machine) -> dict[int, tuple[int, ...]]:
    """os_index -> distances to the nodes in the order of their ids."""
    matrix = numa_matrix(tree, levels)
    if matrix is None:
        return {}
    whole = [[round(value * matrix.base) for value in row] for row in matrix.rows]
    if matrix.indexing == "logical":
        names = [node.os_index for node in levels.numa]
    elif matrix.indexing == "os":
        names = [int(name) for name in matrix.objects]
    else:
        return {}
    order = sorted(range(len(names)), key=lambda place: names[place])
    return {names[row]: tuple(whole[row][column] for column in order) for row in order}

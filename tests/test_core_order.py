"""A core's place in Cpu.cores is its number in hwloc's logical order, which is Slurm's; hwloc itself is the judge."""

import subprocess
from pathlib import Path

import hwloc_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.facts import _cpu, facts, probe_script
from hpcadmin.model import Cpu

needs_hwloc = pytest.mark.skipif(not hwloc_oracle.available(), reason="no libhwloc 2 on this machine")
CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "topo" / "hwloc"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def mask(cpus: list[int]) -> str:
    """A kernel CPU mask: groups of 32 bits, highest first."""
    number = sum(1 << cpu for cpu in cpus)
    groups = []
    while True:
        groups.append(f"{number & 0xffffffff:08x}")
        number >>= 32
        if not number:
            return ",".join(reversed(groups))


def listed(cpus: list[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


class Machine:
    """A made-up machine: for each core its package, NUMA node, L3 and OS CPU ids, written as a /sys tree."""

    def __init__(self, cores: list[tuple[int, int, int, list[int]]]) -> None:
        self.cores = cores

    def together(self, place: int, value: int) -> list[int]:
        return [cpu for core in self.cores if core[place] == value for cpu in core[3]]

    def write(self, root: Path) -> None:
        everything = [cpu for core in self.cores for cpu in core[3]]
        base = root / "sys/devices/system"
        for name in ("online", "possible", "present"):
            write(base / "cpu" / name, listed(everything))
        write(base / "cpu/offline", "")
        for number, (package, _, l3, cpus) in enumerate(self.cores):
            for cpu in cpus:
                folder = base / "cpu" / f"cpu{cpu}"
                topology = folder / "topology"
                write(topology / "physical_package_id", str(package))
                write(topology / "core_id", str(number))
                for names, members in ((("thread_siblings", "core_cpus"), cpus),
                                       (("core_siblings", "package_cpus"), self.together(0, package))):
                    for name in names:
                        write(topology / name, mask(members))
                        write(topology / f"{name}_list", listed(members))
                cache = folder / "cache/index3"
                for name, text in (("level", "3"), ("type", "Unified"), ("size", "32768K"), ("id", str(l3)),
                                   ("shared_cpu_map", mask(self.together(2, l3))),
                                   ("shared_cpu_list", listed(self.together(2, l3)))):
                    write(cache / name, text)
        for node in sorted({core[1] for core in self.cores}):
            folder = base / "node" / f"node{node}"
            members = self.together(1, node)
            write(folder / "cpumap", mask(members))
            write(folder / "cpulist", listed(members))
            write(folder / "meminfo", f"Node {node} MemTotal:       1048576 kB")
        write(base / "node/online", listed(sorted({core[1] for core in self.cores})))
        write(root / "proc/cpuinfo", "")


def ours(root: Path) -> Cpu:
    """The Cpu that the probe's commands and parsers make of the tree."""
    found = {}
    for name in ("cpu_topology", "numa"):
        beginning = probe_script().split("TOOLS=")[0]
        script = f"{beginning}\nwanted() {{\n{facts()[name].command}\n}}\nwanted\n}}\n".replace("/sys/", f"{root}/sys/")
        done = subprocess.run(["sh", "-s", "--", "abcd"], input=script, capture_output=True, text=True, check=True)
        found[name] = facts()[name].parse(done.stdout)
    return _cpu.from_topology(found["cpu_topology"], found["numa"], [])


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Packages of NUMA nodes of L3 caches of cores of threads, with OS CPU ids handed out in any order."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.integers(1, 3),
                           st.integers(1, 2)))
    packages, nodes, caches, cores, threads = shape
    count = packages * nodes * caches * cores * threads
    order = draw(st.permutations(range(count)))
    made, at = [], 0
    for package in range(packages):
        for node in range(nodes):
            for cache in range(caches):
                for _ in range(cores):
                    number = package * nodes + node
                    made.append((package, number, number * caches + cache, list(order[at: at + threads])))
                    at += threads
    return Machine(made)


@pytest.mark.deep
@needs_hwloc
@settings(max_examples=25, deadline=None)
@given(machine=machines())
def test_any_numbering_is_ordered_as_hwloc_does(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("machine")
    machine.write(root)
    assert [list(core.cpus) for core in ours(root).cores] == hwloc_oracle.cores(root)


@pytest.mark.deep
@needs_hwloc
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of captures does not lie beside the project")
@pytest.mark.parametrize("archive", sorted(CORPUS.glob("sysfs_*.tar.bz2")), ids=lambda path: path.name)
def test_real_machines(archive: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "xjf", archive, "-C", tmp_path], check=True)
    root = next(tmp_path.iterdir())
    assert [list(core.cpus) for core in ours(root).cores] == hwloc_oracle.cores(root)


CASES = {
    # OS ids alternate between the sockets: socket 0 has the even ones.
    "even and odd sockets": (
        [(cpu % 2, cpu % 2, cpu % 2, [cpu, cpu + 8]) for cpu in range(8)],
        [(0, 8), (2, 10), (4, 12), (6, 14), (1, 9), (3, 11), (5, 13), (7, 15)]),
    # Two NUMA nodes in one package, numbered in turns of two: cores go node by node.
    "interleaved NUMA nodes": (
        [(0, cpu // 2 % 2, 0, [cpu]) for cpu in range(8)], [(0,), (1,), (4,), (5,), (2,), (3,), (6,), (7,)]),
    # Sibling threads side by side, as virtual machines have them.
    "adjacent siblings": ([(cpu // 4, cpu // 4, cpu // 4, [cpu, cpu + 1]) for cpu in range(0, 8, 2)],
                          [(0, 1), (2, 3), (4, 5), (6, 7)]),
    # The firmware's package ids have gaps and are not in the order of the CPUs.
    "package ids with gaps": ([(36, 1, 1, [0]), (36, 1, 1, [1]), (4, 0, 0, [2]), (4, 0, 0, [3])],
                              [(0,), (1,), (2,), (3,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_known_numberings(name: str, tmp_path: Path) -> None:
    cores, expected = CASES[name]
    Machine(cores).write(tmp_path)
    cpu = ours(tmp_path)
    assert [core.cpus for core in cpu.cores] == expected
    assert [core.socket for core in cpu.cores] == sorted(core.socket for core in cpu.cores)

"""Made-up machines: cores, sockets and GPUs as we render them are those that real slurmds compute.

slurmd of 24.11 and later reads what the NVIDIA driver shows (local_cpulist) and translates it to its own cores, which
is held against ours; 22.05 has no such plug-in and is given the rendered lines.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import conf_models as m
import pytest
from slurm_roots import NAMES, slurm

from hpcadmin.conf.check.finding import Severity
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import show
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.conf.sockets import Layout, Mode, layout, near_cores
from hpcadmin.facts._slurm_gres import core_ids
from hpcadmin.model import Core, Cpu, Gpu, Inventory, Node, NumaNode
from hpcadmin.proof import hardware
from hpcadmin.proof.parts import Slurm
from hpcadmin.proof.prove import Proof, prove
from hpcadmin.reading import read_paths

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
SUITES = tuple(NAMES)
COUNT = int(os.environ.get("HPCADMIN_TOPOLOGIES", "24"))
SEEN = re.compile(r"Gres Name=gpu .*?File=(\S+) .*?Cores=(\S+)")


@dataclass(frozen=True)
class Made:
    """A machine of `packages`, NUMA nodes in each, L3 caches in each of these, cores in each of these, threads."""

    packages: int
    numa: int
    l3: int
    cores: int
    threads: int
    numbering: str                       # of CPUs by the kernel

    @property
    def total(self) -> int:
        return self.packages * self.numa * self.l3 * self.cores

    def cpus(self, core: int) -> tuple[int, ...]:
        """Of the core that is the n-th of the tree."""
        if self.numbering == "siblings":              # 0,1 are one core
            return tuple(core * self.threads + t for t in range(self.threads))
        if self.numbering == "packages":              # 0 on one package, 1 on the next
            per_package = self.total // self.packages
            package, place = divmod(core, per_package)
            core = place * self.packages + package
        return tuple(core + t * self.total for t in range(self.threads))

    def cpu(self) -> Cpu:
        per_l3, per_numa = self.cores, self.cores * self.l3
        per_package = per_numa * self.numa
        listed = tuple(Core(n // per_package, n // per_numa, self.cpus(n)) for n in range(self.total))
        numa = tuple(NumaNode(n, tuple(sorted(c for core in listed if core.numa == n for c in core.cpus)), 4096)
                     for n in range(self.packages * self.numa))
        l3 = tuple(tuple(sorted(c for core in listed[n:n + per_l3] for c in core.cpus))
                   for n in range(0, self.total, per_l3))
        return Cpu("made up", "x86_64", self.packages, per_package, self.threads, listed, numa, l3=l3)


def gpus(cpu: Cpu, chance: random.Random) -> tuple[Gpu, ...]:
    """All near one kind of place: a NUMA node, an L3 cache, a package, two packages, everything."""
    packages = [tuple(sorted(c for core in cpu.cores if core.socket == s for c in core.cpus))
                for s in range(cpu.sockets or 1)]
    places = chance.choice([[n.cpus for n in cpu.numa], list(cpu.l3), packages,
                            [tuple(sorted(c for own in packages[:2] for c in own))],
                            [tuple(sorted(c for own in packages for c in own))]])
    count = chance.randint(1, 8)
    minors = list(range(count))
    chance.shuffle(minors)
    return tuple(Gpu("nvidia", n, "NVIDIA H100 80GB HBM3", f"GPU-{n}", "", f"0000:{0x10 + n:02x}:00.0", minor,
                     f"/dev/nvidia{minor}", 81559, local_cpus=chance.choice(places)) for n, minor in enumerate(minors))


@lru_cache(maxsize=1)
def machines() -> dict[str, Node]:
    found = {}
    for seed in range(COUNT):
        chance = random.Random(seed)  # noqa: S311
        made = Made(chance.choice([1, 2, 2, 4]), chance.choice([1, 1, 2, 4]), chance.choice([1, 2, 4]),
                    chance.randint(1, 6), chance.choice([1, 2, 2, 4]), chance.choice(["usual", "siblings", "packages"]))
        cpu = made.cpu()
        found[f"t{seed}"] = Node(f"t{seed}", hostname=f"t{seed}", cpu=cpu, memory_mib=16000, gpus=gpus(cpu, chance))
    return found


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


@lru_cache(maxsize=8)
def proofs(suite: str) -> dict[str, Proof]:
    """Rendered for each machine alone: before 25.11 one cluster has one kind of socket."""
    found = at_hand(suite)
    made = {}
    for name, node in machines().items():
        inventory = Inventory((node,))
        result = render(inventory, m.SITE, RenderOptions(slurm_version=show(found.version)))
        assert result.problems == (), (name, result.problems)
        made[name] = prove(configure(result.files), "", inventory, slurm_root=found.root, with_cgroups=False)
    return made


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
def test_rendered_lines_register_with_the_hardware_as_it_is(suite: str) -> None:
    """Counts, the sockets of Gres=…(S:…) and Cores= of every device."""
    for name, proof in proofs(suite).items():
        _, answer = proof.proven[0]
        assert answer.state == "IDLE", (name, answer.node.get("Reason"))
        # Cores that are no socket are left out on purpose, and told.
        assert [f for f in proof.findings if f.severity is not Severity.NOTE] == [], name
        node = machines()[name]
        for file, cores in SEEN.findall(answer.gres):
            gpu = next(g for g in node.gpus if g.device_file == file)
            if cores != "(null)":
                assert frozenset(core_ids(cores)) == near_cores(node.cpu, gpu).cores, (name, file)


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
def test_slurmd_finds_the_same_cores_near_each_gpu(suite: str) -> None:
    """AutoDetect=nvidia: from the kernel's CPU numbers to Slurm's cores, by Slurm."""
    found = at_hand(suite)
    if found.version < (24, 11):
        pytest.skip(f"Slurm {found.text} has no AutoDetect=nvidia")
    for name, node in machines().items():
        made = layout(node.cpu, Mode.PACKAGE)
        assert isinstance(made, Layout)
        lines = (f"NodeName={name} Sockets={made.sockets} CoresPerSocket={made.cores_per_socket} "
                 f"ThreadsPerCore={made.threads_per_core} RealMemory=1000 Gres=gpu:h100:{len(node.gpus)}\n")
        text = ("ClusterName=c\nSlurmctldHost=proof\nSlurmUser=root\nGresTypes=gpu\nProctrackType=proctrack/linuxproc\n"
                f"SelectType=select/cons_tres\nSlurmdSpoolDir=/var/spool/slurmd\n{lines}PartitionName=p Nodes=ALL\n")
        proof = prove(configure({"slurm.conf": text, "gres.conf": "AutoDetect=nvidia\n"}), "", Inventory((node,)),
                      slurm_root=found.root, with_cgroups=False)
        kind, answer = proof.proven[0]
        assert kind.hardware.driver
        seen = dict(SEEN.findall(answer.gres))
        assert len(seen) == len(node.gpus), (name, answer.gres)
        for gpu in node.gpus:
            assert frozenset(core_ids(seen[gpu.device_file])) == near_cores(node.cpu, gpu).cores, (name, gpu.pci)


def test_hwloc_has_the_cores_in_the_same_order() -> None:
    """The XML that slurmd is given, read by hwloc itself; and the short text, where there is one, counts the same."""
    lstopo = shutil.which("lstopo-no-graphics")
    if lstopo is None:
        pytest.skip("lstopo-no-graphics is not installed")
    with TemporaryDirectory() as folder:
        for name, node in machines().items():
            Path(folder, "node.xml").write_text(hardware.xml(node.cpu))
            wanted = [c for core in node.cpu.cores for c in core.cpus]
            assert pus(lstopo, "--if", "xml", "-i", f"{folder}/node.xml") == wanted, name
            text = hardware.synthetic(node.cpu)
            assert text and len(pus(lstopo, "--if", "synthetic", "-i", text)) == len(wanted), name


def pus(lstopo: str, *source: str) -> list[int]:
    done = subprocess.run([lstopo, *source, "--only", "pu", "--of", "console"], capture_output=True, text=True,
                          check=True, timeout=30)
    return [int(number) for number in re.findall(r"P#(\d+)", done.stdout)]


def test_many_kinds_in_one_cluster_are_bounded_in_time() -> None:
    found = at_hand("")
    alike = {name: replace(node, gpus=()) for name, node in machines().items()}
    inventory = Inventory(tuple(alike.values()))
    result = render(inventory, m.SITE, RenderOptions(slurm_version=show(found.version)))
    proof = prove(configure(result.files), "", inventory, slurm_root=found.root)
    assert len(proof.proven) == len({(n.cpu.sockets, n.cpu.cores, n.cpu.l3) for n in alike.values()})
    assert proof.unproven == ()
    assert proof.seconds < 4 * len(proof.proven)


CORPUS = Path(__file__).resolve().parents[3] / "shared/corpus/topo/hwloc"


@pytest.mark.corpus
@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
def test_real_machines_have_the_sockets_that_slurmd_finds(suite: str) -> None:
    """hwloc XML of real machines: discovered, described, and put before slurmd."""
    found = at_hand(suite)
    files = sorted(CORPUS.glob("*.xml"))
    if not files:
        pytest.skip("no corpus of captured topologies beside the project")
    todo = [(node, made) for node in captured(tuple(map(str, files)))
            if isinstance(made := layout(node.cpu, Mode.PACKAGE), Layout)]
    with ThreadPoolExecutor(4) as pool:
        wrong = [text for text in pool.map(lambda item: disagreement(found, *item), todo) if text]
    assert wrong == []
    assert len(todo) > len(files) * 3 // 4


@lru_cache(maxsize=1)
def captured(files: tuple[str, ...]) -> tuple[Node, ...]:
    """Each is a machine of its own."""
    return tuple(replace(node, name=Path(file).stem) for file in files for node in read_paths((file,))[0].nodes)


def disagreement(found: Slurm, node: Node, made: Layout) -> str:
    alone = replace(node, name="n1", gpus=(), unknown=())
    text = ("ClusterName=c\nSlurmctldHost=proof\nSlurmUser=root\nProctrackType=proctrack/linuxproc\n"
            "SelectType=select/cons_tres\nSlurmdSpoolDir=/var/spool/slurmd\n"
            f"NodeName=n1 Sockets={made.sockets} CoresPerSocket={made.cores_per_socket} "
            f"ThreadsPerCore={made.threads_per_core} RealMemory=100\nPartitionName=p Nodes=ALL Default=YES\n")
    proof = prove(configure({"slurm.conf": text}), "", Inventory((alone,)), slurm_root=found.root, with_cgroups=False)
    told = [f.what for f in proof.findings if f.severity is not Severity.NOTE]
    states = [answer.state for _, answer in proof.proven]
    return "" if not told and states == ["IDLE"] else f"{node.name}: {states} {told} {proof.unproven}"

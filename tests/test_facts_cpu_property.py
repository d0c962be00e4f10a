"""Any node's CPUs, printed by any tool, are read back as the same model; hwloc, lscpu and slurmd are the judges."""

import json
import os
import random
import shutil
import subprocess
from typing import Any

import hwloc_oracle
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Machine, machines

from hpcadmin.documents import documents
from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, Reading, _cpu, cpuinfo, facts, hostif, lscpu, numactl, slurmd, sysfs_tree
from hpcadmin.model import Cpu

pytestmark = pytest.mark.deep

READERS = (lscpu, numactl, slurmd, cpuinfo, hostif, sysfs_tree)
NO_PROSE = ("node01 $ ", "", "some words: about this", "see the ticket")


def read(reader: Any, text: str) -> Reading:
    found = [reading for document in documents("file", text.encode()) if document.form in reader.FORMS
             for reading in reader.read(document)]
    assert len(found) == 1
    return found[0]


def tree(machine: Machine) -> Reading:
    (reading,) = sysfs_tree.read(Document("dump", "tree", tree=strategies.sysfs(machine)))
    return reading


def counts(reading: Reading) -> tuple[Any, ...]:
    return tuple(reading.known[key] for key in ("sockets", "cores_per_socket", "threads_per_core"))


def cpus(machine: Machine) -> dict[str, str] | None:
    return {str(number): strategies.fold(ids) for number, ids in machine.nodes.items()} or None


@settings(max_examples=60, deadline=None)
@given(machines())
def test_sysfs(machine: Machine) -> None:
    reading = tree(machine)
    cpu = reading.value.cpu
    sockets, cores, threads = machine.counts
    assert (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == (sockets, cores, threads)
    assert {frozenset(core.cpus) for core in cpu.cores} == machine.cores
    assert cpu.offline == tuple(sorted(machine.offline))
    assert {node.id: set(node.cpus) for node in cpu.numa} == machine.nodes
    assert [node.memory_mib for node in cpu.numa] == [kb // 1024 for _, kb in machine.memory_kb]
    assert [list(node.distances) for node in cpu.numa] == list(machine.distances().values())
    assert {frozenset(ids) for ids in cpu.l3} == {frozenset(machine.beside(t, "l3")) for t in machine.on}
    assert not reading.refused
    assert machine.even or any("different" in f.what or "fewer" in f.what for f in reading.findings)


@settings(max_examples=60, deadline=None)
@given(machines())
def test_the_probe_reads_what_a_dump_tells(machine: Machine) -> None:
    topology = facts()["cpu_topology"].parse(strategies.probe_cpu_topology(machine))
    numa = facts()["numa"].parse(strategies.probe_numa(machine)) if machine.memory_kb and any(
        machine.nodes.values()) else ()
    cpu = _cpu.from_topology(topology, numa, [])
    other = tree(machine).value.cpu
    assert cpu.cores == other.cores
    assert numa == () or cpu.numa == other.numa
    assert (cpu.sockets, cpu.l3, cpu.offline) == (other.sockets, other.l3, other.offline)


@settings(max_examples=80, deadline=None)
@given(machines(), st.booleans(), st.booleans(), st.integers(0, 3))
def test_lscpu(machine: Machine, indent: bool, table: bool, around: int) -> None:
    text = strategies.lscpu(machine, indent=indent) + (f"\n{strategies.lscpu_table(machine)}" if table else "")
    prose = "\n".join(NO_PROSE[:around])
    reading = read(lscpu, f"{prose}\n{text}\n{prose}")
    check_lscpu(reading, machine)
    assert reading.kind == "lscpu"
    if table:
        assert reading.value.topology is None or \
            {frozenset(line.siblings) for line in reading.value.topology.cpus} == machine.cores
        assert reading.value.topology is not None or not machine.even


@settings(max_examples=40, deadline=None)
@given(machines(), st.booleans())
def test_lscpu_json(machine: Machine, nested: bool) -> None:
    check_lscpu(read(lscpu, strategies.lscpu_json(machine, nested=nested)), machine)


def check_lscpu(reading: Reading, machine: Machine) -> None:
    """Where sockets or cores are uneven lscpu prints averages: these are only taken where they make up the whole."""
    assert reading.known["online"] == strategies.fold(machine.online)
    assert reading.known["numa_nodes"] == cpus(machine)
    assert reading.known["offline"] == (strategies.fold(machine.offline) or None)
    assert reading.known["sockets"] == machine.counts[0]
    assert not reading.missing
    if machine.even:
        assert counts(reading) == machine.counts
    elif None not in counts(reading):
        assert counts(reading)[0] * counts(reading)[1] * counts(reading)[2] == len(machine.online)


@settings(max_examples=40, deadline=None)
@given(machines(numa=True))
def test_lscpu_table_alone(machine: Machine) -> None:
    reading = read(lscpu, strategies.lscpu_table(machine))
    assert reading.kind == "lscpu -p"
    assert counts(reading)[:2] == machine.counts[:2]
    cpu = _cpu.from_lscpu(reading.value, [])
    assert {frozenset(core.cpus) for core in cpu.cores} == machine.cores


@settings(max_examples=60, deadline=None)
@given(machines(numa=True))
def test_numactl(machine: Machine) -> None:
    reading = read(numactl, strategies.numactl(machine))
    assert not reading.missing
    assert not reading.refused or not machine.nodes
    assert reading.known["numa_nodes"] == cpus(machine)
    assert reading.known["cpus"] == len(machine.online)
    assert reading.known["distances"]["matrix"] == list(machine.distances().values())
    assert _cpu.from_numactl(reading.value).numa == tree(machine).value.cpu.numa


@settings(max_examples=60, deadline=None)
@given(machines(numa=True), st.data())
def test_a_cut_numactl_is_incomplete(machine: Machine, data: st.DataObject) -> None:
    lines = strategies.numactl(machine).splitlines()
    keep = data.draw(st.integers(1, len(lines) - 1))
    text = "\n".join(lines[:keep] if data.draw(st.booleans()) else lines[-keep:])
    for reading in numactl.read(Document("file", lines=tuple(text.split("\n")))):
        assert reading.missing
        assert _cpu.from_numactl(reading.value) == Cpu()


@settings(max_examples=60, deadline=None)
@given(machines())
def test_slurmd(machine: Machine) -> None:
    reading = read(slurmd, strategies.slurmd(machine))
    if machine.even:
        assert counts(reading) == machine.counts
    assert reading.known["cpus"] == len(machine.online)
    sockets, cores, threads = counts(reading)
    assert cores is None or sockets * cores * threads == len(machine.online)


@settings(max_examples=40, deadline=None)
@given(machines())
def test_cpuinfo(machine: Machine) -> None:
    reading = read(cpuinfo, strategies.cpuinfo(machine))
    if machine.even:
        assert counts(reading) == machine.counts
    assert reading.known["cpus"] == len(machine.online)


@settings(max_examples=60, deadline=None)
@given(machines(numa=True), st.permutations(("tree", "lscpu", "numactl", "slurmd")))
def test_sources_of_one_node_agree(machine: Machine, order: list[str]) -> None:
    """In any order they make the same Cpu, and nothing contradicts where the node is even."""
    made = {
        "tree": tree(machine).value.cpu, "slurmd": _cpu.from_slurmd(read(slurmd, strategies.slurmd(machine)).value),
        "lscpu": _cpu.from_lscpu(read(lscpu, strategies.lscpu(machine)).value),
        "numactl": _cpu.from_numactl(read(numactl, strategies.numactl(machine)).value),
    }
    problems: list[str] = []
    joined = _cpu.join({name: made[name] for name in order}, problems)
    assert joined.cores == made["tree"].cores
    assert (joined.sockets, joined.cores_per_socket, joined.threads_per_core) == machine.counts
    assert joined.numa == made["tree"].numa
    assert not machine.even or not problems


@settings(max_examples=60, deadline=None)
@given(machines(numa=True, may_be_offline=False), machines(numa=True, may_be_offline=False))
def test_sources_of_two_nodes_are_told(one: Machine, other: Machine) -> None:
    problems: list[str] = []
    sources = {"one.txt": _cpu.from_lscpu(read(lscpu, strategies.lscpu(one)).value),
               "other.txt": _cpu.from_lscpu(read(lscpu, strategies.lscpu(other)).value)}
    joined = _cpu.join(sources, problems)
    if one.counts != other.counts:
        assert any("one.txt" in problem and "other.txt" in problem for problem in problems)
        assert None in (joined.sockets, joined.cores_per_socket, joined.threads_per_core)


# --- hwloc, lscpu and slurmd themselves -----------------------------------------------------------------------------


@pytest.mark.skipif(not hwloc_oracle.available(), reason="no libhwloc 2 on this machine")
@settings(max_examples=25, deadline=None)
@given(machine=machines())
def test_cores_are_in_hwlocs_order(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("machine")
    strategies.write(machine, root)
    assert [list(core.cpus) for core in tree(machine).value.cpu.cores] == hwloc_oracle.cores(root)
    shutil.rmtree(root)


@pytest.mark.skipif(not shutil.which("lscpu"), reason="no lscpu on this machine")
@settings(max_examples=15, deadline=None)
@given(machine=machines())
def test_lscpu_itself(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("machine")
    strategies.write(machine, root)
    for options in ((), ("-J",)):
        done = subprocess.run(["lscpu", "--sysroot", root, *options], capture_output=True, text=True, check=False,
                              env={**os.environ, "LC_ALL": "C"})
        if done.returncode == 0:
            reading = read(lscpu, done.stdout)
            if machine.even:
                assert counts(reading) == machine.counts, done.stdout
            assert reading.known["numa_nodes"] == cpus(machine)
    for option in ("-p", "-e"):
        done = subprocess.run(["lscpu", "--sysroot", root, option], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            cpu = _cpu.from_lscpu(read(lscpu, done.stdout).value, [])
            assert {frozenset(core.cpus) for core in cpu.cores} == machine.cores, done.stdout
    shutil.rmtree(root)


# --- any text -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(machines(), st.integers(0, 5), st.randoms(use_true_random=False))
def test_damaged_texts_raise_nothing_else(machine: Machine, which: int, rng: random.Random) -> None:
    text = (strategies.lscpu, strategies.lscpu_json, strategies.numactl, strategies.slurmd, strategies.cpuinfo,
            strategies.lscpu_table)[which](machine)
    for _ in range(3):
        low = rng.randrange(len(text) + 1)
        high = min(len(text), low + rng.randrange(60))
        piece = rng.choice(["", text[low:high] * 2, "9" * 30, ",-", ": -", "\x00", "٣", "{", "NUMA node", "\n"])
        text = text[:low] + piece + text[high:]
    for reader in READERS:
        for document in (*documents("file", text.encode("utf-8", "replace")),
                         Document("file", "text", tuple(text.split("\n"))), Document("file", "json", (text,))):
            if document.form in reader.FORMS:
                try:
                    for reading in reader.read(document):
                        json.dumps(reading.known)
                        assert all("\n" not in finding.what for finding in reading.findings)
                except ParseError:
                    pass


@settings(max_examples=40, deadline=None)
@given(machines(), st.randoms(use_true_random=False))
def test_damaged_dumps_raise_nothing_else(machine: Machine, rng: random.Random) -> None:
    files = dict(strategies.sysfs(machine))
    for path in rng.sample(sorted(files), min(len(files), 6)):
        files[path] = rng.choice(["", "garbage", "-1", "ffffffff", "0-9999999", files[rng.choice(sorted(files))]])
        if rng.random() < 0.3:
            del files[path]
    try:
        for reading in sysfs_tree.read(Document("dump", "tree", tree=files)):
            json.dumps(reading.known)
    except ParseError:
        pass

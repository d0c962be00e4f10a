"""Made-up machines in every form of hwloc's, read back as the same model; and any text is met with an answer."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from pathlib import Path

import hwloc_render as render
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Machine, machines

from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, Reading, lstopo_text
from hpcadmin.facts import hwloc as hwloc_xml

pytestmark = pytest.mark.deep

needs_lstopo = pytest.mark.skipif(shutil.which("lstopo-no-graphics") is None, reason="no lstopo on this machine")
SLOW = (HealthCheck.too_slow,)

# Where more than half of the CPUs are hidden, that is taken for a container's doing.
mostly_online = machines().filter(lambda machine: len(machine.offline) <= len(machine.online))


def read(text: str, form: str = "xml") -> tuple[Reading, ...]:
    document = Document("x", form, tuple(text.split("\n")))
    return hwloc_xml.read(document) + (lstopo_text.read(document) if form == "text" else ())


def same(reading: Reading, machine: Machine, *, memory: bool = True) -> None:
    cpu, root = reading.value.cpu, render.tree(machine)
    assert reading.missing == ()
    assert (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == machine.counts
    assert [frozenset(core.cpus) for core in cpu.cores] == render.cores(root)
    assert {node.id: set(node.cpus) for node in cpu.numa} == machine.nodes
    if memory:
        assert {node.id: node.memory_mib for node in cpu.numa} == {
            number: size // 1024 for number, size in machine.memory_kb}
    numa_of = {cpu: number for number, cpus in machine.nodes.items() for cpu in cpus}
    assert all(core.numa == numa_of.get(core.cpus[0]) for core in cpu.cores)
    packages = [thread.package for core in cpu.cores for thread in machine.on if thread.cpu == core.cpus[0]]
    order = list(dict.fromkeys(packages))
    assert [core.socket for core in cpu.cores] == [order.index(package) for package in packages]


@given(machine=mostly_online, version=st.sampled_from(("1", "2.0", "3.0")))
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_a_machine_in_xml_is_read_back(machine: Machine, version: str) -> None:
    (reading,) = read(render.xml(machine, version))
    same(reading, machine)
    assert reading.refused == ""
    if len(machine.nodes) > 1:
        assert {node.id: list(node.distances) for node in reading.value.cpu.numa} == machine.distances()
    assert set(reading.value.cpu.offline) == {thread.cpu for thread in machine.threads} - set(machine.online)


@given(machine=mostly_online, verbose=st.booleans(), prompt=st.booleans(), indent=st.sampled_from(("", "    ")))
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_a_machine_in_text_is_read_back(machine: Machine, verbose: bool, prompt: bool, indent: str) -> None:
    text = render.text(machine, verbose=verbose)
    lines = [indent + line for line in text.split("\n")]
    (reading,) = read("\n".join([*(["here is the node", "[root@n1 ~]# lstopo --of console"] if prompt else []), *lines,
                                 *(["[root@n1 ~]#"] if prompt else [])]), "text")
    same(reading, machine, memory=False)
    assert reading.first == (3 if prompt else 1)


@given(machine=machines(), version=st.sampled_from(("1", "2.0", "3.0")), cut=st.floats(0, 1))
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
def test_what_is_cut_off_is_never_taken_for_the_whole(machine: Machine, version: str, cut: float) -> None:
    text = render.xml(machine, version).rstrip("\n")
    short = text[:int(cut * (len(text) - 1))]
    try:
        found = read(short)
    except ParseError:
        return
    for reading in found:
        assert reading.missing
        cpu = reading.value.cpu
        for ours, theirs in zip((cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core), machine.counts, strict=True):
            assert ours in (None, theirs)
        assert cpu.cores == () or [frozenset(core.cpus) for core in cpu.cores] == render.cores(render.tree(machine))


@given(machine=machines(), cut=st.floats(0, 1))
@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
def test_verbose_text_without_a_part_of_its_tree_says_so(machine: Machine, cut: float) -> None:
    lines = render.text(machine, verbose=True).split("\n")
    tree = [number for number, line in enumerate(lines) if line.strip().startswith(("Core", "PU"))]
    gone = tree[int(cut * (len(tree) - 1))]
    found = read("\n".join(lines[:gone] + lines[gone + 1:]), "text")
    assert all(reading.missing or reading.refused for reading in found)


@needs_lstopo
@given(machine=machines(numa=True, may_be_offline=False), version=st.sampled_from(("1", "2.0")))
@settings(max_examples=25, deadline=None, suppress_health_check=[*SLOW, HealthCheck.function_scoped_fixture])
def test_hwloc_itself_reads_the_same_cores_and_prints_what_we_read(
        tmp_path: Path, machine: Machine, version: str) -> None:
    path = tmp_path / "node.xml"
    path.write_text(render.xml(machine, version))

    def lstopo(*more: str) -> str:
        return subprocess.run(["lstopo-no-graphics", "-i", str(path), "--of", "console", *more], check=True, text=True,
                              capture_output=True, timeout=30).stdout
    (reading,) = read(path.read_text())
    shown = re.findall(r"^Core L#\d+ cpuset=(\S+)", lstopo("--only", "core", "-c"), re.MULTILINE)
    cores = [render.cpuset(core.cpus) for core in reading.value.cpu.cores]
    assert [int("".join(word.removeprefix("0x").rjust(8, "0") for word in mask.split(",")), 16) for mask in shown] == [
        int("".join(word.removeprefix("0x").rjust(8, "0") for word in mask.split(",")), 16) for mask in cores]
    for options in ((), ("-v",), ("-p",)):
        (again,) = read(lstopo(*options), "text")
        assert again.missing == ()
        assert again.value.cpu.cores == reading.value.cpu.cores
        assert [(node.id, node.cpus) for node in again.value.cpu.numa] == [
            (node.id, node.cpus) for node in reading.value.cpu.numa]


_WORDS = st.sampled_from((
    "<topology>", '<topology version="2.0">', "</topology>", '<object type="Machine" cpuset="0x3">', "</object>",
    '<object type="Core" cpuset="0x1">', '<object type="PU" os_index="0" cpuset="0x1"/>', '<object type="PU"/>',
    '<object type="PU" os_index="99999999"/>', '<object type="NUMANode" os_index="-1"/>', '<info name="a" value="b"/>',
    '<object type="Bridge" bridge_pci="0000:[00-">', '<object type="PCIDev" pci_busid="0:0" pci_type="x">',
    '<distances nbobjs="99999999"/>', '<distances2 type="NUMANode" nbobjs="2"><u64values>1 2</u64values></distances2>',
    '<object type="Package" cpuset="0xf...f">', '<cpukind cpuset="0x"/>', '&lol;', "Machine (1GB)\n", "  Package L#0\n",
    "    Core L#0 + PU L#0 (P#0)\n", "  PU L#1 (P#99999999)\n", "3 x { PCI 0b:00.1-3 (Ethernet) }\n",
    "depth 0: 1 Machine (type #0)\n",
    "Machine + Package L#0\n", "  NUMANode P#3 (\n",
    "Relative latency matrix between 2 NUMANodes (depth -3) by logical indexes:\n",
    " index     0     1\n", "     0    10    20\n", "CPU kind #0 efficiency 0 cpuset 0x\n", "\n", " "))


@given(st.lists(_WORDS | st.text(max_size=20), max_size=25).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_text_gives_a_reading_or_a_parse_error(text: str) -> None:
    for form in ("xml", "text"):
        with contextlib.suppress(ParseError):
            read(text, form)


@pytest.mark.parametrize("text", [
    "<topology>" + '<object type="Machine" cpuset="0x1">' * 200_000,
    '<topology><object type="Machine" cpuset="' + "0xffffffff," * 200_000 + '0x1"></object></topology>',
    "<topology>" + '<object type="Machine" cpuset="0x1">' + '<object type="PU" os_index="0" cpuset="0x1"/>' * 190_000,
    "Machine (" + "(" * 400_000,
    "Machine (1GB)\n" + "  Package L#0 + " * 20_000,
    "Machine (1GB)\n" + "".join(" " * n + "  Group0 L#0\n" for n in range(1000)) + "PU L#0 (P#0)",
    "Machine (1GB)\n" + "  NUMANode L#0 (P#0)\n" * 20_000,
    "Machine (1GB)\n" + '  "a" ' * 50_000,
    "Machine\n" * 20_000,
    "Machine (P#0\n" + "x\n" * 50_000,
])
def test_hostile_texts_are_read_in_time(text: str) -> None:
    start = time.process_time()
    for form in ("xml", "text"):
        with contextlib.suppress(ParseError):
            read(text, form)
    assert time.process_time() - start < 10

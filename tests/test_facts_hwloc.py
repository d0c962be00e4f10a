"""hwloc's XML and lstopo's text in the shapes that real nodes give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, Reading, facts, lstopo_text, part_of, read_document
from hpcadmin.facts import hwloc as hwloc_xml

SAMPLES = Path(__file__).parent / "samples" / "facts" / "hwloc"


def xml(text: str) -> Reading:
    (found,) = hwloc_xml.read(Document("x", "xml", tuple(text.split("\n"))))
    return found


def text(lines: str) -> Reading:
    (found,) = lstopo_text.read(Document("x", "text", tuple(lines.strip("\n").split("\n"))))
    return found


def said(reading: Reading) -> str:
    return "\n".join(finding.what for finding in reading.findings)


def pu(*cpus: int, core: int = 0) -> str:
    mask = hex(sum(1 << cpu for cpu in cpus))
    inside = "".join(f'<object type="PU" os_index="{cpu}" cpuset="{hex(1 << cpu)}"/>' for cpu in cpus)
    return f'<object type="Core" os_index="{core}" cpuset="{mask}" complete_cpuset="{mask}">{inside}</object>'


def package(number: int, *cores: str, cpus: int, complete: int | None = None, more: str = "") -> str:
    return (f'<object type="Package" os_index="{number}" cpuset="{hex(cpus)}" '
            f'complete_cpuset="{hex(complete or cpus)}">{more}{"".join(cores)}</object>')


def machine(*packages: str, cpus: int, complete: int | None = None, allowed: int | None = None, cgroup: str = "/",
            version: str = "2.0", after: str = "") -> str:
    return (f'<topology version="{version}"><object type="Machine" cpuset="{hex(cpus)}" '
            f'complete_cpuset="{hex(complete or cpus)}" allowed_cpuset="{hex(allowed or cpus)}">'
            f'<info name="LinuxCgroup" value="{cgroup}"/>{"".join(packages)}</object>{after}</topology>')


def node(number: int, cpus: int, more: str = "") -> str:
    return (f'<object type="NUMANode" os_index="{number}" cpuset="{hex(cpus)}" complete_cpuset="{hex(cpus)}" '
            f'local_memory="1073741824"{more}/>')


TWO = machine(package(0, pu(0, 2), pu(4, 6), cpus=0x55), package(1, pu(1, 3), pu(5, 7), cpus=0xaa), cpus=0xff)


def test_cores_are_numbered_package_by_package() -> None:
    reading = xml(TWO)
    assert [core.cpus for core in reading.value.cpu.cores] == [(0, 2), (4, 6), (1, 3), (5, 7)]
    assert reading.known["packages"] == {"0": "0,2,4,6", "1": "1,3,5,7"}
    assert reading.known["gpus"] is None
    assert "unknown, not none" in said(reading)


def test_objects_in_another_order_are_sorted_as_hwloc_does() -> None:
    shuffled = machine(package(1, pu(5, 7), pu(1, 3), cpus=0xaa), package(0, pu(4, 6), pu(0, 2), cpus=0x55), cpus=0xff)
    assert xml(shuffled).value.cpu == xml(TWO).value.cpu


def test_a_document_inside_a_log_keeps_its_line_numbers() -> None:
    reading = xml("$ lstopo --of xml\n" + TWO.replace("<object type=\"Package\"", "\n<object type=\"Package\"") + "\n$")
    assert (reading.first, reading.last) == (2, 4)


def test_another_programs_topology_is_none_of_hwlocs() -> None:
    for other in ("<topology><cells num='2'><cell id='0'/></cells></topology>",
                  "<topology sockets='2' cores='4' threads='1'/>"):
        assert hwloc_xml.read(Document("x", "xml", (f"<capabilities>{other}", "</capabilities>"))) == ()


def test_entities_are_refused() -> None:
    head = '<!DOCTYPE topology [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n'
    bomb = head + TWO.replace("/></object>", "/>&b;</object>", 1)
    with pytest.raises(ParseError, match="entities"):
        xml(bomb)


def test_a_part_of_a_node_in_a_job_is_refused() -> None:
    part = machine(package(0, pu(0), pu(1), cpus=0x3, complete=0xf), cpus=0x3, complete=0xff,
                   cgroup="/slurm/uid_1000/job_42/step_0")
    reading = xml(part)
    assert "only CPUs 0-1 of 0-7" in reading.refused
    assert reading.known["sockets"] is None
    assert reading.value.limited
    told = part_of(reading)
    assert told is not None
    assert told.node.cpu.sockets is None
    assert told.node.cpu.cores == ()


def test_all_of_a_node_in_a_job_is_only_noted() -> None:
    reading = xml(TWO.replace('value="/"', 'value="/slurm/uid_1000/job_42/step_0"'))
    assert reading.refused == ""
    assert "job's cgroup" in said(reading)


def test_cores_kept_from_all_jobs_alike_are_told_and_limit_the_view() -> None:
    kept = machine(package(0, pu(1), cpus=0x2, complete=0x3), package(1, pu(3), cpus=0x8, complete=0xc), cpus=0xa,
                   complete=0xf, cgroup="/allocation_1")
    reading = xml(kept)
    assert reading.refused == ""
    assert reading.value.limited
    assert "restricted" in said(reading)


def test_siblings_that_are_off_line_are_no_limit() -> None:
    smt_off = machine(package(0, pu(0), pu(1), cpus=0x3), cpus=0x3, complete=0xf)
    reading = xml(smt_off)
    assert (reading.refused, reading.value.limited) == ("", "")
    assert reading.value.cpu.offline == (2, 3)
    assert "not online" in said(reading)


def test_cpus_that_may_not_be_used_are_told_and_the_topology_stays() -> None:
    reading = xml(TWO.replace('allowed_cpuset="0xff"', 'allowed_cpuset="0x55"'))
    assert reading.known["restricted"] is True
    assert reading.known["allowed_cores"] == "0-1"
    assert reading.value.cpu.sockets == 2
    assert reading.value.limited == ""


def test_uneven_sockets_have_no_count_and_slurmds_line_is_questioned() -> None:
    reading = xml(machine(package(0, pu(0), pu(1), pu(2), cpus=0x7), package(1, pu(3), pu(4), cpus=0x18), cpus=0x1f))
    assert reading.value.cpu.cores_per_socket is None
    assert reading.known["cores_per_socket"] == [3, 2]
    assert "uneven" in said(reading)
    assert "multiplies to 4 CPUs" in said(reading)


def test_slurmd_leaves_out_efficiency_cores() -> None:
    kinds = ('<cpukind cpuset="0xf"><info name="CoreType" value="IntelCore"/></cpukind>'
             '<cpukind cpuset="0x30"><info name="CoreType" value="IntelAtom"/></cpukind>')
    reading = xml(machine(package(0, pu(0, 1), pu(2, 3), pu(4), pu(5), cpus=0x3f), cpus=0x3f, after=kinds))
    assert reading.known["slurmd_C_22_05"] == {
        "cpus": 4, "boards": 1, "sockets_per_board": 1, "cores_per_socket": 2, "threads_per_core": 2}
    assert "heterogeneous cores: 2 + 2" in said(reading)
    assert "allow_ecores" in said(reading)


def test_memory_that_shares_cpus_is_no_socket() -> None:
    memory = node(0, 0x3, ' subtype="DRAM"') + node(2, 0x3, ' subtype="HBM"')
    more = node(1, 0xc, ' subtype="DRAM"') + node(3, 0xc, ' subtype="HBM"')
    reading = xml(machine(package(0, pu(0), pu(1), cpus=0x3, more=memory),
                          package(1, pu(2), pu(3), cpus=0xc, more=more), cpus=0xf))
    assert reading.known["numa_same_cpus"] == [[0, 2], [1, 3]]
    assert reading.known["cpu_numa_nodes"] == [0, 1]
    assert [numa.cpus for numa in reading.value.cpu.numa] == [(0, 1), (2, 3), (), ()]
    assert "NUMA nodes 2-3 (HBM) share" in said(reading)


def test_contradictions_leave_no_cores() -> None:
    for wrong in (machine(package(0, pu(0), pu(1), cpus=0x3), package(1, pu(1), cpus=0x2), cpus=0x3),
                  TWO.replace('<object type="Core" os_index="0" cpuset="0x5"', '<object type="Core" cpuset="0x15"')):
        reading = xml(wrong)
        assert reading.refused
        assert reading.value.cpu.cores == ()
        assert reading.value.cpu.sockets is None


def test_no_cores_in_the_file_is_missing_not_one_core_a_cpu() -> None:
    bare = ('<topology version="2.0"><object type="Machine" cpuset="0x3" complete_cpuset="0x3">'
            '<object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>'
            '</object></topology>')
    reading = xml(bare)
    assert len(reading.missing) == 2
    assert reading.value.cpu.sockets is None


DEVICES = """
<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[15-18]">
 <object type="Bridge" bridge_type="1-1" bridge_pci="0000:[16-18]" pci_busid="0000:15:01.0" pci_type="0604 [10b5:9781]">
  <object type="PCIDev" pci_busid="0000:17:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1">
   <object type="OSDev" name="nvml3" osdev_type="1"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/>
    <info name="NVIDIAUUID" value="GPU-1"/></object></object>
  <object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0207 [15b3:1021] [15b3:0023] 00">
   <object type="OSDev" name="ibs1" osdev_type="2"/>
   <object type="OSDev" name="mlx5_4" osdev_type="3"><info name="Port1State" value="4"/>
    <info name="Port1LID" value="0x2a"/><info name="NodeGUID" value="a088:c203:00a1:b2c3"/></object></object>
 </object>
 <object type="PCIDev" pci_busid="0000:15:00.0" pci_type="0300 [1a03:2000] [0000:0000] 52"/>
</object>
"""


def test_devices_with_what_is_above_them() -> None:
    reading = xml(machine(package(0, pu(0), pu(1), cpus=0x3, more=node(0, 0x3) + DEVICES), cpus=0x3))
    (gpu,), (nic,) = reading.value.gpus, reading.value.nics
    assert (gpu.index, gpu.pci, gpu.numa, gpu.local_cpus, gpu.uuid) == (3, "0000:17:00.0", 0, (0, 1), "GPU-1")
    assert (nic.name, nic.netdev, nic.port, nic.state, nic.lid, nic.guid) == (
        "mlx5_4", "ibs1", 1, "ACTIVE", 42, "a088c20300a1b2c3")
    assert {device.address: (device.parent, device.root) for device in reading.value.pci}["0000:18:00.0"] == (
        "0000:15:01.0", "0000:15")
    assert reading.known["nics"][0]["relation"] == "PIX"
    assert reading.known["gpus"][0]["local_cores"] == "0-1"
    assert reading.value.gpus_whole


def test_an_osdev_of_version_3_has_bits() -> None:
    three = DEVICES.replace('"nvml3" osdev_type="1"', '"nvml3" osdev_type="12"').replace(
        '"ibs1" osdev_type="2"', '"ibs1" osdev_type="16"').replace(
        '"mlx5_4" osdev_type="3"', '"mlx5_4" osdev_type="48"')
    two = xml(machine(package(0, pu(0), cpus=0x1, more=DEVICES), cpus=0x1))
    new = xml(machine(package(0, pu(0), cpus=0x1, more=three), cpus=0x1, version="3.0"))
    assert [nic.rdma for nic in new.value.nics] == ["mlx5_4"] == [nic.rdma for nic in two.value.nics]


def test_groups_are_no_boards() -> None:
    def group(*inside: str, cpus: int) -> str:
        return f'<object type="Group" cpuset="{hex(cpus)}" complete_cpuset="{hex(cpus)}">{"".join(inside)}</object>'
    both = [package(number, pu(number), cpus=1 << number) for number in range(5)]
    reading = xml(machine(group(*both[:2], cpus=0x3), group(*both[2:4], cpus=0xc), both[4], cpus=0x1f))
    assert reading.value.cpu.sockets == 5
    assert reading.known["slurmd_C_22_05"]["boards"] == 2
    assert "taken for boards" in said(reading)


TEXT = """
Machine (8GB total)
  Package L#0 + L3 L#0 (32MB)
    NUMANode L#0 (P#0 4GB)
    Core L#0
      PU L#0 (P#0)
      PU L#1 (P#2)
    HostBridge
      PCIBridge
        PCI 17:00.0 (3D)
          GPU(NVML) "nvml0"
        PCI 18:00.0 (InfiniBand)
          Net "ib0"
          OpenFabrics "mlx5_0"
      2 x { PCI 19:00.1-2 (Ethernet) }
  Package L#1 + L3 L#1 (32MB)
    NUMANode L#1 (P#1 4GB)
    Core L#1
      PU L#2 (P#1)
      PU L#3 (P#3)
"""


def test_counts_alone_of_older_versions_have_tabs() -> None:
    lines = ("depth 0:\t1 Machine (type #1)", " depth 1:\t2 Package (type #3)", "  depth 2:\t8 Core (type #5)")
    (reading,) = lstopo_text.read(Document("x", "text", lines))
    assert (reading.known["sockets"], reading.known["cores"]) == (2, 8)


def test_short_text() -> None:
    reading = text(TEXT)
    assert [core.cpus for core in reading.value.cpu.cores] == [(0, 2), (1, 3)]
    assert reading.known["numa_nodes"] == {"0": "0,2", "1": "1,3"}
    assert [gpu["pci"] for gpu in reading.known["gpus"]] == ["0000:17:00.0"]
    assert [nic["pci"] for nic in reading.known["nics"]] == ["0000:18:00.0", "0000:19:00.1", "0000:19:00.2"]
    assert reading.known["nics"][0]["nearest_gpus"] == ["0000:17:00.0"]


def test_text_of_version_1_has_its_cpus_in_numa_nodes() -> None:
    reading = text("""
Machine (16GB)
  NUMANode L#0 (P#0 8192MB) + Socket L#0 + L3 L#0 (20MB)
    L2 L#0 (256KB) + L1 L#0 (32KB) + Core L#0 + PU L#0 (P#0)
    L2 L#1 (256KB) + L1 L#1 (32KB) + Core L#1 + PU L#1 (P#2)
    HostBridge L#0
      PCI 10de:1094
  NUMANode L#1 (P#1 8192MB) + Socket L#1 + L3 L#1 (20MB)
    L2 L#2 (256KB) + L1 L#2 (32KB) + Core L#2 + PU L#2 (P#1)
    L2 L#3 (256KB) + L1 L#3 (32KB) + Core L#3 + PU L#3 (P#3)
  NUMANode L#2 (P#2 4096MB)
""")
    assert reading.known["numa_nodes"] == {"0": "0,2", "1": "1,3", "2": ""}
    assert (reading.value.cpu.sockets, reading.value.cpu.cores_per_socket) == (2, 2)
    assert reading.known["gpus"] is None         # a class is not printed


def test_text_without_the_kernels_numbers_tells_counts_alone() -> None:
    reading = text(TEXT.replace(" (P#0)", "").replace(" (P#2)", "").replace(" (P#1)", "").replace(" (P#3)", ""))
    assert (reading.value.cpu.sockets, reading.value.cpu.threads_per_core) == (2, 2)
    assert reading.value.cpu.cores == ()
    assert reading.known["os_cpus"] is None
    assert "P#" in reading.missing[0]


def test_a_summary_alone() -> None:
    reading = text("""
depth 0:           1 Machine (type #0)
 depth 1:          2 Package (type #1)
  depth 2:         8 Core (type #2)
   depth 3:        16 PU (type #3)
Special depth -3:  2 NUMANode (type #13)
""")
    assert (reading.known["sockets"], reading.known["cores"], reading.known["cpus"]) == (2, 8, 16)
    assert reading.missing


def test_what_was_left_out_of_a_text_is_missing() -> None:
    lines = TEXT.strip("\n").split("\n")
    assert text("\n".join([*lines[:5], "[...]", *lines[6:]])).missing
    assert text("\n".join(lines[:-2])).missing
    wrapped = TEXT.replace("(P#0 4GB)", "(P#0\n4GB)")
    assert text(wrapped).known["numa_nodes"] == {"0": "0,2", "1": "1,3"}


def test_two_nodes_one_after_the_other() -> None:
    found = lstopo_text.read(Document("x", "text", tuple(("node01:" + TEXT + "node02:" + TEXT).split("\n"))))
    assert [reading.value.cpu.sockets for reading in found] == [2, 2]


def test_a_drawing_is_named_with_what_to_send_instead() -> None:
    drawn = ("│ Machine (8GB total) │", "│ │ Core L#0 │ │ Core L#1 │", "│ │ PU L#0 │ │ PU L#1 │")
    with pytest.raises(ParseError, match="boxes"):
        lstopo_text.read(Document("x", "text", drawn))


def test_prose_is_no_machine() -> None:
    for prose in ("Machine (a long story) follows", "Machine",
                  "System (old)\nMachine learning (ML) is\n  Package it well"):
        assert lstopo_text.read(Document("x", "text", tuple(prose.split("\n")))) == ()


def test_the_probe_asks_hwloc_for_cpus_alone() -> None:
    fact = facts()["hwloc"]
    assert "--no-io" in fact.command
    assert fact.parse((SAMPLES / "two-sockets-snc2.txt").read_text()).cpu.sockets == 2


def test_every_form_goes_by_the_frame() -> None:
    outcome = read_document(Document("x", "text", tuple(TEXT.split("\n"))))
    assert [reading.kind for reading in outcome.readings] == ["lstopo text"]
    assert outcome.refused == ""


def test_a_cpuset_that_hides_memory_too_is_no_offline_cpu() -> None:
    """What the machine's sets name and nothing in the tree claims: a container's view, not CPUs that are off line."""
    hidden = machine(package(0, pu(0), pu(1), cpus=0x3), cpus=0x3, complete=0xf).replace(
        'allowed_cpuset="0x3"', 'allowed_cpuset="0x3" nodeset="0x1" complete_nodeset="0x3"')
    reading = xml(hidden)
    assert "only CPUs 0-1 of 0-3" in reading.value.limited
    assert reading.value.cpu.offline == ()
    assert reading.value.memory_mib is None
    most = xml(machine(package(0, pu(0), pu(1), cpus=0x3), cpus=0x3, complete=0xff))
    assert most.value.limited
    claimed = machine(package(0, pu(0), pu(1), cpus=0x3), node(0, 0x3),
                      node(1, 0).replace('complete_cpuset="0x0"', 'complete_cpuset="0xc"'), cpus=0x3, complete=0xf)
    assert xml(claimed).value.limited


def test_memory_of_a_whole_package_beside_that_of_its_parts() -> None:
    """An expander hangs on the package, plain memory on the package's halves: no CPU is in two nodes."""
    half = '<object type="Group" cpuset="{0}" complete_cpuset="{0}">{1}</object>'
    reading = xml(machine(package(
        0, half.format("0x3", node(0, 0x3) + pu(0) + pu(1)), half.format("0xc", node(1, 0xc) + pu(2) + pu(3)),
        cpus=0xf, more=node(2, 0xf, ' subtype="CXL-DRAM"')), cpus=0xf))
    assert reading.refused == ""
    assert [(each.id, each.cpus) for each in reading.value.cpu.numa] == [(0, (0, 1)), (1, (2, 3)), (2, ())]
    assert [core.numa for core in reading.value.cpu.cores] == [0, 0, 1, 1]
    assert "nodes 2 (CXL-DRAM) share the CPUs of nodes 0-1" in said(reading)
    crossing = xml(machine(package(0, pu(0), pu(1), pu(2), node(0, 0x3), node(1, 0x6), cpus=0x7), cpus=0x7))
    assert "CPUs 1 are in two NUMA nodes" in crossing.refused


def test_text_tells_what_is_not_allowed_from_what_is_off_line() -> None:
    tail = ("3 processors not represented in topology: 0x00000070\n"
            "2 processors represented but not allowed: 0x0000000a\n")
    reading = text(TEXT + tail + "Topology infos: LinuxCgroup=/box Backend=Linux\n")
    assert reading.value.cpu.offline == (4, 5, 6)
    assert reading.known["allowed_cores"] == "0"
    assert (reading.refused, reading.value.limited) == ("", "")
    alone = text(TEXT + "3 processors not represented in topology: 0x00000070\nTopology infos: Backend=Linux\n")
    assert alone.value.cpu.offline == (4, 5, 6)
    most = text(TEXT + "6 processors not represented in topology: 0x000003f0\nTopology infos: Backend=Linux\n")
    assert most.value.limited


def test_nodes_without_memory_are_no_limit_of_the_view() -> None:
    """hwloc 2 leaves them out of the tree and keeps them in the machine's set."""
    bare = machine(package(0, pu(0), pu(1), cpus=0x3, more=node(0, 0x3)), cpus=0x3).replace(
        'allowed_cpuset="0x3"', 'allowed_cpuset="0x3" nodeset="0x1" complete_nodeset="0x3"')
    reading = xml(bare)
    assert (reading.refused, reading.value.limited, reading.value.cpu.sockets) == ("", "", 1)
    assert "NUMA nodes 1 are not shown" in said(reading)
    assert reading.value.memory_mib is None      # they may be kept from whoever made it as well


def test_a_restricted_tree_of_version_1_calls_nothing_off_line() -> None:
    old = machine(package(0, pu(1), cpus=0x2, complete=0x3), package(1, pu(3), cpus=0x8, complete=0xc), cpus=0xa,
                  complete=0xf, cgroup="/allocation_1", version="1").replace(
        'allowed_cpuset="0xa"', 'online_cpuset="0xa" allowed_cpuset="0xa"').replace(' version="1"', "")
    reading = xml(old)
    assert reading.value.cpu.offline == ()
    assert reading.value.limited


def test_distances_stand_in_the_order_of_their_heading() -> None:
    matrix = """Relative latency matrix (name NUMALatency kind 5) between 2 NUMANodes (depth -3) by {} indexes:
 index     1     0
     1    10    21
     0    22    11
"""
    for by in ("logical", "physical"):
        reading = text(TEXT + matrix.format(by))
        assert [node.distances for node in reading.value.cpu.numa] == [(11, 22), (21, 10)]

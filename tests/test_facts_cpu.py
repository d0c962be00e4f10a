"""CPU facts in the shapes in which people have them; joins that agree and that do not."""

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
import strategies
from strategies import Machine, Thread

from hpcadmin.documents import documents
from hpcadmin.errors import ParseError
from hpcadmin.facts import (
    Document,
    Part,
    Reading,
    _cpu,
    _cpu_order,
    cpu_topology,
    cpuinfo,
    hostif,
    lscpu,
    merge,
    numactl,
    slurmd,
    sysfs_tree,
)
from hpcadmin.intake import Taken
from hpcadmin.model import Core, Cpu, Node, NumaNode
from hpcadmin.reading import read_one

OLD = """Architecture:          x86_64
CPU op-mode(s):        32-bit, 64-bit
CPU(s):                16
On-line CPU(s) list:   0-15
Thread(s) per core:    2
Core(s) per socket:    4
CPU socket(s):         2
NUMA node(s):          2
Vendor ID:             GenuineIntel
CPU MHz:               2400,000
NUMA node0 CPU(s):     0,2,4,6,8,10,12,14
NUMA node1 CPU(s):     1,3,5,7,9,11,13,15
"""
GERMAN = """Architektur:                         x86_64
CPU(s):                              16
Liste der Online-CPU(s):             0-15
Thread(s) pro Kern:                  2
Kern(e) pro Socket:                  4
Sockel:                              2
NUMA-Knoten:                         2
BogoMIPS:                            5.800,00
NUMA-Knoten0 CPU(s):                 0,2,4,6,8,10,12,14
NUMA-Knoten1 CPU(s):                 1,3,5,7,9,11,13,15
"""
CHINESE = """架构\uff1a                              x86_64
CPU:                                16
在线 CPU 列表\uff1a                     0-15
每个核的线程数\uff1a                    2
每个座的核数\uff1a                      4
座\uff1a                                2
NUMA 节点\uff1a                         2
NUMA 节点0 CPU\uff1a                    0,2,4,6,8,10,12,14
NUMA 节点1 CPU\uff1a                    1,3,5,7,9,11,13,15
"""


def readings(reader: Any, text: str, name: str = "file") -> list[Reading]:
    return [reading for document in documents(name, text.encode()) if document.form in reader.FORMS
            for reading in reader.read(document)]


def read(reader: Any, text: str) -> Reading:
    (reading,) = readings(reader, text)
    return reading


def said(reading: Reading) -> str:
    return "\n".join([*(finding.what for finding in reading.findings), *reading.missing, reading.refused])


def counts(reading: Reading) -> tuple[Any, ...]:
    return tuple(reading.known[key] for key in ("sockets", "cores_per_socket", "threads_per_core"))


# --- lscpu ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    OLD, GERMAN, CHINESE, OLD.replace("CPU socket(s)", "Socket(s)"), "".join(f"> {line}\n" for line in OLD.split("\n")),
    f"[root@node01 ~]# lscpu\n{OLD}[root@node01 ~]# ", "".join(f"     {line}\n" for line in OLD.split("\n")),
    OLD.replace("8,10,", "8,\n10,"), OLD.replace("2400,000", "2400,000   // slow?")])
def test_lscpu_shapes(text: str) -> None:
    reading = read(lscpu, text)
    assert counts(reading) == (2, 4, 2)
    assert reading.known["numa_nodes"] == {"0": "0,2,4,6,8,10,12,14", "1": "1,3,5,7,9,11,13,15"}
    assert (reading.known["cpus"], reading.known["online"]) == (16, "0-15")
    assert not reading.missing


def test_two_nodes_in_one_text() -> None:
    first, second = readings(lscpu, f"node01:\n{OLD}\nnode02:\n{OLD.replace('2400,000', '1')}")
    assert (first.first, first.last, second.first) == (2, 13, 16)


@pytest.mark.parametrize(("cut", "missing"), [
    ("\n".join(OLD.split("\n")[:11]), "counts 2 NUMA nodes and lists 1"), (OLD[:-8], "NUMA node 1 is cut off"),
    ("\n".join(OLD.split("\n")[:5]), "cores per socket, sockets"), ("\n".join(OLD.split("\n")[5:]), "number of CPUs"),
    ("NUMA node0 CPU(s):     0-31\nNUMA node1 CPU(s):   32-63\n", "sockets")])
def test_cut_lscpu_is_incomplete(cut: str, missing: str) -> None:
    assert missing in said(read(lscpu, cut))


def test_other_tools_with_such_labels_are_not_lscpu() -> None:
    virsh = ("CPU model: x86_64\nCPU(s): 64\nCPU socket(s): 1\nCore(s) per socket: 16\nThread(s) per core: 2\n"
             "NUMA cell(s): 2\nMemory size: 263855144 KiB\n")
    for text in (virsh, "Architecture: x86-64\nKernel: Linux\n", "CPU(s): many\n", "", '{"other": "lscpu"}'):
        assert not readings(lscpu, text)


def test_hybrid_and_clustered_cores_are_not_one_number() -> None:
    hybrid = read(lscpu, "CPU(s): 32\nOn-line CPU(s) list: 0-31\nThread(s) per core: 2\nCore(s) per socket: 24\n"
                         "Socket(s): 1\nNUMA node(s): 1\nNUMA node0 CPU(s): 0-31\n")
    assert counts(hybrid) == (1, None, None)
    assert "48, but 32 CPUs are online" in said(hybrid)
    clusters = read(lscpu, "CPU(s): 4\nOn-line CPU(s) list: 0-3\nThread(s) per core: 1\nCore(s) per cluster: 4\n"
                           "Socket(s): -\nCluster(s): 1\nVulnerability L1tf: Not affected\n")
    assert counts(clusters) == (None, None, 1)
    assert "sockets are unknown" in said(clusters)


def test_books_and_drawers_are_the_machines_unless_they_add_up() -> None:
    text = ("CPU(s): {0}\nOn-line CPU(s) list: 0-{1}\nThread(s) per core: 1\nCore(s) per socket: 2\n"
            "Socket(s) per book: 1\nBook(s) per drawer: 1\nDrawer(s): 2\nNUMA node(s): 1\nNUMA node0 CPU(s): 0-{1}\n")
    assert counts(read(lscpu, text.format(4, 3))) == (2, 2, 1)
    part = read(lscpu, text.format(3, 2))
    assert counts(part) == (None, None, 1)
    assert "4 cores) is the machine's, this partition has 3 CPUs" in said(part)


def test_memory_only_nodes_are_not_sockets() -> None:
    text = ("CPU(s): 144\nOn-line CPU(s) list: 0-143\nThread(s) per core: 1\nCore(s) per socket: 72\nSocket(s): 2\n"
            "NUMA node(s): 4\nNUMA node0 CPU(s): 0-71\nNUMA node1 CPU(s): 72-143\nNUMA node2 CPU(s):\n"
            "NUMA node3 CPU(s):\n")
    reading = read(lscpu, text)
    assert counts(reading) == (2, 72, 1)
    assert reading.known["numa_cpuless"] == [2, 3]
    assert not reading.missing


def test_lscpu_e_with_decimal_commas_and_an_offline_cpu() -> None:
    reading = read(lscpu, "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ\n"
                          "  0    0      0    0 0:0:0:0          yes 4700,0000 400,0000\n"
                          "  1    0      0    1 1:1:1:0          yes 4700,0000 400,0000\n"
                          "  2    -      -    - -                 no         -        -\n")
    assert counts(reading) == (1, 2, 1)
    assert (reading.known["online"], reading.known["offline"]) == ("0-1", "2")


def test_core_ids_that_repeat_name_no_cores() -> None:
    table = "# CPU,Core,Socket,Node,,L1d,L1i,L2\n0,0,0,,,0,0,0\n1,1,0,,,1,1,1\n2,0,0,,,2,2,2\n3,1,0,,,3,3,3\n"
    reading = read(lscpu, table)
    assert "repeat" in said(reading)
    assert reading.value.topology is None


def test_two_tables_of_one_node_put_the_same_cpus_into_a_socket() -> None:
    heading = "\n# CPU,Core,Socket,Node\n"
    counted = "0,0,0,0\n1,1,0,0\n2,2,1,1\n3,3,1,1\n"
    kernel, other = counted.replace(",1,1\n", ",36,1\n"), "0,0,0,0\n1,1,1,0\n2,2,1,1\n3,3,1,1\n"
    text = "CPU(s): 4\nOn-line CPU(s) list: 0-3\nThread(s) per core: 1\nCore(s) per socket: 2\nSocket(s): 2\n"
    for second in (kernel, kernel[:16]):
        found = read(lscpu, text + heading + counted + heading + second)
        assert "parsable_conflict" not in found.known
        assert not [each for each in found.findings if "contradict" in each.what]
    found = read(lscpu, text + heading + counted + heading + other)
    assert found.known["parsable_conflict"] == {"sockets": [{"0": "0-1", "1": "2-3"}, {"0": "0", "1": "1-3"}]}
    assert any("contradict" in each.what for each in found.findings)


def test_cut_json_is_read_as_far_as_it_goes() -> None:
    whole = json.dumps({"lscpu": [{"field": "CPU(s):", "data": "64"}, {"field": "Socket(s):", "data": "2"},
                                  {"field": "Thread(s) per core:", "data": "2"}]})
    reading = read(lscpu, whole[:-12])
    assert "the JSON is cut off" in reading.missing
    assert counts(reading)[0] == 2


# --- numactl --------------------------------------------------------------------------------------------------------

NUMACTL = """available: 3 nodes (0-2)
node 0 cpus: 0 1 2 3
node 0 size: 1000 MB
node 0 free: 10 MB
node 1 cpus: 4 5 6 7
node 1 size: 1000 MB
node 1 free: 10 MB
node 2 cpus:
node 2 size: 9000 MB
node 2 free: 9000 MB
node distances:
node   0   1   2
  0:  10  20  80
  1:  20  10  80
  2:  80  80  10
"""


def test_numactl() -> None:
    reading = read(numactl, f"$ numactl -H\n{NUMACTL}$")
    assert reading.known["numa_nodes"] == {"0": "0-3", "1": "4-7", "2": ""}
    assert reading.known["memory_mb"] == {"0": 1000, "1": 1000, "2": 9000}
    assert (reading.known["cpus"], reading.known["sockets"]) == (8, None)
    assert "NUMA nodes 2 have no CPUs" in said(reading)
    assert not reading.missing
    wrapped = read(numactl, NUMACTL.replace("4 5 6", "4 5\n6"))
    assert wrapped.known["numa_nodes"] == reading.known["numa_nodes"]


@pytest.mark.parametrize(("text", "what"), [
    (NUMACTL.replace("node 1 cpus: 4 5 6 7", "node 1 cpus: 3 4 5 6"), "contradictory: CPU 3 is in nodes 0 and 1"),
    (NUMACTL.replace("  0:  10  20  80", "  0:  10  21  80"), "not symmetric"),
    (NUMACTL.replace("  2:  80  80  10\n", ""), "distances of nodes 2 are missing"),
    (NUMACTL.replace("available: 3 nodes (0-2)\n", ""), "there may be more nodes"),
    (NUMACTL[NUMACTL.index("node distances"):], "distances only"),
    (f"physcpubind: 0 1\n{NUMACTL}", "captured inside a job or container: only CPUs 0-1 of 0-7 are allowed"),
    (NUMACTL.replace("available: 3 nodes (0-2)", "available: 4 nodes (0-2)"), "4 nodes are counted and 3 named")])
def test_numactl_says_what_is_wrong(text: str, what: str) -> None:
    reading = read(numactl, text)
    assert what in said(reading)
    assert _cpu.from_numactl(reading.value) == Cpu() or not reading.missing


def test_an_impossible_cpu_is_an_error() -> None:
    with pytest.raises(ParseError) as caught:
        read(numactl, "available: 1 nodes (0)\nnode 0 cpus: 0 99999\n")
    assert caught.value.where == "file:1"


# --- slurmd -C, cpuinfo, lists of interfaces ------------------------------------------------------------------------

SLURMD = "NodeName=n1 CPUs=224 Boards=1 SocketsPerBoard=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2063837"


def test_slurmd() -> None:
    reading = read(slurmd, f"[root@n1 ~]# slurmd -C\n{SLURMD} Gres=gpu:h100:8\n"
                           "Found gpu:nvidia_h100:8 with Autodetect=nvml (Substring of gpu name may be used instead)\n"
                           "UpTime=0-01:02:03\n")
    assert counts(reading) == (2, 56, 2)
    assert (reading.known["node"], reading.known["real_memory"], reading.known["gres"]) == ("n1", 2063837, "gpu:h100:8")
    assert "gpu:nvidia_h100:8 with Autodetect=nvml" in said(reading)
    wrapped = read(slurmd, SLURMD.replace(" ThreadsPerCore", "\nThreadsPerCore"))
    assert counts(wrapped) == (2, 56, 2)
    assert wrapped.known["real_memory"] == 2063837
    first, second = readings(slurmd, f"{SLURMD}\nUpTime=1\n{SLURMD.replace('n1', 'n2')}\n")
    assert (first.known["node"], second.known["node"]) == ("n1", "n2")


def test_slurmd_with_uneven_sockets() -> None:
    reading = read(slurmd, SLURMD.replace("224", "222"))
    assert counts(reading) == (2, None, 2)
    assert "224, not CPUs=222" in said(reading)


@pytest.mark.parametrize("text", [
    f"{SLURMD} State=UNKNOWN\n", f"ClusterName=lab\n{SLURMD}\n", f"#{SLURMD}\n", "NodeName=DEFAULT CPUs=4\n"])
def test_a_slurm_conf_is_not_slurmds(text: str) -> None:
    assert not readings(slurmd, text)


def test_cpuinfo_cut_off_or_without_topology() -> None:
    whole = strategies.cpuinfo(_two_sockets())
    assert counts(read(cpuinfo, whole)) == (2, 2, 2)
    cut = read(cpuinfo, whole[: len(whole) * 2 // 3])
    assert cut.missing
    assert counts(cut) == (None, None, None)
    arm = read(cpuinfo, "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp\nCPU implementer\t: 0x41\n\n"
                        "processor\t: 1\nBogoMIPS\t: 50.00\n")
    assert arm.known["cpus"] == 2
    assert "not told here" in said(arm)


def test_interfaces_with_numa_lists() -> None:
    line = 'if:eno{0} pciaddr:c{0}:00.0 link:UP mtu:1500 numanode:{1} cpulist:{2} pciinfo:"Ethernet controller: X"'
    text = "\n".join([line.format(1, 0, "0-3"), line.format(2, 1, "4-7"), line.format(3, 1, "4-6"),
                      line.format(4, -1, "0-7")])
    reading = read(hostif, text)
    assert [nic.get("numa") for nic in reading.known["nics"]] == [0, 1, 1, None]
    assert reading.known["numa_nodes"] == {"0": "0-3", "1": "4-7"}
    assert "contradictory: NUMA node 1 has CPUs 4-7 by one interface, 4-6 by eno3" in said(reading)
    assert "names no NUMA node" in said(reading)
    assert reading.missing


# --- /sys -----------------------------------------------------------------------------------------------------------


def _two_sockets() -> Machine:
    """2 packages of 2 cores of 2 threads; a NUMA node each, and one of memory alone."""
    return Machine(tuple(Thread(core + 4 * thread, core // 2, 0, core // 2, core // 2, core % 2)
                         for thread in range(2) for core in range(4)), memory_kb=((0, 2048), (1, 2048), (8, 4096)))


def tree(files: dict[str, str]) -> Reading:
    (reading,) = sysfs_tree.read(Document("dump", "tree", tree=files))
    return reading


def test_what_slurmd_would_make_of_uneven_sockets() -> None:
    machine = dataclasses.replace(_two_sockets(), offline=frozenset({3, 7}))
    reading = tree(strategies.sysfs(machine))
    assert reading.known["cores_per_socket"] == [2, 1]
    assert "SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=2, which multiplies to 4 CPUs" in said(reading)


def test_a_dump_of_sys() -> None:
    reading = tree(strategies.sysfs(_two_sockets()))
    assert counts(reading) == (2, 2, 2)
    assert reading.known["numa_cores"] == {"0": "0-1", "1": "2-3"}
    assert reading.known["numa_nodes"] == {"0": "0-1,4-5", "1": "2-3,6-7", "8": ""}
    assert reading.known["core_cpus"] == ["0,4", "1,5", "2,6", "3,7"]
    assert reading.known["gpus"] is None
    assert "NUMA nodes 8 have no CPUs" in said(reading)


@pytest.mark.parametrize(("path", "text", "what"), [
    ("cpu/cpu1/topology/package_cpus", "0000000f", "topology masks: the packages do not agree (CPUs 1 name 0-3"),
    ("cpu/cpu1/topology/core_cpus", "00000006", "topology masks: the cores do not agree (CPUs 1 name 1-2"),
    ("cpu/cpu0/cache/index3/shared_cpu_map", "000000ff",
     "shared_cpu_map contradicts shared_cpu_list (cpu0 L3 cache: 0-7 and 0-1,4-5)"),
    ("cpu/cpu2/topology/physical_package_id", "0", "topology masks: package 0 is CPUs 0-2,4-5"),
    ("cpu/cpu2/topology/physical_package_id", "-1", "names no package"),
    ("node/node1/cpulist", "2-3", "cpumap contradicts cpulist (node1: 2-3,6-7 and 2-3)"),
    ("node/has_memory", "0-2,8", "NUMA nodes 2 are off line")])
def test_files_of_sys_that_contradict(path: str, text: str, what: str) -> None:
    files = strategies.sysfs(_two_sockets())
    files[f"sys/devices/system/{path}"] = text
    reading = tree(files)
    assert what in said(reading)
    assert bool(reading.refused) == ("topology masks" in what)
    assert not reading.refused or reading.known["cores_per_socket"] is None


def test_masks_that_only_split_a_package_leave_sockets_open() -> None:
    files = strategies.sysfs(_two_sockets())
    for cpu, own in ((0, "00000011"), (4, "00000011"), (1, "00000022"), (5, "00000022")):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/package_cpus"] = own
        del files[f"sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list"]
    reading = tree(files)
    assert counts(reading) == (None, None, 2)
    assert "package 0: its masks name parts of it only" in said(reading)
    assert not reading.refused


def test_threads_with_core_ids_of_their_own_are_cores() -> None:
    files = strategies.sysfs(_two_sockets())
    for cpu in range(8):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = str(cpu)
    reading = tree(files)
    assert counts(reading) == (2, 4, 1)
    assert "compute units" in said(reading)


@pytest.mark.parametrize("extra", [
    {"proc/self/cgroup": "3:cpuset:/slurm/job_7\n", "sys/fs/cgroup/cpuset/slurm/job_7/cpuset.cpus": "0-3\n"},
    {"proc/self/cgroup": "0::/system.slice/job\n", "sys/fs/cgroup/system.slice/job/cpuset.cpus.effective": "0-3\n"},
    {"proc/self/cpuset": "/uid_7/job_9\n", "proc/mounts": "none /cgroup/unified cgroup2 rw 0 0\n",
     "cgroup/unified/uid_7/job_9/cpuset.cpus.effective": "0-3\n"},
    {"proc/self/status": "Name:\tsh\nCpus_allowed_list:\t0-3\n"}])
def test_a_dump_made_inside_a_job_is_refused(extra: dict[str, str]) -> None:
    reading = tree({**strategies.sysfs(_two_sockets()), **extra})
    assert reading.refused == "captured inside a job or container: only CPUs 0-3 of 0-7 are allowed"


def test_pci_devices_of_a_dump() -> None:
    place = "sys/devices/pci0000:10/0000:10:01.0"
    files = strategies.sysfs(_two_sockets()) | {
        f"{place}/class": "0x060400\n", f"{place}/vendor": "0x8086\n", f"{place}/device": "0x347a\n",
        **{f"{place}/0000:11:00.0/{name}": text for name, text in (
            ("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2330"), ("numa_node", "1"),
            ("local_cpulist", "2-3,6-7"))},
        **{f"{place}/0000:12:00.0/{name}": text for name, text in (
            ("class", "0x020700"), ("vendor", "0x15b3"), ("device", "0x1021"), ("numa_node", "1"),
            ("local_cpulist", "0-7"), ("infiniband/mlx5_0/node_guid", "1"), ("net/ib0/mtu", "2044"))},
        "proc/driver/nvidia/gpus/0000:11:00.0/numa_status": "Node:     8\nStatus:   online\n"}
    reading = tree(files)
    (gpu,), (nic,) = reading.known["gpus"], reading.known["nics"]
    assert (gpu["pci"], gpu["numa"], gpu["local_cores"], gpu["memory_numa_node"]) == ("0000:11:00.0", 1, "2-3", 8)
    assert (nic["osdevs"], nic["numa"], nic["rdma_or_fabric"]) == (["ib0", "mlx5_0"], [0, 1], True)
    assert reading.known["nics_numa_node_file"] == {"0000:12:00.0": 1}
    assert "0000:12:00.0: numa_node 1 (CPUs 2-3,6-7) contradicts its local_cpulist 0-7" in said(reading)
    assert "NUMA nodes 8 are GPU memory" in said(reading)
    assert [(device.address, device.parent, device.root) for device in reading.value.pci] == [
        ("0000:10:01.0", "", "0000:10"), ("0000:11:00.0", "0000:10:01.0", "0000:10"),
        ("0000:12:00.0", "0000:10:01.0", "0000:10")]


def test_sys_as_grep_prints_it() -> None:
    files = strategies.sysfs(_two_sockets())
    whole = "\n".join(f"/{path}:{line}" for path, text in files.items() for line in text.strip().split("\n")
                      if path.startswith("sys/"))
    reading = read(sysfs_tree, f"$ grep -r . /sys/devices/system\n{whole}\n")
    assert counts(reading) == (2, 2, 2)
    assert not reading.missing
    part = read(sysfs_tree, "/sys/bus/pci/devices/0000:19:00.0/numa_node:0\n"
                            "/sys/bus/pci/devices/10000:9b:00.0/numa_node:1\n")
    assert part.known["pci_numa"] == {"0000:19:00.0": 0, "10000:9b:00.0": 1}
    assert part.known["gpus"] is None
    assert part.missing


# --- several sources ------------------------------------------------------------------------------------------------

CORES = tuple(Core(core // 2, core // 2, (core, core + 4)) for core in range(4))
NODES = (NumaNode(0, (0, 1, 4, 5)), NumaNode(1, (2, 3, 6, 7)))
WHOLE = Cpu(sockets=2, cores_per_socket=2, threads_per_core=2, cores=CORES, numa=NODES)


def joined(**sources: Cpu) -> tuple[Cpu, list[str]]:
    problems: list[str] = []
    return _cpu.join(sources, problems), problems


def test_counts_that_differ_are_unknown_and_named() -> None:
    cpu, problems = joined(lscpu=Cpu(sockets=2, cores_per_socket=2, threads_per_core=2, model="X"),
                           numbers=Cpu(sockets=2, cores_per_socket=4, threads_per_core=2, model="X"))
    assert (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core) == (2, None, 2)
    assert problems == ["CPU: numbers counts 2x4x2 (sockets x cores x threads), lscpu 2x2x2"]


def test_a_whole_map_beats_a_count() -> None:
    cpu, problems = joined(lscpu=Cpu(sockets=1, cores_per_socket=4, threads_per_core=2, model="X"), tree=WHOLE)
    assert (cpu.sockets, cpu.cores_per_socket, cpu.model, cpu.cores) == (2, 2, "X", CORES)
    assert len(problems) == 1


def test_uneven_sockets_are_not_made_even_by_a_count() -> None:
    uneven = Cpu(sockets=2, cores=CORES[:3], numa=NODES)
    cpu, problems = joined(tree=uneven, slurmd=Cpu(sockets=2, cores_per_socket=1, threads_per_core=2))
    assert cpu.cores_per_socket is None
    assert "slurmd" in problems[0]


def test_two_maps_that_differ_are_no_map() -> None:
    other = Cpu(sockets=2, cores_per_socket=2, threads_per_core=2, numa=NODES,
                cores=tuple(Core(core // 2, core // 2, (2 * core, 2 * core + 1)) for core in range(4)))
    cpu, problems = joined(tree=WHOLE, hwloc=other)
    assert cpu.cores == ()
    assert problems == ["CPU: core 0 is CPUs 0-1 of socket 0 by hwloc, CPUs 0,4 of socket 0 by tree"]


def test_virtual_sockets_of_slurmd_contradict_nothing() -> None:
    nodes = tuple(NumaNode(number, (number,)) for number in range(4))
    cpu, problems = joined(slurmd=Cpu(sockets=4, cores_per_socket=1, threads_per_core=1),
                           lscpu=Cpu(sockets=2, cores_per_socket=2, threads_per_core=1, numa=nodes, model="X"))
    assert (cpu.sockets, cpu.cores_per_socket, problems) == (2, 2, [])


def test_nodes_of_several_sources() -> None:
    memory = (NumaNode(0, (0, 1, 4, 5), 100, (10, 20, 80)), NumaNode(1, (2, 3, 6, 7), 200, (20, 10, 80)),
              NumaNode(8, (), 900, (80, 80, 10)))
    cpu, problems = joined(tree=WHOLE, numactl=Cpu(numa=memory))
    assert cpu.numa == memory
    assert problems == []
    cpu, problems = joined(tree=WHOLE, numactl=Cpu(numa=(NumaNode(0, (0, 1)), NODES[1])))
    assert problems == ["NUMA: node 0 has CPUs 0-1 by numactl, 0-1,4-5 by tree"]
    assert cpu.numa == NODES


def test_limits() -> None:
    assert _cpu.limited((0, 1), (0, 1)) == _cpu.limited((), (0, 1)) == _cpu.limited(range(8), (0, 1)) == ""
    assert "only CPUs 0 of 0-1 are allowed" in _cpu.limited((0, 9), (0, 1))


def test_lists_longer_than_any_machines_are_refused() -> None:
    lines = [f"cpu {cpu} 0 0 0 {cpu} {cpu}-65535" for cpu in range(100)]
    with pytest.raises(ParseError):
        cpu_topology.parse("\n".join([*lines, "end=cpu"]))


def test_a_dump_of_a_kernel_without_numa_lacks_nothing() -> None:
    files = {"sys/devices/system/cpu/online": "0-1\n", "sys/devices/system/cpu/present": "0-1\n"}
    for cpu in (0, 1):
        base = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{base}/physical_package_id": "0\n", f"{base}/core_id": f"{cpu}\n",
                  f"{base}/core_siblings_list": "0-1\n", f"{base}/thread_siblings_list": f"{cpu}\n"}
    (reading,) = sysfs_tree.read(Document("x", "tree", tree=files))
    assert reading.missing == ()
    assert reading.known["numa_nodes"] is None
    assert "no NUMA nodes" in "\n".join(finding.what for finding in reading.findings)
    lines = tuple(f"/{path}:{text.strip()}" for path, text in files.items())
    (excerpt,) = sysfs_tree.read(Document("x", "text", lines))
    assert "no NUMA nodes in the dump" in excerpt.missing


def test_a_view_of_a_part_is_no_source_of_the_nodes_cpus() -> None:
    """`lstopo` bound or restricted to a part of the node looks whole; lscpu beside it shows more."""
    half = Cpu(sockets=1, cores_per_socket=2, threads_per_core=2, cores=CORES[:2], numa=NODES[:1])
    counted = Cpu(sockets=2, cores_per_socket=2, threads_per_core=2, numa=NODES, model="X")
    node = merge("node", [Part("hwloc XML", Node("", cpu=half, memory_mib=100)), Part("lscpu", Node("", cpu=counted)),
                          Part("slurmd -C", Node("", cpu=Cpu(sockets=2, cores_per_socket=2, threads_per_core=2),
                                                 memory_mib=300))])
    assert (node.cpu.sockets, node.cpu.cores_per_socket, node.cpu.cores, node.memory_mib) == (2, 2, (), 300)
    assert node.problems == ("CPU: hwloc XML shows CPUs 0-1,4-5, lscpu has 0-7: hwloc XML is of a part of the node and "
                             "is not used",)
    siblings_off = replace(half, offline=(2, 3, 6, 7))
    assert _cpu.narrow({"hwloc XML": siblings_off, "lscpu": counted}, []) == frozenset()


def test_the_names_of_files_do_not_choose_whom_to_believe() -> None:
    other = tuple(NumaNode(node.id, tuple(reversed(NODES))[node.id].cpus) for node in NODES)
    parts = [Part("lscpu", Node("", cpu=Cpu(sockets=2, cores_per_socket=2, threads_per_core=2, numa=other, model="X"))),
             Part("/sys", Node("", cpu=WHOLE))]
    assert merge("node", parts).cpu.numa == merge("node", parts[::-1]).cpu.numa == NODES


def test_two_outputs_of_one_tool_are_two_sources() -> None:
    lines = OLD.split("\n")
    changed = [line.replace("4", "8") if line.startswith("Core(s)") else line for line in lines]
    changed = [line.replace("2", "1") if line.startswith("Thread(s)") else line for line in changed]
    node = read_one(Taken("n", [Document("a/new.txt", "text", tuple(lines)),
                                Document("a/old.txt", "text", tuple(changed))])).node
    assert node is not None
    assert (node.cpu.sockets, node.cpu.cores_per_socket, node.cpu.threads_per_core) == (2, None, None)
    assert any("lscpu in old.txt:1 counts" in problem and "lscpu in new.txt:1" in problem for problem in node.problems)


def test_lists_of_what_might_be_plugged_in_are_no_nodes() -> None:
    value = lscpu.Lscpu(cpus=2, online=(0, 1), numa={0: tuple(range(16))})
    assert _cpu.from_lscpu(value).numa == ()


def test_the_longer_distances_are_those_of_the_whole_node() -> None:
    all_nodes = (NumaNode(0, (0, 1), None, (10, 80)), NumaNode(1, (), 100, (80, 10)))
    cpu, problems = joined(hwloc=Cpu(numa=(NumaNode(0, (0, 1), 50, (10,)),)), numactl=Cpu(numa=all_nodes))
    assert [node.distances for node in cpu.numa] == [(10, 80), (80, 10)]
    assert problems == []


COMPRESSED = """available: 2 nodes (0-1)
node 0 cpus: 0-1,4-5 (4)
node 0 size: 580088 MB
node 1 cpus: 2-3,6-7 (4)
node 1 size: 580505 MB
node distances:
node   0   1
  0:  10  32
  1:  32  10
"""


def test_compressed_lists_of_numactl() -> None:
    (reading,) = numactl.read(Document("x", "text", tuple(COMPRESSED.split("\n"))))
    assert reading.known["numa_nodes"] == {"0": "0-1,4-5", "1": "2-3,6-7"}
    assert (reading.missing, reading.refused, reading.findings) == ((), "", ())
    (wrong,) = numactl.read(Document("x", "text", tuple(COMPRESSED.replace("6-7 (4)", "6-7 (5)").split("\n"))))
    assert "said to have 5 CPUs and lists 4" in wrong.findings[0].what
    assert not wrong.value.complete


LXCFS = """Architecture:          x86_64
CPU(s):                8
On-line CPU(s) list:   2,6
Off-line CPU(s) list:  0,1,3-5,7
Thread(s) per core:    {}
Core(s) per socket:    2
Socket(s):             2
NUMA node(s):          2
NUMA node0 CPU(s):     0-1,4-5
NUMA node1 CPU(s):     2-3,6-7
"""


@pytest.mark.parametrize("threads", ["0", "1", "2"])
def test_a_containers_made_up_list_of_cpus_is_refused(threads: str) -> None:
    (reading,) = lscpu.read(Document("x", "text", tuple(LXCFS.format(threads).split("\n"))))
    assert "container" in reading.refused
    assert reading.known["threads_per_core"] != 0
    (offline,) = lscpu.read(Document("x", "text", tuple(
        LXCFS.format("1").replace("0-1,4-5", "").replace("2-3,6-7", "2,6").split("\n"))))
    assert offline.refused == ""


def test_remarks_behind_values_are_not_the_values() -> None:
    lines = [f"{line}   # what this is: 7" if line else line for line in OLD.split("\n")]
    (reading,) = lscpu.read(Document("x", "text", tuple(lines)))
    (plain,) = lscpu.read(Document("x", "text", tuple(OLD.split("\n"))))
    assert reading.known == plain.known


@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("да", "нет"), ("ja", "nein"), ("oui", "non")])
def test_tables_in_other_languages(yes: str, no: str) -> None:
    table = (f"CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE MAXMHZ\n0 0 0 0 0:0:0:0 {yes} 3600.0\n"
             f"1 0 0 1 1:1:1:0 {yes} 3600.0\n2 - - - - {no} -\n")
    (reading,) = lscpu.read(Document("x", "text", tuple(table.split("\n"))))
    assert (reading.known["online"], reading.known["offline"], reading.known["cores_per_socket"]) == ("0-1", "2", 2)


def test_groups_of_nodes_by_their_distances() -> None:
    """Nodes 0 and 2 are near each other, so that hwloc numbers their cores before those of node 1."""
    far = [[10, 20, 16, 20], [20, 10, 20, 16], [16, 20, 10, 20], [20, 16, 20, 10]]
    sets = [frozenset({number}) for number in range(4)]
    groups = _cpu_order.near(sets, far)
    assert groups == [{0, 2}, {1, 3}]
    assert [min(core) for core in _cpu_order.ordered(sets, groups)] == [0, 2, 1, 3]
    assert _cpu_order.near(sets, [[10, 20, 20, 20], [20, 10, 20, 20], [20, 20, 10, 20], [20, 20, 20, 10]]) == []
    assert _cpu_order.near(sets, [[10, 20, 16, 20], [20, 10, 20, 16], [17, 20, 10, 20], [20, 16, 20, 10]]) == []
    expander = [frozenset({0}), frozenset({1}), frozenset({2}), frozenset()]
    assert _cpu_order.near(expander, [[10, 21, 21, 14], [21, 10, 21, 24], [21, 21, 10, 14], [14, 24, 14, 10]]) == [
        {0, 2}, {0, 2}]


@pytest.mark.parametrize("lines", [
    "NodeName=n1 CPUs=96 Boards=1 SocketsPerBoard=8 CoresPerSocket=12 ThreadsPerCore=1 RealMemory=515000 "
    "Parameters=numa_node_as_socket",
    "NodeName=n1 slurmd: Considering each NUMA node as a socket\n"
    "CPUs=96 Boards=1 SocketsPerBoard=8 CoresPerSocket=12 ThreadsPerCore=1 RealMemory=515000",
])
def test_sockets_that_are_numa_nodes_are_no_packages(lines: str) -> None:
    (reading,) = slurmd.read(Document("x", "text", tuple(lines.split("\n"))))
    assert reading.known["sockets"] == 8
    assert "not packages" in said(reading)
    assert _cpu.from_slurmd(reading.value) == Cpu(threads_per_core=1)


def test_counts_of_slurmd_that_do_not_multiply_are_no_facts() -> None:
    line = "NodeName=n1 CPUs=17 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=100"
    (reading,) = slurmd.read(Document("x", "text", (line,)))
    assert _cpu.from_slurmd(reading.value).cores_per_socket is None


def test_memory_of_gpus_is_no_contradiction() -> None:
    nodes = (NumaNode(0, (0, 1), 1000), NumaNode(1, (), 500))
    parts = [Part("slurmd -C", Node("", memory_mib=1490)), Part("hwloc XML", Node("", memory_mib=1000)),
             Part("numactl -H", Node("", cpu=Cpu(numa=nodes)))]
    node = merge("node", parts)
    assert (node.memory_mib, node.problems) == (1000, ())
    other = merge("node", [*parts[:2], Part("numactl -H", Node("", cpu=Cpu(numa=nodes[:1])))])
    assert other.problems == ("memory (MiB): 1490 in slurmd -C, 1000 in hwloc XML",)

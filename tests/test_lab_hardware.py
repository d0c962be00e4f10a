"""Simulated hardware: profiles, the trees built from them, and the stand-ins run straight from a tree."""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET  # only our own stand-ins' output is parsed
from pathlib import Path

import pytest

from hpcadmin.check import Context, Output
from hpcadmin.errors import LabError
from hpcadmin.lab import hardware
from hpcadmin.lab.hardware_pci import pci_nodes, relation
from hpcadmin.lab.hardware_profile import id_list, id_mask
from hpcadmin.registry import load_checks

pytestmark = [pytest.mark.deep, pytest.mark.skipif(not shutil.which("cc") or not shutil.which("mpicc"), reason=
                                                   "the stand-ins need cc and mpicc (apt install gcc libopenmpi-dev)")]
NAMES = ["2xT4", "4xA100-pcie", "7xH100", "8xH100", "8xH100-narrow"]


def ids(text):
    found = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def read(path):
    return path.read_text().rstrip("\n")


def parsed(text):
    return ET.fromstring(text)  # noqa: S314


@pytest.fixture(scope="session")
def trees(tmp_path_factory):
    base = tmp_path_factory.mktemp("sim")
    for name in NAMES:
        hardware.build(hardware.load_profile(name), base / name, "node01")
    return base


class Tool:
    """Runs a stand-in of a tree with faults of its own."""

    def __init__(self, tree, tmp_path):
        self.tree = tree
        self.faults = tmp_path / "faults"

    def __call__(self, *argv, faults="", env=None, path=None):
        self.faults.write_text(faults)
        variables = {"PATH": "/usr/bin:/bin:/usr/sbin", "HPCADMIN_SIM_DIR": str(self.tree),
                     "HPCADMIN_SIM_FAULTS": str(self.faults), **(env or {})}
        program = [path] if path else []
        return subprocess.run([*program, str(self.tree / "bin" / argv[0]), *argv[1:]], capture_output=True, text=True,
                              env=variables, timeout=30, check=False)


@pytest.fixture
def tool(trees, tmp_path):
    return Tool(trees / "8xH100", tmp_path)


# --- profiles

def test_the_profiles_are_known():
    assert hardware.known_profiles() == NAMES


def test_an_unknown_profile_names_the_known_ones():
    with pytest.raises(LabError, match="8xH100"):
        hardware.load_profile("9xH100")
    with pytest.raises(LabError):
        hardware.load_profile("../profiles/8xH100")


def test_an_absent_gpu_renumbers_what_is_behind_it():
    gpus = hardware.load_profile("7xH100").gpus
    assert [g.pci for g in gpus][5:] == ["0000:c3:00.0", "0000:df:00.0"]
    assert [g.index for g in gpus] == [g.minor for g in gpus] == list(range(7))


def test_minors_need_not_follow_the_bus():
    gpus = hardware.load_profile("4xA100-pcie").gpus
    assert [g.minor for g in gpus] == [2, 3, 0, 1]
    assert [g.pci for g in gpus] == sorted(g.pci for g in gpus)


def test_slurm_lines():
    node, gres = hardware.slurm_lines(hardware.load_profile("8xH100"))
    assert node == "Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 Gres=gpu:h100:8"
    lines = gres.format(node="node01").splitlines()
    assert len(lines) == 8
    assert lines[5] == ("NodeName=node01 AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia5 Cores=56-111 "
                        "Links=18,18,18,18,18,-1,18,18 Flags=nvidia_gpu_env")
    assert "File=/dev/nvidia2 Cores=0-31 Links=-1,12,0,0" in hardware.slurm_lines(
        hardware.load_profile("4xA100-pcie"))[1].splitlines()[0]


# --- trees

@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_sibling_lists_and_masks_agree(trees, name):
    cpu = hardware.load_profile(name).cpu
    base = trees / name / "sys/devices/system/cpu"
    assert ids(read(base / "online")) == list(range(cpu.count))
    for number in range(cpu.count):
        topology = base / f"cpu{number}/topology"
        siblings = ids(read(topology / "thread_siblings_list"))
        assert number in siblings
        assert len(siblings) == cpu.threads_per_core
        assert cpu.threads_per_core == 1 or siblings[1] - siblings[0] == cpu.cores
        mask = int(read(topology / "thread_siblings").replace(",", ""), 16)
        assert [i for i in range(cpu.count) if mask >> i & 1] == siblings
        package = int(read(topology / "physical_package_id"))
        assert number in ids(read(topology / "package_cpus_list")) == ids(
            read(trees / name / f"sys/devices/system/node/node{package}/cpulist"))


@pytest.mark.parametrize("name", NAMES)
def test_pci_devices_hang_together(trees, name):
    profile = hardware.load_profile(name)
    base = trees / name / "sys/bus/pci/devices"
    listed = sorted(p.name for p in base.iterdir() if not p.name.startswith("."))
    assert listed == [node.address for node in pci_nodes(profile)]
    gpus = [a for a in listed if read(base / a / "class") == "0x030200"]
    assert gpus == [g.pci for g in profile.gpus]
    for address in listed:
        device = base / address
        numa = int(read(device / "numa_node"))
        node = trees / name / f"sys/devices/system/node/node{numa}"
        assert read(device / "local_cpulist") == read(node / "cpulist")
        assert read(device / "local_cpus") == read(node / "cpumap")
        raw = (device / "config").read_bytes()
        assert f"0x{raw[1]:02x}{raw[0]:02x}" == read(device / "vendor")
        assert (device / "driver").resolve().is_dir()
        above = device.resolve().parent.name
        assert above.startswith("pci0000:") or int(read(base / above / "class"), 16) >> 8 == 0x0604


def test_links_hold_when_only_one_part_is_mounted(trees, tmp_path):
    moved = tmp_path / "pci"
    shutil.copytree(trees / "8xH100/sys/bus/pci", moved, symlinks=True)
    broken = [p for p in moved.rglob("*") if p.is_symlink() and not p.exists()]
    assert broken == []


def test_relations_come_from_the_bus():
    nodes = {n.address: n for n in pci_nodes(hardware.load_profile("8xH100"))}
    gpu, nic = nodes["0000:1b:00.0"], nodes["0000:18:00.0"]
    assert relation(gpu, nic) == "PXB"
    assert relation(gpu, nodes["0000:40:00.0"]) == "NODE"
    assert relation(gpu, nodes["0000:dc:00.0"]) == "SYS"
    assert relation(nodes["0000:07:00.0"], nodes["0000:08:00.0"]) == "PIX"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_the_device_list_can_be_made(trees, name):
    lines = read(trees / name / "dev.list").splitlines()
    for line in lines:
        assert re.fullmatch(r"c \d+ \d+ 0[0-7]{3} /dev/[a-z0-9/-]+", line), line
    assert len({tuple(line.split()[1:3]) for line in lines}) == len(lines)
    made = {line.split()[4] for line in lines}
    assert {f"/dev/nvidia{g.minor}" for g in hardware.load_profile(name).gpus} <= made


@pytest.mark.parametrize("name", NAMES)
def test_hwloc_xml_counts(trees, name):
    profile = hardware.load_profile(name)
    root = parsed((trees / name / "hwloc.xml").read_text())
    kinds = [o.get("type") for o in root.iter("object")]
    assert kinds.count("PU") == profile.cpu.count
    assert kinds.count("Core") == profile.cpu.cores
    assert kinds.count("Package") == kinds.count("NUMANode") == profile.cpu.sockets
    assert kinds.count("OSDev") == len(profile.nics)
    assert len([o for o in root.iter("object") if (o.get("pci_type") or "").startswith("0302")]) == len(profile.gpus)


@pytest.mark.skipif(not shutil.which("slurmd"), reason="slurmd is not installed")
def test_slurmd_sees_the_profile(trees):
    done = subprocess.run(["slurmd", "-C"], capture_output=True, text=True, check=False, timeout=20,
                          env={**os.environ, "HWLOC_XMLFILE": str(trees / "8xH100/hwloc.xml")})
    assert "CPUs=224 Boards=1 SocketsPerBoard=2 CoresPerSocket=56 ThreadsPerCore=2" in done.stdout


def test_a_node_is_always_the_same_and_nodes_differ(trees, tmp_path):
    profile = hardware.load_profile("4xA100-pcie")
    hardware.build(profile, tmp_path / "again", "node01")
    hardware.build(profile, tmp_path / "other", "node02")
    first, again, other = (d / "gpus.tsv" for d in (trees / "4xA100-pcie", tmp_path / "again", tmp_path / "other"))
    assert first.read_text() == again.read_text() != other.read_text()
    names = [sorted(str(p.relative_to(d)) for p in d.rglob("*")) for d in (tmp_path / "again", tmp_path / "other")]
    assert names[0] == names[1]
    with pytest.raises(LabError, match="not empty"):
        hardware.build(profile, tmp_path / "other", "node02")


def test_driver_files_name_minor_and_address(trees):
    base = trees / "4xA100-pcie/proc/driver/nvidia/gpus"
    minors = {p.name: re.search(r"Device Minor:\s+(\d+)", read(p / "information"))[1] for p in base.iterdir()}
    assert minors == {"0000:17:00.0": "2", "0000:31:00.0": "3", "0000:b1:00.0": "0", "0000:ca:00.0": "1"}


def test_lists_and_masks_as_the_kernel_prints_them():
    assert id_list((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert id_list(()) == ""
    assert id_mask((0, 33), 40) == "02,00000001"
    assert id_mask((31,), 32) == "80000000"


def test_faults_reach_sysfs_and_heal(trees, tmp_path):
    profile = hardware.load_profile("8xH100")
    hardware.build(profile, tmp_path / "n", "node02")
    device = tmp_path / "n/sys/bus/pci/devices/0000:c3:00.0"
    healthy = (device / "config").read_bytes()
    hardware.apply_faults(profile, tmp_path / "n", ["gpu 5 lost", "gpu 2 slow"])
    assert (device / "config").read_bytes() == b"\xff" * 256
    assert read(tmp_path / "n/sys/bus/pci/devices/0000:52:00.0/current_link_width") == "8"
    assert read(tmp_path / "n/sys/bus/pci/devices/0000:1b:00.0/current_link_width") == "16"
    hardware.apply_faults(profile, tmp_path / "n", [])
    assert (device / "config").read_bytes() == healthy
    for wrong in ("gpu 8 lost", "gpu 1 melted", "nonsense", "port mlx5_8 down", "port mlx5_1 melted"):
        with pytest.raises(LabError, match="no fault"):
            hardware.apply_faults(profile, tmp_path / "n", [wrong])


def test_faults_of_ports_reach_sysfs_and_heal(tmp_path):
    profile = hardware.load_profile("8xH100")
    hardware.build(profile, tmp_path / "n", "node02")
    ports = {n: tmp_path / f"n/sys/class/infiniband/mlx5_{n}/ports/1" for n in range(8)}
    faults = ["port mlx5_3 down", "port mlx5_4 slow", "port mlx5_5 errors"]
    hardware.apply_faults(profile, tmp_path / "n", faults)
    hardware.apply_faults(profile, tmp_path / "n", faults)
    assert (read(ports[3] / "state"), read(ports[3] / "phys_state")) == ("1: DOWN", "2: Polling")
    assert read(ports[4] / "rate") == "100 Gb/sec (1X NDR)" and read(ports[4] / "state") == "4: ACTIVE"
    assert [read(ports[n] / "counters/symbol_error") for n in (4, 5)] == ["0", "2000"]
    hardware.apply_faults(profile, tmp_path / "n", [])
    assert {read(port / "rate") for port in ports.values()} == {"400 Gb/sec (4X NDR)"}
    assert read(ports[3] / "state") == "4: ACTIVE" and read(ports[5] / "counters/symbol_error") == "0"


# --- nvidia-smi

@pytest.mark.parametrize("name", NAMES)
def test_the_check_passes_what_every_profile_tells(trees, tmp_path, name):
    """All three commands, as the check reads them: only lanes are not as they should be, where some lack."""
    ask = Tool(trees / name, tmp_path)
    if ask("nvidia-smi", "-L").returncode:
        return
    outputs = [Output(ask("nvidia-smi", *words).stdout, step=" ".join(words))
               for words in (("-q", "-x"), ("nvlink", "-s"), ("nvlink", "-e"))]
    found = load_checks()["nvidia_smi"].parse(outputs, Context())
    assert [m.name for m in found if m.expected not in (None, m.value)] == ["pcie_width"] * (name == "8xH100-narrow")
    assert {m.name for m in found if m.warnings} <= {"pcie_width"}
    plain = load_checks()["nvidia_smi"].read(ask("nvidia-smi", "-q").stdout, Context())
    assert plain.sound
    assert {(m.name, m.value) for m in plain.measurements} >= {
        (m.name, m.value) for m in found if not m.name.startswith("nvlink")}
    table = load_checks()["nvidia_smi"].read(ask("nvidia-smi").stdout, Context())
    assert table.sound
    assert table.measurements[0].value == found[0].value


def test_list_of_gpus(tool):
    done = tool("nvidia-smi", "-L")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.split(":")[0] for line in lines] == [f"GPU {i}" for i in range(8)]
    uuid = r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert re.fullmatch(rf"GPU 0: NVIDIA H100 80GB HBM3 \(UUID: {uuid}\)", lines[0])


def test_xml_has_what_the_drivers_xml_has(tool):
    root = parsed(tool("nvidia-smi", "-q", "-x").stdout)
    gpus = root.findall("gpu")
    assert root.findtext("attached_gpus") == "8" == str(len(gpus))
    assert gpus[5].get("id") == "00000000:C3:00.0"
    for path, value in (("product_name", "NVIDIA H100 80GB HBM3"), ("minor_number", "5"),
                        ("fb_memory_usage/total", "81559 MiB"), ("mig_mode/current_mig", "Disabled"),
                        ("pci/pci_gpu_link_info/link_widths/current_link_width", "16x"), ("fabric/state", "Completed"),
                        ("remapped_rows/remapped_row_pending", "No"), ("ecc_mode/current_ecc", "Enabled"),
                        ("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Not Active")):
        assert gpus[5].findtext(path) == value, path
    assert len({g.findtext("serial") for g in gpus}) == 8


def test_text_and_xml_tell_the_same(tool):
    text = tool("nvidia-smi", "-q").stdout
    assert text.count("\nGPU 00000000:") == 8
    assert "\n    Minor Number                          : 7\n" in text
    assert "\n            HW Thermal Slowdown           : Not Active\n" in text


@pytest.mark.parametrize(("form", "first", "row"), [
    ("csv", "index, memory.total [MiB], name", "1, 81559 MiB, NVIDIA H100 80GB HBM3"),
    ("csv,noheader", "1, 81559 MiB, NVIDIA H100 80GB HBM3", ""),
    ("csv,noheader,nounits", "1, 81559, NVIDIA H100 80GB HBM3", ""),
])
def test_queries(tool, form, first, row):
    done = tool("nvidia-smi", "--query-gpu=index,memory.total,gpu_name", f"--format={form}", "-i", "1")
    assert done.stdout.splitlines() == [first, row] if row else [first]
    assert done.returncode == 0


@pytest.mark.parametrize(("argv", "text", "status"), [
    (["--query-gpu=index,nonsense", "--format=csv"], 'Field "nonsense" is not a valid field to query.', 2),
    (["--query-gpu=index", "--format=json"], "format", 2),
    (["--frobnicate"], "ERROR: Option --frobnicate is not recognized. Please run 'nvidia-smi -h'.", 2),
    (["-i", "9", "-L"], "No devices were found", 6),
    (["topo", "-z"], "not recognized", 2),
])
def test_wrong_use(tool, argv, text, status):
    done = tool("nvidia-smi", *argv)
    assert text in done.stdout
    assert done.returncode == status


def test_no_driver(tool):
    done = tool("nvidia-smi", env={"HPCADMIN_SIM_DIR": "/nonexistent"})
    assert "couldn't communicate with the NVIDIA driver" in done.stdout
    assert done.returncode == 9


def matrix(text):
    rows = [re.sub(r"\x1b\[\d*m", "", line).split("\t") for line in text.split("\n\n")[0].splitlines()]
    return rows[0][1:], {r[0]: [c.strip() for c in r[1:]] for r in rows[1:]}


def test_topology_matrix(tool):
    header, rows = matrix(tool("nvidia-smi", "topo", "-m").stdout)
    assert header[:9] == [*[f"GPU{i}" for i in range(8)], "NIC0"]
    assert rows["GPU0"][:8] == ["X", *["NV18"] * 7]
    assert rows["GPU0"][8:16] == ["PXB", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert rows["GPU5"][16:18] == ["56-111,168-223", "1"]
    assert len(rows) == 16


def test_bridged_pairs(trees, tmp_path):
    _, rows = matrix(Tool(trees / "4xA100-pcie", tmp_path)("nvidia-smi", "topo", "-m").stdout)
    assert rows["GPU0"][:5] == ["X", "NV12", "SYS", "SYS", "NODE"]
    assert rows["GPU2"][:5] == ["SYS", "SYS", "X", "NV12", "SYS"]


def test_a_lost_gpu_keeps_its_index_and_is_named(tool):
    message = "0000:C3:00.0: GPU is lost.  Reboot the system to recover this GPU"
    listed = tool("nvidia-smi", "-L", faults="gpu 5 lost\n")
    lines = listed.stdout.splitlines()
    assert listed.returncode == 15
    assert lines[5] == f"Unable to determine the device handle for gpu {message}"
    assert lines[6].startswith("GPU 6:")
    table = tool("nvidia-smi", faults="gpu 5 lost\n")
    assert (table.stdout, table.returncode) == (f"Unable to determine the device handle for GPU{message}\n", 15)
    rows = tool("nvidia-smi", "--query-gpu=index", "--format=csv,noheader", faults="gpu 5 lost\n").stdout.splitlines()
    assert rows[1:] == ["0", "1", "2", "3", "4", "6", "7"]
    header, matrix_rows = matrix(tool("nvidia-smi", "topo", "-m", faults="gpu 5 lost\n").stdout.split("\n", 1)[1])
    assert "GPU5" not in header
    assert len(matrix_rows["GPU6"]) == len(header) + 1     # the tool prints one more tab before the last column


def test_a_slow_gpu_says_so(tool):
    done = tool("nvidia-smi", "-q", "-x", faults="gpu 2 slow\n")
    gpus = parsed(done.stdout).findall("gpu")
    states = [g.findtext("clocks_event_reasons/clocks_event_reason_hw_slowdown") for g in gpus]
    assert [i for i, s in enumerate(states) if s == "Active"] == [2]
    assert gpus[2].findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "8x"
    assert done.returncode == 0


def test_a_narrow_link_from_the_profile(trees, tmp_path):
    done = Tool(trees / "8xH100-narrow", tmp_path)("nvidia-smi", "--query-gpu=pcie.link.width.current",
                                                   "--format=csv,noheader")
    assert done.stdout.split() == ["16", "16", "16", "8", "16", "16", "16", "16"]



# --- ibstat

def test_ibstat(tool):
    done = tool("ibstat")
    assert done.stdout.count("\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n") == 8
    assert done.stdout.count("Link layer: InfiniBand") == 8
    assert tool("ibstat", "-l").stdout.split() == [f"mlx5_{i}" for i in range(8)]
    one = tool("ibstat", "mlx5_3")
    assert one.stdout.startswith("CA 'mlx5_3'\n\tCA type: MT4129\n")
    assert one.stdout.count("CA '") == 1
    bad = tool("ibstat", "mlx5_9")
    assert bad.returncode == 255
    assert "mlx5_9" in bad.stderr


def test_subnet_managers(tool):
    from hpcadmin.check import Context
    from hpcadmin.registry import load_checks
    read = load_checks()["subnet_manager"].read
    done = tool("sminfo", "-C", "mlx5_2", "-P", "1")
    assert done.stdout.startswith("sminfo: sm lid 1 sm guid 0xa088c20300000001, activity count ")
    listed = read(done.stdout + tool("saquery", "-C", "mlx5_2", "-P", "1", "SMIR").stdout, Context())
    assert listed.sound and {m.name: m.value for m in listed.measurements} == {"masters": 1, "standbys": 1}
    bad = tool("sminfo", "-C", "mlx5_9", "-P", "1")
    assert bad.returncode == 255 and "can't open UMAD port (mlx5_9:1)" in bad.stderr
    assert tool("saquery", "NR").returncode == 1 and tool("sminfo", "-C", "../..").returncode == 255


# --- all_reduce_perf

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-q", "--mca", "btl", "self,vader")
needs_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")


@pytest.fixture
def reduce(trees, tmp_path):
    """Runs all_reduce_perf on this machine: reduce(ranks, arguments, faults=…, env={…} or one {…} for each rank)."""
    devices = tmp_path / "dev"
    devices.mkdir()
    for number in range(8):
        (devices / f"nvidia{number}").touch()

    def run(ranks, *argv, faults="", env=None, missing=()):
        (tmp_path / "faults").write_text(faults)
        for number in missing:
            (devices / f"nvidia{number}").unlink()
        variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HPCADMIN_SIM_DIR": str(trees / "8xH100"),
                     "HPCADMIN_SIM_FAULTS": str(tmp_path / "faults"), "HPCADMIN_SIM_DEV": str(devices)}
        program = [str(trees / "8xH100/bin/all_reduce_perf"), *(argv or ("-b", "64K", "-e", "64K", "-n", "3"))]
        if isinstance(env, list):
            groups = [["-n", "1", *(w for k, v in one.items() for w in ("-x", f"{k}={v}")), *program] for one in env]
        else:
            if ranks == 1:      # without mpirun, which takes its time
                return subprocess.run(program, capture_output=True, text=True, timeout=30, check=False,
                                      env={**variables, **(env or {}), "OMPI_MCA_btl": "self"})
            groups = [["-n", str(ranks), *(w for k, v in (env or {}).items() for w in ("-x", f"{k}={v}")), *program]]
        command = [*MPIRUN, *groups[0], *(w for group in groups[1:] for w in (":", *group))]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=variables)
    return run


@needs_mpirun
def test_all_reduce_prints_a_whole_table(reduce):
    done = reduce(4, "-b", "8", "-e", "256K", "-f", "2", "-g", "1", "-n", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    from hpcadmin.checklib import nccl
    table = nccl.read(done.stdout, "all_reduce_perf")
    assert [r.pci for r in table.ranks] == ["0000:1b:00", "0000:43:00", "0000:52:00", "0000:61:00"]
    assert [r.size for r in table.rows] == [8 << i for i in range(16)]
    assert table.out_of_bounds == 0
    assert table.validation
    assert table.rows[-1].modes["in-place"].busbw > 0


@needs_mpirun
@pytest.mark.parametrize("more", [("-o", "max", "-d", "int32"), ("-o", "avg", "-d", "double"), ("-o", "prod"),
                                  ("-g", "2")])
def test_all_reduce_computes(reduce, more):
    done = reduce(3, "-b", "4K", "-e", "4K", "-n", "2", *more)
    assert "# Out of bounds values : 0 OK" in done.stdout, done.stdout + done.stderr


@needs_mpirun
def test_all_reduce_takes_less_than_it_is_asked_for_when_memory_ends(reduce):
    done = reduce(1, "-b", "1G", "-e", "8G", "-n", "1", "-w", "0", "-c", "0")
    assert "# Reducing maxBytes to 33554432 due to memory limitation" in done.stdout
    assert "    N/A" in done.stdout


@pytest.mark.deep
@needs_mpirun
@pytest.mark.parametrize(("ranks", "env", "status", "text"), [
    (1, {"CUDA_VISIBLE_DEVICES": ""}, 2, "no CUDA-capable device is detected"),
    (1, {"CUDA_VISIBLE_DEVICES": "8"}, 2, "no CUDA-capable device is detected"),
    (1, {"CUDA_VISIBLE_DEVICES": "0", "NCCL_TESTS_DEVICE": "1"}, 5,
     "Invalid number of GPUs: 2 requested but only 1 were found."),
    (2, {"CUDA_VISIBLE_DEVICES": "3"}, 5, "Invalid number of GPUs: 2 requested but only 1 were found."),
    (2, {"CUDA_VISIBLE_DEVICES": "3", "NCCL_TESTS_DEVICE": "0"}, 3,
     "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 61000"),
])
def test_wrong_binding_fails(reduce, ranks, env, status, text):
    done = reduce(ranks, env=env)
    assert text in done.stdout + done.stderr
    assert done.returncode == status
    assert "Avg bus bandwidth" not in done.stdout


@needs_mpirun
def test_one_device_a_rank_works_when_counting_begins_at_0(reduce):
    done = reduce(2, env=[{"CUDA_VISIBLE_DEVICES": d, "NCCL_TESTS_DEVICE": "0"} for d in ("2", "5")])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "device  0 [0000:52:00]" in done.stdout
    assert "device  0 [0000:c3:00]" in done.stdout


@needs_mpirun
def test_lost_and_missing_devices_fail(reduce):
    lost = reduce(1, faults="gpu 1 lost\n")
    assert (lost.returncode, "Test CUDA failure" in lost.stdout) == (2, True)
    spared = reduce(1, faults="gpu 1 lost\n", env={"CUDA_VISIBLE_DEVICES": "0,2"})
    assert spared.returncode == 0, spared.stdout
    gone = reduce(1, missing=(1,))
    assert (gone.returncode, "OS call failed" in gone.stdout) == (2, True)


@pytest.mark.deep
@needs_mpirun
def test_a_slow_gpu_is_measurably_slower(reduce):
    """One process with two GPUs: two would measure how the cores of a busy machine are shared between them."""
    from hpcadmin.checklib import nccl
    best = {"": 0.0, "gpu 1 slow\n": 0.0}
    for _ in range(8):      # in turn, and the best of each: whatever else the machine does only makes a run slower
        for faults, before in best.items():
            done = reduce(1, "-g", "2", "-b", "256K", "-e", "256K", "-n", "20", faults=faults)
            best[faults] = max(before, nccl.read(done.stdout, "all_reduce_perf").average)
    assert 0 < best["gpu 1 slow\n"] < best[""] * 0.6      # three times the time, by its definition


# --- ib_write_bw

def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listening(port):
    wanted = f":{port:04X}"
    return any(line.split()[1].endswith(wanted) and line.split()[3] == "0A"
               for line in Path("/proc/net/tcp").read_text().splitlines()[1:])


@pytest.fixture
def write_bw(trees, tmp_path):
    """Runs server and client on this machine with the same arguments; returns both outputs and statuses."""
    variables = {"PATH": "/usr/bin:/bin", "HPCADMIN_SIM_DIR": str(trees / "8xH100")}

    def run(*argv, client=None, program="ib_write_bw"):
        import time
        program = str(trees / "8xH100/bin" / program)
        port = str(free_port())
        ends = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": variables}
        with subprocess.Popen([program, "-d", "mlx5_0", "-p", port, *argv], **ends) as server:
            try:
                limit = time.monotonic() + 60
                while not listening(int(port)) and time.monotonic() < limit:
                    time.sleep(0.02)
                command = [program, "-d", "mlx5_1", "-p", port, *(client or argv), "127.0.0.1"]
                done = subprocess.run(command, check=False, timeout=60, **ends)
                told, _ = server.communicate(timeout=60)
            finally:
                server.kill()
        return (told, server.returncode), (done.stdout, done.returncode)
    return run


@pytest.mark.parametrize("argv", [("-n", "200", "--report_gbits"), ("-n", "100", "-s", "4096"), ("-n", "50", "-b"),
                                  ("-D", "1", "-F", "--report_gbits")])
def test_write_bandwidth_on_both_sides(write_bw, argv):
    from hpcadmin.checklib import perftest
    (server, first), (client, second) = write_bw(*argv)
    assert (first, second) == (0, 0), server + client
    examined = [perftest.examine(text, perftest.kind_of("ib_write_bw")) for text in (server, client)]
    assert not any(e.reading.problems for e in examined)
    sides = [e.found[0] for e in examined]
    assert [s.run.main.told("Device") for s in sides] == ["mlx5_0", "mlx5_1"]
    assert sides[0].rows[0].gbps == sides[1].rows[0].gbps > 0
    assert sides[0].rows[0].iterations == sides[1].rows[0].iterations
    told = [dict(re.findall(r" (local|remote) address: (.+)", text)) for text in (server, client)]
    assert told[0]["local"] == told[1]["remote"] != told[0]["remote"] == told[1]["local"]
    assert sides[0].both_ways == ("-b" in argv)


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_send_lat"])
def test_what_our_checks_read_of_the_kin(write_bw, name):
    from hpcadmin.check import Context, NodeView, Output, Role
    from hpcadmin.registry import load_checks
    check = load_checks()[name]
    views = tuple(NodeView(n, rdma_devices=(d,), simulated="8xH100") for n, d in (("n1", "mlx5_0"), ("n2", "mlx5_1")))
    argv = ("-n", "200", "-s", str(check.params["size"]))
    sides = write_bw(*argv, program=name)
    outputs = [Output(text, status, role, node.name)
               for (text, status), role, node in zip(sides, (Role.SERVER, Role.CLIENT), views, strict=True)]
    key, *_ = check.parse(outputs, Context(nodes=views, params=check.params))
    assert key.key and 0 < key.value < 1e6 and not key.warnings
    assert (key.name, key.transport) == ("t_typical" if "_lat" in name else "bandwidth", "InfiniBand RC")


def test_all_sizes(write_bw):
    (server, _), (client, status) = write_bw("-a", "-n", "5")
    rows = [line.split()[0] for line in client.splitlines() if re.match(r" \d+ ", line)]
    assert rows == [str(2 << i) for i in range(23)]
    assert (status, server.count("\n 8388608 ")) == (0, 1)


def test_sides_that_want_different_tests_fail(write_bw):
    (server, first), (client, second) = write_bw("-n", "10", client=("-n", "20"))
    assert (first, second) == (1, 1)
    assert "Failed to exchange data between server and clients" in server
    assert "BW average" not in server + client


@pytest.mark.parametrize(("argv", "text"), [
    (["-d", "mlx5_9"], "IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n"),
    (["-i", "2"], "Unable to query port 2"),
    (["-d", "mlx5_0", "127.0.0.1", "-p", "1"], "Couldn't connect to 127.0.0.1:1\n"),
    (["--frobnicate"], "Invalid Command or flag."),
    (["-s", "0"], "Invalid value '0'"),
    (["-s", "99999999999999999999"], "Invalid value"),
    (["-d", "../../../x"], "Invalid device name"),
])
def test_write_bandwidth_errors(tool, argv, text):
    done = tool("ib_write_bw", *argv)
    assert text in done.stderr
    assert done.returncode == 1


def test_write_bandwidth_without_hcas(tool):
    done = tool("ib_write_bw", env={"HPCADMIN_SIM_DIR": "/nonexistent"})
    assert done.stderr.startswith(" Did not detect devices")
    assert tool("ib_write_bw", "--version").stdout == "Version: 6.06\n"

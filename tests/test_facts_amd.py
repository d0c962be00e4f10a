"""AMD's and Intel's GPUs: tools' tables made, rendered and read back; sysfs as the probe reads it; faults named."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.errors import ParseError
from hpcadmin.facts import _other_gpus, amd_smi, amd_smi_table, drm, rocm_smi, rocminfo, xpu_smi
from hpcadmin.facts._parts_devices import part
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.model import PciDevice

SAMPLES = Path(__file__).parent / "samples" / "facts"


def document(text: str) -> Document:
    return Document("x", "text", tuple(text.split("\n")))


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[list[str]], list[list[int]], list[list[int]], list[int]]:
    """Types, hops and weights of a node's GPUs, symmetric; and their NUMA nodes."""
    count = draw(st.integers(1, 9))
    types = [["0"] * count for _ in range(count)]
    hops = [[0] * count for _ in range(count)]
    weights = [[0] * count for _ in range(count)]
    for a in range(count):
        for b in range(a):
            xgmi = draw(st.booleans())
            types[a][b] = types[b][a] = "XGMI" if xgmi else "PCIE"
            hops[a][b] = hops[b][a] = 1 if xgmi else draw(st.integers(2, 3))
            weights[a][b] = weights[b][a] = 15 if xgmi else 40
    return types, hops, weights, draw(st.lists(st.integers(0, 7), min_size=count, max_size=count))


def table(title: str, cells: list[list[object]], gap: int) -> str:
    names = [f"GPU{n}" for n in range(len(cells))]
    rows = ["".ljust(7) + "".join(name.ljust(gap) for name in names)]
    rows += [name.ljust(7) + "".join(str(cell).ljust(gap) for cell in row)
             for name, row in zip(names, cells, strict=True)]
    return f"{f' {title} '.center(90, '=')}\n" + "\n".join(rows) + "\n"


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(6, 14), st.booleans())
def test_showtopo_is_read_back(made: tuple, gap: int, indented: bool) -> None:
    types, hops, weights, numa = made
    text = " ROCm System Management Interface ".center(90, "=") + "\n"
    text += table("Weight between two GPUs", weights, gap) + "\n" + table("Hops between two GPUs", hops, gap) + "\n"
    text += table("Link Type between two GPUs", types, gap) + "\n" + " Numa Nodes ".center(90, "=") + "\n"
    text += "".join(f"GPU[{n}]\t\t: (Topology) Numa Node: {node}\nGPU[{n}]\t\t: (Topology) Numa Affinity: {node}\n"
                    for n, node in enumerate(numa))
    text += " End of ROCm SMI Log ".center(90, "=") + "\n"
    if indented:
        text = "".join(f"   {line.strip()}\n" for line in text.split("\n"))
    (found,) = rocm_smi.read(document("$ rocm-smi --showtopo\n" + text + "$"))
    known = found.known
    assert not found.missing
    assert (known["link_type"], known["hops"], known["weight"], known["gpu_numa"]) == (types, hops, weights, numa)
    assert known["xgmi"] == [[-1 if a == b else int(cell == "XGMI") for b, cell in enumerate(row)]
                             for a, row in enumerate(types)]
    made_part = part(found)
    assert made_part is not None


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_json_is_read_back(made: tuple) -> None:
    types, hops, weights, numa = made
    value = {f"card{n}": {"Device ID": "0x74a1", "PCI Bus": f"0000:{n + 3:02X}:00.0", "(Topology) Numa Node": str(node)}
             for n, node in enumerate(numa)}
    value["system"] = {"Driver version": "6.10.5"}
    for name, cells in (("Weight", weights), ("Hops", hops), ("Link type", types)):
        value["system"] |= {f"(Topology) {name} between DRM devices {a} and {b}": str(cells[a][b])
                            for b in range(len(numa)) for a in range(b)}
    for text in (json.dumps(value), "WARNING: low power\n" + json.dumps(value, indent=4) + "\n\n"):
        (found,) = rocm_smi.read(document(text))
        assert not found.missing
        assert found.known["gpu_numa"] == numa
        if len(numa) > 1:
            assert (found.known["link_type"], found.known["hops"], found.known["weight"]) == (types, hops, weights)
    part_text = json.dumps(value, indent=4)
    with pytest.raises(ParseError):
        rocm_smi.read(document(part_text[:-20]))


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_amd_smi_topology_is_read_back(made: tuple) -> None:
    types, hops, weights, _ = made
    names = [f"0000:{n + 3:02x}:00.0" for n in range(len(types))]
    text = ""
    for title, cells in (("WEIGHT", weights), ("HOPS", hops), ("LINK TYPE", types)):
        text += f"{title} TABLE:\n" + " " * 13 + " ".join(names) + " \n"
        text += "".join(f"{name} " + "".join(str("SELF" if title == "LINK TYPE" and a == b else cell).ljust(13)
                                             for b, cell in enumerate(row)).rstrip() + "\n"
                        for a, (name, row) in enumerate(zip(names, cells, strict=True)))
    (found,) = amd_smi.read(document("$ amd-smi topology\n" + text))
    assert not found.missing
    known = found.known
    assert (known["link_type"], known["hops"], known["weight"]) == (types, hops, weights)
    assert known["links_matrix_order"] == names
    value = [{"gpu": a, "bdf": names[a], "links": [
        {"gpu": b, "bdf": names[b], "weight": weights[a][b], "link_type": "SELF" if a == b else types[a][b],
         "num_hops": hops[a][b]} for b in reversed(range(len(names)))]} for a in range(len(names))]
    (same,) = amd_smi.read(document(json.dumps(value, indent=2)))
    assert {key: same.known[key] for key in ("link_type", "hops", "weight")} == \
        {key: known[key] for key in ("link_type", "hops", "weight")}


def test_one_gpu_without_xgmi_is_a_fault() -> None:
    types = [["0" if a == b else "PCIE" if 2 in (a, b) else "XGMI" for b in range(8)] for a in range(8)]
    (found,) = rocm_smi.read(document(table("Link Type between two GPUs", types, 12)))
    assert "GPU2 has no XGMI, its 7 peers do" in [finding.what for finding in found.findings]


def test_a_table_that_is_cut() -> None:
    text = table("Link Type between two GPUs", [["0", "XGMI"], ["XGMI", "0"]], 12)
    (found,) = rocm_smi.read(document(text[:-30]))
    assert any("cut off" in what for what in found.missing)
    assert found.known["links_if_written"] is None


AMD_SMI = """GPU: 0
    BDF: 0000:0c:00.0
    UUID: c0ff74a1-0000-1000-80b1-06985c515c91
    KFD_ID: 45412
    NODE_ID: 2
    PARTITION_ID: 0

GPU: 1
    BDF: 0000:0c:00.0
    UUID: c0ff74a1-0000-1000-80b1-06985c515c91
    KFD_ID: 45413
    NODE_ID: 3
    PARTITION_ID: 1
"""


def test_amd_smi_list() -> None:
    (found,) = amd_smi.read(document("[root@n1 ~]# amd-smi list\n" + AMD_SMI))
    assert [(gpu.index, gpu.pci, gpu.node, gpu.partition_id) for gpu in found.value.gpus] == [
        (0, "0000:0c:00.0", 2, 0), (1, "0000:0c:00.0", 3, 1)]
    rows = ("gpu,gpu_bdf,gpu_uuid,kfd_id,node_id,partition_id\n0,0000:0c:00.0,c0ff74a1-0000-1000-80b1-06985c515c91,"
            "45412,2,0\n1,0000:0c:00.0,c0ff74a1-0000-1000-80b1-06985c515c91,45413,3,1\n")
    (same,) = amd_smi.read(document(rows))
    assert same.value == found.value
    with pytest.raises(ParseError):
        amd_smi.read(document(rows.replace(",3,1", ",3")))


CONCISE = """
============================================ ROCm System Management Interface ============================================
====================================================== Concise Info ======================================================
Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
==========================================================================================================================
0       2     0x74a1,   55354  51.0\u00b0C      152.0W    NPS1, SPX, 0        134Mhz  900Mhz  0%   auto  750.0W  0%     0%
1       3     0x74a1,   41632  N/A         N/A       NPS1, CPX, 1        134Mhz  900Mhz  0%   auto  750.0W  0%     0%
==========================================================================================================================
================================================== End of ROCm SMI Log ===================================================
"""  # noqa: E501


def test_rocm_smi_without_options() -> None:
    (found,) = rocm_smi.read(document(CONCISE))
    assert [(g.node, g.guid, g.pci_id, g.compute_partition, g.partition_id) for g in found.value.gpus] == [
        (2, "55354", "1002:74a1", "SPX", 0), (3, "41632", "1002:74a1", "CPX", 1)]
    assert not found.missing


TABLES = """
============================ ROCm System Management Interface ============================
=========================================== ID ===========================================
GPU[0]\t\t: Device Name: \t\tAMD Instinct MI300X
GPU[0]\t\t: Device ID: \t\t0x74a1
GPU[0]\t\t: GUID: \t\t28851
======================================= PCI Bus ID =======================================
GPU[0]\t\t: PCI Bus: 0000:0C:00.0
====================================== Product Info ======================================
GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X
GPU[0]\t\t: Card Model: \t\t0x74a1
================================== End of ROCm SMI Log ===================================
"""


def test_rocm_smi_tables() -> None:
    (found,) = rocm_smi.read(document(TABLES))
    gpu = found.value.gpus[0]
    assert (gpu.pci, gpu.model, gpu.pci_id, gpu.guid) == ("0000:0c:00.0", "AMD Instinct MI300X", "1002:74a1", "28851")


AGENTS = """ROCk module is loaded
==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD EPYC 9554 64-Core Processor
  Device Type:             CPU
  Node:                    0
*******
Agent 2
*******
  Name:                    gfx942
  Uuid:                    GPU-91d18722abb0c2e8
  Marketing Name:          AMD Instinct MI300X
  Node:                    2
  Device Type:             GPU
  Chip ID:                 29857(0x74a1)
  BDFID:                   3072
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
*** Done ***
"""


def test_rocminfo() -> None:
    (found,) = rocminfo.read(document(AGENTS))
    gpu = found.value.gpus[0]
    assert (gpu.index, gpu.node, gpu.model, gpu.gfx, gpu.pci_id, gpu.pci) == (
        0, 2, "AMD Instinct MI300X", "gfx942", "1002:74a1", "")
    assert found.known["cpus_as_agents"] == 1
    assert not found.missing
    assert rocminfo.read(document(AGENTS[:-20]))[0].missing


# --- sysfs

def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def node(root: Path, gpus: list[tuple[str, str, str, dict[str, object]]], *, kfd: bool = True,
         xgmi: bool = True) -> drm.Drm:
    """What the probe's command tells of a made /sys."""
    for number, (pci, vendor, device, files) in enumerate(gpus):
        here = root / "sys/devices/pci0000:00" / pci
        for name, text in {"vendor": vendor, "device": device, **files}.items():
            write(here / name, text)
        (here / f"drm/card{number + 1}").mkdir(parents=True)
        (here / f"drm/renderD{128 + number}").mkdir()
        (here / f"drm/renderD{128 + number}/device").symlink_to("../..")
        drm_class = root / "sys/class/drm"
        drm_class.mkdir(parents=True, exist_ok=True)
        (drm_class / f"renderD{128 + number}").symlink_to(here / f"drm/renderD{128 + number}")
        write(root / f"dev/dri/renderD{128 + number}", "")
        if kfd:
            nodes = root / "sys/class/kfd/kfd/topology/nodes"
            write(nodes / "0/gpu_id", 0)
            write(nodes / f"{number + 1}/gpu_id", 1000 + number)
            write(nodes / f"{number + 1}/properties",
                  f"drm_render_minor {128 + number}\nlocation_id {int(pci[5:7], 16) << 8}\ndomain 0\nhive_id 9")
            for other in range(len(gpus)):
                if other != number:
                    write(nodes / f"{number + 1}/io_links/{other}/properties",
                          f"type {11 if xgmi else 2}\nnode_to {other + 1}\nweight 15")
    write(root / "dev/kfd", "")
    command = re.sub("/(sys|dev)/", lambda place: f"{root}{place[0]}", drm.COMMAND).replace("[ -c ", "[ -e ")
    done = subprocess.run(["sh", "-c", f"f() {{\n{command}\n}}; f"], capture_output=True, text=True, check=False)
    assert not done.stderr
    return drm.parse(done.stdout.replace(str(root), ""))


def amd(unique: str = "1122334455667788", numa: int = 0, mode: str = "SPX") -> dict[str, object]:
    return {"class": "0x120000", "numa_node": numa, "mem_info_vram_total": 206141652992, "unique_id": unique,
            "current_compute_partition": mode, "current_memory_partition": "NPS1", "vbios_version": "113-M3000100"}


def bus(*addresses: str) -> tuple[PciDevice, ...]:
    return tuple(PciDevice(address, "120000", "1002", "74a1", numa=0, local_cpus="0-47", link="32.0 GT/s x16",
                           link_max="32.0 GT/s x16") for address in addresses)


def test_amd_gpus_from_sysfs_alone(tmp_path: Path) -> None:
    told = node(tmp_path, [("0000:0c:00.0", "0x1002", "0x74a1", amd("aa")), ("0000:22:00.0", "0x1002", "0x74a1",
                                                                           amd("bb"))])
    found = _other_gpus.join(told, [], bus("0000:0c:00.0", "0000:22:00.0"))
    assert found.problems == []
    first = found.gpus[0]
    assert (first.index, first.pci, first.device_file, first.render, first.partition) == (
        0, "0000:0c:00.0", "/dev/dri/renderD128", 128, "SPX/NPS1")
    assert (first.model, first.memory_mib, first.numa, first.local_cpus) == (
        "AMD Instinct MI300X", 196592, 0, tuple(range(48)))
    assert (first.pcie_gen, first.pcie_width, first.uuid, first.pci_id) == (5, 16, "0xaa", "1002:74a1")
    assert found.links == (("X", "XGMI"), ("XGMI", "X"))


def test_what_the_tool_adds_and_contradicts(tmp_path: Path) -> None:
    told = node(tmp_path, [("0000:9f:00.0", "0x1002", "0x74a1", amd("bb", 1)), ("0000:0c:00.0", "0x1002", "0x74a1",
                                                                              amd("1122334455667788"))])
    smi = rocm_smi.parse((SAMPLES / "rocm_smi/two-gpus.txt").read_text())
    found = _other_gpus.join(told, [smi], None)
    assert [(gpu.index, gpu.pci, gpu.render) for gpu in found.gpus] == [(0, "0000:0c:00.0", 129),
                                                                        (1, "0000:9f:00.0", 128)]
    assert found.gpus[0].serial == "692400000001"
    assert any("GUID 1001 in sysfs, 28851" in problem for problem in found.problems)
    assert found.driver == "6.10.5"
    fewer = _other_gpus.join(told, [replace(smi, gpus=smi.gpus[:1], links=None)], None)
    assert any("0000:9f:00.0 is in sysfs and not in the list" in problem for problem in fewer.problems)


def test_partitions_share_an_address(tmp_path: Path) -> None:
    told = node(tmp_path, [("0000:0c:00.0", "0x1002", "0x74a1", amd(mode="CPX"))])
    more = replace(told, gpus=(*told.gpus, drm.AmdGpu(render=129, card="card2", file="/dev/dri/renderD129")),
                   nodes=(*told.nodes, drm.KfdNode(2, "1001", 129, "0000:0c:00.0")), links=())
    found = _other_gpus.join(more, [], bus("0000:0c:00.0"))
    assert [(gpu.index, gpu.pci, gpu.device_file, gpu.partition) for gpu in found.gpus] == [
        (0, "0000:0c:00.0", "/dev/dri/renderD128", "CPX/NPS1"), (1, "0000:0c:00.0", "/dev/dri/renderD129", "CPX/NPS1")]


def test_faults(tmp_path: Path) -> None:
    told = node(tmp_path, [(f"0000:{n:02x}:00.0", "0x1002", "0x74a1", amd(f"a{n}", mode="CPX" if n == 3 else "SPX"))
                           for n in range(1, 5)])
    lone = tuple(link for link in told.links if 3 not in link[:2])
    nodes = tuple(replace(one, hive="" if one.number == 3 else one.hive) for one in told.nodes)
    gpus = tuple(replace(gpu, file="") if gpu.render == 128 else gpu for gpu in told.gpus)
    broken = replace(told, links=lone, nodes=nodes, gpus=gpus, kfd_file="")
    said = "\n".join(_other_gpus.join(broken, [], bus("0000:99:00.0")).problems)
    for part_of in ("0000:99:00.0", "/dev/dri/renderD128 is missing", "/dev/kfd is missing",
                    "CPX/NPS1: GPU 2", "GPU 2 (0000:03:00.0) not in the XGMI hive"):
        assert part_of in said
    said = "\n".join(_other_gpus.join(replace(told, links=lone), [], None).problems)
    assert "GPU 2 (0000:03:00.0) has no XGMI, its 3 peers do" in said


def test_intel_gpus(tmp_path: Path) -> None:
    told = node(tmp_path, [
        ("0000:29:00.0", "0x8086", "0x0bda", {"class": "0x038000", "numa_node": 0,
                                              "tile0/physical_vram_size_bytes": 51539607552}),
        ("0000:00:02.0", "0x8086", "0x9a60", {"class": "0x030000", "numa_node": -1})], kfd=False)
    found = _other_gpus.join(told, [], None)
    assert [(gpu.vendor, gpu.model, gpu.memory_mib, gpu.device_file) for gpu in found.gpus] == [
        ("intel", "Intel Data Center GPU Max 1100", 49152, "/dev/dri/renderD128")]


def test_nothing_but_the_bus() -> None:
    found = _other_gpus.join(None, [], bus("0000:0c:00.0"))
    assert [gpu.pci for gpu in found.gpus] == ["0000:0c:00.0"]
    assert "known from the PCI bus alone" in found.problems[0]
    assert found.unknown == ["gpus.model"]


XPU = """| Device ID | Device Information                                     |
+-----------+--------------------------------------------------------+
| 0         | Device Name: Intel(R) Data Center GPU Max 1550         |
|           | PCI BDF Address: 0000:18:00.0                          |
|           | DRM Device: /dev/dri/card1                             |
+-----------+--------------------------------------------------------+
"""
MATRIX = """         GPU 0/0|GPU 0/1|GPU 1/0|GPU 1/1|CPU Affinity
GPU 0/0 |S      |MDF    |XL*    |XL16   |0-23,48-71
GPU 0/1 |MDF    |S      |XL16   |XL*    |0-23,48-71
GPU 1/0 |XL*    |XL16   |S      |MDF    |24-47,72-95
GPU 1/1 |XL16   |XL*    |MDF    |S      |24-47,72-95
"""


def xpu(text: str) -> Reading:
    (found,) = xpu_smi.read(document(text))
    return found


def test_xpu_smi() -> None:
    gpu = xpu(XPU).value.gpus[0]
    assert (gpu.vendor, gpu.model, gpu.pci, gpu.card) == (
        "intel", "Intel(R) Data Center GPU Max 1550", "0000:18:00.0", "card1")
    assert xpu(XPU.rpartition("+-")[0].rpartition("+-")[0]).missing
    matrix = xpu("$ xpu-smi topology -m\n" + MATRIX)
    assert matrix.known["links"] == [[-1, 32], [32, -1]]
    assert matrix.known["gpu_cpu_affinity_os"][2] == "24-47,72-95"
    assert xpu(MATRIX[:150]).missing
    assert xpu(MATRIX.replace("XL16   |XL*    |0-", "XL8    |XL*    |0-")).findings
    with pytest.raises(ParseError):
        xpu(MATRIX.replace("GPU 1/0 |X", "GPU 7/0 |X"))


def test_a_capture_of_an_amd_node() -> None:
    """All sources together: no GPU of NVIDIA, sysfs, rocm-smi and the bus."""
    from test_read_capture import made
    lines = "".join(
        f"pci={pci}\tclass=0x120000\tvendor=0x1002\tdevice=0x74a1\tnuma={numa}\tcpus={cpus}\tspeed=32.0 GT/s PCIe\t"
        f"width=16\tmaxspeed=32.0 GT/s PCIe\tmaxwidth=16\tdriver=amdgpu\tpath={pci[:4]}:{pci[5:7]}/{pci}\n"
        for pci, numa, cpus in (("0000:0c:00.0", 0, "0-31"), ("0000:9f:00.0", 1, "32-63")))
    told = (SAMPLES / "drm/two-mi300x.txt").read_text()
    for old, new in (("gpu=1000", "gpu=28851"), ("gpu=1001", "gpu=51499"), ("1122334455667701", "1122334455667788"),
                     ("1234605616436508417", "1234605616436508552")):
        told = told.replace(old, new)
    names = (SAMPLES / "lspci/server.txt").read_text().replace("0000:c1:00.0", "0000:0c:00.0")
    node = made(pci=(f"{lines}end=pci\n", 0), drm=(told, 0), lspci=(names, 0), nvidia_smi=("", 127),
                nvidia_list=("", 127), nvidia_topo=("", 127), nvidia_proc=("end=nvidia\n", 0), nvidia_nvlink=("", 127),
                rocm_smi=((SAMPLES / "rocm_smi/two-gpus.txt").read_text(), 0), amd_smi=("", 127))
    assert node.problems == ()
    assert "gpus" not in node.unknown
    assert [(gpu.index, gpu.pci, gpu.device_file, gpu.model, gpu.local_cpus[:1]) for gpu in node.gpus] == [
        (0, "0000:0c:00.0", "/dev/dri/renderD128", "AMD Instinct MI300X", (0,)),
        (1, "0000:9f:00.0", "/dev/dri/renderD129", "AMD Instinct MI300X", (32,))]
    assert node.gpu_links == (("X", "XGMI"), ("XGMI", "X"))
    assert node.gpu_driver == "6.10.5"
    assert node.pci[0].name.endswith("Aqua Vanjaram [Instinct MI300X]")


TABLE = """\
+------------------------------------------------------------------------------+
| AMD-SMI 26.0.0      amdgpu version: 6.14.14   ROCm version: 7.0.0            |
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:05:00.0    AMD Instinct MI300X | 0 %      36 C    0           135/750 W |
|   0       0       7        SPX/NPS1 | 0 %        N/A           285/196592 MB |
|-------------------------------------+----------------------------------------|
| 0000:26:00.0    AMD Instinct MI3... | 0 %      37 C    0           136/750 W |
|   1       1     N/A             N/A | 0 %        N/A           285/196592 MB |
+-------------------------------------+----------------------------------------+
| Processes:                                                                   |
+------------------------------------------------------------------------------+
"""


def test_the_table_of_amd_smi() -> None:
    (found,) = amd_smi_table.read(document(TABLE))
    first, second = found.known["gpus"]
    assert (found.known["driver"], found.known["gpu_count"], found.missing) == ("6.14.14", 2, ())
    assert (first["pci"], first["series"], first["compute_partition"], first["memory_mib"]) == (
        "0000:05:00.0", "AMD Instinct MI300X", "SPX", 196592)
    assert "series" not in second and found.findings


def test_the_table_of_amd_smi_cut_off() -> None:
    lines = TABLE.split("\n")
    for end in range(2, len(lines) - 3):
        (found,) = amd_smi_table.read(document("\n".join(lines[:end])))
        assert found.missing and found.known["gpu_count"] is None


def test_numa_nodes_that_say_nothing() -> None:
    (found,) = rocm_smi.read(document(
        "===== Numa Nodes =====\nGPU[0] : (Topology) Numa Node: 0\nGPU[0] : (Topology) Numa Affinity: 4294967295\n"
        "GPU 1 : (Topology) Numa Node: 1\nGPU 1 : (Topology) Numa Affinity: -1\n"))
    assert (found.known["gpu_numa"], found.known["gpu_numa_affinity"]) == ([0, 1], [None, None])


def test_a_number_is_no_name_and_the_old_table_counts() -> None:
    (found,) = rocm_smi.read(document("GPU[0] : Card series: 0x1002\nGPU[0] : Card model: 0x1002\n"
                                      "GPU[0] : PCI Bus: 0000:07:00.0\n"))
    assert "series" not in found.known["gpu_details"][0]
    (found,) = rocm_smi.read(document("==== Concise Info ====\nGPU  Temp (DieEdge)  AvgPwr  SCLK\n"
                                      "0    36.0c           91.0W   800Mhz\n1    41.0c           N/A     800Mhz\n"))
    assert found.known["gpus"] == 2


def test_a_section_without_its_table_is_cut_off() -> None:
    (found,) = rocm_smi.read(document("==== ROCm System Management Interface ====\n"
                                      "==== Link Type between two GPUs ====\n"))
    assert "link type between two GPUs is cut off" in found.missing[0]


def test_topology_of_xpu_smi_with_blanks_between_its_columns() -> None:
    (found,) = xpu_smi.read(document("         GPU 0/0  GPU 1/0  CPU Affinity\nGPU 0/0  S        NODE     0-15\n"
                                     "GPU 1/0  NODE     S        16-31\n"))
    assert (found.known["gpus"], found.known["gpu_cpu_affinity_os"]) == (2, ["0-15", "16-31"])


def test_the_table_of_rocm_smi_6_with_names() -> None:
    (found,) = rocm_smi.read(document(
        "==== Concise Info ====\nDevice  [Model : Revision]    Temp  Power   Partitions      SCLK\n"
        "        Name (20 chars)       (Junction)  (Socket)  (Mem, Compute)\n"
        "0       [0x74a1 : 0x00]       45.0C  173.0W  NPS1, SPX  132Mhz\n        AMD Instinct MI300X\n"
        "1       [0x74a1 : 0x00]       45.0C  173.0W  NPS1, SPX  132Mhz\n        AMD Instinct MI300X-O\n"))
    first, second = found.known["gpu_details"] + [{}] * (2 - len(found.known["gpu_details"]))
    assert (found.known["gpus"], first["series"], first["compute_partition"]) == (2, "AMD Instinct MI300X", "SPX")
    assert "series" not in second

"""Texts of nvidia-smi as people keep them: faults are found, names of Slurm follow, and nothing is taken for more."""

from dataclasses import replace

import nvidia_texts as texts
import pytest
from nvidia_texts import Made

from hpcadmin.documents import documents
from hpcadmin.facts import Document, Part, Reading, _gpu, merge, nvidia_list, nvidia_nvlink, nvidia_smi, part_of
from hpcadmin.facts import read_document as read
from hpcadmin.gpu_types import autodetected, autodetected_mig, gres
from hpcadmin.model import Gpu, MigDevice


def readings(text: str) -> tuple[Reading, ...]:
    return tuple(r for document in documents("text", text.encode()) for r in read(document).readings)


def only(text: str, kind: str) -> Reading:
    found = [reading for reading in readings(text) if reading.kind == kind]
    assert len(found) == 1, [reading.kind for reading in readings(text)]
    return found[0]


def gb200(index: int, **more: object) -> Gpu:
    gpu = Gpu("nvidia", index, "NVIDIA GB200", f"GPU-0000000{index}-aaaa-4bbb-8ccc-00000000000{index}", f"16{index}",
              f"{index * 8:04x}:01:00.0", index, "", 189471, vbios="97.00.B9.00.69", pcie_gen=5, pcie_width=16,
              pcie_gen_max=6, pcie_width_max=16, ecc="Enabled", persistence="Enabled", power_limit_w=1200.0,
              power_limit_max_w=1200.0, mig="Disabled", mig_pending="Disabled", compute_mode="Default",
              fabric_state="Completed", fabric_status="Success", fabric_clique="32766",
              fabric_cluster_uuid="8f6c1a2b-0000-4000-8000-0123456789ab", part_number="699-2G548", pci_id="10de:2941")
    return replace(gpu, **more)  # type: ignore[arg-type]


TRAY = Made("570.133.20", "12.8", tuple(gb200(n) for n in range(4)), ("53.125",) * 18)


# --- names of Slurm


@pytest.mark.parametrize(("model", "kind"), [
    ("NVIDIA H100 80GB HBM3", "nvidia_h100_80gb_hbm3"), ("Tesla V100-SXM2-16GB", "tesla_v100-sxm2-16gb"),
    ("NVIDIA A100-SXM4-40GB", "nvidia_a100-sxm4-40gb"),
])
def test_type_names(model: str, kind: str) -> None:
    assert autodetected(model) == kind


def test_types_of_mig_devices() -> None:
    assert autodetected_mig("NVIDIA A100-SXM4-40GB", "3g.20gb") == "nvidia_a100_3g.20gb"
    assert autodetected_mig("NVIDIA H100 80GB HBM3", "1g.10gb") == "nvidia_h100_80gb_hbm3_1g.10gb"
    assert autodetected_mig("NVIDIA H100 80GB HBM3", "1g.10gb+me") == ""
    assert gres(["a", "b", "a"]) == "gpu:a:2,gpu:b:1"
    assert gres(["a", ""]) == ""


# --- a tray of GB200: domains, fabric


def test_gb200_fabric_and_domains() -> None:
    reading = only(texts.as_xml(TRAY), "nvidia-smi -q -x")
    assert [gpu["fabric_clique"] for gpu in reading.known["gpus"]] == ["32766"] * 4
    assert [gpu["pci"] for gpu in reading.known["gpus"]][1:3] == ["0008:01:00.0", "0010:01:00.0"]
    assert reading.known["gres_ok"] == ["gpu:nvidia_gb200:4"]


def test_a_gpu_that_is_not_in_the_fabric() -> None:
    node = Made("570.133.20", "12.8", (gb200(0), gb200(1, fabric_state="In Progress", fabric_status="")))
    for text in (texts.as_xml(node), texts.as_q(node)):
        said = [f.what for f in readings(text)[0].findings if not f.note]
        assert said == ["GPU 1 (0008:01:00.0): NVLink fabric: registration is In Progress"]


# --- faults


@pytest.mark.parametrize(("old", "new", "said"), [
    ("<reset_required>No", "<reset_required>Yes", "a reset is required"),
    ("<pending_mig>Disabled", "<pending_mig>Enabled", "MIG mode is Disabled, Enabled is pending"),
    ("<remapped_rows>N/A</remapped_rows>", "<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>2"
     "</remapped_row_unc><remapped_row_pending>Yes</remapped_row_pending><remapped_row_failure>Yes"
     "</remapped_row_failure></remapped_rows>", "row remapping has failed"),
    ("<remapped_rows>N/A</remapped_rows>",
     "<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>", "pages of memory wait"),
    ("<remapped_rows>N/A</remapped_rows>", "<ecc_errors><volatile><sram_uncorrectable>0</sram_uncorrectable>"
     "<dram_uncorrectable>3</dram_uncorrectable></volatile></ecc_errors>", "3 uncorrectable ECC errors"),
    ("<remapped_rows>N/A</remapped_rows>", "<gpu_recovery_action>Drain and Reset</gpu_recovery_action>",
     "the driver asks for: Drain and Reset"),
    ("<compute_mode>Default", "<compute_mode>Unknown Error", "unreadable (Unknown Error, ERR!): compute_mode"),
])
def test_faults_of_one_gpu(old: str, new: str, said: str) -> None:
    xml = texts.as_xml(TRAY)
    if old == "<reset_required>No":
        old, new = "<remapped_rows>", f"<gpu_reset_status>{new}</reset_required></gpu_reset_status><remapped_rows>"
    assert old in xml
    reading = only(xml.replace(old, new, 1), "nvidia-smi -q -x")
    found = [finding for finding in reading.findings if said in finding.what]
    assert len(found) == 1
    assert found[0].what.startswith("GPU 0 (0000:01:00.0): ")
    assert not found[0].note
    assert found[0].line == 7
    # And the same on the node that the capture is of.
    facts = _gpu.GpuFacts(smi=nvidia_smi.parse(xml.replace(old, new, 1)))
    _gpu.join(facts)
    assert any(said in problem and "GPU 0 (0000:01:00.0)" in problem for problem in facts.problems)


def test_a_lost_gpu_beside_an_output() -> None:
    three = Made(TRAY.driver, TRAY.cuda, (TRAY.gpus[0], *TRAY.gpus[2:]))
    line = "Unable to determine the device handle for GPU1: 0008:01:00.0: Unknown Error\n"
    for text in (line + texts.as_q(three), line + texts.as_list(three), line + texts.as_table(three)):
        found = readings(text)
        assert len(found) == 1, found
        assert found[0].refused
        assert found[0].known["gpu_count"] is None
        assert found[0].known["errors"][0]["pci"] == "0008:01:00.0"
        assert any("0008:01:00.0 cannot be reached" in finding.what for finding in found[0].findings)


@pytest.mark.parametrize(("text", "said"), [
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
     "driver is installed and running.\n", "not loaded"),
    ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183\n", "two versions"),
    ("bash: nvidia-smi: command not found\n", "not installed"),
    ("$ nvidia-smi\nNo devices were found\n", "No devices were found"),
    ("Failed to initialize NVML: Unknown Error\n", "cannot be used"),
])
def test_complaints(text: str, said: str) -> None:
    reading = only(text, "nvidia-smi error")
    assert reading.known["gpus"] is None
    assert reading.known["gpu_count"] is None
    assert said in reading.refused


def test_nvlinks_down_beside_peers_that_are_up() -> None:
    down = "NVML: Unable to retrieve NVLink information as all links are inActive"
    text = texts.as_nvlink(Made(TRAY.driver, "", TRAY.gpus[:3], TRAY.links)) + (
        f"GPU 3: NVIDIA GB200 (UUID: {TRAY.gpus[3].uuid})\n{down}\n")
    reading = only(text, "nvidia-smi nvlink -s")
    assert [gpu["links_active"] for gpu in reading.known["gpus"]] == [18, 18, 18, 0]
    assert any("GPU3: all NVLinks are inactive, those of 3 of its kind are active" in f.what for f in reading.findings)
    facts = _gpu.GpuFacts(smi=nvidia_smi.parse(texts.as_xml(TRAY)), nvlinks=nvidia_nvlink.parse(text))
    found = _gpu.join(facts)
    assert [gpu.nvlinks_active for gpu in found] == [18, 18, 18, 0]
    assert any(problem.startswith("NVLink: GPU3: all NVLinks are inactive") for problem in facts.problems)


def test_boards_without_a_bridge_are_no_fault() -> None:
    pair = Made("550.90.07", "12.4", tuple(gb200(n, model="NVIDIA A100 80GB PCIe") for n in range(2)), (None,) * 12)
    facts = _gpu.GpuFacts(smi=nvidia_smi.parse(texts.as_xml(pair)), nvlinks=nvidia_nvlink.parse(texts.as_nvlink(pair)))
    assert [gpu.nvlinks_active for gpu in _gpu.join(facts)] == [0, 0]
    assert not [problem for problem in facts.problems if "NVLink" in problem]


def test_a_gpu_that_cannot_reach_its_peers() -> None:
    text = (" \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tCNS\n GPU1\tOK\tX\tCNS\n GPU2\tCNS\tCNS\tX\n\nLegend:\n"
            "  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n")
    reading = only("$ nvidia-smi topo -p2p r\n" + text, "nvidia-smi topo -p2p r")
    assert reading.known["p2p"] == [["X", "OK", "CNS"], ["OK", "X", "CNS"], ["CNS", "CNS", "X"]]
    assert [f.what for f in reading.findings if not f.note] == [
        "peer access (read) is not possible for GPU 2, for others it is (CNS: the chipset does not support it)"]
    cut = only(text.split(" GPU2\tCNS", maxsplit=1)[0], "nvidia-smi topo -p2p")
    assert cut.missing
    assert cut.refused


def test_kernel_log() -> None:
    lost = only("[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 00:00:00 UTC 2024\n"
                "[9.0] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
                "[9.1] NVRM: Xid (PCI:0000:5d:00): 31, pid=77, name=train, MMU Fault\n", "dmesg")
    assert lost.refused
    assert lost.known["errors"][0]["pci"] == "0000:3b:00.0"
    assert [finding.note for finding in lost.findings] == [False, True]
    quiet = only("[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 2024\n", "dmesg")
    assert not quiet.refused
    assert quiet.known["driver"] == "550.90.07"


def test_a_gpu_of_errors_in_the_table() -> None:
    two = Made("535.154.05", "12.2", TRAY.gpus[:2])
    whole = texts.as_table(two)
    at = whole.rindex("| N/A   27C    P0    72W")
    ill = whole[:at] + "|ERR!  ERR!  ERR!  ERR! /" + whole[at + len("| N/A   27C    P0    72W /"):]
    reading = only(ill, "nvidia-smi")
    assert "GPU 1 (0008:01:00.0) does not answer" in reading.refused
    assert reading.known["gres_ok"] == []
    fan = only(whole[:at] + "|ERR!" + whole[at + 5:], "nvidia-smi")
    assert not fan.refused
    assert fan.known["errors"] == [{"index": 1, "message": "ERR! (fan speed)"}]


# --- MIG


def test_mig_profiles_come_from_the_list() -> None:
    """-q knows the instances, -L the profiles and UUIDs."""
    migs = tuple(MigDevice(n, profile, f"MIG-0000000{n}-0000-5000-8000-000000000000", n + 1, 0, 9856)
                 for n, profile in enumerate(("3g.71gb", "2g.47gb")))
    node = Made("570.133.20", "12.8", (gb200(0, mig="Enabled", mig_pending="Enabled", mig_devices=migs), gb200(1)))
    facts = _gpu.GpuFacts(smi=nvidia_smi.parse(texts.as_xml(node)), listed=nvidia_list.parse(texts.as_list(node)))
    found = _gpu.join(facts)
    assert found[0].mig_devices == migs
    assert not [problem for problem in facts.problems if "MIG" in problem]
    listed = only(texts.as_list(node), "nvidia-smi -L")
    assert listed.known["gres_ok"] == ["gpu:nvidia_gb200_3g.71gb:1,gpu:nvidia_gb200_2g.47gb:1,gpu:nvidia_gb200:1"]
    assert only(texts.as_xml(node), "nvidia-smi -q -x").known["gres_ok"] == []


def test_mig_without_devices() -> None:
    node = Made("570.133.20", "12.8", (gb200(0, mig="Enabled", mig_pending="Enabled"),))
    reading = only(texts.as_xml(node), "nvidia-smi -q -x")
    assert any("there is no MIG device" in finding.what for finding in reading.findings)
    assert reading.known["gres_ok"] == []


# --- CSV


@pytest.mark.parametrize("text", [
    "pid, process_name, used_gpu_memory [MiB]\n123, python, 500 MiB\n", "name,state\nnode01,idle\n", "0,4,8\n1,5,9\n",
    "gpu_uuid, pid\nGPU-00000000-aaaa-4bbb-8ccc-000000000000, 123\n", "NVIDIA, the company, says so.\n",
])
def test_what_is_no_list_of_gpus(text: str) -> None:
    assert not [reading for reading in readings(text) if reading.kind.startswith("nvidia-smi")]


def test_names_alone_are_not_counted() -> None:
    """nvidia-smi -l prints one GPU again and again."""
    reading = only("name\nNVIDIA L40S\nNVIDIA L40S\n", "nvidia-smi --query-gpu")
    assert reading.known["gpu_count"] is None
    assert reading.refused


def test_samples_of_a_loop_are_one_gpu_each() -> None:
    reading = only("index, uuid, temperature.gpu\n" + 3 * "0, GPU-00000000-aaaa-4bbb-8ccc-000000000000, 40\n",
                   "nvidia-smi --query-gpu")
    assert reading.known["gpu_count"] == 1


def test_a_gap_in_the_indexes() -> None:
    reading = only("index, name\n0, NVIDIA L40S\n2, NVIDIA L40S\n", "nvidia-smi --query-gpu")
    assert reading.known["missing_indexes"] == [1]
    assert reading.refused


# --- joined


def test_texts_of_one_node_are_joined_by_what_they_share() -> None:
    """The table knows indexes and addresses, -L UUIDs and indexes, /proc minors and addresses."""
    reversed_minors = Made(TRAY.driver, TRAY.cuda, tuple(replace(g, minor=3 - (g.index or 0)) for g in TRAY.gpus))
    parts: list[Part] = []
    for text in (texts.as_table(reversed_minors), texts.as_list(reversed_minors), texts.as_proc(reversed_minors),
                 texts.as_nvlink(TRAY)):
        for reading in readings(text):
            part = part_of(reading)
            assert part is not None
            parts.append(part)
    node = merge("node", parts)
    assert [(g.index, g.pci, g.minor, g.uuid, g.device_file, g.nvlinks_active) for g in node.gpus] == [
        (g.index, g.pci, g.minor, g.uuid, f"/dev/nvidia{g.minor}", 18) for g in reversed_minors.gpus]
    assert not node.problems


def test_no_devices_before_a_list_is_another_run() -> None:
    row, none = "GPU 0: Tesla T4 (UUID: GPU-5a3c1f00-0000-4000-8000-000000000001)\n", "No devices were found\n"
    (before,) = nvidia_list.read(Document("x", lines=tuple((none + row).split("\n"))))
    assert [finding.note for finding in before.findings if "No devices" in finding.what] == [True]
    (after,) = nvidia_list.read(Document("x", lines=tuple((row + none).split("\n"))))
    assert [finding.note for finding in after.findings if "No devices" in finding.what] == [False]


def test_two_documents_in_one_text() -> None:
    lines = (texts.as_xml(TRAY) + "node2:\n" + texts.as_xml(TRAY)).split("\n")
    found = nvidia_smi.read(Document("both", "xml", tuple(lines)))
    assert [reading.known["gpu_count"] for reading in found] == [4, 4]


def test_versions_without_the_remark_behind_them() -> None:
    text = ("==============NVSMI LOG==============\n\nDriver Version : 610.10 [Deprecated; use KMD Version instead]\n"
            "CUDA Version : 13.3 [Deprecated; use CUDA UMD Version instead]\nKMD Version : 610.10\n\n"
            "Attached GPUs : 1\nGPU 00000000:01:00.0\n    Product Name : NVIDIA H200\n    Minor Number : 0\n"
            "    GPU Power Readings\n        GPU Ceiling Power Limit\n            Current Power Limit : 650.00 W\n"
            "    Processes : None\n")
    known = only(text, "nvidia-smi -q").known
    assert (known["driver"], known["cuda"], known["gpus"][0]["power_limit_w"]) == ("610.10", "13.3", 650)


def test_a_header_of_all_columns() -> None:
    more = [f"clocks_event_reasons_counters.some_long_reason_{n}" for n in range(200)]
    head = ", ".join(["index", "name", "dramEncryption.mode.current", "power_smoothing.window [seconds]", *more])
    row = ", ".join(["0", "NVIDIA H200", "[Requested functionality has been deprecated]", "1", *["0"] * 200])
    assert len(head) > 8000
    assert only(f"{head}\n{row}\n", "nvidia-smi --query-gpu").known["gpus"][0]["name"] == "NVIDIA H200"


def test_a_shortened_uuid_is_none() -> None:
    text = "GPU 0: NVIDIA H200 (UUID: GPU-9bd75b6b-cd91-...)\n  MIG 3g.71gb  Device  0: (UUID: MIG-744060a1-...)\n"
    known = only(text, "nvidia-smi -L").known
    assert (known["gpus"][0]["uuid"], known["mig"][0]["uuid"]) == (None, None)
    links = "GPU 0: NVIDIA H200 (UUID: ...)\n" + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
    assert only(links, "nvidia-smi nvlink -s").known["gpus"][0]["uuid"] is None


@pytest.mark.parametrize("name", ["GRID P4-2Q", "NVIDIA A10-6Q", "NVIDIA H100-4-20C", "GRID V100D-8Q"])
def test_names_of_vgpus(name: str) -> None:
    found = only(f"GPU 0: {name} (UUID: GPU-00000000-0000-0000-0000-000000000001)\n", "nvidia-smi -L")
    assert any("a slice and not a whole GPU" in finding.what for finding in found.findings)


def test_what_the_kernel_says_is_the_kernels() -> None:
    (found,) = readings("kernel: NVRM: GPU at 0000:44:00.0 has fallen off the bus.\n"
                        "kernel: NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.\n")
    assert (found.kind, {error["pci"] for error in found.known["errors"]}) == ("dmesg", {"0000:44:00.0"})


def test_a_table_of_windows_is_refused_and_one_of_wsl_is_noted() -> None:
    head = "| NVIDIA-SMI 550.1      Driver Version: 550.1  CUDA Version: 12.4 |\n"
    rows = ("|   0  NVIDIA RTX A4000   WDDM | 00000000:01:00.0 Off |   Off |\n"
            "| 41%   40C   P8   9W / 140W |  10MiB / 16376MiB |   0%   Default |\n| Processes: |\n")
    assert "WDDM" in only(head + rows, "nvidia-smi").refused
    wsl = only(head.replace("550.1 ", "545.2 ", 1) + rows.replace("WDDM", "On  "), "nvidia-smi")
    assert not wsl.refused and any("WSL" in finding.what for finding in wsl.findings)


def test_other_xml_with_gpu_elements_is_not_nvidia_smis() -> None:
    assert not nvidia_smi.read(Document("x", "xml", ("<algo>", '<gpu id="0" i_chunks="8">', "</gpu>", "</algo>")))


def test_a_corrupted_inforom_belongs_to_its_table() -> None:
    text = ("| NVIDIA-SMI 550.1      Driver Version: 550.1  CUDA Version: 12.4 |\n"
            "|   0  NVIDIA RTX A4000   On   | 00000000:01:00.0 Off |   Off |\n"
            "| 41%   40C   P8   9W / 140W |  10MiB / 16376MiB |   0%   Default |\n| Processes: |\n+----+\n"
            "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n")
    (found,) = readings(text)
    assert (found.known["errors"][0]["pci"], found.known["gpu_count"]) == ("0000:01:00.0", 1)
    (alone,) = readings("WARNING: infoROM is corrupted at gpu 0000:01:00.0\n")
    assert (alone.kind, alone.known["gpus"], alone.refused) == ("nvidia-smi error", None, "")


@pytest.mark.parametrize("width", [30, 44, 52, 60, 64])
def test_a_table_wrapped_at_a_column_is_read_like_the_whole(width: int) -> None:
    text = ("| NVIDIA-SMI 550.1      Driver Version: 550.1  CUDA Version: 12.4 |\n| MIG M. |\n"
            "|   0  NVIDIA H200        On   | 00000000:01:00.0 Off |          0 |\n"
            "| 41%   40C   P8   9W / 700W   |   10MiB / 143771MiB  |   0%  Default |\n"
            "|                              |                      |     Disabled |\n| Processes: |\n")
    wrapped = "\n".join(line[at:at + width] for line in text.splitlines() for at in (0, width) if line[at:at + width])
    whole, found = only(text, "nvidia-smi"), only(wrapped, "nvidia-smi")
    assert found.missing or found.known == whole.known
    assert not whole.missing and bool(found.missing) == (width in (30, 44, 52))     # where a | begins the rest

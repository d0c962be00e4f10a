"""hpcadmin-health: NVIDIA GPUs by nvidia-smi and by the kernel's log, and the false verdicts to avoid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import kernel, load, nvidia, watch
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN, NoAnswer
from hpcadmin.health.node.checks import gpu_nvlink, gpu_pcie, gpu_throttle, gpu_xid
from hpcadmin.health.node.door import Door
from hpcadmin.health.node.kernel import Record
from tests.health_machine import Machine, address, smi_xml

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
SMI = CORPUS / "topo" / "smi"
KERNEL = CORPUS / "outputs" / "kernel"
BUS = [f"0000:{address(n).lower()}:00.0" for n in range(8)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    for place in BUS:
        found.gpu_on_bus(place)
    found.gpu_on_bus("0000:02:00.0", vendor="0x1a03", kind="0x030000")  # the board's own graphics
    return found


def look(
    machine: Machine, check_name: str, kept: dict[str, Any] | None = None, /, **params: Any
) -> tuple[str, str, bool]:
    check = load.named(check_name)
    door = Door(str(machine.root), last=kept)
    findings = watch.look(check, door, check.take(params))
    if kept is not None:
        kept.update(door.kept)
    status, reason, _ = watch.judged(findings)
    return status, reason, any(one.own for one in findings)


def said(machine: Machine, out: str, status: int = 0, err: str = "") -> None:
    machine.tool("nvidia-smi", out, status, err)


# are they all there


def test_all_there(machine: Machine) -> None:
    said(machine, smi_xml(8))
    assert look(machine, "gpu", count=8, model="*H100*", min_memory_mib=81000) == (GOOD, "", False)
    assert look(machine, "gpu") == (GOOD, "", False)


def test_one_is_gone_from_the_bus(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for place in BUS[:7]:
        machine.gpu_on_bus(place)
    said(machine, smi_xml(7))
    assert look(machine, "gpu", count=8) == (BAD, "7 GPUs of 8, 7 on the PCI bus", True)
    assert look(machine, "gpu", min=8) == (BAD, "7 GPUs of 8, 7 on the PCI bus", True)
    assert look(machine, "gpu", min=7) == (GOOD, "", False)
    assert look(machine, "gpu") == (GOOD, "", False)


def test_one_does_not_answer(machine: Machine) -> None:
    said(machine, smi_xml(7))
    assert look(machine, "gpu") == (BAD, "7 GPUs of 8, no answer from 0000:db:00.0", True)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("err_device-handle_lost_old.txt", "GPU is lost"),
        ("err_fallen-off-bus.txt", "fallen off the bus"),
        ("err_no-devices_fedora.txt", "Unknown Error"),
        ("err_device-handle_newstyle.txt", "GPU1: 0000:34:00.0: Unknown Error"),
    ],
)
def test_what_nvidia_smi_says_of_a_lost_gpu(machine: Machine, name: str, words: str) -> None:
    said(machine, (SMI / name).read_text(), status=15)
    status, reason, own = look(machine, "gpu", count=8)
    assert (status, own) == (BAD, True)
    assert words in reason or "fallen off the bus" in reason


def test_a_complaint_before_the_xml(machine: Machine) -> None:
    said(
        machine,
        "Unable to determine the device handle for GPU0000:DB:00.0: Unknown Error\n"
        + smi_xml(7).replace("<attached_gpus>7", "<attached_gpus>8"),
    )
    status, reason, own = look(machine, "gpu", count=8)
    assert (status, own) == (BAD, True)
    assert "GPU lost: Unable to determine the device handle for GPU0000:DB:00.0" in reason
    assert look(machine, "gpu_ecc")[0] == GOOD  # those that answer are judged


@pytest.mark.parametrize(
    ("status", "err", "result", "own"),
    [
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", BAD, False),
        (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", BAD, False),
        (8, "", BAD, True),
        (2, "Invalid combination of input arguments.", UNKNOWN, False),
        (4, "Insufficient Permissions", UNKNOWN, False),
        (1, "", UNKNOWN, False),
    ],
)
def test_exit_statuses(machine: Machine, status: int, err: str, result: str, own: bool) -> None:
    said(machine, "", status, err)
    assert look(machine, "gpu", count=8)[::2] == (result, own)
    assert look(machine, "gpu_ecc")[0] == UNKNOWN


def test_no_devices_is_the_driver_as_long_as_the_bus_has_them(machine: Machine) -> None:
    said(machine, "No devices were found\n", 6)
    assert look(machine, "gpu", count=8)[::2] == (BAD, False)


@pytest.mark.parametrize(
    "out",
    [
        "",
        "garbage",
        "<?xml version='1.0'?><nvidia_smi_log><gpu",
        smi_xml(8)[:9000],
        smi_xml(7).replace("<attached_gpus>7", "<attached_gpus>8"),
    ],
)
def test_what_cannot_be_read_is_unknown(machine: Machine, out: str) -> None:
    said(machine, out)
    for name in ("gpu", "gpu_ecc", "gpu_pcie", "gpu_temperature", "gpu_throttle", "gpu_fabric", "gpu_driver"):
        assert look(machine, name)[0] == UNKNOWN, name


def test_a_driver_that_hangs_is_unknown(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = machine.root / "asked"
    machine.tool("nvidia-smi", script=f"echo x >>{asked}; sleep 30")
    monkeypatch.setattr(nvidia, "TIMEOUT_S", 0.2)
    assert look(machine, "gpu") == (UNKNOWN, "nvidia-smi did not answer in 0.2 s", False)
    door = Door(str(machine.root))
    asked.unlink(missing_ok=True)
    for name in ("gpu", "gpu_nvlink", "gpu_nvlink_errors", "gpu_ecc"):
        check = load.named(name)
        assert watch.judged(watch.look(check, door, check.take({})))[0] == UNKNOWN
    assert not asked.exists() or asked.read_text() == "x\n"         # one time-out for all


def test_a_node_without_gpus_needs_no_nvidia_smi(tmp_path: Path) -> None:
    assert look(Machine(tmp_path), "gpu") == (GOOD, "", False)
    assert look(Machine(tmp_path), "gpu", count=8)[0] == UNKNOWN
    assert look(Machine(tmp_path), "gpu", min=1) == (BAD, "no GPU on the PCI bus, expected at least 1", False)


def test_it_is_asked_once_for_all_checks(machine: Machine) -> None:
    machine.tool("nvidia-smi", smi_xml(8), script=f"echo x >> {machine.root}/asked")
    door = Door(str(machine.root))
    for name in ("gpu", "gpu_ecc", "gpu_pcie"):
        check = load.named(name)
        check.run(door, check.take({}))
    assert (machine.root / "asked").read_text() == "x\n"


# how they are

PROCESS = "<process_info><pid>{}</pid><type>C</type><process_name>{}</process_name></process_info>"


@pytest.mark.parametrize(
    ("check", "changes", "words", "own"),
    [
        ("gpu_ecc", {"uncorrectable": {3: "2"}}, "GPU 0000:5d:00.0 has 2 uncorrected memory errors", True),
        ("gpu_ecc", {"pending": {0: "Yes"}}, "waits to be remapped", True),
        ("gpu_ecc", {"failure": {0: "Yes"}}, "must be replaced", True),
        ("gpu_ecc", {"correctable": "100000"}, "", False),
        ("gpu_pcie", {"width": {1: "8x"}}, "PCIe link of GPU 0000:3b:00.0 is 8x wide, expected 16x", True),
        ("gpu_pcie", {"gen": {1: "4"}}, "runs at generation 4, expected 5", True),
        ("gpu_pcie", {"gen": "1", "state": "P8"}, "", False),
        ("gpu_pcie", {"gen": "1", "idle": "Active"}, "", False),
        ("gpu_pcie", {"gen": "N/A", "width": "N/A"}, "", False),
        ("gpu_temperature", {"temp": {7: "88 C"}}, "GPU 0000:db:00.0 has 88 C, limit 87", False),
        ("gpu_temperature", {"temp": "N/A"}, "", False),
        ("gpu_throttle", {"thermal": {2: "Active"}}, "GPU 0000:4c:00.0 is slowed down: hw_thermal_slowdown", False),
        ("gpu_throttle", {"idle": "Active"}, "", False),
        ("gpu_fabric", {"fabric": {0: "Not Started"}, "status": {0: "N/A"}}, "fabric Not Started", False),
        ("gpu_fabric", {"status": {0: "Insufficient Resources"}}, "status Insufficient Resources", False),
        ("gpu_fabric", {"fabric": "N/A", "status": "N/A"}, "", False),
        ("gpu", {"reset": {4: "Yes"}}, "GPU 0000:9b:00.0 needs a reset", True),
        (
            "gpu",
            {"temp": {4: "[Unknown Error]"}, "state": {4: "[Unknown Error]"}},
            "GPU 0000:9b:00.0 does not answer",
            True,
        ),
        ("gpu", {"temp": {4: "GPU is lost"}}, "GPU 0000:9b:00.0 does not answer: gpu_temp is GPU is lost", True),
        ("gpu", {"processes": {4: PROCESS.format(1, "ERR!") + PROCESS.format(2, "GPU is lost")}}, "", False),
    ],
)
def test_one_thing_is_wrong(machine: Machine, check: str, changes: dict[str, Any], words: str, own: bool) -> None:
    said(machine, smi_xml(8, **changes))
    status, reason, is_own = look(machine, check)
    assert (status, is_own) == (BAD if words else GOOD, own), reason
    assert words in reason


def test_a_single_gap_of_the_driver_is_unknown(machine: Machine) -> None:
    said(machine, smi_xml(8, temp={4: "[Unknown Error]"}))
    assert look(machine, "gpu") == (UNKNOWN, "GPU 0000:9b:00.0: gpu_temp is Unknown Error", False)


def test_limits_of_the_site(machine: Machine) -> None:
    said(machine, smi_xml(8, temp="60 C", width="8x", state="P8", gen="1"))
    assert look(machine, "gpu_temperature", max_c=60)[0] == BAD
    assert look(machine, "gpu_temperature", max_memory_c=40)[0] == BAD
    assert look(machine, "gpu_pcie", width=8)[0] == GOOD  # bought with eight lanes
    assert look(machine, "gpu_pcie", width=8, gen=6)[1].startswith("PCIe link of GPU 0000:19:00.0 can do generation 5")
    assert look(machine, "gpu_driver", driver="550.*", ecc="Enabled", persistence="Enabled", vbios="96.*")[0] == GOOD
    assert look(machine, "gpu_driver", driver="560.*")[1] == "NVIDIA driver 550.90.07, expected 560.*"
    assert look(machine, "gpu_driver", compute="Exclusive_Process")[1].endswith("expected Exclusive_Process (8 GPUs)")
    said(machine, smi_xml(8, fabric="In Progress", temp="N/A"))
    assert look(machine, "gpu_fabric")[0] == UNKNOWN
    assert look(machine, "gpu_temperature", max_c=60)[0] == UNKNOWN
    assert look(machine, "gpu", model="*B200*")[::2] == (BAD, False)


def test_processes_left_on_gpus(machine: Machine) -> None:
    machine.process(50, "python", "python train.py")
    machine.process(60, "slurmstepd")
    machine.process(61, "python", "python other.py", parent=60)
    said(
        machine,
        smi_xml(8, processes={2: PROCESS.format(61, "python") + PROCESS.format(7, "/usr/bin/nvidia-persistenced")}),
    )
    assert look(machine, "gpu_processes") == (GOOD, "", False)
    said(machine, smi_xml(8, processes={2: PROCESS.format(50, "python") + PROCESS.format(61, "python")}))
    status, reason, _ = look(machine, "gpu_processes")
    assert status == BAD
    assert reason.startswith("1 process left on GPUs: python (50)")
    assert reason.endswith("on 0000:4c:00.0")
    assert look(machine, "gpu_processes", jobs=False)[1].startswith("2 processes left")


@pytest.mark.corpus
@pytest.mark.parametrize("path", sorted(SMI.glob("xml_*.xml")), ids=lambda path: path.name)
def test_real_machines_are_judged_without_a_false_alarm(path: Path, tmp_path: Path) -> None:
    """Desktop cards, laptops, servers, of several generations of drivers."""
    text = re.sub(
        r"<attached_gpus>\d+", lambda found: f"<attached_gpus>{path.read_text().count('<gpu id=')}", path.read_text()
    )
    smi = nvidia.parse(text, "", 0)
    assert smi.gpus
    machine = Machine(tmp_path)
    machine.process(1, "init")
    for gpu in smi.gpus:
        machine.gpu_on_bus(gpu.address)
    said(machine, text)
    for name in ("gpu", "gpu_ecc", "gpu_temperature", "gpu_throttle", "gpu_fabric", "gpu_driver"):
        status, reason, own = look(machine, name)
        assert (status, own) == (GOOD, False), (name, reason)


@pytest.mark.corpus
def test_pcie_of_real_machines() -> None:
    """A link at generation 1 of a GPU at rest is no fault."""
    for path in sorted(SMI.glob("xml_*.xml")):
        text = path.read_text()
        for gpu in nvidia.parse(
            text.replace("<attached_gpus>4", "<attached_gpus>1") if "a100" in path.name else text, "", 0
        ).gpus:
            gen, newest = (gpu.number(gpu_pcie.LINK + f"pcie_gen/{name}_link_gen") for name in ("current", "max"))
            if gen is not None and newest is not None and gen < newest:
                assert not gpu_pcie.is_awake(gpu), (path.name, gpu.raw("performance_state"))


def test_reasons_in_both_generations_of_words() -> None:
    for prefix in ("clocks_event_reason", "clocks_throttle_reason"):
        xml = smi_xml(1, thermal="Active").replace("clocks_event_reason", prefix)
        assert gpu_throttle.active(nvidia.parse(xml, "", 0).gpus[0]) == ["hw_thermal_slowdown"]


# NVLink


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "links", "down"),
    [
        ("nvlink-s_a100x8_azure.txt", 12, 0),
        ("nvlink-s_2x-a100pcie_inactive.txt", 0, 0),
        ("nvlink-s_a10_empty.txt", None, 0),
    ],
)
def test_links_of_real_machines(name: str, links: int | None, down: int) -> None:
    found = gpu_nvlink.parse((SMI / name).read_text())
    assert {len(speeds) for _, speeds, _ in found} == ({links} if links is not None else set())
    assert sum(one for _, _, one in found) == down


LINKS = "GPU {}: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n" + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))


def test_nvlinks(machine: Machine) -> None:
    whole = "".join(LINKS.format(n) for n in range(8))
    said(machine, whole)
    assert look(machine, "gpu_nvlink", links=18, min_gb_s=26) == (GOOD, "", False)
    assert look(machine, "gpu_nvlink", min_gb_s=50)[::2] == (BAD, True)
    said(machine, whole.replace("Link 3: 26.562 GB/s", "Link 3: <inactive>", 1))
    assert look(machine, "gpu_nvlink", links=18) == (BAD, "GPU 0 has 17 NVLinks up of 18", True)
    assert look(machine, "gpu_nvlink") == (BAD, "GPU 0 has 1 NVLinks down", True)
    said(machine, "")
    assert look(machine, "gpu_nvlink", links=18)[::2] == (BAD, False)
    assert look(machine, "gpu_nvlink")[0] == GOOD
    said(machine, whole.replace("Link 3: 26.562 GB/s", "Link 3: what", 1))
    assert look(machine, "gpu_nvlink")[0] == UNKNOWN
    said(machine, whole, status=9)
    assert look(machine, "gpu_nvlink")[0] == UNKNOWN


ERRORS = (
    "GPU 0: NVIDIA A100 (UUID: x)\n\t Link 0: Replay Errors: {}\n"
    "\t Link 0: Recovery Errors: 0\n\t Link 1: CRC Errors: N/A\n"
)


def test_errors_of_nvlinks(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    for number, status in ((5000, GOOD), (5050, GOOD), (5500, BAD)):
        said(machine, ERRORS.format(number))
        assert look(machine, "gpu_nvlink_errors", kept)[0] == status
    assert look(machine, "gpu_nvlink_errors", kept)[1] == (
        "GPU 0 Link 0 Replay Errors grew by 500 in 60 min, more than 100"
    )


# the kernel's log


def records(text: str) -> list[Record]:
    return [Record(n, float(n), 3, line) for n, line in enumerate(text.splitlines())]


def opened(text: str, ignore: list[float] | None = None) -> list[tuple[str, int]]:
    events = [one for one in map(gpu_xid.event, records(text)) if one]
    return [(one.address, one.code) for one in gpu_xid.open_events(events, gpu_xid.CODES, ignore or [])]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("xid13_oom_dmesg_decode_iso.log", set()),
        ("xid13_no_time.txt", set()),
        ("xid31_thread_tag.txt", set()),
        ("xid43_engmask.txt", set()),
        ("xid109_two_processes_and_iso.txt", set()),
        ("xid38_syslog_trailing_comma.txt", set()),
        ("xid119_gsp_rpc_timeout_dmesg_T.log", {("0000:9b:00.0", 119)}),
        ("xid74_kernel_prefix.txt", {("0000:c1:00.0", 74)}),
        ("xid48_dbe_two_formats.txt", {("0000:8a:00.0", 48), ("0000:07:00.0", 48)}),
        ("xid64_94_sxid_imbue.txt", {("0000:0f:00.0", 64)}),
        ("xid145_short.txt", set()),
        ("fabricmanager_sxid_nonfatal.log", set()),
        ("kmsg_raw_peermem_invalid_context.log", set()),
        (
            "xid154_recovery_action.txt",
            {("0009:01:00.0", 154), ("0019:01:00.0", 154), ("0018:01:00.0", 154), ("0008:01:00.0", 154)},
        ),
        (
            "xid144_150_nvlink5_lines.txt",
            {("0019:01:00.0", 149), ("0008:01:00.0", 149), ("0018:01:00.0", 149), ("0009:01:00.0", 149)},
        ),
        (
            "sxid_nvswitch_lines.txt",
            {("0000:00:00.0", 20034), ("0000:05:00.0", 20034), ("0000:06:00.0", 20034), ("0000:07:00.0", 20034)},
        ),
        ("clean_boot_aws_dmesg.txt", set()),
    ],
)
def test_xids_of_real_machines(name: str, expected: set[tuple[str, int]]) -> None:
    assert set(opened((KERNEL / name).read_text())) == expected


@pytest.mark.corpus
def test_off_the_bus_without_an_xid() -> None:
    lines = (SMI / "dmesg_fallen-off_no-xid.txt").read_text().splitlines()
    message = "\\x0a".join(line.partition("] ")[2] or line.strip() for line in lines[:4])
    one = kernel.records(f"3,700,1843308145,-;{message}\n")
    events = [event for event in map(gpu_xid.event, one) if event]
    assert [(event.address, event.kind) for event in events] == [("0000:b3:00.0", "lost")]


def test_a_reset_ends_what_was_before() -> None:
    lost = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus."
    reset = "NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    other = "NVRM: Xid (PCI:0000:3b:00): 48, DBE"
    assert opened("\n".join((lost, reset))) == []
    assert opened("\n".join((other, lost, reset))) == [("0000:3b:00.0", 48)]
    assert opened("\n".join((reset, lost))) == [("0000:9b:00.0", 79)]
    assert opened(lost, ignore=[79]) == []


def test_xids_on_a_node(machine: Machine) -> None:
    machine.kernel_log("NVRM: Xid (PCI:0000:9b:00): 31, pid=7, name=x, MMU Fault")
    assert look(machine, "gpu_xid") == (GOOD, "", False)
    machine.kernel_log(*["NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."] * 5)
    assert look(machine, "gpu_xid") == (BAD, "0000:9b:00.0: Xid 79 GPU has fallen off the bus.", True)
    assert look(machine, "gpu_xid", ignore=[79])[0] == GOOD
    assert look(machine, "gpu_xid", window_h=0.1)[0] == GOOD
    machine.kernel_log("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up")
    assert look(machine, "gpu_xid")[::2] == (BAD, False)


def test_an_xid_that_the_ring_buffer_lost_is_remembered_until_the_next_boot(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    machine.kernel_log("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", seconds=10)
    assert look(machine, "gpu_xid", kept)[0] == BAD
    machine.kernel_log("usb 1-1: new device", first=90000)
    assert look(machine, "gpu_xid", kept)[0] == BAD
    assert look(machine, "gpu_xid", kept)[0] == BAD
    machine.file("/proc/sys/kernel/random/boot_id", "another\n")
    assert look(machine, "gpu_xid", kept)[0] == GOOD


@pytest.mark.parametrize(
    "line",
    [
        "Xid (PCI:0000:9b:00): 79, from a user",
        "NVRM: Xid (PCI:0000:9b:00) 79",
        "NVRM: Xid (): x, y",
        "NVRM: Xid (PCI",
        "NVRM: Xid",
    ],
)
def test_lines_that_are_no_xid(line: str) -> None:
    assert gpu_xid.event(Record(1, 1.0, 3, line)) is None


def test_addresses() -> None:
    assert nvidia.address("00000000:1B:00.0") == "0000:1b:00.0"
    assert nvidia.address("0009:01:00.0") == "0009:01:00.0"
    assert nvidia.address("000F:01:00.0") == "000f:01:00.0"


def test_output_that_was_cut_is_unknown() -> None:
    with pytest.raises(NoAnswer):
        nvidia.parse(smi_xml(1), "", 0, cut=True)


# complaints, and what hides behind silence


def test_a_complaint_by_exit_status_beside_whole_xml_is_not_lost(machine: Machine) -> None:
    said(machine, smi_xml(8), 14, "WARNING: infoROM is corrupted at gpu 0000:3B:00.0")
    assert look(machine, "gpu", count=8) == (BAD, "nvidia-smi: the infoROM of a GPU is corrupted", True)
    assert look(machine, "gpu_ecc")[0] == GOOD  # what the GPUs say of themselves stands
    said(machine, smi_xml(8), 139)
    assert look(machine, "gpu", count=8) == (
        UNKNOWN, "nvidia-smi: it ended with status 139: it said nothing more", False)


def test_the_bus_tells_of_a_lost_gpu_also_where_nvidia_smi_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    for place in BUS[:7]:
        machine.gpu_on_bus(place)
    machine.tool("nvidia-smi", script="sleep 30")
    monkeypatch.setattr(nvidia, "TIMEOUT_S", 0.2)
    assert look(machine, "gpu", count=8) == (BAD, "7 GPUs of 8 on the PCI bus", True)
    assert look(machine, "gpu", count=7)[::2] == (UNKNOWN, False)
    assert look(machine, "gpu")[::2] == (UNKNOWN, False)


def test_gpus_given_to_virtual_machines_are_not_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for place in BUS:
        machine.gpu_on_bus(place)
    for place in BUS[4:]:
        machine.link(f"/sys/bus/pci/devices/{place}/driver", "../../../bus/pci/drivers/vfio-pci")
    said(machine, smi_xml(4))
    assert look(machine, "gpu") == (GOOD, "", False)
    assert look(machine, "gpu", count=8)[::2] == (BAD, False)
    assert look(machine, "gpu", count=9)[::2] == (BAD, True)


def test_a_gpu_that_does_not_tell_its_memory_is_unknown(machine: Machine) -> None:
    said(machine, smi_xml(8).replace("<total>81559 MiB", "<total>N/A", 1))
    assert look(machine, "gpu", count=8, min_memory_mib=80000) == (
        UNKNOWN, "GPU 0000:19:00.0 does not tell how much memory it has", False)


ECC = "</ecc_errors>"


@pytest.mark.parametrize(
    ("was", "becomes", "words", "verdict"),
    [
        ("<dram_uncorrectable>0<", "<dram_uncorrectable>Unknown Error<", "tell dram_uncorrectable", (UNKNOWN, False)),
        ("_row_failure>No<", "_row_failure>[Unknown Error]<", "tell remapped_row_failure", (UNKNOWN, False)),
        ("<aggregate>", "<aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded>", "its SRAM", (BAD, True)),
        (ECC, "<unrepairable_memory>Yes</unrepairable_memory>" + ECC, "cannot be repaired", (BAD, True)),
        (ECC, "<tpc_repair_pending>Yes</tpc_repair_pending>" + ECC, "repair waits (tpc)", (BAD, True)),
        (ECC, "<tpc_repair_pending>No</tpc_repair_pending>" + ECC, "", (GOOD, False)),
    ],
)
def test_memory_that_fails_in_the_words_of_newer_drivers(
    machine: Machine, was: str, becomes: str, words: str, verdict: tuple[str, bool]
) -> None:
    said(machine, smi_xml(8).replace(was, becomes, 1))
    found, reason, own = look(machine, "gpu_ecc")
    assert (found, own) == verdict
    assert words in reason

"""hpcadmin-health, kernel log, clock, disks, modules, drift: good, bad, unknown, and the false verdicts to avoid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import adjtimex, inventory, kernel, load, smbios, watch
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN, NoAnswer
from hpcadmin.health.node.checks import disk, dmi, drift, kernel_log, mce
from hpcadmin.health.node.door import Door
from tests import smbios_dump
from tests.health_looks import look, run
from tests.health_machine import Machine

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# kernel log


def test_kernel_log_of_this_machine_can_be_read() -> None:
    try:
        found = kernel.read("/dev/kmsg")
    except NoAnswer:
        pytest.skip("this user may not read it")
    assert all(one.level < 8 for one in found)


@pytest.mark.parametrize(
    "line", ["", "x", "6,1,2", "a,b,c,-;x", "14,1,2,-;written by a program", "6,1;x", " SUBSYSTEM=pci"]
)
def test_what_the_kernel_did_not_say_is_left_out(line: str) -> None:
    assert kernel.records(line) == []


def test_kernel_log(machine: Machine) -> None:
    machine.kernel_log(
        "EXT4-fs (sda1): Remounting filesystem read-write", "EDAC i10nm: Giving out device", "usb 1-1: new device"
    )
    assert run(machine, "kernel_log") == (GOOD, "")
    machine.kernel_log(
        "nfs: server head OK",
        "EXT4-fs (md0): Remounting filesystem read-only",
        "task x blocked for more than 120 seconds",
        "I/O error, dev sr0, sector 0",
    )
    status, reason = run(machine, "kernel_log")
    assert status == BAD
    assert "Remounting filesystem read-only" in reason
    assert "sr0" not in reason
    assert run(machine, "kernel_log", without=["*read-only*", "*blocked*"]) == (GOOD, "")
    assert run(machine, "kernel_log", window_h=0.1) == (GOOD, "")  # 1000 s before now
    assert run(machine, "kernel_log", lines=["*sr0*"])[0] == BAD
    assert run(machine, "kernel_log", level=2) == (GOOD, "")


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "troubles"),
    [
        ("clean_boot_aws_dmesg.txt", 0),
        ("clean_boot_gcp_dmesg.txt", 0),
        ("kmsg_raw_nvswitch.log", 0),
        ("disk_nvme_fs_errors.txt", 13),
        ("aer_dpc_fatal_sdes.txt", 2),
        ("mlx5_power_access_reg_lines.txt", 10),
        ("os_dmesg_iso.log", 0),
        ("nccl_segfault_dmesg_iso.log", 0),
    ],
)
def test_kernel_logs_of_real_machines(name: str, troubles: int) -> None:
    text = (CORPUS / "outputs" / "kernel" / name).read_text()
    found = kernel_log.trouble(text.splitlines(), [])
    assert len(found) == troubles, found


def test_machine_checks(machine: Machine) -> None:
    grave, corrected, _ = mce.sorted_out(
        [
            "mce: [Hardware Error]: Machine check events logged",
            "mce: CPU supports 32 MCE banks",
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bd80000000100134",
            "EDAC MC0: 1 CE memory read error on CPU0",
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 9c00004000010093",
            "EDAC MC0: 1 UE memory read error on CPU0",
            "[Hardware Error]: Corrected error, no action required.",
            "Memory failure: 0x1234: recovery action for dirty page: Recovered",
            "[Hardware Error]: Uncorrected, software restartable error.",
        ]
    )
    assert (len(grave), len(corrected)) == (4, 3)
    machine.kernel_log("EDAC MC0: 1 UE memory read error on CPU0")
    assert look(machine, "mce") == (BAD, "EDAC MC0: 1 UE memory read error on CPU0", True)


def test_without_a_kernel_log_nothing_is_known(machine: Machine) -> None:
    for name in ("mce", "kernel_log", "gpu_xid"):
        assert run(machine, name)[0] == UNKNOWN


# time, disks, boards


@pytest.mark.parametrize(
    ("state", "offset", "error", "status", "expected"),
    [
        (0, 1500, 20000, 0x2001, (True, 0.0015, 20.0)),
        (0, 1500, 20000, 0x1, (True, 1.5, 20.0)),
        (5, 0, 16000000, 0x40, (False, 0.0, 16000.0)),
        (0, -3000000, 0, 0x2000, (True, -3.0, 0.0)),
    ],
)
def test_the_kernels_word_on_the_clock(
    state: int, offset: int, error: int, status: int, expected: tuple[bool, float, float]
) -> None:
    clock = adjtimex.clock(state, offset, error, status)
    assert (clock.synchronised, clock.offset_ms, clock.error_ms) == expected


def test_time(machine: Machine) -> None:
    check = load.named("time")

    def result(*clock: Any, **params: Any) -> tuple[str, str]:
        door = Door(str(machine.root))
        door.once("adjtimex", lambda: adjtimex.Clock(*clock))
        return watch.judged(watch.look(check, door, check.take(params)))[:2]

    assert result(True, 0.5, 20.0) == (GOOD, "")
    assert result(False, 0.0, 16000.0) == (BAD, "the clock is not synchronised")
    assert result(True, -300.0, 20.0)[0] == BAD
    assert result(True, 0.0, 9000.0)[0] == BAD
    assert result(False, 0.0, 16000.0, synchronised=False) == (GOOD, "")
    assert run(machine, "time")[0] == UNKNOWN
    assert adjtimex.read().error_ms >= 0


SMARTCTL = {
    "smart_status": {"passed": True},
    "temperature": {"current": 40},
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "percentage_used": 5,
        "available_spare": 100,
        "available_spare_threshold": 10,
        "media_errors": 0,
    },
}


def test_disks(machine: Machine) -> None:
    machine.file("/sys/class/nvme/nvme0/model", "X\n")
    assert run(machine, "disk") == (UNKNOWN, "nvme is not installed")
    machine.tool("smartctl", json.dumps(SMARTCTL))
    assert run(machine, "disk", min=1) == (GOOD, "")
    worn = json.loads(json.dumps(SMARTCTL))
    worn["nvme_smart_health_information_log"].update(
        percentage_used=97, available_spare=5, critical_warning=1, media_errors=44
    )
    machine.tool("smartctl", json.dumps(worn), status=8)
    status, reason, own = look(machine, "disk")
    assert (status, own) == (BAD, True)
    for words in ("says that it fails (warning 0x01)", "worn to 97 %", "5 % of its spare blocks", "44 media errors"):
        assert words in reason
    machine.tool("smartctl", "{}", status=2)
    assert run(machine, "disk")[0] == UNKNOWN
    machine.tool("smartctl", "no json")
    assert run(machine, "disk")[0] == UNKNOWN
    assert run(machine, "disk", device="sd*", min=1)[0] == BAD


def test_disks_of_the_two_tools_tell_the_same() -> None:
    one = disk.from_nvme(
        {
            "critical_warning": 0,
            "temperature": 313,
            "avail_spare": 100,
            "spare_thresh": 10,
            "percent_used": 5,
            "media_errors": 0,
        }
    )
    other = disk.from_smartctl(SMARTCTL)
    assert (one.wear, one.spare, one.media, one.celsius) == (other.wear, other.spare, other.media, other.celsius)
    ata = disk.from_smartctl(
        {
            "smart_status": {"passed": False},
            "ata_smart_attributes": {
                "table": [{"id": 197, "value": 100, "raw": {"value": 8}}, {"id": 198, "value": 1, "raw": {"value": 8}},
                          {"id": 231, "name": "Temperature_Celsius", "value": 5, "raw": {"value": 40}},
                          {"id": 231, "name": "SSD_Life_Left", "value": 70, "raw": {"value": 0}}]
            },
        }
    )
    assert (ata.passed, ata.media, ata.wear) == (False, 8, 30)


MODULES = [
    smbios_dump.Module(f"DIMM_{n}", size_mib=65536, speed=5600, configured=4800, maker="M", serial=f"S{n}", part="P")
    for n in range(15)
] + [smbios_dump.Module("DIMM_15")]


def dmi_tables() -> bytes:
    return (
        smbios_dump.system("Vendor", "Model 9", "SER1")
        + smbios_dump.memory(MODULES)
        + smbios_dump.structure(127, 0x7F00, b"", [])
    )


def test_memory_modules(machine: Machine) -> None:
    assert run(machine, "dimms")[0] == UNKNOWN
    machine.file(smbios.TABLE, dmi_tables())
    assert run(machine, "dimms", count=15, total_gib=960, size_gib=64, min_mts=4800) == (GOOD, "")
    assert look(machine, "dimms", count=16) == (BAD, "15 memory modules of 16", True)
    assert run(machine, "dimms", min_mts=5600)[1].startswith("memory module DIMM_0 runs at 4800 MT/s")
    assert run(machine, "dimms", total_gib=1024)[0] == BAD


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_a_table_that_is_cut_off_breaks_nothing(cut: int) -> None:
    smbios.dimms(smbios.structures(dmi_tables()[:cut]))


def test_dmi_as_dmidecode_prints_it(machine: Machine, tmp_path: Path) -> None:
    if not smbios_dump.DMIDECODE:
        pytest.skip("dmidecode is not installed")
    text = smbios_dump.decoded(tmp_path, smbios_dump.system("Vendor", "Model 9", "SER1") + smbios_dump.memory(MODULES))
    machine.tool("dmidecode", text)
    assert "System Information: Product Name: Model 9" in dmi.decoded(text)
    assert run(machine, "dmi", lines=["System Information: Product Name: Model*", "!*Serial Number: SER2"]) == (
        GOOD,
        "",
    )
    assert run(machine, "dmi", lines=["System Information: Serial Number: SER2"])[0] == BAD
    assert run(machine, "dmi", raw=["*Locator: DIMM_3"]) == (GOOD, "")
    machine.tool("dmidecode", "/dev/mem: Permission denied\n", status=1)
    assert run(machine, "dmi", lines=["x"])[0] == UNKNOWN


# drift


def node(machine: Machine) -> dict[str, Any]:
    machine.cpus(2, 4, 2)
    machine.file("/proc/cpuinfo", "processor : 0\nmodel name : CPU X\nmicrocode : 0x1\n")
    machine.file(smbios.TABLE, dmi_tables())
    for address in ("0000:19:00.0", "0000:3b:00.0"):
        machine.gpu_on_bus(address)
        machine.file(
            f"/proc/driver/nvidia/gpus/{address}/information",
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{address}\nVideo BIOS: \t ??.??.??\n",
        )
    machine.port("mlx5_0")
    machine.file("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n")
    return json.loads(json.dumps(inventory.collect(Door(str(machine.root)))))  # type: ignore[no-any-return]


def test_drift(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    accepted = node(machine)
    assert accepted["pci.0000:19:00.0.width"] == 16
    assert "gpu.0000:19:00.0.vbios" not in accepted
    path = tmp_path_factory.mktemp("etc") / "accepted.json"
    path.write_text(json.dumps(accepted))
    assert run(machine, "drift", accepted=str(path)) == (GOOD, "")
    machine.file("/sys/bus/pci/devices/0000:3b:00.0/current_link_width", "8\n")
    machine.file("/sys/class/infiniband/mlx5_0/fw_ver", "28.40.1000\n")
    machine.meminfo(500 << 20)
    status, reason, own = look(machine, "drift", accepted=str(path))
    assert (status, own) == (BAD, True)
    for words in (
        "pci.0000:3b:00.0.width is 8, was 16",
        "ib.mlx5_0.firmware is 28.40.1000, was 28.39.1002",
        "memory.mib is 512000, was 524288",
    ):
        assert words in reason
    assert run(machine, "drift", accepted=str(path), ignore=["pci.*", "ib.*", "memory.*"]) == (GOOD, "")
    assert run(machine, "drift", accepted=str(path.with_name("none.json")))[0] == UNKNOWN
    path.write_text(json.dumps({"nodes": {"gpu001": accepted}}))
    assert run(machine, "drift", accepted=str(path))[0] == BAD
    path.write_text(json.dumps({"nodes": {"gpu002": accepted}}))
    assert run(machine, "drift", accepted=str(path))[0] == UNKNOWN


@pytest.mark.parametrize(
    ("was", "now", "words", "own"),
    [
        ({"gpu.a.uuid": "1", "gpu.b.uuid": "2"}, {"gpu.a.uuid": "1"}, "gpu.b.uuid is gone (was 2)", False),
        ({"pci.a.id": "1", "pci.b.id": "2"}, {"pci.a.id": "1"}, "pci.b.id is gone (was 2)", True),
        ({"pci.a.width": 16, "pci.a.id": "1"}, {"pci.a.id": "1"}, "pci.a.width is not told now (was 16)", False),
        ({"pci.a.speed": 32000}, {"pci.a.speed": 16000}, "pci.a.speed is 16000, was 32000", True),
        ({"dimm.a.mib": 1, "dimm.b.mib": 1}, {"dimm.a.mib": 1}, "dimm.b.mib is gone (was 1)", True),
        ({"cpu.cores": 8}, {"cpu.cores": 16}, "cpu.cores is 16, was 8", False),
        ({"gpu.a.uuid": "1"}, {"gpu.a.uuid": "3"}, "gpu.a.uuid is 3, was 1", False),
        ({"gpu.a.uuid": "1"}, {"gpu.a.uuid": "1", "gpu.b.uuid": "2"}, "gpu.b.uuid is new: 2", False),
        ({"gpu.a.uuid": "1"}, {"gpu.a.uuid": "1", "net.eth9.mac": "x"}, "", False),
        ({"bios.version": "1"}, {}, "bios.version is gone (was 1)", False),
        ({"memory.mib": 1000}, {"memory.mib": 995}, "", False),
        ({"memory.mib": 515000}, {"memory.mib": 509000}, "memory.mib is 509000, was 515000", False),
        ({"memory.mib": 1000}, {"memory.mib": 900}, "memory.mib is 900, was 1000", True),
    ],
)
def test_what_changed_is_told(was: dict[str, Any], now: dict[str, Any], words: str, own: bool) -> None:
    found = drift.differences(was, now, [])
    assert [one.reason for one in found if one.reason] == ([words] if words else [])
    assert any(one.own for one in found) is own


# clocks, AMD


def test_clocks(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    machine.cpus(2, 2, 1)
    for cpu in range(4):
        place = f"/sys/devices/system/cpu/cpu{cpu}/"
        machine.file(place + "cpufreq/scaling_governor", "performance\n" if cpu else "powersave\n")
        machine.file(place + "topology/physical_package_id", f"{cpu // 2}\n")
        machine.file(place + "thermal_throttle/package_throttle_count", "1000\n")
    assert run(machine, "cpu_clock", kept, 0) == (GOOD, "")
    assert run(machine, "cpu_clock", governor="performance") == (
        BAD,
        "the clock of 1 CPUs is governed by powersave, expected performance",
    )
    machine.file("/sys/devices/system/cpu/cpu2/thermal_throttle/package_throttle_count", "2000\n")
    assert run(machine, "cpu_clock", kept, 60) == (BAD, "CPU package 1 was slowed down by heat 1000 times in 60 min")


def test_amd_gpus(machine: Machine) -> None:
    assert run(machine, "gpu_amd") == (GOOD, "")
    for number, place in enumerate(("0000:05:00.0", "0000:26:00.0")):
        machine.gpu_on_bus(place, vendor="0x1002", kind="0x120000")
        machine.file(f"/sys/bus/pci/devices/{place}/max_link_width", "16\n")
        machine.file(f"/sys/bus/pci/devices/{place}/ras/umc_err_count", "ue: 0\nce: 12\n")
        machine.link(f"/sys/class/drm/renderD{128 + number}/device", f"../../../bus/pci/devices/{place}")
    assert look(machine, "gpu_amd", count=2) == (GOOD, "", False)
    assert look(machine, "gpu_amd", count=4) == (BAD, "2 AMD GPUs of 4 run, 2 on the PCI bus", True)
    machine.file("/sys/bus/pci/devices/0000:26:00.0/ras/umc_err_count", "ue: 3\nce: 0\n")
    assert look(machine, "gpu_amd") == (BAD, "AMD GPU 0000:26:00.0 has 3 uncorrected errors (umc)", True)
    machine.file("/sys/bus/pci/devices/0000:05:00.0/current_link_width", "8\n")
    assert "PCIe link of AMD GPU 0000:05:00.0 is 8x wide" in run(machine, "gpu_amd")[1]
    assert look(machine, "gpu_amd", vbios="113-*", max_uncorrected=9, width=8)[::2] == (BAD, False)


def test_amd_gpus_given_to_virtual_machines_are_not_lost(machine: Machine) -> None:
    for place in ("0000:05:00.0", "0000:26:00.0"):
        machine.gpu_on_bus(place, vendor="0x1002", kind="0x120000")
        machine.link(f"/sys/bus/pci/devices/{place}/driver", "../../../bus/pci/drivers/vfio-pci")
    assert look(machine, "gpu_amd") == (GOOD, "", False)
    assert look(machine, "gpu_amd", count=2)[::2] == (BAD, False)

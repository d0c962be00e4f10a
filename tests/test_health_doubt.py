"""hpcadmin-health: what is cut off, contradictory or somebody's wish is no fault; what is silent is not good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import adjtimex, inventory, smbios
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN
from hpcadmin.health.node.checks import mce, pcie_errors
from hpcadmin.health.node.door import Door
from hpcadmin.health.node.main import main
from hpcadmin.health.node.state import still_hung
from tests import smbios_dump
from tests.health_looks import look, run
from tests.health_machine import Machine, smi_xml


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_cpus_that_were_switched_off_are_no_broken_ones(machine: Machine) -> None:
    machine.cpus(2, 8, 1)
    assert look(machine, "cpu", threads=32)[::2] == (BAD, False)        # SMT is off
    assert look(machine, "cpu", cores=8)[::2] == (BAD, False)           # more than expected
    assert look(machine, "cpu", sockets=4)[::2] == (BAD, True)
    machine.cpus(2, 8, 1, offline=(3,))
    assert look(machine, "cpu", cores=16)[::2] == (BAD, False)
    assert look(machine, "cpu", offline=0)[::2] == (BAD, False)


@pytest.mark.parametrize("text", ["", "7\n", "x\n", "0-99999999\n"])
def test_lists_of_cpus_that_contradict_are_unknown(machine: Machine, text: str) -> None:
    machine.cpus(1, 4, 1)
    machine.file("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", text)
    machine.file("/sys/devices/system/cpu/cpu2/topology/core_siblings_list", text)
    assert run(machine, "cpu", cores=4, sockets=1)[0] == UNKNOWN


@pytest.mark.parametrize("lacking", ["SwapTotal", "SwapFree", "MemFree", "Cached"])
def test_a_line_that_meminfo_lacks_is_not_zero(machine: Machine, lacking: str) -> None:
    machine.meminfo(1 << 20, swap_kib=1 << 20)
    text = (machine.root / "proc/meminfo").read_text()
    machine.file("/proc/meminfo", "".join(line + "\n" for line in text.splitlines() if not line.startswith(lacking)))
    name = "swap" if lacking.startswith("Swap") else "memory_free"
    params: dict[str, Any] = {} if name == "swap" else {"free": "cached"}
    assert run(machine, name, min_free_mib=1, **params) == (UNKNOWN, f"/proc/meminfo has no {lacking}")


def test_memory_and_swap(machine: Machine) -> None:
    assert run(machine, "swap", min_free_percent=10) == (GOOD, "")      # there is none
    machine.meminfo(511 << 20)
    assert look(machine, "memory", min_mib=512 << 10)[::2] == (BAD, False)   # the kernel's own share
    machine.meminfo(480 << 20)
    assert look(machine, "memory", min_mib=512 << 10)[::2] == (BAD, True)
    machine.meminfo(62 << 20)
    assert look(machine, "memory", min_mib=64 << 10)[::2] == (BAD, False)    # no module is that small


@pytest.mark.parametrize("name", ["ue_count", "ce_count", "dimm0/dimm_ue_count", "dimm0/dimm_ce_count"])
def test_an_error_counter_without_a_number_is_not_zero(machine: Machine, name: str) -> None:
    place = "/sys/devices/system/edac/mc/mc0/"
    for one in ("ue_count", "ce_count", "ue_noinfo_count", "dimm0/dimm_ue_count", "dimm0/dimm_ce_count"):
        machine.file(place + one, "0\n")
    assert run(machine, "edac") == (GOOD, "")
    machine.file(place + name, "")
    assert run(machine, "edac") == (UNKNOWN, f"{place}{name} has no number")


END = smbios_dump.structure(127, 0x7F00, b"", [])
FOUR = smbios_dump.memory([smbios_dump.Module(f"D{n}", size_mib=1024, speed=1) for n in range(4)])


def test_dimms_of_a_table_that_is_cut_off_are_not_lost(machine: Machine) -> None:
    machine.file(smbios.TABLE, FOUR + END)
    assert run(machine, "dimms", count=4) == (GOOD, "")
    assert look(machine, "dimms", count=5)[::2] == (BAD, True)
    assert look(machine, "dimms", count=3)[::2] == (BAD, False)
    for cut in range(1, len(FOUR), 7):
        machine.file(smbios.TABLE, FOUR[:cut])
        assert not look(machine, "dimms", count=4)[2] or smbios.whole(FOUR[:cut])
    machine.file(smbios.TABLE, FOUR.replace(b"\x00\x04\x00", b"\xff\xff\x00", 1) + END)
    assert smbios.unsized(smbios.structures(FOUR)) == 0


def test_drift_takes_what_cannot_be_read_for_unknown(machine: Machine, tmp_path_factory: pytest.TempPathFactory,
                                                     ) -> None:
    machine.cpus(2, 4, 1)
    machine.file("/proc/cpuinfo", "model name : X\n")
    machine.file(smbios.TABLE, FOUR + END)
    machine.gpu_on_bus("0000:19:00.0")
    machine.file("/proc/driver/nvidia/gpus/0000:19:00.0/information", "Model: X\n")
    for slot, name in (("0000:01:00.0", "nvme0"), ("0000:02:00.0", "nvme1")):
        machine.file(f"/sys/class/nvme/{name}/address", slot + "\n")
        machine.file(f"/sys/class/nvme/{name}/serial", f"S{slot}\n")
    machine.file("/sys/class/nvme/nvme2/transport", "tcp\n")
    machine.file("/sys/class/nvme/nvme2/serial", "a server's\n")
    path = tmp_path_factory.mktemp("etc") / "accepted.json"
    path.write_text(json.dumps(inventory.collect(Door(str(machine.root)))))
    assert "server" not in path.read_text()
    machine.file("/sys/class/nvme/nvme0/address", "0000:02:00.0\n")      # they changed names
    machine.file("/sys/class/nvme/nvme0/serial", "S0000:02:00.0\n")
    machine.file("/sys/class/nvme/nvme1/address", "0000:01:00.0\n")
    machine.file("/sys/class/nvme/nvme1/serial", "S0000:01:00.0\n")
    machine.gpu_on_bus("0000:19:00.1")                                   # a virtual function
    machine.file("/sys/bus/pci/devices/0000:19:00.1/physfn", "")
    assert run(machine, "drift", accepted=str(path)) == (GOOD, "")
    machine.file("/sys/bus/pci/devices/0000:19:00.0/current_link_width", "63\n")
    (machine.root / "proc/driver/nvidia/gpus/0000:19:00.0/information").unlink()
    (machine.root / "proc/driver/nvidia/gpus/0000:19:00.0").rmdir()      # no driver
    assert look(machine, "drift", accepted=str(path))[::2] == (BAD, False)
    machine.file(smbios.TABLE, FOUR[:50])
    (machine.root / "sys/devices/system/cpu/online").unlink()
    status, reason, own = look(machine, "drift", accepted=str(path), ignore=["gpu.*", "pci.*"])
    assert (status, own) == (UNKNOWN, False)
    assert "cpu cannot be read: " in reason and "dimm cannot be read: " in reason and "gone" not in reason


@pytest.mark.parametrize(("said", "expected"), [
    (("C0A80001,ntp,3,1700000000.1,0.000012,0.1,0.1,-5.1,0.0,0.1,0.01,0.002,64.0,Normal\n", 0, ""), GOOD),
    (("C0A80001,ntp,3,1700000000.1,-0.5,0.1,0.1,-5.1,0.0,0.1,0.01,0.002,64.0,Normal\n", 0, ""), BAD),
    (("7F7F0101,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n", 0, ""), BAD),
    (("", 1, "506 Cannot talk to daemon\n"), UNKNOWN),
    (("C0A80001,ntp,3,x,junk,,,,,,,,,Normal\n", 0, ""), UNKNOWN),
])
def test_chrony_without_rtcsync(machine: Machine, monkeypatch: pytest.MonkeyPatch, said: tuple[str, int, str],
                                expected: str) -> None:
    """The kernel's mark stays "not synchronised" there, for ever."""
    monkeypatch.setattr(adjtimex, "read", lambda root: adjtimex.Clock(False, 0.0, 16000.0))
    assert run(machine, "time") == (BAD, "the clock is not synchronised")
    machine.process(1, "systemd")
    machine.tool("chronyc", *said)
    assert run(machine, "time")[0] == BAD                                # chronyd does not run: nobody's clock
    machine.process(9, "chronyd")
    assert run(machine, "time")[0] == expected


LINKS = "GPU {}: NVIDIA A100 (UUID: GPU-0)\n{}"
OFF = "Unable to retrieve NVLink information as all links are inActive\n"


def test_gpus_that_mig_has_divided_have_no_nvlinks(machine: Machine) -> None:
    up = "".join(f"\t Link {n}: 25 GB/s\n" for n in range(12))
    nvlinks = LINKS.format(0, OFF) + LINKS.format(1, up)

    def says(xml: str) -> None:
        machine.file("/xml", xml)
        machine.file("/links", nvlinks)
        root = machine.root
        machine.tool("nvidia-smi", script=f'[ "$1" = nvlink ] && exec cat {root}/links\nexec cat {root}/xml')

    says(smi_xml(2))
    assert look(machine, "gpu_nvlink", links=12) == (BAD, "GPU 0 has 0 NVLinks up of 12", True)
    says(smi_xml(2).replace("<current_mig>Disabled", "<current_mig>Enabled", 1))
    assert look(machine, "gpu_nvlink", links=12) == (GOOD, "", False)


def test_memory_errors_that_are_not_told_are_not_none(machine: Machine) -> None:
    told = smi_xml(1, uncorrectable="N/A", correctable="N/A")
    machine.tool("nvidia-smi", told.replace(">0</sram_", ">N/A</sram_"))
    assert run(machine, "gpu_ecc")[0] == UNKNOWN
    machine.tool("nvidia-smi", smi_xml(1))
    assert run(machine, "gpu_ecc") == (GOOD, "")


def test_a_driver_that_does_not_fit_its_library_is_bad(machine: Machine) -> None:
    machine.gpu_on_bus("0000:19:00.0")
    machine.tool("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch\n", 18)
    assert look(machine, "gpu")[::2] == (BAD, False)


def test_a_gpu_that_is_a_virtual_machines_is_not_lost(machine: Machine) -> None:
    machine.gpu_on_bus("0000:19:00.0")
    machine.gpu_on_bus("0000:3b:00.0")
    machine.tool("nvidia-smi", smi_xml(1))
    assert look(machine, "gpu")[::2] == (BAD, True)
    machine.link("/sys/bus/pci/devices/0000:3b:00.0/driver", "../../bus/pci/drivers/vfio-pci")
    assert run(machine, "gpu") == (GOOD, "")


def test_a_process_that_has_ended_is_not_left_on_a_gpu(machine: Machine) -> None:
    machine.process(1, "systemd")
    told = "<process_info><pid>{}</pid><type>C</type><process_name>python</process_name></process_info>"
    machine.tool("nvidia-smi", smi_xml(1, processes=told.format(4242)))
    assert run(machine, "gpu_processes") == (GOOD, "")
    door = Door(str(machine.root))
    assert [one.pid for one in door.processes()] == [1]
    machine.process(4242, "python")                                      # it began after /proc was read
    assert run(machine, "gpu_processes")[0] == BAD


@pytest.mark.parametrize("state", ["", "4:\n", "\n"])
def test_a_port_that_tells_no_state_is_unknown(machine: Machine, state: str) -> None:
    machine.port("mlx5_0")
    machine.file("/sys/class/infiniband/mlx5_0/ports/1/state", state)
    assert run(machine, "ib")[0] == UNKNOWN
    machine.interface("eth0")
    machine.file("/sys/class/net/eth0/operstate", "")
    assert run(machine, "link", name="eth0")[0] == UNKNOWN


def test_a_silent_disk_hides_no_broken_one(machine: Machine) -> None:
    for name in ("nvme0", "nvme1"):
        machine.file(f"/sys/class/nvme/{name}/serial", "x\n")
    broken = json.dumps({"smart_status": {"passed": False}})
    machine.tool("smartctl", script=f"[ \"$4\" = /dev/nvme0 ] && exit 2\necho '{broken}'")
    status, reason, own = look(machine, "disk")
    assert (status, own) == (BAD, True) and "nvme1" in reason


@pytest.mark.parametrize("status", [126, 127, 137])
def test_a_command_that_cannot_be_started_says_nothing(machine: Machine, status: int) -> None:
    machine.tool("probe", "", status, "error while loading shared libraries: libx.so")
    assert run(machine, "command", argv=["probe"])[0] == UNKNOWN
    assert run(machine, "command", argv=["probe"], status=[status]) == (GOOD, "")


def test_a_parameter_that_means_nothing_is_told_as_such(machine: Machine) -> None:
    for name, params in (("ping", {"host": ""}), ("ping", {"host": "-x"}), ("command", {"argv": []})):
        status, reason = run(machine, name, **params)
        assert status == UNKNOWN and reason.startswith("configuration: ")


def test_questions_that_a_device_does_not_know_are_no_faults() -> None:
    text = "Undefined 0\nDLP 0\nUnsupReq 7\nTOTAL_ERR_NONFATAL 7\n"
    assert pcie_errors.totalled(text) == 0
    assert pcie_errors.totalled(text.replace("DLP 0", "DLP 2")) == 2
    assert pcie_errors.totalled("") is None


def test_errors_that_firmware_reports() -> None:
    """Grace, and any machine whose firmware comes first (GHES). What is of the boot before (BERT) is over."""
    lines = ["{%d}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
             "{%d}[Hardware Error]: event severity: %s", "{%d}[Hardware Error]:  Error 0, type: %s",
             "{%d}[Hardware Error]:   section_type: %s"]

    def log(number: int, severity: str, section: str) -> list[str]:
        return [lines[0] % number, lines[1] % (number, severity), lines[2] % (number, severity),
                lines[3] % (number, section)]

    assert mce.sorted_out(log(1, "corrected", "memory error")) == ([], ["memory error, corrected"], [])
    assert mce.sorted_out(log(12, "recoverable", "memory error")) == (["memory error, recoverable"], [], [])
    assert mce.sorted_out(log(3, "recoverable", "PCIe error")) == ([], [], [])
    assert mce.sorted_out(["BERT: Error records from previous boot:", "[Hardware Error]: event severity: fatal",
                           "[Hardware Error]:   section_type: memory error"])[0] == []


@pytest.mark.parametrize("junk", [
    {"memory": [1]}, {"hung": [1], "memory": 3}, {"memory": {"kswapd cpu": {"time": "x", "cpu_s": 3}}},
    {"hung": {"swap": {"pid": 1}}, "memory": {"gpu_xid events": {"boot": "x", "events": 3}}}])
def test_a_state_that_somebody_spoiled_is_forgotten(tmp_path: Path, junk: dict[str, Any],
                                                    capfd: pytest.CaptureFixture[str]) -> None:
    state, conf = tmp_path / "state", tmp_path / "h.json"
    state.mkdir(mode=0o700)
    conf.write_text(json.dumps({"check": [{"use": "swap"}, {"use": "kswapd"}]}))
    (state / "health.json").write_text(json.dumps({"schema": 1, **junk}))
    (state / "health.json").chmod(0o600)
    assert main(["--state", str(state), "--config", str(conf)]) == 0
    assert capfd.readouterr().out == "good: 2 checks\n"
    assert isinstance(json.loads((state / "health.json").read_text())["memory"], dict)
    assert still_hung({"hung": {"a": {"pid": 1, "start": 0}}}) == {}

"""hpcadmin-health: what was never measured is not good, and what was measured over another time is not bad by that."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import drain, load, masks, smbios, tool, watch, window
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN, NoAnswer
from hpcadmin.health.node.checks import drift, kernel_log, mce
from hpcadmin.health.node.door import MAX_TEXT, Door
from hpcadmin.health.node.main import main, write_new
from tests import smbios_dump
from tests.health_looks import look, run
from tests.health_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# counters


def grow(kept: dict[str, Any], now: float, values: dict[str, int]) -> dict[str, int] | None:
    door = Door("/nonexistent", last=kept)
    door.now = lambda: now  # type: ignore[method-assign]
    found = window.grown(door, "k", values, 3600)
    kept.update(json.loads(json.dumps(door.kept)))
    return found


def test_a_counter_that_comes_later_is_not_grown_by_all_that_it_counted_before() -> None:
    kept: dict[str, Any] = {}
    assert grow(kept, 0, {"a": 5}) is None
    assert grow(kept, 60, {"a": 5, "b": 5000}) == {"a": 0, "b": 0}      # its driver was loaded anew
    assert grow(kept, 120, {"a": 5, "b": 5007}) == {"a": 0, "b": 7}


def test_a_look_once_a_night_is_measured_by_the_hour() -> None:
    kept: dict[str, Any] = {}
    assert grow(kept, 0, {"a": 0, "b": 0, "c": 0}) is None
    assert grow(kept, 86400, {"a": 2400, "b": 1, "c": 0}) == {"a": 100, "b": 1, "c": 0}
    assert grow(kept, 86400 + 3700, {"a": 2450, "b": 1, "c": 0}) == {"a": 50, "b": 0, "c": 0}


COUNTING = ("ib_errors", "net_errors", "pcie_errors", "edac", "kswapd")


def counting(machine: Machine) -> None:
    machine.port("mlx5_0")
    machine.interface("eth0")
    machine.process(1, "systemd")
    place = "/sys/devices/system/edac/mc/mc0/"
    for one in ("ue_count", "ce_count"):
        machine.file(place + one, "0\n")
    for one in ("correctable", "nonfatal", "fatal"):
        machine.file(f"/sys/bus/pci/devices/0000:1b:00.0/aer_dev_{one}", "RxErr 0\n")


@pytest.mark.parametrize("name", COUNTING)
def test_where_nothing_is_remembered_nothing_is_known_to_grow(machine: Machine, name: str) -> None:
    counting(machine)
    door = Door(str(machine.root))
    check = load.named(name)
    assert watch.judged(check.run(door, check.take({})))[0] == GOOD
    door.forgetful = "not recorded: /x: Read-only file system"
    assert watch.judged(check.run(door, check.take({})))[:2] == (
        UNKNOWN, "growth cannot be seen: not recorded: /x: Read-only file system")


def test_a_state_folder_of_somebody_else_is_told_by_the_checks_that_need_it(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_to_all, conf = tmp_path / "state", tmp_path / "h.json"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    conf.write_text(json.dumps({"check": [{"use": "kswapd"}, {"use": "swap"}]}))
    assert main(["--state", str(open_to_all), "--config", str(conf)]) == 3
    assert capfd.readouterr().out.startswith("unknown: kswapd: growth cannot be seen: not recorded: ")


@pytest.mark.parametrize(("name", "path", "reason"), [
    ("ib_errors", "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "mlx5_0:1 symbol_error has no number"),
    ("net_errors", "/sys/class/net/eth0/statistics/rx_crc_errors", "eth0 rx_crc_errors has no number"),
    ("pcie_errors", "/sys/bus/pci/devices/0000:1b:00.0/aer_dev_fatal",
     "0000:1b:00.0 does not tell its fatal PCIe errors"),
])
def test_a_counter_without_a_number_is_unknown(machine: Machine, name: str, path: str, reason: str) -> None:
    counting(machine)
    machine.file(path, "\n")
    assert run(machine, name) == (UNKNOWN, reason)


def test_a_device_that_has_no_counters_was_not_measured(machine: Machine) -> None:
    for name in ("ib_errors", "net_errors", "pcie_errors"):
        assert run(machine, name) == (GOOD, "")          # there is none of the kind at all
        assert run(machine, name, device="nothing")[0] == UNKNOWN
    machine.file("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    assert run(machine, "ib_errors") == (UNKNOWN, "no counter of the ports *")
    machine.tool("nvidia-smi", "GPU 0: NVIDIA A100 (UUID: x)\n")
    assert run(machine, "gpu_nvlink_errors") == (
        UNKNOWN, "nvidia-smi nvlink -e tells of no counter *Replay*, *Recovery*, *CRC*")


# what is there, and says nothing


def test_a_port_of_no_known_kind_is_unknown_not_missing(machine: Machine) -> None:
    machine.port("mlx5_0")
    machine.port("mlx5_1", state="1: DOWN")
    machine.file("/sys/class/infiniband/mlx5_1/ports/1/link_layer", "")
    assert run(machine, "ib", device="mlx5_1", ignore=[])[0] == BAD
    machine.file("/sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE")
    assert run(machine, "ib") == (UNKNOWN, "port mlx5_1:1 does not tell what kind it is")


def test_an_interface_that_does_not_tell_is_unknown(machine: Machine) -> None:
    machine.interface("eth0")
    machine.file("/sys/class/net/eth0/mtu", "")
    machine.file("/sys/class/net/eth0/duplex", "unknown\n")
    assert run(machine, "link", name="eth0", mtu=9000) == (UNKNOWN, "interface eth0 tells no MTU")
    assert run(machine, "link", name="eth0", duplex="full") == (
        UNKNOWN, "interface eth0 does not tell whether it is duplex")


def test_of_a_file_that_is_too_large_nothing_is_concluded(machine: Machine) -> None:
    machine.file("/proc/net/tcp", b"x" * (MAX_TEXT + 1))
    with pytest.raises(NoAnswer, match="larger than 8 MiB"):
        Door(str(machine.root)).text("/proc/net/tcp")
    assert run(machine, "socket", local_port=22)[0] == UNKNOWN


# nobody's fault


def test_memory_of_a_gpu_is_no_module_that_was_lost(machine: Machine) -> None:
    """Grace Hopper: 96 GiB of the GPU count as the node's as long as its driver is loaded."""
    machine.meminfo(480 << 20)
    assert look(machine, "memory", min_mib=576 << 10)[::2] == (BAD, True)
    machine.file("/sys/devices/system/node/online", "0-8\n")
    machine.file("/sys/devices/system/node/has_cpu", "0\n")
    assert look(machine, "memory", min_mib=576 << 10)[::2] == (BAD, False)


def test_drift_knows_of_cpus_that_somebody_switched_off(machine: Machine, tmp_path_factory: pytest.TempPathFactory,
                                                       ) -> None:
    path = tmp_path_factory.mktemp("etc") / "accepted.json"
    path.write_text(json.dumps({"cpu.cores": 16, "memory.mib": 576 << 10}))
    machine.file("/proc/cpuinfo", "processor : 0\n")
    machine.meminfo(576 << 20)
    machine.cpus(2, 4, 1)
    assert look(machine, "drift", accepted=str(path), ignore=["cpu.[st]*"])[::2] == (BAD, True)
    assert look(machine, "cpu", cores=16)[::2] == (BAD, True)
    machine.file("/proc/cmdline", "root=/dev/sda1 nr_cpus=8\n")
    assert look(machine, "drift", accepted=str(path), ignore=["cpu.[st]*"])[::2] == (BAD, False)
    assert look(machine, "cpu", cores=16)[::2] == (BAD, False)
    machine.file("/proc/cmdline", "root=/dev/sda1\n")
    machine.cpus(2, 8, 1, offline=(3,))
    assert look(machine, "drift", accepted=str(path), ignore=["cpu.[st]*"])[::2] == (BAD, False)


def test_a_link_that_sleeps_is_not_gone() -> None:
    was: dict[str, object] = {"pci.a.id": "1", "pci.a.width": 16}
    assert watch.judged(drift.differences(was, {"pci.a.id": "1"}, []))[0] == UNKNOWN
    assert watch.judged(drift.differences(was, {"pci.b.id": "1"}, []))[0] == BAD


def test_modules_of_no_known_size_are_not_lost_by_their_sum(machine: Machine) -> None:
    table = smbios_dump.memory([smbios_dump.Module(f"D{n}", size_mib=1024, speed=1) for n in range(4)])
    end = smbios_dump.structure(127, 0x7F00, b"", [])
    size = (1024).to_bytes(2, "little")
    machine.file(smbios.TABLE, table + end)
    assert look(machine, "dimms", total_gib=5)[::2] == (BAD, True)
    at = table.find(size, table.find(b"\x11", 20))
    machine.file(smbios.TABLE, table[:at] + b"\xff\xff" + table[at + 2:] + end)
    assert look(machine, "dimms", total_gib=4)[::2] == (UNKNOWN, False)


def test_a_record_of_firmware_whose_beginning_is_lost_is_unknown(machine: Machine) -> None:
    machine.kernel_log("{7}[Hardware Error]:   section_type: memory error")
    assert look(machine, "mce")[::2] == (UNKNOWN, False)
    lines = ["{7}[Hardware Error]:  Error 0, type: corrected", "{7}[Hardware Error]:   section_type: memory error"]
    assert mce.sorted_out(lines) == ([], ["memory error, corrected"], [])


def test_a_server_that_is_back_is_over() -> None:
    lines = ["nfs: server a not responding, still trying", "nfs: server b not responding, still trying"]
    assert len(kernel_log.trouble(lines, [])) == 2
    assert kernel_log.trouble([*lines, "nfs: server a OK"], []) == [("nfs: server", lines[1])]
    assert len(kernel_log.trouble(["nfs: server a OK", *lines], [])) == 2


def test_a_drive_without_a_disk_is_no_disk(machine: Machine) -> None:
    machine.file("/sys/block/sda/removable", "1\n")
    machine.file("/sys/block/sda/size", "0\n")
    assert run(machine, "disk") == (GOOD, "")
    machine.file("/sys/block/sda/size", "1000\n")
    assert run(machine, "disk")[0] == UNKNOWN


# what users can make believe


@pytest.mark.skipif(os.geteuid() != 0, reason="gives processes to users")
def test_a_name_and_a_cgroup_of_their_own_make_no_job(machine: Machine) -> None:
    machine.process(20, "slurmstepd")
    machine.process(21, "miner", parent=20)
    machine.process(22, "miner", cgroup="0::/user.slice/user-5001.slice/user@5001.service/slurm/job_1/x\n")
    for pid in (20, 21, 22):
        os.chown(machine.root / "proc" / str(pid), 5001, 0)
    assert run(machine, "users")[1].startswith("3 processes of 5001 without a job")
    os.chown(machine.root / "proc/20", 0, 0)
    assert run(machine, "users") == (GOOD, "")


# time, sizes, a full disk


def test_a_file_of_the_future_is_not_young(machine: Machine) -> None:
    path = machine.file("/beat", "x")
    assert run(machine, "file", path="/beat", max_age_s=60) == (GOOD, "")
    os.utime(path, (time.time() + 7200,) * 2)
    assert run(machine, "file", path="/beat", max_age_s=60)[0] == UNKNOWN


def test_a_long_line_is_looked_at_to_its_end(machine: Machine) -> None:
    machine.file("/log", "x" * 10000 + " ERROR " + "x" * 10000)
    for mask in ("*ERROR*", "/ERR.R/", "*ERR?R*"):
        assert run(machine, "contents", path="/log", without=[mask])[0] == BAD
        assert masks.matches(mask, "x" * 10000 + "ERROR")


def test_half_a_file_of_results_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "out.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_new(str(tmp_path / "out.json"), "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


# other machines' texts


TOPOLOGY = "/sys/devices/system/cpu"


@pytest.mark.parametrize(("total", "package", "core", "expected"), [
    (288, lambda n: n // 72, lambda n: [n], (4, 288, 288)),                                       # Grace, 4 of them
    (160, lambda n: n // 80, lambda n: [n], (2, 160, 160)),                                       # Ampere Altra
    (176, lambda n: n // 88, lambda n: list(range(n // 4 * 4, n // 4 * 4 + 4)), (2, 44, 176)),    # POWER9, SMT4
], ids=["grace", "altra", "power9"])
def test_cpus_of_other_architectures(machine: Machine, total: int, package: Any, core: Any,
                                     expected: tuple[int, int, int]) -> None:
    for name in ("online", "present"):
        machine.file(f"{TOPOLOGY}/{name}", f"0-{total - 1}\n")
    for cpu in range(total):
        sockets = [n for n in range(total) if package(n) == package(cpu)]
        place = f"{TOPOLOGY}/cpu{cpu}/topology/"
        for name, members in (("package_cpus_list", sockets), ("core_siblings_list", sockets),
                              ("core_cpus_list", core(cpu)), ("thread_siblings_list", core(cpu))):
            machine.file(place + name, f"{members[0]}-{members[-1]}\n" if len(members) > 1 else f"{cpu}\n")
    cpus = Door(str(machine.root)).cpus()
    assert (cpus.sockets, cpus.cores, cpus.threads) == expected
    assert run(machine, "cpu", sockets=expected[0], cores=expected[1], threads=expected[2], offline=0) == (GOOD, "")


def test_power_with_its_threads_switched_off(machine: Machine) -> None:
    """ppc64_cpu --smt=1: one of four threads is online, of every core."""
    online = list(range(0, 176, 4))
    machine.file(f"{TOPOLOGY}/present", "0-175\n")
    machine.file(f"{TOPOLOGY}/online", ",".join(map(str, online)) + "\n")
    for cpu in online:
        mine = [n for n in online if n // 88 == cpu // 88]
        machine.file(f"{TOPOLOGY}/cpu{cpu}/topology/core_siblings_list", ",".join(map(str, mine)) + "\n")
        machine.file(f"{TOPOLOGY}/cpu{cpu}/topology/thread_siblings_list", f"{cpu}\n")
    cpus = Door(str(machine.root)).cpus()
    assert (cpus.sockets, cpus.cores, cpus.threads, len(cpus.offline)) == (2, 44, 44, 132)
    assert look(machine, "cpu", threads=176)[::2] == (BAD, False)


MEMINFO = """MemTotal:       502126592 kB
MemFree:        400000000 kB
MemAvailable:   410000000 kB
Buffers:            1000 kB
Cached:          2000000 kB
SwapTotal:             0 kB
SwapFree:              0 kB
HugePages_Total:     512
HugePages_Free:      512
HugePages_Rsvd:        0
HugePages_Surp:        0
Hugepagesize:     524288 kB
Hugetlb:        268435456 kB
"""


def test_memory_with_huge_pages_of_512_mib(machine: Machine) -> None:
    machine.file("/proc/meminfo", MEMINFO)
    assert run(machine, "memory", min_mib=490000, max_mib=491000) == (GOOD, "")
    assert run(machine, "memory_free", min_free_percent=81) == (GOOD, "")
    assert run(machine, "memory_free", min_free_percent=82)[0] == BAD


# reports about comparable tools


@pytest.mark.parametrize(("text", "state", "reason"), [
    ("NodeName=a State=MIXED+DRAIN Reason=x y [root@2026-07-25T12:00:00]", ["MIXED", "DRAIN"], "x y"),
    ("NodeName=a State=IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED", [
        "IDLE", "DYNAMIC_NORM", "MAINTENANCE", "RESERVED", "PLANNED"], ""),
    ("NodeName=a State=DOWN+NOT_RESPONDING Reason=Not responding [slurm@2026-01-02T03:04:05]",
     ["DOWN", "NOT_RESPONDING"], "Not responding"),
    ("NodeName=a State=IDLE* ThreadsPerCore=1", ["IDLE"], ""),
])
def test_states_of_slurm(text: str, state: list[str], reason: str) -> None:
    assert drain.state_and_reason(text) == (state, reason)
    done: list[list[str]] = []

    def scontrol(argv: list[str]) -> tool.Ran:
        done.append(argv)
        return tool.Ran(argv, 0, text.encode(), b"", cut=False, seconds=0)

    said = drain.drain("a", "hpcadmin: gpu: lost", scontrol)
    assert (len(done) == 2) is (state == ["IDLE"]), said


def test_a_negated_pattern_does_not_match_and_a_dot_ends_no_name(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                                 ) -> None:
    assert not masks.any_matches(["!/node[0-9]+/"], "node7", node=True)
    assert masks.any_matches(["!/node[0-9]+/"], "login1", node=True)
    conf = tmp_path / "h.json"
    conf.write_text(json.dumps({"check": [{"use": "swap", "nodes": ["hmem[000-003]"]}]}))
    assert main(["--state", str(tmp_path / "s"), "--config", str(conf), "--node", "hmem000."]) == 0
    assert capfd.readouterr().out == "good: 1 check\n"

"""hpcadmin-health: what was never measured is not good, and what was measured over another time is not bad by that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node import load, watch, window
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN, NoAnswer
from hpcadmin.health.node.door import MAX_TEXT, Door
from hpcadmin.health.node.main import main
from tests.health_looks import run
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

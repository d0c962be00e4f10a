"""hpcadmin-health, network, InfiniBand, error counters: good, bad, unknown, and the false verdicts to avoid."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN
from hpcadmin.health.node.checks import ib, ping
from hpcadmin.health.node.checks import socket as socket_check
from tests.health_looks import look, run
from tests.health_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# network


def test_links(machine: Machine) -> None:
    machine.interface("eth0")
    machine.interface("lo", state="unknown", mbps="-1", device=False)
    machine.file("/sys/class/net/lo/carrier", "1\n")
    machine.interface("eth1", state="down", mbps=-1)
    assert run(machine, "link", name="eth0", min_mbps=100000, mtu=9000, duplex="full") == (GOOD, "")
    assert run(machine, "link", name="lo") == (GOOD, "")
    assert run(machine, "link", name="eth1") == (BAD, "interface eth1 is down")
    assert run(machine, "link", name="eth1", up=False) == (GOOD, "")
    assert run(machine, "link", name="eth2") == (BAD, "no interface eth2")
    assert (
        run(machine, "link", name="eth0", min_mbps=200000)[1] == "interface eth0 runs at 100000 Mb/s, expected 200000"
    )
    assert run(machine, "link", name="eth0", mtu=1500)[0] == BAD
    assert run(machine, "link", name="eth*", min=3, up=False)[1] == "2 interfaces eth*, expected 3"
    assert run(machine, "link", name="lo", min_mbps=10)[1] == "interface lo tells no speed, expected 10 Mb/s"
    assert run(machine, "link", name="usb0", present=False) == (GOOD, "")


def test_sockets_of_this_machine() -> None:
    with socket.socket(socket.AF_INET6) as server, socket.socket() as client:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", 0))
        server.listen()
        port = server.getsockname()[1]
        client.connect(("127.0.0.1", port))
        taken = server.accept()[0]
        here = Machine.__new__(Machine)
        here.root = Path("/")
        assert run(here, "socket", local_port=port) == (GOOD, "")
        assert run(
            here,
            "socket",
            local_port=port,
            state="connected",
            local="127.0.0.1",
            remote_port=client.getsockname()[1],
            process="py*",
        ) == (GOOD, "")
        assert run(here, "socket", local_port=port, process="no-such")[0] == BAD
        taken.close()
    assert run(here, "socket", local_port=port, max=0, min=0) == (GOOD, "")


def test_addresses_of_sockets() -> None:
    assert socket_check.address("0100007F:1F90") == ("127.0.0.1", 8080)
    assert socket_check.address("0000000000000000FFFF00000100007F:0016") == ("127.0.0.1", 22)
    assert socket_check.address("00000000000000000000000001000000:0050") == ("::1", 80)


def test_unix_sockets(machine: Machine) -> None:
    machine.file(
        "/proc/net/unix",
        "Num RefCount Protocol Flags Type St Inode Path\n"
        "0000: 00000002 00000000 00010000 0001 01 123 /run/munge/munge.socket.2\n"
        "0000: 00000003 00000000 00000000 0001 03 124\n",
    )
    assert run(machine, "socket", protocol="unix", path="/run/munge/*") == (GOOD, "")
    assert run(machine, "socket", protocol="unix", path="/run/x")[0] == BAD
    status, reason = run(machine, "socket", protocol="unix", path="/run/munge/*", user="root")
    assert status == UNKNOWN and "does not tell whose a Unix socket is" in reason
    assert run(machine, "socket", protocol="any", path="/run/munge/*") == (GOOD, "")
    assert run(machine, "socket", protocol="any", path="/run/munge/*", user="root")[0] == BAD


@pytest.mark.parametrize(
    ("text", "counts", "mean"),
    [
        (
            "3 packets transmitted, 3 received, 0% packet loss, time 402ms\n"
            "rtt min/avg/max/mdev = 0.032/0.041/0.056/0.010 ms\n",
            (3, 3),
            0.041,
        ),
        ("2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1ms\n", (2, 0), None),
        (
            "2 packets transmitted, 2 packets received, 0% packet loss\nround-trip min/avg/max = 0.1/0.2/0.3 ms\n",
            (2, 2),
            0.2,
        ),
        ("", (0, 0), None),
    ],
)
def test_ping_output(text: str, counts: tuple[int, int], mean: float | None) -> None:
    assert ping.counts(text) == counts
    assert ping.mean_ms(text) == mean


def test_ping(machine: Machine) -> None:
    machine.tool("ping", "2 packets transmitted, 0 received, 100% packet loss, time 1ms\n", status=1)
    assert run(machine, "ping", host="head") == (BAD, "head does not answer to ping")
    machine.tool("ping", err="ping: head: Name or service not known\n", status=2)
    assert run(machine, "ping", host="head") == (UNKNOWN, "ping head said: ping: head: Name or service not known")
    assert run(machine, "ping", host="-f")[0] == UNKNOWN


# InfiniBand


def test_every_port_counts(machine: Machine) -> None:
    machine.port("mlx5_0")
    machine.port("mlx5_0", 2, state="1: DOWN", physical="2: Polling", rate="10 Gb/sec (4X SDR)")
    machine.port("mlx5_1", rate="200 Gb/sec (2X NDR)")
    machine.port("mlx5_2", layer="Ethernet", rate="100 Gb/sec (2X HDR)")
    assert run(machine, "ib", device="mlx5_0") == (BAD, "port mlx5_0:2 is DOWN, link Polling")
    assert run(machine, "ib", device="mlx5_0", ignore=["mlx5_0:2"], min_gbps=400) == (GOOD, "")
    assert run(machine, "ib", device="mlx5_1", min_gbps=400) == (BAD, "port mlx5_1:1 runs at 200 Gb/s, expected 400")
    assert run(machine, "ib", device="mlx5_1", min_gbps=56) == (GOOD, "")  # a number: "200" < "56" as strings
    assert run(machine, "ib", device="mlx5_2") == (BAD, "0 ports of mlx5_2 (infiniband), expected 1")
    assert run(machine, "ib", device="mlx5_2", layer="ethernet", min_gbps=100) == (GOOD, "")
    assert run(machine, "ib", ports=8, ignore=["*:2"], min_gbps=100)[1] == "2 ports of * (infiniband), expected 8"
    assert look(machine, "ib", device="mlx5_0")[2] is False  # a switch may be the cause


def test_a_port_without_a_rate_is_not_fine(machine: Machine) -> None:
    machine.port("mlx5_0", rate="")
    assert run(machine, "ib", min_gbps=1) == (UNKNOWN, "port mlx5_0:1 tells no rate")
    assert ib.number("junk") is None


def test_ib_counters(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    machine.port("mlx5_0", symbol_error=10000)
    assert run(machine, "ib_errors", kept, 0) == (GOOD, "")  # old errors are no new ones
    machine.port("mlx5_0", symbol_error=10100)
    assert run(machine, "ib_errors", kept, 600) == (GOOD, "")
    machine.port("mlx5_0", symbol_error=10500)
    assert run(machine, "ib_errors", kept, 1200) == (BAD, "mlx5_0:1 symbol_error grew by 500 in 60 min, more than 120")
    assert run(machine, "ib_errors", kept, 9000) == (GOOD, "")


def test_net_counters(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    for number, expected in ((0, GOOD), (200, BAD)):
        machine.interface("eth0", rx_crc_errors=number)
        machine.interface("veth1", device=False, rx_errors=number * 100)
        assert run(machine, "net_errors", kept, number)[0] == expected


def test_pcie_counters(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    place = "/sys/bus/pci/devices/0000:1b:00.0/aer_dev_"
    for number in (0, 3):
        machine.file(place + "correctable", f"RxErr {number}\nBadTLP 0\nTOTAL_ERR_COR {number}\n")
        machine.file(place + "nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 0\n")
        machine.file(place + "fatal", f"SDES {number}\nTOTAL_ERR_FATAL {number}\n")
        result = look(machine, "pcie_errors", kept, number * 60)
    assert result == (BAD, "0000:1b:00.0: 3 fatal PCIe errors in 60 min, more than 0", True)


def test_edac(machine: Machine) -> None:
    kept: dict[str, Any] = {}
    place = "/sys/devices/system/edac/mc/mc0"
    assert run(machine, "edac", kept, 0) == (GOOD, "")
    assert run(machine, "edac", required=True)[0] == UNKNOWN
    for name in ("ue_count", "ce_count", "ue_noinfo_count", "dimm3/dimm_ce_count", "dimm3/dimm_ue_count"):
        machine.file(f"{place}/{name}", "0\n")
    machine.file(f"{place}/dimm3/dimm_label", "CPU0_DIMM_D1\n")
    assert run(machine, "edac", kept, 0) == (GOOD, "")
    machine.file(f"{place}/dimm3/dimm_ce_count", "5000\n")
    machine.file(f"{place}/ce_count", "5000\n")
    assert look(machine, "edac", kept, 60) == (
        BAD,
        "5000 corrected memory errors at CPU0_DIMM_D1 in 24 h, more than 1000",
        False,
    )
    machine.file(f"{place}/ue_count", "1\n")
    assert look(machine, "edac", kept, 120)[2] is True

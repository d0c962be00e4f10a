"""Names, addresses and the text for ip and tc."""

import pytest

from hpcadmin.errors import UsageError
from hpcadmin.lab import network


@pytest.mark.parametrize("name", ["", "Lab", "1lab", "lab_1", "lab.x", "-x", "x" * 33, "lab/../x", "läb", "lab\n"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a lab"):
        network.check_name(name)


def test_interface_names_are_short_and_different() -> None:
    names = ["lab", "a" * 12, "a" * 13, "a" * 14, "a" * 32, "acceptance-test-one", "acceptance-test-two"]
    interfaces = [network.interface_name(name) for name in names]
    assert interfaces[0] == "hl-lab"
    assert all(len(i) <= 15 for i in interfaces)
    assert len(set(interfaces)) == len(names)


def test_addresses_of_the_usual_lab() -> None:
    found = network.plan_addresses("10.200.0.0/24", 4)
    assert (found.head, found.machine, found.prefix) == ("10.200.0.1", "10.200.0.254", 24)
    assert found.nodes == ("10.200.0.11", "10.200.0.12", "10.200.0.13", "10.200.0.14")


@pytest.mark.parametrize(("net", "count"), [("10.9.0.0/29", 4), ("10.9.0.0/28", 12), ("10.9.0.0/24", 64)])
def test_addresses_are_different_and_inside(net: str, count: int) -> None:
    found = network.plan_addresses(net, count)
    everyone = [found.head, found.machine, *found.nodes]
    assert len(set(everyone)) == count + 2
    assert all(network.overlapping(net, [(f"{a}/32", "x")]) for a in everyone)


@pytest.mark.parametrize(("net", "said"), [
    ("10.200.0.0", "does not fit"), ("10.200.0.1/24", "host bits"), ("fd00::/64", "--net fd00::/64"), ("x", "--net x"),
    ("10.9.0.0/30", "does not fit"), ("127.0.0.0/24", "cannot be used"), ("224.0.0.0/24", "cannot be used"),
])
def test_ranges_that_are_refused(net: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        network.plan_addresses(net, 4)


@pytest.mark.parametrize("count", [0, -1, 65])
def test_node_counts_that_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match="1 to 64 nodes"):
        network.node_names(count)


def test_overlap_is_found_and_named() -> None:
    used = [("0.0.0.0/0", "route by eth0"), ("192.0.2.7/24", "address of eth0"), ("rubbish", "x"), ("fd00::/64", "v6")]
    assert network.overlapping("192.0.2.0/25", used) == "192.0.2.7/24 (address of eth0)"
    assert network.overlapping("192.0.0.0/16", used) == "192.0.2.7/24 (address of eth0)"
    assert network.overlapping("192.0.3.0/24", used) == ""


@pytest.mark.parametrize(("rate", "burst"), [("100mbit", "50000b"), ("1.5gbit", "750000b"), ("10kbit", "4096b")])
def test_rates(rate: str, burst: str) -> None:
    assert network.tbf_arguments(rate) == ["tbf", "rate", rate, "burst", burst, "latency", "50ms"]


@pytest.mark.parametrize("rate", ["", "100", "100mbps", "-1mbit", "0mbit", "1e9mbit", "100mbit burst 1", "٣mbit"])
def test_rates_that_are_refused(rate: str) -> None:
    with pytest.raises(UsageError, match="is not a rate"):
        network.tbf_arguments(rate)


def test_switch_text() -> None:
    assert network.switch_batch("hl-lab", 77, [(0, 100), (1, 101)]).splitlines() == [
        "link set lo up", "link add lab0 type bridge forward_delay 0", "link set lab0 up",
        "link add swm type veth peer name hl-lab netns 77", "link set swm master lab0", "link set swm up",
        "link add sw0 type veth peer name eth0 netns 100", "link set sw0 master lab0", "link set sw0 up",
        "link add sw1 type veth peer name eth0 netns 101", "link set sw1 master lab0", "link set sw1 up"]

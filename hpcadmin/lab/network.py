"""Names and addresses of a lab, and the text that `ip` and `tc` get. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcadmin.errors import UsageError

MAX_NODES = 64
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)")
_UNIT = {"kbit": 10 ** 3, "mbit": 10 ** 6, "gbit": 10 ** 9}
BRIDGE = "lab0"


@dataclass(frozen=True)
class Addresses:
    """Who has which address. machine is the end of the cable that the machine itself holds."""

    net: str
    prefix: int
    machine: str
    head: str
    nodes: tuple[str, ...]


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a lab",
                         hint="a small letter, then up to 31 small letters, digits and '-'")
    return name


def interface_name(lab: str) -> str:
    """The one interface the machine gets: at most 15 characters, different for different labs."""
    if len(lab) <= 12:
        return f"hl-{lab}"
    return f"hl-{lab[:6]}{hashlib.sha256(lab.encode()).hexdigest()[:6]}"


def port_name(number: int) -> str:
    """A host's end of the cable in the switch: sw0 is the head, sw1 node01, …"""
    return f"sw{number}"


def node_names(count: int) -> list[str]:
    if not 1 <= count <= MAX_NODES:
        raise UsageError(f"--nodes {count}: a lab has 1 to {MAX_NODES} nodes")
    return [f"node{i:02d}" for i in range(1, count + 1)]


def plan_addresses(net: str, count: int) -> Addresses:
    """head is the first address, the machine the last, node01 the eleventh (or the second in a small net)."""
    try:
        network = ipaddress.IPv4Network(net)
    except ValueError as exc:
        raise UsageError(f"--net {net}: {exc}", hint="for example 10.200.0.0/24") from exc
    size = network.num_addresses - 2
    if size < count + 2 or network.prefixlen < 8:
        raise UsageError(f"--net {net} does not fit {count} nodes, the head and the machine",
                         hint="for example 10.200.0.0/24")
    if network.is_loopback or network.is_multicast or network.is_unspecified or network.is_link_local:
        raise UsageError(f"--net {net} cannot be used for hosts", hint="for example 10.200.0.0/24")
    offset = 11 if size >= count + 12 else 2
    return Addresses(
        net=str(network), prefix=network.prefixlen, head=str(network[1]), machine=str(network[-2]),
        nodes=tuple(str(network[offset + i]) for i in range(count)))


def overlapping(net: str, used: Iterable[tuple[str, str]]) -> str:
    """Which of `used` (net, owner) overlaps: the owner's text, or "". Default routes do not count."""
    network = ipaddress.IPv4Network(net)
    for other, owner in used:
        try:
            taken = ipaddress.ip_network(other, strict=False)
        except ValueError:
            continue
        if isinstance(taken, ipaddress.IPv4Network) and taken.prefixlen > 0 and taken.overlaps(network):
            return f"{other} ({owner})"
    return ""


def switch_batch(machine_if: str, machine_pid: int, ports: Sequence[tuple[int, int]]) -> str:
    """`ip -batch` text for the switch: a bridge, the cable to the machine, and (port number, process id) each."""
    lines = ["link set lo up", f"link add {BRIDGE} type bridge forward_delay 0", f"link set {BRIDGE} up",
             f"link add swm type veth peer name {machine_if} netns {machine_pid}",
             f"link set swm master {BRIDGE}", "link set swm up"]
    return "\n".join(lines) + "\n" + "".join(port_batch(number, pid) for number, pid in ports)


def port_batch(number: int, pid: int) -> str:
    port = port_name(number)
    return (f"link add {port} type veth peer name eth0 netns {pid}\n"
            f"link set {port} master {BRIDGE}\nlink set {port} up\n")


def host_batch(address: str, prefix: int, interface: str = "eth0") -> str:
    loopback = "link set lo up\n" if interface == "eth0" else ""
    return f"{loopback}addr add {address}/{prefix} dev {interface}\nlink set {interface} up\n"


def tbf_arguments(rate: str) -> list[str]:
    """tc's words for a token bucket of that rate; the burst is 4 ms of traffic, at least 4 kB."""
    match = _RATE.fullmatch(rate)
    if not match or float(match[1]) <= 0:
        raise UsageError(f"--rate {rate!r} is not a rate", hint="for example 100mbit, 1.5gbit, 500kbit")
    burst = max(4096, int(float(match[1]) * _UNIT[match[2]] / 8 * 0.004))
    return ["tbf", "rate", rate, "burst", f"{burst}b", "latency", "50ms"]

"""What RDMA tools and LLDP tell of a node, as a part of it."""

from __future__ import annotations

from dataclasses import replace

from hpcadmin.facts import _nic
from hpcadmin.facts._lldp import Lldp
from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading
from hpcadmin.facts.infiniband import RdmaDevice
from hpcadmin.facts.lldp import neighbours_of
from hpcadmin.model import Node


def part(reading: Reading) -> Part | None:
    """None where the reading is none of these."""
    value = reading.value
    if isinstance(value, Lldp):
        return Part(reading.kind, Node("", neighbours=neighbours_of(value)))
    if isinstance(value, tuple) and value and all(isinstance(device, RdmaDevice) for device in value):
        # ibdev2netdev names the interface of a port, which is then known by name alone.
        netdevs = {(device.name, port.number): port.netdev for device in value for port in device.ports}
        nics = tuple(replace(nic, netdev=nic.netdev or netdevs.get((nic.rdma, nic.port or 0), ""))
                     for nic in _nic.join(value))
        return Part(reading.kind, Node("", nics=nics))
    return None

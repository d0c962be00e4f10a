"""Network interfaces and RDMA ports as one list: a port of an RDMA device carries its interface with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpcadmin.facts.infiniband import Port, RdmaDevice
from hpcadmin.facts.net import Interface
from hpcadmin.facts.pci import link_numbers
from hpcadmin.model import Nic, PciDevice

_LOOPBACK = 772
_LAYERS = {1: "Ethernet", 32: "InfiniBand"}


def join(
    rdma: Iterable[RdmaDevice], interfaces: Iterable[Interface] = (), pci: Iterable[PciDevice] = (),
    verbs: Iterable[RdmaDevice] = (),
) -> tuple[Nic, ...]:
    """verbs: the same devices as ibv_devinfo tells them (the MTU of a port is nowhere else)."""
    on_bus = {device.address: device for device in pci}
    more = {(device.name, port.number): port for device in verbs for port in device.ports}
    return tuple(_complete(nic, on_bus, more) for nic in _all(rdma, interfaces))


def _complete(nic: Nic, on_bus: dict[str, PciDevice], more: dict[tuple[str, int], Port]) -> Nic:
    device, port = on_bus.get(nic.pci), more.get((nic.rdma, nic.port or 0))
    if port:
        nic = replace(nic, active_mtu=nic.active_mtu or port.active_mtu,
                      sm_lid=port.sm_lid if nic.sm_lid is None else nic.sm_lid)
    if device:
        generation, width = link_numbers(device.link)
        generation_max, width_max = link_numbers(device.link_max)
        nic = replace(nic, pcie_gen=generation, pcie_width=width, pcie_gen_max=generation_max,
                      pcie_width_max=width_max, numa=device.numa if nic.numa is None else nic.numa)
    return nic


def _all(rdma: Iterable[RdmaDevice], interfaces: Iterable[Interface]) -> tuple[Nic, ...]:
    by_name = {interface.name: interface for interface in interfaces}
    nics = []
    used = set()
    for device in rdma:
        for port in device.ports:
            interface = _interface(device, port, by_name)
            if interface:
                used.add(interface.name)
            nics.append(_port(device, port, interface))
    for interface in by_name.values():
        if interface.name not in used and interface.type != _LOOPBACK:
            nics.append(_plain(interface))
    return tuple(nics)


def _interface(device: RdmaDevice, port: Port, by_name: dict[str, Interface]) -> Interface | None:
    if port.netdev in by_name:
        return by_name[port.netdev]
    # Without the GID table's word: the device's only interface belongs to its only port.
    names = [name for name in device.netdevs if name in by_name]
    return by_name[names[0]] if len(names) == 1 and len(device.ports) == 1 else None


def _port(device: RdmaDevice, port: Port, interface: Interface | None) -> Nic:
    return Nic(
        name=device.name, rdma=device.name, port=port.number, netdev=interface.name if interface else "",
        link_layer=port.link_layer, state=port.state, physical_state=port.physical_state, rate_gbps=port.rate_gbps,
        rate_text=port.rate_text, mtu=interface.mtu if interface else None, guid=device.guid, lid=port.lid,
        firmware=device.firmware, psid=device.psid, model=device.hca_type, mac=interface.mac if interface else "",
        driver=device.driver, pci=device.pci, numa=device.numa, virtual=device.virtual or device.vf,
        port_guid=port.port_guid, sm_lid=port.sm_lid, active_mtu=port.active_mtu, description=device.node_desc,
        vfs=device.vfs, pf=device.pf, gid_index=port.gid_index, bond=interface.bond if interface else "",
        bonded=interface.bonded if interface else (),
    )


def _plain(interface: Interface) -> Nic:
    rate = interface.speed_mbps / 1000 if interface.speed_mbps else None
    return Nic(
        name=interface.name, netdev=interface.name, link_layer=_LAYERS.get(interface.type or 0, ""),
        state=interface.state, rate_gbps=rate, rate_text=f"{rate:g} Gb/s" if rate else "", mtu=interface.mtu,
        mac=interface.mac, driver=interface.driver, pci=interface.pci, pf=interface.pf, vfs=interface.vfs,
        virtual=not interface.device or interface.vf or interface.representor, bond=interface.bond,
        bonded=interface.bonded,
    )

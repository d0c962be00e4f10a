"""Inventory -> accepted.json: what the check drift compares each node with, by the names of hpcadmin-health --facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from hpcadmin.health.node.inventory import CLASSES
from hpcadmin.model import Node

Fact = tuple[str, str | int | None]


def text(nodes: Sequence[Node]) -> str:
    """All nodes in one file. partial: what a node has besides is not new, since no source told of everything."""
    return json.dumps({"partial": True, "nodes": {node.name: facts(node) for node in nodes}}, indent=1,
                      sort_keys=True) + "\n"


def facts(node: Node) -> dict[str, str | int]:
    parts = (_board(node), _dimms(node), _pci(node), _gpus(node), _nics(node), _disks(node))
    return {name: value for part in parts for name, value in part if value not in ("", None, 0)}


def _board(node: Node) -> Iterator[Fact]:
    cpu = node.cpu
    yield "cpu.sockets", cpu.sockets
    yield "cpu.cores", (cpu.sockets or 0) * (cpu.cores_per_socket or 0)
    yield "memory.mib", node.memory_mib
    yield "system.serial", node.serial
    yield "board.serial", node.board_serial


def _dimms(node: Node) -> Iterator[Fact]:
    slots = [dimm.slot for dimm in node.dimms]
    for dimm in node.dimms:
        if not dimm.size_mib or not dimm.slot or slots.count(dimm.slot) > 1:
            continue
        place = "dimm." + dimm.slot.replace(" ", "_")
        yield place + ".mib", dimm.size_mib
        yield place + ".part", dimm.part
        yield place + ".serial", dimm.serial
        yield place + ".mts", dimm.speed_mts


def _pci(node: Node) -> Iterator[Fact]:
    virtual = {nic.pci for nic in node.nics if nic.pf}
    for device in node.pci:
        if "0x" + device.class_id[:4] not in CLASSES or device.address in virtual:
            continue
        yield f"pci.{device.address}.id", f"{device.vendor_id}:{device.device_id}"
        width = device.link.rpartition(" x")[2]
        yield f"pci.{device.address}.width", int(width) if width.isdecimal() and 0 < int(width) <= 32 else None


def _gpus(node: Node) -> Iterator[Fact]:
    for gpu in node.gpus:
        if gpu.vendor == "nvidia" and gpu.pci:
            yield f"gpu.{gpu.pci}.uuid", gpu.uuid
            yield f"gpu.{gpu.pci}.vbios", gpu.vbios


def _nics(node: Node) -> Iterator[Fact]:
    for nic in node.nics:
        if nic.virtual or nic.pf:
            continue
        if nic.rdma:
            yield f"ib.{nic.rdma}.firmware", nic.firmware
            yield f"ib.{nic.rdma}.board", nic.psid
        elif nic.netdev and not nic.bond:           # the address of a port of a bond is the bond's
            yield f"net.{nic.netdev}.mac", nic.mac.lower()


def _disks(node: Node) -> Iterator[Fact]:
    for disk in node.disks:
        if disk.transport == "nvme" and disk.pci:
            place = f"nvme.{disk.pci}"
            yield place + ".model", disk.model
            yield place + ".serial", disk.serial
            yield place + ".firmware", disk.firmware

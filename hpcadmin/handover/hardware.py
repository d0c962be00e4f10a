"""What was handed over: groups with counts, and every node, GPU and port with serials, firmware and cable peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hpcadmin.cabling import Cabling
from hpcadmin.handover.model import Block, Cell, Column, Paragraph, Section, Table
from hpcadmin.handover.texts import msg, told
from hpcadmin.hosts import fold
from hpcadmin.model import Gpu, Inventory, Nic, Node
from hpcadmin.text import number

_NODE = Column(msg("col_node"), "name")


def groups(inventory: Inventory) -> Section:
    by_name = {n.name: n for n in inventory.nodes}
    rows: list[tuple[Cell, ...]] = []
    for g in inventory.groups:
        nodes = [by_name[n] for n in g.nodes if n in by_name]
        first = nodes[0] if nodes else Node("")
        rows.append((g.name, len(g.nodes), fold(g.nodes), " ".join(filter(None, [first.vendor, first.product])),
                     _cpus(first), round(first.memory_mib / 1024) if first.memory_mib else None, _counted(
                         gpu.model or gpu.vendor for gpu in first.gpus), _counted(_port(nic) for nic in _ports(first))))
    totals = (msg("total"), len(inventory.nodes), "", "", "", None,
              _counted(g.model or g.vendor for n in inventory.nodes for g in n.gpus),
              _counted(_port(nic) for n in inventory.nodes for nic in _ports(n)))
    columns = (Column(msg("col_group"), "name"), Column(msg("col_nodes"), "number"), Column(msg("col_names")),
               Column(msg("col_product")), Column(msg("col_cpus")), Column(msg("col_memory_gib"), "number"),
               Column(msg("col_gpus")), Column(msg("col_ports")))
    blocks: list[Block] = [Table("groups", msg("table_groups"), columns, (*rows, totals))]
    if inventory.failed:
        blocks.append(Table("not-read", msg("table_not_read"), (_NODE, Column(msg("col_why"))),
                            tuple((f.node, told(f.reason)) for f in inventory.failed)))
    return Section("inventory", msg("section_inventory"), tuple(blocks))


def full(inventory: Inventory) -> Section:
    """The annex. Tables that nobody told anything of are left out, and that is said."""
    cabling = Cabling(inventory)
    nodes = tuple(_node(n) for n in inventory.nodes)
    gpus = tuple(_gpu(n, g) for n in inventory.nodes for g in n.gpus)
    ports = tuple(_nic(n, nic, cabling) for n in inventory.nodes for nic in _ports(n))
    blocks: list[Block] = [Table("nodes", msg("table_nodes"), (
        _NODE, Column(msg("col_product")), Column(msg("col_serial"), "code"),
        Column(msg("col_bios"), "code"), Column(msg("col_bmc"), "code"), Column(msg("col_os")),
        Column(msg("col_gpu_driver"), "code")), nodes)]
    if gpus:
        blocks.append(Table("gpus", msg("table_gpus"), (
            _NODE, Column(msg("col_gpu"), "name"), Column(msg("col_model")), Column(msg("col_uuid"), "code"),
            Column(msg("col_serial"), "code"), Column(msg("col_firmware"), "code")), gpus))
    else:
        blocks.append(Paragraph(msg("no_gpus"), "note"))
    if ports:
        blocks.append(Table("ports", msg("table_ports"), (
            _NODE, Column(msg("col_port"), "name"), Column(msg("col_model")), Column(msg("col_rate")),
            Column(msg("col_guid"), "code"), Column(msg("col_serial"), "code"), Column(msg("col_firmware"), "code"),
            Column(msg("col_cable"))), ports))
    else:
        blocks.append(Paragraph(msg("no_ports"), "note"))
    switches = [(d.name, d.guid, len(d.ports), sum(bool(p.peer or p.peer_guid) for p in d.ports))
                for f in inventory.fabrics for d in f.switches]
    if switches:
        blocks.append(Table("switches", msg("table_switches"), (
            Column(msg("col_switch")), Column(msg("col_guid"), "code"), Column(msg("col_ports"), "number"),
            Column(msg("col_in_use"), "number")), tuple(switches)))
    return Section("full-inventory", msg("section_full"), tuple(blocks), annex=True)


def odd(inventory: Inventory) -> Section:
    blocks: tuple[Block, ...] = (Paragraph(msg("no_odd")),)
    if inventory.odd:
        blocks = (Table("odd", msg("table_odd"), (
            _NODE, Column(msg("col_device")), Column(msg("col_difference")), Column(msg("col_kind"))),
            tuple((o.node, o.device, told(o.what), msg("odd_soft" if o.soft else "odd_hard")) for o in inventory.odd)),)
    return Section("odd", msg("section_odd"), blocks)


def _cpus(node: Node) -> str:
    count = node.cpu.cpus
    sockets = f"{node.cpu.sockets} × " if node.cpu.sockets else ""  # noqa: RUF001
    return ", ".join(filter(None, [f"{sockets}{node.cpu.model}" if node.cpu.model else "",
                                   f"{count} CPUs" if count else ""]))


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count:,} × {name}" for name, count in Counter(names).items())  # noqa: RUF001


def _ports(node: Node) -> list[Nic]:
    """Ports of RDMA devices, and Ethernet ports that hardware is behind; an RDMA port and its interface are one."""
    own = {nic.netdev for nic in node.nics if nic.rdma and nic.netdev}
    return [nic for nic in node.nics if nic.rdma or (not nic.virtual and not nic.pf and nic.name not in own)]


def _port(nic: Nic) -> str:
    rate = f"{number(nic.rate_gbps)} Gb/s" if nic.rate_gbps else ""
    return " ".join(filter(None, [rate, nic.link_layer or "Ethernet"]))


def _node(n: Node) -> tuple[Cell, ...]:
    return (n.name, " ".join(filter(None, [n.vendor, n.product])), n.serial,
            " ".join(filter(None, [n.bios, n.bios_date])), n.bmc.firmware,
            ", ".join(filter(None, [n.os, n.kernel])), n.gpu_driver)


def _gpu(n: Node, g: Gpu) -> tuple[Cell, ...]:
    return (n.name, "GPU" if g.index is None else f"GPU {g.index}", g.model, g.uuid, g.serial, g.vbios)


def _nic(n: Node, nic: Nic, cabling: Cabling) -> tuple[Cell, ...]:
    end, why = cabling.end(n, nic)
    name = f"{nic.rdma}/{nic.port or 1}" if nic.rdma else nic.name
    return (n.name, name, nic.model, nic.rate_text or _port(nic), nic.guid or nic.mac, nic.serial,
            " ".join(filter(None, [nic.firmware, nic.psid])), end.text if end else msg("unknown_why", why=told(why)))


def serials(inventory: Inventory | None, nodes: Sequence[str], device: str) -> tuple[str, ...]:
    """Of what a finding accuses, for who opens the case with the vendor."""
    found = []
    devices = set(device.split(", "))                # "GPU 4, GPU 5"
    for name in nodes[:4]:
        node = inventory.node(name) if inventory else None
        if node is None:
            continue
        if node.serial:
            found.append(f"{name}: {node.serial}")
        for g in node.gpus:
            if f"GPU {g.index}" in devices:
                found += [f"{name} GPU {g.index}: {part}" for part in (g.serial, g.uuid) if part]
        for nic in node.nics:
            if nic.serial and nic.rdma and devices & {nic.rdma, f"{nic.rdma}/{nic.port or 1}"}:
                found.append(f"{name} {nic.rdma}: {nic.serial}")
    return tuple(found)

"""An inventory as people read it: groups, odd ones out, faults, nodes that failed; one node in detail."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from hpcadmin import hosts, oddones, traits
from hpcadmin.model import Fabric, Gpu, Inventory, Nic, Node
from hpcadmin.text import plural, printable

HEADERS = ("group", "nodes", "count", "CPU, memory", "GPUs, driver", "NICs", "OS, kernel")
_TRADEMARKS = re.compile(r"\((R|TM)\)|\bCPU\b|\b[0-9]{1,3}-Core Processor\b|@ [0-9.]+GHz")


def overview(inventory: Inventory) -> str:
    """The table of groups, then what is odd, broken, or missing."""
    only_fabric = inventory.fabrics and not inventory.nodes and not inventory.failed
    parts = [] if only_fabric else [_head(inventory)]
    if inventory.groups:
        by_name = {node.name: node for node in inventory.nodes}
        rows = [_group_row(group.name, [by_name[name] for name in group.nodes]) for group in inventory.groups]
        parts.append(_table(rows, HEADERS))
    parts.append(_section("Odd ones out", oddones.folded(inventory.odd)))
    parts.append(_section("Faults", _folded((node.name, problem) for node in inventory.nodes
                                            for problem in node.problems)))
    unknown = _folded((node.name, ", ".join(node.unknown)) for node in inventory.nodes if node.unknown)
    parts.append(_section("Not known", unknown))
    parts += [_fabric(fabric) for fabric in inventory.fabrics]
    parts.append(_section("Not captured", _folded((item.node, item.reason) for item in inventory.failed)))
    return "\n\n".join(part for part in parts if part)


def _fabric(fabric: Fabric) -> str:
    from hpcadmin.fabric_text import fabric_lines
    return _section(f"Fabric, {fabric_lines(fabric)[0]}", fabric.problems or ("no faults seen",))


def _head(inventory: Inventory) -> str:
    text = f"{plural(len(inventory.nodes), 'node')} in {plural(len(inventory.groups), 'group')}"
    if inventory.failed:
        text += f", {plural(len(inventory.failed), 'node')} not captured"
    pretended = [node.name for node in inventory.nodes if node.simulated]
    if pretended:
        text = f"SIMULATED HARDWARE: {printable(inventory.simulated)} on {hosts.fold(pretended)}\n{text}"
    return text


def _group_row(name: str, members: Sequence[Node]) -> list[str]:
    names = [node.name for node in members]
    first = members[0]
    gpus = traits.gpu_text(first).replace(", ", "\n")
    driver = _several(n.gpu_driver for n in members)
    return [name, hosts.fold(names), str(len(names)), f"{_cpu(first)}\n{traits.memory_text(first)}",
            gpus if driver == "-" else f"{gpus}\n{driver}", traits.nic_text(first).replace(", ", "\n"),
            f"{_several(n.os for n in members)}\n{_several(n.kernel for n in members)}"]


def _cpu(node: Node) -> str:
    """2x56x2 Intel Xeon Platinum 8480C"""
    return " ".join([traits.cpu_text(node), *_TRADEMARKS.sub(" ", node.cpu.model).split()])


def _several(values: Iterable[str]) -> str:
    """The value of most, and that there are others."""
    counts = Counter(values).most_common()
    text = counts[0][0] or "-"
    return text if len(counts) == 1 else f"{text} (+{len(counts) - 1} other)"


def _section(title: str, lines: Iterable[str]) -> str:
    body = [f"  {printable(line, limit=500)}" for line in lines]
    return "\n".join([f"{title}:", *body]) if body else ""


def _folded(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """node[01-04]: what they have in common, as "NODE.txt is empty" where each has a file of its own."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, what in pairs:
        common = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "NODE", what) if name in what else what
        found.setdefault(common, []).append((name, what))
    return [f"{hosts.fold(name for name, _ in told)}: {told[0][1] if len({what for _, what in told}) == 1 else common}"
            for common, told in found.items()]


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    from tabulate import tabulate
    # disable_numparse: versions such as 6.10 are no numbers. Line ends in cells are ours: values have none.
    text: str = tabulate([[printable(cell, limit=300, newlines=True) for cell in row] for row in rows],
                         headers=list(headers), tablefmt="simple", disable_numparse=True)
    return "\n".join(line.rstrip() for line in text.split("\n"))


def node_text(node: Node) -> str:
    """Everything that is known of a node, its devices as tables."""
    facts = [
        ("hostname", node.hostname), ("addresses", ", ".join(node.addresses)),
        ("simulated", node.simulated), ("vendor", node.vendor), ("product", node.product), ("serial", node.serial),
        ("BIOS", node.bios), ("CPU", f"{traits.cpu_text(node)} {node.cpu.model}".strip()),
        ("architecture", node.cpu.architecture), ("NUMA nodes", str(len(node.cpu.numa) or "")),
        ("memory", traits.memory_text(node)), ("GPUs", traits.gpu_text(node)), ("GPU driver", node.gpu_driver),
        ("NICs", traits.nic_text(node)), ("OS", node.os), ("kernel", node.kernel), ("Slurm", node.slurm_version),
        ("tools", ", ".join(name for name, path in sorted(node.tools.items()) if path)), ("captured", node.captured),
    ]
    parts = [_table([[name, value] for name, value in facts if value], (node.name, ""))]
    if node.gpus:
        parts.append(_table([_gpu_row(gpu) for gpu in node.gpus], (
            "GPU", "model", "PCI", "device", "NUMA", "memory", "PCIe", "ECC", "MIG", "UUID")))
    if node.gpu_links:
        numbers = [f"GPU{gpu.index}" for gpu in node.gpus][: len(node.gpu_links)]
        parts.append(_table([[name, *row] for name, row in zip(numbers, node.gpu_links, strict=False)],
                            ("", *numbers)))
    if node.nics:
        parts.append(_table([_nic_row(nic) for nic in node.nics], (
            "NIC", "interface", "kind", "state", "rate", "MTU", "PCI", "NUMA", "firmware", "MAC")))
    parts.append(_section("Faults", node.problems))
    parts.append(_section("Not known", node.unknown))
    return "\n\n".join(part for part in parts if part)


def _gpu_row(gpu: Gpu) -> list[str]:
    link = f"gen {gpu.pcie_gen_max} x{gpu.pcie_width}" if gpu.pcie_gen_max and gpu.pcie_width else ""
    memory = "" if gpu.memory_mib is None else f"{gpu.memory_mib} MiB"
    return [_or_dash(gpu.index), gpu.model or "unknown", gpu.pci, gpu.device_file or "-", _or_dash(gpu.numa), memory,
            link, gpu.ecc, gpu.mig, gpu.uuid]


def _nic_row(nic: Nic) -> list[str]:
    name = f"{nic.name}/{nic.port}" if nic.port else nic.name
    kind = f"{nic.link_layer}{' (virtual)' if nic.virtual else ''}"
    return [name, nic.netdev or "-", kind, nic.state, nic.rate_text or "-", _or_dash(nic.mtu), nic.pci or "-",
            _or_dash(nic.numa), nic.firmware or "-", nic.mac or "-"]


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)

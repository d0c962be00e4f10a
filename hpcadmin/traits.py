"""In what nodes are compared, and how each of it is said in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from hpcadmin.model import Nic, Node
from hpcadmin.text import plural

MEMORY_TOLERANCE = 0.01     # firmware and kernel reserve a little more or less from boot to boot


@dataclass(frozen=True)
class Trait:
    """value: comparable, None where unknown. show: as people read it. hardware: a difference makes another group."""

    name: str
    value: Callable[[Node], Hashable | None]
    show: Callable[[Node], str]
    hardware: bool = False


def cpu_text(node: Node) -> str:
    """2x56x2: sockets, cores a socket, threads a core."""
    counts = (node.cpu.sockets, node.cpu.cores_per_socket, node.cpu.threads_per_core)
    if counts == (None, None, None):
        return "unknown"
    return "x".join("?" if count is None else str(count) for count in counts)


def memory_text(node: Node) -> str:
    if node.memory_mib is None:
        return "unknown"
    return f"{node.memory_mib / 1024:.0f} GiB" if node.memory_mib >= 10 * 1024 else f"{node.memory_mib} MiB"


def gpu_text(node: Node) -> str:
    """8x NVIDIA H100 80GB HBM3; "-" for none."""
    if "gpus" in node.unknown:
        return "unknown"
    counts = Counter(gpu.model or f"{gpu.vendor} GPU of unknown model" for gpu in node.gpus)
    return ", ".join(f"{count}x {model}" for model, count in sorted(counts.items())) or "-"


def rate_text(rate: float | None) -> str:
    return "" if rate is None else f" {rate:g} Gb/s"


def hardware_nics(node: Node) -> list[Nic]:
    return [nic for nic in node.nics if not nic.virtual]


def nic_text(node: Node) -> str:
    """8x InfiniBand 400 Gb/s, 1x Ethernet; the number of virtual ones where there is nothing else."""
    if "nics" in node.unknown and not node.nics:
        return "unknown"
    counts = Counter(_kind(nic) for nic in hardware_nics(node))
    text = ", ".join(f"{count}x {kind}" for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return text or (f"{len(node.nics)} virtual" if node.nics else "-")


def _kind(nic: Nic) -> str:
    layer = nic.link_layer or "other"
    if nic.rdma and layer == "Ethernet":
        layer = "RoCE"
    return f"{layer}{rate_text(nic.rate_gbps)}"


def node_cpu_topology(node: Node) -> Hashable | None:
    """What configuration needs of the CPUs: where each core lies and which OS CPUs it is."""
    if node.cpu.cores:
        return (node.cpu.cores, node.cpu.offline)
    counts = (node.cpu.sockets, node.cpu.cores_per_socket, node.cpu.threads_per_core)
    return None if None in counts else counts


def gpu_models(node: Node) -> Hashable | None:
    if "gpus" in node.unknown or any(not gpu.model for gpu in node.gpus):
        return None
    return tuple(sorted({gpu.model for gpu in node.gpus}))


def _rdma(node: Node) -> Hashable | None:
    if "rdma" in node.unknown:
        return None
    return _counted(nic for nic in hardware_nics(node) if nic.rdma)


def _ethernet(node: Node) -> Hashable | None:
    if "nics" in node.unknown:
        return None
    return _counted(nic for nic in hardware_nics(node) if not nic.rdma)


def _counted(nics: object) -> Hashable:
    assert hasattr(nics, "__iter__")  # noqa: S101
    return tuple(sorted(Counter(_kind(nic) for nic in nics).items()))


def memory_classes(nodes: list[Node]) -> Mapping[str, int | None]:
    """node -> number of its class; memory within 1 % of the smallest of a class is the same."""
    classes: dict[str, int | None] = {node.name: None for node in nodes}
    start: float = 0
    number = 0
    for node in sorted((n for n in nodes if n.memory_mib is not None), key=lambda n: n.memory_mib or 0):
        size = node.memory_mib or 0
        if number == 0 or size > start * (1 + MEMORY_TOLERANCE):
            start, number = size, number + 1
        classes[node.name] = number
    return classes


def hardware_traits(nodes: list[Node]) -> tuple[Trait, ...]:
    memory = memory_classes(nodes)
    return (
        Trait("simulated hardware", lambda n: n.simulated, lambda n: n.simulated or "none", True),
        Trait("GPUs", lambda n: None if "gpus" in n.unknown else len(n.gpus),
              lambda n: plural(len(n.gpus), "GPU"), True),
        Trait("GPU model", gpu_models, lambda n: ", ".join(sorted({g.model or "?" for g in n.gpus})) or "no GPU", True),
        Trait("CPU topology", node_cpu_topology, cpu_text, True),
        Trait("CPU model", lambda n: n.cpu.model or None, lambda n: n.cpu.model, True),
        Trait("memory", lambda n: memory[n.name], memory_text, True),
        Trait("RDMA ports", _rdma, lambda n: _show_nics(n, True), True),
        Trait("network interfaces", _ethernet, lambda n: _show_nics(n, False), True),
    )


def _show_nics(node: Node, rdma: bool) -> str:
    counts = Counter(_kind(nic) for nic in hardware_nics(node) if bool(nic.rdma) is rdma)
    return ", ".join(f"{count}x {kind}" for kind, count in sorted(counts.items())) or "none"

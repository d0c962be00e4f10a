"""Where a node's devices are, and what follows: how any two are connected, the GPUs near each NIC, rails, bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpcadmin.model import Gpu, Nic, Node, PciDevice

# As nvidia-smi topo -m says it, the nearest first: one PCIe switch, several, the host bridge, host bridges of one NUMA
# node, the links between sockets.
RELATIONS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_BRIDGE = "0604"


@dataclass(frozen=True)
class Near:
    """The GPUs nearest to a NIC, by index; several of them are a tie. relation "": not known."""

    nic: str
    relation: str
    gpus: tuple[int, ...]


def lineage(address: str, devices: Mapping[str, PciDevice]) -> tuple[str, ...]:
    """The bridges above a device, the nearest first."""
    found: list[str] = []
    here = devices.get(address)
    while here is not None and here.parent and here.parent not in found:
        found.append(here.parent)
        here = devices.get(here.parent)
    return tuple(found)


def relation(a: str, b: str, node: Node, devices: Mapping[str, PciDevice] | None = None) -> str:
    """PIX, PXB, PHB, NODE or SYS between two PCI functions; "" where the tree above them is not known.

    Two functions of one device, and two devices under one switch, are PIX. A PCIe switch is an upstream port with
    downstream ports below it, each of them a bridge: common is the upstream port.
    """
    known = devices if devices is not None else by_address(node)
    one, other = known.get(a), known.get(b)
    if one is None or other is None:
        return ""
    if a.rpartition(".")[0] == b.rpartition(".")[0]:
        return "PIX"
    above, beside = lineage(a, known), lineage(b, known)
    common = next((bridge for bridge in above if bridge in beside), None)
    if common is not None:
        return "PIX" if above.index(common) <= 1 and beside.index(common) <= 1 else "PXB"
    if one.root and one.root == other.root:
        return "PHB"
    if one.numa is None or other.numa is None:
        return ""
    return "NODE" if one.numa == other.numa else "SYS"


def by_address(node: Node) -> dict[str, PciDevice]:
    return {device.address: device for device in node.pci}


def nearest(node: Node) -> tuple[Near, ...]:
    """For each physical NIC: from what topo -m says of it, else from the PCI tree, else from the NUMA nodes."""
    devices = by_address(node)
    return tuple(_near(nic, node, devices) for nic in physical(node))


def physical(node: Node) -> list[Nic]:
    """The NICs that have hardware behind them."""
    return [nic for nic in node.nics if not nic.virtual and not nic.bonded]


def _near(nic: Nic, node: Node, devices: Mapping[str, PciDevice]) -> Near:
    labels = {}
    for place, gpu in enumerate(node.gpus):
        told = nic.gpu_relations[place:place + 1]
        label = told[0] if told else relation(nic.pci, gpu.pci, node, devices)
        if not label and nic.numa is not None and gpu.numa is not None:
            label = "NODE" if nic.numa == gpu.numa else "SYS"
        labels[place if gpu.index is None else gpu.index] = label
    ranks = {number: RELATIONS.index(label) for number, label in labels.items() if label in RELATIONS}
    # One GPU of unknown place could be the nearest: then none is.
    if not ranks or len(ranks) < len(labels):
        return Near(nic.name, "", ())
    best = min(ranks.values())
    return Near(nic.name, RELATIONS[best], tuple(sorted(n for n, rank in ranks.items() if rank == best)))


def rails(node: Node) -> tuple[Near, ...]:
    """The RDMA ports in the order of the GPUs that they are nearest to: rail 0 is that of the first GPU. Ports that are
    as near to no GPU as to all (storage, management) and ports of unknown place are not rails."""
    rdma = {nic.name for nic in physical(node) if nic.rdma}
    near = [item for item in nearest(node) if item.nic in rdma and item.relation in RELATIONS[:4]]
    best = min((RELATIONS.index(item.relation) for item in near), default=len(RELATIONS))
    # Where some ports are under a switch with a GPU, one that is only on the same socket is none of theirs.
    used = [item for item in near if RELATIONS.index(item.relation) <= max(best, 1)]
    return tuple(sorted(dict.fromkeys(used), key=lambda item: (item.gpus, item.nic)))


@dataclass(frozen=True)
class Binding:
    """What a rank that uses this GPU should use besides. cpus: OS CPU ids; "" and () where unknown."""

    gpu: int
    numa: int | None
    cpus: tuple[int, ...]
    nics: tuple[str, ...]


def bindings(node: Node) -> tuple[Binding, ...]:
    """GPU by GPU in the order of their indices. A NIC that is as near to several GPUs is named with each."""
    serving: dict[int, list[str]] = {}
    for item in rails(node):
        for number in item.gpus:
            serving.setdefault(number, []).append(item.nic)
    return tuple(Binding(number, _numa(gpu, node), _cpus(gpu, node), tuple(serving.get(number, ())))
                 for number, gpu in _indexed(node))


def _indexed(node: Node) -> Iterator[tuple[int, Gpu]]:
    yield from sorted(((gpu.index if gpu.index is not None else place, gpu) for place, gpu in enumerate(node.gpus)),
                      key=lambda item: item[0])


def _numa(gpu: Gpu, node: Node) -> int | None:
    if gpu.numa is not None:
        return gpu.numa
    return next((n.id for n in node.cpu.numa if n.cpus and set(n.cpus) == set(gpu.local_cpus)), None)


def _cpus(gpu: Gpu, node: Node) -> tuple[int, ...]:
    if gpu.local_cpus:
        return gpu.local_cpus
    return next((n.cpus for n in node.cpu.numa if n.id == gpu.numa and n.cpus), ())


def mask(cpus: Iterable[int]) -> str:
    """0xff: as srun --cpu-bind=mask_cpu takes it."""
    return hex(sum(1 << cpu for cpu in set(cpus)))


def srun_options(node: Node) -> str:
    """Options of srun that give each GPU a rank bound to the CPUs near it; "" where a GPU's CPUs are unknown.

    map_gpu and mask_cpu are lists by local rank; GPUs are numbered from 0 among those of the job (srun(1)), which are
    all of the node's here.
    """
    found = bindings(node)
    if not found or any(not item.cpus for item in found):
        return ""
    gpus = ",".join(map(str, range(len(found))))
    return (f"--ntasks-per-node={len(found)} --gpu-bind=map_gpu:{gpus} "
            f"--cpu-bind=mask_cpu:{','.join(mask(item.cpus) for item in found)}")

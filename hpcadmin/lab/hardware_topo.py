"""What the nvidia-smi stand-in prints of connections: the matrix of `topo -m` and the lines of `nvlink -s`."""

from __future__ import annotations

from hpcadmin.lab.hardware_pci import pci_nodes, relation
from hpcadmin.lab.hardware_profile import GpuPlace, Profile, id_list


def nvlink_status(profile: Profile, gpu: GpuPlace) -> str:
    """The lines of one GPU in `nvidia-smi nvlink -s`."""
    total = max((profile.nvlink(gpu.index, other.index) for other in profile.gpus), default=0)
    return "".join(f"\t Link {i}: {profile.gpu.nvlink_gbs} GB/s\n" for i in range(total))


def nvlink_errors(profile: Profile, gpu: GpuPlace) -> str:
    """The lines of one GPU in `nvidia-smi nvlink -e`."""
    total = max((profile.nvlink(gpu.index, other.index) for other in profile.gpus), default=0)
    return "".join(f"\t Link {i}: {name} Errors: 0\n{end}" for i in range(total)
                   for name, end in (("Replay", ""), ("Recovery", ""), ("CRC", "\n")))


def topo_matrix(profile: Profile) -> str:
    """The matrix of `nvidia-smi topo -m`, tab separated with the tool's own quirks (one more tab before the last)."""
    nodes = {node.address: node for node in pci_nodes(profile)}
    names = [f"GPU{gpu.index}" for gpu in profile.gpus] + [f"NIC{i}" for i, _ in enumerate(profile.nics)]
    places = [gpu.pci for gpu in profile.gpus] + [nic.pci for nic in profile.nics]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    gpus = len(profile.gpus)
    for row, name in enumerate(names):
        cells = []
        for column, place in enumerate(places):
            links = profile.nvlink(row, column) if row < gpus and column < gpus else 0
            cells.append(" X " if row == column else f"NV{links}" if links else
                         relation(nodes[places[row]], nodes[place]))
        tail = ["", "", "", ""]
        if row < gpus:
            numa = profile.gpus[row].numa
            tail = [id_list(profile.cpu.socket_cpus(numa)), str(numa), "", "N/A"]
        lines.append("\t".join([name, *cells, *tail]))
    return "\n".join(lines) + "\n"


def topo_legend(profile: Profile) -> str:
    text = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

"""
    if profile.nics:
        text += "NIC Legend:\n\n" + "".join(f"  NIC{i}: {nic.name}\n" for i, nic in enumerate(profile.nics)) + "\n"
    return text

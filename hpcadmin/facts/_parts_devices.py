"""What lspci, NCCL's topology file, rocm-smi, amd-smi and xpu-smi tell of a node, as a part of it."""

from __future__ import annotations

from hpcadmin.facts import _other_gpus
from hpcadmin.facts._amd import AmdSmi
from hpcadmin.facts._base import pci_key
from hpcadmin.facts._merge import Part
from hpcadmin.facts._nccl import NcclTopology, nics_of, vendor_of
from hpcadmin.facts._pcitree import LspciDevice, to_model
from hpcadmin.facts._reading import Reading
from hpcadmin.facts.pci import link_numbers
from hpcadmin.model import Cpu, Gpu, Nic, Node, NumaNode

_VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
_HOST_BRIDGE = "0600"


def part(reading: Reading) -> Part | None:
    """None where the reading is none of these."""
    value = reading.value
    if isinstance(value, NcclTopology):
        return Part(reading.kind, _of_nccl(value))
    if isinstance(value, AmdSmi):
        return _of_tool(reading, value)
    if isinstance(value, tuple) and value and all(isinstance(device, LspciDevice) for device in value):
        return _of_lspci(reading, value)
    return None


def _of_nccl(topology: NcclTopology) -> Node:
    """GPUs in bus order, without an index: the file numbers those that its program saw."""
    ordered = sorted(topology.gpus, key=lambda gpu: pci_key(gpu.pci))
    gpus = tuple(Gpu(vendor=vendor_of(gpu), pci=gpu.pci, pci_id=gpu.pci_id, local_cpus=gpu.cpus or (),
                     numa=gpu.numa if gpu.numa is not None and gpu.numa >= 0 else None) for gpu in ordered)
    numa = tuple(NumaNode(cpu.numa, cpu.cpus) for cpu in sorted(topology.cpus, key=lambda cpu: cpu.numa or 0)
                 if cpu.numa is not None and cpu.numa >= 0 and cpu.cpus is not None)
    architectures = {cpu.architecture for cpu in topology.cpus}
    links = topology.links()
    labels: tuple[tuple[str, ...], ...] = ()
    # Links to switches say nothing of how many join two GPUs.
    if links is not None and not topology.other_links():
        places = [topology.gpus.index(gpu) for gpu in ordered]
        word = "XGMI" if {gpu.vendor for gpu in gpus} == {"amd"} else "NV"
        labels = tuple(tuple(_label(links[a][b], word) for b in places) for a in places)
    return Node("", cpu=Cpu(architecture=architectures.pop() if len(architectures) == 1 else "", numa=numa),
                gpus=gpus, gpu_links=labels, nics=nics_of(topology))


def _label(count: int | None, word: str) -> str:
    if not count:
        return ""                        # not linked, but how PCIe joins them is not told; or unknown
    return "X" if count < 0 else word if word == "XGMI" else f"{word}{count}"


def _of_tool(reading: Reading, smi: AmdSmi) -> Part:
    joined = _other_gpus.join(None, [smi], None, asked=False)
    told = frozenset({"gpus"}) if joined.gpus and not reading.missing else frozenset[str]()
    return Part(reading.kind, Node("", gpus=joined.gpus, gpu_links=joined.links, gpu_driver=joined.driver), told)


def _of_lspci(reading: Reading, devices: tuple[LspciDevice, ...]) -> Part:
    records = {device.address: to_model(device) for device in devices}
    gpus = []
    for device in devices:
        if device.is_gpu and device.vendor_id in _VENDORS:
            generation, width = link_numbers(records[device.address].link)
            generation_max, width_max = link_numbers(records[device.address].link_max)
            gpus.append(Gpu(
                vendor=_VENDORS[device.vendor_id], pci=device.address, pci_id=device.pci_id, numa=device.numa,
                pcie_gen=generation, pcie_width=width, pcie_gen_max=generation_max, pcie_width_max=width_max))
    nics = tuple(
        Nic(name=device.address, pci=device.address, model=device.full_name, numa=device.numa, driver=device.driver,
            link_layer="InfiniBand" if device.class_id == "0207" else "") for device in devices if device.is_nic)
    # `lspci | grep NVIDIA` is no list of all there is.
    whole = any(device.class_id == _HOST_BRIDGE for device in devices)
    pci = tuple(device for device in records.values() if device.class_id)
    return Part(reading.kind, Node("", gpus=tuple(gpus), nics=nics, pci=pci),
                frozenset({"gpus", "pci"}) if whole else frozenset())

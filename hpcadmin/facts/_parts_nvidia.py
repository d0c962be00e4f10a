"""What texts of nvidia-smi and the NVIDIA driver tell of a node, as a part of it."""

from __future__ import annotations

from dataclasses import replace

from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading
from hpcadmin.facts._smi import Smi
from hpcadmin.facts.nvidia_dmesg import KernelLog
from hpcadmin.facts.nvidia_error import SmiErrors
from hpcadmin.facts.nvidia_nvlink import NvLinks
from hpcadmin.facts.nvidia_p2p import PeerAccess
from hpcadmin.facts.nvidia_proc import NvidiaProc
from hpcadmin.model import Gpu, Node


def part(reading: Reading) -> Part | None:
    """None where the reading is none of these. GPUs keep what the text calls them by (PCI address, UUID, minor number
    or index): that is what they are joined by."""
    value = reading.value
    if isinstance(value, Smi):
        told = frozenset({"gpus"}) if reading.known.get("gpu_count") is not None else frozenset[str]()
        node = Node("", gpus=tuple(_with_file(gpu) for gpu in value.gpus), gpu_driver=_driver(value.driver),
                    versions={"cuda": value.cuda} if value.cuda else {})
        return Part(reading.kind, node, told)
    if isinstance(value, NvidiaProc):
        gpus = tuple(_with_file(Gpu("nvidia", None, gpu.model, gpu.uuid, pci=gpu.pci, minor=gpu.minor, vbios=gpu.vbios))
                     for gpu in value.gpus)
        return Part(reading.kind, Node("", gpus=gpus, gpu_driver=_driver(value.driver)))
    if isinstance(value, NvLinks):
        gpus = tuple(Gpu("nvidia", gpu.index, gpu.model, gpu.uuid, nvlinks_active=gpu.active,
                         nvlinks_inactive=gpu.inactive) for gpu in value.gpus)
        return Part(reading.kind, Node("", gpus=gpus))
    if isinstance(value, PeerAccess):
        return Part(reading.kind, Node("", gpus=tuple(Gpu("nvidia", index) for index in value.gpus)))
    if isinstance(value, KernelLog):
        return Part(reading.kind, Node("", gpu_driver=value.driver))
    return Part(reading.kind, Node("")) if isinstance(value, SmiErrors) else None


def _with_file(gpu: Gpu) -> Gpu:
    """The kernel driver names device files by the minor number."""
    return gpu if gpu.minor is None else replace(gpu, device_file=f"/dev/nvidia{gpu.minor}")


def _driver(version: str) -> str:
    return "" if version == "none" else version

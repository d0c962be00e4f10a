"""The GPUs of a node from nvidia-smi, the driver's /proc files and the PCI bus, joined by PCI address, or by UUID where
a source knows no address; never by their order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts import _gpu_more, _links, _other_gpus
from hpcadmin.facts._base import cpu_list, pci_key
from hpcadmin.facts.nvidia_list import GpuList
from hpcadmin.facts.nvidia_nvlink import NvLinks
from hpcadmin.facts.nvidia_proc import NvidiaProc
from hpcadmin.facts.nvidia_smi import LostGpu, Smi
from hpcadmin.facts.nvidia_topo import Topo
from hpcadmin.facts.pci import link_numbers
from hpcadmin.model import Gpu, PciDevice
from hpcadmin.text import plural


@dataclass
class GpuFacts:
    """What the sources said; None where a source is missing or unreadable (then it is in the node's problems)."""

    smi: Smi | None = None
    smi_absent: bool = False         # nvidia-smi is not installed
    listed: GpuList | None = None
    proc: NvidiaProc | None = None
    topo: Topo | None = None
    nvlinks: NvLinks | None = None
    pci: tuple[PciDevice, ...] | None = None
    others: _other_gpus.Joined | None = None    # AMD's and Intel's
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    no_file: list[str] = field(default_factory=list)


def is_gpu(device: PciDevice) -> bool:
    """An NVIDIA GPU."""
    return device.vendor_id == "10de" and device.class_id.startswith("03")


def join(facts: GpuFacts) -> tuple[Gpu, ...]:
    """The GPUs that answer; those that should and do not are problems. Unknown is said in facts.unknown."""
    nvidia = {device.address: device for device in facts.pci or () if is_gpu(device)}
    if facts.others is None:
        facts.others = _other_gpus.join(None, (), facts.pci)
    facts.problems += facts.others.problems
    facts.unknown += facts.others.unknown
    if facts.smi is not None:
        gpus = _answering(facts, facts.smi, nvidia)
    elif nvidia:
        gpus = _silent(facts, nvidia)
    else:
        gpus = ()
        if facts.pci is None or not facts.smi_absent:
            facts.unknown.append("gpus")
    if facts.no_file:
        facts.problems.append(f"GPUs: {', '.join(facts.no_file)} {'is' if len(facts.no_file) == 1 else 'are'} missing")
    return (*gpus, *facts.others.gpus)


def _answering(facts: GpuFacts, smi: Smi, nvidia: dict[str, PciDevice]) -> tuple[Gpu, ...]:
    lost = {gpu.pci: gpu for gpu in (*(facts.listed.lost if facts.listed else ()), *smi.lost)}
    answering = {gpu.pci: gpu for gpu in smi.gpus}
    for address in nvidia.keys() - answering.keys() - lost.keys():
        lost[address] = LostGpu(address, "is on the PCI bus and not in nvidia-smi")
    every = sorted(answering.keys() | lost.keys(), key=pci_key)
    indices = _indices(facts, smi, every)
    for address in sorted(lost.keys() & answering.keys(), key=pci_key):
        facts.problems.append(f"GPU {indices[address]} ({address}): {lost[address].message}")
    _tell_lost(facts, {a: gpu for a, gpu in lost.items() if a not in answering}, indices)
    if facts.pci is not None:
        for address in sorted(answering.keys() - nvidia.keys(), key=pci_key):
            facts.problems.append(f"GPU {indices[address]} ({address}) is in nvidia-smi and not on the PCI bus")
    silent = len(lost.keys() - answering.keys())
    if smi.attached not in (None, len(answering), len(answering) + silent):
        facts.problems.append(f"GPUs: nvidia-smi has {smi.attached} attached and describes {len(answering)}")
        facts.unknown.append("gpus")
    found = [_complete(replace(gpu, index=indices[address]), facts, nvidia.get(address))
             for address, gpu in answering.items()]
    found.sort(key=lambda gpu: gpu.index or 0)
    gpus = _gpu_more.with_links(_gpu_more.with_mig(found, facts.listed, facts.problems), facts.nvlinks, facts.problems)
    facts.problems += _gpu_more.faults(smi, gpus)
    return gpus


def _indices(facts: GpuFacts, smi: Smi, every: list[str]) -> dict[str, int]:
    """The index of each GPU: as `nvidia-smi -L` says; else the place on the bus among all that should be there."""
    place = {address: number for number, address in enumerate(every)}
    by_uuid = {gpu.uuid: gpu.index for gpu in facts.listed.gpus} if facts.listed else {}
    if all(gpu.uuid in by_uuid for gpu in smi.gpus) and len(by_uuid) == len(smi.gpus):
        told = {gpu.pci: by_uuid[gpu.uuid] for gpu in smi.gpus}
        return {**{a: n for a, n in place.items() if n not in told.values()}, **told}
    if by_uuid:
        facts.problems.append(f"GPUs: nvidia-smi -L lists {len(by_uuid)} GPUs, nvidia-smi -q {len(smi.gpus)}, "
                              "not the same")
    return place


def _silent(facts: GpuFacts, nvidia: dict[str, PciDevice]) -> tuple[Gpu, ...]:
    """NVIDIA devices and no nvidia-smi -q that answers: what the bus, the driver and nvidia-smi -L tell."""
    addresses = sorted(nvidia, key=pci_key)
    lost = {gpu.pci: gpu for gpu in facts.listed.lost} if facts.listed else {}
    listed = {gpu.index: gpu for gpu in facts.listed.gpus} if facts.listed else {}
    if listed and len(listed) + len(lost) == len(nvidia) and lost.keys() <= nvidia.keys():
        # An index is a place on the bus, and those that do not answer keep theirs.
        found = [(number, address) for number, address in enumerate(addresses) if address not in lost]
        if [number for number, _ in found] == sorted(listed):
            _tell_lost(facts, lost, dict(zip(addresses, range(len(addresses)), strict=True)))
            return tuple(replace(_complete(_from_bus(nvidia[address], number), facts, nvidia[address]),
                                 model=listed[number].model, uuid=listed[number].uuid) for number, address in found)
    why = "nvidia-smi is not installed" if facts.smi_absent else "nvidia-smi does not answer"
    facts.problems.append(f"GPUs: {plural(len(nvidia), 'NVIDIA GPU')} on the PCI bus, but {why}")
    gpus = tuple(_complete(_from_bus(nvidia[address], number), facts, nvidia[address])
                 for number, address in enumerate(addresses))
    if not all(gpu.model for gpu in gpus):
        facts.unknown.append("gpus.model")
    return gpus


def _tell_lost(facts: GpuFacts, lost: dict[str, LostGpu], indices: dict[str, int]) -> None:
    for address in sorted(lost, key=pci_key):
        index = indices.get(address, lost[address].index)
        name = f"GPU {index} ({address})" if index is not None else f"GPU {address}"
        why = lost[address].message.removeprefix("GPU is lost").lstrip(". ")
        facts.problems.append(f"{name} is lost: {why}" if why else f"{name} is lost")


def _from_bus(device: PciDevice, index: int | None) -> Gpu:
    generation, width = link_numbers(device.link)
    generation_max, width_max = link_numbers(device.link_max)
    return Gpu(vendor="nvidia", index=index, pci=device.address, pci_id=f"{device.vendor_id}:{device.device_id}",
               pcie_gen=generation, pcie_width=width, pcie_gen_max=generation_max, pcie_width_max=width_max)


def _complete(gpu: Gpu, facts: GpuFacts, device: PciDevice | None) -> Gpu:
    """The GPU with what the driver's /proc and sysfs add; contradictions become problems."""
    proc = next((p for p in facts.proc.gpus if p.pci == gpu.pci), None) if facts.proc else None
    if proc:
        for what, ours, theirs in (("minor number", gpu.minor, proc.minor), ("UUID", gpu.uuid, proc.uuid)):
            if ours not in (None, "") and theirs not in (None, "") and ours != theirs:
                facts.problems.append(f"GPU {gpu.index} ({gpu.pci}): {what} {ours} in nvidia-smi, {theirs} in /proc")
        gpu = replace(gpu, minor=proc.minor if gpu.minor is None else gpu.minor, uuid=gpu.uuid or proc.uuid,
                      model=gpu.model or proc.model, vbios=gpu.vbios or proc.vbios)
    path = f"/dev/nvidia{gpu.minor}"
    if gpu.minor is not None and facts.proc:
        if path in facts.proc.files:
            gpu = replace(gpu, device_file=path)
        else:
            facts.no_file.append(path)
    if device:
        try:
            local = cpu_list(device.local_cpus, "local_cpulist")
        except ParseError as exc:
            facts.problems.append(f"GPU {gpu.index} ({gpu.pci}): {exc.what}")
            local = ()
        gpu = replace(gpu, numa=device.numa, local_cpus=local)
    return gpu


def links(facts: GpuFacts, gpus: tuple[Gpu, ...]) -> tuple[tuple[str, ...], ...]:
    """The matrix of topo -m in the order of `gpus`; () with a problem where it is not about these GPUs."""
    topo = facts.topo
    nvidia = [gpu for gpu in gpus if gpu.vendor == "nvidia"]
    if not nvidia and facts.others is not None:
        return facts.others.links
    if topo is None or not nvidia:
        return ()
    numbers = [gpu.index for gpu in nvidia]
    if sorted(topo.gpus) != numbers:
        facts.problems.append(f"GPUs: topo -m shows GPUs {','.join(map(str, topo.gpus))}, there are "
                              f"{','.join(map(str, numbers))}")
        return ()
    if not topo.complete:
        facts.problems.append("GPUs: the matrix of topo -m is not complete")
        return ()
    places = [topo.gpus.index(number) for number in numbers if number is not None]
    found = tuple(tuple(topo.links[row][column] for column in places) for row in places)
    for row, line in enumerate(found):
        for column, label in enumerate(line[:row]):
            if label != found[column][row]:
                facts.problems.append(f"GPUs: topo -m shows {label} from GPU {numbers[row]} to GPU {numbers[column]}, "
                                      f"and {found[column][row]} back")
    facts.problems += _links.problems(found, [gpu.index for gpu in nvidia if gpu.index is not None],
                                      mig={gpu.index or 0 for gpu in nvidia if gpu.mig == "Enabled"},
                                      active={gpu.index or 0: gpu.nvlinks_active for gpu in nvidia})
    return found

"""AMD's and Intel's GPUs of a node: the kernel's word, rocm-smi's or amd-smi's, and the bus, joined by PCI address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts import _amd
from hpcadmin.facts._amd import AmdGpu, AmdSmi
from hpcadmin.facts._base import cpu_list, natural, pci_key
from hpcadmin.facts._pcitree import is_gpu
from hpcadmin.facts.drm import Drm, KfdNode
from hpcadmin.facts.pci import link_numbers
from hpcadmin.model import Gpu, PciDevice
from hpcadmin.text import plural

_BUS_VENDORS = {"1002": "amd", "8086": "intel"}


@dataclass
class Joined:
    """links: labels of topo -m's kind (X, XGMI, PCIE), row and column by GPU; () where nothing tells them."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    driver: str = ""


def join(drm: Drm | None, tools: Sequence[AmdSmi], pci: Sequence[PciDevice] | None, *, asked: bool = True) -> Joined:
    """drm None: unreadable, or not asked. tools: what rocm-smi and amd-smi told, the one believed first."""
    joined = Joined(driver=next((tool.driver for tool in tools if tool.driver), drm.driver if drm else ""))
    devices = {device.address: device for device in pci or ()}
    found = _kernel(drm) if drm else []
    for tool in tools:
        found = _with_tool(found, tool, joined)
    found = _ordered(found)
    records = [_gpu(gpu, devices.get(gpu.pci), joined) for gpu in found]
    known = {gpu.pci for gpu in found}
    bare = [device for device in pci or () if device.address not in known and device.vendor_id in _BUS_VENDORS
            and is_gpu(device.vendor_id, device.class_id[:4], device.name, device.address)]
    if bare:
        vendors = ", ".join(sorted({_BUS_VENDORS[device.vendor_id] for device in bare}))
        what = "known from the PCI bus alone" if not found else "on the PCI bus and without a driver that answers"
        joined.problems.append(f"GPUs: {len(bare)} of {vendors} {what}: "
                               + ", ".join(sorted((device.address for device in bare), key=pci_key)[:16]))
        if not all(device.name for device in bare):
            joined.unknown.append("gpus.model")
    records += [_from_bus(device) for device in sorted(bare, key=lambda device: pci_key(device.address))]
    joined.gpus = tuple(records)
    joined.links = _links(drm, tools, found, joined) if not bare else ()
    if asked:
        _check(drm, found, joined)
    return joined


# --- what the kernel knows

def _kernel(drm: Drm) -> list[AmdGpu]:
    """AMD's GPUs in the order of their KFD nodes, which is HIP's; what has none by its render device."""
    by_render = {gpu.render: gpu for gpu in drm.gpus}
    nodes = {node.render: node for node in drm.nodes if node.render is not None}
    seen: dict[str, int] = {}
    found = []
    for node in drm.nodes:
        gpu = by_render.get(node.render) if node.render is not None else None
        if gpu is None:
            continue
        chip = next((other for other in drm.gpus if other.pci and other.pci == node.pci), gpu)
        number = seen.get(node.pci, 0)
        seen[node.pci] = number + 1
        found.append(_partition(gpu, chip, node, number))
    several = {pci for pci, count in seen.items() if count > 1}
    found = [gpu if gpu.pci in several else replace(gpu, partition_id=None) for gpu in found]
    rest = [gpu for gpu in drm.gpus if gpu.render not in nodes and gpu.pci and _computes(gpu)]
    return found + rest


def _computes(gpu: AmdGpu) -> bool:
    """No graphics of the board or the CPU: by its class and name, or by memory of its own."""
    return not gpu.class_id or bool(gpu.memory_mib and gpu.vendor == "intel") or \
        is_gpu(gpu.pci_id[:4], gpu.class_id, gpu.model)


def _partition(gpu: AmdGpu, chip: AmdGpu, node: KfdNode, number: int) -> AmdGpu:
    """The GPU of a KFD node. A partition's own device has no files: model and modes are the chip's."""
    own = gpu if gpu.pci else replace(
        chip, render=gpu.render, card=gpu.card, file=gpu.file, memory_mib=None)
    return replace(own, node=node.number, guid=node.gpu, hive=node.hive, partition_id=number,
                   unique_id=own.unique_id or node.unique_id, pci=own.pci or node.pci)


# --- what tools add

def _with_tool(found: list[AmdGpu], tool: AmdSmi, joined: Joined) -> list[AmdGpu]:
    """The kernel's GPUs with what a tool adds; the tool's own where the kernel told nothing. Joined by the address,
    and in it by the partition."""
    if not found:
        return [gpu for gpu in tool.gpus if gpu.pci]
    of_tool: dict[tuple[str, int], AmdGpu] = {}
    seen: dict[str, int] = {}
    for gpu in tool.gpus:
        number = gpu.partition_id if gpu.partition_id is not None else seen.get(gpu.pci, 0)
        seen[gpu.pci] = seen.get(gpu.pci, 0) + 1
        of_tool[gpu.pci, number] = gpu
    result = []
    for gpu in found:
        told = of_tool.pop((gpu.pci, gpu.partition_id or 0), None)
        result.append(_filled(gpu, told, joined) if told else gpu)
        if told is None and gpu.vendor == "amd" and tool.gpus:
            joined.problems.append(f"GPU {gpu.pci} is in sysfs and not in the list of rocm-smi or amd-smi")
    for (pci, _), gpu in of_tool.items():
        if pci:
            joined.problems.append(f"GPU {gpu.index} ({pci}) is in rocm-smi or amd-smi and not in sysfs")
    return result


def _filled(gpu: AmdGpu, told: AmdGpu, joined: Joined) -> AmdGpu:
    values = {}
    for name in AmdGpu.__dataclass_fields__:
        mine, theirs = getattr(gpu, name), getattr(told, name)
        if mine in ("", None) and theirs not in ("", None):
            values[name] = theirs
    if told.model and not told.model.startswith("0x"):
        values["model"] = told.model
    for what, mine, theirs in (("NUMA node", gpu.numa, told.numa), ("unique id", gpu.unique_id, told.unique_id),
                               ("memory in MiB", gpu.memory_mib, told.memory_mib), ("GUID", gpu.guid, told.guid),
                               ("memory partition", gpu.memory_partition, told.memory_partition)):
        if mine not in ("", None) and theirs not in ("", None) and mine != theirs:
            joined.problems.append(f"GPU {told.index} ({gpu.pci}): {what} {mine} in sysfs, {theirs} in rocm-smi or "
                                   "amd-smi")
    return replace(gpu, **values)


def _ordered(found: list[AmdGpu]) -> list[AmdGpu]:
    """By the tool's index where every GPU has its own; else as they stand, numbered."""
    indices = [gpu.index for gpu in found]
    if None not in indices and len(set(indices)) == len(indices):
        return sorted(found, key=lambda gpu: gpu.index or 0)
    return [replace(gpu, index=place) for place, gpu in enumerate(found)]


# --- records

def _gpu(gpu: AmdGpu, device: PciDevice | None, joined: Joined) -> Gpu:
    generation, width = link_numbers(device.link if device else "")
    generation_max, width_max = link_numbers(device.link_max if device else "")
    local: tuple[int, ...] = ()
    if device:
        try:
            local = cpu_list(device.local_cpus, "local_cpulist")
        except ParseError as exc:
            joined.problems.append(f"GPU {gpu.index} ({gpu.pci}): {exc.what}")
    partition = "/".join(part for part in (gpu.compute_partition, gpu.memory_partition) if part)
    return Gpu(
        vendor=gpu.vendor, index=gpu.index, model=gpu.model or (device.name if device else ""),
        uuid=gpu.uuid or gpu.unique_id, serial=gpu.serial, pci=gpu.pci, minor=gpu.render, device_file=gpu.file,
        memory_mib=gpu.memory_mib, numa=gpu.numa if gpu.numa is not None else device.numa if device else None,
        local_cpus=local, vbios=gpu.vbios, pcie_gen=generation, pcie_width=width, pcie_gen_max=generation_max,
        pcie_width_max=width_max, power_limit_max_w=gpu.power_max_w, render=gpu.render, partition=partition,
        pci_id=gpu.pci_id or (f"{device.vendor_id}:{device.device_id}" if device else ""))


def _from_bus(device: PciDevice) -> Gpu:
    generation, width = link_numbers(device.link)
    generation_max, width_max = link_numbers(device.link_max)
    return Gpu(vendor=_BUS_VENDORS[device.vendor_id], pci=device.address, model=device.name, numa=device.numa,
               pci_id=f"{device.vendor_id}:{device.device_id}", pcie_gen=generation, pcie_width=width,
               pcie_gen_max=generation_max, pcie_width_max=width_max)


# --- links

def _links(drm: Drm | None, tools: Sequence[AmdSmi], found: list[AmdGpu],
           joined: Joined) -> tuple[tuple[str, ...], ...]:
    amd = [gpu for gpu in found if gpu.vendor == "amd"]
    if len(amd) != len(found) or not amd:
        return ()
    matrices = [m for m in [*(_of_tool(tool, amd) for tool in tools), _of_kernel(drm, amd) if drm else ()] if m]
    if not matrices:
        return ()
    names = tuple(f"GPU {gpu.index} ({gpu.pci})" for gpu in amd)
    joined.problems += _amd.faults(_amd.AmdLinks(names, matrices[0]))
    for other in matrices[1:]:
        odd = next(((a, b) for a in range(len(amd)) for b in range(len(amd))
                    if a != b and other[a][b] and matrices[0][a][b] and other[a][b] != matrices[0][a][b]), None)
        if odd:
            a, b = odd
            joined.problems.append(f"{names[a]} to {names[b]}: {matrices[0][a][b]} by the tool, {other[a][b]} by "
                                   "another source")
    return tuple(tuple("X" if a == b else cell for b, cell in enumerate(row)) for a, row in enumerate(matrices[0]))


def _of_tool(tool: AmdSmi, amd: list[AmdGpu]) -> _amd.Cells:
    """The tool's types in our order: by the label's index, or by the address."""
    links = tool.links
    if links is None or not links.types:
        return ()
    places = {label: place for place, label in enumerate(links.order)}
    rows = [places.get(f"GPU{gpu.index}", places.get(gpu.pci)) for gpu in amd]
    if None in rows or len(rows) != len(links.order):
        return ()
    return tuple(tuple(links.types[row][column].upper() for column in rows if column is not None)
                 for row in rows if row is not None)


def _of_kernel(drm: Drm, amd: list[AmdGpu]) -> _amd.Cells:
    """XGMI is told for each pair that has it; a pair without any link has none, where links are told at all."""
    if not drm.links or any(gpu.node is None for gpu in amd):
        return ()
    nodes = [gpu.node or 0 for gpu in amd]
    told = {(a, b): kind for a, b, kind in drm.links}
    return tuple(tuple("0" if a == b else told.get((a, b), "PCIE") for b in nodes) for a in nodes)


# --- faults

def _check(drm: Drm | None, found: Iterable[AmdGpu], joined: Joined) -> None:
    amd = [gpu for gpu in found if gpu.vendor == "amd"]
    if drm is None:
        if amd:
            joined.problems.append("GPUs: sysfs was not read: render devices and device files are unknown")
        return
    if amd and drm.kfd_file == "":
        joined.problems.append("GPUs: /dev/kfd is missing: nothing can be computed on AMD's GPUs")
    missing = [f"/dev/dri/renderD{gpu.render}" for gpu in found if gpu.render is not None and not gpu.file]
    if missing:
        joined.problems.append(f"GPUs: {', '.join(sorted(missing, key=natural)[:16])} "
                               f"{'is' if len(missing) == 1 else 'are'} missing")
    silent = [gpu.pci for gpu in amd if gpu.node is None and drm.nodes]
    if silent:
        joined.problems.append(f"GPUs: {', '.join(silent[:16])} of {plural(len(amd), 'AMD GPU')} "
                               "not known to the compute driver (KFD)")
    for what, get in (("partitioned as", lambda gpu: "/".join((gpu.compute_partition, gpu.memory_partition))),
                      ("with the VBIOS", lambda gpu: gpu.vbios)):
        kinds = sorted({get(gpu) for gpu in amd} - {"", "/"})
        if len(kinds) > 1 and len({gpu.pci_id for gpu in amd}) == 1:
            told = "; ".join(f"{kind}: GPU " + ", ".join(str(gpu.index) for gpu in amd if get(gpu) == kind)
                             for kind in kinds)
            joined.problems.append(f"GPUs: not all {what} the others ({told})")
    hives = {gpu.hive for gpu in amd if gpu.hive}
    alone = [gpu for gpu in amd if not gpu.hive and gpu.node is not None]
    if hives and alone and len(alone) < len(amd):
        joined.problems.append("GPUs: " + ", ".join(f"GPU {gpu.index} ({gpu.pci})" for gpu in alone)
                               + " not in the XGMI hive of the others")

"""What nvidia-smi -L, nvlink -s and -q's own counters add to GPUs that are known: MIG devices, links, faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcadmin.facts._smi import Smi, findings
from hpcadmin.facts.nvidia_list import GpuList, Listed
from hpcadmin.facts.nvidia_nvlink import LinkedGpu, NvLinks, board_links
from hpcadmin.facts.nvidia_nvlink import findings as link_findings
from hpcadmin.model import Gpu, MigDevice


def with_mig(gpus: Sequence[Gpu], listed: GpuList | None, problems: list[str]) -> tuple[Gpu, ...]:
    """-q knows instances and memory of a MIG device, -L its profile and UUID; both number them on their GPU."""
    if listed is None:
        return tuple(gpus)
    uuids = [gpu.uuid for gpu in listed.gpus]
    by_uuid = {gpu.uuid: gpu for gpu in listed.gpus if uuids.count(gpu.uuid) == 1}
    return tuple(_with_mig(gpu, by_uuid.get(gpu.uuid), problems) for gpu in gpus)


def _with_mig(gpu: Gpu, listed: Listed | None, problems: list[str]) -> Gpu:
    if listed is None or (not gpu.mig_devices and not listed.migs):
        return gpu
    mine = {mig.index: mig for mig in gpu.mig_devices}
    theirs = {mig.index: mig for mig in listed.migs}
    if mine and mine.keys() != theirs.keys():
        problems.append(f"GPU {gpu.index} ({gpu.pci}): {len(mine)} MIG devices in nvidia-smi -q, {len(theirs)} in -L")
    devices = []
    for index in sorted(mine.keys() | theirs.keys()):
        one, other = mine.get(index, MigDevice(index)), theirs.get(index, MigDevice(index))
        devices.append(replace(
            one, profile=one.profile or other.profile, uuid=one.uuid or other.uuid,
            gpu_instance=other.gpu_instance if one.gpu_instance is None else one.gpu_instance,
            compute_instance=other.compute_instance if one.compute_instance is None else one.compute_instance))
    return replace(gpu, mig_devices=tuple(devices))


def with_links(gpus: Sequence[Gpu], nvlinks: NvLinks | None, problems: list[str]) -> tuple[Gpu, ...]:
    """The number of NVLinks that are up and down. Boards without a bridge have none up: no fault unless peers have."""
    if nvlinks is None:
        return tuple(gpus)
    uuids = [linked.uuid for linked in nvlinks.gpus]
    by_uuid = {linked.uuid: linked for linked in nvlinks.gpus if uuids.count(linked.uuid) == 1}
    known = {gpu.uuid for gpu in gpus}
    problems += [f"GPU {linked.index} ({linked.uuid}) is in nvidia-smi nvlink and not in nvidia-smi -q"
                 for linked in nvlinks.gpus if linked.uuid not in known]
    for finding in link_findings(nvlinks.gpus):
        if not finding.note and ("all NVLinks are inactive" not in finding.what or _must_have(finding.what, nvlinks)):
            problems.append(f"NVLink: {finding.what}")
    return tuple(_with_links(gpu, by_uuid.get(gpu.uuid)) for gpu in gpus)


def _with_links(gpu: Gpu, linked: LinkedGpu | None) -> Gpu:
    if linked is None or not (linked.links or linked.all_down or linked.supported is False):
        return gpu
    return replace(gpu, nvlinks_active=linked.active, nvlinks_inactive=linked.inactive)


def _must_have(what: str, nvlinks: NvLinks) -> bool:
    """Whether the GPU that a finding is about has peers with links, or is of a kind that always has them."""
    return "of its kind are active" in what or any(
        what.startswith(f"GPU{linked.index}:") and board_links(linked.model) for linked in nvlinks.gpus)


def faults(smi: Smi, gpus: Sequence[Gpu]) -> Iterator[str]:
    """What -q itself shows to be wrong, by the names that the GPUs have on the node."""
    by_pci = {gpu.pci: gpu for gpu in gpus}
    shown = tuple(replace(one, gpu=by_pci[one.gpu.pci]) for one in smi.shown if one.gpu.pci in by_pci)
    for finding in findings(shown):
        if not finding.note or "show the same UUID" in finding.what:
            yield f"GPUs: {finding.what}" if not finding.what.startswith("GPU") else finding.what

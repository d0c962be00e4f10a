"""MIG: GPUs cut into devices of their own. Slurm needs AutoDetect=nvml to give a job its MIG device by UUID; by hand
it can be given the files alone (MultipleFiles), which is for emergencies."""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.typenames import Types
from hpcadmin.gpu_types import autodetected_mig
from hpcadmin.model import Gpu, MigDevice
from hpcadmin.site import NodeGroup

_HINT = 'autodetect = "nvml" in site.toml [slurm] or [nodes.NAME]; by hand only with [nodes.NAME.mig_minors]'


def enabled(gpu: Gpu) -> bool:
    return gpu.mig.casefold() == "enabled" or bool(gpu.mig_devices)


def slices(node: str, name: str, gpu: Gpu, types: Types) -> tuple[list[tuple[str, str]], list[Problem]]:
    """(type, profile) of each MIG device of a GPU in the order of their numbers, and what is wrong."""
    if not gpu.mig_devices:
        return [], [Problem(Kind.FAULT, f"{name} is in MIG mode and has no instance: Slurm cannot use it", node,
                            hint="create instances (nvidia-smi mig -cgi … -C) or turn MIG off, then discover again")]
    found = []
    for device in sorted(gpu.mig_devices, key=lambda d: d.index):
        kind = type_of(gpu, device, types)
        if not kind:
            what = f"profile {device.profile[:30]!r}" if device.profile else "a profile that no source tells"
            return [], [Problem(Kind.UNKNOWN, f"{name}: MIG device {device.index} has {what}: how Slurm calls it is "
                                "not known", node, hint=f'name it in site.toml [slurm.gpu_types] as "{gpu.model} '
                                f'{device.profile or "PROFILE"}"')]
        found.append((kind, device.profile))
    return found, []


def type_of(gpu: Gpu, device: MigDevice, types: Types) -> str:
    """The site's name, or as AutoDetect=nvml calls it without the vendor: a100_3g.20gb. "" where it cannot be told."""
    own = types.own.get(f"{gpu.model} {device.profile}", "") if device.profile else ""
    if own:
        return own
    detected = autodetected_mig(gpu.model, device.profile)
    if not detected:
        return ""
    if gpu.model in types.own:
        return f"{types.own[gpu.model]}_{device.profile}"
    return detected.removeprefix("nvidia_")


def files(node: str, name: str, gpu: Gpu, group: NodeGroup | None) -> tuple[tuple[str, ...], list[Problem]]:
    """MultipleFiles= of each MIG device: the GPU's file and those of its GPU instance and compute instance."""
    minors = group.mig_minors if group else {}
    if not minors:
        return (), [Problem(Kind.SITE, f"{name} is in MIG mode, which hand-written lines describe badly: jobs would "
                            "get an index and no MIG UUID", node, hint=_HINT)]
    found, missing = [], []
    for device in sorted(gpu.mig_devices, key=lambda d: d.index):
        if gpu.minor is None or device.gpu_instance is None or device.compute_instance is None:
            return (), [Problem(Kind.UNKNOWN, f"{name}: the instances of MIG device {device.index} are not known", node,
                                hint="discover needs nvidia-smi -q of the node")]
        instance = f"gpu{gpu.minor}/gi{device.gpu_instance}"
        keys = (f"{instance}/access", f"{instance}/ci{device.compute_instance}/access")
        missing += [key for key in keys if key not in minors]
        caps = [f"/dev/nvidia-caps/nvidia-cap{minors[key]}" for key in keys if key in minors]
        found.append(",".join([f"/dev/nvidia{gpu.minor}", *caps]))
    if missing:
        return (), [Problem(Kind.SITE, f"{name}: [nodes.{group.name if group else ''}.mig_minors] lacks "
                            f"{', '.join(missing[:8])}", node, hint="from /proc/driver/nvidia-caps/mig-minors")]
    return tuple(found), []


def pending(gpus: Iterable[Gpu]) -> list[str]:
    """"GPU 3 to Enabled" for each whose mode changes at its next reset."""
    return [f"GPU {gpu.index} to {gpu.mig_pending}" for gpu in gpus
            if gpu.mig_pending and gpu.mig and gpu.mig_pending.casefold() != gpu.mig.casefold()]

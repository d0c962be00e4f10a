"""What an admin should know about files that are right as they are, and what is not safe to write."""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.conf.machines import Written, interleaved
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.parts import Kind, Problem


def remarks(written: Sequence[Written], *, devices_constrained: bool) -> tuple[list[str], list[Problem]]:
    notes, problems = _mixed(written, devices_constrained=devices_constrained)
    return [*notes, *_same_type(written), *_left_out(written)], problems


def _mixed(written: Sequence[Written], *, devices_constrained: bool) -> tuple[list[str], list[Problem]]:
    """Slurm regroups devices by type: where types alternate, a job's index is another GPU's without constraints."""
    names = [w.machine.name for w in written if interleaved(w.devices)]
    if not names:
        return [], []
    text = (f"GPU types alternate on the PCI bus of {slurm_list(names)}: without device cgroups a job gets another GPU "
            "than it asked for")
    if devices_constrained:
        return [f"{text}; ConstrainDevices=yes must stay"], []
    return [], [Problem(Kind.SITE, text, key="slurm.options.TaskPlugin",
                        hint="TaskPlugin with task/cgroup, and ConstrainDevices=yes")]


def _same_type(written: Sequence[Written]) -> list[str]:
    models: dict[str, set[str]] = {}
    for w in written:
        for device, gpu in zip(w.devices, w.machine.gpus, strict=True):
            models.setdefault(device.type, set()).add(gpu.model)
    return [f"{' and '.join(sorted(names))} are both of type {kind}: jobs cannot tell them apart "
            "(site.toml [slurm.gpu_types] can)" for kind, names in sorted(models.items()) if len(names) > 1]


def _left_out(written: Sequence[Written]) -> list[str]:
    """Cores and Links that are missing where one would expect them."""
    left_out: dict[str, list[str]] = {}
    for w in written:
        reasons = [d.cores_why for d in w.devices if not d.cores] + [d.links_why for d in w.devices if not d.links]
        for why in dict.fromkeys(reasons):
            if "so all cores" in why or "matrix" in why:
                left_out.setdefault(why, []).append(w.machine.name)
    return [f"{slurm_list(names)}: {why}" for why, names in sorted(left_out.items())]

"""What an admin should know about files that are right as they are, and what is not safe to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpcadmin.conf import mig
from hpcadmin.conf.autodetect import LIBRARIES
from hpcadmin.conf.gpus import Device, Terms
from hpcadmin.conf.keys import Version
from hpcadmin.conf.machines import Written, interleaved
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.text import fold_ids

MULTIPLE_UNTIL: Version = (23, 2)
_NVSWITCH = 8                    # GPUs from which on NVLinks between all of them go over switches


def remarks(written: Sequence[Written], *, devices_constrained: bool) -> tuple[list[str], list[Problem]]:
    notes, problems = _mixed(written, devices_constrained=devices_constrained)
    more, wrong = _slices(written, devices_constrained=devices_constrained)
    return [*notes, *more, *_same_type(written), *_left_out(written)], [*problems, *wrong]


def about_gres(written: Sequence[Written], terms: Terms) -> list[str]:
    """What the way in which GPUs are configured leaves open."""
    notes = []
    for text, names in _by_text(_pending(written)):
        notes.append(f"{slurm_list(names)}: MIG mode changes at the next reset ({text}): render again then")
    for kind in sorted({w.gres.autodetect for w in written} - {""}):
        notes += _detected(kind, [w for w in written if w.gres.autodetect == kind])
    shared = sorted({w.gres.shared for w in written if w.gres.shared})
    if "mps" in shared:
        notes.append("gres/mps: a Prolog must start the MPS server of the job's GPU; conf render does not write one")
    if shared and "select/cons_tres" not in _select(terms):
        notes.append(f"gres/{' and gres/'.join(shared)} need SelectType=select/cons_tres")
    with_gpus = [w.machine.name for w in written if w.machine.gpus]
    if with_gpus and _select(terms) == "select/linear":
        notes.append(f"SelectType=select/linear: whole nodes are given out, GPUs of {slurm_list(with_gpus)} with them; "
                     "--gpus and its like are refused")
    return notes


def cut_and_shared(written: Sequence[Written], terms: Terms) -> list[Problem]:
    """MIG devices have several files each, which the plug-ins of shards and MPS took for several devices up to 23.02.6:
    tried on 22.05, no job step with such a device starts where shard is in GresTypes."""
    shared = sorted({w.gres.shared for w in written if w.gres.shared})
    cut = [w.machine.name for w in written if any(device.several for device in w.devices)]
    if not shared or not cut or (terms.version is not None and terms.version > MULTIPLE_UNTIL):
        return []
    return [Problem(Kind.SITE, f"gres/{' and gres/'.join(shared)} beside MIG devices ({slurm_list(cut)}): up to Slurm "
                    "23.02.6 no job step with a MIG device would start", key="nodes",
                    hint="leave one out, or name a later version with --slurm-version")]


def _select(terms: Terms) -> str:
    options = terms.site.slurm.options
    return next((str(v) for k, v in options.items() if k.casefold() == "selecttype"), "select/cons_tres").casefold()


def _pending(written: Iterable[Written]) -> Iterable[tuple[str, str]]:
    for w in written:
        found = mig.pending(w.machine.gpus)
        if found:
            yield ", ".join(found), w.machine.name


def _detected(kind: str, members: Sequence[Written]) -> list[str]:
    notes = []
    plugin = LIBRARIES.get(kind, "")
    for found, what in (("", f"has no {plugin}"), (None, f"may lack {plugin}, which is not in the inventory")):
        some = [w.machine.name for w in members if plugin and w.machine.node.tools.get(plugin) == found]
        if some:
            notes.append(f"AutoDetect={kind}: slurmd of {slurm_list(some)} {what}; without it slurmd ends, or finds no "
                         "GPU")
    if kind == "nvidia":
        odd = [w.machine.name for w in members if _minors_out_of_order(w)]
        if odd:
            notes.append(f"AutoDetect=nvidia orders GPUs by device minor: on {slurm_list(odd)} minors are not in PCI "
                         "bus order, so without device cgroups jobs get other GPUs than they were given")
    if kind == "nvml":
        switched = [w.machine.name for w in members if _switched(w)]
        if switched:
            notes.append(f"AutoDetect=nvml finds no Links on {slurm_list(switched)}, whose NVLinks go to switches: "
                         "no harm where all GPUs are linked alike")
    return notes


def _minors_out_of_order(w: Written) -> bool:
    minors = [gpu.minor for gpu in w.machine.gpus]
    return None in minors or minors != sorted(m for m in minors if m is not None)


def _switched(w: Written) -> bool:
    """All GPUs are linked with each other, and are too many for cables, or registered with a fabric."""
    labels, gpus = w.machine.node.gpu_links, w.machine.gpus
    linked = bool(labels) and all(cell.startswith("NV") for a, row in enumerate(labels) for b, cell in enumerate(row)
                                  if a != b)
    return linked and (len(gpus) >= _NVSWITCH or any(gpu.fabric_state.casefold() == "completed" for gpu in gpus))


def _mixed(written: Sequence[Written], *, devices_constrained: bool) -> tuple[list[str], list[Problem]]:
    """Slurm regroups devices by type: where types alternate, a job's index is another GPU's without constraints."""
    names = [(wrong_index(w.devices), w.machine.name) for w in written
             if not w.gres.autodetect and interleaved(w.devices)]
    notes, problems = [], []
    for example, nodes in _by_text(names):
        text = (f"GPU types alternate on the PCI bus of {slurm_list(nodes)}: without device cgroups a job gets another "
                f"GPU than it asked for ({example})")
        if devices_constrained:
            notes.append(f"{text}; ConstrainDevices=yes must stay")
        else:
            problems.append(Problem(Kind.SITE, text, key="slurm.options.TaskPlugin",
                                    hint="TaskPlugin with task/cgroup and ConstrainDevices=yes, or AutoDetect"))
    return notes, problems


def wrong_index(devices: Sequence[Device]) -> str:
    """The first index that would be wrong: Slurm numbers the devices type by type, the driver along the bus."""
    order = dict.fromkeys(device.type for device in devices)
    grouped = [device for kind in order for device in devices if device.type == kind]
    for index, device in enumerate(grouped):
        if devices[index].type != device.type:
            return (f"gpu:{device.type}:1 can get CUDA_VISIBLE_DEVICES={index}, which is of type "
                    f"{devices[index].type}")
    return ""


def _slices(written: Sequence[Written], *, devices_constrained: bool) -> tuple[list[str], list[Problem]]:
    """MIG by hand."""
    names = [w.machine.name for w in written if not w.gres.autodetect and any(d.several for d in w.devices)]
    if not names:
        return [], []
    text = f"MIG devices of {slurm_list(names)} are written by hand: jobs get an index and no MIG UUID"
    if devices_constrained:
        return [f"{text}; ConstrainDevices=yes must stay"], []
    return [], [Problem(Kind.SITE, text, key="slurm.options.TaskPlugin",
                        hint="TaskPlugin with task/cgroup and ConstrainDevices=yes, or AutoDetect=nvml")]


def _same_type(written: Sequence[Written]) -> list[str]:
    models: dict[str, set[str]] = {}
    for w in written:
        for device in w.devices:
            models.setdefault(device.type, set()).add(w.machine.gpus[device.place].model)
    return [f"{' and '.join(sorted(names))} are both of type {kind}: jobs cannot tell them apart "
            "(site.toml [slurm.gpu_types] can)" for kind, names in sorted(models.items()) if len(names) > 1]


def _by_text(found: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """(text, names) of (text, name), in the order in which they first come."""
    texts: dict[str, list[str]] = {}
    for text, name in found:
        texts.setdefault(text, []).append(name)
    return list(texts.items())


def _left_out(written: Sequence[Written]) -> list[str]:
    """Cores and Links that are missing where one would expect them."""
    left_out: dict[str, list[str]] = {}
    for w in written:
        if w.gres.autodetect:
            continue
        places: dict[str, list[int]] = {}
        for d in w.devices:
            if not d.cores or d.cores_why.startswith("all cores, "):
                places.setdefault(d.cores_why, []).append(d.place)
        reasons = [f"GPU {fold_ids(gpus)}: {why}" if len(set(gpus)) < len(w.machine.gpus) else why
                   for why, gpus in places.items()]
        reasons += [d.links_why for d in w.devices if not d.links]
        for why in dict.fromkeys(reasons):
            if any(word in why for word in ("all cores, ", "so all cores", "matrix", "faulty")) and (
                    "are near it" not in why):
                left_out.setdefault(why, []).append(w.machine.name)
    return [f"{slurm_list(names)}: {why}" for why, names in sorted(left_out.items())]

"""A node's GPUs as gres.conf says them: type, device file, cores, links; one device per line, in PCI bus order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hpcadmin.conf import mig
from hpcadmin.conf.keys import Version
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.sockets import Layout, Near, fits, misfit, near_cores
from hpcadmin.conf.typenames import Types
from hpcadmin.facts import faulty_links
from hpcadmin.model import Gpu, Node
from hpcadmin.site import NodeGroup, Site
from hpcadmin.text import fold_ids

FLAGS = {"nvidia": "nvidia_gpu_env", "amd": "amd_gpu_env", "intel": "intel_gpu_env"}
_FILES = {"nvidia": "/dev/nvidia{}", "amd": "/dev/dri/renderD{}", "intel": "/dev/dri/renderD{}"}
_NVLINK = re.compile(r"NV(\d{1,3})")
_PLAIN = re.compile(r"no Cores(?:, so all cores)?: ")
_NO_LINK = frozenset({"PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PCIE"})


@dataclass(frozen=True)
class Device:
    """One record of gres.conf without its node names. cores, links: "" is left out.

    place: of its GPU in PCI bus order. several: all of the files, with commas, are this one device (MIG).
    """

    type: str
    file: str
    flags: str
    cores: str = ""
    cores_why: str = ""
    links: str = ""
    links_why: str = ""
    place: int = 0
    several: bool = False
    profile: str = ""


@dataclass(frozen=True, eq=False)
class Terms:
    """What the lines of all nodes depend on. version None: all that are known. partial: Cores= may be part of a socket
    (the site's word, and the version takes it)."""

    types: Types
    site: Site
    version: Version | None = None
    partial: bool = False


def virtual_functions(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """NVIDIA's virtual functions: beside their GPU, of its kind, and some of them no function 0. They belong to virtual
    machines; no job can use them."""
    buses: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.vendor == "nvidia":
            buses.setdefault(gpu.pci.rsplit(":", 1)[0], []).append(gpu)
    found: list[Gpu] = []
    for beside in buses.values():
        first = next((gpu for gpu in beside if gpu.pci.endswith(":00.0")), None)
        others = [gpu for gpu in beside if gpu is not first]
        if first and any(not gpu.pci.endswith(".0") for gpu in others):
            found += others
    return tuple(found)


def device_file(gpu: Gpu) -> tuple[str, str]:
    """(path, "") or ("", why not)."""
    pattern = _FILES.get(gpu.vendor)
    if pattern is None:
        return "", f"vendor {gpu.vendor!r} is not known"
    if gpu.minor is None:
        return "", "its device minor is not known"
    path = pattern.format(gpu.minor)
    if not gpu.device_file:
        return "", f"{path} does not exist on the node, or was not looked for"
    if gpu.device_file != path:
        return "", f"its minor says {path}, its device file is {gpu.device_file}"
    return path, ""


def links(node: Node, gpus: Sequence[Gpu]) -> tuple[tuple[str, ...], str]:
    """Links= of each GPU in the order given and the reason; no values, and why, when there are none to write."""
    return _links(node.gpu_links, tuple(gpu.index for gpu in gpus))


@lru_cache(maxsize=1024)
def _links(labels: tuple[tuple[str, ...], ...], indices: tuple[int | None, ...]) -> tuple[tuple[str, ...], str]:
    if not labels:
        return (), "no source tells how the GPUs are linked, so no Links"
    size = len(labels)
    if sorted(i for i in indices if i is not None) != list(range(len(indices))) or size != len(indices) or any(
            len(row) != size for row in labels):
        return (), "the link matrix does not have a row and a column for each GPU, so no Links"
    rows = []
    for i in indices:
        row = [_count(labels[i or 0][j or 0], same=i == j) for j in indices]
        if None in row:
            return (), "the link matrix is incomplete, so no Links"
        rows.append([n for n in row if n is not None])
    if any(rows[a][b] != rows[b][a] for a in range(size) for b in range(a)):
        return (), "the link matrix is not symmetric, so no Links"
    faulty = faulty_links(labels)
    if faulty:
        # A fault that is written down here would be the rule from then on.
        return (), f"the NVLinks of {', '.join(f'GPU {n}' for n in faulty)} look faulty, so no Links"
    if not any(n > 0 for row in rows for n in row):
        return (), "no GPU has a link to another, so no Links"
    what = "XGMI: 1 for a link" if any("XGMI" in row for row in labels) else "NVLinks"
    return tuple(",".join(map(str, row)) for row in rows), f"{what} to each GPU of the node; -1 is the GPU itself"


def _count(label: str, *, same: bool) -> int | None:
    if same:
        return -1 if label == "X" else None
    match = _NVLINK.fullmatch(label)
    if match:
        return int(match[1])
    if label == "XGMI":
        return 1
    return 0 if label in _NO_LINK else None


def devices(node: Node, gpus: Sequence[Gpu], layout: Layout, terms: Terms,
            group: NodeGroup | None = None) -> tuple[tuple[Device, ...], list[Problem]]:
    """gres.conf's devices of a node whose GPUs are in bus order, and what keeps them from being written by hand."""
    problems: list[Problem] = []
    found: list[Device] = []

    def wrong(kind: Kind, what: str, hint: str = "") -> None:
        problems.append(Problem(kind, what, node.name, hint=hint))

    link_rows, links_why = links(node, gpus)
    sliced = any(mig.enabled(gpu) for gpu in gpus)
    if sliced:
        link_rows, links_why = (), "no Links: MIG devices have none"
    for place, gpu in enumerate(gpus):
        name = f"GPU {gpu.index if gpu.index is not None else place}"
        path, why_not = device_file(gpu)
        if why_not:
            wrong(Kind.UNKNOWN, f"{name}: {why_not}", "is the driver loaded? discover again" if gpu.vendor in _FILES
                  else "conf render knows no device files of it")
        cores, cores_why = _cores(near_cores(node.cpu, gpu), layout, partial=terms.partial)
        flags = FLAGS.get(gpu.vendor, "")
        if mig.enabled(gpu):
            parts, wrongs = mig.slices(node.name, name, gpu, terms.types)
            files, more = mig.files(node.name, name, gpu, group) if not wrongs else ((), [])
            problems += [*wrongs, *more]
            found += [Device(kind, file, flags, cores, cores_why, "", links_why, place, several=True, profile=profile)
                      for (kind, profile), file in zip(parts, files, strict=False)]
            continue
        kind = terms.types.of(gpu)
        if not kind and gpu.model not in terms.types.own:     # the site's empty one has been said
            wrong(Kind.UNKNOWN, f"{name}: no type name can be made from model {gpu.model[:60]!r}",
                  "name it in site.toml [slurm.gpu_types]")
        found.append(Device(kind, path, flags, cores, cores_why, link_rows[place] if link_rows else "", links_why,
                            place))
    problems += together(node.name, gpus, [d.file for d in found if d.file and not d.several])
    return _all_or_none(found, layout), problems


def _all_or_none(found: Sequence[Device], layout: Layout) -> tuple[Device, ...]:
    """Where some GPUs of a node have Cores, the others have all: a GPU without is near all to slurmctld too, also with
    --gres-flags=enforce-binding (tried on 22.05, 24.11, 26.05). But where its line follows one with Cores there is an
    error line in the log, and where it comes first (S:…) leaves it out."""
    if not any(d.cores for d in found) or all(d.cores for d in found):
        return tuple(found)
    every = fold_ids(range(layout.cores))
    return tuple(d if d.cores else replace(d, cores=every, cores_why=(
        f"all cores, as without Cores, but with no error line and in (S:…): {_PLAIN.sub('', d.cores_why)}"))
        for d in found)


def together(node: str, gpus: Sequence[Gpu], files: Sequence[str]) -> list[Problem]:
    """What is wrong with the GPUs of a node as a set."""
    problems = []
    if len(set(files)) != len(files):
        twice = next(file for file in files if files.count(file) > 1)
        problems.append(Problem(Kind.FAULT, f"two GPUs have the same device file {twice}", node,
                                hint="discover it again, on the node itself"))
    if len({gpu.vendor for gpu in gpus}) > 1:
        problems.append(Problem(Kind.SITE, "GPUs of several vendors in one node: their Flags cannot stand together",
                                node, hint="leave this node out of the inventory, and write its lines yourself"))
    virtual = virtual_functions(gpus)
    if virtual:
        problems.append(Problem(Kind.FAULT, f"{', '.join(g.pci for g in virtual[:8])} look like virtual functions "
                                "(vGPU), which belong to virtual machines and not to jobs", node,
                                hint="turn them off (sriov-manage -d), then discover again"))
    return problems


def _cores(near: Near, layout: Layout, *, partial: bool) -> tuple[str, str]:
    if near.cores is None:
        return "", f"no Cores, so all cores: {near.why}"
    if len(near.cores) == layout.cores:
        return "", "no Cores: all cores are near it"
    text = fold_ids(near.cores)
    if fits(layout, near):
        return text, near.why
    wrong = misfit(layout, near)
    if partial:
        return text, f"{near.why}; [slurm] partial_cores: {wrong}"
    return "", f"no Cores, so all cores: {wrong}"

"""A node's GPUs as gres.conf says them: type, device file, cores, links; one device per line, in PCI bus order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.sockets import Layout, Near, fits, near_cores
from hpcadmin.facts import faulty_links
from hpcadmin.model import Gpu, Node
from hpcadmin.text import fold_ids

FLAGS = {"nvidia": "nvidia_gpu_env", "amd": "amd_gpu_env", "intel": "intel_gpu_env"}
_FILES = {"nvidia": "/dev/nvidia{}", "amd": "/dev/dri/renderD{}", "intel": "/dev/dri/renderD{}"}
_BRANDS = frozenset([
    "nvidia", "amd", "intel", "intel(r)", "corporation", "tesla", "geforce", "quadro", "instinct", "radeon", "graphics",
    "data", "center", "gpu", "accelerator", "device"])
_PCI = re.compile(r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_NVLINK = re.compile(r"NV(\d{1,3})")
_NO_LINK = frozenset({"PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PCIE"})


@dataclass(frozen=True)
class Device:
    """One line of gres.conf without its node names. cores, links: "" is left out."""

    type: str
    file: str
    flags: str
    cores: str = ""
    cores_why: str = ""
    links: str = ""
    links_why: str = ""


def gpu_type(model: str, names: Mapping[str, str]) -> str:
    """A short type name: the site's for this model, else by rule ("NVIDIA H100 80GB HBM3" is h100); "" for none."""
    if model in names:
        return names[model]
    words = [w for w in re.split(r"[\s/_-]+", model.casefold()) if w and w not in _BRANDS]
    if not words:
        return ""
    first = words[0].strip("[]()")
    if first in ("rtx", "gtx", "titan", "max", "arc") and len(words) > 1:
        return _clean(_series(first, words[1:]))
    numbered = next((w.strip("[]()") for w in words if re.fullmatch(r"\W?[a-z]{1,3}\d{1,4}[a-z]{0,2}\W?", w)), None)
    return _clean(numbered or first)


def _series(brand: str, rest: Sequence[str]) -> str:
    if re.fullmatch(r"[a-z]\d{3,4}", rest[0]):        # RTX A6000 is sold and spoken of as A6000
        return rest[0]
    name = brand
    for word in rest:
        if word in ("ti", "super", "ada", "pro", "xp", "x", "v", "rtx") or re.fullmatch(r"\d{3,4}[a-z]{0,2}", word):
            name += word
        else:
            break
    return name


def _clean(text: str) -> str:
    text = re.sub(r"[^a-z0-9_.]", "", text)
    return text if not text or text[0].isalpha() else f"gpu{text}"


def bus_order(gpus: Sequence[Gpu]) -> tuple[Gpu, ...] | str:
    """The GPUs in PCI bus order, which is the index that jobs see; or why it cannot be told."""
    places = []
    for gpu in gpus:
        match = _PCI.fullmatch(gpu.pci)
        if not match:
            return "the PCI address of " + (f"GPU {gpu.index}" if gpu.index is not None else "a GPU") + " is not known"
        places.append(tuple(int(part, 16) for part in match.groups()))
    if len(set(places)) != len(places):
        return "two GPUs have the same PCI address"
    return tuple(gpu for _, gpu in sorted(zip(places, gpus, strict=True), key=lambda pair: pair[0]))


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
    if not node.gpu_links:
        return (), "no source tells how the GPUs are linked, so no Links"
    indices = [gpu.index for gpu in gpus]
    size = len(node.gpu_links)
    if sorted(i for i in indices if i is not None) != list(range(len(gpus))) or size != len(gpus) or any(
            len(row) != size for row in node.gpu_links):
        return (), "the link matrix does not have a row and a column for each GPU, so no Links"
    rows = []
    for i in indices:
        row = [_count(node.gpu_links[i or 0][j or 0], same=i == j) for j in indices]
        if None in row:
            return (), "the link matrix is incomplete, so no Links"
        rows.append([n for n in row if n is not None])
    if any(rows[a][b] != rows[b][a] for a in range(size) for b in range(a)):
        return (), "the link matrix is not symmetric, so no Links"
    faulty = faulty_links(node.gpu_links)
    if faulty:
        # A fault that is written down here would be the rule from then on.
        return (), f"the NVLinks of {', '.join(f'GPU {node.gpus[n].index}' for n in faulty)} look faulty, so no Links"
    if not any(n > 0 for row in rows for n in row):
        return (), "no GPU has an NVLink to another, so no Links"
    return tuple(",".join(map(str, row)) for row in rows), "NVLinks to each GPU of the node; -1 is the GPU itself"


def _count(label: str, *, same: bool) -> int | None:
    if same:
        return -1 if label == "X" else None
    match = _NVLINK.fullmatch(label)
    if match:
        return int(match[1])
    if label == "XGMI":
        return 1
    return 0 if label in _NO_LINK else None


def devices(node: Node, gpus: Sequence[Gpu], layout: Layout,
            names: Mapping[str, str]) -> tuple[tuple[Device, ...], list[Problem]]:
    """gres.conf's devices of a node whose GPUs are in bus order, and what keeps them from being written."""
    problems: list[Problem] = []
    found = []

    def wrong(kind: Kind, what: str, hint: str = "") -> None:
        problems.append(Problem(kind, what, node.name, hint=hint))

    link_rows, links_why = links(node, gpus)
    for place, gpu in enumerate(gpus):
        name = f"GPU {gpu.index if gpu.index is not None else place}"
        kind = gpu_type(gpu.model, names)
        if not kind:
            wrong(Kind.UNKNOWN, f"{name}: no type name can be made from model {gpu.model[:60]!r}",
                  "name it in site.toml [slurm.gpu_types]")
        path, why_not = device_file(gpu)
        if why_not:
            wrong(Kind.UNKNOWN, f"{name}: {why_not}", "is the driver loaded? run discover again")
        if gpu.mig.casefold() == "enabled":
            wrong(Kind.SITE, f"{name} is in MIG mode, which hand-written lines cannot describe")
        cores, cores_why = _cores(near_cores(node.cpu, gpu), layout)
        found.append(Device(kind, path, FLAGS.get(gpu.vendor, ""), cores, cores_why,
                            link_rows[place] if link_rows else "", links_why))
    files = [d.file for d in found if d.file]
    if len(set(files)) != len(files):
        wrong(Kind.FAULT, "two GPUs have the same device file")
    if len({d.flags for d in found}) > 1:
        wrong(Kind.SITE, "GPUs of several vendors in one node: their Flags cannot stand together")
    return tuple(found), problems


def _cores(near: Near, layout: Layout) -> tuple[str, str]:
    if near.cores is None:
        return "", f"no Cores, so all cores: {near.why}"
    if not layout.spans:
        return "", "no Cores, so all cores: the node's cores are not known one by one"
    if len(near.cores) == sum(len(s) for s in layout.spans):
        return "", "no Cores: all cores are near it"
    text = fold_ids(near.cores)
    if not fits(layout, near):
        return "", (f"no Cores, so all cores: the cores near it ({text}) are not exactly one socket of "
                    f"{layout.cores_per_socket}, which Slurm 24.11 and later refuse")
    return text, near.why

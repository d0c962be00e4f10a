"""AutoDetect= of gres.conf: where the site wants it, whether the version has it, under which types it finds GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.conf import mig
from hpcadmin.conf.gpus import Device, Terms
from hpcadmin.conf.keys import VERSIONS, Version, effects, show
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.sockets import Layout, misfit, near_cores
from hpcadmin.conf.typenames import Types
from hpcadmin.gpu_types import autodetected, autodetected_mig
from hpcadmin.model import Gpu, Node
from hpcadmin.site import NodeGroup, Site

VENDORS = {"nvml": "nvidia", "nvidia": "nvidia", "rsmi": "amd", "oneapi": "intel"}
LIBRARIES = {"nvml": "gpu_nvml.so", "rsmi": "gpu_rsmi.so", "oneapi": "gpu_oneapi.so"}
_KNOWN = (*VENDORS, "nrt", "full", "off")
_PREFIX = re.compile(r"(?:nvidia_|amd_|intel\(r\)_|geforce_|tesla_|quadro_|instinct_)(?=[a-z])")
_LEGAL = re.compile(r"[a-z][a-z0-9_.-]*\Z")
NO_PARTS: Version = (24, 11)      # from which on a detected affinity that is no whole socket makes the node INVAL


def wanted(site: Site, group: NodeGroup | None) -> str:
    """The AutoDetect of a node; "" where its lines are written by hand."""
    value = ((group.autodetect if group else "") or site.slurm.autodetect).casefold()
    return "" if value == "off" else value


def refused(site: Site, version: Version | None) -> list[Problem]:
    """Values that the version does not have, or that cannot be written from an inventory."""
    problems = []
    named = [("slurm.autodetect", site.slurm.autodetect)]
    named += [(f"nodes.{group.name}.autodetect", group.autodetect) for group in site.nodes]
    for key, value in named:
        kind = value.casefold()
        if not value or kind == "off":
            continue
        if kind not in _KNOWN:
            problems.append(Problem(Kind.SITE, f"autodetect = {value[:40]!r} is not known", key=key,
                                    hint=f"one of {', '.join(_KNOWN)}"))
        elif kind == "nrt":
            problems.append(Problem(Kind.SITE, "AutoDetect=nrt: the inventory knows no Trainium or Inferentia devices: "
                                    "Gres= has no count", key=key, hint="write these nodes' gres by hand"))
        elif found := effects("gres.conf", "AutoDetect", kind, version):
            which = show(found[0][1])
            hint = "" if version else "name the version with --slurm-version"
            problems.append(Problem(Kind.SITE, f"AutoDetect={kind}: Slurm {which} does not have it, and would find no "
                                    "GPU", key=key, hint=hint))
    for group in site.nodes:
        state = next((str(v) for k, v in group.options.items() if k.casefold() == "state"), "")
        if wanted(site, group) and state.casefold() in ("cloud", "future"):
            problems.append(Problem(Kind.SITE, f"AutoDetect={wanted(site, group)} with State={state}: slurmctld must "
                                    "know the GPUs of such nodes from gres.conf", key=f"nodes.{group.name}.autodetect",
                                    hint='autodetect = "off"'))
    return problems


def place_of(group: NodeGroup | None) -> str:
    """The key in site.toml that `wanted` goes by."""
    return f"nodes.{group.name}.autodetect" if group is not None and group.autodetect else "slurm.autodetect"


def devices(node: Node, gpus: Sequence[Gpu], layout: Layout, terms: Terms,
            group: NodeGroup | None) -> tuple[tuple[Device, ...], list[Problem]]:
    """The node's devices as AutoDetect will find them, for Gres=; no file, cores or links: those it finds itself."""
    kind, key = wanted(terms.site, group), place_of(group)
    problems: list[Problem] = []
    found: list[tuple[str, str, int]] = []
    for place, gpu in enumerate(gpus):
        name = f"GPU {gpu.index if gpu.index is not None else place}"
        if VENDORS.get(kind, gpu.vendor) != gpu.vendor:
            problems.append(Problem(Kind.SITE, f"{name}: AutoDetect={kind} does not find it, it is {gpu.vendor}'s",
                                    node.name, key=key))
            continue
        if mig.enabled(gpu):
            if kind == "nvidia":
                problems.append(Problem(Kind.SITE, f"{name}: AutoDetect=nvidia does not find its MIG devices",
                                        node.name, key=key, hint="AutoDetect=nvml does"))
                continue
            parts, wrong = mig.slices(node.name, name, gpu, terms.types)
            problems += wrong
            found += [(kind_, autodetected_mig(gpu.model, profile), place) for kind_, profile in parts]
            continue
        detected = autodetected(gpu.model)
        if not detected:
            problems.append(Problem(Kind.UNKNOWN, f"{name}: its model is not known, so neither is its detected type",
                                    node.name))
            continue
        found.append((_type(gpu, detected, terms.types), detected, place))
    wrong_socket = _sockets(node, gpus, layout, terms.version)
    if wrong_socket:
        problems.append(Problem(Kind.SITE, f"AutoDetect={kind} on {wrong_socket}; the node would be INVAL", node.name,
                                key=key, hint='autodetect = "off" for it: lines by hand leave Cores out'))
    if not problems:
        found, problems = _matching(node.name, found)
    return tuple(Device(kind_, "", "", "", "AutoDetect finds the cores", "", "AutoDetect finds the links", place,
                        several=mig.enabled(gpus[place])) for kind_, _, place in found), problems


def _type(gpu: Gpu, detected: str, types: Types) -> str:
    """The site's name or our short one where it is a part of the detected name; else that without the vendor's."""
    if gpu.model in types.own:
        return types.own[gpu.model]
    short = types.of(gpu)
    return short if short and short in detected else _plain(detected)


def _plain(detected: str) -> str:
    text = detected
    while match := _PREFIX.match(text):
        text = text[match.end():]
    return text if _LEGAL.match(text) else detected


def _matching(node: str, found: list[tuple[str, str, int]]) -> tuple[list[tuple[str, str, int]], list[Problem]]:
    """Slurm gives a detected GPU the longest configured type that is a part of its name: it must be the one meant."""
    problems = []
    for kind, detected, _ in found:
        if detected and kind.casefold() not in detected:
            problems.append(Problem(
                Kind.SITE, f"type {kind} is no part of {detected}, which AutoDetect finds: the GPU would be ignored",
                node, key="slurm.gpu_types", hint="a part of the detected name, or no entry in [slurm.gpu_types]"))
    if problems:
        return found, list(dict.fromkeys(problems))

    def first(detected: str, kinds: Sequence[str]) -> str:
        return max((kind for kind in kinds if kind.casefold() in detected), key=len, default="")

    kinds = sorted({kind for kind, _, _ in found})
    if any(detected and first(detected, kinds) != kind for kind, detected, _ in found):
        found = [(_plain(detected) if detected else kind, detected, place) for kind, detected, place in found]
    return found, []


def _sockets(node: Node, gpus: Sequence[Gpu], layout: Layout, version: Version | None) -> str:
    """The GPU whose detected cores are no socket, and why: from 24.11 on they make the node INVAL."""
    if (version or VERSIONS[-1]) < NO_PARTS:
        return ""
    wrong = ((gpu, misfit(layout, near_cores(node.cpu, gpu))) for gpu in gpus)
    return next((f"GPU {gpu.index}: {why}" for gpu, why in wrong if why), "")

"""What a node has beside CPUs and memory: Gres= of its node line, and what gres.conf says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.conf import autodetect, gpus, mig
from hpcadmin.conf.gpus import Device, Terms
from hpcadmin.conf.grammar import scalar
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.sockets import Layout
from hpcadmin.gpu_types import gres as gres_of
from hpcadmin.model import Gpu, Node
from hpcadmin.site import NodeGroup, Site

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}(:[A-Za-z][A-Za-z0-9_.-]{0,60})?\Z")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}\Z")         # "3g" in --gres=gpu:3g would be read as a count
_COUNT = re.compile(r"[1-9][0-9]{0,8}[KMGTP]?\Z")
_OURS = ("gpu", "mps", "shard")
MAX_SHARES = 1_000_000


@dataclass(frozen=True)
class Gres:
    """devices: of gpu. autodetect: "" for lines by hand. shared, per_gpu: gres/mps or gres/shard and its count on each
    device. counted: (name, type or "", count) of what is only counted."""

    devices: tuple[Device, ...] = ()
    autodetect: str = ""
    shared: str = ""
    per_gpu: int = 0
    counted: tuple[tuple[str, str, str], ...] = ()

    @property
    def total(self) -> int:
        """Of what is shared, on all devices."""
        return self.per_gpu * len(self.devices)

    @property
    def text(self) -> str:
        """Gres= of the node line: GPU types in the order in which they first come on the bus."""
        parts = [gres_of(device.type for device in self.devices)] if self.devices else []
        parts += [f"{self.shared}:{self.total}"] if self.shared else []
        parts += [":".join(part for part in item if part) for item in self.counted]
        return ",".join(parts)

    @property
    def names(self) -> tuple[str, ...]:
        """What GresTypes= must have."""
        return tuple(dict.fromkeys([*(["gpu"] if self.devices else []), *([self.shared] if self.shared else []),
                                    *(name for name, _, _ in self.counted)]))


def plan(node: Node, found: Sequence[Gpu], layout: Layout, terms: Terms,
         group: NodeGroup | None) -> tuple[Gres, list[Problem]]:
    """found: the node's GPUs in bus order."""
    kind = autodetect.wanted(terms.site, group) if found else ""
    if kind:
        devices, problems = autodetect.devices(node, found, layout, terms, group)
        problems += gpus.together(node.name, found, ())
    else:
        devices, problems = gpus.devices(node, found, layout, terms, group)
    problems += [Problem(Kind.SITE, _no_type(name), node.name, hint="name it in site.toml [slurm.gpu_types]")
                 for name in dict.fromkeys(device.type for device in devices)
                 if name and not _TYPE.match(name) and name not in terms.site.slurm.gpu_types.values()]
    if group is None:
        return Gres(devices, kind), problems
    shared, per_gpu, more = _shares(node.name, found, group, by_hand=not kind)
    return Gres(devices, kind, shared, per_gpu, counted(group)), [*problems, *more]


def _no_type(name: str) -> str:
    return (f"type {name[:40]!r} cannot be: at most 63 letters, digits, '_', '.' and '-', the first a letter")


def _shares(node: str, found: Sequence[Gpu], group: NodeGroup, *, by_hand: bool) -> tuple[str, int, list[Problem]]:
    named = [(name, count) for name, count in (("mps", group.mps), ("shard", group.shards)) if count]
    if not named:
        return "", 0, []
    name, count = named[0]
    word = "mps" if name == "mps" else "shards"
    why = ""
    if not found:
        why = f"{word} = {count}: the node has no GPU to share"
    elif name == "mps" and any(gpu.vendor != "nvidia" for gpu in found):
        why = "MPS is NVIDIA's: other GPUs can be shared by shards"
    elif by_hand and any(mig.enabled(gpu) for gpu in found):
        why = f"{word} on MIG devices: only with AutoDetect=nvml"
    if why:
        return "", 0, [Problem(Kind.SITE, why, node, key=f"nodes.{group.name}.{word}")]
    return name, count, []


def counted(group: NodeGroup) -> tuple[tuple[str, str, str], ...]:
    """(name, type, count) of [nodes.NAME.gres], in the order of their names."""
    found = []
    for key in sorted(group.gres):
        name, _, kind = key.partition(":")
        found.append((name, kind, scalar(group.gres[key])))
    return tuple(found)


def refused(site: Site) -> list[Problem]:
    """What the site's [slurm.gpu_types] and [nodes.NAME] say of gres that cannot be."""
    problems = [Problem(Kind.SITE, _no_type(name), key=f"slurm.gpu_types.{model}")
                for model, name in site.slurm.gpu_types.items() if not _TYPE.match(name)]

    def wrong(group: NodeGroup, key: str, what: str, hint: str = "") -> None:
        problems.append(Problem(Kind.SITE, f"[nodes.{group.name}] {what}", key=f"nodes.{group.name}.{key}", hint=hint))

    mps = next((group for group in site.nodes if group.mps), None)
    shards = next((group for group in site.nodes if group.shards), None)
    if mps and shards:
        # Tried: with both plug-ins loaded, that of shards takes CUDA_VISIBLE_DEVICES from jobs with MPS.
        wrong(shards, "shards", f"shards, and mps in [nodes.{mps.name}]: with both in one cluster jobs with MPS lose "
              "CUDA_VISIBLE_DEVICES", "leave one out")
    for group in site.nodes:
        for key, count in (("mps", group.mps), ("shards", group.shards)):
            if count is not None and not 0 <= count <= MAX_SHARES:
                wrong(group, key, f"{key} = {count}: a count for each GPU, at most {MAX_SHARES}")
        if group.mps and group.mps % 100:
            wrong(group, "mps", f"mps = {group.mps}: jobs ask for percents of a GPU, so a multiple of 100")
        for name, value in group.gres.items():
            path = f"gres.{name}"
            if not _NAME.match(name):
                wrong(group, path, f"gres {name[:40]!r}: a name of small letters, digits and _, or name:type")
            elif name.partition(":")[0] in _OURS:
                hint = "" if name.startswith("gpu") else "mps = N or shards = N in [nodes.NAME]"
                wrong(group, path, f"gres {name}: follows from the GPUs", hint)
            elif isinstance(value, bool) or not _COUNT.match(scalar(value)):
                wrong(group, path, f"gres {name} = {scalar(value)[:40]!r}: a count such as 4 or \"10G\"")
        for name, minor in group.mig_minors.items():
            if not re.match(r"gpu[0-9]{1,3}/gi[0-9]{1,3}(/ci[0-9]{1,3})?/access\Z", name) or not 0 < minor < 1 << 20:
                wrong(group, f"mig_minors.{name}", f"mig_minors {name[:60]!r} = {minor}: no line of mig-minors",
                      'as "gpu0/gi1/access" = 12')
    return problems

"""Type= of GPUs: short names made from the models that tools print, or the site's own.

One scheme for all of a cluster: "NVIDIA H100 80GB HBM3" is h100. Models of one name with different memory are told
apart (a100_40gb, a100_80gb), so that a job that needs the larger one can ask for it; so are partitions of AMD's GPUs
(mi300x_cpx) and vGPUs (a100_10c), which are parts of what the name says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hpcadmin.model import Gpu

_BRANDS = frozenset([
    "nvidia", "amd", "amd/ati", "ati", "intel", "intel(r)", "corporation", "inc", "tesla", "geforce", "quadro", "grid",
    "instinct", "radeon", "graphics", "data", "center", "gpu", "accelerator", "device"])
_NUMBERED = re.compile(r"\W?[a-z]{1,3}\d{1,4}[a-z]{0,2}\W?\Z")
_SIZE = re.compile(r"(?<![0-9])([0-9]{1,4}) ?gb\b", re.IGNORECASE)
_VGPU = re.compile(r"[A-Za-z0-9]-([0-9]{1,3}(?:-[0-9]{1,3})?[ABCQ])\Z")
_LIST = re.compile(r"[\d,\s-]+")            # a[1-2] is a list of names, not one
_BRACKETS = re.compile(r"\[([^\[\]]{2,80})\][^\[\]]*\Z")
SAME_SIZE = 0.1                  # tools print 79.6 and 81.6 GB for one and the same


@dataclass(frozen=True, eq=False)
class Types:
    """own: the site's. short: of each model that the rule would call like another one with other memory."""

    own: Mapping[str, str] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, gpu: Gpu) -> str:
        """"" where no name can be made."""
        if gpu.model in self.own:
            return self.own[gpu.model]
        name = self.short.get(gpu.model) or gpu_type(gpu.model, self.own)
        mode = gpu.partition.split("/", 1)[0].casefold()
        return f"{name}_{mode}" if name and mode in ("cpx", "dpx", "tpx", "qpx") else name


def types_of(gpus: Iterable[Gpu], own: Mapping[str, str]) -> Types:
    """The names for all models of a cluster."""
    by_name: dict[str, dict[str, float | None]] = {}
    for model, memory in dict.fromkeys((gpu.model, gpu.memory_mib) for gpu in gpus):
        name = gpu_type(model, own)
        if name and model not in own and not _vgpu(model):
            by_name.setdefault(name, {}).setdefault(model, _size(model, memory))
    short: dict[str, str] = {}
    notes = []
    for name, sizes in sorted(by_name.items()):
        known = {model: size for model, size in sizes.items() if size}
        if len(known) < 2 or not _differ(list(known.values())):
            continue
        labels = _labels(known)
        short |= {model: f"{name}_{label}gb" for model, label in labels.items()}
        told = ", ".join(f"{model} is {short[model]}" for model in sorted(known))
        notes.append(f"GPU types: {told}: {name} with different memory sizes ([slurm.gpu_types] names them otherwise)")
    return Types(own, short, tuple(notes))


def _size(model: str, memory_mib: int | None) -> float | None:
    """GB as the name says, where the memory does not contradict it (GH200 480GB names the CPU's); else GiB."""
    match = _SIZE.search(model)
    named = float(match[1]) if match else None
    if memory_mib is None:
        return named
    if named is not None and _close(named, memory_mib / 1024):
        return named
    return float(round(memory_mib / 1024))


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_SIZE * max(one, other)


def _differ(sizes: Sequence[float]) -> bool:
    return not _close(min(sizes), max(sizes))


def _labels(sizes: Mapping[str, float]) -> dict[str, int]:
    """Sizes that are close get the largest of them for a name."""
    labels: dict[str, int] = {}
    current = 0.0
    for model, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if not current or not _close(size, current):
            current = size
        labels[model] = int(current)
    return labels


def gpu_type(model: str, names: Mapping[str, str]) -> str:
    """A short type name: the site's for this model, else by rule ("NVIDIA H100 80GB HBM3" is h100); "" for none."""
    return names[model] if model in names else _by_rule(model)


@lru_cache(maxsize=1024)
def _by_rule(model: str) -> str:
    inside = _BRACKETS.search(model)             # lspci: GA100 [A100 SXM4 40GB]
    if inside and _LIST.fullmatch(inside[1]):
        inside = None
    words = [w for w in re.split(r"[\s/_-]+", (inside[1] if inside else model).casefold()) if w and w not in _BRANDS]
    if not words:
        return ""
    first = words[0].strip("[]()")
    profile = _vgpu(model)
    if first in ("rtx", "gtx", "titan", "max", "arc") and len(words) > 1:
        return _clean(_series(first, words[1:]) + (f"_{profile}" if profile else ""))
    numbered = next((w.strip("[]()") for w in words if _NUMBERED.match(w)), None)
    if "[" in (numbered or first):
        return ""
    return _clean((numbered or first) + (f"_{profile}" if profile else ""))


def _vgpu(model: str) -> str:
    """10c of GRID A100-10C: a part of a GPU, given to a virtual machine."""
    match = _VGPU.search(model)
    return match[1].casefold() if match else ""


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
    """A type begins with a letter: --gres=gpu:3g is read as a count."""
    text = re.sub(r"[^a-z0-9_.]", "", text)
    return text if not text or text[0].isalpha() else f"gpu{text}"

"""`nvidia-smi -L`: the tool's own index of each GPU, and the GPUs that do not answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of
from hpcadmin.facts.nvidia_smi import LostGpu, lost_gpus

NAME = "nvidia_list"
ORDER = 92
COMMAND = "run 20 nvidia-smi -L"
_GPU = re.compile(r"GPU ([0-9]{1,3}): ([^(\n]{1,120}) \(UUID: (GPU-[0-9a-zA-Z-]{1,60})\)")


@dataclass(frozen=True)
class Listed:
    index: int
    model: str
    uuid: str


@dataclass(frozen=True)
class GpuList:
    gpus: tuple[Listed, ...]
    lost: tuple[LostGpu, ...] = ()


def parse(text: str) -> GpuList:
    lines = lines_of(text, "nvidia-smi -L")
    gpus = [Listed(int(match[1]), clean(match[2]), match[3]) for match in map(_GPU.match, lines) if match]
    lost = lost_gpus(text)
    if not gpus and not lost and "No devices" not in text:
        raise ParseError(f"no list of GPUs: {clean(lines[0])}")
    if len({gpu.index for gpu in gpus}) != len(gpus):
        raise ParseError("a GPU index appears twice")
    return GpuList(gpus=tuple(gpus), lost=tuple(lost))

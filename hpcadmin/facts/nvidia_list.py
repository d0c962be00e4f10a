"""`nvidia-smi -L`: the tool's own index of each GPU, its MIG devices, and the GPUs that do not answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, lines_of
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.facts._smi import LostGpu, Shown, Smi, lost_gpus
from hpcadmin.model import Gpu, MigDevice

NAME = "nvidia_list"
ORDER = 92
COMMAND = "run 20 nvidia-smi -L"
FORMS = ("text",)
MARKS = ("(UUID: GPU-",)
KIND = "nvidia-smi -L"

_GPU = re.compile(r"GPU ([0-9]{1,3}): ([^(\n]{1,120}?(?:\([^()\n]{1,30}\))?) {1,4}"
                  r"\(UUID: (GPU-[0-9a-zA-Z.…*-]{1,60})\)")
_MIG = re.compile(r"\s{1,16}MIG ([0-9]{1,2}(?:c\.[0-9]{1,2})?g\.[0-9]{1,4}gb(?:\+[a-z.]{1,10})?)\s{1,16}Device {1,4}"
                  r"([0-9]{1,3}): \(UUID: (MIG-[0-9a-zA-Z/.…*-]{1,80})\)")
_LINKS = ("Link ", "NVML: Unable to retrieve N", "Device does not have or support N")
_INSTANCES = re.compile(r"MIG-GPU-[0-9a-zA-Z-]{1,60}/([0-9]{1,3})/([0-9]{1,3})\Z")


@dataclass(frozen=True)
class Listed:
    index: int
    model: str
    uuid: str
    migs: tuple[MigDevice, ...] = ()


@dataclass(frozen=True)
class GpuList:
    gpus: tuple[Listed, ...]
    lost: tuple[LostGpu, ...] = ()


def parse(text: str) -> GpuList:
    lines = lines_of(text, "nvidia-smi -L")
    gpus = _listed(lines)
    lost = lost_gpus(text)
    if not gpus and not lost and "No devices" not in text:
        raise ParseError(f"no list of GPUs: {clean(lines[0])}")
    return GpuList(gpus=gpus, lost=tuple(lost))


def _listed(lines: Sequence[str]) -> tuple[Listed, ...]:
    gpus: list[Listed] = []
    for line in lines:
        match, mig = _GPU.match(line.lstrip()), _MIG.match(" " + line)
        if match:
            gpus.append(Listed(int(match[1]), clean(match[2]), _smi.whole_uuid(match[3])))
        elif mig and gpus:
            # Drivers before 470 name a MIG device by its GPU and instances.
            ids = _INSTANCES.match(mig[3])
            device = MigDevice(int(mig[2]), mig[1], _smi.whole_uuid(mig[3]), *(map(int, ids.groups()) if ids else ()))
            gpus[-1] = replace(gpus[-1], migs=(*gpus[-1].migs, device))
    if len({gpu.index for gpu in gpus}) != len(gpus):
        raise ParseError("a GPU index appears twice")
    return tuple(gpus)


# --- texts that people have ----------------------------------------------------------------------------------------


def spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    """First and last line of each list. What nvlink -s prints has the same headings, and lines of links below."""
    found: list[tuple[int, int]] = []
    latest = -1
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("GPU ") and (match := _GPU.match(text)):
            index = int(match[1])
            if found and latest < index and all(_inside(lines[n - 1]) for n in range(found[-1][1] + 1, number)):
                found[-1] = (found[-1][0], number)
            else:
                found.append((number, number))
            latest = index
        elif text.startswith("MIG ") and found and _MIG.match(" " + line):
            found[-1] = (found[-1][0], number)
    return [(first, last) for first, last in found if not _followed(lines, first, last)]


def _inside(line: str) -> bool:
    """May stand between the lines of a list."""
    return not line.strip() or _MIG.match(" " + line) is not None or _smi.lost_gpu(line) is not None


def _followed(lines: Sequence[str], first: int, last: int) -> bool:
    """By links: then it is of nvlink."""
    after = next((line.strip() for line in lines[last:last + 3] if line.strip()), "")
    return after.startswith(_LINKS)


def read(document: Document) -> tuple[Reading, ...]:
    lines = _smi.unquoted(document.lines)
    readings = []
    for first, last in spans(lines):
        try:
            gpus = _listed(lines[first - 1:last])
        except ParseError as exc:
            raise ParseError(exc.what, where=f"{document.name}:{first}") from exc
        complaints = {said.line: said for said in _smi.near(lines, first, last)}
        for number in range(first, last + 1):
            said = _smi.complaint(lines[number - 1], number)
            if said:
                complaints[number] = said
        ordered = [complaints[number] for number in sorted(complaints)]
        lost = tuple(said.lost for said in ordered if said.lost)
        shown = tuple(_shown(gpu) for gpu in gpus)
        smi = Smi("", None, shown, lost)
        readings.append(_smi.reading(KIND, smi, first, last, complaints=ordered, count=len(shown)))
    return tuple(readings)


def _shown(gpu: Listed) -> Shown:
    """MIG devices are only listed while MIG is on; without them, whether it is on is not said."""
    return Shown(Gpu("nvidia", gpu.index, gpu.model, gpu.uuid, mig="Enabled" if gpu.migs else "",
                     mig_devices=gpu.migs), mig_mode="Enabled" if gpu.migs else None)

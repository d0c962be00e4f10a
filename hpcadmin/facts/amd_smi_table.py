"""The table that `amd-smi` prints without a command (since ROCm 7.0): two lines a GPU, then the processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _amd
from hpcadmin.facts._amd import AmdGpu, AmdSmi, told
from hpcadmin.facts._base import clean, leading_float, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading

FORMS = ("text",)
MARKS = ("| AMD-SMI ", "Partition-Mode")

_BANNER = re.compile(r"\|\s{0,4}AMD-SMI\s")
_HEADER = re.compile(r"\|\s{0,4}GPU\s{1,8}HIP-ID\b")
_DRIVER = re.compile(r"\bamdgpu version: {0,4}(\S{1,200})")
_TOP = re.compile(r"\s{0,8}([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s{1,40}(\S.{0,80})\Z")
_SECOND = re.compile(r"\s{0,8}([0-9]{1,4})\s{1,16}(?:[0-9]{1,4}|N/A)\s{1,16}(?:[0-9]{1,4}|N/A)\s{1,24}(\S{1,20})\s*\Z")
_MODE = re.compile(r"([A-Z]{3})/(NPS[0-9])\Z")
_MEMORY = re.compile(r"[0-9]{1,9}/([0-9]{1,9}) MB\s*\Z")
_POWER = re.compile(r"/([0-9]{1,5}) W\s*\Z")


@dataclass
class _Table:
    first: int
    last: int
    driver: str = ""
    gpus: list[AmdGpu] = field(default_factory=list)
    cut_names: list[str] = field(default_factory=list)
    half: bool = False               # of the last GPU only the first line
    banner: bool = False
    processes: bool = False


def read(document: Document) -> tuple[Reading, ...]:
    try:
        return tuple(_reading(table) for table in _tables(document.lines))
    except ParseError as exc:
        raise ParseError(exc.what, where=exc.where or document.name) from exc


def _tables(lines: Sequence[str]) -> Iterator[_Table]:
    table: _Table | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()[:400]
        if text.startswith("|"):
            banner = bool(_BANNER.match(text))
            if banner or (table is None and _HEADER.match(text)):
                if table and table.gpus:
                    yield table
                table = _Table(number, number, banner=banner)
        if table is None:
            continue
        if text.startswith(("|", "+")):
            _take(table, text)
            table.last = number
        elif text and table.gpus:
            yield table
            table = None
    if table and (table.gpus or table.banner):
        yield table


def _take(table: _Table, text: str) -> None:
    driver = _DRIVER.search(text)
    if driver and not table.gpus:
        table.driver = table.driver or told(driver[1])
    if "Processes:" in text:
        table.processes = True
    cells = text.strip("|").split("|")
    if table.processes or len(cells) != 2:
        return
    top, second = _TOP.match(cells[0].rstrip()), _SECOND.match(cells[0])
    if top:
        if len(table.gpus) >= _amd.MAX_GPUS:
            raise ParseError("more GPUs than a node has")
        name = clean(top[2])
        if name.endswith("..."):
            table.cut_names.append(pci_address(top[1]))
            name = ""
        power = _POWER.search(cells[1].rstrip())
        table.gpus.append(AmdGpu(pci=pci_address(top[1]), model=told(name),
                                 power_max_w=leading_float(power[1]) if power else None, driver=table.driver))
        table.half = True
    elif second and table.half:
        mode, memory = _MODE.match(second[2]), _MEMORY.search(cells[1].rstrip())
        table.gpus[-1] = replace(
            table.gpus[-1], index=maybe_integer(second[1]), compute_partition=mode[1] if mode else "",
            memory_partition=mode[2] if mode else "", memory_mib=maybe_integer(memory[1]) if memory else None)
        table.half = False


def _reading(table: _Table) -> Reading:
    if len({gpu.index for gpu in table.gpus}) != len(table.gpus):
        raise ParseError(f"line {table.first}: a GPU's number appears twice")
    missing = []
    if not table.gpus or table.half:
        missing.append(f"the table is cut off after {f'GPU {table.gpus[-1].pci}' if table.gpus else 'its head'}")
    elif not table.processes:
        missing.append("the table is cut off: the list of processes that ends it is not there")
    if not table.banner:
        missing.append("the head of the table, with the driver's version")
    known: dict[str, Any] = {
        "gpus": [_amd.known_gpu(gpu) for gpu in table.gpus], "gpu_count": None if missing else len(table.gpus),
        "gpu_numa": None, "cores_if_determined": None, "driver": table.driver or None}
    told_of = tuple(Finding(f"GPU {pci}: its name is cut off", table.first) for pci in table.cut_names)
    return Reading(kind="amd-smi", first=table.first, last=table.last,
                   value=AmdSmi(tuple(table.gpus), driver=table.driver), known=known, findings=told_of,
                   missing=tuple(missing))

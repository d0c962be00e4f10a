"""AMD GPUs: one record for what rocm-smi, amd-smi and sysfs tell of a GPU (or of one of its partitions), and links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _links
from hpcadmin.facts._base import clean, leading_float, maybe_integer, pci_address

MAX_GPUS = 1024
Cells = tuple[tuple[str, ...], ...]
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{4})\Z")
_UNITS = {"B": 1 / 1048576, "KB": 1 / 1024, "KIB": 1 / 1024, "MB": 1, "MIB": 1, "GB": 1024, "GIB": 1024}


@dataclass(frozen=True)
class AmdGpu:
    """index: the tool's. In CPX and the like one PCI address is several GPUs: `partition_id` tells them apart."""

    index: int | None = None
    pci: str = ""
    model: str = ""
    pci_id: str = ""
    uuid: str = ""                   # amd-smi's
    unique_id: str = ""              # 0x…: of the chip
    guid: str = ""                   # KFD's gpu_id
    node: int | None = None          # KFD node
    card: str = ""                   # "card1" of /dev/dri
    render: int | None = None
    numa: int | None = None
    numa_affinity: int | None = None
    memory_mib: int | None = None
    compute_partition: str = ""      # SPX, DPX, TPX, QPX, CPX
    memory_partition: str = ""       # NPS1, NPS4, …
    partition_id: int | None = None
    vbios: str = ""
    serial: str = ""
    driver: str = ""
    gfx: str = ""                    # gfx942
    power_max_w: float | None = None
    hive: str = ""
    vendor: str = "amd"
    class_id: str = ""               # four digits of the PCI class
    file: str = ""                   # /dev/dri/renderD128; "": not there, or not asked


@dataclass(frozen=True)
class AmdLinks:
    """Cells as printed, row and column by `order` (labels: "GPU0", or PCI addresses); () where a table is not there."""

    order: tuple[str, ...]
    types: Cells = ()
    hops: Cells = ()
    weights: Cells = ()

    def xgmi(self) -> list[list[int | None]] | None:
        """-1 itself, 1 XGMI, 0 another way, None not told."""
        if not self.types:
            return None
        return [[-1 if row == column else _is_xgmi(cell) for column, cell in enumerate(cells)]
                for row, cells in enumerate(self.types)]


@dataclass(frozen=True)
class AmdSmi:
    """What one run of a tool told."""

    gpus: tuple[AmdGpu, ...] = ()
    links: AmdLinks | None = None
    driver: str = ""


def _is_xgmi(cell: str) -> int | None:
    return {"XGMI": 1, "PCIE": 0, "SYS": 0}.get(cell.upper())


def numbers(cells: Cells) -> list[list[int | None]] | None:
    """The cells of a table of hops or weights."""
    return [[maybe_integer(cell) for cell in row] for row in cells] if cells else None


def faults(links: AmdLinks) -> Iterator[str]:
    """One-sided and missing XGMI links, and tables that contradict each other."""
    matrix = links.xgmi()
    if matrix:
        yield from _links.faults(matrix, links.order, "XGMI")
    for what, cells in (("hops", links.hops), ("weights", links.weights)):
        odd = next(((row, column) for row in range(len(cells)) for column in range(row)
                    if cells[row][column] != cells[column][row]), None)
        if odd:
            row, column = odd
            yield (f"the {what} from {links.order[row]} to {links.order[column]} are {clean(cells[row][column], 20)}, "
                   f"{clean(cells[column][row], 20)} back: the table contradicts itself")


def known_links(links: AmdLinks | None, complete: bool = True) -> dict[str, Any]:
    """The matrices as plain values. complete: all GPUs of the tables are known, so that they may be written."""
    if links is None:
        return {"hops": None, "link_type": None, "weight": None, "xgmi": None, "links_if_written": None}
    matrix = links.xgmi()
    types = [["0" if row == column else cell.upper() for column, cell in enumerate(cells)]
             for row, cells in enumerate(links.types)] or None
    whole = matrix is not None and all(cell is not None for row in matrix for cell in row)
    hives = _links.hives(matrix) if matrix and whole else ()
    return {"hops": numbers(links.hops), "link_type": types, "weight": numbers(links.weights), "xgmi": matrix,
            "links_if_written": matrix if complete and whole else None, "hives": [list(hive) for hive in hives]}


def known_gpu(gpu: AmdGpu) -> dict[str, Any]:
    found: dict[str, Any] = {
        "card": gpu.card or None, "gpu": gpu.index, "pci": gpu.pci or None, "id": gpu.pci_id or None, "numa": gpu.numa,
        "numa_affinity": gpu.numa_affinity, "series": gpu.model or None, "uuid": gpu.uuid or None,
        "unique_id": gpu.unique_id or None, "guid": gpu.guid or None, "node": gpu.node, "render": gpu.render,
        "memory_mib": gpu.memory_mib, "compute_partition": gpu.compute_partition or None,
        "memory_partition": gpu.memory_partition or None, "partition_id": gpu.partition_id, "vbios": gpu.vbios or None,
        "serial": gpu.serial or None, "gfx": gpu.gfx or None,
    }
    return {key: value for key, value in found.items() if value is not None or key in ("pci", "numa")}


def told(value: object, limit: int = 200) -> str:
    """A value as the tools print it; "" for what stands for nothing."""
    text = clean(str(value), limit) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    return "" if text.upper() in ("N/A", "NA", "NONE", "UNKNOWN", "NOT SUPPORTED", "-") else text


def device_id(value: object) -> str:
    """1002:74a1 of 0x74a1."""
    match = _HEX.match(told(value))
    return f"1002:{match[1].lower()}" if match else ""


def mebibytes(value: object) -> int | None:
    """Of "196592 MB", {"value": 196592, "unit": "MB"}: AMD's MB are MiB."""
    if isinstance(value, Mapping):
        value = f"{value.get('value')} {value.get('unit')}"
    number, _, unit = told(value).partition(" ")
    factor, amount = _UNITS.get(unit.strip().upper()), leading_float(number)
    return int(amount * factor) if factor and amount is not None else None


def watts(value: object) -> float | None:
    if isinstance(value, Mapping):
        value = value.get("value")
    return leading_float(told(value))


def node_number(value: object) -> int | None:
    """A NUMA node; None for -1, which says nothing, also where it is printed as the 32 bits of it."""
    found = maybe_integer(told(value))
    return found if found is not None and found < 1 << 16 else None


def numbered(value: object) -> int | None:
    """A number of GPUs and the like."""
    found = maybe_integer(told(value))
    return found if found is not None and found < 100_000 else None


def address(value: object) -> str:
    return pci_address(told(value))


def json_values(text: str, first: int = 1) -> Iterator[tuple[int, int, Any]]:
    """(first line, last line, value) of every JSON object or array that begins a line in a text with other lines."""
    decoder, place, line, failures = json.JSONDecoder(), 0, first, 0
    for match in re.finditer(r"^[ \t]*[\[{]", text, re.MULTILINE):
        start = match.end() - 1
        if start < place:
            continue
        line += text.count("\n", place, start)
        place = start
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            failures += 1
            if failures > 50:            # each may have read to the end of the text
                return
            continue
        last = line + text.count("\n", start, end)
        yield line, last, value
        line, place = last, end


def whole(rows: Sequence[Sequence[str]], size: int, what: str) -> Cells:
    """A square table. Raises ParseError when a row is longer than the head; short rows are filled with ""."""
    if any(len(row) > size for row in rows):
        raise ParseError(f"{what}: a row has more cells than the table has columns")
    filled = [tuple(row) + ("",) * (size - len(row)) for row in rows]
    return tuple(filled) + (("",) * size,) * (size - len(filled))

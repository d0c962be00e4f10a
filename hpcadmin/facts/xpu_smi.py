"""Intel's `xpu-smi` (and xpumcli): `discovery` as table and JSON, `topology -m`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _amd
from hpcadmin.facts._amd import AmdGpu, AmdSmi, told
from hpcadmin.facts._base import clean, cpu_list, leading_float, maybe_integer, quote
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.text import fold_ids

FORMS = ("text", "json")
MARKS = ("Device Information", "device_name", "CPU Affinity")
_RULE = re.compile(r"\s*\+-{3,}[-+]*\+?\s*\Z")
_HEAD = re.compile(r"\s*\|\s*Device ID\s*\|\s*Device Information")
_CELLS = re.compile(r"\s*\|\s*(\d{0,4})\s*\|\s*([A-Z][^|:]{1,60}):\s*([^|]*)")
_TILE = re.compile(r"GPU (\d{1,3})/(\d{1,2})\Z")
_XELINK = re.compile(r"XL(\d{1,3})\Z")


@dataclass(frozen=True)
class XpuMatrix:
    """`topology -m`: relations between tiles. tiles: (device, tile)."""

    tiles: tuple[tuple[int, int], ...]
    cells: tuple[tuple[str, ...], ...]
    cpus: tuple[tuple[int, ...] | None, ...]

    def cards(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(card for card, _ in self.tiles))

    def lanes(self) -> list[list[int | None]]:
        """Xe Link lanes between two cards, over all their tiles; -1 itself."""
        cards = self.cards()
        return [[-1 if a == b else self._between(a, b) for b in cards] for a in cards]

    def _between(self, a: int, b: int) -> int | None:
        count = 0
        for row, (card, _) in enumerate(self.tiles):
            for column, (other, _) in enumerate(self.tiles):
                if (card, other) == (a, b):
                    cell = self.cells[row][column]
                    match = _XELINK.match(cell)
                    if not match and cell not in ("XL*", "SYS", "NODE", "PIX", "PXB", "PHB"):
                        return None
                    count += int(match[1]) if match else 0
        return count


@dataclass
class _Table:
    first: int
    last: int = 0
    rows: dict[int, dict[str, str]] = field(default_factory=dict)
    ended: bool = False


def read(document: Document) -> tuple[Reading, ...]:
    text = document.text
    if "Device Information" not in text and "device_name" not in text and "CPU Affinity" not in text:
        return ()
    found = [reading for first, last, value in _amd.json_values(text) for reading in _json_reading(first, last, value)]
    found += [_table_reading(table) for table in _tables(document.lines)]
    return tuple(found) + tuple(_matrices(document))


# --- discovery

def _tables(lines: Sequence[str]) -> Iterator[_Table]:
    table: _Table | None = None
    device: int | None = None
    for number, line in enumerate(lines, 1):
        if _HEAD.match(line[:400]):
            if table:
                yield table
            table, device = _Table(number, number), None
        elif table and _RULE.match(line[:400]):
            table.last, table.ended = number, True
        elif table:
            cells = _CELLS.match(line[:1000])
            if not cells and not line.lstrip().startswith("|"):
                yield table
                table = None
                continue
            table.ended = False
            if cells:
                device = int(cells[1]) if cells[1] else device
                if device is not None:
                    table.rows.setdefault(device, {}).setdefault(cells[2].strip().lower(), clean(cells[3]))
                table.last = number
    if table:
        yield table


def _table_reading(table: _Table) -> Reading:
    gpus = tuple(_gpu(index, row) for index, row in sorted(table.rows.items()))
    missing = () if table.ended else ("the table is cut off: its closing rule is missing",)
    return _reading("xpu-smi discovery", table.first, table.last, gpus, missing)


def _json_reading(first: int, last: int, value: Any) -> Iterator[Reading]:
    items = value.get("device_list", [value] if "device_name" in value else None) if isinstance(value, dict) else None
    if not isinstance(items, list):
        return
    gpus = []
    for item in items[:_amd.MAX_GPUS]:
        index = item.get("device_id") if isinstance(item, dict) else None
        if isinstance(item, dict) and "device_name" in item and type(index) is int:
            gpus.append(_gpu(index, {str(key).replace("_", " ").lower(): told(v) for key, v in item.items()}))
    if gpus:
        yield _reading("xpu-smi discovery -j", first, last, tuple(gpus), ())


def _gpu(index: int, row: Mapping[str, str]) -> AmdGpu:
    def get(*keys: str) -> str:
        return next((found for key in keys if (found := told(row.get(key)))), "")

    memory = leading_float(get("memory physical size"))
    size = maybe_integer(get("memory physical size byte"))
    device_id = re.match(r"0x([0-9a-fA-F]{3,4})\Z", get("pci device id"))
    return AmdGpu(
        vendor="intel", index=index, pci=_amd.address(get("pci bdf address")), model=get("device name"),
        pci_id=f"8086:{int(device_id[1], 16):04x}" if device_id else "", uuid=get("uuid", "soc uuid"),
        card=get("drm device").removeprefix("/dev/dri/"), serial=get("serial number"), driver=get("driver version"),
        vbios=get("gfx firmware version"),
        memory_mib=size // 1048576 if size is not None else int(memory) if memory is not None else None)


def _reading(kind: str, first: int, last: int, gpus: tuple[AmdGpu, ...], missing: tuple[str, ...]) -> Reading:
    known = {"gpus": [_amd.known_gpu(gpu) for gpu in gpus], "gpu_count": len(gpus), "cores_if_determined": None}
    return Reading(kind=kind, first=first, last=last, value=AmdSmi(gpus, driver=next(
        (gpu.driver for gpu in gpus if gpu.driver), "")), known=known, missing=missing)


# --- topology -m

def _matrices(document: Document) -> Iterator[Reading]:
    lines = document.lines
    for number, line in enumerate(lines, 1):
        if "CPU Affinity" not in line:
            continue
        head = _words(line)
        if len(head) < 2 or head[-1] != "CPU Affinity" or not all(_TILE.match(word) for word in head[:-1]):
            continue
        rows: list[list[str]] = []
        for row in lines[number:number + len(head) - 1]:
            cells = _words(row)
            if not _TILE.match(cells[0]):
                break
            rows.append(cells)
        try:
            yield _matrix(head[:-1], rows, number)
        except ParseError as exc:
            raise ParseError(exc.what, where=exc.where or f"{document.name}:{number}") from exc


def _words(line: str) -> list[str]:
    """Of a table with | between its columns, or with blanks only."""
    text = line[:20_000]
    return [word.strip() for word in (text.split("|") if "|" in text else re.split(r" {2,}|\t", text.strip()))]


def _matrix(head: list[str], rows: list[list[str]], first: int) -> Reading:
    names = [row[0] for row in rows]
    if names != head[:len(names)] or any(len(row) > len(head) + 2 for row in rows) or len(set(head)) != len(head):
        raise ParseError(f"{quote(' '.join(names))} are not the rows of {quote(' '.join(head))}")
    whole = len(rows) == len(head) and all(len(row) == len(head) + 2 for row in rows)
    tiles = tuple((int(match[1]), int(match[2])) for match in (_TILE.match(name) for name in head) if match)
    padded = [row + [""] * (len(head) + 2 - len(row)) for row in rows] + [[""] * (len(head) + 2)] * (
        len(head) - len(rows))
    matrix = XpuMatrix(tiles, tuple(tuple(clean(cell, 20) for cell in row[1:-1]) for row in padded), tuple(
        cpu_list(row[-1], "CPU affinity") if row[-1] else None for row in padded))
    odd = [f"{head[a]} to {head[b]}" for a in range(len(head)) for b in range(a)
           if matrix.cells[a][b] and matrix.cells[b][a] and matrix.cells[a][b] != matrix.cells[b][a]]
    known = {
        "gpus": len(matrix.cards()), "tiles": [f"{card}/{tile}" for card, tile in tiles],
        "tile_matrix": [[cell or None for cell in row] for row in matrix.cells],
        "gpu_cpu_affinity_os": [None if cpus is None else fold_ids(cpus) for cpus in matrix.cpus],
        "links": matrix.lanes() if whole else None, "cores_if_determined": None,
    }
    findings = tuple(Finding(f"the matrix is not the same both ways: {what}", first) for what in odd[:5])
    return Reading(kind="xpu-smi topology -m", first=first, last=first + len(rows), value=matrix, known=known,
                   findings=findings, missing=() if whole else ("the matrix is cut off",))

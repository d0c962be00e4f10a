"""`nvidia-smi topo -m`: how GPUs and NICs are connected, and the CPUs near each GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, maybe_integer, quote

NAME = "nvidia_topo"
ORDER = 94
LIMIT = 256 * 1024
COMMAND = "run 20 nvidia-smi topo -m"

_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|\[[0-9]{1,2}m")     # the second: codes whose ESC a paste has lost
_DEVICE = re.compile(r"(GPU[0-9]{1,3}|NIC[0-9]{1,3}|[a-z][a-z]{1,10}(?:_[a-z]{1,10})?_?[0-9]{1,3}(?:_[0-9]{1,3})?)\Z")
_GLUED = re.compile(r"GPU[0-9]{1,2}|NIC[0-9]{1,2}|mlx[45]_(?:bond_)?[0-9]{1,2}")
_CELL = re.compile(r"(X|NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|C2C|N/A|Self)\Z")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3}): {1,4}([A-Za-z][A-Za-z0-9_-]{0,40})\s*\Z")
_CPUS = re.compile(r"[0-9]{1,5}(?:[-,][0-9]{1,5}){0,4000},?\Z")
MAX_COLUMNS = 300
_GAP = re.compile(r"\t|  +")


@dataclass(frozen=True)
class Topo:
    """The matrix as printed. A cell that is not in the text is "": rows cut off, columns lost."""

    gpus: tuple[int, ...]                       # GPU numbers of the rows and columns
    links: tuple[tuple[str, ...], ...]          # labels between GPUs: X, NV18, PIX, …
    nics: tuple[str, ...] = ()                  # as the header names them
    nic_links: tuple[tuple[str, ...], ...] = ()  # a row for each GPU, a column for each NIC
    nic_devices: tuple[str, ...] = ()           # RDMA device of each NIC: from the legend, or the name itself
    cpu_affinity: tuple[str, ...] = ()          # OS CPU ids as printed, "" where unknown
    numa_affinity: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return all(all(row) for row in self.links)


def parse(text: str) -> Topo:
    """Raises ParseError where there is no matrix, or one that contradicts itself."""
    lines = [_ANSI.sub("", line).rstrip() for line in text.split("\n")]
    at, header = _header(lines)
    rows: dict[str, list[str]] = {}
    tail: dict[str, str] = {}
    for line in lines[at:]:
        name, cells, rest = _row(line, len(header))
        if name and name not in rows:
            rows[name], tail[name] = cells, rest
    if rows and not text.endswith("\n"):
        _cut_last(lines[-1], rows, tail)
    gpus = [name for name in header if name.startswith("GPU")]
    if not gpus or not any(name in rows for name in gpus):
        raise ParseError("nvidia-smi topo -m shows no row of a GPU")
    for name in rows:
        if name not in header:
            raise ParseError(f"row {quote(name)} has no column of its own")
    nics = [name for name in header if not name.startswith("GPU")]
    legend = {match[1]: match[2] for match in map(_LEGEND.match, lines) if match}

    places = {name: place for place, name in enumerate(header)}

    def cell(row: str, column: str) -> str:
        cells, place = rows.get(row, []), places[column]
        return cells[place] if place < len(cells) else ""

    links = [[cell(a, b) or cell(b, a) for b in gpus] for a in gpus]
    for number, name in enumerate(gpus):
        if links[number][number] not in ("X", ""):
            raise ParseError(f"{name} is connected to itself by {links[number][number]}: columns are shifted")
        links[number][number] = "X"
    affinity = [_affinity(tail.get(name, "")) for name in gpus]
    if len(rows) < len(header):
        affinity = _without_stump(affinity, [name in rows for name in gpus])
    return Topo(
        gpus=tuple(int(name[3:]) for name in gpus), links=tuple(map(tuple, links)), nics=tuple(nics),
        nic_links=tuple(tuple(cell(gpu, nic) or cell(nic, gpu) for nic in nics) for gpu in gpus),
        nic_devices=tuple(legend.get(nic, "" if nic.startswith("NIC") else nic) for nic in nics),
        cpu_affinity=tuple(cpus for cpus, _ in affinity), numa_affinity=tuple(numa for _, numa in affinity),
    )


def _header(lines: list[str]) -> tuple[int, list[str]]:
    """(line after the header, names of the columns)."""
    for number, line in enumerate(lines):
        body = line.split("CPU Affinity")[0]
        words = body.split()
        if words and all(map(_DEVICE.match, words)) and words[0].startswith("GPU"):
            return number + 1, _unique(words)
        glued = _GLUED.findall(body)
        if len(glued) > 1 and "".join(glued) == "".join(words):
            return number + 1, _unique(glued)
    raise ParseError("no matrix of nvidia-smi topo -m: its header is missing")


def _cut_last(line: str, rows: dict[str, list[str]], tail: dict[str, str]) -> None:
    """A text that ends without a line end may end within a word: the last one says nothing (0-23,4 of 0-23,48-71)."""
    name, cells, rest = _row(line, MAX_COLUMNS)
    if name and rows.get(name) == cells:
        tail[name] = ""
        if not rest.strip():
            cells.pop()
            rows[name] = cells


def _unique(names: list[str]) -> list[str]:
    if len(names) > MAX_COLUMNS:
        raise ParseError(f"a matrix of {len(names)} columns is no node's")
    if len(set(names)) != len(names):
        raise ParseError("a column of nvidia-smi topo -m appears twice")
    return names


def _row(line: str, columns: int) -> tuple[str, list[str], str]:
    """(name, cells, what follows them) of a row of the matrix; ("", [], "") for any other line."""
    words = line.split()
    if len(words) < 2 or not _DEVICE.match(words[0]):
        return "", [], ""
    cells: list[str] = []
    position = line.index(words[0]) + len(words[0])
    for word in words[1: columns + 1]:
        if not _CELL.match(word):
            break
        cells.append("SYS" if word == "SOC" else word)       # drivers before 390 say SOC
        position = line.index(word, position) + len(word)
    return (words[0], cells, line[position:]) if cells else ("", [], "")


def _affinity(rest: str) -> tuple[str, str]:
    """(CPU affinity, NUMA affinity) from what follows the matrix in a GPU's row. With tabs, the columns keep their
    places also where one is empty; with blanks (a paste), the first thing there is taken for the CPUs."""
    parts = [part.strip() for part in (rest.split("\t")[1:] if "\t" in rest else _GAP.split(rest.strip()))]
    cpus = parts[0].rstrip(",") if parts and _CPUS.match(parts[0]) else ""
    numa = clean(parts[1]) if len(parts) > 1 and ("\t" in rest or cpus) else ""
    return cpus, "" if numa == "N/A" else numa


def _without_stump(affinity: list[tuple[str, str]], there: list[bool]) -> list[tuple[str, str]]:
    """Where rows are missing, the last one may be a stump: 0-23,4 beside rows with 0-23,48-71 is one."""
    last = max((number for number, known in enumerate(there) if known), default=-1)
    if last < 0 or not affinity[last][0] or affinity[last][1]:
        return affinity
    own = affinity[last][0]
    if any(other != own and other.startswith(own) for other, _ in affinity):
        return [*affinity[:last], ("", ""), *affinity[last + 1:]]
    return affinity


def nvlinks(label: str) -> int | None:
    """18 for NV18, 0 for a PCIe relation, None for an unknown cell."""
    if label.startswith("NV"):
        return maybe_integer(label[2:])
    return None if label in ("", "N/A", "X", "Self") else 0

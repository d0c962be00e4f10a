"""`nvidia-smi topo -p2p r|w|n|a|p`: which pairs of GPUs may reach each other's memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._topo_shapes import lines_of
from hpcadmin.text import plural

FORMS = ("text", "json")
MARKS = tuple(f"GPU{number}" for number in range(10))
KIND = "nvidia-smi topo -p2p"
CELLS = ("X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
MAX_GPUS = 128

_NAME = re.compile(r"GPU[0-9]{1,3}\Z")
_COMMAND = re.compile(r"nvidia-smi\b.{0,60}\btopo\b.{0,40}-p2p\s{1,4}([rwnap])\b")
_WHAT = {"r": "read", "w": "write", "n": "NVLink", "a": "atomics", "p": "PCIe"}
_WHY = {"CNS": "the chipset does not support it", "GNS": "the GPU does not support it",
        "TNS": "the topology does not support it", "NS": "it is not supported", "DR": "the driver forbids it",
        "U": "it is unknown"}


@dataclass(frozen=True)
class PeerAccess:
    """Cells as printed, row and column by `gpus`; "" is not in the text. what: "read", "write", …; "": not told."""

    gpus: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]
    what: str = ""

    @property
    def complete(self) -> bool:
        return all(all(row) for row in self.cells)


def parse(text: str) -> PeerAccess:
    found = read(Document("nvidia-smi topo -p2p", lines=tuple(text.split("\n"))))
    if len(found) != 1 or not isinstance(found[0].value, PeerAccess):
        raise ParseError("no matrix of nvidia-smi topo -p2p")
    return found[0].value


def read(document: Document) -> tuple[Reading, ...]:
    lines, origin = lines_of(_smi.unquoted(document.lines))
    readings = []
    number = 0
    what = ""
    while number < len(lines):
        command = _COMMAND.search(lines[number][:400])
        what = _WHAT[command[1]] if command else what
        names = lines[number].split()
        if len(names) > 0 and len(names) <= MAX_GPUS and all(map(_NAME.match, names)) and len(set(names)) == len(names):
            rows, last = _rows(lines, number + 1, len(names))
            if rows:
                span = origin[number], origin[last - 1]
                readings.append(_reading(f"{document.name}:{span[0]}", names, rows, span, what))
                number, what = last, ""
                continue
        number += 1
    return tuple(readings)


def _rows(lines: Sequence[str], start: int, columns: int) -> tuple[dict[str, list[str]], int]:
    """The rows below a header and the number of the last line; none when they are of another matrix (topo -m)."""
    rows: dict[str, list[str]] = {}
    last = start
    for number, line in enumerate(lines[start:start + columns + 20], start + 1):
        words = line.split()
        if not words:
            continue
        if not _NAME.match(words[0]):
            break
        cells = words[1:]
        if any(cell not in CELLS for cell in cells) or words[0] in rows:
            break
        rows[words[0]] = cells
        last = number
    own = {cell for cells in rows.values() for cell in cells} - {"X"}
    return (rows, last) if own else ({}, start)


def _reading(
    where: str, names: Sequence[str], rows: dict[str, list[str]], span: tuple[int, int], what: str,
) -> Reading:
    for name, cells in rows.items():
        if name not in names or len(cells) > len(names):
            raise ParseError(f"row {name} has no column of its own, or more cells than there are columns", where=where)
        place = names.index(name)
        if len(cells) > place and cells[place] != "X":
            raise ParseError(f"{name} to itself is {cells[place]}: the columns are shifted", where=where)
    table = tuple(tuple((rows.get(row, []) + [""] * len(names))[:len(names)]) for row in names)
    value = PeerAccess(tuple(int(name[3:]) for name in names), table, what)
    missing = []
    lacking = [name for name, cells in zip(names, table, strict=True) if not all(cells)]
    if lacking:
        missing.append(f"cells of {', '.join(lacking[:8])}: the matrix is cut off")
    kind = KIND if not what else f"{KIND} {next(k for k, v in _WHAT.items() if v == what)}"
    known = {"gpus": len(names), "p2p": [[cell or None for cell in row] for row in table], "p2p_what": what or None}
    return Reading(kind, *span, value, known, tuple(findings(value, span[0])), tuple(missing), "; ".join(missing))


def findings(value: PeerAccess, line: int | None = None) -> Iterator[Finding]:
    """Pairs that may not, where others may: a fault; where none may, that is worth knowing."""
    pairs = [(a, b, value.cells[row][column]) for row, a in enumerate(value.gpus)
             for column, b in enumerate(value.gpus) if row != column and value.cells[row][column]]
    what = f"peer access ({value.what})" if value.what else "peer access"
    bad = [pair for pair in pairs if pair[2] != "OK"]
    for row, a in enumerate(value.gpus):
        for column, b in enumerate(value.gpus[:row]):
            there, back = value.cells[row][column], value.cells[column][row]
            if there and back and there != back:
                yield Finding(f"{what} from GPU {a} to GPU {b} is {there}, {back} the other way", line)
    if not bad:
        return
    states = sorted({state for *_, state in bad})
    why = "; ".join(f"{state}: {_WHY.get(state, state)}" for state in states)
    if len(bad) == len(pairs):
        yield Finding(f"{what} is possible between no two GPUs ({why})", line, note=True)
        return
    lone = [gpu for gpu in value.gpus if all(gpu in (a, b) for a, b, _ in bad)]
    count = len({frozenset((a, b)) for a, b, _ in bad})
    who = f"GPU {lone[0]}" if len(lone) == 1 else f"{plural(count, 'pair')} of GPUs"
    yield Finding(f"{what} is not possible for {who}, for others it is ({why})", line, note=len(lone) != 1)

"""`nvidia-smi topo -m` and `-mp`: how GPUs and NICs are connected, and the CPUs near each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hpcadmin.errors import ParseError
from hpcadmin.facts import _topo_known
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.facts._topo_matrix import Matrix, build
from hpcadmin.facts._topo_shapes import lines_of
from hpcadmin.facts._topo_text import blocks

NAME = "nvidia_topo"
ORDER = 94
LIMIT = 256 * 1024
COMMAND = "run 20 nvidia-smi topo -m"
FORMS = ("text", "json")
MARKS = ("GPU",)
KIND = "nvidia-smi topo -m"


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


@lru_cache(maxsize=64)                           # the nodes of a group print the same
def opens(line: str) -> bool:
    """Of every matrix a line is so, the row of a GPU, however it was pasted."""
    return "GPU" in line and "X" in line


def parse(text: str) -> Topo:
    """Raises ParseError where there is no matrix, or one that contradicts itself."""
    found = blocks(text.split("\n"))
    block = next((block for block in found if block.header.there), None)
    if block is None:
        raise ParseError("no matrix of nvidia-smi topo -m: its header is missing")
    matrix = build(block, open_end=not text.endswith("\n"))
    if not any(name in matrix.tails for name in matrix.names):
        raise ParseError("nvidia-smi topo -m shows no row of a GPU")
    return topo_of(matrix)


def topo_of(matrix: Matrix) -> Topo:
    names = matrix.names
    tails = [matrix.tails.get(name) for name in names]
    return Topo(
        gpus=matrix.gpus, links=matrix.gpu_labels(), nics=matrix.nics,
        nic_links=tuple(tuple(matrix.label(gpu, nic) for nic in matrix.nics) for gpu in names),
        nic_devices=matrix.devices,
        cpu_affinity=tuple(_told(tail.cpus if tail else None) for tail in tails),
        numa_affinity=tuple(_told(tail.numa if tail else None) for tail in tails),
    )


def _told(text: str | None) -> str:
    return "" if text in (None, "N/A") else str(text)


def read(document: Document) -> tuple[Reading, ...]:
    """A reading for each matrix in the document."""
    lines, origin = lines_of(document.lines)
    try:
        found = blocks(lines)
    except ParseError as exc:
        raise ParseError(exc.what, where=document.name) from exc
    readings = []
    for block in found:
        if block.p2p:
            continue                     # another question, which nvidia_p2p answers
        try:
            readings.append(_in_text(_reading(build(block, open_end=document.open_end)), origin))
        except ParseError as exc:
            raise ParseError(exc.what, where=f"{document.name}:{origin[block.header.line - 1]}") from exc
    return tuple(readings)


def _in_text(reading: Reading, origin: Sequence[int]) -> Reading:
    """With the numbers of the lines that the text has."""
    return replace(reading, first=origin[reading.first - 1], last=origin[reading.last - 1], findings=tuple(
        replace(one, line=origin[one.line - 1] if one.line else None) for one in reading.findings))


def _reading(matrix: Matrix) -> Reading:
    reasons = [reason for reason in (
        "it is incomplete: " + "; ".join(matrix.missing) if matrix.unsound else "", _topo_known.restricted(matrix),
    ) if reason]
    return Reading(
        KIND + ("p" if matrix.command == "-mp" and matrix.links() is None else ""), matrix.first, matrix.last,
        value=matrix, known=_topo_known.known(matrix), findings=tuple(_topo_known.findings(matrix)),
        missing=matrix.missing, refused="; ".join(reasons), assumed=_topo_known.assumed(matrix))

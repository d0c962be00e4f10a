"""nvidia-smi that answers with complaints only: lost GPUs, a driver that is not there or does not fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi, nvidia_csv, nvidia_list, nvidia_q, nvidia_table
from hpcadmin.facts._base import clean
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._smi import Complaint, LostGpu

FORMS = ("text",)
MARKS = ("nable to determine", "NABLE TO DETERMINE", "fallen off the bus", "is lost", "No devices were found",
         "NVIDIA-SMI", "nvidia-smi", "Nvidia-smi", "NVML", "nvml", "corrupted at", "CORRUPTED AT", "ccess blocked",
         "CCESS BLOCKED")
KIND = "nvidia-smi error"

_INFOROM = "the GPU's infoROM is corrupted"
# What it says -> what is the matter, where the text itself tells.
_SAYINGS = (
    (r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
     "the driver is not loaded or does not run"),
    (r"Failed to initialize NVML: Driver/library version mismatch",
     "the loaded kernel module and the libraries are of two versions"),
    (r"Failed to initialize NVML: ", "the driver's library cannot be used"),
    (r"NVIDIA-SMI couldn't find libnvidia-ml", "the driver's library is not installed"),
    (r"(?:\bnvidia-smi: (?:command )?not found|command not found: nvidia-smi|\bnvidia-smi: No such file)",
     "nvidia-smi is not installed, or not in the path"),
    (r"Unable to determine the device handle", "a GPU cannot be reached"),
    (r"GPU access blocked by the operating system", "the system does not let it at the GPU"),
)
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE), what) for pattern, what in _SAYINGS)
_NVML = re.compile(r"\s{0,8}NVML library version: {0,4}([0-9][0-9.]{2,20})")


@dataclass(frozen=True)
class SmiErrors:
    """complaints: as printed, one a line. lost: the GPUs that are named. dead: nvidia-smi could not say anything."""

    complaints: tuple[str, ...]
    lost: tuple[LostGpu, ...] = ()
    dead: bool = False
    library: str = ""                # version of the NVML library, where it is told


def read(document: Document) -> tuple[Reading, ...]:
    lines = _smi.unquoted(document.lines)
    found = [said for number, line in enumerate(lines, 1) if (said := _said(line, number))]
    if not found:
        return ()
    taken = _of_outputs(document, lines)
    found = [said for said in found if said[0].line not in taken]
    return (_reading(lines, found),) if found else ()


def parse(text: str) -> SmiErrors:
    found = read(Document("nvidia-smi", lines=tuple(text.split("\n"))))
    if not found or not isinstance(found[0].value, SmiErrors):
        raise ParseError("no complaint of nvidia-smi")
    return found[0].value


def _said(line: str, number: int) -> tuple[Complaint, str] | None:
    said = _smi.complaint(line, number)
    if said:
        return said, _INFOROM if _smi.INFOROM in said.text else ""
    for pattern, what in _PATTERNS:
        match = pattern.search(line[:400])
        if match:
            return Complaint(number, clean(line[match.start():])), what
    return None


def _of_outputs(document: Document, lines: Sequence[str]) -> set[int]:
    """Lines that belong to another output of nvidia-smi, which tells them itself."""
    spans = [(log.first, log.last) for log in nvidia_q.logs(lines)]
    spans += [(table.first, table.last) for table in nvidia_table.tables(lines)]
    spans += [(table.first, table.last) for table in nvidia_csv.tables(lines)]
    spans += nvidia_list.spans(lines)
    return {said.line for first, last in spans for said in _smi.near(lines, first, last)} | {
        number for first, last in spans for number in range(first, last + 1) if _smi.complaint(lines[number - 1], 1)}


def _reading(lines: Sequence[str], found: Sequence[tuple[Complaint, str]]) -> Reading:
    first, last = found[0][0].line, found[-1][0].line
    told = []
    for said, what in found:
        if what and not said.lost:
            told.append(Finding(f"nvidia-smi says: {said.text} ({what})", said.line))
        else:
            told += list(_smi.lost_findings([said]))
    lost = tuple({said.lost.pci: said.lost for said, _ in found if said.lost}.values())
    if lost and any(said.text == "No devices were found" for said, _ in found):
        told.append(Finding("No devices were found, although the driver knows of "
                            + ", ".join(f"GPU {gpu.pci}" for gpu in lost), last))
    library = next((match[1] for line in lines[first - 1:last + 2] if (match := _NVML.match(line))), "")
    harmless = all(what == _INFOROM for _, what in found)
    value = SmiErrors(tuple(said.text for said, _ in found), lost, not harmless, library)
    known = {"gpus": None, "gpu_count": None, "driver": None, "library": library or None,
             "errors": [_smi.known_error(said) for said, _ in found]}
    if harmless:                         # printed below a table that is whole
        return Reading(KIND, first, last, value, known, tuple(told))
    missing = ("the GPUs: how many there are, besides those that are complained of, is not in it",)
    why = "; ".join(dict.fromkeys(finding.what.rstrip(".") for finding in told[:4]))
    return Reading(KIND, first, last, value, known, tuple(told), missing,
                   f"{why}; how many GPUs there are is not in it")

"""`nvidia-smi -q -x`: every GPU that answers, with its PCI address, UUID, memory, link and modes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, maybe_integer, pci_key
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._smi import LostGpu, Shown, Smi, lost_gpus
from hpcadmin.facts._smi_fields import shown, version
from hpcadmin.facts._smi_xml import Log, read_log

__all__ = ["LostGpu", "Smi", "lost_gpus", "parse", "read"]

NAME = "nvidia_smi"
ORDER = 90
LIMIT = 8 * 1024 * 1024
COMMAND = "run 25 nvidia-smi -q -x"
FORMS = ("xml", "text")
MARKS = ("<nvidia_smi_log", "<gpu id=")

_END = "</nvidia_smi_log>"
_GPU = re.compile(r'<gpu id="[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:')


def parse(text: str) -> Smi:
    """Raises ParseError for anything but one whole document."""
    lost = lost_gpus(text)
    start = min((at for at in (text.find("<?xml"), text.find("<nvidia_smi_log")) if at >= 0), default=-1)
    if start < 0:
        return _no_xml(text, lost)
    log = read_log(text[start:])
    if log.problem:
        raise ParseError("the XML of nvidia-smi is cut off" if log.problem == "the XML is cut off" else
                         f"nvidia-smi's XML cannot be read: {log.problem.partition(': ')[2]}")
    if not log.driver and not log.blocks:
        raise ParseError("neither a driver version nor a GPU in the XML")
    answering = []
    for one in _all_shown(log):
        why = next((f.partition(": ")[2] for f in one.faults if f.startswith("does not answer")), "")
        if not why and not (one.gpu.uuid and one.gpu.model):
            why = "has no name or no UUID"
        if why:
            lost.append(LostGpu(one.gpu.pci, why))
        else:
            answering.append(one)
    if len({one.gpu.pci for one in answering}) != len(answering):
        raise ParseError("a GPU's PCI address appears twice")
    answering = list(_smi.placed(answering, True))
    return Smi(driver=version(log.driver), attached=maybe_integer(log.attached), shown=tuple(answering),
               lost=tuple(sorted({gpu.pci: gpu for gpu in reversed(lost)}.values(), key=lambda g: pci_key(g.pci))),
               cuda=_cuda(log))


def _no_xml(text: str, lost: list[LostGpu]) -> Smi:
    if "No devices were found" in text and not lost:
        return Smi(driver="none", attached=None, shown=())
    first = next((line for line in text.split("\n") if line.strip()), "")
    if lost:
        raise ParseError(f"nvidia-smi printed no XML: GPU {lost[0].pci}: {lost[0].message}")
    raise ParseError(f"nvidia-smi printed no XML: {clean(first)}" if first else "nvidia-smi printed nothing")


def _all_shown(log: Log) -> list[Shown]:
    if len(log.blocks) > _smi.MAX_GPUS:
        raise ParseError(f"{len(log.blocks)} GPUs are no node's")
    return [shown(block, number) for number, block in enumerate(log.blocks)]


def _cuda(log: Log) -> str:
    return version(log.cuda)


# --- texts that people have ----------------------------------------------------------------------------------------


def read(document: Document) -> tuple[Reading, ...]:
    readings = []
    for first, last in _spans(document.lines):
        try:
            readings.append(_read(document, first, last))
        except ParseError as exc:
            raise ParseError(exc.what, where=f"{document.name}:{first}") from exc
    return tuple(readings)


def _spans(lines: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """First and last line of each document, or of a piece that begins with a GPU."""
    start = 0
    for number, line in enumerate(lines, 1):
        if "<nvidia_smi_log" in line or (not start and _GPU.search(line)):
            if start:
                yield start, number - 1
            start = number
        if start and _END in line:
            yield start, number
            start = 0
    if start:
        last = len(lines)
        while last > start and "<" not in lines[last - 1]:
            last -= 1                    # prose below a document that is cut off
        yield start, last


def _read(document: Document, first: int, last: int) -> Reading:
    begin = first
    while begin > 1 and begin > first - 4 and lines_head(document.lines[begin - 2]):
        begin -= 1                       # <?xml …?> and <!DOCTYPE …>
    body = list(document.lines[begin - 1:last])
    root = first - begin
    body[root] = body[root][max(0, body[root].find("<nvidia_smi_log" if "<nvidia_smi_log" in body[root] else "<gpu")):]
    body[:root] = [line.strip() if "<!DOCTYPE" in line else "" for line in body[:root]]
    fragment = not body[root].startswith("<nvidia_smi_log")
    text = "\n".join(body)
    log = read_log(f"<nvidia_smi_log>{text}" if fragment else text, begin)
    found = _all_shown(log)
    if len({one.gpu.pci for one in found}) != len(found):
        raise ParseError("a GPU's PCI address appears twice")
    attached = maybe_integer(log.attached)
    complaints = _smi.near(document.lines, begin, last)
    lost = tuple(said.lost for said in complaints if said.lost)
    cut = f"{log.problem} (line {log.line})" if log.problem else ""
    missing = [*([cut] if cut else []), *(["the beginning of the XML"] if fragment else []),
               *_smi.too_few(attached, found, lost)]
    if attached is None and not fragment and not cut:
        missing.append("attached_gpus: whether these are all the GPUs is not said")
    missing += [f"minor_number of {_smi.name_of(one)}: its device file is not known" for one in found
                if one.minor_text is None and not one.faults]
    whole = not cut and not fragment and (attached is None or (attached == len(found) and not lost))
    found = list(_smi.placed(found, whole or (bool(cut) and not fragment)))
    smi = Smi(version(log.driver), attached, tuple(found), lost, _cuda(log), whole)
    if not found and not log.driver:
        raise ParseError("neither a driver version nor a GPU in the XML")
    told = [Finding("there is no GPU in it: nvidia-smi sees none")] if not found and not missing else []
    return _smi.reading("nvidia-smi -q -x", smi, begin, last, complaints=complaints, missing=missing,
                        count=attached, extra={"dtd": log.dtd}, told=told)


def lines_head(line: str) -> bool:
    return line.lstrip().startswith(("<?xml", "<!DOCTYPE"))

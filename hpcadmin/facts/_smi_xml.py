"""nvidia-smi's XML read as far as it goes: the GPUs that are there to their end, and whether more should follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, pci_address
from hpcadmin.facts._smi_fields import Block

_DECLARATION = re.compile(r"<!(ENTITY|ELEMENT|ATTLIST|NOTATION)", re.IGNORECASE)
_DOCTYPE = re.compile(r"<!DOCTYPE[^>\[]{0,200}\[", re.IGNORECASE)
_DTD = re.compile(r"<!DOCTYPE\s{1,8}nvidia_smi_log\s{1,8}SYSTEM\s{1,8}[\"']([A-Za-z0-9_.-]{1,80})[\"']")
_SKIPPED = frozenset({"mig_devices", "supported_clocks", "processes", "accounted_processes"})
_GPU = re.compile(r"<gpu id=")
_END = "</nvidia_smi_log>"
MAX_DEPTH = 40


@dataclass(frozen=True)
class Log:
    """problem: why it is not read to its end ("" when it is), at `line` of the text."""

    driver: str | None
    cuda: str | None
    attached: str | None
    blocks: tuple[Block, ...]
    dtd: str | None = None
    problem: str = ""
    line: int = 0


def read_log(text: str, first: int = 1) -> Log:
    """text: one document, or what is left of it; first: the number of its first line. Raises ParseError for XML that
    declares something, is of another tool or has a GPU without an address."""
    if _declares(text):
        raise ParseError("the XML declares entities, which nvidia-smi never does")
    dtd = _DTD.search(text[:4000])
    head: dict[str, str] = {}
    blocks: list[Block] = []
    problem, line = "", 0
    end = text.find(_END)
    try:
        # What could be expanded or fetched is refused above.
        root = ET.fromstring(text[:end + len(_END)] if end >= 0 else text)  # noqa: S314
        if root.tag not in ("nvidia_smi_log", "gpu"):
            raise ParseError("the XML is not nvidia-smi's")
        lines = _lines(text, first)
        for element in root:
            _take(element, head, blocks, lines[len(blocks)] if len(blocks) < len(lines) else None)
    except (ET.ParseError, ValueError, RecursionError):
        head, blocks = {}, []
        problem, line = _as_far_as_possible(text, first, head, blocks)
    return Log(head.get("driver_version"), head.get("cuda_version"), head.get("attached_gpus"), tuple(blocks),
               dtd[1] if dtd else None, problem, line)


def _declares(text: str) -> bool:
    at = text.find("<!")
    while at >= 0:
        if _DECLARATION.match(text, at) or _DOCTYPE.match(text, at):
            return True
        at = text.find("<!", at + 2)
    return False


def _lines(text: str, first: int) -> list[int]:
    """The line of each GPU."""
    found, at, line = [], 0, first
    for match in _GPU.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found.append(line)
    return found


def _as_far_as_possible(text: str, first: int, head: dict[str, str], blocks: list[Block]) -> tuple[str, int]:
    """(why it goes no further, the line)."""
    parser: ET.XMLPullParser[Any] = ET.XMLPullParser(("start", "end"))
    stack: list[ET.Element] = []
    for number, piece in enumerate(text.split("\n"), first):
        try:
            parser.feed(piece + "\n")
            if _events(parser, stack, head, blocks, number):
                return "", 0
        except (ET.ParseError, ValueError) as exc:
            return f"the XML cannot be read on: {clean(str(exc))}", number
    return "the XML is cut off", text.count("\n") + first


def _events(
    parser: ET.XMLPullParser[Any], stack: list[ET.Element], head: dict[str, str], blocks: list[Block], number: int,
) -> bool:
    """True when the document is at its end."""
    for item in parser.read_events():
        event, element = item[0], item[-1]
        if not isinstance(element, ET.Element):
            continue
        if event == "start":
            if not stack and element.tag not in ("nvidia_smi_log", "gpu"):
                raise ParseError("the XML is not nvidia-smi's")
            if len(stack) >= MAX_DEPTH:
                raise ParseError(f"elements within elements more than {MAX_DEPTH} deep are no nvidia-smi's")
            if element.tag == "gpu" and len(stack) == 1:
                element.set("line", str(number))
            stack.append(element)
            continue
        stack.pop()
        if not stack:
            return True
        if len(stack) == 1:
            _take(element, head, blocks, int(element.get("line") or 0) or None)
            stack[0].remove(element)
    return False


def _take(element: ET.Element, head: dict[str, str], blocks: list[Block], line: int | None) -> None:
    if element.tag == "gpu":
        blocks.append(_block(element, len(blocks), line))
    elif len(element) == 0:
        head.setdefault(element.tag, clean(element.text or ""))


def _block(element: ET.Element, place: int, line: int | None) -> Block:
    pci = pci_address(element.get("id") or "")
    values: dict[str, str] = {}
    for path, value in _leaves(element, ""):
        values.setdefault(path, value)
    pci = pci or pci_address(values.get("pci/pci_bus_id", ""))
    if not pci:
        raise ParseError(f"GPU number {place} in the XML has no PCI address")
    migs = [dict(_leaves(device, "")) for device in element.findall("mig_devices/mig_device")]
    return Block(values, True, tuple(migs), pci, line)


def _leaves(element: ET.Element, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        raise ParseError(f"elements within elements more than {MAX_DEPTH} deep are no nvidia-smi's")
    for child in element:
        if child.tag in _SKIPPED:
            continue
        here = f"{path}/{child.tag}" if path else child.tag
        if len(child):
            yield from _leaves(child, here, depth + 1)
        else:
            yield here, clean(child.text or "")

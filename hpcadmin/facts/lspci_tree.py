"""`lspci -t`, -tv, -tnn: the tree of root buses, bridges and devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import quote
from hpcadmin.facts._pcitree import NVSWITCHES, LspciDevice, paths
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts.lspci import device_words

FORMS = ("text",)
MARKS = ("-[",)
MAX_DEPTH = 64
_ROOT = re.compile(r"\[([0-9a-f]{4,8}):([0-9a-f]{2})\]")
_DEVICE = re.compile(r"([0-9a-f]{2}\.[0-7])")
_BUSES = re.compile(r"-+\[([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]")
_NAMED_BUSES = re.compile(r"(.*?)-\[([0-9a-f]{2})(?:-([0-9a-f]{2}))?\](-.*)?\Z")
_FIRST = re.compile(r"[ \t]{0,80}-(?:\+-)?\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-")
# A root bus in the middle of a tree whose first lines are not there.
_MIDDLE = re.compile(r"[ \t]{0,80}[+\\]-\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-")
_NEXT = re.compile(r"[ |\t]{0,400}[+\\]-")
_NO_GPU = re.compile(r"audio|USB|UCSI|bridge|NVSwitch|serial|Root Complex|IOMMU", re.IGNORECASE)
_NIC = re.compile(r"ConnectX|BlueField|MT[0-9]{4,5}|Ethernet|Infiniband|Omni-Path|Network|Elastic Fabric|I210|X7[12]0",
                  re.IGNORECASE)


@dataclass
class _Open:
    """A place where siblings hang. column: of their marks; closed: its last one ("\\-") has been."""

    column: int
    domain: str
    bus: str                         # "" for the root buses
    parent: str                      # address of the bridge
    root: str
    closed: bool = False


@dataclass
class _Tree:
    devices: list[LspciDevice] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)
    cut: str = ""
    roots: list[str] = field(default_factory=list)
    number: int = 0                  # of the line


def read(document: Document) -> tuple[Reading, ...]:
    found = []
    lines = document.lines
    number = 0
    while number < len(lines):
        if _FIRST.match(lines[number][:200]) or _MIDDLE.match(lines[number][:200]):
            last = number + 1
            while last < len(lines) and _NEXT.match(lines[last][:500]) and not _FIRST.match(lines[last][:200]):
                last += 1
            found.append(_reading(lines[number:last], number + 1, document.name))
            number = last
        else:
            number += 1
    return tuple(found)


def parse(text: str) -> tuple[LspciDevice, ...]:
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or not _FIRST.match(lines[0][:200]):
        raise ParseError("no tree of lspci -t")
    return tuple(_tree(lines, 1, "lspci -t").devices)


def _tree(lines: Sequence[str], first: int, name: str) -> _Tree:
    tree = _Tree()
    for number, line in enumerate(lines, first):
        try:
            tree.number = number
            _line(tree, line.expandtabs()[:2000])
        except ParseError as exc:
            raise ParseError(exc.what, where=f"{name}:{number}") from exc
    for place in tree.open:
        _leave(tree, place)
    return tree


def _leave(tree: _Tree, place: _Open) -> None:
    if not place.closed and not tree.cut:
        what = f"bus {place.domain}:{place.bus}" if place.bus else "the root buses"
        tree.cut = f"of {what} the last device is missing"


def _line(tree: _Tree, line: str) -> None:
    column = len(line) - len(line.lstrip(" |"))
    if not tree.devices and not tree.roots:
        place = _Open(column + 1, "", "", "", "")
        if line[column] in "+\\":
            tree.cut = "the root buses before its first line are missing"
            tree.open.append(_Open(column, "", "", "", "", closed=line[column] == "\\"))
            _item(tree, line, column + 2, tree.open[-1])
            return
        rest = line[column + 1:]
        if rest.startswith("+"):
            tree.open.append(place)
            rest = rest[2:]
        _item(tree, line, len(line) - len(rest), replace(place))
        return
    while tree.open and tree.open[-1].column > column:
        _leave(tree, tree.open.pop())
    if not tree.open or tree.open[-1].column != column:
        raise ParseError(f"{quote(line)} hangs under nothing: a line is missing, or columns have been lost")
    place = tree.open[-1]
    if place.closed:
        raise ParseError(f"{quote(line)} comes after the last of its siblings")
    place.closed = line[column] == "\\"
    _item(tree, line, column + 2, place)


def _item(tree: _Tree, line: str, at: int, place: _Open) -> None:
    """What stands in a line from `at` on: a root bus or a device, and what hangs under it in the same line."""
    for _ in range(MAX_DEPTH):
        root = _ROOT.match(line, at) if not place.bus else None
        if root:
            name = f"{root[1]}:{root[2]}"
            tree.roots.append(name)
            place = _Open(0, root[1], root[2], "", name)
            at = root.end()
        else:
            device = _DEVICE.match(line, at)
            if not device or not place.bus:
                if line[at:].strip("- "):
                    raise ParseError(f"{quote(line[at:])} is no device of a tree")
                return
            address = f"{place.domain}:{place.bus}:{device[1]}"
            below, at = _below(tree, line, device.end(), address, place)
            if below is None:
                return
            place = below
        here = at
        while line[here:here + 1] == "-":
            here += 1
        if line[here:here + 1] == "+":
            place.column = here
            tree.open.append(place)
            at = here + 2
        elif here >= len(line.rstrip()):
            return                       # a bus without devices
        else:
            at = here
    raise ParseError("the tree is deeper than any machine")


def _below(tree: _Tree, line: str, at: int, address: str, place: _Open) -> tuple[_Open | None, int]:
    """Notes the device; the bus under it, when it is a bridge, and where its devices begin in the line."""
    rest = line[at:]
    buses = _BUSES.match(line, at)
    named = _NAMED_BUSES.match(rest) if not buses and rest.startswith("  ") else None
    words = device_words(named[1].strip() if named else "" if buses else rest.strip())
    secondary = buses[1] if buses else named[2] if named else ""
    device = LspciDevice(address=address, printed=address, parent=place.parent, root=place.root, line=tree.number,
                         class_id="0604" if secondary else "", secondary=int(secondary, 16) if secondary else None,
                         subordinate=int((buses[2] if buses else named[3] if named else "") or secondary or "0", 16)
                         if secondary else None, **words)
    tree.devices.append(device)
    if not secondary:
        return None, at
    return _Open(0, place.domain, secondary, address, place.root), buses.end() if buses else \
        at + (named.start(4) if named and named[4] else len(rest))


def _is_gpu(device: LspciDevice) -> bool:
    """Without a class: by vendor and name."""
    if device.secondary is not None or _NO_GPU.search(device.name):
        return False
    if device.vendor_id == "10de":
        return device.pci_id not in NVSWITCHES
    if device.vendor_id == "1002":
        return True
    return device.vendor_id == "8086" and "Data Center GPU" in device.name


def _reading(lines: Sequence[str], first: int, name: str) -> Reading:
    tree = _tree(lines, first, name)
    named = any(device.name or device.vendor_id for device in tree.devices)
    above = paths(tree.devices)
    gpus = [{"pci": device.address, "device": device.device_id or None, "id": device.pci_id or None,
             "name": device.name or None, "root": device.root,
             "root_port": above[device.address][0] if above[device.address] else None,
             "path": [*above[device.address], device.address], "numa": None}
            for device in tree.devices if _is_gpu(device)]
    nics = [{"pci": device.address, "model": device.name, "root": device.root, "numa": None,
             "path": [*above[device.address], device.address]}
            for device in tree.devices if device.secondary is None and _NIC.search(device.name)]
    missing = []
    if tree.cut:
        missing.append(f"the tree is cut: {tree.cut} "
                       f"({len(tree.roots)} root buses are there: {', '.join(tree.roots[:20])})")
    if not named:
        missing.append("no names (lspci -tv): which devices are GPUs or NICs is unknown")
    known = {"gpus": gpus if named else None, "nics": (nics or (None if tree.cut else [])) if named else None,
             "roots": tree.roots, "devices": len(tree.devices), "cores_if_determined": None}
    findings = (Finding(missing[0], first),) if tree.cut else ()
    return Reading(kind="lspci -t", first=first, last=first + len(lines) - 1, value=tuple(tree.devices), known=known,
                   findings=findings, missing=tuple(missing))

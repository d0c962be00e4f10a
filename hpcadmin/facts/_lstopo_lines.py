"""A line of lstopo's text as the objects that it names: `L3 L#0 (36MB) + L2 L#0 (1024KB)`, short or verbose."""

from __future__ import annotations

import re

from hpcadmin.facts._base import clean, pci_address
from hpcadmin.facts._hwloc import Obj

_KINDS = {
    "Machine": "Machine", "System": "Machine", "Package": "Package", "Socket": "Package", "NUMANode": "NUMANode",
    "Die": "Die", "Core": "Core", "PU": "PU", "MemCache": "MemCache", "HostBridge": "Bridge", "PCIBridge": "Bridge",
    "Bridge": "Bridge", "PCI": "PCIDev", "PCIDev": "PCIDev", "Misc": "Misc", "OSDev": "OSDev", "Net": "OSDev",
    "Network": "OSDev", "OpenFabrics": "OSDev", "Block": "OSDev", "Storage": "OSDev", "GPU": "OSDev",
    "CoProc": "OSDev", "Co-Processor": "OSDev", "DMA": "OSDev", "Memory": "OSDev",
}
_OS_KINDS = {"net": "network", "network": "network", "openfabrics": "fabric", "block": "storage", "storage": "storage",
             "gpu": "gpu", "coproc": "coprocessor", "co-processor": "coprocessor", "dma": "dma", "memory": "memory"}
_CLASSES = {
    "Ethernet": "0200", "InfiniBand": "0207", "Fabric": "0208", "Network": "0280", "VGA": "0300", "3D": "0302",
    "Display": "0380", "SCSI": "0100", "IDE": "0101", "RAID": "0104", "ATA": "0105", "SATA": "0106", "SAS": "0107",
    "NVMExp": "0108", "Storage": "0180", "Co-Processor": "0b40", "ProcessingAccelerator": "1200", "PCIBridge": "0604",
}
_HEAD = re.compile(r"(L[1-5](?:[di]?Cache|[di])?|Group[0-9]{0,3}|Board|[A-Z][A-Za-z-]{1,20})"
                   r"(?:\[([A-Za-z, -]{1,80})\])?(?:\(([^()\"]{1,80})\))?(?=[ (]|\Z)")
_CACHE = re.compile(r"L([1-5])([di]?)(?:Cache)?\Z")
_PLACE = re.compile(r" ([LP])#([0-9]{1,7})(?![0-9])")
_BUS = re.compile(r" ((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?:-([0-7]))?(?= |\Z)")
_ID = re.compile(r" ([0-9a-fA-F]{4}:[0-9a-fA-F]{4})(?= |\Z)")
_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,60})=(?:\"([^\"]*)\"|([^\s\"]*))")
_OS_NUMBER = re.compile(r"P#([0-9]{1,7})(?![0-9])")
_NAME = re.compile(r" \"([^\"]{1,200})\"")
_CLASS = re.compile(r"([0-9a-fA-F]{4})(?:\(|\Z)")
_SIZE = re.compile(r"([0-9]{1,12})(KB|KiB|MB|MiB)\Z")
_ANY_SIZE = re.compile(r"(?:^|[ (=])([0-9]{1,12})([KMGTP])i?B(?=[ )]|\Z)")
_TIMES = re.compile(r"([0-9]{1,4}) x \{ (.{1,4000}) \}\s*\Z")
_CPUSET = re.compile(r" cpuset=(0x[0-9a-fA-Fx,]{1,20000})")
_POWER = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_UNIT = {"KB": 1024, "KiB": 1024, "MB": 1 << 20, "MiB": 1 << 20}


# A device of a kind that the hwloc which printed it did not know.
_NAMELESS = re.compile(r"(?:\([^\"()]{1,80}\) )?(?:L#[0-9]{1,7} (?:\(.{0,2000}\) )?)?\"[^\"]{1,200}\"\Z")


def kind_of(word: str) -> str:
    cache = _CACHE.match(word)
    if cache:
        return f"L{cache[1]}{'iCache' if cache[2] == 'i' else 'Cache'}"
    return "Group" if word.startswith("Group") or word == "Board" else _KINDS.get(word, "")


def is_object(text: str) -> bool:
    """Whether a line (without its indentation) begins as one of lstopo's objects."""
    times = _TIMES.match(text)
    head = _HEAD.match(times[2] if times else text)
    if text.startswith(("L#", '"', "(")) and _NAMELESS.match(text):
        return True
    if not head or not kind_of(head[1]):
        return False
    rest = (times[2] if times else text)[head.end():]
    # Words of prose begin alike: an object has a place, a bracket, a name, or nothing behind it.
    if not rest.strip() or rest.startswith((" + ", " cpuset=")):
        return True
    return " = " not in rest and re.match(r" (?:[LP]#[0-9]|\(|\"|[0-9a-fA-F]{2,8}:)", rest) is not None


def unclosed(text: str) -> bool:
    """Whether a bracket is open at the end: the line was wrapped, or is cut off."""
    depth, quoted = 0, False
    for char in text:
        if char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
    return depth > 0 or quoted


def parts(text: str) -> list[str]:
    """What ` + ` joins, outside of brackets and quotes."""
    found, start, depth, quoted = [], 0, 0, False
    for place, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
            if char == "+" and depth == 0 and text[place - 1:place + 2] == " + ":
                found.append(text[start:place - 1])
                start = place + 2
    return [*found, text[start:]]


def objects(text: str, line: int) -> list[list[Obj]]:
    """The objects of a line, each below the one before; several in one place where equal devices are told together."""
    times = _TIMES.match(text)
    if times:
        return [_repeated(times[2], int(times[1]), line)]
    return [[made] for part in parts(text) if (made := _object(part.strip(), line)) is not None]


def _repeated(text: str, number: int, line: int) -> list[Obj]:
    """`3 x { PCI 0b:00.1-3 (Ethernet) }`."""
    one = _object(text, line)
    if one is None:
        return []
    bus = _BUS.search(text)
    if not bus or not bus[2] or int(bus[2]) - int(bus[1][-1]) + 1 != number:
        one.attributes.pop("pci_busid", None)
        return [one] * min(number, 256)
    found = []
    for function in range(int(bus[1][-1]), int(bus[2]) + 1):
        made = _object(text, line)
        if made is not None:
            made.attributes["pci_busid"] = f"{bus[1][:-1]}{function}"
            found.append(made)
    return found


def _object(text: str, line: int) -> Obj | None:
    head = _HEAD.match(text)
    kind = kind_of(head[1]) if head else ""
    if not head or not kind:
        named = _NAMELESS.match(text)
        return Obj("OSDev", line, attributes={"name": clean(text.rsplit('"', 2)[-2], 200)}) if named else None
    rest = text[head.end():]
    opening = rest.find(" (")
    before = rest[:opening] if opening >= 0 else rest
    made = Obj(kind, line)
    inside = rest[opening + 2:] if opening >= 0 else ""
    for letter, number in _PLACE.findall(before):
        if letter == "P":
            made.os_index = int(number)
        else:
            made.attributes["logical"] = number
    if made.os_index is None and (own := _OS_NUMBER.match(inside)):
        made.os_index = int(own[1])
    for key, quoted, bare in _PAIR.findall(inside):
        made.infos.setdefault(key, clean(quoted or bare.rstrip(")"), 400))
    if cpus := _CPUSET.search(text):
        made.attributes["printed_cpuset"] = cpus[1]
    if head[3]:
        made.attributes["subtype"] = clean(head[3])
    if kind in ("PCIDev", "Bridge"):
        _pci(made, before, inside)
    elif kind == "OSDev":
        words = [word.strip().lower() for word in (head[2] or head[1]).split(",")]
        name = _NAME.findall(text)
        made.attributes |= {"kinds": " ".join(_OS_KINDS.get(word, word) for word in words),
                            "name": name[-1] if name else ""}
    elif kind in ("Machine", "NUMANode"):
        _memory(made, inside)
    return made


def _memory(made: Obj, inside: str) -> None:
    """bytes: rounded as it is printed; local_memory: only where it is told to the MiB."""
    if size := _ANY_SIZE.search(inside):
        made.attributes["bytes"] = str(int(size[1]) * _POWER[size[2]])
    words = [made.infos.get("local", ""), *inside.rstrip(")").split()]
    exact = next((match for word in words if (match := _SIZE.match(word))), None)
    if exact:
        made.attributes["local_memory"] = str(int(exact[1]) * _UNIT[exact[2]])


def _pci(made: Obj, before: str, inside: str) -> None:
    bus, number = _BUS.search(before + " "), _ID.search(before + " ")
    address = made.infos.get("busid", "") or (bus[1] if bus else "")
    if pci_address(address):
        made.attributes["pci_busid"] = address
    ids = made.infos.get("id", "") or (number[1] if number else "")
    code = _CLASS.match(made.infos.get("class", ""))
    word = inside.partition(" ")[0].rstrip(")")
    word = "" if "=" in word else word
    kind = code[1].lower() if code else _CLASSES.get(word, "")
    if ids and kind:
        made.attributes["pci_type"] = f"{kind} [{ids.lower()}]"
    elif ids:
        made.attributes["pci_ids"] = ids.lower()
    made.attributes |= {"class": kind, "class_name": clean(word)}
    if "buses" in made.infos:
        made.attributes["bridge_pci"] = made.infos["buses"]

"""Memory modules from `dmidecode -t memory`: only root may read them, so that without root they are unknown."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, leading_int, lines_of, maybe_integer
from hpcadmin.facts._dmidecode import Block, blocks, said
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.model import Dimm

NAME = "dimms"
ORDER = 60
LIMIT = 1024 * 1024
COMMAND = r"""
t=/sys/firmware/dmi/tables/DMI
[ -e $t ] || return 127
command -v dmidecode >/dev/null 2>&1 || { echo 'why=dmidecode is not installed'; return 0; }
if [ -r $t ]; then limit 5 dmidecode -t memory || echo "why=dmidecode ended with status $?"
elif [ -n "$SUDO" ]; then limit 5 $SUDO dmidecode -t memory 2>&1 || echo "why=refused, status $?"
else echo 'why=only root may read it'
fi
"""
FORMS = ("text",)
MARKS = ("DMI type 1",)
_SIZE = re.compile(r"([0-9]{1,12}) (kB|MB|GB|TB)\Z")
_UNIT_KIB = {"kB": 1, "MB": 1024, "GB": 1024 * 1024, "TB": 1024 * 1024 * 1024}
_EMPTY_SLOT = ("no module installed", "not installed", "0", "none")


@dataclass(frozen=True)
class Dimms:
    """modules: every slot, also the empty ones. why: why it is unknown what is in there."""

    modules: tuple[Dimm, ...] = ()
    why: str = ""

    @property
    def total_mib(self) -> int | None:
        """None when a module's size is unknown."""
        filled = [dimm for dimm in self.modules if dimm.size_mib is not None or dimm.kind]
        if not filled or any(dimm.size_mib is None for dimm in filled):
            return None
        return sum(dimm.size_mib or 0 for dimm in filled)


def parse(text: str) -> Dimms:
    """Raises ParseError when fewer slots are described than the memory array says it has."""
    lines = lines_of(text, "dmidecode")
    reasons = [line.partition("=")[2] for line in lines if line.startswith("why=")]
    found = blocks(text.split("\n"))
    if reasons or not found:
        if reasons:
            said_first = clean(lines[0]) if not lines[0].startswith("why=") else ""
            return Dimms(why=": ".join(part for part in (clean(reasons[-1]), said_first) if part))
        raise ParseError(f"dmidecode: {clean(lines[0])}")
    modules, missing = _modules(found)
    if missing:
        raise ParseError(f"dmidecode: {missing}")
    return Dimms(modules)


def read(document: Document) -> tuple[Reading, ...]:
    """The memory modules of an output of dmidecode in the document."""
    if not any("DMI type 1" in line for line in document.lines):
        return ()
    found = [block for block in blocks(document.lines) if block.type in (16, 17)]
    if not any(block.type == 17 for block in found):
        return ()
    modules, missing = _modules(found)
    value = Dimms(modules)
    findings = tuple(Finding(what, block.first) for block in found for what in _slow(block))
    known: dict[str, Any] = {
        "dimms": sum(1 for dimm in modules if dimm.size_mib), "dimm_slots": len(modules),
        "dimms_total_mib": value.total_mib if not missing else None,
    }
    return (Reading("dmidecode -t memory", found[0].first, found[-1].last, value, known, findings,
                    (missing,) if missing else ()),)


def _modules(found: list[Block]) -> tuple[tuple[Dimm, ...], str]:
    """The slots of system memory, and what is missing."""
    arrays = {block.handle: block for block in found if block.type == 16}
    system = {handle for handle, block in arrays.items() if block.fields.get("Use", "System Memory") == "System Memory"}
    devices = [block for block in found if block.type == 17
               and (block.fields.get("Array Handle", "").lower() in system
                    or block.fields.get("Array Handle", "").lower() not in arrays)]
    expected = [maybe_integer(arrays[handle].fields.get("Number Of Devices")) for handle in system]
    missing = ""
    if arrays and None not in expected and sum(number or 0 for number in expected) > len(devices):
        missing = f"{len(devices)} memory slots of {sum(number or 0 for number in expected)} are described: cut off"
    elif not devices:
        missing = "no memory slot is described"
    names = [said(block.fields.get("Locator")) for block in devices]
    doubles = {name for name, count in Counter(names).items() if count > 1}
    return tuple(_dimm(block, name, name in doubles) for block, name in zip(devices, names, strict=True)), missing


def _dimm(block: Block, name: str, ambiguous: bool) -> Dimm:
    fields = block.fields
    slot = name
    if ambiguous or not name:
        slot = " ".join(part for part in (said(fields.get("Bank Locator")), name) if part) or block.handle
    size = clean(fields.get("Size", ""))
    match = _SIZE.match(size)
    if size.lower() in _EMPTY_SLOT:
        return Dimm(slot)
    speed = fields.get("Configured Memory Speed") or fields.get("Configured Clock Speed")
    return Dimm(
        slot=slot, size_mib=int(match[1]) * _UNIT_KIB[match[2]] // 1024 if match else None,
        kind=said(fields.get("Type")) or "unknown", speed_mts=leading_int(speed) or None,
        speed_max_mts=leading_int(fields.get("Speed")) or None, manufacturer=said(fields.get("Manufacturer")),
        part=said(fields.get("Part Number")), serial=said(fields.get("Serial Number")),
    )


def _slow(block: Block) -> list[str]:
    if block.type != 17:
        return []
    dimm = _dimm(block, said(block.fields.get("Locator")), False)
    if dimm.speed_mts and dimm.speed_max_mts and dimm.speed_mts < dimm.speed_max_mts:
        return [f"memory module {dimm.slot} runs at {dimm.speed_mts} MT/s of {dimm.speed_max_mts}"]
    return []

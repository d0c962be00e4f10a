"""The output of dmidecode as blocks: one for each SMBIOS structure, with its handle, type and fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.facts._base import clean

_HANDLE = re.compile(r"Handle (0x[0-9A-Fa-f]{1,8}), DMI type ([0-9]{1,3})(?:, ([0-9]{1,5}) bytes)?\s*\Z")
# What board makers leave in the fields they did not fill in, and what dmidecode says of empty strings.
FILLERS = frozenset({"", "to be filled by o.e.m.", "default string", "not specified", "none", "n/a", "unknown",
                     "system serial number", "system product name", "system manufacturer", "0", "0123456789",
                     "123456789", "not applicable", "empty", "not available", "no dimm", "null", "invalid",
                     "undefined", "system version", "base board serial number", "chassis serial number",
                     "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
                     "03000200-0400-0500-0006-000700080009", "not settable", "not present", "o.e.m.",
                     "to be filled by o.e.m", "no asset tag", "no asset information", "default"})
_EMPTY = re.compile(r"[\s.x0\-_*?]{0,200}\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """One structure. first: number of its Handle line, 1-based."""

    handle: str
    type: int
    title: str
    fields: Mapping[str, str]
    first: int
    last: int


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def said(value: str | None) -> str:
    """The value as one clean line; "" for what says nothing."""
    text = clean(value or "")
    return "" if text.lower() in FILLERS or _EMPTY.match(text) or text.startswith(("<OUT OF", "<BAD")) else text


def blocks(lines: Sequence[str]) -> list[Block]:
    """Every structure in the lines; what is around them (prompts, comments, other tools) is passed over."""
    found: list[Block] = []
    at = 0
    while at < len(lines):
        match = _HANDLE.match(lines[at].strip())
        if not match:
            at += 1
            continue
        first, indent = at + 1, _depth(lines[at])
        title = ""
        fields: dict[str, str] = {}
        at += 1
        # A paste may have lost its tabs: then only a blank line or the next handle ends a structure.
        flat = at + 1 < len(lines) and _depth(lines[at + 1]) <= indent and ":" in lines[at + 1]
        while at < len(lines) and lines[at].strip() and not _HANDLE.match(lines[at].strip()):
            line = lines[at]
            key, colon, value = line.strip().partition(":")
            if not title and _depth(line) <= indent:
                title = clean(line)
            elif title and _depth(line) <= indent and not (flat and colon):
                break                # a prompt or another tool
            elif colon:
                fields.setdefault(key.strip(), value.strip())
            at += 1
        found.append(Block(match[1].lower(), int(match[2]), title, fields, first, at))
    return found

"""Is the clock kept by somebody: chrony, ntpd, or what systemd knows of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, maybe_integer, pairs
from hpcadmin.facts._reading import Document, Finding, Reading

NAME = "time_sync"
ORDER = 66
COMMAND = r"""
f=
if command -v chronyc >/dev/null 2>&1; then f=1; limit 2 chronyc -n tracking && return 0; fi
if command -v ntpq >/dev/null 2>&1; then
  f=1; v=$(limit 2 ntpq -pn 2>/dev/null)
  [ -n "$v" ] && echo "$v" && return 0
fi
if command -v timedatectl >/dev/null 2>&1; then
  f=1; limit 2 timedatectl show 2>/dev/null && return 0
  limit 2 timedatectl status && return 0
fi
[ -n "$f" ] || return 127
echo 'why=nothing that keeps the time answers'
"""
FORMS = ("text",)
MARKS = ("Reference ID", "refid", "NTPSynchronized=", "synchronized:")
_OFFSET = re.compile(r"([0-9]{1,12}(?:[.,][0-9]{1,12})?) seconds (slow|fast) of NTP time")
_REFERENCE = re.compile(r"([0-9A-Fa-f]{8}) \(([^)]{0,255})\)")
_PEER = re.compile(r"([*o])?\s*(?:[ x.#+-]\s*)?(\S{1,255})\s+(\S{1,40})\s+([0-9]{1,2})\s+\S\s+\S+\s+"
                   r"[0-9]+\S*\s+[0-7]{1,3}\s+\S+\s+([+-]?[0-9.]{1,20})\s+\S+\s*\Z")
OFFSET_MAX_S = 0.1


@dataclass(frozen=True)
class TimeSync:
    """synchronised None: unknown. offset_s: how far the clock is from its reference; + is fast."""

    tool: str = ""
    synchronised: bool | None = None
    reference: str = ""
    stratum: int | None = None
    offset_s: float | None = None

    @property
    def words(self) -> str:
        """As one line, without the offset, which differs on every node."""
        if self.synchronised is None:
            return ""
        if not self.synchronised:
            return f"{self.tool}, not synchronised"
        to = f" to {self.reference}" if self.reference else ""
        return f"{self.tool}, synchronised{to}{f', stratum {self.stratum}' if self.stratum else ''}"

    @property
    def faults(self) -> tuple[str, ...]:
        if self.synchronised is False:
            return (f"time: {self.words}",)
        if self.offset_s is not None and abs(self.offset_s) > OFFSET_MAX_S:
            return (f"time: the clock is {abs(self.offset_s):g} s {'fast' if self.offset_s > 0 else 'slow'}",)
        return ()


def parse(text: str) -> TimeSync:
    """Raises ParseError where none of the tools' outputs is in the text."""
    lines = lines_of(text, "the time's keepers")
    if lines[-1].startswith("why="):
        return TimeSync()
    found = _find(lines)
    if found is None:
        raise ParseError(f"the clock's state: {clean(lines[0])}")
    return found[0]


def read(document: Document) -> tuple[Reading, ...]:
    found = _find(document.lines)
    if found is None:
        return ()
    value, first, last, kind = found
    known = {"synchronised": value.synchronised, "reference": value.reference or None, "stratum": value.stratum,
             "offset_s": value.offset_s}
    return (Reading(kind, first, last, value, known, tuple(Finding(what, first) for what in value.faults)),)


def _find(lines: list[str] | tuple[str, ...]) -> tuple[TimeSync, int, int, str] | None:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        block = [part.strip() for part in lines[number - 1:number + 30]]
        end = min(len(lines), number + 12)
        if text.startswith("Reference ID") and ":" in text:
            value = _chrony(dict(pairs(block)))
            if value is not None:
                return value, number, end, "chronyc tracking"
        elif text.split()[:3] == ["remote", "refid", "st"]:
            return _ntpq(block[1:]), number, end, "ntpq -p"
        elif text.startswith(("NTPSynchronized=", "System clock synchronized:", "NTP synchronized:")):
            answer = re.split("[=:]", text, maxsplit=1)[1].strip()
            synchronised = {"yes": True, "no": False}.get(answer)
            return TimeSync("systemd", synchronised), number, number, "timedatectl"
    return None


def _chrony(values: dict[str, str]) -> TimeSync | None:
    reference, leap = _REFERENCE.match(values.get("Reference ID", "")), values.get("Leap status", "")
    if not reference or not leap:
        return None
    synchronised = leap in ("Normal", "Insert second", "Delete second") and reference[1].strip("0") != ""
    # 7F7F0101 is chronyd's own clock ("local"): it follows nobody.
    if reference[1].upper() == "7F7F0101":
        return TimeSync("chrony", False, "its own clock", maybe_integer(values.get("Stratum")))
    offset = _OFFSET.match(values.get("System time", ""))
    seconds = float(offset[1].replace(",", ".")) * (1 if offset[2] == "fast" else -1) if offset else None
    return TimeSync("chrony", synchronised, clean(reference[2]) if synchronised else "",
                    maybe_integer(values.get("Stratum")) if synchronised else None, seconds if synchronised else None)


def _ntpq(lines: list[str]) -> TimeSync:
    for line in lines:
        match = _PEER.match(line) if len(line) < 400 else None
        if match and match[1] and not match[2].startswith("127.127.1."):
            try:
                offset: float | None = float(match[5]) / 1000
            except ValueError:
                offset = None
            return TimeSync("ntpd", True, clean(match[2]), int(match[4]), offset)
    return TimeSync("ntpd", False)

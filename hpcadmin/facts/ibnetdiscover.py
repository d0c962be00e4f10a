"""`ibnetdiscover`: the whole fabric, device by device; with -p port by port; with -l a list of devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpcadmin.fabric.dump import SPEEDS, Dump, End, Line
from hpcadmin.facts._base import clean
from hpcadmin.facts._fabric import fabric_reading
from hpcadmin.facts._reading import Document, Reading

FORMS = ("text",)
MARKS = ("# Topology file:", "guid=0x", "vendid=0x", "devid=0x", '"S-', '"H-', '"R-', ": 0x",
         *(f"{kind}{blank}{follows}" for kind in ("CA", "SW", "RT") for blank in " \t" for follows in " \t0123456789"))
_KINDS = {"switch": "switch", "ca": "ca", "rt": "router", "router": "router", "sw": "switch"}
_LETTERS = {"S": "switch", "H": "ca", "R": "router"}
_HEAD = re.compile(r'(Switch|Ca|Rt|Router)\s{1,20}([0-9]{1,4})\s{1,20}"([SHR])-([0-9a-fA-F]{16})"\s{0,20}(.{0,400})\Z')
_PORT = re.compile(
    r'\[([0-9]{1,3})\](?:\[ext [^\]]{0,20}\])?(?:\(([0-9a-fA-F]{1,16})\))?\s{0,40}(?:\[ext [^\]]{0,20}\])?\s{0,40}'
    r'"([SHR])-([0-9a-fA-F]{16})"\[([0-9]{1,3})\](?:\[ext [^\]]{0,20}\])?\s{0,40}(?:\[ext [^\]]{0,20}\])?'
    r'(?:\(([0-9a-fA-F]{1,16})\))?\s{0,40}(#.{0,400})\Z')
_REST = re.compile(r'#\s{0,20}(?:lid ([0-9]{1,5}) lmc [0-9]{1,3} )?"(.{0,200})"(?:\s{1,20}lid ([0-9]{1,5}))?'
                   r'(.{0,120})\Z')
_RATE = re.compile(r"\s([0-9]{1,2})x ?([A-Z0-9?]{1,8})(?![A-Za-z0-9])")
_GUID = re.compile(r"(?:switch|ca|rt|sysimg)guid=0x[0-9a-fA-F]{1,16}|vendid=0x|devid=0x")
_HEAD_REST = re.compile(r'#\s{0,20}"(.{0,200})"(?:.{0,80}?\blid ([0-9]{1,5}))?')
_ROW = re.compile(
    r"(CA|SW|RT)\s{1,10}([0-9]{1,5})\s{1,10}([0-9]{1,3})\s{1,10}0x([0-9a-fA-F]{1,16})\s{1,10}([0-9?]{1,3})x"
    r" ?([A-Z0-9?]{1,8})(?:\s{1,10}-\s{1,10}(CA|SW|RT)\s{1,10}([0-9]{1,5})\s{1,10}([0-9]{1,3})\s{1,10}"
    r"0x([0-9a-fA-F]{1,16}))?\s{0,80}(.{0,400})\Z")
_NAMES = re.compile(r"\( ?'(.{0,200})' - '(.{0,200})' ?\)\Z")
_LISTED = re.compile(r'(Ca|Switch|Rt|Router)\s{0,10}: 0x([0-9a-fA-F]{16}) ports ([0-9]{1,3}) '
                     r'(?:devid \S{1,10} vendid \S{1,10} )?"(.{0,200})"(?:.{0,80}?\blid ([0-9]{1,5}))?')
_BEGINS = re.compile(r"\s{0,40}(?:Switch\s|Ca\s|Rt\s|\[[0-9]|SW |CA |RT )")


def guid(text: str) -> str:
    """16 hex digits; "" for none and for zero."""
    return text.lower().zfill(16) if text and text.strip("0") else ""


def speed_of(text: str) -> str:
    return text if text in SPEEDS else ""


@dataclass
class _Run:
    """One output, while it is read."""

    form: str
    first: int
    last: int = 0
    blocks: list[tuple[End, int]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    here: End | None = None
    unread: list[tuple[int, str]] = field(default_factory=list)

    def reading(self) -> Reading:
        dump = Dump(f"ibnetdiscover{self.form}", tuple(self.blocks), tuple(self.lines))
        return fabric_reading(dump, self.first, self.last, self.unread)


def opens(line: str) -> bool:
    """Whether an output may begin with the line."""
    text = line.strip()
    return len(text) <= 1000 and (text.startswith("# Topology file:") or any(
        pattern.match(text) for pattern in (_GUID, _HEAD, _PORT, _ROW, _LISTED)))


def read(document: Document) -> tuple[Reading, ...]:
    runs: list[_Run] = []
    for number, raw in enumerate(document.lines, 1):
        text = raw.strip()
        if not text or len(text) > 1000:
            continue
        if text.startswith("# Topology file:") or (not runs and _GUID.match(text)):
            runs.append(_Run("", number, number))
        elif not _GUID.match(text) and not _line(runs, text, number) and runs and _BEGINS.match(raw):
            runs[-1].unread.append((number, clean(text, 80)))
    if runs and runs[-1].form == "" and runs[-1].lines:
        # Every line ends with the link's rate, but for those that somebody cut.
        end = runs[-1].lines[-1]
        if not end.speed and end.there and not any(line.strip() for line in document.lines[end.line:]):
            runs[-1].unread.append((end.line, "the end of the line"))
    return tuple(run.reading() for run in runs if run.blocks or run.lines or run.unread)


def _line(runs: list[_Run], text: str, number: int) -> bool:
    for form, match in (("", _HEAD.match(text)), ("", _PORT.match(text)), (" -p", _ROW.match(text)),
                        (" -l", _LISTED.match(text))):
        if match is None:
            continue
        if not runs or (runs[-1].form != form and (runs[-1].blocks or runs[-1].lines)):
            runs.append(_Run(form, number))
        run = runs[-1]
        run.form, run.last = form, number
        if form == " -p":
            run.lines.append(_row(match, number))
        elif form == " -l":
            run.blocks.append((End(0, _KINDS[match[1].lower()], guid(match[2]), lid=_lid(match[5]),
                                   description=clean(match[4])), number))
        elif match.re is _HEAD:
            rest = _HEAD_REST.match(match[5])
            run.here = End(0, _LETTERS[match[3]], guid(match[4]), lid=_lid(rest[2]) if rest else None,
                           description=clean(rest[1]) if rest else "")
            run.blocks.append((run.here, number))
        elif run.here is None:
            run.unread.append((number, clean(text, 80)))
        elif (rest := _REST.match(match[7])) is None:
            return False
        else:
            run.lines.append(_port(run.here, match, rest, number))
        return True
    return False


def _lid(text: str | None) -> int | None:
    return int(text) if text else None


def _port(block: End, match: re.Match[str], rest: re.Match[str], number: int) -> Line:
    rate = _RATE.search(rest[4])
    own_lid = _lid(rest[1]) if rest[1] else block.lid
    here = End(int(match[1]), block.kind, block.guid, guid(match[2] or ""), own_lid, block.description)
    there = End(int(match[5]), _LETTERS[match[3]], guid(match[4]), guid(match[6] or ""),
                _lid(rest[3]), clean(rest[2]))
    return Line(here, there, f"{int(rate[1])}X" if rate else "", speed_of(rate[2]) if rate else "", line=number)


def _row(match: re.Match[str], number: int) -> Line:
    names = _NAMES.match(match[11])
    own = names[1] if names else match[11].strip().strip("'")
    width = f"{match[5]}X" if match[5].isdigit() else ""
    here = End(int(match[3]), _KINDS[match[1].lower()], "", guid(match[4]), int(match[2]), clean(own))
    there = None
    if match[7]:
        there = End(int(match[9]), _KINDS[match[7].lower()], "", guid(match[10]), int(match[8]),
                    clean(names[2]) if names else "")
    return Line(here, there, width, speed_of(match[6]), line=number)

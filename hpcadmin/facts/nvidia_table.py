"""The plain table of `nvidia-smi`, of drivers old and new: boxes of two or three lines a GPU, MIG devices below."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, leading_float, leading_int, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading, each_read
from hpcadmin.facts._smi import Shown, Smi
from hpcadmin.facts._smi_fields import cut_name
from hpcadmin.model import Gpu, MigDevice

FORMS = ("text",)
MARKS = ("NVIDIA-SMI", "GPU")
KIND = "nvidia-smi"

_BANNER = re.compile(r"NVIDIA-SMI\s{1,20}([0-9][0-9.]{2,20})")
_DRIVER = re.compile(r"\b(?:Driver|KMD) Version: {0,8}([0-9][0-9.]{2,20})")
_CUDA = re.compile(r"\bCUDA (?:UMD )?Version: {0,8}([0-9]{1,3}\.[0-9]{1,3}|N/A|ERR!)")
_HEADER = re.compile(r"\|\s{1,4}GPU\s{1,4}Name\b")
_BUS = re.compile(r"\s{0,12}([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?:\s{1,8}(\S{1,12}))?\s{0,12}\Z")
_ROW = re.compile(r"\s{0,8}([0-9]{1,3})\s{1,8}(\S.{0,100})\Z")
_MODE = re.compile(r"(.{1,100}?)\s{1,60}(On|Off|N/A|ERR!|Enabled|Disabled|WDDM|TCC|MCDM)\s{0,8}\Z")
_USAGE = re.compile(r"\s{0,30}([0-9]{1,9})MiB / {1,10}([0-9]{1,9})MiB\s{0,30}\Z")
_CAP = re.compile(r"/ {0,10}([0-9]{1,5})W\b")
_MIG_ROW = re.compile(r"\s{0,8}([0-9]{1,3})\s{1,8}([0-9]{1,3})\s{1,8}([0-9]{1,3})\s{1,8}([0-9]{1,3})\s{0,8}\Z")
_BORDER = re.compile(r"[\s+|=~-]{3,200}\Z")
_READINGS = ("fan speed", "temperature", "performance state", "power draw")
_DATE = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w{0,6} \w{3} .{8,40}\Z")


@dataclass
class _Row:
    """A GPU's lines: cells of the first, the second and the third."""

    line: int
    cells: list[list[str]] = field(default_factory=list)


@dataclass
class _Table:
    first: int
    last: int
    driver: str = ""
    cuda: str = ""
    rows: list[_Row] = field(default_factory=list)
    migs: list[tuple[int, list[str]]] = field(default_factory=list)
    processes: bool = False
    banner: bool = False
    tool: str = ""                   # the version of nvidia-smi itself
    mig_section: bool = False        # within the list of MIG devices
    mig_list: bool = False
    mig_head: bool = False           # its head has a column for the MIG mode


def read(document: Document) -> tuple[Reading, ...]:
    lines = _smi.unquoted(document.lines)
    return each_read(document.name, tables(lines), lambda table: _reading(lines, table))


# --- finding it ----------------------------------------------------------------------------------------------------


def tables(lines: Sequence[str]) -> Iterator[_Table]:
    table: _Table | None = None
    outside = 0
    for number, line in enumerate(_rejoined(lines), 1):
        banner = "|" in line and _BANNER.search(line[:200])
        if banner or (_HEADER.search(line[:80]) and (table is None or table.rows)):
            if table and table.rows:
                yield table
            table = _Table(number, number, banner=bool(banner), tool=banner[1] if banner else "")
            outside = 0
        if table is None:
            continue
        if _take(table, line[:400], number):
            table.last, outside = number, 0
        elif line.strip():
            outside += 1
            if outside > 3 or table.processes:
                if table.rows:
                    yield table
                table = None
    if table and (table.rows or table.banner):
        yield table


def _rejoined(lines: Sequence[str]) -> Sequence[str]:
    """With what mail has wrapped in one line again; the rest of it is blank, so that lines keep their numbers."""
    broken = [number for number, line in enumerate(lines[:-1])
              if line[:1] in "|+ " and line.lstrip()[:1] in ("|", "+") and _goes_on(line.rstrip(), lines[number + 1])]
    if not broken:
        return lines
    found = list(lines)
    hard = len({len(lines[number]) for number in broken}) == 1         # at a column, within words as well
    for number in broken:
        line, rest = lines[number], lines[number + 1]
        apart = hard or line[-1:].isspace() or rest[:1].isspace() or line[-1:] in "-="
        found[number], found[number + 1] = f"{line}{'' if apart else ' '}{rest}", ""
    return found


def _goes_on(line: str, following: str) -> bool:
    rest = following.strip()
    return len(rest) < 200 and rest[-1:] in ("|", "+") and (
        rest[0] not in "|+" or (len(rest) == 1 and line[-1:] not in ("|", "+")))


def _take(table: _Table, line: str, number: int) -> bool:
    text = line.strip()
    if not text.startswith(("|", "+")):
        return bool(_BORDER.match(line)) and bool(text)
    for pattern, name in ((_DRIVER, "driver"), (_CUDA, "cuda")):
        match = pattern.search(line)
        if match and not table.rows and not getattr(table, name) and match[1] not in ("N/A", "ERR!"):
            setattr(table, name, match[1])
    if _BORDER.match(line):
        return True
    cells = text.strip("|").split("|")
    if not table.rows and "MIG M." in text:
        table.mig_head = True
    if "Processes:" in text:
        table.processes, table.mig_section = True, False
    elif "MIG devices:" in text or "MIG Devices:" in text:
        table.mig_section = table.mig_list = True
    elif table.mig_section:
        if _MIG_ROW.match(cells[0]):
            table.migs.append((number, cells))
    elif not table.processes and len(cells) >= 2:
        if _BUS.match(cells[1]) and _ROW.match(cells[0]):
            table.rows.append(_Row(number, [cells]))
        elif table.rows and len(table.rows[-1].cells) < 3 and number - table.rows[-1].line < 6:
            table.rows[-1].cells.append(cells)
    return True


# --- what it says --------------------------------------------------------------------------------------------------


def _reading(lines: Sequence[str], table: _Table) -> Reading:
    if len(table.rows) > _smi.MAX_GPUS:
        raise ParseError(f"{len(table.rows)} GPUs are no node's")
    first = table.first
    while first > 1 and (_BORDER.match(lines[first - 2]) or _DATE.match(lines[first - 2].strip())):
        first -= 1
    complaints = _smi.near(lines, first, table.last)
    lost = tuple(said.lost for said in complaints if said.lost)
    shown = [_shown(row) for row in table.rows]
    for what, values in (("index", [one.gpu.index for one in shown]), ("PCI address", [one.gpu.pci for one in shown])):
        if len(set(values)) != len(values):
            raise ParseError(f"a GPU's {what} appears twice in the table")
    shown, stray = _with_migs(shown, table)
    missing = [*_missing(table, shown), *stray]
    errors = [{"index": one.gpu.index, "message": f"ERR! ({what})"}
              for one, row in zip(shown, table.rows, strict=True) for what in _error_readings(row)]
    told = [Finding(f"{_smi.name_of(one)}: the name is cut (\"{one.name_cut}\"): its type does not follow from it",
                    one.line) for one in shown if one.name_cut]
    if table.tool and table.driver and table.tool != table.driver:
        told.append(Finding(f"nvidia-smi {table.tool} with driver {table.driver}: WSL, or libraries of another driver",
                            table.first, note=True))
    smi = Smi(table.driver, None, tuple(shown), lost, table.cuda, whole=not missing)
    return _smi.reading(KIND, smi, first, table.last, complaints=complaints, missing=missing, count=len(shown),
                        told=told, errors=errors)


def _missing(table: _Table, shown: Sequence[Shown]) -> Iterator[str]:
    if not table.rows:
        yield "no GPU is shown: the table is cut off after its head"
    elif not table.processes:
        yield f"the table is cut off after GPU {shown[-1].gpu.index}: the list of processes that ends it is not there"
    if not table.banner:
        yield "the head of the table, with the driver's version"
    if table.rows and len(table.rows[-1].cells) < 2:
        yield f"the lines of GPU {shown[-1].gpu.index}"
    bare = [str(one.gpu.index) for one, row in zip(shown, table.rows, strict=True)
            if one.mig_mode is None and len(row.cells) > 1] if table.mig_head else []
    if bare:
        yield f"the MIG mode of GPU {', '.join(bare[:16])}: lines are missing or broken"
    if any(one.gpu.mig == "Enabled" for one in shown) and not table.mig_list:
        yield "the list of MIG devices"


def _shown(row: _Row) -> Shown:
    """Cells that are not there, or hold N/A, say nothing."""
    top = row.cells[0]
    match, bus = _ROW.match(top[0]), _BUS.match(top[1])
    assert match and bus  # noqa: S101
    mode = _MODE.match(match[2])
    name, cut = cut_name((mode[1] if mode else match[2]).strip())
    second, third = (row.cells[n] if len(row.cells) > n else [] for n in (1, 2))
    usage = _USAGE.match(second[1]) if len(second) > 1 else None
    cap = _CAP.search(second[0]) if second else None
    words = second[2].split() if len(second) > 2 else []
    compute = " ".join(words[1:]) if words else ""
    mig = clean(third[2]) if len(third) > 2 else ""
    ecc = clean(top[2]) if len(top) > 2 else ""
    on = {"On": "Enabled", "Off": "Disabled", "Enabled": "Enabled", "Disabled": "Disabled"}
    windows = mode[2] if mode and mode[2] in ("WDDM", "TCC", "MCDM") else None
    gpu = Gpu(
        vendor="nvidia", index=maybe_integer(match[1]), model=name, pci=pci_address(bus[1]),
        memory_mib=leading_int(usage[2]) if usage else None, persistence=on.get(mode[2], "") if mode else "",
        power_limit_w=leading_float(cap[1]) if cap else None,
        ecc={"Off": "Disabled"}.get(ecc, "Enabled" if ecc.isdigit() else ""),
        mig="" if mig in ("N/A", "ERR!") else mig.rstrip("*"),
        mig_pending={"Enabled*": "Disabled", "Disabled*": "Enabled"}.get(mig, ""),
        compute_mode="" if compute in ("N/A", "ERR!") else compute,
    )
    one = Shown(gpu, cut, None, mig or None, None, windows, leading_int(usage[1]) if usage else None, line=row.line)
    return replace(one, faults=tuple(_faults(one, row, ecc)))


def _faults(one: Shown, row: _Row, ecc: str) -> Iterator[str]:
    errors = list(_error_readings(row))
    if len(set(errors).intersection(_READINGS)) > 2:
        yield f"does not answer: ERR! in place of its {', '.join(errors)}"
    elif errors:
        yield f"ERR! in place of its {', '.join(errors)}"
    if ecc.isdigit() and int(ecc) > 0:
        yield f"{ecc} uncorrectable ECC errors since the driver was loaded"
    if one.gpu.mig_pending:
        yield f"MIG mode is {one.gpu.mig}, {one.gpu.mig_pending} is pending: it needs a reset"
    if one.driver_model:
        yield f"driver model {one.driver_model}: a table of Windows, without device files"


def _error_readings(row: _Row) -> Iterator[str]:
    """ERR!, and Unknown Error in the newer tables."""
    second = row.cells[1] if len(row.cells) > 1 else []
    words = (second[0] if second else "").replace("Unknown Error", "ERR!").split()
    for place, word in enumerate(words[:4]):
        if word.startswith("ERR!"):
            yield _READINGS[place]
    for place, what in ((1, "memory usage"), (2, "utilization")):
        if len(second) > place and second[place].split()[:1] in (["ERR!"], ["Unknown"]):
            yield what
    first, third = row.cells[0], row.cells[2] if len(row.cells) > 2 else []
    if len(first) > 2 and "ERR!" in first[2]:
        yield "count of ECC errors"
    if first[0].rstrip().endswith("ERR!"):
        yield "persistence mode"
    if len(third) > 2 and "ERR!" in third[2]:
        yield "MIG mode"


def _with_migs(shown: Sequence[Shown], table: _Table) -> tuple[list[Shown], list[str]]:
    found = {one.gpu.index: one for one in shown}
    stray = []
    for number, cells in table.migs:
        match = _MIG_ROW.match(cells[0])
        if not match:
            continue
        one = found.get(int(match[1]))
        if one is None:
            stray.append(f"GPU {match[1]}, whose MIG device is in line {number}")
            continue
        usage = _USAGE.match(cells[1]) if len(cells) > 1 else None
        sm = maybe_integer((cells[2].split() or [""])[0]) if len(cells) > 2 else None
        device = MigDevice(int(match[4]), gpu_instance=int(match[2]), compute_instance=int(match[3]),
                           memory_mib=leading_int(usage[2]) if usage else None)
        found[one.gpu.index] = replace(
            one, gpu=replace(one.gpu, mig_devices=(*one.gpu.mig_devices, device)), sm=(*one.sm, sm))
    return [found[one.gpu.index] for one in shown], stray

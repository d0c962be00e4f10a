"""`nvidia-smi --query-gpu=… --format=csv`: with a header, with the command above it, or by the form of the values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, leading_float, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading, each_read
from hpcadmin.facts._smi import Shown, Smi
from hpcadmin.facts._smi_columns import ERROR, KNOWN, NOTHING
from hpcadmin.facts._smi_columns import shown as columns_shown

FORMS = ("text",)
KIND = "nvidia-smi --query-gpu"

_HEADER_CELL = re.compile(r"([a-z][A-Za-z0-9_]{0,40}(?:\.[A-Za-z0-9_]{1,40}){0,6})(?: \[([A-Za-z/%]{1,10})\])?\Z")
_COMMAND = re.compile(r"nvidia-smi\b.{0,200}--query-gpu=['\"]?([a-zA-Z0-9_.,]{1,20000})")
_ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_serial": "serial", "gpu_bus_id": "pci.bus_id",
            "gpu_index": "index", "bus_id": "pci.bus_id", "minor_number": "minor", "pstate": "pstate"}
# One of these makes a line of names a header of --query-gpu.
_STRONG = frozenset({"name", "uuid", "index", "pci.bus_id", "driver_version", "memory.total", "memory.used",
                     "memory.free", "utilization.gpu", "temperature.gpu", "power.draw", "power.limit", "compute_cap",
                     "ecc.mode.current", "mig.mode.current", "persistence_mode", "serial", "vbios_version"})
# Headers without one of these may be of another tool: then the values must show that they are of GPUs.
_OWN = frozenset({"uuid", "driver_version", "compute_cap", "vbios_version", "persistence_mode", "compute_mode"})
# Of processes or memory pages, not of GPUs.
_OTHER = frozenset({"pid", "process_name", "used_memory", "used_gpu_memory", "retired_pages.address",
                    "retired_pages.cause"})
_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_NAME = re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce|GRID|TITAN) ?[A-Za-z0-9 ()./+-]{1,80}\Z")
_DRIVER = re.compile(r"[0-9]{3}\.[0-9]{2,3}(?:\.[0-9]{2})?\Z")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]\Z")
_MIB = re.compile(r"[0-9]{1,9} MiB\Z")
_SIZE = re.compile(r"\b([0-9]{1,4}) ?GB\b", re.IGNORECASE)
MAX_ROWS = 100_000
MAX_LINE = 20_000                   # all 240 columns of a new driver's --query-gpu


@dataclass
class _Table:
    """columns: () where nothing tells them; then they are read by form."""

    first: int
    last: int
    columns: tuple[str, ...]
    units: tuple[str, ...] = ()
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    header: bool = False
    cut: int | None = None           # the line of a row that is not whole
    loose: bool = False              # nothing but the values shows that it is nvidia-smi's
    other: bool = False              # of processes: skipped


def opens(line: str) -> bool:
    """Whether a table may begin with the line."""
    text = _smi.unquoted((line,))[0]
    value = text.strip()
    first, comma, _ = value.partition(",")
    if comma:
        begins = _value(clean(first, 120)) or _HEADER_CELL.match(first.strip()) or "--query-gpu" in text
        return bool(begins and (_start(text, 1) or _bare(text, 1)))
    return bool(_NAME.match(value) or _UUID.match(value) or _start(text, 1))


def read(document: Document) -> tuple[Reading, ...]:
    lines = _smi.unquoted(document.lines)
    return each_read(document.name, tables(lines), lambda table: _reading(lines, table))


def cells(line: str) -> list[str]:
    return [clean(cell, 120) for cell in line.split(",")]


# --- finding it ----------------------------------------------------------------------------------------------------


def tables(lines: Sequence[str]) -> Iterator[_Table]:
    """In the order of the text; those of processes and the like are left out."""
    found = [table for table in _tables(lines) if table.rows and not table.other and _shows(table)]
    yield from found
    if not found:
        column = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
        for name, pattern in (("name", _NAME), ("uuid", _UUID)):
            if column and all(pattern.match(value) for _, value in column):
                yield _Table(column[0][0], column[-1][0], (name,), rows=[(n, [clean(v)]) for n, v in column])


def _tables(lines: Sequence[str]) -> Iterator[_Table]:
    table: _Table | None = None
    blank = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            blank += 1
            continue
        started = _start(line, number)
        if started or table is None or not _take(table, line, number, blank):
            if table:
                yield table
            table = started or _bare(line, number)
        blank = 0
    if table:
        yield table


def _shows(table: _Table) -> bool:
    """Whether rows of bare numbers are known by the errors among them."""
    return bool(table.columns or not table.loose
                or any(cell.startswith("[") and ERROR.match(cell) for _, row in table.rows for cell in row))


def _start(line: str, number: int) -> _Table | None:
    """A header, or a command that says which columns follow."""
    if "--query-gpu" in line:
        command = _COMMAND.search(line[:MAX_LINE])
        if not command:
            return None
        columns = tuple(_ALIASES.get(name, name) for name in command[1].strip(",").split(","))
        return _Table(number, number, columns if "noheader" in line else ())
    if not line or len(line) > MAX_LINE:
        return None
    matches = [_HEADER_CELL.match(cell.strip()) for cell in line.split(",")]
    if not all(matches):
        return None
    columns = tuple(_ALIASES.get(match[1], match[1]) for match in matches if match)
    units = tuple(match[2] or "" for match in matches if match)
    own = bool(_OWN & set(columns)) or any("." in name and name in KNOWN | _STRONG for name in columns)
    other = bool(_OTHER & set(columns))
    if not other and not own and not _STRONG & set(columns):
        return None
    return _Table(number, number, columns, units, header=True, loose=not own or len(columns) == 1, other=other)


def _take(table: _Table, line: str, number: int, blank: int) -> bool:
    """False: the line is no row of the table."""
    row = cells(line)
    if not table.columns:                # a command with a header to come, or a table without any
        if not table.rows or len(row) != len(table.rows[0][1]) or blank > 1:
            return False
    elif len(row) != len(table.columns):
        if table.rows and 1 < len(row) < len(table.columns) and row[0] and not blank and _fits(table, row[:-1]):
            table.cut = number
            table.last = number
        return False
    elif blank > 2 or (not table.other and not _fits(table, row, apart=blank > 0)):
        return False
    if len(table.rows) >= MAX_ROWS:
        raise ParseError(f"more than {MAX_ROWS} rows", where=None)
    table.rows.append((number, row))
    table.last = number
    return True


def _fits(table: _Table, row: Sequence[str], *, apart: bool = False) -> bool:
    """Whether the values may stand in their columns: a line of prose does not."""
    for name, value in zip(table.columns, row, strict=False):
        if value in NOTHING or ERROR.match(value):
            continue
        if table.loose and not (_NAME.match(value) if name == "name" else _specific(value)):
            return False
        if (name == "index" and not value.isdigit()) or (name == "uuid" and not value.startswith(("GPU-", "MIG-"))):
            return False
        if name == "pci.bus_id" and not pci_address(value):
            return False
        if (name == "driver_version" and not _DRIVER.match(value)) or (
                apart and name == "name" and not _NAME.match(value)):
            return False
        if name.startswith(("memory.", "power.", "temperature.", "utilization.")) and leading_float(value) is None \
                and name != "power.management":
            return False
    return True


def _bare(line: str, number: int) -> _Table | None:
    """A row without any header: only with something that nothing else prints so."""
    row = cells(line)
    if len(row) < 2 or len(line) > 2000 or ":" in row[0][:3]:
        return None
    if not all(map(_value, row)):
        return None
    strong = any(_UUID.match(cell) or _is_bus(cell) or _NAME.match(cell) for cell in row)
    if (strong and sum(map(_specific, row)) > 1) or any(cell.startswith("[") and ERROR.match(cell) for cell in row):
        return _Table(number, number, (), rows=[(number, row)])
    # Numbers alone are nobody's, unless an error of nvidia-smi stands among them.
    return _Table(number, number, (), rows=[(number, row)], loose=True) if all(map(_plain, row)) else None


def _is_bus(cell: str) -> bool:
    return len(cell) >= 12 and bool(pci_address(cell))


def _plain(cell: str) -> bool:
    return bool(re.match(r"[0-9]{1,9}(?:\.[0-9]{1,4})?(?: (?:MiB|%|W|MHz|C))?\Z", cell))


def _specific(cell: str) -> bool:
    """What hardly anything else prints so."""
    return bool(_plain(cell) or _UUID.match(cell) or _is_bus(cell) or _NAME.match(cell) or _DRIVER.match(cell)
                or ERROR.match(cell) or cell == "[N/A]" or re.match(r"P[0-9]{1,2}\Z", cell))


def _value(cell: str) -> bool:
    """What --query-gpu may print in a cell."""
    return bool(cell in NOTHING or _specific(cell) or re.match(r"[A-Za-z0-9_.:/ -]{1,40}\Z", cell))


# --- what it says --------------------------------------------------------------------------------------------------


def _reading(lines: Sequence[str], table: _Table) -> Reading:
    complaints = _smi.near(lines, table.first, table.last)
    lost = tuple(said.lost for said in complaints if said.lost)
    columns, unsure = (table.columns, "") if table.columns else _by_form(table)
    if not columns:
        return _unreadable(table)
    told = [Finding(unsure, table.first, note=True)] if unsure else []
    shown = [columns_shown(dict(zip(columns, row, strict=True)), dict(zip(columns, table.units, strict=False)), number)
             for number, row in table.rows]
    shown, missing = _one_each(shown)
    errors = _error_cells(table, columns)
    told += [Finding(error, table.first) for error in errors]
    if table.cut:
        missing.append(f"the row of line {table.cut} is cut off")
    missing += [f"{len(errors)} readings are errors, not values"] if errors else []
    attached = _attached(table, columns)
    missing += _smi.too_few(attached, shown, lost) if attached is not None and shown and shown[0].gpu.pci else []
    count = None if missing else len(shown)
    if attached is not None and count not in (None, attached):
        missing.append(f"count is {attached}, {len(shown)} shown")
    drivers = {one.driver for one in shown if one.driver}
    smi = Smi(drivers.pop() if len(drivers) == 1 else "", attached, tuple(shown), lost, whole=not missing)
    return _smi.reading(KIND, smi, table.first, table.last, complaints=complaints, missing=missing, count=count,
                        extra={"header": table.header, "columns": list(columns)}, told=told, errors=errors)


def _unreadable(table: _Table) -> Reading:
    """Rows whose columns nobody can tell."""
    raw = [[None if cell in NOTHING or ERROR.match(cell) else maybe_integer(cell) if maybe_integer(cell) is not None
            else cell for cell in row] for _, row in table.rows[:200]]
    errors = _error_cells(table, ())
    told = [Finding("there is no header: the meaning of the columns is unknown", table.first),
            *(Finding(error, table.first) for error in errors)]
    missing = ("the header: the meaning of the columns is unknown",)
    why = f"{missing[0]}, and so is whether the rows are GPUs or samples of one"
    return Reading(KIND, table.first, table.last, None,
                   {"header": table.header, "gpu_count": None, "gpus": None, "raw": raw, "errors": errors},
                   tuple(told), missing, why)


def _error_cells(table: _Table, columns: Sequence[str]) -> list[str]:
    """Errors in place of values: by row where all of it is one, else by column."""
    whole: dict[str, list[int]] = {}
    parts: list[str] = []
    for place, (_, row) in enumerate(table.rows, 1):
        bad = {n: cell for n, cell in enumerate(row) if ERROR.match(cell)}
        if bad and len(set(bad.values())) == 1 and len(bad) == len(row):
            whole.setdefault(next(iter(bad.values())), []).append(place)
        else:
            parts += [f"{cell} in {columns[n] if n < len(columns) else f'column {n + 1}'} of line {place}"
                      for n, cell in bad.items()]
    found: list[str] = []
    for text, rows in whole.items():
        which = f"line {rows[0]}" if len(rows) == 1 else (
            f"lines {', '.join(map(str, rows[:-1][:50]))} and {rows[-1]}")
        found.append(f"{text} in all fields of {which}")
    return [*found, *parts[:50]]


def _by_form(table: _Table) -> tuple[tuple[str, ...], str]:
    """Columns by what their values look like; () when nothing among them can name a GPU. Others are "?"."""
    rows = [row for _, row in table.rows]
    columns = []
    for place in range(len(rows[0])):
        values = [row[place] for row in rows if row[place] not in NOTHING and not ERROR.match(row[place])]
        columns.append(_form(values, rows, place) if values else "?")
    found = [name for name in columns if name != "?"]
    if len(set(found)) != len(found):    # two of one form: which is which cannot be told
        columns = [name if found.count(name) == 1 else "?" for name in columns]
    if not {"uuid", "pci.bus_id", "name"} & set(columns):
        return (), ""
    named = tuple(name if name != "?" else f"?{place}" for place, name in enumerate(columns))
    return named, "there is no header: columns are told by the form of their values, the others are unknown"


def _form(values: Sequence[str], rows: Sequence[Sequence[str]], place: int) -> str:
    for name, pattern in (("uuid", _UUID), ("driver_version", _DRIVER), ("name", _NAME)):
        if all(map(pattern.match, values)):
            return name
    if all(map(_is_bus, values)):
        return "pci.bus_id"
    if place == 0 and all(value.isdigit() and len(value) < 4 for value in values) and len(values) == len(rows):
        return "index" if sorted(set(map(int, values))) == list(map(int, values)) else "?"
    if all(map(_CAPABILITY.match, values)) and any(map(_DRIVER.match, rows[0])):
        return "compute_cap"
    if all(map(_MIB.match, values)) and len(values) == len(rows) and len(set(values)) == 1:
        return "memory.total" if all(_is_size(row, values[0]) for row in rows) else "?"
    return "?"


def _is_size(row: Sequence[str], memory: str) -> bool:
    """Whether it is what the GPU's own name says: 81920 MiB for "NVIDIA A100-SXM4-80GB"."""
    size = next((match for cell in row if _NAME.match(cell) and (match := _SIZE.search(cell))), None)
    return size is not None and 0.93 <= int(memory.split(maxsplit=1)[0]) / (1024 * int(size[1])) <= 1.01


def _attached(table: _Table, columns: Sequence[str]) -> int | None:
    if "count" not in columns:
        return None
    told = {row[list(columns).index("count")] for _, row in table.rows}
    return maybe_integer(told.pop()) if len(told) == 1 else None


def _one_each(shown: Sequence[Shown]) -> tuple[list[Shown], list[str]]:
    """Of rows that repeat (nvidia-smi -l), one for each GPU; what is missing to tell GPUs from samples."""
    keys = (_by_pci, _by_uuid, _by_index)
    key = next((key for key in keys if all(key(one) not in ("", None) for one in shown)), None)
    if key is None:
        if len(shown) == 1:
            return list(shown), []
        return list(shown), ["an index, UUID or bus id: GPUs and samples of one cannot be told apart"]
    found: dict[Any, Shown] = {}
    for one in shown:
        found.setdefault(key(one), one)
    return list(found.values()), []


def _by_pci(one: Shown) -> object:
    return one.gpu.pci


def _by_uuid(one: Shown) -> object:
    return one.gpu.uuid


def _by_index(one: Shown) -> object:
    return one.gpu.index

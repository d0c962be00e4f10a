"""Reads what nvidia-smi prints for people: the text of `-q` and the table of plain `nvidia-smi`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcadmin.check import ParseError
from hpcadmin.checklib import integer, strip_terminal
from hpcadmin.checklib.nvidia import MAX_BYTES, Answer, Gpu, checked, flat, same_pci
from hpcadmin.checklib.nvidia_places import SKIPPED
from hpcadmin.text import printable

_LOG = re.compile(r"=+NVSMI LOG=+\Z")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\Z")
_NAME = re.compile(r"[^a-z0-9]+")
_VERSIONS = re.compile(r"\| NVIDIA-SMI [\d.]{1,20} {1,40}(?:Driver|KMD) Version: ([\d.]{1,20}) ")
_FIRST = re.compile(r"(\d{1,3}) {1,4}(\S.{0,60}?) {1,30}(On|Off|N/A|ERR!)\Z")
_PLACE = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]) {1,10}(?:On|Off|N/A|ERR!)\Z")
_SECOND = re.compile(r"(\S{1,6}) {1,10}(\S{1,6}) {1,10}(P\d{1,2}|N/A|ERR!|Unknown) {1,20}(\S{1,8}) */ *(\S{1,8})\Z")


def is_log(text: str) -> bool:
    return "NVSMI LOG" in text


def is_table(text: str) -> bool:
    return bool(_VERSIONS.search(text))


def read_log(text: str) -> Answer:
    """The one answer of `nvidia-smi -q`. ParseError when it is cut, doubled or contradicts itself."""
    lines = [line.rstrip() for line in strip_terminal(text[:MAX_BYTES]).split("\n")]
    heads = [n for n, line in enumerate(lines) if _LOG.match(line.strip())]
    if len(heads) != 1:
        raise ParseError(f"{len(heads)} logs of nvidia-smi -q where 1 must be")
    indent = len(lines[heads[0]]) - len(lines[heads[0]].lstrip())
    lines = [line[indent:] if not line[:indent].strip() else line for line in lines[heads[0] + 1:]]
    starts = [n for n, line in enumerate(lines) if _GPU.match(line)]
    top = dict(_rows(lines[:starts[0] if starts else len(lines)]))
    for name in ("driver_version", "attached_gpus"):
        if not top.get(name):
            raise ParseError(f"the answer has no {name}")
    gpus = []
    for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        match = _GPU.match(lines[begin])
        assert match  # noqa: S101
        body = lines[begin + 1:end]
        if not any(line.startswith("    Processes") for line in body):
            raise ParseError(f"what is told of {lines[begin]} ends within: {printable(body[-1] if body else '')!r}")
        gpus.append(Gpu(same_pci(match[1]), flat(_rows(body))))
    return checked(top["driver_version"], integer(top["attached_gpus"], "Attached GPUs", most=1024), tuple(gpus))


def _rows(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(place, value) of the lines; the depth of a line says below what it stands."""
    above: list[tuple[int, str]] = []
    for line in lines:
        label, colon, value = line.partition(" : ")
        label, depth = label.strip(), len(line) - len(line.lstrip())
        if not label:
            continue
        while above and above[-1][0] >= depth:
            above.pop()
        above.append((depth, _NAME.sub("_", label.rstrip(": ").lower()).strip("_")))
        if above[0][1] not in SKIPPED and colon and len(above) < 12:
            yield "/".join(name for _, name in above), printable(value.strip(), limit=120)


def read_table(text: str) -> Answer:
    """The one table of nvidia-smi. It tells little, and nothing that is missing in it can be known from it."""
    lines = [line.strip() for line in strip_terminal(text[:MAX_BYTES]).split("\n")]
    heads = [m for m in map(_VERSIONS.match, lines) if m]
    if len(heads) != 1:
        raise ParseError(f"{len(heads)} tables of nvidia-smi where 1 must be")
    gpus: list[Gpu] = []
    problems: list[str] = []
    closed = rows = seconds = 0
    indices: list[int] = []
    for n, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| Processes:"):
            closed += 1
        seconds += not closed and len(cells) == 3 and bool(_SECOND.match(cells[0]))
        if closed or len(cells) != 3 or not re.match(r"\d+ +\S", cells[0]):
            continue
        rows += 1
        indices.append(int(cells[0].split()[0][:6]))
        below = [cell.strip() for cell in lines[n + 1].strip("|").split("|")] if n + 1 < len(lines) else []
        gpu = _of_row(cells, below)
        if gpu is None:
            problems.append(f"a row that cannot be read: {printable(line, limit=120)}")
        else:
            gpus.append(gpu)
        problems += [f"the tool could not tell: {printable(row, limit=120)}" for row in (line, *lines[n + 1:n + 2])
                     if "ERR!" in row or "Unknown" in row]
    if closed != 1:
        problems.append("the table has no list of processes at its end: it may be cut")
    if seconds != rows:
        problems.append(f"{rows} GPUs have {seconds} second lines")
    if indices != list(range(rows)):
        problems.append(f"the table has GPUs {', '.join(map(str, indices[:32]))}: others are missing")
    if not rows:
        problems.append("the table has no GPU")
    if len({gpu.pci for gpu in gpus}) != len(gpus):
        raise ParseError("two GPUs have one PCI address")
    return Answer(heads[0][1], len(gpus), tuple(gpus), tuple(problems))


def _of_row(cells: Sequence[str], below: Sequence[str]) -> Gpu | None:
    first, place = _FIRST.match(cells[0]), _PLACE.match(cells[1])
    second = _SECOND.match(below[0]) if len(below) == 3 else None
    if not first or not place or not second:
        return None
    ecc = cells[2]
    told = {"product_name": first[2], "persistence_mode": {"On": "Enabled", "Off": "Disabled"}.get(first[3], first[3]),
            "performance_state": second[3], "ecc_mode/current_ecc":
            "Disabled" if ecc == "Off" else ecc if ecc == "N/A" else "Enabled"}
    if ecc not in ("Off", "N/A"):
        told["ecc_errors/volatile/uncorrectable"] = ecc
    for name, value, unit in (("temperature/gpu_temp", second[2], "C"), ("power_readings/power_draw", second[4], "W"),
                              ("power_readings/power_limit", second[5], "W")):
        told[name] = f"{value.removesuffix(unit)} {unit}" if value.endswith(unit) else value
    return Gpu(same_pci(place[1]), told)

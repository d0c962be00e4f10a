"""/proc/cpuinfo as text: the model, and on x86 the counts. The numbering of cores by hwloc is not in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin.facts._base import MAX_CPU, clean, maybe_integer
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.model import Cpu
from hpcadmin.text import fold_ids

FORMS = ("text",)
MARKS = ("processor",)
KIND = "/proc/cpuinfo"
_PROCESSOR = re.compile(r"processor\s{0,20}: ?([0-9]{1,5})\s*\Z")
_TELLING = frozenset({"physical id", "core id", "cpu cores", "siblings", "bogomips", "features", "flags", "cpu",
                      "cpu implementer", "model name", "vendor_id", "isa", "clock"})


@dataclass(frozen=True)
class Cpuinfo:
    cpus: tuple[int, ...]
    model: str = ""
    machine: str = ""                # POWER: "PowerNV 8335-GTW"
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def cpu(self) -> Cpu:
        return Cpu(model=self.model, sockets=self.sockets, cores_per_socket=self.cores_per_socket,
                   threads_per_core=self.threads_per_core)


@dataclass
class _Found:
    first: int
    last: int
    processors: list[dict[str, str]]
    rest: dict[str, str]


def read(document: Document) -> tuple[Reading, ...]:
    return tuple(_reading(found) for found in _blocks(document.lines))


def of_text(text: str) -> Cpuinfo | None:
    """For the file itself (in a dump of /proc); None when it names no processor."""
    found = _blocks(text.split("\n"))
    return _value(found[0]) if found else None


def _blocks(lines: Sequence[str]) -> list[_Found]:
    found: list[_Found] = []
    current: _Found | None = None
    for number, raw in enumerate(lines, 1):
        line = raw.strip(" \t>|`")
        match = _PROCESSOR.match(line)
        if match:
            own = {"processor": match[1]}
            repeated = current is not None and any(each["processor"] == match[1] for each in current.processors[:1])
            if current is None or repeated or number - current.last > 4:
                current = _Found(number, number, [], {})
                found.append(current)
            current.processors.append(own)
            current.last = number
        elif current is not None and number - current.last <= 2 and ":" in line and len(line) < 20_000:
            key, _, value = line.partition(":")
            name = key.strip().lower()
            current.last = number
            if name in ("platform", "machine", "hardware", "model", "timebase") and name not in current.rest \
                    and not raw.startswith("model\t"):
                current.rest[name] = value.strip()
            current.processors[-1].setdefault(name, value.strip())
    return [each for each in found
            if len(each.processors) <= MAX_CPU and _TELLING & {key for cpu in each.processors[:1] for key in cpu}]


def _value(found: _Found) -> Cpuinfo:
    ids = tuple(sorted({int(cpu["processor"]) for cpu in found.processors}))
    first = found.processors[0]
    model = clean(first.get("model name") or first.get("cpu") or "")
    base = Cpuinfo(ids, model, clean(found.rest.get("machine", "")))
    names = ("physical id", "core id", "cpu cores", "siblings")
    if not all(name in cpu for cpu in found.processors[:-1] or found.processors for name in names):
        return base                      # Arm, POWER and others tell no topology here
    sockets: dict[int, dict[int, int]] = {}
    problems, missing = [], []
    for cpu in found.processors:
        package, core = (maybe_integer(cpu.get(name)) for name in names[:2])
        if package is None or core is None:
            missing.append(f"the topology of CPU {cpu['processor']} is cut off")
            continue
        cores = sockets.setdefault(package, {})
        cores[core] = cores.get(core, 0) + 1
    stated = {maybe_integer(cpu.get("siblings")) for cpu in found.processors} - {None}
    seen = {sum(cores.values()) for cores in sockets.values()}
    counted = {maybe_integer(cpu.get("cpu cores")) for cpu in found.processors} - {None}
    if seen != stated and len(stated) == 1:
        missing.append(f"{len(ids)} processors are here, each socket should have {stated.pop()}: "
                       "cut off, or CPUs offline")
    per_socket = {len(cores) for cores in sockets.values()}
    threads = {count for cores in sockets.values() for count in cores.values()}
    if len(per_socket) > 1 or len(threads) > 1:
        problems.append("sockets or cores are uneven")
    elif per_socket != counted and not missing:
        problems.append(f"contradictory: {per_socket.pop()} cores a socket by their ids, 'cpu cores' says "
                        f"{', '.join(map(str, sorted(count for count in counted if count is not None)))}")
        per_socket = set()
    sure = not missing
    return Cpuinfo(
        ids, model, base.machine, len(sockets) if sure else None,
        per_socket.pop() if sure and len(per_socket) == 1 else None,
        threads.pop() if sure and len(threads) == 1 and per_socket is not None else None,
        tuple(problems), tuple(missing))


def _reading(found: _Found) -> Reading:
    value = _value(found)
    gaps = set(range(max(value.cpus))) - set(value.cpus)
    findings = [Finding(what, found.first) for what in value.problems]
    if gaps:
        findings.append(Finding(f"CPUs {fold_ids(gaps)} are not there: offline, or left out", found.first))
    missing = list(value.missing)
    if value.sockets is None and not missing:
        missing.append("sockets, cores and threads are not told here")
    known: dict[str, Any] = {
        "cpus": len(value.cpus), "online": fold_ids(value.cpus), "model": value.model or None,
        "sockets": value.sockets, "cores_per_socket": value.cores_per_socket,
        "threads_per_core": value.threads_per_core, "numa_nodes": None,
    }
    return Reading(KIND, found.first, found.last, value=value, known=known, findings=tuple(findings),
                   missing=tuple(missing))

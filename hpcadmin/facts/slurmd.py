"""`slurmd -C`: the node as Slurm itself would describe it, and slurmd's version."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, maybe_integer
from hpcadmin.facts._reading import Document, Finding, Reading

NAME = "slurmd"
ORDER = 70
COMMAND = r"""
command -v slurmd >/dev/null 2>&1 || return 127
limit 20 slurmd -V
limit 20 slurmd -C
"""
FORMS = ("text",)
MARKS = ("NodeName=",)
KIND = "slurmd -C"
_VERSION = re.compile(r"slurm(?:-wlm)? ([0-9][0-9A-Za-z.~+-]{0,40})\Z")
_WORD = re.compile(r"([A-Za-z]{2,24})=(\S{0,2000})")
# What slurmd -C prints, and no more: a NodeName= line of a slurm.conf has State= or other keys beside these.
_KEYS = frozenset({"ClusterName", "NodeName", "CPUs", "Procs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket",
                   "ThreadsPerCore", "RealMemory", "TmpDisk", "Gres", "Parameters"})
_NEEDED = frozenset({"NodeName", "CPUs", "CoresPerSocket", "ThreadsPerCore"})
_CONF = re.compile(r"\s{0,40}(?:SlurmctldHost|ControlMachine|PartitionName|SelectType|ClusterName=\S{1,64}\s*\Z)")
# What slurmd says beside its line when SlurmdParameters asks for it.
_VIRTUAL = re.compile(r"Considering each (?:NUMA node|L3 ?cache) as a socket", re.IGNORECASE)
_FOUND = re.compile(r"Found \S{1,200} with Autodetect=\S{1,40}")


@dataclass(frozen=True)
class Slurmd:
    version: str = ""
    line: str = ""                   # NodeName=… as printed; "" when slurmd -C failed
    cpus: int | None = None
    sockets: int | None = None       # boards times sockets a board
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory_mib: int | None = None
    virtual: bool = False            # its sockets are NUMA nodes or L3 caches


def parse(text: str) -> Slurmd:
    version = line = ""
    for raw in lines_of(text, "slurmd"):
        stripped = raw.strip()
        match = _VERSION.match(stripped)
        if match and not version:
            version = match[1]
        elif stripped.startswith("NodeName=") and not line:
            line = clean(stripped, 2000)
    if not version and not line:
        raise ParseError("neither a version nor a NodeName= line")
    return _value(version, line)


def _value(version: str, line: str) -> Slurmd:
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    boards = maybe_integer(words.get("Boards", "1"))
    per_board = maybe_integer(words.get("SocketsPerBoard", words.get("Sockets")))
    return Slurmd(
        version=version, line=line, cpus=maybe_integer(words.get("CPUs")),
        sockets=boards * per_board if boards is not None and per_board is not None else None,
        cores_per_socket=maybe_integer(words.get("CoresPerSocket")),
        threads_per_core=maybe_integer(words.get("ThreadsPerCore")), memory_mib=maybe_integer(words.get("RealMemory")),
        virtual="as_socket" in words.get("Parameters", ""),
    )


# --- texts that people have ----------------------------------------------------------------------------------------


def read(document: Document) -> tuple[Reading, ...]:
    """One reading a node. The lines of a slurm.conf look alike and are none of slurmd's."""
    lines = document.lines
    if not any("NodeName=" in line for line in lines) or any(map(_CONF.match, lines)):
        return ()
    found, version = [], ""
    for number, raw in enumerate(lines, 1):
        line = raw.strip(" \t>|`")
        match = _VERSION.match(line)
        if match:
            version = match[1]
        start = line.find("NodeName=")
        if start < 0 or len(line) > 8000 or "#" in line[:start]:
            continue
        text, last = _whole(lines, number, line[start:])
        words = _words(text)
        configured = "Gres" in words and "SocketsPerBoard" not in words
        mine = words.keys() >= _NEEDED and words.keys() <= _KEYS and not configured
        if mine and text.split()[0].startswith("NodeName="):
            found_gpus = tuple(
                Finding(f"slurmd found {clean(own[0])[6:]}", line + 1, note=True)
                for line in range(number, min(len(lines), number + 12)) if (own := _FOUND.search(lines[line])))
            said = next((clean(own) for own in lines[max(0, number - 4): last + 3] if _VIRTUAL.search(own)), "")
            found.append(_reading(text, version, (number, last), found_gpus, said))
    return tuple(found)


def _whole(lines: tuple[str, ...], number: int, text: str) -> tuple[str, int]:
    """The line, with what a narrow terminal wrapped of it."""
    last = number
    while last < min(len(lines), number + 4):
        more = lines[last].strip(" \t>|`")
        first = more.split("=", 1)[0]
        if "=" not in more or first not in _KEYS or first in ("NodeName", "ClusterName"):
            break
        text, last = f"{text} {more}", last + 1
    return text, last


def _words(text: str) -> dict[str, str]:
    return dict(_WORD.findall(text))


def _reading(text: str, version: str, place: tuple[int, int], further: tuple[Finding, ...],
             said: str) -> Reading:
    value, words, number = _value(version, clean(text, 2000)), _words(text), place[0]
    findings = list(further)
    missing = [f"{name} is missing: cut off" for name, own in (
        ("CPUs", value.cpus), ("SocketsPerBoard", value.sockets), ("CoresPerSocket", value.cores_per_socket),
        ("ThreadsPerCore", value.threads_per_core), ("RealMemory", value.memory_mib)) if own is None]
    cores = value.cores_per_socket
    if value.cpus is not None and value.sockets and cores and value.threads_per_core:
        total = value.sockets * cores * value.threads_per_core
        if total != value.cpus:
            findings.append(Finding(
                f"contradictory: {value.sockets} sockets x {cores} cores x {value.threads_per_core} threads are "
                f"{total}, not CPUs={value.cpus}: sockets or cores are uneven (CPUs offline, or a cpuset)", number))
            cores = None
            value = replace(value, cores_per_socket=None)
    boards = maybe_integer(words.get("Boards", "1"))
    if boards is not None and boards > 1:
        findings.append(Finding(f"Boards={boards}: hwloc's groups; {value.sockets} sockets in all", number, note=True))
    if said or value.virtual:
        value = replace(value, virtual=True)
        findings.append(Finding(f"sockets are not packages here: {said or clean(words['Parameters'])}", number))
    known: dict[str, Any] = {
        "node": words["NodeName"], "cpus": value.cpus, "boards": boards, "sockets": value.sockets,
        "cores_per_socket": cores, "threads_per_core": value.threads_per_core, "real_memory": value.memory_mib,
    }
    more = (("gres", "Gres"), ("parameters", "Parameters"))
    known |= {key: clean(words[name]) for key, name in more if name in words}
    if version:
        known["slurm_version"] = version
    return Reading(KIND, *place, value=value, known=known, findings=tuple(findings), missing=tuple(missing))

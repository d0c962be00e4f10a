"""`slurmd -C`: the node as Slurm itself would describe it, and slurmd's version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, maybe_integer

NAME = "slurmd"
ORDER = 70
COMMAND = r"""
command -v slurmd >/dev/null 2>&1 || return 127
limit 20 slurmd -V
limit 20 slurmd -C
"""
_VERSION = re.compile(r"slurm(?:-wlm)? ([0-9][0-9A-Za-z.~+-]{0,40})\Z")


@dataclass(frozen=True)
class Slurmd:
    version: str = ""
    line: str = ""                   # NodeName=… as printed; "" when slurmd -C failed
    cpus: int | None = None
    sockets: int | None = None       # boards times sockets a board
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory_mib: int | None = None


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
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    boards = maybe_integer(words.get("Boards", "1"))
    per_board = maybe_integer(words.get("SocketsPerBoard", words.get("Sockets")))
    return Slurmd(
        version=version, line=line, cpus=maybe_integer(words.get("CPUs")),
        sockets=boards * per_board if boards is not None and per_board is not None else None,
        cores_per_socket=maybe_integer(words.get("CoresPerSocket")),
        threads_per_core=maybe_integer(words.get("ThreadsPerCore")), memory_mib=maybe_integer(words.get("RealMemory")),
    )

"""Host name, kernel release and architecture from `uname`."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, quote

NAME = "kernel"
COMMAND = "uname -nrm"


@dataclass(frozen=True)
class Kernel:
    hostname: str
    release: str
    machine: str


def parse(text: str) -> Kernel:
    lines = lines_of(text, "uname")
    words = lines[0].split()
    if len(lines) != 1 or len(words) != 3:
        raise ParseError(f"{quote(text)} is not the output of uname -nrm")
    return Kernel(*(clean(word) for word in words))

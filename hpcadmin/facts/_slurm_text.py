"""Lines of Slurm's configuration files, and of commands that print or take the same form, as key and value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_WORD = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,40})=(\"[^\"]{0,4000}\"|[^\s\"]{0,4000})")
_LOG = re.compile(r"\s*(?:\[[0-9T:. -]{8,40}\]|[a-z]+d(?:-[\w.-]+)?:)\s")
_HEADING = re.compile(r"\s*#{2,}\s*(.{1,120})$")
MAX_JOINED = 200


@dataclass(frozen=True)
class Record:
    """A logical line: its keys in lower case, in the order of the text. heading: the last ### line above it."""

    line: int
    keys: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    heading: str = ""

    @property
    def first(self) -> str:
        return next(iter(self.keys), "")


def records(lines: Sequence[str]) -> Iterator[Record]:
    """Every logical line that has the form, continuations (a backslash at the end) joined."""
    heading = ""
    number = 0
    while number < len(lines):
        start, text = number, lines[number]
        number += 1
        found = _HEADING.match(text)
        if found:
            heading = found[1]
            continue
        while text.rstrip().endswith("\\") and number < len(lines) and number - start < MAX_JOINED:
            text = text.rstrip()[:-1] + " " + lines[number].strip()
            number += 1
        if _LOG.match(text):
            if "Gres Name=" not in text:
                continue                 # slurmd -G prints its GRES like log lines
            text = text[text.index("Gres Name="):]
        bare = text.split("#", 1)[0].strip()
        keys = {match[1].lower(): match[2].strip('"') for match in _WORD.finditer(bare)}
        if keys:
            yield Record(start + 1, keys, bare, heading)


def indented(lines: Sequence[str], at: int) -> dict[str, str]:
    """The keys of the indented lines that follow line `at` (1-based), as `scontrol show node` prints them."""
    found: dict[str, str] = {}
    for text in lines[at:at + 60]:
        if not text.startswith((" ", "\t")) or not text.strip():
            break
        for match in _WORD.finditer(text):
            found.setdefault(match[1].lower(), match[2])
    return found


def count(value: str | None) -> int | None:
    """A whole number of at most twelve digits."""
    return int(value) if value is not None and value.isdigit() and value.isascii() and len(value) <= 12 else None

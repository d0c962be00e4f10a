"""Lines of Slurm's configuration files, and of commands that print or take the same form, as key and value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_WORD = re.compile(r"(?<![\w-])([A-Za-z][A-Za-z0-9_]{0,40})=(\"[^\"]{0,4000}\"|[^\s\"]{0,4000})")
_LOG = re.compile(r"\s*(?:\[[0-9T:. -]{8,40}\]|[a-z]+d(?:-[\w.-]+)?:)\s")
_HEADING = re.compile(r"\s*#{2,}(?!#)\s*([^\s#].{0,119})$")
# A list's dash, a quote mark or a YAML bar before the line.
_OPENING = re.compile(r"\A(?:[-+>|*`\"']\s?){1,3}")
MAX_JOINED = 200


@dataclass(frozen=True)
class Record:
    """A logical line: its keys in lower case, in the order of the text. heading: the last ### line above it."""

    line: int
    keys: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    heading: str = ""
    section: int = 0                 # which heading, by number

    @property
    def first(self) -> str:
        return next(iter(self.keys), "")


def records(lines: Sequence[str]) -> Iterator[Record]:
    """Every logical line that has the form, continuations (a backslash at the end) joined."""
    heading, section = "", 0
    number = 0
    while number < len(lines):
        start, text = number, lines[number]
        number += 1
        found = _HEADING.match(text)
        if found:
            heading, section = found[1], section + 1
            continue
        parts = [_bare(text)]
        while parts[-1].endswith("\\") and number < len(lines) and number - start < MAX_JOINED:
            parts[-1] = parts[-1][:-1]
            parts.append(_bare(lines[number]))
            number += 1
        bare = " ".join(part.strip() for part in parts)
        if _LOG.match(text):
            if "Gres Name=" not in bare:
                continue                 # slurmd -G prints its GRES like log lines
            bare = bare[bare.index("Gres Name="):]
        keys = {match[1].lower(): match[2].strip('"') for match in _WORD.finditer(bare)} if "=" in bare else {}
        if keys:
            yield Record(start + 1, keys, _OPENING.sub("", bare), heading, section)


def _bare(line: str) -> str:
    """Without its comment, as Slurm takes it off before it looks for a backslash at the end."""
    return line.split("#", 1)[0].rstrip() if "#" in line else line.rstrip()


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

"""Lines of Slurm's configuration files, and of commands that print or take the same form, as key and value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.facts._slurm_paste import OPEN

_WORD = re.compile(r"(?<![\w-])([A-Za-z][A-Za-z0-9_]{0,40})=(\"[^\"]{0,4000}\"|[^\s\"]{0,4000})")
_LOG = re.compile(r"\s*(?:\[[0-9T:. -]{8,40}\]|[a-z]+d(?:-[\w.-]+)?:)\s")
_HEADING = re.compile(r"\s*#{2,}(?!#)\s*([^\s#].{0,119})$")
# A list's dash, a quote mark or a YAML bar before the line.
_OPENING = re.compile(r"\A(?:[-+>|*`\"']\s?){1,3}")
MAX_JOINED = 200
_DECORATION = re.compile(r"(?:`{1,3}|\*\*|\\?\")+\Z")
_NODE_ONLY = frozenset({
    "cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore", "realmemory",
    "tmpdisk", "gres", "feature", "features", "weight", "nodeaddr", "nodehostname", "memspeclimit", "corespeccount",
    "cpuspeclist", "state"})
# What can only go on with a line that a mail program has broken: no settings of their own have these names.
_GOES_ON = {
    "nodename": _NODE_ONLY,
    "partitionname": frozenset({
        "nodes", "default", "maxtime", "defaulttime", "state", "oversubscribe", "prioritytier", "priorityjobfactor",
        "qos", "allowqos", "allowaccounts", "hidden", "minnodes", "maxnodes", "lln", "rootonly"}),
    "name": frozenset({"file", "type", "cores", "cpus", "links", "flags", "count", "multiplefiles"})}
_FIRST = re.compile(r"\s{0,20}(?:[-+>|*`\"']\s?){0,3}([A-Za-z]{2,40})=")


@dataclass(frozen=True)
class Record:
    """A logical line: its keys in lower case, in the order of the text. heading: the last ### line above it."""

    line: int
    keys: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    heading: str = ""
    section: int = 0                 # which heading, by number
    piece: int = 0                   # the same with prose between lines counted as well
    open: bool = False               # a value is a template's

    @property
    def first(self) -> str:
        return next(iter(self.keys), "")


def records(lines: Sequence[str]) -> Iterator[Record]:
    """Every logical line that has the form, continuations (a backslash at the end) joined."""
    heading, section, prose = "", 0, 0
    number = 0
    while number < len(lines):
        start, text = number, lines[number]
        number += 1
        found = _HEADING.match(text)
        if found:
            heading, section = found[1], section + 1
            continue
        if "=" not in text:
            bare = text.strip()
            prose += bool(bare) and not bare.startswith("#") and bare[:8].lower() != "include "
            continue
        parts = [_bare(text)]
        while parts[-1].endswith("\\") and number < len(lines) and number - start < MAX_JOINED:
            parts[-1] = parts[-1][:-1]
            parts.append(_bare(lines[number]))
            number += 1
        while number < len(lines) and number - start < MAX_JOINED and _goes_on(parts[0], lines[number]):
            parts.append(_bare(lines[number]))
            number += 1
        yield from _record(" ".join(part.strip() for part in parts), text, start,
                           (heading, section, section + prose))


def _record(bare: str, text: str, start: int, where: tuple[str, int, int]) -> Iterator[Record]:
    if _LOG.match(text):
        if "Gres Name=" not in bare:
            return                       # slurmd -G prints its GRES like log lines
        bare = bare[bare.index("Gres Name="):]
    bare = _DECORATION.sub("", bare) if bare[-1:] in ("`", "*") else bare
    words = [(match[1].lower(), match[2].strip('"')) for match in _WORD.finditer(bare)] if "=" in bare else []
    keys = {key: _DECORATION.sub("", value) if value[-1:] in "`*\\" else value for key, value in words
            if OPEN not in value}
    if keys:
        yield Record(start + 1, keys, _OPENING.sub("", bare.lstrip()), *where, len(keys) < len(words))


def _goes_on(first: str, line: str) -> bool:
    """Whether the line can only be the rest of the one that begins with `first`."""
    opens, goes = _FIRST.match(first), _FIRST.match(line)
    if not opens or not goes or "Arch=" in first:
        return False
    kind = "name" if " Name=" in first else opens[1].lower()
    return goes[1].lower() in _GOES_ON.get(kind, ())


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
            found.setdefault(match[1].lower(), _DECORATION.sub("", match[2]))
    return found


def count(value: str | None) -> int | None:
    """A whole number of at most twelve digits."""
    return int(value) if value is not None and value.isdigit() and value.isascii() and len(value) <= 12 else None

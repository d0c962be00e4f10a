"""What configuration files are made of: entries with their reason and source, lines, problems, notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

DEFAULT = "hpcadmin default"
SHOWN = 80                      # characters of a Key=Value before its reason
MARK = "  # site.toml"          # ends a line that has something of the site's own


class Kind(Enum):
    """Why no file can be written."""

    SITE = "site"            # site.toml lacks or contradicts something
    FAULT = "fault"          # a node has less than it should, or contradicts itself
    UNKNOWN = "unknown"      # no source told what is needed


@dataclass(frozen=True)
class Problem:
    """One reason why no file can be written. key: the dotted key in site.toml that it is about."""

    kind: Kind
    what: str
    node: str = ""
    key: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Entry:
    """Key=Value with its reason and where the value comes from."""

    key: str
    value: str
    reason: str
    source: str = DEFAULT
    site_key: str = ""       # the dotted key in site.toml, where the value is the site's own


@dataclass(frozen=True)
class Line:
    """A line of a file. The entries are in the order in which they are written; raw: as it stands in a YAML file."""

    entries: tuple[Entry, ...]
    raw: str = ""

    @property
    def is_site(self) -> bool:
        return any(e.site_key for e in self.entries)

    @property
    def text(self) -> str:
        text = self.raw or " ".join(f"{e.key}={e.value}" for e in self.entries)
        return f"{text}{MARK}" if self.is_site else text

    @property
    def whys(self) -> tuple[Why, ...]:
        """Entries with the same reason and source are one."""
        parts: dict[tuple[str, str], list[str]] = {}
        for e in self.entries:
            parts.setdefault((e.reason, e.source), []).append(self.raw.strip() or f"{e.key}={e.value}")
        return tuple(Why(" ".join(names), reason, source) for (reason, source), names in parts.items() if reason)


@dataclass(frozen=True)
class Why:
    part: str                # the Key=Value words of the line that this is about
    reason: str
    source: str

    @property
    def short(self) -> str:
        """The part with long values cut (host lists of thousands), so that the reason can be read behind it."""
        return " ".join(word if len(word) <= SHOWN else f"{word[:SHOWN - 3]}..." for word in self.part.split(" "))


@dataclass(frozen=True)
class Explained:
    """A line where it stands in its file."""

    file: str
    line: int
    text: str
    whys: tuple[Why, ...]


@dataclass(frozen=True)
class Section:
    """Lines under one heading of a file."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Document:
    """One file. empty: what it says where it has no line. secret: only its owner may read it."""

    name: str
    sections: tuple[Section, ...]
    empty: str = ""
    secret: bool = False

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(item for section in self.sections for item in section.lines)


@dataclass(frozen=True)
class Rendering:
    """files is empty when there are problems. secret: the names of those that only their owner may read, and owner is
    the user whom they must belong to. version: what they are written for; None: 22.05 to 26.05."""

    files: Mapping[str, str]
    explained: tuple[Explained, ...]
    notes: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    secret: tuple[str, ...] = ()
    owner: str = ""
    version: tuple[int, int] | None = None


def line(key: str, value: str, reason: str, source: str = DEFAULT) -> Line:
    return Line((Entry(key, value, reason, source),))

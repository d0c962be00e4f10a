"""What one captured text says: the frame for everything that is read from files instead of from our own probe.

A document is a text that somebody has: pasted, mailed, kept. A fact's module that can read such texts has
`FORMS` and `read(document)`, which returns its readings: none when nothing of its kind is in there. What spares most
readers most texts: `MARKS`, pieces of text of which one at least is in some line of every text of its kind, and
`opens(line)`, which is true of some line of every text of its kind (each different line is looked at once).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from hpcadmin.errors import ParseError

FORMS = ("text", "xml", "json", "tree")


@dataclass(frozen=True)
class Document:
    """A text as it came, and cleaned: no ANSI codes, no CR, no byte order mark, prompts left in place.

    form: "text", "xml", "json", or "tree": an archive or folder of a node's /sys and /proc, by path without the
    leading slash. lines: cleaned, numbered as in the file: line n is lines[n-1].
    """

    name: str
    form: str = "text"
    lines: tuple[str, ...] = ()
    tree: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False                # larger than the limit: what follows is not here
    aside: bool = False              # stands beside an XML in the same file: it may be prose, and nobody's
    open_end: bool = False           # the last line has no line end, so that it may be a part of one

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @cached_property
    def distinct(self) -> tuple[str, ...]:
        """Each different line once: of `lspci -vvv` that is a tenth of them."""
        return tuple(dict.fromkeys(self.lines))


@dataclass(frozen=True)
class Finding:
    """A fault, contradiction or oddity that the text itself shows, in one line. note: worth knowing, no fault."""

    what: str
    line: int | None = None
    note: bool = False


@dataclass(frozen=True)
class Reading:
    """What one text, or a part of it, determines.

    kind: a name of the format, as "nvidia-smi topo -m". value: the tool's own record, which is joined into a node; None
    where it is not about a node. known: the same as plain values (dict, list, str, int, float, bool, None), for people
    and programs, only what the text determines. missing: parts that are cut off or not in the text. refused: why no
    configuration may be made from it. assumed: what would follow, each with the assumption it needs.
    """

    kind: str
    first: int = 1
    last: int = 1
    value: Any = None
    known: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    refused: str = ""
    assumed: tuple[Mapping[str, Any], ...] = ()


class HasFirst(Protocol):
    """A piece of a text: its first line."""

    @property
    def first(self) -> int: ...


P = TypeVar("P", bound=HasFirst)


def each_read(name: str, pieces: Iterable[P], read: Callable[[P], Reading]) -> tuple[Reading, ...]:
    """A reading of each; ParseError says in which line of the document called `name` the piece begins."""
    readings = []
    for piece in pieces:
        try:
            readings.append(read(piece))
        except ParseError as exc:
            raise ParseError(exc.what, where=f"{name}:{piece.first}") from exc
    return tuple(readings)

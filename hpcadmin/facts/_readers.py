"""Every reader there is, put to one document: what it says, and what nobody could read in it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import quote
from hpcadmin.facts._prefixes import has_prefix, without_prefixes
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.facts._seen import Seen

# What is a log itself is read with its times.
_LOGS = frozenset({"dmesg", "slurmd log"})
_XML = ("<?xml", "<topology", "<system ", "<graphs", "<nvidia_smi_log")


@dataclass(frozen=True)
class Reader:
    """A module of hpcadmin.facts that reads texts which people have."""

    name: str
    forms: tuple[str, ...]
    read: Callable[[Document], tuple[Reading, ...]]
    marks: tuple[str, ...] = ()      # a text that has none of these is not for it; (): it must look itself
    opens: Callable[[str], bool] | None = None      # nor is one of which this is true of no line

    def may_read(self, lines: Sequence[str], text: str) -> bool:
        """By the different lines of a document, and by these as a text."""
        if self.marks and not any(mark in text for mark in self.marks):
            return False
        return self.opens is None or any(map(self.opens, lines))


@dataclass(frozen=True)
class Outcome:
    """What was made of one document. errors: it is of that kind, and cannot be used."""

    readings: tuple[Reading, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def refused(self) -> str:
        """Why nothing may be configured from it; "" when something may."""
        reasons = [reading.refused for reading in self.readings if reading.refused]
        return "; ".join(dict.fromkeys([*self.errors, *reasons])) if reasons or self.errors else ""


@cache
def readers() -> tuple[Reader, ...]:
    """Found by listing this folder, in the order of their names."""
    found = []
    for info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"hpcadmin.facts.{info.name}")
            if hasattr(module, "FORMS"):
                found.append(Reader(info.name, tuple(module.FORMS), module.read,
                                    tuple(getattr(module, "MARKS", ())), getattr(module, "opens", None)))
    return tuple(found)


def says_something(line: str) -> bool:
    """Whether anybody looks for such a line: alone it leads to a reading, or to nothing."""
    return has_prefix(line) or any(
        any(mark in line for mark in reader.marks) or (reader.opens is not None and reader.opens(line))
        for reader in readers())


_seen = Seen(says_something)


def read_document(document: Document) -> Outcome:
    """All readings of the document, in the order of their lines. One that nobody can read has an error that names the
    first line there is."""
    readings, errors = _all(document)
    if document.form == "text" and (errors or not {reading.kind for reading in readings} & _LOGS):
        bare = _without_prefixes(document)
        told, problems = _all(bare) if bare else ([], [])
        if told and not problems:
            readings, errors = told, problems
    if not readings and not errors and not document.aside:
        errors.append(_unread(document))
    if document.cut:
        errors.append(f"{document.name}: larger than what is read of a file: its end is not here")
    return Outcome(tuple(sorted(readings, key=lambda reading: (reading.first, reading.last))), tuple(errors))


def _all(document: Document) -> tuple[list[Reading], list[str]]:
    readings: list[Reading] = []
    errors: list[str] = []
    lines = _seen.worth(document.distinct)
    text = "\n".join(lines)
    for reader in readers():
        if document.form not in reader.forms or (document.lines and not reader.may_read(lines, text)):
            continue                     # a tree of files has no lines
        try:
            readings += reader.read(document)
        except ParseError as exc:
            errors.append(str(exc) if exc.where else f"{document.name}: {exc}")
    return readings, errors


def _without_prefixes(document: Document) -> Document | None:
    """As it was before a log put times or ranks before its lines; None where none did."""
    lines = without_prefixes(document.lines) if any(map(has_prefix, _seen.worth(document.distinct))) else None
    if lines is None:
        return None
    start = next((number for number, line in enumerate(lines) if line.lstrip().startswith(_XML)), None)
    if start is not None:
        lines = [""] * start + lines[start:]
    first = next((line.lstrip() for line in lines if line.strip()), "")
    form = "xml" if start is not None else "json" if first.rstrip() in ("{", "[") else "text"
    return replace(document, form=form, lines=tuple(lines))


def _unread(document: Document) -> str:
    if document.form == "tree":
        return f"{document.name}: nothing of /sys or /proc that is known here"
    for number, line in enumerate(document.lines, 1):
        if line.startswith('{"schema"') and '"nodes"' in document.text:
            return f"{document.name}: an inventory of ours, not what it was made from (inventory show -f shows it)"
        if line.strip():
            return f"{document.name}:{number}: not the output of a tool that is known here: {quote(line)}"
    return f"{document.name}: is empty"

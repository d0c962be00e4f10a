"""Reads `nvidia-smi -q -x`, and what the tool says instead when a GPU or the driver does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hpcadmin.check import ParseError
from hpcadmin.checklib import integer, lines_of
from hpcadmin.checklib.nvidia_places import NEEDED, NOT_TOLD, PLACES, SKIPPED, UNCORRECTABLE
from hpcadmin.text import printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_BYTES = 16 * 1024 * 1024
_HANDLE = re.compile(r"Unable to determine the device handle for [Gg][Pp][Uu] ?(?:(\d{1,3}): ?)?"
                     r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]): ?(.{0,160})")
_BROKEN = ("no devices were found", "couldn't communicate with the nvidia driver", "failed to initialize nvml",
           "gpu is lost", "has fallen off the bus", "unknown error", "driver/library version mismatch",
           "unable to determine the device handle", "insufficient permissions", "gpu requires reset",
           "inforom is corrupted", "gpu access blocked by the operating system")
_PARENTS = {name: {"/".join(place.split("/")[:n]) for place in places for n in range(1, place.count("/") + 1)}
            for name, places in PLACES.items()}


@dataclass(frozen=True)
class Gpu:
    """One GPU as it describes itself. told: by place, all that stands there."""

    pci: str
    told: Mapping[str, str]

    def fact(self, name: str) -> str | None:
        """What is told of it; None where it is not told, "N/A" where the tool says so or has the section not."""
        try:
            return self._facts[name]
        except KeyError:
            return self._facts.setdefault(name, self._fact(name))

    @cached_property
    def _facts(self) -> dict[str, str | None]:
        """What was asked for once: everything is compared with all others of the node."""
        return {}

    def _fact(self, name: str) -> str | None:
        found = [self.told[place] for place in PLACES[name] if place in self.told]
        if found:
            return next((value for value in found if value not in NOT_TOLD), "N/A")
        return "N/A" if any(self.told[parent] in NOT_TOLD for parent in _PARENTS[name] if parent in self.told) else None

    @property
    def model(self) -> str:
        return self.fact("model") or ""

    @property
    def uuid(self) -> str:
        return self.fact("uuid") or ""

    @cached_property
    def counters(self) -> tuple[tuple[str, tuple[str, str], str], ...]:
        """("volatile" or "aggregate", what stands before and after that, the count) of uncorrectable errors."""
        found = ((UNCORRECTABLE.match(place), value) for place, value in self.told.items()
                 if place.startswith("ecc_errors/"))
        return tuple((m[1], m[0].partition(m[1])[::2], value) for m, value in found if m)

    def uncorrectable(self, when: str = "volatile") -> int | str | None:
        """The uncorrectable errors since the driver was loaded (or "aggregate": since ever); a word where one is no
        number; None: not told."""
        counts = [value for which, _, value in self.counters if which == when and value not in NOT_TOLD]
        strange = [v for v in counts if not re.fullmatch("[0-9]{1,18}", v)]
        return (strange[0] or "nothing") if strange else sum(map(int, counts)) if counts else None


@dataclass(frozen=True)
class Answer:
    driver: str
    attached: int
    gpus: tuple[Gpu, ...]
    problems: tuple[str, ...] = ()      # the values are whole all the same


@dataclass(frozen=True)
class Trouble:
    """One line that says that something does not answer. pci "": the driver or all GPUs."""

    pci: str
    index: int | None
    text: str


def troubles(text: str) -> list[Trouble]:
    """The lines around an answer that tell of a lost GPU or driver."""
    low = text[:MAX_BYTES].lower()
    if not any(word in low for word in _BROKEN):        # as of nearly all answers: no line is looked at
        return []
    found = []
    for line in lines_of(text[:MAX_BYTES]):
        line = line.rpartition(">")[2] if line.startswith("<") else line  # noqa: PLW2901
        handle = _HANDLE.search(line)
        if handle:
            said = printable(handle[3] or "no handle", limit=160).rstrip(". ")
            found.append(Trouble(same_pci(handle[2]), int(handle[1]) if handle[1] else None, said))
        elif not line.startswith("|") and any(word in line.lower() for word in _BROKEN) \
                and not re.match(r"[\w .-]{1,41} : ", line):
            found.append(Trouble("", None, printable(line, limit=160)))
    return found


def same_pci(address: str) -> str:
    """A PCI address in one spelling: domain of four digits, lower case."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def read(text: str) -> Answer:
    """The one whole answer in a text. ParseError when it is cut, doubled, not XML, or contradicts itself."""
    from xml.etree import ElementTree  # noqa: PLC0415  (only where there is a GPU)
    if len(text) > MAX_BYTES or "<!ENTITY" in text:
        raise ParseError("the answer is no plain XML of nvidia-smi")
    begin, close = text.find("<nvidia_smi_log>"), "</nvidia_smi_log>"
    if text.count("<nvidia_smi_log>") != 1 or text.count(close) != 1:
        raise ParseError("not one whole answer of nvidia-smi -q -x", hint="cut off, or several answers mixed")
    try:
        root = ElementTree.fromstring(text[begin:text.find(close) + len(close)])  # noqa: S314  (bounded, no entities)
    except (ElementTree.ParseError, RecursionError, ValueError) as exc:
        raise ParseError(f"not XML: {exc}") from exc
    gpus = tuple(Gpu(same_pci(gpu.get("id", "")), flat(_leaves(gpu, "", []))) for gpu in root.findall("gpu"))
    attached = integer(_text(root, "attached_gpus"), "attached_gpus", most=1024)
    return checked(_text(root, "driver_version"), attached, gpus)


def _text(element: Element, path: str) -> str:
    found = element.findall(path)
    if len(found) > 1:
        raise ParseError(f"the answer has {path} twice", hint="two answers mixed")
    value = (found[0].text or "").strip() if found else ""
    if not value:
        raise ParseError(f"the answer has no {path}")
    return printable(value, limit=200)


def _leaves(element: Element, path: str, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Adds what is told below an element."""
    for child in element:
        tag = child.tag
        if tag in SKIPPED:
            continue
        if len(child):
            _leaves(child, f"{path}{tag}/", found)
        else:
            found.append((path + tag, printable((child.text or "").strip(), limit=120)))
    return found


_KNOWN = {place for places in PLACES.values() for place in places}


def flat(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The rows as a table. ParseError where a fact that matters is told twice."""
    told: dict[str, str] = {}
    for place, value in rows:
        if place in told and (place in _KNOWN or UNCORRECTABLE.match(place)):
            raise ParseError(f"{place} is told twice of one GPU", hint="two answers mixed")
        told[place] = value
    return told


def checked(driver: str, attached: int, gpus: tuple[Gpu, ...]) -> Answer:
    """The answer with what is missing in it. ParseError where it contradicts itself."""
    for gpu in gpus:
        for name in ("model", "uuid"):
            if not gpu.fact(name):
                raise ParseError(f"the answer has no {PLACES[name][0]}")
    if len({gpu.uuid for gpu in gpus}) != len(gpus) or len({gpu.pci for gpu in gpus}) != len(gpus):
        raise ParseError("two GPUs have one UUID or one PCI address")
    major = int(m[0]) if (m := re.match("[0-9]{1,4}", driver)) else 0
    problems = [] if major else [f"the driver version is {driver!r}"]
    for name in PLACES:
        without = [n for n, gpu in enumerate(gpus) if gpu.fact(name) in (None, "")]
        if without and (len(without) < len(gpus) or major >= NEEDED.get(name, 10_000)):
            them = ", ".join(f"GPU {n}" for n in without[:8])
            problems.append(f"the answer does not tell {name} of {them}")
    counted = [{(when, around) for when, around, _ in gpu.counters} for gpu in gpus]
    for number, (gpu, kinds) in enumerate(zip(gpus, counted, strict=True)):
        halves = [{around for which, around in kinds if which == when} for when in ("volatile", "aggregate")]
        alike = all(other == kinds for it, other in zip(gpus, counted, strict=True) if it.model == gpu.model)
        if (not kinds or halves[0] != halves[1] or not alike) and gpu.told.get("ecc_errors") not in NOT_TOLD:
            problems.append(f"counts of uncorrectable errors of GPU {number} are missing")
    return Answer(driver, attached, gpus, tuple(problems))

"""Reads `nvidia-smi -q -x`, and what the tool says instead when a GPU or the driver does not answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcadmin.check import ParseError
from hpcadmin.checklib import integer, lines_of
from hpcadmin.text import printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_BYTES = 16 * 1024 * 1024
# Where a fact is: several places, by version of the tool.
_PLACES = {
    "row_remap_pending": ("remapped_rows/remapped_row_pending",),
    "row_remap_failure": ("remapped_rows/remapped_row_failure",),
    "page_retirement_pending": ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    "hw_slowdown": ("clocks_event_reasons/clocks_event_reason_hw_slowdown",
                    "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown"),
    "hw_thermal_slowdown": ("clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
                            "clocks_throttle_reasons/clocks_throttle_reason_hw_thermal_slowdown"),
    "hw_power_brake": ("clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown",
                       "clocks_throttle_reasons/clocks_throttle_reason_hw_power_brake_slowdown"),
}
_UNCORRECTABLE = re.compile(r"[a-z0-9_]{0,40}uncorrectable(?:_parity|_secded)?\Z")
_HANDLE = re.compile(r"Unable to determine the device handle for [Gg][Pp][Uu] ?(?:(\d{1,3}): ?)?"
                     r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]): ?(.{0,160})")
_BROKEN = ("no devices were found", "couldn't communicate with the nvidia driver", "failed to initialize nvml",
           "gpu is lost", "has fallen off the bus", "unknown error", "driver/library version mismatch")


@dataclass(frozen=True)
class Gpu:
    """One GPU as it describes itself. facts: only what it has (not N/A)."""

    model: str
    uuid: str
    pci: str
    facts: dict[str, str]
    uncorrectable: int | None
    lanes: tuple[int, int] | None          # PCIe width now, and at most


@dataclass(frozen=True)
class Answer:
    driver: str
    attached: int
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class Trouble:
    """One line that says that something does not answer. pci "": the driver or all GPUs."""

    pci: str
    index: int | None
    text: str


def troubles(text: str) -> list[Trouble]:
    """The lines around an answer that tell of a lost GPU or driver."""
    found = []
    for line in lines_of(text[:MAX_BYTES]):
        handle = _HANDLE.search(line)
        if handle:
            said = printable(handle[3] or "no handle", limit=160).rstrip(". ")
            found.append(Trouble(same_pci(handle[2]), int(handle[1]) if handle[1] else None, said))
        elif not line.startswith("<") and any(word in line.lower() for word in _BROKEN):
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
    except (ElementTree.ParseError, RecursionError) as exc:
        raise ParseError(f"not XML: {exc}") from exc
    gpus = tuple(_gpu(element) for element in root.findall("gpu"))
    if len({gpu.uuid for gpu in gpus}) != len(gpus) or len({gpu.pci for gpu in gpus}) != len(gpus):
        raise ParseError("two GPUs have one UUID or one PCI address")
    attached = integer(_text(root, "attached_gpus"), "attached_gpus", most=1024)
    return Answer(_text(root, "driver_version"), attached, gpus)


def _text(element: Element, path: str) -> str:
    value = (element.findtext(path) or "").strip()
    if not value:
        raise ParseError(f"the answer has no {path}")
    return printable(value, limit=200)


def _gpu(element: Element) -> Gpu:
    facts = {}
    for name, paths in _PLACES.items():
        values = [v.strip() for v in map(element.findtext, paths) if v and v.strip()]
        if values and values[0] != "N/A":
            facts[name] = printable(values[0], limit=40)
    links = "pci/pci_gpu_link_info/link_widths"
    now, most = (_lanes(element.findtext(f"{links}/{name}")) for name in ("current_link_width", "max_link_width"))
    return Gpu(_text(element, "product_name"), _text(element, "uuid"), same_pci(element.get("id", "")), facts,
               _uncorrectable(element), None if now is None or most is None else (now, most))


def _lanes(text: str | None) -> int | None:
    """"16x" as a number; None where the tool does not know."""
    word = (text or "").strip()
    return None if word in ("", "N/A") else integer(word.removesuffix("x"), "PCIe width", least=1, most=32)


def _uncorrectable(element: Element) -> int | None:
    """The sum of the uncorrectable errors since the driver was loaded; None where ECC is not on."""
    volatile = element.find("ecc_errors/volatile")
    if volatile is None:
        return None
    told: Sequence[str | None] = [e.text for e in volatile.iter() if _UNCORRECTABLE.match(e.tag)]
    told = [*told, volatile.findtext("double_bit/total")]
    counts = [t.strip() for t in told if t and t.strip() != "N/A"]
    return sum(integer(c, "uncorrectable ECC errors") for c in counts) if counts else None

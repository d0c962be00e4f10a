"""The kernel's log of the NVIDIA driver: GPUs that are lost, Xids, modules that do not fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading

FORMS = ("text",)
MARKS = ("NVRM:", "nvidia-nvlink:", *(f"nvidia-nvswitch{number}" for number in range(10)))
KIND = "dmesg"

# What may stand before it: [ 1843.308145], a date, host and "kernel:".
_NVRM = re.compile(r"(?:^|[\s\]:])(NVRM|nvidia-nvswitch[0-9]{1,2}|nvidia-nvlink): ?(.*)\Z")
_GPU = re.compile(r"(?:GPU |GPU at (?:PCI:)?|PCI:)([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)")
_OWN = re.compile(r"GPU [0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{5,8}: ")
_ID = re.compile(r"\(PCI ID: ([0-9a-fA-F]{4}:[0-9a-fA-F]{4})\)")
_XID = re.compile(r"(S?Xid) \((?:PCI:)?([0-9a-fA-F:.]{7,16})\): ([0-9]{1,5})\b,? ?(.*)\Z")
_MODULE = re.compile(r"Kernel Module(?: for [A-Za-z0-9_]{1,12})? {1,4}([0-9]{3}\.[0-9.]{2,12})")
_FAULTS = (
    "fallen off the bus", "probe routine failed", "RmInitAdapter failed", "rm_init_adapter failed", "API mismatch",
    "None of the NVIDIA", "No NVIDIA GPU found", "No NVIDIA graphics adapter", "BAR0 is 0M", "BAR1 is 0M",
    "This PCI I/O region assigned to your NVIDIA device is invalid", "GPU lost from the bus", "is not supported by",
    "The NVIDIA GPU driver for", "GPU initialization failed", "requires that you disable", "GPU is lost",
)
# Xids after which a GPU does not work on: double bit, off the bus, row remapping, uncontained, GSP time-out, NVLink.
_LOST_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 154})
MAX_EVENTS = 500


@dataclass(frozen=True)
class Event:
    line: int
    message: str
    pci: str = ""
    pci_id: str = ""
    xid: int | None = None
    switch: bool = False             # of an NVSwitch


@dataclass(frozen=True)
class KernelLog:
    driver: str
    events: tuple[Event, ...]


@dataclass
class _Said:
    first: int
    last: int
    source: str
    text: str


def read(document: Document) -> tuple[Reading, ...]:
    said = _sayings(document.lines)
    if not said:
        return ()
    driver = next((match[1] for one in said if (match := _MODULE.search(one.text))), "")
    events = tuple(event for one in said if (event := _event(one)))[:MAX_EVENTS]
    told = tuple(Finding(sentence(event), event.line, note=not _serious(event)) for event in events)
    known = {"driver": driver or None, "gpus": None, "gpu_count": None, "errors": [_known(event) for event in events]}
    if all(finding.note for finding in told):
        return (Reading(KIND, said[0].first, said[-1].last, KernelLog(driver, events), known, told),)
    missing = ("the GPUs: a kernel log does not list them",)
    why = "; ".join([*list(dict.fromkeys(finding.what for finding in told if not finding.note))[:4],
                     "a kernel log does not tell which GPUs there are"])
    return (Reading(KIND, said[0].first, said[-1].last, KernelLog(driver, events), known, told, missing, why),)


def _sayings(lines: Sequence[str]) -> list[_Said]:
    """The driver's messages; one that goes on in the next line, without a time of its own, is one."""
    found: list[_Said] = []
    for number, line in enumerate(lines, 1):
        match = _NVRM.search(line[:1000])
        if not match:
            continue
        last = found[-1] if found else None
        if last and last.last == number - 1 and last.source == match[1] and len(last.text) < 2000 \
                and _unfinished(last.text, match[2]):
            last.text += " " + match[2].strip()
            last.last = number
        else:
            found.append(_Said(number, number, match[1], match[2].strip()))
    return found


def _unfinished(text: str, following: str) -> bool:
    """As the driver breaks "The NVIDIA GPU 0000:b3:00.0 / (PCI ID: …) installed in this system has / fallen off"."""
    if following.startswith(("Xid", "SXid", "GPU ", "The NVIDIA", "loading")):
        return False
    if text.startswith("The NVIDIA GPU "):
        return not text.endswith(".") and len(text) < 400
    return text.startswith("API mismatch") and not text.endswith(".")


def _event(said: _Said) -> Event | None:
    text = clean(said.text, 400)
    switch = said.source.startswith("nvidia-nvswitch")
    xid = _XID.search(text)
    if xid:
        return Event(said.first, xid[4] or text, _address(xid[2]), xid=maybe_integer(xid[3]), switch=xid[1] == "SXid")
    if not any(fault in text for fault in _FAULTS):
        return None
    where, device = _GPU.search(text), _ID.search(text)
    off = re.search(r"fallen off the bus.{0,120}", text)
    message = off[0] if off and where else _OWN.sub("", text)
    message = message.rstrip(".")
    return Event(said.first, message, _address(where[1]) if where else "", device[1].lower() if device else "",
                 switch=switch)


def _address(text: str) -> str:
    """Xids leave out the function."""
    return pci_address(text if "." in text else f"{text}.0")


def _known(event: Event) -> dict[str, object]:
    if not event.pci:
        return {"message": event.message}
    return {"pci": event.pci, **({"pci_id": event.pci_id} if event.pci_id else {}), "message": event.message,
            "xid": event.xid}


def _serious(event: Event) -> bool:
    """Not what programs cause (Xid 13, 31, 43, …)."""
    return event.xid is None or event.xid in _LOST_XIDS or event.switch


def sentence(event: Event) -> str:
    kind = "NVSwitch" if event.switch else "GPU"
    where = f"{kind} {event.pci}{f' ({event.pci_id})' if event.pci_id else ''}: " if event.pci else ""
    number = f"{'SXid' if event.switch else 'Xid'} {event.xid}: " if event.xid is not None else ""
    return f"{where}{number}{event.message}"


def lost(log: KernelLog) -> tuple[_smi.LostGpu, ...]:
    """The GPUs that the log says are gone."""
    found = {event.pci: _smi.LostGpu(event.pci, event.message) for event in log.events
             if event.pci and not event.switch and (event.xid == 79 or "fallen off" in event.message)}
    return tuple(found.values())


def broken(log: KernelLog) -> tuple[Event, ...]:
    """The last of the events after which a GPU or switch needs care, for each."""
    found: dict[tuple[str, int | None], Event] = {}
    for event in log.events:
        if _serious(event):
            found[event.pci, event.xid] = event
    return tuple(found.values())

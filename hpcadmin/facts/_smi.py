"""What every text of nvidia-smi comes to: GPUs as they are shown, those that are lost, and what follows for Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcadmin.facts._base import clean, maybe_integer, pci_address, pci_key
from hpcadmin.facts._reading import Finding, Reading
from hpcadmin.gpu_types import autodetected, autodetected_mig, gres
from hpcadmin.model import Gpu
from hpcadmin.text import plural

MAX_GPUS = 512
# What a driver writes in a field of a GPU that no longer answers.
DEAD = ("gpu is lost", "unknown error", "err!", "gpu access blocked", "gpu requires reset")
_LOST = re.compile(r"(GPU ?(?:([0-9]{1,3}): ?)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]))[ :]{0,4}"
                   r"(.{0,160})", re.IGNORECASE)
INFOROM = "infoROM is corrupted"
_INFOROM = re.compile(rf"WARNING: {INFOROM}(?: at gpu ([0-9a-fA-F:.]{{7,16}}))?", re.IGNORECASE)
_HANDLE = "Unable to determine the device handle"
NO_DEVICES = re.compile(r"\s{0,40}No devices were found\b")


@dataclass(frozen=True)
class LostGpu:
    """A GPU that the driver knows and cannot talk to."""

    pci: str
    message: str
    index: int | None = None


@dataclass(frozen=True)
class Remapped:
    """Rows of memory that were replaced by spare ones."""

    correctable: int | None = None
    uncorrectable: int | None = None
    pending: bool | None = None
    failure: bool | None = None


@dataclass(frozen=True)
class Shown:
    """One GPU as a text shows it. None: the text does not say; the words are the tool's own ("N/A" as well)."""

    gpu: Gpu
    name_cut: str = ""               # "NVIDIA GeForce ...": the rest of the name is not there
    minor_text: str | None = None
    mig_mode: str | None = None
    virtualization: str | None = None
    driver_model: str | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    compute_cap: str = ""
    driver: str = ""
    remapped: Remapped | None = None
    slowdowns: tuple[str, ...] = ()  # "HW Slowdown", …: what is active
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sm: tuple[int | None, ...] = ()  # multiprocessors of each of its MIG devices
    line: int | None = None


@dataclass(frozen=True)
class Smi:
    """Everything that one output of nvidia-smi says. whole: nothing of it is cut off."""

    driver: str
    attached: int | None             # what it says it has; may be more than it describes
    shown: tuple[Shown, ...]         # in the tool's order
    lost: tuple[LostGpu, ...] = ()
    cuda: str = ""
    whole: bool = True

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(one.gpu for one in self.shown)


@dataclass(frozen=True)
class Complaint:
    """A line in which a tool says that a GPU, or all of them, cannot be used."""

    line: int
    text: str
    lost: LostGpu | None = None
    pci: str = ""                    # of the GPU that is complained of and answers


# GRID P4-2Q, NVIDIA A10-6Q, NVIDIA H100-4-20C: names of vGPUs.
_SLICE = re.compile(r"^GRID |[A-Z0-9]-[0-9]{1,3}[QCAB][0-9]?\Z")
_QUOTED = re.compile(r"\s{0,4}(?:> ?){1,5}")


def unquoted(lines: Sequence[str]) -> Sequence[str]:
    """Without the > of a quoted mail."""
    return [_QUOTED.sub("", line, count=1) if line.lstrip().startswith(">") else line for line in lines]


def whole_uuid(text: str) -> str:
    """"" for one that somebody shortened or made unreadable."""
    return "" if re.search(r"\.\.|…|\*|[xX]{4}", text) else text


# --- complaints ----------------------------------------------------------------------------------------------------


def lost_gpu(line: str) -> LostGpu | None:
    """In every wording of "Unable to determine the device handle for GPU"."""
    if "<" in line[:40] or "NVRM:" in line:          # XML; what the kernel says is read elsewhere
        return None
    if not ("Unable to determine" in line or "fallen off the bus" in line or "is lost" in line):
        return None
    match = _LOST.search(line[:600])
    if not match:
        return None
    message = clean(match[4]) or "does not answer"
    return LostGpu(pci_address(match[3]), message.rstrip("."), maybe_integer(match[2]))


def lost_gpus(text: str) -> list[LostGpu]:
    return [lost for lost in map(lost_gpu, text.split("\n")) if lost]


def complaint(line: str, number: int) -> Complaint | None:
    lost = lost_gpu(line)
    if lost:
        match = _LOST.search(line[:600])
        what = clean(match[4]) if match else ""
        return Complaint(number, f"{_HANDLE}: {what}" if _HANDLE in line else what or clean(line), lost)
    inforom = _INFOROM.search(line[:400]) if "infoROM" in line else None
    if inforom:
        return Complaint(number, clean(inforom[0]), pci=pci_address(inforom[1] or ""))
    return Complaint(number, "No devices were found") if NO_DEVICES.match(line) else None


def near(lines: Sequence[str], first: int, last: int, *, reach: int = 2) -> tuple[Complaint, ...]:
    """The complaints right before and right after an output: they belong to it. Lines are numbered from 1."""
    found = []
    for numbers in (range(first - 1, 0, -1), range(last + 1, len(lines) + 1)):
        distance = 0
        for number in numbers:
            said = complaint(lines[number - 1], number)
            if said:
                found.append(said)
                distance = 0
                continue
            distance += 1
            if distance > reach:
                break
    return tuple(sorted(found, key=lambda said: said.line))


# --- what is known -------------------------------------------------------------------------------------------------


def placed(shown: Sequence[Shown], by_order: bool) -> tuple[Shown, ...]:
    """With the place in the text as the index, where the text leaves no gap."""
    if not by_order:
        return tuple(replace(one, gpu=replace(one.gpu, index=None)) for one in shown)
    return tuple(replace(one, gpu=replace(one.gpu, index=n)) for n, one in enumerate(shown))


def name_of(one: Shown) -> str:
    gpu = one.gpu
    where = f" ({gpu.pci})" if gpu.pci else ""
    return f"GPU {gpu.index}{where}" if gpu.index is not None else f"GPU {gpu.pci or gpu.uuid or gpu.model}"


def missing_indexes(shown: Sequence[Shown], lost: Sequence[LostGpu]) -> list[int]:
    there = {one.gpu.index for one in shown if one.gpu.index is not None}
    top = max([*there, *(gpu.index for gpu in lost if gpu.index is not None)], default=-1)
    return [n for n in range(top + 1) if n not in there] if top < MAX_GPUS else []


def slurm_types(shown: Iterable[Shown]) -> list[str]:
    """AutoDetect's name of each device in order; "" where it does not follow from the text."""
    types = []
    for one in shown:
        if one.gpu.mig == "Enabled":
            types += [autodetected_mig(one.gpu.model, mig.profile) for mig in one.gpu.mig_devices] or [""]
        elif one.name_cut or one.mig_mode in ("ERR!", "[Unknown Error]", "Unknown Error"):
            types.append("")
        else:
            types.append(autodetected(one.gpu.model))
    return types


def known_gpu(one: Shown) -> dict[str, Any]:
    gpu = one.gpu
    supported = None if one.mig_mode in (None, "") else one.mig_mode not in ("N/A", "[N/A]")
    found: dict[str, Any] = {
        "index": gpu.index, "minor": gpu.minor, "pci": gpu.pci or None, "name": gpu.model or None,
        "uuid": gpu.uuid or None, "memory_mib": gpu.memory_mib, "compute_mode": gpu.compute_mode or None,
        "mig_mode": one.mig_mode, "mig_supported": supported, "virtualization": one.virtualization,
        "driver_model": one.driver_model,
    }
    extra: dict[str, Any] = {
        "name_cut": one.name_cut, "serial": gpu.serial, "vbios": gpu.vbios, "part_number": gpu.part_number,
        "pci_id": gpu.pci_id, "ecc": gpu.ecc, "persistence": gpu.persistence, "power_limit_w": gpu.power_limit_w,
        "power_limit_max_w": gpu.power_limit_max_w, "pcie_gen": gpu.pcie_gen, "pcie_gen_max": gpu.pcie_gen_max,
        "pcie_width": gpu.pcie_width, "pcie_width_max": gpu.pcie_width_max, "mig_pending": gpu.mig_pending,
        "fabric_state": gpu.fabric_state, "fabric_status": gpu.fabric_status, "fabric_clique": gpu.fabric_clique,
        "fabric_cluster_uuid": gpu.fabric_cluster_uuid, "memory_used_mib": one.memory_used_mib,
        "memory_free_mib": one.memory_free_mib, "compute_cap": one.compute_cap, "driver": one.driver,
        "hw_slowdown_active": list(one.slowdowns), "remapped_rows": one.remapped and dict(one.remapped.__dict__),
    }
    return {**found, **{key: value for key, value in extra.items() if value not in (None, "", [])}}


def known_mig(shown: Iterable[Shown]) -> list[dict[str, Any]]:
    return [{"gpu_index": one.gpu.index, "gpu_minor": one.gpu.minor, "gpu_pci": one.gpu.pci or None,
             "device": mig.index, "gpu_instance": mig.gpu_instance, "compute_instance": mig.compute_instance,
             "profile": mig.profile or None, "sm": one.sm[n] if n < len(one.sm) else None,
             "memory_mib": mig.memory_mib, "uuid": mig.uuid or None}
            for one in shown for n, mig in enumerate(one.gpu.mig_devices)]


def known_error(said: Complaint) -> dict[str, Any]:
    where = {"pci": said.lost.pci if said.lost else said.pci} if said.lost or said.pci else {}
    index = {"index": said.lost.index} if said.lost and said.lost.index is not None else {}
    return {**index, **where, "message": said.text}


# --- findings ------------------------------------------------------------------------------------------------------


def findings(shown: Sequence[Shown]) -> Iterator[Finding]:
    """What is wrong with GPUs, once for all that have it; then what is worth knowing."""
    for note in (False, True):
        by_text: dict[str, list[Shown]] = {}
        for one in shown:
            for text in dict.fromkeys(one.notes if note else one.faults):
                by_text.setdefault(text, []).append(one)
        for text, those in by_text.items():
            if len(those) == len(shown) > 1:
                who = f"all {len(shown)} GPUs"
            else:
                who = ", ".join(map(name_of, those[:8])) + (f" and {len(those) - 8} more" if len(those) > 8 else "")
            yield Finding(f"{who}: {text}", those[0].line, note)
    yield from _identity(shown)


def _identity(shown: Sequence[Shown]) -> Iterator[Finding]:
    minors = [one.gpu.minor for one in shown]
    if any(one.gpu.minor is not None and one.gpu.minor != one.gpu.index for one in shown if one.gpu.index is not None):
        yield Finding("index and minor number differ: the device file is named by the minor number", note=True)
    for what, values in (("UUID", [one.gpu.uuid for one in shown]), ("minor number", minors)):
        told = [value for value in values if value not in ("", None)]
        if len(set(told)) != len(told):
            same = ", ".join(sorted({str(value) for value in told if told.count(value) > 1}))
            yield Finding(f"several GPUs show the same {what} ({same}): no key to tell them apart", note=what == "UUID")
    for one in shown:
        if one.gpu.model == "Graphics Device":
            yield Finding(f"{name_of(one)}: \"Graphics Device\" stands for a board that this driver does not know",
                          one.line, note=True)
        if (one.virtualization or "").upper() == "VGPU" or _SLICE.search(one.gpu.model):
            yield Finding(f"{name_of(one)}: a vGPU ({one.gpu.model}), a slice and not a whole GPU", one.line)
    if shown and all(minor is None for minor in minors) and all(one.minor_text is None for one in shown):
        yield Finding("minor numbers are not in it: /dev/nvidiaN must come from another source", note=True)
    if any(one.gpu.mig == "Enabled" and not one.gpu.mig_devices for one in shown):
        yield Finding("MIG is enabled and there is no MIG device: Slurm would have no GPU there")


def lost_findings(complaints: Iterable[Complaint], *, until: int = 0) -> Iterator[Finding]:
    """until: the first line of an output that shows GPUs: what found none before it was another run."""
    for said in complaints:
        if NO_DEVICES.match(said.text) and said.line < until:
            yield Finding(f"nvidia-smi says: {said.text} (another run: right in a job without GPUs)", said.line,
                          note=True)
        elif said.lost:
            index = "" if said.lost.index is None else f"{said.lost.index} "
            yield Finding(f"GPU {index}{said.lost.pci} cannot be reached: {said.text}", said.line)
        else:
            yield Finding(f"nvidia-smi says: {said.text}", said.line)


# --- a reading -----------------------------------------------------------------------------------------------------


def reading(
    kind: str, smi: Smi, first: int, last: int, *, complaints: Sequence[Complaint] = (), missing: Sequence[str] = (),
    count: int | None = None, extra: Mapping[str, Any] | None = None, told: Sequence[Finding] = (),
    errors: Sequence[Any] = (),
) -> Reading:
    """count: of the GPUs of the node, where the text shows that these are all."""
    shown = smi.shown
    gaps = missing_indexes(shown, smi.lost)
    gone = [f"GPU {gpu.pci} does not answer" for gpu in smi.lost if gpu.pci not in {s.gpu.pci for s in shown}]
    lacks = [*missing, *gone, *(f"GPU {n} is not shown" for n in gaps if n not in {g.index for g in smi.lost})]
    if lacks:
        count = None
    refused = _refusal(shown, lacks)
    types = slurm_types(shown)
    ok = gres(types) if count and not refused else ""
    wide = any(one.gpu.mig == "Enabled" for one in shown)
    known: dict[str, Any] = {
        "driver": smi.driver or None, "cuda": smi.cuda or None, "attached_gpus": smi.attached, "gpu_count": count,
        "gpus": [known_gpu(one) for one in shown],
        "errors": [*(known_error(said) for said in complaints), *errors],
        "slurm_type_autodetect": types[0] if types and types[0] and len(set(types)) == 1 else None,
        "slurm_types": types if all(types) else None,
        "gres_count": len(types) if count and all(types) else None if wide else count, "gres_ok": [ok] if ok else [],
        "missing_indexes": gaps, "minors_in_pci_order": _minors(shown),
    }
    migs = known_mig(shown)
    if migs or wide:
        known |= {"mig": migs, "mig_count": len(migs)}
    return Reading(kind, first, last, smi, {**known, **(extra or {})},
                   (*lost_findings(complaints, until=first if shown else 0), *told, *findings(shown)),
                   tuple(dict.fromkeys(lacks)), refused)


def _refusal(shown: Sequence[Shown], lacks: Sequence[str]) -> str:
    reasons = list(lacks[:4])
    for one in shown:
        if one.minor_text in ("N/A", "[N/A]"):
            windows = one.driver_model not in (None, "", "N/A")
            reasons.append(f"{name_of(one)}: the minor number is N/A"
                           + (f" and the driver model {one.driver_model} (Windows or WSL)" if windows else "")
                           + ": no device file /dev/nvidiaN")
        elif one.minor_text is None and one.driver_model in ("WDDM", "TCC", "MCDM"):
            reasons.append(f"{name_of(one)}: the driver model is {one.driver_model} (Windows): no device file "
                           "/dev/nvidiaN")
    dead = [name_of(one) for one in shown if any("does not answer" in fault for fault in one.faults)]
    if dead:
        reasons.append(f"{', '.join(dead)} {'does' if len(dead) == 1 else 'do'} not answer")
    return "; ".join(dict.fromkeys(reasons))


def _minors(shown: Sequence[Shown]) -> list[int] | None:
    if not shown or any(one.gpu.minor is None or not one.gpu.pci for one in shown):
        return None
    return [int(one.gpu.minor or 0) for one in sorted(shown, key=lambda one: pci_key(one.gpu.pci))]


def too_few(attached: int | None, shown: Sequence[Shown], lost: Sequence[LostGpu] = ()) -> list[str]:
    """Where the text says how many there are and shows another number."""
    there = len({one.gpu.pci for one in shown} | {gpu.pci for gpu in lost})
    if attached is None or attached == there:
        return []
    left = attached - there
    return [f"attached are {plural(attached, 'GPU')}, only {there} shown: "
            + (f"{left} missing" if left > 0 else "they contradict each other")]

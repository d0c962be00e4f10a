"""`nvidia-smi -q -x`: every GPU that answers, with its PCI address, UUID, memory, link and modes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from xml.etree import ElementTree as ET

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, leading_float, leading_int, maybe_integer, pci_address, pci_key
from hpcadmin.model import Gpu

NAME = "nvidia_smi"
ORDER = 90
LIMIT = 8 * 1024 * 1024
COMMAND = "run 25 nvidia-smi -q -x"

# What a driver writes in a field of a GPU that no longer answers.
_DEAD = ("gpu is lost", "unknown error", "err!", "gpu access blocked", "gpu requires reset")
_LOST = re.compile(r"GPU ?(?:([0-9]{1,3}): ?)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])[ :]*(.{0,160})",
                   re.IGNORECASE)
_DECLARATION = re.compile(r"<!(ENTITY|ELEMENT|ATTLIST|NOTATION)", re.IGNORECASE)


@dataclass(frozen=True)
class LostGpu:
    """A GPU that the driver knows and cannot talk to."""

    pci: str
    message: str
    index: int | None = None


@dataclass(frozen=True)
class Smi:
    driver: str
    attached: int | None             # what it says it has; may be more than it describes
    gpus: tuple[Gpu, ...]            # in the tool's order
    lost: tuple[LostGpu, ...] = ()


def parse(text: str) -> Smi:
    """Raises ParseError for anything but one whole document."""
    lost = lost_gpus(text)
    root = _document(text, lost)
    driver = clean(root.findtext("driver_version") or "")
    attached = maybe_integer(root.findtext("attached_gpus"))
    gpus: list[Gpu] = []
    for element in root.iter("gpu"):
        gpu, problem = _gpu(element, len(gpus))
        if problem:
            lost.append(LostGpu(gpu.pci, problem))
        else:
            gpus.append(gpu)
    if not driver and not gpus:
        raise ParseError("neither a driver version nor a GPU in the XML")
    if len({gpu.pci for gpu in gpus}) != len(gpus):
        raise ParseError("a GPU's PCI address appears twice")
    return Smi(driver=driver, attached=attached, gpus=tuple(gpus),
               lost=tuple(sorted({gpu.pci: gpu for gpu in reversed(lost)}.values(), key=lambda g: pci_key(g.pci))))


def lost_gpus(text: str) -> list[LostGpu]:
    """The GPUs that the tool complains about, in every wording of "Unable to determine the device handle for GPU"."""
    found = []
    for line in text.split("\n"):
        if "<" in line[:40] or not ("Unable to determine" in line or "fallen off the bus" in line or "is lost" in line):
            continue
        match = _LOST.search(line)
        if match:
            message = clean(match[3]) or "does not answer"
            found.append(LostGpu(pci_address(match[2]), message.rstrip("."), maybe_integer(match[1])))
    return found


def _document(text: str, lost: list[LostGpu]) -> ET.Element:
    start = min((at for at in (text.find("<?xml"), text.find("<nvidia_smi_log")) if at >= 0), default=-1)
    if start < 0:
        if "No devices were found" in text and not lost:
            return ET.fromstring("<nvidia_smi_log><driver_version>none</driver_version></nvidia_smi_log>")  # noqa: S314
        first = next((line for line in text.split("\n") if line.strip()), "")
        if lost:
            raise ParseError(f"nvidia-smi printed no XML: GPU {lost[0].pci}: {lost[0].message}")
        raise ParseError(f"nvidia-smi printed no XML: {clean(first)}" if first else "nvidia-smi printed nothing")
    body = text[start:]
    if _DECLARATION.search(body):
        raise ParseError("the XML declares entities, which nvidia-smi never does")
    end = body.find("</nvidia_smi_log>")
    if end < 0:
        raise ParseError("the XML of nvidia-smi is cut off")
    try:
        # Declarations are refused above, so nothing can be expanded or fetched.
        root = ET.fromstring(body[: end + len("</nvidia_smi_log>")])  # noqa: S314
    except (ET.ParseError, ValueError, RecursionError) as exc:
        raise ParseError(f"nvidia-smi's XML cannot be read: {clean(str(exc))}") from exc
    if root.tag != "nvidia_smi_log":
        raise ParseError("the XML is not nvidia-smi's")
    return root


def _gpu(element: ET.Element, index: int) -> tuple[Gpu, str]:
    """The GPU, and why it does not answer ("" when it does)."""
    def text(path: str) -> str:
        value = clean(element.findtext(path) or "")
        return "" if value in ("N/A", "[N/A]", "Requested functionality has been deprecated") else value

    address = pci_address(element.get("id") or "") or pci_address(text("pci/pci_bus_id"))
    if not address:
        raise ParseError(f"GPU number {index} in the XML has no PCI address")
    uuid, model = text("uuid"), text("product_name")
    for value in (uuid, model):
        if any(dead in value.lower() for dead in _DEAD):
            return Gpu(vendor="nvidia", pci=address), value
    if not uuid.startswith("GPU-") or not model:
        return Gpu(vendor="nvidia", pci=address), "has no name or no UUID"
    link = "pci/pci_gpu_link_info/"
    minor = maybe_integer(text("minor_number"))
    gpu = Gpu(
        vendor="nvidia", index=index, model=model, uuid=uuid, serial=text("serial"), pci=address, minor=minor,
        memory_mib=_mebibytes(text("fb_memory_usage/total")), vbios=text("vbios_version"),
        pcie_gen=leading_int(text(link + "pcie_gen/current_link_gen")),
        pcie_gen_max=leading_int(text(link + "pcie_gen/max_link_gen")),
        pcie_width=leading_int(text(link + "link_widths/current_link_width").rstrip("x")),
        pcie_width_max=leading_int(text(link + "link_widths/max_link_width").rstrip("x")),
        ecc=text("ecc_mode/current_ecc"), persistence=text("persistence_mode"), mig=text("mig_mode/current_mig"),
    )
    return replace(gpu, power_limit_w=_power_limit(element)), ""


def _mebibytes(text: str) -> int | None:
    number, _, unit = text.partition(" ")
    return leading_int(number) if unit in ("MiB", "MB") else None


def _power_limit(element: ET.Element) -> float | None:
    # The names moved between driver generations.
    for path in ("gpu_power_readings/current_power_limit", "power_readings/power_limit",
                 "power_readings/current_power_limit", "gpu_power_readings/power_limit",
                 "power_readings/enforced_power_limit"):
        value = leading_float(element.findtext(path))
        if value is not None:
            return value
    return None

"""`lspci` as a list of devices: plain, -n, -nn, -D, -k, -v to -vvv, -mm and -vmm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, maybe_integer, pci_address
from hpcadmin.facts._nccl import nearest
from hpcadmin.facts._pcitree import VENDORS, LspciDevice, paths, virtual_functions, with_parents
from hpcadmin.facts._reading import Document, Finding, Reading

NAME = "lspci"
# Names alone, of what is no bridge; links and NUMA nodes are in sysfs.
COMMAND = r"""
command -v lspci >/dev/null 2>&1 || return 127
run 3 lspci -D -mmnn 2>/dev/null | grep -E '^[^"]*"[^"]*\[(01|02|03|0b|12)..\]|\[0680\]'
echo end=lspci
"""
FORMS = ("text",)
MAX_DEVICES = 20_000
_ADDRESS = r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_BEFORE = r"[ \t]{0,12}(?:IOMMU [Gg]roup [0-9]{1,4}:?[ \t]{1,4}|\[[ \t]?[0-9]{1,4}\][ \t]{1,4})?"
_LINE = re.compile(_BEFORE + _ADDRESS + r"[ \t]+(\S.*)")
_BEGINS = re.compile(_BEFORE + _ADDRESS + r"[ \t]")
_TELLING = re.compile(r"NUMA node:|Kernel driver in use:|Bus: primary=|LnkCap:|LnkSta:|Unknown header type|lspci")
_NAMED = re.compile(r"([A-Z0-9][A-Za-z0-9 ./&()_-]{1,60}?)(?: \[([0-9a-f]{4})\])?: (.*)")
_NUMERIC = re.compile(r"(?:Class )?([0-9a-f]{4}): (?:Device )?([0-9a-f]{4}):([0-9a-f]{4})")
_QUOTED = re.compile(r'"([^"]{0,300})"')
_ID = re.compile(r" ?\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_IN_BRACKETS = re.compile(r"(.*?) ?\[([0-9a-f]{4})\]\Z")
_REVISION = re.compile(r" \(rev ([0-9a-f]{2})\)")
_REMARKS = re.compile(r" \((?:rev|prog-if|driver:) [^()]{0,80}\)")
_UNKNOWN = re.compile(r"Device ([0-9a-f]{4})\b")
_BUSES = re.compile(r"Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_LINK = re.compile(r"Speed ([0-9.]{1,5}GT/s)(?: \((\w{1,12})\))?, Width x([0-9]{1,2})(?: \((\w{1,12})\))?")
CLASSES = {
    "VGA compatible controller": "0300", "3D controller": "0302", "Display controller": "0380",
    "Processing accelerators": "1200", "Ethernet controller": "0200", "Infiniband controller": "0207",
    "InfiniBand controller": "0207", "Fabric controller": "0208", "Network controller": "0280", "PCI bridge": "0604",
    "Non-Volatile memory controller": "0108", "Host bridge": "0600", "ISA bridge": "0601", "Bridge": "0680",
    "SATA controller": "0106", "RAID bus controller": "0104", "Serial Attached SCSI controller": "0107",
    "SCSI storage controller": "0100", "Mass storage controller": "0180", "Audio device": "0403",
    "USB controller": "0c03", "SMBus": "0c05", "Serial bus controller": "0c80", "System peripheral": "0880",
    "Generic system peripheral": "0807", "DMA controller": "0801", "Communication controller": "0780",
    "Serial controller": "0700", "Signal processing controller": "1180", "Performance counters": "1101",
    "Encryption controller": "1080", "Co-processor": "0b40", "Unassigned class": "ff00", "RAM memory": "0500",
    "Memory controller": "0580", "IPMI Interface": "0c07", "IPMI SMIC interface": "0c07", "IOMMU": "0806",
    "PIC": "0800", "IDE interface": "0101", "Non-VGA unclassified device": "0000", "CXL": "0502",
    "Multimedia controller": "0480", "Unclassified device": "00ff", "SD Host controller": "0805",
    "Non-Essential Instrumentation": "1300",
}
_CLASSES = {name.lower(): number for name, number in CLASSES.items()}     # old releases write "USB Controller"


def read(document: Document) -> tuple[Reading, ...]:
    found = []
    for devices in outputs(document.lines):
        if any(device.class_id for device in devices):
            found.append(_reading(with_parents(devices), document.lines))
    return tuple(found)


def parse(text: str) -> tuple[LspciDevice, ...]:
    """Of what the probe asks for. Raises ParseError when the closing line is missing."""
    if lines_of(text, "lspci")[-1].strip() != "end=lspci":
        raise ParseError("the output of lspci is cut off")
    for devices in outputs(text.split("\n")):
        return tuple(devices)
    return ()


def outputs(lines: Sequence[str]) -> Iterator[list[LspciDevice]]:
    """The outputs in a text; a new one begins where an address comes again, or after a command line."""
    block: list[dict[str, Any]] = []
    seen: set[str] = set()
    inside = False                       # below a device's line
    slot: dict[str, Any] | None = None   # of -vmm
    dull = _dull(lines)
    for number, line in enumerate(lines, 1):
        if line in dull:
            continue
        head = _head(line, number) if _BEGINS.match(line) else None
        if head is None and line.startswith("Slot:"):
            address = line[5:].strip()
            head = slot = {"address": pci_address(address), "printed": address, "line": number} \
                if pci_address(address) else None
        elif head is not None:
            slot = None
        if head is not None:
            if head["address"] in seen:
                yield _finish(block)
                block, seen = [], set()
            if len(block) >= MAX_DEVICES:
                raise ParseError(f"line {number}: more than {MAX_DEVICES} PCI devices")
            block.append(head)
            seen.add(head["address"])
            inside = True
        elif slot is not None and _slot_value(slot, line):
            continue
        elif inside and line[:1] in ("\t", " ") and block:
            _detail(block[-1], line.strip())
        elif line.strip() and "lspci" in line and block:
            yield _finish(block)
            block, seen, inside = [], set(), False
        elif line.strip():
            inside = False
    if block:
        yield _finish(block)


def _dull(lines: Sequence[str]) -> frozenset[str]:
    """Indented lines that say nothing here, wherever they stand: nine of ten of -vvv, and few different ones."""
    different = set(lines)
    if any(line.startswith("Slot:") for line in different):
        return frozenset()
    return frozenset(line for line in different if line[:1] in ("\t", " ") and len(line) < 400 and _says_nothing(line))


@lru_cache(maxsize=1 << 14)              # most of them are in the outputs of other nodes as well
def _says_nothing(line: str) -> bool:
    return not (_TELLING.search(line) or _BEGINS.match(line))


def _finish(block: list[dict[str, Any]]) -> list[LspciDevice]:
    return [LspciDevice(**values) for values in block]


def _head(line: str, number: int) -> dict[str, Any] | None:
    match = _LINE.match(line[:600])
    address = pci_address(match[1]) if match else ""
    if not match or not address:
        return None
    rest = match[2].rstrip()
    words = _words(rest)
    if words is None:
        return None
    values: dict[str, Any] = {"address": address, "printed": match[1].lower(), "line": number}
    revision = _REVISION.search(rest)
    if revision:
        values["revision"] = revision[1]
    return {**values, **words}


@lru_cache(maxsize=1024)                 # a machine has hundreds of devices, and few different ones
def _words(rest: str) -> dict[str, Any] | None:
    """What follows the address; not to be changed. None when it is no device."""
    numeric, named = _NUMERIC.match(rest), _NAMED.match(rest)
    if rest.startswith('"'):
        return _machine(rest)
    if numeric:
        return {"class_id": numeric[1], "numeric": True, "vendor_id": numeric[2], "device_id": numeric[3]}
    if not named or not (named[2] or _class(named[1]) or named[1].startswith("Class ")):
        return None
    return {"class_id": named[2] or _class(named[1]), "class_name": named[1], "numeric": bool(named[2]),
            **device_words(named[3])}


def _class(name: str) -> str:
    return _CLASSES.get(name.lower(), "")


def device_words(text: str) -> dict[str, Any]:
    """Vendor, name and ids of "NVIDIA Corporation GA100 [A100] [10de:20b2] (rev a1) (prog-if 00 [VGA])"."""
    text = _REMARKS.sub("", text)
    every = list(_ID.finditer(text))
    ids = every[-1] if every else None   # a name may have brackets of its own
    if ids:
        text = text[:ids.start()] + text[ids.end():]
    vendor = next((name for name in VENDORS if text.startswith(name)), "")
    name = clean(text[len(vendor):]).removesuffix("Device") if text.endswith(" Device") else clean(text[len(vendor):])
    unknown = _UNKNOWN.match(name)
    return {"vendor": vendor, "name": name, "vendor_id": ids[1] if ids else VENDORS.get(vendor, ""),
            "device_id": ids[2] if ids else unknown[1] if unknown else ""}


def _machine(rest: str) -> dict[str, Any] | None:
    """-mm: "class" "vendor" "device" -rREV "subsystem" …; the numbers in brackets under -nn."""
    words = _QUOTED.findall(rest)
    if len(words) < 3:
        return None
    found: dict[str, Any] = {}
    for key, word in zip(("class", "vendor", "device"), words, strict=False):
        found |= _worded(key, word)
    return found if found.get("class_id") else None


def _worded(key: str, word: str) -> dict[str, Any]:
    bare = re.match(r"[0-9a-f]{4}\Z", word)
    match = _IN_BRACKETS.match(word)
    text, number = ("", word) if bare else (match[1], match[2]) if match else (word, "")
    if key == "class":
        return {"class_name": clean(text), "class_id": number or _class(text), "numeric": bool(number)}
    if key == "vendor":
        return {"vendor": clean(text), "vendor_id": number or VENDORS.get(text, "")}
    unknown = _UNKNOWN.match(text)
    return {"name": clean(text), "device_id": number or (unknown[1] if unknown else "")}


def _slot_value(slot: dict[str, Any], line: str) -> bool:
    """A line "Key:<TAB>value" of -vmm."""
    key, colon, value = line.partition(":")
    key, value = key.strip().lower(), value.strip()
    if not colon or not value:
        return False
    if key in ("class", "vendor", "device"):
        slot |= _worded(key, value)
    elif key == "numanode":
        slot["numa"] = maybe_integer(value)
    elif key == "driver":
        slot["driver"] = clean(value)
    elif key == "rev":
        slot["revision"] = clean(value, 10)
    else:
        return key in ("svendor", "sdevice", "physlot", "progif", "module", "iommugroup", "dtnode")
    return True


def _detail(values: dict[str, Any], line: str) -> None:
    """A line below a device under -v or -k."""
    if line.startswith("NUMA node:"):
        values["numa"] = maybe_integer(line[10:])
    elif line.startswith("Kernel driver in use:"):
        values["driver"] = clean(line[21:])
    elif line.startswith("Bus: primary="):
        buses = _BUSES.match(line)
        if buses:
            values |= {"secondary": int(buses[2], 16), "subordinate": int(buses[3], 16)}
    elif line.startswith(("LnkCap:", "LnkSta:")):
        link = _LINK.search(line[:300])
        if link and line.startswith("LnkCap:"):
            values |= {"speed_max": link[1], "width_max": int(link[3])}
        elif link:
            low = [what for what, word in (("speed", link[2]), ("width", link[4])) if word == "downgraded"]
            values |= {"speed": link[1], "width": int(link[3]), "downgraded": tuple(low or _lower(values, link))}
    elif "Unknown header type 7f" in line:
        values["revision"] = "ff"


def _lower(values: Mapping[str, Any], link: re.Match[str]) -> list[str]:
    """Old releases do not say "(downgraded)"."""
    if link[2] or link[4] or not values.get("speed_max"):
        return []
    speed, most = float(link[1].removesuffix("GT/s") or 0), float(values["speed_max"].removesuffix("GT/s") or 0)
    width = int(link[3])
    return [what for what, low in (("speed", speed < most), ("width", 0 < width < values["width_max"])) if low]


# --- what it tells

def _reading(devices: list[LspciDevice], lines: Sequence[str]) -> Reading:
    numa = any(device.numa is not None for device in devices)
    where, above = {device.address: device for device in devices}, paths(devices)
    virtual = virtual_functions(devices)
    gpus = [device for device in devices if device.is_gpu and device.address not in virtual]
    nics = [device for device in devices if device.is_nic]
    tree = any(device.secondary is not None for device in devices)
    known: dict[str, Any] = {
        "devices": len(devices), "gpus": [_known_gpu(gpu, where) for gpu in gpus],
        "nics": [_known_nic(nic) for nic in nics],
        "nvswitches": [{"pci": d.printed, "numa": d.numa} if numa else d.printed for d in devices if d.is_nvswitch],
        "not_gpus": [d.printed for d in devices if d.class_id.startswith("03") and not d.is_gpu],
        "nvme": sum(device.class_id == "0108" for device in devices), "cores_if_determined": None,
        "links_downgraded": [device.printed for device in devices if device.downgraded],
    }
    if virtual:
        known["gpu_virtual_functions"] = [device.printed for device in devices if device.address in virtual]
    if tree:
        _nearest(known, gpus, nics, above)
    first = devices[0].line or 1
    last = devices[-1].line or first
    while last < len(lines) and lines[last][:1] in ("\t", " ") and lines[last].strip():
        last += 1
    return Reading(kind="lspci", first=first, last=last, value=tuple(devices), known=known,
                   findings=tuple(_findings(devices)), missing=())


def _nearest(known: dict[str, Any], gpus: list[LspciDevice], nics: list[LspciDevice],
             above: Mapping[str, tuple[str, ...]]) -> None:
    """Adds the NICs under a common bridge, and the rail NIC: of the one model of which every GPU has exactly one."""
    numbers = {bridge: place for place, bridge in enumerate(sorted({b for path in above.values() for b in path}), 1)}

    def path(device: LspciDevice) -> tuple[int, ...]:
        # One step for the CPU, which lspci does not tell: only what is below a common bridge is near.
        return (0, *(numbers[bridge] for bridge in above[device.address]))

    models = {nic.printed: nic.pci_id + nic.name for nic in nics}
    near_gpu = {}
    for gpu, told in zip(gpus, known["gpus"], strict=True):
        near, relation = nearest(path(gpu), [(nic.printed, path(nic)) for nic in nics])
        near_gpu[gpu.printed] = near if relation == "same switch" else []
        if near_gpu[gpu.printed]:
            told |= {"nearest_nics": near, "relation": relation}
    for nic, told in zip(nics, known["nics"], strict=True):
        near, relation = nearest(path(nic), [(gpu.printed, path(gpu)) for gpu in gpus])
        if relation == "same switch":
            told["nearest_gpus"] = near
    rails = [model for model in set(models.values()) if near_gpu and all(
        sum(models[nic] == model for nic in near) == 1 for near in near_gpu.values())]
    for gpu, told in zip(gpus, known["gpus"], strict=True):
        if len(rails) == 1:
            told["rail_nic"] = next(nic for nic in near_gpu[gpu.printed] if models[nic] == rails[0])


def _known_gpu(gpu: LspciDevice, where: Mapping[str, LspciDevice]) -> dict[str, Any]:
    bridge = where.get(gpu.parent)
    told: dict[str, Any] = {"pci": gpu.printed, "id": gpu.pci_id or None, "name": gpu.name or None,
                            "class": gpu.class_id, "numa": gpu.numa, "driver": gpu.driver or None,
                            "bridge": f"{bridge.printed} {bridge.device_id}".strip() if bridge else None}
    return {key: value for key, value in told.items() if value is not None or key == "numa"}


def _known_nic(nic: LspciDevice) -> dict[str, Any]:
    told: dict[str, Any] = {
        "pci": nic.printed, "id": nic.pci_id or None, "name": nic.name or None, "model": nic.name or None,
        "class": nic.class_id if nic.numeric else nic.class_name.partition(" ")[0], "numa": nic.numa,
        "rdma_or_fabric": nic.rdma, "driver": nic.driver or None,
        "virtual_function": "Virtual Function" in nic.name or None,
    }
    return {key: value for key, value in told.items() if value is not None or key == "numa"}


def _findings(devices: list[LspciDevice]) -> Iterator[Finding]:
    for device in devices:
        what = "GPU" if device.is_gpu else "NIC" if device.is_nic else "NVSwitch" if device.is_nvswitch else \
            clean(device.class_name, 60) or "device"
        if device.revision == "ff":
            yield Finding(f"{what} {device.printed} answers with ff only: it has fallen off the bus", device.line)
        if device.downgraded:
            # An idle GPU slows its link, and a bridge's port is as slow as what is plugged into it.
            calm = not (device.is_gpu or device.is_nic) or (device.is_gpu and device.downgraded == ("speed",))
            yield Finding(f"{what} {device.printed}: the link runs at {device.speed} x{device.width}, at most "
                          f"{device.speed_max} x{device.width_max} ({' and '.join(device.downgraded)} downgraded)",
                          device.line, note=calm)

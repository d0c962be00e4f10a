"""The NVIDIA kernel driver's own word: its version, GPUs with minor numbers, and the device files there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, lines_of, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._smi import Shown, Smi
from hpcadmin.model import Gpu

NAME = "nvidia_proc"
FORMS = ("text", "tree")
MARKS = ("Model:",)
KIND = "/proc/driver/nvidia"
COMMAND = r"""
p=/proc/driver/nvidia
for f in /dev/nvidia[0-9]*; do [ -c "$f" ] && echo "file $f"; done
if [ -d $p ]; then
  { read -r v <$p/version && echo "version $v"; } 2>/dev/null
  for d in $p/gpus/*; do
    [ -d "$d" ] || continue
    echo "gpu ${d##*/}"
    { while read -r v; do echo "$v"; done <$d/information; } 2>/dev/null
  done
fi
echo end=nvidia
"""
_VERSION = re.compile(r"NVRM version: [A-Za-z_ 0-9]{0,120}? ([0-9]{1,4}(?:\.[0-9]{1,4}){1,3}) ")


@dataclass(frozen=True)
class ProcGpu:
    pci: str
    model: str = ""
    uuid: str = ""                   # "" also where the driver prints GPU-????????: it does not answer
    minor: int | None = None
    vbios: str = ""
    excluded: bool = False


@dataclass(frozen=True)
class NvidiaProc:
    loaded: bool
    driver: str
    gpus: tuple[ProcGpu, ...]
    files: tuple[str, ...]
    files_known: bool = True         # False: nobody looked into /dev


def parse(text: str) -> NvidiaProc:
    lines = lines_of(text, "/proc/driver/nvidia")
    if lines[-1].strip() != "end=nvidia":
        raise ParseError("the list of /proc/driver/nvidia is cut off")
    files: list[str] = []
    blocks: list[dict[str, str]] = []
    driver = ""
    loaded = False
    for line in lines[:-1]:
        word, _, rest = line.strip().partition(" ")
        if word == "file":
            files.append(clean(rest))
        elif word == "version":
            loaded = True
            match = _VERSION.match(rest + " ")
            driver = match[1] if match else ""
        elif word == "gpu":
            blocks.append({"pci": pci_address(rest)})
        elif blocks and ":" in line:
            key, _, value = line.partition(":")
            blocks[-1].setdefault(key.strip(), clean(value))
    if any(not block["pci"] for block in blocks):
        raise ParseError("a GPU in /proc/driver/nvidia/gpus has no PCI address")
    return NvidiaProc(loaded=loaded, driver=driver, gpus=tuple(map(_gpu, blocks)), files=tuple(files))


def _gpu(block: dict[str, str]) -> ProcGpu:
    uuid = block.get("GPU UUID", "")
    return ProcGpu(
        pci=block["pci"], model=block.get("Model", ""), uuid=uuid if "?" not in uuid else "",
        minor=maybe_integer(block.get("Device Minor")), vbios=block.get("Video BIOS", "").replace("??.??.??.??.??", ""),
        excluded=block.get("GPU Excluded", "").lower() == "yes",
    )


# --- texts that people have ----------------------------------------------------------------------------------------

_MODEL = re.compile(r"\s{0,16}Model:\s{1,8}(\S.{0,100})")
_FIELD = re.compile(r"\s{0,16}([A-Z][A-Za-z /]{1,30}):\s{1,16}(\S.{0,120}?)\s{0,20}\Z")
_TREE = re.compile(r"proc/driver/nvidia/gpus/([0-9a-fA-F:.]{7,16})/information\Z")
_KEYS = frozenset({"Model", "IRQ", "GPU UUID", "Video BIOS", "Bus Type", "DMA Size", "DMA Mask", "Bus Location",
                   "Device Minor", "GPU Firmware", "GPU Excluded", "Blacklisted"})


def read(document: Document) -> tuple[Reading, ...]:
    """information of /proc/driver/nvidia/gpus/*, one after the other or out of a dump of /proc."""
    if document.form == "tree":
        return _read_tree(document)
    lines = _smi.unquoted(document.lines)
    readings = []
    for blocks in _runs(lines):
        first, last = blocks[0][0], blocks[-1][1]
        driver = next((match[1] for line in lines[max(0, first - 6):last] if "NVRM version" in line
                       and (match := _VERSION.search(line + " "))), "")
        readings.append(_reading([fields for *_, fields in blocks], driver, first, last))
    return tuple(readings)


def _runs(lines: Sequence[str]) -> Iterator[list[tuple[int, int, dict[str, str]]]]:
    """Blocks that stand together, each with its first and last line."""
    run: list[tuple[int, int, dict[str, str]]] = []
    for number, line in enumerate(lines, 1):
        if _MODEL.match(line) and number < len(lines) and any("IRQ:" in below or "GPU UUID:" in below
                                                              for below in lines[number:number + 3]):
            if run and number - run[-1][1] > 6:
                yield run
                run = []
            run.append((number, number, {}))
        match = _FIELD.match(line) if run and number - run[-1][1] <= 1 else None
        if match and match[1] in _KEYS:
            first, _, fields = run[-1]
            fields.setdefault(match[1], clean(match[2]))
            run[-1] = (first, number, fields)
    if run:
        yield run


def _read_tree(document: Document) -> tuple[Reading, ...]:
    blocks = []
    for path in sorted(document.tree):
        match = _TREE.match(path)
        if match:
            found = (_FIELD.match(line) for line in document.tree[path].split("\n"))
            fields = {field[1]: clean(field[2]) for field in found if field}
            blocks.append({"Bus Location": match[1], **fields})
    if not blocks:
        return ()
    version = _VERSION.search(document.tree.get("proc/driver/nvidia/version", "").split("\n")[0] + " ")
    return (_reading(blocks, version[1] if version else "", 1, 1),)


def _reading(blocks: Sequence[dict[str, str]], driver: str, first: int, last: int) -> Reading:
    gpus = tuple(_gpu({**block, "pci": pci_address(block.get("Bus Location", ""))}) for block in blocks)
    addresses = [gpu.pci for gpu in gpus]
    if len(set(addresses)) != len(addresses) and all(addresses):
        raise ParseError(f"a GPU's PCI address appears twice in {KIND}", where=str(first))
    missing = [f"the address of the GPU with minor number {gpu.minor}" for gpu in gpus if not gpu.pci]
    told = [Finding(f"GPU {gpu.pci} is excluded from use by the driver's parameters") for gpu in gpus if gpu.excluded]
    silent = [gpu.pci for gpu, block in zip(gpus, blocks, strict=True) if "?" in block.get("GPU UUID", "")]
    told += [Finding(f"GPU {pci}: the driver does not know its UUID: it was not opened yet, or does not answer",
                     note=True) for pci in silent]
    shown = tuple(Shown(Gpu("nvidia", None, gpu.model, gpu.uuid, pci=gpu.pci, minor=gpu.minor, vbios=gpu.vbios),
                        minor_text=None if gpu.minor is None else str(gpu.minor)) for gpu in gpus)
    made = _smi.reading(KIND, Smi(driver, None, shown), first, last, missing=missing, count=len(shown), told=told)
    return Reading(KIND, first, last, NvidiaProc(True, driver, gpus, (), files_known=False), made.known,
                   made.findings, made.missing, made.refused)

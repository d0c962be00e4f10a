"""The NVIDIA kernel driver's own word: its version, GPUs with minor numbers, and the device files there are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, maybe_integer, pci_address

NAME = "nvidia_proc"
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

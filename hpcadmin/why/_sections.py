"""The texts that a node was read from, cut into the outputs of single commands, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hpcadmin.documents import is_capture

_HEAD = re.compile(r"HPCADMIN-CAPTURE [0-9]{1,6} ([0-9a-f]{16,64})\s*\Z")
# What a document is of -> the fact of the probe whose output looks the same.
_SECTION_OF = {
    "lscpu": "lscpu", "nvidia-smi -q": "nvidia_smi", "nvidia-smi -q -x": "nvidia_smi",
    "nvidia-smi topo -m": "nvidia_topo", "nvidia-smi -L": "nvidia_list", "nvidia-smi nvlink -s": "nvidia_nvlink",
    "/proc/driver/nvidia": "nvidia_proc", "ibstat": "ibstat", "slurmd -C": "slurmd", "numactl -H": "numactl",
    "dmidecode -t memory": "dimms", "dmidecode": "dimms", "ipmitool": "bmc", "/proc/cmdline": "command_line",
    "lspci": "lspci", "/etc/os-release": "os_release", "chronyc tracking": "time_sync", "/proc/meminfo": "meminfo",
}


@dataclass(frozen=True)
class Text:
    """The text of one source of a node."""

    path: str
    text: str
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """Output of one command. first: the number of its first line in the file."""

    path: str
    name: str
    lines: tuple[str, ...]
    first: int = 1


def sections(text: Text) -> Iterator[Section]:
    """Of a capture of ours each fact's output; any other text is the output of all tools that were found in it."""
    lines = text.text.replace("\r\n", "\n").split("\n")
    if not is_capture(text.text):
        for kind in text.kinds or ("",):
            yield Section(text.path, _SECTION_OF.get(kind, kind), tuple(lines))
        return
    token = ""
    name, start = "", 0
    for number, line in enumerate(lines, 1):
        if not token:
            head = _HEAD.match(line)
            token = head[1] if head else ""
        elif line.startswith(f"@{token} "):
            if name:
                yield Section(text.path, name, tuple(lines[start:number - 1]), start + 1)
            words = line.split(" ")
            name, start = (words[2] if len(words) > 2 and words[1] == "begin" else ""), number
    if name:
        yield Section(text.path, name, tuple(lines[start:]), start + 1)

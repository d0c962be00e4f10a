"""The texts that a node was read from, opened again and cut into the outputs of single commands, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hpcadmin.documents import MAX_BYTES, decode, documents, is_capture
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded
from hpcadmin.model import Source

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


def open_sources(sources: Sequence[Source]) -> tuple[list[Text], list[str]]:
    """(the texts that are as they were, a line for each that is not)."""
    texts, complaints = [], []
    for source in sources:
        try:
            raw = read_bounded(Path(source.path), limit=MAX_BYTES)
        except StoreError as exc:
            complaints.append(f"{source.path}: {exc.what}: what was read from it cannot be shown")
            continue
        text = decode(raw)
        forms = [raw, text.encode("utf-8", "surrogateescape")]
        if source.sha256 and not is_capture(text):
            forms += [document.text.encode("utf-8", "surrogateescape") for document in documents(source.path, raw)]
        if source.sha256 and source.sha256 not in {sha256(form).hexdigest() for form in forms}:
            complaints.append(f"{source.path}: is not what it was when the node was read from it")
            continue
        texts.append(Text(source.path, text, source.kinds))
    return texts, complaints


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

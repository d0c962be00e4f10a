"""`nvidia-smi -q` as text: sections by their indentation, also where a paste has lost it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading, each_read
from hpcadmin.facts._smi import Shown, Smi
from hpcadmin.facts._smi_fields import Block, shown, version

FORMS = ("text",)
MARKS = ("NVSMI LOG", "GPU ")
KIND = "nvidia-smi -q"

_LOG = re.compile(r"[\s>|#*]{0,20}=={4,40}\s?NVSMI LOG\s?=={4,40}\s*\Z")
_GPU = re.compile(r"([\s>]{0,40})GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s*\Z")
_SECTION = re.compile(r"[A-Z][A-Za-z0-9 .,/&()-]{1,60}\Z")
_HEAD = {"driver version": "driver", "kmd version": "driver", "cuda version": "cuda", "cuda umd version": "cuda",
         "attached gpus": "attached", "timestamp": "time"}
_LAST = ("processes", "compute processes", "accounted processes", "capabilities")
# In a text without indentation, what stands after the MIG devices.
_AFTER_MIG = ("accounting mode", "driver model", "serial number")


@dataclass
class _Gpu:
    pci: str
    line: int
    indent: int
    values: dict[str, str] = field(default_factory=dict)
    migs: list[dict[str, str]] = field(default_factory=list)
    stack: list[tuple[int, str]] = field(default_factory=list)
    tops: list[str] = field(default_factory=list)
    flat: bool | None = None
    mig_indent: int | None = None
    latest: tuple[dict[str, str], tuple[str, ...]] | None = None


@dataclass
class _Log:
    first: int
    last: int
    head: dict[str, str] = field(default_factory=dict)
    gpus: list[_Gpu] = field(default_factory=list)
    headed: bool = False             # begins with its banner or its first lines


def read(document: Document) -> tuple[Reading, ...]:
    lines = _smi.unquoted(document.lines)
    return each_read(document.name, logs(lines), lambda log: _reading(lines, log))


def parse(text: str) -> Smi:
    """One whole output; ParseError for anything else."""
    found = read(Document("nvidia-smi -q", lines=tuple(text.split("\n"))))
    if len(found) != 1 or found[0].missing:
        raise ParseError("no whole output of nvidia-smi -q" + (f": {found[0].missing[0]}" if found else ""))
    value = found[0].value
    assert isinstance(value, Smi)  # noqa: S101
    return value


# --- finding it in a text ------------------------------------------------------------------------------------------


def logs(lines: Sequence[str]) -> Iterator[_Log]:
    log: _Log | None = None
    for number, line in enumerate(lines, 1):
        heading = _GPU.match(line) if "GPU " in line else None
        if "NVSMI LOG" in line and _LOG.match(line):
            if log and log.gpus:
                yield log
            log = _Log(number, number, headed=True)
        elif heading and (log is not None or _follows(lines, number)):
            log = log or _Log(number, number)
            log.gpus.append(_Gpu(pci_address(heading[2]), number, len(heading[1].expandtabs(8))))
            log.last = number
        elif log is not None and not _take(log, line, number):
            if log.gpus or log.head:
                yield log
            log = None
    if log is not None and (log.gpus or log.head):
        yield log


def _follows(lines: Sequence[str], number: int) -> bool:
    """Whether what stands below a line "GPU 0000:01:00.0" looks like its fields."""
    return any(" : " in line and _leaf(line) for line in lines[number:number + 3])


def _leaf(line: str) -> tuple[int, str, str | None] | None:
    """(indent, key, value) of "    Key   : value", value None for a heading; None for anything else."""
    return _short_leaf(line) if len(line) < 200 else _any_leaf(line)


def _any_leaf(line: str) -> tuple[int, str, str | None] | None:
    key, colon, rest = line.partition(":")
    name = " ".join(key.split())
    indent = len(line[:len(line) - len(line.lstrip(" \t"))].expandtabs(8))
    if colon and 0 < len(name) <= 80 and (not rest or rest[0] in " \t"):
        return indent, name, clean(rest)
    return (indent, line.strip(), None) if not colon and _SECTION.match(line.strip()) else None


_short_leaf = lru_cache(maxsize=1 << 13)(_any_leaf)      # of many GPUs and nodes most lines are the same


def _take(log: _Log, line: str, number: int) -> bool:
    """False for a line that is not of the output."""
    if not line.strip():
        return True
    leaf = _leaf(line)
    if leaf is None:
        return False
    indent, name, value = leaf
    if not log.gpus:
        if value is None or name.lower() not in _HEAD:
            return False
        log.head.setdefault(_HEAD[name.lower()], value)
    else:
        gpu = log.gpus[-1]
        if gpu.flat is None:
            gpu.flat = indent <= gpu.indent
        if (not gpu.flat and indent <= gpu.indent) or (gpu.flat and value is None and not _titled(name)):
            return False
        _put(gpu, indent, name.lower(), value)
    log.last = number
    return True


def _titled(text: str) -> bool:
    """As the headings of -q are written; prose is not."""
    words = text.split()
    return len(words) <= 6 and all(word[0].isupper() or not word[0].isalpha() for word in words)


def _put(gpu: _Gpu, indent: int, name: str, value: str | None) -> None:
    if gpu.flat:
        if value is None:
            gpu.stack = [(0, name)]
        elif name in _AFTER_MIG:
            gpu.mig_indent = None
    else:
        while gpu.stack and gpu.stack[-1][0] >= indent:
            gpu.stack.pop()
        if gpu.mig_indent is not None and indent <= gpu.mig_indent:
            gpu.mig_indent = None
    if not gpu.stack or gpu.flat:
        gpu.tops.append(name)
    if value is None:
        if name == "mig device":
            gpu.migs.append({})
            gpu.mig_indent = indent
        if not gpu.flat:
            gpu.stack.append((indent, name))
        return
    above = [section for _, section in gpu.stack]
    target = gpu.migs[-1] if gpu.mig_indent is not None and gpu.migs else gpu.values
    if target is not gpu.values and "mig device" in above:
        above = above[above.index("mig device") + 1:]
    paths = {"/".join([*above, name]), "/".join([*above[-1:], name])} if above else {name}
    if gpu.flat:
        paths.add(name)                  # a section's end is not to be seen there
    fresh = tuple(path for path in paths if path not in target)
    target.update(dict.fromkeys(fresh, value))
    gpu.latest = (target, fresh)


# --- what it says --------------------------------------------------------------------------------------------------


def _reading(lines: Sequence[str], log: _Log) -> Reading:
    if len(log.gpus) > _smi.MAX_GPUS:
        raise ParseError(f"{len(log.gpus)} GPUs are no node's")
    attached = maybe_integer(log.head.get("attached"))
    complaints = _smi.near(lines, log.first, log.last)
    lost = tuple(said.lost for said in complaints if said.lost)
    cut = bool(log.gpus) and _is_cut(log)
    if cut and log.gpus[-1].latest:
        target, paths = log.gpus[-1].latest
        for path in paths:               # the last line may end within its value
            target.pop(path, None)
    found = [shown(Block(gpu.values, False, gpu.migs, gpu.pci, gpu.line), number)
             for number, gpu in enumerate(log.gpus)]
    if len({one.gpu.pci for one in found}) != len(found):
        raise ParseError("a GPU's PCI address appears twice")
    missing = list(_missing(log, found, attached, cut, lost))
    whole = not cut and log.headed and attached == len(found) and not lost
    found = list(_smi.placed(found, whole or (log.headed and attached is not None and cut)))
    smi = Smi(version(log.head.get("driver")), attached, tuple(found), lost, version(log.head.get("cuda")), whole)
    told = [Finding(what, log.first, note=True) for what in _strange(log)]
    return _smi.reading(KIND, smi, log.first, log.last, complaints=complaints, missing=missing, count=attached,
                        told=told)


def _is_cut(log: _Log) -> bool:
    """A block ends with its processes; without a product name it is of -q -d, which shows parts only."""
    last = log.gpus[-1]
    return "product name" in last.values and not any(name.startswith(_LAST) for name in last.tops)


def _missing(
    log: _Log, found: Sequence[Shown], attached: int | None, cut: bool, lost: Sequence[_smi.LostGpu],
) -> Iterator[str]:
    if cut:
        yield f"the output is cut off in GPU {log.gpus[-1].pci} (line {log.last})"
    elif not log.gpus and attached != 0:
        yield "no GPU is shown: the output is cut off after its head"
    yield from _smi.too_few(attached, found, lost)
    if attached is None:
        yield "its head with the number of attached GPUs"
    parts = [one for one in found if not one.gpu.model and not one.name_cut and not one.faults]
    if parts and not cut:
        yield "names and minor numbers of the GPUs: it shows only a part of -q"
    for one in found:
        if one.minor_text is None and one not in parts and not (cut and one is found[-1]) and not one.faults:
            yield f"minor number of {_smi.name_of(one)}: its device file is not known"


def _strange(log: _Log) -> Iterator[str]:
    """Keys that no nvidia-smi prints."""
    odd = sorted({path.rsplit("/", 1)[-1] for gpu in log.gpus for path in gpu.values
                  if path.rsplit("/", 1)[-1].startswith("invalid ")})
    if odd:
        yield f"keys that nvidia-smi does not print: {', '.join(odd[:5])}"

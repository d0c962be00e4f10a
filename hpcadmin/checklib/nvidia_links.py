"""Reads `nvidia-smi nvlink -s` (the links and their rates) and `nvlink -e` (their error counters)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hpcadmin.check import Measurement, NodeView, ParseError, Subject
from hpcadmin.checklib import lines_of
from hpcadmin.checklib.nvidia import MAX_BYTES
from hpcadmin.text import printable

_GPU = re.compile(r"GPU (\d{1,3}): (.{1,120}?) \(UUID: (\S{1,60})\)\Z")
_LINK = re.compile(r"Link (\d{1,2}): (?:(\d{1,4}(?:\.\d{1,6})?) GB/s|(<inactive>))\Z")
_COUNT = re.compile(r"Link (\d{1,2}): ([A-Z][A-Za-z ]{2,60}?)(?::| -) *(\S.{0,30})\Z")
_NONE = ("does not have or support nvlink", "as all links are inactive", "nvlink is not supported")
# Links of boards whose GPUs are joined for good; those of cards are made by bridges, or not at all.
_BOARDS = ((re.compile(r"(?:H100 80GB HBM3|H200(?! NVL)|H20\b)"), 18, 25.0), (re.compile(r"B[23]00"), 18, 50.0),
           (re.compile(r"H800\b(?!.*(?:PCIe|NVL))"), 8, 25.0), (re.compile(r"A100-SXM"), 12, 25.0),
           (re.compile(r"A800-SXM"), 8, 25.0), (re.compile(r"V100-SXM[23]"), 6, 25.0))
# These grow while links do well: corrected beside the data, or how often a link was made.
HARMLESS = ("FEC", "Symbol", "packets", "bytes", "BER", "successful", "Total link recovery", "Effective")
_SOME = ("Replay Errors", "CRC Errors")      # a few are repaired by sending again


@dataclass
class Links:
    """The NVLinks of one GPU. rates: GB/s by link, None for one that is down. counts: by link and name."""

    index: int
    model: str
    uuid: str
    rates: dict[int, float | None] = field(default_factory=dict)
    counts: dict[tuple[int, str], str] = field(default_factory=dict)
    without: bool = False

    @property
    def up(self) -> int:
        return sum(1 for rate in self.rates.values() if rate)


def board(model: str) -> int:
    """How many NVLinks a GPU of this model always has; 0: of a card, or unknown."""
    return next((count for pattern, count, _ in _BOARDS if pattern.search(model)), 0)


def is_links(text: str) -> bool:
    return ("Link 0:" in text and bool(re.search(r"(?m)^\s{0,40}GPU \d{1,3}: ", text))) or any(
        word in text.lower() for word in _NONE)


def read(text: str) -> tuple[list[Links], list[str]]:
    """The GPUs, and the lines that tell nothing known."""
    found: list[Links] = []
    strange: list[str] = []
    for line in lines_of(text[:MAX_BYTES]):
        if found and line.startswith("Link ") and len(line) < 150 and (of_link := _of_link(line)):
            _add(found[-1], *of_link)
        elif head := _GPU.match(line):
            found.append(Links(int(head[1]), head[2], head[3]))
        elif any(word in line.lower() for word in _NONE) and found:
            found[-1].without = True
        elif line:
            strange.append(printable(line, limit=120))
    if len({gpu.uuid for gpu in found}) != len(found):
        raise ParseError("one GPU comes twice in the list of NVLinks", hint="two outputs mixed")
    return found, strange


@lru_cache(maxsize=4096)
def _of_link(line: str) -> tuple[int, str, str] | None:
    """(link, "", rate) or (link, counter, its value): most lines are the same of all GPUs, and of all nodes."""
    if link := _LINK.match(line):
        return int(link[1]), "", link[2] or ""
    count = _COUNT.match(line)
    return (int(count[1]), count[2], count[3]) if count else None


def _add(gpu: Links, link: int, name: str, value: str) -> None:
    if name:
        if (link, name) in gpu.counts:
            raise ParseError(f"GPU {gpu.index} has {name} of link {link} twice", hint="two outputs mixed")
        gpu.counts[link, name] = value
    else:
        if link in gpu.rates:
            raise ParseError(f"GPU {gpu.index} has link {link} twice", hint="two outputs mixed")
        gpu.rates[link] = float(value) if value else None


def problems(gpus: Sequence[Links], strange: Sequence[str]) -> list[str]:
    """Why a list of links is not whole."""
    found = [f"a line that is not of NVLinks: {line}" for line in strange[:3]]
    found += [] if gpus else ["no GPU is named"]
    for gpu in gpus:
        numbers = sorted(gpu.rates or {link for link, _ in gpu.counts})
        if not numbers and not gpu.without and board(gpu.model):
            found.append(f"nothing is told of the NVLinks of GPU {gpu.index}")
        if numbers != list(range(len(numbers))):
            found.append(f"links of GPU {gpu.index} are missing: only {', '.join(map(str, numbers))} are told")
        names = {name for _, name in gpu.counts}
        if len(gpu.counts) != len(names) * len({link for link, _ in gpu.counts}):
            found.append(f"counters of GPU {gpu.index} are missing")
        peers = [other for other in gpus if other.model == gpu.model and not other.without and not gpu.without]
        if any(len(other.rates) > len(gpu.rates) or len(other.counts) > len(gpu.counts) for other in peers):
            found.append(f"GPU {gpu.index} tells of fewer links or counters than others of its model")
    return found


def measurements(gpus: Sequence[Links], node: NodeView) -> list[Measurement]:
    """`nvlinks` up and `nvlink_rate` of each GPU (from -s), and its counters that are not zero (from -e)."""
    found: list[Measurement] = []
    for gpu in gpus:
        index = node.gpu_uuids.index(gpu.uuid) if gpu.uuid in node.gpu_uuids else gpu.index
        subject = Subject((node.name,) if node.name else (), f"GPU {index}")
        alike = [other for other in gpus if other.model == gpu.model]
        if gpu.rates or (gpu.without and not gpu.counts):
            least = board(gpu.model)
            best = max(other.up for other in alike)
            said = (f"{gpu.up} NVLinks are up where {best} could be",) if not least and gpu.up < best else ()
            found.append(Measurement("nvlinks", gpu.up, subject=subject, warnings=said,
                                     expected=gpu.up if said else max(least, best)))
        rates = {rate for rate in gpu.rates.values() if rate}
        if rates:
            fastest = max(rate or 0.0 for other in alike for rate in other.rates.values())
            nominal = next((rate for pattern, _, rate in _BOARDS if pattern.search(gpu.model)), 0.0)
            fastest = fastest if fastest > 0.95 * nominal else nominal
            found.append(Measurement("nvlink_rate", min(rates), "GB/s", subject=subject, expected=fastest))
        if gpu.counts:
            found.append(_errors(gpu, subject))
    return found


def _errors(gpu: Links, subject: Subject) -> Measurement:
    bad: list[str] = []
    some: list[str] = []
    for (link, name), value in sorted(item for item in gpu.counts.items() if item[1] != "0"):
        if any(word in name for word in HARMLESS):
            continue
        text = f"link {link}: {name} {printable(value, limit=40)}"
        (some if name in _SOME and re.fullmatch("[0-9]{1,18}", value) else bad).append(text)
    return Measurement("nvlink_errors", "; ".join(bad[:6]) or "none", subject=subject, expected="none",
                       warnings=("; ".join(some[:6]),) if some else ())

"""`nvidia-smi nvlink`: the links of each GPU (-s), what is at their other ends (-R, -p), their errors (-e)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts import _smi
from hpcadmin.facts._base import clean, leading_float, maybe_integer, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.text import fold_ids

NAME = "nvidia_nvlink"
ORDER = 95
COMMAND = """
run 10 nvidia-smi nvlink -s || return $?
echo end=nvlink
"""
FORMS = ("text",)
MARKS = ("(UUID:",)
KIND = "nvidia-smi nvlink -s"
MAX_LINK = 64

_GPU = re.compile(r"GPU ([0-9]{1,3}): ([^\n]{1,120}?) {1,4}\(UUID: ([^()\s]{1,80})\)?\s*\Z")
_LINK = re.compile(r"(?:GPU [0-9]{1,3}: )?Link ([0-9]{1,2})\s?[:,] {0,4}(\S.{0,120})\Z")
_RATE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4})?) GB/s\Z")
_REMOTE = re.compile(r"(?:Remote Device )?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
                     r"(?:: Link ([0-9]{1,2}))?\Z")
_COUNT = re.compile(r"([A-Z][A-Za-z ]{2,40}(?:Errors?|errors?)(?: [A-Za-z0-9]{1,10})?): ([0-9]{1,20})\Z")
_ALL_DOWN = re.compile(r"NVML: Unable to retrieve NVLink information as all links are inactive", re.IGNORECASE)
_NONE = re.compile(r"Device does not have or support NVLink", re.IGNORECASE)
_ELLIPSIS = re.compile(r"[\s.…]{1,40}\Z")
# Links of the boards that always have all of them: name -> number.
_BOARDS = ((re.compile(r"V100-SXM"), 6), (re.compile(r"P100-SXM"), 4), (re.compile(r"A100-SXM"), 12),
           (re.compile(r"A800-SXM"), 8), (re.compile(r"H800\b(?!.*(?:PCIe|NVL))"), 8),
           (re.compile(r"(?:H100 80GB HBM3|H20\b|(?<!G)H200\b(?!.*NVL)|B200\b|B300\b)"), 18))
# Boards that are only ever joined two by two, by bridges.
_BRIDGED = re.compile(r"(?:PCIe?\b|\bNVL\b|RTX|A40\b|A30\b|A6000|A5\d00|A4500|Quadro|GeForce|TITAN)", re.IGNORECASE)


@dataclass(frozen=True)
class Link:
    """rate_gbs None: it is inactive, where `active` says so; or not told. remote: PCI address at its other end."""

    number: int
    rate_gbs: float | None = None
    active: bool | None = None
    remote: str = ""
    errors: int = 0


@dataclass(frozen=True)
class LinkedGpu:
    index: int
    model: str
    uuid: str
    links: tuple[Link, ...] = ()
    all_down: bool = False           # "all links are inactive"
    supported: bool | None = None    # False: it has no NVLink
    line: int | None = None
    cut: bool = False

    @property
    def active(self) -> int | None:
        """None: the text does not tell."""
        if self.all_down or self.supported is False:
            return 0
        told = [link.active for link in self.links]
        return sum(map(bool, told)) if told and None not in told else None

    @property
    def inactive(self) -> int | None:
        return sum(link.active is False for link in self.links) if self.links and self.active is not None else None


@dataclass(frozen=True)
class NvLinks:
    gpus: tuple[LinkedGpu, ...]


@dataclass
class _Gpu:
    index: int
    model: str
    uuid: str
    line: int
    links: dict[int, Link] = field(default_factory=dict)
    all_down: bool = False
    supported: bool | None = None
    cut: bool = False
    last: int = 0


def parse(text: str) -> NvLinks:
    """Raises ParseError where no GPU is shown, unless the tool came to its end: without NVLink it may print nothing."""
    found = [_freeze(gpus) for gpus in _blocks(text.split("\n"))]
    if not found and text.strip() == "end=nvlink":
        return NvLinks(())
    if len(found) != 1:
        first = next((line for line in text.split("\n") if line.strip()), "")
        raise ParseError("several outputs of nvidia-smi nvlink" if found else
                         f"no links of nvidia-smi nvlink -s: {clean(first)}" if first else
                         "nvidia-smi nvlink -s printed nothing")
    return NvLinks(found[0])


def read(document: Document) -> tuple[Reading, ...]:
    lines = _smi.unquoted(document.lines)
    try:
        blocks = list(_blocks(lines))
    except ParseError as exc:
        raise ParseError(exc.what, where=exc.where or document.name) from exc
    return tuple(_reading(lines, gpus) for gpus in blocks if any(_tells(gpu) for gpu in gpus))


def _tells(gpu: _Gpu) -> bool:
    """Names alone are nvidia-smi -L."""
    return bool(gpu.links or gpu.all_down or gpu.supported is False)


# --- finding it ----------------------------------------------------------------------------------------------------


def _blocks(lines: Sequence[str]) -> Iterator[list[_Gpu]]:
    gpus: list[_Gpu] = []
    skipped = 0
    for number, line in enumerate(lines, 1):
        text = " ".join(line.split()) if len(line) < 400 else ""
        heading = _GPU.match(text) if text.startswith("GPU ") else None
        if heading:
            index = int(heading[1])
            known = next((gpu for gpu in gpus if gpu.index == index), None)
            if known and (known.uuid != heading[3] or gpus[0] is known):
                yield gpus
                gpus, known = [], None
            if known is None:
                gpus.append(_Gpu(index, clean(heading[2]), heading[3], number, last=number))
            skipped = 0
        elif gpus and _take(gpus[-1], text, number):
            skipped = 0
        elif gpus and text:
            skipped += 1
            if _ELLIPSIS.match(text):
                gpus[-1].cut = True
                skipped = 0
            elif skipped > 3:
                yield gpus
                gpus = []
    if gpus:
        yield gpus


def _take(gpu: _Gpu, text: str, number: int) -> bool:
    match = _LINK.match(text)
    if match:
        link = int(match[1])
        if link >= MAX_LINK:
            raise ParseError(f"link {link} is no NVLink of a GPU")
        gpu.links[link] = _link(gpu.links.get(link, Link(link)), match[2].strip())
    elif _ALL_DOWN.search(text):
        gpu.all_down = True
    elif _NONE.search(text):
        gpu.supported = False
    else:
        return False
    gpu.last = number
    return True


def _link(link: Link, text: str) -> Link:
    rate, remote, count = _RATE.match(text), _REMOTE.match(text), _COUNT.match(text)
    if rate:
        return replace(link, rate_gbs=leading_float(rate[1]), active=True)
    if text.strip("<>").lower() in ("inactive", "in-active"):
        return replace(link, active=False)
    if remote:
        return replace(link, remote=pci_address(remote[1]))
    if count:
        return replace(link, errors=link.errors + (maybe_integer(count[2]) or 0))
    return link


def _freeze(gpus: Sequence[_Gpu]) -> tuple[LinkedGpu, ...]:
    return tuple(LinkedGpu(gpu.index, gpu.model, _smi.whole_uuid(gpu.uuid),
                           tuple(gpu.links[n] for n in sorted(gpu.links)), gpu.all_down,
                           gpu.supported, gpu.line, gpu.cut) for gpu in gpus)


# --- what it says --------------------------------------------------------------------------------------------------


def board_links(model: str) -> int | None:
    """How many NVLinks such a board has, where all of its kind have as many."""
    return next((count for pattern, count in _BOARDS if pattern.search(model)), None)


def _reading(lines: Sequence[str], found: Sequence[_Gpu]) -> Reading:
    gpus = _freeze(found)
    first, last = gpus[0].line or 1, max(gpu.last for gpu in found)
    status = all(gpu.active is not None for gpu in gpus if _tells_links(gpu))
    missing = list(_missing(gpus, status))
    indexes = {gpu.index for gpu in gpus}
    gaps = [n for n in range(max(indexes) + 1) if n not in indexes]
    missing += [f"GPU {n} is not shown" for n in gaps]
    told = tuple(findings(gpus))
    links = None if missing else _matrix(gpus)
    known = {"gpus": [_known(gpu) for gpu in gpus], "links_inferred": links, "missing_indexes": gaps}
    broken = [finding.what for finding in told if not finding.note and " while " in finding.what]
    refused = "; ".join([*missing[:4], *broken[:4]])
    return Reading(KIND, first, last, NvLinks(gpus), known, told, tuple(missing), refused)


def _tells_links(gpu: LinkedGpu) -> bool:
    return bool(gpu.links or gpu.all_down or gpu.supported is False)


def _known(gpu: LinkedGpu) -> dict[str, object]:
    found: dict[str, object] = {"index": gpu.index, "name": gpu.model, "uuid": gpu.uuid or None,
                                "links_active": gpu.active, "links": [link.rate_gbs for link in gpu.links]}
    if gpu.supported is False:
        found["nvlink_supported"] = False
    remotes = {str(link.number): link.remote for link in gpu.links if link.remote}
    return {**found, **({"remote": remotes} if remotes else {})}


def _missing(gpus: Sequence[LinkedGpu], status: bool) -> Iterator[str]:
    counts = Counter(len(gpu.links) for gpu in gpus if gpu.links)
    usual = max(counts, default=0)
    for gpu in gpus:
        board = board_links(gpu.model)
        numbers = [link.number for link in gpu.links]
        if gpu.cut:
            yield f"the text is cut (\"...\") after GPU {gpu.index} with {len(numbers)} links"
        elif numbers and numbers != list(range(len(numbers))):
            yield f"links of GPU {gpu.index}: only {fold_ids(numbers)} are shown"
        elif board and numbers and len(numbers) < board:
            yield f"links of GPU {gpu.index}: {len(numbers)} are shown, {gpu.model} has {board}"
        elif gpu is gpus[-1] and numbers and len(numbers) < usual and _alike(gpus) and status:
            yield f"links of GPU {gpu.index}: {len(numbers)} are shown, its peers have {usual}: the text may be cut"
        elif not _tells_links(gpu):
            yield f"links of GPU {gpu.index}"


def _alike(gpus: Sequence[LinkedGpu]) -> bool:
    return len({gpu.model for gpu in gpus}) == 1


def findings(gpus: Sequence[LinkedGpu]) -> Iterator[Finding]:
    """Links that are down and errors, one line a GPU."""
    down = [gpu for gpu in gpus if gpu.all_down or (gpu.links and gpu.active == 0)]
    up = [gpu for gpu in gpus if gpu.active]
    for gpu in down:
        peers = [other for other in up if other.model == gpu.model]
        beside = f", those of {len(peers)} of its kind are active" if peers else ""
        yield Finding(f"GPU{gpu.index}: all NVLinks are inactive{beside}: no bridge, or a fault", gpu.line)
    for gpu in up:
        off = [link.number for link in gpu.links if link.active is False]
        if off:
            rest = [link.number for link in gpu.links if link.active]
            word = "link" if len(off) == 1 else "links"
            yield Finding(f"GPU{gpu.index} {word} {fold_ids(off)} {'is' if len(off) == 1 else 'are'} inactive while "
                          f"links {fold_ids(rest)} are active", gpu.line)
    rates = Counter(link.rate_gbs for gpu in up for link in gpu.links if link.rate_gbs is not None)
    for gpu in up:
        slow = [link for link in gpu.links if link.rate_gbs is not None and link.rate_gbs < max(rates)]
        if slow and _alike(gpus):
            yield Finding(f"GPU{gpu.index} links {fold_ids(link.number for link in slow)} run at "
                          f"{slow[0].rate_gbs:g} GB/s, others at {max(rates):g}", gpu.line)
    for gpu in gpus:
        bad = [link for link in gpu.links if link.errors]
        if bad:
            yield Finding(f"GPU{gpu.index}: {sum(link.errors for link in bad)} errors on NVLinks "
                          f"{fold_ids(link.number for link in bad)}", gpu.line, note=True)


def _matrix(gpus: Sequence[LinkedGpu]) -> list[list[int]] | None:
    """Links between GPUs where they follow: by their remote ends, or when only two bridged boards have any."""
    size = len(gpus)
    if any(link.remote for gpu in gpus for link in gpu.links):
        return None                      # remote ends are PCI addresses; the join knows whose
    if any(gpu.active is None for gpu in gpus):
        return None
    links = [[-1 if row == column else 0 for column in range(size)] for row in range(size)]
    up = [place for place, gpu in enumerate(gpus) if gpu.active]
    if not up:
        return links
    if len(up) != 2 or gpus[up[0]].active != gpus[up[1]].active or not all(_BRIDGED.search(gpus[n].model) for n in up):
        return None
    for row, column in (up, up[::-1]):
        links[row][column] = gpus[row].active or 0
    return links

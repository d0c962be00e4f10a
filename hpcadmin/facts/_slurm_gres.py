"""gres.conf: its lines, and what slurmd refuses in them (gres.conf(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hpcadmin.errors import UsageError
from hpcadmin.facts._base import cpu_list
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_rules import LinksFault, links_fault
from hpcadmin.hosts import expand

_ITEM = re.compile(r"([A-Za-z_]\w{0,30})(?::([^:,()\s]{1,120}))?(?::([0-9]{1,6}))?(\([^()]{0,80}\))?(?:,|\Z)")
# gres.conf(5): AutoDetect. nvidia and off by version; the rest from 20.11 on.
AUTODETECT = frozenset({"nvml", "rsmi", "oneapi", "nrt", "nvidia", "off", "full"})
KEYS = frozenset({"nodename", "autodetect", "count", "cpus", "cores", "file", "files", "flags", "link", "links",
                  "multiplefiles", "name", "type"})
MAX_DEVICES = 1024
MAX_NAMES = 100_000                    # hosts of all lines together


@dataclass
class GresLine:
    type: str
    files: tuple[str, ...]
    cores: str | None
    line: int
    nodes: str = ""
    flags: str = ""
    index: int | None = None
    detected: bool = False           # slurmd -G printed it
    name: str = "gpu"
    count: int | None = None
    links: str = ""
    several: bool = False            # MultipleFiles: all of them are one device
    section: int = 0

    @property
    def devices(self) -> int:
        """0: none that slurmd would take, for a GPU needs its file."""
        return 1 if self.several else len(self.files)


def expand_files(text: str) -> list[str]:
    """/dev/nvidia[0-1,3],/dev/nvidia5 as its files, in their order."""
    found = []
    for part in re.split(r",(?![^\[]*\])", text):
        if "[" in part:
            head, _, rest = part.rpartition("/")
            found += [f"{head}/{name}" if head or part.startswith("/") else name for name in expand(rest)]
        elif part:
            found.append(part)
        if len(found) > MAX_DEVICES:
            raise UsageError(f"more than {MAX_DEVICES} files")
    return found


def gres_items(text: str) -> list[tuple[str, str, int]]:
    """(name, type, count) of each in gpu:a100:2,gpu:rtx:1; a type of digits alone is a count, as Slurm takes it."""
    found = []
    for match in _ITEM.finditer(text):
        name, kind, number = match[1], match[2] or "", match[3]
        if number is None and kind.isdigit():
            kind, number = "", kind
        found.append((name, "" if kind in ("(null)", "no_consume") else kind, int(number) if number else 1))
    return found


def core_ids(text: str) -> tuple[int, ...]:
    """Cores=, with the brackets that Slurm takes as well."""
    return cpu_list(text.strip("[]"), "Cores")


def threads(cores: str) -> str | None:
    """The first half of 48-63,176-191 and the like: two ranges of one length, as the OS numbers CPUs and their
    hyperthreads. None where it is no such list."""
    parts = re.fullmatch(r"(\d{1,5})-(\d{1,5}),(\d{1,5})-(\d{1,5})", cores)
    if not parts:
        return None
    a, b, c, d = map(int, parts.groups())
    return f"{a}-{b}" if b - a == d - c > 0 and c > b + 1 else None


@lru_cache(maxsize=64)
def names(nodes: str) -> frozenset[str] | None:
    """None: every node."""
    if not nodes:
        return None
    try:
        return frozenset(expand(nodes))
    except UsageError:
        return frozenset()


def lines(found: Sequence[GresLine]) -> Iterator[Finding]:
    """What is wrong with each line alone."""
    for each in found:
        if each.detected:
            continue
        if each.name == "gpu" and each.count is not None and each.files and each.count != each.devices:
            yield Finding(f"Count={each.count} beside {each.devices} files: slurmd ends with a fatal error", each.line)
        if each.several and len(each.files) < 2:
            yield Finding("MultipleFiles= with one file: it is File= then, slurmd ends with a fatal error", each.line)
        yield from _links(each)
        half = threads(each.cores or "")
        if half:
            yield Finding(f"Cores={each.cores} are CPUs of the OS with their hyperthreads, Slurm counts cores: {half} "
                          "where the second range are the hyperthreads of the first", each.line)


def _links(line: GresLine) -> Iterator[Finding]:
    if not line.links or line.links == "(null)":
        return
    fault = links_fault(line.links)
    if fault in (LinksFault.ELEMENT, LinksFault.NUMBER):
        how = ("Slurm reads an empty one as 0, and the node is INVAL where they are too many"
               if fault is LinksFault.ELEMENT else "slurmd ignores it")
        yield Finding(f"Links={line.links[:80]}: every GPU has a number, -1 for itself, 0 for none: {how}", line.line)
    elif fault is LinksFault.SELF:
        yield Finding(f"Links={line.links[:80]} has not exactly one -1, the GPU's own place: slurmd ignores it",
                      line.line)
    elif len(line.files) > 1 and not line.several:
        yield Finding(f"Links= with {len(line.files)} files on one line: a line for each GPU, each has its own place",
                      line.line)


def by_host(found: Sequence[GresLine]) -> tuple[dict[str, int], int]:
    """(which of the lines are each host's, as bits; which are every host's). Of endless lists the first hosts only."""
    everywhere, bits, left = 0, dict[str, int](), MAX_NAMES
    where: dict[str, int] = {}
    for number, each in enumerate(found):
        where[each.nodes] = where.get(each.nodes, 0) | 1 << number
    for nodes, mask in where.items():
        own = names(nodes)
        if own is None:
            everywhere |= mask
        elif len(own) <= left:
            left -= len(own)
            for host in own:
                bits[host] = bits.get(host, 0) | mask
    return bits, everywhere


def chosen(found: Sequence[GresLine], mask: int) -> list[GresLine]:
    picked = []
    while mask:
        low = mask & -mask
        picked.append(found[low.bit_length() - 1])
        mask ^= low
    return picked


def together(found: Sequence[GresLine]) -> Iterator[Finding]:
    """What is wrong with the lines of one node: each different set of lines is looked at once."""
    mine = [each for each in found if not each.detected]
    bits, everywhere = by_host(mine)
    said: set[tuple[str, int]] = set()
    for mask in dict.fromkeys(mask | everywhere for mask in (*bits.values(), 0)):
        for finding in _one_node(chosen(mine, mask)):
            if (finding.what, finding.line or 0) not in said:
                said.add((finding.what, finding.line or 0))
                yield finding


def _one_node(group: Sequence[GresLine]) -> Iterator[Finding]:
    for section in dict.fromkeys(each.section for each in group):
        gpus = [each for each in group if each.name == "gpu" and each.section == section]
        typed = [each for each in gpus if each.type]
        if typed and len(typed) < len(gpus):
            bare = next(each for each in gpus if not each.type)
            yield Finding("some lines of gpu have Type= and others do not: slurmd ends with a fatal error", bare.line)
        where: dict[str, int] = {}
        plain: dict[str, int] = {}
        for each in gpus:
            for file in each.files if not each.several else ():
                if file in where:
                    yield Finding(f"{file} is named twice (first on line {where[file]}): slurmd ends with a fatal "
                                  "error", each.line)
                where.setdefault(file, each.line)
            if not each.files and each.type in plain:
                yield Finding("duplicate records for gpu: two lines without File= that nothing tells apart "
                              f"(first on line {plain[each.type]}): slurmd ends with a fatal error", each.line)
            elif not each.files:
                plain[each.type] = each.line
        total = sum(each.devices for each in gpus)
        for each in gpus:
            size = len(each.links.split(",")) if each.links and each.links != "(null)" else 0
            if size and len(gpus) > 1 and size > total:
                yield Finding(f"Links= has {size} numbers, the node {total} GPUs: the node is INVAL", each.line)


def types_of(text: str | None) -> set[str]:
    """The GPU types that a Gres= names."""
    return {kind for name, kind, _ in gres_items(text or "") if name == "gpu" and kind}

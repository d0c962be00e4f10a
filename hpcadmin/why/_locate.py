"""Finding lines in the outputs of commands: each locator looks for what a target's records are called there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from hpcadmin.facts._base import leading_float, pci_address
from hpcadmin.facts._smi_fields import FIELDS
from hpcadmin.model import Gpu, Nic
from hpcadmin.why._path import Target

Lines = Sequence[str]
Find = Callable[[Lines, Target], list[int]]      # places of lines, from 0
_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}m")
_GPU_HEAD = re.compile(r'\s*<gpu id="([0-9A-Fa-f:.]{7,20})">'
                       r"|GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*\Z")
SHOWN = 6                                        # lines of one output that are quoted


def _fill(form: str, target: Target) -> str | None:
    """None where the target has nothing of that name, or it is empty: then nothing may be found by it."""
    names = re.findall(r"\{([a-z_0-9]{1,20})\}", form)
    if any(not target.words.get(name) for name in names):
        return None
    for name in names:
        form = form.replace(f"{{{name}}}", target.words[name])
    return form


def start(*forms: str) -> Find:
    """Lines that begin so, blanks before them aside."""
    def find(lines: Lines, target: Target) -> list[int]:
        filled = [text for form in forms if (text := _fill(form, target)) is not None]
        return [place for place, line in enumerate(lines) if line.lstrip().startswith(tuple(filled))] if filled else []
    return find


def contains(*forms: str) -> Find:
    """Lines that have all of it."""
    def find(lines: Lines, target: Target) -> list[int]:
        filled = [_fill(form, target) for form in forms]
        wanted = [text for text in filled if text is not None]
        if len(wanted) < len(filled):
            return []
        return [place for place, line in enumerate(lines) if all(text in line for text in wanted)]
    return find


def label(*names: str) -> Find:
    """`Name: value` lines."""
    def find(lines: Lines, target: Target) -> list[int]:
        wanted = {filled.lower() for name in names if (filled := _fill(name, target))}
        return [place for place, line in enumerate(lines) if line.partition(":")[0].strip().lower() in wanted
                and ":" in line]
    return find


def first_line(lines: Lines, target: Target) -> list[int]:
    return next(([place] for place, line in enumerate(lines) if line.strip()), [])


def every(lines: Lines, target: Target) -> list[int]:
    return [place for place, line in enumerate(lines) if line.strip()]


def either(*finds: Find) -> Find:
    """What the first of them finds that finds anything."""
    def find(lines: Lines, target: Target) -> list[int]:
        return next((found for one in finds if (found := one(lines, target))), [])
    return find


def both(*finds: Find) -> Find:
    def find(lines: Lines, target: Target) -> list[int]:
        return sorted({place for one in finds for place in one(lines, target)})
    return find


def _gpu_block(lines: Lines, target: Target) -> tuple[int, int]:
    """Where the GPU's part of nvidia-smi -q begins and ends; (0, 0) where it is not there."""
    pci = target.last(Gpu).pci
    heads = [(place, pci_address(match[1] or match[2])) for place, line in enumerate(lines)
             if (match := _GPU_HEAD.match(line))]
    for number, (place, address) in enumerate(heads):
        if address == pci and pci:
            end = heads[number + 1][0] if number + 1 < len(heads) else len(lines)
            return place, end
    return 0, 0


def smi(*fields: str) -> Find:
    """Fields of hpcadmin.facts._smi_fields, in XML or text, within the part of the target's GPU."""
    def find(lines: Lines, target: Target) -> list[int]:
        begin, end = _gpu_block(lines, target)
        if begin == end:
            return []
        xml = "<gpu" in lines[begin]
        for field in fields:
            for path in FIELDS[field][0 if xml else 1]:
                found = _descend(lines, begin, end, path.split("/"), xml)
                if found is not None:
                    return [found]
        return []
    return find


def smi_tag(tag: str) -> Find:
    """All elements of that name within the GPU's part."""
    def find(lines: Lines, target: Target) -> list[int]:
        begin, end = _gpu_block(lines, target)
        return [place for place in range(begin, end) if lines[place].lstrip().startswith(f"<{tag}>")]
    return find


def smi_head(lines: Lines, target: Target) -> list[int]:
    begin, end = _gpu_block(lines, target)
    return [begin] if end > begin else []


def _descend(lines: Lines, begin: int, end: int, names: list[str], xml: bool) -> int | None:
    """The line of the innermost of the nested names."""
    place = begin
    for name in names:
        for here in range(place, end):
            line = lines[here].strip()
            if (line.startswith(f"<{name}>") if xml else line.partition(":")[0].strip().lower() == name):
                place = here
                break
        else:
            return None
    return place


def in_block(head: str, inner: str, stop: str) -> Find:
    """The first line that begins with `inner`, after a line that begins with `head` and before the next with `stop`."""
    def find(lines: Lines, target: Target) -> list[int]:
        wanted, own = _fill(head, target), _fill(inner, target)
        if wanted is None or own is None:
            return []
        inside = False
        for place, line in enumerate(lines):
            text = line.lstrip()
            if text.startswith(wanted):
                inside = True
                if own == wanted:
                    return [place]
            elif inside and text.startswith(stop):
                return []
            elif inside and text.startswith(own):
                return [place]
        return []
    return find


def links_of(lines: Lines, target: Target) -> list[int]:
    """The links of a GPU in nvidia-smi nvlink -s."""
    inside, found = False, []
    for place, line in enumerate(lines):
        if line.startswith("GPU "):
            inside = line.startswith(f"GPU {target.words.get('index')}:")
        if inside and line.strip():
            found.append(place)
    return found


def dimm(*names: str) -> Find:
    """Lines of the module in that slot in dmidecode -t memory."""
    def find(lines: Lines, target: Target) -> list[int]:
        slot = target.words.get("slot")
        for begin, end in _records(lines):
            own = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines[begin:end])}
            names_of_it = (own.get("Locator", ""), f"{own.get('Bank Locator', '')} {own.get('Locator', '')}")
            if slot and slot in names_of_it:
                return [place for place in range(begin, end)
                        if lines[place].strip().partition(":")[0] in ("Locator", *names)]
        return []
    return find


def _records(lines: Lines) -> Iterator[tuple[int, int]]:
    starts = [place for place, line in enumerate(lines) if line.strip() == "Memory Device"]
    for number, begin in enumerate(starts):
        yield begin, starts[number + 1] if number + 1 < len(starts) else len(lines)


def _first_word(line: str) -> str:
    return next(iter(_ANSI.sub("", line).split()), "")


def _row(lines: Lines, name: str) -> list[int]:
    return [place for place, line in enumerate(lines) if _first_word(line) == name and len(line.split()) > 2][-1:]


def _header(lines: Lines) -> list[int]:
    return next(([place] for place, line in enumerate(lines) if _ANSI.sub("", line).split()[:1] == ["GPU0"]
                 and "GPU" in line and (" X " not in line)), [])


def _number(target: Target, place: str) -> str:
    """The index of the GPU whose row or column that is."""
    number = int(target.words[place]) if target.words.get(place, "").isdigit() else -1
    gpus = target.node.gpus
    index = gpus[number].index if 0 <= number < len(gpus) else number
    return f"GPU{index}"


def matrix(lines: Lines, target: Target) -> list[int]:
    """The header, and the rows that a cell of gpu_links stands in."""
    names = [_number(target, place) for place in ("at0", "at1") if place in target.words]
    rows = [_row(lines, name) for name in names] if names else [
        _row(lines, f"GPU{gpu.index}") for gpu in target.node.gpus]
    return sorted({*_header(lines), *(place for row in rows for place in row)})


def affinity_row(lines: Lines, target: Target) -> list[int]:
    return _row(lines, f"GPU{target.words.get('index')}")


def nic_rows(lines: Lines, target: Target) -> list[int]:
    """The legend's word for the adapter, and its row."""
    name = target.last(Nic).rdma or target.last(Nic).name
    legend = [place for place, line in enumerate(lines)
              if line.strip().startswith("NIC") and line.split()[-1:] == [name]]
    own = _first_word(lines[legend[0]]).rstrip(":") if legend else name
    return sorted({*legend, *_header(lines), *_row(lines, own)})


def packages(lines: Lines, target: Target) -> list[int]:
    """The first CPU of each package: cpu ID PACKAGE …"""
    seen: dict[str, int] = {}
    for place, line in enumerate(lines):
        words = line.split()
        if len(words) == 7 and words[0] == "cpu":
            seen.setdefault(words[2], place)
    return list(seen.values())


def core_lines(lines: Lines, target: Target) -> list[int]:
    """Of the first and the last core: where its CPU lies, and its threads."""
    chosen = [core.cpus[0] for core in (*target.node.cpu.cores[:1], *target.node.cpu.cores[-1:]) if core.cpus]
    return _cpus(lines, chosen)


def one_core(lines: Lines, target: Target) -> list[int]:
    return _cpus(lines, [int(target.words["cpu"])] if target.words.get("cpu") else [])


def _cpus(lines: Lines, cpus: Sequence[int]) -> list[int]:
    wanted = tuple(text for cpu in cpus for text in (f"cpu {cpu} ", f"cpu{cpu}/topology/"))
    return [place for place, line in enumerate(lines) if wanted and line.startswith(wanted)]


# --- what a line says, to be compared with other sources ----------------------------------------------------------


def said(line: str) -> str:
    """What stands between tags, or behind the first colon or equals sign."""
    text = line.strip()
    if text.startswith("<"):
        return text.partition(">")[2].partition("</")[0].strip()
    for sign in (":", "="):
        if sign in text:
            return text.partition(sign)[2].strip().strip('"')
    return text


def said_number(line: str) -> str:
    number = leading_float(said(line))
    return "" if number is None else f"{number:g}"


def column(name: str) -> Callable[[str], str]:
    """Of key=value words that end at a TAB."""
    def pick(line: str) -> str:
        return next((word.partition("=")[2].strip() for word in line.split("\t") if word.startswith(f"{name}=")), "")
    return pick


def in_words(name: str) -> Callable[[str], str]:
    """Of key=value words that end at a blank."""
    def pick(line: str) -> str:
        return next((word.partition("=")[2] for word in line.split() if word.startswith(f"{name}=")), "")
    return pick


def listed(line: str) -> str:
    """The model in a line of nvidia-smi -L."""
    return line.partition(": ")[2].partition(" (UUID")[0]


def listed_uuid(line: str) -> str:
    return line.partition("(UUID: ")[2].partition(")")[0]

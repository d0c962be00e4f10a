"""`rocm-smi`: its sections as text (GPU[0] : key: value, matrices of GPUs) and as JSON, in every release's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _amd
from hpcadmin.facts._amd import AmdGpu, AmdLinks, AmdSmi, told
from hpcadmin.facts._base import clean, lines_of, maybe_integer, quote
from hpcadmin.facts._reading import Document, Finding, Reading

NAME = "rocm_smi"
ORDER = 88
LIMIT = 1024 * 1024
COMMAND = r"""
run 8 rocm-smi --showid --showbus --showuniqueid --showproductname --showserial --showvbios --showmeminfo vram \
  --showtopo --showdriverversion --json
"""
FORMS = ("text", "json")
MARKS = ("between DRM devices", "card0", "GPU[", "two GPUs", '"card', "Concise Info")

_SECTION = re.compile(r"\s*={3,}\s*([A-Za-z][^=]{0,100}?)\s*={3,}\s*\Z")
_LINE = re.compile(r"\s*GPU(?:\[(\d{1,4})\]| (\d{1,4}))\s*:\s*(.*\S)")
_GPU = re.compile(r"GPU\[?(\d{1,4})\]?\Z")
_CONCISE = re.compile(r"(\d{1,4}) +(\d{1,4}) +(0x[0-9a-f]{4}), +(\d{1,9}) .{0,80}? (NPS\d|N/A), +([A-Z]{3}|N/A), +"
                      r"(\d{1,3}) ")
_CONCISE_OLD = re.compile(r"\d{1,4} +(?:[0-9.]{1,6}°?[cC]|N/A) +(?:[0-9.]{1,7}W|N/A) ")
_CONCISE_6 = re.compile(r"(\d{1,4}) +\[0x[0-9a-f]{1,4} : 0x[0-9a-f]{1,4}\] .{0,60}? (NPS\d|N/A), ([A-Z]{3}|N/A) ")
_PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})\Z", re.IGNORECASE)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,8}\Z")      # in place of a name
_CARD = re.compile(r"card(\d{1,4})\Z")
_SIGNS = ("between DRM devices", "card0", "GPU[", "two GPUs", '"card', "Concise Info")
_TABLES = {"weight": "weights", "hops": "hops", "link type": "types"}
_TITLES = {"weights": "weight", "hops": "hops", "types": "link type"}


@dataclass
class _Text:
    """One output as it is put together. tables: name -> (head, rows by GPU)."""

    first: int
    last: int = 0
    rows: dict[int, dict[str, str]] = field(default_factory=dict)
    tables: dict[str, tuple[list[int], dict[int, list[str]]]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)      # titles of its sections
    system: dict[str, str] = field(default_factory=dict)
    ended: bool = False


def parse(text: str) -> AmdSmi:
    """Of the JSON that the probe asks for, or of a text."""
    lines_of(text, "rocm-smi")
    for _, _, value in _amd.json_values(text):
        if _is_ours(value):
            return _of_json(value)
    if "No AMD GPU" in text:
        return AmdSmi()
    for found in _outputs(text.split("\n")):
        return _of_text(found)
    raise ParseError(f"rocm-smi printed neither JSON nor a GPU: {quote(text)}")


def read(document: Document) -> tuple[Reading, ...]:
    text = document.text
    if not any(sign in text for sign in _SIGNS):
        return ()
    try:
        found = [_json_reading(first, last, value) for first, last, value in _amd.json_values(text) if _is_ours(value)]
        if not found and re.search(r'"card[0-9]{1,4}" ?: ?\{|"\(Topology\) ', text):
            raise ParseError("the JSON of rocm-smi is cut off or damaged")
        return tuple(found) or tuple(_text_reading(output) for output in _outputs(document.lines))
    except ParseError as exc:
        raise ParseError(exc.what, where=exc.where or document.name) from exc


# --- text

def _outputs(lines: Sequence[str]) -> Iterator[_Text]:
    """The outputs in a text: from the first section to the end mark, or to where sections repeat."""
    output: _Text | None = None
    table: tuple[list[int], dict[int, list[str]]] | None = None
    title = ""
    for number, line in enumerate(lines, 1):
        section = _SECTION.match(line[:300])
        if section:
            title, table = section[1].strip(), None
            if title.lower().startswith("end of rocm") and output:
                output.ended, output.last = True, number
                yield output
                output = None
                continue
            new = "system management interface" in title.lower() or (output and title in output.seen)
            if output and new and (output.rows or output.tables):
                yield output
                output = None
            output = output or _Text(number)
            output.seen.append(title)
            output.last = number
            continue
        entry = _LINE.match(line[:1000]) if "GPU[" in line or (output and "GPU " in line) else None
        if entry:
            output = output or _Text(number)
            _entry(output, int(entry[1] or entry[2]), entry[3])
            output.last = number
        elif output and title.lower() == "concise info":
            _concise(output, line.strip()[:300], number)
        elif output and "driver version:" in line.lower():
            output.system["driver"] = clean(line.partition(":")[2])
        elif output and "two gpus" in title.lower():
            table = _row(output, title, table, line.split(), number)
    if output:
        yield output


def _entry(output: _Text, index: int, rest: str) -> None:
    key, colon, value = rest.partition(":")
    if not colon:
        return
    row = output.rows.setdefault(index, {})
    if len(output.rows) > _amd.MAX_GPUS or len(row) > 1000:
        raise ParseError("more GPUs or values than a node has")
    row.setdefault(_key(key), clean(value))


def _concise(output: _Text, line: str, number: int) -> None:
    """A line of the table that rocm-smi prints without options; before 6.0 it has no more than their numbers."""
    match = _CONCISE.match(line)
    if match:
        keys = ("node", "device id", "guid", "memory partition", "compute partition", "partition id")
        output.rows.setdefault(int(match[1]), {}).update(zip(keys, match.groups()[1:], strict=True))
        output.last = number
    elif _CONCISE_OLD.match(line):
        output.rows.setdefault(int(line.split(maxsplit=1)[0]), {})
        output.last = number
    elif row := _CONCISE_6.match(line):
        output.rows.setdefault(int(row[1]), {}).update({"memory partition": row[2], "compute partition": row[3]})
        output.last = number
    elif output.rows and output.last == number - 1 and re.match(r"[A-Z][A-Za-z0-9 ._/-]{1,18}\Z", line):
        list(output.rows.values())[-1].setdefault("device name", line)      # 20 characters may be a part of it
        output.last = number


def _row(output: _Text, title: str, table: tuple[list[int], dict[int, list[str]]] | None, words: list[str],
         number: int) -> tuple[list[int], dict[int, list[str]]] | None:
    """The table with a line more: its head, or a GPU's row."""
    name = next((ours for theirs, ours in _TABLES.items() if title.lower().startswith(theirs)), "")
    places = [_GPU.match(word) for word in words]
    if not name or not words or not places[0]:
        return table
    output.last = number
    if table is None:
        head = [int(place[1]) for place in places if place]
        if len(head) != len(words) or len(set(head)) != len(head) or len(head) > _amd.MAX_GPUS:
            raise ParseError(f"line {number}: {quote(' '.join(words))} is not the head of a table of GPUs")
        table = (head, {})
        output.tables[name] = table
        return table
    head, rows = table
    index = int(places[0][1])
    if index in rows or len(words) - 1 > len(head):
        raise ParseError(f"line {number}: {quote(' '.join(words))} does not fit under the table's head")
    rows[index] = [clean(word, 40) for word in words[1:]]
    return table


def _of_text(output: _Text) -> AmdSmi:
    gpus = tuple(_gpu(index, "", row) for index, row in sorted(output.rows.items()))
    order = sorted({index for head, rows in output.tables.values() for index in (*head, *rows)})
    links = None
    if order:
        links = AmdLinks(tuple(f"GPU{index}" for index in order),
                         **{name: _square(head, rows, order) for name, (head, rows) in output.tables.items()})
    return AmdSmi(gpus, links, output.system.get("driver", ""))


def _square(head: list[int], rows: dict[int, list[str]], order: list[int]) -> _amd.Cells:
    at = {index: place for place, index in enumerate(head)}
    found = []
    for row in order:
        cells = rows.get(row, [])
        found.append(tuple(cells[at[column]] if column in at and at[column] < len(cells) else "" for column in order))
    return tuple(found)


def _text_reading(output: _Text) -> Reading:
    smi = _of_text(output)
    links = smi.links
    numa = [gpu.numa for gpu in smi.gpus] if any("numa node" in key for row in output.rows.values() for key in row) \
        else None
    missing = list(_missing(output, smi, numa))
    known: dict[str, Any] = {
        "gpus": max(len(smi.gpus), len(links.order) if links else 0) or None, **_amd.known_links(links),
        "gpu_numa": numa, "cores_if_determined": None,
        "gpu_numa_affinity": None if numa is None else [gpu.numa_affinity for gpu in smi.gpus],
    }
    detail = [_amd.known_gpu(gpu) for gpu in smi.gpus if gpu.pci or gpu.pci_id or gpu.model or gpu.uuid]
    if detail:
        known["gpu_details"] = detail
    if smi.driver:
        known["driver"] = smi.driver
    topology = bool(links) or numa is not None
    findings = tuple(Finding(what, output.first) for what in (_amd.faults(links) if links else ()))
    return Reading(kind="rocm-smi --showtopo" if topology else "rocm-smi", first=output.first, last=output.last,
                   value=smi, known=known, findings=findings, missing=tuple(missing))


def _missing(output: _Text, smi: AmdSmi, numa: list[int | None] | None) -> Iterator[str]:
    titles = {ours: theirs for theirs, ours in _TABLES.items() for title in output.seen
              if title.lower().startswith(theirs) and "two gpus" in title.lower()}
    for name, title in titles.items():
        if name not in output.tables:
            yield f"the table of {title} between two GPUs is cut off after its title"
    if not output.tables and numa is None:
        return
    absent = [title for name, title in _TITLES.items() if name not in output.tables]
    if len(absent) == len(_TITLES):
        yield "no link sections (weight, hops, link type): links are unknown, not 0"
    elif absent:
        yield f"sections missing: {', '.join(absent)} between two GPUs"
    if numa is None:
        yield "no NUMA section: the NUMA node of the GPUs is unknown"
    elif any(node is None for node in numa):
        yield "the NUMA node is unknown of " + ", ".join(f"GPU{gpu.index}" for gpu in smi.gpus if gpu.numa is None)
    for name, (head, rows) in output.tables.items():
        short = sorted({*head} - {index for index, cells in rows.items() if len(cells) == len(head)})
        if short:
            yield f"the table of {_TITLES[name]} is cut off: {', '.join(f'GPU{index}' for index in short)} not complete"
        if rows.keys() - set(head):
            yield f"the table of {_TITLES[name]} has rows without a column"


# --- JSON

def _is_ours(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    system = value.get("system")
    return any(_CARD.match(key) and isinstance(card, dict) for key, card in value.items()) or (
        isinstance(system, dict) and any(_PAIR.match(key) for key in system))


def _of_json(value: Mapping[str, Any]) -> AmdSmi:
    gpus = []
    for name, card in value.items():
        match = _CARD.match(name)
        if match and isinstance(card, dict):
            row = {_key(key): clean(str(item)) for key, item in card.items() if isinstance(item, str | int | float)}
            gpus.append(_gpu(int(match[1]), name, row))
    if len(gpus) > _amd.MAX_GPUS:
        raise ParseError("more GPUs than a node has")
    system = value.get("system")
    system = system if isinstance(system, dict) else {}
    driver = next((told(item) for key, item in system.items() if _key(key) == "driver version"), "")
    return AmdSmi(tuple(sorted(gpus, key=lambda gpu: gpu.index or 0)), _pairs(system), driver)


def _pairs(system: Mapping[str, Any]) -> AmdLinks | None:
    """The matrices of "(Topology) Hops between DRM devices 0 and 1": each pair once, without a diagonal."""
    tables: dict[str, dict[tuple[int, int], str]] = {}
    for key, item in system.items():
        match = _PAIR.match(key)
        if match:
            pair = (int(match[2]), int(match[3]))
            tables.setdefault(_TABLES[match[1].lower()], {})[pair] = told(item, 40)
    order = sorted({index for cells in tables.values() for pair in cells for index in pair})
    if not order or len(order) > _amd.MAX_GPUS:
        return None
    made = {name: tuple(tuple("0" if a == b else cells.get((a, b), cells.get((b, a), "")) for b in order)
                        for a in order) for name, cells in tables.items()}
    return AmdLinks(tuple(f"GPU{index}" for index in order), **made)


def _json_reading(first: int, last: int, value: Mapping[str, Any]) -> Reading:
    smi = _of_json(value)
    devices = len(smi.links.order) if smi.links else len(smi.gpus)
    listed = {f"GPU{gpu.index}" for gpu in smi.gpus}
    absent = [name for name in smi.links.order if name not in listed] if smi.links else []
    missing = []
    if absent:
        missing.append(f"{len(smi.gpus)} card{'s' * (len(smi.gpus) != 1)} listed, the link tables speak of {devices} "
                       f"devices: {', '.join(name.replace('GPU', 'card') for name in absent)} missing")
    known: dict[str, Any] = {
        "gpus": [_amd.known_gpu(gpu) for gpu in smi.gpus], "gpu_count": len(smi.gpus), "drm_devices": devices,
        **_amd.known_links(smi.links, complete=not absent), "gpu_numa": [gpu.numa for gpu in smi.gpus],
        "cores_if_determined": None, "driver": smi.driver or None,
    }
    addresses = [gpu.pci for gpu in smi.gpus if gpu.pci]
    findings = [Finding(what, first) for what in (_amd.faults(smi.links) if smi.links else ())]
    if addresses != sorted(addresses):
        findings.append(Finding("the cards are not in the order of their PCI addresses", first, note=True))
    return Reading(kind="rocm-smi --json", first=first, last=last, value=smi, known=known, findings=tuple(findings),
                   missing=tuple(missing))


# --- both

def _key(key: str) -> str:
    return " ".join(key.lower().replace("(topology)", "").split())


def _gpu(index: int, card: str, row: Mapping[str, str]) -> AmdGpu:
    def get(*keys: str) -> str:
        return next((found for key in keys if (found := told(row.get(key)))), "")

    memory = maybe_integer(get("vram total memory (b)"))
    partition = get("memory partition")
    return AmdGpu(
        index=index, card=card, pci=_amd.address(get("pci bus", "bus")),
        model=next((name for key in ("card series", "device name", "card model")
                    if (name := get(key)) and not _NUMBER.match(name)), ""),
        pci_id=_amd.device_id(get("device id", "gpu id")),
        unique_id=get("unique id"), guid=get("guid"), node=_amd.numbered(get("node id", "node")),
        numa=_amd.node_number(get("numa node")), numa_affinity=_amd.node_number(get("numa affinity")),
        memory_mib=None if memory is None else memory // 1048576, compute_partition=get("compute partition").upper(),
        memory_partition=partition.upper(), partition_id=_amd.numbered(get("partition id")),
        vbios=get("vbios version"), serial=get("serial number"),
        gfx=get("gfx version"))

"""`amd-smi list`, `static`, `partition` and `topology`: as text, JSON and CSV, of the releases from 23.4 to 26.2."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _amd
from hpcadmin.facts._amd import AmdGpu, AmdLinks, AmdSmi, told
from hpcadmin.facts._base import clean, lines_of, maybe_integer, pci_address, quote
from hpcadmin.facts._reading import Document, Finding, Reading

NAME = "amd_smi"
ORDER = 89
LIMIT = 2 * 1024 * 1024
# Only where rocm-smi is not there to ask: each start of either costs the node half a second.
COMMAND = r"""
command -v rocm-smi >/dev/null 2>&1 && return 127
run 8 amd-smi static --json || return
echo
run 8 amd-smi topology --json
"""
FORMS = ("text", "json")
MARKS = ("GPU: ", '"gpu"', "gpu,", " TABLE:")

_GPU = re.compile(r"( *)GPU: ?(\d{1,4})\Z")
_ENTRY = re.compile(r"( *)([A-Z][A-Za-z0-9_ /-]{0,60}):(?: +(\S.*))?\Z")
_TITLE = re.compile(r"\s*([A-Z][A-Z -]{1,40}) TABLE:\s*\Z")
_TABLES = {"WEIGHT": "weights", "HOPS": "hops", "LINK TYPE": "types"}
_KEYS = ("bdf", "asic", "bus", "partition", "driver", "uuid", "kfd_id", "numa", "vram", "links")


@dataclass
class _Output:
    """What is found together: values by GPU, and tables by name."""

    first: int
    last: int
    gpus: dict[int, dict[str, Any]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    tables: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    heads: dict[str, list[str]] = field(default_factory=dict)
    form: str = ""


def parse(text: str) -> AmdSmi:
    """Of the JSON that the probe asks for, or of a text."""
    lines_of(text, "amd-smi")
    found = _smi_of(list(_outputs(text.split("\n"), text)))
    if found is None:
        raise ParseError(f"amd-smi printed nothing of a GPU: {quote(text)}")
    return found


def read(document: Document) -> tuple[Reading, ...]:
    text = document.text
    if not any(sign in text for sign in ("GPU: ", '"gpu"', "gpu,", " TABLE:")):
        return ()
    try:
        return tuple(_reading(output) for output in _outputs(document.lines, text) if _tells(output))
    except ParseError as exc:
        raise ParseError(exc.what, where=exc.where or document.name) from exc


def _tells(output: _Output) -> bool:
    """It names its GPUs, or how they are linked: `amd-smi metric` and the like do neither."""
    return bool(output.tables) or any(
        gpu.pci or gpu.uuid or gpu.model or gpu.compute_partition or gpu.memory_partition or gpu.driver
        or gpu.node is not None
        for gpu in (_gpu(index, row) for index, row in output.gpus.items()))


def _outputs(lines: Sequence[str], text: str) -> Iterator[_Output]:
    found = False
    for first, last, value in _amd.json_values(text):
        output = _of_json(value, first, last)
        if output:
            found = True
            yield output
    if not found and re.search(r'"gpu": ?[0-9]', text) and re.search(r'"(?:bdf|kfd_id|market_name|num_hops)" ?:', text):
        raise ParseError("the JSON of amd-smi is cut off or damaged")
    if not found:
        yield from _of_lines(lines)


# --- JSON

def _of_json(value: Any, first: int, last: int) -> _Output | None:
    items = value.get("gpu_data") if isinstance(value, dict) else value
    if not isinstance(items, list):
        return None
    items = [item for item in items if isinstance(item, dict) and type(item.get("gpu")) is int
             and any(key in item for key in (*_KEYS, "link_type", "hops", "weight"))]
    if not items:
        return None
    if len(items) > _amd.MAX_GPUS:
        raise ParseError(f"line {first}: more GPUs than a node has")
    output = _Output(first, last, form="--json")
    for item in items:
        row = output.gpus.setdefault(item["gpu"], {})
        _flatten(item, "", row)
    _json_links(output, items)
    return output


def _flatten(value: Mapping[str, Any], prefix: str, row: dict[str, Any], depth: int = 0) -> None:
    for key, item in value.items():
        name = f"{prefix}{str(key).lower()}"
        if isinstance(item, Mapping) and "value" not in item and depth < 6:
            _flatten(item, f"{name}.", row, depth + 1)
        elif not isinstance(item, list) and len(row) < 2000:
            row.setdefault(name, item)


def _json_links(output: _Output, items: Sequence[Mapping[str, Any]]) -> None:
    """Both shapes: a list `links` of each GPU, and tables with a key gpu_N."""
    labels = {item["gpu"]: pci_address(told(item.get("bdf"))) or f"GPU{item['gpu']}" for item in items}
    cells: dict[str, dict[tuple[int, int], str]] = {}
    for item in items:
        for link in item["links"] if isinstance(item.get("links"), list) else ():
            if isinstance(link, dict) and type(link.get("gpu")) is int:
                for name, key in (("types", "link_type"), ("hops", "num_hops"), ("weights", "weight")):
                    if key in link:
                        cells.setdefault(name, {})[item["gpu"], link["gpu"]] = told(link[key], 40)
        for name, key in (("types", "link_type"), ("hops", "hops"), ("weights", "weight")):
            table = item.get(key)
            for label, cell in table.items() if isinstance(table, dict) else ():
                other = maybe_integer(str(label).lower().removeprefix("gpu_"))
                if other is not None:
                    cells.setdefault(name, {})[item["gpu"], other] = told(cell, 40)
    every = sorted({number for table in cells.values() for pair in table for number in pair})
    if not every or len(every) > _amd.MAX_GPUS:
        return
    output.order = [labels.get(number, f"GPU{number}") for number in every]
    for name, table in cells.items():
        output.heads[name] = output.order
        output.tables[name] = {labels.get(a, f"GPU{a}"): [table.get((a, b), "") for b in every] for a in every}


# --- text and CSV

def _of_lines(lines: Sequence[str]) -> Iterator[_Output]:
    output: _Output | None = None
    row: dict[str, Any] | None = None
    stack: list[tuple[int, str]] = []
    title, head = "", list[str]()
    number = 0
    while number < len(lines):
        line = lines[number].rstrip().expandtabs(4)[:1000]
        number += 1
        gpu, table = _GPU.match(line), _TITLE.match(line)
        if line.startswith("gpu,"):
            if output:
                yield output
            output, number = _of_csv(lines, number)
            yield output
            output, row = None, None
        elif gpu:
            if output and (int(gpu[2]) in output.gpus or output.tables):
                yield output
                output = None
            output = output or _Output(number, number)
            row = output.gpus.setdefault(int(gpu[2]), {"gpu": int(gpu[2])})
            if len(output.gpus) > _amd.MAX_GPUS:
                raise ParseError(f"line {number}: more GPUs than a node has")
            stack, title = [(len(gpu[1]), "")], ""
        elif table:
            if output and (table[1] in output.heads or output.gpus):
                yield output
                output = None
            output = output or _Output(number, number)
            title, head, row = _TABLES.get(table[1], "-"), [], None
            output.heads.setdefault(table[1], [])
        elif output and title:
            head = _row(output, title, head, line.split(), number) or head
        elif output and row is not None:
            _entry(row, stack, line)
            output.last = number if line.strip() else output.last
        if output and title and line.strip() and (table or pci_address(line.split()[0])):
            output.last = number
    if output:
        yield output


def _entry(row: dict[str, Any], stack: list[tuple[int, str]], line: str) -> None:
    """A line "    KEY: value" or "    GROUP:" below its GPU."""
    match = _ENTRY.match(line)
    if not match or len(match[1]) <= stack[0][0] or len(row) > 2000:
        return
    indent = len(match[1])
    while len(stack) > 1 and stack[-1][0] >= indent:
        stack.pop()
    name = match[2].strip().lower()
    if match[3] is None:
        if len(stack) < 8:
            stack.append((indent, name))
    else:
        row.setdefault(".".join([key for _, key in stack[1:]] + [name]), match[3])


def _row(output: _Output, title: str, head: list[str], words: list[str], number: int) -> list[str] | None:
    """The head of a table of PCI addresses, or a row of it."""
    labels = [pci_address(word) for word in words]
    if not words or not labels[0] or title == "-":
        return None
    if not head:
        if not all(labels) or len(set(labels)) != len(labels) or len(labels) > _amd.MAX_GPUS:
            raise ParseError(f"line {number}: {quote(' '.join(words))} is not the head of a table of GPUs")
        output.heads[title], output.tables[title] = labels, {}
        return labels
    if len(words) - 1 > len(head) or labels[0] in output.tables[title]:
        raise ParseError(f"line {number}: {quote(' '.join(words))} does not fit under the table's head")
    output.tables[title][labels[0]] = [clean(word, 40) for word in words[1:]]
    return None


def _of_csv(lines: Sequence[str], number: int) -> tuple[_Output, int]:
    """The rows below a head "gpu,gpu_bdf,…", whose line is `number`."""
    output = _Output(number, number, form="--csv")
    keys = [clean(key).lower().removeprefix("gpu_") if key != "gpu" else key for key in lines[number - 1].split(",")]
    while number < len(lines) and re.match(r"[0-9]{1,4},", lines[number]):
        try:
            cells = next(csv.reader([lines[number][:100_000]]))
        except csv.Error as exc:
            raise ParseError(f"line {number + 1}: {clean(str(exc))}") from exc
        if len(cells) != len(keys):
            raise ParseError(f"line {number + 1} has {len(cells)} fields, the head {len(keys)}")
        number += 1
        index = int(cells[0])
        output.gpus.setdefault(index, dict(zip(keys, cells, strict=True)))
        output.last = number
    return output, number


# --- what it tells

def _gpu(index: int, row: Mapping[str, Any]) -> AmdGpu:
    def get(*keys: str) -> Any:
        return next((row[key] for key in keys if key in row and (isinstance(row[key], Mapping) or told(row[key]))), "")

    render = re.search(r"renderD(\d{1,4})", told(get("render")))
    return AmdGpu(
        index=index, pci=_amd.address(get("bdf", "bus.bdf")), model=told(get("asic.market_name", "market_name")),
        pci_id=_amd.device_id(get("asic.device_id", "device_id")), uuid=told(get("uuid")),
        unique_id=told(get("asic.asic_serial", "asic_serial")).lower(), guid=told(get("kfd_id")),
        node=_amd.numbered(get("node_id")), card=told(get("card")), render=int(render[1]) if render else None,
        numa=_amd.node_number(get("numa.node")), numa_affinity=_amd.node_number(get("numa.affinity")),
        memory_mib=_amd.mebibytes(get("vram.size", "size")), vbios=told(get(
            "vbios.part_number", "ifwi.part_number", "vbios.version", "ifwi.version", "part_number")),
        compute_partition=told(get("partition.accelerator_partition", "partition.compute_partition",
                                   "accelerator_partition", "compute_partition")).upper(),
        memory_partition=told(get("partition.memory_partition", "memory_partition",
                                  "memory_partition.current")).upper(),
        partition_id=_amd.numbered(get("partition_id", "partition.partition_id")),
        serial=told(get("board.product_serial", "product_serial")), driver=told(get("driver.version")),
        gfx=told(get("asic.target_graphics_version", "target_graphics_version")),
        power_max_w=_amd.watts(get("limit.max_power", "max_power")))


def _links(output: _Output) -> AmdLinks | None:
    """Of the tables that belong to links; labels in the order of the first head."""
    names = [name for name in ("types", "hops", "weights") if output.heads.get(name)]
    if not names:
        return None
    order = output.heads[names[0]]
    made = {}
    for name in names:
        head = output.heads[name]
        at = {label: place for place, label in enumerate(head)}
        made[name] = tuple(
            tuple("0" if a == b else _cell(output.tables[name].get(a, []), at.get(b)) for b in order) for a in order)
    return AmdLinks(tuple(order), **made)


def _cell(cells: Sequence[str], place: int | None) -> str:
    return cells[place] if place is not None and place < len(cells) else ""


def _smi_of(outputs: Sequence[_Output]) -> AmdSmi | None:
    """Of several outputs of one node, as the probe has them."""
    gpus: dict[int, AmdGpu] = {}
    links = None
    for output in outputs:
        links = links or _links(output)
        for index, row in output.gpus.items():
            new, old = _gpu(index, row), gpus.get(index)
            gpus[index] = new if old is None else replace(new, **{
                name: value for name in AmdGpu.__dataclass_fields__
                if (value := getattr(old, name)) not in ("", None)})
    if not gpus and links is None:
        return None
    driver = next((gpu.driver for gpu in gpus.values() if gpu.driver), "")
    return AmdSmi(tuple(gpus[index] for index in sorted(gpus)), links, driver)


def _reading(output: _Output) -> Reading:
    smi = _smi_of([output]) or AmdSmi()
    numa = [gpu.numa for gpu in smi.gpus]
    known: dict[str, Any] = {
        "gpus": [_amd.known_gpu(gpu) for gpu in smi.gpus] or (len(smi.links.order) if smi.links else None),
        "gpu_count": len(smi.gpus) or None, "cores_if_determined": None, "driver": smi.driver or None,
        "gpu_numa": numa if any(node is not None for node in numa) else None}
    missing = []
    if smi.links:
        known |= {**_amd.known_links(smi.links), "links_matrix_order": list(smi.links.order)}
        for name, word in (("types", "LINK TYPE"), ("hops", "HOPS"), ("weights", "WEIGHT")):
            cells = getattr(smi.links, name)
            short = [label for label, row in zip(smi.links.order, cells, strict=False) if "" in row]
            if not cells and not output.form:
                missing.append(f"no {word} TABLE")
            elif short:
                missing.append(f"{word} TABLE is cut off: {', '.join(short[:16])} not complete")
    kind = "amd-smi topology" if smi.links else "amd-smi static" if any(gpu.model for gpu in smi.gpus) else "amd-smi"
    findings = tuple(Finding(what, output.first) for what in (_amd.faults(smi.links) if smi.links else ()))
    return Reading(kind=f"{kind} {output.form}".strip(), first=output.first, last=output.last, value=smi, known=known,
                   findings=findings, missing=tuple(missing))

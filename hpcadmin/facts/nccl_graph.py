"""NCCL's graph file (NCCL_GRAPH_FILE): the rings and trees it chose. No topology: no NUMA node, no PCI address."""

from __future__ import annotations

from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, maybe_integer
from hpcadmin.facts._elements import Element, blocks, elements
from hpcadmin.facts._reading import Document, Finding, Reading

FORMS = ("xml", "text")
MARKS = ("<graphs",)


def read(document: Document) -> tuple[Reading, ...]:
    return tuple(_reading(first, text, document.name) for first, text in blocks(document.lines, "graphs"))


def _reading(first: int, text: str, name: str) -> Reading:
    try:
        root, broken, why = elements(text, first)
    except ParseError as exc:
        raise ParseError(exc.what, where=f"{name}:{first}") from exc
    graphs = [_graph(child) for child in root.children if child.tag == "graph"]
    devices = sorted({dev for graph in graphs for channel in graph["gpu_order"] for dev in channel if dev is not None})
    refused = "a NCCL graph file (root <graphs>), not a topology: it has no CPU, no PCI address and no link"
    return Reading(
        kind="NCCL graph XML", first=first, last=first + text.count("\n"),
        known={"root": "graphs", "gpus": None, "graphs": graphs, "gpu_devs": devices},
        findings=(Finding(refused, first),), refused=refused,
        missing=() if broken is None else (f"the XML breaks off in line {broken} ({why})",))


def _graph(element: Element) -> dict[str, Any]:
    get = element.attributes.get
    channels = [[maybe_integer(gpu.attributes.get("dev")) for gpu in channel.children if gpu.tag == "gpu"]
                for channel in element.children if channel.tag == "channel"]
    return {"id": maybe_integer(get("id")), "pattern": maybe_integer(get("pattern")),
            "nchannels": maybe_integer(get("nchannels")), "gpu_order": channels,
            "typeintra": clean(get("typeintra", "")), "typeinter": clean(get("typeinter", ""))}

"""`discover --from`: whatever texts there are to an inventory, and what each of them says and does not say."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from hpcadmin import inventory as inventories
from hpcadmin.errors import ParseError
from hpcadmin.fabric import Dump, build
from hpcadmin.facts import Document, Outcome, Part, Reading, merge, part_of, read_capture, read_document
from hpcadmin.intake import Loader, Taken, load, plan
from hpcadmin.model import Fabric, Failed, Inventory, Node, Source
from hpcadmin.sharing import Pool
from hpcadmin.text import printable

PICTURES = frozenset({"lldp"})
MANY = 32                # nodes for each process


@dataclass(frozen=True)
class Statement:
    """What was made of one document of one node."""

    node: str
    file: str
    readings: tuple[Reading, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Read:
    """node None with failed set: nothing may be configured from what there is about it."""

    name: str
    node: Node | None = None
    failed: Failed | None = None
    statements: tuple[Statement, ...] = ()


def read_paths(paths: Sequence[str], node: str = "",
               progress: Callable[[int, int], None] | None = None) -> tuple[Inventory, tuple[Statement, ...]]:
    """The inventory of the texts under the paths, and a statement for each that is no capture of ours.

    progress is told (nodes read, nodes). Raises UsageError when a path holds nothing.
    """
    found = []
    planned = plan(paths, node)
    for one in _all(planned):
        found.append(one)
        if progress:
            progress(len(found), len(planned))
    statements = tuple(statement for one in found for statement in one.statements)
    inventory = _inventory(found)
    fabrics = _with_missing(build(_dumps(statements), inventory.nodes), statements)
    return replace(inventory, fabrics=fabrics), statements


def _dumps(statements: Iterable[Statement]) -> list[Dump]:
    return [reading.value for statement in statements for reading in statement.readings
            if isinstance(reading.value, Dump) and not reading.refused]


def _with_missing(fabrics: tuple[Fabric, ...], statements: Iterable[Statement]) -> tuple[Fabric, ...]:
    """The fabrics with what their dumps do not hold."""
    missing: dict[str, dict[str, None]] = {}
    for statement in statements:
        for reading in statement.readings:
            if isinstance(reading.value, Dump) and not reading.refused:
                missing.setdefault(reading.value.fabric, {}).update(dict.fromkeys(reading.missing))
    return tuple(replace(fabric, incomplete=tuple(missing.get(fabric.kind, ()))) for fabric in fabrics)


def _all(planned: Mapping[str, list[Loader]]) -> Iterator[Read]:
    """Each node read, on all cores where there are many. Equal values of nodes are made one, so that thousands fit."""
    workers = min(len(os.sched_getaffinity(0)), len(planned) // MANY)
    if workers < 2:
        yield from (_read(item) for item in planned.items())
        return
    equal = Pool()
    with multiprocessing.get_context("fork").Pool(workers, _quiet) as pool:
        for one in pool.imap(_read_slim, planned.items(), chunksize=8):
            yield replace(one, node=equal.node(one.node)) if one.node else one


def _quiet() -> None:
    """Ctrl-C is the parent's business: it ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read(item: tuple[str, list[Loader]]) -> Read:
    return read_one(load(*item))


def _inventory(found: Iterable[Read]) -> Inventory:
    nodes, failed = [], []
    for one in found:
        nodes += [one.node] if one.node else []
        failed += [one.failed] if one.failed else []
    return inventories.build(nodes, failed, created=datetime.now().astimezone().isoformat(timespec="seconds"))


def _read_slim(item: tuple[str, list[Loader]]) -> Read:
    """Without the records of each tool: what they told is in `known`, and they are large."""
    one = _read(item)
    return replace(one, statements=tuple(replace(s, readings=tuple(map(_without_record, s.readings)))
                                         for s in one.statements))


def _without_record(reading: Reading) -> Reading:
    return reading if isinstance(reading.value, Dump) else replace(reading, value=None)


def read_one(taken: Taken) -> Read:
    """Pure: one node's texts to that node. Nothing in them changes what another node becomes."""
    parts: list[Part] = []
    problems = list(taken.errors)
    refused: list[str] = []
    sources: list[Source] = []
    for file, text in taken.captures.items():
        try:
            node = read_capture(text, taken.node)
        except ParseError as exc:
            refused.append(f"{file}: {exc.what}")
            continue
        sources.append(Source(file, ("capture",), sha256(text.encode("utf-8", "surrogateescape")).hexdigest()))
        if not taken.documents:
            return Read(taken.node, replace(node, sources=tuple(sources), problems=(*node.problems, *problems)))
        parts.append(Part("the capture", node, frozenset({"gpus", "nics", "pci"}.difference(node.unknown))))
    statements = []
    for document in taken.documents:
        outcome = read_document(document)
        statements.append(Statement(taken.node, document.name, outcome.readings, outcome.errors))
        sources.append(Source(document.name, tuple(dict.fromkeys(r.kind for r in outcome.readings)), _sum(document)))
        parts += _parts(document, outcome, refused, problems)
    if not parts and _about_fabric(statements) and not refused:
        return Read(taken.node, statements=tuple(statements))
    if not parts:
        why = refused or problems or ["nothing in it is about a node"]
        failed = Failed(taken.node, printable("; ".join(dict.fromkeys(why)), limit=600))
        return Read(taken.node, failed=failed, statements=tuple(statements))
    node = merge(taken.node, parts)
    told = dict.fromkeys([*node.problems, *problems, *refused])
    return Read(taken.node, replace(node, sources=tuple(sources), problems=tuple(told)), statements=tuple(statements))


def _about_fabric(statements: Iterable[Statement]) -> bool:
    """The texts are of a network: there is no node to speak of."""
    return any(isinstance(reading.value, Dump) for one in statements for reading in one.readings)


def _parts(document: Document, outcome: Outcome, refused: list[str], problems: list[str]) -> Iterator[Part]:
    """What the document says of the node; what may not be used is named in `refused`."""
    for error in outcome.errors:
        refused.append(error)
    for reading in outcome.readings:
        place = f"{document.name}:{reading.first}"
        if reading.kind in PICTURES and any(other.kind == f"{reading.kind} of a node" for other in outcome.readings):
            continue                     # as the part of a node it is used, as a picture of the network it is not
        if reading.refused:
            refused.append(f"{place}: {reading.kind}: {reading.refused}")
            continue
        part = part_of(reading)
        if part is None:
            continue
        for finding in reading.findings:
            if not finding.note:
                problems.append(f"{reading.kind}: {finding.what}")
        yield part


def _sum(document: Document) -> str:
    return "" if document.form == "tree" else sha256(document.text.encode("utf-8", "surrogateescape")).hexdigest()

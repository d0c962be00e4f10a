"""`discover --from`: whatever texts there are to an inventory, and what each of them says and does not say."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import PurePath
from types import FrameType

from hpcadmin import inventory as inventories
from hpcadmin.errors import HpcadminError, ParseError
from hpcadmin.fabric import Dump, build
from hpcadmin.facts import Document, Outcome, Part, Reading, merge, part_of, read_capture, read_document, readers
from hpcadmin.intake import Loader, Taken, load, plan
from hpcadmin.model import Fabric, Failed, Inventory, Node, Source
from hpcadmin.sharing import Packer, Parcel, Pool
from hpcadmin.text import printable

PICTURES = frozenset({"lldp"})
PR_SET_PDEATHSIG = 1     # prctl(2)
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


class Statements:
    """All statements in the order of the nodes. Of many nodes they are kept packed, and unpacked one by one."""

    def __init__(self) -> None:
        self._kept: list[tuple[Statement, ...] | bytes] = []
        self._pictures: list[Statement] = []         # of networks, which are made of all of them

    def add(self, statements: tuple[Statement, ...] | bytes, pictures: Iterable[Statement]) -> None:
        self._kept += [statements] if statements else []
        self._pictures += pictures

    def __iter__(self) -> Iterator[Statement]:
        for kept in self._kept:
            yield from _unpacked(kept) if isinstance(kept, bytes) else kept

    def __len__(self) -> int:
        """The number of nodes that they are about."""
        return len(self._kept)

    def dumps(self) -> Iterator[tuple[Dump, Reading]]:
        for statement in self._pictures:
            for reading in statement.readings:
                if isinstance(reading.value, Dump) and not reading.refused:
                    yield reading.value, reading


def _packed(statements: tuple[Statement, ...]) -> bytes:
    """Without the records of each tool: what they told is in `known`, and they are large."""
    slim = tuple(replace(s, readings=tuple(replace(r, value=None) for r in s.readings)) for s in statements)
    return zlib.compress(pickle.dumps(slim, pickle.HIGHEST_PROTOCOL), 1) if slim else b""


def _unpacked(raw: bytes) -> tuple[Statement, ...]:
    found: tuple[Statement, ...] = pickle.loads(zlib.decompress(raw))  # noqa: S301  (of a process of ours)
    return found


def _pictures(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    return tuple(s for s in statements if any(isinstance(reading.value, Dump) for reading in s.readings))


def read_paths(paths: Sequence[str], node: str = "",
               progress: Callable[[int, int], None] | None = None) -> tuple[Inventory, Statements]:
    """The inventory of the texts under the paths, and a statement for each that is no capture of ours.

    progress is told (nodes read, nodes). Raises UsageError when a path holds nothing.
    """
    planned = plan(paths, node)
    statements, equal = Statements(), Pool()
    nodes: list[Node] = []
    failed: list[Failed] = []
    for number, one in enumerate(_all(planned), 1):
        if one.node:
            nodes.append(equal.unpack(one.node) if isinstance(one.node, Parcel) else equal.node(one.node))
        failed += [one.failed] if one.failed else []
        statements.add(one.statements, one.pictures)
        if progress:
            progress(number, len(planned))
    created = datetime.now().astimezone().isoformat(timespec="seconds")
    inventory = inventories.build(nodes, failed, created=created, pool=equal)
    return replace(inventory, fabrics=_fabrics(statements, inventory.nodes)), statements


def _fabrics(statements: Statements, nodes: Sequence[Node]) -> tuple[Fabric, ...]:
    """With what their dumps do not hold."""
    missing: dict[str, dict[str, None]] = {}
    for dump, reading in statements.dumps():
        missing.setdefault(dump.fabric, {}).update(dict.fromkeys(reading.missing))
    found = build([dump for dump, _ in statements.dumps()], nodes)
    return tuple(replace(fabric, incomplete=tuple(missing.get(fabric.kind, ()))) for fabric in found)


@dataclass(frozen=True)
class _Sent:
    """A Read on its way, from this process or from another."""

    node: Node | Parcel | None
    failed: Failed | None
    statements: tuple[Statement, ...] | bytes
    pictures: tuple[Statement, ...]


def _all(planned: Mapping[str, list[Loader]]) -> Iterator[_Sent]:
    """Each node read, on all cores where there are many."""
    workers = min(len(os.sched_getaffinity(0)), len(planned) // MANY)
    if workers < 2:
        yield from (_sent(read_one(load(*item)), many=len(planned) > MANY) for item in planned.items())
        return
    readers()                    # imported before there are processes, so that all of them have one copy
    with _ended_by_ctrl_c() as asked, ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin) as pool:
        try:
            yield from pool.map(_read_packed, planned.items(), chunksize=8)
        except BrokenProcessPool as exc:
            if not asked:
                raise HpcadminError("a process that read the texts was killed", hint="is there enough memory?") from exc
        finally:
            pool.shutdown(cancel_futures=True)
        if asked:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[list[int]]:
    """Ctrl-C ends the workers, and so the reading. Raised as KeyboardInterrupt anywhere in the pool's own work, it
    would leave that waiting for ever."""
    asked: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)       # the next one is taken as ever
        for worker in multiprocessing.active_children():
            worker.kill()

    if threading.current_thread() is not threading.main_thread() or (
            signal.getsignal(signal.SIGINT) is not signal.default_int_handler):
        yield asked
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _sent(one: Read, *, many: bool, packer: Packer | None = None) -> _Sent:
    return _Sent(packer.pack(one.node) if packer and one.node else one.node, one.failed,
                 _packed(one.statements) if many else one.statements, _pictures(one.statements))


_packer = Packer()               # of each process its own


def _begin() -> None:
    """Ctrl-C is the parent's business: it ends the workers. Its own end, whatever it is, is theirs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):           # Linux has it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_packed(item: tuple[str, list[Loader]]) -> _Sent:
    return _sent(read_one(load(*item)), many=True, packer=_packer)


def read_one(taken: Taken) -> Read:
    """Pure: one node's texts to that node. Nothing in them changes what another node becomes."""
    parts: list[Part] = []
    places: list[str] = []               # where each part was read
    problems = list(taken.errors)
    refused: list[str] = []
    sources: list[Source] = []
    if len(taken.captures) > 1:
        two = " and ".join(list(taken.captures)[:2])
        return Read(taken.node, failed=Failed(taken.node, printable(f"two captures of it: {two}", limit=600)))
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
        places.append(file)
    statements = []
    for document in taken.documents:
        outcome = read_document(document)
        statements.append(Statement(taken.node, document.name, outcome.readings, outcome.errors))
        sources.append(Source(document.name, tuple(dict.fromkeys(r.kind for r in outcome.readings)), _sum(document)))
        for line, part in _parts(document, outcome, refused, problems):
            parts.append(part)
            places.append(f"{PurePath(document.name).name}:{line}")
    parts = _named_apart(parts, places)
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


def _named_apart(parts: Sequence[Part], places: Sequence[str]) -> list[Part]:
    """Two outputs of one tool are two sources, and are named with their places."""
    counts = Counter(part.source for part in parts)
    return [part if counts[part.source] == 1 else replace(part, source=f"{part.source} in {place}")
            for part, place in zip(parts, places, strict=True)]


def _parts(document: Document, outcome: Outcome, refused: list[str],
           problems: list[str]) -> Iterator[tuple[int, Part]]:
    """What the document says of the node, and the line from which on; what may not be used is named in `refused`."""
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
        yield reading.first, part


def _sum(document: Document) -> str:
    return "" if document.form == "tree" else sha256(document.text.encode("utf-8", "surrogateescape")).hexdigest()

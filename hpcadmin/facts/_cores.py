"""Slurm's abstract cores (gres.conf Cores=) from OS CPU ids: determined where the cores are known, else assumed.

A core's number is its place in hwloc's logical order, package by package. CPU ids are not core numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import cpu_list
from hpcadmin.model import Cpu, NumaNode
from hpcadmin.text import fold_ids

Span = tuple[int, int]


@dataclass(frozen=True)
class Cores:
    """numbers None: they cannot be told, and `why` says what for. partial: cores of which only some threads are near
    the device."""

    numbers: tuple[int, ...] | None
    why: str = ""
    partial: tuple[int, ...] = ()

    @property
    def text(self) -> str | None:
        return None if self.numbers is None else fold_ids(self.numbers)


@dataclass(frozen=True)
class Assumption:
    """Cores of each device under a condition; values None: leave Cores out for all of them."""

    condition: str
    values: tuple[str | None, ...] | None

    def plain(self) -> dict[str, object]:
        return {"if": self.condition, "values": None if self.values is None else list(self.values)}


OMIT = Assumption("always", None)


def of_cpus(cpu: Cpu, cpus: Iterable[int]) -> Cores:
    """The cores that have a thread among these CPUs."""
    wanted = frozenset(cpus)
    if not wanted:
        return Cores(None, "no source names the CPUs near it")
    if not cpu.cores:
        return from_numa(wanted, cpu)
    strange = wanted - {one for core in cpu.cores for one in core.cpus} - set(cpu.offline)
    if strange:
        return Cores(None, f"CPUs {fold_ids(strange)} belong to no core of the node")
    near = [number for number, core in enumerate(cpu.cores) if not wanted.isdisjoint(core.cpus)]
    partial = tuple(number for number in near if not wanted.issuperset(cpu.cores[number].cpus))
    if not near:
        return Cores(None, f"CPUs {fold_ids(wanted)} are offline")
    return Cores(tuple(near), "cores of its local CPUs, in hwloc's order", partial)


def from_numa(cpus: Iterable[int], cpu: Cpu) -> Cores:
    """Where single cores are not known: whole NUMA nodes follow one another as their lowest CPUs do, if each is a
    socket, or all are in one; so the places of their cores are certain, whatever the numbering of threads."""
    wanted = frozenset(cpus)
    nodes: list[NumaNode] = sorted((node for node in cpu.numa if node.cpus), key=lambda node: min(node.cpus))
    if not nodes or cpu.threads_per_core is None or cpu.sockets is None:
        return Cores(None, "the node's cores are not known one by one")
    if cpu.sockets not in (1, len(nodes)):
        return Cores(None, f"which of the {len(nodes)} NUMA nodes are in which of {cpu.sockets} sockets is not known")
    if cpu.offline or any(len(node.cpus) % cpu.threads_per_core for node in nodes):
        return Cores(None, "some CPUs are offline, and the node's cores are not known one by one")
    numbers: list[int] = []
    first = 0
    for node in nodes:
        count = len(node.cpus) // cpu.threads_per_core
        own = frozenset(node.cpus)
        if own <= wanted:
            numbers += range(first, first + count)
            wanted -= own
        first += count
    if wanted or not numbers:
        return Cores(None, f"CPUs {fold_ids(wanted or cpus)} are not whole NUMA nodes")
    return Cores(tuple(numbers), "cores of its NUMA nodes, in the order of their lowest CPUs")


# --- what would follow from CPU affinities alone ----------------------------------------------------------------------


def assumed(affinities: Sequence[str | None], *, near: bool = False) -> tuple[Assumption, ...]:
    """What Cores would be, the likeliest assumption first. near: something shows that the affinity, the same for all,
    is a place on the machine and not all of it."""
    told = [_spans(text) for text in affinities if text]
    if not told or any(not spans for spans in told):
        return (OMIT,)
    offset = sibling_offset(affinities)
    if offset is not None:
        values = tuple(_low(_spans(text), offset) if text else None for text in affinities)
        return (Assumption(f"SMT2 with siblings n+{offset}", values),)
    if any(len(spans) > 1 for spans in told):
        return (OMIT,)
    plain = Assumption("no SMT", tuple(fold_ids(cpu_list(text, "affinity")) if text else None for text in affinities))
    single = len({spans[0] for spans in told}) == 1
    halved = None
    if all(low % 2 == 0 and high % 2 for low, high in (spans[0] for spans in told)):
        halved = Assumption(
            "SMT2" if single and told[0][0][0] == 0 else "SMT2 with adjacent siblings",
            tuple(fold_ids(range(_spans(text)[0][0] // 2, _spans(text)[0][1] // 2 + 1)) if text else None
                  for text in affinities))
    found = [plain, *([halved] if halved else [])]
    if single and all(affinities):
        found.insert(len(found) if near else 0, Assumption("one affinity for all: omit Cores", None))
    return tuple(found)


def sibling_offset(affinities: Sequence[str | None]) -> int | None:
    """128 where each list is a range and the same range 128 higher (or a part of it): second threads of its cores.
    None where that does not fit all lists."""
    told = [_spans(text) for text in affinities if text]
    offsets = {spans[1][0] - spans[0][0] for spans in told if len(spans) == 2}
    if len(offsets) != 1 or any(len(spans) not in (1, 2) for spans in told):
        return None
    offset = offsets.pop()
    low = [spans[0] for spans in told]
    if any(first[1] >= offset for first in low) or any(
            spans[1][1] - offset > spans[0][1] for spans in told if len(spans) == 2):
        return None
    return offset


def uneven(affinities: Sequence[str | None]) -> str:
    """What is missing where second threads are fewer than first ones."""
    offset = sibling_offset(affinities)
    parts: list[str] = []
    for text in dict.fromkeys(text for text in affinities if text and offset is not None):
        spans = _spans(text)
        second = spans[1] if len(spans) > 1 else (spans[0][0] + (offset or 0), spans[0][0] + (offset or 0) - 1)
        gone = range(second[1] + 1, spans[0][1] + (offset or 0) + 1)
        if gone:
            parts.append(f"CPU {fold_ids(gone)} ({_span(spans[0])} has {spans[0][1] - spans[0][0] + 1} CPUs, "
                         f"their second threads are {_span(second) if len(spans) > 1 else 'none'}: "
                         f"{max(0, second[1] - second[0] + 1)})")
    return "; ".join(parts)


def truncated(text: str | None) -> bool:
    """nvidia-smi leaves off after six entries: a list of six that are not ranges, or that follow no simple rule, may
    be the beginning of a longer one."""
    return text is not None and text.count(",") == 5


def restricted(affinities: Mapping[int, str | None], numa: Mapping[int, str | None]) -> str:
    """Why these are the CPUs of a job or container and not those near the GPUs; "" when nothing shows that."""
    told = {gpu: text for gpu, text in affinities.items() if text not in (None, "", "N/A")}
    empty = [gpu for gpu, text in affinities.items() if text == "" and (told or numa.get(gpu) not in (None, "N/A"))]
    where = "taken inside a job or container cpuset, not the node's truth"
    if empty:
        return f"CPU affinity of GPU {fold_ids(empty)} is empty: {where}"
    every = {cpu for text in told.values() for cpu in cpus_of(text) or ()}
    if len(every) == 1 and (len(told) > 1 or every != {0}):
        return f"CPU affinity of GPU {fold_ids(told)} is CPU {fold_ids(every)} alone: {where}"
    return ""


@lru_cache(maxsize=4096)
def cpus_of(text: str | None) -> tuple[int, ...] | None:
    """The ids of a list as topo -m prints it; None where it is not there or is no list."""
    if not text or text == "N/A":
        return None
    try:
        return cpu_list(text, "CPU affinity")
    except ParseError:
        return None


@lru_cache(maxsize=4096)
def _spans(text: str | None) -> tuple[Span, ...]:
    """() for what is no list, and for one that is cut."""
    ids = cpus_of(text)
    if not ids or truncated(text):
        return ()
    return tuple((int(low), int(high or low)) for low, _, high in (
        part.partition("-") for part in fold_ids(ids).split(",")))


def _low(spans: Sequence[Span], offset: int) -> str | None:
    return _span(spans[0]) if spans else None


def _span(span: Span) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"

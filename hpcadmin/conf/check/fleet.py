"""Nodes as slurm.conf and gres.conf describe them together: those that every line says the same of are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcadmin.conf.existing.parts import Configuration, GresLine, NodeLine, Value
from hpcadmin.facts._slurm_rules import Item, gres_wanted

GPU = "gpu"
SHARED = ("mps", "shard")


@dataclass(frozen=True)
class Shape:
    """Sockets, cores and threads as Slurm completes a node line (read_config.c). sockets are those of all boards;
    said: the line tells more than CPUs=; reset: the CPUs= that Slurm puts in the place of one that fits nothing."""

    sockets: int
    cores: int
    threads: int
    cpus: int
    boards: int = 1
    said: bool = True
    reset: int | None = None

    @property
    def total(self) -> int:
        """Cores of the node."""
        return self.sockets * self.cores

    @property
    def text(self) -> str:
        return f"Sockets={self.sockets} CoresPerSocket={self.cores} ThreadsPerCore={self.threads}"


@dataclass(frozen=True)
class Alike:
    """Nodes with one NodeName line and the same lines of gres.conf. node: None where slurm.conf does not name them.

    lines: those with Name=, in the order in which slurmd has them: lines without NodeName= come first.
    """

    hosts: tuple[str, ...]
    node: NodeLine | None
    lines: tuple[GresLine, ...]
    own: tuple[Value, ...] = ()      # AutoDetect= of lines with NodeName=
    common: tuple[Value, ...] = ()   # AutoDetect= of lines for all nodes

    @cached_property
    def shape(self) -> Shape | None:
        return shape(self.node) if self.node is not None else None

    @cached_property
    def wanted(self) -> tuple[Item, ...]:
        """Gres= of the node line, item by item."""
        return gres_wanted(self.node.get("gres") or "") if self.node is not None else ()

    def wants(self, name: str = GPU) -> tuple[Item, ...]:
        """Up to one that Slurm cannot read: it takes none of those behind it."""
        mine = [item for item in self.wanted if item.name == name]
        return tuple(mine[:next((n for n, item in enumerate(mine) if item.bad), len(mine))])

    def of(self, name: str = GPU) -> tuple[GresLine, ...]:
        return tuple(line for line in self.lines if line.name.casefold() == name)

    @property
    def autodetect(self) -> Value | None:
        """The one in force: the node's own before that for all; None where there is none, or off."""
        found = (self.own or self.common)[-1:]
        return found[0] if found and found[0].text.casefold() != "off" else None

    @property
    def state(self) -> str:
        return (self.node.get("state") or "").upper() if self.node is not None else ""


def alike(conf: Configuration) -> tuple[Alike, ...]:
    """By node line and by which lines of gres.conf are a host's: hosts are looked at once, not lines by hosts."""
    bits, everywhere = _masks(conf.gres)
    common = tuple(line.values["autodetect"] for line in conf.gres
                   if not line.hosts and not line.name and "autodetect" in line.values)
    found = []
    seen: set[str] = set()
    for node in conf.nodes:
        seen.update(node.hosts)
        for mask, hosts in _by_mask(node.hosts, bits, everywhere):
            found.append(_group(hosts, node, mask, conf.gres, common))
    rest = [host for host in bits if host not in seen]
    for mask, hosts in _by_mask(rest, bits, everywhere):
        found.append(_group(hosts, None, mask, conf.gres, common))
    if not found and everywhere:
        found.append(_group((), None, everywhere, conf.gres, common))
    return tuple(found)


def _masks(lines: Sequence[GresLine]) -> tuple[dict[str, int], int]:
    """(which lines are each host's, as bits; which are every host's)."""
    everywhere = 0
    lists: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines):
        if line.hosts:
            lists[line.hosts] = lists.get(line.hosts, 0) | 1 << number
        else:
            everywhere |= 1 << number
    bits: dict[str, int] = {}
    for hosts, mask in lists.items():
        for host in hosts:
            bits[host] = bits.get(host, 0) | mask
    return bits, everywhere


def _by_mask(hosts: Iterable[str], bits: Mapping[str, int],
             everywhere: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    groups: dict[int, list[str]] = {}
    for host in hosts:
        groups.setdefault(bits.get(host, 0) | everywhere, []).append(host)
    for mask, members in groups.items():
        yield mask, tuple(members)


def _group(hosts: tuple[str, ...], node: NodeLine | None, mask: int, lines: Sequence[GresLine],
           common: tuple[Value, ...]) -> Alike:
    picked = []
    while mask:
        low = mask & -mask
        picked.append(lines[low.bit_length() - 1])
        mask ^= low
    named = [line for line in picked if line.name]
    own = tuple(line.values["autodetect"] for line in picked if line.hosts and "autodetect" in line.values)
    return Alike(hosts, node, tuple(sorted(named, key=lambda line: bool(line.hosts))), own, common)


def shape(line: NodeLine) -> Shape:
    """As Slurm completes it: one core, one thread, sockets from CPUs=, else one for each board."""
    cores = line.number("corespersocket") or 1
    threads = line.number("threadspercore") or 1
    boards = line.number("boards") or 1
    cpus = line.number("cpus")
    sockets, per_board = line.number("sockets"), line.number("socketsperboard")
    said = bool(sockets or per_board or line.number("corespersocket"))
    if per_board is not None:
        total = boards * max(per_board, 1)
    elif sockets is not None:
        total = max(sockets, 1)
    elif cpus and cpus >= cores * threads and cpus % (cores * threads) == 0:
        total = cpus // (cores * threads)
    else:
        total = boards
    product = total * cores * threads
    fits = cpus is None or cpus in (total, total * cores, product)
    return Shape(total, cores, threads, cpus if cpus and fits else product, boards, said, None if fits else product)


def rewritten(values: Mapping[str, Value], first: str, changes: Mapping[str, str | None]) -> str:
    """A line with other values. first: what it begins with, "NodeName=n[1-4]"; changes: by key as it is to be
    written, None takes it away; keys that the line does not have come last. What DEFAULT lines add is not repeated."""
    left = {key.casefold(): (key, text) for key, text in changes.items()}
    words = [first] if first else []
    for key, value in values.items():
        mine = key if key in left else value.key.casefold()      # Cores= may be written as CPUs=
        if mine in left:
            name, text = left.pop(mine)
            if text is not None:
                words.append(f"{value.key if value.key.casefold() == mine else name}={text}")
        elif not value.default:
            words.append(f"{value.key}={quoted(value.text)}")
    words += [f"{name}={text}" for name, text in left.values() if text is not None]
    return " ".join(words)


def quoted(text: str) -> str:
    return f'"{text}"' if " " in text or "\t" in text else text


def node_line(line: NodeLine, changes: Mapping[str, str | None]) -> str:
    return rewritten(line.values, f"NodeName={line.text}", changes)


def gres_line(line: GresLine, changes: Mapping[str, str | None], hosts: str = "") -> str:
    """hosts: what NodeName= is to name, where the line has it."""
    first = [key for key in ("autodetect", "name", "type") if key in line.values]
    rest = [key for key in line.values if key not in first]
    values = {key: line.values[key] for key in (*first, *rest)}
    return rewritten(values, f"NodeName={hosts}" if hosts else "", changes)

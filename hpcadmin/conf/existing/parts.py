"""What files that exist are made of: statements with their place, and the configuration that they amount to.

Keys are looked up in small letters: Slurm's keys are the same in capitals. Nothing is converted: a value is the text
that Slurm would take, without its quotes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement begins. line is 1-based."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Value:
    """Key=Value as it stands. default: it comes from a NodeName=DEFAULT or PartitionName=DEFAULT line."""

    key: str                         # as written: "RealMemory"
    text: str                        # without quotes
    place: Place
    default: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One logical line with something on it: physical lines `place.line` to `last` of its file, comments taken off."""

    place: Place
    last: int
    values: tuple[Value, ...]        # in the order of the line
    text: str                        # the joined line, without comment

    @property
    def kind(self) -> str:
        """The first key in small letters: "nodename", "clustername", "include"."""
        return self.values[0].key.casefold() if self.values else ""

    def get(self, key: str) -> Value | None:
        return next((v for v in self.values if v.key.casefold() == key), None)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it is: `lines` joined by newlines is its text to the byte."""

    path: str                        # as it is shown to the reader
    name: str                        # whose grammar it has: slurm.conf, gres.conf, …; of an included file its includer
    lines: tuple[str, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that Slurm would not read, or would read otherwise than it looks; harmless: it is read as it looks, and
    is one too many."""

    place: Place
    what: str
    fatal: bool = True
    harmless: bool = False


@dataclass(frozen=True)
class NodeLine:
    """A NodeName= line (not DEFAULT) with what DEFAULT lines before it add. values: by key in small letters, aliases as
    Slurm has them (procs is cpus, feature is features); sockets and socketsperboard stay two keys."""

    hosts: tuple[str, ...]
    text: str                        # the host list as written
    values: Mapping[str, Value]
    place: Place

    def get(self, key: str) -> str | None:
        value = self.values.get(key)
        return None if value is None else value.text

    def number(self, key: str) -> int | None:
        """The value as Slurm's number; None where the key is missing or is no whole number."""
        text = self.get(key)
        return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else None


@dataclass(frozen=True)
class PartitionLine:
    """A PartitionName= line with what DEFAULT lines before it add; hosts: its nodes, NodeSets and ALL resolved."""

    name: str
    hosts: tuple[str, ...]
    values: Mapping[str, Value]
    place: Place


@dataclass(frozen=True)
class NodeSetLine:
    name: str
    hosts: tuple[str, ...]           # by Nodes= and by Feature=
    values: Mapping[str, Value]
    place: Place


@dataclass(frozen=True)
class GresLine:
    """A line of gres.conf. hosts: () is every node. files: File= or MultipleFiles=, expanded."""

    hosts: tuple[str, ...]
    name: str                        # "gpu"; "" of a line that has AutoDetect= only
    values: Mapping[str, Value]
    files: tuple[str, ...]
    place: Place

    def get(self, key: str) -> str:
        value = self.values.get(key)
        return "" if value is None else value.text


@dataclass(frozen=True)
class SwitchLine:
    """A switch of topology.conf or topology.yaml."""

    name: str
    switches: tuple[str, ...]
    nodes: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class BlockLine:
    name: str
    nodes: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Topology:
    """One topology: topology.conf has one, topology.yaml any number. kind: "tree", "block", "flat", "" (no lines)."""

    name: str                        # "" in topology.conf
    kind: str
    default: bool
    switches: tuple[SwitchLine, ...] = ()
    blocks: tuple[BlockLine, ...] = ()
    block_sizes: tuple[int, ...] = ()
    place: Place | None = None


@dataclass(frozen=True)
class Configuration:
    """What a folder of files amounts to. settings, cgroup: by key in small letters, the last one that Slurm takes;
    repeated: those before it. others: the same for acct_gather.conf, slurmdbd.conf, job_container.conf, … by name."""

    files: tuple[SourceFile, ...] = ()
    settings: Mapping[str, Value] = field(default_factory=dict)
    repeated: tuple[Value, ...] = ()
    several: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)   # SlurmctldHost, Prolog, …: all in force
    nodes: tuple[NodeLine, ...] = ()
    node_sets: tuple[NodeSetLine, ...] = ()
    partitions: tuple[PartitionLine, ...] = ()
    down_nodes: tuple[Statement, ...] = ()
    gres: tuple[GresLine, ...] = ()
    cgroup: Mapping[str, Value] = field(default_factory=dict)
    topologies: tuple[Topology, ...] = ()
    others: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()    # files that are named or needed and could not be read, with why

    def has(self, name: str) -> bool:
        """Whether a file of that name was read."""
        return any(f.name == name for f in self.files)

    def setting(self, key: str, default: str = "") -> str:
        value = self.settings.get(key.casefold())
        return default if value is None else value.text

    def file(self, name: str) -> SourceFile | None:
        return next((f for f in self.files if f.name == name), None)

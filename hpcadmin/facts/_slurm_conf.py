"""Node, partition and GRES lines of Slurm's files, and of the commands that print or take the same lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import UsageError
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_text import Record, count, indented, records
from hpcadmin.hosts import expand

_GRES_ITEM = re.compile(r"([A-Za-z_]\w{0,30})(?::([^:,()\s]{1,120}))?(?::([0-9]{1,6}))?(\([^()]{0,80}\))?(?:,|\Z)")
_BARE_GRES = re.compile(r"\s*(gpu:[A-Za-z]\S{0,120}:[0-9]{1,4})\s*\Z")
# gres.conf(5): AutoDetect. nvidia and off by version; the rest from 20.11 on.
AUTODETECT = frozenset({"nvml", "rsmi", "oneapi", "nrt", "nvidia", "off"})


@dataclass
class NodeLine:
    """As written; None where the line does not say it."""

    name: str | None
    line: int
    source: str                      # "slurm.conf", "scontrol create", "scontrol show node", "slurmd -C"
    values: dict[str, Any] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()

    def get(self, key: str) -> Any:
        return self.values.get(key)


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


@dataclass
class Conf:
    nodes: list[NodeLine] = field(default_factory=list)
    partitions: list[dict[str, Any]] = field(default_factory=list)
    gres: list[GresLine] = field(default_factory=list)
    autodetect: list[tuple[str, int]] = field(default_factory=list)
    wanted: list[tuple[str, int]] = field(default_factory=list)      # a Gres= value without its node
    findings: list[Finding] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)


_NUMBERS = {"cpus": "cpus", "boards": "boards", "sockets": "sockets", "socketsperboard": "sockets",
            "corespersocket": "cores_per_socket", "threadspercore": "threads_per_core", "realmemory": "real_memory",
            "tmpdisk": "tmp_disk", "weight": "weight", "cputot": "cpus"}
_TEXTS = {"gres": "gres", "feature": "features", "features": "features", "nodeaddr": "addr",
          "nodehostname": "hostname", "state": "state"}


def collect(lines: Sequence[str]) -> Conf:
    found = Conf()
    for record in records(lines):
        kind = record.first
        text = record.text.lower()
        if "gres name=" in text or (kind == "nodename" and "name" in record.keys) or (
                kind == "name" and record.keys["name"] in ("gpu", "mps", "shard", "nic")):
            _gres(record, found)
        elif kind == "nodename" and text.startswith(("nodename", "scontrol")):
            found.nodes.append(_node(record, lines))
        elif kind == "partitionname":
            keys = record.keys
            found.partitions.append({"name": keys["partitionname"], "nodes": keys.get("nodes"),
                                     "default": keys.get("default", "no").lower() == "yes", "state": keys.get("state")})
        elif kind == "autodetect" and text.startswith("autodetect"):
            found.autodetect.append((record.keys["autodetect"], record.line))
        elif kind == "cpus" and "threadspercore" in record.keys and text.startswith("cpus"):
            found.nodes.append(_node(record, lines))
        elif kind == "gres" and text.startswith("gres"):
            found.wanted.append((record.keys["gres"], record.line))
        else:
            continue
        found.lines.add(record.line)
    for number, line in enumerate(lines, 1):
        match = _BARE_GRES.match(line)
        if match:
            found.wanted.append((match[1], number))
            found.lines.add(number)
    return found


def _node(record: Record, lines: Sequence[str]) -> NodeLine:
    keys = dict(record.keys)
    source = "scontrol create" if record.text.startswith("scontrol") else "slurm.conf"
    if "arch" in keys:
        source = "scontrol show node"
        keys = {**keys, **{k: v for k, v in indented(lines, record.line).items() if k not in keys}}
    elif "slurmd -c" in record.heading.lower():
        source = "slurmd -C"
    values: dict[str, Any] = {}
    for key, name in _NUMBERS.items():
        if key in keys:
            values[name] = count(keys[key])
    for key, name in _TEXTS.items():
        if key in keys:
            values[name] = keys[key]
    return NodeLine(keys.get("nodename"), record.line, source, values, frozenset(keys))


def _gres(record: Record, found: Conf) -> None:
    keys = record.keys
    if keys.get("name", "gpu") not in ("gpu", "mps", "shard"):
        return
    try:
        files = tuple(expand_files(keys["file"])) if keys.get("file") and keys["file"] != "(null)" else ()
    except UsageError as exc:
        found.findings.append(Finding(f"File={keys['file'][:80]}: {exc.what}", record.line))
        files = ()
    found.gres.append(GresLine(keys.get("type", ""), files, keys.get("cores") or keys.get("cpus"), record.line,
                               keys.get("nodename", ""), keys.get("flags", ""), count(keys.get("index")),
                               "gres name=" in record.text.lower()))
    if "autodetect" in keys:
        found.autodetect.append((keys["autodetect"], record.line))


def expand_files(text: str) -> list[str]:
    """/dev/nvidia[0-3] as its four files."""
    if "[" not in text:
        return [text]
    head, _, rest = text.rpartition("/")
    return [f"{head}/{name}" for name in expand(rest)]


def gres_items(text: str) -> list[tuple[str, str, int]]:
    """(name, type, count) of each in gpu:a100:2,gpu:rtx:1; a type of digits alone is a count, as Slurm takes it."""
    found = []
    for match in _GRES_ITEM.finditer(text):
        name, kind, number = match[1], match[2] or "", match[3]
        if number is None and kind.isdigit():
            kind, number = "", kind
        found.append((name, kind, int(number) if number else 1))
    return found

"""Node, partition and GRES lines of Slurm's files, and of the commands that print or take the same lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import UsageError
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_gres import KEYS as GRES_KEYS
from hpcadmin.facts._slurm_gres import GresLine, expand_files
from hpcadmin.facts._slurm_text import Record, count, indented, records
from hpcadmin.hosts import expand

_BARE_GRES = re.compile(r"\s*(?:-\s+(?:conf:\s*)?)?[\"']?(gpu:[A-Za-z][^\s\"',]{0,120}:[0-9]{1,4})[\"']?\s*\Z")
# slurm.conf(5): the keys of a NodeName line, of all versions.
NODE_KEYS = frozenset({
    "nodename", "boards", "bcastaddr", "corespeccount", "corespersocket", "cpubind", "cpus", "procs", "cpuspeclist",
    "feature", "features", "gres", "memspeclimit", "nodeaddr", "nodehostname", "port", "realmemory", "reason",
    "sockets", "socketsperboard", "state", "threadspercore", "tmpdisk", "tresweights", "weight",
    "restrictedcorespergpu", "topology", "gresconf", "parameters", "suspendtime", "extra", "instanceid",
    "instancetype", "certtoken", "comment"})
_WHOLE = frozenset({"slurmctldhost", "controlmachine", "clustername", "slurmuser", "slurmctldport", "selecttype"})


@dataclass
class NodeLine:
    """As written; None where the line does not say it."""

    name: str | None
    line: int
    source: str                      # "slurm.conf", "scontrol create", "scontrol show node", "slurmd -C"
    values: dict[str, Any] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    section: int = 0

    def get(self, key: str) -> Any:
        return self.values.get(key)


@dataclass
class Conf:
    nodes: list[NodeLine] = field(default_factory=list)
    partitions: list[dict[str, Any]] = field(default_factory=list)
    gres: list[GresLine] = field(default_factory=list)
    autodetect: list[tuple[str, int, str]] = field(default_factory=list)     # value, line, the nodes ("" for all)
    wanted: list[tuple[str, int]] = field(default_factory=list)      # a Gres= value without its node
    types: tuple[str, ...] | None = None     # GresTypes=
    includes: list[int] = field(default_factory=list)
    whole: bool = False              # it has what only a whole slurm.conf has
    open: list[int] = field(default_factory=list)    # lines with values of a template
    findings: list[Finding] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    _node: dict[str, Any] = field(default_factory=dict)              # NodeName=DEFAULT, so far
    _partition: dict[str, str] = field(default_factory=dict)


_NUMBERS = {"cpus": "cpus", "procs": "cpus", "boards": "boards", "sockets": "sockets", "socketsperboard": "sockets",
            "corespersocket": "cores_per_socket", "threadspercore": "threads_per_core", "realmemory": "real_memory",
            "tmpdisk": "tmp_disk", "weight": "weight", "cputot": "cpus"}
_TEXTS = {"gres": "gres", "feature": "features", "features": "features", "nodeaddr": "addr",
          "nodehostname": "hostname", "state": "state"}


def collect(lines: Sequence[str]) -> Conf:
    found = Conf()
    for record in records(lines):
        if _taken(record, lines, found):
            found.lines.add(record.line)
            found.open += [record.line] if record.open else []
    for number, line in enumerate(lines, 1):
        if "gpu:" in line:
            match = _BARE_GRES.match(line)
            if match:
                found.wanted.append((match[1], number))
                found.lines.add(number)
        elif line[:8].lower() in ("include ", "include\t"):
            found.includes.append(number)
    return found


def _taken(record: Record, lines: Sequence[str], found: Conf) -> bool:
    kind, keys, text = record.first, record.keys, record.text.lower()
    if _is_gres(record):
        _gres(record, found)
    elif kind == "nodename" and keys.keys() == {"nodename", "autodetect"}:
        found.autodetect.append((keys["autodetect"], record.line, keys["nodename"]))
    elif kind == "nodename" and text.startswith(("nodename", "scontrol create")):
        _node(record, lines, found)
    elif kind == "partitionname" and text.startswith("partitionname"):
        _partition(keys, found)
    elif kind == "autodetect" and text.startswith("autodetect"):
        found.autodetect.append((keys["autodetect"], record.line, ""))
    elif kind in ("cpus", "sockets") and "threadspercore" in keys and text.startswith(kind):
        _node(record, lines, found)
    elif keys.get("gres", "(null)") != "(null)" and "/" not in keys["gres"] and (
            text.startswith(("gres", "feature", "conf "))):
        found.wanted.append((keys["gres"], record.line))
    else:
        if kind == "grestypes":
            found.types = tuple(keys["grestypes"].lower().split(","))
        found.whole |= kind in _WHOLE and text.startswith(kind)
        return False
    return True


def _is_gres(record: Record) -> bool:
    keys, text = record.keys, record.text.lower()
    if "gres name=" in text:
        return True
    opens = text.startswith(("name=", "nodename=", "autodetect="))
    return opens and "name" in keys and (keys["name"] in ("gpu", "mps", "shard", "nic") or (
        len(keys) > 1 and keys.keys() <= GRES_KEYS and bool(keys.keys() & {"count", "file", "flags"})))


def _partition(keys: Mapping[str, str], found: Conf) -> None:
    if keys["partitionname"].upper() == "DEFAULT":
        found._partition.update(keys)
        return
    own = {**found._partition, **keys}
    found.partitions.append({"name": own["partitionname"], "nodes": own.get("nodes"),
                             "default": own.get("default", "no").lower() == "yes", "state": own.get("state")})


def _node(record: Record, lines: Sequence[str], found: Conf) -> None:
    keys = dict(record.keys)
    source = "scontrol create" if record.text.startswith("scontrol") else "slurm.conf"
    below = indented(lines, record.line)
    if "arch" in keys or "cpualloc" in keys or "cpualloc" in below or "cputot" in below:
        source = "scontrol show node"
        keys = {**keys, **{k: v for k, v in below.items() if k not in keys}}
    elif "slurmd -c" in record.heading.lower() or _asked(lines, record.line):
        source = "slurmd -C"
    values: dict[str, Any] = {}
    values |= {own: count(keys[key]) for key, own in _NUMBERS.items() if key in keys}
    values |= {own: keys[key] for key, own in _TEXTS.items() if key in keys}
    name = keys.get("nodename")
    if source == "slurm.conf":
        unknown = sorted(keys.keys() - NODE_KEYS)
        if unknown and name:
            found.findings.append(Finding(f"{name}: {', '.join(unknown)[:80]}: no key of a NodeName line: Slurm "
                                          "refuses the file", record.line))
        if name == "DEFAULT":
            found._node.update(values)
            return
        values = {**found._node, **values}
    if name and source in ("slurm.conf", "scontrol create"):
        try:
            expand(name)
        except UsageError as exc:
            found.findings.append(Finding(f"NodeName={name[:80]}: {exc.what}: slurmctld ends with a fatal error",
                                          record.line))
    found.nodes.append(NodeLine(name, record.line, source, values, frozenset(keys), record.piece))


def _asked(lines: Sequence[str], at: int) -> bool:
    """The line above is the command, or the line below is the UpTime= that slurmd -C ends with."""
    above, below = lines[at - 2] if at > 1 else "", lines[at] if at < len(lines) else ""
    return "slurmd -C" in above or below.lstrip().startswith("UpTime=")


def _gres(record: Record, found: Conf) -> None:
    keys = record.keys
    detected = "gres name=" in record.text.lower()
    several = "multiplefiles" in keys
    text = keys.get("multiplefiles") or keys.get("file") or keys.get("files") or ""
    files: tuple[str, ...] = ()
    try:
        files = tuple(expand_files(text)) if text and text != "(null)" else ()
    except UsageError as exc:
        found.findings.append(Finding(f"File={text[:80]}: {exc.what}", record.line))
    unknown = [] if detected else sorted(keys.keys() - GRES_KEYS)
    if unknown:
        found.findings.append(Finding(f"{', '.join(unknown)[:80]}: no key of gres.conf: slurmd ends with a fatal error",
                                      record.line))
    if several and "file" in keys:
        found.findings.append(Finding("File= and MultipleFiles= on one line: slurmd takes one of them", record.line))
    links = keys.get("links") or keys.get("link") or ""
    found.gres.append(GresLine(
        keys.get("type", ""), files, keys.get("cores") or keys.get("cpus"), record.line, keys.get("nodename", ""),
        keys.get("flags", ""), count(keys.get("index")), detected, keys.get("name", "gpu"), count(keys.get("count")),
        links, several, record.section))
    if "autodetect" in keys and not detected:
        found.autodetect.append((keys["autodetect"], record.line, keys.get("nodename", "")))
        if "nodename" not in keys:
            found.findings.append(Finding("AutoDetect= and Name= on one line without NodeName=: slurmd cannot parse it "
                                          "and ends with a fatal error", record.line))

"""What slurmctld says of its nodes and settings: texts of `scontrol show node` and `scontrol show config`.

Values stay as they are printed. A node's keys are in the order in which Slurm prints them, which is what tells where a
text that people wrote (a reason, a comment) ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from hpcadmin.conf.check.finding import LiveNode
from hpcadmin.errors import ParseError
from hpcadmin.hosts import is_node_name
from hpcadmin.text import printable

MAX_LINE = 200_000
MAX_NODES = 100_000
# In Slurm's order, of all versions from 22.05 to 26.05.
_ORDER = (
    "NodeName", "Arch", "CpuBind", "CoresPerSocket", "CPUAlloc", "CPUEfctv", "CPUTot", "CPULoad", "AvailableFeatures",
    "ActiveFeatures", "Gres", "GresDrain", "GresUsed", "NodeAddr", "NodeHostName", "BcastAddr", "Port", "Version", "OS",
    "RealMemory", "AllocMem", "FreeMem", "Sockets", "Boards", "CoreSpecCount", "CPUSpecList", "MemSpecLimit",
    "RestrictedCoresPerGPU", "State", "ThreadsPerCore", "TmpDisk", "Weight", "Owner", "MCS_label", "NextState",
    "Partitions", "BootTime", "SlurmdStartTime", "LastBusyTime", "ResumeAfterTime", "SuspendTime", "CfgTRES",
    "AllocTRES", "CapWatts", "CurrentWatts", "AveWatts", "ExtSensorsJoules", "ExtSensorsWatts", "ExtSensorsTemp",
    "Reason", "Comment", "Extra", "InstanceId", "InstanceType", "ReservationName", "TLSCertTokenSet",
    "TLSCertLastRenewal", "Topology", "Parameters",
)
_PLACE = {key: place for place, key in enumerate(_ORDER)}
_WRITTEN = frozenset({"OS", "Reason", "Comment", "Extra"})       # may have blanks
_KEY = re.compile(r"(?<=[ \t])(" + "|".join(sorted(_ORDER, key=len, reverse=True)) + r")=")
# A comment with a line end may go on with NodeName=; what Slurm prints behind a name is one of these.
_BEGINS = re.compile(r"NodeName=\S{1,255}\s+(?:Arch|CpuBind|CoresPerSocket)=")
_WORD = re.compile(r"([A-Za-z][A-Za-z0-9_:/]{0,40})=(\S{0,4000})")
_SET_BY = re.compile(r"\s\[([^\[\]@\s]{1,64})@([0-9T:.Z+-]{8,40}|Unknown|None)\]")
_SUFFIXES = {"*": "NOT_RESPONDING", "-": "PLANNED", "~": "POWERED_DOWN", "#": "POWERING_UP", "$": "MAINTENANCE",
             "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "!": "POWER_DOWN", "%": "POWERING_DOWN"}
_LONG = {"INVAL": "INVALID_REG", "INVALID": "INVALID_REG", "NO_RESPOND": "NOT_RESPONDING", "MAINT": "MAINTENANCE"}


@dataclass(frozen=True)
class Reason:
    """text: as somebody or Slurm wrote it. user and since: who set it, and when, as printed; "" where not told."""

    text: str
    user: str = ""
    since: str = ""


@dataclass(frozen=True)
class Running:
    """Settings in force: by key in small letters, of slurm.conf, and of what else slurmctld prints, by its heading."""

    settings: Mapping[str, str]
    others: Mapping[str, Mapping[str, str]]


def read_nodes(text: str) -> dict[str, LiveNode]:
    """Nodes of `scontrol show node` in any of its forms: -o, --json, or one block a node. Raises ParseError."""
    return nodes_of_json(text) if text.lstrip()[:1] == "{" else parse_nodes(text)


def parse_nodes(text: str) -> dict[str, LiveNode]:
    """Raises ParseError where a record is none of a node, or is cut off: a missing state is never a good one."""
    found: dict[str, LiveNode] = {}
    for number, record in enumerate(_records(text), 1):
        values = _values(record)
        name = values.get("nodename", "")
        if not is_node_name(name) or "state" not in values:
            raise ParseError(f"record {number} is not a whole node: {printable(record.strip(), limit=100)!r}",
                             where="scontrol show node", hint="is the text complete?")
        found.setdefault(name, LiveNode(name, values))
        if number > MAX_NODES:
            raise ParseError(f"more than {MAX_NODES} nodes", where="scontrol show node")
    return found


def _records(text: str) -> Iterator[str]:
    """One text a node: a line that does not begin a node is more of the one before (a comment with a line end)."""
    now: list[str] = []
    for line in text.splitlines():
        if _BEGINS.match(line):
            if now:
                yield " ".join(now)
            now = [line[:MAX_LINE]]
        elif now and len(now) < 2000:
            now.append(line.strip()[:MAX_LINE])
        elif line.strip() and not line.startswith("No nodes in the system"):
            raise ParseError(f"unreadable: {printable(line.strip(), limit=100)!r}", where="scontrol show node")
    if now:
        yield " ".join(now)


def _values(record: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at, key, start, free = -1, "", 0, 0
    text = f" {record}"
    for match in _KEY.finditer(text):
        if _PLACE[match[1]] <= at or match.start() < free:
            continue                     # stands in a text: Slurm has printed this one already, or not yet
        if key:
            _put(found, key, text[start:match.start()])
        at, key, start = _PLACE[match[1]], match[1], match.end()
        if key == "Reason":              # who wrote it stands behind its first line: no key comes before
            stamp = _SET_BY.search(text, start)
            free = stamp.end() if stamp else 0
    if key:
        _put(found, key, text[start:])
    return found


def _put(found: dict[str, str], key: str, text: str) -> None:
    """The value, and keys that are not known here behind it."""
    if key in _WRITTEN:
        found[key.lower()] = text.strip()
        return
    value, _, rest = text.strip().partition(" ")
    found[key.lower()] = value
    for match in _WORD.finditer(rest):
        found.setdefault(match[1].lower(), match[2])


def reason_of(node: LiveNode) -> Reason:
    """The reason without the user and the time that Slurm puts behind its first line."""
    text = node.values.get("reason", "")
    match = max(_SET_BY.finditer(text), key=lambda found: found.start(), default=None)   # people write brackets too
    if match is None:
        return Reason("" if text == "(null)" else text.strip())
    return Reason(" ".join(f"{text[:match.start()]} {text[match.end():]}".split()), match[1],
                  "" if match[2] in ("Unknown", "None") else match[2])


def states(text: str) -> tuple[str, frozenset[str]]:
    """("IDLE", {"DRAIN", "NOT_RESPONDING"}) of IDLE+DRAIN*."""
    base, flags = "", set()
    for word in text.upper().split("+"):
        name = word.strip()
        while name and name[-1] in _SUFFIXES:
            flags.add(_SUFFIXES[name[-1]])
            name = name[:-1]
        name = _LONG.get(name, name)
        if not base:
            base = name
        elif name:
            flags.add(name)
    return base, frozenset(flags)


# --- JSON ----------------------------------------------------------------------------------------------------------

_JSON_KEYS = {
    "name": "nodename", "architecture": "arch", "cores": "corespersocket", "cpus": "cputot", "gres": "gres",
    "gres_used": "gresused", "gres_drained": "gresdrain", "address": "nodeaddr", "hostname": "nodehostname",
    "version": "version", "operating_system": "os", "real_memory": "realmemory", "free_mem": "freemem",
    "sockets": "sockets", "boards": "boards", "threads": "threadspercore", "temporary_disk": "tmpdisk",
    "weight": "weight", "boot_time": "boottime", "slurmd_start_time": "slurmdstarttime", "tres": "cfgtres",
    "comment": "comment", "extra": "extra", "parameters": "parameters", "topology": "topology", "port": "port",
    "features": "availablefeatures", "active_features": "activefeatures", "partitions": "partitions",
    "specialized_cores": "corespeccount", "specialized_memory": "memspeclimit", "alloc_memory": "allocmem",
}
_EMPTY = frozenset({"gres", "features", "active_features"})      # "" and [] say that it has none
_TIMES = frozenset({"boottime", "slurmdstarttime"})


def nodes_of_json(text: str) -> dict[str, LiveNode]:
    """From `scontrol show node --json` (23.02 and later), with the same keys. Times are in UTC. Raises ParseError."""
    where = "scontrol show node --json"
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ParseError("is not JSON", where=where, hint="is the text complete?") from exc
    records = root.get("nodes") if isinstance(root, dict) else None
    if not isinstance(records, list):
        raise ParseError("has no list of nodes", where=where)
    found: dict[str, LiveNode] = {}
    for number, record in enumerate(records[:MAX_NODES], 1):
        values = _of_json(record) if isinstance(record, dict) else {}
        name = values.get("nodename", "")
        if not is_node_name(name) or not values.get("state"):
            raise ParseError(f"record {number} is not a whole node", where=where)
        found.setdefault(name, LiveNode(name, values))
    return found


def _of_json(record: Mapping[str, Any]) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, name in _JSON_KEYS.items():
        text = _plain(record.get(key), time=name in _TIMES)
        if text or (key in _EMPTY and key in record):
            values[name] = text or "(null)"
    state = record.get("state")
    words = [state] if isinstance(state, str) else [w for w in state if isinstance(w, str)] if isinstance(
        state, list) else []
    flags = record.get("state_flags")
    words += [w for w in flags if isinstance(w, str)] if isinstance(flags, list) else []
    values["state"] = "+".join(word.upper() for word in words)
    reason = record.get("reason")
    if isinstance(reason, str) and reason:
        since = _plain(record.get("reason_changed_at"), time=True)
        user = record.get("reason_set_by_user")
        told = f" [{user if isinstance(user, str) and user else '?'}@{since}]" if since else ""
        values["reason"] = " ".join(reason.split("\n")) + told
    return values


def _plain(value: Any, *, time: bool = False) -> str:
    """As scontrol prints it: text, number, {"set": …, "number": …}, or a list of texts; "" for what is not set."""
    if isinstance(value, dict):
        usable = value.get("set") is True and value.get("infinite") is not True
        return _plain(value.get("number"), time=time) if usable else ""
    if isinstance(value, list):
        return ",".join(item for item in value if isinstance(item, str))
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, (int, float)):
        return _time(value) if time else str(value)
    return str(value)


def _time(seconds: float) -> str:
    if not 0 < seconds < 253402300799:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- settings ------------------------------------------------------------------------------------------------------

_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,60}(?:\[\d{1,3}\])?)\s{0,60}=\s?(.{0,20000})")


def parse_config(text: str) -> Running:
    """Raises ParseError when it is not what `scontrol show config` prints."""
    found: dict[str, dict[str, str]] = {}
    heading, whole = "", False
    for line in text.splitlines():
        match = _SETTING.fullmatch(line.rstrip())
        if match:
            found.setdefault(heading, {}).setdefault(match[1].lower(), match[2].strip())
        elif line.startswith("Configuration data as of"):
            whole = True
        elif line.rstrip().endswith("Configuration:"):
            heading = line.strip().removesuffix(":")
    settings = found.pop("", {})
    if not whole or "clustername" not in settings:
        raise ParseError("is not what it prints", where="scontrol show config", hint="is the text complete?")
    return Running(settings, found)


def indexed(settings: Mapping[str, str], key: str) -> str | None:
    """A setting that newer versions print with a number (Prolog[0], SlurmctldHost[0]), all of its values."""
    if key in settings:
        return settings[key]
    numbered = [name for name in settings if name.startswith(f"{key}[")]
    return ",".join(settings[name] for name in numbered) if numbered else None


def items(text: str) -> Iterable[str]:
    """At the commas outside of brackets: gpu:a100:2(S:0,1),nic:1."""
    depth, start = 0, 0
    for place, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:]:
        yield text[start:]

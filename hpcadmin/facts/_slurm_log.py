"""What slurmd and slurmctld write to their logs about hardware, GRES and topology, message by message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.facts import _slurm_paste
from hpcadmin.facts._base import clean
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_messages import WORDS, other, told

_DIFFERS = re.compile(r"Node configuration differs from hardware:((?:\s+\w{1,20}=\d{1,9}:\d{1,9}\(hw\)){1,8})")
_DIFFERENCE = re.compile(r"(\w{1,20})=(\d{1,9}):(\d{1,9})\(hw\)")
_FOUND = re.compile(r"CPUs:(\d{1,6}) Boards:(\d{1,4}) Sockets:(\d{1,4}) CoresPerSocket:(\d{1,5}) "
                    r"ThreadsPerCore:(\d{1,3})")
_LOWER = re.compile(r"(gres/[\w:.-]{1,80}) count reported lower than configured \((\d{1,6}) < (\d{1,6})\)")
_ON_NODE = re.compile(r"\bnode[= ]([A-Za-z0-9][\w.-]{0,100})", re.IGNORECASE)
_NOT_BUILT = re.compile(r"configured to autodetect (\w{1,20}) functionality, but we weren't able to find that lib")
_NO_LIB = re.compile(r"(?i)configured with (\w{1,20})(?: functionality)?, but that lib wasn't found")
_NO_NODE = re.compile(r"(?:lookup failure for node \"?|invalid node specified:? \"?|Invalid node name in topology: |"
                      r"Invalid hostnames in switch configuration: )"
                      r"([A-Za-z0-9][\w.-]{0,100})")
_GRES = re.compile(r"GRES\[gpu\] Type:(\S{1,100}) Count:(\d{1,6}) Cores\((\d{1,6})\):(\S{1,200})\s+Links:(\S{1,200}) "
                   r"Flags:\S{0,300} File:(\S{1,100})")
_MEMORY = re.compile(r"(?:[Nn]ode (\S{1,100}) has low real_memory size \((\d{1,12}) < (\d{1,12})\)|"
                     r"Low RealMemory \(reported:(\d{1,12}) < [\d.]{1,8}% of configured:(\d{1,12})\))")
_BOUNDARIES = re.compile(r"Node reconfigured socket/core boundaries((?:\s+\w{1,20}=\d{1,9}:\d{1,9}\(hw\)){1,8})")
_MISMATCH = re.compile(r"(?i)\bmismatch\b[^\n]{0,200}?\b(\d{1,6}) ?!= ?(\d{1,6})")
_CHILD = re.compile(r"(?i)child switch[^\n]{0,60}not (?:defined|found)")
_SYSTEM = re.compile(r"_get_system_gpu_list_(\w{1,20}): (\d{1,4}) GPU system device\(s\) detected")
_AUTO = {"nvml": "AutoDetect=nvidia from 24.11 on needs no library, File= lines need none at all",
         "rsmi": "install the ROCm SMI library, or write File=/dev/dri/renderD* lines with AutoDetect=off"}
_KEYS = {"CPUs": "cpus", "Boards": "boards", "SocketsPerBoard": "sockets", "Sockets": "sockets",
         "CoresPerSocket": "cores_per_socket", "ThreadsPerCore": "threads_per_core"}
# What a log alone lacks; a text that has the lines too does not.
LINES = "the NodeName and gres.conf lines, and "


MAX_OTHERS = 50
MAX_BROKEN = 2000                # lines of a text that may be a mail
_UNLOADED = re.compile(r"Couldn't load specified plugin name for (\w{1,30}/\w{1,30}):")
_BREAKS = re.compile(r"(?:error|fatal|warning|Reason=|reason|gres|GRES|Low |node|file|Slurm|plugin)")
# A line of its own: a date, a daemon's name, a key.
_STARTS = re.compile(r"\s{0,20}(?:\[|\d{4}-|[A-Z][a-z]{2} +\d|slurm|[A-Za-z]\w{1,40}=|[a-z]{4,9}: |#|\$)")


@dataclass
class Log:
    known: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    unloaded: frozenset[str] = frozenset()       # plug-ins that are there and did not load

    def say(self, text: str, line: int, *, note: bool = False) -> bool:
        """Once, however often the log repeats it."""
        if text in self.said:
            return False
        self.said.add(text)
        self.findings.append(Finding(text, line, note))
        return True


def collect(lines: Sequence[str]) -> Log:
    log = Log(unloaded=frozenset(match[1] for line in lines if "Couldn't load" in line
                                 for match in _UNLOADED.finditer(line)))
    ignored = 0
    for number, line in _messages(lines):
        if not _worth(line):
            continue
        before = len(log.findings), len(log.missing), len(log.known)
        for rule in _RULES:
            rule(line, number, log)
        if "autodetected GPUs are being ignored" in line:
            ignored = number
            log.missing.append("the Gres= of the node")
        if "GRES[gpu]" in line:
            _gres(line, number, log, ignored=ignored > 0)
        if (len(log.findings), len(log.missing), len(log.known)) != before or number == ignored:
            log.lines.append(number)
    _others(lines, log)
    if ignored:
        detected = log.known.get("gres_detected", [])
        types = ", ".join(sorted({gpu["type"] for gpu in detected if gpu["type"]}))
        kinds = f"type {types}" if types else "their type"
        log.say(f"detected GPUs are ignored: no configured GPU of {kinds} is left to match them",
                ignored)
        _right(lines, ignored, log)
    return log


def _messages(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines with their numbers; what a mail program has broken as one."""
    broken = len(lines) <= MAX_BROKEN
    for number, line in enumerate(lines, 1):
        below = lines[number] if broken and number < len(lines) else ""
        if below.strip() and _BREAKS.search(line) and not _STARTS.match(below) and not _says(line):
            both = f"{line.rstrip()} {below.strip()}"
            yield number, both if _says(both) and not _says(below) else line
        else:
            yield number, line


def _says(line: str) -> bool:
    return any(pattern.search(line) for pattern in (_DIFFERS, _LOWER, _NOT_BUILT, _NO_LIB, _NO_NODE, _MEMORY,
                                                    _BOUNDARIES)) or any(told(line))


def _others(lines: Sequence[str], log: Log) -> None:
    """Errors of the daemons that no pattern is for: quoted, fatal ones as faults."""
    slurms, seen, known = bool(log.lines) or any("slurm" in line for line in lines), set(log.lines), 0
    for number, line in _messages(lines) if slurms else ():
        found = other(line) if number not in seen and not any(told(line)) else None
        if found and known < MAX_OTHERS:
            how, what = found
            text = f"{how}: {what}"
            if log.say(text, number, note=how != "fatal"):
                log.lines.append(number)
                known += 1
    log.lines.sort()


def _right(lines: Sequence[str], ignored: int, log: Log) -> None:
    """The Gres= and AutoDetect= that fit what slurmd detected, where it says how many there are."""
    system = next((match for match in map(_SYSTEM.search, lines) if match), None)
    kind = re.search(r"Type:(\S{1,100}) ", "\n".join(lines[ignored:ignored + 20]))
    if system and kind and not kind[1].isdigit():
        log.right += [f"Gres=gpu:{kind[1]}:{system[2]}", f"AutoDetect={system[1]}"]


_WORDS = ("onfigur", "gres/", "GRES[", "Sockets", "lookup failure", "nvalid node", "nvalid host", "ignored", "Low ",
          "low real", "ismatch", "child", "lib wasn", "config-only", "boundaries", *WORDS)


def _worth(line: str) -> bool:
    """Before the patterns are put to it: a word that one of them begins with."""
    return any(word in line for word in _WORDS)


def _differs(line: str, number: int, log: Log) -> None:
    match = _DIFFERS.search(line)
    if not match:
        return
    configured, hardware, right = {}, {}, []
    for key, ours, theirs in _DIFFERENCE.findall(match[1]):
        name = _KEYS.get(key, key.lower())
        configured[name], hardware[name] = int(ours), int(theirs)
        right.append(f"{key}={theirs}")
        if ours != theirs:
            log.say(f"{key}: configured {ours}, hardware {theirs} ({key}={ours}:{theirs}(hw))",
                    number)
    _pair(log, configured, hardware)
    log.right.append(" ".join(right))


def _found(line: str, number: int, log: Log) -> None:
    match = _FOUND.search(line)
    if match:
        names = ("cpus", "boards", "sockets", "cores_per_socket", "threads_per_core")
        log.known["hardware"] = dict(zip(names, map(int, match.groups()), strict=True))


def _lower(line: str, number: int, log: Log) -> None:
    match = _LOWER.search(line)
    if match:
        node = _ON_NODE.search(line)
        where = f" on {node[1]}" if node else ""
        log.say(f"{match[1]}: {match[2]} of {match[3]} configured registered{where} "
                f"({match[2]} < {match[3]}): the node is INVAL and drained", number)
        log.missing.append(f"{LINES}why slurmd saw fewer devices")


def _library(line: str, number: int, log: Log) -> None:
    match = _NOT_BUILT.search(line)
    if match:
        log.say(f"AutoDetect={match[1]}, but this slurmd was built without it: "
                f"{_AUTO.get(match[1], 'File= lines need no library')}", number)
    match = _NO_LIB.search(line)
    if match:
        log.say(f"AutoDetect={match[1]}: its library was not found, no GPU is detected: "
                f"{_AUTO.get(match[1], 'install it')}", number)
        log.missing.append("which GPUs the node has, and its gres.conf")


def _no_node(line: str, number: int, log: Log) -> None:
    match = _NO_NODE.search(line)
    if match:
        names = log.known.setdefault("unknown_nodes", [])
        if log.say(f"{match[1]} is not in slurm.conf", number):
            names.append(match[1])
            log.missing.append("topology.conf and the nodes of slurm.conf")


def _gres(line: str, number: int, log: Log, *, ignored: bool) -> None:
    match = _GRES.search(line)
    if not match:
        return
    kind, cores, links, file = match[1], *(None if v == "(null)" else v for v in (match[4], match[5], match[6]))
    if ignored or file:
        log.known.setdefault("gres_detected", []).append({"type": None if kind == "(null)" else kind, "file": file,
                                                          "cores": cores, "links": links})
        return
    what = f'Type:{kind} Count:{match[2]}: the count "{kind}" stands where the type belongs'
    # slurmd shows its list several times.
    if kind.isdigit():
        log.say(what, number)


def _memory(line: str, number: int, log: Log) -> None:
    match = _MEMORY.search(line)
    if match:
        node, real, wanted = match[1], match[2] or match[4], match[3] or match[5]
        log.say(f"Low RealMemory{' on ' + node if node else ''}: {wanted} is configured, the node has {real} "
                f"({real} < {wanted}) and is drained: RealMemory={real} at most, better some less", number)
        _pair(log, {"real_memory": int(wanted)}, {"real_memory": int(real)})


def _boundaries(line: str, number: int, log: Log) -> None:
    match = _BOUNDARIES.search(line)
    if match:
        values = [(key, _KEYS.get(key, key.lower()), int(a), int(b)) for key, a, b in _DIFFERENCE.findall(match[1])]
        text = ", ".join(f"{key} {a} configured, {b} found" for key, _, a, b in values)
        log.say(f"sockets and cores are not those of the hardware: {text}", number)
        _pair(log, {name: a for _, name, a, _ in values}, {name: b for _, name, _, b in values})


def _pair(log: Log, configured: dict[str, int], hardware: dict[str, int]) -> None:
    """Of one node; of several that differ, neither is the text's."""
    for key, values in (("configured", configured), ("hardware", hardware)):
        before = log.known.get(key, {})
        both = {**before, **values}
        log.known[key] = {name: both[name] for name in both if name not in before or before[name] == both[name]}
        if not log.known[key]:
            del log.known[key]


def _words(line: str, number: int, log: Log) -> None:
    for message, text in told(line):
        unloaded = next((each for each in log.unloaded if text.startswith(f"this Slurm has no plugin {each}:")), "")
        said = f"{unloaded} could not be loaded: fatal" if unloaded else text
        if log.say(said, number, note=message.note) and message.missing:
            log.missing.append(message.missing)


def _mismatch(line: str, number: int, log: Log) -> None:
    match = _MISMATCH.search(line)
    if match and "differs" not in line:
        log.say(f"a count does not match: {match[1]} != {match[2]}: {clean(line, 160)}", number)
        log.missing.append("the node names, and gres.conf (one with NodeName= lines can be the same everywhere)")


def _child(line: str, number: int, log: Log) -> None:
    if _CHILD.search(line):
        log.say(f"topology.conf names a child switch that it does not define: {clean(line, 160)}",
                number)


_RULES: tuple[Callable[[str, int, Log], None], ...] = (
    _differs, _found, _lower, _library, _no_node, _memory, _boundaries, _mismatch, _child, _words)


def unfinished(lines: Sequence[str]) -> Iterator[str]:
    """The last line where it ends in the middle of a message."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    if re.search(r"(?:Cor|GPU Ge|Count:\d*|Type:\S*)\Z", last) or _slurm_paste.cut(last):
        yield f"the end: the text is cut off in '{clean(last[-40:])}'"

"""What MPI libraries, launchers and job managers print around a program's lines: ranks, hosts, transport, faults."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hpcadmin.check import Context, Measurement, Subject
from hpcadmin.checklib import fatal_lines
from hpcadmin.text import printable

# What mpirun --tag-output (and --timestamp-output), srun --label, mpiexec -l, loggers, mails and pdsh put before every
# line, or before those of one stream only.
_LABELS = tuple(map(re.compile, (
    r"(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?\[(?:[\w.-]{1,120}@)?\d{1,9},\d{1,9}\]<std(?:out|err)>: ?",
    r"\s{0,12}\d{1,7}: ?", r"\[\d{1,7}\] ?", r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)? ",
    r"[^#]{1,120}?\[stdout\] ?", r">[> ]{0,8}")))
_HOST_LABEL = re.compile(r"[A-Za-z][\w.-]{0,80}: ?")        # of one host: of other lines it may be a program's name
_FAULT = re.compile(
    r"UCX +ERROR|TL_UCP ERROR|UCC +ERROR|bad termination|segv\b|caught signal|\bSignal: |transport retry|"
    r"pml_ucx\.c:\d{1,6} +error|cxil_map|exited with exit code|exited on signal|job\.exception|"
    r"lost communication|selected pml \w{1,12}, but|data validation error|cancelled at|due to time limit|"
    r"unable to reliably start|invalid option|unrecognized option|out of memory|daemon *: \S{1,60} on node |"
    r"^Abort\(|completion with error|"
    r"failed to receive ucx|no such device or address|MPI_ERR_|HYDT_|HYD_|"
    r"requires (?:exactly|at least) two processes|(?:cuda|rocm|openacc) support not|cuda call .{1,80} failed|"
    r"error (?:initializing|setting|cleaning up) device|error allocating|host key verification|permission denied \(|"
    r"ssh: connect|symbol lookup error|while loading shared libraries|PMI2?_\w{1,30} (?:failed|returned)|"
    r"assertion .{0,80}fail|"
    r"^(?:Killed|Terminated|Aborted)\b|Job step aborted|NVRM: Xid|NIC Link is Down|btl_tcp_endpoint|"
    r"unable to complete a TCP connection|primary job +terminated|exited with non-zero|unable to launch the|"
    r"processes failed to start|has exited due to process|exiting improperly|(?:PRTE|ORTE|OPAL) ERROR|"
    r"\*\*\* an error occurred in|\berror stack:|MPICH ERROR|MPIDI\w*\(\d{1,6}\)\.*: .{1,200}fail|"
    r"\bOFI \w{1,40}(?:\(\))? failed|(?:MPI|ROCM) call .{0,120}failed|could not allocate .{0,12}memory|"
    r"requires (?:an even number|two or more)|failed validation|no validations were performed|"
    r"unable to find the specified executable|unable to reach each other|no IB device found|"
    r"singletons will be started",
    re.IGNORECASE)
_DOUBT = re.compile(r"UCX +WARN|PMIX ERROR|WARNING: There was an error initializing|OpenFabrics device|"
                    r"libfabric:\S{1,200}<warn>|btl_openib_warn|no active ports|"
                    r"another transport will be used instead|fall(?:ing)? back to|failed to TCP connect|"
                    r"connection schemes|The call to cu\w{1,40} failed|can't open hfi", re.IGNORECASE)
_HARMLESS = re.compile(r"unused environment variable|Could not change dir to|couldn't chdir|MPI startup\(\)")
_NOTE = re.compile(r"libibverbs: Warning|no version information available|Could not change dir|: not found$|"
                   r"command not found|"
                   r"could not identify the local rank|\bSET \w{1,60}=|unused environment variable|"
                   r"^(?:Start|End) time: ", re.IGNORECASE)
_INTEL_RANK = re.compile(r"\[0\] MPI startup\(\): +(\d{1,7}) +(\d{1,9}) +(\S{1,255}) +(\S{1,4000})$")
_INTEL_MODE = re.compile(r"\[\d{1,7}\] MPI startup\(\): ((?:\w{2,12} and )?(\w{2,12}) data transfer modes?)$")
_INTEL_PROVIDER = re.compile(r"\[\d{1,7}\] MPI startup\(\): (libfabric provider: ([\w;-]{2,40}))$")
_INTEL_MAPPING = re.compile(r"\[0\] MPI startup\(\): I_MPI_PIN_MAPPING=(\d{1,7}):")
_UCX_LANE = re.compile(r"UCX +INFO .{0,200}?\b((?:rc|dc|ud)(?:_\w{1,12})?|tcp)/([\w.-]{1,40}(?::\d{1,3})?)")
_BTL = re.compile(r"btl: ?tcp: |\bbtl:tcp\b", re.IGNORECASE)
# For each peer, with btl_base_verbose=5; within a node it is one of the others.
_BML = re.compile(r"mca: bml: Using (tcp|openib|usnic|ofi|uct|ugni|portals4) btl for send to ")
# With pml_base_verbose=10 and mtl_base_verbose=1, where messages go through libfabric.
_MTL = re.compile(r"mtl:ofi:prov: ([\w;-]{2,40})$")
_OPEN_RANK = re.compile(r"\[([\w.-]{1,255}):\d{1,9}\] (?:MCW rank|Rank) (\d{1,7}) (?:is not )?bound ")
_OPEN_MAP = re.compile(r"Data for node: (\S{1,255})\s.{0,120}Num procs: (\d{1,7})\b")
_SRUN_HOST = re.compile(r"srun: error: ([\w.-]{1,255}): tasks? ")
_DAEMON_HOST = re.compile(r"(?:HNP|Remote) daemon *: \S{1,60} on node (\S{1,255})$")
_LIBFABRIC = re.compile(r"libfabric:\d{1,9}:\d{0,20}::?(\w{2,12}):\S{1,200}<warn> ([\w.-]{1,255}): ")
_WALL = re.compile(r"(real|user|sys) (\d{1,9}\.\d\d)$")
_PLAIN_ROW = re.compile(r"\d[\d. ]*(?:Pass|Fail)?\Z")      # nothing but numbers: says nothing of what is around
_COMMAND = re.compile(r'"command": \[[^\]]{0,400}\]')
_HOSTLIST = re.compile(r'"hostlist": \["[^"\]]{0,400}"\]')
_PROVIDERS = {"tcp": "TCP", "sockets": "TCP", "net": "TCP", "verbs": "RDMA", "mlx": "RDMA", "dapl": "RDMA",
              "ofa": "RDMA", "psm2": "OPA", "psm3": "RDMA", "efa": "EFA", "cxi": "libfabric cxi", "shm": "SHM"}


@dataclass(frozen=True)
class Around:
    """faults: lines after which no value counts; doubts: what makes it doubtful; notes: worth knowing.

    ranks, hosts, host_names: as a library or a job manager lists them. named: hosts that only error lines name.
    """

    faults: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ranks: int | None = None
    hosts: int | None = None
    host_names: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    transport: str | None = None
    programs: tuple[str, ...] = ()


def untagged(lines: Sequence[str]) -> list[str]:
    """Without the labels that launchers put before every line, where the title of a program has one."""
    found = list(lines)
    for _ in range(2):                   # a time and a rank
        label = next((label for label in _LABELS if any(_is_title(line, label) for line in found)), None)
        if label is None:
            break
        found = [line if "MPI startup()" in line else label.sub("", line, count=1).strip() if label.match(line)
                 else line for line in found]
    hosts = {line[:match.end()] for line in found
             if (match := _HOST_LABEL.match(line)) and _is_title(line, _HOST_LABEL)}
    for host in sorted(hosts)[:1]:
        found = [line[len(host):].strip() if line.startswith(host) else line for line in found]
    return found


def _is_title(line: str, label: re.Pattern[str], more: bool = True) -> bool:
    """Whether a program's title follows the label, or does so after another one (a time, then a rank)."""
    match = label.match(line)
    if match is None:
        return False
    if line.startswith(("# OSU ", "# hpcadmin "), match.end()):
        return True
    return more and "# " in line and any(_is_title(line[match.end():], other, False) for other in _LABELS)


def look(lines: Sequence[str]) -> Around:
    """What stands around the tables of a text."""
    told = [line for line in lines if line and not _PLAIN_ROW.match(line)]
    kinds = {line: _kind(line) for line in dict.fromkeys(told)}
    faults, doubts, notes = (_samples([line for line in told if kinds[line] == kind], each)
                             for kind, each in (("fault", 4), ("doubt", 4), ("note", 16)))
    intel = _intel(told)
    if intel.ranks is None and not intel.doubts:
        intel = _open_mpi(told)
    flux = _flux(told)
    names = dict.fromkeys(name for line in told for name in _hosts_of(line))
    return Around(
        faults=(*faults, *flux.faults), doubts=(*doubts, *intel.doubts, *flux.doubts),
        notes=(*notes, *intel.notes, *flux.notes, *_wall(told)),
        ranks=intel.ranks if intel.ranks is not None else flux.ranks,
        hosts=intel.hosts if intel.hosts is not None else flux.hosts, host_names=intel.host_names,
        named=tuple(names), transport=_transport(told), programs=flux.programs)


def _kind(line: str) -> str:
    """What a line tells: "fault", "doubt", "note" or nothing."""
    return _kind_of(line[:2000])


@lru_cache(maxsize=2048)        # heads and names come again in the outputs of all nodes
def _kind_of(line: str) -> str:
    if line.startswith('{"'):
        return ""
    if not _HARMLESS.search(line):
        if _FAULT.search(line) or fatal_lines([line], limit=1):
            return "fault"
        if _DOUBT.search(line):
            return "doubt"
    return "note" if _NOTE.search(line) else ""


def _samples(lines: Sequence[str], each: int, most: int = 24) -> list[str]:
    """Of lines that differ in numbers only, the first few, with how many there are."""
    shapes: dict[str, dict[str, int]] = {}
    for line in lines:
        shape = re.sub(r"\w*\d\w*", "#", " ".join(line[:400].split()))
        shapes.setdefault(shape, {})
        shapes[shape][line] = shapes[shape].get(line, 0) + 1
    found = []
    for alike in list(shapes.values())[:most]:
        total, shown = sum(alike.values()), list(alike)[:each]
        found += [printable(line, limit=240) for line in shown]
        if total > len(shown):
            found[-1] += f" ({total} such lines)"
    return found[:most * 2]


def _open_mpi(lines: Sequence[str]) -> Around:
    """Open MPI's map of processes (--display-map) or its bindings (--report-bindings)."""
    bound = {int(m[2]): m[1] for m in map(_OPEN_RANK.match, lines) if m}
    mapped = {m[1]: int(m[2]) for m in (_OPEN_MAP.search(line[:600]) for line in lines if "Num procs" in line) if m}
    names = tuple(mapped or dict.fromkeys(bound.values()))
    if not names:
        return Around()
    doubts = []
    if bound and sorted(bound) != list(range(len(bound))):
        doubts.append(f"MPI lists the ranks {', '.join(map(str, sorted(bound)[:20]))}: some are missing")
    ranks = sum(mapped.values()) if mapped else len(bound)
    if bound and ranks != len(bound):
        doubts.append(f"MPI maps {ranks} processes and binds {len(bound)}")
    return Around(doubts=tuple(doubts), ranks=None if doubts else ranks, hosts=None if doubts else len(names),
                  host_names=names, notes=(f"hosts: {printable(', '.join(names), limit=300)}",))


def _intel(lines: Sequence[str]) -> Around:
    """Intel MPI's table of ranks (I_MPI_DEBUG=4 and more)."""
    rows = [m for m in map(_INTEL_RANK.match, lines) if m]
    if not rows:
        return Around()
    ranks = [int(m[1]) for m in rows]
    names = tuple(dict.fromkeys(m[3] for m in rows))
    doubts = []
    if ranks != list(range(len(ranks))):
        doubts.append(f"MPI lists the ranks {', '.join(map(str, ranks[:20]))}: some are missing or come twice")
    mapping = next((m for m in map(_INTEL_MAPPING.match, lines) if m), None)
    if mapping and not doubts and int(mapping[1]) * len(names) != len(ranks):
        doubts.append(f"MPI lists {len(ranks)} ranks on {len(names)} hosts, with {mapping[1]} pinned on each host: "
                      "some are missing")
    whole = not doubts
    return Around(doubts=tuple(doubts), ranks=len(ranks) if whole else None, hosts=len(names) if whole else None,
                  host_names=names, notes=(f"hosts: {printable(', '.join(names), limit=300)}",))


def _flux(lines: Sequence[str]) -> Around:
    """Flux' job specification and event log, where they follow the output."""
    faults: list[str] = []
    notes: list[str] = []
    ranks = hosts = None
    programs: tuple[str, ...] = ()
    events: list[str] = []
    for line in lines:
        if not line.startswith(('{"resources"', '{"timestamp"')) or len(line) > 100_000:
            continue
        data = _json(line)
        if line.startswith('{"resources"'):
            notes += [m[0] for m in (_COMMAND.search(line), _HOSTLIST.search(line)) if m]
            hosts, ranks, programs = _jobspec(data)
            continue
        name = _get(data, "name")
        events.append(str(name))
        code = _get(data, "context", "exitcode" if name == "shell.task-exit" else "status")
        if name in ("shell.task-exit", "complete") and code not in (0, None):
            faults.append(f"the job's event log: {printable(line, limit=200)}")
    doubts = ["the job's event log has no end of the job"] if "shell.start" in events and not (
        {"complete", "done"} & set(events)) else []
    return Around(faults=tuple(faults[:3]), doubts=tuple(doubts), notes=tuple(notes), hosts=hosts,
                  ranks=ranks, programs=programs)


def _jobspec(data: Any) -> tuple[int | None, int | None, tuple[str, ...]]:
    """(nodes, tasks where it starts an MPI program of a benchmark, words of its command)."""
    nodes = _get(data, "resources", 0, "count")
    slots, each = _get(data, "resources", 0, "with", 0, "count"), _get(data, "tasks", 0, "count", "per_slot")
    words = _get(data, "tasks", 0, "command")
    command = tuple(str(word).rsplit("/", 1)[-1] for word in words) if isinstance(words, list) else ()
    if not isinstance(nodes, int) or _get(data, "resources", 0, "type") != "node":
        return None, None, command
    mpi = any(word.startswith(("osu_", "mpi_")) for word in command)
    ranks = nodes * slots * each if mpi and isinstance(slots, int) and isinstance(each, int) else None
    return nodes, ranks, command


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _get(data: Any, *path: str | int) -> Any:
    for key in path:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return None
    return data


def _hosts_of(line: str) -> list[str]:
    found = []
    for pattern, group in ((_SRUN_HOST, 1), (_DAEMON_HOST, 1), (_LIBFABRIC, 2)):
        match = pattern.match(line)
        if match:
            found.append(match[group])
    return found


def _transport(lines: Sequence[str]) -> str | None:
    """The medium that the output proves; None where nothing proves one."""
    lanes = [m for m in (_UCX_LANE.search(line[:1000]) for line in lines if "UCX" in line[:400]) if m]
    fast = next((m for m in lanes if m[1] != "tcp"), None)
    if lanes:
        lane = fast or lanes[0]
        return f"{'RDMA' if fast else 'TCP'} (UCX: {lane[1]}/{lane[2]})"
    for line in lines:
        match = _INTEL_PROVIDER.match(line) or _INTEL_MODE.match(line)
        if match:
            medium = _PROVIDERS.get(match[2].split(";")[0].split("-")[0])
            return f'{medium} (Intel MPI: "{match[1]}")' if medium else None
    cxi = next((m for m in map(_LIBFABRIC.match, lines) if m), None)
    if cxi:
        return f"libfabric {cxi[1]}"
    if any("select: component cm selected" in line[:400] for line in lines):
        provider = next((m[1] for m in (_MTL.search(line[:400]) for line in lines) if m), "")
        medium = _PROVIDERS.get(provider.split(";")[0])
        if medium:
            return f"{medium} (Open MPI: mtl ofi {provider})"
    used = dict.fromkeys(m[1] for m in (_BML.search(line[:400]) for line in lines) if m)
    if used:
        slow = "tcp" in used
        names = ", ".join(used)
        return f"{'TCP' if slow else 'RDMA'} (Open MPI: btl {'tcp' if slow else printable(names, limit=60)})"
    if any(_BTL.search(line[:400]) and "connect" in line for line in lines):
        return "TCP (Open MPI: btl tcp)"
    return None


def _wall(lines: Sequence[str]) -> list[str]:
    """Wall times of `time -p`: numbers that are no result."""
    real = [n for n, line in enumerate(lines) if line.startswith("real ") and _WALL.match(line)]
    if not real:
        return []
    longest = max(real, key=lambda n: float(lines[n].split()[1]))
    block = [line for line in lines[longest:longest + 3] if _WALL.match(line)]
    return [f"wall times of {len(real)} commands, no result; the longest: {', '.join(block)}"]


def bad(line: str) -> bool:
    """Whether a line tells a fault or a doubt."""
    return _kind(line) in ("fault", "doubt")


def warned(measurements: Sequence[Measurement], problems: Sequence[str]) -> list[Measurement]:
    """The measurements of an output that is usable, with its problems as warnings: the best verdict is WARN."""
    told = tuple(printable(why, limit=200) for why in problems[:8])
    return [replace(m, warnings=(*m.warnings, *told)) if told else m for m in measurements]


def sockets(transport: str | None, context: Context) -> list[Measurement]:
    """A fault, whatever the numbers: sockets were used, and every node of the test has an RDMA device."""
    rdma = bool(context.nodes) and all(node.rdma_devices for node in context.nodes) and not context.simulated
    if not rdma or not (transport or "").startswith("TCP"):
        return []
    nodes = Subject(tuple(node.name for node in context.nodes))
    return [Measurement("transport", printable(transport or "", limit=200), subject=nodes, expected="RDMA")]

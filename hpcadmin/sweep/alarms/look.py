"""What a nightly look compares with a threshold: storage, packets, temperatures, jobs that wait, GPUs that idle. Pure.

Nothing here drains: it is told. Where nothing was measured that is told, and what was told before goes on. A threshold
of 0 is switched off: what was told by it is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcadmin.hosts import fold
from hpcadmin.slurm.queue_look import Queue
from hpcadmin.sweep.alarms.config import Thresholds
from hpcadmin.sweep.model import Problem
from hpcadmin.sweep.problems import Watched
from hpcadmin.text import number, plural, printable

_NO_QUEUE = "Slurm's queue could not be looked at"
NETWORK_TYPES = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "cifs", "smb3", "glusterfs",
                 "9p", "orangefs", "fuse.sshfs", "fuse.glusterfs", "fuse.juicefs", "pvfs2", "afs")
IDLE_MIB = 1024.0           # a GPU with less used memory than that and no load does nothing
MAX_KEYS = 20               # of one kind; the worst


@dataclass(frozen=True)
class Node:
    """A node's health results: when, and the facts of each check."""

    time: float
    facts: tuple[tuple[str, Mapping[str, Any]], ...] = ()


def look(nodes: Mapping[str, Node], queue: Queue | None, limits: Thresholds, now: float) -> Watched:
    parts = [storage(nodes, limits, now), packets(nodes, limits, now), temperatures(nodes, limits, now),
             pending(queue, limits, now), idle_gpus(nodes, queue, limits, now)]
    return Watched({key: problem for part in parts for key, problem in part.problems.items()},
                  {name: value for part in parts for name, value in part.values.items()},
                  tuple(key for part in parts for key in part.unknown),
                  series={head: keys for part in parts for head, keys in part.series.items()},
                  measured={name: why for part in parts for name, why in part.measured.items()})


def _unmeasured(name: str, why: str, key: str) -> Watched:
    return Watched(unknown=(key,), measured={name: why})


def storage(nodes: Mapping[str, Node], limits: Thresholds, now: float) -> Watched:
    """How long a network file system takes to answer stat and statvfs, by where it is mounted."""
    if not limits.storage_ms:
        return Watched()
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for name, facts in _facts(nodes, "mount"):
        value, path = _number(facts.get("answer_ms")), facts.get("path")
        if value is not None and isinstance(path, str) and facts.get("type") in NETWORK_TYPES:
            times[path][name] = max(value, times[path].get(name, 0.0))
    if not times:
        return _unmeasured("storage_ms", "no check mount told how long a network file system took", "look/storage")
    found = {}
    for path, by_node in times.items():
        slow = {name: value for name, value in by_node.items() if value > limits.storage_ms}
        if slow:
            found[path] = (max(slow.values()), _problem(
                f"look/storage:{path}", len(slow), f"{path} answers after up to {number(max(slow.values()))} ms, more "
                f"than {limits.storage_ms:g}, on {_of(slow)}", now))
    return Watched(_worst(found), {"storage_ms_max": max(max(one.values()) for one in times.values())},
                   series={"look/storage:": _known("look/storage", times, found)}, measured={"storage_ms": ""})


def packets(nodes: Mapping[str, Node], limits: Thresholds, now: float) -> Watched:
    """Packets of ping that were lost, of all nodes to one host together: of a few packets one is no rate."""
    if not limits.packet_loss_percent:
        return Watched()
    sent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    losers: dict[str, set[str]] = defaultdict(set)
    for name, facts in _facts(nodes, "ping"):
        host, count, loss = facts.get("host"), _number(facts.get("sent")), _number(facts.get("loss_percent"))
        if isinstance(host, str) and count and loss is not None and 0 <= loss <= 100:
            sent[host][0] += count
            sent[host][1] += count * loss / 100
            if loss:
                losers[host].add(name)
    least = 100 / limits.packet_loss_percent
    enough = {host: 100 * lost / count for host, (count, lost) in sent.items() if count >= least}
    if not enough:
        return _unmeasured("packet_loss_percent", f"the checks ping of all nodes sent fewer than {least:.0f} packets "
                           "to any host", "look/packets")
    found = {host: (loss, _problem(
        f"look/packets:{host}", len(losers[host]), f"{number(loss)} % of {sent[host][0]:.0f} packets to {host} were "
        f"lost, more than {limits.packet_loss_percent:g}, from {_of(losers[host])}", now))
        for host, loss in enough.items() if loss > limits.packet_loss_percent}
    return Watched(_worst(found), {"packet_loss_percent_max": max(enough.values())}, measured={
        "packet_loss_percent": ""}, series={"look/packets:": _known("look/packets", enough, found)})


def temperatures(nodes: Mapping[str, Node], limits: Thresholds, now: float) -> Watched:
    problems, values, unknown, measured = {}, {}, [], {}
    for fact, key, limit, what in (("core_c", "gpu_c", limits.gpu_c, "GPUs"),
                                   ("memory_c", "gpu_memory_c", limits.gpu_memory_c, "memory of GPUs")):
        if not limit:
            continue
        told: dict[str, float] = {}
        for name, facts in _facts(nodes, "gpu_temperature"):
            value = _number(facts.get(fact))
            if value is not None and 0 < value < 200:
                told[name] = max(value, told.get(name, 0.0))
        measured[key] = "" if told else f"no check gpu_temperature told it of {what}"
        if not told:
            unknown.append(f"look/{key}")
            continue
        values[f"{key}_max"] = max(told.values())
        hot = {name: value for name, value in told.items() if value >= limit}
        if hot:
            problems[f"look/{key}"] = _problem(f"look/{key}", len(hot), f"{what} have up to {max(hot.values()):g} C, "
                                               f"limit {limit:g}, on {_of(hot)}", now)
    return Watched(problems, values, tuple(unknown), measured=measured)


def pending(queue: Queue | None, limits: Thresholds, now: float) -> Watched:
    if not limits.pending_jobs:
        return Watched()
    if queue is None:
        return _unmeasured("pending_jobs", _NO_QUEUE, "look/pending")
    measured = {"pending_jobs": ""}
    values = {"pending_jobs": float(queue.pending)}
    if queue.pending <= limits.pending_jobs:
        return Watched(values=values, measured=measured)
    text = f"{queue.pending} jobs wait for resources, more than {limits.pending_jobs}"
    return Watched({"look/pending": _problem("look/pending", queue.pending, text, now)}, values, measured=measured)


def idle_gpus(nodes: Mapping[str, Node], queue: Queue | None, limits: Thresholds, now: float) -> Watched:
    """More GPUs are allocated on a node than do something, and every job there has run for long enough. Which job's
    they are is not told by either side, so only the surplus counts."""
    if not limits.idle_gpus_h:
        return Watched()
    if queue is None:
        return _unmeasured("idle_gpus_h", _NO_QUEUE, "look/idle_gpus")
    idle: dict[str, int] = {}
    told = False
    for name, node in nodes.items():
        busy = _busy(node)
        if busy is None:
            continue
        told = True
        allocated = queue.gpus.get(name, 0)
        if allocated > busy and node.time - queue.since.get(name, float("inf")) >= limits.idle_gpus_h * 3600:
            idle[name] = allocated - busy
    if not told:
        return _unmeasured("idle_gpus_h", "no check gpu told what every GPU of a node does", "look/idle_gpus")
    values, measured = {"idle_gpus": float(sum(idle.values()))}, {"idle_gpus_h": ""}
    if not idle:
        return Watched(values=values, measured=measured)
    text = (f"{plural(sum(idle.values()), 'GPU')} of jobs that have run for {limits.idle_gpus_h:g} h did nothing when "
            f"looked at, on {_of(idle)}")
    return Watched({"look/idle_gpus": _problem("look/idle_gpus", len(idle), text, now)}, values, measured=measured)


def _busy(node: Node) -> int | None:
    """GPUs that do something; None when that is not known of each of them."""
    gpus = [gpu for check, facts in node.facts if _is(check, "gpu") and isinstance(facts.get("gpus"), list)
            for gpu in facts["gpus"] if isinstance(gpu, dict)]
    loads = [(_number(gpu.get("busy_percent")), _number(gpu.get("used_mib"))) for gpu in gpus]
    if not loads or any(load is None or used is None for load, used in loads):
        return None
    return sum(1 for load, used in loads if (load or 0) > 0 or (used or 0) >= IDLE_MIB)


def _facts(nodes: Mapping[str, Node], check: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for name, node in sorted(nodes.items()):
        for told, facts in node.facts:
            if _is(told, check):
                yield name, facts


def _is(told: str, check: str) -> bool:
    """mount:home is a mount."""
    return told.partition(":")[0] == check


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e15 < value < 1e15:
        return None
    return float(value)


def _problem(key: str, count: int, text: str, now: float) -> Problem:
    """What is new about it is its size: another node among forty is not told as news every night."""
    return Problem(_key(key), f"about {10 ** (len(str(count)) - 1)}", printable(text, limit=600),
                   since=now)


def _key(text: str) -> str:
    return printable(text, limit=200)


def _of(names: Iterable[str]) -> str:
    found = sorted(names)
    return f"{plural(len(found), 'node')}: {fold(found)}"


def _known(kind: str, names: Iterable[str], bad: Mapping[str, tuple[float, Problem]]) -> frozenset[str]:
    """What was measured; not what is bad and only left out for its number."""
    left_out = {problem.key for _, problem in bad.values()} - _worst(bad).keys()
    return frozenset(_key(f"{kind}:{name}") for name in names) - left_out


def _worst(found: Mapping[str, tuple[float, Problem]]) -> dict[str, Problem]:
    worst = sorted(found.values(), key=lambda item: (-item[0], item[1].key))[:MAX_KEYS]
    return {problem.key: problem for _, problem in worst}

"""Cores and memory that the site keeps from jobs: CoreSpecCount, CpuSpecList, MemSpecLimit of its node lines."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcadmin.conf.grammar import scalar
from hpcadmin.conf.sockets import Layout
from hpcadmin.site import NodeGroup, Scalar, Site

KEYS = ("corespeccount", "cpuspeclist", "memspeclimit")
_TASKS = "task/cgroup,task/affinity"


def wrong(group: NodeGroup, found: Layout, real_memory_mib: int, site: Site) -> list[tuple[str, str]]:
    """(key, why it cannot be) of the group's reservations for nodes of this layout and RealMemory."""
    own = {key.casefold(): (key, group.options[key]) for key in group.options if key.casefold() in KEYS}
    problems = []
    if "corespeccount" in own and "cpuspeclist" in own:
        problems.append((own["cpuspeclist"][0], "CoreSpecCount and CpuSpecList: Slurm takes one of them"))
    for kind, (key, value) in own.items():
        if kind != "cpuspeclist" and _number(value) == 0:
            continue
        why = _wrong_value(kind, value, found, real_memory_mib) or _unsupported(kind, site)
        if why:
            problems.append((key, f"{key}={scalar(value)[:60]}: {why}"))
    return problems


def _wrong_value(kind: str, value: Scalar, found: Layout, real_memory_mib: int) -> str:
    if kind == "cpuspeclist":
        return _wrong_list(scalar(value), found)
    number = _number(value)
    if number is None:
        return "not a number"
    if kind == "corespeccount":
        return f"the nodes have {found.cores} cores, and some must be left for jobs" if number >= found.cores else ""
    return f"RealMemory is {real_memory_mib}, and some must be left for jobs" if number >= real_memory_mib else ""


def _wrong_list(text: str, found: Layout) -> str:
    """Abstract CPU ids: core by core, each with its threads."""
    ids: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            return "not a list of CPU ids"
        ids.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if max(ids) >= found.cpus:
        return f"the nodes have CPUs 0-{found.cpus - 1}, by Slurm's own count"
    return f"all of the {found.cpus} CPUs" if len(ids) == found.cpus else ""


def _number(value: Scalar) -> int | None:
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,9}", scalar(value)):
        return None
    return int(scalar(value))


def _unsupported(kind: str, site: Site) -> str:
    """What must be set for the reservation to hold."""
    tasks = _option(site.slurm.options, "TaskPlugin", _TASKS)
    need = "ConstrainRAMSpace" if kind == "memspeclimit" else "ConstrainCores"
    held = "task/cgroup" in tasks and _option(site.slurm.cgroup, need, "yes") in ("yes", "true")
    if kind == "memspeclimit" and not consumes_memory(site):
        return "memory is no consumable resource (SelectTypeParameters has no CR_*Memory), so nothing would keep to it"
    return "" if held else f"needs TaskPlugin with task/cgroup, and {need}=yes in cgroup.conf"


def consumes_memory(site: Site) -> bool:
    return "memory" in _option(site.slurm.options, "SelectTypeParameters", "CR_Core_Memory")


def _option(table: Mapping[str, Scalar], key: str, default: str) -> str:
    found = next((name for name in table if name.casefold() == key.casefold()), None)
    return (default if found is None else scalar(table[found])).casefold()

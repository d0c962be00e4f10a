"""Processes that take too much CPU, memory or time."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import REQUIRED, Check, Param, bad, good, percent
from hpcadmin.health.node.checks.process import is_called

MYPY = False
if MYPY:
    from typing import Callable

    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door
    from hpcadmin.health.node.procs import Process


def measure(door: "Door", what: str) -> "Callable[[Process], float]":
    """The function that gives a process's share; cpu_percent is of its whole life, as ps tells it."""
    if what == "cpu_time_s":
        return lambda one: one.cpu_s
    if what == "cpu_percent":
        up = door.uptime()
        return lambda one: percent(one.cpu_s, max(up - one.start_s, 1.0))
    if what == "virtual_mib":
        return lambda one: one.virtual_kib / 1024.0
    if what == "resident_mib":
        return lambda one: one.resident_kib / 1024.0
    total = float(door.meminfo()["MemTotal"])
    return lambda one: percent(one.resident_kib, total)


def run(door: "Door", p: "Params") -> "list[Finding]":
    value = measure(door, p.what)
    chosen = [one for one in door.processes() if not one.kernel and (p.name is None or is_called(one, p.name, p.match))]
    if p.users:
        chosen = [one for one in chosen if masks.any_matches(p.users, door.user(one.uid))]
    what = p.what.replace("_", " ")
    if p.total:
        sums = {}  # type: dict[int, float]
        for one in chosen:
            sums[one.uid] = sums.get(one.uid, 0.0) + value(one)
        over = [(amount, "all processes of %s" % door.user(uid)) for uid, amount in sums.items() if amount > p.max]
    else:
        over = [(value(one), "%s (process %d of %s)" % (one.name, one.pid, door.user(one.uid)))
                for one in chosen if value(one) > p.max]
    over.sort(reverse=True)
    return [good(count=len(chosen), over=len(over)),
            *(bad("%s: %s %.6g, more than %g" % (who, what, amount, p.max)) for amount, who in over[:20])]


CHECK = Check("usage", "Processes that take too much CPU, memory or time", run, params=(
    Param("what", "text", REQUIRED, "what is measured",
          choices=("cpu_percent", "cpu_time_s", "memory_percent", "virtual_mib", "resident_mib")),
    Param("max", "number", REQUIRED, "at most this"),
    Param("name", "mask", None, "only processes that are called so"),
    Param("match", "text", "name", "by name, by name or first word, or by command line (see process)",
          choices=("name", "command", "line")),
    Param("users", "masks", [], "only processes of these users"),
    Param("total", "flag", False, "all processes of a user together"),
))

"""Memory: how much is free."""

from hpcadmin.health.node.api import Check, Param
from hpcadmin.health.node.checks.memory import frees, whole

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    total, free = whole(door, p.swap, p.free)
    return frees("memory and swap" if p.swap else "memory", total, free, p)


CHECK = Check("memory_free", "Memory: how much is free", run, params=(
    Param("min_free_mib", "number", None, "free"),
    Param("min_free_percent", "number", None, "free, of the total"),
    Param("free", "text", "available", "what counts as free: cached is free, buffers and cache",
          choices=("available", "cached", "free")),
    Param("swap", "flag", False, "memory and swap together"),
))

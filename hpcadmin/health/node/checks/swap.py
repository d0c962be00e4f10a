"""Swap: how large, how full."""

from hpcadmin.health.node.api import Check, Param
from hpcadmin.health.node.checks.memory import frees, sizes, told

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    info = door.meminfo()
    total = told(info, "SwapTotal")
    return sizes("swap", total, p) + frees("swap", total, told(info, "SwapFree"), p)


CHECK = Check("swap", "Swap: how large, how full", run, params=(
    Param("min_mib", "number", None, "at least this much"),
    Param("max_mib", "number", None, "at most this much"),
    Param("tolerance_percent", "number", 0, "by which the size may be off"),
    Param("min_free_mib", "number", None, "free"),
    Param("min_free_percent", "number", None, "free, of the total"),
))

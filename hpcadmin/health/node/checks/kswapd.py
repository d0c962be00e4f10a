"""The kernel looks for memory without end (kswapd)."""

from hpcadmin.health.node import window
from hpcadmin.health.node.api import Check, Param, bad, good, percent

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    """Its share of a CPU since the last look: an average since boot would say nothing about now."""
    seen = {str(one.pid): one.cpu_s for one in door.processes() if one.name.startswith("kswapd") and one.kernel}
    now, boot = door.now(), door.boot_id()
    last = door.last("cpu")
    door.keep("cpu", {"time": now, "boot": boot, "cpu_s": seen})
    found = [good(cpu_s=seen)]
    if p.max_time_s is not None:
        found += [bad("kswapd (process %s) has used %d s of CPU, more than %g" % (pid, used, p.max_time_s))
                  for pid, used in seen.items() if used > p.max_time_s]
    if p.max_percent is not None:
        found += window.unseen(door)
    if p.max_percent is None or not isinstance(last, dict) or last.get("boot") != boot or not (
            isinstance(last.get("time"), (int, float)) and isinstance(last.get("cpu_s"), dict)):
        return found
    passed = now - last["time"]
    for pid, used in seen.items():
        before = last["cpu_s"].get(pid, used)
        share = percent(used - before, passed) if passed >= 1 and isinstance(before, (int, float)) else 0.0
        if share > p.max_percent:
            found.append(bad("kswapd (process %s) takes %.0f %% of a CPU, more than %g" % (pid, share, p.max_percent)))
    return found


CHECK = Check("kswapd", "The kernel looks for memory without end (kswapd)", run, params=(
    Param("max_percent", "number", 80, "of a CPU, since the last look"),
    Param("max_time_s", "number", None, "since boot"),
))

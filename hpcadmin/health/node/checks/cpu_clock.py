"""CPUs: governor of the clock, and slowed down by heat."""

from hpcadmin.health.node import cpus, masks, window
from hpcadmin.health.node.api import Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


PLACE = cpus.FOLDER + "/cpu%d/%s"


def run(door: "Door", p: "Params") -> "list[Finding]":
    """One CPU of each core tells the governor, all of a package have one counter of heat."""
    online = cpus.numbers(door.text(cpus.FOLDER + "/online"))
    found, counts = [], {}  # type: list[Finding], dict[str, int]
    governors = {}  # type: dict[str, int]
    for cpu in online:
        if p.governor is not None:
            name = door.word(PLACE % (cpu, "cpufreq/scaling_governor"))
            if name:
                governors[name] = governors.get(name, 0) + 1
        package = door.word(PLACE % (cpu, "topology/physical_package_id"))
        if package not in counts:
            count = door.number(PLACE % (cpu, "thermal_throttle/package_throttle_count"))
            if count is not None:
                counts[package] = count
    wrong = {name: count for name, count in governors.items() if not masks.matches(p.governor, name)}
    for name, count in sorted(wrong.items()):
        found.append(bad("the clock of %d CPUs is governed by %s, expected %s" % (count, name, p.governor)))
    growth = window.grown(door, "throttled", counts, p.window_min * 60)
    for package, more in sorted((growth or {}).items()):
        if more > p.max_throttled:
            found.append(bad("CPU package %s was slowed down by heat %d times in %g min" % (package, more,
                                                                                            p.window_min)))
    return [good(governors=governors, throttled=counts), *found, *(window.unseen(door) if counts else [])]


CHECK = Check("cpu_clock", "CPUs: governor of the clock, and slowed down by heat", run, params=(
    Param("governor", "mask", None, "performance or schedutil, for example; CPUs without one are let pass"),
    Param("max_throttled", "number", 100, "times that a package may be slowed down within the window"),
    Param("window_min", "number", 60, "minutes"),
))

"""Load averages."""

from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    words = door.text("/proc/loadavg").split()
    if len(words) < 3:
        raise NoAnswer("/proc/loadavg has no three numbers")
    averages = [float(word) for word in words[:3]]
    share = door.cpus().threads if p.per_cpu else 1
    found = [good(load_1m=averages[0], load_5m=averages[1], load_15m=averages[2])]
    for value, name in zip(averages, ("1m", "5m", "15m")):
        most = getattr(p, "max_" + name)
        if most is not None and value / share > most:
            found.append(bad("load of the last %s is %g, more than %g%s" % (
                name, value, most, " for each of %d CPUs" % share if p.per_cpu else "")))
    return found


CHECK = Check("load", "Load averages", run, params=(
    Param("max_1m", "number", None, "of the last minute"),
    Param("max_5m", "number", None, "of the last five minutes"),
    Param("max_15m", "number", None, "of the last quarter of an hour"),
    Param("per_cpu", "flag", False, "the limits are for one CPU"),
))

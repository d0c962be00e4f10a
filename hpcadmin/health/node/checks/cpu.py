"""CPUs: sockets, cores, threads, and those that are offline."""

from hpcadmin.health.node.api import Check, Param, bad, fault, good
from hpcadmin.health.node.cpus import limited

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    cpus = door.cpus()
    found = [good(sockets=cpus.sockets, cores=cpus.cores, threads=cpus.threads, offline=len(cpus.offline))]
    for what in ("sockets", "cores", "threads"):
        seen, expected = getattr(cpus, what), getattr(p, what)
        if expected is not None and seen != expected:
            # Fewer of what is soldered in, and none switched off: broken. Threads and CPUs are switched off by people
            # (SMT, nr_cpus), and more than expected is no fault at all.
            own = what != "threads" and seen < expected and not cpus.offline and not limited(door)
            found.append((fault if own else bad)("%d %s online, expected %g" % (seen, what, expected)))
    if p.offline is not None and len(cpus.offline) > p.offline:
        found.append(bad("%d CPUs are offline (%s)" % (len(cpus.offline), ", ".join(map(str, cpus.offline[:8])))))
    return found


CHECK = Check("cpu", "CPUs: sockets, cores, threads, offline", run, hardware=True, params=(
    Param("sockets", "number", None, "exactly so many with a CPU online"),
    Param("cores", "number", None, "exactly so many with a CPU online"),
    Param("threads", "number", None, "exactly so many CPUs online"),
    Param("offline", "number", None, "at most so many CPUs offline"),
))

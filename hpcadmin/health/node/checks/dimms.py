"""Memory modules: number, size, speed."""

from hpcadmin.health.node import smbios
from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    structures = smbios.read(door)
    dimms, sockets = smbios.dimms(structures)
    if not sockets:
        raise NoAnswer("the firmware does not tell of memory modules")
    total = sum(dimm.mib for dimm in dimms)
    found = [good(count=len(dimms), sockets=sockets, total_mib=total,
                  dimms=[{"place": dimm.place, "mib": dimm.mib, "mts": dimm.mts, "part": dimm.part,
                          "serial": dimm.serial} for dimm in dimms])]
    if p.count is not None and len(dimms) != p.count:
        less = len(dimms) < p.count
        dark = smbios.unsized(structures) if less else 0
        if dark and len(dimms) + dark >= p.count:
            return [*found, unknown("the firmware does not know the size of %d memory modules" % dark)]
        found.append((fault if less else bad)("%d memory modules of %g" % (len(dimms), p.count)))
    if p.total_gib is not None and total < p.total_gib * 1024:
        dark = smbios.unsized(structures)
        found.append(unknown("the firmware does not know the size of %d memory modules" % dark) if dark else fault(
            "memory modules of %g GiB, expected %g" % (total / 1024.0, p.total_gib)))
    for dimm in dimms:
        if p.size_gib is not None and dimm.mib != p.size_gib * 1024:
            found.append(bad("memory module %s has %g GiB, expected %g" % (dimm.place, dimm.mib / 1024.0, p.size_gib)))
        if p.min_mts is not None and 0 < dimm.mts < p.min_mts:
            found.append(bad("memory module %s runs at %d MT/s, expected %g" % (dimm.place, dimm.mts, p.min_mts)))
    return found


CHECK = Check("dimms", "Memory modules: number, size, speed", run, hardware=True, params=(
    Param("count", "number", None, "exactly so many"),
    Param("total_gib", "number", None, "at least, all together"),
    Param("size_gib", "number", None, "of each"),
    Param("min_mts", "number", None, "speed of each"),
))

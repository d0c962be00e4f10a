"""The clock: disciplined by a time server, and not far off."""

from hpcadmin.health.node import adjtimex
from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    clock = door.once("adjtimex", lambda: adjtimex.read(door.root))
    if p.synchronised and not clock.synchronised:
        clock = chrony(door) or clock
    found = [good(synchronised=clock.synchronised, offset_ms=clock.offset_ms, error_ms=clock.error_ms)]
    if p.synchronised and not clock.synchronised:
        found.append(bad("the clock is not synchronised"))
    if p.max_offset_ms is not None and abs(clock.offset_ms) > p.max_offset_ms:
        found.append(bad("the clock is off by %.3f ms, more than %g" % (abs(clock.offset_ms), p.max_offset_ms)))
    if p.synchronised and p.max_error_ms is not None and clock.synchronised and clock.error_ms > p.max_error_ms:
        found.append(bad("the clock may be off by %.0f ms: no time server was heard for long" % clock.error_ms))
    return found


def chrony(door: "Door") -> "adjtimex.Clock | None":
    """chronyd without rtcsync disciplines the clock, and leaves the kernel's mark as it was. None: it does not say."""
    if not door.has("chronyc") or not any(one.name == "chronyd" for one in door.processes()):
        return None
    ran = door.tool(["chronyc", "-n", "-c", "tracking"], 5)
    words = ran.out.strip().split(",")
    if ran.status != 0 or len(words) < 14:
        raise NoAnswer("the kernel calls the clock not synchronised; chronyc said: %s" % (
            ran.err.strip() or ran.out.strip() or "nothing"))
    try:
        offset, dispersion = float(words[4]), float(words[11])
    except ValueError as exc:
        raise NoAnswer("chronyc said: %s" % ran.out.strip()) from exc
    if words[13] not in ("Normal", "Insert second", "Delete second"):
        return None
    return adjtimex.Clock(True, offset * 1000, dispersion * 1000)


CHECK = Check("time", "The clock: disciplined by a time server, and not far off", run, params=(
    Param("synchronised", "flag", True, "the kernel must call the clock synchronised"),
    Param("max_offset_ms", "number", 100, "what is left to be corrected"),
    Param("max_error_ms", "number", 5000, "the kernel's bound: grows by 0.5 ms each second without a server"),
))

"""Processes that must run, and those that must not."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import REQUIRED, Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door
    from hpcadmin.health.node.procs import Process


def is_called(process: "Process", mask: str, match: str) -> bool:
    """By the kernel's name (15 characters), by the program's file name where that was cut, or by the command line.
    "command": by the kernel's name or the first word of the command line, which a program may have set itself."""
    if match == "line":
        return masks.matches(mask, process.line())
    if mask[:1] == "!":
        return not is_called(process, mask[1:], match)
    if masks.matches(mask, process.name):
        return True
    if match == "command":
        return masks.matches(mask, process.line().partition(" ")[0].rpartition("/")[2])
    # Cut at 15 characters, or an interpreter's: only then the command line is worth reading.
    if len(process.name) < 15 and not process.name.startswith(("python", "perl", "bash", "sh", "java", "ruby")):
        return False
    words = process.line().split(" ")[:2]
    return any(masks.matches(mask, word.rpartition("/")[2].rstrip(":")) for word in words)


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = [one for one in door.processes() if is_called(one, p.name, p.match) and one.state not in ("Z", "X")]
    if p.user is not None:
        found = [one for one in found if masks.matches(p.user, door.user(one.uid))]
    count = len(found)
    result = [good(count=count, pids=[one.pid for one in found[:20]])]
    whose = " of %s" % p.user if p.user is not None else ""
    if p.min is not None and count < p.min:
        result.append(bad("%s%s does not run" % (p.name, whose) if not count
                          else "%d processes %s%s run, expected %g" % (count, p.name, whose, p.min)))
    if p.max is not None and count > p.max:
        result.append(bad("%d process%s %s%s run%s (%d)" % (
            count, "" if count == 1 else "es", p.name, whose, "s" if count == 1 else "", found[0].pid)))
    return result


CHECK = Check("process", "Processes that must run, and those that must not", run, params=(
    Param("name", "mask", REQUIRED, "what it is called"),
    Param("match", "text", "name", "its name (the program's, without folder), that or the first word of its command "
          "line (nginx:), or its command line", choices=("name", "command", "line")),
    Param("user", "mask", None, "whose"),
    Param("min", "number", 1, "at least so many; 0 with max=0 for what must not run"),
    Param("max", "number", None, "at most so many"),
))

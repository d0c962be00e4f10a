"""A command of the site: exit status and output."""

from hpcadmin.health.node.api import REQUIRED, BadConfig, Check, NoAnswer, Param, bad, good
from hpcadmin.health.node.checks.contents import judged

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    if not p.argv or not p.argv[0]:
        raise BadConfig("argv is empty")
    ran = door.tool(p.argv, p.wait_s)
    name = p.argv[0].rpartition("/")[2]
    lines = (ran.out + ("\n" + ran.err if p.stderr else "")).splitlines()
    found = [good(argv=p.argv, status=ran.status, seconds=round(ran.seconds, 3), first=lines[0][:200] if lines else "")]
    if ran.cut:
        raise NoAnswer("%s said more than can be read" % name)
    if ran.status in (126, 127, 137) and ran.status not in p.status:  # could not be started, or was killed from outside
        raise NoAnswer("%s ended with status %s: %s" % (name, ran.status, (ran.err.strip() or "it said nothing")[:80]))
    if p.status and ran.status not in p.status:
        said = (ran.err.strip() or ran.out.strip()).splitlines()
        found.append(bad("%s ended with status %s, expected %s%s" % (
            name, ran.status, " or ".join("%g" % one for one in p.status), ": " + said[0] if said else "")))
    return found + judged(name, lines, p.output, p.without)


CHECK = Check("command", "A command of the site", run, timeout_s=20, params=(
    Param("argv", "texts", REQUIRED, "program and arguments; no shell"),
    Param("status", "numbers", [0], "exit statuses that are good; any if empty"),
    Param("output", "masks", [], "each must match a line"),
    Param("without", "masks", [], "none may match a line"),
    Param("stderr", "flag", False, "standard error is looked at too"),
    Param("wait_s", "number", 8, "the command's time-out"),
))

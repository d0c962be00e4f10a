"""One line of an existing nhc.conf (--nhc-conf)."""

from hpcadmin.health.node.api import REQUIRED, Check, Param

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    from hpcadmin.health.node import nhc
    finding, notices = nhc.judge(door, p)
    finding.facts.update(line=p.line, what=p.kind, name=p.name)
    notices = p.notices + [text for text in notices if text not in p.notices]
    if notices:
        finding.facts["notices"] = notices
    return [finding]


CHECK = Check("nhc", "A line of nhc.conf", run, params=(
    Param("line", "number", REQUIRED, "its number"),
    Param("kind", "text", "check", "what the line is: check, setting, not run, wrong, skipped"),
    Param("name", "text", REQUIRED, "NHC's check"),
    Param("args", "texts", [], "its words"),
    Param("names", "texts", [], "the variables of the file, NAME=VALUE"),
    Param("exported", "texts", [], "those that commands get"),
    Param("why", "text", "", "why it is not run, or what is wrong with it"),
    Param("notices", "texts", [], "what is odd about the line"),
), hardware=False, timeout_s=40)

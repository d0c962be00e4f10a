"""What dmidecode says of board, firmware and parts."""

from hpcadmin.health.node.api import Check, NoAnswer, Param, good
from hpcadmin.health.node.checks.contents import judged

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def decoded(text: str) -> "list[str]":
    """Section: Field: value, and for a list below a field Section: Field: Item."""
    found, section, field = [], "", ""
    for line in text.splitlines():
        bare = line.strip()
        depth = len(line) - len(line.lstrip("\t"))
        if not bare or bare.startswith("Handle 0x"):
            section = "" if bare else section
            continue
        if depth == 0:
            section = bare
            found.append(bare)
        elif depth == 1:
            field = bare if bare.endswith(":") else ""
            found.append("%s: %s" % (section, bare))
        else:
            found.append("%s: %s %s" % (section, field, bare))
    return found


def run(door: "Door", p: "Params") -> "list[Finding]":
    ran = door.tool(["dmidecode"], 8)
    if ran.status != 0 or "Handle 0x" not in ran.out:
        said = (ran.err.strip() or ran.out.strip() or "nothing").splitlines()
        raise NoAnswer("dmidecode said: %s" % said[-1])
    return [good(), *judged("dmidecode", decoded(ran.out), p.lines, p.without),
            *judged("dmidecode", ran.out.splitlines(), p.raw, [])]


CHECK = Check("dmi", "What dmidecode says of board, firmware and parts", run, params=(
    Param("lines", "masks", [], "each must match a line written as Section: Field: value"),
    Param("without", "masks", [], "none may match such a line"),
    Param("raw", "masks", [], "each must match a line as dmidecode prints it"),
))

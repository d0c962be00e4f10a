"""What a file says: lines that must be there, lines that must not."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import REQUIRED, Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def judged(what: str, lines: "list[str]", wanted: "list[str]", without: "list[str]") -> "list[Finding]":
    """Each wanted mask matches a line, none of the others does; a wanted !mask must match no line."""
    found = []
    for mask in wanted:
        bare, negative = (mask[1:], True) if mask[:1] == "!" else (mask, False)
        if any(masks.matches(bare, line) for line in lines) == negative:
            found.append(bad("%s: %s line that is %s" % (what, "a" if negative else "no", bare)))
    for mask in without:
        hits = [line for line in lines if masks.matches(mask, line)]
        if hits:
            found.append(bad("%s: %s" % (what, hits[0].strip()), count=len(hits)))
    return found


def run(door: "Door", p: "Params") -> "list[Finding]":
    door.at("reading " + p.path)
    lines = door.lines(p.path)
    return [good(path=p.path, count=len(lines)), *judged(p.path, lines, p.lines, p.without)]


CHECK = Check("contents", "What a file says", run, params=(
    Param("path", "text", REQUIRED, "the file"),
    Param("lines", "masks", [], "each must match a line"),
    Param("without", "masks", [], "none may match a line"),
))

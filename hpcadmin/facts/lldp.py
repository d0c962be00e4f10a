"""LLDP neighbours: what each interface is plugged into. Asked of lldpd where it runs; read from any text."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _lldp
from hpcadmin.facts._base import clean, lines_of
from hpcadmin.facts._elements import elements
from hpcadmin.facts._lldp import Lldp, Neighbour
from hpcadmin.facts._reading import Document, Finding, Reading

NAME = "lldp"
ORDER = 79
LIMIT = 512 * 1024
# The command is there on many nodes where lldpd does not run, or lets only root ask: then there is nothing to know.
COMMAND = r"""
command -v lldpcli >/dev/null 2>&1 || return 127
l=$(limit 5 $SUDO lldpcli -f keyvalue show neighbors 2>/dev/null) || return 127
limit 5 $SUDO lldpcli -f keyvalue show chassis 2>/dev/null
[ -z "$l" ] || printf '%s\n' "$l"
echo end=lldp
"""
FORMS = ("text", "json", "xml")
MARKS = ("lldp.", "edp.", "cdpv1.", "cdpv2.", "fdp.", "sonmp.", "Interface:", "---", '"lldp"', "<lldp", "CHASSIS")
_TABLE = re.compile(r"(?i)(?=.*\b(?:local|interface|port))(?=.*(?:remote|neighbor|device id|system name)).{10,300}\Z")
_DASHES = re.compile(r"\s{0,20}-{3,80}(?:[\s|+]{1,20}-{2,80}){2,12}\s{0,20}\Z")


def parse(text: str) -> tuple[tuple[str, str, str], ...]:
    """(own interface, neighbour, its port); the node's own VFs and representors are no neighbours."""
    lines = lines_of(text, "lldpcli")
    if lines[-1] != "end=lldp":
        raise ParseError("lldpcli: cut off")
    told = _lldp.keyvalue(list(enumerate(lines[:-1], 1)))
    if len(lines) > 1 and not told.neighbours and not (told.name or told.chassis):
        raise ParseError(f"lldpcli: {clean(lines[0], 100)}")
    return neighbours_of(_lldp.without_itself(told)[0])


def neighbours_of(told: Lldp) -> tuple[tuple[str, str, str], ...]:
    return tuple((entry.interface, entry.name, entry.port) for entry in told.neighbours)


def read(document: Document) -> tuple[Reading, ...]:
    if document.form == "json":
        return _json(document)
    if document.form == "xml":
        return _xml(document)
    lines = [(number, raw) for number, raw in enumerate(document.lines, 1) if raw.strip() and len(raw) < 2000]
    found: list[Reading] = []
    for kind, told in (("lldp", _lldp.keyvalue([(n, t.strip()) for n, t in lines if "=" in t])),
                       ("lldp", _lldp.plain([(n, t.strip()) for n, t in lines if ":" in t]))):
        if told.neighbours:
            found += _readings(kind, told, document)
    if any(_DASHES.match(text) and _TABLE.match(before) for (_, before), (_, text) in pairwise(lines)):
        told = _lldp.table(lines)
        if told.neighbours:
            found += _readings("lldp table", told, document)
    if any("CHASSIS" in text for _, text in lines):
        told = _lldp.networkctl(lines)
        if told.neighbours:
            found += _readings("networkctl lldp", told, document)
    start = next((n for n, t in lines if t.strip() == "{"), 0)
    if start and not found:
        end = next((n for n, t in reversed(lines) if t.strip() == "}"), 0)
        found += _json(Document(document.name, "json", ("",) * (start - 1) + document.lines[start - 1:end]))
    return tuple(found)


def _json(document: Document) -> tuple[Reading, ...]:
    text = "\n".join(document.lines)
    if '"lldp"' not in text[:2000]:
        return ()
    try:
        value = _lldp.load(text)
        told = _lldp.of_json(value, _lines_of(document))
    except ParseError as exc:
        if '"interface"' not in text[:4000]:
            return ()
        raise ParseError(f"LLDP: {exc.what}", where=f"{document.name}:{len(document.lines)}") from exc
    return tuple(_readings("lldp", told, document)) if told is not None else ()


def _lines_of(document: Document) -> list[int]:
    """Where each interface begins: the line before "via" in lldpcli's own layout."""
    found = []
    for number, line in enumerate(document.lines, 1):
        if line.lstrip().startswith('"via"'):
            found.append(number - 1)
    return found


def _xml(document: Document) -> tuple[Reading, ...]:
    if "<lldp" not in document.text[:2000]:
        return ()
    start = next((n for n, line in enumerate(document.lines, 1) if line.strip()), 1)
    root, cut, why = elements("\n".join(document.lines[start - 1:]), start)
    if cut is not None:
        raise ParseError(f"LLDP: {why}", where=f"{document.name}:{cut}")
    entries = []
    for element in root.children if root.tag == "lldp" else ():
        if element.tag == "interface":
            record: dict[str, Any] = {"name": element.attributes.get("name", "?")}
            for part in element.children:
                inner = {child.tag: {"type": child.attributes.get("type"), "value": child.text}
                         for child in part.children if child.tag != "capability"}
                able = [dict(child.attributes) for child in part.children if child.tag == "capability"]
                record[part.tag] = inner | {"capability": able}
            entries.append(record)
    told = _lldp.of_json({"lldp": {"interface": entries}}, [])
    return tuple(_readings("lldp", told, document)) if told is not None and entries else ()


# --- what follows ---------------------------------------------------------------------------------------------------


def _readings(kind: str, told: Lldp, document: Document) -> list[Reading]:
    """As a picture of the fabric one host's neighbours are refused; of the node they tell what it is plugged into."""
    others, own = _lldp.without_itself(told)
    lines = [entry.line for entry in told.neighbours if entry.line]
    first, last = (min(lines), max(lines)) if lines else (1, len(document.lines))
    findings = []
    if own:
        names = ", ".join(entry.interface for entry in own[:4]) + (f" and {len(own) - 4} more" if len(own) > 4 else "")
        findings.append(Finding(f"{names}: the neighbour is the host itself (its VFs and representors), no fabric",
                                own[0].line or None, note=True))
    nameless = [entry.interface for entry in others.neighbours if not entry.name]
    if nameless:
        findings.append(Finding(f"{', '.join(nameless[:8])}: the neighbour does not say who it is"))
    refused = "the neighbours of one host only: no tree can be made from this alone"
    return [Reading(kind, first, last, known=_known(told, others, own), findings=tuple(findings), refused=refused),
            Reading(f"{kind} of a node", first, last, value=others)]


def _known(told: Lldp, others: Lldp, own: tuple[Neighbour, ...]) -> dict[str, Any]:
    count = Counter(entry.name for entry in told.neighbours)
    real = Counter(entry.name for entry in others.neighbours)
    leaf, links = real.most_common(1)[0] if real else ("", 0)
    many = links > 1 and 2 * links > sum(real.values())
    rest = [name for name in real if name != leaf]
    return {
        "name": told.name or None, "interfaces": len({entry.interface for entry in told.neighbours}),
        "neighbours": dict(count),
        "links": [{"interface": entry.interface, "neighbour": entry.name, "port": entry.port}
                  for entry in others.neighbours],
        "self_neighbours": [entry.interface for entry in own], "leaf_switch": leaf if many else None,
        "rail_ports": links if many else None,
        "management_switch": rest[0] if many and links > 3 and len(rest) == 1 and real[rest[0]] == 1 else None,
    }

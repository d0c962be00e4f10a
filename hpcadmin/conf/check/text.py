"""Any text with lines of Slurm's files in it (a mail, a mixture of files, a log) as what rules can judge.

Lines of slurm.conf and gres.conf become a configuration with the text's own line numbers; what logs and commands in it
say, and topology.conf, is told by the readers of pasted texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.conf.check.finding import Finding, Severity
from hpcadmin.conf.check.rules._reasons import in_lines
from hpcadmin.conf.existing.parts import Configuration, Place
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import Version, lookup, parse_version
from hpcadmin.documents import clean_lines
from hpcadmin.errors import UsageError
from hpcadmin.facts import Document
from hpcadmin.facts import _reading as reading
from hpcadmin.facts._slurm_conf import Conf
from hpcadmin.facts._slurm_paste import OPEN, plain, spread
from hpcadmin.facts._slurm_text import Record, records
from hpcadmin.facts.slurm_files import Told, told

# Rules that ask for files: topology.conf of a text is told by its reader, and a text lacks most files.
_VERSION = re.compile(r"\b(?:Version=|slurm(?:ctld|d|dbd|-wlm)?\b[^\n\d]{0,20}?)((?:2[2-9])\.(?:02|05|08|11))"
                      r"(?:[.-]\d|\b)", re.IGNORECASE)
NOT_FOR_TEXTS = ("topology", "files.empty")
MAX_ROUNDS = 50
MAX_BROKEN = 5
_PAIR = re.compile(r"(?<![\w-])([A-Za-z][A-Za-z0-9_]{0,40})=(?:\"([^\"]{0,4000})\"|([^\s\"]{0,4000}))")
_ALONE = re.compile(r"\s{0,80}([A-Za-z][A-Za-z0-9]{1,40})=(\"[^\"]{0,4000}\"|[^\s\"]{0,4000})\s{0,80}\Z")
_PREFIX = re.compile(r"\Ascontrol\s{1,8}(?:-\w\s{1,8})?create\s{1,8}", re.IGNORECASE)
# Words of the readers' findings, worst first: what they say Slurm does.
_WORDS: tuple[tuple[Severity, re.Pattern[str]], ...] = (
    (Severity.FATAL, re.compile(r"\bfatal\b|is refused|Slurm refuses|no plugin|built without it|cannot be parsed")),
    (Severity.INVALID, re.compile(r"\bINVAL|is drained|and drained|no GPU is detected|GPUs are ignored|discarded")),
    (Severity.DRIFT, re.compile(r"the hardware is|, hardware |of the hardware|count does not match|is not there")),
)


@dataclass(frozen=True)
class Pasted:
    """confs: one for each part of the text that stands for itself (wrong and right lines of one node, one after the
    other, are two). findings: what the readers of pasted texts say. missing: what would be needed to judge the rest."""

    name: str
    confs: tuple[Configuration, ...]
    findings: tuple[Finding, ...]
    missing: tuple[str, ...] = ()
    understood: bool = True
    numbers: tuple[int, ...] = ()    # of the confs' lines in the text, where a JSON string holds several


@dataclass
class _Round:
    """Lines of the text by file and number, and the nodes and devices that they define, with their piece of it."""

    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    devices: dict[tuple[str, str, str], int] = field(default_factory=dict)


def read_text(name: str, text: str) -> Pasted:
    """name: as it is to be shown. understood is False where nothing of Slurm's is in the text."""
    document = Document(name, lines=clean_lines(text))
    found = told(document)
    sides = found.sides if found else ((plain(spread(document.lines)[0]), Conf()),)
    rounds = [each for lines, conf in sides for each in _rounds(lines, conf)]
    confs = tuple(map(_configuration, rounds))
    reasons = tuple(_reasons(name, document.lines, found))
    if found is None and not confs:
        return Pasted(name, (), reasons, (), understood=bool(reasons))
    if found is None:
        return Pasted(name, confs, reasons, numbers=spread(document.lines)[1])
    return Pasted(name, confs, (*_findings(name, found), *reasons), found.missing, numbers=found.numbers)


def _reasons(name: str, lines: Sequence[str], found: Told | None) -> Iterator[Finding]:
    """Reasons of nodes that the readers of logs say nothing of: none is a fault of a file by itself."""
    said = {each.line for each in found.findings} if found else set()
    for number, nodes, reason, told_of in in_lines(lines):
        if number not in said:
            where = f"{nodes}: " if nodes else ""
            yield Finding(Severity.INVALID if told_of.refused else Severity.NOTE,
                          f"{where}{reason[:120]}: {told_of.says}", place=Place(name, number),
                          rule="text.read")


def version_of(text: str) -> Version | None:
    """The version of Slurm that the text names, where it names but one that is known."""
    named = {match[1] for match in _VERSION.finditer(text[:1_000_000])}
    if len(named) != 1:
        return None
    try:
        return parse_version(named.pop())
    except UsageError:
        return None


def whole(text: str) -> Configuration | None:
    """The text as a slurm.conf where it is one, with all that a cluster needs and no line of anything else."""
    found = configure({"slurm.conf": text})
    said = {"clustername"} <= set(found.settings) and bool(found.nodes) and bool(found.partitions)
    said = said and bool({"slurmctldhost", "controlmachine"} & set(found.settings))      # else it is a part of one
    template = any(mark in text for mark in ("{{", "{%", "<%", "${"))
    broken = [fault.place.line for fault in found.faults if fault.fatal]
    lines = text.split("\n") if said else []
    # A line that Slurm cannot read is the file's where it begins with a key; else the text has prose.
    begun = all(lookup("slurm.conf", (re.match(r"\s{0,80}(\w{0,60})", lines[at - 1]) or [""])[0].strip()) is not None
                for at in broken if 0 < at <= len(lines))
    return found if said and not template and len(broken) <= MAX_BROKEN and begun else None


def _rounds(lines: Sequence[str], conf: Conf) -> list[_Round]:
    sources = {node.line: node.source for node in conf.nodes}
    rounds = [_Round()]
    for record in records(lines):
        placed = _placed(record, sources)
        if placed is None:
            continue
        file, line = placed
        now = rounds[-1]
        node = record.keys.get("nodename", "") if file == "slurm.conf" and record.first == "nodename" else ""
        device = (record.keys.get("nodename", ""), record.keys.get("name", ""),
                  record.keys.get("file", "") if file == "gres.conf" else "")
        again = now.nodes.get(node, record.piece) if node else now.devices.get(device, record.piece)
        if again != record.piece and len(rounds) < MAX_ROUNDS:
            rounds.append(_Round())
            now = rounds[-1]
        if node:
            now.nodes[node] = record.piece
        elif device[2]:
            now.devices[device] = record.piece
        now.lines.setdefault(file, {})[record.line] = line
    return [each for each in rounds if each.lines]


def _placed(record: Record, sources: Mapping[int, str]) -> tuple[str, str] | None:
    """(file, line) of what is a line of slurm.conf, gres.conf or cgroup.conf; None of anything else."""
    text = _PREFIX.sub("", record.text)
    if OPEN in text.split(None, 1)[0]:
        return None                      # the name of a template's line is not known
    if record.line in sources:
        return ("slurm.conf", _pairs(text)) if record.first == "nodename" and sources[record.line] in (
            "slurm.conf", "scontrol create") else None
    opening = text.lower()
    if opening.startswith(("nodename=", "name=", "autodetect=")) and _of_gres(record):
        return "gres.conf", _pairs(text)
    if opening.startswith(("partitionname=", "nodeset=", "nodename=")):
        return "slurm.conf", _pairs(text)
    alone = _ALONE.match(text)
    for file in ("slurm.conf", "cgroup.conf") if alone and len(record.keys) == 1 else ():
        if alone and lookup(file, alone[1]) is not None:
            return file, text.strip()
    return None


def _of_gres(record: Record) -> bool:
    keys = record.keys
    return "autodetect" in keys or ("name" in keys and "gres name=" not in record.text.lower() and bool(
        keys.keys() & {"file", "files", "type", "count", "cores", "cpus", "links", "multiplefiles", "flags"}
        or keys["name"] in ("gpu", "mps", "shard", "nic")))


def _pairs(text: str) -> str:
    """Its Key=Value words alone: what people write after a line is not of it."""
    return " ".join(f'{m[1]}="{m[2]}"' if m[2] is not None and " " in m[2] else f"{m[1]}={m[2] or m[3] or ''}"
                    for m in _PAIR.finditer(text) if OPEN not in m[0])


def _configuration(part: _Round) -> Configuration:
    return replace(configure({file: "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1)) + "\n"
                              for file, lines in part.lines.items()}), missing=())


def in_text(finding: Finding, name: str, numbers: Sequence[int] = ()) -> Finding:
    """With the name of the text in the place of those of the files that were made of its lines."""
    def number(line: int) -> int:
        return numbers[line - 1] if 0 < line <= len(numbers) else line

    def moved(place: Place | None) -> Place | None:
        return Place(name, number(place.line)) if place is not None and place.file in _FILES else place

    def said(text: str) -> str:
        return _AT.sub(lambda match: f"{name}:{number(int(match[1]))}", text)
    return replace(finding, what=said(finding.what), means=said(finding.means), place=moved(finding.place),
                   more=tuple(place for place in map(moved, finding.more) if place is not None))


_FILES = ("slurm.conf", "gres.conf", "cgroup.conf")
_AT = re.compile(r"\b(?:slurm|gres|cgroup)\.conf:([0-9]{1,9})\b")


def _findings(name: str, found: Told) -> Iterator[Finding]:
    first = next((each for each in found.findings if not each.note), next(iter(found.findings), None))
    for each in found.findings:
        yield Finding(_severity(each), each.what, right=found.right if each is first else (), rule="text.read",
                      place=Place(name, each.line) if each.line else None)
    if first is None and found.right:
        yield Finding(Severity.NOTE, "lines that follow from the text", "", found.right, rule="text.read")
    for condition, line in found.assumed:
        yield Finding(Severity.NOTE, f"gres.conf is not in the text; if {condition}, its lines are", "", (line,),
                      rule="text.assumed")
    if any(node.name is None for node in found.conf.nodes):
        at = next(node.line for node in found.conf.nodes if node.name is None)
        yield Finding(Severity.NOTE, "a fragment of a node line: NodeName= is missing", "it is not judged with other "
                      "lines", (), Place(name, at), rule="text.fragment")
    yield from _counts(name, found.conf)


def _counts(name: str, conf: Conf) -> Iterator[Finding]:
    """CPUs= of lines without a name, which no configuration can have."""
    for node in conf.nodes:
        cpus, sockets, cores = node.get("cpus"), node.get("sockets"), node.get("cores_per_socket")
        if node.name is not None or not (cpus and sockets and cores):
            continue
        total = sockets * cores
        if cpus not in (sockets, total, total * (node.get("threads_per_core") or 1)):
            yield Finding(Severity.WRONG, f"CPUs={cpus} is no product of {sockets} sockets, {cores} cores and "
                          f"{node.get('threads_per_core') or 1} threads", "an error line, and Slurm resets CPUs", (),
                          Place(name, node.line), rule="text.counts")


def _severity(finding: reading.Finding) -> Severity:
    if finding.note:
        return Severity.NOTE
    return next((severity for severity, words in _WORDS if words.search(finding.what)), Severity.WRONG)

"""Reads what ibdiagnet prints and logs: its stages, their lines of warning and error, and the table at its end.

ibdiagnet 2.x (OFED, DOCA) ends with a Summary of stages, 1.5.x (ibutils) with a Stages Status Report, whose columns
stand in the other order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpcadmin.check import ParseError
from hpcadmin.checklib import integer, lines_of, shown

MAX_STAGES = 64
SUMMARY, REPORT = "Summary", "Stages Status Report:"
RIGHTS = re.compile(r"umad|permission denied|operation not permitted|\broot\b|a password is required|not allowed to",
                    re.IGNORECASE)
# The heading of a stage of 1.5.x, and its name in the table.
_OLD = {"Bad Guids/LIDs Info": "Bad GUIDs/LIDs Check", "Links With Logical State = INIT": "Link State Active Check",
        "General Device Info": "General Devices Info Report", "PM Counters Info": "Performance Counters Report",
        "Fabric Partitions Report (see ibdiagnet.pkey for a full hosts list)": "Partitions Check",
        "IPoIB Subnets Check": "IPoIB Subnets Check"}
# Without these no fabric is looked at; what else there is depends on the version and on the options.
CORE = ("Discovery", "Lids Check", "Links Check", "Subnet Manager", "Port Counters", "Nodes Information",
        "Speed / Width checks")
OLD_CORE = ("Bad GUIDs/LIDs Check", "Link State Active Check", "Performance Counters Report")
KNOWN = (*CORE, "Virtualization", "Partition Keys", "Temperature Sensing", "Alias GUIDs", "Routing", "Routers", "SHARP",
         "Congestion Control", "Create IBNetDiscover File")
_RULE = re.compile(r"(?:-I-)?-{20,}\Z")
_SAID = re.compile(r"-([EFW])-\s*(.*)")
_NUMBER = r"(-?[0-9]{1,9}|N/?A)"
_ROW = re.compile(rf"-I- (\S.{{0,80}}?)\s+{_NUMBER}\s+{_NUMBER}(?:\s+(\S.*))?\Z")
_OLD_ROW = re.compile(r"\s*(\S.{0,80}?)\s+([0-9]{1,9})\s+([0-9]{1,9})\Z")
_END = re.compile(r"-I- [^:]{0,80}[Dd]atabase[^:]{0,80}: *\S{1,1000}\.db_csv\Z")
_AFTER = "-I- You can find detailed errors/warnings in:"
_OLD_END = re.compile(r"-I- Done\. Run time was [0-9]+ seconds?\.")
_CLOSING = re.compile(r"finished with (?:errors|warnings)\Z")
_FOUND = re.compile(r"Discovering \.\.\. (\d+) nodes \((\d+) Switches & (\d+) CA-s(?: & (\d+) Routers)?\) discovered\.")
_TOTALS = {"Total Nodes": "nodes", "IB Switches": "switches", "IB Channel Adapters": "adapters"}
_TOTAL = re.compile(r"(?:-I- )?(Total Nodes|IB Switches|IB Channel Adapters)\s*:\s*(\S+)\Z")
_LINKS = re.compile(r"(?:-I- )?Links at \S+\s*:\s*(\S+)\Z")


@dataclass
class Stage:
    """A row of the table. None: not looked at."""

    name: str
    warnings: int | None
    errors: int | None
    comment: str = ""


@dataclass
class Log:
    """What one output tells. said: of each stage its lines of error ("E") and of warning ("W")."""

    old: bool = False
    stages: list[Stage] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    said: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    finished: bool = False
    ended: bool = False

    def words(self, stage: str, kind: str) -> list[str]:
        """Its lines, those that say no more than that there are some at the end."""
        return sorted(self.said.get((stage, kind), []), key=lambda line: bool(_CLOSING.search(line)))

    @property
    def errors(self) -> list[str]:
        return [line for (_, kind), lines in self.said.items() for line in lines if kind == "E"]

    def stage(self, name: str) -> Stage | None:
        return next((s for s in self.stages if s.name == name), None)


def looks_like(text: str) -> bool:
    return bool(re.search(r"ibdiagnet|^-[IEW]- ", text, re.MULTILINE | re.IGNORECASE))


def read(text: str) -> Log:
    """The output of one run. ParseError where it contradicts itself, or is of several runs."""
    lines = lines_of(text)
    log = Log()
    section, n = "", 0
    while n < len(lines):
        line = lines[n]
        n += 1
        under = n + 1 if n + 1 < len(lines) and not lines[n].strip() else n
        if _RULE.match(line) and under < len(lines) and (heading := _heading(lines[under])):
            n = under + 1
            section = _OLD.get(heading, heading)
            if heading in (SUMMARY, REPORT):
                if log.finished:
                    raise ParseError(f"{heading!r} is there twice", hint="several runs mixed")
                log.old = heading == REPORT
                n = _table(log, lines, n)
            else:
                _again(log, section in (*KNOWN, *_OLD.values()))
                log.headings.append(section)
        elif said := _SAID.match(line):
            kind = "W" if said[1] == "W" else "E"
            if not said[2].startswith("Topology file is not specified"):       # so 1.5.x begins, always
                log.said.setdefault((section, kind), []).append(shown(said[2]))
        else:
            _told(log, line)
    _sound(log)
    return log


def _heading(line: str) -> str:
    """What stands under a rule, if it is a heading."""
    heading = line.removeprefix("-I- ").strip()
    if line.startswith(("-E-", "-W-", "-F-")) or not heading or heading.startswith("-") or len(heading) > 100:
        return ""
    return "" if line.startswith("-I- ") and heading not in (*_OLD, REPORT) else heading


def _table(log: Log, lines: Sequence[str], n: int) -> int:
    """Reads the table that begins here, and says where it ends."""
    while n < len(lines) and (not lines[n].strip() or _RULE.match(lines[n])):
        n += 1
    head = lines[n].removeprefix("-I- ").split() if n < len(lines) else []
    if [word.lower() for word in head[:3]] != (["stage", "errors", "warnings"] if log.old else
                                               ["stage", "warnings", "errors"]):
        raise ParseError(f"the table of stages begins with {shown(' '.join(head))!r}, which is not how it is known",
                         hint="the output is cut, or of a version that is not known")
    n += 1
    form = _OLD_ROW if log.old else _ROW
    while n < len(lines) and not lines[n].startswith(_AFTER):
        row = form.match(lines[n])
        if not lines[n].strip():
            n += 1
            if any(form.match(line) for line in lines[n:n + 3]):       # pasted with empty lines between
                continue
            break
        if not row:
            raise ParseError(f"a row of the table of stages cannot be read: {shown(lines[n])!r}",
                             hint="the output is cut or damaged")
        first, second = (None if value in ("N/A", "NA") else integer(value, f"{shown(row[1])} of the table")
                         for value in (row[2], row[3]))
        warnings, errors = (second, first) if log.old else (first, second)
        if log.stage(row[1]):
            raise ParseError(f"the table has the stage {shown(row[1])!r} twice", hint="several runs mixed")
        log.stages.append(Stage(row[1], warnings, errors, "" if log.old else (row[4] or "")))
        n += 1
    if len(log.stages) > MAX_STAGES:
        raise ParseError(f"the table has more than {MAX_STAGES} stages")
    log.finished = True
    return n


def _again(log: Log, begins: bool) -> None:
    if log.finished and begins:
        raise ParseError("a run begins after the table of stages", hint="several runs mixed")


def _told(log: Log, line: str) -> None:
    found = _FOUND.search(line)
    _again(log, bool(found) or line.startswith(("Loading IBDIAGNET", "Running version", "Load Plugins")))
    if found:
        nodes, switches, adapters, routers = (int(n or 0) for n in found.groups())
        log.counts.update(nodes=nodes, switches=switches, adapters=adapters)
        if nodes != switches + adapters + routers:
            raise ParseError(f"{nodes} nodes are not {switches} switches and {adapters} adapters",
                             hint="the output is damaged")
    elif total := _TOTAL.match(line):
        name = _TOTALS[total[1]]
        count = integer(total[2], total[1], most=10 ** 7)
        if name != "adapters" and log.counts.setdefault(name, count) != count:
            raise ParseError(f"{total[1]} is {count}, and {log.counts[name]} were discovered",
                             hint="several runs mixed, or the fabric changed")
    elif links := _LINKS.match(line):
        log.counts["links"] = log.counts.get("links", 0) + integer(links[1], "Links", most=10 ** 7)
    elif log.finished and (_OLD_END if log.old else _END).match(line):
        log.ended = True


def _sound(log: Log) -> None:
    twice = [name for name in KNOWN if log.headings.count(name) > 1]
    if twice:
        raise ParseError(f"the stage {twice[0]!r} begins twice", hint="several runs mixed")
    if not log.finished:
        return
    if not log.stages:
        raise ParseError("the table of stages is empty", hint="the output is cut")
    lost = [name for name in log.headings if name in (*KNOWN, *_OLD.values()) and not log.stage(name)]
    if lost:
        raise ParseError(f"the table of stages has no row for {lost[0]!r}, which was begun", hint="lines are lost")
    first = log.stage("Discovery")
    if not log.old and (first is None or first.errors is None):
        raise ParseError("Discovery was not done: nothing of the fabric was looked at")


def unfinished(log: Log) -> ParseError:
    """What to say of a run that has no table."""
    said = log.errors[:2]
    why = "; ".join(said) or (f"it ends in {log.headings[-1]!r}" if log.headings else "nothing of its table is there")
    hint = ""
    if any(RIGHTS.search(line) for line in said):
        hint = "it needs the rights to open /dev/infiniband/umad*: root, or sudo = true for this check"
    return ParseError(f"ibdiagnet did not finish, no table of stages: {why}", hint=hint)


def core(log: Log) -> Iterator[tuple[str, str]]:
    """The stages of the core that were not looked at, and why one knows."""
    for name in OLD_CORE if log.old else CORE:
        stage = log.stage(name)
        if stage is None:
            yield name, "is not in the table"
        elif stage.errors is None or stage.warnings is None:
            yield name, stage.comment or "N/A"

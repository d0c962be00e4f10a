"""What slurmdbd keeps of nodes that were down, of slurmctld's own outages and of maintenance: asked, kept and read.

Texts that people wrote (reasons, names of reservations) may hold anything, line ends among it. They are asked for by
themselves, and matched with rows that hold none, so that no text can pass for a row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from hpcadmin.errors import HpcadminError, ParseError, SlurmError, UsageError
from hpcadmin.hosts import expand
from hpcadmin.slurm.client import NoAnswerError
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.text import plural, printable

KEPT_SCHEMA = 1
KIND = "hpcadmin-slurm-events"
MARGIN_S = 3600             # that is asked for on both sides of the period
TIMEOUT_S = 300.0
EVENT_HEAD = "Cluster|NodeName|TimeStart|TimeEnd|State|StateRaw|User|Cluster Nodes"
_EVENTS = "format=Cluster,NodeName,Start,End,State,StateRaw,User,ClusterNodes"
_REASON_HEAD = "NodeName|TimeStart|Reason"
_RESERVATION_HEAD = "ID|TimeStart|TimeEnd|Flags|NodeName"
_NAME_HEAD = "ID|TimeStart|Name"
_CLUSTER_HEAD = "Cluster|ControlHost|ControlPort"
_BASE = 0x0f                # of StateRaw
_DOWN = 1
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Answers:
    """What sacctmgr printed, in UTC. error: why it printed nothing; kept as it is in a file of its own."""

    asked: int                          # seconds since 1970
    version: str = ""
    cluster_events: str = ""
    node_events: str = ""
    reasons: str = ""
    reservations: str = ""
    names: str = ""
    config: str = ""
    clusters: str = ""
    start: int = 0                      # what the node events and reservations are of
    end: int = 0
    error: str = ""
    kind: str = KIND
    schema: int = KEPT_SCHEMA


class NodeEvent(NamedTuple):
    """A node in a state in which it takes no jobs. end None: still. reason None: it could not be told."""

    node: str
    start: int
    end: int | None
    state: str
    raw: int
    user: str = ""
    reason: str | None = None


class Members(NamedTuple):
    """Which nodes slurm.conf had."""

    start: int
    end: int | None
    nodes: frozenset[str]


class Outage(NamedTuple):
    """slurmctld was not connected to slurmdbd."""

    start: int
    end: int | None


class Reservation(NamedTuple):
    id: str
    start: int
    end: int | None
    flags: frozenset[str]
    nodes: frozenset[str]
    name: str = ""

    @property
    def maintenance(self) -> bool:
        return "MAINT" in self.flags


@dataclass(frozen=True)
class Accounting:
    """known_since: before that slurmdbd may have purged what it knew. known_until: the last that it was told, where
    slurmctld is not connected now. tracked: whether outages of slurmctld are recorded; None: not told."""

    cluster: str = ""
    asked: int = 0
    start: int = 0
    end: int = 0
    events: tuple[NodeEvent, ...] = ()
    members: tuple[Members, ...] = ()
    outages: tuple[Outage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    known_since: int | None = None
    known_until: int | None = None
    purge: str = ""
    tracked: bool | None = None
    problems: tuple[str, ...] = field(default=())


def ask(start: int, end: int, now: int, commands: CommandLine | None = None) -> Answers:
    """All that is needed for a period. Raises SlurmError when slurmdbd, or Slurm's commands, cannot be used."""
    commands = commands or CommandLine({**os.environ, "TZ": "UTC0"}, timeout_s=TIMEOUT_S)
    first, last = max(0, start - MARGIN_S), end + MARGIN_S
    within = (f"start={_utc(first)}", f"end={_utc(last)}")
    try:
        nodes = ("event", "event=node", *within)
        # Reasons come first: an event that begins between the two queries has none then, and is no maintenance.
        reasons = commands.accounting("show", *nodes, "format=NodeName,Start,Reason")
        names = commands.accounting("show", "reservation", *within, "format=ID,Start,Name")
        return Answers(
            now, commands.version(), commands.accounting("show", "event", "event=cluster", "all_time", _EVENTS),
            commands.accounting("show", *nodes, _EVENTS), reasons,
            commands.accounting("show", "reservation", *within, "format=ID,Start,End,Flags,NodeNames"), names,
            commands.accounting("show", "config"),
            commands.accounting("show", "cluster", "format=Cluster,ControlHost,ControlPort"), first, last)
    except NoAnswerError as exc:
        words = exc.what.rpartition("does not answer: ")[2]
        raise SlurmError(f"slurmdbd does not answer: {words}", where="sacctmgr", hint="is slurmdbd running?") from exc
    except UsageError as exc:
        raise SlurmError(str(exc)) from exc


def read(answers: Answers) -> Accounting:
    """Rows that cannot be read are told in `problems`. Raises ParseError when the answer is not one of sacctmgr."""
    problems: list[str] = []
    rows = [*_rows(answers.cluster_events, EVENT_HEAD, problems), *_rows(answers.node_events, EVENT_HEAD, problems)]
    clusters = {row[0] for row in rows}
    if len(clusters) > 1:
        raise ParseError(f"the events are of {len(clusters)} clusters: {printable(', '.join(sorted(clusters)))}",
                         where="sacctmgr show event")
    members: list[Members] = []
    outages: list[Outage] = []
    found: list[NodeEvent] = []
    keys = [(row[1], row[2]) for row in rows if row[1]]
    texts = _texts(keys, answers.reasons, _REASON_HEAD)
    for _, node, start, end, state, raw, user, nodes in rows:
        begin, until, number = _time(start), _time(end), _number(raw)
        if begin is None or number is None or (until is None and end != "Unknown") or begin > (until or begin):
            problems.append(f"an event whose times cannot be: {node or 'cluster'}|{start}|{end}|{raw}")
        elif node:
            of = texts.get((node, start))
            found.append(NodeEvent(node, begin, until, state, number, user, of.pop(0) if of else None))
        elif nodes and number & _BASE != _DOWN:
            members.append(Members(begin, until, _nodes(nodes, problems)))
        elif number & _BASE == _DOWN:
            outages.append(Outage(begin, until))
        else:
            problems.append(f"an event of the cluster that is not known here: {start}|{end}|{state}|{raw}")
    purge, since = _purged(answers)
    tracked = {"yes": True, "no": False}.get(_setting(answers.config, "TrackSlurmctldDown").lower())
    reservations = tuple(_reservations(answers, problems))
    if not _setting(answers.config, "PurgeEventAfter"):
        problems.append("slurmdbd does not tell whether it purges events (PurgeEventAfter)")
    told = [printable(p, limit=300) for p in dict.fromkeys(problems)]
    if len(told) > _MOST_PROBLEMS:
        told = [*told[:_MOST_PROBLEMS], f"and {plural(len(told) - _MOST_PROBLEMS, 'more row')} that cannot be read"]
    return Accounting(next(iter(clusters), ""), answers.asked, answers.start, answers.end, tuple(found),
                      tuple(sorted(members, key=lambda m: m.start)), tuple(sorted(outages, key=lambda o: o.start)),
                      reservations, since, _until(answers, rows, outages), purge, tracked, tuple(told))


def _until(answers: Answers, rows: Sequence[Sequence[str]], outages: Sequence[Outage]) -> int | None:
    """The last that slurmdbd was told, where slurmctld is not connected and no outage is recorded that says since
    when. None: it is connected, or that is not told."""
    clusters = {row[0] for row in rows}
    gone = any(row[0] in clusters and row[2] == "0" for row in _rows(answers.clusters, _CLUSTER_HEAD, []))
    if not gone or any(o.end is None for o in outages):
        return None
    times = [seconds for row in rows for text in row[2:4] if (seconds := _time(text)) is not None]
    return max(times, default=0)


def _rows(text: str, head: str, problems: list[str]) -> list[list[str]]:
    if not text:
        return []
    first, *lines = text.split("\n")
    if first != head:
        raise ParseError(f"the head is {printable(first, limit=200)!r} and not {head!r}", where="sacctmgr")
    columns = head.count("|") + 1
    rows = []
    for line in lines:
        row = line.split("|")
        if len(row) == columns:
            rows.append(row)
        elif line.strip():
            problems.append(f"a line that is no row: {line}")
    return rows


def _texts(keys: Sequence[tuple[str, str]], text: str, head: str) -> dict[tuple[str, str], list[str]]:
    """Of each key the texts behind it, in their order. What begins with the next key that is expected is a row; all
    else goes on with the text before it."""
    lines = text.split("\n")
    if not text or lines[0] != head:
        return {}
    left: dict[str, int] = {}
    for key in keys:
        start = "|".join(key) + "|"
        left[start] = left.get(start, 0) + 1
    found: dict[tuple[str, str], list[list[str]]] = {}
    current: list[str] = []
    for line in lines[1:]:
        parts = line.split("|", 2)
        start = f"{parts[0]}|{parts[1]}|" if len(parts) == 3 else ""
        if left.get(start, 0) > 0:
            left[start] -= 1
            current = [parts[2]]
            found.setdefault((parts[0], parts[1]), []).append(current)
        else:
            current.append(line)
    return {key: ["\n".join(part).rstrip("\n") for part in of] for key, of in found.items()}


def _reservations(answers: Answers, problems: list[str]) -> list[Reservation]:
    rows = _rows(answers.reservations, _RESERVATION_HEAD, problems)
    names = _texts([(row[0], row[1]) for row in rows], answers.names, _NAME_HEAD)
    found = []
    for number, start, end, flags, nodes in rows:
        begin, until = _time(start), _time(end)
        if begin is None or (until is None and end != "Unknown"):
            problems.append(f"a reservation without a time: {number}|{start}|{end}")
            continue
        found.append(Reservation(number, begin, until, frozenset(flags.upper().split(",")),
                                 _nodes(nodes, problems) if nodes else frozenset(),
                                 (names.get((number, start)) or [""])[0]))
    return found


def _nodes(text: str, problems: list[str]) -> frozenset[str]:
    try:
        return frozenset(expand(text))
    except HpcadminError as exc:
        problems.append(str(exc))
        return frozenset()


_TIMES: dict[str, int] = {}


def _time(text: str) -> int | None:
    """Of 2026-11-30T21:11:44 in UTC."""
    if len(text) != 19 or not text.isascii():
        return None
    try:
        day = _TIMES.get(text[:10])
        if day is None:
            day = _TIMES[text[:10]] = int(datetime.strptime(text[:10], "%Y-%m-%d").replace(
                tzinfo=timezone.utc).timestamp())
        if text[10] != "T" or text[13] != ":" or text[16] != ":":
            return None
        return day + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    except ValueError:
        return None


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _setting(text: str, name: str) -> str:
    found = re.search(rf"^{name}\s*= *(.*)$", text.partition("SlurmDBD configuration:")[2], re.MULTILINE)
    return found[1].strip() if found else ""


def _purged(answers: Answers) -> tuple[str, int | None]:
    """PurgeEventAfter, and since when nothing can have been purged; a day is given for the zone that slurmdbd is in. A
    star behind it: before it is purged it is archived."""
    text = _setting(answers.config, "PurgeEventAfter")
    found = re.match(r"(\d{1,6})\s*(hour|day|month)", text)
    if found is None:
        return ("", None) if text.upper() in ("NONE", "", "(NULL)") else (text, answers.asked)
    count, unit = int(found[1]), found[2]
    now = datetime.fromtimestamp(answers.asked, timezone.utc)
    if unit == "month":
        months = max(1, now.year * 12 + now.month - 1 - count)
        since = datetime(max(1, months // 12), months % 12 + 1, 1, tzinfo=timezone.utc) + timedelta(days=1)
    else:
        since = now - timedelta(**{f"{unit}s": min(count, 100_000)})
    return text, max(0, int(since.timestamp()))

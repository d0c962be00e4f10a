"""Takes the texts of perftest apart: heads, addresses, tables; one side or both, one run or several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hpcadmin import checklib as lib

_TITLE = re.compile(
    r"(Send_imm|Send|RDMA_Write_imm|RDMA_Write|RDMA_Read|Atomic(?: CMP_AND_SWAP| FETCH_AND_ADD)?) "
    r"(Bidirectional )?(?:Post List )?(?:Multicast )?(BW|Latency) (?:forwarding )?(?:Multicast )?Test$")
_ANY_TITLE = re.compile(r"[A-Z][A-Za-z_ ]{1,60} (?:BW|Latency|Rate)(?: [A-Za-z]{1,20})? Test$")
_FIELD = re.compile(
    r"(Dual-port|Device|Link type|Transport type|Connection type|Number of qps|Mtu|GID index|rdma_cm QPs|Outstand reads"
    r"|Max inline data|CQ Moderation|TX depth)\s{0,20}:\s{1,20}(\S{1,64})")
_OLD_HEAD = "Inline data is used up to"          # of perftest 1 and early 2, which tell no device
_ADDRESS = re.compile(r"(local|remote) address: +LID (\S{1,12}),? +QPN (\S{1,12}),? +PSN (\S{1,12})")
_LABEL = re.compile(r"(?:(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?\[(?:[\w.-]{1,120}@)?\d{1,6},(\d{1,6})\]"
                    r"<std(?:out|err)>: ?|(\d{1,6}): ?)")
_HOST = re.compile(r"[A-Za-z][\w.-]{0,80}: ?")
# Of loggers, on some or all lines.
_TIMES = tuple(map(re.compile, (
    r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)? ", r"[^#]{1,120}?\[stdout\] ?",
    r"[A-Z][a-z]{2} [ \d]\d [\d:]{8} [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d{1,9}\])?: ")))
_COLUMN = re.compile(
    r"#bytes|#iterations|#sl|BW (?:peak|average)\[[^\]]{1,12}\]|MsgRate\[Mpps\]|BW Port[12]\[[^\]]{1,12}\]"
    r"|MsgRate Port[12]\[Mpps\]|CPU_Util\[%\]|t_(?:min|max|typical|avg|stdev)\[[^\]]{1,12}\]"
    r"|99(?:\.9)?% percentile\[[^\]]{1,12}\]|tps average")
_LIKE_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9.,]{0,30}|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,4})?$|[-+]?(?:nan|inf)$", re.I)
_SAMPLE = re.compile(r"[0-9]{1,10}, [0-9.e+-]{1,20}$")       # of the list that -U and -H print
_RULE = 60                                                   # dashes of a rule at least


@dataclass(frozen=True)
class End:
    """One queue pair as one side tells it."""

    side: str            # local, remote
    lid: str
    qpn: str
    psn: str
    gid: str = ""

    @property
    def name(self) -> tuple[str, str, str]:
        return self.lid, self.qpn, self.psn

    @property
    def port(self) -> str:
        """The LID and the GID, which may be the default one of many ports; "" where neither tells anything."""
        return " ".join(filter(None, (self.real_lid, self.gid)))

    @property
    def real_lid(self) -> str:
        return "" if set(self.lid.removeprefix("0x")) <= {"0"} else self.lid


@dataclass
class Section:
    """What stands from one title to the next: one side of a run, or part of two sides mixed line by line."""

    titles: list[str] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    gids: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)      # lengths
    closing: list[int] = field(default_factory=list)    # lengths of those after the last row
    waiting: bool = False
    old: bool = False
    cut: str = ""                                       # the row that the text ends within

    @property
    def empty(self) -> bool:
        return not (self.titles or self.fields or self.ends or self.heads)

    @property
    def whole(self) -> bool:
        return len(self.heads) == 1 and bool(self.rows)

    def told(self, name: str) -> str:
        return self.fields.get(name, [""])[0]

    def names(self, side: str) -> Counter[tuple[str, str, str]]:
        return Counter(end.name for end in self.ends if end.side == side)

    def ports(self, side: str) -> set[str]:
        return {end.port for end in self.ends if end.side == side and end.port}


@dataclass
class Run:
    """One run: one side of it, or both."""

    main: Section                       # the client's, where both are there
    other: Section | None = None        # the server's, where it stands apart
    mixed: bool = False                 # both, line by line

    @property
    def both(self) -> bool:
        return self.mixed or self.other is not None

    def hosts(self) -> int | None:
        """1: both ends are one port. 2: two ports. None: not told."""
        local, remote = self.main.ports("local"), self.main.ports("remote")
        if not local or not remote:
            return None
        if self.mixed:                   # which GID is whose is not certain
            lids = {end.real_lid for end in self.main.ends}
            return min(max(len(lids), len(set(self.main.gids))), 2)
        return 1 if local & remote else 2


def title_of(title: str) -> tuple[str, bool, bool]:
    """(verb, both directions, a latency test) of a title."""
    match = _TITLE.match(title)
    return (match[1].split()[0], bool(match[2]), match[3] == "Latency") if match else ("", False, False)


@lru_cache(maxsize=256)
def columns_of(head: str) -> tuple[str, ...]:
    """The columns of a table's head; () when there is one that nobody knows."""
    return () if _COLUMN.sub("", head).split() else tuple(_COLUMN.findall(head))


def clean_lines(text: str) -> list[str]:
    """Lines without the marks of launchers (`[1,0]<stdout>:`, `0: `), task by task where every line has one, and
    without the mark of a quotation."""
    lines = [line for line in lib.lines_of(text) if line and not line.startswith("```")]
    if all(line.startswith(">") for line in lines):
        lines = [line[1:].strip() for line in lines if line != ">"]
    for times in _TIMES:
        heads = [line for line in lines if line.find("#bytes", 1) > 0]
        if any((match := times.match(line)) and line.startswith("#bytes", _after(line, match)) for line in heads):
            lines = [line for line in (times.sub("", line, count=1).strip() for line in lines) if line]
    marks = [_LABEL.match(line) for line in lines] if lines and _LABEL.match(lines[0]) else [None]
    if not all(marks):
        return _by_host(lines)
    tasks: dict[str, list[str]] = {}
    for line, mark in zip(lines, marks, strict=True):
        if mark:
            tasks.setdefault(mark[1] or mark[2], []).append(line[mark.end():].strip())
    return [line for task in tasks.values() for line in task]


def _by_host(lines: list[str]) -> list[str]:
    """Without the hosts that pdsh and its like put before each line, host by host; the other lines come first."""
    heads = [line for line in lines if line.find("#bytes", 1) > 0]
    hosts = {line[:match.end()]: [""] for line in heads
             if (match := _HOST.match(line)) and line.startswith("#bytes", _after(line, match))}
    if not hosts:
        return lines
    rest: list[str] = []
    for line in lines:
        host = match[0] if (match := _HOST.match(line)) and match[0] in hosts else ""
        hosts.get(host, rest).append(line[len(host):].strip())
    return [line for part in (rest, *hosts.values()) for line in part if line]


def _after(line: str, match: re.Match[str]) -> int:
    return match.end() + len(line[match.end():]) - len(line[match.end():].lstrip())


def runs_of(lines: Sequence[str]) -> list[Run]:
    """The runs in these lines, in order. Two sections that name each other as local and remote are one run."""
    parts = [section for section in _sections(lines) if not section.empty]
    found: list[Run] = []
    n = 0
    while n < len(parts):
        if n + 1 < len(parts) and _mirrored(parts[n], parts[n + 1]):
            found.append(_join(parts[n], parts[n + 1]))
            n += 2
        else:
            found.append(Run(parts[n]))
            n += 1
    return found


def _mirrored(one: Section, two: Section) -> bool:
    local, remote = one.names("local") + two.names("local"), one.names("remote") + two.names("remote")
    return bool(local) and local == remote and one.titles[:1] == two.titles[:1]


def _join(one: Section, two: Section) -> Run:
    if one.whole and two.whole:
        return Run(two, one) if one.waiting and not two.waiting else Run(one, two)
    joined = Section(
        titles=one.titles[:1], fields={**one.fields}, ends=[*one.ends, *two.ends], gids=[*one.gids, *two.gids],
        heads=[*one.heads, *two.heads], rows=[*one.rows, *two.rows], torn=[*one.torn, *two.torn],
        rules=[*one.rules, *two.rules], closing=two.closing, waiting=one.waiting or two.waiting)
    for name, values in two.fields.items():
        joined.fields.setdefault(name, []).extend(values)
    return Run(joined, mixed=True)


def _sections(lines: Sequence[str]) -> Iterable[Section]:
    current = Section()
    aside = listed = waiting = False
    for line in lines:
        if line.endswith("Test") and (_TITLE.match(line) or _ANY_TITLE.match(line)):
            yield current
            current = Section(titles=[line], waiting=waiting)
            aside = listed = waiting = False
        elif line in ("Local results:", "Remote results:"):      # --report-both: parts of what stands before them
            aside = bool(current.rows)
        elif aside and (line.startswith("#bytes") or _row_like(line.split(), closed=True)):
            current.closing = []
        elif line.startswith(("* Waiting for client", "Waiting for client")):
            waiting = True
            current.waiting = current.waiting or (bool(current.titles) and not current.rows)
        elif line in ("#, usec", "#, cycles"):
            listed = True
        elif not (listed and _SAMPLE.match(line)):
            _take(current, line)
    yield current


def _take(section: Section, line: str) -> None:
    """One line of a section, that is no title."""
    if line.startswith("#bytes"):
        section.heads.append(line)
        section.closing = []
    elif len(line) >= 3 and not line.strip("-"):
        section.rules.append(len(line))
        section.closing.append(len(line))
    elif line.startswith(("GID:", "MGID:")):
        gid = line.split(":", 1)[1].strip()
        section.gids.append(gid)
        if section.ends and not section.ends[-1].gid:
            last = section.ends.pop()
            section.ends.append(End(last.side, last.lid, last.qpn, last.psn, gid))
    else:
        address = _ADDRESS.match(line) if "address" in line else None
        if address:
            section.ends.append(End(address[1], address[2], address[3], address[4]))
        elif section.heads and _row_like(line.split(), closed=bool(section.closing and section.rows)):
            _take_row(section, line.split())
        else:
            section.old = section.old or line.startswith(_OLD_HEAD)
            for name, value in _fields_of(line) if len(line) <= 120 else _FIELD.findall(line):
                section.fields.setdefault(name, []).append(value)


@lru_cache(maxsize=1024)
def _fields_of(line: str) -> tuple[tuple[str, str], ...]:
    """Of nearly all runs they are the same."""
    return tuple(_FIELD.findall(line))


def _row_like(words: list[str], *, closed: bool) -> bool:
    numbers = sum(bool(_LIKE_NUMBER.match(word)) for word in words[:40])
    return bool(words) and ((words[0].isdigit() and not closed) or numbers >= max(2, 0.6 * len(words)))


def _take_row(section: Section, words: list[str]) -> None:
    columns = columns_of(section.heads[-1])
    if len(words) != len(columns) or not words[0].isdigit():
        section.torn.append(" ".join(words))
        return
    section.rows.append(tuple(words))
    section.closing = []


def closed(section: Section, *, last: bool) -> bool:
    """Whether the table's closing rule is there, in its full length; before another run a second one belongs to it."""
    full = [length for length in section.closing if length == max([*section.rules, _RULE])]
    return len(full) >= (1 if last else 2)

"""Reads the text of iperf3 and iperf2, and iperf2's CSV: each row by the units and names that stand in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib.iperf import Rate, Run, address, counted, remarks

_ROW = re.compile(r"\[ {0,3}(\d{1,5}|SUM)(?:-\d{1,4})?\] ?(?:\[(?:([RT]X)-([CS])|[SCLR-]{1,2})\])? *"
                  r"(\S{1,24}?)- ?(\S{1,24}) +sec +(\S{1,24}) +([KMGT]?)(Bytes|bytes) +"
                  r"(\S{1,24}) +([KMGT]?)(bits|Bytes)/sec *(.*)$")
_LOOKS = re.compile(r"\[ {0,3}(?:\d{1,5}|SUM)\S{0,12}\].{0,200}?(?:/sec|\bsec\b)")
_PAIR = re.compile(r"\[ {0,3}(\d{1,5})\](?:\[[^\]]{1,4}\])? (?:NAT )?local (\S{1,80}) port \d{1,5} "
                   r"connected (?:to|with) (\S{1,80}) port \d{1,5}")
_LOSS = re.compile(r"(\S{1,24}) ms +(\S{1,24}?)/ ?(\S{1,24}) +\((\S{1,16}?)%\)")
_CSV = re.compile(r"\d{14}(?:[.\d]{0,8})?(?:[+-]\d{4})?,[^,\s]{1,64},\d{1,5},[^,\s]{1,64},\d{1,5},-?\d{1,6},"
                  r"[^\s]{1,400}$")
_CLIENT3 = re.compile(r"Connecting to host (\S{1,255}), port \d")
_CLIENT2 = re.compile(r"Client connecting to (\S{1,255}), (TCP|UDP) port \d")
_HEAD = re.compile(r"\[ {0,3}ID\].{0,20}Interval +Transfer +(?:Bitrate|Bandwidth)")
_FIGURE = re.compile(r"\(?\d{1,20}(?:\.\d{1,20})?(?:/\d{0,20}(?:\.\d{1,20})?)*%?\)?$")
_KNOWN = ("Connecting to host ", "Client connecting to ", "Server listening on ", "Accepted connection from ",
          "iperf Done.", "iperf3: ", "bits/sec", "Bytes/sec")
_RETR = re.compile(r"\[ {0,3}ID\].{0,90}\bRetr\b")
_FACTOR = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {"": 1.0, "K": 2.0 ** 10, "M": 2.0 ** 20, "G": 2.0 ** 30, "T": 2.0 ** 40}


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    place: int           # of its line
    id: str
    way: str
    begin: float
    end: float
    moved: float         # bytes
    rate: float          # bit/s
    role: str            # "sender", "receiver" or ""
    rest: str
    omitted: bool = False


def is_text(text: str) -> bool:
    return any(word in text for word in _KNOWN) or any(_CSV.match(line.strip()) for line in text.split("\n"))


def runs_of(lines: Sequence[str]) -> list[Run]:
    csv = [line for line in lines if _CSV.match(line)]
    if csv and not any(_ROW.match(line) for line in lines):
        return [_csv(csv)]
    lines = _without_servers_own(lines)
    starts = [n for n, line in enumerate(lines) if _CLIENT3.search(line) or _CLIENT2.search(line)
              or line.startswith(("Accepted connection from", "Server listening on TCP", "Server listening on UDP"))]
    if not starts and not any(_HEAD.search(line) or _LOOKS.match(line) for line in lines):
        return []
    starts = starts or [0]
    return [_run(lines[begin:end]) for begin, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def _without_servers_own(lines: Sequence[str]) -> list[str]:
    """--get-server-output prints the other side's text inside of ours."""
    if "Server output:" not in lines:
        return list(lines)
    begin = lines.index("Server output:")
    end = next((n for n in range(begin, len(lines)) if lines[n] == "iperf Done."), len(lines))
    return [*lines[:begin], *lines[end:]]


def _run(lines: Sequence[str]) -> Run:
    new = any(_CLIENT3.search(line) or line.startswith("Accepted connection") or line == "iperf Done."
              for line in lines)
    old = next((m for m in map(_CLIENT2.search, lines) if m), None)
    run = Run("iperf2" if not new else "iperf3")
    run.reverse = any(line.startswith("Reverse mode") for line in lines)
    try:
        known = _pairs(lines)
        run.pairs = list(known.values())
        rows = _rows(lines)
        run.udp = (old is not None and old[2] == "UDP") or any(_LOSS.search(row.rest) for row in rows) or any(
            "Total Datagrams" in line for line in lines)
        run.streams = max(1, len(known))
        if not rows:
            raise ParseError("no row: cut off, or nothing was measured")
        if not any(_HEAD.search(line) for line in lines):
            raise ParseError("the table has no head: cut off")
        (_new if new else _old)(run, rows, lines)
    except ParseError as exc:
        run.problems.append(str(exc))
    if not run.problems:
        run.notes += [*remarks(run), *_quoted(rows, lines)]
    return run


def _pairs(lines: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The two ends of each stream."""
    known: dict[str, tuple[str, str]] = {}
    for found in (m for m in map(_PAIR.match, lines) if m):
        if found[1] in known:
            raise ParseError(f"stream {found[1]} is connected twice: several runs mixed")
        known[found[1]] = (address(found[2]), address(found[3]))
    return known


def _quoted(rows: Sequence[Row], lines: Sequence[str]) -> list[str]:
    """The lines that tell it, in the tool's own words."""
    found = [lib.shown(line) for line in lines if "IPG target:" in line or _CLIENT3.match(line)
             or _CLIENT2.match(line)][:3]
    found += [lib.shown(lines[row.place]) for row in rows if row.role == "receiver" or _LOSS.search(row.rest)][-2:]
    found += ["iperf Done."] if "iperf Done." in lines else []
    return found + [lib.shown(line) for line in lines if "received out-of-order" in line][:2]


def _rows(lines: Sequence[str]) -> list[Row]:
    """ParseError where a line looks like a row and is none, or contradicts itself."""
    found = []
    for place, line in enumerate(lines):
        match = _ROW.match(line)
        if match is None:
            if _LOOKS.match(line) and "received out-of-order" not in line:
                raise ParseError(f"the row is torn: {lib.shown(line)}")
            continue
        begin, end = (lib.finite(match[n], f"the interval in {lib.shown(line)}", most=1e8) for n in (4, 5))
        moved = lib.finite(match[6], f"the transfer in {lib.shown(line)}") * _BYTES[match[7]]
        rate = lib.finite(match[9], f"the rate in {lib.shown(line)}") * (
            _FACTOR[match[10]] if match[11] == "bits" else 8 * _BYTES[match[10]])
        rest = match[12].strip()
        words = rest.split()
        role = words[-1] if words and words[-1] in ("sender", "receiver") else ""
        row = Row(place, match[1], f"{match[2]}-{match[3]}" if match[2] else "", begin, end, moved, rate, role,
                  rest, "(omitted)" in rest)
        _agrees(row, line)
        if not _figures(words):
            raise ParseError(f"the row is torn: {lib.shown(line)}")
        found.append(row)
    return found


def _figures(words: Sequence[str]) -> bool:
    """Whether what stands behind the rate are figures, each before its unit, and words."""
    for before, word in zip(("", *words), words, strict=False):
        if _FIGURE.match(word):
            continue
        if not word.strip("()").replace("/", "").isalpha() or word.lower() in ("nan", "inf"):
            return False
        if (word == "ms" or word.endswith("Bytes")) and not _FIGURE.match(before):
            return False
    return True


def _agrees(row: Row, line: str) -> None:
    """Transfer, time and rate of one row, each printed with three digits."""
    seconds = row.end - row.begin
    if seconds < 0:
        raise ParseError(f"the row goes back in time: {lib.shown(line)}")
    if seconds < 0.3 or not row.moved:       # too short to tell; or nothing moved
        return
    slack = 0.012 + 0.011 / seconds + 0.6 / max(_digits(line), 1.0)
    if abs(row.moved * 8 / seconds - row.rate) > slack * max(row.rate, row.moved * 8 / seconds):
        raise ParseError(f"the row contradicts itself: {lib.shown(line)}")


def _digits(line: str) -> float:
    """How coarse the smaller of transfer and rate is printed: 4 of "4.00 MBytes" is 400, of "4 MBytes" is 4."""
    match = _ROW.match(line)
    assert match is not None  # noqa: S101
    return min(float(match[n].replace(".", "") or 0) for n in (6, 9)) or 1.0


def _gbps(row: Row) -> float:
    return row.rate / 1e9


def _take_loss(run: Run, row: Row) -> None:
    told = _LOSS.search(row.rest)
    if told is None:
        return
    where = lib.shown(row.rest)
    run.jitter_ms = max(lib.finite(told[1], f"jitter in {where}", most=1e7), run.jitter_ms or 0.0)
    lost, total = lib.integer(told[2], f"lost in {where}"), lib.integer(told[3], f"datagrams in {where}")
    counted(run, lost + (run.lost or 0), total + (run.total or 0),
            None if run.total else lib.finite(told[4], f"loss in {where}", most=100), where)


# --- iperf3 -----------------------------------------------------------------------------------------------------


def _ending(run: Run, rows: Sequence[Row], lines: Sequence[str], *, client: bool) -> tuple[list[Row], int]:
    """The rows of the summary, and where it begins. ParseError where there is none."""
    rules = [n for n, line in enumerate(lines) if line.startswith("- - - ")]
    first = rules[-1] if rules else -1
    if not rules or not any(_HEAD.search(line) for line in lines[first:]):
        raise ParseError("no summary after the last interval: cut off")
    if client and "iperf Done." not in lines:
        raise ParseError("no summary is closed (iperf Done. is missing): cut off")
    if lines.count("iperf Done.") > 1:
        raise ParseError("several runs in one text")
    if not run.pairs:
        raise ParseError("no connection is named")
    return [row for row in rows if row.place > first and not row.omitted], first


def _new(run: Run, rows: Sequence[Row], lines: Sequence[str]) -> None:
    client = any(_CLIENT3.search(line) for line in lines)
    ending, first = _ending(run, rows, lines, client=client)
    ways = sorted({row.way for row in rows}, reverse=True)
    run.streams = max(1, len(run.pairs) // len(ways))
    for way in ways:
        told = {row.role for row in ending if row.way == way}
        roles = [role for role in ("receiver", "sender") if client or role in told]
        if told == {""} and run.udp:          # before 3.7 one row a stream
            roles = [""]
        for role in roles:
            total = _summed(run, [r for r in ending if r.way == way and r.role == role], role)
            if total.rate or role == "receiver" or client:
                run.rates.append(Rate(role or "sender", _gbps(total), round(total.end - total.begin, 4), way))
            if total.rate == 0 and client:
                raise ParseError(f"nothing was moved: {lib.shown(lines[total.place])}")
            if role == "sender" and not run.udp:
                _take_retransmits(run, total, way, retransmits=any(_RETR.search(line) for line in lines[first:]))
            if role != "sender":
                _take_loss(run, total)
    if not client and not run.rates:
        raise ParseError("nothing was moved")
    if run.udp and run.total is None:
        if client:
            raise ParseError("the receiver does not tell how many datagrams were lost")
        run.doubts.append("the sender's side: how many datagrams were lost is not told")
    run.doubts += [*_gaps(rows, first), *_shapes(rows, lines, first)]
    if not client and "iperf Done." in lines:
        run.doubts.append("the head is missing: which host was asked is not told")


def _summed(run: Run, rows: Sequence[Row], role: str) -> Row:
    """The row of all streams, which must be the sum of the others."""
    single = [row for row in rows if row.id != "SUM"]
    total = [row for row in rows if row.id == "SUM"]
    name = role or "summary"
    if len(single) != run.streams or len({row.id for row in single}) != len(single):
        raise ParseError(f"{len(single)} {name} rows for {run.streams} streams")
    if run.streams == 1 and not total:
        return single[0]
    if len(total) != 1:
        raise ParseError(f"{len(total)} [SUM] {name} rows for {run.streams} streams")
    parts = sum(row.rate for row in single)
    if abs(parts - total[0].rate) > 0.03 * max(parts, total[0].rate):
        raise ParseError(f"the [SUM] {name} row is not the sum of the streams")
    return total[0]


def _take_retransmits(run: Run, total: Row, way: str, *, retransmits: bool) -> None:
    words = total.rest.split()
    if retransmits:
        run.retransmits[way] = lib.integer(words[0], "retransmits")


def _shapes(rows: Sequence[Row], lines: Sequence[str], first: int) -> list[str]:
    """Rows of one kind have equally many figures, and every stream has equally many intervals."""
    kinds: dict[object, set[int]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        words = len(row.rest.replace("(omitted)", "").split())
        kinds.setdefault((row.place > first, row.role, row.way, row.id == "SUM"), set()).add(words)
        counts[row.way, row.id] += row.place < first
    for way in {way for way, _ in counts}:
        if len({count for (w, _), count in counts.items() if w == way}) > 1:
            return ["not every stream has all intervals"]
    if any(len(words) > 1 for words in kinds.values()):
        return ["rows of one table have not all their figures"]
    heads = sum(1 for line in lines if _HEAD.search(line))
    return ["the table has not one head above its rows"] if heads != 1 + any(row.place < first for row in rows) else []


def _gaps(rows: Sequence[Row], first: int) -> list[str]:
    """Where intervals of a stream do not follow each other up to the end."""
    last: dict[tuple[str, str], float] = {}
    found = []
    for row in rows:
        key = row.id, row.way
        if row.place > first or row.omitted:
            if row.place > first and key in last and last[key] < 0.95 * row.end - 0.05:
                found.append(f"the intervals of stream {row.id} end at {last[key]:g} s, the run at {row.end:g} s")
            continue
        if abs(row.begin - last.get(key, 0.0)) > 0.03:
            found.append(f"an interval of stream {row.id} is missing before {row.begin:g} s, or doubled")
        last[key] = row.end
    return list(dict.fromkeys(found))[:3]


# --- iperf2 -----------------------------------------------------------------------------------------------------


def _old(run: Run, rows: Sequence[Row], lines: Sequence[str]) -> None:
    client = any(_CLIENT2.search(line) for line in lines)
    report = {row.place for row in rows if _reported(row, lines)}
    if not run.pairs:
        raise ParseError("no connection is named")
    if sum("Server Report" in line for line in lines) > run.streams:
        raise ParseError("the server reports more often than there are streams: several runs mixed")
    for end in ("client", "server report") if client else ("receiver",):
        mine = [row for row in rows if (row.place in report) == (end == "server report")]
        if end == "server report" and not run.udp:
            continue
        whole = {row.id: row for row in mine if row.begin == 0}         # the last one of each
        if any(row.begin == 0 and row.end == whole[row.id].end and row is not whole[row.id] for row in mine):
            raise ParseError(f"a row of the {end} stands there twice: several runs mixed")
        _covers(mine, whole)
        single = [row for name, row in whole.items() if name != "SUM"]
        if len(single) != run.streams:
            raise ParseError(f"{len(single)} rows of the {end} for {run.streams} streams: cut off, or the other side "
                             "never reported")
        total = whole.get("SUM")
        if total is None and run.streams > 1 and end == "client":
            raise ParseError(f"no [SUM] row for {run.streams} streams: cut off")
        rate = total.rate if total else sum(row.rate for row in single)
        if total and abs(sum(row.rate for row in single) - total.rate) > 0.05 * total.rate:
            raise ParseError(f"the [SUM] row of the {end} is not the sum of the streams")
        if not rate:
            raise ParseError(f"the {end} moved nothing")
        run.rates.append(Rate(end, rate / 1e9, round(max(row.end for row in single), 4)))
        for row in single:
            if end != "client":
                _take_loss(run, row)
    if run.udp and run.total is None:
        raise ParseError("the server does not report how many datagrams were lost")


def _reported(row: Row, lines: Sequence[str]) -> bool:
    """Whether the row is the server's, which stands after the line that says so."""
    for back in range(row.place - 1, max(-1, row.place - 4), -1):
        if "Server Report" in lines[back]:
            return True
        if not _HEAD.search(lines[back]):
            return False
    return False


def _covers(rows: Sequence[Row], whole: dict[str, Row]) -> None:
    """ParseError where the row of the whole run is missing, so that only intervals are there."""
    for row in rows:
        total = whole.get(row.id)
        if total is None or row.end > total.end + 0.02 or (row.begin > 0 and row.place > total.place):
            raise ParseError(f"stream {row.id} has no row of the whole run: cut off")


def _csv(lines: Sequence[str]) -> Run:
    """time,our address,port,their address,port,id,interval,bytes,bit/s[,jitter,lost,total,percent,out of order]"""
    run = Run("iperf2")
    try:
        table = [line.split(",") for line in lines]
        if any(len(words) not in (9, 14) for words in table):
            raise ParseError("a row of the CSV has neither 9 nor 14 fields")
        ours = [words for words in table if len(words) == 9] or table
        ids = [words[5] for words in ours if words[5] != "-1"]
        if len(set(ids)) != len(ids) or not ids:
            raise ParseError("several intervals or runs in one CSV")
        run.streams = len(ids)
        run.pairs = [(words[1], words[3]) for words in ours if words[5] != "-1"]
        rates, seconds = [], 0.0
        for words in ours:
            begin, dash, end = words[6].partition("-")
            rate = lib.positive(words[8], "bit/s")
            seconds = lib.positive(end, "the end of the interval") - lib.finite(begin, "its begin")
            if not dash or abs(lib.finite(words[7], "bytes") * 8 / seconds - rate) > (0.02 + 0.06 / seconds) * rate:
                raise ParseError(f"the row contradicts itself: {lib.shown(','.join(words))}")
            rates += [] if words[5] == "-1" else [rate]
        run.udp = any(len(words) == 14 for words in table)
        run.rates.append(Rate("client", sum(rates) / 1e9, seconds))
        for words in table:
            if len(words) == 14 and words[5] != "-1":
                run.jitter_ms = lib.finite(words[9], "jitter")
                lost, total = lib.integer(words[10], "lost datagrams"), lib.integer(words[11], "datagrams")
                counted(run, lost + (run.lost or 0), total + (run.total or 0), None, "the CSV")
    except ParseError as exc:
        run.problems.append(str(exc))
        run.rates.clear()
    if not run.problems:
        run.notes += remarks(run)
    return run

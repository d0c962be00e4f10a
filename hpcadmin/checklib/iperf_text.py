"""Reads the text of iperf3, and hands that of iperf2 on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib import iperf_two
from hpcadmin.checklib.iperf import Rate, Run, address, remarks
from hpcadmin.checklib.iperf_rows import HEAD, LOOKS, LOSS, ROW, Row, gbps, rows_of, take_loss
from hpcadmin.checklib.iperf_two import CLIENT2, CSV

_PAIR = re.compile(r"\[ {0,3}(\d{1,5})\](?:\[[^\]]{1,4}\])? (?:NAT )?local (\S{1,80}) port \d{1,5} "
                   r"connected (?:to|with) (\S{1,80}) port \d{1,5}")
_CLIENT3 = re.compile(r"Connecting to host (\S{1,255}), port \d")
_KNOWN = ("Connecting to host ", "Client connecting to ", "Server listening on ", "Accepted connection from ",
          "iperf Done.", "iperf3: ", "bits/sec", "Bytes/sec")
_RETR = re.compile(r"\[ {0,3}ID\].{0,90}\bRetr\b")


def is_text(text: str) -> bool:
    return any(word in text for word in _KNOWN) or any(CSV.match(line.strip()) for line in text.split("\n"))


def runs_of(lines: Sequence[str]) -> list[Run]:
    csv = [line for line in lines if CSV.match(line)]
    if csv and not any(ROW.match(line) for line in lines):
        return [iperf_two.csv(csv)]
    lines = _without_servers_own(lines)
    starts = [n for n, line in enumerate(lines) if _CLIENT3.search(line) or CLIENT2.search(line)
              or line.startswith(("Accepted connection from", "Server listening on TCP", "Server listening on UDP"))]
    if not starts and not any(HEAD.search(line) or LOOKS.match(line) for line in lines):
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
    old = next((m for m in map(CLIENT2.search, lines) if m), None)
    run = Run("iperf2" if not new else "iperf3")
    run.reverse = any(line.startswith("Reverse mode") for line in lines)
    try:
        known = _pairs(lines)
        run.pairs = list(known.values())
        rows = rows_of(lines)
        run.udp = (old is not None and old[2] == "UDP") or any(LOSS.search(row.rest) for row in rows) or any(
            "Total Datagrams" in line for line in lines)
        run.streams = max(1, len(known))
        if not rows:
            raise ParseError("no row: cut off, or nothing was measured")
        if not any(HEAD.search(line) for line in lines):
            raise ParseError("the table has no head: cut off")
        (_new if new else iperf_two.read)(run, rows, lines)
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
             or CLIENT2.match(line)][:3]
    found += [lib.shown(lines[row.place]) for row in rows if row.role == "receiver" or LOSS.search(row.rest)][-2:]
    found += ["iperf Done."] if "iperf Done." in lines else []
    return found + [lib.shown(line) for line in lines if "received out-of-order" in line][:2]


def _ending(run: Run, rows: Sequence[Row], lines: Sequence[str], *, client: bool) -> tuple[list[Row], int]:
    """The rows of the summary, and where it begins. ParseError where there is none."""
    rules = [n for n, line in enumerate(lines) if line.startswith("- - - ")]
    first = rules[-1] if rules else -1
    if not rules or not any(HEAD.search(line) for line in lines[first:]):
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
                run.rates.append(Rate(role or "sender", gbps(total), round(total.end - total.begin, 4), way))
            if total.rate == 0 and client:
                raise ParseError(f"nothing was moved: {lib.shown(lines[total.place])}")
            if role == "sender" and not run.udp:
                _take_retransmits(run, total, way, retransmits=any(_RETR.search(line) for line in lines[first:]))
            if role != "sender":
                take_loss(run, total)
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
    heads = sum(1 for line in lines if HEAD.search(line))
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

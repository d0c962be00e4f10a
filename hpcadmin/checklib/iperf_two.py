"""Reads the text and the CSV of iperf2."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib.iperf import Rate, Run, counted, remarks
from hpcadmin.checklib.iperf_rows import HEAD, Row, take_loss

CSV = re.compile(r"\d{14}(?:[.\d]{0,8})?(?:[+-]\d{4})?,[^,\s]{1,64},\d{1,5},[^,\s]{1,64},\d{1,5},-?\d{1,6},"
                  r"[^\s]{1,400}$")
CLIENT2 = re.compile(r"Client connecting to (\S{1,255}), (TCP|UDP) port \d")


def read(run: Run, rows: Sequence[Row], lines: Sequence[str]) -> None:
    client = any(CLIENT2.search(line) for line in lines)
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
        rate = _together(run, end, single, whole.get("SUM"))
        if not rate:
            raise ParseError(f"the {end} moved nothing")
        run.rates.append(Rate(end, rate / 1e9, round(max(row.end for row in single), 4)))
        for row in single:
            if end != "client":
                take_loss(run, row)
    if run.udp and run.total is None:
        raise ParseError("the server does not report how many datagrams were lost")


def _together(run: Run, end: str, single: Sequence[Row], total: Row | None) -> float:
    """The rate of all streams, in bit/s."""
    added = sum(row.rate for row in single)
    if total is None:
        if run.streams > 1 and end == "client":
            raise ParseError(f"no [SUM] row for {run.streams} streams: cut off")
        return added
    if abs(added - total.rate) <= 0.05 * total.rate:
        return total.rate
    if end != "receiver":
        raise ParseError(f"the [SUM] row of the {end} is not the sum of the streams")
    # A server of 2.0.5 adds the intervals to the whole run.
    run.doubts.append(f"the [SUM] row, {total.rate / 1e6:g} Mb/s, is not the sum of the streams")
    return added


def _reported(row: Row, lines: Sequence[str]) -> bool:
    """Whether the row is the server's, which stands after the line that says so."""
    for back in range(row.place - 1, max(-1, row.place - 4), -1):
        if "Server Report" in lines[back]:
            return True
        if not HEAD.search(lines[back]):
            return False
    return False


def _covers(rows: Sequence[Row], whole: dict[str, Row]) -> None:
    """ParseError where the row of the whole run is missing, so that only intervals are there."""
    for row in rows:
        total = whole.get(row.id)
        if total is None or row.end > total.end + 0.02 or (row.begin > 0 and row.place > total.place):
            raise ParseError(f"stream {row.id} has no row of the whole run: cut off")


def csv(lines: Sequence[str]) -> Run:
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

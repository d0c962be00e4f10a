"""Reads the JSON of iperf3 (-J, and a line for each event with --json-stream), of 3.0 to 3.20, client and server."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib.iperf import Rate, Run, address, counted, remarks
from hpcadmin.checklib.strict_json import no_number

_NEAR = 0.02            # what bytes, seconds and rate of one row may differ by: ends stop their clocks by themselves
_SAME = 1e-5            # sums: older versions print large numbers with six digits
_MOST_DOCUMENTS = 20_000
_MOST_WRONG = 4
_REALLY_TWICE = ("sock_bufsize", "sndbuf_actual", "rcvbuf_actual", "target_bitrate")     # by 3.12 and others
_WORDS = ('"test_start"', '"sum_sent"', '"sum_received"', '"system_info"', '"intervals"', '"event"', '"cookie"')


def is_json(text: str) -> bool:
    """A JSON of iperf3, or what is left of one."""
    return any(word in text for word in _WORDS) and re.search(r"(?m)^[ \t]{0,16}\{", text) is not None


def runs_of(text: str) -> list[Run]:
    twice: list[str] = []
    documents, problems = _documents(text, twice)
    runs = [_run(d) for d in documents if "event" not in d and {"start", "end", "error"} & set(d)]
    events = [d for d in documents if "event" in d]
    if events:
        runs += [_run(d) for d in _streamed(events)]
    if not runs:
        return [Run("iperf3", problems=problems or ["no JSON of iperf3"])]
    runs[-1].problems += problems
    runs[0].doubts += [f"{lib.shown(key)} is told twice in one JSON" for key in dict.fromkeys(twice)][:3]
    return runs


def _documents(text: str, twice: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects that begin at a line, and what is wrong with those that are none."""
    def pairs(found: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found) and len(twice) < 8:
            counts = Counter(key for key, _ in found)
            twice.extend(key for key, count in counts.items() if count > 1 and key not in _REALLY_TWICE)
        return made

    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_constant=no_number)
    documents: list[dict[str, Any]] = []
    problems: list[str] = []
    place = 0
    for match in re.finditer(r"(?m)^[ \t]{0,16}(?=\{)", text):
        if match.end() < place:
            continue
        try:
            found, place = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError) as exc:
            problems.append(f"the JSON is cut off or damaged: {lib.shown(str(exc))}")
            if len(problems) == _MOST_WRONG:
                break
            place = max(place, match.end() + 1)
            if text[match.end():match.end() + 2] in ("{\n", "{\r"):
                break                            # what follows is inside of it
            continue
        documents.append(found)
        rest = text[place:place + 200].lstrip()
        if rest[:1] in tuple('}],:"'):
            problems.append(f"after the JSON stands what belongs to none: {lib.shown(rest[:40])}")
        if len(documents) == _MOST_DOCUMENTS:
            problems.append(f"more than {_MOST_DOCUMENTS} JSON texts")
            break
    return documents, problems


def _streamed(events: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Documents as -J would print them."""
    current: dict[str, Any] = {}
    for event in events:
        kind, data = event.get("event"), event.get("data")
        if kind == "start" and current:
            yield current
            current = {}
        current.setdefault("intervals", [])
        if kind == "interval":
            current["intervals"].append(data)
        elif kind in ("start", "end", "error") and isinstance(kind, str):
            if kind in current:
                current["error"] = f"two events named {kind}"
            current[kind] = data
    if current:
        yield current


class _Part:
    """An object of the JSON, with numbers taken by name."""

    def __init__(self, data: object, name: str) -> None:
        if not isinstance(data, dict):
            raise ParseError(f"the JSON has no {name}")
        self.data: dict[str, Any] = data
        self.name = name

    def number(self, key: str, *, most: float = 1e18) -> float:
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ParseError(f"{self.name}.{key} is {lib.shown(str(value))}, which is not a number"
                             if key in self.data else f"the JSON has no {self.name}.{key}")
        if not math.isfinite(value) or not 0 <= value <= most:
            raise ParseError(f"{self.name}.{key} is {value:g}: impossible")
        return float(value)

    def whole(self, key: str) -> int:
        value = self.number(key)
        if value != int(value):
            raise ParseError(f"{self.name}.{key} is {value:g}, not a whole number")
        return int(value)

    def part(self, key: str) -> _Part:
        return _Part(self.data.get(key), f"{self.name}.{key}")

    def parts(self, key: str) -> list[_Part]:
        found = self.data.get(key)
        if not isinstance(found, list):
            raise ParseError(f"the JSON has no {self.name}.{key}")
        return [_Part(one, f"{self.name}.{key}[{n}]") for n, one in enumerate(found)]


def _run(data: Mapping[str, Any]) -> Run:
    start = data.get("start") if isinstance(data.get("start"), dict) else {}
    assert isinstance(start, dict)  # noqa: S101
    version = str(start.get("version") or "").strip()
    version = version.replace("iperf ", "iperf3 ", 1) if version.startswith("iperf ") else version or "iperf3"
    run = Run(lib.shown(version))
    if "error" in data:
        run.problems.append(f"iperf3 says: {lib.shown(str(data['error']))}")
    try:
        _fill(run, _Part(data.get("start"), "start"), data)
    except ParseError as exc:
        if "error" not in data:
            run.problems.append(str(exc))
    return run


def _fill(run: Run, start: _Part, data: Mapping[str, Any]) -> None:
    asked = start.part("test_start")
    protocol = asked.data.get("protocol")
    if protocol not in ("TCP", "UDP"):
        raise ParseError(f"the protocol is {lib.shown(str(protocol))}, not TCP or UDP")
    end = _Part(data.get("end"), "end")
    run.udp, run.streams = protocol == "UDP", asked.whole("num_streams")
    run.reverse = bool(asked.data.get("reverse"))
    ways = ("", "_bidir_reverse") if any(str(k).endswith("_bidir_reverse") for k in end.data) else ("",)
    both = len(ways) == 2 or bool(asked.data.get("bidir"))
    for connected in start.parts("connected"):
        ends = connected.data.get("local_host"), connected.data.get("remote_host")
        run.pairs.append((address(str(ends[0])), address(str(ends[1]))))
    server = "accepted_connection" in start.data
    for suffix in ways:
        way = "" if not both else "RX-C" if suffix else "TX-C"
        (_udp if run.udp else _tcp)(run, end, suffix, way, server=server)
    _complete(run, asked, end, data, both=both, server=server)
    if not run.problems:
        run.notes += remarks(run)
        if data.get("server_output_text") or data.get("server_output_json"):
            run.notes.append("the server's own output is inside")


def _flow(part: _Part, end: str, way: str) -> Rate:
    seconds, rate = part.number("seconds", most=1e7), part.number("bits_per_second", most=1e15)
    if not seconds or not rate:
        raise ParseError(f"{part.name}: nothing was moved in {seconds:g} s")
    if abs(part.number("bytes") * 8 / seconds - rate) > _NEAR * rate:
        raise ParseError(f"{part.name} contradicts itself: {part.number('bytes'):g} bytes in {seconds:g} s are not "
                         f"{rate:g} bit/s")
    return Rate(end, rate / 1e9, round(seconds, 3), way)


def _tcp(run: Run, end: _Part, suffix: str, way: str, *, server: bool) -> None:
    sent, received = end.part(f"sum_sent{suffix}"), end.part(f"sum_received{suffix}")
    theirs = received if run.reverse or suffix else sent      # a server is not always told what the client counted
    for part, name in ((received, "receiver"), (sent, "sender")):
        if server and part is theirs and not part.data.get("bytes"):
            run.notes.append(f"the server's side: the {name} is not told")
            continue
        run.rates.append(_flow(part, name, way))
    if "retransmits" in sent.data:
        run.retransmits[way] = sent.whole("retransmits")
    for name, total in (("sender", sent), ("receiver", received)):
        ends = [one.part(name) for one in end.parts("streams") if not way or _way(one.part(name), server=server) == way]
        moved = sum(one.number("bytes") for one in ends)
        if len(ends) != run.streams:
            raise ParseError(f"{len(ends)} streams in the end where {run.streams} were asked for")
        if abs(moved - total.number("bytes")) > _SAME * max(moved, 1):
            raise ParseError(f"{total.name}.bytes is not the sum of the streams")


def _way(stream: _Part, *, server: bool) -> str:
    """Of a test both ways: whether the client sends it (each end says of itself whether it sends)."""
    return "TX-C" if bool(stream.data.get("sender")) != server else "RX-C"


def _udp(run: Run, end: _Part, suffix: str, way: str, *, server: bool) -> None:
    received, sent = (end.part(f"{name}{suffix}") if f"{name}{suffix}" in end.data else None
                      for name in ("sum_received", "sum_sent"))
    total = received if received is not None and f"sum{suffix}" not in end.data else end.part(f"sum{suffix}")
    for part in (total, received, sent):
        for key in ("packets", "lost_packets", "jitter_ms", "lost_percent"):
            if part is not None and (key in part.data or part is total):
                part.number(key)
    if total.number("bytes") or not server:      # a server is not always told what the client counted
        _flow(total, "sum", way)
    if received is not None and received.data.get("bytes"):
        run.rates.append(_flow(received, "receiver", way))
    if sent is not None and not (server and not sent.data.get("bytes")):
        run.rates.append(_flow(sent, "sender", way))
    elif sent is None and received is None:
        run.rates.append(_flow(total, "receiver" if server or run.reverse else "sender", way))
    sends = server and (run.reverse or bool(suffix))
    if not sends:
        _udp_loss(run, end, total, received, way, server=server)
    elif not run.doubts:
        run.doubts.append("the sender's side: how many datagrams were lost is not told")


def _udp_loss(run: Run, end: _Part, total: _Part, received: _Part | None, way: str, *, server: bool) -> None:
    streams = [one.part("udp") for one in end.parts("streams")]
    mine = [one for one in streams if not way or _way(one, server=server) == way]
    if len(mine) != run.streams:
        raise ParseError(f"{len(mine)} streams in the end where {run.streams} were asked for")
    counts = received if received is not None and received.number("packets") else total
    if counts is not total and counts.whole("lost_packets") != total.whole("lost_packets"):
        raise ParseError("end.sum and end.sum_received tell different numbers of lost datagrams")
    lost, packets = counts.whole("lost_packets"), counts.whole("packets")
    if sum(one.whole("lost_packets") for one in mine) != lost:
        raise ParseError(f"{counts.name}.lost_packets is not the sum of the streams")
    if run.lost is not None and run.total is not None:      # both ways: all of them together
        lost, packets = lost + run.lost, packets + run.total
        counted(run, lost, packets, None, counts.name)
    else:
        counted(run, lost, packets, counts.number("lost_percent"), counts.name)
    run.jitter_ms = round(max(counts.number("jitter_ms"), run.jitter_ms or 0.0), 4)


def _complete(run: Run, asked: _Part, end: _Part, data: Mapping[str, Any], *, both: bool, server: bool) -> None:
    """Whether all that was asked for is there."""
    streams = run.streams * (2 if both else 1)
    if len(run.pairs) != streams:
        raise ParseError(f"{len(run.pairs)} streams were connected where {streams} were asked for")
    by_time = not asked.data.get("bytes") and not asked.data.get("blocks")
    if by_time and "duration" in asked.data and run.rates:
        wanted, least = asked.number("duration"), min(r.seconds for r in run.rates)
        if wanted and least < 0.9 * wanted:
            run.problems.append(f"it ran for {least:g} s, {wanted:g} s were asked for")
    moved = last = 0.0
    intervals = _Part(data, "the text").parts("intervals")
    kept = [one for one in intervals if isinstance(one.data.get("sum"), dict)]
    torn = len(kept) < len(intervals) or any(len(one.parts("streams")) != streams or not all(
        stream.data.get("seconds") is not None for stream in one.parts("streams")) for one in kept)
    run.doubts += ["an interval has not all its streams and their sum"] if torn else []
    for one in kept:
        part = one.part("sum")
        if part.data.get("omitted") is True:
            continue
        if abs(part.number("start") - last) > 0.05 + 0.01 * last:
            run.doubts.append(f"an interval is missing between {last:g} and {part.number('start'):g} s")
        last = part.number("end")
        moved += part.number("bytes")
    name = "sum_received" if server != run.reverse else "sum_sent"
    total = end.data.get(name) or end.data.get("sum")
    if kept and not both and isinstance(total, dict):
        whole = _Part(total, f"end.{name}").number("bytes")
        if abs(moved - whole) > 0.05 * max(whole, 1) and not run.doubts:
            run.doubts.append(f"the intervals have {moved:g} bytes, the end {whole:g}")

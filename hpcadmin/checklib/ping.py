"""Reads what ping prints (iputils of every year, busybox, inetutils): IPv4 and IPv6, with its errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcadmin import checklib as lib
from hpcadmin.check import Measurement, ParseError, Reading

_HEAD = re.compile(r"PING ([^\s(]{1,255}) ?\((?:[^\s(]{1,255} \()?([^\s()]{1,255})\)\)?:? ?"
                   r"(?:from \S{1,80}(?: [a-z]\S{1,30})? ?: )?(\d{1,6})(?:\((\d{1,6})\))?(?: data)? bytes")
_HEAD6 = re.compile(r"PING6\((\d{1,6})=\d{1,3}\+8\+(\d{1,6}) bytes\) \S{1,255} --> (\S{1,255})")      # BSD, macOS
_STATS = re.compile(r"(\S{1,20}) packets transmitted, (\S{1,20})(?: packets)? received"
                    r"((?:, \+?\d{1,9} (?:duplicates|corrupted|errors)){0,4})"
                    r", (\S{1,20})% packet loss")
_TIMES = re.compile(r"(?:rtt|round-trip)\s+min/avg/max(?:/(?:mdev|stddev|std-dev))? = (\S{1,90}?) ?ms")
_REPLY = re.compile(r"(?:\[[\d.]{1,20}\] )?\d{1,6} bytes from .{0,300}\btime[=<]")
_MTU = re.compile(r"\bmtu ?[=:] ?(\d{2,6})", re.I)
_PATH = re.compile(r"^/\S{0,200}/(?=ping)")
_COUNT = re.compile(r"[+ ](\d{1,9}) (duplicates|corrupted|errors)")
TOO_LONG = ("message too long", "frag needed and df set", "fragmentation needed", "packet too big")
TOO_FAST = ("minimal interval", "cannot flood", "only super-user", "only super user")
UNKNOWN = ("unknown host", "name or service not known", "temporary failure in name resolution", "bad address",
           "no address associated", "name does not resolve")
REFUSED = ("operation not permitted", "permission denied", "missing cap_net_raw", "are you root", "unrecognized option",
           "invalid option", "usage:", "command not found", "no such file")
_SAID = (*TOO_LONG, *UNKNOWN, *REFUSED, "unreachable", "time to live exceeded", "network is down", "no route to host",
         "redirect host", "sendmsg:", "sendto:", "ping: ", "connect: ")


@dataclass
class Ping:
    """One run of ping."""

    address: str = ""
    host: str = ""
    size: int = 0                    # bytes of data
    whole: int = 0                   # bytes of the IP packet
    sent: int | None = None
    received: int | None = None
    duplicates: int = 0
    times_ms: tuple[float, ...] = () # least, average, most (and the deviation)
    said: tuple[str, ...] = ()       # what it complains of, each once
    mtu: int | None = None           # that a router or the own interface told
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def told(self, words: Sequence[str]) -> str:
        """The first complaint with one of these words."""
        return next((line for line in self.said if any(word in line.lower() for word in words)), "")

    @property
    def too_long(self) -> str:
        return self.told(TOO_LONG)

    @property
    def loss(self) -> float | None:
        if not self.sent or self.received is None:
            return None
        return round(100.0 * (self.sent - self.received) / self.sent, 4)


def is_ping(text: str) -> bool:
    return "packets transmitted" in text or re.search(r"(?m)^(?:PING6?[ (]\S|ping6?: )", text) is not None


def parse(text: str) -> Ping:
    """One run. What is wrong with it is in `problems`."""
    lines = lib.lines_of(text)
    found = Ping(said=tuple(dict.fromkeys(lib.shown(_PATH.sub("", line)) for line in lines
                                          if any(word in line.lower() for word in _SAID)
                                          and not _REPLY.match(line)))[:6])
    found.mtu = next((int(m[1]) for m in map(_MTU.search, found.said) if m), None)
    found.problems += [f"the output has an error line: {lib.shown(line)}" for line in lib.fatal_lines(lines, limit=3)]
    try:
        _fill(found, lines)
    except ParseError as exc:
        found.problems.append(str(exc))
        found.sent = found.received = None
    return found


def _fill(found: Ping, lines: Sequence[str]) -> None:
    heads = [m for m in map(_HEAD.match, lines) if m]
    six = [m for m in map(_HEAD6.match, lines) if m]
    ends = [m for m in map(_STATS.search, lines) if m]
    if len(heads) + len(six) > 1 or len(ends) > 1:
        raise ParseError(f"{max(len(heads) + len(six), len(ends))} runs of ping in one text")
    if not heads and not six:
        raise ParseError(found.said[0] if found.said else "no output of ping")
    if six:
        found.host = found.address = lib.shown(six[0][3])
        found.whole, found.size = int(six[0][1]), int(six[0][2])
    else:
        head = heads[0]
        found.host, found.address, found.size = lib.shown(head[1]), lib.shown(head[2]), int(head[3])
        found.whole = int(head[4]) if head[4] else found.size + (48 if ":" in found.address else 28)
    if not ends:
        raise ParseError("no statistics: cut off, or killed")
    end = ends[0]
    sent = lib.integer(end[1], "packets transmitted", least=1)
    received = lib.integer(end[2], "packets received", most=sent)
    percent = lib.finite(end[4], "packet loss", most=100)
    if abs(percent - 100.0 * (sent - received) / sent) >= 1.0:       # cut to whole percents before 2012
        raise ParseError(f"{received} of {sent} packets are not a loss of {percent:g} %")
    found.duplicates = sum(int(count) for count, what in _COUNT.findall(end[3]) if what == "duplicates")
    replies = sum(1 for line in lines if _REPLY.match(line) and "DUP!" not in line)
    if replies and replies not in (received, received + found.duplicates):
        found.doubts.append(f"{replies} replies are shown, {received} are counted")
    if re.search(r"\b[1-9]\d{0,8} corrupted", end[3]):
        found.doubts.append(f"packets came back changed: {lib.shown(end[0])}")
    if found.duplicates:
        found.doubts.append(f"{found.duplicates} packets came back twice")
    found.sent, found.received = sent, received
    times = next((m for m in map(_TIMES.search, lines) if m), None)
    if times:
        values = [lib.finite(word, "a round trip time", most=1e7) for word in times[1].split("/")]
        if len(values) not in (3, 4) or not values[0] <= values[1] <= values[2]:
            raise ParseError(f"the times contradict each other: {lib.shown(times[0])}")
        found.times_ms = tuple(values)
    elif received:
        found.doubts.append("the times are not told: cut off")


def read(text: str) -> Reading:
    """One text of ping by itself."""
    ping = parse(text)
    said = [f"ping says: {line}" for line in ping.said if line not in ping.problems]
    if ping.sent is not None and not ping.received:
        said.append(f"no answer to {ping.sent} packets")
    if ping.sent is not None and ping.said and ping.received == ping.sent:
        said = [] if not ping.too_long else said                  # a redirect, a name: all came back
    return Reading(tuple(measurements(ping)), (*ping.problems, *said, *ping.doubts),
                   usable=bool(ping.received) and not ping.problems,
                   hosts=2 if ping.address else None,
                   notes=tuple(remarks(ping)))


def measurements(ping: Ping, mode: str = "ICMP") -> list[Measurement]:
    def value(name: str, amount: float, unit: str) -> Measurement:
        return Measurement(name, amount, unit, size_bytes=None, mode=mode, key=False)

    if ping.sent is None or ping.received is None or ping.loss is None:
        return []
    found = [value("transmitted", ping.sent, "packets"), value("received", ping.received, "packets"),
             value("loss", ping.loss, "%")]
    return found + [value(name, amount, "ms") for name, amount in
                    zip(("rtt_min", "rtt_avg", "rtt_max", "rtt_mdev"), ping.times_ms, strict=False)]


def remarks(ping: Ping) -> list[str]:
    if ping.sent is None:
        return []
    return [f"{ping.received} of {ping.sent} packets of {ping.whole} bytes came back from {ping.address}"]

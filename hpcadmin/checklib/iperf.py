"""Reads what iperf2 and iperf3 print: text (TCP, UDP, parallel, reverse, both ways), JSON of iperf3, CSV of iperf2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from hpcadmin import checklib as lib
from hpcadmin.check import Direction, Measurement, ParseError, Reading

NO_END = "iperf2 does not say when it is done: whether the text is whole cannot be told"
# What stands in a line of iperf, of the kernel or of a launcher when no result is to be had.
BROKEN = ("iperf3: error", "iperf: error", "error - ", "iperf3: interrupt", "interrupt - ", "connect failed",
          "unable to connect", "write failed", "read failed", "the server is busy", "bind failed",
          "unable to start listener", "did not receive ack of last datagram", "no route to host",
          "connection refused", "connection timed out", "connection reset", "control socket has closed",
          "client has terminated", "server has terminated", "command not found", "unrecognized option",
          "parameter error", "broken pipe", "name or service not known", "bad file descriptor")


@dataclass(frozen=True)
class Rate:
    """What one end counted, all streams together. way: "" or, of a test both ways, "TX-C" or "RX-C"."""

    end: str                     # "sender", "receiver", "client", "server report"
    gbps: float
    seconds: float
    way: str = ""


@dataclass
class Run:
    """One run of iperf as its text tells it. problems: nothing may be taken of it; doubts: the values stand."""

    tool: str
    udp: bool = False
    streams: int = 1
    reverse: bool = False
    pairs: list[tuple[str, str]] = field(default_factory=list)      # (our address, the other's) of each stream
    rates: list[Rate] = field(default_factory=list)
    retransmits: dict[str, int] = field(default_factory=dict)       # by way
    jitter_ms: float | None = None
    lost: int | None = None
    total: int | None = None
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def loopback(self) -> str:
        """The address, where both ends are one host."""
        return next((b for a, b in self.pairs if a == b or is_loopback(b)), "")

    def rate(self, end: str, way: str = "") -> Rate | None:
        return next((r for r in self.rates if r.end == end and r.way == way), None)

    @property
    def loss(self) -> float | None:
        """Percent."""
        return None if self.lost is None or not self.total else round(100.0 * self.lost / self.total, 4)


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address in ("localhost", "localhost.localdomain")


def differ(one: str, other: str) -> bool:
    """Whether both are addresses, and not of one interface."""
    try:
        a, b = (ip_address(text.partition("%")[0]) for text in (one, other))
    except ValueError:
        return False
    return (getattr(a, "ipv4_mapped", None) or a) != (getattr(b, "ipv4_mapped", None) or b)


def address(text: str) -> str:
    """The address of an end of a connection, which is never a name."""
    try:
        ip_address(text.partition("%")[0])
    except ValueError as exc:
        raise ParseError(f"{lib.shown(text)!r} is no address of an end") from exc
    return lib.shown(text)


def is_iperf(text: str) -> bool:
    """Whether a text is of iperf at all."""
    from hpcadmin.checklib import iperf_json, iperf_text  # noqa: PLC0415  (they build on this module)
    return iperf_json.is_json(text) or iperf_text.is_text(text)


def runs_of(text: str) -> list[Run]:
    """Every run in a text, in its order."""
    from hpcadmin.checklib import iperf_json, iperf_text  # noqa: PLC0415  (they build on this module)
    if len(text) > lib.MAX_TEXT:
        return []
    text = lib.strip_terminal(text)
    if iperf_json.is_json(text):
        return iperf_json.runs_of(text)
    return iperf_text.runs_of([line.strip() for line in text.split("\n")])


def read(text: str) -> Reading:
    """One text of iperf by itself."""
    if len(text) > lib.MAX_TEXT:
        return Reading(problems=(f"the text has more than {lib.MAX_TEXT} characters",))
    if not text.strip():
        return Reading(problems=("the text is empty",))
    runs = runs_of(text)
    told = errors_in(lib.lines_of(text))
    if not runs:
        return Reading(problems=tuple(told) or ("no output of iperf",))
    problems = list(dict.fromkeys([*told, *(p for run in runs for p in run.problems)]))
    doubts = [d for run in runs for d in run.doubts]
    if len(runs) > 1:
        problems.append(f"{len(runs)} runs in one text: which is the result is not said")
    found = tuple(m for number, run in enumerate(runs, 1)
                  for m in measurements(run, number if len(runs) > 1 else None))
    ends = {end for run in runs for pair in run.pairs for end in pair}
    addresses = {"loopback" if is_loopback(end) else end for end in ends}
    return Reading(found, (*problems, *doubts), usable=bool(found) and not problems,
                   notes=tuple(dict.fromkeys(n for run in runs for n in run.notes)), hosts=len(addresses) or None,
                   transport=transport(runs[0]), runs=len(runs))


def transport(run: Run) -> str | None:
    if not run.pairs and not run.rates:
        return None
    where = f" over loopback ({run.loopback})" if run.loopback else ""
    if run.udp:
        return f"UDP{where}" if where else None
    return f"TCP{where}"


def errors_in(lines: Sequence[str]) -> list[str]:
    return [f"the output has an error line: {lib.shown(line)}"
            for line in dict.fromkeys(lib.fatal_lines(lines, also=BROKEN, limit=6))
            if not line.lstrip().startswith('"error"')]


def words(run: Run) -> str:
    """"TCP, 5 streams"."""
    return f"{'UDP' if run.udp else 'TCP'}, {run.streams} stream{'s' if run.streams != 1 else ''}"


def measurements(run: Run, number: int | None = None) -> list[Measurement]:
    """All that the run tells, in one unit each; nothing of a run that may not be believed, but what it counted."""
    way = Direction.BOTH if any(r.way for r in run.rates) else Direction.ONE_WAY

    def value(name: str, amount: float, unit: str, mode: str = "") -> Measurement:
        moved = way if unit.endswith("/s") else Direction.NONE
        return Measurement(name, amount, unit, direction=moved, mode=mode, run=number, key=False)

    found = []
    for rate in run.rates:
        if run.udp:
            name = "sent_rate" if rate.end in ("sender", "client") else "received_rate"
            mode = f"UDP, {rate.end}" + (f", {rate.way}" if rate.way else "")
            found.append(value(name, round(rate.gbps * 1000, 6), "Mb/s", mode))
        else:
            end = f"[SUM] {rate.end}" if run.streams > 1 else rate.end
            mode = f"{words(run)}, {end}" + (f", {rate.way}" if rate.way else "")
            found.append(value("bandwidth", round(rate.gbps, 6), "Gb/s", mode))
    for which, count in run.retransmits.items():
        found.append(value("retransmits", count, "segments", f"TCP, {which}" if which else ""))
    if run.jitter_ms is not None:
        found.append(value("jitter", run.jitter_ms, "ms"))
    if run.lost is not None and run.total is not None:
        found += [value("lost_datagrams", run.lost, "datagrams"), value("total_datagrams", run.total, "datagrams")]
    if run.loss is not None:
        found.append(value("loss", run.loss, "%", "UDP"))
    if run.rates:
        found.append(value("duration", max(r.seconds for r in run.rates), "s"))
    return found


def remarks(run: Run) -> list[str]:
    """What is worth saying of every run."""
    found = [f"{run.tool}, {words(run)}" + (", reverse" if run.reverse else "")]
    if run.udp and run.lost is not None and run.total:
        jitter = f", jitter {run.jitter_ms:g} ms" if run.jitter_ms is not None else ""
        found.append(f"{run.lost} of {run.total} datagrams lost{jitter}")
        found.append("the rate of UDP is the one that was asked for, not the speed of the link")
    best = run.rate("receiver") or run.rate("sender") or run.rate("client")
    if best and not run.udp:
        found.append(f"{best.gbps * 1000:g} Mb/s over {run.streams} stream{'s' if run.streams != 1 else ''} in "
                     f"{best.seconds:g} s")
    if run.loopback:
        found.append(f"the other end is {run.loopback}: loopback, no network")
    if run.tool == "iperf2" and not run.udp:
        found.append(NO_END)
    if not run.udp and not run.retransmits:
        found.append("retransmits are not printed")
    return found


def counted(run: Run, lost: int, total: int, percent: float | None, where: str) -> None:
    """Takes a count of lost datagrams where it agrees with itself."""
    if total < 1 or lost > total:
        run.problems.append(f"{where}: {lost} of {total} datagrams lost cannot be")
        return
    exact = 100.0 * lost / total
    # printed with two digits ("%.2g"), so 0.5 % of it at most and 5 % of what is small
    if percent is not None and abs(percent - exact) > 0.0006 + 0.051 * exact:
        run.problems.append(f"{where}: {lost} of {total} datagrams are not {percent:g} %")
        return
    run.lost, run.total = lost, total

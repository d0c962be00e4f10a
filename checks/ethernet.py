"""Path MTU, loss and TCP bandwidth of the Ethernet between two nodes, both ways (ping and iperf3).

The nodes meet at the address of the inventory, or at the name that `hosts` gives ("{name}-data": of another network).

- `path_mtu` (bytes, each way, expected `mtu`): five packets of that size that must not be fragmented (ping -M do).
  Where they do not pass, smaller ones tell what does; "message too long" (somebody says so), a loss without a word (a
  black hole for path MTU discovery: a switch in between without jumbo frames) and a node that answers no ping are told
  apart.
- `loss` (%, each way, at most 0.1): UDP datagrams of 1200 bytes, `udp_mbps` (50) Mb/s for `udp_seconds` (2), some
  10,000: a rate that disturbs nobody. iperf3 counts them, which every user may do; with fewer than 1,000 datagrams
  0.1 % cannot be told, and the best is a warning. Datagrams that the receiving node itself dropped are named.
- `bandwidth` (Gb/s, each way, what arrived): `streams` TCP streams for `seconds`; `retransmits` beside it.

Limits are for the speed that both interfaces name (transport "TCP 25 Gb/s"); a virtual interface has none. iperf3
before 3.16 has one thread for all streams, which cannot fill 100 Gb/s: no limit is applied there ("TCP one thread").
More than a link can carry is an error. Reads also any text of iperf3, iperf2 and ping.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Direction,
    Impact,
    Measurement,
    Output,
    ParseError,
    Reading,
    Ready,
    Role,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import ethernet_run, iperf, ping
from hpcadmin.checklib.ethernet_run import BLOCK, SCRIPT, Side
from hpcadmin.checklib.iperf import Run

ENOUGH = 1000                   # datagrams, to tell a loss of 0.1 %
ONE_THREAD_BELOW = (3, 16)
FAST = 100.0                    # Gb/s: more than one thread of iperf3 can move
MOST_UDP_MBPS = 1000
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]{0,254}\Z")


def steps(context: Context) -> tuple[Step, ...]:
    one, two = (n for n in context.nodes[:2])
    seconds, udp = _seconds(context)
    rate, mtu = context.param_int("udp_mbps", 50), context.param_int("mtu", 9000)
    if not 1 <= rate <= MOST_UDP_MBPS or not 576 <= mtu <= 65535 or not 1 <= context.param_int("streams", 8) <= 128:
        raise ParseError(f"udp_mbps is {rate}, mtu {mtu}, streams {context.param_int('streams', 8)}",
                         hint=f"1 to {MOST_UDP_MBPS}, 576 to 65535, 1 to 128")
    rest = (str(mtu), context.tools["ping"], context.tools["iperf3"], str(context.port_base), str(rate), str(udp),
            str(seconds), str(context.param_int("streams", 8)))
    limit = 2.0 * (seconds + udp + 20) + 50

    def side(role: Role, here: str, peer: str, ready: Ready | None = None) -> Step:
        return Step(argv=("/bin/sh", "-c", SCRIPT, "ethernet", role.value, peer, *rest), role=role, nodes=(here,),
                    ready=ready, timeout_s=limit)

    return (side(Role.SERVER, one.name, _host(context, 1), Ready(port=context.port_base)),
            side(Role.CLIENT, two.name, _host(context, 0)))


def _seconds(context: Context) -> tuple[int, int]:
    if context.simulated:
        return 1, 1
    return max(1, context.param_int("seconds", 3)), max(1, context.param_int("udp_seconds", 2))


def _host(context: Context, place: int) -> str:
    node = context.nodes[place]
    pattern = context.param_str("hosts", "")
    host = pattern.replace("{name}", node.name) if pattern else node.address or node.hostname or node.name
    if not _HOST.match(host):
        raise ParseError(f"{lib.shown(host)!r} is no address", where=node.name)
    return host


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    if len(context.nodes) < len((Role.SERVER, Role.CLIENT)):        # of what somebody has, not of a run of ours
        return _alone(lib.require(outputs, count=1)[0].text)
    if len(outputs) != len((Role.SERVER, Role.CLIENT)):
        raise ParseError(f"{len(outputs)} outputs where 2 must be: the server's and the client's")
    client = _side(lib.require(outputs, count=1, role=Role.CLIENT)[0], context, 1)      # says best what went wrong
    if "tcp" not in client.sections:
        small = client.ping("small")
        raise ParseError(f"{_way(context, 1)}: {_silence(small) if small else 'no ping'}, and iperf3: "
                         f"{_failure(client, 'udp')}")
    server = _side(lib.require(outputs, count=1, role=Role.SERVER)[0], context, 0)
    if server.loopback or client.loopback:
        raise ParseError(f"{context.nodes[0].name} and {context.nodes[1].name} are one host: loopback proves no path")
    ways = [_path(side, context, place) for place, side in enumerate((server, client))]
    found = list(reversed(ways))
    try:
        return found + _loss(server, client, context) + _bandwidth(server, client, context)
    except ParseError as exc:
        bad = [m for m in ways if m.value != m.expected and not isinstance(m.value, str)]
        if not bad:
            silent = all(isinstance(m.value, str) for m in ways)
            raise ParseError(f"{'no ping is answered, and ' if silent else ''}{exc}") from exc
        # What is too long is the finding; that TCP gets stuck is what comes of it.
        return [*found, Measurement("bandwidth", "not measured", "Gb/s", subject=_pair(context), warnings=(str(exc),))]


def _side(output: Output, context: Context, place: int) -> Side:
    lib.no_fatal_lines(lib.lines_of(output.text))
    side = ethernet_run.read_side(output.text)
    node = context.nodes[place]
    if side.role != ("server", "client")[place]:
        raise ParseError(f"the output of the {('server', 'client')[place]} is of the {side.role}")
    told = side.facts["node"]
    if told not in ("-", node.name):
        raise ParseError(f"the {side.role} ran on {lib.shown(told)}, not on {node.name}")
    peer, other = side.facts["peer"], context.nodes[1 - place].address
    if not context.param_str("hosts", "") and iperf.differ(peer, other):
        raise ParseError(f"the {side.role} asked {lib.shown(peer)}, and {context.nodes[1 - place].name} is {other}")
    return side


def _failure(side: Side, name: str) -> str:
    try:
        return side.iperf(name).tool
    except ParseError as exc:
        return str(exc)


def _pair(context: Context) -> Subject:
    return Subject(tuple(n.name for n in context.nodes[:2]))


def _way(context: Context, begin: int) -> str:
    """"n2 to n1"."""
    return f"{context.nodes[begin].name} to {context.nodes[1 - begin].name}"


# --- MTU --------------------------------------------------------------------------------------------------------


def _path(side: Side, context: Context, place: int) -> Measurement:
    """What size of packets gets from this node to the other."""
    mtu, way = context.param_int("mtu", 9000), _way(context, place)
    small, large = side.ping("small"), side.ping("large")
    peer = side.facts["peer"]
    strange = [p.address for p in (small, large) if p and iperf.differ(p.address, peer)]
    if strange:
        raise ParseError(f"{lib.shown(strange[0])} was pinged, not {lib.shown(peer)}", where=way)
    assert small is not None and large is not None  # noqa: S101  (read_side wants both)
    value: int | str = mtu
    why: list[str] = []
    if large.received and large.whole != mtu:
        raise ParseError(f"packets of {large.whole} bytes were sent, {mtu} were asked for", where=way)
    if large.received:
        why = [f"{way}: {large.sent - large.received} of {large.sent} packets of {mtu} bytes were lost"] \
            if large.sent and large.received < large.sent else []
        why += [f"{way}: {doubt}" for doubt in [*small.doubts, *large.doubts]]
    elif not small.received:
        value, why = "unknown", [f"{way}: {_silence(small)}"]
    elif large.told(ping.REFUSED):
        value, why = "unknown", [f"{way}: ping cannot be asked: {large.told(ping.REFUSED)}"]
    else:
        value, why = _shorter(side, large, way, mtu)
    return Measurement("path_mtu", value, "bytes", subject=_pair(context), mode=way, warnings=tuple(why),
                       expected=None if isinstance(value, str) else mtu)


def _silence(small: ping.Ping) -> str:
    if small.sent:
        return f"no answer to {small.sent} small pings" + (f": {small.said[0]}" if small.said else "")
    return f"ping told nothing: {(small.problems or ['no output'])[0]}"


def _shorter(side: Side, large: ping.Ping, way: str, mtu: int) -> tuple[int, list[str]]:
    """What passes where `mtu` does not, and who says so."""
    passing = [p.whole for p in map(side.ping, ("small", "of1280", "of1500", "of4200")) if p and p.received]
    best = max(passing, default=0)
    own = side.number("mtu")
    if large.problems and not large.too_long:
        raise ParseError(f"ping told nothing of packets of {mtu} bytes: {large.problems[0]}", where=way)
    if large.too_long:
        said = f"{way}: {large.too_long}"
        here = f"{side.interface} has an MTU of {own}" if own and own < mtu else "a router or tunnel on the way"
        return min(large.mtu or best, mtu - 1), [f"{said} ({here})"]
    return best, [f"{way}: packets of {mtu} bytes are lost without a word, those of {best} pass: something on the way "
                  "has a smaller MTU and does not say so (a black hole for path MTU discovery)"]


# --- loss and bandwidth -----------------------------------------------------------------------------------------


def _loss(server: Side, client: Side, context: Context) -> list[Measurement]:
    found = []
    for name, begin, receiver in (("udp", 1, server), ("udp_back", 0, client)):
        run = _checked(client, name, context, begin, udp=True)
        assert run.total is not None and run.lost is not None and run.loss is not None  # noqa: S101
        loss, said = _on_the_way(run, receiver, context.nodes[1 - begin].name)
        base = Measurement("loss", loss, "%", subject=_pair(context), pairs_at_once=context.pairs_at_once,
                           mode=f"UDP, {_way(context, begin)}", warnings=(*_few(run), *said, *run.doubts))
        side = replace(base, key=False, warnings=())
        found += [base, replace(side, name="total_datagrams", value=run.total, unit="datagrams"),
                  replace(side, name="jitter", value=run.jitter_ms or 0.0, unit="ms")]
    return found


def _on_the_way(run: Run, receiver: Side, name: str) -> tuple[float, list[str]]:
    """Percent of the datagrams that the path lost at least: those that came and were not read in time are the
    receiver's. Others may have been among these, so that the value then never passes without a warning."""
    assert run.total is not None and run.lost is not None and run.loss is not None  # noqa: S101  (_loss wants them)
    if not run.lost or not receiver.overflowed:
        return run.loss, []
    sure = max(0, run.lost - receiver.overflowed)
    said = (f"{run.lost} of {run.total} datagrams lost ({run.loss:.2g} %), but {receiver.overflowed} came to {name}, "
            "which did not read them in time: too busy to tell the loss on the way")
    return round(100 * sure / run.total, 4) if run.total else run.loss, [said]


def _few(run: Run) -> list[str]:
    few = (run.total or 0) < ENOUGH
    return [f"only {run.total} datagrams were sent: too few to tell a loss of 0.1 %"] if few else []


def _bandwidth(server: Side, client: Side, context: Context) -> list[Measurement]:
    found = []
    speed = min((s.speed_gbps for s in (server, client) if s.speed_gbps), default=None) \
        if server.speed_gbps and client.speed_gbps else None
    for name, begin in (("tcp", 1), ("tcp_back", 0)):
        run = _checked(client, name, context, begin, udp=False)
        rate = run.rate("receiver")
        assert rate is not None  # noqa: S101  (_checked wants it)
        way = _way(context, begin)
        if speed and rate.gbps > 1.02 * speed:
            raise ParseError(f"{rate.gbps:g} Gb/s cannot come over a link of {speed:g} Gb/s", where=way)
        base = Measurement("bandwidth", round(rate.gbps, 4), "Gb/s", BLOCK, Direction.ONE_WAY, _pair(context), nodes=2,
                           pairs_at_once=context.pairs_at_once, mode=f"{iperf.words(run)}, {way}",
                           transport=_transport(run, speed), warnings=tuple(run.doubts))
        found.append(base)
        if "" in run.retransmits:
            found.append(replace(base, name="retransmits", value=run.retransmits[""], unit="segments", size_bytes=None,
                                 direction=Direction.NONE, key=False, warnings=()))
    found.append(Measurement("iperf3", run.tool, subject=_pair(context), key=False))
    for side, node in ((server, context.nodes[0]), (client, context.nodes[1])):
        at = Subject((node.name,), side.interface)
        for name, value, unit in (("interface_mtu", side.number("mtu"), "bytes"),
                                  ("interface_speed", side.speed_gbps, "Gb/s")):
            found += [Measurement(name, value, unit, subject=at, key=False)] if value else []
    return found


def _checked(client: Side, name: str, context: Context, begin: int, *, udp: bool) -> Run:
    """The run, if it is the one that was asked for."""
    run, peer = client.iperf(name), client.facts["peer"]
    streams = 1 if udp else context.param_int("streams", 8)
    if (run.udp, run.reverse, run.streams) != (udp, begin == 0, streams):
        way = ", reverse" if run.reverse else ""
        raise ParseError(f"{name}: iperf3 ran {iperf.words(run)}{way}, which is not what was asked")
    strange = [other for _, other in run.pairs if iperf.differ(other, peer)]
    if strange:
        raise ParseError(f"{name}: the other end is {strange[0]}, not {lib.shown(peer)}")
    if run.loopback:
        raise ParseError(f"{name}: the other end is {run.loopback}: loopback proves no path")
    rate = run.rate("receiver")
    if rate is None and udp:
        raise ParseError(f"{name}: none of the datagrams arrived: is UDP let through?")
    if rate is None or (udp and run.loss is None):
        raise ParseError(f"{name}: what the receiver got is not told")
    least = 0.9 * _seconds(context)[1 if udp else 0]
    if rate.seconds < least:
        raise ParseError(f"{name}: it ran for {rate.seconds:g} s, which is not what was asked")
    return run


def _transport(run: Run, speed: float | None) -> str:
    if not speed:
        return "TCP"
    version = re.search(r"(\d{1,3})\.(\d{1,3})", run.tool)
    old = version is None or (int(version[1]), int(version[2])) < ONE_THREAD_BELOW
    return f"TCP one thread {speed:g} Gb/s" if old and speed >= FAST else f"TCP {speed:g} Gb/s"


# --- any text ---------------------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Reading:
    if "# hpcadmin ethernet 1" in text:
        return _own(text)
    if not ping.is_ping(text):
        return iperf.read(text)
    if iperf.is_iperf(text):
        return Reading(problems=("texts of ping and of iperf in one: give them one by one",))
    return ping.read(text)


def _own(text: str) -> Reading:
    """One end of a run of ours says little without the other."""
    try:
        lib.no_fatal_lines(lib.lines_of(text))
        side = ethernet_run.read_side(text)
        runs = [side.iperf(name) for name in ethernet_run.IPERFS if side.role == "client"]
    except ParseError as exc:
        return Reading(problems=(str(exc),))
    said = tuple(line for p in map(side.ping, ("small", "large")) if p for line in (*p.problems, *p.said))
    return Reading(tuple(m for n, run in enumerate(runs, 1) for m in iperf.measurements(run, n)), said, usable=True,
                   notes=tuple(n for run in runs for n in run.notes), hosts=2, transport="TCP" if runs else None)


def _alone(text: str) -> list[Measurement]:
    """An output without its run: what is judged of it is what arrived, and how much was lost."""
    if "# hpcadmin ethernet 1" in text:
        raise ParseError("the output of one end says nothing without the other's")
    reading = read(text, Context())
    if not reading.usable:
        raise ParseError("; ".join(reading.problems[:2]) or "nothing was measured")
    said = list(reading.problems)
    said += ["loopback: no network was measured"] if "loopback" in (reading.transport or "") else []
    said += [note for note in reading.notes if note == iperf.NO_END]
    sent = next((m.value for m in reading.measurements if m.name in ("total_datagrams", "transmitted")), None)
    if isinstance(sent, (int, float)) and sent < ENOUGH:
        said.append(f"only {sent} packets were sent: too few to tell a loss of 0.1 %")
    arrived = [m for m in reading.measurements if m.name == "bandwidth" and "receiver" in m.mode] or [
        m for m in reading.measurements if m.name == "bandwidth"]
    judged = {id(m) for m in [*arrived, *(m for m in reading.measurements if m.name == "loss")]}
    found = [replace(m, key=True, warnings=tuple(said)) if id(m) in judged else m for m in reading.measurements]
    if not judged:
        raise ParseError("nothing that could be judged: neither a bandwidth nor a loss")
    return found


CHECK = Check(
    name="ethernet", title="Ethernet between two nodes: MTU, loss, TCP bandwidth", scope=Scope.PAIR, impact=Impact.LOAD,
    needs=("iperf3", "ping"), probe=("iperf3", "--version"),
    params={"mtu": 9000, "hosts": "", "seconds": 3, "streams": 8, "udp_seconds": 2, "udp_mbps": 50},
    steps=steps, parse=parse, read=read, seconds=14.0, doc=__doc__ or "",
)

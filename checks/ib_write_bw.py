"""RDMA write bandwidth between two nodes (perftest's ib_write_bw, a server on one and a client on the other).

Uses the device that `device` names, else each node's first, and for RoCE the GID that `gid_index` gives. Both sides
must end well, agree on the value and name the device that was asked for; two ends on one port (loopback) are refused.

Measured: `bandwidth` (Gb/s, one way, average over `seconds`), with the device as rail and the link as transport.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Direction,
    Impact,
    Measurement,
    Output,
    ParseError,
    Ready,
    Role,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import perftest

SIMULATED_SECONDS = 1


def _device(context: Context, place: int) -> str:
    asked = context.param_str("device", "")
    known = context.nodes[place].rdma_devices if place < len(context.nodes) else ()
    return asked or (known[0] if known else "")


def _gid(context: Context, place: int) -> str:
    """GID index of the server (0) or the client (1): "3" is for both, "1,2" one each."""
    given = [word.strip() for word in context.param_str("gid_index", "").split(",")]
    return given[min(place, len(given) - 1)]


def steps(context: Context) -> tuple[Step, ...]:
    server, client = context.nodes[:2]
    seconds = SIMULATED_SECONDS if context.simulated else context.param_int("seconds", 5)

    def argv(place: int) -> tuple[str, ...]:
        device, gid = _device(context, place), _gid(context, place)
        chosen = (*(("-d", device) if device else ()), *(("-x", gid) if gid else ()))
        return (context.tools["ib_write_bw"], *chosen, "-s", str(context.param_int("size", 65536)),
                "-D", str(seconds), "-F", "--report_gbits", "-p", str(context.port_base))

    limit = seconds + 45.0
    ready = Ready(port=context.port_base)
    return (
        Step(argv=argv(0), role=Role.SERVER, nodes=(server.name,), ready=ready, timeout_s=limit),
        Step(argv=(*argv(1), server.address or server.hostname or server.name), role=Role.CLIENT, nodes=(client.name,),
             timeout_s=limit),
    )


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    pair = Subject(tuple(n.name for n in context.nodes))
    if context.nodes:
        texts = [lib.require(outputs, count=1, role=role)[0].text for role in (Role.SERVER, Role.CLIENT)]
        client = perftest.read(texts[1], "RDMA_Write")      # first: it says best what went wrong
        server = perftest.read(texts[0], "RDMA_Write")
        _agree(server, client, context)
    else:
        client = perftest.read(lib.require(outputs, count=1)[0].text, "RDMA_Write")
    if len(client.ports) < 2:
        raise ParseError(f"both ends are one port ({', '.join(client.ports)}): a loopback proves no path")
    way = Direction.BOTH if client.both_ways else Direction.ONE_WAY
    transport = f"{'RoCE' if client.link == 'Ethernet' else client.link} {client.connection}"
    return [Measurement("bandwidth", round(client.gbps, 4), "Gb/s", client.size, way, pair, ranks=2,
                        nodes=len(context.nodes) or None, pairs_at_once=context.pairs_at_once, rail=client.device,
                        transport=transport)]


def _agree(server: perftest.Side, client: perftest.Side, context: Context) -> None:
    for place, side in enumerate((server, client)):
        asked = _device(context, place)
        if asked and side.device != asked:
            raise ParseError(f"{context.nodes[place].name} used {side.device}, not {asked}")
    size = context.param_int("size", 65536)
    if (server.size, client.size) != (size, size):
        raise ParseError(f"messages of {server.size} and {client.size} bytes, {size} were asked for")
    if server.both_ways != client.both_ways:
        raise ParseError("one side counted both directions, the other one")
    if abs(server.gbps - client.gbps) > 0.02 * client.gbps:
        raise ParseError(f"the server says {server.gbps:g} Gb/s, the client {client.gbps:g} Gb/s")
    if (server.local, server.remote) != (client.remote, client.local):
        raise ParseError("the two sides do not name each other: they are of different runs")


CHECK = Check(
    name="ib_write_bw", title="RDMA write bandwidth between two nodes", scope=Scope.PAIR, impact=Impact.LOAD,
    needs=("rdma", "ib_write_bw"), probe=("ib_write_bw", "--version"),
    params={"size": 65536, "seconds": 5, "device": "", "gid_index": ""}, steps=steps, parse=parse, seconds=8.0,
    doc=__doc__ or "",
)

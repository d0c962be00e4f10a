"""Runs a program of perftest from one port to another, and takes both sides' outputs for one measurement.

The ports are those of the plan's layout (a rail, each port, a loopback), else `device` of the suite, else each node's
first port that is up. Both sides are bound to the NUMA node of their port with numactl, where the nodes have it. On
RoCE the GID is `gid_index`, else the one that the inventory knows as of version 2 with an IPv4 address, else the one
that perftest takes by itself (5 and later look for just that). `gpu`: "near" for memory of the GPU at the port, or
"cuda:0", "rocm:1". That GPUDirect was used is proven by the program's own words about its buffer; without them nothing
is measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Direction,
    Impact,
    Layout,
    Measurement,
    NodeView,
    Output,
    Params,
    ParseError,
    PortView,
    Reading,
    Ready,
    Role,
    Scope,
    Step,
)
from hpcadmin.checklib import perftest
from hpcadmin.checklib.perftest import Examined, Found, Kind
from hpcadmin.checklib.perftest_rows import Row

SIMULATED_SECONDS = 1
LAYOUTS = (Layout.PAIRS, Layout.NODE, Layout.PORTS, Layout.LOOPBACK, Layout.RAILS)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
_GPU_TAKEN = re.compile(r"(?:Picking device No\. ?|, dev = )(\d{1,4})\b|Using ROCm Device with ID: ?(\d{1,4})\b")


def check(program: str, title: str, doc: str, seconds: float = 8.0) -> Check:
    """The check of one program."""
    test = _Test(perftest.kind_of(program))
    params: Params = {"size": test.default_size, "device": "", "gid_index": "", "ib_port": 1, "qps": 1, "gpu": "",
                      **({"iterations": 5000} if test.kind.latency else {"seconds": 5})}
    if test.atomic:
        params = {name: value for name, value in params.items() if name != "size"}
    return Check(
        name=program, title=title, scope=Scope.PAIR, impact=Impact.LOAD, needs=("rdma", program),
        probe=(program, "--version"), params=params, steps=test.steps, parse=test.parse, read=test.read,
        seconds=seconds, doc=doc, layouts=LAYOUTS, uses=("numactl",))


def _one_each(context: Context, param: str, place: int) -> str:
    """What a parameter gives for the server (0) or the client (1): "3" is for both, "1,2" one each."""
    given = [word.strip() for word in context.param_str(param, "").split(",")]
    return given[min(place, len(given) - 1)]


def _node(context: Context, place: int) -> NodeView:
    """Of the server (0) or the client (1): in a loopback they are on one node."""
    return context.nodes[min(place, len(context.nodes) - 1)] if context.nodes else NodeView("")


def _port(context: Context, place: int) -> PortView:
    """The port of one side; its device is "" where the program takes the first that it finds."""
    if context.ports:
        return context.ports[min(place, len(context.ports) - 1)]
    node, device, number = _node(context, place), _one_each(context, "device", place), context.param_int("ib_port", 1)
    if device:
        return next((p for p in node.ports if (p.device, p.port) == (device, number)), PortView(device, number))
    usable = sorted((p for p in node.ports if p.up), key=lambda p: (p.rail is None, p.rail or 0))
    first = PortView(node.rdma_devices[0] if node.rdma_devices else "", number)
    return next((p for p in usable if number in (1, p.port)), first)


def _gpu(context: Context, place: int) -> tuple[str, int] | None:
    """("cuda", 3) where memory of a GPU is asked for."""
    asked = context.param_str("gpu", "")
    if not asked:
        return None
    if asked != "near":
        maker, _, number = _one_each(context, "gpu", place).partition(":")
        return maker, int(number) if number.isdecimal() else 0
    node, port = _node(context, place), _port(context, place)
    if port.gpu is None:
        raise ParseError(f"which GPU of {node.name} is near {port.name} is not known")
    return "rocm" if re.search(r"AMD|Instinct|\bMI\d", node.gpu_model) else "cuda", port.gpu


def _numa(context: Context, place: int) -> tuple[str, ...]:
    """What binds one side to the NUMA node of its port; the places of simulated devices are not those of the host."""
    port, tool = _port(context, place), context.tools.get("numactl", "")
    if not tool or port.numa is None or _node(context, place).simulated:
        return ()
    return (tool, f"--cpunodebind={port.numa}", f"--membind={port.numa}")


def _bound(context: Context) -> str:
    """"NUMA node 1", as both sides were started."""
    sides = [_port(context, place).numa for place in (0, 1) if _numa(context, place)]
    return f"NUMA node {' and '.join(dict.fromkeys(map(str, sides)))}" if len(sides) == 2 else ""


def _version(context: Context) -> tuple[int, int]:
    """Of the tool, as it says it ("Version: 6.06"); a new one where it said nothing."""
    found = _VERSION.search(context.tool_version)
    return (int(found[1]), int(found[2])) if found else (6, 0)


@dataclass(frozen=True)
class _Test:
    kind: Kind

    @property
    def atomic(self) -> bool:
        return self.kind.verbs[0] == "Atomic"

    @property
    def default_size(self) -> int:
        return 8 if self.atomic else 2 if self.kind.latency else 65536

    @property
    def silent_server(self) -> bool:
        """The server of a read has no part in it, and prints no table of times."""
        return self.kind.latency and self.kind.verbs[0] in ("RDMA_Read", "Atomic")

    def size(self, context: Context) -> int:
        return self.default_size if self.atomic else context.param_int("size", self.default_size)

    def seconds(self, context: Context) -> int:
        return SIMULATED_SECONDS if context.simulated else context.param_int("seconds", 5)

    def steps(self, context: Context) -> tuple[Step, ...]:
        server, client = _node(context, 0), _node(context, 1)
        limit = self.seconds(context) + 45.0
        gpus = [(node.gpus or 0) if context.param_str("gpu", "") else 0 for node in (server, client)]
        return (
            Step(argv=self.argv(context, 0), role=Role.SERVER, nodes=(server.name,), timeout_s=limit,
                 ready=Ready(port=context.port_base), under=_numa(context, 0), gpus_per_task=gpus[0]),
            Step(argv=(*self.argv(context, 1), server.address or server.hostname or server.name), role=Role.CLIENT,
                 nodes=(client.name,), timeout_s=limit, under=_numa(context, 1), gpus_per_task=gpus[1]))

    def argv(self, context: Context, place: int) -> tuple[str, ...]:
        """The command of one side, with the options that this version has."""
        port, gpu, qps = _port(context, place), _gpu(context, place), context.param_int("qps", 1)
        gid = _one_each(context, "gid_index", place) or ("" if port.gid_index is None else str(port.gid_index))
        words = [context.tools[self.kind.program], *(("-d", port.device) if port.device else ()),
                 *(("-x", gid) if gid else ()), *(("-i", str(port.port)) if port.port != 1 else ()),
                 *(() if self.atomic else ("-s", str(self.size(context))))]
        if self.kind.latency:
            words += ["-n", str(context.param_int("iterations", 5000)), "-F"]
        else:
            words += [*(("-q", str(qps)) if qps != 1 else ()), "-D", str(self.seconds(context)), "-F"]
            words += ["--report_gbits"] if _version(context) >= (2, 0) else []
        if gpu:                                         # older ones take the first GPU
            words.append(f"--use_{gpu[0]}={gpu[1]}" if _version(context) >= (5, 90) else f"--use_{gpu[0]}")
        return (*words, "-p", str(context.port_base))

    def read(self, text: str, context: Context) -> Reading:
        return perftest.read(text, self.kind)

    def parse(self, outputs: Sequence[Output], context: Context) -> list[Measurement]:
        if not context.nodes:
            return self._alone(lib.require(outputs, count=1)[0].text, context)
        hung = {o.role for o in outputs if o.exit_status is None}      # says less than the side that ended badly
        told = {role: lib.require(outputs, count=1, role=role)[0].text
                for role in sorted((Role.SERVER, Role.CLIENT), key=lambda role: role in hung)}
        texts = [told[Role.SERVER], told[Role.CLIENT]]
        client = self._side(texts[1])      # first: it says best what went wrong
        server = self._side(texts[0], server=True)
        self._agree(server, client, context)
        for place, text in enumerate(texts):
            _right_gpu(text, context, place)
        if client.run.hosts() == 1 and context.layout is not Layout.LOOPBACK:
            ports = ", ".join(sorted(client.run.main.ports("local")))
            raise ParseError(f"both ends are one port ({ports}): a loopback proves no path")
        notes = [n for n in client.notes if context.layout is not Layout.LOOPBACK or not n.startswith("loopback")]
        warnings = _warnings(client.problems, notes)
        return self._values(client, client.rows[0], context, warnings)

    def _alone(self, text: str, context: Context) -> list[Measurement]:
        """An output without its run: sound, or with what is wrong with it as warnings."""
        examined = perftest.examine(text, self.kind)
        reading = examined.reading
        _refuse(examined, [])
        if not examined.found:
            return [replace(m, key=True, warnings=reading.problems) for m in reading.measurements]
        found: list[Measurement] = []
        for number, one in enumerate(examined.found, 1):
            if not one.rows:
                raise ParseError(f"run {number} has no values")
            size = self.size(context)
            key = next((row for row in one.rows if row.size == size), one.rows[-1])
            warnings = _warnings(examined.problems, [*one.notes, *reading.notes])
            found += [replace(m, run=number if len(examined.found) > 1 else None)
                      for m in self._values(one, key, context, warnings)]
        return found

    def _side(self, text: str, *, server: bool = False) -> Found:
        """The one run in one side's output, with all of its head."""
        examined = perftest.examine(text, self.kind)
        bare = server and self.silent_server
        if not bare or any(not p.cut for p in examined.problems) or not examined.found:
            _refuse(examined, [p for p in examined.problems if p.cut or p.head])
        if len(examined.found) != 1 or examined.found[0].run.both or not examined.found[0].run.main.ends:
            raise ParseError(f"not one output of the {self.kind.words}: both sides or several runs in one text")
        found = examined.found[0]
        if len(found.rows) != 1 and not (bare and not found.run.main.heads and found.run.main.rules):
            raise ParseError(f"{len(found.rows)} rows in the table, exactly one must be")
        found.problems = list(examined.problems)
        found.notes += examined.reading.notes
        return found

    def _agree(self, server: Found, client: Found, context: Context) -> None:
        for place, side in enumerate((server, client)):
            node, port, used = _node(context, place).name, _port(context, place), side.run.main.told("Device")
            if port.device and used != port.device:
                raise ParseError(f"{node} used {used}, not {port.device}")
            link, told = {"InfiniBand": "IB"}.get(port.link_layer, port.link_layer), side.run.main.told("Link type")
            if link and told not in ("", link):
                raise ParseError(f"{port.device} of {node} is {told}, the inventory has it as {port.link_layer}")
            if context.param_str("gpu", "") and not side.binding:
                raise ParseError(f"GPU memory was asked for, and {node} does not say that it used any: "
                                 "GPUDirect is not proven")
        size, sizes = self.size(context), [row.size for side in (server, client) for row in side.rows]
        if set(sizes) != {size}:
            raise ParseError(f"messages of {' and '.join(map(str, sizes))} bytes, {size} were asked for")
        if server.both_ways != client.both_ways:
            raise ParseError("one side counted both directions, the other one")
        near = 0.1 if self.kind.verbs[0] == "Send" else 0.02       # each side of a send takes its own time
        for a, b in zip(server.rows, client.rows, strict=False):
            if a.gbps and b.gbps and abs(a.gbps - b.gbps) > near * b.gbps:
                raise ParseError(f"the server says {a.gbps:g} Gb/s, the client {b.gbps:g} Gb/s")
        one, two = server.run.main, client.run.main
        if (one.names("local"), one.names("remote")) != (two.names("remote"), two.names("local")):
            raise ParseError("the two sides do not name each other: they are of different runs")

    def _values(self, found: Found, key: Row, context: Context, warnings: tuple[str, ...]) -> list[Measurement]:
        """The value that is judged, and all that the table tells beside it."""
        main = found.run.main
        way = Direction.NONE if self.kind.latency or not main.titles else (
            Direction.BOTH if found.both_ways else Direction.ONE_WAY)
        link = {"IB": "InfiniBand", "Ethernet": "RoCE"}.get(main.told("Link type"), main.told("Link type"))
        transport = (perftest.transport_of(main) or "").split(" ")[0]
        link = link if transport in ("", "IB", "RoCE") else transport
        told = partial(
            Measurement, direction=way, subject=context.subject, ranks=2, nodes=len(context.nodes) or None,
            pairs_at_once=context.pairs_at_once, rail=lib.shown(main.told("Device")),
            binding=", ".join(filter(None, (_bound(context), found.binding))),
            transport=lib.shown(f"{link} {main.told('Connection type')}".strip()))
        judged = []
        if self.kind.latency:
            typical = key.value("t_typical") or key.value("t_avg")
            name = "t_typical" if key.value("t_typical") else "t_avg"
            if typical is None:
                raise ParseError("the table has no typical and no average time")
            judged = [told(name, typical, "us", key.size, warnings=warnings)]
        elif key.gbps is None:
            raise ParseError(f"the average at {key.size} bytes is rounded off: nothing can be told from it")
        else:
            judged = [told("bandwidth", round(key.gbps, 4), "Gb/s", key.size, warnings=warnings)]
        rest = [told(m.name, m.value, m.unit, m.size_bytes, mode=m.mode, key=False)
                for row in found.rows for m in row.printed(found.mode, None, latency=self.kind.latency)
                if not (row is key and m.name == judged[0].name)]
        return judged + rest


def _right_gpu(text: str, context: Context, place: int) -> None:
    """The buffer lies in the GPU that was asked for, where the program says in which: older ones take the first."""
    asked = _gpu(context, place)
    taken = [int(m[1] or m[2]) for m in _GPU_TAKEN.finditer(text)] if asked else []
    if asked and taken and asked[1] not in taken and _version(context) >= (5, 90):
        raise ParseError(f"{_node(context, place).name} used memory of GPU {taken[0]}, not of GPU {asked[1]}")


def _refuse(examined: Examined, also: Sequence[perftest.Problem]) -> None:
    """Nothing is taken of a text whose values may not stand, and nothing of one with these problems."""
    reading = examined.reading
    if also or (reading.problems and not reading.usable):
        worst = [p.text for p in examined.problems if not p.usable or p in also] or list(reading.problems)
        raise ParseError("; ".join(worst[:2]))


def _warnings(problems: Sequence[perftest.Problem], notes: Sequence[str]) -> tuple[str, ...]:
    told = [note for note in notes if "CPU Frequency is not max" in note or note.startswith("loopback")]
    return tuple(dict.fromkeys([*(p.text for p in problems), *told[:2]]))

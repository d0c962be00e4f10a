"""Runs a program of perftest between two nodes, and takes both sides' outputs for one measurement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Direction,
    Impact,
    Measurement,
    Output,
    Params,
    ParseError,
    Reading,
    Ready,
    Role,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import perftest
from hpcadmin.checklib.perftest import Examined, Found, Kind
from hpcadmin.checklib.perftest_rows import Row

SIMULATED_SECONDS = 1
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


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
        seconds=seconds, doc=doc)


def _one_each(context: Context, param: str, place: int) -> str:
    """What a parameter gives for the server (0) or the client (1): "3" is for both, "1,2" one each."""
    given = [word.strip() for word in context.param_str(param, "").split(",")]
    return given[min(place, len(given) - 1)]


def _device(context: Context, place: int) -> str:
    known = context.nodes[place].rdma_devices if place < len(context.nodes) else ()
    return _one_each(context, "device", place) or (known[0] if known else "")


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
        server, client = context.nodes[:2]
        limit = self.seconds(context) + 45.0
        return (
            Step(argv=self.argv(context, 0), role=Role.SERVER, nodes=(server.name,), timeout_s=limit,
                 ready=Ready(port=context.port_base)),
            Step(argv=(*self.argv(context, 1), server.address or server.hostname or server.name), role=Role.CLIENT,
                 nodes=(client.name,), timeout_s=limit))

    def argv(self, context: Context, place: int) -> tuple[str, ...]:
        """The command of one side, with the options that this version has."""
        device, gid, gpu = _device(context, place), _one_each(context, "gid_index", place), context.param_str("gpu", "")
        port, qps = context.param_int("ib_port", 1), context.param_int("qps", 1)
        words = [context.tools[self.kind.program], *(("-d", device) if device else ()), *(("-x", gid) if gid else ()),
                 *(("-i", str(port)) if port != 1 else ()), *(() if self.atomic else ("-s", str(self.size(context))))]
        if self.kind.latency:
            words += ["-n", str(context.param_int("iterations", 5000)), "-F"]
        else:
            words += [*(("-q", str(qps)) if qps != 1 else ()), "-D", str(self.seconds(context)), "-F"]
            words += ["--report_gbits"] if _version(context) >= (2, 0) else []
        if gpu:
            maker, _, number = gpu.partition(":")      # "cuda:0", "rocm:1"; older ones take the first GPU
            words.append(f"--use_{maker}={number or 0}" if _version(context) >= (5, 90) else f"--use_{maker}")
        return (*words, "-p", str(context.port_base))

    def read(self, text: str, context: Context) -> Reading:
        return perftest.read(text, self.kind)

    def parse(self, outputs: Sequence[Output], context: Context) -> list[Measurement]:
        if not context.nodes:
            return self._alone(lib.require(outputs, count=1)[0].text, context)
        texts = [lib.require(outputs, count=1, role=role)[0].text for role in (Role.SERVER, Role.CLIENT)]
        client = self._side(texts[1])      # first: it says best what went wrong
        server = self._side(texts[0], server=True)
        self._agree(server, client, context)
        if client.run.hosts() == 1:
            ports = ", ".join(sorted(client.run.main.ports("local")))
            raise ParseError(f"both ends are one port ({ports}): a loopback proves no path")
        warnings = _warnings(client.problems, client.notes)
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
            asked, used = _device(context, place), side.run.main.told("Device")
            if asked and used != asked:
                raise ParseError(f"{context.nodes[place].name} used {used}, not {asked}")
            if context.param_str("gpu", "") and not side.binding:
                raise ParseError(f"GPU memory was asked for, and {context.nodes[place].name} does not say that it "
                                 "used any")
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
        base = Measurement(
            "", 0, direction=way, subject=Subject(tuple(n.name for n in context.nodes)), ranks=2,
            nodes=len(context.nodes) or None, pairs_at_once=context.pairs_at_once, rail=lib.shown(main.told("Device")),
            binding=found.binding, transport=lib.shown(f"{link} {main.told('Connection type')}".strip()),
            warnings=warnings)
        judged = []
        if self.kind.latency:
            typical = key.value("t_typical") or key.value("t_avg")
            name = "t_typical" if key.value("t_typical") else "t_avg"
            if typical is None:
                raise ParseError("the table has no typical and no average time")
            judged = [replace(base, name=name, value=typical, unit="us", size_bytes=key.size)]
        elif key.gbps is None:
            raise ParseError(f"the average at {key.size} bytes is rounded off: nothing can be told from it")
        else:
            judged = [replace(base, name="bandwidth", value=round(key.gbps, 4), unit="Gb/s", size_bytes=key.size)]
        rest = [replace(base, name=m.name, value=m.value, unit=m.unit, size_bytes=m.size_bytes, mode=m.mode, key=False,
                        warnings=())
                for row in found.rows for m in row.printed(found.mode, None, latency=self.kind.latency)
                if not (row is key and m.name == judged[0].name)]
        return judged + rest


def _refuse(examined: Examined, also: Sequence[perftest.Problem]) -> None:
    """Nothing is taken of a text whose values may not stand, and nothing of one with these problems."""
    reading = examined.reading
    if also or (reading.problems and not reading.usable):
        worst = [p.text for p in examined.problems if not p.usable or p in also] or list(reading.problems)
        raise ParseError("; ".join(worst[:2]))


def _warnings(problems: Sequence[perftest.Problem], notes: Sequence[str]) -> tuple[str, ...]:
    told = [note for note in notes if "CPU Frequency is not max" in note or note.startswith("loopback")]
    return tuple(dict.fromkeys([*(p.text for p in problems), *told[:2]]))

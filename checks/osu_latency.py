"""MPI latency between two nodes (osu_latency of the OSU micro-benchmarks, versions 5 to 7).

Run without options: versions differ in them, and what a version does not know ends it. Default sizes up to 4 MiB.

Measured: `latency` (us, one way), the key value at 8 bytes, other sizes as a curve.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, Measurement, Output, Role, Scope, Step, Subject
from hpcadmin.checklib import osu

KEY_BYTES = 8


def steps(context: Context) -> tuple[Step, ...]:
    return (Step(argv=(context.tools["osu_latency"],), role=Role.RANKS, tasks_per_node=1, timeout_s=300.0),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    table = osu.read(lib.require(outputs, count=1)[0].text, "Latency")
    pair = Subject(tuple(n.name for n in context.nodes))
    return [
        Measurement("latency", value, table.unit, size, subject=pair, ranks=2, nodes=len(context.nodes) or None,
                    pairs_at_once=context.pairs_at_once, binding=table.buffers, key=size == KEY_BYTES,
                    warnings=table.warnings)
        for size, value in table.rows
    ]


CHECK = Check(
    name="osu_latency", title="MPI latency between two nodes (OSU)", scope=Scope.PAIR, needs=("osu_latency",),
    steps=steps, parse=parse, seconds=8.0, doc=__doc__ or "",
)

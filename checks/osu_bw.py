"""MPI bandwidth between two nodes, one way (osu_bw of the OSU micro-benchmarks, versions 5 to 7).

Run without options: versions differ in them, and what a version does not know ends it. Default sizes up to 4 MiB.

Measured: `bandwidth` (MB/s, 1e6 bytes a second), the key value at 4 MiB, other sizes as a curve.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, Direction, Impact, Measurement, Output, Role, Scope, Step, Subject
from hpcadmin.checklib import osu


def steps(context: Context) -> tuple[Step, ...]:
    return (Step(argv=(context.tools["osu_bw"],), role=Role.RANKS, tasks_per_node=1, timeout_s=300.0),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    table = osu.read(lib.require(outputs, count=1)[0].text, "Bandwidth")
    pair = Subject(tuple(n.name for n in context.nodes))
    return [
        Measurement("bandwidth", value, table.unit, size, Direction.ONE_WAY, pair, ranks=2,
                    nodes=len(context.nodes) or None, pairs_at_once=context.pairs_at_once, binding=table.buffers,
                    key=size == osu.LARGEST, warnings=table.warnings)
        for size, value in table.rows
    ]


CHECK = Check(
    name="osu_bw", title="MPI bandwidth between two nodes (OSU)", scope=Scope.PAIR, impact=Impact.LOAD,
    needs=("osu_bw",), steps=steps, parse=parse, seconds=8.0, doc=__doc__ or "",
)

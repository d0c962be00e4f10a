"""MPI latency of many pairs of ranks at once, between two nodes (osu_multi_lat of the OSU micro-benchmarks, versions 3
to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `latency` (us, one way, mean of the pairs), the key value at 8 bytes. Rank i talks to rank i + pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Measurement, Output, Reading, Scope, Step
from hpcadmin.checklib import osu

NAME = "osu_multi_lat"


def steps(context: Context) -> tuple[Step, ...]:
    return osu.steps(context, NAME, tasks_per_node=context.param_int("tasks_per_node", 1))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    return osu.parse(outputs, context, NAME)


def read(text: str, context: Context) -> Reading:
    return osu.read(text, context, NAME)


CHECK = Check(
    name=NAME, title="MPI latency of many pairs (OSU)", scope=Scope.PAIR,
    needs=(NAME,), params={"tasks_per_node": 1, "buffers": "host", "rdma": "auto"},
    probe=(NAME, "--version"), steps=steps, parse=parse, read=read, seconds=10.0, doc=__doc__ or "",
    layouts=osu.PAIR_LAYOUTS, uses=osu.USES,
)

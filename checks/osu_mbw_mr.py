"""MPI bandwidth and message rate of many pairs of ranks at once, between two nodes (osu_mbw_mr of the OSU
micro-benchmarks, versions 3 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `bandwidth` (MB/s of 1e6 bytes, all pairs together, the key value at 4 MiB) and `msg_rate` (messages a
second). Rank i talks to rank i + pairs: the first half of the ranks is on the first node.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Impact, Measurement, Output, Reading, Scope, Step
from hpcadmin.checklib import osu

NAME = "osu_mbw_mr"


def steps(context: Context) -> tuple[Step, ...]:
    return osu.steps(context, NAME, tasks_per_node=context.param_int("tasks_per_node", 1))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    return osu.parse(outputs, context, NAME)


def read(text: str, context: Context) -> Reading:
    return osu.read(text, context, NAME)


CHECK = Check(
    name=NAME, title="MPI bandwidth and message rate of many pairs (OSU)", scope=Scope.PAIR, impact=Impact.LOAD,
    needs=(NAME,), params={"tasks_per_node": 1, "buffers": "host", "rdma": "auto"},
    probe=(NAME, "--version"), steps=steps, parse=parse, read=read, seconds=20.0, doc=__doc__ or "",
    layouts=osu.PAIR_LAYOUTS, uses=osu.USES,
)

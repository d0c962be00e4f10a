"""Time of MPI_Allreduce over all nodes (osu_allreduce of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `avg_latency` (us, mean of the ranks; key values at 8 bytes and 1 MiB), `min_latency` and `max_latency`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Impact, Measurement, Output, Reading, Scope, Step
from hpcadmin.checklib import osu

NAME = "osu_allreduce"


def steps(context: Context) -> tuple[Step, ...]:
    return osu.steps(context, NAME, tasks_per_node=context.param_int("tasks_per_node", 1))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    return osu.parse(outputs, context, NAME)


def read(text: str, context: Context) -> Reading:
    return osu.read(text, context, NAME)


CHECK = Check(
    name=NAME, title="MPI all-reduce over all nodes (OSU)", scope=Scope.GROUP, impact=Impact.LOAD,
    needs=(NAME,), params={"tasks_per_node": 1, "rdma": "auto"}, probe=(NAME, "--version"), steps=steps, parse=parse,
    read=read, seconds=20.0, doc=__doc__ or "", layouts=osu.GROUP_LAYOUTS,
)

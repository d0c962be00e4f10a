"""MPI_Iallreduce beside computing, over all nodes (osu_iallreduce of the OSU micro-benchmarks, versions 4 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `pure_comm` (us, the operation alone; key values at 8 bytes and 1 MiB), `min_comm`, `max_comm`, `overall` and
`compute` (us, of both together and of the computing), `overlap` (%).
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Impact, Measurement, Output, Reading, Scope, Step
from hpcadmin.checklib import osu

NAME = "osu_iallreduce"


def steps(context: Context) -> tuple[Step, ...]:
    return osu.steps(context, NAME, tasks_per_node=context.param_int("tasks_per_node", 1))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    return osu.parse(outputs, context, NAME)


def read(text: str, context: Context) -> Reading:
    return osu.read(text, context, NAME)


CHECK = Check(
    name=NAME, title="MPI non-blocking all-reduce over all nodes (OSU)", scope=Scope.GROUP, impact=Impact.LOAD,
    needs=(NAME,), params={"tasks_per_node": 1, "rdma": "auto"}, probe=(NAME, "--version"), steps=steps, parse=parse,
    read=read, seconds=30.0, doc=__doc__ or "", layouts=osu.GROUP_LAYOUTS,
)

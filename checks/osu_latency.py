"""MPI latency between two nodes (osu_latency of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `latency` (us, one way), the key value at 8 bytes, other sizes as a curve.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Measurement, Output, Reading, Scope, Step
from hpcadmin.checklib import osu

NAME = "osu_latency"


def steps(context: Context) -> tuple[Step, ...]:
    return osu.steps(context, NAME)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    return osu.parse(outputs, context, NAME)


def read(text: str, context: Context) -> Reading:
    return osu.read(text, context, NAME)


CHECK = Check(
    name=NAME, title="MPI latency between two nodes (OSU)", scope=Scope.PAIR,
    needs=(NAME,), params={"buffers": "host", "rdma": "auto"},
    probe=(NAME, "--version"), steps=steps, parse=parse, read=read, seconds=8.0, doc=__doc__ or "",
    layouts=osu.PAIR_LAYOUTS, uses=osu.USES,
)

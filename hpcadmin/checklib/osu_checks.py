"""What the checks of OSU programs that differ in their names only have in common."""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Impact, Measurement, Output, Reading, Scope, Step
from hpcadmin.checklib import osu


def pair(name: str, title: str, doc: str) -> Check:
    """A program of one rank on each of two nodes."""
    return _check(name, title, doc, group=False)


def group(name: str, title: str, doc: str) -> Check:
    """A collective program, over all nodes of the test."""
    return _check(name, title, doc, group=True)


def _check(name: str, title: str, doc: str, *, group: bool) -> Check:
    def steps(context: Context) -> tuple[Step, ...]:
        return osu.steps(context, name, tasks_per_node=context.param_int("tasks_per_node", 1))

    def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
        return osu.parse(outputs, context, name)

    def read(text: str, context: Context) -> Reading:
        return osu.read(text, context, name)

    return Check(
        name=name, title=f"{title} (OSU)", scope=Scope.GROUP if group else Scope.PAIR,
        impact=Impact.LOAD, needs=(name,), params={"tasks_per_node": 1, "rdma": "auto"} if group else {"rdma": "auto"},
        probe=(name, "--version"), steps=steps, parse=parse, read=read, seconds=20.0 if group else 10.0, doc=doc,
        layouts=osu.GROUP_LAYOUTS if group else osu.PAIR_LAYOUTS, uses=() if group else osu.USES)

"""What the checks of OSU programs that differ in their names only have in common."""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Impact, Measurement, Output, Params, Reading, Scope, Step
from hpcadmin.checklib import osu


def pair(name: str, title: str, doc: str, *, many: bool = False, buffers: bool = False, load: bool = True,
         seconds: float = 10.0) -> Check:
    """A program between two nodes. many: of any number of ranks on each, not only one; buffers: also in GPU memory."""
    params: Params = {**({"tasks_per_node": 1} if many else {}), **({"buffers": "host"} if buffers else {}),
                      "rdma": "auto"}
    return _check(name, title, doc, group=False, params=params, load=load, seconds=seconds)


def group(name: str, title: str, doc: str, *, load: bool = True, seconds: float = 20.0) -> Check:
    """A collective program, over all nodes of the test."""
    return _check(name, title, doc, group=True, params={"tasks_per_node": 1, "rdma": "auto"}, load=load,
                  seconds=seconds)


def _check(name: str, title: str, doc: str, *, group: bool, params: Params, load: bool, seconds: float) -> Check:
    def steps(context: Context) -> tuple[Step, ...]:
        return osu.steps(context, name, tasks_per_node=context.param_int("tasks_per_node", 1))

    def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
        return osu.parse(outputs, context, name)

    def read(text: str, context: Context) -> Reading:
        return osu.read(text, context, name)

    return Check(
        name=name, title=f"{title} (OSU)", scope=Scope.GROUP if group else Scope.PAIR,
        impact=Impact.LOAD if load else Impact.LIGHT, needs=(name,), params=params,
        probe=(name, "--version"), steps=steps, parse=parse, read=read, seconds=seconds, doc=doc,
        layouts=osu.GROUP_LAYOUTS if group else osu.PAIR_LAYOUTS, uses=() if group else osu.USES)

"""All-reduce over all GPUs of all nodes, one rank a GPU (nccl-tests all_reduce_perf, built with MPI).

Each task of a node sees all GPUs that the step has there, and nccl-tests takes the one of its local rank. The data are
validated. On simulated hardware the sizes are small, because the stand-in computes on the CPUs.

Measured: `busbw` (GB/s, out of place, the key value at the largest size, other sizes as a curve), `wrong_values`
(expected: 0), `ranks` per node (expected: its GPUs), and the average that the tool prints.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, Impact, Measurement, Output, ParseError, Role, Scope, Step, Subject
from hpcadmin.checklib import nccl

SIMULATED = (1 << 18, 1 << 20)


def _sizes(context: Context) -> tuple[int, int]:
    if context.simulated:
        return SIMULATED
    return context.param_int("min_bytes", 1 << 20), context.param_int("max_bytes", 1 << 33)


def steps(context: Context) -> tuple[Step, ...]:
    least, most = _sizes(context)
    argv = (context.tools["all_reduce_perf"], "-b", str(least), "-e", str(most), "-f", "2", "-g", "1",
            *(("-n", "5") if context.simulated else ()))
    return (Step(argv=argv, role=Role.RANKS, tasks_per_node=_tasks(context), gpus_per_task=1, timeout_s=300.0),)


def _tasks(context: Context) -> int:
    """Ranks on each node: as many as the node with the fewest GPUs has."""
    return min((n.gpus for n in context.nodes if n.gpus), default=1)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    output = lib.require(outputs, count=1)[0]
    lib.no_fatal_lines(lib.lines_of(output.text))
    table = nccl.read(output.text, "all_reduce_perf")
    everyone = Subject(tuple(n.name for n in context.nodes))
    placed, nodes = _placed(table, context)
    if not context.nodes:
        everyone = Subject(tuple(sorted(nodes)))
    as_planned = all(m.expected in (None, m.value) for m in placed)     # else its bandwidth is of something else
    count = len(table.ranks)
    if count < 2:
        raise ParseError("one rank sends nothing: its bus bandwidth says nothing")
    _ratio(table, count)
    least, most = _sizes(context)
    if context.nodes and (table.minimum, table.asked) != (least, most):
        raise ParseError(f"ran from {table.minimum} to {table.asked} bytes, not from {least} to {most}")
    wrong = max([table.out_of_bounds, *(int(h.wrong or 0) for r in table.rows for h in r.modes.values())])
    checked = all(h.wrong is not None for r in table.rows for h in r.modes.values()) and table.validation
    warnings = table.warnings if checked else (*table.warnings, "data not validated")
    found = [*placed, Measurement("wrong_values", wrong, subject=everyone, expected=0, warnings=warnings)]
    if table.verdict:
        found.append(Measurement("tool_verdict", table.verdict, subject=everyone, expected="OK"))
    for row in table.rows:
        for mode, half in row.modes.items():
            out = mode == "out-of-place"
            found.append(Measurement("busbw" if out else "busbw_in_place", half.busbw, "GB/s", row.size,
                                     subject=everyone, ranks=count, nodes=len(nodes), warnings=warnings,
                                     key=out and row is table.rows[-1] and as_planned))
    return [*found, Measurement("busbw_average", table.average, "GB/s", subject=everyone, ranks=count, key=False)]


def _placed(table: nccl.Table, context: Context) -> tuple[list[Measurement], set[str]]:
    """How many ranks each node has, against its plan; and the names of the nodes that have any."""
    here: dict[str, int] = {n.name: 0 for n in context.nodes}
    for rank in table.ranks:
        node = lib.planned_node(context, "", rank.host)
        name = node.name if node else rank.host
        here[name] = here.get(name, 0) + 1
    planned = {n.name for n in context.nodes}
    found = []
    for name, count in here.items():
        expected = None if not planned else _tasks(context) if name in planned else 0
        found.append(Measurement("ranks", count, subject=Subject((name,)), expected=expected, ranks=len(table.ranks),
                                 key=expected is not None))
    return found, {name for name, count in here.items() if count}


def _ratio(table: nccl.Table, ranks: int) -> None:
    """An all-reduce moves 2(n-1)/n of its data: busbw that is not algbw times that is of another test or changed."""
    factor = 2 * (ranks - 1) / ranks
    for row in table.rows:
        for half in row.modes.values():
            if abs(half.algbw * factor - half.busbw) > 0.02 + 0.005 * half.busbw:
                raise ParseError(f"at {row.size} bytes busbw {half.busbw:g} does not fit algbw {half.algbw:g} and "
                                 f"{ranks} ranks", hint="another collective, or a changed value")


CHECK = Check(
    name="nccl_allreduce", title="NCCL all-reduce over all GPUs", scope=Scope.GROUP, impact=Impact.LOAD,
    needs=("gpu", "all_reduce_perf"), params={"min_bytes": 1 << 20, "max_bytes": 1 << 33},
    steps=steps, parse=parse, seconds=30.0, doc=__doc__ or "",
)

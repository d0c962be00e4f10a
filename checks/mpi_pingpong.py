"""Latency and bandwidth of MPI messages between two nodes, by message size.

Runs our own mpi_pingpong, built with the site's mpicc, with one rank on each of two nodes: messages go back and forth
for a share of `seconds` at each size; times are half of a round trip, and the data are compared.

Measured: `latency` (us, at the smallest size) and `bandwidth` (MB/s, 1e6 bytes a second; the key value at 262144 bytes
or at max_bytes if that is less, the other sizes as a curve), both of the fastest message, which other load on the node
disturbs least; the medians of all messages beside them; `data` (expected: intact).
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Direction,
    Measurement,
    Output,
    ParseError,
    Reading,
    Role,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import mpi_start, mpi_text

HEAD = "# hpcadmin mpi_pingpong 1"
COLUMNS = "# bytes samples latency_us latency_median_us bandwidth_MB/s bandwidth_median_MB/s"
CHANGED = "# error: "
KEY_BYTES = 262144


def steps(context: Context) -> tuple[Step, ...]:
    argv = (context.tools["mpi_pingpong"], "--max", str(context.param_int("max_bytes", 1048576)),
            "--seconds", context.param_str("seconds", "0.8"))
    return (Step(argv=argv, role=Role.RANKS, tasks_per_node=1, timeout_s=60.0 + 2 * float(argv[4]),
                 env=mpi_start.environment(context, 2), under=mpi_start.under(context, 1)),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    changed = [m for o in outputs for m in _changed(lib.lines_of(o.text), context)]
    if changed:
        return changed[:1]
    reading = read(lib.require(outputs, count=1)[0].text, context)
    if not reading.usable:
        raise ParseError("; ".join(reading.problems[:3]))
    limit = context.params.get("max_bytes")
    largest = max(m.size_bytes or 0 for m in reading.measurements)
    if limit is not None and largest != int(limit):
        raise ParseError(f"the largest message has {largest} bytes, {limit} were asked for")
    medium, doubts = mpi_start.proof(reading.transport, outputs[0].text, context)
    return [*medium, *mpi_text.warned(reading.measurements, [*reading.problems, *doubts])]


def read(text: str, context: Context) -> Reading:
    lines = mpi_text.untagged(lib.lines_of(text))
    around = mpi_text.look(lines)
    changed = _changed(lines, context)
    heads = max(1, lines.count(HEAD))
    try:
        if changed:
            raise ParseError(str(changed[0].value))
        rows = _table(lines)
        hosts = [_host(lines, rank, context) for rank in (0, 1)]
        pair = tuple(n.name for n in context.nodes)
        if pair and sorted(hosts) != sorted(pair):
            raise ParseError(f"ran on {' and '.join(hosts)}, not on {' and '.join(pair)}")
    except ParseError as exc:
        return Reading(measurements=tuple(changed), problems=(*around.faults, str(exc), *around.doubts),
                       notes=around.notes, validated=True if changed else None,
                       wrong_values=len(changed) if changed else None, runs=heads)
    found = _measurements(rows, context.subject if pair else Subject(tuple(hosts)), context, lines, around.transport)
    return Reading(measurements=tuple(found), problems=(*around.faults, *around.doubts), usable=not around.faults,
                   notes=around.notes, validated=True, wrong_values=0, ranks=2, hosts=len(set(hosts)),
                   host_names=tuple(hosts), transport=around.transport)


def _changed(lines: Sequence[str], context: Context) -> list[Measurement]:
    """What the program says of data that came back changed."""
    pair = Subject(tuple(n.name for n in context.nodes))
    return [Measurement("data", lib.shown(line[len(CHANGED):]), subject=pair, expected="intact")
            for line in lines if line.startswith(CHANGED)][:1]


def _table(lines: Sequence[str]) -> list[tuple[int, float, float, float, float]]:
    """bytes, latency at best and median in us, bandwidth at best and median in MB/s."""
    marks = [lines.count(HEAD), lines.count(COLUMNS), sum(line.startswith("# end mpi_pingpong ") for line in lines)]
    if marks != [1, 1, 1]:
        raise ParseError("not one whole output of mpi_pingpong", hint="cut off, or several runs mixed")
    last = next(n for n, line in enumerate(lines) if line.startswith("# end mpi_pingpong "))
    end = lib.fields_of(lines[last].split()[3:], "the last line")
    between = lines[lines.index(COLUMNS) + 1:last]
    words = [line.split() for line in between if line[:1].isdigit()]
    rows_said = lib.integer(end.get("rows", ""), "number of rows", least=1, most=64)
    if any(len(w) != 6 for w in words) or len(words) != rows_said or set(end) != {"rows", "check"}:
        raise ParseError(f"{len(words)} rows where the program says {rows_said}, or a row is torn")
    if f"{lib.fnv1a(map(''.join, words)):08x}" != end["check"]:
        raise ParseError("the rows do not match their check sum", hint="a value was changed after it was printed")
    rows = []
    for size, samples, *times in words:
        lib.integer(samples, "samples", least=1)
        low, middle, rate, typical = (lib.positive(t, f"a value at {size} bytes") for t in times)
        rows.append((lib.integer(size, "message size", least=1), low, middle, rate, typical))
    lib.rising([row[0] for row in rows])
    return rows


def _host(lines: Sequence[str], rank: int, context: Context) -> str:
    start = f"# rank {rank} "
    found = [line for line in lines if line.startswith(start)]
    if len(found) != 1:
        raise ParseError(f"rank {rank} tells {len(found)} times where it runs")
    told = lib.fields_of(found[0][len(start):].split(), f"rank {rank}")
    if set(told) != {"node", "host", "pid"}:
        raise ParseError(f"rank {rank} does not tell node, host and pid")
    nodename = "" if told["node"] == "-" else told["node"]
    node = lib.planned_node(context, nodename, told["host"])
    if node and node.hostname and not lib.same_host(node.hostname, told["host"]):
        raise ParseError(f"rank {rank} on {node.name} has the host name {told['host']}, not {node.hostname}")
    return node.name if node else nodename or told["host"]


def _measurements(rows: Sequence[tuple[int, float, float, float, float]], pair: Subject, context: Context,
                  lines: Sequence[str], transport: str | None) -> list[Measurement]:
    def value(name: str, number: float, unit: str, size: int, *, key: bool) -> Measurement:
        way = Direction.ONE_WAY if unit == "MB/s" else Direction.NONE
        return Measurement(name, number, unit, size, way, pair, ranks=2, nodes=len(set(pair.nodes)),
                           pairs_at_once=context.pairs_at_once, key=key, transport=transport or "",
                           rail=context.rail_device, binding=mpi_start.bound(context))

    key = KEY_BYTES if any(row[0] == KEY_BYTES for row in rows) else rows[-1][0]
    found = [Measurement("data", "intact", subject=pair, expected="intact"),
             value("latency", rows[0][1], "us", rows[0][0], key=True),
             value("latency_median", rows[0][2], "us", rows[0][0], key=False)]
    for size, _, _, rate, typical in rows:
        found += [value("bandwidth", rate, "MB/s", size, key=size == key),
                  value("bandwidth_median", typical, "MB/s", size, key=False)]
    library = next((line[10:] for line in lines if line.startswith("# library ")), "")
    return [*found, Measurement("mpi_library", lib.shown(library), subject=pair, key=False)]


CHECK = Check(
    name="mpi_pingpong", title="MPI latency and bandwidth between two nodes", scope=Scope.PAIR,
    builds=("mpi_pingpong",), params={"max_bytes": 1048576, "seconds": 0.8, "rdma": "auto"}, steps=steps, parse=parse,
    read=read, seconds=1.5, doc=__doc__ or "", layouts=mpi_start.PAIR_LAYOUTS, uses=mpi_start.USES,
)

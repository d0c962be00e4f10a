"""Every rank of an MPI program answers exactly once, on the node where it should run, and all can talk.

Runs our own mpi_hello, built with the site's mpicc, over all nodes: each rank tells its node, host, process and CPUs; a
token goes around all ranks and a sum over all ranks is compared with the known answer. It also compares the nodes'
clocks, over MPI, with the median of all of them.

In a file, greetings of other programs ("Hello world from processor n1, rank 0 of 4") are read too: which ranks came up
and where. They send nothing between ranks, so that they are no result of a run.

Measured: `ranks` per node (expected: tasks_per_node), `hostname` per node where the inventory knows it, `ring` and
`sum` (expected: right), `clock_offset` per node in seconds; where all nodes have RDMA devices and
MPI tells that it used sockets, its `transport` (expected: RDMA).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, median_low

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, Measurement, Output, ParseError, Reading, Role, Scope, Step, Subject
from hpcadmin.checklib import mpi_greetings, mpi_start, mpi_text

HEAD = "# hpcadmin mpi_hello 1"
FIELDS = {"node", "host", "processor", "procid", "pid", "cpus", "clock"}


def steps(context: Context) -> tuple[Step, ...]:
    return (Step(argv=(context.tools["mpi_hello"],), role=Role.RANKS, timeout_s=120.0,
                 tasks_per_node=context.param_int("tasks_per_node", 1)),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    text = lib.require(outputs, count=1)[0].text
    reading = read(text, context)
    if not reading.usable:
        raise ParseError("; ".join(reading.problems[:3]))
    if not reading.measurements:      # of another program
        if context.nodes:
            raise ParseError("not one output of our mpi_hello")
        found = [Measurement("ranks", reading.ranks or 0, ranks=reading.ranks, nodes=reading.hosts, key=False,
                             subject=Subject(reading.host_names))]
        return mpi_text.warned(found, reading.problems)
    sockets, _ = mpi_start.proof(reading.transport, text, context)      # nothing is asked to tell, and need not
    return [*sockets, *mpi_text.warned(reading.measurements, reading.problems)]


def read(text: str, context: Context) -> Reading:
    lines = mpi_text.untagged(lib.lines_of(text))
    around = mpi_text.look(lines)
    heads = lines.count(HEAD)
    ours = heads or any(line.startswith("# end mpi_hello") for line in lines)
    other = None if ours else mpi_greetings.read(lines)
    if other:
        return _of_another(other, around)
    try:
        if heads > 1:
            raise ParseError(f"{heads} programs answered where one must", hint="the ranks did not find each other: "
                             "wrong srun --mpi=, or an MPI without Slurm's PMI")
        ranks = _ranks(lines)
        found = _measurements(lines, ranks, context)
    except ParseError as exc:
        told = (*around.faults, *around.doubts)
        said = () if heads else (f"the output says: {line}" for line in lib.telling(lines) if line not in told)
        return Reading(problems=(*around.faults, str(exc), *around.doubts, *said), notes=around.notes,
                       runs=max(1, heads), hosts=around.hosts or len(around.named) or None)
    names = tuple(dict.fromkeys(rank["host"] for rank in ranks))
    wrong = sum(m.value == "wrong" for m in found)
    return Reading(measurements=tuple(found), problems=(*around.faults, *around.doubts), usable=not around.faults,
                   notes=around.notes, validated=True, wrong_values=wrong, ranks=len(ranks), hosts=len(names),
                   host_names=names, transport=around.transport)


def _of_another(found: mpi_greetings.Greetings, around: mpi_text.Around) -> Reading:
    """What a program other than ours tells: its ranks and hosts, no value."""
    problems = (*around.faults, *found.problems, *around.doubts)
    return Reading(problems=problems, usable=not around.faults and not found.problems, ranks=found.ranks,
                   hosts=len(found.hosts) or None, host_names=found.hosts, transport=around.transport,
                   notes=("of another program than ours: which ranks came up, and nothing of messages between them",
                          *around.notes))


def _measurements(lines: Sequence[str], ranks: Sequence[dict[str, str]], context: Context) -> list[Measurement]:
    answers = {what: _only(lines, f"# {what} ") for what in ("ring", "sum")}
    for what, answer in answers.items():
        if answer not in ("right", "wrong"):
            raise ParseError(f"{what} is {answer!r}")
    library = _only(lines, "# library ")
    everyone = Subject(tuple(n.name for n in context.nodes))
    found = [Measurement(what, answer, subject=everyone, expected="right", ranks=len(ranks))
             for what, answer in answers.items()]
    found.append(Measurement("mpi_library", lib.shown(library), subject=everyone, key=False))
    return found + _per_node(ranks, context)


def _ranks(lines: Sequence[str]) -> list[dict[str, str]]:
    rows = [line for line in lines if line.startswith("rank ")]
    end = lib.fields_of(_only(lines, "# end mpi_hello ").split(), "the last line")
    if set(end) != {"rows", "check"} or HEAD not in lines or lines.index(HEAD) > lines.index(rows[0] if rows else HEAD):
        raise ParseError("the output is not one whole output of mpi_hello")
    size = lib.integer(end["rows"], "number of ranks", least=1, most=10_000_000)
    if len(rows) != size or end["check"] != f"{lib.fnv1a(rows):08x}":
        raise ParseError(f"{len(rows)} of {size} ranks answered, or their lines are damaged")
    ranks = []
    for number, row in enumerate(rows):
        words = row.split(" ")
        if words[:4] != ["rank", str(number), "of", str(size)]:
            raise ParseError(f"rank {number} of {size} is missing or not in its place: {row[:80]!r}")
        ranks.append(lib.fields_of(words[4:], f"rank {number}"))
        if set(ranks[-1]) != FIELDS:
            raise ParseError(f"rank {number} does not tell all of {', '.join(sorted(FIELDS))}")
    processes = {(r["node"], r["host"], r["pid"]) for r in ranks}
    if len(processes) != size:
        raise ParseError(f"{size} ranks, but only {len(processes)} processes")
    return ranks


def _only(lines: Sequence[str], start: str) -> str:
    """What follows `start` on the one line that begins so."""
    found = [line[len(start):] for line in lines if line.startswith(start)]
    if len(found) != 1:
        raise ParseError(f"{len(found)} lines begin with {start.strip()!r}, exactly one must", hint="cut off or mixed")
    return found[0]


def _per_node(ranks: Sequence[dict[str, str]], context: Context) -> list[Measurement]:
    by_node: dict[str, list[dict[str, str]]] = {node.name: [] for node in context.nodes}
    for rank in ranks:
        nodename = "" if rank["node"] == "-" else rank["node"]
        planned = lib.planned_node(context, nodename, rank["host"])
        by_node.setdefault(planned.name if planned else nodename or rank["host"], []).append(rank)
    found = []
    tasks = context.param_int("tasks_per_node", 1)
    for name, here in by_node.items():
        expected = None if not context.nodes else tasks if any(n.name == name for n in context.nodes) else 0
        found.append(Measurement("ranks", len(here), subject=Subject((name,)), expected=expected, ranks=len(ranks),
                                 nodes=sum(map(bool, by_node.values())), key=expected is not None,
                                 binding="; ".join(sorted({r["cpus"] for r in here}))[:200]))
    return found + _hostnames(by_node, context) + _clocks(by_node)


def _hostnames(by_node: dict[str, list[dict[str, str]]], context: Context) -> list[Measurement]:
    found = []
    for node in context.nodes:
        for host in sorted({r["host"] for r in by_node[node.name]}):
            if node.hostname:
                value = node.hostname if lib.same_host(host, node.hostname) else host
                found.append(Measurement("hostname", value, subject=Subject((node.name,)), expected=node.hostname))
    return found


def _clocks(by_node: dict[str, list[dict[str, str]]]) -> list[Measurement]:
    clocks = {name: median(lib.finite(r["clock"], "clock", least=-1e10, most=1e10) for r in here)
              for name, here in by_node.items() if here}
    if len(clocks) < 2:
        return []
    middle = median_low(clocks.values())
    return [Measurement("clock_offset", round(abs(clock - middle), 6), "s", subject=Subject((name,)))
            for name, clock in clocks.items()]


CHECK = Check(
    name="mpi_hello", title="Every MPI rank answers from its node", scope=Scope.GROUP,
    builds=("mpi_hello",), params={"tasks_per_node": 1}, steps=steps, parse=parse, read=read,
    seconds=2.0, doc=__doc__ or "",
)

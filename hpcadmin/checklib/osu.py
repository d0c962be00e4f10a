"""Reads what the OSU micro-benchmarks print, versions 3 to 7: the one reader of all osu_* checks, and their steps.

Programs are run with their default sizes, without options where the version does not tell that it knows them: what a
version does not know ends it (5.x refuses some of those of 7.x).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcadmin import checklib as lib
from hpcadmin.check import Context, Direction, Measurement, Output, ParseError, Reading, Role, Step, Subject
from hpcadmin.checklib import mpi_start, mpi_text
from hpcadmin.checklib.mpi_start import GROUP_LAYOUTS, PAIR_LAYOUTS, USES
from hpcadmin.checklib.osu_table import (
    COLUMNS,
    PROGRAMS,
    Block,
    Program,
    Row,
    Table,
    blocks,
    flaws,
    untitled,
    whole_range,
)
from hpcadmin.text import printable

__all__ = ["GROUP_LAYOUTS", "PAIR_LAYOUTS", "USES", "parse", "read", "steps"]

LARGEST = 4 << 20
KNOWN = ("3", "4", "5", "6", "7")
_UNITS = {**dict(COLUMNS.values()), "avg_latency": "us"}
_LEFT_OUT = ("iterations", "validation", "size", "transmitted")
_GPU_BUILD = re.compile(r"# OSU MPI\S{0,8}-(?:CUDA|ROCM|OPENACC|SYCL)\b")
_LOCAL_RANK = "OMB could not identify the local rank"
_LIMITED = re.compile(r"Limiting max message size to: (\d{1,12})")
_BEGUN_ROW = re.compile(r"\d[\d. ]*(?:P|Pa|Pas|F|Fa|Fai)?\Z")
_BEGUN_VALUE = re.compile(r"\d{1,15}(?:\.\d?)?\Z")
_VERSION = re.compile(r"\bv?(\d{1,3})\.\d{1,3}")


@dataclass(frozen=True)
class _Part:
    """One table of one run. run None: the only one."""

    run: int | None
    block: Block
    table: Table
    program: Program


def steps(context: Context, name: str, *, tasks_per_node: int = 1, timeout_s: float = 300.0) -> tuple[Step, ...]:
    """The program over all nodes of the test; with options only where its version is told and knows them. buffers =
    "device" puts both sides' buffers into GPU memory; that they are there is shown by the table's head."""
    told = _VERSION.search(context.tool_version)
    version, program = int(told[1]) if told else 0, PROGRAMS[name]
    options = []
    if version == 7 and program.sized:
        options.append("-c")      # the data are compared
    if 4 <= version <= 7 and program.collective:
        options.append("-f")      # minimum and maximum over the ranks
    env = mpi_start.environment(context, tasks_per_node * len(context.nodes))
    gpus = 0
    if on_gpu(context):
        options += ["-d", "rocm" if any("AMD" in n.gpu_model for n in context.nodes) else "cuda", "D", "D"]
        near = context.ports[0].gpu if context.ports else None
        gpus = 1 if near is None else min((n.gpus for n in context.nodes if n.gpus), default=1)
        env.update({} if near is None else {"CUDA_VISIBLE_DEVICES": str(near), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    return (Step(argv=(context.tools[name], *options), role=Role.RANKS, tasks_per_node=tasks_per_node,
                 gpus_per_task=gpus, timeout_s=timeout_s, env=env, under=mpi_start.under(context, tasks_per_node)),)


def on_gpu(context: Context) -> bool:
    return context.param_str("buffers", "host") == "device"


def read(text: str, context: Context, name: str) -> Reading:
    """All that one text tells of the program `name`."""
    program = PROGRAMS[name]
    lines = mpi_text.untagged(lib.lines_of(text))
    around = mpi_text.look(lines)
    runs = _runs(blocks(lines))
    parts = _parts(runs, program)
    own = [p for p in parts if p.program is program]
    ranks, hosts = _placed(own, around)
    limited = _limited(lines, program)
    hard, soft = list(around.faults), list(around.doubts)
    last_lines = [line for line in lines if line][-1:]
    if not own:
        hard.append(_nothing(parts, around, program))
    if not any(table.rows for run in runs for table in run.tables):
        hard += [f"the output says: {line}" for line in lib.telling(lines) if line not in hard]
    _several(runs, parts, program, hard, soft)
    for part in own:
        worthless, missing = flaws(part.table, limited, ranks or context.ranks)
        if part is own[-1] and part.table.torn == last_lines and _begun(last_lines[0], part.table, text):
            worthless = [why for why in worthless if not why.startswith("a row of the table is torn")]
            missing.append(f"the output ends within a row: {last_lines[0]}")
        where = f"run {part.run}: " if part.run is not None else ""
        hard += [where + why for why in worthless]
        soft += [where + why for why in missing]
        hard += _rank_flaws(part.table, program, around.ranks)
        if part.table.version and part.table.version.split(".")[0] not in KNOWN:
            soft.append(f"OSU micro-benchmarks {part.table.version} are not known: known are 3 to 7")
    if own and not text.endswith(("\n", "\r")) and own[-1].table.columns[-1:] == ("iterations",) and (
            own[-1].table.rows and own[-1].table.rows[-1].line == lines[-1]):
        hard.append(f"the last line is not ended: its last number may be cut: {lines[-1]}")
    shown = [p for p in parts if own and (p.program is program or not set(p.program.main) & set(program.main))]
    measurements = [m for part in shown for m in _measurements(part, context, around, ranks, hosts)]
    checked = [p.table for p in own if p.table.validated and p.table.rows]
    return Reading(
        measurements=tuple(measurements), problems=tuple(dict.fromkeys([*hard, *soft])),
        usable=not hard and any(p.table.rows for p in own), notes=_notes(lines, runs, own, around),
        validated=True if checked and len(checked) == len(own) else None,
        wrong_values=sum(r.verdict == "Fail" for t in checked for r in t.rows) if checked else None,
        ranks=ranks, hosts=hosts, host_names=around.host_names or _pair(own), transport=around.transport,
        runs=max(1, len(runs)))


def parse(outputs: Sequence[Output], context: Context, name: str) -> list[Measurement]:
    """The measurements of one run of the program; the test's nodes, when they are given, are its plan."""
    program = PROGRAMS[name]
    reading = read(outputs[0].text, context, name) if len(outputs) == 1 else Reading()
    if reading.wrong_values and not outputs[0].truncated:
        told = next(p for p in reading.problems if "validation at" in p)
        return [Measurement("validation", lib.shown(told), subject=context.subject, expected="Pass")]
    lib.require(outputs, count=1)
    if not reading.usable:
        raise ParseError("; ".join(reading.problems[:3]) or "no measurement in the output")
    if context.nodes:
        _as_planned(reading, context, program)
        if on_gpu(context) and any(m.binding != "DEVICE" for m in reading.measurements):
            raise ParseError("buffers in GPU memory were asked for, and the table does not say that they were there")
    names = {*program.main, "msg_rate", "min_latency", "max_latency", "min_comm", "max_comm", "coll_init", "mpi_test",
             "mpi_wait"}
    found = [m for m in reading.measurements if m.name in names]
    if not context.nodes and not any(m.key for m in found):      # a run of other sizes: its largest stands for it
        largest = max((m.size_bytes or 0 for m in found), default=0)
        found = [replace(m, key=m.name in program.main and (m.size_bytes or 0) == largest) for m in found]
    medium, doubts = mpi_start.proof(reading.transport, outputs[0].text, context)
    bound = mpi_start.bound(context, (context.ranks or 2) // max(1, len(context.nodes)))
    found = [replace(m, binding=", ".join(filter(None, (bound, m.binding))), subject=context.subject,
                     rail=context.rail_device) for m in found] if context.nodes else found
    return [*medium, *mpi_text.warned(found, [*reading.problems, *doubts])]


def _begun(line: str, table: Table, text: str) -> bool:
    """Whether a torn row at the end of the text is one that the text ends within: it is left out."""
    return _BEGUN_ROW.match(line) is not None and (
        not text.endswith(("\n", "\r")) or len(line.split()) < len(table.columns)
        or (any(_UNITS.get(name) for name in table.columns[-1:])
            and _BEGUN_VALUE.match(line.rsplit(maxsplit=1)[-1]) is not None))


def _as_planned(reading: Reading, context: Context, program: Program) -> None:
    """Refuses what one run of the program over the test's nodes, with default sizes, does not print."""
    problems = []
    if reading.runs != 1 or any(m.run is not None for m in reading.measurements):
        problems.append("several runs where one was started")
    ranks = reading.ranks or context.ranks
    sizes = [m.size_bytes or 0 for m in reading.measurements if m.name == program.main[0]]
    table = Table(title="as read", version=_version(reading), rows=[Row(size, {}) for size in sizes])
    if not whole_range(table, program, ranks):
        problems.append(f"sizes {sizes[0]} to {sizes[-1]} ({len(sizes)} rows) are not its default sizes")
    if reading.hosts is not None and reading.hosts != len(context.nodes):
        problems.append(f"ran on {reading.hosts} hosts, not on the {len(context.nodes)} of the test")
    if reading.ranks is not None and context.ranks is not None and reading.ranks != context.ranks:
        problems.append(f"ran with {reading.ranks} ranks, not with {context.ranks}")
    strangers = [host for host in reading.host_names if lib.planned_node(context, "", host) is None]
    if strangers:
        problems.append(f"ran on {', '.join(strangers[:4])}, not on a node of the test")
    if problems:
        raise ParseError("; ".join([*problems, *reading.problems[:3]]))


def _version(reading: Reading) -> str:
    title = next((note for note in reading.notes if note.startswith("# OSU ")), "")
    return title.rsplit(" v", 1)[-1] if " v" in title else ""


def _runs(found: Sequence[Block]) -> list[Block]:
    """The runs: what is announced, and within it each table of a program that was there before begins another."""
    runs: list[Block] = []
    for number, block in enumerate(found):
        if number == 0 and not block.tables:
            continue
        run = Block(block.label, block.number, block.pair, [], block.said)
        runs.append(run)
        for table in block.tables:
            if any(t.title == table.title or (t.program and t.program is table.program) for t in run.tables):
                runs.append(run := Block(pair=block.pair))
            run.tables.append(table)
    return runs


def _parts(runs: Sequence[Block], program: Program) -> list[_Part]:
    """Every table whose program is known, with the number of its run: as announced, else counted."""
    titled = any(table.title for block in runs for table in block.tables)
    chosen = []
    for place, block in enumerate(runs, 1):
        for table in block.tables:
            known: Table | None = table if table.program else None
            if known is None and not table.title and (not titled or table.header):
                known = untitled(table, program)
            if known is not None:
                chosen.append((place, block, known, known.program or program))
    numbers = [block.number for _, block, _, owner in chosen if owner is program]
    as_announced = bool(numbers) and None not in numbers and len(set(numbers)) == len(numbers)
    several = len(runs) > 1
    return [_Part(None if not several else block.number if as_announced and block.number is not None else place,
                  block, table, owner) for place, block, table, owner in chosen]


def _nothing(parts: Sequence[_Part], around: mpi_text.Around, program: Program) -> str:
    told = ", ".join(dict.fromkeys(p.program.name for p in parts)) or "no title"
    if not parts and around.programs:
        told = f"no title; the job ran {printable(' '.join(around.programs), limit=100)}"
    return f"not one output of the OSU {program.title} test: {told}"


def _limited(lines: Sequence[str], program: Program) -> Program:
    """The program, with the largest size that it says it was limited to for lack of memory."""
    found = next((m for m in (_LIMITED.search(line[:2000]) for line in lines) if m), None)
    if found is None or not 0 < int(found[1]) < program.last:
        return program
    return replace(program, last=1 << (int(found[1]).bit_length() - 1))


def _several(runs: Sequence[Block], parts: Sequence[_Part], program: Program, hard: list[str],
             soft: list[str]) -> None:
    """What is wrong with a text that holds more, or less, than one table."""
    tables = [t for block in runs for t in block.tables]
    titles = [t.title for t in tables if t.title]
    if len(titles) > 1:
        kinds = ", ".join(dict.fromkeys(p.program.name for p in parts)) or "of unknown programs"
        soft.append(f"{len(titles)} titles in one text ({kinds}): several results, which must not be taken together")
    unknown = next((t.title for t in tables if t.title and t.program is None), None)
    if unknown:
        hard.append(f"the title is of no known program: {printable(unknown, limit=160)}")
    stray = [t for t in tables if not t.title and len(tables) > 1]
    if stray:
        rows = sum(len(t.rows) + len(t.torn) for t in stray)
        soft.append(f"{rows} rows stand without a title: the beginning of their table is missing")
    if len(runs) > 1 or any(block.label for block in runs):
        for block in runs:
            if not any(t.rows for t in block.tables):
                reasons = [line for line in block.said if mpi_text.bad(line)]
                why = f", but {len(reasons)} lines as {printable(reasons[0], limit=160)}" if reasons else ""
                (hard if reasons else soft).append(f"no result of {printable(block.label or 'a run', limit=160)}{why}")
    flawed = [p for p in parts if p.program is not program and p.table.torn]
    hard += [f"a row of {p.program.name} is torn: {p.table.torn[0]!r:.120}" for p in flawed[:2]]


def _rank_flaws(table: Table, program: Program, ranks: int | None) -> list[str]:
    if ranks is None:
        return []
    wanted = program.ranks or 2 * (table.pairs or 0)
    if ranks < wanted or (program.ranks and ranks != wanted):
        return [f"{ranks} ranks are told where {program.name} has {wanted}"]
    return [f"{program.name} with one rank measures nothing"] if ranks < 2 else []


def _pair(own: Sequence[_Part]) -> tuple[str, ...]:
    """The two nodes that a script announced, when all results are of them."""
    pairs = {p.block.pair for p in own if p.table.rows}
    return next(iter(pairs)) if len(pairs) == 1 else ()


def _placed(own: Sequence[_Part], around: mpi_text.Around) -> tuple[int | None, int | None]:
    """(ranks, hosts), as the output proves them."""
    pair = _pair(own)
    pairs = {p.table.pairs for p in own if p.table.pairs}
    ranks = around.ranks
    if ranks is None:
        ranks = 2 * next(iter(pairs)) if len(pairs) == 1 else len(pair) or None
    hosts = around.hosts if around.hosts is not None else len(pair) or len(around.named) or None
    return ranks, hosts


def _measurements(part: _Part, context: Context, around: mpi_text.Around, ranks: int | None,
                  hosts: int | None) -> list[Measurement]:
    table, program = part.table, part.program
    if table.header and (table.headers > 1 or table.unknown or not set(program.main) <= set(table.columns)):
        return []
    if not table.header and not set(program.main) <= set(table.columns):
        return []
    subject = context.subject if context.nodes else Subject(part.block.pair)
    way = Direction.BOTH if program.name in ("osu_bibw", "osu_put_bibw") else Direction.ONE_WAY
    warnings = (_LOCAL_RANK,) if any(_LOCAL_RANK in note for note in around.notes) else ()
    found = []
    for row in table.rows:
        for name, value in row.values.items():
            if name in _LEFT_OUT or not name or row.verdict == "Fail":
                continue
            found.append(Measurement(
                name, value, _UNITS.get(name, ""), row.size, way if name == "bandwidth" else Direction.NONE, subject,
                ranks=program.ranks or ranks or context.ranks, nodes=len(context.nodes) or hosts,
                pairs_at_once=table.pairs or (context.pairs_at_once if program.ranks == 2 else None),
                binding=table.buffers, transport=around.transport or "", run=part.run,
                key=_is_key(name, row.size, program), warnings=warnings))
    return found


def _is_key(name: str, size: int | None, program: Program) -> bool:
    """The values that are judged; the others are the curve."""
    if name not in program.main:
        return False
    if name == "latency":
        return size == 8
    if name == "bandwidth":
        return size == LARGEST
    return name in ("avg_latency", "pure_comm") and (size in (8, program.last) or not program.sized)


def _notes(lines: Sequence[str], runs: Sequence[Block], own: Sequence[_Part],
           around: mpi_text.Around) -> tuple[str, ...]:
    marks = ("# OSU ", "# Send Buffer ", "# [ pairs", "# Size", "# Number of ", "# Window creation", "# Synchron",
             "# Datatype")
    labels = {block.label for block in runs if block.label}
    told = dict.fromkeys(printable(line, limit=240) for line in lines if line.startswith(marks) or line in labels)
    notes = [*list(told)[:60], *around.notes]
    for part in own:
        table = part.table
        if _GPU_BUILD.match(table.title):
            notes.append("a build for GPUs that does not print where the buffers lay: not shown that GPU memory was "
                         "tested" if not table.buffers else f"buffers on {table.buffers}" + (
                         ": GPU memory was not tested" if table.buffers == "HOST" else
                         ": 0 bytes copy nothing from the GPU" if 0 in table.sizes else ""))
        if table.rows:
            notes.append(f"last row: {table.rows[-1].line}")
    return tuple(dict.fromkeys(notes))

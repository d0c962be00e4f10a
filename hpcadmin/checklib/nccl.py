"""The checks of nccl-tests and rccl-tests: one reader, one way to run them, for every collective.

Measured (mode "out-of-place" or "in-place"): `busbw` and `algbw` (GB/s) and `time` (us) at every size, `avg_busbw` as
the tool prints it, `wrong_values` (expected: 0; none where the data were not checked), `ranks` per node (expected: its
GPUs), and `transport`, where nodes with RDMA devices must use them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Impact,
    Layout,
    Measurement,
    Output,
    ParseError,
    Reading,
    Scope,
    Subject,
)
from hpcadmin.checklib import nccl_json, nccl_start
from hpcadmin.checklib.nccl_run import COLLECTIVES, IN, OUT, Collective, Kind, Line, Problem, Rank, Row, Run
from hpcadmin.checklib.nccl_sense import Sense, sense, several
from hpcadmin.checklib.nccl_start import LAYOUTS, sizes_of, steps_of, tasks_of
from hpcadmin.checklib.nccl_text import Splitter, lines_of
from hpcadmin.checklib.nccl_words import Words, words_of

_PROGRAM = re.compile(rf"\b({'|'.join(c.name for c in COLLECTIVES.values())})(?:_perf(?:_mpi)?\b|\.cu:)")
_MOST_RUNS = 16


@dataclass(frozen=True)
class Found:
    """All that a text tells. run, sense: of the one run that the check is of, None where there is none or several."""

    reading: Reading
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    run: Run | None
    verdict: str                # what the tool says of its own average: "", OK or FAILED

    def has(self, *kinds: Kind) -> bool:
        return any(p.kind in kinds for p in self.problems)


def examine(text: str, of: Collective) -> Found:
    """Reads one text of the program of a collective, sound or not."""
    start = nccl_json.start_of(clean := lib.strip_terminal(text))
    if start is not None:
        return _report(clean, start, of)
    lines = lines_of(text)
    splitter = Splitter()
    runs = splitter.feed(lines)
    senses = [sense(run, of) for run in runs]
    mine = [n for n in range(len(runs)) if len(runs) == 1 or not senses[n].other]
    if runs and not any(run.starts or run.ends for run in runs):
        senses = _as_told(senses, splitter.others, of)
    known = max((len(senses[n].hosts or ()) for n in mine), default=0)
    return _found(of, runs, senses, mine, words_of(lines, splitter.others, known))


def _report(text: str, start: int, of: Collective) -> Found:
    try:
        run, errors, around = nccl_json.run_of(text, start)
    except ParseError as exc:
        problem = Problem(Kind.BAD, str(exc))
        return Found(Reading(problems=(problem.text,)), (problem,), (), None, "")
    lines = lines_of(around)
    words = words_of([*lines, *(Line(e, f"# error: {e}") for e in errors)], [n for n in lines if n.text], 0)
    return _found(of, [run], [sense(run, of)], [0], words)


def _as_told(senses: Sequence[Sense], others: Sequence[Line], of: Collective) -> list[Sense]:
    """Older versions do not name themselves: then a command line or a source file beside the table tells."""
    told = {m[1] for line in others for m in _PROGRAM.finditer(line.text[:4000])}
    if not told or of.name in told:
        return list(senses)
    problem = Problem(Kind.BAD, f"what stands beside the table names {', '.join(sorted(told))}, not of {of.program}")
    return [replace(s, problems=(problem, *s.problems), other=True) for s in senses]


def _found(of: Collective, runs: Sequence[Run], senses: Sequence[Sense], mine: Sequence[int], words: Words) -> Found:
    """runs: of the text; mine: which of them are of this collective."""
    problems = [Problem(Kind.FATAL, f"the run broke: {line}") for line in words.errors]
    if not runs:
        instead = f"; it begins with {words.notes[0]!r}" if words.notes and not words.errors else ""
        problems.append(Problem(Kind.PART, f"no output of {of.program}{instead}"))
    elif len(runs) > 1:
        problems.append(Problem(Kind.PART, f"{len(runs)} runs in one text: "
                                f"{', '.join(_title(run) for run in runs[:4])}"))
    shown = list(mine or range(len(runs)))
    if runs and not mine:
        problems.append(Problem(Kind.BAD, f"none of the runs is of {of.program}"))
    if len(runs) > _MOST_RUNS:
        problems.append(Problem(Kind.BAD, f"more than {_MOST_RUNS} runs: many processes printed at once"))
    for n in shown[:_MOST_RUNS] if mine else ():
        which = f"run {n + 1}: " if len(runs) > 1 else ""
        problems += [Problem(p.kind, which + p.text) for p in senses[n].problems]
    values: list[Measurement] = []
    for n in mine:
        if not senses[n].other:
            values += _values(runs[n], senses[n], n + 1 if len(runs) > 1 else None)
    told = [senses[n] for n in mine]
    hosts = next((s.hosts for s in told if s.hosts is not None), None)
    told_all = any(runs[n].ranks or runs[n].rows for n in shown)     # then who printed an error is not all of them
    names = hosts if hosts is not None else () if told_all else words.hosts
    wrong = [s.wrong for s in told if s.wrong is not None]
    checked = [s.validated for s in told if s.validated is not None]
    kinds = {p.kind for p in problems}
    reading = Reading(
        measurements=tuple(values), problems=tuple(p.text for p in problems),
        usable=bool(values) and not kinds & {Kind.BAD, Kind.WRONG}, notes=tuple(_notes(runs, shown, words, told)),
        validated=all(checked) if checked else None, wrong_values=sum(wrong) if wrong else None,
        ranks=next((s.ranks for s in told if s.ranks is not None), None), hosts=len(names) or None,
        host_names=tuple(names), transport=words.transport, runs=max(1, len(runs)))
    run = runs[mine[0]] if len(mine) == 1 and len(runs) == 1 else None
    return Found(reading, tuple(problems), _warnings(runs, mine, words, reading), run,
                 next((a[1] for n in mine for a in runs[n].averages if a[1]), ""))


def _title(run: Run) -> str:
    name = next(iter([*run.starts, *run.ends]), "unnamed").rsplit("/", 1)[-1]
    return f"{lib.shown(name)} with {len(run.rows)} rows"


def _values(run: Run, told: Sense, number: int | None) -> list[Measurement]:
    found = []
    nodes = len(told.hosts) if told.hosts else None
    milli = bool(run.headers and run.headers[-1].milli)
    for row in run.rows:
        for mode, half in row.modes.items():
            for name, value, unit in (("busbw", half.busbw, told.unit), ("algbw", half.algbw, told.unit),
                                      ("time", round(half.time_us / 1000, 9) if milli else half.time_us,
                                       "ms" if milli else "us")):
                found.append(Measurement(name, value, unit, row.size, ranks=told.ranks, nodes=nodes, mode=mode,
                                         run=number, key=False))
    if run.rows and len(run.averages) == 1:
        mode = "all rows" if run.headers[-1].foreign else "all rows, both modes"
        found.append(Measurement("avg_busbw", run.averages[0][0], told.unit, ranks=told.ranks, nodes=nodes, mode=mode,
                                 run=number, key=False))
    return found


def _warnings(runs: Sequence[Run], mine: Sequence[int], words: Words, reading: Reading) -> tuple[str, ...]:
    """What is no defect of the output, and is to be seen beside every value of it."""
    found = []
    for n in mine:
        run = runs[n]
        if run.reduced and run.params:
            found.append(f"largest size reduced from {run.params[0].maximum} to {min(run.reduced)} bytes for lack of "
                         "GPU memory")
        if run.averages and not run.closed and not run.json and not (run.headers and run.headers[-1].foreign):
            found.append("the output is cut off after the average")        # or who pasted it left the last # out
        if several(run):
            found.append(f"the rows are of several {several(run)}")
    if reading.validated is not True and reading.measurements:
        found.append("data not validated")
    return (*found, *(f"NCCL warns: {line}" for line in words.warnings[:3]))


def _notes(runs: Sequence[Run], shown: Sequence[int], words: Words, told: Sequence[Sense]) -> list[str]:
    found = []
    if any(s.validated is False for s in told):
        found.append("the data were not validated")
    for n in shown[:_MOST_RUNS]:
        run = runs[n]
        if run.ranks:
            models = ", ".join(dict.fromkeys(r.model for r in run.ranks))
            hosts = ", ".join(list(dict.fromkeys(r.host for r in run.ranks))[:64])
            found.append(f"{len(run.ranks)} ranks are listed, on {hosts}: {lib.shown(models)}")
        if run.headers and run.headers[-1].check_column == "error":
            found.append("the column error is the largest relative error, not a count")
        found += [lib.shown(row.raw) for row in run.rows[-1:]]
    for run in runs[:_MOST_RUNS]:
        found += [lib.shown(quote) for quote in run.quotes]
    return list(dict.fromkeys([*found, *words.notes]))


# --- a run of ours


def parse(outputs: Sequence[Output], context: Context, of: Collective) -> list[Measurement]:
    """A run of ours must be whole and as it was asked for. Of an output alone, what is whole is given with warnings."""
    output = lib.require(outputs, count=1)[0]
    found = examine(output.text, of)
    _refuse(found, context)
    reading, run = found.reading, found.run
    warnings = (*found.warnings, *(p.text for p in found.problems if p.kind is Kind.PART),
                *nccl_start.unproven(reading, context))
    if context.nodes and run is not None:
        _as_asked(run, context)
        nccl_start.as_planned(run.ranks, output.text, context)
    everyone = context.subject if context.nodes else Subject(tuple(sorted(reading.host_names)))
    placed = _placed(run.ranks if run else (), context)
    as_planned = all(m.expected in (None, m.value) for m in placed)     # else its bandwidth is of something else
    last = max((m.size_bytes or 0 for m in reading.measurements), default=0)
    modes = {m.mode for m in reading.measurements if m.size_bytes is not None}
    main = OUT if OUT in modes else IN if IN in modes else ""
    pairs = context.pairs_at_once if context.layout is Layout.PAIRS else None
    transport, rail = reading.transport or "", context.rail_device
    values = [Measurement(m.name, m.value, m.unit, m.size_bytes, ranks=m.ranks, nodes=m.nodes, mode=m.mode, run=m.run,
                          subject=everyone, warnings=warnings, transport=transport, pairs_at_once=pairs, rail=rail,
                          key=as_planned and (m.name, m.size_bytes, m.mode) == ("busbw", last, main))
              for m in reading.measurements]            # all that _values gives
    extra = []
    if reading.wrong_values is not None:
        extra.append(Measurement("wrong_values", reading.wrong_values, subject=everyone, expected=0, warnings=warnings))
    if found.verdict:
        extra.append(Measurement("tool_verdict", found.verdict, subject=everyone, expected="OK"))
    return [*placed, *extra, *nccl_start.medium(reading, context), *values]


def _refuse(found: Found, context: Context) -> None:
    """ParseError unless the values may be given; wrong data are a verdict, not a reason to give none."""
    fatal = [p.text for p in found.problems if p.kind in (Kind.FATAL, Kind.BAD)]
    parts = [p.text for p in found.problems if p.kind is Kind.PART]
    if fatal or not found.reading.measurements or (context.nodes and parts):
        raise ParseError("; ".join(list(dict.fromkeys([*fatal, *parts]))[:3]) or "no measurement")


def _as_asked(run: Run, context: Context) -> None:
    least, most = sizes_of(context)
    params = run.params[0]
    if (params.minimum, params.maximum) != (least, most):
        raise ParseError(f"ran from {params.minimum} to {params.maximum} bytes, not from {least} to {most}")
    if several(run):
        raise ParseError(f"the rows are of several {several(run)}")
    if not run.closed:
        raise ParseError("the output is cut off after the average")


def _placed(ranks: Sequence[Rank], context: Context) -> list[Measurement]:
    """How many ranks each node has, against its plan."""
    here: dict[str, int] = {n.name: 0 for n in context.nodes}
    for rank in ranks:
        node = lib.planned_node(context, "", rank.host)
        name = node.name if node else rank.host
        here[name] = here.get(name, 0) + 1
    planned = {n.name for n in context.nodes}
    found = []
    for name, count in here.items():
        expected = None if not planned else tasks_of(context) if name in planned else 0
        found.append(Measurement("ranks", count, subject=Subject((name,)), expected=expected, ranks=len(ranks),
                                 key=expected is not None))
    return found


def reading(text: str, context: Context, of: Collective) -> Reading:
    """What one text tells by itself; the context changes nothing."""
    return examine(text, of).reading


def check(name: str, *, title: str, doc: str) -> Check:
    """The check of one collective, one rank a GPU on all GPUs of all nodes."""
    of = COLLECTIVES[name]
    return Check(
        name=name, title=title, scope=Scope.GROUP, impact=Impact.LOAD, needs=("gpu", of.program),
        params={"min_bytes": 1 << 20, "max_bytes": 1 << 33, "rdma": "auto"}, steps=partial(steps_of, of=of),
        parse=partial(parse, of=of), read=partial(reading, of=of), seconds=30.0, doc=doc, layouts=LAYOUTS)


# --- one whole run, for who needs no more than its table


@dataclass(frozen=True)
class Table:
    ranks: tuple[Rank, ...]
    rows: tuple[Row, ...]
    average: float
    out_of_bounds: int
    validation: bool


def read(text: str, program: str) -> Table:
    """The one whole run of a program in a text, all right but for wrong values; else ParseError."""
    of = next(c for c in COLLECTIVES.values() if c.program == program)
    found = examine(text, of)
    if found.has(Kind.PART, Kind.BAD, Kind.FATAL) or found.run is None:
        raise ParseError("; ".join([p.text for p in found.problems][:3]))
    run = found.run
    return Table(tuple(run.ranks), tuple(run.rows), run.averages[0][0], run.bounds[0][0], run.params[0].validation)

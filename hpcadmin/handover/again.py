"""The section of what was measured again after a repair: its runs, what was replaced, both results with raw outputs."""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin.acceptance_model import Acceptance, Again, Result
from hpcadmin.check import Status
from hpcadmin.handover.model import Block, Cell, Column, Link, Paragraph, Section, Table
from hpcadmin.handover.texts import msg, told
from hpcadmin.hosts import fold
from hpcadmin.report.again import always_good, runs_of
from hpcadmin.report.times import local_time
from hpcadmin.rundata import Run

MOST_ROWS = 2000
_MOST_RAW = 200              # results whose raw outputs lie beside the document
_GOOD = (Status.PASS, Status.WARN)


def section(acceptance: Acceptance, copied: frozenset[str], raw: str) -> Section:
    """copied: raw outputs that lie in the folder raw beside the document."""
    rows = _ordered(acceptance)
    bad = [a for a in rows if a.results[0].run == acceptance.first and a.results[0].status not in _GOOD]
    blocks: list[Block] = [
        Paragraph(msg("again_intro", count=len(bad), good=sum(a.status in _GOOD for a in bad))), _runs(acceptance)]
    if acceptance.swaps:
        numbers = {p.run: i for i, p in enumerate(acceptance.parts, 1)}
        blocks.append(Table("again-replaced", msg("table_replaced"), (
            Column(msg("col_node"), "name"), Column(msg("col_what"), "name"), Column(msg("col_old"), "code"),
            Column(msg("col_new"), "code"), Column(msg("col_before_run"), "number")), tuple(
                (s.node, s.what, s.old, s.new, numbers[s.run]) for s in acceptance.swaps)))
    if rows:
        columns = (Column(msg("col_now")), Column(msg("col_check"), "name"), Column(msg("col_where"), "name"),
                   Column(msg("col_number"), "number"), Column(msg("col_result")), Column(msg("col_value")),
                   Column(msg("col_remark")), Column(msg("col_raw"), "code"))
        found = [row for a in rows for row in _results(acceptance, a, copied, raw)]
        blocks.append(Table("again", msg("table_again"), columns, tuple(found[:MOST_ROWS]), note=msg("again_note"),
                            total=len(found)))
    same = always_good(acceptance)
    if same:
        blocks.append(Paragraph(msg("again_same", count=same)))
    return Section("again", msg("section_again"), tuple(blocks))


def refs(run: Run) -> tuple[str, ...]:
    """The raw outputs of both results, which go along with the document."""
    if run.acceptance is None:
        return ()
    found = (r.verdicts[0].outputs[0] for a in _ordered(run.acceptance) for r in a.results
             if r.verdicts and r.verdicts[0].outputs)
    return tuple(dict.fromkeys(found))[:_MOST_RAW]


def _ordered(acceptance: Acceptance) -> list[Again]:
    """What was bad once, worst first."""
    found = [a for a in acceptance.again if a.status not in _GOOD or any(
        r.status not in _GOOD or r.remark for r in a.results)]
    return sorted(found, key=lambda a: (-a.status.rank, a.check, a.subject.nodes, a.subject.device))


def _runs(acceptance: Acceptance) -> Table:
    columns = (Column(msg("col_number"), "number"), Column(msg("col_run"), "name"),
               Column(msg("col_started"), "name"), Column(msg("col_ended"), "name"),
               Column(msg("col_again_of"), "number"), Column(msg("col_tests"), "number"),
               Column(msg("col_state"), "name"), Column(msg("col_remark")))
    numbers = {p.run: i for i, p in enumerate(acceptance.parts, 1)}
    rows: list[tuple[Cell, ...]] = [
        (r.number, p.run, local_time(p.started), local_time(p.ended), numbers.get(p.retest_of), p.tests, p.state,
         msg("again_does_not_count", why=told(p.why)) if p.why else "")
        for r, p in zip(runs_of(acceptance), acceptance.parts, strict=True)]
    return Table("again-runs", msg("table_again_runs"), columns, tuple(rows))


def _results(acceptance: Acceptance, one: Again, copied: frozenset[str], raw: str) -> Iterable[tuple[Cell, ...]]:
    numbers = {p.run: i for i, p in enumerate(acceptance.parts, 1)}
    where = _where(one)
    for place, r in enumerate(one.results):
        remark = told(r.remark or (one.remark if place == len(one.results) - 1 and len(one.results) == 1 else ""))
        yield (one.status, one.check, where, numbers[r.run], r.status, told(r.value), remark, _raw(r, copied, raw))


def _where(one: Again) -> str:
    nodes = one.subject.nodes
    return f"{' - '.join(nodes) if len(nodes) <= 2 else fold(nodes)} {one.subject.device}".strip()


def _raw(result: Result, copied: frozenset[str], raw: str) -> Link:
    ref = result.verdicts[0].outputs[0] if result.verdicts and result.verdicts[0].outputs else ""
    path = ref.partition("#")[0]
    return Link(ref, f"{raw}/{path}" if path in copied else "")

"""The quarter's runs, and what our runs saw where Slurm's events tell nothing, as sections of the document."""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin.availability.document import Cell, Column, Seconds, Section, Share, Table
from hpcadmin.availability.evidence import Seen
from hpcadmin.availability.quarter import Quarter, SuiteChange
from hpcadmin.history import Change
from hpcadmin.history_runs import Turned
from hpcadmin.report.times import duration, local_time
from hpcadmin.text import number


def seen_section(seen: Seen, seconds: int) -> Section:
    """seconds: of the period."""
    rows: list[tuple[Cell, ...]] = [
        (node, of.up, of.not_usable, Seconds(of.seconds), Share(of.seconds, seconds) if seconds else None,
         of.last_reason) for node, of in sorted(seen.looks.items(), key=lambda item: (-item[1].not_usable, item[0]))]
    text = ("A run proves that a node was up while a step ran there, and nothing of the time between. What else is not "
            "known stays not known.")
    return Section("seen", "What our runs saw", (text,), (Table(
        "seen", f"Looks of {seen.runs} runs at nodes of which Slurm's events tell nothing",
        (Column("node"), Column("ran", "number"), Column("not usable", "number"), Column("proven up", "time"),
         Column("of the period", "percent"), Column("last reason")), tuple(rows)),) if rows else ())


def quarter_sections(found: Quarter) -> list[Section]:
    made = [_runs(found)]
    for change in found.changes:
        made.append(_change(change))
    made.append(_drifts(found))
    return made


def _runs(found: Quarter) -> Section:
    rows = tuple((e.name, f"{e.suite} (simulated)" if e.simulated else e.suite, local_time(e.started),
                  duration(e.started, e.ended), e.nodes, found.words.get(e.name, ""),
                  ", ".join([*(["baseline"] if e.baseline else []), *e.tags])) for e in found.runs)
    texts = () if rows else ("No run was begun in the period.",)
    return Section("runs", "Runs of the period", texts, (Table(
        "runs", "Each with its result; of the last complete one of a suite in full",
        (Column("run"), Column("suite"), Column("started"), Column("took"), Column("nodes"), Column("result"),
         Column("tags")), rows),) if rows else ())


def _change(change: SuiteChange) -> Section:
    title = f"What changed in suite {change.suite}"
    name = f"changed-{change.suite}"
    c = change.comparison
    if c is None:
        return Section(name, title, (f"{change.new}: {change.why}",))
    word = {1: "WORSE", 0: "NOT WORSE", 3: "NOT KNOWN"}[c.status]
    texts = [f"{word}: {change.new} against {change.old}, the {change.old_is}: {c.compared} verdicts and "
             f"{c.values.values} values compared", *(f"other: {text}" for text in c.around),
             *(f"problem: {text}" for text in c.problems)]
    if not c.hardware_known:
        texts.append("serials and firmware are not compared: one of the runs has no inventory")
    elif not c.hardware:
        texts.append("no serial and no firmware is another one")
    worse = [x for x in c.values.changes if x.worse]
    tables = [
        _turned(f"{name}-worse", "Got worse: passed before", c.worse),
        _lines(f"{name}-findings", "New findings", ((f.status.value, f.text) for f in c.appeared)),
        _values(f"{name}-lost", "Values that got worse, beyond noise", worse),
        _turned(f"{name}-untold", "Not known any more", c.untold),
        _turned(f"{name}-fixed", "Fixed", c.fixed),
        _lines(f"{name}-gone", "Findings that are gone", ((f.status.value, f.text) for f in c.gone)),
        _values(f"{name}-gained", "Values that got better, beyond noise",
                [x for x in c.values.changes if not x.worse]),
        Table(f"{name}-hardware", "Replaced serials, changed firmware and hardware",
              (Column("what happened"), Column("node"), Column("what")),
              tuple((h.kind, h.node or "fabric", h.text) for h in c.hardware))]
    return Section(name, title, tuple(texts), tuple(t for t in tables if t.rows))


def _turned(name: str, title: str, turned: Iterable[Turned]) -> Table:
    return Table(name, title, (Column("check"), Column("where"), Column("before"), Column("now"), Column("why")),
                 tuple((t.check, t.where, t.old.value, t.new.value, t.reason) for t in turned))


def _lines(name: str, title: str, lines: Iterable[tuple[str, str]]) -> Table:
    return Table(name, title, (Column("status"), Column("finding")), tuple(lines))


def _values(name: str, title: str, changes: Iterable[Change]) -> Table:
    return Table(name, title, (Column("node"), Column("what changed most"), Column("by"), Column("from"), Column("to"),
                               Column("unit")),
                 tuple((c.entity.text if c.entity else f"all {c.nodes}", f"{c.check} {c.worst.text}",
                        f"{c.percent:+.1f} %", number(c.old), number(c.new), c.unit) for c in changes))


def _drifts(found: Quarter) -> Section:
    rows = tuple((d.entity.text if d.entity else "all nodes",
                  f"{d.check} {d.name}, all sizes" if d.condition is None else f"{d.check} {d.condition.text}",
                  "for the worse" if d.worse else "for the better", f"{d.percent:+.1f} %",
                  "-" if d.step or d.percent_per_week is None else f"{d.percent_per_week:+.1f} %", d.points,
                  f"step between {d.step[0]} and {d.step[1]}" if d.step else f"from {d.first} to {d.last}")
                 for d in found.drifts)
    text = found.drift_note or (f"{found.series} series of values were looked at"
                                + ("" if rows else ", none drifts"))
    return Section("drifts", "Slow drifts", (text,), (Table(
        "drifts", "Beyond noise", (Column("node"), Column("what"), Column("which way"), Column("over the time"),
                                   Column("a week"), Column("runs", "number"), Column("how")), rows),) if rows else ())


def simulated_of(found: Quarter | None) -> str:
    return ", ".join(sorted({e.simulated for e in found.runs if e.simulated})) if found else ""



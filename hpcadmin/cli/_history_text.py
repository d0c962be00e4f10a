"""A comparison and a trend as text for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hpcadmin.history import Change
    from hpcadmin.history_runs import Comparison, Turned
    from hpcadmin.history_trend import Drift

_MOST = 20


def say_comparison(found: Comparison, *, everything: bool) -> None:
    from hpcadmin.report.times import local_time
    from hpcadmin.text import plural, printable
    for line in (f"New: {found.new}, {local_time(found.new_started)}", f"Old: {found.old}, "
                 f"{local_time(found.old_started)}", *(f"Other: {text}" for text in found.around),
                 *(f"Problem: {text}" for text in found.problems[:5])):
        click.echo(printable(line, limit=600))
    if found.values.past:
        click.echo(f"Noise is known from {plural(found.values.past, 'earlier run')} too.")
    _turned("Worse: passed before", found.worse, everything)
    _lines("New findings", [f"{f.status.value:5} {f.text}" for f in found.appeared], everything)
    replaced = {c.node for c in found.hardware}
    _changes("Values that got worse, beyond noise", [c for c in found.values.changes if c.worse], replaced, everything)
    _turned("Not known any more", found.untold, everything)
    _turned("Fixed", found.fixed, everything)
    _lines("Findings that are gone", [f.text for f in found.gone], everything)
    _changes("Values that got better, beyond noise", [c for c in found.values.changes if not c.worse], replaced,
             everything)
    _lines("Hardware and firmware", [f"{c.kind:8} {c.node + ': ' if c.node else ''}{c.text}" for c in found.hardware],
           everything)
    _foot(found)


def _foot(found: Comparison) -> None:
    from hpcadmin.text import plural, printable
    click.echo("")
    if not found.hardware_known:
        click.echo("Hardware and firmware are not compared: one of the runs has no inventory.")
    few = found.values.few
    if few:
        click.echo(printable(f"Too few values to tell changes below 20 %: {', '.join(few)}", limit=600))
    for what, names in (("old", found.values.only_old), ("new", found.values.only_new)):
        if names:
            click.echo(printable(f"Only in the {what} run: {', '.join(names)}", limit=600))
    worse = sum(c.worse for c in found.values.changes)
    better = len(found.values.changes) - worse
    told = {1: "WORSE", 0: "NOT WORSE", 3: "NOT KNOWN"}[found.status]
    click.echo(f"{told}: {plural(found.compared, 'verdict')} compared, {sum(len(t.nodes) or 1 for t in found.worse)} "
               f"worse, {sum(len(t.nodes) or 1 for t in found.fixed)} fixed, {found.still} bad in both; "
               f"{plural(found.values.values, 'value')} compared, {worse} worse, {better} better")


def _lines(title: str, lines: Sequence[str], everything: bool) -> None:
    from hpcadmin.text import printable
    if not lines:
        return
    click.echo(f"\n{title}")
    shown = lines if everything else lines[:_MOST]
    for line in shown:
        click.echo(f"  {printable(line, limit=400)}")
    _more(len(lines) - len(shown))


def _more(count: int) -> None:
    if count > 0:
        click.echo(f"… and {count} more, --all shows them")


def table(title: str, rows: Sequence[Sequence[str]], headers: Sequence[str], *, everything: bool) -> None:
    from hpcadmin.cli._table import print_table
    from hpcadmin.text import printable
    if not rows:
        return
    click.echo(f"\n{printable(title, limit=400)}")
    shown = rows if everything else rows[:_MOST]
    print_table([[printable(cell, limit=200) for cell in row] for row in shown], headers)
    _more(len(rows) - len(shown))


def _turned(title: str, turned: Iterable[Turned], everything: bool) -> None:
    table(title, [[t.check, t.where, t.old.value, t.new.value, t.reason] for t in turned],
          ["check", "where", "old", "new", "why"], everything=everything)


def _changes(title: str, changes: Sequence[Change], replaced: Collection[str], everything: bool) -> None:
    def row(c: Change) -> list[str]:
        sizes = f"{c.beyond or 'together, all'} of {c.conditions}" if c.conditions > 1 else ""
        hardware = "its hardware changed" if c.entity and c.entity.node in replaced else ""
        return [c.entity.text if c.entity else f"all {c.nodes}", f"{c.check} {c.worst.text}", percent(c.percent),
                f"{shown(c.old)} -> {shown(c.new)} {c.unit}", sizes,
                ", ".join(part for part in (sure(c.q), c.transport, hardware) if part)]
    table(title, [row(c) for c in changes], ["node", "what changed most", "by", "from, to", "sizes", "by chance"],
          everything=everything)


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M %z")


def percent(value: float) -> str:
    return f"{value:+.1f} %"


def shown(value: float) -> str:
    from hpcadmin.text import number
    return number(value)


def sure(q: float | None) -> str:
    """The chance that it is none."""
    return "-" if q is None else "< 0.1 %" if q < 0.001 else f"{100 * q:.1f} %"


def comparison_json(found: Comparison) -> dict[str, Any]:
    from hpcadmin.history_runs import COMPARE_SCHEMA
    from hpcadmin.records import to_plain
    plain: dict[str, Any] = to_plain(found)
    plain["values"]["changes"] = [named(c) for c in found.values.changes]
    return {"schema": COMPARE_SCHEMA, "kind": "hpcadmin-comparison", "exit_status": found.status, **plain}


def named(row: Change | Drift) -> dict[str, Any]:
    """A row as JSON, with names for what a condition and an entity are made of."""
    from dataclasses import fields

    from hpcadmin.records import to_plain
    return {f.name: value._asdict() if hasattr(value, "_asdict") else to_plain(value)
            for f in fields(row) for value in [getattr(row, f.name)]}

"""hpcadmin report --availability and --quarter: how much of the time nodes were there; a quarter at once."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hpcadmin.availability.document import Document
    from hpcadmin.availability.forms import Whole
    from hpcadmin.availability.gather import Gathered
    from hpcadmin.availability.period import Period
    from hpcadmin.availability.quarter import Quarter
    from hpcadmin.availability.rules import Rules
    from hpcadmin.site import Site
    from hpcadmin.slurm.events import Answers


@dataclass(frozen=True)
class Asked:
    """What was typed. quarter "": only the availability, of `period`."""

    period: str = ""
    quarter: str = ""
    nodes: str = ""
    target: str = ""
    events: str = ""
    form: str = "table"
    output: str = ""
    everything: bool = False


def availability_command(obj: dict[str, str | None], asked: Asked) -> int:
    """The exit status: 0 the line is met, 1 it is not, 3 it is not shown."""
    from hpcadmin.availability.period import period_of, quarter_of, this_quarter, zone_of
    from hpcadmin.records import without_gc
    from hpcadmin.site import load_site
    from hpcadmin.toml_text import locate
    site = load_site(obj["site"])
    zone = zone_of(site.availability.zone, locate(site.source, "availability.zone") if site.source else "")
    answers = _kept(asked.events) if asked.events else None
    now = answers.asked if answers else int(time.time())
    period = quarter_of(asked.quarter, now, zone) if asked.quarter else period_of(
        asked.period or this_quarter(now, zone), now, zone)
    rules = _rules(site, asked.target)
    kept = answers is None
    if answers is None:
        answers = _ask(period, now)
    target = _target(site, asked, period)
    events, raw = _events_file(target, answers) if kept else (None, b"")
    with without_gc():                  # a hundred thousand events are as many claims, segments and incidents
        made, runs = _gather(obj, asked, period, rules, answers)
        whole = _whole(asked, made, runs, [
            ("events kept in", f"{events.name}, SHA-256 {hashlib.sha256(raw).hexdigest()}")] if events else [])
    if target is None:
        _print(whole, asked)
    else:
        from hpcadmin.availability.forms import content
        from hpcadmin.files import write_atomic
        if events:
            write_atomic(events, raw)
        write_atomic(target, content(whole, asked.form))
        click.echo(f"{whole.doc.word}: {whole.doc.result[0]}")
        click.echo(str(target))
    return whole.found.status


def _kept(name: str) -> Answers:
    from hpcadmin.availability.gather import load_answers
    return load_answers(Path(name))


def _ask(period: Period, now: int) -> Answers:
    """What slurmdbd says; where there is none, that."""
    from hpcadmin.errors import SlurmError
    from hpcadmin.slurm.events import Answers, ask
    try:
        return ask(period.start, period.end, now)
    except SlurmError as exc:
        return Answers(now, error=str(exc))


def _rules(site: Site, target: str) -> Rules:
    from dataclasses import replace

    from hpcadmin.availability.rules import rules_of
    from hpcadmin.errors import UsageError
    from hpcadmin.site_availability import percent
    rules = rules_of(site.availability)
    if not target:
        return rules
    wanted = percent(target.strip().removesuffix("%"))
    if wanted is None:
        raise UsageError(f"--target {target!r} is no percentage above 0 and up to 100", hint="--target 99.95")
    return replace(rules, target=wanted)


def _gather(obj: dict[str, str | None], asked: Asked, period: Period, rules: Rules, answers: Answers,
            ) -> tuple[Gathered, Quarter | None]:
    from hpcadmin.availability.gather import gather
    from hpcadmin.availability.quarter import quarter
    from hpcadmin.cli._runs_keep import indexed
    from hpcadmin.hosts import expand
    nodes = expand(asked.nodes) if asked.nodes else []
    made: Gathered = indexed(obj, lambda index: gather(period, rules, answers, index, nodes))
    if not asked.quarter:
        return made, None
    runs: Quarter = indexed(obj, lambda index: quarter(index, period.start, period.end, made.found.cluster))
    return made, runs


def _whole(asked: Asked, made: Gathered, runs: Quarter | None, evidence: list[tuple[str, str]]) -> Whole:
    from hpcadmin import __version__
    from hpcadmin.availability.document import document
    from hpcadmin.availability.forms import Whole
    from hpcadmin.availability.gather import months_of
    from hpcadmin.availability.sections import quarter_sections, seen_section, simulated_of
    p = made.found.period
    where = f" of {made.found.cluster}" if made.found.cluster else ""
    title = f"Quarter {p.name}{where}" if asked.quarter else f"Availability{where}, {p.name}"
    answers = made.answers
    source = "our own runs alone" if answers is None or answers.error else (
        f"slurmdbd of Slurm {answers.version}, asked {p.time(answers.asked)}")
    found = made.found
    if runs is not None and runs.problems:
        from dataclasses import replace
        found = replace(found, problems=(*found.problems, *runs.problems))
    sections = [*([seen_section(made.seen, p.seconds)] if made.seen.looks else []),
                *(quarter_sections(runs) if runs is not None else [])]
    doc = document(found, title, f"by hpcadmin {__version__}, {p.time(int(time.time()))}", months_of(found), sections,
                   evidence=[("known from", source), *evidence], simulated=simulated_of(runs))
    return Whole(found, doc, runs)


def _target(site: Site, asked: Asked, period: Period) -> Path | None:
    """Where it is written; None: stdout."""
    from hpcadmin.availability.forms import SUFFIXES
    from hpcadmin.errors import UsageError
    from hpcadmin.files import require_replaceable
    from hpcadmin.state import make_private, state_dir
    if asked.output == "-" or (not asked.output and asked.form not in ("html", "xlsx")):
        if asked.form == "xlsx":
            raise UsageError("xlsx is not text", hint="-o FILE.xlsx writes it to a file")
        return None
    if asked.output:
        if asked.form == "table":
            raise UsageError("a table is for the terminal", hint="--format html, xlsx, markdown, csv or json")
        path = Path(os.path.abspath(asked.output))  # noqa: PTH100  (links stay as the user wrote them)
        require_replaceable(path)
        return path
    name = re.sub(r"[^A-Za-z0-9-]+", "-", period.name)
    folder = make_private(state_dir(site) / "availability")
    return folder / f"{'quarter' if asked.quarter else 'availability'}-{name}{SUFFIXES[asked.form]}"


def _events_file(target: Path | None, answers: Answers) -> tuple[Path | None, bytes]:
    """Beside the document: what it rests on, also when slurmdbd has purged it."""
    from hpcadmin import records
    if target is None or answers.error:
        return None, b""
    return target.with_name(f"{target.stem}.events.json"), (records.dumps(answers, indent=1) + "\n").encode(
        "utf-8", "backslashreplace")


def _print(whole: Whole, asked: Asked) -> None:
    from hpcadmin.availability.forms import content
    if asked.form != "table":
        sys.stdout.write(content(whole, asked.form).decode())
        return
    say(whole.doc, everything=asked.everything)


def say(doc: Document, *, everything: bool) -> None:
    """The document on a terminal, its result last, where it is read."""
    from hpcadmin.availability.forms import cell_text
    from hpcadmin.cli._history_text import table
    from hpcadmin.text import printable

    def line(text: str) -> None:
        click.echo(printable(text, limit=600))
    line(doc.title)
    if doc.simulated:
        line(f"Runs on simulated hardware: {doc.simulated}")
    for name, text in doc.facts:
        line(f"{name}: {text}")
    for kind, texts in (("Note", doc.notes), ("Problem", doc.problems)):
        for text in texts if everything else texts[:10]:
            line(f"{kind}: {text}")
    for section in doc.sections:
        if section.name == "nodes" and not everything and len(section.tables[0].rows) > section.tables[0].short:
            continue
        if section.texts:
            click.echo("")
        for text in section.texts:
            line(f"{section.title}: {text}")
        for t in section.tables:
            rows = [[cell_text(cell) for cell in row] for row in (t.rows if everything else t.rows[:t.short])]
            table(f"{section.title}: {t.title}", rows, [c.title for c in t.columns], everything=True)
            if len(t.rows) > len(rows):
                click.echo(f"… and {len(t.rows) - len(rows)} more, --all shows them")
    click.echo("")
    for text in doc.result:
        line(f"{doc.word}: {text}")

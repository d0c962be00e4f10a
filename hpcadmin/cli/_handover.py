"""report --handover: gathers what the document needs beside the run, writes it, and says what it states."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hpcadmin.handover.assess import Statement
    from hpcadmin.handover.build import Beside
    from hpcadmin.handover.texts import Words
    from hpcadmin.rundata import Run


def write_handover(site_file: str | None, run_name: str | None, output: str | None, criteria: Sequence[str],
                   language: str, *, conf: str | None, live: str | None, alone: bool = False) -> int:
    from hpcadmin.acceptance_read import read_acceptance
    from hpcadmin.errors import UsageError
    from hpcadmin.handover.criteria import read_terms
    from hpcadmin.handover.folder import PAGE, write
    from hpcadmin.handover.texts import Words
    from hpcadmin.registry import load_checks
    from hpcadmin.report.folders import find_run
    from hpcadmin.rundata import read_run
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir
    from hpcadmin.text import printable
    if live and not conf:
        raise UsageError("--live needs --conf: the live files are compared with those that are handed over")
    if output == "-":
        raise UsageError("the document is a folder and cannot go to stdout", hint="-o names the folder")
    site = load_site(site_file)
    words = Words(language)
    named = find_run(runs_dir(site), run_name)
    run = read_run(named) if alone else read_acceptance(named, runs_dir(site))
    if alone and run.manifest.retest_of:
        raise UsageError(f"run {named.name} measured again only what failed in {run.manifest.retest_of}: by itself it "
                         "is no acceptance", hint="without --alone both are one")
    path = run.path
    known = {*load_checks(site.checks_dir), *(e.check for e in (run.plan.entries if run.plan else ()))}
    terms = read_terms([Path(name) for name in criteria], known)
    folder = Path(os.path.abspath(output)) if output else path / "handover"  # noqa: PTH100  (as the user wrote it)
    doc = write(run, terms, datetime.date.today(), folder, language=language, beside=_beside(run, conf, live))
    click.echo(words(f"word_{doc.statement.word.value}"))
    for reason in doc.statement.reasons:
        click.echo(f"  {printable(words.say(reason))}")
    for line in _short(doc.statement, words):
        click.echo(f"  {printable(line, limit=200)}")
    click.echo(printable(str(folder / PAGE)))
    return exit_status(doc.statement)


def _short(statement: Statement, words: Words) -> list[str]:
    """What a criterion is short of that is neither met nor waived: the first, bad before missing, and how many more."""
    from hpcadmin.handover.shown import Outcome
    lines = []
    for judged in statement.criteria:
        short = sorted((s for s in judged.shortfalls if not s.waiver), key=lambda s: s.missing)
        if short and judged.outcome in (Outcome.NOT_MET, Outcome.NOT_SHOWN):
            parts = [judged.number, short[0].what, words.told(short[0].text)]
            lines.append(": ".join(p for p in parts if p) + (f" (+{len(short) - 1})" if len(short) > 1 else ""))
    return lines


def _beside(run: Run, conf: str | None, live: str | None) -> Beside:
    from hpcadmin.handover.build import Beside
    from hpcadmin.handover.folder import read_conf
    beside = read_conf(Path(conf), Path(live) if live else None) if conf else Beside()
    digest, signature, problems = _seal_of(run.path)
    signed: dict[str, str] = {}
    for part in run.acceptance.parts[1:] if run.acceptance else ():
        _, who, wrong = _seal_of(Path(part.folder))
        signed[part.run] = who
        problems += [f"{part.run}: {what}" for what in wrong]
    return replace(beside, digest=digest, signature=signature, problems=tuple(problems), signed=signed)


def _seal_of(path: Path) -> tuple[str, str, list[str]]:
    """The digest of a run's seal, whose key signed it, and what is not as it was sealed."""
    from hpcadmin import seal, seal_sign
    from hpcadmin.errors import StoreError
    if not seal.is_sealed(path):
        return "", "", []
    try:
        found = seal.read_seal(path)
    except StoreError as exc:
        return "", "", [str(exc)]
    wrong = seal.verify(found, seal.look(path), path.name)
    problems = [f"{name}: {what}" for names, what in (
        (wrong.changed, "is not as it was sealed"), (wrong.missing, "was sealed and is gone"),
        (wrong.added, "was not there when the folder was sealed")) for name in names] + list(wrong.odd)
    problems += [f"its seal is of another run: {wrong.other}"] if wrong.other else []
    signature = seal_sign.check(path, None, found)
    if signature.trust is seal_sign.Trust.BAD:
        problems.append(f"the signature of the seal is bad: {signature.reason}")
    signed = signature.trust in (seal_sign.Trust.GOOD, seal_sign.Trust.UNKNOWN)
    return found.digest, f"{signature.signer} {signature.key}".strip() if signed else "", problems


def exit_status(statement: Statement) -> int:
    from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK
    from hpcadmin.handover.assess import Word
    from hpcadmin.handover.shown import Outcome
    if statement.word is not Word.NOT_ACCEPTED:
        return EXIT_OK
    bad = any(c.outcome is Outcome.NOT_MET for c in statement.criteria)
    return EXIT_FAILED if bad else EXIT_INCOMPLETE

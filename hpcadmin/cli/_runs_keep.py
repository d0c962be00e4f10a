"""hpcadmin runs tag, baseline, prune, export, import and reindex: which runs are kept, and where."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.text import plural, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcadmin.store import Index

Obj = dict[str, "str | None"]


def runs_folder(obj: Obj) -> Path:
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir
    return runs_dir(load_site(obj["site"]))


def run_of(obj: Obj, name: str | None) -> Path:
    from hpcadmin.report.folders import find_run
    return find_run(runs_folder(obj), name)


def indexed(obj: Obj, work: Callable[[Index], Any], *, anew: bool = False) -> Any:
    from hpcadmin.cli import complain
    from hpcadmin.store import with_index
    told = click.get_current_context().meta.setdefault(f"{__name__}.told", set())      # some look at it twice

    def once(text: str) -> None:
        if text not in told:
            complain(text)
        told.add(text)
    return with_index(runs_folder(obj), work, once, anew=anew)


@click.command("tag")
@click.argument("run_name", metavar="RUN")
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", metavar="TAG", multiple=True, help="Take this tag away.")
@click.pass_obj
def tag_command(obj: Obj, run_name: str, tags: tuple[str, ...], remove: tuple[str, ...]) -> int:
    """Give a run tags, and show those that it has. A tagged run is never pruned, but for sweep's own tag."""
    from hpcadmin.store_marks import change_marks, read_marks, with_tags
    folder = run_of(obj, run_name)
    marks = change_marks(folder, lambda m: with_tags(m, tags, remove)) if tags or remove else read_marks(folder)
    click.echo(printable(f"{folder.name}: {', '.join(marks.tags) or 'no tag'}"))
    return 0


@click.command("baseline")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--clear", is_flag=True, help="It is none any more.")
@click.pass_obj
def baseline_command(obj: Obj, run_name: str | None, clear: bool) -> int:
    """Make a run the one that later runs of its suite are compared with; without RUN show which are.

    There is one of each suite and cluster, the one that was named last.
    """
    from hpcadmin.errors import UsageError
    from hpcadmin.run_folder import iso_now, read_record
    from hpcadmin.run_seal import damage
    from hpcadmin.rundata import Manifest, read_run
    from hpcadmin.store import Wanted
    from hpcadmin.store_marks import change_marks
    if run_name is None:
        found = indexed(obj, lambda index: index.find(Wanted(baseline=True)))
        for entry in found:
            where = f" on {entry.cluster}" if entry.cluster else ""
            click.echo(printable(f"{entry.name}: baseline of {entry.suite}{where} since {entry.baseline}"))
        if not found:
            click.echo("no run is a baseline (hpcadmin runs baseline RUN makes one)")
        return 0
    folder = run_of(obj, run_name)
    manifest = read_record(folder / "manifest.json", Manifest)
    if manifest.state != "complete" and not clear:
        raise UsageError(f"run {folder.name} is {manifest.state}: only a complete run can be a baseline")
    if not clear and (problems := damage(read_run(folder))):
        raise UsageError(f"run {folder.name} is damaged, and nothing can be compared with it: {problems[0]}")
    change_marks(folder, lambda m: replace(m, baseline="" if clear else iso_now()))
    if clear:
        click.echo(printable(f"{folder.name} is no baseline"))
        return 0
    wanted = Wanted(suite=plain_suite(manifest.suite), cluster=manifest.cluster, baseline=True)
    for entry in indexed(obj, lambda index: index.find(wanted)):
        if entry.name != folder.name:
            change_marks(entry.path, lambda m: replace(m, baseline=""))
    click.echo(printable(f"{folder.name} is the baseline of {manifest.suite}"))
    return 0


def plain_suite(suite: str) -> str:
    """A name as a pattern of that name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in suite)


@click.command("prune")
@click.option("--keep-last", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="Keep the last N runs of each suite.")
@click.option("--keep-days", type=click.FloatRange(min=0), default=90, show_default=True, metavar="D",
              help="Keep what is younger than D days.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; asks nothing, so that it needs --yes or --dry-run.")
@click.pass_obj
def prune_command(obj: Obj, *, keep_last: int, keep_days: float, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove old runs. Never those that are a baseline, tagged, signed, not over, watched, cannot be read, or are of an
    acceptance (a run with its re-tests) of which a run stays."""
    from hpcadmin.errors import UsageError
    from hpcadmin.store_prune import Rules, choose, finish_removals, remove, still_kept
    entries = indexed(obj, lambda index: index.find())
    goes, kept = [], {}
    for choice in choose(entries, Rules(keep_last, keep_days), time.time()):
        why = choice.why or still_kept(choice.entry.path)
        if why:
            kept[choice.entry.name] = why
        else:
            goes.append(choice.entry)
    if not as_json:
        for entry in goes:
            click.echo(printable(f"{entry.name}: {'goes' if yes and not dry_run else 'would go'}"))
        click.echo(f"{len(goes)} of {plural(len(entries), 'run')} {'go' if yes and not dry_run else 'would go'}, "
                   f"{len(kept)} stay")
    if goes and not dry_run:
        if not yes and (as_json or not sys.stdin.isatty()):
            raise UsageError("nothing removed: nobody can be asked whether these runs may go",
                             hint="--yes, or --dry-run")
        if not yes and not click.confirm("Remove them?"):
            return 0
        finish_removals(runs_folder(obj))
        for entry in goes:
            remove(entry.path)
    if as_json:
        sys.stdout.write(json.dumps({"removed": [] if dry_run else [e.name for e in goes],
                                     "would_go": [e.name for e in goes] if dry_run else [], "kept": kept},
                                    indent=1) + "\n")
    return 0


@click.command("export")
@click.argument("run_name", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Where to; else RUN.tar.gz here.")
@click.pass_obj
def export_command(obj: Obj, run_name: str, output: str | None) -> int:
    """Write a run as one tar.gz, with the hashes of all its files, its signature and its tags."""
    from hpcadmin.errors import UsageError
    from hpcadmin.run_folder import iso_now
    from hpcadmin.store_archive import export
    folder = run_of(obj, run_name)
    target = Path(output or f"{folder.name}.tar.gz").absolute()
    if target.exists():
        raise UsageError(f"{target} is there already")
    seal = export(folder, target, iso_now())
    click.echo(printable(f"{target}: {len(seal.files)} files, SHA-256 of SHA256SUMS: {seal.digest}"))
    return 0


@click.command("import")
@click.argument("archive", metavar="FILE")
@click.pass_obj
def import_command(obj: Obj, archive: str) -> int:
    """Take in a run that runs export wrote, here or elsewhere. Only if all its hashes fit."""
    from hpcadmin.errors import UsageError
    from hpcadmin.state import make_private
    from hpcadmin.store_archive import take_in
    if not Path(archive).is_file():
        raise UsageError(f"there is no file {archive}")
    path, seal = take_in(Path(archive), make_private(runs_folder(obj)))
    click.echo(printable(f"{path}: {len(seal.files)} files, all as sealed; SHA-256 of SHA256SUMS: {seal.digest}"))
    return 0


@click.command("reindex")
@click.pass_obj
def reindex_command(obj: Obj) -> int:
    """Make the index over the runs anew from their folders alone."""
    found = indexed(obj, lambda index: index.find(), anew=True)
    bad = [entry.name for entry in found if entry.problem]
    click.echo(f"{len(found)} runs{f', {len(bad)} of them unreadable' if bad else ''}")
    return 0


COMMANDS = (tag_command, baseline_command, prune_command, export_command, import_command, reindex_command)

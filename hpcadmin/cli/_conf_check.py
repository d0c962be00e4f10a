"""hpcadmin conf check: existing files, or any text with lines of them, judged by rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.cli import complain
from hpcadmin.cli._conf_check_text import Checked, as_plain, shown
from hpcadmin.errors import StoreError, UsageError

if TYPE_CHECKING:
    from hpcadmin.conf.check.finding import Finding, Situation
    from hpcadmin.conf.check.run import Result
    from hpcadmin.conf.existing.parts import Configuration
    from hpcadmin.conf.keys import Version
    from hpcadmin.model import Inventory
    from hpcadmin.site import Site

MAX_TEXT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Asked:
    """What the command line says beside the paths."""

    slurm_version: str = ""
    targets: tuple[str, ...] = ()
    inventory: str = ""
    live: bool = False
    ignore: tuple[str, ...] = ()


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--slurm-version", metavar="VERSION", default="",
              help="The cluster's Slurm, 22.05 to 26.05 (else the site's, else the nodes'; else all are judged for).")
@click.option("--target-version", "targets", metavar="VERSION", multiple=True,
              help="A Slurm that the cluster is to go to; may be given again.")
@click.option("--inventory", metavar="FILE", default="",
              help="What was discovered, to compare with (else the accepted inventory).")
@click.option("--live", is_flag=True, help="Ask slurmctld as well: states and reasons of the nodes, settings in force.")
@click.option("--with-slurmd", is_flag=True,
              help="Put the files before real slurmctld and slurmd too, in namespaces, without the hardware (root).")
@click.option("--slurm-root", metavar="DIR", default="",
              help="With a system in DIR that has another Slurm, in the place of this machine's.")
@click.option("--ignore", "ignore", metavar="RULE", multiple=True,
              help="Leave a rule out (gres.links, or gres for all of them); it is counted and named.")
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
@click.pass_context
def check(ctx: click.Context, /, *, paths: tuple[str, ...], as_json: bool, **options: object) -> int:
    """Judge slurm.conf, gres.conf, cgroup.conf and topology files.

    PATH is a folder (else the site's conf_dir), files by their names (slurm.conf gres.conf), or any text that has lines
    of them: a mail, a paste, a log; "-" is the standard input.
    Exit status: 0 nothing wrong, 1 findings above NOTE, 2 usage, 3 something is missing or cannot be read, 4 slurmctld
    did not answer (--live) and nothing else is wrong.
    """
    from hpcadmin.site import load_site
    site = load_site(ctx.obj["site"])
    asked = Asked(str(options["slurm_version"]), _texts(options["targets"]), str(options["inventory"]),
                  bool(options["live"]), (*_texts(options["ignore"]), *site.slurm.check_ignore))
    root = str(options["slurm_root"])
    if not (options["with_slurmd"] or root):
        done = checked(paths or (site.slurm.conf_dir,), site, asked)
        click.echo(as_plain(done) if as_json else shown(done), nl=as_json)
        return done.status
    from hpcadmin.cli._conf_proof import Prover
    prover = Prover(root)
    done = checked(paths or (site.slurm.conf_dir,), site, asked, prover.findings)
    done = replace(done, incomplete=(*done.incomplete, *prover.incomplete()), notes=(*done.notes, *prover.notes(done)))
    click.echo(as_plain(done, prover.plain()) if as_json else f"{prover.text()}{shown(done)}", nl=as_json)
    return done.status


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def checked(paths: Sequence[str], site: Site, asked: Asked, more: Callable[[Situation], Iterable[Finding]] | None = None
            ) -> Checked:
    """more: findings of another origin for the files (not for pasted texts), sorted in with those of the rules."""
    from hpcadmin.conf.check.finding import Situation
    from hpcadmin.conf.check.run import judge
    given = sort_out(paths)
    inventory, notes = find_inventory(site, asked, files=bool(given.folder or given.files))
    situation = Situation(_nothing(), inventory=inventory, site=site)
    problem = ""
    if asked.live:
        situation, problem = with_live(situation)
        if problem:
            given.incomplete.append(problem)
            complain(f"{problem}; the files are judged without what runs")
    situation = replace(situation, versions=find_versions(site, asked, inventory, situation))
    results, files = [], []
    if given.folder or given.files:
        conf = read_files(given)
        if conf is not None:
            given.incomplete += lost(conf, given)
            notes += tuple(not_given(conf, given))
            files += [file.path for file in conf.files]
            own = replace(situation, conf=conf, complete=bool(given.folder))
            results.append(judge(own, asked.ignore, more(own) if more else ()))
    for name in given.texts:
        done = judge_text(name, situation if asked.inventory else replace(situation, inventory=None), asked.ignore,
                          given.incomplete)
        if done is not None:
            results.append(done)
            files.append(name)
    return Checked(_together(results), tuple(dict.fromkeys(given.incomplete)), notes, situation.asked, tuple(files),
                   problem)


def _nothing() -> Configuration:
    from hpcadmin.conf.existing.parts import Configuration
    return Configuration()


# --- what there is to read -----------------------------------------------------------------------------------------


@dataclass
class Given:
    folder: Path | None
    files: list[Path]
    texts: list[str]
    incomplete: list[str]


def sort_out(paths: Sequence[str]) -> Given:
    """A folder, or files that are known by their names; all else is text. Raises UsageError for two folders."""
    from hpcadmin.conf_files import kind_of
    given = Given(None, [], [], [])
    for path in paths:
        place = Path(path)
        if path == "-":
            given.texts.append(path)
        elif place.is_dir():
            if given.folder:
                raise UsageError(f"{path}: a second folder", hint="one cluster at a time")
            given.folder = place
        elif not place.exists() and not place.is_symlink():
            given.incomplete.append(f"{path}: there is no such file or folder")
        else:
            try:
                kind_of(place.name)
                given.files.append(place)
            except UsageError:
                given.texts.append(path)
    if given.folder and given.files:
        raise UsageError(f"{given.files[0]} beside the folder {given.folder}", hint="a folder, or files by their names")
    return given


def read_files(given: Given) -> Configuration | None:
    """None where nothing could be read, which is in given.incomplete then."""
    from hpcadmin import conf_files
    try:
        if given.folder:
            return conf_files.read_folder(given.folder)
        return conf_files.read_paths(given.files)
    except StoreError as exc:
        given.incomplete.append(str(exc))
        return None


def lost(conf: Configuration, given: Given) -> list[str]:
    """What could not be read, and files that say nothing."""
    from hpcadmin.conf.existing.lines import OTHER_GRAMMAR
    found = [missing for missing in conf.missing if given.folder or not missing.endswith("slurm.conf: there is none")]
    for file in conf.files:
        # conf render writes a gres.conf with comments alone for a cluster without gres.
        text = file.name in OTHER_GRAMMAR or (given.folder and file.name != "slurm.conf")
        if not (any(line.strip() for line in file.lines) if text else file.statements):
            found.append(f"{file.path}: has no line that says anything")
    return found


def not_given(conf: Configuration, given: Given) -> list[str]:
    if given.folder:
        from hpcadmin.conf_files import unread
        return [f"{name} is read by nothing of what is judged here" for name in unread(given.folder, conf)]
    lacking = [name for name in ("slurm.conf", "gres.conf", "cgroup.conf") if not conf.has(name)]
    return [f"{', '.join(lacking)} {'was' if len(lacking) == 1 else 'were'} not given: what depends on "
            f"{'it' if len(lacking) == 1 else 'them'} is not judged"] if lacking else []


def judge_text(name: str, situation: Situation, ignore: Sequence[str], incomplete: list[str]) -> Result | None:
    """None where it cannot be read or has nothing of Slurm's, which is in `incomplete` then."""
    from hpcadmin.conf.check import run
    from hpcadmin.conf.check.text import NOT_FOR_TEXTS, in_text, read_text, version_of, whole
    shown_as = "stdin" if name == "-" else name
    try:
        text = _content(name)
    except StoreError as exc:
        incomplete.append(str(exc))
        return None
    named = None if situation.versions else version_of(text)
    situation = replace(situation, versions=(named,)) if named else situation
    file = whole(text)
    if file is not None:
        done = run.judge(replace(situation, conf=file, complete=False), ignore)
        return _for_version(replace(done, findings=tuple(in_text(f, shown_as) for f in done.findings)), named)
    pasted = read_text(shown_as, text)
    if not pasted.understood:
        incomplete.append(f"{shown_as}: nothing of Slurm's configuration or logs is in it")
        return None
    incomplete += [f"{shown_as}: not in the text: {what}" for what in pasted.missing]
    found = [run.judge(replace(situation, conf=conf, fragment=True, complete=False), ignore, leave=NOT_FOR_TEXTS)
             for conf in pasted.confs]
    own = run.sifted(pasted.findings, ignore)
    placed = [replace(each, findings=tuple(in_text(f, shown_as, pasted.numbers) for f in each.findings))
              for each in found]
    own = replace(own, findings=tuple(in_text(f, shown_as) for f in own.findings))
    return _together([*(_for_version(each, named) for each in placed), own])


def _for_version(done: Result, named: Version | None) -> Result:
    """Findings that are of the one version that the text itself names say so."""
    return done if named is None else replace(done, findings=tuple(
        replace(f, versions=f.versions or (named,)) for f in done.findings))


def _content(name: str) -> str:
    from hpcadmin.documents import decode
    from hpcadmin.files import read_bounded
    if name == "-":
        return decode(sys.stdin.buffer.read(MAX_TEXT))
    data = read_bounded(Path(name).resolve(), limit=MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise StoreError(f"has more than {MAX_TEXT >> 20} MiB", where=name)
    return decode(data)


def _together(results: Sequence[Result]) -> Result:
    from hpcadmin.conf.check.run import Result, ordered
    counts: dict[str, int] = {}
    for each in results:
        for rule, number in each.ignored:
            counts[rule] = counts.get(rule, 0) + number
    return Result(ordered(f for each in results for f in each.findings), tuple(counts.items()))


# --- what it is compared with --------------------------------------------------------------------------------------


def find_inventory(site: Site, asked: Asked, *, files: bool) -> tuple[Inventory | None, tuple[str, ...]]:
    """(inventory, notes). A pasted text is compared with a named inventory only: it may be of another cluster."""
    from hpcadmin import inventory, state
    if asked.inventory:
        path = Path(asked.inventory)
        if not path.exists():
            raise StoreError("no such inventory", where=asked.inventory, hint="run hpcadmin discover")
        return inventory.load(path.resolve()), ()
    accepted = state.inventory_file(site)
    if not accepted.exists():
        return None, ("no inventory (hpcadmin discover makes it): nothing was compared with the hardware",)
    if not files:
        return None, ("not compared with the hardware: name the inventory with --inventory for that",)
    return inventory.load(accepted.resolve()), ()


def find_versions(site: Site, asked: Asked, found: Inventory | None, situation: Situation) -> tuple[Version, ...]:
    """The cluster's own first. Raises UsageError for what is no version."""
    from hpcadmin.conf.keys import parse_version
    named = asked.slurm_version or site.slurm.version
    own = [parse_version(named)] if named else []
    running = situation.running.get("slurm_version", "")
    told = {node.slurm_version for node in found.nodes if node.slurm_version} if found else set()
    for text in [running] if running else sorted(told) if len(told) == 1 else []:
        if not own:
            try:
                own = [parse_version(text)]
            except UsageError:
                continue
    return tuple(dict.fromkeys([*own, *map(parse_version, asked.targets)]))


def with_live(situation: Situation) -> tuple[Situation, str]:
    """With what slurmctld has; or why it could not be asked."""
    from hpcadmin import conf_live
    from hpcadmin.errors import SlurmError
    try:
        live = conf_live.read()
    except SlurmError as exc:
        return situation, f"slurmctld: {exc}"
    return replace(situation, live=live.nodes, running={"slurm_version": live.version, **live.settings}), ""

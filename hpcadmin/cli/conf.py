"""hpcadmin conf: Slurm's configuration files from the inventory, and why each line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.cli import _conf_check, _conf_diff, complain
from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, EXIT_USAGE, StoreError, UsageError

if TYPE_CHECKING:
    from hpcadmin.conf.parts import Explained, Rendering
    from hpcadmin.model import Inventory
    from hpcadmin.site import Site


CONF_DIR = "[slurm] conf_dir"         # --install that names no folder


@click.group()
def command() -> None:
    """Slurm's configuration files, and why each line."""


command.add_command(_conf_check.check)
command.add_command(_conf_diff.diff)


@command.command()
@click.option("--inventory", "inventory_path", metavar="FILE",
              help="What was discovered (else the accepted inventory).")
@click.option("-o", "--output", metavar="DIR",
              help="Write the files there, never to where Slurm reads; else they are printed.")
@click.option("--install", metavar="[DIR]", is_flag=False, flag_value=CONF_DIR, default=None,
              help="Write them where Slurm reads ([slurm] conf_dir): the difference is shown and checked first.")
@click.option("--yes", is_flag=True, help="With --install: do not ask.")
@click.option("--explain", is_flag=True, help="Print each line with its reason and source.")
@click.option("--comments", is_flag=True, help="Put each line's reason into the files as comments.")
@click.option("--slurm-version", metavar="VERSION", default="",
              help="Slurm to write for, 22.05 to 26.05 (else the site's, else the nodes').")
@click.option("--as-is", is_flag=True,
              help="Describe nodes with faults as they are, and leave out those that did not answer.")
@click.option("--json", "as_json", is_flag=True, help="Files, explanations, notes and problems as JSON.")
@click.pass_context
def render(ctx: click.Context, *, inventory_path: str | None, output: str | None, install: str | None, yes: bool,
           explain: bool, comments: bool, slurm_version: str, as_is: bool, as_json: bool) -> int:
    """Slurm's configuration files from the inventory and site.toml."""
    from hpcadmin.conf.render import RenderOptions
    from hpcadmin.conf.render import render as render_files
    from hpcadmin.site import load_site
    if install is not None and (output or explain or as_json):
        raise UsageError("--install goes with none of --output, --explain and --json",
                         hint="look at the files first, then install them")
    if yes and install is None:
        raise UsageError("--yes is for --install")
    if "" in (output, install):
        raise UsageError("an empty text names no folder", where="--install" if output is None else "-o")
    site = load_site(ctx.obj["site"])
    folder = output_folder(output, site) if output else None
    inventory = load_inventory(inventory_path, site)
    result = render_files(inventory, site, RenderOptions(slurm_version, as_is, comments))
    if not as_json:
        for note in result.notes:
            complain(f"note: {note}")
    if result.problems:
        return refuse(result, site, as_json=as_json)
    if install is not None:
        from hpcadmin.cli._conf_install import install as install_files
        return install_files(result, inventory, site, conf_dir(site) if install == CONF_DIR else install, yes=yes)
    written = write(folder, result, site) if folder is not None else []
    if as_json:
        click.echo(to_json(result))
    elif explain:
        click.echo(explanation(result.explained), nl=False)
    elif folder is not None:
        click.echo("\n".join(written))
    else:
        click.echo("\n".join(f"==> {name} <==\n{text}" for name, text in result.files.items()), nl=False)
    return EXIT_OK


def load_inventory(path: str | None, site: Site) -> Inventory:
    from hpcadmin import inventory, state
    file = Path(path) if path else state.inventory_file(site)
    if not file.exists():
        raise StoreError("no such inventory", where=str(file),
                         hint="run hpcadmin discover, or name a file with --inventory")
    return inventory.load(file.resolve())


def output_folder(name: str, site: Site) -> Path:
    """The folder; never the place that the daemons read."""
    from hpcadmin.conf_install import refuse_live
    folder = Path(name).absolute()
    refuse_live(folder, site)
    return folder.resolve()


def conf_dir(site: Site) -> str:
    from hpcadmin.toml_text import locate
    name = site.slurm.conf_dir
    if not name.startswith("/"):
        raise UsageError(f"[slurm] conf_dir = {name!r} is not an absolute path",
                         where=locate(site.source, "slurm.conf_dir"))
    return name


def write(folder: Path, result: Rendering, site: Site) -> list[str]:
    """Everything or nothing; lines on what was done."""
    from hpcadmin import conf_write
    conf_write.tidy(folder)
    done = conf_write.write(conf_write.plan(folder, result.files), secret=result.secret)
    lines = [f"wrote {folder / name}" if name in result.files else f"took away {folder / name}" for name in done.names]
    lines += [f"{folder / name} is as it was" for name in result.files if name not in done.names]
    if done.backup is not None:
        lines.append(f"what was there is in {done.backup}")
    return lines


def refuse(result: Rendering, site: Site, *, as_json: bool) -> int:
    """Every problem on a line of its own; nothing was written."""
    from hpcadmin.cli._conf_problems import problem_line, problem_lines
    from hpcadmin.conf.parts import Kind
    if as_json:
        click.echo(to_json(result, [problem_line(p, site) for p in result.problems]))
    else:
        lines = problem_lines(result.problems, site)
        for text in lines:
            complain(text)
        complain(f"nothing written: {len(lines)} problem{'s' if len(lines) > 1 else ''}")
    kinds = {p.kind for p in result.problems}
    return EXIT_USAGE if Kind.SITE in kinds else EXIT_FAILED if Kind.FAULT in kinds else EXIT_INCOMPLETE


def to_json(result: Rendering, problems: Sequence[str] = ()) -> str:
    from hpcadmin.records import to_plain
    told = [{"text": text, **to_plain(p)} for text, p in zip(problems, result.problems, strict=True)]
    return json.dumps({"files": dict(result.files), "lines": to_plain(result.explained), "notes": list(result.notes),
                       "problems": told}, indent=2)


def explanation(lines: Sequence[Explained]) -> str:
    from hpcadmin.conf.parts import MARK
    from hpcadmin.text import printable
    out = []
    for item in lines:
        out.append(printable(f"{item.file}:{item.line}  {item.text}", limit=4000))
        for why in item.whys:
            part = "" if why.part == item.text.removesuffix(MARK) else f"{why.short}: "
            out.append(printable(f"    {part}{why.reason} [{why.source}]"))
    return "\n".join(out) + "\n"

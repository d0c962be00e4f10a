"""hpcadmin conf diff: what would change in the files that exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.cli import complain
from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, EXIT_USAGE, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcadmin.conf.diff.parts import Sides
    from hpcadmin.conf.existing.parts import Configuration
    from hpcadmin.conf.keys import Version
    from hpcadmin.conf.parts import Problem, Rendering
    from hpcadmin.model import Inventory
    from hpcadmin.site import Site


@click.command("diff")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--against", metavar="DIR2", help="Compare with the files of this folder, not with the inventory.")
@click.option("--inventory", "inventory_path", metavar="FILE",
              help="What was discovered (else the accepted inventory).")
@click.option("--slurm-version", metavar="VERSION", default="",
              help="Slurm that reads the files, 22.05 to 26.05 (else the site's, else the nodes').")
@click.option("--as-is", is_flag=True,
              help="Describe nodes with faults as they are, and leave out those that did not answer.")
@click.option("--text", "as_text", is_flag=True, help="Line by line, as diff -u has it.")
@click.option("--json", "as_json", is_flag=True, help="Every difference and what it takes as JSON.")
@click.pass_context
def diff(ctx: click.Context, *, folder: str | None, against: str | None, inventory_path: str | None, slurm_version: str,
         as_is: bool, as_text: bool, as_json: bool) -> int:
    """What would change in DIR (else the site's conf_dir) if conf render's files took the place of those there.

    Exit status: 0 nothing, 1 differences, 2 wrong usage or site.toml, 3 not everything could be compared.
    """
    from hpcadmin import conf_files
    from hpcadmin.conf.diff import text
    from hpcadmin.conf.diff.compare import compare
    from hpcadmin.site import load_site
    if as_text and as_json:
        raise UsageError("--text and --json: one of them")
    if against and (inventory_path or as_is):
        raise UsageError("--against compares two folders: no --inventory, no --as-is")
    site = load_site(ctx.obj["site"])
    place = Path(folder or site.slurm.conf_dir)
    old = conf_files.read_folder(place)
    for name in conf_files.unread(place, old):
        complain(f"note: {place / name}: Slurm reads no file of this name and none includes it")
    if against:
        made: tuple[Configuration, Sides, Mapping[str, str]] | int = _other(Path(against), site, slurm_version)
    else:
        made = _rendered(_inventory(inventory_path, site), site, slurm_version, as_is=as_is)
    if isinstance(made, int):
        return made
    new, sides, files = made
    found = compare(old, new, sides)
    for missing in found.missing:
        complain(f"not compared: {missing}")
    if as_json:
        click.echo(json.dumps(text.as_json(found), indent=2))
    elif as_text:
        lines = text.unified(old, files)
        if lines:
            click.echo(lines)
    else:
        click.echo(text.text(found))
    if found.missing:
        return EXIT_INCOMPLETE
    return EXIT_OK if found.same else EXIT_FAILED


def _inventory(path: str | None, site: Site) -> Inventory:
    from hpcadmin.cli.conf import load_inventory
    return load_inventory(path, site)


def _rendered(inventory: Inventory, site: Site, slurm_version: str, *, as_is: bool,
              ) -> tuple[Configuration, Sides, Mapping[str, str]] | int:
    """What the files would be; or the exit status, after every problem that keeps them from being written."""
    from hpcadmin.conf.diff.parts import Sides, reasons_of
    from hpcadmin.conf.existing.read import configure
    from hpcadmin.conf.machines import cpu_memory
    from hpcadmin.conf.render import RenderOptions, render
    from hpcadmin.conf.survey import find_version
    result: Rendering = render(inventory, site, RenderOptions(slurm_version, as_is))
    for note in result.notes:
        complain(f"note: {note}")
    if result.problems:
        return _refused(result.problems, site)
    memory = {node.name: found for node in inventory.nodes if (found := cpu_memory(node)[0]) is not None}
    version = find_version(inventory, site, slurm_version)[0]
    return configure(result.files), Sides(version, True, memory, reasons_of(result.explained),
                                          frozenset(result.files)), result.files


def _refused(problems: tuple[Problem, ...], site: Site) -> int:
    from hpcadmin.cli._conf_problems import problem_lines
    from hpcadmin.conf.parts import Kind
    for text in problem_lines(problems, site):
        complain(text)
    complain("nothing compared: there are no files to compare with")
    return EXIT_USAGE if any(p.kind is Kind.SITE for p in problems) else EXIT_INCOMPLETE


def _other(folder: Path, site: Site, slurm_version: str) -> tuple[Configuration, Sides, Mapping[str, str]]:
    from hpcadmin import conf_files
    from hpcadmin.conf.diff.parts import Sides
    from hpcadmin.conf.existing.write import write
    conf = conf_files.read_folder(folder)
    names = {file.name: file for file in reversed(conf.files)}
    return conf, Sides(_version(site, slurm_version), replaced=frozenset(names)), {
        name: write(file) for name, file in names.items()}


def _version(site: Site, named: str) -> Version | None:
    from hpcadmin.conf.keys import parse_version
    text = named or site.slurm.version
    return parse_version(text) if text else None

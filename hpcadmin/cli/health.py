"""hpcadmin health"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.errors import EXIT_FAILED, EXIT_OK, SiteError, UsageError

if TYPE_CHECKING:
    from hpcadmin.health.compile import Compiled
    from hpcadmin.model import Node

_FILE = click.Path(path_type=Path)


@click.group()
def command() -> None:
    """What the nodes look at: make, check, and compile their configuration."""


@command.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default="hpcadmin-health",
              show_default=True, help="The file to write.")
@click.option("--python", metavar="PATH", help="A Python on the nodes that is looked for first.")
@click.option("--hooks", metavar="PATH", is_flag=False, flag_value="/usr/sbin/hpcadmin-health",
              help="Write OUTPUT-prolog and OUTPUT-epilog too; PATH is where OUTPUT is to be on the nodes.")
def build(output: Path, python: str | None, hooks: str | None) -> int:
    """Write hpcadmin-health: one file for the nodes, which needs Python 3.6 or later and nothing else."""
    from hpcadmin.health.build import write
    from hpcadmin.health.hooks import write as write_hooks
    size = write(output, python)
    place = hooks or "/usr/sbin/hpcadmin-health"
    click.echo(f"{output}: {size // 1024} KiB; on the nodes: install -m 0755 {output} {place}")
    for path in write_hooks(output, hooks) if hooks else []:
        kind = path.name.rpartition("-")[2]
        click.echo(f"{path}: for {kind.capitalize()}=; on the nodes: install -m 0755 {path} {place}-{kind}")
    return EXIT_OK


@command.command()
@click.argument("file", type=_FILE)
@click.option("-o", "--output", type=_FILE, help="Where to write it (else to standard output).")
@click.option("-f", "--inventory", type=_FILE, help="Warn of masks that fit no node of this inventory.")
@click.pass_obj
def compile(obj: dict[str, str | None], file: Path, output: Path | None, inventory: Path | None) -> int:
    """Check health.toml and write the JSON that the nodes read.

    Exit status: 0 written, 1 something in it is wrong (told with file:line; nothing is written).
    """
    compiled = _compiled(file, inventory)
    if not compiled.sound:
        return EXIT_FAILED
    if output is None:
        click.echo(compiled.text, nl=False)
    else:
        from hpcadmin.files import write_atomic
        write_atomic(output, compiled.text)
        click.echo(f"{output}: {_count(compiled)}", err=True)
    return EXIT_OK


@command.command()
@click.argument("file", type=_FILE)
@click.option("-f", "--inventory", type=_FILE, help="Warn of masks that fit no node of this inventory.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def check(file: Path, inventory: Path | None, as_json: bool) -> int:
    """Whether health.toml can be followed; every fault with file:line.

    Exit status: 0 sound, 1 something is wrong.
    """
    from dataclasses import asdict
    compiled = _compiled(file, inventory, quiet=as_json)
    if as_json:
        from hpcadmin import records
        problems = [asdict(one) for one in compiled.problems]
        click.echo(records.dumps({"sound": compiled.sound, "problems": problems}, indent=1))
    elif compiled.sound:
        click.echo(f"{file}: {_count(compiled)}")
    return EXIT_OK if compiled.sound else EXIT_FAILED


@command.command()
@click.argument("file", type=_FILE)
@click.option("-w", "--nodes", metavar="HOSTLIST", help="What these nodes look at; without it every entry.")
@click.option("--as", "mode", type=click.Choice(["health", "prolog", "epilog"]), default="health", show_default=True,
              help="What it runs as: the checks of that occasion.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def show(file: Path, nodes: str | None, mode: str, as_json: bool) -> int:
    """What a node looks at: the entries of health.toml, nodes that share them folded."""
    from hpcadmin import hosts, records
    from hpcadmin.health import compile as compiling
    compiled = _compiled(file, None, quiet=as_json)
    if not compiled.sound:
        raise SiteError("is not sound", where=str(file), hint="hpcadmin health check FILE tells why")
    if nodes is None:
        click.echo(records.dumps(compiled.tree, indent=1) if as_json else compiling.overview(compiled.tree))
        return EXIT_OK
    entries = compiling.folded(hosts.expand(nodes), compiled.tree, mode)
    if as_json:
        click.echo(records.dumps(entries, indent=1))
        return EXIT_OK
    same: dict[tuple[str, ...], list[str]] = {}
    for node, keys in entries.items():
        same.setdefault(tuple(keys), []).append(node)
    for shared, names in same.items():
        click.echo(f"{hosts.fold(names)}: {', '.join(shared) or 'nothing: the node would be unknown'}")
    return EXIT_OK


@command.command()
@click.option("--from-inventory", "inventory", type=_FILE, help="This inventory instead of the accepted one.")
@click.option("--from-nhc", "nhc", type=_FILE, help="An existing nhc.conf.")
@click.option("-w", "--nodes", metavar="HOSTLIST", help="Only for these nodes of the inventory.")
@click.option("-o", "--output", type=_FILE, help="Where to write it (else to standard output). Never over a file.")
@click.option("--accepted", type=_FILE, help="Also write this, from the inventory: what the check drift compares with.")
@click.pass_obj
def genconf(obj: dict[str, str | None], *, inventory: Path | None, nhc: Path | None, nodes: str | None,
            output: Path | None, accepted: Path | None) -> int:
    """Write health.toml from what was discovered, or from an existing nhc.conf."""
    if nhc is not None and accepted is not None:
        raise UsageError("--accepted is made from an inventory, not from an nhc.conf")
    for file in (output, accepted):
        if file is not None and file.exists():
            raise UsageError("exists already", where=str(file), hint="compare by hand, or name another file")
    if nhc is not None and (inventory is not None or nodes is not None):
        raise UsageError("--from-nhc goes with neither --from-inventory nor -w: a file's lines have their own masks")
    text = _from_nhc(nhc) if nhc is not None else _from_inventory(obj["site"], inventory, nodes, accepted)
    if output is None:
        click.echo(text, nl=False)
        return EXIT_OK
    from hpcadmin.files import write_atomic
    write_atomic(output, text)
    return EXIT_OK


def _from_nhc(path: Path) -> str:
    from hpcadmin.files import read_bounded
    from hpcadmin.health.genconf_nhc import from_nhc
    try:
        return from_nhc(read_bounded(path).decode("utf-8", "replace"), str(path))
    except ValueError as exc:
        raise UsageError(str(exc), where=str(path)) from exc


def _from_inventory(site_file: str | None, path: Path | None, nodes: str | None, accepted: Path | None) -> str:
    from hpcadmin import hosts, state
    from hpcadmin.catalogue import load_limits
    from hpcadmin.health.genconf import from_inventory
    from hpcadmin.site import load_site
    site = load_site(site_file)
    source = path or state.inventory_file(site)
    found = _inventory(source)
    if nodes is not None:
        wanted = set(hosts.expand(nodes))
        missing = wanted - {node.name for node in found}
        if missing:
            raise UsageError(f"not in the inventory: {hosts.fold(missing)}", where=str(source))
        found = [node for node in found if node.name in wanted]
    if not found:
        raise UsageError("there is no node in the inventory", where=str(source))
    if accepted is not None:
        from hpcadmin.files import write_atomic
        from hpcadmin.health import accepted as facts
        write_atomic(accepted, facts.text(found))
    return from_inventory(found, load_limits(site), str(source), drift=accepted is not None)


def _inventory(path: Path) -> list[Node]:
    from hpcadmin import inventory
    if not path.exists():
        raise UsageError("there is no inventory", where=str(path), hint="hpcadmin discover makes it")
    return list(inventory.load(path).nodes)


def _compiled(file: Path, inventory: Path | None, quiet: bool = False) -> Compiled:
    from hpcadmin.health.compile import compile_file
    names = [node.name for node in _inventory(inventory)] if inventory else []
    compiled = compile_file(file, names)
    for problem in () if quiet else compiled.problems:
        click.echo(str(problem), err=True)
    return compiled


def _count(compiled: Compiled) -> str:
    number = len(compiled.tree.get("check", []))
    return f"{number} entr{'y' if number == 1 else 'ies'}, sound"

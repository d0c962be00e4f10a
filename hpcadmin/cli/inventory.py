"""hpcadmin inventory"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.cli._topology import topology
from hpcadmin.errors import UsageError

if TYPE_CHECKING:
    from hpcadmin.model import Node


@click.group()
def command() -> None:
    """Show what was discovered."""


command.add_command(topology)


@command.command()
@click.argument("node", required=False)
@click.option("-f", "--file", "file", metavar="FILE", type=click.Path(path_type=Path),
              help="This inventory instead of the accepted one.")
@click.option("--why", metavar="PATH", help="Where a value of NODE comes from: gpus.3.cores, cpu.sockets, "
              "nics.mlx5_0.rate_gbps, gpu_links.0.1, or of a whole part: gpus.3.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def show(obj: dict[str, str | None], node: str | None, file: Path | None, why: str | None, as_json: bool) -> int:
    """The accepted inventory as a table, or all that is known of one NODE."""
    from hpcadmin import inventory, records, state
    from hpcadmin.cli import _inventory_text
    from hpcadmin.site import load_site
    path = file or state.inventory_file(load_site(obj["site"]))
    if not path.exists():
        raise UsageError("there is no inventory", where=str(path), hint="hpcadmin discover makes it")
    found = inventory.load(path)
    if node is None:
        if why is not None:
            raise UsageError("--why needs a NODE")
        click.echo(records.dumps(found, indent=1) if as_json else _inventory_text.overview(found))
        return 0
    one = found.node(node)
    if one is None:
        failed = next((item.reason for item in found.failed if item.node == node), "")
        raise UsageError(f"no node {node!r} in the inventory" + (f": {failed}" if failed else ""), where=str(path))
    if why is not None:
        return _why(one, why, as_json)
    click.echo(records.dumps(one, indent=1) if as_json else _inventory_text.node_text(one))
    return 0


def _why(node: Node, path: str, as_json: bool) -> int:
    """3 where no capture can be looked into any more."""
    from hpcadmin import records
    from hpcadmin import why as reasons
    from hpcadmin.errors import EXIT_INCOMPLETE, EXIT_OK
    from hpcadmin.sources import open_sources
    texts, complaints = open_sources(node)
    found = reasons.explain(node, path, texts)
    if not node.sources:
        complaints = [f"{node.name}: no capture of it was kept: discover --captures DIR keeps them"]
    for complaint in complaints:
        click.echo(complaint, err=True)
    click.echo(records.dumps({"explanations": found, "complaints": complaints}, indent=1) if as_json
               else "\n".join(reasons.lines(found)))
    return EXIT_OK if texts else EXIT_INCOMPLETE


@command.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def diff(obj: dict[str, str | None], old: Path, new: Path | None, as_json: bool) -> int:
    """What was replaced, moved, updated or lost between two inventories; without NEW, OLD against the accepted one.

    Exit status: 0 the same, 1 differences.
    """
    from hpcadmin import inventory, inventory_diff, records, state
    from hpcadmin.errors import EXIT_FAILED, EXIT_OK
    from hpcadmin.site import load_site
    other = new or state.inventory_file(load_site(obj["site"]))
    found = inventory_diff.diff(inventory.load(old), inventory.load(other))
    if as_json:
        click.echo(records.dumps({"same": found.same, "changes": found.changes}, indent=1))
    else:
        click.echo(inventory_diff.text(found))
    return EXIT_OK if found.same else EXIT_FAILED

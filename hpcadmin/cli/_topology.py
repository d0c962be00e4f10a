"""hpcadmin inventory topology"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.errors import UsageError

if TYPE_CHECKING:
    from hpcadmin.model import Inventory, Node


@click.command()
@click.argument("node", required=False)
@click.option("-f", "--file", "file", metavar="FILE", type=click.Path(path_type=Path),
              help="This inventory instead of the accepted one.")
@click.option("--fabric", is_flag=True, help="The network's tree instead of a node.")
@click.option("--svg", metavar="FILE", type=click.Path(path_type=Path), help="Draw it as SVG into this file.")
@click.option("--nccl", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the XML that NCCL reads from NCCL_TOPO_FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print relations, rails and bindings as JSON.")
@click.pass_obj
def topology(obj: dict[str, str | None], *, node: str | None, file: Path | None, fabric: bool, svg: Path | None,
             nccl: Path | None, as_json: bool) -> int:
    """Draw a NODE: packages, NUMA nodes, PCIe, GPUs, NICs, their links; and how to bind ranks to them."""
    from hpcadmin import inventory, state
    from hpcadmin.site import load_site
    path = file or state.inventory_file(load_site(obj["site"]))
    if not path.exists():
        raise UsageError("there is no inventory", where=str(path), hint="hpcadmin discover makes it")
    found = inventory.load(path)
    if fabric:
        if node or nccl:
            raise UsageError("--fabric is about the network, not about a node")
        return _fabric(found, svg, as_json, str(path))
    if node is None:
        raise UsageError("which node?", hint="hpcadmin inventory show lists them; --fabric draws the network")
    one = found.node(node)
    if one is None:
        raise UsageError(f"no node {node!r} in the inventory", where=str(path))
    return _node(one, svg, nccl, as_json)


def _node(one: Node, svg: Path | None, nccl: Path | None, as_json: bool) -> int:
    from hpcadmin.files import write_atomic
    if nccl is not None:
        from hpcadmin.nccl_topology import document
        write_atomic(nccl, document(one))
        click.echo(f"NCCL topology: {nccl} (export NCCL_TOPO_FILE={nccl})", err=True)
    if svg is not None:
        from hpcadmin.topology_svg import node_svg
        write_atomic(svg, node_svg(one))
        click.echo(f"drawing: {svg}", err=True)
    if as_json:
        from hpcadmin import records
        from hpcadmin.topology import bindings, nearest, rails, srun_options
        click.echo(records.dumps({"node": one.name, "simulated": one.simulated, "gpu_links": one.gpu_links,
                                  "nearest": nearest(one), "rails": rails(one), "bindings": bindings(one),
                                  "srun": srun_options(one)}, indent=1))
    elif svg is None and nccl is None:
        from hpcadmin.topology_text import draw
        click.echo(draw(one))
    return 0


def _fabric(found: Inventory, svg: Path | None, as_json: bool, where: str) -> int:
    if not found.fabrics:
        raise UsageError("no fabric in the inventory", where=where,
                         hint="hpcadmin discover --fabric, or --from with the output of ibnetdiscover")
    if as_json:
        from hpcadmin import records
        click.echo(records.dumps(list(found.fabrics), indent=1))
        return 0
    if svg is not None:
        from hpcadmin.files import write_atomic
        from hpcadmin.topology_svg import fabric_svg
        write_atomic(svg, fabric_svg(found.fabrics))
        click.echo(f"drawing: {svg}", err=True)
        return 0
    from hpcadmin.fabric_text import fabric_lines
    for each in found.fabrics:
        click.echo("\n".join(fabric_lines(each)))
    return 0

"""hpcadmin discover"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, RemoteError, UsageError
from hpcadmin.text import plural

if TYPE_CHECKING:
    from hpcadmin.discovery import How
    from hpcadmin.model import Inventory
    from hpcadmin.order import Comparison
    from hpcadmin.reading import Statements
    from hpcadmin.remote import Remote
    from hpcadmin.site import Site, Ssh


@click.command()
@click.option("-w", "hostlist", metavar="HOSTLIST", help="These nodes, over ssh: node[01-04,7].")
@click.option("--slurm", is_flag=True, help="All nodes that Slurm knows, over ssh.")
@click.option("--local", is_flag=True, help="This machine alone.")
@click.option("--from", "source", metavar="PATH",
              help="Texts that you have: captures, outputs of lscpu, nvidia-smi, hwloc, ibnetdiscover …; folders "
                   "of NODE.txt or NODE/, archives, - for stdin.")
@click.argument("more", nargs=-1, metavar="[PATH]...")
@click.option("--node", "name", metavar="NAME", help="With --from: all of it is about this node.")
@click.option("-o", "output", metavar="FILE", type=click.Path(path_type=Path),
              help="Write what was found there, and leave the accepted inventory alone.")
@click.option("--accept", is_flag=True, help="Replace the accepted inventory although there are findings.")
@click.option("--captures", metavar="DIR", type=click.Path(path_type=Path), help="Keep the raw texts there.")
@click.option("--parallel", metavar="N", type=click.IntRange(1, 1024), help="Nodes at once (32).")
@click.option("--timeout", metavar="SECONDS", type=click.FloatRange(1, 3600), help="For each node (30).")
@click.option("--user", metavar="NAME", help="Log in as this user.")
@click.option("--sudo", "sudo", metavar="FACT", multiple=True,
              help="Let this fact use `sudo -n` on the nodes: dmi (serial numbers), dimms, bmc, lldp, settings (ACS). "
                   "May be given several times.")
@click.option("--fabric", is_flag=True,
              help="Ask the InfiniBand network as well, through one node (ibnetdiscover, iblinkinfo; sudo -n there).")
@click.option("--redfish", is_flag=True, help="Ask the nodes' BMCs as well ([bmc] in site.toml).")
@click.option("--expect", metavar="ORDER", type=click.Path(path_type=Path),
              help="Compare with what was ordered (see docs/order.toml).")
@click.option("--anonymise", metavar="DIR", type=click.Path(path_type=Path),
              help="Write the texts there without names, addresses and serial numbers, to be given away.")
@click.option("--json", "as_json", is_flag=True, help="Print the inventory as JSON.")
@click.pass_obj
def command(
    obj: dict[str, str | None], *, hostlist: str | None, slurm: bool, local: bool, source: str | None,
    more: tuple[str, ...], name: str | None, output: Path | None, accept: bool, captures: Path | None,
    parallel: int | None, timeout: float | None, user: str | None, sudo: tuple[str, ...], fabric: bool,
    redfish: bool, expect: Path | None, anonymise: Path | None, as_json: bool,
) -> int:
    """Find out what each node really is: one probe over ssh, a table of identical nodes, the odd ones out. With
    --from: what texts that you have tell, and what they do not.

    Exit status: 0 all captured and alike, 1 findings, 3 some could not be captured, read or compared, 4 no node
    answered.
    """
    from hpcadmin import discovery, inventory, order, state
    from hpcadmin.site import load_site
    _one_source(hostlist, slurm, local, source, more)
    _only_together(source, name, asks=fabric or redfish)
    site = load_site(obj["site"])
    if redfish:
        from hpcadmin import bmcs
        bmcs.login(site.bmc)             # before all nodes are asked
    ordered = order.load(expect) if expect is not None else None
    on_cluster = bool(hostlist is not None or slurm)
    if captures is None and on_cluster:
        captures = state.state_dir(site) / "captures" / datetime.now().strftime("%Y%m%d-%H%M%S")
    how = discovery.How(parallel=parallel or site.ssh.parallel, timeout_s=timeout or site.ssh.timeout_s, sudo=sudo,
                        tools=tuple(site.tools), captures=captures)
    unseen = ""
    statements: Statements | None = None
    if source is not None:
        from hpcadmin.reading import read_paths
        found, statements = read_paths([source, *more], name or "", _reading if sys.stderr.isatty() else None)
        _warn_of_tools(found)
    else:
        ssh = replace(site.ssh, user=user) if user else site.ssh
        found, unseen = _ask(ssh, how, hostlist, local=local, fabric=fabric)
    if redfish:
        found = bmcs.ask(found, site.bmc, how.parallel)
    compared = order.compare(ordered, found) if ordered is not None else None
    _print(found, statements, compared, as_json)
    if anonymise is not None:
        _give_away([source, *more] if source is not None else [str(captures)] if captures else [], anonymise, site)
    if output is not None:
        inventory.save(output, found)
        _note(f"inventory: {output}")
    elif on_cluster and found.nodes:
        _note(discovery.accept(state.inventory_file(site), found, force=accept))
    if unseen:
        _note(f"hpcadmin: {unseen}")
    return _status(discovery.exit_status(found, asked=source is None), compared, unseen)


def _status(status: int, compared: Comparison | None, unseen: str) -> int:
    if compared is not None and compared.differences and status in (EXIT_OK, EXIT_INCOMPLETE):
        return EXIT_FAILED
    return status or (EXIT_INCOMPLETE if unseen or (compared is not None and compared.not_compared) else EXIT_OK)


def _print(found: Inventory, statements: Statements | None, compared: Comparison | None, as_json: bool) -> None:
    from hpcadmin import order
    if as_json:
        from hpcadmin.cli import _discovered_json
        for piece in _discovered_json.pieces(found, compared, statements or ()):
            click.echo(piece, nl=False)
        return
    from hpcadmin.cli import _documents_text
    from hpcadmin.cli._inventory_text import overview
    documents = _documents_text.text(statements, len(statements)) if statements else ""
    parts = [documents, overview(found), order.text(compared)]
    click.echo("\n\n".join(part for part in parts if part))


def _give_away(paths: list[str], into: Path, site: Site) -> None:
    from hpcadmin import giveaway, state
    if not paths:
        raise UsageError("--anonymise needs captures", hint="--captures DIR keeps them, --from names some")
    count, left = giveaway.give_away(paths, into, giveaway.site_key(state.state_dir(site)))
    for what in left:
        _note(f"left out: {what}")
    _note(f"{plural(count, 'text')} without names, addresses and serial numbers: {into} (look at them before you send "
          "them)")


def _warn_of_tools(found: Inventory) -> None:
    """topo.txt of node01 becomes a node named topo: that is hardly meant."""
    from hpcadmin.intake import is_tool
    tools = sorted({each.name for each in found.nodes if is_tool(each.name)}
                   | {each.node for each in found.failed if is_tool(each.node)})
    if tools:
        _note(f"{', '.join(tools)}: taken as the name{'s' if len(tools) > 1 else ''} of nodes, because files are named "
              "after their node; --node NAME puts all of it on one node")


def _reading(done: int, count: int) -> None:
    if done % 16 == 0 or done == count:
        _progress(done, count, "read")


def _one_source(hostlist: str | None, slurm: bool, local: bool, source: str | None, more: tuple[str, ...]) -> None:
    count = sum((hostlist is not None, slurm, local, source is not None))
    if count != 1:
        raise UsageError("which nodes?" if count == 0 else "more than one source of nodes",
                         hint="one of -w HOSTLIST, --slurm, --local, --from PATH")
    if more and source is None:
        raise UsageError(f"unexpected argument {more[0]!r}", hint="node names are given with -w")


def _only_together(source: str | None, name: str | None, *, asks: bool) -> None:
    from hpcadmin.hosts import is_node_name
    if source is not None and asks:
        raise UsageError("--fabric and --redfish ask machines", hint="--from reads what they printed before")
    if name is not None and source is None:
        raise UsageError("--node says whose the texts of --from are", hint="-w HOSTLIST asks nodes")
    if name is not None and not is_node_name(name):
        raise UsageError(f"{name!r} is not a node's name", where="--node")


def _ask(ssh: Ssh, how: How, hostlist: str | None, *, local: bool, fabric: bool) -> tuple[Inventory, str]:
    """The inventory, and why the fabric could not be seen: what the nodes said counts all the same."""
    from hpcadmin import discovery, hosts
    unseen = ""
    with ExitStack() as stack:
        if local:
            from hpcadmin.remote.local import Local
            remote: Remote = Local()
            nodes = {discovery.local_name(): discovery.local_name()}
        else:
            from hpcadmin.remote.ssh import SshRemote
            nodes = {name: name for name in hosts.expand(hostlist)} if hostlist is not None else _slurm_nodes()
            remote = over_ssh = SshRemote(ssh)
            stack.callback(over_ssh.close)
        found = discovery.discover(remote, nodes, how, _progress if sys.stderr.isatty() else None)
        try:
            found = discovery.with_fabric(remote, nodes, how, found) if fabric else found
        except RemoteError as exc:
            unseen = str(exc)
    return found, unseen


def _slurm_nodes() -> dict[str, str]:
    """NodeName -> the host name to log in to."""
    from hpcadmin.errors import SlurmError
    from hpcadmin.slurm.command_line import CommandLine
    nodes = {node.name: node.hostname or node.name for node in CommandLine().nodes()}
    if not nodes:
        raise SlurmError("knows no nodes", where="scontrol show nodes")
    return nodes


def _progress(done: int, count: int, host: str) -> None:
    end = "\n" if done == count else ""
    sys.stderr.write(f"\r\x1b[Kdiscover: {done} of {count} nodes ({host[:40]}){end}")
    sys.stderr.flush()


def _note(text: str) -> None:
    click.echo(text, err=True)

"""hpcadmin lab: a real Slurm cluster on this machine."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

import click

from hpcadmin.errors import EXIT_FAILED, EXIT_OK

name_option = click.option("--name", default="lab", show_default=True, help="Name of the lab.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def command() -> None:
    """A real Slurm cluster on this machine: namespaces with sshd, munged and slurmd. Needs root."""


@command.command()
@name_option
@click.option("--nodes", default=4, show_default=True, help="Number of nodes.")
@click.option("--net", default="10.200.0.0/24", show_default=True, help="Address range of the lab.")
@click.option("--accounting", is_flag=True, help="MariaDB and slurmdbd on the head.")
@click.option("--base", default="/", show_default=True, metavar="DIR",
              help="Root file system below the hosts' own (a debootstrap root with another Slurm).")
@click.option("--conf", default="", metavar="DIR", help="slurm.conf, gres.conf, … to start with, instead of the lab's.")
@click.option("--shared", default="", metavar="DIR", help="Folder to be /shared (with the home); kept by `down`.")
@click.option("--hardware", default="", metavar="PROFILE", help="Simulated hardware for all nodes, as 8xH100.")
@click.option("--hardware-node", multiple=True, metavar="NODE=PROFILE", help="Another profile for one node.")
def up(*, name: str, nodes: int, net: str, accounting: bool, base: str, conf: str, shared: str, hardware: str,
       hardware_node: tuple[str, ...]) -> int:
    """Start a lab and wait until Slurm has all its nodes idle."""
    from hpcadmin import lab
    pairs = {}
    for item in hardware_node:
        node, mark, profile = item.partition("=")
        if not mark or not node or not profile:
            raise click.BadParameter(f"{item!r} is not NODE=PROFILE", param_hint="--hardware-node")
        pairs[node] = profile
    made = lab.up(lab.Options(name=name, nodes=nodes, net=net, accounting=accounting, base=base, conf=conf,
                              shared=shared, hardware=hardware, hardware_nodes=pairs), progress=_progress())
    click.echo(f"lab {name}: head and {len(made.nodes)} nodes, all idle")
    for profile in sorted({node.hardware for node in made.nodes} - {""}):
        from hpcadmin.hosts import fold
        click.echo(f"simulated hardware: {profile} on {fold(n.name for n in made.nodes if n.hardware == profile)}")
    for note in made.notes:
        click.echo(f"note: {note}")
    named = "" if name == "lab" else f" --name {name}"
    click.echo(f"log in with: hpcadmin lab exec{named} -- bash    or: ssh -F {made.dir}/ssh_config node01")
    return EXIT_OK


def _progress() -> Callable[[str], None]:
    def say(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"lab: {text} …", err=True)
    return say


@command.command()
@name_option
def down(name: str) -> int:
    """End a lab: every process, mount and interface of it. Can be called at any time, and twice."""
    from hpcadmin import lab
    click.echo(f"lab {name} ended" if lab.down(name) else f"lab {name} is not up")
    return EXIT_OK


@command.command()
@name_option
@json_option
def status(name: str, as_json: bool) -> int:
    """What runs: hosts, services, Slurm's states, faults. Exit status 1 when something is not as it should be."""
    from hpcadmin import lab
    from hpcadmin.lab.slurmwait import READY
    state = lab.status(name)
    wrong = [h for h in state.hosts if not h.up or h.faults or h.stopped or (h.role == "node" and h.slurm not in READY)]
    if as_json:
        from hpcadmin.records import dumps
        click.echo(dumps(state, indent=1))
        return EXIT_FAILED if wrong else EXIT_OK
    click.echo(f"lab {state.name} ({state.phase}), {state.net}, {state.dir}"
               + ("" if state.slurmctld else ", slurmctld does not answer"))
    for note in state.notes:
        click.echo(f"note: {note}")
    rows = [("HOST", "ADDRESS", "SLURM", "SERVICES", "PROCESSES", "FAULTS AND REASONS")]
    for h in state.hosts:
        said = "; ".join([*h.faults, *([h.reason] if h.reason else []),
                          *([f"{h.stopped} processes stopped"] if h.stopped else [])])
        rows.append((h.name, h.address, (h.slurm or "-") if h.up else "down", " ".join(h.services) or "-",
                     str(h.processes), said + (f" [simulated {h.simulated}]" if h.simulated else "")))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        click.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]).rstrip())
    return EXIT_FAILED if wrong else EXIT_OK


@command.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@name_option
@click.option("--node", default="head", show_default=True, help="Host to run it on.")
@click.option("--user", default="hpc", show_default=True, help="hpc or root.")
@click.argument("argv", nargs=-1, required=True, metavar="CMD…")
def exec_(name: str, node: str, user: str, argv: tuple[str, ...]) -> int:
    """Run a command on a host of the lab, in the user's home, with a clean environment."""
    from hpcadmin.lab import enter, journal, machine, syscalls
    machine.require_root()
    syscalls.default_signals()
    line = enter.exec_argv(journal.load(name), node, user, argv, os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(line[0], line)  # noqa: S606


@command.command()
@name_option
@click.argument("node")
@click.option("--rate", default="", metavar="RATE", help="Slow cable, as 100mbit.")
@click.option("--kill-slurmd", is_flag=True, help="End its slurmd.")
@click.option("--down", "node_down", is_flag=True, help="End the whole node, as a power cut.")
@click.option("--freeze", is_flag=True, help="Stop all its processes; its kernel still takes connections.")
@click.option("--gpu", nargs=2, type=(int, click.Choice(["lost", "slow"])), default=None, metavar="N lost|slow",
              help="Fault of a simulated GPU.")
@click.option("--port", nargs=2, type=(str, click.Choice(["down", "slow", "errors"])), default=None,
              metavar="DEVICE down|slow|errors", help="Fault of a simulated RDMA port.")
@click.option("--heal", is_flag=True, help="End all faults of the node and wait until Slurm has it again.")
def fault(*, name: str, node: str, rate: str, kill_slurmd: bool, node_down: bool, freeze: bool,
          gpu: tuple[int, str] | None, port: tuple[str, str] | None, heal: bool) -> int:
    """Make a real fault on a node, or heal it."""
    from hpcadmin.lab import faults
    what = faults.Fault(rate=rate, kill_slurmd=kill_slurmd, down=node_down, freeze=freeze, heal=heal,
                        gpu=gpu[0] if gpu else None, gpu_fault=gpu[1] if gpu else "",
                        port=port[0] if port else "", port_fault=port[1] if port else "")
    faults.fault(name, node, what)
    click.echo(f"{node}: healed" if heal else f"{node}: {', '.join(what.texts())}")
    return EXIT_OK


@command.command()
@name_option
def env(name: str) -> int:
    """Print exports with which root on this machine uses the lab's Slurm and site file."""
    from hpcadmin.lab import journal
    lab = journal.load(name)
    if lab.base != "/":
        click.echo(f"# Slurm inside comes from {lab.base}: this machine's commands can use it only if they are as new.")
    for key, file in (("SLURM_CONF", "machine/slurm.conf"), ("HPCADMIN_SITE", "site.toml")):
        click.echo(f"export {key}={shlex.quote(str(lab.dir / file))}")
    return EXIT_OK

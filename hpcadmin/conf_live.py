"""Asks slurmctld for all nodes and its settings: one command each, whatever the number of nodes, with a time limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcadmin.conf.check.finding import LiveNode
from hpcadmin.conf.live import nodes_of_json, parse_config, parse_nodes
from hpcadmin.errors import ParseError, SlurmError
from hpcadmin.slurm.client import version_tuple
from hpcadmin.slurm.command_line import CommandLine

TIMEOUT_S = 60.0
_JSON_SINCE = (23, 2)


@dataclass(frozen=True)
class Live:
    """nodes by name. settings: what is in force, by key in small letters. version: "22.05.8", of slurmctld."""

    nodes: Mapping[str, LiveNode]
    settings: Mapping[str, str]
    version: str


def read(environment: Mapping[str, str] | None = None, *, timeout_s: float = TIMEOUT_S) -> Live:
    """What slurmctld has now. environment: that Slurm's commands get (SLURM_CONF), the own one if None.

    Raises SlurmError (exit status 4) where Slurm is not installed, slurmctld does not answer within `timeout_s`, or
    answers something else than its nodes.
    """
    slurm = CommandLine(environment, timeout_s)
    try:
        settings = parse_config(slurm.show("config")).settings
        nodes = _nodes(slurm)
    except ParseError as exc:
        raise SlurmError(exc.what, where=exc.where, hint=exc.hint) from exc
    return Live(nodes, settings, settings.get("slurm_version", ""))


def _nodes(slurm: CommandLine) -> Mapping[str, LiveNode]:
    """As JSON where this scontrol has it (a reason cannot be taken for a key there), else as lines."""
    if version_tuple(slurm.version())[:2] >= _JSON_SINCE:
        try:
            return nodes_of_json(slurm.show("nodes", "--json"))
        except (ParseError, SlurmError):
            pass                             # built without JSON, or of a shape that is not known: lines say the same
    return parse_nodes(slurm.show("nodes", "--oneliner"))

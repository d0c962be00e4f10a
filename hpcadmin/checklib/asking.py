"""On which node, and with which rights, the tools are started that look at a whole fabric or at hardware."""

from __future__ import annotations

from hpcadmin.check import Context
from hpcadmin.checklib.links import INFINIBAND


def as_root(context: Context) -> str:
    """What stands before a tool that wants root: the parameter `sudo` says whether; it never asks for a password."""
    return "sudo -n" if context.params.get("sudo") is True else ""


def fabric_node(context: Context) -> tuple[str, ...]:
    """The node that asks the InfiniBand fabric: the first with a port that is up, where ports are known."""
    up = [n.name for n in context.nodes if any(p.up and p.link_layer == INFINIBAND for p in n.ports)]
    return tuple((up or [n.name for n in context.nodes])[:1])

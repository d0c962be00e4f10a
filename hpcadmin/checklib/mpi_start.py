"""How MPI programs are started so that their output proves what carried the messages, and what it must prove.

UCX_LOG_LEVEL=info makes UCX name the lanes of every kind of connection. Open MPI without UCX tells the component for
every peer (btl_base_verbose=5), or that it uses libfabric (pml_base_verbose=10) and which provider of it
(opal_common_ofi_verbose=1, in older versions mtl_base_verbose=1); Intel MPI tells its provider (I_MPI_DEBUG=5). None of
them tells anything between the first message and the last. With many ranks only UCX is asked, which prints a line a
kind and not a line a peer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.check import Context, Layout, Measurement, ParseError
from hpcadmin.text import printable

UNPROVEN = "RDMA is expected here, and the output does not prove what was used"
PAIR_LAYOUTS = (Layout.PAIRS, Layout.RAILS)
GROUP_LAYOUTS = (Layout.ALL, Layout.RAILS, Layout.GROUPS, Layout.LEAVES)
USES = ("numactl",)
_FEW_RANKS = 64
_LANES = re.compile(r"UCX +INFO .{0,200}?\btag\(([^)]{1,400})\)")
_PORT = re.compile(r"\b(?:rc|dc|ud)(?:_\w{1,12})?/([\w.-]{1,40}):(\d{1,3})\b")


def environment(context: Context, ranks: int) -> dict[str, str]:
    """What a step between nodes gets: to tell its transport, and over a rail to use only that."""
    env = {}
    if len(context.nodes) > 1:
        env = {"UCX_LOG_LEVEL": "info"}
        if ranks <= _FEW_RANKS:
            env.update(OMPI_MCA_btl_base_verbose="5", OMPI_MCA_pml_base_verbose="10", OMPI_MCA_mtl_base_verbose="1",
                       OMPI_MCA_opal_common_ofi_verbose="1", I_MPI_DEBUG="5")
    if context.layout is Layout.RAILS and context.ports:
        env["UCX_NET_DEVICES"] = ",".join(dict.fromkeys(f"{p.device}:{p.port}" for p in context.ports))
    return env


def under(context: Context, tasks_per_node: int) -> tuple[str, ...]:
    """What binds a rank to the NUMA node of the port: where there is one rank a node, and the ports of both nodes are
    near the same one. The places of simulated devices are not those of the host."""
    near = _numa(context)
    tool = context.tools.get("numactl", "")
    if near is None or not tool or tasks_per_node != 1:
        return ()
    return (tool, f"--cpunodebind={near}", f"--membind={near}")


def bound(context: Context, tasks_per_node: int = 1) -> str:
    """"NUMA node 1" where ranks are started so."""
    return f"NUMA node {_numa(context)}" if under(context, tasks_per_node) else ""


def _numa(context: Context) -> int | None:
    if context.simulated or len(context.nodes) != 2:
        return None
    ports = context.ports or [min((p for p in n.ports if p.up), key=lambda p: (p.rail is None, p.rail or 0),
                                  default=None) for n in context.nodes]
    found = {port.numa if port else None for port in ports}
    return found.pop() if len(found) == 1 else None



def proof(transport: str | None, text: str, context: Context) -> tuple[list[Measurement], tuple[str, ...]]:
    """(the transport as a verdict, warnings) of a run of ours. Where every node has a port for RDMA that is up, sockets
    are a fault whatever the numbers, and of connections one by sockets is enough; what nobody tells is a warning."""
    _right_port(text, context)
    if not context.rdma_expected:
        return [], ()
    slow = next((lanes for lanes in _lanes(text) if "tcp/" in lanes and "memory" not in lanes    # within a node
                 and not _PORT.search(lanes)), "")
    told = f"TCP (UCX: {slow})" if slow else transport or ""
    if not told or told.startswith("SHM"):
        return [], (UNPROVEN,)
    value = printable(told, limit=200) if told.startswith("TCP") else "RDMA"
    return [Measurement("transport", value, subject=context.subject, expected="RDMA",
                        transport=printable(told, limit=200))], ()


def _lanes(text: str) -> Sequence[str]:
    return [m[1] for m in _LANES.finditer(text)] if "UCX" in text else ()


def _right_port(text: str, context: Context) -> None:
    """Refuses a run over a rail that used another port."""
    if context.layout is not Layout.RAILS or not context.ports:
        return
    wanted = {(p.device, str(p.port)) for p in context.ports}
    used = {(m[1], m[2]) for lanes in _lanes(text) for m in _PORT.finditer(lanes)}
    if used - wanted:
        raise ParseError(f"used port {'/'.join(sorted(used - wanted)[0])}, not only {context.ports[0].name}")

"""A job that fits on one leaf switch is given nodes of one leaf switch.

A job of two nodes (parameter `nodes`) is submitted without saying which of the nodes under test. On each of them it
tells its place in the network as Slurm sees it, and beside it which leaves there are and which of their nodes are free.

Measured: `leaves`, how many leaf switches or blocks the job's nodes are on (expected: 1). Where it is more, look at
TopologyPlugin in slurm.conf, at topology.conf or topology.yaml, and at what else ran at that moment. Where no leaf had
enough free nodes, or only one leaf had any, nothing is proven, and that is an error. What is tested is Slurm's own
picture of the network; `hpcadmin conf check` compares that with the cables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, JobRequest, Measurement, Output, ParseError, Role, Scope, Step, Subject

SCRIPT = r"""
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
told="place: ${SLURMD_NODENAME:--} ${SLURM_TOPOLOGY_ADDR:--} ${SLURM_TOPOLOGY_ADDR_PATTERN:--}"
if [ "${SLURM_PROCID:-}" = 0 ]; then
    free=$(sinfo -h -N -o '%N %t' 2>&1 | sort -u | sed 's/^/state: /')
    leaves=$(scontrol show topology 2>&1 | sed 's/^/topology: /')
    printf '# hpcadmin leaf_allocation 1\n%s\n%s\n# end leaf_allocation\n' "$free" "$leaves"
fi
echo "$told"
"""
_PLACE = re.compile(r"place: (?P<node>\S{1,255}) (?P<address>\S{1,1000}) (?P<pattern>\S{1,200})\Z")
_STATE = re.compile(r"state: (?P<node>\S{1,255}) (?P<state>[a-z_]+)(?P<flag>[^a-z_\s]*)\Z")


def steps(context: Context) -> tuple[Step, ...]:
    count = context.param_int("nodes", 2)
    if not 2 <= count <= len(context.nodes):
        raise ParseError(f"needs {max(2, count)} nodes, there are {len(context.nodes)}")
    return (Step(argv=("/bin/sh", "-c", SCRIPT, "leaf_allocation"), role=Role.JOB, timeout_s=60.0,
                 name=f"job on {count} nodes", job=JobRequest(anywhere=count)),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    count = context.param_int("nodes", 2)
    lines = lib.own_output(lib.require(outputs, count=1)[0].text, "leaf_allocation")
    lib.no_fatal_lines(lines)
    places = {m["node"]: m for m in map(_PLACE.match, lines) if m}
    if len(places) != count or sum(line.startswith("place: ") for line in lines) != count:
        raise ParseError(f"{len(places)} nodes told their place, the job has {count}")
    leaves = {node: _leaf(match["address"], match["pattern"]) for node, match in places.items()}
    _choice(lines, leaves, count, {node.name for node in context.nodes})
    where = ", ".join(f"{node} on {leaf}" for node, leaf in sorted(leaves.items()))
    several = len(set(leaves.values())) > 1
    return [Measurement("leaves", len(set(leaves.values())), subject=Subject(tuple(sorted(leaves))), expected=1,
                        warnings=(f"{where}; look at slurm.conf TopologyPlugin= and at topology.conf",) if several
                        else ())]


def _leaf(address: str, pattern: str) -> str:
    """The lowest switch or the block of "spine.leaf1.node01", whose pattern is "switch.switch.node"."""
    words, kinds = address.split("."), pattern.split(".")
    if len(kinds) < 2 or kinds[-1] != "node" or set(kinds[:-1]) - {"switch", "block"}:
        raise ParseError(f"Slurm knows no switch or block of its nodes: address {lib.shown(address)}, pattern "
                         f"{lib.shown(pattern)}", hint="TopologyPlugin=topology/tree or block")
    return words[len(kinds) - 2]


def _choice(lines: Sequence[str], leaves: dict[str, str], count: int, usable: set[str]) -> None:
    """Whether Slurm had the choice. Raises ParseError where that is not certain: then nothing is proven.

    usable: the nodes that the job could be given at all; empty: not known, so all.
    """
    idle = {m["node"] for m in map(_STATE.match, lines) if m and m["state"] == "idle" and not m["flag"]}
    members = dict(_members(lines))
    if not members:
        raise ParseError("scontrol show topology tells no leaf with its nodes")
    free = {leaf: nodes & (idle | leaves.keys()) & (usable or nodes) for leaf, nodes in members.items()}
    if len(set(leaves.values())) > 1:
        if max(map(len, free.values())) < count:
            raise ParseError(f"no leaf had {count} free nodes, so that one job had to be on several",
                             hint="again with more nodes, or when the cluster is not busy")
    elif sum(map(bool, free.values())) < 2:
        raise ParseError(f"all nodes that were free are on {leaves[min(leaves)]}: Slurm had no other leaf to choose",
                         hint="again with more nodes, or when the cluster is not busy")


def _members(lines: Sequence[str]) -> list[tuple[str, frozenset[str]]]:
    found = []
    for line in lines:
        match = re.match(r"topology: (?:SwitchName|BlockName)=(\S{1,255}) (.{1,65536})\Z", line)
        nodes = re.search(r"\bNodes=(\S{1,65536})", match[2]) if match else None
        if match and nodes and not re.search(r"\bSwitches=[^\s(]", match[2]):
            found.append((match[1], frozenset(lib.hosts(nodes[1], match[1]))))
    return found


CHECK = Check(
    name="leaf_allocation", title="A job that fits on one leaf switch gets nodes of one", scope=Scope.CLUSTER,
    needs=("topology",), params={"nodes": 2}, steps=steps, parse=parse, seconds=5.0, doc=__doc__ or "",
)

"""What a plan may know of the nodes: gathered from inventories, the site's file and what was built. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.check import NodeView
from hpcadmin.hosts import expand
from hpcadmin.inventory import node_view
from hpcadmin.model import Inventory, Node
from hpcadmin.rundata import ToolFound
from hpcadmin.site import Site
from hpcadmin.tools import by_node

HARDWARE = {"gpu": "GPU", "rdma": "RDMA device", "infiniband": "InfiniBand port", "roce": "RoCE port",
            "topology": "switch or block in Slurm's topology"}
ON_NODES = ("gpu", "rdma", "infiniband", "roce")
_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}


@dataclass(frozen=True)
class Facts:
    """What the plan may know of the nodes. has: hardware word -> node -> there or not, None where no source told.

    expected: hardware word -> node -> who expects it ("site.toml [nodes.gpu]", "the accepted inventory").
    tools: node -> tool -> path; "" is not there, no key was not looked for. programs: ours, built -> path;
    unbuilt: program -> why it could not be built. found: node -> tool -> what a look found of it.
    """

    views: Mapping[str, NodeView]
    has: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    expected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    unbuilt: Mapping[str, str] = field(default_factory=dict)
    shared_dir: str = ""
    whole_nodes: str = ""                               # name of the partition, where it gives jobs whole nodes
    slurm_gpus: Mapping[str, int] = field(default_factory=dict)     # node -> how many slurm.conf gives it
    found: Mapping[str, Mapping[str, ToolFound]] = field(default_factory=dict)
    site: Site = field(default_factory=Site)            # how tools are reached: its [tools]
    pyxis: bool = False                                 # srun knows containers
    switches: tuple[Mapping[str, str], ...] = ()        # by level, the leaves first: node -> its switch; (): not known

    def why_not(self, node: str, tool: str) -> str:
        """Why a tool cannot be used on a node, "" when it can."""
        known = self.found.get(node, {}).get(tool)
        if known is not None and known.problem:
            return f"{tool} {known.problem}"
        if self.tools.get(node, {}).get(tool):
            return ""
        return f"{tool} {'is not there' if tool in self.tools.get(node, {}) else 'was not looked for'}"


def gather(nodes: Sequence[str], seen: Inventory | None, accepted: Inventory | None, site: Site, *,
           programs: Mapping[str, str], unbuilt: Mapping[str, str], shared_dir: str,
           topology: bool | None = None, tools: Sequence[ToolFound] = (), pyxis: bool = False) -> Facts:
    """Facts of these nodes. What a node must have is what was accepted before; what it has is what was seen last.
    topology: whether slurmctld has switches or blocks. tools: what a look found of them."""
    last = {n: _find(seen, n) or _find(accepted, n) for n in nodes}
    ordered = {n: _find(accepted, n) or last[n] for n in nodes}
    paths = {name: tool.path for name, tool in site.tools.items() if tool.path}     # until a look has told
    found = by_node(tools)
    return Facts(
        views={n: _view(n, ordered[n], last[n]) for n in nodes},
        has={**{word: {n: _has(word, last[n]) for n in nodes} for word in ON_NODES},
             "topology": dict.fromkeys(nodes, topology)},
        expected=_expected(nodes, accepted, site),
        tools={n: {**(node.tools if node else {}), **paths,
                   **{t: "" if one.problem else one.path for t, one in found.get(n, {}).items()}}
               for n, node in last.items()},
        programs=programs, unbuilt=unbuilt, shared_dir=shared_dir, found=found, site=site, pyxis=pyxis,
    )


def _find(inventory: Inventory | None, name: str) -> Node | None:
    return inventory.node(name) if inventory else None


def _view(name: str, ordered: Node | None, last: Node | None) -> NodeView:
    if ordered is None or last is None:
        return NodeView(name)
    return replace(node_view(ordered), simulated=last.simulated or ordered.simulated)


def _has(word: str, node: Node | None) -> bool | None:
    """Whether the hardware is there; None: no source told."""
    if node is None:
        return None
    there = bool(node.gpus) if word == "gpu" else any(
        nic.rdma and (word == "rdma" or nic.link_layer == _LAYERS[word]) for nic in node.nics)
    unknown = ("gpus",) if word == "gpu" else ("rdma", "nics")
    return True if there else None if any(part in node.unknown for part in unknown) else False


def _expected(nodes: Sequence[str], accepted: Inventory | None, site: Site) -> dict[str, dict[str, str]]:
    expected: dict[str, dict[str, str]] = {word: {} for word in ON_NODES}
    for name in nodes:
        node = _find(accepted, name)
        for word in ON_NODES:
            if node is not None and _has(word, node):
                expected[word][name] = "the accepted inventory"
    wanted = set(nodes)
    for group in site.nodes:
        members = wanted.intersection(expand(group.hosts)) if group.gpus or group.rdma else ()
        for word, count in (("gpu", group.gpus), ("rdma", group.rdma)):
            if count:
                expected[word].update(dict.fromkeys(members, f"site.toml [nodes.{group.name}]"))
    return expected

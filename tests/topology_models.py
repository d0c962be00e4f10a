"""Inventories with networks, for the tests of topology.conf and topology.yaml."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import fabric_trees as trees

from hpcadmin.conf.existing.parts import Configuration
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import Version
from hpcadmin.conf.output import explain, fill
from hpcadmin.conf.topology import topology_files
from hpcadmin.conf.topology_choice import TopologyFiles
from hpcadmin.fabric import build
from hpcadmin.facts import iblinkinfo, ibnetdiscover
from hpcadmin.facts._reading import Document
from hpcadmin.model import Fabric, Gpu, Inventory, Nic, Node
from hpcadmin.site import Site, SlurmSite
from hpcadmin.site_topology import TopologySite

V22, V23, V24, V25, V26 = (22, 5), (23, 11), (24, 11), (25, 5), (26, 5)


def site(**topology: object) -> Site:
    return Site(topology=TopologySite(**topology))          # type: ignore[arg-type]


def with_option(key: str, value: str, **topology: object) -> Site:
    return replace(site(**topology), slurm=SlurmSite(options={key: value}))


def fabric(text: str, nodes: Sequence[Node] = ()) -> Fabric:
    document = Document("dump.txt", lines=tuple(text.split("\n")))
    found = [*ibnetdiscover.read(document), *iblinkinfo.read(document)]
    return build([reading.value for reading in found], nodes)[0]


def hosts(found: Fabric) -> list[str]:
    return sorted({device.host for device in found.devices if device.kind == "ca" and device.host})


def inventory(net: trees.Net, *more: Node, without: Collection[str] = ()) -> Inventory:
    """Every host of the net as a node, and more nodes."""
    found = fabric(trees.ibnetdiscover(net))
    return Inventory((*(Node(host) for host in hosts(found) if host not in without), *more), fabrics=(found,))


def beside(one: trees.Net, other: trees.Net, name: Callable[[str], str]) -> trees.Net:
    """Two nets without a cable between them; the other's boxes under new names."""
    for box in other.boxes.values():
        one.add(box.kind, name(box.name))
    for box in other.boxes.values():
        one.boxes[name(box.name)].ports.update({port: (name(peer), far) for port, (peer, far) in box.ports.items()})
    return one


def adapter(name: str, relation: str = "PIX") -> Nic:
    return Nic(name, rdma=name, link_layer="InfiniBand", gpu_relations=(relation,))


def nvl(racks: int, trays: int = 18, gpus: int = 4, *, names: str = "rack{rack:02d}-n{tray:02d}",
        without: Collection[str] = ()) -> tuple[Node, ...]:
    """Trays of NVL72 racks, each rack an NVLink domain."""
    def gpu(rack: int, index: int) -> Gpu:
        return Gpu("nvidia", index, "NVIDIA GB200", fabric_state="Completed", fabric_clique="32766",
                   fabric_cluster_uuid=f"{rack * 0x11111111:08x}-0000-4000-8000-{rack:012x}")
    found = [(names.format(rack=rack, tray=tray, number=(rack - 1) * trays + tray), rack)
             for rack in range(1, racks + 1) for tray in range(1, trays + 1)]
    return tuple(Node(name, gpus=tuple(gpu(rack, index) for index in range(gpus)))
                 for name, rack in found if name not in without)


def planned(found: Inventory, where: Site | None = None, version: Version | None = V24) -> TopologyFiles:
    return topology_files(found, where or Site(), [node.name for node in found.nodes], version)


def texts(plan: TopologyFiles, *, comments: bool = False) -> dict[str, str]:
    """The files; every line is where it should be."""
    files = {}
    for name, sections in plan.files.items():
        files[name] = fill(name, {"sections": sections, "empty": "", "head": ["a test"], "comments": comments})
        explain(name, files[name], [line for section in sections for line in section.lines])
    return files


def lines(found: Inventory, where: Site | None = None, version: Version | None = V24) -> list[str]:
    """The lines of the file, without comments; no problem is there."""
    plan = planned(found, where, version)
    assert plan.problems == [], plan.problems
    return [line for text in texts(plan).values() for line in text.splitlines()
            if line and not line.startswith(("#", "---"))]


def problems(found: Inventory, where: Site | None = None, version: Version | None = V24) -> list[str]:
    plan = planned(found, where, version)
    assert plan.problems == [] or plan.files == {}
    return [f"{problem.node}: {problem.what}" if problem.node else problem.what for problem in plan.problems]


def read_back(plan: TopologyFiles, names: Collection[str]) -> Configuration:
    """What Slurm would make of the files, as conf check reads them."""
    settings = "".join(f"{entry.key}={entry.value}\n" for entry in plan.settings)
    nodes = "".join(f"NodeName={name} CPUs=1\n" for name in names)
    return configure({"slurm.conf": f"ClusterName=c\n{settings}{nodes}", **texts(plan)})

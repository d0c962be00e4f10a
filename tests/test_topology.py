"""Where devices are and what follows from it, on a made-up node of two sockets with two PCIe switches each."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from hpcadmin.errors import UsageError
from hpcadmin.facts import Document, read_document
from hpcadmin.model import Core, Cpu, Gpu, Nic, Node, NumaNode, PciDevice
from hpcadmin.nccl_topology import affinity, document
from hpcadmin.topology import Near, bindings, mask, nearest, rails, relation, srun_options
from hpcadmin.topology_svg import node_svg
from hpcadmin.topology_text import draw

GPU, NIC, BRIDGE = "030200", "020700", "060400"


def switch(bus: int, numa: int, gpus: int, nics: int) -> list[PciDevice]:
    """A root port with a PCIe switch below it, and its devices."""
    root = f"0000:{bus:02x}"
    port, up = f"{root}:01.0", f"0000:{bus + 1:02x}:00.0"
    found = [PciDevice(port, BRIDGE, "8086", "352a", numa, root=root),
             PciDevice(up, BRIDGE, "1000", "c030", numa, parent=port, root=root)]
    for number in range(gpus + nics):
        down, place = f"0000:{bus + 2:02x}:{number:02x}.0", f"0000:{bus + 3 + number:02x}:00.0"
        kind, vendor = (GPU, "10de") if number < gpus else (NIC, "15b3")
        found += [PciDevice(down, BRIDGE, "1000", "c030", numa, parent=up, root=root),
                  PciDevice(place, kind, vendor, "2330", numa, parent=down, root=root, link="32.0 GT/s PCIe x16")]
    return found


def node() -> Node:
    pci = [device for bus, numa in ((0x10, 0), (0x30, 0), (0x90, 1), (0xb0, 1)) for device in switch(bus, numa, 2, 1)]
    pci.append(PciDevice("0000:70:00.0", NIC, "15b3", "1017", 0, root="0000:70"))
    gpus = [device for device in pci if device.class_id == GPU]
    nics = [device for device in pci if device.class_id == NIC]
    numa = (NumaNode(0, tuple(range(4)), 1024), NumaNode(1, tuple(range(4, 8)), 1024))
    # Named against their order on the bus, as udev may.
    names = ["mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0", "mlx5_4"]
    return Node(
        "n1", cpu=Cpu(model="Intel Xeon", architecture="x86_64", sockets=2, cores_per_socket=4, threads_per_core=1,
                      numa=numa, cores=tuple(Core(cpu // 4, cpu // 4, (cpu,)) for cpu in range(8))), pci=tuple(pci),
        gpus=tuple(Gpu("nvidia", n, "NVIDIA H100", pci=d.address, numa=d.numa, device_file=f"/dev/nvidia{n}")
                   for n, d in enumerate(gpus)),
        gpu_links=tuple(tuple("X" if a == b else "NV18" for a in range(8)) for b in range(8)),
        nics=tuple(Nic(name, name, 1, link_layer="InfiniBand", rate_gbps=400.0, pci=d.address, numa=d.numa)
                   for name, d in zip(names, nics, strict=True)),
    )


def test_relations_are_those_of_topo_m() -> None:
    one = node()
    gpus = [gpu.pci for gpu in one.gpus]
    assert relation(gpus[0], gpus[1], one) == "PIX"
    assert relation(gpus[0], gpus[2], one) == "NODE"
    assert relation(gpus[0], gpus[4], one) == "SYS"
    assert relation(gpus[0], "0000:ff:00.0", one) == ""


def test_two_switches_in_a_row_are_pxb_and_one_root_is_phb() -> None:
    above = {"0000:10:01.0": "", "0000:11:00.0": "0000:10:01.0", "0000:10:02.0": "", "0000:20:00.0": "0000:10:02.0"}
    for n in (1, 2):
        chain = ["0000:11:00.0", f"0000:12:0{n}.0", f"0000:{n}3:00.0", f"0000:{n}4:00.0", f"0000:{n}5:00.0"]
        above |= dict(zip(chain[1:], chain[:-1], strict=True))
    one = Node("n", pci=tuple(PciDevice(address, BRIDGE, "1000", "1", 0, parent=parent, root="0000:10")
                              for address, parent in above.items()))
    assert relation("0000:15:00.0", "0000:25:00.0", one) == "PXB"
    assert relation("0000:15:00.0", "0000:20:00.0", one) == "PHB"


def test_nearest_gpus_and_rails_go_by_topology_and_name_ties() -> None:
    one = node()
    near = {item.nic: item for item in nearest(one)}
    assert near["mlx5_3"] == Near("mlx5_3", "PIX", (0, 1))
    assert near["mlx5_0"] == Near("mlx5_0", "PIX", (6, 7))
    assert near["mlx5_4"] == Near("mlx5_4", "NODE", (0, 1, 2, 3))
    # The storage NIC on the host bridge is no rail; the others count from the first GPU on.
    assert [item.nic for item in rails(one)] == ["mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0"]


def test_what_topo_m_said_goes_before_the_tree() -> None:
    one = node()
    told = replace(one, nics=(replace(one.nics[0], gpu_relations=("SYS",) * 7 + ("PIX",)),))
    assert nearest(told) == (Near("mlx5_3", "PIX", (7,)),)
    unsure = replace(one, nics=(replace(one.nics[0], gpu_relations=("SYS",) * 7 + ("",), numa=None),))
    assert nearest(unsure)[0].gpus == ()


def test_without_places_nothing_is_near() -> None:
    one = replace(node(), pci=(), gpus=tuple(replace(g, numa=None) for g in node().gpus))
    assert all(item == Near(item.nic, "", ()) for item in nearest(one))
    assert rails(one) == ()
    assert srun_options(one) == ""


def test_bindings() -> None:
    found = bindings(node())
    assert [(b.gpu, b.numa, b.cpus, b.nics) for b in found][:3] == [
        (0, 0, (0, 1, 2, 3), ("mlx5_3",)), (1, 0, (0, 1, 2, 3), ("mlx5_3",)), (2, 0, (0, 1, 2, 3), ("mlx5_2",))]
    assert srun_options(node()) == ("--ntasks-per-node=8 --gpu-bind=map_gpu:0,1,2,3,4,5,6,7 --cpu-bind=mask_cpu:"
                                    "0xf,0xf,0xf,0xf,0xf0,0xf0,0xf0,0xf0")
    assert mask((0, 33)) == "0x200000001"


def test_nccl_file_holds_what_is_known_and_reads_back() -> None:
    one = node()
    text = document(one)
    root = ElementTree.fromstring(text)  # noqa: S314  (our own)
    assert [cpu.get("numaid") for cpu in root.findall("cpu")] == ["0", "1"]
    assert root.find("cpu").get("affinity") == "0000000f"          # type: ignore[union-attr]
    assert len(root.findall(".//gpu")) == 8 and len(root.findall(".//net")) == 5
    # Each GPU is below its switch: root port, upstream port, downstream port, device.
    assert len(root.findall("cpu/pci/pci/pci/pci/gpu")) == 8
    reading = read_document(Document("x.xml", "xml", lines=tuple(text.split("\n")))).readings[0]
    assert reading.kind.startswith("NCCL")


def test_no_nccl_file_from_guesses() -> None:
    one = node()
    lost = replace(one, gpus=(replace(one.gpus[0], pci="0000:99:00.0"), *one.gpus[1:]))
    with pytest.raises(UsageError, match=r"NUMA node of 0000:99:00\.0 is not known"):
        document(lost)
    with pytest.raises(UsageError, match="no topology"):
        document(Node("empty"))


def test_affinity_masks_have_words_of_32_bits() -> None:
    assert affinity((0, 1, 32)) == "00000001,00000003"
    assert affinity(()) == "00000000"


def test_drawings() -> None:
    text = draw(node())
    assert "Package 0: 4 cores, Intel Xeon" in text
    assert "NUMA 1: CPUs 4-7 (Slurm Cores 4-7), 1 GiB" in text
    assert "GPU links: NV18 between all 8 GPUs" in text
    assert "mlx5_3: rail 0, as near to GPUs 0, 1 (PIX)" in text
    root = ElementTree.fromstring(node_svg(node()))  # noqa: S314
    assert root.tag.endswith("svg")
    shown = " ".join(element.text or "" for element in root.iter() if element.tag.endswith("text"))
    assert shown.count("/dev/nvidia") == 8


def test_hostile_names_are_only_text() -> None:
    one = replace(node(), name='"><script>', product="\x1b[31m</svg>")
    assert "<script" not in node_svg(one)
    ElementTree.fromstring(node_svg(one))  # noqa: S314
    assert "\x1b" not in draw(one)

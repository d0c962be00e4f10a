"""Groups of identical nodes, the odd ones out, and the inventory file."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from looped import looped

from hpcadmin import inventory, records
from hpcadmin.errors import StoreError
from hpcadmin.model import Core, Cpu, Failed, Gpu, Nic, Node, NumaNode

CPU = Cpu(model="AMD EPYC 9354", architecture="x86_64", sockets=2, cores_per_socket=2, threads_per_core=1,
          cores=tuple(Core(n // 2, n // 2, (n,)) for n in range(4)),
          numa=(NumaNode(0, (0, 1), 515_000), NumaNode(1, (2, 3), 515_000)))
H100 = "NVIDIA H100 80GB HBM3"


def gpu(index: int, **changes: object) -> Gpu:
    made = Gpu(vendor="nvidia", index=index, model=H100, uuid=f"GPU-{index}", pci=f"0000:{0x10 + index:02x}:00.0",
               minor=index, memory_mib=81559, pcie_width=16, pcie_gen_max=5, ecc="Enabled", vbios="96.00.99.00.01")
    return replace(made, **changes)  # type: ignore[arg-type]


def hca(number: int, **changes: object) -> Nic:
    made = Nic(name=f"mlx5_{number}", rdma=f"mlx5_{number}", port=1, link_layer="InfiniBand", state="ACTIVE",
               physical_state="LinkUp", rate_gbps=400.0, firmware="28.39.3004")
    return replace(made, **changes)  # type: ignore[arg-type]


def node(name: str, **changes: object) -> Node:
    made = Node(name=name, hostname=name, cpu=CPU, memory_mib=1_030_000, gpus=tuple(map(gpu, range(8))),
                nics=(hca(0), hca(1)), product="XE9680", bios="1.2.3", os="Rocky Linux 9.4", kernel="5.14.0-427",
                gpu_driver="550.90.12", slurm_version="23.11.10")
    return replace(made, **changes)  # type: ignore[arg-type]


def nodes(count: int, **odd: Node) -> list[Node]:
    return [odd.get(f"node{n:02d}", node(f"node{n:02d}")) for n in range(1, count + 1)]


def said(*members: Node) -> list[str]:
    return [odd.what for odd in inventory.build(members).odd]


def test_identical_nodes_are_one_group() -> None:
    found = inventory.build(nodes(12), [Failed("node13", "down")])
    assert [(group.name, len(group.nodes)) for group in found.groups] == [("8xh100", 12)]
    assert found.odd == ()
    assert found.failed[0].node == "node13"
    assert [n.name for n in inventory.build([node("node10"), node("node9")]).nodes] == ["node9", "node10"]


def test_a_missing_gpu_is_named() -> None:
    seven = node("node02", gpus=tuple(gpu(n) for n in range(8) if n != 5))
    found = inventory.build(nodes(4, node02=seven))
    assert [odd.what for odd in found.odd] == ["node02: 7 GPUs, the group has 8; missing: GPU 5 (0000:15:00.0)"]
    assert found.odd[0].device == "GPU 5"
    assert [group.nodes for group in found.groups] == [("node01", "node03", "node04"), ("node02",)]


def test_two_missing_gpus_and_all_of_them() -> None:
    six = node("node02", gpus=tuple(gpu(n) for n in range(8) if n not in (0, 5)))
    assert said(*nodes(4, node02=six)) == [
        "node02: 6 GPUs, the group has 8; missing: GPU 0 (0000:10:00.0), GPU 5 (0000:15:00.0)"]
    none = said(*nodes(4, node02=node("node02", gpus=())))
    assert len(none) == 1
    assert none[0].startswith("node02: 0 GPUs, the group has 8; missing: GPU 0")


@looped(("changes", "expected"), [
    ({"memory_mib": 965_000}, "node02: memory 942 GiB, the group has 1006 GiB"),
    ({"memory_mib": None}, "node02: memory unknown, the group has 1006 GiB"),
    ({"cpu": replace(CPU, threads_per_core=2, cores=tuple(Core(n // 2, n // 2, (n, n + 4)) for n in range(4)))},
     "node02: CPU topology 2x2x2, the group has 2x2x1"),
    ({"cpu": replace(CPU, cores=tuple(Core(n // 2, n // 2, (3 - n,)) for n in range(4)))},
     "node02: CPU topology 2x2x1 as the group, but numbered otherwise"),
    ({"gpus": tuple(gpu(n, model="NVIDIA H200") for n in range(8))},
     f"node02: GPU model NVIDIA H200, the group has {H100}"),
    ({"gpus": (), "unknown": ("gpus",)}, "node02: GPUs unknown, the group has 8 GPUs"),
    ({"nics": (hca(0),)},
     "node02: RDMA ports 1x InfiniBand 400 Gb/s, the group has 2x InfiniBand 400 Gb/s"),
    ({"nics": (hca(0), hca(1, state="DOWN", physical_state="Polling"))},
     "node02: mlx5_1/1: state DOWN, the group has ACTIVE"),
    ({"nics": (hca(0), hca(1, firmware="28.36.1010"))},
     "node02: mlx5_1/1: firmware 28.36.1010, the group has 28.39.3004"),
    ({"gpus": tuple(gpu(n, pcie_width=8 if n == 3 else 16) for n in range(8))},
     "node02: GPU 3: PCIe width x8, the group has x16"),
    ({"gpus": tuple(gpu(n, ecc="Disabled" if n == 3 else "Enabled") for n in range(8))},
     "node02: GPU 3: ECC Disabled, the group has Enabled"),
    ({"kernel": "5.14.0-503"}, "node02: kernel 5.14.0-503, the group has 5.14.0-427"),
    ({"gpu_driver": ""}, "node02: GPU driver unknown, the group has 550.90.12"),
    ({"bios": "1.1.0"}, "node02: BIOS 1.1.0, the group has 1.2.3"),
    ({"hostname": "node01"}, "node02: the same hostname node01 as node01"),
])
def test_the_exact_difference(changes: dict[str, object], expected: str) -> None:
    assert expected in said(*nodes(4, node02=node("node02", **changes)))


def test_memory_within_a_percent_is_the_same() -> None:
    made = [node(f"node{n:02d}", memory_mib=1_030_000 + 100 * n) for n in range(1, 9)]
    assert said(*made) == []
    assert len(inventory.build(made).groups) == 1


def test_one_of_many_is_odd_and_halves_are_two_groups() -> None:
    fleet = [node(f"node{n:02d}", kernel="5.14.0-503" if n == 7 else "5.14.0-427") for n in range(1, 65)]
    assert len(said(*fleet)) == 1
    fleet = [node(f"node{n:02d}", memory_mib=1_030_000 if n <= 34 else 515_000) for n in range(1, 65)]
    found = inventory.build(fleet)
    assert found.odd == ()
    assert [len(group.nodes) for group in found.groups] == [34, 30]
    fleet = [node(f"node{n:02d}", kernel="5.14.0-503" if n > 34 else "5.14.0-427") for n in range(1, 65)]
    assert said(*fleet) == []


def test_nodes_of_another_kind_are_not_odd() -> None:
    login = Node(name="login1", hostname="login1", cpu=replace(CPU, model="Intel Xeon Silver 4310"), memory_mib=257_000,
                 product="R650", os="Rocky Linux 9.4", kernel="5.14.0-427", slurm_version="23.11.10")
    found = inventory.build([*nodes(8), login])
    assert found.odd == ()
    assert [group.name for group in found.groups] == ["8xh100", "cpu"]


def test_two_nodes_that_differ_have_no_majority() -> None:
    assert said(node("node01"), node("node02", kernel="x", memory_mib=515_000)) == []


def test_node_view() -> None:
    view = inventory.node_view(node("node01", addresses=("10.0.0.1", "fd00::1")))
    assert (view.gpus, view.gpu_model, view.cpus, view.address) == (8, H100, 4, "10.0.0.1")
    assert view.gpu_pci[5] == "0000:15:00.0"
    assert view.rdma_devices == ("mlx5_0", "mlx5_1")
    unknown = inventory.node_view(Node(name="node02", unknown=("gpus", "cpu", "memory")))
    assert (unknown.gpus, unknown.cpus, unknown.memory_mib) == (None, None, None)
    assert inventory.node_view(node("node03", gpus=())).gpus == 0


def test_the_file_goes_round(tmp_path: Path) -> None:
    made = inventory.build(nodes(3), [Failed("node04", "no answer")], created="2026-01-01T00:00:00+00:00")
    inventory.save(tmp_path / "inventory.json", made)
    assert inventory.load(tmp_path / "inventory.json") == made


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 1}', '{"nodes": [{"name": 3}]}', '{"nodes": [], "x": 1}'])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inventory.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"inventory\.json"):
        inventory.load(path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    path.write_text(records.dumps(replace(inventory.build(nodes(1)), schema=99)))
    with pytest.raises(StoreError, match="schema 99"):
        inventory.load(path)


def test_merge_keeps_what_was_not_asked() -> None:
    old = inventory.build(nodes(4))
    new = inventory.build([node("node02", bios="9.9.9")], [Failed("node03", "down")])
    merged = inventory.merge(old, new)
    assert [n.name for n in merged.nodes] == ["node01", "node02", "node04"]
    assert [odd.what for odd in merged.odd] == ["node02: BIOS 9.9.9, the group has 1.2.3"]


def test_a_folder_or_pipe_in_the_place_of_an_inventory_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(StoreError) as caught:
            inventory.load(place)
        assert str(caught.value) == f"{place}: is not a regular file"

"""What two inventories differ in: machines, devices, cables, versions; nothing that changes by itself."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from looped import looped

from hpcadmin import inventory, inventory_diff, records
from hpcadmin.cli import run
from hpcadmin.model import (
    Bmc,
    Cpu,
    Dimm,
    Disk,
    Fabric,
    FabricDevice,
    Failed,
    Gpu,
    Inventory,
    Nic,
    Node,
    PciDevice,
    SwitchPort,
)


def node(number: int = 1, **changes: Any) -> Node:
    name = f"node0{number}"
    made = Node(
        name, hostname=name, serial=f"S{number}", uuid=f"u-{number}", product="XE9680", bios="2.1.5",
        kernel="5.14.0-427", memory_mib=1_030_000, cpu=Cpu(model="AMD EPYC", sockets=2),
        gpus=tuple(Gpu("nvidia", index=n, model="H100", uuid=f"GPU-{number}-{n}", serial=f"{number}{n}",
                       pci=f"0000:1{n}:00.0", minor=n, vbios="96.00.01") for n in range(4)),
        nics=(*(Nic(f"mlx5_{n}", rdma=f"mlx5_{n}", port=1, guid=f"946dae03000{number}000{n}", pci=f"0000:2{n}:00.0",
                    link_layer="InfiniBand", firmware="28.39", lid=7, state="ACTIVE") for n in range(2)),
              Nic("eth0", netdev="eth0", mac=f"00:00:00:00:00:0{number}", pci="0000:30:00.0", link_layer="Ethernet",
                  state="up"),
              Nic("bond0", virtual=True)),
        dimms=tuple(Dimm(f"A{n}", 65536, serial=f"D{number}{n}") for n in range(4)),
        disks=tuple(Disk(f"nvme{n}n1", model="PM9A3", serial=f"N{number}{n}", firmware="1") for n in range(2)),
        neighbours=(("eth0", "tor1", f"swp{number}"),), versions={"ucx": "1.15"}, settings={"SMT": "on"},
        bmc=Bmc(firmware="7.0", settings={"NPS": "4"}), problems=(), time_sync="chrony, synchronised to 10.0.0.1",
        command_line="BOOT_IMAGE=/vmlinuz-1 iommu=pt", captured="2026-01-01T00:00:00+00:00")
    return replace(made, **changes)


def changed(old: list[Node], new: list[Node], **more: Any) -> list[str]:
    fabrics = more.get("fabrics", ((), ()))
    found = inventory_diff.diff(
        Inventory(tuple(old), fabrics=fabrics[0], failed=more.get("failed_before", ())),
        Inventory(tuple(new), fabrics=fabrics[1], failed=more.get("failed", ())))
    return [f"{change.node}: {change.text}" if change.node else change.text for change in found.changes]


def gpus(number: int = 1, **changes: Any) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, **changes) for gpu in node(number).gpus)


def test_the_same() -> None:
    assert changed([node(1), node(2)], [node(2), node(1)]) == []


@pytest.mark.parametrize("changes", [
    {"captured": "2026-02-01T00:00:00+00:00"}, {"memory_mib": 1_029_000},
    {"nics": tuple(replace(nic, lid=99, sm_lid=3) for nic in node().nics)}, {"gpus": gpus(pcie_gen=1)},
    {"bmc": Bmc(firmware="7.0", settings={"NPS": "4"}, events=("power on",))}, {"gpus": node().gpus[::-1]},
    {"time_sync": "chrony, synchronised to 10.0.0.9"}, {"command_line": "BOOT_IMAGE=/vmlinuz-2 iommu=pt"},
    {"nics": (*node().nics, Nic("veth12", virtual=True))}, {"dimms": (*node().dimms[::-1], Dimm("B1"))},
])
def test_what_changes_by_itself_is_no_difference(changes: dict[str, Any]) -> None:
    assert changed([node()], [node(**changes)]) == []


def with_gpu(place: int, **changes: Any) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, **changes) if n == place else gpu for n, gpu in enumerate(node().gpus))


@looped(("changes", "expected"), [
    ({"bios": "2.2.0"}, ["BIOS: 2.1.5 -> 2.2.0"]), ({"kernel": ""}, ["kernel: 5.14.0-427 -> unknown"]),
    ({"memory_mib": 965_000}, ["memory: 1006 GiB -> 942 GiB"]),
    ({"versions": {"ucx": "1.16"}}, ["ucx: 1.15 -> 1.16"]),
    ({"bmc": Bmc(firmware="7.0", settings={"NPS": "1"})}, ["BIOS setting NPS: 4 -> 1"]),
    ({"command_line": "BOOT_IMAGE=x iommu=off"}, ["kernel command line: without iommu=pt, with iommu=off"]),
    ({"problems": ("GPU 3 is lost",)}, ["fault: GPU 3 is lost"]),
    ({"serial": "S9", "uuid": "u-9"}, ["serial: S1 -> S9", "system UUID: u-1 -> u-9"]),
    ({"gpus": gpus(vbios="96.00.02")}, ["GPU 0, GPU 1, GPU 2, GPU 3: VBIOS: 96.00.01 -> 96.00.02"]),
    ({"gpus": with_gpu(2, uuid="GPU-new", serial="99")},
     ["GPU 2 (0000:12:00.0): GPU-1-2 -> GPU-new"]),
    ({"gpus": node().gpus[:3]}, ["GPU 3 (0000:13:00.0, GPU-1-3): there -> gone"]),
    ({"gpus": (), "unknown": ("gpus",)}, ["GPUs: known -> unknown"]),
    ({"gpus": tuple(replace(gpu, uuid=f"GPU-1-{3 - n}", serial=f"1{3 - n}") if n in (0, 3) else gpu
                    for n, gpu in enumerate(node().gpus))},
     ["GPU 0 (GPU-1-3): node01 0000:13:00.0 -> node01 0000:10:00.0",
      "GPU 3 (GPU-1-0): node01 0000:10:00.0 -> node01 0000:13:00.0"]),
    ({"nics": tuple(replace(nic, firmware="28.40") if nic.rdma else nic for nic in node().nics)},
     ["mlx5_0/1, mlx5_1/1: firmware: 28.39 -> 28.40"]),
    ({"nics": (replace(node().nics[0], guid="946dae0300099999"), *node().nics[1:])},
     ["mlx5_0/1 (0000:20:00.0/1): 946dae0300010000/1 -> 946dae0300099999/1"]),
    ({"nics": (replace(node().nics[0], name="ibp32", rdma="ibp32"), *node().nics[1:])},
     ["ibp32/1: name: mlx5_0/1 -> ibp32/1"]),
    ({"dimms": node().dimms[1:]}, ["DIMM A0 (A0, D10): there -> gone"]),
    ({"dimms": (replace(node().dimms[0], serial="D99"), *node().dimms[1:])}, ["DIMM A0 (A0): D10 -> D99"]),
    ({"disks": tuple(replace(disk, firmware="2") for disk in node().disks)},
     ["disk nvme0n1, disk nvme1n1: firmware: 1 -> 2"]),
    ({"neighbours": (("eth0", "tor1", "swp7"),)}, ["cable of eth0: tor1 port swp1 -> tor1 port swp7"]),
    ({"pci": (PciDevice("0000:40:00.0", "120000", "10ee", "5000"),
              PciDevice("0000:41:00.0", "010802", "144d", "a80a"))},
     ["PCI devices: with 0000:41:00.0 144d:a80a"]),
])
def test_each_change_of_a_node_is_a_line(changes: dict[str, Any], expected: list[str]) -> None:
    assert changed([node()], [node(**changes)]) == [f"node01: {line}" for line in expected]


def test_devices_that_went_to_another_node() -> None:
    one, two = node(1), node(2)
    swapped = (replace(one, gpus=(*one.gpus[:3], replace(two.gpus[0], pci="0000:13:00.0", index=3, minor=3))),
               replace(two, gpus=(replace(one.gpus[3], pci="0000:10:00.0", index=0, minor=0), *two.gpus[1:])))
    assert changed([one, two], list(swapped)) == [
        "node01: GPU 3 (GPU-2-0): node02 0000:10:00.0 -> node01 0000:13:00.0",
        "node02: GPU 0 (GPU-1-3): node01 0000:13:00.0 -> node02 0000:10:00.0"]


def test_nodes_that_went_came_or_were_renamed() -> None:
    assert changed([node(1), node(2)], [node(1), node(3)]) == [
        "node02: is gone (XE9680, S2)", "node03: is new (XE9680, S3)"]
    renamed = replace(node(2), name="node07", hostname="node07")
    assert changed([node(1), node(2)], [node(1), renamed]) == [
        "node07: this machine (S2) was node02", "node07: hostname: node02 -> node07"]
    swapped = [replace(node(2), name="node01", hostname="node01"), replace(node(1), name="node02", hostname="node02")]
    assert [line for line in changed([node(1), node(2)], swapped) if "hostname" not in line] == [
        "node01: this machine (S2) was node02", "node02: this machine (S1) was node01"]
    assert changed([node(1), node(2)], [node(1)], failed=(Failed("node02", "no route"),)) == [
        "node02: not captured any more: no route"]
    assert changed([node(1)], [node(1), node(2)], failed_before=(Failed("node02", "down"),)) == [
        "node02: could not be captured before (XE9680, S2)"]


def fabric(port: int = 1, spine: int = 9, speed: str = "NDR") -> Fabric:
    card = FabricDevice("node01 mlx5_0", "ca", guid="0x946dae0300010000", lid=port,
                        ports=(SwitchPort(1, peer="leaf1", peer_port=port),))
    leaf = FabricDevice("leaf1", "switch", guid="0xaaaa000000000001", ports=(
        SwitchPort(33, peer="spine1", peer_guid="0xaaaa000000000002", peer_port=spine, width="4X", speed=speed),))
    return Fabric(devices=(card, leaf, FabricDevice("spine1", "switch", guid="0xaaaa000000000002")))


def test_cables_of_the_fabric() -> None:
    same = changed([node()], [node()], fabrics=((fabric(),), (fabric(),)))
    assert same == []
    assert changed([node()], [node()], fabrics=((fabric(),), (fabric(4, 10),))) == [
        "switch leaf1 port 33: spine1 port 9 -> spine1 port 10",
        "node01: cable of mlx5_0/1: leaf1 port 1 -> leaf1 port 4"]
    assert changed([node()], [node()], fabrics=((fabric(),), (fabric(speed="HDR"),))) == [
        "switch leaf1 port 33 to spine1 port 9: 4X NDR -> 4X HDR"]
    assert changed([node()], [node()], fabrics=((fabric(),), ())) == ["fabric: known -> unknown"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    inventory.save(old, inventory.build([node(1), node(2)]))
    inventory.save(new, inventory.build([node(1, bios="3"), node(2, bios="3", kernel="\x1b[3m")]))
    assert run(["inventory", "diff", str(old), str(old)]) == 0
    assert capsys.readouterr().out == "no difference (2 nodes)\n"
    assert run(["inventory", "diff", str(old), str(new)]) == 1
    assert capsys.readouterr().out == "node[01-02]: BIOS: 2.1.5 -> 3\nnode02: kernel: 5.14.0-427 -> \\x1b[3m\n"
    assert run(["inventory", "diff", "--json", str(old), str(new)]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert plain["same"] is False
    assert plain["changes"][0] == {"kind": "changed", "node": "node01", "what": "BIOS", "old": "2.1.5", "new": "3"}
    assert run(["inventory", "diff", str(old), str(tmp_path / "absent.json")]) == 2


def test_a_large_fleet_takes_time_by_its_size() -> None:
    import time
    plain = records.to_plain(node())
    many = [records.from_plain(Node, {**plain, "name": f"n{n}", "serial": f"X{n}", "uuid": f"y{n}"}, where="")
            for n in range(400)]
    start = time.process_time()
    inventory_diff.diff(Inventory(tuple(many)), Inventory(tuple(many)))
    assert time.process_time() - start < 3

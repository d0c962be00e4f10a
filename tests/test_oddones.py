"""The odd ones out in everything that a node tells, folded over nodes, in time that grows with their number."""

import time
from dataclasses import replace
from typing import Any

import pytest
from looped import looped

from hpcadmin import inventory, oddones, records
from hpcadmin.model import (
    Bmc,
    Core,
    Cpu,
    Dimm,
    Disk,
    Gpu,
    MigDevice,
    Mount,
    Nic,
    Node,
    NumaNode,
    OddOneOut,
    PciDevice,
)

NV = tuple(tuple("X" if a == b else "NV18" for b in range(4)) for a in range(4))
NUMA = (NumaNode(0, (0, 1), 1000, (10, 21)), NumaNode(1, (2, 3), 1000, (21, 10)))


def gpu(index: int, **changes: Any) -> Gpu:
    made = Gpu("nvidia", index=index, model="H100", pci=f"0000:1{index}:00.0", fabric_state="Completed", mig="Disabled",
               fabric_clique="0", device_file=f"/dev/nvidia{index}", compute_mode="Default", nvlinks_active=18)
    return replace(made, **changes)


def node(name: str = "node02", **changes: Any) -> Node:
    made = Node(
        name, product="XE9680", memory_mib=1_000_000, gpus=tuple(map(gpu, range(4))), gpu_links=NV,
        cpu=Cpu(sockets=2, cores_per_socket=2, threads_per_core=1, numa=NUMA,
                cores=tuple(Core(n // 2, n // 2, (n,)) for n in range(4))),
        nics=(Nic("mlx5_0", rdma="mlx5_0", port=1, rate_gbps=400.0, pcie_width=16, mtu=4092, model="MT4129"),),
        dimms=tuple(Dimm(f"A{n}", 65536, "DDR5", 4800) for n in range(8)),
        disks=tuple(Disk(f"nvme{n}n1", "PM9A3", 3_840_000_000_000, firmware="1") for n in range(2)),
        mounts=(Mount("/scratch", "mgs@o2ib:/s", "lustre", "rw,flock"), Mount("/home", "nfs:/home", "nfs4", "rw")),
        settings={"SMT": "off"}, versions={"ucx": "1.16"}, time_sync="chrony, synchronised to 10.0.0.1",
        bmc=Bmc(firmware="7.0", psus=("PSU1: ok", "PSU2: ok"), settings={"NPS": "4"}),
        command_line="BOOT_IMAGE=/vmlinuz root=UUID=1 iommu=pt quiet", tools={"srun": "/usr/bin/srun", "osu_bw": ""},
        neighbours=(("eth0", "tor1", f"swp{name[4:]}"),),
        pci=(PciDevice("0000:c1:00.0", "010802", "144d", "a80a", link="16.0 GT/s x4"),
             PciDevice("0000:c2:00.0", "0b4000", "8086", "0b25", name="Data Streaming Accelerator")))
    return replace(made, **changes)


def said(*odd: Node, count: int = 8) -> list[str]:
    names = {one.name for one in odd}
    fleet = [node(f"node{n:02d}") for n in range(1, count + 1) if f"node{n:02d}" not in names]
    return oddones.folded(inventory.build([*fleet, *odd]).odd)


def gpus(place: int, **changes: Any) -> tuple[Gpu, ...]:
    return tuple(gpu(n, **changes) if n == place else gpu(n) for n in range(4))


def without_peer(lost: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple("X" if a == b else "SYS" if lost in (a, b) else "NV18" for b in range(4)) for a in range(4))


@looped(("changes", "expected"), [
    ({"dimms": (Dimm("A0", 32768, "DDR5", 4800), *node().dimms[1:])},
     "DIMMs: without A0 64 GiB DDR5 4800 MT/s, with A0 32 GiB DDR5 4800 MT/s"),
    ({"dimms": (Dimm("A0"), *node().dimms[1:])}, "DIMMs: without A0 64 GiB DDR5 4800 MT/s"),
    ({"dimms": (), "unknown": ("dimms (only root may read it)",)}, "DIMMs: unknown, known of the rest of the group"),
    ({"disks": node().disks[:1]}, "disks: without 2x PM9A3 3840 GB, with 1x PM9A3 3840 GB"),
    ({"disks": tuple(replace(disk, firmware="2") for disk in node().disks)},
     "disk firmware: without PM9A3 1, with PM9A3 2"),
    ({"mounts": node().mounts[:1]}, "mounts: without /home (nfs4 nfs:/home)"),
    ({"mounts": (replace(node().mounts[0], options="rw,localflock"), node().mounts[1])},
     "mount options: without /scratch flock"),
    ({"command_line": "BOOT_IMAGE=/other root=UUID=2 iommu=off quiet"},
     "kernel command line: without iommu=pt, with iommu=off"),
    ({"settings": {"SMT": "on"}}, "SMT on, the group has off"),
    ({"settings": {}}, "settings: unknown, known of the rest"),
    ({"versions": {"ucx": "1.15"}}, "ucx 1.15, the group has 1.16"),
    ({"versions": {"gcc": "1"}}, "ucx absent, the group has 1.16"),
    ({"bmc": Bmc(firmware="7.0", psus=("PSU1: ok", "PSU2: failed"), settings={"NPS": "4"})},
     "power supplies: without PSU2: ok, with PSU2: failed"),
    ({"bmc": Bmc(firmware="7.0", psus=("PSU1: ok", "PSU2: ok"), settings={"NPS": "1"})},
     "BIOS setting NPS 1, the group has 4"),
    ({"bmc": Bmc(firmware="6.1", psus=("PSU1: ok", "PSU2: ok"), settings={"NPS": "4"})},
     "BMC firmware 6.1, the group has 7.0"),
    ({"time_sync": "chrony, not synchronised"}, "time chrony, not synchronised, the group has chrony, synchronised"),
    ({"tools": {"srun": "", "osu_bw": ""}}, "tools: without srun"),
    ({"gpus": gpus(3, fabric_state="In Progress")}, "GPU 3: fabric state In Progress, the group has Completed"),
    ({"gpus": gpus(3, fabric_clique="5")}, "GPU 3: fabric clique 5, the group has 0"),
    ({"gpus": gpus(3, mig="Enabled", mig_devices=(MigDevice(0, "1g.10gb"), MigDevice(1, "1g.10gb")))},
     "GPU 3: MIG devices 2x 1g.10gb, the group has none"),
    ({"gpus": gpus(3, device_file="")}, "GPU 3: device file unknown, the group has there"),
    ({"gpus": gpus(3, nvlinks_active=17)}, "GPU 3: active NVLinks 17, the group has 18"),
    ({"gpus": tuple(gpu(n, compute_mode="Exclusive_Process") for n in range(4))},
     "GPU 0, GPU 1, GPU 2, GPU 3: compute mode Exclusive_Process, the group has Default"),
    ({"gpu_links": without_peer(2)}, "GPU links SYS between GPU 2 and its 3 peers, the group has NV18"),
    ({"gpu_links": tuple(tuple("SYS" if {a, b} == {0, 3} else NV[a][b] for b in range(4)) for a in range(4))},
     "GPU links SYS between GPU 0 and 3, the group has NV18"),
    ({"nics": (replace(node().nics[0], pcie_width=8),)}, "mlx5_0/1: PCIe width x8, the group has x16"),
    ({"nics": (replace(node().nics[0], mtu=1500),)}, "mlx5_0/1: MTU 1500, the group has 4092"),
    ({"nics": (replace(node().nics[0], name="ibp1s0", rdma="ibp1s0"),)},
     "names of network devices: without mlx5_0/1, with ibp1s0/1"),
    ({"pci": (replace(node().pci[0], link="16.0 GT/s x2"), node().pci[1])},
     "PCI links: without 0000:c1:00.0 x4, with 0000:c1:00.0 x2"),
    ({"pci": node().pci[:1]}, "PCI devices: without 0000:c2:00.0 Data Streaming Accelerator"),
    ({"neighbours": ()}, "LLDP neighbours on: unknown, known of the rest of the group"),
    ({"cpu": replace(node().cpu, numa=(NUMA[0], replace(NUMA[1], distances=(32, 10))))},
     "NUMA distances 10 21; 32 10, the group has 10 21; 21 10"),
    ({"cpu": replace(node().cpu, numa=(NUMA[0], replace(NUMA[1], memory_mib=0)))},
     "memory of NUMA nodes none on 1, the group has on all"),
    ({"cpu": replace(node().cpu, numa=NUMA[:1])}, "NUMA nodes 1, the group has 2"),
    ({"uuid": "u"}, ""),
])
def test_each_difference_is_one_line(changes: dict[str, Any], expected: str) -> None:
    found = said(node(**changes))
    if not expected:
        assert found == []
    assert not expected or any(line.startswith(f"node02: {expected}") for line in found), found


def test_values_that_differ_by_nature_are_not_odd() -> None:
    fleet = [node(f"node{n:02d}", captured=str(n), command_line=f"BOOT_IMAGE=x root=UUID={n} iommu=pt quiet",
                  time_sync=f"chrony, synchronised to 10.0.0.{n % 3}",
                  mounts=(Mount("/home", "nfs:/home", "nfs4", f"rw,clientaddr=10.1.0.{n},addr=10.0.0.9"),))
             for n in range(1, 20)]
    assert inventory.build(fleet).odd == ()


def test_nodes_with_the_same_difference_are_folded() -> None:
    odd = [node(name, bios="1.2") for name in ("node03", "node07")]
    fleet = [node(f"node{n:02d}", bios="1.4") for n in range(1, 17) if n not in (3, 7)]
    found = inventory.build([*fleet, *odd])
    assert oddones.folded(found.odd) == ["node[03,07]: BIOS 1.2, the group has 1.4"]
    assert [item.node for item in found.odd] == ["node03", "node07"]
    assert all(item.soft for item in found.odd)


def test_the_most_telling_comes_first() -> None:
    found = said(node(bmc=Bmc(firmware="6.0"), gpus=gpus(1, fabric_state="Failed"), dimms=node().dimms[1:]))
    assert [line.split(":")[1].strip() for line in found][:2] == ["DIMMs", "GPU 1"]
    assert "BMC firmware 6.0" in found[-2] or "BMC firmware 6.0" in found[-1] or len(found) > 3


def test_one_of_64_is_odd_and_30_against_34_are_two_kinds() -> None:
    for changes in ({"versions": {"ucx": "9"}}, {"settings": {"SMT": "on"}}, {"mounts": ()},
                    {"dimms": node().dimms[1:]}, {"bmc": Bmc(firmware="1")}, {"gpus": gpus(2, vbios="x")}):
        for count, lines in ((1, True), (30, False)):
            fleet = [node(f"node{n:02d}", **(changes if n <= count else {})) for n in range(1, 65)]
            assert bool(inventory.build(fleet).odd) is lines, (changes, count)


def test_a_swapped_cable() -> None:
    fleet = [node(f"node{n:02d}", neighbours=(("ib0", "leaf1", str(n)), ("ib1", "leaf2", str(n)))) for n in range(1, 9)]
    fleet[4] = replace(fleet[4], neighbours=(("ib0", "leaf2", "5"), ("ib1", "leaf1", "5")))
    assert oddones.folded(inventory.build(fleet).odd) == [
        "node05: ib0 goes to leaf2 port 5, where the group has ib1",
        "node05: ib1 goes to leaf1 port 5, where the group has ib0"]


def test_two_units_with_their_own_leaves_are_not_odd() -> None:
    fleet = [node(f"node{n:02d}", neighbours=(("ib0", f"leaf{n // 16}a", "1"), ("ib1", f"leaf{n // 16}b", "1")))
             for n in range(64)]
    assert inventory.build(fleet).odd == ()


@pytest.mark.deep
def test_thousands_of_nodes() -> None:
    text = records.dumps(node())
    fleet = [replace(records.loads(Node, text, where=""), name=f"n{n:05d}", serial=f"S{n}",
                     kernel="b" if n % 700 == 0 else "a") for n in range(4000)]
    start = time.process_time()
    found = inventory.build(fleet)
    assert time.process_time() - start < 8
    assert oddones.folded(found.odd) == ["n[00000,00700,01400,02100,02800,03500]: kernel b, the group has a"]
    assert found.nodes[0].cpu is found.nodes[1].cpu


@pytest.mark.deep
def test_nodes_that_are_all_different_take_time_by_their_number() -> None:
    fleet = [node(f"n{n:05d}", memory_mib=int(1000 * 1.02 ** (n % 1500)), product=str(n)) for n in range(3000)]
    start = time.process_time()
    inventory.build(fleet)
    assert time.process_time() - start < 8


def test_odd_ones_survive_the_file() -> None:
    odd = OddOneOut("n", "n: BIOS 1, the group has 2", soft=True)
    assert records.loads(OddOneOut, records.dumps(odd), where="x") == odd

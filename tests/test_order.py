"""What was ordered beside what is there: every difference is said, and nothing unknown is taken for right."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from looped import looped

from hpcadmin import order, records
from hpcadmin.errors import SiteError
from hpcadmin.model import (
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
    SwitchPort,
)
from hpcadmin.order import Cable, Comparison, GroupOrder, Order
from hpcadmin.toml_text import read_toml

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "order.toml"
H100 = "NVIDIA H100 80GB HBM3"


def nic(number: int, **changes: object) -> Nic:
    made = Nic(f"mlx5_{number}", rdma=f"mlx5_{number}", port=1, link_layer="InfiniBand", state="ACTIVE",
               rate_gbps=400.0, firmware="28.39.3004", psid="MT_0000000838", model="MT4129",
               guid=f"946dae03000000{number:02x}", pci=f"0000:{number:02x}:00.0")
    return replace(made, **changes)  # type: ignore[arg-type]


def eth(number: int, **changes: object) -> Nic:
    made = Nic(f"eth{number}", netdev=f"eth{number}", link_layer="Ethernet", state="up", rate_gbps=25.0,
               pci=f"0000:f{number}:00.0")
    return replace(made, **changes)  # type: ignore[arg-type]


def gpu(number: int, **changes: object) -> Gpu:
    made = Gpu("nvidia", index=number, model=H100, memory_mib=81559, vbios="96.00.99.00.01", pcie_gen_max=5,
               pcie_width=16, nvlinks_active=18, pci=f"0000:1{number}:00.0")
    return replace(made, **changes)  # type: ignore[arg-type]


def disk(number: int, **changes: object) -> Disk:
    made = Disk(f"nvme{number}n1", model="SAMSUNG MZWLO3T8HCLS-00A07", size_bytes=3_840_755_982_336,
                firmware="OPPA3B5Q", transport="nvme")
    return replace(made, **changes)  # type: ignore[arg-type]


def node(name: str = "gpu001", **changes: object) -> Node:
    made = Node(
        name, vendor="Dell Inc.", product="PowerEdge XE9680", bios="2.2.0", gpu_driver="550.90.12",
        serial=f"7XK2Q9{int(name[-1]) + 2}", memory_mib=2_063_000,
        cpu=Cpu(model="Intel(R) Xeon(R) Platinum 8480C", sockets=2, cores_per_socket=56, threads_per_core=2),
        dimms=tuple(Dimm(f"A{n}", 65536, "DDR5", 4800) for n in range(32)), gpus=tuple(map(gpu, range(8))),
        nics=(*map(nic, range(8)), eth(0), eth(1), Nic("usb0", link_layer="Ethernet"),
              Nic("bond0", virtual=True, link_layer="Ethernet")),
        disks=tuple(map(disk, range(9))))
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def wanted() -> Order:
    """The example, without its cables and its other group."""
    found = order.load(EXAMPLE)
    return replace(found, groups=found.groups[:1], cables=None)


def said(found: Comparison) -> list[str]:
    return [item.line for item in found.differences] + [f"{item.node}: {item.what}" for item in found.not_compared]


def test_the_example_is_complete_and_read() -> None:
    found = order.load(EXAMPLE)
    assert set(read_toml(EXAMPLE)) == {"title", "cables", "groups"}
    group = found.groups[0]
    named = set(read_toml(EXAMPLE)["groups"]["gpu"]) | set(read_toml(EXAMPLE)["groups"]["cpu"])
    assert named == {item.name for item in fields(GroupOrder)} - {"name"}
    assert group.gpus
    assert group.nics
    assert group.disks
    for record in (group.cpu, group.memory, group.gpus[0], group.nics[0], group.disks[0]):
        assert all(getattr(record, item.name) not in (None, "") for item in fields(record)), record
    assert found.groups[1].gpus == ()


def test_the_example_plan_has_every_cable_of_its_nodes() -> None:
    """As many as the order has ports, with names that its nodes have."""
    found = order.load(EXAMPLE)
    assert found.cables
    assert found.cables[0] == Cable("gpu001", "mlx5_0", "leaf01", "1", 3)
    ports = {name: sorted(cable.port for cable in found.cables if cable.node == name) for name in found.groups[0].hosts}
    own = sorted(nic.name for nic in node().nics if not nic.virtual and nic.name != "usb0")
    assert ports == dict.fromkeys(found.groups[0].hosts, own)
    assert len(found.cables) == len(own) * len(ports)


def test_as_ordered(wanted: Order) -> None:
    found = order.compare(wanted, Inventory((node("gpu001"), node("gpu002"))))
    assert said(found) == []
    assert found.ok
    assert found.agreed > 100
    assert order.text(found).startswith("Order: as ordered in ")
    assert records.from_plain(Comparison, records.to_plain(found), where="x") == found


def test_without_an_order_that_is_said() -> None:
    assert order.text(None) == "Order: not compared with the order"


def test_a_fleet_that_is_uniformly_one_port_short(wanted: Order) -> None:
    short = tuple(node(f"gpu00{n}", nics=(*map(nic, range(7)), eth(0), eth(1))) for n in (1, 2))
    found = order.compare(wanted, Inventory(short))
    assert [item.kind for item in found.differences] == ["missing", "missing"]
    assert ("  gpu[001-002]: network ports: ordered 8x InfiniBand MT4129 400 Gb/s, 2x Ethernet 25 Gb/s, found "
            "2x Ethernet 25 Gb/s, 7x InfiniBand MT4129 400 Gb/s") in order.text(found).split("\n")


@pytest.mark.parametrize(("changes", "line"), [
    ({"gpus": tuple(map(gpu, range(7)))}, f"GPUs: ordered 8x {H100}, found 7x {H100}"),
    ({"gpus": tuple(gpu(n, model="NVIDIA H200") for n in range(8))}, f"GPUs: ordered 8x {H100}, found 8x NVIDIA H200"),
    ({"gpus": tuple(map(gpu, range(9)))}, f"GPUs: ordered 8x {H100}, found 9x {H100}"),
    ({"gpus": ()}, f"GPUs: ordered 8x {H100}, found none"),
    ({"gpus": (), "unknown": ("gpus",)}, "not compared: GPUs: unknown on the node"),
    ({"gpus": tuple(gpu(n, vbios="96.00.99.00.00" if n == 3 else "96.00.99.00.0A") for n in range(8))},
     "VBIOS of GPU 3: ordered 96.00.99.00.01 or later, found 96.00.99.00.00"),
    ({"gpus": tuple(gpu(n, memory_mib=40960) for n in range(8))},
     "memory of all 8 GPUs: ordered 80 GiB, found 40.0 GiB"),
    ({"gpus": tuple(gpu(n, pcie_width=8 if n == 2 else 16) for n in range(8))},
     "PCIe width of GPU 2: ordered x16 at least, found x8"),
    ({"gpus": tuple(gpu(n, nvlinks_active=17 if n < 2 else 18) for n in range(8))},
     "active NVLinks of GPU 0, GPU 1: ordered 18, found 17"),
    ({"gpus": tuple(gpu(n, nvlinks_active=None) for n in range(8))},
     "not compared: active NVLinks of all 8 GPUs: unknown on the node"),
    ({"gpu_driver": "550.54.15"}, "GPU driver: ordered 550.90.07 or later, found 550.54.15"),
    ({"gpu_driver": ""}, "not compared: GPU driver: unknown on the node"),
    ({"bios": "2.1.4"}, "BIOS: ordered 2.1.5 or later, found 2.1.4"),
    ({"bios": "U54 v2.10"}, "not compared: BIOS: U54 v2.10 and 2.1.5 are not numbered alike"),
    ({"product": "PowerEdge R760xa"}, "product: ordered PowerEdge XE9680, found PowerEdge R760xa"),
    ({"serial": "7XK2Q94"}, "serial: ordered 7XK2Q93, found 7XK2Q94 (ordered for gpu002)"),
    ({"serial": ""}, "not compared: serial: unknown on the node"),
    ({"cpu": Cpu(model="Intel(R) Xeon(R) Platinum 8462Y+", sockets=2, cores_per_socket=56, threads_per_core=1)},
     "CPU model: ordered Xeon Platinum 8480C, found Intel(R) Xeon(R) Platinum 8462Y+"),
    ({"cpu": Cpu(model="Intel(R) Xeon(R) Platinum 8480C", sockets=2, cores_per_socket=56, threads_per_core=1)},
     "threads per core: ordered 2, found 1"),
    ({"cpu": Cpu()}, "not compared: sockets: unknown on the node"),
    ({"dimms": node().dimms[1:]}, "memory in DIMMs: ordered 2048 GiB, found 1984 GiB"),
    ({"dimms": node().dimms[1:]}, "DIMMs: ordered 32, found 31"),
    ({"dimms": ()}, "not compared: DIMMs: unknown on the node"),
    ({"dimms": (), "memory_mib": 1_998_000}, "memory: ordered 2048 GiB, found 1951.2 GiB"),
    ({"memory_mib": 1_998_000}, "memory: ordered 2048 GiB, found 1951.2 GiB"),
    ({"memory_mib": None}, "not compared: memory: unknown on the node"),
    ({"dimms": (*node().dimms[1:], Dimm("A0", 65536, "DDR5", 4400))},
     "speed of DIMMs: ordered 4800 MT/s, found 4400 MT/s in 1 of 32 (A0)"),
    ({"dimms": tuple(replace(d, speed_mts=None) for d in node().dimms)},
     "not compared: speed of DIMMs: unknown on the node"),
    ({"nics": (*map(nic, range(7)), nic(7, rate_gbps=200.0), eth(0), eth(1))},
     "rate of mlx5_7/1: ordered 400 Gb/s, found 200 Gb/s"),
    ({"nics": (*map(nic, range(7)), nic(7, rate_gbps=10.0, state="DOWN"), eth(0), eth(1))},
     "rate of mlx5_7/1: ordered 400 Gb/s, found 10 Gb/s (DOWN)"),
    ({"nics": (*map(nic, range(7)), nic(7, rate_gbps=None), eth(0), eth(1))},
     "not compared: rate of mlx5_7/1: unknown on the node"),
    ({"nics": (*map(nic, range(7)), nic(7, firmware="28.36.1010"), eth(0), eth(1))},
     "firmware of mlx5_7/1: ordered 28.39.3004 or later, found 28.36.1010"),
    ({"nics": (*map(nic, range(7)), nic(7, model=""), eth(0), eth(1))},
     "not compared: model of 1 network port: unknown on the node"),
    ({"nics": (*map(nic, range(8)), eth(0))},
     "network ports: ordered 8x InfiniBand MT4129 400 Gb/s, 2x Ethernet 25 Gb/s, "
     "found 1x Ethernet 25 Gb/s, 8x InfiniBand MT4129 400 Gb/s"),
    ({"unknown": ("rdma",)}, "not compared: network ports: unknown on the node"),
    ({"disks": tuple(map(disk, range(7)))},
     "disks: ordered 8x MZWLO3T8HCLS 3840 GB, found 7x SAMSUNG MZWLO3T8HCLS-00A07 3841 GB"),
    ({"disks": tuple(disk(n, size_bytes=1_920_383_410_176) for n in range(8))},
     "size of all 8 disks: ordered 3840 GB, found 1920 GB"),
    ({"disks": (), "unknown": ("disks",)}, "not compared: disks: unknown on the node"),
])
def test_each_difference_is_a_line(wanted: Order, changes: dict[str, object], line: str) -> None:
    found = order.compare(wanted, Inventory((node("gpu001", **changes), node("gpu002"))))
    assert f"gpu001: {line}" in said(found)
    assert not found.ok
    assert line in order.text(found)
    assert all(item.node == "gpu001" or "7XK2Q94" in item.line for item in found.differences)


def test_nodes_that_are_missing_extra_or_silent(wanted: Order) -> None:
    found = order.compare(wanted, Inventory((node("gpu001"), node("gpu9"))))
    assert said(found) == ["gpu9: node: ordered no such name or kind, found PowerEdge XE9680",
                           "gpu002: node: ordered one of gpu, found nothing"]
    found = order.compare(wanted, Inventory((node("gpu001"),), failed=(Failed("gpu002", "no route to host"),)))
    assert said(found) == ["gpu002: not compared: node: not captured: no route to host"]


def test_groups_by_number(wanted: Order) -> None:
    group = replace(wanted.groups[0], hosts=(), count=2, serial_of={}, serials=("7XK2Q93", "7XK2Q94"))
    by_number = replace(wanted, groups=(group, GroupOrder("cpu", count=1, product="R660", gpus=())))
    login = node("x3", product="PowerEdge R660", gpus=())
    storage = node("x4", product="SYS-1", gpus=(), cpu=Cpu(model="AMD EPYC 7313"))
    pair = (node("a1"), node("a2"))
    assert order.compare(by_number, Inventory((*pair, login))).ok
    found = order.compare(by_number, Inventory((*pair, login, storage)))
    # It has no GPU, as the nodes of the group cpu: counted there, and its product is a difference.
    assert said(found) == ["x4: product: ordered R660, found SYS-1", "nodes of cpu: ordered 1, found 2"]
    assert said(order.compare(by_number, Inventory((pair[0], login)))) == [
        "nodes of gpu: ordered 2, found 1", "serial 7XK2Q94 of gpu: ordered a node, found no node"]
    silent = Inventory((pair[0], login), failed=(Failed("a2", "down"),))
    assert said(order.compare(by_number, silent)) == [
        ": not compared: nodes of gpu: 1 of 2 are there, 1 could not be captured",
        ": not compared: serial 7XK2Q94 of gpu: on no node whose serial is known; some serials are not"]
    other = replace(pair[1], serial="ZZZ")
    assert said(order.compare(by_number, Inventory((pair[0], other, login)))) == [
        "a2: serial: ordered one of the 2 of gpu, found ZZZ", "serial 7XK2Q94 of gpu: ordered a node, found no node"]


def fabric(*ends: tuple[int, str, int], **changes: object) -> Fabric:
    cards = tuple(FabricDevice(f"ca{n}", "ca", guid=f"0x946dae03000000{n:02x}",
                               ports=(SwitchPort(1, peer=switch, peer_port=port),)) for n, switch, port in ends)
    leaf = FabricDevice("leaf09", "switch", guid="0xb83fd20300aaaa01",
                        ports=(SwitchPort(7, peer="MT4129", peer_guid="0x946dae0300000006", peer_port=1),))
    return replace(Fabric(devices=(*cards, leaf)), **changes)  # type: ignore[arg-type]


@looped(("cable", "line"), [
    (("mlx5_0", "leaf01", "1"), ""),
    (("mlx5_0/1", "LEAF01", "1"), ""),
    (("946dae0300000000", "leaf01", "swp1"), ""),
    (("mlx5_1", "leaf02", "12"), ""),
    (("mlx5_6", "0xb83fd20300aaaa01", "7"), ""),
    (("eth0", "tor1", "Ethernet1/7"), ""),
    (("mlx5_0", "leaf02", "1"), "cable of mlx5_0: ordered leaf02 port 1, found MF0;leaf01:MQM9700/U1 port 1"),
    (("mlx5_0", "leaf01", "2"), "cable of mlx5_0: ordered leaf01 port 2, found MF0;leaf01:MQM9700/U1 port 1"),
    (("mlx5_0", "leaf01", "1/1/1"),
     "not compared: cable of mlx5_0: port 1/1/1 in the plan, port 1 of MF0;leaf01:MQM9700/U1: not numbered alike"),
    (("mlx5_2", "leaf01", "3"), "cable of mlx5_2: ordered leaf01 port 3, found nothing plugged in"),
    (("mlx5_5", "leaf01", "3"), "cable of mlx5_5: ordered leaf01 port 3, found nothing plugged in"),
    (("mlx5_99", "leaf01", "3"), "cable of mlx5_99: ordered a port of that name, found none"),
    (("eth1", "tor1", "1"), "not compared: cable of eth1: no LLDP neighbour is known"),
])
def test_cables(cable: tuple[str, str, str], line: str) -> None:
    plan = Order(cables=(Cable("gpu001", *cable, line=2),))
    one = node("gpu001", neighbours=(("eth0", "tor1.cluster.example", "Ethernet1/7"),))
    seen = fabric((0, "MF0;leaf01:MQM9700/U1", 1), (1, "leaf02", 12), (2, "", 0))
    every = said(order.compare(plan, Inventory((one,), fabrics=(seen,))))
    found = [item for item in every if "ordered none" not in item]
    assert found == ([f"gpu001: {line}"] if line else [])


def test_cables_of_an_ethernet_fabric() -> None:
    host = FabricDevice("gpu001", "ca", host="gpu001",
                        ports=(SwitchPort(1, name="eth1", peer="tor1", peer_port=7, peer_name="swp7"),))
    seen = Inventory((node("gpu001"),), fabrics=(Fabric("ethernet", (host,)),))
    assert order.compare(Order(cables=(Cable("gpu001", "eth1", "tor1", "swp7", 2),)), seen).ok
    assert said(order.compare(Order(cables=(Cable("gpu001", "eth1", "tor1", "8", 2),)), seen)) == [
        "gpu001: cable of eth1: ordered tor1 port 8, found tor1 port swp7"]


def test_cables_that_nobody_can_see_are_not_right() -> None:
    plan = Order(cables=(Cable("gpu001", "mlx5_5", "leaf01", "3", 2), Cable("gpu007", "mlx5_0", "leaf01", "4", 3)))
    for fabrics in ((), (fabric((0, "leaf01", 1), incomplete=("cut off",)),)):
        found = order.compare(plan, Inventory((node("gpu001"),), fabrics=fabrics))
        assert "gpu001: not compared: cable of mlx5_5: no whole picture of the fabric" in said(found)
        assert "gpu007: not compared: cable of mlx5_0: there is no such node" in said(found)
        assert not found.ok


def test_a_cable_that_is_not_in_the_plan() -> None:
    plan = Order(cables=(Cable("gpu001", "mlx5_0", "leaf01", "1", 2),))
    seen = fabric((0, "leaf01", 1), (1, "leaf02", 12))
    assert said(order.compare(plan, Inventory((node("gpu001"),), fabrics=(seen,)))) == [
        "gpu001: cable of mlx5_1: ordered none, found leaf02 port 12",
        "gpu001: cable of mlx5_6: ordered none, found leaf09 port 7"]


def write(folder: Path, text: str, plan: str | None = None) -> Path:
    (folder / "order.toml").write_text(text)
    if plan is not None:
        (folder / "cables.csv").write_text(plan)
    return folder / "order.toml"


@pytest.mark.parametrize(("text", "line", "word"), [
    ("title = \n", 1, "TOML"), ("x = 1\n", 1, "x is not known"), ("title = 'a'\n", 0, "orders nothing"),
    ("[groups.a]\ncount = 1\n[groups.b]\ncount = 2\nprodukt = 'x'\n", 5, "produkt"),
    ("[groups.a]\nproduct = 'x'\n", 1, "hosts or count"),
    ("[groups.a]\nhosts = 'n[1-3]'\ncount = 4\n", 3, "3 nodes"),
    ("[groups.a]\nhosts = 'n[1-'\n", 2, "hostlist"), ("[groups.a]\nhosts = 3\n", 2, "hostlist"),
    ("[groups.a]\nhosts = 'n[1-3]'\n[groups.b]\nhosts = 'n3'\n", 4, "n3"),
    ("[groups.a]\ncount = 1\n[[groups.a.nics]]\ncount = 1\n[[groups.a.nics]]\ncount = 'x'\n", 6, "count"),
    ("[groups.a]\ncount = 1\n[[groups.a.nics]]\nkind = 'IB'\ncount = 1\n", 4, "IB"),
    ("[groups.a]\ncount = 1\n[[groups.a.gpus]]\nmodel = 'x'\n", 3, "count"),
    ("[groups.a]\ncount = -1\n", 2, "nobody"), ("[groups.a]\ncount = true\n", 2, "count"),
    ("[groups.a]\ncount = 1\n[groups.a.memory]\nsize_gib = nan\n", 4, "nobody"),
    ("[groups.a]\ncount = 1\n[groups.a.memory]\nsize = 3\n", 4, "size"),
    ("[groups.a]\ncount = 1\nmemory = 3\n", 3, "table"), ("[groups.a]\ncount = 1\nnics = 3\n", 3, "tables"),
    ("[groups.a]\ncount = 1\nserials = ['x', 'x']\n", 3, "twice"),
    ("[groups.a]\ncount = 1\nserials = ['x', 'y']\n", 3, "2 for 1"),
    ("[groups.a]\ncount = 1\nserials = [3]\n", 3, "serials"),
    ("[groups.a]\nhosts = 'n1'\n[groups.a.serial_of]\nn2 = 'x'\n", 4, "n2"),
    ("[groups.a]\ncount = 1\nmore_allowed = ['cpus']\n", 3, "cpus"), ("groups = 3\n", 1, "table"),
    ("cables = 'cables.csv'\n", 0, "cannot be read"), ("cables = 3\n", 1, "text"),
])
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, line: int, word: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SiteError) as info:
        order.load(path)
    assert word in str(info.value)
    assert not line or str(info.value).startswith(f"{path}:{line}: "), info.value


def test_an_order_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"absent\.toml"):
        order.load(tmp_path / "absent.toml")


@pytest.mark.parametrize("plan", [
    "node,port,switch,switch_port\nn1,mlx5_0,leaf1,7\n",
    "Switch Name;Switch Port;Host Name;HCA;length\nleaf1;7;n1;mlx5_0;3\n",
    "\ufeffNode\tPort\tLeaf\tLeaf-Port\r\n\r\n# rack 1\r\nn1\tmlx5_0\tleaf1\t7\r\n",
    '"hostname" , "interface" , "TOR" , "tor port"\n"n1", mlx5_0 , leaf1, 7\n',
])
def test_plans_as_people_make_them(tmp_path: Path, plan: str) -> None:
    cables = order.load(write(tmp_path, "cables = 'cables.csv'\n", plan)).cables
    assert cables is not None
    assert [(c.node, c.port, c.switch, c.switch_port) for c in cables] == [("n1", "mlx5_0", "leaf1", "7")]


@pytest.mark.parametrize(("plan", "line", "word"), [
    ("", 0, "no cables"), ("node,port,switch,switch_port\n", 0, "no cables"),
    ("# plan\nnode,port,switch\nn1,a,b\n", 2, "no column for the switch port"),
    ("node,host,port,switch,switch_port\nn,n,a,b,c\n", 1, "several columns for the node"),
    ("node,port,switch,switch_port\nn1,mlx5_0,leaf1\n", 2, "switch port is missing"),
    ("node,port,switch,switch_port\nn1,a,leaf1,1\n\nn1,A,leaf2,2\n", 4, "in line 2"),
    ("node,port,switch,switch_port\nn1,a,leaf1,1\nn2,a,Leaf1,1\n", 3, "in line 2"),
    ('node,port,switch,switch_port\nn1,"a"b,leaf1,1\n', 2, "CSV"),
    ("node,port,switch,switch_port\nn1,\x1b[3m,leaf1,1\n", 2, "not readable"),
])
def test_mistakes_in_the_plan_name_its_line(tmp_path: Path, plan: str, line: int, word: str) -> None:
    with pytest.raises(SiteError) as info:
        order.load(write(tmp_path, "cables = 'cables.csv'\n", plan))
    assert word in str(info.value)
    assert not line or f"{tmp_path}/cables.csv:{line}: " in str(info.value)

"""Network ports as every tool tells them: read from texts with anything around them, never with another exception."""

import importlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped

from hpcadmin.errors import ParseError
from hpcadmin.facts import _nic, ibdev2netdev, ibstat, ibstatus, ibv_devinfo, lldp, netq, part_of, sysfs_ib
from hpcadmin.facts import infiniband as sysfs
from hpcadmin.facts import net as interfaces
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.model import PciDevice

READERS = ("ibdev2netdev", "iblinkinfo", "ibnetdiscover", "ibstat", "ibstatus", "ibv_devinfo", "lldp", "netq",
           "sysfs_ib")
SAMPLES = Path(__file__).parent / "samples"


def read(module: Any, text: str, form: str = "text") -> tuple[Reading, ...]:
    return module.read(Document("text.txt", form, tuple(text.split("\n"))))


# --- one model, rendered as each tool prints it ---------------------------------------------------------------------

PORTS = st.fixed_dictionaries({
    "layer": st.sampled_from(["InfiniBand", "Ethernet"]), "rate": st.sampled_from([25, 100, 200, 400]),
    "state": st.sampled_from(["ACTIVE", "DOWN", "INIT"]), "lid": st.integers(1, 40_000),
})
CARDS = st.lists(st.lists(PORTS, min_size=1, max_size=2), min_size=1, max_size=6)


def card_name(number: int) -> str:
    return f"mlx5_{number}"


def guid(number: int) -> str:
    return f"{0xA088_C203_0012_0000 + 8 * number:016x}"


def render_ibstat(cards: list[list[dict[str, Any]]]) -> str:
    words = {"ACTIVE": "Active", "DOWN": "Down", "INIT": "Initializing"}
    lines = []
    for number, ports in enumerate(cards):
        lines += [f"CA '{card_name(number)}'", "\tCA type: MT4129", f"\tNumber of ports: {len(ports)}",
                  "\tFirmware version: 28.41.1000", f"\tNode GUID: 0x{guid(number)}"]
        for place, port in enumerate(ports, 1):
            physical = "Polling" if port["state"] == "DOWN" else "LinkUp"
            lines += [f"\tPort {place}:", f"\t\tState: {words[port['state']]}", f"\t\tPhysical state: {physical}",
                      f"\t\tRate: {port['rate']}", f"\t\tBase lid: {port['lid']}", "\t\tSM lid: 1",
                      f"\t\tLink layer: {port['layer']}"]
    return "\n".join(lines) + "\n"


def render_ibstatus(cards: list[list[dict[str, Any]]]) -> str:
    numbers = {"ACTIVE": 4, "DOWN": 1, "INIT": 2}
    lines = []
    for number, ports in enumerate(cards):
        for place, port in enumerate(ports, 1):
            physical = "2: Polling" if port["state"] == "DOWN" else "5: LinkUp"
            gid = ":".join(guid(number)[n:n + 4] for n in range(0, 16, 4))
            lines += [f"Infiniband device '{card_name(number)}' port {place} status:",
                      f"\tdefault gid:\t fe80:0000:0000:0000:{gid}",
                      f"\tbase lid:\t 0x{port['lid']:x}", "\tsm lid:\t\t 0x1",
                      f"\tstate:\t\t {numbers[port['state']]}: {port['state']}", f"\tphys state:\t {physical}",
                      f"\trate:\t\t {port['rate']} Gb/sec (4X NDR)", f"\tlink_layer:\t {port['layer']}", ""]
    return "\n".join(lines)


def render_sysfs(cards: list[list[dict[str, Any]]]) -> str:
    numbers = {"ACTIVE": 4, "DOWN": 1, "INIT": 2}
    lines = []
    for number, ports in enumerate(cards):
        base = f"/sys/class/infiniband/{card_name(number)}"
        lines += [f"{base}/hca_type:MT4129", f"{base}/fw_ver:28.41.1000", f"{base}/node_guid:{guid(number)}"]
        for place, port in enumerate(ports, 1):
            physical = "2: Polling" if port["state"] == "DOWN" else "5: LinkUp"
            lines += [f"{base}/ports/{place}/{key}:{value}" for key, value in (
                ("lid", hex(port["lid"])), ("link_layer", port["layer"]), ("phys_state", physical),
                ("rate", f"{port['rate']} Gb/sec (4X NDR)"), ("sm_lid", "0x1"),
                ("state", f"{numbers[port['state']]}: {port['state']}"))]
    return "\n".join(lines) + "\n"


NOISE = "node01:~ # date\nMon Jan  5 10:00:00 UTC 2026\n\n== something: else ==\n\n"


@pytest.mark.deep
@pytest.mark.parametrize(("module", "render"), [
    (ibstat, render_ibstat), (ibstatus, render_ibstatus), (sysfs_ib, render_sysfs)])
@settings(max_examples=40, deadline=None)
@given(cards=CARDS, around=st.booleans())
def test_every_tool_tells_the_same(module: Any, render: Any, cards: list[list[dict[str, Any]]], around: bool) -> None:
    (reading,) = read(module, NOISE + render(cards) + "\n" + NOISE if around else render(cards))
    assert reading.missing == ()
    found = [[(port.number, port.state, port.lid, port.rate_gbps, port.link_layer, port.sm_lid) for port in card.ports]
             for card in reading.value]
    assert found == [[(place, port["state"], port["lid"], None if port["state"] == "DOWN" else port["rate"],
                       port["layer"], 1) for place, port in enumerate(ports, 1)] for ports in cards]
    part = part_of(reading)
    assert part is not None
    assert len(part.node.nics) == sum(map(len, cards))


# --- what the text itself shows -------------------------------------------------------------------------------------


def what(reading: Reading) -> list[str]:
    return [finding.what for finding in reading.findings]


def card(**changed: Any) -> dict[str, Any]:
    return {"layer": "InfiniBand", "rate": 400, "state": "ACTIVE", "lid": 7, **changed}


def test_ports_that_are_down_or_slow_or_without_subnet_manager() -> None:
    text = render_ibstat([[card()], [card()], [card(state="DOWN", rate=40)], [card(rate=200)], [card(state="INIT")]])
    (reading,) = read(ibstat, text)
    assert what(reading) == [
        "mlx5_2 port 1 is Down (Polling); the rate of 40 that is printed means nothing",
        "mlx5_4 port 1 is Initializing (LID 7, SM lid 1): no subnet manager has configured it",
        "mlx5_3 port 1 runs at 200, 2 other MT4129 InfiniBand ports at 400"]
    assert [finding.line for finding in reading.findings] == [30, 54, 42]
    assert reading.known["summary"] == {"InfiniBand 400 LinkUp": ["mlx5_0", "mlx5_1", "mlx5_4"],
                                        "InfiniBand down Polling": ["mlx5_2"], "InfiniBand 200 LinkUp": ["mlx5_3"]}
    assert reading.known["rails_down"] == 1


def test_a_panic_after_good_devices_keeps_them() -> None:
    panic = "ibpanic: [14] main: stat of IB device 'mlx5_1' failed: No such file or directory\n"
    (reading,) = read(ibstat, render_ibstat([[card()]]) + panic)
    assert len(reading.known["devices"]) == 1
    assert what(reading)[0].startswith("mlx5_1 could not be read: ibpanic")


@looped("end", range(20, 200, 7))
def test_ibstat_that_is_cut_off_says_so(end: int) -> None:
    text = render_ibstat([[card(), card()]])
    cut = text[:len(text) - end]
    for reading in read(ibstat, cut):
        assert reading.missing


def test_several_nodes_in_one_text() -> None:
    found = read(ibstat, "\n".join(f"---- node{n} ----\n{render_ibstat([[card(lid=n)], [card()]])}" for n in (1, 2, 3)))
    assert [reading.value[0].ports[0].lid for reading in found] == [1, 2, 3]
    assert [len(reading.value) for reading in found] == [2, 2, 2]


def test_one_port_asked_for() -> None:
    (reading,) = read(ibstat, "CA: 'mlx5_0'\nPort 1:\nState: Active\nPhysical state: LinkUp\nRate: 100\nBase lid: 3\n"
                              "SM lid: 1\nLink layer: IB\n")
    assert reading.known["devices"][0]["ports"][0]["link_layer"] == "InfiniBand"
    assert reading.missing == ()


def test_ibv_devinfo_with_rates_of_a_verbose_one() -> None:
    text = (SAMPLES / "facts" / "ibv_devinfo" / "two.txt").read_text().replace(
        "\t\t\tlink_layer:\t\tInfiniBand", "\t\t\tlink_layer:\t\tInfiniBand\n\t\t\tactive_width:\t\t4X (2)\n"
        "\t\t\tactive_speed:\t\t100.0 Gbps (128)\n\t\t\tphys_state:\t\tLINK_UP (5)\n"
        "\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:a088:c203:0012:3456")
    (reading,) = read(ibv_devinfo, text)
    port = reading.known["devices"][0]["ports"][0]
    assert (port["rate_gbps"], port["width"], port["mtu"], port["phys"]) == (400, "4X", 4096, "LinkUp")
    assert [device["ports"][0]["usable"] for device in reading.known["devices"]] == [True, False]


def test_ibdev2netdev_in_both_shapes_and_rdma_link() -> None:
    (reading,) = read(ibdev2netdev, "$ ibdev2netdev -v\n"
                      "0000:18:00.0 mlx5_0 (MT4129 - MCX75310AAS-NEAT) NVIDIA ConnectX-7 card, single port          "
                      "  fw 28.39.1002 port 1 (ACTIVE) ==> ibp24s0 (Up)\n"
                      "0000:3b:00.0 mlx5_1 (MT4125 - MCX623106AN-CDAT) ConnectX-6 Dx         "
                      "  fw 22.39.1002 port 1 (DOWN  ) ==> bond0 (Down)\n")
    assert [(d["netdev"], d["up"], d["link_layer"]) for d in reading.known["devices"]] == [
        ("ibp24s0", True, "InfiniBand (by the netdev name)"), ("bond0", False, None)]
    assert what(reading) == ["mlx5_1 port 1 (bond0) is Down"]
    assert [device.pci for device in reading.value] == ["0000:18:00.0", "0000:3b:00.0"]
    (reading,) = read(ibdev2netdev, "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n"
                                    "link mlx5_1/1 state DOWN physical_state DISABLED netdev ens1f1np1 \n")
    assert reading.kind == "rdma link"
    assert what(reading) == ["mlx5_1 port 1 (ens1f1np1) is Down"]


def test_sys_as_a_tree_and_as_head_prints_it() -> None:
    files = {}
    for line in render_sysfs([[card()], [card()]]).strip().split("\n"):
        path, _, value = line.partition(":")
        files[path.lstrip("/")] = value + "\n"
    (tree,) = sysfs_ib.read(Document("node01.tar", "tree", tree=files))
    (head,) = read(sysfs_ib, "\n".join(f"==> /{path} <==\n{value}" for path, value in files.items()))
    assert tree.known == head.known == read(sysfs_ib, render_sysfs([[card()], [card()]]))[0].known


# --- LLDP and NetQ --------------------------------------------------------------------------------------------------

LLDP = sorted((SAMPLES / "lldp").glob("two-ports.*"))


@pytest.mark.parametrize("path", LLDP, ids=lambda path: path.name)
def test_every_format_of_lldpcli(path: Path) -> None:
    form = {"json": "json", "json0": "json", "xml": "xml"}.get(path.suffix[1:], "text")
    found = read(lldp, path.read_text(), form)
    assert found[0].known["links"] == [{"interface": "eth0", "neighbour": "leaf-switch-01", "port": "swp0"},
                                       {"interface": "eth1", "neighbour": "leaf-switch-01", "port": "swp1"}]
    assert "one host only" in found[0].refused
    part = part_of(found[1])
    assert part is not None
    assert part.node.neighbours == (("eth0", "leaf-switch-01", "swp0"), ("eth1", "leaf-switch-01", "swp1"))


def test_all_formats_of_lldpcli_are_there() -> None:
    assert {path.suffix for path in LLDP} == {".plain", ".keyvalue", ".json", ".json0", ".xml", ".details", ".summary"}


def test_json_of_lldpcli_after_a_prompt_and_cut_off() -> None:
    text = (SAMPLES / "lldp" / "two-ports.json").read_text()
    assert len(read(lldp, f"node01:~# lldpcli show neighbors -f json\n{text}\nnode01:~#\n")[0].known["links"]) == 2
    with pytest.raises(ParseError, match="cut off"):
        read(lldp, text[:900], "json")


def test_a_switchs_own_table() -> None:
    text = ("cumulus@leaf01:~$ net show lldp\n\nLocalPort  Speed  Mode       RemoteHost  RemotePort\n"
            "---------  -----  ---------  ----------  ----------\neth0       1G     Mgmt       oob-mgmt    swp11\n"
            "swp1       100G   Default    node01      ens2f0np0\nswp2       100G   Default    node02      ens2f0np0\n\n"
            "cumulus@leaf01:~$\n")
    assert read(lldp, text)[0].known["links"] == [
        {"interface": "eth0", "neighbour": "oob-mgmt", "port": "swp11"},
        {"interface": "swp1", "neighbour": "node01", "port": "ens2f0np0"},
        {"interface": "swp2", "neighbour": "node02", "port": "ens2f0np0"}]


def test_the_hosts_own_functions_are_no_neighbours() -> None:
    ports = [("eth_r0", "leaf1", "swp1"), ("vf0", "me", "vf0_rep"), ("vf0_rep", "me", "vf0")]
    text = "\n".join(f"lldp.{own}.via=LLDP\nlldp.{own}.chassis.name={name}\nlldp.{own}.port.ifname={port}"
                     for own, name, port in ports)
    known = read(lldp, text)[0].known
    assert [link["interface"] for link in known["links"]] == ["eth_r0"]
    assert known["self_neighbours"] == ["vf0", "vf0_rep"]


def graph(cut: int = 0) -> dict[str, Any]:
    devices = [{"id": "node1", "name": "leaf1", "device_type": "switch", "tier": 1, "node_type": "device"},
               {"id": "node2", "name": "leaf2", "device_type": "switch", "tier": 1, "node_type": "device"},
               {"id": "node3", "name": "spine1", "device_type": "switch", "tier": 2, "node_type": "device"}]
    devices += [{"id": f"node{n}", "name": f"h{n}", "device_type": "discovered_via_lldp", "tier": -1,
                 "node_type": "device"} for n in range(4, 8)]
    cables = [("node1", "swp51", "node3", "swp1"), ("node2", "swp51", "node3", "swp2")]
    cables += [(f"node{1 + n // 6}", f"swp{n}", f"node{n}", "eth0") for n in range(4, 8)]
    links = [{"id": f"{a}-*-{b}", "size": 1 + cut, "compounded_links": [{"id": "x", "interfaces": [
        {"node": a, "interface": p}, {"node": b, "interface": q}]}]} for a, p, b, q in cables]
    return {"links": links, "nodes": [{"id": "tier-1", "node_type": "tier", "compounded_nodes": devices}]}


def test_netq() -> None:
    (reading,) = read(netq, json.dumps([graph()], indent=1), "json")
    assert reading.known["topology_conf"] == ["SwitchName=leaf1 Nodes=h[4-5]", "SwitchName=leaf2 Nodes=h[6-7]",
                                              "SwitchName=spine1 Switches=leaf[1-2]"]
    assert reading.known["inter_switch_links"] == {"leaf1 - spine1": 1, "leaf2 - spine1": 1}
    assert reading.known["links_per_host"] == 1
    assert read(netq, json.dumps([graph(1)], indent=1), "json")[0].missing
    with pytest.raises(ParseError):
        read(netq, json.dumps([graph()], indent=1)[:-300], "json")


def test_netq_show_lldp() -> None:
    rows = [{"hostname": f"leaf{1 + n // 2}", "ifname": f"swp{n}", "peerHostname": f"h{n}", "peerIfname": "eth0"}
            for n in range(4)]
    (reading,) = read(netq, json.dumps({"lldp": rows}, indent=1), "json")
    assert reading.known["hosts"] == {"leaf1": ["h0", "h1"], "leaf2": ["h2", "h3"]}


# --- the probe's facts joined ---------------------------------------------------------------------------------------


def test_join_of_ports_interfaces_and_the_bus() -> None:
    cards = sysfs.parse((SAMPLES / "facts" / "infiniband" / "vf-and-description.txt").read_text())
    nets = interfaces.parse((SAMPLES / "facts" / "net" / "bonds-and-vfs.txt").read_text())
    verbs = ibv_devinfo.parse((SAMPLES / "facts" / "ibv_devinfo" / "two.txt").read_text())
    bus = (PciDevice("0000:18:00.0", "020700", "15b3", "1021", numa=0, link="32.0 GT/s x8", link_max="32.0 GT/s x16"),)
    nics = {nic.name: nic for nic in _nic.join(cards, nets, bus, verbs)}
    card0, function = nics["mlx5_0"], nics["mlx5_1"]
    assert (card0.pcie_gen, card0.pcie_width, card0.pcie_width_max, card0.active_mtu) == (5, 8, 16, 4096)
    assert (card0.vfs, card0.sm_lid, card0.port_guid, card0.description) == (1, 1, "a088c20300123456", "node01 mlx5_0")
    assert (function.virtual, function.pf, function.rate_gbps, function.port_guid) == (True, "0000:18:00.0", None, "")
    assert (nics["bond0"].bonded, nics["ens1f0"].bond, nics["ens1f0"].vfs) == (("ens1f0", "ens1f1"), "bond0", 2)
    assert {name for name, nic in nics.items() if not nic.virtual} == {"mlx5_0", "ens1f0", "ens1f1"}


GIDS = {0: ("IB/RoCE v1", "fe80:0000:0000:0000:0000:0000:0000:0001"),
        1: ("RoCE v2", "fe80:0000:0000:0000:0000:0000:0000:0001"),
        2: ("IB/RoCE v1", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
        3: ("RoCE v2", "0000:0000:0000:0000:0000:ffff:0a00:0001")}


@pytest.mark.parametrize(("layer", "gids", "wanted"), [
    ("Ethernet", 4, 3), ("Ethernet", 3, None), ("InfiniBand", 4, None)])
def test_the_gid_that_programs_must_take_on_roce(tmp_path: Path, layer: str, gids: int, wanted: "int | None") -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / name).mkdir(parents=True)
    (port / "link_layer").write_text(f"{layer}\n")
    for number, (kind, gid) in list(GIDS.items())[:gids]:
        (port / "gids" / str(number)).write_text(f"{gid}\n")
        (port / "gid_attrs" / "types" / str(number)).write_text(f"{kind}\n")
    script = f"f() {{\n{sysfs.COMMAND.replace('/sys/class/infiniband', str(tmp_path))}\n}}\nf"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert sysfs.parse(done.stdout)[0].ports[0].gid_index == wanted
    assert _nic.join(sysfs.parse(done.stdout), (), (), ())[0].gid_index == wanted


# --- any text -------------------------------------------------------------------------------------------------------

TEXTS = [path.read_text() for folder in ("fabric", "lldp") for path in sorted((SAMPLES / folder).iterdir())
         if path.suffix != ".json" or folder == "lldp"]
TEXTS += [render_ibstat([[card(), card()], [card()]]), render_ibstatus([[card()]]), render_sysfs([[card()]]),
          json.dumps([graph()], indent=1), "mlx5_0 port 1 ==> eth4 (Up)\n"]
PIECES = st.sampled_from(["\n", "\t", " ", "0x", "-", ":", "==>", "[1]", '"', "'", "Port 1:", "\x00", "9" * 30, "{",
                          "]", "null", "\u202e", "\ud7ff", "٣", "1e999", "NaN", "guid=", "lldp.", "end=lldp"])


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, max(0, len(text) - 3000)))
    text = text[start:start + draw(st.integers(1, 6000))] if draw(st.booleans()) else text
    for _ in range(draw(st.integers(0, 4))):
        low = draw(st.integers(0, len(text)))
        high = draw(st.integers(low, min(len(text), low + 100)))
        text = text[:low] + draw(st.one_of(PIECES, st.text(max_size=6))) + text[high:]
    return text


def try_all(text: str) -> None:
    for name in READERS:
        module = importlib.import_module(f"hpcadmin.facts.{name}")
        for form in set(module.FORMS) - {"tree"}:
            try:
                for reading in read(module, text, form):
                    json.dumps(reading.known)
                    assert 1 <= reading.first <= reading.last <= text.count("\n") + 1
                    part_of(reading)
            except ParseError as exc:
                assert "\n" not in str(exc)


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(text=damaged())
def test_damaged_texts(text: str) -> None:
    try_all(text)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=400))
def test_any_text(text: str) -> None:
    try_all(text)


SLOW = ["1" * 200_000, " " * 200_000, '"' * 200_000, "[1]" * 60_000, "CA '" * 50_000, "lldp." * 40_000 + "=",
        "{" * 100_000, "[" * 100_000, "(((" * 60_000, "0x" * 90_000 + "\n", ("mlx5_0/" * 100 + "\n") * 500,
        "- " * 100_000, ("-" * 80 + " ") * 5000, ("Interface:" + " " * 900 + "\n") * 300,
        ("SW 1 1 0x1 4x EDR" + " " * 900 + "\n") * 300,
        ('Switch 36 "S-' + "0" * 16 + '"' + " " * 900 + "\n") * 300, ("==(" + " " * 1000 + "\n") * 300]


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(SLOW)))
def test_odd_texts_take_linear_time(number: int) -> None:
    start = time.process_time()
    try_all(SLOW[number])
    assert time.process_time() - start < 5


def test_aligned_ibdev2netdev_with_remarks_is_read() -> None:
    found = ibdev2netdev.read(Document("x", lines=("$ ibdev2netdev | column -t",
                                                   "mlx5_0   port  1  ==>  ibp26s0        (Down)  # rail 1",
                                                   "mlx5_10  port  1  ==>  enp27s0f0np0   (Up)")))
    assert [(d["name"], d["netdev"], d["up"]) for d in found[0].known["devices"]] == [
        ("mlx5_0", "ibp26s0", False), ("mlx5_10", "enp27s0f0np0", True)]


def test_networkctl_lldp() -> None:
    found = lldp.read(Document("x", lines=(
        "LINK CHASSIS-ID        SYSTEM-NAME CAPS        PORT-ID PORT-DESCRIPTION",
        "eth0 00:11:22:33:44:55 leaf1       ..b.r...... 516     xe-0/0/4", "", "Capability Flags:",
        "b - Bridge; r - Router", "1 entries.")))
    assert found[0].known["links"] == [{"interface": "eth0", "neighbour": "leaf1", "port": "xe-0/0/4"}]


def test_devices_that_do_not_open_are_told() -> None:
    found = ibv_devinfo.read(Document("x", lines=("Failed to open device", *(
        "hca_id: mlx4_2", "\ttransport: InfiniBand (0)", "\tphys_port_cnt: 1", "\t\tport: 1",
        "\t\t\tstate: PORT_ACTIVE (4)", "\t\t\tport_lid: 1", "\t\t\tlink_layer: InfiniBand"))))
    assert any("Failed to open device (times 1)" in finding.what for finding in found[0].findings)

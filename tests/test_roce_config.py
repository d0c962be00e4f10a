"""roce_config: the script on a made-up /sys with tools that answer as the real ones do, and what is told of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcadmin.check import Context, Limit, Measurement, NodeView, Output, ParseError, PortView, Status, Subject
from hpcadmin.checklib import roce, roce_tools
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

MLNX_QOS = """DCBX mode: OS controlled
Priority trust state: {trust}
dscp2prio mapping:
{mapping}
default priority:
Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,max_buffer_size=262016
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     {pfc}
\tbuffer      0   0   0   1   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%
\t priority:  3
"""
MAPPING = "\n".join(f"\tprio:{p} dscp:" + "".join(f"{d:02}," for d in range(8 * p + 7, 8 * p - 1, -1))
                    for p in range(8))
COUNTERS = """NIC statistics:
     rx_packets: 4711
     rx_discards_phy: {discards}
     rx_prio0_pause: {pause0}
     rx_prio3_pause: 41927
     rx_prio3_pause_duration: 8134
     rx_prio3_buf_discard: 0
     tx_pause_storm_error_events: {storms}
"""


@dataclass
class Machine:
    """A node with RoCE ports. tools: name -> what it prints; "": it ends with status 1 after a word."""

    root: Path
    tools: dict[str, str] = field(default_factory=dict)

    def file(self, path: str, text: str) -> None:
        place = self.root / "sys" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def port(self, device: str, net: str, *, layer: str = "Ethernet", state: str = "4: ACTIVE", mtu: int = 9000,
             ecn: str = "1", tclass: str = "Global tclass=106\n") -> None:
        at = f"class/infiniband/{device}/ports/1"
        self.file(f"{at}/link_layer", layer)
        self.file(f"{at}/state", state)
        if layer != "Ethernet":
            return
        self.file(f"class/infiniband/{device}/device/net/{net}/dev_port", "0\n")
        for n, kind in enumerate(("IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2")):
            self.file(f"{at}/gid_attrs/types/{n}", f"{kind}\n")
        self.file(f"class/infiniband/{device}/tc/1/traffic_class", tclass)
        self.file(f"class/net/{net}/mtu", f"{mtu}\n")
        for side in ("np", "rp"):
            for prio in range(8):
                self.file(f"class/net/{net}/ecn/roce_{side}/enable/{prio}", f"{ecn}\n")
        self.file(f"class/net/{net}/ecn/roce_np/cnp_dscp", "48\n")
        self.file(f"class/net/{net}/ecn/roce_np/cnp_802p_prio", "6\n")
        self.file(f"{at}/hw_counters/np_cnp_sent", "12\n")

    def run(self, shell: tuple[str, ...] = ("/bin/sh",)) -> str:
        folder = self.root / "bin"
        folder.mkdir(exist_ok=True)
        for name, text in self.tools.items():
            (folder / f"{name}.txt").write_text(text)
            end = f"cat {folder}/{name}.txt" if text else "echo 'Operation not permitted'; exit 1"
            (folder / name).write_text(f"#!/bin/sh\n{end}\n")
            (folder / name).chmod(0o755)
        (folder / "ethtool").write_text(
            f"#!/bin/sh\n[ \"$1\" = -S ] && exec cat {folder}/counters.txt\nexec cat {folder}/pause.txt\n")
        (folder / "ethtool").chmod(0o755)
        script = roce.SCRIPT.replace("sys=/sys\n", f"sys={self.root}/sys\n").replace(
            "PATH=$PATH${1:+:$1}:/usr/sbin:/sbin", f"PATH={folder}:/usr/bin:/bin")
        done = subprocess.run([*shell, "-c", script, "roce_config"], capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"]})
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout


def qos(trust: str = "dscp", pfc: str = "0   0   0   1   0   0   0   0   ", mapping: str = MAPPING) -> str:
    return MLNX_QOS.format(trust=trust, pfc=pfc, mapping=mapping)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, {"mlnx_qos": qos(), "counters": COUNTERS.format(discards=0, pause0=0, storms=0),
                              "cma_roce_tos": "106\n", "cma_roce_mode": "RoCE v2\n",
                              "pause": "Pause parameters for eth2:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n"})
    made.port("mlx5_0", "eth2")
    made.port("mlx5_1", "eth3")
    return made


NODE = Context(nodes=(NodeView("n1", hostname="n1"),))


def parse(text: str, context: Context = NODE) -> list[Measurement]:
    return load_checks()["roce_config"].parse([Output(text, node="n1")], context)


def verdicts(text: str, context: Context = NODE, limits: tuple[Limit, ...] = ()) -> dict[str, Status]:
    """The worst of each measurement, and of the test by "all"."""
    test = PlannedTest("t1", "roce_config", Subject(("n1",)), (), 1)
    found = judge([TestResult(test, tuple(parse(text, context)))], limits)
    worst: dict[str, Status] = {}
    for verdict in found:
        for name in ("all", verdict.measurement.name if verdict.measurement else "test"):
            worst[name] = max(worst.get(name, Status.PASS), verdict.status, key=lambda s: s.rank)
    return worst


def test_a_right_node_passes(machine: Machine) -> None:
    text = machine.run()
    found = verdicts(text)
    assert found["all"] is Status.PASS, parse(text)
    assert set(found) == {"all", "lossless", "trust", "roce_priority", "traffic_class", "cma_tos", "ecn_np", "ecn_rp",
                          "cnp_dscp", "cnp_priority", "roce_mode", "mtu", "global_pause", "ports_alike"}


@pytest.mark.parametrize(("name", "change"), [
    ("lossless", {"mlnx_qos": qos(pfc="0   0   0   1   0   1   0   0   ")}),
    ("lossless", {"mlnx_qos": qos(pfc="0   0   0   0   0   0   0   0   ")}),
    ("lossless", {"mlnx_qos": qos(pfc="1   1   1   1   1   1   1   1   ")}),
    ("trust", {"mlnx_qos": qos(trust="pcp")}),
    ("roce_priority", {"mlnx_qos": qos(mapping=MAPPING.replace("27,26,", "27,").replace("01,00,", "01,00,26,"))}),
    ("cma_tos", {"cma_roce_tos": "0\n"}),
    ("roce_mode", {"cma_roce_mode": "IB/RoCE v1\n"}),
    ("global_pause", {"pause": "Pause parameters for eth2:\nRX:\t\ton\nTX:\t\ton\n"}),
])
def test_what_is_wrong_is_found(machine: Machine, name: str, change: dict[str, str]) -> None:
    machine.tools.update(change)
    found = verdicts(machine.run())
    assert {key for key, status in found.items() if status is Status.FAIL} == {"all", name}


@pytest.mark.parametrize(("name", "change"), [("mtu", {"mtu": 1500}), ("ecn_np", {"ecn": "0"}),
                                              ("traffic_class", {"tclass": "Global tclass=0\n"})])
def test_what_the_kernel_tells_is_found(machine: Machine, name: str, change: dict) -> None:
    machine.port("mlx5_1", "eth3", **change)
    text = machine.run()
    bad = {m.name: m for m in parse(text) if m.expected is not None and m.value != m.expected}
    assert name in bad and bad[name].subject.device == "mlx5_1/1 (eth3)"
    assert "mlx5_1/1 (eth3) has" in str(bad["ports_alike"].value)


def test_a_finding_names_the_interface_and_what_to_do(machine: Machine) -> None:
    machine.tools["mlnx_qos"] = qos(trust="pcp")
    wrong = [m for m in parse(machine.run()) if m.name == "trust"]
    assert [(m.value, m.expected, m.subject.device) for m in wrong] == [
        ("pcp", "dscp", "mlx5_0/1 (eth2)"), ("pcp", "dscp", "mlx5_1/1 (eth3)")]
    assert wrong[0].warnings == ("on mlx5_0/1 (eth2): mlnx_qos -i eth2 --trust dscp",)


def test_without_tools_nothing_passes_for_all(machine: Machine) -> None:
    for tool in ("mlnx_qos", "cma_roce_tos", "cma_roce_mode"):
        del machine.tools[tool]
    machine.port("mlx5_0", "eth2", tclass="")
    found = parse(machine.run())
    untold = next(m for m in found if m.name == "not_told")
    assert untold.value == 7 and untold.key and "dcb, lldptool, mlnx_qos not there" in untold.warnings[0]
    assert verdicts(machine.run())["all"] is Status.UNJUDGED
    assert not any(m.name in ("lossless", "trust", "roce_priority") for m in found)


def test_a_tool_that_is_not_allowed_is_named(machine: Machine) -> None:
    machine.tools["mlnx_qos"] = ""
    untold = next(m for m in parse(machine.run()) if m.name == "not_told")
    assert "mlnx_qos ended with status 1: Operation not permitted" in untold.warnings[0]


def test_tools_that_contradict_each_other_are_an_error(machine: Machine) -> None:
    machine.tools["dcb"] = ("pfc-cap 8 macsec-bypass off delay 7\nprio-pfc 0:off 1:off 2:off 3:off 4:off 5:on 6:off "
                            "7:off\norder: dscp\n")
    with pytest.raises(ParseError, match="contradict each other on PFC: 3 and 5"):
        parse(machine.run())


def test_dcb_alone_tells_enough_of_priorities(machine: Machine) -> None:
    del machine.tools["mlnx_qos"]
    machine.tools["dcb"] = ("prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\ndscp-prio AF31:3 CS6:6\n"
                            "order: dscp pcp\n")
    assert verdicts(machine.run())["all"] is Status.PASS


def test_counters_that_tell_of_trouble_are_warnings(machine: Machine) -> None:
    machine.tools["counters"] = COUNTERS.format(discards=3, pause0=17, storms=2)
    text = machine.run()
    said = " ".join(w for m in parse(text) for w in m.warnings)
    assert "17 pause frames of another priority than 3 (rx_prio0_pause)" in said and "2 pause storms" in said
    assert verdicts(text)["all"] is Status.WARN


def test_what_happens_under_load_is_a_failure(machine: Machine) -> None:
    before = machine.run()
    machine.tools["counters"] = COUNTERS.format(discards=0, pause0=0, storms=0).replace(
        "buf_discard: 0", "buf_discard: 5")
    after = machine.run()
    check = load_checks()["roce_config"]
    outputs = [Output(before, node="n1", when="before"), Output(after, node="n1", when="after")]
    grown = {m.name: (m.value, m.expected) for m in check.parse(outputs, NODE) if m.name.endswith("_under_load")}
    assert grown == {"rx_prio3_buf_discard_under_load": (5, 0), "tx_pause_storm_error_events_under_load": (0, 0)}
    assert not [m for m in check.parse(outputs[:1], NODE) if m.name.endswith("_under_load")]
    with pytest.raises(ParseError, match="reset in between"):
        check.parse([Output(after, node="n1", when="before"), Output(before, node="n1", when="after")], NODE)


def test_a_sites_own_values(machine: Machine) -> None:
    machine.tools["mlnx_qos"] = qos(pfc="0   0   0   0   0   1   0   0   ", mapping=MAPPING.replace(
        "27,26,", "27,").replace("41,40,", "41,40,26,"))
    machine.tools["counters"] = COUNTERS.format(discards=0, pause0=0, storms=0).replace("prio3", "prio5")
    text = machine.run()
    context = Context(nodes=NODE.nodes, params={"priority": 5})
    assert verdicts(text, context)["lossless"] is Status.PASS
    assert verdicts(text, context)["roce_priority"] is Status.PASS


def test_infiniband_and_ports_that_are_down(machine: Machine) -> None:
    machine.port("mlx5_2", "ib0", layer="InfiniBand")
    machine.port("mlx5_1", "eth3", state="1: DOWN")
    found = parse(machine.run())
    assert {m.subject.device for m in found if m.subject.device} == {"mlx5_0/1 (eth2)"}
    assert [m.value for m in found if m.name == "not_active"] == ["mlx5_1/1"]
    machine.port("mlx5_0", "eth2", state="1: DOWN")
    with pytest.raises(ParseError, match="no RoCE port of n1 is active"):
        parse(machine.run())
    with pytest.raises(ParseError, match="mlx5_9: no RoCE port"):
        parse(machine.run(), Context(nodes=NODE.nodes, params={"devices": "mlx5_0,mlx5_9"}))


def test_a_port_of_the_inventory_that_is_not_told(machine: Machine) -> None:
    known = tuple(PortView(name, 1, "Ethernet", 100.0, "ACTIVE") for name in ("mlx5_0", "mlx5_1", "mlx5_2"))
    text = machine.run()
    assert parse(text, Context(nodes=(NodeView("n1", hostname="n1", ports=known[:2]),)))
    with pytest.raises(ParseError, match="nothing is told of mlx5_2/1"):
        parse(text, Context(nodes=(NodeView("n1", hostname="n1", ports=known),)))
    with pytest.raises(ParseError, match="no RoCE port of n1 is active"):
        parse(text.replace("state: 4: ACTIVE", "state: 9: INACTIVE"))


def test_only_infiniband(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.port("mlx5_0", "ib0", layer="InfiniBand")
    with pytest.raises(ParseError, match="none of the 1 RDMA ports"):
        parse(machine.run())


@pytest.mark.parametrize("shell", [("dash",), ("bash", "--posix"), ("busybox", "sh")], ids=" ".join)
def test_the_script_runs_in_every_shell(machine: Machine, shell: tuple[str, ...]) -> None:
    from shutil import which
    if not which(shell[0]):
        pytest.skip(f"no {shell[0]}")
    assert verdicts(machine.run(shell))["all"] is Status.PASS


@pytest.mark.deep
def test_damage_never_passes(machine: Machine) -> None:
    text = machine.run()
    lines = text.splitlines(keepends=True)
    done = 0
    for n in range(len(lines)):
        changed = ["".join(lines[:n])]
        if not lines[n].startswith(("host:", "counter ", "|")) and "without" not in lines[n]:
            changed += ["".join(lines[:n] + lines[n + 1:]), "".join([*lines[:n + 1], *lines[n:]])]
        if lines[n].startswith("| ") and any(w in lines[n] for w in ("enabled", "priority  ", "trust", "dscp:", "RX:")):
            changed += ["".join(lines[:n] + lines[n + 1:]), "".join([*lines[:n + 1], *lines[n:]])]
            changed += ["".join([*lines[:n], lines[n].replace("1", bad, 1), *lines[n + 1:]])
                        for bad in ("nan", "-1", "2", "", "1,0") if "1" in lines[n] and "enabled" in lines[n]]
        for one in changed:
            done += 1
            try:
                assert verdicts(one)["all"] is not Status.PASS, set(one.split("\n")) ^ set(text.split("\n"))
            except ParseError:
                continue
    for end in range(0, len(text.rstrip()) - 1, max(1, len(text) // 300)):
        done += 1
        with pytest.raises(ParseError):
            parse(text[:end])
    assert done > 400
    for joined in (text + text, text + "".join(lines[:40]), "srun: error: node01: task 0: Killed\n" + text):
        with pytest.raises(ParseError):
            parse(joined)


def test_answers_of_tools() -> None:
    assert roce_tools.lldptool_pfc("PFC TLV\n\tWilling: yes\n\tPFC enabled: 3\n").lossless == (3,)
    assert roce_tools.lldptool_pfc("enabled=none\n").lossless == ()
    assert roce_tools.dcb_trust("order: pcp dscp \n").trust == "pcp"
    assert roce_tools.tos("Global tclass=106\n", "it") == 106 and roce_tools.tos("", "it") is None
    for text in ("Global tclass=abc", "256", "-4"):
        with pytest.raises(ParseError):
            roce_tools.tos(text, "it")
    for text in ("", "prio-pfc 0:off 1:off", "prio-pfc 0:off 1:off 2:off 3:maybe 4:off 5:off 6:off 7:off"):
        with pytest.raises(ParseError):
            roce_tools.dcb_pfc(text)
    with pytest.raises(ParseError, match="63 of 64 DSCPs"):
        roce_tools.mlnx_qos(qos(mapping=MAPPING.replace("26,", "")))
    with pytest.raises(ParseError, match="no whole table of PFC: Netdev"):
        roce_tools.mlnx_qos("Netdev doesn't exist\n")


def test_one_answer_by_itself() -> None:
    check = load_checks()["roce_config"]
    assert check.read is not None
    reading = check.read(qos(trust="pcp"), Context())
    assert {m.name: m.value for m in reading.measurements if m.key and m.name != "not_told"} == {
        "lossless": "3", "trust": "pcp", "roce_priority": 3}
    assert reading.problems == ("trust is pcp, not dscp",)

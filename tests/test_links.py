"""ib_links: ports that are down, slow, gone or have errors are found; damaged and unknown texts are never good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from check_samples import SAMPLES, all_samples

from hpcadmin.catalogue import load_limits
from hpcadmin.check import Context, Measurement, NodeView, Output, ParseError, PortView, Status, Subject
from hpcadmin.checklib.links import Port, read_rate
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.site import Site

CHECK = load_checks()["ib_links"]
LIMITS = load_limits(Site())
BY_NAME = {s.path.stem: s for s in all_samples("ib_links")}
GOOD = BY_NAME["eight_ports"]
NAMES = [f"mlx5_{n}" for n in range(8)]


def text_of(name: str) -> str:
    return (SAMPLES / "ib_links" / name).read_text()


def verdicts(found: list[Measurement], node: NodeView) -> dict[str, tuple[Status, str]]:
    """measurement and device -> verdict, as a run judges them."""
    test = PlannedTest("t0001", "ib_links", Subject((node.name,)), (), 1)
    judged = judge([TestResult(test, tuple(found), simulated=node.simulated)], LIMITS)
    return {f"{v.measurement.name if v.measurement else ''} {v.subject.device}".strip(): (v.status, v.reason)
            for v in judged}


def worst(found: list[Measurement], node: NodeView) -> Status:
    return max((status for status, _ in verdicts(found, node).values()), key=lambda s: s.rank)


def outcome(text: str, node: NodeView, before: str = "") -> Status:
    """The worst verdict; ERROR where the text is refused."""
    outputs = [Output(before, node=node.name, when="before")] if before else []
    outputs.append(Output(text, node=node.name, when="after" if before else ""))
    try:
        return worst(CHECK.parse(outputs, Context(nodes=(node,))), node)
    except ParseError:
        return Status.ERROR


def node_of(name: str, **change: object) -> NodeView:
    return replace(BY_NAME[name].context.nodes[0], **change)


def parse(text: str, node: NodeView, before: str = "") -> list[Measurement]:
    outputs = [Output(before, node=node.name, when="before")] if before else []
    return CHECK.parse([*outputs, Output(text, node=node.name, when="after" if before else "")], Context(nodes=(node,)))


# --- what is good and what is bad -----------------------------------------------------------------------------------


def test_a_node_whose_ports_do_well_passes_and_faults_are_named() -> None:
    assert outcome(GOOD.text, node_of("eight_ports")) is Status.PASS
    for name, device, what in (
            ("one_down", "mlx5_3/1", "state"), ("slow_and_old_errors", "mlx5_6/1", "rate"),
            ("slow_and_old_errors", "mlx5_6/1", "width"), ("errors_grow", "mlx5_1/1", "symbol_error"),
            ("errors_grow", "mlx5_1/1", "link_downed"), ("rxe_down", "rxe0/1", "state")):
        node = node_of(name)
        found = verdicts(parse(BY_NAME[name].text, node), node)
        assert found[f"{what} {device}"][0] is Status.FAIL, (name, what)
    node = node_of("slow_and_old_errors")
    old = verdicts(parse(BY_NAME["slow_and_old_errors"].text, node), node)["errors_so_far mlx5_1/1"]
    assert old[0] is Status.WARN and "symbol_error 1000 so far" in old[1]


def test_real_soft_roce_before_and_after_load_and_when_its_link_goes_down() -> None:
    node = node_of("rxe", simulated="")
    idle, loaded, down = (BY_NAME[name].text for name in ("rxe", "rxe_after_load", "rxe_down"))
    found = verdicts(parse(loaded, node, idle), node)
    assert found["errors rxe0/1"][0] is Status.PASS
    assert found["sent_again rxe0/1"] == (Status.WARN, "packets were sent again or came out of turn: "
                                                       "completer_retry_err 93")
    assert found["under_load"][0] is Status.PASS
    assert verdicts(parse(loaded, node, loaded), node)["under_load"][0] is Status.WARN
    found = verdicts(parse(down, node, loaded), node)
    assert found["link_downed rxe0/1"] == (
        Status.FAIL, "link_downed 1 count, at most 0 count; from 0 to 1 within 4 s")
    assert found["state rxe0/1"][0] is Status.FAIL
    assert found["steady rxe0/1"][1].endswith("state was 4: ACTIVE, now 1: DOWN; phys_state was 5: LinkUp, now 3: "
                                              "Disabled")
    with pytest.raises(ParseError, match="older than the first"):
        parse(idle, node, loaded)
    with pytest.raises(ParseError, match="started anew"):
        parse(loaded, node, idle.replace("3e3df25e", "4e3df25e"))


def test_only_the_reading_before_is_judged_by_itself() -> None:
    node = node_of("eight_ports")
    found = CHECK.parse([Output(GOOD.text, node=node.name, when="before")], Context(nodes=(node,)))
    assert worst(found, node) is Status.PASS


def test_devices_that_are_gone_or_new() -> None:
    node = node_of("eight_ports")
    lost = verdicts(parse(GOOD.text, replace(node, rdma_devices=(*NAMES, "mlx5_8"))), node)
    assert lost["device mlx5_8"][0] is Status.FAIL
    second = replace(node, ports=(*node.ports, PortView("mlx5_0", 2)))
    assert verdicts(parse(GOOD.text, second), node)["device mlx5_0/2"][0] is Status.FAIL
    assert verdicts(parse(GOOD.text, replace(node, rdma_devices=tuple(NAMES[1:]))), node)["device mlx5_0"][0] \
        is Status.WARN
    without = without_ports(GOOD.text, "mlx5_7")
    assert outcome(without, node) is Status.FAIL
    assert verdicts(parse(without, NodeView("node02"), GOOD.text), NodeView("node02"))["device mlx5_7/1"][0] \
        is Status.FAIL
    nothing = "# hpcadmin ib_links 1\nnode: node02\nread: 1.0 b 0\nread: 2.0 b 0\n# end ib_links\n"
    assert outcome(nothing, node) is Status.FAIL
    with pytest.raises(ParseError, match="no RDMA port"):
        parse(nothing, NodeView("node02"))


def without_ports(text: str, device: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith(f"{device}/")]
    files = sum("/" in line for line in lines) // 2
    return "\n".join(line.rpartition(" ")[0] + f" {files}" if line.startswith("read: ") else line for line in lines)


@pytest.mark.parametrize(("state", "others_down", "wanted"), [
    ("ACTIVE", 5, Status.FAIL),      # the inventory has it up
    ("DOWN", 0, Status.FAIL),        # seven like it are up: the inventory was made when it was down already
    ("DOWN", 4, Status.WARN),        # most of its kind are down
    ("", 4, Status.WARN),
    ("", 7, Status.FAIL),            # nothing is up
])
def test_whether_a_port_should_be_up(state: str, others_down: int, wanted: Status) -> None:
    text = GOOD.text
    for n in (3, *[n for n in range(8) if n != 3][:others_down]):
        text = text.replace(f"mlx5_{n}/ports/1/state:4: ACTIVE", f"mlx5_{n}/ports/1/state:1: DOWN")
    node = node_of("eight_ports")
    node = replace(node, ports=tuple(replace(p, state=state) if p.device == "mlx5_3" else p for p in node.ports))
    assert verdicts(parse(text, node), node)["state mlx5_3/1"][0] is wanted


def test_rates_widths_and_lids() -> None:
    node = node_of("eight_ports")
    whole = replace(node, ports=())
    half = GOOD.text.replace("mlx5_2/ports/1/rate:400 Gb/sec (4X NDR)", "mlx5_2/ports/1/rate:200 Gb/sec (2X NDR)")
    assert {verdicts(parse(half, n), n)[k][0] for n in (node, whole) for k in ("rate mlx5_2/1", "width mlx5_2/1")} == {
        Status.FAIL}
    agreed = replace(node, ports=tuple(replace(p, rate_gbps=200.0) if p.device == "mlx5_2" else p for p in node.ports))
    assert verdicts(parse(half, agreed), agreed)["rate mlx5_2/1"][0] is Status.FAIL
    for n in (0, 1, 3):
        half = half.replace(f"mlx5_{n}/ports/1/rate:400 Gb/sec (4X NDR)", f"mlx5_{n}/ports/1/rate:200 Gb/sec (4X HDR)")
    assert verdicts(parse(half, agreed), agreed)["rate mlx5_2/1"] == (      # half of them are so: which are right?
        Status.WARN, "4 of 8 ports of its kind run at 400")
    split = GOOD.text.replace("400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)")
    slower = verdicts(parse(split, node), node)                    # half of what the inventory has
    assert {slower[f"rate {name}/1"][0] for name in NAMES} == {Status.FAIL}
    assert {verdicts(parse(split, whole), whole)["width " + f"mlx5_{n}/1"][0] for n in range(8)} == {Status.WARN}
    single = GOOD.text.replace("400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)")
    assert verdicts(parse(single, whole), whole)["width mlx5_0/1"][0] is Status.FAIL
    for key, bad in (("sm_lid:0x1", "sm_lid:0x0"), ("state:4: ACTIVE", "state:2: INIT")):
        text = GOOD.text.replace(f"mlx5_5/ports/1/{key}", f"mlx5_5/ports/1/{bad}")
        assert verdicts(parse(text, node), node)[f"{key.split(':')[0]} mlx5_5/1"][0] is Status.FAIL


@pytest.mark.parametrize(("first", "second", "status", "words"), [
    ("7", "7", Status.PASS, ""), ("7", "17", Status.WARN, "from 7 to 17"), ("7", "18", Status.FAIL, "at most 10"),
    ("9", "3", Status.ERROR, "cleared in between"), ("65535", "65535", Status.ERROR, "full"),
    ("4294967295", "4294967295", Status.ERROR, "full"), ("7", "N/A (no PMA)", Status.ERROR, "is not a count"),
])
def test_symbol_errors_between_two_readings(first: str, second: str, status: Status, words: str) -> None:
    node = node_of("eight_ports")
    line = "mlx5_4/ports/1/counters/symbol_error:"
    before = GOOD.text.replace(line + "0", line + first)
    found = verdicts(parse(GOOD.text.replace(line + "0", line + second), node, before), node)
    key = "symbol_error mlx5_4/1" if status is not Status.PASS else "errors"
    assert found[key][0] is status and words in found[key][1]


def test_ports_without_counters_are_a_warning() -> None:
    node = node_of("eight_ports")
    lines = [line.rpartition(":")[0] + ":N/A (no PMA)" if "/counters/" in line else line
             for line in GOOD.text.splitlines() if "/hw_counters/" not in line]
    files = sum("/" in line for line in lines) // 2
    text = "\n".join(line.rpartition(" ")[0] + f" {files}" if line.startswith("read: ") else line for line in lines)
    found = verdicts(parse(text, node), node)
    assert {found[f"errors_so_far {name}/1"][0] for name in NAMES} == {Status.WARN} and "errors" not in found


# --- damage ---------------------------------------------------------------------------------------------------------


def test_no_damaged_value_passes() -> None:
    """Every line of the output in turn, its value replaced by what is none."""
    node = node_of("rxe")
    text = BY_NAME["rxe"].text
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if "/" not in line or line.endswith("lid:0x0"):          # RoCE has no LIDs
            continue
        for bad in ("nan", "-7", "", "1e3", "0x10", "4: ACTIV", "9: FOO", "inf", "1,000", "400 Gb/sec (4X", "\x1b[31m"):
            damaged = [*lines[:place], line.split(":")[0] + ":" + bad, *lines[place + 1:]]
            assert outcome("\n".join(damaged), node) is not Status.PASS, damaged[place]


def test_lost_doubled_and_renamed_lines_never_pass() -> None:
    node = node_of("eight_ports")
    lines = GOOD.text.splitlines()
    for place in range(0, len(lines), 13):
        line = lines[place]
        for now in ([], [line, line], [line.replace("mlx5_", "mlx5_9", 1)] if line.startswith("mlx5") else []):
            assert outcome("\n".join([*lines[:place], *now, *lines[place + 1:]]), node) is not Status.PASS, (line, now)
    refused = GOOD.text.replace("mlx5_1/ports/1/counters/symbol_error:0",
                                "grep: mlx5_1/ports/1/counters/symbol_error: Invalid argument")
    with pytest.raises(ParseError, match="symbol_error cannot be read: Invalid argument"):
        parse(refused, node)
    with pytest.raises(ParseError, match="of node02, not of node07"):
        parse(GOOD.text, NodeView("node07"))


def test_rates_contradict_themselves() -> None:
    for text, gbps in (("400 Gb/sec (4X NDR)", 400), ("56 Gb/sec (4X FDR)", 56), ("2.5 Gb/sec (1X SDR)", 2.5),
                       ("40 (FDR10)", 40), ("25 Gb/sec (1X EDR)", 25), ("800 Gb/sec (8X NDR)", 800), ("100", 100)):
        assert read_rate(text, "x").gbps == gbps
    for text in ("0", "", "400 Gb/sec (1X NDR)", "400 Gb/sec (4X ND", "400 Gb/sec (3X NDR)", "4e2", "-400", "400 GB/s",
                 "100 Gb/sec (4X NDR)"):
        with pytest.raises(ParseError):
            read_rate(text, "x")


def test_words_of_states() -> None:
    def port(state: str, link: str = "5: LinkUp") -> Port:
        return Port("mlx5_0/1", {"state": state, "phys_state": link, "link_layer": "InfiniBand"})
    assert [port(s).state for s in ("4: ACTIVE", "Active", "Initializing", "1: DOWN", "5: ACTIVE_DEFER")] == [
        "ACTIVE", "ACTIVE", "INIT", "DOWN", "ACTIVE_DEFER"]
    assert port("Active", "7: Phy Test").link == "Phy Test"
    for bad in ("4: DOWN", "Activ", "6: ACTIVE", "", "ACTIVE: 4", "x"):
        with pytest.raises(ParseError):
            _ = port(bad).state


# --- what people paste ----------------------------------------------------------------------------------------------


def read(text: str, *devices: str):
    return CHECK.read(text, Context(nodes=(NodeView("n1", rdma_devices=devices),) if devices else ()))


IBSTAT = text_of("ibstat_rxe.txt").replace("Ethernet", "InfiniBand").replace("lid: 0", "lid: 5")
PORTS = "".join(IBSTAT.replace("rxe0", f"mlx5_{n}").replace("Rate: 2.5", "Rate: 400") for n in range(4))


def test_ibstat_and_ibstatus() -> None:
    for name in ("ibstat_rxe.txt", "ibstatus_rxe.txt", "ibstat_ibsim.txt"):
        reading = read(text_of(name))
        assert reading.sound and {m.name for m in reading.measurements} >= {"state", "rate", "physical_state"}
    assert read(PORTS).sound
    slow = read(PORTS.replace("Rate: 400", "Rate: 200", 1))
    assert slow.problems == ("mlx5_0/1: rate is 200, not 400 (3 of 4 ports of its kind run at 400)",)
    down = read(PORTS.replace("Active", "Down", 1).replace("LinkUp", "Polling", 1))
    assert "mlx5_0/1: state is DOWN, not ACTIVE" in down.problems[0] and down.usable
    assert "no subnet manager" in read(PORTS.replace("Active", "Initializing", 1)).problems[0]
    assert read(PORTS, "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4").problems == (
        "mlx5_4: device is missing, not present",)
    panic = read(PORTS + "ibpanic: [14] main: stat of IB device 'mlx5_4' failed: No such file or directory\n")
    assert "mlx5_4" in panic.problems[0] and not panic.usable
    assert "told twice" in read(PORTS + PORTS).problems[0]


def test_a_cut_ibstat_is_never_whole() -> None:
    devices = [f"mlx5_{n}" for n in range(4)]
    for end in range(0, len(PORTS) - 3, 5):
        assert not read(PORTS[:end], *devices).sound, PORTS[:end][-60:]


def test_perfquery() -> None:
    text = text_of("perfquery.txt")
    assert read(text).sound
    bad = read(text.replace("SymbolErrorCounter:..............0", "SymbolErrorCounter:..............1542"))
    assert [m.value for m in bad.measurements if m.name == "symbol_error_so_far"] == [1542]
    assert any("1542 so far" in note for note in bad.notes)
    full = read(text.replace("LinkDownedCounter:...............0", "LinkDownedCounter:...............255"))
    assert any("stands at 255, where it is full" in note for note in full.notes)
    assert not read(text_of("perfquery_x.txt")).sound
    for change in (("LinkDownedCounter:...............0\n", ""), ("Errors:...................0", "Errors:......nan"),
                   ("PortRcvPkts:.....................24\n", "")):
        assert not read(text.replace(*change)).sound, change


def test_lines_of_sysfs_as_grep_prints_them() -> None:
    base = "/sys/class/infiniband/mlx5_0/ports/1/"
    text = "".join(f"{base}{name}\n" for name in ("state:4: ACTIVE", "phys_state:5: LinkUp",
                                                  "rate:100 Gb/sec (4X EDR)", "link_layer:InfiniBand", "lid:0x5",
                                                  "sm_lid:0x1", "counters/symbol_error:3"))
    assert read(text).sound
    assert not read(text.replace("phys_state:5: LinkUp", "phys_state:5: Link")).sound
    assert not read(text.replace(base + "rate", base + "rat")).sound


@pytest.mark.parametrize("text", ["", "\x00\xff", "hello\n", "0x0000000000100005\n",
                                  "ibwarn: [9] mad_rpc_open_port: can't open UMAD port ((null):0)\n",
                                  "CA 'mlx5_0'\n", "# Port counters: Lid 8 port 1 (CapMask: 0x1200)\n"])
def test_what_is_no_text_about_ports(text: str) -> None:
    assert not read(text).sound and not read(text).measurements


def test_a_long_text_is_read_in_time(tmp_path: Path) -> None:
    noise = "x" * 300 + "\n"
    assert read(noise * 20_000 + PORTS).sound


def test_a_pasted_text_is_judged_port_by_port() -> None:
    found = CHECK.parse([Output(PORTS.replace("Active", "Down", 1).replace("LinkUp", "Polling", 1))], Context())
    assert verdicts(found, NodeView("file"))["state mlx5_0/1"][0] is Status.FAIL
    with pytest.raises(ParseError, match="cut off"):
        CHECK.parse([Output(PORTS[:-30])], Context())

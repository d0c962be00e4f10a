"""subnet_manager: one master that works and a standby; what cannot be asked is never good.

The outputs are of a real OpenSM, sminfo and saquery on a simulated fabric (ibsim).
"""

from __future__ import annotations

import pytest
from check_samples import SAMPLES, all_samples

from hpcadmin.check import Context, Measurement, NodeView, Output, ParseError, PortView, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.model import Inventory, Nic, Node
from hpcadmin.plan_facts import gather
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.site import Site

CHECK = load_checks()["subnet_manager"]
BY_NAME = {s.path.stem: s for s in all_samples("subnet_manager")}
NODES = (NodeView("n1"), NodeView("n2"))
TWO = BY_NAME["opensm_two"].text
PORTS = [(SAMPLES / "subnet_manager" / f"ports_{n}.txt").read_text() for n in ("n1", "n2")]


def text_of(name: str) -> str:
    return (SAMPLES / "subnet_manager" / name).read_text()


def parse(managers: str, *ports: str, **params: int) -> list[Measurement]:
    outputs = [Output(text, node=node.name, step="ports") for text, node in zip(ports or PORTS, NODES, strict=False)]
    return CHECK.parse([*outputs, Output(managers, node="n1", step="managers")], Context(nodes=NODES, params=params))


def verdicts(found: list[Measurement]) -> dict[str, tuple[Status, str]]:
    test = PlannedTest("t0001", "subnet_manager", Subject(("n1", "n2")), (), 1)
    return {f"{v.measurement.name if v.measurement else ''} {v.subject.device}".strip(): (v.status, v.reason)
            for v in judge([TestResult(test, tuple(found))], ())}


def bad(found: list[Measurement]) -> dict[str, Status]:
    return {name: status for name, (status, _) in verdicts(found).items() if status is not Status.PASS}


def outcome(managers: str, *ports: str) -> Status:
    try:
        return max((s for s, _ in verdicts(parse(managers, *ports)).values()), key=lambda s: s.rank)
    except ParseError:
        return Status.ERROR


@pytest.mark.parametrize(("name", "wanted"), [
    ("opensm_two", {}),
    ("opensm_alone", {"standbys": Status.WARN}),
    ("two_masters", {"masters": Status.FAIL, "standbys": Status.WARN}),
    ("opensm_silent", {"master": Status.FAIL, "masters": Status.ERROR}),
    ("no_rights", {"master": Status.ERROR, "masters": Status.ERROR}),
    ("no_tools", {"master": Status.ERROR, "masters": Status.ERROR}),
])
def test_what_real_managers_are_worth(name: str, wanted: dict[str, Status]) -> None:
    assert bad(parse(BY_NAME[name].text)) == wanted


def test_reasons_name_the_tools_words() -> None:
    rights = verdicts(parse(BY_NAME["no_rights"].text))
    assert "can't open UMAD port (mlx5_0:1)" in rights["master"][1] and "only root may open" in rights["master"][1]
    assert "sminfo is not there" in verdicts(parse(BY_NAME["no_tools"].text))["master"][1]
    assert "_do_madrpc" in verdicts(parse(BY_NAME["opensm_silent"].text))["master"][1]


def test_ports_that_know_another_manager_or_none() -> None:
    found = verdicts(parse(TWO, PORTS[0], text_of("ports_n2_other.txt")))
    assert found["sm_lid mlx5_4/1"] == (Status.FAIL, "sm_lid 9, expected 2")
    assert found["sm_lid mlx5_6/1"][0] is Status.FAIL and "INIT" in found["sm_lid mlx5_6/1"][1]
    assert found["subnets"][0] is Status.FAIL
    none = [text.replace("sm_lid:0x2", "sm_lid:0x0") for text in PORTS]
    assert bad(parse(TWO, *none))["sm_lid mlx5_0/1"] is Status.FAIL
    prefix = PORTS[1].replace("mlx5_1/ports/1/gids/0:fe80", "mlx5_1/ports/1/gids/0:fec0")
    assert bad(parse(TWO, PORTS[0], prefix)) == {"sm_lid mlx5_1/1": Status.FAIL, "subnets": Status.FAIL}


def test_ports_that_know_another_manager_than_the_one_that_answers() -> None:
    assert bad(parse(TWO, *(text.replace("sm_lid:0x2", "sm_lid:0x14") for text in PORTS))) == {"master": Status.ERROR}


def test_every_node_tells_of_all_its_ports_once() -> None:
    asked = Output(TWO, node="n1", step="managers")
    twice = [Output(PORTS[0], node="n1", step="ports")] * 2
    with pytest.raises(ParseError, match="n1 told of its ports twice"):
        CHECK.parse([*twice, asked], Context(nodes=NODES))
    lost = NodeView("n2", ports=(PortView("mlx5_77", 1, "InfiniBand", 400.0, "ACTIVE"),))
    told = [Output(text, node=name, step="ports") for text, name in zip(PORTS, ("n1", "n2"), strict=True)]
    with pytest.raises(ParseError, match="nothing is told of mlx5_77/1"):
        CHECK.parse([*told, asked], Context(nodes=(NODES[0], lost)))


def test_rails_that_are_fabrics_of_their_own() -> None:
    """Two subnets are right where the site says so, and each manager must have answered."""
    rails = [text.replace("mlx5_7/ports/1/sm_lid:0x2", "mlx5_7/ports/1/sm_lid:0x9") for text in PORTS]
    assert bad(parse(TWO, *rails, subnets=2)) == {"master": Status.ERROR}
    inner = TWO.split("\n", 1)[1].replace("# end subnet_managers\n", "")
    other = inner.replace("mlx5_0", "mlx5_7").replace("lid 2 ", "lid 9 ").replace("LID...................2", "LID....9")
    other = other.replace("0x100001", "0x200001").replace("0100001", "0200001").replace("0100003", "0200003")
    both = f"# hpcadmin subnet_managers 1\n{inner}{other}# end subnet_managers\n"
    assert bad(parse(both, *rails, subnets=2)) == {}
    assert len([name for name in verdicts(parse(both, *rails, subnets=2)) if name.startswith("masters")]) == 2


@pytest.mark.parametrize(("old", "new", "wanted"), [
    ("activity count 89", "activity count 88", {"activity": Status.FAIL}),
    ("activity count 89", "activity count 3", {"activity": Status.WARN}),
    ("SMState...............2", "SMState...............0", {"standbys": Status.WARN}),
    ("SMState...............2", "SMState...............1", {"standbys": Status.WARN}),
    ("Priority..............12", "Priority..............15", {"standbys": Status.WARN}),
    ("state 3 SMINFO_MASTER\nrun: saquery", "state 2 SMINFO_STANDBY\nrun: saquery", {"master": Status.FAIL}),
    ("SMState...............3", "SMState...............2", {"master": Status.WARN, "masters": Status.FAIL}),
    ("state 3 SMINFO_MASTER\nrun: sminfo", "state 2 SMINFO_STANDBY\nrun: sminfo", {"master": Status.WARN}),
    ("sm lid 2 ", "sm lid 3 ", None), ("mlx5_0/1", "mlx5_44/1", None),
])
def test_changes_of_the_answers(old: str, new: str, wanted: dict[str, Status] | None) -> None:
    assert old in TWO
    if wanted is None:
        assert outcome(TWO.replace(old, new)) is Status.ERROR
        return
    assert bad(parse(TWO.replace(old, new))) == wanted


def test_damaged_answers_never_pass() -> None:
    assert outcome(TWO) is Status.PASS
    lines = TWO.splitlines()
    for place, line in enumerate(lines):
        for now in ([], [line, line]):
            text = "\n".join([*lines[:place], *now, *lines[place + 1:]])
            harmless = line.strip() in ("RID", "SMInfo dump:")
            assert harmless or outcome(text) is not Status.PASS, (line, now)
        for end in range(8, len(line)):
            text = "\n".join([*lines[:place], line[:end], *lines[place + 1:]])
            fewer_digits = "...." in line and line[end - 1].isdigit() and "GUID" not in line
            assert fewer_digits or line.strip() == "SMInfo dump:" or outcome(text) is not Status.PASS, line[:end]
    for old, new in (("state 3", "state 7"), ("state 3", "state 2"), ("SMINFO_MASTER", "???"), ("0x100001", "0x0"),
                     ("priority 14", "priority 99"), ("SMState...............3", "SMState...............9"),
                     ("mlx5_0/1 0", "mlx5_0/1 139"), ("activity count 88", "activity count nan"),
                     ("activity count 88", "activity count -88"), ("0x0000000000100001", "0x0000000000999999")):
        assert old in TWO and outcome(TWO.replace(old, new)) is not Status.PASS, (old, new)
    assert outcome("srun: error: node01: task 0: Killed by signal 9\n" + TWO) is Status.ERROR


def test_an_output_of_a_node_that_is_missing_or_of_another_is_an_error() -> None:
    with pytest.raises(ParseError, match="1 nodes told"):
        parse(TWO, PORTS[0])
    with pytest.raises(ParseError, match="is of n1, not of n2"):
        parse(TWO, PORTS[0], PORTS[0])
    roce = [text.replace("link_layer:InfiniBand", "link_layer:Ethernet") for text in PORTS]
    with pytest.raises(ParseError, match="no InfiniBand port has a link"):
        parse(TWO, *roce)


def test_steps_ask_on_a_node_whose_ports_are_up() -> None:
    nodes = (NodeView("n1", ports=(PortView("mlx5_0", link_layer="InfiniBand", state="DOWN"),)),
             NodeView("n2", ports=(PortView("mlx5_0", link_layer="InfiniBand", state="ACTIVE"),)))
    ports, managers = CHECK.steps(Context(nodes=nodes, tools={"sminfo": "/usr/sbin/sminfo"}))
    assert not ports.nodes and managers.nodes == ("n2",) and managers.argv[-4:] == ("/usr/sbin/sminfo", "", "3", "")
    _, managers = CHECK.steps(Context(nodes=nodes, params={"sudo": True}))
    assert managers.argv[-1] == "sudo -n"


def test_it_is_not_applicable_to_roce() -> None:
    def has(layer: str) -> bool | None:
        node = Node("n1", nics=(Nic("mlx5_0", rdma="mlx5_0", link_layer=layer),))
        facts = gather(("n1",), Inventory((node,)), None, Site(), programs={}, unbuilt={}, shared_dir="/s")
        return facts.has["infiniband"]["n1"]
    assert has("InfiniBand") is True and has("Ethernet") is False


# --- what people paste ----------------------------------------------------------------------------------------------


def test_texts_of_sminfo_saquery_and_ibdiagnet() -> None:
    reading = CHECK.read(text_of("saquery_smir.txt"), Context())
    assert reading.sound and {m.name: m.value for m in reading.measurements} == {"masters": 1, "standbys": 1}
    reading = CHECK.read(text_of("sminfo_three.txt"), Context())           # the master twice, the standby
    assert reading.sound and {m.name: m.value for m in reading.measurements} == {
        "masters": 1, "standbys": 1, "activity": "goes on"}
    one = CHECK.read(text_of("sminfo_three.txt").splitlines()[0], Context())
    assert one.sound and [m.name for m in one.measurements] == ["masters"] and "others stand by" in one.notes[0]
    report = ("ibdiagnet fabric SM report\n\n  SM - master\n    Port=0 lid=0x0004 guid=0x00000000000000a1 dev=54000 "
              "priority:15\n  SM - standby\n    Port=1 lid=0x0007 guid=0x00000000000000a2 dev=4123 priority:14\n")
    assert CHECK.read(report, Context()).sound
    for text in (text_of("saquery_s.txt"), text_of("silent.txt"), text_of("no_umad.txt"), "", "x\n",
                 report.replace("standby", "asleep"), report[:-4], text_of("saquery_smir.txt")[:-20],
                 "sminfo: sm lid 0x1 sm guid 0x2c9010b7c2ae1, activity count 20 priority 1\n"):
        reading = CHECK.read(text, Context())
        assert not reading.sound, text
    assert "only root may open" in CHECK.read(text_of("no_umad.txt"), Context()).problems[0]
    two = CHECK.read(text_of("saquery_smir.txt").replace("State...............2", "State...............3"), Context())
    assert "masters is 2, not 1" in two.problems[0]

"""Damaged outputs of ibdiagnet and mlxlink: what is damaged never passes, a changed value gives what it says.

    python tests/test_corrupt_fabric.py        # how many of which damage got which verdict
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from check_samples import Sample, all_samples
from looped import looped

from hpcadmin.catalogue import load_limits
from hpcadmin.check import Context, Limit, NodeView, ParseError, Status, Subject
from hpcadmin.checklib import ibdiagnet_csv, ibdiagnet_log, mlxlink, mlxlink_facts
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.site import Site

Texts = Iterator[tuple[str, str]]
CHECKS = load_checks()
NO_NUMBERS = ("nan", "NaN", "inf", "-7", "0x10", "1,024", "1e999", "", "--")
ENDS: tuple[dict[str, Any], ...] = ({"exit_status": 1}, {"exit_status": 139}, {"exit_status": None},
                                    {"timed_out": True}, {"truncated": True})
FRAMED = (("ibdiagnet", "fabric_ndr"), ("mlxlink", "node_2_ndr"))
PASTED = (("ibdiagnet", "screen_2x"), ("ibdiagnet", "old_1x"), ("mlxlink", "json_roce_400g"),
          ("mlxlink", "text_edr_copper"))


@cache
def sample(check: str, name: str) -> Sample:
    return next(s for s in all_samples(check) if s.path.stem == name)


@cache
def limits() -> tuple[Limit, ...]:
    return tuple(limit for limit in load_limits(Site()) if limit.check == "mlxlink")


def verdict(check: str, name: str, text: str | None = None, **end: Any) -> Status:
    """The worst of a test whose output is `text`."""
    case = sample(check, name)
    nodes = tuple(node.name for node in case.context.nodes) or ("node01",)
    test = PlannedTest("t1", check, Subject(nodes), (), 1)
    try:
        outputs = [replace(output, **end) for output in case.outputs(text)]
        result = TestResult(test, tuple(CHECKS[check].parse(outputs, case.context)))
    except ParseError as exc:
        result = TestResult(test, (), str(exc))
    return max((v.status for v in judge([result], limits())), key=lambda status: status.rank)


def cuts(text: str, step: int = 1) -> Texts:
    lines = text.rstrip("\n").splitlines(keepends=True)
    yield from (("cut at a line", "".join(lines[:n])) for n in range(0, len(lines), step))
    yield from (("cut within a line", text[:n]) for n in range(1, len(text.rstrip()), max(1, len(text) // 300) * step))


def rows(text: str, wanted: str) -> Texts:
    """Of each line that `wanted` fits: dropped, doubled, and at the place of the next one."""
    lines = text.splitlines(keepends=True)
    for n, line in enumerate(lines):
        if re.search(wanted, line):
            yield "row dropped", "".join(lines[:n] + lines[n + 1:])
            yield "row doubled", "".join(lines[:n + 1] + lines[n:])


def numbers(text: str, wanted: str) -> Texts:
    """wanted: a pattern whose group is a number that decides."""
    for match in re.finditer(wanted, text, re.MULTILINE):
        for word in NO_NUMBERS:
            yield f"number {word}", text[:match.start(1)] + word + text[match.end(1):]


STAGES = r"^\|?-I- (?!Stage|You can|LST)[A-Z][\w /]+?  +\d+  +\d+ *$"
OF_BASE = r"^\|(?:0x\w+,\d|\"|NodeGuid|NodeDesc|START_|END_)"
# A port with errors and a manager that stands by: nothing else tells of them.
ALONE = r"(?m)^\|0x\w+,1,2,0.*|^\|0x\w+,0x\w+,1,0x0,0,2.*"
NDR_TEXT = (r'"(?:State|Physical state|Speed|Width|FEC|Loopback Mode|Auto Negotiation|Status Opcode|Recommendation|'
            r'Time Since Last Clear \[Min\]|Effective Physical (?:Errors|BER)|Raw Physical (?:Errors Per Lane|BER))"')


def reframed(text: str) -> str:
    """Counts each part's lines anew: the damage is done, and the frame is whole."""
    lines: list[str] = []
    count = 0
    for line in text.splitlines(keepends=True):
        count = 0 if line.startswith("# begin") else count + line.startswith("|")
        lines.append(re.sub(r"^(# end (?:screen|log|base)) \d+", rf"\1 {count}", line))
    return "".join(lines)


def structural(check: str, name: str) -> Texts:
    text = sample(check, name).text
    framed = (check, name) in FRAMED
    yield from cuts(text)
    if check == "ibdiagnet":
        pattern = STAGES if name != "old_1x" else r"^    [A-Z].*\d+ +\d+ *$"
        yield from rows(text, f"{pattern}|{OF_BASE}|^# (?:begin|end|status)" if framed else pattern)
        if framed:
            yield from ((what, reframed(changed)) for what, changed in rows(text, f"{pattern}|{OF_BASE}")
                        if what != "row dropped" or re.findall(ALONE, text) == re.findall(ALONE, changed))
        yield "column renamed", text.replace("Warnings   Errors", "Warnings   E", 2).replace("Errors Warnings", "E", 2)
        yield "columns swapped", text.replace("Warnings   Errors", "Errors   Warnings", 2).replace(
            "Errors Warnings", "Warnings Errors", 2)
        last = r"^\|?-I- [A-Z][\w /]+?  +\d+  +(\d+) *$" if name != "old_1x" else r"^    [A-Z].*?  (\d+) +\d+ *$"
        yield from numbers(text, last)
        yield "discovery lost", text.replace("nodes (", "nodes (1", 1)
    elif '"Operational Info"' in text:
        yield from rows(text, NDR_TEXT + r'|^\|?\s*[{}],?$|"status"|^# (?:port|end port)')
        yield from numbers(text, r'"(?:Effective Physical|Raw Physical|Symbol) (?:BER|Errors)" *: *"([^"]+)"')
        yield from numbers(text, r'"Width" *: *"(4)x')
    else:
        yield from rows(text, r"^(?:State|Physical state|Speed|Width|FEC|Loopback Mode|Auto Negotiation|Status Opcode|"
                              r"Recommendation|Time Since|Effective Physical|Raw Physical) ?.*:")
        yield from numbers(text, r"^(?:Effective Physical|Raw Physical) (?:BER|Errors) *: (\S+)$")
    yield "joined", text + text
    yield "joined, one failed", text + text[:len(text) // 3]
    yield "empty", ""
    for line in ("Segmentation fault (core dumped)\n", "srun: error: node01: task 0: Exited with exit code 1\n"):
        yield "error line", text + line
        yield "error line", line + text


def passes(check: str, name: str) -> list[str]:
    """Kinds of damage that pass."""
    whole = sample(check, name).text
    return [what for what, text in structural(check, name)
            if text != whole and text.rstrip() != whole.rstrip() and verdict(check, name, text) is Status.PASS]


@pytest.mark.parametrize(("check", "name"), [*FRAMED, *PASTED])
def test_whole_passes(check: str, name: str) -> None:
    assert verdict(check, name) is Status.PASS


@pytest.mark.deep
@pytest.mark.parametrize(("check", "name"), [*FRAMED, *PASTED])
def test_structural_damage_never_passes(check: str, name: str) -> None:
    assert not Counter(passes(check, name))


@pytest.mark.parametrize(("check", "name"), FRAMED)
def test_bad_ends_never_pass(check: str, name: str) -> None:
    assert all(verdict(check, name, **end) is Status.ERROR for end in ENDS)


@pytest.mark.parametrize(("check", "name"), [*FRAMED, *PASTED])
def test_noise_changes_nothing(check: str, name: str) -> None:
    text = sample(check, name).text
    for noisy in (text.replace("\n", "\r\n"), "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines())):
        assert verdict(check, name, noisy) is Status.PASS
    assert verdict(check, name, "lost+found \x00\x07\n" + text) is Status.PASS


@pytest.mark.parametrize(("old", "new", "wanted"), [
    ("-I- Port Counters             0          0", "-I- Port Counters             0          3", Status.FAIL),
    ("-I- Port Counters             0          0", "-I- Port Counters             2          0", Status.WARN),
    ("-I- Port Counters             0          0", "-I- Port Counters             N/A        N/A", Status.WARN),
    ("-I- Routing                   0          0", "-I- Routing                   N/A        N/A", Status.PASS),
    ("-I- Discovery                 0          0", "-I- Discovery                 N/A        N/A", Status.ERROR),
    ("-I- Links Check finished successfully", "-E- Link: a/U1/P1<-->b/U1/P2 - is bad", Status.FAIL),
    ("-I- Links Check finished successfully", "-W- Link: a/U1/P1<-->b/U1/P2 - is odd", Status.WARN)])
def test_what_the_table_says(old: str, new: str, wanted: Status) -> None:
    for name in ("fabric_ndr", "screen_2x"):
        text = sample("ibdiagnet", name).text
        assert verdict("ibdiagnet", name, text.replace(old, new)) is wanted, name


@pytest.mark.parametrize(("old", "new", "wanted"), [
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,10,2,3,3,3584,1024,5,4,3585", Status.FAIL),      # HDR at one end
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,10,1,3,3,3584,2048,5,4,3585", Status.FAIL),      # 1x
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,11,2,3,3,3584,2048,5,4,3585", Status.FAIL),      # LID of another one
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,10,2,3,3,3584,2048,5,2,3585", Status.FAIL),      # INIT
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,10,2,3,3,3584,2048,5,9,3585", Status.ERROR),
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,10,2,3,3,3584,nan,5,4,3585", Status.ERROR),
    ("1,10,2,3,3,3584,2048,5,4,3585", "1,10,2,3,3,3584,2048,5,4", Status.ERROR),
    ('"node01 mlx5_1"', '"node02 mlx5_1"', Status.WARN),                                  # two of one name
    (",14,3,0x", ",14,2,0x", Status.FAIL),                                                # no master
    ("LinkSpeedActv", "LinkSpeedX", Status.ERROR),
    ("|END_LINKS\n", "", Status.ERROR)])
def test_what_the_data_base_says(old: str, new: str, wanted: Status) -> None:
    text = sample("ibdiagnet", "fabric_ndr").text
    assert old in text
    changed = text.replace(old, new, 1)
    if new.count("\n") != old.count("\n"):
        lines = int(re.findall(r"# end base (\d+)", text)[0])
        changed = changed.replace(f"# end base {lines}", f"# end base {lines - 1}")
    assert verdict("ibdiagnet", "fabric_ndr", changed) is wanted


@looped(("old", "new", "wanted"), [
    (r'("Effective Physical BER" *: *)"[^"]+"', r'\1"3E-12"', Status.FAIL),
    (r'("Symbol BER" *: *)"[^"]+"', r'\1"1E-08"', Status.FAIL),
    (r'("Raw Physical BER" *: *)"[^"]+"', r'\1"2E-04"', Status.FAIL),
    (r'("State" *: *)"[^"]+"', r'\1"Polling"', Status.FAIL),
    (r'("Loopback Mode" *: *)"[^"]+"', r'\1"PHY LOCAL Loopback"', Status.FAIL),
    (r'("FEC" *: *)"[^"]+"', r'\1"No FEC"', Status.FAIL),
    (r'("Width" *: *)"4x"', r'\1"1x"', Status.FAIL),
    (r'("Speed" *: *)"IB-NDR"', r'\1"IB-HDR"', Status.FAIL),
    (r'("Speed" *: *)"IB-NDR"', r'\1"IB-XXX"', Status.FAIL),
    (r'("Status Opcode" *: *)"0"', r'\1"15"', Status.FAIL),
    (r'("Time Since Last Clear \[Min\]" *: *)"[^"]+"', r'\1"0.0"', Status.WARN),
    (r'("Auto Negotiation" *: *)"[^"]+"', r'\1"FORCE - 400G"', Status.WARN)])
def test_what_mlxlink_says(old: str, new: str, wanted: Status) -> None:
    text = sample("mlxlink", "node_2_ndr").text
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    assert verdict("mlxlink", "node_2_ndr", changed) is wanted


@pytest.mark.parametrize(("text", "wanted"), [("15E-255", 0.0), ("3E-9", 3e-9), ("1E-15", 1e-15), ("2.5e-13", 2.5e-13)])
def test_bit_error_rates(text: str, wanted: float) -> None:
    assert mlxlink_facts.ber(text, "BER") == wanted


@pytest.mark.parametrize("text", ["", "N/A", "15E-25", "1E-255", "0E-9", "nan", "-1E-9", "5E-", "3E-9x", "1E9", "9E-1"])
def test_what_is_no_bit_error_rate(text: str) -> None:
    with pytest.raises(ParseError):
        mlxlink_facts.ber(text, "BER")


@pytest.mark.parametrize(("speed", "lanes", "gbps"), [("IB-NDR", 4, 400.0), ("IB-HDR", 2, 100.0), ("EDR", 4, 100.0),
                                                      ("400G", 4, 400.0), ("100GbE", 4, 100.0), ("N/A", 4, None)])
def test_rates(speed: str, lanes: int, gbps: float | None) -> None:
    assert mlxlink_facts.rate_of(speed, lanes) == gbps


def test_outputs_that_people_parted_with_a_line() -> None:
    text = sample("mlxlink", "text_edr_copper").text.rstrip("\n")
    told = mlxlink.read(f"===== mlx5_0 =====\n{text}\n\n==== /dev/mst/mt4123_pciconf1 Counters ====\n{text}\n")
    assert [(port.device, port.get("Operational Info", "State"), port.missing) for port in told] == [
        ("mlx5_0", "Active", []), ("mt4123_pciconf1", "Active", [])]


def test_columns_of_both_tables() -> None:
    new = ibdiagnet_log.read(sample("ibdiagnet", "screen_2x").text.replace(
        "Nodes Information         0          0", "Nodes Information         16         2"))
    old = ibdiagnet_log.read(sample("ibdiagnet", "old_1x_errors").text)
    assert [(s.warnings, s.errors) for s in new.stages if s.name == "Nodes Information"] == [(16, 2)]
    assert [(s.warnings, s.errors) for s in old.stages if s.name == "Link State Active Check"] == [(0, 2)]


def test_ignored_are_told_and_not_judged() -> None:
    case = sample("ibdiagnet", "fabric_ignored")
    assert verdict("ibdiagnet", "fabric_ignored") is Status.PASS
    told = {m.name: m.value for m in case.parse()}
    assert told["nodes_information_warnings_ignored"] == 1
    assert told["warnings_node_wrong_fw_ver_ignored"] == 1
    found = CHECKS["ibdiagnet"].parse(case.outputs(), replace(case.context, params={}))
    warned = [m.name for m in found if m.warnings]
    assert warned == ["nodes_information_warnings", "warnings_node_wrong_fw_ver"]


def test_a_node_that_is_not_in_the_fabric() -> None:
    case = sample("ibdiagnet", "fabric_ndr")
    context = replace(case.context, nodes=(*case.context.nodes, NodeView("node05")))
    found = {m.name: m for m in CHECKS["ibdiagnet"].parse(case.outputs(), context)}
    assert (found["nodes_found"].value, found["nodes_found"].expected) == (4, 5)
    assert "node05" in found["nodes_found"].warnings[0]


def test_split_links_are_as_fast_as_both_ends_can() -> None:
    """A port of two lanes at a switch of four: 2x is what both can."""
    base = sample("ibdiagnet", "db_csv").text
    lines = ibdiagnet_csv.sections(base.splitlines())
    header, row = lines["PORTS"].header, next(r for r in lines["PORTS"].rows if r[0].endswith("c000"))
    peer = next(r for r in lines["PORTS"].rows if r[0].endswith("a00000") and r[2] == "1")
    for ports, widths in ((row, "16"), (peer, "19")):
        ports[header.index("LinkWidthActv")] = "16"
        ports[header.index("LinkWidthSup")] = ports[header.index("LinkWidthEn")] = widths
    found = {m.name: m for m in ibdiagnet_csv.measured(ibdiagnet_csv.Fabric(lines), frozenset())}
    assert found["slow_links"].value == 0


def test_options_are_plain_words() -> None:
    check = CHECKS["ibdiagnet"]
    context = Context(nodes=(NodeView("node01"),), tools={"ibdiagnet": "/usr/bin/ibdiagnet"},
                      params={"options": "--pc $(reboot)"})
    with pytest.raises(ParseError):
        check.steps(context)


def main() -> None:
    table: Counter[tuple[str, str, str]] = Counter()
    for check, name in (*FRAMED, *PASTED):
        for what, text in structural(check, name):
            table[check, what, verdict(check, name, text).value] += 1
    for (check, what, status), count in sorted(table.items()):
        sys.stdout.write(f"{check:<10} {what:<20} {status:<9} {count}\n")


if __name__ == "__main__":
    main()

"""ib_links: what lies between the readings, and texts that are not what they seem."""

from __future__ import annotations

from dataclasses import replace

from test_links import CHECK, GOOD, node_of, outcome, parse, text_of, verdicts, worst

from hpcadmin.check import Context, NodeView, Output, Status


def looks_of(text: str) -> tuple[list[str], list[str]]:
    lines = text.split("\n")
    first, second = (n for n, line in enumerate(lines) if line.startswith("read: "))
    return lines[first:second], lines[second:lines.index("# end ib_links")]


def joined(*looks: list[str]) -> str:
    lines = [line for look in looks for line in (f"{look[0].rpartition(' ')[0]} {len(look) - 1}", *look[1:])]
    return "\n".join(["# hpcadmin ib_links 1", "node: node02", *lines, "# end ib_links", ""])


def test_a_port_that_was_not_there_at_first_or_down_in_between() -> None:
    node = node_of("eight_ports")
    first, second = looks_of(GOOD.text)
    text = joined([line for line in first if not line.startswith("mlx5_7/")], second)
    assert verdicts(parse(text, node), node)["steady mlx5_7/1"] == (
        Status.FAIL, "steady no, expected yes; it was not there at a reading before")
    down = joined(first, [line.replace("mlx5_3/ports/1/state:4: ACTIVE", "mlx5_3/ports/1/state:1: DOWN")
                          for line in second])
    reason = verdicts(parse(GOOD.text, node, down), node)["steady mlx5_3/1"][1]
    assert reason.endswith("state was 1: DOWN, now 4: ACTIVE")


def test_a_counter_that_grew_and_was_cleared_before_the_last_reading() -> None:
    node = node_of("eight_ports")
    first, second = looks_of(GOOD.text)
    grown = joined(first, [line.replace("mlx5_3/ports/1/counters/symbol_error:0",
                                        "mlx5_3/ports/1/counters/symbol_error:4000") for line in second])
    assert verdicts(parse(GOOD.text, node, grown), node)["symbol_error mlx5_3/1"][0] is Status.ERROR


def test_infiniband_ports_without_error_counters_or_lids_do_not_pass() -> None:
    node = node_of("eight_ports")
    first, second = looks_of(GOOD.text)
    for part, wanted in (("mlx5_3/ports/1/counters", Status.WARN), ("/lid:", Status.ERROR), ("/sm_lid:", Status.ERROR)):
        assert outcome(joined(*([line for line in look if part not in line] for look in (first, second))),
                       node) is wanted, part
    assert outcome(GOOD.text.replace("4X NDR", "4X QQQ"), node) is Status.WARN
    for rate in (float("nan"), float("inf"), -1.0, 0.0):
        assert outcome(GOOD.text, replace(node, ports=tuple(replace(p, rate_gbps=rate) for p in node.ports)))


def test_texts_of_several_tools_and_parts_of_one_are_not_sound() -> None:
    stat, status, perf = (text_of(f"{name}.txt") for name in ("ibstat_rxe", "ibstatus_rxe", "perfquery"))
    def read(text: str) -> tuple[str, ...]:
        assert CHECK.read is not None
        return CHECK.read(text, Context()).problems

    for text, wanted in (
            (f"{stat}\n{perf}", "texts of ibstat and perfquery in one"), (f"{status}\n{stat}", "ibstatus and ibstat"),
            (stat + "noise\n" * 200_001, "more than 200000 lines"),
            (f"{sys_lines()}\ncat: /sys/class/infiniband/mlx5_1/ports/1/rate: Invalid argument", "cannot be read")):
        assert wanted in "".join(read(text)), wanted
    found = CHECK.parse([Output("mlx5_0/ports/1/counters/symbol_error:0")], Context())
    assert worst(found, NodeView("file")) is Status.WARN


def sys_lines() -> str:
    told = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
    return "\n".join(f"/sys/class/infiniband/mlx5_0/ports/1/{name}:{value}" for name, value in told.items())

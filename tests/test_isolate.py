"""Which node, device or path explains what is bad."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from made_runs import ENTRIES, PINGPONG, bandwidth, names, pair_results

from hpcadmin.check import Layout, Measurement, Scope, Status, Subject, Verdict
from hpcadmin.isolate import explain
from hpcadmin.judge import judge
from hpcadmin.rundata import Finding, Plan, PlannedEntry, PlannedTest

N4, N6 = names(4), names(6)


def pairs(is_bad: Callable[[str, str], bool], nodes: Sequence[str], status: Status = Status.FAIL) -> list[Verdict]:
    made = []
    for i, (a, b) in enumerate(itertools.combinations(nodes, 2)):
        value = 11.9 if is_bad(a, b) else 870.0
        made.append(Verdict(
            "mpi_pingpong", Subject((a, b)), status if is_bad(a, b) else Status.PASS, "slow" if is_bad(a, b) else "",
            f"t{i}", bandwidth(value) if status is Status.FAIL else None, PINGPONG, "limit"))
    return made


def accused(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    return [f.nodes for f in findings]


def test_nothing_bad_needs_no_explanation() -> None:
    assert explain([]) == []
    assert explain(pairs(lambda _a, _b: False, N4)) == []


def test_one_bad_node_of_four_is_named_with_its_numbers_and_its_partners_are_not() -> None:
    [finding] = explain(pairs(lambda a, b: "node03" in (a, b), N4))
    assert finding.nodes == ("node03",)
    assert finding.status is Status.FAIL
    assert len(finding.tests) == 3
    assert finding.text == ("node03: slow to every partner: 3 of 3 pairs at 11.9 MB/s (median of the others 870 MB/s) "
                            "in mpi_pingpong")


def test_pairs_that_cannot_be_measured_name_their_node_too() -> None:
    [finding] = explain(pairs(lambda a, b: "node02" in (a, b), N4, Status.ERROR))
    assert (finding.nodes, finding.status) == (("node02",), Status.ERROR)


def test_unjudged_partners_are_good_enough_to_tell_who_is_bad() -> None:
    verdicts = [v if v.status is Status.ERROR else Verdict(v.check, v.subject, Status.UNJUDGED, test=v.test)
                for v in pairs(lambda a, b: "node02" in (a, b), N4, Status.ERROR)]
    assert accused(explain(verdicts)) == [("node02",)]


@pytest.mark.parametrize("bad", [{"node02", "node05"}, {"node01", "node02", "node03", "node04"}])
def test_several_bad_nodes(bad: set[str]) -> None:
    assert {n for f in explain(pairs(lambda a, b: bool({a, b} & bad), N6)) for n in f.nodes} == bad


def test_a_bad_node_with_one_lucky_pair() -> None:
    def is_bad(a: str, b: str) -> bool:
        return "node05" in (a, b) and "node01" not in (a, b)
    [finding] = explain(pairs(is_bad, names(8)))
    assert finding.nodes == ("node05",)
    assert "6 of 7 pairs" in finding.text


def test_a_bad_path_is_named_as_the_pair() -> None:
    [finding] = explain(pairs(lambda a, b: (a, b) == ("node01", "node04"), N6))
    assert finding.nodes == ("node01", "node04")
    assert "path between them" in finding.text


def test_a_bad_node_and_a_bad_path_are_two_findings() -> None:
    found = explain(pairs(lambda a, b: "node02" in (a, b) or (a, b) == ("node04", "node05"), N6))
    assert accused(found) == [("node02",), ("node04", "node05")]


def test_everything_bad_is_a_common_cause() -> None:
    [finding] = explain(pairs(lambda _a, _b: True, N4))
    assert finding.nodes == N4
    assert "common cause" in finding.text


def test_two_nodes_alone_cannot_be_told_apart() -> None:
    [finding] = explain(pairs(lambda _a, _b: True, names(2)))
    assert finding.nodes == ("node01", "node02")
    assert "cannot be told" in finding.text


def test_of_two_nodes_the_one_that_fails_by_itself_is_named() -> None:
    own = Verdict("node_ready", Subject(("node02",)), Status.FAIL, "clock is 90 s off", test="n2")
    [finding] = explain([own, *pairs(lambda _a, _b: True, names(2))])
    assert finding.nodes == ("node02",)


def test_only_pairs_with_one_node_were_measured() -> None:
    star = [v for v in pairs(lambda _a, _b: True, N4) if "node02" in v.subject.nodes]
    [finding] = explain(star)
    assert finding.nodes == ("node02",)
    assert "no pair without it was measured" in finding.text


def test_many_scattered_pairs_are_one_finding() -> None:
    nodes = names(40)
    partner = dict(zip(nodes[::2], nodes[1::2], strict=True))
    [finding] = explain(pairs(lambda a, b: partner.get(a) == b, nodes))
    assert "no node explains them" in finding.text


def test_peers_and_pairs_are_one_finding() -> None:
    verdicts = judge(pair_results(lambda a, b: 11.9 if "node03" in (a, b) else 870.0, N4), [PINGPONG])
    assert accused(explain(verdicts)) == [("node03",)]
    only_peers = judge(pair_results(lambda a, b: 11.9 if "node03" in (a, b) else 870.0, N4), [])
    [finding] = explain(only_peers)
    assert finding.nodes == ("node03",)
    assert "below the median of 4 nodes" in finding.text


PLAN = Plan("network", N4, (*ENTRIES, PlannedEntry("nccl_allreduce", "NCCL all-reduce", Scope.GROUP)))


def test_a_lost_gpu_explains_the_failure_of_the_group() -> None:
    count = Measurement("gpus", 7, expected=8, subject=Subject(("node02",)))
    verdicts = [
        Verdict("nvidia_smi", Subject(("node02",)), Status.FAIL, "gpus 7, expected 8", "t1", count, basis="expected"),
        Verdict("nvidia_smi", Subject(("node02",), "GPU 5"), Status.FAIL, "gpu missing, expected present", "t1"),
        *(Verdict("nvidia_smi", Subject((n,)), Status.PASS) for n in ("node01", "node03", "node04")),
        Verdict("nccl_allreduce", Subject(N4), Status.ERROR, "exit status 1", "t9"),
    ]
    [finding] = explain(verdicts, PLAN)
    assert (finding.nodes, finding.device) == (("node02",), "GPU 5")
    assert finding.text.startswith("node02 GPU 5: nvidia_smi: gpu missing")
    assert "explains nccl_allreduce ERROR" in finding.text


def test_a_group_that_nothing_explains_names_all_as_candidates() -> None:
    [finding] = explain([Verdict("nccl_allreduce", Subject(N4), Status.FAIL, "busbw 3 GB/s", "t9")], PLAN)
    assert finding.nodes == N4
    assert "one of these nodes" in finding.text


def test_a_group_whose_output_names_a_node() -> None:
    error = Verdict("nccl_allreduce", Subject(N4), Status.ERROR, "node04: Test NCCL failure common.cu:958", "t9")
    [finding] = explain([error], PLAN)
    assert finding.nodes == ("node04",)


def test_a_group_of_two_is_no_pair_when_the_plan_says_so() -> None:
    [finding] = explain([Verdict("nccl_allreduce", Subject(names(2)), Status.FAIL, "busbw 3 GB/s", "t9")], PLAN)
    assert "one of these nodes" in finding.text


def growing(*bad: int, sizes: Sequence[int] = (2, 4, 8), device: str = "") -> list[Verdict]:
    """all_reduce over the first 2, 4 and 8 nodes, bad in the sizes that are named."""
    return [Verdict("nccl_allreduce", Subject(names(8)[:size], device), Status.FAIL if size in bad else Status.PASS,
                    "busbw 3 GB/s" if size in bad else "", f"t{size}", basis="limit") for size in sizes]


def test_of_growing_groups_the_smallest_bad_one_without_what_is_good_is_suspected() -> None:
    [finding] = explain(growing(4, 8), PLAN)
    assert finding.nodes == names(4)[2:]
    assert finding.tests == ("t4", "t8")
    assert "node[01-02] without them good" in finding.text
    assert "also in the groups of 8 nodes" in finding.text


def test_growing_groups_that_are_all_bad_suspect_the_smallest() -> None:
    [finding] = explain(growing(2, 4, 8), PLAN)
    assert finding.nodes == names(2)


def test_groups_of_one_rail_do_not_clear_nodes_of_another() -> None:
    found = explain([*growing(device="rail 1"), *growing(8, device="rail 2")], PLAN)
    assert [f.nodes for f in found] == [names(8)[4:]]
    assert "nccl_allreduce rail 2" in found[0].text


def test_a_good_group_that_is_larger_clears_nobody_of_a_smaller_bad_one() -> None:
    [finding] = explain(growing(4), PLAN)
    assert finding.nodes == names(4)[2:]


def by_rail(is_bad: Callable[[str, int], bool], rails: int = 4) -> list[Verdict]:
    made = []
    for rail in range(rails):
        for i, (a, b) in enumerate(itertools.combinations(N4, 2)):
            bad = is_bad(a, rail) or is_bad(b, rail)
            made.append(Verdict("ib_write_bw", Subject((a, b), f"rail {rail}"), Status.FAIL if bad else Status.PASS,
                                "slow" if bad else "", f"r{rail}p{i}", bandwidth(11.9 if bad else 392.0), PINGPONG,
                                "limit"))
    return made


def test_a_node_that_is_bad_on_one_rail_is_named_with_the_rail() -> None:
    [finding] = explain(by_rail(lambda node, rail: (node, rail) == ("node03", 2)))
    assert (finding.nodes, finding.device) == (("node03",), "rail 2")
    assert finding.text.startswith("node03 rail 2: slow to every partner: 3 of 3 pairs")
    assert "in ib_write_bw rail 2" in finding.text


def test_a_node_that_is_bad_on_every_rail_is_one_finding() -> None:
    [finding] = explain(by_rail(lambda node, _rail: node == "node03"))
    assert (finding.nodes, finding.device) == (("node03",), "")
    assert "1 more like it" in finding.text
    assert len(finding.tests) == 12


def test_a_rail_that_is_bad_everywhere_accuses_no_node() -> None:
    [finding] = explain(by_rail(lambda _node, rail: rail == 1))
    assert finding.nodes == N4
    assert "ib_write_bw rail 1: all 6 pairs bad" in finding.text


def test_pairs_of_a_check_of_groups_are_pairs_where_the_plan_lays_them_out_so() -> None:
    found = [Verdict("nccl_allreduce", Subject(pair), Status.FAIL if "node02" in pair else Status.PASS,
                     "busbw 3 GB/s" if "node02" in pair else "", f"t{i}")
             for i, pair in enumerate(itertools.combinations(N4, 2))]
    tests = tuple(PlannedTest(v.test, v.check, v.subject, (), 1, layout=Layout.PAIRS) for v in found)
    [finding] = explain(found, replace(PLAN, tests=tests))
    assert finding.nodes == ("node02",)


def test_groups_that_a_bad_node_explains_are_with_that_node() -> None:
    verdicts = [*growing(4, 8), Verdict("nvidia_smi", Subject(("node03",)), Status.FAIL, "7 GPUs, expected 8", "t0")]
    [finding] = explain(verdicts, PLAN)
    assert finding.nodes == ("node03",)
    assert finding.tests == ("t0", "t4", "t8")


def test_a_node_that_explains_a_larger_group_does_not_explain_the_smaller_one() -> None:
    verdicts = [*growing(4, 8), Verdict("nvidia_smi", Subject(("node07",)), Status.FAIL, "7 GPUs, expected 8", "t0")]
    assert sorted(accused(explain(verdicts, PLAN))) == [("node03", "node04"), ("node07",)]


def test_bad_with_odd_numbers_of_nodes_only_says_what_a_network_of_rails_needs() -> None:
    [finding] = explain(growing(7, sizes=(2, 4, 7)), PLAN)
    assert "NCCL_CROSS_NIC=0" in finding.text
    assert "NCCL_CROSS_NIC" not in explain(growing(8, sizes=(2, 4, 8)), PLAN)[0].text
    assert "NCCL_CROSS_NIC" not in explain(growing(3, 7, sizes=(3, 5, 7)), PLAN)[0].text


def test_a_check_that_is_bad_on_every_node_accuses_none_of_them_alone() -> None:
    verdicts = [Verdict("node_ready", Subject((n,)), Status.FAIL, f"shared directory is not writable on {n}", f"t{n}")
                for n in N4]
    [finding] = explain(verdicts)
    assert finding.nodes == N4
    assert "common cause" in finding.text


def test_every_bad_verdict_is_in_a_finding() -> None:
    verdicts = [*pairs(lambda a, b: "node02" in (a, b) or (a, b) == ("node04", "node05"), N6),
                Verdict("mpi_hello", Subject(N6), Status.ERROR, "timed out", "g"),
                Verdict("site", Subject(), Status.ERROR, "no such file", "c"),
                Verdict("node_ready", Subject(("node06",)), Status.FAIL, "clock", "n")]
    explained = {t for f in explain(verdicts) for t in f.tests}
    assert {v.test for v in verdicts if v.status in (Status.FAIL, Status.ERROR)} == explained


@pytest.mark.deep
def test_a_thousand_nodes_take_no_time() -> None:
    nodes = names(400)
    verdicts = pairs(lambda a, b: "node17" in (a, b) or (a, b) == ("node04", "node05"), nodes)
    start = time.process_time()
    found = explain(verdicts)
    assert accused(found) == [("node17",), ("node04", "node05")]
    assert time.process_time() - start < 3, f"{len(verdicts)} pairs"


def test_what_a_node_says_before_and_after_the_load_is_told_once_and_before_its_pairs() -> None:
    own = [Verdict("ib_links", Subject(("n2",), "mlx5_3/1"), Status.FAIL, "state DOWN", test=f"t{n}") for n in (1, 9)]
    pair = Verdict("ib_write_bw", Subject(("n1", "n2"), "mlx5_3/1"), Status.ERROR, "never ended", test="t5")
    good = Verdict("ib_write_bw", Subject(("n3", "n4"), "mlx5_3/1"), Status.PASS, test="t6")
    found = explain([*own, pair, good])
    assert [f.text for f in found] == [
        "n2 mlx5_3/1: ib_links: state DOWN; bad with n1 in ib_write_bw mlx5_3/1: never ended"]
    assert found[0].tests == ("t1", "t9", "t5")


def test_one_reason_on_every_rail_is_one_finding() -> None:
    pairs = list(itertools.combinations(("n1", "n2", "n3", "n4"), 2))
    bad = [Verdict("ib_write_bw", Subject(pair, f"rail {rail}"), Status.ERROR, f"no option '--use_cuda={rail}'",
                   test=f"t{rail}{n}") for rail in range(8) for n, pair in enumerate(pairs)]
    found = explain(bad)
    assert [f.text for f in found] == [
        "all 4 nodes: ib_write_bw on 8 rails: all 48 pairs bad (no option '--use_cuda=0'); a common cause is likely, "
        "no single node can be told apart"]
    assert set(found[0].tests) == {v.test for v in bad}
    one = explain(bad[:6])
    assert one[0].text.startswith("all 4 nodes: ib_write_bw rail 0: all 6 pairs bad (no option")

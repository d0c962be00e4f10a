"""Nodes among their equals, devices and ports among those of their node, and points of a curve that have limits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import LATENCY, PINGPONG, bandwidth, inventory, names, pair_results, repeated

from hpcadmin.check import Direction, Limit, Measurement, Status, Subject, Verdict
from hpcadmin.judge import doubtful, judge
from hpcadmin.model import Inventory, Nic, Node
from hpcadmin.rundata import PlannedTest, TestResult

N8 = names(8)
GIB = 1 << 30


def alone(values: Mapping[str, float]) -> list[TestResult]:
    """A value of each node by itself."""
    return [TestResult(PlannedTest(f"n{i:04d}", "nccl_allreduce", Subject((n,)), (), 2),
                       (Measurement("busbw", v, "GB/s", GIB, ranks=8, nodes=1),))
            for i, (n, v) in enumerate(values.items())]


def devices(values: Sequence[float], node: str = "node01", unit: str = "GB/s", kind: str = "GPU ") -> TestResult:
    """A value of each GPU of a node."""
    return TestResult(PlannedTest(f"t-{node}", "host_device_copy", Subject((node,)), (), 2), tuple(
        Measurement("to_device", v, unit, GIB, Direction.ONE_WAY, Subject((node,), f"{kind}{i}"))
        for i, v in enumerate(values)))


def peers(verdicts: Sequence[Verdict]) -> dict[str, Status]:
    return {str(v.subject): v.status for v in verdicts if v.basis == "peers"}


def failed(results: Sequence[TestResult], inv: Inventory | None = None) -> list[str]:
    return sorted(s for s, status in peers(judge(results, [], inv)).items() if status is Status.FAIL)


# --- nodes

def test_one_slow_node_and_two_slow_of_eight() -> None:
    good = dict.fromkeys(N8, 470.0)
    assert failed(alone(good)) == []
    assert failed(alone({**good, "node03": 235.0})) == ["node03"]
    assert failed(alone({**good, "node03": 235.0, "node07": 240.0})) == ["node03", "node07"]
    slow = {**good, **dict.fromkeys(N8[:3], 235.0)}
    assert failed(alone(slow)) == list(N8[:3])


def test_a_uniformly_slow_cluster_is_not_for_peers_but_for_limits() -> None:
    results = alone(dict.fromkeys(N8, 120.0))
    assert failed(results) == []
    limit = Limit("nccl_allreduce", "busbw", "GB/s", min=460.0, size_bytes=GIB, source="here")
    assert {v.status for v in judge(results, [limit])} == {Status.FAIL}


def test_lower_is_better_for_times() -> None:
    times = [TestResult(PlannedTest(f"t{i}", "osu_allreduce", Subject((n,)), (), 2),
                        (Measurement("avg_latency", 90.0 if n == "node03" else 20.0, "us", 8, ranks=8, nodes=1),))
             for i, n in enumerate(N8)]
    [verdict] = [v for v in judge(times, []) if v.basis == "peers"]
    assert str(verdict.subject) == "node03"
    assert "350% above the median of 8 nodes (20)" in verdict.reason


def test_where_the_healthy_differ_much_the_distance_must_be_larger() -> None:
    wide = dict(zip(N8, (300.0, 340.0, 380.0, 420.0, 460.0, 500.0, 540.0, 580.0), strict=True))
    assert failed(alone(wide)) == []                                # 32 % below the median, and nothing odd here
    assert failed(alone({**wide, "node01": 20.0})) == ["node01"]
    close = dict(zip(N8, (470.0, 471.0, 472.0, 473.0, 474.0, 475.0, 476.0, 380.0), strict=True))
    assert failed(alone(close)) == []                               # 19 % below
    assert failed(alone({**close, "node08": 370.0})) == ["node08"]


CONDITIONS: list[dict[str, object]] = [
    {"transport": "TCP"}, {"ranks": 4}, {"nodes": 2}, {"size_bytes": 1 << 20}, {"unit": "MB/s"}, {"mode": "in-place"},
    {"direction": Direction.BOTH}, {"rail": "mlx5_1"}, {"binding": "GPU memory"}, {"pairs_at_once": 4},
    {"name": "algbw"}]


@pytest.mark.parametrize("change", CONDITIONS, ids=lambda c: next(iter(c)))
def test_values_of_other_conditions_are_not_compared(change: dict[str, object]) -> None:
    results = alone({**dict.fromkeys(N8, 470.0), "node03": 100.0})
    assert failed(results) == ["node03"]
    other = [replace(r, measurements=tuple(replace(m, **change) for m in r.measurements))  # type: ignore[arg-type]
             if r.test.subject.nodes == ("node03",) else r for r in results]
    assert failed(other) == []


def test_other_checks_and_other_hardware_are_not_compared() -> None:
    results = alone({**dict.fromkeys(N8, 470.0), "node03": 100.0})
    assert failed([replace(r, test=replace(r.test, check="nccl_alltoall")) if r.test.subject.nodes == ("node03",) else r
                   for r in results]) == []
    same = inventory(N8, gpus=8)
    assert failed(results, same) == ["node03"]
    other = replace(same.nodes[2], gpus=tuple(replace(g, model="NVIDIA A100-SXM4-80GB") for g in same.nodes[2].gpus))
    assert failed(results, replace(same, nodes=(*same.nodes[:2], other, *same.nodes[3:]))) == []


def test_a_node_with_fewer_gpus_is_still_a_peer() -> None:
    results = alone({**dict.fromkeys(N8, 470.0), "node03": 100.0})
    same = inventory(N8, gpus=8)
    lost = replace(same.nodes[2], gpus=same.nodes[2].gpus[:7])
    assert failed(results, replace(same, nodes=(*same.nodes[:2], lost, *same.nodes[3:]))) == ["node03"]


# --- devices and ports of one node

def test_a_gpu_among_those_of_its_node() -> None:
    assert failed([devices([55.0] * 8)]) == []
    assert failed([devices([55.0] * 5 + [26.0] + [55.0] * 2)]) == ["node01 GPU 5"]
    [verdict] = [v for v in judge([devices([55.0] * 5 + [26.0] + [55.0] * 2)], []) if v.basis == "peers"]
    assert "53% below the median of 8 GPUs of node01 (55)" in verdict.reason
    assert failed([devices([55.0, 26.0, 55.0])]) == []                      # of three nobody can say
    assert failed([devices([90.0] + [20.0] * 7, unit="us")]) == ["node01 GPU 0"]
    assert failed([devices([55.0] * 8), devices([26.0] + [55.0] * 7, "node02")]) == ["node02 GPU 0"]
    every = [devices([55.0] * 8, n) for n in N8[:7]] + [devices([26.0] * 8, "node08")]
    assert failed(every) == [f"node08 GPU {i}" for i in range(8)]           # with more nodes: among all of them


def test_a_device_that_recovers_is_no_failure() -> None:
    first = devices([55.0] * 5 + [26.0] + [55.0] * 2)
    good = devices([55.0] * 8)
    again = replace(good, test=replace(first.test, id="t2", repeats=first.test.id, attempt=2, alone=True))
    assert peers(judge([first, again], [])) == {"node01 GPU 5": Status.PASS}
    bad = replace(first, test=again.test)
    [verdict] = [v for v in judge([first, bad], []) if v.basis == "peers"]
    assert (verdict.status, verdict.measurement and verdict.measurement.value) == (Status.FAIL, 26.0)
    assert verdict.reason.endswith("again 26")
    assert doubtful([first], judge([first], [])) == ["t-node01"]


def ports(slow: str = "", rates: Mapping[str, float] = {}) -> tuple[list[TestResult], Inventory]:
    rails = [f"mlx5_{i}" for i in range(8)]
    nics = tuple(Nic(r, r, 1, "", "InfiniBand", rate_gbps=rates.get(r, 400.0), rate_text="") for r in rails)
    pair = Subject(("node01", "node02"))
    results = [TestResult(PlannedTest(f"t{r}", "ib_write_bw", pair, (), 2, pairs_at_once=1), (Measurement(
        "bandwidth", rates.get(r, 400.0) * (0.5 if r == slow else 0.98), "Gb/s", 65536, Direction.ONE_WAY, pair, 2, 2,
        1, rail=r),)) for r in rails]
    return results, Inventory(tuple(Node(n, n, nics=nics) for n in pair.nodes))


def test_a_port_among_those_of_its_pair() -> None:
    results, inv = ports("mlx5_6")
    assert failed(results, inv) == ["node01 - node02 mlx5_6"]
    assert failed(results) == []                                            # rates unknown: compared with none
    results, inv = ports()
    assert failed(results, inv) == []
    results, inv = ports(rates={"mlx5_7": 200.0})                           # a slower port is not an odd one
    assert failed(results, inv) == []


# --- order, broken values, sizes

@settings(deadline=None, max_examples=25)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_results_changes_nothing(rng: random.Random) -> None:
    values = {n: rng.choice([470.0, 471.0, 300.0, 0.0, float("nan")]) for n in N8}
    results = [*alone(values), *pair_results(lambda _a, _b: rng.choice([870.0, 870.0, 11.0]), N8),
               devices([rng.choice([55.0, 20.0]) for _ in range(8)]), *ports("mlx5_3")[0]]
    chosen = rng.sample(results, 5)
    results += [repeated(r, rng.choice([12.0, 900.0]), attempt=2, alone=True) for r in chosen]
    inv = inventory(N8, gpus=8)
    shuffled = rng.sample(results, len(results))

    def told(found: Sequence[Verdict]) -> Counter[str]:
        return Counter(repr(v) for v in found)

    assert told(judge(results, [PINGPONG, LATENCY], inv)) == told(judge(shuffled, [PINGPONG, LATENCY], inv))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 0.0, -5.0, "470", None])
def test_broken_values_have_no_peers_and_move_no_median(broken: object) -> None:
    values = {**dict.fromkeys(N8, 470.0), "node03": 100.0, "node05": broken}
    verdicts = judge(alone(values), [])  # type: ignore[arg-type]
    assert peers(verdicts) == {"node03": Status.FAIL}
    assert [v.status for v in verdicts if v.subject.nodes == ("node05",)] == [Status.ERROR]


def curve(values: Mapping[int, float], name: str = "busbw", unit: str = "GB/s", **more: object) -> TestResult:
    """Only the largest (of a time: the smallest) size is the key."""
    key = min(values) if unit == "us" else max(values)
    return TestResult(PlannedTest("t1", "nccl_allreduce", Subject(("node01",)), (), 2), tuple(
        Measurement(name, v, unit, size, ranks=4, nodes=1, key=size == key, **more)  # type: ignore[arg-type]
        for size, v in values.items()))


AT_GIB = Limit("nccl_allreduce", "busbw", "GB/s", min=150.0, size_bytes=GIB, source="here")


@pytest.mark.parametrize(("values", "expected"), [
    ({GIB: 160.0, 8 * GIB: 170.0}, {(GIB, Status.PASS)}),
    ({GIB: 140.0, 8 * GIB: 170.0}, {(GIB, Status.FAIL)}),
    ({GIB: 160.0, 8 * GIB: 100.0}, {(GIB, Status.PASS), (8 * GIB, Status.UNJUDGED)}),    # it should not have fallen
    ({GIB >> 1: 160.0, GIB >> 2: 150.0}, {(GIB >> 1, Status.UNJUDGED)}),                 # that size is not there
    ({GIB: 160.0}, {(GIB, Status.PASS)}),
    ({1 << 20: 160.0, GIB: 120.0, 8 * GIB: 170.0}, {(GIB, Status.FAIL)}),
])
def test_a_limit_judges_its_size_wherever_the_curve_has_it(values: dict[int, float],
                                                           expected: set[tuple[int, Status]]) -> None:
    found = judge([curve(values)], [AT_GIB])
    assert {(v.measurement.size_bytes, v.status) for v in found if v.measurement} == expected
    assert len(found) == len(expected)


def test_several_limits_of_a_curve_judge_each_its_point() -> None:
    limits = [AT_GIB, replace(AT_GIB, size_bytes=8 * GIB, min=200.0), replace(AT_GIB, size_bytes=1 << 20, min=1.0)]
    found = judge([curve({1 << 20: 2.0, GIB: 160.0, 8 * GIB: 170.0})], limits)
    assert sorted((v.measurement.size_bytes, v.status.value) for v in found if v.measurement) == [
        (1 << 20, "PASS"), (GIB, "PASS"), (8 * GIB, "FAIL")]


def test_a_limit_without_a_size_judges_the_key_alone() -> None:
    limit = Limit("nccl_allreduce", "time", "us", max=100.0, source="here")
    found = judge([curve({8: 20.0, 1 << 20: 400.0}, "time", "us")], [limit])
    assert [v.status for v in found] == [Status.PASS]


def test_a_time_vouches_for_smaller_messages_only() -> None:
    limit = Limit("nccl_allreduce", "time", "us", max=100.0, size_bytes=1024, source="here")
    for at_8, expected in ((20.0, [Status.PASS]), (120.0, [Status.UNJUDGED, Status.PASS])):
        assert [v.status for v in judge([curve({8: at_8, 1024: 90.0}, "time", "us")], [limit])] == expected


def test_points_of_another_mode_or_run_are_not_judged() -> None:
    result = curve({GIB: 160.0, 8 * GIB: 170.0}, mode="out-of-place")
    other = replace(result.measurements[0], value=10.0, mode="in-place")
    found = judge([replace(result, measurements=(*result.measurements, other))], [AT_GIB])
    assert [v.status for v in found] == [Status.PASS]


def test_a_failing_point_is_measured_again_and_compared_with_the_same_point() -> None:
    first = curve({GIB: 140.0, 8 * GIB: 170.0})
    assert doubtful([first], judge([first], [AT_GIB])) == ["t1"]
    again = replace(curve({GIB: 165.0, 8 * GIB: 170.0}), test=replace(first.test, id="t2", repeats="t1", attempt=2))
    [verdict] = judge([first, again], [AT_GIB])
    assert (verdict.status, verdict.reason) == (Status.PASS, "first 140 GB/s, again 165")


def test_warnings_of_a_value_that_needs_no_verdict_are_not_lost() -> None:
    result = curve({GIB: 160.0, 8 * GIB: 170.0}, warnings=("2 rows are missing",))
    found = judge([result], [AT_GIB])
    assert Status.PASS not in {v.status for v in found}
    assert all("2 rows are missing" in v.reason for v in found)


def test_every_limit_of_the_catalogue_can_judge_a_point_of_a_curve() -> None:
    from hpcadmin.catalogue import load_limits
    from hpcadmin.site import Site
    for limit in load_limits(Site()):
        if limit.size_bytes is None or limit.min is None:
            continue
        point = Measurement(limit.measurement, limit.min, limit.unit, limit.size_bytes, limit.direction,
                            ranks=limit.ranks, nodes=limit.nodes, transport=limit.transport, key=False,
                            binding="GPU memory" if limit.memory == "GPU" else "")
        key = replace(point, size_bytes=limit.size_bytes * 2, key=True)
        test = PlannedTest("t1", limit.check, Subject(("node01", "node02")), (), 2)
        found = judge([TestResult(test, (point, key), simulated="any" if limit.simulated else "")],
                      [replace(limit, hardware="")])
        assert [v.status for v in found] == [Status.PASS], limit




def pairs(*found: tuple[str, str, float]) -> list[TestResult]:
    return [TestResult(PlannedTest(f"t{i}", "mpi_pingpong", Subject((a, b)), (), 2), (bandwidth(v),))
            for i, (a, b, v) in enumerate(found)]


def test_two_nodes_that_were_measured_with_each_other_only_are_accused_together() -> None:
    four = pairs(("a", "b", 870.0), ("c", "d", 860.0), ("e", "f", 400.0), ("g", "h", 880.0))
    assert failed(four) == ["e - f"]
    assert failed([*four, *pairs(("a", "e", 865.0))]) == ["f"]
    assert failed(four[:3]) == []                                            # three pairs say nothing
    assert failed(pairs(("a", "b", 12.9), ("a", "c", 12.8), ("a", "d", 9.0))) == []
    again = [repeated(r, 870.0, attempt=2, alone=True) for r in four]
    assert peers(judge([*four, *again], [])) == {"e - f": Status.PASS}


def test_good_pairs_beside_many_others_speak_for_a_node_in_a_round_of_few() -> None:
    """In waves a node's rounds differ in size; more pairs at one time are never easier."""
    def at_once(count: int, *found: tuple[str, str, float]) -> list[TestResult]:
        return [replace(r, test=replace(r.test, id=f"{r.test.id}-{count}", pairs_at_once=count),
                        measurements=tuple(replace(m, pairs_at_once=count) for m in r.measurements))
                for r in pairs(*found)]
    found = (("a", "b", 870.0), ("a", "d", 860.0), ("c", "d", 200.0), ("b", "d", 880.0))
    few = at_once(1, *found)
    assert failed(few) == ["c"]
    assert failed([*few, *at_once(2, ("a", "c", 865.0))]) == []
    assert failed([*few, *at_once(2, ("a", "c", 210.0))]) == ["c"]
    assert failed([*at_once(3, *found), *at_once(2, ("a", "c", 865.0))]) == ["c"]       # fewer at one time are easier


def test_a_node_that_met_slow_ones_only_is_accused_of_nothing() -> None:
    slow = pairs(("a", "b", 870.0), ("a", "s", 90.0), ("b", "s", 90.0), ("c", "d", 860.0), ("c", "s", 91.0),
                 ("a", "d", 880.0))
    assert failed([*slow, *pairs(("s", "x", 90.0))]) == ["s"]               # x was lost after that, say
    assert failed([*slow, *pairs(("s", "x", 90.0), ("x", "y", 89.0))]) == ["s", "x", "y"]   # y is not explained
    ring = pairs(("x", "y", 90.0), ("y", "z", 90.0), ("x", "z", 90.0))
    good = pairs(*((p, q, 870.0) for p, q in ("ab", "cd", "ac", "bd", "ef", "eg", "fg")))
    assert failed([*good, *ring]) == ["x", "y", "z"]


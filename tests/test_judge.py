"""Measurements, limits, expected values, peers and repetitions to verdicts."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import LATENCY, PINGPONG, bandwidth, inventory, names, pair_results, pair_test, repeated

from hpcadmin.check import Limit, Measurement, Status, Step, Subject, Verdict
from hpcadmin.isolate import explain
from hpcadmin.judge import doubtful, judge
from hpcadmin.model import Inventory, Node
from hpcadmin.rundata import PlannedTest, TestResult

N4 = names(4)


def one(*measurements: Measurement, **more: object) -> TestResult:
    subject = Subject(("node01", "node02"))
    return TestResult(PlannedTest("t0001", "mpi_pingpong", subject, (Step(("true",)),), 2), measurements,
                      **more)  # type: ignore[arg-type]


def statuses(verdicts: Sequence[Verdict]) -> list[Status]:
    return [v.status for v in verdicts]


# --- one value

@pytest.mark.parametrize(("value", "status"), [
    (870.0, Status.PASS), (100, Status.PASS), (99.9, Status.FAIL), (11.9, Status.FAIL),
    (0.0, Status.ERROR), (-870.0, Status.ERROR), (float("nan"), Status.ERROR), (float("inf"), Status.ERROR),
    (None, Status.ERROR), ("870", Status.ERROR), (True, Status.ERROR),
])
def test_a_value_against_its_limit(value: object, status: Status) -> None:
    [verdict] = judge([one(bandwidth(value))], [PINGPONG])
    assert verdict.status is status
    assert bool(verdict.reason) == (status is not Status.PASS)


def test_the_limit_and_its_source_are_kept_in_the_verdict() -> None:
    [verdict] = judge([one(bandwidth(870.0))], [PINGPONG])
    assert (verdict.limit, verdict.basis) == (PINGPONG, "limit")


def test_tolerance_widens_the_bound_on_its_own_side_only() -> None:
    low = replace(PINGPONG, min=1000.0, tolerance=0.05)
    assert statuses(judge([one(bandwidth(951.0))], [low])) == [Status.PASS]
    assert statuses(judge([one(bandwidth(949.0))], [low])) == [Status.FAIL]
    high = replace(LATENCY, max=10.0, tolerance=0.1)
    assert statuses(judge([one(Measurement("latency", 10.9, "us"))], [high])) == [Status.PASS]
    assert statuses(judge([one(Measurement("latency", 11.1, "us"))], [high])) == [Status.FAIL]


@pytest.mark.parametrize("measurement", [
    bandwidth(870.0, unit="GB/s"), bandwidth(870.0, unit=""), replace(bandwidth(870.0), size_bytes=1024),
    replace(bandwidth(870.0), name="other"),
])
def test_without_a_fitting_limit_a_value_is_unjudged_never_compared(measurement: Measurement) -> None:
    assert statuses(judge([one(measurement)], [PINGPONG])) == [Status.UNJUDGED]


@pytest.mark.parametrize("broken", [
    replace(PINGPONG, min=None), replace(PINGPONG, min=float("nan")), replace(PINGPONG, unit="GB/s")])
def test_a_broken_limit_judges_nothing(broken: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcadmin.catalogue.for_measurement", lambda *_: broken)
    assert statuses(judge([one(bandwidth(870.0))], [broken])) == [Status.UNJUDGED]


@pytest.mark.parametrize(("value", "expected", "status"), [
    (8, 8, Status.PASS), (8.0, 8, Status.PASS), (7, 8, Status.FAIL), ("8", 8, Status.ERROR),
    (float("nan"), 8, Status.ERROR),
    ("idle", "idle", Status.PASS), ("down", "idle", Status.FAIL), (8, "8", Status.ERROR), (True, 1, Status.ERROR),
    (float("nan"), float("nan"), Status.ERROR), (0, 0, Status.PASS),
])
def test_expected_is_equality_of_like_with_like(value: object, expected: object, status: Status) -> None:
    m = Measurement("gpus", value, expected=expected)  # type: ignore[arg-type]
    [verdict] = judge([one(m)], [])
    assert (verdict.status, verdict.basis) == (status, "expected")


def test_a_test_of_ten_thousand_nodes_takes_no_time_by_their_square() -> None:
    nodes = tuple(f"node{i:05d}" for i in range(10_000))
    ranks = tuple(Measurement("ranks", 2, subject=Subject((n,)), expected=2) for n in nodes)
    result = TestResult(PlannedTest("t0001", "mpi_hello", Subject(nodes), (), 2), ranks)
    begin = time.process_time()
    assert len(judge([result], [])) == 10_000
    assert time.process_time() - begin < 5               # by the square it takes minutes


def test_error_not_run_and_nothing_measured() -> None:
    assert statuses(judge([one(error="timed out after 60 s")], [PINGPONG])) == [Status.ERROR]
    assert statuses(judge([one(not_run="node02 is drained")], [PINGPONG])) == [Status.NOT_RUN]
    [verdict] = judge([one(replace(bandwidth(870.0), key=False))], [PINGPONG])
    assert (verdict.status, verdict.reason) == (Status.ERROR, "nothing was measured")
    assert statuses(judge([one()], [PINGPONG])) == [Status.ERROR]


def test_an_error_beside_good_values_is_not_lost() -> None:
    assert set(statuses(judge([one(bandwidth(870.0), error="rank 1 was killed")], [PINGPONG]))) == {
        Status.ERROR, Status.PASS}


def test_other_values_than_key_ones_get_no_verdict_but_their_defects_count() -> None:
    side = replace(bandwidth(1.0), size_bytes=1, key=False)
    assert statuses(judge([one(bandwidth(870.0), side)], [PINGPONG])) == [Status.PASS]
    odd, broken = replace(side, warnings=("not validated",)), replace(side, value=float("nan"))
    assert statuses(judge([one(bandwidth(870.0), odd)], [PINGPONG])) == [Status.WARN]
    assert Status.ERROR in statuses(judge([one(bandwidth(870.0), broken)], [PINGPONG]))


def test_warnings_turn_pass_into_warn_and_leave_fail() -> None:
    assert statuses(judge([one(bandwidth(870.0, warnings=("clocks were low",)))], [PINGPONG])) == [Status.WARN]
    [verdict] = judge([one(bandwidth(8.0, warnings=("clocks were low",)))], [PINGPONG])
    assert verdict.status is Status.FAIL
    assert "clocks were low" in verdict.reason


def test_a_value_from_another_node_is_an_error() -> None:
    strange = bandwidth(870.0, subject=Subject(("node01", "node09")))
    assert statuses(judge([one(strange)], [PINGPONG])) == [Status.ERROR]


def test_a_transfer_without_time_is_an_error_a_clock_without_offset_is_not() -> None:
    limits = [LATENCY, Limit("mpi_pingpong", "clock_offset", unit="s", max=1.0)]
    assert statuses(judge([one(Measurement("latency", 0.0, "us"))], limits)) == [Status.ERROR]
    offset = Measurement("clock_offset", 0.0, "s", subject=Subject(("node01",)))
    assert statuses(judge([one(offset)], limits)) == [Status.PASS]


def test_simulated_values_are_judged_by_simulated_limits_only() -> None:
    inv = inventory(N4, simulated="8xH100")
    assert statuses(judge([one(bandwidth(870.0))], [PINGPONG], inv)) == [Status.UNJUDGED]
    [verdict] = judge([one(bandwidth(870.0))], [replace(PINGPONG, simulated=True)], inv)
    assert (verdict.status, verdict.simulated) == (Status.PASS, "8xH100")
    assert statuses(judge([one(bandwidth(870.0))], [replace(PINGPONG, simulated=True)])) == [Status.UNJUDGED]


def test_limits_of_hardware_need_it_on_every_node_of_the_value() -> None:
    limit = replace(PINGPONG, hardware="*H100*")
    both = inventory(N4, gpus=8)
    assert statuses(judge([one(bandwidth(870.0))], [limit], both)) == [Status.PASS]
    mixed = Inventory(nodes=(both.nodes[0], Node("node02")))
    assert statuses(judge([one(bandwidth(870.0))], [limit], mixed)) == [Status.UNJUDGED]
    assert statuses(judge([one(bandwidth(870.0))], [limit])) == [Status.UNJUDGED]


# --- peers

def bad(node: str, slow: float = 11.9, good: Callable[[], float] = lambda: 870.0) -> Callable[[str, str], float]:
    return lambda a, b: slow if node in (a, b) else good()


def accused(verdicts: Sequence[Verdict]) -> list[str]:
    return [v.subject.nodes[0] for v in verdicts if v.basis == "peers" and v.status is Status.FAIL]


def test_with_one_bad_node_of_four_half_of_all_pairs_are_bad_and_peers_still_see_it() -> None:
    results = pair_results(bad("node03"), N4)
    verdicts = judge(results, [PINGPONG])
    assert sum(v.status is Status.FAIL for v in verdicts if len(v.subject.nodes) == 2) == 3
    assert accused(verdicts) == ["node03"]


def test_without_a_limit_equal_peers_leave_pairs_unjudged_and_only_add_failures() -> None:
    verdicts = judge(pair_results(lambda _a, _b: 870.0, N4), [])
    assert set(statuses(verdicts)) == {Status.UNJUDGED}
    assert len(verdicts) == 6
    verdicts = judge(pair_results(bad("node03"), N4), [])
    assert accused(verdicts) == ["node03"]
    assert sum(v.status is Status.UNJUDGED for v in verdicts) == 6


def test_fewer_than_four_nodes_have_no_peers() -> None:
    results = [TestResult(pair_test(i, pair, at_once=1), (bandwidth(11.9 if "node03" in pair else 870.0),))
               for i, pair in enumerate([("node01", "node02"), ("node01", "node03"), ("node02", "node03")])]
    assert accused(judge(results, [])) == []


@pytest.mark.parametrize(("value", "found"), [(0.81, []), (0.80, ["node03"]), (0.5, ["node03"])])
def test_a_distance_of_twenty_percent_is_needed(value: float, found: list[str]) -> None:
    assert accused(judge(pair_results(bad("node03", 1000.0 * value, lambda: 1000.0), N4), [])) == found


def test_only_values_of_equal_conditions_are_compared() -> None:
    results = pair_results(bad("node03"), N4)
    assert accused(judge(results, [])) == ["node03"]
    apart = [replace(r, test=replace(r.test, pairs_at_once=1 if "node03" in r.test.subject.nodes else 2))
             for r in results]
    assert accused(judge(apart, [])) == []
    other = [replace(r, measurements=(replace(r.measurements[0], size_bytes=i),)) for i, r in enumerate(results)]
    assert accused(judge(other, [])) == []


def test_other_hardware_is_no_peer() -> None:
    inv = inventory(N4)
    odd = replace(inv.nodes[2], cpu=replace(inv.nodes[2].cpu, model="Atom"))
    mixed = replace(inv, nodes=(*inv.nodes[:2], odd, inv.nodes[3]))
    assert accused(judge(pair_results(bad("node03"), N4), [], inv)) == ["node03"]
    assert accused(judge(pair_results(bad("node03"), N4), [], mixed)) == []


def test_lower_is_better_for_times() -> None:
    def latencies(of_node03: float) -> list[TestResult]:
        return [replace(r, measurements=(Measurement("latency", r.measurements[0].value, "us"),))
                for r in pair_results(bad("node03", of_node03, lambda: 20.0), N4)]

    assert accused(judge(latencies(900.0), [])) == ["node03"]
    assert "node03" not in accused(judge(latencies(2.0), []))


def node_results(values: dict[str, float], unit: str, device: str = "") -> list[TestResult]:
    return [TestResult(PlannedTest(f"t{i}", "stream", Subject((n,)), (), 2),
                       (Measurement("triad", v, unit, subject=Subject((n,), device)),))
            for i, (n, v) in enumerate(values.items())]


def test_nodes_by_themselves_have_peers_too() -> None:
    values = {"node01": 400.0, "node02": 410.0, "node03": 120.0, "node04": 405.0}
    assert accused(judge(node_results(values, "GB/s"), [])) == ["node03"]
    verdicts = judge(node_results(values, "GB/s", "GPU 3"), [])
    assert [str(v.subject) for v in verdicts if v.basis == "peers"] == ["node03 GPU 3"]


@pytest.mark.parametrize("unit", ["s", "MiB", "", "count"])
def test_offsets_and_counts_have_no_peers(unit: str) -> None:
    values = {"node01": 0.001, "node02": 0.002, "node03": 0.9, "node04": 0.001}
    assert accused(judge(node_results(values, unit), [])) == []


def test_broken_values_do_not_move_the_median() -> None:
    results = pair_results(bad("node03"), N4)
    results[0] = replace(results[0], measurements=(bandwidth(float("inf")),))
    assert accused(judge(results, [])) == ["node03"]


# --- repetitions

def again(results: Sequence[TestResult], which: Sequence[str], value: Callable[[str, str], float], times: int = 2,
          ) -> list[TestResult]:
    by_id = {r.test.id: r for r in results}
    made = list(results)
    for test in which:
        for turn in range(times):
            first = by_id[test]
            made.append(repeated(first, value(*first.test.subject.nodes), attempt=turn + 2, alone=turn % 2 == 0))
    return made


def test_what_is_bad_every_time_fails_with_all_values() -> None:
    [verdict] = judge(again([one(bandwidth(80.0))], ["t0001"], lambda _a, _b: 81.0), [PINGPONG])
    assert verdict.status is Status.FAIL
    assert verdict.reason.endswith("again 81 and 81")
    assert verdict.measurement is not None
    assert verdict.measurement.value == 80.0
    assert verdict.attempt == 3


def test_what_recovers_passes_and_says_so() -> None:
    values = iter([910.0, 905.0])
    [verdict] = judge(again([one(bandwidth(80.0))], ["t0001"], lambda _a, _b: next(values)), [PINGPONG])
    assert (verdict.status, verdict.reason) == (Status.PASS, "first 80 MB/s, again 910 and 905")
    values = iter([910.0, 70.0])
    [verdict] = judge(again([one(bandwidth(80.0))], ["t0001"], lambda _a, _b: next(values)), [PINGPONG])
    assert verdict.status is Status.WARN


@pytest.mark.parametrize("broken", [float("nan"), "870", 0.0])
def test_a_broken_repetition_acquits_nobody(broken: object) -> None:
    first = one(bandwidth(80.0))
    assert statuses(judge([first, repeated(first, broken, attempt=2, alone=True)], [PINGPONG])) == [Status.FAIL]
    failed = repeated(first, 0.0, attempt=2, alone=True, error="timed out")
    [verdict] = judge([first, failed], [PINGPONG])
    assert verdict.status is Status.FAIL
    assert "timed out" in verdict.reason


def test_a_repetition_in_another_unit_acquits_nobody() -> None:
    first = one(bandwidth(80.0))
    other = repeated(first, 1.0, attempt=2, alone=True)
    other = replace(other, measurements=(bandwidth(870.0, unit="GB/s"),))
    assert statuses(judge([first, other], [PINGPONG])) == [Status.FAIL]


def test_the_doubts_of_a_good_repetition_are_kept() -> None:
    first = one(bandwidth(80.0))
    good = repeated(first, 900.0, attempt=2, alone=True)
    good = replace(good, measurements=tuple(replace(m, warnings=("not all is told",)) for m in good.measurements))
    [verdict] = judge([first, good], [PINGPONG])
    assert verdict.status is Status.WARN and verdict.reason.endswith("again 900; not all is told")


def test_repetitions_do_not_undo_errors_or_unequal_facts() -> None:
    for first in (one(error="timed out"), one(bandwidth(float("nan"))), one(Measurement("gpus", 7, expected=8))):
        good = repeated(first, 900.0, attempt=2, alone=True)
        assert statuses(judge([first, good], [PINGPONG]))[0] in (Status.ERROR, Status.FAIL)


def test_a_launch_that_hung_without_a_word_is_tried_again_and_is_never_better_than_warn() -> None:
    hung = one(error="did not end within 60 s", silent=True)
    assert doubtful([hung], judge([hung], [PINGPONG])) == ["t0001"]
    good = [repeated(hung, 900.0, attempt=n, alone=True) for n in (2, 3)]
    [verdict] = judge([hung, *good], [PINGPONG])
    assert verdict.status is Status.WARN
    assert "did not end within 60 s" in verdict.reason
    assert verdict.test == "t0001"
    slow = repeated(hung, 12.0, attempt=3, alone=True)
    assert statuses(judge([hung, good[0], slow], [PINGPONG])) == [Status.FAIL]
    hung_again = repeated(hung, 0.0, attempt=3, alone=True, error="did not end within 60 s")
    assert statuses(judge([hung, good[0], hung_again], [PINGPONG])) == [Status.ERROR]
    many = [replace(r, error="hung", silent=True, measurements=()) for r in pair_results(lambda _a, _b: 1.0, names(6))]
    assert doubtful(many, judge(many, [PINGPONG])) == []


def test_a_repetition_without_its_first_is_an_error() -> None:
    [verdict] = judge([repeated(one(bandwidth(80.0)), 900.0, attempt=2, alone=True)], [PINGPONG])
    assert verdict.status is Status.ERROR


def test_doubtful_are_the_failures_and_some_controls() -> None:
    results = pair_results(bad("node03"), N4)
    verdicts = judge(results, [PINGPONG])
    ids = doubtful(results, verdicts)
    bad_ids = {r.test.id for r in results if "node03" in r.test.subject.nodes}
    assert bad_ids == set(ids[:3])
    assert len(ids) == 6
    assert doubtful(again(results, ids, bad("node03")), verdicts) == []
    healthy = pair_results(lambda _a, _b: 870.0, N4)
    assert doubtful(healthy, judge(healthy, [PINGPONG])) == []


def test_facts_are_not_measured_again() -> None:
    results = [one(Measurement("gpus", 7, expected=8)), one(error="timed out"), one(bandwidth(870.0))]
    assert doubtful(results, judge(results, [])) == []


def test_doubtful_is_bounded() -> None:
    results = pair_results(lambda _a, _b: 1.0, names(32))
    assert len(doubtful(results, judge(results, [PINGPONG]))) == 200
    lone = pair_results(bad("node03"), names(32))
    assert len(doubtful(lone, judge(lone, []))) == 8 + 3


def test_peers_accuse_only_what_stays_bad() -> None:
    results = pair_results(bad("node03", 600.0), N4)
    first = judge(results, [])
    ids = doubtful(results, first)
    assert accused(judge(again(results, ids, bad("node03", 600.0)), [])) == ["node03"]
    verdicts = judge(again(results, ids, lambda _a, _b: 860.0), [])
    assert accused(verdicts) == []
    [peer] = [v for v in verdicts if v.basis == "peers"]
    assert (peer.status, peer.reason.endswith("again 860 and 860")) == (Status.PASS, True)


def test_a_machine_that_became_slower_as_a_whole_accuses_nobody() -> None:
    results = pair_results(bad("node03", 600.0), N4)
    ids = doubtful(results, judge(results, []))
    assert accused(judge(again(results, ids, lambda _a, _b: 400.0), [])) == []


def test_an_accused_node_that_could_not_be_measured_again_stays_accused() -> None:
    results = pair_results(bad("node03", 600.0), N4)
    lost = [repeated(r, 0.0, attempt=2, alone=True, error="timed out")
            for r in results if "node03" in r.test.subject.nodes]
    assert accused(judge([*results, *lost], [])) == ["node03"]


def noisy(rng: random.Random) -> float:
    """A pair on a shared machine of two cores, as seen there."""
    return rng.uniform(300, 1000)


def run_with_repetitions(rng: random.Random, slow: str = "") -> list[Verdict]:
    def value(a: str, b: str) -> float:
        return rng.uniform(11.5, 12.2) if slow in (a, b) else noisy(rng)

    def alone(a: str, b: str) -> float:
        return value(a, b) * (1 if slow in (a, b) else rng.uniform(1, 2))

    results = pair_results(value, N4)
    ids = doubtful(results, judge(results, [PINGPONG]))
    by_id = {r.test.id: r for r in results}
    made = list(results)
    for test in ids:
        first = by_id[test]
        for turn in range(2):
            made.append(repeated(first, alone(*first.test.subject.nodes), attempt=2 + 2 * turn, alone=True))
            made.append(repeated(first, value(*first.test.subject.nodes), attempt=3 + 2 * turn, alone=False))
    return judge(made, [PINGPONG])


def test_noise_never_fails_a_healthy_cluster_and_never_hides_a_throttled_node() -> None:
    rng = random.Random(1)  # noqa: S311
    failed = sum(bool(accused(run_with_repetitions(rng))) for _ in range(200))
    assert failed <= 1, "false alarms in 200 runs"
    for _ in range(50):
        found = [n for f in explain(run_with_repetitions(rng, "node03")) for n in f.nodes]
        assert found == ["node03"]


# --- whatever is put in

MESSY = st.one_of(st.sampled_from([float("nan"), float("inf"), float("-inf"), None, "", "nan", "12", True, False]),
                  st.floats(max_value=0, allow_nan=False), st.integers(max_value=0), st.text(max_size=5))


@settings(deadline=None)
@given(MESSY, st.lists(st.one_of(MESSY, st.floats(min_value=1, max_value=1e6)), max_size=3))
def test_no_broken_first_value_ever_passes(value: object, repetitions: list[object]) -> None:
    first = one(bandwidth(value))
    results = [first, *(repeated(first, v, attempt=i + 2, alone=True) for i, v in enumerate(repetitions))]
    assert not {Status.PASS, Status.WARN} & set(statuses(judge(results, [PINGPONG, LATENCY])))


@given(st.lists(st.tuples(
    st.sampled_from(["bandwidth", "latency", "gpus"]), MESSY, st.sampled_from(["MB/s", "us", "", "GB/s"]),
    st.one_of(st.none(), MESSY), st.booleans()), max_size=4))
@settings(deadline=None)
def test_judge_never_raises_and_always_says_something(rows: list[tuple[str, object, str, object, bool]]) -> None:
    measurements = [Measurement(n, v, u, 262144, expected=e, key=k) for n, v, u, e, k in rows]  # type: ignore[arg-type]
    verdicts = judge([one(*measurements)], [PINGPONG, LATENCY])
    assert verdicts
    from hpcadmin import records
    for verdict in verdicts:
        records.loads(Verdict, records.dumps(verdict), where="here")

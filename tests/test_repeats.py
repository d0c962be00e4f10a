"""When doubtful tests get a second turn: only where the first turn leaves doubt."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from hpcadmin.check import Limit, Measurement, Status, Subject
from hpcadmin.judge import doubtful, judge
from hpcadmin.repeats import again, unsettled
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage, TestResult

NODES = ("n1", "n2", "n3", "n4")
PAIRS = list(combinations(NODES, 2))
LIMITS = (Limit("pp", "bandwidth", "MB/s", min=25.0, size_bytes=262144, source="test"),)


def result(number: int, pair: tuple[str, str], value: float, repeats: str = "", *, alone: bool = False) -> TestResult:
    attempt = 1 if not repeats else 2 if alone else 3
    test = PlannedTest(f"t{number:04d}", "pp", Subject(pair), (), 1, 1 if alone else 2, 2, attempt, repeats, alone)
    return TestResult(test, (Measurement("bandwidth", value, "MB/s", 262144, subject=Subject(pair)),))


def firsts(**bad: float) -> list[TestResult]:
    """Every pair at about 2000 MB/s; those with a bad node as slow as it is."""
    return [result(n, pair, min([2000.0 + 10 * n, *(bad[node] for node in pair if node in bad)]))
            for n, pair in enumerate(PAIRS, 1)]


def repeated(results: list[TestResult], wanted: list[str], **now: float) -> list[TestResult]:
    """The wanted once alone and once with load; now: what a node gives this time."""
    by_id = {r.test.id: r for r in results}
    more = []
    for test in wanted:
        for alone in (True, False):
            pair = by_id[test].test.subject.nodes
            value = min([2000.0, *(now[node] for node in pair if node in now)])
            more.append(result(100 + len(more), (pair[0], pair[1]), value, test, alone=alone))
    return [*results, *more]


@pytest.mark.parametrize(("first", "then", "second"), [
    (14.5, 14.2, False),        # a throttled node: nothing else explains it
    (900.0, 2000.0, False),     # good again, alone and with load
    (900.0, 1100.0, True),      # bad again, but within what noise does
    (14.5, 1300.0, True)])
def test_a_second_turn_only_where_there_is_doubt(first: float, then: float, second: bool) -> None:
    results = firsts(n3=first)
    wanted = doubtful(results, judge(results, LIMITS))
    assert {f"t{n:04d}" for n, pair in enumerate(PAIRS, 1) if "n3" in pair} <= set(wanted)
    results = repeated(results, wanted, n3=then)
    assert bool(unsettled(wanted, results, judge(results, LIMITS))) is second


def test_who_was_good_once_is_no_longer_accused() -> None:
    results = firsts(n3=900.0)
    wanted = doubtful(results, judge(results, LIMITS))
    results = [r if not r.test.alone else result(int(r.test.id[1:]), ("n1", "n3"), 2000.0, r.test.repeats, alone=True)
               for r in repeated(results, wanted, n3=900.0)]
    found = judge(results, LIMITS)
    assert [v.status for v in found if v.basis == "peers"] == [Status.WARN]
    assert unsettled(wanted, results, found) == ()


def test_two_bad_nodes_of_four_leave_doubt() -> None:
    results = firsts(n3=14.0, n4=15.0)
    wanted = doubtful(results, judge(results, LIMITS))
    results = repeated(results, wanted, n3=14.0, n4=15.0)
    assert unsettled(wanted, results, judge(results, LIMITS)) == wanted


def test_many_have_one_turn_only() -> None:
    assert unsettled([f"t{n:04d}" for n in range(7)], [], []) == ()


def test_a_round_that_another_job_made_good_is_measured_again_once() -> None:
    pairs = (("n1", "n2"), ("n3", "n4"))
    tests = tuple(PlannedTest(f"t{n}", "pp", Subject(pair), (), 2, 2, 2) for n, pair in enumerate(pairs, 1))
    stage = Stage("round", "pp round 1 of 1", ("t1", "t2"))
    jobs = (PlannedJob(1, "suite", NODES, (stage,)), PlannedJob(2, "suite", NODES, (stage,), rest_of=1))
    repeat = again(Plan("s", NODES, (), tests, jobs), ["t1"], 3, {})
    assert repeat is not None
    assert [s.name for s in repeat.job.stages] == ["pp n1 - n2 alone", "pp round 1 of 1 again"]


def test_the_load_that_a_test_had_is_that_of_its_own_job() -> None:
    """Its partner was cut off when this one was measured already, and made good in another job, by itself."""
    first, second = (PlannedTest(f"t{n}", "pp", Subject(pair), (), n, 2 - n % 2, 2)
                     for n, pair in ((2, ("n1", "n2")), (1, ("n3", "n4"))))
    first = replace(first, pairs_at_once=1)
    stage = Stage("round", "pp round 1 of 1", ("t2", "t1"))
    jobs = (PlannedJob(1, "suite", NODES, (stage,)),
            PlannedJob(2, "suite", NODES[:2], (replace(stage, tests=("t2",)),), rest_of=1))
    plan = Plan("s", NODES, (), (first, replace(second, pairs_at_once=2)), jobs)
    repeat = again(plan, ["t1"], 3, {})
    assert repeat is not None
    assert [(t.repeats, t.alone, t.pairs_at_once) for t in repeat.tests] == [
        ("t1", True, 1), ("t2", False, 2), ("t1", False, 2)]
    assert [len(s.tests) for s in repeat.job.stages] == [1, 2]
    repeat = again(plan, ["t2"], 3, {})
    assert repeat is not None and [s.name for s in repeat.job.stages] == ["pp n1 - n2 alone"]


MANY = tuple(f"n{n:02d}" for n in range(1, 11))


def many(slow: float, doubt: float) -> list[TestResult]:
    """Ten nodes, all pairs; n03 is far too slow, n07 a little."""
    found = []
    for n, pair in enumerate(combinations(MANY, 2), 1):
        value = slow if "n03" in pair else doubt if "n07" in pair else 2000.0 + n
        found.append(result(n, pair, value))
    return found


def test_of_many_tests_those_of_the_node_in_doubt_have_a_second_turn() -> None:
    results = many(14.0, 1200.0)
    wanted = doubtful(results, judge(results, LIMITS))
    assert len(wanted) > 16
    results = repeated(results, wanted, n03=14.0, n07=1200.0)
    second = unsettled(wanted, results, judge(results, LIMITS))
    pairs = {r.test.id: set(r.test.subject.nodes) for r in results}
    assert second and not any("n03" in pairs[t] for t in second)        # that one is plain
    assert sum("n07" in pairs[t] for t in second) >= 5
    beside = [t for t in second if "n07" not in pairs[t]]
    assert 1 <= len(beside) <= 3                                        # to compare with
    results = repeated(results, second, n07=2000.0)
    assert {n for v in judge(results, LIMITS) if v.status is Status.FAIL and v.basis == "peers"
            for n in v.subject.nodes} == {"n03"}


def test_of_many_tests_none_has_a_second_turn_where_all_is_plain() -> None:
    results = many(14.0, 2000.0)
    wanted = doubtful(results, judge(results, LIMITS))
    results = repeated(results, wanted, n03=14.0)
    assert unsettled(wanted, results, judge(results, LIMITS)) == ()

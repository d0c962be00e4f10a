"""Nodes that are lost during a run: who is named, and what is measured again without them."""

from __future__ import annotations

from hpcadmin.check import Measurement, Scope, Status, Subject
from hpcadmin.coverage import coverage
from hpcadmin.isolate import explain
from hpcadmin.judge import judge
from hpcadmin.repeats import again
from hpcadmin.run_lost import lost_nodes, with_lost
from hpcadmin.rundata import Plan, PlannedEntry, PlannedJob, PlannedTest, Stage, TestResult

NODES = ("n1", "n2", "n3", "n4")
PAIRS = [("n1", "n2"), ("n3", "n4"), ("n1", "n3"), ("n2", "n4"), ("n1", "n4"), ("n2", "n3")]
TESTS = tuple(PlannedTest(f"t{n:04d}", "pp", Subject(pair), pairs_at_once=2) for n, pair in enumerate(PAIRS, 1))
ROUNDS = tuple(Stage("round", f"pp round {n} of 3", (TESTS[2 * n - 2].id, TESTS[2 * n - 1].id)) for n in (1, 2, 3))
PLAN = Plan("s", NODES, (PlannedEntry("pp", "pp", Scope.PAIR, tests=6),), TESTS,
            (PlannedJob(1, "suite", NODES, ROUNDS),))
DOWN = {"n3": "down, not responding: Not responding"}


def results(*, error: str = "", not_run: str = "") -> list[TestResult]:
    """The first round was measured; of the others those with n3 were not."""
    found = []
    for n, test in enumerate(TESTS):
        value = Measurement("rate", 1, expected=1, subject=test.subject)
        lost = n > 1 and "n3" in test.subject.nodes
        found.append(TestResult(test, error=error, not_run=not_run) if lost else TestResult(test, (value,)))
    return found


def test_a_lost_node_is_one_finding_with_slurms_reason_and_its_partners_are_none() -> None:
    found = results(error="n3 does not answer any more: srun: error: Node failure on n3")
    plan = with_lost(PLAN, found, DOWN)
    assert lost_nodes(plan) == {"n3"} and with_lost(plan, found, DOWN) is plan
    verdicts = [*plan.verdicts, *judge(found, ())]
    [finding] = explain(verdicts, plan)
    assert (finding.nodes, finding.status) == (("n3",), Status.ERROR)
    assert finding.text == ("n3: does not answer any more (Slurm says: down, not responding: Not responding); 2 tests "
                            "of pp could not be made with it")
    nodes = coverage(plan, verdicts, [finding])[0]
    assert (nodes.expected, nodes.tested, nodes.failed) == (4, 4, ("n3",))


def test_slurm_need_not_have_noticed() -> None:
    found = results(error="n3 does not answer any more")
    [verdict] = with_lost(PLAN, found, {}).verdicts
    assert verdict.reason == "n3 does not answer any more (Slurm has not noticed)"


def test_a_node_that_was_measured_and_is_down_when_its_turn_comes_is_lost() -> None:
    [verdict] = with_lost(PLAN, results(not_run="n3 not free within 5 s"), DOWN).verdicts
    assert verdict.subject.nodes == ("n3",) and verdict.status is Status.ERROR
    never = [TestResult(t, not_run="n3 not free within 5 s") if "n3" in t.subject.nodes else r
             for t, r in zip(TESTS, results(), strict=True)]
    assert with_lost(PLAN, never, DOWN) is PLAN             # it was never there: that is what its tests say


def test_an_admin_who_drains_a_node_is_told_apart_and_failures_alone_lose_nobody() -> None:
    found = results(error="the program ended with exit status 1")
    [verdict] = with_lost(PLAN, found, {"n3": "drained: new fan"}).verdicts
    assert verdict.reason == "n3 was taken out of service during the run (Slurm says: drained: new fan)"
    assert with_lost(PLAN, found, {}) is PLAN
    assert with_lost(PLAN, results(error="x") [:2], DOWN) is PLAN


def test_nothing_that_is_measured_again_waits_for_a_lost_node() -> None:
    repeat = again(PLAN, ["t0001", "t0002", "t0004"], 2, {"pp": 1.0}, {"n3"})
    assert repeat is not None and repeat.job.nodes == ("n1", "n2", "n4")
    assert [(t.repeats, t.alone, t.pairs_at_once) for t in repeat.tests] == [
        ("t0001", True, 1), ("t0004", True, 1), ("t0001", False, 1), ("t0004", False, 1)]
    assert again(PLAN, ["t0002"], 2, {}, {"n3"}) is None

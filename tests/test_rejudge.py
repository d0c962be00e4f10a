"""A run judged again: by the same limits nothing is another."""

from __future__ import annotations

from pathlib import Path

from hpcadmin.check import Limit, Measurement, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.records import to_plain
from hpcadmin.rejudge import changes, judge_again
from hpcadmin.rundata import Manifest, Measured, Plan, PlannedTest, Run, TestResult

PAIR = Subject(("n1", "n2"))


def test_repetitions_on_simulated_hardware_are_judged_by_its_limits_again() -> None:
    limits = [Limit("c", "bandwidth", "Gb/s", min=0.1, size_bytes=65536, simulated=True, source="lab"),
              Limit("c", "bandwidth", "Gb/s", min=390.0, size_bytes=65536, source="real")]
    tests = (PlannedTest("t1", "c", PAIR, (), 1), PlannedTest("t2", "c", PAIR, (), 2, attempt=2, repeats="t1"))
    results = [TestResult(t, (Measurement("bandwidth", value, "Gb/s", size_bytes=65536, subject=PAIR, key=True),),
                          simulated="8xH100") for t, value in zip(tests, (0.09, 0.1), strict=True)]
    before = judge(results, limits)
    assert [v.status for v in before] == [Status.PASS]
    measured = tuple(Measured(r.test.id, "c", r.test.attempt, m) for r in results for m in r.measurements)
    run = Run(Path("r"), Manifest("r", "s", PAIR.nodes, "complete", ""), plan=Plan("s", PAIR.nodes, (), tests),
              measured=measured, verdicts=tuple(before))
    now = judge_again(run, limits)
    assert changes(before, now) == [], to_plain(now)


def test_an_error_that_was_repeated_stays_what_it_was() -> None:
    """A test that came to nothing is repeated beside a doubtful one of its round: that is no excuse. What hung without
    a word has one."""
    limits = [Limit("c", "bandwidth", "Gb/s", min=10.0, size_bytes=65536, source="site")]
    for silent, status in ((False, Status.ERROR), (True, Status.WARN)):
        tests = (PlannedTest("t1", "c", PAIR, (), 1), PlannedTest("t2", "c", PAIR, (), 2, attempt=2, repeats="t1"))
        good = Measurement("bandwidth", 20.0, "Gb/s", size_bytes=65536, subject=PAIR, key=True)
        results = [TestResult(tests[0], error="was killed", silent=silent, outputs=("jobs/1/driver.log#t1",)),
                   TestResult(tests[1], (good,), outputs=("jobs/2/driver.log#t2",))]
        before = judge(results, limits)
        assert [v.status for v in before] == [status]
        run = Run(Path("r"), Manifest("r", "s", PAIR.nodes, "complete", ""), plan=Plan("s", PAIR.nodes, (), tests),
                  measured=(Measured("t2", "c", 2, good),), verdicts=tuple(before))
        now = judge_again(run, limits)
        assert changes(before, now) == [], (silent, to_plain(now))

"""Contract criteria and waivers: what is read from a file, and what becomes of them."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import bandwidth, inventory, names, node_results, pair_results, repeated, write_run

from hpcadmin.check import Direction, Measurement, Scope, Status, Subject
from hpcadmin.errors import SiteError
from hpcadmin.handover.assess import Statement, Word, assess
from hpcadmin.handover.criteria import Terms, parse_terms, read_terms
from hpcadmin.handover.shown import Outcome, is_share, run_coverage
from hpcadmin.handover.texts import Words
from hpcadmin.report.summary import summarise
from hpcadmin.rundata import (
    Covered,
    Expected,
    PlannedEntry,
    PlannedTest,
    Run,
    SkippedNode,
    TestResult,
    plan_problems,
    read_run,
    write_record,
)

N4 = names(4)
DAY = datetime.date(2026, 11, 30)
PASSED = '[[criterion]]\nnumber = "1"\ntext = "Nodes are ready"\nchecks = ["node_ready", "mpi_hello"]\n'
FAST = ('[[criterion]]\nnumber = "2"\ntext = "Bandwidth"\nchecks = ["mpi_pingpong"]\nmeasurement = "bandwidth"\n'
        'unit = "MB/s"\nsize_bytes = 262144\nmin = 800\n')
COVER = '[[criterion]]\nnumber = "3"\ntext = "All tested"\ncoverage = { nodes = 100 }\n'
WAIVER = ('[[waiver]]\nname = "W1"\nwho = "J. Doe"\nreason = "cable ordered"\nuntil = 2027-03-31\nnodes = "node03"\n')


def terms(*parts: str) -> Terms:
    return parse_terms("".join(parts).encode(), "criteria.toml")


def good(a: str, b: str) -> float:
    return 870.0


def slow(a: str, b: str) -> float:
    return 11.9 if "node03" in (a, b) else 870.0


def made(folder: Path, value: Callable[[str, str], float] = good, plan: Mapping[str, Any] = {},
         **more: object) -> Run:
    """Of nodes that are known to have neither GPUs nor adapters."""
    plan = {"expected": (Expected((*N4, *(s.node for s in plan.get("skipped", ()))), 0, ()),), **plan}
    return read_run(write_run(folder / "r", [*node_results(N4), *pair_results(value, N4)], N4, plan=plan,
                              **more))  # type: ignore[arg-type]


def judged(run: Run, found: Terms, day: datetime.date = DAY) -> Statement:
    return assess(run, summarise(run), found, day)


def outcomes(statement: Statement) -> dict[str, Outcome]:
    return {c.number: c.outcome for c in statement.criteria}


def test_all_met_is_accepted(tmp_path: Path) -> None:
    found = judged(made(tmp_path), terms(PASSED, FAST, COVER))
    assert (found.word, set(outcomes(found).values())) == (Word.ACCEPTED, {Outcome.MET})
    by_number = {c.number: c for c in found.criteria}
    assert (by_number["2"].good, by_number["2"].total) == (6, 6)
    assert (by_number["1"].good, by_number["1"].total) == (5, 5)
    assert [c.number for c in found.criteria if c.general] == ["G1", "G2", "G3", "G4"]


def test_a_slow_node_is_not_accepted_and_named(tmp_path: Path) -> None:
    found = judged(made(tmp_path, slow), terms(PASSED, FAST, COVER))
    two = next(c for c in found.criteria if c.number == "2")
    assert (found.word, two.outcome, two.good, two.total) == (Word.NOT_ACCEPTED, Outcome.NOT_MET, 3, 6)
    assert {s.what for s in two.shortfalls} == {"node01 - node03", "node02 - node03", "node03 - node04"}
    assert outcomes(found)["1"] is Outcome.MET
    assert [r.key for r in found.reasons] == ["reason_not_met"]


@pytest.mark.parametrize(("waiver", "word"), [
    (WAIVER, Word.WITH_WAIVERS),
    (WAIVER + 'check = "mpi_pingpong"\n', Word.WITH_WAIVERS),
    (WAIVER + 'check = "node_ready"\n', Word.NOT_ACCEPTED),
    (WAIVER + 'criterion = "2"\n', Word.NOT_ACCEPTED),                 # what else is bad is not waived: G4
    (WAIVER + 'device = "GPU 5"\n', Word.NOT_ACCEPTED),
    (WAIVER.replace("node03", "node02"), Word.NOT_ACCEPTED),           # only one of the pairs is
    (WAIVER.replace("2027-03-31", "2026-11-29"), Word.NOT_ACCEPTED),   # expired
    (WAIVER + "granted = 2026-12-01\n", Word.NOT_ACCEPTED),            # not yet
    (WAIVER.replace("2027-03-31", "2026-11-30"), Word.WITH_WAIVERS),   # its last day
])
def test_waivers(waiver: str, word: Word, tmp_path: Path) -> None:
    found = judged(made(tmp_path, slow), terms(PASSED, FAST, COVER, waiver))
    assert found.word is word
    assert Outcome.MET is not outcomes(found)["2"]                     # a waiver never makes it met
    if word is Word.WITH_WAIVERS:
        assert outcomes(found)["2"] is outcomes(found)["G4"] is Outcome.WAIVED
        assert [(r.state, r.covers) for r in found.waivers] == [("used", 6)] or found.waivers[0].covers >= 6


def test_a_waiver_that_nothing_needs_changes_nothing(tmp_path: Path) -> None:
    found = judged(made(tmp_path), terms(PASSED, WAIVER))
    assert (found.word, [r.state for r in found.waivers]) == (Word.ACCEPTED, ["unused"])


def test_simulated_hardware_is_never_accepted(tmp_path: Path) -> None:
    everything = "".join(WAIVER.replace("W1", f"W{n}").replace('nodes = "node03"', f'criterion = "{n}"')
                         for n in ("G3", "G4"))
    run = made(tmp_path, inv=inventory(N4, simulated="8xH100"))
    assert judged(run, terms(PASSED, everything)).word is Word.NOT_ACCEPTED
    with pytest.raises(SiteError, match="no criterion 'G2' that can be waived"):
        read_terms([_file(tmp_path, PASSED + WAIVER + 'criterion = "G2"\n')])


def test_a_run_that_has_not_ended_or_is_damaged_is_not_accepted(tmp_path: Path) -> None:
    run = made(tmp_path)
    for bad in (replace(run, manifest=replace(run.manifest, state="running")),
                replace(run, problems=("verdicts.jsonl:7: is damaged",)), replace(run, plan=None)):
        found = judged(bad, terms(PASSED))
        assert (found.word, outcomes(found)["G1"]) == (Word.NOT_ACCEPTED, Outcome.NOT_MET)


def test_what_was_not_tested_is_not_accepted(tmp_path: Path) -> None:
    run = made(tmp_path, plan={"skipped": (SkippedNode("node05", "is drained"),)}, asked=(*N4, "node05"),
               exit_status=3)
    found = judged(run, terms(PASSED, COVER))
    three = next(c for c in found.criteria if c.number == "3")
    assert (found.word, three.outcome, three.good, three.total) == (Word.NOT_ACCEPTED, Outcome.NOT_SHOWN, 4, 5)
    assert [(s.what, s.missing) for s in three.shortfalls] == [("node05", True)]
    assert judged(run, terms(PASSED, COVER, WAIVER.replace("node03", "node05"))).word is Word.WITH_WAIVERS
    less = judged(run, terms(PASSED, COVER.replace("100", "80")))
    assert outcomes(less)["3"] is Outcome.MET
    assert outcomes(less)["G4"] is Outcome.NOT_SHOWN                   # node05 is still NOT RUN


def test_checks_that_say_nothing_are_not_met(tmp_path: Path) -> None:
    run = made(tmp_path)
    for name in ("ib_write_bw", "osu_bw", "nccl_allreduce"):
        found = judged(run, terms(PASSED.replace("mpi_hello", name)))
        one = found.criteria[0]
        assert (one.outcome, found.word) == (Outcome.NOT_SHOWN, Word.NOT_ACCEPTED), name
        assert one.shortfalls[0].what == name


@pytest.mark.parametrize("change", [
    'unit = "GB/s"', "size_bytes = 4096", 'direction = "both"', "nodes = 8", 'measurement = "busbw"'])
def test_another_unit_size_or_direction_shows_nothing(change: str, tmp_path: Path) -> None:
    key = change.split(" ", 1)[0]
    lines = [line for line in FAST.splitlines() if not line.startswith(f"{key} =")]
    found = judged(made(tmp_path), terms("\n".join([*lines, change, ""])))
    assert (found.word, found.criteria[0].outcome, found.criteria[0].good) == (Word.NOT_ACCEPTED, Outcome.NOT_SHOWN, 0)


def test_the_contracts_limit_counts_not_the_catalogues(tmp_path: Path) -> None:
    found = judged(made(tmp_path), terms(FAST.replace("800", "871")))          # the run's own limit is 100
    assert (outcomes(found)["2"], outcomes(found)["G4"]) == (Outcome.NOT_MET, Outcome.MET)
    assert found.word is Word.NOT_ACCEPTED
    assert outcomes(judged(made(tmp_path / "b", limits=()), terms(FAST)))["G4"] is Outcome.MET    # it has a limit now
    assert outcomes(judged(made(tmp_path / "c", limits=()), terms(PASSED)))["G4"] is Outcome.NOT_SHOWN


def test_a_limit_of_another_size_judges_nothing(tmp_path: Path) -> None:
    run = made(tmp_path, limits=())
    other = FAST.replace("262144", "4096") + "percent = 1\n"
    assert outcomes(judged(run, terms(FAST, other.replace('"2"', '"4"'))))["G4"] is Outcome.MET
    assert outcomes(judged(run, terms(other)))["G4"] is Outcome.NOT_SHOWN


def test_coverage_that_lacks_the_nodes_is_not_known(tmp_path: Path) -> None:
    run = replace(made(tmp_path), coverage=(Covered("GPUs", 8, 8),))
    assert outcomes(judged(run, terms(PASSED)))["G3"] is Outcome.NOT_SHOWN


def test_a_share_of_the_values(tmp_path: Path) -> None:
    run = made(tmp_path, slow)
    assert outcomes(judged(run, terms(FAST + "percent = 50\n")))["2"] is Outcome.MET
    assert outcomes(judged(run, terms(FAST + "percent = 50.1\n")))["2"] is Outcome.NOT_MET


def test_a_value_is_bad_only_if_it_was_bad_each_time(tmp_path: Path) -> None:
    results = pair_results(lambda a, b: 700.0 if (a, b) == ("node01", "node02") else 870.0, N4)
    first = next(r for r in results if r.test.subject.nodes == ("node01", "node02"))
    for value, outcome in ((860.0, Outcome.MET), (710.0, Outcome.NOT_MET)):
        again = repeated(first, value, attempt=2, alone=True)
        run = read_run(write_run(tmp_path / str(value), [*results, again], N4))
        assert outcomes(judged(run, terms(FAST)))["2"] is outcome


def test_a_fast_value_of_a_bad_test_is_no_proof(tmp_path: Path) -> None:
    test = PlannedTest("t1", "mpi_pingpong", Subject(("node01", "node02")), job=2, pairs_at_once=1, ranks=2)
    entries = [PlannedEntry("mpi_pingpong", "p", Scope.PAIR)]
    crash = TestResult(test, (bandwidth(900.0),), error="exit status 1")
    wrong = TestResult(test, (bandwidth(900.0), Measurement("wrong_values", 3, expected=0)))
    for number, (result, outcome) in enumerate(((crash, Outcome.NOT_SHOWN), (wrong, Outcome.NOT_MET))):
        run = read_run(write_run(tmp_path / str(number), [result], N4[:2], entries=entries))
        assert outcomes(judged(run, terms(FAST)))["2"] is outcome


def test_unknown_devices_are_not_covered(tmp_path: Path) -> None:
    found = judged(made(tmp_path, plan={"expected": (Expected(N4),)}), terms(PASSED))
    assert (found.word, outcomes(found)["G3"]) == (Word.NOT_ACCEPTED, Outcome.NOT_SHOWN)
    known = replace(made(tmp_path / "b"), coverage=())
    assert judged(known, terms(PASSED, COVER.replace("nodes", "gpus"))).word is Word.NOT_ACCEPTED     # there are none


def test_without_criteria_the_general_conditions_decide(tmp_path: Path) -> None:
    found = judged(made(tmp_path), Terms())
    assert (found.word, found.contract, len(found.criteria)) == (Word.ACCEPTED, False, 4)
    assert [r.key for r in found.reasons] == ["reason_no_contract"]
    assert judged(made(tmp_path / "b", slow), Terms()).word is Word.NOT_ACCEPTED


def test_an_empty_run_is_not_accepted(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "r", [], (), entries=[]))
    assert judged(run, Terms()).word is Word.NOT_ACCEPTED


def test_a_group_is_not_waived_with_one_of_its_nodes(tmp_path: Path) -> None:
    hello = PlannedTest("t9", "mpi_hello", Subject(N4), job=2, ranks=8)
    run = read_run(write_run(tmp_path / "r", [TestResult(hello, error="7 of 8 ranks")], N4))
    found = judged(run, terms(PASSED.replace('"node_ready", ', ""), WAIVER))
    assert outcomes(found)["1"] is Outcome.NOT_SHOWN
    whole = WAIVER.replace("node03", "node[01-04]")
    assert outcomes(judged(run, terms(PASSED.replace('"node_ready", ', ""), whole)))["1"] is Outcome.WAIVED
    assert all(v.status is not Status.PASS for v in run.verdicts)


QUICK = FAST.replace("bandwidth", "latency").replace("MB/s", "us").replace("size_bytes = 262144\nmin = 800", "max = 5")


def _of_nodes(folder: Path, *found: TestResult, check: str = "mpi_pingpong") -> Run:
    entries = [PlannedEntry(check, "p", Scope.NODE)]
    return read_run(write_run(folder, found, tuple(n for r in found for n in r.test.subject.nodes), entries=entries,
                              limits=()))


def _of_node(number: int, *values: Measurement, error: str = "") -> TestResult:
    test = PlannedTest(f"t{number}", "mpi_pingpong", Subject((f"node{number:02d}",)), job=2)
    return TestResult(test, values, error=error)


def test_a_check_that_shows_nothing_is_no_small_share(tmp_path: Path) -> None:
    both = PASSED.replace("mpi_hello", "ib_write_bw") + "percent = 50\n"
    run = made(tmp_path)
    found = judged(run, terms(both))
    assert (found.criteria[0].outcome, found.criteria[0].good, found.criteria[0].total) == (Outcome.NOT_SHOWN, 4, 5)
    slow_too = made(tmp_path / "slow", slow)
    both = both.replace('"node_ready"', '"node_ready", "mpi_pingpong"')
    other = WAIVER.replace('nodes = "node03"', 'check = "mpi_pingpong"')
    assert outcomes(judged(slow_too, terms(both, other)))["1"] is Outcome.NOT_MET
    more = other.replace("mpi_pingpong", "ib_write_bw").replace("W1", "W2")
    assert outcomes(judged(slow_too, terms(both, other, more)))["1"] is Outcome.WAIVED


def test_a_test_that_crashed_lacks_all_of_its_values(tmp_path: Path) -> None:
    gpus = [bandwidth(900.0, subject=Subject(("node01",), f"GPU {i}")) for i in range(8)]
    run = _of_nodes(tmp_path / "r", _of_node(1, *gpus), _of_node(2, error="exit status 1"))
    one = judged(run, terms(FAST + "percent = 80\n")).criteria[0]
    assert (one.outcome, one.good, one.total) == (Outcome.NOT_SHOWN, 8, 16)


@pytest.mark.parametrize("other", [{"direction": Direction.BOTH}, {"mode": "in-place"}, {"nodes": 2}, {"run": 2}, {}])
def test_every_value_counts_and_not_the_best_of_a_test(other: dict[str, Any], tmp_path: Path) -> None:
    run = _of_nodes(tmp_path / "r", _of_node(1, bandwidth(900.0), bandwidth(20.0, **other)))
    one = judged(run, terms(FAST)).criteria[0]
    assert (one.outcome, one.good, one.total) == (Outcome.NOT_MET, 1, 2)


def test_a_time_without_a_size_is_asked_at_every_size(tmp_path: Path) -> None:
    run = _of_nodes(tmp_path / "r", _of_node(1, *(Measurement("latency", us, "us", size_bytes=size)
                                                for size, us in ((8, 2.0), (1 << 20, 90.0)))))
    assert judged(run, terms(QUICK)).criteria[0].outcome is Outcome.NOT_MET


def test_less_than_nothing_is_no_good_value(tmp_path: Path) -> None:
    run = _of_nodes(tmp_path / "r", _of_node(1, bandwidth(900.0), Measurement("latency", -5.0, "us", key=False)))
    run = replace(run, verdicts=tuple(v for v in run.verdicts if v.status is not Status.ERROR))     # somebody lost it
    assert judged(run, terms(QUICK)).criteria[0].outcome is Outcome.NOT_MET


def test_a_share_is_counted_as_it_is_written(tmp_path: Path) -> None:
    assert is_share(9004, 10_000, 90.04) and not is_share(9003, 10_000, 90.04)
    assert is_share(9995, 10_000, 99.95) and not is_share(99_949_999, 100_000_000, 99.95)
    one = judged(made(tmp_path), terms(FAST + "percent = 99.949999\n")).criteria[0]
    assert "99.949999" in Words("en").say(one.demand)


def test_a_little_too_little_does_not_look_like_enough(tmp_path: Path) -> None:
    run = made(tmp_path, lambda a, b: 799.99)
    assert judged(run, terms(FAST)).criteria[0].shortfalls[0].text == "799.99 MB/s"


def test_gpus_that_are_asked_for_do_not_stand_for_the_nodes(tmp_path: Path) -> None:
    run = replace(made(tmp_path), coverage=(Covered("nodes", 0, 0), Covered("GPUs", 8, 8)))
    found = judged(run, terms(PASSED, COVER.replace("nodes", "gpus")))
    assert (outcomes(found)["3"], outcomes(found)["G3"]) == (Outcome.MET, Outcome.NOT_SHOWN)


def test_coverage_counts_as_far_as_the_results_bear_it_out(tmp_path: Path) -> None:
    run = made(tmp_path, plan={"skipped": (SkippedNode("node05", "is drained"),)}, asked=(*N4, "node05"))
    known = run_coverage(run)
    lie = tuple(replace(c, tested=c.expected, not_tested=()) for c in known)
    found = judged(replace(run, coverage=lie), terms(COVER))
    assert (outcomes(found)["3"], outcomes(found)["G3"]) == (Outcome.NOT_SHOWN, Outcome.MET)
    assert found.criteria[0].shortfalls[0].text == (
        "coverage.json says 5 of 5, the plan and its results say 4 of 5")
    assert outcomes(judged(replace(run, coverage=lie), terms(PASSED)))["G3"] is Outcome.NOT_SHOWN
    for lacking in range(4):
        less = tuple(c for i, c in enumerate(run_coverage(made(tmp_path / str(lacking)))) if i != lacking)
        whole = read_run(tmp_path / str(lacking) / "r")
        assert outcomes(judged(replace(whole, coverage=less), terms(PASSED)))["G3"] is Outcome.NOT_SHOWN


def test_tests_that_hide_behind_another_are_a_problem(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert run.plan is not None and not run.problems
    one, other = run.plan.tests[0], run.plan.tests[-1]
    good = replace(one, id="t8000", repeats=one.id)
    assert not list(plan_problems(replace(run.plan, tests=(*run.plan.tests, good))))
    for bad, says in ((replace(other, id=one.id), "several tests that are called t9001"),
                      (replace(one, id="t8000", repeats="t7777"), "does not repeat t7777"),
                      (replace(one, id="t8000", repeats="t8000"), "does not repeat t8000"),
                      (replace(other, id="t8000", repeats=one.id), "does not repeat t9001")):
        write_record(run.path, "plan.json", replace(run.plan, tests=(*run.plan.tests, bad)))
        again = read_run(run.path)
        assert any(says in p for p in again.problems)
        assert (summarise(again).status, judged(again, Terms()).word) == (3, Word.NOT_ACCEPTED)


# --- files

def _file(folder: Path, text: str, name: str = "criteria.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(("text", "line", "says"), [
    ("x = 1\n", 1, "'x' is not known here"),
    ("[contract]\ntitel = \"x\"\n", 2, "'titel' is not known"),
    (PASSED + "[[criterion]]\nnumber = 3.1\n", 6, "number must be a string"),
    (PASSED.replace("text =", "txt ="), 3, "'txt' is not known"),
    (PASSED.replace('text = "Nodes are ready"', 'text = " "'), 3, "lacks text"),
    (PASSED.replace("node_ready", "node_redy"), 4, "there is no check 'node_redy' (did you mean node_ready?"),
    (PASSED + COVER.replace("coverage", "coverages"), 8, "'coverages' is not known"),
    (PASSED + COVER.replace("nodes", "racks"), 8, "coverage of 'racks' is not known"),
    (PASSED + COVER.replace("100", "101"), 8, "at most 100"),
    (PASSED + 'coverage = { nodes = 100 }\n', 4, "either checks or coverage"),
    (PASSED + "min = 3\n", 5, "min without measurement"),
    (FAST.replace("min = 800", "percent = 0"), 8, "percent must be above 0"),
    (FAST.replace("min = 800\n", ""), 5, "neither min nor max"),
    (FAST.replace("800", "nan"), 8, "min is nan, not a number"),
    (FAST.replace("800", "-1"), 8, "min and max must be numbers"),
    (FAST.replace("800", "true"), 8, "must be a number"),
    (FAST.replace("MB/s", "MBps"), 6, "unit 'MBps' is not known"),
    (FAST.replace("size_bytes = 262144\n", ""), 1, "needs size_bytes"),
    (FAST.replace("min = 800", "max = 800"), 1, "a bandwidth needs min above zero"),
    (FAST + "size_bytes = 1\n", 9, "not valid TOML"),
    (PASSED + PASSED, 5, "criterion '1' stands there twice"),
    (PASSED.replace('"1"', '"G1"'), 2, "one of the general conditions"),
    (WAIVER.replace("until = 2027-03-31\n", ""), 1, "lacks until"),
    (WAIVER.replace("2027-03-31", '"next year"'), 5, "until must be a day"),
    (WAIVER.replace("2027-03-31", "2027-03-31T10:00:00"), 5, "until must be a day"),
    (WAIVER.replace("node03", "node[03"), 6, "malformed hostlist"),
    (WAIVER.replace('nodes = "node03"\n', ""), 2, "what it is about"),
    (WAIVER + "granted = 2027-04-01\n", 5, "until is before granted"),
    (WAIVER + 'check = "nix"\n', 7, "there is no check 'nix'"),
    (WAIVER.replace('"J. Doe"', '""'), 3, "lacks who"),
    (WAIVER + 'criterion = "9.9"\n', 1, "no criterion '9.9'"),
    (WAIVER.replace('nodes = "node03"', 'check = "mpi_pingpong"\ndevice = "GPU 1"'), 7, "device without nodes"),
    ("criterion = 3\n", 1, "must be [[criterion]] tables"),
    ("contract = 3\n", 1, "must be a table"),
])
def test_what_is_wrong_has_its_line(text: str, line: int, says: str, tmp_path: Path) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(SiteError) as caught:
        read_terms([path], ["node_ready", "mpi_hello", "mpi_pingpong"])
    assert str(caught.value).startswith(f"{path}:{line}: "), str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_files_are_one(tmp_path: Path) -> None:
    one = _file(tmp_path, '[contract]\ntitle = "64 nodes"\n' + PASSED)
    two = _file(tmp_path, WAIVER + 'criterion = "1"\n', "waivers.toml")
    found = read_terms([one, two], ["node_ready", "mpi_hello"])
    assert (found.contract.title, len(found.criteria), found.waivers[0].nodes) == ("64 nodes", 1, ("node03",))
    assert [name for name, _ in found.files] == ["criteria.toml", "waivers.toml"]
    with pytest.raises(SiteError, match=r"second \[contract\]"):
        read_terms([one, _file(tmp_path, '[contract]\ntitle = "b"\n', "b.toml")])


def test_only_regular_files_of_some_size(tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to(_file(tmp_path, PASSED))
    for name in ("link.toml", "none.toml", "."):
        with pytest.raises(SiteError):
            read_terms([tmp_path / name])
    with pytest.raises(SiteError, match="is larger than"):
        read_terms([_file(tmp_path, "#" * (1024 * 1024 + 1), "big.toml")])

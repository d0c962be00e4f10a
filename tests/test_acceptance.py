"""A run and its re-tests as one: what is bad becomes good only by the same test, measured later and good."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import PINGPONG, inventory
from retest_runs import FIRST, LIMITS, NODES, REDUCE, again, first, group, pair, ready, whole

from hpcadmin.acceptance_model import Acceptance, Again
from hpcadmin.acceptance_read import read_acceptance
from hpcadmin.check import Layout, Measurement, Status
from hpcadmin.report.summary import summarise
from hpcadmin.rundata import Run, TestResult, ToolFound
from hpcadmin.seal import write_seal

P = Status.PASS
F = Status.FAIL
SLOW = {("node01", "node03"): 11.0, ("node02", "node03"): 12.0, ("node03", "node04"): 13.0}


def status(run: Run, nodes: tuple[str, ...], check: str = "mpi_pingpong") -> Status:
    return max((v.status for v in run.verdicts if v.check == check and v.subject.nodes == nodes), key=lambda s: s.rank)


def acceptance(run: Run) -> Acceptance:
    assert run.acceptance is not None
    return run.acceptance


def row(run: Run, nodes: tuple[str, ...], check: str = "mpi_pingpong") -> Again:
    return next(a for a in acceptance(run).again if a.check == check and a.subject.nodes == nodes)


def repaired(folder: Path, **more: object) -> Path:
    return again(folder, 1, [pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)], **more)


def test_a_run_without_retests_is_read_as_it_is(tmp_path: Path) -> None:
    path = first(tmp_path, whole())
    assert read_acceptance(path).acceptance is None
    assert summarise(read_acceptance(path)).status == 0


def test_what_is_measured_again_and_good_counts(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    assert summarise(read_acceptance(path)).status == 1
    second = repaired(tmp_path)
    for named in (path, second):
        run = read_acceptance(named)
        assert (run.path, run.manifest.run_id) == (path, FIRST)
        assert summarise(run).status == 0, summarise(run).text
        assert summarise(run).counts == {P: 11} and not run.findings
        found = row(run, ("node01", "node03"))
        assert [(r.run, r.status) for r in found.results] == [(FIRST, F), (second.name, P)]
        assert found.before is not None and "11 MB/s" in found.before.value and "905" in found.results[-1].value
        values = sorted(m.measurement.value for m in run.measured if m.check == "mpi_pingpong")
        assert values == [900.0, 902.0, 904.0, 905.0, 905.0, 905.0]
        assert {o for v in run.verdicts for o in v.outputs if o.startswith(second.name)}
        assert run.file(f"{second.name}/jobs/2/node01.log") == second / "jobs/2/node01.log"
        assert run.file("jobs/2/node01.log") == path / "jobs/2/node01.log"


def test_what_is_not_measured_again_stays_bad(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    again(tmp_path, 1, [pair(1, ("node01", "node03"), 905.0)])
    run = read_acceptance(path)
    assert [status(run, p) for p in SLOW] == [P, F, F]
    assert summarise(run).status == 1
    assert row(run, ("node02", "node03")).remark == "not measured again"
    assert {n for f in run.findings for n in f.nodes} >= {"node03"}


def test_the_wrong_cable(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    again(tmp_path, 1, [pair(i + 1, p, 14.0) for i, p in enumerate(SLOW)])
    run = read_acceptance(path)
    assert summarise(run).status == 1 and [status(run, p) for p in SLOW] == [F, F, F]
    assert [r.value for r in row(run, ("node01", "node03")).results][1].count("14 MB/s")


def test_a_good_one_that_fails_later_is_bad(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    again(tmp_path, 1, [*(pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)), pair(9, ("node01", "node02"), 20.0)])
    run = read_acceptance(path)
    assert status(run, ("node01", "node02")) is F and summarise(run).status == 1
    assert [r.status for r in row(run, ("node01", "node02")).results] == [P, F]


def test_a_new_test_counts_only_where_it_is_bad(tmp_path: Path) -> None:
    path = first(tmp_path, [*whole(SLOW)])
    again(tmp_path, 1, [*(pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)), group(8, NODES[:3], 13.0)])
    good = read_acceptance(path)
    assert summarise(good).status == 0 and not [v for v in good.verdicts if v.subject.nodes == NODES[:3]]
    again(tmp_path, 2, [group(8, NODES[:3], 3.0)])
    assert status(read_acceptance(path), NODES[:3], "all_reduce") is F


@pytest.mark.parametrize(("result", "expected"), [
    (group(1, NODES, 12.5), P),
    (group(1, NODES[:3], 12.5), F),
    (group(1, NODES[::-1], 12.5), F),
    (group(1, NODES, 12.5, size=1 << 10), F),
    (group(1, NODES, 12.5, layout=Layout.LEAVES, device="leaf1"), P),
])
def test_a_group_is_healed_by_the_same_group_at_the_same_size_only(tmp_path: Path, result: object, expected: Status,
                                                                   ) -> None:
    path = first(tmp_path, whole(reduce=3.0))
    again(tmp_path, 1, [result])  # type: ignore[list-item]
    assert status(read_acceptance(path), NODES, "all_reduce") is expected


def test_a_pair_that_was_not_in_the_sample_adds_nothing_where_it_is_good(tmp_path: Path) -> None:
    others = [r for r in whole() if r.test.check != "mpi_pingpong"]
    path = first(tmp_path, [*others, pair(1, ("node01", "node02"), 11.0)])
    again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0), pair(2, ("node02", "node01"), 905.0)])
    assert summarise(read_acceptance(path)).counts == {P: 6}


def test_other_parameters_are_another_test(tmp_path: Path) -> None:
    path = first(tmp_path, whole({("node01", "node02"): 10.0}))
    again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0, size=7)])
    assert status(read_acceptance(path), ("node01", "node02")) is F


def test_a_value_that_was_judged_before_must_be_there_again(tmp_path: Path) -> None:
    two = pair(1, ("node01", "node02"), 10.0)
    two = replace(two, measurements=(*two.measurements, Measurement("latency", 3.0, "us")))
    path = first(tmp_path, [two])
    again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0)])
    run = read_acceptance(path)
    assert status(run, ("node01", "node02")) is F
    assert "lacks 1 value" in row(run, ("node01", "node02")).remark


def test_a_complaint_need_not_be_there_again(tmp_path: Path) -> None:
    """As of a tool that says only that a GPU is lost; a fact that is right elsewhere is none."""
    def told(name: str) -> TestResult:
        found = pair(1, ("node01", "node02"), 10.0)
        return replace(found, measurements=(Measurement(name, "lost", expected="present"),))
    path = first(tmp_path, [told("gpu")])
    again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0)])
    assert status(read_acceptance(path), ("node01", "node02")) is P
    other = replace(pair(2, ("node03", "node04"), 900.0), measurements=(
        Measurement("gpu", "present", expected="present"),))
    path = first(tmp_path / "b", [told("gpu"), other])
    again(tmp_path / "b", 1, [pair(1, ("node01", "node02"), 905.0)])
    assert status(read_acceptance(path), ("node01", "node02")) is F


@pytest.mark.parametrize("state", ["interrupted", "cancelled", "failed"])
def test_a_retest_that_did_not_end_heals_nothing(tmp_path: Path, state: str) -> None:
    path = first(tmp_path, whole(SLOW))
    again(tmp_path, 1, [*(pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)), pair(9, ("node01", "node02"), 20.0)],
          state=state, exit_status=130)
    run = read_acceptance(path)
    assert [status(run, p) for p in SLOW] == [F, F, F]
    assert status(run, ("node01", "node02")) is F                  # what it found to be bad is known
    assert any(state in note for note in run.manifest.notes)
    again(tmp_path, 2, [*(pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)), pair(9, ("node01", "node02"), 920.0)])
    assert summarise(read_acceptance(path)).status == 0


def test_a_retest_that_is_still_running_keeps_the_whole_open(tmp_path: Path) -> None:
    path = first(tmp_path, whole())
    again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0)], state="running", ended="", exit_status=None)
    found = summarise(read_acceptance(path))
    assert found.status == 3 and any("has not ended" in p for p in found.problems)


def test_a_damaged_retest_keeps_the_whole_open(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    second = repaired(tmp_path)
    text = (second / "verdicts.jsonl").read_text()
    (second / "verdicts.jsonl").write_text(text[:-20])
    run = read_acceptance(path)
    assert summarise(run).status == 1 and any(second.name in p for p in run.problems)
    assert all(status(run, p) is F for p in SLOW)


@pytest.mark.parametrize("which", [0, 1])
def test_a_run_that_was_altered_since_it_was_sealed_keeps_the_whole_open(tmp_path: Path, which: int) -> None:
    runs = [first(tmp_path, whole(SLOW)), repaired(tmp_path)]
    for run in runs:
        write_seal(run, run.name, "2026-07-30T11:00:00+02:00")
    assert summarise(read_acceptance(runs[0])).status == 0
    file = runs[which] / "verdicts.jsonl"
    file.write_text(file.read_text().replace("MB/s", "MB/s ", 1))
    found = summarise(read_acceptance(runs[0]))
    assert found.status == (1 if which else 3)          # what is good in an altered re-test does not count
    assert any("verdicts.jsonl is not as it was sealed" in p for p in found.problems)


def test_an_error_in_a_retest_heals_nothing_and_spoils_what_was_good(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    again(tmp_path, 1, [*(pair(i + 1, p, "it crashed") for i, p in enumerate(SLOW)),
                        pair(9, ("node01", "node02"), "it crashed")])
    run = read_acceptance(path)
    assert [status(run, p) for p in SLOW] == [F, F, F]
    assert status(run, ("node01", "node02")) is Status.ERROR
    assert "could not measure it" in row(run, ("node01", "node03")).remark


def test_chains_and_several_retests_count_in_the_order_of_time(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    second = again(tmp_path, 1, [pair(i + 1, p, 905.0 if i else 15.0) for i, p in enumerate(SLOW)])
    again(tmp_path, 2, [pair(1, ("node01", "node03"), 907.0)], of=second.name)
    again(tmp_path, 3, [pair(1, ("node02", "node03"), 17.0)])
    run = read_acceptance(path)
    assert [status(run, p) for p in SLOW] == [P, F, P]
    assert [r.status for r in row(run, ("node01", "node03")).results] == [F, F, P]
    assert [r.status for r in row(run, ("node02", "node03")).results] == [F, P, F]
    assert [p.run[-4:] for p in acceptance(run).parts] == ["aaaa", "bbbb", "cccc", "dddd"]


def test_runs_at_the_same_time_do_not_heal_each_other(tmp_path: Path) -> None:
    path = first(tmp_path, whole())
    again(tmp_path, 1, [pair(1, ("node01", "node02"), 15.0)], ended="2026-07-30T10:20:00+02:00")
    again(tmp_path, 2, [pair(1, ("node01", "node02"), 905.0)])
    run = read_acceptance(path)
    assert status(run, ("node01", "node02")) is F
    assert "not known to have begun after" in row(run, ("node01", "node02")).remark
    again(tmp_path, 6, [pair(1, ("node01", "node02"), 906.0)])
    assert summarise(read_acceptance(path)).status == 0


def test_times_without_zone_or_none_heal_nothing(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, started="2026-07-30T10:16:00")
    run = read_acceptance(path)
    assert summarise(run).status == 1 and any("when it was begun" in p for p in run.problems)


def test_a_retest_before_its_original_is_a_problem(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, started="2026-07-30T09:00:00+02:00", ended="2026-07-30T09:00:30+02:00")
    run = read_acceptance(path)
    assert summarise(run).status == 1 and any("before" in p for p in run.problems)
    assert all(status(run, p) is F for p in SLOW)


def test_the_original_is_not_there(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    second = repaired(tmp_path)
    shutil.rmtree(path)
    run = read_acceptance(second)
    assert run.acceptance is None and run.path == second
    assert summarise(run).status == 3 and f"what failed in {FIRST}, which is not in" in run.problems[0]
    assert not any("the manifest says" in problem for problem in summarise(run).problems)
    path.mkdir()
    (path / "manifest.json").write_text("{")
    assert "cannot be read" in read_acceptance(second).problems[0]


@pytest.mark.parametrize("text", ["", "{", None])
def test_a_retest_without_its_manifest_is_missed(tmp_path: Path, text: str | None) -> None:
    """All passed at first; what was measured since may say otherwise, and nobody can read it."""
    path = first(tmp_path, whole())
    assert summarise(read_acceptance(path)).status == 0
    later = repaired(tmp_path)
    (later / "request.json").write_text(json.dumps({"suite": "network", "retest_of": path.name}))
    (later / "manifest.json").write_text(text) if text is not None else (later / "manifest.json").unlink()
    for indexed in (None, path.parent):
        run = read_acceptance(path, indexed)
        assert summarise(run).status == 3 and any(later.name in p for p in run.problems), run.problems


def test_runs_that_repeat_each_other_in_a_circle(tmp_path: Path) -> None:
    one = again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0)], of="20260730-101700-cccc")
    two = again(tmp_path, 2, [pair(1, ("node01", "node02"), 905.0)], of=one.name)
    itself = again(tmp_path, 3, [pair(1, ("node01", "node02"), 905.0)], of="20260730-101800-dddd")
    for path in (one, two, itself):
        found = summarise(read_acceptance(path))
        assert found.status == 3 and "measures the next one again" in found.problems[0]


def test_simulated_hardware_heals_nothing_and_stamps_all(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, inv=inventory(NODES, simulated="dgx-h100"))
    found = summarise(read_acceptance(path))
    assert found.status == 1 and found.simulated == "dgx-h100"


def test_another_cluster_heals_nothing(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, cluster="showroom")
    run = read_acceptance(path)
    assert (summarise(run).status, status(run, ("node01", "node03"))) == (1, F)
    assert "it is of cluster showroom, not of lab" in acceptance(run).parts[1].why


def test_weaker_limits_heal_nothing(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, limits=(replace(PINGPONG, min=1.0), REDUCE))
    assert summarise(read_acceptance(path)).status == 0            # good by both
    again(tmp_path, 2, [pair(1, ("node01", "node02"), 50.0)], limits=(replace(PINGPONG, min=100.0), REDUCE))
    again(tmp_path, 3, [pair(1, ("node01", "node02"), 50.0)], limits=(replace(PINGPONG, min=1.0), REDUCE))
    run = read_acceptance(path)
    assert status(run, ("node01", "node02")) is F
    assert "by the limits of" in row(run, ("node01", "node02")).remark
    assert any("other limits" in note for note in run.manifest.notes)


def test_stricter_limits_count(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, limits=(replace(PINGPONG, min=1000.0), *LIMITS[1:]))
    assert all(status(read_acceptance(path), p) is F for p in SLOW)


def test_other_versions_are_told(tmp_path: Path) -> None:
    tool = ToolFound("osu_bw", NODES, "/opt/osu", "PATH", "7.3")
    path = first(tmp_path, whole(SLOW), tools=(tool,))
    repaired(tmp_path, tools=(replace(tool, version="7.4"),), version="0.2.0")
    run = read_acceptance(path)
    notes = " ".join(run.manifest.notes)
    assert "osu_bw: 7.3 in" in notes and "hpcadmin: 0.1.0 in" in notes
    assert run.plan is not None and {t.version for t in run.plan.tools} == {"7.3", "7.4"}


def with_serials(**serials: str) -> object:
    found = inventory(NODES)
    return replace(found, nodes=tuple(replace(n, serial=serials.get(n.name, f"S-{n.name}")) for n in found.nodes))


def test_a_replaced_node_must_be_measured_anew(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW), inv=with_serials())
    later = with_serials(node03="NEW")
    second = repaired(tmp_path, inv=later)
    run = read_acceptance(path)
    assert all(status(run, p) is P for p in SLOW)
    assert status(run, ("node03",), "node_ready") is Status.NOT_RUN and status(run, NODES, "all_reduce") is (
        Status.NOT_RUN)
    assert status(run, ("node01", "node02")) is P
    assert summarise(run).status == 3
    assert [(s.node, s.old, s.new) for s in acceptance(run).swaps] == [("node03", "S-node03", "NEW")]
    assert "serial S-node03 was replaced by NEW" in row(run, ("node03",), "node_ready").results[-1].value
    again(tmp_path, 2, [ready(1, "node03"), group(2, NODES, 12.0)], of=second.name, inv=later)
    healed = read_acceptance(path)
    assert summarise(healed).status == 0
    assert healed.inventory is not None and [n.serial for n in healed.inventory.nodes if n.name == "node03"] == ["NEW"]


def test_what_only_one_inventory_knows_is_no_replacement(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    repaired(tmp_path, inv=with_serials())
    run = read_acceptance(path)
    assert summarise(run).status == 0 and not acceptance(run).swaps


def test_worse_than_the_peers_is_measured_against_the_fleet(tmp_path: Path) -> None:
    values = dict.fromkeys(SLOW, 500.0)
    results = whole(values)
    path = first(tmp_path, results, limits=(REDUCE, replace(PINGPONG, min=1.0)))
    run = read_acceptance(path)
    assert [v.subject.nodes for v in run.verdicts if v.basis == "peers" and v.status is F] == [("node03",)]
    limits = {"limits": (REDUCE, replace(PINGPONG, min=1.0))}
    again(tmp_path, 1, [pair(i + 1, p, 600.0) for i, p in enumerate(SLOW)], **limits)
    assert summarise(read_acceptance(path)).status == 1            # with few others nobody accuses it any more
    again(tmp_path, 2, [pair(i + 1, p, 880.0) for i, p in enumerate(SLOW)], **limits)
    run = read_acceptance(path)
    assert summarise(run).status == 0, summarise(run).text
    assert "the others had" in next(a for a in acceptance(run).again if not a.test).results[-1].value


def test_a_node_that_could_not_be_tested_is_tested_later(tmp_path: Path) -> None:
    three = NODES[:3]
    path = first(tmp_path, whole(nodes=three), skipped=("node04",))
    assert summarise(read_acceptance(path)).status == 3
    pairs = [pair(i + 1, (n, "node04"), 900.0) for i, n in enumerate(three)]
    again(tmp_path, 1, pairs)
    assert summarise(read_acceptance(path)).status == 3            # not all of what the suite has for a node
    again(tmp_path, 2, [*pairs, ready(9, "node04")])
    run = read_acceptance(path)
    assert summarise(run).status == 0, summarise(run).text


def test_the_hostile_name_of_a_run_is_only_a_name(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    second = repaired(tmp_path)
    text = json.loads((second / "manifest.json").read_text())
    (second / "manifest.json").write_text(json.dumps({**text, "run_id": "../../etc", "retest_of": FIRST}))
    run = read_acceptance(path)
    assert acceptance(run).parts[1].run == second.name


def test_verdicts_say_the_run_they_are_of(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    second = repaired(tmp_path)
    found = acceptance(read_acceptance(path))
    assert found.run_of("t0001") == FIRST and found.run_of(f"{second.name}/t0001") == second.name

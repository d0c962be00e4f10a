"""What --retest measures again: the tests that are bad, a few good ones beside them, and nothing else."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from made_runs import names
from retest_runs import NODES, again, first, pair, ready, whole

from hpcadmin.acceptance_read import read_acceptance
from hpcadmin.check import Check, Layout, Scope
from hpcadmin.errors import UsageError
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_layouts import Sampling, turns
from hpcadmin.plan_pairs import packed
from hpcadmin.run_retest import failed_set, retest
from hpcadmin.run_session import Request
from hpcadmin.rundata import Run, Together
from hpcadmin.site import Site

Sets = dict[str, tuple[tuple[str, ...], ...]]


def sets(run: Run) -> Sets:
    return {t.check: t.nodes for t in failed_set(run).together}


def test_of_many_nodes_the_bad_pairs_and_three_more(tmp_path: Path) -> None:
    nodes = names(20)
    slow = {p: 11.0 for p in combinations(nodes, 2) if "node07" in p}
    run = read_acceptance(first(tmp_path, whole(slow, nodes=nodes)))
    found = sets(run)
    assert found.keys() == {"mpi_pingpong"}
    assert set(found["mpi_pingpong"]) == {*slow, ("node01", "node02"), ("node01", "node03"), ("node02", "node03")}
    assert failed_set(run).nodes == nodes


def test_of_a_sample_only_the_nodes_that_it_takes(tmp_path: Path) -> None:
    nodes = names(20)
    results = [r for r in whole(nodes=nodes) if r.test.check != "mpi_pingpong"]
    results += [pair(i + 1, p, 11.0 if "node07" in p else 900.0) for i, p in enumerate(
        [("node07", "node12"), ("node03", "node07"), ("node03", "node12"), ("node01", "node02")])]
    run = read_acceptance(first(tmp_path, results))
    assert failed_set(run).nodes == ("node01", "node03", "node07", "node12")
    assert {("node07", "node12"), ("node03", "node07"), ("node03", "node12")} <= set(sets(run)["mpi_pingpong"])


def test_a_node_check_is_repeated_on_its_node_and_a_group_with_all_of_its_nodes(tmp_path: Path) -> None:
    results = [ready(50, "node02", "down"), *(r for r in whole(reduce=3.0) if r.test.id != "t50002")]
    assert sets(read_acceptance(first(tmp_path, results))) == {"node_ready": (("node02",),), "all_reduce": (NODES,)}


def test_what_was_healed_is_not_measured_a_third_time(tmp_path: Path) -> None:
    slow = {("node01", "node02"): 11.0, ("node03", "node04"): 12.0}
    path = first(tmp_path, whole(slow))
    second = again(tmp_path, 1, [pair(1, ("node01", "node02"), 905.0), pair(2, ("node03", "node04"), 13.0)])
    run = read_acceptance(second)
    assert ("node01", "node02") not in sets(run)["mpi_pingpong"][:1] and sets(run)["mpi_pingpong"][0] == (
        "node03", "node04")
    assert retest(Request(), Request(), run, named=second.name).retest_of == second.name
    again(tmp_path, 2, [pair(1, ("node03", "node04"), 906.0)], of=second.name)
    with pytest.raises(UsageError, match=r"nothing failed in run .* with its re-tests"):
        retest(Request(), Request(), read_acceptance(path))


def test_a_node_that_could_not_be_tested_gets_all_that_is_for_a_node(tmp_path: Path) -> None:
    found = sets(read_acceptance(first(tmp_path, whole(nodes=NODES[:3]), skipped=("node04",))))
    assert found["node_ready"] == (("node04",),) and "all_reduce" not in found
    assert {("node01", "node04"), ("node02", "node04"), ("node03", "node04")} <= set(found["mpi_pingpong"])


def test_pairs_in_rounds() -> None:
    star = [(0, n) for n in range(1, 6)]
    found = packed([*star, (1, 2), (3, 4), (2, 1)])
    assert sorted(p for round_ in found for p in round_) == sorted([*star, (1, 2), (3, 4)])
    assert len(found) == 5
    assert all(len({n for p in round_ for n in p}) == 2 * len(round_) for round_ in found)
    assert packed([]) == []


@pytest.mark.parametrize(("scope", "layout", "expected"), [
    (Scope.PAIR, Layout.PAIRS, {("n1", "n3"), ("n2", "n3")}),
    (Scope.NODE, Layout.NODE, {("n2",)}),
    (Scope.GROUP, Layout.GROUPS, {("n1", "n3"), ("n2", "n3"), ("n1", "n2", "n3")}),
    (Scope.GROUP, Layout.LEAVES, {("n1", "n3"), ("n2", "n3"), ("n1", "n2", "n3")}),
])
def test_a_plan_has_only_these_sets(scope: Scope, layout: Layout, expected: set[tuple[str, ...]]) -> None:
    check = Check("c", "c", scope, steps=lambda context: (), parse=lambda outputs, context: [])
    nodes = ("n1", "n2", "n3", "n4")
    wanted = Together("c", (("n1", "n3"), ("n2",), ("n2", "n3"), ("n1", "n2", "n3"), ("n3", "gone")))
    found = turns(check, layout, nodes, Facts({}, site=Site()).views, Sampling("screen", together={"c": wanted.nodes}))
    assert {p.nodes for turn in found for p in turn.places} == expected  # type: ignore[union-attr]

"""Which nodes meet: disjoint rounds that leave nobody out, samples whose power is what the plan says."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looped import looped
from stepped import make_plan

from hpcadmin.check import Check, Impact, Layout, NodeView, Scope, Status, Step
from hpcadmin.errors import SiteError, UsageError
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_pairs import SCREEN, Pairs, count_of, pairs_of, power_text, sample_of, sampled
from hpcadmin.registry import Suite, SuiteEntry, load_checks, load_suite
from hpcadmin.run_plan import wanted_pairs
from hpcadmin.rundata import Plan
from hpcadmin.site import Site

LEAVES = st.lists(st.integers(0, 4), min_size=2, max_size=40)
WAYS = st.sampled_from(["all", "screen", "ring", "cross-leaf", 1, 2, 5, 100])
CHECKS = {
    "pp": Check("pp", "Pairs", Scope.PAIR, lambda c: (Step(("/bin/true",)),), lambda o, c: [], impact=Impact.LOAD),
    "all": Check("all", "All", Scope.GROUP, lambda c: (Step(("/bin/true",)),), lambda o, c: [], impact=Impact.LOAD,
                 layouts=(Layout.ALL, Layout.LEAVES, Layout.GROUPS)),
    "node": Check("node", "Node", Scope.NODE, lambda c: (Step(("/bin/true",)),), lambda o, c: [], impact=Impact.LOAD)}


@given(LEAVES, WAYS, st.integers(0, 2**32))
def test_rounds_are_disjoint_and_leave_nobody_out(leaves: list[int], pairs: Pairs, seed: int) -> None:
    found = sampled(leaves, pairs, seed)
    several = len(set(leaves)) > 1
    for round_ in found:
        used = [place for pair in round_ for place in pair]
        assert len(used) == len(set(used)) and all(a < b for a, b in round_)
    if pairs == "cross-leaf" and not several:
        assert found == []
        return
    assert {place for round_ in found for pair in round_ for place in pair} == set(range(len(leaves)))
    if pairs == "all":
        assert sorted(p for r in found for p in r) == sorted(combinations(range(len(leaves)), 2))
    if pairs == "cross-leaf":
        met = {frozenset((leaves[a], leaves[b])) for r in found for a, b in r}
        assert met == {frozenset(pair) for pair in combinations(set(leaves), 2)}
    if isinstance(pairs, int):
        assert len(found) == count_of(len(leaves), pairs)
        assert len({p for r in found for p in r}) == sum(map(len, found))     # no two meet twice


def test_another_seed_lets_others_meet_and_the_same_one_the_same() -> None:
    leaves = [0] * 50
    assert sampled(leaves, 3, 7) == sampled(leaves, 3, 7) != sampled(leaves, 3, 8)
    met = {pair for seed in range(30) for round_ in sampled(leaves, 8, seed) for pair in round_}
    assert len(met) > 0.97 * 50 * 49 / 2        # 1 - (1 - 8/49)^30 = 0.995 of them


def test_few_rounds_meet_all_paths_of_a_large_cluster() -> None:
    leaves = [i // 32 for i in range(4096)]
    found = sampled(leaves, "cross-leaf", 1)
    sample = sample_of(("pp",), "cross-leaf", found, leaves)
    assert (sample.paths, sample.paths_met, sample.nodes_met) == (8128, 8128, 4096)
    assert len(found) <= 5
    assert all(leaves[a] != leaves[b] for round_ in found for a, b in round_)


@pytest.mark.parametrize("sizes", [(6, 5, 5), (8, 8), (4, 4, 4, 4), (18, 16, 14), (32,) * 8])
def test_a_screen_lets_every_node_meet_four_others(sizes: tuple[int, ...]) -> None:
    leaves = [number for number, size in enumerate(sizes) for _ in range(size)]
    for seed in range(20):
        sample = sample_of((), "screen", sampled(leaves, "screen", seed), leaves)
        assert (sample.rounds, sample.partners_most, sample.paths_met) == (4, 4, sample.paths)
        assert sample.partners_least >= 3 + (len(set(sizes)) == 1)


def test_a_ring_follows_the_switches() -> None:
    assert sampled([None] * 4, "ring", 0) == [[(0, 1), (2, 3)], [(0, 3), (1, 2)]]
    assert sampled(["b", "a", "b", "a"], "ring", 0) == [[(0, 2), (1, 3)], [(0, 3), (1, 2)]]
    assert [len(r) for r in sampled([None] * 5, "ring", 0)] == [2, 2, 1]


@given(LEAVES, st.sampled_from(["screen", 1, 3]), st.integers(0, 99))
def test_the_stated_power_is_what_one_fault_meets(leaves: list[int], pairs: Pairs, seed: int) -> None:
    found = sampled(leaves, pairs, seed)
    sample = sample_of(("pp",), pairs, found, leaves)
    bad = [any(place in pair for r in found for pair in r) for place in range(len(leaves))]
    paths = list(combinations(sorted(set(leaves)), 2))
    links = [any({leaves[a], leaves[b]} == set(path) for r in found for a, b in r) for path in paths]
    assert (sum(bad), sum(links), len(paths)) == (sample.nodes_met, sample.paths_met, sample.paths)
    if pairs == "screen":
        assert sample.rounds <= SCREEN + 1


def test_the_power_in_words() -> None:
    leaves = ["l1", "l1", "l2", "l2", "l3", "l3"]
    sample = sample_of(("pp",), 1, [[(0, 1), (2, 4), (3, 5)]], leaves)
    assert power_text(sample) == ("pairs = 1: 1 round, each node meets 1 of 5 others, one bad node is met for certain, "
                                  "one bad path between two leaf switches with 33 % probability (1 of 3 paths)")


@looped(("text", "value"), [("all", "all"), ("cross-leaf", "cross-leaf"), ("16", 16), (16, 16),
                                             ("0", None), ("-1", None), ("", None), ("٣", None), ("few", None),
                                             (True, None), (1.5, None), ("9" * 30, None)])
def test_pairs_as_they_are_written(text: object, value: "Pairs | None") -> None:
    assert pairs_of(text) == value


def test_the_command_line_and_suites_name_what_there_is(tmp_path: Path) -> None:
    suite = Suite("s", "s", ())
    assert wanted_pairs(suite, "ring").pairs == "ring" and wanted_pairs(suite, "") is suite
    with pytest.raises(UsageError, match="--pairs 'few'"):
        wanted_pairs(suite, "few")
    file = tmp_path / "x.toml"
    file.write_text('pairs = "screen"\n[[entry]]\ncheck = "mpi_pingpong"\n')
    assert load_suite(str(file), Site(), load_checks()).pairs == "screen"
    file.write_text('pairs = "16"\n[[entry]]\ncheck = "mpi_pingpong"\n')
    with pytest.raises(SiteError, match='"cross-leaf" or the number'):
        load_suite(str(file), Site(), load_checks())


# --- in plans ---------------------------------------------------------------------------------------------------


def plan_of(count: int, *over: SuiteEntry, pairs: Pairs = "all", leaf: int = 0, **more: int) -> Plan:
    names = [f"n{i:02d}" for i in range(count)]
    levels = ({n: f"leaf{i // leaf}" for i, n in enumerate(names)},
              {n: f"pod{i // (2 * leaf)}" for i, n in enumerate(names)}) if leaf else ()
    facts = Facts({n: NodeView(n) for n in names}, switches=levels)
    return make_plan(Suite("s", "s", over or (SuiteEntry(("pp",)),), pairs=pairs), CHECKS, facts, names, **more)


def test_a_plan_says_its_sample_and_seed() -> None:
    plan = plan_of(8, pairs=2, leaf=4, seed=5)
    assert plan.seed == 5 and len(plan.tests) == 8
    assert [(s.checks, s.rounds, s.partners_least) for s in plan.pairs] == [(("pp",), 2, 2)]
    assert plan.notes[0].startswith("pairs = 2: 2 rounds, each node meets 2 of 7 others")
    assert plan_of(8).notes == ()


def test_pairs_across_leaves_need_leaves() -> None:
    plan = plan_of(4, pairs="cross-leaf")
    assert plan.tests == () and {v.status for v in plan.verdicts} == {Status.NOT_RUN}
    assert "needs two leaf switches" in plan.verdicts[0].reason
    assert {frozenset((int(a[1:]) // 2, int(b[1:]) // 2)) for a, b in (
        t.subject.nodes for t in plan_of(4, pairs="cross-leaf", leaf=2).tests)} == {frozenset((0, 1))}


def test_groups_grow_by_leaf_and_pod_to_all() -> None:
    plan = plan_of(8, SuiteEntry(("all",), over=(Layout.LEAVES,)), leaf=2)
    stages = plan.jobs[0].stages
    assert [(s.name, len(s.tests)) for s in stages] == [
        ("all each leaf switch", 4), ("all each switch of level 2", 2), ("all 8 nodes", 1)]
    assert Counter(len(t.subject.nodes) for t in plan.tests) == {2: 4, 4: 2, 8: 1}
    assert str(plan.tests[0].subject) == "n00 - n01 leaf0"
    lone = plan_of(4, SuiteEntry(("all",), over=(Layout.LEAVES,)))
    assert [len(t.subject.nodes) for t in lone.tests] == [4] and "not known" in lone.verdicts[0].reason


@pytest.mark.parametrize("at_once", [2, 3, 5, 8])
def test_no_more_nodes_than_that_are_under_load_at_once(at_once: int) -> None:
    every = (SuiteEntry(("node",)), SuiteEntry(("pp",)), SuiteEntry(("all",), over=(Layout.GROUPS,)))
    plan = plan_of(8, *every, at_once=at_once)
    assert plan.at_once == at_once
    by_id = {t.id: t for t in plan.tests}
    for stage in plan.jobs[0].stages:
        used = [n for i in stage.tests for n in by_id[i].subject.nodes]
        assert len(used) == len(set(used)) <= at_once
        for test in (by_id[i] for i in stage.tests):
            assert test.pairs_at_once in (None, len(stage.tests))
    assert Counter(t.check for t in plan.tests)["pp"] == 28 and Counter(t.check for t in plan.tests)["node"] == 8
    lost = [v for v in plan.verdicts if v.check == "all"]
    assert bool(lost) == (at_once < 8) and all("--at-once" in v.reason for v in lost)


def test_what_destroys_needs_a_yes_and_a_directory() -> None:
    def reason(directory: str, *, yes: bool) -> str:
        wipe = Check("wipe", "Wipe", Scope.NODE, lambda c: (Step(("/bin/true",)),), lambda o, c: [],
                     impact=Impact.DESTRUCTIVE, params={"directory": ""})
        entry = SuiteEntry(("wipe",), {"wipe": {"directory": directory}} if directory else {})
        plan = make_plan(Suite("s", "s", (entry,)), {"wipe": wipe}, Facts({"n1": NodeView("n1")}), ["n1"], yes=yes)
        assert bool(plan.tests) != bool(plan.verdicts)
        return plan.entries[0].reason
    assert "--yes" in reason("/scratch/hpcadmin", yes=False)
    for wrong in ("", "/", "/scratch", "scratch/x", "/scratch/../etc"):
        assert "params.directory" in reason(wrong, yes=True)
    assert not reason("/scratch/hpcadmin", yes=True)

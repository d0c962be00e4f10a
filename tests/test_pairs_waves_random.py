"""Pairs and waves by chance: what rounds, samples and schedules promise, on many random clusters."""

import random
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looped import looped
from test_waves import Cluster, check_whole, ideal, scheduled

from hpcadmin.plan_pairs import Pairs, count_of, power_text, rounds, sample_of, sampled

LEAVES = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=2, max_size=40)
WAYS = st.sampled_from(["all", "screen", "ring", "cross-leaf", 1, 2, 3, 8])


@looped("count", [*range(2, 20), 63, 64])
def test_all_pairs_once_in_as_few_rounds_as_can_be(count: int) -> None:
    found = list(rounds(range(count)))
    assert len(found) == count_of(count) == (count - 1 if count % 2 == 0 else count)
    assert sorted(pair for round_ in found for pair in round_) == list(combinations(range(count), 2))
    out = Counter(n for round_ in found for n in set(range(count)) - {x for pair in round_ for x in pair})
    assert out == Counter(dict.fromkeys(range(count), 1) if count % 2 else {}), "of an odd number each sits out once"


@given(LEAVES, WAYS, st.integers(0, 2**32))
def test_nodes_whose_switch_is_not_known_are_left_out_by_no_sample(leaves: "list[str | None]", pairs: Pairs, seed: int,
                                                                  ) -> None:
    found = sampled(leaves, pairs, seed)
    for round_ in found:
        used = [place for pair in round_ for place in pair]
        assert len(used) == len(set(used)) and all(a < b for a, b in round_)
    met = {place for round_ in found for pair in round_ for place in pair}
    if found or pairs != "cross-leaf":
        assert met == set(range(len(leaves)))
    taken = {frozenset((leaves[a], leaves[b])) for round_ in found for a, b in round_}
    if pairs == "cross-leaf" and found:
        assert taken >= {frozenset(path) for path in combinations(set(leaves) - {None}, 2)}


@pytest.mark.parametrize(("count", "leaf", "pairs"), [(12, 3, 2), (24, 4, 1), (30, 5, "screen"), (16, 16, 3)])
def test_what_a_sample_says_of_one_fault_is_what_it_meets(count: int, leaf: int, pairs: Pairs) -> None:
    """A fault is drawn, as it may be anywhere: so often as the sample says a test runs over it."""
    leaves = [i // leaf for i in range(count)]
    found = sampled(leaves, pairs, 7)
    sample = sample_of(("c",), pairs, found, leaves)
    tests = [pair for round_ in found for pair in round_]
    draw = random.Random(3)  # noqa: S311
    paths = list(combinations(range(count // leaf), 2))
    tries = 4000
    nodes = sum(any(bad in pair for pair in tests) for bad in (draw.randrange(count) for _ in range(tries))) / tries
    assert abs(nodes - sample.nodes_met / count) < 0.03
    if paths:
        links = sum(any({leaves[a], leaves[b]} == set(bad) for a, b in tests)
                    for bad in (draw.choice(paths) for _ in range(tries))) / tries
        assert abs(links - sample.paths_met / sample.paths) < 0.03
        assert f"({sample.paths_met} of {len(paths)} paths)" in power_text(sample)
    else:
        assert "path" not in power_text(sample)


def checked(count: int, seed: int, span: float, most: int) -> "tuple[float, float]":
    draw = random.Random(f"{count} {seed} {span}")  # noqa: S311
    schedule = scheduled(count, most)
    times = {n: draw.choice([0.0, draw.uniform(0, span * count / 4)]) for n in schedule.job.nodes}
    cluster = Cluster(schedule, dict(times))
    total = cluster.go()
    check_whole(cluster, most)
    return total, ideal(list(times.values()))


@pytest.mark.parametrize("count", [3, 5, 8, 12])
def test_few_nodes_that_become_free_at_random(count: int) -> None:
    """Starts of jobs weigh more than anything here: a few of them more than could be are allowed."""
    for seed in range(2):
        for span in (1.0, 10.0):
            total, best = checked(count, seed, span, most=2 + 6 * seed)
            assert total <= max(1.2 * best, best + 4.5), (seed, span, total, best)


@pytest.mark.deep
@pytest.mark.parametrize("count", [16, 17, 24, 33, 64])
def test_many_nodes_that_become_free_at_random(count: int) -> None:
    for span in (0.5, 4.0, 40.0) if count < 64 else (4.0,):
        total, best = checked(count, 1, span, most=8)
        assert total <= 1.2 * best, (span, total, best)

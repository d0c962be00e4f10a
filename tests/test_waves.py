"""Waves on a simulated cluster in use: every test exactly once, never too many jobs, hardly later than it must be."""

import random
from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest
from looped import looped

from hpcadmin.check import Layout, Step, Subject
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage
from hpcadmin.waves import Ours, Schedule, State, Turn, Wave, duration, not_run_words, with_wave

START_S = PAIR_S = NODE_S = 1.0
USUAL = {"node": NODE_S, "pp": PAIR_S, "all": 2.0}
STEP = 0.25


def rounds(names: "tuple[str, ...]") -> "list[list[tuple[str, str]]]":
    """Every pair once, in disjoint rounds (circle method)."""
    ring: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    found = []
    for _ in ring[1:]:
        both = zip(ring[:len(ring) // 2], reversed(ring[len(ring) // 2:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in both if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def group_sizes(count: int) -> "list[int]":
    return [*(s for s in (2, 4, 8, 16, 32) if s < count), count]


def suite_job(count: int, *, checks: bool = True, groups: bool = False,
              after: bool = False) -> "tuple[PlannedJob, dict[str, PlannedTest]]":
    """Node checks, all pairs in rounds, and as wanted groups that grow and a look after the load."""
    names = tuple(f"n{i:02d}" for i in range(count))
    tests: dict[str, PlannedTest] = {}

    def add(check: str, nodes: "tuple[str, ...]", **more: object) -> str:
        number = f"t{len(tests) + 1:04d}"
        tests[number] = PlannedTest(number, check, Subject(nodes), (Step(("true",), nodes=nodes),), 2,
                                    **more)  # type: ignore[arg-type]
        return number
    stages = [Stage("nodes", "node checks", tuple(
        add("node", (n,), when="before" if after else "") for n in names))] if checks else []
    parts = list(rounds(names))
    stages += [Stage("round", f"pp round {k} of {len(parts)}", tuple(
        add("pp", p, pairs_at_once=len(part), layout=Layout.PAIRS) for p in part)) for k, part in enumerate(parts, 1)]
    if groups:
        stages += [Stage("group", f"all {size}", (add("all", names[:size]),)) for size in group_sizes(count)]
    if after:
        stages.append(Stage("nodes", "after the load", tuple(
            add("node", (n,), when="after", before=stages[0].tests[i]) for i, n in enumerate(names))))
    seconds = NODE_S * (checks + after) + len(parts) * PAIR_S + (2.0 * len(group_sizes(count)) if groups else 0.0)
    return PlannedJob(2, "suite", names, tuple(stages), seconds, 600), tests


@dataclass
class Running:
    wave: Wave
    submitted: float
    ends: "float | None" = None


@dataclass
class Cluster:
    """Nodes that others use until `busy`, and take again now and then; jobs begin when all their nodes are free."""

    schedule: Schedule
    busy: "dict[str, float]"
    takes: "random.Random | None" = None
    late_after: "float | None" = None
    now: float = 0.0
    since: float = 0.0
    queue: "dict[int, Running]" = field(default_factory=dict)
    ran: "list[str]" = field(default_factory=list)
    submitted: int = 0
    most: int = 0
    number: int = 100
    pairs_at_once: "dict[str, int | None]" = field(default_factory=dict)
    order: "list[Wave]" = field(default_factory=list)

    @property
    def running(self) -> "set[str]":
        return {n for r in self.queue.values() if r.ends is not None for n in r.wave.job.nodes}

    def free(self) -> "frozenset[str]":
        return frozenset(n for n, until in self.busy.items() if until <= self.now) - self.running

    def state(self) -> State:
        ours = tuple(Ours(k, frozenset(r.wave.job.nodes), frozenset(r.wave.tests), r.ends is not None,
                          self.now - r.submitted) for k, r in self.queue.items())
        return State(self.now, self.free(), self.number, frozenset(self.ran), ours, since=self.since,
                     late=self.late_after is not None and self.now > self.late_after)

    def advance(self) -> None:
        for key, r in list(self.queue.items()):
            if r.ends is not None and r.ends <= self.now + 1e-9:
                del self.queue[key]
                self.ran += [i for s in r.wave.job.stages for i in s.tests]
                self.since = self.since if r.wave.awaits else self.now
        for r in self.queue.values():
            if r.ends is None and set(r.wave.job.nodes) <= self.free():
                r.ends = self.now + START_S + r.wave.job.seconds
        if self.takes is not None:
            for node in sorted(self.free()):
                if self.takes.random() < 0.01:
                    self.busy[node] = self.now + self.takes.uniform(1, 30)

    def submit(self, turn: Turn) -> None:
        for key in turn.cancel:
            assert self.queue[key].ends is None, "only what waits is withdrawn"
            del self.queue[key]
        for wave in turn.submit:
            used = [n for r in self.queue.values() for n in r.wave.job.nodes]
            assert not set(used) & set(wave.job.nodes), "no node is in two of our jobs"
            assert len(set(wave.job.nodes)) == len(wave.job.nodes)
            inside = {n for i in wave.tests for n in wave.tests[i].subject.nodes}
            assert inside == set(wave.job.nodes) <= set(self.schedule.job.nodes)
            for stage in wave.job.stages:
                nodes = [n for i in stage.tests for n in wave.tests[i].subject.nodes]
                assert stage.kind == "nodes" or len(nodes) == len(set(nodes)), "side by side, never on one node"
                self.pairs_at_once.update((i, wave.tests[i].pairs_at_once) for i in stage.tests)
                if stage.kind == "round":
                    assert {wave.tests[i].pairs_at_once for i in stage.tests} == {len(stage.tests)}
            self.number = max(self.number, wave.job.number + 1)
            self.queue[wave.job.number] = Running(wave, self.now)
            self.order.append(wave)
            self.since = self.since if wave.awaits else self.now
            self.submitted += 1
        self.most = max(self.most, len(self.queue))

    def go(self, limit: float = 5000.0) -> float:
        while self.now < limit:
            self.advance()
            turn = self.schedule.next(self.state())
            while turn.cancel:
                self.submit(turn)
                turn = self.schedule.next(self.state())
            self.submit(turn)
            self.advance()
            if not self.queue and not self.schedule.open(self.state()):
                return self.now
            if not self.queue and self.state().late and not turn.submit:
                return self.now
            self.now += STEP
        raise AssertionError(f"not done: {self.schedule.open(self.state())[:3]}, {self.queue}")


def ideal(free_at: "list[float]") -> float:
    """No schedule can be faster: whoever comes k-th, all pairs with those from there on are still to be made, and the
    last one must meet every other, one pair a second; a job must start, and its node checks run, before."""
    count = len(free_at)
    every = count - 1 if count % 2 == 0 else count
    best = 0.0
    for k, when in enumerate(sorted(free_at)):
        left = count * (count - 1) // 2 - k * (k - 1) // 2
        best = max(best, when + START_S + NODE_S + PAIR_S * -(-left // (count // 2)))
    return max(best, max(free_at) + START_S + NODE_S + PAIR_S * (count - 1), START_S + NODE_S + PAIR_S * every)


def scheduled(count: int, most: int = 8, **more: bool) -> Schedule:
    job, tests = suite_job(count, **more)
    return Schedule(job, tests, USUAL, most)


def check_whole(cluster: Cluster, most: int) -> None:
    tests = cluster.schedule.tests
    assert sorted(cluster.ran) == sorted(tests), "every test exactly once"
    assert cluster.most <= most


def test_all_nodes_free_is_the_one_job_of_the_plan() -> None:
    schedule = scheduled(8, groups=True)
    cluster = Cluster(schedule, dict.fromkeys(schedule.job.nodes, 0.0))
    total = cluster.go()
    assert [w.job for w in cluster.order] == [schedule.job]
    assert total <= START_S + schedule.job.seconds + STEP


@looped("most", [2, 3, 8])
@looped("gap", [0.3, 1.0, 3.0, 10.0])
@looped("seed", range(3))
def test_eight_nodes_that_become_free_one_by_one(seed: int, gap: float, most: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    schedule = scheduled(8, most=most)
    order = list(schedule.job.nodes)
    rng.shuffle(order)
    times = {n: i * gap * (1 if seed == 0 else rng.uniform(0.5, 1.5)) for i, n in enumerate(order)}
    cluster = Cluster(schedule, times)
    total = cluster.go()
    check_whole(cluster, most)
    assert total <= 1.2 * ideal(list(times.values())), (total, ideal(list(times.values())))


@looped("gap", [0.3, 1.0, 3.0, 10.0])
@looped("seed", range(3))
def test_pairs_alone_on_nodes_that_become_free_one_by_one(seed: int, gap: float) -> None:
    """A job that awaits two nodes must not keep the one that comes early from all others."""
    rng = random.Random(seed)  # noqa: S311
    schedule = scheduled(16, checks=False)
    order = list(schedule.job.nodes)
    if seed:
        rng.shuffle(order)
    times = {n: i * gap for i, n in enumerate(order)}
    cluster = Cluster(schedule, times)
    total = cluster.go()
    check_whole(cluster, schedule.most)
    best = ideal(list(times.values())) - NODE_S
    assert total <= 1.2 * best, (total, best, cluster.submitted)
    assert cluster.submitted <= 8 * 16, "no job is withdrawn only to be submitted again"


@looped("span", [1, 3, 30])
@looped("seed", range(5))
def test_eight_nodes_that_become_free_at_random(seed: int, span: float) -> None:
    rng = random.Random(seed)  # noqa: S311
    schedule = scheduled(8, rng.choice([2, 3, 5, 8]))
    times = {n: rng.expovariate(1 / span) for n in schedule.job.nodes}
    cluster = Cluster(schedule, times)
    total = cluster.go()
    check_whole(cluster, schedule.most)
    assert total <= 1.2 * ideal(list(times.values())), (total, ideal(list(times.values())))


@pytest.mark.deep
@pytest.mark.parametrize("free_at", ["together but one", "one by one", "slowly", "halves", "random"])
def test_sixty_four_nodes_that_become_free(free_at: str) -> None:
    rng = random.Random(free_at)  # noqa: S311
    schedule = scheduled(64)
    names = list(schedule.job.nodes)
    rng.shuffle(names)
    every = range(64)
    when = {"together but one": [1.5 * (i > 62) for i in every], "one by one": [float(i) for i in every],
            "slowly": [5.0 * i for i in every], "halves": [7.0 * (i > 31) for i in every],
            "random": [rng.uniform(0, 200) for _ in every]}[free_at]
    times = dict(zip(names, when, strict=True))
    cluster = Cluster(schedule, times)
    total = cluster.go()
    check_whole(cluster, 8)
    assert total <= 1.2 * ideal(list(times.values())), (total, ideal(list(times.values())), cluster.submitted)


@pytest.mark.parametrize("count", [2, 5, 8])
@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in range(1, 4))])
def test_nodes_that_are_taken_away_again(seed: int, most: int, count: int) -> None:
    rng = random.Random(seed * 100 + count)  # noqa: S311
    schedule = scheduled(count, most, groups=True, after=True)
    cluster = Cluster(schedule, {n: rng.uniform(-10, 40) for n in schedule.job.nodes}, takes=rng)
    cluster.go()
    check_whole(cluster, most)
    places = {i: k for k, w in enumerate(cluster.order) for i in w.tests}   # groups after the pairs of their nodes
    for group in (t for t in schedule.tests.values() if t.check == "all"):
        inside = set(group.subject.nodes)
        assert all(places[t.id] <= places[group.id] for t in schedule.tests.values()
                   if t.check == "pp" and set(t.subject.nodes) <= inside)
    for last in (t for t in schedule.tests.values() if t.when == "after"):
        mine = [t for t in schedule.tests.values() if last.subject.nodes[0] in t.subject.nodes]
        assert places[last.id] == max(places[t.id] for t in mine)


def test_nobody_is_waited_for_longer_than_told() -> None:
    schedule = scheduled(5, groups=True)
    times = dict.fromkeys(schedule.job.nodes, 0.0) | {"n03": 1e9}
    cluster = Cluster(schedule, times, late_after=60.0)
    total = cluster.go()
    assert 60 < total < 65
    left = [schedule.tests[i] for i in schedule.unfinished(cluster.state())]
    assert left
    assert all("n03" in t.subject.nodes for t in left)
    assert len([t for t in left if t.check == "pp"]) == 4
    assert sorted(cluster.ran) == sorted(i for i, t in schedule.tests.items() if "n03" not in t.subject.nodes)


def test_a_lost_node_is_in_no_job_any_more() -> None:
    schedule = scheduled(4)
    state = State(50.0, frozenset({"n00", "n01", "n02", "n03"}), 7, lost=frozenset({"n02"}))
    turn = schedule.next(replace(state, free=state.free - {"n02"}))
    assert [w.job.nodes for w in turn.submit] == [("n00", "n01", "n03")]
    assert len([i for i in turn.submit[0].tests if schedule.tests[i].check == "pp"]) == 3
    waiting = Ours(3, frozenset({"n02"}), frozenset({"t0003"}))
    assert schedule.next(replace(state, ours=(waiting,))).cancel == (3,)


def test_a_wave_whose_nodes_somebody_else_got_is_withdrawn() -> None:
    schedule = scheduled(4)
    whole = Ours(2, frozenset(schedule.job.nodes), frozenset(schedule.tests), waits_s=61.0)
    state = State(70.0, frozenset(schedule.job.nodes) - {"n01"}, 7, ours=(whole,))
    assert schedule.next(state).cancel == (2,)
    assert schedule.next(replace(state, ours=(replace(whole, waits_s=10.0),))) == Turn()
    assert schedule.next(replace(state, ours=(replace(whole, begun=True),))) == Turn()


def test_waiting_jobs_make_room_for_what_can_run_now() -> None:
    schedule = scheduled(4, most=1)
    waiting = Ours(3, frozenset({"n03"}), frozenset({"t0004"}))
    state = State(50.0, frozenset({"n00", "n01"}), 7, ours=(waiting,))
    assert schedule.next(state) == Turn(cancel=(3,))
    assert schedule.next(replace(state, ours=())).submit[0].job.nodes == ("n00", "n01")


def test_the_plan_always_says_which_job_has_a_test() -> None:
    schedule = scheduled(4)
    plan = Plan("s", schedule.job.nodes, (), tuple(schedule.tests.values()), (schedule.job,))
    assert with_wave(plan, Wave(schedule.job, schedule.tests)) == plan
    state = State(50.0, frozenset({"n00", "n01", "n02"}), 7, late=True)
    wave = schedule.next(state).submit[0]
    after = with_wave(plan, wave)
    assert [j.number for j in after.jobs] == [2, 7]
    assert {t.job for t in after.tests if "n03" not in t.subject.nodes} == {7}
    assert sorted(i for j in after.jobs for s in j.stages for i in s.tests) == sorted(schedule.tests)
    left = [t for t in after.tests if t.job == 2 and len(t.subject.nodes) == 2]
    assert left and all(t.pairs_at_once == 1 for t in left)                 # who was beside them is in the other job
    kept = with_wave(plan, wave, settled={left[0].id}).tests
    assert {t.pairs_at_once for t in kept if t.id == left[0].id} == {2}     # it was measured before that
    rest = {i: t for i, t in schedule.tests.items() if "n03" in t.subject.nodes}
    last = Wave(PlannedJob(8, "suite", plan.nodes, (Stage("nodes", "rest", tuple(rest)),)), rest)
    assert [j.number for j in with_wave(after, last).jobs] == [7, 8]


def test_what_runs_beside_a_load_stays_with_it() -> None:
    names = ("a", "b", "c")
    tests = {f"t{i}": PlannedTest(f"t{i}", check, Subject((n,)), (), 1) for i, (check, n) in enumerate(
        [("nccl", "a"), ("nccl", "b"), ("nccl", "c"), ("pcie", "a"), ("pcie", "b"), ("pcie", "c")])}
    job = PlannedJob(1, "suite", names, (Stage("round", "nccl within each node", tuple(tests)),), 5.0)
    wave = Schedule(job, tests).next(State(100.0, frozenset({"a", "c"}), 2)).submit[0]
    assert wave.job.stages == (Stage("round", "nccl within each node", ("t0", "t2", "t3", "t5")),)


def test_words() -> None:
    assert [duration(s) for s in (7200, 5400, 30, 660, 90)] == ["2 h", "90 min", "30 s", "11 min", "90 s"]
    assert not_run_words(["n1"], 7200) == "n1 not free within 2 h"
    assert not_run_words(["n1", "n2"], 7200) == "n1 and n2 not free at one time within 2 h"
    assert not_run_words(["a", "b", "c"], 60) == "3 nodes not free at one time within 1 min"
    assert not_run_words(["a", "b"], 60, {"b": "drained: fan"}) == "b is drained: fan"


def test_pairs_of_a_wave_are_all_pairs_of_its_nodes_in_few_rounds() -> None:
    schedule = scheduled(16)
    here = frozenset(schedule.job.nodes[::3])
    wave = schedule.next(State(1e6, here, 9, late=True)).submit[0]
    pairs = {frozenset(wave.tests[i].subject.nodes) for i in wave.tests if wave.tests[i].check == "pp"}
    assert pairs == {frozenset(p) for p in combinations(here, 2)}
    assert len([s for s in wave.job.stages if s.kind == "round"]) <= 7
    assert wave.job.stages[1].name.startswith("pp round 1 of ")


def test_what_tests_take_is_learnt_from_those_that_were_made() -> None:
    schedule = scheduled(8)
    assert schedule.knowing({"pp": 1.4 * PAIR_S, "node": 0.7 * NODE_S}) is schedule, "about as it was thought"
    slower = schedule.knowing({"pp": 10.0})
    assert slower.whole_s == pytest.approx(START_S + NODE_S + 7 * 10.0)
    assert slower.longest_s == 10.0 > schedule.longest_s
    assert slower.job is schedule.job
    quicker = slower.knowing({"pp": 0.1})
    assert quicker.whole_s == pytest.approx(START_S + NODE_S + 7 * 0.1)
    here = frozenset(schedule.job.nodes[:4])
    (wave,) = quicker.next(State(100.0, here, 9)).submit
    assert wave.job.seconds < 2 * NODE_S


def test_a_job_that_awaits_two_nodes_gives_the_one_back_that_others_can_meet() -> None:
    schedule = scheduled(4, checks=False)
    (far,) = (i for i, t in schedule.tests.items() if t.subject.nodes == ("n00", "n03"))
    waits = Ours(5, frozenset({"n00", "n03"}), frozenset({far}), waits_s=1.0)

    def turn(*free: str, ours: Ours = waits, **more: object) -> Turn:
        return schedule.next(State(10.0, frozenset(free), 9, ours=(ours,), **more))  # type: ignore[arg-type]
    assert turn("n00", "n01").cancel == (5,)
    assert turn("n00").cancel == () == turn("n01", "n02").cancel, "nobody is there to meet"
    assert turn("n00", "n01", "n03").cancel == (), "it begins at once"
    (near,) = (i for i, t in schedule.tests.items() if t.subject.nodes == ("n00", "n01"))
    assert turn("n00", "n01", settled=frozenset({near})).cancel == (), "they have met"
    assert turn("n00", "n01", ours=replace(waits, begun=True)).cancel == ()


def test_what_comes_after_the_load_costs_nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """On many nodes the schedule is asked often: what cannot be run yet is not worked out for each node."""
    schedule = scheduled(12, after=True)
    calls: list[int] = []
    eligible = Schedule._eligible
    monkeypatch.setattr(Schedule, "_eligible", lambda self, *units: calls.append(1) or eligible(self, *units))
    checked = frozenset(i for i, t in schedule.tests.items() if t.check == "node" and t.when == "before")
    turn = schedule.next(State(1000.0, frozenset(), 3, settled=checked))
    assert [len(w.job.nodes) for w in turn.submit] == [2] * len(turn.submit) != []
    assert len(calls) <= len(turn.submit) + 2

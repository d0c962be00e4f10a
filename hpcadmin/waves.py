"""Which nodes get a job now, on a cluster in use: a suite's job in waves over the nodes that are free. Pure.

Schedule(job, tests, …).next(state) says which jobs to submit and which waiting ones to withdraw. While every node is
free that is the plan's own job, whole. Else each wave has the nodes that are free now, with their node checks and all
pairs among them; the other nodes are awaited by small jobs in the queue; pairs whose nodes are never free at one time
get jobs of their own; groups come last. No node is in two of our jobs, and no more than `most` are in the queue.

A wave is short while nodes are still to come, and the first one waits a little: the node that comes last must meet all
others, so that whatever runs when it comes delays the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.plan import stage_seconds, time_limit_min
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest, Stage
from hpcadmin.text import plural
from hpcadmin.waves_units import Unit, name_of, rounds_of, series_of, units_of

START_S = 1.0           # from the submission of a job to its first step, where its nodes are free
SHARE = 0.1             # of the whole suite's time that a wave may take while nodes are still to come
PATIENCE_S = 60.0       # that a wave may wait for nodes that were free: then somebody else has got them
MOST_JOBS = 8


@dataclass(frozen=True)
class Ours:
    """A job of ours that is not over."""

    number: int
    nodes: frozenset[str]
    tests: frozenset[str]
    begun: bool = False
    waits_s: float = 0.0            # since it was submitted, while it has not begun


@dataclass(frozen=True)
class State:
    """What is known now. All names are of nodes that the plan tests; others are never touched."""

    now: float
    free: frozenset[str]                        # a job could begin there at once; also those of our jobs that only wait
    number: int                                 # of the next job
    settled: frozenset[str] = frozenset()       # tests that have a result, whatever it is
    ours: tuple[Ours, ...] = ()
    lost: frozenset[str] = frozenset()          # nodes that no job can use any more
    since: float = 0.0                          # the last time that a wave was submitted or ended, or the run began
    late: bool = False                          # nobody is waited for any more: only what is free now


@dataclass(frozen=True)
class Wave:
    """A job to be submitted. tests: as they are in it, job and pairs at once included."""

    job: PlannedJob
    tests: Mapping[str, PlannedTest]
    awaits: bool = False                        # for nodes that are busy now


@dataclass(frozen=True)
class Turn:
    submit: tuple[Wave, ...] = ()
    cancel: tuple[int, ...] = ()                # numbers of waiting jobs, to be withdrawn before anything is submitted


@dataclass(frozen=True)
class Schedule:
    """The waves of one job of a plan. usual: check -> seconds. most: so many of our jobs in the queue at once.

    seconds: of the whole job, where the plan did not know it as well.
    """

    job: PlannedJob
    tests: Mapping[str, PlannedTest]
    usual: Mapping[str, float] = field(default_factory=dict)
    most: int = MOST_JOBS
    start_s: float = START_S
    seconds: float | None = None
    _units: tuple[Unit, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_units", units_of(self.job, self.tests, self.usual))

    def knowing(self, took: Mapping[str, float]) -> Schedule:
        """The same with what tests of these checks took so far; itself where that is about what it took them for."""
        new = {check: s for check, s in took.items() if not 2 / 3 < s / max(self.usual.get(check, 5.0), 0.01) < 3 / 2}
        if not new:
            return self
        usual = {**self.usual, **new}
        seconds = sum(stage_seconds([self.tests[i] for i in s.tests], in_turn=s.kind == "nodes", usual=usual)
                      for s in self.job.stages)
        return replace(self, usual=usual, seconds=seconds)

    # --- how long

    @property
    def whole_s(self) -> float:
        return self.start_s + (self.job.seconds if self.seconds is None else self.seconds)

    @property
    def longest_s(self) -> float:
        """That a wave may take beyond its start while nodes are still to come."""
        return max([SHARE * self.whole_s, *(u.seconds for u in self._units if u.pair)])

    @property
    def linger_s(self) -> float:
        """That the first wave waits for the other nodes."""
        return max(0.0, 6 * (self.longest_s + self.start_s) - self.whole_s)

    @property
    def checks_s(self) -> float:
        """Of a node's own checks."""
        by_node: dict[str, float] = {}
        for unit in self._units:
            if len(unit.nodes) == 1:
                node = next(iter(unit.nodes))
                by_node[node] = by_node.get(node, 0.0) + unit.seconds
        return max(by_node.values(), default=0.0)

    # --- what is left

    def open(self, state: State) -> list[Unit]:
        """What has no result, is in no job of ours, and can still be run; as they come in the plan."""
        taken = state.settled.union(*(o.tests for o in state.ours))
        return [u for u in self._units if u.ids - taken and not (u.nodes & state.lost)]

    def unfinished(self, state: State) -> list[str]:
        """The tests that have no result, in the plan's order."""
        return [i for s in self.job.stages for i in s.tests if i not in state.settled]

    # --- the next jobs

    def next(self, state: State) -> Turn:
        """What to submit and to withdraw now; nothing when all that can be done is to wait."""
        stale = tuple(o.number for o in state.ours if self._stale(o, state)) or self._keeps_apart(state)
        if stale:
            return Turn(cancel=stale)
        left = self.open(state)
        held = frozenset[str]().union(*(o.nodes for o in state.ours))
        here = state.free - held
        if state.late:
            left = [u for u in left if u.nodes <= state.free | held]
        if not state.ours and not state.settled and state.free >= set(self.job.nodes):
            return Turn((Wave(self.job, self.tests),))
        wave = self._wave(left, here, state)
        if wave is not None:
            waiting = [o for o in state.ours if not o.begun]
            if len(state.ours) < self.most:
                return Turn((wave,))
            return Turn(cancel=(waiting[-1].number,)) if waiting else Turn()
        begins = not state.ours and not state.settled and state.now - state.since < self.linger_s
        return Turn(() if state.late or begins else tuple(self._awaiting(left, here, held, state)))

    def _stale(self, ours: Ours, state: State) -> bool:
        """A job that waits although all its nodes were free, or that nobody waits for any more."""
        if ours.begun:
            return False
        if state.late:
            return ours.waits_s > PATIENCE_S or not ours.nodes <= state.free
        known = len(ours.nodes) > 2 and not self._group(ours)
        return bool(ours.nodes & state.lost) or (known and ours.waits_s > PATIENCE_S and not ours.nodes <= state.free)

    def _keeps_apart(self, state: State) -> tuple[int, ...]:
        """Jobs that await two nodes of which one has come, and could be tested with others that are free."""
        apart = [o for o in state.ours if not o.begun and len(o.nodes) == 2 and o.nodes & state.free
                 and not o.nodes <= state.free and not self._group(o)]
        if not apart or state.late:
            return ()
        here = state.free - frozenset[str]().union(*(o.nodes for o in state.ours if o not in apart))
        meet = _meet(self.open(state), here)
        return tuple(o.number for o in apart if o.nodes & meet)

    def _group(self, ours: Ours) -> bool:
        """A job for tests that need all its nodes at once can only wait for them."""
        return any(u.group and u.nodes == ours.nodes and u.ids & ours.tests for u in self._units)

    def _wave(self, left: Sequence[Unit], here: frozenset[str], state: State) -> Wave | None:
        inside = self._eligible(left, [u for u in left if u.nodes <= here])
        if not inside:
            return None
        to_come = {n for u in left for n in u.nodes} - here - state.lost
        to_come |= {n for o in state.ours if o.begun for n in o.nodes}
        if to_come and not state.late:
            if state.now - state.since < self._hold(state, to_come):
                return None
            inside = self._eligible(left, self._cut(inside))
        return self._made(inside, state.number)

    def _hold(self, state: State, to_come: set[str]) -> float:
        """How long free nodes are left alone, because others are about to join them."""
        ours = {n for o in state.ours if o.begun for n in o.nodes}
        if not ours:
            return self.linger_s
        short = self.start_s + self.checks_s + self.longest_s
        return max(self.linger_s, 2 * short if to_come <= ours else short)

    def _eligible(self, left: Sequence[Unit], chosen: Sequence[Unit]) -> list[Unit]:
        """Groups come when all pairs of their nodes are done or before them in this job, and what is to be seen after
        the load when nothing else is left on the node."""
        mine = {u.first for u in chosen}
        paired = {n for u in left if u.pair and u.first not in mine for n in u.nodes}
        found = [u for u in chosen if not u.group or not (u.nodes & paired)]
        mine = {u.first for u in found}
        loaded = {n for u in left if not u.after and u.first not in mine for n in u.nodes}
        return [u for u in found if not u.after or not (u.nodes & loaded)]

    def _cut(self, inside: Sequence[Unit]) -> list[Unit]:
        """Node checks, and so many rounds of pairs as one short wave has time for; at least one."""
        found = [u for u in inside if not u.pair and not u.group]
        room = self.longest_s
        for series in series_of([u for u in inside if u.pair]):
            for one in sorted(rounds_of(series), key=len, reverse=True):
                seconds = max(u.seconds for u in one)
                if seconds > room + 1e-9:
                    break
                room -= seconds
                found += one
        return sorted(found, key=lambda u: (u.stage, u.first)) if found else list(inside)

    def _awaiting(self, left: Sequence[Unit], here: frozenset[str], held: frozenset[str], state: State) -> list[Wave]:
        """Small jobs that wait in the queue: for single nodes first, then for two, then for groups. One place is left
        for the next wave."""
        room = min(self.most - len(state.ours), max(1, self.most - 1) - sum(not o.begun for o in state.ours))
        taken = {*held, *_meet(left, here)}         # those come together in the next wave
        waves: list[Wave] = []
        loads = {n for u in left if not u.after and len(u.nodes) > 1 for n in u.nodes}      # are still to come there
        ranked = sorted(left, key=lambda u: (len(u.nodes) if u.nodes - here or u.group else 2, len(u.nodes & here),
                                             u.stage))
        for unit in ranked:
            if len(waves) >= room:
                break
            if unit.nodes & taken or (unit.nodes <= here and not unit.group):
                continue
            if unit.after and len(unit.nodes) == 1 and unit.nodes <= loads:     # most of them: quickly told
                continue
            inside = self._eligible(left, [u for u in left if u.nodes <= unit.nodes])
            if unit not in inside:
                continue
            taken |= unit.nodes
            waves.append(replace(self._made(inside, state.number + len(waves)), awaits=True))
        return waves

    # --- a job

    def _made(self, units: Sequence[Unit], number: int) -> Wave:
        """The job of these units: the plan's stages, and rounds of pairs anew where that makes them fewer."""
        stages: list[Stage] = []
        tests: dict[str, PlannedTest] = {}
        for series in series_of(units):
            if not series[0].pair:
                wanted = {i for u in series for i in u.ids}
                stage = self.job.stages[series[0].stage]
                stages.append(replace(stage, tests=tuple(i for i in stage.tests if i in wanted)))
                tests.update((i, replace(self.tests[i], job=number)) for i in stages[-1].tests)
                continue
            parts = rounds_of(series)
            for place, part in enumerate(parts, 1):
                name = f"{name_of(self.job, series[0])} round {place} of {len(parts)}"
                stages.append(Stage("round", name, tuple(i for u in part for i in sorted(u.ids))))
                for i in stages[-1].tests:
                    old = self.tests[i]
                    tests[i] = replace(old, job=number, pairs_at_once=len(part) if old.pairs_at_once else None)
        used = {n for u in units for n in u.nodes}
        seconds = sum(stage_seconds([tests[i] for i in s.tests], in_turn=s.kind == "nodes", usual=self.usual)
                      for s in stages)
        nodes = tuple(n for n in self.job.nodes if n in used)
        limit = min(self.job.time_limit_min, time_limit_min(stages, tests.values(), seconds))
        return Wave(PlannedJob(number, self.job.kind, nodes, tuple(stages), round(seconds, 1), limit), tests)


def _meet(units: Sequence[Unit], here: frozenset[str]) -> frozenset[str]:
    """Nodes of these that could be tested with one another, of whichever pairs."""
    return frozenset[str]().union(*(u.nodes for u in units if u.pair and u.nodes <= here))


def with_wave(plan: Plan, wave: Wave, settled: Collection[str] = ()) -> Plan:
    """The plan with this job in it; the job that had these tests has them no longer. So a plan always says what was
    submitted as which job, and what was not."""
    if any(job.number == wave.job.number for job in plan.jobs):
        return plan
    had = {t.id: t.job for t in plan.tests if t.id in wave.tests}
    jobs = []
    for job in plan.jobs:
        moved = {i for i in had if had[i] == job.number}
        if not any(moved & set(s.tests) for s in job.stages):
            jobs.append(job)
            continue
        stages = tuple(replace(s, tests=tuple(i for i in s.tests if i not in moved)) for s in job.stages)
        kept = tuple(s for s in stages if s.tests)
        if kept:
            jobs.append(replace(job, stages=kept))
    fewer = _beside(plan.jobs, jobs, plan.tests, settled)
    tests = tuple(wave.tests.get(t.id) or fewer.get(t.id, t) for t in plan.tests)
    return replace(plan, tests=tests, jobs=(*jobs, wave.job))


def _beside(before: Sequence[PlannedJob], after: Sequence[PlannedJob], tests: Sequence[PlannedTest],
            settled: Collection[str]) -> dict[str, PlannedTest]:
    """Tests still to be made that will have fewer pairs beside them: others of their round are in another job."""
    old = {(job.number, stage.name): len(stage.tests) for job in before for stage in job.stages}
    fewer = {i: len(stage.tests) for job in after for stage in job.stages for i in stage.tests
             if stage.kind == "round" and len(stage.tests) < old[job.number, stage.name]}
    return {t.id: replace(t, pairs_at_once=fewer[t.id]) for t in tests
            if t.id in fewer and t.id not in settled and (t.pairs_at_once or 0) > fewer[t.id]}


def not_run_words(nodes: Sequence[str], waited_s: float, why: Mapping[str, str] | None = None) -> str:
    """Why a test on these nodes was never started."""
    reasons = [f"{n} is {why[n]}" for n in nodes if why and n in why]
    return "; ".join(reasons) or f"{' and '.join(nodes) if len(nodes) < 3 else plural(len(nodes), 'node')} " \
        f"not free {'at one time ' if len(nodes) > 1 else ''}within {duration(waited_s)}"


def duration(seconds: float) -> str:
    """"2 h", "90 min", "30 s"."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds / 60)} min" if seconds >= 600 else f"{round(seconds)} s"


"""Suite + checks + inventory -> what is started where, in which order. Pure: nothing here touches the world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hpcadmin.check import Check, Impact, Layout, Scope, Status, Subject, Verdict
from hpcadmin.errors import HpcadminError, UsageError
from hpcadmin.plan_choice import Choice, Chosen, choose, plan_verdict
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_layouts import TWO_NODES, Left, Place, Sampling, Turn, staggered, turns
from hpcadmin.plan_pairs import most_rounds, power_text
from hpcadmin.plan_work import Kind, NodeKinds, context_of, guarded, kind_of, limit_of, no_room, steps_of
from hpcadmin.registry import Suite
from hpcadmin.rundata import Environment, Plan, PlannedEntry, PlannedJob, PlannedTest, SkippedNode, Stage, Together
from hpcadmin.text import plural

__all__ = ["MEET_S", "context_of", "guarded", "make_plan", "stage_seconds", "time_limit_min"]
MEET_S = 120                         # that the jobs of a test wait for each other: two rounds of Slurm's main scheduler
MOST_TESTS = 250_000                 # every pair of 700 nodes; more can neither be run nor read
_STEP_OVERHEAD_S = 0.1
_ON_NODES = (Scope.NODE, Scope.GPU, Scope.PORT)


def make_plan(suite: Suite, checks: Mapping[str, Check], facts: Facts, nodes: Sequence[str], *,
              skipped: Sequence[SkippedNode] = (), job: int = 1, seed: int = 0, at_once: int = 0, yes: bool = False,
              usual: Mapping[str, float] | None = None, together: Sequence[Together] = ()) -> Plan:
    """The plan of a suite on these nodes, in their order. Nothing is left out silently: what is not tested has an
    entry or a verdict that says why.

    seed: of what is drawn. at_once: so many nodes at most under load at one time, 0: all. yes: destructive checks may
    run. usual: seconds that a test of a check takes here, where that is known. together: what alone is tested of some
    checks.
    """
    choice = choose(suite, checks, facts, tuple(nodes), yes=yes)
    layout = _Layout(suite, checks, facts, job=job, usual=usual or {},
                     sampling=Sampling(suite.pairs, seed, facts.switches, at_once,
                                       {t.check: t.nodes for t in together}))
    layout.lay_out(choice)
    planned = tuple(layout.jobs(tuple(nodes)))
    counts = layout.counts()
    lost = [plan_verdict("availability", Subject((s.node,)), Status.NOT_RUN, s.reason) for s in skipped]
    entries: tuple[PlannedEntry, ...] = tuple(
        replace(e, tests=counts.get(e.check, 0)) if e.status is None else e for e in choice.entries)
    samples = layout.sampling.samples()
    notes = (*choice.notes, *dict.fromkeys(power_text(s) for s in samples if s.pairs != "all"))
    return Plan(suite.name, tuple(nodes), entries, tuple(layout.tests), planned, tuple(skipped), notes,
                (*lost, *choice.verdicts, *layout.verdicts), seed=seed, pairs=samples, at_once=at_once,
                environment=Environment(facts.site.slurm.mpi, facts.site.modules.load, suite.container, suite.env))


class _Layout:
    """Tests and stages of one job, in the order in which they are added."""

    def __init__(self, suite: Suite, checks: Mapping[str, Check], facts: Facts, *, job: int, sampling: Sampling,
                 usual: Mapping[str, float]) -> None:
        self.suite, self.checks, self.facts, self.job, self.sampling = suite, checks, facts, job, sampling
        self._by_id: dict[str, PlannedTest] = {}
        self.stages: list[Stage] = []
        self.own: dict[str, list[str]] = {}          # check -> its tests that are jobs of their own
        self.verdicts: list[Verdict] = []
        self.seconds = 0.0
        self._usual = {name: usual.get(name, check.seconds) for name, check in checks.items()}
        self._nodes = NodeKinds(facts)
        self._kinds: dict[object, Kind] = {}
        self._special: dict[str, Kind] = {}          # tests that are jobs of their own, or in containers

    def lay_out(self, choice: Choice) -> None:
        """Node checks, light groups (a broken launcher shows before hundreds of pairs do), pairs, the rest, and what
        the load has done to the nodes."""
        on_nodes = [c for c in choice.runs if self.checks[c.check].scope in _ON_NODES]
        beside = [(c, set(c.nodes)) for c in on_nodes if self.checks[c.check].beside_load]
        at_once = [c for c in on_nodes if not self.checks[c.check].beside_load]
        alike: list[str] = []
        for chosen in at_once:
            for turn, ids in self._turns(chosen):
                if self._staggers(chosen) and turn.name:        # a part of its nodes
                    self._stage(turn.kind, f"{chosen.check} {turn.name}", ids)
                else:
                    alike += ids
        self._stage("nodes", "node checks", alike)
        groups = [c for c in choice.runs if self.checks[c.check].scope in (Scope.GROUP, Scope.CLUSTER)]
        light = [c for c in groups if self.checks[c.check].impact is Impact.LIGHT]
        pairs = [c for c in choice.runs if self.checks[c.check].scope is Scope.PAIR]
        for one in (*light, *pairs, *(c for c in groups if c not in light)):
            for turn, ids in self._turns(one):
                self._stage(turn.kind, f"{one.check} {turn.name}".rstrip(), [*ids, *self._looks(one, turn, beside)])
        why = "nothing in this suite loads all GPUs of the node"
        self.verdicts += [plan_verdict(c.check, Subject((n,)), Status.NOT_RUN, why)
                          for c, left in beside for n in c.nodes if n in left]
        self._after_load()

    def _looks(self, load: Chosen, turn: Turn, beside: Sequence[tuple[Chosen, set[str]]]) -> list[str]:
        """Tests of nodes that run beside these, on the nodes whose GPUs are all loaded for the first time."""
        check = self.checks[load.check]
        if check.impact is not Impact.LOAD or "gpu" not in check.needs or check.scope is not Scope.GROUP:
            return []
        nodes = [n for place in turn.places if place.layout is not Layout.RAILS for n in place.nodes]
        found = []
        for chosen, left in beside:
            found += [self._test(self.checks[chosen.check], Place(Layout.NODE, (n,)), chosen)
                      for n in nodes if n in left]
            left.difference_update(nodes)
        return found

    def _turns(self, chosen: Chosen) -> Iterator[tuple[Turn, list[str]]]:
        """The turns of a check with the ids of their tests; what is left out is a verdict."""
        check = self.checks[chosen.check]
        for layout in chosen.over:
            self._bounded(chosen, layout)
            for whole in turns(check, layout, chosen.nodes, self.facts.views, self.sampling):
                parted = isinstance(whole, Turn) and self._staggers(chosen)
                for turn in staggered(whole, self.sampling.at_once) if parted and isinstance(whole, Turn) else [whole]:
                    if isinstance(turn, Left):
                        self.verdicts += [plan_verdict(check.name, Subject((n,), turn.device), turn.status, turn.reason)
                                          for n in turn.nodes]
                    else:
                        yield turn, [self._test(check, place, chosen) for place in turn.places]

    def _staggers(self, chosen: Chosen) -> bool:
        return self.sampling.at_once > 0 and self.checks[chosen.check].impact is not Impact.LIGHT

    def _bounded(self, chosen: Chosen, layout: Layout) -> None:
        nodes = len(chosen.nodes)
        pairs = most_rounds(nodes, self.suite.pairs) * (nodes // 2) if layout in TWO_NODES else 0
        pairs = len(self.sampling.together.get(chosen.check, range(pairs)))
        if self.checks[chosen.check].scope is Scope.PAIR and len(self._by_id) + pairs > MOST_TESTS:
            raise UsageError(f"suite {self.suite.name} has more than {MOST_TESTS} tests on {plural(nodes, 'node')}",
                             hint="--pairs screen, or fewer nodes")

    def _after_load(self) -> None:
        """Checks of nodes that are to be repeated, where anything of the suite's job is a load."""
        if not any(self.checks[self._by_id[i].check].impact is Impact.LOAD for s in self.stages for i in s.tests):
            return
        again = [t for t in self._by_id.values() if self.checks[t.check].again_after_load
                 and self.checks[t.check].scope in _ON_NODES and not t.steps]
        members = []
        for test in again:
            number = f"t{len(self._by_id) + 1:04d}"
            self._by_id[test.id] = replace(test, when="before")
            self._by_id[number] = replace(test, id=number, when="after", before=test.id)
            members.append(number)
        self._stage("nodes", "node checks after the load", members)

    def _own_jobs(self, members: Sequence[str], number: int) -> list[PlannedJob]:
        """The jobs of tests that are jobs themselves."""
        found = []
        for test in (self._by_id[i] for i in members):
            last = number + len(test.steps)
            for place, step in enumerate(test.steps):
                seconds = MEET_S + step.timeout_s + 30
                found.append(PlannedJob(
                    number + place, "own", step.nodes, (Stage("job", f"{test.check} {test.subject}", (test.id,)),),
                    self._usual.get(test.check, 5.0), int(seconds // 60) + 1, place,
                    tuple(n for n in range(number, last) if n != number + place)))
            number = last
        return found

    def _test(self, check: Check, place: Place, chosen: Chosen) -> str:
        """The id of a planned test; "" when its check cannot say how to run it (then that is its verdict)."""
        number, nodes = f"t{len(self._by_id) + 1:04d}", place.nodes
        subject, ports = Subject(nodes, place.device), place.ports
        if len(ports) > 1 and len(set(ports)) == 1:
            ports = ports[:1]
        key = (id(chosen), place.layout, place.at_once, place.rail, place.gpu, ports, place.device,
               tuple([self._nodes[n] for n in nodes]))
        kind = self._kinds.get(key)
        if kind is None or (kind.own and not kind.problem):
            test = PlannedTest(number, check.name, subject, (), self.job, place.at_once, layout=place.layout,
                               rail=place.rail, gpu=place.gpu, params=chosen.params, ports=ports)
            kind, test = self._worked_out(check, test)
            self._kinds[key] = replace(kind, problem="") if kind.own else kind
            if not kind.problem:
                self._by_id[number] = test
        elif not kind.problem:
            self._by_id[number] = PlannedTest(
                number, check.name, subject, (), self.job, place.at_once, kind.ranks, layout=place.layout,
                rail=place.rail, gpu=place.gpu, params=chosen.params, ports=ports, limit_s=kind.limit_s)
        if kind.problem:
            self.verdicts.append(plan_verdict(check.name, subject, kind.status, kind.problem))
            return ""
        if kind.own or kind.boxed:
            self._special[number] = kind
        if kind.own:
            self.own.setdefault(check.name, []).append(number)
        return number

    def _worked_out(self, check: Check, test: PlannedTest) -> tuple[Kind, PlannedTest]:
        """What its steps tell of all tests of its kind. Those of jobs of their own stay in the plan."""
        try:
            steps = steps_of(check, self.facts, test, self.suite.env)
        except HpcadminError as exc:
            return Kind(str(exc)), test
        kind = kind_of(steps)
        status, problem = no_room(steps, self.facts)
        return replace(kind, problem=problem, status=status), replace(
            test, steps=steps if kind.own else (), ranks=kind.ranks, limit_s=kind.limit_s)

    def _stage(self, kind: str, name: str, ids: Iterable[str]) -> None:
        special = self._special
        members = tuple(i for i in ids if i and not (i in special and special[i].own))
        boxed = [i for i in members if kind == "nodes" and i in special]
        plain = tuple(i for i in members if i not in special) if boxed else members
        turns = _one_a_node([self._by_id[i] for i in boxed])
        named = [(f"{name} in containers, turn {number} of {len(turns)}", turn) for number, turn in enumerate(turns, 1)]
        for title, chosen in [(name, plain), *named]:
            if chosen:
                tests = [self._by_id[i] for i in chosen]
                self.stages.append(Stage(kind, title, chosen))
                self.seconds += stage_seconds(tests, in_turn=kind == "nodes", usual=self._usual) + _STEP_OVERHEAD_S

    @property
    def tests(self) -> list[PlannedTest]:
        return list(self._by_id.values())

    def jobs(self, nodes: tuple[str, ...]) -> list[PlannedJob]:
        """The job of the suite, then those of tests that are jobs themselves."""
        found = []
        if self.stages:
            mine = [self._by_id[i] for stage in self.stages for i in stage.tests]
            used = {n for t in mine for n in t.subject.nodes}
            found.append(PlannedJob(self.job, "suite", tuple(n for n in nodes if n in used), tuple(self.stages),
                                    round(self.seconds, 1), time_limit_min(self.stages, mine, self.seconds)))
        for members in self.own.values():
            found += self._own_jobs(members, found[-1].number + 1 if found else self.job)
        for job in found:
            for test in (self._by_id[i] for stage in job.stages for i in stage.tests if job.step == 0):
                self._by_id[test.id] = replace(test, job=job.number)
        return found

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for test in self.tests:
            found[test.check] = found.get(test.check, 0) + 1
        return found


def _one_a_node(tests: Sequence[PlannedTest]) -> list[tuple[str, ...]]:
    """The tests in turns in which a node has one: what an srun of its own must start would else run at one time."""
    turns: list[list[str]] = []
    count: dict[str, int] = {}
    for test in tests:
        turn = max((count.get(node, 0) for node in test.subject.nodes), default=0)
        count.update(dict.fromkeys(test.subject.nodes, turn + 1))
        if turn == len(turns):
            turns.append([])
        turns[turn].append(test.id)
    return [tuple(turn) for turn in turns]


def stage_seconds(tests: Sequence[PlannedTest], *, in_turn: bool, usual: Mapping[str, float] | None = None) -> float:
    """How long the tests of a stage take: in turn on each node, or side by side. usual: check -> seconds; without it
    the most that the time-outs allow."""
    def one(test: PlannedTest) -> float:
        if usual is not None:
            return usual.get(test.check, 5.0)
        return test.limit_s or limit_of(test.steps)
    if not in_turn:
        return max((one(t) for t in tests), default=0.0)
    by_node: dict[str, float] = {}
    for test in tests:
        for node in test.subject.nodes:
            by_node[node] = by_node.get(node, 0.0) + one(test)
    return max(by_node.values(), default=0.0)


def time_limit_min(stages: Sequence[Stage], tests: Iterable[PlannedTest], seconds: float) -> int:
    """Minutes to ask Slurm for: every step may run into its own time-out, but not all of them in a long plan."""
    by_id = {t.id: t for t in tests}
    most = [stage_seconds([by_id[i] for i in s.tests], in_turn=s.kind == "nodes") + 20 for s in stages]
    enough = 3 * seconds + 2 * max(most, default=0.0) + 300
    return max(2, int(min(sum(most), enough) // 60) + 2)

"""Suite + checks + inventory -> what is started where, in which order. Pure: nothing here touches the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hpcadmin.check import (
    Check,
    Context,
    Impact,
    Layout,
    NodeView,
    PortView,
    Role,
    Scope,
    Status,
    Step,
    Subject,
    Verdict,
)
from hpcadmin.errors import HpcadminError, UsageError
from hpcadmin.plan_choice import Choice, Chosen, choose, plan_verdict
from hpcadmin.plan_facts import HARDWARE, Facts
from hpcadmin.plan_layouts import TWO_NODES, Left, Place, Turn, count_of_rounds, turns
from hpcadmin.plan_steps import checked
from hpcadmin.registry import Suite
from hpcadmin.rundata import Plan, PlannedEntry, PlannedJob, PlannedTest, SkippedNode, Stage
from hpcadmin.text import plural, printable
from hpcadmin.tools import PYXIS, set_out, version_for, ways_of

T = TypeVar("T")
PORTS_FROM, PORTS = 18500, 4000      # below the ephemeral ports; ten for each test
MEET_S = 120                         # that the jobs of a test wait for each other: two rounds of Slurm's main scheduler
MOST_TESTS = 250_000                 # every pair of 700 nodes; more can neither be run nor read
_STEP_OVERHEAD_S = 0.1
_ON_NODES = (Scope.NODE, Scope.GPU, Scope.PORT)


class CheckCallError(HpcadminError):
    """A check's own code failed."""


def guarded(check: Check, what: str, call: Callable[[], T]) -> T:
    """The result of a check's function, which may be a site's own code. CheckCallError for whatever it raises."""
    try:
        return call()
    except HpcadminError:
        raise
    except (Exception, SystemExit) as exc:  # a check may be a site's own file: its defects are its result, not our end
        said = printable(f"{type(exc).__name__}: {exc}", limit=400)
        raise CheckCallError(f"{what} of check {check.name} failed: {said}") from exc


def make_plan(suite: Suite, checks: Mapping[str, Check], facts: Facts, nodes: Sequence[str], *,
              skipped: Sequence[SkippedNode] = (), job: int = 1) -> Plan:
    """The plan of a suite on these nodes, in their order. Nothing is left out silently: what is not tested has an
    entry or a verdict that says why."""
    choice = choose(suite, checks, facts, tuple(nodes))
    layout = _Layout(suite, checks, facts, job)
    layout.lay_out(choice)
    planned = tuple(layout.jobs(tuple(nodes)))
    counts = layout.counts()
    lost = [plan_verdict("availability", Subject((s.node,)), Status.NOT_RUN, s.reason) for s in skipped]
    entries: tuple[PlannedEntry, ...] = tuple(
        replace(e, tests=counts.get(e.check, 0)) if e.status is None else e for e in choice.entries)
    return Plan(suite.name, tuple(nodes), entries, tuple(layout.tests), planned, tuple(skipped), choice.notes,
                (*lost, *choice.verdicts, *layout.verdicts))


class _Layout:
    """Tests and stages of one job, in the order in which they are added."""

    def __init__(self, suite: Suite, checks: Mapping[str, Check], facts: Facts, job: int) -> None:
        self.suite, self.checks, self.facts, self.job = suite, checks, facts, job
        self._by_id: dict[str, PlannedTest] = {}
        self.stages: list[Stage] = []
        self.own: dict[str, list[str]] = {}          # check -> its tests that are jobs of their own
        self.verdicts: list[Verdict] = []
        self.seconds = 0.0
        self._usual = {name: check.seconds for name, check in checks.items()}

    def lay_out(self, choice: Choice) -> None:
        """Node checks, light groups (a broken launcher shows before hundreds of pairs do), pairs, the rest, and what
        the load has done to the nodes."""
        on_nodes = [c for c in choice.runs if self.checks[c.check].scope in _ON_NODES]
        beside = [(c, set(c.nodes)) for c in on_nodes if self.checks[c.check].beside_load]
        at_once = [c for c in on_nodes if not self.checks[c.check].beside_load]
        self._stage("nodes", "node checks", [i for c in at_once for turn in self._turns(c) for i in turn[1]])
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
            for turn in turns(check, layout, chosen.nodes, self.facts.views, self.suite.pairs):
                if isinstance(turn, Left):
                    self.verdicts += [plan_verdict(check.name, Subject((n,), turn.device), turn.status, turn.reason)
                                      for n in turn.nodes]
                else:
                    yield turn, [self._test(check, place, chosen) for place in turn.places]

    def _bounded(self, chosen: Chosen, layout: Layout) -> None:
        nodes = len(chosen.nodes)
        pairs = count_of_rounds(nodes, self.suite.pairs) * (nodes // 2) if layout in TWO_NODES else 0
        if self.checks[chosen.check].scope is Scope.PAIR and len(self._by_id) + pairs > MOST_TESTS:
            raise UsageError(f"suite {self.suite.name} has more than {MOST_TESTS} tests on {plural(nodes, 'node')}",
                             hint="pairs = 16 in the suite, or fewer nodes")

    def _after_load(self) -> None:
        """Checks of nodes that are to be repeated, where anything of the suite's job is a load."""
        if not any(self.checks[self._by_id[i].check].impact is Impact.LOAD for s in self.stages for i in s.tests):
            return
        again = [t for t in self._by_id.values() if self.checks[t.check].again_after_load
                 and self.checks[t.check].scope in _ON_NODES and t.steps[0].role is not Role.JOB]
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
        nodes = place.nodes
        test = PlannedTest(
            f"t{len(self._by_id) + 1:04d}", check.name, Subject(nodes, place.device), (), self.job,
            pairs_at_once=place.at_once, layout=place.layout, rail=place.rail, gpu=place.gpu, params=chosen.params,
            ports=place.ports[:1] if len(set(place.ports)) == 1 else place.ports)
        context = context_of(check, self.facts, test)
        try:
            steps, problem = checked(guarded(check, "steps", lambda: check.steps(context)), nodes)
            ways = ways_of(check, nodes, self.facts.site, self.facts.tools, pyxis=self.facts.pyxis)
            steps = tuple(set_out(_complete(step, nodes, self.suite.env), ways) for step in steps)
            problem = problem or unfit(steps)
        except HpcadminError as exc:
            steps, problem = (), str(exc)
        status = Status.ERROR
        if not problem:
            status, problem = no_room(steps, self.facts)
        if problem:
            self.verdicts.append(plan_verdict(check.name, test.subject, status, problem))
            return ""
        if steps[0].role is Role.JOB:
            self.own.setdefault(check.name, []).append(test.id)
        parallel = next((s for s in steps if s.role is Role.RANKS), None)
        self._by_id[test.id] = replace(
            test, steps=steps, ranks=parallel.tasks_per_node * len(parallel.nodes) if parallel else None)
        return test.id

    def _stage(self, kind: str, name: str, ids: Iterable[str]) -> None:
        members = tuple(i for i in ids if i and self._by_id[i].steps[0].role is not Role.JOB)
        boxed = [i for i in members if kind == "nodes" and any(s.way.by == PYXIS for s in self._by_id[i].steps)]
        plain = tuple(i for i in members if i not in set(boxed)) if boxed else members
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


def context_of(check: Check, facts: Facts, test: PlannedTest) -> Context:
    """What the check is given for this test, to say its steps and to read their outputs."""
    nodes = test.subject.nodes
    looked_for = [t for t in check.needs if t not in HARDWARE]
    # Within a container of pyxis there is nothing of the node.
    boxed = facts.pyxis and any(facts.site.tool(t).container for t in looked_for)
    looked_for += () if boxed else check.uses
    tools = {n: {**{p: facts.programs[p] for p in check.builds if p in facts.programs},
                 **{t: facts.tools.get(n, {}).get(t, "") for t in looked_for}} for n in nodes}
    number = int("".join(c for c in test.id if c in "0123456789") or "0")
    return Context(
        nodes=tuple(facts.views.get(n) or NodeView(n) for n in nodes), params={**check.params, **test.params},
        tools=_same(tools, nodes), shared_dir=facts.shared_dir, ranks=test.ranks, pairs_at_once=test.pairs_at_once or 1,
        port_base=PORTS_FROM + number * 10 % PORTS, layout=test.layout, rail=test.rail, gpu=test.gpu,
        ports=_ports_of(test, facts), device=test.subject.device,
        tool_version=version_for(check.probe[0], nodes, facts.found) if check.probe else "")


def _ports_of(test: PlannedTest, facts: Facts) -> tuple[PortView, ...]:
    nodes, names = test.subject.nodes, test.ports
    if len(names) == 1:
        names *= len(nodes)
    elif len(nodes) == 1:
        nodes *= len(names)
    return tuple(_port(facts.views.get(node), name) for node, name in zip(nodes, names, strict=False))


def _port(view: NodeView | None, name: str) -> PortView:
    known = next((p for p in view.ports if p.name == name), None) if view else None
    device, _, number = name.rpartition("/")
    return known or PortView(device, int(number) if number.isdecimal() else 1)


def _same(tools: Mapping[str, Mapping[str, str]], nodes: Iterable[str]) -> dict[str, str]:
    """Tool -> path; where the nodes' paths differ, the bare name, for each node to look up; "" where one has it not."""
    found: dict[str, str] = {}
    for node in nodes:
        for tool, path in tools[node].items():
            found[tool] = path if found.get(tool, path) == path else tool if path and found[tool] else ""
    return found


def _complete(step: Step, nodes: tuple[str, ...], env: Mapping[str, str]) -> Step:
    """The step with its nodes and the suite's environment."""
    if step.role is Role.JOB and step.job is not None and step.job.anywhere:
        return replace(step, nodes=(), env={**env, **step.env})
    default = {Role.SERVER: nodes[:1], Role.CLIENT: nodes[-1:]}.get(step.role, nodes)
    return replace(step, nodes=step.nodes or default, env={**env, **step.env})


def unfit(steps: Sequence[Step]) -> str:
    """Why a job's script cannot run these steps, "" when it can."""
    if not steps:
        return "the check has no steps"
    for step in steps:
        if not step.argv or not step.argv[0] or step.argv[0].startswith("-") or any(
                "\0" in word for word in (*step.under, *step.argv)):
            return "a step has no command that can be run"
        if step.role in (Role.SERVER, Role.CLIENT) and len(step.nodes) != 1:
            return f"a {step.role.value} must be on one node"
    roles = [s.role for s in steps]
    if Role.JOB in roles and (set(roles) != {Role.JOB} or any(s.job is None for s in steps)):
        return "a job of its own stands beside other steps, or does not say what it asks for"
    servers = roles.count(Role.SERVER)
    if servers > 1 or (Role.CLIENT in roles and (not servers or roles.index(Role.CLIENT) < roles.index(Role.SERVER))):
        return "there must be one server, before its clients"
    return ""


def no_room(steps: Sequence[Step], facts: Facts) -> tuple[Status, str]:
    """Why Slurm can never run the jobs of a test on their nodes at one time, and what that is worth; "" when it can."""
    jobs = [(node, step.job) for step in steps if step.job is not None for node in step.nodes]
    wanted: dict[str, int] = {}
    for node, job in jobs:
        wanted[node] = wanted.get(node, 0) + job.gpus
    for node, gpus in wanted.items():
        if facts.slurm_gpus.get(node, gpus) < gpus:
            return Status.FAIL, (f"slurm.conf gives {node} {plural(facts.slurm_gpus[node], 'GPU')} (Gres=), the "
                                 f"inventory has {gpus}")
    if facts.whole_nodes and len(jobs) > len(wanted):
        return Status.NOT_RUN, (f"partition {facts.whole_nodes} gives every job whole nodes (OverSubscribe=EXCLUSIVE), "
                                "so that no two jobs are on one: --partition names another")
    return Status.PASS, ""


def stage_seconds(tests: Sequence[PlannedTest], *, in_turn: bool, usual: Mapping[str, float] | None = None) -> float:
    """How long the tests of a stage take: in turn on each node, or side by side. usual: check -> seconds; without it
    the most that the time-outs allow."""
    def one(test: PlannedTest) -> float:
        if usual is not None:
            return usual.get(test.check, 5.0)
        return sum(s.timeout_s + (s.ready.timeout_s if s.ready else 0.0) for s in test.steps)
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

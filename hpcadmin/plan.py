"""Suite + checks + inventory -> what is started where, in which order. Pure: nothing here touches the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hpcadmin.check import Check, Context, Impact, NodeView, Params, Role, Scope, Status, Step, Subject, Verdict
from hpcadmin.errors import HpcadminError
from hpcadmin.hosts import fold
from hpcadmin.plan_facts import HARDWARE, Facts
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.rundata import Plan, PlannedEntry, PlannedJob, PlannedTest, SkippedNode, Stage

T = TypeVar("T")
PORTS_FROM, PORTS = 18500, 4000      # below the ephemeral ports; ten for each test
_STEP_OVERHEAD_S = 0.1


class CheckCallError(HpcadminError):
    """A check's own code failed."""


def guarded(check: Check, what: str, call: Callable[[], T]) -> T:
    """The result of a check's function, which may be a site's own code. Raises CheckCallError for whatever it raises."""
    try:
        return call()
    except HpcadminError:
        raise
    except Exception as exc:  # a check may be a site's own file: its defects are this check's result, not our end
        raise CheckCallError(f"{what} of check {check.name} failed: {type(exc).__name__}: {exc}") from exc


@dataclass(frozen=True)
class _Chosen:
    """A check that runs, and on which nodes."""

    check: Check
    params: Params
    nodes: tuple[str, ...]


@dataclass
class _Draft:
    """A plan being made; only make_plan sees it change."""

    entries: list[PlannedEntry] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tests: list[PlannedTest] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    seconds: float = 0.0
    usual: Mapping[str, float] = field(default_factory=dict)


def make_plan(suite: Suite, checks: Mapping[str, Check], facts: Facts, nodes: Sequence[str], *,
              skipped: Sequence[SkippedNode] = (), job: int = 1) -> Plan:
    """The plan of a suite on these nodes, in their order. Nothing is left out silently: what is not tested has an
    entry or a verdict that says why."""
    draft = _Draft(usual={name: check.seconds for name, check in checks.items()})
    draft.verdicts += [_plan_verdict("availability", Subject((s.node,)), Status.NOT_RUN, s.reason) for s in skipped]
    chosen: dict[str, _Chosen] = {}
    for entry in suite.entries:
        _resolve(entry, checks, facts, tuple(nodes), chosen, draft)
    for one in chosen.values():
        _say_when_too_few(one, draft)
    _lay_out(list(chosen.values()), suite, facts, job, draft)
    jobs: tuple[PlannedJob, ...] = ()
    if draft.stages:
        used = tuple(n for n in nodes if any(n in t.subject.nodes for t in draft.tests))
        jobs = (PlannedJob(job, "suite", used, tuple(draft.stages), round(draft.seconds, 1),
                           time_limit_min(draft.stages, draft.tests, draft.seconds)),)
    counts: dict[str, int] = {}
    for test in draft.tests:
        counts[test.check] = counts.get(test.check, 0) + 1
    entries = tuple(replace(e, tests=counts.get(e.check, 0)) if e.status is None else e for e in draft.entries)
    return Plan(suite.name, tuple(nodes), entries, tuple(draft.tests), jobs, tuple(skipped),
                tuple(dict.fromkeys(draft.notes)), tuple(draft.verdicts))


# --- which check of an entry runs, and on which nodes -----------------------------------------------------------


def _resolve(entry: SuiteEntry, checks: Mapping[str, Check], facts: Facts, nodes: tuple[str, ...],
             chosen: dict[str, _Chosen], draft: _Draft) -> None:
    """Take the first alternative that every node can run; say what becomes of each."""
    found = [_examine(checks[name], entry, facts, nodes) for name in entry.names]
    pick = next((f for f in found if f.ready), None) or next((f for f in found if f.runs_on), None)
    absent = [f for f in found if f.absent]
    for option in found:
        check = option.check
        if option is pick:
            _take(option, chosen, draft)
        elif option in absent and pick is None and len(absent) == len(found):
            draft.entries.append(_entry(check, Status.NOT_APPLICABLE, option.absent))
            draft.notes.append(option.absent)
        elif pick is not None:
            if check.name not in chosen and all(e.check != check.name for e in draft.entries):
                draft.entries.append(_entry(check, Status.NOT_NEEDED, f"{pick.check.name} is used instead"))
        elif option is next(f for f in found if not f.absent):
            reason = "; ".join(_with_name(f, len(found)) for f in found)
            draft.entries.append(_entry(check, Status.NOT_RUN, reason))
            draft.verdicts.append(_plan_verdict(check.name, Subject(nodes), Status.NOT_RUN, reason))
            draft.verdicts += option.failed
        else:
            draft.entries.append(_entry(check, Status.NOT_NEEDED, "is an alternative of a check that could not run"))


@dataclass(frozen=True)
class _Option:
    """What can be said of one check on the nodes. absent: nobody has the hardware. blocked: why it can run nowhere.

    failed: verdicts of nodes that lack what the others have; without: nodes that lack a tool, with the reason.
    """

    check: Check
    params: Params
    runs_on: tuple[str, ...] = ()
    absent: str = ""
    blocked: str = ""
    failed: tuple[Verdict, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return bool(self.runs_on) and not self.without


def _examine(check: Check, entry: SuiteEntry, facts: Facts, nodes: tuple[str, ...]) -> _Option:
    option = _Option(check, entry.params_for(check))
    if check.impact is Impact.DESTRUCTIVE:
        return replace(option, blocked="destructive checks are refused")
    if check.scope not in (Scope.NODE, Scope.PAIR, Scope.GROUP, Scope.CLUSTER):
        return replace(option, blocked=f"tests of each {check.scope.value} are not possible yet")
    for program in check.builds:
        if program not in facts.programs:
            why = facts.unbuilt.get(program, "it has not been built")
            return replace(option, blocked=f"{program} could not be built: {why}")
    failed: list[Verdict] = []
    left = nodes
    for word in (w for w in check.needs if w in HARDWARE):
        has = {n: facts.has.get(word, {}).get(n) for n in left}
        unknown = [n for n in left if has[n] is None]
        expected = facts.expected.get(word, {})
        if unknown:
            return replace(option, blocked=f"no source tells whether {fold(unknown)} has a {HARDWARE[word]}")
        if not any(has.values()) and not any(n in expected for n in left):
            return replace(option, absent=f"no {HARDWARE[word]} on any node: {_tested(check)} not tested")
        lacking = [n for n in left if not has[n]]
        failed += [_plan_verdict(check.name, Subject((n,)), Status.FAIL, _lacks(word, n, has, expected))
                   for n in lacking]
        left = tuple(n for n in left if has[n])
    return _with_tools(replace(option, failed=tuple(failed)), facts, left)


def _with_tools(option: _Option, facts: Facts, nodes: tuple[str, ...]) -> _Option:
    names = [w for w in option.check.needs if w not in HARDWARE]
    without = {}
    for node in nodes:
        missing = [t for t in names if not facts.tools.get(node, {}).get(t)]
        if missing:
            unknown = [t for t in missing if t not in facts.tools.get(node, {})]
            what = "was not looked for" if unknown == missing else "was not found"
            without[node] = f"{', '.join(missing)} {what} there"
    runs_on = tuple(n for n in nodes if n not in without)
    blocked = ""
    if not runs_on:
        blocked = f"no node has it: {next(iter(without.values()))}" if without else "no node has the hardware"
    return replace(option, runs_on=runs_on, without=without, blocked=blocked)


def _take(option: _Option, chosen: dict[str, _Chosen], draft: _Draft) -> None:
    check = option.check
    if check.name in chosen:
        return      # chosen twice runs once
    draft.entries = [e for e in draft.entries if e.check != check.name]
    draft.entries.append(_entry(check, None, ""))
    draft.verdicts += option.failed
    draft.verdicts += [_plan_verdict(check.name, Subject((n,)), Status.NOT_RUN, why)
                       for n, why in option.without.items()]
    chosen[check.name] = _Chosen(check, option.params, option.runs_on)


def _with_name(option: _Option, count: int) -> str:
    reason = option.absent or option.blocked
    return f"{option.check.name}: {reason}" if count > 1 else reason


def _tested(check: Check) -> str:
    return "RDMA" if "rdma" in check.needs else check.name


def _lacks(word: str, node: str, has: Mapping[str, bool | None], expected: Mapping[str, str]) -> str:
    others = sum(1 for there in has.values() if there)
    why = f"expected by {expected[node]}" if node in expected else f"{others} of {len(has)} nodes have one"
    return f"no {HARDWARE[word]} on {node}: {why}"


def _entry(check: Check, status: Status | None, reason: str) -> PlannedEntry:
    return PlannedEntry(check.name, check.title, check.scope, status, reason)


def _plan_verdict(check: str, subject: Subject, status: Status, reason: str) -> Verdict:
    return Verdict(check, subject, status, reason, basis="plan")


def _say_when_too_few(one: _Chosen, draft: _Draft) -> None:
    if one.check.scope is Scope.PAIR and len(one.nodes) < 2:
        reason = f"a pair needs two nodes, there is only {one.nodes[0]}"
        draft.entries = [_entry(one.check, Status.NOT_RUN, reason) if e.check == one.check.name else e
                         for e in draft.entries]
        draft.verdicts.append(_plan_verdict(one.check.name, Subject(one.nodes), Status.NOT_RUN, reason))


# --- tests and stages -------------------------------------------------------------------------------------------


def rounds(nodes: Sequence[T]) -> list[list[tuple[T, T]]]:
    """Every pair exactly once, in rounds in which nobody is in two pairs (circle method). With an odd number each
    sits out one round. The earlier of the two comes first in its pair."""
    place = {node: i for i, node in enumerate(nodes)}
    ring: list[T | None] = [*nodes]
    if len(ring) % 2:
        ring.append(None)
    size = len(ring)
    found = []
    for _ in range(size - 1):
        pairs = []
        for i in range(size // 2):
            a, b = ring[i], ring[size - 1 - i]
            if a is not None and b is not None:
                pairs.append((a, b) if place[a] < place[b] else (b, a))
        found.append(pairs)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found if size > 1 else []


def _lay_out(chosen: Sequence[_Chosen], suite: Suite, facts: Facts, job: int, draft: _Draft) -> None:
    def add(one: _Chosen, nodes: tuple[str, ...], at_once: int | None = None) -> str:
        return _add_test(one, nodes, at_once, suite, facts, job, draft)

    per_node = [c for c in chosen if c.check.scope is Scope.NODE]
    ids = [add(c, (n,)) for c in per_node for n in c.nodes]
    _stage("nodes", "node checks", ids, draft, in_turn=True)
    groups = [c for c in chosen if c.check.scope in (Scope.GROUP, Scope.CLUSTER)]
    light = [c for c in groups if c.check.impact is Impact.LIGHT]
    for one in light:       # a broken launcher or MPI shows before hundreds of pairs do
        _stage("group", one.check.name, [add(one, one.nodes)], draft)
    for one in chosen:
        if one.check.scope is Scope.PAIR and len(one.nodes) > 1:
            plan = rounds(one.nodes)
            wanted = plan if suite.pairs == "all" else plan[:int(suite.pairs)]
            for number, pairs in enumerate(wanted, 1):
                ids = [add(one, pair, len(pairs)) for pair in pairs]
                _stage("round", f"{one.check.name} round {number} of {len(wanted)}", ids, draft)
    for one in groups:
        if one not in light:
            _stage("group", one.check.name, [add(one, one.nodes)], draft)


def _add_test(one: _Chosen, nodes: tuple[str, ...], at_once: int | None, suite: Suite, facts: Facts, job: int,
              draft: _Draft) -> str:
    """A planned test; "" when its check cannot say how to run it (then that is its verdict)."""
    number = len(draft.tests) + 1
    test = PlannedTest(f"t{number:04d}", one.check.name, Subject(nodes), (), job, pairs_at_once=at_once)
    context = context_of(one.check, one.params, facts, test)
    try:
        steps = guarded(one.check, "steps", lambda: one.check.steps(context))
        steps = tuple(_complete(step, nodes, suite.env) for step in steps)
        problem = "it has no steps" if not steps else _unfit(steps)
    except HpcadminError as exc:
        steps, problem = (), str(exc)
    if problem:
        draft.verdicts.append(_plan_verdict(one.check.name, test.subject, Status.ERROR, problem))
        return ""
    parallel = next((s for s in steps if s.role is Role.RANKS), None)
    draft.tests.append(replace(
        test, steps=steps, ranks=parallel.tasks_per_node * len(parallel.nodes) if parallel else None))
    return test.id


def context_of(check: Check, params: Params, facts: Facts, test: PlannedTest) -> Context:
    """What the check is given for this test, to say its steps and to read their outputs."""
    nodes = test.subject.nodes
    tools = {n: {**{p: facts.programs[p] for p in check.builds if p in facts.programs},
                 **{t: facts.tools.get(n, {}).get(t, "") for t in check.needs if t not in HARDWARE}} for n in nodes}
    number = int("".join(c for c in test.id if c in "0123456789") or "0")
    return Context(
        nodes=tuple(facts.views.get(n) or NodeView(n) for n in nodes), params=params, tools=_same(tools, nodes),
        shared_dir=facts.shared_dir, ranks=test.ranks, pairs_at_once=test.pairs_at_once or 1,
        port_base=PORTS_FROM + number * 10 % PORTS)


def params_of(suite: Suite, check: Check) -> Params:
    """The parameters that the suite runs the check with: those of the first entry that names it."""
    return next((e.params_for(check) for e in suite.entries if check.name in e.names), check.params)


def _same(tools: Mapping[str, Mapping[str, str]], nodes: Iterable[str]) -> dict[str, str]:
    """Tool -> path; where the nodes' paths differ, the bare name, for each node to look up."""
    found: dict[str, str] = {}
    for node in nodes:
        for tool, path in tools[node].items():
            found[tool] = path if found.get(tool, path) == path else tool
    return found


def _complete(step: Step, nodes: tuple[str, ...], env: Mapping[str, str]) -> Step:
    if step.nodes:
        where = step.nodes
    elif step.role is Role.SERVER:
        where = nodes[:1]
    elif step.role is Role.CLIENT:
        where = nodes[-1:]
    else:
        where = nodes
    return replace(step, nodes=where, env={**env, **step.env})


def _unfit(steps: Sequence[Step]) -> str:
    """Why the script cannot run these steps, "" when it can."""
    for step in steps:
        if not step.argv or any("\0" in word for word in step.argv):
            return "a step has no command"
        if step.role in (Role.SERVER, Role.CLIENT) and len(step.nodes) != 1:
            return f"a {step.role.value} must be on one node"
    roles = [s.role for s in steps]
    servers = roles.count(Role.SERVER)
    if servers > 1 or (Role.CLIENT in roles and (not servers or roles.index(Role.CLIENT) < roles.index(Role.SERVER))):
        return "there must be one server, before its clients"
    return ""


def _stage(kind: str, name: str, ids: Sequence[str], draft: _Draft, *, in_turn: bool = False) -> None:
    tests = {t.id: t for t in draft.tests}
    members = tuple(i for i in ids if i)
    if not members:
        return
    draft.stages.append(Stage(kind, name, members))
    draft.seconds += stage_seconds([tests[i] for i in members], in_turn=in_turn, usual=draft.usual) + _STEP_OVERHEAD_S


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

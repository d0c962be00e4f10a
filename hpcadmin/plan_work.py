"""What a test does: its context, and its steps, which are worked out when somebody needs them. Pure.

A plan of 100,000 tests does not hold their steps. It works them out once for each kind of test (Kinds): nodes of one
kind differ only in names, addresses and the UUIDs of their GPUs. A job's script works them out for each of its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TypeVar

from hpcadmin.check import Check, Context, NodeView, PortView, Role, Status, Step, Way
from hpcadmin.errors import HpcadminError
from hpcadmin.plan_facts import HARDWARE, Facts
from hpcadmin.plan_steps import checked
from hpcadmin.rundata import PlannedTest
from hpcadmin.site_tools import MPIRUN
from hpcadmin.text import plural, printable
from hpcadmin.tools import PYXIS, version_for, way_for, ways_of

T = TypeVar("T")
Ways = tuple[Way, dict[str, Way]]
PORTS_FROM, PORTS = 18500, 4000      # below the ephemeral ports; ten for each test
NO_WAY = 78                          # exit status of a step that could not be started as it should (job.sh)
_KEPT = 131_072                      # tests whose steps are kept while a script is written
_OWN = {"name", "address", "hostname", "gpu_uuids"}      # of a node alone
_COMMON = attrgetter(*(item.name for item in fields(NodeView) if item.name not in _OWN))


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


# --- the context ------------------------------------------------------------------------------------------------


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


# --- the steps of a test ----------------------------------------------------------------------------------------


def steps_of(check: Check, facts: Facts, test: PlannedTest, env: Mapping[str, str],
             ways: Ways | None = None) -> tuple[Step, ...]:
    """Checked, with nodes, environment and way. Raises one of our errors where the check does not say how it runs.
    ways: as ways_of gives them for this check and these nodes, where they are known."""
    nodes = test.subject.nodes
    context = context_of(check, facts, test)
    steps, problem = checked(guarded(check, "steps", lambda: check.steps(context)), nodes)
    known = ways or ways_of(check, nodes, facts.site, facts.tools, pyxis=facts.pyxis)
    steps = tuple(_complete(step, nodes, env, way_for(step, known, facts.site)) for step in steps)
    problem = problem or unfit(steps)
    if facts.site.slurm.mpi == MPIRUN and any(s.role is Role.RANKS and s.way.by == PYXIS for s in steps):
        problem = problem or "mpirun cannot start the containers of pyxis: mpi must be one of srun's"
    if problem:
        raise CheckCallError(problem)
    return steps


def _complete(step: Step, nodes: tuple[str, ...], env: Mapping[str, str], way: Way) -> Step:
    """The step with its nodes, its way and the suite's environment."""
    if step.role is Role.JOB and step.job is not None and step.job.anywhere:
        return replace(step, nodes=(), env={**env, **step.env}, way=way)
    default = nodes[:1] if step.role is Role.SERVER else nodes[-1:] if step.role is Role.CLIENT else nodes
    return replace(step, nodes=step.nodes or default, env={**env, **step.env} if env else step.env, way=way)


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


# --- what the tests of one kind have in common ------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """problem: why its tests cannot be started, worth status. own: they are jobs of their own. boxed: in containers of
    pyxis. limit_s: the most that their steps may take."""

    problem: str = ""
    status: Status = Status.ERROR
    own: bool = False
    boxed: bool = False
    ranks: int | None = None
    limit_s: float = 0.0


def kind_of(steps: Sequence[Step]) -> Kind:
    parallel = next((s for s in steps if s.role is Role.RANKS), None)
    return Kind(own=steps[0].role is Role.JOB, boxed=any(s.way.by == PYXIS for s in steps),
                ranks=parallel.tasks_per_node * len(parallel.nodes) if parallel else None, limit_s=limit_of(steps))


def limit_of(steps: Iterable[Step]) -> float:
    return sum(s.timeout_s + (s.ready.timeout_s if s.ready else 0.0) for s in steps)


class NodeKinds(Mapping[str, int]):
    """Node -> the number of its kind."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._of: dict[str, int] = {}
        self._known: dict[object, int] = {}

    def __getitem__(self, node: str) -> int:
        number = self._of.get(node)
        if number is None:
            number = self._of[node] = self._known.setdefault(self._look(node), len(self._known))
        return number

    def _look(self, node: str) -> object:
        view = self._facts.views.get(node)
        tools, found = self._facts.tools.get(node, {}), self._facts.found.get(node, {})
        return (_COMMON(view) if view is not None else None, len(view.gpu_uuids) if view is not None else 0,
                bool(view and view.address), tuple(tools.items()), tuple((t, one.version) for t, one in found.items()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


# --- the steps of a job's tests ---------------------------------------------------------------------------------


class Stepped(Mapping[str, PlannedTest]):
    """Tests with their steps, which are worked out when a test is asked for, and kept for a while.

    What cannot be worked out although another of its kind could (a site's own check that depends on a node's name) is
    a step that says so and fails as one that could not be started.
    """

    def __init__(self, tests: Mapping[str, PlannedTest], checks: Mapping[str, Check], facts: Facts,
                 env: Mapping[str, str]) -> None:
        self._tests, self._checks, self._facts, self._env = tests, checks, facts, env
        self._kept: dict[str, PlannedTest] = {}
        self._nodes = NodeKinds(facts)
        self._ways: dict[tuple[str, tuple[int, ...]], Ways] = {}

    def __getitem__(self, number: str) -> PlannedTest:
        known = self._kept.get(number)
        if known is None:
            known = self._whole(self._tests[number])
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[number] = known
        return known

    def _whole(self, test: PlannedTest) -> PlannedTest:
        if test.steps:
            return test
        try:
            steps = steps_of(self._checks[test.check], self._facts, test, self._env, self._ways_for(test))
            if steps[0].role is Role.JOB:
                raise CheckCallError(f"steps of check {test.check} gives a job of its own, as it did not for others")
        except HpcadminError as exc:
            steps = (_refusal(str(exc), test.subject.nodes[:1]),)
        return replace(test, steps=steps)

    def _ways_for(self, test: PlannedTest) -> Ways:
        """The same for all nodes of one kind."""
        key = test.check, tuple(dict.fromkeys(self._nodes[n] for n in test.subject.nodes))
        known = self._ways.get(key)
        if known is None:
            known = self._ways[key] = ways_of(self._checks[test.check], test.subject.nodes, self._facts.site,
                                              self._facts.tools, pyxis=self._facts.pyxis)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._tests)

    def __len__(self) -> int:
        return len(self._tests)


def _refusal(why: str, nodes: tuple[str, ...]) -> Step:
    script = f'printf "hpcadmin: %s\\n" "$1"; exit {NO_WAY}'
    return Step(("/bin/sh", "-c", script, "hpcadmin", printable(why, limit=400)), nodes=nodes, timeout_s=30.0)

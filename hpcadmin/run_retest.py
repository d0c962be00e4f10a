"""What --retest measures again: the tests that are bad or came to nothing, and a few good ones to compare with. Pure.

Exactly these tests, and no others of their checks: of 64 nodes one of which is slow to all, 63 pairs and three more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hpcadmin.check import Scope, Status, Verdict
from hpcadmin.errors import UsageError
from hpcadmin.hosts import fold
from hpcadmin.run_lost import AVAILABILITY
from hpcadmin.run_session import Request
from hpcadmin.rundata import PlannedTest, Run, Together

# What the new command may leave to the old one.
_UNSAID = (*((name, "") for name in ("inventory", "partition", "account", "qos", "reservation", "run_dir", "pairs")),
           *((name, None) for name in ("time_limit_min", "nice", "priority")), ("at_once", 0))
PARTNERS = 3        # good nodes that each bad one is measured with again, and that peers need
_BAD = (Status.FAIL, Status.ERROR, Status.NOT_RUN)


@dataclass(frozen=True)
class FailedSet:
    """In the order of the plan. together: of each check the sets of nodes that it is to test."""

    checks: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    together: tuple[Together, ...] = ()


def retest(request: Request, old: Request, run: Run, *, named: str = "", loads: Collection[str] = ()) -> Request:
    """The request of a new run. old: what the run was asked for; run: with the re-tests that there are, named: the one
    of them that is to be repeated. What the command line names comes first: with other nodes or pairs the checks that
    failed are measured as a whole there. loads: the checks that put nodes under load.

    Raises UsageError when nothing of the run failed.
    """
    found = failed_set(run, loads)
    name = named or run.manifest.run_id
    if not found.nodes:
        others = " with its re-tests" if run.acceptance else ""
        raise UsageError(f"nothing failed in run {name}{others}: there is nothing to test again")
    chosen = {key: getattr(old if getattr(request, key) == unsaid else request, key) for key, unsaid in _UNSAID}
    exact = not (request.hostlist or request.pairs)
    return replace(request, **{**chosen, **({"pairs": "all"} if exact else {})}, suite=old.suite,
                   hostlist=request.hostlist or fold(found.nodes), only=found.checks, retest_of=name,
                   together=found.together if exact else ())


def failed_set(run: Run, loads: Collection[str] = ()) -> FailedSet:
    if run.plan is None:
        return FailedSet()
    known = {e.check for e in run.plan.entries}
    told = dict.fromkeys((*run.verdicts, *run.plan.verdicts))
    bad = [v for v in told if v.status in _BAD and v.check in known and v.subject.nodes]
    lost = {n for v in told if v.check == AVAILABILITY and v.status in _BAD for n in v.subject.nodes}
    wanted = _Wanted(run, bad, loads)
    for verdict in bad:
        wanted.take(verdict)
    for node in lost:
        wanted.whole_node(node)
    wanted.compare()
    return wanted.found()


class _Wanted:
    def __init__(self, run: Run, bad: Sequence[Verdict], loads: Collection[str]) -> None:
        assert run.plan is not None  # noqa: S101
        self.plan = run.plan
        self.loads = set(loads)
        self.tests = {t.id: t for t in run.plan.tests}
        self.scopes = {e.check: e.scope for e in run.plan.entries}
        self.order = {n: i for i, n in enumerate((*run.plan.nodes, *(s.node for s in run.plan.skipped)))}
        alone = {n for f in run.findings if len(f.nodes) == 1 for n in f.nodes}
        alone |= {v.subject.nodes[0] for v in bad if len(v.subject.nodes) == 1}
        unexplained = {n for v in bad if len(v.subject.nodes) == 2 and not alone & set(v.subject.nodes)
                       for n in v.subject.nodes}
        self.accused = alone | unexplained | {s.node for s in run.plan.skipped}
        self.sets: dict[str, dict[frozenset[str], tuple[str, ...]]] = {}
        self.by_node = _by_node(run.plan.tests)
        self.compared: dict[str, dict[str, None]] = {}      # check -> accused nodes that need others beside them

    def add(self, check: str, nodes: Iterable[str]) -> None:
        own = tuple(nodes)
        self.sets.setdefault(check, {}).setdefault(frozenset(own), own)

    def take(self, v: Verdict) -> None:
        """The test of a bad verdict; of what the peers say, the node's."""
        test = self.tests.get(v.test)
        nodes = test.subject.nodes if test else v.subject.nodes
        pairs = self.scopes[v.check] is Scope.PAIR
        if pairs or v.basis == "peers":
            self.compared.setdefault(v.check, {}).update(dict.fromkeys(n for n in nodes if n in self.accused))
        if test is not None or not pairs or len(nodes) == 2:
            self.add(v.check, nodes)
        else:
            self.sets.setdefault(v.check, {})
        if test is not None and test.when == "after":
            self._loads(test.subject.nodes)
        if test is not None and len(nodes) == 1:
            self._beside(test)

    def _loads(self, nodes: Sequence[str]) -> None:
        """What is told after a load needs one."""
        for node in nodes:
            for check in self.loads & self.scopes.keys():
                found = [t for t in self.by_node.get((check, node), ()) if len(t.subject.nodes) <= 2]
                for test in found[:PARTNERS]:
                    self.add(check, test.subject.nodes)

    def _beside(self, test: PlannedTest) -> None:
        """The load that it was measured beside."""
        for stage in (s for job in self.plan.jobs for s in job.stages if s.kind == "group" and test.id in s.tests):
            for other in (self.tests[i] for i in stage.tests if i in self.tests):
                if other.check != test.check and test.subject.nodes[0] in other.subject.nodes:
                    self.add(other.check, other.subject.nodes)

    def whole_node(self, node: str) -> None:
        """A node that could not be tested: all that the suite has for a node or for two."""
        for entry in self.plan.entries:
            if entry.status is not None or entry.scope in (Scope.GROUP, Scope.CLUSTER):
                continue
            if entry.scope is Scope.PAIR:
                self.sets.setdefault(entry.check, {})
                self.compared.setdefault(entry.check, {})[node] = None
            else:
                self.add(entry.check, (node,))

    def compare(self) -> None:
        """Good nodes beside those that are accused, and these with each other."""
        for check, accused in self.compared.items():
            if self.scopes[check] is not Scope.PAIR:
                for node in self._partners(check, "")[:PARTNERS]:
                    self.add(check, (node,))
                continue
            chosen: dict[str, None] = {}
            for node in accused:
                partners = self._partners(check, node)[:PARTNERS]
                for partner in partners:
                    self.add(check, self._pair(check, node, partner))
                if not chosen:
                    chosen = dict.fromkeys(partners)
            for a, b in combinations(sorted(chosen, key=self._place), 2):
                self.add(check, self._pair(check, a, b))

    def _partners(self, check: str, node: str) -> list[str]:
        """Good nodes, those first that it was measured with."""
        met = [n for t in self.by_node.get((check, node), ()) if len(t.subject.nodes) == 2 for n in t.subject.nodes]
        return [n for n in dict.fromkeys((*met, *self.plan.nodes)) if n not in self.accused]

    def _pair(self, check: str, a: str, b: str) -> tuple[str, ...]:
        """In the order in which they were measured."""
        for test in self.by_node.get((check, a), ()):
            if set(test.subject.nodes) == {a, b}:
                return test.subject.nodes
        return tuple(sorted((a, b), key=self._place))

    def _place(self, node: str) -> int:
        return self.order.get(node, len(self.order))

    def found(self) -> FailedSet:
        sets: Mapping[str, Iterable[tuple[str, ...]]] = {c: own.values() for c, own in self.sets.items()}
        nodes = {n for own in sets.values() for s in own for n in s}
        checks = tuple(e.check for e in self.plan.entries if e.check in sets)
        return FailedSet(checks, tuple(sorted(nodes, key=self._place)),
                         tuple(Together(c, tuple(sets[c])) for c in checks))


def _by_node(tests: Iterable[PlannedTest]) -> dict[tuple[str, str], list[PlannedTest]]:
    found: dict[tuple[str, str], list[PlannedTest]] = {}
    for test in tests:
        if not test.repeats:
            for node in test.subject.nodes:
                found.setdefault((test.check, node), []).append(test)
    return found

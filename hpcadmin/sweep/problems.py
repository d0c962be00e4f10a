"""What people should know, as problems that begin, change and end: the interface of whatever tells them. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand, fold
from hpcadmin.sweep.act import Done
from hpcadmin.sweep.decide import Plan
from hpcadmin.sweep.model import DONE, Act, Change, Decision, Kind, Problem, Result, Seen, night_name
from hpcadmin.sweep.states import in_service
from hpcadmin.sweep.words import bare
from hpcadmin.text import plural

MAX_UNKNOWN = 20            # checks without an answer that are told
_PHASES = {Act.DRAIN: "drained", Act.KEEP: "drained", Act.COMMENT: "commented", Act.HOLD: "held", Act.TELL: "told"}


@dataclass(frozen=True)
class Watched:
    """What is only told, beside what is decided about nodes: key -> problem, values, notes. unknown: beginnings of keys
    of which nothing is known tonight. series: beginning of keys -> those of them of which something is. measured: what
    is compared -> why nothing is known of it, "" where something is."""

    problems: Mapping[str, Problem] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    series: Mapping[str, frozenset[str]] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)

    def unknown_of(self, told: Iterable[str]) -> tuple[str, ...]:
        """What goes on of the keys that were told: one of a series is not over because the others are measured."""
        return (*self.unknown, *(key for key in told for head, known in self.series.items()
                                 if key.startswith(head) and key not in known))


def problems(plan: Plan, done: Mapping[str, Done], seen: Seen, missed: Sequence[int], now: float) -> dict[str, Problem]:
    """key -> problem, of a sweep that Slurm answered. done: by node, what came of what was decided."""
    found: dict[str, Problem] = {}

    def add(key: str, signature: str, text: str, node: str = "", checks: tuple[str, ...] = ()) -> None:
        found[key] = Problem(key, signature, text, node, checks, now)

    busy = {record.name for record in seen.nodes if not in_service(record)}
    for decision in plan.decisions:
        result = done.get(decision.node)
        if result is not None and result.result != DONE:
            add(f"act/{decision.node}", f"{decision.act.value} {result.result}",
                f"{decision.node}: {decision.act.value} {result.result}: {result.text}", decision.node)
        phase = _phase(decision, result)
        if phase and not (decision.act is Act.HOLD and decision.node in busy):      # somebody is at it already
            add(f"node/{decision.node}", f"{phase} {','.join(decision.checks)}",
                f"{decision.node}: {phase}: {decision.why}", decision.node, decision.checks)
    if plan.budget.text:
        add("budget", plan.budget.mass or plan.budget.text, plan.budget.text)
    if seen.unmeasured:
        unmeasured = fold(sorted(seen.unmeasured))
        cause, count = Counter(seen.unmeasured.values()).most_common(1)[0]
        others = len(seen.unmeasured) - count
        add("unmeasured", unmeasured, f"the health of {plural(len(seen.unmeasured), 'node')} is not known: "
            f"{unmeasured}: {cause}{f' ({others} for other reasons)' if others else ''}")
    for check, nodes, why in _unanswered(seen, busy):
        add(f"unknown/{check}", fold(nodes), f"{check} has no answer on {plural(len(nodes), 'node')}: {fold(nodes)}: "
            f"{why or 'not known why'}")
    found.update((problem.key, problem) for problem in seen.problems)
    if missed:
        nights = ", ".join(night_name(night) for night in list(missed)[-5:])
        add("missed", nights, f"no sweep on {plural(len(missed), 'night')}: {nights}")
    return found


def _unanswered(seen: Seen, busy: Container[str]) -> list[tuple[str, list[str], str]]:
    """Health checks that hung, or could not be made, on nodes that were looked at: what drains nobody is told at least.
    (check, nodes, why on the first), those of most nodes first."""
    found: dict[str, dict[str, str]] = {}
    for look in seen.looks:
        if look.result is Result.UNKNOWN and look.kind in (Kind.HARDWARE, Kind.NODE) and look.node not in busy:
            found.setdefault(bare(look.check), {})[look.node] = look.text
    rows = [(check, sorted(nodes), nodes[min(nodes)]) for check, nodes in found.items()]
    return sorted(rows, key=lambda row: (-len(row[1]), row[0]))[:MAX_UNKNOWN]


def _phase(decision: Decision, result: Done | None) -> str:
    """What a person sees of the node; "" where there is nothing to see."""
    if result is not None and result.result != DONE:
        return "drained" if decision.act is Act.RESUME else "commented" if decision.act is Act.UNCOMMENT else "told"
    return _PHASES.get(decision.act, "")


def _nodes(folded: str, otherwise: Iterable[str]) -> Iterable[str]:
    """otherwise: of a list that was cut off."""
    try:
        return expand(folded)
    except UsageError:
        return otherwise


def slurm_problem(text: str, now: float) -> Problem:
    return Problem("slurm", "no answer", f"nothing is done: {text}", since=now)


def changes(before: Mapping[str, Problem], now: Mapping[str, Problem], seen: Seen | None,
            unknown: tuple[str, ...] = ()) -> tuple[Change, ...]:
    """What is new. A problem of which nothing is known tonight goes on: seen None, its checks were not looked at, its
    key begins with one of `unknown`. So does a budget that was passed for nodes of which nothing is known."""
    found = []
    for key in sorted(now):
        old = before.get(key)
        if old is None:
            found.append(Change("begins", now[key]))
        elif old.signature != now[key].signature:
            found.append(Change("changes", now[key]))
    known = _Known.of(seen) if seen is not None else None
    if known is None:
        return tuple(found)
    gone = sorted(set(before) - set(now))
    goes_on = {key for key in gone if key.startswith((*unknown, *known.unknown)) or known.leaves_open(before[key])}
    if any(key.startswith("node/") for key in goes_on):
        goes_on.add("budget")
    found += [Change("ends", before[key]) for key in gone if key not in goes_on]
    return tuple(found)


@dataclass(frozen=True)
class _Known:
    """What is known tonight. network: checks between two nodes: their strikes are not on every night. silent: nodes in
    service that have not told of their health. hung: checks of the others without an answer. unknown: as in Seen."""

    nodes: frozenset[str]
    checks: Mapping[str, set[str]]
    network: frozenset[str]
    silent: frozenset[str]
    hung: frozenset[str]
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, seen: Seen) -> _Known:
        checks: dict[str, set[str]] = defaultdict(set)
        service = {record.name for record in seen.nodes if in_service(record)}
        health = [look for look in seen.looks if look.kind in (Kind.HARDWARE, Kind.NODE) and look.node in service]
        for look in seen.looks:
            if look.result is not Result.UNKNOWN:
                for node in filter(None, (look.node, look.partner)):
                    checks[node].add(look.check)
        return cls(frozenset(record.name for record in seen.nodes), checks,
                   frozenset(look.check for look in seen.looks if look.partner),
                   frozenset(service - {look.node for look in health}),
                   frozenset(bare(look.check) for look in health if look.result is Result.UNKNOWN), seen.unknown)

    def leaves_open(self, problem: Problem) -> bool:
        head, _, check = problem.key.partition("/")
        if head == "unknown":       # its signature names the nodes
            return check in self.hung or not self.silent.isdisjoint(_nodes(problem.signature, self.silent))
        if not problem.checks or problem.node not in self.nodes:
            return False
        return not set(self.checks.get(problem.node, ())).issuperset(set(problem.checks) - self.network)

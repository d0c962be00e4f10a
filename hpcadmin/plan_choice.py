"""Which check of a suite's entry runs, on which nodes, and what is said of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from hpcadmin.check import Check, Impact, Layout, Params, Status, Subject, Verdict
from hpcadmin.hosts import fold
from hpcadmin.plan_facts import HARDWARE, Facts
from hpcadmin.plan_layouts import TWO_NODES, in_order
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.rundata import PlannedEntry


@dataclass(frozen=True)
class Chosen:
    """A check that runs, on which nodes, and what its entry of the suite says of it."""

    check: str
    nodes: tuple[str, ...]
    over: tuple[Layout, ...]
    params: Params = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """runs: in the order of the suite. The rest is what the plan says of everything else."""

    runs: tuple[Chosen, ...]
    entries: tuple[PlannedEntry, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Option:
    """What can be said of one check on the nodes. absent: nobody has the hardware. blocked: why it can run nowhere.

    failed: verdicts of nodes that lack what the others have; without: nodes that lack a tool, with the reason.
    """

    check: Check
    runs_on: tuple[str, ...] = ()
    absent: str = ""
    blocked: str = ""
    failed: tuple[Verdict, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return bool(self.runs_on) and not self.without

    @property
    def why_not(self) -> str:
        return self.absent or self.blocked


def plan_verdict(check: str, subject: Subject, status: Status, reason: str) -> Verdict:
    return Verdict(check, subject, status, reason, basis="plan")


def choose(suite: Suite, checks: Mapping[str, Check], facts: Facts, nodes: tuple[str, ...], *, yes: bool = False,
           ) -> Choice:
    """Of each entry the first alternative that every node can run, else the first that any can. yes: checks that
    destroy may, in the directory that is named."""
    table = _Table(nodes)
    if nodes:
        for entry in suite.entries:
            table.add(entry, [_examine(checks[name], facts, nodes, entry, yes=yes) for name in entry.names])
    else:
        for name in dict.fromkeys(name for entry in suite.entries for name in entry.names[:1]):
            table.not_run(checks[name], "there is no node to test")
    return Choice(tuple(table.runs), tuple(table.entries.values()), tuple(table.verdicts),
                  tuple(dict.fromkeys(table.notes)))


class _Table:
    """What becomes of each check; one that several entries name has one place."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self.runs: list[Chosen] = []
        self.entries: dict[str, PlannedEntry] = {}
        self.verdicts: list[Verdict] = []
        self.notes: list[str] = []

    def add(self, entry: SuiteEntry, options: list[_Option]) -> None:
        pick = next((o for o in options if o.ready), None) or next((o for o in options if o.runs_on), None)
        if pick is not None:
            self._run(pick, entry)
            for option in options:
                if option is not pick and option.check.name not in self.entries:
                    self._say(option.check, Status.NOT_NEEDED, f"{pick.check.name} is used instead")
        elif all(o.absent for o in options):
            for option in options:
                self._say(option.check, Status.NOT_APPLICABLE, option.absent)
                self.notes.append(option.absent)
        else:
            self._none(options)

    def _run(self, option: _Option, entry: SuiteEntry) -> None:
        name = option.check.name
        one = Chosen(name, option.runs_on, _over(entry, option.check), entry.params.get(name, {}))
        if one in self.runs:
            return      # chosen twice runs once
        if not any(other.check == name for other in self.runs):
            self._say(option.check, None, "")
            self.verdicts += option.failed
            self.verdicts += [plan_verdict(name, Subject((n,)), Status.NOT_RUN, why)
                              for n, why in option.without.items()]
        self.runs.append(one)

    def _none(self, options: list[_Option]) -> None:
        """No alternative can run anywhere, though hardware is there: one of them stands for the entry."""
        first = next(o for o in options if not o.absent)
        reason = "; ".join(f"{o.check.name}: {o.why_not}" for o in options) if len(options) > 1 else first.why_not
        self.not_run(first.check, reason)
        self.verdicts += first.failed
        for option in options:
            if option is not first and option.check.name not in self.entries:
                self._say(option.check, Status.NOT_NEEDED, f"an alternative of {first.check.name}, which was not run")

    def not_run(self, check: Check, reason: str) -> None:
        self._say(check, Status.NOT_RUN, reason)
        self.verdicts.append(plan_verdict(check.name, Subject(self.nodes), Status.NOT_RUN, reason))

    def _say(self, check: Check, status: Status | None, reason: str) -> None:
        self.entries.pop(check.name, None)
        self.entries[check.name] = PlannedEntry(check.name, check.title, check.scope, status, reason,
                                                covers=tuple(w for w in check.needs if w in HARDWARE))


def _over(entry: SuiteEntry, check: Check) -> tuple[Layout, ...]:
    return in_order(entry.over or check.possible[:1])


def _examine(check: Check, facts: Facts, nodes: tuple[str, ...], entry: SuiteEntry, *, yes: bool) -> _Option:
    option = _Option(check)
    refused = _refused(check, entry, yes=yes) if check.impact is Impact.DESTRUCTIVE else ""
    if refused:
        return replace(option, blocked=refused)
    left = nodes
    failed: list[Verdict] = []
    for word in (w for w in check.needs if w in HARDWARE):
        option, left = _hardware(option, word, facts, left)
        if option.why_not:
            return option
        failed += option.failed
    for program in check.builds:
        if program not in facts.programs:
            why = facts.unbuilt.get(program, "it has not been built yet")
            return replace(option, blocked=f"{program} could not be built: {why}", failed=tuple(failed))
    return _runnable(_with_tools(replace(option, failed=tuple(failed)), facts, left), _over(entry, check))


def _refused(check: Check, entry: SuiteEntry, *, yes: bool) -> str:
    """Why a check that destroys may not run, "" when it may."""
    if not yes:
        return "destructive checks are refused without --yes"
    named = entry.params_for(check).get("directory", "")
    path = PurePosixPath(named if isinstance(named, str) else "")
    if not path.is_absolute() or len(path.parts) < 3 or ".." in path.parts:
        return ("a destructive check needs a directory of its own: params.directory in the suite, or in "
                f"[suites.NAME.params.{check.name}] of site.toml, absolute and not at the top")
    return ""


def _hardware(option: _Option, word: str, facts: Facts, nodes: tuple[str, ...]) -> tuple[_Option, tuple[str, ...]]:
    """Which nodes have it; those that lack what others have or somebody expects fail."""
    check, name = option.check, HARDWARE[word]
    has = {n: facts.has.get(word, {}).get(n) for n in nodes}
    expected = facts.expected.get(word, {})
    unknown = [n for n in nodes if has[n] is None]
    if unknown:
        return replace(option, blocked=f"no source tells whether {fold(unknown)} has a {name}"), ()
    if not any(has.values()) and not any(n in expected for n in nodes):
        tested = "RDMA" if word == "rdma" else check.name
        if word == "topology":
            told = "slurmctld knows no two leaf switches or blocks"
            return replace(option, absent=f"{told}: {check.name} not tested"), ()
        return replace(option, absent=f"no {name} on any node: {tested} not tested"), ()
    having = sum(1 for there in has.values() if there)
    failed = []
    for node in nodes:
        if not has[node]:
            why = f"expected by {expected[node]}" if node in expected else f"{having} of {len(nodes)} nodes have one"
            failed.append(plan_verdict(check.name, Subject((node,)), Status.FAIL, f"no {name} on {node}: {why}"))
    return replace(option, failed=tuple(failed)), tuple(n for n in nodes if has[n])


def _with_tools(option: _Option, facts: Facts, nodes: tuple[str, ...]) -> _Option:
    """The nodes that have all the check's tools can run it."""
    names = [w for w in option.check.needs if w not in HARDWARE]
    without = {}
    for node in nodes:
        missing = [t for t in names if not facts.tools.get(node, {}).get(t)]
        if missing:
            without[node] = "; ".join(facts.why_not(node, tool) for tool in missing)
    runs_on = tuple(n for n in nodes if n not in without)
    if runs_on:
        return replace(option, runs_on=runs_on, without=without)
    if without:
        return replace(option, blocked=f"{next(iter(without.values()))}: on {fold(without)}")
    return replace(option, blocked="no node has the hardware")


def _runnable(option: _Option, over: Sequence[Layout]) -> _Option:
    """A pair needs two nodes."""
    if len(option.runs_on) == 1 and all(layout in TWO_NODES for layout in over):
        return replace(option, runs_on=(), blocked=f"a pair needs two nodes, there is only {option.runs_on[0]}")
    return option

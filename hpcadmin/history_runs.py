"""A run against an earlier one: values, verdicts, findings, hardware, and what else was another at the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hpcadmin import inventory_diff
from hpcadmin.check import Status, Verdict
from hpcadmin.history import Compared, compare
from hpcadmin.history_values import Values, values_of
from hpcadmin.hosts import fold
from hpcadmin.inventory_diff import Change as Replaced
from hpcadmin.report.summary import complete_verdicts, summarise
from hpcadmin.rundata import Finding, Run

COMPARE_SCHEMA = 1
K = TypeVar("K")
_GOOD = (Status.PASS, Status.WARN)
_BAD = (Status.FAIL, Status.ERROR)


@dataclass(frozen=True)
class Turned:
    """A check on a node (or a device, or a set of nodes) whose verdict is another."""

    check: str
    nodes: tuple[str, ...]
    device: str
    old: Status
    new: Status
    reason: str = ""        # of the bad one of the two

    @property
    def where(self) -> str:
        return f"{fold(self.nodes)} {self.device}".strip()


@dataclass(frozen=True)
class Comparison:
    old: str
    new: str
    old_started: str
    new_started: str
    values: Compared
    worse: tuple[Turned, ...] = ()      # was good, is bad
    fixed: tuple[Turned, ...] = ()
    untold: tuple[Turned, ...] = ()     # was good or bad, is not known any more
    still: int = 0                      # bad in both
    appeared: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    hardware: tuple[Replaced, ...] = ()
    hardware_known: bool = False        # both runs have an inventory
    around: tuple[str, ...] = ()        # versions, nodes, suites that are others
    problems: tuple[str, ...] = field(default=())
    compared: int = 0                   # verdicts that both runs have

    @property
    def status(self) -> int:
        """1 something got worse; 3 there was nothing to compare, a run is not whole, or what was known is not known any
        more; else 0."""
        if self.worse or self.appeared or any(c.worse for c in self.values.changes):
            return 1
        whole = not self.problems and (self.values.values or self.compared)
        return 0 if whole and not self.untold else 3


def run_values(run: Run, check: str = "") -> Values:
    return values_of(run.measured, run.plan.tests if run.plan else (), check=check)


def compare_runs(old: Run, new: Run, past: Sequence[Values] = ()) -> Comparison:
    """past: values of earlier runs, oldest first, without these two."""
    before, after = _statuses(complete_verdicts(old)), _statuses(complete_verdicts(new))
    compared = len(before.keys() & after.keys())
    after |= _gone(before, after, new)
    turned = [Turned(*key, before[key][0], after[key][0], (before if after[key][0] in _GOOD else after)[key][1])
              for key in sorted(before.keys() & after.keys())]
    hardware = inventory_diff.diff(old.inventory, new.inventory).changes if old.inventory and new.inventory else ()
    return Comparison(
        old.manifest.run_id, new.manifest.run_id, old.manifest.started, new.manifest.started,
        compare(run_values(old), run_values(new), past),
        worse=_those(turned, lambda t: t.old not in _BAD and t.new in _BAD and t.old in (*_GOOD, Status.UNJUDGED)),
        fixed=_those(turned, lambda t: t.old in _BAD and t.new in _GOOD),
        untold=_those(turned, lambda t: t.old in (*_GOOD, *_BAD) and t.new in (Status.NOT_RUN, Status.UNJUDGED)),
        still=sum(t.old in _BAD and t.new in _BAD for t in turned),
        appeared=_findings(new.findings, old.findings), gone=_findings(old.findings, new.findings),
        hardware=tuple(hardware), hardware_known=bool(old.inventory and new.inventory),
        around=tuple(_around(old, new)), compared=compared,
        problems=tuple(f"{run.manifest.run_id}: {p}" for run in (old, new) for p in _problems(run)))


Key = tuple[str, tuple[str, ...], str]


def _statuses(verdicts: Iterable[Verdict]) -> dict[Key, tuple[Status, str]]:
    """The worst status of each check and subject, with its reason. Of pairs a node has that of its best one: a bad
    partner is none of its own."""
    found: dict[Key, tuple[Status, str]] = {}
    pairs: dict[Key, dict[tuple[str, ...], tuple[Status, str]]] = {}
    for v in verdicts:
        if not v.status.counts or not v.check:
            continue
        subject = tuple(sorted(v.subject.nodes))
        if len(subject) == 2:
            for node in subject:
                _worst(pairs.setdefault((v.check, (node,), ""), {}), subject, v)
        else:
            _worst(found, (v.check, subject, v.subject.device), v)
    for key, of in pairs.items():
        best = min(of.values(), key=lambda pair: pair[0].rank)
        known = found.get(key)
        if known is None or best[0].rank > known[0].rank:
            found[key] = best
    return found


def _gone(before: Mapping[Key, tuple[Status, str]], after: Mapping[Key, tuple[Status, str]], new: Run,
          ) -> dict[Key, tuple[Status, str]]:
    """What the new run was asked for and says nothing about: of a node that it skipped, or of a device that is gone."""
    nodes = set(new.manifest.nodes)
    checks = {e.check for e in new.plan.entries if e.status in (None, Status.NOT_RUN)} if new.plan else set()
    skipped = {s.node: s.reason for s in new.plan.skipped} if new.plan else {}
    return {key: (Status.NOT_RUN, skipped.get(key[1][0], "no result in the new run"))
            for key in before.keys() - after.keys()
            if key[0] in checks and len(key[1]) == 1 and key[1][0] in nodes}


def _worst(table: dict[K, tuple[Status, str]], key: K, v: Verdict) -> None:
    known = table.get(key)
    if known is None or v.status.rank > known[0].rank:
        table[key] = v.status, v.reason


def _those(turned: Iterable[Turned], wanted: Callable[[Turned], bool]) -> tuple[Turned, ...]:
    """Nodes to which the same happened are one."""
    groups: dict[tuple[str, str, Status, Status, str], list[Turned]] = {}
    for t in filter(wanted, turned):
        alone = len(t.nodes) != 1
        groups.setdefault((t.check, t.device, t.old, t.new, fold(t.nodes) if alone else t.reason), []).append(t)
    return tuple(Turned(check, tuple(dict.fromkeys(n for t in of for n in t.nodes)), device, old, new, of[0].reason)
                 for (check, device, old, new, _), of in groups.items())


def _findings(one: Sequence[Finding], other: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those that only the first has: the same nodes, device and checks are the same, whatever the numbers."""
    known = {(f.nodes, f.device, f.checks) for f in other}
    return tuple(f for f in one if (f.nodes, f.device, f.checks) not in known)


def _around(old: Run, new: Run) -> Iterable[str]:
    one, two = old.manifest, new.manifest
    for what, a, b in (("cluster", one.cluster, two.cluster), ("suite", one.suite, two.suite),
                       ("hpcadmin", one.version, two.version), ("Slurm", one.slurm_version, two.slurm_version),
                       ("simulated hardware", one.simulated or "none", two.simulated or "none")):
        if a != b:
            yield f"{what}: {a or 'unknown'} -> {b or 'unknown'}"
    nodes = set(one.nodes), set(two.nodes)
    for what, names in (("only in the old run", nodes[0] - nodes[1]), ("only in the new run", nodes[1] - nodes[0])):
        if names:
            yield f"{what}: {fold(names)}"
    before, after = _tools(old), _tools(new)
    for tool in sorted(before.keys() & after.keys()):
        if before[tool] != after[tool]:
            yield f"{tool}: {before[tool]} -> {after[tool]}"


def _tools(run: Run) -> Mapping[str, str]:
    found: dict[str, set[str]] = {}
    for tool in run.plan.tools if run.plan else ():
        if tool.version:
            found.setdefault(tool.tool, set()).add(tool.version)
    return {tool: " and ".join(sorted(versions)) for tool, versions in found.items()}


def _problems(run: Run) -> Iterable[str]:
    yield from summarise(run).problems
    if run.manifest.state != "complete":
        yield f"it is {run.manifest.state}, not complete"

"""Which node, device or path explains these verdicts: the fewest causes that account for what is bad. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpcadmin.check import Layout, Scope, Status, Subject, Verdict
from hpcadmin.hosts import fold
from hpcadmin.rundata import NO_ANSWER, Finding, Plan
from hpcadmin.text import number, plural, told_words

_NEARLY_ALL = 0.8      # of a node's pairs must be bad before the node is accused and not the pairs
_MOST_PAIRS = 10       # pairs that are named one by one, when no node explains them
_BAD = (Status.FAIL, Status.ERROR)
_GOOD = (Status.PASS, Status.WARN, Status.UNJUDGED)     # measured, and nothing says that it is bad

Pair = tuple[str, str]


def explain(verdicts: Sequence[Verdict], plan: Plan | None = None) -> list[Finding]:
    """What a person must look at, worst first. Every FAIL and ERROR verdict is in a finding.

    A node is accused only by a verdict about itself, or if all or nearly all of its pairs are bad while its partners
    are good among each other; otherwise the pair is named. A group's failure goes to the node or device that another
    verdict names, else to all of them as candidates; the text says so.
    """
    scopes = {e.check: e.scope for e in plan.entries} if plan else {}
    in_pairs = {t.id for t in plan.tests if t.layout is Layout.PAIRS} if plan else set()
    pairs: dict[tuple[str, str], list[Verdict]] = {}
    single: list[Verdict] = []
    groups: list[Verdict] = []
    case = _Case()
    for v in verdicts:
        gone = _gone(v)
        if gone:                                # says nothing of its partners
            case.accuse(gone).lost.append(v)
        elif len(v.subject.nodes) == 1:
            single.append(v)
        elif len(v.subject.nodes) == 2 and (v.test in in_pairs or scopes.get(v.check, Scope.PAIR) is Scope.PAIR):
            pairs.setdefault((v.check, v.subject.device), []).append(v)
        elif len(v.subject.nodes) > 1 or v.status in _BAD:
            groups.append(v)
    _node_verdicts(single, case)
    graphs = [_Graph(check, device, found, case) for (check, device), found in pairs.items()]
    left = [graph.solve() for graph in graphs]
    for graph, rest in zip(graphs, left, strict=True):
        graph.leftover(rest)
    about_slurm = [v for v in groups if scopes.get(v.check) is Scope.CLUSTER]
    for v in (v for v in about_slurm if v.status in _BAD):      # about the whole cluster: no node is to blame
        where = f"{fold(v.subject.nodes)}: " if v.subject.nodes else ""
        case.others.append(_finding(f"{where}{v.check}: {v.reason or v.status.value}", v.subject.nodes, [v]))
    sets: dict[tuple[str, str], list[Verdict]] = {}
    for v in groups:
        if scopes.get(v.check) is not Scope.CLUSTER:
            sets.setdefault((v.check, v.subject.device), []).append(v)
    for found in sets.values():
        _Groups(found, case).solve()
    return case.findings()


def _gone(verdict: Verdict) -> str:
    """The node that was lost during the run, where a test of several could not be made for that."""
    if verdict.status not in _BAD:
        return ""
    return next((n for n in verdict.subject.nodes if verdict.reason.startswith(f"{n} {NO_ANSWER}")), "")


@dataclass
class _Cause:
    """One accused node with everything that speaks against it."""

    node: str
    lost: list[Verdict] = field(default_factory=list)         # that it answered no more
    verdicts: list[Verdict] = field(default_factory=list)     # about itself
    pairs: list[str] = field(default_factory=list)            # sentences about its pairs
    rails: set[str] = field(default_factory=set)              # rails or ports of its pairs, "" for any of them
    explains: list[Verdict] = field(default_factory=list)     # of its pairs and groups


class _Case:
    def __init__(self) -> None:
        self.causes: dict[str, _Cause] = {}
        self.others: list[Finding] = []
        # All pairs of a rail or port bad, by check, nodes and reason: one finding for all rails with the same reason.
        self.everywhere: dict[tuple[str, tuple[str, ...], str], list[tuple[_Graph, str, list[Verdict]]]] = {}

    def accuse(self, node: str) -> _Cause:
        return self.causes.setdefault(node, _Cause(node))

    def findings(self) -> list[Finding]:
        found = [_finding_of(cause) for cause in self.causes.values()] + self.others
        for (check, nodes, _), all_of in self.everywhere.items():
            graph, what, _ = all_of[0]
            kind = "rail" if graph.device.startswith("rail") else "port"
            where = graph.check if len(all_of) == 1 else f"{check} on {plural(len(all_of), kind)}"
            text = _all_bad(len(nodes), where, sum(len(g.bad) for g, _, _ in all_of), what)
            found.append(_finding(text, nodes, [v for _, _, verdicts in all_of for v in verdicts]))
        return sorted(found, key=lambda f: (-f.status.rank, -len(f.tests), f.nodes, f.text))


def _finding_of(cause: _Cause) -> Finding:
    own_devices = {v.subject.device for v in cause.verdicts if v.subject.device}
    devices = sorted(own_devices or (cause.rails if len(cause.rails) == 1 else set()) - {""}, key=_natural)
    device = ", ".join(devices)
    about = [v for v in cause.verdicts if v.subject.device or not devices] or cause.verdicts
    own = [v for v in about if v.basis != "peers" or not cause.pairs]
    told = list(dict.fromkeys(f"{v.check}: {v.reason or v.status.value}" for v in own))   # once, if also after the load
    sentences = _lost_words(cause) + told[:3] + [f"and {len(told) - 3} more"] * (len(told) > 3)
    sentences += cause.pairs[:3] + [f"{len(cause.pairs) - 3} more like it"] * (len(cause.pairs) > 3)
    groups = [v for v in cause.explains if len(v.subject.nodes) != 2]
    if groups:
        sentences.append("explains " + ", ".join(dict.fromkeys(f"{v.check} {v.status.value}" for v in groups)))
    return _finding(f"{cause.node} {device}".strip() + ": " + "; ".join(sentences), (cause.node,),
                    [*cause.lost, *cause.verdicts, *cause.explains], device=device,
                    status=_worst([*cause.lost, *cause.verdicts, *cause.explains]))


def _lost_words(cause: _Cause) -> list[str]:
    """First what Slurm says of it, else what the first test says."""
    if not cause.lost:
        return []
    first = next((v for v in cause.lost if not v.test), cause.lost[0])
    checks = {v.test: v.check for v in cause.lost if v.test}
    named = ", ".join(dict.fromkeys(checks.values()))
    more = [f"{plural(len(checks), 'test')} of {named} could not be made with it"] if checks else []
    return [first.reason.removeprefix(f"{cause.node} "), *more]


def _finding(text: str, nodes: Iterable[str], verdicts: Sequence[Verdict], *, device: str = "",
             status: Status | None = None) -> Finding:
    return Finding(text=text, nodes=tuple(nodes), device=device, status=status or _worst(verdicts),
                   checks=tuple(dict.fromkeys(v.check for v in verdicts)),
                   tests=tuple(dict.fromkeys(v.test for v in verdicts if v.test)))


def _worst(verdicts: Sequence[Verdict]) -> Status:
    return max((v.status for v in verdicts), key=lambda s: s.rank, default=Status.FAIL)


def _natural(text: str) -> list[tuple[int, str]]:
    parts: list[tuple[int, str]] = []
    for word in text.split():
        parts.append((int(word), "") if word.isdecimal() and len(word) < 10 else (-1, word))
    return parts


# --- verdicts about one node or device

def _node_verdicts(verdicts: Sequence[Verdict], case: _Case) -> None:
    """Each bad verdict accuses its node, unless a check is bad on all of at least three nodes in the same way."""
    tested: dict[tuple[str, str], set[str]] = {}
    bad: dict[tuple[str, str], list[Verdict]] = {}
    for v in verdicts:
        key = (v.check, v.measurement.name if v.measurement else "")
        if v.status is not Status.NOT_RUN and v.status.counts:
            tested.setdefault(key, set()).add(v.subject.nodes[0])
        if v.status in _BAD:
            bad.setdefault(key, []).append(v)
    for (check, _), found in bad.items():
        nodes = {v.subject.nodes[0] for v in found}
        everyone = set().union(*(names for (c, _), names in tested.items() if c == check))
        if len(nodes) >= 3 and nodes == everyone and all(v.basis != "peers" for v in found):
            reasons = dict.fromkeys(v.reason.replace(v.subject.nodes[0], "NODE") or v.status.value for v in found)
            text = next(iter(reasons)) + (f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else "")
            case.others.append(_finding(f"all {len(nodes)} nodes: {check}: {text}; a common cause is likely",
                                        sorted(nodes), found))
            continue
        for v in found:
            case.accuse(v.subject.nodes[0]).verdicts.append(v)


# --- pairs

class _Graph:
    """The pairs of one check, of one rail where they are by rail: which nodes cover all that are bad."""

    def __init__(self, check: str, device: str, verdicts: Sequence[Verdict], case: _Case) -> None:
        self.name = check
        self.check = f"{check} {device}".strip()
        self.device = device
        self.case = case
        self.verdicts: dict[Pair, list[Verdict]] = {}
        for v in verdicts:
            self.verdicts.setdefault(_pair(v.subject), []).append(v)
        self.bad = {p for p, found in self.verdicts.items() if any(v.status in _BAD for v in found)}
        self.good = {p for p, found in self.verdicts.items()
                     if p not in self.bad and any(v.status in _GOOD for v in found)}
        self.partners: dict[str, dict[str, bool]] = {}      # node -> partner -> bad
        for pair in self.bad | self.good:
            for a, b in (pair, pair[::-1]):
                self.partners.setdefault(a, {})[b] = pair in self.bad

    def solve(self) -> list[Pair]:
        """Accuses nodes; returns the bad pairs that none of them explains."""
        if not self.good and len(self.partners) > 2:
            self._everything()
            return []
        left = set(self.bad)
        for node in self._culprits():
            own = {p for p in left if node in p}
            left -= own
            cause = self.case.accuse(node)
            cause.pairs.append(self._sentence(node))
            cause.rails.add(self.device)
            cause.explains += self._bad_verdicts(own)
        return sorted(left)

    def _culprits(self) -> list[str]:
        """Greedy cover: the node with most bad pairs first, while nearly all of its pairs with nodes not yet accused
        are bad, and at least two are."""
        bad = {n: sum(partners.values()) for n, partners in self.partners.items()}
        tested = {n: len(partners) for n, partners in self.partners.items()}
        buckets: dict[int, set[str]] = {}
        for n, count in bad.items():
            buckets.setdefault(count, set()).add(n)
        accused: dict[str, None] = {}
        for count in range(max(bad.values(), default=0), 1, -1):
            while buckets.get(count):
                node = min(buckets[count], key=lambda n: (-bad[n] / tested[n], n))
                buckets[count].discard(node)
                if bad[node] < _NEARLY_ALL * tested[node]:
                    continue
                accused[node] = None
                for partner, is_bad in self.partners[node].items():
                    if partner in accused:
                        continue
                    tested[partner] -= 1
                    if is_bad:
                        buckets.get(bad[partner], set()).discard(partner)
                        bad[partner] -= 1
                        buckets.setdefault(bad[partner], set()).add(partner)
        return list(accused)

    def _sentence(self, node: str) -> str:
        partners = self.partners[node]
        bad = [p for p in self.bad if node in p]
        found = self._bad_verdicts(bad)
        every = "every partner" if len(bad) == len(partners) else "nearly every partner"
        count = f"{len(bad)} of {plural(len(partners), 'pair')}"
        values, unit, others = self._numbers(found)
        if values:
            text = f"{number(statistics.median(values))} {unit}".rstrip()
            rest = f" (median of the others {number(statistics.median(others))} {unit}".rstrip() + ")" if others else ""
            return f"{self._how(found)} to {every}: {count} at {text}{rest} in {self.check}"
        return f"fails with {every}: {count} in {self.check} ({_reason(found)})"

    def _numbers(self, found: Sequence[Verdict]) -> tuple[list[float], str, list[float]]:
        """The bad values of the measurement that is bad most often, its unit, and the good pairs' values of it."""
        names: dict[tuple[str, str, int | None], list[float]] = {}
        for v in found:
            m = v.measurement
            if m and v.status is Status.FAIL and not isinstance(m.value, str):
                names.setdefault((m.name, m.unit, m.size_bytes), []).append(float(m.value))
        if not names:
            return [], "", []
        key = max(names, key=lambda k: len(names[k]))
        others = [float(v.measurement.value) for p in self.good for v in self.verdicts[p]
                  if v.measurement and (v.measurement.name, v.measurement.unit, v.measurement.size_bytes) == key
                  and not isinstance(v.measurement.value, str)]
        return names[key], key[1], others

    @staticmethod
    def _how(found: Sequence[Verdict]) -> str:
        return "slow" if all(v.basis in ("limit", "derived", "peers") for v in found) else "bad"

    def _bad_verdicts(self, pairs: Iterable[Pair]) -> list[Verdict]:
        return [v for p in sorted(pairs) for v in self.verdicts[p] if v.status in _BAD]

    def _everything(self) -> None:
        found = self._bad_verdicts(self.bad)
        nodes = sorted(self.partners)
        values, unit, _ = self._numbers(found)
        what = f"median {number(statistics.median(values))} {unit}".rstrip() if values else _reason(found)
        hubs = sorted(set.intersection(*(set(p) for p in self.bad)))
        if hubs:
            text = (f"{hubs[0]}: {self.check}: all {plural(len(self.bad), 'pair')} bad ({what}); no pair without it "
                    "was measured")
        elif self.device and not values:
            kind = re.sub("[0-9]+", "#", what)
            self.case.everywhere.setdefault((self.name, tuple(nodes), kind), []).append((self, what, found))
            return
        else:
            text = _all_bad(len(nodes), self.check, len(self.bad), what)
        self.case.others.append(_finding(text, hubs or nodes, found))

    def leftover(self, pairs: Sequence[Pair]) -> None:
        """Bad pairs that no accused node explains."""
        if len(pairs) > _MOST_PAIRS:
            nodes = sorted({n for p in pairs for n in p})
            found = self._bad_verdicts(pairs)
            self.case.others.append(_finding(
                f"{len(pairs)} pairs of {fold(nodes)}: {self.check}: no node explains them ({_reason(found)})",
                nodes, found))
            return
        for pair in pairs:
            found = self._bad_verdicts([pair])
            known = [n for n in pair if n in self.case.causes]
            same = [n for n in known if self.device and any(
                v.subject.device == self.device for v in self.case.causes[n].verdicts)]
            known = same or known
            if len(known) == 1:
                self.case.causes[known[0]].explains += found
                self.case.causes[known[0]].rails.add(self.device)
                self.case.causes[known[0]].pairs.append(f"bad with {_other(pair, known[0])} in {self.check}: "
                                                        f"{_reason(found)}")
                continue
            self.case.others.append(_finding(f"{pair[0]} - {pair[1]}: {self.check}: {_reason(found)}; "
                                             f"{self._why_pair(pair)}", pair, found))

    def _why_pair(self, pair: Pair) -> str:
        good = [sum(not bad for bad in self.partners[n].values()) for n in pair]
        if all(good):
            return (f"{pair[0]} is good with {plural(good[0], 'other node')}, {pair[1]} with {good[1]}: "
                    "look at the path between them")
        alone = [n for n, count in zip(pair, good, strict=True) if not count]
        if len(alone) == 1:
            return f"{_other(pair, alone[0])} is good with others; {alone[0]} or the path to it is to blame"
        return "which of the two is to blame cannot be told: neither was good with another node"


def _all_bad(nodes: int, where: str, pairs: int, what: str) -> str:
    return (f"all {nodes} nodes: {where}: all {plural(pairs, 'pair')} bad ({what}); a common cause is likely, no "
            "single node can be told apart")


def _pair(subject: Subject) -> Pair:
    a, b = sorted(subject.nodes)
    return a, b


def _other(pair: Pair, node: str) -> str:
    return pair[1] if pair[0] == node else pair[0]


def _reason(verdicts: Sequence[Verdict]) -> str:
    """The most frequent reason."""
    counts: dict[str, int] = {}
    for v in verdicts:
        counts[v.reason or v.status.value] = counts.get(v.reason or v.status.value, 0) + 1
    return max(counts, key=lambda r: counts[r])[:300]


# --- groups

class _Groups:
    """The groups of one check, of one rail where they are by rail: many of them hold smaller ones."""

    def __init__(self, verdicts: Sequence[Verdict], case: _Case) -> None:
        self.case = case
        self.found: dict[frozenset[str], list[Verdict]] = {}
        for v in verdicts:
            self.found.setdefault(frozenset(v.subject.nodes), []).append(v)
        self.bad = {g: [v for v in found if v.status in _BAD] for g, found in self.found.items()
                    if any(v.status in _BAD for v in found)}
        self.good = [g for g, found in self.found.items()
                     if g not in self.bad and any(v.status in _GOOD for v in found)]

    def solve(self) -> None:
        """The smallest groups first: what is bad with few nodes explains what is bad with these and more."""
        told: list[tuple[frozenset[str], list[Verdict]]] = []
        for group in sorted(self.bad, key=lambda g: (len(g), sorted(g))):
            inner = next((verdicts for held, verdicts in told if held < group), None)
            if inner is not None:
                inner += self.bad[group]
                continue
            mine: list[Verdict] = []
            told.append((group, mine))
            mine += self.bad[group]
        for group, verdicts in told:
            self._group(group, verdicts)

    def _group(self, group: frozenset[str], verdicts: list[Verdict]) -> None:
        own = self.bad[group]
        nodes = own[0].subject.nodes
        named = [n for n in nodes if any(n in told_words(v.reason) for v in own)]
        culprits = [n for n in nodes if n in self.case.causes]
        for node in [n for n in named if n in culprits] or culprits:
            self.case.causes[node].explains += verdicts
        if culprits:
            return
        check = f"{own[0].check} {own[0].subject.device}".strip()
        reason = f"{_reason(own)}{self._larger(group, verdicts)}"
        cleared = max((g for g in self.good if g < group), key=len, default=frozenset())
        left = [n for n in nodes if n not in cleared]
        if not nodes:
            text, about = f"{check}: {reason}", nodes
        elif named and len(named) <= max(1, len(nodes) // 2):
            text, about = f"{fold(named)}: {check} over {fold(nodes)}: {reason}", tuple(named)
        elif cleared:
            text = (f"{fold(left)}: {check} over {fold(nodes)}: {reason}; {fold(sorted(cleared))} without "
                    f"{'it' if len(left) == 1 else 'them'} good{self._parity(group)}")
            about = tuple(left)
        else:
            text = (f"{fold(nodes)}: {check}: {reason}; one of these nodes, no other test says which"
                    f"{self._parity(group)}")
            about = nodes
        self.case.others.append(_finding(text, about, verdicts))

    def _larger(self, group: frozenset[str], verdicts: Sequence[Verdict]) -> str:
        sizes = sorted({len(v.subject.nodes) for v in verdicts} - {len(group)})
        return f" (also in the groups of {', '.join(map(str, sizes))} nodes that hold these)" if sizes else ""

    def _parity(self, group: frozenset[str]) -> str:
        """A network of rails only: rings over an odd number of nodes must cross from one rail to another."""
        if not self.found[group][0].check.startswith("nccl_") or len(self.good) < 2:
            return ""
        if all(len(g) % 2 for g in self.bad) and not any(len(g) % 2 for g in self.good):
            return "; bad with odd numbers of nodes only: where rails are not connected try NCCL_CROSS_NIC=0"
        return ""

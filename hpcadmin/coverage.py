"""What was expected to be tested and what became of it: nodes, GPUs, HCA ports and paths between leaf switches. Pure.

Tested is what took part in a test that gave a value which could be compared or at least read. Failed is what a FAIL or
a finding names by itself, or what failed in every test that it took part in: one bad node spoils its pairs, not its
partners. A node that was lost during the run is failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpcadmin.check import Layout, Status, Subject, Verdict
from hpcadmin.hosts import expand
from hpcadmin.model import Inventory, Node
from hpcadmin.rundata import Covered, Expected, Finding, NotTested, Plan, PlannedTest
from hpcadmin.site import Site

NODES, GPUS, PORTS, PATHS = "nodes", "GPUs", "HCA ports", "leaf-to-leaf paths"
_MEASURED = (Status.PASS, Status.WARN, Status.FAIL, Status.UNJUDGED)
_RDMA = {"rdma", "infiniband", "roce"}
NO_TEST = "no test of this suite is about it"
Item = tuple[str, str]              # node and device ("" for the node), or two leaf switches


# --- what is expected -------------------------------------------------------------------------------------------


def expected_of(asked: Iterable[str], accepted: Inventory | None, seen: Inventory | None, site: Site,
                ) -> tuple[Expected, ...]:
    """Of all nodes that were asked for, whether they can be tested or not. What was accepted counts, and what the
    site's file wants beyond it; what was only seen where nothing was accepted."""
    known = {node.name: node for inventory in (seen, accepted) if inventory for node in inventory.nodes}
    wanted: dict[str, tuple[int, int]] = {}
    for group in site.nodes:
        if group.gpus or group.rdma:
            wanted.update(dict.fromkeys(expand(group.hosts), (group.gpus or 0, group.rdma or 0)))
    groups: dict[tuple[int | None, tuple[str, ...] | None], list[str]] = {}
    for name in asked:
        gpus, rdma = wanted.get(name, (0, 0))
        groups.setdefault((_gpus(known.get(name), gpus), _ports(known.get(name), rdma)), []).append(name)
    return tuple(Expected(tuple(names), gpus, ports) for (gpus, ports), names in groups.items())


def _gpus(node: Node | None, wanted: int) -> int | None:
    if node is None or (not node.gpus and node.lacks("gpus")):
        return wanted or None
    return max(wanted, len(node.gpus))


def _ports(node: Node | None, wanted: int) -> tuple[str, ...] | None:
    if node is None:
        return tuple(f"port {i + 1} of {wanted}" for i in range(wanted)) or None
    found = [f"{nic.rdma}/{nic.port or 1}" for nic in node.nics if nic.rdma]
    if not found and not wanted and (node.lacks("nics") or node.lacks("rdma")):
        return None
    return (*found, *(f"port {i + 1} of {wanted}" for i in range(len(found), wanted)))


# --- what became of it ------------------------------------------------------------------------------------------


def coverage(plan: Plan, verdicts: Sequence[Verdict], findings: Sequence[Finding] = ()) -> tuple[Covered, ...]:
    """In the order nodes, GPUs, ports, paths. findings: what explains the verdicts."""
    expected = plan.expected or (Expected((*plan.nodes, *(s.node for s in plan.skipped))),)
    tally = _Tally(plan, expected, verdicts)
    tally.accuse(findings)
    gpus = {n: e.gpus for e in expected for n in e.nodes}
    ports = {n: e.ports for e in expected for n in e.nodes}
    found = [tally.covered(NODES, [(n, "") for n in gpus])]
    found.append(tally.covered(GPUS, [(n, f"GPU {i}") for n, count in gpus.items() for i in range(count or 0)],
                               _unknown("how many GPUs", gpus)))
    found.append(tally.covered(PORTS, [(n, p) for n, names in ports.items() for p in names or ()],
                               _unknown("which ports", ports)))
    leaves = sorted({leaf for node, leaf in plan.leaves.items() if node in gpus})
    paths = [(a, b) for i, a in enumerate(leaves) for b in leaves[i + 1:]]
    found.append(tally.covered(PATHS, paths, "" if leaves else "the switches between the nodes are not known"))
    return tuple(found)


def _unknown(what: str, told: Mapping[str, object]) -> str:
    lacking = sum(value is None for value in told.values())
    return f"{what} is not known of {lacking} of {len(told)} nodes" if lacking else ""


class _Tally:
    """Of each thing: tests that gave a value, those of them that failed, and why there are none."""

    def __init__(self, plan: Plan, expected: Sequence[Expected], verdicts: Sequence[Verdict]) -> None:
        self.plan = plan
        self.measured: dict[Item, int] = {}
        self.failed: dict[Item, int] = {}
        self.named: set[Item] = set()                     # a FAIL names it by itself
        self.why: dict[Item, tuple[int, str]] = {}        # the worst reason
        self._gpus = {n: e.gpus or 0 for e in expected for n in e.nodes}
        self._ports = {n: e.ports or () for e in expected for n in e.nodes}
        self._covers = {e.check: set(e.covers) for e in plan.entries}
        first = {t.id: t.repeats or t.id for t in plan.tests}
        by_test: dict[str, list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.test:
                by_test.setdefault(first.get(verdict.test, verdict.test), []).append(verdict)
            self._say(verdict)
        for test in plan.tests:
            if not test.repeats:
                self._count(test, by_test.get(test.id, ()))
        for skip in plan.skipped:
            self.why[skip.node, ""] = 9, skip.reason

    def accuse(self, findings: Iterable[Finding]) -> None:
        """Nodes that a finding names alone, and those that were lost during the run after they had been tested."""
        for finding in findings:
            item = finding.nodes[0] if len(finding.nodes) == 1 else "", finding.device
            lost = "availability" in finding.checks and item in self.measured
            if item[0] and (finding.status is Status.FAIL or lost):
                self.named.add(item)

    def _say(self, verdict: Verdict) -> None:
        """What a verdict says of a device or node by itself."""
        if len(verdict.subject.nodes) == 1 or verdict.measurement is None:
            for node in verdict.subject.nodes:
                item = node, verdict.subject.device
                if verdict.status is Status.FAIL and len(verdict.subject.nodes) == 1:
                    self.named.add(item)
                elif verdict.status in (Status.NOT_RUN, Status.ERROR):
                    self._because(item, verdict)

    def _because(self, item: Item, verdict: Verdict) -> None:
        rank = verdict.status.rank
        if verdict.reason and rank > self.why.get(item, (0, ""))[0]:
            self.why[item] = rank, f"{verdict.check}: {verdict.reason}"

    def _count(self, test: PlannedTest, verdicts: Sequence[Verdict]) -> None:
        values = any(v.status in _MEASURED and v.basis != "plan" for v in verdicts)
        bad = [v.subject for v in verdicts if v.status is Status.FAIL]
        lost = next((v for v in verdicts if v.status in (Status.ERROR, Status.NOT_RUN)), None)
        for item in self._items(test):
            if values:
                self.measured[item] = self.measured.get(item, 0) + 1
                self.failed[item] = self.failed.get(item, 0) + any(self._about(subject, item) for subject in bad)
            elif lost is not None:
                self._because(item, lost)

    def _about(self, subject: Subject, item: Item) -> bool:
        """Whether a FAIL of that may be this thing's: not another node's alone, nor another device's."""
        node, device = item
        if node not in self._gpus:                      # a path: what a pair does, not what one node of it is
            return len(subject.nodes) == 2
        if node not in subject.nodes:
            return False
        known = subject.device.startswith("GPU ") or subject.device in self._ports[node]
        return not device or not known or subject.device == device

    def _items(self, test: PlannedTest) -> Iterator[Item]:
        """What takes part in a test."""
        nodes = test.subject.nodes
        covers = self._covers.get(test.check, set())
        for node in nodes:
            yield node, ""
            if "gpu" in covers:
                one = (test.gpu,) if test.gpu is not None else range(self._gpus.get(node, 0))
                yield from ((node, f"GPU {i}") for i in one)
        if test.ports:
            names = test.ports * len(nodes) if len(test.ports) == 1 else test.ports
            owners = nodes * len(names) if len(nodes) == 1 else nodes
            yield from zip(owners, names, strict=False)
        elif covers & _RDMA and test.layout is Layout.NODE and len(nodes) == 1:
            yield from ((nodes[0], name) for name in self._ports.get(nodes[0], ()))
        if len(nodes) == 2:
            one_leaf, other = (self.plan.leaves.get(n) for n in nodes)
            if one_leaf and other and one_leaf != other:
                yield min(one_leaf, other), max(one_leaf, other)

    def covered(self, kind: str, items: Sequence[Item], note: str = "") -> Covered:
        failed: list[str] = []
        missing: dict[str, list[str]] = {}
        tested = 0
        for item in items:
            count = self.measured.get(item, 0)
            name = f"{item[0]} - {item[1]}" if kind == PATHS else f"{item[0]} {item[1]}".strip()
            if item in self.named or (count and self.failed[item] == count):
                failed.append(name)
                tested += 1
            elif count:
                tested += 1
            else:
                missing.setdefault(self._reason(item, kind), []).append(name)
        return Covered(kind, len(items), tested, tuple(failed),
                       tuple(NotTested(why, tuple(names)) for why, names in missing.items()), note)

    def _reason(self, item: Item, kind: str) -> str:
        known = self.why.get(item) or (self.why.get((item[0], "")) if kind != PATHS else None)
        if known:
            return known[1]
        return "no pair of the plan is under these two" if kind == PATHS else NO_TEST


def coverage_lines(found: Iterable[Covered], most: int = 6) -> list[str]:
    """For people: a line for each kind, and one for each reason."""
    lines = []
    for one in found:
        if not one.expected:
            lines += [f"{one.kind}: {one.note}"] if one.note else []
            continue
        left = one.expected - one.tested
        lines.append(f"{one.kind}: {one.tested:,} of {one.expected:,} tested, {len(one.failed):,} failed, "
                     f"{left:,} not tested" + (f" ({one.note})" if one.note else ""))
        if one.failed:
            lines.append(f"  failed: {_some(one.failed, most)}")
        lines += [f"  not tested: {_some(gone.what, most)}: {gone.reason}" for gone in one.not_tested]
    return lines


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""A run and the runs that measured again what failed in it, as one run: what stands now, and what was before.

Pure, and fails closed. A result that is bad counts as good only when the same test (check, nodes in their order,
device, parameters, every value at its size) was measured in a later run that is complete, whole, of the same kind of
hardware (real or simulated), begun after the bad one had ended, and is good by the limits of both runs. What was not
measured again stays as it was; what was good and is bad in a later run is bad. What was measured on hardware that was
replaced since, and not after that, is NOT RUN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hpcadmin import acceptance_peers as by_peers
from hpcadmin.acceptance_book import GOOD, Book, Key, Said, Slot, bad_value, kinds_of, result_of
from hpcadmin.acceptance_model import Acceptance, Again, Part, Result, Swap
from hpcadmin.acceptance_swaps import spoiled, swaps
from hpcadmin.check import Scope, Status, Verdict
from hpcadmin.coverage import coverage
from hpcadmin.inventory import merge as merge_inventories
from hpcadmin.isolate import explain
from hpcadmin.model import Inventory
from hpcadmin.rejudge import judge_again
from hpcadmin.report.summary import summarise, verdict_text, worst
from hpcadmin.report.times import parse_time
from hpcadmin.run_lost import AVAILABILITY
from hpcadmin.rundata import Plan, Run
from hpcadmin.text import plural


def merge(runs: Sequence[Run], problems: Sequence[str] = (), seals: Mapping[str, str] | None = None) -> Run:
    """runs: the first, then its re-tests in the order in which they were begun. seals: of their folders, by name."""
    state = _State(runs, seals or {})
    for place in range(1, len(runs)):
        state.take(place)
    return state.whole(problems)


class _State:
    def __init__(self, runs: Sequence[Run], seals: Mapping[str, str]) -> None:
        self.runs = runs
        self.summaries = [summarise(run) for run in runs]
        self.parts = [self._part(place, seals) for place in range(len(runs))]
        first = Book(runs[0], 0)
        self.slots = dict(first.slots())
        self.rest = [self._said(v, 0) for v in first.rest]
        self.again: list[Again] = []                # of what is about no test
        self.swaps: list[Swap] = []
        self.inventory: Inventory | None = runs[0].inventory
        self.remarks: list[str] = []
        known = {t.id for t in first.tests}
        self.stray = [m for m in runs[0].measured if m.test not in known]
        self._judged: dict[tuple[int, int], dict[str, Status]] = {}
        self._had: dict[str, set[str]] = {}         # nodes that had tests of a check before the run that is taken
        self._good: set[tuple[str, str]] | None = None

    def _part(self, place: int, seals: Mapping[str, str]) -> Part:
        run, m = self.runs[place], self.runs[place].manifest
        simulated = self.summaries[place].simulated
        why = ""
        if m.state != "complete":
            why = f"it is {m.state}, not complete"
        elif self.summaries[place].problems or run.plan is None:
            why = "its folder is damaged or not whole"
        elif simulated != self.summaries[0].simulated:
            why = f"its hardware is {f'simulated ({simulated})' if simulated else 'real'}, that of the first run is not"
        elif m.cluster and self.runs[0].manifest.cluster and m.cluster != self.runs[0].manifest.cluster:
            why = f"it is of cluster {m.cluster}, not of {self.runs[0].manifest.cluster}"
        tests = sum(1 for row in self.summaries[place].checks for s, n in row.counts.items()
                    for _ in range(n) if s is not Status.NOT_RUN)
        return Part(run.path.name, m.retest_of, m.started, m.ended, str(run.path), m.state, not why, why, tests,
                    simulated, seals.get(run.path.name, ""))

    # --- one run more ----------------------------------------------------------------------------------------------

    def take(self, place: int) -> None:
        book = Book(self.runs[place], place)
        self._had = {}
        for slot in self.slots.values():
            self._had.setdefault(slot.test.check, set()).update(slot.test.subject.nodes)
        self._swapped(book)
        self._remark(book)
        for key, new in book.slots():
            self._test(key, new, book)
        self._without_test(book)

    def _test(self, key: Key, new: Slot, book: Book) -> None:
        if new.status is Status.NOT_RUN or not new.status.counts:
            return                                  # it was not measured: nothing of it is known anew
        old = self.slots.get(key)
        if old is None:
            new.results.append(result_of(new, book.name))
            if new.status not in GOOD or self._is_new(new, book):
                self.slots[key] = new
            return
        if not old.results:
            old.results.append(result_of(old, self.parts[old.part].run))
        why = self._not_good(old, new, book) if new.status in GOOD else ""
        old.results.append(result_of(new, book.name, remark=why, like=bad_value(old.verdicts)))
        if (new.status in GOOD and not why) or (
                new.status not in GOOD and (new.status.rank >= old.status.rank or old.status in GOOD)):
            new.results, new.kinds, new.remark = old.results, old.kinds | self._kinds(new), ""
            self.slots[key] = new
        else:
            old.remark = why or f"{book.name} could not measure it"

    def _not_good(self, old: Slot, new: Slot, book: Book) -> str:
        """Why a good result does not count."""
        part = self.parts[book.place]
        if not part.counts:
            return part.why
        begun, ended = parse_time(part.started), parse_time(self.parts[old.part].ended)
        if begun is None or ended is None or begun.tzinfo is None or ended.tzinfo is None or begun < ended:
            return f"it is not known to have begun after {self.parts[old.part].run} had ended"
        old.kinds |= self._kinds(old)
        lacking = len(old.kinds - kinds_of(new.verdicts))
        if lacking:
            return f"it lacks {plural(lacking, 'value')} that had been judged before"
        for place in dict.fromkeys((0, old.part)):
            status = self._by_limits_of(place, new, book)
            if status not in GOOD:
                return f"by the limits of {self.parts[place].run} it is {status.value}"
        return ""

    def _kinds(self, slot: Slot) -> set[Key]:
        """What was judged of a test and must be judged again, without complaints: some checks say a thing only where it
        is wrong ("GPU is lost"), in place of all else. That is a fact which nothing had right in any of the runs."""
        if self._good is None:
            self._good = {(v.check, v.measurement.name) for run in self.runs for v in run.verdicts
                          if v.measurement is not None and v.status in GOOD}
        good = self._good
        return kinds_of(v for v in slot.verdicts if v.measurement is None or v.status in GOOD
                        or not isinstance(v.measurement.expected, str) or (v.check, v.measurement.name) in good)

    def _by_limits_of(self, place: int, new: Slot, book: Book) -> Status:
        """What the test's result is by the limits of another run, where those are others."""
        check = new.test.check
        mine, theirs = (frozenset(x for x in run.limits if x.check == check) for run in (book.run, self.runs[place]))
        if mine == theirs:
            return new.status
        found = self._judged.get((book.place, place))
        if found is None:
            found = self._judged[book.place, place] = {}
            for v in judge_again(book.run, self.runs[place].limits):
                if v.test and v.basis != "peers":
                    before = found.get(v.test)
                    found[v.test] = v.status if before is None else worst((before, v.status))
            self.remarks.append(f"other limits hold in {book.name} than in {self.parts[place].run}: its values must "
                                "be good by both")
        return found.get(new.test.id.removeprefix(book.prefix), Status.UNJUDGED)

    def _is_new(self, new: Slot, book: Book) -> bool:
        """Whether a good test is of nodes that had none of this check: they could not be tested before."""
        if not self.parts[book.place].counts:
            return False
        return bool(set(new.test.subject.nodes) - self._had.get(new.test.check, set()))

    # --- what is about no test -------------------------------------------------------------------------------------

    def _without_test(self, book: Book) -> None:
        part = self.parts[book.place]
        kept: list[Said] = []
        for said in self.rest:
            v = said.verdict
            new = self._healed(v, said.part, book) if part.counts else None
            if new is None:
                kept.append(said)
            else:
                self.again.append(Again(v.check, v.subject, Status.PASS, book.name, "", (
                    *said.results, Result(book.name, "", Status.PASS, new))))
        self.rest = kept
        for v in book.rest:
            if v.status in (Status.FAIL, Status.ERROR):
                new_said = self._said(book.own(v), book.place)
                earlier = [s for s in self.rest if by_peers.about(s.verdict) == by_peers.about(new_said.verdict)]
                new_said.results[:0] = [r for s in earlier for r in s.results]
                self.rest = [*(s for s in self.rest if s not in earlier), new_said]

    def _said(self, v: Verdict, place: int) -> Said:
        return Said(v, place, [Result(self.parts[place].run, "", v.status, verdict_text(v), verdicts=(v,))])

    def _healed(self, v: Verdict, place: int, book: Book) -> str | None:
        """In words why it holds no more; None: it does."""
        if v.status in GOOD or not v.status.counts or v.status is Status.UNJUDGED:
            return None
        begun, ended = parse_time(self.parts[book.place].started), parse_time(self.parts[place].ended)
        if begun is None or ended is None or begun.tzinfo is None or ended.tzinfo is None or begun < ended:
            return None
        mine = [s for s in self.slots.values() if s.part == book.place]
        if v.basis == "peers":
            return by_peers.healed(v, self.summaries[0].verdicts, [x for s in mine for x in s.verdicts], book.rest)
        if v.check in ("", AVAILABILITY) and len(v.subject.nodes) == 1:
            return self._back(v.subject.nodes[0], mine, book)
        same = [s for s in mine if s.test.check == v.check and s.test.subject.nodes == v.subject.nodes
                and v.subject.device in ("", s.test.subject.device)]
        good = v.subject.nodes and same and all(s.status in GOOD for s in same)
        return f"{plural(len(same), 'test')} passed" if good else None

    def _back(self, node: str, mine: Sequence[Slot], book: Book) -> str | None:
        """A node that was lost, or could not be tested: all that the suite has for a node was measured, and is good."""
        plan = self.runs[0].plan
        tested = {s.test.check for s in mine if node in s.test.subject.nodes and s.status in GOOD}
        wanted = {e.check for e in plan.entries if e.status is None and e.scope not in (Scope.GROUP, Scope.CLUSTER)
                  } if plan else {""}
        for slot in self.slots.values():
            if node in slot.test.subject.nodes:
                if slot.status not in GOOD:
                    return None
                wanted.discard(slot.test.check)     # it stands, from before
        lost = any(x.check == AVAILABILITY and node in x.subject.nodes for x in book.rest)
        tried = bool(tested) and book.run.plan is not None and node in book.run.plan.nodes
        return "tested" if tried and not lost and wanted <= tested else None

    # --- what was replaced, and what else is another ---------------------------------------------------------------

    def _swapped(self, book: Book) -> None:
        """What was measured on hardware that is gone is known no more."""
        new = book.run.inventory
        if new is None or self.inventory is None or book.run.plan is None:
            return
        nodes = set(book.run.plan.nodes)
        found = [s for name in book.run.plan.nodes if (a := self.inventory.node(name)) and (b := new.node(name))
                 for s in swaps(book.name, a, b)]
        fresh = replace(new, nodes=tuple(n for n in new.nodes if n.name in nodes),
                        failed=tuple(f for f in new.failed if f.node in nodes))
        self.inventory = merge_inventories(self.inventory, fresh) if fresh.nodes else self.inventory
        self.swaps += found
        covers = {e.check: e.covers for run in self.runs if run.plan for e in run.plan.entries}
        for slot in self.slots.values() if found else ():
            swap = next((s for s in found if spoiled(s, slot.test, covers.get(slot.test.check, ()))), None)
            if swap is None or slot.status not in GOOD:
                continue
            if not slot.results:
                slot.results.append(result_of(slot, self.parts[slot.part].run))
            slot.kinds |= self._kinds(slot)
            reason = (f"{swap.node}: {swap.what} {swap.old or 'unknown'} was replaced by {swap.new} before "
                      f"{book.name}, and this was not measured since")
            slot.verdicts = [Verdict(slot.test.check, slot.test.subject, Status.NOT_RUN, reason, slot.test.id,
                                     basis="plan")]
            slot.results.append(Result(book.name, "", Status.NOT_RUN, reason, verdicts=tuple(slot.verdicts)))
            slot.measured, slot.by = [], book.name

    def _remark(self, book: Book) -> None:
        part, first = self.parts[book.place], self.runs[0]
        if part.why:
            self.remarks.append(f"what is good in {book.name} does not count: {part.why}")
        for what, a, b in (("hpcadmin", first.manifest.version, book.run.manifest.version),
                           ("Slurm", first.manifest.slurm_version, book.run.manifest.slurm_version),
                           ("cluster", first.manifest.cluster, book.run.manifest.cluster),
                           *((tool, a, b) for tool, a, b in _tools(first.plan, book.run.plan))):
            if a != b:
                self.remarks.append(f"{what}: {a or 'unknown'} in {self.parts[0].run}, {b or 'unknown'} in {book.name}")

    # --- the whole -------------------------------------------------------------------------------------------------

    def whole(self, problems: Sequence[str]) -> Run:
        first = self.runs[0]
        slots = list(self.slots.values())
        verdicts = (*(v for s in slots for v in s.verdicts), *(s.verdict for s in self.rest))
        plan = self._plan(slots, {n for s in self.rest if s.verdict.status is Status.NOT_RUN
                                  for n in s.verdict.subject.nodes})
        findings = tuple(explain(verdicts, plan))
        acceptance = Acceptance(self.parts[0].run, tuple(self.parts), (*self._all_again(slots), *self.again),
                                tuple(self.swaps), tuple(dict.fromkeys(self.remarks)))
        simulated = ", ".join(dict.fromkeys(p.simulated for p in self.parts if p.simulated))
        return replace(
            first, plan=plan, inventory=self.inventory, verdicts=verdicts, findings=findings,
            limits=tuple(dict.fromkeys(x for run in self.runs for x in run.limits)),
            measured=(*(m for s in slots for m in s.measured), *self.stray),
            coverage=coverage(plan, verdicts, findings) if plan else first.coverage, acceptance=acceptance,
            problems=(*problems, *self._problems()), manifest=replace(
                first.manifest, exit_status=None, simulated=simulated,
                notes=(_head(acceptance), *first.manifest.notes, *acceptance.remarks)))

    def _problems(self) -> Iterable[str]:
        for part, summary in zip(self.parts, self.summaries, strict=True):
            name = f"{part.run}: " if part.run != self.parts[0].run else ""
            yield from (f"{name}{p}" for p in summary.problems)
            if part.state == "running" and name:
                yield f"{name}this re-test has not ended, or was killed: hpcadmin validate --resume {part.run}"

    def _plan(self, slots: Sequence[Slot], skipped: set[str]) -> Plan | None:
        plan = self.runs[0].plan
        if plan is None:
            return None
        tools = dict.fromkeys(t for run in self.runs if run.plan for t in run.plan.tools)
        tests = tuple(t for s in slots for t in (s.test, *s.repeats))
        nodes = dict.fromkeys((*plan.nodes, *(s.node for s in plan.skipped if s.node not in skipped)))
        return replace(plan, tests=tests, verdicts=(), tools=tuple(tools), nodes=tuple(nodes),
                       skipped=tuple(s for s in plan.skipped if s.node in skipped))

    def _all_again(self, slots: Sequence[Slot]) -> Iterable[Again]:
        for slot in slots:
            bad = slot.status not in GOOD and slot.status.counts
            if slot.part == 0 and not slot.results and bad:
                yield Again(slot.test.check, slot.test.subject, slot.status, self.parts[0].run, slot.test.id,
                            (result_of(slot, self.parts[0].run),), "not measured again")
            elif slot.results and (len(slot.results) > 1 or bad):
                yield Again(slot.test.check, slot.test.subject, slot.status, slot.by or self.parts[slot.part].run,
                            slot.test.id, tuple(slot.results), slot.remark)
        for said in self.rest:
            v = said.verdict
            if v.status in (Status.FAIL, Status.ERROR, Status.NOT_RUN):
                yield Again(v.check, v.subject, v.status, self.parts[said.part].run, "", tuple(said.results),
                            "" if said.part else "not measured again")


def _head(acceptance: Acceptance) -> str:
    names = [p.run for p in acceptance.parts[1:]]
    return (f"acceptance of {acceptance.first} with {plural(len(names), 're-test')} ({', '.join(names)}): of each test "
            "its last result that counts")


def _tools(one: Plan | None, other: Plan | None) -> Iterable[tuple[str, str, str]]:
    def versions(plan: Plan | None) -> dict[str, str]:
        found: dict[str, set[str]] = {}
        for tool in plan.tools if plan else ():
            if tool.version:
                found.setdefault(tool.tool, set()).add(tool.version)
        return {tool: " and ".join(sorted(all_)) for tool, all_ in found.items()}
    a, b = versions(one), versions(other)
    return [(tool, a[tool], b[tool]) for tool in sorted(a.keys() & b.keys())]

"""A run's tests, each with its verdicts and values, so that those of two runs can be laid side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.acceptance_model import Result
from hpcadmin.check import Layout, Measurement, Status, Verdict
from hpcadmin.report.summary import complete_verdicts, verdict_text, worst
from hpcadmin.rundata import Measured, PlannedTest, Run

GOOD = (Status.PASS, Status.WARN)
_TOGETHER = (Layout.GROUPS, Layout.LEAVES, Layout.ALL)
Key = tuple[object, ...]


@dataclass
class Slot:
    """A test, with the result of it that stands. part: the run that it is of; by: the one that made it unknown, where
    its hardware was replaced."""

    test: PlannedTest
    verdicts: list[Verdict]
    part: int
    repeats: list[PlannedTest] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    kinds: set[Key] = field(default_factory=set)
    remark: str = ""
    by: str = ""

    @property
    def status(self) -> Status:
        return worst(v.status for v in self.verdicts)


@dataclass
class Said:
    """What is said of nodes without a test of its own: by their peers, or before anything ran."""

    verdict: Verdict
    part: int
    results: list[Result]


class Book:
    """A run's tests with their verdicts and values, by the id of the first of those that repeat each other."""

    def __init__(self, run: Run, place: int) -> None:
        self.run, self.place, self.name = run, place, run.path.name
        self.prefix = f"{self.name}/" if place else ""
        self.tests = run.plan.tests if run.plan else ()
        first = {t.id: t.repeats or t.id for t in self.tests}
        self.verdicts: dict[str, list[Verdict]] = {}
        self.rest: list[Verdict] = []               # about no test: what is known before, what the peers say
        for v in complete_verdicts(run):
            if v.basis != "peers" and v.test in first:
                self.verdicts.setdefault(first[v.test], []).append(v)
            else:
                self.rest.append(v)
        self.measured: dict[str, list[Measured]] = {}
        for one in run.measured:
            self.measured.setdefault(first.get(one.test, one.test), []).append(one)
        self.repeats: dict[str, list[PlannedTest]] = {}
        for test in self.tests:
            if test.repeats:
                self.repeats.setdefault(test.repeats, []).append(test)

    def slots(self) -> Iterable[tuple[Key, Slot]]:
        """Each test by what it is about; of equal ones the second, third, … by its number."""
        times: dict[Key, int] = {}
        for test in self.tests:
            if not test.repeats:
                key = key_of(test)
                times[key] = times.get(key, 0) + 1
                yield (*key, times[key]), Slot(
                    self.own_test(test), [self.own(v) for v in self.verdicts.get(test.id, ())], self.place,
                    [self.own_test(t) for t in self.repeats.get(test.id, ())],
                    [replace(m, test=self.prefix + m.test) if self.prefix else m
                     for m in self.measured.get(test.id, ())])

    def own(self, v: Verdict) -> Verdict:
        if not self.prefix:
            return v
        return replace(v, test=self.prefix + v.test if v.test else "",
                       outputs=tuple(self.prefix + o for o in v.outputs))

    def own_test(self, test: PlannedTest) -> PlannedTest:
        if not self.prefix:
            return test
        return replace(test, id=self.prefix + test.id, repeats=self.prefix + test.repeats if test.repeats else "",
                       before=self.prefix + test.before if test.before else "")


def key_of(test: PlannedTest) -> Key:
    """Equal for what is the same test in two runs. Whether a group is that of a leaf switch or the first so many nodes
    changes nothing of what is measured: its nodes count."""
    together = test.layout in _TOGETHER and len(test.subject.nodes) > 1
    return (test.check, test.subject.nodes, "" if together else test.subject.device,
            "together" if together else test.layout, test.rail, test.ports, test.gpu, test.when, test.ranks,
            tuple(sorted(test.params.items())))


def kinds_of(verdicts: Iterable[Verdict]) -> set[Key]:
    """What was judged, without its values."""
    return {kind_of(v.measurement) for v in verdicts if v.measurement is not None}


def kind_of(m: Measurement) -> Key:
    return m.name, m.unit, m.size_bytes, m.direction, m.rail, m.mode, m.nodes, m.subject


def bad_value(verdicts: Sequence[Verdict]) -> Key | None:
    v = max((v for v in verdicts if v.measurement is not None), key=lambda v: v.status.rank, default=None)
    return kind_of(v.measurement) if v is not None and v.measurement is not None else None


def result_of(slot: Slot, run: str, *, remark: str = "", like: Key | None = None) -> Result:
    """like: the value that is shown, where nothing is worse."""
    def order(v: Verdict) -> tuple[int, bool]:
        return v.status.rank, v.measurement is not None and kind_of(v.measurement) == like
    shown = max(slot.verdicts, key=order, default=None)
    return Result(run, slot.test.id.rpartition("/")[2], slot.status, verdict_text(shown) if shown else "", remark,
                  tuple(slot.verdicts), tuple(m.measurement for m in slot.measured))

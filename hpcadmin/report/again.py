"""What was measured again after a repair, as rows for people: each test's result before, and what it is now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.acceptance_model import Acceptance, Again, Result
from hpcadmin.check import Measurement, Status
from hpcadmin.peers import number_problem
from hpcadmin.report.folding import short_list
from hpcadmin.report.summary import measurement_name
from hpcadmin.report.times import duration, local_time
from hpcadmin.text import number, plural

TITLE = "Measured again after repair"
_GOOD = (Status.PASS, Status.WARN)


@dataclass(frozen=True)
class Step:
    """What one run found. number: of the run, as in runs_of; value: with the reason why it does not count."""

    number: int
    run: str
    status: Status
    value: str

    @property
    def text(self) -> str:
        return f"{self.number}: {self.status.value} {self.value}".rstrip()


@dataclass(frozen=True)
class AgainRow:
    """Tests of a check to which the same happened. status: what stands."""

    status: Status
    check: str
    where: str
    steps: tuple[Step, ...]
    remark: str
    tests: int

    @property
    def before(self) -> str:
        """All results but the last; of what the first run found the first."""
        return "; ".join(s.text for s in self.steps[:-1] or [s for s in self.steps if s.number == 1])

    @property
    def after(self) -> str:
        last = self.steps[-1].text if len(self.steps) > 1 or self.steps[0].number > 1 else ""
        return "; ".join(part for part in (last, "" if self.remark in last else self.remark) if part)


@dataclass(frozen=True)
class RunRow:
    number: int
    run: str
    when: str
    what: str
    tests: int


def runs_of(acceptance: Acceptance) -> list[RunRow]:
    numbers = {p.run: i for i, p in enumerate(acceptance.parts, 1)}
    rows = []
    for n, p in enumerate(acceptance.parts, 1):
        took = duration(p.started, p.ended)
        of = f"measures again what failed in {numbers.get(p.retest_of, p.retest_of)}" if n > 1 else "the first run"
        why = f"what is good in it does not count: {p.why}" if p.why and n > 1 else p.why
        rows.append(RunRow(n, p.run, local_time(p.started) + (f", took {took}" if took else ""),
                           "; ".join(part for part in (of, why) if part), p.tests))
    return rows


def swap_lines(acceptance: Acceptance) -> list[str]:
    numbers = {p.run: i for i, p in enumerate(acceptance.parts, 1)}
    return [f"{s.node}: {s.what} {s.old or 'unknown'} -> {s.new}, before run {numbers[s.run]}"
            for s in acceptance.swaps]


def again_rows(acceptance: Acceptance, *, everything: bool = False) -> list[AgainRow]:
    """Worst first; what was good each time only with `everything`."""
    numbers = {p.run: i for i, p in enumerate(acceptance.parts, 1)}
    groups: dict[tuple[object, ...], list[Again]] = {}
    for one in acceptance.again:
        if everything or not _always_good(one):
            key = (one.check, one.status, one.remark, tuple((r.run, r.status, r.remark) for r in one.results),
                   len(one.subject.nodes), one.subject.device, _kind(one) if len(one.subject.nodes) == 2 else one)
            groups.setdefault(key, []).append(one)
    rows = [_row(found, numbers, everything=everything) for found in groups.values()]
    return sorted(rows, key=lambda r: (-r.status.rank, r.check, r.where))


def always_good(acceptance: Acceptance) -> int:
    """How many tests were good before and again."""
    return sum(map(_always_good, acceptance.again))


def counted(acceptance: Acceptance) -> str:
    """"Of 4 results that had been bad 3 are good now, 4 were good each time"."""
    was = [a for a in acceptance.again if a.results[0].run == acceptance.first and a.results[0].status not in _GOOD]
    now = sum(a.status in _GOOD for a in was)
    worse = sum(a.status not in _GOOD for a in acceptance.again) - (len(was) - now)
    parts = [f"Of {plural(len(was), 'result')} that had been bad {now} {'are' if now != 1 else 'is'} good now"]
    parts += [f"{plural(worse, 'other')} {'are' if worse != 1 else 'is'} bad now"] * (worse > 0)
    same = always_good(acceptance)
    parts += [f"{same} {'were' if same != 1 else 'was'} good each time"] * (same > 0)
    return ", ".join(parts)


def _always_good(one: Again) -> bool:
    return one.status in _GOOD and all(r.status in _GOOD and not r.remark for r in one.results)


def _row(found: Sequence[Again], numbers: Mapping[str, int], *, everything: bool) -> AgainRow:
    first = found[0]
    like = _kind(first)
    steps = tuple(Step(numbers[r.run], r.run, r.status, _value([a.results[i] for a in found], like))
                  for i, r in enumerate(first.results))
    return AgainRow(first.status, first.check, _where(found, everything=everything), steps, first.remark, len(found))


def _where(found: Sequence[Again], *, everything: bool) -> str:
    first = found[0].subject
    if len(found) == 1:
        return str(first) if len(first.nodes) <= 2 else f"{short_list(first.nodes, everything=everything)} " \
            f"{first.device}".rstrip()
    common = set.intersection(*(set(a.subject.nodes) for a in found))
    others = list(dict.fromkeys(n for a in found for n in a.subject.nodes if n not in common))
    names = short_list(others, everything=everything)
    return f"{next(iter(common))} - {names}" if len(common) == 1 else f"{plural(len(found), 'pair')} of {names}"


def _kind(one: Again) -> tuple[str, str] | None:
    """The value that was bad, by its name and unit; None: no value was."""
    bad = (_measurement(r, None) for r in one.results if r.status not in _GOOD)
    return next((_like(m) for m in bad if m is not None), None)


def _like(m: Measurement) -> tuple[str, str]:
    return measurement_name(m), m.unit


def _measurement(result: Result, like: tuple[str, str] | None) -> Measurement | None:
    """The one that the result is shown by: the worst, and of several the one that was bad elsewhere."""
    found = [v for v in result.verdicts if v.measurement is not None]
    shown = max(found, key=lambda v: (v.status.rank, v.measurement is not None and _like(v.measurement) == like),
                default=None)
    return shown.measurement if shown is not None else None


def _value(results: Iterable[Result], like: tuple[str, str] | None) -> str:
    """Of one test as it is; of several from the lowest to the highest."""
    results = list(results)
    first = results[0]
    remark = f" ({first.remark})" if first.remark else ""
    found = [m for r in results if (m := _measurement(r, like)) is not None and not number_problem(m.value)]
    if len(results) == 1 or len(found) < len(results) or len({_like(m) for m in found}) > 1:
        return f"{first.value}{'' if len(results) == 1 else ', …'}{remark}"
    low, high = (number(f(float(m.value) for m in found)) for f in (min, max))
    name, unit = _like(found[0])
    return f"{name} {low if low == high else f'{low} to {high}'} {unit}".rstrip() + remark

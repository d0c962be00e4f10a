"""What gets worse over the nights although every limit holds: drifts over the sweep's own runs, and the last of them
against the baseline of its suite. It is told, and nothing is done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import HpcadminError
from hpcadmin.history import Change
from hpcadmin.history_runs import compare_runs
from hpcadmin.history_store import moments
from hpcadmin.history_trend import Drift, trends
from hpcadmin.rundata import read_run
from hpcadmin.store import Entry, Index, Wanted, with_index
from hpcadmin.store_marks import SWEEP_TAG
from hpcadmin.sweep.model import Problem
from hpcadmin.sweep.sources import Looks
from hpcadmin.text import printable

MOST_RUNS = 60              # of the last nights
MOST_PAST = 10              # that tell what noise is
MOST_TOLD = 20


@dataclass(frozen=True)
class Trend:
    """Of the runs that sweeps have made of this suite. It tells no look: a drift is no fault."""

    runs: Path
    suite: str

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        if not self.runs.is_dir():
            return Looks(looked=False, unknown=("trend/",))
        notes: list[str] = []
        try:
            found = with_index(self.runs, lambda index: self._problems(index, now, notes))
        except (HpcadminError, OSError) as exc:
            return Looks(notes=(f"trends are not known: {printable(str(exc))}",), looked=False, unknown=("trend/",))
        return Looks(notes=tuple(notes[:5]), problems=tuple(found), looked=False)

    def _problems(self, index: Index, now: float, notes: list[str]) -> list[Problem]:
        name = Path(self.suite).stem if "/" in self.suite or self.suite.endswith(".toml") else self.suite
        own = [entry for entry in index.find(Wanted(tag=SWEEP_TAG, state="complete")) if entry.suite == name]
        own = sorted(own, key=lambda entry: entry.started)[-MOST_RUNS:]
        if not own:
            return []
        made = moments(index, own, "", notes)
        found = [drift_problem(drift, now) for drift in trends(made).drifts if drift.worse]
        base = [entry for entry in index.find(Wanted(baseline=True)) if entry.suite == name
                and entry.cluster == own[-1].cluster]
        if base:
            found += self._against(max(base, key=lambda entry: entry.baseline), own[-1], index, own, now)
        return list({problem.key: problem for problem in found}.values())[:MOST_TOLD]

    def _against(self, base: Entry, last: Entry, index: Index, own: Sequence[Entry], now: float) -> list[Problem]:
        if base.path.resolve() == last.path.resolve() or base.simulated != last.simulated:
            return []
        past = [moment.values for moment in moments(index, own[-1 - MOST_PAST:-1], "", [])]
        compared = compare_runs(read_run(base.path), read_run(last.path), past)
        return [baseline_problem(change, base.name, last.name, now) for change in compared.values.changes
                if change.worse]


def drift_problem(drift: Drift, now: float) -> Problem:
    """Its signature is not the number: that is another one every night."""
    node = drift.entity.node if drift.entity else ""
    where = drift.entity.text if drift.entity else "all nodes"
    how = f"in a step between {drift.step[0]} and {drift.step[1]}" if drift.step else (
        f"over {drift.points} runs, {drift.percent_per_week:+.1f} % a week")
    return Problem(f"trend/{where}/{drift.check}/{drift.name}", "step" if drift.step else "drift",
                   printable(f"{where}: {drift.check} {drift.name} is {drift.percent:+.1f} % {how}", limit=300), node,
                   since=now)


def baseline_problem(change: Change, base: str, last: str, now: float) -> Problem:
    where = change.entity.text if change.entity else "all nodes"
    return Problem(f"trend/{where}/{change.check}/{change.name}/baseline", base,
                   printable(f"{where}: {change.check} {change.name} is {change.percent:+.1f} % against the baseline "
                             f"{base} (run {last})", limit=300), change.entity.node if change.entity else "", since=now)

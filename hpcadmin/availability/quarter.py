"""The runs of a period: what each said, what changed against the baseline or the first one, and what drifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcadmin.errors import HpcadminError
from hpcadmin.history_runs import Comparison, compare_runs
from hpcadmin.history_store import moments, unreadable
from hpcadmin.history_trend import MIN_POINTS, Drift, trends
from hpcadmin.report.summary import summarise
from hpcadmin.rundata import read_run
from hpcadmin.store import Entry, Index, Wanted, epoch
from hpcadmin.text import plural

MOST_PAST = 10
MOST_BYTES = 1 << 30        # of measurements that are read for drifts
_WORDS = {0: "PASSED", 1: "FAILED", 3: "INCOMPLETE"}


@dataclass(frozen=True)
class SuiteChange:
    """why: why there is no comparison. old_is: "baseline" or "first run of the period"."""

    suite: str
    new: str
    old: str = ""
    old_is: str = ""
    comparison: Comparison | None = None
    why: str = ""


@dataclass(frozen=True)
class Quarter:
    """runs: those begun in the period. words: what each said; of the last complete one of a suite its whole line."""

    runs: tuple[Entry, ...] = ()
    words: dict[str, str] = field(default_factory=dict)
    changes: tuple[SuiteChange, ...] = ()
    drifts: tuple[Drift, ...] = ()
    series: int = 0
    drift_note: str = ""
    problems: tuple[str, ...] = ()


def quarter(index: Index, start: int, end: int, cluster: str) -> Quarter:
    """cluster "": of all. Runs on simulated hardware are told, and compared with nothing."""
    runs = [e for e in index.find(Wanted(since=float(start))) if (epoch(e.started) or end) < end
            and (not cluster or not e.cluster or e.cluster == cluster)]
    words = {e.name: _word(e) for e in runs}
    problems = [f"run {text}" for text in unreadable(index, float(start))]
    real = [e for e in runs if e.state == "complete" and not e.simulated and not e.problem]
    changes = []
    for suite in sorted({e.suite for e in real}):
        of = [e for e in real if e.suite == suite]
        changes.append(_change(index, suite, of, words, problems))
    found, note, series = _drifts(index, real, problems)
    return Quarter(tuple(runs), words, tuple(changes), found, series, note, tuple(dict.fromkeys(problems)))


def _word(entry: Entry) -> str:
    if entry.problem:
        return "unreadable"
    if entry.state != "complete":
        return f"INCOMPLETE: it is {entry.state}"
    return _WORDS.get(entry.exit_status if entry.exit_status is not None else -1,
                      f"exit status {entry.exit_status}, not known here")


def _change(index: Index, suite: str, of: Sequence[Entry], words: dict[str, str], problems: list[str]) -> SuiteChange:
    last = of[-1]
    try:
        new = read_run(last.path)
        words[last.name] = summarise(new).text
        before, what = _other(index, of)
        if before is None:
            return SuiteChange(suite, last.name, why="it is the only complete run of its suite, and there is no "
                               "baseline before it")
        past = [e for e in index.find(Wanted(suite=_plain(suite), state="complete", cluster=last.cluster))
                if e.name not in (last.name, before.name) and e.started < last.started and not e.simulated]
        values = [m.values for m in moments(index, past[-MOST_PAST:], "", problems)]
        return SuiteChange(suite, last.name, before.name, what, compare_runs(read_run(before.path), new, values))
    except HpcadminError as exc:
        return SuiteChange(suite, last.name, why=str(exc))


def _other(index: Index, of: Sequence[Entry]) -> tuple[Entry | None, str]:
    last = of[-1]
    named = [e for e in index.find(Wanted(suite=_plain(last.suite), cluster=last.cluster, baseline=True))
             if e.name != last.name and (epoch(e.started) or 0) < (epoch(last.started) or 0) and not e.simulated]
    if named:
        return max(named, key=lambda e: e.baseline), "baseline"
    return (of[0], "first run of the period") if len(of) > 1 else (None, "")


def _plain(suite: str) -> str:
    """A name as a pattern of that name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in suite)


def _drifts(index: Index, real: Sequence[Entry], problems: list[str]) -> tuple[tuple[Drift, ...], str, int]:
    if len(real) < MIN_POINTS:
        return (), f"{plural(len(real), 'complete run')}: fewer than {MIN_POINTS}, too few to tell a drift", 0
    size = sum((e.path / "measurements.jsonl").stat().st_size for e in real if (e.path / "measurements.jsonl").exists())
    if size > MOST_BYTES:
        return (), f"{size >> 20} MiB of measurements are not looked through here: hpcadmin runs trend CHECK does it", 0
    found = trends(moments(index, real, "", problems))
    if not found.series:
        return (), f"fewer than {MIN_POINTS} values of anything: too few to tell a drift", 0
    return found.drifts, "", found.series

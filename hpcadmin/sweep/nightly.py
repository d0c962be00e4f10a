"""The tests of a night: a short suite on idle nodes and the night's pairs, and of nodes that were drained for a test
that test again. Both through validate, as jobs that give way to users, each with a run folder of its own."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcadmin.errors import EXIT_INTERRUPTED, HpcadminError, StoreError
from hpcadmin.hosts import fold
from hpcadmin.registry import load_suite
from hpcadmin.run_nodes import Rules, Selection, select
from hpcadmin.run_session import Request
from hpcadmin.site import Site
from hpcadmin.slurm.client import Client
from hpcadmin.store_marks import SWEEP_TAG, change_marks, with_tags
from hpcadmin.sweep.ahead import untested
from hpcadmin.sweep.guard import Guard, Keeper, Pages, Retest, open_guards, to_retest
from hpcadmin.sweep.model import Entry, Problem
from hpcadmin.sweep.night import answered
from hpcadmin.sweep.rotate import rotation
from hpcadmin.sweep.sources import Looks, RunVerdicts
from hpcadmin.text import printable

WAIT_S = 120.0              # that a node which became busy is waited for; then it is left

Validate = Callable[[Request], tuple[Path, int]]


@dataclass(frozen=True)
class Ran:
    """What the tests of a night left: the runs, what to say, what is wrong with the testing itself, and what of that is
    not known tonight (as in Looks)."""

    runs: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    unknown: tuple[str, ...] = ()


class _RunError(HpcadminError):
    """A run of tests could not be kept."""


@dataclass
class Nightly:
    """Runs the tests. validate: a request -> the run's folder and its exit status; it raises what validate does."""

    site: Site
    client: Callable[[], Client]
    keeper: Keeper
    validate: Validate
    user: str = field(default_factory=lambda: pwd.getpwuid(os.geteuid()).pw_name)    # not what $LOGNAME says
    sleep: Callable[[float], None] = time.sleep
    uid: int = field(default_factory=os.geteuid)

    def go(self, diary: Pages, run: str, night: int, now: float) -> Ran:
        """Raises nothing but what the ledger does: where no test can be run, that is a problem that is told."""
        sweep, notes = self.site.sweep, []
        guard = Guard(self.keeper, diary, self.user, sleep=self.sleep)
        if not sweep.suite and not open_guards(diary.entries):
            return Ran()
        try:
            answered(self.keeper, sweep.answer_s)
        except HpcadminError as exc:
            left = open_guards(diary.entries)
            return Ran(notes=(f"nothing was tested: {exc}",),
                       problems=(_held(left, str(exc), now),) if left else (), unknown=("suite",))
        try:
            notes += guard.put_right()
        except StoreError:
            raise
        except HpcadminError as exc:
            return Ran(problems=(_held(open_guards(diary.entries), str(exc), now),), unknown=("suite",))
        if not sweep.suite:
            return Ran(notes=tuple(notes))
        if why := untested(self.site, self.uid):
            return Ran(notes=tuple(notes), problems=(suite_problem(sweep.suite, why, now),))
        runs: list[Path] = []
        problems: list[Problem] = []
        unknown: tuple[str, ...] = ()
        try:
            chosen = self._chosen()
            idle = [node.name for node in chosen.nodes]
            again = (to_retest(diary.history(), self.keeper.all_nodes(), idle, night)
                     if sweep.retest and sweep.resume else None)
            if again is not None:
                runs += self._again(guard, again, run, notes)
            request = self._request(chosen, night)
            if request is None:
                notes.append("no node is idle: nothing is tested")
                unknown = ("suite",)
            else:
                runs.append(self._run(request))
        except StoreError:
            raise
        except HpcadminError as exc:
            problems.append(suite_problem(sweep.suite, str(exc), now))
        if left := open_guards(diary.entries):
            problems.append(_held(left, "they could not be released", now))
        return Ran(tuple(runs), tuple(notes), tuple(problems), unknown)

    def _chosen(self) -> Selection:
        slurm, sweep, client = self.site.slurm, self.site.sweep, self.client()
        return select(client.nodes(), client.partitions(), sweep.partition or slurm.partition, "",
                      Rules(only_idle=True))

    def _request(self, chosen: Selection, night: int) -> Request | None:
        """The idle nodes of the night, and those of its pairs of which both are idle."""
        sweep = self.site.sweep
        turn = rotation(chosen.asked, pairs=sweep.suite_pairs, nodes=sweep.suite_nodes)
        idle = {node.name for node in chosen.nodes}
        pairs = tuple(pair for pair in turn.pairs_of(night) if idle.issuperset(pair))
        names = (set(turn.nodes_of(night)) & idle) | {name for pair in pairs for name in pair}
        if not names:
            return None
        order = [node.name for node in chosen.nodes if node.name in names]
        return replace(self._plain(order), meet=pairs)

    def _plain(self, nodes: Sequence[str]) -> Request:
        sweep, slurm = self.site.sweep, self.site.slurm
        return Request(suite=sweep.suite, hostlist=fold(list(nodes)), partition=sweep.partition or slurm.partition,
                       account=sweep.account or slurm.account, qos=sweep.qos or slurm.qos, nice=sweep.nice,
                       time_limit_min=sweep.suite_minutes, allow_root=sweep.suite_as_root, wait_for_s=WAIT_S,
                       command=("hpcadmin", "sweep"))

    def _again(self, guard: Guard, retest: Retest, run: str, notes: list[str]) -> list[Path]:
        suite = load_suite(self.site.sweep.suite, self.site)
        known = {name for entry in suite.entries for name in entry.names}
        checks = tuple(check for check in retest.checks if check in known)
        if not checks:
            notes.append(f"{fold(sorted(retest.reasons))} cannot be tested again: {', '.join(retest.checks)} is not in "
                         f"suite {suite.name}")
            return []
        try:
            with guard.held(retest, run) as name:
                request = replace(self._plain(retest.nodes), only=checks, reservation=name,
                                  meet=retest.pairs)
                return [self._run(request)]
        except StoreError:
            raise
        except HpcadminError as exc:
            notes.append(f"{fold(sorted(retest.reasons))} could not be tested again: {printable(str(exc))}")
            return []

    def _run(self, request: Request) -> Path:
        """A run folder that cannot be written is no fault of the ledger: the sweep goes on."""
        try:
            folder, status = self.validate(request)
            change_marks(folder, lambda marks: with_tags(marks, (SWEEP_TAG,), ()))
        except StoreError as exc:
            raise _RunError(exc.what, where=exc.where, hint=exc.hint) from exc
        if status == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        return folder


def suite_problem(suite: str, why: str, now: float = 0.0) -> Problem:
    """Numbers are of jobs, lines and times: another one is no news."""
    why = printable(why)
    signature = f"not run: {re.sub('[0-9]+', '#', why)[:200]}"
    return Problem("suite", signature, f"suite {suite} was not run: {why}", since=now)


def _held(left: Sequence[Entry], why: str, now: float) -> Problem:
    nodes = fold(sorted({node for entry in left for node in entry.text.split()}))
    text = f"{nodes}: reserved by a sweep for a test, and still so: {printable(why)}"
    return Problem("guard", nodes, text, since=now)


@dataclass(frozen=True)
class NightLooks:
    """The verdicts of a night's runs as looks. What was not run or cannot be judged says nothing: the rotation comes
    to it on another night."""

    tested: Ran
    days: float

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        parts = [RunVerdicts(folder, self.days, measured=True).looks(nodes, now) for folder in self.tested.runs]
        return Looks(tuple(look for part in parts for look in part.looks),
                     notes=(*self.tested.notes, *(note for part in parts for note in part.notes)),
                     problems=self.tested.problems, looked=any(part.looked for part in parts),
                     unknown=self.tested.unknown)

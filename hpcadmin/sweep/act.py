"""Doing what was decided: the intent on disk first, the node looked at once more, Slurm asked, what came of it seen and
written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hpcadmin.errors import HpcadminError
from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.client import NoAnswerError
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.ledger import History
from hpcadmin.sweep.letgo import BOOT_WOBBLE_S, stands
from hpcadmin.sweep.model import CHANGED, DONE, NOT_DONE, PENDING, REFUSED, Act, Decision, Entry, night_of
from hpcadmin.sweep.reconcile import became
from hpcadmin.sweep.states import drained_idle, hands_off, unfit
from hpcadmin.text import printable


class Door(Protocol):
    """To Slurm. Each raises SlurmError when it refuses, NoAnswerError when it is not known whether it did it."""

    def all_nodes(self) -> tuple[NodeRecord, ...]: ...

    def one_node(self, name: str) -> NodeRecord | None: ...

    def drain(self, name: str, reason: str) -> None: ...

    def undrain(self, name: str) -> None: ...

    def comment(self, name: str, text: str) -> None: ...


class Book(Protocol):
    """The ledger. Entries are on disk when write returns."""

    def write(self, *entries: Entry) -> None: ...


@dataclass(frozen=True)
class Done:
    """What came of a decision. result: one of the outcomes."""

    decision: Decision
    result: str
    text: str = ""
    stop: bool = False          # Slurm does nothing more for us now


class Hand:
    """Acts in one run. A slurmctld that takes longer than answer_s to tell of one node is asked for nothing."""

    def __init__(self, door: Door, book: Book, run: str, history: History, *, clock: Callable[[], float],
                 policy: SweepSite) -> None:
        self._door, self._book, self._run, self._clock, self._history = door, book, run, clock, history
        self._policy = policy
        self._count = 0

    def do(self, decision: Decision) -> Done:
        self._count += 1
        now = self._clock()
        intent = Entry("intent", now, self._run, night_of(now), f"{self._run}/{self._count}", decision.node,
                       decision.act.value, decision.checks, decision.kinds, decision.partners, decision.reason,
                       decision.was, boot=decision.boot, boot_time=decision.boot_time, undoes=decision.undoes)
        self._book.write(intent)
        done, after = self._tried(decision, intent)
        by = after.reason_by if after and done.result == DONE and decision.act is Act.DRAIN else ""
        self._book.write(Entry("outcome", self._clock(), self._run, id=intent.id, node=intent.node, act=intent.act,
                               result=done.result, text=done.text, state=after.state.text if after else "", by=by))
        return done

    def _tried(self, decision: Decision, intent: Entry) -> tuple[Done, NodeRecord | None]:
        try:
            begun = time.monotonic()
            record = self._door.one_node(decision.node)
            if (took := time.monotonic() - begun) > self._policy.answer_s:
                return Done(decision, NOT_DONE, f"Slurm was not asked: it answers after {took:.0f} s", stop=True), None
        except HpcadminError as exc:
            return Done(decision, NOT_DONE, f"Slurm was not asked: {exc}", stop=True), None
        if why := self._changed(decision, record):
            return Done(decision, CHANGED, why), record
        try:
            self._ask(decision)
        except NoAnswerError as exc:
            return self._unsure(decision, intent, str(exc))
        except HpcadminError as exc:
            return Done(decision, REFUSED, str(exc), stop="may not change nodes" in str(exc)), None
        try:
            after = self._door.one_node(decision.node)
        except HpcadminError as exc:
            return Done(decision, PENDING, f"asked; whether it was done is not known: {exc}", stop=True), None
        result, text = became(intent, after)
        return Done(decision, result, "" if result == DONE else f"asked, but {text}"), after

    def _unsure(self, decision: Decision, intent: Entry, why: str) -> tuple[Done, NodeRecord | None]:
        """No answer: it may have been done, or be done yet."""
        try:
            after = self._door.one_node(decision.node)
        except HpcadminError:
            after = None
        if after is not None and became(intent, after)[0] == DONE:
            return Done(decision, DONE, f"done, although there was no answer: {why}", stop=True), after
        return Done(decision, PENDING, f"asked; whether it was done is not known: {why}", stop=True), None

    def _ask(self, decision: Decision) -> None:
        if decision.act is Act.DRAIN:
            self._door.drain(decision.node, decision.reason)
        elif decision.act is Act.RESUME:
            self._door.undrain(decision.node)
        else:
            self._door.comment(decision.node, decision.reason if decision.act is Act.COMMENT else decision.was)

    def _changed(self, decision: Decision, record: NodeRecord | None) -> str:
        """Why it must not be done any more: the node is not as it was when that was decided."""
        if record is None:
            return "Slurm has no such node any more"
        if decision.act is Act.RESUME:
            return self._no_resume(decision, record)
        if why := hands_off(record, self._history.reasons_of(record.name), left_reasons=self._policy.left_reasons):
            told = f": {printable(record.reason, limit=100)}" if record.reason else ""
            return f"it {why} by now{told}"
        if decision.act is Act.COMMENT and record.comment != decision.was:
            return "it has another comment by now"
        if decision.act is Act.UNCOMMENT and record.comment != decision.reason:
            return "its comment is not ours any more"
        return ""

    def _no_resume(self, decision: Decision, record: NodeRecord) -> str:
        if not stands(record, decision.reason):
            return f"it is not drained by us any more: {record.state.text} {printable(record.reason, limit=100)}"
        if why := unfit(record):
            return f"it {why} by now"
        if decision.undoes:
            return ""               # a person wants the drain away, jobs or not
        if not drained_idle(record):
            return "jobs run on it"
        before = decision.boot_time
        if before is not None and record.boot_time is not None and abs(record.boot_time - before) > BOOT_WOBBLE_S:
            return "it was booted since it was looked at"
        return ""

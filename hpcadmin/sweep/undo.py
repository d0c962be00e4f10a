"""Taking back what a sweep did, where it is still as the sweep left it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hpcadmin.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE, UsageError
from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.act import Done, Door, Hand
from hpcadmin.sweep.budget import Budget
from hpcadmin.sweep.decide import Plan
from hpcadmin.sweep.ledger import History
from hpcadmin.sweep.letgo import stands
from hpcadmin.sweep.model import DONE, PENDING, Act, Decision, Entry, night_of
from hpcadmin.sweep.night import Report, answered, in_turn, opened, reconcile, run_id
from hpcadmin.sweep.states import hands_off
from hpcadmin.sweep.words import bare, reason_of


def undo(folder: Path, policy: SweepSite, door: Door, which: str, *, dry_run: bool = False,
         clock: Callable[[], float] = time.time) -> Report:
    """SlurmError when Slurm does not answer: nothing was done then."""
    with opened(folder, dry_run=dry_run) as (diary, _):
        now = clock()
        target = find_sweep(diary.history(), which)
        run = run_id(now)
        nodes = answered(door, policy.answer_s)
        diary.write(Entry("begin", now, run, night_of(now), act="undo", undoes=target))
        reconcile(diary, nodes, now, run)
        history = diary.history()
        decisions = undoing(history, nodes, target, run, policy)
        hand = Hand(door, diary, run, history, clock=clock, policy=policy)
        done: dict[str, Done] = {}
        if not dry_run:
            done = in_turn([decision for decision in decisions if decision.act.touches], hand)
        status = _status(decisions, done, dry_run)
        diary.write(Entry("end", clock(), run, night_of(now), act="undo", result=str(status), looked=True))
        return Report(run, night_of(now), dry_run, status, Plan(tuple(decisions), Budget()), done)


def _status(decisions: Sequence[Decision], done: dict[str, Done], dry_run: bool) -> int:
    if any(d.stop or d.result == PENDING for d in done.values()):
        return EXIT_UNREACHABLE
    whole = all(d.act.touches for d in decisions) and (dry_run or all(d.result == DONE for d in done.values()))
    return EXIT_OK if whole else EXIT_FAILED


def find_sweep(history: History, which: str, *, to_read: bool = False) -> str:
    """The run of that id, of its unambiguous beginning, or "last": the last that did something; to_read: the last."""
    busy = {intent.run for intent in history.intents.values()}
    acted = [run for run in history.sweeps if to_read or run in busy]
    if which == "last":
        if not acted:
            raise UsageError("there was no sweep yet" if to_read else "no sweep has done anything yet")
        return acted[-1]
    if not which.strip():               # of an empty variable in a script: never the only sweep there is
        raise UsageError("no sweep is named", hint="hpcadmin sweep list shows all")
    found = [run for run in history.sweeps if run == which] or [r for r in history.sweeps if r.startswith(which)]
    if len(found) != 1:
        raise UsageError(f"there is no sweep {which!r}" if not found else
                         f"{which!r} is the beginning of {len(found)} sweeps", hint="hpcadmin sweep list shows all")
    return found[0]


def undoing(history: History, nodes: Sequence[NodeRecord], target: str, run: str,
            policy: SweepSite) -> list[Decision]:
    """A decision for each node that the run touched; pure."""
    records = {record.name: record for record in nodes}
    last: dict[str, Entry] = {}
    for intent in history.intents.values():
        if intent.run == target and intent.id in history.outcomes and history.outcomes[intent.id].result == DONE:
            last[intent.node] = intent
    return [_undone(intent, records.get(node), history, run, policy) for node, intent in sorted(last.items())]


def _undone(intent: Entry, record: NodeRecord | None, history: History, run: str, policy: SweepSite) -> Decision:
    left = Decision(intent.node, Act.HOLD, "", intent.checks, intent.kinds)
    if record is None:
        return _but(left, "Slurm has no such node any more")
    back = Decision(intent.node, Act.HOLD, "", intent.checks, intent.kinds, intent.reason, intent.was, intent.partners,
                    intent.boot, record.boot_time, undoes=intent.id)
    names = ", ".join(map(bare, intent.checks))
    if intent.act == Act.DRAIN:
        standing = history.ours.get(intent.node)
        if standing is None or standing.intent.id != intent.id or not stands(record, intent.reason):
            return _but(left, "it is not drained by that any more")
        return replace(back, act=Act.RESUME, why=f"drained for {names}")
    if intent.act == Act.RESUME:
        off = hands_off(record, history.reasons_of(record.name), left_reasons=policy.left_reasons)
        if off or intent.node in history.ours:
            return _but(left, f"not drained again: it {off}" if off else "it is drained again already")
        return replace(back, act=Act.DRAIN, why=f"resumed after {names}",
                       reason=reason_of(intent.checks, "the resume was undone", run))
    if intent.act == Act.COMMENT:
        if record.comment != intent.reason:
            return _but(left, "its comment is not that any more")
        return replace(back, act=Act.UNCOMMENT, why=f"commented for {names}")
    if record.comment != intent.was:
        return _but(left, "it has another comment by now")
    return replace(back, act=Act.COMMENT, why=f"its comment was taken away after {names}")


def _but(left: Decision, why: str) -> Decision:
    return Decision(left.node, left.act, f"not undone: {why}", left.checks, left.kinds)

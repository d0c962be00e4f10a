"""The ledger and Slurm brought together before anything is decided: what was begun and never recorded, what somebody
else has changed since. Pure: entries for the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.ledger import History, Standing
from hpcadmin.sweep.letgo import stands
from hpcadmin.sweep.model import CHANGED, DONE, NOT_DONE, Act, Entry
from hpcadmin.sweep.words import like_ours
from hpcadmin.text import printable

CLOCKS_S = 60.0             # that slurmctld's clock may be ahead of ours


def pending_outcomes(history: History, nodes: Iterable[NodeRecord], now: float, run: str) -> list[Entry]:
    """What became of intents without an outcome, by the run id in the node's reason; and drains that stand although the
    ledger says otherwise: slurmctld had the request and came to it later, or it crashed and forgot the resume."""
    records = {record.name: record for record in nodes}
    found = []
    for intent in history.pending.values():
        record = records.get(intent.node)
        if record is None or not record.unclear:
            found.append(_outcome(intent, became(intent, record), record, now, run))
    for record in records.values():
        own = history.reasons_of(record.name).get(record.own_reason)
        if own is None or own.id in history.pending or record.name in history.ours or not stands(record, own.reason):
            continue
        if _by_another(record, history.by.get(own.id, "")) or _since(record, history.over.get(own.id)):
            continue                    # the same words, written by somebody else
        found.append(_outcome(own, (DONE, "found drained by it, against the ledger"), record, now, run))
    return found


def _by_another(record: NodeRecord, by: str) -> bool:
    return bool(by and record.reason_by and record.reason_by != by)


def _since(record: NodeRecord, over: float | None) -> bool:
    return over is not None and record.reason_time is not None and record.reason_time > over + CLOCKS_S


def became(intent: Entry, record: NodeRecord | None) -> tuple[str, str]:
    """(outcome, in words) of an intent, from how the node is now."""
    if record is None:
        return NOT_DONE, "Slurm has no such node any more"
    drained = "DRAIN" in record.state.flags
    if intent.act == Act.DRAIN:
        return (DONE, "found drained by it") if stands(record, intent.reason) else (NOT_DONE, "found not drained by it")
    if intent.act == Act.RESUME:
        if not drained:
            return DONE, "found resumed"
        return (NOT_DONE, "found still drained") if stands(record, intent.reason) else (
            CHANGED, f"found drained for another reason: {printable(record.reason, limit=100)}")
    wanted, before = (intent.reason, intent.was) if intent.act == Act.COMMENT else (intent.was, intent.reason)
    if record.comment == wanted:
        return DONE, "found with the comment that was wanted"
    return (NOT_DONE, "found with the comment as before") if record.comment == before else (
        CHANGED, f"found with another comment: {printable(record.comment, limit=100)}")


def _outcome(intent: Entry, what: tuple[str, str], record: NodeRecord | None, now: float, run: str) -> Entry:
    result, text = what
    return Entry("outcome", now, run, id=intent.id, node=intent.node, act=intent.act, result=result, text=text,
                 state=record.state.text if record else "",
                 by=record.reason_by if record and result == DONE and intent.act == Act.DRAIN else "")


def changed_by_others(history: History, nodes: Iterable[NodeRecord], now: float, run: str,
                      held: Collection[str] = ()) -> list[Entry]:
    """Drains and comments of ours that are not as we left them: not ours any more. held: nodes that we have undrained
    ourselves to test them again, and that are yet to be drained again."""
    found = []
    records = {record.name: record for record in nodes}
    for name, standing in history.ours.items():
        record = records.get(name)
        text = _taken(record, standing, between=name in held)
        if text:
            found.append(Entry("left", now, run, id=standing.intent.id, node=name, act=Act.DRAIN.value, text=text,
                               state=record.state.text if record else ""))
    for name, comment in history.comments.items():
        record = records.get(name)
        if record is not None and not record.unclear and record.comment != comment.reason:
            found.append(Entry("left", now, run, id=comment.id, node=name, act=Act.COMMENT.value,
                               text=f"has another comment now: {printable(record.comment, limit=200)}",
                               state=record.state.text))
    return found


def _taken(record: NodeRecord | None, standing: Standing, *, between: bool) -> str:
    """How a drain of ours came to be one no more, "" while it stands."""
    if record is None:
        return "Slurm has no such node any more"        # should it come back as it was, it is found to be ours
    if record.unclear or (between and "DRAIN" not in record.state.flags):
        return ""
    if "DRAIN" not in record.state.flags:
        return "resumed by somebody else"
    if not stands(record, standing.intent.reason):
        return f"has another reason now: {printable(record.reason, limit=200)}"
    return f"drained again by {printable(record.reason_by, limit=60)}" if _by_another(record, standing.by) else ""


def strange(nodes: Iterable[NodeRecord], history: History) -> list[str]:
    """Nodes that are drained with a reason like ours and are not ours: by a sweep from another host, from a ledger that
    was lost, or taken over by somebody who wrote on behind it. They are out of service because of a sweep all the
    same."""
    pending = {intent.node for intent in history.pending.values()}
    return sorted(record.name for record in nodes if "DRAIN" in record.state.flags and like_ours(record.reason)
                  and record.name not in history.ours and record.name not in pending)

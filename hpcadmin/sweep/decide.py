"""What is done about each node, and why: a pure function of what was seen, the policy, the ledger and the time."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.budget import Budget, budget, limit
from hpcadmin.sweep.faults import Ground, faults_of, latest
from hpcadmin.sweep.ledger import History, take_look
from hpcadmin.sweep.letgo import Letgo, let_go, passed
from hpcadmin.sweep.model import AHEAD_S, Act, Decision, Fault, Kind, Look, Result, Seen, night_of
from hpcadmin.sweep.reconcile import strange
from hpcadmin.sweep.states import exists, hands_off, in_service
from hpcadmin.sweep.words import bare, reason_of


@dataclass(frozen=True)
class Plan:
    """A decision for each node, in the order of their names; what the budget said."""

    decisions: tuple[Decision, ...]
    budget: Budget


@dataclass(frozen=True)
class _Ground:
    """What the decisions rest on."""

    seen: Seen
    policy: SweepSite
    history: History        # with the looks of tonight
    faults: dict[str, list[Fault]]
    unknown: dict[str, list[str]]       # node -> checks without an answer
    last: Mapping[tuple[str, str], Look]
    run: str


def decide(seen: Seen, policy: SweepSite, history: History, now: float, run: str) -> Plan:
    """Exactly one decision for each node of Slurm's. The ledger has been reconciled with what was seen. run: the id
    that reasons will have."""
    known = with_looks(history, seen.looks, now)
    there = sum(1 for record in seen.nodes if exists(record))
    sound = frozenset(record.name for record in seen.nodes if in_service(record))
    faults = faults_of(seen.looks, known, policy,
                       Ground(now, sound, limit(policy.night_nodes, policy.night_percent, there)))
    ground = _Ground(seen, policy, known, faults, _unanswered(seen.looks), latest(seen.looks), run)
    records = sorted(seen.nodes, key=lambda record: record.name)
    wanted = [_about(record, ground) for record in records]
    drains = [d for d in wanted if d.act is Act.DRAIN]
    faulty = sum(1 for record in records if record.name not in history.ours and in_service(record)
                 and any(fault.act is Act.DRAIN for fault in faults.get(record.name, ())))
    allowed = budget(policy, history, night_of(now), all_nodes=there, faulty=faulty, drains=len(drains),
                     comments=sum(1 for d in wanted if d.act is Act.COMMENT), strange=strange(seen.nodes, history))
    return Plan(tuple(_within(decision, allowed) for decision in wanted), allowed)


def with_looks(history: History, looks: Iterable[Look], now: float) -> History:
    """The same with these looks; the history that was given stays as it is. What a clock that was ahead has left of
    the future would outdo all that is seen until then."""
    known = copy.copy(history)
    known.pairs = {key: look for key, look in history.pairs.items() if look.time <= now + AHEAD_S}
    known.passes = defaultdict(list, {key: [look for look in passes if look.time <= now + AHEAD_S]
                                      for key, passes in history.passes.items()})
    known.dismissed, known.told = dict(history.dismissed), set(history.told)
    for look in sorted(looks, key=lambda look: (look.time, look.result is Result.BAD)):     # the worse of one moment
        take_look(known, look)
    return known


def _about(record: NodeRecord, ground: _Ground) -> Decision:
    faults = ground.faults.get(record.name, [])
    standing = ground.history.ours.get(record.name)
    if standing is not None:
        return _ours(record, faults, let_go(record, standing, ground.history, ground.policy, ground.last), ground)
    pending = [entry for entry in ground.history.pending.values() if entry.node == record.name]
    if pending:
        return Decision(record.name, Act.HOLD, f"it is not known yet what became of {pending[0].act} in "
                        f"{pending[0].run}", checks=pending[0].checks)
    if not faults:
        return _without_fault(record, ground)
    return _with_faults(record, faults, ground)


def _ours(record: NodeRecord, faults: list[Fault], gone: Letgo, ground: _Ground) -> Decision:
    """A node that we have drained: it stays so unless what failed has passed, and nothing else wants it drained."""
    standing = ground.history.ours[record.name]
    intent = standing.intent
    base = Decision(record.name, Act.KEEP, "", intent.checks, intent.kinds, intent.reason, partners=intent.partners,
                    boot=intent.boot, boot_time=record.boot_time)
    still = [fault for fault in faults if fault.act is Act.DRAIN]
    if still:
        return replace(base, why=f"drained by us in {intent.run}; {_words(still)}")
    if gone.why:
        unknown = _unknown(record.name, ground)
        return replace(base, why=f"drained by us in {intent.run}; {gone.why}{f'; {unknown}' if unknown else ''}")
    return replace(base, act=Act.RESUME, why=f"{', '.join(map(bare, intent.checks))} passed{gone.how}")


def _without_fault(record: NodeRecord, ground: _Ground) -> Decision:
    comment = ground.history.comments.get(record.name)
    if comment is None or record.comment != comment.reason:
        return Decision(record.name, Act.NONE, _unknown(record.name, ground))
    why = _not_passed(record.name, comment.checks, comment.time, ground.history)
    if why:
        return Decision(record.name, Act.TELL, f"commented in {comment.run}; {why}", comment.checks, comment.kinds)
    if off := hands_off(record, ground.history.reasons_of(record.name), left_reasons=ground.policy.left_reasons):
        return Decision(record.name, Act.HOLD, f"its comment could go, but it {off}", comment.checks, comment.kinds)
    return Decision(record.name, Act.UNCOMMENT, f"{', '.join(map(bare, comment.checks))} passed", comment.checks,
                    comment.kinds, comment.reason, comment.was)


def _not_passed(node: str, checks: Iterable[str], since: float, history: History) -> str:
    for check in checks:
        if not passed(node, check, history, since):
            return f"{bare(check)} has not passed since"
    return ""


def _unanswered(looks: Iterable[Look]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for look in looks:
        if look.result is Result.UNKNOWN and look.kind is not Kind.NETWORK:
            found.setdefault(look.node, []).append(bare(look.check))
    return found


def _unknown(node: str, ground: _Ground) -> str:
    if checks := sorted(set(ground.unknown.get(node, ()))):
        return f"not known: {', '.join(checks[:6])}"
    why = ground.seen.unmeasured.get(node, "")
    return f"its health is not known: {why}" if why else ""


def _with_faults(record: NodeRecord, faults: list[Fault], ground: _Ground) -> Decision:
    """The strongest thing that the policy wants, unless the node must not be touched."""
    act = faults[0].act
    main = [fault for fault in faults if fault.act is act]
    checks = tuple(fault.check for fault in main)
    what = Decision(record.name, act, _words(faults), checks, tuple(fault.kind.value for fault in main),
                    partners={fault.check: fault.partners for fault in main if fault.partners},
                    boot=next((fault.boot for fault in main if fault.boot), ""), boot_time=record.boot_time)
    if act is Act.TELL:
        return what
    ours = ground.history.reasons_of(record.name)
    if off := hands_off(record, ours, left_reasons=ground.policy.left_reasons):
        return replace(what, act=Act.HOLD, why=f"{what.why}; left alone: it {off}")
    text = reason_of(checks, main[0].text, ground.run)
    if act is Act.DRAIN:
        return replace(what, reason=text, was=record.reason)
    comment = ground.history.comments.get(record.name)
    if comment is not None and record.comment == comment.reason:
        if comment.checks == checks:
            return replace(what, act=Act.TELL, why=f"{what.why}; commented in {comment.run}")
        return replace(what, reason=text, was=record.comment)
    if record.comment:
        return replace(what, act=Act.HOLD, why=f"{what.why}; not commented: it has a comment that is not ours")
    return replace(what, reason=text)


def _words(faults: list[Fault]) -> str:
    return "; ".join(f"{bare(fault.check)}: {fault.text or 'bad'}" for fault in faults[:6]) + (
        f"; and {len(faults) - 6} more" if len(faults) > 6 else "")


def _within(decision: Decision, allowed: Budget) -> Decision:
    """The same, or what is left of it where the budget says no."""
    why = ""
    if decision.act.touches:
        why = allowed.mass
    if not why and decision.act is Act.DRAIN:
        why = allowed.drains
    if not why and decision.act is Act.COMMENT:
        why = allowed.comments
    if not why:
        return decision
    if decision.act is Act.RESUME:
        return replace(decision, act=Act.KEEP, why=f"{decision.why}; but nothing is done tonight")
    return replace(decision, act=Act.HOLD, why=f"{decision.why}; not done: beyond the budget", reason="")
